"""How models are made again: what is settled, what is trained, and what is kept."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression

import holdfast as hf
from holdfast.errors import SettingError

RNG = np.random.default_rng(0)
X = pd.DataFrame({"a": RNG.normal(size=80), "b": RNG.normal(size=80)})
Y = pd.Series(np.where(X["a"] + X["b"] + RNG.normal(0, 0.3, 80) > 0, "yes", "no"))
MODEL = hf.Model.of(LogisticRegression().fit(X, Y), hf.Schema.infer(X))
SIZES = {"guide": 4, "calibration": 14, "audit": 16}
LEVEL: dict[str, Any] = {"hold": 0.8}


def test_training_gives_three_parts_and_what_is_known_of_them() -> None:
    banks = hf.Banks(models=SIZES, workers=1)
    trained = banks.train(MODEL, X, Y, **LEVEL)
    assert [len(part) for part in trained.split] == [4, 14, 16]
    assert trained.counts == SIZES
    assert trained.kind == banks.kind(MODEL) == "stretch"
    assert trained.split.audit.families == {"stretch": 16}
    known = banks.spread(MODEL, "stretch", 0.8, 0.95, trained.from_rows)
    assert trained.spread == known
    assert trained.likeness is not None
    assert trained.likeness.alike
    assert trained.notes[-1].startswith("retrained 34 models in ")
    again = banks.train(MODEL, X, Y, **LEVEL)
    prints = [part.fingerprint() for part in trained.split]
    assert [part.fingerprint() for part in again.split] == prints


def test_what_was_trained_serves_another_recourse_as_it_is() -> None:
    trained = hf.Banks(family="retrain", models=SIZES, workers=1).train(MODEL, X, Y, **LEVEL)
    banks = hf.Banks(ready=trained, models=SIZES)
    recourse = hf.Recourse(MODEL, banks=banks, **LEVEL)
    assert recourse.is_trained
    assert recourse.trained is trained
    assert recourse.train().trained is trained


def test_ready_made_models_are_compared_where_there_are_rows() -> None:
    split = hf.Banks(family="retrain", models=SIZES, workers=1).train(MODEL, X, Y, **LEVEL).split
    banks = hf.Banks(ready=split, models=SIZES)
    compared = banks.train(MODEL, X, **LEVEL)
    assert compared.likeness is not None
    assert not compared.likeness.made_again
    assert compared.warnings == ()
    unseen = banks.train(MODEL, **LEVEL)
    assert unseen.likeness is None
    assert "Nobody has compared" in unseen.warnings[0]


def test_settings_that_cannot_be_are_refused_at_once() -> None:
    with pytest.raises(SettingError, match="family must be one of auto, stretch, fresh, retrain"):
        hf.Banks(family="guess")  # pyright: ignore[reportArgumentType]
    with pytest.raises(SettingError, match="or recipe=, not both"):
        hf.Banks(fit=lambda: None, recipe=hf.Recipe(hidden=()))
    with pytest.raises(SettingError, match="needs X and y"):
        hf.Banks(models=SIZES).train(MODEL, **LEVEL)
    with pytest.raises(SettingError, match="at least 59 that choose"):
        hf.Banks(models=SIZES).train(MODEL, X, Y)


def test_its_words_are_short() -> None:
    assert repr(hf.Banks()) == "Banks()"
    assert repr(hf.Banks(groups="person", cache="kept", sample_weight=np.ones(9))) == (
        "Banks(sample_weight=..., groups='person', cache='kept')"
    )
