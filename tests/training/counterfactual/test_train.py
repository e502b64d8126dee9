"""Counterfactual Training: search, objective and loop against a plain reading of the paper, and the
paper's claims."""

import copy
import io
import math
import sys
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor, nn

import holdfast as hf
from holdfast._core.progress import Progress
from holdfast.datasets import Dataset, load
from holdfast.methods._energy import decay
from holdfast.nn.architecture import mlp
from holdfast.nn.module_stack import ModuleStack, stack_of
from holdfast.nn.stack import ModelStack, Stack
from holdfast.retraining.loop import Orders, RobustLoop, Variation
from holdfast.schema.schema import Schema
from holdfast.training.counterfactual.domain import Domain
from holdfast.training.counterfactual.objective import (
    COLUMNS,
    Contrast,
    ContrastTraining,
    SharedSettings,
    Variant,
    fit_contrast,
)
from holdfast.training.counterfactual.pairs import BatchSplit, ContrastPairs, RowDraws
from holdfast.training.counterfactual.search import SearchSettings, search_counterfactuals
from holdfast.training.counterfactual.train import CounterfactualTraining
from support.tables import mixed_schema, mixed_table, seeded

F64 = torch.float64
BAR = Progress(False, "")


def numbers(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=F64)


def stacked(nets: list[nn.Module], members: ModelStack | None = None) -> ModelStack:
    out = members or stack_of(nets[0], len(nets))
    named = [out.named({k: v.detach() for k, v in net.state_dict().items()}) for net in nets]
    out.load({name: torch.stack([n[name] for n in named]) for name in out.state()})
    return out


def column(value: float, models: int = 1) -> Tensor:
    return torch.full((models, 1, 1), value, dtype=F64)


def search(
    models: int = 1, *, steps: int = 30, epsilon: float = 0.3, **weights: float
) -> SearchSettings:
    """The usual settings, but for these."""
    usual = {"lam": 0.001, "energy": 5.0, "tau": 0.75, "lr": 0.1}
    columns = {name: column(value, models) for name, value in (usual | weights).items()}
    return SearchSettings(**columns, steps=steps, epsilon=epsilon)


def walked(
    net: nn.Module,
    x: Tensor,
    t: Tensor,
    variant: Variant,
    steps: int,
    epsilon: float,
    domain: Domain,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The search as the paper's code has it, row by row: end, nascent, matured, steps."""
    phi = decay(steps)
    ends = []
    nears = []
    matured = []
    counts = []
    low = domain.low[:, 0]
    high = domain.high[:, 0]
    for x0, y in zip(x, t.tolist(), strict=True):
        z = x0.clone()
        near = x0.clone()
        done = False
        count = 0
        for k in range(steps + 1):
            if float((z - x0).abs().max()) <= epsilon:
                near = z.clone()
            done = bool(torch.softmax(net(z[None])[0], 0)[y] >= variant.tau)
            if done or k == steps:
                break
            z.requires_grad_()
            raw = net(z[None])[0]
            e = -raw[y]
            loss = (
                nn.functional.cross_entropy(raw[None], torch.tensor([y]))
                + variant.lam * (z - x0).abs().sum()
            )
            (g,) = torch.autograd.grad(loss + variant.energy * phi[k] * (e + 1e-3 * e**2), z)
            step = -variant.lr * g
            step[domain.fixed] = 0
            step[domain.up] = step[domain.up].clamp_min(0)
            step[domain.down] = step[domain.down].clamp_max(0)
            z = torch.clamp(z.detach() + step, low, high)
            count = count + 1
        ends.append(z), nears.append(near), matured.append(done), counts.append(count)
    return torch.stack(ends), torch.stack(nears), torch.tensor(matured), torch.tensor(counts)


def spared(positive: Tensor, mature: Tensor, domain: Domain) -> Tensor:
    out = positive.clone()
    out[:, domain.fixed] = mature[:, domain.fixed]
    for columns, sign in ((domain.up, 1), (domain.down, -1)):
        for d in columns.tolist():
            wrong = sign * (mature[:, d] - positive[:, d]) > 0
            out[wrong, d] = mature[wrong, d]
    return out


def by_the_book(
    net: nn.Module,
    x: Tensor,
    y: Tensor,
    k: int,
    seed: int,
    variant: Variant,
    shared: SharedSettings,
    loop: RobustLoop,
) -> nn.Module:
    """The outer loop with autograd and torch's Adam, and the library's draws."""
    plan = Variation((seed,), (seed,))
    orders = Orders(plan, len(x))
    draws = RowDraws(plan, len(x), shared.count)
    by_class = [(y == c).nonzero().squeeze(1) for c in range(k)]
    there = [c for c in range(k) if len(by_class[c])]
    adam = torch.optim.Adam(net.parameters(), lr=loop.lr, eps=loop.adam_eps)

    def tuples(rows: Tensor, u: Tensor) -> tuple[Tensor, ...]:
        x0 = x[rows]
        y0 = y[rows]
        others = [[c for c in there if c != now] for now in net(x0).argmax(1).tolist()]
        wish = torch.tensor(
            [o[int(v * len(o))] for o, v in zip(others, u[0].tolist(), strict=True)]
        )
        end, near, matured, _ = walked(
            net, x0, wish, variant, shared.steps, shared.epsilon, shared.domain
        )
        at = [
            by_class[c][int(v * len(by_class[c]))]
            for c, v in zip(wish.tolist(), u[1].tolist(), strict=True)
        ]
        draft = shared.kind == "draft"
        counts = torch.ones(len(x0), dtype=torch.bool)
        positive = x0.clone() if draft else x[torch.stack(at)]
        if draft:
            near = end
            counts = (end - x0).abs().amax(1) <= shared.epsilon
        if shared.spare_wrong:
            counts = counts & (net(x0).argmax(1) == y0)
        mature = torch.where(matured[:, None], end, positive)
        return wish, near, mature, spared(positive, mature, shared.domain), y0, counts

    for epoch in range(loop.epochs):
        batches = orders.next()[0].split(loop.batch_size)
        taught = epoch >= round(shared.burn_in * loop.epochs)
        rows, u = (v[0] for v in draws.next()) if taught else (torch.arange(0), torch.zeros(2, 0))
        groups = torch.arange(len(rows)).tensor_split(len(batches))
        held = tuples(rows, u) if taught and shared.refresh == "epoch" else ()
        for batch, group in zip(batches, groups, strict=True):
            loss = variant.clf * nn.functional.cross_entropy(net(x[batch]), y[batch])
            if len(group):
                mine = [v[group] for v in held] if held else tuples(rows[group], u[:, group])
                wish, near, mature, positive, y0, counts = mine
                e = -net(mature).gather(1, wish[:, None])
                e_plus = -net(positive).gather(1, wish[:, None])
                loss = (
                    loss
                    + variant.div * (e_plus - e).mean()
                    + variant.reg * (e_plus**2 + e**2).mean()
                )
                each = nn.functional.cross_entropy(net(near), y0, reduction="none")
                loss = loss + variant.adv * (each * counts).mean()
            adam.zero_grad()
            loss.backward()
            adam.step()
    return net


def task(k: int, n: int = 60, d: int = 4) -> tuple[Tensor, Tensor]:
    x = numbers(n, d, seed=3).clamp(-2.4, 2.4)
    return x, (x @ numbers(d, k, seed=4)).argmax(1)


NONE = torch.zeros(0, dtype=torch.int64)
WIDE = torch.full((4, 1), 2.5, dtype=F64)
FREE = Domain.of(task(2)[0])
BOUND = Domain(-WIDE, WIDE, torch.tensor([0]), torch.tensor([1]), torch.tensor([2]))


def as_if_wide(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let rows of a few columns go the way of those with many."""
    for module in ("nn.stack", "training.counterfactual.search"):
        monkeypatch.setattr(f"holdfast.{module}.WIDE", 1)


class Odd(nn.Module):
    """No Linear and ReLU in turn: trained through torch.func."""

    def __init__(self, d: int, k: int) -> None:
        super().__init__()
        self.a = nn.Linear(d, 6, dtype=F64)
        self.b = nn.Linear(6, k, dtype=F64)

    def forward(self, x: Tensor) -> Tensor:
        return self.b(torch.tanh(self.a(x)))


def two(k: int) -> list[Variant]:
    """Variants of two networks that differ in everything they may differ in."""
    tau = 0.6 if k == 2 else 0.2
    other = Variant(0.7, div=0.2, reg=0.3, adv=0.9, lam=0.02, energy=20.0, tau=tau + 0.15, lr=0.7)
    return [Variant(tau=tau, lr=0.5), other]


@pytest.mark.parametrize(
    ("k", "kind", "settings"),
    [
        (2, "by hand", {"domain": FREE}),
        (2, "by hand", {"domain": BOUND, "burn_in": 0.34}),
        (10, "by hand", {"domain": BOUND}),
        (10, "by hand", {"domain": FREE, "kind": "draft", "epsilon": 0.8}),
        (2, "by hand", {"domain": FREE, "refresh": "batch", "spare_wrong": True}),
        (2, "wide", {"domain": FREE}),
        (10, "wide", {"domain": BOUND}),
        (2, "torch.func", {"domain": BOUND}),
        (10, "torch.func", {"domain": FREE, "burn_in": 0.34}),
    ],
)
def test_training_is_that_of_the_paper(
    k: int, kind: str, settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Paper: altmeyer2025 Eq. 1, Eq. 2, Eq. 3, Later: ridge."""
    if kind == "wide":
        as_if_wide(monkeypatch)
    x, y = task(k)
    net = seeded(Odd(4, k) if kind == "torch.func" else mlp(4, (7,), k).double())
    shared = SharedSettings(**({"steps": 14, "count": 23} | settings))
    loop = RobustLoop(epochs=3, batch_size=17, lr=0.02)
    variant = two(k)
    plan = Variation((0, 1), (0, 5))
    if shared.kind == "draft":
        variant = [replace(t, reg=0.0) for t in variant]
    state = {name: v.detach() for name, v in net.state_dict().items()}
    models, numbers, _ = fit_contrast(
        net, lambda _: state, Contrast(x, y, k, plan, variant, shared, loop), BAR
    )
    assert isinstance(models, ModuleStack if kind == "torch.func" else Stack)
    for i in range(2):
        mine = by_the_book(copy.deepcopy(net), x, y, k, plan.order[i], variant[i], shared, loop)
        for a, b in zip(
            models.module(i).state_dict().values(), mine.state_dict().values(), strict=True
        ):
            torch.testing.assert_close(a, b, rtol=1e-7, atol=1e-9)
        moved = [
            float((a - b).abs().max())
            for a, b in zip(mine.state_dict().values(), state.values(), strict=True)
        ]
        assert min(moved) > 1e-3
    plain = round(shared.burn_in * 3)
    assert bool(numbers[:plain, :, 2:].isnan().all())
    assert not bool(numbers[plain:, :, 2:].isnan().any())
    matured = numbers[plain:, :, COLUMNS.index("matured")]
    assert 0.1 < float(matured.mean()) < 0.95  # rows that mature, and others, have been tried


# ---- the search


class Scripted:
    """Networks that are never convinced, with steps that were written down."""

    def __init__(self, steps: list[list[float]], sure: int = 99) -> None:
        self.steps = steps
        self.sure = sure
        self.at = 0

    def input_gain(self) -> float:
        return math.inf

    def vjp(self, x: Tensor, shape: Any = ()) -> tuple[Tensor, Any]:
        self.at += 1
        z = torch.zeros(len(x), 2, x.shape[2], dtype=F64)
        z[:, 1] = 5.0 if self.at > self.sure else -5.0
        return z, self

    def slope(self, v: Tensor) -> Tensor:
        return (v[:, :1] != 0).to(F64)

    def onto(self, slope: Tensor, out: Tensor) -> Tensor:
        return out.add_(torch.tensor(self.steps[self.at - 1], dtype=F64)[:, None] * slope)


def on_the_line(steps: list[float], sure: int = 99, epsilon: float = 0.3) -> Any:
    script: Any = Scripted([[s, 0.0] for s in steps], sure)
    far = torch.full((2, 1), 9.0, dtype=F64)
    x = torch.zeros(1, 1, 2, dtype=F64)
    how = search(lam=0.0, steps=len(steps), epsilon=epsilon)
    return search_counterfactuals(
        script, x, torch.ones(1, 1, dtype=torch.int64), how, Domain(-far, far, NONE, NONE, NONE)
    )


def test_the_nascent_row_is_the_last_one_inside_the_ball() -> None:
    """Paper: altmeyer2025 Later: nascent examples."""
    again = on_the_line([0.25, 0.25, -0.375, 0.125, 0.5])  # at 0.25, 0.5, 0.125, 0.25, 0.75
    assert again.nascent[0, 0].tolist() == [0.25, 0.0]
    assert again.last[0, 0].tolist() == [0.75, 0.0]
    assert again.immature.item()
    assert not again.inside.item()
    back = on_the_line([0.5, -0.375])
    assert back.nascent[0, 0].tolist() == back.last[0, 0].tolist() == [0.125, 0.0]
    assert back.inside.item()
    gone = on_the_line([0.5, 0.5])
    assert gone.nascent[0, 0].tolist() == [0.0, 0.0]  # the row itself
    mature = on_the_line([0.125, 0.125, 0.125, 0.125], sure=2)
    assert mature.nascent[0, 0].tolist() == mature.last[0, 0].tolist() == [0.25, 0.0]
    assert not mature.immature.item()
    assert mature.steps.item() == 2
    rim = on_the_line([0.25, 0.25], epsilon=0.25)
    assert rim.nascent[0, 0].tolist() == [0.25, 0.0]  # at most epsilon, not below


@pytest.mark.parametrize(
    ("wide", "epsilon"), [(False, 0.3), (True, 0.3), (True, 2.0), (True, 0.01)]
)
def test_search_row_by_row_is_that_of_the_batch_and_of_the_book(
    wide: bool, epsilon: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    if wide:
        as_if_wide(monkeypatch)
    nets = [seeded(mlp(4, (7,), 3).double(), s) for s in range(3)]
    x, _ = task(2, n=41)
    models = stacked(nets)
    wish = torch.randint(3, (3, 41), generator=torch.Generator().manual_seed(0))
    how = search(3, tau=0.5, lr=0.4, energy=8.0, steps=20, epsilon=epsilon)
    many = x.expand(3, -1, -1)
    for domain in (FREE, BOUND):
        whole = search_counterfactuals(models, many, wish, how, domain)
        stopped = [len(set(whole.steps.tolist())), int(whole.immature.sum())]
        assert stopped[0] > 1  # networks differ, so that compacting them is no trifle
        assert 10 < stopped[1] < 113
        for i, net in enumerate(nets):
            variant = Variant(tau=0.5, lr=0.4, energy=8.0)
            end, near, matured, steps = walked(net, x, wish[i], variant, 20, epsilon, domain)
            torch.testing.assert_close(whole.last[i], end, rtol=1e-9, atol=1e-9)
            torch.testing.assert_close(whole.nascent[i], near, rtol=1e-9, atol=1e-9)
            assert torch.equal(~whole.immature[i], matured)
            assert whole.steps[i] == steps.sum()
        one = search_counterfactuals(models, many[:, 7:8], wish[:, 7:8], how, domain)
        torch.testing.assert_close(one.last[:, 0], whole.last[:, 7], rtol=1e-10, atol=1e-10)
        with monkeypatch.context() as small:
            small.setattr("holdfast.training.counterfactual.search.CELLS", 50)
            parts = search_counterfactuals(models, many, wish, how, domain)
        torch.testing.assert_close(parts.last, whole.last, rtol=1e-10, atol=1e-10)
        torch.testing.assert_close(parts.nascent, whole.nascent, rtol=1e-10, atol=1e-10)
        assert torch.equal(parts.steps, whole.steps)


@pytest.mark.parametrize("wide", [False, True])
def test_what_may_not_change_does_not_and_limits_hold_from_outside_too(
    wide: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Paper: altmeyer2025 Section 3.2."""
    if wide:
        as_if_wide(monkeypatch)
    x = numbers(1, 200, 4, seed=8) * 2  # some rows start outside the limits
    models = stacked([seeded(mlp(4, (7,), 2).double())])
    found = search_counterfactuals(
        models, x, torch.ones(1, 200, dtype=torch.int64), search(lr=0.8, tau=0.99), BOUND
    )
    for rows in (found.last, found.nascent):
        assert torch.equal(rows[..., 0], x[..., 0])
        assert bool((rows[..., 1] >= x[..., 1]).all())
        assert bool((rows[..., 2] <= x[..., 2]).all())
    assert float((found.last - x)[..., 1:].abs().amax((0, 1)).min()) > 0.5
    assert float(found.last[..., 3].abs().max()) <= 2.5
    assert float(x[..., 3].abs().max()) > 2.5


class Broken(nn.Module):
    """Its gradient by the first column is no number where that is 0."""

    def __init__(self) -> None:
        super().__init__()
        self.line = nn.Linear(2, 2, dtype=F64)

    def forward(self, x: Tensor) -> Tensor:
        return self.line(x) + torch.sqrt(x[:, :1].abs()) * torch.tensor([0.0, 1.0], dtype=F64)


def test_gradients_that_are_no_numbers_move_nothing_and_stop_nothing() -> None:
    models = stacked([seeded(Broken())])
    x = torch.tensor([[[0.0, 1.0], [1.0, 0.0]]], dtype=F64)
    far = torch.full((2, 1), 9.0, dtype=F64)
    domain = Domain(-far, far, NONE, NONE, NONE)
    found = search_counterfactuals(
        models, x, torch.tensor([[1, 1]]), search(tau=0.999, steps=5), domain
    )
    assert found.last[0, 0, 0] == 0
    assert found.last[0, 0, 1] != 1
    assert found.last[0, 1, 0] != 1
    assert bool(found.last.isfinite().all())
    nowhere = stacked([seeded(Odd(2, 2))])
    nowhere.theta[:] = math.nan
    lost = search_counterfactuals(nowhere, x, torch.tensor([[1, 1]]), search(steps=5), domain)
    assert torch.equal(lost.last, x)
    assert bool(lost.immature.all())  # no number is no maturity


def test_weights_of_the_energy_are_those_of_the_authors_code() -> None:
    for steps, first, last, total in (
        (30, 0.0536, 0.0046, 0.37),
        (50, 0.0744, 0.0057, 0.78),
        (100, 0.0940, 0.0061, 1.72),
    ):
        phi = decay(steps)
        assert (float(phi[0]), float(phi[-1])) == pytest.approx((first, last), abs=6e-5)
        assert float(phi.sum()) == pytest.approx(total, abs=6e-3)
    assert float(decay(12).abs().max()) == 0
    # One step on a linear model: W^T (S - e_t) + lam sign + energy phi (-1 + 2e-3 z_t) W_t, where
    # the sign is still 0.
    net = seeded(mlp(3, (), 4).double())
    x = numbers(1, 1, 3, seed=2)
    far = torch.full((3, 1), 9.0, dtype=F64)
    found = search_counterfactuals(
        stacked([net]), x, torch.tensor([[2]]), search(steps=1), Domain(-far, far, NONE, NONE, NONE)
    )
    w = net[0].weight.detach()
    z = net(x[0])[0].detach()
    s = torch.softmax(z, 0) - torch.eye(4, dtype=F64)[2]
    torch.testing.assert_close(found.last[0, 0], x[0, 0] - 0.1 * w.T @ s)  # phi is 0 for one step
    found = search_counterfactuals(
        stacked([net]),
        x,
        torch.tensor([[2]]),
        search(steps=30, tau=0.9),
        Domain(-far, far, NONE, NONE, NONE),
    )
    walk = x[0, 0].clone()
    phi = decay(30)
    for k in range(30):
        z = net(walk[None])[0].detach()
        s = torch.softmax(z, 0) - torch.eye(4, dtype=F64)[2]
        walk -= 0.1 * (
            w.T @ s + 0.001 * (walk - x[0, 0]).sign() + 5 * phi[k] * (-1 + 2e-3 * z[2]) * w[2]
        )
    assert found.immature.item()
    torch.testing.assert_close(found.last[0, 0], walk)


# ---- the objective


def linear_pair(domain: Domain, mature: Tensor, positive: Tensor) -> Tensor:
    """The gradient of the divergence of one pair by the weights (columns, classes) and biases of a
    linear model."""
    models = stacked([seeded(mlp(4, (), 3).double())])
    x, y = task(3)
    shared = SharedSettings(domain, count=1)
    variant = Variant(clf=0.0, div=1.0, reg=0.0, adv=0.0)
    loop = RobustLoop(batch_size=60)
    contrast = Contrast(x, y, 3, Variation((0,), (0,)), [variant], shared, loop)
    training = ContrastTraining(models, contrast)
    positive = positive.clone()
    domain.hold_(positive.mT, mature.mT)
    one = torch.ones(1, 1, dtype=torch.bool)
    wish = torch.tensor([[1]])
    pairs = ContrastPairs(mature, positive, wish, mature, wish, one, one, torch.zeros(1))
    split = BatchSplit.of(60, 60, 1, F64)
    soft, straight, constant = training.slopes(torch.arange(60)[None], pairs, split)
    g, _ = models.backprop(
        x[None], pairs.rows(), lambda raw: torch.softmax(raw, 2) * soft + straight * raw + constant
    )
    return g


def test_the_divergence_of_a_linear_model_has_the_gradient_of_the_paper() -> None:
    """Paper: altmeyer2025 Eq. 4."""
    mature = numbers(1, 1, 4, seed=1)
    positive = numbers(1, 1, 4, seed=2)
    g = linear_pair(FREE, mature, positive)
    weights = g[:12].view(4, 3)
    bias = g[12:]
    torch.testing.assert_close(weights[:, 1], (mature - positive)[0, 0], rtol=1e-12, atol=1e-15)
    assert weights[:, [0, 2]].abs().max() == 0
    assert bias.abs().max() < 1e-15
    rise = torch.tensor([[[5.0, 1.0, 1.0, 0.0]]], dtype=F64)
    for sign in (1, -1):  # column 0 fixed, 1 may only rise, 2 may only fall
        weights = linear_pair(BOUND, sign * rise, torch.zeros_like(rise))[:12].view(4, 3)
        wanted = [0.0, 0.0, 1.0, 0.0] if sign > 0 else [0.0, -1.0, 0.0, 0.0]
        assert weights[:, 1].tolist() == wanted


def test_rows_that_never_mature_have_no_part_in_the_divergence() -> None:
    x, y = task(3)
    net = seeded(mlp(4, (7,), 3).double())
    state = {name: v.detach() for name, v in net.state_dict().items()}
    loop = RobustLoop(epochs=2, batch_size=20, lr=0.02)
    plan = Variation((0, 0), (0, 0))

    def run(settings: dict[str, Any], *variant: Variant) -> tuple[ModelStack, Tensor]:
        shared = SharedSettings(FREE, steps=3, count=30, **settings)
        contrast = Contrast(x, y, 3, plan, variant, shared, loop)
        return fit_contrast(net, lambda _: state, contrast, BAR)[:2]

    never = Variant(tau=0.999)
    all_ = Variant(tau=1e-9)
    for settings, variant, matured in (
        ({}, never, 0.0),
        ({"kind": "omni"}, never, 1.0),
        ({}, all_, 1.0),
    ):
        models, numbers = run(settings, variant, replace(variant, div=0.0))
        numbers = dict(zip(COLUMNS, numbers[:, 0].unbind(1), strict=True))
        assert numbers["matured"].tolist() == [matured] * 2
        assert float(numbers["ridge"].min()) > 0.1
        first, second = (
            torch.cat([v[i].flatten() for v in models.state().values()]) for i in range(2)
        )
        apart = float((first - second).abs().max())
        divergence = float(numbers["divergence"].abs().max())
        if variant is all_:
            assert apart > 1e-3
            assert divergence > 1e-2
        else:
            assert apart < 1e-9
            assert divergence < 1e-9


def test_omniscient_pairs_are_rows_that_the_network_gives_the_class() -> None:
    """Paper: altmeyer2025 Generator Omni."""
    x, y = task(3)
    models = stacked([seeded(mlp(4, (7,), 3).double(), s) for s in range(2)])
    shared = SharedSettings(FREE, kind="omni", count=40)
    seeds = Variation((0, 1), (0, 1))
    contrast = Contrast(x, y, 3, seeds, [Variant()] * 2, shared, RobustLoop())
    training = ContrastTraining(models, contrast)
    rows, u = training.draws.next()
    pairs = training.pairs(rows, u)
    given = models.vjp(pairs.mature.mT)[0].argmax(1)
    theirs = x[rows]
    assert torch.equal(given, pairs.wanted)
    assert bool((models.vjp(theirs.mT)[0].argmax(1) != pairs.wanted).all())
    assert torch.equal(pairs.mature, pairs.positive)
    assert torch.equal(pairs.mature, pairs.nascent)
    assert torch.equal(pairs.label, pairs.wanted)
    apart = (pairs.mature[:, :, None] - theirs[:, None]).abs().amax(3).amin(2)
    assert float(apart.max()) == 0  # each is one of the rows that were drawn
    models.theta.zero_()
    # all rows are given class 2, so that none has the class to reach
    models.layers[-1][1][..., 2] = 1.0
    pairs = training.pairs(rows, u)
    assert bool((pairs.mature[:, :, None] == theirs[:, None]).all(3).any(2).all())
    assert not torch.equal(pairs.label, torch.full_like(pairs.label, 2))
    where = (pairs.mature[:, :, None] == theirs[:, None]).all(3).float().argmax(2)
    assert torch.equal(pairs.label, y[rows].gather(1, where))


def test_the_class_to_reach_is_never_the_one_given_and_half_of_two_is_a_flip() -> None:
    for k in (2, 10):
        x, y = task(k, n=300)
        models = stacked([seeded(mlp(4, (7,), k).double(), s) for s in range(2)])
        shared = SharedSettings(FREE, count=200, steps=9)
        variant = [Variant(tau=0.5, lr=0.5)] * 2
        seeds = Variation((0, 1), (0, 1))
        contrast = Contrast(x, y, k, seeds, variant, shared, RobustLoop())
        training = ContrastTraining(models, contrast)
        wished = torch.zeros(k)
        for _ in range(5):
            rows, u = training.draws.next()
            pairs = training.pairs(rows, u)
            now = models.vjp(x[rows].mT)[0].argmax(1)
            assert all(len(set(r.tolist())) == 200 for r in rows)
            assert bool((pairs.wanted != now).all())
            # the true class, also of rows that the network gets wrong
            assert torch.equal(pairs.label, y[rows])
            assert bool((now != y[rows]).any())
            wished += torch.bincount(pairs.wanted.flatten(), minlength=k)
            if k == 2:
                found = search_counterfactuals(models, x[rows], pairs.wanted, training.search, FREE)
                flipped = models.vjp(found.last.mT)[0].argmax(1) == pairs.wanted
                assert torch.equal(flipped, pairs.matured)
                assert 0 < int(pairs.matured.sum()) < 400
        # no row of the others could be drawn
        assert torch.equal(wished > 0, torch.bincount(y, minlength=k) > 0)


def test_no_gradient_goes_through_the_search_and_it_changes_nothing() -> None:
    torch.manual_seed(3)
    module = nn.Sequential(
        nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Dropout(0.5), nn.Linear(8, 2)
    ).double()
    x, y = task(2)
    models = stacked([module])
    assert isinstance(models, ModuleStack)
    models.theta.requires_grad_()
    shared = SharedSettings(FREE, count=30)
    seed = Variation((0,), (0,))
    contrast = Contrast(x, y, 2, seed, [Variant(tau=0.6)], shared, RobustLoop())
    training = ContrastTraining(models, contrast)
    state = {name: v.detach().clone() for name, v in models.state().items()}
    rows, u = training.draws.next()
    before = torch.get_rng_state()
    with torch.no_grad():
        first = training.pairs(rows, u)
        second = training.pairs(rows, u)
    for part in (first.mature, first.positive, first.nascent):
        assert part.grad_fn is None
        assert not part.requires_grad
    assert torch.equal(first.mature, second.mature)  # no dropout, no batch statistics
    assert torch.equal(before, torch.get_rng_state())
    assert all(torch.equal(v, state[name]) for name, v in models.state().items())
    assert not torch.equal(first.mature, x[rows])
    # In a training step the batch alone enters the statistics of the layers.
    models.theta.requires_grad_(False)
    alone = copy.deepcopy(models)
    with torch.no_grad():
        models.backprop(x[None, :20], [v[:, :10] * 9 for v in first.rows()], torch.ones_like)
        alone.gradient(x[None, :20], y[None, :20], None)
    for name in ("1.running_mean", "1.running_var"):
        assert not torch.equal(models.state()[name], state[name])
        assert torch.equal(models.state()[name], alone.state()[name])


def unscaled(data: Dataset) -> Schema:
    return Schema.infer(data.X, scaling="none")


def fit_to_points(data: Dataset, epochs: int, **how: Any) -> CounterfactualTraining:
    """The paper's network for points in the plane, taught."""
    recipe = hf.Recipe(hidden=(32,), epochs=epochs, batch_size=30)
    search = hf.CounterfactualSearch(tau=0.5)
    return hf.train_counterfactual(recipe, data.X, data.y, unscaled(data), search=search, **how)


def test_without_the_ridge_energies_run_away() -> None:
    """Paper: altmeyer2025 Later: ridge."""
    fit = fit_to_points(
        load("linearly_separable", n=3000),
        15,
        objective="energy",
        variants={"none": {"l_reg": 0.0}, "some": {"l_reg": 0.1}},
    )
    ridge = fit.history.pivot(index="epoch", columns="variant", values="ridge")
    assert ridge["none"].iloc[-1] > 1000 * ridge["some"].iloc[-1]
    assert ridge["none"].iloc[-1] > 5 * ridge["none"].iloc[6]
    # The minimum over z of (div z + reg z^2), for either row of a pair, is at |z| = div / (2 reg) =
    # 2.5.
    assert ridge["some"].iloc[-1] == pytest.approx(2 * 2.5**2, rel=0.1)


def test_protection_lowers_the_sensitivity_to_what_is_protected() -> None:
    """Paper: altmeyer2025 Later: proposition on protection."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 1000)
    X = pd.DataFrame(
        rng.normal(size=(1000, 2)) + np.where(y == 1, 1.0, -1.0)[:, None], columns=["a", "b"]
    )
    recipe = hf.Recipe(hidden=(), epochs=20, batch_size=50, lr=0.01)
    ratios = dict[str, Tensor]()
    for fixed in ("a", ""):
        fit = hf.train_counterfactual(
            recipe,
            X,
            y,
            Schema.infer(X, scaling="none", fixed=[fixed] if fixed else []),
            seeds=10,
            search=hf.CounterfactualSearch(tau=0.5, n_counterfactuals=500),
            variants={"taught": {}, "plain": {"objective": "plain"}},
        )
        for group in fit.bank.groups:
            assert isinstance(group.networks, Stack)
            w = group.networks.layers[0][0]
            theta = (w[..., 1] - w[..., 0]).abs()
            ratios[f"{group.family} {fixed}"] = theta[:, 0] / theta[:, 1]
    assert bool((ratios["taught a"] < 0.8 * ratios["plain a"]).all())
    # nothing of the kind where nothing is protected
    assert float((ratios["taught "] / ratios["plain "]).mean()) > 0.9


def implausibility(fit: Any, rows: Any, schema: Schema, domain: Domain) -> dict[str, float]:
    """Mean l1 distance of valid answers to rows of the class they reach, over networks, classes and
    energies."""
    x = schema.encode(rows.X)
    y = torch.tensor((rows.y == "yes").to_numpy()).long()
    out = dict[str, float]()
    for group in fit.bank.groups:
        models = group.networks
        far = list[Tensor]()
        assert models is not None
        m = models.count
        now = models.vjp(x.mT.expand(m, -1, -1))[0].argmax(1)
        assert float((now == y).float().mean()) > 0.985
        for energy in (0.1, 0.5, 1.0, 5.0, 10.0):
            how = SearchSettings(
                *[torch.full((m, 1, 1), v) for v in (0.001, energy, 0.95, 0.1)], 50, 0.3
            )
            end = search_counterfactuals(models, x.expand(m, -1, -1), 1 - now, how, domain).last
            valid = models.vjp(end.mT)[0].argmax(1) == 1 - now
            for c in (0, 1):
                pick = valid & (now == 1 - c)
                far += [
                    torch.cdist(end[i][pick[i]], x[y == c], p=1).mean()
                    for i in range(m)
                    if pick[i].any()
                ]
        out[group.family] = float(torch.stack(far).mean())
    return out


@pytest.mark.parametrize(
    ("name", "l_reg", "least", "most"),
    [("linearly_separable", 0.01, 15, 35), ("circles", 0.5, 45, 65)],
)
def test_counterfactuals_of_taught_networks_are_more_plausible(
    name: str, l_reg: float, least: int, most: int
) -> None:
    data = load(name, n=4500)
    rows = data.take(range(3000))
    test = data.take(range(3600, 4500))
    schema = unscaled(rows)
    fit = fit_to_points(
        rows,
        100,
        seeds=3,
        objective=hf.CounterfactualObjective(l_reg=l_reg),
        variants={"taught": {}, "plain": {"objective": "plain"}},
        validation=(test.X, test.y),
    )
    last = fit.history.groupby("variant").last()
    assert last.validation["taught"] >= last.validation["plain"] - 0.01
    found = implausibility(fit, test, schema, Domain.of(schema.encode(rows.X), schema.encoding()))
    assert least < 100 * (1 - found["taught"] / found["plain"]) < most


# ---- the function


TABLE = mixed_table(120)
LOOSE = {"rules": (), "max_changes": 0}
SCHEMA = mixed_schema(TABLE, **LOOSE)
SUM = SCHEMA.encode(TABLE).sum(1)
Y = pd.Series(np.where(SUM.median() < SUM, "yes", "no"), index=TABLE.index)
SMALL = hf.Recipe(hidden=(6,), epochs=3, batch_size=32, lr=0.01)
VARIANTS: dict[str, dict[str, Any]] = {
    "taught": {},
    "plain": {"objective": "plain"},
    "energy": {"objective": "energy"},
    "adversarial": {"objective": "adversarial"},
    "draft": {"objective": "draft"},
    "other": {
        "l_div": 0.1,
        "l_reg": 0.3,
        "l_adv": 1.0,
        "energy": 0.5,
        "tau": 0.9,
        "lam": 0.1,
        "lr": 0.3,
    },
}


def taught(**settings: Any) -> Any:
    """Settings of the objective and of the search beside arguments of the function."""
    settings = {"n_counterfactuals": 50, **settings}
    objective = hf.CounterfactualObjective(
        **{
            f.name: settings.pop(f.name)
            for f in fields(hf.CounterfactualObjective)
            if f.name in settings
        }
    )
    search = hf.CounterfactualSearch(
        **{
            f.name: settings.pop(f.name)
            for f in fields(hf.CounterfactualSearch)
            if f.name in settings
        }
    )
    given: dict[str, Any] = {"recipe": SMALL, "X": TABLE, "y": Y, "schema": SCHEMA, **settings}
    return hf.train_counterfactual(**given, objective=objective, search=search)


def test_networks_are_the_same_alone_and_beside_others() -> None:
    both = taught(variants=VARIANTS, seeds=2, seed=5)
    assert repr(both).startswith("CounterfactualTraining(2 networks for each of 'taught', 'plain'")
    scores = both.bank.scores(TABLE)
    for i, (name, own) in enumerate(VARIANTS.items()):
        for seed in range(2):
            alone = taught(variants={name: own}, seed=5 + seed)
            torch.testing.assert_close(
                scores[2 * i + seed], alone.bank.scores(TABLE)[0], rtol=1e-4, atol=1e-5
            )
            columns = [c for c in both.history if c not in ("seconds", "seed", "variant")]
            theirs = both.history[(both.history.variant == name) & (both.history.seed == 5 + seed)]
            np.testing.assert_allclose(
                theirs[columns], alone.history[columns], rtol=1e-3, atol=1e-5
            )
    apart = (scores[::2, None] - scores[None, ::2]).abs().amax((2, 3)) + torch.eye(len(VARIANTS))
    assert float(apart.min()) > 1e-3  # each variant makes another network
    assert len(both.bank.members()) == 2 * len(VARIANTS)
    again = taught(variants=VARIANTS, seeds=2, seed=5)
    assert again.bank.fingerprint() == both.bank.fingerprint()
    assert again.bank.members() == both.bank.members()


def test_plain_is_the_recipe_bit_for_bit_and_burn_in_begins_like_it() -> None:
    """Paper: altmeyer2025 Baseline Vanilla."""
    fit = taught(objective="plain", seed=4)
    usual = hf.ModelBank.retrain(SMALL, TABLE, Y, SCHEMA, families={"seed_and_order": 1}, seed=3)
    torch.testing.assert_close(fit.bank.scores(TABLE), usual.scores(TABLE), rtol=0, atol=0)
    assert fit.bank.members() == usual.members()
    assert (
        fit.history[["divergence", "ridge", "adversarial", "matured", "steps"]]
        .isna()
        .all(axis=None)
    )
    late = taught(burn_in=0.5)
    all_ = taught(burn_in=1.0)
    assert late.history.matured.isna().tolist() == [True, True, False]  # round(1.5) epochs
    torch.testing.assert_close(
        all_.bank.scores(TABLE), taught(objective="plain").bank.scores(TABLE), rtol=0, atol=0
    )


def test_history_and_models() -> None:
    fit = taught(
        variants={"a": {}, "b": {"objective": "plain"}},
        seeds=2,
        seed=3,
        validation=(TABLE[:40], Y[:40]),
    )
    assert list(fit.history) == ["variant", "seed", "epoch", *COLUMNS, "seconds"]
    assert fit.history[["variant", "seed", "epoch"]].to_numpy().tolist() == [
        [v, s, e] for v in ("a", "b") for s in (3, 4) for e in (1, 2, 3)
    ]
    for variant in fit.variants:
        for seed in range(2):
            model = fit.member(variant, seed)
            last = fit.history.query("variant == @variant and seed == 3 + @seed")
            assert last.accuracy.iloc[-1] == pytest.approx((model.predict(TABLE) == Y).mean())
            assert last.validation.iloc[-1] == pytest.approx(
                (model.predict(TABLE[:40]) == Y[:40]).mean()
            )
    assert fit.model.fingerprint() == fit.member("a").fingerprint()
    one = fit.history[fit.history.variant == "a"]
    assert one.matured.between(0, 1).all()
    assert one.steps.between(0, 30).all()
    assert one.seconds.gt(0).all()
    answers = hf.Descent(steps=50).explain(fit.model, TABLE[:5])
    assert len(answers.x) == 5


def test_generators_and_their_settings_count() -> None:
    free = Schema.infer(TABLE, bounds={"income": (0, 8000)})
    paper = taught()
    same = taught(generator=hf.ECCCo(lam=0.001, energy=5.0, tau=0.75, lr=0.1, steps=30))
    assert torch.equal(paper.bank.scores(TABLE), same.bank.scores(TABLE))
    generic = taught(
        generator=hf.Descent.generic(steps=30), variants={"a": {}, "b": {"energy": 50.0, "lr": 1.0}}
    )
    assert torch.equal(
        generic.bank.scores(TABLE)[:1],
        taught(generator=hf.ECCCo(energy=0.0, steps=30)).bank.scores(TABLE),
    )
    omni = taught(generator=hf.Omniscient())
    assert omni.history.divergence.abs().max() < 1e-5
    assert omni.history.steps.max() == 0
    revise = taught(
        generator=hf.REVISE(hidden=(16,), latent=3, epochs=100, beta=0.01, steps=40, lr=2.0),
        schema=free,
        tau=0.5,
    )
    assert revise.history.matured.iloc[-1] > 0.1
    assert revise.history.divergence.abs().iloc[-1] > 1e-3
    seen = [f.bank.scores(TABLE)[0] for f in (paper, generic, omni, revise)]
    assert all(float((a - b).abs().max()) > 1e-3 for i, a in enumerate(seen) for b in seen[:i])


def test_the_search_in_codes_follows_the_gradient_through_the_decoder() -> None:
    from holdfast.methods._autoencoder_training import autoencoder

    x, _ = task(2)
    schema = Schema.infer(pd.DataFrame(x.numpy(), columns=list("abcd")), scaling="none")
    net = autoencoder(x.float(), schema, kind="vae", hidden=(8,), latent=2, epochs=10)
    far = torch.full((4, 1), 9.0, dtype=F64)
    module = seeded(mlp(4, (7,), 2).double())
    wish = torch.ones(1, 60, dtype=torch.int64)
    domain = Domain(-far, far, NONE, NONE, NONE)
    found = search_counterfactuals(
        stacked([module]), x[None], wish, search(steps=1, tau=0.9), domain, autoencoder=net
    )
    z = net.encode(x.float()).clone().requires_grad_()
    decoded = net.decoder(z).double()
    loss = (
        nn.functional.cross_entropy(module(decoded), wish[0], reduction="sum")
        + 0.001 * (decoded - x).abs().sum()
    )
    (g,) = torch.autograd.grad(loss, z)
    moved = found.steps.item()
    still = torch.softmax(module(decoded), 1)[:, 1] >= 0.9
    torch.testing.assert_close(
        found.last[0][~still],
        net.decoder(z - 0.1 * g).double().detach()[~still],
        rtol=1e-4,
        atol=1e-5,
    )
    assert moved == int((~still).sum())
    assert moved > 30


def test_categories_are_numbers_or_one_level_each() -> None:
    x = SCHEMA.encode(TABLE)
    at = SCHEMA.encoding()
    y = torch.tensor((Y == "yes").to_numpy()).long()
    models = stack_of(mlp(x.shape[1], (8,), 2), 1)
    models.theta.normal_(generator=torch.Generator().manual_seed(0), std=0.5)
    how = SearchSettings(*[torch.full((1, 1, 1), v) for v in (0.001, 5.0, 0.95, 0.5)], 20, 0.3)
    for categories in (False, True):
        domain = Domain.of(x, at, categories=categories)
        found = search_counterfactuals(models, x[None], 1 - y[None], how, domain)
        mixed = found.last[0][:, at.one_hot]
        owner = SCHEMA.names.index("owner")
        single = found.last[0][:, SCHEMA.slices[owner]]
        whole = bool(((mixed == 0) | (mixed == 1)).all()) and bool(
            ((single == 0) | (single == 1)).all()
        )
        assert whole == categories
        assert bool((mixed != x[:, at.one_hot]).any())
        assert torch.equal(found.last[0][:, at.fixed], x[:, at.fixed])
        if categories:
            for a, b in at.spans:
                assert torch.equal(found.last[0][:, a:b].sum(1), torch.ones(120))
    fit = taught(respect_categories=True)
    assert not torch.equal(fit.bank.scores(TABLE), taught().bank.scores(TABLE))


def test_limits_are_those_of_the_schema_or_of_the_data() -> None:
    rng = np.random.default_rng(0)
    X = pd.DataFrame(
        {"a": rng.normal(size=50), "b": rng.exponential(size=50), "c": rng.normal(size=50)}
    )
    schema = Schema.infer(X, scaling="none", bounds={"c": (-0.5, math.inf)})
    x = schema.encode(X, F64)
    for spread in (2.0, 0.0, 5.0):
        domain = Domain.of(x, schema.encoding(F64), spread=spread)
        low = np.minimum(X.mean() - spread * X.std(), X.min())
        high = np.maximum(X.mean() + spread * X.std(), X.max())
        low["c"] = -0.5
        np.testing.assert_allclose(domain.low[:, 0], low, rtol=1e-12)
        np.testing.assert_allclose(domain.high[:, 0], high, rtol=1e-12)
    assert domain.box is None
    even = Domain.of(torch.tensor([[-1.0, -1.0], [1.0, 1.0]]), spread=0.0)
    assert even.box == (-1.0, 1.0)
    torch.testing.assert_close(
        even.clamp_(torch.tensor([[[-3.0], [3.0]]])),
        torch.tensor([[[-1.0], [1.0]]]),
        rtol=0,
        atol=0,
    )


def test_images_are_rows_like_all_others() -> None:
    g = torch.Generator().manual_seed(0)
    x = torch.rand(40, 1, 4, 4, generator=g, dtype=F64) * 2 - 1
    y = (x[:, 0, :2].mean((1, 2)) > x[:, 0, 2:].mean((1, 2))).long()
    conv = nn.Sequential(nn.Conv2d(1, 3, 2), nn.Tanh(), nn.Flatten(), nn.Linear(27, 2)).double()
    flat = nn.Sequential(nn.Unflatten(1, (1, 4, 4)), conv)
    seeded(conv)
    state = {name: v.detach().clone() for name, v in conv.state_dict().items()}
    shared = SharedSettings(Domain.of(x.flatten(1)), count=20, steps=10)
    loop = RobustLoop(epochs=2, batch_size=16, lr=0.01)
    plan = Variation((0, 1), (0, 1))
    contrast = Contrast(x, y, 2, plan, [Variant(tau=0.6)] * 2, shared, loop)
    shaped, numbers, _ = fit_contrast(conv, lambda _: state, contrast, BAR, (x, y))
    named = {f"1.{name}": v for name, v in state.items()}
    flattened = replace(contrast, x=x.flatten(1))
    rows, again, _ = fit_contrast(flat, lambda _: named, flattened, BAR, (x.flatten(1), y))
    torch.testing.assert_close(shaped.theta, rows.theta, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(numbers, again, rtol=1e-9, atol=1e-12)
    assert float((shaped.parts["0.weight"][0] - state["0.weight"]).abs().max()) > 1e-3


def test_updates_that_are_no_numbers_are_left_out_for_that_network_alone() -> None:
    x, y = task(2)
    x = x.clone()
    x[5] = math.inf  # one batch of every epoch has no gradient, another one for each network
    net = seeded(mlp(4, (7,), 2).double())
    state = {name: v.detach() for name, v in net.state_dict().items()}
    shared = SharedSettings(FREE, count=3, steps=3)
    loop = RobustLoop(epochs=2, batch_size=10, lr=0.02)

    def run(*seeds: int) -> ModelStack:
        variants = [Variant()] * len(seeds)
        contrast = Contrast(x, y, 2, Variation(seeds, seeds), variants, shared, loop)
        return fit_contrast(net, lambda _: state, contrast, BAR)[0]

    both = run(0, 1)
    assert bool(both.theta.isfinite().all())
    for i in range(2):
        alone = run(i)
        for mine, theirs in zip(both.state().values(), alone.state().values(), strict=True):
            torch.testing.assert_close(mine[i], theirs[0], rtol=1e-9, atol=1e-12)
    assert float((both.state()["0.weight"][0] - state["0.weight"]).abs().max()) > 0.01


def test_odd_numbers_of_rows_classes_and_counterfactuals() -> None:
    x, y = task(3)
    y = torch.where(y == 2, 1, y)  # nobody is in class 2
    net = seeded(mlp(4, (7,), 3).double())
    net[-1].bias.data[2] = 9.0  # and yet it is given to all
    state = {name: v.detach() for name, v in net.state_dict().items()}
    loop = RobustLoop(epochs=2, batch_size=7, lr=0.02)
    plan = Variation((0,), (0,))
    for count, used in ((2, 2), (None, 60), (1000, 60), (13, 13)):
        for refresh in ("epoch", "batch"):
            shared = SharedSettings(FREE, count=count, steps=5, refresh=refresh)
            contrast = Contrast(x, y, 3, plan, [Variant()], shared, loop)
            models, numbers, _ = fit_contrast(net, lambda _: state, contrast, BAR)
            assert bool(models.theta.isfinite().all())
            shares = numbers[:, 0, COLUMNS.index("matured")] * used
            assert bool(torch.isclose(shares, shares.round()).all())
        training = ContrastTraining(stacked([net]), contrast)
        rows, u = training.draws.next()
        assert rows.shape == (1, used)
        assert set(training.pairs(rows, u).wanted.unique().tolist()) <= {0, 1}
    split = BatchSplit.of(10, 3, 6, F64)  # batches of 3, 3, 3 and 1 rows; groups of 2, 2, 1 and 1
    assert [(b.stop - b.start, g.stop - g.start) for b, g in split.parts] == [
        (3, 2),
        (3, 2),
        (3, 1),
        (1, 1),
    ]
    assert split.place[:9].tolist() == [0, 1, 2, 10, 11, 16, 17, 22, 23]
    with pytest.raises(hf.HoldfastError, match="at least two classes"):
        taught(y=pd.Series(["no"] * 120, index=TABLE.index), classes=["no", "yes"])
    one = taught(
        y=pd.Series(["no"] * 120, index=TABLE.index), classes=["no", "yes"], objective="plain"
    )
    assert one.history.accuracy.iloc[-1] > 0.5


def test_the_callers_world_stays_as_it_was() -> None:
    module = nn.Sequential(
        nn.Linear(SCHEMA.width, 5), nn.BatchNorm1d(5), nn.Tanh(), nn.Dropout(0.2), nn.Linear(5, 2)
    )
    module.train()
    before = {k: v.clone() for k, v in module.state_dict().items()}
    state = torch.get_rng_state()
    drawn = np.random.get_state()[1].copy()
    threads = torch.get_num_threads()
    encoded = TABLE.copy()
    fit = taught(recipe=hf.Recipe.of(module, epochs=2, batch_size=40), seeds=2)
    assert module.training
    assert all(torch.equal(v, before[k]) for k, v in module.state_dict().items())
    assert all(p.grad is None and p.requires_grad for p in module.parameters())
    assert torch.equal(torch.get_rng_state(), state)
    assert (np.random.get_state()[1] == drawn).all()
    assert torch.get_num_threads() == threads
    pd.testing.assert_frame_equal(TABLE, encoded)
    assert isinstance(fit.model.module, nn.Sequential)
    assert [type(m) for m in fit.model.module] == [type(m) for m in module]
    other = taught(recipe=hf.Recipe.of(module, epochs=2, batch_size=40), seed=1)
    torch.testing.assert_close(
        fit.bank.scores(TABLE)[1], other.bank.scores(TABLE)[0], rtol=0, atol=0
    )


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_how_it_goes_is_told_on_a_terminal_only(monkeypatch: pytest.MonkeyPatch) -> None:
    for stream, shown, drawn in (
        (io.StringIO(), True, False),
        (Terminal(), False, False),
        (Terminal(), True, True),
    ):
        monkeypatch.setattr(sys, "stderr", stream)
        taught(progress=shown)
        assert bool(stream.getvalue()) == drawn
    numbers = stream.getvalue()
    assert "3/3 accuracy" in numbers
    assert "matured" in numbers
    assert "divergence" in numbers
    assert "nan" not in numbers


def test_modules_in_double_precision_are_trained_in_it() -> None:
    module = mlp(SCHEMA.width, (6,), 2).double()
    fit = taught(
        recipe=hf.Recipe.of(module, epochs=2, batch_size=32), validation=(TABLE[:30], Y[:30])
    )
    assert fit.bank.groups[0].dtype == F64
    assert fit.history.validation.notna().all()
    assert fit.history.matured.notna().all()


def test_networks_are_saved_and_explained_like_others(tmp_path: Any) -> None:
    fit = taught(variants={"a": {}, "b": {"objective": "plain"}}, seeds=2)
    fit.bank.save(tmp_path / "bank")
    again = hf.ModelBank.load(tmp_path / "bank")
    assert torch.equal(again.scores(TABLE), fit.bank.scores(TABLE))
    assert again.families == {"a": 2, "b": 2}


def test_errors_name_the_thing() -> None:
    from sklearn.linear_model import LogisticRegression

    one = nn.Sequential(nn.Linear(SCHEMA.width, 1))
    for settings, said in (
        ({"objective": "ful"}, "unknown objective 'ful'; did you mean 'full'"),
        ({"recipe": LogisticRegression()}, "only networks"),
        ({"recipe": hf.Recipe(epsilon=0.1)}, "attacks rows of its own"),
        ({"recipe": hf.Recipe.of(one)}, "1 outputs for 2 classes"),
        ({"l_div": -1.0}, "l_div must be a number and at least 0, got -1"),
        ({"l_adv": math.nan}, "l_adv must be a number"),
        ({"tau": 1.0}, "tau must lie between 0 and 1"),
        ({"epsilon": -0.1}, "epsilon must be a number"),
        ({"n_counterfactuals": 0}, "n_counterfactuals must be an integer"),
        ({"burn_in": 1.5}, "burn_in must be a share"),
        ({"refresh": "step"}, "refresh must be 'epoch' or 'batch'"),
        ({"spread": -1.0}, "spread must be"),
        ({"seeds": 0}, "seeds must be"),
        ({"variants": {}}, "at least one"),
        ({"variants": {"a": {"l_dif": 1.0}}}, "unknown setting 'l_dif'; did you mean 'l_div'"),
        (
            {"variants": {"a": {"objective": "energy", "l_adv": 1.0}}},
            "l_adv, which objective='energy' has no use for",
        ),
        ({"generator": hf.ECCCo(steps=0)}, "steps of the generator"),
        ({"generator": hf.GrowingSpheres()}, "GrowingSpheres cannot be used inside training"),
        ({"generator": hf.Gravitational()}, "Gravitational cannot be used inside training"),
        ({"generator": hf.Descent()}, r"Descent\.generic"),
        ({"generator": hf.ECCCo(conformal=0.5)}, "conformal"),
        ({"generator": hf.REVISE()}, "cannot keep those that may not change"),
        ({"generator": hf.Omniscient(), "objective": "draft"}, "draft"),
        ({"validation": (TABLE, Y.replace("yes", "maybe"))}, "maybe"),
    ):
        with pytest.raises(hf.HoldfastError, match=said):
            taught(**settings)
    fit = taught()
    with pytest.raises(hf.HoldfastError, match="no variant 'ful'"):
        fit.member("ful")
    with pytest.raises(hf.HoldfastError, match="no number 1"):
        fit.member("full", 1)
