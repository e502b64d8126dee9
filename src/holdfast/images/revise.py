"""REVISE for images: gradient descent in the latent space of a VAE, so that answers look like data.

Joshi et al. 2019, as Höltgen et al. 2021 compare with it.

    minimise over z    ce(f(G(z)), t) + lam sum_pixels |G(z) - x0|        from z = mean of ENC(x0)

    y = G(z), with locked pixels copied from x0
    stop if the wanted class is likely enough at y
    z <- z - step J_G^T ( grad ce(y) + lam sign(y - x0) )

where locked pixels contribute nothing.

The derivative of |u| is the sign of u, 0 at 0. Step sizes go with limits: 1e-5 with 50,000 steps,
1e-4 with 10,000 and 1e-3 with 5,000. The answer is y, so it differs from the image nearly
everywhere.

Pairs are worked on in slots, as in the greedy engine: a finished pair leaves its slot to the next.
"""

from dataclasses import dataclass, replace
from functools import cache
from typing import ClassVar, Literal, Self

import torch
from torch import Tensor

from holdfast._core.checks import require_weight
from holdfast._core.types import Outcomes
from holdfast.errors import SettingError
from holdfast.images.autoencoders import Codec, ConvVAE, check_takes, ready_for
from holdfast.images.deduce import cross_entropy
from holdfast.images.explainer import ImageExplainer, ImageFound, ImageSearchProblem
from holdfast.images.model import ImageModel, ImageModelLike, ImagesLike, as_images, padded

Optimizer = Literal["sgd", "adam"]
STEPS: dict[Optimizer, float] = {"sgd": 1e-5, "adam": 0.05}
BETAS = 0.9, 0.999
TINY = 1e-8
PROGRESS = 1e-3  # share of its loss by which a pair must improve within `patience` steps


@dataclass(eq=False, repr=False, kw_only=True)
class REVISE(ImageExplainer):
    """Gradient descent on the class loss plus the l1 distance, over the image's code in a VAE.

    Args:
        lam: weight of the distance.
        step: step size; None: 1e-5 for "sgd", 0.05 for "adam".
        max_iter: the most steps. A target met only after the last one counts as found.
        optimizer: "sgd" (plain descent, as in the paper), or "adam", which needs far fewer steps.
        patience: give up a pair whose loss has not fallen by a thousandth in this many steps; None
            never does.
        vae: a `ConvVAE`; one that has learnt already is taken as it is.
        min_probability: the wanted class must become this likely.

    >>> import holdfast as hf
    >>> from sklearn.datasets import load_digits
    >>> digits = load_digits(n_class=2)
    >>> images, labels = digits.images / 16, digits.target
    >>> net = hf.images.PlainResNet(width=4, stages=1, epochs=3, batch_size=32).fit(images, labels)
    >>> vae = hf.images.ConvVAE(epochs=2)
    >>> method = hf.images.REVISE(optimizer="adam", max_iter=100, vae=vae)
    >>> method = method.fit(net, images)
    >>> len(method.explain(net, images[:2], "all"))
    2

    Paper: hoeltgen2021 Eq. 3, Baseline REVISE.
    """

    title: ClassVar[str] = "gradient descent over the image's code in a VAE"
    paper: ClassVar[str] = "Joshi et al. 2019 (REVISE); Höltgen et al. 2021"
    when: ClassVar[str] = "answers should look like images of the data, wherever they differ"
    cost: ClassVar[str] = (
        "up to max_iter gradient passes through model and decoder, after training a VAE once"
    )
    needs_data: ClassVar[bool] = True
    advice: ClassVar[str] = "raise max_iter or step, lower lam, or try optimizer='adam'"

    lam: float = 1.0
    step: float | None = None
    max_iter: int = 50_000
    optimizer: Optimizer = "sgd"
    patience: int | None = None
    vae: ConvVAE | None = None
    min_probability: float | None = 0.5

    def fit(
        self, model: ImageModelLike, images: ImagesLike, labels: Outcomes | None = None
    ) -> Self:
        """Train the VAE on images, unless it is ready."""
        self.vae_ = ready_for(self.vae or ConvVAE(), as_images(images, ImageModel.of(model).size))
        return self

    def check(self, model: ImageModel) -> None:
        require_weight("lam", self.lam, "distance")
        if not (self.step is None or self.step > 0):
            raise SettingError(f"step must be positive, got {self.step}")
        if not self.max_iter >= 0:
            raise SettingError(f"max_iter must be at least 0, got {self.max_iter}")
        if self.optimizer not in STEPS:
            raise SettingError(f"optimizer must be one of {tuple(STEPS)}, got {self.optimizer!r}")
        patient = self.patience is None or self.patience >= 1
        if not patient:
            raise SettingError(f"patience must be at least 1, or None, got {self.patience}")
        check_takes(self.vae_, "VAE", model.size)

    def search(self, problem: ImageSearchProblem) -> ImageFound:
        n = len(problem)
        net = self.vae_.fitted()
        passes = 0
        out = problem.x.clone()
        iterations = torch.zeros(n, dtype=torch.int64)
        waiting = torch.arange(n)
        locks = not bool(problem.free.all())
        slots = LatentSlots.of(problem, waiting[: problem.batch_size], net)
        waiting = waiting[problem.batch_size :]
        while len(slots.pair):
            look = Look(slots, net, problem.model, self.lam, locks)
            over = replace(problem.goal, label=slots.label).met(look.scores) | (
                slots.count >= self.max_iter
            )
            over |= ~look.loss.isfinite() | self._stale(slots, look.loss)
            over |= (out_of_time := problem.budget.over())  # what is open comes back as it is
            done = over.nonzero().squeeze(1)
            out[slots.pair[done]] = look.y[done]
            iterations[slots.pair[done]] = slots.count[done]
            if len(done) < len(over):
                passes += len(over)
                self.move(slots, look.gradient())
            problem.budget.bar.step(len(done))
            slots, waiting = slots.refilled(
                done, problem, waiting[:0] if out_of_time else waiting, net
            )
        return ImageFound(out, iterations, passes)

    def move(self, slots: "LatentSlots", g: Tensor) -> None:
        """One step of every slot against its gradient (s, latent)."""
        step = STEPS[self.optimizer] if self.step is None else self.step
        if self.optimizer == "adam":
            a, b = BETAS
            slots.mean = a * slots.mean + (1 - a) * g
            slots.square = b * slots.square + (1 - b) * g.square()
            small = correction(a, self.max_iter + 1)[slots.count][:, None]
            large = correction(b, self.max_iter + 1)[slots.count][:, None]
            g = slots.mean / small / ((slots.square / large).sqrt() + TINY)
        slots.z = slots.z - step * g
        slots.count = slots.count + 1

    def _stale(self, slots: "LatentSlots", loss: Tensor) -> Tensor:
        """(s,) which slots have made no progress for too long."""
        better = loss < slots.least * (1 - PROGRESS)
        slots.least = torch.where(better, loss, slots.least)
        slots.since = torch.where(better, 0, slots.since + 1)
        return (
            slots.since >= self.patience if self.patience is not None else torch.zeros_like(better)
        )


@cache
def correction(beta: float, steps: int) -> Tensor:
    """1 - beta^t for t = 1 .. steps. Looked up, because the last bit of a tensor's powers depends
    on a number's place."""
    return (1 - beta ** torch.arange(1, steps + 1, dtype=torch.float64)).float()


@dataclass
class LatentSlots:
    """The pairs being worked on; all tensors have one row a slot."""

    pair: Tensor  # (s,) which pair of the problem is in the slot
    z: Tensor  # (s, latent)
    x: Tensor  # (s, c, h, w) the image
    free: Tensor  # (s, c, h, w) what may change
    label: Tensor  # (s,) t
    count: Tensor  # (s,) steps so far
    mean: Tensor  # (s, latent) running mean of the gradient, for Adam
    square: Tensor  # (s, latent) and of its square
    least: Tensor  # (s,) the least loss at which progress was made
    since: Tensor  # (s,) steps since then

    @classmethod
    def of(cls, problem: ImageSearchProblem, pair: Tensor, net: Codec) -> "LatentSlots":
        x = problem.x[pair]
        z = net.encode(padded(x))[: len(pair)]
        zeros = torch.zeros(len(pair), dtype=torch.int64)
        return cls(
            pair,
            z,
            x,
            problem.free[pair],
            problem.goal.label[pair],
            zeros,
            torch.zeros_like(z),
            torch.zeros_like(z),
            x.new_full((len(pair),), torch.inf),
            zeros,
        )

    def refilled(
        self, done: Tensor, problem: ImageSearchProblem, waiting: Tensor, net: Codec
    ) -> tuple["LatentSlots", Tensor]:
        """The slots with waiting pairs in place of finished ones, fewer slots if none waits; and
        the pairs that still wait."""
        if not len(done):
            return self, waiting
        stays = torch.ones(len(self.pair), dtype=torch.bool).index_fill_(0, done, False)
        old = vars(self)
        new = vars(LatentSlots.of(problem, waiting[: len(done)], net))
        return LatentSlots(*(torch.cat([old[k][stays], new[k]]) for k in old)), waiting[len(done) :]


class Look:
    """Where the codes in slots stand: images y, their scores and losses, and the way back to the
    codes."""

    def __init__(
        self, slots: LatentSlots, net: Codec, model: ImageModel, lam: float, locks: bool
    ) -> None:
        self.n = len(slots.pair)
        self.lam = lam
        x = padded(slots.x)
        self._z = padded(slots.z).detach().requires_grad_()
        with torch.enable_grad():
            y = net.decode(self._z)
            self._y = torch.where(padded(slots.free), y, x) if locks else y
            self._scores = model(self._y)
        self._away = self._y.detach() - x  # 0 at locked pixels
        ce, self._slope = cross_entropy(self._scores.detach(), padded(slots.label))
        self.loss = (ce + lam * self._away.abs().flatten(1).sum(1))[: self.n]  # (s,)
        self.y = self._y.detach()[: self.n]
        self.scores = self._scores.detach()[: self.n]

    def gradient(self) -> Tensor:
        """(s, latent) of the loss by the codes."""
        weights = [self._slope, self.lam * self._away.sign()]
        return torch.autograd.grad([self._scores, self._y], self._z, weights)[0][: self.n]
