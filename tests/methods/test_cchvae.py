"""C-CHVAE against brute force, its bound, and what cannot change."""

import math
from typing import Any

import pytest
import torch
from torch import nn

import holdfast as hf
from holdfast.distances import distance_of, l1, l2
from holdfast.methods._autoencoder import TableAutoencoder
from holdfast.methods._autoencoder_training import autoencoder
from holdfast.methods.cchvae import CCHVAE, retrace
from holdfast.nn.architecture import mlp
from support.tables import Latent, points, problem_of, seeded

D = 5
BOX = hf.Schema.box(D)
SMALL: dict[str, Any] = {"hidden": (16,), "latent": 3, "epochs": 10}


@pytest.fixture(scope="module")
def model() -> hf.Model:
    return hf.Model.of(seeded(mlp(D, (8,), 2), 3), BOX)


@pytest.fixture(scope="module")
def net() -> TableAutoencoder:
    return autoencoder(
        points(300, seed=1), BOX, kind="vae", hidden=(16,), latent=3, beta=0.01, epochs=20
    )


@pytest.fixture(scope="module")
def asked(model: hf.Model) -> torch.Tensor:
    x = points(60)
    return x[model(x).argmax(1) == 0]


def test_defaults_are_those_of_the_benchmark() -> None:
    e = CCHVAE()
    assert (e.kind, e.hidden, e.latent, e.step, e.p, e.norm) == ("vae", (512, 256), 8, 0.1, 1, 1)
    assert repr(CCHVAE(step=0.2, latent=4)) == "CCHVAE(step=0.2, latent=4)"


@pytest.mark.parametrize(("p", "norm"), [(1, 1), (2, 2)])
def test_the_nearest_hit_of_the_first_ring_that_has_one(
    p: Any, norm: Any, model: hf.Model, net: TableAutoencoder, asked: torch.Tensor
) -> None:
    """Paper: krishna2024 Eq. 3."""
    e = CCHVAE(step=0.3, rings=12, samples=50, p=p, norm=norm, autoencoder=net).fit(model, asked)
    cfs = e.explain(model, asked, 1, seed=5)
    assert cfs.found.sum() > 5
    with model.eval_mode():
        problem = problem_of(model, asked, seed=5)
        start = net.encode(asked)
        first = torch.full((len(asked),), math.inf)
        for ring in range(12):
            moves = e._moves(problem.rng, ring, start)
            length = distance_of(p).value(moves)
            assert (length >= 0.3 * ring - 1e-5).all()
            assert (length <= 0.3 * (ring + 1) + 1e-5).all()
            for i in range(len(asked)):
                rows = net.decode(start[i] + moves)
                cost = ((rows - asked[i]).abs() ** norm).sum(1)[
                    problem[torch.full((50,), i)].met(rows)
                ]
                if len(cost) and first[i] == math.inf:
                    first[i] = cost.min()
                    assert cfs.found[i]
                    ours = (cfs.x_cf[i] - asked[i]).abs() ** norm
                    assert float(ours.sum()) == pytest.approx(float(cost.min()), abs=1e-4)
    assert (cfs.found == first.isfinite().numpy()).all()


def test_more_rings_find_more_and_keep_what_was_found(
    model: hf.Model, net: TableAutoencoder, asked: torch.Tensor
) -> None:
    few = (
        CCHVAE(step=0.2, rings=4, samples=30, autoencoder=net)
        .fit(model, asked)
        .explain(model, asked, 1)
    )
    many = (
        CCHVAE(step=0.2, rings=40, samples=30, autoencoder=net)
        .fit(model, asked)
        .explain(model, asked, 1)
    )
    assert few.found.sum() < many.found.sum()
    assert torch.equal(few.x_cf[few.found], many.x_cf[few.found])
    assert torch.equal(few.x_cf[~few.found], few.x[~few.found])


def test_where_answers_came_from(
    model: hf.Model, net: TableAutoencoder, asked: torch.Tensor
) -> None:
    e = CCHVAE(step=0.2, rings=10, samples=40, autoencoder=net).fit(model, asked)
    cfs = e.explain(model, asked, 1, seed=4)
    trace = retrace(e, model, cfs)
    found = torch.tensor(cfs.found)
    assert 0 < int(found.sum()) < len(found)
    assert torch.equal(trace.radius.isfinite(), found)
    assert torch.equal(trace.z[~found], trace.start[~found])
    assert torch.equal(trace.start, net.encode(asked))
    assert torch.allclose(trace.rows, cfs.x_cf, atol=1e-6)
    assert torch.allclose(net.decode(trace.z)[found], cfs.x_cf[found], atol=1e-4)
    length = l1.value(trace.z - trace.start)[found]
    assert (length <= trace.radius[found] + 1e-5).all()
    assert (length >= trace.radius[found] - 0.2 - 1e-5).all()
    with model.eval_mode():
        whole = e.trace(problem_of(model, asked, seed=4))
    assert torch.equal(whole.radius, trace.radius)
    assert torch.equal(whole.z, trace.z)


def test_answers_for_two_models_lie_within_the_bound(net: TableAutoencoder) -> None:
    """|dec(z') - dec(z'')| <= L (r' + r''), L by the spectral norms of the decoder's layers."""
    lipschitz = 1.0
    for layer in net.decoder:
        if isinstance(layer, nn.Linear):
            lipschitz *= float(torch.linalg.matrix_norm(layer.weight, 2))
    models = [hf.Model.of(seeded(mlp(D, (8,), 2), s), BOX) for s in (3, 4)]
    x = points(200)
    x = x[(models[0](x).argmax(1) == 0) & (models[1](x).argmax(1) == 0)]
    traces = []
    for m in models:
        e = CCHVAE(step=0.2, rings=20, samples=40, autoencoder=net).fit(m, x)
        traces.append(retrace(e, m, e.explain(m, x, 1)))
    both = traces[0].radius.isfinite() & traces[1].radius.isfinite()
    assert both.sum() > 10
    gap = l2.value(net.decode(traces[0].z) - net.decode(traces[1].z))[both]
    assert (gap <= lipschitz * (traces[0].radius + traces[1].radius)[both] + 1e-5).all()
    assert gap.max() > 0


def test_all_rows_and_models_are_tried_with_the_same_draws(
    net: TableAutoencoder, asked: torch.Tensor
) -> None:
    module = seeded(mlp(D, (8,), 2), 3)
    twin = seeded(mlp(D, (8,), 2), 3)
    with torch.no_grad():
        twin[-1].weight.mul_(2)
        twin[-1].bias.mul_(2)
    answers = []
    for m in (hf.Model.of(module, BOX), hf.Model.of(twin, BOX)):  # the same classes, other scores
        e = CCHVAE(step=0.2, rings=20, samples=40, autoencoder=net).fit(m, asked)
        answers.append(e.explain(m, asked, 1).x_cf)
    assert torch.equal(*answers)


# ---- what cannot change


@pytest.fixture(scope="module")
def mixed() -> Latent:
    return Latent.of(rules=[], max_changes=0)


def test_the_autoencoder_is_given_what_cannot_change(mixed: Latent) -> None:
    table = mixed.table
    schema = mixed.schema
    model = mixed.model
    e = CCHVAE(step=0.5, rings=20, samples=40, **SMALL).fit(model, table)
    fixed = schema.encoding().fixed
    cfs = mixed.check_given(e)
    assert (cfs.after["sex"] == cfs.before["sex"]).all()
    trace = retrace(e, model, cfs)
    decoded = e.autoencoder_.decode(trace.z, cfs.x)
    assert torch.equal(decoded[:, fixed], cfs.x[:, fixed])
    found = torch.tensor(cfs.found)
    again = schema.feasible(cfs.x).project(decoded)
    assert torch.allclose(again[found], cfs.x_cf[found], atol=1e-3)


def test_an_autoencoder_that_is_given_nothing_will_do(mixed: Latent) -> None:
    table = mixed.table
    schema = mixed.schema
    model = mixed.model
    ready = autoencoder(table, schema, kind="vae", **SMALL)
    e = CCHVAE(step=0.5, rings=20, samples=40, autoencoder=ready).fit(model, table)
    assert e.autoencoder_ is ready
    cfs = e.explain(model, table, "yes")
    fixed = schema.encoding().fixed
    assert cfs.found.any()
    assert torch.equal(cfs.x_cf[:, fixed], cfs.x[:, fixed])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("samples", [37, 100])
def test_an_answer_does_not_depend_on_the_batch(
    samples: int, dtype: torch.dtype, mixed: Latent
) -> None:
    table = mixed.table
    schema = mixed.schema
    model = hf.Model.of(seeded(mlp(schema.width, (16,), 2)).to(dtype), schema)
    e = CCHVAE(step=0.5, rings=8, samples=samples, **SMALL).fit(model, table)
    whole = e.explain(model, table, seed=1)
    assert whole.found.any()
    parts = [
        e.explain(model, table.iloc[i : i + 70], seed=1, batch_size=9)
        for i in range(0, len(table), 70)
    ]
    assert torch.equal(torch.cat([p.x_cf for p in parts]), whole.x_cf)
    assert torch.equal(e.explain(model, table.iloc[33:34], seed=1).x_cf[0], whole.x_cf[33])
    twin = CCHVAE(step=0.5, rings=8, samples=samples, **SMALL).fit(model, table)
    assert torch.equal(twin.explain(model, table, seed=1).x_cf, whole.x_cf)
    assert not torch.equal(e.explain(model, table, seed=2).x_cf, whole.x_cf)


def test_the_budget_is_looked_at_within_a_ring(net: TableAutoencoder) -> None:
    model = hf.Model.of(seeded(nn.Sequential(nn.Linear(D, 2))), BOX)
    with torch.no_grad():
        model.module[0].bias.copy_(torch.tensor([1e6, 0.0]))  # nothing is ever found
    e = CCHVAE(step=0.1, rings=50, samples=1_000_000, autoencoder=net).fit(model, points(9))
    cfs = e.explain(model, points(200), 1, time_budget=0.05)
    assert not cfs.found.any()
    assert cfs.run.seconds < 5


def test_wrong_settings_are_named(model: hf.Model, net: TableAutoencoder) -> None:
    x = points(4)
    for wrong in ({"step": 0.0}, {"rings": 0}, {"samples": 0}, {"p": 3}, {"norm": 0}):
        with pytest.raises(hf.HoldfastError, match=next(iter(wrong))):
            CCHVAE(autoencoder=net, **wrong).fit(model, x).explain(model, x, 1)
    other = hf.Model.of(seeded(mlp(3, (4,), 2)), hf.Schema.box(3))
    with pytest.raises(hf.HoldfastError, match="5 columns"):
        CCHVAE(autoencoder=net).fit(model, x).explain(other, points(2, 3), 1)
    with pytest.raises(hf.HoldfastError, match=r"call .fit"):
        CCHVAE().explain(model, x, 1)
