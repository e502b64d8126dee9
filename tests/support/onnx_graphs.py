"""ONNX graphs from torch, from scikit-learn and made by hand."""

import warnings

import numpy as np
import onnx
import onnxruntime as ort
import pandas as pd
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from sklearn.ensemble import HistGradientBoostingClassifier
from torch import nn

import holdfast as hf
from holdfast.errors import FileError
from holdfast.models.formats.onnx import runtime as interpreter
from holdfast.models.formats.onnx.graph import read_graph

RNG = np.random.default_rng(0)
X = RNG.normal(size=(90, 4)).astype(np.float32)
TWO = (X[:, 0] + X[:, 1] ** 2 > 0.5).astype(int)
THREE = np.digitize(X[:, 0], [-0.5, 0.5])
BOX = hf.Schema.box(4, -3, 3)


def session(data: bytes) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    return ort.InferenceSession(data, options, providers=["CPUExecutionProvider"])


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(4, 4)
        self.b = nn.Linear(4, 3)
        self.norm = nn.LayerNorm(4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.b(self.norm(x + torch.relu(self.a(x))))


ACTIVATIONS = [
    nn.GELU(),
    nn.SiLU(),
    nn.Tanh(),
    nn.ELU(),
    nn.LeakyReLU(0.2),
    nn.Dropout(0.1),
    nn.Hardtanh(),
    nn.Softplus(),
    nn.Mish(),
    nn.SELU(),
    nn.PReLU(),
    nn.Hardswish(),
    nn.Hardsigmoid(),
    nn.ReLU6(),
]
NETWORKS = {
    "mlp": (4, nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3))),
    "activations": (
        4,
        nn.Sequential(
            nn.Linear(4, 6), nn.BatchNorm1d(6), *ACTIVATIONS, nn.Linear(6, 2), nn.Softmax(1)
        ),
    ),
    "residual": (4, Residual()),
    "one probability": (4, nn.Sequential(nn.Linear(4, 1), nn.Sigmoid(), nn.Flatten(0))),
    "images": (
        64,
        nn.Sequential(
            nn.Unflatten(1, (1, 8, 8)),
            nn.Conv2d(1, 4, 3, padding=1),
            nn.BatchNorm2d(4),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(4, 4, 3, stride=2, padding=1, groups=2),
            nn.ReLU(),
            nn.AvgPool2d(2),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(4, 3),
            nn.LogSoftmax(1),
        ),
    ),
}


def exported(net: nn.Module, d: int) -> bytes:
    from io import BytesIO

    file = BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            net,
            (torch.zeros(3, d),),
            file,
            dynamo=False,
            input_names=["x"],
            dynamic_axes={"x": {0: "n"}},
        )
    return file.getvalue()


def skl(estimator: object, sample: object, **more: object) -> bytes:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from skl2onnx import to_onnx

        return to_onnx(estimator, sample, **more).SerializeToString()


def fitted(estimator: object, frame: object, y: object) -> object:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return estimator.fit(frame, y)


def graph_of(
    nodes: list[onnx.NodeProto],
    inputs: dict[str, tuple[int, list[object]]],
    constants: dict[str, np.ndarray],
    opset: int = 20,
) -> bytes:
    values = [helper.make_tensor_value_info(n, kind, shape) for n, (kind, shape) in inputs.items()]
    out = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    fixed = [numpy_helper.from_array(v, n) for n, v in constants.items()]
    graph = helper.make_graph(nodes, "g", values, [out], fixed)
    sets = [helper.make_opsetid("", opset), helper.make_opsetid("ai.onnx.ml", 3)]
    return helper.make_model(graph, opset_imports=sets, ir_version=9).SerializeToString()


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def _own(data: bytes, x: np.ndarray) -> np.ndarray:
    return (
        interpreter.Interpreter(read_graph(data), "y", "").run({"x": torch.from_numpy(x)}).numpy()
    )


TREE = {
    "nodes_treeids": [0, 0, 0, 1, 1, 1],
    "nodes_nodeids": [0, 1, 2, 0, 1, 2],
    "nodes_featureids": [1, 0, 0, 3, 0, 0],
    "nodes_values": [0.1, 0, 0, -0.2, 0, 0],
    "nodes_truenodeids": [1, 0, 0, 1, 0, 0],
    "nodes_falsenodeids": [2, 0, 0, 2, 0, 0],
    "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF", "BRANCH_GT", "LEAF", "LEAF"],
    "class_treeids": [0, 0, 1, 1],
    "class_nodeids": [1, 2, 1, 2],
}


def tree_graph(kind: int = 1, **changes: object) -> bytes:
    """A graph of two trees over numbers of this kind; what is None is left out."""
    attributes = {
        **TREE,
        "class_ids": [0, 0, 0, 0],
        "class_weights": [0.1, 0.3, 0.2, 0.4],
        "classlabels_int64s": [3, 7],
        **changes,
    }
    given = {name: value for name, value in attributes.items() if value is not None}
    node = helper.make_node(
        "TreeEnsembleClassifier", ["x"], ["label", "y"], domain="ai.onnx.ml", **given
    )
    return graph_of([node], {"x": (kind, [None, 4])}, {})


HOLES = np.where(np.random.default_rng(6).random(X.shape) < 0.25, np.nan, X).astype(np.float32)
HOLED = hf.Schema.infer(pd.DataFrame(HOLES.astype(np.float64), columns=["a", "b", "c", "d"]))
FRAME = pd.DataFrame(HOLES.astype(np.float64), columns=HOLED.names)


def gradient_boosting(model: HistGradientBoostingClassifier, columns: int) -> bytes:
    """The trees of scikit-learn's, which skl2onnx does not write with this NumPy."""
    names = (
        "treeids",
        "nodeids",
        "featureids",
        "values",
        "truenodeids",
        "falsenodeids",
        "missing_value_tracks_true",
    )
    table: dict[str, list[float]] = {f"nodes_{name}": [] for name in names}
    modes = list[str]()
    leaves = list[tuple[int, int, float]]()
    for t, (tree,) in enumerate(model._predictors):
        for i, node in enumerate(tree.nodes):
            leaf = bool(node["is_leaf"])
            at = (
                t,
                i,
                int(node["feature_idx"]),
                0.0 if leaf else float(node["num_threshold"]),
                int(node["left"]),
                int(node["right"]),
                int(node["missing_go_to_left"]),
            )
            for column, value in zip(table.values(), at, strict=True):
                column.append(value)
            modes.append("LEAF" if leaf else "BRANCH_LEQ")
            leaves += [(t, i, float(node["value"]))] if leaf else []
    trees, nodes, weights = zip(*leaves, strict=True)
    node = helper.make_node(
        "TreeEnsembleClassifier",
        ["X"],
        ["label", "y"],
        domain="ai.onnx.ml",
        nodes_modes=modes,
        class_treeids=trees,
        class_nodeids=nodes,
        class_ids=[0] * len(leaves),
        class_weights=weights,
        classlabels_int64s=[0, 1],
        base_values=[float(model._baseline_prediction.ravel()[0])],
        post_transform="LOGISTIC",
        **table,
    )
    return graph_of([node], {"X": (1, [None, columns])}, {})


def refused(data: bytes, words: str, schema: hf.Schema = BOX) -> None:
    with pytest.raises(FileError, match=words):
        interpreter.load(data, schema)


def one(
    op: str, constants: dict[str, np.ndarray] | None = None, domain: str = "", **attributes: object
) -> bytes:
    """A graph of one operator between two products."""
    constants = constants or {}
    node = helper.make_node(op, ["x", *constants], ["y"], domain=domain, **attributes)
    return graph_of([node], {"x": (1, [None, 4])}, constants)
