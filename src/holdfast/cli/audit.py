"""`holdfast audit`: do answers hold on retrained models?"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.errors import FileError, SettingError

if TYPE_CHECKING:
    import pandas as pd

    import holdfast as hf

MOST_ROWS = 20  # in a table on the terminal
FAMILIES = "seed=100,leave_one_out=100"


def audit(
    answers: Annotated[Path, typer.Argument(help="Answers written by `holdfast explain --out FILE.parquet`.")],
    data: Annotated[
        Path | None, typer.Option("--data", help="Training rows with their outcome, to retrain models on.")
    ] = None,
    recipe: Annotated[
        Path | None, typer.Option("--recipe", help="How the model is made (TOML): hidden, epochs, batch_size, lr.")
    ] = None,
    families: Annotated[
        str | None, typer.Option("--families", help=f"What is varied and how often; default {FAMILIES}.")
    ] = None,
    tables: Annotated[
        list[str] | None,
        typer.Option("--table", help="NAME=FILE: also a model made from this other data; may be repeated."),
    ] = None,
    outcome: Annotated[
        str | None, typer.Option("--outcome", help="The column of --data that holds the outcome, if it is not clear.")
    ] = None,
    bank: Annotated[
        Path | None, typer.Option("--bank", help="Use the models in this file instead of retraining.")
    ] = None,
    save_bank: Annotated[Path | None, typer.Option("--save-bank", help="Keep the retrained models here.")] = None,
    at_least: Annotated[
        float, typer.Option("--at-least", help="The share of retrained models a certificate speaks of.")
    ] = 0.95,
    confidence: Annotated[float, typer.Option("--confidence", help="How sure a certificate is.")] = 0.95,
    seed: Annotated[int, typer.Option("--seed", help="Where the retrained models' randomness comes from.")] = 0,
    out: Annotated[Path | None, typer.Option("--out", help="Where the table goes: .csv, .json or .parquet.")] = None,
    plot: Annotated[
        Path | None, typer.Option("--plot", help="Also draw survival against cost: .png, .svg or .html.")
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with 3 if some answer is not certified.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Nothing on stderr but errors.")] = False,
) -> None:
    """Check answers against retrained models: survival with exact intervals, and certificates."""
    import holdfast as hf
    from holdfast.render.charts.theme import EXTENSIONS
    from holdfast.render.charts.theme import save as save_chart

    if bank:
        refuse_beside_bank({"--data": data, "--recipe": recipe, "--table": tables, "--families": families})
    if plot and plot.suffix.lower() not in EXTENSIONS:
        raise FileError(f"cannot write {str(plot)!r}: the extension must be one of {', '.join(EXTENSIONS)}")
    if out:
        hf.datasets.known_extension(out, "write")
    cfs = hf.Counterfactuals.load(answers)
    if bank:
        models = hf.ModelBank.load(bank)
    else:
        wanted = FAMILIES if families is None else families
        models = retrained(cfs, data, recipe, wanted, tables or [], outcome, seed, quiet)
    if save_bank:
        models.save(save_bank)
    found = hf.audit(cfs, models, progress=not quiet)
    table = found.table(confidence=confidence)
    table["certified"] = found.certified(at_least=at_least, confidence=confidence)
    if out:
        hf.datasets.write_table(table, out, index=True)
    elif sys.stdout.isatty():
        typer.echo(table.head(MOST_ROWS).to_string(float_format=lambda v: f"{v:.3f}"))
    else:
        typer.echo(found.to_json(at_least=at_least, confidence=confidence))
    if plot:
        save_chart(found.plot(at_least=at_least, confidence=confidence), plot)
    if not quiet:
        typer.echo(words(found, at_least, confidence), err=True)
    if strict and not table["certified"][cfs.found].all():
        raise typer.Exit(3)


def refuse_beside_bank(options: dict[str, Any]) -> None:
    """Raise an error for the first option that says how to retrain: with --bank nothing is retrained."""
    for name, value in options.items():
        if value is not None and value != []:
            raise SettingError(
                f"with --bank FILE nothing is retrained, so {name} cannot be heeded; leave one of them out"
            )


def words(found: "hf.Audit", at_least: float, confidence: float) -> str:
    """The audit in a few lines."""
    from holdfast.evaluation.audit import models_needed

    sure, answers = found.certified(at_least=at_least, confidence=confidence), int(found.cfs.found.sum())
    lines = [repr(found)]
    what = f"at least {percent(at_least)} of retrained models accept them, with {percent(confidence)} confidence"
    lines.append(f"{int(sure.sum())} of {answers} answers are certified: {what}")
    needed = models_needed(at_least, confidence)
    if len(found.held) < needed:
        lines.append(f"a certificate at this level needs at least {needed} models; the bank has {len(found.held)}")
    return "\n".join(lines)


def percent(share: float) -> str:
    """0.995 -> '99.5%'"""
    return f"{100 * share:g}%"


def retrained(
    cfs: "hf.Counterfactuals",
    data: Path | None,
    recipe: Path | None,
    families: str,
    tables: Sequence[str],
    outcome: str | None,
    seed: int,
    quiet: bool,
) -> "hf.ModelBank":
    """The bank that the options describe."""
    import holdfast as hf

    if recipe is None or (data is None and not tables):
        raise SettingError("give --data FILE and --recipe FILE to retrain models, or --bank FILE to use those you have")
    how, wanted, named = hf.Recipe.load(recipe), parsed_families(families), parsed_tables(tables)
    banks = list["hf.ModelBank"]()
    if data is not None:
        X, y = labelled(cfs, data, outcome)
        banks.append(
            hf.ModelBank.retrain(
                how, X, y, cfs.schema, families=wanted, classes=cfs.classes, seed=seed, progress=not quiet
            )
        )
    if named:
        others = {name: labelled(cfs, file, outcome) for name, file in named.items()}
        banks.append(hf.ModelBank.from_tables(how, others, cfs.schema, classes=cfs.classes, seed=seed))
    return banks[0].join(*banks[1:])


def labelled(cfs: "hf.Counterfactuals", path: Path, outcome: str | None) -> tuple["pd.DataFrame", "pd.Series[Any]"]:
    """The rows of a file and their outcomes."""
    import holdfast as hf

    rows = hf.datasets.read_table(path)
    name = outcome or only_outcome(rows, cfs.schema.names, path)
    if name not in rows.columns:
        raise FileError(f"{str(path)!r} has no column {name!r}")
    if name in cfs.schema.names:
        raise SettingError(f"{name!r} is a feature, so it cannot be the outcome")
    rows = hf.datasets.read_table(path, _with_outcome(cfs.schema, rows, name))
    y = as_classes(rows.pop(name), cfs.classes)
    return rows[cfs.schema.names], y


def _with_outcome(schema: "hf.Schema", rows: "pd.DataFrame", name: str) -> "hf.Schema":
    """The schema to read the file with: the answers' own, and the outcome as it was guessed."""
    import holdfast as hf

    return hf.Schema((*schema.features, *hf.Schema.infer(rows[[name]].astype(str)).features))


def only_outcome(rows: "pd.DataFrame", known: list[str], path: Path) -> str:
    """The one column that is no feature."""
    extra = [str(name) for name in rows.columns if name not in known]
    if len(extra) != 1:
        what = f"the columns {extra}" if extra else "no column"
        raise SettingError(f"{str(path)!r} has {what} besides the features; name the outcome with --outcome COLUMN")
    return extra[0]


def as_classes(y: "pd.Series[Any]", classes: tuple[Any, ...]) -> "pd.Series[Any]":
    """Outcomes as the model's own classes, which may be numbers where the file has texts."""
    known = {str(c): c for c in classes}
    strange = sorted({str(v) for v in y.unique()} - set(known))
    if strange:
        raise SettingError(f"the outcome has the value {strange[0]!r}; the model's classes are {list(classes)}")
    return y.astype(str).map(known)


def parsed_families(text: str) -> dict[str, int]:
    """'seed=100,leave_one_out=20' -> numbers by name."""
    out = dict[str, int]()
    for part in text.split(","):
        name, equals, count = part.strip().partition("=")
        if not equals or not count.strip().isdigit():
            raise SettingError(f"--families takes NAME=COUNT,NAME=COUNT, got {part.strip()!r}")
        if name.strip() in out:
            raise SettingError(f"--families names {name.strip()!r} twice; give each family one count")
        out[name.strip()] = int(count)
    return out


def parsed_tables(parts: Sequence[str]) -> dict[str, Path]:
    """['2007=old.csv', '2008=new.csv'] -> files by name."""
    out = dict[str, Path]()
    for part in parts:
        name, _, file = part.partition("=")
        if not name or not file:
            raise SettingError(f"--table takes NAME=FILE, got {part!r}")
        if name in out:
            raise SettingError(f"--table names {name!r} twice; give each file a name of its own")
        out[name] = Path(file)
    return out
