"""JSMA on linear scores, where gradients, saliency and steps can be worked out by hand."""

import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import holdfast as hf
from holdfast.images import jsma
from holdfast.images.jsma import JSMA, best_pair, saliency
from holdfast.images.model import ImageModel

#            three classes, six pixels in two rows
W = torch.tensor(
    [
        [0.0, 2.0, -1.0, 1.0, 0.0, 3.0],
        [1.0, -2.0, 1.0, 0.0, 0.0, -1.0],
        [-3.0, 1.0, 1.0, -2.0, 0.0, 0.0],
    ]
)


def linear(
    weight: Tensor = W, bias: Tensor | None = None, size: tuple[int, int, int] = (1, 2, 3)
) -> ImageModel:
    with torch.random.fork_rng():
        layer = nn.Linear(weight.shape[1], len(weight))
    layer.load_state_dict(
        {"weight": weight, "bias": torch.zeros(len(weight)) if bias is None else bias}
    )
    return ImageModel.of(nn.Sequential(nn.Flatten(), layer), size)


def start(*values: float) -> Tensor:
    return torch.tensor(values).view(1, 1, 2, 3)


def steps_of(method: JSMA, model: ImageModel, x: Tensor, target: Any, count: int) -> list[Tensor]:
    """The images (d,) after 0, 1, .. count steps."""
    out = [x.flatten()]
    for k in range(1, count + 1):
        out.append(method.set_params(max_iter=k).explain(model, x, target).x_cf.flatten())
    return out


# ---- by the class loss


def test_the_steepest_pixel_goes_against_the_gradient_of_the_class_loss() -> None:
    """From black all logits are 0: grad ce = W^T (1/3, -2/3, 1/3) for class 1 is (-5, 7, -2, -1, 0,
    5) / 3."""
    g = W.T @ (torch.full((3,), 1 / 3) - torch.tensor([0.0, 1.0, 0.0]))
    torch.testing.assert_close(g, torch.tensor([-5.0, 7.0, -2.0, -1.0, 0.0, 5.0]) / 3)
    x = start(0.5, 0.5, 0.5, 0.5, 0.5, 0.5)
    model = linear(bias=-W.sum(1) / 2)  # logits are 0 at grey
    after = JSMA(max_iter=1).explain(model, x, 1).x_cf
    torch.testing.assert_close((after - x).flatten(), torch.tensor([0.0, -0.2, 0.0, 0.0, 0.0, 0.0]))


def test_a_pixel_is_closed_once_a_step_leaves_it_at_a_bound() -> None:
    """z_1 - z_0 = -8 x_0 + x_1 + 2.5 with steps of 0.5: x_0 goes 1, 0.5, 0 and is closed; x_1 goes
    0.5, 1 and is."""
    model = linear(torch.tensor([[8.0, -1.0], [0.0, 0.0]]), torch.tensor([5.0, 0.0]), (1, 1, 2))
    x = torch.tensor([1.0, 0.0]).view(1, 1, 1, 2)
    cfs = JSMA(delta=0.5).explain(model, x, 1)
    assert cfs.x_cf.flatten().tolist() == [0.0, 1.0]
    assert not cfs.found[0]
    assert int(cfs.iterations[0]) == 4


# ---- by saliency


def test_saliency_by_hand() -> None:
    """For class 0: a = row 0, b = the sum of the others (-2, -1, 2, -2, 0, -1); S = (0, 2, 0, 2, 0,
    3)."""
    a = W[:1]
    b = W[1:].sum(0)[None]
    assert b[0].tolist() == [-2, -1, 2, -2, 0, -1]
    assert saliency(a, b)[0].tolist() == [0, 2, 0, 2, 0, 3]
    method = JSMA(saliency="original", min_probability=0.999)
    before, one = steps_of(
        method, linear(bias=torch.tensor([-9.0, 0, 0])), start(0.5, 0.5, 0.5, 0.5, 0.5, 0.5), 0, 1
    )
    torch.testing.assert_close(one - before, torch.tensor([0.0, 0.0, 0.0, 0.0, 0.0, 0.2]))
    # The last pixel first; of the two that are equal then the one that comes first; then the other;
    # nothing else.
    whole = steps_of(
        method, linear(bias=torch.tensor([-9.0, 0, 0])), start(0.5, 0.5, 0.5, 0.5, 0.5, 0.5), 0, 12
    )
    changed = [
        (after - before).nonzero().flatten().tolist() for before, after in itertools.pairwise(whole)
    ]
    assert changed == [[5]] * 3 + [[1]] * 3 + [[3]] * 3 + [[]] * 3
    assert whole[-1].tolist() == [0.5, 1.0, 0.5, 1.0, 0.5, 1.0]


def test_white_pixels_and_locked_ones_are_passed_over_without_a_step() -> None:
    method = JSMA(saliency="original", min_probability=0.999, delta=1.0)
    model = linear(bias=torch.tensor([-9.0, 0, 0]))
    x = start(0.0, 0.0, 0.0, 0.0, 0.0, 1.0)
    cfs = method.explain(model, x, 0)
    assert cfs.x_cf.flatten().tolist() == [0, 1, 0, 1, 0, 1]
    assert int(cfs.iterations[0]) == 2
    locked = torch.tensor([[False, True, False], [False, False, False]])
    cfs = method.explain(model, x, 0, locked=locked)
    assert cfs.x_cf.flatten().tolist() == [0, 0, 0, 1, 0, 1]


def test_nothing_salient_is_left_alone() -> None:
    """Class 0 falls with every pixel: no pixel helps by becoming brighter."""
    model = linear(-W.abs() * torch.tensor([[1.0], [-1.0], [-1.0]]))
    x = start(0.5, 0.5, 0.5, 0.5, 0.5, 0.5)
    for pixels in (1, 2):
        cfs = JSMA(saliency="original", pixels=pixels).explain(model, x, 0)
        assert torch.equal(cfs.x_cf, x)
        assert not cfs.found[0]
        assert int(cfs.iterations[0]) == 0


def test_a_pair_may_be_worth_more_than_its_pixels() -> None:
    """a = (3, -1, 1.5, 0, 0, 0), b = (1, -4, -1, 0, 0, 0).

    Alone only the third pixel has saliency, 1.5. Of the pairs (0, 1) has (3 - 1) |1 - 4| = 6; (1,
    2) has 0.5 x 5 = 2.5, and (0, 2) nothing, since 4.5 x 0 = 0.
    """
    weight = torch.tensor([[3.0, -1.0, 1.5, 0, 0, 0], [1.0, -4.0, -1.0, 0, 0, 0]])
    assert saliency(weight[:1], weight[1:])[0].tolist() == [0, 0, 1.5, 0, 0, 0]
    value, at = best_pair(weight[:1], weight[1:])
    assert value.item() == 6
    assert at.tolist() == [[0, 1]]
    model = linear(weight, torch.tensor([-9.0, 9.0]))
    x = start(0.5, 0.5, 0.5, 0.5, 0.5, 0.5)
    cfs = JSMA(saliency="original", pixels=2, max_iter=1).explain(model, x, 0)
    torch.testing.assert_close(cfs.x_cf.flatten(), torch.tensor([0.7, 0.7, 0.5, 0.5, 0.5, 0.5]))
    assert int(cfs.iterations[0]) == 1
    single = JSMA(saliency="original", pixels=1, max_iter=1).explain(model, x, 0)
    torch.testing.assert_close(single.x_cf.flatten(), torch.tensor([0.5, 0.5, 0.7, 0.5, 0.5, 0.5]))


numbers = st.sampled_from([-3.0, -2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0, 3.0, -math.inf])


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_the_best_pair_by_trying_all(data: st.DataObject) -> None:
    d = data.draw(st.integers(1, 9))
    n = data.draw(st.integers(1, 3))
    block = data.draw(st.sampled_from([1, 20, 1 << 18]))
    a = torch.tensor(
        data.draw(st.lists(st.lists(numbers, min_size=d, max_size=d), min_size=n, max_size=n))
    )
    b = torch.tensor(
        data.draw(st.lists(st.lists(numbers, min_size=d, max_size=d), min_size=n, max_size=n))
    )
    b = b.nan_to_num(neginf=-4.0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jsma, "CACHE_CELLS", block)
        value, at = best_pair(a, b)
    for row in range(n):
        best = 0.0
        pair = 0, 0
        for i, j in itertools.combinations(range(d), 2):
            up = float(a[row, i] + a[row, j])
            down = float(b[row, i] + b[row, j])
            s = up * abs(down) if up >= 0 and down <= 0 else 0.0
            if s > best:
                best = s
                pair = i, j
        assert float(value[row]) == best
        assert tuple(at[row].tolist()) == pair


def network() -> ImageModel:
    with torch.random.fork_rng():
        torch.manual_seed(3)
        net = nn.Sequential(
            nn.Conv2d(1, 6, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(6 * 30, 3)
        )
        net[-1].weight.data *= 10  # as sure as a trained one
    return ImageModel.of(net, (1, 6, 5))


@pytest.mark.parametrize(
    "settings_", [{}, {"saliency": "original"}, {"saliency": "original", "pixels": 2}]
)
def test_laws(settings_: dict[str, Any]) -> None:
    """Only brighter, within bounds, as the model says, and the same whatever else is asked."""
    model = network()
    x = torch.rand(7, 1, 6, 5, generator=torch.Generator().manual_seed(0))
    copy = x.clone()
    before = torch.get_rng_state()
    method = JSMA(**settings_, min_probability=0.6, max_iter=120)
    cfs = method.explain(model, x, "all", threads=1)
    assert cfs.found.any()
    assert 0 <= float(cfs.x_cf.min()) <= float(cfs.x_cf.max()) <= 1
    if settings_:
        assert bool((cfs.x_cf >= cfs.x).all())
        changed = (cfs.x_cf != cfs.x).flatten(1).sum(1).numpy()
        assert (changed <= cfs.iterations * method.pixels).all()
    p = model.scores(cfs.x_cf).softmax(1).gather(1, cfs.goal.label[:, None]).squeeze(1).numpy()
    assert ((p > 0.6) == (cfs.status_codes != hf.Status.NOT_FOUND)).all()
    parts = method.explain(model, x, "all", threads=1, batch_size=3)
    alone = method.explain(model, x[4:5], "all", threads=1)
    assert torch.equal(parts.x_cf, cfs.x_cf)
    assert (parts.iterations == cfs.iterations).all()
    assert torch.equal(alone.x_cf, cfs.x_cf[cfs.source == 4])
    assert torch.equal(x, copy)
    assert torch.equal(before, torch.get_rng_state())
    assert all(q.grad is None and q.requires_grad for q in model.module.parameters())
    again = method.explain(model, x, "all", threads=1)
    np.testing.assert_array_equal(again.x_cf.numpy(), cfs.x_cf.numpy())


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"saliency": "other"}, "saliency must be one of"),
        ({"saliency": "original", "pixels": 3}, "one pixel or of two, got pixels=3"),
        ({"saliency": "original", "momentum": 0.5}, "set momentum=0"),
    ],
)
def test_what_cannot_work_is_said(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(hf.HoldfastError, match=said):
        JSMA(**wrong).explain(linear(), start(0, 0, 0, 0, 0, 0), 0)


def test_large_images_have_too_many_pairs() -> None:
    model = linear(torch.ones(2, 3 * 20 * 20) * torch.tensor([[1.0], [-1.0]]), size=(3, 20, 20))
    x = torch.zeros(1, 3, 20, 20)
    with pytest.raises(
        hf.HoldfastError, match=r"images of 3 x 20 x 20 have too many pairs.*set pixels=1"
    ):
        JSMA(saliency="original", pixels=2).explain(model, x, 0)
    one = JSMA(saliency="original", max_iter=1, min_probability=0.9).explain(model, x, 0)
    assert int((one.x_cf != x).sum()) == 1
