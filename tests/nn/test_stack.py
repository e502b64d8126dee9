"""Stacked networks: their gradients, and training many at once against training each alone."""

import copy
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn

from holdfast._core.progress import Progress
from holdfast._core.rows import limited_threads
from holdfast.errors import ModelError, SettingError
from holdfast.nn.architecture import mlp
from holdfast.nn.module_stack import ModuleStack, cross_entropy, stack_of
from holdfast.nn.relu_network import Engine
from holdfast.nn.stack import ModelStack, Stack, lent_generator
from holdfast.retraining.loop import Orders, RobustLoop, Variation, fit_stack, glorot, redrawn
from support.tables import seeded

M = 3
N = 11
D = 5


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    with limited_threads(1):
        yield


OFF = Progress(False, "")


def numbers(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def classes(k: int, *shape: int, seed: int = 0) -> Tensor:
    return torch.randint(0, max(k, 2), shape, generator=torch.Generator().manual_seed(seed))


def networks(hidden: tuple[int, ...], k: int) -> list[nn.Module]:
    return [seeded(mlp(D, hidden, k).double(), seed) for seed in range(M)]


def stacked(members: ModelStack, nets: list[nn.Module]) -> ModelStack:
    tensors = [members.named(dict(net.state_dict())) for net in nets]
    members.load({name: torch.stack([t[name] for t in tensors]) for name in members.state()})
    return members


def in_layout(members: ModelStack, values: list[list[Tensor]]) -> Tensor:
    """Gradients of each network's parameters where `members.gradient` puts them."""
    room = copy.deepcopy(members)
    names = list(room.state())
    room.load({name: torch.stack([v[j] for v in values]) for j, name in enumerate(names)})
    return room.theta


@pytest.mark.parametrize("k", [1, 2, 3])
@pytest.mark.parametrize("hidden", [(), (7,), (8, 6)])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("shared", [False, True])
def test_gradient_equals_autograd(
    k: int, hidden: tuple[int, ...], weighted: bool, shared: bool
) -> None:
    nets = networks(hidden, k)
    rows = 1 if shared else M
    x = numbers(rows, N, D, seed=1)
    y = classes(k, rows, N, seed=2)
    w = numbers(M, N, seed=3).abs() if weighted else None
    expected = list[list[Tensor]]()
    for i, net in enumerate(nets):
        at = 0 if shared else i
        raw = net(x[at])
        if k == 1:
            loss = nn.functional.binary_cross_entropy_with_logits(
                raw[:, 0], y[at].double(), reduction="none"
            )
        else:
            loss = nn.functional.cross_entropy(raw, y[at], reduction="none")
        mean = (loss if w is None else loss * w[i]).mean()
        expected.append(list(torch.autograd.grad(mean, list(net.parameters()))))
    by_hand = stacked(Stack((D, *hidden, k), M, torch.float64), nets)
    by_func = stacked(ModuleStack(nets[0], M), nets)
    assert isinstance(stack_of(nets[0], M), Stack)
    given = x.clone(), y.clone()
    for members in (by_hand, by_func):
        for _ in range(2):  # memory that is used again must not carry anything over
            assert torch.allclose(
                members.gradient(x, y, w), in_layout(members, expected), rtol=0, atol=1e-12
            )
        assert torch.equal(x, given[0])
        assert torch.equal(y, given[1])
    same = dict(zip(by_hand.state(), by_func.state().values(), strict=True))
    assert all(torch.equal(v, same[name]) for name, v in by_hand.state().items())
    # Batches of another length in between, and one weight for all.
    other = by_hand.gradient(x[:, :4], y[:, :4], None).clone()
    assert not torch.allclose(other, by_hand.gradient(x, y, None))
    ones = torch.ones(1, N, dtype=torch.float64)
    assert torch.allclose(
        by_hand.gradient(x, y, ones), by_hand.gradient(x, y, None).clone(), atol=1e-14
    )


@pytest.mark.parametrize("k", [1, 2, 3])
@pytest.mark.parametrize("hidden", [(), (7,), (8, 6)])
@pytest.mark.parametrize("wide", [False, True])
def test_gradients_by_rows_and_of_any_loss_equal_autograd(
    k: int, hidden: tuple[int, ...], wide: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if wide:  # rows that are better not copied
        monkeypatch.setattr("holdfast.nn.stack.WIDE", 1)
    nets = networks(hidden, k)
    x = numbers(M, N, D, seed=1)
    v = numbers(M, k, N, seed=2)
    onto = numbers(M, D, N, seed=3)
    more = [numbers(M, rows, D, seed=4 + rows) for rows in (4, 0, 6)]
    rows = x.clone().requires_grad_()
    raw = torch.stack([net(r) for net, r in zip(nets, rows, strict=True)])  # (M, N, k)
    (by_rows,) = torch.autograd.grad((raw * v.mT).sum(), rows)
    everything = torch.cat([x, *more], 1)
    by_theta = list[list[Tensor]]()
    for i, net in enumerate(nets):
        out = net(everything[i])
        by_theta.append(
            list(torch.autograd.grad((out * out.detach().sin()).sum(), list(net.parameters())))
        )
    by_hand = stacked(Stack((D, *hidden, k), M, torch.float64), nets)
    by_func = stacked(ModuleStack(nets[0], M), nets)
    for members in (by_hand, by_func):
        for columns in (x.mT, x.mT.contiguous()):  # each row in one piece of memory, or each column
            scores, way = members.vjp(columns)
            assert torch.allclose(scores, raw.mT, rtol=0, atol=1e-12)
            slope = way.slope(v.clone())
            for room in (onto.clone(), onto.mT.contiguous().mT):
                found = way.onto(slope, room)
                assert torch.allclose(found, onto + by_rows.mT, rtol=0, atol=1e-12)
                assert found.data_ptr() == room.data_ptr()
            length = slope.square().sum(1).sqrt().max()
            assert float(by_rows.abs().max()) <= members.input_gain() * length
        if members is by_hand:
            # a bound that says something
            assert float(by_rows.abs().max()) > 0.1 * members.input_gain() * length
        g, scores = members.backprop(x, more, torch.sin)
        assert torch.allclose(g, in_layout(members, by_theta), rtol=0, atol=1e-12)
        assert scores.shape == (M, N + 10, k)
        alone = members.backprop(x, [part[:, :0] for part in more], torch.sin)[1]
        assert torch.allclose(alone, raw, rtol=0, atol=1e-12)
        shared = members.backprop(x[:1], more, torch.sin)[1][:, :N]
        assert torch.allclose(shared[1], nets[1](x[0]), rtol=0, atol=1e-12)
        owner = members.owner()
        for i in range(M):
            before = {name: value.clone() for name, value in members.state().items()}
            members.theta[owner == i] += 1
            for name, value in members.state().items():
                assert torch.equal(
                    value - before[name] != 0,
                    torch.arange(M).view(-1, *[1] * (value.ndim - 1)).eq(i).expand_as(value),
                )


def test_loss_of_one_logit_in_either_shape() -> None:
    raw = numbers(N)
    y = classes(2, N)
    expected = -torch.where(y == 1, torch.sigmoid(raw), 1 - torch.sigmoid(raw)).log()
    assert torch.allclose(cross_entropy(raw, y), expected)
    assert torch.allclose(cross_entropy(raw[:, None], y), expected)
    assert torch.allclose(cross_entropy(torch.stack([0 * raw, raw], 1), y), expected)


@pytest.mark.parametrize("kind", [Stack, ModuleStack])
@pytest.mark.parametrize("k", [1, 3])
def test_scores_are_those_of_each_module(kind: type, k: int) -> None:
    nets = networks((7, 4), k)
    members = stacked(
        Stack((D, 7, 4, k), M, torch.float64) if kind is Stack else ModuleStack(nets[0], M), nets
    )
    for n in (0, 1, N, 16):
        x = numbers(n, D, seed=n)
        own = numbers(M, n, D, seed=n)
        shared = members.scores(x)
        assert shared.shape == (M, n, k)
        for i, net in enumerate(nets):
            assert torch.allclose(shared[i], net(x), atol=1e-12)
            assert torch.allclose(members.module(i)(x), net(x), atol=1e-12)
            assert torch.allclose(members.scores(own)[i], net(own[i]), atol=1e-12)
            assert not members.module(i).training
            assert all(p.requires_grad for p in members.module(i).parameters())
    one = members.module(1)
    for p in one.parameters():
        p.data.zero_()
    # a module shares no memory with the stack
    assert torch.allclose(members.module(1)(x), nets[1](x), atol=1e-12)


def test_what_is_stacked_by_hand() -> None:
    shared = nn.Linear(4, 4)
    for module, by_hand in (
        (mlp(4, (3,), 2), True),
        (
            nn.Sequential(
                nn.Sequential(nn.Linear(4, 3), nn.ReLU()), nn.Identity(), nn.Linear(3, 2)
            ),
            True,
        ),
        (nn.Linear(4, 2), True),
        (nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Dropout(0.5), nn.Linear(3, 2)), False),
        (nn.Sequential(nn.Linear(4, 3, bias=False), nn.ReLU(), nn.Linear(3, 2)), False),
        (nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2)), False),
        (nn.Sequential(shared, nn.ReLU(), shared, nn.ReLU(), nn.Linear(4, 2)), False),
    ):
        assert isinstance(stack_of(module, 2), Stack) is by_hand, module
    with pytest.raises(ModelError, match="no parameters"):
        stack_of(nn.Sequential(nn.Tanh()), 2)


# ---- training


class Functional(nn.Module):
    """Draws random numbers where no layer says so."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(D, 6)
        self.b = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.b(nn.functional.dropout(torch.tanh(self.a(x)), 0.3, self.training))


def tied() -> nn.Module:
    shared = nn.Linear(D, D)
    return nn.Sequential(shared, nn.ReLU(), shared, nn.ReLU(), nn.Linear(D, 3))


MODULES = {
    "relu": lambda: mlp(D, (8, 6), 3),
    "one logit": lambda: mlp(D, (8,), 1),
    "two logits": lambda: mlp(D, (8,), 2),
    "nested": lambda: nn.Sequential(nn.Sequential(nn.Linear(D, 6), nn.ReLU()), nn.Linear(6, 3)),
    "no bias": lambda: nn.Sequential(nn.Linear(D, 6, bias=False), nn.ReLU(), nn.Linear(6, 3)),
    "tanh": lambda: nn.Sequential(nn.Linear(D, 6), nn.Tanh(), nn.LayerNorm(6), nn.Linear(6, 3)),
    "tied": tied,
    "dropout": lambda: nn.Sequential(nn.Linear(D, 6), nn.ReLU(), nn.Dropout(0.3), nn.Linear(6, 3)),
    "dropout1d": lambda: nn.Sequential(nn.Linear(D, 6), nn.Dropout1d(0.3), nn.Linear(6, 3)),
    "functional": Functional,
    "norm": lambda: nn.Sequential(
        nn.Linear(D, 6), nn.BatchNorm1d(6), nn.Tanh(), nn.Dropout(0.2), nn.Linear(6, 3)
    ),
}
LOOP = RobustLoop(epochs=3, batch_size=12, lr=0.01, weight_decay=0.01, adam_eps=1e-7)


def made(name: str) -> nn.Module:
    with lent_generator(0):
        return MODULES[name]()


def plain_loop(
    module: nn.Module,
    x: Tensor,
    labels: Tensor,
    plan: Variation,
    i: int,
    loop: RobustLoop,
    epochs: int | None = None,
) -> nn.Module:
    """Model i of a plan, as anyone would train it."""
    net = copy.deepcopy(module)
    net.load_state_dict(redrawn(module, plan.weights[i]), strict=False)
    optimizer = torch.optim.Adam(
        net.parameters(), lr=loop.lr, eps=loop.adam_eps, weight_decay=loop.weight_decay
    )
    kept = torch.ones(len(x), dtype=torch.bool) if plan.kept is None else plan.kept[i]
    labels = labels if plan.labels is None else plan.labels[i]
    orders = Orders(Variation((0,), (plan.order[i],)), len(x))
    with lent_generator(plan.weights[i]):
        net.train()
        for _ in range(epochs or loop.epochs):
            order = orders.next()[0]
            order = order[kept[order]]
            for at in range(0, len(order), loop.batch_size):
                rows = order[at : at + loop.batch_size]
                raw = net(x[rows])
                if raw.shape[1] == 1:
                    loss = nn.functional.binary_cross_entropy_with_logits(
                        raw[:, 0], labels[rows].to(raw.dtype), reduction="none"
                    )
                else:
                    loss = nn.functional.cross_entropy(raw, labels[rows], reduction="none")
                if plan.emphasis is not None:
                    loss = loss * plan.emphasis[i][rows]
                optimizer.zero_grad()
                loss.mean().backward()
                optimizer.step()
    return net.eval()


@pytest.mark.parametrize(
    ("name", "dtype"),
    [(name, torch.float32) for name in MODULES]
    + [(name, torch.float64) for name in ("relu", "two logits", "norm")],
)
def test_training_together_equals_training_alone_and_a_plain_loop(
    name: str, dtype: torch.dtype
) -> None:
    module = made(name).to(dtype)
    k = 3 if name not in ("one logit", "two logits") else 2
    x = numbers(44, D, dtype=dtype)
    labels = classes(k, 44, seed=1)
    kept = torch.ones(4, 44, dtype=torch.bool)
    kept[torch.arange(4), torch.tensor([3, 3, 8, 0])] = False
    plan = Variation(
        weights=(5, 6, 6, 7),
        order=(1, 1, 2, 3),
        kept=kept,
        emphasis=numbers(4, 44, seed=4).abs().float(),
        labels=classes(k, 4, 44, seed=9),
    )
    before = copy.deepcopy(module.state_dict())
    for given in (plan, Variation(plan.weights, plan.order), Variation(plan.weights, (1, 1, 1, 1))):
        state = torch.get_rng_state()
        mode = module.training
        models = fit_stack(module, lambda seed: redrawn(module, seed), x, labels, given, LOOP, OFF)
        alone = [
            fit_stack(
                module, lambda seed: redrawn(module, seed), x, labels, given[i : i + 1], LOOP, OFF
            )
            for i in range(4)
        ]
        assert torch.equal(state, torch.get_rng_state())
        assert module.training is mode
        assert all(torch.equal(v, module.state_dict()[key]) for key, v in before.items())
        for i in range(4):
            reference = plain_loop(module, x, labels, given, i, LOOP)
            for ours in (models.module(i), alone[i].module(0)):
                pairs = zip(
                    ours.state_dict().values(), reference.state_dict().values(), strict=True
                )
                for a, b in pairs:
                    assert torch.allclose(
                        a, b, rtol=0, atol=1e-5 if dtype == torch.float32 else 1e-10
                    )


def test_epochs_of_each_model() -> None:
    module = made("relu")
    x = numbers(30, D, dtype=torch.float32)
    labels = classes(3, 30)
    plan = Variation((1, 1, 2), (1, 1, 1), epochs=(2, 6, 3))
    models = fit_stack(module, lambda seed: redrawn(module, seed), x, labels, plan, LOOP, OFF)
    for i, epochs in enumerate((2, 6, 3)):
        reference = plain_loop(module, x, labels, plan, i, LOOP, epochs)
        assert torch.allclose(models.module(i)(x), reference(x), atol=1e-5)
    assert not torch.allclose(models.module(0)(x), models.module(1)(x), atol=1e-3)


def test_many_models_are_trained_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.retraining.loop.CACHE_CELLS", 1)  # eight at once
    module = made("relu")
    x = numbers(30, D, dtype=torch.float32)
    labels = classes(3, 30)
    plan = Variation(tuple(range(19)), tuple(range(19)), emphasis=numbers(19, 30).abs().float())
    models = fit_stack(module, lambda seed: glorot(module, seed), x, labels, plan, LOOP, OFF)
    assert models.count == 19
    for i in (0, 7, 8, 18):
        one = fit_stack(
            module, lambda seed: glorot(module, seed), x, labels, plan[i : i + 1], LOOP, OFF
        )
        assert torch.allclose(models.module(i)(x), one.module(0)(x), atol=1e-5)


def test_order_and_weights_have_generators_of_their_own() -> None:
    a = Orders(Variation((1,), (5,)), 20)
    b = Orders(Variation((2,), (5,)), 20)
    first = a.next()
    assert torch.equal(first, b.next())
    assert not torch.equal(first, a.next())  # reshuffled each epoch
    assert sorted(first[0].tolist()) == list(range(20))
    kept = torch.ones(2, 20, dtype=torch.bool)
    kept[0, 4] = False
    kept[1, 9] = False
    order = Orders(Variation((1, 1), (5, 5), kept=kept), 20).next()
    assert order[0].tolist() == [r for r in first[0].tolist() if r != 4]
    assert order[1].tolist() == [r for r in first[0].tolist() if r != 9]


def test_initial_weights() -> None:
    module = mlp(D, (40,), 3)
    start = glorot(module, 3)
    assert all((start[name] == 0).all() for name in start if name.endswith("bias"))
    bound = (6 / (D + 40)) ** 0.5
    assert 0.9 * bound < start["0.weight"].abs().max() <= bound
    assert all(torch.equal(v, glorot(module, 3)[name]) for name, v in start.items())
    assert not torch.equal(start["0.weight"], glorot(module, 4)["0.weight"])
    norm = nn.Sequential(nn.Linear(D, 4), nn.BatchNorm1d(4))
    norm[1].running_mean += 3
    drawn = redrawn(norm, 3)
    assert (drawn["1.running_mean"] == 0).all()
    assert (norm[1].running_mean == 3).all()
    assert drawn["0.weight"].abs().max() <= D**-0.5
    assert not torch.equal(drawn["0.weight"], redrawn(norm, 4)["0.weight"])


def test_weights_that_cannot_be_drawn_anew_are_refused() -> None:
    class Own(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = nn.Parameter(torch.ones(D, 3))

        def forward(self, x: Tensor) -> Tensor:
            return x @ self.w

    with pytest.raises(SettingError, match=r"a Own anew.*reset_parameters"):
        redrawn(Own(), 0)


def test_plans_that_cannot_be() -> None:
    with pytest.raises(SettingError, match="2 weight seeds for 1 order"):
        Variation((1, 2), (1,))
    with pytest.raises(SettingError, match="equally many"):
        Variation((1, 2), (1, 2), kept=torch.tensor([[True, False], [True, True]]))
    with pytest.raises(SettingError, match="no row is left"):
        Variation((1,), (1,), kept=torch.tensor([[False]]))
    norm = made("norm")
    x = numbers(25, D, dtype=torch.float32)
    with pytest.raises(SettingError, match=r"batch_size 12 .*BatchNorm1d"):
        fit_stack(
            norm,
            lambda seed: redrawn(norm, seed),
            x,
            classes(3, 25),
            Variation((1,), (1,)),
            LOOP,
            OFF,
        )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("hidden", [(), (32,), (7,), (1,), (2, 3), (10, 6)])
@pytest.mark.parametrize("k", [1, 2, 3, 5, 6, 9, 10, 11, 15])
def test_a_row_gets_the_same_bits_in_any_batch(
    k: int, hidden: tuple[int, ...], dtype: torch.dtype
) -> None:
    net = seeded(mlp(23, hidden, k).to(dtype))
    engine = Engine.of(net)
    x = numbers(200, 23, seed=1).to(dtype)
    v = numbers(200, k, seed=2).to(dtype)
    assert engine is not None

    def passed(rows: slice) -> tuple[Tensor, Tensor]:
        scores, pull = engine.vjp(x[rows])
        return scores.clone(), pull(v[rows])

    with torch.no_grad():
        scores, slopes = passed(slice(None))
        torch.testing.assert_close(scores, net(x))
        assert slopes.shape == x.shape
        for n in (8, 16, 24, 104, 136):  # others are filled up by `pad_rows`
            for at in (0, 1, 3, 50):
                mine = slice(at, at + n)
                one, other = passed(mine)
                assert torch.equal(one, scores[mine])
                assert torch.equal(other, slopes[mine])
    rows = x.clone().requires_grad_()
    (by_rows,) = torch.autograd.grad((net(rows) * v).sum(), rows)
    torch.testing.assert_close(slopes, by_rows, rtol=1e-4, atol=1e-5)
