"""Omniscient: whose row the answer is, how it is drawn, and what stays."""

import pytest
import torch
from torch import Tensor

import holdfast as hf
from holdfast.nn.architecture import mlp
from support.tables import mixed_schema, mixed_table, seeded

D = 4
WIDE = hf.Schema.box(D, -50, 50)


def points(n: int, seed: int = 0) -> Tensor:
    return torch.randn(n, D, generator=torch.Generator().manual_seed(seed))


def model_of(k: int, seed: int = 2) -> hf.Model:
    return hf.Model.of(seeded(mlp(D, (16,), k), seed), WIDE)


def test_the_answer_is_a_data_row_of_the_wanted_class() -> None:
    """Paper: altmeyer2025 Generator Omni."""
    model = model_of(3)
    data = points(200, 1)
    x = points(60)
    now = model(x).argmax(1)
    wish = (now + 1 + torch.arange(60) % 2) % 3
    cfs = hf.Omniscient().fit(model, data).explain(model, x, wish)
    assert cfs.found.all()
    assert torch.equal(cfs.scores.argmax(1), wish)
    which = (cfs.x_cf[:, None] == data).all(2)
    assert which.any(1).all()
    assert which.any(0).sum() > 30  # drawn, not always the same one


def test_every_row_of_the_class_is_drawn_about_as_often() -> None:
    model = model_of(2)
    data = points(40, 1)
    there = data[model(data).argmax(1) == 1]
    x = points(9000)
    x = x[model(x).argmax(1) == 0]
    cfs = hf.Omniscient().fit(model, data).explain(model, x, 1)
    count = (cfs.x_cf[:, None] == there).all(2).sum(0)
    share = len(x) / len(there)
    assert (count - share).abs().max() < 5 * share**0.5


def test_the_draw_belongs_to_the_row_and_the_seed() -> None:
    model = model_of(2)
    data = points(200, 1)
    x = points(60)
    e = hf.Omniscient().fit(model, data)
    first = e.explain(model, x, 1, seed=1)
    second = e.explain(model, x, 1, seed=2)
    assert not torch.equal(first.x_cf, second.x_cf)
    rows = torch.tensor([40, 3, 22])
    assert torch.equal(e.explain(model, x[rows], 1, seed=1, batch_size=2).x_cf, first.x_cf[rows])


def test_what_cannot_change_stays_and_the_model_decides() -> None:
    table = mixed_table(300)
    schema = mixed_schema(table)
    model = hf.Model.of(seeded(mlp(schema.width, (16, 8), 2)), schema)
    one = hf.Omniscient(draws=1).fit(model, table).explain(model, table, 1)
    many = hf.Omniscient(draws=30).fit(model, table).explain(model, table, 1)
    fixed = schema.encoding().fixed
    for cfs in (one, many):
        assert torch.equal(cfs.x_cf[:, fixed], cfs.x[:, fixed])
        assert (model.predict(cfs.after)[cfs.found] == 1).all()
    assert one.found.sum() < many.found.sum()
    assert (many.found | ~one.found).all()


def test_a_wish_for_more_is_met_by_fewer_rows() -> None:
    model = model_of(2)
    data = points(300, 1)
    x = points(60)
    cfs = hf.Omniscient().fit(model, data).explain(model, x, hf.Target(1, probability=0.9))
    assert cfs.found.any()
    assert (torch.softmax(cfs.scores, 1)[cfs.found, 1] > 0.9).all()


def test_any_other_class() -> None:
    model = model_of(3)
    data = points(300, 1)
    x = points(60)
    cfs = hf.Omniscient().fit(model, data).explain(model, x)
    assert cfs.found.all()
    assert (cfs.scores.argmax(1) != model(x).argmax(1)).all()


def test_without_a_row_of_the_class_there_is_no_answer() -> None:
    model = model_of(2)
    data = points(100, 1)
    x = points(20)
    cfs = hf.Omniscient().fit(model, data[model(data).argmax(1) == 0]).explain(model, x, 1)
    lost = model(x).argmax(1) == 0
    assert not cfs.found.any()
    assert torch.equal(cfs.x_cf[lost], x[lost])
    assert (
        cfs.status["reason"]
        .iloc[int(lost.nonzero()[0])]
        .endswith("raise draws, or try NearestNeighbor")
    )


def test_wrong_settings_are_named() -> None:
    model = model_of(2)
    x = points(4)
    with pytest.raises(hf.HoldfastError, match="draws must be at least 1, got 0"):
        hf.Omniscient(draws=0).fit(model, x).explain(model, x, 1)
    with pytest.raises(hf.HoldfastError, match="Omniscient needs data"):
        hf.Omniscient().explain(model, x, 1)
    with pytest.raises(hf.HoldfastError, match="at least one data row, got none"):
        hf.Omniscient().fit(model, x[:0])
