"""Autoencoders that are given what cannot change, their gradients by hand, and how they are
trained."""

import dataclasses
import pickle
from pathlib import Path

import pandas as pd
import pytest
import torch
from safetensors import safe_open
from torch import nn

import holdfast as hf
from holdfast.methods._autoencoder import (
    TableAutoencoder,
    group_softmax,
    group_softmax_pull,
)
from holdfast.methods._autoencoder_training import autoencoder
from holdfast.nn.architecture import mlp
from support.tables import points, seeded

WIDTH = 8
LATENT = 3
GROUPS = torch.tensor([[1, 2, 3], [6, 7, 8]])  # columns 1 to 3, and 6 and 7 (padded with d = 8)
GIVEN = torch.tensor([0, 4])


def conditioned(
    dtype: torch.dtype = torch.float32, given: torch.Tensor = GIVEN
) -> TableAutoencoder:
    k = len(given)
    nets = seeded(mlp(WIDTH, (8,), 2 * LATENT)), seeded(mlp(LATENT + k, (16, 8), WIDTH - k), 1)
    encoder, decoder = (net.to(dtype).requires_grad_(False) for net in nets)
    return TableAutoencoder(encoder, decoder, GROUPS, given=given)


# ---- given columns


def test_given_columns_are_copied_and_have_a_say() -> None:
    net = conditioned()
    x = points(11, WIDTH)
    assert (net.width, net.latent, net.kind) == (WIDTH, LATENT, "vae")
    assert "2 given" in repr(net)
    z = net.encode(x)
    assert z.shape == (11, LATENT)
    y = net.decode(z, x)
    assert torch.equal(y[:, GIVEN], x[:, GIVEN])
    assert torch.allclose(y[:, 1:4].sum(1), torch.ones(11), atol=1e-6)
    assert torch.allclose(y[:, 6:].sum(1), torch.ones(11), atol=1e-6)
    other = x.clone()
    other[:, 4] += 1
    moved = net.decode(z, other)
    assert torch.equal(moved[:, 4], other[:, 4])
    assert ((moved - y)[:, 5].abs() > 1e-3).any()
    other[:, 1] += 1  # not given: what the decoder is told does not change
    assert torch.equal(net.decode(z, other), moved)


def test_given_columns_keep_every_digit() -> None:
    net = conditioned()
    x = points(5, WIDTH, dtype=torch.float64)
    y = net.decode(net.encode(x), x)
    assert y.dtype == torch.float64
    assert torch.equal(y[:, GIVEN], x[:, GIVEN])
    rows, _ = net.decode_vjp(net.encode(x), x)
    assert torch.equal(rows[:, GIVEN], x[:, GIVEN])


def test_nothing_given_is_as_before() -> None:
    net = conditioned(given=torch.zeros(0, dtype=torch.int64))
    x = points(9, WIDTH)
    z = net.encode(x)
    assert torch.equal(net.decode(z, x), net.decode(z))
    assert torch.equal(
        net.decode(z),
        group_softmax(net.decode(z, x.double()), torch.zeros(0, 0, dtype=torch.int64)),
    )
    assert "given" not in repr(net)


def test_a_row_does_not_depend_on_the_others() -> None:
    net = conditioned()
    x = points(40, WIDTH)
    z = net.encode(x)
    weights = points(40, WIDTH, seed=2)
    rows, pull = net.decode_vjp(z, x)
    grad = pull(weights)
    assert torch.equal(net.decode(z[5:8], x[5:8]), net.decode(z, x)[5:8])
    part, part_pull = net.decode_vjp(z[5:8], x[5:8])
    assert torch.equal(part, rows[5:8])
    assert torch.equal(part_pull(weights[5:8]), grad[5:8])
    assert net.decode(z[:0], x[:0]).shape == (0, WIDTH)


def test_wrong_given_columns_are_refused(table: pd.DataFrame, schema: hf.Schema) -> None:
    net = conditioned()
    with pytest.raises(hf.HoldfastError, match=r"given 2 columns .* decode\(z, x\)"):
        net.decode(points(3, LATENT))
    with pytest.raises(hf.HoldfastError, match="do not fit"):
        dataclasses.replace(net, given=torch.tensor([0]))
    for wrong in ([0, 0], [0, 8], [-1, 4]):
        with pytest.raises(hf.HoldfastError, match="each once"):
            dataclasses.replace(net, given=torch.tensor(wrong))
    with pytest.raises(hf.HoldfastError, match="all columns of a category or none"):
        dataclasses.replace(net, given=torch.tensor([0, 1]))
    first = int(schema.encoding().groups[0, 0])
    with pytest.raises(hf.HoldfastError, match="all columns of a category or none"):
        autoencoder(table, schema, kind="vae", given=torch.tensor([first]), epochs=1)
    with pytest.raises(hf.HoldfastError, match="none is left"):
        autoencoder(table, schema, given=torch.arange(schema.width), epochs=1)
    with pytest.raises(hf.HoldfastError, match="each once"):
        autoencoder(table, schema, given=torch.tensor([schema.width]), epochs=1)


@pytest.mark.parametrize("kind", ["autoencoder", "vae"])
def test_save_and_load_with_given_columns(
    kind: str, table: pd.DataFrame, schema: hf.Schema, tmp_path: Path
) -> None:
    given = schema.encoding().fixed.nonzero().squeeze(1)
    assert len(given) == 2  # both columns of "sex"
    net = autoencoder(table, schema, kind=kind, hidden=(8, 6), latent=3, epochs=2, given=given)
    x = schema.encode(table)
    assert torch.equal(net.decode(net.encode(x), x)[:, given], x[:, given])
    assert not torch.isin(net.groups, given).any()
    net.save(tmp_path / "net.safetensors")
    same = TableAutoencoder.load(tmp_path / "net.safetensors")
    for twin in (same, pickle.loads(pickle.dumps(net))):
        assert torch.equal(twin.given, given)
        assert repr(twin) == repr(net)
        assert torch.equal(twin.decode(twin.encode(x), x), net.decode(net.encode(x), x))


def test_files_without_given_columns_are_as_before(
    table: pd.DataFrame, schema: hf.Schema, tmp_path: Path
) -> None:
    net = autoencoder(table, schema, hidden=(8,), latent=3, epochs=1)
    net.save(tmp_path / "net.safetensors")
    with safe_open(tmp_path / "net.safetensors", framework="pt") as file:
        assert "given" not in list(file.keys())
    assert not len(TableAutoencoder.load(tmp_path / "net.safetensors").given)


# ---- gradients


def test_gradients_by_hand_against_finite_differences() -> None:
    net = conditioned(torch.float64)
    x = points(13, WIDTH, dtype=torch.float64)
    z = points(13, LATENT, 5, torch.float64)
    v = points(13, WIDTH, 6, torch.float64)
    rows, pull = net.decode_vjp(z, x)
    assert torch.allclose(rows, net.decode(z, x), atol=1e-12)
    grad = pull(v)
    eps = 1e-6
    assert grad.shape == z.shape
    assert torch.equal(pull(v), grad)  # it may be asked again
    for j in range(LATENT):
        step = torch.zeros(LATENT, dtype=torch.float64)
        step[j] = eps
        slope = ((net.decode(z + step, x) - net.decode(z - step, x)) * v).sum(1) / (2 * eps)
        assert torch.allclose(grad[:, j], slope, atol=1e-6)


def test_gradients_by_hand_against_autograd(table: pd.DataFrame, schema: hf.Schema) -> None:
    given = schema.encoding().fixed.nonzero().squeeze(1)
    net = autoencoder(table, schema, kind="vae", hidden=(16, 8), latent=4, epochs=2, given=given)
    x = schema.encode(table)[:21]
    v = points(21, schema.width)
    leaf = net.encode(x).clone().requires_grad_()
    (by_torch,) = torch.autograd.grad((net.decode(leaf, x) * v).sum(), leaf)
    _, pull = net.decode_vjp(net.encode(x), x)
    assert torch.allclose(pull(v), by_torch, atol=1e-5)


def test_softmax_pull_by_autograd() -> None:
    raw = points(6, WIDTH, dtype=torch.float64).requires_grad_()
    v = points(6, WIDTH, 1, torch.float64)
    soft = group_softmax(raw, GROUPS)
    (by_torch,) = torch.autograd.grad((soft * v).sum(), raw)
    assert torch.allclose(group_softmax_pull(soft.detach(), v, GROUPS), by_torch, atol=1e-12)
    assert torch.equal(group_softmax_pull(soft.detach(), v, GROUPS)[:, [0, 4, 5]], v[:, [0, 4, 5]])


# ---- training


def test_what_is_given_is_learnt() -> None:
    """One column says which of two clusters a row is in: the decoder must be told, and listens."""
    side = (torch.arange(600) % 2).float()
    x = torch.stack([side, 4 * side - 2 + 0.1 * points(600, 1)[:, 0], points(600, 1, 1)[:, 0]], 1)
    net = autoencoder(
        x,
        hf.Schema.box(3),
        kind="vae",
        hidden=(32,),
        latent=1,
        beta=2.0,
        epochs=60,
        given=torch.tensor([0]),
    )
    z = net.encode(x)
    assert (net.decode(z, x)[:, 1] - x[:, 1]).abs().mean() < 0.5
    flipped = x.clone()
    flipped[:, 0] = 1 - side
    far = net.decode(z, flipped)[:, 1]
    assert ((far > 0) == (side == 0)).float().mean() > 0.95


def test_the_divergence_is_warmed_up() -> None:
    x = points(200, 4)
    box = hf.Schema.box(4)
    how = {"kind": "vae", "hidden": (8,), "latent": 2, "batch_size": 32}
    warm = autoencoder(x, box, beta=0.3, warm_up=5, epochs=5, **how)
    none = autoencoder(x, box, beta=0.0, epochs=5, **how)
    full = autoencoder(x, box, beta=0.3, epochs=5, **how)
    assert warm.history[0][0] == none.history[0][0]  # no weight in the first epoch
    assert warm.history[0][0] != full.history[0][0]
    assert warm.history[1][0] != none.history[1][0]
    assert len(warm.history) == 5  # nothing is stopped before the weight is whole
    with torch.no_grad():
        m, v = warm.encoder(x).chunk(2, 1)
    assert m.isfinite().all()
    assert v.isfinite().all()


def test_the_best_epoch_is_one_after_the_warm_up() -> None:
    """A large step size: the loss on rows held out rises, and early stopping still waits for the
    whole weight."""
    x = points(60, 4)
    box = hf.Schema.box(4)
    how = {
        "kind": "vae",
        "hidden": (16,),
        "latent": 2,
        "lr": 0.03,
        "held_out": 0.5,
        "patience": 2,
        "epochs": 100,
    }
    net = autoencoder(x, box, warm_up=20, **how)
    assert 20 <= len(net.history) < 100
    held = [b for _, b in net.history]
    best = 19 + min(range(len(held) - 19), key=held[19:].__getitem__)
    assert len(held) == best + 1 + 2


def test_weight_decay_shrinks_weights() -> None:
    x = points(200, 4)
    box = hf.Schema.box(4)
    plain = autoencoder(x, box, hidden=(16,), latent=2, epochs=20, weight_decay=0.0)
    decayed = autoencoder(x, box, hidden=(16,), latent=2, epochs=20, weight_decay=0.5)
    size = [
        sum(float(p.square().sum()) for p in net.decoder.parameters()) for net in (plain, decayed)
    ]
    assert size[1] < 0.9 * size[0]


def test_wrong_training_settings_are_named() -> None:
    for wrong in ({"warm_up": -1}, {"warm_up": 9, "epochs": 5}, {"weight_decay": -1.0}):
        with pytest.raises(hf.HoldfastError, match=next(iter(wrong))):
            autoencoder(points(9, 4), hf.Schema.box(4), **wrong)


def test_layers_that_are_no_layers_are_refused() -> None:
    with pytest.raises(hf.HoldfastError, match="Linear and ReLU"):
        dataclasses.replace(
            conditioned(), decoder=nn.Sequential(nn.Linear(LATENT, WIDTH), nn.Tanh())
        )
