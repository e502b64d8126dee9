"""What "Consistent Counterfactuals for Deep Models" proves and proposes, as functions one can
evaluate.

Black, Wang, Fredrikson and Datta, ICLR 2022. Every function takes encoded rows (n, d) and returns
one value per row; s is the probability of the class y, the line of a row x is {t x : 0 <= t <= 1}.

    Equation 3       s(x) - max_t |grad s(t x)|           confident, and flat on the way
    Equation 4       s(x) - max_t d s(t x) / dt
    Equation 5       s(x) + int_0^1 s(t x) dt
    Definition 5     int_0^1 s(t x) dt                    what Stable Neighbor Search maximises
    Proposition 1    |grad q(z)| >= |grad q(z) . z| / |x|  for z = s x, 0 <= s <= 1
    Theorem 2        |chi(x; w) - chi(x; w')| <= K sqrt([ds |w| + C1]^2 + C2),  ds = s (1 - s)
                     C1 = 3/4 |w| + D/2,  C2 = 1/4 [5/2 |w| + 5/4 D]^2,  |w - w'| <= D

From 3 to 4 the paper drops an absolute value, and from 4 to 5 it follows a heuristic: none bounds
the next. The main text prints C2 of Theorem 2 outside the root; the proof in the appendix has it
inside, as here.
"""

import torch
from torch import Tensor

import holdfast as hf
from holdfast._core.checks import untyped
from holdfast.distances import l2
from holdfast.errors import ModelError
from holdfast.methods._path_integral import own_and_slope
from holdfast.nn.relu_network import Engine

POINTS = 50


def line(x: Tensor, points: int = POINTS) -> Tensor:
    """(P, n, d) points t x for t = 1/P, 2/P, .. 1."""
    t = torch.arange(1, points + 1, dtype=x.dtype) / points
    return t[:, None, None] * x


def probability_and_slope(model: hf.Model, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """s (n,) and its gradient by the row (n, d)."""
    with model.eval_mode():
        scores, pull = model.vjp(x)
        own = torch.nn.functional.one_hot(y, scores.shape[1]).to(scores.dtype)
        s, slope = own_and_slope(torch.softmax(scores, 1), own)
        return s, pull(slope)


def _along(model: hf.Model, x: Tensor, y: Tensor, points: int) -> tuple[Tensor, Tensor, Tensor]:
    """s (P, n), its gradient (P, n, d), and the points themselves."""
    z = line(x, points)
    s, g = probability_and_slope(model, z.flatten(0, 1), y.repeat(points))
    return s.reshape(z.shape[:2]), g.reshape(z.shape), z


def flatness(model: hf.Model, x: Tensor, y: Tensor, *, points: int = POINTS) -> Tensor:
    """Equation 3.

    Paper: black2022 Eq. 3.
    """
    s, g, _ = _along(model, x, y, points)
    return s[-1] - g.square().sum(2).sqrt().amax(0)


def climb(model: hf.Model, x: Tensor, y: Tensor, *, points: int = POINTS) -> Tensor:
    """Equation 4: the derivative along the line in place of the whole gradient.

    Paper: black2022 Eq. 4.
    """
    s, g, _ = _along(model, x, y, points)
    return s[-1] - (g * x).sum(2).amax(0)


def integral(model: hf.Model, x: Tensor, y: Tensor, *, points: int = POINTS) -> Tensor:
    """Definition 5, by the same right-hand sum as the search: 1/P sum_{j=1..P} s(j/P x).

    Paper: black2022 Definition 5.
    """
    return _along(model, x, y, points)[0].mean(0)


def end_and_integral(model: hf.Model, x: Tensor, y: Tensor, *, points: int = POINTS) -> Tensor:
    """Equation 5.

    Paper: black2022 Eq. 5.
    """
    s, _, _ = _along(model, x, y, points)
    return s[-1] + s.mean(0)


def influence(model: hf.Model, x: Tensor, y: Tensor, *, points: int = POINTS) -> Tensor:
    """(n, d) the distributional influence chi: the mean gradient of s over the line.

    Paper: black2022 Definition 4.
    """
    return _along(model, x, y, points)[1].mean(0)


def slope_bound(
    model: hf.Model, x: Tensor, y: Tensor, *, points: int = POINTS
) -> tuple[Tensor, Tensor]:
    """Proposition 1 at each point of the line: (P, n) the gradient's length, and the lower bound of
    it.

    Paper: black2022 Proposition 1.
    """
    _, g, z = _along(model, x, y, points)
    length = l2.value(x).clamp_min(torch.finfo(x.dtype).tiny)
    return g.square().sum(2).sqrt(), (g * z).sum(2).abs() / length


def influence_bound(model: hf.Model, x: Tensor, change: float, *, points: int = POINTS) -> Tensor:
    """Theorem 2: how much chi can change when only the last layer does, by at most `change`.

    For a network of Linear and ReLU layers with two classes. K is the largest spectral norm, over
    the line, of the Jacobian of what the last layer sees.

    Paper: black2022 Theorem 2.
    """
    with model.eval_mode():
        engine = model.engine
        if engine is None or len(model.classes) != 2:
            raise ModelError(
                "Theorem 2 is about networks of Linear and ReLU layers with two classes"
            )
        w = _last(engine)
        K = lipschitz(engine, x, points)
        s = torch.sigmoid(model(x)[:, 1] - model(x)[:, 0])
    size = float(w.square().sum().sqrt())
    c1 = 0.75 * size + change / 2
    c2 = (2.5 * size + 1.25 * change) ** 2 / 4
    return K * ((s * (1 - s) * size + c1).square() + c2).sqrt()


def lipschitz(engine: Engine, x: Tensor, points: int = POINTS) -> Tensor:
    """(n,) the largest spectral norm over the line of the Jacobian of the layers below the last.

    Paper: black2022 Definition 3.
    """
    z = line(x, points).flatten(0, 1)
    h = z
    slope = torch.eye(z.shape[1], dtype=z.dtype).expand(len(z), -1, -1)
    for weight, bias in engine.weights[:-1]:
        h = (h @ weight.T + bias).relu()
        slope = (h > 0).to(z.dtype)[:, :, None] * (weight @ slope)
    largest: Tensor = untyped("torch").linalg.matrix_norm(slope, 2)
    return largest.reshape(points, len(x)).amax(0)


def _last(engine: Engine) -> Tensor:
    """The weights of the last layer as one vector: with two scores, their difference."""
    w = engine.weights[-1][0]
    return w[1] - w[0] if len(w) == 2 else w[0]
