"""Scores of realism: the table of scores and the area under the curve."""

from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_digits
from sklearn.metrics import roc_auc_score
from torch import Tensor, nn

import holdfast as hf
from holdfast.counterfactuals import Run
from holdfast.images.realism import auroc, realism
from holdfast.images.result import ImageCounterfactuals
from holdfast.target import BoundTarget, Status


@cache
def digits() -> Tensor:
    return torch.as_tensor(load_digits().images / 16).float()[:, None]


# ---- AUROC


@pytest.mark.parametrize(
    ("inside", "outside", "area"),
    [
        ([1, 2], [3, 4], 1.0),
        ([3, 4], [1, 2], 0.0),
        ([1, 1], [1], 0.5),
        ([1, 3], [2, 4], 0.75),  # 2 > 1, 4 > 1, 4 > 3 of four pairs
        ([1, 2, 2], [2, 3], 5 / 6),  # 2 > 1, twice half for 2 = 2, and 3 > 1, 2, 2: 5 of 6
        ([-np.inf, 0], [0, np.inf], 7 / 8),
    ],
)
def test_auroc_by_hand(inside: list[float], outside: list[float], area: float) -> None:
    """Paper: hoeltgen2021 Metric AUROC."""
    assert auroc(inside, outside) == pytest.approx(area)
    assert auroc(inside, outside, higher_means_outside=False) == pytest.approx(1 - area)


@given(
    st.lists(st.integers(0, 6), min_size=1, max_size=30),
    st.lists(st.integers(0, 6), min_size=1, max_size=30),
)
@settings(deadline=None, max_examples=40)
def test_auroc_is_that_of_sklearn(inside: list[int], outside: list[int]) -> None:
    theirs = roc_auc_score([0] * len(inside) + [1] * len(outside), inside + outside)
    assert auroc(torch.tensor(inside), np.array(outside)) == pytest.approx(theirs)


def test_auroc_needs_scores() -> None:
    with pytest.raises(hf.HoldfastError, match="outside has none"):
        auroc([1.0], [])
    with pytest.raises(hf.HoldfastError, match="1 scores of inside are missing"):
        auroc([1.0, np.nan], [1.0])


# ---- the table


def answers() -> ImageCounterfactuals:
    """Four pairs, of which the third has no answer."""
    x = digits()[:4]
    x_cf = (x + 0.25).clamp(max=1)
    codes = np.array(
        [Status.FOUND, Status.ALREADY_MET, Status.NOT_FOUND, Status.FOUND], dtype=np.int64
    )
    zeros = np.zeros(4, dtype=np.int64)
    run = Run("made up", "", "", 0, 0.0, "", "", "", "")
    goal = BoundTarget(torch.ones(4, dtype=torch.int64), 1.0, 0.0, False, 2)
    return ImageCounterfactuals(
        x=x,
        x_cf=x_cf,
        scores=torch.zeros(4, 2),
        goal=goal,
        status_codes=codes,
        reasons=[""] * 4,
        source=zeros,
        own=zeros,
        iterations=zeros,
        passes=0,
        classes=(0, 1),
        run=run,
    )


def grey() -> Any:
    """An autoencoder that makes everything grey."""
    return SimpleNamespace(reconstruct=lambda x: torch.full_like(x, 0.5))


def test_table_of_images() -> None:
    x = digits()[:3]
    table = realism(x, vae=grey())
    np.testing.assert_allclose(
        table["reconstruction"], (x - 0.5).abs().sum((1, 2, 3)).numpy(), rtol=1e-6
    )
    assert list(realism(x.numpy(), vae=grey())) == ["reconstruction"]
    with pytest.raises(hf.HoldfastError, match="at least one of"):
        realism(x)


def test_table_of_answers_leaves_out_pairs_without_one() -> None:
    cfs = answers()
    table = realism(cfs, vae=grey())
    assert list(table.index) == [0, 1, 2, 3]
    assert table.loc[2].isna().all()
    whole = realism(cfs.x_cf, vae=grey())
    assert table.drop(index=2).equals(whole.drop(index=2))


def test_table_with_a_density() -> None:
    x = digits()[:400]
    y = load_digits().target[:400]
    model = hf.images.ImageModel.of(
        nn.Sequential(nn.Flatten(), nn.Linear(64, 10)), (1, 8, 8), features="0"
    )
    density = hf.FeatureDensity(model).fit(x, y)
    table = realism(x[:5], density=density)
    np.testing.assert_array_equal(table["log_density"], density.log_density(x[:5]))
    noisy = torch.rand(50, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    inside = realism(x[:50], density=density)["log_density"]
    outside = realism(noisy, density=density)["log_density"]
    assert auroc(inside, outside, higher_means_outside=False) == 1.0
