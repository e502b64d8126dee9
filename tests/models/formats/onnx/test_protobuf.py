"""Damaged bytes are refused, or still a model."""

from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from holdfast.errors import FileError
from holdfast.models.formats.onnx import runtime as interpreter
from support.onnx_graphs import BOX, exported, tree_graph
from support.tables import seeded

GOOD = exported(seeded(nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))), 4)
TREES = tree_graph()


@given(
    st.sampled_from([GOOD, TREES]),
    st.lists(st.tuples(st.floats(0, 1), st.integers(0, 255)), max_size=4),
    st.one_of(st.none(), st.floats(0, 1)),
)
@settings(max_examples=150, deadline=None)
def test_damaged_bytes_are_refused_or_a_model(
    data: bytes, edits: list[tuple[float, int]], cut: float | None
) -> None:
    raw = bytearray(data)
    for place, byte in edits:
        raw[int(place * (len(raw) - 1))] = byte
    raw = raw if cut is None else raw[: int(cut * len(raw))]
    try:
        found = interpreter.load(bytes(raw), BOX)
    except FileError:
        return
    assert found.outputs in ("logits", "probabilities")
