"""Bounds of what adversarial training does to answers: as printed, and as they hold.

Krishna, Agarwal and Lakkaraju, "On the Trade-offs between Adversarial Robustness and Actionable
Explanations", 2023. NR is a model trained on clean rows, R the same with rows attacked within
epsilon (linf). f is a logit, linear or an NTK (`holdfast.nn.ntk`), s the wanted one, m = s - f(x).
zeta is the step of SCFE, which minimises (f(x + z) - s)^2 + lam |z|^2. All norms are l2; a = |w_NR|
and b = |w_R|, or the lengths of the gradients of f.

                 printed ("paper")                          what holds ("corrected", the default)
    zeta         m lam w / (lam + |w|^2)                    m w / (lam + |w|^2)
    Lemma 1      |w_NR - w_R| <= D
                 D = N eta (y |x| + eps sqrt d)             D = N eta (mean_i |x_i| + eps sqrt d)
    Theorem 1    | |zeta_NR| - |zeta_R| | <=
                 | lam (2 a + D) / (a (a - D)) |            g(a, m_NR) + g(b, m_R),
                                                            g(a, m) = |m| a / (lam + a^2)
                                                            or, without w_R: g(a, m_NR) +
                                                            max_t g(t, |m_NR| + D |x|)
                                                            over a - D <= t <= a + D
    Theorem 2    1 / a + 1 / b                              g(a, m_NR) + g(b, m_R)
    Theorem 3    L (r_NR + r_R)                             the same; L is the Lipschitz constant
                                                            of the decoder
    Lemma 2      |(K + beta I)^-1 - (K_R + beta I)^-1| |Y|  the same
    Theorem 4    Pr_NR >= Pr_R if                           if and only if f_NR(x'_NR) >= f_R(x'_R)
                 |f_NR(x'_R) - f_NR(x'_NR)| <= D |x'_R|
    Theorem 5    the same with rows of the kernel           the same

The printed zeta has a factor too many, and so has Theorem 1. Lemma 1 lets y = -1 make a bound
negative, speaks of one row, and of epochs where it means steps. Theorem 1 drops |m|, and where D >=
a its outer absolute value hides that its proof says nothing: the bound is then infinite here, and
marked vacuous. Theorem 2 takes |m| <= 1 for granted. The proofs of Theorems 4 and 5 enlarge the
right side of what they want to show, so the condition is neither necessary nor sufficient.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from holdfast._core.checks import require_weight, untyped
from holdfast.distances import l2
from holdfast.errors import ModelError, SettingError
from holdfast.nn.architecture import flat_layers
from holdfast.training.ntk import ridge_factor

Form = Literal["corrected", "paper"]
# of the power iteration: when it ends, and how many vectors it iterates at once
SETTLED = 1e-10
TURNS = 200
BLOCK = 8


@dataclass(frozen=True, eq=False)
class TheoremBound:
    """An upper bound for each row, or a single one () for all."""

    value: Tensor  # (n,)
    vacuous: Tensor  # (n,) where it says nothing; the value is inf there
    form: Form

    @classmethod
    def of(cls, value: Tensor, form: Form = "corrected") -> "TheoremBound":
        vacuous = ~value.isfinite()
        return cls(value.masked_fill(vacuous, math.inf), vacuous, form)

    def violations(self, observed: Tensor) -> Tensor:
        """(n,) where an observed difference is larger; differences within rounding do not count."""
        return (
            observed.abs() > self.value + 64 * torch.finfo(self.value.dtype).eps * self.value.abs()
        )

    def tightness(self, observed: Tensor) -> Tensor:
        """(n,) |observed| / bound: 1 is tight, 0 vacuous; a bound of 0 that holds is tight."""
        share = observed.abs() / self.value
        return torch.where((self.value == 0) & (observed == 0), 1.0, share)


@dataclass(frozen=True, eq=False)
class Claim:
    """Theorems 4 and 5, row by row."""

    condition: Tensor  # (n,) bool, the printed condition
    # (n,) bool, what it should imply: Pr_NR >= Pr_R, that is f_NR(x'_NR) >= f_R(x'_R)
    conclusion: Tensor

    @property
    def counterexamples(self) -> Tensor:
        """(n,) condition true, conclusion false."""
        return self.condition & ~self.conclusion


# ---- SCFE


def scfe_step(w: Tensor, m: Tensor, lam: float, *, form: Form = "corrected") -> Tensor:
    """zeta (n, d) for weights w (d,) or gradients (n, d), and residuals m (n,).

    Paper: krishna2024 Definition 1, Eq. 6.
    """
    _check(lam, form)
    top = w.abs().amax(-1, keepdim=True)
    u = w / top  # so that no square of a small weight becomes 0
    step = m[:, None] * u / (lam / top + top * u.square().sum(-1, keepdim=True))
    return step.masked_fill(top == 0, 0.0) * (lam if form == "paper" else 1.0)


def step_length(a: Tensor, m: Tensor, lam: float) -> Tensor:
    """|zeta| = |m| a / (lam + a^2), written without the square, which underflows for small a; 0
    where a is 0."""
    return (m.abs() / (lam / a + a)).masked_fill(a == 0, 0.0)


def lemma1(
    x: Tensor,
    *,
    eta: float,
    steps: int,
    epsilon: float,
    y: Tensor | None = None,
    batches: bool = False,
    form: Form = "corrected",
) -> TheoremBound:
    """D >= |w_NR - w_R| after this many steps of plain gradient descent from the same start; Adam
    is not covered.

    Args:
        x: training rows (n, d).
        eta, steps, epsilon: step size, number of steps, radius of the linf balls.
        y: labels in {-1, +1}; only the printed form uses them, with one bound (n,) for each row.
        batches: the steps were taken on parts of the rows, so the mean over i becomes a
            maximum.

    Paper: krishna2024 Lemma 1, Eq. 5.
    """
    _check(0.0, form)
    length = l2.value(x)
    room = epsilon * math.sqrt(x.shape[1])
    if form == "paper":
        if y is None:
            raise SettingError("Lemma 1 as printed needs the labels y")
        return TheoremBound.of(steps * eta * (y * length + room), form)
    return TheoremBound.of(steps * eta * ((length.amax() if batches else length.mean()) + room))


def theorem1(a: Tensor, b: Tensor, m: Tensor, m_r: Tensor, lam: float) -> TheoremBound:
    """With both models at hand: a = |w_NR| and b = |w_R|, () or (n,), and their residuals m and m_r
    (n,). The printed form does without w_R: see `theorem1_by_drift`.

    Paper: krishna2024 Theorem 1, Eq. 7.
    """
    _check(lam)
    return TheoremBound.of(step_length(a, m, lam) + step_length(b, m_r, lam))


def theorem1_by_drift(
    a: Tensor,
    m: Tensor,
    length: Tensor,
    drift: Tensor | float,
    lam: float,
    *,
    form: Form = "corrected",
) -> TheoremBound:
    """Without w_R, which is at most `drift` (D) from w_NR; a = |w_NR|, () or (n,), and residuals m
    of NR (n,).

    length = |x| (n,): with an intercept, rows end in a 1 here and in Lemma 1, but `a` leaves the
    intercept out.

    Paper: krishna2024 Theorem 1, Eq. 7.
    """
    _check(lam, form)
    a = a.expand_as(m)
    drift = torch.as_tensor(drift, dtype=a.dtype).expand_as(m)
    if form == "paper":
        value = lam * (2 * a + drift) / (a * (a - drift))
        return TheoremBound.of(value.masked_fill(drift >= a, math.inf), form)
    # a and D are rounded, and a - D has no digits left near 0
    rounding = 8 * torch.finfo(a.dtype).eps * (a + drift)
    least = (a - drift - rounding).clamp_min(0)
    # the t with the longest step
    t = torch.minimum(torch.maximum(least, a.new_tensor(math.sqrt(lam))), a + drift)
    most = step_length(t, m.abs() + drift * length, lam)
    return TheoremBound.of(
        step_length(a, m, lam) + (most.masked_fill(t == 0, math.inf) if lam == 0 else most)
    )


def theorem2(
    a: Tensor, b: Tensor, m: Tensor, m_r: Tensor, lam: float, *, form: Form = "corrected"
) -> TheoremBound:
    """For NTK models and first-order steps: a and b are lengths (n,) of the gradients of f_NR and
    f_R at x.

    Paper: krishna2024 Theorem 2, Eq. 9.
    """
    _check(lam, form)
    return TheoremBound.of(1 / a + 1 / b, form) if form == "paper" else theorem1(a, b, m, m_r, lam)


# ---- C-CHVAE


def theorem3(L: float, r_nr: Tensor, r_r: Tensor) -> TheoremBound:
    """For |x'_NR - x'_R|, and so for | |zeta_NR| - |zeta_R| |, before rounding. The answers are
    decoded from points within r_nr and r_r (n,) of one latent point; radii in l1 are at least those
    in l2, so they are safe.

    Paper: krishna2024 Theorem 3, Eq. 11.
    """
    return TheoremBound.of(L * (r_nr + r_r))


_CONSTANTS: dict[type[nn.Module], float] = {
    nn.ReLU: 1.0,
    nn.Tanh: 1.0,
    nn.Sigmoid: 0.25,
    nn.Softmax: 0.5,
    nn.Identity: 1.0,
    nn.Dropout: 1.0,
    nn.Flatten: 1.0,
}


def decoder_lipschitz(decoder: nn.Module) -> float:
    """An upper bound of the decoder's l2 Lipschitz constant: spectral norms times constants of
    activations.

    A softmax over the levels of each category at the end, as `TableAutoencoder` has it, leaves the
    bound as it is.

    Paper: krishna2024 Definition 3, Eq. 10.
    """
    product = 1.0
    for layer in flat_layers(decoder):
        if isinstance(layer, nn.Linear):
            product *= _spectral(layer.weight.detach())
        elif isinstance(layer, nn.LeakyReLU):
            product *= max(1.0, abs(layer.negative_slope))
        elif type(layer) in _CONSTANTS:
            product *= _CONSTANTS[type(layer)]
        else:
            known = ["Linear", "LeakyReLU", *[kind.__name__ for kind in _CONSTANTS]]
            raise ModelError(
                f"no Lipschitz constant is known for a {type(layer).__name__} layer, only for "
                f"{known}"
            )
    return product


def sampled_lipschitz(decoder: Callable[[Tensor], Tensor], z: Tensor) -> float:
    """A lower bound of the decoder's l2 Lipschitz constant: the largest spectral norm of its
    Jacobian at z (n, k).

    A bound by Theorem 3 with this constant is not a guarantee.
    """

    def one(point: Tensor) -> Tensor:
        return decoder(point[None])[0]

    func = untyped("torch.func")
    slopes: Tensor = func.vmap(func.jacrev(one))(z.detach())  # (n, d, k)
    return max(_spectral(slope) for slope in slopes.detach())


def _spectral(matrix: Tensor) -> float:
    return float(untyped("torch").linalg.matrix_norm(matrix.double(), 2))


# ---- NTK


def lemma2(K: Tensor, K_r: Tensor, beta: float, y: Tensor) -> TheoremBound:
    """|w_NR - w_R| <= D_K |Y| for NTK models with the kernel matrices K and K_r (n, n) of their
    training rows.

    Paper: krishna2024 Lemma 2, Eq. 12.
    """
    shapes = f"{tuple(K.shape)}, {tuple(K_r.shape)} and {tuple(y.shape)}"
    fits = K.shape == K_r.shape and y.shape == K.shape[:1]
    if not fits:
        raise SettingError(
            f"need two kernel matrices of one size and a label for each row, got shapes {shapes}"
        )
    return TheoremBound.of(inverse_gap(K, K_r, beta) * l2.value(y.double()[None])[0])


def inverse_gap(K: Tensor, K_r: Tensor, beta: float) -> Tensor:
    """D_K = |(K + beta I)^-1 - (K_r + beta I)^-1|, the spectral norm, by power iteration; no
    inverse is formed.

    It is the root of the square's largest eigenvalue, as the square's eigenvalues do not come in
    pairs +l, -l. Several vectors are iterated at once, which converges faster where eigenvalues are
    close. The estimate comes from below; what the residual leaves open is added.
    """
    linalg = untyped("torch").linalg
    first = ridge_factor(K, beta)
    second = ridge_factor(K_r, beta)

    def times(v: Tensor) -> Tensor:
        return torch.cholesky_solve(v, first) - torch.cholesky_solve(v, second)

    v = torch.randn(
        len(K), min(BLOCK, len(K)), generator=torch.Generator().manual_seed(0), dtype=torch.float64
    )
    top = v.new_zeros(())
    rest = top
    for _ in range(TURNS):
        v = linalg.qr(v)[0]
        once = times(v)
        twice = times(once)
        # of the square, within the span of v; the largest is last
        squares, vectors = linalg.eigh(once.T @ once)
        best = vectors[:, -1]
        top = squares[-1].clamp_min(0).sqrt()
        rest = (twice @ best - squares[-1] * (v @ best)).square().sum().sqrt()
        if rest <= SETTLED * squares[-1]:
            break
        v = twice
    return top + rest / (2 * top).clamp_min(torch.finfo(top.dtype).tiny)


# ---- validity


def theorem4(
    own: Tensor, crossed: Tensor, robust: Tensor, length: Tensor, drift: Tensor | float
) -> Claim:
    """Whose answers are more surely valid, for linear models: own, crossed and robust are
    f_NR(x'_NR), f_NR(x'_R) and f_R(x'_R), length is |x'_R|, (n,) each, and drift the D of Lemma
    1.

    Paper: krishna2024 Theorem 4.
    """
    return Claim((crossed - own).abs() <= drift * length, own >= robust)


def theorem5(k: Tensor, k_r: Tensor, w: Tensor, w_r: Tensor, drift: Tensor | float) -> Claim:
    """The same for NTK models: k and k_r are K(x'_NR, X) and K(x'_R, X_R), (n, N) each, w and w_r
    the weights (N,) of the two models, and drift the D_K |Y| of Lemma 2.

    Paper: krishna2024 Theorem 5.
    """
    return theorem4(k @ w, k_r @ w, k_r @ w_r, l2.value(k_r), drift)


def _check(lam: Any, form: Any = "corrected") -> None:
    require_weight("lam", lam, "distance")
    if form not in ("corrected", "paper"):
        raise SettingError(f"form must be 'corrected' or 'paper', got {form!r}")
