"""What methods remember of the data they are fitted on."""

from dataclasses import replace

import torch
from torch import Tensor

from holdfast._core.rows import chunks
from holdfast.errors import require
from holdfast.models.base import Model
from holdfast.problem import Outcomes, Rows, SearchProblem
from holdfast.target import Target


def encoded(X: Rows, model: Model, name: str) -> Tensor:
    """Data rows as the model sees them, in memory of our own."""
    x = X.to(model.dtype, copy=True) if isinstance(X, Tensor) else model.schema.encode(X, model.dtype)
    require(len(x) > 0, f"{name} needs at least one data row, got none; pass the training rows")
    return x


def check_columns(columns: int, model: Model) -> None:
    """Raise a `SettingError` if a method was fitted on rows of another width."""
    width = model.schema.width
    require(columns == width, f"fitted on rows of {columns} columns, the model takes {width}; call .fit again")


def scores_of(x: Tensor, model: Model) -> Tensor:
    """(n, k) scores of data rows."""
    with model.eval_mode():
        return torch.cat([model(part) for part in chunks(x, 1 << 16)])


def classes_of(scores: Tensor, model: Model, y: Outcomes | None = None) -> Tensor:
    """(n,) the class of each data row: y, or what the model says where that is not known."""
    return scores.argmax(1) if y is None else Target(y).bind(model, scores).label


def have_outcome(problem: SearchProblem, label: int, scores: Tensor) -> Tensor:
    """(m,) which data rows, by their scores (m, k), have the outcome that people with this label ask for?"""
    return replace(problem.goal, label=torch.full((len(scores),), label)).met(scores)
