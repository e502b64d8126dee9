"""Prototype (VLK): images drawn towards prototypes in the code of an autoencoder.

Van Looveren and Klaise, "Interpretable Counterfactual Explanations Guided by Prototypes", 2021,
with their library's settings for digits, as Höltgen et al. 2021 compare with it.

    minimise over x'   c max(0, p_l(x') - max_{i != l} p_i(x') + kappa)    l: the class of x0
                       + beta |x' - x0|_1 + |x' - x0|_2^2
                       + gamma |x' - AE(x')|_2^2                           look like the data
                       + theta |ENC(x') - proto_t|_2^2                     look like the class t
    proto_t            mean code of the k training images predicted as t whose codes are nearest
                       to that of x0

    v_0 = x_0;  for k = 0 .. steps - 1:                           FISTA, see `methods/_fista.py`
        g       = gradient of all but the l1 term at v_k, cut off at 1000
        x_{k+1} = clip( x_0 + S_beta( v_k - lr sqrt(1 - k / steps) g - x_0 ), 0, 1 )
        v_{k+1} = clip( x_{k+1} + (k + 1) / (k + 4) (x_{k+1} - x_k), 0, 1 )

S is soft shrinkage. The answer is the x_k of least beta l1 + l2^2 with the wanted outcome, over all
weights c: 10 times as large after one without an answer, else by bisection. Note that the hinge
only drives away from l; the prototype leads to t. The library has images with values from -0.5 to
0.5. Distances are the same in ours, and the autoencoder shifts its inputs itself.

Two shortcuts leave every number as it is. Where the hinge is off its gradient is 0, so rows whose
hinge was off at the last step only go forward, and go again with the way back if it turns out to be
on. And an x_k is judged only if the verdict can matter: it would be the best so far, or its row has
had no success with this c. `passes` counts every image that goes through the model, with or without
the way back.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import ClassVar, Self

import torch
from torch import Tensor
from torch.nn import functional as F

from holdfast._core.rows import chunks, per_row, rows_per_chunk
from holdfast._core.types import Outcomes
from holdfast.distances import l1, squared_l2
from holdfast.errors import SettingError
from holdfast.images.autoencoders import Codec, ConvAutoencoder, check_takes, ready_for
from holdfast.images.explainer import ImageExplainer, ImageFound, ImageSearchProblem
from holdfast.images.model import ImageModel, ImageModelLike, ImagesLike, as_images, padded
from holdfast.methods._fista import bisected

CLIP = 1000.0  # gradients are cut off here, per pixel


@dataclass(eq=False, repr=False, kw_only=True)
class Prototype(ImageExplainer):
    """An elastic net over pixels, drawn to what an autoencoder can express and to a prototype of
    the wanted class.

    Args:
        beta: weight of the l1 distance, and threshold of the shrinkage.
        gamma: weight of what the autoencoder cannot reconstruct.
        theta: weight of the distance between the code and the prototype.
        kappa: by how much probability another class should lead the image's.
        c: the first weight of the hinge.
        bisections, steps: how many weights c, and steps with each.
        lr: first step size; it falls with the root of the steps left.
        k: training images that a prototype is the mean of.
        autoencoder: a `ConvAutoencoder`; one that has learnt already is taken as it is.
        min_probability: how likely the wanted class must become; None: likelier than any other.

    >>> import holdfast as hf
    >>> from sklearn.datasets import load_digits
    >>> digits = load_digits(n_class=2)
    >>> images, labels = digits.images / 16, digits.target
    >>> net = hf.images.PlainResNet(width=4, stages=1, epochs=3, batch_size=32).fit(images, labels)
    >>> coder = hf.images.ConvAutoencoder(epochs=2)
    >>> method = hf.images.Prototype(steps=100, c=10, autoencoder=coder).fit(net, images, labels)
    >>> method.explain(net, images[:2], "all").found.tolist()
    [True, True]

    Paper: hoeltgen2021 Eq. 2, Baseline VLK.
    """

    title: ClassVar[str] = (
        "elastic net over pixels, drawn to a prototype in the code of an autoencoder"
    )
    paper: ClassVar[str] = "Van Looveren & Klaise 2021"
    when: ClassVar[str] = "answers should be near typical images of the wanted class"
    cost: ClassVar[str] = "bisections x steps gradient passes, after training an autoencoder once"
    needs_data: ClassVar[bool] = True
    advice: ClassVar[str] = "raise steps, bisections or theta"

    beta: float = 0.1
    gamma: float = 100.0
    theta: float = 100.0
    kappa: float = 0.0
    c: float = 1.0
    bisections: int = 2
    steps: int = 1000
    lr: float = 0.01
    k: int = 5
    autoencoder: ConvAutoencoder | None = None
    min_probability: float | None = None

    def fit(
        self, model: ImageModelLike, images: ImagesLike, labels: Outcomes | None = None
    ) -> Self:
        """Train the autoencoder, unless it is ready, and remember the codes and predicted classes
        of the images."""
        net = ImageModel.of(model)
        x = as_images(images, net.size)
        if not len(x):
            raise SettingError("Prototype needs training images for its prototypes, got none")
        self.autoencoder_ = ready_for(self.autoencoder or ConvAutoencoder(), x)
        self.codes_: Tensor = self.autoencoder_.encode(x).flatten(1)  # (m, e)
        self.predicted_: Tensor = net.scores(x).argmax(1)  # (m,)
        return self

    def check(self, model: ImageModel) -> None:
        for name in ("beta", "gamma", "theta"):
            if not getattr(self, name) >= 0:
                raise SettingError(f"{name} must be 0 or more, got {getattr(self, name)}")
        if not 0 <= self.kappa <= 1:
            raise SettingError(
                f"kappa is a difference of probabilities between 0 and 1, got {self.kappa}"
            )
        if not (self.lr > 0 and self.c > 0):
            raise SettingError(f"lr and c must be positive, got {self.lr} and {self.c}")
        for name in ("bisections", "steps", "k"):
            if not getattr(self, name) >= 1:
                raise SettingError(f"{name} must be at least 1, got {getattr(self, name)}")
        check_takes(self.autoencoder_, "autoencoder", model.size)

    def search(self, problem: ImageSearchProblem) -> ImageFound:
        n = len(problem)
        passes = 0
        x = problem.x.clone()
        iterations = torch.zeros(n, dtype=torch.int64)
        for rows in chunks(torch.arange(n), problem.batch_size):
            if problem.budget.over():
                break
            part = self._walk(problem[rows])
            x[rows] = part.x
            iterations[rows] = part.iterations
            passes = passes + part.passes
        return ImageFound(x, iterations, passes)

    def _walk(self, problem: ImageSearchProblem) -> ImageFound:
        """All weights of the hinge for some pairs at once."""
        x = problem.x
        n = len(problem)
        hinge = Hinge(problem, self.kappa)
        best = Cheapest(problem, self.beta)
        draw = self._draw(problem)

        # `bisected` asks for the next weight, and the next step, only when it has judged the last,
        # so the time budget ends either loop.
        def weights() -> Iterator[Iterator[int]]:
            for _ in range(self.bisections):
                best.begin()
                yield steps()

        def steps() -> Iterator[int]:
            for k in range(1, self.steps + 1):
                if problem.budget.over():
                    return
                yield k
                problem.budget.bar.step(n / (self.bisections * self.steps))

        def step(v: Tensor, c: Tensor, k: int) -> tuple[Tensor, Tensor]:
            v = v.clamp(0, 1)
            g = hinge.gradient(v, c).add_(v - x, alpha=2)
            if draw is not None:
                g += draw(v)
            a = self.lr * math.sqrt(1 - (k - 1) / self.steps)
            new = torch.where(problem.free, shrunk(v - a * g.clamp_(-CLIP, CLIP), x, self.beta), x)
            return new, best.see(new)

        bisected(x, x.new_full((n,), self.c), weights(), step)
        return best.done(hinge.passes)

    def _draw(self, problem: ImageSearchProblem) -> "Draw | None":
        """The pull of autoencoder and prototype, if they have a weight."""
        if not (self.gamma or self.theta):
            return None
        code = self.autoencoder_.encode(problem.x).flatten(1)
        proto, known = prototypes(code, problem.goal.label, self.codes_, self.predicted_, self.k)
        theta = torch.where(known, self.theta, 0.0).to(code.dtype)[:, None]
        return pull_of(self.autoencoder_.fitted(), padded(proto), padded(theta), self.gamma)


Draw = Callable[[Tensor], Tensor]


def pull_of(net: Codec, proto: Tensor, theta: Tensor, gamma: float) -> Draw:
    """The function from images v (n, c, h, w) to the gradient of gamma |v - AE(v)|^2 + theta
    |ENC(v) - proto|^2; rows beyond n of proto (m, e) and theta (m, 1) belong to the images that
    fill up a batch."""

    def draw(v: Tensor) -> Tensor:
        leaf = padded(v).detach().requires_grad_()
        with torch.enable_grad():
            code = net.encode(leaf)
            outs = [code, net.decode(code)] if gamma else [code]
        away = (code.detach().flatten(1) - proto).mul_(2 * theta).view_as(code)
        if not gamma:
            return torch.autograd.grad(outs, leaf, [away])[0][: len(v)]
        miss = (outs[1].detach() - leaf.detach()).mul_(2 * gamma)
        return torch.autograd.grad(outs, leaf, [away, miss])[0].sub_(miss)[: len(v)]

    return draw


def shrunk(v: Tensor, x: Tensor, beta: float) -> Tensor:
    """Images v with changes from x made smaller by beta, or undone where they are below it; in
    bounds."""
    return F.softshrink(v - x, beta).add_(x).clamp_(0, 1)


def prototypes(
    code: Tensor, label: Tensor, codes: Tensor, predicted: Tensor, k: int
) -> tuple[Tensor, Tensor]:
    """The mean (n, e) of the k codes nearest to each code (n, e) among those predicted as its
    label.

    A class with fewer than k of them gives all; if it has none, the second tensor (n,) is false.
    """
    proto = code.clone()
    known = torch.zeros(len(code), dtype=torch.bool)
    for wanted in range(int(predicted.max()) + 1):
        pool = codes[predicted == wanted]
        if not len(pool):
            continue
        for rows in chunks((label == wanted).nonzero().squeeze(1), rows_per_chunk(len(pool))):
            # Not by way of a matrix product, which is inexact for near codes and depends on the
            # batch.
            distance = torch.cdist(code[rows], pool, compute_mode="donot_use_mm_for_euclid_dist")
            nearest = distance.topk(min(k, len(pool)), 1, largest=False).indices  # (r, k)
            proto[rows] = pool[nearest].mean(1)
            known[rows] = True
    return proto, known


class Hinge:
    """c max(0, p_l - max_{i != l} p_i + kappa) for pairs whose images are of class l, and its
    gradient."""

    def __init__(self, problem: ImageSearchProblem, kappa: float) -> None:
        self.model = problem.model
        self.kappa = kappa
        self.passes = len(problem)
        self.own = problem.model(problem.x).argmax(1)
        # An image that already has the wanted class, but not the probability asked for, must not
        # leave it.
        self.used = self.own != problem.goal.label
        self.on = self.used.clone()  # at the last step

    def gradient(self, v: Tensor, c: Tensor) -> Tensor:
        """By images v (n, c, h, w), with weights c (n,); a tensor of our own."""
        g = torch.zeros_like(v)
        maybe = (self.used & ~self.on).nonzero().squeeze(1)
        rows = self.on.nonzero().squeeze(1)
        if len(maybe):
            self.passes += len(maybe)
            again = self.height_and_slope(self.model(v[maybe]), maybe)[0] > 0
            rows = torch.cat([rows, maybe[again]])
        if len(rows):
            self.passes += len(rows)
            _, scores, pull = self.model.vjp(v[rows])
            height, slope = self.height_and_slope(scores, rows)
            on = height > 0
            self.on[rows] = on
            if bool(on.any()):
                g[rows] = pull(None, torch.where(on, c[rows], 0.0)[:, None] * slope)
        return g

    def height_and_slope(self, scores: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        """p_l - max p_i + kappa (n,), and its derivative by the scores (n, k)."""
        p = torch.softmax(scores, 1)
        own = self.own[rows, None]
        rival = p.scatter(1, own, -1.0).argmax(1, keepdim=True)
        lead = p.gather(1, own) - p.gather(1, rival)
        way = torch.zeros_like(p).scatter_(1, own, 1.0).scatter_(1, rival, -1.0)
        return lead.squeeze(1) + self.kappa, p * (way - lead)


class Cheapest:
    """The answer of least beta l1 + l2^2 so far for each pair, and which pairs had one with this
    weight c."""

    def __init__(self, problem: ImageSearchProblem, beta: float) -> None:
        self.problem = problem
        self.beta = beta
        self.passes = 0
        self.steps = 0
        n = len(problem)
        self.x = problem.x.clone()
        self.last = problem.x
        self.iterations = torch.zeros(n, dtype=torch.int64)
        self.price = problem.x.new_full((n,), math.inf)
        self.hit = torch.zeros(n, dtype=torch.bool)

    def begin(self) -> None:
        """Another weight c."""
        self.hit = torch.zeros_like(self.hit)

    def see(self, new: Tensor) -> Tensor:
        """Keep images that have the wanted outcome and are cheaper; returns which pairs had one in
        this round."""
        self.last = new
        self.steps = self.steps + 1
        delta = (new - self.problem.x).flatten(1)
        price = self.beta * l1.value(delta) + squared_l2.value(delta)
        # What has not moved is known to fail, or it would not be searched.
        rows = ((price > 0) & (~self.hit | (price < self.price))).nonzero().squeeze(1)
        if not len(rows):
            return self.hit
        self.passes += len(rows)
        met = self.problem.goal[rows].met(self.problem.model(new[rows]))
        self.hit[rows] |= met
        better = rows[met & (price[rows] < self.price[rows])]
        self.x[better] = new[better]
        self.price[better] = price[better]
        self.iterations[better] = self.steps
        return self.hit

    def done(self, passes: int) -> ImageFound:
        """The answers, or the last images where there are none."""
        has = self.price < math.inf
        x = torch.where(per_row(has, self.last), self.x, self.last)
        return ImageFound(x, torch.where(has, self.iterations, self.steps), passes + self.passes)
