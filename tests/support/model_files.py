"""Small models of every library as the bytes of files."""

import io
import os
import zipfile
from collections.abc import Callable
from pathlib import Path

import lightgbm
import numpy as np
import pandas as pd
import skops.io
import torch
import xgboost
from sklearn.linear_model import LogisticRegression

import holdfast as hf

RNG = np.random.default_rng(0)
TABLE = pd.DataFrame(RNG.normal(size=(80, 3)), columns=["a", "b", "c"])
TWO = (TABLE["a"] + TABLE["b"] ** 2 > 0.5).astype(int)
THREE = np.digitize(TABLE["a"], [-0.5, 0.5])
SCHEMA = hf.Schema.infer(TABLE)


def silent(marker: Path) -> None:
    assert not marker.exists()
    assert "HOLDFAST_CANARY" not in os.environ


def zipped(**entries: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, content in entries.items():
            archive.writestr(name.replace("__", "/").replace("_DOT_", "."), content)
    return file.getvalue()


def skops_bytes(estimator: object) -> bytes:
    return skops.io.dumps(estimator)


LOGISTIC = skops_bytes(LogisticRegression().fit(TABLE, TWO))


def xgboost_bytes(
    kind: str = "json", y: object = TWO, table: pd.DataFrame = TABLE, **more: object
) -> bytes:
    settings = {"n_estimators": 2, "n_jobs": 1, **more}
    if more.get("booster") != "gblinear":
        settings["max_depth"] = 2
    return bytes(xgboost.XGBClassifier(**settings).fit(table, y).get_booster().save_raw(kind))


CATEGORIES = TABLE.assign(job=pd.Categorical(RNG.choice(list("uvwxyz"), len(TABLE))))
BY_JOB = CATEGORIES["job"].isin(["u", "x", "z"]).astype(int)
X_JSON = xgboost_bytes()
X_UBJ = xgboost_bytes("ubj")


def lightgbm_text(y: object = TWO, table: pd.DataFrame = TABLE, **more: object) -> str:
    settings = {
        "n_estimators": 2,
        "num_leaves": 4,
        "min_child_samples": 5,
        "verbose": -1,
        "n_jobs": 1,
        **more,
    }
    return lightgbm.LGBMClassifier(**settings).fit(table, y).booster_.model_to_string()


L_TEXT = lightgbm_text()
POSITIVE = np.exp(TABLE["a"] / 2) + 0.1
XGBOOST_NUMBERS: dict[str, dict[str, object]] = {
    "reg:squarederror": {},
    "reg:squaredlogerror": {},
    "reg:absoluteerror": {},
    "reg:logistic": {},
    "reg:gamma": {},
    "reg:pseudohubererror": {"huber_slope": 0.7},
    "reg:quantileerror": {"quantile_alpha": 0.3},
    "reg:tweedie": {"tweedie_variance_power": 1.2},
    "count:poisson": {"max_delta_step": 0.5},
}
LIGHTGBM_NUMBERS: dict[str, dict[str, object]] = {
    "regression": {},
    "regression_l1": {},
    "huber": {"alpha": 0.7},
    "fair": {"fair_c": 0.5},
    "poisson": {},
    "quantile": {"alpha": 0.3},
    "mape": {},
    "gamma": {},
    "tweedie": {"tweedie_variance_power": 1.2},
}


def check_estimates(
    path: Path, theirs: Callable[[pd.DataFrame], np.ndarray], *, copied: bool
) -> None:
    """The file is a model that estimates, to the bit what the library does, and a search gets
    answers from it."""
    model = hf.Model.load(path, SCHEMA)
    assert model.is_regression
    assert model.classes == ()
    assert np.array_equal(model.predict(TABLE), theirs(TABLE))
    assert bool(model.conversion) == copied, model.conversion.text
    x = SCHEMA.encode(TABLE, torch.float64)
    assert torch.allclose(model(x), torch.tensor(theirs(TABLE)[:, None]).double(), rtol=1e-6)
    wish = float(theirs(TABLE).min() + theirs(TABLE).max()) / 2
    cfs = hf.GrowingSpheres(samples=50).explain(
        model, TABLE[theirs(TABLE) < wish].head(), hf.Target.between(wish, None)
    )
    assert cfs.found.any()
    assert (theirs(cfs.after)[cfs.found] >= wish).all()
