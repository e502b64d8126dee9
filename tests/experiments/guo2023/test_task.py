"""Subsets and training are the paper's, and what is measured about them is what a pencil gives."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from experiments.guo2023.measure import CONVENTIONS, IN_RANGE, RAW, crossed, harden
from experiments.guo2023.task import Task, prepare
from holdfast.schema.feature import Feature
from holdfast.schema.schema import Schema


def bits() -> Task:
    """The unit case: two models, f1 = x[0] and f2 = x[2], answers that flip the column their model
    looks at."""
    x = torch.tensor(
        [[1, 0, 1], [1, 1, 0], [0, 1, 0], [0, 1, 1], [1, 0, 1], [1, 1, 0], [0, 1, 1], [1, 0, 0.0]]
    )
    schema = Schema(tuple(Feature(name, seen=(0.0, 1.0)) for name in "abc"))
    rows = [torch.arange(4), torch.arange(4, 8)]
    return Task(("1", "2"), x, torch.zeros(8).long(), rows, rows, schema, schema.encoding())


def test_the_validity_matrix_of_two_models_that_look_at_other_columns() -> None:
    looks = torch.tensor([0, 2])

    def answers(convention: str, i: int) -> torch.Tensor:
        out = bits().asked(i).clone()
        out[:, looks[i]] = 1 - out[:, looks[i]]
        return out

    figures, kept = crossed(bits(), lambda models, x: x[:, looks[models]].T > 0.5, answers)
    for convention in CONVENTIONS:
        found = figures[convention]
        assert found["matrix"] == [[1, 0.5], [0.75, 1]]
        assert found["cost"] == [1, 1]
        assert found["validity"] == 1.0
        assert found["robust validity"] == 0.625
        assert found["next subset"] == 0.5
        assert found["proximity"] == 1.0
    assert figures["asked"] == 8
    assert kept["accepted raw 0"].mean(1).tolist() == [1, 0.5]
    assert kept["far raw 1"].tolist() == [1, 1, 1, 1]


def test_an_answer_has_one_level_per_category_and_numbers_in_the_range_of_the_data() -> None:
    schema = Schema(
        (
            Feature("a", seen=(0.0, 1.0)),
            Feature("c", kind="category", levels=("x", "y", "z")),
            Feature("b", seen=(0.0, 1.0)),
        )
    )
    task = replace(bits(), schema=schema, encoding=schema.encoding())
    raw = torch.tensor([[1.7, 0.2, 3.0, -1.0, -0.4]])
    assert harden(raw, task, IN_RANGE).tolist() == [[1.0, 0.0, 1.0, 0.0, 0.0]]
    torch.testing.assert_close(harden(raw, task, RAW), torch.tensor([[1.7, 0.0, 1.0, 0.0, -0.4]]))


@pytest.mark.parametrize(
    ("name", "columns", "train", "test"),
    [("german_credit", 19, [750, 750], [250, 250]), ("student", 83, [317, 170], [106, 56])],
)
def test_subsets_are_those_of_the_paper(
    data_dir: Path, name: str, columns: int, train: list[int], test: list[int]
) -> None:
    """Paper: guo2023 Datasets, Table 1."""
    task = prepare(name)
    assert task.x.shape[1] == columns
    assert [len(rows) for rows in task.train] == train
    assert [len(rows) for rows in task.test] == test
    assert float(task.x.min()) == 0
    assert float(task.x.max()) == 1
    back = task.schema.encode(task.schema.decode(task.x))
    torch.testing.assert_close(back, task.x, atol=1e-6, rtol=0)
    assert not task.encoding.fixed.any()
