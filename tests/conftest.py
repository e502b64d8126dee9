"""Small models and a mixed table; n = 7 rows, so that n differs from every other size."""

import os
from pathlib import Path

import pandas as pd
import pytest

import holdfast as hf
from support.tables import mixed_schema, mixed_table


@pytest.fixture(scope="session")
def table() -> pd.DataFrame:
    return mixed_table(400)


@pytest.fixture(scope="session")
def schema(table: pd.DataFrame) -> hf.Schema:
    # Nobody in the table holds job 'c' in the rows that the tests ask about; see `people`.
    return mixed_schema(table)


@pytest.fixture
def data_dir() -> Path:
    """The directory of real datasets; tests that read it skip, and say so, where it is not set."""
    root = os.environ.get("HOLDFAST_DATA")
    if not root:
        pytest.skip("HOLDFAST_DATA is not set: no datasets here")
    return Path(root)
