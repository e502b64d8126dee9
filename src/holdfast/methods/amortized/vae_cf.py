"""VAE-CF: a variational autoencoder that is given the wanted class and returns an answer.

    m = mean([x; t]),  v = 1/2 + sigmoid(variance([x; t])),  z_s = m + sqrt(v) e_s,  e_s ~ N(0, 1)
    x_cf = S(decoder([z; t])): numbers as they are, a sigmoid of each level

    minimise  mean over s and rows of  |x_cf - x|_1  +  sum over categories |1 - sum of its levels|
              + mean of (m^2 + v - log v - 1) / 2
              + reg (mean over s of the norm over rows of h)
    h = max(0, margin - lead of class t in f(x_cf))

Mahajan, Tan and Sharma 2019, and DiCE (the VAE); Guo et al., "RoCourseNet", CIKM 2023 (a baseline
there). The lead is the logit of two classes, else s_t - max_{j != t} s_j. (With a softmax in place
of the sigmoids the second term would be 0.)
"""

import math
from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor, nn

from holdfast._core.checks import require_integer, require_number
from holdfast._core.row_random import RowRandom
from holdfast._core.rows import rows_per_chunk
from holdfast.methods.amortized._generator_loop import (
    GeneratorRun,
    GeneratorStack,
    GeneratorTraining,
    as_widths,
)
from holdfast.methods.amortized._parallel import Batches
from holdfast.methods.amortized._parametric import ParametricMethod
from holdfast.nn.stack_derivatives import Weights
from holdfast.problem import SearchProblem
from holdfast.schema.encoding import Encoding

SAMPLED_CELLS = 1 << 21  # numbers in the answers of one block of samples


@dataclass(eq=False, repr=False)
class VAECF(ParametricMethod):
    """A variational autoencoder whose decoder makes answers; one draw for each row.

    Args:
        hidden, latent: widths of the encoders' layers, and latent numbers; the decoder has them in
            reverse.
        samples: draws for each row while training.
        reg, margin: weight of validity, and by how much the wanted class has to lead, in logits.
        epochs, batch_size, lr: of the training, with Adam.
        reachable: train on answers as they would be handed in, with all bounds and rules; pays
            where these are tight.
        seed: weights, order and noise of the training come from it; the noise of answers comes from
            the seed of `explain`.
        shift, schedule: what it is trained against, see `holdfast.methods.amortized.robustify`.

    >>> import holdfast as hf
    >>> data = hf.datasets.moons().take(range(200))
    >>> model = hf.train_network(data.X, data.y, data.schema, hidden=(8,), epochs=5)
    >>> method = hf.VAECF(hidden=(8,), samples=5, epochs=5).fit(model, data.X)
    >>> len(method.explain(model, data.X[:3], "yes"))
    3

    Paper: guo2023 Baseline VAE-CF.
    """

    title = "one draw from a variational autoencoder trained to answer for the model"
    paper = "Mahajan et al. 2019; Guo et al. 2023 (VAE-CF)"
    when = "many rows must be answered fast, by rows that look like data"
    advice = (
        "train with reachable=True, a larger reg or more epochs, or ask another method about "
        "these rows"
    )

    hidden: tuple[int, ...] = (20, 16, 14, 12)
    latent: int = 5
    samples: int = 50
    reg: float = 0.2
    margin: float = 1.0

    def checked(self) -> Self:
        require_integer("latent", self.latent)
        require_integer("samples", self.samples)
        require_number("reg", self.reg)
        require_number("margin", self.margin)
        return replace(super().checked(), hidden=as_widths("hidden", self.hidden))

    def target_columns(self, classes: int) -> int:
        return 1 if classes == 2 else classes

    def sizes(self, columns: int, classes: int) -> list[tuple[int, ...]]:
        target = self.target_columns(classes)
        encoder = (columns + target, *self.hidden, self.latent)
        return [encoder, encoder, (self.latent + target, *self.hidden[::-1], columns)]

    def answers(
        self, stack: GeneratorStack, x: Tensor, t: Tensor, encoding: Encoding, noise: Tensor | None
    ) -> Tensor:
        mean, variance, decoder = stack.nets
        thetas = stack.thetas
        seen = stack.with_target(x, t)
        m = mean.scores(thetas[0], seen)
        raw = variance.scores(thetas[1], seen)
        z = m if noise is None else m + (0.5 + torch.sigmoid(raw)).sqrt() * noise
        return sigmoid_levels(decoder.scores(thetas[2], stack.with_target(z, t)), encoding)

    def training(self, run: GeneratorRun, batches: Batches) -> GeneratorTraining:
        return VariationalTraining(self, run, batches)

    def propose(self, problem: SearchProblem, t: Tensor) -> Tensor:
        generator = self.generator_
        mean, variance, decoder = self.generator_.layers
        seen = generator.with_target(problem.x, t)
        m = mean(seen)
        noise = problem.rng.normal(m.shape[1], dtype=m.dtype)
        z = m + (0.5 + torch.sigmoid(variance(seen))).sqrt() * noise
        return sigmoid_levels(decoder(generator.with_target(z, t)), problem.feasible.encoding)


def sigmoid_levels(c: Tensor, encoding: Encoding) -> Tensor:
    """A sigmoid of each level; numbers as they are."""
    return torch.where(encoding.one_hot, torch.sigmoid(c), c) if encoding.groups.numel() else c


class VariationalTraining(GeneratorTraining):
    """One run of the training, with gradients by hand; samples come in blocks that stay in the
    cache."""

    def __init__(self, kind: VAECF, run: GeneratorRun, batches: Batches) -> None:
        super().__init__(kind, run, batches)
        encoding = run.encoding
        self.kind = kind
        self.one_hot = encoding.one_hot if encoding.groups.numel() else None
        self.more = run.stack.thetas[2].empty()
        first = encoding.groups[:, :1].flatten()
        # (d, categories)
        self.levels = (encoding.owner[:, None] == encoding.owner[first]).to(encoding.scale.dtype)

    def begin(self, thetas: list[Weights], x: Tensor, t: Tensor, draw: int) -> int:
        m, n, _ = x.shape
        mean, variance, _ = self.stack.nets
        kind = self.kind
        seen = self.stack.with_target(x, t)
        self.h_m, self.m = mean.forward(thetas[0], seen, name="mean")
        self.h_v, raw = variance.forward(thetas[1], seen, name="variance")
        self.u = torch.sigmoid(raw)
        self.root = (0.5 + self.u).sqrt()
        noise = normal(self.random[torch.arange(m)], n, kind.samples, kind.latent, draw, x.dtype)
        # (m, s, n, latent) each
        self.noise = list(torch.split(noise, rows_per_chunk(x.numel(), SAMPLED_CELLS), 1))
        self.by_m = torch.zeros_like(self.m)
        self.by_root = torch.zeros_like(self.m)
        return len(self.noise)

    def answer(self, thetas: list[Weights], x: Tensor, t: Tensor, block: int) -> Tensor:
        noise = self.noise[block]
        decoder = self.stack.nets[2]
        m, s, n, _ = noise.shape
        z = torch.addcmul(self.m[:, None], self.root[:, None], noise).flatten(1, 2)
        self.h_d, c = decoder.forward(
            thetas[2], self.stack.with_target(z, t.repeat(1, s, 1)), name="decoder"
        )
        self.x_cf = self.keep_fixed(
            sigmoid_levels(c, self.encoding).view(m, s, n, -1), x[:, None]
        ).flatten(1, 2)
        return self.x_cf

    def validity_slope(self, z: Tensor, t: Tensor, w: Tensor) -> Tensor:
        m, n, _ = w.shape
        s = z.shape[1] // w.shape[1]
        lead, by_z = lead_and_slope(z, t.repeat(1, s, 1))
        h = (self.kind.margin - lead).clamp_min_(0.0).view(m, s, n, 1) * (w > 0)[:, None]
        norm = h.square().sum(2, keepdim=True).sqrt_()
        h.div_(norm.clamp_min_(torch.finfo(h.dtype).tiny)).mul_(-self.kind.reg / self.kind.samples)
        return by_z.mul_(h.view(m, s * n, 1))

    def add_distance_slope_(self, by_cf: Tensor, x: Tensor, x_cf: Tensor, w: Tensor) -> None:
        m, n, d = x.shape
        s = x_cf.shape[1] // x.shape[1]
        sign = (x_cf.view(m, s, n, d) - x[:, None]).sign_()
        if self.one_hot is not None:
            over = torch.sign(x_cf @ self.levels - 1)  # (m, s n, categories)
            sign += (over @ self.levels.T).view(m, s, n, d)
        by_cf.view(m, s, n, d).addcmul_(sign, (w / self.kind.samples)[:, None])

    def learn(self, thetas: list[Weights], grads: list[Weights], by_cf: Tensor, block: int) -> None:
        noise = self.noise[block]
        decoder = self.stack.nets[2]
        k = self.kind.latent
        by_c = by_cf
        if self.one_hot is not None:
            by_c = torch.where(
                self.one_hot, torch.ops.aten.sigmoid_backward(by_cf, self.x_cf), by_cf
            )
        g = self.more.first(len(noise)) if block else grads[2]
        first = decoder.backward(thetas[2], self.h_d, by_c, g, name="decoder")[0]
        if block:
            grads[2].flat.add_(g.flat)
        by_z = torch.bmm(first, thetas[2].parts[0][0][:, :k].transpose(1, 2)).view_as(noise)
        self.by_m += by_z.sum(1)
        self.by_root += (by_z * noise).sum(1)

    def end(self, thetas: list[Weights], grads: list[Weights], w: Tensor) -> None:
        mean, variance, _ = self.stack.nets
        k = self.kind.latent
        v = self.root.square()
        by_m = self.by_m.addcmul_(self.m, w, value=1 / k)  # of the divergence: m / k
        # and (1 - 1 / v) / 2 k
        by_v = self.by_root.div_(2 * self.root).addcmul_(1 - 1 / v, w, value=0.5 / k)
        mean.backward(thetas[0], self.h_m, by_m, grads[0], name="mean")
        variance.backward(
            thetas[1], self.h_v, by_v * self.u * (1 - self.u), grads[1], name="variance"
        )


def lead_and_slope(z: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
    """By how much class t (m, n, 1) leads in outputs z (m, n, k), (m, n, 1), and its derivative by
    z."""
    k = z.shape[2]
    if k == 1:
        sign = 2 * t - 1
        return z * sign, sign
    asked = nn.functional.one_hot(t.squeeze(2).long(), k).to(z.dtype)
    best, place = z.masked_fill(asked > 0, -torch.inf).max(2, keepdim=True)
    return (z * asked).sum(2, keepdim=True) - best, asked.scatter_add(
        2, place, torch.full_like(best, -1.0)
    )


def normal(
    random: RowRandom, n: int, samples: int, size: int, draw: int, dtype: torch.dtype
) -> Tensor:
    """(m, samples, n, size) standard normal numbers; those of row i do not depend on how many rows
    there are."""
    half = -(-samples * size // 2)
    u = random.uniform(n, 2, half, draw=draw, dtype=dtype)
    radius = (-2 * torch.log1p(-u[:, :, 0])).sqrt_()
    angle = u[:, :, 1].mul(2 * math.pi)
    pair = torch.cat([radius * torch.cos(angle), radius * torch.sin(angle)], 2)
    return pair[..., : samples * size].view(-1, n, samples, size).transpose(1, 2).contiguous()
