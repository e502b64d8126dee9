"""The contract of every method: rows in, the same rows out, and one place that decides what counts.

A subclass is a dataclass whose fields are its settings. It writes `search`, which gets the
questions of n people at once and returns n encoded rows (or n x k for k answers each). Everything
else happens here: rows that need no answer are left alone, the rest is searched in batches, what
comes back is turned into the row a person would hand in, and the bare model judges that row.
"""

import time
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Self, final

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from torch import Tensor

from holdfast._core.params import Settings
from holdfast._core.progress import Progress
from holdfast._core.row_random import RowRandom
from holdfast._core.rows import chunks, limited_threads, whole_blocks
from holdfast._core.types import Array, Mask, Outcomes, Rows
from holdfast.counterfactuals import Counterfactuals, Run
from holdfast.errors import ModelError, SettingError
from holdfast.models.base import Model
from holdfast.problem import Found, SearchProblem, TimeBudget, check_limits
from holdfast.schema.schema import Row
from holdfast.schema.user_units import roundings, settle
from holdfast.schema.verify import blocked, violations
from holdfast.target import BoundTarget, Status, Target, TargetLike

Words = npt.NDArray[np.object_]


@dataclass(frozen=True, eq=False)
class Verdicts:
    """What became of n answers, each about one row."""

    already_met: Mask  # the row has the wanted outcome as it is
    met: Mask  # the answer has it
    blocked: Words  # why the row can reach nothing at all, or ''
    broken: Words  # the first promise of the schema that the answer breaks, or ''
    infeasible: Mask
    out_of_time: Mask
    fragile: Array | None = None  # see `Explainer.fragile`

    @property
    def status(self) -> npt.NDArray[np.int64]:
        """(n,) codes of `Status`."""
        failed = ~self.met | (self.broken != "") | (self.blocked != "")
        fragile = np.zeros(len(self.met), bool)
        if self.fragile is not None:
            fragile = np.isfinite(self.fragile)
        proved = failed & self.infeasible & (self.blocked == "")
        cases = {
            Status.ALREADY_MET: self.already_met,
            Status.IMPOSSIBLE: proved,
            Status.NOT_FOUND: failed,
            Status.FRAGILE: fragile,
        }
        return np.select([*cases.values()], [*cases], Status.FOUND).astype(np.int64)

    def reasons(self, best: list[str], advice: str, seconds: float | None) -> list[str]:
        """Why rows have no answer; `best` says what the model gives to the best attempt of each."""
        # The first reason that applies is given: a proof or a broken rule says more than a search
        # that failed.
        out = np.full(len(self.met), "", dtype=object)
        out[self.already_met] = "the model gives the wanted outcome already"
        status = self.status
        without = np.isin(status, (Status.NOT_FOUND, Status.IMPOSSIBLE, Status.FRAGILE))
        for i in np.flatnonzero(without):
            if status[i] == Status.FRAGILE:
                assert self.fragile is not None
                out[i] = (
                    f"only {_percent(self.fragile[i])} of the retrained models that guided the "
                    "search accept it"
                )
            elif self.blocked[i]:
                out[i] = f"nothing can be reached: {self.blocked[i]}"
            elif self.infeasible[i]:
                out[i] = (
                    "proved: nothing within reach, that is the schema and the data's range, has "
                    "the wanted outcome"
                )
            # a broken rule only matters for an answer that would otherwise count
            elif self.broken[i] and self.met[i]:
                out[i] = f"the best attempt breaks a rule: {self.broken[i]}"
            elif self.out_of_time[i]:
                out[i] = f"the time budget of {seconds:g} s was used up; give more time"
            else:
                out[i] = f"no reachable row found; the best attempt has {best[i]}; {advice}"
        return out.tolist()


def _percent(share: float) -> str:
    return f"{100 * share:.0f}%"


class Method(Settings, ABC):
    """What lists of methods say of one, for tables or for images, and the check of its settings."""

    title: ClassVar[str] = ""  # one line for the list of methods
    paper: ClassVar[str] = ""
    when: ClassVar[str] = ""  # one sentence: when to use it
    cost: ClassVar[str] = ""  # one sentence: how many passes through the model it takes
    needs_grad: ClassVar[bool] = True
    needs_data: ClassVar[bool] = False
    advice: ClassVar[str] = "try other settings"  # what to do about rows without an answer

    def check(self, model: Any) -> None:
        """Raise a `SettingError` if the settings cannot work with this model."""
        return


class Explainer(Method):
    """A way to find answers. Subclasses are dataclasses: fields are the settings, `search` is the
    algorithm.

    >>> import holdfast as hf
    >>> credit = hf.datasets.german_credit()
    >>> method = hf.NearestNeighbor()  # one of hf.list_methods()
    >>> isinstance(method, hf.Explainer), method.needs_data, method.needs_grad
    (True, True, False)
    """

    uses_data: ClassVar[bool] = False  # works without, and better with
    regression: ClassVar[bool] = False  # works on regression models too

    # how many answers a row gets; a setting of the methods that can give several
    n_counterfactuals = 1

    @property
    def guided_by(self) -> frozenset[str]:
        """Short hashes of further models that help to find the answers."""
        return frozenset()

    @property
    def signatures(self) -> tuple[tuple[float, ...], ...]:
        """What the same models give to the schema's probe rows, by which they can be recognised."""
        return ()

    @abstractmethod
    def search(self, problem: SearchProblem) -> Tensor | Found:
        """Reachable rows (n, d), or (n, n_counterfactuals, d), with the wanted outcome where one
        was found; or `Found`, which also says which rows have been proved to have none."""

    def fragile(self, model: Model, goal: BoundTarget, x: Tensor) -> Tensor | None:
        """For answers x (n, d): the share of the retrained models that accept each one.

        Asked of methods that are guided by retrained models. (n,), with NaN where enough of them
        accept the answer; None where no such models guided the search.
        """
        return None

    @final
    def searched(self, problem: SearchProblem) -> Found:
        """What `search` returns, as `Found`; a method that returns only rows proves nothing."""
        rows = self.search(problem)
        if isinstance(rows, Found):
            return rows
        return Found(rows, torch.zeros(len(problem), dtype=torch.bool))

    @final
    def fit(self, model: Model, X: Rows, y: Outcomes | None = None) -> Self:
        """Learn what the method needs from data; most need nothing.

        Args:
            model: a `Model`.
            X: rows of the table, or their encoding (n, d).
            y: their outcomes, for the few methods that use them; default: the model's own
                predictions.
        """
        if not isinstance(model, Model):
            is_swapped = isinstance(X, Model)
            usual = "wrap yours with hf.Model.of(model, schema)"
            raise ModelError(
                f"{type(self).__name__}.fit(model, X) needs a holdfast Model, got "
                f"{type(model).__name__}; {'the model comes first' if is_swapped else usual}"
            )
        self.check_kind(model)
        self.learn(model, X, y)
        return self

    def learn(self, model: Model, X: Rows, y: Outcomes | None) -> None:
        """What a method does with the data, see `fit`; attributes that it learns end in _."""
        return

    @final
    def explain(
        self,
        model: Model,
        X: Rows | Row,
        target: TargetLike = None,
        *,
        seed: int = 0,
        batch_size: int = 1024,
        time_budget: float | None = None,
        threads: int = 1,
        progress: bool = False,
    ) -> Counterfactuals:
        """Find an answer for every row.

        Args:
            model: a `Model`.
            X: n rows of the table, one row as a dict or Series, or encoded rows (n, d). Columns
                that the schema does not know, such as an id, are carried through.
            target: the wanted class (one, or one per row), a `Target`, or None for any other class;
                of a regression model a range, `Target.between(low, high)`.
            seed: random numbers are derived from it and the contents of each row, nothing else.
            batch_size: rows searched at once; answers do not depend on it.
            time_budget: seconds for the whole call; rows still open then come back as not found.
            threads: how many threads torch may use meanwhile; tables are fastest on one. 0 keeps
                your setting.
            progress: show a bar on stderr.

        Returns:
            n rows (n x k for methods with k answers), each with its status and, if not found, the
                reason.
        """
        budget = TimeBudget(time_budget, Progress(progress, type(self).__name__))
        self.check_call(model)
        check_limits(seed, batch_size, time_budget)
        # Whatever a search returns, only the bare model's word on the row handed in counts.
        table = _as_table(model, X)
        wanted = Target.of(target)
        with model.eval_mode(), limited_threads(threads), budget.bar:
            people = _Rows.of(model, table)
            goal = wanted.bind(model, people.scores)
            feasible = model.schema.feasible(people.x)
            rng = RowRandom.of(seed, people.x)
            problem = SearchProblem(model, people.x, goal, feasible, rng, budget)
            source, before, answers, verdicts = self._answered(problem, people, batch_size)
        goal = goal[source]
        reasons = verdicts.reasons(goal.describe(answers.scores), self.advice, time_budget)
        run = Run.of(self, model, wanted, seed, time.perf_counter() - budget.start)
        return Counterfactuals(
            goal=goal,
            before=before.table,
            x=before.x,
            after=answers.table,
            x_cf=answers.x,
            scores=answers.scores,
            source=source.numpy(),
            status_codes=verdicts.status,
            reasons=reasons,
            run=run,
            schema=model.schema,
            classes=model.classes,
            estimate_before=before.scores if model.is_regression else None,
        )

    def _answered(
        self, problem: SearchProblem, people: "_Rows", batch_size: int
    ) -> "tuple[Tensor, _Rows, _Answers, Verdicts]":
        """Search where there is something to find, and judge what comes back.

        Returns whose each answer is (n,), the row that it changes, the answers, and what became of
        them.
        """
        schema = problem.model.schema
        already_met = problem.goal.met(people.scores)
        why_blocked = blocked(schema, people.numbers)
        open_rows = (~already_met & torch.tensor(why_blocked == "")).nonzero().squeeze(1)
        rows, infeasible, out_of_time = self._search(problem, open_rows, batch_size)
        # From here on one row per answer.
        source = torch.arange(len(people.x)).repeat_interleave(self.n_counterfactuals)
        before = people[source] if self.n_counterfactuals > 1 else people
        answers = self._handed_in(problem, source, rows.flatten(0, 1), before)
        verdicts = Verdicts(
            already_met=already_met[source].numpy(),
            met=problem.goal[source].met(answers.scores).numpy(),
            blocked=why_blocked[source.numpy()],
            broken=violations(schema, before.numbers, answers.numbers),
            infeasible=infeasible[source].numpy(),
            out_of_time=out_of_time[source].numpy(),
            fragile=None if answers.fragile is None else answers.fragile.double().numpy(),
        )
        return source, before, answers, verdicts

    def _handed_in(
        self, problem: SearchProblem, source: Tensor, rows: Tensor, before: "_Rows"
    ) -> "_Answers":
        """What was found (n, d), as the rows that people would hand in: settled, judged, and where
        rounding lost the outcome, rounded in another way and judged again.

        Args:
            problem: the questions.
            source: (n,) which question each row answers.
            rows: what was found.
            before: the row of the table that each one changes.
        """
        schema = problem.model.schema
        goal = problem.goal[source]
        numbers, changed = settle(schema, rows, before.numbers)
        answers = self._judged(problem.model, goal, numbers, before.table, changed)
        lost = _lost_by_rounding(problem, source, rows, answers, goal)
        if not len(lost):
            return answers
        places = lost.numpy()
        rounded = _best_rounding(problem[source[lost]], rows[lost], before.numbers[places])
        numbers[places], changed[places] = settle(schema, rounded, before.numbers[places])
        return self._judged(problem.model, goal, numbers, before.table, changed)

    def _judged(
        self, model: Model, goal: BoundTarget, numbers: Array, before: pd.DataFrame, changed: Mask
    ) -> "_Answers":
        """Numbers (n, features) written into the table, read back from it, and scored: what the
        table really holds counts, not what was meant to be written."""
        rows = _Rows.of(model, model.schema.write(numbers, before, changed))
        fragile = self.fragile(model, goal, rows.x)
        return _Answers(rows.table, rows.numbers, rows.x, rows.scores, fragile)

    def check_call(self, model: Model) -> None:
        """Raise an error if this method, as set and fitted, cannot work on this model."""
        name = type(self).__name__
        if not isinstance(model, Model):
            raise ModelError(
                f"{name}.explain needs a holdfast Model; wrap yours with hf.Model.of(model, schema)"
            )
        self.check_kind(model)
        if self.needs_grad and not model.has_grad:
            numbers = ", regression=True" if model.is_regression else ""
            raise ModelError(
                f"{name} follows gradients, and this model has none; methods that work on it are "
                f"listed by hf.list_methods(gradients=False{numbers})"
            )
        self.check_finite()
        if self.needs_data and not self.is_fitted:
            raise SettingError(f"{name} needs data; call .fit(model, X_train) first")
        self.check(model)

    def check_kind(self, model: Model) -> None:
        """Raise an error if this is a regression model and the method is about classes."""
        if model.is_regression and not self.regression:
            no_gradients = "" if model.has_grad else "gradients=False, "
            raise ModelError(
                f"{type(self).__name__} is about classes, and this is a regression model; methods "
                f"that work on it are listed by hf.list_methods({no_gradients}regression=True)"
            )

    def _search(
        self, problem: SearchProblem, open_rows: Tensor, batch_size: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Search the open rows in batches; all others stay as they are.

        Returns the best rows that were found (n, k, d), (n,) which are proved to have no answer,
        and (n,) for which the time budget was used up before or while they were searched.
        """
        n = len(problem)
        k = self.n_counterfactuals
        budget = problem.budget
        budget.bar.total(max(1, -(-len(open_rows) // batch_size)))
        infeasible = torch.zeros(n, dtype=torch.bool)
        out_of_time = torch.zeros(n, dtype=torch.bool)
        rows = problem.x[:, None].repeat(1, k, 1)
        for batch in chunks(open_rows, batch_size):
            if budget.over():
                out_of_time[batch] = True
                continue
            full = whole_blocks(batch)
            searched = self.searched(problem[full])
            infeasible[batch] = searched.infeasible[: len(batch)]
            found = searched.rows.reshape(len(full), k, -1)[: len(batch)]
            # A search that overflowed has no answer: nobody can hand in inf or NaN.
            rows[batch] = torch.where(found.isfinite().all(2, keepdim=True), found, rows[batch])
            out_of_time[batch] = budget.ran_out
        return rows, infeasible, out_of_time


@dataclass(frozen=True, eq=False)
class _Rows:
    """Rows of a table, and what a model makes of them."""

    table: pd.DataFrame
    numbers: Array  # (n, features)
    x: Tensor  # (n, d) encoded
    scores: Tensor  # (n, k)

    @classmethod
    def of(cls, model: Model, table: pd.DataFrame) -> "_Rows":
        numbers = model.schema.read(table)
        x = model.schema.encode_numbers(numbers, model.dtype)
        return cls(table, numbers, x, model.score_frame(table, x))

    def __getitem__(self, rows: Tensor) -> "_Rows":
        table = self.table.iloc[rows.numpy()]
        return _Rows(table, self.numbers[rows], self.x[rows], self.scores[rows])


@dataclass(frozen=True, eq=False)
class _Answers(_Rows):
    """Rows that people would hand in."""

    fragile: Tensor | None  # see `Explainer.fragile`


def _lost_by_rounding(
    problem: SearchProblem, source: Tensor, rows: Tensor, answers: _Answers, goal: BoundTarget
) -> Tensor:
    """Which answers had the wanted outcome as they were found, and have it no longer as the table
    holds them."""
    if not problem.model.schema.rounds:
        return source[:0]
    fails = ~goal.met(answers.scores)
    if answers.fragile is not None:
        fails |= answers.fragile.isfinite()
    lost = fails.nonzero().squeeze(1)
    if not len(lost):
        return lost
    return lost[problem[source[lost]].met(rows[lost])]


def _best_rounding(problem: SearchProblem, rows: Tensor, before: Array) -> Tensor:
    """(n, d) encoded rows rounded to numbers that the table can hold, so that the outcome is met by
    most."""
    tried = roundings(problem.model.schema, rows, before)  # (n, c, d)
    n, c, _ = tried.shape
    gap = problem[torch.arange(n).repeat_interleave(c)].gap(tried.flatten(0, 1)).view(n, c)
    return tried[torch.arange(n), gap.argmax(1)]


def _as_table(model: Model, X: Rows | Row) -> pd.DataFrame:
    if isinstance(X, Tensor):
        return model.schema.decode(X)
    table = model.schema.as_table(X)
    model.refuse_missing(table)
    return table
