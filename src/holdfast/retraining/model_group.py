"""A group of a bank: models of one family and one architecture, all asked at once."""

import hashlib
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any, cast

import pandas as pd
import torch
from torch import Tensor

from holdfast._core.checks import untyped
from holdfast._core.rows import chunks, rows_per_chunk
from holdfast.models.base import Model
from holdfast.models.scores import to_scores
from holdfast.models.torch_model import TorchModel
from holdfast.nn.stack import ModelStack, Stack
from holdfast.retraining.fitted import FittedEstimators
from holdfast.retraining.stretch import asked_of_stretched, stretched_scores
from holdfast.target import BoundTarget

SCORED_CELLS = 1 << 22  # scores and hidden values held at once
ALONE = 4096  # rows that an estimator is asked about by one thread


@dataclass(frozen=True)
class ModelGroup:
    """Models of one family and one architecture: a stack of networks, or fitted estimators and any
    other models."""

    family: str
    networks: ModelStack | None = None
    estimators: Sequence[Model] = ()
    # What each model was made from: a short hash of the rows and outcomes, '-', and one of
    # everything.
    origins: tuple[str, ...] = ()
    # How many times as far from the model in use they are taken to lie as judges; see
    # `retraining.stretch`.
    spread: float = 1.0

    def __len__(self) -> int:
        return self.networks.count if self.networks is not None else len(self.estimators)

    @property
    def dtype(self) -> torch.dtype:
        return self.estimators[0].dtype if self.networks is None else self.networks.theta.dtype

    def scores(self, frame: pd.DataFrame, x: Tensor) -> Tensor:
        """(M, n, k) logits of rows and their encoding."""
        if self.networks is None:
            # Threads that wait for each other take longer than a single one with so little to
            # do.
            limits = untyped("threadpoolctl").threadpool_limits
            with limits(1, user_api="openmp") if len(x) <= ALONE else nullcontext():
                return torch.stack([_scores(model, frame, x) for model in self.judges()])
        x = x.to(self.dtype)
        models = self.networks
        n = len(x)
        hidden = sum(models.sizes) if isinstance(models, Stack) else x.shape[1] * 8
        size = rows_per_chunk(models.count * hidden, SCORED_CELLS, at_least=8)
        with torch.no_grad():
            raw = (
                torch.cat([models.scores(part) for part in chunks(x, size)], 1)
                if n
                else models.scores(x)
            )
        scores = to_scores(raw.flatten(0, 1), "logits")
        return scores.view(models.count, n, scores.shape[1])

    def met(
        self,
        goal: BoundTarget,
        scores: Tensor,
        around: Model | None = None,
        own: Tensor | None = None,
    ) -> Tensor:
        """(M, n) which models give which rows the wanted outcome, by their scores (M, n, k).

        Args:
            around, own: the model in use and what it gives (n, k), if judges are stretched away
                from it.
        """
        if self.spread != 1:
            assert around is not None
            assert own is not None
            scores = stretched_scores(own, scores, self.spread, goal, shares=around.counts_votes)
        if self.networks is None:
            each = zip(self.judges(), scores, strict=True)
            return torch.stack([self._goal_of(model, goal, around).met(s) for model, s in each])
        plain = replace(goal, offset=(), defers_to_predict=False)
        rows = torch.arange(scores.shape[1])
        return plain[rows.repeat(len(scores))].met(scores.flatten(0, 1)).reshape(scores.shape[:2])

    def _goal_of(self, model: Model, goal: BoundTarget, around: Model | None) -> BoundTarget:
        if self.spread == 1 or around is None:
            return goal.asked_of(model)
        return asked_of_stretched(goal, around, model, self.spread)

    def origin(self, i: int) -> str:
        """A short hash of what model i was made from or, if that is not known, of the model
        itself."""
        if self.origins or self.networks is None:
            return self.origins[i] if self.origins else self.judges()[i].fingerprint()
        parts = [v[i].contiguous().numpy().tobytes() for v in self.networks.state().values()]
        return hashlib.sha256(b"".join(parts)).hexdigest()[:16]

    def add_to(self, digest: Any) -> None:
        """Add what tells the models apart from others to a hash."""
        digest.update(self.family.encode())
        if self.spread != 1:
            digest.update(f"{self.spread!r}".encode())
        if self.networks is not None:
            for value in self.networks.state().values():
                tensor = value.contiguous().numpy().tobytes()
                digest.update(f"{tuple(value.shape)}".encode() + tensor)
        with untyped("threadpoolctl").threadpool_limits(1, user_api="openmp"):
            for model in self.judges():
                digest.update(model.fingerprint().encode())

    def part(self, models: slice | Sequence[int], family: str | None = None) -> "ModelGroup":
        """Some of the models, on request as another family."""
        chosen = (
            list(range(len(self))[models])
            if isinstance(models, slice)
            else [int(i) for i in models]
        )
        networks = (
            None
            if self.networks is None
            else self.networks.select(torch.tensor(chosen, dtype=torch.int64))
        )
        estimators: Sequence[Model] = ()
        if isinstance(self.estimators, FittedEstimators):
            estimators = FittedEstimators(self.estimators.fitted[i] for i in chosen)
        elif self.estimators:
            estimators = tuple(self.estimators[i] for i in chosen)
        origins = tuple(self.origins[i] for i in chosen) if self.origins else ()
        return ModelGroup(family or self.family, networks, estimators, origins, self.spread)

    def judges(self) -> Sequence[Model]:
        """The models that are not a stack of networks, to judge rows of a table by."""
        return (
            self.estimators.judges()
            if isinstance(self.estimators, FittedEstimators)
            else self.estimators
        )

    def kind(self) -> str:
        """What the models are, in a few words."""
        if self.networks is None:
            return self.estimators[0].name
        if isinstance(self.networks, Stack):
            return "networks " + "-".join(map(str, self.networks.sizes))
        return f"{type(self.networks.module(0)).__name__} modules"


def group_of_one(model: Model, family: str) -> ModelGroup:
    """A group of one model: a network of Linear and ReLU layers as a stack, anything else as it
    is."""
    plain = isinstance(model, TorchModel) and model.outputs == "logits" and not model.is_regression
    networks = Stack.like(model.module, 1) if isinstance(model, TorchModel) and plain else None
    if networks is None:
        # a fingerprint is not an origin: it is made from a few rows
        return ModelGroup(family, estimators=(model,))
    tensors = dict(zip(networks.state(), cast(TorchModel, model).module.parameters(), strict=True))
    networks.load({name: value.detach()[None] for name, value in tensors.items()})
    return ModelGroup(family, networks, origins=(model.fingerprint(),))


def signature(scores: Tensor) -> Tensor:
    """(M, n, k) scores -> (M, s) numbers that tell models apart: a constant added to the scores of
    all classes of a row, and how certain a certain model is, make no difference."""
    scores = scores.double()
    if scores.shape[2] > 1:
        scores = (scores - scores.mean(2, keepdim=True)).clamp(-100, 100)
    return scores.flatten(1)


def sample_of(origin: str) -> str:
    """The part of an origin about the rows and outcomes, '' if it has none."""
    rows, dash, _ = origin.partition("-")
    return rows if dash else ""


def _scores(model: Model, frame: pd.DataFrame, x: Tensor) -> Tensor:
    with model.eval_mode():
        return model.score_frame(frame, x.to(model.dtype))
