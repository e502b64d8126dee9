"""Images on the command line: `holdfast explain` with a model of images, and `holdfast demo
--images`."""

import shlex
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast._core.checks import untyped
from holdfast.cli.options import wanted
from holdfast.cli.output import (
    AnswerFiles,
    check_ending,
    echo,
    hand_out,
    print_table,
    say,
)
from holdfast.errors import HoldfastError, MissingExtraError, SettingError
from holdfast.registry import build_image_method

if TYPE_CHECKING:
    import holdfast as hf
    from holdfast.cli.explain import Asked, Search
    from holdfast.images.explainer import ImageExplainer
    from holdfast.images.model import ImageModel
    from holdfast.images.result import ImageCounterfactuals
    from holdfast.models.density import FeatureDensity

ANSWERS = (".parquet", ".npz", ".csv", ".json")
DEMO_NET: dict[str, Any] = {"width": 12, "stages": 3, "depth": 1, "epochs": 6, "batch_size": 32}
DEMO_DIGITS = 397  # held out, as many as make a round number to learn from
DEMO_CLASSES = 10  # one digit of each is explained


# ---- models


def densities(model: "ImageModel", images: Any, labels: Any) -> "FeatureDensity | None":
    """Densities of the network's features; None, with a warning, if a class has too few images:
    only DeDUCE needs them."""
    from holdfast.models.density import FeatureDensity

    try:
        return FeatureDensity(model).fit(images, labels)
    except HoldfastError as error:
        warnings.warn(
            f"the file is written without densities of features, which DeDUCE needs: {error}",
            stacklevel=2,
        )
        return None


def explain_command(
    images: Path, model: Path, method: str = "deduce", data: Path | None = None
) -> str:
    """What to type next."""
    command = [
        "holdfast",
        "explain",
        str(images),
        "--model",
        str(model),
        "--method",
        method,
        "--target",
        "all",
    ]
    command += ["--data", str(data)] if data else []
    return shlex.join(
        [*command, "--out", "answers.parquet", "--report", "answers.html", "--grid", "answers.png"]
    )


# ---- explain


@dataclass(frozen=True)
class Pictures:
    """What only models of images are asked."""

    locked: Path | None
    first: int | None
    grid: Path | None


def explain(asked: "Asked", search: "Search", files: AnswerFiles, pictures: Pictures) -> int:
    """Find counterfactual images, write and print them; returns how many pairs have no answer."""
    from holdfast.images.io import load_images, read_mask
    from holdfast.images.model import ImageModel

    method = search.method or "deduce"
    grid = pictures.grid
    check_ending(files.out, ANSWERS, "an answer's")
    check_ending(grid, (".png", ".svg"), "a picture's")
    files.check(grid)
    if pictures.first is not None and pictures.first < 1:
        raise SettingError(f"--first must be at least 1, got {pictures.first}")
    # Errors in the method come before the model is loaded.
    explainer = build_image_method(method, search.settings)
    model = ImageModel.load(asked.model)
    target = target_of(model.classes, asked.target, asked.any_other, asked.probability)
    given = load_images(asked.table, "test", model.size)[: pictures.first]
    fit_on(search.data, explainer, method, model)
    cfs = explainer.explain(
        model,
        given.images,
        target,
        labels=given.labels,
        locked=None if pictures.locked is None else read_mask(pictures.locked),
        seed=search.seed,
        batch_size=128 if search.batch_size is None else search.batch_size,
        time_budget=search.time_budget,
        progress=not files.quiet,
    )
    unanswered = hand_out(cfs, files, print_pairs)
    if grid and len(cfs):
        cfs.grid(grid)
    elif grid:
        warnings.warn(f"there are no images, so there is no {str(grid)!r}", stacklevel=2)
    return unanswered


def target_of(
    classes: Sequence[Any], name: str | None, any_other: bool, probability: float | None
) -> "hf.Target":
    """As for tables, and "all" for every class but an image's own."""
    import holdfast as hf

    if name is None and not any_other:
        choices = ", ".join(f"--target {shlex.quote(str(c))}" for c in classes[:4])
        raise SettingError(
            f"say which class is wanted: {choices}, ..., --target all for each of them, or "
            "--any-other"
        )
    if name == "all" and not any_other and "all" not in map(str, classes):
        return hf.Target("all", probability)
    return wanted(classes, name, any_other, probability)


def fit_on(
    data: Path | None, explainer: "ImageExplainer", method: str, model: "ImageModel"
) -> None:
    """Give a method that uses data its data: images in a file, or for DeDUCE the densities in the
    model's file."""
    from holdfast.images.deduce import DeDUCE
    from holdfast.images.io import load_images

    if not explainer.needs_data:
        if data:
            warnings.warn(
                f"method {method!r} does not use data, so --data is not used", stacklevel=2
            )
    elif data:
        rows = load_images(data, "train", model.size)
        explainer.fit(model, rows.images, rows.labels)
    elif isinstance(explainer, DeDUCE) and model.density is not None:
        explainer.fit(model)
    else:
        raise SettingError(
            f"method {method!r} uses data; give it training images with --data FILE.npz"
        )


def print_pairs(cfs: "ImageCounterfactuals", most: int) -> None:
    """The first pairs as a table."""
    rows = list[list[object]]()
    for line in cfs.table().head(most).to_dict("records"):
        missing = line["status"] == "not found"
        cells = [
            line["row"],
            f"{line['label']} → {line['target']}",
            line["status"],
            "-" if missing else line["pixels"],
        ]
        rows.append(
            [
                *cells,
                "-" if missing else f"{line['l1']:.2f}",
                line["iterations"],
                f"{line['probability']:.2f}",
            ]
        )
    print_table(["image", "classes", "status", "pixels", "l1", "steps", "probability"], rows)
    if len(cfs) > most:
        echo(f"The first {most} of {len(cfs):,} pairs.")


# ---- demo


def demo(out: Path, method: str) -> None:
    """Train a network on the digits that come with scikit-learn, and ask what would make each digit
    another one."""
    from holdfast.images.classifier import SpectralResNet
    from holdfast.images.io import write_images

    start = time.perf_counter()
    explainer = build_image_method(method, [])
    out.mkdir(parents=True, exist_ok=True)
    x, y = shuffled_digits()
    test = slice(0, DEMO_DIGITS)
    train = slice(DEMO_DIGITS, None)
    net = SpectralResNet(**DEMO_NET).fit(
        x[train], y[train], held_out=(x[test], y[test]), progress=True
    )
    model = net.model_
    model.save(out / "model.safetensors", density=densities(model, x[train], y[train]))
    explainer.fit(model, x[train], y[train])
    right = net.predict(x[test]) == y[test]
    first = one_of_each(right, y[test])
    write_images(out / "digits.npz", x[first], y[first])
    write_images(out / "training.npz", x[train], y[train])
    cfs = explainer.explain(model, x[first], "all", labels=y[first], progress=True)
    cfs.save(out / "answers.parquet")
    picture = _grid(cfs, out)
    cfs.report(out / "report.html")
    print_pairs(cfs, 10)
    echo(
        f"The network is right about {right.mean():.1%} of {DEMO_DIGITS} digits it has not seen. "
        f"{int(cfs.found.sum())} of {len(cfs)} pairs of a digit and another class get an answer, "
        f"which changes {cfs.pixels.mean():.1f} of 64 pixels on average; "
        f"{time.perf_counter() - start:.1f} s in all."
    )
    echo(f"Everything is in {out}: look at {picture} and {out / 'report.html'}. Try next:\n")
    # DeDUCE finds what it needs in the model's file.
    data = out / "training.npz" if explainer.needs_data and method != "deduce" else None
    echo(explain_command(out / "digits.npz", out / "model.safetensors", method, data))


def shuffled_digits() -> tuple[Any, Any]:
    """Images (n, 8, 8) from 0 to 1 and labels (n,), always in the same order."""
    import numpy as np

    digits: Any = untyped("sklearn.datasets").load_digits()
    order = np.random.default_rng(0).permutation(len(digits.target))
    return (digits.images[order] / 16).astype(np.float32), digits.target[order]


def one_of_each(right: Any, labels: Any) -> Any:
    """The first image of each digit that the network is right about."""
    import numpy as np

    return np.array([np.flatnonzero(right & (labels == d))[0] for d in range(DEMO_CLASSES)])


def _grid(cfs: "ImageCounterfactuals", out: Path) -> Path:
    """A picture of some answers; without the plot extra an SVG file instead of a PNG file."""
    try:
        cfs.grid(out / "grid.png")
        return out / "grid.png"
    except MissingExtraError as error:
        say(f"note: grid.svg instead of grid.png: {error}")
        cfs.grid(out / "grid.svg")
        return out / "grid.svg"
