"""The audit: do answers hold on retrained models, and how sure can one be of that?

For answer i and M retrained models, k_i of which still give the wanted outcome:

    survival     k_i / M
    interval     exact binomial (Clopper and Pearson): no normal approximation, right for any k and M
    certificate  the one-sided lower bound B(1 - confidence; k_i, M - k_i + 1) is at least the share asked for

The models are a sample of the retrained models that could come; the statements are about all of them. That is
only true of models that had no part in finding the answers, so a bank that guided the search is refused.
"""

import json
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from holdfast._core.progress import Progress
from holdfast.counterfactuals import Counterfactuals
from holdfast.datasets import records
from holdfast.distances import Distance
from holdfast.errors import FileError, did_you_mean, require, untyped
from holdfast.evaluation.report import by_name
from holdfast.retraining.bank import ModelBank
from holdfast.target import BoundTarget, Status

Array = np.ndarray[Any, Any]
HELD, MARK = "holdfast:held", b"holdfast-audit"  # the column and the metadata of a Parquet file
# How near the scores of two models on the probe rows must be to be those of one, relative to their size: a guide may
# have been made again elsewhere, from a recipe that is spelt in another way.
SAME = 1e-4


def audit(cfs: Counterfactuals, bank: ModelBank, *, progress: bool = False) -> "Audit":
    """Put every answer before every model of a bank.

    Args:
        cfs: answers of any method.
        bank: retrained models with the same schema and classes; none of them may have guided the search.
        progress: show a bar on stderr.

    Returns:
        An `Audit`: survival per answer and per family with exact intervals, certificates, plots.

    >>> import holdfast as hf
    >>> data = hf.datasets.overlapping(n=200)
    >>> recipe = hf.Recipe(hidden=[], epochs=20, lr=0.1)
    >>> model = recipe.fit(data.X, data.y, data.schema)
    >>> cfs = hf.Descent().explain(model, data.X[model.predict(data.X) == "no"].head(5), "yes")
    >>> bank = hf.ModelBank.retrain(recipe, data.X, data.y, data.schema, families={"seed": 20, "bootstrap": 20})
    >>> found = hf.audit(cfs, bank)
    >>> found.table().columns.tolist()
    ['status', 'survival', 'low', 'high', 'models', 'seed', 'bootstrap']
    """
    given = f"got {type(cfs).__name__} and {type(bank).__name__}; make a bank with hf.ModelBank.retrain(...)"
    good = isinstance(cfs, Counterfactuals) and isinstance(bank, ModelBank)
    require(good, f"audit takes answers and a ModelBank, {given}")
    bank.check_fits(cfs)
    counted = independent(cfs, bank)
    with Progress(progress, "auditing") as bar:
        bar.total(len(bank.groups))
        held = verdicts(cfs, bank, bar)
    return Audit(cfs, held[counted], bank.family[counted], bank.fingerprint())


def verdicts(cfs: Counterfactuals, bank: ModelBank, bar: Progress) -> Array:
    """(M, n) does model m give answer i the wanted outcome? The bar moves by one per group."""
    goal, held = decided(cfs), list[Array]()
    for group in bank.groups:
        scores = group.scores(cfs.after, cfs.x_cf)  # (M, n, k)
        answer = torch.arange(scores.shape[1]).repeat(len(scores))
        held.append(goal[answer].met(scores.flatten(0, 1)).reshape(scores.shape[:2]).numpy())
        bar.step(1)
    return np.concatenate(held)


def decided(cfs: Counterfactuals) -> BoundTarget:
    """What answers are judged by: the class, whatever probability was asked for."""
    return replace(cfs.goal, margin=0.0, soft=False)


def independent(cfs: Counterfactuals, bank: ModelBank) -> Array:
    """(M,) which models count: each once.

    An error if one of them guided the search: it was made from the same, or it gives the same scores.
    """
    origins = np.array(bank.origins(), dtype=object)
    refuse_guides(cfs, bank, origins)
    copies = pd.Series(origins).duplicated().to_numpy()
    if copies.any():
        warnings.warn(f"{int(copies.sum())} models of the bank are copies of others and do not count", stacklevel=3)
    return ~copies


def refuse_guides(cfs: Counterfactuals, bank: ModelBank, origins: Array) -> None:
    """An error if a model of the bank, made from these origins (M,), guided the search."""
    seen = np.isin(origins, list(cfs.run.guided_by))
    if cfs.run.signatures:
        scores, guides = bank.signatures().numpy(), np.array(cfs.run.signatures)
        apart = np.abs(scores[:, None] - guides).max(2) / (1 + np.abs(guides).max(1))  # (M, guides)
        seen |= (apart < SAME).any(1)
    guides = f"{int(seen.sum())} of the bank's {len(bank)} models guided the search for these answers"
    hint = "retrain a bank with another seed for the audit"
    require(not seen.any(), f"{guides}, so they cannot certify them; {hint}")


def by_row(cfs: Counterfactuals, answers: Array) -> Array:
    """(.., n) flags of answers -> (.., rows): is it so for any answer of the row?"""
    if not len(cfs):
        return answers
    order = np.argsort(cfs.source, kind="stable")
    first = np.unique(cfs.source[order], return_index=True)[1]
    return np.logical_or.reduceat(answers[..., order], first, axis=-1)


@dataclass(frozen=True, eq=False, repr=False)
class Audit:
    """Which model accepts which answer, and what follows from it.

    Args:
        cfs: the answers.
        held: (M, n) does model m give answer i the wanted outcome?
        family: (M,) the family of each model.
        bank: fingerprint of the bank.

    >>> import holdfast as hf, numpy as np
    >>> data = hf.datasets.linearly_separable(n=200)
    >>> model = hf.train_network(data.X, data.y, data.schema, hidden=[], epochs=20, lr=0.1)
    >>> cfs = hf.Descent().explain(model, data.X[model.predict(data.X) == "no"].head(2), "yes")
    >>> held = np.array([[True, True]] * 60 + [[True, False]] * 40)  # 40 of 100 models refuse the second answer
    >>> found = hf.Audit(cfs, held, np.array(["seed"] * 100), "a bank")
    >>> found.survival().tolist(), found.certified().tolist()
    ([1.0, 0.6], [True, False])
    """

    cfs: Counterfactuals
    held: Array
    family: Array
    bank: str

    @property
    def families(self) -> list[str]:
        """The names of the families, in the order of the bank."""
        return list(dict.fromkeys(self.family.tolist()))

    def _models(self, family: str | None) -> Array:
        if family is None:
            return np.ones(len(self.family), bool)
        require(family in self.families, f"the audit has no family {family!r}; {did_you_mean(family, self.families)}")
        return self.family == family

    def survival(self, family: str | None = None) -> "pd.Series[float]":
        """The share of models that accept each answer; missing where there is no answer."""
        share = self.held[self._models(family)].mean(0)
        return pd.Series(np.where(self.cfs.found, share, np.nan), self.cfs.after.index, name="survival")

    def interval(self, family: str | None = None, *, confidence: float = 0.95) -> pd.DataFrame:
        """Exact two-sided interval of each answer's survival."""
        kept = self.held[self._models(family)]
        low, high = exact_interval(kept.sum(0), len(kept), confidence)
        low[~self.cfs.found], high[~self.cfs.found] = np.nan, np.nan
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

    def summary(self) -> pd.DataFrame:
        """Coverage, base validity, survival and end-to-end robustness, over all models and per family.

        coverage: rows for which the method proposes a change, of those that needed one;
        base validity: of these, rows with a proposal that the model itself accepts;
        survival: accepted answers times models that still accept them, with its standard deviation over models and
        the worst model;
        end to end: all rows that needed an answer times models under which they have one that holds.
        """
        cfs, unmet = self.cfs, self.cfs.status_codes != Status.ALREADY_MET
        needed, found = by_row(cfs, unmet), by_row(cfs, cfs.found)
        proposed = by_row(cfs, unmet & (cfs.x_cf != cfs.x).any(1).numpy())
        lines = dict[str, dict[str, float]]()
        for name in ("all", *(self.families if len(self.families) > 1 else ())):
            held = self.held[self._models(None if name == "all" else name)]
            per_model = _per_model(held[:, cfs.found])
            holding = by_row(cfs, cfs.found & held)[:, needed]
            lines[name] = {
                "coverage": _share(proposed[needed]), "base validity": _share(found[proposed]),
                "survival": float(per_model.mean()), "spread": float(per_model.std()),
                "worst model": float(per_model.min()), "end to end": _share(holding), "models": len(held),
            }  # fmt: skip
        return pd.DataFrame.from_dict(lines, orient="index").astype({"models": int}).rename_axis("family")

    def invalidation(self) -> dict[str, tuple[float, float]]:
        """Mean and standard deviation over models of the share of answers lost, per family."""
        lost = {name: 1 - _per_model(self.held[self._models(name)][:, self.cfs.found]) for name in self.families}
        return {name: (float(values.mean()), float(values.std())) for name, values in lost.items()}

    def to_json(self, *, at_least: float = 0.95, confidence: float = 0.95) -> str:
        """Everything but the pictures, with no value rounded."""
        certified = self.certified(at_least=at_least, confidence=confidence)
        answers = self.table(confidence=confidence).assign(certified=certified.to_numpy())
        answers.insert(0, "row", [str(name) for name in answers.index])
        content = {
            "bank": self.bank, "method": self.cfs.run.settings,
            "certified": {"at_least": at_least, "confidence": confidence, "answers": int(certified.sum())},
            "summary": by_name(self.summary()), "answers": records(answers),
        }  # fmt: skip
        return json.dumps(content, indent=1)

    def plot(self, *, at_least: float = 0.95, confidence: float = 0.95) -> Any:
        """Survival against cost, one dot per answer; needs the `plot` extra."""
        from holdfast.render.charts.audit import survival_cost

        return survival_cost(self, at_least=at_least, confidence=confidence)

    # ---- files

    def save(self, path: str | Path) -> None:
        """Write a `.parquet` file with everything, which `load` reads; or `.json`, what `to_json` gives.

        The Parquet file is that of the answers with the verdicts beside them: `Counterfactuals.load` reads it as well.
        """
        path = Path(path)
        if path.suffix.lower() == ".json":
            path.write_text(self.to_json() + "\n", encoding="utf-8")
            return
        known = path.suffix.lower() == ".parquet"
        require(known, f"cannot write {str(path)!r}: the extension must be one of .parquet, .json", FileError)
        pa, parquet = untyped("pyarrow"), untyped("pyarrow.parquet")
        self.cfs.save(path)
        table: Any = parquet.read_table(path)
        by_answer = pa.FixedSizeListArray.from_arrays(pa.array(self.held.T.ravel()), len(self.held))
        content = json.dumps({"family": self.family.tolist(), "bank": self.bank})
        table = table.append_column(HELD, by_answer)
        parquet.write_table(table.replace_schema_metadata({**table.schema.metadata, MARK: content.encode()}), path)

    @classmethod
    def load(cls, path: str | Path) -> "Audit":
        """Read a .parquet file written by `save`."""
        cfs = Counterfactuals.load(path)
        table: Any = untyped("pyarrow.parquet").read_table(path)
        if MARK not in (table.schema.metadata or {}):
            raise FileError(f"{str(path)!r} holds answers and no audit of them; it was not written by Audit.save")
        try:
            content = json.loads(table.schema.metadata[MARK])
            family = np.array(content["family"])
            held = np.array(table[HELD].combine_chunks().flatten().to_numpy(zero_copy_only=False), dtype=bool)
            return cls(cfs, held.reshape(len(cfs), len(family)).T, family, str(content["bank"]))
        except Exception as error:  # the file may say anything
            raise FileError(f"{str(path)!r} is damaged ({type(error).__name__}: {error})") from None

    # ---- in words

    def describe(self, *, at_least: float = 0.95, confidence: float = 0.95) -> str:
        """A few lines: answers, models by family, survival, and how many answers are certified."""
        kinds = ", ".join(f"{name}: {int((self.family == name).sum())}" for name in self.families)
        answers, rows = int(self.cfs.found.sum()), len(np.unique(self.cfs.source))
        certified = int(self.certified(at_least=at_least, confidence=confidence).sum())
        lines = [
            f"Audit of {answers} answers for {rows} rows on {len(self.held)} models ({kinds})",
            self.summary().to_string(float_format=lambda v: f"{v:.4g}"),
            f"{certified} of {answers} answers are certified: at least {100 * at_least:g}% of retrained models accept "
            f"them, with {100 * confidence:g}% confidence",
        ]
        needed = models_needed(at_least, confidence)
        if len(self.held) < needed:
            lines.append(f"a certificate at this level needs at least {needed} models; the bank has {len(self.held)}")
        return "\n".join(lines)

    def __repr__(self) -> str:
        return self.describe()

    def _repr_html_(self) -> str:
        return self.summary().to_html(float_format=lambda v: f"{v:.4g}", border=0)


def r_squared(audits: Mapping[str, Audit], norm: str | Distance = "l2") -> float:
    """Of a line through (cost, invalidation) of every answer of these audits: do more expensive answers hold better?"""
    require(audits, "r_squared needs at least one audit")
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


def models_needed(at_least: float = 0.95, confidence: float = 0.95) -> int:
    """The smallest bank that can certify an answer which every model accepts: at_least^M <= 1 - confidence."""
    _check_share("at_least", at_least)
    _check_share("confidence", confidence)
    return int(np.ceil(np.log(1 - confidence) / np.log(at_least)))


def _check_share(name: str, value: float) -> None:
    require(0 < value < 1, f"{name} must lie between 0 and 1, got {value}")


def _share(flags: Array) -> float:
    return float(flags.mean()) if flags.size else float("nan")


def _per_model(kept: Array) -> Array:
    """(M, answers) -> the share of answers that each model accepts; of no answers there is none."""
    return kept.mean(1) if kept.shape[1] else np.full(len(kept), np.nan)
