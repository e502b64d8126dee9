"""What training on a table has in common, whatever is trained: the rows, the files, the report."""

import shlex
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from holdfast.cli.output import print_report
from holdfast.cli.train._command import Given
from holdfast.registry import split_names

if TYPE_CHECKING:
    import pandas as pd

    import holdfast as hf
    from holdfast.training.by_name import Trainer

    Model = hf.Model | hf.CounterNet

# of the history
SHOWN = ("accuracy", "validation", "matured", "divergence", "ridge", "adversarial")


def train(kind: str, trainer: "Trainer", given: Given) -> None:
    """Train on a table, write what is asked for, and report."""
    if given.quiet:
        warnings.simplefilter("ignore")
    given.check()
    import holdfast as hf

    # Rows held out are measured on and, where a trainer watches them, never learnt from.
    X, y, schema = labelled(given.table, given.target, given.schema, split_names(given.fixed))
    learn, rest = hf.datasets.held_out(len(X), given.test, given.seed)
    unseen = X.iloc[rest], y.iloc[rest]
    start = time.perf_counter()
    trained = trainer.fit((X.iloc[learn], y.iloc[learn]), schema, unseen, not given.quiet)
    seconds = time.perf_counter() - start
    trained.model.save(given.out)
    if given.recipe:
        trainer.audit_recipe().save(given.recipe)
    report = {
        "kind": kind,
        "model": str(given.out),
        "rows": len(learn),
        "test_rows": len(rest),
        "seconds": round(seconds, 3),
    }
    report |= measured(trained.model, *unseen)
    if trained.history is not None:
        report |= write_history(trained.history, given.history, given.plot)
    print_report(report, report_in_words)
    if not given.quiet:
        typer.echo(f"next: {next_command(given.out, trained.model)}", err=True)


def labelled(
    path: Path, target: str, schema: Path | None, fixed: Sequence[str]
) -> "tuple[pd.DataFrame, pd.Series[Any], hf.Schema]":
    """The rows of a file, their outcomes, and the schema, with some columns fixed."""
    import holdfast as hf

    given = None if schema is None else hf.Schema.load(schema)
    X, y, read = hf.datasets.read_labelled(path, target, given)
    return X, y, read.change(**{name: {"change": "fixed"} for name in fixed})


def measured(model: "Model", X: "pd.DataFrame", y: "pd.Series[Any]") -> dict[str, Any]:
    """Accuracy on rows held out; for a recourse network also how many answers get another class,
    and their cost."""
    import numpy as np

    import holdfast as hf

    if not len(X):
        return {}
    predicted: Any = model.predict(X)
    out = {"accuracy": float((np.asarray(predicted) == y.to_numpy()).mean())}
    if isinstance(model, hf.CounterNet):
        cfs = model.recourse(X)
        out["validity"] = float(cfs.found.mean())
        if cfs.found.any():
            out["cost_l1"] = float(cfs.cost("l1").mean())
    return out


def write_history(table: "pd.DataFrame", history: Path | None, plot: Path | None) -> dict[str, Any]:
    """Write what is asked for of the history; for the report, where it is, and the first and the
    last epoch."""
    import holdfast as hf
    from holdfast.render.charts.theme import save
    from holdfast.render.charts.training import training_curves

    if history:
        hf.datasets.write_table(table, history)
    if plot:
        save(training_curves(table), plot)
    first, last = hf.datasets.records(table.iloc[[0, -1]][["epoch", *SHOWN]])
    files = {name: str(path) for name, path in (("history", history), ("plot", plot)) if path}
    return {"first": first, "last": last} | files


def right_about(report: dict[str, Any], what: str) -> list[str]:
    """A sentence about the accuracy on rows or images held out, if there were any."""
    if "accuracy" not in report:
        return []
    held_out = f"{report[f'test_{what}']:,} {what} held out"
    return [f"on {held_out}: right about {report['accuracy']:.1%}"]


def report_in_words(report: dict[str, Any]) -> str:
    """The report in a few lines."""
    lines = [
        f"{report['kind']} trained on {report['rows']:,} rows in {report['seconds']:.1f} s: "
        f"{report['model']}"
    ]
    lines += right_about(report, "rows")
    if "validity" in report:
        cost = f", at an l1 cost of {report['cost_l1']:.2f}" if "cost_l1" in report else ""
        lines.append(f"recourse gets another class for {report['validity']:.1%} of them{cost}")
    if "first" in report:
        first = report["first"]
        last = report["last"]
        cells = [("", f"epoch {first['epoch']}", f"epoch {last['epoch']}")]
        cells += [
            (name, _figure(first[name]), _figure(last[name]))
            for name in SHOWN
            if last[name] is not None
        ]
        lines += [f"{name:<12}{a:>10}{b:>12}".rstrip() for name, a, b in cells]
        lines += [f"{name}: {report[name]}" for name in ("history", "plot") if name in report]
    return "\n".join(lines)


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def next_command(out: Path, model: "Model") -> str:
    """What to type next, ready to be pasted into a shell but for the table."""
    import holdfast as hf

    classes = model.classes_.tolist() if isinstance(model, hf.CounterNet) else model.classes
    target = ["--target", str(classes[-1])]
    return shlex.join(
        [
            "holdfast",
            "explain",
            "people.csv",
            "--model",
            str(out),
            *target,
            "--out",
            "recourse.parquet",
        ]
    )
