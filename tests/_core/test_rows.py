import math

import torch

from holdfast._core.rows import ROW_BLOCK, clip_norm, pad_rows, per_row, row_norm, rows_per_chunk, unit


def test_row_norms_by_hand() -> None:
    delta = torch.tensor([[3.0, -4.0, 0.0], [0.0, 0.0, 0.0]])
    assert row_norm(delta, 0).tolist() == [2, 0]
    assert row_norm(delta, 1).tolist() == [7, 0]
    assert row_norm(delta, 2).tolist() == [5, 0]
    assert row_norm(delta, math.inf).tolist() == [4, 0]
    assert row_norm(torch.ones(2, 3, 4), 1).tolist() == [12, 12]


def test_unit_and_clip_keep_zero_rows_and_work_per_row() -> None:
    delta = torch.tensor([[3.0, 4.0], [0.0, 0.0], [0.3, 0.4]])
    assert torch.allclose(unit(delta), torch.tensor([[0.6, 0.8], [0.0, 0.0], [0.6, 0.8]]))
    clipped = clip_norm(delta, torch.tensor([1.0, 1.0, 1.0]))
    assert torch.allclose(clipped, torch.tensor([[0.6, 0.8], [0.0, 0.0], [0.3, 0.4]]))
    assert torch.allclose(clip_norm(delta, 2.5)[0], torch.tensor([1.5, 2.0]))
    assert per_row(torch.tensor([1.0, 2.0]), torch.zeros(2, 3, 4)).shape == (2, 1, 1)


def test_pad_rows() -> None:
    assert pad_rows(torch.ones(1, 3)).shape == (ROW_BLOCK, 3)
    assert pad_rows(torch.ones(ROW_BLOCK + 1, 3)).shape == (2 * ROW_BLOCK, 3)
    x = torch.ones(ROW_BLOCK, 3)
    assert pad_rows(x) is x


def test_rows_per_chunk() -> None:
    assert rows_per_chunk(100, 1000) == 10
    assert rows_per_chunk(3000, 1000) == 1
    assert rows_per_chunk(3000, 1000, at_least=8) == 8
    assert rows_per_chunk(10, 1000, block=16) == 96
    assert rows_per_chunk(1000, 1000, at_least=20, block=16) == 32
    assert rows_per_chunk(0) > 1  # a table without columns
