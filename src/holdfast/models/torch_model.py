"""Torch modules as models: differentiable, by hand where they are Linear and ReLU layers."""

import hashlib
import json
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import torch
from torch import Tensor, nn

from holdfast._core.rows import ROW_BLOCK, pad_rows
from holdfast.errors import FileError, ModelError, untyped
from holdfast.nn.architecture import describe, flat_layers
from holdfast.nn.relu_network import Engine, Pullback
from holdfast.schema.schema import Schema

if TYPE_CHECKING:
    from holdfast.target import BoundTarget
from holdfast.models.base import PROBE_ROWS, Model, Outputs, looks_like_probabilities, spread_of, to_scores


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
            with self.eval_mode():
                self.output_scale = spread_of(self(schema.probe.to(self.dtype)))

    def _probe(self) -> Tensor:
        """The module's bare outputs on a few rows spread over the data's range."""
        at = self.schema.encoding(self.dtype)
        low, high = at.seen_low.clamp(-3, 3), at.seen_high.clamp(-3, 3)
        t = torch.linspace(0, 1, PROBE_ROWS, dtype=self.dtype)[:, None]
        with self.eval_mode(), torch.no_grad():
            try:
                return self.module(at.whole(low + t * (high - low)))
            except RuntimeError as error:
                raise ModelError(
                    f"the module cannot take encoded rows of {self.schema.width} columns: {error}"
                ) from None

    @contextmanager
    def eval_mode(self) -> Generator[None]:
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
        self, x: Tensor, goal: "BoundTarget", level: float, soft: bool | None = None
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

    def score_frame(self, frame: pd.DataFrame, x: Tensor | None = None) -> Tensor:
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
