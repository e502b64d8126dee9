"""Missing numbers on their way through a graph."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from onnx import helper
from sklearn.compose import make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, StandardScaler
from sklearn.tree import DecisionTreeClassifier

import holdfast as hf
from holdfast.errors import SchemaError
from holdfast.models.formats.onnx import runtime as interpreter
from support.onnx_graphs import (
    FRAME,
    HOLED,
    HOLES,
    TWO,
    X,
    fitted,
    gradient_boosting,
    graph_of,
    ints,
    session,
    skl,
)

FILLED: dict[str, object] = {
    "imputed": make_pipeline(SimpleImputer(), StandardScaler(), LogisticRegression()),
    "scaled first": make_pipeline(
        StandardScaler(), SimpleImputer(strategy="median"), LogisticRegression()
    ),
    "ranged first": make_pipeline(MinMaxScaler(), SimpleImputer(), LogisticRegression()),
    "in parts": make_pipeline(
        make_column_transformer(
            (SimpleImputer(strategy="constant", fill_value=-1.5), [0, 2]),
            (make_pipeline(SimpleImputer(), MinMaxScaler()), [3, 1]),
        ),
        LogisticRegression(),
    ),
    "network": make_pipeline(
        SimpleImputer(), MLPClassifier((5,), activation="tanh", max_iter=20, random_state=0)
    ),
    "forest": make_pipeline(
        SimpleImputer(), RandomForestClassifier(4, max_depth=3, random_state=0)
    ),
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
            assert (
                np.abs(torch.softmax(scores, 1).numpy() - probabilities(data, HOLES)).max() < 1e-6
            )


@pytest.mark.parametrize("name", [name for name in FILLED if name != "forest"])
def test_gradients_where_numbers_are_missing_are_those_of_the_pipeline(
    name: str, tmp_path: Path
) -> None:
    pipeline = fitted(FILLED[name], FRAME, TWO)
    (tmp_path / "m.onnx").write_bytes(skl(pipeline, HOLES[:1]))
    model = hf.Model.load(tmp_path / "m.onnx", HOLED)
    direct = hf.Model.of(pipeline, HOLED)
    x = HOLED.encode(FRAME, torch.float64)
    between = x + 0.3 * torch.randn(x.shape, generator=torch.Generator().manual_seed(0)).double()
    weights = torch.tensor([[-1.0, 1.0]]).double().expand(len(x), 2)
    with model.eval_mode(), direct.eval_mode():
        assert direct.has_grad
        for z in (x, between):  # also where a search is on its way, and a number is half missing
            a, pull = model.vjp(z)
            b, wanted = direct.vjp(z)
            assert torch.allclose(a.diff().double(), b.diff(), atol=1e-4)
            assert torch.allclose(pull(weights), wanted(weights), atol=1e-4)


@pytest.mark.parametrize(
    "method", [hf.MinCost(), hf.Descent(steps=150, restarts=3)], ids=["min-cost", "descent"]
)
def test_searches_fill_in_as_with_the_pipeline_itself(method: hf.Explainer, tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    table = pd.DataFrame(
        {
            "income": rng.normal(3000, 900, 200).round(),
            "age": rng.integers(18, 70, 200).astype(float),
        }
    )
    y = (table["income"] - 20 * table["age"] > 2100).astype(int)
    table.loc[rng.random(200) < 0.3, "income"] = np.nan
    pipeline = make_pipeline(
        SimpleImputer(strategy="constant", fill_value=0.0), StandardScaler(), LogisticRegression()
    )
    pipeline.fit(table, y)
    (tmp_path / "m.onnx").write_bytes(skl(pipeline, table.to_numpy(np.float32)[:1]))
    schema = hf.Schema.infer(table, fixed=["age"], bounds={"income": (0, 9000)})
    model = hf.Model.load(tmp_path / "m.onnx", schema)
    direct = hf.Model.of(pipeline, schema)
    asked = table[table["income"].isna()].head(7)
    mine = method.explain(model, asked, 1)
    theirs = method.explain(direct, asked, 1)
    assert mine.found.all()
    assert (mine.status_codes == theirs.status_codes).all()
    assert mine.after["income"].notna().all()
    assert np.allclose(mine.after["income"], theirs.after["income"], rtol=1e-2)
    assert (pipeline.predict(mine.after) == 1).all()
    assert mine.sentences().iloc[0].startswith("Fill in income")


def test_trees_that_know_missing_numbers(tmp_path: Path) -> None:
    grown = HistGradientBoostingClassifier(
        max_iter=8, min_samples_leaf=5, early_stopping=False
    ).fit(HOLES, TWO)
    data = gradient_boosting(grown, HOLES.shape[1])
    assert (
        np.abs(session(data).run(["y"], {"X": HOLES})[0] - grown.predict_proba(HOLES)).max() < 1e-5
    )
    (tmp_path / "m.onnx").write_bytes(data)
    model = hf.Model.load(tmp_path / "m.onnx", HOLED)
    assert not model.rejects_missing
    assert (
        np.abs(
            torch.softmax(model.score_frame(FRAME), 1).numpy() - grown.predict_proba(HOLES)
        ).max()
        < 1e-5
    )
    asked = FRAME[grown.predict(HOLES) == 0].head(9)
    cfs = hf.GrowingSpheres(samples=100).explain(model, asked, 1)
    assert cfs.found.any()
    assert (grown.predict(cfs.after.to_numpy(np.float32)[cfs.found]) == 1).all()


def test_graphs_that_take_no_missing_numbers_say_so(tmp_path: Path) -> None:
    whole = FRAME.dropna()
    (tmp_path / "m.onnx").write_bytes(skl(fitted(LogisticRegression(), X, TWO), X[:1]))
    model = hf.Model.load(tmp_path / "m.onnx", HOLED)
    assert set(model.rejects_missing) == set(HOLED.names)
    assert model.schema == HOLED
    count = int(FRAME["a"].isna().sum())
    with pytest.raises(
        SchemaError,
        match=rf"column 'a' has {count} missing .*does not take missing .*: the graph then giv",
    ):
        hf.MinCost().explain(model, FRAME, 1)
    assert hf.MinCost().explain(model, whole.head(5), 1).found.any()
    some = fitted(
        make_pipeline(
            make_column_transformer((SimpleImputer(), [1]), remainder="passthrough"),
            LogisticRegression(),
        ),
        X,
        TWO,
    )
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
    pipeline = make_pipeline(make_column_transformer(("passthrough", ["a", "b"])), tree).fit(
        table.fillna(0.0), TWO
    )
    (tmp_path / "m.onnx").write_bytes(
        convert_sklearn(pipeline, initial_types=types).SerializeToString()
    )
    model = hf.Model.load(tmp_path / "m.onnx", schema)
    assert not model.has_grad
    assert model.rejects_missing == {
        "b": "the graph takes int64 in 'b', which has no missing numbers"
    }
    with pytest.raises(SchemaError, match=r"column 'b' has .* int64"):
        hf.GrowingSpheres().explain(model, table, 1)
    cast = [
        helper.make_node("Cast", ["x"], ["i"], to=7),
        helper.make_node("Cast", ["i"], ["f"], to=1),
        helper.make_node("Gather", ["f", "at"], ["y"], axis=1),
    ]
    data = graph_of(cast, {"x": (1, [None, 4])}, {"at": ints(0, 1)})
    assert (
        interpreter.load(data, HOLED).rejects_missing["a"]
        == "operator Cast: integers cannot be missing"
    )
