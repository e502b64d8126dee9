"""What is known about each dataset before it is loaded (`catalogue.toml`), and a decorator over the
functions that load them."""

import io
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, Concatenate, Literal, ParamSpec, TypeVar, Unpack, get_args

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from holdfast.datasets.dataset import Dataset, Images
from holdfast.datasets.fetch import Place, content, place, shipped_toml
from holdfast.datasets.sources import FILES
from holdfast.schema.infer import InferSettings
from holdfast.schema.schema import Schema

P = ParamSpec("P")
R = TypeVar("R", Dataset, Images)
AtHand = Place | Literal["bundled", "generated"]
LISTED = ("name", "rows", "columns", "classes", "licence", "citation", "source")


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
        """Where the files are, or how they can be had; of several files, the one that is furthest
        away."""
        places = {place(FILES[path]) for path in self.files}
        furthest: list[AtHand] = [there for there in reversed(get_args(Place)) if there in places]
        return furthest[0] if furthest else self.without_files

    def table(self, **settings: Any) -> pd.DataFrame:
        """The first file, read by pandas with these settings."""
        return stored_table(self.files[0], **settings)

    def dataset(
        self,
        X: pd.DataFrame,
        y: "pd.Series[Any]",
        *,
        groups: "pd.Series[Any] | None" = None,
        parts: "pd.Series[Any] | None" = None,
        inferred_from: pd.DataFrame | None = None,
        **settings: Unpack[InferSettings],
    ) -> Dataset:
        """The table with its outcome; its schema is inferred from it, or from another table of the
        same columns."""
        schema = Schema.infer(X if inferred_from is None else inferred_from, **settings)
        known = self.licence, self.citation, self.source, self.favourable
        return Dataset(self.name, X, y, schema, *known, groups, parts, self.papers)

    def images(
        self, X: NDArray[np.uint8], y: "pd.Series[Any]", parts: "pd.Series[Any] | None" = None
    ) -> Images:
        return Images(self.name, X, y, self.licence, self.citation, self.source, parts)


CATALOGUE = {
    name: About(name, **entry | {"files": tuple(entry.get("files", ()))})
    for name, entry in shipped_toml("catalogue.toml").items()
}
DATASETS: dict[str, Callable[..., Dataset | Images]] = {}


def dataset(function: Callable[Concatenate[About, P], R]) -> Callable[P, R]:
    """Register a function under its own name; it gets what is known about the dataset as its first
    argument."""
    about = CATALOGUE[function.__name__]

    @wraps(function)
    def loader(*args: P.args, **settings: P.kwargs) -> R:
        return function(about, *args, **settings)

    DATASETS[about.name] = loader
    return loader


def stored_table(path: str, **settings: Any) -> pd.DataFrame:
    """A CSV file of the data directory, the cache or the public source, with its checksum
    checked."""
    read: Any = pd.read_csv
    return read(io.BytesIO(content(FILES[path])), **settings)


def from_zero(X: pd.DataFrame) -> dict[str, tuple[float, float]]:
    """Bounds for the columns of numbers without a negative value: amounts, counts and durations
    stay so."""
    numbers = X.select_dtypes("number")
    return {str(name): (0.0, math.inf) for name in numbers.columns if numbers[name].min() >= 0}


def describe() -> list[dict[str, Any]]:
    """The datasets as plain values, in alphabetical order; nothing is loaded."""
    known = (CATALOGUE[name] for name in sorted(CATALOGUE))
    return [
        {fact: getattr(about, fact) for fact in LISTED} | {"at_hand": about.at_hand()}
        for about in known
    ]
