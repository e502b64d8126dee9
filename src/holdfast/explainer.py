"""The contract of every method: rows in, the same rows out, and one place that decides what counts.

A subclass is a dataclass whose fields are its settings. It writes `search`, which gets the
questions of n people at once and returns n encoded rows (or n x k for k answers each). Everything
else happens here: rows that need no answer are left alone, the rest is searched in batches, what
comes back is turned into the row a person would hand in, and the bare model judges that row.
"""

import time
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Self, final

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from torch import Tensor

from holdfast._core.params import Settings
from holdfast._core.progress import Progress
from holdfast._core.row_random import RowRandom
from holdfast._core.rows import chunks, limited_threads, whole_blocks
from holdfast.counterfactuals import Counterfactuals, Run
from holdfast.errors import ModelError, SettingError
from holdfast.models.base import Model
from holdfast.problem import Found, Outcomes, Rows, SearchProblem, TimeBudget, check_limits
from holdfast.schema.feature import Array
from holdfast.schema.schema import Row
from holdfast.schema.user_units import roundings, settle
from holdfast.schema.verify import blocked, violations
from holdfast.target import BoundTarget, Status, Target, TargetLike

Mask = npt.NDArray[np.bool_]
Words = npt.NDArray[np.object_]
Shares = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Verdicts:
    """What became of n answers, each about one row."""

    already_met: Mask  # the row has the wanted outcome as it is
    met: Mask  # the answer has it
    blocked: Words  # why the row can reach nothing at all, or ''
    broken: Words  # the first promise of the schema that the answer breaks, or ''
    infeasible: Mask
    out_of_time: Mask
    fragile: Shares | None = None  # see `Explainer.fragile`

    @property
    def status(self) -> npt.NDArray[np.int64]:
        """(n,) codes of `Status`."""
        failed = ~self.met | (self.broken != "") | (self.blocked != "")
        fragile = (
            np.zeros(len(self.met), bool) if self.fragile is None else np.isfinite(self.fragile)
        )
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
        out = np.full(len(self.met), "", dtype=object)
        out[self.already_met] = "the model gives the wanted outcome already"
        status = self.status
        for i in np.flatnonzero(
            np.isin(status, (Status.NOT_FOUND, Status.IMPOSSIBLE, Status.FRAGILE))
        ):
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
            # of an attempt that fails anyway, only that is worth saying
            elif self.broken[i] and self.met[i]:
                out[i] = f"the best attempt breaks a rule: {self.broken[i]}"
            elif self.out_of_time[i]:
                out[i] = f"the time budget of {seconds:g} s was used up; give more time"
            else:
                out[i] = f"no reachable row found; the best attempt has {best[i]}; {advice}"
        return out.tolist()


def _percent(share: float) -> str:
    return f"{100 * share:.0f}%"


class Explainer(Settings, ABC):
    """A way to find answers. Subclasses are dataclasses: fields are the settings, `search` is the
    algorithm.

    >>> import holdfast as hf
    >>> credit = hf.datasets.german_credit()
    >>> method = hf.NearestNeighbor()  # one of hf.list_methods()
    >>> isinstance(method, hf.Explainer), method.needs_data, method.needs_grad
    (True, True, False)
    """

    title: ClassVar[str] = ""  # one line for the list of methods
    paper: ClassVar[str] = ""
    when: ClassVar[str] = ""  # one sentence: when to use it
    cost: ClassVar[str] = ""  # one sentence: how many passes through the model it takes
    needs_grad: ClassVar[bool] = True
    needs_data: ClassVar[bool] = False
    uses_data: ClassVar[bool] = False  # works without, and better with
    regression: ClassVar[bool] = False  # works on regression models too
    advice: ClassVar[str] = "try other settings"  # what to do about rows without an answer

    # how many answers a row gets; a setting of the methods that can give several
    n_counterfactuals = 1

    @property
    def guided_by(self) -> frozenset[str]:
        """Short hashes of further models that help to find the answers."""
        return frozenset()

    @property
    def signatures(self) -> tuple[tuple[float, ...], ...]:
        """What the same models make of the schema's probe rows, by which they are known again."""
        return ()

    @abstractmethod
    def search(self, problem: SearchProblem) -> Tensor | Found:
        """Reachable rows (n, d), or (n, n_counterfactuals, d), with the wanted outcome where one
        was found; or `Found`, which also says which rows have been proved to have none."""

    def fragile(self, model: Model, goal: BoundTarget, x: Tensor) -> Tensor | None:
        """(n,) of answers x (n, d) that too few of the models accept that guided the search: the
        share that does; NaN of all others. None: no such models say what holds."""
        return None

    @final
    def found(self, problem: SearchProblem) -> tuple[Tensor, Tensor]:
        """What `search` returns, and (n,) which rows have been proved to have no answer."""
        out = self.search(problem)
        if isinstance(out, Found):
            return out.rows, out.infeasible
        return out, torch.zeros(len(problem), dtype=torch.bool)

    @final
    def fit(self, model: Model, X: Rows, y: Outcomes | None = None) -> Self:
        """Learn what the method needs from data; most need nothing.

        Args:
            model: a `Model`.
            X: rows of the table, or their encoding (n, d).
            y: their outcomes, for the few methods that look at them; left out, what the model says
                of the rows.
        """
        if not isinstance(model, Model):
            name = type(self).__name__
            swapped = isinstance(X, Model)
            fix = (
                "the model comes first" if swapped else "wrap yours with hf.Model.of(model, schema)"
            )
            raise ModelError(
                f"{name}.fit(model, X) needs a holdfast Model, got {type(model).__name__}; {fix}"
            )
        self.check_kind(model)
        self.learn(model, X, y)
        return self

    def learn(self, model: Model, X: Rows, y: Outcomes | None) -> None:
        """What a method does with the data, see `fit`; attributes that it learns end in _."""
        return

    def check(self, model: Model) -> None:
        """Raise a `SettingError` if the settings cannot work with this model."""
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
        schema = model.schema
        before = _as_table(model, X)
        wanted = Target.of(target)
        with model.eval_mode(), limited_threads(threads), budget.bar:
            numbers_before = schema.read(before)
            x = schema.encode_numbers(numbers_before, model.dtype)
            scores_before = model.score_frame(before, x)
            goal = wanted.bind(model, scores_before)
            already_met = goal.met(scores_before)
            why_blocked = blocked(schema, numbers_before)
            open_rows = (~already_met & torch.tensor(why_blocked == "")).nonzero().squeeze(1)
            problem = SearchProblem(
                model, x, goal, schema.feasible(x), RowRandom.of(seed, x), budget
            )
            rows, infeasible, out_of_time = self._search(problem, open_rows, batch_size)
            # From here on one row per answer.
            source = torch.arange(len(x)).repeat_interleave(self.n_counterfactuals)
            if self.n_counterfactuals > 1:
                before = before.iloc[source.numpy()]
                numbers_before = numbers_before[source]
                x = x[source]
                goal = goal[source]
            rows = rows.flatten(0, 1)
            numbers, changed = settle(schema, rows, numbers_before)
            after, numbers_after, x_cf, scores, fragile = self._handed_in(
                model, goal, numbers, before, changed
            )
            lost = ~goal.met(scores) if fragile is None else ~goal.met(scores) | fragile.isfinite()
            some = lost.nonzero().squeeze(1) if schema.rounds else source[:0]
            some = some[problem[source[some]].met(rows[some])] if len(some) else some
            if len(some):  # they had the wanted outcome until they were rounded
                places = some.numpy()
                rows = _best_rounding(problem[source[some]], rows[some], numbers_before[places])
                numbers[places], changed[places] = settle(schema, rows, numbers_before[places])
                after, numbers_after, x_cf, scores, fragile = self._handed_in(
                    model, goal, numbers, before, changed
                )
        verdicts = Verdicts(
            already_met=already_met[source].numpy(),
            met=goal.met(scores).numpy(),
            blocked=why_blocked[source.numpy()],
            broken=violations(schema, numbers_before, numbers_after),
            infeasible=infeasible[source].numpy(),
            out_of_time=out_of_time[source].numpy(),
            fragile=None if fragile is None else fragile.double().numpy(),
        )
        reasons = verdicts.reasons(goal.describe(scores), self.advice, time_budget)
        run = Run.of(self, model, wanted, seed, time.perf_counter() - budget.start)
        return Counterfactuals(
            before,
            after,
            x,
            x_cf,
            scores,
            goal,
            verdicts.status,
            reasons,
            source.numpy(),
            schema,
            model.classes,
            run,
            estimate_before=scores_before[source] if model.is_regression else None,
        )

    def _handed_in(
        self, model: Model, goal: BoundTarget, numbers: Array, before: pd.DataFrame, changed: Mask
    ) -> tuple[pd.DataFrame, Array, Tensor, Tensor, Tensor | None]:
        """Numbers (n, features) as a table, what that really holds, not what was meant to be
        written, the same encoded, and what the models make of it: scores, and see `fragile`."""
        schema = model.schema
        after = schema.write(numbers, before, changed)
        numbers_after = schema.read(after)
        x_cf = schema.encode_numbers(numbers_after, model.dtype)
        return (
            after,
            numbers_after,
            x_cf,
            model.score_frame(after, x_cf),
            self.fragile(model, goal, x_cf),
        )

    def check_call(self, model: Model) -> None:
        """Raise an error if this method, as set and fitted, cannot work on this model."""
        name = type(self).__name__
        fix = "wrap yours with hf.Model.of(model, schema)"
        if not isinstance(model, Model):
            raise ModelError(f"{name}.explain needs a holdfast Model; {fix}")
        self.check_kind(model)
        fix = (
            f"hf.list_methods(gradients=False{', regression=True' if model.is_regression else ''})"
        )
        why = (
            f"{name} follows gradients, and this model has none; methods that work on it are "
            f"listed by {fix}"
        )
        if not model.has_grad and self.needs_grad:
            raise ModelError(why)
        self.check_finite()
        if not self.is_fitted and self.needs_data:
            raise SettingError(f"{name} looks at data; call .fit(model, X_train) first")
        self.check(model)

    def check_kind(self, model: Model) -> None:
        """Raise an error if this is a regression model and the method is about classes."""
        fix = f"hf.list_methods({'' if model.has_grad else 'gradients=False, '}regression=True)"
        why = (
            "is about classes, and this is a regression model; methods that work on it are "
            f"listed by {fix}"
        )
        if not self.regression and model.is_regression:
            raise ModelError(f"{type(self).__name__} {why}")

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
            found, proved = self.found(problem[full])
            infeasible[batch] = proved[: len(batch)]
            found = found.reshape(len(full), k, -1)[: len(batch)]
            # A search that overflowed has no answer; inf and NaN are nothing a person can hand in.
            rows[batch] = torch.where(found.isfinite().all(2, keepdim=True), found, rows[batch])
            out_of_time[batch] = budget.ran_out
        return rows, infeasible, out_of_time


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
