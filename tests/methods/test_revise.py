"""REVISE against descent on the rows themselves, against autograd, and what cannot change."""

from typing import Any

import pytest
import torch
from torch import nn

import holdfast as hf
from holdfast.distances import l1
from holdfast.methods._autoencoder import TableAutoencoder
from holdfast.methods._autoencoder_training import autoencoder
from holdfast.methods.revise import LatentWalk
from holdfast.nn.architecture import mlp
from support.tables import Latent, mixed_schema, mixed_table, points, problem_of, seeded

D = 5
BOX = hf.Schema.box(D)
SMALL: dict[str, Any] = {"hidden": (16,), "latent": 4, "epochs": 30}


def identity(d: int = D) -> TableAutoencoder:
    """An autoencoder with dec(enc(x)) = x."""
    nets: list[nn.Sequential] = []
    for _ in range(2):
        layer = nn.Linear(d, d)
        with torch.no_grad():
            layer.weight.copy_(torch.eye(d))
            layer.bias.zero_()
        nets.append(nn.Sequential(layer).requires_grad_(False))
    return TableAutoencoder(nets[0], nets[1], torch.zeros(0, 0, dtype=torch.int64))


@pytest.mark.parametrize("norm", [1, 2])
def test_without_a_manifold_it_is_descent(norm: Any) -> None:
    model = hf.Model.of(seeded(mlp(D, (8,), 2), 3), BOX)
    x = points(30)
    how: dict[str, Any] = {"norm": norm, "lam": 0.05, "lr": 0.03, "steps": 120}
    ours = hf.REVISE(autoencoder=identity(), **how).fit(model, x).explain(model, x)
    theirs = hf.Descent(restarts=1, **how).explain(model, x)
    assert ours.found.mean() > 0.8
    assert (ours.found == theirs.found).all()
    assert torch.allclose(ours.x_cf, theirs.x_cf, atol=1e-3)


@pytest.mark.parametrize("norm", [1, 2])
def test_the_first_step_follows_the_gradient_of_the_objective(norm: Any) -> None:
    """Paper: altmeyer2025 Generator REVISE."""
    table = mixed_table(100)
    schema = mixed_schema(table, rules=[], max_changes=0)
    model = hf.Model.of(seeded(mlp(schema.width, (16,), 2)), schema)
    given = schema.encoding().fixed.nonzero().squeeze(1)
    net = autoencoder(table, schema, kind="vae", given=given, **SMALL)
    x = schema.encode(table)[:16]
    how = hf.Descent(norm=norm, lam=0.3, optimizer="sgd", lr=1.0, steps=3)
    with model.eval_mode():
        problem = problem_of(model, x)
        walk = LatentWalk(how, problem, net)
        start = walk.z.clone()
        p, u = walk.advance(problem, 0)
        assert torch.equal(u.squeeze(1) < 0, problem.met(p))
        assert torch.allclose(p, problem.feasible.project(net.decode(start, x)))
        leaf = start.clone().requires_grad_()
        with torch.enable_grad():
            y = net.decode(leaf, x)
            scores = model.module(y)
            loss = nn.functional.softplus(problem.level - (scores[:, 1] - scores[:, 0]))
            away = (y - x).abs() if norm == 1 else (y - x).square()
            total = (loss + 0.3 * (away * schema.encoding().weight).sum(1)).sum()
            (grad,) = torch.autograd.grad(total, leaf)
    assert torch.allclose(start - walk.z, grad, atol=1e-4)


def test_answers_stay_near_the_data() -> None:
    """Rows on a line in the plane, a model that looks at one column: descent leaves the line,
    REVISE follows it."""
    t = points(500, 1)
    x = torch.cat([t, t], 1) + 0.05 * points(500, 2, 1)
    net = nn.Sequential(nn.Linear(2, 1))
    with torch.no_grad():
        net[0].weight.copy_(torch.tensor([[2.0, 0.0]]))
        net[0].bias.fill_(-1.0)
    model = hf.Model.of(net, hf.Schema.box(2))
    asked = x[(x[:, 0] < 0.3) & (x[:, 0] > -1)][:40]
    e = hf.REVISE(lam=0.01, steps=200, hidden=(32,), latent=1, epochs=60).fit(model, x)
    ours = e.explain(model, asked, 1)
    theirs = hf.Descent(lam=0.01).explain(model, asked, 1)
    assert ours.found.mean() > 0.9
    off = [(c.x_cf[:, 0] - c.x_cf[:, 1]).abs()[c.found].mean() for c in (ours, theirs)]
    assert off[0] < 0.5 * off[1]


def test_a_larger_weight_keeps_answers_nearer() -> None:
    model = hf.Model.of(seeded(mlp(D, (8,), 2), 3), BOX)
    x = points(60)
    net = autoencoder(
        points(400, seed=1), BOX, kind="vae", hidden=(32,), latent=5, beta=0.001, epochs=60
    )
    near = hf.REVISE(lam=0.1, steps=200, autoencoder=net).fit(model, x).explain(model, x)
    far = hf.REVISE(lam=0.0, steps=200, autoencoder=net).fit(model, x).explain(model, x)
    both = near.found & far.found
    assert both.sum() > 20
    cost = [l1.value(c.x_cf - c.x)[both].mean() for c in (near, far)]
    assert cost[0] <= cost[1]


# ---- what cannot change


@pytest.fixture(scope="module")
def mixed() -> Latent:
    return Latent.of()


def test_immutables_are_given_and_stay(mixed: Latent) -> None:
    mixed.check_given(hf.REVISE(steps=100, lr=0.2, lam=0.01, **SMALL).fit(mixed.model, mixed.table))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_an_answer_does_not_depend_on_the_batch(dtype: torch.dtype, mixed: Latent) -> None:
    table = mixed.table
    schema = mixed.schema
    model = hf.Model.of(seeded(mlp(schema.width, (16,), 2)).to(dtype), schema)
    e = hf.REVISE(steps=40, lr=0.2, lam=0.01, **SMALL).fit(model, table)
    whole = e.explain(model, table, 1)
    assert whole.found.any()
    parts = [
        e.explain(model, table.iloc[i : i + 70], 1, batch_size=9) for i in range(0, len(table), 70)
    ]
    assert torch.equal(torch.cat([p.x_cf for p in parts]), whole.x_cf)
    twin = hf.REVISE(steps=40, lr=0.2, lam=0.01, **SMALL).fit(model, table)
    assert torch.equal(twin.explain(model, table, 1).x_cf, whole.x_cf)


def test_wrong_settings_are_named() -> None:
    model = hf.Model.of(seeded(mlp(D, (8,), 2), 3), BOX)
    x = points(4)
    for wrong in ({"lam": -1.0}, {"lr": 0.0}, {"steps": 0}, {"norm": 3}):
        with pytest.raises(hf.HoldfastError, match=next(iter(wrong))):
            hf.REVISE(autoencoder=identity(), **wrong).fit(model, x).explain(model, x, 1)
    with pytest.raises(hf.HoldfastError, match="3 columns"):
        hf.REVISE(autoencoder=identity(3)).fit(model, x).explain(model, x, 1)
    blind = hf.Model.of(lambda frame: frame.to_numpy().sum(1) * 0 + 0.5, BOX)
    with pytest.raises(hf.HoldfastError, match="gradients"):
        hf.REVISE(autoencoder=identity()).fit(model, x).explain(blind, x, 1)
