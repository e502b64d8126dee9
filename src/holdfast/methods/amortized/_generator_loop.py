"""Networks that learn to answer for a fixed model, many at once.

f is frozen; t is the class to reach: the other one of two, else one drawn among the others. N passes numbers on as they
are, puts a softmax over the levels of each category and copies what may not change from x.

    CF Model    x_cf = N(g(x))
                l2 L(f(x_cf), t) + l3 mean (x_cf - x)^2,      L = (f - t)^2, or cross-entropy of more than two classes

    VAE-CF      m = mean([x; t]),  v = 1/2 + sigmoid(variance([x; t])),  z_s = m + sqrt(v) e_s,  e_s ~ N(0, 1)
                x_cf = S(decoder([z; t])): numbers as they are, a sigmoid of each level
                mean over s and rows of  |x_cf - x|_1  +  sum over categories |1 - sum of its levels|
                + mean of (m^2 + v - log v - 1) / 2
                + reg (mean over s of the norm over rows of h),   h = max(0, margin - lead of class t in f(x_cf))

Guo et al., "RoCourseNet", CIKM 2023 (CF Model, VAE-CF); Mahajan, Tan and Sharma 2019, and DiCE (the VAE). The lead is
the logit of two classes, else s_t - max_{j != t} s_j. (With a softmax in place of the sigmoids the second term were 0.)
A generator that has to hold is trained against theta', what Virtual Data Shift makes of f for the batch and its answers
(the first sample of each row): f(x_cf; theta') takes the place of f(x_cf) in the validity term, and nowhere else.

All of it by hand: a network's gradient is `Leaky.backward`, what reaches it from f is `Net.vjp`.
"""

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from holdfast._core.progress import Progress
from holdfast._core.row_random import RowRandom
from holdfast._core.rows import limited_threads
from holdfast.errors import SettingError
from holdfast.methods.amortized._parallel import (
    BATCHES,
    PURPOSES,
    Batches,
    Schedule,
    by_seed,
    dropout_masks,
    share_of,
    side_by_side,
    start_weights,
    tables_of,
    wish,
)
from holdfast.methods.amortized.virtual_shift import Attack, Batch, Shift
from holdfast.nn.stack_derivatives import Leaky, Net, Weights, slope_and_curve
from holdfast.retraining.loop import Loop
from holdfast.schema.encoding import Encoding
from holdfast.schema.feasible import FeasibleSet

CELLS = 1 << 21  # numbers in the answers of one block of samples


@dataclass(frozen=True, kw_only=True)
class Kind(Loop, ABC):
    """A kind of generator: its networks, and what they are trained for.

    Args:
        hidden: widths of the layers.
        reachable: f judges what the person would hand in, the answers projected to what they can reach, and not the
            relaxed answers; gradients pass straight through, except those that push a number beyond its bounds.
    """

    batch_size: int = 128
    lr: float = 0.003
    hidden: tuple[int, ...] = ()
    reachable: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        widths = self.hidden
        if not isinstance(widths, tuple) or not widths or any(not isinstance(h, int) or h < 1 for h in widths):
            raise SettingError(f"hidden must be a list of at least one width, got {widths!r}")

    def _not_negative(self, *names: str) -> None:
        for name in names:
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise SettingError(f"{name} must be at least 0, got {value}")

    @abstractmethod
    def told(self, classes: int) -> int:
        """How many columns tell the class to reach."""

    @abstractmethod
    def sizes(self, columns: int, classes: int) -> list[tuple[int, ...]]:
        """The layers of each of its networks."""

    @abstractmethod
    def training(self, run: "Run") -> "Training":
        """One run of training."""


@dataclass(frozen=True, kw_only=True)
class Direct(Kind):
    """CF Model: one network from rows to answers.

    Args:
        hidden: widths of the layers.
        dropout: share of units left out while training.
        l2, l3: weights of validity and proximity.
        condition_on_target: also with two classes it is told the class to reach, and need not find out what f gives.
    """

    hidden: tuple[int, ...] = (200, 10, 10)
    dropout: float = 0.3
    l2: float = 0.2
    l3: float = 0.1
    condition_on_target: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.dropout < 1:
            raise SettingError(f"dropout must be at least 0 and below 1, got {self.dropout}")
        self._not_negative("l2", "l3")

    def told(self, classes: int) -> int:
        return classes if classes > 2 else int(self.condition_on_target)

    def sizes(self, columns: int, classes: int) -> list[tuple[int, ...]]:
        return [(columns + self.told(classes), *self.hidden, columns)]

    def training(self, run: "Run") -> "Training":
        return DirectTraining(self, run)


@dataclass(frozen=True, kw_only=True)
class Variational(Kind):
    """VAE-CF: the networks mean, variance and decoder.

    Args:
        hidden, latent: widths of the encoders' layers and of what they lead to; the decoder has them in reverse.
        samples: draws of z for each row of a batch.
        reg, margin: weight of validity, and by how much class t has to lead.
    """

    hidden: tuple[int, ...] = (20, 16, 14, 12)
    latent: int = 5
    samples: int = 50
    reg: float = 0.2
    margin: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("latent", "samples"):
            if getattr(self, name) < 1:
                raise SettingError(f"{name} must be at least 1, got {getattr(self, name)}")
        self._not_negative("reg", "margin")

    def told(self, classes: int) -> int:
        return 1 if classes == 2 else classes

    def sizes(self, columns: int, classes: int) -> list[tuple[int, ...]]:
        encoder = (columns + self.told(classes), *self.hidden, self.latent)
        return [encoder, encoder, (self.latent + self.told(classes), *self.hidden[::-1], columns)]

    def training(self, run: "Run") -> "Training":
        return VariationalTraining(self, run)


@dataclass(frozen=True, eq=False)
class GeneratorStack:
    """Generators of M models: the networks of a kind, and the parameters of each."""

    kind: Kind
    classes: int
    nets: list[Leaky]
    thetas: list[Weights]

    @classmethod
    def of(cls, kind: Kind, columns: int, classes: int, count: int, dtype: torch.dtype) -> "GeneratorStack":
        """With all weights 0."""
        nets = [Leaky(sizes) for sizes in kind.sizes(columns, classes)]
        return cls(kind, classes, nets, [net.weights(count, dtype) for net in nets])

    def __len__(self) -> int:
        return len(self.thetas[0])

    def answers(self, x: Tensor, t: Tensor, layout: Encoding, noise: Tensor | None = None) -> Tensor:
        """(M, n, d) relaxed answers, not yet projected, to rows x (M, n, d) that shall get classes t (M, n, 1).

        A VAE takes its noise (M, n, latent) from the caller, see `normal`; None takes the mean.
        """
        told = with_wish(x, t, self.kind.told(self.classes))
        if isinstance(self.kind, Direct):
            return torch.where(layout.fixed, x, layout.softmax(self.nets[0].scores(self.thetas[0], told)))
        m, raw = (net.scores(theta, told) for net, theta in zip(self.nets[:2], self.thetas[:2], strict=True))
        z = m if noise is None else m + (0.5 + torch.sigmoid(raw)).sqrt() * noise
        c = self.nets[2].scores(self.thetas[2], with_wish(z, t, self.kind.told(self.classes)))
        return torch.where(layout.fixed, x, sigmoids(c, layout))


def with_wish(x: Tensor, t: Tensor, told: int) -> Tensor:
    """Rows (.., n, d) with the classes t (.., n, 1) they shall get, in so many columns."""
    if told < 2:
        return torch.cat([x, t.to(x.dtype)], -1) if told else x
    return torch.cat([x, nn.functional.one_hot(t.squeeze(-1).long(), told).to(x.dtype)], -1)


def sigmoids(c: Tensor, layout: Encoding) -> Tensor:
    """A sigmoid of each level; numbers as they are."""
    return torch.where(layout.one_hot, torch.sigmoid(c), c) if layout.groups.numel() else c


def fit_generators(
    kind: Kind,
    net: Net,
    theta: Weights,
    x: Tensor,
    labels: Tensor | None,
    layout: Encoding,
    *,
    classes: int = 2,
    tables: Sequence[Tensor] | None = None,
    seeds: Sequence[int] | None = None,
    shift: Shift | None = None,
    schedule: Schedule = "linear",
    bar: Progress | None = None,
    workers: int | None = None,
) -> GeneratorStack:
    """Train one generator for each of M frozen models, side by side.

    Args:
        kind: `Direct` or `Variational`, with the settings.
        net, theta: the models, see `holdfast.retraining.frozen.net_of`.
        x, labels: all rows (n, d) and the numbers of their classes (n,); only an attack looks at the latter.
        layout: the schema as tensors.
        tables: for each model the rows its generator learns from; None gives all rows to each.
        seeds: one for each model, 0 for all if left out; weights, order, dropout and noise come from it alone.
        shift, schedule: the attack to train against and how its epsilon grows; None trains against the models as they
            are.
        workers: threads that train a part of the generators each; None takes as many as pay.

    Returns:
        The generators. One is the same, up to rounding, whatever trains beside it.
    """
    seeds = (0,) * len(theta) if seeds is None else seeds
    if len(seeds) != len(theta):
        raise SettingError(f"need one seed for each model, got {len(seeds)} for {len(theta)}")
    share_of(schedule, 1, kind.epochs)  # an unknown schedule is told now, not after the first epoch
    if shift is not None and labels is None:
        raise SettingError("training against a shift retrains the model, so it needs the rows' outcomes y")
    rows = tables_of(x, tables, seeds)
    y = torch.zeros(len(x)) if labels is None else labels

    def run(models: list[int]) -> GeneratorStack:
        """Longest table first."""
        stack = GeneratorStack.of(kind, x.shape[1], classes, len(models), x.dtype)
        mine = Weights(theta.flat[models], theta.sizes)
        # A copy of the architecture: its memory serves one thread.
        given = Run(stack, copy.deepcopy(net), mine, layout, shift, by_seed([seeds[i] for i in models]))
        batches = Batches(x, y, [rows[i] for i in models], kind.batch_size, given.random)
        with torch.inference_mode(False), torch.no_grad(), limited_threads(1):
            training = kind.training(given)
            for epoch in range(1, kind.epochs + 1):
                epsilon = shift.epsilon * share_of(schedule, epoch, kind.epochs) if shift is not None else 0.0
                training.steps = epoch * BATCHES  # not a running count: that would depend on the longest table
                for part in batches.epoch(epoch):
                    training.step(*part, epsilon)
                if bar is not None:
                    bar.step(len(models) / kind.epochs)
        return stack

    with torch.inference_mode(False), torch.no_grad():
        stacks, back = side_by_side(rows, workers, run)
        out = GeneratorStack.of(kind, x.shape[1], classes, len(rows), x.dtype)
        for i, whole in enumerate(out.thetas):
            whole.flat[:] = torch.cat([stack.thetas[i].flat for stack in stacks])[back]
    if not all(bool(whole.flat.isfinite().all()) for whole in out.thetas):
        raise SettingError("training diverged: some weights are no longer numbers; lower lr")
    return out


@dataclass(frozen=True, eq=False)
class Run:
    """What one run of training works on."""

    stack: GeneratorStack
    net: Net
    theta: Weights  # of the frozen models
    layout: Encoding
    shift: Shift | None
    random: RowRandom


class Training(ABC):
    """One run of training; models are in the order of their tables, longest first."""

    def __init__(self, kind: Kind, run: Run) -> None:
        self.run, self.stack, self.layout, self.random = run, run.stack, run.layout, run.random
        self.grads = [theta.empty() for theta in run.stack.thetas]
        self.adams = [kind.adam(theta.flat) for theta in run.stack.thetas]
        shift, self.attack = run.shift, None
        if shift is not None and shift.outer and shift.inner:
            self.attack = Attack(run.net, run.theta, shift, run.layout)
        self.fixed = run.layout.fixed if bool(run.layout.fixed.any()) else None
        self.told = kind.told(run.stack.classes)
        self.reachable, self.steps = kind.reachable, 0
        for part, (net, theta) in enumerate(zip(run.stack.nets, run.stack.thetas, strict=True)):
            start_weights(net, theta, run.random, part)

    def step(self, x: Tensor, y: Tensor, w: Tensor, epsilon: float) -> None:
        """One step on rows (m, n, d) of the first m models, with their classes y and weights w (m, n, 1)."""
        net, (m, n, _) = self.run.net, x.shape
        draw, self.steps = self.steps * PURPOSES, self.steps + 1
        theta, thetas = self.run.theta.first(m), [held.first(m) for held in self.stack.thetas]
        t = wish(net.scores(theta, x), self.random, draw)
        grads, judge = [held.first(m) for held in self.grads], theta
        for block in range(self.begin(thetas, x, t, draw + 1)):
            x_cf = self.answer(thetas, x, t, block)
            reach = (
                FeasibleSet.of(x.repeat(1, x_cf.shape[1] // n, 1).flatten(0, 1), self.layout)
                if self.reachable
                else None
            )
            given = x_cf if reach is None else reach.project(x_cf.flatten(0, 1)).view_as(x_cf)
            if self.attack is not None and block == 0:
                judge = self.attack(theta, Batch(x, y, w, given[:, :n], t, w), self.random, draw + 5, epsilon)
            z, pull = net.vjp(judge, given)
            by_cf = pull(self.slope(z, t, w))
            if reach is not None:
                lo, hi = reach.lo.view_as(x_cf), reach.hi.view_as(x_cf)
                by_cf.masked_fill_(((x_cf <= lo) & (by_cf > 0)) | ((x_cf >= hi) & (by_cf < 0)), 0.0)
            self.add_distance(by_cf, x, x_cf, w)
            if self.fixed is not None:
                by_cf.masked_fill_(self.fixed, 0.0)
            self.learn(thetas, grads, by_cf, block)
        self.end(thetas, grads, w)
        for adam, g in zip(self.adams, grads, strict=True):
            adam.step(g.flat)

    def kept(self, x_cf: Tensor, x: Tensor) -> Tensor:
        """The answers, with what may not change as it is in x."""
        return x_cf if self.fixed is None else torch.where(self.fixed, x, x_cf)

    @abstractmethod
    def begin(self, thetas: list[Weights], x: Tensor, t: Tensor, draw: int) -> int:
        """What comes before the answers; returns in how many blocks these come."""

    @abstractmethod
    def answer(self, thetas: list[Weights], x: Tensor, t: Tensor, block: int) -> Tensor:
        """(m, s n, d) s answers to each of n rows; row i of sample j stands at j n + i."""

    @abstractmethod
    def slope(self, z: Tensor, t: Tensor, w: Tensor) -> Tensor:
        """The derivative of the validity term by the models' outputs z for the answers."""

    @abstractmethod
    def add_distance(self, by_cf: Tensor, x: Tensor, x_cf: Tensor, w: Tensor) -> None:
        """Add the derivative of the other terms by the answers, in place."""

    @abstractmethod
    def learn(self, thetas: list[Weights], grads: list[Weights], by_cf: Tensor, block: int) -> None:
        """Write or add up the gradients of the networks, given that of the block's answers."""

    def end(self, thetas: list[Weights], grads: list[Weights], w: Tensor) -> None:
        """Write the gradients of what comes before the answers."""
        return


class DirectTraining(Training):
    """Of a CF Model."""

    def __init__(self, kind: Direct, run: Run) -> None:
        super().__init__(kind, run)
        self.kind, self.gen = kind, run.stack.nets[0]

    def begin(self, thetas: list[Weights], x: Tensor, t: Tensor, draw: int) -> int:
        self.masks = dropout_masks(self.gen, self.kind.dropout, x, self.random, draw)
        return 1

    def answer(self, thetas: list[Weights], x: Tensor, t: Tensor, block: int) -> Tensor:
        self.h, c = self.gen.forward(thetas[0], with_wish(x, t, self.told), self.masks, "generate")
        self.x_cf = self.kept(self.layout.softmax(c), x)
        return self.x_cf

    def slope(self, z: Tensor, t: Tensor, w: Tensor) -> Tensor:
        return slope_and_curve(z, t, self.kind.l2 * w)[0]

    def add_distance(self, by_cf: Tensor, x: Tensor, x_cf: Tensor, w: Tensor) -> None:
        by_cf.addcmul_(x_cf - x, w, value=2 * self.kind.l3 / x.shape[2])

    def learn(self, thetas: list[Weights], grads: list[Weights], by_cf: Tensor, block: int) -> None:
        by_c = self.layout.softmax_pull(self.x_cf, by_cf)
        self.gen.backward(thetas[0], self.h, by_c, grads[0], self.masks, "generate")


class VariationalTraining(Training):
    """Of a VAE-CF; its samples come in blocks that stay in the cache."""

    def __init__(self, kind: Variational, run: Run) -> None:
        super().__init__(kind, run)
        self.kind = kind
        self.one_hot = run.layout.one_hot if run.layout.groups.numel() else None
        at, first = run.layout, run.layout.groups[:, :1]
        self.more = run.stack.thetas[2].empty()
        self.levels = (at.owner[:, None] == at.owner[first.flatten()]).to(at.scale.dtype)  # (d, categories)

    def begin(self, thetas: list[Weights], x: Tensor, t: Tensor, draw: int) -> int:
        (m, n, _), (mean, variance, _), kind = x.shape, self.stack.nets, self.kind
        seen = with_wish(x, t, self.told)
        self.h_m, self.m = mean.forward(thetas[0], seen, name="mean")
        self.h_v, raw = variance.forward(thetas[1], seen, name="variance")
        self.u = torch.sigmoid(raw)
        self.root = (0.5 + self.u).sqrt()
        noise = normal(self.random[torch.arange(m)], n, kind.samples, kind.latent, draw, x.dtype)
        self.noise = list(torch.split(noise, max(1, CELLS // x.numel()), 1))  # (m, s, n, latent) of each block
        self.by_m, self.by_root = torch.zeros_like(self.m), torch.zeros_like(self.m)
        return len(self.noise)

    def answer(self, thetas: list[Weights], x: Tensor, t: Tensor, block: int) -> Tensor:
        noise, decoder = self.noise[block], self.stack.nets[2]
        m, s, n, _ = noise.shape
        z = torch.addcmul(self.m[:, None], self.root[:, None], noise).flatten(1, 2)
        self.h_d, c = decoder.forward(thetas[2], with_wish(z, t.repeat(1, s, 1), self.told), name="decoder")
        self.x_cf = self.kept(sigmoids(c, self.layout).view(m, s, n, -1), x[:, None]).flatten(1, 2)
        return self.x_cf

    def slope(self, z: Tensor, t: Tensor, w: Tensor) -> Tensor:
        (m, n, _), s = w.shape, z.shape[1] // w.shape[1]
        lead, by_z = lead_and_slope(z, t.repeat(1, s, 1))
        h = (self.kind.margin - lead).clamp_min_(0.0).view(m, s, n, 1) * (w > 0)[:, None]
        norm = h.square().sum(2, keepdim=True).sqrt_()
        h.div_(norm.clamp_min_(torch.finfo(h.dtype).tiny)).mul_(-self.kind.reg / self.kind.samples)
        return by_z.mul_(h.view(m, s * n, 1))

    def add_distance(self, by_cf: Tensor, x: Tensor, x_cf: Tensor, w: Tensor) -> None:
        (m, n, d), s = x.shape, x_cf.shape[1] // x.shape[1]
        by = by_cf.view(m, s, n, d)
        way = (x_cf.view(m, s, n, d) - x[:, None]).sign_()
        if self.one_hot is not None:
            over = torch.sign(x_cf @ self.levels - 1)  # (m, s n, categories)
            way += (over @ self.levels.T).view(m, s, n, d)
        by.addcmul_(way, (w / self.kind.samples)[:, None])

    def learn(self, thetas: list[Weights], grads: list[Weights], by_cf: Tensor, block: int) -> None:
        noise, decoder, k = self.noise[block], self.stack.nets[2], self.kind.latent
        by_c = by_cf
        if self.one_hot is not None:
            by_c = torch.where(self.one_hot, torch.ops.aten.sigmoid_backward(by_cf, self.x_cf), by_cf)
        g = self.more.first(len(noise)) if block else grads[2]
        first = decoder.backward(thetas[2], self.h_d, by_c, g, name="decoder")[0]
        if block:
            grads[2].flat.add_(g.flat)
        by_z = torch.bmm(first, thetas[2].parts[0][0][:, :k].transpose(1, 2)).view_as(noise)
        self.by_m += by_z.sum(1)
        self.by_root += (by_z * noise).sum(1)

    def end(self, thetas: list[Weights], grads: list[Weights], w: Tensor) -> None:
        mean, variance, _ = self.stack.nets
        k, v = self.kind.latent, self.root.square()
        by_m = self.by_m.addcmul_(self.m, w, value=1 / k)  # of the divergence: m / k
        by_v = self.by_root.div_(2 * self.root).addcmul_(1 - 1 / v, w, value=0.5 / k)  # and (1 - 1 / v) / 2 k
        mean.backward(thetas[0], self.h_m, by_m, grads[0], name="mean")
        variance.backward(thetas[1], self.h_v, by_v * self.u * (1 - self.u), grads[1], name="variance")


def lead_and_slope(z: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
    """By how much class t (m, n, 1) leads in outputs z (m, n, k), (m, n, 1), and its derivative by z."""
    k = z.shape[2]
    if k == 1:
        way = 2 * t - 1
        return z * way, way
    own = nn.functional.one_hot(t.squeeze(2).long(), k).to(z.dtype)
    best, at = z.masked_fill(own > 0, -torch.inf).max(2, keepdim=True)
    return (z * own).sum(2, keepdim=True) - best, own.scatter_add(2, at, torch.full_like(best, -1.0))


def normal(random: RowRandom, n: int, samples: int, size: int, draw: int, dtype: torch.dtype) -> Tensor:
    """(m, samples, n, size) standard normal numbers; those of row i do not depend on how many rows there are."""
    half = -(-samples * size // 2)
    u = random.uniform(n, 2, half, draw=draw, dtype=dtype)
    radius, angle = (-2 * torch.log1p(-u[:, :, 0])).sqrt_(), u[:, :, 1].mul(2 * math.pi)
    pair = torch.cat([radius * torch.cos(angle), radius * torch.sin(angle)], 2)
    return pair[..., : samples * size].view(-1, n, samples, size).transpose(1, 2).contiguous()
