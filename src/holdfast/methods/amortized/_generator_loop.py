"""Networks that learn to answer for a fixed model, many at once: what the CF Model and VAE-CF
share.

f is frozen; t is the class to reach: the other one of two, else one drawn among the others.
`cf_model` and `vae_cf` say what the generators are and what they minimise.

A generator that has to hold (`robustify`) is trained against theta': what Virtual Data Shift makes
of f, given the batch and its answers (the first sample of each row). In the validity term
f(x_cf; theta') takes the place of f(x_cf).

All of it by hand: a network's gradient is `Leaky.backward`, what reaches it from f is `Net.vjp`.
"""

import copy
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import torch
from torch import Tensor, nn

from holdfast._core.params import Settings
from holdfast._core.progress import Progress
from holdfast.errors import SettingError
from holdfast.methods.amortized._parallel import (
    Batches,
    Checkpoint,
    Schedule,
    StackTraining,
    epsilon_in,
    fit_side_by_side,
    wanted_class,
)
from holdfast.methods.amortized.virtual_shift import Attack, Batch, Shift
from holdfast.nn.stack_derivatives import Leaky, Net, Weights
from holdfast.retraining.loop import Loop, check_widths
from holdfast.schema.encoding import Encoding
from holdfast.schema.feasible import FeasibleSet


@dataclass(eq=False, repr=False)
class GeneratorKind(Settings, ABC):
    """A kind of generator: the settings of its training, its networks, and what they minimise.

    `CFModel` and `VAECF` are such kinds; nothing is checked before training, as scikit-learn
    asks.

    Args:
        epochs, batch_size, lr: of the training, with Adam.
        reachable: f judges what the person would hand in, the answers projected to what they can
            reach, and not the relaxed answers; gradients pass straight through, except those that
            push a number beyond its bounds.
        seed: weights, order and dropout or noise come from it.
        shift, schedule: the attack to train against and how its epsilon grows; None trains against
            the models as they are.
    """

    epochs: int = 50
    batch_size: int = 128
    lr: float = 0.003
    reachable: bool = False
    seed: int = 0
    shift: Shift | None = None
    schedule: Schedule = "linear"

    def checked(self) -> Self:
        """A copy to train with; an error names the first invalid setting."""
        self.loop()
        # an unknown schedule is an error now, not while training
        epsilon_in(self.shift, self.schedule, 1, self.epochs)
        return replace(self)

    def loop(self) -> Loop:
        """How often, in which batches and by which steps."""
        return Loop(epochs=self.epochs, batch_size=self.batch_size, lr=self.lr)

    @abstractmethod
    def target_columns(self, classes: int) -> int:
        """How many columns tell the network the class to reach."""

    @abstractmethod
    def sizes(self, columns: int, classes: int) -> list[tuple[int, ...]]:
        """The layers of each of its networks."""

    @abstractmethod
    def answers(
        self,
        stack: "GeneratorStack",
        x: Tensor,
        t: Tensor,
        encoding: Encoding,
        noise: Tensor | None,
    ) -> Tensor:
        """See `GeneratorStack.answers`; columns that may not change still have to be copied from
        x."""

    @abstractmethod
    def training(self, run: "GeneratorRun", batches: Batches) -> "GeneratorTraining":
        """One run of training."""


def as_widths(name: str, widths: Any) -> tuple[int, ...]:
    """The widths of layers, which may be any sequence, as a tuple; an error names an invalid
    one."""
    layers = tuple(widths) if hasattr(widths, "__iter__") else widths
    check_widths(name, layers)
    return layers


@dataclass(frozen=True, eq=False)
class GeneratorStack:
    """Generators of M models: the networks of a kind, and the parameters of each."""

    kind: GeneratorKind
    classes: int
    nets: list[Leaky]
    thetas: list[Weights]

    @classmethod
    def of(
        cls, kind: GeneratorKind, columns: int, classes: int, count: int, dtype: torch.dtype
    ) -> "GeneratorStack":
        """Generators with all weights 0."""
        nets = [Leaky(sizes) for sizes in kind.sizes(columns, classes)]
        return cls(kind, classes, nets, [net.weights(count, dtype) for net in nets])

    def __len__(self) -> int:
        return len(self.thetas[0])

    def answers(
        self, x: Tensor, t: Tensor, encoding: Encoding, noise: Tensor | None = None
    ) -> Tensor:
        """(M, n, d) relaxed answers, not yet projected, to rows x (M, n, d) that should get classes
        t (M, n, 1).

        A VAE takes its noise (M, n, latent) from the caller, see `vae_cf.normal`; None takes the
        mean.
        """
        return torch.where(encoding.fixed, x, self.kind.answers(self, x, t, encoding, noise))

    def with_target(self, x: Tensor, t: Tensor) -> Tensor:
        return with_target(x, t, self.kind.target_columns(self.classes))


def with_target(x: Tensor, t: Tensor, columns: int) -> Tensor:
    """Rows (.., n, d), followed by the classes t (.., n, 1) they should get, in this many
    columns."""
    if columns < 2:
        return torch.cat([x, t.to(x.dtype)], -1) if columns else x
    return torch.cat([x, nn.functional.one_hot(t.squeeze(-1).long(), columns).to(x.dtype)], -1)


@dataclass(frozen=True, eq=False)
class GeneratorRun:
    """What one run of training works on."""

    stack: GeneratorStack
    net: Net
    theta: Weights  # of the frozen models
    encoding: Encoding


def fit_generators(
    kind: GeneratorKind,
    net: Net,
    theta: Weights,
    x: Tensor,
    labels: Tensor | None,
    encoding: Encoding,
    *,
    classes: int = 2,
    tables: Sequence[Tensor] | None = None,
    seeds: Sequence[int] | None = None,
    bar: Progress | None = None,
    workers: int | None = None,
    checkpoint: Checkpoint | None = None,
) -> GeneratorStack:
    """Train one generator for each of M frozen models, side by side.

    Args:
        kind: a `CFModel` or a `VAECF`; only its settings count.
        net, theta: the models, see `holdfast.retraining.frozen.net_of`.
        x, labels, tables, seeds, workers, checkpoint: see `fit_side_by_side`; only an attack looks
            at the labels, and seeds are the kind's for all if left out.
        encoding: the schema as tensors.
    """
    kind = kind.checked()
    each = (kind.seed,) * len(theta) if seeds is None else seeds
    y = torch.zeros(len(x)) if labels is None else labels
    if len(each) != len(theta):
        raise SettingError(f"need one seed for each model, got {len(each)} for {len(theta)}")
    if kind.shift is not None and labels is None:
        raise SettingError(
            "training against a shift retrains the model, so it needs the rows' outcomes y"
        )

    def make(count: int) -> GeneratorStack:
        return GeneratorStack.of(kind, x.shape[1], classes, count, x.dtype)

    def training(stack: GeneratorStack, models: list[int], batches: Batches) -> GeneratorTraining:
        frozen = Weights(theta.flat[models], theta.sizes)
        # A copy of the architecture: its memory serves one thread.
        return kind.training(GeneratorRun(stack, copy.deepcopy(net), frozen, encoding), batches)

    return fit_side_by_side(
        kind.loop(), x, y, tables, each, make, training, bar, workers, checkpoint
    )


class GeneratorTraining(StackTraining):
    """One run of training."""

    def __init__(self, kind: GeneratorKind, run: GeneratorRun, batches: Batches) -> None:
        super().__init__(kind.loop(), run.stack, batches, run.encoding, kind.shift, kind.schedule)
        self.run = run
        self.stack = run.stack
        self.reachable = kind.reachable
        self.attack = Attack.of(run.net, run.theta, kind.shift, run.encoding)

    def step(self, x: Tensor, y: Tensor, w: Tensor, epsilon: float) -> None:
        net = self.run.net
        m, n, _ = x.shape
        draw = self.next_draw()
        theta = self.run.theta.first(m)
        thetas = [stack.first(m) for stack in self.stack.thetas]
        t = wanted_class(net.scores(theta, x), self.random, draw)
        grads = [stack.first(m) for stack in self.grads]
        judge = theta
        # The attack looks at the first answers, and its model judges all of them.
        for block in range(self.begin(thetas, x, t, draw + 1)):
            x_cf = self.answer(thetas, x, t, block)
            rows = x.repeat(1, x_cf.shape[1] // n, 1).flatten(0, 1) if self.reachable else x
            feasible = FeasibleSet.of(rows, self.encoding) if self.reachable else None
            handed_in = (
                x_cf if feasible is None else feasible.project(x_cf.flatten(0, 1)).view_as(x_cf)
            )
            if self.attack is not None and block == 0:
                judge = self.attack(
                    theta, Batch(x, y, w, handed_in[:, :n], t, w), self.random, draw + 5, epsilon
                )
            z, pull = net.vjp(judge, handed_in)
            by_cf = pull(self.validity_slope(z, t, w))
            if feasible is not None:
                lo = feasible.lo.view_as(x_cf)
                hi = feasible.hi.view_as(x_cf)
                by_cf.masked_fill_(((x_cf <= lo) & (by_cf > 0)) | ((x_cf >= hi) & (by_cf < 0)), 0.0)
            self.add_distance_slope_(by_cf, x, x_cf, w)
            if self.fixed is not None:
                by_cf.masked_fill_(self.fixed, 0.0)
            self.learn(thetas, grads, by_cf, block)
        self.end(thetas, grads, w)
        for adam, g in zip(self.adams, grads, strict=True):
            adam.step(g.flat)

    @abstractmethod
    def begin(self, thetas: list[Weights], x: Tensor, t: Tensor, draw: int) -> int:
        """What comes before the answers; returns the number of blocks they come in."""

    @abstractmethod
    def answer(self, thetas: list[Weights], x: Tensor, t: Tensor, block: int) -> Tensor:
        """(m, s n, d) s answers to each of n rows; row i of sample j stands at j n + i."""

    @abstractmethod
    def validity_slope(self, z: Tensor, t: Tensor, w: Tensor) -> Tensor:
        """The derivative of the validity term by the models' outputs z for the answers."""

    @abstractmethod
    def add_distance_slope_(self, by_cf: Tensor, x: Tensor, x_cf: Tensor, w: Tensor) -> None:
        """Add the derivative of the other terms by the answers, in place."""

    @abstractmethod
    def learn(self, thetas: list[Weights], grads: list[Weights], by_cf: Tensor, block: int) -> None:
        """Write or add up the networks' gradients, given the gradient of the block's answers."""

    def end(self, thetas: list[Weights], grads: list[Weights], w: Tensor) -> None:
        """Write the gradients of what comes before the answers."""
        return
