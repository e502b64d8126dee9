"""From the people of all base seeds to figures with intervals."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from experiments.experiment import Figures
from experiments.holdfast2026.setup import CONFIDENCE, HOLD, KINDS
from holdfast._core.binomial import exact_interval, lower_bound

Array = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]
Interval = tuple[float, float, float]  # an estimate, and from where to where it may lie
METHODS = ("smallest", "sns", "margin", "survival")
RESAMPLES = 2000


@dataclass(frozen=True)
class People:
    """What one method gave the people of all base seeds; of those who have a robust answer at all."""

    cost: Array
    oracle: Array
    survival: Array  # over the models whose certificates count
    certified: Mask
    answered: Mask
    seconds: float  # of the processor, per person

    @staticmethod
    def of(result: Figures, kind: str, method: str) -> "People | None":
        """None where the method does not work on this kind of model."""
        seeds = [s for s in result["kinds"].get(kind, []) if f"{method} cost" in s]
        if not seeds:
            return None
        parts = [_people(seed, method, len(KINDS[kind].certify)) for seed in seeds]
        joined: dict[str, Any] = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        return People(**joined, seconds=float(np.mean([seed[f"{method} seconds"] for seed in seeds])))


def _people(seed: dict[str, Any], method: str, families: int) -> dict[str, Any]:
    oracle = np.array([np.inf if v is None else v for v in seed["oracle cost"]], dtype=np.float64)
    robust = np.isfinite(oracle)
    cost = np.array([np.nan if v is None else v for v in seed[f"{method} cost"]], dtype=np.float64)
    accepted = np.array(seed[f"{method} accepted"])[:families].sum(0)
    models = int(np.sum(seed[f"{method} models"][:families]))
    answered = np.array(seed[f"{method} answered"]) > 0
    whole = {
        "cost": np.where(answered, cost, np.nan), "oracle": oracle, "survival": accepted / models,
        "certified": (lower_bound(accepted, models, CONFIDENCE) >= HOLD) & answered, "answered": answered,
    }  # fmt: skip
    return {name: values[robust] for name, values in whole.items()}


def share(flags: Mask) -> Interval:
    """A share, and its exact interval."""
    low, high = exact_interval(np.array([int(flags.sum())]), len(flags), CONFIDENCE)
    return float(flags.mean()), float(low[0]), float(high[0])


def ratio(ours: Array, theirs: Array, seed: int = 0) -> Interval:
    """Mean cost over mean cost of the people who have both, and a bootstrap interval over people."""
    both = np.isfinite(ours) & np.isfinite(theirs)
    a, b = ours[both], theirs[both]
    if not len(a):
        return float("nan"), float("nan"), float("nan")
    draws = np.random.default_rng(seed).integers(len(a), size=(RESAMPLES, len(a)))
    low, high = np.quantile(a[draws].mean(1) / b[draws].mean(1), [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return float(a.mean() / b.mean()), float(low), float(high)
