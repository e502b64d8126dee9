"""The objective of Counterfactual Training, minimised for a stack of networks.

    L =  clf / |B|  sum_B CE(M(x), y)
       + div / n    sum_i  E(x+_i, y+_i) - E(x'_i, y+_i)                  E(x, y) = -M(x)_y, a logit
       + reg / n    sum_i  E(x+_i, y+_i)^2 + E(x'_i, y+_i)^2
       + adv / n    sum_i  CE(M(x~_i), y_i)

B is a mini-batch of rows x and classes y; the n counterfactuals that are assigned to it come from other rows x_i with
the true classes y_i: y+_i is drawn among the classes that the network does not give to x_i, x'_i is the mature
counterfactual, x~_i the nascent one (`counterfactual.search`), and x+_i a random row of true class y+_i. What never
matured has x' := x+, so that it has no part in the divergence; the ridge counts it. Columns that may not change, or
not that way, are edited out of x+ (`Domain.spare_`). All three are constants: no gradient goes through the search.

In an epoch the counterfactuals of a random part of the rows are grown with the network as it is at the beginning, and
split into near-equal groups, one for each mini-batch; with refresh="batch" each group is grown when its batch comes.

    draft    the paper's first version: x+ = x_i, no ridge, and the adversarial term counts x' itself, where that is
             within epsilon of x_i
    omni     no search: x' = x+ = x~ = one of the rows that the network gives y+, with the class y+

Altmeyer et al., "Counterfactual Training: Teaching Models Plausible and Actionable Explanations", 2025; where paper and
released code differ, the code is followed. Rows come in another order in every epoch, as in all training here.
"""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from holdfast._core.progress import Progress
from holdfast._core.rows import chunks, limited_threads
from holdfast.errors import SettingError
from holdfast.methods._autoencoder import TableAutoencoder
from holdfast.nn.stack import ModelStack, ModuleStack, lent_generator, stack_of
from holdfast.retraining.loop import Orders, RobustLoop, Variation, check_batches, together
from holdfast.training.counterfactual.domain import Domain
from holdfast.training.counterfactual.pairs import Classes, Draws, Pairs, Split
from holdfast.training.counterfactual.search import Grown, Search, grow

Kind = Literal["plain", "search", "draft", "omni"]
COLUMNS = ("accuracy", "validation", "divergence", "ridge", "adversarial", "matured", "steps")
CELLS = 1 << 20  # numbers in the rows scored at once


@dataclass(frozen=True)
class Terms:
    """Weights of the objective and settings of the search: what the networks of one stack may differ in."""

    clf: float = 1.0
    div: float = 0.5
    reg: float = 0.1
    adv: float = 0.25
    lam: float = 0.001
    energy: float = 5.0
    tau: float = 0.75
    lr: float = 0.1


@dataclass(frozen=True, eq=False)
class Lesson:
    """What the networks of one stack have in common.

    Args:
        kind: see above; "plain" is the first term alone.
        steps: of the search, at most.
        epsilon: radius of the linf ball that nascent counterfactuals are in.
        count: counterfactuals in an epoch; None, or more than there are rows: one of every row.
        burn_in: share of the epochs, at the beginning, that are plain.
        refresh: grow counterfactuals at the beginning of an epoch, or of each batch.
        spare_wrong: a row that the network gets wrong has no part in the adversarial term.
        domain: where counterfactuals may go.
        net: the autoencoder that they are searched in.
    """

    domain: Domain
    kind: Kind = "search"
    steps: int = 30
    epsilon: float = 0.3
    count: int | None = 1000
    burn_in: float = 0.0
    refresh: Literal["epoch", "batch"] = "epoch"
    spare_wrong: bool = False
    net: TableAutoencoder | None = None

    def words(self, n: int) -> str:
        """The numbers in it, as they count with n rows."""
        count = n if self.count is None else min(n, self.count)
        return f"{self.steps} {self.epsilon} {count} {self.burn_in} {self.refresh} {self.spare_wrong}"


def fit_contrast(
    module: nn.Module,
    start: Callable[[int], dict[str, Tensor]],
    x: Tensor,
    labels: Tensor,
    classes: int,
    plan: Variation,
    terms: Sequence[Terms],
    lesson: Lesson,
    loop: RobustLoop,
    bar: Progress,
    validation: tuple[Tensor, Tensor] | None = None,
    names: Sequence[str] = (),
) -> tuple[ModelStack, Tensor, list[float]]:
    """Train the networks of a plan.

    Args:
        module, start, plan, loop: as for `fit_stack`; of a plan only the seeds count.
        x, labels, classes: all rows (n, ...), their classes (n,), and how many classes there are.
        terms: for each network.
        validation: rows and classes to measure the accuracy on after every epoch.
        names: what to call each network in the line of an epoch, which tells of the first of those that train together.

    Returns:
        The M trained networks, for every epoch and network the numbers named by `COLUMNS` (epochs, M, 7), and the
        seconds that epochs took. A network is the same, up to rounding, whatever trains beside it.
    """
    whole = stack_of(module, len(plan))
    x = x.to(whole.theta.dtype)
    validation = None if validation is None else (validation[0].to(x.dtype), validation[1])
    _check_outputs(whole, x, classes)
    check_batches(module, len(x), loop.batch_size)
    alone = isinstance(whole, ModuleStack) and whole.trains_alone(x[:2])
    size = 1 if alone else together(module, loop.batch_size, len(plan))
    state = {name: torch.empty_like(value) for name, value in whole.state().items()}
    told = torch.full((loop.epochs, len(plan), len(COLUMNS)), torch.nan, dtype=torch.float64)
    seconds = [0.0] * loop.epochs
    with torch.no_grad(), limited_threads(1):
        for at in range(0, len(plan), size):
            part = plan[at : at + size]
            models = stack_of(module, len(part))
            first = {seed: models.named(start(seed)) for seed in dict.fromkeys(part.weights)}
            models.load({name: torch.stack([first[s][name] for s in part.weights]) for name in models.state()})
            training = Training(models, x, labels, classes, part, terms[at : at + size], lesson, loop)
            # Layers that draw random numbers in training do so from the global generator: lend them one, seeded.
            with lent_generator(part.weights[0]):
                for epoch in range(loop.epochs):
                    begin = time.perf_counter()
                    told[epoch, at : at + size] = training.epoch(epoch, validation)
                    seconds[epoch] += time.perf_counter() - begin
                    bar.step(len(part) / loop.epochs)
                    bar.say(_words(epoch, loop.epochs, told[epoch, at], names[at] if names else ""))
            for name, value in models.state().items():
                state[name][at : at + size] = value
        whole.load(state)
    if not all(bool(value.isfinite().all()) for value in state.values()):
        raise SettingError("training diverged: some weights are no longer numbers; lower lr")
    return whole, told, seconds


def _check_outputs(models: ModelStack, x: Tensor, classes: int) -> None:
    row = x[:1].flatten(1).mT.expand(models.count, -1, -1)
    found = models.vjp(row, x.shape[1:] if x.ndim > 2 else ())[0].shape[1]
    if found != classes:
        raise SettingError(
            f"the module returns {found} outputs for {classes} classes; energies need a logit of each class"
        )


def _words(epoch: int, epochs: int, told: Tensor, name: str) -> str:
    """A network's numbers for the terminal, those of most interest first: it may be narrow."""
    known = dict(zip(COLUMNS, (float(value) for value in told), strict=True))
    shown = ("accuracy", "validation", "matured", "divergence", "ridge", "adversarial", "steps")
    return f"{name} {epoch + 1}/{epochs} ".lstrip() + " ".join(
        f"{n} {known[n]:.3g}" for n in shown if not math.isnan(known[n])
    )


@dataclass(frozen=True, eq=False)
class Room:
    """Memory for counterfactuals (M, n, d) in the making."""

    x: Tensor
    positive: Tensor
    grown: Grown

    @classmethod
    def of(cls, x: Tensor) -> "Room":
        return cls(x, torch.empty_like(x), Grown.room(x))


class Training:
    """One run of a stack."""

    def __init__(
        self,
        models: ModelStack,
        x: Tensor,
        labels: Tensor,
        classes: int,
        plan: Variation,
        terms: Sequence[Terms],
        lesson: Lesson,
        loop: RobustLoop,
    ) -> None:
        self.models, self.x, self.labels, self.lesson, self.loop = models, x, labels, lesson, loop
        self.flat, self.shape = x.flatten(1), tuple(x.shape[1:]) if x.ndim > 2 else ()
        self.optimizer, self.orders = loop.optimizer_for(models.theta), Orders(plan, len(x))
        self.plain = loop.epochs if lesson.kind == "plain" else round(lesson.burn_in * loop.epochs)

        def each(name: str) -> Tensor:
            return torch.tensor([getattr(t, name) for t in terms], dtype=x.dtype)[:, None, None]

        self.clf, self.div, self.reg, self.adv = (each(name) for name in ("clf", "div", "reg", "adv"))
        lam, energy, tau, lr = (each(name) for name in ("lam", "energy", "tau", "lr"))
        self.how = Search(lam, energy, tau, lr, lesson.steps, lesson.epsilon)
        self.weighted = bool((self.clf != 1).any())
        self.draws, self.classes = Draws(plan, len(x), lesson.count), Classes.of(labels, classes)
        self.rooms = dict[int, Room]()
        self.splits = dict[tuple[int, int], Split]()
        if lesson.kind != "plain" and int((self.classes.size > 0).sum()) < 2:
            raise SettingError("counterfactuals need rows of at least two classes")

    def epoch(self, epoch: int, validation: tuple[Tensor, Tensor] | None = None) -> Tensor:
        """Train once on all rows; (M, 7) the numbers named by `COLUMNS`."""
        order, told = self.orders.next(), torch.full((self.models.count, 5), torch.nan, dtype=torch.float64)
        if epoch < self.plain:
            for rows in torch.split(order, self.loop.batch_size, 1):
                self._plain_step(rows)
        else:
            rows, u = self.draws.next()
            parts = [(slice(None), slice(None))]
            if self.lesson.refresh == "batch":
                parts = self._split(order.shape[1], rows.shape[1]).parts
            sums = list[Tensor]()
            for batch, group in parts:
                some = rows[:, group]
                pairs = self.pairs(some, u[:, :, group], self._room(*some.shape))
                sums.append(self._teach(order[:, batch], pairs))
            told = torch.stack(sums).sum(0) / rows.shape[1]
        seen = [self.accuracy(self.x, self.labels)]
        seen.append(self.accuracy(*validation) if validation else torch.full_like(seen[0], torch.nan))
        return torch.cat([torch.stack(seen, 1), told], 1)

    def _plain_step(self, rows: Tensor) -> None:
        w = self.clf[..., 0].expand(-1, rows.shape[1]) if self.weighted else None
        self._update(self.models.gradient(self._given(rows), self.labels[rows], w))

    def _given(self, rows: Tensor) -> Tensor:
        """(M, b, ...) rows by their numbers (M, b)."""
        return self.x.index_select(0, rows.reshape(-1)).view(*rows.shape, *self.x.shape[1:])

    def _picked(self, rows: Tensor, out: Tensor) -> Tensor:
        """(M, n, d) flat rows by their numbers (M, n)."""
        torch.index_select(self.flat, 0, rows.reshape(-1), out=out.view(-1, out.shape[2]))
        return out

    # ---- counterfactuals

    def pairs(self, rows: Tensor, u: Tensor, room: Room | None = None) -> Pairs:
        """Grow counterfactuals of rows (M, n) with the networks as they are; u (M, 2, n) are random numbers."""
        lesson = self.lesson
        room = room or Room.of(self.flat.new_empty(*rows.shape, self.flat.shape[1]))
        x = self._picked(rows, room.x)
        now = self.models.vjp(x.mT, self.shape)[0].argmax(1)  # (M, n)
        wish, y = self.classes.other(now, u[:, 0]), self.labels[rows]
        if lesson.kind == "omni":
            return self._omniscient(x, now, wish, y, u[:, 1])
        grown = grow(self.models, x, wish, self.how, lesson.domain, shape=self.shape, net=lesson.net, out=room.grown)
        counts = now == y if lesson.spare_wrong else torch.ones_like(grown.open)
        near, mature, positive = grown.near, grown.end, x
        if lesson.kind == "draft":
            near, counts, mature = grown.end, counts & grown.inside, grown.end.clone()
        else:
            positive = self._picked(self.classes.row(wish, u[:, 1]), room.positive)
        torch.where(grown.open[..., None], positive, mature, out=mature)
        lesson.domain.spare_(positive.mT, mature.mT)
        return Pairs(mature, positive, wish, near, y, counts, ~grown.open, grown.steps)

    def _omniscient(self, x: Tensor, now: Tensor, wish: Tensor, y: Tensor, u: Tensor) -> Pairs:
        """Rows that the network gives the wish; where there is none, any row with its own class."""
        size = nn.functional.one_hot(now, self.classes.count).sum(1)  # (M, K)
        start, many = (size.cumsum(1) - size).gather(1, wish), size.gather(1, wish)
        some = many > 0
        place = torch.where(some, start + (u * many).long(), (u * x.shape[1]).long())
        row = now.argsort(dim=1, stable=True).gather(1, place)
        chosen = x.gather(1, row[..., None].expand(-1, -1, x.shape[2]))
        label, all_ = torch.where(some, wish, y.gather(1, row)), torch.ones_like(some)
        return Pairs(chosen, chosen, label, chosen, label, all_, all_, torch.zeros(len(x)))

    # ---- the objective

    def _teach(self, order: Tensor, pairs: Pairs) -> Tensor:
        """Train on rows `order` (M, n), batch by batch; (M, 5) sums over the pairs."""
        split = self._split(order.shape[1], pairs.wish.shape[1])
        soft, linear, constant = self.slopes(order, pairs, split)
        kept, at = list[Tensor](), 0
        shown = [part.view(*part.shape[:2], *self.x.shape[1:]) for part in pairs.rows()]
        for batch, group in split.parts:
            given, more = self._given(order[:, batch]), [part[:, group] for part in shown]
            s = slice(at, at := at + given.shape[1] + sum(part.shape[1] for part in more))

            def slope(raw: Tensor, s: slice = s) -> Tensor:
                return torch.softmax(raw, 2).mul_(soft[:, s]).addcmul_(raw, linear[:, s]).add_(constant[:, s])

            g, raw = self.models.backprop(given, more, slope)
            kept.append(raw)
            self._update(g)
        return pairs.sums(torch.cat(kept, 1).index_select(1, split.back)[:, order.shape[1] :])

    def slopes(self, order: Tensor, pairs: Pairs, split: Split) -> tuple[Tensor, Tensor, Tensor]:
        """The derivative of L by raw outputs r, which is soft * softmax(r) + linear * r + constant.

        For all rows that `split` puts one behind the other: (M, N, 1), (M, N, K), (M, N, K).
        """
        k, kind = self.classes.count, self.x.dtype
        clf, n = self.clf * split.clf[:, None], split.counterfactuals[:, None]
        adv = self.adv * n * pairs.counts[..., None]
        y, near, wish = (nn.functional.one_hot(v, k).to(kind) for v in (self.labels[order], pairs.label, pairs.wish))
        none, div, reg = torch.zeros_like(wish), self.div * n * wish, 2 * self.reg * n * wish
        soft = torch.cat([clf, adv, none[..., :1], none[..., :1]], 1)
        linear = torch.cat([torch.zeros_like(y).expand(len(wish), -1, -1), none, reg, reg], 1)
        constant = torch.cat([-clf * y, -adv * near, div, -div], 1)
        place = split.place
        return soft.index_select(1, place), linear.index_select(1, place), constant.index_select(1, place)

    def _update(self, g: Tensor) -> None:
        """A step of the optimiser, but for networks whose gradient is no number: these only count it."""
        if math.isfinite(float(g.sum())):
            self.optimizer.step(g)
            return
        owner = self.models.owner()
        lost = torch.zeros(self.models.count).index_add_(0, owner, (~g.isfinite()).float())[owner] > 0
        before = [held[lost] for held in self.optimizer.held]
        self.optimizer.step(torch.where(lost, 0.0, g))
        for held, value in zip(self.optimizer.held, before, strict=True):
            held[lost] = value

    def _split(self, n: int, counterfactuals: int) -> Split:
        key = n, counterfactuals
        if key not in self.splits:
            self.splits[key] = Split.of(n, self.loop.batch_size, counterfactuals, self.x.dtype)
        return self.splits[key]

    def _room(self, m: int, n: int) -> Room:
        """Memory that is kept from epoch to epoch: fresh memory costs more than what is done in it."""
        if n not in self.rooms:
            self.rooms[n] = Room.of(self.flat.new_empty(m, n, self.flat.shape[1]))
        return self.rooms[n]

    def accuracy(self, x: Tensor, labels: Tensor) -> Tensor:
        """(M,) share of rows whose class each network gets right."""
        size, right = max(1, CELLS // (self.models.count * self.flat.shape[1])), torch.zeros(self.models.count)
        for part, y in zip(chunks(x.flatten(1), size), chunks(labels, size), strict=True):
            raw = self.models.vjp(part.mT.expand(self.models.count, -1, -1), self.shape)[0]
            right += (raw.argmax(1) == y).sum(1)
        return right.double() / len(x)
