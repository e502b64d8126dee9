"""The training of banks for one model in use: made again, compared, split.

A run has everything that the model was made from; families of models are made from it. The first
ones are made on the very rows in use, to see whether it is the same model that comes out.
"""

import time as clock
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pandas as pd

from holdfast._core.progress import Progress
from holdfast._core.types import Outcomes
from holdfast.auditing.likeness import AGAIN, DRAWN_AGAIN, likeness
from holdfast.errors import SettingError
from holdfast.models.base import Model
from holdfast.models.black_box import BlackBox
from holdfast.plans.trained import TrainedBanks
from holdfast.retraining.bank import ModelBank
from holdfast.retraining.base_run import BaseRun
from holdfast.retraining.estimators import OwnFit
from holdfast.retraining.next_training import Unit, class_counts, fresh_rows, share_from_rows
from holdfast.retraining.outcomes import as_named, outcomes
from holdfast.retraining.recipe import Recipe
from holdfast.retraining.row_facts import warnings_about
from holdfast.retraining.split import BankSplit

if TYPE_CHECKING:
    from holdfast.plans.banks import Banks

ROWS = 500  # training rows by which models are compared
NOT_COMPARED = (
    "Nobody has compared these retrained models with the model in use: pass X, the rows it was "
    "trained on."
)


@dataclass(frozen=True, eq=False)
class Training:
    """The training of banks for one model: what it was made from, and what plans are to hold."""

    banks: "Banks"
    model: Model
    X: pd.DataFrame | None
    y: Outcomes | None
    hold: float
    confidence: float
    seed: int
    progress: bool

    def train(self) -> TrainedBanks:
        """Retrain, compare, split.

        The order matters: models are made again on the same rows first, by which it is known how
        far seeds alone lead; of judges of fewer rows the spread has to be known before they are
        made, of stretched ones only afterwards.
        """
        start = clock.perf_counter()
        notes = list[str]()
        kind: str = self.banks.kind(self.model)
        from_rows = 1.0
        warnings: tuple[str, ...] = ()
        spread = self.spread(kind, from_rows)
        run = self.run(spread)
        if self.banks.recipe is None and self.banks.fit is None:
            self._note(notes, assumed(self.model, run.recipe))
        # seeds alone, on the rows in use: is it the same model that comes out?
        again = self.retrained(run, {"seed_and_order": AGAIN}, spread)
        if kind == "fresh":
            drawn = self.retrained(run, {"retrain": DRAWN_AGAIN}, spread)
            from_rows = self._share_from_rows(run, again, drawn)
            kind, warnings = self._stretch_if_rows_are_few(run, from_rows)
            spread = self.spread(kind, from_rows)
            run = self.run(spread)
        counts = self.banks.counts(self.model, self.hold, self.confidence)
        total = sum(counts.values())
        self._say(self._what_is_done(total, counts))
        split = self._split(run, kind, counts, spread)
        used = run.in_use()
        today = of_today(split.guide)
        alike = likeness(self.model, today, again, used.X, used.y)
        if kind == "stretch":
            from_rows = self._share_from_rows(run, again, today)
            spread = self.spread(kind, from_rows)
        warnings += warnings_about(used)
        for text in (alike.words(), *warnings):
            self._note(notes, text)
        seconds = clock.perf_counter() - start
        self._note(notes, f"retrained {total} models in {seconds:.1f} s")
        judging = self.judging(split, kind, spread)
        return TrainedBanks(judging, kind, counts, spread, from_rows, alike, warnings, tuple(notes))

    def ready_made(self, bank: BankSplit | ModelBank) -> TrainedBanks:
        """Models that are there, compared with the model in use by the rows that there are."""
        counts = self.banks.counts(self.model, self.hold, self.confidence)
        split = bank.split(**counts) if isinstance(bank, ModelBank) else bank
        kind = self.banks.kind(self.model)
        spread = self.spread(kind, 1.0)
        if self.X is None:
            return TrainedBanks(split, kind, counts, spread, warnings=(NOT_COMPARED,))
        y = None if self.y is None else outcomes(self.X, named(self.model, self.X, self.y))
        table = self.model.schema.as_table(self.X)
        alike = likeness(self.model, of_today(split.guide), None, table, y)
        notes = list[str]()
        self._note(notes, alike.words())
        return TrainedBanks(split, kind, counts, spread, likeness=alike, notes=tuple(notes))

    def more_judges(self, trained: TrainedBanks, models: range) -> ModelBank:
        """Judges of the same kind as those that were trained, by their numbers."""
        made = "fresh" if trained.kind == "fresh" else "retrain"
        more = self.retrained(self.run(trained.spread), {made: models}, trained.spread)
        none = more[:0]
        return self.judging(BankSplit(none, none, more), trained.kind, trained.spread).audit

    # ---- its steps

    def spread(self, kind: str, from_rows: float) -> float:
        """How far judges lie from the model in use, by what is known of it so far."""
        return self.banks.spread(self.model, kind, self.hold, self.confidence, from_rows)

    def run(self, spread: float) -> BaseRun:
        """What the model in use was made from."""
        X, y = self._data()
        banks = self.banks
        given: Any = self.model if banks.recipe is None else banks.recipe
        if banks.fit is not None:
            inputs = self.model.inputs if isinstance(self.model, BlackBox) else "frame"
            given = Recipe(estimator=OwnFit(banks.fit), inputs=inputs)
        return BaseRun.of(
            given,
            X,
            named(self.model, X, y),
            self.model.schema,
            self.model.classes or None,
            self.seed,
            **banks.about_rows,
            spread=spread,
        )

    def retrained(
        self, run: BaseRun, families: Mapping[str, int | range], spread: float
    ) -> ModelBank:
        """Models of these families, from a run in which everything is settled."""
        X, y = self._data()
        banks = self.banks
        return ModelBank.retrain(
            run.recipe,
            X,
            named(self.model, X, y),
            self.model.schema,
            families=families,
            classes=self.model.classes or None,
            seed=self.seed,
            **banks.about_rows,
            spread=spread,
            workers=banks.workers,
            progress=self.progress,
            cache=banks.cache,
        )

    def judging(self, parts: BankSplit, kind: str, spread: float) -> BankSplit:
        """Retrained models as judges of a kind."""
        if kind != "stretch":
            return parts
        return BankSplit(*(part.stretched(self.model, spread) for part in parts))

    def _split(
        self, run: BaseRun, kind: str, counts: Mapping[str, int], spread: float
    ) -> BankSplit:
        """All models, made and split; where rows have a time, half of the guides learn from earlier
        data."""
        made = "fresh" if kind == "fresh" else "retrain"
        history = counts["guide"] // 2 if self.banks.time is not None else 0
        families = {made: sum(counts.values()) - history}
        parts: dict[str, Any] = dict(counts)
        if history:
            families["history"] = history
            parts["guide"] = {made: counts["guide"] - history, "history": history}
            for part in ("calibration", "audit"):
                parts[part] = {made: counts[part]}
        return self.retrained(run, families, spread).split(**parts)

    def _share_from_rows(self, run: BaseRun, again: ModelBank, drawn: ModelBank) -> float:
        """How far retrained models differ by their rows, and how far by their seeds."""
        used = run.in_use()
        rows = np.linspace(0, len(used.X) - 1, min(ROWS, len(used.X))).astype(int)
        table = used.X.iloc[rows]
        unit: Unit = "logits"
        if self.model.labels_only:
            unit = "classes"
        elif self.model.counts_votes:
            unit = "shares"
        return share_from_rows(again.scores(table), drawn.scores(table), unit)

    def _stretch_if_rows_are_few(
        self, run: BaseRun, from_rows: float
    ) -> tuple[str, tuple[str, ...]]:
        """Where models of fewer rows cannot be trained, bootstraps led away from the model in use
        take over; with a warning then."""
        used = run.in_use()
        spread = self.spread("fresh", from_rows)
        try:
            fresh_rows(len(used.X), spread, class_counts(used.labels, len(used.classes)))
        except SettingError as error:
            if self.model.labels_only:
                raise
            return "stretch", (f"Judged by the family 'stretch': {error}.",)
        return "fresh", ()

    def _data(self) -> tuple[pd.DataFrame, Outcomes]:
        if self.X is None or self.y is None:
            raise SettingError(
                "Recourse needs X and y, the rows that the model was trained on, to retrain it"
            )
        return self.X, self.y

    # ---- what it says

    def _what_is_done(self, total: int, counts: Mapping[str, int]) -> str:
        """'retraining 34 models (4 guide, 14 calibration, 16 audit)'"""
        parts = ", ".join(f"{count} {name}" for name, count in counts.items())
        text = f"retraining {total} models ({parts})"
        cache = self.banks.cache
        if cache is not None and Path(cache).is_dir():
            return f"{text}, as far as {str(cache)!r} does not have them yet"
        return text

    def _note(self, notes: list[str], text: str) -> None:
        """Remember what was done, and say it."""
        if text:
            notes.append(text)
            self._say(text)

    def _say(self, text: str) -> None:
        with Progress("lines" if self.progress else False, "holdfast") as bar:
            bar.say(text)


def of_today(guide: ModelBank) -> ModelBank:
    """A guide without its models of earlier data: these are to add to the spread that the search
    counts, so that a plan is surer for them, and not to be calibrated away."""
    today = [name for name in guide.families if name != "history"]
    return guide.subset(today) if today else guide


def named(model: Model, X: pd.DataFrame, y: Outcomes) -> Outcomes:
    """Outcomes under the names of the model's classes, where they are in those that it learnt."""
    if model.is_regression:
        return y
    learnt = getattr(model.wrapped, "classes_", None) if isinstance(model, BlackBox) else None
    if learnt is None:
        learnt = range(len(model.classes))
    return cast(Outcomes, as_named(outcomes(X, y), learnt, model.classes))


def assumed(model: Model, recipe: Recipe) -> str:
    """What is assumed about how a model was trained; '' if the model says it itself."""
    if recipe.estimator is not None:
        return ""
    loop = (
        f"{recipe.epochs} epochs of {recipe.optimizer} at {recipe.lr:g}, {recipe.batch_size} rows "
        "at a time"
    )
    return (
        f"the network ({model.name}) does not say how it was trained; it is assumed to be {loop}. "
        "Pass a recipe to settle it"
    )
