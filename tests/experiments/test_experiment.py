"""The registry: every paper is one value, made of data and functions."""

import pytest

import holdfast as hf
from experiments import PAPERS
from experiments.experiment import Experiment, load_experiment


@pytest.mark.parametrize("paper", PAPERS)
def test_a_paper_is_one_value(paper: str) -> None:
    experiment = load_experiment(paper)
    assert isinstance(experiment, Experiment)
    assert experiment.name == paper
    assert experiment.quick in experiment.settings
    assert set(experiment.full) <= set(experiment.settings)
    assert 1 <= experiment.quick_models <= experiment.models


def test_unknown_papers_are_named() -> None:
    with pytest.raises(hf.HoldfastError, match="did you mean 'black2022'"):
        load_experiment("black2023")
