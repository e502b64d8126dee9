"""Latent search against brute force, and the autoencoders it searches in."""

import dataclasses
import math
import pickle
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

import holdfast as hf
from holdfast.distances import l2
from holdfast.methods._autoencoder import (
    TableAutoencoder,
    group_softmax,
)
from holdfast.methods._autoencoder_training import autoencoder, divergence, reconstruction
from holdfast.methods.latent_search import around
from holdfast.nn.architecture import mlp
from support.tables import N, points, problem_of, seeded

D = 5
BOX = hf.Schema.box(D)
NO_GROUPS = torch.zeros(0, 0, dtype=torch.int64)


def identity(d: int = D, *, shift: float = 0.0) -> TableAutoencoder:
    """An autoencoder with dec(enc(x)) = x + shift."""
    nets: list[nn.Sequential] = []
    for bias in (0.0, shift):
        layer = nn.Linear(d, d)
        with torch.no_grad():
            layer.weight.copy_(torch.eye(d))
            layer.bias.fill_(bias)
        nets.append(nn.Sequential(layer).requires_grad_(False))
    return TableAutoencoder(nets[0], nets[1], NO_GROUPS)


def linear(w: list[float], b: float = 0.0) -> hf.Model:
    """Class 1 where w . x + b > 0."""
    net = nn.Sequential(nn.Linear(len(w), 1))
    with torch.no_grad():
        net[0].weight.copy_(torch.tensor([w]))
        net[0].bias.fill_(b)
    return hf.Model.of(net, hf.Schema.box(len(w)))


# ---- the search


def test_points_are_drawn_on_spheres_of_uniform_radius() -> None:
    """Paper: black2022 Baseline Pawelczyk."""
    model = linear([1.0] * D)
    x = points(N)
    with model.eval_mode():
        z = around(problem_of(model, x), x, 2.0, 4000, draw=0)
        other = around(problem_of(model, x), x, 2.0, 4000, draw=1)
    assert z.shape == (N, 4000, D)
    r = (z - x[:, None]).norm(dim=2)
    assert (r <= 2.0 + 1e-5).all()
    assert (
        r.quantile(torch.tensor([0.25, 0.5, 0.75]), 1) - torch.tensor([[0.5], [1.0], [1.5]])
    ).abs().max() < 0.07
    u = (z - x[:, None]) / r[..., None]
    assert u.mean(1).abs().max() < 0.05
    assert ((u.square()).mean(1) - 1 / D).abs().max() < 0.02
    assert not torch.equal(z, other)


def test_the_reconstruction_is_the_answer_where_it_succeeds() -> None:
    model = linear([1.0] + [0.0] * (D - 1))
    x = torch.zeros(3, D)
    x[:, 0] = torch.tensor([-0.4, -0.2, -3.0])
    e = hf.LatentSearch(radius=0.5, samples=64, autoencoder=identity(shift=0.5)).fit(model, x)
    cfs = e.explain(model, x, 1)
    assert cfs.found.tolist() == [True, True, False]
    assert torch.allclose(cfs.x_cf[:2], x[:2] + 0.5)
    assert torch.equal(cfs.x_cf[2], x[2])  # itself, and not what another row decodes to


def test_the_nearest_success_is_taken() -> None:
    """Paper: black2022 Baseline Pawelczyk."""
    model = hf.Model.of(seeded(mlp(D, (8,), 2), 3), BOX)
    x = points(40)
    x = x[model(x).argmax(1) == 0]
    e = hf.LatentSearch(radius=3.0, samples=100, hidden=(16,), latent=3, epochs=10).fit(
        model, points(300, seed=1)
    )
    cfs = e.explain(model, x, 1, seed=5)
    net = e.autoencoder_
    with model.eval_mode():
        problem = problem_of(model, x, seed=5)
        z = net.encode(x)
        again = net.decode(z)
        rows = net.decode(around(problem, z, 3.0, 100, 0).flatten(0, 1))
        hits = (
            problem.goal[torch.arange(len(x)).repeat_interleave(100)]
            .met(model(rows))
            .reshape(len(x), 100)
        )
        done = problem.met(again)
    rows = rows.reshape(len(x), 100, D)
    assert cfs.found.sum() > 3
    assert 0 < int(done.sum()) < len(x)
    for i in range(len(x)):
        distance = [float((rows[i, j] - x[i]).norm()) for j in range(100) if hits[i, j]]
        if done[i]:
            assert torch.allclose(cfs.x_cf[i], again[i], atol=1e-6)
        elif distance:
            assert float((cfs.x_cf[i] - x[i]).norm()) == pytest.approx(min(distance), abs=1e-5)
        else:
            assert not cfs.found[i]
            assert torch.equal(cfs.x_cf[i], x[i])


def test_repeats_go_on_until_a_hit() -> None:
    model = linear([1.0] + [0.0] * (D - 1))
    x = points(60)
    x[:, 0] = -0.9
    ready = identity()
    found = [
        hf.LatentSearch(radius=1.0, samples=8, repeats=r, autoencoder=ready)
        .fit(model, x)
        .explain(model, x, 1)
        .found
        for r in (1, 5, 100)
    ]
    assert found[0].sum() < found[1].sum() < found[2].sum()
    assert (found[1] >= found[0]).all()  # later draws do not touch the rows that have a hit
    far = x.clone()
    far[:, 0] = -1.1
    e = hf.LatentSearch(radius=1.0, samples=8, repeats=3, autoencoder=ready).fit(model, x)
    assert not e.explain(model, far, 1).found.any()
    assert (l2.value(e.explain(model, x, 1).x_cf - x) <= 1.0 + 1e-5).all()


def test_seed_and_batch() -> None:
    model = linear([1.0] * D, -1.0)
    x = points(30)
    x = x[x.sum(1) < 1.0]
    e = hf.LatentSearch(radius=3.0, samples=30, hidden=(16,), latent=3, epochs=3).fit(
        model, points(200, seed=2)
    )
    twin = hf.LatentSearch(radius=3.0, samples=30, hidden=(16,), latent=3, epochs=3).fit(
        model, points(200, seed=2)
    )
    whole = e.explain(model, x, 1, seed=1)
    assert whole.found.any()
    assert torch.equal(twin.explain(model, x, 1, seed=1).x_cf, whole.x_cf)
    assert not torch.equal(e.explain(model, x, 1, seed=2).x_cf, whole.x_cf)
    assert torch.equal(e.explain(model, x, 1, seed=1, batch_size=3).x_cf, whole.x_cf)
    alone = torch.cat([e.explain(model, x[i : i + 1], 1, seed=1).x_cf for i in range(len(x))])
    assert torch.equal(alone, whole.x_cf)


def test_wrong_settings_are_named() -> None:
    model = linear([1.0] * D)
    x = points(4)
    for wrong in ({"radius": 0.0}, {"samples": 0}, {"repeats": 0}):
        e = hf.LatentSearch(autoencoder=identity(), **wrong).fit(model, x)
        with pytest.raises(hf.HoldfastError, match=next(iter(wrong))):
            e.explain(model, x, 1)
    with pytest.raises(hf.HoldfastError, match="3 columns"):
        hf.LatentSearch(autoencoder=identity(3)).fit(model, x).explain(model, x, 1)
    with pytest.raises(hf.HoldfastError, match="kind"):
        hf.LatentSearch(kind="other").fit(model, x)
    with pytest.raises(hf.HoldfastError, match=r"call .fit"):
        hf.LatentSearch().explain(model, x, 1)


# ---- autoencoders


@pytest.fixture(scope="module")
def curved() -> torch.Tensor:
    """Rows on a curved sheet of two dimensions in five."""
    a, b = points(600, 2, seed=4).T
    return torch.stack([a, b, a * b, a - b, torch.tanh(2 * a)], 1)


@pytest.mark.parametrize("kind", ["autoencoder", "vae"])
def test_training_learns_the_data(kind: str, curved: torch.Tensor) -> None:
    net = autoencoder(curved, BOX, kind=kind, hidden=(32,), latent=2, beta=0.01, epochs=40)
    assert net.kind == kind
    assert (net.width, net.latent) == (D, 2)
    assert net.history[-1][0] < 0.3 * net.history[0][0]
    assert net.encode(curved).shape == (600, 2)
    assert (net.decode(net.encode(curved)) - curved).square().mean() < 0.3 * curved.var()


def test_early_stopping_keeps_the_best_weights(curved: torch.Tensor) -> None:
    net = autoencoder(
        curved[:40], BOX, hidden=(64,), latent=4, epochs=200, lr=0.03, patience=3, held_out=0.5
    )
    test = [b for _, b in net.history]
    best = min(range(len(test)), key=test.__getitem__)
    assert len(test) < 200
    assert len(test) == best + 1 + 3
    order = torch.randperm(40, generator=_after_weights(0, 64, 4))
    held = curved[:40][order[:20]]
    assert float((net.decode(net.encode(held)) - held).square().mean()) == pytest.approx(
        test[best], rel=1e-4
    )


def _after_weights(seed: int, hidden: int, latent: int) -> torch.Generator:
    """The trainer's generator once it has drawn the weights."""
    generator = torch.Generator().manual_seed(seed)
    for a, b in ((D, hidden), (hidden, latent), (latent, hidden), (hidden, D)):
        torch.empty(b, a).uniform_(generator=generator)
    return generator


def test_same_seed_same_network_and_the_global_generators_stay(curved: torch.Tensor) -> None:
    torch.manual_seed(7)
    before = torch.get_rng_state()
    threads = torch.get_num_threads()
    nets = [
        autoencoder(curved, BOX, kind="vae", hidden=(8,), latent=2, epochs=2, seed=s)
        for s in (1, 1, 2)
    ]
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.get_num_threads() == threads
    z = [net.encode(curved) for net in nets]
    assert torch.equal(z[0], z[1])
    assert not torch.equal(z[0], z[2])
    with torch.inference_mode():
        inside = autoencoder(
            curved.clone(), BOX, kind="vae", hidden=(8,), latent=2, epochs=2, seed=1
        )
    assert torch.equal(inside.encode(curved), z[0])


@pytest.mark.parametrize("kind", ["autoencoder", "vae"])
def test_save_and_load(kind: str, table: pd.DataFrame, schema: hf.Schema, tmp_path: Path) -> None:
    net = autoencoder(table, schema, kind=kind, hidden=(8, 6), latent=3, epochs=2)
    net.save(tmp_path / "net.safetensors")
    same = TableAutoencoder.load(tmp_path / "net.safetensors")
    x = schema.encode(table)
    assert (same.kind, same.history, repr(same)) == (net.kind, net.history, repr(net))
    assert torch.equal(same.encode(x), net.encode(x))
    assert torch.equal(same.decode(net.encode(x)), net.decode(net.encode(x)))
    copy = pickle.loads(pickle.dumps(net))
    assert torch.equal(copy.encode(x), net.encode(x))
    with pytest.raises(hf.HoldfastError):
        hf.Model.load(tmp_path / "net.safetensors")
    (tmp_path / "bad.safetensors").write_bytes(b"nothing")
    for name in ("bad.safetensors", "none.safetensors"):
        with pytest.raises(hf.HoldfastError, match="cannot read"):
            TableAutoencoder.load(tmp_path / name)
    with pytest.raises(hf.HoldfastError, match="cannot write"):
        net.save(tmp_path / "no" / "where.safetensors")


def test_networks_that_do_not_fit_are_refused() -> None:
    good = identity()
    with pytest.raises(hf.HoldfastError, match="do not fit"):
        dataclasses.replace(good, decoder=nn.Sequential(nn.Linear(D, D + 1)))
    with pytest.raises(hf.HoldfastError, match="Linear and ReLU"):
        dataclasses.replace(good, encoder=nn.Sequential(nn.Tanh()))
    for wrong in ({"latent": 0}, {"lr": 0.0}, {"held_out": 1.0}, {"patience": 0}):
        with pytest.raises(hf.HoldfastError, match=next(iter(wrong))):
            autoencoder(points(9), BOX, **wrong)
    with pytest.raises(hf.HoldfastError, match="at least 2 rows"):
        autoencoder(points(1), BOX)
    with pytest.raises(hf.HoldfastError, match="diverged"):
        autoencoder(torch.full((9, D), math.nan), BOX, epochs=1)


def test_divergence_is_the_integral() -> None:
    """KL( N(m, s^2) | N(0, 1) ) in one dimension, by the trapezoidal rule."""
    m = np.array([0.0, 1.3, -0.4])
    s = np.array([1.0, 0.5, 2.0])
    t = np.linspace(-30, 30, 200_001)
    p = np.exp(-((t - m[:, None]) ** 2) / (2 * s[:, None] ** 2)) / (
        s[:, None] * math.sqrt(2 * math.pi)
    )
    log_ratio = -((t - m[:, None]) ** 2) / (2 * s[:, None] ** 2) - np.log(s)[:, None] + t**2 / 2
    integral = np.trapezoid(p * log_ratio, t, axis=1)
    got = divergence(torch.tensor(m)[:, None], torch.tensor(2 * np.log(s))[:, None])
    assert np.allclose(got.numpy(), integral, atol=1e-8)
    both = divergence(torch.tensor(m[None]), torch.tensor(2 * np.log(s)[None]))
    assert float(both) == pytest.approx(integral.sum())


def test_losses_by_hand() -> None:
    # columns 1, 2 and 3, 4; column 0 is a number
    groups = torch.tensor([[1, 2, 5], [3, 4, 0]])[:, :2]
    x = torch.tensor([[2.0, 1.0, 0.0, 0.0, 1.0]])
    raw = torch.tensor([[1.5, 0.0, 0.0, math.log(3.0), 0.0]])
    assert float(reconstruction(raw, x, groups)) == pytest.approx(0.25 + math.log(2) + math.log(4))
    assert torch.allclose(group_softmax(raw, groups), torch.tensor([[1.5, 0.5, 0.5, 0.75, 0.25]]))
    assert float(reconstruction(raw, x, NO_GROUPS)) == pytest.approx(
        float((raw - x).square().sum())
    )
    # a category of three levels and one of one, padded with d = 5
    padded = torch.tensor([[1, 2, 3], [4, 5, 5]])
    assert torch.allclose(
        group_softmax(torch.zeros(2, 5), padded)[:, 1:], torch.tensor([1 / 3, 1 / 3, 1 / 3, 1.0])
    )
    assert torch.allclose(
        reconstruction(torch.zeros(1, 5), torch.tensor([[0.0, 0.0, 1.0, 0.0, 1.0]]), padded),
        torch.tensor([math.log(3.0)]),
    )


def test_vae_decodes_categories_to_probabilities(table: pd.DataFrame, schema: hf.Schema) -> None:
    net = autoencoder(table, schema, kind="vae", hidden=(16,), latent=3, epochs=3)
    x = net.decode(net.encode(schema.encode(table)))
    for group in schema.encoding().groups:
        columns = group[group < schema.width]
        assert torch.allclose(x[:, columns].sum(1), torch.ones(len(x)), atol=1e-5)
        assert (x[:, columns] >= 0).all()


def test_decoding_has_gradients_and_does_not_depend_on_the_batch() -> None:
    net = autoencoder(points(50), BOX, hidden=(64, 16), latent=3, epochs=1)
    z = points(700, 3)
    assert torch.equal(net.decode(z[3:8]), net.decode(z)[3:8])
    assert net.decode(z[:0]).shape == (0, D)
    leaf = z[:4].clone().requires_grad_()
    by_hand = torch.autograd.grad(net.decode(leaf)[:, 0].sum(), leaf)[0]
    by_torch = torch.autograd.grad(net.decoder(leaf)[:, 0].sum(), leaf)[0]
    assert torch.allclose(by_hand, by_torch, atol=1e-6)
