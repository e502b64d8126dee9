"""The contract of every method: rows in, the same rows out, and one place that decides what counts.

A subclass is a dataclass whose fields are its settings. It writes `search`, which gets the questions of n
people at once and returns n encoded rows (or n x k for k answers each). Everything else happens here: rows
that need no answer are left alone, the rest is searched in batches, what comes back is turned into the row a
person would hand in, and the bare model judges that row.
"""

import time
from abc import ABC, abstractmethod
from typing import Any, ClassVar, Self, final

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from holdfast._core.params import Settings
from holdfast._core.progress import Progress
from holdfast._core.row_random import RowRandom
from holdfast._core.rows import chunks, limited_threads, whole_blocks
from holdfast.counterfactuals import Counterfactuals, Run
from holdfast.errors import ModelError, SchemaError, SettingError
from holdfast.models.base import Model
from holdfast.problem import Found, Outcomes, Rows, SearchProblem, TimeBudget
from holdfast.render.sentences import estimates
from holdfast.schema.feature import a_kind
from holdfast.schema.user_units import settle
from holdfast.schema.verify import blocked, violations
from holdfast.target import BoundTarget, IntervalTarget, Status, Target


class Explainer(Settings, ABC):
    """A way to find answers. Subclasses are dataclasses: fields are the settings, `search` is the algorithm."""

    title: ClassVar[str] = ""  # one line for the list of methods
    paper: ClassVar[str] = ""
    when: ClassVar[str] = ""  # one sentence: when to use it
    cost: ClassVar[str] = ""  # one sentence: how many passes through the model it takes
    needs_grad: ClassVar[bool] = True
    needs_data: ClassVar[bool] = False
    uses_data: ClassVar[bool] = False  # works without, and better with
    regression: ClassVar[bool] = False  # works on models that estimate a number too
    advice: ClassVar[str] = "try other settings"  # what to do about rows without an answer

    n_counterfactuals = 1  # how many answers a row gets; a setting of the methods that can give several

    @property
    def guided_by(self) -> frozenset[str]:
        """Short hashes of the models, besides the one asked, that help to find the answers."""
        return frozenset()

    @property
    def signatures(self) -> tuple[tuple[float, ...], ...]:
        """What the same models make of the schema's probe rows, by which they are known again."""
        return ()

    @property
    def is_fitted(self) -> bool:
        """Has it learnt something from data?"""
        return any(name.endswith("_") and not name.startswith("_") for name in vars(self))

    @abstractmethod
    def search(self, problem: SearchProblem) -> Tensor | Found:
        """Reachable rows (n, d), or (n, n_counterfactuals, d), with the wanted outcome where one was found; or `Found`,
        which also says which rows have been proved to have none."""

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
            y: their outcomes, for the few methods that look at them; left out, what the model says of the rows.
        """
        if not isinstance(model, Model):
            name, swapped = type(self).__name__, isinstance(X, Model)
            fix = "the model comes first" if swapped else "wrap yours with hf.Model.of(model, schema)"
            raise ModelError(f"{name}.fit(model, X) needs a holdfast Model, got {a_kind(model)}; {fix}")
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
        X: pd.DataFrame | Tensor,
        target: Any = None,
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
            X: n rows of the table, or their encoding (n, d).
            target: the wanted class (one, or one per row), a `Target`, or None for any other class; of a regression
                model a range, `Target.between(low, high)`.
            seed: random numbers are derived from it and the contents of each row, nothing else.
            batch_size: rows searched at once; answers do not depend on it.
            time_budget: seconds for the whole call; rows still open then come back as not found.
            threads: how many threads torch may use meanwhile; tables are fastest on one. 0 keeps your setting.
            progress: show a bar on stderr.

        Returns:
            n rows (n x k for methods with k answers), each with its status and, if not found, the reason.
        """
        clock = TimeBudget(time_budget, Progress(progress, type(self).__name__))
        self.check_call(model)
        _check_limits(seed, batch_size, time_budget)
        before = _as_frame(model, X)
        wish = Target.of(target)
        schema = model.schema
        with model.eval_mode(), limited_threads(threads), clock.bar:
            mine = schema.read(before)
            x = schema.encode_numbers(mine, model.dtype)
            now = model.score_frame(before, x)
            goal = wish.bind(model, now)
            done, stuck = goal.met(now), blocked(schema, mine)
            rows = (~done & torch.tensor(stuck == "")).nonzero().squeeze(1)
            clock.bar.total(max(1, -(-len(rows) // batch_size)))
            found, late, none = self._search(model, x, goal, rows, seed, batch_size, clock)  # (n, answers, d)
            source = torch.arange(len(x)).repeat_interleave(self.n_counterfactuals)
            if self.n_counterfactuals > 1:
                before, goal, x, mine = before.iloc[source.numpy()], goal[source], x[source], mine[source]
            numbers, changed = settle(schema, found.flatten(0, 1), mine)
            after = schema.write(numbers, before, changed)
            theirs = schema.read(after)  # what the table really holds, not what was meant to be written
            x_cf = schema.encode_numbers(theirs, model.dtype)
            scores = model.score_frame(after, x_cf)
            met = goal.met(scores).numpy()
        done, stuck, broken = done[source].numpy(), stuck[source.numpy()], violations(schema, mine, theirs)
        lost = ~met | (broken != "") | (stuck != "")
        status = np.select([done, lost], [Status.ALREADY_MET, Status.NOT_FOUND], Status.FOUND)
        broken = np.where(met, broken, "")  # of an attempt that fails anyway, only that is worth saying
        said, late, none = outcomes(goal, scores), late[source].numpy(), none[source].numpy()
        reason = self._reasons(status, said, stuck, broken, late, none, clock)
        run = Run.of(self, model, wish, seed, time.perf_counter() - clock.start)
        was = now[source] if model.is_regression else None
        return Counterfactuals(
            before, after, x, x_cf, scores, goal, status, reason, source.numpy(), schema, model.classes, run, was
        )

    def check_call(self, model: Model) -> None:
        """Raise an error if this method, as set and fitted, cannot work on this model."""
        name = type(self).__name__
        if not isinstance(model, Model):
            raise ModelError(f"{name}.explain needs a holdfast Model; wrap yours with hf.Model.of(model, schema)")
        self.check_kind(model)
        if self.needs_grad and not model.has_grad:
            raise ModelError(
                f"{name} follows gradients, and this model has none; methods that work on it are listed by "
                f"hf.list_methods(gradients=False{', regression=True' if model.is_regression else ''})"
            )
        for key, value in self.get_params(deep=False).items():
            if isinstance(value, float) and not abs(value) < torch.finfo(torch.float32).max:
                raise SettingError(f"{key} must be a finite number, got {value}")
        if self.needs_data and not self.is_fitted:
            raise SettingError(f"{name} looks at data; call .fit(model, X_train) first")
        self.check(model)

    def check_kind(self, model: Model) -> None:
        """Raise an error if the model estimates a number and this method is about classes."""
        if model.is_regression and not self.regression:
            raise ModelError(
                f"{type(self).__name__} is about classes, and this is a regression model; methods that work on it are "
                f"listed by hf.list_methods({'' if model.has_grad else 'gradients=False, '}regression=True)"
            )

    def _search(
        self, model: Model, x: Tensor, goal: BoundTarget, rows: Tensor, seed: int, batch_size: int, clock: TimeBudget
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Answers for all rows (untouched where not searched), which ran out of time, and which have been proved to
        have no answer."""
        reach, random = model.schema.feasible(x), RowRandom.of(seed, x)
        found = x[:, None].repeat(1, self.n_counterfactuals, 1)
        late, none = torch.zeros(len(x), dtype=torch.bool), torch.zeros(len(x), dtype=torch.bool)
        for batch in chunks(rows, batch_size):
            if clock.over():
                late[batch] = True
                continue
            full = whole_blocks(batch)
            problem = SearchProblem(model, x[full], goal[full], reach[full], random[full], clock)
            answer, infeasible = self.found(problem)
            none[batch] = infeasible[: len(batch)]
            answer = answer.reshape(len(full), self.n_counterfactuals, -1)[: len(batch)]
            # A search that overflowed has no answer; inf and NaN are nothing a person can hand in.
            found[batch] = torch.where(answer.isfinite().all(2, keepdim=True), answer, found[batch])
            late[batch] = clock.ran_out
        return found, late, none

    def _reasons(
        self, status: Any, said: list[str], stuck: Any, broken: Any, late: Any, none: Any, clock: TimeBudget
    ) -> list[str]:
        out = np.full(len(status), "", dtype=object)
        out[status == Status.ALREADY_MET] = "the model gives the wanted outcome already"
        for i in np.flatnonzero(status == Status.NOT_FOUND):
            if stuck[i]:
                out[i] = f"nothing can be reached: {stuck[i]}"
            elif none[i]:
                out[i] = "proved: nothing within reach, that is the schema and the data's range, has the wanted outcome"
            elif broken[i]:
                out[i] = f"the best attempt breaks a rule: {broken[i]}"
            elif late[i]:
                out[i] = f"the time budget of {clock.budget:g} s was used up; give more time"
            else:
                out[i] = f"no reachable row found; the best attempt has {said[i]}; {self.advice}"
        return out.tolist()


def outcomes(goal: BoundTarget, scores: Tensor) -> list[str]:
    """What the model says of each row: 'probability 0.43', 'the estimate 212,000'."""
    said: list[float] = goal.confidence(scores).numpy().tolist()
    if isinstance(goal, IntervalTarget):
        return [f"the estimate {number}" for number in estimates(goal, said)]
    return [f"probability {p:.2f}" for p in said]


def _check_limits(seed: int, batch_size: int, time_budget: float | None) -> None:
    if batch_size < 1:
        raise SettingError(f"batch_size must be at least 1, got {batch_size}")
    if time_budget is not None and not time_budget > 0:
        raise SettingError(f"time_budget must be positive seconds, got {time_budget}")
    if not isinstance(seed, int):
        raise SettingError(f"seed must be a whole number, got {seed!r}")
    if not -(1 << 63) <= seed < 1 << 63:
        raise SettingError(f"seed must fit into 64 bits, got {seed}")


def _as_frame(model: Model, X: Any) -> pd.DataFrame:
    if isinstance(X, pd.DataFrame):
        for name, why in model.rejects_missing.items():
            gone = X[name].isna().to_numpy() if name in X else np.zeros(0, dtype=bool)
            if gone.any():
                where = f"column {name!r} has {int(gone.sum())} missing numbers (first at row {int(gone.argmax())})"
                raise SchemaError(
                    f"{where}, and the model takes none there: {why}; fill them in, drop those rows, or put an imputer "
                    "before the model"
                )
        return X
    if isinstance(X, Tensor):
        if X.ndim != 2:
            raise SchemaError(f"expected encoded rows of shape (n, {model.schema.width}), got {tuple(X.shape)}")
        return model.schema.decode(X)
    raise SchemaError(f"expected a pandas DataFrame or a tensor of encoded rows, got {a_kind(X)}")
