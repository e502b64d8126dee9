import pytest
import torch

from holdfast._core.row_random import RowRandom


def test_random_numbers_belong_to_the_row() -> None:
    x = torch.randn(50, 4, generator=torch.Generator().manual_seed(0))
    r = RowRandom.of(3, x)
    whole = r.normal(5, 2, draw=1)
    assert whole.shape == (50, 5, 2)
    shuffled = torch.randperm(50, generator=torch.Generator().manual_seed(1))
    assert torch.equal(RowRandom.of(3, x[shuffled]).normal(5, 2, draw=1), whole[shuffled])
    assert torch.equal(RowRandom.of(3, x[7:8]).normal(5, 2, draw=1), whole[7:8])
    assert torch.equal(r[torch.tensor([7])].normal(5, 2, draw=1), whole[7:8])
    assert not torch.equal(RowRandom.of(4, x).normal(5, 2, draw=1), whole)
    assert not torch.equal(r.normal(5, 2, draw=2), whole)
    assert RowRandom.of(-5, x).uniform(3).shape == (50, 3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_random_numbers_have_the_right_distribution(dtype: torch.dtype) -> None:
    x = torch.arange(2000.0)[:, None]
    r = RowRandom.of(0, x)
    u = r.uniform(100, dtype=dtype)
    assert u.dtype == dtype
    assert u.min() >= 0
    assert u.max() < 1
    # 200,000 draws: the mean has a standard error of 0.0006, the variance of 0.0002.
    assert abs(u.mean() - 0.5) < 0.004
    assert abs(u.var() - 1 / 12) < 0.002
    # Neither neighbouring rows nor neighbouring draws know of each other (standard error 0.0022).
    v = u - 0.5
    assert abs((v[1:] * v[:-1]).mean() * 12) < 0.015
    assert abs((v[:, 1:] * v[:, :-1]).mean() * 12) < 0.015
    z = r.normal(101, dtype=dtype)  # an odd number of normals
    assert z.isfinite().all()
    assert abs(z.mean()) < 0.015
    assert abs(z.var() - 1) < 0.02
    assert abs((z**4).mean() - 3) < 0.15


def test_similar_rows_get_unrelated_numbers() -> None:
    x = torch.zeros(2, 3)
    x[1, 2] = 1e-7
    a, b = RowRandom.of(0, x).uniform(1000)
    assert abs(((a - 0.5) * (b - 0.5)).mean() * 12) < 0.15
    swapped = RowRandom.of(0, torch.tensor([[1.0, 2.0], [2.0, 1.0]])).uniform(4)
    assert not torch.equal(swapped[0], swapped[1])


def test_sixteen_bits_at_a_time() -> None:
    x = torch.randn(200, 5, generator=torch.Generator().manual_seed(0))
    r = RowRandom.of(3, x)
    bits = r.bits16(33, 7, draw=1)  # not a multiple of four
    assert bits.shape == (200, 33, 7)
    assert (bits.min() >= 0) & (bits.max() < 1 << 16)
    assert torch.equal(r[torch.tensor([7])].bits16(33, 7, draw=1), bits[7:8])
    assert not torch.equal(r.bits16(33, 7, draw=2), bits)
    u = (bits.double() + 0.5) / (1 << 16)
    assert abs(float(u.mean()) - 0.5) < 5e-3
    assert abs(float(u.var()) - 1 / 12) < 1e-3
    # the four parts of a word have nothing in common
    together = torch.corrcoef(u.reshape(-1, 7).T) - torch.eye(7)
    assert together.abs().max() < 0.06


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_common_numbers_depend_on_seed_and_draw_alone(dtype: torch.dtype) -> None:
    x = torch.randn(50, 4, generator=torch.Generator().manual_seed(0))
    r = RowRandom.of(3, x)
    z = r.common_normal(300, 70, draw=1, dtype=dtype)
    assert (z.shape, z.dtype) == ((300, 70), dtype)
    assert torch.equal(r[torch.tensor([7, 2])].common_normal(300, 70, draw=1, dtype=dtype), z)
    assert torch.equal(RowRandom.of(3, x[:1] + 1).common_normal(300, 70, draw=1, dtype=dtype), z)
    assert not torch.equal(RowRandom.of(4, x).common_normal(300, 70, draw=1, dtype=dtype), z)
    assert not torch.equal(r.common_normal(300, 70, draw=2, dtype=dtype), z)
    assert abs(z.mean()) < 0.03
    assert abs(z.var() - 1) < 0.05
    u = RowRandom.of(-5, x).common_uniform(20_000, dtype=dtype)
    assert (u.min() >= 0) & (u.max() < 1)
    assert abs(u.mean() - 0.5) < 0.01
    assert abs(u.var() - 1 / 12) < 0.003


def test_common_numbers_leave_the_global_generator_alone() -> None:
    torch.manual_seed(7)
    before = torch.get_rng_state()
    RowRandom.of(0, torch.zeros(2, 3)).common_uniform(5)
    assert torch.equal(torch.get_rng_state(), before)
