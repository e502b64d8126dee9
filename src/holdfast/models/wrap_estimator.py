"""Wrapping an estimator or a function: what must be known about it, its compiled form if it has
one, and a check that its `predict` goes by its scores."""

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from holdfast.errors import ModelError
from holdfast.models.base import class_names, output_scale_of
from holdfast.models.black_box import LEVEL, PREDICTED_ROWS, BlackBox, CompiledModel
from holdfast.models.compiled import decision_rule as decisions
from holdfast.models.compiled.build import (
    CompiledScorer,
    compile_scorer,
    difference,
    probes,
    table_probes,
)
from holdfast.models.compiled.column_names import handed
from holdfast.models.compiled.decision_rule import DecisionRule
from holdfast.models.compiled.from_boosters import boosted, is_booster
from holdfast.models.compiled.preprocessing import RefusedError
from holdfast.models.compiled.tree_program import TreeProgram
from holdfast.models.scores import Conversion, Inputs, Outputs, lead
from holdfast.models.torch_model import TorchModel, wrap_module
from holdfast.models.wrapped_model import DTYPE, RowView, WrappedModel
from holdfast.schema.schema import Schema

# Pairs of rows between which `predict` changes are brought closer this often.
PREDICTED_PAIRS = 64
HALVINGS = 8


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
    """An estimator or a function with what must be known about it, compiled if it can and should
    be; see `Model.of`."""
    parts, source = _parts(model, schema, classes, outputs, inputs, missing)
    original = parts["original"]
    rule = parts["rule"]
    conversion = Conversion(False, "not asked for")
    compiled = None
    if convert:
        conversion, compiled = _compile(original, parts["classes"], parts["output_scale"])
    # Models that can be compiled predict by the largest score, unless there is a threshold.
    in_doubt = compiled is None or any(source.offset)
    if rule and in_doubt and _contradicts_itself(original, rule):
        why = "its predict does not go by the largest of its scores, so searches ask both"
        conversion = Conversion(False, why if compiled else f"{conversion}; {why}")
        return BlackBox(**parts, conversion=conversion, defers_to_predict=True)
    parts |= {"conversion": conversion, "offset": source.offset}
    if compiled is None:
        return BlackBox(**parts)
    scorer, program = compiled
    return CompiledModel(**parts, scorer=scorer, program=program)


def _parts(
    model: Any,
    schema: Schema,
    classes: Sequence[Any] | None,
    outputs: Outputs | None,
    inputs: Inputs,
    missing: bool | None,
) -> tuple[dict[str, Any], decisions.ScoreSource]:
    """The fields of a `BlackBox`, and where its scores come from."""
    model = boosted(model, outputs) if is_booster(model) else model
    source = decisions.score_source(model, classes, outputs)
    view = RowView(schema, inputs)
    original = WrappedModel(model, view, source, handed(model, schema.names))
    rejected = original.rejects_missing(missing) if inputs == "frame" else {}
    if rejected:
        original = replace(original, view=replace(view, never_missing=frozenset(rejected)))
    names = class_names(classes, original.raw(*original.probe).shape[1], source.outputs)
    scale = 1.0 if names else output_scale_of(original.raw(schema.probe))
    rule = None if source.labels_only else decisions.decision_rule(model)
    parts: dict[str, Any] = {
        "schema": schema,
        "classes": names,
        "dtype": DTYPE,
        "output_scale": scale,
        "original": original,
        "rule": rule,
        "rejects_missing": rejected,
        "labels_only": source.labels_only,
    }
    return parts, source


def _compile(
    original: WrappedModel, classes: tuple[Any, ...], scale: float
) -> tuple[Conversion, tuple[CompiledScorer, TorchModel | None] | None]:
    """The compiled form of a model, also as a torch model if it is differentiable; or none, and
    why."""
    outputs: Outputs = "logits" if classes else "value"
    try:
        encoded = original.inputs == "encoded"
        offset = original.source.offset
        scorer = compile_scorer(
            original.model,
            original.schema,
            original.view.never_missing,
            encoded=encoded,
            offset=offset,
        )
        if not classes:  # a graph's trees do not know that their sum is the estimate
            scorer = scorer.as_regression()
        module = scorer.run if isinstance(scorer.run, nn.Module) else None
        program = wrap_module(module, original.schema, classes, outputs) if module else None
        with program.eval_mode() if program else nullcontext():
            why = _differs(original, scorer, program, scale)
        if not why:
            return Conversion(True, scorer.text), (scorer, program)
    except RefusedError as refused:
        why = str(refused)
    # an estimator of another version, or with changes, is still a black box
    except Exception as error:
        why = f"{type(error).__name__}: {error}"
    return Conversion(False, why), None


def _differs(
    original: WrappedModel, scorer: CompiledScorer, program: TorchModel | None, scale: float
) -> str:
    """Why the compiled scores are not the model's own, or nothing; if possible on a table, at
    thresholds and next to them."""
    rows = probes(original.schema, scorer.cuts)
    frame = None
    if original.inputs == "frame" and scorer.trees and isinstance(scorer.run, TreeProgram):
        numbers = table_probes(
            original.schema.without_gaps(original.view.never_missing), scorer.trees.ends
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
        slack = LEVEL * scores.abs().amax(1).clamp_min(1.0)
        behind = lead(scores, original.call(rule, rows)) < -slack
    except ModelError:  # these rows are nobody's: only what it gives for the caller's rows counts
        return False
    return bool(behind.any())
