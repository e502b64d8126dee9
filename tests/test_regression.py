"""Models that estimate a number: a range is wanted, and every answer's estimate lies in it."""

import math
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
    ExtraTreesRegressor,
    GradientBoostingRegressor,
    HistGradientBoostingRegressor,
    RandomForestRegressor,
)
from sklearn.linear_model import HuberRegressor, Lasso, LinearRegression, Ridge
from sklearn.neural_network import MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from torch import nn

import holdfast as hf
from holdfast.cli import main as cli
from holdfast.errors import ModelError, SettingError, TargetError
from holdfast.models.black_box import BlackBox
from holdfast.models.compiled.decision_rule import is_regressor
from holdfast.nn.architecture import mlp
from holdfast.registry import METHODS
from holdfast.target import IntervalTarget, Status
from support.law_table import EXPLAINERS
from support.tables import points, seeded

torch.set_num_threads(1)
D = 5


def linear(
    w: list[float], b: float = 0.0, dtype: torch.dtype = torch.float64, **box: float
) -> hf.Model:
    layer = nn.Linear(len(w), 1).to(dtype)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([w], dtype=dtype))
        layer.bias.fill_(b)
    return hf.Model.of(nn.Sequential(layer), hf.Schema.box(len(w), **box), outputs="value")


SUM = linear([1.0, 2.0])


def span(low: float, high: float, unit: float = 1.0, n: int = 1) -> IntervalTarget:
    return IntervalTarget(torch.zeros(n, dtype=torch.int64), 1.0, 0.0, False, 1, low, high, unit)


# ---- the target


def test_gap_by_hand() -> None:
    v = torch.tensor([[1.0], [2.0], [3.5], [4.0], [9.0]])
    goal = span(2.0, 4.0, 0.5, 5)
    assert goal.gap(v).tolist() == [-2.0, 0.0, 1.0, 0.0, -10.0]
    assert goal.met(v).tolist() == [False, True, True, True, False]  # both ends belong to it
    assert goal.met(v, 0.1).tolist() == [False, False, True, False, False]
    assert span(-math.inf, 4.0, 1.0, 5).gap(v).tolist() == [3.0, 2.0, 0.5, 0.0, -5.0]
    assert span(2.0, math.inf, 1.0, 5).met(v).tolist() == [False, True, True, True, True]
    assert goal[torch.tensor([0, 1])].low == 2.0


@settings(deadline=None)
@given(
    st.floats(-1e6, 1e6),
    st.floats(1e-3, 1e6),
    st.lists(st.floats(-1e7, 1e7), min_size=1, max_size=20),
    st.floats(1e-3, 1e3),
)
def test_the_gap_says_what_a_comparison_says(
    low: float, width: float, values: list[float], unit: float
) -> None:
    high = low + width
    v = torch.tensor(values, dtype=torch.float64)[:, None]
    goal = span(low, high, unit, len(values))
    assert goal.met(v).tolist() == [low <= value <= high for value in values]
    one = v.clone().requires_grad_()
    (slope,) = torch.autograd.grad(goal.gap(one).sum(), one)
    away = (v - (low + high) / 2).abs() > 1e-6 * width  # not at the kink
    assert torch.allclose(slope[away], goal.gap_and_slope(v)[1][away])


@settings(deadline=None)
@given(
    st.floats(allow_nan=True, allow_infinity=True), st.floats(allow_nan=True, allow_infinity=True)
)
def test_any_two_numbers_are_a_range_or_an_error(low: float, high: float) -> None:
    good = math.isfinite(low) and math.isfinite(high) and low < high
    if good:
        target = hf.Target.between(low, high)
        assert target.interval == (low, high)
        goal = target.bind(SUM, torch.zeros(3, 1))
        assert isinstance(goal, IntervalTarget)
        assert 0 < goal.unit < math.inf
        return
    with pytest.raises(TargetError, match=r"must be a number|is empty|only by luck"):
        hf.Target.between(low, high)


def test_bad_ranges() -> None:
    with pytest.raises(TargetError, match="needs an end"):
        hf.Target.between(None, None)
    with pytest.raises(TargetError, match="from 3 to 2 is empty; swap"):
        hf.Target.between(3, 2)
    for bad in (math.nan, math.inf, "3", True):
        with pytest.raises(TargetError, match="low must be a number, or None"):
            hf.Target.between(bad, 9)
    with pytest.raises(TargetError, match="only by luck; give a range"):
        hf.Target.between(3, 3)
    with pytest.raises(TargetError, match="not both"):
        hf.Target("yes", interval=(1.0, 2.0))
    assert str(hf.Target.between(200_000, 250_000.5)) == "between 200,000 and 250000.5"
    assert str(hf.Target.between(None, 3)) == "at most 3"
    assert str(hf.Target.between(3, None)) == "at least 3"


def test_a_class_of_a_regressor_and_a_range_of_a_classifier_are_errors() -> None:
    number = linear([1.0, 2.0])
    classes = hf.Model.of(seeded(mlp(2, (3,), 2)), hf.Schema.box(2), classes=["no", "yes"])
    x = points(3, 2, dtype=torch.float64)
    with pytest.raises(TargetError, match=r"regression model.*the class 'yes'.*Target\.between"):
        hf.MinCost().explain(number, x, "yes")
    with pytest.raises(TargetError, match="any other class"):
        hf.MinCost().explain(number, x)
    with pytest.raises(TargetError, match="ask for one of them, not for a range: 'no', 'yes'"):
        hf.MinCost().explain(classes, x.float(), hf.Target.between(1, 2))


# ---- closed forms


@pytest.mark.parametrize("ends", [(2.0, 3.0), (None, -4.0), (6.0, None), (1.0, 1.01)])
@pytest.mark.parametrize("norm", [1, 2])
def test_the_nearest_point_of_the_slab(norm: int, ends: tuple[float | None, float | None]) -> None:
    """{low <= w.x + b <= high}: along w, or along its largest entry, to the nearer of the two
    planes."""
    w = [1.0, -2.0, 0.5, 0.25, 1.5]
    b = 0.3
    model = linear(w, b)
    x = points(7, D, dtype=torch.float64)
    cfs = hf.MinCost(norm=norm).explain(model, x, hf.Target.between(*ends))
    low = -math.inf if ends[0] is None else ends[0]
    high = math.inf if ends[1] is None else ends[1]
    v = x.double() @ torch.tensor(w, dtype=torch.float64) + b
    miss = torch.clamp(torch.maximum(low - v, v - high), min=0)
    assert ((cfs.status_codes == Status.ALREADY_MET) == (miss == 0).numpy()).all()
    assert (cfs.status_codes != Status.NOT_FOUND).all()
    size = torch.tensor(w, dtype=torch.float64)
    expected = miss / (size.abs().max() if norm == 1 else size.norm())
    got = cfs.cost("l1" if norm == 1 else "l2").to_numpy()
    assert np.allclose(got, expected.numpy(), rtol=2e-3, atol=2e-3)
    assert cfs.estimate.between(low, high).all()


def test_scfe_aims_at_the_middle() -> None:
    """minimise (gap - 1)^2 + lam |z - x|^2 with gap = 1 - |v - c| / h: that is x + m w / (lam h^2 +
    |w|^2)."""
    w = [1.0, -2.0, 0.5, 0.0, 1.5]
    low = 20.0
    high = 24.0
    lam = 0.01
    model = linear(w)
    x = points(7, D, dtype=torch.float64)
    cfs = hf.Descent.scfe(lam=lam, steps=200).explain(model, x, hf.Target.between(low, high))
    size = torch.tensor(w, dtype=torch.float64)
    half = min(2.0, model.output_scale)
    m = 22.0 - x @ size
    if half == 2.0:
        expected = x + m[:, None] * size / (lam * half**2 + size.square().sum())
        assert torch.allclose(cfs.x_cf, expected, atol=1e-3)
    assert cfs.found.all()


def test_what_cannot_be_reached_is_said() -> None:
    model = linear([1.0, 1.0], low=0.0, high=1.0)
    x = torch.tensor([[0.2, 0.3], [0.9, 0.1]], dtype=torch.float64)
    for e in (
        hf.MinCost(steps=10, bisections=2, linearise=4, polish=4),
        hf.Descent(steps=20, restarts=2),
        hf.GrowingSpheres(samples=20, rings=5),
        hf.MinEpsilonPGD(radii=2, steps=10),
        hf.NearestNeighbor().fit(model, x),
    ):
        cfs = e.explain(model, x, hf.Target.between(5, 6))
        assert (cfs.status_codes == Status.NOT_FOUND).all()
        assert cfs.reasons[0].startswith(
            "no reachable row found; the best attempt has the estimate "
        )
        assert (cfs.x_cf <= 1).all()


# ---- kinds of models

RNG = np.random.default_rng(0)
HOUSES = pd.DataFrame(
    {
        "rooms": RNG.integers(1, 9, 300),
        "area": RNG.normal(90, 25, 300).round(1).clip(20),
        "age": RNG.integers(0, 80, 300).astype("int16"),
        "heating": RNG.choice(["gas", "oil", "pump"], 300),
    }
)
PRICE = (
    12_000.0 * HOUSES["rooms"]
    + 2_100 * HOUSES["area"]
    - 600 * HOUSES["age"]
    + 15_000 * (HOUSES["heating"] == "pump")
    + RNG.normal(0, 5_000, 300)
)
SCHEMA = hf.Schema.infer(HOUSES, fixed=["age"], bounds={"area": (20, 400)})
WISH = hf.Target.between(300_000, 320_000)


def piped(estimator: Any, scale: bool = True) -> Any:
    numbers = StandardScaler() if scale else "passthrough"
    prepare = make_column_transformer(
        (OneHotEncoder(), ["heating"]), (numbers, ["rooms", "area", "age"])
    )
    return make_pipeline(prepare, estimator).fit(HOUSES, PRICE)


COPIES: dict[str, Callable[[], Any]] = {
    "linear": lambda: piped(LinearRegression()),
    "ridge": lambda: piped(Ridge()),
    "lasso": lambda: piped(Lasso(alpha=10)),
    "huber": lambda: piped(HuberRegressor(max_iter=1000)),
    "mlp": lambda: piped(
        MLPRegressor(hidden_layer_sizes=(6,), solver="lbfgs", max_iter=60, random_state=0)
    ),
    "forest": lambda: piped(RandomForestRegressor(8, max_depth=5, random_state=0), scale=False),
    "deep forest": lambda: piped(RandomForestRegressor(5, random_state=0), scale=False),
    "extra trees": lambda: piped(ExtraTreesRegressor(5, max_depth=4, random_state=0)),
    "boosting": lambda: piped(GradientBoostingRegressor(n_estimators=20, random_state=0)),
    "hist": lambda: piped(HistGradientBoostingRegressor(max_iter=20, random_state=0)),
    "xgboost": lambda: piped(xgboost.XGBRegressor(n_estimators=20, max_depth=3, n_jobs=1)),
    "xgboost median": lambda: piped(
        xgboost.XGBRegressor(n_estimators=20, max_depth=3, n_jobs=1, objective="reg:absoluteerror")
    ),
    "lightgbm": lambda: piped(
        lightgbm.LGBMRegressor(n_estimators=20, num_leaves=8, verbose=-1, n_jobs=1)
    ),
}
SMOOTH = ("linear", "ridge", "lasso", "huber", "mlp")


@pytest.mark.filterwarnings(
    "ignore::sklearn.exceptions.ConvergenceWarning", "ignore:X does not have valid feature"
)
@pytest.mark.parametrize("name", COPIES)
def test_copies_are_exact_and_answers_found(name: str) -> None:
    fitted = COPIES[name]()
    model = hf.Model.of(fitted, SCHEMA)
    assert model.is_regression
    assert model.classes == ()
    assert np.allclose(model.predict(HOUSES), fitted.predict(HOUSES))
    assert model.conversion, model.conversion.text
    assert model.has_grad == (name in SMOOTH)
    x = SCHEMA.encode(HOUSES, torch.float64)
    with model.eval_mode():
        assert isinstance(model, BlackBox)
        far = (model(x) - BlackBox.__call__(model, x)).abs() / BlackBox.__call__(model, x).abs()
    assert float(far.max()) < 1e-6
    X = HOUSES[(PRICE < 280_000) & (PRICE > 180_000)].iloc[:7]
    method = hf.MinCost() if model.has_grad else hf.GrowingSpheres(samples=100)
    cfs = method.explain(model, X, WISH)
    assert cfs.found.mean() > 0.5
    said = fitted.predict(cfs.after)
    assert ((said >= 300_000) & (said <= 320_000))[cfs.found].all()
    assert (cfs.after["age"] == cfs.before["age"]).all()


def test_what_has_no_copy_is_a_black_box() -> None:
    numbers = HOUSES[["area", "rooms"]].astype(float)
    schema = hf.Schema.infer(numbers)
    for estimator in (
        HistGradientBoostingRegressor(loss="poisson", max_iter=5),
        xgboost.XGBRegressor(n_estimators=5, n_jobs=1, objective="count:poisson"),
        lightgbm.LGBMRegressor(n_estimators=5, objective="poisson", verbose=-1, n_jobs=1),
    ):
        model = hf.Model.of(estimator.fit(numbers, PRICE / 1e4), schema)
        assert model.is_regression
        assert isinstance(model, BlackBox)
        assert not model.conversion
        assert np.allclose(model.predict(numbers), estimator.predict(numbers))


def test_boosters() -> None:
    numbers = HOUSES[["area", "rooms"]].astype(float)
    schema = hf.Schema.infer(numbers)
    boosters = (
        xgboost.XGBRegressor(n_estimators=5, n_jobs=1).fit(numbers, PRICE).get_booster(),
        lightgbm.LGBMRegressor(n_estimators=5, verbose=-1, n_jobs=1).fit(numbers, PRICE).booster_,
    )
    for booster in boosters:
        model = hf.Model.of(booster, schema)
        assert model.is_regression
        assert isinstance(model, BlackBox)
        assert model.conversion, model.conversion.text
        assert model.predict(numbers).std() > 1000


def test_functions_and_modules_say_that_they_estimate() -> None:
    schema = hf.Schema.box(3)
    model = hf.Model.of(lambda frame: frame.to_numpy().sum(1) * 1e4, schema, outputs="value")
    cfs = hf.GrowingSpheres().explain(
        model, points(7, 3, dtype=torch.float64), hf.Target.between(50_000, 60_000)
    )
    assert cfs.found.all()
    with pytest.raises(ModelError, match="one number per row, this one gives 2"):
        hf.Model.of(lambda frame: np.zeros((len(frame), 2)), schema, outputs="value")
    with pytest.raises(ModelError, match="one number per row, this one gives 2"):
        hf.Model.of(seeded(mlp(3, (4,), 2)), schema, outputs="value")
    with pytest.raises(ModelError, match="has no classes, got"):
        hf.Model.of(seeded(mlp(3, (4,), 1)), schema, outputs="value", classes=["a", "b"])
    with pytest.raises(ModelError, match="returns a value, not logits"):
        hf.Model.of(LinearRegression().fit(np.zeros((3, 3)), np.zeros(3)), schema, outputs="logits")

    class Bare:
        def predict(self, frame: pd.DataFrame) -> Any:
            return frame["x0"].to_numpy()

    assert not is_regressor(Bare())
    assert hf.Model.of(Bare(), schema, outputs="value").is_regression
    with pytest.raises(ModelError, match="has `predict` and nothing else"):
        hf.Model.of(Bare(), schema)


def test_a_network_is_the_same_with_and_without_the_engine() -> None:
    net = seeded(mlp(D, (6,), 1)).double()
    plain = hf.Model.of(net, hf.Schema.box(D), outputs="value")
    # (n,), no engine
    slow = hf.Model.of(nn.Sequential(net, nn.Flatten(0)), hf.Schema.box(D), outputs="value")
    x = points(7, D, dtype=torch.float64)
    with plain.eval_mode(), slow.eval_mode():
        assert plain.engine is not None
        assert slow.engine is None
        a, pull_a = plain.vjp(x)
        b, pull_b = slow.vjp(x)
        assert a.shape == b.shape == (7, 1)
        assert torch.allclose(a, b)
        assert torch.allclose(pull_a(torch.ones(7, 1).double()), pull_b(torch.ones(7, 1).double()))
        assert torch.allclose(plain(x), plain.score_frame(plain.schema.decode(x)))


# ---- methods

SMALL: dict[str, Callable[[], hf.Explainer]] = {
    "descent": lambda: hf.Descent(steps=150, restarts=2),
    "wachter": lambda: hf.Descent.wachter(steps=300, restarts=3),
    "generic": lambda: hf.Descent.generic(steps=300),
    "vanilla": lambda: hf.Descent.vanilla(steps=300, lr=0.02, lam=0.01),
    "min-cost": lambda: hf.MinCost(steps=15, bisections=3, linearise=8, polish=8),
    "min-epsilon-pgd": lambda: hf.MinEpsilonPGD(radii=8, steps=40),
    "growing-spheres": lambda: hf.GrowingSpheres(samples=60),
    "growing-spheres carla": lambda: hf.GrowingSpheres(samples=60, variant="carla"),
    "nearest-neighbor": lambda: hf.NearestNeighbor(n_counterfactuals=2),
    "tree-search": lambda: hf.TreeSearch(),
    "omniscient": lambda: hf.Omniscient(draws=20),
    "latent-search": lambda: hf.LatentSearch(
        radius=8.0, samples=64, repeats=3, hidden=(16,), latent=4, epochs=5
    ),
    "cchvae": lambda: hf.CCHVAE(step=0.5, rings=25, samples=40, hidden=(16,), latent=4, epochs=20),
    "revise": lambda: hf.REVISE(steps=80, lr=0.2, lam=0.01, hidden=(16,), latent=4, epochs=20),
}

# Those without settings of their own here have those of the laws.
SMALL = {
    name: EXPLAINERS[name] for name in hf.list_methods(regression=True) if name not in SMALL
} | SMALL


@pytest.fixture(scope="module")
def houses() -> hf.Model:
    return hf.Model.of(COPIES["linear"](), SCHEMA)


@pytest.mark.parametrize("name", SMALL)
def test_methods_on_a_mixed_table(name: str, houses: hf.Model) -> None:
    e = SMALL[name]()
    e = e.fit(houses, HOUSES) if e.needs_data else e
    X = HOUSES[(PRICE < 280_000) & (PRICE > 200_000)].iloc[:7]
    cfs = e.explain(houses, X, WISH, seed=1)
    k = getattr(e, "n_counterfactuals", 1)
    assert len(cfs) == 7 * k
    inside = houses.predict(cfs.after).between(300_000, 320_000).to_numpy()
    assert (inside == (cfs.status_codes != Status.NOT_FOUND)).all()
    assert cfs.found.mean() >= 0.5
    alone = e.explain(houses, X.iloc[2:3], WISH, seed=1)
    assert torch.allclose(alone.x_cf, cfs.x_cf[2 * k : 3 * k], atol=1e-6, rtol=0)


def test_every_method_works_or_says_what_does(houses: hf.Model) -> None:
    for cls in hf.list_methods(regression=False).values():
        with pytest.raises(
            ModelError, match=rf"{cls.__name__} is about classes.*list_methods\(regression=True\)"
        ):
            cls().explain(houses, HOUSES.iloc[:2], WISH)
        if cls.needs_data:
            with pytest.raises(ModelError, match="is about classes"):
                cls().fit(houses, HOUSES)
    assert set(hf.list_methods(regression=True)) | set(hf.list_methods(regression=False)) == set(
        METHODS
    )
    with pytest.raises(SettingError, match="legacy=True is about classes"):
        hf.MinCost(legacy=True).explain(houses, HOUSES.iloc[:2], WISH)
    forest = hf.Model.of(COPIES["forest"](), SCHEMA)
    with pytest.raises(
        ModelError,
        match=r"MinCost follows gradients.*list_methods\(gradients=False, regression=True\)",
    ):
        hf.MinCost().explain(forest, HOUSES.iloc[:2], WISH)


def test_retraining_is_refused_in_words(houses: hf.Model) -> None:
    with pytest.raises(SettingError, match="networks are trained as classifiers"):
        hf.Recipe.of(linear([1.0, 2.0]))
    y = (PRICE > 250_000).astype(int)
    bank = hf.ModelBank.retrain(
        hf.Recipe(hidden=(4,), epochs=1), HOUSES, y, SCHEMA, families={"seed": 2}
    )
    cfs = hf.MinCost().explain(houses, HOUSES.iloc[:3], WISH)
    with pytest.raises(
        ModelError,
        match="the bank holds classifiers, and regression models need a bank of their own",
    ):
        hf.audit(cfs, bank)


# ---- answers


@pytest.fixture(scope="module")
def answers(houses: hf.Model) -> hf.Counterfactuals:
    X = pd.concat(
        [HOUSES[(PRICE < 280_000) & (PRICE > 200_000)].iloc[:5], HOUSES[PRICE > 350_000].iloc[:1]]
    )
    X = pd.concat([X, HOUSES[houses.predict(HOUSES).between(301_000, 319_000)].iloc[:1]])
    return hf.MinCost().explain(houses, X, WISH)


def test_sentences_name_the_estimate(answers: hf.Counterfactuals, houses: hf.Model) -> None:
    texts = answers.sentences()
    was = houses.predict(answers.before)
    for text, found, v in zip(texts, answers.found, was, strict=True):
        if found:
            way = "rises" if v < 300_000 else "falls"
            assert f": the model's estimate {way} from " in text
            low, high = (
                float(word.rstrip(".").replace(",", ""))
                for word in text.split(" from ")[-1].split(" to ")
            )
            assert abs(low - v) <= 1
            assert 300_000 <= high <= 320_000
        else:
            assert "estimate" not in text
    assert answers.status_codes[-1] == Status.ALREADY_MET


def test_tables_reports_and_files(answers: hf.Counterfactuals, tmp_path: Path) -> None:
    table = answers.table()
    assert "probability" not in table
    assert table["estimate"].between(300_000, 320_000).all()
    answers.save(tmp_path / "a.parquet")
    again = hf.Counterfactuals.load(tmp_path / "a.parquet")
    assert isinstance(again.goal, IntervalTarget)
    assert again.sentences().tolist() == answers.sentences().tolist()
    assert again.estimate.tolist() == answers.estimate.tolist()
    assert (again.goal.met(again.scores) == answers.goal.met(answers.scores)).all()
    with pytest.raises(SettingError, match="has no probabilities"):
        _ = answers.probability
    html = answers._repr_html_()
    assert "estimate</th>" in html
    assert "probability" not in html
    values = hf.evaluate(answers, HOUSES, PRICE).table()
    assert 300_000 <= values.loc["estimate", "mean"] <= 320_000
    assert "probability" not in values.index
    assert values.loc["distance to data", "mean"] > 0
    assert len(answers.changes())
    page = answers.report(tmp_path / "r.html").read_text()
    assert "Mean estimate" in page
    assert "at most 320,000" in page
    assert "between 300,000 and 320,000" in page
    assert "onfidence" not in page


def test_a_saved_network_still_estimates(tmp_path: Path) -> None:
    model = linear([1.0, 2.0], 3.0)
    model.save(tmp_path / "m.safetensors")
    again = hf.Model.load(tmp_path / "m.safetensors")
    assert again.is_regression
    assert again.output_scale == model.output_scale
    assert again.fingerprint() == model.fingerprint()
    assert isinstance(hf.Target.between(0, 1).bind(again, torch.zeros(3, 1)), IntervalTarget)


def test_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    people = tmp_path / "people.csv"
    file = tmp_path / "m.safetensors"
    out = tmp_path / "out.csv"
    linear([1.0, 2.0], 3.0).save(file)
    pd.DataFrame({"x0": [0.0, 1.0, 4.0], "x1": [0.0, 0.5, 2.0]}).to_csv(people, index=False)
    common = ["explain", str(people), "--model", str(file), "--quiet"]
    assert cli.main([*common, "--target", "10..12", "--out", str(out)]) == 0
    table = pd.read_csv(out)
    assert table["estimate"].between(10, 12).all()
    assert table["status"].tolist() == ["found", "found", "already met"]
    assert "the model's estimate rises from 3 to 10" in table["sentence"][0]
    assert cli.main([*common, "--target", "..2", "--out", str(out)]) == 0
    assert (pd.read_csv(out)["estimate"] <= 2).all()
    for words, message in {
        ("--target", "yes"): "a regression model needs a range, such as 200..250, got 'yes'",
        ("--target", ".."): "a regression model needs a range",
        (): "say which range you want",
        ("--any-other",): "--any-other is for models with classes",
        ("--target", "3..2"): "the range from 3 to 2 is empty",
        ("--target", "3..4", "--probability", "0.9"): "--probability is for models with classes",
    }.items():
        assert cli.main([*common, *words]) > 0
        assert message in capsys.readouterr().err
