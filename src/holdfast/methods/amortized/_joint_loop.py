"""Prediction and recourse trained together, many networks at once: CounterNet, and RoCourseNet's
tri-level training.

    z = encoder(x),  p = predictor(z),  f = sigmoid(line(p)),      theta   = all of these
    c = generator(z, p),  x_cf = N(c),                             theta_g = the generator

N passes numbers on as they are, puts a softmax over the levels of each category (handed out, an
answer has the largest level) and copies what may not change from x. Layers are Linear, LeakyReLU,
dropout. Block-wise coordinate descent, for one batch (x, y):

    1  theta   <- Adam( l1 L(f(x; theta), y) )
    2  x_cf = N(g(x)) and t, the class to reach, with the new theta; with two classes, the other one
    3  theta' = the attack's model: Virtual Data Shift on (x, y, x_cf, t) from theta; theta itself
       in CounterNet
    4  theta_g <- Adam( l2 L(f(x_cf; theta'), t) + l3 mean (x_cf - x)^2 )
       z and p are constants here

Guo, Nguyen and Yadav, "CounterNet", KDD 2023; Guo et al., "RoCourseNet", CIKM 2023. In steps 3 and
4 the prediction f has no dropout. With more than two classes t is drawn among the others and the
generator is told which it is.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from holdfast._core.progress import Progress
from holdfast.distances import l2
from holdfast.methods.amortized._joint_settings import JointSettings
from holdfast.methods.amortized._parallel import (
    Batches,
    Checkpoint,
    StackTraining,
    dropout_masks,
    fit_side_by_side,
    other_class,
    wanted_class,
)
from holdfast.methods.amortized.virtual_shift import Attack, Batch
from holdfast.nn.stack_derivatives import Leaky, Weights, block, slope_and_curve
from holdfast.schema.encoding import Encoding


@dataclass(frozen=True, eq=False)
class JointStack:
    """M networks, each with a prediction and an answer for every row."""

    net: Leaky
    gen: Leaky
    theta: Weights
    theta_g: Weights
    classes: int
    features: tuple[int, int]  # which hidden layers are z and p
    target_columns: int  # how many columns tell the generator the class to reach

    @classmethod
    def of(
        cls,
        how: JointSettings,
        inputs: int,
        classes: int,
        count: int,
        dtype: torch.dtype = torch.float32,
    ) -> "JointStack":
        """Networks with all weights 0."""
        outputs = 1 if classes == 2 else classes
        target = classes if how.condition_on_target or classes > 2 else 0
        net = Leaky((inputs, *how.encoder, *how.predictor, outputs))
        z = how.encoder[-1]
        p = how.predictor[-1]
        places = [
            torch.arange(z),
            block(z) + torch.arange(p),
            block(z) + block(p) + torch.arange(target),
        ]
        wide = block(z) + block(p) + block(target)
        gen = Leaky(
            (z + p + target, *how.generator, inputs), inputs=torch.cat(places), columns=wide
        )
        layers = len(how.encoder), len(how.encoder) + len(how.predictor)
        return cls(
            net, gen, net.weights(count, dtype), gen.weights(count, dtype), classes, layers, target
        )

    @property
    def nets(self) -> list[Leaky]:
        return [self.net, self.gen]

    @property
    def thetas(self) -> list[Weights]:
        return [self.theta, self.theta_g]

    def __len__(self) -> int:
        return len(self.theta)

    def scores(self, x: Tensor) -> Tensor:
        """(M, n, k) outputs for rows (M, n, d), or (n, d) shared by all."""
        return self.net.scores(self.theta, x.expand(len(self), *x.shape[-2:]))

    def answers(self, x: Tensor, t: Tensor | None = None) -> Tensor:
        """(M, n, d) what the generator makes of rows, before N; t (M, n, 1) are the classes to
        reach, by default, with two classes, the other one."""
        h, z = self.net.forward(self.theta, x.expand(len(self), *x.shape[-2:]), name="answers")
        return self.gen.scores(self.theta_g, self.seen(h, other_class(z) if t is None else t))

    def seen(self, h: list[Tensor], t: Tensor) -> Tensor:
        """What the generator sees: z, p and the class to reach."""
        parts = [h[i] for i in self.features]
        if k := self.target_columns:
            target = nn.functional.one_hot(t.squeeze(2).long(), k).to(h[0].dtype)
            parts.append(nn.functional.pad(target, (0, block(k) - k)))
        return torch.cat(parts, 2)

    def pick(self, models: Tensor) -> "JointStack":
        """Some of the networks, in this order."""
        theta, theta_g = (
            Weights(weights.flat[models].clone(), weights.sizes) for weights in self.thetas
        )
        return replace(self, theta=theta, theta_g=theta_g)


def fit_joint(
    how: JointSettings,
    x: Tensor,
    labels: Tensor,
    encoding: Encoding,
    *,
    classes: int = 2,
    tables: Sequence[Tensor] | None = None,
    seeds: Sequence[int] = (0,),
    bar: Progress | None = None,
    workers: int | None = None,
    checkpoint: Checkpoint | None = None,
) -> JointStack:
    """Train networks side by side; for the arguments see `fit_side_by_side`. `encoding` is the
    schema as tensors."""
    how = how.checked()

    def make(count: int) -> JointStack:
        return JointStack.of(how, x.shape[1], classes, count, x.dtype)

    def training(stack: JointStack, models: list[int], batches: Batches) -> JointTraining:
        return JointTraining(how, stack, batches, encoding)

    return fit_side_by_side(
        how.loop(), x, labels, tables, seeds, make, training, bar, workers, checkpoint
    )


class JointTraining(StackTraining):
    """One run of training.

    Paper: guo2023 Algorithm 2, Eq. 4.
    """

    def __init__(
        self, how: JointSettings, stack: JointStack, batches: Batches, encoding: Encoding
    ) -> None:
        super().__init__(how.loop(), stack, batches, encoding, how.shift, how.schedule)
        self.how = how
        self.stack = stack
        self.attack = Attack.of(stack.net, stack.theta, how.shift, encoding, len(how.encoder))
        # Categories have no bounds: what the softmax makes of them is inside anyway.
        self.low = encoding.seen_low.masked_fill(encoding.one_hot, -math.inf)
        self.high = encoding.seen_high.masked_fill(encoding.one_hot, math.inf)

    def step(self, x: Tensor, y: Tensor, w: Tensor, epsilon: float) -> None:
        """Steps 1 to 4 on rows (m, n, d) of the first m models."""
        draw = self.next_draw()
        gen = self.stack.gen
        net = self.stack.net
        stack = self.stack
        how = self.how
        theta, theta_g, g, g_g = (weights.first(len(x)) for weights in (*stack.thetas, *self.grads))
        adam, adam_g = self.adams
        # 1
        masks = self._masks(net, x, draw + 1)
        net.gradient(theta, x, self._smooth(y, draw), how.l1 * w, g, "predict", masks, how.loss)
        adam.step(self._clipped(g.flat))
        if not (how.l2 or how.l3):  # a predictor and nothing else
            return
        # 2
        t = wanted_class(net.forward(theta, x, name="now")[1], self.random, draw + 2)
        h, _ = net.forward(theta, x, self._masks(net, x, draw + 3), "generate")
        masks = self._masks(gen, x, draw + 4)
        h_g, c = gen.forward(theta_g, stack.seen(h, t), masks, "generate")
        soft = self.encoding.softmax(c)
        x_cf = self.keep_fixed(self._proposed(soft), x)
        # 3
        shifted = theta
        if self.attack is not None:
            shifted = self.attack(theta, Batch(x, y, w, x_cf, t, w), self.random, draw + 5, epsilon)
        # 4
        judging = self._masks(net, x, draw + 6) if how.attack_dropout else ()
        z, pull = net.vjp(shifted, x_cf, judging)
        by_cf = pull(slope_and_curve(z, self._smooth(t, draw + 7), how.l2 * w)[0])
        by_cf.addcmul_(x_cf - x, w, value=2 * how.l3 / x.shape[2])
        if self.fixed is not None:
            by_cf.masked_fill_(self.fixed, 0.0)
        if how.clip_to_data:
            by_cf.masked_fill_(
                ((c < self.low) & (by_cf > 0)) | ((c > self.high) & (by_cf < 0)), 0.0
            )
        gen.backward(theta_g, h_g, self.encoding.softmax_pull(soft, by_cf), g_g, masks, "generate")
        adam_g.step(self._clipped(g_g.flat))

    def _proposed(self, soft: Tensor) -> Tensor:
        answer = self.encoding.hard(soft) if self.how.hard_categories else soft
        return answer.clamp(self.low, self.high) if self.how.clip_to_data else answer

    def _masks(self, net: Leaky, x: Tensor, draw: int) -> list[Tensor]:
        return dropout_masks(net, self.how.dropout, x, self.random, draw)

    def _smooth(self, y: Tensor, draw: int) -> Tensor:
        if not self.how.smooth_labels or self.stack.classes > 2:
            return y
        u = self.random[torch.arange(len(y))].uniform(y.shape[1], 1, draw=draw + 8, dtype=y.dtype)
        return torch.where(y > 0.5, 0.8 + 0.15 * u, 0.05 + 0.15 * u)

    def _clipped(self, g: Tensor) -> Tensor:
        return g.copy_(l2.project(g, self.how.clip)) if self.how.clip else g
