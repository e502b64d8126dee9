"""Images and answers as files. Nothing read here can run code."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from holdfast import datasets
from holdfast._core.checks import did_you_mean, untyped
from holdfast._core.files import whole_file
from holdfast._core.parquet import content_of, damage_named, read_sealed, write_sealed
from holdfast._core.run import run_of
from holdfast._core.types import Outcomes
from holdfast.errors import FileError, SettingError
from holdfast.images.model import ImagesLike, Size, as_images
from holdfast.target import BoundTarget

if TYPE_CHECKING:
    from holdfast.images.result import ImageCounterfactuals

MARK = b"holdfast-images"
Read = TypeVar("Read")


# ---- images


@dataclass(frozen=True)
class Labelled:
    """Images (n, c, h, w) with values from 0 to 1, and what they show, if known."""

    images: Tensor
    labels: NDArray[Any] | None

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, rows: Any) -> "Labelled":
        return Labelled(self.images[rows], None if self.labels is None else self.labels[rows])


def read_images(path: str | Path, size: Size | None = None) -> Labelled:
    """An .npz file with an array `images`, and one of `labels` if it has them.

    Args:
        path: images are bytes or numbers from 0 to 1, (n, h, w) or (n, c, h, w); labels integers or
            strings.
        size: what each image must be, if known.
    """
    path = Path(path)
    hint = "expected an .npz file with an array 'images'"
    if path.suffix.lower() != ".npz":
        raise FileError(f"cannot read images from {str(path)!r}: {hint}")
    arrays, names = _loaded(path, _arrays)
    hint = did_you_mean("images", names) if names else "it is empty"
    if "images" not in arrays:
        raise FileError(f"{str(path)!r} has no array 'images'; {hint}")
    images = arrays["images"]
    if images.dtype.kind not in "fiub":
        raise FileError(f"the images of {str(path)!r} are not numeric but {images.dtype}")
    try:
        x = as_images(images.astype(images.dtype.newbyteorder("=")), size)
    except SettingError as error:
        raise FileError(f"cannot use {str(path)!r}: {error}") from None
    labels = arrays.get("labels")
    if labels is not None and labels.shape != (len(x),):
        raise FileError(
            f"{str(path)!r} has {len(x)} images, so it needs {len(x)} labels, got shape "
            f"{labels.shape}"
        )
    if labels is not None and labels.dtype.kind not in "iubU":
        raise FileError(f"labels in {str(path)!r} must be integers or strings, got {labels.dtype}")
    return Labelled(x, labels)


def load_images(source: str | Path, part: str, size: Size | None = None) -> Labelled:
    """Images of an .npz file, or the `part` ("train" or "test") of a dataset by its name, such as
    "mnist"."""
    place = Path(source)
    if place.suffix or place.exists():
        return read_images(place, size)
    name = str(place)
    known = get_args(datasets.ImagesName)
    if name not in known:
        hint = f"an .npz file, or one of the datasets of images; {did_you_mean(name, known)}"
        raise FileError(f"there are no images {name!r}: expected {hint}")
    data = datasets.load(name)
    if data.parts is not None and part in set(data.parts):
        data = data.part(part)
    return Labelled(as_images(data.X, size), np.array(data.y.tolist()))


def _arrays(file: Any) -> tuple[dict[str, NDArray[Any]], list[str]]:
    """Images and labels of an .npz file, and the names of all arrays in it."""
    if isinstance(file, np.ndarray):
        raise ValueError("it holds a single array, not several by name")
    with file:
        return {
            name: np.asarray(file[name]) for name in ("images", "labels") if name in file.files
        }, file.files


def _loaded(path: Path, how: Callable[[Any], Read]) -> Read:
    """What `how` makes of a file that numpy wrote, read without running code."""
    if not path.is_file():
        raise FileError(f"no file at {str(path)!r}")
    try:
        return how(np.load(path, allow_pickle=False))
    except Exception as error:  # a file that is not what it claims to be may cause any error
        # NumPy advises allowing pickles, which run code: bad advice for a file of unknown origin.
        plain = (
            "it holds Python objects or is not such a file"
            if "pickle" in str(error)
            else str(error)
        )
        raise FileError(f"cannot read {str(path)!r}: {plain}") from None


def read_mask(path: str | Path) -> NDArray[np.bool_]:
    """An .npy file of pixels that may not change: true, or not 0, where nothing may."""
    path = Path(path)
    if path.suffix.lower() != ".npy":
        raise FileError(
            f"cannot read locked pixels from {str(path)!r}: expected an .npy file, as numpy.save "
            "writes it"
        )
    mask = _loaded(path, np.asarray)
    if mask.dtype.kind not in "biu":
        raise FileError(f"locked pixels in {str(path)!r} must be true or false, got {mask.dtype}")
    return mask.astype(np.bool_)


def write_images(path: str | Path, images: ImagesLike, labels: Outcomes | None = None) -> None:
    """An .npz file that `read_images` reads."""
    named = {"images": np.asarray(images)} | (
        {} if labels is None else {"labels": np.asarray(labels)}
    )
    path = Path(path)
    if path.suffix.lower() != ".npz":
        raise FileError(f"cannot write {str(path)!r}: the name must end in .npz")
    _zip(path, named)


def _zip(path: Path, arrays: dict[str, NDArray[Any]]) -> None:
    with whole_file(path) as file:
        np.savez_compressed(file, **cast(Any, arrays))


# ---- answers


def save(cfs: "ImageCounterfactuals", path: Path) -> None:
    """Write what the extension asks for; see `ImageCounterfactuals.save`."""
    writers: dict[str, Callable[[Path], object]] = {
        ".parquet": lambda file: write_sealed(file, *_to_arrow(cfs)),
        ".npz": lambda file: _zip(file, arrays_of(cfs)),
        ".csv": lambda file: datasets.write_table(cfs.table(), file),
        ".json": lambda file: datasets.write_table(cfs.table(), file),
        ".png": cfs.grid,
        ".svg": cfs.grid,
        ".html": cfs.report,
    }
    kind = path.suffix.lower()
    if kind not in writers:
        raise FileError(
            f"cannot write {str(path)!r}: the extension must be one of {', '.join(writers)}"
        )
    writers[kind](path)


def arrays_of(cfs: "ImageCounterfactuals") -> dict[str, NDArray[Any]]:
    """The answers as arrays, one line per pair."""
    return {
        "images": cfs.x.numpy(),
        "counterfactuals": cfs.x_cf.numpy(),
        "row": cfs.source,
        "label": _strings(cfs.label),
        "target": _strings(cfs.target),
        "status": cfs.status_codes,
        "probability": cfs.probability.to_numpy(),
        "iterations": cfs.iterations,
        "scores": cfs.scores.numpy(),
    }


def _strings(names: NDArray[Any]) -> NDArray[Any]:
    """Names of several types as strings: an array of objects would need code to be read."""
    return names.astype(str) if names.dtype == object else names


def _to_arrow(cfs: "ImageCounterfactuals") -> tuple[Any, dict[bytes, Any]]:
    """One line per pair; an image is a list of its values, channel by channel and line by line."""
    pa = untyped("pyarrow")
    wide = cfs.x[:1].numel() if len(cfs) else 1

    def lists(values: Tensor) -> Any:
        flat = pa.array(np.ascontiguousarray(values.numpy()).reshape(-1))
        return pa.FixedSizeListArray.from_arrays(flat, wide)

    # Typed columns for long data, one JSON text for what concerns all pairs: reading either runs no
    # code.
    columns = {
        "image": lists(cfs.x),
        "counterfactual": lists(cfs.x_cf),
        "row": pa.array(cfs.source),
        "own": pa.array(cfs.own),
        "target": pa.array(cfs.goal.label.numpy()),
        "status": pa.array(cfs.status_codes),
        "reason": pa.array(cfs.reasons, pa.string()),
        "iterations": pa.array(cfs.iterations),
    }
    columns |= {
        f"score:{i}": pa.array(column.numpy()) for i, column in enumerate(cfs.scores.T.contiguous())
    }
    content = {
        "run": asdict(cfs.run),
        "classes": list(cfs.classes),
        "size": list(cfs.x.shape[1:]),
        "passes": cfs.passes,
        "goal": {"sign": cfs.goal.sign, "margin": cfs.goal.margin, "soft": cfs.goal.soft},
    }
    return pa.table(columns), {MARK: content}


def load(path: Path) -> "ImageCounterfactuals":
    """Read what `save` wrote as .parquet."""
    table = read_sealed(path, MARK, "was not written by ImageCounterfactuals.save")
    with damage_named(path):
        return _from_arrow(table, content_of(table, MARK))


def _from_arrow(table: Any, content: dict[str, Any]) -> "ImageCounterfactuals":
    from holdfast.images.result import ImageCounterfactuals

    size = tuple(map(int, content["size"]))
    n = table.num_rows

    def images(name: str) -> Tensor:
        flat = table[name].combine_chunks().flatten().to_numpy(zero_copy_only=False)
        return torch.as_tensor(np.array(flat, dtype=np.float32)).view(n, *size)

    def numbers(name: str) -> NDArray[np.int64]:
        return np.array(table[name].to_numpy(), dtype=np.int64)

    # The file may be anybody's: parts that do not fit together are an error, never an answer.
    names = [c for c in table.column_names if c.startswith("score:")]
    if len(names) != len(content["classes"]):
        raise ValueError(f"{len(names)} scores of {len(content['classes'])} classes")
    columns = [torch.as_tensor(np.array(table[c].to_numpy())) for c in names]
    goal = BoundTarget(torch.as_tensor(numbers("target")), k=len(names), **content["goal"])
    return ImageCounterfactuals(
        x=images("image"),
        x_cf=images("counterfactual"),
        scores=torch.stack(columns, 1),
        goal=goal,
        status_codes=numbers("status"),
        reasons=table["reason"].to_pylist(),
        source=numbers("row"),
        own=numbers("own"),
        iterations=numbers("iterations"),
        passes=int(content["passes"]),
        classes=tuple(content["classes"]),
        run=run_of(content["run"]),
    )
