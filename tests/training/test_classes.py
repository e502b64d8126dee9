"""`classes` means the same wherever a classifier is fitted to labels: the names, in the order of
the scores; a label that is not among them is an error that names it."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import holdfast as hf
from holdfast.errors import SettingError
from holdfast.images.ensemble import ImageEnsemble
from support.tables import mixed_schema, mixed_table

TABLE = mixed_table(80)
SCHEMA = mixed_schema(TABLE)
Y = np.where(TABLE["income"] > TABLE["income"].median(), "approved", "denied")
ORDER = ["denied", "approved"]  # not the sorted one
IMAGES = np.random.default_rng(0).random((80, 8, 8)).astype(np.float32)
RECIPE = hf.Recipe(hidden=(4,), epochs=1)
JOINT: dict[str, Any] = {"encoder": (4,), "predictor": (4,), "generator": (4,), "epochs": 1}
SEARCH = hf.CounterfactualSearch(hf.ECCCo(steps=2), n_counterfactuals=4)

Fit = Callable[[Any, Sequence[str] | None], Sequence[Any]]
FITS: dict[str, Fit] = {
    "train_network": lambda y, classes: (
        hf.train_network(TABLE, y, SCHEMA, hidden=(4,), epochs=1, classes=classes).classes
    ),
    "Recipe.fit": lambda y, classes: RECIPE.fit(TABLE, y, SCHEMA, classes=classes).classes,
    "ModelBank.retrain": lambda y, classes: (
        hf.ModelBank.retrain(
            RECIPE, TABLE, y, SCHEMA, families={"seed": 1}, classes=classes
        ).classes
    ),
    "ModelBank.from_tables": lambda y, classes: (
        hf.ModelBank.from_tables(RECIPE, {"all": (TABLE, y)}, SCHEMA, classes=classes).classes
    ),
    "train_ntk": lambda y, classes: hf.train_ntk(TABLE, y, SCHEMA, classes=classes).classes,
    "train_adversarial": lambda y, classes: (
        hf.train_adversarial(RECIPE, TABLE, y, SCHEMA, epsilon=[0.1], classes=classes).bank.classes
    ),
    "train_counterfactual": lambda y, classes: (
        hf.train_counterfactual(
            RECIPE, TABLE, y, SCHEMA, search=SEARCH, classes=classes
        ).model.classes
    ),
    "CounterNet.fit": lambda y, classes: (
        hf.CounterNet(**JOINT).fit(TABLE, y, SCHEMA, classes=classes).classes_.tolist()
    ),
    "RoCourseNet.fit": lambda y, classes: (
        hf.RoCourseNet(**JOINT).fit(TABLE, y, SCHEMA, classes=classes).model_.classes
    ),
    "SpectralResNet.fit": lambda y, classes: (
        hf.images.SpectralResNet(width=4, stages=1, depth=1, epochs=1)
        .fit(IMAGES, y, classes=classes)
        .model_.classes
    ),
    "images.ImageEnsemble.fit": lambda y, classes: (
        ImageEnsemble(members=2, hidden=(4,), epochs=1)
        .fit(IMAGES, y, classes=classes)
        .model_.classes
    ),
}
every_fit = pytest.mark.parametrize("fit", FITS.values(), ids=FITS)


@every_fit
def test_classes_are_names_in_the_order_of_the_scores(fit: Fit) -> None:
    assert list(fit(Y, ORDER)) == ORDER
    assert list(fit(Y, None)) == sorted(ORDER)


@every_fit
def test_a_label_that_is_not_among_the_classes_is_named(fit: Fit) -> None:
    with pytest.raises(SettingError, match="approved"):
        fit(Y, ["denied", "maybe"])


def test_the_scores_follow_the_order() -> None:
    sorted_net = hf.CounterNet(
        **{**JOINT, "epochs": 40, "lr": 0.05, "batch_size": 16, "dropout": 0.0}
    ).fit(TABLE, Y, SCHEMA)
    net = hf.CounterNet(
        **{**JOINT, "epochs": 40, "lr": 0.05, "batch_size": 16, "dropout": 0.0}
    ).fit(TABLE, Y, SCHEMA, classes=ORDER)
    assert (sorted_net.predict(TABLE) == Y).mean() > 0.7
    assert (net.predict(TABLE) == Y).mean() > 0.7
    assert net.recourse(TABLE.head(5), "approved").classes == ("denied", "approved")


def test_a_class_without_rows_is_known_all_the_same() -> None:
    net = hf.CounterNet(**JOINT).fit(TABLE, Y, SCHEMA, classes=[*ORDER, "postponed"])
    assert net.predict_proba(TABLE).shape == (len(TABLE), 3)
