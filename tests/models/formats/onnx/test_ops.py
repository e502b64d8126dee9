"""The general operators of ONNX, one by one, against onnxruntime."""

import numpy as np
import pytest
import torch
from onnx import helper

from holdfast.models.formats.onnx import op_checks
from holdfast.models.formats.onnx import runtime as interpreter
from holdfast.models.formats.onnx.graph import read_graph
from support.onnx_graphs import _own, graph_of, ints, one, refused, session, tree_graph

ROWS = np.random.default_rng(3).normal(size=(5, 2, 6)).astype(np.float32)
IMAGES = np.random.default_rng(4).normal(size=(3, 2, 7, 7)).astype(np.float32)
KERNEL = np.random.default_rng(5).normal(size=(4, 2, 3, 3)).astype(np.float32)
OPERATORS: list[tuple[str, np.ndarray, list[np.ndarray], dict[str, object]]] = [
    ("Slice", ROWS, [ints(1, -4), ints(5, 100), ints(0, 2)], {}),
    ("Slice", ROWS, [ints(4), ints(-100), ints(2), ints(-2)], {}),
    ("Gather", ROWS, [np.array([[0, -1], [2, 2]], np.int64)], {"axis": 2}),
    ("Pad", ROWS, [ints(0, 1, 2, 0, 0, 1), np.float32(7)], {}),
    ("Tile", ROWS, [ints(1, 2, 3)], {}),
    ("Expand", ROWS[:, :1], [ints(5, 3, 6)], {}),
    ("Transpose", ROWS, [], {"perm": [2, 0, 1]}),
    ("Transpose", ROWS, [], {}),
    ("Flatten", ROWS, [], {"axis": 2}),
    ("Reshape", ROWS, [ints(0, -1)], {}),
    ("Squeeze", ROWS[:, :1], [ints(1)], {}),
    ("Unsqueeze", ROWS, [ints(0, -1)], {}),
    ("ReduceMean", ROWS, [ints(1, 2)], {"keepdims": 0}),
    ("ReduceProd", ROWS, [ints(0, 2)], {}),
    ("ReduceL2", ROWS, [], {}),
    ("ReduceLogSumExp", ROWS, [ints(2)], {}),
    ("ReduceMax", ROWS, [ints(-1)], {"keepdims": 0}),
    ("Softmax", ROWS, [], {"axis": 1}),
    ("LogSoftmax", ROWS, [], {}),
    ("Pow", np.abs(ROWS), [np.float32(1.5)], {}),
    ("Div", ROWS, [np.float32(3)], {}),
    ("Clip", ROWS, [np.float32(-0.5), np.float32(0.5)], {}),
    ("HardSigmoid", ROWS, [], {"alpha": 0.3, "beta": 0.4}),
    ("Celu", ROWS, [], {"alpha": 0.7}),
    ("Erf", ROWS, [], {}),
    ("Mod", ROWS, [np.float32(0.7)], {"fmod": 1}),
    ("Max", ROWS, [np.float32(0.1), np.float32(-3)], {}),
    ("Mean", ROWS, [ROWS[::-1].copy()], {}),
    ("MatMul", ROWS, [np.ones((6, 3), np.float32)], {}),
    (
        "Gemm",
        ROWS[:, 0],
        [np.ones((3, 6), np.float32), np.ones((1, 3), np.float32)],
        {"transB": 1, "alpha": 0.5, "beta": 2.0},
    ),
    (
        "LayerNormalization",
        ROWS,
        [np.ones(6, np.float32), np.zeros(6, np.float32)],
        {"epsilon": 1e-3},
    ),
    ("Conv", IMAGES, [KERNEL], {"pads": [0, 1, 2, 1], "strides": [2, 1]}),
    (
        "Conv",
        IMAGES,
        [KERNEL, np.arange(4, dtype=np.float32)],
        {"auto_pad": "SAME_UPPER", "strides": [2, 2]},
    ),
    ("Conv", IMAGES, [KERNEL], {"dilations": [2, 2]}),
    ("MaxPool", IMAGES, [], {"kernel_shape": [3, 2], "strides": [2, 2], "pads": [1, 0, 0, 1]}),
    ("MaxPool", IMAGES, [], {"kernel_shape": [2, 2], "strides": [2, 2], "ceil_mode": 1}),
    ("AveragePool", IMAGES, [], {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}),
    (
        "AveragePool",
        IMAGES,
        [],
        {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "count_include_pad": 1},
    ),
    ("GlobalAveragePool", IMAGES, [], {}),
    ("GlobalMaxPool", IMAGES, [], {}),
    ("Where", ROWS > 0, [ROWS, np.float32(5)], {}),
    ("Cast", ROWS > 0, [], {"to": 1}),
]


def test_operators_equal_onnxruntime() -> None:
    for i, (op, x, others, attributes) in enumerate(OPERATORS):
        constants = {f"c{j}": np.asarray(c) for j, c in enumerate(others)}
        node = helper.make_node(op, ["x", *constants], ["y"], **attributes)
        kind = helper.np_dtype_to_tensor_dtype(x.dtype)
        data = graph_of([node], {"x": (kind, [None] * x.ndim)}, constants)
        (expected,) = session(data).run(None, {"x": x})
        own = interpreter.Interpreter(read_graph(data), "y", "").run({"x": torch.from_numpy(x)})
        assert own.shape == expected.shape, (i, op)
        assert np.abs(own.numpy() - expected).max() < 1e-5, (i, op)


def test_split_and_batch_norm_equal_onnxruntime() -> None:
    split = helper.make_node("Split", ["x", "s"], ["a", "b", "c"], axis=2)
    join = helper.make_node("Concat", ["c", "a"], ["y"], axis=2)
    data = graph_of([split, join], {"x": (1, [None, 2, 6])}, {"s": ints(1, 2, 3)})
    assert np.array_equal(_own(data, ROWS), session(data).run(None, {"x": ROWS})[0])
    numbers = {
        n: np.abs(np.random.default_rng(i).normal(size=2)).astype(np.float32)
        for i, n in enumerate("sbmv")
    }
    data = graph_of(
        [helper.make_node("BatchNormalization", ["x", *"sbmv"], ["y"])],
        {"x": (1, [None, 2, 7, 7])},
        numbers,
    )
    assert np.abs(_own(data, IMAGES) - session(data).run(None, {"x": IMAGES})[0]).max() < 1e-5


def test_large_things_made_of_little_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    huge = 1 << 20
    for data in (
        one("Expand", {"s": ints(huge, huge, 16, 4)}),
        one("Tile", {"s": ints(huge, huge)}),
        one("Pad", {"s": ints(0, 0, 0, 1 << 40)}),
    ):
        refused(data, "more than")
    shape = helper.make_node("ConstantOfShape", ["s"], ["z"])
    both = graph_of(
        [shape, helper.make_node("Add", ["x", "z"], ["y"])],
        {"x": (1, [None, 4])},
        {"s": ints(huge, huge)},
    )
    refused(both, "ConstantOfShape.*more than")
    monkeypatch.setattr(op_checks, "MOST", 1000)
    refused(one("Add", {"c": np.zeros((100, 1, 1), np.float32)}), "more than 1,000")
    refused(one("MatMul", {"c": np.zeros((4, 100), np.float32)}), "more than 1,000")


def test_bad_attributes_and_indices_are_refused() -> None:
    refused(one("Softmax", axis=7), "Softmax")
    refused(one("Softmax", axis="one"), "attribute 'axis' is of the wrong type")
    refused(one("LeakyRelu", alpha=float("nan")), "not finite")
    refused(one("Gather", {"i": ints(9)}, axis=1), "index")
    refused(one("Cast", to=999), "element type")
    refused(one("Reshape", {"s": ints(3, -7)}), "Reshape")
    refused(one("Scaler", domain="ai.onnx.ml", offset=[1.0, 2.0], scale=[1.0]), "do not fit")
    for changes, words in (
        ({"nodes_truenodeids": [99, 0, 0, 1, 0, 0]}, "child"),
        ({"nodes_truenodeids": [0, 0, 0, 1, 0, 0]}, "root"),
        ({"nodes_truenodeids": [2, 0, 0, 1, 0, 0]}, "two others"),
        ({"nodes_featureids": [1 << 40, 0, 0, 3, 0, 0]}, "column"),
        ({"nodes_featureids": [9, 0, 0, 3, 0, 0]}, "takes 10 columns"),
        ({"nodes_featureids": [-1, 0, 0, 3, 0, 0]}, "column"),
        ({"class_ids": [5, 0, 0, 0]}, "class"),
        ({"class_nodeids": [1, 2, 1, 8]}, "leaf"),
        ({"nodes_modes": ["BRANCH_ODD", "LEAF", "LEAF", "LEAF", "LEAF", "LEAF"]}, "unknown test"),
        ({"nodes_values": [0.1]}, "different lengths"),
        ({"post_transform": "PROBIT"}, "PROBIT"),
    ):
        refused(tree_graph(**changes), words)
