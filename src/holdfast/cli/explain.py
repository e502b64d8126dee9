"""`holdfast explain`: for every row of a table, or every image, the change that gets the wanted class."""

import sys
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from holdfast.cli import images as cli_images
from holdfast.cli.options import (
    ASKED,
    IMAGES,
    METHOD,
    MOST_ROWS,
    OUTPUT,
    UNANSWERED,
    Quiet,
    Seed,
    Settings,
    check_report,
    check_table,
    check_writable,
    echo,
    option,
    print_json,
    print_rich,
    printable,
    refuse,
    say,
    wanted,
)
from holdfast.errors import SettingError
from holdfast.registry import build_method, default_method, split_names

if TYPE_CHECKING:
    import pandas as pd

    import holdfast as hf


@dataclass(frozen=True)
class Question:
    """What is asked of which model, how to search, and where the answers go: the same for tables and images."""

    table: Path
    model: Path
    target: str | None
    any_other: bool
    probability: float | None
    method: str | None
    settings: list[str]
    data: Path | None
    seed: int
    time_budget: float | None
    batch_size: int | None
    out: Path | None
    report: Path | None
    quiet: bool


def explain(
    table: Annotated[
        Path,
        typer.Argument(metavar="TABLE", help="People to answer: a CSV, JSON or Parquet file; or images: an NPZ file."),
    ],
    model: Annotated[
        Path, option(ASKED, "--model", "FILE", "The model: safetensors, ONNX, skops, XGBoost or LightGBM.")
    ],
    schema: Annotated[
        Path | None,
        option(ASKED, "--schema", "FILE", "What may change (TOML); left out: the one in the model file."),
    ] = None,
    classes: Annotated[
        list[str] | None,
        option(
            ASKED, "--classes", "LIST",
            "Names of the model's classes in the order of its scores, such as denied,approved.",
        ),
    ] = None,
    target: Annotated[
        str | None,
        option(
            ASKED, "--target", "NAME",
            "The class that is wanted; of images also: all; of a regression model a range, such as 200..250.",
        ),
    ] = None,
    any_other: Annotated[
        bool, option(ASKED, "--any-other", None, "Any class but the present one is wanted.")
    ] = False,
    probability: Annotated[
        float | None, option(ASKED, "--probability", "P", "How likely the model must find the wanted class.")
    ] = None,
    trust_model_code: Annotated[
        bool, option(ASKED, "--trust-model-code", None, "Load files that can run code; only your own.")
    ] = False,
    method: Annotated[
        str | None,
        option(
            METHOD, "--method", "NAME",
            "How to search; left out: the recourse network in the model file, else min-cost, or tree-search if "
            "the model has no gradients; for images deduce.",
        ),
    ] = None,
    settings: Settings = None,
    data: Annotated[
        Path | None, option(METHOD, "--data", "TABLE", "Training rows, for methods that look at data.")
    ] = None,
    seed: Seed = 0,
    time_budget: Annotated[
        float | None, option(METHOD, "--time-budget", "S", "Seconds; rows still open then stay unanswered.")
    ] = None,
    batch_size: Annotated[
        int | None,
        option(
            METHOD, "--batch-size", "N",
            "Rows searched at once; answers do not change. Default: 1024, of images 128.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        option(
            OUTPUT, "--out", "FILE",
            "Write the answers as CSV, JSON or Parquet (with provenance); left out: print them.",
        ),
    ] = None,
    report: Annotated[
        Path | None, option(OUTPUT, "--report", "FILE.html", "Write a page with plots as well.")
    ] = None,
    strict: Annotated[bool, option(OUTPUT, "--strict", None, "Exit with 3 if some row has no answer.")] = False,
    quiet: Quiet = False,
    grid: Annotated[
        Path | None, option(IMAGES, "--grid", "FILE", "Draw images, counterfactuals and differences.")
    ] = None,
    locked: Annotated[
        Path | None, option(IMAGES, "--locked", "FILE.npy", "Pixels that may not change: true where nothing may.")
    ] = None,
    first: Annotated[int | None, option(IMAGES, "--first", "N", "Only the first N images.")] = None,
) -> None:  # fmt: skip
    """Find, for every row of TABLE, the change that gets the wanted class."""
    if quiet:
        warnings.simplefilter("ignore")
    question = Question(
        table, model, target, any_other, probability, method, settings or [], data, seed, time_budget, batch_size, out,
        report, quiet,
    )  # fmt: skip
    if cli_images.wants_images(table, model):
        of_tables = {"--schema": schema, "--classes": classes, "--trust-model-code": trust_model_code}
        refuse(of_tables, "is for models of tables, not of images")
        unanswered = cli_images.explain(question, locked=locked, first=first, grid=grid)
    else:
        of_images = {"--grid": grid, "--locked": locked, "--first": first}
        refuse(of_images, f"is for models of images, and {str(model)!r} is none")
        unanswered = explain_table(question, schema, split_names(classes), trust_model_code)
    if strict and unanswered:
        raise typer.Exit(UNANSWERED)


def explain_table(question: Question, schema: Path | None, classes: list[str], trust: bool) -> int:
    """Find answers for the rows of a table, write and print them; returns how many rows have none."""
    import holdfast as hf

    q = question
    check_table(q.out)
    check_report(q.report)
    check_writable(q.out, q.report)
    # What is wrong with a method is told before the model is loaded, on which the default one depends.
    named = None if q.method is None else build_method(q.method, q.settings)
    model = hf.Model.load(q.model, hf.Schema.load(schema) if schema else None, trust=trust, classes=classes or None)
    method = default_method(model, q.model) if q.method is None else q.method
    if q.method is None and method == "learned-recourse" and not q.quiet:
        say(f"note: {str(q.model)!r} holds a recourse network, which answers; --method NAME searches instead")
    explainer = build_method(method, q.settings) if named is None else named
    if isinstance(explainer, hf.LearnedRecourse) and not explainer.path:
        explainer.path = str(q.model)
    target = wanted(model.classes, q.target, q.any_other, q.probability)
    people = hf.datasets.read_table(q.table, model.schema)
    fit_on(q.data, explainer, method, model)
    cfs = explainer.explain(
        model, people, target, seed=q.seed, batch_size=1024 if q.batch_size is None else q.batch_size,
        time_budget=q.time_budget, progress=not q.quiet,
    )  # fmt: skip
    deliver(cfs, q.out)
    if q.report:
        cfs.report(q.report)
    if not q.quiet:
        say(cfs.summary())
    return int((cfs.status_codes == hf.Status.NOT_FOUND).sum())


def fit_on(data: Path | None, explainer: "hf.Explainer", method: str, model: "hf.Model") -> None:
    """Give a method that looks at data its data, without the columns (such as the outcome) no applicant has."""
    if not explainer.needs_data and not (data and explainer.uses_data):
        if data:
            warnings.warn(f"method {method!r} looks at no data, so --data is not used", stacklevel=2)
        return
    if data is None:
        raise SettingError(f"method {method!r} looks at data; give it training rows with --data FILE")
    import holdfast as hf

    rows = hf.datasets.read_table(data, model.schema)
    extra = [name for name in rows.columns if name not in model.schema.names]
    if extra:
        warnings.warn(f"columns of {str(data)!r} that the schema does not know are left out: {extra}", stacklevel=2)
    explainer.fit(model, rows.drop(columns=extra))


# ---- what is printed


def deliver(cfs: "hf.Counterfactuals", out: Path | None) -> None:
    """To the file, or to stdout: as a table for eyes, as JSON for programs."""
    import holdfast as hf

    if out is None and sys.stdout.isatty():
        print_changes(cfs, MOST_ROWS)
    elif out is None:
        print_json(hf.datasets.records(cfs.to_table()))
    else:
        cfs.save(out)


def print_changes(cfs: "hf.Counterfactuals", most: int) -> None:
    """Only what changes, and the same in words, for the first rows."""
    from rich.table import Table
    from rich.text import Text

    from holdfast.target import IntervalTarget

    values: list[float] = cfs.goal.confidence(cfs.scores).numpy().tolist()
    outcome = cfs.goal.numbers(values) if isinstance(cfs.goal, IntervalTarget) else [f"{p:.2f}" for p in values]
    name = "estimate" if cfs.is_regression else "probability"
    table = Table("row", "what changes", "in words", name, show_lines=True)
    sentences = cfs.sentences().tolist()
    for i in range(min(len(cfs), most)):
        changes = changed_cells(cfs.before, cfs.after, i) if cfs.found[i] else []
        cells = str(cfs.source[i]), "\n".join(changes) or "-", sentences[i], outcome[i]
        table.add_row(*(Text(printable(cell)) for cell in cells))  # as Text: a level "[red]" is no markup
    print_rich(table)
    if len(cfs) > most:
        echo(f"The first {most} of {len(cfs):,} rows.")


def changed_cells(before: "pd.DataFrame", after: "pd.DataFrame", row: int) -> list[str]:
    """'duration: 36 → 24' for every value of a row that changes."""
    out: list[str] = []
    for i, name in enumerate(after.columns):
        was, now = cast(Any, before[name].iat[row]), cast(Any, after.iat[row, i])
        if str(was) != str(now):
            out.append(f"{name}: {_short(was)} → {_short(now)}")
    return out


def _short(value: Any) -> str:
    return f"{value:.10g}" if isinstance(value, float) else str(value)
