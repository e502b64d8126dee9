"""The table behind the laws: every method with small settings, every kind of model, on one mixed
schema."""

import tempfile
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import lightgbm
import numpy as np
import pandas as pd
import torch
import xgboost
from sklearn.compose import make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from torch import nn

import holdfast as hf
from holdfast.nn.architecture import mlp
from holdfast.registry import METHODS
from holdfast.schema.verify import blocked
from support.tables import mixed_schema, mixed_table, seeded

SHORT_TRAINING: dict[str, Any] = {"epochs": 30, "batch_size": 64, "lr": 0.01, "reachable": True}


def small_survival_search(**settings: Any) -> hf.SurvivalSearch:
    """A search with few steps, of few models."""
    return hf.SurvivalSearch(steps=10, bisections=2, depth=2, **settings)


EXPLAINERS: dict[str, Callable[[], hf.Explainer]] = {
    "descent": lambda: hf.Descent(steps=60, restarts=2),
    "wachter": lambda: hf.Descent.wachter(steps=60, restarts=2, lr=0.05),
    "scfe": lambda: hf.Descent.scfe(steps=80, score=2.0),
    "generic": lambda: hf.Descent.generic(steps=80, lr=0.3),
    "vanilla": lambda: hf.Descent.vanilla(steps=80, lr=0.05),
    "descent softmax": lambda: hf.Descent(steps=60, restarts=2, relax="softmax"),
    "min-cost": lambda: hf.MinCost(steps=15, bisections=3, linearise=8, polish=8),
    "min-cost l2": lambda: hf.MinCost(norm=2, steps=15, bisections=3, linearise=8, polish=8),
    "min-cost legacy": lambda: hf.MinCost(legacy=True, steps=15, bisections=6, lr=0.05),
    "min-epsilon-pgd": lambda: hf.MinEpsilonPGD(radius=6.0, radii=4, steps=15),
    "min-epsilon-pgd random": lambda: hf.MinEpsilonPGD(
        radius=6.0, radii=4, steps=15, start="random"
    ),
    "growing-spheres": lambda: hf.GrowingSpheres(samples=40, rings=8),
    "growing-spheres carla": lambda: hf.GrowingSpheres(
        samples=40, rings=12, variant="carla", width=0.5
    ),
    "nearest-neighbor": lambda: hf.NearestNeighbor(),
    "nearest-neighbor 3": lambda: hf.NearestNeighbor(n_counterfactuals=3),
    "tree-search": lambda: hf.TreeSearch(beam=4, depth=4, thresholds=4),
    "tree-search l1": lambda: hf.TreeSearch(norm=1, beam=2, depth=3, thresholds=3),
    "latent-search": lambda: hf.LatentSearch(
        radius=8.0, samples=64, repeats=3, hidden=(16,), latent=4, epochs=5
    ),
    "latent-search vae": lambda: hf.LatentSearch(
        radius=8.0, samples=60, repeats=3, kind="vae", hidden=(16,), latent=4, epochs=5
    ),
    "cchvae": lambda: hf.CCHVAE(step=0.5, rings=25, samples=40, hidden=(16,), latent=4, epochs=30),
    "cchvae l2": lambda: hf.CCHVAE(
        p=2, norm=2, step=0.4, rings=25, samples=37, hidden=(16,), latent=4, epochs=30
    ),
    "revise": lambda: hf.REVISE(steps=80, lr=0.2, lam=0.01, hidden=(16,), latent=4, epochs=30),
    "eccco": lambda: hf.ECCCo(steps=80, lr=0.3),
    "eccco conformal": lambda: hf.ECCCo(steps=80, lr=0.3, tau=0.6, conformal=0.5),
    "gravitational": lambda: hf.Gravitational(steps=80, lr=0.3, external=0.02, lam=0.01, tau=0.6),
    "claproar": lambda: hf.ClaPROAR(steps=80, lr=0.3, lam=0.01),
    "omniscient": lambda: hf.Omniscient(draws=20),
    "prototype": lambda: hf.Prototype(k=3, steps=20, bisections=3),
    "roar": lambda: hf.ROAR(samples=60, noise=0.4, steps=60, lr=0.1, restarts=4),
    "roar lime": lambda: hf.ROAR.lime(samples=60, noise=0.4, lam=0.01),
    "survival-search": lambda: small_survival_search(safety=1.0, models=4, beam=2, thresholds=4),
    "survival-search several": lambda: small_survival_search(
        safety=(0.5, 2.0), norm="l1", models=3, beam=1, thresholds=3
    ),
    "learned-recourse": lambda: counternet().recourse_,
    "rbr": lambda: hf.RBR(neighbors=10, scan=16, samples=20, steps=30, delta_plus=1.0),
    "cf-model": lambda: hf.CFModel(
        hidden=(32, 16), dropout=0.0, l2=1.0, l3=0.02, condition_on_target=True, **SHORT_TRAINING
    ),
    "vae-cf": lambda: hf.VAECF(samples=4, reg=2.0, margin=2.0, **SHORT_TRAINING),
    "stable-neighbor-search": lambda: hf.StableNeighborSearch(
        start=hf.MinCost(norm=2, steps=15, bisections=3, linearise=8, polish=8),
        steps=20,
        path_points=4,
    ),
    "stable-neighbor-search paper": lambda: hf.StableNeighborSearch(
        start=hf.Descent(steps=60, restarts=2),
        radius=3.0,
        noise=1e-3,
        keep="last",
        endpoint_weight=1.0,
        steps=20,
        path_points=3,
    ),
    "stable-neighbor-search neighbors": lambda: hf.StableNeighborSearch(
        start=hf.NearestNeighbor(n_counterfactuals=3), steps=15, path_points=3
    ),
}
assert {name.split()[0] for name in EXPLAINERS} | {"wachter", "scfe", "generic", "vanilla"} >= set(
    METHODS
)

TABLE = mixed_table(400)
SCHEMA = mixed_schema(TABLE)
CLASSES = ["no", "yes"]


OUTCOME = np.where(TABLE["income"] / 900 + TABLE["owner"] - TABLE["open"] / 2 > 3.2, "yes", "no")


def _converted(estimator: Any, scale: bool = True) -> hf.Model:
    """A pipeline over the raw table, of which there is an exact copy."""
    text = ["sex", "job", "school"]
    levels = make_pipeline(
        SimpleImputer(strategy="constant", fill_value="?"), OneHotEncoder(handle_unknown="ignore")
    )
    numbers = StandardScaler() if scale else "passthrough"
    prepare = make_column_transformer(
        (levels, text), (numbers, [c for c in TABLE.columns if c not in text])
    )
    coded = (
        np.where(OUTCOME == "yes", 1, 0)
        if isinstance(estimator, xgboost.XGBClassifier)
        else OUTCOME
    )
    model = hf.Model.of(
        make_pipeline(prepare, estimator).fit(TABLE, coded), SCHEMA, classes=CLASSES
    )
    assert model.conversion, model.conversion.text
    return model


def _pipeline() -> Any:
    text = ["sex", "job", "school"]
    numbers = [c for c in TABLE.columns if c not in text]
    prepare = make_column_transformer(
        (
            make_pipeline(
                SimpleImputer(strategy="constant", fill_value="?"),
                OneHotEncoder(handle_unknown="ignore"),
            ),
            text,
        ),
        ("passthrough", numbers),
    )
    return make_pipeline(prepare, RandomForestClassifier(20, random_state=0, n_jobs=1)).fit(
        _plain(TABLE), OUTCOME
    )


def _plain(frame: pd.DataFrame) -> pd.DataFrame:
    """What this pipeline was trained on: text as objects, nullable integers as plain ones."""
    return frame.astype({"job": object, "school": object, "sex": object, "visits": "int64"})


class _Pipeline:
    """A scikit-learn pipeline behind the user's own cast of dtypes."""

    def __init__(self) -> None:
        self.pipeline = _pipeline()
        self.classes_ = self.pipeline.classes_

    def predict_proba(self, frame: pd.DataFrame) -> Any:
        return self.pipeline.predict_proba(_plain(frame))


def _callable(frame: pd.DataFrame) -> np.ndarray:
    """Any function: a score on the raw table, as one probability per row."""
    score = (
        frame["income"] / 900
        + frame["owner"] * 1.0
        - frame["open"] / 2
        - 3.2
        + (frame["job"].astype(object) == "a")
    )
    return 1 / (1 + np.exp(-score.to_numpy(dtype=float)))


@cache
def counternet() -> hf.CounterNet:
    """A network that learns prediction and recourse at once, on an outcome that a person can do
    something about."""
    widths: dict[str, Any] = {"encoder": (16,), "predictor": (8,), "generator": (16,)}
    net = hf.CounterNet(**widths, dropout=0.1, epochs=60, lr=0.01, l2=2.0, l3=0.1)
    return net.fit(TABLE, OUTCOME, SCHEMA)


def _smooth(outputs: int) -> nn.Module:
    return nn.Sequential(nn.Linear(SCHEMA.width, 12), nn.Tanh(), nn.Linear(12, outputs))


def _onnx() -> hf.Model:
    """A network from a file that another program wrote."""
    with tempfile.TemporaryDirectory() as room, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the exporter
        path = Path(room) / "model.onnx"
        row = torch.zeros(1, SCHEMA.width)
        axes = {"x": {0: "n"}}
        torch.onnx.export(
            seeded(_smooth(2), 3), (row,), path, dynamo=False, input_names=["x"], dynamic_axes=axes
        )
        return hf.Model.load(path, SCHEMA, classes=CLASSES)


MODELS: dict[str, Callable[[], hf.Model]] = {
    "two-logit": lambda: hf.Model.of(
        seeded(mlp(SCHEMA.width, (16, 8), 2)), SCHEMA, classes=CLASSES
    ),
    "one-logit": lambda: hf.Model.of(
        seeded(mlp(SCHEMA.width, (16, 8), 1), 1), SCHEMA, classes=CLASSES
    ),
    "multi-class": lambda: hf.Model.of(
        seeded(_smooth(4), 2), SCHEMA, classes=["no", "yes", "maybe", "later"]
    ),
    "pipeline": lambda: hf.Model.of(_Pipeline(), SCHEMA),
    "callable": lambda: hf.Model.of(_callable, SCHEMA, classes=CLASSES),
    "counternet": lambda: counternet().model_,
    "onnx": _onnx,
    "logistic": lambda: _converted(LogisticRegression(max_iter=500)),
    "mlp": lambda: _converted(MLPClassifier((8,), solver="lbfgs", max_iter=60, random_state=1)),
    "forest": lambda: _converted(
        RandomForestClassifier(8, max_depth=5, random_state=0), scale=False
    ),
    "hist": lambda: _converted(HistGradientBoostingClassifier(max_iter=12, random_state=0)),
    "xgboost": lambda: _converted(xgboost.XGBClassifier(n_estimators=12, max_depth=3, n_jobs=1)),
    "lightgbm": lambda: _converted(
        lightgbm.LGBMClassifier(n_estimators=12, num_leaves=8, verbose=-1, n_jobs=1)
    ),
}
# one variant of a method will do here
COPIES = ("onnx", "logistic", "mlp", "forest", "hist", "xgboost", "lightgbm")


# An explainer that belongs to one model, and that model to it alone.
BELONGS = {"learned-recourse": "counternet"}


def people(model: hf.Model, rows: int, *, refused: bool = True) -> pd.DataFrame:
    """Rows that do not have the class 'yes' yet, and that the schema does not block."""
    pool = mixed_table(3000, seed=1)
    pool = pool[(blocked(SCHEMA, SCHEMA.read(pool)) == "")]
    if refused:
        pool = pool[(model.predict(pool) != "yes").to_numpy()]
    assert len(pool) >= rows or rows > 3000, "too few refused rows in the pool"
    return pool.iloc[np.arange(rows) % max(len(pool), 1)] if len(pool) < rows else pool.iloc[:rows]


class _Relative:
    """A model that gives other probabilities than the one it is derived from, and little else."""

    def __init__(self, model: hf.Model, i: int) -> None:
        self.model = model
        self.i = i

    def __call__(self, frame: pd.DataFrame) -> np.ndarray:
        shift = np.cos(np.arange(len(self.model.classes)) + self.i) / 4
        return torch.softmax(
            self.model.score_frame(frame).detach().double() + torch.tensor(shift), 1
        ).numpy()


def _relatives(model: hf.Model) -> hf.ModelBank:
    """Relatives of a model that cannot be made again."""
    return hf.ModelBank.of(
        [hf.Model.of(_Relative(model, i), model.schema, classes=model.classes) for i in range(2)]
    )


def fitted(explainer: hf.Explainer, model: hf.Model) -> hf.Explainer:
    if isinstance(explainer, hf.SurvivalSearch) and model.name in (
        "_Pipeline",
        "function",
        "Interpreter",
    ):
        explainer.bank = _relatives(model)
    calibrates = getattr(explainer, "conformal", 0) > 0
    return explainer.fit(model, TABLE) if explainer.needs_data or calibrates else explainer


PAIRS = [
    (e, m)
    for e in EXPLAINERS
    for m in MODELS
    if (BELONGS.get(e) == m or not {e, m} & {*BELONGS, *BELONGS.values()})
    and not (" " in e and m in COPIES)
    and not (e == "survival-search several" and m in ("pipeline", "callable"))
]
BLIND = ("pipeline", "callable", "forest", "hist", "xgboost", "lightgbm")
CASES = [(e, m) for e, m in PAIRS if not (m in BLIND and EXPLAINERS[e]().needs_grad)]
REFUSED = [(e, m) for e, m in PAIRS if (e, m) not in CASES]
torch.set_num_threads(1)
