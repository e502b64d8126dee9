"""Models side by side: whose explanations are more plausible, cheaper, and lean less on what is
protected.

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
means that it prints. They differ where one model has no valid counterfactual in some repeats, which
the first leaves out, and the second only for that model. A model that never gets to a class is
judged by the others alone, so read validity first.

Altmeyer et al., "Counterfactual Training: Teaching Models Plausible and Actionable Explanations",
2025.
"""

import copy
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd
import torch
from numpy.typing import ArrayLike
from torch import nn

from holdfast._core.checks import listed, require_integer
from holdfast._core.progress import Progress
from holdfast.errors import SettingError
from holdfast.evaluation._repeats import METRICS, Array, Repeats
from holdfast.evaluation.attacks import attacked_accuracy
from holdfast.evaluation.attribution import sensitivity
from holdfast.evaluation.report import gap
from holdfast.explainer import Explainer
from holdfast.methods.eccco import ECCCo
from holdfast.models.base import Model
from holdfast.retraining.outcomes import class_names, class_numbers, outcomes
from holdfast.schema.schema import Schema

ENERGIES = (0.1, 0.5, 1.0, 5.0, 10.0)
ATTACKS = tuple(i / 90 for i in range(10))  # from 0 to 0.1
PGD_STEP = 0.01
LEVEL = 0.99
REDUCED = ("implausibility", "mmd", "cost")  # those of which less is better
FREE = "all may change"
HELD = "protected held"


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
) -> "Comparison":
    """Set the explanations of models beside those of the first.

    Args:
        models: the one to compare with, then the others: `Model`s or torch modules, as a list or by
            name.
        X, y: rows that no model was trained on, and their true classes. Plausibility is measured
            against them.
        schema: how rows become numbers, for torch modules; a `Model` brings its own.
        method: how counterfactuals are searched for; None: `ECCCo(tau=0.95)`, as in the paper. One
            that learns from data is fitted on X, y for each model.
        names: of the models, if they are a list.
        repeats, rows: how many repeats, and rows of each model in each.
        energies: weights of the energy, for methods with a setting `energy`; others are asked once.
        protected: features to hold in a second pass, about costs: a method with a `tau` stops there
            at 0.5, as in the paper.
        attacks: radii, in encoded units, of the FGSM and PGD attacks; of models without gradients
            only 0 is measured.
        seed: of repeats and methods.
        progress: show a bar on stderr.

    Returns:
        A `Comparison`: tables of figures and reductions, plots.

    >>> import holdfast as hf
    >>> data = hf.datasets.overlapping(n=200)
    >>> models = [hf.train_network(data.X, data.y, data.schema, hidden=[], epochs=n) for n in (5, 10)]
    >>> few = dict(repeats=2, rows=5, energies=[5.0], attacks=[0.0, 0.1])
    >>> study = hf.compare(models, data.X, y=data.y, names=["short", "long"], method=hf.ECCCo(steps=20), **few)
    >>> study.table()["model"].tolist()
    ['short', 'long']
    """
    method = ECCCo(tau=0.95) if method is None else method
    _check(method, repeats, rows, energies, attacks, seed)
    named = _named(models, names)
    wrapped, y = _wrapped(named, X, y, schema)
    held = tuple([protected] if isinstance(protected, str) else protected or ())
    first = next(iter(wrapped.values()))
    for name in held:
        first.schema[name]
    cases: dict[str, dict[str, float]] = {FREE: {}} | ({HELD: {"tau": 0.5}} if held else {})
    energetic = "energy" in method.get_params(deep=False)
    predicted = {name: _predicted(model, X) for name, model in wrapped.items()}
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
            own = _fitted(method, X, y, model)
            for case, more in cases.items():
                here = model if case == FREE else _holding(model, held)
                for energy in weights:
                    table = plan.measure(name, here, _set(own, more | {"energy": energy}), X, seed)
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


@dataclass(frozen=True, eq=False, repr=False)
class Comparison:
    """What the explanations of models are worth beside those of the first; `hf.compare` makes it.

    >>> import holdfast as hf
    >>> data = hf.datasets.overlapping(n=200)
    >>> models = {f"{n} epochs": hf.train_network(data.X, data.y, data.schema, epochs=n) for n in (3, 6)}
    >>> study = hf.compare(models, data.X, y=data.y, method=hf.NearestNeighbor(), repeats=2, rows=5, attacks=[0.0])
    >>> study.reductions()["metric"].tolist()
    ['implausibility', 'mmd', 'cost']
    """

    models: dict[str, Model]
    method: Explainer
    X: pd.DataFrame
    y: "pd.Series[Any]"
    protected: tuple[str, ...]
    # one line per model, case, energy and repeat (`round`): the figures of `METRICS`
    values: pd.DataFrame
    curves: pd.DataFrame  # one line per model, attack and epsilon: accuracy
    rows: int  # in a repeat
    seed: int

    @property
    def plain(self) -> str:
        """The model that the others are compared with."""
        return next(iter(self.models))

    @property
    def cases(self) -> tuple[str, ...]:
        """What may change: everything, and everything but the protected features."""
        return (FREE, HELD) if self.protected else (FREE,)

    @property
    def repeats(self) -> int:
        """How often each pair of questions was drawn."""
        return int(self.values["round"].max()) + 1

    # ---- figures

    def table(self, energy: float | None = None) -> pd.DataFrame:
        """One line per case and model: means over energies and repeats, accuracy, and what attacks
        leave of it at the largest epsilon. With `energy`, for this weight alone."""
        figures = (
            self._by_repeat(energy)
            .groupby(["case", "model"], sort=False)[list(METRICS)]
            .mean()
            .reset_index()
        )
        # what is free comes first
        figures = figures.sort_values("case", kind="stable", ignore_index=True)
        out = figures.assign(accuracy=figures["model"].map(self._accuracy("none", 0.0)))
        for attack in ("FGSM", "PGD"):
            epsilon = self.curves.loc[self.curves["attack"] == attack, "epsilon"].max()
            if epsilon > 0:
                out[f"{attack} {epsilon:g}"] = out["model"].map(self._accuracy(attack, epsilon))
        return out

    def reductions(self, energy: float | None = None) -> pd.DataFrame:
        """By how many percent the other models have less of each metric than the first: one line
        per case, metric and model, with se, the same of the means, the 99 % interval of their
        difference, and whether that leaves out 0."""
        values = self._by_repeat(energy)
        lines = list[dict[str, Any]]()
        for case in self.cases:
            here = values[values["case"] == case].set_index("round")
            plain = here[here["model"] == self.plain]
            for metric in REDUCED:
                for name in list(self.models)[1:]:
                    ours = here.loc[here["model"] == name, metric]
                    found = reduction(ours.to_numpy(), plain[metric].to_numpy(), seed=self.seed)
                    lines.append({"case": case, "metric": metric, "model": name} | found)
        return pd.DataFrame(lines)

    def sensitivity(
        self, *, repeats: int = 100, samples: int = 2500, points: int = 50
    ) -> pd.DataFrame:
        """How much each model leans on the protected features (`evaluation.attribution`): the
        median over repeats, and the interval that holds 95 % of them."""
        if not self.protected:
            raise SettingError("no feature is protected here; call compare(..., protected=[...])")
        schema = next(iter(self.models.values())).schema
        spans = [schema.slices[schema.names.index(name)] for name in self.protected]
        columns = torch.cat([torch.arange(s.start, s.stop) for s in spans])
        lines = list[dict[str, Any]]()
        for name, model in self.models.items():
            x = schema.encode(self.X, model.dtype)
            labels = class_numbers(self.y, model.classes)
            how = {"repeats": repeats, "samples": samples, "points": points, "seed": self.seed}
            each = sensitivity(model, x, labels, columns, **how)
            low = float(each.quantile(0.025))
            high = float(each.quantile(0.975))
            lines.append(
                {"model": name, "median": float(each.quantile(0.5)), "low": low, "high": high}
            )
        return pd.DataFrame(lines)

    def _by_repeat(self, energy: float | None) -> pd.DataFrame:
        """One line per case, model and repeat: means over the energies."""
        values = self.values
        if energy is not None:
            values = values[values["energy"] == energy]
            if len(values) <= 0:
                raise SettingError(
                    f"no energy {energy:g} here; there are {listed(self.values['energy'].unique())}"
                )
        return (
            values.groupby(["case", "model", "round"], sort=False)[list(METRICS)]
            .mean()
            .reset_index()
        )

    def _accuracy(self, attack: str, epsilon: float) -> dict[str, float]:
        here = self.curves[(self.curves["attack"] == attack) & (self.curves["epsilon"] == epsilon)]
        return dict(zip(here["model"], here["accuracy"], strict=True))

    # ---- pictures and files

    def plot(self) -> Any:
        """Reductions with their spread, and accuracy under attack."""
        from holdfast.render.charts.compare import comparison_chart

        return comparison_chart(self.reductions(), self.curves)

    def paths(self, target: Any, *, rows: int = 12, energy: float | None = None) -> Any:
        """Of models with two features: what they say everywhere, and arrows from rows to their
        counterfactuals; one column per model, and a second row of pictures with the protected
        feature held.

        Args:
            target: the class that is wanted.
            rows: how many rows to ask about, from those that every model refuses.
            energy: the weight of the energy; None: as `method` has it.
        """
        from holdfast.render.charts.training import decision_paths

        refused = np.all(
            [model.predict(self.X).to_numpy() != target for model in self.models.values()], axis=0
        )
        found = np.flatnonzero(refused)
        if len(found) <= 0:
            raise SettingError(
                f"every row gets {target!r} from one of the models; ask for another class"
            )
        shown = self.X.iloc[
            found[np.linspace(0, len(found) - 1, min(rows, len(found))).astype(np.int64)]
        ]
        grid = dict[str, dict[str, Any]]()
        for case in self.cases:
            words = case if case == FREE else f"{', '.join(self.protected)} held"
            grid[words] = {}
            for name, model in self.models.items():
                how = _set(
                    _fitted(self.method, self.X, self.y, model),
                    {} if energy is None else {"energy": energy},
                )
                here = model if case == FREE else _holding(model, self.protected)
                grid[words][name] = how.explain(here, shown, target, seed=self.seed)
        return decision_paths(self.models, self.X, self.y, grid, target)

    def to_json(self) -> str:
        """Tables, curves and what they are about."""
        content = {
            "models": {name: model.fingerprint() for name, model in self.models.items()},
            "method": repr(self.method),
            "protected": list(self.protected),
            "repeats": self.repeats,
            "rows": self.rows,
            "seed": self.seed,
            "level": LEVEL,
        }
        tables = {
            "table": self.table(),
            "reductions": self.reductions(),
            "curves": self.curves,
            "values": self.values,
        }
        text = {
            name: json.loads(t.to_json(orient="records", double_precision=10))
            for name, t in tables.items()
        }
        return json.dumps(content | text, indent=1)

    def save(self, path: str | Path) -> None:
        """Write what `to_json` gives."""
        Path(path).write_text(self.to_json(), encoding="utf-8")

    def __repr__(self) -> str:
        about = f"{self.repeats} repeats of {self.rows} rows, {self.method!r}"
        held = f", protected: {listed(self.protected)}" if self.protected else ""
        parts = [
            about + held,
            self.table().to_string(index=False, float_format=lambda v: f"{v:.3f}"),
        ]
        reduced = self.reductions()
        if len(reduced):
            star = np.where(reduced["significant"], "*", " ")
            columns = zip(reduced["reduction"], reduced["se"], star, strict=True)
            cells = [f"{m:.2f} +- {s:.2f}{t}" for m, s, t in columns]
            wide = reduced.assign(cell=cells).pivot(
                index=["case", "model"], columns="metric", values="cell"
            )
            parts += [
                f"Percent less than {self.plain} (* sure at 99 %)",
                wide[list(REDUCED)].to_string(),
            ]
        return "\n\n".join(parts)


def reduction(ours: Array, plain: Array, *, seed: int = 0) -> dict[str, Any]:
    """By how many percent a metric falls, over repeats that both models have figures for.

    Args:
        ours, plain: (J,) the metric of a model and of the one to compare with; NaN where there is
            none. A ratio to 0 says nothing, so such repeats count in means alone.

    Returns:
        reduction, se, of means, low and high (the interval of the difference of means),
            significant, and in how many
        repeats (`rounds`) both have a figure.
    """
    low, high = gap(ours, plain, LEVEL, seed)
    means = [pd.Series(v, dtype=float).mean() for v in (ours, plain)]
    both = np.isfinite(ours) & np.isfinite(plain) & (plain > 0)
    # pandas, as it is silent about means of nothing
    ratio = pd.Series(ours[both] / plain[both], dtype=float)
    found = {"reduction": -(ratio.mean() - 1) * 100, "se": 100 * ratio.std()}
    found |= {
        "of means": -(means[0] / means[1] - 1) * 100 if means[1] > 0 else math.nan,
        "low": low,
        "high": high,
    }
    return found | {"significant": low > 0 or high < 0, "rounds": len(ratio)}


# ---- models and methods


def _named(models: Any, names: Sequence[str] | None) -> dict[str, Any]:
    if isinstance(models, Mapping):
        if names is not None:
            raise SettingError("names are for a list of models; these have names already")
        out = {str(name): model for name, model in cast(Mapping[Any, Any], models).items()}
    else:
        each = list(cast(Sequence[Any], models)) if isinstance(models, Sequence) else [models]
        names = (
            [f"model {i}" for i in range(1, len(each) + 1)]
            if names is None
            else [str(name) for name in names]
        )
        same = len(set(names)) == len(each) == len(names)
        if not same:
            raise SettingError(
                f"need a name of its own for each of {len(each)} models, got {names}"
            )
        out = dict(zip(names, each, strict=True))
    if len(out) < 2:
        raise SettingError(f"need at least two models, the first to compare with; got {len(out)}")
    return out


def _wrapped(
    named: dict[str, Any], X: pd.DataFrame, y: Any, schema: Schema | None
) -> tuple[dict[str, Model], "pd.Series[Any]"]:
    """All as models of one encoding and the same classes; and the outcomes beside the rows."""
    for name, model in named.items():
        estimates = isinstance(model, Model) and model.is_regression
        if estimates:
            raise SettingError(f"{name!r} is a regression model; only classifiers can be compared")
    y = outcomes(X, y)
    own = next((model.classes for model in named.values() if isinstance(model, Model)), None)
    classes = class_names(X, y, own)
    out = dict[str, Model]()
    for name, model in named.items():
        if isinstance(model, Model):
            out[name] = model
        elif isinstance(model, nn.Module):
            if schema is None:
                raise SettingError(
                    f"{name!r} is a bare torch module; pass schema=, or wrap it with hf.Model.of"
                )
            out[name] = Model.of(model, schema, classes=classes)
        else:
            kind = type(model).__name__
            raise SettingError(
                f"{name!r} is a {kind}, neither a Model nor a torch module; wrap it with "
                "hf.Model.of"
            )
    (first, plain), *rest = out.items()
    x = plain.schema.encode(X, torch.float64)
    for name, model in rest:
        if model.classes != plain.classes:
            raise SettingError(
                f"{first!r} has the classes {plain.classes}, {name!r} {model.classes}"
            )
        same = model.schema.names == plain.schema.names and model.schema.width == plain.schema.width
        same = same and torch.equal(model.schema.encode(X, torch.float64), x)
        if not same:
            raise SettingError(
                f"{first!r} and {name!r} encode rows differently, so distances do not compare; "
                "use one schema"
            )
    return out, y


def _predicted(model: Model, X: pd.DataFrame) -> Array:
    """(n,) numbers of the classes that the model gives."""
    with model.eval_mode():
        return model.score_frame(X).argmax(1).numpy()


def _holding(model: Model, features: Sequence[str]) -> Model:
    """The same model for people who cannot change these features."""
    return model.with_schema(
        model.schema.change(**{name: {"change": "fixed"} for name in features})
    )


def _fitted(method: Explainer, X: pd.DataFrame, y: "pd.Series[Any]", model: Model) -> Explainer:
    """The method, fitted for this model if it learns from data."""
    if not (method.needs_data or method.is_fitted):
        return method
    fresh: Any = type(method)(**method.get_params(deep=False))
    return fresh.fit(model, X, y)


def _set(method: Explainer, settings: dict[str, Any]) -> Explainer:
    """A copy with those of the settings that it has."""
    known = method.get_params(deep=False)
    return copy.copy(method).set_params(**{k: v for k, v in settings.items() if k in known})


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


def _check(method: Any, repeats: Any, rows: Any, energies: Any, attacks: Any, seed: Any) -> None:
    if not isinstance(method, Explainer):
        raise SettingError(f"method must be an explainer, like hf.ECCCo(), got {method!r}")
    count = method.n_counterfactuals
    if count != 1:
        raise SettingError(
            f"a comparison takes one answer per row, {type(method).__name__} has {count}"
        )
    require_integer("repeats", repeats)
    require_integer("rows", rows)
    for name, values in {"energies": energies, "attacks": attacks}.items():
        wrong = [
            v for v in values if not (isinstance(v, int | float) and math.isfinite(v) and v >= 0)
        ]
        if wrong:
            raise SettingError(
                f"{name} must be numbers and at least 0, got {wrong[0] if wrong else None!r}"
            )
    require_integer("seed", seed, 0)
    if len(energies) <= 0:
        raise SettingError("need at least one energy, like energies=[5.0]")
