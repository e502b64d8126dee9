"""Metrics of plausibility and faithfulness: by hand, against closed forms, and row by row."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import holdfast as hf
from holdfast._core.rows import rows_per_chunk
from holdfast.evaluation.attribution import integrated_gradients, sensitivity
from holdfast.evaluation.plausibility import (
    drawn,
    energy,
    energy_differential,
    implausibility,
    langevin,
    mmd,
    redundancy,
    unfaithfulness,
)
from holdfast.nn.architecture import mlp
from support.tables import seeded

BOX = hf.Schema.box(3, -4, 4)


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def linear(weights: list[list[float]], bias: list[float]) -> hf.Model:
    """Scores W x + b, in double precision."""
    layer = nn.Linear(len(weights[0]), len(weights)).double()
    with torch.no_grad():
        layer.weight.copy_(torch.tensor(weights))
        layer.bias.copy_(torch.tensor(bias))
    return hf.Model.of(layer, hf.Schema.box(len(weights[0]), -9, 9))


W = [[1.0, -2.0, 0.5], [0.0, 1.0, 1.0], [-1.0, 0.0, 2.0]]
LINEAR = linear(W, [0.1, 0.2, 0.3])


class Bowls(nn.Module):
    """Class k has the energy |x - c_k|^2, so its density is a normal one around c_k."""

    def __init__(self) -> None:
        super().__init__()
        self.centers = nn.Parameter(torch.tensor([[2.0, 2.0, 2.0], [-1.0, 0.0, 1.0]]))

    def forward(self, x: Tensor) -> Tensor:
        return -(x[:, None] - self.centers).square().sum(2)


# ---- distances


def test_implausibility_by_hand() -> None:
    """Paper: altmeyer2025 Definition 3.1, Metric implausibility."""
    x = torch.tensor([[0.0, 0.0], [1.0, 2.0]])
    data = torch.tensor([[1.0, 0.0], [0.0, 3.0], [2.0, 2.0]])
    # Distances 1, 3, 4 and 2, 2, 1.
    torch.testing.assert_close(
        implausibility(x, data), torch.tensor([8 / 3, 5 / 3], dtype=torch.float64)
    )


def test_implausibility_is_the_mean_of_all_distances() -> None:
    x = normal(50, 7)
    data = normal(300, 7, seed=1)
    # ties
    x[:5] = data[:5]
    data[10:20, 2] = 1.0
    torch.testing.assert_close(
        implausibility(x, data), torch.cdist(x, data, p=1).mean(1), rtol=1e-12, atol=1e-12
    )
    assert implausibility(x[:0], data).shape == (0,)


def test_a_row_has_the_same_implausibility_alone() -> None:
    x = normal(9, 3).float()
    data = normal(40, 3, seed=1).float()
    alone = torch.cat([implausibility(row[None], data) for row in x])
    torch.testing.assert_close(implausibility(x, data), alone, rtol=1e-14, atol=0)


def test_only_so_many_data_rows_are_drawn() -> None:
    x = normal(4, 3)
    data = normal(1500, 3, seed=1)
    chosen = drawn(data, 1000, 5)
    assert len(chosen.unique(dim=0)) == 1000
    torch.testing.assert_close(implausibility(x, data, seed=5), torch.cdist(x, chosen, p=1).mean(1))
    assert not torch.equal(implausibility(x, data, seed=5), implausibility(x, data, seed=6))
    torch.testing.assert_close(
        implausibility(x, data, most=2000), torch.cdist(x, data, p=1).mean(1)
    )


def test_redundancy_by_hand() -> None:
    x = torch.tensor([[0.0, 1.0, 2.0, 3.0], [0.0, 0.0, 0.0, 0.0]])
    moved = x + torch.tensor([[0.0, 1e-6, 2e-5, 1.0], [0.0, 0.0, 0.0, 0.0]])
    assert redundancy(x, moved).tolist() == [0.5, 1.0]


# ---- discrepancy


def by_loops(a: Tensor, b: Tensor, length: float) -> float:
    """The formula, term by term."""

    def k(u: Tensor, v: Tensor) -> float:
        return math.exp(-float((u - v).square().sum()) / (2 * length**2))

    m = len(a)
    n = len(b)
    own = sum(k(a[i], a[j]) for i in range(m) for j in range(m) if i != j) / (m * (m - 1))
    other = sum(k(b[i], b[j]) for i in range(n) for j in range(n) if i != j) / (n * (n - 1))
    return own + other - 2 * sum(k(u, v) for u in a for v in b) / (m * n)


@pytest.mark.parametrize("length", [0.7, 5.0])
def test_mmd_is_its_formula(length: float) -> None:
    """Paper: altmeyer2025 Metric MMD."""
    a = normal(6, 2)
    b = normal(5, 2, seed=1) + 1
    assert float(mmd(a, b, length=length)) == pytest.approx(by_loops(a, b, length), abs=1e-12)


@pytest.mark.parametrize("length", [1.0, 5.0])
def test_mmd_of_two_gaussians_is_the_closed_form(length: float) -> None:
    """Paper: altmeyer2025 Metric MMD."""
    # The difference of two draws is N(delta, 2 s^2 I), so the mean kernel is
    # (l^2 / (l^2 + 2 s^2))^(d/2) exp(-delta^2 / (2 (l^2 + 2 s^2))), with delta = 0 within a set.
    s = 0.8
    shift = 1.5
    d = 2
    n = 1500
    a = s * normal(n, d)
    b = s * normal(n, d, seed=1) + torch.tensor([shift, 0.0])
    wide = length**2 + 2 * s**2
    same = (length**2 / wide) ** (d / 2)
    expected = 2 * same * (1 - math.exp(-(shift**2) / (2 * wide)))
    assert float(mmd(a, b, length=length, most=n)) == pytest.approx(expected, rel=0.05)


def test_mmd_of_the_same_is_about_nothing_and_unbiased() -> None:
    a = normal(80, 3)
    assert abs(float(mmd(a, a))) < 0.01
    assert float(mmd(a, a)) < 0  # each row is in both sets, and that counts on one side only
    assert float(mmd(a, a, clamp=True)) == 0
    # 400 pairs of sets of one distribution
    many = mmd(normal(400, 60, 3), normal(400, 60, 3, seed=1))
    assert (many < 0).any()
    assert (many > 0).any()
    assert abs(float(many.mean())) < 3 * float(many.std()) / 20
    assert float(many.abs().mean()) < 0.01


def test_mmd_of_many_pairs_is_that_of_each() -> None:
    a = normal(4, 9, 3)
    b = normal(4, 7, 3, seed=1)
    each = torch.stack([mmd(x, y) for x, y in zip(a, b, strict=True)])
    torch.testing.assert_close(mmd(a, b), each, rtol=1e-9, atol=1e-12)
    kept = torch.arange(9) < torch.tensor([[9], [4], [2], [1]])
    out = mmd(a, b, kept=kept)
    for i in range(3):
        torch.testing.assert_close(out[i], mmd(a[i][kept[i]], b[i]), rtol=1e-9, atol=1e-12)
    assert bool(out[3].isnan())


def test_mmd_looks_at_a_hundred_rows() -> None:
    a = normal(250, 3)
    b = normal(130, 3, seed=1)
    torch.testing.assert_close(mmd(a, b, seed=4), mmd(drawn(a, 100, 4), drawn(b, 100, 4)))
    assert float(mmd(a, b, seed=4)) != float(mmd(a, b, seed=5))


# ---- energies


def test_energies_of_a_linear_model_by_hand() -> None:
    x = torch.tensor([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]).double()
    torch.testing.assert_close(energy(LINEAR, x, 0), torch.tensor([-1.1, 1.9]).double())
    torch.testing.assert_close(
        energy(LINEAR, x, torch.tensor([2, 1])), torch.tensor([0.7, -1.2]).double()
    )
    # Data has the energies -1.1 and 1.9, mean 0.4; the answer (0, 0, 1) has -0.6.
    answer = torch.tensor([[0.0, 0.0, 1.0]]).double()
    torch.testing.assert_close(
        energy_differential(LINEAR, answer, x, 0), torch.tensor([1.0]).double()
    )


def test_langevin_on_a_linear_model_drifts_and_spreads_as_the_formula_says() -> None:
    # Steps do not depend on x: the end is start + sum e_t / 2 w - sum e_t u_t, so means and
    # variances are known.
    data = normal(500, 3)
    n = 20000
    steps = 50
    e = [0.2 * (10 + t) ** -0.9 for t in range(1, steps + 1)]
    x = langevin(LINEAR, 0, n, data, steps=steps, scale=0.2)
    low = float((data.mean(0) - 2 * data.std(0)).min())
    high = float((data.mean(0) + 2 * data.std(0)).max())
    mean = (low + high) / 2 + sum(e) / 2 * torch.tensor(W[0]).double()
    var = (high - low) ** 2 / 12 + sum(v * v for v in e)
    assert (x.mean(0) - mean).abs().max() < 4 * math.sqrt(var / n)
    torch.testing.assert_close(x.var(0), torch.full((3,), var).double(), rtol=0.03, atol=0)
    # By default the scale is twice the width of the start.
    wide = langevin(LINEAR, 0, n, data, steps=2)
    spread = (high - low) ** 2 * (1 / 12 + 4 * sum((10 + t) ** -1.8 for t in (1, 2)))
    torch.testing.assert_close(wide.var(0), torch.full((3,), spread).double(), rtol=0.03, atol=0)


def test_langevin_goes_where_the_energy_is_low() -> None:
    model = hf.Model.of(Bowls(), BOX)
    data = normal(300, 3).float()
    both = langevin(model, torch.tensor([0, 1]), 200, data, steps=400, scale=1.0)
    assert both.shape == (2, 200, 3)
    for k, center in enumerate(([2.0, 2.0, 2.0], [-1.0, 0.0, 1.0])):
        assert (both[k].mean(0) - torch.tensor(center)).abs().max() < 0.1
        start = langevin(model, k, 200, data, steps=1, scale=1e-9)
        assert float(energy(model, both[k], k).mean()) < 0.2 * float(energy(model, start, k).mean())
        torch.testing.assert_close(langevin(model, k, 200, data, steps=400, scale=1.0), both[k])


def test_unfaithfulness_is_the_distance_to_those_samples() -> None:
    """Paper: altmeyer2025 Definition 3.1."""
    model = hf.Model.of(Bowls(), BOX)
    data = normal(300, 3).float()
    x = normal(7, 3, seed=2).float()
    target = torch.tensor([0, 1, 1, 0, 1, 0, 0])
    chains: dict[str, Any] = {"steps": 200, "scale": 1.0, "seed": 3}
    value = unfaithfulness(model, x, target, data, n=50, **chains)
    for k in (0, 1):
        samples = langevin(model, k, 50, data, **chains)
        expected = torch.cdist(x[target == k].double(), samples.double(), p=1).mean(1)
        torch.testing.assert_close(value[target == k], expected, rtol=1e-4, atol=1e-4)
    # A row's value is its own, whatever classes others ask for.
    alone = torch.cat(
        [
            unfaithfulness(model, x[i : i + 1], target[i : i + 1], data, n=50, **chains)
            for i in range(7)
        ]
    )
    torch.testing.assert_close(value, alone, rtol=1e-5, atol=1e-5)
    near = unfaithfulness(model, torch.tensor([[2.0, 2.0, 2.0]]), 0, data, n=50, **chains)
    far = unfaithfulness(model, torch.tensor([[-1.0, 0.0, 1.0]]), 0, data, n=50, **chains)
    assert float(near) < 0.5 * float(far)


# ---- integrated gradients


def test_integrated_gradients_of_a_linear_model_are_weights_times_differences() -> None:
    """Paper: altmeyer2025 Metric integrated gradients."""
    x = normal(5, 3)
    b = normal(3, seed=1)
    target = torch.tensor([0, 1, 2, 2, 1])
    values = integrated_gradients(LINEAR, x, target, b, points=3)
    torch.testing.assert_close(values, (x - b) * torch.tensor(W).double()[target])


def test_integrated_gradients_add_up_to_the_difference_of_scores() -> None:
    net = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 3)).double()
    model = hf.Model.of(seeded(net), BOX)
    x = normal(6, 3)
    b = normal(6, 3, seed=1)
    target = torch.tensor([0, 1, 2, 0, 1, 2])
    total = energy(model, b, target) - energy(model, x, target)
    coarse = integrated_gradients(model, x, target, b, points=5).sum(1)
    fine = integrated_gradients(model, x, target, b, points=200).sum(1)
    torch.testing.assert_close(fine, total, rtol=1e-4, atol=1e-5)
    assert (coarse - total).abs().max() > (fine - total).abs().max()
    alone = torch.cat(
        [integrated_gradients(model, x[i : i + 1], target[i : i + 1], b[i]) for i in range(6)]
    )
    torch.testing.assert_close(integrated_gradients(model, x, target, b), alone)


def test_sensitivity_is_normalised_as_in_the_paper() -> None:
    first = torch.tensor([0])
    second = torch.tensor([1])
    few: dict[str, Any] = {"repeats": 4, "samples": 20}
    x = normal(30, 2)
    labels = torch.ones(30, dtype=torch.int64)
    # Class 1 ignores the first of two columns: g = (0, g2), and |g| / (max - min) is 0 and 1.
    model = linear([[0.0, 0.0], [0.0, 3.0]], [0.0, 0.0])
    assert sensitivity(model, x, labels, first, **few).tolist() == [0.0] * 4
    assert sensitivity(model, x, labels, second, **few).tolist() == [1.0] * 4
    # With both weights equal, rows at (5, 1) and baselines b: |5 - b1| / |4 - b1 + b2|.
    model = linear([[0.0, 0.0], [2.0, 2.0]], [0.0, 0.0])
    points = torch.tensor([[5.0, 1.0]]).double().expand(30, 2)
    share = sensitivity(model, points, labels, first, repeats=50, samples=5)
    assert (share >= 4 / 6).all()
    assert (share <= 6 / 2).all()
    assert share.std() > 0.05  # every round has a baseline of its own
    # With three columns, min-max: the largest has 1, the smallest 0, and the average over both is a
    # half.
    model = linear([[0.0, 0.0, 0.0], [9.0, 0.0, 1.0]], [0.0, 0.0])
    points = torch.tensor([[5.0, 5.0, 5.0]]).double().expand(30, 3)
    assert sensitivity(model, points, labels, first, **few).tolist() == [1.0] * 4
    assert sensitivity(model, points, labels, second, **few).tolist() == [0.0] * 4
    assert sensitivity(model, points, labels, torch.tensor([0, 1]), **few).tolist() == [0.5] * 4


# ---- manners


def test_the_callers_random_numbers_and_model_are_left_alone() -> None:
    module = nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.5), nn.Linear(4, 2)).train()
    model = hf.Model.of(module, BOX)
    x = normal(5, 3).float()
    data = normal(1200, 3).float()
    target = torch.zeros(5, dtype=torch.int64)
    before = torch.get_rng_state(), np.random.get_state()[1].copy()
    weights = [p.clone() for p in module.parameters()]
    implausibility(x, data)
    mmd(data, data)
    unfaithfulness(model, x, 1, data, n=5, steps=3)
    energy_differential(model, x, data, 1)
    sensitivity(model, x, target, torch.tensor([0]), repeats=2, samples=3)
    assert torch.equal(torch.get_rng_state(), before[0])
    assert (np.random.get_state()[1] == before[1]).all()
    assert module.training
    assert all(p.requires_grad and p.grad is None for p in module.parameters())
    assert all(torch.equal(a, b) for a, b in zip(weights, module.parameters(), strict=True))


X3 = torch.zeros(4, 3).double()
TREE = hf.Model.of(lambda frame: np.full(len(frame), 0.5), BOX)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: implausibility(X3, torch.zeros(4, 2)), r"\(4, 3\) and \(4, 2\)"),
        (
            lambda: implausibility(X3, X3[:0]),
            "at least 1 rows .* got 0; pass more of the wanted class",
        ),
        (lambda: implausibility(X3, X3, most=0), "most must be at least 1, got 0"),
        (lambda: mmd(X3[:1], X3), "at least 2 rows .* got 1"),
        (lambda: mmd(X3, X3, length=0), "length must be positive, got 0"),
        (lambda: mmd(X3, X3, kept=torch.ones(3)), r"kept must be \(4,\).* got \(3,\)"),
        (
            lambda: redundancy(X3, X3[:2]),
            r"an answer for each row, got shapes \(4, 3\) and \(2, 3\)",
        ),
        (lambda: energy(LINEAR, X3, 3), "number of a class, 0 to 2, got 3"),
        (lambda: energy(LINEAR, X3, torch.tensor([0, 1])), r"one for each of 4 rows, got \(2,\)"),
        (lambda: langevin(TREE, 0, 5, X3), "this model has none"),
        (lambda: langevin(LINEAR, 0, 0, X3), "n and steps must be at least 1, got 0 and 1000"),
        (lambda: langevin(LINEAR, 0, 5, X3[:1]), r"at least 2 rows, got shape \(1, 3\)"),
        (lambda: integrated_gradients(TREE, X3, torch.zeros(4).long(), X3[0]), "this one has none"),
        (
            lambda: integrated_gradients(LINEAR, X3, torch.full((4,), 7), X3[0]),
            "0 to 2, for each of 4 rows, got .*7",
        ),
        (
            lambda: integrated_gradients(LINEAR, X3, torch.zeros(4).long(), X3[0], points=0),
            "points .* got 0",
        ),
        (lambda: sensitivity(LINEAR, X3, torch.zeros(4).long(), torch.arange(0)), "got 0 of 3"),
        (
            lambda: sensitivity(LINEAR, X3, torch.zeros(4).long(), torch.arange(1), repeats=0),
            "got 0, 2500 and 4",
        ),
    ],
)
def test_errors_name_the_thing_the_value_and_the_fix(call: Callable[[], Any], words: str) -> None:
    with pytest.raises(hf.HoldfastError, match=words):
        call()


@pytest.mark.parametrize("points", [1, 7, 50])
@pytest.mark.parametrize(("hidden", "k"), [((), 3), ((9,), 3), ((9,), 1), ((9, 5), 3), ((9, 5), 1)])
def test_integrated_gradients_of_networks_are_those_along_the_way(
    hidden: tuple[int, ...], k: int, points: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = partial(rows_per_chunk, budget=4000)  # rows in parts, where they are walked
    monkeypatch.setattr("holdfast.evaluation.attribution.rows_per_chunk", few)
    module = seeded(mlp(6, hidden, k), 2)
    model = hf.Model.of(module, hf.Schema.box(6))
    x = torch.randn(40, 6, generator=torch.Generator().manual_seed(1))
    target = torch.arange(40) % max(k, 2)
    baseline = torch.linspace(-1, 1, 6)
    found = integrated_gradients(model, x, target, baseline, points=points)
    total = torch.zeros_like(x)
    for i in range(points):
        z = (baseline + (i + 0.5) / points * (x - baseline)).requires_grad_()
        raw = module(z)
        scores = raw if k > 1 else torch.cat([0 * raw, raw], 1)
        scores.gather(1, target[:, None]).sum().backward()
        assert z.grad is not None
        total += z.grad
    torch.testing.assert_close(found, (x - baseline) * total / points, rtol=1e-4, atol=1e-6)
    many = integrated_gradients(model, x, target, baseline.expand(40, 6), points=points)
    torch.testing.assert_close(many, found)
    still = integrated_gradients(model, baseline.expand(2, 6), target[:2], baseline, points=points)
    assert torch.equal(still, torch.zeros(2, 6))  # no way to go, and nothing divided by 0
    # The sensitivity has the mean of these over rows drawn with replacement.
    generator = torch.Generator().manual_seed(8)
    for share in sensitivity(
        model, x, target, torch.tensor([1, 4]), repeats=3, samples=25, points=points, seed=8
    ):
        rows = torch.randint(40, (25,), generator=generator)
        b = 2 * torch.rand(6, generator=generator) - 1
        g = integrated_gradients(model, x[rows], target[rows], b, points=points).double().mean(0)
        expected = ((g - g.min()) / (g.max() - g.min()))[[1, 4]].mean()
        torch.testing.assert_close(share, expected, rtol=1e-4, atol=1e-5)


def test_other_models_are_walked() -> None:
    net = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2)).double()
    model = hf.Model.of(seeded(net), BOX)
    x = normal(20, 3)
    target = torch.arange(20) % 2
    columns = torch.tensor([0])
    generator = torch.Generator().manual_seed(0)
    (share,) = sensitivity(model, x, target, columns, repeats=1, samples=9)
    rows = torch.randint(20, (9,), generator=generator)
    b = 2 * torch.rand(3, generator=generator) - 1
    g = integrated_gradients(model, x[rows], target[rows], b).mean(0)
    torch.testing.assert_close(share, (g[0] - g.min()) / (g.max() - g.min()))
