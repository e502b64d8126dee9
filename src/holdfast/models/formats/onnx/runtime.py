"""ONNX models, run as torch operations by an interpreter of our own, with gradients.

A file is data: its graph is read (`onnx.graph`), the operators that lead to the scores are looked
up among those that are known (`onnx.ops`, `onnx.ops_ml`), and nothing else of it is used. It is
over encoded rows, as exported from torch, or over the columns in the user's units, as from
scikit-learn. It then starts from encoded rows too: numbers are put back into their units, missing
ones too (`onnx.missing`), and categories go in as weights of their levels, so that it is
differentiable by everything a search moves.
"""

import hashlib
import math
from collections.abc import Collection, Sequence
from typing import Any, Literal, cast

import torch
from torch import Tensor, nn

from holdfast._core.checks import did_you_mean, listed
from holdfast.errors import FileError
from holdfast.models.formats.loaded import Description, LoadedModel
from holdfast.models.formats.onnx.graph import DTYPES, ML, Graph, Node, Slot, Strings, read_graph
from holdfast.models.formats.onnx.missing import ON_GAPS, Gaps
from holdfast.models.formats.onnx.ops import OPERATORS, Operator
from holdfast.models.formats.onnx.ops_ml import (
    ML_OPERATORS,
    ON_LEVELS,
    PREPARED,
    TREES,
    Ensemble,
    Levels,
    labels,
)
from holdfast.models.scores import Inputs, looks_like_probabilities
from holdfast.nn.architecture import linear_layer
from holdfast.schema.schema import Schema

REAL = ("float", "double", "float16")
KNOWN = {**OPERATORS, **ML_OPERATORS, **PREPARED}
Column = Tensor | Levels | Gaps
IMPUTER = f"{ML}.Imputer"
NEAR = 1e-6  # a number this near to an integer, in a column of integers, is that


class Interpreter(nn.Module):
    """The part of a graph that leads to one of its values."""

    def __init__(self, graph: Graph, output: str, digest: str) -> None:
        super().__init__()
        self.nodes = needed(graph, output)
        self.output = output
        self.digest = digest
        self.slots = graph.inputs
        unknown = sorted({n.op for n in self.nodes if n.op not in KNOWN})
        if unknown:
            raise FileError(
                f"the graph uses operator {listed(unknown)}, which is not among those that are run"
            )
        self.operators = _operators(self.nodes)
        used = {name for n in self.nodes for name in n.inputs} | {output}
        self.names: dict[str, str] = {}
        for name, value in graph.constants.items():
            if name in used and isinstance(value, Tensor):
                self.names[name] = own = f"constant{len(self.names)}"
                if value.is_floating_point():
                    self.register_parameter(own, nn.Parameter(value, requires_grad=False))
                else:
                    self.register_buffer(own, value)
        self.strings = {
            name: value for name, value in graph.constants.items() if isinstance(value, Strings)
        }

    def forward(self, x: Tensor) -> Tensor:
        """Scores of encoded rows, for a graph with one input."""
        slot = self.slots[0]
        sizes = (slot.shape or (None, None))[1:]
        rows = (
            x.reshape(len(x), *cast(tuple[int, ...], sizes))
            if len(sizes) > 1 and None not in sizes
            else x
        )
        return self.run({slot.name: rows.to(DTYPES.get(slot.element, torch.float32))})

    def run(self, given: dict[str, Column]) -> Tensor:
        """The output for these inputs."""
        values: dict[str, Any] = {
            **self.strings,
            **{n: getattr(self, own) for n, own in self.names.items()},
            **given,
        }
        for node, operator in zip(self.nodes, self.operators, strict=True):
            made = _carry_out(
                node, operator, [values[name] if name else None for name in node.inputs]
            )
            results: tuple[Any, ...] = (
                cast(tuple[Any, ...], made) if isinstance(made, tuple) else (made,)
            )
            for name, value in zip(node.outputs, results, strict=False):
                values[name] = value
        out = values[self.output]
        out = out.numbers() if isinstance(out, Gaps) else out
        if not isinstance(out, Tensor):
            raise FileError(f"output {self.output!r} of the graph is no tensor of numbers")
        return out

    def extra_repr(self) -> str:
        return f"{len(self.nodes)} operators, {self.digest}"

    def __getstate__(self) -> dict[str, Any]:
        """All but the operators, which are functions that the nodes name."""
        return {**vars(self), "operators": []}

    def __setstate__(self, state: dict[str, Any]) -> None:
        cast(Any, super()).__setstate__(state)
        self.operators = _operators(self.nodes)


def _operators(nodes: Sequence[Node]) -> list[Operator]:
    return [PREPARED[n.op](n) if n.op in PREPARED else KNOWN[n.op] for n in nodes]


def _carry_out(node: Node, operator: Operator, parts: list[Any]) -> Any:
    try:
        if any(isinstance(p, Levels) for p in parts):
            if node.op in ON_LEVELS:
                return ON_LEVELS[node.op](node, *parts)
            parts = [p.numbers(node) if isinstance(p, Levels) else p for p in parts]
        # which knows what to do with them
        if any(isinstance(p, Gaps) for p in parts) and node.op != IMPUTER:
            if node.op in ON_GAPS:
                return ON_GAPS[node.op](operator, node, *parts)
            parts = [p.numbers() if isinstance(p, Gaps) else p for p in parts]
        return operator(node, *parts)
    except FileError:
        raise
    except Exception as error:  # the graph may put anything together
        what = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise FileError(f"operator {node.op} of the graph failed: {what}") from None


def needed(graph: Graph, output: str) -> tuple[Node, ...]:
    """The operators that lead to a value, in order."""
    wanted = {output}
    out = list[Node]()
    for node in reversed(graph.nodes):
        if wanted & set(node.outputs):
            out.append(node)
            wanted |= set(node.inputs)
    return tuple(reversed(out))


def plain(inner: Interpreter, graph: Graph) -> nn.Sequential | None:
    """Linear and ReLU layers in turn as torch has them, which are evaluated by hand and can be
    saved, or None."""
    layers = list[nn.Module]()
    at = graph.inputs[0].name
    for node in inner.nodes:
        if node.inputs[:1] != (at,) or at == inner.output:
            return None
        at = node.outputs[0]
        if node.op == "Relu":
            layers.append(nn.ReLU())
            continue
        weight, bias = (graph.constants.get(name) for name in (*node.inputs, "", "", "")[1:3])
        usual = {"transB": 1, "alpha": 1.0, "beta": 1.0, "transA": 0}
        given = {"alpha": 1.0, "beta": 1.0, "transA": 0, "transB": 0, **node.attributes}
        if (
            node.op != "Gemm"
            or given != usual
            or not isinstance(weight, Tensor)
            or weight.ndim != 2
        ):
            return None
        named = len(node.inputs) > 2 and bool(node.inputs[2])
        if named and not (
            isinstance(bias, Tensor)
            and bias.shape == weight.shape[:1]
            and bias.dtype == weight.dtype
        ):
            return None
        layers.append(linear_layer(weight, cast(Tensor, bias) if named else None))
    return nn.Sequential(*layers).eval() if at == inner.output and layers else None


class Columns(nn.Module):
    """A graph over the columns of the table, as a module over encoded rows."""

    def __init__(
        self, inner: Interpreter, schema: Schema, never_missing: Collection[str] = ()
    ) -> None:
        super().__init__()
        self.never_missing = frozenset(
            never_missing
        )  # columns of numbers: what marks those as missing is not looked at
        # The first parameter, in double precision, which makes the rows be encoded in it: no digit
        # is lost on the way.
        units = torch.tensor([(f.center, f.scale) for f in schema.features], dtype=torch.float64)
        self.center, self.scale = (
            nn.Parameter(column.clone(), requires_grad=False) for column in units.T
        )
        self.inner = inner
        self.schema = schema
        self.encoding = schema.encoding(torch.float64)
        self.together = len(inner.slots) == 1 and inner.slots[0].name not in schema.names

    def forward(self, z: Tensor) -> Tensor:
        slots = {s.name: s for s in self.inner.slots}
        if self.together:
            slot = self.inner.slots[0]
            parts = [self.column(z, i, slot) for i in range(len(self.schema.features))]
            if slot.element == "string" or any(isinstance(p, Levels) for p in parts):
                raise FileError(
                    "the graph takes all columns in one input, which cannot hold strings and "
                    "numbers"
                )
            return self.inner.run(
                {slot.name: _carry_out(_SIDE_BY_SIDE, OPERATORS["Concat"], parts)}
            )
        return self.inner.run(
            {n: self.column(z, i, slots[n]) for i, n in enumerate(self.schema.names) if n in slots}
        )

    def column(self, z: Tensor, i: int, slot: Slot) -> Column:
        """(n, 1) the values of a column in the user's units."""
        f = self.schema.features[i]
        s = self.schema.slices[i]
        if f.is_category:
            levels = Levels(((z[:, s], (*f.levels, *(["nan"] * f.missing))),))
            return (
                levels
                if slot.element == "string" or not self.together
                else levels.numbers(_HAND_IN)
            )
        value = self.in_units(z[:, s.start : s.start + 1], i)
        if f.kind == "ordered":
            return Levels(((hats(value, len(f.levels)), f.levels),))
        if slot.element == "string":
            raise FileError(
                f"the graph takes strings in {slot.name!r}, where the schema has numbers"
            )
        if f.has_gaps and f.name not in self.never_missing:
            if slot.element not in REAL:
                raise FileError(
                    f"the graph takes {slot.element} in {slot.name!r}, which has no missing numbers"
                )
            stand_in = self.in_units(self.encoding.stand_in[s.start], i).expand_as(value)
            parts = value, z[:, s.stop - 1 : s.stop], stand_in
            return Gaps(*(part.to(DTYPES[slot.element]) for part in parts))
        if slot.element == "bool":
            return value > 0.5
        # integers stay real, for gradients
        return value.to(DTYPES[slot.element]) if slot.element in REAL else value

    def in_units(self, encoded: Tensor, i: int) -> Tensor:
        value = encoded * self.scale[i] + self.center[i]
        if self.schema.features[i].kind == "real":
            return value
        nearest = value.round()
        return torch.where(
            (value - nearest).abs() < NEAR, value + (nearest - value).detach(), value
        )


def hats(value: Tensor, count: int) -> Tensor:
    """(n, 1) ranks -> (n, count) weights of the ranks, linear in between; at a rank the slope is
    that to both sides."""
    ranks = torch.arange(count, dtype=value.dtype)

    def hat(v: Tensor) -> Tensor:
        return torch.relu(1 - (v - ranks).abs())

    at = value.detach().clamp(0, count - 1)
    low = (at - 0.5).clamp_min(0)
    high = (at + 0.5).clamp_max(count - 1)
    slope = (hat(high) - hat(low)) / (high - low).clamp_min(0.5)
    return hat(at) + slope * (value - value.detach())


_HAND_IN = Node("input", 1, (), (), {})
_SIDE_BY_SIDE = Node("Concat", 13, (), (), {"axis": 1})


def load(
    data: bytes, schema: Schema, *, trust: bool = False, inputs: Inputs | None = None
) -> LoadedModel:
    """The model in the bytes of a file, over encoded rows of the schema."""
    graph = read_graph(data)
    output, classes = scores_of(graph)
    inner = Interpreter(graph, output, hashlib.sha256(data).hexdigest()[:16])
    inputs = inputs or takes(graph, schema)
    rejected: dict[str, str] = {}
    if inputs == "frame":
        _check_columns(graph, schema)
        rejected = no_gaps(inner, schema)
        module: nn.Module = Columns(inner, schema, rejected)
    else:
        _check_encoded(graph, schema)
        module = plain(inner, graph) or inner
    dtype = (
        torch.float64 if inputs == "frame" else DTYPES.get(graph.inputs[0].element, torch.float32)
    )
    try:
        scores, flat = _try_out(module, schema.probe.to(dtype))
    except FileError as error:
        raise FileError(
            f"{error} (a graph exported for a fixed number of rows needs a dynamic first axis)"
        ) from None
    k = scores.shape[1] if scores.ndim == 2 else 1
    if classes is not None and len(classes) != max(k, 2):
        raise FileError(
            f"the graph gives {k} scores, but names {len(classes)} classes: {listed(classes)}"
        )
    single = (
        k == 1 and bool(((scores >= 0) & (scores <= 1)).all()) and _ends_in_sigmoid(inner, output)
    )
    outputs = "probabilities" if single or looks_like_probabilities(scores) else "logits"
    if not flat:
        return LoadedModel(module, classes, outputs, rejects_missing=rejected)
    return LoadedModel(FlatGraph(module, dtype, outputs), classes, outputs, "encoded", rejected)


class FlatGraph:
    """A graph without gradients, as a function of encoded rows; if it is trees alone,
    `models.compiled` reads them."""

    def __init__(
        self, module: nn.Module, dtype: torch.dtype, outputs: Literal["logits", "probabilities"]
    ) -> None:
        self.module = module
        self.dtype = dtype
        self.trees, self.feature_names_in_ = (
            trees_alone(module) if isinstance(module, Columns) else (None, [])
        )
        self.never_missing = (
            module.never_missing if isinstance(module, Columns) else frozenset[str]()
        )
        # What their sums are, and whether they see all digits of the columns.
        bare = self.trees is None or self.trees.node.get("post_transform", "NONE") == "NONE"
        self.outputs = outputs if bare else "logits"
        self.exact = isinstance(module, Columns) and all(
            s.element == "double" for s in module.inner.slots
        )

    def __call__(self, z: Any) -> Any:
        with torch.no_grad():
            return self.module(torch.as_tensor(z).to(self.dtype)).double().numpy()


def trees_alone(module: Columns) -> tuple[Ensemble | None, list[str]]:
    """The trees of a graph that is nothing else, and the columns that they take, in order."""
    before = module.inner.nodes[:-1]
    inner = module.inner
    trees = inner.operators[-1] if inner.operators else None
    if not isinstance(trees, Ensemble) or inner.output not in trees.node.outputs:
        return None, []
    if not before and module.together:
        return trees, module.schema.names
    side_by_side = (
        len(before) == 1
        and before[0].op == "Concat"
        and set(before[0].inputs) <= set(module.schema.names)
    )
    return (trees, list(before[0].inputs)) if side_by_side else (None, [])


def no_gaps(inner: Interpreter, schema: Schema) -> dict[str, str]:
    """The columns of numbers that may be missing by the schema, where the graph takes none, and
    why."""
    gaps = [f.name for f in schema.features if f.has_gaps]
    out = dict[str, str]()
    for name in gaps:
        alone = schema.without_gaps(other for other in gaps if other != name)
        encoding = alone.encoding(torch.float64)
        rows = alone.probe.clone()
        rows[:, encoding.gaps[1]] = 1.0
        try:
            with torch.no_grad():
                fine = bool(Columns(inner, alone)(encoding.whole(rows)).isfinite().all())
            if not fine:
                raise FileError("the graph then gives non-finite scores")
        except FileError as error:
            out[name] = str(error)
    return out


def _try_out(module: nn.Module, rows: Tensor) -> tuple[Tensor, bool]:
    """Scores of a few rows, and whether they are flat: made by trees, or nowhere with a
    gradient."""
    n = len(rows)
    x = torch.cat([rows, rows[:1].expand_as(rows)]).requires_grad_()
    with torch.inference_mode(False), torch.enable_grad():
        scores = module(x)
    if scores.ndim not in (1, 2) or len(scores) != 2 * n or not scores.is_floating_point():
        raise FileError(
            f"the graph makes {tuple(scores.shape)} of {2 * n} rows, expected ({2 * n}, k)"
        )
    if not bool(scores.isfinite().all()):
        raise FileError("the graph gives non-finite scores")
    inner = module.inner if isinstance(module, Columns) else module
    flat = isinstance(inner, Interpreter) and any(node.op in TREES for node in inner.nodes)
    if not flat and scores.requires_grad:
        (slope,) = torch.autograd.grad(scores.reshape(2 * n, -1)[:, -1].sum(), x)
        flat = not bool(slope.any())
    flat = flat or not scores.requires_grad
    scores = scores.detach()
    with torch.no_grad():
        alone = module(rows)
    if len(alone) != n or not torch.allclose(scores[:n], alone, rtol=1e-4, atol=1e-4):
        raise FileError(
            "the graph's scores of a row depend on the other rows; it cannot be explained row by "
            "row"
        )
    return scores, flat


def scores_of(graph: Graph) -> tuple[str, list[Any] | None]:
    """The value that holds the scores, and the names of the classes if the graph knows them."""
    offered = [slot for slot in graph.outputs if slot.element in (*REAL, "maps")]
    if len(offered) > 1:
        offered = [s for s in offered if "prob" in s.name.lower()] or offered
    if len(offered) != 1:
        names = [slot.name for slot in graph.outputs]
        what = "several outputs that could be scores" if offered else "no output of scores"
        raise FileError(
            f"the graph has {what}: {listed(names)}; export it with one output of probabilities "
            "or logits"
        )
    makers = {name: node for node in graph.nodes for name in node.outputs}
    maker = makers.get(offered[0].name)
    name = offered[0].name
    if offered[0].element == "maps":
        if maker is None or maker.op != f"{ML}.ZipMap" or not maker.inputs:
            raise FileError(f"output {name!r} holds maps that no ZipMap made")
        return maker.inputs[0], labels(maker) or None
    return name, _classes(graph, makers)


def _classes(graph: Graph, makers: dict[str, Node]) -> list[Any] | None:
    """What the labels are called: by the classifier, or the list that the output of labels is
    picked from."""
    for node in graph.nodes:
        if node.op in (f"{ML}.LinearClassifier", TREES[0]):
            return labels(node) or None
    for slot in graph.outputs:
        for node in (
            needed(graph, slot.name) if slot.element in ("string", "int64", "int32") else ()
        ):
            picks = node.op == f"{ML}.ArrayFeatureExtractor" and node.inputs
            known = graph.constants.get(node.inputs[0]) if picks else None
            if isinstance(known, Strings):
                return list(known.values)
            if isinstance(known, Tensor) and not known.is_floating_point():
                return list(cast(list[Any], cast(Any, known).reshape(-1).tolist()))
    return None


def _ends_in_sigmoid(inner: Interpreter, output: str) -> bool:
    """One column of numbers: probabilities if the last operator that computes something is a
    sigmoid."""
    makers = {name: node for node in inner.nodes for name in node.outputs}
    node = makers.get(output)
    while node is not None and node.op in (
        "Identity",
        "Reshape",
        "Squeeze",
        "Flatten",
        "Cast",
        "Unsqueeze",
    ):
        node = makers.get(node.inputs[0])
    return node is not None and node.op == "Sigmoid"


def takes(graph: Graph, schema: Schema) -> Inputs:
    """Encoded rows, or the columns: told by the names of the inputs, their number, and who made the
    file."""
    if not graph.inputs:
        raise FileError("the graph has no inputs")
    if len(graph.inputs) != 1 or graph.inputs[0].name in schema.names:
        return "frame"
    width = _width(graph.inputs[0])
    if graph.producer == "skl2onnx":  # made from an estimator, which works on the table
        return "frame" if width in (None, len(schema.names)) else "encoded"
    return "frame" if width == len(schema.names) != schema.width else "encoded"


def _width(slot: Slot) -> int | None:
    sizes = (slot.shape or (None, None))[1:]
    return None if None in sizes else math.prod(cast(Sequence[int], sizes))


def _check_encoded(graph: Graph, schema: Schema) -> None:
    if len(graph.inputs) != 1:
        raise FileError(
            f"the graph has the inputs {listed(s.name for s in graph.inputs)}, so it takes no "
            "encoded rows"
        )
    width = _width(graph.inputs[0])
    what = (
        f"the graph takes {width} columns, but the schema has {len(schema.names)}, encoded in "
        f"{schema.width}"
    )
    if width not in (None, schema.width):
        raise FileError(f"{what}; pass the schema of the table it was trained on")


def _check_columns(graph: Graph, schema: Schema) -> None:
    count = len(schema.names)
    names = schema.names
    if len(graph.inputs) == 1 and graph.inputs[0].name not in names:
        width = _width(graph.inputs[0])
        if width not in (None, count):
            raise FileError(f"the graph takes {width} columns, but the schema has {count}")
        return
    for name in (slot.name for slot in graph.inputs):
        if name not in names:
            raise FileError(
                f"the graph has an input {name!r}, which is no column; {did_you_mean(name, names)}"
            )
    for slot in graph.inputs:
        fits = slot.element != "unknown" and _width(slot) in (None, 1)
        if not fits:
            raise FileError(f"input {slot.name!r} of the graph does not take one column")


def describe(data: bytes) -> Description:
    """What is known without a schema."""
    graph = read_graph(data)
    output, classes = scores_of(graph)
    nodes = Interpreter(graph, output, "").nodes  # operators and tables of trees are checked there
    details = {
        "operators": sorted({n.op for n in nodes}),
        "producer": graph.producer,
        "opsets": graph.opsets,
    }
    shapes = [
        " x ".join("any" if n is None else str(n) for n in slot.shape or ())
        for slot in graph.inputs
    ]
    inputs = [
        f"{s.name}: {s.element} ({shape})" for s, shape in zip(graph.inputs, shapes, strict=True)
    ]
    return Description(inputs, classes, output, not any(n.op in TREES for n in nodes), details)
