"""Tables to tensors and back, exactly, whatever the dtypes; schemas as files."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import holdfast as hf
from holdfast.errors import FileError, SchemaError
from holdfast.schema.rule import Rule
from support.versions import STRINGS
from support.worlds import tables

slow = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))


@slow
@given(
    tables(),
    st.sampled_from(["standard", "minmax", "robust", "none"]),
    st.randoms(use_true_random=False),
)
def test_round_trip_is_exact(frame: pd.DataFrame, scaling: Any, shuffle: Any) -> None:
    schema = hf.Schema.infer(frame, scaling=scaling)
    columns = list(frame.columns)
    shuffle.shuffle(columns)
    mixed = frame[columns]
    x = schema.encode(mixed)
    assert x.shape == (len(frame), schema.width)
    pd.testing.assert_frame_equal(schema.decode(x, mixed), mixed)
    more = mixed.assign(id=[f"row {i}" for i in range(len(frame))], when=pd.Timestamp("2024-02-29"))
    assert torch.equal(schema.encode(more), x)
    pd.testing.assert_frame_equal(schema.decode(x, more), more)
    for i in range(len(frame)):  # a row alone is read as it is in its table
        for row in (frame.iloc[i], {name: frame[name].iat[i] for name in frame.columns}):
            one = schema.as_table(row)
            pd.testing.assert_series_equal(one.dtypes, frame.dtypes)
            assert torch.equal(schema.encode(one)[0], schema.encode(frame)[i])
    alone = schema.decode(schema.encode(frame, torch.float64))
    assert dict(alone.dtypes) == dict(frame.dtypes)
    again = hf.Schema.from_dict(schema.to_dict())
    assert again == schema
    assert torch.equal(again.encode(mixed), x)


@slow
@given(tables())
def test_toml_keeps_everything(frame: pd.DataFrame) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        schema = hf.Schema.infer(frame, max_changes=2)
        schema.save(f"{folder}/s.toml")
        assert hf.Schema.load(f"{folder}/s.toml") == schema


junk = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=6,
)
field_names = st.sampled_from(
    ["name", "kind", "change", "bounds", "levels", "allowed", "step", "scale", "dtype", "zzz"]
)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.dictionaries(field_names, junk, max_size=5), max_size=3), junk, junk)
def test_junk_schemas_raise_schema_errors_only(features: Any, rules: Any, most: Any) -> None:
    for content in (
        {"feature": features},
        {"feature": features, "rules": rules, "max_changes": most},
        {"x": most},
    ):
        try:
            hf.Schema.from_dict(content)
        except SchemaError:
            continue


# ---- errors


@pytest.fixture
def frame() -> pd.DataFrame:
    return pd.DataFrame(
        {"age": [20, 30, 40], "job": ["clerk", "cook", None], "pay": [1.5, 2.5, 3.5]}
    )


def test_errors_name_column_count_and_fix(frame: pd.DataFrame) -> None:
    schema = hf.Schema.infer(frame)
    wrong = {
        "column 'pay' has 2 missing numbers .first at row 0.; fill": frame.assign(
            pay=[None, None, 1.0]
        ),
        "column 'pay' has 1 infinite values": frame.assign(pay=[1.0, np.inf, 2.0]),
        "column 'age' has 1 values that are not integers": frame.assign(age=[1.5, 2, 3]),
        f"column 'pay' should hold numbers, but it is {STRINGS} .such as 'x'.": frame.assign(
            pay=["x", "y", "z"]
        ),
        "column 'job' has 2 unknown level.s.: 'clark'; did you mean 'clerk'": frame.assign(
            job=["clark", "clark", None]
        ),
        "lacks 1 column.s. of the schema: 'pay'": frame.drop(columns="pay"),
        "did you mean 'payy'": frame.rename(columns={"pay": "payy"}),
        "duplicate column.s. 'age'": pd.concat([frame, frame[["age"]]], axis=1),
        "not strings": frame.rename(columns={"pay": 3}),
    }
    for words, table in wrong.items():
        with pytest.raises(SchemaError, match=words):
            schema.encode(table)
    filled = hf.Schema.infer(frame.fillna({"job": "none"}))
    with pytest.raises(SchemaError, match=r"column 'job' has 1 missing values.*fill"):
        filled.encode(frame)


def test_a_level_that_the_tables_own_dtype_lacks_widens_it() -> None:
    all_ = pd.DataFrame({"job": pd.Categorical(["a", "b", "c"])})
    schema = hf.Schema.infer(all_)
    some = pd.DataFrame({"job": pd.Categorical(["a", "b"])})
    z = torch.tensor([[0.0, 0.0, 1.0], [0.0, 1.0, 0.0]])
    after = schema.decode(z, some)
    assert after["job"].tolist() == ["c", "b"]
    assert isinstance(after["job"].dtype, pd.CategoricalDtype)


def test_files(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="no schema file"):
        hf.Schema.load(tmp_path / "none.toml")
    (tmp_path / "junk.toml").write_bytes(b"\xff\x00 = [")
    with pytest.raises(FileError, match="cannot read schema"):
        hf.Schema.load(tmp_path / "junk.toml")
    (tmp_path / "odd.toml").write_text('[[feature]]\nname = "a"\nknd = "real"\n')
    with pytest.raises(SchemaError, match="did you mean 'kind'"):
        hf.Schema.load(tmp_path / "odd.toml")
    hand = '[[feature]]\nname = "age"\nkind = "integer"\nchange = "up"\nbounds = [18, inf]\n'
    (tmp_path / "hand.toml").write_text(hand)
    assert hf.Schema.load(tmp_path / "hand.toml")["age"].bounds == (18, float("inf"))


def test_shape_errors() -> None:
    schema = hf.Schema.box(3)
    with pytest.raises(SchemaError, match=r"\(n, 3\)"):
        schema.decode(torch.zeros(2, 4))
    changed = schema.change(x1={"change": "fixed"})
    assert [f.change for f in changed.features] == ["free", "fixed", "free"]
    with pytest.raises(SchemaError, match="unknown feature 'x9'"):
        schema.change(x9={})
    with pytest.raises(SchemaError, match="at least one feature"):
        hf.Schema(())
    with pytest.raises(SchemaError, match="duplicate feature"):
        hf.Schema((hf.Feature("a"), hf.Feature("a")))


def test_what_the_schema_does_not_know_is_carried_through(frame: pd.DataFrame) -> None:
    schema = hf.Schema.infer(frame)
    more = frame.assign(when=pd.Timestamp("2024-01-01"), note=[None, "x", 3]).set_axis(
        ["r", "s", "s"]
    )
    more = more[["note", "pay", "when", "age", "job"]]
    x = schema.encode(more)
    assert torch.equal(x, schema.encode(frame))
    x[:, schema.names.index("age")] += 1
    after = schema.decode(x, more)
    assert after["age"].tolist() != more["age"].tolist()
    pd.testing.assert_frame_equal(after.drop(columns="age"), more.drop(columns="age"))
    assert list(after.columns) == list(more.columns)


def test_one_row(frame: pd.DataFrame) -> None:
    schema = hf.Schema.infer(frame)
    one = schema.as_table({"job": None, "pay": 2, "age": 30.0, "id": "k7"})
    assert one["job"].isna().all()
    assert one.drop(columns="job").to_dict("list") == {"pay": [2.0], "age": [30], "id": ["k7"]}
    assert [str(d) for d in schema.as_table(frame.loc[1]).dtypes] == [str(d) for d in frame.dtypes]
    assert schema.as_table(frame.loc[1]).index.tolist() == [1]
    assert schema.as_table(frame) is frame
    gaps = hf.Schema.infer(frame.assign(pay=[1.5, None, 3.5]))
    assert gaps.as_table({"age": 20, "job": "cook", "pay": None})["pay"].isna().all()
    with pytest.raises(
        SchemaError, match=r"'age' holds several values; more rows make a pd.DataFrame"
    ):
        schema.as_table(frame.to_dict("list"))
    with pytest.raises(SchemaError, match="one row as a dict or Series, got list"):
        schema.as_table([20, "cook", 1.5])  # pyright: ignore[reportArgumentType]
    with pytest.raises(SchemaError, match=r"lacks 1 column\(s\) of the schema: 'pay'"):
        schema.encode(schema.as_table({"age": 20, "job": "cook"}))


def test_dates_are_fixed_and_carried_through(frame: pd.DataFrame, tmp_path: Path) -> None:
    table = frame.assign(
        since=pd.to_datetime(["2020-02-29", None, "2023-07-01 12:30"], format="ISO8601")
    )
    schema = hf.Schema.infer(table)
    since = schema["since"]
    assert (since.kind, since.change, since.missing, since.width) == ("date", "fixed", True, 2)
    x = schema.encode(table, torch.float64)
    feasible = schema.feasible(x)
    columns = schema.slices[3]
    assert not feasible.movable[:, columns].any()
    moved = schema.decode(schema.project(x + 5, x), table)
    pd.testing.assert_series_equal(moved["since"], table["since"])
    pd.testing.assert_frame_equal(schema.decode(x), table)
    for file in ("rows.csv", "rows.json", "rows.parquet"):
        hf.datasets.write_table(table, tmp_path / file)
        pd.testing.assert_frame_equal(hf.datasets.read_table(tmp_path / file, schema), table)
    late = "no answer changes a date; keep it 'fixed'"
    for asked in ({"up": ["since"]}, {"down": ["since"]}, {"bounds": {"since": (0, 1)}}):
        with pytest.raises(SchemaError, match=late):
            hf.Schema.infer(table, **asked)
    with pytest.raises(SchemaError, match=late):
        schema.change(since={"change": "free"})
    with pytest.raises(SchemaError, match="'since' holds dates, not numbers"):
        hf.Schema.infer(table, rules=["since <= age"])
    with pytest.raises(
        SchemaError,
        match=f"should hold dates, but it is {STRINGS}; convert it with pd.to_datetime",
    ):
        schema.encode(table.assign(since="soon"))
    with pytest.raises(SchemaError, match="column 'since' has 1 missing dates"):
        hf.Schema.infer(table.dropna()).encode(table.iloc[[1]].assign(job="clerk"))


def test_repr_is_short() -> None:
    schema = hf.datasets.german_credit().schema
    assert repr(schema) == (
        "<Schema 20 features: 7 integer, 1 ordered, 12 category; fixed: credit_history, purpose, "
        "personal_status, age, "
        "job, num_dependents and 1 more; up: employment, residence_since; down: credit_amount>"
    )
    box = hf.Schema(
        hf.Schema.box(2).features, tuple(map(Rule.parse, ("x0 <= x1", "x0 >= 2", "x1 >= 1"))), 1
    )
    assert (
        repr(box)
        == "<Schema 2 features: 2 real; 'x0 <= x1', 'x0 >= 2' and 1 more; at most 1 changes>"
    )
    assert eval(repr(schema["age"]), {"Feature": hf.Feature}) == schema["age"]
