"""MinCost against the exact optimum of small networks, and the places from which it starts."""

from functools import lru_cache

import numpy as np
import pytest
import torch
from torch import nn

import holdfast as hf
from holdfast.methods.min_cost import SINGLES, SPREAD, single_changes, spread
from holdfast.problem import SLACK, SearchProblem
from support.regions import nearest
from support.tables import problem_of

NETWORKS = 30
ROWS = 5


@lru_cache
def networks() -> list[tuple[nn.Sequential, torch.Tensor, np.ndarray]]:
    """Random networks of 2 to 4 inputs and 4 to 8 hidden units, refused rows, and their exact l1
    and l2 distances."""
    out = []
    for seed in range(NETWORKS):
        g = torch.Generator().manual_seed(seed)
        d = 2 + seed % 3
        h = 4 + (seed // 3) % 5
        net = nn.Sequential(nn.Linear(d, h), nn.ReLU(), nn.Linear(h, 2)).double()
        for p, size in zip(net.parameters(), (d**-0.5, 0.5, h**-0.5, 0.0), strict=True):
            nn.init.normal_(p, std=size * 2**0.5, generator=g)
        x = torch.rand(400, d, generator=g, dtype=torch.float64) * 4 - 2
        with torch.no_grad():
            gap = net(x) @ torch.tensor([-1.0, 1.0]).double()
            level = gap.quantile(0.7) + 0.03 * gap.std()
            net[2].bias[1] -= level
        x = x[gap < level - 0.05][:ROWS]
        out.append((net, x, np.array([nearest(net, row, -2, 2, SLACK) for row in x.numpy()])))
    return out


@pytest.mark.parametrize("norm", [1, 2])
def test_answers_of_small_networks_are_close_to_the_exact_optimum(norm: int) -> None:
    ratios = list[np.ndarray]()
    for net, x, best in networks():
        model = hf.Model.of(net, hf.Schema.box(x.shape[1], -2, 2), classes=["no", "yes"])
        cfs = hf.MinCost(norm=norm).explain(model, x, "yes")
        assert (cfs.found == np.isfinite(best[:, 0])).all()
        ratios.append((cfs.cost(f"l{norm}").to_numpy() / best[:, norm - 1])[cfs.found])
    ratio = np.concatenate(ratios)
    assert len(ratio) > 0.9 * NETWORKS * ROWS
    assert ratio.min() >= 1 - 1e-6
    assert ratio.mean() <= 1.02
    assert ratio.max() <= 1.15


def refused_by_a_network(schema: hf.Schema, x: torch.Tensor) -> SearchProblem:
    """Refused rows of a network that nobody trained."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(schema.width, 8), nn.ReLU(), nn.Linear(8, 2)).double()
    model = hf.Model.of(net, schema, classes=["no", "yes"])
    return problem_of(model, x, "yes")


def test_single_changes_are_the_ends_of_each_range_and_the_other_levels() -> None:
    schema = hf.Schema(
        [
            hf.Feature("age", bounds=(0, 10), seen=(0, 10), scale=1.0),
            hf.Feature("sex", "category", levels=("f", "m"), change="fixed"),
            hf.Feature("job", "category", levels=("a", "b", "c")),
        ]
    )
    x = torch.tensor([[4.0, 1.0, 0.0, 0.0, 1.0, 0.0]]).double()
    with (problem := refused_by_a_network(schema, x)).model.eval_mode():
        places = single_changes(problem)[0]
    # one stays
    moved = [(4.0, 1.0, 0.0, 1.0, 0.0, 0.0), (4.0, 1.0, 0.0, 0.0, 0.0, 1.0), tuple(x[0].tolist())]
    ends = [(end, *x[0, 1:].tolist()) for end in (0.0, 10.0)]
    assert {tuple(place) for place in places.tolist()} == {*ends, *moved}


def test_of_many_single_changes_the_tangent_chooses() -> None:
    x = torch.rand(3, 100, generator=torch.Generator().manual_seed(0)).double()
    with (problem := refused_by_a_network(hf.Schema.box(100, 0, 1), x)).model.eval_mode():
        places = single_changes(problem)
        _, grad = problem.gap_and_gradient(x)
    delta = places - x[:, None]
    assert places.shape == (3, SINGLES, 100)
    assert ((delta != 0).sum(2) == 1).all()
    promise = torch.maximum(grad * (1 - x), -grad * x).sort(1, descending=True).values[:, :SINGLES]
    assert torch.allclose((delta @ grad[..., None]).squeeze(2), promise)


def test_places_are_spread_over_what_can_be_reached() -> None:
    x = torch.full((2, 3), 0.5).double()
    with (
        problem := refused_by_a_network(hf.Schema.box(3, 0, 1).change(x0={"change": "fixed"}), x)
    ).model.eval_mode():
        places = spread(problem)
    assert places.shape == (2, SPREAD, 3)
    assert (places[:, :, 0] == 0.5).all()
    quarters = (places[0, :, 1:] * 4).floor()
    assert all(set(column.tolist()) == {0.0, 1.0, 2.0, 3.0} for column in quarters.T)
