"""RBR: the inner problems against brute force and the paper's loop, the odds, the ball, the
boundary."""

import math

import pytest
import torch
from torch import Tensor

import holdfast as hf
from holdfast.methods.rbr import around, f_op, f_pe, kernels, odds, optimistic, pessimistic
from holdfast.nn.architecture import mlp
from support import tables
from support.refused import refuses
from support.tables import N, mixed_schema, mixed_table, problem_of, seeded

D = 4
torch.set_num_threads(1)
BOX = hf.Schema.box(D)
C = torch.tensor([0.0, 0.1, 0.5, 0.9, 1.5, 3.0, 10.0]).double()
SETTINGS = [(e, s, p) for e in (0.0, 0.5, 1.0) for s in (0.5, 1.0) for p in (1, 2, 20)]


def points(n: int, seed: int = 0) -> Tensor:
    return tables.points(n, D, seed)


@pytest.fixture(scope="module")
def model() -> hf.Model:
    return hf.Model.of(seeded(mlp(D, (16,), 1), 5), BOX)


def refused(model: hf.Model, n: int) -> Tensor:
    x = points(6 * n, 1)
    with model.eval_mode():
        return x[model(x).argmax(1) == 0][:n]


# ---- the inner problems


@pytest.mark.parametrize(("e", "s", "p"), SETTINGS)
def test_inner_problems_are_those_of_brute_force(e: float, s: float, p: int) -> None:
    """Paper: guo2023 Baseline RBR."""
    side = torch.linspace(0, 1, 301).double()
    a, b = torch.cartesian_prod(side, side).unbind(1)
    inside = a.square() + b.square() <= 1 + 1e-12
    a = a[inside]
    b = b[inside]
    op = optimistic(C, e, s, p)
    pe = pessimistic(C, e, s, p)
    rough_op = f_op(C[:, None], e * a, e * b, s, p).amin(1)
    rough_pe = f_pe(C[:, None], e / math.sqrt(p) * a, e / math.sqrt(p) * b, s, p, e).amin(1)
    for exact, rough in ((op[0], rough_op), (pe[0], rough_pe)):
        assert (exact <= rough + 1e-9).all()
        assert (rough - exact <= 0.02 * (1 + exact.abs())).all()


@pytest.mark.parametrize("e", [0.5, 1.0])
def test_the_papers_projected_gradient_does_no_better(e: float) -> None:
    s = 1.0
    p = 3
    for size, f, exact in (
        (e, lambda v: f_op(C, v[:, 0], v[:, 1], s, p), optimistic(C, e, s, p)),
        (e / math.sqrt(p), lambda u: f_pe(C, u[:, 0], u[:, 1], s, p, e), pessimistic(C, e, s, p)),
    ):
        v = torch.zeros(len(C), 2).double()
        best = f(v)
        for _ in range(1000):
            v.requires_grad_()
            (g,) = torch.autograd.grad(f(v).sum(), v)
            v = (v.detach() - g / math.sqrt(1000)).clamp_min(0)
            v = v * (size / v.norm(dim=1, keepdim=True).clamp_min(1e-12)).clamp_max(1.0)
            best = torch.minimum(best, f(v))
        assert (exact[0] <= best + 1e-9).all()
        assert (best - exact[0]).median() < 0.02  # and mostly comes close


def test_values_by_hand() -> None:
    c = torch.tensor([2.0]).double()
    # e = 0: log s + c^2 / (2 s^2) + (p - 1) log s
    assert float(optimistic(c, 0.0, 1.0, 3)[0]) == pytest.approx(2.0)
    assert float(optimistic(c, 0.0, 2.0, 3)[0]) == pytest.approx(3 * math.log(2) + 0.5)
    assert float(pessimistic(c, 0.0, 1.0, 3)[0]) == pytest.approx(
        -2 - 2 * math.log(1 + math.sqrt(5e-7))
    )
    assert float(pessimistic(c, 0.0, 2.0, 1)[0]) == pytest.approx(-math.log(2) - 0.5)
    # c <= e: v_1 = c makes the distance vanish, and v_2 = 0 is best
    near = optimistic(torch.tensor([0.0, 0.3, 0.5]).double(), 0.5, 1.0, 4)
    assert torch.allclose(near[0], torch.zeros(3).double(), atol=1e-9)
    assert torch.allclose(near[1], torch.zeros(3).double(), atol=1e-6)
    # c = 1.5, e = 0.5, s = 1, v_2 = 0: v_1 = 0.5 leaves 1 / 2, and no v_2 > 0 does better
    assert float(optimistic(torch.tensor([1.5]).double(), 0.5, 1.0, 4)[0]) == pytest.approx(
        0.5, abs=1e-6
    )


@pytest.mark.parametrize(("e", "s", "p"), SETTINGS)
def test_between_the_nodes_values_and_slopes_are_exact(e: float, s: float, p: int) -> None:
    c = s * torch.rand(200, generator=torch.Generator().manual_seed(0)).double() * 12
    h = 1e-4
    curves = kernels(e, e, s, p, torch.float64)
    for curve, solve in zip(curves, (optimistic, pessimistic), strict=True):
        value, slope = curve(c)
        exact = solve(c, e, s, p)
        assert torch.allclose(value, exact[0], atol=2e-4)
        assert (slope - exact[1]).abs().median() < 1e-4
        assert (slope - exact[1]).abs().max() < 0.05
        assert torch.allclose((curve(c + h)[0] - curve(c - h)[0]) / (2 * h), slope, atol=2e-2)
    assert curves[0](torch.tensor([1e4]).double())[0].isfinite().all()


# ---- the odds


def test_without_doubt_the_odds_are_those_of_two_kernel_density_estimates() -> None:
    n = N
    m = 30
    s = 0.7
    z = points(n).double()
    samples = points(n * m, 2).double().reshape(n, m, D)
    pos = samples[..., 0] > 0
    J, _ = odds(z, samples, pos, kernels(0.0, 0.0, s, D, torch.float64))
    log_density = torch.distributions.MultivariateNormal(
        torch.zeros(D).double(), s * s * torch.eye(D).double()
    )
    logs = log_density.log_prob(z[:, None] - samples)
    kde = torch.logsumexp(logs.masked_fill(pos, -math.inf), 1) - torch.logsumexp(
        logs.masked_fill(~pos, -math.inf), 1
    )
    # The constants of the densities cancel, but for the 1e-6 by which F_pe keeps its root away from
    # 0.
    extra = (D - 1) * math.log((s + math.sqrt(1e-6 / (D - 1))) / s)
    assert torch.allclose(J, kde + extra, atol=1e-6)


@pytest.mark.parametrize(("op", "pe"), [(0.0, 0.0), (0.5, 1.0), (1.0, 0.5)])
def test_gradient_of_the_odds(op: float, pe: float) -> None:
    z = points(N).double()
    samples = points(N * 30, 2).double().reshape(N, 30, D)
    pos = samples[..., 0] > 0
    kernel = kernels(op, pe, 1.0, D, torch.float64)
    way = points(N, 3).double()
    _, g = odds(z, samples, pos, kernel)
    h = 1e-5
    slope = (
        odds(z + h * way, samples, pos, kernel)[0] - odds(z - h * way, samples, pos, kernel)[0]
    ) / (2 * h)
    assert torch.allclose(slope, (g * way).sum(1), atol=1e-6)


def test_odds_with_samples_of_one_kind_only() -> None:
    z = points(2)
    samples = points(10, 2).reshape(2, 5, D)
    kernel = kernels(0.5, 0.5, 1.0, D, torch.float32)
    pos = torch.tensor([[True] * 5, [False] * 5])
    J, g = odds(z, samples, pos, kernel)
    assert J.isfinite().all()
    assert g.isfinite().all()


# ---- the samples and the boundary


def test_samples_fill_the_ball_evenly(model: hf.Model) -> None:
    x = points(20)
    with model.eval_mode():
        samples = around(problem_of(model, x), x, 0.2, 500)
    r = (samples - x[:, None]).norm(dim=2) / 0.2
    assert r.max() <= 1 + 1e-5
    assert abs(float((r**D).mean()) - 0.5) < 0.02  # r^d is uniform
    assert (samples.mean(1) - x).abs().max() < 0.03


@pytest.mark.parametrize("scan", [1, 7, 100])
def test_the_boundary_is_the_nearest_flip_on_all_segments(model: hf.Model, scan: int) -> None:
    data = points(60, 2)
    x = refused(model, 8)
    e = hf.RBR(neighbors=15, scan=scan).fit(model, data)
    with model.eval_mode():
        problem = problem_of(model, x)
        edge = e._boundary(problem)
        wanted = data[model(data).argmax(1) == 1]
        for i in range(8):
            near = wanted[(wanted - x[i]).abs().sum(1).argsort()[:15]]
            t = torch.arange(1, scan + 1) / scan
            tried = (x[i] + t[:, None, None] * (near - x[i])).flatten(0, 1)
            far = (tried - x[i]).abs().sum(1)[model(tried).argmax(1) == 1]
            assert float((edge[i] - x[i]).abs().sum()) == pytest.approx(float(far.min()), rel=1e-5)
        assert problem.met(edge).all()


# ---- the search


@pytest.mark.parametrize("delta_plus", [0.0, 0.2, 1.0])
def test_answers_lie_in_the_l1_ball(model: hf.Model, delta_plus: float) -> None:
    data = points(300, 2)
    x = refused(model, 40)
    e = hf.RBR(neighbors=50, steps=100, delta_plus=delta_plus).fit(model, data)
    cfs = e.explain(model, x, 1)
    with model.eval_mode():
        r0 = (e._boundary(problem_of(model, x)) - x).abs().sum(1)
    assert ((cfs.x_cf - x).abs().sum(1) <= r0 + delta_plus + 1e-4).all()
    if delta_plus:
        assert cfs.found.mean() > 0.9


def test_farther_answers_have_better_odds(model: hf.Model) -> None:
    """More room lets the answers go deeper into the wanted class."""
    data = points(300, 2)
    x = refused(model, 40)
    gaps = list[float]()
    for delta_plus in (0.2, 1.0):
        e = hf.RBR(e_op=0.0, e_pe=0.0, neighbors=50, delta_plus=delta_plus).fit(model, data)
        cfs = e.explain(model, x, 1)
        with model.eval_mode():
            gaps.append(float(model(cfs.x_cf)[:, 1].mean()))
    assert gaps[1] > gaps[0] > 0


def test_categories_are_whole_and_the_relaxed_boundary_is_nearer() -> None:
    table = mixed_table(300)
    schema = mixed_schema(table)
    net = hf.Model.of(seeded(mlp(schema.width, (16,), 2)), schema, classes=["no", "yes"])
    rows = table[((net.predict(table) == "no") & (table["job"] != "c")).to_numpy()].head(20)
    x = schema.encode(rows, net.dtype)
    found = list[float]()
    far = list[Tensor]()
    for relaxed in (False, True):
        e = hf.RBR(neighbors=30, scan=20, steps=50, relaxed=relaxed).fit(net, table)
        cfs = e.explain(net, rows, "yes")
        found.append(cfs.found.mean())
        with net.eval_mode():
            problem = problem_of(net, x, "yes")
            edge = e._boundary(problem)
            far.append((edge - x).abs().sum(1))
            if not relaxed:
                assert torch.equal(problem.feasible.project(edge), edge)
    assert found[0] >= found[1]
    assert far[1].mean() < far[0].mean()


def test_a_class_that_no_data_row_has_is_not_found(model: hf.Model) -> None:
    x = refused(model, 10)
    cfs = hf.RBR().fit(model, x).explain(model, x, 1)
    assert not cfs.found.any()
    assert torch.equal(cfs.x_cf, x)


def test_wrong_settings_are_named(model: hf.Model) -> None:
    wrong = {"e_op": -1.0, "e_pe": -1.0, "delta_plus": -1.0, "sigma": 0.0, "radius": 0.0}
    wrong |= dict.fromkeys(("samples", "neighbors", "scan", "steps"), 0)
    refuses(hf.RBR, model, points(4), wrong)
