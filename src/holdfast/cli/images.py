"""The commands for images: `holdfast train images`, `holdfast demo --images`, and `explain` with a model of images."""

import shlex
import sys
import time
import warnings
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from holdfast.cli.options import (
    MOST_ROWS,
    check_ending,
    check_writable,
    echo,
    print_json,
    print_rich,
    printable,
    say,
    split,
    wanted,
)
from holdfast.errors import FileError, HoldfastError, SettingError, did_you_mean, untyped
from holdfast.registry import chosen, configured_for_images

if TYPE_CHECKING:
    import holdfast as hf
    from holdfast._core.progress import Shown
    from holdfast.images.classifier import ResNetClassifier
    from holdfast.images.explainer import ImageExplainer
    from holdfast.images.io import Labelled
    from holdfast.images.model import ImageModel
    from holdfast.images.result import ImageCounterfactuals
    from holdfast.models.density import FeatureDensity

NETWORKS = ("spectral", "plain")
ANSWERS = (".parquet", ".npz", ".csv", ".json")
DEMO_NET: dict[str, Any] = {"width": 12, "stages": 3, "depth": 1, "epochs": 6, "batch_size": 32}
DEMO_DIGITS = 397  # held out, as many as make a round number to learn from
DEMO_ASKED = 10  # of them, to be explained: one of each class


# ---- images that are given


def images_of(place: Path, part: str, size: Any = None) -> "Labelled":
    """An .npz file, or the part of a dataset by its name."""
    import numpy as np

    import holdfast as hf
    from holdfast.images.io import Labelled, read_images
    from holdfast.images.model import as_images

    if place.suffix or place.exists():
        return read_images(place, size)
    name, known = str(place), get_args(hf.datasets.ImagesName)
    if name not in known:
        hint = f"an .npz file, or one of the datasets of images; {did_you_mean(name, known)}"
        raise FileError(f"there are no images {name!r}: expected {hint}")
    data = hf.datasets.load(name)
    if data.parts is not None and part in set(data.parts):
        data = data.part(part)
    return Labelled(as_images(data.X, size), np.array(data.y.tolist()))


# ---- train


def train(
    place: Path,
    kind: str,
    assignments: Sequence[str],
    seed: int,
    test: float,
    out: Path | None,
    *,
    progress: bool,
    quiet: bool,
) -> None:
    """Train a network on images, and keep it with the densities of its features."""
    out = out or Path("images.safetensors")
    check_ending(out, (".safetensors",), "a model's")
    check_writable(out)
    net = network(kind, assignments, seed)
    data = images_of(place, "train")
    if data.labels is None:
        raise FileError(f"{str(place)!r} has no array 'labels'; a network learns from images and their labels")
    learn, held = split(len(data), test, seed, "images")
    rest = data[held]
    start = time.perf_counter()
    shown: Shown = "lines" if progress and not quiet else not quiet
    check_on = (rest.images, rest.labels) if held else None
    net.fit(data.images[learn], data.labels[learn], held_out=check_on, progress=shown)
    seconds = time.perf_counter() - start
    density = densities(net.model_, data.images[learn], data.labels[learn])
    net.model_.save(out, density=density)
    report: dict[str, Any] = {"kind": "images", "network": kind, "model": str(out), "images": len(learn)}
    report |= {"test_images": len(held), "classes": len(net.classes_), "seconds": round(seconds, 3)}
    report |= {"densities": density is not None}
    report |= {"accuracy": net.score(rest.images, rest.labels)} if held else {}
    if sys.stdout.isatty():
        echo(words(report))
    else:
        print_json(report)
    if not quiet:
        say(f"next: {explain_command(Path('images.npz'), out)}")


def network(kind: str, assignments: Sequence[str], seed: int) -> "ResNetClassifier":
    """The network to be trained, with its settings."""
    from holdfast.images.classifier import PlainResNet, SpectralResNet

    if kind not in NETWORKS:
        raise SettingError(f"unknown --kind {kind!r}; {did_you_mean(kind, NETWORKS)}")
    cls = SpectralResNet if kind == "spectral" else PlainResNet
    known = [f.name for f in fields(cls) if f.name != "seed"]  # which is --seed
    return cls(**chosen(cls, f"a {kind} network", known, assignments), seed=seed)


def densities(model: "ImageModel", images: Any, labels: Any) -> "FeatureDensity | None":
    """Of the network's features; a class of a single image has none, which only DeDUCE would mind."""
    from holdfast.models.density import FeatureDensity

    try:
        return FeatureDensity(model).fit(images, labels)
    except HoldfastError as error:
        warnings.warn(f"the file gets no densities of features, which DeDUCE needs: {error}", stacklevel=2)
        return None


def words(report: dict[str, Any]) -> str:
    """The report in a few lines."""
    what = f"{report['network']} network trained on {report['images']:,} images of {report['classes']} classes"
    lines = [f"{what} in {report['seconds']:.1f} s: {report['model']}"]
    if "accuracy" in report:
        lines.append(f"on {report['test_images']:,} images held out: right about {report['accuracy']:.1%}")
    return "\n".join(lines)


def explain_command(images: Path, model: Path, method: str = "deduce", data: Path | None = None) -> str:
    """What to type next."""
    command = ["holdfast", "explain", str(images), "--model", str(model), "--method", method, "--target", "all"]
    command += ["--data", str(data)] if data else []
    return shlex.join([*command, "--out", "answers.parquet", "--report", "answers.html", "--grid", "answers.png"])


# ---- explain


def wants_images(place: Path, model: Path) -> bool:
    """Is this a model of images? An error if it is one of tables and images are asked about."""
    from holdfast.images.model import holds_images

    if holds_images(model):
        return True
    if place.suffix.lower() in (".npz", ".npy") and model.is_file():
        hint = "train one with `holdfast train images`"
        raise FileError(f"{str(place)!r} holds images, but {str(model)!r} holds no model of images; {hint}")
    return False


def explain(
    place: Path,
    model: Path,
    *,
    method: str,
    settings: Sequence[str],
    target: str | None,
    any_other: bool,
    probability: float | None,
    data: Path | None,
    locked: Path | None,
    first: int | None,
    out: Path | None,
    report: Path | None,
    grid: Path | None,
    seed: int,
    time_budget: float | None,
    chunk: int | None,
    quiet: bool,
) -> int:
    """Find counterfactual images, write and print them; returns how many pairs have no answer."""
    import holdfast as hf
    from holdfast.images.io import read_mask
    from holdfast.images.model import ImageModel

    check_ending(out, ANSWERS, "an answer's")
    check_ending(report, (".html", ".htm"), "a report's")
    check_ending(grid, (".png",), "a picture's")
    check_writable(out, report, grid)
    if first is not None and first < 1:
        raise SettingError(f"--first must be at least 1, got {first}")
    explainer = configured_for_images(method, settings)
    judge = ImageModel.load(model)
    wish = wish_of(judge.classes, target, any_other, probability)
    asked = images_of(place, "test", judge.size)[: first if first is not None else None]
    learn(explainer, method, data, judge)
    cfs = explainer.explain(
        judge, asked.images, wish, labels=asked.labels, locked=None if locked is None else read_mask(locked), seed=seed,
        batch_size=128 if chunk is None else chunk, time_budget=time_budget, progress=not quiet,
    )  # fmt: skip
    deliver(cfs, out)
    if report:
        cfs.report(report)
    if grid and len(cfs):
        cfs.grid(grid)
    elif grid:
        warnings.warn(f"there are no images, so there is no {str(grid)!r}", stacklevel=2)
    if not quiet:
        say(cfs.summary())
    return int((cfs.status_codes == hf.Status.NOT_FOUND).sum())


def wish_of(classes: Sequence[Any], name: str | None, any_other: bool, probability: float | None) -> "hf.Target":
    """As for tables, and "all" for every class but an image's own."""
    import holdfast as hf

    if name is None and not any_other:
        known = ", ".join(f"--target {shlex.quote(str(c))}" for c in classes[:4])
        raise SettingError(f"say which class is wanted: {known}, ..., --target all for each of them, or --any-other")
    if name == "all" and not any_other and "all" not in map(str, classes):
        return hf.Target("all", probability)
    return wanted(classes, name, any_other, probability)


def learn(explainer: "ImageExplainer", method: str, data: Path | None, model: "ImageModel") -> None:
    """Give a method that looks at data its data: those in a file, or for DeDUCE the densities in the model's file."""
    from holdfast.images.deduce import DeDUCE

    if not explainer.needs_data:
        if data:
            warnings.warn(f"method {method!r} looks at no data, so --data is not used", stacklevel=2)
    elif data:
        known = images_of(data, "train", model.size)
        explainer.fit(model, known.images, known.labels)
    elif isinstance(explainer, DeDUCE) and model.density is not None:
        explainer.fit(model)
    else:
        raise SettingError(f"method {method!r} looks at data; give it training images with --data FILE.npz")


def deliver(cfs: "ImageCounterfactuals", out: Path | None) -> None:
    """To the file, or to stdout: as a table for eyes, as JSON for programs."""
    import holdfast as hf

    if out is None and sys.stdout.isatty():
        print_pairs(cfs, MOST_ROWS)
    elif out is None:
        print_json(hf.datasets.records(cfs.table()))
    elif out.suffix.lower() in (".csv", ".json"):
        hf.datasets.write_table(cfs.table(), out)
    else:
        cfs.save(out)


def print_pairs(cfs: "ImageCounterfactuals", most: int) -> None:
    """The first pairs as a table."""
    from rich.table import Table
    from rich.text import Text

    table = Table("image", "classes", "status", "pixels", "l1", "steps", "probability")
    for line in cfs.table().head(most).to_dict("records"):
        lost = line["status"] == "not found"
        cells = [line["row"], f"{line['label']} → {line['target']}", line["status"], "-" if lost else line["pixels"]]
        cells += ["-" if lost else f"{line['l1']:.2f}", line["iterations"], f"{line['confidence']:.2f}"]
        table.add_row(*(Text(printable(str(cell))) for cell in cells))  # as Text: a class "[red]" is no markup
    print_rich(table)
    if len(cfs) > most:
        echo(f"The first {most} of {len(cfs):,} pairs.")


# ---- demo


def demo(out: Path, method: str) -> None:
    """Train a network on the digits that come with scikit-learn, and ask what would make each digit another one."""
    import numpy as np

    from holdfast.images.classifier import SpectralResNet
    from holdfast.images.io import write_images

    start = time.perf_counter()
    explainer = configured_for_images(method, [])
    out.mkdir(parents=True, exist_ok=True)
    digits: Any = untyped("sklearn.datasets").load_digits()
    order = np.random.default_rng(0).permutation(len(digits.target))
    x, y = (digits.images[order] / 16).astype(np.float32), digits.target[order]
    test, known = slice(0, DEMO_DIGITS), slice(DEMO_DIGITS, None)
    net = SpectralResNet(**DEMO_NET).fit(x[known], y[known], held_out=(x[test], y[test]), progress=True)
    model = net.model_
    model.save(out / "model.safetensors", density=densities(model, x[known], y[known]))
    explainer.fit(model, x[known], y[known])
    right = net.predict(x[test]) == y[test]
    asked = np.array([np.flatnonzero(right & (y[test] == digit))[0] for digit in range(DEMO_ASKED)])
    write_images(out / "digits.npz", x[asked], y[asked])
    write_images(out / "training.npz", x[known], y[known])
    cfs = explainer.explain(model, x[asked], "all", labels=y[asked], progress=True)
    cfs.save(out / "answers.parquet")
    cfs.grid(out / "grid.png")
    cfs.report(out / "report.html")
    print_pairs(cfs, 10)
    echo(
        f"The network is right about {right.mean():.1%} of {DEMO_DIGITS} digits it has not seen. "
        f"{int(cfs.found.sum())} of {len(cfs)} pairs of a digit and another class get an answer, which changes "
        f"{cfs.pixels.mean():.1f} of 64 pixels on average; {time.perf_counter() - start:.1f} s in all."
    )
    echo(f"Everything is in {out}: look at {out / 'grid.png'} and {out / 'report.html'}. Try next:\n")
    # DeDUCE finds what it needs in the model's file.
    data = out / "training.npz" if explainer.needs_data and method != "deduce" else None
    echo(explain_command(out / "digits.npz", out / "model.safetensors", method, data))
