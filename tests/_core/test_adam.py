"""Adam by torch's kernel, and by plain operations where there is none, against torch.optim.Adam
step by step."""

import pytest
import torch
from torch import Tensor, nn

from holdfast._core import adam as module
from holdfast._core.adam import Adam, adam_step

M = 3
P = 37


def numbers(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def without_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FUSED_ADAM", None)


def test_this_torch_has_the_kernel() -> None:
    """Where this fails, torch has renamed it: everything still works, by slower plain operations.
    Find the new name."""
    assert module.FUSED_ADAM is not None


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_one_vector_step_by_step(
    fused: bool, decay: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not fused:
        without_kernel(monkeypatch)
    ours = numbers(P)
    theirs = nn.Parameter(numbers(P))
    adam = Adam(ours, lr=0.03, eps=1e-3, weight_decay=decay)
    reference = torch.optim.Adam([theirs], lr=0.03, eps=1e-3, weight_decay=decay)
    for step in range(20):
        g = numbers(P, seed=step + 1) * 10 ** (step % 4 - 2)
        theirs.grad = g.clone()
        before = g.clone()
        adam.step(g)
        reference.step()
        assert torch.equal(g, before)
        assert torch.allclose(ours, theirs.detach(), rtol=0, atol=1e-12), step


@pytest.mark.parametrize(("dtype", "near"), [(torch.float32, 1e-6), (torch.float64, 1e-12)])
def test_rows_with_a_count_each(
    dtype: torch.dtype, near: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = numbers(M, P, dtype=dtype)
    gradients = [
        numbers(rows, P, seed=i + 1, dtype=dtype) for i, rows in enumerate((3, 2, 3, 1, 2, 3))
    ]
    ends = list[Tensor]()
    for fused in (True, False):
        if not fused:
            without_kernel(monkeypatch)
        adam = Adam(start.clone(), lr=0.01, weight_decay=0.1)
        for g in gradients:
            before = g.clone()
            adam.step(g)
            assert torch.equal(g, before)
        assert adam.counts.tolist() == [6, 5, 3]
        ends.append(adam.theta)
    torch.testing.assert_close(ends[0], ends[1], rtol=0, atol=near)
    for row in range(M):
        theirs = start[row].clone().requires_grad_()
        reference = torch.optim.Adam([theirs], lr=0.01, weight_decay=0.1)
        for g in gradients:
            if row < len(g):
                theirs.grad = g[row].clone()
                reference.step()
        for end in ends:
            torch.testing.assert_close(end[row], theirs.detach(), rtol=0, atol=near)


def test_a_step_of_several_tensors_is_that_of_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """With memories and a rate of the caller's own, as `Descent` has them."""
    shapes = (4, 3), (7,)
    counts = [torch.tensor(3.0), torch.tensor(9.0)]
    found = list[list[Tensor]]()
    for fused in (True, False):
        if not fused:
            without_kernel(monkeypatch)
        p, g, m, v = ([numbers(*shape, seed=seed) for shape in shapes] for seed in range(4))
        v = [part.square() for part in v]
        adam_step(p, g, m, v, counts, lr=0.1)
        found.append([*p, *m, *v])
        for i, (shape, t) in enumerate(zip(shapes, (3, 9), strict=True)):
            slope = numbers(*shape, seed=1)
            first = 0.9 * numbers(*shape, seed=2)
            first = first + 0.1 * slope
            second = 0.999 * numbers(*shape, seed=3).square() + 0.001 * slope.square()
            step = first / (1 - 0.9**t) / ((second / (1 - 0.999**t)).sqrt() + 1e-8)
            torch.testing.assert_close(p[i], numbers(*shape) - 0.1 * step, rtol=1e-12, atol=1e-12)
            torch.testing.assert_close(m[i], first, rtol=1e-12, atol=1e-14)
            torch.testing.assert_close(v[i], second, rtol=1e-12, atol=1e-14)
    assert [t.tolist() for t in counts] == [3, 9]  # whoever calls counts
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)
