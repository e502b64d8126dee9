"""`holdfast explain`: for every row of a table, or every image, the change that gets the wanted
class."""

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import typer

from holdfast.cli import images as cli_images
from holdfast.cli.options import (
    CLASSES,
    PROBABILITY,
    QUIET,
    REPORT,
    SEED,
    SETTINGS,
    TRUST,
    UNANSWERED,
    argument,
    option,
    refuse,
    strict_if,
    wanted,
)
from holdfast.cli.output import (
    AnswerFiles,
    check_table,
    echo,
    hand_out,
    print_table,
    say,
)
from holdfast.errors import FileError, SettingError
from holdfast.registry import build_method, default_method, split_names

if TYPE_CHECKING:
    import pandas as pd

    import holdfast as hf
    from holdfast.models.formats.safetensors import OpenedFile


@dataclass(frozen=True)
class Asked:
    """What is asked, of which model, about whom: the same for tables and images."""

    table: Path
    model: "Path | OpenedFile"  # with its header, where that says what the file holds
    target: str | None
    any_other: bool
    probability: float | None


@dataclass(frozen=True)
class Search:
    """How answers are looked for."""

    method: str | None
    settings: list[str]
    data: Path | None
    seed: int
    time_budget: float | None
    batch_size: int | None


def explain(
    table: Path = argument("TABLE", "People: CSV, JSON or Parquet; or images: an NPZ file."),
    model: Path = option(
        "asked", "FILE", "Model file: safetensors, ONNX, skops, XGBoost or LightGBM.", ...
    ),
    schema: Path | None = option(
        "asked", "FILE", "Schema: what may change (TOML); default: the one in the model file."
    ),
    classes: list[str] | None = CLASSES,
    target: str | None = option(
        "asked",
        "NAME",
        "Wanted class; for images also: all; for a regression model a range, such as 200..250.",
    ),
    any_other: bool = option(
        "asked", None, "Ask for any class but the current one.", False, "--any-other"
    ),
    probability: float | None = PROBABILITY,
    trust_model_code: bool = TRUST,
    method: str | None = option(
        "method",
        "NAME",
        "Method; default: the recourse network in the model file, else min-cost, or tree-search "
        "if the model has no gradients; for images deduce.",
    ),
    settings: list[str] | None = SETTINGS,
    data: Path | None = option("method", "TABLE", "Training rows, for methods that use data."),
    seed: int = SEED,
    time_budget: float | None = option("method", "S", "Seconds until the search gives up."),
    batch_size: int | None = option(
        "method", "N", "Rows searched at once, the same answers; default: 1024, of images 128."
    ),
    out: Path | None = option(
        "output", "FILE", "Answers as CSV, JSON or Parquet (with provenance); default: stdout."
    ),
    report: Path | None = REPORT,
    strict: bool = strict_if("some row has no answer"),
    quiet: bool = QUIET,
    grid: Path | None = option("images", "FILE", "Picture of answers and differences."),
    locked: Path | None = option("images", "FILE.npy", "Mask of pixels that may not change."),
    first: int | None = option("images", "N", "Only the first N images."),
) -> None:
    """Find, for every row of TABLE, the change that gets the wanted class."""
    if quiet:
        warnings.simplefilter("ignore")
    from holdfast.models.formats.safetensors import opened

    # The header is read once: it says what the file holds, and loading goes on from there.
    asked = Asked(
        table=table,
        model=opened(model),
        target=target,
        any_other=any_other,
        probability=probability,
    )
    search = Search(
        method=method,
        settings=settings or [],
        data=data,
        seed=seed,
        time_budget=time_budget,
        batch_size=batch_size,
    )
    files = AnswerFiles(out=out, report=report, quiet=quiet)
    if is_about_images(asked):
        of_tables = {
            "--schema": schema,
            "--classes": classes,
            "--trust-model-code": trust_model_code,
        }
        refuse(of_tables, "{} is for models of tables, not of images; leave it out")
        more = cli_images.Pictures(locked=locked, first=first, grid=grid)
        unanswered = cli_images.explain(asked, search, files, more)
    else:
        of_images = {"--grid": grid, "--locked": locked, "--first": first}
        refuse(
            of_images, f"{{}} is for models of images, and {str(model)!r} is not one; leave it out"
        )
        reading = Reading(schema=schema, classes=split_names(classes), trust=trust_model_code)
        unanswered = explain_table(asked, reading, search, files)
    if strict and unanswered:
        raise typer.Exit(UNANSWERED)


def is_about_images(asked: Asked) -> bool:
    """Is this a model of images? An error if it is one of tables and images are asked about."""
    from holdfast.models.formats.safetensors import IMAGE_MARK, metadata_of

    if IMAGE_MARK in metadata_of(asked.model):
        return True
    if asked.table.suffix.lower() in (".npz", ".npy") and Path(asked.model).is_file():
        raise FileError(
            f"{str(asked.table)!r} holds images, but {str(asked.model)!r} holds no model of "
            "images; train one with `holdfast train images`"
        )
    return False


@dataclass(frozen=True)
class Reading:
    """How the file of a model of tables is read, where it does not say so itself."""

    schema: Path | None
    classes: list[str]
    trust: bool


def explain_table(asked: Asked, reading: Reading, search: Search, files: AnswerFiles) -> int:
    """Find answers for the rows of a table, write and print them; returns how many rows have
    none."""
    import holdfast as hf
    from holdfast.models.io import load_model

    check_table(files.out)
    files.check()
    # Errors in a named method come before the model is loaded; the default method depends on
    # the model.
    named = None if search.method is None else build_method(search.method, search.settings)
    schema = None if reading.schema is None else hf.Schema.load(reading.schema)
    model = load_model(asked.model, schema, trust=reading.trust, classes=reading.classes or None)
    method = search.method or default_method(model, asked.model)
    explainer = build_method(method, search.settings) if named is None else named
    if named is None and method == "learned-recourse" and not files.quiet:
        say(
            f"note: {str(asked.model)!r} holds a recourse network, which answers; --method NAME "
            "searches instead"
        )
    if isinstance(explainer, hf.LearnedRecourse) and not explainer.path:
        explainer.read(asked.model, model)
    target = wanted(model.classes, asked.target, asked.any_other, asked.probability)
    people = hf.datasets.read_table(asked.table, model.schema)
    fit_on(search.data, explainer, method, model)
    cfs = explainer.explain(
        model,
        people,
        target,
        seed=search.seed,
        batch_size=1024 if search.batch_size is None else search.batch_size,
        time_budget=search.time_budget,
        progress=not files.quiet,
    )
    return hand_out(cfs, files, print_changes)


def fit_on(data: Path | None, explainer: "hf.Explainer", method: str, model: "hf.Model") -> None:
    """Give a method that uses data its data, without the columns that no applicant has, such as
    the outcome."""
    if not explainer.needs_data and not (data and explainer.uses_data):
        if data:
            warnings.warn(
                f"method {method!r} does not use data, so --data is not used", stacklevel=2
            )
        return
    if data is None:
        raise SettingError(f"method {method!r} uses data; give it training rows with --data FILE")
    import holdfast as hf

    rows = hf.datasets.read_table(data, model.schema)
    extra = [name for name in rows.columns if name not in model.schema.names]
    if extra:
        warnings.warn(
            f"columns of {str(data)!r} that the schema does not know are left out: {extra}",
            stacklevel=2,
        )
    explainer.fit(model, rows.drop(columns=extra))


# ---- what is printed


def print_changes(cfs: "hf.Counterfactuals", most: int) -> None:
    """Only what changes, and the same in words, for the first rows."""
    from holdfast.target import IntervalTarget

    values: list[float] = cfs.goal.value(cfs.scores).numpy().tolist()
    outcome = (
        cfs.goal.numbers(values)
        if isinstance(cfs.goal, IntervalTarget)
        else [f"{p:.2f}" for p in values]
    )
    name = "estimate" if cfs.is_regression else "probability"
    shown = zip(
        cfs.source.tolist(), cfs.found.tolist(), cfs.sentences().tolist(), outcome, strict=True
    )
    rows = [
        (
            row,
            "\n".join(changed_cells(cfs.before, cfs.after, i) if found else []) or "-",
            sentence,
            value,
        )
        for i, (row, found, sentence, value) in zip(range(most), shown, strict=False)
    ]
    print_table(["row", "what changes", "in words", name], rows, lines=True)
    if len(cfs) > most:
        echo(f"The first {most} of {len(cfs):,} rows.")


def changed_cells(before: "pd.DataFrame", after: "pd.DataFrame", row: int) -> list[str]:
    """'duration: 36 → 24' for every value of a row that changes."""
    out: list[str] = []
    for i, name in enumerate(after.columns):
        was = cast(Any, before[name].iat[row])
        now = cast(Any, after.iat[row, i])
        if str(was) != str(now):
            out.append(f"{name}: {_short(was)} → {_short(now)}")
    return out


def _short(value: Any) -> str:
    return f"{value:.10g}" if isinstance(value, float) else str(value)
