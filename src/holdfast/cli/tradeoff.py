"""`holdfast tradeoff`: what hardening a model costs in recourse, and where to stop."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from holdfast.cli.options import FIXED, QUIET, SCHEMA, SEED, TABLE_OUT, option
from holdfast.cli.output import check_chart, check_table, echo
from holdfast.cli.train._run import labelled
from holdfast.errors import SettingError
from holdfast.registry import build_method, split_names

if TYPE_CHECKING:
    import holdfast as hf

METHODS = ("descent", "growing-spheres", "roar")
EPSILON = "0:0.3:7"


def tradeoff(
    data: Path = option("table", "TABLE", "Rows with outcomes: CSV, JSON or Parquet.", ...),
    target: str | None = option("table", "COLUMN", "Column of the outcome; default: the last one."),
    schema: Path | None = SCHEMA,
    fixed: list[str] | None = FIXED,
    wanted: str | None = option(
        "asked", "NAME", "Wanted outcome; default: the one each does not get now."
    ),
    rows: int = option("asked", "N", "Largest number of test rows to ask about.", 500, min=1),
    methods: list[str] | None = option(
        "method",
        "NAME",
        f"Method that looks for recourse; repeatable. Default: {', '.join(METHODS)}.",
        None,
        "--method",
    ),
    recipe: Path | None = option(
        "method", "FILE", "Recipe of the network (TOML); default: two small layers."
    ),
    epsilon: str = option(
        "method",
        "LIST",
        "Sizes of the attacks: FIRST:LAST:COUNT, or with commas between them.",
        EPSILON,
    ),
    seeds: int = option("method", "N", "Networks for each epsilon.", 2, min=1),
    seed: int = SEED,
    test: float = option(
        "measure", "SHARE", "Share of rows held out, to measure and ask about.", 0.25
    ),
    attack: float = option(
        "measure", "RADIUS", "Radius of the attack that accuracy is measured under.", 0.1
    ),
    out: Path | None = TABLE_OUT,
    plot: Path | None = option("output", "FILE", "Chart of the curves: .png, .svg or .html."),
    quiet: bool = QUIET,
) -> None:
    """Train a network against attacks of growing size, and measure how much rarer and dearer
    recourse becomes."""
    import holdfast as hf

    # Errors in an option come before anything is trained.
    radii = parsed_epsilon(epsilon)
    chosen = {name: build_method(name, ()) for name in methods or METHODS}
    if not 0 < test < 1:
        raise SettingError(f"--test must be above 0 and below 1, got {test}")
    check_chart(plot)
    check_table(out)
    network = hf.Recipe() if recipe is None else hf.Recipe.load(recipe)
    column = target or str(hf.datasets.read_table(data).columns[-1])
    if not (target or quiet):
        typer.echo(f"the outcome is taken to be the last column, {column!r}", err=True)
    X, y, allowed = labelled(data, column, schema, split_names(fixed))
    learn, unseen = hf.datasets.held_out(len(X), test, seed)
    hardened = hf.train_adversarial(
        network,
        X.iloc[learn],
        y.iloc[learn],
        allowed,
        epsilon=radii,
        seeds=seeds,
        seed=seed,
        progress=not quiet,
    )
    study = hf.tradeoff(
        hardened,
        X.iloc[unseen[:rows]],
        chosen,
        target=outcome(wanted, hardened),
        test=(X.iloc[unseen], y.iloc[unseen]),
        attack=attack,
        seed=seed,
        progress=not quiet,
    )
    write_study(study, out, plot, quiet)


def write_study(study: Any, out: Path | None, plot: Path | None, quiet: bool) -> None:
    """To the files, or to stdout: in words for people, as JSON for programs."""
    import holdfast as hf
    from holdfast.render.charts.theme import save as save_chart

    if out:
        hf.datasets.write_table(study.table(), out)
    elif sys.stdout.isatty():
        echo(repr(study))
    else:
        echo(study.to_json())
    if plot:
        save_chart(study.plot(), plot)
    if not quiet and (out or not sys.stdout.isatty()):
        typer.echo(study.summary(), err=True)


def parsed_epsilon(text: str) -> list[float]:
    """'0:0.3:4' or '0,0.1,0.2,0.3' -> radii."""
    try:
        if ":" not in text:
            return [float(part) for part in text.split(",")]
        first, last, count = text.split(":")
        a = float(first)
        b = float(last)
        n = int(count)
        if n < 1 or (n == 1 and a != b):
            raise ValueError
        return [round(a + (b - a) * i / max(1, n - 1), 10) for i in range(n)]
    except ValueError:
        raise SettingError(
            "--epsilon takes FIRST:LAST:COUNT, such as 0:0.3:7, or radii with commas between "
            f"them, got {text!r}"
        ) from None


def outcome(text: str | None, hardened: "hf.AdversarialModels") -> Any:
    """The outcome that is wanted, as the models spell it."""
    classes = {str(name): name for name in hardened.bank.classes}
    if text is None:
        return None
    if text not in classes:
        raise SettingError(
            f"--wanted {text!r} is not an outcome of the table; there are {list(classes.values())}"
        )
    return classes[text]
