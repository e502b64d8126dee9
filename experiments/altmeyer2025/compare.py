"""Models side by side: whose explanations are more plausible, cheaper, and lean less on protected
features.

Repeats of counterfactuals (`_repeats`) are searched for with every weight of the energy, and once
more with the protected columns held as they are. Figures of a repeat are means over its valid
counterfactuals, argmax M(x') = y+:

    implausibility    l1 distance to data rows of the class y+, mean            IP in the paper
    mmd               discrepancy between the counterfactuals and these rows    IP*
    cost              |x' - x|_1
    redundancy        share of the columns that stay as they are

With m_j the figure of repeat j, energies averaged out first, and m0_j that of the first model,

    reduction  =  mean_j -(m_j / m0_j - 1) * 100        se  =  100 sd_j(m_j / m0_j)
    of means   =  -(mean_j m_j / mean_j m0_j - 1) * 100

and a star says that the 99 % percentile bootstrap interval of the difference of means, over the
repeats, leaves out 0. The paper defines the first; its percentages agree with the second, of the
means that it prints. They differ where one model has no valid counterfactual in some repeats: the
first leaves these out, the second only for that model. A model that never reaches a class is
judged by the others alone, so read validity first.

Altmeyer et al., "Counterfactual Training: Teaching Models Plausible and Actionable Explanations",
2025.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import ArrayLike
from torch import nn

from experiments.altmeyer2025.comparison import FREE, HELD, Comparison
from experiments.altmeyer2025.prepared import (
    check_settings,
    fitted,
    holding,
    named_models,
    predicted_classes,
    with_settings,
    wrapped_models,
)
from experiments.altmeyer2025.repeats import METRICS, Repeats
from holdfast._core.progress import Progress
from holdfast.evaluation.attacks import attacked_accuracy
from holdfast.explainer import Explainer
from holdfast.methods.eccco import ECCCo
from holdfast.models.base import Model
from holdfast.retraining.outcomes import class_numbers
from holdfast.schema.schema import Schema

ENERGIES = (0.1, 0.5, 1.0, 5.0, 10.0)
ATTACKS = tuple(i / 90 for i in range(10))  # from 0 to 0.1
PGD_STEP = 0.01


def compare(
    models: Sequence[Model | nn.Module] | Mapping[str, Model | nn.Module],
    X: pd.DataFrame,
    schema: Schema | None = None,
    *,
    y: ArrayLike,
    method: Explainer | None = None,
    names: Sequence[str] | None = None,
    repeats: int = 100,
    rows: int = 100,
    energies: Sequence[float] = ENERGIES,
    protected: Sequence[str] | None = None,
    attacks: Sequence[float] = ATTACKS,
    seed: int = 0,
    progress: bool = False,
) -> Comparison:
    """Compare the explanations of models with those of the first.

    Args:
        models: the one to compare with, then the others: `Model`s or torch modules, as a list or by
            name.
        X, y: rows that no model was trained on, and their true classes. Plausibility is measured
            against them.
        schema: how rows become numbers, for torch modules; a `Model` brings its own.
        method: how counterfactuals are searched for; None is `ECCCo(tau=0.95)`, as in the paper. A
            method that learns from data is fitted on X, y for each model.
        names: of the models, if they are a list.
        repeats, rows: how many repeats, and rows of each model in each.
        energies: weights of the energy, for methods with a setting `energy`; others are asked once.
        protected: features to hold in a second pass, about costs, in which a method with a `tau`
            stops at 0.5, as in the paper.
        attacks: radii, in encoded units, of the FGSM and PGD attacks; models without gradients are
            measured at 0 only.
        seed: of repeats and methods.
        progress: show a bar on stderr.

    Returns:
        A `Comparison`: tables of figures and reductions, plots.
    """
    method = ECCCo(tau=0.95) if method is None else method
    check_settings(method, repeats, rows, energies, attacks, seed)
    named = named_models(models, names)
    wrapped, y = wrapped_models(named, X, y, schema)
    held = tuple([protected] if isinstance(protected, str) else protected or ())
    first = next(iter(wrapped.values()))
    for name in held:
        first.schema[name]
    cases: dict[str, dict[str, float]] = {FREE: {}} | ({HELD: {"tau": 0.5}} if held else {})
    energetic = "energy" in method.get_params(deep=False)
    predicted = {name: predicted_classes(model, X) for name, model in wrapped.items()}
    x = first.schema.encode(X, torch.float64)
    labels = class_numbers(y, first.classes)
    plan = Repeats.draw(
        predicted, len(first.classes), x, labels, repeats, rows, np.random.default_rng(seed)
    )
    weights = list(dict.fromkeys(float(e) for e in energies)) if energetic else [math.nan]
    parts = list[pd.DataFrame]()
    curves = list[dict[str, Any]]()
    with Progress(progress, "compare") as bar:
        bar.total(len(wrapped) * (len(cases) * len(weights) + 1))
        for name, model in wrapped.items():
            own = fitted(method, X, y, model)
            for case, more in cases.items():
                here = model if case == FREE else holding(model, held)
                for energy in weights:
                    table = plan.measure(
                        name, here, with_settings(own, more | {"energy": energy}), X, seed
                    )
                    parts.append(table.assign(model=name, case=case, energy=energy))
                    bar.step(1)
            accuracy = float((predicted[name] == labels.numpy()).mean())
            curves += [
                {"model": name} | point for point in _attacked(model, X, y, attacks, accuracy)
            ]
            bar.step(1)
    values = pd.concat(parts, ignore_index=True)[
        ["model", "case", "energy", "round", "from", "to", *METRICS]
    ]
    return Comparison(wrapped, method, X, y, held, values, pd.DataFrame(curves), rows, seed)


def _attacked(
    model: Model, X: pd.DataFrame, y: "pd.Series[Any]", radii: Sequence[float], accuracy: float
) -> list[dict[str, Any]]:
    """Accuracy as it is, and under FGSM and PGD-40 with steps of 0.01, not confined to the range of
    the data."""
    out: list[dict[str, Any]] = [{"attack": "none", "epsilon": 0.0, "accuracy": accuracy}]
    for epsilon in radii if model.has_grad else ():
        fgsm: dict[str, Any] = {"steps": 1, "step_size": 1.0, "start": False}
        pgd: dict[str, Any] = {"steps": 40, "step_size": PGD_STEP / epsilon if epsilon else None}
        for attack, how in {"FGSM": fgsm, "PGD": pgd}.items():
            kept = accuracy
            if epsilon:
                kept = float(attacked_accuracy(model, X, y, epsilon=epsilon, box=False, **how))
            out.append({"attack": attack, "epsilon": float(epsilon), "accuracy": kept})
    return out
