"""Which value of a graph holds the scores, and what the classes are called."""

from typing import Any, cast

from torch import Tensor

from holdfast._core.checks import listed
from holdfast.errors import FileError
from holdfast.models.formats.onnx.class_scores import labels
from holdfast.models.formats.onnx.graph import ML, Graph, Node, Strings
from holdfast.models.formats.onnx.interpreter import Interpreter, needed
from holdfast.models.formats.onnx.table_columns import REAL
from holdfast.models.formats.onnx.trees import TREES


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


def ends_in_sigmoid(inner: Interpreter, output: str) -> bool:
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
