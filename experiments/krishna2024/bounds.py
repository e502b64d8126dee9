"""Krishna et al. 2024, its theorems: bounds on the difference of costs, and how often they are
violated."""

from functools import partial
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

import holdfast as hf
from experiments.data import Split
from experiments.krishna2024.setup import LAM, SCORE, hardened, latent_space, methods
from experiments.parts import Arrays
from holdfast.distances import l2
from holdfast.evaluation import bounds as theory
from holdfast.methods.cchvae import Trace, retrace
from holdfast.nn.ntk import NTK, kernel
from holdfast.nn.stack import Stack

LAMS = (0.01, 0.1, 1.0)
# plain gradient descent, for Lemma 1
GD_ETA = 0.1
GD_STEPS = 500
NTK_ROWS = 2000
BETA = 0.1
HARDER = (0.1, 0.2, 0.3)  # epsilons
MILD = (0.02, 0.05)  # and those for C-CHVAE, which finds nothing on many harder models
SHOWN = 100  # rows in the picture
LINEAR = (
    "epsilon",
    "lam",
    "rows",
    "drift",
    "Lemma 1",
    "|w_NR|",
    "B1 violated",
    "B1' violated",
    "printed vacuous",
    "printed violated",
    "Theorem 4 condition",
    "Theorem 4 conclusion",
    "difference",
    "B1",
    "tightness",
    "validity, plain",
    "validity, hardened",
)
WIDE = (
    "epsilon",
    "lam",
    "rows",
    "drift",
    "Lemma 2",
    "B2 violated",
    "printed violated",
    "Theorem 5 condition",
    "Theorem 5 conclusion",
    "difference",
    "B2",
    "tightness",
)
VAE = (
    "kind",
    "epsilon",
    "rows",
    "L, product of norms",
    "L, sampled from below",
    "violated",
    "violated with sampled L",
    "distance",
    "bound",
    "tightness",
    "violated by answers",
    "distance of answers",
)


def linear_bounds(task: Split, seed: int) -> Arrays:
    """Lemma 1, Theorems 1 and 4 on linear models trained by plain gradient descent from one start.

    Two scores are trained, but only their difference counts: its step is twice that of each.
    """
    recipe = hf.Recipe(
        hidden=(),
        epochs=GD_STEPS,
        batch_size=len(task.X),
        lr=GD_ETA / 2,
        optimizer="sgd",
        attack_box=False,
    )
    models = hf.train_adversarial(
        recipe, task.X, task.y, task.schema, epsilon=(0.0, *HARDER), seed=seed
    )
    weights = [cast(Stack, group.networks).layers[0] for group in models.bank.groups]
    w = torch.stack([(w[0, :, 1] - w[0, :, 0]).double() for w, _ in weights])  # (epsilons, d)
    b = torch.stack([(b[0, 0, 1] - b[0, 0, 0]).double() for _, b in weights])
    x = task.schema.encode(task.test_X, torch.float64)
    ones = torch.ones(len(task.X), 1, dtype=torch.float64)
    learnt = torch.cat([task.schema.encode(task.X, torch.float64), ones], 1)
    score = x @ w.T + b  # (n, epsilons)
    # (n, 1) towards the class that the plain model denies
    side = torch.where(score[:, :1] > 0, -1.0, 1.0).double()
    f = side * score
    length = (x.square().sum(1) + 1).sqrt()
    out = list[list[float]]()
    shown = list[Tensor]()
    for i, e in enumerate(HARDER, 1):
        drift = theory.lemma1(learnt, eta=GD_ETA, steps=GD_STEPS, epsilon=e).value
        moved = torch.cat([w[i] - w[0], (b[i] - b[0])[None]])
        both = (f[:, 0] <= 0) & (f[:, i] <= 0)
        a = l2.value(w[0][None])[0]
        a_r = l2.value(w[i][None])[0]
        for lam in LAMS:
            m = SCORE - f[both, 0]
            m_r = SCORE - f[both, i]
            apart = theory.step_length(a_r, m_r, lam) - theory.step_length(a, m, lam)
            known = theory.theorem1(a.expand_as(m), a_r.expand_as(m), m, m_r, lam)
            by_drift = partial(theory.theorem1_by_drift, a, m, length[both], drift, lam)
            unknown = by_drift(form="corrected")
            printed = by_drift(form="paper")
            s = side[both, 0]
            z = x[both] + theory.scfe_step(s[:, None] * w[0], m, lam)
            z_r = x[both] + theory.scfe_step(s[:, None] * w[i], m_r, lam)
            got = s * (z @ w[0] + b[0])
            crossed = s * (z_r @ w[0] + b[0])
            got_r = s * (z_r @ w[i] + b[i])
            claim = theory.theorem4(got, crossed, got_r, l2.value(z_r), drift)
            if lam == LAM:
                shown.append(torch.stack([apart[:SHOWN], known.value[:SHOWN]], 1))
            out.append(
                [
                    e,
                    lam,
                    len(m),
                    float(moved.square().sum().sqrt()),
                    float(drift),
                    float(a),
                    _mean(known.violations(apart)),
                    _mean(unknown.violations(apart)),
                    _mean(printed.vacuous),
                    _mean(_naive(a, drift, lam) < apart.abs()),
                    _mean(claim.condition),
                    _mean(claim.conclusion[claim.condition]),
                    _mean(apart),
                    _mean(known.value),
                    _mean(known.tightness(apart)),
                    _mean(got > 0),
                    _mean(got_r > 0),
                ]
            )
    return {"rows": np.array(out)} | _shown(shown)


def _shown(parts: list[Tensor]) -> Arrays:
    """For the picture of each hardened model, (rows, 2): differences and bounds."""
    return {f"shown {e:g}": part.double().numpy() for e, part in zip(HARDER, parts, strict=True)}


def _naive(a: Tensor, drift: Tensor, lam: float) -> Tensor:
    """The printed Theorem 1 with its outer absolute value, whatever the drift."""
    return (lam * (2 * a + drift) / (a * (a - drift))).abs()


def _mean(values: Tensor) -> float:
    return float(values.double().mean()) if values.numel() else float("nan")


def ntk_bounds(task: Split, seed: int) -> Arrays:
    """Lemma 2, Theorems 2 and 5 on infinitely wide networks."""
    nets = list[NTK]()
    for e in (0.0, *HARDER):
        model = hf.train_ntk(
            task.X,
            task.y,
            task.schema,
            beta=BETA,
            epsilon=e,
            rows=NTK_ROWS,
            append_one=False,
            seed=seed,
        )
        nets.append(cast(Any, model).module)
    x = task.schema.encode(task.test_X, torch.float64)
    score, slope = zip(*[(net(x)[:, 0], net.gradient(x)) for net in nets], strict=True)
    side = torch.where(score[0] > 0, -1.0, 1.0).double()
    f = [side * s for s in score]
    grams = [kernel(net.X, net.X) for net in nets]
    y = (grams[0] @ nets[0].w + BETA * nets[0].w).sign()  # the labels that w was solved for
    out = list[list[float]]()
    shown = list[Tensor]()
    for i, e in enumerate(HARDER, 1):
        both = (f[0] <= 0) & (f[i] <= 0)
        a = l2.value(slope[0][both])
        a_r = l2.value(slope[i][both])
        drift = theory.lemma2(grams[0], grams[i], BETA, y).value
        moved = (nets[0].w - nets[i].w).square().sum().sqrt()
        for lam in LAMS:
            m = SCORE - f[0][both]
            m_r = SCORE - f[i][both]
            apart = theory.step_length(a_r, m_r, lam) - theory.step_length(a, m, lam)
            true = theory.theorem2(a, a_r, m, m_r, lam, form="corrected")
            printed = theory.theorem2(a, a_r, m, m_r, lam, form="paper")
            s = side[both, None]
            z = x[both] + theory.scfe_step(s * slope[0][both], m, lam)
            z_r = x[both] + theory.scfe_step(s * slope[i][both], m_r, lam)
            k = s * kernel(z, nets[0].X)
            k_r = s * kernel(z_r, nets[i].X)
            claim = theory.theorem5(k, k_r, nets[0].w, nets[i].w, drift)
            if lam == LAM:
                shown.append(torch.stack([apart[:SHOWN], true.value[:SHOWN]], 1))
            out.append(
                [
                    e,
                    lam,
                    len(m),
                    float(moved),
                    float(drift),
                    _mean(true.violations(apart)),
                    _mean(printed.violations(apart)),
                    _mean(claim.condition),
                    _mean(claim.conclusion[claim.condition]),
                    _mean(apart),
                    _mean(true.value),
                    _mean(true.tightness(apart)),
                ]
            )
    return {"rows": np.array(out)} | _shown(shown)


def vae_bounds(task: Split, epochs: int, rows: int, seed: int) -> Arrays:
    """Theorem 3 on what C-CHVAE decodes, and on the answers it gives, which are what was decoded
    brought into the range of the data."""
    net = latent_space(task, seed)
    product = theory.decoder_lipschitz(net.decoder)
    method = cast(hf.CCHVAE, methods(net)["C-CHVAE"])
    out = list[list[float]]()
    for kind, hidden in enumerate(((), (2 * task.width,))):
        models = hardened(task, hidden, epochs, 1, seed, epsilon=(0.0, *MILD, *HARDER))
        found = hf.tradeoff(
            models, task.test_X.iloc[:rows], {"C-CHVAE": method}, seed=seed
        ).answers["C-CHVAE"]
        answers = {e: cfs for e, (cfs,) in zip(models.epsilon, found, strict=True)}
        traces = list[Trace]()
        for e, cfs in answers.items():
            model = models.model(e)
            traces.append(retrace(method.fit(model, task.X), model, cfs))
        plain = traces[0]
        sampled = theory.sampled_lipschitz(net.decoder, plain.start)
        for e, trace in zip(models.epsilon[1:], traces[1:], strict=True):
            both = trace.radius.isfinite() & plain.radius.isfinite()
            apart = l2.value(net.decode(trace.z[both]) - net.decode(plain.z[both])).double()
            radii = plain.radius[both].double(), trace.radius[both].double()
            true = theory.theorem3(product, *radii)
            low = theory.theorem3(sampled, *radii)
            figures = [_mean(v) for v in (apart, true.value, true.tightness(apart))]
            counts = [_mean(bound.violations(apart)) for bound in (true, low)]
            given = l2.value(answers[e].x_cf[both] - answers[0.0].x_cf[both]).double()
            of_answers = [_mean(true.violations(given)), _mean(given)]
            about = [float(kind), e, float(both.sum()), product, sampled]
            out.append([*about, *counts, *figures, *of_answers])
    return {"rows": np.array(out)}
