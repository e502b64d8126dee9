"""The operators of ai.onnx.ml, one by one, against onnxruntime."""

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from onnx import helper

import holdfast as hf
from holdfast.schema.feature import Feature
from support.onnx_graphs import TREE, X, _own, graph_of, refused, session, tree_graph


@pytest.mark.parametrize("how", ["NONE", "LOGISTIC", "SOFTMAX"])
@pytest.mark.parametrize("weights", [[0.1, 0.3, 0.2, 0.4], [-0.1, 0.3, 0.2, -0.4]])
def test_trees_and_what_is_made_of_their_sums(how: str, weights: list[float]) -> None:
    three: dict[str, object] = {"classlabels_int64s": [3, 7, 9], "class_ids": [0, 1, 2, 0]}
    cases: list[dict[str, object]] = [
        {},
        {"base_values": [0.25]},
        {"class_ids": [1, 1, 1, 1]},
        {"class_ids": [1, 1, 0, 0]},
        three,
        {**three, "base_values": [0.1, 0.2, 0.3]},
    ]
    for case in cases:
        data = tree_graph(**{"post_transform": how, "class_weights": weights, **case})
        assert np.abs(_own(data, X) - session(data).run(["y"], {"x": X})[0]).max() < 1e-6, case


def test_trees_that_runtimes_disagree_on_are_refused() -> None:
    refused(tree_graph(class_ids=[0, 1, 1, 0]), "leave out a class")
    refused(tree_graph(base_values=[0.1, 0.2]), "base values")
    refused(tree_graph(class_ids=[1, 1, 1, 1], base_values=[0.1]), "base values")


@pytest.mark.parametrize("how", ["NONE", "LOGISTIC", "SOFTMAX"])
def test_linear_classifiers_of_one_and_two_columns(how: str) -> None:
    for rows in (1, 2):
        numbers = {"coefficients": [0.5, -0.25, 0.1, 1.0] * rows, "intercepts": [0.5, -0.5][:rows]}
        node = helper.make_node(
            "LinearClassifier",
            ["x"],
            ["label", "y"],
            domain="ai.onnx.ml",
            classlabels_ints=[3, 7],
            post_transform=how,
            **numbers,
        )
        data = graph_of([node], {"x": (1, [None, 4])}, {})
        assert np.abs(_own(data, X) - session(data).run(["y"], {"x": X})[0]).max() < 1e-5


@pytest.mark.parametrize(
    "mode", ["BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ"]
)
def test_every_test_of_a_tree(mode: str) -> None:
    x = np.float32([[0, v, 0, w] for v in (-1, 0.1, 1) for w in (-0.2, 5)])
    data = tree_graph(nodes_modes=[mode, "LEAF", "LEAF", mode, "LEAF", "LEAF"])
    assert np.abs(_own(data, x) - session(data).run(["y"], {"x": x})[0]).max() < 1e-6


@pytest.mark.parametrize("tracks", [(0, 0), (1, 0), (0, 1), (1, 1)])
@pytest.mark.parametrize(
    "mode", ["BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ"]
)
def test_every_test_of_a_tree_on_missing_numbers(mode: str, tracks: tuple[int, int]) -> None:
    x = np.float32([[0, v, 0, w] for v in (-1, 0.1, np.nan) for w in (-0.2, np.nan)])
    modes = [mode, "LEAF", "LEAF", mode, "LEAF", "LEAF"]
    data = tree_graph(
        nodes_modes=modes, nodes_missing_value_tracks_true=[tracks[0], 0, 0, tracks[1], 0, 0]
    )
    assert np.abs(_own(data, x) - session(data).run(["y"], {"x": x})[0]).max() < 1e-6


@pytest.mark.parametrize("tracks", [0, 1])
@pytest.mark.parametrize("end", [math.inf, -math.inf])
@pytest.mark.parametrize(
    "mode", ["BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ"]
)
def test_thresholds_may_be_infinite(mode: str, end: float, tracks: int, tmp_path: Path) -> None:
    """scikit-learn's trees divide what is missing from all numbers that way. Large numbers are
    infinite in 32 bits."""
    table = [
        [0.0, v, 0.5, w] for v in (-1.0, 5.0, 1e39, -1e39, np.nan) for w in (-0.2, 5.0, np.nan)
    ]
    frame = pd.DataFrame(table, columns=["a", "b", "c", "d"])
    with np.errstate(over="ignore"):
        x = np.array(table, np.float32)
    values = [end, 0.0, 0.0, *TREE["nodes_values"][3:]]
    data = tree_graph(
        nodes_modes=[mode, "LEAF", "LEAF", "BRANCH_LEQ", "LEAF", "LEAF"],
        nodes_values=values,
        post_transform="LOGISTIC",
        nodes_missing_value_tracks_true=[tracks, 0, 0, 0, 0, 0],
    )
    right = session(data).run(["y"], {"x": x})[0]
    assert np.abs(_own(data, x) - right).max() < 1e-6
    (tmp_path / "m.onnx").write_bytes(data)
    exact = hf.Schema(tuple(Feature(name, seen=(-3, 3), missing=True) for name in frame))
    model = hf.Model.load(tmp_path / "m.onnx", exact, inputs="frame")
    usual = frame[frame["b"].abs().ne(1e39)]
    assert (
        np.abs(
            torch.softmax(model(model.schema.encode(usual, model.dtype)), 1).numpy()
            - right[usual.index]
        ).max()
        < 1e-6
    )
    asks = mode in ("BRANCH_LEQ", "BRANCH_GT") or (mode in ("BRANCH_LT", "BRANCH_GTE") and end > 0)
    assert bool(model.conversion) == asks, model.conversion.text


def test_thresholds_that_are_no_numbers_are_refused() -> None:
    refused(tree_graph(nodes_values=[math.nan, *TREE["nodes_values"][1:]]), "'nodes_values' is NaN")
    refused(tree_graph(class_weights=[math.inf, 0.3, 0.2, 0.4]), "'class_weights' is not finite")


def test_imputers_by_the_book() -> None:
    x = np.float32([[np.nan, 0, -7], [1, np.nan, np.nan]])
    for gap in (float("nan"), -7.0, 0.0):
        for values in ([5.0], [5.0, 6.0, 7.0]):
            node = helper.make_node(
                "Imputer",
                ["x"],
                ["y"],
                domain="ai.onnx.ml",
                imputed_value_floats=values,
                replaced_value_float=gap,
            )
            data = graph_of([node], {"x": (1, [None, 3])}, {})
            assert np.array_equal(
                _own(data, x), session(data).run(["y"], {"x": x})[0], equal_nan=True
            )
