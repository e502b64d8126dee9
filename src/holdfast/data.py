"""Tables: files by extension, and datasets that come with their schema."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from holdfast.errors import FileError, did_you_mean
from holdfast.schema import Schema


@dataclass(frozen=True)
class Dataset:
    """A table, its outcome, and what may change in it."""

    name: str
    X: pd.DataFrame
    y: "pd.Series[Any]"
    schema: Schema
    licence: str
    citation: str

    def split(self, test: float = 0.25, seed: int = 0) -> tuple["Dataset", "Dataset"]:
        """A random split into a part to learn from and a part to ask about."""
        order = np.random.default_rng(seed).permutation(len(self.X))
        cut = round(len(order) * (1 - test))
        return self.take(order[:cut]), self.take(order[cut:])

    def take(self, rows: Any) -> "Dataset":
        X, y = self.X.iloc[rows], self.y.iloc[rows]
        return Dataset(self.name, X, y, self.schema, self.licence, self.citation)


def german_credit() -> Dataset:
    """1,000 German loan applicants (shipped with the library): good risks are approved, bad ones denied."""
    with (files("holdfast") / "bundled" / "german_credit.csv.gz").open("rb") as file:
        table = pd.read_csv(file, compression="gzip", keep_default_na=False)
    y = table.pop("class").map({"bad": "denied", "good": "approved"})
    schema = Schema.infer(
        table,
        fixed=["credit_history", "purpose", "personal_status", "age", "num_dependents", "foreign_worker", "job"],
        up=["employment", "residence_since"],
        ordered={"employment": ["unemployed", "<1", "1<=X<4", "4<=X<7", ">=7"]},
        bounds={"credit_amount": (250, 20000), "duration": (4, 72)},
        words={
            "duration": {"label": "the loan", "unit": "months", "verbs": ("lengthen", "shorten")},
            "credit_amount": {"label": "the amount", "unit": "DM"},
            "installment_commitment": {"label": "instalments", "unit": "% of income"},
        },
    )
    return Dataset(
        "german_credit", table, y, schema, "CC BY 4.0", "H. Hofmann, Statlog (German Credit Data), UCI, 1994"
    )


def heloc() -> Dataset:
    """FICO's home equity lines of credit; rows without any bureau record (-9 throughout) are left out."""
    table = pd.read_csv(data_file("heloc/heloc.csv.gz"))
    y = table.pop("RiskPerformance")
    known = ~(table == -9).all(axis=1)
    past = ["ExternalRiskEstimate", "MSinceOldestTradeOpen", "AverageMInFile", "PercentTradesNeverDelq", "MaxDelqEver"]
    schema = Schema.infer(table[known], fixed=past, scaling="minmax")
    citation = "FICO, Explainable Machine Learning Challenge, 2018"
    return Dataset("heloc", table[known], y[known], schema, "FICO challenge terms", citation)


DATASETS: dict[str, Callable[[], Dataset]] = {"german_credit": german_credit, "heloc": heloc}


def load(name: str) -> Dataset:
    """A dataset by name."""
    if name not in DATASETS:
        raise FileError(f"unknown dataset {name!r}; {did_you_mean(name, DATASETS)}")
    return DATASETS[name]()


def data_file(relative: str) -> Path:
    """A file in the data directory, which the environment variable HOLDFAST_DATA names."""
    root = os.environ.get("HOLDFAST_DATA")
    if not root:
        raise FileError(f"{relative!r} is not shipped; set HOLDFAST_DATA to the directory that holds it")
    path = Path(root) / relative
    if not path.is_file():
        raise FileError(f"no file {relative!r} in the data directory {root!r} (HOLDFAST_DATA)")
    return path


# ---- files

READERS: dict[str, Callable[[Path], pd.DataFrame]] = {
    ".csv": lambda p: pd.read_csv(p),
    ".json": lambda p: pd.read_json(p, orient="records"),
    ".parquet": lambda p: pd.read_parquet(p),
}


def read_table(path: str | Path, schema: Schema | None = None) -> pd.DataFrame:
    """A CSV, JSON (list of records) or Parquet file, by its extension.

    With a schema, text columns are read as the schema means them: "NA" or an empty cell is missing only where
    the column has a missing level, and codes keep their type.
    """
    path = Path(path)
    reader = READERS.get(path.suffix.lower())
    if reader is None:
        raise FileError(f"cannot read {str(path)!r}: the extension must be one of {', '.join(READERS)}")
    if not path.is_file():
        raise FileError(f"no file at {str(path)!r}")
    try:
        if path.suffix.lower() == ".csv" and schema is not None:
            return _read_csv(path, schema)
        return reader(path)
    except (OSError, ValueError, UnicodeDecodeError, pd.errors.ParserError, pd.errors.EmptyDataError) as error:
        raise FileError(f"cannot read {str(path)!r}: {error}") from None


def _read_csv(path: Path, schema: Schema) -> pd.DataFrame:
    """CSV has no types: a level that looks like a missing value ("NA", "None") is one only if it is no level."""
    texts = {
        f.name: sorted(MISSING_WORDS - {str(v) for v in f.levels})
        for f in schema.features
        if f.levels and all(isinstance(v, str) for v in f.levels)
    }
    numbers = {f.name: sorted(MISSING_WORDS) for f in schema.features if f.name not in texts}
    kinds: dict[Any, Any] = {name: str for name in texts}
    return pd.read_csv(path, keep_default_na=False, na_values=texts | numbers, dtype=kinds)


MISSING_WORDS = {"", "NA", "N/A", "NaN", "nan", "NULL", "null", "None", "<NA>", "n/a", "#N/A"}


def write_table(table: pd.DataFrame, path: str | Path, *, index: bool = False) -> None:
    """Write CSV, JSON (list of records) or Parquet, by extension."""
    path = Path(path)
    suffix = path.suffix.lower()
    if suffix not in READERS:
        raise FileError(f"cannot write {str(path)!r}: the extension must be one of {', '.join(READERS)}")
    try:
        if suffix == ".csv":
            table.to_csv(path, index=index)
        elif suffix == ".json":
            table.to_json(path, orient="records", indent=1)
        else:
            table.to_parquet(path)
    except OSError as error:
        raise FileError(f"cannot write {str(path)!r}: {error}") from None
