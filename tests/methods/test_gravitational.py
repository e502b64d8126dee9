"""Gravitational and ClaPROAR against autograd and against what they reduce to."""

from typing import Any

import pandas as pd
import pytest
import torch
from torch import Tensor, nn

import holdfast as hf
from holdfast.methods.gravitational import GravityWalk
from holdfast.nn.architecture import mlp
from support.tables import mixed_schema, mixed_table, problem_of, seeded

D = 4
WIDE = hf.Schema.box(D, -50, 50)


def points(n: int, d: int = D, seed: int = 0) -> Tensor:
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed))


def blobs(n: int) -> tuple[Tensor, Tensor]:
    """Two clouds, one around (2, 2, 0, 0) and one around (-2, -2, 0, 0), and which of them a row is
    from."""
    y = torch.arange(n) % 2
    return points(n) * 0.5 + (2.0 * y - 1)[:, None] * torch.tensor([2.0, 2.0, 0.0, 0.0]), y


def first_column() -> hf.Model:
    """A model that looks at one column only, so that nothing but data says where the others should
    be."""
    net = nn.Sequential(nn.Linear(D, 2))
    with torch.no_grad():
        net[0].weight.copy_(torch.tensor([[-1.0, 0, 0, 0], [1.0, 0, 0, 0]]))
        net[0].bias.zero_()
    return hf.Model.of(net, WIDE)


# ---- Gravitational


def test_answers_are_drawn_to_the_wanted_class() -> None:
    x, y = blobs(400)
    model = first_column()
    ask = x[y == 0][:50]
    there = x[y == 1]
    e = hf.Gravitational(lam=0.001, tau=0.9).fit(model, x, y)
    drawn = e.explain(model, ask, 1)
    generic = hf.ECCCo(energy=0.0, tau=0.9).explain(model, ask, 1)
    assert drawn.found.all()
    assert generic.found.all()
    far = [torch.cdist(c.x_cf, there, p=1.0).mean(1) for c in (drawn, generic)]
    assert (far[0] < far[1]).all()
    # the column that the model does not look at
    assert (drawn.x_cf[:, 1] > generic.x_cf[:, 1]).all()


def test_a_larger_weight_draws_nearer() -> None:
    x, y = blobs(400)
    model = first_column()
    there = x[y == 1]
    far = [
        float(
            torch.cdist(
                hf.Gravitational(external=w, lr=0.02, tau=0.9, steps=200)
                .fit(model, x, y)
                .explain(model, x[y == 0], 1)
                .x_cf,
                there,
                p=1.0,
            ).mean()
        )
        for w in (0.0, 0.1, 1.0)
    ]
    assert far[0] > far[1] > far[2]


@pytest.mark.parametrize("neighbors", [1, 7, 50])
def test_the_step_follows_the_gradient_of_the_objective(neighbors: int) -> None:
    net = seeded(mlp(D, (8,), 3), 2).double()
    model = hf.Model.of(net, WIDE)
    data = points(200, seed=1).double()
    x = points(9).double()
    y = torch.arange(200) % 3
    how = hf.Gravitational(neighbors=neighbors, lam=0.3, external=0.7, lr=0.1, tau=0.99).fit(
        model, data, y
    )
    wish = torch.arange(9) % 3
    with model.eval_mode():
        problem = problem_of(model, x, wish)
        walk = GravityWalk(how, problem)
        for t in range(3):
            start = walk.z.clone()
            walk.step(problem, walk.z, t)
            z = start.clone().requires_grad_()
            with torch.enable_grad():
                loss = (
                    nn.functional.cross_entropy(net(z), wish, reduction="sum")
                    + 0.3 * (z - x).abs().sum()
                )
                for i in range(9):
                    pool = data[y == wish[i]]
                    near = pool[(pool - x[i]).abs().sum(1).argsort()[:neighbors]]
                    loss = loss + 0.7 * (z[i] - near).abs().sum(1).mean()
                (g,) = torch.autograd.grad(loss, z)
            assert torch.allclose(walk.z, start - 0.1 * g, atol=1e-12)


def test_few_neighbours_and_none() -> None:
    """Three rows of class 1 draw together; class 2 has none, and answers are those of the other
    terms."""
    net = seeded(mlp(D, (8,), 3), 2)
    model = hf.Model.of(net, WIDE)
    data = points(40, seed=1)
    y = torch.zeros(40, dtype=torch.int64)
    y[:3] = 1
    few = hf.Gravitational(neighbors=50).fit(model, data, y).explain(model, points(20), 1)
    exact = hf.Gravitational(neighbors=3).fit(model, data, y).explain(model, points(20), 1)
    assert torch.equal(few.x_cf, exact.x_cf)
    none = hf.Gravitational(lam=0.001).fit(model, data, y).explain(model, points(20), 2)
    assert torch.equal(none.x_cf, hf.ECCCo(energy=0.0).explain(model, points(20), 2).x_cf)


def test_no_more_than_a_thousand_rows_of_a_class_are_kept() -> None:
    x, y = blobs(3000)
    model = first_column()
    one = hf.Gravitational(seed=0).fit(model, x, y)
    two = hf.Gravitational(seed=0).fit(model, x, y)
    three = hf.Gravitational(seed=1).fit(model, x, y)
    assert torch.bincount(one.labels_).tolist() == [1000, 1000]
    assert torch.equal(one.data_, two.data_)
    assert not torch.equal(one.data_, three.data_)
    # Without classes those that the model says, which are the same here.
    assert torch.equal(hf.Gravitational().fit(model, x).data_, one.data_)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_an_answer_does_not_depend_on_other_rows(dtype: torch.dtype) -> None:
    table = mixed_table(200)
    schema = mixed_schema(table)
    model = hf.Model.of(seeded(mlp(schema.width, (16,), 2)).to(dtype), schema)
    for e in (hf.Gravitational(external=0.05, lr=0.3).fit(model, table), hf.ClaPROAR(lr=0.3)):
        whole = e.explain(model, table, 1)
        assert whole.found.any()
        for size in (1, 9, 70):
            assert torch.equal(e.explain(model, table, 1, batch_size=size).x_cf, whole.x_cf)


# ---- ClaPROAR


def test_claproar_is_generic_with_other_weights() -> None:
    """(1 + w) CE + lam l1 with step size r is CE + lam / (1 + w) l1 with step size (1 + w) r."""
    net = seeded(mlp(D, (16,), 3), 2).double()
    model = hf.Model.of(net, WIDE)
    x = points(40).double()
    ours = hf.ClaPROAR(lam=0.03, external=0.5, lr=0.1).explain(model, x, 0)
    theirs = hf.ECCCo(energy=0.0, lam=0.02, lr=0.15).explain(model, x, 0)
    assert ours.found.any()
    assert torch.allclose(ours.x_cf, theirs.x_cf, atol=1e-12)


# ---- what cannot work


@pytest.mark.parametrize(
    ("method", "wrong", "words"),
    [
        (hf.Gravitational, {"external": -1.0}, "external must be 0 or more .*-1"),
        (hf.Gravitational, {"neighbors": 0}, "neighbors must be at least 1, got 0"),
        (hf.Gravitational, {"tau": 0.1}, "tau must be at least 0.5"),
        (hf.ClaPROAR, {"external": -0.5}, "external must be 0 or more .*-0.5"),
        (hf.ClaPROAR, {"lr": -1.0}, "lr must be positive, got -1"),
    ],
)
def test_wrong_settings_are_named(method: Any, wrong: dict[str, float], words: str) -> None:
    x, y = blobs(20)
    model = first_column()
    e = method(**wrong)
    with pytest.raises(hf.HoldfastError, match=words):
        (e.fit(model, x, y) if e.needs_data else e).explain(model, x, 1)


def test_wrong_data_is_named() -> None:
    x, _ = blobs(20)
    model = first_column()
    with pytest.raises(hf.HoldfastError, match="Gravitational needs data"):
        hf.Gravitational().explain(model, x, 1)
    with pytest.raises(hf.HoldfastError, match="at least one data row, got none"):
        hf.Gravitational().fit(model, x[:0])
    other = hf.Model.of(seeded(mlp(3, (8,), 2)), hf.Schema.box(3))
    e = hf.Gravitational().fit(model, x)
    with pytest.raises(hf.HoldfastError, match="4 columns, the model takes 3; call"):
        e.explain(other, pd.DataFrame(points(2, 3).numpy(), columns=other.schema.names), 1)
