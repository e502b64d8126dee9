"""Fitted estimators of a bank: compiled only when a search asks for one, as compiling takes longer
than judging rows."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, overload

from holdfast.models.base import Model
from holdfast.models.black_box import BlackBox, CompiledModel, Judge
from holdfast.models.scores import Inputs, Outputs
from holdfast.schema.schema import Schema


@dataclass(eq=False)
class FittedEstimator:
    """An estimator, and all that makes a model of it; the model is made once."""

    estimator: Any
    schema: Schema
    classes: tuple[Any, ...]  # none for a regressor
    inputs: Inputs
    outputs: Outputs | None = None
    _model: Model | None = field(default=None, init=False, repr=False)
    _judge: Judge | None = field(default=None, init=False, repr=False)

    @property
    def model(self) -> Model:
        if self._model is None:
            self._model = Model.of(
                self.estimator,
                self.schema,
                classes=self.classes or None,
                outputs=self.outputs,
                inputs=self.inputs,
            )
        return self._model

    def judge(self, like: BlackBox) -> Model:
        """The model, if it is there already, or what judges rows of a table as it would, made like
        another one."""
        if self._model is not None:
            return self._model
        if self._judge is None:
            self._judge = Judge.like(like, self.estimator, self.classes or None, self.outputs)
        return self._judge


class FittedEstimators(Sequence[Model]):
    """Models of estimators that were fitted in the same way."""

    def __init__(self, fitted: Iterable[FittedEstimator]) -> None:
        self.fitted = tuple(fitted)

    def __len__(self) -> int:
        return len(self.fitted)

    @overload
    def __getitem__(self, i: int) -> Model: ...
    @overload
    def __getitem__(self, i: slice) -> Sequence[Model]: ...
    def __getitem__(self, i: int | slice) -> Model | Sequence[Model]:
        return FittedEstimators(self.fitted[i]) if isinstance(i, slice) else self.fitted[i].model

    def judges(self) -> list[Model]:
        """Models that judge rows of a table and nothing else, if the first one can be compiled:
        then all go by their largest score, and need not be compiled."""
        first = self[0] if len(self) else None
        if isinstance(first, CompiledModel) and not any(first.offset):
            return [fitted.judge(first) for fitted in self.fitted]
        return [fitted.model for fitted in self.fitted]
