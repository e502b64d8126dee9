"""Missing numbers: encoded without a NaN, kept or filled in, exact in copies of models, and said in
words."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import lightgbm
import numpy as np
import pandas as pd
import pytest
import torch
import xgboost
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.compose import make_column_transformer
from sklearn.ensemble import (
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
)
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import holdfast as hf
from holdfast.errors import ModelError, SchemaError
from holdfast.methods._candidate_projection import CandidateProjection
from holdfast.models.black_box import BlackBox
from holdfast.nn.architecture import mlp
from holdfast.schema.columns import differ
from holdfast.schema.feature import Feature
from holdfast.schema.user_units import settle
from holdfast.schema.verify import blocked, violations
from holdfast.target import Status
from support.tables import seeded

torch.set_num_threads(1)


def gappy(rows: int, seed: int = 0) -> pd.DataFrame:
    """Numbers of several dtypes with gaps, a column without, and a category."""
    rng = np.random.default_rng(seed)
    income = rng.normal(3000, 900, rows).round(2).clip(200)
    return pd.DataFrame(
        {
            "income": np.where(rng.random(rows) < 0.3, np.nan, income),
            "age": rng.integers(18, 70, rows).astype("int8"),
            "visits": pd.array(rng.integers(0, 9, rows), dtype="Int64"),
            "ratio": np.where(rng.random(rows) < 0.2, np.nan, rng.random(rows)).astype("float32"),
            "tenure": np.where(rng.random(rows) < 0.3, np.nan, rng.integers(0, 30, rows)),
            "job": rng.choice(["a", "b", "c"], rows),
        },
        index=[f"p{i}" for i in range(rows)],
    ).assign(visits=lambda t: t["visits"].mask(rng.random(rows) < 0.25))


TABLE = gappy(400)
SCHEMA = hf.Schema.infer(
    TABLE,
    fixed=["tenure"],
    up=["visits"],
    bounds={"income": (0, 8000), "ratio": (0, 1)},
    integers=["tenure"],
)
GAPS = ["income", "visits", "ratio", "tenure"]
SCORE = (
    TABLE["income"].fillna(1500) / 900
    + TABLE["visits"].astype(float).fillna(1) / 4
    + TABLE["ratio"].fillna(0.9)
    - TABLE["age"] / 40
)
OUTCOME = np.where(SCORE.gt(SCORE.median()), "yes", "no")


# ---- rows and numbers


def test_infer_says_which_numbers_may_be_missing() -> None:
    assert [f.name for f in SCHEMA.features if f.missing] == GAPS
    assert [f.name for f in SCHEMA.features if f.has_gaps] == GAPS
    assert SCHEMA["visits"].kind == SCHEMA["tenure"].kind == "integer"
    assert SCHEMA.columns[:5] == ["income", "income=(missing)", "age", "visits", "visits=(missing)"]
    assert SCHEMA.width == 4 * 2 + 1 + 3
    assert SCHEMA["income"].center == pytest.approx(TABLE["income"].mean())
    assert hf.Schema.from_dict(SCHEMA.to_dict()) == SCHEMA
    with pytest.raises(SchemaError, match="'a' has no values at all"):
        hf.Schema.infer(pd.DataFrame({"a": [np.nan, np.nan]}))
    with pytest.raises(SchemaError, match="cannot hold missing values; use 'category'"):
        Feature("a", "boolean", missing=True)


def test_what_stands_for_a_missing_number_is_an_answer_itself() -> None:
    assert Feature("a", center=3.3, missing=True).stand_in == 3.3
    assert Feature("a", center=3.3, bounds=(4, 9), missing=True).stand_in == 4
    assert Feature("a", "integer", center=3.3, missing=True).stand_in == 3
    assert Feature("a", center=3.3, step=0.5, bounds=(0, 3.2), missing=True).stand_in == 3.0
    assert Feature("a", center=0.1, dtype="float32", missing=True).stand_in == np.float32(0.1)


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(*[st.none() | st.floats(-1e6, 1e6), st.none() | st.integers(-100, 100)]),
        min_size=1,
    )
)
def test_there_and_back(rows: list[tuple[float | None, int | None]]) -> None:
    table = pd.DataFrame(
        {
            "real": np.array([np.nan if a is None else a for a, _ in rows]),
            "whole": pd.array([b for _, b in rows], dtype="Int64"),
        }
    )
    schema = hf.Schema(
        (
            Feature("real", center=2.0, scale=3.0, missing=True),
            Feature("whole", "integer", center=1.5, scale=7.0, missing=True, dtype="Int64"),
        )
    )
    x = schema.encode(table, torch.float64)
    assert x.isfinite().all()
    back = schema.decode(x)
    assert (back.isna() == table.isna()).all(axis=None)
    assert back["whole"].dtype == "Int64"
    assert (back["whole"].dropna() == table["whole"].dropna()).all()
    assert np.allclose(back["real"], table["real"], equal_nan=True)
    same = schema.decode(x, table)
    pd.testing.assert_frame_equal(same, table)
    assert torch.equal(schema.encode(same, torch.float64), x)


def test_a_missing_number_where_none_may_be_is_an_error() -> None:
    schema = hf.Schema.infer(TABLE.dropna())
    with pytest.raises(
        SchemaError,
        match=r"column 'income' has \d+ missing numbers \(first at row \d+\); fill them in",
    ):
        schema.read(TABLE)


# ---- what can be reached


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_the_nearest_of_staying_and_filling_in(data: st.DataObject) -> None:
    number = st.floats(-3, 3)
    kind = data.draw(st.sampled_from(["real", "integer"]))
    change = data.draw(st.sampled_from(["free", "up", "down", "fixed"]))
    f = Feature("a", kind, change, bounds=(-2, 2), seen=(-2, 2), center=0.5, missing=True)
    schema = hf.Schema((f,))
    own = data.draw(st.none() | st.integers(-2, 2))
    frame = pd.DataFrame({"a": [np.nan if own is None else float(own)]})
    x = schema.encode(frame, torch.float64)
    z = torch.tensor([[data.draw(number), data.draw(st.floats(-1, 2))]], dtype=torch.float64)
    got = schema.project(z, x)
    values = np.arange(-2, 3.0) if kind == "integer" else np.linspace(-2, 2, 4001)
    if own is not None:
        low, high = {"free": (-2, 2), "up": (own, 2), "down": (-2, own), "fixed": (own, own)}[
            change
        ]
        values = values[(values >= low) & (values <= high)]
    open_ = np.stack([(values - f.center) / f.scale, np.zeros(len(values))], 1)
    if own is None:
        stays = x.numpy()
        open_ = stays if change == "fixed" else np.concatenate([stays, open_])
    best = np.linalg.norm(open_ - z.numpy(), axis=1).min()
    assert float((got - z).norm()) <= best + 1e-3
    assert np.linalg.norm(open_ - got.numpy(), axis=1).min() < 1e-3  # it is one of them
    space = CandidateProjection(schema.feasible(x)).project(z.T[:, :, None].clone(), slice(0, 1))
    # Of two equally near, any: and what differs by 1e-5 of a step counts as that.
    assert float((space[:, 0].T - z).norm()) == pytest.approx(float((got - z).norm()), abs=2e-5)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_rules_about_missing_numbers_count_as_kept(data: st.DataObject) -> None:
    fixed = data.draw(st.sampled_from([[], ["b"], ["a", "b"]]))
    frame = pd.DataFrame({"a": [0.0, 9.0, np.nan], "b": [0.0, 9.0, np.nan], "c": [0.0, 9.0, 5.0]})
    whole = data.draw(st.sampled_from([[], list("abc")]))
    schema = hf.Schema.infer(
        frame, scaling="none", fixed=fixed, integers=whole, rules=["a <= b", "c <= b + 4"]
    )
    number = st.none() | st.integers(0, 9)
    own = [data.draw(number), data.draw(number), data.draw(st.integers(0, 9))]
    numbers = np.array([[np.nan if v is None else float(v) for v in own]])
    if blocked(schema, numbers)[0]:
        assert not np.isnan(numbers[0, 1])  # while b is missing, no rule can be broken
        return
    x = schema.encode_numbers(numbers, torch.float64)
    z = torch.tensor(
        [[data.draw(st.floats(-2, 11)) for _ in range(schema.width)]], dtype=torch.float64
    )
    got = schema.project(z, x)
    after, _ = settle(schema, got, numbers)
    assert violations(schema, numbers, after)[0] == ""
    value, says = schema.encoding(torch.float64).gaps
    gone = got[:, says] > 0.5
    # what stays missing stays what it was
    assert torch.equal(got[:, value][gone], x[:, value][gone])


def test_promises_see_a_number_that_got_lost() -> None:
    before = SCHEMA.read(TABLE.iloc[:4])
    after = before.copy()
    after[:, 1] += 1
    assert (violations(SCHEMA, before, after) == "").all()
    after[:, 0] = np.nan
    lost = ~np.isnan(before[:, 0])
    assert (violations(SCHEMA, before, after)[lost] == "income: became missing").all()
    assert (violations(SCHEMA, before, after)[~lost] == "").all()
    assert differ(np.array([np.nan, np.nan, 1.0]), np.array([np.nan, 1.0, 1.0])).tolist() == [
        False,
        True,
        False,
    ]


# ---- models


def piped(estimator: Any, *, native: bool = True) -> Any:
    plain = [c for c in TABLE.columns if c != "job"]
    numbers: Any = (
        "passthrough"
        if native
        else make_pipeline(SimpleImputer(strategy="median"), StandardScaler())
    )
    prepare = make_column_transformer((OneHotEncoder(), ["job"]), (numbers, plain))
    coded = (OUTCOME == "yes").astype(int)
    return make_pipeline(prepare, estimator).fit(_floats(TABLE), coded)


def _floats(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.astype({"visits": "float64"})


FLOATS = hf.Schema.infer(
    _floats(TABLE),
    fixed=["tenure"],
    up=["visits"],
    bounds={"income": (0, 8000), "ratio": (0, 1)},
    integers=["tenure", "visits"],
    rules=["400 * visits <= income + 3000", "10 * ratio <= visits + 9"],
)
COPIES: dict[str, Callable[[], Any]] = {
    "hist": lambda: piped(HistGradientBoostingClassifier(max_iter=12, random_state=0)),
    "forest": lambda: piped(RandomForestClassifier(6, max_depth=5, random_state=0)),
    "deep forest": lambda: piped(RandomForestClassifier(4, random_state=0)),
    "xgboost": lambda: piped(xgboost.XGBClassifier(n_estimators=12, max_depth=3, n_jobs=1)),
    "deep xgboost": lambda: piped(
        xgboost.XGBClassifier(n_estimators=3, max_depth=8, min_child_weight=0, n_jobs=1)
    ),
    "lightgbm": lambda: piped(
        lightgbm.LGBMClassifier(n_estimators=12, num_leaves=8, verbose=-1, n_jobs=1)
    ),
    "lightgbm zero": lambda: piped(
        lightgbm.LGBMClassifier(
            n_estimators=8, num_leaves=8, zero_as_missing=True, verbose=-1, n_jobs=1
        )
    ),
    "imputed logistic": lambda: piped(LogisticRegression(), native=False),
    "imputed mlp": lambda: piped(
        MLPClassifier((6,), solver="lbfgs", max_iter=60, random_state=1), native=False
    ),
    "imputed forest": lambda: piped(
        RandomForestClassifier(6, max_depth=5, random_state=0), native=False
    ),
}
SMOOTH = ("imputed logistic", "imputed mlp")
_made: dict[str, hf.Model] = {}
pytestmark = pytest.mark.filterwarnings(
    "ignore:X does not have valid feature", "ignore::sklearn.exceptions.ConvergenceWarning"
)


def model_of(name: str) -> BlackBox:
    if name not in _made:
        _made[name] = hf.Model.of(COPIES[name](), FLOATS, classes=["no", "yes"])
    model = _made[name]
    assert isinstance(model, BlackBox)
    return model


@pytest.mark.parametrize("name", COPIES)
def test_copies_are_exact_on_rows_with_gaps(name: str) -> None:
    model = model_of(name)
    assert model.conversion, model.conversion.text
    assert not model.rejects_missing
    assert model.has_grad == (name in SMOOTH)
    rows = _floats(gappy(300, seed=5))
    rng = np.random.default_rng(1)
    rows = rows.mask(
        pd.DataFrame(rng.random(rows.shape) < 0.2, rows.index, rows.columns)
        & rows.columns.isin(GAPS)
    )
    x = FLOATS.encode(rows, torch.float64)
    with model.eval_mode():
        mine = torch.softmax(model(x), 1)
        theirs = torch.softmax(model.score_frame(rows, x), 1)
    assert torch.allclose(mine, theirs, atol=1e-6)
    filled = torch.softmax(model.score_frame(rows.fillna(dict.fromkeys(GAPS, 3.0))), 1)
    # and it does matter whether they are missing
    assert not torch.allclose(filled, theirs, atol=1e-6)


@settings(max_examples=15, deadline=None)
@given(st.data())
def test_trees_are_exact_wherever_gaps_are(data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(["hist", "xgboost", "lightgbm"]))
    seed = data.draw(st.integers(0, 1000))
    rng = np.random.default_rng(seed)
    X = pd.DataFrame(rng.normal(size=(60, 3)).round(1), columns=["a", "b", "c"])
    share = data.draw(st.sampled_from([0.0, 0.1, 0.6]))
    X = X.mask(rng.random(X.shape) < share)
    X.loc[0] = np.nan
    X.loc[1] = 0.0
    y = (X.fillna(data.draw(st.floats(-1, 1))).sum(axis=1) > 0).astype(int)
    y.iloc[:2] = [0, 1]
    made: Any = {
        "hist": HistGradientBoostingClassifier(
            max_iter=3, min_samples_leaf=2, early_stopping=False
        ),
        "xgboost": xgboost.XGBClassifier(n_estimators=3, max_depth=3, n_jobs=1),
        "lightgbm": lightgbm.LGBMClassifier(
            n_estimators=3, min_child_samples=2, verbose=-1, n_jobs=1
        ),
    }[kind]
    schema = hf.Schema.infer(X)
    model = hf.Model.of(made.fit(X, y), schema)
    assert isinstance(model, BlackBox)
    assert model.conversion, model.conversion.text
    rows = X.mask(rng.random(X.shape) < 0.3)
    x = schema.encode(rows, torch.float64)
    with model.eval_mode():
        theirs = model.score_frame(rows, x)
        assert torch.allclose(torch.softmax(model(x), 1), torch.softmax(theirs, 1), atol=1e-6)


def test_trees_that_ask_only_whether_a_number_is_missing() -> None:
    """LightGBM has a threshold of 1e300 there, and sends what is beyond it to the same side."""
    X = pd.DataFrame(
        {
            "a": np.where(np.arange(60) % 3 == 0, np.nan, np.arange(60.0) % 7),
            "b": np.arange(60.0) % 5,
        }
    )
    made = lightgbm.LGBMClassifier(n_estimators=2, min_child_samples=2, verbose=-1, n_jobs=1).fit(
        X, X["a"].isna()
    )
    model = hf.Model.of(made, hf.Schema.infer(X))
    assert isinstance(model, BlackBox)
    assert model.conversion, model.conversion.text
    asked = made.booster_.trees_to_dataframe()["threshold"].dropna().astype(float)
    assert (asked >= 1e300).any()


def test_the_estimate_of_a_regressor_with_gaps() -> None:
    X = _floats(TABLE).drop(columns="job")
    fitted = HistGradientBoostingRegressor(max_iter=10).fit(X, SCORE)
    model = hf.Model.of(fitted, hf.Schema.infer(X))
    assert np.allclose(model.predict(X), fitted.predict(X))
    cfs = hf.GrowingSpheres().explain(model, X.iloc[:7], hf.Target.between(4.0, 5.0))
    assert cfs.found.mean() > 0.5
    assert cfs.estimate[cfs.found].between(4.0, 5.0).all()


def test_models_that_take_no_missing_numbers_say_so_with_column_and_count() -> None:
    plain = [c for c in TABLE.columns if c != "job"]
    X = _floats(TABLE)[plain]
    schema = hf.Schema.infer(X)
    clean = X.dropna()
    fitted = LogisticRegression(max_iter=2000).fit(clean, np.arange(len(clean)) % 2)
    model = hf.Model.of(fitted, schema)
    assert set(model.rejects_missing) == set(GAPS)
    assert model.schema == schema
    count = int(X["income"].isna().sum())
    message = (
        rf"column 'income' has {count} missing numbers \(first at row \d+\), "
        "and the model does not take missing values there"
    )
    with pytest.raises(
        SchemaError,
        match=message + r".*LogisticRegression.*fill them in, drop those rows, or put an imp",
    ):
        hf.MinCost().explain(model, X, 1)
    assert len(hf.MinCost().explain(model, clean.iloc[:3], 1)) == 3

    def score(frame: pd.DataFrame) -> Any:
        return 1 / (1 + np.exp(-frame["income"].fillna(2000).to_numpy() / 1000 + 3))

    silent = hf.Model.of(score, schema)
    with pytest.raises(
        SchemaError, match="it is a function, and was not wrapped with missing=True"
    ):
        hf.GrowingSpheres().explain(silent, X.iloc[:20], 1)
    assert not hf.Model.of(score, schema, missing=True).rejects_missing
    with pytest.raises(
        ModelError, match="missing=True, but with missing numbers in column 'income'"
    ):
        hf.Model.of(fitted, schema, missing=True)
    half = hf.Model.of(fitted, schema, missing=False)
    assert half.rejects_missing["visits"] == "missing=False"


def _plain() -> tuple[pd.DataFrame, Any, hf.Schema]:
    """Rows of numbers without gaps, their outcomes, and a schema by which there may be some."""
    X = _floats(TABLE).drop(columns="job")
    whole = X.notna().all(axis=1)
    return X[whole], OUTCOME[whole], hf.Schema.infer(X)


def _graph(X: pd.DataFrame, y: Any) -> bytes:
    from skl2onnx import to_onnx

    options = {"zipmap": False}
    fitted = LogisticRegression(max_iter=2000).fit(X.to_numpy(), y)
    return to_onnx(fitted, X.to_numpy()[:1], options=options, target_opset=18).SerializeToString()


def _boosting(X: pd.DataFrame, y: Any) -> GradientBoostingClassifier:
    return GradientBoostingClassifier(n_estimators=5, random_state=0).fit(X, y)


# Every kind of model, fitted on rows without gaps; how it is wrapped, and whether it takes missing
# numbers.
KINDS: dict[str, tuple[Callable[[pd.DataFrame, Any], Any], dict[str, Any], bool]] = {
    "function": (
        lambda X, y: lambda frame: 1 / (1 + np.exp(3 - frame["income"].to_numpy() / 900)),
        {},
        False,
    ),
    "function of gaps": (
        lambda X, y: (
            lambda frame: 1 / (1 + np.exp(3 - frame["income"].fillna(1500).to_numpy() / 900))
        ),
        {"missing": True},
        True,
    ),
    "function of encoded rows": (
        lambda X, y: lambda x: 1 / (1 + np.exp(-x[:, 0])),
        {"inputs": "encoded"},
        True,
    ),
    "logistic": (
        lambda X, y: make_pipeline(StandardScaler(), LogisticRegression()).fit(X, y),
        {},
        False,
    ),
    "imputed": (
        lambda X, y: make_pipeline(SimpleImputer(), LogisticRegression(max_iter=2000)).fit(X, y),
        {},
        True,
    ),
    "mlp": (
        lambda X, y: make_pipeline(
            StandardScaler(), MLPClassifier((8,), max_iter=100, random_state=0)
        ).fit(X, y),
        {},
        False,
    ),
    "neighbors": (lambda X, y: KNeighborsClassifier(5).fit(X, y), {}, False),
    "boosting": (_boosting, {}, False),
    "not compiled": (_boosting, {"convert": False}, False),
    "hist": (lambda X, y: HistGradientBoostingClassifier(max_iter=5).fit(X, y), {}, True),
    "xgboost": (
        lambda X, y: xgboost.XGBClassifier(n_estimators=5, n_jobs=1).fit(X, y == "yes"),
        {},
        True,
    ),
    "lightgbm": (
        lambda X, y: lightgbm.LGBMClassifier(n_estimators=5, n_jobs=1, verbose=-1).fit(X, y),
        {},
        True,
    ),
    "module": (lambda X, y: seeded(mlp(9, (4,), 2)), {}, True),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", [*KINDS, "onnx"])
def test_a_model_has_the_schema_that_it_was_given(kind: str, tmp_path: Path) -> None:
    X, y, schema = _plain()
    if kind == "onnx":
        (path := tmp_path / "model.onnx").write_bytes(_graph(X, y))
        model = hf.Model.load(path, schema)
        takes_gaps = False
    else:
        make, how, takes_gaps = KINDS[kind]
        model = hf.Model.of(make(X, y), schema, **how)
    assert model.schema == schema
    assert model.schema.encoding_key == schema.encoding_key
    assert set(model.rejects_missing) == (set() if takes_gaps else set(GAPS))
    x = schema.encode(X, model.dtype)
    with model.eval_mode():
        assert torch.allclose(
            torch.softmax(model(x), 1), torch.softmax(model.score_frame(X), 1), atol=1e-5
        )
    cfs = hf.GrowingSpheres(samples=200).explain(model, X.head(20))
    assert cfs.found.mean() > 0.7
    assert cfs.schema == schema
    assert cfs.after.notna().all(axis=None)
    if takes_gaps:
        return
    gap = X.head(3).assign(income=np.nan)
    for ask in (
        model.predict,
        lambda rows: hf.NearestNeighbor().fit(model, rows),
        lambda rows: _explained(model, rows),
    ):
        with pytest.raises(
            SchemaError,
            match=r"column 'income' has 3 missing numbers .*does not take missing values there",
        ):
            ask(gap)
    # What marks a number as missing is not looked at: the schema makes no difference to the
    # answers.
    strict = schema.without_gaps(GAPS)
    if kind != "onnx":
        bare = hf.Model.of(model.wrapped, strict, **how)
        for method in (hf.TreeSearch(norm=1), *([hf.MinCost()] if model.has_grad else [])):
            one = _explained(model, X.head(20), method)
            two = _explained(bare, X.head(20), method)
            assert np.allclose(one.cost("l1"), two.cost("l1"), rtol=1e-6, equal_nan=True)


def _explained(
    model: hf.Model, rows: pd.DataFrame, method: hf.Explainer | None = None
) -> hf.Counterfactuals:
    return (method or hf.GrowingSpheres()).explain(model, rows)


# ---- answers

METHODS: dict[str, Callable[[], hf.Explainer]] = {
    "min-cost": lambda: hf.MinCost(steps=15, bisections=3, linearise=8, polish=8),
    "descent": lambda: hf.Descent(steps=150, restarts=3),
    "softmax": lambda: hf.Descent(steps=150, restarts=3, relax="softmax"),
    "growing-spheres": lambda: hf.GrowingSpheres(samples=60),
    "carla": lambda: hf.GrowingSpheres(samples=60, variant="carla", width=0.5),
    "nearest-neighbor": lambda: hf.NearestNeighbor(),
    "latent-search": lambda: hf.LatentSearch(
        radius=8.0, samples=64, repeats=3, hidden=(16,), latent=4, epochs=5
    ),
    "prototype": lambda: hf.Prototype(k=3, steps=20, bisections=3),
    "tree-search": lambda: hf.TreeSearch(beam=4),
    "tree-search l1": lambda: hf.TreeSearch(norm=1, beam=4, thresholds=6),
}
CASES = [(e, m) for e in METHODS for m in ("imputed logistic", "network")]
CASES += [(e, m) for e in ("growing-spheres", "nearest-neighbor") for m in ("hist", "xgboost")]
CASES += [(e, m) for e in ("tree-search", "tree-search l1") for m in COPIES if m not in SMOOTH]


def asked(name: str) -> hf.Model:
    if name != "network":
        return model_of(name)
    return hf.Model.of(seeded(mlp(FLOATS.width, (8,), 2)), FLOATS, classes=["no", "yes"])


@pytest.mark.parametrize(("method", "name"), CASES)
def test_laws(method: str, name: str) -> None:
    model = asked(name)
    e = METHODS[method]()
    e = e.fit(model, _floats(TABLE)) if e.needs_data else e
    pool = _floats(gappy(300, seed=3))
    pool = pool[
        (model.predict(pool) == "no").to_numpy()
        & pool[["income", "visits"]].isna().any(axis=1).to_numpy()
    ]
    X = pool.iloc[:7]
    cfs = e.explain(model, X, "yes", seed=3)
    assert cfs.found.mean() >= 0.4
    assert (model.predict(cfs.after)[cfs.found] == "yes").all()
    before = cfs.before[GAPS]
    after = cfs.after[GAPS]
    assert not (after.isna() & before.notna()).any(axis=None)  # no number gets lost
    kept = after["tenure"].to_numpy(), before["tenure"].to_numpy()
    assert kept[0].tobytes() == kept[1].tobytes()  # fixed: NaN stays NaN, to the bit
    assert cfs.x_cf.isfinite().all()
    assert after["income"].dropna().between(0, 8000).all()
    both = before["visits"].notna()
    assert (after["visits"][both] >= before["visits"][both]).all()
    assert (violations(FLOATS, FLOATS.read(cfs.before), FLOATS.read(cfs.after)) == "").all()
    alone = e.explain(model, X.iloc[2:3], "yes", seed=3)
    assert torch.allclose(alone.x_cf, cfs.x_cf[2:3], atol=1e-6, rtol=0)


@pytest.fixture(scope="module")
def filled() -> hf.Counterfactuals:
    """Only a known income above 2,500 will do."""
    frame = pd.DataFrame(
        {"income": [np.nan, 1000.0, np.nan, 3000.0], "age": [30.0, 40.0, 50.0, 60.0]}
    )
    schema = hf.Schema.infer(
        pd.concat([frame, pd.DataFrame({"income": [0.0, 5000.0], "age": [20.0, 70.0]})]),
        fixed=["age"],
        words={"income": {"unit": "€"}},
    )
    model = hf.Model.of(
        lambda t: (t["income"] > 2500).to_numpy() * 0.8 + 0.1,
        schema,
        missing=True,
        classes=["no", "yes"],
    )
    return hf.GrowingSpheres(samples=300).explain(model, frame, "yes")


def test_sentences_and_tables(filled: hf.Counterfactuals) -> None:
    assert filled.status_codes.tolist() == [
        Status.FOUND,
        Status.FOUND,
        Status.FOUND,
        Status.ALREADY_MET,
    ]
    texts = filled.sentences().tolist()
    for i in (0, 2):
        assert texts[i].startswith("Fill in income: €")
        assert texts[i].endswith(" (was missing).")
    assert texts[1].startswith("Raise income from €1,000 to €")
    changes = filled.changes()
    assert changes["row"].tolist() == [0, 1, 2]
    assert changes["before"].isna().tolist() == [True, False, True]
    assert (changes["after"].astype(float) > 2500).all()
    assert filled.cost("l0").tolist() == [1, 1, 1, 0]
    f = filled.schema["income"]
    v = filled.after["income"].iloc[0]
    assert filled.cost("l1").iloc[0] == pytest.approx(1 + abs(v - f.center) / f.scale)
    html = filled._repr_html_()
    assert '<span class="was">missing</span>' in html
    assert hf.evaluate(filled).table().loc["cost l0", "mean"] == 1


def test_files(filled: hf.Counterfactuals, tmp_path: Path) -> None:
    filled.save(tmp_path / "a.parquet")
    again = hf.Counterfactuals.load(tmp_path / "a.parquet")
    assert again.sentences().tolist() == filled.sentences().tolist()
    assert torch.equal(again.x, filled.x)
    assert torch.equal(again.x_cf, filled.x_cf)
    pd.testing.assert_frame_equal(again.before, filled.before)
    for name in ("people.csv", "people.json", "people.parquet"):
        hf.datasets.write_table(TABLE, tmp_path / name)
        back = hf.datasets.read_table(tmp_path / name, SCHEMA)
        # CSV has no single precision
        assert np.allclose(SCHEMA.read(back), SCHEMA.read(TABLE), equal_nan=True)
    SCHEMA.save(tmp_path / "schema.toml")
    assert hf.Schema.load(tmp_path / "schema.toml") == SCHEMA
