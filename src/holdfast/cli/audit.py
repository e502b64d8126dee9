"""`holdfast audit`: do answers hold on retrained models?"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import typer

from holdfast.cli.options import (
    QUIET,
    SEED,
    TABLE_OUT,
    UNANSWERED,
    argument,
    option,
    refuse,
    strict_if,
)
from holdfast.cli.output import MOST_ROWS, check_chart, check_table, echo
from holdfast.errors import SettingError

if TYPE_CHECKING:
    import pandas as pd

    import holdfast as hf

FAMILIES = "retrain=100"


def audit(
    answers: Path = argument(
        "ANSWERS", "Answers written by `holdfast explain --out FILE.parquet`."
    ),
    data: Path | None = option(
        "retraining", "TABLE", "Training rows with their outcome, to retrain models on."
    ),
    outcome: str | None = option(
        "retraining",
        "COLUMN",
        "Column of --data that holds the outcome; default: the only one that is not a feature.",
    ),
    recipe: Path | None = option(
        "retraining", "FILE", "Recipe of the model (TOML): hidden, epochs, batch_size, lr."
    ),
    families: str | None = option(
        "retraining", "LIST", f"Families of models, and how many of each; default: {FAMILIES}."
    ),
    tables: list[str] | None = option(
        "retraining",
        "NAME=FILE",
        "Also train models on this other data; repeatable.",
        None,
        "--table",
    ),
    bank: Path | None = option(
        "retraining", "FILE", "Use the models in this file; retrain nothing."
    ),
    save_bank: Path | None = option("output", "FILE", "Keep the retrained models here."),
    seed: int = SEED,
    rule: str = option(
        "measure",
        "RULE",
        "What a model must give: all that was asked for (target), or only the class (class).",
        "target",
    ),
    hold: float = option(
        "measure", "SHARE", "Share of retrained models that must accept an answer.", 0.95
    ),
    confidence: float = option("measure", "SHARE", "Confidence level of the certificates.", 0.95),
    out: Path | None = TABLE_OUT,
    plot: Path | None = option(
        "output", "FILE", "Also draw survival against cost: .png, .svg or .html."
    ),
    strict: bool = strict_if("some answer is not certified"),
    quiet: bool = QUIET,
) -> None:
    """Check answers against retrained models: survival, its exact bound, and certificates."""
    import holdfast as hf
    from holdfast.render.charts.theme import save as save_chart

    if bank:
        options = {"--data": data, "--recipe": recipe, "--table": tables, "--families": families}
        refuse(
            options,
            "with --bank FILE nothing is retrained, so {} has no effect; leave one of them out",
        )
    check_chart(plot)
    check_table(out)
    cfs = hf.Counterfactuals.load(answers)
    if bank:
        models = hf.ModelBank.load(bank)
    else:
        counts = FAMILIES if families is None else families
        models = retrained(cfs, data, outcome, recipe, counts, tables or [], seed, quiet)
    if save_bank:
        models.save(save_bank)
    found = hf.audit(cfs, models, rule=cast(Any, rule), progress=not quiet)
    table = found.table(hold=hold, confidence=confidence)
    if out:
        hf.datasets.write_table(table, out, index=True)
    elif sys.stdout.isatty():
        echo(table.head(MOST_ROWS).to_string(float_format=lambda v: f"{v:.3f}"))
    else:
        echo(found.to_json(hold=hold, confidence=confidence))
    if plot:
        save_chart(found.plot(hold=hold, confidence=confidence), plot)
    if not quiet:
        typer.echo(found.summary(hold=hold, confidence=confidence), err=True)
    # None (too few models) is not a certificate
    if strict and not all(table["certified"][cfs.answered]):
        raise typer.Exit(UNANSWERED)


def retrained(
    cfs: "hf.Counterfactuals",
    data: Path | None,
    outcome: str | None,
    recipe: Path | None,
    families: str,
    tables: Sequence[str],
    seed: int,
    quiet: bool,
) -> "hf.ModelBank":
    """The bank that the options describe."""
    import holdfast as hf
    from holdfast.retraining.families import parsed_families

    if recipe is None or (data is None and not tables):
        raise SettingError(
            "give --data FILE and --recipe FILE to retrain models, or --bank FILE to use those "
            "that you have"
        )
    # the training rows give several families, every other table one
    how = hf.Recipe.load(recipe)
    counts = parsed_families(families, "--families")
    named = parsed_tables(tables)

    def labelled(path: Path) -> "tuple[pd.DataFrame, pd.Series[Any]]":
        return hf.datasets.read_labelled(path, outcome, cfs.schema, classes=cfs.classes)[:2]

    banks = list["hf.ModelBank"]()
    if data is not None:
        more: dict[str, Any] = {
            "families": counts,
            "classes": cfs.classes,
            "seed": seed,
            "progress": not quiet,
        }
        banks.append(hf.ModelBank.retrain(how, *labelled(data), cfs.schema, **more))
    if named:
        others = {name: labelled(file) for name, file in named.items()}
        banks.append(
            hf.ModelBank.from_tables(how, others, cfs.schema, classes=cfs.classes, seed=seed)
        )
    return banks[0].join(*banks[1:])


def parsed_tables(parts: Sequence[str]) -> dict[str, Path]:
    """['2007=old.csv', '2008=new.csv'] -> files by name."""
    out = dict[str, Path]()
    for part in parts:
        name, _, file = part.partition("=")
        if not (name and file):
            raise SettingError(f"--table takes NAME=FILE, got {part!r}")
        if name in out:
            raise SettingError(f"--table names {name!r} twice; give each file a name of its own")
        out[name] = Path(file)
    return out
