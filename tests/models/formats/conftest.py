"""Fixtures of tests that load model files."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.models.formats import lightgbm, xgboost
from holdfast.models.formats.skops import reader as skops


@pytest.fixture(scope="module")
def no_child() -> Iterator[None]:
    """Files are tried out in this process: a child does the same and takes seconds; `test_sandbox`
    has it."""
    with pytest.MonkeyPatch.context() as patch:
        for reader in (lightgbm, skops, xgboost):
            patch.setattr(
                reader, "try_in_child", lambda kind, data, reader=reader: reader.try_out(data)
            )
        yield


@pytest.fixture
def canary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the bomb would leave its mark; looked at when the test is over."""
    monkeypatch.delenv("HOLDFAST_CANARY", raising=False)
    return tmp_path / "canary"
