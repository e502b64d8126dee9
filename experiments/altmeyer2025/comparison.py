"""What a comparison of models gives: figures, reductions, pictures and files."""

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from experiments.altmeyer2025.prepared import fitted, holding, with_settings
from experiments.altmeyer2025.repeats import METRICS, Array
from holdfast._core.checks import listed
from holdfast.errors import SettingError
from holdfast.evaluation.attribution import sensitivity
from holdfast.evaluation.report import gap
from holdfast.explainer import Explainer
from holdfast.models.base import Model
from holdfast.retraining.outcomes import class_numbers

LEVEL = 0.99
REDUCED = ("implausibility", "mmd", "cost")  # less of these is better
FREE = "all may change"
HELD = "protected held"


@dataclass(frozen=True, eq=False, repr=False)
class Comparison:
    """What the explanations of models are worth beside those of the first; made by `compare`."""

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
        from experiments.altmeyer2025.charts import comparison_chart

        return comparison_chart(self.reductions(), self.curves)

    def paths(self, target: Any, *, rows: int = 12, energy: float | None = None) -> Any:
        """Of models with two features: what they say everywhere, and arrows from rows to their
        counterfactuals; one column per model, and a second row of pictures with the protected
        feature held.

        Args:
            target: the wanted class.
            rows: how many rows to ask about, from those that every model refuses.
            energy: the weight of the energy; None: as `method` has it.
        """
        from holdfast.render.charts.paths import decision_paths

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
                how = with_settings(
                    fitted(self.method, self.X, self.y, model),
                    {} if energy is None else {"energy": energy},
                )
                here = model if case == FREE else holding(model, self.protected)
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
        ours, plain: (J,) the metric of a model and of the one to compare with; NaN if there is
            none. A ratio to 0 says nothing, so such repeats count in means alone.

    Returns:
        reduction, se, of means, low and high (the interval of the difference of means),
            significant, and in how many
        repeats (`rounds`) both have a figure.

    Paper: altmeyer2025 Later: reductions.
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
