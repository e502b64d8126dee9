"""Boosted trees that came from a file, made again from what the file says.

The text of a LightGBM model has its settings. A file of XGBoost has its rounds, objective and
trees, but neither learning rate nor sampling. The depth is taken from the deepest tree, and the
learning rate from a short list: the one with which a model fitted to the training rows scores them
most like the model in the file.
"""

import json
import re
import warnings
from typing import Any, cast

import numpy as np
import pandas as pd

from holdfast._core.checks import untyped
from holdfast.errors import SettingError
from holdfast.models.base import Model
from holdfast.models.black_box import BlackBox
from holdfast.models.compiled.from_boosters import Boosted, BoostedNumbers, is_booster, is_xgboost
from holdfast.models.compiled.preprocessing import type_name
from holdfast.retraining.estimators import EstimatorFit
from holdfast.retraining.fitted import FittedEstimators

RATES = (0.03, 0.05, 0.1, 0.2, 0.3)
MOST_ROWS = 20_000  # used to choose a learning rate
# LightGBM's name of a setting -> its estimators' name, and the usual value, which need not be
# given.
SETTINGS: dict[str, tuple[str, Any]] = {
    "boosting": ("boosting_type", "gbdt"),
    "learning_rate": ("learning_rate", 0.1),
    "num_leaves": ("num_leaves", 31),
    "max_depth": ("max_depth", -1),
    "min_data_in_leaf": ("min_child_samples", 20),
    "min_sum_hessian_in_leaf": ("min_child_weight", 0.001),
    "bagging_fraction": ("subsample", 1.0),
    "bagging_freq": ("subsample_freq", 0),
    "feature_fraction": ("colsample_bytree", 1.0),
    "lambda_l1": ("reg_alpha", 0.0),
    "lambda_l2": ("reg_lambda", 0.0),
    "min_gain_to_split": ("min_split_gain", 0.0),
    "bin_construct_sample_cnt": ("subsample_for_bin", 200000),
    **{
        name: (name, usual)
        for name, usual in {
            "data_sample_strategy": "bagging",
            "pos_bagging_fraction": 1.0,
            "neg_bagging_fraction": 1.0,
            "feature_fraction_bynode": 1.0,
            "extra_trees": 0,
            "max_delta_step": 0.0,
            "drop_rate": 0.1,
            "max_drop": 50,
            "skip_drop": 0.5,
            "xgboost_dart_mode": 0,
            "uniform_drop": 0,
            "top_rate": 0.2,
            "other_rate": 0.1,
            "min_data_per_group": 100,
            "max_cat_threshold": 32,
            "cat_l2": 10.0,
            "cat_smooth": 10.0,
            "max_cat_to_onehot": 4,
            "path_smooth": 0.0,
            "max_bin": 255,
            "min_data_in_bin": 3,
            "is_unbalance": 0,
            "scale_pos_weight": 1.0,
            "sigmoid": 1.0,
            "boost_from_average": 1,
            "reg_sqrt": 0,
            "alpha": 0.9,
            "fair_c": 1.0,
            "poisson_max_delta_step": 0.7,
            "tweedie_variance_power": 1.5,
        }.items()
    },
}


def booster_of(model: Any) -> Any:
    """The booster of a model that has no settings but the booster's: a bare one, or XGBoost's own
    estimator read from a file; None for anything else."""
    inner = model.wrapped if isinstance(model, BlackBox) else model
    if isinstance(inner, Boosted | BoostedNumbers):
        return inner.booster
    if is_booster(inner):
        return inner
    if type_name(inner) in ("xgboost.XGBClassifier", "xgboost.XGBRegressor") and hasattr(
        inner, "_Booster"
    ):
        booster: Any = inner.get_booster()
        # A model fitted here has a metric, at least the usual one, and its settings; a loaded one
        # has neither.
        return None if _config(booster)["metrics"] else booster
    return None


def lightgbm_estimator(booster: Any) -> Any:
    """LightGBM's classifier or regressor with a booster's settings, as given in its text."""
    text: str = booster.model_to_string(num_iteration=1)
    given = dict(
        re.findall(r"^\[(\w+): (\S+)\]$", text.partition("\nparameters:")[2], re.MULTILINE)
    )
    if "learning_rate" not in given:
        raise SettingError(
            "this LightGBM model does not say with which settings it was made; pass recipe= "
            "(--recipe FILE)"
        )
    settings: dict[str, Any] = {"n_estimators": booster.current_iteration()}
    for name, (ours, usual) in SETTINGS.items():
        value = given.get(name, usual)
        value = value if isinstance(usual, str) else type(usual)(float(value))
        if value != usual:
            settings[ours] = value
    objective = text.partition("\nobjective=")[2].split()[0]
    kind = (
        "LGBMClassifier" if objective.startswith(("binary", "multi", "cross")) else "LGBMRegressor"
    )
    quiet = {"objective": objective, "n_jobs": 1, "verbose": -1}
    return getattr(untyped("lightgbm"), kind)(**settings, **quiet)


def xgboost_estimator(model: BlackBox, X: pd.DataFrame, y: "pd.Series[Any]", seed: int) -> Any:
    """XGBoost's classifier or regressor with what a model without settings says, and the learning
    rate of the list that makes it most alike on the rows it learnt from; a warning says what was
    assumed."""
    # No XGBoost file holds the learning rate, which matters most to what a new fit looks like.
    settings = xgboost_settings(booster_of(model))
    kind: Any = getattr(
        untyped("xgboost"), "XGBRegressor" if model.is_regression else "XGBClassifier"
    )
    if settings.get("booster") == "gblinear":
        return kind(**settings)
    rows = np.sort(np.random.default_rng(seed).permutation(len(X))[:MOST_ROWS])
    table = X.iloc[rows]
    outcome = y.iloc[rows]
    wanted = _leads(model, table)
    made = {rate: kind(**settings, learning_rate=rate) for rate in RATES}
    fits = FittedEstimators(
        EstimatorFit(each, model.inputs, table, outcome, model.schema, model.classes, seed)()
        for each in made.values()
    )
    gaps = [float(np.abs(_leads(judge, table) - wanted).mean()) for judge in fits.judges()]
    apart = dict(zip(made, gaps, strict=True))
    best = min(apart, key=lambda rate: apart[rate])
    warnings.warn(
        f"an XGBoost file does not say how the model was made: {settings['n_estimators']} rounds "
        f"and depth {settings['max_depth']} are read off its trees, learning rate {best:g} scores "
        f"the training rows most alike (apart by {apart[best]:.2g} in the mean), all else is taken "
        "to be as usual; a recipe settles it",
        stacklevel=4,
    )
    return made[best]


def xgboost_settings(booster: Any) -> dict[str, Any]:
    """What a booster without settings says: rounds, objective, trees that grow side by side, and
    the greatest depth."""
    config = _config(booster)
    kind = config["gradient_booster"]["name"]
    objective = dict(config["objective"])
    settings: dict[str, Any] = {
        "n_estimators": booster.num_boosted_rounds(),
        "objective": objective.pop("name"),
    }
    settings |= {"n_jobs": 1, "enable_categorical": "c" in (booster.feature_types or [])}
    for given in objective.values():  # its parameters, such as scale_pos_weight
        settings |= {name: _number(value) for name, value in given.items() if name != "num_class"}
    if kind != "gbtree":
        settings["booster"] = kind
    if kind == "gblinear":
        return settings
    trees = config["gradient_booster"].get("gbtree", config["gradient_booster"])
    side_by_side = int(trees["gbtree_model_param"]["num_parallel_tree"])
    if side_by_side > 1:
        settings["num_parallel_tree"] = side_by_side
    return settings | {
        "max_depth": max(
            1, *(_depth(json.loads(tree)) for tree in booster.get_dump(dump_format="json"))
        )
    }


def forgot(model: Any) -> SettingError:
    """What to say of a model from an XGBoost file without rows to find its learning rate
    by."""
    kind = type(model.wrapped if isinstance(model, BlackBox) else model).__name__
    what = f"an XGBoost file does not say how the model ({kind}) was made"
    fix = (
        "give the training rows to hf.ModelBank.retrain or hf.Recourse, which find a learning "
        "rate by them"
    )
    return SettingError(
        f"{what}; {fix}, or pass a recipe, such as hf.Recipe(estimator=xgboost.XGBClassifier(...))"
    )


def is_forgetful(model: Any) -> bool:
    """Is it a model of XGBoost that does not know its settings?"""
    booster = booster_of(model)
    return booster is not None and is_xgboost(booster)


def _config(booster: Any) -> dict[str, Any]:
    return cast(dict[str, Any], json.loads(booster.save_config())["learner"])


def _number(text: str) -> float:
    """0.699999988, in single precision, is 0.7."""
    return float(str(np.float32(text.strip("[]"))))


def _depth(node: dict[str, Any]) -> int:
    return 1 + max(map(_depth, node["children"])) if "children" in node else 0


def _leads(model: Model, X: pd.DataFrame) -> Any:
    """(n, k) scores; those of classes less their mean."""
    with model.eval_mode():
        scores = model.score_frame(X).double().numpy()
    return scores - scores.mean(1, keepdims=True) if scores.shape[1] > 1 else scores
