"""Images and questions are those of the paper."""

from pathlib import Path

import pytest

from experiments.hoeltgen2021 import reported
from experiments.hoeltgen2021.setup import SETS, SETTINGS, prepare, questions, shown, tuned


def test_pairs_are_asked_about_as_in_the_paper() -> None:
    """Paper: hoeltgen2021 Datasets."""
    asked = questions(SETTINGS["mnist"], 5, 100)
    assert len({i for k in range(5) for i in asked[f"DeDUCE spectral {k}"].images}) == 500
    assert asked["JSMA plain 4"].images == tuple(range(400, 500))
    assert sum(len(asked[f"VLK plain {k}"].images) for k in range(5)) * 9 == 270
    assert {i for i, _ in SETTINGS["mnist"].shown} == set(asked["REVISE spectral 0"].images)
    assert asked["mu = 1/5"].options == {"mu": 0.2, "momentum": 0.0}
    assert len(asked["lambda = 1e5"].images) * 9 == 450
    assert asked[tuned(0.1, 1e-4)].options["optimizer"] == "sgd"
    assert len(asked) == 5 * 7 + 13 + 6
    some = questions(SETTINGS["mnist"], 2, 7)  # fewer images of fewer sets, at the same places
    assert some["DeDUCE spectral 1"].images == tuple(range(100, 107))
    assert some["VLK plain 1"].images == (101, 103, 104, 106)


def test_the_digits_of_the_quick_run_are_apart() -> None:
    task = prepare("digits")
    assert [len(x) for x in (task.train, task.validation, task.test)] == [1200, 298, 299]
    setting = SETTINGS["digits"]
    assert setting.images * SETS <= len(task.test)
    assert all(task.test_y[i] != t for i, t in shown(setting, task))


@pytest.mark.data
def test_images_are_those_of_the_paper(data_dir: Path) -> None:
    task = prepare("mnist")
    assert [len(x) for x in (task.train, task.validation, task.test)] == [50_000, 10_000, 10_000]
    assert [int(task.test_y[i]) for i, _ in reported.PAIRS_3] == [4, 0, 9, 2, 4, 5]
    assert set(task.strange) == set(reported.AUROC)
