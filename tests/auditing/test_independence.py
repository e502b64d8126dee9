"""Copies count once, a family of copies is an error, and different models are never taken for
one."""

import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
import xgboost
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier

import holdfast as hf
from holdfast._core.binomial import lower_bound
from holdfast.auditing.independence import originals, refuse_guides
from holdfast.errors import SettingError
from holdfast.retraining.bank import ModelBank
from holdfast.retraining.model_group import ModelGroup, sample_of
from holdfast.retraining.recipe import Recipe

X = pd.DataFrame(np.random.default_rng(0).normal(size=(120, 3)), columns=["a", "b", "c"])
Y = pd.Series((X["a"] + X["b"] + np.random.default_rng(1).normal(0, 0.5, 120) > 0).astype(int))
SCHEMA = hf.Schema.infer(X)
BASE = hf.Model.of(LogisticRegression().fit(X, Y), SCHEMA)
CFS = hf.MinCost().explain(BASE, X[(BASE.predict(X) == 0).to_numpy()].head(8), 1)


def retrained(estimator: Any, **families: Any) -> ModelBank:
    return ModelBank.retrain(Recipe(estimator=estimator), X, Y, SCHEMA, families=families)


def group_of(*estimators: Any, family: str = "seed", origins: tuple[str, ...] = ()) -> ModelBank:
    models = tuple(hf.Model.of(e, SCHEMA, convert=False) for e in estimators)
    return ModelBank(
        (ModelGroup(family, estimators=models, origins=origins),), SCHEMA, (0, 1), Recipe(), 0
    )


# ---- copies


def test_reseeded_logistic_regressions_certify_nothing() -> None:
    """100 seeds of a model that uses none: every answer was certified, on one model."""
    copies = retrained(LogisticRegression(), seed=100)
    told = (
        "family 'seed' makes copies: all of its 100 models compute the same, as LogisticRegression "
        "does not use its random_state; use 'retrain' or 'bootstrap'"
    )
    with pytest.raises(SettingError, match=told):
        hf.audit(CFS, copies)
    # Among others, too: it would make the others count for less.
    others = retrained(LogisticRegression(), bootstrap=20)
    with pytest.raises(SettingError, match="family 'seed' makes copies"):
        hf.audit(CFS, others.join(copies))
    # And without a word of where the models come from.
    stripped = replace(copies, groups=tuple(replace(group, origins=()) for group in copies.groups))
    with pytest.raises(SettingError, match="family 'seed' makes copies"):
        hf.audit(CFS, stripped)
    assert len(hf.audit(CFS, others).held) == 20


def test_boosted_trees_without_chance_are_copies() -> None:
    plain = xgboost.XGBClassifier(n_estimators=4, max_depth=2, n_jobs=1)
    with pytest.raises(SettingError, match=r"as XGBClassifier does not use its random_state"):
        hf.audit(CFS, retrained(plain, seed=5))
    assert len(hf.audit(CFS, retrained(plain, bootstrap=5)).held) == 5
    drawn = plain.set_params(subsample=0.5)
    assert len(hf.audit(CFS, retrained(drawn, seed=5)).held) == 5
    pipeline = make_pipeline(StandardScaler(), LogisticRegression())
    with pytest.raises(
        SettingError, match=r"as LogisticRegression in a Pipeline does not use its random_state"
    ):
        hf.audit(CFS, retrained(pipeline, seed=3))


def test_nearly_all_is_all() -> None:
    one = LogisticRegression().fit(X, Y)
    others = [LogisticRegression(C=c).fit(X, Y) for c in np.geomspace(0.01, 0.1, 12)]
    with pytest.raises(
        SettingError,
        match=r"family 'release' makes copies: 19 of its 20 models compute the same.*keep one",
    ):
        hf.audit(CFS, group_of(*[one] * 19, others[0], family="release"))
    with pytest.warns(UserWarning, match="7 models compute the same as others"):
        some = hf.audit(CFS, group_of(*[one] * 8, *others))
    expected = [(e.predict(CFS.after) == 1).tolist() for e in (*[one] * 8, *others)]
    assert some.held.tolist() == expected
    assert some.repeats is not None
    assert some.repeats.tolist() == [False] + [True] * 7 + [False] * 12
    # Each of the 20 may refuse; of those that are the same, one accepts.
    refused = (~some.held).sum(0)
    accepted = some.held[~some.repeats].sum(0)
    assert some.bound().tolist() == lower_bound(accepted, accepted + refused).tolist()
    # One model alone is no copy, not even of the model that was asked.
    assert hf.audit(CFS, group_of(one)).held[:, CFS.found].all()


def test_copies_in_other_families_count_once() -> None:
    bank = retrained(LogisticRegression(), bootstrap=6)
    with pytest.warns(UserWarning, match="6 models of the bank are copies"):
        twice = hf.audit(CFS, bank.join(bank.renamed("again")))
    assert twice.family.tolist() == ["bootstrap"] * 6
    with pytest.warns(UserWarning, match="1 models of the bank are copies"):
        alone = hf.audit(
            CFS,
            retrained(LogisticRegression(), bootstrap=1).join(
                retrained(LogisticRegression(), bootstrap=1)
            ),
        )
    assert len(alone.held) == 1


# ---- different models


def test_models_of_other_rows_are_draws_of_their_own_even_if_they_come_out_the_same() -> None:
    """A row that is left out seldom changes a shallow tree. Counted once, the few odd trees would
    outvote the many."""
    tree = DecisionTreeClassifier(max_depth=2, random_state=0)
    bank = retrained(tree, leave_one_out=40)
    scores = bank.scores(CFS.after)
    assert len(np.unique(scores.numpy().reshape(40, -1), axis=0)) < 10
    assert len(set(bank.samples())) == 40
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = hf.audit(CFS, bank)
    by_hand = np.stack([m.wrapped.predict(CFS.after) == 1 for m in bank.groups[0].estimators])
    assert np.array_equal(found.held, by_hand)
    # Neighbours differ only next to the row that is left out.
    near = retrained(KNeighborsClassifier(3), leave_one_out=30)
    assert len(hf.audit(CFS, near).held) == 30


def test_models_that_differ_far_from_the_answers_are_different() -> None:
    """Two models that agree on all audited rows and nine tenths of the data's range."""
    high = float(X["c"].quantile(0.97))

    def where(odd: float) -> Any:
        return lambda frame: np.where(frame["c"] > high, odd, 1 / (1 + np.exp(-frame["a"])))

    models = tuple(hf.Model.of(where(odd), SCHEMA, classes=[0, 1]) for odd in (0.2, 0.3))
    bank = ModelBank((ModelGroup("seed", estimators=models),), SCHEMA, (0, 1), Recipe(), 0)
    answers = replace(CFS, after=CFS.after.assign(c=0.0))
    scores = bank.scores(answers.after)
    assert torch.equal(scores[0], scores[1])
    assert originals(bank, scores).tolist() == [0, 1]
    assert len(hf.audit(answers, bank).held) == 2


@pytest.mark.parametrize("apart", [0.0, 1e-13, 1e-6])
def test_rounding_is_no_difference_and_little_is_one(apart: float) -> None:
    one = LogisticRegression().fit(X, Y)
    other = LogisticRegression().fit(X, Y)
    other.coef_ = other.coef_ * (1 + apart)
    bank = group_of(one, other, LogisticRegression(C=0.1).fit(X, Y))
    assert originals(bank, bank.scores(CFS.after)).tolist() == [0, 0 if apart < 1e-9 else 1, 2]


def test_no_answers_at_all_still_tell_models_apart() -> None:
    none = CFS[:0]
    assert len(hf.audit(none, retrained(LogisticRegression(), bootstrap=3)).held) == 3
    with pytest.raises(SettingError, match="makes copies"):
        hf.audit(none, retrained(LogisticRegression(), seed=3))


def test_estimates_tell_models_apart_by_their_size() -> None:
    """One number per row: there is no other class to compare it with."""
    fitted = [LinearRegression().fit(X, X["a"] * 2 + i * 1e-3 * X["b"]) for i in (0, 1, 1)]
    models = tuple(hf.Model.of(e, SCHEMA) for e in fitted)
    bank = ModelBank((ModelGroup("seed", estimators=models),), SCHEMA, (), Recipe(), 0)
    assert originals(bank, bank.scores(X.head(4))).tolist() == [0, 1, 1]
    assert bank.signatures().std(0).max() > 1e-5


# ---- guides


def test_guides_are_models_of_the_same_rows() -> None:
    """Stumps of other rows are the same stump, and no guide; that of the same rows is one, however
    it is spelt."""
    stump = DecisionTreeClassifier(max_depth=1, random_state=0)
    guide = retrained(stump, leave_one_out=6)
    bank = retrained(stump, leave_one_out=range(6, 30))
    rows = {tuple(v) for v in guide.signatures().numpy().round(6).tolist()}
    assert rows & {tuple(v) for v in bank.signatures().numpy().round(6).tolist()}
    signatures = tuple(tuple(map(float, v)) for v in guide.signatures())

    def guided(by: frozenset[str]) -> hf.Counterfactuals:
        return replace(
            CFS, run=replace(CFS.run, guided_by=tuple(sorted(by)), signatures=signatures)
        )

    refuse_guides(guided(guide.members()), bank)
    with pytest.raises(SettingError, match="6 of the bank's 6 models guided the search"):
        refuse_guides(guided(guide.members()), guide)
    spelt = retrained(
        DecisionTreeClassifier(max_depth=1, random_state=0, min_samples_leaf=2), leave_one_out=6
    )
    assert not spelt.members() & guide.members()
    with pytest.raises(SettingError, match="6 of the bank's 6 models guided the search"):
        refuse_guides(guided(guide.members()), spelt)
    # Where it is not known what a guide learnt from, equal scores decide.
    with pytest.raises(SettingError, match="guided the search"):
        refuse_guides(guided(frozenset({"0123456789abcdef"})), bank)


def test_origins_tell_rows_from_all_else() -> None:
    bank = retrained(LogisticRegression(), seed=2, bootstrap=2)
    rows = bank.samples()
    assert rows[0] == rows[1]
    assert len({*rows}) == 3
    assert len({*bank.origins()}) == 4
    assert [sample_of(o) for o in ("12ab-34cd", "12ab34cd", "")] == ["12ab", "", ""]
