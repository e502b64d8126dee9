"""ROAR: the inner maximum against linear programs, the search against closed forms, the planes
against Ridge."""

import itertools
import math

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.optimize import linprog
from sklearn.linear_model import Ridge
from torch import Tensor, nn

import holdfast as hf
from holdfast._core.rows import rows_per_chunk
from holdfast.distances import l2, linf
from holdfast.methods import _local_linear as lime
from holdfast.methods._local_linear import (
    Neighbors,
    blocks_of,
    fit_planes,
    shares_of,
    weighted_ridge,
)
from holdfast.methods.roar import worst_shift
from holdfast.nn.architecture import mlp
from holdfast.problem import SearchProblem
from support.refused import refuses
from support.tables import N, mixed_table, problem_of, seeded

D = 4
BOX = hf.Schema.box(D)
W = torch.tensor([1.0, -2.0, 0.5, 0.0])
B = -0.5


def points(n: int, seed: int = 0, d: int = D) -> Tensor:
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed))


def linear(w: Tensor = W, b: float = B) -> hf.Model:
    net = nn.Sequential(nn.Linear(len(w), 1))
    with torch.no_grad():
        net[0].weight.copy_(w[None])
        net[0].bias.fill_(b)
    return hf.Model.of(net, BOX)


def refused(n: int = 40) -> Tensor:
    x = points(3 * n, 1)
    return x[x @ W + B < 0][:n]


# ---- the inner maximum


@pytest.mark.parametrize("target", [0, 1])
def test_the_worst_shift_is_the_optimum_of_the_linear_program_and_of_all_corners(
    target: int,
) -> None:
    """Paper: krishna2024 Baseline ROAR."""
    z = points(20).double()
    delta = 0.3
    z[0, 1] = 0.0
    dw, db = worst_shift(z, delta, linf, target=target)
    hurt = (dw * z).sum(1) + db.squeeze(1)  # what the shift adds to the score
    sign = 1 if target == 1 else -1  # class 1 is hurt by a lower score
    corners = torch.tensor([*itertools.product([-delta, delta], repeat=D + 1)]).double()
    for i, row in enumerate(torch.cat([z, torch.ones(20, 1)], 1)):
        lp = linprog(sign * row.numpy(), bounds=[(-delta, delta)] * (D + 1))
        assert float(hurt[i]) * sign == pytest.approx(lp.fun, abs=1e-9)
        assert float(hurt[i]) * sign == pytest.approx(float((sign * corners @ row).min()), abs=1e-6)
    assert dw.abs().max() <= delta


def test_the_worst_shift_in_the_l2_ball_beats_all_others() -> None:
    z = points(20).double()
    delta = 0.3
    dw, db = worst_shift(z, delta, l2)
    both = torch.cat([dw, db], 1)
    assert torch.allclose(both.norm(dim=1), torch.full((20,), delta).double())
    hurt = (both * torch.cat([z, torch.ones(20, 1)], 1)).sum(1)
    assert torch.allclose(hurt, -delta * (z.square().sum(1) + 1).sqrt())
    others = delta * torch.nn.functional.normalize(points(500, 3, D + 1).double())
    assert (hurt[:, None] <= torch.cat([z, torch.ones(20, 1)], 1) @ others.T + 1e-12).all()
    without = worst_shift(z, delta, l2, shifts_b=False)
    assert torch.allclose((without[0] * z).sum(1), -delta * z.norm(dim=1))
    assert (without[1] == 0).all()


# ---- the search on a linear score


class Watched(hf.ROAR):
    """Keeps the losses it meets."""

    def worst_loss(
        self, problem: SearchProblem, score: object, z: Tensor, lam: float
    ) -> tuple[Tensor, Tensor]:
        loss, grad = super().worst_loss(problem, score, z, lam)
        self.__dict__.setdefault("seen", []).append(loss)
        return loss, grad


@pytest.mark.parametrize(
    "settings", [{}, {"norm": "l2"}, {"distance": "mse"}, {"linear": "lime", "samples": 200}]
)
def test_small_steps_never_raise_the_worst_case_loss(settings: dict[str, object]) -> None:
    model = linear()
    x = refused()
    lr = 1e-3
    e = Watched(
        optimizer="sgd", lr=lr, steps=300, tolerance=0.0, restarts=1, delta=0.2, **settings
    ).fit(model, points(50))
    e.explain(model, x, 1)
    losses = torch.stack(e.seen)
    # Where |z_j| or |z_j - x_j| has its kink a step may cross it, by no more than the step.
    assert (losses.diff(dim=0) <= 10 * lr * lr).all()
    assert (losses[-1] < losses[0]).all()


def test_gradient_of_the_worst_case_loss() -> None:
    model = linear()
    x = refused(8)
    problem = problem_of(model, x)
    z = x + points(8, 4) * 0.3
    for e in (hf.ROAR(), hf.ROAR(norm="l2"), hf.ROAR(distance="mse", delta=0.5)):
        e.fit(model, points(50))
        with model.eval_mode():
            score = e._score(problem)
            loss, grad = e.worst_loss(problem, score, z, 0.3)
            way = points(8, 5)
            ahead, _ = e.worst_loss(problem, score, z + 1e-3 * way, 0.3)
            behind, _ = e.worst_loss(problem, score, z - 1e-3 * way, 0.3)
        assert loss.shape == (8, 1)
        slope = ((ahead - behind) / 2e-3).squeeze(1)
        assert torch.allclose(slope, (grad * way).sum(1), atol=5e-3)


def test_without_a_shift_it_is_plain_linear_recourse() -> None:
    """min softplus(-(w.z + b)) + lam |z - x|^2 / d  has  z = x + t w,
    2 lam t / d = sigmoid(-(gap + t |w|^2))."""
    model = linear()
    x = refused()
    lam = 0.5
    e = hf.ROAR(
        delta=0.0, distance="mse", lam=lam, steps=3000, lr=0.01, tolerance=0.0, restarts=1
    ).fit(model, points(50))
    cfs = e.explain(model, x, 1)
    gap = (x @ W + B).double()
    low = torch.zeros_like(gap)
    high = torch.full_like(gap, 1e3)
    for _ in range(80):
        t = (low + high) / 2
        short = 2 * lam * t / D < torch.sigmoid(-(gap + t * float(W @ W)))
        low = torch.where(short, t, low)
        high = torch.where(short, high, t)
    assert cfs.found.all()
    assert torch.allclose(cfs.x_cf.double(), x + low[:, None] * W, atol=1e-3)


def test_a_larger_shift_in_mind_holds_under_more_shifts() -> None:
    model = linear()
    x = refused()
    generator = torch.Generator().manual_seed(0)
    dw = (2 * torch.rand(500, D, generator=generator) - 1) * 0.3
    db = (2 * torch.rand(500, generator=generator) - 1) * 0.3
    held = list[float]()
    for delta in (0.0, 0.1, 0.3):
        e = hf.ROAR(delta=delta, lam=0.8).fit(model, points(50))
        cfs = e.explain(model, x, 1)
        assert cfs.found.all()
        held.append(float((cfs.x_cf @ (W + dw).T + B + db > 0).float().mean()))
    assert held[0] < held[1] < held[2]
    assert held[2] > 0.99


def test_both_classes_of_a_line_are_mirror_images() -> None:
    there = linear()
    back = linear(-W, -B)
    e = hf.ROAR().fit(there, points(50))
    x = refused()
    assert torch.allclose(e.explain(there, x, 1).x_cf, e.explain(back, x, 0).x_cf, atol=1e-6)
    # any other class
    assert torch.allclose(e.explain(there, x, 1).x_cf, e.explain(there, x).x_cf, atol=1e-6)


def test_a_linear_model_of_many_classes_is_used_exactly() -> None:
    model = hf.Model.of(seeded(nn.Sequential(nn.Linear(D, 4)), 3), BOX, classes=[*"abcd"])
    x = points(60)
    e = hf.ROAR(delta=0.05, lam=0.05).fit(model, x)
    for name in "abcd":
        cfs = e.explain(model, x, name)
        assert cfs.found[(model.predict(cfs.before) != name).to_numpy()].mean() > 0.95
    assert e.explain(model, x).found.all()


# ---- planes by LIME


def mixed() -> tuple[hf.Model, pd.DataFrame, hf.Schema]:
    """Numbers between categories, one of them wide enough for the products in blocks."""
    table = mixed_table(400)
    table.insert(3, "town", [f"t{i % 37}" for i in range(400)])
    schema = hf.Schema.infer(table)
    return hf.Model.of(seeded(mlp(schema.width, (16,), 1)).double(), schema), table, schema


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize(("tail", "cells"), [(0, 1 << 17), (32, 4000), (1000, 1 << 17)])
def test_planes_are_those_of_ridge_on_the_same_neighbors(
    monkeypatch: pytest.MonkeyPatch, intercept: bool, tail: int, cells: int
) -> None:
    monkeypatch.setattr(lime, "TAIL", tail)
    monkeypatch.setattr(
        lime, "rows_per_chunk", lambda row, most=cells, **how: rows_per_chunk(row, most, **how)
    )
    monkeypatch.setattr(lime, "SCORED", cells)
    model, table, schema = mixed()
    x = schema.encode(table, torch.float64)
    shares = shares_of(x, schema.encoding(torch.float64))
    d = schema.width
    samples = 300
    problem = problem_of(model, x[:N])
    with model.eval_mode():
        plane = fit_planes(
            problem, shares, samples=samples, noise=0.1, kernel=0.75, ridge=1.0, intercept=intercept
        )
        z = torch.empty(N, samples, d).double()
        r2 = Neighbors.of(problem.feasible.encoding, shares, 0.1).draw(problem, z)
        logit = (
            model(z.flatten(0, 1))[:, 1]
            .clamp(-math.log(999999), math.log(999999))
            .reshape(N, samples)
        )
    assert torch.allclose(r2, (z - problem.x[:, None]).square().sum(2))
    k = torch.sqrt(torch.exp(-r2 / (0.75 * math.sqrt(d)) ** 2))
    for i in range(N):
        ridge = Ridge(alpha=1.0, fit_intercept=intercept, solver="cholesky").fit(
            z[i], logit[i], sample_weight=k[i]
        )
        assert np.allclose(ridge.coef_, plane.w[i], atol=1e-8)
        assert float(plane.b[i]) == pytest.approx(float(ridge.intercept_), abs=1e-8)


def test_a_plane_by_hand() -> None:
    """Two neighbours 1 and 2 with gaps 1 and 4, weights 1 and 1/2, ridge 1: w = (1 + 4) / (1 + 2 +
    1)."""
    z = torch.tensor([[[1.0], [2.0]]])
    y = torch.tensor([[1.0, 4.0]])
    k = torch.tensor([[1.0, 0.5]])
    w, b = weighted_ridge(z.clone(), y, k, [(0, 1, False)], 1.0, False)
    assert (float(w), float(b)) == pytest.approx((1.25, 0.0))
    # With an intercept: means 4/3 and 2, w = (1/3 * 1 + 1/2 * 2/3 * 2) / (1/9 + 1/2 * 4/9 + 1) = 1
    # / (4/3)
    w, b = weighted_ridge(z.clone(), y, k, [(0, 1, False)], 1.0, True)
    assert (float(w), float(b)) == pytest.approx((0.75, 2 - 0.75 * 4 / 3))


def test_neighbors_are_drawn_as_the_paper_says() -> None:
    rng = np.random.default_rng(0)
    table = pd.DataFrame(
        {
            "a": rng.random(500),
            "c": rng.choice([*"xyz"], 500, p=[0.6, 0.3, 0.1]),
            "b": rng.random(500),
        }
    )
    schema = hf.Schema.infer(table)
    layout = schema.encoding(torch.float64)
    x = schema.encode(table, torch.float64)
    shares = shares_of(x, layout)
    assert torch.allclose(shares[layout.one_hot], x[:, layout.one_hot].mean(0))
    model = hf.Model.of(seeded(mlp(schema.width, (4,), 1)).double(), schema)
    assert [b[2] for b in blocks_of(layout)] == [False, True, False]
    problem = problem_of(model, x[:16])
    z = torch.empty(16, 5000, schema.width).double()
    again = torch.empty(1, 5000, schema.width).double()
    Neighbors.of(layout, shares, 0.1).draw(problem, z)
    assert (z[..., layout.one_hot].sum(2) == 1).all()
    assert torch.allclose(
        z[..., layout.one_hot].mean(1), shares[layout.one_hot].expand(16, -1), atol=0.03
    )
    numbers = ~layout.one_hot
    low = layout.seen_low[numbers]
    high = layout.seen_high[numbers]
    own = problem.x[:, None, numbers]
    assert ((z[..., numbers] >= low) & (z[..., numbers] <= high)).all()
    step = (z[..., numbers] - own) / (high - low)
    # clipping is rare
    inside = (((own - low) / (high - low) > 0.4) & ((own - low) / (high - low) < 0.6)).squeeze(1)
    spread = step.std(1)[inside]
    assert len(spread)
    assert torch.allclose(spread, torch.full_like(spread, 0.1), atol=0.004)
    Neighbors.of(layout, shares, 0.1).draw(problem[torch.tensor([5])], again)
    assert torch.equal(again[0], z[5])


def test_planes_of_a_line_are_the_line() -> None:
    model = linear()
    x = refused(16)
    with model.eval_mode():
        problem = problem_of(model, x)
        plane = fit_planes(
            problem,
            torch.zeros(D),
            samples=3000,
            noise=0.5,
            kernel=0.75,
            ridge=1e-3,
            intercept=True,
        )
    assert torch.allclose(plane.w, W.expand(16, -1), atol=1e-2)
    assert torch.allclose(plane.b, torch.full((16,), B), atol=1e-2)


def test_roar_lime_is_set_as_in_the_paper() -> None:
    """Paper: guo2023 Baseline ROAR-LIME."""
    e = hf.ROAR.lime()
    assert (e.samples, e.noise, e.kernel, e.ridge, e.intercept) == (5000, 0.1, 0.75, 1.0, False)
    assert (e.optimizer, e.lr, e.steps, e.lam, e.distance, e.delta) == (
        "rmsprop",
        0.1,
        50,
        0.5,
        "mse",
        0.1,
    )
    assert hf.ROAR.lime(delta=0.2).delta == 0.2


def test_wrong_settings_are_named() -> None:
    wrong = {"norm": "l1", "distance": 2, "linear": "exact", "relax": "hard", "optimizer": "newton"}
    wrong |= {
        "delta": -1.0,
        "lam": -1.0,
        "tolerance": -1.0,
        "steps": 0,
        "restarts": 0,
        "samples": 0,
    }
    wrong |= dict.fromkeys(("lr", "noise", "kernel", "ridge"), 0.0)
    refuses(hf.ROAR, linear(), points(4), wrong)
