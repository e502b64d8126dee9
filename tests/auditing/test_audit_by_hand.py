"""An audit is a count by hand: every kind of model, asked by its own `predict_proba` and
`predict`."""

import copy
import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import lightgbm
import numpy as np
import pandas as pd
import pytest
import torch
import xgboost
from sklearn.base import clone
from sklearn.ensemble import (
    GradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.model_selection import FixedThresholdClassifier, TunedThresholdClassifierCV
from sklearn.svm import SVC, LinearSVC
from sklearn.tree import DecisionTreeClassifier

import holdfast as hf
from holdfast.auditing.audit import Rule
from holdfast.errors import SettingError, TargetError
from holdfast.retraining.bank import ModelBank
from holdfast.retraining.model_group import ModelGroup
from holdfast.retraining.recipe import Recipe
from support.law_table import MODELS, OUTCOME, SCHEMA, TABLE, people

AGAIN = 2  # further models of each kind
ByHand = tuple[np.ndarray, np.ndarray]  # (n, k) probabilities, (n,) predicted classes, as numbers


def bank_of(models: list[hf.Model], family: str = "again") -> ModelBank:
    first = models[0]
    return ModelBank(
        (ModelGroup(family, estimators=tuple(models)),), first.schema, first.classes, Recipe(), 0
    )


def drawn(seed: int, n: int = len(TABLE)) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, n, n)


# ---- every kind of model again


def noisy(model: Any, seed: int) -> hf.Model:
    """A network with slightly other weights."""
    module = copy.deepcopy(model.module)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for p in (*module.parameters(), *module.buffers()):
            if p.is_floating_point():
                p.add_(
                    0.3 * torch.randn(p.shape, generator=generator, dtype=p.dtype) * p.abs().mean()
                )
    return replace(model, module=module)


def again(model: Any, seed: int) -> hf.Model:
    """Another model of the same kind, as a retraining could have made it."""
    if not hasattr(model, "wrapped"):
        return noisy(model, seed)
    made = model.wrapped
    rows = drawn(seed)
    if hasattr(made, "pipeline"):  # the user's own class around a pipeline
        made = copy.deepcopy(made)
        table = TABLE.astype({"job": object, "school": object, "sex": object, "visits": "int64"})
        made.pipeline = clone(made.pipeline).fit(table.iloc[rows], OUTCOME[rows])
        return hf.Model.of(made, SCHEMA)
    if not hasattr(made, "fit"):
        return hf.Model.of(
            lambda frame: shifted(made(frame), seed), SCHEMA, classes=list(model.classes)
        )
    y = OUTCOME[rows] if "yes" in made.classes_ else (OUTCOME[rows] == "yes").astype(int)
    return hf.Model.of(
        clone(made).fit(TABLE.iloc[rows], y), SCHEMA, classes=list(model.classes), convert=seed == 0
    )


def shifted(p: np.ndarray, seed: int) -> np.ndarray:
    return 1 / (1 + (1 - p) / p * np.exp(0.6 * seed - 0.8))


def by_hand(model: Any, frame: pd.DataFrame) -> ByHand:
    """What the model says without the library: only its schema is used, by networks."""
    if not hasattr(model, "wrapped"):
        with torch.no_grad():
            raw = model.module.eval()(SCHEMA.encode(frame, model.dtype)).double()
        raw = torch.cat([torch.zeros(len(raw), 1), raw], 1) if raw.shape[1] == 1 else raw
        return torch.softmax(raw, 1).numpy(), raw.argmax(1).numpy()
    made = model.wrapped
    if not hasattr(made, "predict_proba"):
        p = made(frame)
        return np.stack([1 - p, p], 1), (p > 0.5).astype(int)
    p = np.asarray(made.predict_proba(frame), dtype=np.float64)
    predicted = made.predict(frame) if hasattr(made, "predict") else made.classes_[p.argmax(1)]
    return p, np.searchsorted(made.classes_, predicted)


def count_by_hand(
    models: list[hf.Model], frame: pd.DataFrame, rule: Rule, probability: float
) -> np.ndarray:
    """(M, n) which models give 'yes', with the probability if it is asked for; from one half on
    predicted too."""
    out = list[np.ndarray]()
    for model in models:
        p, predicted = by_hand(model, frame)
        yes = model.classes.index("yes")
        # no ties, they have a test of their own
        assert np.abs(p[:, yes] - probability).min() > 1e-6
        likely = p[:, yes] > probability
        is_yes = predicted == yes
        out.append(is_yes if rule == "class" else likely & is_yes if probability >= 0.5 else likely)
    return np.stack(out)


@pytest.mark.parametrize("kind", MODELS)
def test_every_kind_of_model_is_counted_as_by_hand(kind: str) -> None:
    model = MODELS[kind]()
    models = [model, *(again(model, seed) for seed in range(AGAIN))]
    X = people(model, 40)
    bank = bank_of(models)
    method = hf.NearestNeighbor().fit(model, TABLE)
    differ = 0
    for probability in (0.8234, 0.3071):
        cfs = method.explain(model, X, hf.Target("yes", probability=probability))
        held = {rule: hf.audit(cfs, bank, rule=rule).held for rule in ("target", "class")}
        for rule, verdicts in held.items():
            assert np.array_equal(verdicts, count_by_hand(models, cfs.after, rule, probability)), (
                rule,
                probability,
            )
        assert held["target"][0][cfs.found].all()  # the model itself takes back nothing
        differ += int((held["target"] != held["class"]).sum())
    assert differ > 0
    # Of a plain class the two rules say the same.
    plain = replace(cfs, goal=hf.Target("yes").bind(model, cfs.scores))
    assert np.array_equal(hf.audit(plain, bank).held, held["class"])


def test_networks_in_a_stack_are_counted_as_by_hand() -> None:
    data = hf.datasets.overlapping(n=300)
    recipe = Recipe(hidden=(6,), epochs=15, lr=0.05)
    model = recipe.fit(data.X, data.y, data.schema)
    bank = ModelBank.retrain(
        recipe, data.X, data.y, data.schema, families={"seed": 3, "bootstrap": 3}
    )
    X = data.X[(model.predict(data.X) == "no").to_numpy()].head(40)
    cfs = hf.MinCost().explain(model, X, hf.Target("yes", probability=0.7))
    p = torch.softmax(bank.scores(cfs.after).double(), 2)[..., 1].numpy()
    alone = np.stack(
        [torch.softmax(bank.model(i).score_frame(cfs.after), 1)[:, 1].detach() for i in range(6)]
    )
    assert np.allclose(p, alone, atol=1e-6)
    assert np.abs(alone - 0.7).min() > 1e-6
    assert np.array_equal(hf.audit(cfs, bank).held, alone > 0.7)
    assert np.array_equal(hf.audit(cfs, bank, rule="class").held, alone > 0.5)
    assert (alone > 0.7).mean() < (alone > 0.5).mean()
    margin = hf.MinCost().explain(model, X, hf.Target("yes", margin=1.0))
    lead = np.stack(
        [np.diff(bank.model(i).score_frame(margin.after).detach())[:, 0] for i in range(6)]
    )
    assert np.array_equal(hf.audit(margin, bank).held, lead > 1.0)


# ---- models that predict in their own way


NUMBERS = pd.DataFrame(np.random.default_rng(5).normal(size=(240, 3)), columns=["a", "b", "c"])
YES = (
    NUMBERS["a"] + 0.7 * NUMBERS["b"] + np.random.default_rng(6).normal(size=240) > 0.4
).to_numpy()
Y = np.where(YES, "yes", "no")
BOX = hf.Schema.infer(NUMBERS)


def refit(estimator: Any, seed: int) -> hf.Model:
    rows = drawn(seed, 240)
    return hf.Model.of(clone(estimator).fit(NUMBERS.iloc[rows], Y[rows]), BOX)


OWN_RULES: dict[str, Callable[[], Any]] = {
    "a fixed threshold": lambda: FixedThresholdClassifier(LogisticRegression(), threshold=0.23),
    "a tuned threshold": lambda: TunedThresholdClassifierCV(
        LogisticRegression(), cv=3, random_state=0
    ),
    "votes that contradict its probabilities": lambda: SVC(probability=True, random_state=0),
    "a threshold over trees": lambda: FixedThresholdClassifier(
        lightgbm.LGBMClassifier(n_estimators=5, verbose=-1, n_jobs=1), threshold=0.61
    ),
}


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore:X does not have valid feature names")
@pytest.mark.parametrize("kind", OWN_RULES)
def test_each_model_judges_by_its_own_predict(kind: str) -> None:
    """Tuned thresholds differ from model to model, and some models contradict themselves only on
    some data."""
    models = [refit(OWN_RULES[kind](), seed) for seed in range(3)]
    plain = hf.Model.of(LogisticRegression().fit(NUMBERS, Y), BOX)
    # The answers may come from a model without a threshold, too.
    for base, probability in itertools.product((models[0], plain), (0.5417, 0.7123, 0.2971)):
        target = hf.Target("yes", probability=probability)
        X = NUMBERS[(base.predict(NUMBERS) == "no").to_numpy()].head(80)
        cfs = hf.NearestNeighbor().fit(base, NUMBERS).explain(base, X, target)
        found = hf.audit(cfs, bank_of(models))
        by_class = hf.audit(cfs, bank_of(models), rule="class")
        for m, model in enumerate(models):
            made = model.wrapped
            likely = made.predict_proba(cfs.after)[:, 1] > probability
            is_yes = made.predict(cfs.after) == "yes"
            assert np.array_equal(by_class.held[m], is_yes)
            assert np.array_equal(found.held[m], likely & is_yes if probability >= 0.5 else likely)


def test_ties_are_no_more_than_what_was_asked() -> None:
    """A forest of ten pure trees gives tenths. Some of their logarithms are rounded up: 0.6 is
    never more than 0.6."""
    forest = RandomForestClassifier(10, random_state=0).fit(NUMBERS, Y)
    models = [hf.Model.of(forest, BOX), refit(RandomForestClassifier(10, random_state=1), 1)]
    X = NUMBERS[forest.predict(NUMBERS) == "no"].head(60)
    for tenths in range(1, 10):
        asked = tenths / 10
        cfs = (
            hf.NearestNeighbor()
            .fit(models[0], NUMBERS)
            .explain(models[0], X, hf.Target("yes", probability=asked))
        )
        # All rows are looked at as if they were answers: more of them are ties.
        cfs = replace(cfs, after=cfs.before, x_cf=cfs.x)
        held = hf.audit(cfs, bank_of(models)).held
        for m, model in enumerate(models):
            p = model.wrapped.predict_proba(cfs.after)[:, 1]
            is_yes = model.wrapped.predict(cfs.after) == "yes"
            assert np.array_equal(held[m], (p > asked) & (is_yes | (asked < 0.5)))
    assert (np.isclose(p * 10, np.round(p * 10))).all()


def test_models_without_scores_are_asked_for_the_class_alone() -> None:
    model = hf.Model.of(LogisticRegression().fit(NUMBERS, Y), BOX)

    class Only:
        classes_ = np.array(["no", "yes"])

        def predict(self, frame: pd.DataFrame) -> np.ndarray:
            return np.where(frame["a"] > 0.5, "yes", "no")

    bank = bank_of([hf.Model.of(Only(), BOX, classes=["no", "yes"])])
    X = NUMBERS[(model.predict(NUMBERS) == "no").to_numpy()].head(10)
    cfs = hf.MinCost().explain(model, X, hf.Target("yes", probability=0.8))
    with pytest.raises(TargetError, match=r"gives no scores.*rule='class'"):
        hf.audit(cfs, bank)
    assert np.array_equal(
        hf.audit(cfs, bank, rule="class").held[0], (cfs.after["a"] > 0.5).to_numpy()
    )
    # Of a model that has scores and no probabilities, a margin can be asked.
    svm = hf.Model.of(LinearSVC().fit(NUMBERS, Y), BOX)
    margin = hf.MinCost().explain(model, X, hf.Target("yes", margin=0.5))
    lead = svm.wrapped.decision_function(margin.after)
    assert np.array_equal(hf.audit(margin, bank_of([svm])).held[0], lead > 0.5)


# ---- regression


REGRESSORS: dict[str, Callable[[], Any]] = {
    "linear": LinearRegression,
    "forest": lambda: RandomForestRegressor(10, random_state=0),
    "boosted": lambda: GradientBoostingRegressor(n_estimators=15, random_state=0),
    "xgboost": lambda: xgboost.XGBRegressor(n_estimators=8, max_depth=3, n_jobs=1),
    "lightgbm": lambda: lightgbm.LGBMRegressor(n_estimators=8, verbose=-1, n_jobs=1),
}


@pytest.mark.parametrize("kind", REGRESSORS)
def test_ranges_are_counted_as_by_hand(kind: str) -> None:
    value = 1e5 * (NUMBERS["a"] - NUMBERS["b"] + np.random.default_rng(7).normal(size=240))

    def fitted(seed: int) -> hf.Model:
        rows = drawn(seed, 240)
        return hf.Model.of(REGRESSORS[kind]().fit(NUMBERS.iloc[rows], value.iloc[rows]), BOX)

    model = fitted(0)
    models = [fitted(seed) for seed in range(1, 9)]
    low = 1e4
    high = 1.5e5
    X = NUMBERS[model.predict(NUMBERS) < low].head(30)
    cfs = hf.TreeSearch(beam=2, depth=2, thresholds=6).explain(
        model, X, hf.Target.between(low, high)
    )
    assert cfs.found.mean() > 0.5
    found = hf.audit(cfs, bank_of(models))
    estimates = np.stack([m.wrapped.predict(cfs.after) for m in models])
    assert np.array_equal(found.held, (estimates >= low) & (estimates <= high))
    assert found.survival()[cfs.found].tolist() == found.held.mean(0)[cfs.found].tolist()
    assert found.certified(hold=0.5, confidence=0.9).tolist() == (found.held.sum(0) >= 7).tolist()
    assert found.interval()["low"][cfs.found].notna().all()
    assert "between 10,000 and 150,000 (rule: target)" in repr(found)
    with pytest.raises(SettingError, match="a regression model has none; without rule="):
        hf.audit(cfs, bank_of(models), rule="class")
    classifier = hf.Model.of(DecisionTreeClassifier().fit(NUMBERS, Y), BOX)
    with pytest.raises(
        hf.HoldfastError,
        match="the bank holds classifiers, and regression models need a bank of their own",
    ):
        hf.audit(cfs, bank_of([classifier]))
