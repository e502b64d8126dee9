"""The objective of Counterfactual Training, minimised for a stack of networks.

    L =  clf / |B|  sum_B CE(M(x), y)
       + div / n    sum_i  E(x+_i, y+_i) - E(x'_i, y+_i)                  E(x, y) = -M(x)_y, a logit
       + reg / n    sum_i  E(x+_i, y+_i)^2 + E(x'_i, y+_i)^2
       + adv / n    sum_i  CE(M(x~_i), y_i)

B is a mini-batch of rows x and classes y; the n counterfactuals that are assigned to it come from
other rows x_i with the true classes y_i: y+_i is drawn among the classes that the network does not
give to x_i, x'_i is the mature counterfactual, x~_i the nascent one (`counterfactual.search`), and
x+_i a random row of true class y+_i. One that never matured has x' := x+, so it has no part in the
divergence; the ridge counts it. Columns that may not change, or not that way, are edited out of x+
(`Domain.hold_`). No gradient goes through the search: all three are constants.

In each epoch counterfactuals of a random part of the rows are searched for, with the network as it
is at the beginning, and split into near-equal groups, one for each mini-batch; with refresh="batch"
each group is made when its batch comes.

    draft    the paper's first version: x+ = x_i, no ridge, and the adversarial term counts x'
             itself, where that is within epsilon of x_i
    omni     no search: x' = x+ = x~ = one of the rows that the network gives y+, with the class y+

Altmeyer et al., "Counterfactual Training: Teaching Models Plausible and Actionable Explanations",
2025; where paper and released code differ, this follows the code. Rows come in another order in
every epoch, as in all training here.
"""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor, nn

from holdfast._core.progress import Progress
from holdfast._core.rows import chunks, rows_per_chunk
from holdfast.errors import SettingError
from holdfast.methods._autoencoder import TableAutoencoder
from holdfast.nn.stack import ModelStack
from holdfast.retraining.loop import Orders, RobustLoop, Start, Variation, fit_in_parts
from holdfast.training.counterfactual.domain import Domain
from holdfast.training.counterfactual.pairs import BatchSplit, ClassRows, ContrastPairs, RowDraws
from holdfast.training.counterfactual.search import (
    SearchResult,
    SearchSettings,
    search_counterfactuals,
)

Kind = Literal["plain", "search", "draft", "omni"]
Refresh = Literal["epoch", "batch"]
COLUMNS = ("accuracy", "validation", "divergence", "ridge", "adversarial", "matured", "steps")


@dataclass(frozen=True)
class Variant:
    """Weights of the objective and settings of the search: how the networks of one stack may
    differ."""

    clf: float = 1.0
    div: float = 0.5
    reg: float = 0.1
    adv: float = 0.25
    lam: float = 0.001
    energy: float = 5.0
    tau: float = 0.75
    lr: float = 0.1


@dataclass(frozen=True, eq=False)
class SharedSettings:
    """What the networks of one stack share."""

    domain: Domain  # where counterfactuals may go
    kind: Kind = "search"  # see above; "plain" is the first term alone
    steps: int = 30  # of the search, at most
    epsilon: float = 0.3  # radius of the linf ball for nascent counterfactuals
    # counterfactuals in an epoch; None, or more than there are rows, is one for every row
    count: int | None = 1000
    burn_in: float = 0.0  # share of the epochs, at the beginning, that are plain
    refresh: Refresh = "epoch"  # search at the beginning of each epoch, or of each batch
    # a row that the network gets wrong has no part in the adversarial term
    spare_wrong: bool = False
    autoencoder: TableAutoencoder | None = None  # search for counterfactuals in its codes

    def words(self, n: int) -> str:
        """The numbers in it, as they apply with n rows."""
        count = n if self.count is None else min(n, self.count)
        return (
            f"{self.steps} {self.epsilon} {count} {self.burn_in} {self.refresh} {self.spare_wrong}"
        )


@dataclass(frozen=True, eq=False)
class Contrast:
    """What M networks learn, and how: rows x (n, ..) with the numbers of their classes, and the
    variant of each network."""

    x: Tensor
    labels: Tensor
    classes: int
    variation: Variation  # of which only the seeds count
    variants: Sequence[Variant]
    shared: SharedSettings
    loop: RobustLoop

    def part(self, members: slice) -> "Contrast":
        """That of some of the networks."""
        return replace(self, variation=self.variation[members], variants=self.variants[members])


def fit_contrast(
    module: nn.Module,
    start: Start,
    contrast: Contrast,
    bar: Progress,
    validation: tuple[Tensor, Tensor] | None = None,
    names: Sequence[str] = (),
) -> tuple[ModelStack, Tensor, list[float]]:
    """Train networks.

    Args:
        module, start: as for `fit_stack`.
        contrast: what they learn.
        validation: rows and classes to measure the accuracy on after every epoch.
        names: what to call each network in an epoch's line, which is about the first of those that
            train together.

    Returns:
        The M trained networks, for every epoch and network the numbers named by `COLUMNS` (epochs,
            M, 7), and the
        seconds that epochs took. A network is the same, up to rounding, whatever trains beside it.
    """
    loop = contrast.loop
    networks = len(contrast.variants)
    numbers = torch.full((loop.epochs, networks, len(COLUMNS)), torch.nan, dtype=torch.float64)
    seconds = [0.0] * loop.epochs

    def train(models: ModelStack, x: Tensor, part: slice) -> dict[str, Tensor]:
        _check_outputs(models, x, contrast.classes)
        held_out = None if validation is None else (validation[0].to(x.dtype), validation[1])
        training = ContrastTraining(models, replace(contrast.part(part), x=x))
        for epoch in range(loop.epochs):
            begin = time.perf_counter()
            numbers[epoch, part] = training.epoch(epoch, held_out)
            seconds[epoch] += time.perf_counter() - begin
            bar.step(models.count / loop.epochs)
            bar.say(_words(epoch, loop.epochs, numbers[epoch, part][0], *names[part][:1]))
        return models.state()

    models = fit_in_parts(module, start, contrast.x, contrast.variation, loop, train)
    return models, numbers, seconds


def _check_outputs(models: ModelStack, x: Tensor, classes: int) -> None:
    row = x[:1].flatten(1).mT.expand(models.count, -1, -1)
    found = models.vjp(row, x.shape[1:] if x.ndim > 2 else ())[0].shape[1]
    have = f"the module returns {found} outputs for {classes} classes"
    if found != classes:
        raise SettingError(f"{have}; energies need a logit of each class")


def _words(epoch: int, epochs: int, numbers: Tensor, name: str = "") -> str:
    """A network's numbers for the terminal, the most interesting first: it may be narrow."""
    by_name = dict(zip(COLUMNS, (float(value) for value in numbers), strict=True))
    shown = ("accuracy", "validation", "matured", "divergence", "ridge", "adversarial", "steps")
    shown_numbers = (f"{n} {by_name[n]:.3g}" for n in shown if not math.isnan(by_name[n]))
    return f"{name} {epoch + 1}/{epochs} ".lstrip() + " ".join(shown_numbers)


@dataclass(frozen=True, eq=False)
class SearchBuffers:
    """Memory for counterfactuals (M, n, d) in the making."""

    x: Tensor
    positive: Tensor
    result: SearchResult

    @classmethod
    def of(cls, x: Tensor) -> "SearchBuffers":
        return cls(x, torch.empty_like(x), SearchResult.empty(x))


class ContrastTraining:
    """One run of a stack."""

    def __init__(self, models: ModelStack, contrast: Contrast) -> None:
        x = contrast.x
        shared = contrast.shared
        loop = contrast.loop
        self.models = models
        self.x = x
        self.labels = contrast.labels
        self.shared = shared
        self.loop = loop
        self.flat = x.flatten(1)
        self.shape = tuple(x.shape[1:]) if x.ndim > 2 else ()
        self.optimizer = loop.optimizer_for(models.theta)
        self.orders = Orders(contrast.variation, len(x))
        self.plain = loop.epochs if shared.kind == "plain" else round(shared.burn_in * loop.epochs)

        def each(name: str) -> Tensor:
            values = [getattr(variant, name) for variant in contrast.variants]
            return torch.tensor(values, dtype=x.dtype)[:, None, None]

        self.clf = each("clf")
        self.div = each("div")
        self.reg = each("reg")
        self.adv = each("adv")
        lam = each("lam")
        energy = each("energy")
        tau = each("tau")
        lr = each("lr")
        self.search = SearchSettings(lam, energy, tau, lr, shared.steps, shared.epsilon)
        self.weighted = bool((self.clf != 1).any())
        # Drawn for all networks alike, so variants differ in their settings alone.
        self.draws = RowDraws(contrast.variation, len(x), shared.count)
        self.classes = ClassRows.of(contrast.labels, contrast.classes)
        self.buffers = dict[int, SearchBuffers]()
        self.splits = dict[tuple[int, int], BatchSplit]()
        if shared.kind != "plain" and int((self.classes.size > 0).sum()) < 2:
            raise SettingError("counterfactuals need rows of at least two classes")

    def epoch(self, epoch: int, validation: tuple[Tensor, Tensor] | None = None) -> Tensor:
        """Train once on all rows; (M, 7) the numbers named by `COLUMNS`."""
        order = self.orders.next()
        means = torch.full((self.models.count, 5), torch.nan, dtype=torch.float64)
        if epoch < self.plain:
            for rows in torch.split(order, self.loop.batch_size, 1):
                w = self.clf[..., 0].expand(-1, rows.shape[1]) if self.weighted else None
                self._update(self.models.gradient(self._batch(rows), self.labels[rows], w))
        else:
            rows, u = self.draws.next()
            each_batch = self.shared.refresh == "batch"
            parts = (
                self._split(order.shape[1], rows.shape[1]).parts
                if each_batch
                else [(slice(None), slice(None))]
            )
            sums = list[Tensor]()
            for batch, group in parts:
                drawn = rows[:, group]
                pairs = self.pairs(drawn, u[:, :, group], self._buffers(*drawn.shape))
                sums.append(self._contrast(order[:, batch], pairs))
            means = torch.stack(sums).sum(0) / rows.shape[1]
        right = [self.accuracy(self.x, self.labels)]
        right.append(
            self.accuracy(*validation) if validation else torch.full_like(right[0], torch.nan)
        )
        return torch.cat([torch.stack(right, 1), means], 1)

    def _batch(self, rows: Tensor) -> Tensor:
        """(M, b, ...) rows by their numbers (M, b)."""
        return self.x.index_select(0, rows.reshape(-1)).view(*rows.shape, *self.x.shape[1:])

    def _picked(self, rows: Tensor, out: Tensor) -> Tensor:
        """(M, n, d) flat rows by their numbers (M, n)."""
        torch.index_select(self.flat, 0, rows.reshape(-1), out=out.view(-1, out.shape[2]))
        return out

    # ---- counterfactuals

    def pairs(self, rows: Tensor, u: Tensor, buffers: SearchBuffers | None = None) -> ContrastPairs:
        """Counterfactuals of rows (M, n) by the networks as they are; u (M, 2, n) are random
        numbers."""
        shared = self.shared
        buffers = buffers or SearchBuffers.of(self.flat.new_empty(*rows.shape, self.flat.shape[1]))
        x = self._picked(rows, buffers.x)
        now = self.models.vjp(x.mT, self.shape)[0].argmax(1)  # (M, n)
        wanted = self.classes.other(now, u[:, 0])
        y = self.labels[rows]
        if shared.kind == "omni":
            return self._omniscient(x, now, wanted, y, u[:, 1])
        found = search_counterfactuals(
            self.models,
            x,
            wanted,
            self.search,
            shared.domain,
            shape=self.shape,
            autoencoder=shared.autoencoder,
            out=buffers.result,
        )
        attacks = now == y if shared.spare_wrong else torch.ones_like(found.immature)
        nascent = found.nascent
        mature = found.last
        positive = x
        if shared.kind == "draft":
            nascent = found.last
            attacks = attacks & found.inside
            mature = found.last.clone()
        else:
            positive = self._picked(self.classes.row(wanted, u[:, 1]), buffers.positive)
        torch.where(found.immature[..., None], positive, mature, out=mature)
        # The contrast then ignores, column by column, what cannot change.
        shared.domain.hold_(positive.mT, mature.mT)
        return ContrastPairs(
            mature, positive, wanted, nascent, y, attacks, ~found.immature, found.steps
        )

    def _omniscient(
        self, x: Tensor, now: Tensor, wanted: Tensor, y: Tensor, u: Tensor
    ) -> ContrastPairs:
        """Rows to which the network gives the wanted class; if there is none, any row with its own
        class."""
        size = nn.functional.one_hot(now, self.classes.count).sum(1)  # (M, K)
        start = (size.cumsum(1) - size).gather(1, wanted)
        many = size.gather(1, wanted)
        there = many > 0
        place = torch.where(there, start + (u * many).long(), (u * x.shape[1]).long())
        row = now.argsort(dim=1, stable=True).gather(1, place)
        chosen = x.gather(1, row[..., None].expand(-1, -1, x.shape[2]))
        label = torch.where(there, wanted, y.gather(1, row))
        all_ = torch.ones_like(there)
        return ContrastPairs(chosen, chosen, label, chosen, label, all_, all_, torch.zeros(len(x)))

    # ---- the objective

    def _contrast(self, order: Tensor, pairs: ContrastPairs) -> Tensor:
        """Train on rows `order` (M, n), batch by batch; (M, 5) sums over the pairs."""
        split = self._split(order.shape[1], pairs.wanted.shape[1])
        soft, linear, constant = self.slopes(order, pairs, split)
        outputs = list[Tensor]()
        end = 0
        tables = [part.view(*part.shape[:2], *self.x.shape[1:]) for part in pairs.rows()]
        for batch, group in split.parts:
            rows = self._batch(order[:, batch])
            more = [part[:, group] for part in tables]
            s = slice(end, end := end + rows.shape[1] + sum(part.shape[1] for part in more))

            def slope(raw: Tensor, s: slice = s) -> Tensor:
                return (
                    torch.softmax(raw, 2)
                    .mul_(soft[:, s])
                    .addcmul_(raw, linear[:, s])
                    .add_(constant[:, s])
                )

            g, raw = self.models.backprop(rows, more, slope)
            outputs.append(raw)
            self._update(g)
        return pairs.sums(torch.cat(outputs, 1).index_select(1, split.back)[:, order.shape[1] :])

    def slopes(
        self, order: Tensor, pairs: ContrastPairs, split: BatchSplit
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The derivative of L by raw outputs r, which is soft * softmax(r) + linear * r + constant.

        For all rows that `split` puts one behind the other: (M, N, 1), (M, N, K), (M, N, K).

        Paper: altmeyer2025 Eq. 1, Eq. 4.
        """
        k = self.classes.count
        dtype = self.x.dtype
        clf = self.clf * split.row_share[:, None]
        n = split.counterfactual_share[:, None]
        adv = self.adv * n * pairs.attacks[..., None]
        labels = self.labels[order], pairs.label, pairs.wanted
        y, label, wanted = (nn.functional.one_hot(v, k).to(dtype) for v in labels)
        zero = torch.zeros_like(wanted)
        div = self.div * n * wanted
        reg = 2 * self.reg * n * wanted
        soft = torch.cat([clf, adv, zero[..., :1], zero[..., :1]], 1)
        linear = torch.cat([torch.zeros_like(y).expand(len(wanted), -1, -1), zero, reg, reg], 1)
        constant = torch.cat([-clf * y, -adv * label, div, -div], 1)
        soft = soft.index_select(1, split.place)
        linear = linear.index_select(1, split.place)
        constant = constant.index_select(1, split.place)
        return soft, linear, constant

    def _update(self, g: Tensor) -> None:
        """A step of the optimiser, except for networks whose gradient is non-finite, which only
        count the step."""
        if math.isfinite(float(g.sum())):
            self.optimizer.step(g)
            return
        owner = self.models.owner()
        lost = (
            torch.zeros(self.models.count).index_add_(0, owner, (~g.isfinite()).float())[owner] > 0
        )
        before = [memory[lost] for memory in self.optimizer.held]
        self.optimizer.step(torch.where(lost, 0.0, g))
        for memory, value in zip(self.optimizer.held, before, strict=True):
            memory[lost] = value

    def _split(self, n: int, counterfactuals: int) -> BatchSplit:
        key = n, counterfactuals
        if key not in self.splits:
            self.splits[key] = BatchSplit.of(n, self.loop.batch_size, counterfactuals, self.x.dtype)
        return self.splits[key]

    def _buffers(self, m: int, n: int) -> SearchBuffers:
        """Memory kept from epoch to epoch: fresh memory costs more than what is done in it."""
        if n not in self.buffers:
            self.buffers[n] = SearchBuffers.of(self.flat.new_empty(m, n, self.flat.shape[1]))
        return self.buffers[n]

    def accuracy(self, x: Tensor, labels: Tensor) -> Tensor:
        """(M,) share of rows whose class each network gets right."""
        m = self.models.count
        right = torch.zeros(self.models.count)
        size = rows_per_chunk(m * self.flat.shape[1])
        for part, y in zip(chunks(x.flatten(1), size), chunks(labels, size), strict=True):
            raw = self.models.vjp(part.mT.expand(m, -1, -1), self.shape)[0]
            right += (raw.argmax(1) == y).sum(1)
        return right.double() / len(x)
