"""Virtual Data Shift: the retrained model that a worst small shift of the data would lead to.

Guo, Jia, Chen, Squicciarini and Yadav, "RoCourseNet: Robust Training of a Prediction Aware Recourse
Model", CIKM 2023, Algorithm 1:

    delta* = argmax_{|delta_i| <= eps}  sum_i L( f(x_cf_i; theta'(delta)), t_i )
    theta'(delta) = training on (x + delta, y) from theta

T times: K steps of training on the shifted rows, then a step of delta along the gradient of the
answers' loss through these K steps (truncated there; theta' carries on). The answers x_cf and their
wanted classes t are those of the model that is attacked and stay fixed. A step has the length 2.5
eps / T, so that T of them reach any corner. theta' has been trained on the shift before its last
step.

All of it works on a stack of models at once; rows of one model are coupled through its theta',
models are not.
"""

import itertools
from dataclasses import dataclass
from typing import Any, Literal, get_args, get_type_hints

import torch
from torch import Tensor

from holdfast._core.adam import BETAS, EPS
from holdfast._core.checks import require_integer, require_number
from holdfast._core.params import FrozenSettings
from holdfast._core.row_random import RowRandom
from holdfast.distances import BallNorm, distance_of
from holdfast.errors import SettingError
from holdfast.nn.stack_derivatives import Buffers, Columns, Net, Weights
from holdfast.schema.encoding import Encoding

B1, B2 = BETAS
# inside Adam's root: where a gradient is 0, its derivative would else be 0 times infinity
ROOT = 1e-12


@dataclass(frozen=True)
class Shift(FrozenSettings):
    """How the data may shift, and how the model follows.

    The worst shift delta of the rows, |delta| <= epsilon, is that after which the retrained model
    theta'(delta) rejects most of the answers: T steps of `outer`, each after K steps of `inner`
    training. See `robustify`.

    Args:
        epsilon: the largest shift of a number column, in encoded units.
        outer, inner: T steps of the shift, and K steps of training before each.
        eta: step size of training. Gentle steps make better generators; `shift_attack`, which
            judges answers, takes larger ones.
        optimizer: "adam" with its state carried along, or plain "sgd" as printed in the paper.
        norm: "linf", or "l2" for the length of each row's shift.
        categories: "none" leaves one-hot columns as they are; "clamp" shifts them like numbers;
            "softmax" also passes them through a softmax, as the authors' code does even where there
            is not a shift.
        ascend: follow the gradient; False draws the shift anew each time (the paper's random
            ablation).
        scope: "all" retrains the whole model, "head" only what follows the encoder, as the authors'
            older code does.

    >>> import holdfast as hf
    >>> hf.Shift(epsilon=0.05).outer
    7

    Paper: guo2023 Baseline RoCourseNet-Random.
    """

    epsilon: float = 0.1
    outer: int = 7
    inner: int = 2
    eta: float = 0.003
    optimizer: Literal["adam", "sgd"] = "adam"
    norm: BallNorm = "linf"
    categories: Literal["none", "clamp", "softmax"] = "none"
    ascend: bool = True
    scope: Literal["all", "head"] = "all"

    def __post_init__(self) -> None:
        require_number("epsilon", self.epsilon)
        for name in ("outer", "inner"):
            require_integer(name, getattr(self, name), least=0)
        require_number("eta", self.eta, positive=True)
        # Single precision ends at 3e38.
        if self.eta >= 1e36:
            raise SettingError(f"eta must be positive and less than 1e36, got {self.eta}")
        if not isinstance(self.ascend, bool):
            raise SettingError(f"ascend must be True or False, got {self.ascend!r}")
        for name in ("optimizer", "norm", "categories", "scope"):
            choices = get_args(get_type_hints(Shift)[name])
            value = getattr(self, name)
            if value not in choices:
                raise SettingError(f"{name} must be one of {', '.join(choices)}, got {value!r}")


@dataclass(frozen=True)
class Batch:
    """Rows with their classes, and answers with the classes they are meant to get: what an attack
    looks at."""

    x: Tensor  # (M, n, d)
    y: Tensor  # (M, n, 1)
    w: Tensor  # (M, n, 1) weights of the rows, 1 / n for a mean
    x_cf: Tensor  # (M, m, d)
    t: Tensor  # (M, m, 1)
    w_cf: Tensor  # (M, m, 1)


class Attack:
    """Virtual Data Shift on one architecture, with memory that is kept from call to call.

    There will be at most as many models as in `like`; `encoder` layers make up the encoder, for
    scope="head".

    Paper: guo2023 Algorithm 1, Eq. 3.
    """

    def __init__(
        self, net: Net, like: Weights, shift: Shift, encoding: Encoding, encoder: int = 0
    ) -> None:
        self.net = net
        self.shift = shift
        self.encoding = encoding
        free = (
            torch.ones_like(encoding.one_hot) if shift.categories != "none" else ~encoding.one_hot
        )
        self.columns = free.nonzero().squeeze(1)
        self.buffers = Buffers()
        has_head = shift.scope == "all" or bool(encoder and like.sizes)
        if not has_head:
            raise SettingError(
                "scope='head' needs a network that has an encoder, as CounterNet and RoCourseNet do"
            )
        self.place = _as_slice(self.columns)
        self.tape = Tape(net, like, shift, self.place, encoder if shift.scope == "head" else 0)

    @classmethod
    def of(
        cls, net: Net, like: Weights, shift: Shift | None, encoding: Encoding, encoder: int = 0
    ) -> "Attack | None":
        """None where nothing shifts, or the model does not follow."""
        return (
            cls(net, like, shift, encoding, encoder)
            if shift is not None and shift.outer and shift.inner
            else None
        )

    def __call__(
        self, theta: Weights, batch: Batch, random: RowRandom, draw: int, epsilon: float
    ) -> Weights:
        """theta'; random numbers come from one key per model and the number of the draw."""
        return self.with_delta(theta, batch, random, draw, epsilon)[0]

    def with_delta(
        self, theta: Weights, batch: Batch, random: RowRandom, draw: int, epsilon: float
    ) -> tuple[Weights, Tensor]:
        """theta' and delta (M, n, c), in the columns that shift. theta' lasts until the next
        call."""
        shift = self.shift
        tape = self.tape
        m = len(theta)
        delta = self._drawn(batch, random, draw, epsilon)
        base = batch.x[..., self.place]
        if not (shift.outer and shift.inner):
            return theta, delta
        tape.start(theta, m)
        n, d = batch.x.shape[1:]
        moved = self.buffers(("rows",), m, n, d, batch.x.dtype).copy_(batch.x)
        for i in range(shift.outer):
            rows = self._shifted(moved, base, delta)
            tape.train(rows, batch)
            if not shift.ascend:
                delta = self._drawn(batch, random, draw + (i + 1) * (1 << 40), epsilon)
                continue
            g = tape.by_rows(batch)
            if shift.categories == "softmax":
                g = self.encoding.softmax_pull(rows, g)
            step = 2.5 * epsilon / shift.outer
            delta = self._projected(
                torch.add(delta, distance_of(shift.norm).ascent(g), alpha=step), epsilon
            )
        return tape.theta, delta

    def _drawn(self, batch: Batch, random: RowRandom, draw: int, epsilon: float) -> Tensor:
        shape = (*batch.x.shape[1:2], len(self.columns))
        u = random[torch.arange(len(batch.x))].uniform(*shape, draw=draw, dtype=batch.x.dtype)
        return self._projected((2 * u - 1) * epsilon, epsilon)

    def _projected(self, delta: Tensor, epsilon: float) -> Tensor:
        ball = distance_of(self.shift.norm)
        inside = ball.project(delta, epsilon)
        if self.shift.categories != "softmax" or not ball.ball_is_box:
            return inside
        # The authors' map leaves shifts of categories where they are.
        return torch.where(self.encoding.one_hot, delta, inside)

    def _shifted(self, rows: Tensor, base: Tensor, delta: Tensor) -> Tensor:
        """The rows with base + delta in the columns that shift, in the memory of the rows
        before."""
        if self.shift.categories == "softmax":
            return self.encoding.softmax(base + delta)
        rows[..., self.place] = base + delta
        return rows


def _as_slice(columns: Tensor) -> Columns:
    """Columns next to one another as a slice, which needs no copy."""
    first, last = (int(columns[0]), int(columns[-1]) + 1) if len(columns) else (0, 0)
    return slice(first, last) if last - first == len(columns) else columns


class Tape:
    """K steps of training, kept so that the gradient of what follows can go back through them.

    Paper: guo2023 Eq. 2.
    """

    def __init__(
        self, net: Net, like: Weights, shift: Shift, columns: Columns, held: int = 0
    ) -> None:
        self.net = net
        self.shift = shift
        self.columns = columns
        self.like = like
        # The parameters of the first layers, which stay as they are.
        self.held = sum(a * b + b for a, b in itertools.pairwise(like.sizes[: held + 1]))
        self.thetas = [like.empty() for _ in range(shift.inner + 1)]
        adam = shift.optimizer == "adam"
        self.ms, self.vs, self.roots = (
            [like.empty() for _ in range(shift.inner + 1)] if adam else [] for _ in "mvr"
        )
        self.grads = [like.empty() for _ in range(shift.inner)]
        self.scratch = [like.empty() for _ in range(6)]
        self.passes = list[Any]()

    def start(self, theta: Weights, m: int) -> None:
        """Begin at theta, with fresh memories of Adam."""
        self.m = m
        self.count = 0
        self.thetas[0].first(m).flat.copy_(theta.flat)
        for memory in (self.ms, self.vs):
            if memory:
                memory[0].first(m).flat.zero_()
        self.moved = False

    @property
    def theta(self) -> Weights:
        """Where training has come to."""
        return self.thetas[-1].first(self.m)

    def train(self, rows: Tensor, batch: Batch) -> None:
        """K steps."""
        if self.moved:  # go on from the last point: it becomes the first
            for memory in (self.thetas, self.ms, self.vs):
                if memory:
                    memory[0], memory[-1] = memory[-1], memory[0]
        self.moved = True
        self.passes = list[Any]()
        for k in range(self.shift.inner):
            theta = self.thetas[k].first(self.m)
            after = self.thetas[k + 1].first(self.m)
            g = self.grads[k].first(self.m)
            self.passes.append(self.net.gradient(theta, rows, batch.y, batch.w, g, f"step {k}"))
            g.flat[:, : self.held] = 0.0
            self.count += 1
            if self.shift.optimizer == "sgd":
                torch.sub(theta.flat, g.flat, alpha=self.shift.eta, out=after.flat)
                continue
            before = self.ms[k].first(self.m).flat, self.vs[k].first(self.m).flat
            m, v, root = (
                memory[k + 1].first(self.m).flat for memory in (self.ms, self.vs, self.roots)
            )
            torch.lerp(before[0], g.flat, 1 - B1, out=m)
            torch.mul(before[1], B2, out=v).addcmul_(g.flat, g.flat, value=1 - B2)
            torch.div(v, 1 - B2**self.count, out=root).add_(ROOT).sqrt_()
            whole = torch.add(root, EPS, out=self.scratch[0].first(self.m).flat)
            torch.addcdiv(
                theta.flat, m, whole, value=-self.shift.eta / (1 - B1**self.count), out=after.flat
            )

    def by_rows(self, batch: Batch) -> Tensor:
        """(M, n, c) the gradient of the answers' loss at theta' by the rows it was trained on."""
        up, by_m, by_v, p, curved, base = (space.first(self.m) for space in self.scratch)
        self.net.gradient(self.theta, batch.x_cf, batch.t, batch.w_cf, up, "answers")
        adam = self.shift.optimizer == "adam"
        last = self.shift.inner - 1
        total: Tensor | None = None
        for k in range(last, -1, -1):
            theta = self.thetas[k].first(self.m)
            g = self.grads[k].first(self.m)
            if adam:
                count = self.count - (last - k)
                m, root = self.ms[k + 1].first(self.m).flat, self.roots[k + 1].first(self.m).flat
                # theta' = theta - size m / (root + eps), root^2 = v / (1 - B2^count) + ROOT
                whole = torch.add(root, EPS, out=p.flat)
                size = self.shift.eta / (1 - B1**count)
                bend = 0.5 / (1 - B2**count)
                torch.div(up.flat, whole, out=base.flat).mul_(size)
                by_v_more = whole.mul_(root).reciprocal_().mul_(m).mul_(base.flat)
                if k == last:
                    torch.neg(base.flat, out=by_m.flat)
                    torch.mul(by_v_more, bend, out=by_v.flat)
                else:
                    by_m.flat.sub_(base.flat)
                    by_v.flat.add_(by_v_more, alpha=bend)
                torch.mul(by_v.flat, g.flat, out=p.flat).mul_(2 * (1 - B2)).add_(
                    by_m.flat, alpha=1 - B1
                )
                by_m.flat.mul_(B1)
                by_v.flat.mul_(B2)
            else:
                torch.mul(up.flat, -self.shift.eta, out=p.flat)
            p.flat[:, : self.held] = 0.0
            by_x = self.net.mixed(theta, p, self.passes[k], self.columns, curved if k else None)
            total = by_x if total is None else total.add_(by_x)
            if k:
                up.flat.add_(curved.flat)
        assert total is not None
        return total
