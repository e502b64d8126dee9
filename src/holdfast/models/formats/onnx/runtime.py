"""ONNX models, run as torch operations by an interpreter of our own, with gradients.

A file is data: its graph is read (`onnx.graph`), the operators that lead to the scores
(`onnx.scores`) are looked up among those that are known (`onnx.ops`, `onnx.ops_ml`) and carried
out (`onnx.interpreter`), and nothing else of it is used. It is over encoded rows, as exported from
torch, or over the columns in the user's units, as from scikit-learn (`onnx.table_columns`).
"""

import hashlib
import math
from collections.abc import Sequence
from typing import Any, Literal, cast

import torch
from torch import Tensor, nn

from holdfast._core.checks import did_you_mean, listed
from holdfast.errors import FileError
from holdfast.models.formats.loaded import Description, LoadedModel
from holdfast.models.formats.onnx.graph import DTYPES, Graph, Slot, read_graph
from holdfast.models.formats.onnx.interpreter import Interpreter, plain
from holdfast.models.formats.onnx.scores import ends_in_sigmoid, scores_of
from holdfast.models.formats.onnx.table_columns import Columns, no_gaps
from holdfast.models.formats.onnx.trees import TREES, TreeEnsemble
from holdfast.models.scores import Inputs, looks_like_probabilities
from holdfast.schema.schema import Schema


def load(
    data: bytes, schema: Schema, *, trust: bool = False, inputs: Inputs | None = None
) -> LoadedModel:
    """The model in the bytes of a file, over encoded rows of the schema."""
    # The graph is tried out on a few rows before it counts: what it takes and gives is often not
    # written in the file.
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
        k == 1 and bool(((scores >= 0) & (scores <= 1)).all()) and ends_in_sigmoid(inner, output)
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


def trees_alone(module: Columns) -> tuple[TreeEnsemble | None, list[str]]:
    """The trees of a graph that is nothing else, and the columns that they take, in order."""
    before = module.inner.nodes[:-1]
    inner = module.inner
    trees = inner.operators[-1] if inner.operators else None
    if not isinstance(trees, TreeEnsemble) or inner.output not in trees.node.outputs:
        return None, []
    if not before and module.together:
        return trees, module.schema.names
    side_by_side = (
        len(before) == 1
        and before[0].op == "Concat"
        and set(before[0].inputs) <= set(module.schema.names)
    )
    return (trees, list(before[0].inputs)) if side_by_side else (None, [])


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
    if width not in (None, schema.width):
        raise FileError(
            f"the graph takes {width} columns, but the schema has {len(schema.names)}, encoded in "
            f"{schema.width}; pass the schema of the table it was trained on"
        )


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
            hint = did_you_mean(name, names)
            raise FileError(f"the graph has an input {name!r}, which is not a column; {hint}")
    for slot in graph.inputs:
        if not (slot.element != "unknown" and _width(slot) in (None, 1)):
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
