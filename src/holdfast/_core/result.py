"""What every result can do: the verbs are the same for all."""

import io
import json
from pathlib import Path
from typing import Any, Protocol, Self, cast, runtime_checkable

import numpy as np
import pandas as pd

from holdfast._core.files import whole_file, write_whole


@runtime_checkable
class Result(Protocol):
    """A result: numbers for programs, words for people, a picture, and files.

    Every result type of the library has these members, with these names and meanings. Some take
    further arguments by keyword, all of which may be left out.
    """

    def table(self) -> pd.DataFrame:
        """The numbers, one line for each thing they describe."""
        ...

    def summary(self) -> str:
        """The findings, in a few lines for people."""
        ...

    def to_dict(self) -> dict[str, Any]:
        """Everything but the pictures, as plain values for JSON."""
        ...

    def to_json(self, path: str | Path | None = None) -> str:
        """The same as JSON, written to a file where there is one to write to."""
        ...

    def save(self, path: str | Path) -> Any:
        """Write a file from which `load` makes the same result again."""
        ...

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a file that `save` wrote."""
        ...

    def plot(self) -> Any:
        """The result as a chart; needs the `plot` extra."""
        ...

    def report(self, path: str | Path) -> Path:
        """Write a self-contained page for people; needs the `plot` extra."""
        ...


def as_json(content: dict[str, Any], path: str | Path | None = None) -> str:
    """Plain values as JSON, written to a file where there is one to write to."""
    text = json.dumps(content, indent=1, ensure_ascii=False, default=plain_value)
    if path is not None:
        write_whole(path, (text + "\n").encode())
    return text


def write_csv(table: pd.DataFrame, path: str | Path, *, index: bool = True) -> None:
    """A table as a CSV file, whole or absent; every digit is kept."""
    with whole_file(path) as file:
        text = io.TextIOWrapper(file, encoding="utf-8", newline="")
        table.to_csv(text, index=index)
        text.detach()


def plain_value(value: Any) -> Any:
    """What JSON does not know, as a number or a string."""
    return cast(Any, value).item() if isinstance(value, np.generic) else str(value)
