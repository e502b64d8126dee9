"""Our interpreter of ONNX against onnxruntime and against the modules and estimators that were exported."""

import math
import warnings
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import make_column_transformer
from sklearn.ensemble import (
    AdaBoostClassifier,
    BaggingClassifier,
    ExtraTreesClassifier,
    GradientBoostingClassifier,
    GradientBoostingRegressor,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, RidgeClassifier, SGDClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, Normalizer, OneHotEncoder, OrdinalEncoder, StandardScaler
from sklearn.tree import DecisionTreeClassifier
from torch import nn

import holdfast as hf
from holdfast.errors import FileError, SchemaError
from holdfast.models.black_box import CompiledModel
from holdfast.models.formats.onnx import ops as operators
from holdfast.models.formats.onnx import runtime as interpreter
from holdfast.models.formats.onnx.graph import read_graph
from holdfast.nn.architecture import describe
from holdfast.schema.feature import Feature
from support.tables import seeded

RNG = np.random.default_rng(0)
X = RNG.normal(size=(90, 4)).astype(np.float32)
TWO, THREE = (X[:, 0] + X[:, 1] ** 2 > 0.5).astype(int), np.digitize(X[:, 0], [-0.5, 0.5])
BOX = hf.Schema.box(4, -3, 3)


def session(data: bytes) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    return ort.InferenceSession(data, options, providers=["CPUExecutionProvider"])


# ---- from torch


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.norm = nn.Linear(4, 4), nn.Linear(4, 3), nn.LayerNorm(4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.b(self.norm(x + torch.relu(self.a(x))))


ACTIVATIONS = [
    nn.GELU(), nn.SiLU(), nn.Tanh(), nn.ELU(), nn.LeakyReLU(0.2), nn.Dropout(0.1), nn.Hardtanh(), nn.Softplus(),
    nn.Mish(), nn.SELU(), nn.PReLU(), nn.Hardswish(), nn.Hardsigmoid(), nn.ReLU6(),
]  # fmt: skip
NETWORKS = {
    "mlp": (4, nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3))),
    "activations": (4, nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), *ACTIVATIONS, nn.Linear(6, 2), nn.Softmax(1))),
    "residual": (4, Residual()),
    "one probability": (4, nn.Sequential(nn.Linear(4, 1), nn.Sigmoid(), nn.Flatten(0))),
    "images": (
        64,
        nn.Sequential(
            nn.Unflatten(1, (1, 8, 8)), nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(4, 4, 3, stride=2, padding=1, groups=2), nn.ReLU(), nn.AvgPool2d(2), nn.AdaptiveAvgPool2d(1),
            nn.Flatten(), nn.Linear(4, 3), nn.LogSoftmax(1),
        ),
    ),
}  # fmt: skip


def exported(net: nn.Module, d: int) -> bytes:
    from io import BytesIO

    file = BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            net, (torch.zeros(3, d),), file, dynamo=False, input_names=["x"], dynamic_axes={"x": {0: "n"}}
        )
    return file.getvalue()


@pytest.mark.parametrize("name", NETWORKS)
def test_networks_equal_onnxruntime_and_their_gradients_torch(name: str, tmp_path: Path) -> None:
    d, net = NETWORKS[name][0], seeded(NETWORKS[name][1])
    data = exported(net, d)
    (tmp_path / "m.onnx").write_bytes(data)
    model = hf.Model.load(tmp_path / "m.onnx", hf.Schema.box(d, -3, 3))
    assert model.has_grad
    x = torch.randn(24, d, generator=torch.Generator().manual_seed(1))
    (expected,) = session(data).run(None, {"x": x.numpy()})
    z = x.clone().requires_grad_()
    raw, own = model.module(z), net(z)
    assert np.abs(raw.detach().numpy() - expected).max() < 1e-5
    v = torch.randn(own.shape, generator=torch.Generator().manual_seed(2))
    (slope,) = torch.autograd.grad(raw, z, v)
    z = x.clone().requires_grad_()
    (wanted,) = torch.autograd.grad(net(z), z, v)
    assert (slope - wanted).abs().max() < 1e-5
    said = hf.Model.of(net, model.schema, outputs=model.outputs)
    with model.eval_mode(), said.eval_mode():
        assert torch.allclose(model(x), said(x), atol=1e-5)


def test_a_model_from_onnx_gives_the_same_recourse_as_the_module(tmp_path: Path) -> None:
    net = seeded(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)), 5)
    (tmp_path / "m.onnx").write_bytes(exported(net, 4))
    model = hf.Model.load(tmp_path / "m.onnx", BOX, classes=["no", "yes"])
    assert model.classes == ("no", "yes")
    x = torch.randn(12, 4, generator=torch.Generator().manual_seed(0)).clamp(-3, 3)
    a = hf.MinCost().explain(model, x, "yes")
    b = hf.MinCost().explain(hf.Model.of(net, BOX), x, 1)
    assert (a.status_codes == b.status_codes).all()
    assert torch.allclose(a.x_cf, b.x_cf, atol=1e-3)


def test_a_graph_that_estimates_a_number_says_so(tmp_path: Path) -> None:
    net = seeded(nn.Linear(4, 1), 5)
    (tmp_path / "m.onnx").write_bytes(exported(net, 4))
    model = hf.Model.load(tmp_path / "m.onnx", BOX, outputs="value")
    assert model.is_regression
    x = torch.randn(12, 4, generator=torch.Generator().manual_seed(0)).clamp(-3, 3)
    low, high = 0.25, 0.5
    cfs = hf.MinCost(norm=2).explain(model, x, hf.Target.between(low, high))
    assert cfs.found.any()
    with torch.no_grad():
        value, weight = net(x).squeeze(1), net.weight.norm()
    nearest = torch.maximum(low - value, value - high).clamp_min(0) / weight  # of a slab
    found = torch.tensor(cfs.found)
    distance = (cfs.x_cf - cfs.x).norm(dim=1)
    assert torch.allclose(distance[found], nearest[found], atol=2e-3)


def test_linear_and_relu_layers_become_those_of_torch(tmp_path: Path) -> None:
    net = seeded(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3, bias=False)), 5)
    (tmp_path / "m.onnx").write_bytes(exported(nn.Sequential(net[0], net[1], nn.Linear(8, 3)), 4))
    model = hf.Model.load(tmp_path / "m.onnx", BOX)
    assert describe(model.module) == describe(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)))
    with model.eval_mode():
        assert model.engine is not None
    model.save(tmp_path / "m.safetensors")
    assert hf.Model.load(tmp_path / "m.safetensors").fingerprint() == model.fingerprint()
    (tmp_path / "n.onnx").write_bytes(exported(net, 4))  # without a bias: a product, which the interpreter does
    other = hf.Model.load(tmp_path / "n.onnx", BOX)
    x = torch.randn(8, 4, generator=torch.Generator().manual_seed(0))
    with other.eval_mode():
        assert torch.allclose(other(x), net(x), atol=1e-6)


# ---- from scikit-learn

ESTIMATORS = [
    LogisticRegression(), RidgeClassifier(), SGDClassifier(loss="log_loss"), GaussianNB(),
    MLPClassifier((5,), max_iter=20, random_state=0), DecisionTreeClassifier(max_depth=3),
    RandomForestClassifier(4, max_depth=3, random_state=0), GradientBoostingClassifier(n_estimators=3),
    AdaBoostClassifier(n_estimators=3), BaggingClassifier(n_estimators=2),
    CalibratedClassifierCV(LogisticRegression(), cv=2),
    make_pipeline(StandardScaler(), MinMaxScaler(), Normalizer(), LogisticRegression()),
]  # fmt: skip


def skl(estimator: object, sample: object, **more: object) -> bytes:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from skl2onnx import to_onnx

        return to_onnx(estimator, sample, **more).SerializeToString()


def fitted(estimator: object, frame: object, y: object) -> object:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return estimator.fit(frame, y)


@pytest.mark.parametrize("y", [TWO, THREE], ids=["two", "three"])
@pytest.mark.parametrize("maps", [True, False], ids=["maps", "tensor"])
def test_estimators_equal_onnxruntime(y: np.ndarray, maps: bool, tmp_path: Path) -> None:
    for estimator in ESTIMATORS:
        name = type(estimator).__name__
        model = fitted(estimator, X, y)
        plain = maps or isinstance(estimator, RidgeClassifier)
        data = skl(model, X[:1], options=None if plain else {id(model): {"zipmap": False}})
        label, scores = session(data).run(None, {"X": X})
        if isinstance(scores, list):
            scores = np.array([[row[k] for k in sorted(row)] for row in scores])
        if scores.ndim == 2 and scores.shape[1] == 1:
            scores = scores[:, 0]
        found = interpreter.load(data, BOX)
        x = torch.from_numpy(X).double()
        own = found.model(x.numpy()) if found.inputs else found.model(x).detach().numpy()
        own = own[:, 0] if own.ndim == 2 and own.shape[1] == 1 else own
        assert np.abs(own - scores).max() < 1e-5, name
        (tmp_path / "m.onnx").write_bytes(data)
        loaded = hf.Model.load(tmp_path / "m.onnx", BOX)
        trees = ("DecisionTree", "RandomForest", "GradientBoosting", "AdaBoost", "Bagging")
        assert loaded.has_grad == (not name.startswith(trees)), name
        frame = pd.DataFrame(X.astype(np.float64), columns=BOX.names)
        assert (loaded.predict(frame).to_numpy() == label).all(), name
        assert loaded.classes == tuple(sorted(set(y))), name


def people(rows: int = 80) -> pd.DataFrame:
    rng = np.random.default_rng(1)
    return pd.DataFrame(
        {
            "age": rng.integers(18, 70, rows),
            "income": rng.normal(3000, 900, rows).round(2),
            "job": pd.Categorical(rng.choice(["a", "b", "c"], rows)),
            "school": pd.Categorical(rng.choice(["low", "mid", "high"], rows), ["low", "mid", "high"], ordered=True),
            "code": rng.choice([1, 2, 5], rows),
        }
    )


def pipelines() -> dict[str, object]:
    hot = make_column_transformer((StandardScaler(), ["age", "income"]), (OneHotEncoder(), ["job", "school", "code"]))
    ranked = make_column_transformer(
        (make_pipeline(SimpleImputer(), MinMaxScaler()), ["income"]), (OrdinalEncoder(), ["job", "school"])
    )
    return {
        "logistic": make_pipeline(hot, LogisticRegression()),
        "network": make_pipeline(hot, MLPClassifier((5,), max_iter=20, random_state=0)),
        "forest": make_pipeline(hot, RandomForestClassifier(3, max_depth=4, random_state=0)),
        "ranks": make_pipeline(ranked, GradientBoostingClassifier(n_estimators=3)),
    }


@pytest.mark.parametrize("name", ["logistic", "network", "forest", "ranks"])
def test_pipelines_over_named_columns(name: str, tmp_path: Path) -> None:
    from skl2onnx import convert_sklearn
    from skl2onnx.common.data_types import FloatTensorType, Int64TensorType, StringTensorType

    frame = people()
    schema = hf.Schema.infer(frame, categories=["code"])
    y = np.where((frame["income"] > 3000) ^ (frame["job"] == "a"), "yes", "no")
    plain = frame.astype({"job": str, "school": str})
    pipeline = fitted(pipelines()[name], plain, y)
    kinds = {"age": Int64TensorType, "code": Int64TensorType, "income": FloatTensorType}
    types = [(c, kinds.get(c, StringTensorType)([None, 1])) for c in frame]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        data = convert_sklearn(pipeline, initial_types=types).SerializeToString()
    as_fed = {"age": np.int64, "code": np.int64, "income": np.float32}
    label, maps = session(data).run(
        None, {c: plain[[c]].to_numpy(as_fed.get(c, object)) for c in frame if c in _inputs(data)}
    )
    scores = np.array([[row["no"], row["yes"]] for row in maps])
    (tmp_path / "m.onnx").write_bytes(data)
    model = hf.Model.load(tmp_path / "m.onnx", schema)
    assert model.classes == ("no", "yes")
    assert model.has_grad == (name in ("logistic", "network"))
    with model.eval_mode():
        own = torch.softmax(model.score_frame(frame), 1).numpy()
        shuffled = frame[frame.columns[::-1]]
        assert np.allclose(torch.softmax(model.score_frame(shuffled), 1).numpy(), own)
    assert np.abs(own - scores).max() < 1e-5
    assert (model.predict(frame).to_numpy() == label).all()
    if model.has_grad:  # by finite differences, also along the weights of the levels
        z = schema.encode(frame.head(5), torch.float64)
        with model.eval_mode():
            _, pull = model.vjp(z)
            slope = pull(torch.tensor([[0.0, 1.0]]).double().expand(5, 2))
        assert (slope.abs().amax(0) > 0).all()


def _inputs(data: bytes) -> list[str]:
    return [slot.name for slot in read_graph(data).inputs]


# ---- operators one by one


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
    ("Gemm", ROWS[:, 0], [np.ones((3, 6), np.float32), np.ones((1, 3), np.float32)],
     {"transB": 1, "alpha": 0.5, "beta": 2.0}),
    ("LayerNormalization", ROWS, [np.ones(6, np.float32), np.zeros(6, np.float32)], {"epsilon": 1e-3}),
    ("Conv", IMAGES, [KERNEL], {"pads": [0, 1, 2, 1], "strides": [2, 1]}),
    ("Conv", IMAGES, [KERNEL, np.arange(4, dtype=np.float32)], {"auto_pad": "SAME_UPPER", "strides": [2, 2]}),
    ("Conv", IMAGES, [KERNEL], {"dilations": [2, 2]}),
    ("MaxPool", IMAGES, [], {"kernel_shape": [3, 2], "strides": [2, 2], "pads": [1, 0, 0, 1]}),
    ("MaxPool", IMAGES, [], {"kernel_shape": [2, 2], "strides": [2, 2], "ceil_mode": 1}),
    ("AveragePool", IMAGES, [], {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}),
    ("AveragePool", IMAGES, [], {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "count_include_pad": 1}),
    ("GlobalAveragePool", IMAGES, [], {}),
    ("GlobalMaxPool", IMAGES, [], {}),
    ("Where", ROWS > 0, [ROWS, np.float32(5)], {}),
    ("Cast", ROWS > 0, [], {"to": 1}),
]  # fmt: skip


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
    numbers = {n: np.abs(np.random.default_rng(i).normal(size=2)).astype(np.float32) for i, n in enumerate("sbmv")}
    data = graph_of(
        [helper.make_node("BatchNormalization", ["x", *"sbmv"], ["y"])], {"x": (1, [None, 2, 7, 7])}, numbers
    )
    assert np.abs(_own(data, IMAGES) - session(data).run(None, {"x": IMAGES})[0]).max() < 1e-5


def _own(data: bytes, x: np.ndarray) -> np.ndarray:
    return interpreter.Interpreter(read_graph(data), "y", "").run({"x": torch.from_numpy(x)}).numpy()


TREE = {
    "nodes_treeids": [0, 0, 0, 1, 1, 1], "nodes_nodeids": [0, 1, 2, 0, 1, 2], "nodes_featureids": [1, 0, 0, 3, 0, 0],
    "nodes_values": [0.1, 0, 0, -0.2, 0, 0], "nodes_truenodeids": [1, 0, 0, 1, 0, 0],
    "nodes_falsenodeids": [2, 0, 0, 2, 0, 0],
    "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF", "BRANCH_GT", "LEAF", "LEAF"],
    "class_treeids": [0, 0, 1, 1], "class_nodeids": [1, 2, 1, 2],
}  # fmt: skip


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
    node = helper.make_node("TreeEnsembleClassifier", ["x"], ["label", "y"], domain="ai.onnx.ml", **given)
    return graph_of([node], {"x": (kind, [None, 4])}, {})


@pytest.mark.parametrize("how", ["NONE", "LOGISTIC", "SOFTMAX"])
@pytest.mark.parametrize("weights", [[0.1, 0.3, 0.2, 0.4], [-0.1, 0.3, 0.2, -0.4]])
def test_trees_and_what_is_made_of_their_sums(how: str, weights: list[float]) -> None:
    three: dict[str, object] = {"classlabels_int64s": [3, 7, 9], "class_ids": [0, 1, 2, 0]}
    cases: list[dict[str, object]] = [
        {},
        {"base_values": [0.25]},
        {"class_ids": [1, 1, 1, 1]},
        {"class_ids": [1, 1, 0, 0]},
        three,
        {**three, "base_values": [0.1, 0.2, 0.3]},
    ]
    for case in cases:
        data = tree_graph(**{"post_transform": how, "class_weights": weights, **case})
        assert np.abs(_own(data, X) - session(data).run(["y"], {"x": X})[0]).max() < 1e-6, case


def test_trees_that_runtimes_disagree_on_are_refused() -> None:
    refused(tree_graph(class_ids=[0, 1, 1, 0]), "leave out a class")
    refused(tree_graph(base_values=[0.1, 0.2]), "base values")
    refused(tree_graph(class_ids=[1, 1, 1, 1], base_values=[0.1]), "base values")


@pytest.mark.parametrize("how", ["NONE", "LOGISTIC", "SOFTMAX"])
def test_linear_classifiers_of_one_and_two_columns(how: str) -> None:
    for rows in (1, 2):
        numbers = {"coefficients": [0.5, -0.25, 0.1, 1.0] * rows, "intercepts": [0.5, -0.5][:rows]}
        node = helper.make_node("LinearClassifier", ["x"], ["label", "y"], domain="ai.onnx.ml",
                                classlabels_ints=[3, 7], post_transform=how, **numbers)  # fmt: skip
        data = graph_of([node], {"x": (1, [None, 4])}, {})
        assert np.abs(_own(data, X) - session(data).run(["y"], {"x": X})[0]).max() < 1e-5


@pytest.mark.parametrize("mode", ["BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ"])
def test_every_test_of_a_tree(mode: str) -> None:
    x = np.float32([[0, v, 0, w] for v in (-1, 0.1, 1) for w in (-0.2, 5)])
    data = tree_graph(nodes_modes=[mode, "LEAF", "LEAF", mode, "LEAF", "LEAF"])
    assert np.abs(_own(data, x) - session(data).run(["y"], {"x": x})[0]).max() < 1e-6


# ---- missing numbers

HOLES = np.where(np.random.default_rng(6).random(X.shape) < 0.25, np.nan, X).astype(np.float32)
HOLED = hf.Schema.infer(pd.DataFrame(HOLES.astype(np.float64), columns=["a", "b", "c", "d"]))
FRAME = pd.DataFrame(HOLES.astype(np.float64), columns=HOLED.names)
FILLED: dict[str, object] = {
    "imputed": make_pipeline(SimpleImputer(), StandardScaler(), LogisticRegression()),
    "scaled first": make_pipeline(StandardScaler(), SimpleImputer(strategy="median"), LogisticRegression()),
    "ranged first": make_pipeline(MinMaxScaler(), SimpleImputer(), LogisticRegression()),
    "in parts": make_pipeline(
        make_column_transformer(
            (SimpleImputer(strategy="constant", fill_value=-1.5), [0, 2]),
            (make_pipeline(SimpleImputer(), MinMaxScaler()), [3, 1]),
        ),
        LogisticRegression(),
    ),
    "network": make_pipeline(SimpleImputer(), MLPClassifier((5,), activation="tanh", max_iter=20, random_state=0)),
    "forest": make_pipeline(SimpleImputer(), RandomForestClassifier(4, max_depth=3, random_state=0)),
}


def probabilities(data: bytes, rows: np.ndarray) -> np.ndarray:
    maps = session(data).run(None, {"X": rows})[1]
    return np.array([[row[k] for k in sorted(row)] for row in maps])


@pytest.mark.parametrize("name", FILLED)
def test_graphs_that_fill_numbers_in_take_missing_ones(name: str, tmp_path: Path) -> None:
    pipeline = fitted(FILLED[name], FRAME, TWO)
    data = skl(pipeline, HOLES[:1])
    (tmp_path / "m.onnx").write_bytes(data)
    model = hf.Model.load(tmp_path / "m.onnx", HOLED)
    assert not model.rejects_missing
    assert model.has_grad == (name != "forest")
    x = HOLED.encode(FRAME, torch.float64)
    with model.eval_mode():
        for scores in (model(x), model.score_frame(FRAME)):
            assert np.abs(torch.softmax(scores, 1).numpy() - probabilities(data, HOLES)).max() < 1e-6


@pytest.mark.parametrize("name", [name for name in FILLED if name != "forest"])
def test_gradients_where_numbers_are_missing_are_those_of_the_pipeline(name: str, tmp_path: Path) -> None:
    pipeline = fitted(FILLED[name], FRAME, TWO)
    (tmp_path / "m.onnx").write_bytes(skl(pipeline, HOLES[:1]))
    model, direct = hf.Model.load(tmp_path / "m.onnx", HOLED), hf.Model.of(pipeline, HOLED)
    x = HOLED.encode(FRAME, torch.float64)
    between = x + 0.3 * torch.randn(x.shape, generator=torch.Generator().manual_seed(0)).double()
    weights = torch.tensor([[-1.0, 1.0]]).double().expand(len(x), 2)
    with model.eval_mode(), direct.eval_mode():
        assert direct.has_grad
        for z in (x, between):  # also where a search is on its way, and a number is half missing
            (a, pull), (b, wanted) = model.vjp(z), direct.vjp(z)
            assert torch.allclose(a.diff().double(), b.diff(), atol=1e-4)
            assert torch.allclose(pull(weights), wanted(weights), atol=1e-4)


@pytest.mark.parametrize("method", [hf.MinCost(), hf.Descent(steps=150, restarts=3)], ids=["min-cost", "descent"])
def test_searches_fill_in_as_with_the_pipeline_itself(method: hf.Explainer, tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    table = pd.DataFrame({"income": rng.normal(3000, 900, 200).round(), "age": rng.integers(18, 70, 200).astype(float)})
    y = (table["income"] - 20 * table["age"] > 2100).astype(int)
    table.loc[rng.random(200) < 0.3, "income"] = np.nan
    pipeline = make_pipeline(SimpleImputer(strategy="constant", fill_value=0.0), StandardScaler(), LogisticRegression())
    pipeline.fit(table, y)
    (tmp_path / "m.onnx").write_bytes(skl(pipeline, table.to_numpy(np.float32)[:1]))
    schema = hf.Schema.infer(table, fixed=["age"], bounds={"income": (0, 9000)})
    model, direct = hf.Model.load(tmp_path / "m.onnx", schema), hf.Model.of(pipeline, schema)
    asked = table[table["income"].isna()].head(7)
    mine, theirs = (method.explain(m, asked, 1) for m in (model, direct))
    assert mine.found.all()
    assert (mine.status_codes == theirs.status_codes).all()
    assert mine.after["income"].notna().all()
    assert np.allclose(mine.after["income"], theirs.after["income"], rtol=1e-2)
    assert (pipeline.predict(mine.after) == 1).all()
    assert mine.sentences().iloc[0].startswith("Fill in income")


def gradient_boosting(model: HistGradientBoostingClassifier, columns: int) -> bytes:
    """The trees of scikit-learn's, which skl2onnx does not write with this NumPy."""
    names = ("treeids", "nodeids", "featureids", "values", "truenodeids", "falsenodeids", "missing_value_tracks_true")
    table: dict[str, list[float]] = {f"nodes_{name}": [] for name in names}
    modes, leaves = list[str](), list[tuple[int, int, float]]()
    for t, (tree,) in enumerate(model._predictors):
        for i, node in enumerate(tree.nodes):
            leaf = bool(node["is_leaf"])
            at = (t, i, int(node["feature_idx"]), 0.0 if leaf else float(node["num_threshold"]), int(node["left"]),
                  int(node["right"]), int(node["missing_go_to_left"]))  # fmt: skip
            for column, value in zip(table.values(), at, strict=True):
                column.append(value)
            modes.append("LEAF" if leaf else "BRANCH_LEQ")
            leaves += [(t, i, float(node["value"]))] if leaf else []
    trees, nodes, weights = zip(*leaves, strict=True)
    node = helper.make_node(
        "TreeEnsembleClassifier", ["X"], ["label", "y"], domain="ai.onnx.ml", nodes_modes=modes, class_treeids=trees,
        class_nodeids=nodes, class_ids=[0] * len(leaves), class_weights=weights, classlabels_int64s=[0, 1],
        base_values=[float(model._baseline_prediction.ravel()[0])], post_transform="LOGISTIC", **table,
    )  # fmt: skip
    return graph_of([node], {"X": (1, [None, columns])}, {})


def test_trees_that_know_missing_numbers(tmp_path: Path) -> None:
    grown = HistGradientBoostingClassifier(max_iter=8, min_samples_leaf=5, early_stopping=False).fit(HOLES, TWO)
    data = gradient_boosting(grown, HOLES.shape[1])
    assert np.abs(session(data).run(["y"], {"X": HOLES})[0] - grown.predict_proba(HOLES)).max() < 1e-5
    (tmp_path / "m.onnx").write_bytes(data)
    model = hf.Model.load(tmp_path / "m.onnx", HOLED)
    assert not model.rejects_missing
    assert np.abs(torch.softmax(model.score_frame(FRAME), 1).numpy() - grown.predict_proba(HOLES)).max() < 1e-5
    asked = FRAME[grown.predict(HOLES) == 0].head(9)
    cfs = hf.GrowingSpheres(samples=100).explain(model, asked, 1)
    assert cfs.found.any()
    assert (grown.predict(cfs.after.to_numpy(np.float32)[cfs.found]) == 1).all()


@pytest.mark.parametrize("tracks", [(0, 0), (1, 0), (0, 1), (1, 1)])
@pytest.mark.parametrize("mode", ["BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ"])
def test_every_test_of_a_tree_on_missing_numbers(mode: str, tracks: tuple[int, int]) -> None:
    x = np.float32([[0, v, 0, w] for v in (-1, 0.1, np.nan) for w in (-0.2, np.nan)])
    modes = [mode, "LEAF", "LEAF", mode, "LEAF", "LEAF"]
    data = tree_graph(nodes_modes=modes, nodes_missing_value_tracks_true=[tracks[0], 0, 0, tracks[1], 0, 0])
    assert np.abs(_own(data, x) - session(data).run(["y"], {"x": x})[0]).max() < 1e-6


@pytest.mark.parametrize("tracks", [0, 1])
@pytest.mark.parametrize("end", [math.inf, -math.inf])
@pytest.mark.parametrize("mode", ["BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ"])
def test_thresholds_may_be_infinite(mode: str, end: float, tracks: int, tmp_path: Path) -> None:
    """scikit-learn's trees divide what is missing from all numbers that way. Large numbers are infinite in 32 bits."""
    table = [[0.0, v, 0.5, w] for v in (-1.0, 5.0, 1e39, -1e39, np.nan) for w in (-0.2, 5.0, np.nan)]
    frame = pd.DataFrame(table, columns=["a", "b", "c", "d"])
    with np.errstate(over="ignore"):
        x = np.array(table, np.float32)
    values = [end, 0.0, 0.0, *TREE["nodes_values"][3:]]
    data = tree_graph(
        nodes_modes=[mode, "LEAF", "LEAF", "BRANCH_LEQ", "LEAF", "LEAF"], nodes_values=values,
        post_transform="LOGISTIC", nodes_missing_value_tracks_true=[tracks, 0, 0, 0, 0, 0],
    )  # fmt: skip
    right = session(data).run(["y"], {"x": x})[0]
    assert np.abs(_own(data, x) - right).max() < 1e-6
    (tmp_path / "m.onnx").write_bytes(data)
    exact = hf.Schema(tuple(Feature(name, seen=(-3, 3), missing=True) for name in frame))
    model = hf.Model.load(tmp_path / "m.onnx", exact, inputs="frame")
    usual = frame[frame["b"].abs().ne(1e39)]
    assert (
        np.abs(torch.softmax(model(model.schema.encode(usual, model.dtype)), 1).numpy() - right[usual.index]).max()
        < 1e-6
    )
    asks = mode in ("BRANCH_LEQ", "BRANCH_GT") or (mode in ("BRANCH_LT", "BRANCH_GTE") and end > 0)
    assert bool(model.conversion) == asks, model.conversion.text


def test_thresholds_that_are_no_numbers_are_refused() -> None:
    refused(tree_graph(nodes_values=[math.nan, *TREE["nodes_values"][1:]]), "'nodes_values' is no number")
    refused(tree_graph(class_weights=[math.inf, 0.3, 0.2, 0.4]), "'class_weights' is not finite")


def test_imputers_by_the_book() -> None:
    x = np.float32([[np.nan, 0, -7], [1, np.nan, np.nan]])
    for gap in (float("nan"), -7.0, 0.0):
        for values in ([5.0], [5.0, 6.0, 7.0]):
            node = helper.make_node("Imputer", ["x"], ["y"], domain="ai.onnx.ml", imputed_value_floats=values,
                                    replaced_value_float=gap)  # fmt: skip
            data = graph_of([node], {"x": (1, [None, 3])}, {})
            assert np.array_equal(_own(data, x), session(data).run(["y"], {"x": x})[0], equal_nan=True)


def test_graphs_that_take_no_missing_numbers_say_so(tmp_path: Path) -> None:
    whole = FRAME.dropna()
    (tmp_path / "m.onnx").write_bytes(skl(fitted(LogisticRegression(), X, TWO), X[:1]))
    model = hf.Model.load(tmp_path / "m.onnx", HOLED)
    assert set(model.rejects_missing) == set(HOLED.names)
    assert model.schema.width == 4
    count = int(FRAME["a"].isna().sum())
    with pytest.raises(
        SchemaError, match=rf"column 'a' has {count} missing numbers.*takes none there: the graph then giv"
    ):
        hf.MinCost().explain(model, FRAME, 1)
    assert hf.MinCost().explain(model, whole.head(5), 1).found.any()
    some = fitted(make_pipeline(make_column_transformer((SimpleImputer(), [1]), remainder="passthrough"),
                                LogisticRegression()), X, TWO)  # fmt: skip
    (tmp_path / "m.onnx").write_bytes(skl(some, X[:1]))
    model = hf.Model.load(tmp_path / "m.onnx", HOLED)
    assert set(model.rejects_missing) == {"a", "c", "d"}
    assert model.has_grad
    assert model.predict(FRAME.dropna(subset=["a", "c", "d"])).notna().all()


def test_whole_numbers_of_a_graph_are_never_missing(tmp_path: Path) -> None:
    from skl2onnx import convert_sklearn
    from skl2onnx.common.data_types import FloatTensorType, Int64TensorType

    table = FRAME[["a", "b"]].assign(b=(FRAME["b"] * 3).round())
    schema = hf.Schema.infer(table, integers=["b"])
    tree = DecisionTreeClassifier(max_depth=3).fit(table.fillna(0.0), TWO)
    types = [("a", FloatTensorType([None, 1])), ("b", Int64TensorType([None, 1]))]
    pipeline = make_pipeline(make_column_transformer(("passthrough", ["a", "b"])), tree).fit(table.fillna(0.0), TWO)
    (tmp_path / "m.onnx").write_bytes(convert_sklearn(pipeline, initial_types=types).SerializeToString())
    model = hf.Model.load(tmp_path / "m.onnx", schema)
    assert not model.has_grad
    assert model.rejects_missing == {"b": "the graph takes int64 in 'b', which has no missing numbers"}
    with pytest.raises(SchemaError, match=r"column 'b' has .* int64"):
        hf.GrowingSpheres().explain(model, table, 1)
    cast = [helper.make_node("Cast", ["x"], ["i"], to=7), helper.make_node("Cast", ["i"], ["f"], to=1),
            helper.make_node("Gather", ["f", "at"], ["y"], axis=1)]  # fmt: skip
    data = graph_of(cast, {"x": (1, [None, 4])}, {"at": ints(0, 1)})
    assert interpreter.load(data, HOLED).refused["a"] == "operator Cast: whole numbers cannot be missing"


def test_no_digit_is_lost_on_the_way_into_a_graph(tmp_path: Path) -> None:
    table = pd.DataFrame({"a": np.linspace(1e6, 1e6 + 1, 9), "b": np.linspace(0.1, 0.7, 9)})
    data = graph_of([helper.make_node("Mul", ["x", "c"], ["y"])], {"x": (11, [None, 2])}, {"c": np.float64([1.0, 1.0])})
    (tmp_path / "m.onnx").write_bytes(data)
    model = hf.Model.load(tmp_path / "m.onnx", hf.Schema.infer(table), inputs="frame")
    with model.eval_mode():
        assert np.allclose(model.score_frame(table), table, rtol=1e-14, atol=0)


# ---- exact copies of trees


def check_copy(
    data: bytes, frame: pd.DataFrame, tmp_path: Path, schema: hf.Schema | None = None, **more: object
) -> hf.Model:
    """The graph has a copy over its own thresholds, which scores as the graph does."""
    (tmp_path / "m.onnx").write_bytes(data)
    schema = schema or hf.Schema.infer(frame)
    model = hf.Model.load(tmp_path / "m.onnx", schema, **more)
    assert isinstance(model, CompiledModel), model.conversion.text
    assert model.thresholds is not None
    x = schema.encode(frame, torch.float64)
    mine, theirs = model(x), model.score_frame(frame)
    if not model.is_regression:
        mine, theirs = torch.softmax(mine, 1), torch.softmax(theirs, 1)
    assert torch.allclose(mine, theirs, rtol=1e-6, atol=1e-6)
    return model


GROWN = [
    DecisionTreeClassifier(max_depth=3), RandomForestClassifier(4, max_depth=3, random_state=0),
    ExtraTreesClassifier(4, max_depth=4, random_state=0), GradientBoostingClassifier(n_estimators=3),
]  # fmt: skip


@pytest.mark.parametrize("y", [TWO, THREE], ids=["two", "three"])
@pytest.mark.parametrize("estimator", GROWN, ids=lambda e: type(e).__name__)
def test_trees_get_exact_copies(estimator: object, y: np.ndarray, tmp_path: Path) -> None:
    frame = pd.DataFrame(X.astype(np.float64), columns=["a", "b", "c", "d"])
    model = fitted(estimator, X, y)
    own = check_copy(skl(model, X[:1]), frame, tmp_path)
    assert np.abs(torch.softmax(own.score_frame(frame), 1).numpy() - model.predict_proba(X)).max() < 1e-5
    cfs = hf.TreeSearch().explain(own, frame[model.predict(X) == 0].head(5), 1)
    assert cfs.found.all()
    assert (model.predict(cfs.after.to_numpy(np.float32)) == 1).all()


def test_trees_that_estimate_a_number_get_exact_copies(tmp_path: Path) -> None:
    frame = pd.DataFrame(X.astype(np.float64), columns=["a", "b", "c", "d"])
    for estimator in (RandomForestRegressor(4, max_depth=4, random_state=0), GradientBoostingRegressor(n_estimators=5)):
        model = fitted(estimator, X, 100 * X[:, 0] + X[:, 1])
        own = check_copy(skl(model, X[:1]), frame, tmp_path, outputs="value")
        assert own.is_regression
        assert np.allclose(own.predict(frame), model.predict(X), rtol=1e-5)
        cfs = hf.TreeSearch().explain(own, frame[model.predict(X) < 0].head(5), hf.Target.between(20, 90))
        assert cfs.found.all()


def test_deep_trees_are_walked_by_the_graph_s_own_operator(tmp_path: Path) -> None:
    rows = np.random.default_rng(7).normal(size=(1500, 3)).astype(np.float32)
    y = np.random.default_rng(8).integers(0, 2, len(rows))
    model = RandomForestClassifier(2, random_state=0).fit(rows, y)
    assert model.estimators_[0].get_n_leaves() > 256
    frame = pd.DataFrame(rows.astype(np.float64), columns=["a", "b", "c"])
    own = check_copy(skl(model, rows[:1]), frame, tmp_path)
    assert "own code" in own.conversion.text
    assert np.abs(torch.softmax(own.score_frame(frame), 1).numpy() - model.predict_proba(rows)).max() < 1e-6


def test_trees_over_named_columns_and_missing_numbers_get_exact_copies(tmp_path: Path) -> None:
    from skl2onnx import convert_sklearn
    from skl2onnx.common.data_types import FloatTensorType

    grown = HistGradientBoostingClassifier(max_iter=8, min_samples_leaf=5, early_stopping=False).fit(HOLES, TWO)
    check_copy(gradient_boosting(grown, HOLES.shape[1]), FRAME, tmp_path)
    whole = FRAME.fillna(0.0)
    prepare = make_column_transformer(("passthrough", ["c", "a", "d"]))
    pipeline = make_pipeline(prepare, RandomForestClassifier(4, max_depth=4, random_state=0)).fit(whole, TWO)
    types = [(name, FloatTensorType([None, 1])) for name in ("a", "b", "c", "d")]
    data = convert_sklearn(pipeline, initial_types=types).SerializeToString()
    model = check_copy(data, whole, tmp_path)
    assert (model.predict(whole) == pipeline.predict(whole)).all()


@pytest.mark.parametrize("tracks", [0, 1])
@pytest.mark.parametrize("kind", [1, 11], ids=["float", "double"])
@pytest.mark.parametrize("mode", ["BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT"])
def test_copies_ask_what_the_tree_asks(mode: str, kind: int, tracks: int, tmp_path: Path) -> None:
    near = [0.1, np.nextafter(0.1, 0), np.nextafter(0.1, 1), float(np.float32(0.1)), np.nextafter(np.float32(0.1), 0.0)]
    table = [[0.0, v, 0.5, w] for v in (*near, -1.0, np.nan) for w in (-0.2, 5.0, float(np.float32(-0.2)), np.nan)]
    frame = pd.DataFrame(table, columns=["a", "b", "c", "d"])
    numbers = {} if kind == 1 else {
        "nodes_values": None, "class_weights": None,
        "nodes_values_as_tensor": numpy_helper.from_array(np.float64(TREE["nodes_values"])),
        "class_weights_as_tensor": numpy_helper.from_array(np.float64([0.1, 0.3, 0.2, 0.4])),
    }  # fmt: skip
    data = tree_graph(
        kind=kind, nodes_modes=[mode, "LEAF", "LEAF", mode, "LEAF", "LEAF"], post_transform="LOGISTIC",
        nodes_missing_value_tracks_true=[tracks, 0, 0, tracks, 0, 0], **numbers,
    )  # fmt: skip
    exact = hf.Schema(tuple(Feature(name, seen=(-3, 3), missing=True) for name in frame))  # encoded as they are
    model = check_copy(data, frame, tmp_path, exact, inputs="frame")
    rows = frame.to_numpy(np.float32 if kind == 1 else np.float64)
    assert (
        np.abs(torch.softmax(model.score_frame(frame), 1).numpy() - session(data).run(["y"], {"x": rows})[0]).max()
        < 1e-6
    )


def test_what_has_no_copy_says_why(tmp_path: Path) -> None:
    def why(data: bytes) -> str:
        (tmp_path / "m.onnx").write_bytes(data)
        model = hf.Model.load(tmp_path / "m.onnx", BOX, inputs="frame")
        assert not model.conversion
        return model.conversion.text

    same = ["BRANCH_EQ", "LEAF", "LEAF", "BRANCH_LEQ", "LEAF", "LEAF"]
    assert why(tree_graph(nodes_modes=same)) == "a node asks whether two numbers are the same"
    mixed = {name: [TREE[name][i] for i in (0, 3, 1, 2, 4, 5)] for name in TREE if name.startswith("nodes_")}
    assert why(tree_graph(**mixed)) == "the nodes of its trees are not one tree after the other"
    scaled = make_pipeline(StandardScaler(), DecisionTreeClassifier(max_depth=3))
    assert why(skl(fitted(scaled, X, TWO), X[:1])) == "the graph is more than trees over columns of the table"


# ---- what is refused


def refused(data: bytes, words: str, schema: hf.Schema = BOX) -> None:
    with pytest.raises(FileError, match=words):
        interpreter.load(data, schema)


def one(op: str, constants: dict[str, np.ndarray] | None = None, domain: str = "", **attributes: object) -> bytes:
    """A graph of one operator between two products."""
    constants = constants or {}
    node = helper.make_node(op, ["x", *constants], ["y"], domain=domain, **attributes)
    return graph_of([node], {"x": (1, [None, 4])}, constants)


def test_operators_that_are_not_known_are_named() -> None:
    refused(one("Hardmax"), "operator 'Hardmax'")
    refused(one("Evil", domain="com.example"), r"operator 'com\.example\.Evil'")
    refused(one("SVMClassifier", domain="ai.onnx.ml"), "SVMClassifier")
    inner = helper.make_graph([], "inner", [], [])
    refused(one("If", then_branch=inner, else_branch=inner), "operator If.*graph of its own")


def test_large_things_made_of_little_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    huge = 1 << 20
    for data in (
        one("Expand", {"s": ints(huge, huge, 16, 4)}),
        one("Tile", {"s": ints(huge, huge)}),
        one("Pad", {"s": ints(0, 0, 0, 1 << 40)}),
    ):
        refused(data, "more than")
    shape = helper.make_node("ConstantOfShape", ["s"], ["z"])
    both = graph_of([shape, helper.make_node("Add", ["x", "z"], ["y"])], {"x": (1, [None, 4])}, {"s": ints(huge, huge)})
    refused(both, "ConstantOfShape.*more than")
    monkeypatch.setattr(operators, "MOST", 1000)
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


def test_graphs_that_are_no_classifiers_of_rows_are_refused() -> None:
    refused(one("ReduceSum", {"a": ints(0)}), "rows")
    mixed = [helper.make_node("ReduceMean", ["x", "a"], ["m"], keepdims=1), helper.make_node("Sub", ["x", "m"], ["y"])]
    refused(graph_of(mixed, {"x": (1, [None, 4])}, {"a": ints(0)}), "depend on the other rows")
    refused(one("Reshape", {"s": ints(3, 4)}), "dynamic first axis")
    refused(one("Relu"), "takes 4 columns", hf.Schema.box(5))
    data = exported(NETWORKS["mlp"][1], 4)
    refused(data, "takes 4 columns", hf.Schema.box(3))
    model = onnx.load_from_string(data)
    model.graph.output[0].type.tensor_type.elem_type = TensorProto.INT64
    refused(model.SerializeToString(), "no output of scores")


def test_data_in_other_files_and_functions_are_refused(tmp_path: Path) -> None:
    model = onnx.load_from_string(exported(NETWORKS["mlp"][1], 4))
    path = tmp_path / "m.onnx"
    onnx.save(model, path, save_as_external_data=True, size_threshold=0)
    with pytest.raises(FileError, match="another file, which is not read"):
        hf.Model.load(path, BOX)
    model = onnx.load_from_string(one("Relu"))
    model.functions.append(helper.make_function("f", "F", ["a"], ["b"], [helper.make_node("Relu", ["a"], ["b"])], []))
    refused(model.SerializeToString(), "functions of its own")


def test_names_that_lead_nowhere_are_refused() -> None:
    flat = {"x": (1, [None, 4])}
    refused(graph_of([helper.make_node("Relu", ["nothing"], ["y"])], flat, {}), "nothing before it makes")
    refused(graph_of([helper.make_node("Relu", ["x"], ["z"])], flat, {}), "made by nothing")
    twice = [helper.make_node("Relu", ["x"], ["y"]), helper.make_node("Tanh", ["x"], ["y"])]
    refused(graph_of(twice, flat, {}), "exists already")
    model = onnx.load_from_string(one("Add", {"c": np.zeros((1, 4), np.float32)}))
    model.graph.initializer[0].dims[0] = 1 << 40
    refused(model.SerializeToString(), "numbers")
    with pytest.raises(FileError, match="no column"):
        interpreter.load(
            graph_of([helper.make_node("Add", ["a", "b"], ["y"])], {"a": (1, [None, 1]), "b": (1, [None, 1])}, {}), BOX
        )


GOOD = exported(seeded(nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))), 4)
TREES = tree_graph()


@given(
    st.sampled_from([GOOD, TREES]),
    st.lists(st.tuples(st.floats(0, 1), st.integers(0, 255)), max_size=4),
    st.one_of(st.none(), st.floats(0, 1)),
)
@settings(max_examples=150, deadline=None)
def test_damaged_bytes_are_refused_or_a_model(data: bytes, edits: list[tuple[float, int]], cut: float | None) -> None:
    raw = bytearray(data)
    for place, byte in edits:
        raw[int(place * (len(raw) - 1))] = byte
    raw = raw if cut is None else raw[: int(cut * len(raw))]
    try:
        found = interpreter.load(bytes(raw), BOX)
    except FileError:
        return
    assert found.outputs in ("logits", "probabilities")
