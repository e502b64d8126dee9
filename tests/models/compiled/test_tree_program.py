"""All trees at once."""

import numpy as np
import pandas as pd
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.ensemble import HistGradientBoostingClassifier

import holdfast as hf
from holdfast.models.compiled.preprocessing import Column, Raw
from holdfast.models.compiled.tree_nodes import Nodes, code_columns
from holdfast.models.compiled.tree_program import Ranks, TreeProgram

torch.set_num_threads(1)


def test_trees_too_large_for_a_byte_are_left_to_the_library() -> None:
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.normal(size=(900, 2)), columns=["a", "b"])
    large = HistGradientBoostingClassifier(
        max_iter=1, max_leaf_nodes=None, min_samples_leaf=1, early_stopping=False
    )
    model = hf.Model.of(large.fit(table, rng.integers(0, 2, 900)), hf.Schema.infer(table))
    assert "more than 256" in str(model.conversion)


@settings(max_examples=60, deadline=None, derandomize=True, database=None)
@given(
    cuts=st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=40, unique=True),
    more=st.lists(st.floats(-2e6, 2e6), max_size=20),
)
def test_ranks_count_the_cuts_below(cuts: list[float], more: list[float]) -> None:
    sorted_cuts = np.unique(cuts)
    x = np.concatenate(
        [sorted_cuts, np.nextafter(sorted_cuts, np.inf), np.nextafter(sorted_cuts, -np.inf), more]
    )
    out = np.empty(len(x), dtype=np.uint8)
    Ranks(sorted_cuts, 0, np.uint8)(x[None], out)
    assert (out == (x[:, None] > sorted_cuts).sum(1)).all()


def test_a_tree_by_hand() -> None:
    """a <= 1 ? (b <= 0 ? 10 : 20) : (b <= 2 ? 30 : (a <= 5 ? 40 : 50)), and a tree that is one
    leaf."""
    nodes = Nodes(
        roots=np.array([0, 9]),
        left=np.array([1, 2, -1, -1, 5, -1, 7, -1, -1, -1]),
        right=np.array([4, 3, -1, -1, 6, -1, 8, -1, -1, -1]),
        column=np.array([0, 1, 0, 0, 1, 0, 0, 0, 0, 0]),
        threshold=np.array([1.0, 0, 0, 0, 2, 0, 5, 0, 0, 0]),
        missing_left=np.zeros(10, dtype=bool),
        value=np.array([0.0, 0, 10, 20, 0, 30, 0, 40, 50, 7])[:, None],
        adds_to=np.array([0, 0]),
        start=np.array([1000.0]),
        precision=np.float64,
    )
    assert nodes.leaves().tolist() == [5, 1]
    schema = hf.Schema.box(2)
    raws = Raw.all_of(schema, False)
    columns = [Column(0, None), Column(1, None)]
    program = TreeProgram(nodes, *code_columns(nodes, columns, raws))
    rows = [[1, 0], [1, 0.1], [1.1, 2], [5, 2.1], [5.1, 2.1], [-9, -9], [9, -9]]
    got = program(torch.tensor(rows, dtype=torch.float64))
    assert got[:, 0].tolist() == [1017, 1027, 1037, 1047, 1057, 1017, 1037]
    assert program(torch.zeros(0, 2, dtype=torch.float64)).shape == (0, 1)
