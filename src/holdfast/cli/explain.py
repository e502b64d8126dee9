"""`holdfast explain`: for every row of a table, or every image, the change that gets the wanted
class."""

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import typer

from holdfast.cli import images as cli_images
from holdfast.cli.options import QUIET, SEED, SETTINGS, UNANSWERED, argument, option, refuse, wanted
from holdfast.cli.output import (
    check_report,
    check_table,
    check_writable,
    deliver,
    echo,
    print_table,
    say,
)
from holdfast.errors import SettingError
from holdfast.registry import build_method, default_method, split_names

if TYPE_CHECKING:
    import pandas as pd

    import holdfast as hf


@dataclass(frozen=True)
class Question:
    """What is asked of which model, how to search, and where the answers go: the same for tables
    and images."""

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
    table: Path = argument(
        "TABLE", "People to answer: a CSV, JSON or Parquet file; or images: an NPZ file."
    ),
    model: Path = option(
        "asked", "FILE", "The model: safetensors, ONNX, skops, XGBoost or LightGBM.", ...
    ),
    schema: Path | None = option(
        "asked", "FILE", "What may change (TOML); left out: the one in the model file."
    ),
    classes: list[str] | None = option(
        "asked",
        "LIST",
        "Names of the model's classes in the order of its scores, such as denied,approved.",
    ),
    target: str | None = option(
        "asked",
        "NAME",
        "The class that is wanted; of images also: all; of a regression model a range, such as "
        "200..250.",
    ),
    any_other: bool = option(
        "asked", None, "Any class but the present one is wanted.", False, "--any-other"
    ),
    probability: float | None = option(
        "asked", "P", "How likely the model must find the wanted class."
    ),
    trust_model_code: bool = option(
        "asked", None, "Load files that can run code; only your own.", False, "--trust-model-code"
    ),
    method: str | None = option(
        "method",
        "NAME",
        "How to search; left out: the recourse network in the model file, else min-cost, or "
        "tree-search if the model "
        "has no gradients; for images deduce.",
    ),
    settings: list[str] | None = SETTINGS,
    data: Path | None = option("method", "TABLE", "Training rows, for methods that look at data."),
    seed: int = SEED,
    time_budget: float | None = option(
        "method", "S", "Seconds; rows still open then stay unanswered."
    ),
    batch_size: int | None = option(
        "method", "N", "Rows searched at once; answers do not change. Default: 1024, of images 128."
    ),
    out: Path | None = option(
        "output",
        "FILE",
        "Write the answers as CSV, JSON or Parquet (with provenance); left out: print them.",
    ),
    report: Path | None = option("output", "FILE.html", "Write a page with plots as well."),
    strict: bool = option(
        "output", None, "Exit with 3 if some row has no answer.", False, "--strict"
    ),
    quiet: bool = QUIET,
    grid: Path | None = option("images", "FILE", "Draw images, counterfactuals and differences."),
    locked: Path | None = option(
        "images", "FILE.npy", "Pixels that may not change: true where nothing may."
    ),
    first: int | None = option("images", "N", "Only the first N images."),
) -> None:
    """Find, for every row of TABLE, the change that gets the wanted class."""
    if quiet:
        warnings.simplefilter("ignore")
    question = Question(
        table,
        model,
        target,
        any_other,
        probability,
        method,
        settings or [],
        data,
        seed,
        time_budget,
        batch_size,
        out,
        report,
        quiet,
    )
    if cli_images.wants_images(table, model):
        of_tables = {
            "--schema": schema,
            "--classes": classes,
            "--trust-model-code": trust_model_code,
        }
        refuse(of_tables, "{} is for models of tables, not of images; leave it out")
        unanswered = cli_images.explain(question, locked=locked, first=first, grid=grid)
    else:
        of_images = {"--grid": grid, "--locked": locked, "--first": first}
        refuse(of_images, f"{{}} is for models of images, and {str(model)!r} is none; leave it out")
        unanswered = explain_table(question, schema, split_names(classes), trust_model_code)
    if strict and unanswered:
        raise typer.Exit(UNANSWERED)


def explain_table(question: Question, schema: Path | None, classes: list[str], trust: bool) -> int:
    """Find answers for the rows of a table, write and print them; returns how many rows have
    none."""
    import holdfast as hf

    q = question
    check_table(q.out)
    check_report(q.report)
    check_writable(q.out, q.report)
    # What is wrong with a method is told before the model is loaded, on which the default one
    # depends.
    named = None if q.method is None else build_method(q.method, q.settings)
    model = hf.Model.load(
        q.model, hf.Schema.load(schema) if schema else None, trust=trust, classes=classes or None
    )
    method = default_method(model, q.model) if q.method is None else q.method
    if q.method is None and method == "learned-recourse" and not q.quiet:
        say(
            f"note: {str(q.model)!r} holds a recourse network, which answers; --method NAME "
            "searches instead"
        )
    explainer = build_method(method, q.settings) if named is None else named
    if isinstance(explainer, hf.LearnedRecourse) and not explainer.path:
        explainer.path = str(q.model)
    target = wanted(model.classes, q.target, q.any_other, q.probability)
    people = hf.datasets.read_table(q.table, model.schema)
    fit_on(q.data, explainer, method, model)
    cfs = explainer.explain(
        model,
        people,
        target,
        seed=q.seed,
        batch_size=1024 if q.batch_size is None else q.batch_size,
        time_budget=q.time_budget,
        progress=not q.quiet,
    )
    return deliver(cfs, q, print_changes)


def fit_on(data: Path | None, explainer: "hf.Explainer", method: str, model: "hf.Model") -> None:
    """Give a method that looks at data its data, without the columns (such as the outcome) no
    applicant has."""
    if not explainer.needs_data and not (data and explainer.uses_data):
        if data:
            warnings.warn(
                f"method {method!r} looks at no data, so --data is not used", stacklevel=2
            )
        return
    if data is None:
        raise SettingError(
            f"method {method!r} looks at data; give it training rows with --data FILE"
        )
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
