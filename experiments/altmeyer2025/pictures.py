"""Pictures of Altmeyer et al. 2025, drawn from the results alone."""

import base64
from collections.abc import Callable
from functools import partial
from typing import Any, cast

import numpy as np
import pandas as pd
import torch

import holdfast as hf
from experiments.altmeyer2025.charts import comparison_chart, image_grid
from experiments.altmeyer2025.comparison import FREE, HELD, REDUCED
from experiments.altmeyer2025.setup import (
    GUARDED,
    HIDDEN,
    HISTORY,
    PICTURED,
    PLANES,
    SETTINGS,
    SIDE,
    judge,
    prepare,
)
from experiments.experiment import Figures, Pictures, Results
from holdfast._core.checks import optional
from holdfast.nn.architecture import mlp
from holdfast.render.charts.paths import decision_paths
from holdfast.render.charts.theme import BLUE, ORANGE, WIDTH, themed
from holdfast.render.charts.training import training_curves

# rows asked about in the plane, and rows of the data beside them
ARROWS = 12
DOTS = 200
KEYS = {"implausibility": "implausibility", "mmd": "MMD", "cost": "cost"}
Array = np.ndarray[Any, np.dtype[np.float64]]


def pictures(results: Results) -> Pictures:
    """Of each dataset the reductions with accuracy under attack, and how training went; where
    answers lead in a plane; digits and their counterfactuals; linear networks."""
    out = dict[str, Callable[[], Any]]()
    for r in results:
        out[f"{r['dataset']}-beside.svg"] = lambda r=r: comparison_chart(_reductions(r), _curves(r))
        out[f"{r['dataset']}-training.svg"] = lambda r=r: training_curves(_history(r))
        if r["dataset"] in PLANES:
            out[f"{r['dataset']}-paths.svg"] = partial(paths, r)
        elif r["pictured"]:
            out[f"{r['dataset']}-digits.svg"] = partial(_digits, r["pictured"])
        if "theory" in r:
            out["theory.svg"] = partial(theory_chart, r["theory"])
    return out


def _reductions(r: Figures) -> pd.DataFrame:
    lines = list[dict[str, Any]]()
    for label, columns in r["ablation"].items():
        for metric in REDUCED:
            held = metric == "cost" and label == GUARDED
            found = columns["cost, protected" if held else KEYS[metric]]
            lines.append(
                {"case": HELD if held else FREE, "metric": metric, "model": label, **found}
            )
    return pd.DataFrame(lines)


def _curves(r: Figures) -> pd.DataFrame:
    return pd.DataFrame(
        [
            {"model": label, "attack": attack, "epsilon": epsilon, "accuracy": accuracy}
            for label, by_attack in r["attacked"].items()
            for attack, values in by_attack.items()
            for epsilon, accuracy in zip(r["attacks"], values, strict=True)
        ]
    )


def _history(r: Figures) -> pd.DataFrame:
    parts = [
        pd.DataFrame(
            {"variant": label, "epoch": range(1, r["epochs"] + 1)}
            | {key: np.array(values[key], dtype=float) for key in HISTORY}
        )
        for label, values in r["history"].items()
    ]
    return pd.concat(parts, ignore_index=True)


def paths(r: Figures) -> Any:
    """Where counterfactuals of the first networks lead, with all free, and with the first feature
    held."""
    task = prepare(r["dataset"], r["seed"])
    classes = sorted(set(task.y))
    models = {name: network(flat, task, classes) for name, flat in r["pictured"].items()}
    predicted = [model.predict(task.test_X).to_numpy() for model in models.values()]
    refused = np.flatnonzero(np.all([given != classes[1] for given in predicted], axis=0))
    X = task.test_X.iloc[
        refused[np.linspace(0, len(refused) - 1, min(ARROWS, len(refused))).astype(np.int64)]
    ]
    answers = dict[str, dict[str, Any]]()
    for case, schema in (
        (FREE, task.schema),
        (f"{SETTINGS[r['dataset']].protected} held", task.guarded),
    ):
        answers[case] = {
            name: judge().explain(
                hf.Model.of(cast(Any, model).module, schema, classes=classes), X, classes[1]
            )
            for name, model in models.items()
        }
    return decision_paths(
        models, task.test_X[:DOTS], task.test_y[:DOTS], answers, classes[1], width=200
    )


def network(flat: list[float], task: Any, classes: list[Any]) -> hf.Model:
    """From the weights and biases of its layers, one after the other."""
    module = mlp(task.width, HIDDEN, len(classes))
    values = torch.tensor(flat)
    at = 0
    with torch.no_grad():
        for p in module.parameters():
            p.copy_(values[at : at + p.numel()].view(p.shape))
            at += p.numel()
    return hf.Model.of(module, task.schema, classes=classes)


def stored(values: Array) -> dict[str, Any]:
    """For a file of results: weights as numbers, pixels between -1 and 1 as text."""
    if values.ndim < 3:
        return {
            name: [round(float(v), 5) for v in row]
            for name, row in zip(PICTURED, values, strict=False)
        }
    grey = np.clip(np.round((values + 1) * 127.5), 0, 255).astype(np.uint8)
    return {
        name: base64.b64encode(rows.tobytes()).decode()
        for name, rows in zip(("rows", *PICTURED), grey, strict=True)
    }


def _digits(pictured: dict[str, str]) -> Any:
    images = {
        name: np.frombuffer(base64.b64decode(text), np.uint8) for name, text in pictured.items()
    }
    rows = {name: pixels.reshape(-1, SIDE, SIDE) for name, pixels in images.items()}
    n = len(rows["rows"])
    titles = [f"{i} to {(i + 1) % n}" for i in range(n)]
    return image_grid(rows, titles=titles, shape=(SIDE, SIDE), limits=(0, 255))


def theory_chart(ratio: dict[str, list[float]]) -> Any:
    """How much linear networks lean on the protected feature, beside the free one, seed by seed.

    Paper: altmeyer2025 Figure A1.
    """
    alt = optional("altair", "plot")
    table = pd.DataFrame(
        [(k, i, v) for k, values in ratio.items() for i, v in enumerate(values)],
        columns=["network", "seed", "ratio"],
    )
    colour = alt.Color(
        "network:N", scale=alt.Scale(domain=list(ratio), range=[ORANGE, BLUE]), legend=None
    )
    points = (
        alt.Chart(table)
        .mark_circle(size=70, opacity=0.8)
        .encode(
            x=alt.X("ratio:Q", title="|weight of the protected feature| / |weight of the other|"),
            y=alt.Y("network:N", title=None, sort=list(ratio)),
            color=colour,
            tooltip=["network:N", "seed:Q", "ratio:Q"],
        )
    )
    even = (
        alt.Chart(pd.DataFrame({"ratio": [1.0]})).mark_rule(strokeDash=[4, 4]).encode(x="ratio:Q")
    )
    about = "Dots: relative weight of a protected feature in plain and in taught linear networks."
    return themed((even + points).properties(width=WIDTH, height=110, description=about))
