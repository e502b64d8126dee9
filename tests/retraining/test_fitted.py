"""Estimators of a bank are compiled when somebody asks for one, and judge rows as their models
do."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import FixedThresholdClassifier
from sklearn.svm import SVC
from xgboost import XGBClassifier, XGBRegressor

import holdfast as hf
from holdfast.models import wrap_estimator
from holdfast.retraining.bank import ModelBank

X = pd.DataFrame(np.random.default_rng(0).normal(size=(60, 2)), columns=list("ab"))
Y = pd.Series(np.where(X.a + X.b > 0, "yes", "no"))
SCHEMA = hf.Schema.infer(X)


@pytest.mark.parametrize(
    ("estimator", "outcome", "judged_alike"),
    [
        (XGBClassifier(n_estimators=3, n_jobs=1), Y, True),
        (XGBRegressor(n_estimators=3, n_jobs=1), X.a, True),
        (FixedThresholdClassifier(LogisticRegression(), threshold=0.2, pos_label="yes"), Y, False),
        (SVC(), Y, False),
    ],
    ids=["classes", "numbers", "threshold", "black box"],
)
def test_judges_say_what_models_say(
    estimator: Any, outcome: Any, judged_alike: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = list[int]()
    compile_scorer = wrap_estimator.compile_scorer

    def counted(*args: Any, **kwargs: Any) -> Any:
        count.append(1)
        return compile_scorer(*args, **kwargs)

    bank = ModelBank.retrain(estimator, X, outcome, SCHEMA, families={"retrain": 4})
    monkeypatch.setattr(wrap_estimator, "compile_scorer", counted)
    scores = bank.scores(X)
    origins = bank.origins()
    print_ = bank[1:3].fingerprint()
    # Of every bank the first one is compiled, by which it is known what the others are; but not of
    # thresholds.
    assert len(count) == (2 if judged_alike else 4)
    goal = hf.Target.between(0.2, None) if not bank.classes else "yes"
    cfs = hf.GrowingSpheres().explain(bank.model(3), X[:4], goal)
    held = hf.audit(cfs, bank).held
    models = [bank.model(i) for i in range(4)]
    assert bank.model(2) is models[2]
    same = ModelBank.of(models)
    assert torch.equal(same.scores(X), scores)
    assert [m.fingerprint() for m in bank.groups[0].judges()] == same.origins()
    assert bank[1:3].fingerprint() == print_
    assert bank.origins() == origins
    assert (hf.audit(cfs, same.renamed("retrain")).held == held).all()
