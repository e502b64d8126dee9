"""What every result can do: the verbs are the same for all."""

import json
from pathlib import Path
from typing import Any, Protocol, Self, cast, runtime_checkable

import numpy as np
import pandas as pd

from holdfast._core.files import write_whole
from holdfast.errors import FileError


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
        try:
            write_whole(Path(path), (text + "\n").encode())
        except OSError as error:
            reason = error.strerror or error
            raise FileError(f"cannot write {str(path)!r}: {reason}") from None
    return text


def plain_value(value: Any) -> Any:
    """What JSON does not know, as a number or a string."""
    return cast(Any, value).item() if isinstance(value, np.generic) else str(value)
