"""The registry: every paper is one value, made of data and functions."""

from pathlib import Path

import pytest

import holdfast as hf
from experiments import PAPERS
from experiments.cell import Store
from experiments.experiment import Experiment
from experiments.order import ORDER, in_order, place
from experiments.paper import Found, load_paper, load_papers


@pytest.mark.parametrize("name", PAPERS)
def test_a_paper_is_one_value(name: str) -> None:
    paper = load_paper(name)
    assert paper.name == name
    cells = paper.cells()
    names = [cell.name for cell in cells]
    assert len(set(names)) == len(names)
    assert {cell.paper for cell in cells} == {name}
    assert paper.check in names
    experiment = paper.experiment
    if experiment is None:
        assert paper.quick is not None
        return
    assert isinstance(experiment, Experiment)
    assert experiment.quick in experiment.settings
    assert set(experiment.full) <= set(experiment.settings)
    assert 1 <= experiment.quick_models <= experiment.models


def test_unknown_papers_and_cells_are_named() -> None:
    with pytest.raises(hf.HoldfastError, match="did you mean 'black2022'"):
        load_paper("black2023")
    with pytest.raises(hf.HoldfastError, match="did you mean 'krishna2024/german_credit/check/0'"):
        load_paper("krishna2024").cell("krishna2024/german_credit/chek/0")


def test_every_cell_has_its_place_and_the_cheap_ones_come_first() -> None:
    papers = load_papers()
    cells = in_order(cell for paper in papers for cell in paper.cells())
    places = [place(cell) for cell in cells]
    assert places == sorted(places)
    assert max(places) < len(ORDER)
    first = {cell.name for cell in cells[: len(papers)]}
    assert {paper.check for paper in papers if paper.check.split("/")[2] == "check"} <= first


def test_found_tells_what_is_there_and_what_is_missing(tmp_path: Path) -> None:
    paper = load_paper("krishna2024")
    found = Found.of(paper.cells(), Store(tmp_path))
    assert not list(found)
    assert {cell.name for cell in found.missing} == {cell.name for cell in paper.cells()}
    kept = Found.of(paper.cells(), Store())
    (check,) = kept.seeds("german_credit", "check")
    assert check.cell.name == paper.check
