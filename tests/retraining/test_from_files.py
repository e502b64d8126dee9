"""Boosted trees from files, made again."""

import re
from pathlib import Path

import lightgbm
import numpy as np
import pandas as pd
import pytest
import torch
import xgboost

import holdfast as hf
from holdfast.errors import SettingError
from holdfast.models.formats import lightgbm as text_format
from holdfast.retraining.from_files import booster_of, xgboost_settings

RNG = np.random.default_rng(0)
X = pd.DataFrame(RNG.normal(size=(120, 2)), columns=["a", "b"]).assign(
    job=pd.Categorical(RNG.choice(list("xyz"), 120))
)
SCORE = X["a"] + 0.5 * X["b"] ** 2 + (X["job"] == "x")
TWO = (SCORE > 0.5).astype(int)
THREE = pd.Series(np.digitize(SCORE, [0.2, 1.0]))
SCHEMA = hf.Schema.infer(X)
ALL = {"enable_categorical": True, "n_jobs": 1}


def reloaded(estimator: object, path: Path) -> object:
    """The estimator as it comes back from XGBoost's own file: without its settings."""
    estimator.save_model(path)
    out = type(estimator)(n_jobs=1)
    out.load_model(path)
    return out


def apart(bank: hf.ModelBank, model: hf.Model) -> float:
    """How far the scores of a bank's first model are from a model's, whatever is added to all of a
    row."""
    ours = bank.scores(X)[0]
    theirs = model.score_frame(X)
    if theirs.shape[1] > 1:
        ours = ours - ours.mean(1, keepdim=True)
        theirs = theirs - theirs.mean(1, keepdim=True)
    return float((ours - theirs).abs().max())


@pytest.mark.parametrize(
    ("settings", "y", "rate"),
    [
        ({"n_estimators": 9, "max_depth": 2, "learning_rate": 0.1}, TWO, 0.1),
        ({"n_estimators": 5, "max_depth": 3, "learning_rate": 0.05}, THREE, 0.05),
        # XGBoost's usual rate
        ({"n_estimators": 4, "max_depth": 6, "scale_pos_weight": 2.0}, TWO, 0.3),
        (
            {"n_estimators": 4, "max_depth": 2, "learning_rate": 0.2, "num_parallel_tree": 2},
            TWO,
            0.2,
        ),
    ],
)
def test_an_xgboost_file_is_made_again_to_the_bit(
    settings: dict[str, float], y: pd.Series, rate: float, tmp_path: Path
) -> None:
    loaded = reloaded(xgboost.XGBClassifier(**ALL, **settings).fit(X, y), tmp_path / "model.ubj")
    model = hf.Model.of(loaded, SCHEMA)
    with pytest.warns(
        UserWarning, match=rf"learning rate {rate} scores .* most alike \(apart by 0 in the mean\)"
    ):
        bank = hf.ModelBank.retrain(model, X, y, SCHEMA, families={"seed": 1})
    assert bank.recipe.estimator.learning_rate == rate
    assert bank.recipe.estimator.n_estimators == settings["n_estimators"]
    assert apart(bank, model) == 0


def test_a_regressor_and_bare_boosters(tmp_path: Path) -> None:
    settings = {
        "objective": "reg:pseudohubererror",
        "huber_slope": 0.7,
        "learning_rate": 0.2,
        "n_estimators": 6,
    }
    fitted = xgboost.XGBRegressor(**ALL, **settings, max_depth=2).fit(X, SCORE)
    for loaded in (
        reloaded(fitted, tmp_path / "m.json"),
        xgboost.Booster(model_file=tmp_path / "m.json"),
    ):
        with pytest.warns(UserWarning, match="6 rounds and depth 2 .* learning rate 0.2"):
            bank = hf.ModelBank.retrain(loaded, X, SCORE, SCHEMA, families={"seed": 1})
        assert bank.recipe.estimator.get_params()["huber_slope"] == 0.7
        assert apart(bank, hf.Model.of(fitted, SCHEMA)) == 0


def test_named_classes_and_outcomes_in_either_name(tmp_path: Path) -> None:
    fitted = xgboost.XGBClassifier(**ALL, n_estimators=3, max_depth=2, learning_rate=0.1).fit(
        X, TWO
    )
    model = hf.Model.of(reloaded(fitted, tmp_path / "m.ubj"), SCHEMA, classes=["no", "yes"])
    for y in (TWO, TWO.map({0: "no", 1: "yes"})):
        with pytest.warns(UserWarning, match="learning rate 0.1"):
            bank = hf.ModelBank.retrain(model, X, y, SCHEMA, families={"seed": 1})
        assert bank.classes == ("no", "yes")
        assert apart(bank, model) == 0


def test_what_was_fitted_here_keeps_its_settings() -> None:
    fitted = xgboost.XGBClassifier(**ALL, n_estimators=3, learning_rate=0.07, subsample=0.5).fit(
        X, TWO
    )
    assert booster_of(fitted) is None
    assert hf.Recipe.of(fitted).estimator is fitted
    assert hf.Recipe.of(hf.Model.of(fitted, SCHEMA)).estimator is fitted


def test_without_rows_the_learning_rate_cannot_be_found(tmp_path: Path) -> None:
    fitted = xgboost.XGBClassifier(**ALL, n_estimators=3).fit(X, TWO)
    loaded = reloaded(fitted, tmp_path / "m.ubj")
    with pytest.raises(
        SettingError,
        match=r"does not say how the model \(XGBClassifier\) was made; give the training",
    ):
        hf.Recipe.of(loaded)


def test_a_linear_booster_has_no_trees(tmp_path: Path) -> None:
    numbers = X[["a", "b"]]
    fitted = xgboost.XGBClassifier(booster="gblinear", n_estimators=4, n_jobs=1).fit(numbers, TWO)
    settings = xgboost_settings(reloaded(fitted, tmp_path / "m.json").get_booster())
    assert (settings["booster"], settings["n_estimators"]) == ("gblinear", 4)
    assert "max_depth" not in settings


LIGHT = {
    "n_estimators": 7,
    "num_leaves": 5,
    "learning_rate": 0.07,
    "min_child_samples": 7,
    "reg_lambda": 0.5,
}


@pytest.mark.parametrize(
    ("y", "more"), [(TWO, {"extra_trees": True}), (THREE, {"max_bin": 63, "path_smooth": 0.5})]
)
def test_a_lightgbm_file_says_all(y: pd.Series, more: dict[str, object], tmp_path: Path) -> None:
    quiet = {"n_jobs": 1, "verbose": -1, "random_state": 0}
    fitted = lightgbm.LGBMClassifier(**LIGHT, **more, **quiet).fit(X, y)
    text = fitted.booster_.model_to_string()
    ours = text_format.made(text_format.checked(text.encode(), SCHEMA))
    for booster in (fitted.booster_, ours):
        model = hf.Model.of(booster, SCHEMA)
        made = hf.Recipe.of(model).estimator
        kept = {name: made.get_params()[name] for name in (*LIGHT, *more)}
        assert kept == {**LIGHT, **{name: type(value)(value) for name, value in more.items()}}
    if "extra_trees" not in more:  # whose thresholds are drawn
        assert apart(hf.ModelBank.retrain(model, X, y, SCHEMA, families={"seed": 1}), model) < 1e-9


def test_a_lightgbm_regressor(tmp_path: Path) -> None:
    fitted = lightgbm.LGBMRegressor(
        objective="huber", alpha=0.7, n_estimators=5, n_jobs=1, verbose=-1
    ).fit(X, SCORE)
    model = hf.Model.of(fitted.booster_, SCHEMA)
    bank = hf.ModelBank.retrain(model, X, SCORE, SCHEMA, families={"seed": 1})
    assert bank.classes == ()
    assert bank.recipe.estimator.get_params()["alpha"] == 0.7
    assert torch.allclose(bank.scores(X)[0], model.score_frame(X))


def test_a_lightgbm_file_without_its_settings_needs_a_recipe() -> None:
    fitted = lightgbm.LGBMClassifier(n_estimators=2, n_jobs=1, verbose=-1).fit(X, TWO)
    text = re.sub(r"^\[.*\]\n", "", fitted.booster_.model_to_string(), flags=re.MULTILINE)
    with pytest.raises(
        SettingError, match=r"does not say with which settings it was made; pass recipe="
    ):
        hf.Recipe.of(lightgbm.Booster(model_str=text))


def test_lines_of_a_lightgbm_file_that_are_no_settings_are_left_out() -> None:
    text = (
        lightgbm.LGBMClassifier(n_estimators=2, n_jobs=1, verbose=-1)
        .fit(X, TWO)
        .booster_.model_to_string()
    )
    text = text.replace(
        "[learning_rate: 0.1]", "[learning_rate: 0.1]\n[machines: elsewhere]\n[alpha: $(sh)]"
    )
    kept = text_format.checked(text.encode(), SCHEMA).decode().partition("\nparameters:")[2]
    assert "[learning_rate: 0.1]" in kept
    assert "elsewhere" not in kept
    assert "$" not in kept


def test_recipe_files_name_boosters_too(tmp_path: Path) -> None:
    (tmp_path / "r.toml").write_text(
        'estimator = "XGBClassifier"\ninputs = "frame"\n[settings]\nmax_depth = 2\n'
    )
    recipe = hf.Recipe.load(tmp_path / "r.toml")
    assert isinstance(recipe.estimator, xgboost.XGBClassifier)
    assert recipe.estimator.max_depth == 2
    with pytest.raises(SettingError, match="callbacks"):
        hf.Recipe.from_dict({"estimator": "XGBClassifier", "settings": {"callbacks": [{"a": 1}]}})
