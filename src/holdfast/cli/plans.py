"""`holdfast plans`: for every row of a table the cheapest change that holds when the model is
retrained."""

import shutil
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from holdfast._core.checks import did_you_mean
from holdfast.cli.options import (
    CLASSES,
    DOWN,
    FIXED,
    PROBABILITY,
    QUIET,
    REPORT,
    SEED,
    TRUST,
    UNANSWERED,
    UP,
    argument,
    option,
    refuse,
    strict_if,
    wanted,
)
from holdfast.cli.output import (
    MOST_ROWS,
    check_report,
    check_table,
    check_writable,
    echo,
    printable,
    say,
)
from holdfast.errors import FileError, SettingError
from holdfast.registry import split_names

if TYPE_CHECKING:
    import pandas as pd

    import holdfast as hf

WIDEST = 120  # letters of a table on the terminal


def plans(
    table: Path = argument("TABLE", "People to make plans for: a CSV, JSON or Parquet file."),
    model: Path | None = option(
        "asked", "FILE", "Model file: safetensors, skops, XGBoost, LightGBM or ONNX."
    ),
    target: str | None = option(
        "asked",
        "NAME",
        "Wanted class; default: any but the current one; for a regression model a range, such "
        "as 200..250.",
    ),
    probability: float | None = PROBABILITY,
    hold: float | None = option(
        "asked", "SHARE", "Share of retrained models that must accept a plan; default: 0.95."
    ),
    confidence: float | None = option(
        "asked", "SHARE", "Confidence level of the certificates; default: 0.95."
    ),
    classes: list[str] | None = CLASSES,
    trust: bool = TRUST,
    data: Path | None = option("table", "TABLE", "Training rows with their outcome."),
    outcome: str | None = option("table", "COLUMN", "Column of --data that holds the outcome."),
    time: str | None = option(
        "table",
        "COLUMN",
        "Column of --data that says how old rows are; models of earlier data then guide too.",
    ),
    groups: str | None = option(
        "table",
        "COLUMN",
        "Column of --data that says which rows belong together, such as those of one person.",
    ),
    weight: str | None = option(
        "table", "COLUMN", "Column of --data with the weights that rows had in training."
    ),
    schema: Path | None = option(
        "table",
        "FILE",
        "Schema: what may change (TOML); default: in the model file, or inferred from --data.",
    ),
    fixed: list[str] | None = FIXED,
    up: list[str] | None = UP,
    down: list[str] | None = DOWN,
    recipe: Path | None = option(
        "retraining",
        "FILE",
        "Recipe of the model (TOML); default: as the model file says, or the usual settings.",
    ),
    family: str | None = option(
        "retraining",
        "NAME",
        "Judges: stretch or fresh, for models of new data; retrain, for models of the same "
        "table; default: auto.",
    ),
    models: str | None = option(
        "retraining",
        "LIST",
        "Models that guide, choose and audit, such as guide=40,calibration=100,audit=100.",
    ),
    workers: int | None = option(
        "retraining", "N", "Models to retrain at once; default: one per core."
    ),
    cache: Path | None = option(
        "retraining", "DIR", "Keep the retrained models here, and reuse those it has."
    ),
    start: Path | None = option(
        "retraining",
        "DIR",
        "Start from a folder written by --save, in place of --model.",
        None,
        "--from",
    ),
    seed: int = SEED,
    out: Path | None = option(
        "output",
        "FILE",
        "Plans as Parquet (with provenance), JSON or CSV; default: stdout.",
    ),
    report: Path | None = REPORT,
    save: Path | None = option(
        "output", "DIR", "Save the model and the retrained models, for --from."
    ),
    strict: bool = strict_if("somebody has no certified plan"),
    quiet: bool = QUIET,
) -> None:
    """Find, for every row of TABLE, the cheapest change that still holds when the model is
    retrained."""
    if quiet:
        warnings.simplefilter("ignore")
    check_table(out)
    check_report(report)
    check_writable(out, report, None if save is None or save.is_dir() else save)
    if save is not None:
        from holdfast.plans.folder import check_place

        check_place(save)
    # a folder of --save settles all of these, so with --from they would have no effect
    of_models: dict[str, Any] = {
        "--model": model,
        "--hold": hold,
        "--confidence": confidence,
        "--classes": classes,
        "--schema": schema,
        "--fixed": fixed,
        "--up": up,
        "--down": down,
        "--recipe": recipe,
        "--models": models,
        "--time": time,
        "--groups": groups,
        "--weight": weight,
        "--family": family,
        "--cache": cache,
        "--outcome": outcome,
        "--trust-model-code": trust,
    }
    if start is not None:
        recourse = stored(start, of_models, data, quiet)
    else:
        recourse = fresh(of_models, data, seed, workers, quiet)
    found = recourse.plans(*question(recourse, table, target, probability))
    deliver(found, out, report, quiet)
    if save is not None:
        recourse.save(save)
    if strict and somebody_has_none(found):
        raise typer.Exit(UNANSWERED)


def stored(start: Path, of_models: dict[str, Any], data: Path | None, quiet: bool) -> "hf.Recourse":
    """What a folder of --save has; an error where an option is given that it settles."""
    import holdfast as hf

    refuse(
        of_models,
        "the folder of --from has the model and all that was made for it, so {} has no effect",
    )
    loaded = hf.Recourse.load(start)
    return hf.Recourse(
        loaded.model,
        None if data is None else hf.datasets.read_table(data, loaded.schema),
        hold=loaded.hold,
        confidence=loaded.confidence,
        banks=loaded.banks,
        seed=loaded.seed,
        progress=not quiet,
    )


def question(
    recourse: "hf.Recourse", table: Path, target: str | None, probability: float | None
) -> "tuple[pd.DataFrame, hf.Target]":
    """Who is asked about, and what is wanted for them."""
    import holdfast as hf

    classes = recourse.model.classes
    if target is None and classes:
        asked = hf.Target(probability=probability)
    else:
        asked = wanted(classes, target, False, probability)
    return hf.datasets.read_table(table, recourse.schema), asked


def somebody_has_none(found: "hf.Plans") -> bool:
    """Is there a person with neither a certified plan nor what was wanted already?"""
    import holdfast as hf

    met = found.cfs.status_codes == hf.Status.ALREADY_MET
    return not (found.certified.to_numpy() | met).all()


def fresh(
    of_models: dict[str, Any],
    data: Path | None,
    seed: int,
    workers: int | None,
    quiet: bool,
) -> "hf.Recourse":
    """All that plans are made with, from a model file and the rows that it learnt from.

    Args:
        of_models: the options about the model and how it is made again, by name.
        data: the file of the rows.
    """
    import holdfast as hf
    from holdfast.auditing.audit import models_needed

    hold = 0.95 if of_models["--hold"] is None else of_models["--hold"]
    confidence = 0.95 if of_models["--confidence"] is None else of_models["--confidence"]
    # an error before any work if they are not shares
    models_needed(hold, confidence)
    # columns that say how old rows are, which belong together, and how much they count
    beside = {
        "time": of_models["--time"],
        "groups": of_models["--groups"],
        "sample_weight": of_models["--weight"],
    }
    beside = {what: name for what, name in beside.items() if name}
    model, X, y, values = read(of_models, data, beside)
    recipe = of_models["--recipe"]
    banks = hf.Banks(
        recipe=None if recipe is None else hf.Recipe.load(recipe),
        family=of_models["--family"] or "auto",
        models=counts(of_models["--models"]),
        cache=of_models["--cache"],
        workers=workers,
        **values,
    )
    words = ("fixed", "up", "down")
    changed = {word: split_names(of_models[f"--{word}"]) for word in words}
    settings: dict[str, Any] = {word: names for word, names in changed.items() if names}
    return hf.Recourse(
        model,
        X,
        y,
        hold=hold,
        confidence=confidence,
        banks=banks,
        seed=seed,
        progress=not quiet,
        **settings,
    )


def read(
    of_models: dict[str, Any], data: Path | None, beside: dict[str, str]
) -> "tuple[hf.Model, pd.DataFrame, pd.Series[Any], dict[str, Any]]":
    """The model, its training rows, their outcomes, and what else is known of each row.

    Where neither the model file nor an option says what may change, the schema is read off the
    rows, as the model takes them.
    """
    import holdfast as hf
    from holdfast.models.formats.inspect import as_taken, inspect

    model: Path | None = of_models["--model"]
    if model is None or data is None:
        raise SettingError(
            "give --model FILE and --data FILE, the rows that it was trained on; or --from DIR"
        )
    outcome: str | None = of_models["--outcome"]
    given = None if of_models["--schema"] is None else hf.Schema.load(of_models["--schema"])
    if given is None and not inspect(model)["schema"]:
        rows = hf.datasets.read_table(data)
        kept = (check_outcome(rows, outcome, data), *beside.values())
        rows = as_taken(rows, model, kept)
        given = hf.Schema.infer(rows.drop(columns=[name for name in kept if name in rows.columns]))
    classes = split_names(of_models["--classes"]) or None
    loaded = hf.Model.load(model, given, trust=of_models["--trust-model-code"], classes=classes)
    rows = hf.datasets.read_table(data, loaded.schema)
    X, y = labelled(data, outcome, rows, loaded)
    values = {
        what: rows[check_column(rows, name, data)].to_numpy() for what, name in beside.items()
    }
    return loaded, X, y, values


def check_outcome(rows: "pd.DataFrame", outcome: str | None, data: Path) -> str:
    """The name of the column that holds the outcome."""
    if outcome is None:
        raise SettingError("say which column of --data holds the outcome: --outcome COLUMN")
    return check_column(rows, outcome, data)


def check_column(rows: "pd.DataFrame", name: str, data: Path) -> str:
    """The name of a column that is there."""
    if name not in rows.columns:
        raise FileError(f"{str(data)!r} has no column {name!r}; {did_you_mean(name, rows.columns)}")
    return name


def labelled(
    data: Path, outcome: str | None, rows: "pd.DataFrame", model: "hf.Model"
) -> "tuple[pd.DataFrame, pd.Series[Any]]":
    """The features and the outcomes of the training rows, named as the model's classes."""
    from holdfast.datasets.labelled import as_classes

    name = check_outcome(rows, outcome, data)
    features = rows[[column for column in model.schema.names if column in rows.columns]]
    y = rows[name]
    if name in model.schema.names:
        raise SettingError(f"{name!r} is a feature of the schema, so it cannot be the outcome")
    if model.is_regression:
        return features, y
    learnt: Any = getattr(getattr(model, "wrapped", None), "classes_", None)
    return features, as_classes(
        y, model.classes, range(len(model.classes)) if learnt is None else learnt
    )


def counts(text: str | None) -> dict[str, int]:
    """'guide=20,audit=60' -> how many models of each part."""
    from holdfast.retraining.families import parsed_families

    return {} if text is None else parsed_families(text, "--models")


# ---- where they go


def deliver(found: "hf.Plans", out: Path | None, report: Path | None, quiet: bool) -> None:
    """To the files, or to stdout: a table for eyes, JSON for programs."""
    if out is not None:
        found.save(out)
    elif sys.stdout.isatty():
        width = min(WIDEST, shutil.get_terminal_size((100, 24)).columns)
        echo(printable(found.describe(most=MOST_ROWS, width=width)))
    else:
        echo(found.to_json())
    if report is not None:
        found.report(report)
    if not quiet and (out is not None or not sys.stdout.isatty()):
        say(found.summary())
