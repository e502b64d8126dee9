"""The program as a whole: bad input ends with one sentence and a documented exit code, never a
traceback, and no code from a file is run."""

import json
import math
import pickle
import random
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import tomli_w
import torch
import typer
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import nn

import holdfast as hf
from holdfast.cli.main import app
from holdfast.cli.options import BAD_INPUT, INTERNAL, INTERRUPTED, UNANSWERED
from holdfast.datasets import read_table, write_table
from holdfast.registry import METHODS
from support.tables import seeded
from support.terminal import Ran, program, refused, run, set_to

MODEL = "model.safetensors"
QUICK = set_to(steps=3, bisections=1, linearise=2, polish=2)


@pytest.fixture(scope="session")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a small model, its schema and a table that fits both."""
    at = tmp_path_factory.mktemp("bad")
    table = pd.DataFrame(
        {"age": range(20, 40), "income": np.linspace(500, 5000, 20), "job": ["a", "b"] * 10}
    )
    schema = hf.Schema.infer(table, fixed=["age"])
    layer = nn.Linear(schema.width, 2)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[0.0] * 4, [0.1, 1.0, 0.5, -0.5]]))
        layer.bias.zero_()
    hf.Model.of(nn.Sequential(layer), schema, classes=["no", "yes"]).save(at / MODEL)
    schema.save(at / "schema.toml")
    write_table(table, at / "people.csv")
    return at


@pytest.fixture(autouse=True)
def _inside(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)


def explain(*more: object, table: object = "people.csv", model: object = MODEL) -> Ran:
    wanted = () if {"--target", "--any-other"} & set(more) else ("--target", "yes")
    return run("explain", table, "--model", model, *wanted, *QUICK, *more)


def test_the_good_case_is_good() -> None:
    assert explain("--strict").code == 0


# ---- tables

HEAD = "age,income,job\n"
TABLES: dict[str, tuple[str | bytes, str]] = {
    "empty.csv": ("", "No columns"),
    "blank.csv": ("\n\n\n", "No columns"),
    "binary.csv": (bytes(range(256)) * 9, "cannot read"),
    "zeros.csv": (b"\0" * 400, "lacks 3 column(s)"),
    "noise.csv": (random.Random(0).randbytes(3000), "cannot read"),
    "utf16.csv": ((HEAD + "30,900,a\n").encode("utf-16"), "cannot read"),
    "open_quote.csv": (HEAD + '30,900,"a\n', "cannot read"),
    "one_word.csv": ("x", "lacks 3 column(s)"),
    "other_columns.csv": ("a,b\n1,2\n", "'age', 'income', 'job'"),
    "misspelt.csv": ("age,incme,job\n30,900,a\n", "did you mean 'incme'"),
    "twice.csv": ("age,age,income,job\n30,31,900,a\n", "column 'age' appears twice"),
    "long_first_row.csv": (HEAD + "30,900,a,1\n", "more cells than the header"),
    "long_second_row.csv": (HEAD + "30,900,a\n30,900,a,1\n", "cannot read"),
    "short_row.csv": (HEAD + "30,900\n", "'job' has 1 missing values"),
    "missing.csv": (HEAD + "30,,a\n", "'income' has 1 missing numbers"),
    "nan.csv": (HEAD + "NaN,900,a\n", "'age' has 1 missing numbers"),
    "missing_level.csv": (HEAD + "30,900,\n", "'job' has 1 missing values"),
    "infinite.csv": (HEAD + "30,-inf,a\n", "'income' has 1 infinite values"),
    "too_large.csv": (HEAD + "30,1e999,a\n", "'income' has 1 infinite values"),
    "words.csv": (HEAD + "30,much,a\n", "'income' should hold numbers"),
    "unknown_level.csv": (HEAD + "30,900,zebra\n", "unknown level(s): 'zebra'"),
    "fraction.csv": (HEAD + "30.5,900,a\n", "not integers"),
    "huge_number.csv": (HEAD + f"1{'0' * 3000},900,a\n", "'age' should hold numbers"),
    "escape.csv": (HEAD + "30,900,\x1b[31m\n", r"'\x1b[31m'"),
    "markup.csv": (HEAD + "30,900,[/red]\n", "'[/red]'"),
    "empty.json": ("", "cannot read"),
    "object.json": ("{}", "a list of records"),
    "null.json": ("null", "a list of records"),
    "numbers.json": ("[1, 2]", "a list of records"),
    "broken.json": ('[{"age": 30', "cannot read"),
    "deep.json": ("[" * 200_000, "cannot read"),
    "nested.json": ('[{"age": 30, "income": 900, "job": ["a"]}]', "'job' holds a list"),
    "no_keys.json": ("[{}, {}]", "lacks 3 column(s)"),
    "gap.json": (
        '[{"age": 30, "income": 900, "job": "a"}, {"age": 31, "job": "b"}]',
        "'income' has 1 missing",
    ),
    "all_null.json": ('[{"age": 30, "income": null, "job": "a"}]', "'income' should hold numbers"),
    "infinite.json": ('[{"age": 30, "income": Infinity, "job": "a"}]', "infinite"),
    "text_number.json": (
        '[{"age": 30, "income": "900", "job": "a"}]',
        "'income' should hold numbers",
    ),
    "number_level.json": ('[{"age": 30, "income": 900, "job": 1}]', "unknown level(s): 1"),
    "digits.json": (f'[{{"age": 1{"0" * 9000}}}]', "cannot read"),
    "large.json": (
        f'[{{"age": 30, "income": 1{"0" * 2000}, "job": "a"}}]',
        "'income' should hold numbers",
    ),
    "half_letter.json": (r'[{"age": 30, "income": 900, "job": "\ud800"}]', "cannot read"),
    "bytes.json": (b'[{"age": 30, "income": 900, "job": "\xff"}]', "cannot read"),
    "empty.parquet": ("", "cannot read"),
    "junk.parquet": (b"PAR1" + bytes(90) + b"PAR1", "cannot read"),
    "text.parquet": (HEAD, "cannot read"),
    "table.xlsx": (HEAD, "must be one of .csv, .json, .parquet"),
    "table": (HEAD, "must be one of .csv, .json, .parquet"),
}


@pytest.mark.parametrize("name", TABLES)
def test_bad_tables(name: str, tmp_path: Path) -> None:
    content, words = TABLES[name]
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    ran = explain(table=path)
    refused(ran, words)
    assert "\x1b" not in ran.err


COLUMNS: dict[str, tuple[dict[str, Any], str]] = {
    "dates": ({"age": pd.to_datetime(["2020-01-01"])}, "'age' should hold numbers"),
    "durations": ({"income": pd.to_timedelta([5])}, "'income' should hold numbers"),
    "bytes": ({"income": [b"9"]}, "'income' should hold numbers"),
    "lists": ({"job": [["a"]]}, "'job' holds lists or records"),
    "records": ({"job": [{"a": 1}]}, "'job' holds lists or records"),
    "numbers that are lists": ({"income": [[1.0]]}, "'income' should hold numbers"),
    "nullable": ({"age": pd.array([None], dtype="Int64")}, "'age' has 1 missing numbers"),
    "not finite": ({"income": [math.inf]}, "infinite"),
    "bytes for text": ({"job": [b"a"]}, "unknown level(s): b'a'"),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_bad_types_in_parquet(name: str, tmp_path: Path) -> None:
    columns, words = COLUMNS[name]
    pd.DataFrame({"age": [30], "income": [900.0], "job": ["a"]} | columns).to_parquet(
        tmp_path / "t.parquet"
    )
    refused(explain(table=tmp_path / "t.parquet"), words)


def test_truncated_parquet(tmp_path: Path, place: Path) -> None:
    read_table(place / "people.csv").to_parquet(tmp_path / "whole.parquet")
    whole = (tmp_path / "whole.parquet").read_bytes()
    for cut in (4, 100, len(whole) // 2, len(whole) - 1):
        (tmp_path / "cut.parquet").write_bytes(whole[:cut])
        refused(explain(table=tmp_path / "cut.parquet"), "cannot read")


def test_column_names_of_parquet_that_are_no_texts(tmp_path: Path) -> None:
    pd.DataFrame([[30, 900.0, "a"]], columns=[0, 1, 2]).to_parquet(tmp_path / "t.parquet")
    refused(explain(table=tmp_path / "t.parquet"), "lacks 3 column(s)")


def test_values_far_outside_the_data_are_answered_or_not_but_do_no_harm(tmp_path: Path) -> None:
    lines = [
        "30,1e308,a",
        "30,-1e308,b",
        "9223372036854775807,900,a",
        "30,1e-320,a",
        "-9223372036854775808,-0.0,b",
    ]
    (tmp_path / "far.csv").write_text(HEAD + "\n".join(lines))
    ran = explain(table=tmp_path / "far.csv")
    assert ran.code == 0, ran.err
    assert len(json.loads(ran.out)) == len(lines)


# ---- places


def test_files_that_are_not_there(tmp_path: Path) -> None:
    refused(explain(table="none.csv"), "no file at 'none.csv'")
    refused(explain(model="none.safetensors"), "no model file at 'none.safetensors'")
    refused(explain("--schema", "none.toml"), "no schema file at 'none.toml'")
    refused(explain("--method", "nearest-neighbor", "--data", "none.csv"), "no setting")
    refused(explain(table=tmp_path), "must be one of")
    refused(explain(model=tmp_path), "no model file")
    refused(explain("--schema", tmp_path), "cannot read schema")
    refused(explain(table="x" * 300 + ".csv"), "File name too long")


def test_places_that_cannot_be_written_to(tmp_path: Path) -> None:
    refused(explain("--out", tmp_path / "answers.xlsx"), "must be one of .csv, .json, .parquet")
    refused(explain("--report", tmp_path / "page.pdf"), "must end in .html")
    for option, name in (("--out", "a.csv"), ("--out", "a.parquet"), ("--report", "a.html")):
        refused(explain(option, tmp_path / "none" / name), "there is no directory")
        (tmp_path / name).mkdir()
        refused(explain(option, tmp_path / name), "it is a directory")
    (tmp_path / "file").write_text("")
    ran = run("demo", "--out", tmp_path / "file")
    refused(ran, "File exists")


def test_a_model_that_cannot_be_written_is_an_error_of_ours(place: Path, tmp_path: Path) -> None:
    with pytest.raises(hf.HoldfastError, match="cannot write"):
        hf.Model.load(place / MODEL).save(tmp_path / "none" / MODEL)


# ---- models


class Bomb:
    """Unpickling it leaves a mark."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return Path.touch, (self.mark,)


@pytest.mark.parametrize(
    "name", ["m.pkl", "m.safetensors", "m.joblib", "m.pt", "m.bin", "m", "m.csv"]
)
@pytest.mark.parametrize("protocol", [0, 2, pickle.HIGHEST_PROTOCOL])
def test_a_pickle_is_refused_unread_whatever_its_name(
    name: str, protocol: int, tmp_path: Path
) -> None:
    mark = tmp_path / "ran"
    bomb = pickle.dumps(Bomb(mark), protocol)
    (tmp_path / name).write_bytes(bomb)
    refused(explain(model=tmp_path / name))
    refused(explain("--schema", "schema.toml", model=tmp_path / name))
    refused(explain(table=tmp_path / name))
    assert not mark.exists()
    pickle.loads(bomb)
    assert mark.exists()  # the bomb was live


@pytest.mark.parametrize("compress", [0, "zlib", "gzip", "bz2", "lzma", "xz"])
@pytest.mark.parametrize("name", ["m.joblib", "m.safetensors"])
def test_joblib_files_are_refused_unread(name: str, compress: Any, tmp_path: Path) -> None:
    import joblib

    joblib.dump(Bomb(tmp_path / "ran"), tmp_path / name, compress=(compress, 3) if compress else 0)
    refused(explain(model=tmp_path / name))
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize("name", ["m.pt", "m.safetensors"])
def test_torch_files_are_refused_unread(name: str, zipped: bool, tmp_path: Path) -> None:
    torch.save(Bomb(tmp_path / "ran"), tmp_path / name, _use_new_zipfile_serialization=zipped)
    refused(explain(model=tmp_path / name))
    assert not (tmp_path / "ran").exists()


def test_a_trusted_file_that_holds_no_model(tmp_path: Path) -> None:
    (tmp_path / "junk.pkl").write_bytes(random.Random(0).randbytes(100))
    (tmp_path / "dict.pkl").write_bytes(pickle.dumps({"a": 1}))
    trust = ("--trust-model-code", "--schema", "schema.toml", "--method", "growing-spheres")
    base = ("explain", "people.csv", "--any-other")
    refused(run(*base, "--model", tmp_path / "junk.pkl", *trust), "cannot load")
    refused(run(*base, "--model", tmp_path / "dict.pkl", *trust), "cannot use a dict")
    refused(
        run(*base, "--model", tmp_path / "dict.pkl", "--trust-model-code"), "does not hold a schema"
    )


def test_a_trusted_estimator_that_fails(tmp_path: Path) -> None:
    from sklearn.linear_model import LogisticRegression

    (tmp_path / "unfit.pkl").write_bytes(pickle.dumps(LogisticRegression()))
    trust = ("--trust-model-code", "--schema", "schema.toml", "--method", "growing-spheres")
    ran = run("explain", "people.csv", "--any-other", "--model", tmp_path / "unfit.pkl", *trust)
    refused(ran, "LogisticRegression", "NotFittedError")


def test_truncated_models(place: Path, tmp_path: Path) -> None:
    whole = (place / MODEL).read_bytes()
    for cut in (0, 1, 8, 9, 100, len(whole) // 2, len(whole) - 1):
        (tmp_path / MODEL).write_bytes(whole[:cut])
        words = (
            "is an empty file"
            if not cut
            else "not a model file that is known"
            if cut < 9
            else "not a readable safetensors"
        )
        refused(explain(model=tmp_path / MODEL), words)
    (tmp_path / MODEL).write_bytes(whole + b"more")
    refused(explain(model=tmp_path / MODEL), "not a readable safetensors file")


def test_tensors_without_architecture(place: Path, tmp_path: Path) -> None:
    save_file(load_file(place / MODEL), tmp_path / MODEL)
    refused(explain(model=tmp_path / MODEL), "not the architecture")


def test_no_header_length_makes_our_own_file_look_like_a_pickle(tmp_path: Path) -> None:
    """The first byte of the file is the length of its header modulo 256, and a pickle starts with
    128."""
    schema = hf.Schema.box(3)
    module = nn.Sequential(nn.Linear(3, 2))
    starts: set[int] = set()
    for more in range(0, 256, 8):
        hf.Model.of(module, schema, classes=["no", "y" * (1 + more)]).save(tmp_path / MODEL)
        starts.add((tmp_path / MODEL).read_bytes()[0])
        assert hf.Model.load(tmp_path / MODEL).classes[0] == "no"
    assert starts == set(range(0, 256, 8))


def parts(place: Path) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    with safe_open(place / MODEL, framework="pt") as file:
        return json.loads(file.metadata()["holdfast"]), load_file(place / MODEL)


LINEAR = {"layer": "Linear", "in_features": 4, "out_features": 2}
SIZES: list[Any] = [
    10**5,
    10**9,
    10**12,
    10**18,
    10**30,
    -1,
    0,
    3,
    "4",
    None,
    True,
    1.5,
    [4],
    math.nan,
    math.inf,
]
ARCHITECTURES: list[Any] = [
    *[[LINEAR | {"in_features": size}] for size in SIZES],
    *[[LINEAR | {"out_features": size}] for size in SIZES],
    *[
        [
            LINEAR,
            {"layer": "BatchNorm1d", "num_features": s, "eps": 1, "momentum": 1, "affine": False},
        ]
        for s in SIZES
    ],
    *[
        [
            LINEAR,
            {"layer": "LayerNorm", "normalized_shape": [s], "eps": 1, "elementwise_affine": False},
        ]
        for s in SIZES
    ],
    [],
    {},
    None,
    5,
    "Linear",
    [5],
    [None],
    [[]],
    [{}],
    [{"layer": ["Linear"]}],
    [{"layer": "Linear"}],
    [{"layer": "Conv9d"}],
    [LINEAR | {"device": "cuda"}],
    [LINEAR | {"bias": False}],
    [LINEAR, LINEAR],
    [LINEAR, {"layer": "Softmax", "dim": 7}],
    [LINEAR, {"layer": "Dropout", "p": 5}],
    [LINEAR, {"layer": "LeakyReLU", "negative_slope": "x"}],
    [LINEAR, {"layer": "Flatten", "start_dim": 9, "end_dim": 1}],
    [LINEAR, {"layer": "GELU", "approximate": "much"}],
    [{"layer": "Identity"}] * 3,
]


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("number", range(len(ARCHITECTURES)))
def test_bad_architectures(number: int, place: Path, tmp_path: Path) -> None:
    about, tensors = parts(place)
    written = json.dumps(about | {"architecture": ARCHITECTURES[number]})
    save_file(tensors, tmp_path / MODEL, metadata={"holdfast": written})
    refused(explain("--quiet", model=tmp_path / MODEL))


@pytest.mark.parametrize("size", [10**9, 10**12])
def test_no_memory_is_taken_for_sizes_that_a_file_claims(
    size: int, place: Path, tmp_path: Path
) -> None:
    """They are compared with the tensors in the file; nobody tries to build such a layer first."""
    about, tensors = parts(place)
    written = json.dumps(about | {"architecture": [LINEAR | {"in_features": size}]})
    save_file(tensors, tmp_path / MODEL, metadata={"holdfast": written})
    refused(explain(model=tmp_path / MODEL), "do not fit its architecture")


@pytest.mark.parametrize(
    "change",
    [
        *[
            {"classes": c}
            for c in (
                None,
                5,
                "no",
                [],
                ["no"],
                ["no", "no"],
                ["a", "b", "c"],
                [[1], [2]],
                [None, 1],
            )
        ],
        {"classes": [math.nan, 1]},
        *[{"outputs": o} for o in (None, "nonsense", 5, [], "probabilities")],
        *[
            {"schema": s}
            for s in (
                None,
                5,
                [],
                "x",
                {},
                {"feature": []},
                {"feature": 5},
                {"feature": [{"name": "a"}]},
            )
        ],
    ],
    ids=repr,
)
def test_bad_metadata(change: dict[str, Any], place: Path, tmp_path: Path) -> None:
    about, tensors = parts(place)
    save_file(tensors, tmp_path / MODEL, metadata={"holdfast": json.dumps(about | change)})
    refused(explain(model=tmp_path / MODEL))


@pytest.mark.parametrize(
    "text", ["", "{{{", "[]", "5", "null", '"architecture"', "{}", "[" * 200_000, "\0", "NaN"]
)
def test_metadata_that_is_junk(text: str, place: Path, tmp_path: Path) -> None:
    save_file(parts(place)[1], tmp_path / MODEL, metadata={"holdfast": text})
    refused(explain(model=tmp_path / MODEL))


TENSORS: dict[str, Callable[[dict[str, torch.Tensor]], dict[str, torch.Tensor]]] = {
    "nan": lambda t: {k: v * math.nan for k, v in t.items()},
    "inf": lambda t: {k: v + math.inf for k, v in t.items()},
    "integers": lambda t: {k: v.long() for k, v in t.items()},
    "booleans": lambda t: {k: v.bool() for k, v in t.items()},
    "float8": lambda t: {k: v.to(torch.float8_e4m3fn) for k, v in t.items()},
    "complex": lambda t: {k: v.to(torch.complex64) for k, v in t.items()},
    "one missing": lambda t: dict(list(t.items())[1:]),
    "one too many": lambda t: t | {"more": torch.zeros(3)},
    "none": lambda _: {"more": torch.zeros(3)},
    "other shape": lambda t: {k: v[None].contiguous() for k, v in t.items()},
    "no elements": lambda t: {k: v[:0].contiguous() for k, v in t.items()},
}


@pytest.mark.parametrize("name", TENSORS)
def test_bad_tensors(name: str, place: Path, tmp_path: Path) -> None:
    about, tensors = parts(place)
    save_file(TENSORS[name](tensors), tmp_path / MODEL, metadata={"holdfast": json.dumps(about)})
    refused(explain(model=tmp_path / MODEL))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_tensors_of_other_precision_are_fine(
    dtype: torch.dtype, place: Path, tmp_path: Path
) -> None:
    about, tensors = parts(place)
    save_file(
        {k: v.to(dtype) for k, v in tensors.items()},
        tmp_path / MODEL,
        metadata={"holdfast": json.dumps(about)},
    )
    assert explain(model=tmp_path / MODEL).code == 0


# ---- schemas

SCHEMAS: dict[str, tuple[str | bytes, str]] = {
    "empty": ("", "at least one feature"),
    "junk": ("[[[", "as TOML"),
    "binary": (bytes(range(256)), "as TOML"),
    "deep": ("a = " + "[" * 200_000, "as TOML"),
    "digits": ("max_changes = 1" + "0" * 9000, "as TOML"),
    "unknown setting": ("max_change = 1", "did you mean 'max_changes'"),
    "one feature": ("[feature]\nname = 'age'", "a list of [[feature]] tables"),
    "nameless": ("[[feature]]\nkind = 'real'", "needs a name"),
    "unknown field": ("[[feature]]\nname = 'age'\nkinds = 'real'", "did you mean 'kind'"),
    "unknown kind": ("[[feature]]\nname = 'age'\nkind = 'number'", "'number' is not one of"),
    "unknown dtype": ("[[feature]]\nname = 'age'\ndtype = 'int7'", "feature 'age'"),
    "wrong type": ("[[feature]]\nname = 'age'\nscale = '1'", "of the wrong type"),
    "large number": ("[[feature]]\nname = 'age'\nscale = 1" + "0" * 400, "feature 'age'"),
    "empty bounds": ("[[feature]]\nname = 'age'\nbounds = [2, 1]", "are empty"),
    "nan": ("[[feature]]\nname = 'age'\nbounds = [nan, 1]", "missing number"),
    "no scale": ("[[feature]]\nname = 'age'\nscale = 0", "scale must be positive"),
    "no levels": ("[[feature]]\nname = 'job'\nkind = 'category'", "needs its levels"),
    "twice": ("[[feature]]\nname = 'a'\n[[feature]]\nname = 'a'", "duplicate feature"),
    "bad rule": ("rules = ['age <']\n[[feature]]\nname = 'age'", "rule 'age <'"),
    "unknown column": ("rules = ['agee <= 3']\n[[feature]]\nname = 'age'", "did you mean 'age'"),
    "fewer columns": ("[[feature]]\nname = 'age'", "cannot take encoded rows of 1 columns"),
}


@pytest.mark.parametrize("name", SCHEMAS)
def test_bad_schemas(name: str, tmp_path: Path) -> None:
    content, words = SCHEMAS[name]
    (tmp_path / "s.toml").write_bytes(content if isinstance(content, bytes) else content.encode())
    refused(explain("--schema", tmp_path / "s.toml"), words)


# ---- options


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--target", "yess"), "did you mean 'yes'"),
        (("--target", ""), "no class ''"),
        (("--target", "1"), "no class '1'"),
        (("--method", "min-costs"), "did you mean 'min-cost'"),
        (("--method", ""), "unknown method ''"),
        (("--probability", "0"), "between 0 and 1"),
        (("--probability", "1.5"), "between 0 and 1"),
        (("--probability", "nan"), "between 0 and 1"),
        (("--time-budget", "-1"), "time_budget must be positive"),
        (("--time-budget", "0"), "time_budget must be positive"),
        (("--time-budget", "nan"), "time_budget must be positive"),
        (("--batch-size", "0"), "batch_size must be at least 1"),
        (("--batch-size", "-5"), "batch_size must be at least 1"),
        (("--seed", str(10**30)), "seed must fit into 64 bits"),
        (("--set", "steps"), "KEY=VALUE"),
        (("--set", "=3"), "no setting ''"),
        (("--set", "stepps=3"), "did you mean 'steps'"),
        (("--set", "steps=many"), "expected an integer"),
        (("--set", "steps=-1"), "at least 1"),
        (("--set", "norm=3"), "expected one of 1, 2"),
        (("--set", "legacy=perhaps"), "expected true or false"),
        (("--set", "lr=inf"), "lr must be a finite number"),
        (("--set", "kappa=nan"), "kappa must be a finite number"),
        (("--set", "lr=1e300"), "lr must be a finite number"),
        (("--set", "search=3"), "no setting 'search'"),
        (("--set", "__class__=3"), "no setting"),
        (("--set", "steps__x=3"), "no setting 'steps__x'"),
    ],
)
def test_bad_options(options: tuple[str, ...], words: str) -> None:
    refused(explain(*options), words)


@pytest.mark.parametrize(
    ("method", "settings_"),
    [
        ("descent", ("lr=1e30", "steps=20")),
        ("descent", ("lam=3e38", "steps=20")),
        ("growing-spheres", ("radius=1e38", "samples=5")),
        ("min-epsilon-pgd", ("radius=1e38", "steps=3")),
        ("min-cost", ("lr=1e38", "kappa=1e38", "steps=5")),
    ],
)
@pytest.mark.filterwarnings("default")
def test_settings_that_overflow_find_nothing_but_break_nothing(
    method: str, settings_: tuple[str, ...]
) -> None:
    chosen = [word for text in settings_ for word in ("--set", text)]
    ran = run(
        "explain",
        "people.csv",
        "--model",
        MODEL,
        "--any-other",
        "--method",
        method,
        *chosen,
        "--quiet",
    )
    assert (ran.code, ran.err) == (0, "")
    assert len(json.loads(ran.out)) == 20


@pytest.mark.filterwarnings("default")
def test_a_search_that_overflows_has_no_answer(tmp_path: Path) -> None:
    """Without bounds the search may run to infinity; that is a row not found, not a fault of the
    table."""
    hf.Model.of(seeded(nn.Sequential(nn.Linear(2, 2))), hf.Schema.box(["a", "b"])).save(
        tmp_path / MODEL
    )
    (tmp_path / "far.csv").write_text("a,b\n3e38,-3e38\n1,2\n")
    for method, far in (
        ("descent", "lr=3e38"),
        ("growing-spheres", "radius=3e38"),
        ("min-epsilon-pgd", "radius=3e38"),
    ):
        options = (
            "--model",
            tmp_path / MODEL,
            "--any-other",
            "--method",
            method,
            "--set",
            far,
            "--quiet",
        )
        ran = run("explain", tmp_path / "far.csv", *options)
        assert (ran.code, ran.err) == (0, "")


# ---- anything at all

LETTERS = st.text(max_size=6)
NUMBERS = st.one_of(
    st.integers(-100, 100),
    st.integers(-(10**25), 10**25),
    st.floats(),
    st.sampled_from([1e308, -1e308, 1e-320, 2**53 + 1, 10**400]),
)
CELLS = {
    "numbers": NUMBERS,
    "whole": st.integers(-(2**63), 2**63 - 1),
    "levels": st.sampled_from(["a", "b"]),
    "booleans": st.booleans(),
    "texts": LETTERS,
    "anything": st.one_of(st.none(), st.booleans(), NUMBERS, LETTERS),
}
NEAR = {"age": "whole", "income": "numbers", "job": "levels"}


@st.composite
def tables(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Records that are often nearly right: the columns of the schema, one of them spoilt."""
    other = st.lists(st.sampled_from([*NEAR, "x", ""]) | LETTERS, unique=True)
    names = draw(st.just(list(NEAR)) | other)
    kinds = {name: NEAR.get(name, "anything") for name in names}
    for name in names:
        if draw(st.integers(0, 3)) == 0:
            kinds[name] = draw(st.sampled_from(sorted(CELLS)))
    return [{n: draw(CELLS[k]) for n, k in kinds.items()} for _ in range(draw(st.integers(0, 4)))]


def finished(ran: Ran) -> None:
    """Answered or refused in one sentence; nothing else may happen, whatever the input."""
    assert "Traceback" not in ran.err
    assert ran.code in (0, BAD_INPUT), ran.err
    if ran.code:
        refused(ran)
    else:
        assert isinstance(json.loads(ran.out), list)


ANY = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@ANY
@given(rows=tables(), kind=st.sampled_from(["csv", "json", "parquet"]))
@pytest.mark.filterwarnings("default")
def test_any_table(rows: list[dict[str, Any]], kind: str, place: Path) -> None:
    path = place / f"any.{kind}"
    if kind == "json":
        path.write_text(json.dumps(rows), encoding="utf-8")
    else:
        try:
            write_table(pd.DataFrame(rows), path)
        except hf.HoldfastError:  # no such Parquet file can exist
            return
    finished(explain("--quiet", table=path))


@ANY
@given(
    text=st.binary(max_size=300) | st.text(max_size=200).map(str.encode),
    kind=st.sampled_from(["csv", "json", "parquet"]),
)
@pytest.mark.filterwarnings("default")
def test_any_bytes_as_table_schema_and_model(text: bytes, kind: str, place: Path) -> None:
    assume(text.strip() != b"[]")  # a table without rows
    (place / f"any.{kind}").write_bytes(text)
    (place / "any.toml").write_bytes(text)
    (place / "any.safetensors").write_bytes(text)
    refused(explain(table=place / f"any.{kind}"))
    refused(explain("--schema", place / "any.toml"))
    refused(explain(model=place / "any.safetensors"))


TIDY = NUMBERS.filter(lambda v: abs(v) < 1e300)
PAIRS = st.tuples(st.floats(), st.floats()).map(lambda p: sorted(p)).map(list)
LEVELS = st.lists(LETTERS | st.integers(-2, 3) | st.booleans() | st.floats(-2, 2), max_size=4)
DTYPES = [
    "",
    "int64",
    "int8",
    "UInt8",
    "Int64",
    "float32",
    "bool",
    "boolean",
    "object",
    "str",
    "category",
    "nonsense",
]
FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "kind": st.sampled_from(["real", "integer", "boolean", "ordered", "category"]),
    "change": st.sampled_from(["free", "fixed", "up", "down", "sideways"]),
    "bounds": PAIRS,
    "seen": PAIRS,
    "levels": LEVELS,
    "allowed": LEVELS,
    "missing": st.booleans(),
    "step": st.sampled_from([0, 0.1, 1, 1e-300, 1e300]) | NUMBERS,
    "center": TIDY,
    "scale": st.floats(1e-3, 1e3) | NUMBERS,
    "weight": st.floats(0, 10) | NUMBERS,
    "dtype": st.sampled_from(DTYPES),
    "label": LETTERS,
    "unit": LETTERS,
    "verbs": st.tuples(LETTERS, LETTERS).map(list),
}
WRONG = st.one_of(NUMBERS, LETTERS, st.booleans(), st.lists(NUMBERS, max_size=3), st.just({"a": 1}))


@st.composite
def schemas(draw: st.DrawFn) -> dict[str, Any]:
    """The right schema with some fields of some features replaced."""
    features: list[dict[str, Any]] = [
        {"name": "age", "kind": "integer"},
        {"name": "income"},
        {"name": "job", "kind": "category", "levels": ["a", "b"]},
    ]
    for feature in features:
        for key in draw(st.lists(st.sampled_from(sorted(FIELDS)), max_size=2, unique=True)):
            feature[key] = draw(FIELDS[key] if draw(st.integers(0, 4)) else WRONG)
    content: dict[str, Any] = {"feature": features}
    if draw(st.integers(0, 3)) == 0:
        content["max_changes"] = draw(st.integers(-1, 3) | WRONG)
    if draw(st.integers(0, 3)) == 0:
        rules = (
            st.sampled_from(
                ["age <= income", "age + income >= 2", "1e400 * age <= 3", "income <= 1e308"]
            )
            | LETTERS
        )
        content["rules"] = draw(st.lists(rules, max_size=2) | WRONG)
    return content


@ANY
@given(content=schemas(), empty=st.booleans())
@pytest.mark.filterwarnings("default")
def test_any_schema(content: dict[str, Any], empty: bool, place: Path) -> None:
    (place / "any.toml").write_text(tomli_w.dumps(content), encoding="utf-8")
    (place / "none.csv").write_text(HEAD)
    finished(
        explain("--quiet", "--schema", "any.toml", table="none.csv" if empty else "people.csv")
    )


# ---- version, help, exit codes


def test_version() -> None:
    assert run("--version") == Ran(0, f"holdfast {hf.__version__}\n", "")


def test_help_is_quick_because_nothing_heavy_is_imported() -> None:
    code = "import sys; from holdfast.cli.main import main; c = main(['--help']); "
    code += "sys.exit(c or any(m in sys.modules for m in ('torch', 'pandas', 'numpy', 'sklearn')))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, encoding="utf-8"
    )
    assert done.returncode == 0, done.stderr
    for code in (0, BAD_INPUT, UNANSWERED, INTERNAL, INTERRUPTED):
        assert re.search(rf"\b{code}\b", done.stdout)


def test_no_arguments_show_the_help() -> None:
    done = program()
    assert done.returncode in (0, BAD_INPUT)
    assert "explain" in done.stdout + done.stderr


def test_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hf.MinCost, "search", raising(KeyboardInterrupt))
    ran = explain()
    assert (ran.code, ran.out, ran.err) == (INTERRUPTED, "", "interrupted\n")


def test_an_error_inside_is_one_sentence_unless_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hf.MinCost, "search", raising(ZeroDivisionError("by\nnothing")))
    ran = explain()
    assert ran.code == INTERNAL
    assert ran.err.count("\n") == 1
    assert "unexpected ZeroDivisionError: by nothing" in ran.err
    assert "HOLDFAST_DEBUG=1" in ran.err
    monkeypatch.setenv("HOLDFAST_DEBUG", "1")
    ran = explain()
    assert ran.code == INTERNAL
    assert "Traceback" in ran.err


def raising(error: Any) -> Any:
    def fail(*_: object) -> None:
        raise error

    return fail


def test_usage_errors_exit_with_two() -> None:
    for argv in (
        ["explain"],
        ["nonsense"],
        ["explain", "x.csv", "--model", "m", "--seed", "x"],
        ["demo", "--bogus"],
    ):
        assert run(*argv).code == BAD_INPUT
    assert explain("--target", "yes", "--any-other").code == BAD_INPUT
    ran = run("explain", "people.csv", "--model", MODEL)
    assert ran.code == BAD_INPUT
    assert "--target no or --target yes, or --any-other" in ran.err


def test_docs_name_every_command_option_and_exit_code() -> None:
    text = (Path(__file__).parents[2] / "docs/guide/command-line.md").read_text(encoding="utf-8")
    group: Any = typer.main.get_command(app)
    commands = [("## ", name, command) for name, command in group.commands.items()]
    for sub, command in group.commands["train"].commands.items():
        commands.append(("### ", f"train {sub}", command))
    for mark, name, command in commands:
        section = text.split(f"\n{mark}holdfast {name}\n")[1].split(f"\n{mark}")[0]
        for option in command.params:
            written = [o for o in option.opts if o.startswith("--")] or [option.name.upper()]
            assert f"`{written[0]}" in section, (
                f"{written[0]} of `holdfast {name}` is not on the page"
            )
    assert "--version" in text
    for code in (0, BAD_INPUT, UNANSWERED, INTERNAL, INTERRUPTED):
        assert f"| {code} |" in text
    for name in METHODS:
        assert f"`{name}`" in text
