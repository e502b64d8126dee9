"""The audit: do answers hold on retrained models, and how sure is that?

For answer i and M retrained models, k_i of which still give the wanted outcome:

    survival     k_i / M
    interval     exact binomial (Clopper and Pearson), right for any k and M
    bound        one-sided: B(1 - confidence; k_i, M - k_i + 1), a quantile of a beta distribution
    certificate  the bound is at least the share that is asked for

The wanted outcome is what was asked for, with its probability, margin or range, and each model
judges as it does alone, by its own threshold and its own `predict`. The models are a sample of the
retrained models that could come; the statements are about all of them. That is only true of models
that had no part in finding the answers, and that are different ones: see `independence`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from html import escape
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pandas as pd

from holdfast._core.binomial import exact_interval, lower_bound, models_needed
from holdfast._core.checks import did_you_mean
from holdfast._core.parquet import damage_named, read_sealed
from holdfast._core.progress import Progress
from holdfast._core.result import as_json
from holdfast.auditing import certificates, files
from holdfast.auditing.independence import counted, refuse_guides
from holdfast.auditing.verdicts import (
    Array,
    Rule,
    asked,
    by_row,
    existing,
    verdicts_and_scores,
)
from holdfast.counterfactuals import Counterfactuals
from holdfast.datasets import records
from holdfast.errors import SettingError
from holdfast.models.base import Model, ModelLike
from holdfast.retraining.bank import ModelBank
from holdfast.retraining.families import FAMILIES
from holdfast.target import Status

Judges = ModelBank | Model | ModelLike | Sequence[Model | ModelLike]
FEW = 10  # models that a table shows one by one, where they are too few for a certificate


class HasAnswers(Protocol):
    """What has answers among other things, such as `Plans`."""

    @property
    def cfs(self) -> Counterfactuals: ...


def audit(
    cfs: Counterfactuals | HasAnswers,
    bank: Judges,
    *,
    rule: Rule = "target",
    progress: bool = False,
) -> "Audit":
    """Ask every model of a bank whether it accepts each answer.

    Args:
        cfs: answers of any method, or the `Plans` of a `Recourse`.
        bank: retrained models with the same schema and classes; none of them may have guided the
            search, and copies count once. Or one or several existing models, such as the next
            release.
        rule: when a model accepts an answer: "target", if it gives all that was asked for, with
            its probability, margin or range; or "class", if it gives the class.
        progress: show a bar on stderr.

    Returns:
        An `Audit`: survival per answer and per family with exact intervals, certificates, plots.

    >>> import holdfast as hf
    >>> data = hf.datasets.overlapping(n=200)
    >>> recipe = hf.Recipe(hidden=[], epochs=20, lr=0.1)
    >>> model = recipe.fit(data.X, data.y, data.schema)
    >>> cfs = hf.Descent().explain(model, data.X[model.predict(data.X) == "no"].head(5), "yes")
    >>> families = {"seed": 30, "bootstrap": 30}
    >>> bank = hf.ModelBank.retrain(recipe, data.X, data.y, data.schema, families=families)
    >>> found = hf.audit(cfs, bank)
    >>> found.table().columns.tolist()
    ['status', 'survival', 'models', 'bound', 'certified', 'seed', 'bootstrap']
    """
    given: Any = bank
    if not isinstance(cfs, Counterfactuals):
        cfs = getattr(cfs, "cfs", cfs)
    if not isinstance(cfs, Counterfactuals) or isinstance(given, Counterfactuals | None):
        raise SettingError(
            f"audit takes answers and a ModelBank, or models, got {type(cfs).__name__} and "
            f"{type(bank).__name__}; make a bank with hf.ModelBank.retrain(...)"
        )
    judges = bank if isinstance(bank, ModelBank) else existing(cfs, bank)
    judges.check_fits(cfs)
    refuse_guides(cfs, judges)
    return _audits(cfs, judges, rule, (None,), progress)[0]


def audit_at(cfs: Counterfactuals, bank: ModelBank, spreads: Sequence[float]) -> "list[Audit]":
    """Put every answer before judges led so many times as far away from the model in use, once for
    each spread; the models are asked once."""
    bank.check_fits(cfs)
    refuse_guides(cfs, bank)
    return _audits(cfs, bank, "target", spreads, progress=False)


def _audits(
    cfs: Counterfactuals,
    judges: ModelBank,
    rule: Rule,
    spreads: Sequence[float | None],
    progress: bool,
) -> "list[Audit]":
    """One audit for each spread; None is the judges' own."""
    with Progress(progress, "auditing") as bar:
        bar.total(len(judges.groups))
        held, scores = verdicts_and_scores(cfs, judges, asked(cfs, rule), bar, spreads)
    kept, repeats = counted(judges, scores)
    own = max(group.spread for group in judges.groups)
    family = judges.family[kept]
    return [
        Audit(cfs, one[kept], family, judges.fingerprint(), rule, repeats, own if s is None else s)
        for one, s in zip(held, spreads, strict=True)
    ]


@dataclass(frozen=True, eq=False, repr=False)
class Audit:
    """Which model accepts which answer, and what follows from it.

    Args:
        cfs: the answers.
        held: (M, n) does model m give answer i the wanted outcome?
        family: (M,) the family of each model.
        bank: fingerprint of the bank.
        rule: when a model accepts an answer: if it gives all that was asked for ("target"), or
            the "class" alone.
        repeats: (M,) models that compute the same as another one and may be that model: their
            refusals count, their acceptance does not make an answer surer. None: there are none.
        spread: how many times as far from the model in use the judges of the family `stretch` or
            `fresh` lie.

    >>> import holdfast as hf, numpy as np
    >>> data = hf.datasets.linearly_separable(n=200)
    >>> model = hf.train_network(data.X, data.y, data.schema, hidden=[], epochs=20, lr=0.1)
    >>> cfs = hf.Descent().explain(model, data.X[model.predict(data.X) == "no"].head(2), "yes")
    >>> held = np.array([[True, True]] * 60 + [[True, False]] * 40)  # 40 refuse the second answer
    >>> found = hf.Audit(cfs, held, np.array(["seed"] * 100), "a bank")
    >>> found.survival().tolist(), found.certified().tolist()
    ([1.0, 0.6], [True, False])
    """

    cfs: Counterfactuals
    held: Array
    family: Array
    bank: str
    rule: Rule = "target"
    repeats: Array | None = None
    spread: float = 1.0

    @property
    def asked(self) -> str:
        """What a model must give to accept an answer: 'approved with probability 0.8', or the
        class alone."""
        return (
            self.cfs.run.target
            if self.rule == "target"
            else f"the class alone, of: {self.cfs.run.target}"
        )

    @property
    def families(self) -> list[str]:
        """The names of the families, in the order of the bank."""
        return list(dict.fromkeys(self.family.tolist()))

    def _models(self, family: str | None) -> Array:
        if family is None:
            return np.ones(len(self.family), bool)
        if family not in self.families:
            raise SettingError(
                f"the audit has no family {family!r}; {did_you_mean(family, self.families)}"
            )
        return self.family == family

    def survival(self, family: str | None = None) -> "pd.Series[float]":
        """The share of models that accept each answer; missing where there is no answer."""
        share = self.held[self._models(family)].mean(0)
        return pd.Series(
            np.where(self.cfs.answered, share, np.nan), self.cfs.after.index, name="survival"
        )

    def interval(self, family: str | None = None, *, confidence: float = 0.95) -> pd.DataFrame:
        """Exact two-sided interval of each answer's survival."""
        kept = self.held[self._models(family)]
        low, high = exact_interval(kept.sum(0), len(kept), confidence)
        low[~self.cfs.answered] = np.nan
        high[~self.cfs.answered] = np.nan
        return pd.DataFrame({"low": low, "high": high}, self.cfs.after.index)

    def bound(self, *, confidence: float = 0.95, family: str | None = None) -> "pd.Series[float]":
        """With this confidence, at least this share of all such models accepts each answer: what
        certificates rest on. Exact, one-sided; missing where there is no answer."""
        chosen = self._models(family)
        counts = chosen if self.repeats is None else chosen & ~self.repeats
        accepted = self.held[counts].sum(0)
        refused = (~self.held[chosen]).sum(0)
        low = lower_bound(accepted, accepted + refused, confidence)
        low[~self.cfs.answered] = np.nan
        return pd.Series(low, self.cfs.after.index, name="bound")

    def certified(
        self, *, hold: float = 0.95, confidence: float = 0.95, family: str | None = None
    ) -> "pd.Series[bool]":
        """Which answers at least this share of all retrained models accepts, with this confidence.

        The statement is about each answer on its own, and about models drawn as those of the bank
        (or of one of its families) were; see `statement` for what that covers. Answers that are not
        certified may still be good: these models cannot tell. Too few models for any certificate
        are an error that says how many are needed.
        """
        too_few = self.too_few(hold=hold, confidence=confidence, family=family)
        if too_few:
            raise SettingError(too_few)
        bound = self.bound(confidence=confidence, family=family)
        return pd.Series(bound.to_numpy() >= hold, self.cfs.after.index, name="certified")

    def too_few(
        self, *, hold: float = 0.95, confidence: float = 0.95, family: str | None = None
    ) -> str:
        """Why no answer can be certified at this level, and how many models that takes; '' if there
        are enough."""
        chosen = self._models(family)
        needed = models_needed(hold, confidence)
        there = int(chosen.sum() if self.repeats is None else (chosen & ~self.repeats).sum())
        if there >= needed:
            return ""
        families = self.families if family is None else [family]
        level = certificates.level(hold, confidence, families)
        name = family if family in FAMILIES else "retrain"
        return (
            f"a certificate that an answer {level} needs at least {needed} models, and there are "
            f"{there}; make more, as with families={{{name!r}: {needed}}}, or ask for less"
        )

    def statement(self, *, hold: float = 0.95, confidence: float = 0.95) -> str:
        """What is certified, or why nothing can be, and what a certificate covers."""
        too_few = self.too_few(hold=hold, confidence=confidence)
        if too_few:
            return f"No certificates: {too_few}."
        certified = int(self.certified(hold=hold, confidence=confidence).sum())
        what = f"{certified} of {int(self.cfs.answered.sum())} answers are certified"
        level = certificates.level(hold, confidence, self.families)
        return f"{what}: each {level}. {certificates.covers(self.families)}"

    def by_model(self) -> pd.DataFrame:
        """One line per row and one column per model: does it accept the answer? None where there is
        no answer."""
        count = pd.Series(self.family)
        places = pd.Series(self.family).groupby(self.family).cumcount() + 1
        alone = ~count.duplicated(keep=False)
        names = [
            name if one else f"{name} {i}"
            for name, one, i in zip(count, alone, places, strict=True)
        ]
        verdicts = self.held.T.astype(object)
        verdicts[~self.cfs.answered] = None
        return pd.DataFrame(verdicts, self.cfs.after.index, pd.Index(names))

    def table(self, *, hold: float = 0.95, confidence: float = 0.95) -> pd.DataFrame:
        """One line per row: its status, its survival over all models and their number, the bound
        that a certificate rests on, whether it is certified (None if there are too few models
        for that), then its survival over each family; with few models, which of them accept it."""
        out = pd.DataFrame({"status": self.cfs.status["status"], "survival": self.survival()})
        out["models"] = len(self.held)
        # not a join: a row with several answers appears several times
        out["bound"] = self.bound(confidence=confidence)
        too_few = bool(self.too_few(hold=hold, confidence=confidence))
        out["certified"] = None if too_few else self.certified(hold=hold, confidence=confidence)
        if too_few and len(self.held) <= FEW:
            return out.assign(**{str(name): values for name, values in self.by_model().items()})
        for name in self.families if len(self.families) > 1 else ():
            out[name] = self.survival(name)
        return out

    def by_family(self) -> pd.DataFrame:
        """Coverage, base validity, survival and end-to-end robustness, over all models and per
        family.

        coverage: rows for which the method proposes a change, of those that needed one; base
        validity: of these, rows with a proposal that the model itself accepts; survival: accepted
        answers times models that still accept them, with its standard deviation over models and the
        worst model; end to end: all rows that needed an answer times models under which they have
        one that holds.
        """
        cfs = self.cfs
        unmet = cfs.status_codes != Status.ALREADY_MET
        needed = by_row(cfs, unmet)
        found = by_row(cfs, self.cfs.answered)
        proposed = by_row(cfs, unmet & (cfs.x_cf != cfs.x).any(1).numpy())
        lines = dict[str, dict[str, float]]()
        for name in ("all", *(self.families if len(self.families) > 1 else ())):
            held = self.held[self._models(None if name == "all" else name)]
            per_model = _per_model(held[:, self.cfs.answered])
            holding = by_row(cfs, self.cfs.answered & held)[:, needed]
            lines[name] = {
                "coverage": _share(proposed[needed]),
                "base validity": _share(found[proposed]),
                "survival": float(per_model.mean()),
                "spread": float(per_model.std()),
                "worst model": float(per_model.min()),
                "end to end": _share(holding),
                "models": len(held),
            }
        return (
            pd.DataFrame.from_dict(lines, orient="index")
            .astype({"models": int})
            .rename_axis("family")
        )

    def invalidation(self) -> dict[str, tuple[float, float]]:
        """Mean and standard deviation over models of the share of answers lost, per family."""
        lost = {
            name: 1 - _per_model(self.held[self._models(name)][:, self.cfs.answered])
            for name in self.families
        }
        return {name: (float(values.mean()), float(values.std())) for name, values in lost.items()}

    def to_dict(self, *, hold: float = 0.95, confidence: float = 0.95) -> dict[str, Any]:
        """Everything but the pictures, as plain values, not rounded."""
        answers = self.table(hold=hold, confidence=confidence)
        too_few = bool(self.too_few(hold=hold, confidence=confidence))
        answers.insert(0, "row", [str(name) for name in answers.index])
        families = self.by_family()
        return {
            "bank": self.bank,
            "method": self.cfs.run.settings,
            "rule": self.rule,
            "asked": self.asked,
            "certified": {
                "hold": hold,
                "confidence": confidence,
                "answers": None if too_few else int(answers["certified"].sum()),
                "models needed": models_needed(hold, confidence),
            },
            "statement": self.statement(hold=hold, confidence=confidence),
            "covers": certificates.covers(self.families),
            "by family": dict(zip(families.index, records(families), strict=True)),
            "answers": records(answers),
        }

    def to_json(
        self, path: str | Path | None = None, *, hold: float = 0.95, confidence: float = 0.95
    ) -> str:
        """The same as JSON, written to a file where there is one to write to."""
        return as_json(self.to_dict(hold=hold, confidence=confidence), path)

    def plot(self, *, hold: float = 0.95, confidence: float = 0.95) -> Any:
        """Survival against cost, one dot per answer; needs the `plot` extra."""
        from holdfast.render.charts.audit import survival_cost

        return survival_cost(self, hold=hold, confidence=confidence)

    def report(self, path: str | Path, *, hold: float = 0.95, confidence: float = 0.95) -> Path:
        """Write a self-contained page: what is certified, survival against cost, and the table;
        needs the `plot` extra."""
        from holdfast.render.result_page import audit_page

        return audit_page(self, Path(path), hold=hold, confidence=confidence)

    def joined(self, other: "Audit") -> "Audit":
        """One audit of the same answers by the models of both."""
        if other.held.shape[1] != self.held.shape[1]:
            raise SettingError("only audits of the same answers can be combined")
        repeats = list[Array]()
        for one in (self, other):
            none = np.zeros(len(one.family), dtype=bool)
            repeats.append(none if one.repeats is None else one.repeats)
        return replace(
            self,
            held=np.concatenate([self.held, other.held]),
            family=np.concatenate([self.family, other.family]),
            bank=f"{self.bank}+{other.bank}",
            repeats=np.concatenate(repeats),
        )

    # ---- files

    def save(self, path: str | Path) -> None:
        """Write a `.parquet` file with everything, which `load` reads; or `.json`, what `to_json`
        gives.

        The Parquet file is that of the answers with the verdicts beside them:
        `Counterfactuals.load` reads it as well.
        """
        path = Path(path)
        if files.known_ending(path, (".parquet", ".json")) == ".json":
            self.to_json(path)
            return
        files.write(path, self)

    @classmethod
    def load(cls, path: str | Path) -> "Audit":
        """Read a .parquet file written by `save`."""
        otherwise = "holds answers and no audit of them; it was not written by Audit.save"
        table = read_sealed(path, files.MARK, otherwise)
        with damage_named(path):
            return cls(*files.arguments_in(table))

    # ---- in words

    def summary(self, *, hold: float = 0.95, confidence: float = 0.95) -> str:
        """A few lines: answers, models by family, what they must give, survival, and how many
        answers are certified."""
        kinds = ", ".join(f"{name}: {int((self.family == name).sum())}" for name in self.families)
        answers = int(self.cfs.answered.sum())
        rows = len(np.unique(self.cfs.source))
        lines = [
            f"Audit of {answers} answers for {rows} rows on {len(self.held)} models ({kinds})",
            f"What a model must give: {self.asked} (rule: {self.rule})",
            self.by_family().to_string(float_format=lambda v: f"{v:.4g}"),
            self.statement(hold=hold, confidence=confidence),
        ]
        return "\n".join(lines)

    def __repr__(self) -> str:
        return self.summary()

    def _repr_html_(self) -> str:
        table = self.by_family().to_html(float_format=lambda v: f"{v:.4g}", border=0)
        rule = f"What a model must give: {self.asked} (rule: {self.rule})"
        return f"<p>{escape(rule)}</p>{table}<p>{escape(self.statement())}</p>"


def _share(flags: Array) -> float:
    return float(flags.mean()) if flags.size else float("nan")


def _per_model(kept: Array) -> Array:
    """(M, answers) -> the share of answers that each model accepts; NaN without answers."""
    return kept.mean(1) if kept.shape[1] else np.full(len(kept), np.nan)
