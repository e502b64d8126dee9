"""Torch modules as models: differentiable, by hand where they are Linear and ReLU layers."""

import hashlib
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import torch
from torch import Tensor, nn

from holdfast._core.rows import ROW_BLOCK, pad_rows
from holdfast._core.types import Pullback
from holdfast.errors import ModelError
from holdfast.models.base import Model, Shortfall, class_names, output_scale_of, probe_rows
from holdfast.models.formats import safetensors
from holdfast.models.scores import Outputs, looks_like_probabilities, to_scores
from holdfast.nn.architecture import describe, flat_layers
from holdfast.nn.relu_network import Engine
from holdfast.schema.schema import Schema

if TYPE_CHECKING:
    from holdfast.target import BoundTarget


@dataclass(eq=False)
class _Evaluation:
    """What a model holds while `eval_mode` lasts; nothing else in it ever changes."""

    engine: Engine | None = None  # the network by hand
    shortfalls: dict[tuple[float, float], Engine] = field(
        default_factory=dict[tuple[float, float], Engine]
    )


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class TorchModel(Model):
    """A torch module over encoded rows: differentiable, by hand where it is Linear and ReLU
    layers."""

    module: nn.Module
    outputs: Outputs
    _evaluation: _Evaluation = field(default_factory=_Evaluation, init=False)

    @property
    def has_grad(self) -> bool:
        return True

    @property
    def name(self) -> str:
        return type(self.module).__name__

    @contextmanager
    def eval_mode(self) -> Generator[None]:
        now = self._evaluation
        with _evaluating(self.module), torch.inference_mode(False), torch.no_grad():
            try:
                now.engine = Engine.of(self.module) if self.outputs != "probabilities" else None
                now.shortfalls = {}
                yield
            finally:
                now.engine = None
                now.shortfalls = {}

    @property
    def engine(self) -> Engine | None:
        return self._evaluation.engine

    def __call__(self, x: Tensor) -> Tensor:
        rows = pad_rows(x)
        engine = self._evaluation.engine
        return to_scores(engine.scores(rows) if engine else self.module(rows), self.outputs)[
            : len(x)
        ]

    def vjp(self, x: Tensor) -> tuple[Tensor, Pullback]:
        n = len(x)
        rows = pad_rows(x)
        engine = self._evaluation.engine
        if engine:
            scores, by_hand = engine.vjp(rows)
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
        self, x: Tensor, goal: "BoundTarget", level: float, soft: bool | None = None
    ) -> Shortfall:
        now = self._evaluation
        way = goal.direction if now.engine else 0.0
        if now.engine is None or not way:
            return super().shortfall(x, goal, level, soft)
        # With two classes and the same target for all, the shortfall is itself a network with one
        # output.
        if (way, level) not in now.shortfalls:
            now.shortfalls[way, level] = now.engine.against(way, level)
        n = x.shape[0]
        line = now.shortfalls[way, level]
        if n % ROW_BLOCK == 0:
            v, pull = line.vjp(x)
            return v, v, pull
        v, pull = line.vjp(pad_rows(x))
        return v[:n], v[:n], lambda outer: pull(pad_rows(outer))[:n]

    def score_frame(self, frame: pd.DataFrame, x: Tensor | None = None) -> Tensor:
        self.refuse_missing(frame)
        x = self.schema.encode(frame, self.dtype) if x is None else x
        if not len(x):
            return x.new_zeros(0, len(self.classes) or 1)
        return to_scores(self.module(pad_rows(x)), self.outputs)[: len(x)]

    def fingerprint(self) -> str:
        digest = hashlib.sha256(f"{self.module} {self.outputs} {self.classes}".encode())
        for name, value in sorted(self.module.state_dict().items()):
            # NumPy has no bfloat16
            raw = value.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
            digest.update(name.encode() + raw.numpy().tobytes())
        return digest.hexdigest()[:16]

    def contents(self) -> tuple[dict[str, Tensor], dict[str, object]]:
        """What the model's file holds: tensors, and all else."""
        layers = describe(self.module)
        states = [(i, layer.state_dict()) for i, layer in enumerate(flat_layers(self.module))]
        tensors = {
            f"{i}.{name}": v.detach().contiguous().clone()
            for i, state in states
            for name, v in state.items()
        }
        content = {"architecture": layers, "classes": list(self.classes), "outputs": self.outputs}
        return tensors, {"holdfast": content | {"schema": self.schema.to_dict()}}

    def save(self, path: str | Path) -> None:
        """Tensors, architecture, class names and schema in one safetensors file that runs no
        code."""
        safetensors.write(path, *self.contents())


def wrap_module(
    module: nn.Module,
    schema: Schema,
    classes: Sequence[Any] | None = None,
    outputs: Outputs | None = None,
) -> TorchModel:
    """A module with what must be known about it: what it returns, its classes, its precision and
    units."""
    dtype = next((p.dtype for p in module.parameters() if p.is_floating_point()), torch.float32)
    by_layer = _outputs_by_last_layer(module, outputs)
    raw = _probe(module, schema, dtype)
    if outputs is None and by_layer is None and looks_like_probabilities(raw):
        raise ModelError(
            "the module's outputs look like probabilities; pass outputs='probabilities', or "
            "'logits'"
        )
    returned = outputs or by_layer or "logits"
    if returned == "probabilities" and not bool(((raw >= 0) & (raw <= 1 + 1e-6)).all()):
        raise ModelError("outputs='probabilities', but the module returned values outside [0, 1]")
    names = class_names(classes, 1 if raw.ndim == 1 else raw.shape[1], returned)
    model = TorchModel(schema=schema, classes=names, dtype=dtype, module=module, outputs=returned)
    if not model.is_regression:
        return model
    with model.eval_mode():
        return replace(model, output_scale=output_scale_of(model(schema.probe.to(dtype))))


def _outputs_by_last_layer(module: nn.Module, given: Outputs | None) -> Outputs | None:
    last = flat_layers(module)[-1]
    if not isinstance(last, nn.Sigmoid | nn.Softmax) or given == "value":
        return None
    if given == "logits":
        raise ModelError(
            f"the module ends in {type(last).__name__}, so its outputs are probabilities, not "
            "logits"
        )
    return "probabilities"


def _probe(module: nn.Module, schema: Schema, dtype: torch.dtype) -> Tensor:
    """The module's bare outputs on a few rows spread over the data's range."""
    rows = probe_rows(schema, dtype)
    with _evaluating(module), torch.inference_mode(False), torch.no_grad():
        try:
            raw: Tensor = module(rows)
        except RuntimeError as error:
            raise ModelError(
                f"the module cannot take encoded rows of {schema.width} columns: {error}"
            ) from None
    n = len(rows)
    if not (raw.ndim in (1, 2) and len(raw) == len(rows)):
        raise ModelError(f"the module maps {n} rows to shape {tuple(raw.shape)}, expected ({n}, k)")
    if not bool(raw.isfinite().all()):
        raise ModelError(
            "the module returned non-finite scores; look for NaN or inf in its weights"
        )
    return raw


@contextmanager
def _evaluating(module: nn.Module) -> Generator[None]:
    """The module in evaluation mode, without gradients by its parameters; afterwards exactly as it
    was."""
    training = {m: m.training for m in module.modules()}
    wanted = [p for p in module.parameters() if p.requires_grad]
    try:
        module.eval()
        for p in wanted:
            p.requires_grad_(False)
        yield
    finally:
        for p in wanted:
            p.requires_grad_(True)
        for m, mode in training.items():
            m.training = mode
