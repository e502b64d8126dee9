"""ECCCo against its formulas worked out by hand, against a plain loop with autograd, and what must
never happen."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor, nn

import holdfast as hf
from holdfast.methods._energy import decay
from holdfast.methods._guided import GuidedWalk
from holdfast.methods.eccco import set_size
from holdfast.nn.architecture import mlp
from support.tables import mixed_schema, mixed_table, problem_of, seeded
from support.torch_models import Opaque

D = 5
WIDE = hf.Schema.box(D, -50, 50)


def points(n: int, d: int = D, seed: int = 0) -> Tensor:
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed))


def linear(k: int, seed: int = 0) -> nn.Sequential:
    return nn.Sequential(seeded(nn.Linear(D, k), seed))


# ---- the weight of the energy


@pytest.mark.parametrize(
    ("steps", "first", "second", "last", "total"),
    [
        (30, 0.05359, 0.0372, 0.0046, 0.37),
        (50, 0.0744, None, 0.0057, 0.78),
        (100, 0.0940, None, 0.0061, 1.72),
    ],
)
def test_decay_as_in_the_authors_code(
    steps: int, first: float, second: float | None, last: float, total: float
) -> None:
    phi = decay(steps)
    assert len(phi) == steps
    assert float(phi[0]) == pytest.approx(first, abs=5e-5)
    assert second is None or float(phi[1]) == pytest.approx(second, abs=5e-5)
    assert float(phi[-1]) == pytest.approx(last, abs=1e-4)
    assert float(phi.sum()) == pytest.approx(total, abs=0.006)
    assert (phi[1:] < phi[:-1]).all()


def test_a_dozen_steps_have_no_energy() -> None:
    assert (decay(12) == 0).all()
    assert (decay(13) > 0).all()


# ---- steps


@pytest.mark.parametrize("k", [2, 3])
def test_steps_on_a_linear_model_have_a_closed_form(k: int) -> None:
    """g = W^T (S - e_t) + lam sign(x' - x) + energy phi_k (-1 + 2e-3 M_t) W_t, phi_1 = 0.05359 for
    T = 30."""
    net = linear(k).double()
    model = hf.Model.of(net, WIDE)
    x = points(9).double()
    how = hf.ECCCo(steps=30, lam=0.01, lr=0.1, tau=0.99)
    w = net[0].weight.detach()
    b = net[0].bias.detach()
    with model.eval_mode():
        problem = problem_of(model, x, k - 1)
        walk = GuidedWalk(how, problem)
        z = x
        for phi in (0.0535887, 0.0372041):
            m = z @ w.T + b
            own = torch.zeros(9, k).double()
            own[:, k - 1] = 1
            g = (torch.softmax(m, 1) - own) @ w + 0.01 * torch.sign(z - x)
            g = g + (5.0 * phi * (-1 + 2e-3 * m[:, k - 1 :])) * w[k - 1]
            walk.step(problem, walk.z, 0 if phi > 0.05 else 1)
            assert torch.allclose(walk.z, z - 0.1 * g, atol=2e-6, rtol=0)
            z = walk.z


def plain_search(
    net: nn.Module, x: Tensor, t: int, how: hf.ECCCo, low: float, high: float
) -> tuple[Tensor, int]:
    """The search for one row as the specification prints it, by autograd and without any of our
    parts."""
    b = round(how.steps / 25)
    z = x.clone()
    q = getattr(how, "q_", 0.0)
    for k in range(1, how.steps + 1):
        with torch.no_grad():
            if torch.softmax(net(z[None]), 1)[0, t] >= how.tau:
                return z, k - 1
        z = z.detach().requires_grad_()
        m = net(z[None])[0]
        s = torch.softmax(m, 0)
        phi = b / 10 * (b + k) ** -0.9
        loss = (
            -torch.log_softmax(m, 0)[t]
            + how.lam * (z - x).abs().sum()
            + how.energy * phi * (-m[t] + 1e-3 * m[t] ** 2)
        )
        if how.conformal and s[t] >= 0.5:
            omega = torch.sigmoid((s - q) / how.temperature).sum() - 1
            loss = loss + how.conformal * omega.clamp_min(0)
        (g,) = torch.autograd.grad(loss, z)
        z = (z.detach() - how.lr * g).clamp(low, high)
    return z.detach(), how.steps


@pytest.mark.parametrize("k", [2, 3, 5])
@pytest.mark.parametrize(
    "settings", [{}, {"energy": 20.0, "lam": 0.05}, {"conformal": 2.0, "alpha": 0.3}]
)
def test_answers_are_those_of_a_plain_loop(k: int, settings: dict[str, Any]) -> None:
    """Paper: altmeyer2025 Generator ECCo."""
    net = seeded(mlp(D, (32,), k), 7).double()
    model = hf.Model.of(net, hf.Schema.box(D, -2, 2))
    x = points(40, seed=1).double().clamp(-2, 2)
    how = hf.ECCCo(steps=40, lr=0.2, tau=0.8, **settings).fit(model, points(99, seed=2).double())
    rows = net(x).argmax(1) != 1
    cfs = how.explain(model, x[rows], 1)
    took = set[int]()
    for i, row in enumerate(x[rows]):
        z, steps = plain_search(net, row, 1, how, -2.0, 2.0)
        assert torch.allclose(cfs.x_cf[i], z, atol=1e-9, rtol=0), i
        took.add(steps)
    assert len(took) >= 4  # rows stop at different steps, and leave the batch on the way
    assert cfs.found.any()


def test_without_energy_it_is_generic() -> None:
    """Paper: altmeyer2025 Generator Generic."""
    model = hf.Model.of(seeded(mlp(D, (8,), 2), 3), WIDE)
    x = points(50)
    ours = hf.ECCCo(energy=0.0, tau=0.5, steps=300).explain(model, x)
    theirs = hf.Descent.generic(steps=300).explain(model, x)
    assert ours.found.mean() > 0.8
    assert (ours.found == theirs.found).all()
    assert torch.allclose(ours.x_cf, theirs.x_cf, atol=1e-3)


def test_energy_gets_lower_with_its_weight() -> None:
    net = seeded(mlp(D, (16,), 3), 2)
    model = hf.Model.of(net, WIDE)
    x = points(60)
    rows = net(x).argmax(1) != 2
    logit = [
        float(hf.ECCCo(energy=w, tau=0.95, steps=60).explain(model, x[rows], 2).scores[:, 2].mean())
        for w in (0, 5, 20)
    ]
    assert logit[0] < logit[1] < logit[2]


# ---- when a row stops


def test_a_row_stops_at_the_first_point_that_is_sure_enough() -> None:
    net = seeded(mlp(D, (8,), 3))
    model = hf.Model.of(net, WIDE)
    x = points(30)
    cfs = hf.ECCCo(steps=300, tau=0.7).explain(model, x, 1)
    p = torch.softmax(cfs.scores, 1)[:, 1]
    mature = torch.as_tensor(cfs.found) & (p >= 0.7 - 1e-6)
    assert mature.sum() > 15
    assert (p[mature] < 0.8).all()


def test_half_and_two_classes_mean_that_the_class_changes() -> None:
    model = hf.Model.of(seeded(mlp(D, (8,), 2), 3), WIDE)
    x = points(40)
    with model.eval_mode():
        problem = problem_of(model, x, 1)
        walk = GuidedWalk(hf.ECCCo(tau=0.5), problem)
        for t in range(50):
            p = walk.z
            mature = walk.step(problem, p, t).squeeze(1) < 0
            assert torch.equal(mature, problem.met(p)), t


@pytest.mark.parametrize("target", [hf.Target(1, probability=0.9), hf.Target(1, margin=2.5)])
def test_what_the_target_asks_for_is_waited_for(target: hf.Target) -> None:
    model = hf.Model.of(linear(3), WIDE)
    x = points(30)
    cfs = hf.ECCCo(steps=400, tau=0.6).explain(model, x, target)
    assert cfs.found.sum() > 15
    early = hf.ECCCo(steps=400, tau=0.6).explain(model, x, 1)
    both = torch.as_tensor(cfs.found & early.found)
    assert (cfs.goal.gap(cfs.scores)[both] > cfs.goal.gap(early.scores)[both]).all()


def test_a_target_that_asks_for_less_than_nothing_changes_nothing() -> None:
    model = hf.Model.of(linear(3), WIDE)
    x = points(30)
    cfs = hf.ECCCo().explain(model, x, hf.Target(1, margin=-1e4))
    assert not cfs.found.any()


def test_a_row_that_never_matures_counts_if_the_model_agrees() -> None:
    model = hf.Model.of(seeded(mlp(D, (8,), 2), 3), hf.Schema.box(D, -1, 1))
    x = points(60).clamp(-1, 1)
    cfs = hf.ECCCo(steps=60, tau=0.999).explain(model, x, 1)
    p = torch.softmax(cfs.scores, 1)[:, 1]
    assert ((p < 0.999) & torch.as_tensor(cfs.found)).any()
    assert torch.equal(torch.as_tensor(cfs.found), (p > 0.5) & (cfs.x_cf != cfs.x).any(1))


# ---- classes


def test_a_class_of_its_own_for_every_row() -> None:
    net = seeded(mlp(D, (16,), 3), 2)
    model = hf.Model.of(net, WIDE, classes=["a", "b", "c"])
    x = points(45)
    now = net(x).argmax(1)
    wish = (now + 1 + torch.arange(45) % 2) % 3
    cfs = hf.ECCCo(steps=300).explain(model, x, [["a", "b", "c"][i] for i in wish.tolist()])
    assert cfs.found.all()
    assert torch.equal(cfs.scores.argmax(1), wish)


def test_any_other_class_is_the_likeliest_other_one() -> None:
    net = seeded(mlp(D, (16,), 3), 2)
    model = hf.Model.of(net, WIDE)
    x = points(45)
    second = net(x).topk(2).indices[:, 1]
    cfs = hf.ECCCo(steps=300).explain(model, x)
    assert cfs.found.all()
    assert torch.equal(cfs.scores.argmax(1), second)


def test_one_logit_has_no_energy_for_class_0() -> None:
    model = hf.Model.of(seeded(mlp(D, (8,), 1), 6), WIDE)
    x = points(60)
    for target, same in ((0, True), (1, False)):
        with_ = hf.ECCCo(energy=20.0, tau=0.9).explain(model, x, target)
        without = hf.ECCCo(energy=0.0, tau=0.9).explain(model, x, target)
        assert with_.found.any()
        assert torch.equal(with_.x_cf, without.x_cf) == same


def test_any_module_will_do() -> None:
    net = seeded(mlp(D, (8,), 3), 5)
    x = points(30)
    by_hand = hf.ECCCo().explain(hf.Model.of(net, WIDE), x, 0)
    by_autograd = hf.ECCCo().explain(hf.Model.of(Opaque(net), WIDE), x, 0)
    assert torch.allclose(by_hand.x_cf, by_autograd.x_cf, atol=1e-5)


# ---- rows on their own


@pytest.mark.parametrize("outputs", [1, 2, 3])
@pytest.mark.parametrize("settings", [{}, {"conformal": 2.0, "alpha": 0.3}])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_an_answer_does_not_depend_on_other_rows(
    outputs: int, settings: dict[str, Any], dtype: torch.dtype
) -> None:
    net = seeded(mlp(D, (8,), outputs), 5).to(dtype)
    model = hf.Model.of(net, hf.Schema.box(D, -2, 2))
    x = points(77).to(dtype).clamp(-2, 2)
    how = hf.ECCCo(lr=0.2, tau=0.8, **settings).fit(model, points(99, seed=2).to(dtype))
    whole = how.explain(model, x, 1)
    assert whole.found.any()
    # In double precision the product with an odd number of columns itself depends on where in the
    # batch a row is.
    error = 1e-12 if outputs == 3 and dtype == torch.float64 else 0.0
    for size in (1, 3, 9, 40):
        again = how.explain(model, x, 1, batch_size=size).x_cf
        assert (again - whole.x_cf).abs().max() <= error, size
    for rows in (torch.arange(5), torch.arange(30, 77), torch.tensor([60, 2, 33])):
        assert (how.explain(model, x[rows], 1).x_cf - whole.x_cf[rows]).abs().max() <= error


def test_a_row_without_a_gradient_harms_no_other() -> None:
    class Broken(nn.Module):
        """The slope of the square root at 0 is not a number."""

        def forward(self, x: Tensor) -> Tensor:
            return torch.stack([x[:, 1] * 0, x[:, 0] - 1 + 0 * x[:, 1].abs().sqrt()], 1)

    model = hf.Model.of(Broken(), WIDE)
    x = points(20) - 2
    alone = hf.ECCCo(steps=200).explain(model, x[1:], 1)
    x[0, 1] = 0
    cfs = hf.ECCCo(steps=200).explain(model, x, 1)
    assert not cfs.found[0]
    assert cfs.x_cf.isfinite().all()
    assert torch.equal(cfs.x_cf[1:], alone.x_cf)
    assert cfs.found[1:].all()


# ---- what may change


def test_immutables_directions_and_bounds_hold_at_every_step() -> None:
    table = pd.DataFrame(points(60, 4).double().clamp(-1, 1).numpy(), columns=list("abcd"))
    schema = hf.Schema.infer(table, fixed=["a"], up=["b"], down=["c"], bounds={"d": (-1, 1)})
    model = hf.Model.of(seeded(mlp(4, (8,), 2), 1), schema)
    x = schema.encode(table)
    reach = schema.feasible(x)
    # some start on a bound
    assert ((x[:, 3] == reach.hi[:, 3]) | (x[:, 3] == reach.lo[:, 3])).any()
    with model.eval_mode():
        for target in (0, 1):
            problem = problem_of(model, x, target)
            walk = GuidedWalk(hf.ECCCo(lr=1.0, tau=0.99), problem)
            for t in range(50):
                walk.step(problem, walk.row(problem.feasible), t)
                z = walk.row(problem.feasible)
                assert torch.equal(z[:, 0], x[:, 0])
                assert (z[:, 1] >= x[:, 1]).all()
                assert (z[:, 2] <= x[:, 2]).all()
                assert ((z >= reach.lo) & (z <= reach.hi)).all()
            assert (z[:, 1:] != x[:, 1:]).any(0).all()


def test_categories_are_whole_at_every_step() -> None:
    table = mixed_table(80)
    schema = mixed_schema(table)
    model = hf.Model.of(seeded(mlp(schema.width, (16,), 2)), schema)
    x = schema.encode(table)
    with model.eval_mode():
        problem = problem_of(model, x, 1)
        walk = GuidedWalk(hf.ECCCo(lr=0.5), problem)
        for t in range(10):
            p = walk.row(problem.feasible)
            for a, b in problem.feasible.encoding.spans:
                assert (p[:, a:b].sum(1) == 1).all()
                assert ((p[:, a:b] == 0) | (p[:, a:b] == 1)).all()
            walk.step(problem, p, t)


# ---- the conformal set


def test_set_size_against_finite_differences() -> None:
    scores = points(30, 4, 3).double() * 2
    q = 0.2
    temperature = 0.15
    omega, slope = set_size(torch.softmax(scores, 1), q, temperature)
    c = torch.sigmoid((torch.softmax(scores, 1) - q) / temperature)
    assert torch.allclose(omega, (c.sum(1) - 1).clamp_min(0))
    h = 1e-6
    for j in range(4):
        e = torch.zeros(4).double()
        e[j] = h
        up = set_size(torch.softmax(scores + 1 * e, 1), q, temperature)[0]
        down = set_size(torch.softmax(scores + (-1) * e, 1), q, temperature)[0]
        assert torch.allclose(slope[:, j], (up - down) / (2 * h), atol=1e-7)
    assert (omega > 0).any()


def test_no_slope_where_the_set_is_small() -> None:
    omega, slope = set_size(torch.tensor([[0.6, 0.3, 0.1]]), 0.7, 0.05)
    assert omega.item() == 0
    assert (slope == 0).all()


def test_the_quantile_by_hand() -> None:
    """One logit f = x, so S_1 = sigmoid(x): with alpha = 0.3 and 9 rows q is the 3rd smallest S of
    the true class."""
    net = nn.Sequential(nn.Linear(1, 1))
    with torch.no_grad():
        net[0].weight.fill_(1.0)
        net[0].bias.zero_()
    model = hf.Model.of(net, hf.Schema.box(1, -9, 9))
    x = torch.arange(-4.0, 5.0)[:, None]
    e = hf.ECCCo(alpha=0.3).fit(model, x, [1] * 9)
    assert e.q_ == pytest.approx(float(torch.sigmoid(torch.tensor(-2.0))))
    # Without classes those that the model says: S = sigmoid(|x|), and class 0 at x = 0.
    assert hf.ECCCo(alpha=0.3).fit(model, x).q_ == pytest.approx(
        float(torch.sigmoid(torch.tensor(1.0)))
    )
    assert hf.ECCCo(alpha=0.05).fit(model, x, [1] * 9).q_ == 0.0


def test_the_set_covers_as_often_as_it_says() -> None:
    net = seeded(mlp(D, (8,), 3), 5)
    model = hf.Model.of(net, WIDE)
    x = points(8000)
    p = torch.softmax(net(x), 1).detach()
    y = torch.multinomial(p, 1, generator=torch.Generator().manual_seed(0)).squeeze(1)
    e = hf.ECCCo(alpha=0.1).fit(model, x[:4000], y[:4000])
    inside = p[4000:].gather(1, y[4000:, None]) >= e.q_
    assert float(inside.float().mean()) == pytest.approx(0.9, abs=0.02)


def test_the_set_gets_smaller_with_its_weight() -> None:
    net = seeded(mlp(D, (16,), 4), 7)
    model = hf.Model.of(net, WIDE)
    x = points(80)
    rows = net(x).argmax(1) != 3
    sizes = list[float]()
    for weight in (0.0, 5.0):
        e = hf.ECCCo(energy=0.0, tau=0.99, steps=30, conformal=weight, alpha=0.1).fit(
            model, points(500, seed=1)
        )
        s = torch.softmax(e.explain(model, x[rows], 3).scores, 1)
        sizes.append(float(set_size(s, e.q_, e.temperature)[0].mean()))
    assert 0 < sizes[1] < sizes[0]


# ---- wrong settings


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"lam": -1.0}, "lam must be 0 or more .*-1"),
        ({"energy": -2.0}, "energy must be 0 or more .*-2"),
        ({"tau": 0.3}, r"tau must be at least 0.5 and below 1, got 0.3"),
        ({"tau": 1.0}, "tau must be .* got 1"),
        ({"lr": 0.0}, "lr must be positive, got 0"),
        ({"steps": 0}, "steps must be at least 1, got 0"),
        ({"conformal": -1.0}, "conformal must be 0 or more .*-1"),
        ({"alpha": 1.5}, "alpha must lie between 0 and 1, got 1.5"),
        ({"temperature": 0.0}, "temperature must be positive, got 0"),
        (
            {"conformal": 0.5},
            r"conformal=0.5 needs calibration rows; call .fit\(model, X, y\) first",
        ),
        ({"energy": float("nan")}, "energy must be a finite number"),
    ],
)
def test_wrong_settings_are_named(wrong: dict[str, float], words: str) -> None:
    model = hf.Model.of(linear(2), WIDE)
    x = points(4)
    with pytest.raises(hf.HoldfastError, match=words):
        hf.ECCCo(**wrong).explain(model, x, 1)


def test_wrong_calibration_is_named() -> None:
    model = hf.Model.of(linear(2), WIDE)
    with pytest.raises(hf.HoldfastError, match="at least one data row"):
        hf.ECCCo().fit(model, points(0))
    with pytest.raises(hf.HoldfastError, match="3 targets for 4 rows"):
        hf.ECCCo().fit(model, points(4), [0, 1, 0])
    with pytest.raises(hf.HoldfastError, match="no class 'yes'"):
        hf.ECCCo().fit(model, points(1), ["yes"])
    with pytest.raises(hf.HoldfastError, match="alpha must lie"):
        hf.ECCCo(alpha=0.0).fit(model, points(4))


def test_a_model_without_gradients_is_refused() -> None:
    blind = hf.Model.of(lambda frame: np.full(len(frame), 0.5), WIDE)
    with pytest.raises(hf.HoldfastError, match="follows gradients"):
        hf.ECCCo().explain(blind, points(3), 1)
