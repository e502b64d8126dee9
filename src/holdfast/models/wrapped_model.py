"""An estimator or a function as the user made it, called with encoded rows, which it gets in the
form it takes."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from holdfast._core.checks import listed
from holdfast._core.types import Array
from holdfast.errors import ModelError
from holdfast.models.base import probe_rows
from holdfast.models.compiled.column_names import lacking
from holdfast.models.compiled.decision_rule import ScoreSource, core, name_of
from holdfast.models.compiled.from_boosters import has_margins
from holdfast.models.scores import Inputs, to_scores
from holdfast.schema.schema import Schema

DTYPE = torch.float64  # encoded rows are decoded back into the table, so every digit counts


@dataclass(frozen=True, eq=False)
class RowView:
    """How encoded rows look to a model: as they are, or as the table it was trained on."""

    schema: Schema
    inputs: Inputs
    # columns of numbers in which the model does not take missing values
    never_missing: frozenset[str] = frozenset()

    @cached_property
    def _marks(self) -> Tensor:
        """The encoded columns that mark missing numbers where the model does not take them."""
        places = zip(self.schema.names, self.schema.slices, strict=True)
        return torch.tensor(
            [s.stop - 1 for name, s in places if name in self.never_missing], dtype=torch.int64
        )

    def table(self, x: Tensor) -> pd.DataFrame:
        """Encoded rows as the model gets them: missing numbers it does not take are replaced by
        their stand-ins."""
        return self.schema.decode(x.index_fill(1, self._marks, 0.0) if self.never_missing else x)

    @cached_property
    def probe(self) -> tuple[Tensor, pd.DataFrame | None]:
        """A few encoded rows spread over the data's range, and the same as a table if the model
        takes one. Models that share a view share them."""
        rows = probe_rows(self.schema, DTYPE)
        rows = self.schema.feasible(rows).project(rows)
        return rows, None if self.inputs == "encoded" else self.table(rows)


@dataclass(frozen=True, eq=False)
class WrappedModel:
    """An estimator or a function, where its scores come from, and what it is called with."""

    model: Any
    view: RowView
    source: ScoreSource
    # of the table, as it gets them: it may have been trained on some, in its own order
    columns: list[str]

    @property
    def schema(self) -> Schema:
        return self.view.schema

    @property
    def inputs(self) -> Inputs:
        return self.view.inputs

    @property
    def probe(self) -> tuple[Tensor, pd.DataFrame | None]:
        """See `RowView.probe`."""
        return self.view.probe

    def call(
        self, function: Callable[[Any], Any], x: Tensor, frame: pd.DataFrame | None = None
    ) -> Any:
        """What one of its functions returns for encoded rows; `frame` is the same rows as handed
        in."""
        try:
            if self.inputs == "encoded":
                return function(x.numpy())
            table = self.view.table(x) if frame is None else self.schema.with_levels(frame)
            return function(table if self.columns == list(table.columns) else table[self.columns])
        except ModelError:
            raise
        except Exception as error:
            raise ModelError(self._why_it_failed(error)) from error

    def _why_it_failed(self, error: Exception) -> str:
        name = name_of(self.model)
        missing = lacking(self.model, self.schema.names)
        if self.inputs == "encoded" or not missing:
            return f"the model ({name}) failed on the table: {type(error).__name__}: {error}"
        return (
            f"the model ({name}) needs {len(missing)} column(s) that the schema lacks: "
            f"{listed(missing)}; infer the schema from the table that the model was trained on, or "
            "train it without them"
        )

    def raw(self, x: Tensor, frame: pd.DataFrame | None = None) -> Tensor:
        """(n, k) what it returns, checked."""
        raw = np.asarray(self.call(self.source.call, x, frame), dtype=np.float64)
        raw = raw[:, None] if raw.ndim == 1 else raw
        if raw.ndim != 2 or len(raw) != len(x):
            raise ModelError(
                f"the model maps {len(x)} rows to shape {raw.shape}, expected ({len(x)}, k)"
            )
        bad = int((~np.isfinite(raw)).sum())
        if bad:
            raise ModelError(f"the model returned {bad} non-finite scores")
        if self.source.outputs == "probabilities" and not _are_probabilities(raw):
            raise ModelError(
                "expected probabilities (rows in [0, 1] that add up to 1), got other values"
                + self._fix()
            )
        return torch.tensor(raw)

    def _fix(self) -> str:
        """What to do about numbers that are not probabilities."""
        if self.source.call is self.model:
            return (
                "; pass outputs='logits' if these are scores, outputs='value' if they are estimates"
            )
        if has_margins(core(self.model)) or hasattr(self.model, "decision_function"):
            return f" from {name_of(self.model)}; pass outputs='logits' to go by its scores"
        return f" from {name_of(self.model)}; wrap a function of the table that returns such ones"

    def scores(self, x: Tensor, frame: pd.DataFrame | None = None) -> Tensor:
        """(n, k) its scores, with the offset of a threshold."""
        scores = to_scores(self.raw(x, frame), self.source.outputs)
        offset = self.source.offset
        return scores + torch.tensor(offset, dtype=scores.dtype) if any(offset) else scores

    def rejects_missing(self, missing: bool | None) -> dict[str, str]:
        """The columns in which the schema allows missing numbers and the model does not, and why.

        Args:
            missing: does it take missing numbers? None: an estimator is tried, a function does not.
        """
        gaps = [(i, f.name) for i, f in enumerate(self.schema.features) if f.has_gaps]
        is_estimator = any(
            hasattr(self.model, name) for name in ("predict", "predict_proba", "decision_function")
        )
        if missing is False:
            return {name: "missing=False" for _, name in gaps}
        if missing is None and not is_estimator:
            why = "it is a function, and was not wrapped with missing=True"
            return {name: why for _, name in gaps}
        # Column by column, in otherwise complete rows: a pipeline may impute some.
        complete = self.probe[0].clone()
        complete[:, self.schema.encoding(DTYPE).gaps[1]] = 0.0
        numbers_there = self.schema.decode_numbers(complete)
        rejected: dict[str, str] = {}
        for i, name in gaps:
            numbers = numbers_there.copy()
            numbers[:, i] = np.nan
            try:
                self.raw(self.schema.encode_numbers(numbers, DTYPE), self.schema.table(numbers))
            except ModelError as error:
                if missing:
                    raise ModelError(
                        f"missing=True, but with missing numbers in column {name!r} {error}"
                    ) from error
                rejected[name] = str(error).partition("\n")[0].rstrip(".")
        return rejected


def _are_probabilities(raw: Array) -> bool:
    """(n, k) in [0, 1], with rows that add up to 1; the other class gets what a single column
    leaves."""
    if not ((raw >= -1e-6).all() and (raw <= 1 + 1e-6).all()):
        return False
    return raw.shape[1] == 1 or bool(np.abs(raw.sum(1) - 1).max(initial=0) <= 1e-3)
