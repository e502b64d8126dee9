"""The training loop of image classifiers: shuffled mini-batches, cross-entropy, SGD with momentum,
falling steps."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from holdfast._core.checks import require_integer
from holdfast._core.progress import Progress
from holdfast._core.rows import chunks, limited_threads
from holdfast.errors import SettingError


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """The settings of the loop; the paper trains for 50 epochs, with steps divided by 10 after 25
    and 40 of them."""

    epochs: int
    batch_size: int
    lr: float
    momentum: float
    weight_decay: float
    # shares of the training after which the step is divided by 10
    drops: tuple[float, ...]

    def __post_init__(self) -> None:
        for name in ("epochs", "batch_size"):
            require_integer(name, getattr(self, name))
        good = self.lr > 0 and 0 <= self.momentum < 1 and self.weight_decay >= 0
        given = f"{self.lr}, {self.momentum}, {self.weight_decay}"
        if not good:
            raise SettingError(f"need lr > 0, 0 <= momentum < 1 and weight_decay >= 0, got {given}")
        shares = all(0 < drop < 1 for drop in self.drops)
        if not shares:
            raise SettingError(
                f"drops are shares of the training between 0 and 1, got {self.drops}"
            )


@dataclass(frozen=True)
class Epoch:
    """What an epoch of training gave."""

    epoch: int
    loss: float
    accuracy: float  # on the training batches
    held_out: float | None  # on images held out, if there are any


def fit_images(
    net: nn.Module,
    x: Tensor,
    y: Tensor,
    schedule: Schedule,
    *,
    held: tuple[Tensor, Tensor] | None = None,
    seed: int = 0,
    bar: Progress,
    threads: int = 0,
) -> list[Epoch]:
    """Train a network on images (n, c, h, w) and their classes (n,)."""
    how: dict[str, Any] = {
        "lr": schedule.lr,
        "momentum": schedule.momentum,
        "weight_decay": schedule.weight_decay,
    }
    optimizer = torch.optim.SGD(net.parameters(), **how)
    generator = torch.Generator().manual_seed(seed)
    history = list[Epoch]()
    batches = len(batched(torch.arange(len(x)), schedule.batch_size))
    bar.total(schedule.epochs)
    with torch.inference_mode(False), torch.enable_grad(), limited_threads(threads):
        for epoch in range(schedule.epochs):
            net.train()
            loss = 0.0
            right = 0
            order = torch.randperm(len(x), generator=generator)
            for i, rows in enumerate(batched(order, schedule.batch_size)):
                # the step falls tenfold after each of these shares of the whole training
                done = (epoch + i / batches) / schedule.epochs
                for group in optimizer.param_groups:
                    group["lr"] = schedule.lr / 10 ** sum(done >= drop for drop in schedule.drops)
                scores = net(x[rows])
                value = nn.functional.cross_entropy(scores, y[rows])
                step(optimizer, value)
                loss += float(value.detach()) * len(rows)
                right += int((scores.detach().argmax(1) == y[rows]).sum())
                bar.step(1 / batches)
            history.append(
                Epoch(
                    epoch + 1, loss / len(x), right / len(x), accuracy(net, *held) if held else None
                )
            )
            bar.say(line(history[-1]))
    net.eval()
    check_converged(net.parameters(), schedule.lr)
    return history


def step(optimizer: Any, loss: Any) -> None:
    """One step against the gradient of a loss."""
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()


def check_converged(weights: Iterable[Tensor], lr: float) -> None:
    """Raise an error if training has left non-finite weights."""
    finite = all(bool(w.isfinite().all()) for w in weights)
    if not finite:
        raise SettingError(f"training diverged: some weights are non-finite; lower lr ({lr:g})")


def batched(order: Tensor, size: int) -> list[Tensor]:
    """Parts of `size`, the last one shorter; never a single image, which has no spread to normalise
    by."""
    if size > 1 and len(order) > size and len(order) % size == 1:
        return [*chunks(order[: -size - 1], size), order[-size - 1 :]]
    return chunks(order, size)


def line(epoch: Epoch) -> str:
    """An epoch in words."""
    held = "" if epoch.held_out is None else f", held out {epoch.held_out:.4f}"
    return f"epoch {epoch.epoch}: loss {epoch.loss:.4f}, accuracy {epoch.accuracy:.4f}{held}"


def accuracy(net: nn.Module, x: Tensor, y: Tensor, batch_size: int = 500) -> float:
    """Share of images that get their class."""
    training = net.training
    net.eval()
    with torch.no_grad():
        right = sum(
            int((net(x[r]).argmax(1) == y[r]).sum())
            for r in chunks(torch.arange(len(x)), batch_size)
        )
    net.train(training)
    return right / max(1, len(x))
