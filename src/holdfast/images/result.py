"""Counterfactual images: one per pair of an image and a wanted class."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from holdfast import datasets
from holdfast._core.result import as_json
from holdfast.counterfactuals import Answers
from holdfast.distances import Distance, distance_of

if TYPE_CHECKING:
    from holdfast.images.grid import By, Order
    from holdfast.render.svg import Svg


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class ImageCounterfactuals(Answers):
    """Answers, pair by pair. Pairs without an answer stay, with the last attempt, their status and
    the reason.

    >>> import holdfast as hf
    >>> from sklearn.datasets import load_digits
    >>> digits = load_digits(n_class=2)
    >>> net = hf.images.PlainResNet(width=4, stages=1, epochs=3, batch_size=32)
    >>> net = net.fit(digits.images / 16, digits.target)
    >>> cfs = hf.JSMA().explain(net, digits.images[:3] / 16, "all")
    >>> len(cfs), len(cfs[cfs.found]), cfs[0].table()["row"].tolist()
    (3, 3, [0])
    """

    # (n,) number of the image's own class: its label, or what the model says
    own: npt.NDArray[np.int64]
    iterations: npt.NDArray[np.int64]  # (n,) steps of the search
    passes: int  # images that went forward and backward through the model

    @property
    def label(self) -> npt.NDArray[Any]:
        """(n,) the images' own classes: their labels if given, else what the model
        says."""
        return self._names(self.own)

    @property
    def target(self) -> npt.NDArray[Any]:
        """(n,) the wanted classes."""
        return self._names(self.goal.label.numpy())

    @property
    def probability(self) -> "pd.Series[float]":
        """Probability of the wanted class that the model gives to each answer."""
        return pd.Series(self.goal.value(self.scores).numpy())

    @property
    def pixels(self) -> "pd.Series[float]":
        """How many pixels change; in a coloured image, those that change in any channel. Missing
        without an answer."""
        return self._where_answered((self.x_cf != self.x).any(1).flatten(1).sum(1))

    def cost(self, norm: str | Distance = "l1", *, tolerance: float = 0.0) -> "pd.Series[float]":
        """How far each answer is from its image; missing where there is none.

        Args:
            norm: "l0" (number of values that change), "l1", "l2", "linf", or a `Distance`.
            tolerance: changes up to this size do not count.
        """
        delta = (self.x_cf.double() - self.x.double()).flatten(1)
        return self._where_answered(
            distance_of(norm).value(delta.masked_fill(delta.abs() <= tolerance, 0.0))
        )

    def changes(self) -> pd.DataFrame:
        """Only what changes, for pairs with an answer: row, target, channel, y, x, before,
        after."""
        different = (self.x_cf != self.x).numpy() & self.found[:, None, None, None]
        pair, channel, y, x = np.nonzero(different)
        values = {"before": self.x.numpy()[different], "after": self.x_cf.numpy()[different]}
        place = {
            "row": self.source[pair],
            "target": self.target[pair],
            "channel": channel,
            "y": y,
            "x": x,
        }
        return pd.DataFrame(place | values)

    def table(self) -> pd.DataFrame:
        """One line per pair: row, label, target, status, probability, pixels changed, l1,
        iterations, reason."""
        status = self.status
        columns = {
            "row": self.source,
            "label": self.label,
            "target": self.target,
            "status": status["status"],
            "probability": self.probability,
            "pixels": self.pixels.astype("Int64"),
            "l1": self.cost("l1"),
            "iterations": self.iterations,
            "reason": status["reason"],
        }
        return pd.DataFrame(columns)

    def to_dict(self) -> dict[str, Any]:
        """The run, and the lines of `table` as records, in plain values; missing ones are
        None."""
        return {
            "summary": self.summary(),
            "run": asdict(self.run),
            "answers": datasets.records(self.table()),
        }

    def to_json(self, path: str | Path | None = None) -> str:
        """The same as JSON, also written to a file if a path is given."""
        return as_json(self.to_dict(), path)

    def summary(self) -> str:
        """One line: how many images and pairs, how many answered, by which method, in what time."""
        images = len(set(self.source.tolist()))
        what = f"{images:,} image{'s' * (images != 1)}"
        return self._summary(
            what if images == len(self) else f"{len(self):,} pairs of {what} and a class"
        )

    def __repr__(self) -> str:
        return f"<ImageCounterfactuals {self.summary()}>"

    def _repr_html_(self) -> str:
        from holdfast.images.page import pairs_table

        return pairs_table(self)

    def _names(self, places: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
        # else numpy would make strings of numbers
        same = len({type(name).__name__ for name in self.classes}) == 1
        return np.array(self.classes, dtype=None if same else object)[places]

    # ---- pictures and files

    def grid(
        self,
        path: "str | Path | None" = None,
        *,
        most: int = 12,
        by: "By" = "pair",
        columns: int | None = None,
        order: "Order" = "spread",
        pairs: Sequence[int] | None = None,
        zoom: int | None = None,
    ) -> "Svg":
        """A picture of images, their counterfactuals and what changed: red is brighter than before,
        blue is darker.

        Returns the text of an SVG picture, which notebooks show. For a coloured image the
        difference is that of the channel that changes most.

        Args:
            path: also write it there, as .svg, or as .png, which needs the `plot` extra.
            most: the most pairs shown (by="image": the most images).
            by: "pair" (image, counterfactual and difference beside each other), or "image" (one
                line per image: the counterfactuals for all classes, the differences below them).
            columns: pairs beside each other; by default as many as fit a page.
            order: which pairs: "spread" evenly over all of them, the first as they were "asked", or
                those that change the "fewest" or the "most" pixels.
            pairs: numbers of the pairs to show instead, in this order; by default pairs with an
                answer.
            zoom: side of a pixel in the picture; by default what suits the size of the images.
        """
        from holdfast.images.grid import grid

        picture = grid(self, most=most, by=by, columns=columns, order=order, pairs=pairs, zoom=zoom)
        if path is not None:
            picture.save(path)
        return picture

    def plot(self) -> "Svg":
        """The picture of `grid` with its usual settings."""
        return self.grid()

    def report(self, path: str | Path) -> Path:
        """Write a self-contained page with images, figures and provenance; charts need the `plot`
        extra."""
        from holdfast.images.page import write_report

        return write_report(self, Path(path))

    def save(self, path: str | Path) -> None:
        """Write what the extension asks for.

        `.parquet` holds everything, and `load` reads it; `.npz` the arrays; `.csv` and `.json` the
        lines of `table`; `.png` and `.svg` the picture of `grid`; `.html` the page of `report`.
        """
        from holdfast.images.io import save

        save(self, Path(path))

    @classmethod
    def load(cls, path: str | Path) -> "ImageCounterfactuals":
        """Read a .parquet file written by `save`."""
        from holdfast.images.io import load

        return load(Path(path))
