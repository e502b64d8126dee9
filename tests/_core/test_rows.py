import torch

from holdfast._core.rows import ROW_BLOCK, pad_rows, per_row, rows_per_chunk, whole_blocks


def test_values_per_row_broadcast_over_each_row() -> None:
    assert per_row(torch.tensor([1.0, 2.0]), torch.zeros(2, 3, 4)).shape == (2, 1, 1)


def test_row_numbers_in_whole_blocks() -> None:
    filled = whole_blocks(torch.tensor([4, 7]))
    assert len(filled) == ROW_BLOCK
    assert filled[:3].tolist() == [4, 7, 7]
    assert whole_blocks(torch.arange(ROW_BLOCK)).tolist() == list(range(ROW_BLOCK))


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
