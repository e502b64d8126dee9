"""Curves: who counts in a neighbourhood."""

from pathlib import Path

import pandas as pd
import pytest
import torch

import holdfast as hf
from experiments.krishna2024.curves import broken_bounds, by_seed, nearby
from experiments.krishna2024.setup import hardened, prepare


def test_neighbourhoods_of_people_who_are_refused_and_of_all(data_dir: Path) -> None:
    task = prepare("compas")
    models = hardened(task, (), 2, 2, 0, epsilon=(0.0, 0.3))
    asked = task.test_X.iloc[:40]
    refused, everyone = nearby(models, asked)
    assert refused.shape == everyone.shape == (2,)
    with torch.no_grad():
        for group in models.bank.groups[1:]:
            assert group.networks is not None
            _, b = group.networks.layers[0]  # a model that gives one class to all
            b[:, :, 1] = 1e6
    # those who are refused by it want class 0, which it never gives; those who want class 1 all
    # have it
    refused, everyone = nearby(models, asked)
    assert refused[1] == 0.0
    assert everyone[1] == pytest.approx((models.wanted_classes(asked) == 1).mean())


def test_bounds_are_broken_by_answers_and_not_by_steps() -> None:
    more = pd.Series([0.5, -2.0, 0.1, 9.0], index=[4, 7, 8, 9])
    steps = pd.DataFrame(
        {"bound": [1.0, 1.0, 1.0], "paper": [0.4, 3.0, 0.0], "difference": 0.0}, index=[4, 7, 8]
    )
    # row 9 has no bound; of the others row 7 breaks the corrected one, rows 4 and 8 the printed one
    assert broken_bounds(more, steps) == (3, 1, 2)


def test_what_each_seed_says_is_what_all_of_them_say_together(data_dir: Path) -> None:
    task = prepare("compas")
    models = hardened(task, (), 2, 2, 0, epsilon=(0.0, 0.1))
    asked = task.test_X.iloc[:30]
    study = hf.tradeoff(models, asked, {"SCFE": hf.Descent.scfe(lam=0.1, score=1.0, steps=10)})
    found = by_seed(study)
    rows = study.rows()
    for s in range(2):
        some = rows[rows["seed"] == s].pivot(index="row", columns="epsilon", values="cost")
        more = (some[0.1] - some[0.0]).dropna()
        assert found["extra cost by seed"][0, 1, s] == pytest.approx(more.mean())
        assert found["extra cost sd by seed"][0, 1, s] == pytest.approx(more.std(ddof=0))
        assert 0 < found["judged"][1, s, 0] <= len(more)
    assert (found["judged"][0] == 0).all()
    assert (found["attacked by seed"] == study.attacked).all()
