"""`holdfast tradeoff`: what hardening a model costs in recourse, and where to stop."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli.options import split
from holdfast.cli.train import labelled
from holdfast.errors import FileError, SettingError
from holdfast.registry import configured, listed_names

if TYPE_CHECKING:
    import holdfast as hf

METHODS = ("descent", "growing-spheres", "roar")
EPSILON = "0:0.3:7"


def tradeoff(
    data: Annotated[Path, typer.Option("--data", help="Rows with their outcome: a CSV, JSON or Parquet file.")],
    target: Annotated[
        str | None, typer.Option("--target", help="The column that holds the outcome; left out: the last one.")
    ] = None,
    recipe: Annotated[
        Path | None, typer.Option("--recipe", help="How the network is made (TOML); left out: two small layers.")
    ] = None,
    wanted: Annotated[
        str | None, typer.Option("--wanted", help="The outcome people want; left out: the one each does not get now.")
    ] = None,
    epsilon: Annotated[
        str, typer.Option("--epsilon", help="Sizes of the attacks: FIRST:LAST:COUNT, or with commas between them.")
    ] = EPSILON,
    methods: Annotated[
        list[str] | None,
        typer.Option("--method", help=f"How to look for recourse; may be repeated. Default: {', '.join(METHODS)}."),
    ] = None,
    schema: Annotated[
        Path | None, typer.Option("--schema", help="What may change (TOML); left out: read off the table.")
    ] = None,
    fixed: Annotated[
        list[str] | None,
        typer.Option("--fixed", help="Columns that nobody can change, with commas between them; may be repeated."),
    ] = None,
    seeds: Annotated[int, typer.Option("--seeds", min=1, help="Networks for each epsilon.")] = 2,
    rows: Annotated[int, typer.Option("--rows", min=1, help="Test rows to ask about at most.")] = 500,
    test: Annotated[float, typer.Option("--test", help="The share of rows held out to measure and ask about.")] = 0.25,
    attack: Annotated[
        float, typer.Option("--attack", help="Size of the attack that accuracy is measured under.")
    ] = 0.1,
    seed: Annotated[int, typer.Option("--seed", help="Where all random numbers come from.")] = 0,
    out: Annotated[Path | None, typer.Option("--out", help="Where the table goes: .csv, .json or .parquet.")] = None,
    plot: Annotated[Path | None, typer.Option("--plot", help="Also draw the curves: .png, .svg or .html.")] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Nothing on stderr but errors.")] = False,
) -> None:
    """Train a network against attacks of growing size and see how much dearer and rarer recourse becomes."""
    import holdfast as hf
    from holdfast.render.charts.theme import EXTENSIONS
    from holdfast.render.charts.theme import save as save_chart

    radii = parsed_epsilon(epsilon)
    chosen = {name: configured(name, ()) for name in methods or METHODS}
    if not 0 < test < 1:
        raise SettingError(f"--test must be above 0 and below 1, got {test}")
    if plot and plot.suffix.lower() not in EXTENSIONS:
        raise FileError(f"cannot write {str(plot)!r}: the extension must be one of {', '.join(EXTENSIONS)}")
    if out:
        hf.datasets.known_extension(out, "write")
    how = hf.Recipe() if recipe is None else hf.Recipe.load(recipe)
    name = target or str(hf.datasets.read_table(data).columns[-1])
    if not (target or quiet):
        typer.echo(f"the outcome is taken to be the last column, {name!r}", err=True)
    X, y, known = labelled(data, name, schema, listed_names(fixed))
    learn, held = split(len(X), test, seed)
    hardened = hf.train_adversarial(
        how, X.iloc[learn], y.iloc[learn], known, epsilon=radii, seeds=seeds, seed=seed, progress=not quiet
    )
    study = hf.tradeoff(
        hardened, X.iloc[held[:rows]], chosen, target=outcome(wanted, hardened), test=(X.iloc[held], y.iloc[held]),
        attack=attack, seed=seed, progress=not quiet,
    )  # fmt: skip
    if out:
        hf.datasets.write_table(study.table(), out)
    elif sys.stdout.isatty():
        typer.echo(repr(study))
    else:
        typer.echo(study.to_json())
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
        a, b, n = float(first), float(last), int(count)
        if n < 1 or (n == 1 and a != b):
            raise ValueError
        return [round(a + (b - a) * i / max(1, n - 1), 10) for i in range(n)]
    except ValueError:
        raise SettingError(
            f"--epsilon takes FIRST:LAST:COUNT, such as 0:0.3:7, or radii with commas between them, got {text!r}"
        ) from None


def outcome(text: str | None, hardened: "hf.AdversarialModels") -> object:
    """The outcome that is wanted, as the models spell it."""
    classes: Sequence[object] = hardened.bank.classes
    if text is None:
        return None
    known = {str(c): c for c in classes}
    if text not in known:
        raise SettingError(f"--wanted {text!r} is no outcome of the table; there are {list(classes)}")
    return known[text]
