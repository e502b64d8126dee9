"""Models: a batch of rows in, a batch of class scores, or of estimated numbers, out.

Scores are logits: softmax of a row of scores gives the probabilities, whatever the wrapped model returns. A
one-column output f becomes (0, f); probabilities become their logarithms. A regression model has no classes, and its
one score is the number that it estimates. What a model returns is decided once, in `Model.of`.

The largest score is the class that the model gives. Of an estimator that is for its own `predict` to say, and where
its scores say otherwise, as behind a threshold, they are put right (see `convert.decision`).

A model scores rows in two ways. `model(x)` and `model.vjp(x)` score encoded rows for a search, as fast as
possible. `model.judge(frame)` scores rows as a person would hand them in, by the wrapped model itself; only
that decides whether an answer counts.
"""

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from holdfast.convert.scores import Conversion
from holdfast.errors import FileError, HoldfastError, ModelError, untyped
from holdfast.geometry import ROW_BLOCK, pad_rows
from holdfast.network import Engine, Pullback, build, describe, flat_layers
from holdfast.schema import Schema

if TYPE_CHECKING:
    from holdfast.target import Goal

Outputs = Literal["logits", "probabilities", "value"]
OUTPUTS: tuple[Outputs, ...] = ("logits", "probabilities", "value")
Inputs = Literal["frame", "encoded"]
PROBE_ROWS = 16


class Model(ABC):
    """A classifier with its schema and the names of its classes, or a regression model, which has none. Build it with
    `Model.of(...)`."""

    schema: Schema
    classes: tuple[Any, ...]
    has_grad: bool
    dtype: torch.dtype
    spread: float = 1.0  # of the numbers that a regression model estimates
    refused: Mapping[str, str] = MappingProxyType({})  # columns that may be missing by the schema, not here, and why
    conversion = Conversion(True, "none needed: searches use the model itself")
    labels_only = False  # does it give classes and no scores?
    offset: tuple[float, ...] = ()  # of the classes: probabilities are softmax(scores - offset)
    asks = False  # do searches ask `predict` too? Scores are then log p, with the predicted class put ahead

    @staticmethod
    def of(
        model: Any,
        schema: Schema,
        *,
        classes: Sequence[Any] | None = None,
        outputs: Outputs | None = None,
        inputs: Inputs | None = None,
        convert: bool = True,
        missing: bool | None = None,
    ) -> "Model":
        """Wrap a torch module, a scikit-learn estimator or pipeline, an XGBoost or LightGBM model, or any function.

        Args:
            model: a `torch.nn.Module` over encoded rows (one logit, one per class, or a number); a fitted classifier or
                regressor over the raw table; or a function from the raw table to an array (n,), (n, 1) or (n, k).
            schema: the columns of the table the model was trained on.
            classes: names of the classes in the order of the scores; an estimator knows its own, which can be renamed
                here, not reordered.
            outputs: "logits", "probabilities", or "value" for a number that is estimated. Left out: what the last layer
                of a module says, else logits; `predict_proba` or `decision_function` of an estimator, or `predict` of
                one that says it is a regressor, or has nothing else (its classes then have the probabilities 0 and 1);
                probabilities for a function. An output that contradicts this is an error, not a guess. A Booster with
                an objective of your own needs "logits": XGBoost takes it for a regression otherwise.
            inputs: "frame" (the raw table) or "encoded" for estimators and functions.
            convert: look for an exact copy of an estimator over encoded rows, which searches use: differentiable for
                linear models and networks, fast for trees. Whether there is one, and if not, why, is in
                `model.conversion`. What counts is always decided by the estimator itself, by its `predict` if it has
                one. Where that contradicts its own scores, as that of SVC(probability=True) does near the boundary, the
                predicted class counts, and its probability stays what the estimator says, which may be below one half.
            missing: does it take missing numbers, in columns that may be missing by the schema? Left out: an estimator
                is asked, once, with rows that have some; a function takes none. A module, and what takes encoded rows,
                sees a number in their place and a column that says so.
        """
        if isinstance(model, Model):
            raise ModelError("this is a Holdfast model already; use it as it is")
        if not isinstance(schema, Schema):
            raise ModelError(f"a model needs its Schema, got {type(schema).__name__}")
        if outputs not in (None, *OUTPUTS):
            raise ModelError(f"outputs must be 'logits', 'probabilities' or 'value', got {outputs!r}")
        if inputs not in (None, "frame", "encoded"):
            raise ModelError(f"inputs must be 'frame' or 'encoded', got {inputs!r}")
        own = getattr(model, "classes", getattr(model, "classes_", None))
        classes = names_of(classes, own)
        if isinstance(model, nn.Module):
            if inputs == "frame":
                raise ModelError("a torch module takes encoded rows; wrap it in a function to give it the table")
            return TorchModel(model, schema, classes, outputs)
        # Which are models themselves, and need all of `convert`.
        from holdfast.black_box import BlackBox, checked, converted
        from holdfast.convert.boosters import boosted, is_booster

        model = boosted(model, outputs) if is_booster(model) else model
        box = BlackBox(model, schema, classes, outputs, inputs or "frame", missing)
        return checked(converted(box) if convert else box, box)

    @abstractmethod
    def __call__(self, x: Tensor) -> Tensor:
        """Scores (n, k) of encoded rows (n, d)."""

    @abstractmethod
    def judge(self, frame: pd.DataFrame, x: Tensor | None = None) -> Tensor:
        """Scores (n, k) of rows as a person would hand them in, by the wrapped model itself. `x` is the frame's
        encoding, if the caller has it at hand."""

    def vjp(self, x: Tensor) -> tuple[Tensor, Pullback]:
        """Scores, and the function from weights on the scores to gradients by the rows."""
        raise ModelError("this model has no gradients")

    @property
    def is_regression(self) -> bool:
        """Does it estimate a number? Then it has no classes."""
        return not self.classes

    @property
    def engine(self) -> Engine | None:
        """While borrowed: the network evaluated by hand, if the model is Linear and ReLU layers in turn."""
        return None

    def shortfall(
        self, x: Tensor, goal: "Goal", level: float, soft: bool | None = None
    ) -> tuple[Tensor, Tensor, Pullback]:
        """level - gap for each row (n, 1): for the verdict, for the derivative, and the latter's pullback."""
        scores, pull = self.vjp(x)
        gap, slope = goal.gap_and_slope(scores, soft=soft)
        v = (level - gap)[:, None]
        split = goal.k > 2 and soft is not None and soft != goal.soft
        u = (level - goal.gap(scores))[:, None] if split else v
        return u, v, lambda outer: pull(outer * -slope)

    @contextmanager
    def borrowed(self) -> Generator[None]:
        """The wrapped model ready to be evaluated many times, and handed back exactly as it was."""
        yield

    @abstractmethod
    def fingerprint(self) -> str:
        """A short hash of what the model computes, for provenance."""

    def predict(self, frame: pd.DataFrame) -> "pd.Series[Any]":
        """The class of each row of a table, by the `predict` of an estimator that has one; or the number that a
        regression model estimates."""
        with self.borrowed():
            scores = self.judge(frame)
        if self.is_regression:
            return pd.Series(scores.squeeze(1).double().numpy(), index=frame.index)
        best = scores.argmax(1).numpy()
        return pd.Series(np.array(self.classes, dtype=object)[best], index=frame.index).infer_objects()

    def save(self, path: str | Path) -> None:
        raise ModelError("only torch models made of listed layers can be saved; see `Model.of`")

    @staticmethod
    def load(
        path: str | Path,
        schema: Schema | None = None,
        *,
        trust: bool = False,
        classes: Sequence[Any] | None = None,
        outputs: Outputs | None = None,
        inputs: Inputs | None = None,
    ) -> "Model":
        """Read a model from a file, told by its content: one written by `save`, or one in ONNX, skops, XGBoost's JSON
        or UBJSON, or LightGBM's text. Files that run code when loaded are refused unless `trust=True`.

        Args:
            path: the file.
            schema: the columns of the table the model was trained on; a file written by `save` has its own.
            trust: also load pickles, joblib and torch files, which can run any code: only for files of your own.
            classes: names of the classes in the order of the scores, if the file does not know them.
            outputs: "value" if an ONNX model estimates a number, which its graph does not tell from the score of a
                class; "logits" or "probabilities" if what is taken for granted is wrong.
            inputs: "frame" or "encoded", what an ONNX model takes, if its inputs leave that open.
        """
        return load_model(Path(path), schema, trust=trust, classes=classes, outputs=outputs, inputs=inputs)

    def _set_classes(self, classes: Sequence[Any] | None, columns: int, outputs: Outputs) -> None:
        if outputs == "value":
            if columns != 1:
                raise ModelError(f"a regression model estimates one number per row, this one gives {columns}")
            if classes:
                raise ModelError(
                    f"a regression model has no classes, got {list(classes)}; leave classes out, or pass "
                    "outputs='logits' if what it gives is the score of a class"
                )
            self.classes = ()
            return
        k = max(columns, 2)
        names = _plain_names(range(k) if classes is None else classes)
        if len(names) == 1:
            raise ModelError(f"the model knows one class only, {names[0]!r}; train it on rows of two or more")
        if len(names) != k:
            raise ModelError(f"the model has {k} classes, but {len(names)} names were given: {names}")
        if len(set(names)) != k:
            raise ModelError(f"class names must differ, got {names}")
        self.classes = tuple(names)


def _plain_names(classes: Iterable[Any]) -> list[Any]:
    return [cast(Any, c).item() if isinstance(c, np.generic) else c for c in classes]


def names_of(given: Sequence[Any] | None, own: Sequence[Any] | None) -> list[Any] | None:
    """The names of the classes: those given, or the model's own. Its own in another order would turn it around."""
    if given is None or own is None:
        found = own if given is None else given
        return None if found is None else list(found)
    names, known = _plain_names(given), _plain_names(own)
    if names != known and len(names) == len(known) and set(names) == set(known):
        raise ModelError(
            f"classes={names} has the model's own classes in another order: its scores come as {known}; leave classes "
            "out"
        )
    return names


def to_scores(raw: Tensor, outputs: Outputs) -> Tensor:
    """What a model returns -> logits (n, k) with k >= 2, or estimates (n, 1)."""
    raw = raw[:, None] if raw.ndim == 1 else raw
    if outputs == "value":
        return raw
    if outputs == "probabilities":
        tiny = torch.finfo(raw.dtype).tiny
        if raw.shape[1] == 1:
            raw = raw.clamp_min(tiny).log() - (1 - raw).clamp_min(tiny).log()
        else:
            raw = raw.clamp_min(tiny).log()
    return torch.cat([torch.zeros_like(raw), raw], 1) if raw.shape[1] == 1 else raw


def looks_like_probabilities(raw: Tensor) -> bool:
    """All between 0 and 1, and rows that add up to 1 (one column: no way to tell from logits in that range)."""
    inside = bool(((raw >= 0) & (raw <= 1)).all())
    return inside and raw.ndim == 2 and raw.shape[1] > 1 and bool(((raw.sum(1) - 1).abs() < 1e-4).all())


def spread_of(values: Tensor) -> float:
    """How far apart the numbers are that a model estimates for a few rows; of a constant, its own size."""
    v = values.double()
    spread = float(v.std()) if bool(v.isfinite().all()) else 0.0
    return spread if 1e-12 * float(v.abs().max()) < spread < float("inf") else float(v.abs().max()) or 1.0


class TorchModel(Model):
    """A torch module over encoded rows: differentiable, by hand where it is Linear and ReLU layers."""

    has_grad = True

    def __init__(
        self, module: nn.Module, schema: Schema, classes: Sequence[Any] | None, outputs: Outputs | None
    ) -> None:
        self.module, self.schema = module, schema
        dtypes = [p.dtype for p in module.parameters() if p.is_floating_point()]
        self.dtype = dtypes[0] if dtypes else torch.float32
        self._engine: Engine | None = None
        last = flat_layers(module)[-1]
        said = "probabilities" if isinstance(last, nn.Sigmoid | nn.Softmax) and outputs != "value" else None
        if outputs and said and outputs != said:
            raise ModelError(f"the module ends in {type(last).__name__}, so its outputs are {said}, not {outputs}")
        self.outputs: Outputs = outputs or said or "logits"
        raw = self._probe()
        if raw.ndim not in (1, 2) or len(raw) != PROBE_ROWS:
            raise ModelError(
                f"the module maps {PROBE_ROWS} rows to shape {tuple(raw.shape)}, expected ({PROBE_ROWS}, k)"
            )
        if not bool(raw.isfinite().all()):
            raise ModelError("the module returned scores that are no numbers; look for NaN or inf in its weights")
        if outputs is None and said is None and looks_like_probabilities(raw):
            raise ModelError(
                "the module's outputs look like probabilities; pass outputs='probabilities' (or 'logits' if they are)"
            )
        if self.outputs == "probabilities" and not bool(((raw >= 0) & (raw <= 1 + 1e-6)).all()):
            raise ModelError("outputs='probabilities', but the module returned values outside [0, 1]")
        self._set_classes(classes, 1 if raw.ndim == 1 else raw.shape[1], self.outputs)
        if self.is_regression:
            with self.borrowed():
                self.spread = spread_of(self(schema.probe.to(self.dtype)))

    def _probe(self) -> Tensor:
        """The module's bare outputs on a few rows spread over the data's range."""
        at = self.schema.layout(self.dtype)
        low, high = at.seen_low.clamp(-3, 3), at.seen_high.clamp(-3, 3)
        t = torch.linspace(0, 1, PROBE_ROWS, dtype=self.dtype)[:, None]
        with self.borrowed(), torch.no_grad():
            try:
                return self.module(at.whole(low + t * (high - low)))
            except RuntimeError as error:
                raise ModelError(
                    f"the module cannot take encoded rows of {self.schema.width} columns: {error}"
                ) from None

    @contextmanager
    def borrowed(self) -> Generator[None]:
        training = {m: m.training for m in self.module.modules()}
        wanted = [p for p in self.module.parameters() if p.requires_grad]
        try:
            self.module.eval()
            for p in wanted:
                p.requires_grad_(False)
            self._engine = Engine.of(self.module) if self.outputs != "probabilities" else None
            self._lines: dict[tuple[float, float], Engine] = {}
            with torch.inference_mode(False), torch.no_grad():
                yield
        finally:
            self._engine, self._lines = None, {}
            for p in wanted:
                p.requires_grad_(True)
            for m, mode in training.items():
                m.training = mode

    @property
    def engine(self) -> Engine | None:
        return self._engine

    def __call__(self, x: Tensor) -> Tensor:
        rows = pad_rows(x)
        raw = self._engine.scores(rows) if self._engine else self.module(rows)
        return to_scores(raw, self.outputs)[: len(x)]

    def vjp(self, x: Tensor) -> tuple[Tensor, Pullback]:
        n, rows = len(x), pad_rows(x)
        if self._engine:
            scores, by_hand = self._engine.vjp(rows)
            one = scores.shape[1] == 1 and self.outputs == "logits"
            pad = len(rows) - n

            def pull(v: Tensor) -> Tensor:
                v = v[:, 1:] if one else v
                return by_hand(pad_rows(v))[:n] if pad else by_hand(v)

            return (to_scores(scores, "logits") if one else scores)[:n], pull
        rows = rows.detach().requires_grad_()
        with torch.enable_grad():
            scores = to_scores(self.module(rows), self.outputs)[:n]
        return scores.detach(), lambda v: torch.autograd.grad(scores, rows, v)[0][:n]

    def shortfall(
        self, x: Tensor, goal: "Goal", level: float, soft: bool | None = None
    ) -> tuple[Tensor, Tensor, Pullback]:
        way = goal.direction if self._engine else 0.0
        if not way:
            return super().shortfall(x, goal, level, soft)
        # Two classes and the same wish for all: the shortfall is itself a network with one output.
        line = self._lines.get((way, level))
        if line is None:
            assert self._engine
            line = self._lines[way, level] = self._engine.against(way, level)
        n = x.shape[0]
        if n % ROW_BLOCK == 0:
            v, pull = line.vjp(x)
            return v, v, pull
        v, pull = line.vjp(pad_rows(x))
        return v[:n], v[:n], lambda outer: pull(pad_rows(outer))[:n]

    def judge(self, frame: pd.DataFrame, x: Tensor | None = None) -> Tensor:
        x = self.schema.encode(frame, self.dtype) if x is None else x
        if not len(x):
            return x.new_zeros(0, len(self.classes) or 1)
        return to_scores(self.module(pad_rows(x)), self.outputs)[: len(x)]

    def fingerprint(self) -> str:
        digest = hashlib.sha256(f"{self.module} {self.outputs} {self.classes}".encode())
        for name, value in sorted(self.module.state_dict().items()):
            raw = value.detach().cpu().contiguous().reshape(-1).view(torch.uint8)  # NumPy has no bfloat16
            digest.update(name.encode() + raw.numpy().tobytes())
        return digest.hexdigest()[:16]

    def contents(self) -> tuple[dict[str, Tensor], dict[str, str]]:
        """What a file of the model holds: tensors, and a text with all else."""
        layers = describe(self.module)
        tensors = {
            f"{i}.{name}": value.detach().contiguous().clone()
            for i, layer in enumerate(flat_layers(self.module))
            for name, value in layer.state_dict().items()
        }
        content = {
            "architecture": layers,
            "classes": list(self.classes),
            "outputs": self.outputs,
            "schema": self.schema.to_dict(),
        }
        return tensors, {"holdfast": json.dumps(content)}

    def save(self, path: str | Path) -> None:
        """Tensors, architecture, class names and schema in one safetensors file that runs no code."""
        tensors, metadata = self.contents()
        try:
            untyped("safetensors.torch").save_file(tensors, path, metadata=metadata)
        except Exception as error:  # safetensors has an error of its own, which is no OSError
            raise FileError(f"cannot write {str(path)!r}: {error}") from None


# ---- files

_SAFETENSORS_FIX = "save it with `hf.Model.of(module, schema).save('model.safetensors')`"


def load_model(
    path: Path,
    schema: Schema | None,
    *,
    trust: bool,
    classes: Sequence[Any] | None = None,
    outputs: Outputs | None = None,
    inputs: Inputs | None = None,
) -> Model:
    """A model from a file; see `Model.load`. All kinds but safetensors are read in `holdfast.files`."""
    from holdfast.files.kind import kind_of
    from holdfast.files.load import read

    kind = kind_of(path)
    if kind.name != "safetensors":
        found = read(path, kind, schema, trust=trust, inputs=inputs)
        if isinstance(found.model, Model):
            return found.model
        assert schema is not None  # `read` asks for one
        names, schema = names_of(classes, found.classes), schema.without_gaps(found.refused)
        model = Model.of(found.model, schema, classes=names, outputs=outputs or found.outputs, inputs=found.inputs)
        model.refused = {**model.refused, **found.refused}
        return model
    safetensors = untyped("safetensors")
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            metadata = cast(dict[str, str], file.metadata() or {})
            # A recourse network that was trained with the model may be in the same file.
            names = [name for name in list(file.keys()) if not name.startswith("generator.")]
            tensors: dict[str, Tensor] = {name: file.get_tensor(name) for name in names}
    except (safetensors.SafetensorError, OSError, ValueError) as error:
        raise FileError(f"{str(path)!r} is not a readable safetensors file ({error}); {_SAFETENSORS_FIX}") from None
    if "holdfast" not in metadata:
        raise FileError(f"{str(path)!r} holds tensors but not the architecture; {_SAFETENSORS_FIX}")
    try:
        content = json.loads(metadata["holdfast"])
        if classes is not None:
            content |= {"classes": names_of(classes, content.get("classes"))}
        return _from_parts(path, content, tensors, schema)
    except HoldfastError:
        raise
    except Exception as error:  # the text in the file may say anything
        what = f"{type(error).__name__}: {error}"
        raise FileError(f"{str(path)!r} is damaged ({what}); {_SAFETENSORS_FIX}") from error


def _from_parts(path: Path, content: Any, tensors: dict[str, Tensor], schema: Schema | None) -> Model:
    gone = [k for k in ("architecture", "classes", "outputs", "schema") if k not in content]
    if gone:
        raise FileError(f"{str(path)!r} lacks {gone[0]!r}; {_SAFETENSORS_FIX}")
    if content["outputs"] not in OUTPUTS:
        raise FileError(
            f"{str(path)!r}: outputs must be 'logits', 'probabilities' or 'value', got {content['outputs']!r}"
        )
    if not _are_names(content["classes"]):
        raise FileError(f"{str(path)!r}: classes must be a list of texts or numbers, got {content['classes']!r}")
    # Without memory of its own until the tensors are in place: the sizes are only a claim of the file.
    with torch.device("meta"):
        module = build(content["architecture"])
    try:
        module.load_state_dict(tensors, assign=True)
    except RuntimeError as error:
        raise FileError(f"the tensors in {str(path)!r} do not fit its architecture: {error}") from None
    if len({t.dtype for t in tensors.values() if t.is_floating_point()}) > 1:
        module = module.float()
    own = Schema.from_dict(content["schema"])
    return TorchModel(module.eval(), schema or own, content["classes"], content["outputs"])


def _are_names(classes: Any) -> bool:
    return isinstance(classes, list) and all(
        isinstance(c, str | int | float) and c == c for c in cast(list[Any], classes)
    )
