"""`holdfast train images`: a network for images, kept with the densities of its features."""

import time
import warnings
from pathlib import Path
from typing import Any

from holdfast.cli.images import densities, explain_command
from holdfast.cli.options import QUIET, SEED, SETTINGS, argument, option
from holdfast.cli.output import check_ending, check_writable, print_report, say
from holdfast.cli.train._options import EPOCHS, assigned, check_share, out_file
from holdfast.cli.train._run import right_about
from holdfast.errors import FileError

OUT = Path("images.safetensors")


def images(
    images: Path = argument("IMAGES", "Images and labels: an NPZ file, or a dataset's name."),
    test: float = option("table", "SHARE", "Share of images held out.", 0.25),
    kind: str = option("method", "NAME", "spectral (for deduce) or plain.", "spectral"),
    epochs: int | None = EPOCHS,
    settings: list[str] | None = SETTINGS,
    seed: int = SEED,
    out: Path = out_file(str(OUT)),
    progress: bool = option(
        "output", None, "Print a line per epoch, even without a terminal.", False, "--progress"
    ),
    quiet: bool = QUIET,
) -> None:
    """Train a network that tells images apart, and keep it with the densities of its features."""
    if quiet:
        warnings.simplefilter("ignore")
    check_share(test)
    model_file = out or OUT
    check_ending(model_file, (".safetensors",), "a model's")
    check_writable(model_file)
    from holdfast.images.classifier import network_by_name

    net = network_by_name(kind, assigned({"epochs": epochs}, settings), seed)
    shown: Any = "lines" if progress and not quiet else not quiet
    report = {"kind": "images", "network": kind, "model": str(model_file)}
    report |= train_on(net, images, model_file, test, seed, shown)
    print_report(report, report_in_words)
    if not quiet:
        say(f"next: {explain_command(Path('images.npz'), model_file)}")


def train_on(
    net: Any, place: Path, model_file: Path, test: float, seed: int, shown: Any
) -> dict[str, Any]:
    """Train a network on the images of a place and save it; returns what the report says of it."""
    from holdfast.datasets import held_out
    from holdfast.images.io import load_images

    data = load_images(place, "train")
    if data.labels is None:
        raise FileError(
            f"{str(place)!r} has no array 'labels'; a network learns from images and their labels"
        )
    learn, rest = held_out(len(data), test, seed, "images")
    unseen = data[rest]
    start = time.perf_counter()
    watched = (unseen.images, unseen.labels) if rest else None
    net.fit(data.images[learn], data.labels[learn], held_out=watched, progress=shown)
    seconds = time.perf_counter() - start
    # The file gets them, so that DeDUCE needs no training images later.
    density = densities(net.model_, data.images[learn], data.labels[learn])
    net.model_.save(model_file, density=density)
    report: dict[str, Any] = {
        "images": len(learn),
        "test_images": len(rest),
        "classes": len(net.classes_),
        "seconds": round(seconds, 3),
        "densities": density is not None,
    }
    if rest:
        report["accuracy"] = net.score(unseen.images, data.labels[rest])
    return report


def report_in_words(report: dict[str, Any]) -> str:
    """The report in a few lines."""
    lines = [
        f"{report['network']} network trained on {report['images']:,} images of "
        f"{report['classes']} classes in {report['seconds']:.1f} s: {report['model']}"
    ]
    return "\n".join([*lines, *right_about(report, "images")])
