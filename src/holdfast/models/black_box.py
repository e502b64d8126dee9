"""Models that are not torch modules: estimators and functions of the table, and their compiled
forms."""

import hashlib
from collections.abc import Generator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pandas as pd
import torch
from torch import Tensor

from holdfast._core.types import Pullback
from holdfast.models.base import Model, Shortfall
from holdfast.models.compiled import decision_rule as decisions
from holdfast.models.compiled.build import CompiledScorer, probes
from holdfast.models.compiled.decision_rule import DecisionRule, core, name_of
from holdfast.models.compiled.from_boosters import boosted, is_booster
from holdfast.models.compiled.tree_leaves import TreeIndex
from holdfast.models.scores import CLEARLY, Conversion, Inputs, Outputs, decided, to_scores
from holdfast.models.torch_model import TorchModel
from holdfast.models.wrapped_model import WrappedModel
from holdfast.nn.relu_network import Engine

if TYPE_CHECKING:
    from holdfast.target import BoundTarget

PREDICTED_ROWS = 256  # rows that tell the fingerprint what a model predicts
LEVEL = 1e-6  # relative to the scores: a lead beyond doubt


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class BlackBox(Model):
    """An estimator or a function: scores and nothing else."""

    original: WrappedModel
    rule: DecisionRule | None  # its own `predict`, if that decides

    @property
    def wrapped(self) -> Any:
        """The estimator or function that was wrapped."""
        return self.original.model

    @property
    def inputs(self) -> Inputs:
        return self.original.inputs

    @property
    def outputs(self) -> Outputs:
        return self.original.source.outputs

    @property
    def name(self) -> str:
        return name_of(self.wrapped)

    @property
    def has_grad(self) -> bool:
        return False

    @cached_property
    def counts_votes(self) -> bool:  # pyright: ignore[reportIncompatibleMethodOverride]
        if self.thresholds is not None:
            return self.thresholds.outputs == "probabilities"
        if self.has_grad or self.outputs != "probabilities" or self.labels_only:
            return False
        raw = self.original.raw(*self.original.probe)  # only a share can be exactly 0 or 1
        return bool(((raw == 0) | (raw == 1)).any())

    def _scores(self, x: Tensor, frame: pd.DataFrame | None = None) -> Tensor:
        if self.defers_to_predict:
            return torch.log_softmax(to_scores(self.original.raw(x, frame), self.outputs), 1)
        return self.original.scores(x, frame)

    def __call__(self, x: Tensor) -> Tensor:
        scores = self._scores(x)
        if self.rule is None or not self.defers_to_predict:
            return scores
        return decided(scores, self.original.call(self.rule, x), CLEARLY)

    def score_frame(self, frame: pd.DataFrame, x: Tensor | None = None) -> Tensor:
        self.refuse_missing(frame)
        x = self.schema.encode(frame, self.dtype) if x is None else x
        if not len(x):
            return x.new_zeros(0, len(self.classes) or 1)
        scores = self._scores(x, frame)
        if self.rule is None:
            return scores
        rows = self._open(scores).nonzero().squeeze(1)
        if not len(rows):
            return scores
        out = scores.clone()
        out[rows] = decided(
            scores[rows], self.original.call(self.rule, x[rows], frame.iloc[rows.numpy()])
        )
        return out

    def _open(self, scores: Tensor) -> Tensor:
        """(n,) rows whose predicted class the scores (n, k) leave open."""
        return torch.ones(len(scores), dtype=torch.bool)

    def fingerprint(self) -> str:
        scores = self.original.raw(*self.original.probe).numpy().round(10)
        what = f"{type(self.wrapped).__name__} {self.classes}{self.offset or ''}"
        if self.defers_to_predict:  # its scores do not tell what it predicts
            assert self.rule is not None
            predicted = self.original.call(self.rule, probes(self.schema, [], PREDICTED_ROWS))
            what += f" {decisions.threshold_of(core(self.wrapped))} {predicted.tolist()}"
        return hashlib.sha256(what.encode() + scores.tobytes()).hexdigest()[:16]


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Judge(BlackBox):
    """An estimator that no search asks, and that is known to predict by its largest score, since it
    was fitted in the same way as one that could be compiled. Where two scores are level, its
    `predict` is asked."""

    def _open(self, scores: Tensor) -> Tensor:
        best = scores.topk(2, 1).values if scores.shape[1] > 1 else torch.zeros(len(scores), 2)
        return best[:, 0] - best[:, 1] <= LEVEL * best[:, 0].abs().clamp_min(1.0)

    @staticmethod
    def like(
        other: BlackBox, model: Any, classes: Sequence[Any] | None, outputs: Outputs | None
    ) -> "Judge":
        """The judge of an estimator that was fitted in the same way as another model's."""
        model = boosted(model, outputs) if is_booster(model) else model
        source = decisions.score_source(model, classes, outputs)
        # with the same view of the rows, and so the same probe
        original = replace(other.original, model=model, source=source)
        return Judge(
            schema=other.schema,
            classes=other.classes,
            dtype=other.dtype,
            output_scale=other.output_scale,
            original=original,
            rule=decisions.decision_rule(model),
            rejects_missing=other.rejects_missing,
            labels_only=other.labels_only,
            conversion=Conversion(False, "not asked for"),
            offset=source.offset,
        )


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class CompiledModel(BlackBox):
    """An estimator, which decides what counts, and its compiled form over encoded rows, which
    searches use."""

    scorer: CompiledScorer
    program: TorchModel | None  # the scorer as a torch model, if it is differentiable

    @property
    def has_grad(self) -> bool:
        return self.program is not None

    @property
    def thresholds(self) -> TreeIndex | None:
        return self.scorer.trees

    def __call__(self, x: Tensor) -> Tensor:
        return self.program(x) if self.program else self.scorer.scores(x)

    def vjp(self, x: Tensor) -> tuple[Tensor, Pullback]:
        return self.program.vjp(x) if self.program else super().vjp(x)

    @property
    def engine(self) -> Engine | None:
        return self.program.engine if self.program else None

    def shortfall(
        self, x: Tensor, goal: "BoundTarget", level: float, soft: bool | None = None
    ) -> Shortfall:
        return (self.program or super()).shortfall(x, goal, level, soft)

    @contextmanager
    def eval_mode(self) -> Generator[None]:
        with self.program.eval_mode() if self.program else nullcontext():
            yield
