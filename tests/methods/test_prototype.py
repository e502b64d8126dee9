"""Prototype-guided search: the neighbour against brute force, and the limits of its loss."""

import pandas as pd
import pytest
import torch
from torch import nn

import holdfast as hf
from holdfast.methods.prototype import prototypes
from holdfast.nn.architecture import mlp
from holdfast.target import BoundTarget
from support.tables import N, seeded

D = 4
BOX = hf.Schema.box(D)


def points(n: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(n, D, generator=torch.Generator().manual_seed(seed))


@pytest.fixture(scope="module")
def three() -> hf.Model:
    return hf.Model.of(seeded(mlp(D, (16,), 3), 5), BOX, classes=["a", "b", "c"])


def labels_of(model: hf.Model, x: torch.Tensor) -> torch.Tensor:
    with model.eval_mode():
        return model(x).argmax(1)


def brute(
    x: torch.Tensor, data: torch.Tensor, labels: torch.Tensor, allowed: list[int], k: int
) -> torch.Tensor:
    """The k-th nearest row of the allowed class whose k-th nearest row is nearest."""
    found: list[tuple[float, torch.Tensor]] = []
    for label in allowed:
        rows = sorted(
            data[labels == label], key=lambda row: float((row.double() - x.double()).norm())
        )
        if rows:
            row = rows[min(k, len(rows)) - 1]
            found.append((float((row - x).norm()), row))
    return min(found, key=lambda pair: pair[0])[1]


@pytest.mark.parametrize("k", [1, 5, 20])
def test_the_prototype_is_the_one_of_brute_force(three: hf.Model, k: int) -> None:
    """Paper: black2022 Baseline Looveren."""
    data = points(150)
    x = points(N, 1)
    labels = labels_of(three, data)
    own = labels_of(three, x)
    leave = BoundTarget(own, -1.0, 0.0, False, 3)
    proto, distance = prototypes(x, leave, data, labels, k)
    for i in range(N):
        others = [c for c in range(3) if c != int(own[i])]
        assert torch.equal(proto[i], brute(x[i], data, labels, others, k)), i
    assert torch.allclose(distance, (proto - x).norm(dim=1))
    wanted = torch.tensor([0, 1, 2, 0, 1, 2, 0])
    proto, _ = prototypes(x, BoundTarget(wanted, 1.0, 0.0, False, 3), data, labels, k)
    for i in range(N):
        assert torch.equal(proto[i], brute(x[i], data, labels, [int(wanted[i])], k)), i


def test_small_and_empty_classes() -> None:
    data = points(10)
    x = points(N, 1)
    labels = torch.tensor([0] * 7 + [1] * 3)
    goal = BoundTarget(torch.ones(N, dtype=torch.int64), 1.0, 0.0, False, 3)
    proto, _ = prototypes(x, goal, data, labels, 20)  # three rows: the farthest of them
    farthest = torch.cdist(x, data[7:]).argmax(1)
    assert torch.equal(proto, data[7:][farthest])
    proto, distance = prototypes(
        x, BoundTarget(2 * goal.label, 1.0, 0.0, False, 3), data, labels, 20
    )
    assert torch.equal(proto, x)
    assert distance.isinf().all()


@pytest.mark.parametrize("theta", [10.0, 30.0, 100.0])
def test_with_a_large_theta_the_answer_tends_to_the_prototype(
    three: hf.Model, theta: float
) -> None:
    data = points(200)
    x = points(20, 1)
    proto, distance = prototypes(
        x, BoundTarget(labels_of(three, x), -1.0, 0.0, False, 3), data, labels_of(three, data), 5
    )
    # Steps of 1 / (2 theta) go to the prototype at once, and stay within |x - proto| / theta of it.
    e = hf.Prototype(k=5, theta=theta, beta=0.0, lr=1 / (2 * theta), c=1e-3, bisections=1).fit(
        three, data
    )
    cfs = e.explain(three, x)
    assert cfs.found.all()
    assert ((cfs.x_cf - proto).norm(dim=1) < 2 * distance / theta).all()


def test_without_prototype_and_l1_it_is_the_nearest_point_of_a_plane() -> None:
    """theta = beta = 0 leaves c * hinge + l2^2: the foot of the perpendicular, as the classes of a
    line allow."""
    net = nn.Sequential(nn.Linear(D, 1))
    with torch.no_grad():
        net[0].weight.copy_(torch.tensor([[1.0, -2.0, 0.5, 0.0]]))
        net[0].bias.fill_(-0.5)
    model = hf.Model.of(net, BOX)
    data = points(100)
    x = points(30, 1)
    with torch.no_grad():
        f = net(x).squeeze(1)
    x = x[f < 0]
    f = f[f < 0]
    e = hf.Prototype(theta=0.0, beta=0.0, lr=0.05).fit(model, data)
    cfs = e.explain(model, x, 1)
    assert cfs.found.all()
    exact = -f / net[0].weight.detach().norm()
    cost = (cfs.x_cf - x).norm(dim=1)
    assert (cost >= exact - 1e-4).all()
    assert (cost / exact).median() < 1.05


def test_shrinkage_leaves_small_changes_out(three: hf.Model) -> None:
    data = points(200)
    x = points(20, 1)
    for beta in (0.0, 0.3):
        cfs = hf.Prototype(k=5, beta=beta, bisections=3).fit(three, data).explain(three, x)
        assert cfs.found.mean() > 0.9
        moved = (cfs.x_cf - x)[torch.tensor(cfs.found)].abs()
        if beta:
            assert (moved == 0).any()
            assert (moved != 0).any()
        else:
            assert (moved != 0).all()


def test_classes_are_those_asked_for(three: hf.Model) -> None:
    data = points(300)
    x = points(40, 1)
    e = hf.Prototype(k=3, bisections=4).fit(three, data)
    assert torch.equal(e.scores_.argmax(1), labels_of(three, data))  # predicted, not given
    any_other = e.explain(three, x)
    before = three.predict(any_other.before)
    after = three.predict(any_other.after)
    assert any_other.found.all()
    assert (before != after).all()
    for name in "abc":
        cfs = e.explain(three, x, name)
        assert (three.predict(cfs.after)[cfs.found] == name).all()
        assert cfs.found[(before != name).to_numpy()].mean() > 0.9
    sure = e.explain(three, x, hf.Target("b", probability=0.9))
    assert sure.found.any()
    with three.eval_mode():
        assert (torch.softmax(three(sure.x_cf), 1)[torch.tensor(sure.found), 1] > 0.9).all()


def test_a_class_that_no_data_row_has_is_still_searched(three: hf.Model) -> None:
    x = points(20, 1)
    data = x[labels_of(three, x) == 0]
    cfs = hf.Prototype(c=10.0, lr=0.05).fit(three, data).explain(three, data, "b")
    assert cfs.found.any()


def test_schema_is_kept_and_the_answer_is_the_cheapest_seen(
    table: pd.DataFrame, schema: hf.Schema
) -> None:
    model = hf.Model.of(seeded(mlp(schema.width, (16,), 2)), schema, classes=["no", "yes"])
    rows = table[(model.predict(table) == "no").to_numpy()].head(12)
    short = hf.Prototype(k=3, steps=30, bisections=1).fit(model, table).explain(model, rows, "yes")
    long = hf.Prototype(k=3, steps=30, bisections=4).fit(model, table).explain(model, rows, "yes")

    def price(cfs: hf.Counterfactuals) -> torch.Tensor:
        delta = cfs.x_cf - cfs.x
        return 0.1 * delta.abs().sum(1) + delta.square().sum(1)

    both = torch.tensor(short.found & long.found)
    assert both.any()
    assert (long.found >= short.found).all()
    assert (price(long)[both] <= price(short)[both] + 1e-5).all()


def test_wrong_settings_are_named(three: hf.Model) -> None:
    x = points(4)
    for wrong in (
        {"k": 0},
        {"steps": 0},
        {"bisections": 0},
        {"lr": 0.0},
        {"c": 0.0},
        {"theta": -1.0},
        {"beta": -1.0},
    ):
        e = hf.Prototype(**wrong).fit(three, x)
        with pytest.raises(hf.HoldfastError, match=next(iter(wrong))):
            e.explain(three, x, "a")
    with pytest.raises(hf.HoldfastError, match="at least one data row"):
        hf.Prototype().fit(three, x[:0])
    with pytest.raises(hf.HoldfastError, match=r"call .fit"):
        hf.Prototype().explain(three, x, "a")
