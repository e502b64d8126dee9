"""`python -m experiments run --minutes 60`: the experiments of the papers, run again."""

import json
import math
import sys
import tempfile
from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer

from experiments import PAPERS
from holdfast.cli.main import run_app

QUICK_ROWS = 200
FAILED = 1
app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, no_args_is_help=True)

Work = Annotated[
    Path,
    typer.Option(
        "--work", help="Directory of what is begun; a run that was stopped goes on there."
    ),
]
Which = Annotated[
    list[str] | None,
    typer.Option("--paper", help="One of the papers; repeat for several. Left out: all."),
]
WORK = Path(".holdfast-bench")


@app.callback()
def experiments() -> None:
    """The experiments of the papers: make the next missing cells, or one paper."""


@app.command()
def run(
    minutes: Annotated[
        float, typer.Option("--minutes", min=0.0, help="When to stop. Left out: at the end.")
    ] = math.inf,
    paper: Which = None,
    listing: Annotated[
        bool,
        typer.Option("--list", help="Only say what is there, what is missing and how long it is."),
    ] = False,
    work: Work = WORK,
) -> None:
    """Make the next missing cells, the most important first, and write the pages of their
    papers."""
    from experiments import runner
    from experiments.cell import Store
    from experiments.pages import write_paper
    from experiments.paper import load_paper

    papers = [load_paper(name) for name in paper or PAPERS]
    cells = [cell for one in papers for cell in one.cells()]
    store = Store()
    if listing:
        typer.echo(runner.listing(cells, store))
        return
    ran = runner.run(
        cells, store, minutes=minutes, work=work, report=lambda name: typer.echo(name, err=True)
    )
    for one in papers:
        # the page does not show the cell that is only compared
        if any(cell.paper == one.name and cell.name != one.check for cell in ran.made):
            write_paper(one, store)
    for cell, words in ran.failed:
        typer.echo(f"{cell.name} failed: {words}", err=True)
    for cell in ran.begun:
        typer.echo(f"{cell.name} is begun; the next run goes on with it", err=True)
    typer.echo(f"{len(ran.made)} cells were made; {len(ran.left)} wait for more time")
    if ran.failed:
        raise typer.Exit(FAILED)


@app.command()
def check(paper: Which = None) -> None:
    """Make one cheap cell of each paper again, and compare its digits with those that are kept."""
    from experiments import runner
    from experiments.cell import Store
    from experiments.paper import load_paper

    wrong = list[str]()
    for name in paper or PAPERS:
        one = load_paper(name)
        with tempfile.TemporaryDirectory() as folder:
            found = runner.differences(one.cell(one.check), Store(), Path(folder))
        typer.echo(f"{one.check}: {'differs' if found else 'the same digits'}")
        wrong += found
    for line in wrong:
        typer.echo(line, err=True)
    if wrong:
        raise typer.Exit(FAILED)


@app.command()
def pages(paper: Which = None) -> None:
    """Write the pages of what there is, without running anything."""
    from experiments.cell import Store
    from experiments.pages import write_paper
    from experiments.paper import load_paper

    for name in paper or PAPERS:
        typer.echo(write_paper(load_paper(name), Store()))


def reproduce(
    paper: str,
    dataset: list[str] | None,
    quick: bool,
    models: int | None,
    rows: int | None,
    seed: int,
    out: Path,
    work: Path,
) -> None:
    """A part of a paper, or its quick run, in a directory of its own; the whole paper as cells."""
    from experiments.cell import Store
    from experiments.pages import write_paper
    from experiments.paper import load_paper
    from experiments.run import FULL_SEED, reproduce
    from experiments.runner import run as make_cells
    from holdfast.errors import SettingError

    def report(name: str) -> None:
        if sys.stderr.isatty():
            typer.echo(name, err=True)

    one = load_paper(paper)
    asked = {"--dataset": dataset, "--models": models, "--rows": rows}
    asked |= {"--seed": None if seed == FULL_SEED else seed}
    given = [name for name, value in asked.items() if value is not None]
    experiment = one.experiment
    if experiment is None and given:
        raise SettingError(
            f"{paper} has no {given[0]}; its cells are as they are, "
            f"see python -m experiments run --list --paper {paper}"
        )
    if experiment is None or not (quick or given):
        folder = out / "quick" if quick else out
        store = Store(folder / "cells") if quick else Store()
        cells = one.quick() if quick and one.quick else one.cells()
        make_cells(cells, store, work=work / "quick" if quick else work, report=report)
        typer.echo(write_paper(one, store, folder).read_text(encoding="utf-8"))
        return
    if quick:
        models = min(models or experiment.quick_models, experiment.quick_models)
        rows = min(rows or QUICK_ROWS, QUICK_ROWS)
    results = reproduce(
        experiment,
        dataset or ([experiment.quick] if quick else []),
        out=out / ("quick" if quick else "partial"),
        work=work,
        models=models,
        rows=rows,
        seed=seed,
        report=report,
    )
    if sys.stdout.isatty():
        place = out / ("quick" if quick else "partial") / paper / "README.md"
        typer.echo(place.read_text(encoding="utf-8"))
    else:
        typer.echo(json.dumps(results, indent=1, allow_nan=False))


def _add(paper: str) -> None:
    """The command of one paper."""

    def command(
        dataset: Annotated[
            list[str] | None,
            typer.Option("--dataset", help="One of its datasets; repeat for several."),
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
            typer.Option("--models", min=1, help="Retrained models a family, repeats, or sets."),
        ] = None,
        rows: Annotated[
            int | None, typer.Option("--rows", min=1, help="Test rows; left out: all.")
        ] = None,
        seed: Annotated[
            int, typer.Option("--seed", help="Where all random numbers come from.")
        ] = 0,
        out: Annotated[
            Path,
            typer.Option(
                "--out", help="Directory of pages; a part goes to `partial`, or `quick`, in it."
            ),
        ] = Path("experiments/results"),
        work: Work = WORK,
    ) -> None:
        reproduce(paper, dataset, quick, models, rows, seed, out, work)

    # What a paper is stands in the first line of its package, which imports nothing.
    app.command(paper, help=import_module(f"experiments.{paper}").__doc__)(command)


for _paper in PAPERS:
    _add(_paper)


if __name__ == "__main__":
    sys.exit(run_app(app, "python -m experiments"))
