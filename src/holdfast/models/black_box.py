"""Models that are not torch modules: estimators and functions of the table, and exact copies of them to search on.

`BlackBox` asks the model itself, about rows as they would be handed in. `Converted` judges likewise, and searches on a
copy over encoded rows (see `holdfast.models.compiled`), which has gradients or is fast.
"""

import hashlib
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from holdfast.errors import ModelError, listed
from holdfast.models.base import PROBE_ROWS, Inputs, Model, Outputs, spread_of, to_scores
from holdfast.models.compiled.build import CompiledScorer, copy_of, difference, handed_in, probes
from holdfast.models.compiled.column_names import handed, lacking
from holdfast.models.compiled.decision_rule import core, decision, name_of, threshold_of, voice
from holdfast.models.compiled.from_boosters import has_margins
from holdfast.models.compiled.preprocessing import RefusedError
from holdfast.models.compiled.tree_program import TreeProgram
from holdfast.models.scores import CLEARLY, Conversion, decided, lead
from holdfast.models.torch_model import TorchModel
from holdfast.nn.relu_network import Engine, Pullback
from holdfast.schema.schema import Schema

if TYPE_CHECKING:
    from holdfast.target import BoundTarget

# Rows and pairs of rows by which `predict` is compared with the scores, and how often each pair is brought closer.
ASKED_ROWS, ASKED_PAIRS, HALVINGS = 256, 64, 8


class BlackBox(Model):
    """An estimator or a function: scores and nothing else."""

    has_grad = False
    conversion = Conversion(False, "not asked for")
    dtype = torch.float64  # encoded rows are decoded back into the table, so keep every digit

    def __init__(
        self,
        model: Any,
        schema: Schema,
        classes: Sequence[Any] | None,
        outputs: Outputs | None,
        inputs: Inputs,
        missing: bool | None = None,
    ) -> None:
        self.schema, self.wrapped, self.inputs = schema, model, inputs
        said = voice(model, classes, outputs)
        self.call, self.offset, self.labels_only = said.call, said.offset, said.labels_only
        self.outputs: Outputs = said.outputs
        self.decision = None if said.labels_only else decision(model)
        self.columns = handed(model, schema.names)
        estimator = any(hasattr(model, name) for name in ("predict", "predict_proba", "decision_function"))
        self.rejects_missing = self._refused(missing, estimator) if inputs == "frame" else {}
        if self.rejects_missing:
            schema = self.schema = schema.without_gaps(self.rejects_missing)
        self._probe = self._spread_rows()
        self._probe_table = None if inputs == "encoded" else schema.decode(self._probe)
        raw = self._raw(self._probe, self._probe_table)
        self._set_classes(classes, raw.shape[1], self.outputs)
        if self.is_regression:
            self.output_scale = spread_of(self._raw(schema.probe))

    def _spread_rows(self) -> Tensor:
        """A few encoded rows spread over the data's range."""
        at = self.schema.encoding(self.dtype)
        low, high = at.seen_low.clamp(-3, 3), at.seen_high.clamp(-3, 3)
        t = torch.linspace(0, 1, PROBE_ROWS, dtype=self.dtype)[:, None]
        rows = at.whole(low + t * (high - low))
        return self.schema.feasible(rows).project(rows)

    def _refused(self, missing: bool | None, estimator: bool) -> dict[str, str]:
        """The columns of numbers that may be missing by the schema, where the model takes none, and why."""
        gaps = [(i, f.name) for i, f in enumerate(self.schema.features) if f.has_gaps]
        if missing is False or (missing is None and not estimator):
            why = "it is a function, and was not wrapped with missing=True" if missing is None else "missing=False"
            return {name: why for _, name in gaps}
        out: dict[str, str] = {}
        known = self._spread_rows()
        known[:, self.schema.encoding(self.dtype).gaps[1]] = 0.0
        full = self.schema.decode_numbers(known)
        for i, name in gaps:
            numbers = full.copy()
            numbers[:, i] = np.nan
            try:
                self._raw(self.schema.encode_numbers(numbers, self.dtype), self.schema.table(numbers))
            except ModelError as error:
                if missing:
                    raise ModelError(f"missing=True, but with missing numbers in column {name!r} {error}") from error
                out[name] = str(error).partition("\n")[0].rstrip(".")
        return out

    def _rows(self, x: Tensor, frame: pd.DataFrame | None) -> Any:
        """The rows as the model takes them: it may have been trained on some of the columns, in an order of its own."""
        if self.inputs == "encoded":
            return x.numpy()
        table = self.schema.decode(x) if frame is None else self.schema.with_levels(frame)
        return table if self.columns == list(table.columns) else table[self.columns]

    def _asked(self, call: Callable[[Any], Any], x: Tensor, frame: pd.DataFrame | None = None) -> Any:
        """What a function of the model says of encoded rows, which it gets as it wants them."""
        try:
            return call(self._rows(x, frame))
        except ModelError:
            raise
        except Exception as error:
            raise ModelError(self._why_it_failed(error)) from error

    def _why_it_failed(self, error: Exception) -> str:
        name, gone = name_of(self.wrapped), lacking(self.wrapped, self.schema.names)
        if self.inputs == "encoded" or not gone:
            return f"the model ({name}) failed on the table: {type(error).__name__}: {error}"
        return (
            f"the model ({name}) needs {len(gone)} column(s) that the schema lacks: {listed(gone)}; infer the schema "
            "from the table that the model was trained on, or train it without them"
        )

    def _raw(self, x: Tensor, frame: pd.DataFrame | None = None) -> Tensor:
        raw = np.asarray(self._asked(self.call, x, frame), dtype=np.float64)
        raw = raw[:, None] if raw.ndim == 1 else raw
        if raw.ndim != 2 or len(raw) != len(x):
            raise ModelError(f"the model maps {len(x)} rows to shape {raw.shape}, expected ({len(x)}, k)")
        if not np.isfinite(raw).all():
            raise ModelError(f"the model returned {int((~np.isfinite(raw)).sum())} scores that are no numbers")
        if self.outputs == "probabilities":
            inside = (raw >= -1e-6).all() and (raw <= 1 + 1e-6).all()
            if not inside or (raw.shape[1] > 1 and np.abs(raw.sum(1) - 1).max(initial=0) > 1e-3):
                raise ModelError(
                    f"expected probabilities (between 0 and 1, rows adding up to 1), {self._other_values()}"
                )
        return torch.tensor(raw)

    def _other_values(self) -> str:
        """What to do about probabilities that are none."""
        if self.call is self.wrapped:
            fix = "pass outputs='logits' if these are scores, outputs='value' if they are estimates"
            return f"got other values; {fix}"
        got = f"got other values from {name_of(self.wrapped)}"
        if has_margins(core(self.wrapped)) or hasattr(self.wrapped, "decision_function"):
            return f"{got}; pass outputs='logits' to go by its scores"
        return f"{got}; wrap a function of the table that returns such ones"

    def _scores(self, x: Tensor, frame: pd.DataFrame | None = None) -> Tensor:
        scores = to_scores(self._raw(x, frame), self.outputs)
        if self.defers_to_predict:
            return torch.log_softmax(scores, 1)
        return scores + torch.tensor(self.offset, dtype=scores.dtype) if any(self.offset) else scores

    def __call__(self, x: Tensor) -> Tensor:
        scores = self._scores(x)
        return (
            decided(scores, self._asked(self.decision, x), CLEARLY)
            if self.decision and self.defers_to_predict
            else scores
        )

    def score_frame(self, frame: pd.DataFrame, x: Tensor | None = None) -> Tensor:
        x = self.schema.encode(frame, self.dtype) if x is None else x
        if not len(x):
            return x.new_zeros(0, len(self.classes) or 1)
        scores = self._scores(x, frame)
        return decided(scores, self._asked(self.decision, x, frame)) if self.decision else scores

    def contradicts_itself(self) -> bool:
        """Does `predict` give other classes than the scores do? Rows all over the data's range are looked at, and pairs
        of rows on either side of where the predicted class changes, found by bisection."""
        assert self.decision is not None
        rows = probes(self.schema, [], ASKED_ROWS)
        try:
            said = self._asked(self.decision, rows)
            pairs = (said != said.roll(1)).nonzero().squeeze(1)[:ASKED_PAIRS]
            a, b = rows[pairs], rows.roll(1, 0)[pairs]
            for _ in range(HALVINGS if len(pairs) else 0):
                middle = (a + b) / 2
                same = (self._asked(self.decision, middle) == said[pairs])[:, None]
                a, b = torch.where(same, middle, a), torch.where(same, b, middle)
            rows = torch.cat([rows, a, b])
            scores = self._scores(rows)
            behind = lead(scores, self._asked(self.decision, rows)) < -1e-6 * scores.abs().amax(1).clamp_min(1.0)
        except ModelError:  # rows that nobody has: only what it says of the caller's own counts
            return False
        return bool(behind.any())

    def fingerprint(self) -> str:
        scores = self._raw(self._probe, self._probe_table).numpy().round(10)
        what = f"{type(self.wrapped).__name__} {self.classes}{self.offset or ''}"
        if self.defers_to_predict:  # what it predicts is not in its scores
            assert self.decision is not None
            said = self._asked(self.decision, probes(self.schema, [], ASKED_ROWS))
            what += f" {threshold_of(core(self.wrapped))} {said.tolist()}"
        return hashlib.sha256(what.encode() + scores.tobytes()).hexdigest()[:16]


class CompiledModel(BlackBox):
    """An estimator that judges, and its exact copy over encoded rows that searches."""

    def __init__(self, box: BlackBox, copy: CompiledScorer) -> None:
        vars(self).update(vars(box))
        self.conversion = Conversion(True, copy.text)
        self.copy = copy
        module = copy.run if isinstance(copy.run, nn.Module) else None
        self.has_grad = module is not None
        outputs: Outputs = "value" if self.is_regression else "logits"
        self.program = TorchModel(module, self.schema, self.classes, outputs) if module else None

    def __call__(self, x: Tensor) -> Tensor:
        return self.program(x) if self.program else to_scores(cast(Any, self.copy.run)(x), self.copy.outputs)

    def vjp(self, x: Tensor) -> tuple[Tensor, Pullback]:
        return self.program.vjp(x) if self.program else super().vjp(x)

    @property
    def engine(self) -> Engine | None:
        return self.program.engine if self.program else None

    def shortfall(
        self, x: Tensor, goal: "BoundTarget", level: float, soft: bool | None = None
    ) -> tuple[Tensor, Tensor, Pullback]:
        return (self.program or super()).shortfall(x, goal, level, soft)

    @contextmanager
    def eval_mode(self) -> Generator[None]:
        with self.program.eval_mode() if self.program else super().eval_mode():
            yield

    def differs(self) -> str:
        """Why the copy is not exact, or nothing: on rows of a table at thresholds and beside them, to the last digit,
        where it has codes for them; else on encoded rows as they are decoded."""
        rows, frame = probes(self.schema, self.copy.cuts), None
        if self.inputs == "frame" and self.copy.grown and isinstance(self.copy.run, TreeProgram):
            numbers = handed_in(self.schema, self.copy.grown.ends)
            rows, frame = self.schema.encode_numbers(numbers, self.dtype), self.schema.table(numbers)
        return difference(self(rows), self._scores(rows, frame), self.outputs, self.output_scale)


def converted(box: BlackBox) -> BlackBox:
    """The same model with an exact copy to search on, or as it is, with the reason why there is none."""
    try:
        copy = copy_of(box.wrapped, box.schema, encoded=box.inputs == "encoded", offset=box.offset)
        if box.is_regression:  # trees of a graph do not know that their sum is the estimate
            copy = replace(copy, outputs="value")
        made = CompiledModel(box, copy)
        with made.eval_mode():
            why = made.differs()
        if not why:
            return made
    except RefusedError as refused:
        why = str(refused)
    except Exception as error:  # an estimator of another version, or taught new tricks, is still a black box
        why = f"{type(error).__name__}: {error}"
    box.conversion = Conversion(False, why)
    return box


def checked(model: BlackBox, box: BlackBox) -> BlackBox:
    """The model, if its largest score is the class that it predicts; else the bare one, whose searches ask `predict`.

    Models of which exact copies are known predict by the largest score, unless there is a threshold.
    """
    known = model.decision is None or (model.conversion and not any(model.offset))
    if known or not model.contradicts_itself():
        return model
    why = "its predict does not go by the largest of its scores, so searches ask both"
    box.defers_to_predict, box.offset = True, ()
    box.conversion = Conversion(False, why if model.conversion else f"{model.conversion}; {why}")
    return box
