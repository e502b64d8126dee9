"""Margins of many retrained models at once, and the way back from weights on them to gradients by
the rows.

A model's margin is how far it exceeds the goal: a lead in logits, a distance from the end of a
range. Margins of trees are squashed, tanh(g / 2), which for two classes is the lead in probability:
boosted trees differ most where they are surest, which adds to the spread but takes nothing from the
answer, and forests have no logits where all their trees agree.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from holdfast._core.rows import ROW_BLOCK, pad_rows
from holdfast.models.base import Model
from holdfast.models.compiled.tree_bank import TreeBank
from holdfast.models.scores import Outputs, to_scores
from holdfast.nn.stack import Stack
from holdfast.retraining.bank import ModelBank
from holdfast.retraining.stretch import stretched_margins
from holdfast.target import BoundTarget

Pull = Callable[[Tensor], Tensor]  # weights (M, n) on the margins -> gradients (n, d)


class Guide(ABC):
    """The models of a bank, as a search asks them."""

    count: int
    has_grad = False
    squash = False  # are margins squashed for the bound?
    # (M,) how many times as far from the model in use each counts; None: once
    spread: Tensor | None = None
    shares = False  # are margins in the unit of shares? see `retraining.stretch`

    @abstractmethod
    def margins(self, z: Tensor, goal: BoundTarget) -> Tensor:
        """(M, n) by how much each model exceeds the goal at rows z (n, d)."""

    def margins_and_pull(self, z: Tensor, goal: BoundTarget) -> tuple[Tensor, Pull]:
        """The same, and the pullback, of models with gradients."""
        raise NotImplementedError

    def some(self, count: int) -> Sequence[Model]:
        """This many of the models, one by one, of a guide without gradients."""
        raise NotImplementedError

    def squashed(self, gap: Tensor) -> Tensor:
        """A margin in the units of the bound."""
        return torch.tanh(gap / 2) if self.squash else gap

    def judged(self, margins: Tensor, own: Tensor) -> Tensor:
        """(M, ..) what the bound is made of: margins (M, ..) of the first models, stretched away
        from that of the model in use (..)."""
        if self.spread is None:
            return self.squashed(margins)
        if self.shares:  # for two classes tanh(g / 2) is the lead in shares
            own = torch.tanh(own / 2)
            margins = torch.tanh(margins / 2)
        far = stretched_margins(own, margins, self.spread[: len(margins)])[0]
        return far if self.shares else self.squashed(far)


def margins_of(raw: Tensor, goal: BoundTarget, outputs: Outputs) -> Tensor:
    """What M models return for n people, once or for several rows each, (M, n, .., k) -> margins
    (M, n, ..)."""
    m, n, *several, k = raw.shape
    if outputs == "logits" and k == 1 and goal.k == 2 and goal.is_lead:
        sign = goal.gap(raw.new_tensor([[0.0, 1.0]]).expand(n, 2))
        return raw.squeeze(-1) * sign.view(1, n, *[1] * len(several)) - goal.margin
    people = torch.arange(n).repeat_interleave(math.prod(several)).repeat(m)
    gap = goal[people].gap(to_scores(raw.reshape(-1, k), outputs)) - goal.margin
    return gap.view(m, n, *several)


class JoinedGuide(Guide):
    """Several guides as one."""

    def __init__(self, parts: Sequence[Guide]) -> None:
        self.parts = parts
        self.count = sum(p.count for p in parts)
        self.has_grad = all(p.has_grad for p in parts)

    def margins(self, z: Tensor, goal: BoundTarget) -> Tensor:
        return torch.cat([p.margins(z, goal) for p in self.parts])

    def margins_and_pull(self, z: Tensor, goal: BoundTarget) -> tuple[Tensor, Pull]:
        margins, pulls = zip(*[p.margins_and_pull(z, goal) for p in self.parts], strict=True)
        sizes = [p.count for p in self.parts]

        def pull(weights: Tensor) -> Tensor:
            each: tuple[Tensor, ...] = torch.split(weights, sizes)
            return torch.stack(
                [one(w).to(z.dtype) for one, w in zip(pulls, each, strict=True)]
            ).sum(0)

        return torch.cat(margins), pull


class ReluGuide(Guide):
    """Linear and ReLU networks of one architecture: all their first layers are one
    product."""

    has_grad = True

    def __init__(self, layers: Sequence[tuple[Tensor, Tensor]]) -> None:
        """Weights (M, inputs, outputs) and biases (M, 1, outputs) of each layer."""
        self.layers = layers
        w, b = layers[0]
        self.count, d, self.width = w.shape
        self.first = w.permute(1, 0, 2).reshape(d, -1).contiguous()  # (d, M h)
        self.first_bias = b.reshape(1, -1)
        self.back = self.first.T.contiguous()

    def _forward(self, z: Tensor) -> tuple[Tensor, list[Tensor]]:
        """(M, n, k) outputs, and what each layer but the first sees, in whole blocks of rows, where
        a row's bits do not depend on its place."""
        n = len(z)
        z = pad_rows(z.to(self.first.dtype))
        h = torch.addmm(self.first_bias, z, self.first).view(len(z), self.count, self.width)
        if len(self.layers) == 1:
            return h.transpose(0, 1)[:, :n], []
        hidden = [h.relu_().transpose(0, 1)]  # (M, n, h)
        for w, b in self.layers[1:-1]:
            hidden.append(torch.baddbmm(b, hidden[-1], w).relu_())
        w, b = self.layers[-1]
        return torch.baddbmm(b, hidden[-1], w)[:, :n], hidden

    def margins(self, z: Tensor, goal: BoundTarget) -> Tensor:
        return margins_of(self._forward(z)[0], goal, self._outputs(goal))

    def margins_and_pull(self, z: Tensor, goal: BoundTarget) -> tuple[Tensor, Pull]:
        raw, hidden = self._forward(z)
        m, n, k = raw.shape
        scores = to_scores(raw.reshape(m * n, k), self._outputs(goal))
        gap, slope = goal[torch.arange(n).repeat(m)].gap_and_slope(scores)
        slope = slope.view(m, n, -1)
        slope = slope[..., 1:] - slope[..., :1] if k == 1 and slope.shape[2] == 2 else slope

        def pull(weights: Tensor) -> Tensor:
            g = weights[..., None] * slope  # (M, n, k)
            g = torch.nn.functional.pad(g, (0, 0, 0, -n % ROW_BLOCK))
            for (w, _), h in zip(reversed(self.layers[1:]), reversed(hidden), strict=True):
                g = torch.bmm(g, w.transpose(1, 2))
                g *= h > 0
            return (g.transpose(0, 1).reshape(g.shape[1], -1) @ self.back)[:n]

        return (gap - goal.margin).view(m, n), pull

    def _outputs(self, goal: BoundTarget) -> Outputs:
        return "value" if goal.k == 1 else "logits"


class TreeGuide(Guide):
    """Tree models, all trees of all of them at once."""

    def __init__(self, models: Sequence[Model]) -> None:
        trees = [m.thresholds for m in models if m.thresholds is not None]
        self.bank = TreeBank(trees)
        self.models = models
        self.count = len(models)
        self.outputs: Outputs = trees[0].outputs
        self.squash = not models[0].is_regression

    def has_leaves(self, model: Model) -> bool:
        """Do leaf tables give what these models and the one in use give?"""
        trees = [m.thresholds for m in (model, *self.models)]
        return all(
            t is not None and t.leaves is not None and t.outputs == self.outputs for t in trees
        )

    def some(self, count: int) -> Sequence[Model]:
        return self.models[:count]

    def margins(self, z: Tensor, goal: BoundTarget) -> Tensor:
        return margins_of(self.bank(z), goal, self.outputs)


class ModelGuide(Guide):
    """Any models, asked one after the other, each about all rows."""

    def __init__(self, models: Sequence[Model]) -> None:
        self.models = models
        self.count = len(models)
        self.has_grad = all(m.has_grad for m in models)
        self.squash = not self.has_grad and not models[0].is_regression

    def some(self, count: int) -> Sequence[Model]:
        return self.models[:count]

    def margins(self, z: Tensor, goal: BoundTarget) -> Tensor:
        return torch.stack([goal.gap(m(z.to(m.dtype))) - goal.margin for m in self.models]).double()

    def margins_and_pull(self, z: Tensor, goal: BoundTarget) -> tuple[Tensor, Pull]:
        scores, pulls = zip(*[m.vjp(z.to(m.dtype)) for m in self.models], strict=True)
        gaps, slopes = zip(*[goal.gap_and_slope(s) for s in scores], strict=True)

        def pull(weights: Tensor) -> Tensor:
            parts = [
                p(w[:, None].to(s.dtype) * s)
                for p, s, w in zip(pulls, slopes, weights, strict=True)
            ]
            return torch.stack(parts).sum(0)

        return torch.stack(gaps) - goal.margin, pull


def guide_of(bank: ModelBank) -> Guide:
    """The fastest way to ask all models of a bank."""
    guide = _asking(bank)
    if bank.around is not None:
        guide.spread = torch.tensor(
            [group.spread for group in bank.groups for _ in range(len(group))]
        )
        guide.shares = bank.around.counts_votes
    return guide


def _asking(bank: ModelBank) -> Guide:
    stacks = [g.networks for g in bank.groups if isinstance(g.networks, Stack)]
    parts: list[Guide] = [ReluGuide(stack.layers) for stack in stacks]
    family_of = [g for g in bank.groups for _ in range(len(g))]
    alone = [bank.model(i) for i, g in enumerate(family_of) if not isinstance(g.networks, Stack)]
    if alone:
        parts.append(_of_models(alone))
        if stacks and not parts[-1].has_grad:
            return ModelGuide([bank.model(i) for i in range(len(bank))])
    return parts[0] if len(parts) == 1 else JoinedGuide(parts)


def _of_models(models: Sequence[Model]) -> Guide:
    trees = [m.thresholds for m in models]
    if all(t is not None and t.rights is not None for t in trees):
        shapes = {(t.outputs, len(t.nodes.start)) for t in trees if t is not None}
        if len(shapes) == 1:
            return TreeGuide(models)
    layers = [_layers(m) for m in models]
    if len({tuple(w.shape for w, _ in part) for part in layers}) == 1 and layers[0]:
        return ReluGuide([_stacked(pairs) for pairs in zip(*layers, strict=True)])
    return ModelGuide(models)


def _layers(model: Model) -> list[tuple[Tensor, Tensor]]:
    """The layers of a network with Linear and ReLU in turn; none for any other model."""
    with model.eval_mode():
        return list(model.engine.weights) if model.engine else []


def _stacked(layers: Sequence[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    """One layer of M networks, as `ReluGuide` has it."""
    weights, biases = zip(*layers, strict=True)
    return torch.stack(weights).transpose(1, 2).contiguous(), torch.stack(biases)[:, None]
