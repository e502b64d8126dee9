"""Models that are not torch modules: estimators and functions of the table, and their compiled
forms."""

import hashlib
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from holdfast._core.checks import listed
from holdfast.errors import ModelError
from holdfast.models.base import Model, Shortfall, class_names, output_scale_of, probe_rows
from holdfast.models.compiled import decision_rule as decisions
from holdfast.models.compiled.build import (
    CompiledScorer,
    compile_scorer,
    difference,
    probes,
    table_probes,
)
from holdfast.models.compiled.column_names import handed, lacking
from holdfast.models.compiled.decision_rule import DecisionRule, core, name_of
from holdfast.models.compiled.from_boosters import boosted, has_margins, is_booster
from holdfast.models.compiled.preprocessing import RefusedError
from holdfast.models.compiled.tree_leaves import TreeIndex
from holdfast.models.compiled.tree_program import TreeProgram
from holdfast.models.scores import CLEARLY, Conversion, Inputs, Outputs, decided, lead, to_scores
from holdfast.models.torch_model import TorchModel, wrap_module
from holdfast.nn.relu_network import Engine, Pullback
from holdfast.schema.schema import Schema

if TYPE_CHECKING:
    from holdfast.target import BoundTarget

DTYPE = torch.float64  # encoded rows are decoded back into the table, so keep every digit
# Rows and pairs of rows by which `predict` is compared with the scores, and how often each pair is
# brought closer.
PREDICTED_ROWS = 256
PREDICTED_PAIRS = 64
HALVINGS = 8
LEVEL = 1e-6  # relative to the scores: by which one leads without doubt


@dataclass(frozen=True, eq=False)
class WrappedModel:
    """An estimator or a function as the user made it, called with encoded rows, which it gets as it
    takes them."""

    model: Any
    schema: Schema
    inputs: Inputs
    source: decisions.ScoreSource
    # of the table, as it is handed them: it may have been trained on some, in an order of its own
    columns: list[str]
    # columns of numbers in which it takes no missing ones
    never_missing: frozenset[str] = frozenset()

    @cached_property
    def _marks(self) -> Tensor:
        """The encoded columns that mark numbers as missing which it does not take."""
        places = zip(self.schema.names, self.schema.slices, strict=True)
        return torch.tensor(
            [s.stop - 1 for name, s in places if name in self.never_missing], dtype=torch.int64
        )

    def table(self, x: Tensor) -> pd.DataFrame:
        """Encoded rows as it is handed them: with what stands for them in place of missing numbers
        it does not take."""
        return self.schema.decode(x.index_fill(1, self._marks, 0.0) if self.never_missing else x)

    @cached_property
    def probe(self) -> tuple[Tensor, pd.DataFrame | None]:
        """A few encoded rows spread over the data's range, and the same as a table, if it takes
        one."""
        rows = probe_rows(self.schema, DTYPE)
        rows = self.schema.feasible(rows).project(rows)
        return rows, None if self.inputs == "encoded" else self.table(rows)

    def call(
        self, function: Callable[[Any], Any], x: Tensor, frame: pd.DataFrame | None = None
    ) -> Any:
        """What one of its functions returns for encoded rows; `frame`: the same rows as they were
        handed in."""
        try:
            if self.inputs == "encoded":
                return function(x.numpy())
            table = self.table(x) if frame is None else self.schema.with_levels(frame)
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
        what = (
            f"the model ({name}) needs {len(missing)} column(s) that the schema lacks: "
            f"{listed(missing)}"
        )
        return (
            f"{what}; infer the schema from the table that the model was trained on, or train it "
            "without them"
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
        if self.source.outputs == "probabilities":
            inside = (raw >= -1e-6).all() and (raw <= 1 + 1e-6).all()
            if not inside or (raw.shape[1] > 1 and np.abs(raw.sum(1) - 1).max(initial=0) > 1e-3):
                what = "expected probabilities (rows in [0, 1] that add up to 1), got other values"
                raise ModelError(what + self._fix())
        return torch.tensor(raw)

    def _fix(self) -> str:
        """What to do about probabilities that are none."""
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
        """The columns of numbers that may be missing by the schema, where the model takes none, and
        why."""
        gaps = [(i, f.name) for i, f in enumerate(self.schema.features) if f.has_gaps]
        estimator = any(
            hasattr(self.model, name) for name in ("predict", "predict_proba", "decision_function")
        )
        if missing is False or (missing is None and not estimator):
            why = (
                "it is a function, and was not wrapped with missing=True"
                if missing is None
                else "missing=False"
            )
            return {name: why for _, name in gaps}
        rejected: dict[str, str] = {}
        known = self.probe[0].clone()
        known[:, self.schema.encoding(DTYPE).gaps[1]] = 0.0
        full = self.schema.decode_numbers(known)
        for i, name in gaps:
            numbers = full.copy()
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


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class BlackBox(Model):
    """An estimator or a function: scores and nothing else."""

    original: WrappedModel
    rule: DecisionRule | None  # its own `predict`, where that decides

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
        raw = self.original.raw(*self.original.probe)  # nothing but a share is as sure as can be
        return bool(((raw == 0) | (raw == 1)).any())

    def _scores(self, x: Tensor, frame: pd.DataFrame | None = None) -> Tensor:
        if self.defers_to_predict:
            return torch.log_softmax(to_scores(self.original.raw(x, frame), self.outputs), 1)
        return self.original.scores(x, frame)

    def __call__(self, x: Tensor) -> Tensor:
        deferred = self.rule if self.defers_to_predict else None
        return (
            decided(self._scores(x), self.original.call(deferred, x), CLEARLY)
            if deferred
            else self._scores(x)
        )

    def score_frame(self, frame: pd.DataFrame, x: Tensor | None = None) -> Tensor:
        self.refuse_missing(frame)
        x = self.schema.encode(frame, self.dtype) if x is None else x
        if not len(x):
            return x.new_zeros(0, len(self.classes) or 1)
        scores = self._scores(x, frame)
        if self.rule is None or not bool((close := self._open(scores)).any()):
            return scores
        rows = close.nonzero().squeeze(1)
        out = scores.clone()
        out[rows] = decided(
            scores[rows], self.original.call(self.rule, x[rows], frame.iloc[rows.numpy()])
        )
        return out

    def _open(self, scores: Tensor) -> Tensor:
        """(n,) rows whose predicted class is not plain from the scores (n, k)."""
        return torch.ones(len(scores), dtype=torch.bool)

    def fingerprint(self) -> str:
        scores = self.original.raw(*self.original.probe).numpy().round(10)
        what = f"{type(self.wrapped).__name__} {self.classes}{self.offset or ''}"
        if self.defers_to_predict:  # what it predicts is not in its scores
            assert self.rule is not None
            predicted = self.original.call(self.rule, probes(self.schema, [], PREDICTED_ROWS))
            what += f" {decisions.threshold_of(core(self.wrapped))} {predicted.tolist()}"
        return hashlib.sha256(what.encode() + scores.tobytes()).hexdigest()[:16]


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Judge(BlackBox):
    """An estimator that no search asks, and that is known to predict by its largest score: it was
    fitted in the same way as one that could be compiled. Its `predict` is asked where two scores
    are level."""

    def _open(self, scores: Tensor) -> Tensor:
        best = scores.topk(2, 1).values if scores.shape[1] > 1 else torch.zeros(len(scores), 2)
        return best[:, 0] - best[:, 1] <= LEVEL * best[:, 0].abs().clamp_min(1.0)

    @staticmethod
    def like(
        other: BlackBox, model: Any, classes: Sequence[Any] | None, outputs: Outputs | None
    ) -> "Judge":
        """The judge of an estimator that was fitted in the same way as that of another model."""
        model = boosted(model, outputs) if is_booster(model) else model
        source = decisions.score_source(model, classes, outputs)
        original = replace(other.original, model=model, source=source)
        vars(original)["probe"] = other.original.probe  # the same rows
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


def wrap_estimator(
    model: Any,
    schema: Schema,
    classes: Sequence[Any] | None,
    outputs: Outputs | None,
    inputs: Inputs,
    *,
    convert: bool = True,
    missing: bool | None = None,
) -> BlackBox:
    """An estimator or a function with what is to be known of it, compiled if it can be and is to
    be; see `Model.of`."""
    known, source = _known(model, schema, classes, outputs, inputs, missing)
    original = known["original"]
    rule = known["rule"]
    conversion = Conversion(False, "not asked for")
    compiled = None
    if convert:
        conversion, compiled = _compile(original, known["classes"], known["output_scale"])
    # Models that can be compiled predict by the largest score, unless there is a threshold.
    if rule and (compiled is None or any(source.offset)) and _contradicts_itself(original, rule):
        why = "its predict does not go by the largest of its scores, so searches ask both"
        conversion = Conversion(False, why if compiled else f"{conversion}; {why}")
        return BlackBox(**known, conversion=conversion, defers_to_predict=True)
    known |= {"conversion": conversion, "offset": source.offset}
    return (
        CompiledModel(**known, scorer=compiled[0], program=compiled[1])
        if compiled
        else BlackBox(**known)
    )


def _known(
    model: Any,
    schema: Schema,
    classes: Sequence[Any] | None,
    outputs: Outputs | None,
    inputs: Inputs,
    missing: bool | None,
) -> tuple[dict[str, Any], decisions.ScoreSource]:
    """What is to be known of an estimator or a function, and where its scores come from."""
    model = boosted(model, outputs) if is_booster(model) else model
    source = decisions.score_source(model, classes, outputs)
    original = WrappedModel(model, schema, inputs, source, handed(model, schema.names))
    rejected = original.rejects_missing(missing) if inputs == "frame" else {}
    original = replace(original, never_missing=frozenset(rejected))
    names = class_names(classes, original.raw(*original.probe).shape[1], source.outputs)
    scale = 1.0 if names else output_scale_of(original.raw(schema.probe))
    rule = None if source.labels_only else decisions.decision_rule(model)
    known: dict[str, Any] = {
        "schema": schema,
        "classes": names,
        "dtype": DTYPE,
        "output_scale": scale,
        "original": original,
        "rule": rule,
        "rejects_missing": rejected,
        "labels_only": source.labels_only,
    }
    return known, source


def _compile(
    original: WrappedModel, classes: tuple[Any, ...], scale: float
) -> tuple[Conversion, tuple[CompiledScorer, TorchModel | None] | None]:
    """The compiled form of a model, as a torch model too if it is differentiable; or none, and
    why."""
    outputs: Outputs = "logits" if classes else "value"
    try:
        encoded = original.inputs == "encoded"
        offset = original.source.offset
        taken = original.schema, original.never_missing
        scorer = compile_scorer(original.model, *taken, encoded=encoded, offset=offset)
        if not classes:  # trees of a graph do not know that their sum is the estimate
            scorer = scorer.as_regression()
        module = scorer.run if isinstance(scorer.run, nn.Module) else None
        program = wrap_module(module, original.schema, classes, outputs) if module else None
        with program.eval_mode() if program else nullcontext():
            why = _differs(original, scorer, program, scale)
        if not why:
            return Conversion(True, scorer.text), (scorer, program)
    except RefusedError as refused:
        why = str(refused)
    # an estimator of another version, or taught new tricks, is still a black box
    except Exception as error:
        why = f"{type(error).__name__}: {error}"
    return Conversion(False, why), None


def _differs(
    original: WrappedModel, scorer: CompiledScorer, program: TorchModel | None, scale: float
) -> str:
    """Why the compiled scores are not the model's own, or nothing; if possible on a table, at
    thresholds and beside."""
    rows = probes(original.schema, scorer.cuts)
    frame = None
    if original.inputs == "frame" and scorer.trees and isinstance(scorer.run, TreeProgram):
        numbers = table_probes(
            original.schema.without_gaps(original.never_missing), scorer.trees.ends
        )
        rows = original.schema.encode_numbers(numbers, DTYPE)
        frame = original.schema.table(numbers)
    compiled = program(rows) if program else scorer.scores(rows)
    return difference(compiled, original.scores(rows, frame), original.source.outputs, scale)


def _contradicts_itself(original: WrappedModel, rule: DecisionRule) -> bool:
    """Does `predict` give other classes than the scores, in the data's range and, by bisection,
    where it changes?"""
    rows = probes(original.schema, [], PREDICTED_ROWS)
    try:
        predicted = original.call(rule, rows)
        pairs = (predicted != predicted.roll(1)).nonzero().squeeze(1)[:PREDICTED_PAIRS]
        a = rows[pairs]
        b = rows.roll(1, 0)[pairs]
        for _ in range(HALVINGS if len(pairs) else 0):
            middle = (a + b) / 2
            same = (original.call(rule, middle) == predicted[pairs])[:, None]
            a = torch.where(same, middle, a)
            b = torch.where(same, b, middle)
        rows = torch.cat([rows, a, b])
        scores = original.scores(rows)
        behind = lead(scores, original.call(rule, rows)) < -1e-6 * scores.abs().amax(1).clamp_min(
            1.0
        )
    except ModelError:  # rows that nobody has: only what it gives for the caller's own counts
        return False
    return bool(behind.any())
