"""Grey images of 28 by 28 pixels: digits, garments, letters."""

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from holdfast.datasets.catalogue import About, dataset, stored_table
from holdfast.datasets.dataset import Images
from holdfast.datasets.fetch import content
from holdfast.datasets.sources import FILES
from holdfast.errors import FileError

# the first number of an IDX file says what it holds
IMAGES = 2051
LABELS = 2049


def idx(path: str) -> NDArray[np.uint8]:
    """An IDX file of bytes: a number for the kind, the size along each axis, the bytes."""
    data = content(FILES[path])
    kind = int.from_bytes(data[:4])
    if kind not in (IMAGES, LABELS):
        raise FileError(f"{path!r} is not an IDX file of bytes: it starts with {kind}")
    shape = np.frombuffer(data, ">i4", kind & 0xFF, 4)
    return np.frombuffer(data, np.uint8, offset=4 + 4 * len(shape)).reshape(shape).copy()


def _parts(about: About, parts: dict[str, str]) -> Images:
    X = [idx(f"{about.name}/{file}-images-idx3-ubyte.gz") for file in parts.values()]
    y = [idx(f"{about.name}/{file}-labels-idx1-ubyte.gz") for file in parts.values()]
    where = np.repeat(np.array(list(parts), dtype=object), [len(part) for part in X])
    return about.images(
        np.concatenate(X), pd.Series(np.concatenate(y).astype(int)), pd.Series(where)
    )


@dataset
def mnist(about: About) -> Images:
    """Handwritten digits; the parts are train (60,000) and test (10,000)."""
    return _parts(about, {"train": "train", "test": "t10k"})


GARMENTS = (
    "T-shirt",
    "trouser",
    "pullover",
    "dress",
    "coat",
    "sandal",
    "shirt",
    "sneaker",
    "bag",
    "ankle boot",
)


@dataset
def fashion_mnist(about: About) -> Images:
    """Garments, the test part only: as papers use it to see what a model of digits makes of
    something else."""
    images = _parts(about, {"test": "t10k"})
    return about.images(images.X, images.y.map(dict(enumerate(GARMENTS))), images.parts)


@dataset
def letters(about: About) -> Images:
    """Handwritten letters: Omniglot scaled like MNIST, in place of EMNIST. The parts are its five
    alphabets."""
    labels = stored_table(about.files[1], dtype=str)
    return about.images(
        idx(about.files[0]), labels["alphabet"] + " " + labels["character"], labels["alphabet"]
    )
