"""Parametric generators: gradients against autograd, stacks against single runs, robust training,
errors."""

import pickle
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from torch import Tensor, nn

import holdfast as hf
from holdfast.evaluation.shift_attack import validity_under_shift
from holdfast.methods.amortized import vae_cf
from holdfast.methods.amortized._generator_loop import (
    GeneratorKind,
    GeneratorRun,
    GeneratorStack,
    GeneratorTraining,
    fit_generators,
    with_target,
)
from holdfast.methods.amortized._parallel import Batches, by_seed
from holdfast.methods.amortized.vae_cf import lead_and_slope, normal, sigmoid_levels
from holdfast.methods.amortized.virtual_shift import Batch, Shift
from holdfast.nn.architecture import mlp
from holdfast.nn.stack_derivatives import AnyModule, Leaky, Net, Weights
from holdfast.retraining.frozen import members_of, net_of
from holdfast.schema.feasible import FeasibleSet
from support.tables import mixed_schema, mixed_table, seeded

TABLE = mixed_table(90)
SCHEMA = mixed_schema(TABLE)
D = SCHEMA.width
M = 3
N = 7
ENCODING = SCHEMA.encoding(torch.float64)
X = SCHEMA.encode(TABLE, torch.float64)
SMALL = hf.CFModel(hidden=(8, 5), dropout=0.0, l2=0.7, l3=0.3, epochs=2, batch_size=16)
NOISY = hf.VAECF(hidden=(7, 6), latent=3, samples=4, reg=0.6, margin=1.5, epochs=2, batch_size=16)


def frozen(
    outputs: int, dtype: torch.dtype = torch.float64, *, smooth: bool = False
) -> tuple[Net, Weights]:
    """M different networks of one architecture."""
    act: nn.Module = nn.Tanh() if smooth else nn.LeakyReLU(0.01)
    nets = [
        net_of(seeded(nn.Sequential(nn.Linear(D, 9), act, nn.Linear(9, outputs)).to(dtype), s), 1)
        for s in range(M)
    ]
    return nets[0][0], Weights(torch.cat([theta.flat for _, theta in nets]), nets[0][1].sizes)


def training(
    kind: GeneratorKind, outputs: int, shift: Shift | None = None, *, smooth: bool = False
) -> GeneratorTraining:
    kind = replace(kind, shift=shift)
    net, theta = frozen(outputs, smooth=smooth)
    stack = GeneratorStack.of(kind, D, max(outputs, 2), M, torch.float64)
    batches = Batches(
        X, torch.zeros(len(X)), [torch.arange(len(X))] * M, kind.batch_size, by_seed(range(M))
    )
    with torch.no_grad():
        return kind.training(GeneratorRun(stack, net, theta, ENCODING), batches)


def batch() -> tuple[Tensor, Tensor, Tensor]:
    """Rows, classes, and weights: the last model has two rows less than the others."""
    x = torch.stack([X[:N], X[N : 2 * N], X[2 * N : 3 * N]])
    w = torch.full((M, N, 1), 1 / N, dtype=torch.float64)
    w[2] = torch.tensor([0.2] * 5 + [0.0] * 2, dtype=torch.float64)[:, None]
    return x, (torch.arange(M * N) % 2).view(M, N, 1).double(), w


def free(run: GeneratorTraining) -> list[list[tuple[Tensor, Tensor]]]:
    """The parameters of all networks, to be differentiated."""
    nets = zip(run.stack.nets, run.stack.thetas, strict=True)
    return [
        [(w.clone().requires_grad_(), b.clone().requires_grad_()) for w, b in n.unpadded(t)]
        for n, t in nets
    ]


def through(parts: list[tuple[Tensor, Tensor]], x: Tensor) -> Tensor:
    for i, (w, b) in enumerate(parts):
        x = x @ w + b
        x = nn.functional.leaky_relu(x, 0.01) if i < len(parts) - 1 else x
    return x


def classes_to_reach(run: GeneratorTraining, x: Tensor) -> Tensor:
    z = run.run.net.scores(run.run.theta, x)
    return (z.argmax(2, keepdim=True) if z.shape[2] > 1 else (z > 0).long()) ^ 1


def kept(x_cf: Tensor, x: Tensor) -> Tensor:
    return torch.where(ENCODING.fixed, x, x_cf)


def judged(run: GeneratorTraining, x_cf: Tensor) -> Tensor:
    """What the frozen models say, with a graph."""
    net = run.run.net
    theta = run.run.theta
    if isinstance(net, AnyModule):
        return net.scores(theta, x_cf)
    assert isinstance(net, Leaky)
    return through(net.unpadded(theta), x_cf)


def compare(run: GeneratorTraining, loss: Tensor, parts: list[list[tuple[Tensor, Tensor]]]) -> None:
    expected = torch.autograd.grad(loss, [p for net in parts for pair in net for p in pair])
    found = [
        p
        for net, g in zip(run.stack.nets, run.grads, strict=True)
        for pair in net.unpadded(g)
        for p in pair
    ]
    for mine, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize(
    ("outputs", "smooth", "tell"), [(1, False, False), (2, False, True), (1, True, True)]
)
def test_a_step_of_cf_model_is_that_of_autograd(outputs: int, smooth: bool, tell: bool) -> None:
    """Paper: guo2023 Baseline CF Model."""
    kind = hf.CFModel(hidden=(8, 5), dropout=0.0, l2=0.7, l3=0.3, condition_on_target=tell)
    run = training(kind, outputs, smooth=smooth)
    x, y, w = batch()
    parts = free(run)
    t = classes_to_reach(run, x)
    before = [theta.flat.clone() for theta in run.stack.thetas]
    with torch.no_grad():
        run.step(x, y, w, 0.0)
    x_cf = kept(ENCODING.softmax(through(parts[0], with_target(x, t, int(tell)))), x)
    z = judged(run, x_cf)
    f = torch.sigmoid(z if outputs == 1 else z[..., 1:] - z[..., :1])
    loss = (w * (0.7 * (f - t).square() + 0.3 * (x_cf - x).square().mean(2, keepdim=True))).sum()
    compare(run, loss, parts)
    # The first step of Adam has the length lr wherever there is a gradient.
    moved = run.stack.thetas[0].flat - before[0]
    g = run.grads[0].flat
    torch.testing.assert_close(
        moved, -kind.lr * g / (g.abs() + kind.loop().adam_eps), rtol=1e-6, atol=1e-12
    )


def test_more_classes_are_drawn_and_told() -> None:
    run = training(SMALL, 4)
    x, y, w = batch()
    parts = free(run)
    now = run.run.net.scores(run.run.theta, x).argmax(2)
    seen = list[Tensor]()
    ask = run.answer
    run.answer = lambda thetas, x, t, draw: (seen.append(t), ask(thetas, x, t, draw))[1]
    with torch.no_grad():
        run.step(x, y, w, 0.0)
    (t,) = seen
    assert bool((t.squeeze(2) != now).all())
    assert len(t.unique()) == 4
    x_cf = kept(ENCODING.softmax(through(parts[0], with_target(x, t, 4))), x)
    entropy = nn.functional.cross_entropy(
        judged(run, x_cf).flatten(0, 1), t.flatten(), reduction="none"
    )
    loss = (
        w * (0.7 * entropy.view(M, N, 1) + 0.3 * (x_cf - x).square().mean(2, keepdim=True))
    ).sum()
    compare(run, loss, parts)


@pytest.mark.parametrize(("outputs", "smooth"), [(1, False), (2, False), (2, True)])
@pytest.mark.parametrize("cells", [vae_cf.SAMPLED_CELLS, 1, 3 * M * N * D])
def test_a_step_of_vae_cf_is_that_of_autograd(
    outputs: int, smooth: bool, cells: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Paper: guo2023 Baseline VAE-CF."""
    # all samples at once, one by one, or 3 and 1
    monkeypatch.setattr(vae_cf, "SAMPLED_CELLS", cells)
    run = training(NOISY, outputs, smooth=smooth)
    x, y, w = batch()
    parts = free(run)
    t = classes_to_reach(run, x)
    with torch.no_grad():
        run.step(x, y, w, 0.0)
    seen = torch.cat([x, t.double()], 2)
    m = through(parts[0], seen)
    v = 0.5 + torch.sigmoid(through(parts[1], seen))
    own = torch.distributions.kl_divergence(
        torch.distributions.Normal(m, v.sqrt()), torch.distributions.Normal(0, 1)
    )
    loss = (w * own.mean(2, keepdim=True)).sum()
    noise = normal(by_seed(range(M)), N, 4, 3, 1, torch.float64)
    for s in range(4):
        x_cf = kept(
            sigmoid_levels(
                through(parts[2], torch.cat([m + v.sqrt() * noise[:, s], t.double()], 2)), ENCODING
            ),
            x,
        )
        loss = loss + (w * (x_cf - x).abs().sum(2, keepdim=True)).sum() / 4
        for a, b in ENCODING.spans:
            loss = loss + (w * (1 - x_cf[..., a:b].sum(2, keepdim=True)).abs()).sum() / 4
        z = judged(run, x_cf)
        lead = (z if outputs == 1 else z[..., 1:] - z[..., :1]) * (2 * t - 1)
        h = torch.relu(1.5 - lead) * (w > 0)
        loss = loss + 0.6 * (h.square().sum((1, 2)) + 1e-300).sqrt().sum() / 4
    compare(run, loss, parts)


@pytest.mark.parametrize("kind", [SMALL, NOISY])
def test_the_attacked_model_judges_validity_and_nothing_else(kind: GeneratorKind) -> None:
    """A step against theta' is a step against models that are theta' but decide about t as theta
    does.

    Paper: guo2023 Eq. 5.
    """
    robust = training(kind, 1, Shift(outer=3))
    x, y, w = batch()
    kept_aside = list[tuple[Weights, Batch]]()
    attack = robust.attack
    assert attack is not None

    def watched(theta: Weights, given: Batch, *rest: Any) -> Weights:
        found = attack(theta, given, *rest)
        kept_aside.append((Weights(found.flat.clone(), found.sizes), given))
        return found

    robust.attack = watched
    plain = training(kind, 1)
    with torch.no_grad():
        robust.step(x, y, w, 0.2)
        ((theta, given),) = kept_aside
        t = classes_to_reach(robust, x)
        assert torch.equal(given.t, t.double())
        assert (given.x is x, given.y is y, given.x_cf.shape) == (True, True, x.shape)
        assert not torch.equal(theta.flat, robust.run.theta.flat)
        net = plain.run.net
        ask = net.vjp
        scores = net.scores(robust.run.theta, x)
        net.scores = lambda *_: scores
        net.vjp = lambda _, rows: ask(theta, rows)
        plain.step(x, y, w, 0.0)
    for mine, theirs in zip(robust.grads, plain.grads, strict=True):
        torch.testing.assert_close(mine.flat, theirs.flat)


def test_the_lead_of_a_class_by_hand() -> None:
    lead, slope = lead_and_slope(torch.tensor([[[2.0], [-1.0]]]), torch.tensor([[[1.0], [1.0]]]))
    assert (lead.flatten().tolist(), slope.flatten().tolist()) == ([2.0, -1.0], [1.0, 1.0])
    lead, slope = lead_and_slope(torch.tensor([[[2.0, 0.5, 1.0]]]), torch.tensor([[[2]]]))
    assert (lead.item(), slope.flatten().tolist()) == (-1.0, [-1.0, 0.0, 1.0])
    # max(0, margin - lead) of two rows: 0 and 3; their norm is 3, and one row has all of the slope.
    run = training(hf.VAECF(hidden=(4,), latent=2, samples=1, reg=0.2, margin=2.0), 1)
    z = torch.tensor([[[2.0], [-1.0]]])
    t = torch.ones(1, 2, 1)
    w = torch.full((1, 2, 1), 0.5)
    assert run.validity_slope(z, t, w).flatten().tolist() == pytest.approx([0.0, -0.2])


def test_what_is_reachable_is_judged_and_bounds_hold_gradients_back() -> None:
    run = training(hf.CFModel(hidden=(8,), dropout=0.0, reachable=True), 1)
    x, y, w = batch()
    seen = list[Tensor]()
    ask = run.run.net.vjp
    run.run.net.vjp = lambda theta, rows: (seen.append(rows.clone()), ask(theta, rows))[1]
    with torch.no_grad():
        run.step(x, y, w, 0.0)
    reach = FeasibleSet.of(x.flatten(0, 1), ENCODING)
    assert bool(reach.contains(seen[0].flatten(0, 1)).all())


@pytest.mark.parametrize("shift", [None, Shift(outer=2)])
@pytest.mark.parametrize("kind", [SMALL, hf.CFModel(hidden=(8,), epochs=2, batch_size=16), NOISY])
def test_a_generator_is_the_same_alone(kind: GeneratorKind, shift: Shift | None) -> None:
    net, theta = frozen(1)
    labels = (torch.arange(len(X)) % 2).double()
    tables = [torch.arange(20), torch.arange(10, 60), torch.arange(5, 90, 2)]
    kind = replace(kind, shift=shift, schedule="static")
    whole = fit_generators(
        kind, net, theta, X, labels, ENCODING, tables=tables, seeds=(4, 5, 6), workers=2
    )
    for i in range(M):
        one = Weights(theta.flat[i : i + 1], theta.sizes)
        alone = fit_generators(
            kind, net, one, X, labels, ENCODING, tables=[tables[i]], seeds=(4 + i,)
        )
        for mine, theirs in zip(whole.thetas, alone.thetas, strict=True):
            torch.testing.assert_close(mine.flat[i : i + 1], theirs.flat, rtol=1e-6, atol=1e-8)


def test_a_stack_answers_as_its_networks_do() -> None:
    model = hf.Model.of(seeded(mlp(D, (8,), 2)), SCHEMA, classes=["no", "yes"])
    for e in (
        hf.CFModel(hidden=(8,), epochs=1, condition_on_target=True),
        hf.VAECF(hidden=(8,), samples=2, epochs=1),
    ):
        e.fit(model, TABLE)
        net, theta = net_of(model.module, 1)
        x = SCHEMA.encode(TABLE)
        stack = fit_generators(e, net, theta, x, None, SCHEMA.encoding())
        t = (net.scores(theta, x[None]).argmax(2, keepdim=True) ^ 1).float()
        noise = torch.randn(1, len(x), 5, generator=torch.Generator().manual_seed(0))
        with torch.no_grad():
            seen = with_target(x, t[0], 1)
            nets = e.generator_.layers
            if isinstance(e, hf.CFModel):
                expected = SCHEMA.encoding().softmax(nets[0](seen))
            else:
                z = nets[0](seen) + (0.5 + torch.sigmoid(nets[1](seen))).sqrt() * noise[0]
                expected = sigmoid_levels(nets[2](with_target(z, t[0], 1)), SCHEMA.encoding())
        expected = torch.where(SCHEMA.encoding().fixed, x, expected)
        torch.testing.assert_close(stack.answers(x[None], t, SCHEMA.encoding(), noise)[0], expected)


# ---- a small task: two classes, the line between them moves with the data


def points(n: int = 400, seed: int = 0) -> tuple[pd.DataFrame, np.ndarray[Any, Any]]:
    rng = np.random.default_rng(seed)
    x = rng.random((n, 3))
    y = np.where(x[:, 0] + 0.6 * x[:, 1] + 0.15 * rng.normal(size=n) > 0.8, "good", "bad")
    return pd.DataFrame(x, columns=["a", "b", "c"]), y


@pytest.fixture(scope="module")
def task() -> tuple[pd.DataFrame, np.ndarray[Any, Any], hf.Model]:
    table, y = points()
    recipe = hf.Recipe(hidden=(12,), epochs=60, lr=0.01)
    return table, y, recipe.fit(table, y, hf.Schema.infer(table))


SHORT = hf.CFModel(
    hidden=(16,), dropout=0.0, l2=1.0, epochs=40, batch_size=100, lr=0.01, condition_on_target=True
)


def test_without_a_shift_robust_training_is_plain_training(task: Any) -> None:
    table, y, model = task
    for e in (hf.CFModel(hidden=(6,), epochs=2), hf.VAECF(hidden=(6,), samples=2, epochs=2)):
        plain = pickle.loads(pickle.dumps(e)).fit(model, table)
        for same in (
            hf.robustify(e, model, table, y, shift=None),
            hf.robustify(e, model, table, y, shift=Shift(outer=0)),
        ):
            for mine, theirs in zip(same.generator_.layers, plain.generator_.layers, strict=True):
                assert all(
                    torch.equal(a, b)
                    for a, b in zip(mine.parameters(), theirs.parameters(), strict=True)
                )
        other = hf.robustify(e, model, table, y)
        assert other.shift == Shift()
        assert not torch.equal(
            other.generator_.layers[0][0].weight, plain.generator_.layers[0][0].weight
        )
        assert e.shift is None
        assert not e.is_fitted


def test_the_model_stays_as_it_is() -> None:
    table, y = points(60)
    module = seeded(
        nn.Sequential(nn.Linear(3, 6), nn.LeakyReLU(), nn.Dropout(0.4), nn.Linear(6, 2))
    )
    model = hf.Model.of(module, hf.Schema.infer(table), classes=["bad", "good"])
    before = {k: v.clone() for k, v in module.state_dict().items()}
    mark = model.fingerprint()
    module.train()
    next(module.parameters()).requires_grad_(False)
    torch.manual_seed(3)
    state = torch.get_rng_state()
    hf.robustify(hf.VAECF(hidden=(6,), samples=2, epochs=1), model, table, y)
    assert model.fingerprint() == mark
    assert all(torch.equal(before[k], v) for k, v in module.state_dict().items())
    assert all(m.training for m in module.modules())
    assert [p.requires_grad for p in module.parameters()] == [False, True, True, True]
    assert torch.equal(torch.get_rng_state(), state)


def test_robust_training_raises_validity_under_attack(task: Any) -> None:
    """Paper: guo2023 Eq. 5."""
    table, y, model = task
    shift = Shift(epsilon=0.3, eta=0.05)
    labels = torch.tensor([model.classes.index(v) for v in y])
    net, theta = net_of(model.module, 1)
    encoding = model.schema.encoding()
    x = model.schema.encode(table)
    held = list[float]()
    for against in (None, shift):
        stack = fit_generators(replace(SHORT, shift=against), net, theta, x, labels, encoding)
        t = net.scores(theta, x[None]).argmax(2, keepdim=True) ^ 1
        x_cf = stack.answers(x[None], t, encoding)
        held.append(
            float(
                validity_under_shift(
                    net, theta, x[None], labels[None], x_cf, t.squeeze(2), shift, encoding
                )
            )
        )
        assert float((net.scores(theta, x_cf).argmax(2, keepdim=True) == t).double().mean()) > 0.9
    assert held[1] > held[0] + 0.02, held


def test_a_generator_answers_and_noise_comes_from_the_seed(task: Any) -> None:
    table, _, model = task
    denied = table[(model.predict(table) == "bad").to_numpy()]
    e = pickle.loads(pickle.dumps(SHORT)).fit(model, table)
    assert e.explain(model, denied, "good").found.mean() > 0.9
    assert torch.equal(e.explain(model, denied, seed=1).x_cf, e.explain(model, denied, "good").x_cf)
    vae = hf.VAECF(samples=5, reg=1.0, epochs=40, lr=0.01).fit(model, table)
    one = vae.explain(model, denied, seed=1)
    two = vae.explain(model, denied, seed=2)
    assert one.found.mean() > 0.9
    assert not torch.equal(one.x_cf, two.x_cf)
    assert torch.equal(one.x_cf, vae.explain(model, denied, seed=1).x_cf)


def test_a_model_as_a_stack_and_back() -> None:
    x = X[:9]
    shapes: dict[str, nn.Module] = {
        "relu": mlp(D, (6, 5), 3),
        "leaky": nn.Sequential(
            nn.Linear(D, 6), nn.LeakyReLU(0.2), nn.Dropout(0.5), nn.Linear(6, 1)
        ),
        "linear": nn.Linear(D, 2),
        "tanh": nn.Sequential(nn.Linear(D, 6), nn.Tanh(), nn.Linear(6, 2)),
        "two kinds": nn.Sequential(
            nn.Linear(D, 6), nn.ReLU(), nn.Linear(6, 4), nn.LeakyReLU(), nn.Linear(4, 2)
        ),
        "no bias": nn.Sequential(nn.Linear(D, 6, bias=False), nn.ReLU(), nn.Linear(6, 2)),
        "statistics": nn.Sequential(nn.Linear(D, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 2)),
    }
    for name, shape in shapes.items():
        module = seeded(shape.double())
        net, theta = net_of(module, 2)
        assert isinstance(net, Leaky) == (name in ("relu", "leaky", "linear")), name
        with torch.no_grad():
            expected = module(x)
            torch.testing.assert_close(net.scores(theta, x.expand(2, -1, -1))[1], expected)
            again = members_of(module, net, theta)
            torch.testing.assert_close(again.scores(x)[0], expected)
            torch.testing.assert_close(again.module(1)(x), expected)


def test_errors_name_the_thing(task: Any) -> None:
    table, y, model = task
    with pytest.raises(hf.HoldfastError, match=r"fit_against\(model, X, y\)"):
        hf.CFModel(shift=Shift()).fit(model, table)
    with pytest.raises(hf.HoldfastError, match="outcomes y"):
        hf.CFModel(shift=Shift()).fit_against(model, table)
    with pytest.raises(hf.HoldfastError, match="Descent is not a parametric generator"):
        hf.robustify(hf.Descent(), model, table, y)
    soft = hf.Model.of(nn.Sequential(nn.Linear(3, 2), nn.Softmax(1)), model.schema)
    with pytest.raises(hf.HoldfastError, match=r"VAECF needs the logits.*returns probabilities"):
        hf.VAECF().fit(soft, table)
    box = hf.Model.of(LogisticRegression().fit(table, y), model.schema, convert=False)
    with pytest.raises(hf.HoldfastError, match="CFModel needs a torch module"):
        hf.CFModel().fit(box, table)
    with pytest.raises(hf.HoldfastError, match="at least one row of 3 columns"):
        hf.CFModel().fit(model, torch.zeros(4, 2))
    with pytest.raises(hf.HoldfastError, match="schedule must be"):
        hf.robustify(SHORT, model, table, y, schedule="cubic")
    with pytest.raises(hf.HoldfastError, match="outcomes"):
        hf.robustify(SHORT, model, table, y[:5])
    for wrong in (
        {"hidden": ()},
        {"hidden": 3},
        {"dropout": 1.0},
        {"l2": -1.0},
        {"epochs": 0},
        {"lr": 0.0},
    ):
        with pytest.raises(hf.HoldfastError, match=next(iter(wrong))):
            hf.CFModel(**wrong).fit(model, table)
    for wrong in ({"latent": 0}, {"samples": 0}, {"reg": -1.0}, {"margin": float("nan")}):
        with pytest.raises(hf.HoldfastError, match=next(iter(wrong))):
            hf.VAECF(**wrong).fit(model, table)
    with pytest.raises(hf.HoldfastError, match="lower lr"):
        hf.CFModel(lr=1e30, epochs=3, hidden=(4,)).fit(model, table)
    e = hf.CFModel(hidden=(4,), epochs=1).fit(model, table)
    other = hf.Model.of(seeded(mlp(3, (4,), 2)), model.schema, classes=model.classes)
    with pytest.raises(hf.HoldfastError, match="trained for another model"):
        e.explain(other, table[:3], "good")
    net, theta = net_of(model.module, 1)
    with pytest.raises(hf.HoldfastError, match="one seed for each model"):
        fit_generators(
            SMALL, net, theta, torch.zeros(4, 3), None, model.schema.encoding(), seeds=(1, 2)
        )
