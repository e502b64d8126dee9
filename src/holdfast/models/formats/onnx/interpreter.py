"""The interpreter of ONNX graphs: the operators that lead to a value, carried out one by one."""

from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn

from holdfast._core.checks import listed
from holdfast.errors import FileError
from holdfast.models.formats.onnx.graph import DTYPES, ML, Graph, Node, Strings
from holdfast.models.formats.onnx.levels import LevelColumns
from holdfast.models.formats.onnx.missing import ON_GAPS, Gaps
from holdfast.models.formats.onnx.op_checks import Operator
from holdfast.models.formats.onnx.ops import OPERATORS
from holdfast.models.formats.onnx.ops_ml import ML_OPERATORS, ON_LEVELS, PREPARED
from holdfast.nn.architecture import linear_layer

KNOWN = {**OPERATORS, **ML_OPERATORS, **PREPARED}
Column = Tensor | LevelColumns | Gaps
IMPUTER = f"{ML}.Imputer"


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
            made = carry_out(
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
            raise FileError(f"output {self.output!r} of the graph is not a tensor of numbers")
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


def carry_out(node: Node, operator: Operator, parts: list[Any]) -> Any:
    try:
        if any(isinstance(p, LevelColumns) for p in parts):
            if node.op in ON_LEVELS:
                return ON_LEVELS[node.op](node, *parts)
            parts = [p.numbers(node) if isinstance(p, LevelColumns) else p for p in parts]
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
    # Anything that torch would write in another way (a scaled product, a shared bias) is left to
    # the interpreter.
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
