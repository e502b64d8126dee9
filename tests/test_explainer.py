"""What `explain` takes: one row, columns that the model does not know, and dates."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sklearn.compose import make_column_transformer
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler

import holdfast as hf
from holdfast.errors import ModelError, SchemaError, SettingError
from holdfast.schema.verify import violations
from support.law_table import CASES, EXPLAINERS, MODELS, fitted, people
from support.worlds import tables

RNG = np.random.default_rng(0)
PEOPLE = pd.DataFrame(
    {
        "age": RNG.integers(20, 60, 80),
        "since": pd.to_datetime("2015-01-01") + pd.to_timedelta(RNG.integers(0, 3000, 80), "D"),
        "income": RNG.normal(3000, 800, 80).round(1),
        "job": RNG.choice(["clerk", "cook", "none"], 80),
    }
)
PEOPLE.loc[[3, 11], "since"] = pd.NaT
APPROVED = np.where(PEOPLE["income"] + 300 * (PEOPLE["since"].dt.month < 7) > 3100, "yes", "no")
WITH_DATE = hf.Schema.infer(PEOPLE, fixed=["age"])


def half_of_the_year(dates: pd.DataFrame) -> pd.DataFrame:
    return (dates.apply(lambda column: column.dt.month) < 7).astype(float)


def pipeline() -> hf.Model:
    """An estimator that reads the date itself."""
    steps = make_column_transformer(
        (StandardScaler(), ["age", "income"]),
        (FunctionTransformer(half_of_the_year), ["since"]),
        (OneHotEncoder(), ["job"]),
    )
    return hf.Model.of(make_pipeline(steps, LogisticRegression()).fit(PEOPLE, APPROVED), WITH_DATE)


def network() -> hf.Model:
    return hf.train_network(PEOPLE, APPROVED, WITH_DATE, hidden=(8,), epochs=30, lr=0.02)


# ---- one row


@pytest.mark.parametrize("method", [hf.MinCost(), hf.GrowingSpheres()])
def test_one_row_as_a_dict_or_a_series_is_answered_as_in_its_table(method: hf.Explainer) -> None:
    model = MODELS["two-logit"]()
    X = people(model, 5)
    whole = method.explain(model, X, "yes")
    for i in range(len(X)):
        for row in (X.iloc[i], {name: X[name].iloc[i] for name in X}):
            alone = method.explain(model, row, "yes")
            assert torch.allclose(alone.x_cf, whole.x_cf[i : i + 1], atol=1e-6, rtol=0)
            assert dict(alone.after.dtypes) == dict(X.dtypes)
            assert model.predict(row).tolist() == model.predict(X.iloc[[i]]).tolist()
        assert method.explain(model, X.iloc[i], "yes").after.index.tolist() == [X.index[i]]


def test_what_is_no_table_says_what_is_expected() -> None:
    model = MODELS["two-logit"]()
    X = people(model, 2)
    with pytest.raises(SchemaError, match="one row as a dict or Series, got list"):
        hf.MinCost().explain(model, [1, 2], "yes")  # pyright: ignore[reportArgumentType]
    with pytest.raises(SchemaError, match="'age' holds several values"):
        hf.MinCost().explain(model, X.to_dict("list"), "yes")
    with pytest.raises(SchemaError, match=r"lacks 1 column\(s\) of the schema: 'income'"):
        hf.MinCost().explain(model, X.iloc[0].drop("income"), "yes")
    with pytest.raises(SchemaError, match=r"expected encoded rows of shape \(n, \d+\)"):
        hf.MinCost().explain(model, torch.zeros(3), "yes")
    with pytest.raises(ModelError, match="needs a holdfast Model"):
        hf.MinCost().explain(X, model, "yes")  # pyright: ignore[reportArgumentType]
    for wrong, words in (
        ({"seed": 1.5}, "seed must be an integer"),
        ({"seed": 1 << 70}, "seed must fit into 64 bits"),
        ({"batch_size": 0}, "batch_size must be at least 1"),
        ({"time_budget": -1.0}, "time_budget must be positive"),
    ):
        settings: dict[str, Any] = wrong
        with pytest.raises(SettingError, match=words):
            hf.MinCost().explain(model, X, "yes", **settings)


# ---- columns that the schema does not know


@pytest.mark.parametrize(
    ("method", "model"), sorted({method: (method, model) for method, model in CASES}.values())
)
def test_unknown_columns_change_no_answer_and_are_carried_through(method: str, model: str) -> None:
    m = MODELS[model]()
    X = people(m, 4)
    e = fitted(EXPLAINERS[method](), m)
    more = X.assign(zip_code=[f"{i:05d}" for i in range(4)])
    more.insert(3, "id", pd.array([2**60, 2**60 + 1, 5, 6], "uint64"))
    more.insert(0, "since", pd.to_datetime(["2020-01-01", None, "2021-05-05", "1999-12-31"]))
    plain = e.explain(m, X, "yes")
    cfs = e.explain(m, more, "yes")
    assert torch.equal(cfs.x_cf, plain.x_cf)
    assert (cfs.status_codes == plain.status_codes).all()
    unknown = ["since", "id", "zip_code"]
    expected = more.iloc[cfs.source]
    pd.testing.assert_frame_equal(cfs.before, expected)
    pd.testing.assert_frame_equal(cfs.after[unknown], expected[unknown])
    pd.testing.assert_frame_equal(cfs.after.drop(columns=unknown), plain.after)
    assert list(cfs.after.columns) == list(more.columns)
    assert cfs.changes().equals(plain.changes())
    assert cfs.cost().equals(plain.cost())


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(tables(), st.randoms(use_true_random=False))
def test_unknown_columns_of_any_dtype(frame: pd.DataFrame, shuffle: Any) -> None:
    model = hf.Model.of(
        lambda X: (X["a"] > 0).to_numpy().astype(float), hf.Schema.box(["a", "b"], -3, 3)
    )
    X = frame.assign(a=np.linspace(-1, 1, len(frame)), b=0.5)
    columns = list(X.columns)
    shuffle.shuffle(columns)
    X = X[columns]
    cfs = hf.TreeSearch().explain(model, X, 1)
    pd.testing.assert_frame_equal(cfs.before, X)
    pd.testing.assert_frame_equal(cfs.after.drop(columns=["a", "b"]), X.drop(columns=["a", "b"]))
    assert list(cfs.after.columns) == columns
    assert (model.predict(cfs.after) == 1).all()


def test_a_model_never_sees_what_the_schema_does_not_know() -> None:
    seen: list[list[str]] = []

    def score(X: pd.DataFrame) -> np.ndarray:
        seen.append(list(X.columns))
        return (X["a"] > 0).to_numpy().astype(float)

    model = hf.Model.of(score, hf.Schema.box(["a", "b"], -3, 3))
    X = pd.DataFrame({"id": ["x", "y"], "b": [0.0, 1.0], "a": [-1.0, -2.0], "y": [0, 1]})
    assert hf.GrowingSpheres().explain(model, X, 1).found.all()
    assert model.predict(X).tolist() == [0, 0]
    assert all(columns == ["a", "b"] for columns in seen)


# ---- dates


ANY_MODEL = (hf.GrowingSpheres, hf.NearestNeighbor, hf.TreeSearch)


@pytest.mark.parametrize(
    ("model", "method"),
    [(network, hf.MinCost), *((model, e) for model in (pipeline, network) for e in ANY_MODEL)],
)
def test_dates_stay_as_they_are(model: Any, method: type[hf.Explainer]) -> None:
    m = model()
    refused = PEOPLE[(m.predict(PEOPLE) == "no").to_numpy()]
    cfs = method().fit(m, PEOPLE).explain(m, refused, "yes")
    assert cfs.found.mean() > 0.5
    pd.testing.assert_series_equal(cfs.after["since"], refused["since"])
    assert refused["since"].isna().any()
    assert (m.predict(cfs.after[cfs.found]) == "yes").all()
    assert (
        violations(WITH_DATE, WITH_DATE.read(cfs.before), WITH_DATE.read(cfs.after)) == ""
    ).all()
    assert "since" not in cfs.changes()["feature"].tolist()


@pytest.mark.parametrize("center", [2000, 1e5])
@pytest.mark.parametrize("dtype", ["float64", "float32", "Float32", "int32"])
def test_no_answer_is_lost_to_the_digits_of_its_table(dtype: str, center: float) -> None:
    """Years, or large amounts that differ little: a float32 has few digits left for the
    differences."""
    rng = np.random.default_rng(0)
    whole = rng.normal(center, 3, (150, 2)).round(0 if dtype == "int32" else 9)
    X = pd.DataFrame(whole, columns=["a", "b"]).astype(dtype).assign(c=rng.random(150))
    y = (whole.sum(1) - 2 * center) / 3 + X["c"] + rng.normal(0, 0.5, 150) > 0.5
    schema = hf.Schema.infer(X)
    plain = X.astype("float64")  # scikit-learn knows no nullable columns
    line = make_pipeline(
        FunctionTransformer(lambda X: X.astype("float64")), StandardScaler(), LogisticRegression()
    )
    network = hf.train_network(X, y, schema, hidden=(6,), epochs=20)
    for model, methods in (
        (
            hf.Model.of(RandomForestClassifier(5, random_state=0).fit(plain, y), schema),
            [hf.TreeSearch(norm=1)],
        ),
        (hf.Model.of(line.fit(X, y), schema), [hf.GrowingSpheres(samples=50)]),
        (network, [hf.MinCost(), hf.MinCost(norm=2)]),
    ):
        decided = model.predict(X).to_numpy()
        for method in methods:
            for wanted in model.classes:
                cfs = method.explain(model, X[decided != wanted], wanted)
                assert cfs.found.all(), (method, wanted)
                assert (model.predict(cfs.after) == wanted).all()
                assert dict(cfs.after.dtypes) == dict(X.dtypes)
