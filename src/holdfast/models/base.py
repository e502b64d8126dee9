"""Models: a batch of rows in, a batch of class scores, or of estimated numbers, out.

Scores are logits, whatever the wrapped model returns: a one-column output f becomes (0, f),
probabilities become their logarithms. The largest is the class that the model gives. An estimator's
own `predict` decides that, and where its scores disagree, as behind a threshold, they are corrected
(see `compiled.decision_rule`).

`model(x)` and `model.vjp(x)` score encoded rows for a search, as fast as possible.
`model.score_frame(frame)` scores rows as a person would hand them in, by the wrapped model itself,
which alone decides whether an answer counts.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Hashable, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from torch import Tensor, nn

from holdfast._core.checks import listed
from holdfast._core.types import Pullback
from holdfast.errors import ModelError, SchemaError
from holdfast.models.scores import OUTPUTS, Conversion, Inputs, Outputs
from holdfast.nn.relu_network import Engine
from holdfast.schema.schema import Row, Schema

if TYPE_CHECKING:
    from holdfast.models.compiled.tree_leaves import TreeIndex
    from holdfast.target import BoundTarget

Shortfall = tuple[Tensor, Tensor, Pullback]
NOT_NEEDED = Conversion(True, "none needed: searches use the model itself")


class HasPredict(Protocol):
    """A fitted estimator in scikit-learn's style, or a Booster of XGBoost or LightGBM."""

    def predict(self, X: Any, /) -> Any: ...


class HasPredictProba(Protocol):
    """A fitted classifier that gives probabilities, (n, k) of n rows."""

    def predict_proba(self, X: Any, /) -> Any: ...


class HasDecisionFunction(Protocol):
    """A fitted classifier that gives scores, (n,) or (n, k) of n rows."""

    def decision_function(self, X: Any, /) -> Any: ...


ModelFunction = (
    Callable[[pd.DataFrame], npt.ArrayLike] | Callable[[npt.NDArray[np.float64]], npt.ArrayLike]
)
# what `Model.of` wraps
ModelLike = nn.Module | HasPredict | HasPredictProba | HasDecisionFunction | ModelFunction


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Model(ABC):
    """A classifier with its schema and class names, or a regression model, which has no
    classes.

    Build it with `Model.of(...)` or `Model.load(...)`. It is built once: no attribute can be set
    later, and `with_schema` gives the same model under other constraints.

    Example:
        >>> import holdfast as hf
        >>> from sklearn.linear_model import LogisticRegression
        >>> data = hf.datasets.moons()
        >>> model = hf.Model.of(LogisticRegression().fit(data.X, data.y), data.schema)
        >>> model
        Model(LogisticRegression, 2 features, classes ..., gradients, compiled: the linear ...)
        >>> bool((model.predict(data.X) == data.y).mean() > 0.8)
        True
    """

    schema: Schema
    classes: tuple[Any, ...]
    dtype: torch.dtype
    output_scale: float = 1.0  # of the numbers that a regression model estimates
    # Columns whose numbers may be missing by the schema, but not for this model, and why.
    rejects_missing: Mapping[str, str] = field(default_factory=dict[str, str])
    conversion: Conversion = NOT_NEEDED
    labels_only: bool = False  # does it give classes without scores?
    offset: tuple[float, ...] = ()  # of the classes: probabilities are softmax(scores - offset)
    # Do searches ask `predict` too? Scores are then log p, with the predicted class put ahead.
    defers_to_predict: bool = False

    @staticmethod
    def of(
        model: ModelLike,
        schema: Schema,
        *,
        classes: Sequence[Hashable] | None = None,
        outputs: Outputs | None = None,
        inputs: Inputs | None = None,
        convert: bool = True,
        missing: bool | None = None,
    ) -> "Model":
        """Wrap a torch module, a scikit-learn estimator or pipeline, an XGBoost or LightGBM model,
        or any function.

        Args:
            model: a `torch.nn.Module` over encoded rows (one logit, one per class, or a number); a
                fitted classifier or regressor over the raw table; or a function from the raw table
                to an array (n,), (n, 1) or (n, k).
            schema: the columns of the table the model was trained on.
            classes: names of the classes in the order of the scores; an estimator knows its own,
                which can be renamed here, not reordered.
            outputs: "logits", "probabilities", or "value" for the estimate of a regression model.
                By default what a module's last layer implies, else logits; an estimator's
                `predict_proba` or `decision_function`, or `predict` of a regressor or of a model
                that has nothing else (its classes then have the probabilities 0 and 1);
                probabilities for a function. An output that contradicts this is an error, not a
                guess. A Booster with your own objective needs "logits": otherwise XGBoost takes it
                for a regression.
            inputs: "frame" (the raw table) or "encoded" for estimators and functions.
            convert: compile an estimator into an equivalent scorer of encoded rows, which searches
                use: differentiable for linear models and networks, fast for trees. Whether it was
                compiled, and if not, why, is in `model.conversion`. The estimator itself always
                decides what counts, by its `predict` if it has one. Where that contradicts its own
                scores, as in SVC(probability=True) near the boundary, the predicted class counts,
                and its probability stays what the estimator gives, which may be below one
                half.
            missing: does it take missing numbers, in columns that may be missing by the schema?
                By default an estimator is tried once, with rows that have some, and a function
                takes none. A module, and what takes encoded rows, sees a number in their place and
                a column that marks them as missing.

        Returns:
            The model, which searches, metrics and audits take.
        """
        if isinstance(model, Model):
            raise ModelError("this is a Holdfast model already; use it as it is")
        if not isinstance(schema, Schema):
            raise ModelError(f"a model needs its Schema, got {type(schema).__name__}")
        if outputs not in (None, *OUTPUTS):
            raise ModelError(
                f"outputs must be 'logits', 'probabilities' or 'value', got {outputs!r}"
            )
        if inputs not in (None, "frame", "encoded"):
            raise ModelError(f"inputs must be 'frame' or 'encoded', got {inputs!r}")
        names = names_of(classes, getattr(model, "classes", getattr(model, "classes_", None)))
        if isinstance(model, nn.Module):
            if inputs == "frame":
                raise ModelError(
                    "a torch module takes encoded rows; wrap it in a function to give it the table"
                )
            from holdfast.models.torch_model import wrap_module

            return wrap_module(model, schema, names, outputs)
        # Imported here: it is a model itself, and needs all of `compiled`.
        from holdfast.models.wrap_estimator import wrap_estimator

        return wrap_estimator(
            model, schema, names, outputs, inputs or "frame", convert=convert, missing=missing
        )

    @abstractmethod
    def __call__(self, x: Tensor) -> Tensor:
        """Scores (n, k) of encoded rows (n, d)."""

    @abstractmethod
    def score_frame(self, frame: pd.DataFrame, x: Tensor | None = None) -> Tensor:
        """Scores (n, k) of rows as a person would hand them in, by the wrapped model itself; `x` is
        their encoding."""

    def refuse_missing(self, table: pd.DataFrame) -> None:
        """Raise a `SchemaError` if numbers are missing where the model cannot take it."""
        for name, why in self.rejects_missing.items():
            missing = table[name].isna().to_numpy() if name in table else np.zeros(0, dtype=bool)
            if missing.any():
                first = int(missing.argmax())
                where = (
                    f"column {name!r} has {int(missing.sum())} missing numbers (first at row "
                    f"{first})"
                )
                fix = "fill them in, drop those rows, or put an imputer before the model"
                raise SchemaError(
                    f"{where}, and the model does not take missing values there: {why}; {fix}"
                )

    def vjp(self, x: Tensor) -> tuple[Tensor, Pullback]:
        """Scores, and the function from weights on the scores to gradients by the rows."""
        raise ModelError("this model has no gradients")

    @property
    @abstractmethod
    def has_grad(self) -> bool:
        """Does it have gradients by encoded rows?"""

    @property
    def is_regression(self) -> bool:
        """Does it estimate a number? Then it has no classes."""
        return not self.classes

    @property
    def counts_votes(self) -> bool:
        """Are its probabilities shares of votes, like a forest's? Their logarithms are
        unbounded."""
        return False

    @property
    def engine(self) -> Engine | None:
        """In `eval_mode`: the network evaluated by hand, if the model is Linear and ReLU layers in
        turn."""
        return None

    @property
    def thresholds(self) -> "TreeIndex | None":
        """Where the scores of a compiled tree model can change, column by column; None for all
        other models."""
        return None

    @property
    @abstractmethod
    def name(self) -> str:
        """What messages call the wrapped model: 'SVC in a Pipeline'."""

    def __repr__(self) -> str:
        kind = "regression" if self.is_regression else f"classes {listed(self.classes)}"
        gradients = "gradients" if self.has_grad else "no gradients"
        parts = [self.name, f"{len(self.schema.names)} features", kind, gradients]
        if self.conversion != NOT_NEEDED:
            parts.append(f"{'compiled' if self.conversion else 'not compiled'}: {self.conversion}")
        return f"Model({', '.join(parts)})"

    def with_schema(self, schema: Schema) -> "Model":
        """The same model for people who can change other things: the schema's bounds, rules and
        permitted changes are new, and rows are encoded as before.

        Args:
            schema: made from the model's own, as by `model.schema.change(age={"change": "fixed"})`.
        """
        if _encoding_of(schema) != _encoding_of(self.schema):
            raise ModelError(
                "with_schema takes a schema that encodes rows as the model's own does; make it "
                "with model.schema.change(...), or wrap the model again with hf.Model.of(...)"
            )
        return replace(self, schema=schema)

    def shortfall(
        self, x: Tensor, goal: "BoundTarget", level: float, soft: bool | None = None
    ) -> Shortfall:
        """level - gap for each row (n, 1): for the verdict, for the derivative, and the latter's
        pullback."""
        scores, pull = self.vjp(x)
        gap, slope = goal.gap_and_slope(scores, soft=soft)
        v = (level - gap)[:, None]
        split = goal.k > 2 and soft is not None and soft != goal.soft
        return (
            (level - goal.gap(scores))[:, None] if split else v,
            v,
            lambda outer: pull(outer * -slope),
        )

    @contextmanager
    def eval_mode(self) -> Generator[None]:
        """The wrapped model ready to be evaluated many times, and handed back exactly as it was."""
        yield

    @abstractmethod
    def fingerprint(self) -> str:
        """A short hash of what the model computes, for provenance."""

    def predict(self, X: pd.DataFrame | Row) -> "pd.Series[Any]":
        """The class of each row of a table, or of one row as a dict or Series, by an estimator's
        `predict` if it has one; or the number that a regression model estimates."""
        frame = self.schema.as_table(X)
        with self.eval_mode():
            scores = self.score_frame(frame)
        if self.is_regression:
            return pd.Series(scores.squeeze(1).double().numpy(), index=frame.index)
        best = scores.argmax(1).numpy()
        return pd.Series(
            np.array(self.classes, dtype=object)[best], index=frame.index
        ).infer_objects()

    def save(self, path: str | Path) -> None:
        """Write a torch model of listed layers to a safetensors file, with its schema; others
        cannot be saved."""
        raise ModelError("only torch models made of listed layers can be saved; see `Model.of`")

    @staticmethod
    def load(
        path: str | Path,
        schema: Schema | None = None,
        *,
        trust: bool = False,
        classes: Sequence[Hashable] | None = None,
        outputs: Outputs | None = None,
        inputs: Inputs | None = None,
    ) -> "Model":
        """Read a model from a file, recognised by its content: one written by `save`, or one in
        ONNX, skops, XGBoost's JSON or UBJSON, or LightGBM's text. Files that run code when loaded
        are refused unless `trust=True`; SECURITY.md says what is checked in the others.

        Args:
            path: the file.
            schema: the columns of the table the model was trained on; a file written by `save` has
                its own.
            trust: also load pickles, joblib and torch files, which can run any code: only for files
                of your own.
            classes: names of the classes in the order of the scores, if the file does not know
                them.
            outputs: "value" for a regression model in ONNX, whose graph does not tell it from the
                score of a class; "logits" or "probabilities" if the default is wrong.
            inputs: "frame" or "encoded", what an ONNX model takes, if its inputs leave that open.

        Returns:
            The model, as `Model.of` makes it.
        """
        from holdfast.models.io import load_model

        return load_model(
            Path(path), schema, trust=trust, classes=classes, outputs=outputs, inputs=inputs
        )


def _encoding_of(schema: Schema) -> object:
    """All that turns rows into numbers, and numbers into rows."""
    return schema.encoding_key, [
        (f.dtype, f.stand_in if f.has_gaps else None) for f in schema.features
    ]


def class_names(classes: Sequence[Any] | None, columns: int, outputs: Outputs) -> tuple[Any, ...]:
    """The class names of a model with this many columns of outputs; none for a regression
    model."""
    if outputs == "value":
        if columns != 1:
            raise ModelError(
                f"a regression model estimates one number per row, this one gives {columns}"
            )
        if classes:
            raise ModelError(
                f"a regression model has no classes, got {list(classes or ())}; leave classes "
                "out, or pass outputs='logits' if what it gives is the score of a class"
            )
        return ()
    k = max(columns, 2)
    names = _plain_names(range(k) if classes is None else classes)
    if len(names) == 1:
        raise ModelError(
            f"the model knows one class only, {names[0]!r}; train it on rows of two or more"
        )
    if len(names) != k:
        raise ModelError(f"the model has {k} classes, but {len(names)} names were given: {names}")
    if len(set(names)) != k:
        raise ModelError(f"class names must differ, got {names}")
    return tuple(names)


def _plain_names(classes: Iterable[Any]) -> list[Any]:
    return [cast(Any, c).item() if isinstance(c, np.generic) else c for c in classes]


def names_of(given: Sequence[Any] | None, own: Sequence[Any] | None) -> list[Any] | None:
    """The names of the classes: those given, or the model's own. Its own in another order would
    turn it around."""
    if given is None or own is None:
        found = own if given is None else given
        return None if found is None else list(found)
    names = _plain_names(given)
    known = _plain_names(own)
    if names != known and len(names) == len(known) and set(names) == set(known):
        raise ModelError(
            f"classes={names} are the model's own in another order: it has {known}; leave classes "
            "out"
        )
    return names


def probe_rows(schema: Schema, dtype: torch.dtype) -> Tensor:
    """A few encoded rows (16, d) spread evenly over the data's range."""
    encoding = schema.encoding(dtype)
    low = encoding.seen_low.clamp(-3, 3)
    high = encoding.seen_high.clamp(-3, 3)
    return encoding.whole(low + torch.linspace(0, 1, 16, dtype=dtype)[:, None] * (high - low))


def output_scale_of(values: Tensor) -> float:
    """How far apart a model's estimates for a few rows are; for a constant, its
    size."""
    v = values.double()
    spread = float(v.std()) if bool(v.isfinite().all()) else 0.0
    return (
        spread
        if 1e-12 * float(v.abs().max()) < spread < float("inf")
        else float(v.abs().max()) or 1.0
    )
