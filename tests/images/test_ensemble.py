"""Ensembles of image classifiers, and greedy pixels on them."""

import math
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

import holdfast as hf
from holdfast._core.progress import Progress
from holdfast.images.ensemble import (
    ImageEnsemble,
    Several,
    Stacked,
    TrainableNetworks,
    architecture,
    fit_members,
    pooled,
    step,
)
from holdfast.images.greedy_ensemble import GreedyEnsemble
from holdfast.images.model import ImageModel, as_images
from holdfast.retraining.loop import Loop, Variation, derived
from holdfast.target import BoundTarget

SIZES = [6, 5, 4, 3]
SEEDS = 11, 12, 13
SMALL: dict[str, Any] = {
    "members": 3,
    "hidden": (16, 12),
    "epochs": 4,
    "batch_size": 64,
    "lr": 5e-3,
}


@cache
def digits() -> tuple[Tensor, np.ndarray]:
    data: Any = load_digits()
    return as_images(data.images / 16), data.target


@cache
def fitted() -> ImageEnsemble:
    x, y = digits()
    return ImageEnsemble(
        members=4, hidden=(24, 24), epochs=15, batch_size=32, lr=5e-3, attack=0.05
    ).fit(x[:600], y[:600], held_out=(x[600:800], y[600:800]), threads=1)


def networks(seeds: tuple[int, ...] = SEEDS) -> TrainableNetworks:
    """In double precision: units that fire for a whole batch have biases without slope, and Adam
    magnifies noise."""
    nets = TrainableNetworks(SIZES, seeds)
    names = [name for name, value in nets.state.items() if value.requires_grad]
    nets.state = {
        k: v.detach().double() if v.is_floating_point() else v for k, v in nets.state.items()
    }
    nets.parameters = [nets.state[name].requires_grad_() for name in names]
    return nets


def member(nets: TrainableNetworks, i: int) -> nn.Sequential:
    """One member as torch itself has it."""
    with torch.random.fork_rng():
        net = architecture(SIZES).double()
    net.load_state_dict(
        {name: value[i].detach().clone() for name, value in nets.state.items()}, strict=False
    )
    return net


def batches(count: int) -> list[tuple[Tensor, Tensor]]:
    """Images (M, b, d) and classes (M, b), of each member its own."""
    g = torch.Generator().manual_seed(0)
    return [
        (torch.rand(3, 8, 6, generator=g).double(), torch.randint(0, 3, (3, 8), generator=g))
        for _ in range(count)
    ]


# ---- networks that learn together


@pytest.mark.parametrize("attack", [0.0, 0.15])
def test_a_member_learns_as_if_it_were_alone(attack: float) -> None:
    """Weights, statistics and losses of three steps against torch's own layers and optimizer."""
    nets = networks()
    alone = [member(nets, i).train() for i in range(3)]
    optimizer = torch.optim.Adam(nets.parameters, lr=0.01)
    own = [torch.optim.Adam(net.parameters(), lr=0.01) for net in alone]
    for x, y in batches(3):
        told, right = step(nets, optimizer, x.clone(), y, attack)
        total = 0.0
        hits = 0
        for i, (net, adam) in enumerate(zip(alone, own, strict=True)):
            clean = x[i].clone().requires_grad_()
            logits = net(clean)
            loss = nn.functional.cross_entropy(logits, y[i])
            total = total + float(loss.detach())
            hits = hits + int((logits.argmax(1) == y[i]).sum())
            if attack:
                (by_x,) = torch.autograd.grad(loss, clean, retain_graph=True)
                moved = (clean.detach() + attack * by_x.sign()).clamp(0, 1)
                loss = 0.5 * loss + 0.5 * nn.functional.cross_entropy(net(moved), y[i])
            adam.zero_grad()
            loss.backward()
            adam.step()
        assert told == pytest.approx(total, rel=1e-5)
        assert right == hits
    for i, net in enumerate(alone):
        for name, value in net.state_dict().items():
            if not name.endswith("num_batches_tracked"):
                torch.testing.assert_close(
                    nets.state[name][i].detach(), value, rtol=1e-6, atol=1e-7
                )


def test_what_is_kept_equals_every_member_in_use() -> None:
    nets = networks()
    optimizer = torch.optim.Adam(nets.parameters, lr=0.05)
    for x, y in batches(4):
        step(nets, optimizer, x, y, 0.0)
    kept = nets.folded()
    rows = torch.rand(7, 1, 2, 3, generator=torch.Generator().manual_seed(1)).double()
    with torch.no_grad():
        each = torch.stack([member(nets, i).eval()(rows.flatten(1)) for i in range(3)])
        torch.testing.assert_close(kept.each(rows), each, rtol=1e-5, atol=1e-5)
        mean = each.softmax(2).mean(0)
        torch.testing.assert_close(kept(rows).exp(), mean, rtol=1e-5, atol=1e-6)
    assert not any(p.requires_grad for p in kept.parameters())


def test_members_do_not_know_of_each_other() -> None:
    """The first two of three members are those of an ensemble of two."""
    g = torch.Generator().manual_seed(0)
    x = torch.rand(30, 6, generator=g).double()
    y = torch.randint(0, 3, (30,), generator=g)
    three = networks()
    two = networks(SEEDS[:2])
    for nets, seeds in ((three, SEEDS), (two, SEEDS[:2])):
        with Progress(False, "") as bar:
            fit_members(
                nets,
                x,
                y,
                Loop(epochs=3, batch_size=8, lr=0.01),
                Variation(seeds, seeds),
                0.1,
                None,
                bar,
            )
    for name, value in two.state.items():
        torch.testing.assert_close(value, three.state[name][:2], rtol=1e-6, atol=1e-7)
    a, b, c = three.state["0.weight"]
    assert not torch.equal(a, b)
    assert not torch.equal(b, c)


def test_first_weights_are_those_of_torch() -> None:
    nets = TrainableNetworks(SIZES, SEEDS)
    with torch.random.fork_rng():
        torch.manual_seed(derived(SEEDS[1], 0))
        first = nn.Linear(6, 5)
    assert torch.equal(nets.state["0.weight"][1], first.weight)
    assert torch.equal(nets.state["0.bias"][1], first.bias)


def test_a_seed_is_an_ensemble_and_the_callers_world_stays() -> None:
    x, y = digits()
    before = torch.get_rng_state()
    threads = torch.get_num_threads()
    copy = x.clone()
    one = ImageEnsemble(**SMALL).fit(x[:130], y[:130], threads=1)
    with torch.inference_mode():
        two = ImageEnsemble(**SMALL).fit(x[:130], y[:130], threads=1)
    other = ImageEnsemble(**SMALL, seed=1).fit(x[:130], y[:130], threads=1)
    assert one.model_.fingerprint() == two.model_.fingerprint() != other.model_.fingerprint()
    assert torch.equal(before, torch.get_rng_state())
    assert torch.get_num_threads() == threads
    assert torch.equal(x, copy)


def test_it_learns_and_tells() -> None:
    x, y = digits()
    net = fitted()
    assert net.score(x[600:800], y[600:800]) > 0.85
    assert net.history_[-1].held_out == pytest.approx(
        net.score(x[600:800], y[600:800]), abs=1 / 200
    )
    assert net.history_[-1].loss < net.history_[0].loss
    assert len(net.history_) == 15
    # One more image than fits leaves no batch of one; classes may be words.
    names = np.array(list("abcdefghij"))
    words = ImageEnsemble(**SMALL).fit(
        (x[:65] * 255).round().to(torch.uint8), names[y[:65]], threads=1
    )
    assert words.classes_ == tuple("abcdefghij")
    assert set(words.predict(x[:9])) <= set(names)


def test_attacked_images_make_it_harder_to_attack() -> None:
    """Trained against steps of 0.15, an ensemble withstands them better than one that has never
    seen any."""
    x, y = digits()
    left = list[float]()
    for attack in (0.0, 0.15):
        net = (
            ImageEnsemble(**(SMALL | {"epochs": 15}), attack=attack)
            .fit(x[:500], y[:500], threads=1)
            .model_
        )
        rows = x[500:800].clone().requires_grad_()
        labels = torch.tensor(y[500:800])
        with net.eval_mode(), torch.enable_grad():
            (g,) = torch.autograd.grad(nn.functional.cross_entropy(net(rows), labels), rows)
        left.append(net.accuracy((rows.detach() + 0.15 * g.sign()).clamp(0, 1), y[500:800]))
    assert left[1] > left[0] + 0.1


def test_scores_do_not_depend_on_the_batch() -> None:
    x, _ = digits()
    model = fitted().model_
    whole = model.scores(x[:200])
    for n in (1, 2, 3, 63, 65, 130):
        assert torch.equal(model.scores(x[:n]), whole[:n])


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"members": 0}, "members must be an integer of at least 1"),
        ({"hidden": (3, 0)}, "a hidden layer must be an integer of at least 1, got 0"),
        ({"attack": 1.5}, "attack must lie between 0 and 1, got 1.5"),
        ({"batch_size": 1}, "batch_size must be at least 2"),
        ({"epochs": 0}, "epochs"),
        ({"lr": -1.0}, "lr"),
        ({"seed": "a"}, "seed must be an integer"),
        ({"lr": 1e38}, "diverged"),
    ],
)
def test_what_cannot_work_is_said(settings: dict[str, Any], said: str) -> None:
    x, y = digits()
    with pytest.raises(hf.HoldfastError, match=said):
        ImageEnsemble(**(SMALL | settings)).fit(x[:40], y[:40], threads=1)
    with pytest.raises(hf.HoldfastError, match="at least 2 classes"):
        ImageEnsemble(**SMALL).fit(x[:40], y[:40] * 0)


# ---- networks that exist


def test_mean_of_probabilities() -> None:
    """Members that say (0.9, 0.1) and (0.5, 0.5): the ensemble says (0.7, 0.3)."""
    logits = (
        torch.tensor([[[0.9, 0.1]], [[0.5, 0.5]]]).log() + torch.tensor([3.0, -2.0])[:, None, None]
    )
    torch.testing.assert_close(pooled(logits).exp(), torch.tensor([[0.7, 0.3]]))


class Fixed(nn.Module):
    """Scores that are linear in the pixels."""

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight)
        self.bias = nn.Parameter(torch.zeros(len(weight)) if bias is None else bias)

    def forward(self, x: Tensor) -> Tensor:
        return x.flatten(1) @ self.weight.T + self.bias


class Shares(Fixed):
    """The same with probabilities."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x).softmax(1)


W = torch.tensor(
    [
        [[1.0, -2.0, 0.0, 0.5], [0.0, 1.0, 0.0, -0.5], [0.5, 0.0, 0.0, 0.0]],
        [[0.0, 0.3, 0.0, 1.0], [2.0, 0.0, 0.0, 0.0], [-1.0, 0.5, 0.0, 0.2]],
    ]
)


def test_an_ensemble_of_networks_that_exist() -> None:
    x = torch.rand(5, 1, 2, 2, generator=torch.Generator().manual_seed(0))
    a = Fixed(W[0])
    b = Shares(W[1])
    model = ImageEnsemble.of(
        [ImageModel.of(a, (1, 2, 2)), ImageModel.of(b, (1, 2, 2), outputs="probabilities")]
    )
    with torch.no_grad():
        mean = (a(x).softmax(1) + b(x)) / 2
    torch.testing.assert_close(model.scores(x).exp(), mean)
    assert model.classes == (0, 1, 2)
    assert all(p.requires_grad for p in [*a.parameters(), *b.parameters()])
    assert (model.predict(x) == mean.argmax(1).numpy()).all()
    nested = ImageEnsemble.of([fitted(), fitted().model_])
    torch.testing.assert_close(
        nested.scores(digits()[0][:4]), fitted().model_.scores(digits()[0][:4])
    )


def test_members_must_fit_together() -> None:
    one = ImageModel.of(Fixed(W[0]), (1, 2, 2))
    with pytest.raises(hf.HoldfastError, match="at least one network"):
        ImageEnsemble.of([])
    with pytest.raises(hf.HoldfastError, match="number 1 has"):
        ImageEnsemble.of([one, ImageModel.of(Fixed(W[1]), (1, 2, 2), classes="abc")])
    with pytest.raises(hf.HoldfastError, match="the same images"):
        ImageEnsemble.of([one, ImageModel.of(Fixed(W[1]), (1, 1, 4))])


# ---- greedy pixels


def test_gradient_of_mean_logits_and_verdict_of_mean_probabilities() -> None:
    """Linear members: g = mean(W)^T (softmax(mean z) - e_t), though the scores are the log of mean
    probabilities.

    Paper: hoeltgen2021 Baseline Schut.
    """
    x = torch.rand(4, 1, 2, 2, generator=torch.Generator().manual_seed(2))
    t = torch.tensor([0, 1, 2, 1])
    many = ImageEnsemble.of([ImageModel.of(Fixed(w), (1, 2, 2)) for w in W])
    stacked = ImageModel.of(Stacked([(W, torch.zeros(2, 3))]), (1, 2, 2))
    z = torch.einsum("mkd,nd->mnk", W, x.flatten(1))
    by_hand = (z.mean(0).softmax(1) - nn.functional.one_hot(t, 3)) @ W.mean(0)
    for model in (many, stacked):
        with model.eval_mode():
            scores, slopes = GreedyEnsemble().look(model, x, BoundTarget(t, 1.0, 0.0, True, 3))
            g, priority = slopes()
        torch.testing.assert_close(scores, z.softmax(2).mean(0).log())
        torch.testing.assert_close(g, by_hand)
        assert torch.equal(priority, g.abs())


def test_each_image_stops_at_its_own_time() -> None:
    """Found means a mean probability of 0.99, and one step less means less than that."""
    x, y = digits()
    net = fitted()
    search = GreedyEnsemble(max_iter=300)
    cfs = search.explain(net, x[600:608], "all", labels=y[600:608], threads=1)
    assert len(cfs) == 72
    ways = cfs.iterations[cfs.found]
    assert len(ways) > 30
    assert len(np.unique(ways)) > 10
    with torch.no_grad():
        p = net.model_.module.each(cfs.x_cf).softmax(2).mean(0)  # pyright: ignore[reportCallIssue]
    own = p.gather(1, cfs.goal.label[:, None]).squeeze(1).numpy()
    assert (own[cfs.found] >= 0.99).all()
    assert (own[~cfs.found] < 0.99).all()
    np.testing.assert_allclose(cfs.probability, own, atol=1e-5)
    # Not a step too many: with k steps at most, exactly those are found that needed no more.
    for k in (int(np.median(ways)), int(np.median(ways)) - 1):
        less = GreedyEnsemble(max_iter=k).explain(
            net, x[600:608], "all", labels=y[600:608], threads=1
        )
        assert (less.found == (cfs.found & (cfs.iterations <= k))).all()
    delta = (cfs.x_cf - cfs.x).abs()
    assert float(delta.max()) <= 5 * 0.2 + 1e-6
    assert 0 <= float(cfs.x_cf.min()) <= float(cfs.x_cf.max()) <= 1


def test_an_answer_does_not_depend_on_its_neighbours() -> None:
    x, y = digits()
    search = GreedyEnsemble(max_iter=60)
    some = slice(600, 605)
    whole = search.explain(fitted(), x[some], "all", labels=y[some], threads=1)
    parts = search.explain(fitted(), x[some], "all", labels=y[some], threads=1, batch_size=7)
    alone = search.explain(fitted(), x[602:603], "all", labels=y[602:603], threads=1)
    assert torch.equal(whole.x_cf, parts.x_cf)
    assert (whole.iterations == parts.iterations).all()
    assert torch.equal(whole.x_cf[whole.source == 2], alone.x_cf)


def test_pixels_without_slope_are_never_chosen() -> None:
    """The third pixel has no weight at all; when the others are used up, the search ends."""
    x = torch.full((1, 1, 2, 2), 0.5)
    model = ImageEnsemble.of([ImageModel.of(Fixed(w), (1, 2, 2)) for w in W])
    cfs = GreedyEnsemble().explain(model, x, 0)
    assert cfs.x_cf[0, 0, 1, 0] == 0.5
    assert not cfs.found[0]
    assert int(cfs.iterations[0]) == 15  # five steps for each of three pixels
    flat = ImageModel.of(Fixed(torch.zeros(2, 4), torch.tensor([2.0, 0.0])), (1, 2, 2))
    still = GreedyEnsemble().explain(flat, x, 1)
    assert torch.equal(still.x_cf, x)
    assert int(still.iterations[0]) == 0


def test_any_model_is_an_ensemble_of_one() -> None:
    """z_1 - z_0 = 6 x_0 + x_1 - 2; from 0 a probability of 0.9 asks for more than log 9: five steps
    of 0.2 on x_0."""
    model = ImageModel.of(
        Fixed(torch.tensor([[0.0, 0.0], [6.0, 1.0]]), torch.tensor([2.0, 0.0])), (1, 1, 2)
    )
    cfs = GreedyEnsemble(min_probability=0.9).explain(model, torch.zeros(1, 1, 1, 2), 1)
    assert cfs.found.all()
    torch.testing.assert_close(cfs.x_cf.flatten(), torch.tensor([0.8, 0.0]))
    assert float(cfs.probability[0]) == pytest.approx(1 / (1 + math.exp(-2.8)), rel=1e-5)
    assert hf.GreedyEnsemble is GreedyEnsemble
    assert hf.images.ImageEnsemble is ImageEnsemble
    assert isinstance(ImageEnsemble.of([model]).module, Several)
