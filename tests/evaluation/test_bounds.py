"""Bounds that are corrected are never broken; as printed they are, or say nothing."""

import math
from fractions import Fraction

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from holdfast.distances import l2
from holdfast.errors import ModelError, SettingError
from holdfast.evaluation import bounds
from holdfast.nn.architecture import mlp
from holdfast.nn.ntk import NTK, kernel
from holdfast.training.ntk import attacked, fit_ntk
from support.tables import seeded


def gaussian(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def length(rows: Tensor) -> Tensor:
    return l2.value(rows)


def logistic_data(seed: int, n: int = 200, d: int = 5) -> tuple[Tensor, Tensor]:
    """Rows, and labels in {-1, +1} drawn from a logistic model."""
    x = gaussian(seed, n, d)
    w = gaussian(seed + 1, d)
    coin = torch.rand(n, generator=torch.Generator().manual_seed(seed + 2), dtype=torch.float64)
    return x, torch.where(coin < torch.sigmoid(2 * x @ w), 1.0, -1.0)


def descended(
    x: Tensor,
    y: Tensor,
    epsilon: float | Tensor,
    *,
    eta: float,
    steps: int,
    start: Tensor,
    batch: int = 0,
) -> Tensor:
    """(steps + 1, d) weights of gradient descent on mean_i log(1 + exp(-y w.x + epsilon |w|_1)),
    the exact worst case.

    epsilon: of all columns, or (d,) of each; batch: rows per step, 0 for all.
    """
    w = start.clone()
    path = [start.clone()]
    radius = epsilon * torch.ones_like(w)
    for t in range(steps):
        rows = torch.arange(batch) + t * batch if batch else torch.arange(len(x))
        xs = x[rows % len(x)]
        ys = y[rows % len(x)]
        part = torch.sigmoid(-(ys * (xs @ w) - (radius * w).abs().sum()))
        w = w - eta * (part[:, None] * (radius * w.sign() - ys[:, None] * xs)).mean(0)
        path.append(w)
    return torch.stack(path)


# ---- the step of SCFE


@pytest.mark.parametrize("lam", [0.01, 0.1, 1.0, 7.0])
def test_step_solves_its_problem(lam: float) -> None:
    """Paper: krishna2024 Definition 1, Eq. 6."""
    w = gaussian(0, 5)
    x = gaussian(1, 9, 5)
    s = 1.0
    m = s - x @ w
    zeta = bounds.scfe_step(w, m, lam)
    normal = torch.outer(w, w) + lam * torch.eye(5, dtype=torch.float64)
    assert torch.allclose(zeta @ normal, m[:, None] * w, rtol=1e-10, atol=1e-12)
    assert torch.allclose((x + zeta) @ w, s - m * lam / (lam + w @ w), rtol=1e-10)
    assert torch.allclose(
        length(zeta), bounds.step_length(w.square().sum().sqrt(), m, lam), rtol=1e-12
    )
    assert torch.allclose(bounds.scfe_step(w.expand(9, 5), m, lam), zeta, rtol=1e-12)


def test_step_is_the_limit_of_gradient_descent() -> None:
    w = gaussian(2, 4)
    x = gaussian(3, 6, 4)
    s = 1.0
    lam = 0.3
    z = torch.zeros_like(x)
    for _ in range(4000):
        z = z - 0.05 * (((x + z) @ w - s)[:, None] * w + lam * z)
    assert torch.allclose(z, bounds.scfe_step(w, s - x @ w, lam), rtol=1e-8, atol=1e-10)


def test_a_score_of_nought_is_never_reached() -> None:
    w = gaussian(4, 5)
    x = gaussian(5, 400, 5)
    refused = x[x @ w < 0]
    for lam in (1e-3, 1.0):
        assert ((refused + bounds.scfe_step(w, -(refused @ w), lam)) @ w < 0).all()
        # Valid exactly if s |w|^2 + lam f(x) > 0.
        f = refused @ w
        after = (refused + bounds.scfe_step(w, 1 - f, lam)) @ w
        assert ((after > 0) == (w @ w + lam * f > 0)).all()


def test_printed_step_has_a_factor_too_many() -> None:
    """Paper: krishna2024 Eq. 6."""
    w = gaussian(6, 5)
    m = gaussian(7, 9)
    for lam in (0.1, 1.0, 3.0):
        printed = bounds.scfe_step(w, m, lam, form="paper")
        right = bounds.scfe_step(w, m, lam)
        assert torch.allclose(printed, lam * right, rtol=1e-12)
        assert torch.allclose(printed, right) == (lam == 1)


def test_no_weights_no_step() -> None:
    zero = torch.zeros(3, dtype=torch.float64)
    assert bounds.scfe_step(zero, torch.ones(2).double(), 0.0).tolist() == [[0, 0, 0]] * 2


# ---- Lemma 1


@pytest.mark.parametrize("epsilon", [0.0, 0.02, 0.1, 0.3, 1.0])
@pytest.mark.parametrize("seed", range(4))
def test_lemma1_holds_at_every_step(seed: int, epsilon: float) -> None:
    """Paper: krishna2024 Lemma 1, Eq. 5."""
    x, y = logistic_data(seed, 60, 3 + seed)
    x = x * 10 ** (seed - 1.0)
    start = gaussian(seed + 50, x.shape[1]) * (seed % 2)
    for eta in (0.01, 0.5):
        clean = descended(x, y, 0.0, eta=eta, steps=200, start=start)
        robust = descended(x, y, epsilon, eta=eta, steps=200, start=start)
        apart = length(clean - robust)
        if epsilon == 0:
            assert (apart == 0).all()
        for t, far in enumerate(apart):
            assert not bounds.lemma1(x, eta=eta, steps=t, epsilon=epsilon).violations(far)


def test_lemma1_by_hand() -> None:
    """Paper: krishna2024 Lemma 1, Eq. 5."""
    x = torch.tensor([[3.0, 4.0], [0.0, 1.0]], dtype=torch.float64)
    bound = bounds.lemma1(x, eta=0.5, steps=4, epsilon=0.1)
    assert float(bound.value) == pytest.approx(2 * (3 + 0.1 * math.sqrt(2)), rel=1e-14)
    most = bounds.lemma1(x, eta=0.5, steps=4, epsilon=0.1, batches=True)
    assert float(most.value) == pytest.approx(2 * (5 + 0.1 * math.sqrt(2)), rel=1e-14)
    printed = bounds.lemma1(
        x, eta=0.5, steps=4, epsilon=0.1, y=torch.tensor([1.0, -1.0]).double(), form="paper"
    )
    by_hand = [2 * (5 + 0.1 * math.sqrt(2)), 2 * (-1 + 0.1 * math.sqrt(2))]
    assert printed.value.tolist() == pytest.approx(by_hand, rel=1e-14)
    assert printed.form == "paper"
    # below 0: no norm is
    assert printed.violations(torch.zeros(2).double()).tolist() == [False, True]


@pytest.mark.parametrize("epsilon", [0.1, 0.5])
def test_lemma1_for_steps_on_parts_of_the_rows(epsilon: float) -> None:
    x, y = logistic_data(8)
    x = x * torch.logspace(-1, 1, len(x), dtype=torch.float64)[:, None]
    start = torch.zeros(5, dtype=torch.float64)
    clean = descended(x, y, 0.0, eta=0.2, steps=300, start=start, batch=7)
    robust = descended(x, y, epsilon, eta=0.2, steps=300, start=start, batch=7)
    for t, far in enumerate(length(clean - robust)):
        assert not bounds.lemma1(x, eta=0.2, steps=t, epsilon=epsilon, batches=True).violations(far)


# ---- Theorems 1 and 2


@pytest.mark.parametrize("seed", range(4))
def test_a_thousand_random_problems(seed: int) -> None:
    """Paper: krishna2024 Theorem 1, Eq. 7."""
    n = 1000
    d = 2 + 3 * seed
    uniform = torch.rand(4, n, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    size = 10 ** (4 * uniform[0] - 2)
    near = 10 ** (3 * uniform[1] - 2)
    slack = 1 + uniform[2] * (uniform[3] > 0.5)
    w = gaussian(seed, n, d) * size[:, None]
    w_r = w + gaussian(seed + 10, n, d) * (size * near)[:, None]
    w_r[:20] = -w[:20]
    w_r[20:40] = 0
    x = gaussian(seed + 20, n, d) * 3
    s = gaussian(seed + 30, n) * 2
    m = s - (w * x).sum(1)
    m_r = s - (w_r * x).sum(1)
    a = length(w)
    b = length(w_r)
    drift = length(w - w_r) * slack
    for lam in (0.0, 0.01, 0.1, 1.0, 100.0):
        steps = bounds.scfe_step(w, m, lam), bounds.scfe_step(w_r, m_r, lam)
        for observed in (length(steps[0]) - length(steps[1]), length(steps[0] - steps[1])):
            known = bounds.theorem1(a, b, m, m_r, lam)
            unknown = bounds.theorem1_by_drift(a, m, length(x), drift, lam)
            second = bounds.theorem2(a, b, m, m_r, lam)
            assert not known.vacuous.any()
            for bound in (known, unknown, second):
                assert bound.form == "corrected"
                assert not bound.violations(observed).any()
                assert (bound.tightness(observed) <= 1 + 1e-12).all()
            assert not unknown.violations(known.value).any()  # what is known can only help
            assert bool(unknown.vacuous.any()) == (lam == 0)


finite = st.floats(-50, 50, allow_nan=False)
vectors = st.integers(1, 6).flatmap(
    lambda d: st.tuples(*[st.lists(finite, min_size=d, max_size=d)] * 3)
)


def exact(value: Fraction) -> Tensor:
    return torch.tensor([float(value)], dtype=torch.float64)


def hypot(v: list[float]) -> Tensor:
    return torch.tensor([math.hypot(*v)], dtype=torch.float64)


@settings(max_examples=1000, deadline=None)
@given(
    vectors,
    finite,
    st.sampled_from([0.0, 0.01, 0.1, 1.0, 100.0]) | st.floats(1e-6, 1e3),
    st.floats(1, 3),
)
def test_corrected_bounds_hold_on_any_problem(
    three: tuple[list[float], ...], score: float, lam: float, slack: float
) -> None:
    """Weights of both models, a row, the score aimed at, lambda, and how much the drift is
    overestimated.

    Residuals and lengths are right to the last digit, subnormal weights included, so that a
    violation is the bound's.
    """
    w, w_r, x = three
    m = exact(Fraction(score) - sum(Fraction(p) * Fraction(q) for p, q in zip(w, x, strict=True)))
    m_r = exact(
        Fraction(score) - sum(Fraction(p) * Fraction(q) for p, q in zip(w_r, x, strict=True))
    )
    a = hypot(w)
    b = hypot(w_r)
    drift = hypot([p - q for p, q in zip(w, w_r, strict=True)]) * slack
    steps = [
        bounds.scfe_step(torch.tensor([v], dtype=torch.float64), r, lam)[0].tolist()
        for v, r in ((w, m), (w_r, m_r))
    ]
    known = bounds.theorem1(a, b, m, m_r, lam)
    second = bounds.theorem2(a, b, m, m_r, lam)
    unknown = bounds.theorem1_by_drift(a, m, hypot(x), drift, lam)
    for observed in (
        hypot(steps[0]) - hypot(steps[1]),
        hypot([p - q for p, q in zip(*steps, strict=True)]),
    ):
        for bound in (known, second, unknown):
            assert not bound.violations(observed).any()


def test_theorem1_without_the_other_model_takes_the_worst_length() -> None:
    a = torch.tensor([0.2, 1.0, 5.0, 1.0], dtype=torch.float64)
    drift = torch.tensor([0.5, 0.9, 1.0, 0.0], dtype=torch.float64)
    m = torch.tensor([1.0, -2.0, 0.5, 1.0]).double()
    far = torch.tensor([1.0, 2.0, 0.0, 3.0]).double()
    lam = 0.25
    found = bounds.theorem1_by_drift(a, m, far, drift, lam).value
    for i in range(4):
        t = torch.linspace(
            max(0.0, float(a[i] - drift[i])), float(a[i] + drift[i]), 20001, dtype=torch.float64
        )
        most = ((m[i].abs() + drift[i] * far[i]) * t / (lam + t**2)).max()
        assert float(found[i]) == pytest.approx(
            float(m[i].abs() * a[i] / (lam + a[i] ** 2) + most), rel=1e-6
        )


def test_values_by_hand() -> None:
    a = torch.tensor([2.0], dtype=torch.float64)
    b = torch.tensor([1.0], dtype=torch.float64)
    one = torch.tensor([1.0], dtype=torch.float64)
    assert bounds.theorem1(a, b, 3 * one, -one, 1.0).value.tolist() == [
        pytest.approx(3 * 2 / 5 + 1 / 2)
    ]
    assert bounds.theorem2(a, b, 3 * one, -one, 1.0).value.tolist() == [
        pytest.approx(3 * 2 / 5 + 1 / 2)
    ]
    assert bounds.theorem2(a, b, 3 * one, -one, 1.0, form="paper").value.tolist() == [1.5]
    printed = bounds.theorem1_by_drift(a, 3 * one, one, 0.5, 0.1, form="paper")
    assert printed.value.tolist() == [pytest.approx(0.1 * 4.5 / (2 * 1.5))]
    assert printed.tightness(torch.tensor([-0.03]).double()).tolist() == [pytest.approx(0.2)]
    for drift in (2.0, 3.0):  # where the printed number would be infinite, or of the wrong sign
        printed = bounds.theorem1_by_drift(a, 3 * one, one, drift, 0.1, form="paper")
        assert printed.value.tolist() == [math.inf]
        assert printed.vacuous.tolist() == [True]
        assert printed.violations(torch.tensor([1e9]).double()).tolist() == [False]
        assert printed.tightness(torch.tensor([1e9]).double()).tolist() == [0]
    assert bounds.theorem2(a, 0 * b, one, one, 1.0, form="paper").vacuous.tolist() == [True]
    still = bounds.theorem1(a, b, 0 * one, 0 * one, 1.0)
    assert still.tightness(0 * one).tolist() == [1]


@pytest.mark.parametrize("lam", [0.01, 0.1])
def test_printed_theorem1_on_logistic_data(lam: float) -> None:
    """500 steps as in practice: the proof says nothing about any row, and the printed number is
    exceeded by most."""
    x, y = logistic_data(0)
    eta = 0.1
    steps = 500
    epsilon = 0.3
    s = 1.0
    w = descended(x, y, 0.0, eta=eta, steps=steps, start=torch.zeros(5).double())[-1]
    w_r = descended(x, y, epsilon, eta=eta, steps=steps, start=torch.zeros(5).double())[-1]
    m = s - x @ w
    m_r = s - x @ w_r
    a, b = length(torch.stack([w, w_r]))
    drift = bounds.lemma1(x, eta=eta, steps=steps, epsilon=epsilon).value
    assert b < a < drift
    observed = length(bounds.scfe_step(w, m, lam)) - length(bounds.scfe_step(w_r, m_r, lam))
    printed = bounds.theorem1_by_drift(a, m, length(x), drift, lam, form="paper")
    assert printed.vacuous.all()
    assert not printed.violations(observed).any()
    flipped = abs(lam * (2 * a + drift) / (a * (a - drift)))  # what the paper prints
    assert (observed.abs() > flipped).double().mean() > 0.9
    assert not bounds.theorem1(a, b, m, m_r, lam).violations(observed).any()
    assert not bounds.theorem1_by_drift(a, m, length(x), drift, lam).violations(observed).any()


def test_printed_theorem1_is_broken_where_it_says_something() -> None:
    """Paper: krishna2024 Eq. 7."""
    x, y = logistic_data(3)
    eta = 0.1
    steps = 10
    epsilon = 0.3
    s = 1.0
    lam = 0.01
    start = 3 * gaussian(9, 5)
    w = descended(x, y, 0.0, eta=eta, steps=steps, start=start)[-1]
    w_r = descended(x, y, epsilon, eta=eta, steps=steps, start=start)[-1]
    m = s - x @ w
    m_r = s - x @ w_r
    a, b = length(torch.stack([w, w_r]))
    drift = bounds.lemma1(x, eta=eta, steps=steps, epsilon=epsilon).value
    assert drift < a
    observed = length(bounds.scfe_step(w, m, lam)) - length(bounds.scfe_step(w_r, m_r, lam))
    printed = bounds.theorem1_by_drift(a, m, length(x), drift, lam, form="paper")
    assert not printed.vacuous.any()
    assert printed.violations(observed).double().mean() > 0.5
    assert not bounds.theorem1(a, b, m, m_r, lam).violations(observed).any()
    assert not bounds.theorem1_by_drift(a, m, length(x), drift, lam).violations(observed).any()


def test_bounds_with_an_intercept() -> None:
    """Rows end in a 1 that is not attacked; SCFE moves the other columns alone."""
    x, y = logistic_data(5)
    ended = torch.cat([x, torch.ones(len(x), 1).double()], 1)
    eta = 0.1
    steps = 100
    epsilon = 0.2
    s = 1.0
    attacked = torch.ones(6).double()
    attacked[-1] = 0
    paths = [
        descended(ended, y, e * attacked, eta=eta, steps=steps, start=gaussian(6, 6))
        for e in (0.0, epsilon)
    ]
    for t in range(steps + 1):
        drift = bounds.lemma1(ended, eta=eta, steps=t, epsilon=epsilon).value
        w, w_r = (p[t] for p in paths)
        m, m_r = (s - ended @ p[t] for p in paths)
        assert length((w - w_r)[None]) <= drift
        for lam in (0.01, 1.0):
            observed = length(bounds.scfe_step(w[:5], m, lam)) - length(
                bounds.scfe_step(w_r[:5], m_r, lam)
            )
            bound = bounds.theorem1_by_drift(
                w[:5].square().sum().sqrt(), m, length(ended), drift, lam
            )
            assert not bound.violations(observed).any()


def test_theorem2_on_ntk_models() -> None:
    """Paper: krishna2024 Theorem 2, Eq. 9."""
    x, y = logistic_data(11, 80, 4)
    net = fit_ntk(x, y, beta=1.0)
    other = fit_ntk(attacked(net, x, y, 0.2), y, beta=1.0)
    z = gaussian(12, 50, 4)
    lam = 0.1
    for s in (1.0, 20.0):
        m, g = s - net(z)[:, 0], net.gradient(z)
        m_r, g_r = s - other(z)[:, 0], other.gradient(z)
        observed = length(bounds.scfe_step(g, m, lam)) - length(bounds.scfe_step(g_r, m_r, lam))
        assert not bounds.theorem2(length(g), length(g_r), m, m_r, lam).violations(observed).any()
        printed = bounds.theorem2(length(g), length(g_r), m, m_r, lam, form="paper").violations(
            observed
        )
        assert bool(printed.any()) == (s == 20)  # it takes |m| <= 1 for granted


# ---- Theorem 3


def decoder(seed: int, *, ends: nn.Module) -> nn.Sequential:
    layers = [
        nn.Linear(3, 12),
        nn.ReLU(),
        nn.Linear(12, 9),
        nn.Tanh(),
        nn.Dropout(0.5),
        nn.Linear(9, 7),
        ends,
    ]
    return seeded(nn.Sequential(*layers).double(), seed)


@pytest.mark.parametrize(
    "ends", [nn.Identity(), nn.Sigmoid(), nn.Softmax(1), nn.LeakyReLU(3.0)], ids=repr
)
def test_theorem3_for_random_decoders(ends: nn.Module) -> None:
    """Paper: krishna2024 Theorem 3, Eq. 11."""
    for seed in range(5):
        net = decoder(seed, ends=ends)
        x = gaussian(seed, 500, 7)
        center = gaussian(seed + 10, 500, 3)
        r = torch.rand(500, generator=torch.Generator().manual_seed(1), dtype=torch.float64) * 3
        r_r = torch.rand(500, generator=torch.Generator().manual_seed(2), dtype=torch.float64) * 3
        z = center + l2.ascent(gaussian(3, 500, 3)) * r[:, None]
        z_r = center + l2.ascent(gaussian(4, 500, 3)) * r_r[:, None]
        with torch.no_grad():
            found = net(z)
            found_r = net(z_r)
        exact = bounds.decoder_lipschitz(net)
        sampled = bounds.sampled_lipschitz(net, z)
        assert 0 < sampled <= exact * (1 + 1e-12)
        bound = bounds.theorem3(exact, r, r_r)
        assert not bound.violations(length(found - found_r)).any()
        assert not bound.violations(length(found - x) - length(found_r - x)).any()


def test_lipschitz_constants_by_hand() -> None:
    """Paper: krishna2024 Definition 3, Eq. 10."""
    net = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Sigmoid(), nn.Linear(2, 1)).double()
    with torch.no_grad():
        net[0].weight.copy_(torch.tensor([[3.0, 0.0], [0.0, -5.0]]))
        net[2].weight.copy_(torch.tensor([[6.0, 8.0]]))
    assert bounds.decoder_lipschitz(net) == pytest.approx(5 * 0.25 * 10)
    z = torch.zeros(1, 2, dtype=torch.float64)
    assert bounds.sampled_lipschitz(net, z) == pytest.approx(math.hypot(3 * 0.25 * 6, 5 * 0.25 * 8))
    line = seeded(nn.Linear(4, 6).double())
    assert bounds.sampled_lipschitz(line, gaussian(0, 3, 4)) == pytest.approx(
        bounds.decoder_lipschitz(line)
    )
    with pytest.raises(ModelError, match="no Lipschitz constant is known for a BatchNorm1d layer"):
        bounds.decoder_lipschitz(nn.Sequential(mlp(2, (3,), 4), nn.BatchNorm1d(4)))


# ---- Lemma 2


@pytest.mark.parametrize("beta", [1e-3, 0.1, 10.0])
@pytest.mark.parametrize("epsilon", [0.01, 0.3])
def test_lemma2_always_holds(beta: float, epsilon: float) -> None:
    """Paper: krishna2024 Lemma 2, Eq. 12."""
    for seed in range(3):
        x, y = logistic_data(seed, 50 + seed, 4)
        net = fit_ntk(x, y, beta=beta, append_one=False)
        other = fit_ntk(attacked(net, x, y, epsilon), y, beta=beta, append_one=False)
        K = kernel(net.X, net.X)
        K_r = kernel(other.X, other.X)
        bound = bounds.lemma2(K, K_r, beta, y)
        far = length((net.w - other.w)[None])[0]
        assert not bound.violations(far)
        assert 0.01 < bound.tightness(far) < 1
        eye = beta * torch.eye(len(x)).double()
        exact = torch.linalg.matrix_norm(torch.linalg.inv(K + eye) - torch.linalg.inv(K_r + eye), 2)
        assert float(bounds.inverse_gap(K, K_r, beta)) == pytest.approx(float(exact), rel=1e-6)


def test_lemma2_is_reached_by_diagonal_kernels() -> None:
    k = torch.tensor([1.0, 2.0, 5.0, 0.4]).double()
    k_r = torch.tensor([1.5, 2.0, 0.5, 0.5]).double()
    beta = 0.1
    gaps = 1 / (k + beta) - 1 / (k_r + beta)
    i = int(gaps.abs().argmax())
    y = 3 * torch.eye(4).double()[i]
    bound = bounds.lemma2(torch.diag(k), torch.diag(k_r), beta, y)
    assert float(bound.value) == pytest.approx(3 * float(gaps.abs().max()), rel=1e-9)
    far = length((y * gaps)[None])[0]
    assert not bound.violations(far)
    assert float(bound.tightness(far)) == pytest.approx(1, rel=1e-9)


def test_lemma2_of_equal_and_of_clustered_kernels() -> None:
    K = kernel(gaussian(0, 30, 3), gaussian(0, 30, 3))
    y = gaussian(1, 30).sign()
    assert float(bounds.lemma2(K, K, 0.1, y).value) == 0
    # All eigenvalues of the difference equal in size, half of them negative.
    eye = torch.eye(30).double()
    flip = torch.cat([torch.full((15,), 1.0), torch.full((15,), 0.25)]).double()
    found = bounds.lemma2(torch.diag(flip), torch.diag(flip.flip(0)), 0.0, y)
    assert float(found.value) == pytest.approx(3 * math.sqrt(30), rel=1e-9)
    assert float(bounds.inverse_gap(eye, 3 * eye, 1.0)) == pytest.approx(0.25, rel=1e-9)


# ---- Theorems 4 and 5


def test_theorem4_has_a_counterexample() -> None:
    """w_NR = (1, 0), w_R = (2, 0), both answers (1, 0): the condition is true, the conclusion
    false."""
    w = torch.tensor([1.0, 0.0])
    w_r = torch.tensor([2.0, 0.0])
    answer = torch.tensor([[1.0, 0.0]])
    drift = float((w - w_r).abs().max())  # 1, the least that Lemma 1 can say
    claim = bounds.theorem4(answer @ w, answer @ w, answer @ w_r, length(answer), drift)
    assert claim.condition.tolist() == [True]
    assert claim.conclusion.tolist() == [False]
    assert claim.counterexamples.tolist() == [True]


def test_theorem4_is_neither_necessary_nor_sufficient() -> None:
    """Paper: krishna2024 Theorem 4."""
    w = gaussian(0, 5)
    w_r = gaussian(1, 5)
    x = gaussian(2, 2000, 5)
    x_r = gaussian(3, 2000, 5)
    drift = float(length((w - w_r)[None])) / 2
    claim = bounds.theorem4(x @ w, x_r @ w, x_r @ w_r, length(x_r), drift)
    probabilities = torch.sigmoid(x @ w), torch.sigmoid(x_r @ w_r)
    assert torch.equal(claim.conclusion, probabilities[0] >= probabilities[1])
    assert torch.equal(claim.condition, (x_r @ w - x @ w).abs() <= drift * length(x_r))
    for condition in (True, False):
        for conclusion in (True, False):
            assert ((claim.condition == condition) & (claim.conclusion == conclusion)).any()


def test_theorem5_is_about_the_scores_of_both_models() -> None:
    """Paper: krishna2024 Theorem 5."""
    x, y = logistic_data(4, 40, 3)
    net = fit_ntk(x, y, append_one=False)
    other = fit_ntk(attacked(net, x, y, 0.2), y, append_one=False)
    z = gaussian(5, 25, 3)
    z_r = gaussian(6, 25, 3)
    k = kernel(z, net.X)
    k_r = kernel(z_r, other.X)
    drift = bounds.lemma2(kernel(net.X, net.X), kernel(other.X, other.X), 0.1, y).value
    claim = bounds.theorem5(k, k_r, net.w, other.w, drift)
    assert torch.equal(claim.conclusion, (net(z) >= other(z_r))[:, 0])
    assert torch.equal(claim.condition, ((k_r - k) @ net.w).abs() <= drift * length(k_r))
    twice = NTK.of(net.X, 2 * net.w, append_one=False)  # as in the counterexample to Theorem 4
    good = z[net(z)[:, 0] > 0]
    k = kernel(good, net.X)
    claim = bounds.theorem5(k, k, net.w, twice.w, length(net.w[None])[0])
    assert claim.condition.all()
    assert claim.counterexamples.all()


# ---- errors


def test_errors_say_what_is_wrong() -> None:
    one = torch.ones(3, dtype=torch.float64)
    eye = torch.eye(3, dtype=torch.float64)
    with pytest.raises(SettingError, match=r"lam must be 0 or more .* got -1"):
        bounds.scfe_step(one, one, -1.0)
    with pytest.raises(SettingError, match="form must be 'corrected' or 'paper', got 'printed'"):
        bounds.theorem2(one, one, one, one, 1.0, form="printed")
    with pytest.raises(SettingError, match="needs the labels y"):
        bounds.lemma1(eye, eta=0.1, steps=1, epsilon=0.1, form="paper")
    with pytest.raises(SettingError, match=r"got shapes \(3, 3\), \(2, 2\) and \(3,\)"):
        bounds.lemma2(eye, eye[:2, :2], 0.1, one)
    with pytest.raises(SettingError, match="raise beta"):
        bounds.lemma2(0 * eye, eye, 0.0, one)
