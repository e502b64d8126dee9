"""From a fitted model to plans that hold, in one call.

    recourse = hf.Recourse(pipeline, X_train, y_train, fixed=["sex"], up=["age"], hold=0.95)
    plans = recourse.plans(X_denied, target="approved")

What happens: the schema is read off the table; the model is retrained many times; some of these
models guide the search for plans of several safety margins (`SurvivalSearch`), others choose for
each person the cheapest of these that will hold (`choose`), and others again, which had no part in
it, say which plans do hold (`audit`). Every part can be given ready-made instead.
"""

import json
import math
import os
import time as clock
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Unpack, cast

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from holdfast._core.checks import untyped
from holdfast._core.files import whole_folder
from holdfast._core.progress import Progress
from holdfast._core.version import version
from holdfast.auditing import certificates
from holdfast.auditing.audit import audit, models_needed
from holdfast.auditing.calibration import USUAL, replace_c
from holdfast.auditing.choice import choose
from holdfast.auditing.likeness import AGAIN, DRAWN_AGAIN, Likeness, likeness
from holdfast.errors import FileError, SettingError
from holdfast.explainer import Explainer
from holdfast.methods.survival_search.search import SurvivalSearch
from holdfast.models.base import Model
from holdfast.models.black_box import BlackBox
from holdfast.models.torch_model import TorchModel
from holdfast.plans.frontier import Frontier
from holdfast.plans.plans import Plans
from holdfast.problem import Outcomes
from holdfast.retraining.bank import BankSplit, ModelBank
from holdfast.retraining.base_run import BaseRun
from holdfast.retraining.estimators import OwnFit
from holdfast.retraining.families import family
from holdfast.retraining.next_training import (
    ALLOWANCES,
    Unit,
    class_counts,
    fresh_rows,
    share_from_rows,
    spread_for,
    spread_of_rows,
)
from holdfast.retraining.outcomes import as_named, outcomes
from holdfast.retraining.recipe import Recipe
from holdfast.retraining.row_facts import RowFacts, warnings_about
from holdfast.schema.infer import Settings
from holdfast.schema.schema import Schema
from holdfast.target import Label, Target, TargetLike

# models that guide the search: it finds out what few of them have in common by accident
GUIDES = 160
# Models that choose and models that audit, at least; more where the level needs them.
CHOOSING = 400
AUDITING = 600
NETWORKS = 1000  # of each, of which all are trained at once
# The c of the plans among which a person's is chosen, as multiples of what normal margins would
# take.
MARGINS = (0.6, 0.75, 0.9, 1.05, 1.2, 1.35, 1.5, 1.8, 2.4)
LEAST_MARGIN = 0.5
ROWS = 500  # training rows by which models are compared
LEVELS = (0.8, 0.9, 0.95, 0.99)  # of a frontier
STEPS = tuple(i / 2 for i in range(9))  # c of a frontier
Kind = Literal["auto", "stretch", "fresh", "retrain"]
KINDS: tuple[Kind, ...] = ("auto", "stretch", "fresh", "retrain")
SETTINGS = "recourse.json"
NOT_COMPARED = (
    "Nobody has compared these retrained models with the model in use: pass X, the rows it was "
    "trained on."
)
SPARE = 1.7  # times as many as a certificate needs if all of them agree: some may not


class Recourse:
    """Plans that hold when the model is retrained, for any model.

    Args:
        model: a fitted estimator, pipeline, booster or torch module, a `Model`, or a `Recipe`,
            which is fitted here.
        X, y: the rows and outcomes that the model was trained on.
        schema: what rows are; left out, read off the table with the settings below.
        recipe: how the model is made again; left out, from the settings of the model itself.
        bank: retrained models, ready-made: a `BankSplit`, or a `ModelBank` to be split.
        method: a method to search with, ready-made; a `SurvivalSearch` keeps its c.
        hold: the share of retrained models that is to accept a plan.
        confidence: of the certificates.
        models: how many models guide, choose ("calibration") and audit, such as {"guide": 80}.
        classes: names of the classes, as for `Model.of`.
        time: how old rows are: a column of X or one value per row. Models of earlier data guide the
            search then, and rows of one time, or of neighbouring times, are drawn together.
        groups: which rows belong together, such as those of one person: a column of X, or one value
            per row. They are drawn together.
        sample_weight: how much each row counted when the model was trained: a column of X, or one
            number per row.
        fit_params: what else its `fit` was given; of values of which there is one for each row,
            those of rows drawn.
        fit: a function of your own, `fit(X, y, seed)`, that trains the model and returns it, in
            place of a recipe.
        family: the judges. "stretch" and "fresh" stand for models of new data of the same kind:
            bootstraps of the table led away from the model in use, and models of fewer rows.
            "retrain" are bootstraps as they are, for the question whether plans hold when the model
            is trained on the same table again. Left out: "stretch", and "fresh" for models that
            give classes and no scores.
        window: on how many of the newest periods the model was trained, see `ModelBank.retrain`.
        cache: a folder that keeps the retrained models; None keeps none.
        seed: of all random numbers.
        workers: how many estimators are retrained at once; left out: as many as there are cores.
        progress: show bars, and say what will be done, how long that takes and what was done, on
            stderr.
        settings: `fixed`, `up`, `down`, `bounds` and whatever else `Schema.infer` takes.

    >>> import holdfast as hf
    >>> from sklearn.linear_model import LogisticRegression
    >>> data = hf.datasets.overlapping(n=300)
    >>> clerk = LogisticRegression().fit(data.X, data.y)
    >>> recourse = hf.Recourse(clerk, data.X, data.y, hold=0.9)
    >>> plans = recourse.plans(data.X[clerk.predict(data.X) == "no"].head(5), "yes")
    >>> plans.table()["status"].tolist()
    ['found', 'found', 'found', 'found', 'found']
    """

    def __init__(
        self,
        model: Any,
        X: pd.DataFrame | None = None,
        y: Outcomes | None = None,
        *,
        schema: Schema | None = None,
        recipe: Recipe | None = None,
        bank: BankSplit | ModelBank | None = None,
        method: Explainer | None = None,
        hold: float = 0.95,
        confidence: float = 0.95,
        models: Mapping[str, int] | None = None,
        classes: Sequence[Label] | None = None,
        time: str | ArrayLike | None = None,
        window: int | None = None,
        groups: str | ArrayLike | None = None,
        sample_weight: str | ArrayLike | None = None,
        fit_params: Mapping[str, Any] | None = None,
        fit: Callable[..., Any] | None = None,
        family: Kind = "auto",
        cache: str | Path | None = None,
        seed: int = 0,
        workers: int | None = None,
        progress: bool = False,
        **settings: Unpack[Settings],
    ) -> None:
        models_needed(hold, confidence)  # an error where they are no shares
        if family not in KINDS:
            raise SettingError(f"family must be one of {', '.join(KINDS)}, got {family!r}")
        self.family: Kind = family
        if fit is not None and recipe is not None:
            raise SettingError("pass fit=, a function that trains the model, or recipe=, not both")
        self.groups = groups
        self.sample_weight = sample_weight
        self.fit_params = fit_params
        self.fit = fit
        self.likeness: Likeness | None = None
        self.from_rows = 1.0
        self.warnings: tuple[str, ...] = ()
        self.X = X
        self.y = y
        self.time = time
        self.window = window
        self.hold = hold
        self.confidence = confidence
        self.seed = seed
        self.cache = cache
        self.workers = workers
        self.progress = progress
        self.model = self._model(model, schema, classes, settings)
        self.recipe = recipe if recipe is not None else model if isinstance(model, Recipe) else None
        self.counts = self._counts(models or {})
        self.notes: list[str] = []
        self._split = bank.split(**self.counts) if isinstance(bank, ModelBank) else bank
        # of a folder, and what was read so far
        self._files = dict[str, Path]()
        self._parts = dict[str, ModelBank]()
        self._method = method

    # ---- what it is made of

    @property
    def schema(self) -> Schema:
        """What rows are, and what people can change."""
        return self.model.schema

    def _model(
        self, given: Any, schema: Schema | None, classes: Sequence[Label] | None, settings: Settings
    ) -> Model:
        if isinstance(given, Model):
            return given.with_schema(_changed(given.schema, settings)) if settings else given
        if schema is None:
            hint = "pass X, the rows that it was trained on, or schema="
            if self.X is None:
                raise SettingError(
                    f"a {type(given).__name__} does not say what its columns are; {hint}"
                )
            known = getattr(given, "feature_names_in_", None)
            about_rows = [self.time, self.groups, self.sample_weight]
            extra = {
                name
                for name in about_rows
                if isinstance(name, str) and (known is None or name not in known)
            }
            schema = Schema.infer(
                self.X.drop(columns=list(extra & set(self.X.columns))), **settings
            )
        elif settings:
            schema = _changed(schema, settings)
        if isinstance(given, Recipe):
            X, y = self._data("to fit the recipe")
            facts = RowFacts.of(X, schema, self.time, self.groups, self.sample_weight)
            weight = None if facts.weight is None else facts.weight.numpy()
            return given.fit(
                facts.table,
                y,
                schema,
                classes=classes,
                seed=self.seed,
                sample_weight=weight,
                fit_params=self.fit_params,
            )
        return Model.of(given, schema, classes=classes)

    @property
    def kind(self) -> Kind:
        """The family of the judges."""
        if self.family != "auto":
            return self.family
        return "fresh" if self.model.labels_only else "stretch"

    @property
    def spread(self) -> float:
        """How many times as far as bootstraps judges lie from the model in use; those of fewer
        rows, by their rows."""
        if self.kind == "retrain":
            return 1.0
        rule = spread_of_rows if self.kind == "fresh" else spread_for
        smooth = "smooth" if self.model.has_grad else "other"
        allowance = ALLOWANCES["network" if self._is_network else smooth]
        return rule(self.hold, self.confidence, self.from_rows, allowance)

    @property
    def _is_network(self) -> bool:
        recipe = self.recipe
        if self.fit is not None:
            return False
        return isinstance(self.model, TorchModel) if recipe is None else recipe.estimator is None

    def _data(self, why: str) -> tuple[pd.DataFrame, Outcomes]:
        there = self.X is not None and self.y is not None
        if not there:
            raise SettingError(
                f"Recourse needs X and y, the rows that the model was trained on, {why}"
            )
        return cast(pd.DataFrame, self.X), cast(Outcomes, self.y)

    def _counts(self, models: Mapping[str, int]) -> dict[str, int]:
        needed = models_needed(self.hold, self.confidence)
        least = math.ceil(SPARE * needed)
        choosing, auditing = (NETWORKS, NETWORKS) if self._is_network else (CHOOSING, AUDITING)
        usual = {
            "guide": GUIDES,
            "calibration": max(choosing, least),
            "audit": max(auditing, least),
        }
        unknown = [name for name in models if name not in usual]
        if unknown:
            raise SettingError(f"models has no part {unknown[0]!r}; there are {list(usual)}")
        counts = usual | dict(models)
        for part in ("calibration", "audit"):
            if counts[part] < needed:
                what = (
                    f"plans that hold on {100 * self.hold:g}% of models need at least {needed} "
                    "that choose"
                )
                raise SettingError(
                    f"{what}, and that audit; models={{{part!r}: {counts[part]}}} are too few"
                )
        return counts

    @property
    def bank(self) -> BankSplit:
        """The retrained models: those that guide, those that calibrate, those that audit. Made when
        first needed."""
        if self._split is None and self._files:
            self._split = BankSplit(*(self._part(name) for name in BankSplit._fields))
        if self._split is None:
            self._split = self._made()
        return self._split

    def _made(self) -> BankSplit:
        """Retrain the model, compare what came out with it, and split it into parts."""
        start = clock.perf_counter()
        run = self._run()
        self._note(
            _assumed(self.model, run.recipe) if self.recipe is None and self.fit is None else ""
        )
        again = self._retrained(run, {"seed_and_order": AGAIN})
        if self.kind == "fresh":
            self._see_what_rows_do(run, again, self._retrained(run, {"retrain": DRAWN_AGAIN}))
            self._stretch_if_rows_are_few(run)
            run = self._run()
        made = "fresh" if self.kind == "fresh" else "retrain"
        total = sum(self.counts.values())
        history = self.counts["guide"] // 2 if self.time is not None else 0
        families = {made: total - history} | ({"history": history} if history else {})
        counts = ", ".join(f"{n} {name}" for name, n in self.counts.items())
        what = f"retraining {total} models ({counts})"
        self._say(what + (self._time_needed(run, total) if self.progress else ""))
        bank = self._retrained(run, families)
        parts: dict[str, Any] = dict(self.counts)
        if history:
            judges = {name: {made: parts[name]} for name in ("calibration", "audit")}
            parts = {"guide": {made: parts["guide"] - history, "history": history}, **judges}
        split = bank.split(**parts)
        used = run.in_use()
        self.likeness = likeness(self.model, _of_today(split.guide), again, used.X, used.y)
        if self.kind == "stretch":
            self._see_what_rows_do(run, again, _of_today(split.guide))
        self.warnings += warnings_about(used)
        for text in (self.likeness.words(), *self.warnings):
            self._note(text)
        self._note(f"retrained {total} models in {clock.perf_counter() - start:.1f} s")
        return self._judging(split)

    def _compare_ready_made(self) -> None:
        """A bank that was given is compared with the model once, by the rows that there are."""
        if (
            self.likeness is not None
            or self._files
            or self._split is None
            or NOT_COMPARED in self.warnings
        ):
            return
        if self.X is None:
            self.warnings += (NOT_COMPARED,)
            return
        y = None if self.y is None else outcomes(self.X, _named(self.model, self.X, self.y))
        table = self.schema.as_table(self.X)
        self.likeness = likeness(self.model, _of_today(self._split.guide), None, table, y)
        self._note(self.likeness.words())

    def _see_what_rows_do(self, run: BaseRun, again: ModelBank, drawn: ModelBank) -> None:
        """How far retrained models differ by their rows, and how far by their seeds."""
        used = run.in_use()
        rows = np.linspace(0, len(used.X) - 1, min(ROWS, len(used.X))).astype(int)
        table = used.X.iloc[rows]
        unit: Unit = (
            "classes"
            if self.model.labels_only
            else "shares"
            if self.model.counts_votes
            else "logits"
        )
        self.from_rows = share_from_rows(again.scores(table), drawn.scores(table), unit)

    def _stretch_if_rows_are_few(self, run: BaseRun) -> None:
        """Where models of fewer rows cannot be trained, bootstraps led away from the model in use
        take over."""
        if self.kind != "fresh":
            return
        used = run.in_use()
        try:
            fresh_rows(len(used.X), self.spread, class_counts(used.labels, len(used.classes)))
        except SettingError as error:
            if self.model.labels_only:
                raise
            self.family = "stretch"
            self.warnings += (f"Judged by the family 'stretch': {error}.",)

    def _run(self) -> BaseRun:
        """What the model in use was made from."""
        X, y = self._data("to retrain it")
        given: Any = self.recipe if self.recipe is not None else self.model
        if self.fit is not None:
            inputs = self.model.inputs if isinstance(self.model, BlackBox) else "frame"
            given = Recipe(estimator=OwnFit(self.fit), inputs=inputs)
        return BaseRun.of(
            given,
            X,
            _named(self.model, X, y),
            self.schema,
            self.model.classes or None,
            self.seed,
            None,
            self.time,
            self.window,
            groups=self.groups,
            sample_weight=self.sample_weight,
            fit_params=self.fit_params,
            spread=self.spread,
        )

    def _retrained(self, run: BaseRun, families: Mapping[str, int | range]) -> ModelBank:
        """Models of these families, from a run in which everything is settled."""
        X, y = self._data("to retrain it")
        return ModelBank.retrain(
            run.recipe,
            X,
            _named(self.model, X, y),
            self.schema,
            families=families,
            classes=self.model.classes or None,
            seed=self.seed,
            time=self.time,
            window=self.window,
            groups=self.groups,
            sample_weight=self.sample_weight,
            fit_params=self.fit_params,
            spread=self.spread,
            workers=self.workers,
            progress=self.progress,
            cache=self.cache,
        )

    def _judging(self, parts: BankSplit) -> BankSplit:
        """Retrained models as judges of the family that was asked for."""
        if self.kind != "stretch":
            return parts
        return BankSplit(*(part.stretched(self.model, self.spread) for part in parts))

    def _part(self, name: str) -> ModelBank:
        """One part of the bank: of a folder, nothing else is read for it."""
        if self._split is not None or not self._files:
            return getattr(self.bank, name)
        if name not in self._parts:
            there = name in self._files
            self._parts[name] = (
                ModelBank.load(self._files[name]) if there else self._parts["guide"][:0]
            )
        return self._parts[name]

    def _time_needed(self, run: BaseRun, models: int) -> str:
        """', about 40 s': as long as one estimator takes, or one epoch of all networks, so many
        times."""
        if self.cache is not None and Path(self.cache).is_dir():
            return f", as far as {str(self.cache)!r} does not have them yet"
        run, recipe, quiet = run.in_use(), run.recipe, Progress(False, "")

        def timed(count: int, **changed: int) -> float:
            start = clock.perf_counter()
            for variation in family("fresh" if self.kind == "fresh" else "retrain")(
                run, range(count)
            ):
                if recipe.estimator is None:
                    replace(run, recipe=replace(recipe, **changed)).train(variation, quiet)
                else:
                    run.fit_estimators(variation, 1, quiet)
            return clock.perf_counter() - start

        if recipe.estimator is None:
            first = timed(models, epochs=1)  # which has more to do than the others
            seconds = first + (recipe.epochs - 1) * max(0.0, timed(models, epochs=2) - first)
        else:
            seconds = timed(1) * models / (self.workers or os.cpu_count() or 1)
        return f", about {seconds:.0f} s" if seconds >= 1 else ", about a second"

    def _note(self, text: str) -> None:
        """Remember what was done, and say it."""
        if text:
            self.notes.append(text)
            self._say(text)

    def _say(self, text: str) -> None:
        with Progress("lines" if self.progress else False, "holdfast") as bar:
            bar.say(text)

    @cached_property
    def method(self) -> Explainer:
        """The search: for plans of several safety margins, where it is not ready-made."""
        if self._method is not None:
            return self._method
        guide = self._part("guide")
        # Where rows have a time the world is known to change. Models of earlier data guide then,
        # which judges of today know nothing of, so that these do not choose plans of less than the
        # usual margin.
        least = USUAL if "history" in guide.families else 0.0
        return self._ready(SurvivalSearch(guide, c=margins_for(self.hold, least)))

    def _ready(self, search: SurvivalSearch) -> SurvivalSearch:
        if not self.model.has_grad and self.X is not None:
            search.fit(self.model, self.schema.as_table(self.X))
        return search

    # ---- what it gives

    def plans(self, X: pd.DataFrame, target: TargetLike = None) -> Plans:
        """The cheapest plan that holds for every person.

        Args:
            X: the people, as rows of the table.
            target: the wanted class, a `Target`, or None for any class but the present one.
        """
        self._check(X, target)
        self._compare_ready_made()
        several = self.method.explain(self.model, X, target, seed=self.seed, progress=self.progress)
        if self._method is None and len(several):
            first = audit(several, self._part("calibration"))
            judges = len(self._part("audit"))
            cfs = several[choose(first, judges, hold=self.hold, confidence=self.confidence)]
        else:
            cfs = several
        judged = audit(cfs, self._part("audit"))
        return Plans.of(
            judged, self.hold, self.confidence, likeness=self.likeness, warnings=self.warnings
        )

    def more_judges(self, plans: Plans, count: int) -> Plans:
        """The same plans, certified again by so many judges more, without a new search.

        Whoever looks again until a plan is certified will see one certified by luck. So every
        further look is judged at a higher confidence, 1 - (1 - confidence) / 2^looks: all further
        looks together are wrong about a plan as seldom as the first one.

        Args:
            plans: made by this `Recourse`.
            count: how many judges to add.
        """
        made = "fresh" if self.kind == "fresh" else "retrain"
        first = sum(self.counts.values()) + max(0, len(plans.audit.held) - self.counts["audit"])
        more = self._retrained(self._run(), {made: range(first, first + count)})
        judges = self._judging(BankSplit(more[:0], more[:0], more)).audit
        looks = plans.looks + 1
        confidence = 1 - (1 - self.confidence) / 2**looks
        judged = plans.audit.joined(audit(plans.cfs, judges))
        facts: dict[str, Any] = {
            "likeness": plans.likeness,
            "warnings": plans.warnings,
            "looks": looks,
        }
        return Plans.of(judged, self.hold, confidence, **facts)

    def _check(self, X: pd.DataFrame, target: TargetLike) -> None:
        """An error before the work where the model cannot be asked that about these people."""
        with self.model.eval_mode():
            Target.of(target).bind(self.model, self.model.score_frame(self.schema.as_table(X)))

    def frontier(
        self, X: pd.DataFrame, target: TargetLike = None, *, levels: Sequence[float] = LEVELS
    ) -> Frontier:
        """What more certainty costs every person.

        Args:
            X, target: as for `plans`.
            levels: shares of retrained models that are to accept a plan.
        """
        good = len(levels) > 0 and all(0 < level <= 1 for level in levels)
        if not good:
            raise SettingError(f"levels must be shares between 0 and 1, got {levels!r}")
        self._check(X, target)
        search = self.method
        if not isinstance(search, SurvivalSearch):
            raise SettingError(f"a frontier needs a SurvivalSearch, not {search!r}")
        several = replace_c(search, STEPS)
        cfs = several.explain(self.model, X, target, seed=self.seed, progress=self.progress)
        return Frontier(
            audit(cfs, self._part("calibration")),
            audit(cfs, self._part("audit")),
            tuple(sorted(levels)),
        )

    def describe(self) -> str:
        """What it is made of, and what was done so far, with the time it took."""
        level = f"a plan {certificates.level(self.hold, self.confidence, [self.kind])}"
        lines = [f"{self.model!r}", level]
        return "\n".join([*lines, *self.notes])

    def __repr__(self) -> str:
        return f"Recourse({self.model.name}, hold={self.hold:g}, confidence={self.confidence:g})"

    # ---- files

    def save(self, folder: str | Path) -> Path:
        """Write the model and the retrained models to a folder, from which `load` starts at once.
        It runs no code when it is loaded, and holds none of the people; a folder that exists is
        replaced."""
        folder = Path(folder)
        parts = {name: part for name, part in self.bank._asdict().items() if len(part)}
        if "guide" not in parts or "audit" not in parts:
            raise SettingError("a Recourse without models that guide and audit cannot be saved")
        # read together, at once
        parts["guide"] = ModelBank.of(self.model, family="in use").join(parts["guide"])
        content = {
            "holdfast": version(),
            "hold": self.hold,
            "confidence": self.confidence,
            "seed": self.seed,
            "family": self.kind,
            "likeness": None if self.likeness is None else self.likeness.to_dict(),
            "from_rows": self.from_rows,
            "warnings": list(self.warnings),
            "parts": list(parts),
        }
        with whole_folder(folder) as temporary:
            for name, part in parts.items():
                part.save(temporary / f"{name}.bank")
            (temporary / SETTINGS).write_text(
                json.dumps(content, indent=1) + "\n", encoding="utf-8"
            )
        return folder

    @classmethod
    def load(
        cls, folder: str | Path, X: pd.DataFrame | None = None, y: Outcomes | None = None
    ) -> "Recourse":
        """Read a folder written by `save`; with X and y it can add judges. Models that choose and
        audit are read when they are needed."""
        folder = Path(folder)
        try:
            content = json.loads((folder / SETTINGS).read_text(encoding="utf-8"))
            names = list(content["parts"])
            level = {name: float(content[name]) for name in ("hold", "confidence")}
            seed = int(content["seed"])
            kind = content["family"]
            from_rows = float(content["from_rows"])
            like = None if content["likeness"] is None else Likeness(**content["likeness"])
            warnings = tuple(str(text) for text in content["warnings"])
        except FileNotFoundError:
            raise FileError(f"no Recourse at {str(folder)!r}: {SETTINGS} is missing") from None
        except Exception as error:  # the file may say anything
            raise FileError(
                f"{str(folder / SETTINGS)!r} is damaged ({type(error).__name__}: {error})"
            ) from None
        files = {name: folder / f"{name}.bank" for name in BankSplit._fields if name in names}
        missing = [name for name in ("guide", "audit") if name not in files]
        missing += [name for name, file in files.items() if not file.is_file()]
        if missing:
            raise FileError(f"{str(folder)!r} has no part {missing[0] if missing else ''!r}")
        both = ModelBank.load(files["guide"])
        if len(both) <= 1:
            raise FileError(f"{str(files['guide'])!r} has no models that guide")
        out = cls(both.model(0), X, y, seed=seed, family=kind, **cast(Any, level))
        out.likeness = like
        out.warnings = warnings
        out.from_rows = from_rows
        out._files = files
        out._parts = {"guide": both[1:]}
        return out


def margins_for(hold: float, least: float = 0.0) -> tuple[float, ...]:
    """The safety margins of a person's plans, none of them below the least.

    >>> margins_for(0.95)[0], margins_for(0.95)[-1]
    (0.99, 3.95)
    """
    normal = max(LEAST_MARGIN, float(untyped("scipy.stats").norm.ppf(hold)))
    return tuple(sorted({max(least, round(factor * normal, 2)) for factor in MARGINS}))


def _of_today(guide: ModelBank) -> ModelBank:
    """A guide without its models of earlier data: these are to add to the spread that c counts, so
    that a plan is surer for them, and not to be calibrated away."""
    today = [name for name in guide.families if name != "history"]
    return guide.subset(today) if today else guide


def _changed(schema: Schema, settings: Settings) -> Schema:
    """A schema with other features fixed, or free in one direction only."""
    fields: dict[str, Any] = {}
    for word, names in settings.items():
        fix = "give a schema made by Schema.infer(X, ...) for the others"
        if word not in ("fixed", "up", "down"):
            raise SettingError(
                f"with a schema of its own only fixed, up and down can be set; {fix}"
            )
        for name in cast(Iterable[str], names):
            fields[name] = {"change": word}
    return schema.change(**fields)


def _named(model: Model, X: pd.DataFrame, y: Outcomes) -> Outcomes:
    """Outcomes under the names of the model's classes, where they are in those that it learnt."""
    if model.is_regression:
        return y
    own = getattr(model.wrapped, "classes_", None) if isinstance(model, BlackBox) else None
    return as_named(
        outcomes(X, y), range(len(model.classes)) if own is None else own, model.classes
    )


def _assumed(model: Model, recipe: Recipe) -> str:
    """What is taken for granted of how a model was made; '' if it says so itself."""
    if recipe.estimator is not None:
        return ""
    loop = (
        f"{recipe.epochs} epochs of {recipe.optimizer} at {recipe.lr:g}, {recipe.batch_size} rows "
        "at a time"
    )
    return (
        f"the network ({model.name}) does not say how it was trained: taken to be {loop}; a "
        "recipe settles it"
    )
