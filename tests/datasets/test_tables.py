from pathlib import Path

import pandas as pd
import pytest

import holdfast as hf


@pytest.mark.parametrize("file", ["rows.csv", "rows.json", "rows.parquet"])
def test_a_table_read_with_its_schema_has_the_types_it_had(file: str, tmp_path: Path) -> None:
    table = pd.DataFrame(
        {
            "a": [1.5, 2.5, 3.0],
            "whole": [1.0, 2.0, 3.0],
            "small": [1, 2, 3],
            "own": [True, False, True],
        }
    )
    table = table.astype({"a": "float32", "small": "int8"}).assign(
        job=pd.Categorical(["x", "y", "x"], ["y", "z", "x"]),
        size=pd.Categorical(["s", "l", "m"], ["s", "m", "l"], ordered=True),
        floor=pd.Categorical([1, 10, 2]),
        town=["01", "NA", "02"],
        gone=pd.Categorical(["p", None, "q"]),
        rooms=pd.array([1, None, 3], "Int64"),
    )
    schema = hf.Schema.infer(table)
    hf.datasets.write_table(table, tmp_path / file)
    pd.testing.assert_frame_equal(
        hf.datasets.read_table(tmp_path / file, schema), table[list(table.columns)]
    )
    assert list(
        hf.datasets.read_table(tmp_path / file, schema.change(job={"dtype": ""}))["job"]
    ) == ["x", "y", "x"]
    hf.datasets.write_table(table.assign(small=300, job="w", own=2), tmp_path / file)
    # none of these fits, so all stay to be named
    read = hf.datasets.read_table(tmp_path / file, schema)
    assert (read["small"].tolist(), read["job"].tolist(), read["own"].tolist()) == (
        [300] * 3,
        ["w"] * 3,
        [2] * 3,
    )
    with pytest.raises(hf.HoldfastError, match="neither True nor False"):
        schema.encode(read)
