"""The audit: do answers hold on retrained models, and how sure can one be of that?

For answer i and M retrained models, k_i of which still give the wanted outcome:

    survival     k_i / M
    interval     exact binomial (Clopper and Pearson): no normal approximation, right for any k and M
    certificate  the one-sided lower bound B(1 - confidence; k_i, M - k_i + 1) is at least the share asked for

The models are a sample of the retrained models that could come; the statements are about all of them. That is
only true of models that had no part in finding the answers, so a bank that guided the search is refused.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import torch

from holdfast.bank import ModelBank
from holdfast.errors import SettingError, did_you_mean, untyped
from holdfast.progress import Progress
from holdfast.result import Counterfactuals
from holdfast.status import Status

Array = np.ndarray[Any, Any]


def audit(cfs: Counterfactuals, bank: ModelBank, *, progress: bool = False) -> "Audit":
    """Put every answer before every model of a bank.

    Args:
        cfs: answers of any method.
        bank: retrained models with the same schema and classes; none of them may have guided the search.

    Returns:
        An `Audit`: survival per answer and per family with exact intervals, certificates, plots.
    """
    bank.check_fits(cfs)
    seen = set(cfs.run.searched) & bank.members()
    if seen:
        raise SettingError(
            f"{len(seen)} of the bank's {len(bank)} models guided the search for these answers, so they cannot certify "
            "them; retrain a bank with another seed for the audit"
        )
    goal = replace(cfs.goal, margin=0.0, soft=False)  # the class, whatever probability was asked for
    held = list[Array]()
    with Progress(progress, "auditing") as bar:
        bar.total(len(bank.shelves))
        for shelf in bank.shelves:
            scores = shelf.scores(cfs.after, cfs.x_cf)  # (M, n, k)
            m, n = scores.shape[:2]
            many = torch.arange(n).repeat(m)
            held.append(goal[many].met(scores.flatten(0, 1)).reshape(m, n).numpy())
            bar.step(1)
    return Audit(cfs, np.concatenate(held), bank.family, bank.fingerprint())


@dataclass(frozen=True, eq=False, repr=False)
class Audit:
    """Which model accepts which answer, and what follows from it."""

    cfs: Counterfactuals
    held: Array  # (M, n) does model m give answer i the wanted outcome?
    family: Array  # (M,)
    bank: str  # fingerprint

    @property
    def families(self) -> list[str]:
        return list(dict.fromkeys(self.family.tolist()))

    def _models(self, family: str | None) -> Array:
        if family is None:
            return np.ones(len(self.family), bool)
        if family not in self.families:
            raise SettingError(f"the audit has no family {family!r}; {did_you_mean(family, self.families)}")
        return self.family == family

    def survival(self, family: str | None = None) -> "pd.Series[float]":
        """The share of models that accept each answer; missing where there is no answer."""
        share = self.held[self._models(family)].mean(0)
        return pd.Series(np.where(self.cfs.found, share, np.nan), self.cfs.after.index, name="survival")

    def interval(self, family: str | None = None, *, confidence: float = 0.95) -> pd.DataFrame:
        """Exact two-sided interval of each answer's survival."""
        kept = self.held[self._models(family)]
        low, high = exact_interval(kept.sum(0), len(kept), confidence)
        gone = ~self.cfs.found
        low[gone], high[gone] = np.nan, np.nan
        return pd.DataFrame({"low": low, "high": high}, self.cfs.after.index)

    def certified(
        self, *, at_least: float = 0.95, confidence: float = 0.95, family: str | None = None
    ) -> "pd.Series[bool]":
        """Which answers at least this share of all retrained models would accept, with this confidence.

        The statement is about each answer on its own, and about models drawn as those of the bank (or of one of
        its families) were. Answers that cannot be certified may be good; the bank is too small to tell.
        """
        _check_share("at_least", at_least)
        kept = self.held[self._models(family)]
        bound = lower_bound(kept.sum(0), len(kept), confidence)
        return pd.Series((bound >= at_least) & self.cfs.found, self.cfs.after.index, name="certified")

    def table(self, *, confidence: float = 0.95) -> pd.DataFrame:
        """One line per row: its status, survival over all models with its interval, then over each family."""
        out = pd.DataFrame({"status": self.cfs.status["status"], "survival": self.survival()})
        bounds = self.interval(confidence=confidence)
        out["low"], out["high"] = bounds["low"], bounds["high"]  # no join: a row with several answers is there often
        out["models"] = len(self.held)
        for name in self.families if len(self.families) > 1 else ():
            out[name] = self.survival(name)
        return out

    def summary(self, *, confidence: float = 0.95) -> pd.DataFrame:
        """Coverage, base validity, survival and end-to-end robustness, over all models and per family.

        coverage: rows for which the method proposes a change, of those that needed one;
        base validity: proposals that the model itself accepts;
        survival: accepted answers times models that still accept them;
        end to end: all rows that needed an answer times models under which they have one that holds.
        The interval of survival takes the models as the sample: it says how much another bank would differ.
        """
        asked = self.cfs.codes != Status.ALREADY_MET
        proposed = asked & (self.cfs.x_cf != self.cfs.x).any(1).numpy()
        lines = dict[str, dict[str, float]]()
        for name in ("all", *(self.families if len(self.families) > 1 else ())):
            held = self.held[self._models(None if name == "all" else name)]
            kept = held[:, self.cfs.found]
            per_model = _per_model(kept)
            low, high = mean_interval(per_model, confidence)
            lines[name] = {
                "coverage": _share(proposed[asked]),
                "base validity": _share(self.cfs.found[proposed]),
                "survival": float(per_model.mean()),
                "low": low,
                "high": high,
                "worst model": float(per_model.min()),
                "end to end": _share(np.where(self.cfs.found[asked], held[:, asked], False)),
                "models": len(kept),
            }
        return pd.DataFrame.from_dict(lines, orient="index").astype({"models": int}).rename_axis("family")

    def invalidation(self) -> dict[str, tuple[float, float]]:
        """Mean and standard deviation over models of the share of answers lost, per family."""
        lost = {name: 1 - _per_model(self.held[self._models(name)][:, self.cfs.found]) for name in self.families}
        return {name: (float(values.mean()), float(values.std())) for name, values in lost.items()}

    def to_json(self, *, at_least: float = 0.95, confidence: float = 0.95) -> str:
        """Everything but the pictures, with no value rounded."""
        certified = self.certified(at_least=at_least, confidence=confidence)
        content = {
            "bank": self.bank,
            "method": self.cfs.run.settings,
            "certified": {"at_least": at_least, "confidence": confidence, "answers": int(certified.sum())},
            "summary": {
                name: _plain(row) for name, row in self.summary(confidence=confidence).to_dict("index").items()
            },
            "answers": [
                {"row": str(index), **_plain(row), "certified": sure}
                for index, row, sure in zip(
                    self.cfs.after.index,
                    self.table(confidence=confidence).to_dict("records"),
                    certified.tolist(),
                    strict=True,
                )
            ],
        }
        return json.dumps(content, indent=1)

    def plot(self, *, at_least: float = 0.95, confidence: float = 0.95) -> Any:
        """Survival against cost, one dot per answer; needs the `plot` extra."""
        from holdfast.plot_survival import survival_cost

        return survival_cost(self, at_least=at_least, confidence=confidence)

    def __repr__(self) -> str:
        kinds = ", ".join(f"{name}: {int((self.family == name).sum())}" for name in self.families)
        head = f"Audit of {int(self.cfs.found.sum())} answers on {len(self.held)} models ({kinds})"
        return f"{head}\n{self.summary().to_string(float_format=lambda v: f'{v:.4g}')}"

    def _repr_html_(self) -> str:
        return self.summary().to_html(float_format=lambda v: f"{v:.4g}", border=0)


def r_squared(audits: Mapping[str, Audit], norm: str = "l2") -> float:
    """Of a line through (cost, invalidation) of every answer of these audits: do dearer answers hold better?"""
    if not audits:
        raise SettingError("r_squared needs at least one audit")
    cost = np.concatenate([a.cfs.cost(norm).to_numpy()[a.cfs.found] for a in audits.values()])
    lost = np.concatenate([1 - a.survival().to_numpy()[a.cfs.found] for a in audits.values()])
    if len(cost) < 2 or cost.std() == 0 or lost.std() == 0:
        return 0.0  # a flat cloud is explained by its mean alone
    return float(np.corrcoef(cost, lost)[0, 1] ** 2)


# ---- binomial statements


def exact_interval(kept: Any, models: int, confidence: float = 0.95) -> tuple[Array, Array]:
    """Clopper and Pearson: two-sided bounds of a share of which `kept` of `models` were seen."""
    _check_share("confidence", confidence)
    tail = (1 - confidence) / 2
    return _lower(kept, models, tail), 1 - _lower(models - np.asarray(kept), models, tail)


def lower_bound(kept: Any, models: int, confidence: float = 0.95) -> Array:
    """The one-sided bound that the true share exceeds with this confidence."""
    _check_share("confidence", confidence)
    return _lower(kept, models, 1 - confidence)


def _lower(kept: Any, models: int, tail: float) -> Array:
    k = np.asarray(kept, dtype=np.float64)
    bound = untyped("scipy.stats").beta.ppf(tail, np.maximum(k, 1), models - k + 1)
    return np.where(k > 0, bound, 0.0)


def mean_interval(values: Array, confidence: float) -> tuple[float, float]:
    """Student's interval for a mean over models, kept within 0 and 1; with one model there is none."""
    if len(values) < 2 or not np.isfinite(values).all():
        return float("nan"), float("nan")
    t = float(untyped("scipy.stats").t.ppf((1 + confidence) / 2, len(values) - 1))
    half = t * float(values.std(ddof=1)) / len(values) ** 0.5
    mean = float(values.mean())
    return max(0.0, mean - half), min(1.0, mean + half)


def models_needed(at_least: float = 0.95, confidence: float = 0.95) -> int:
    """The smallest bank that can certify an answer which every model accepts: at_least^M <= 1 - confidence."""
    _check_share("at_least", at_least)
    _check_share("confidence", confidence)
    return int(np.ceil(np.log(1 - confidence) / np.log(at_least)))


def _check_share(name: str, value: float) -> None:
    if not 0 < value < 1:
        raise SettingError(f"{name} must lie between 0 and 1, got {value}")


def _share(flags: Array) -> float:
    return float(flags.mean()) if flags.size else float("nan")


def _per_model(kept: Array) -> Array:
    """(M, answers) -> the share of answers that each model accepts; of no answers there is none."""
    return kept.mean(1) if kept.shape[1] else np.full(len(kept), np.nan)


def _plain(row: Mapping[Any, Any]) -> dict[str, Any]:
    """Values that JSON knows."""
    return {str(k): None if isinstance(v, float) and np.isnan(v) else v for k, v in row.items()}
