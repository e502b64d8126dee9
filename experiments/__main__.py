"""`python -m experiments black2022 --quick`: the experiments of a paper, run again."""

import json
import sys
from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer

from experiments import PAPERS
from holdfast.cli.main import run_app

QUICK_ROWS = 200
# What a paper is stands in the first line of its package, which imports nothing.
LISTED = "\n\n".join(
    ["Papers:", *(f"{paper}: {import_module(f'experiments.{paper}').__doc__}" for paper in PAPERS)]
)
app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command(epilog=LISTED)
def reproduce(
    paper: Annotated[
        str, typer.Argument(help="Which paper, by its citation; they are listed below.")
    ],
    dataset: Annotated[
        list[str] | None,
        typer.Option("--dataset", help="One of its datasets; repeat for several. Left out: all."),
    ] = None,
    quick: Annotated[
        bool,
        typer.Option(
            "--quick",
            help="A small dataset (mostly German Credit), at most 200 rows and 20 models.",
        ),
    ] = False,
    models: Annotated[
        int | None,
        typer.Option(
            "--models",
            min=1,
            help="Retrained models a family, repeats or test sets. Left out: the paper's.",
        ),
    ] = None,
    rows: Annotated[
        int | None, typer.Option("--rows", min=1, help="Test rows; left out: all.")
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="Where all random numbers come from.")] = 0,
    out: Annotated[
        Path,
        typer.Option(
            "--out", help="Directory of the results; those of a part go to `partial` in it."
        ),
    ] = Path("experiments/results"),
    work: Annotated[
        Path,
        typer.Option(
            "--work", help="Directory of what is done so far; a run that was stopped goes on there."
        ),
    ] = Path(".holdfast-bench"),
) -> None:
    """Run a paper's experiments again: reported beside measured, as JSON and markdown."""
    from experiments import run
    from experiments.experiment import load_experiment

    experiment = load_experiment(paper)
    datasets = dataset or ([experiment.quick] if quick else [])
    if quick:
        models = min(models or experiment.quick_models, experiment.quick_models)
        rows = min(rows or QUICK_ROWS, QUICK_ROWS)
        out = out / "quick"
    elif models not in (None, experiment.models) or (rows, seed) != (None, run.FULL_SEED):
        out = out / "partial"  # full results stay as they are

    def report(cell: str) -> None:
        if sys.stderr.isatty():
            typer.echo(cell, err=True)

    results = run.reproduce(
        experiment, datasets, out=out, work=work, models=models, rows=rows, seed=seed, report=report
    )
    if sys.stdout.isatty():
        typer.echo((out / paper / "README.md").read_text(encoding="utf-8"))
    else:
        typer.echo(json.dumps(results, indent=1, allow_nan=False))


if __name__ == "__main__":
    sys.exit(run_app(app, "python -m experiments"))
