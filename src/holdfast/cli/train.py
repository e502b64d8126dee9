"""`holdfast train`: a model for `holdfast explain` and `audit`, with a recourse network if wanted.

`holdfast train images` is in `holdfast.cli.images`.
"""

import shlex
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from holdfast._core.checks import did_you_mean
from holdfast.cli import images as cli_images
from holdfast.cli.options import FIXED, QUIET, SCHEMA, SEED, SETTINGS, argument, option, refuse
from holdfast.cli.output import check_chart, check_ending, check_table, check_writable, print_report
from holdfast.errors import SettingError
from holdfast.registry import split_names, split_setting
from holdfast.training import by_name

if TYPE_CHECKING:
    import pandas as pd

    import holdfast as hf

    Model = hf.Model | hf.CounterNet

KINDS = (*by_name.KINDS, "images")
# of the history
SHOWN = ("accuracy", "validation", "matured", "divergence", "ridge", "adversarial")


def train(
    kind: str = argument("KIND", f"What to train: {', '.join(KINDS)}."),
    table: Path = argument(
        "TABLE",
        "Rows with their outcome: a CSV, JSON or Parquet file; of images an NPZ file, or a "
        "dataset's name.",
    ),
    target: str | None = option(
        "table", "COLUMN", "The column that holds the outcome; images have labels instead."
    ),
    schema: Path | None = SCHEMA,
    fixed: list[str] | None = FIXED,
    test: float = option(
        "measure", "SHARE", "The share of rows held out to measure on; 0 for none.", 0.25
    ),
    settings: list[str] | None = SETTINGS,
    epochs: int | None = option("method", "N", "How often all rows are gone through."),
    hidden: str | None = option("method", "LIST", "Widths of a network's layers, such as 64,32."),
    seed: int = SEED,
    out: Path | None = option(
        "output", "FILE", "Where the model goes; left out: KIND.safetensors."
    ),
    recipe: Path | None = option(
        "output", "FILE", "Also write how it was made (TOML), for `holdfast audit`."
    ),
    quiet: bool = QUIET,
    objective: str | None = option(
        "counterfactual", "NAME", "full, draft, energy, adversarial or plain; default: full."
    ),
    generator: str | None = option(
        "counterfactual",
        "NAME",
        f"What searches: {', '.join(by_name.OF_GENERATOR)}; default: eccco.",
    ),
    energy: float | None = option(
        "counterfactual", "W", "Weight of the energy in the search; default: 5."
    ),
    tau: float | None = option(
        "counterfactual", "P", "A counterfactual is mature at this probability; default: 0.75."
    ),
    steps: int | None = option("counterfactual", "N", "Steps of the search at most; default: 30."),
    n_counterfactuals: int | None = option(
        "counterfactual", "N", "Searched for in an epoch; default: 1000."
    ),
    l_div: float | None = option("counterfactual", "W", "Weight of the divergence; default: 0.5."),
    l_reg: float | None = option(
        "counterfactual", "W", "Weight of the ridge on energies; default: 0.1."
    ),
    l_adv: float | None = option(
        "counterfactual", "W", "Weight of the adversarial loss; default: 0.25."
    ),
    burn_in: float | None = option(
        "counterfactual",
        "SHARE",
        "Share of the epochs, at the beginning, that are plain; default: 0.",
    ),
    history: Path | None = option(
        "counterfactual", "FILE", "Write a line per epoch: .csv, .json or .parquet."
    ),
    plot: Path | None = option(
        "counterfactual", "FILE", "Draw how training went: .png, .svg or .html."
    ),
    net: str | None = option(
        "images",
        "NAME",
        "spectral (bounded convolutions, for deduce) or plain; left out: spectral.",
        None,
        "--kind",
    ),
    progress: bool = option(
        "images",
        None,
        "A line per epoch on stderr even where that is no terminal.",
        False,
        "--progress",
    ),
) -> None:
    """Train a network on TABLE, one that predicts and gives recourse, or one that learns from its
    counterfactuals."""
    if quiet:
        warnings.simplefilter("ignore")
    if kind not in KINDS:
        raise SettingError(f"unknown kind {kind!r}; {did_you_mean(kind, KINDS)}")
    if not 0 <= test < 1:
        raise SettingError(f"--test must be at least 0 and below 1, got {test}")
    of_counterfactual = {
        "--objective": objective,
        "--generator": generator,
        "--energy": energy,
        "--tau": tau,
        "--steps": steps,
        "--n-counterfactuals": n_counterfactuals,
        "--l-div": l_div,
        "--l-reg": l_reg,
        "--l-adv": l_adv,
        "--burn-in": burn_in,
    }
    if kind != "counterfactual":
        files = {"--history": history, "--plot": plot}
        why = f"{{}} is for `holdfast train counterfactual` only, not for {kind!r}; leave it out"
        refuse(of_counterfactual | files, why)
    if kind == "images":
        tables = {
            "--target": target,
            "--schema": schema,
            "--fixed": fixed,
            "--hidden": hidden,
            "--recipe": recipe,
        }
        refuse(tables, "{} is about tables, so it is not for `holdfast train images`; leave it out")
        assignments = assigned({"--epochs": epochs}, settings or [])
        cli_images.train(
            table, net or "spectral", assignments, seed, test, out, progress=progress, quiet=quiet
        )
        return
    of_images = {"--kind": net, "--progress": progress}
    refuse(of_images, f"{{}} is for `holdfast train images` only, not for {kind!r}; leave it out")
    import holdfast as hf

    if target is None:
        raise SettingError("say which column holds the outcome: --target COLUMN")
    out = out or Path(f"{kind}.safetensors")
    check_ending(out, (".safetensors",), "a model's")
    check_writable(out, recipe, history, plot)
    check_table(history)
    check_chart(plot)
    assignments = assigned(
        {"--epochs": epochs, "--hidden": hidden} | of_counterfactual, settings or []
    )
    trainer = by_name.trainer(kind, assignments, seed)
    X, y, known = labelled(table, target, schema, split_names(fixed))
    learn, held = hf.datasets.held_out(len(X), test, seed)
    rest = X.iloc[held], y.iloc[held]
    start = time.perf_counter()
    trained = trainer.fit((X.iloc[learn], y.iloc[learn]), known, rest, not quiet)
    seconds = time.perf_counter() - start
    trained.model.save(out)
    if recipe:
        trainer.audit_recipe().save(recipe)
    report = {
        "kind": kind,
        "model": str(out),
        "rows": len(learn),
        "test_rows": len(held),
        "seconds": round(seconds, 3),
    }
    report |= measured(trained.model, *rest)
    if trained.history is not None:
        report |= write_history(trained.history, history, plot)
    print_report(report, words)
    if not quiet:
        typer.echo(f"next: {next_command(out, trained.model)}", err=True)


def assigned(options: dict[str, Any], settings: Sequence[str]) -> list[str]:
    """Options and `--set`s as one list of settings: --l-div 0.5 is the same as --set l_div=0.5."""
    names = {
        option: option.removeprefix("--").replace("-", "_")
        for option, v in options.items()
        if v is not None
    }
    for name, _ in map(split_setting, settings):
        if name in names.values():
            raise SettingError(
                f"{name} is given twice, by an option of its own and by --set; leave one of them "
                "out"
            )
    return [*(f"{name}={options[option]}" for option, name in names.items()), *settings]


def labelled(
    path: Path, target: str, schema: Path | None, fixed: Sequence[str]
) -> "tuple[pd.DataFrame, pd.Series[Any], hf.Schema]":
    """The rows of a file, their outcomes, and the schema, with some columns fixed."""
    import holdfast as hf

    X, y, known = hf.datasets.read_labelled(
        path, target, hf.Schema.load(schema) if schema else None
    )
    return X, y, known.change(**{name: {"change": "fixed"} for name in fixed})


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


def words(report: dict[str, Any]) -> str:
    """The report in a few lines."""
    lines = [
        f"{report['kind']} trained on {report['rows']:,} rows in {report['seconds']:.1f} s: "
        f"{report['model']}"
    ]
    if "accuracy" in report:
        lines.append(
            f"on {report['test_rows']:,} rows held out: right about {report['accuracy']:.1%}"
        )
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
