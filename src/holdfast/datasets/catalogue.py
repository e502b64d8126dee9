"""What is known about each dataset before it is loaded: a decorator over the function that loads it."""

import io
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, Concatenate, Literal, ParamSpec, TypeVar, get_args

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from holdfast.datasets.dataset import Dataset, Images
from holdfast.datasets.fetch import Place, content, place
from holdfast.datasets.sources import FILES
from holdfast.schema.schema import Schema

P = ParamSpec("P")
R = TypeVar("R", Dataset, Images)
AtHand = Place | Literal["bundled", "generated"]


@dataclass(frozen=True)
class About:
    """A dataset as the list shows it."""

    name: str
    rows: int
    columns: int  # features; of images: pixels
    classes: int
    licence: str
    citation: str
    source: str
    files: tuple[str, ...] = ()
    favourable: Any = None
    papers: Mapping[str, float] = field(default_factory=dict[str, float])
    without_files: Literal["bundled", "generated"] = "generated"

    def at_hand(self) -> AtHand:
        """Where the files are, or how they can be had; of several files, the one that is furthest away."""
        places = {place(FILES[path]) for path in self.files}
        furthest: list[AtHand] = [there for there in reversed(get_args(Place)) if there in places]
        return furthest[0] if furthest else self.without_files

    def dataset(
        self,
        X: pd.DataFrame,
        y: "pd.Series[Any]",
        schema: Schema,
        *,
        groups: "pd.Series[Any] | None" = None,
        parts: "pd.Series[Any] | None" = None,
    ) -> Dataset:
        known = self.licence, self.citation, self.source, self.favourable
        return Dataset(self.name, X, y, schema, *known, groups, parts, self.papers)

    def images(self, X: NDArray[np.uint8], y: "pd.Series[Any]", parts: "pd.Series[Any] | None" = None) -> Images:
        return Images(self.name, X, y, self.licence, self.citation, self.source, parts)


CATALOGUE: dict[str, About] = {}
DATASETS: dict[str, Callable[..., Dataset | Images]] = {}


def dataset(
    rows: int,
    columns: int,
    classes: int,
    *,
    licence: str,
    citation: str,
    source: str,
    files: tuple[str, ...] = (),
    favourable: Any = None,
    papers: Mapping[str, float] | None = None,
    without_files: Literal["bundled", "generated"] = "generated",
) -> Callable[[Callable[Concatenate[About, P], R]], Callable[P, R]]:
    """Register a function under its own name; it gets what is known about the dataset as its first argument."""

    def register(function: Callable[Concatenate[About, P], R]) -> Callable[P, R]:
        name = function.__name__
        facts = licence, citation, source, files, favourable, papers or {}, without_files
        about = About(name, rows, columns, classes, *facts)

        @wraps(function)
        def loader(*args: P.args, **settings: P.kwargs) -> R:
            return function(about, *args, **settings)

        CATALOGUE[name], DATASETS[name] = about, loader
        return loader

    return register


def stored_table(path: str, **settings: Any) -> pd.DataFrame:
    """A CSV file of the data directory, the cache or the public source, with its checksum checked."""
    read: Any = pd.read_csv
    return read(io.BytesIO(content(FILES[path])), **settings)


def from_zero(X: pd.DataFrame) -> dict[str, tuple[float, float]]:
    """Bounds for the columns of numbers without a negative value: amounts, counts and durations stay so."""
    numbers = X.select_dtypes("number")
    return {str(name): (0.0, math.inf) for name in numbers.columns if numbers[name].min() >= 0}


def describe() -> list[dict[str, Any]]:
    """The datasets as plain values, in alphabetical order; nothing is loaded."""
    return [
        {
            "name": about.name,
            "rows": about.rows,
            "columns": about.columns,
            "classes": about.classes,
            "licence": about.licence,
            "citation": about.citation,
            "source": about.source,
            "at_hand": about.at_hand(),
        }
        for _, about in sorted(CATALOGUE.items())
    ]
