"""Which compiled scorer a model gets, how it is checked against the model itself, and why some get
none."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from holdfast._core.types import Array
from holdfast.models.compiled import differentiable, from_boosters, from_onnx, from_sklearn
from holdfast.models.compiled.column_names import (
    found_among,
    handed,
    lacking,
    trained_on,
    unwrapped,
)
from holdfast.models.compiled.decision_rule import THRESHOLDS, Offset, behind
from holdfast.models.compiled.from_sklearn import Kernel
from holdfast.models.compiled.preprocessing import (
    Column,
    Raw,
    RefusedError,
    StepColumns,
    through,
    type_name,
)
from holdfast.models.compiled.tree_leaves import TreeIndex
from holdfast.models.compiled.tree_nodes import Nodes, code_columns, level_codes
from holdfast.models.compiled.tree_program import TreeProgram, coder, pieces
from holdfast.models.scores import Outputs, to_scores
from holdfast.schema.schema import Schema

CLOSE = 1e-6  # how far scores may differ
LEVEL = 1e-12  # scores that differ by less are level: rounding decides which wins
PROBES = 64  # rows spread over the data's range
CUTS = 256  # rows at a threshold, and as many next to it
NOWHERE = -1  # the place of a column that the schema lacks


@dataclass(frozen=True)
class CompiledScorer:
    """A model over encoded rows: a differentiable module, or a function (n, d) -> (n, k)."""

    run: nn.Module | Callable[[Tensor], Tensor]
    outputs: Outputs
    text: str
    # (encoded column, thresholds)
    cuts: list[tuple[int, Array]] = field(default_factory=list[tuple[int, Array]])
    trees: TreeIndex | None = None  # of trees: their thresholds and leaves

    def scores(self, x: Tensor) -> Tensor:
        """(n, k) of encoded rows (n, d)."""
        return to_scores(self.run(x), self.outputs)

    def as_regression(self) -> "CompiledScorer":
        """The same, where what it returns is the estimate of a regression model."""
        return replace(
            self, outputs="value", trees=self.trees and replace(self.trees, outputs="value")
        )


# Readers of trees, and up to how many leaves a tree is evaluated faster here than by the library's
# own code, if that can be called without a table.
TreeReader = Callable[[Any], tuple[Nodes, Kernel | None]]
TREES: dict[str, tuple[TreeReader, int]] = {
    f"{library}.{name}": (reader, most)
    for library, reader, most, names in (
        ("sklearn", from_sklearn.forest, 96, "RandomForest* ExtraTrees* DecisionTree* ExtraTree*"),
        ("sklearn", from_sklearn.gradient_boosting, 256, "GradientBoosting*"),
        ("sklearn", from_sklearn.hist_gradient_boosting, 256, "HistGradientBoosting*"),
        ("xgboost", from_boosters.xgboost, 48, "XGB* XGBRF* Booster"),
        ("lightgbm", from_boosters.lightgbm, 256, "LGBM* Booster"),
        ("holdfast", from_onnx.graph, 256, "FlatGraph"),
    )
    for pattern in names.split()
    for name in {pattern.replace("*", task) for task in ("Classifier", "Regressor")}
}
LINEAR = (
    "LogisticRegression",
    "LogisticRegressionCV",
    "LinearSVC",
    "SVC",
    "SGDClassifier",
    "RidgeClassifier",
    "RidgeClassifierCV",
    "Perceptron",
    "LinearDiscriminantAnalysis",
)
STRAIGHT = (  # regressions whose estimate is coef_ . u + intercept_
    "LinearRegression",
    "Ridge",
    "RidgeCV",
    "Lasso",
    "LassoCV",
    "ElasticNet",
    "ElasticNetCV",
    "Lars",
    "LassoLars",
    "BayesianRidge",
    "ARDRegression",
    "HuberRegressor",
    "TheilSenRegressor",
    "QuantileRegressor",
    "SGDRegressor",
    "LinearSVR",
)
NETWORKS = ("MLPClassifier", "MLPRegressor")
SMOOTH = "a differentiable program"


def compile_scorer(
    model: Any,
    schema: Schema,
    never_missing: Collection[str] = (),
    *,
    encoded: bool = False,
    offset: Offset = (),
) -> CompiledScorer:
    """A fitted estimator over encoded rows, or a `RefusedError`; an offset goes into its last layer
    or its leaves.

    In columns that are `never_missing`, the mark of a missing number is ignored.
    """
    by_table = not encoded
    never_missing = {*never_missing, *getattr(model, "never_missing", ())}
    # which decodes encoded rows into units by itself
    encoded = encoded and type_name(model) != "holdfast.FlatGraph"
    raws = Raw.all_of(schema, encoded, by_table, never_missing)
    columns = [Column(i, raw.levels) for i, raw in enumerate(raws)]  # the table itself
    known = schema.without_gaps(never_missing)
    if encoded:
        block = StepColumns(columns, schema.probe.numpy())
    else:
        block = _as_trained(model, columns, known)
    last, block = _through_all(model, block)
    kind = type_name(last)
    if kind in TREES:
        return _trees(last, kind, block, raws, schema, offset)
    library, _, name = kind.partition(".")
    if library != "sklearn" or name not in (*LINEAR, *STRAIGHT, *NETWORKS):
        raise RefusedError(f"a {name} cannot be compiled")
    end = _refuse_or_end(last, name)
    if name in NETWORKS:
        layers = differentiable.mlp_layers(last)
        activation = differentiable.ACTIVATIONS[last.activation]
    else:
        layers = differentiable.linear_layers(last)
        activation = None
    layers = differentiable.shifted(layers, offset)
    net = differentiable.program(layers, block.columns, raws, schema.width, activation, end)
    outputs: Outputs = "value" if name in (*STRAIGHT, "MLPRegressor") else "logits"
    return CompiledScorer(
        net, outputs, f"the {'network' if name in NETWORKS else 'linear model'} as {SMOOTH}"
    )


def _through_all(model: Any, block: StepColumns) -> tuple[Any, StepColumns]:
    """The estimator at the end of pipelines and thresholds, and the columns that reach it."""
    last = unwrapped(model)
    while type_name(last) in ("sklearn.Pipeline", *THRESHOLDS):
        if type_name(last) == "sklearn.Pipeline":
            for _, step in last.steps[:-1]:
                block = through(step, block)
            last = unwrapped(last.steps[-1][1])
        else:
            last = unwrapped(behind(last))
    if isinstance(last, from_boosters.Boosted | from_boosters.BoostedNumbers):
        last = last.booster
    return last, block


def _as_trained(model: Any, columns: list[Column], schema: Schema) -> StepColumns:
    """The columns in the model's order; one it was trained on but does not read need not
    exist."""
    names, rows = trained_on(model), schema.decode(schema.probe)[handed(model, schema.names)]
    if names is None or lacking(model, schema.names):
        return StepColumns(columns, rows)
    found = [found_among(schema.names, name) for name in names]
    nowhere = Column(NOWHERE, None)
    return StepColumns(
        [nowhere if name is None else columns[schema.names.index(name)] for name in found], rows
    )


def _refuse_or_end(model: Any, name: str) -> nn.Module | None:
    """What comes after the layers of a linear model or a network, if anything."""
    if name in NETWORKS and model.out_activation_ == "logistic" and model.n_outputs_ > 1:
        raise RefusedError("it gives several labels at once")
    if name == "SVC":
        if model.kernel != "linear":
            raise RefusedError(
                f"SVC with kernel {model.kernel!r} cannot be compiled; only 'linear' can"
            )
        if len(model.classes_) > 2 or model.probability is True:
            raise RefusedError(
                "SVC with more than two classes, or probabilities, is more than one linear model"
            )
    if name == "SGDClassifier":
        if model.loss == "modified_huber":
            raise RefusedError(
                "SGDClassifier with loss 'modified_huber' cuts its probabilities off"
            )
        if model.loss == "log_loss" and len(model.classes_) > 2:
            return differentiable.LogSigmoids()
    return None


def _trees(
    model: Any, kind: str, block: StepColumns, raws: list[Raw], schema: Schema, offset: Offset
) -> CompiledScorer:
    reader, most = TREES[kind]
    columns = block.columns
    # For XGBoost, what a sparse matrix leaves out is missing.
    zero_is_missing = kind.startswith("xgboost.") and block.is_sparse
    if kind.startswith("xgboost."):
        columns = from_boosters.coded(columns, from_boosters.xgboost_lists(model))
    if kind.startswith("lightgbm."):
        booster = model if kind.endswith(".Booster") else model.booster_
        columns = from_boosters.coded(columns, booster.pandas_categorical or [])
    if kind.startswith("sklearn.Hist"):
        columns = through(getattr(model, "_preprocessor", None), block).columns
    nodes, kernel = _shifted(*reader(model), offset)
    if zero_is_missing:
        nodes = replace(nodes, zero_missing=nodes.left >= 0, zero=0.0)
    if nodes.column.max(initial=0) >= len(columns):
        raise RefusedError("it was trained on more columns than reach it")
    if any(raws[columns[int(nodes.column[node])].raw].levels is None for node in nodes.sets):
        raise RefusedError(
            "it takes a column of numbers for categories; declare that column a category"
        )
    codes, rights = code_columns(nodes, columns, raws)
    leaves = nodes.leaves()
    cuts = [(c.at.start, c.cuts) for c in codes if c.cuts is not None]
    trees = TreeIndex.of(nodes, codes, rights, schema)
    most = 2 * most if nodes.sets else most  # the library's code is slower with sets of levels
    count = f"{len(leaves)} tree{'s' * (len(leaves) > 1)} of up to {leaves.max(initial=0)} leaves"
    if kernel is not None and not (leaves.max() <= 256 and leaves.mean() <= most):
        run = LibraryTrees(columns, raws, nodes.precision, kernel, zero_is_missing)
        return CompiledScorer(
            run, nodes.outputs, f"{count}, by the library's own code over encoded rows", cuts, trees
        )
    if leaves.max(initial=0) > 256:
        raise RefusedError(f"{count}: the library itself is faster on trees of more than 256")
    program = TreeProgram(nodes, codes, rights)
    return CompiledScorer(
        program, nodes.outputs, f"{count}, all at once over encoded rows", cuts, trees
    )


def _shifted(nodes: Nodes, kernel: Kernel | None, offset: Offset) -> tuple[Nodes, Kernel | None]:
    """The same trees with an offset of two classes: added to the start of sums, or a factor on the
    leaves of probabilities."""
    if not any(offset):
        return nodes, kernel
    if nodes.outputs == "probabilities":
        factor = np.exp(np.array(offset))
        nodes = replace(nodes, value=nodes.value * factor, start=nodes.start * factor)
        return nodes, None if kernel is None else partial(_then, np.multiply, factor, kernel)
    more = differentiable.per_output(offset, len(nodes.start))
    nodes = replace(nodes, start=nodes.start + more * nodes.share)
    return nodes, None if kernel is None else partial(_then, np.add, more, kernel)


def _then(f: Callable[..., Any], constant: Array, kernel: Kernel, inputs: Any) -> Array:
    return f(kernel(inputs), constant)


class LibraryTrees:
    """Deep trees: encoded rows (n, d) -> the model's inputs (n, m) -> its outputs by the library's
    compiled code."""

    def __init__(
        self,
        columns: list[Column],
        raws: list[Raw],
        precision: Any,
        kernel: Kernel,
        zero_is_missing: bool = False,
    ) -> None:
        self.columns = columns
        self.raws = raws
        self.precision = precision
        self.kernel = kernel
        self.zero_is_missing = zero_is_missing
        self.tables = [None if c.table is None else c.values().astype(precision) for c in columns]
        levels = {c.raw: level_codes(raws[c.raw]) for c in columns if c.table is not None}
        self.code_dtype: Any = np.min_scalar_type(
            max((codes.count for codes in levels.values()), default=1)
        )
        self.coders = {raw: coder(codes, self.code_dtype) for raw, codes in levels.items()}
        self.of_numbers = {c.raw for c in columns if c.table is None}
        # only scaled numbers: all columns at once
        self.plain: tuple[Any, Array, Array] | None = None
        if all(_is_plain(raws[c.raw], c) for c in columns):
            read = [raws[c.raw] for c in columns]
            a, b = np.array([r.affine for r in read]).reshape(-1, 2).T
            self.plain = np.array([r.at.start for r in read], dtype=np.intp), a, b

    def __call__(self, x: Tensor) -> Tensor:
        return torch.as_tensor(self.kernel(self._inputs(x)))

    def _inputs(self, x: Tensor) -> Any:
        if self.plain:
            at, scale, center = self.plain
            values = x.numpy()[:, at]
            values *= scale
            values += center
            inputs = values.astype(self.precision, order="C")
        else:
            inputs = np.empty((len(x), len(self.columns)), dtype=self.precision)
            for rows, columns in pieces(x.numpy()):
                self._write(columns, inputs[rows])
        if self.zero_is_missing:
            inputs[inputs == 0] = np.nan
        return inputs

    def _write(self, columns: Array, inputs: Any) -> None:
        """Encoded columns (d, n) -> the model's inputs (n, m)."""
        positions: dict[int, Any] = {
            raw: np.empty(len(inputs), dtype=self.code_dtype) for raw in self.coders
        }
        for raw, write in self.coders.items():
            write(columns, positions[raw])
        numbers = {raw: self.raws[raw].held(columns) for raw in self.of_numbers}
        for j, (c, table) in enumerate(zip(self.columns, self.tables, strict=True)):
            inputs[:, j] = (
                c.number(numbers[c.raw]) if table is None else np.take(table, positions[c.raw])
            )


def _is_plain(raw: Raw, column: Column) -> bool:
    """Is the input a column of numbers as the table holds it, in double precision?"""
    real = raw.feature is None or (raw.feature.kind == "real" and raw.feature.storage == np.float64)
    return column.table is None and not column.steps and real and raw.indicator is None


def probes(schema: Schema, cuts: Sequence[tuple[int, Array]], count: int = PROBES) -> Tensor:
    """Encoded rows: `count` spread over the data's range, every level of every category, at
    thresholds and next to them."""
    random = np.random.default_rng(0)
    encoding = schema.encoding(torch.float64)
    low = encoding.seen_low.clamp(-3, 3)
    high = encoding.seen_high.clamp(-3, 3)
    numbers = schema.decode_numbers(
        low + torch.tensor(random.random((count, schema.width))) * (high - low)
    )
    for i, f in enumerate(schema.features):
        numbers[:, i] = f.stored(numbers[:, i])
    # what a table can hold: one level, an integer
    rows = schema.encode_numbers(numbers, torch.float64).numpy()
    parts = [rows]
    for s, f in zip(schema.slices, schema.features, strict=True):
        if f.is_category:
            some = rows[np.arange(f.width) % count]
            some[:, s] = np.eye(f.width)
            parts.append(some)
    chosen = _some(cuts, random)
    for side in (0.0, np.inf):
        some = rows[random.integers(0, count, len(chosen))]
        for row, (column, cut) in zip(some, chosen, strict=True):
            row[column] = np.nextafter(cut, side) if side else cut
        parts.append(some)
    return torch.tensor(np.concatenate(parts))


def _some(
    cuts: Sequence[tuple[int, Array]], random: np.random.Generator
) -> list[tuple[int, float]]:
    places: list[tuple[int, float]] = [
        (column, float(cut)) for column, values in cuts for cut in values
    ]
    return [places[int(p)] for p in random.permutation(len(places))[:CUTS]]


def table_probes(schema: Schema, ends: Sequence[tuple[int, Array]]) -> Array:
    """(n, features) numbers of a table: the same rows, with numbers that are the last on their side
    of a threshold, and the nearest ones on either side with another encoding, which also depends on
    the last digits of the center."""
    random = np.random.default_rng(0)
    numbers = schema.decode_numbers(probes(schema, []))
    chosen = _some(ends, random)
    parts = [numbers]
    for way in (-4, 0, 4):
        some = numbers[random.integers(0, len(numbers), len(chosen))]
        for row, (i, v) in zip(some, chosen, strict=True):
            f = schema.features[i]
            step = f.digit(np.array([v, f.center])).max() if f.kind == "real" else f.grid / 4
            row[i] = np.clip(f.stored(np.array([v + way * step])), *f.holds)[0]
        parts.append(some)
    return np.concatenate(parts)


def difference(compiled: Tensor, original: Tensor, outputs: Outputs, scale: float = 1.0) -> str:
    """Why compiled scores (n, k) are not the model's own, or nothing; `scale` is that of
    estimates."""
    if compiled.shape != original.shape:
        return f"the compiled form gives {compiled.shape[1]} scores, the model {original.shape[1]}"
    if outputs == "probabilities":
        far = (torch.softmax(compiled, 1) - torch.softmax(original, 1)).abs()
    else:
        # Pipelines in single precision err by the digits of the largest scores, even where a sum
        # is small.
        far = (compiled - original).abs() / original.abs().amax().clamp_min(
            scale if outputs == "value" else 1.0
        )
    worst = float(far.max())
    if not worst <= CLOSE:
        return f"the compiled scores differ by {worst:.1e}"
    best = original.gather(1, compiled.argmax(1, keepdim=True)).squeeze(1)
    labels = int((best < original.amax(1) - LEVEL * original.abs().amax(1).clamp_min(1.0)).sum())
    return (
        f"the compiled form gives {labels} of {len(compiled)} rows another class" if labels else ""
    )
