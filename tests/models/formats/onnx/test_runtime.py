"""Our interpreter of ONNX against onnxruntime and against the modules and estimators that were
exported."""

import warnings
from pathlib import Path

import numpy as np
import onnx
import pandas as pd
import pytest
import torch
from onnx import TensorProto, helper
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import make_column_transformer
from sklearn.ensemble import (
    AdaBoostClassifier,
    BaggingClassifier,
    GradientBoostingClassifier,
    RandomForestClassifier,
)
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, RidgeClassifier, SGDClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    MinMaxScaler,
    Normalizer,
    OneHotEncoder,
    OrdinalEncoder,
    StandardScaler,
)
from sklearn.tree import DecisionTreeClassifier
from torch import nn

import holdfast as hf
from holdfast.models.formats.onnx import runtime as interpreter
from holdfast.models.formats.onnx.graph import read_graph
from holdfast.nn.architecture import describe
from support.onnx_graphs import (
    BOX,
    NETWORKS,
    THREE,
    TWO,
    X,
    exported,
    fitted,
    graph_of,
    ints,
    one,
    refused,
    session,
    skl,
)
from support.tables import seeded


@pytest.mark.parametrize("name", NETWORKS)
def test_networks_equal_onnxruntime_and_their_gradients_torch(name: str, tmp_path: Path) -> None:
    d = NETWORKS[name][0]
    net = seeded(NETWORKS[name][1])
    data = exported(net, d)
    (tmp_path / "m.onnx").write_bytes(data)
    model = hf.Model.load(tmp_path / "m.onnx", hf.Schema.box(d, -3, 3))
    assert model.has_grad
    x = torch.randn(24, d, generator=torch.Generator().manual_seed(1))
    (expected,) = session(data).run(None, {"x": x.numpy()})
    z = x.clone().requires_grad_()
    raw = model.module(z)
    own = net(z)
    assert np.abs(raw.detach().numpy() - expected).max() < 1e-5
    v = torch.randn(own.shape, generator=torch.Generator().manual_seed(2))
    (slope,) = torch.autograd.grad(raw, z, v)
    z = x.clone().requires_grad_()
    (wanted,) = torch.autograd.grad(net(z), z, v)
    assert (slope - wanted).abs().max() < 1e-5
    original = hf.Model.of(net, model.schema, outputs=model.outputs)
    with model.eval_mode(), original.eval_mode():
        assert torch.allclose(model(x), original(x), atol=1e-5)


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
    low = 0.25
    high = 0.5
    cfs = hf.MinCost(norm=2).explain(model, x, hf.Target.between(low, high))
    assert cfs.found.any()
    with torch.no_grad():
        value = net(x).squeeze(1)
        weight = net.weight.norm()
    nearest = torch.maximum(low - value, value - high).clamp_min(0) / weight  # of a slab
    found = torch.tensor(cfs.found)
    distance = (cfs.x_cf - cfs.x).norm(dim=1)
    assert torch.allclose(distance[found], nearest[found], atol=2e-3)


def test_linear_and_relu_layers_become_those_of_torch(tmp_path: Path) -> None:
    net = seeded(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3, bias=False)), 5)
    (tmp_path / "m.onnx").write_bytes(exported(nn.Sequential(net[0], net[1], nn.Linear(8, 3)), 4))
    model = hf.Model.load(tmp_path / "m.onnx", BOX)
    assert describe(model.module) == describe(
        nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    )
    with model.eval_mode():
        assert model.engine is not None
    model.save(tmp_path / "m.safetensors")
    assert hf.Model.load(tmp_path / "m.safetensors").fingerprint() == model.fingerprint()
    # without a bias: a product, which the interpreter does
    (tmp_path / "n.onnx").write_bytes(exported(net, 4))
    other = hf.Model.load(tmp_path / "n.onnx", BOX)
    x = torch.randn(8, 4, generator=torch.Generator().manual_seed(0))
    with other.eval_mode():
        assert torch.allclose(other(x), net(x), atol=1e-6)


ESTIMATORS = [
    LogisticRegression(),
    RidgeClassifier(),
    SGDClassifier(loss="log_loss"),
    GaussianNB(),
    MLPClassifier((5,), max_iter=20, random_state=0),
    DecisionTreeClassifier(max_depth=3),
    RandomForestClassifier(4, max_depth=3, random_state=0),
    GradientBoostingClassifier(n_estimators=3),
    AdaBoostClassifier(n_estimators=3),
    BaggingClassifier(n_estimators=2),
    CalibratedClassifierCV(LogisticRegression(), cv=2),
    make_pipeline(StandardScaler(), MinMaxScaler(), Normalizer(), LogisticRegression()),
]


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
            "school": pd.Categorical(
                rng.choice(["low", "mid", "high"], rows), ["low", "mid", "high"], ordered=True
            ),
            "code": rng.choice([1, 2, 5], rows),
        }
    )


def pipelines() -> dict[str, object]:
    hot = make_column_transformer(
        (StandardScaler(), ["age", "income"]), (OneHotEncoder(), ["job", "school", "code"])
    )
    ranked = make_column_transformer(
        (make_pipeline(SimpleImputer(), MinMaxScaler()), ["income"]),
        (OrdinalEncoder(), ["job", "school"]),
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


def test_no_digit_is_lost_on_the_way_into_a_graph(tmp_path: Path) -> None:
    table = pd.DataFrame({"a": np.linspace(1e6, 1e6 + 1, 9), "b": np.linspace(0.1, 0.7, 9)})
    data = graph_of(
        [helper.make_node("Mul", ["x", "c"], ["y"])],
        {"x": (11, [None, 2])},
        {"c": np.float64([1.0, 1.0])},
    )
    (tmp_path / "m.onnx").write_bytes(data)
    model = hf.Model.load(tmp_path / "m.onnx", hf.Schema.infer(table), inputs="frame")
    with model.eval_mode():
        assert np.allclose(model.score_frame(table), table, rtol=1e-14, atol=0)


def test_operators_that_are_not_known_are_named() -> None:
    refused(one("Hardmax"), "operator 'Hardmax'")
    refused(one("Evil", domain="com.example"), r"operator 'com\.example\.Evil'")
    refused(one("SVMClassifier", domain="ai.onnx.ml"), "SVMClassifier")
    inner = helper.make_graph([], "inner", [], [])
    refused(one("If", then_branch=inner, else_branch=inner), "operator If.*graph of its own")


def test_graphs_that_are_no_classifiers_of_rows_are_refused() -> None:
    refused(one("ReduceSum", {"a": ints(0)}), "rows")
    mixed = [
        helper.make_node("ReduceMean", ["x", "a"], ["m"], keepdims=1),
        helper.make_node("Sub", ["x", "m"], ["y"]),
    ]
    refused(graph_of(mixed, {"x": (1, [None, 4])}, {"a": ints(0)}), "depend on the other rows")
    refused(one("Reshape", {"s": ints(3, 4)}), "dynamic first axis")
    refused(one("Relu"), "takes 4 columns", hf.Schema.box(5))
    data = exported(NETWORKS["mlp"][1], 4)
    refused(data, "takes 4 columns", hf.Schema.box(3))
    model = onnx.load_from_string(data)
    model.graph.output[0].type.tensor_type.elem_type = TensorProto.INT64
    refused(model.SerializeToString(), "no output of scores")
