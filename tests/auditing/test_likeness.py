"""Are retrained models those of the model in use? Models that are not its own are told, and certify
nothing."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.linear_model import LinearRegression, LogisticRegression
from xgboost import XGBClassifier

import holdfast as hf
from holdfast.auditing.likeness import FACTOR, TOLERANCE, Likeness, likeness

torch.set_num_threads(1)
RNG = np.random.default_rng(11)
N = 400
X = pd.DataFrame({"a": RNG.normal(size=N), "b": RNG.normal(size=N), "c": RNG.normal(size=N)})
Y = pd.Series(np.where(X["a"] + X["b"] + RNG.normal(0, 0.7, N) > 0.3, "yes", "no"))
CODES = (Y == "yes").astype(int)
WEIGHT = np.where(Y == "yes", 1.0, 5.0)
SHUFFLED = RNG.permutation(Y)
SCHEMA = hf.Schema.infer(X, fixed=["c"])
TREES: dict[str, Any] = {"n_estimators": 20, "max_depth": 3, "n_jobs": 1}
FEW: dict[str, Any] = {"models": {"guide": 20, "calibration": 30, "audit": 30}, "workers": 1}
HOLD = 0.9


def boosted(**fit: Any) -> XGBClassifier:
    return XGBClassifier(**TREES).fit(X, fit.pop("codes", CODES), **fit)


def refused(recourse: hf.Recourse) -> pd.DataFrame:
    return X[(recourse.model.predict(X) == "no")].head(6)


def recourse_of(model: Any, **more: Any) -> hf.Recourse:
    hold = more.pop("hold", HOLD)
    banks = hf.Banks(**(FEW | more))
    names = ["no", "yes"]
    return hf.Recourse(model, X, CODES, classes=names, fixed=["c"], hold=hold, banks=banks)


FOREIGN: dict[str, tuple[Callable[[], Any], str]] = {
    "weights that were not passed": (
        lambda: boosted(sample_weight=WEIGHT),
        "pass sample_weight= or fit_params=",
    ),
    "shuffled outcomes": (
        lambda: boosted(codes=(SHUFFLED == "yes").astype(int)),
        "in the same order",
    ),
    "other settings": (
        lambda: hf.Model.of(
            XGBClassifier(n_estimators=400, max_depth=6, n_jobs=1).fit(X, CODES),
            SCHEMA,
            classes=["no", "yes"],
        ),
        "pass recipe= or fit=",
    ),
}


@pytest.mark.parametrize("kind", FOREIGN)
def test_a_bank_of_another_model_certifies_nothing_and_the_first_line_says_why(kind: str) -> None:
    make, advice = FOREIGN[kind]
    more: dict[str, Any] = (
        {"recipe": hf.Recipe(estimator=XGBClassifier(**TREES))} if kind == "other settings" else {}
    )
    given = make()
    recourse = (
        hf.Recourse(given, X, Y, hold=HOLD, banks=hf.Banks(**more, **FEW))
        if isinstance(given, hf.Model)
        else recourse_of(given, **more)
    )
    plans = recourse.plans(refused(recourse), "yes")
    assert not plans.certified.any()
    assert plans.likeness is not None
    assert not plans.likeness.alike
    assert plans.summary().startswith(
        "No certificates: the retrained models were not made as the model in use was"
    )
    assert advice in plans.summary()
    assert plans.to_dict()["likeness"]["cause"] == plans.likeness.cause


def test_weights_that_are_passed_make_the_bank_the_models_own_and_its_plans_hold() -> None:
    enough: dict[str, Any] = {
        "models": {"guide": 60, "calibration": 150, "audit": 150},
        "hold": 0.8,
    }
    recourse = recourse_of(boosted(sample_weight=WEIGHT), sample_weight=WEIGHT, **enough)
    plans = recourse.plans(refused(recourse), "yes")
    assert plans.likeness is not None
    assert plans.likeness.alike
    assert plans.certified.any()
    rows = plans.to_frame()[plans.certified.to_numpy()]
    # Models trained outside the library, on rows drawn again with their weights.
    accepted = list[np.ndarray[Any, Any]]()
    for seed in range(40):
        drawn = np.random.default_rng([5, seed]).integers(N, size=N)
        refit = XGBClassifier(**TREES, random_state=seed)
        refit.fit(X.iloc[drawn], CODES.iloc[drawn], sample_weight=WEIGHT[drawn])
        accepted.append(refit.predict(rows) == 1)
    assert np.mean(accepted, 0).min() >= enough["hold"]


def test_an_own_fit_is_compared_too() -> None:
    def fit(rows: pd.DataFrame, outcomes: Any, seed: int) -> Any:
        return LogisticRegression(C=0.5).fit(rows, outcomes)

    own = hf.Banks(fit=fit, **FEW)
    alike = hf.Recourse(fit(X, Y, 0), X, Y, fixed=["c"], hold=HOLD, banks=own)
    seen = alike.plans(refused(alike), "yes").likeness
    assert seen is not None
    assert seen.alike
    weak = LogisticRegression(C=1e-3).fit(X, Y)
    other = hf.Recourse(weak, X, Y, fixed=["c"], hold=HOLD, banks=own)
    assert not other.plans(X.head(4), "yes").certified.any()


def test_a_ready_made_bank_is_compared_by_the_rows_that_there_are() -> None:
    own = LogisticRegression().fit(X, Y)
    bank = hf.ModelBank.retrain(own, X, Y, SCHEMA, families={"retrain": 80})
    model = hf.Model.of(own, SCHEMA)
    given: dict[str, Any] = {"banks": hf.Banks(ready=bank, family="retrain", **FEW), "hold": HOLD}
    same = hf.Recourse(model, X, Y, **given).plans(X.head(5), "yes")
    assert same.likeness is not None
    assert same.likeness.alike
    assert not same.likeness.made_again
    stranger = hf.Model.of(LogisticRegression().fit(X, SHUFFLED), SCHEMA)
    foreign = hf.Recourse(stranger, X, Y, **given).plans(X.head(5), "yes")
    assert not foreign.certified.any()
    assert "their middle lies" in foreign.summary()
    nobody = hf.Recourse(model, **given).plans(X.head(5), "yes")
    assert nobody.likeness is None
    assert nobody.summary().endswith("pass X, the rows it was trained on.")


def test_the_distance_by_its_definition() -> None:
    """Of a regression the estimates are the numbers themselves."""
    worth = pd.Series(2 * X["a"] + RNG.normal(size=N))
    recipe = hf.Recipe(estimator=LinearRegression(), inputs="frame")
    schema = hf.Schema.infer(X)
    model = recipe.fit(X, worth + 0.5, schema)
    bank = hf.ModelBank.retrain(recipe, X, worth, schema, families={"retrain": 25})
    again = hf.ModelBank.retrain(recipe, X, worth, schema, families={"seed_and_order": 4})
    found = likeness(model, bank, again, X, worth)
    own = model.wrapped.predict(X) if hasattr(model, "wrapped") else model.predict(X)
    each = bank.scores(X)[..., 0].double().numpy()
    spread = np.sqrt(each.var(0, ddof=1).mean())
    made = again.scores(X)[..., 0].double().numpy()
    assert found.distance == pytest.approx(
        np.sqrt(((own - made.mean(0)) ** 2).mean()) / spread, rel=1e-4
    )
    assert found.among == pytest.approx(0, abs=1e-4)  # it draws no random numbers
    assert found.alike == (found.distance <= TOLERANCE + FACTOR * found.among)
    assert not found.alike
    assert np.isnan(found.agreement)


def test_agreement_and_people_who_are_accepted_as_they_are_by_hand() -> None:
    own = LogisticRegression().fit(X, Y)
    bank = hf.ModelBank.retrain(own, X, Y, SCHEMA, families={"retrain": 12})
    found = likeness(hf.Model.of(own, SCHEMA), bank, None, X, Y)
    by_bank = np.stack([bank.model(i).predict(X) for i in range(12)])
    predicted = own.predict(X)
    assert found.agreement == pytest.approx((by_bank == predicted).mean())
    pairs = [(by_bank[i] == by_bank[j]).mean() for i in range(12) for j in range(12) if i != j]
    assert found.among_bank == pytest.approx(np.mean(pairs))
    rare = predicted != pd.Series(predicted).mode()[0]
    assert found.accepted_as_they_are == pytest.approx((by_bank != predicted)[:, rare].mean())


def test_a_likeness_is_the_same_after_a_file() -> None:
    made = Likeness(1.0, 0.5, 0.9, 0.8, 0.1, "why", made_again=False)
    assert Likeness(**made.to_dict()) == made
    assert made.limit == 0.5
