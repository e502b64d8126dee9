"""What methods remember of the data they are fitted on."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from holdfast._core.checks import untyped
from holdfast._core.rows import chunks
from holdfast._core.types import Outcomes, Rows
from holdfast.errors import SettingError
from holdfast.explainer import Explainer
from holdfast.models.base import Model
from holdfast.problem import SearchProblem
from holdfast.target import Target


@dataclass(eq=False, repr=False)
class DataMethod(Explainer):
    """A method that remembers data rows, encoded as `data_` (m, d), and the model's `scores_` (m,
    k) of them."""

    needs_grad = False
    needs_data = True
    keeps_repeats: ClassVar[bool] = True

    def check(self, model: Model) -> None:
        check_columns(self.data_.shape[1], model)

    def learn(self, model: Model, X: Rows, y: Outcomes | None) -> None:
        """Remember the data and its scores."""
        x = encoded(X, model, type(self).__name__)
        self.data_: Tensor = x if self.keeps_repeats else untyped("torch").unique(x, dim=0)
        self.scores_: Tensor = scores_of(self.data_, model)

    def data_by_label(self, problem: SearchProblem) -> Iterator[tuple[Tensor, Tensor]]:
        """For each label the people (r,) who have it, and the data rows (m, d) with the outcome
        they ask for."""
        for label in range(problem.goal.k):
            people = (problem.goal.label == label).nonzero().squeeze(1)
            if len(people):
                fits = have_outcome(problem, label, self.scores_)
                if fits.any():
                    yield people, self.data_[fits].to(problem.x.dtype)


def encoded(X: Rows, model: Model, name: str) -> Tensor:
    """Data rows as the model sees them, in memory of our own."""
    if not isinstance(X, Tensor):
        model.refuse_missing(X)
    x = (
        X.to(model.dtype, copy=True)
        if isinstance(X, Tensor)
        else model.schema.encode(X, model.dtype)
    )
    if len(x) <= 0:
        raise SettingError(f"{name} needs at least one data row, got none; pass the training rows")
    return x


def check_columns(columns: int, model: Model) -> None:
    """Raise a `SettingError` if a method was fitted on rows of another width."""
    width = model.schema.width
    if columns != width:
        raise SettingError(
            f"fitted on rows of {columns} columns, the model takes {width}; call .fit again"
        )


def scores_of(x: Tensor, model: Model) -> Tensor:
    """(n, k) scores of data rows."""
    with model.eval_mode():
        return torch.cat([model(part) for part in chunks(x, 1 << 16)])


def classes_of(scores: Tensor, model: Model, y: Outcomes | None = None) -> Tensor:
    """(n,) the class of each data row: y, or what the model says if y is not known."""
    return scores.argmax(1) if y is None else Target(y).bind(model, scores).label


def have_outcome(problem: SearchProblem, label: int, scores: Tensor) -> Tensor:
    """(m,) which data rows, by their scores (m, k), have the outcome that people with this label
    ask for."""
    return replace(problem.goal, label=torch.full((len(scores),), label)).met(scores)
