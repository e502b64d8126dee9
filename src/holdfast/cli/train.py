"""`holdfast train`: a model for `holdfast explain` and `audit`, with a recourse network if wanted.

What only `holdfast train counterfactual` has is in `cli.train_counterfactual`, and `holdfast train images` is in
`holdfast.cli.images`.
"""

import json
import shlex
import sys
import time
import warnings
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli import images as cli_images
from holdfast.cli import train_counterfactual as cli_teach
from holdfast.cli.options import check_ending, check_writable, refuse, split
from holdfast.errors import FileError, SettingError, did_you_mean
from holdfast.registry import chosen, key_and_value, listed_names

if TYPE_CHECKING:
    import pandas as pd

    import holdfast as hf

    Maker = hf.Recipe | hf.CounterNet | cli_teach.Lessons
    Made = hf.Model | hf.CounterNet

KINDS = ("network", "counternet", "rocoursenet", "counterfactual", "images")
OF_NETWORK = (*cli_teach.OF_NETWORK, "epsilon", "attack", "attack_steps", "attack_norm", "attack_box")
ONLY_TAUGHT = "Only for counterfactual"  # a heading of the help


def _only_images(name: str, about: str) -> Any:
    return typer.Option(name, help=about, rich_help_panel="Only for images")


def _only_taught(name: str, about: str) -> Any:
    return typer.Option(name, help=about, rich_help_panel=ONLY_TAUGHT)


def train(
    kind: Annotated[str, typer.Argument(help=f"What to train: {', '.join(KINDS)}.")],
    table: Annotated[
        Path,
        typer.Argument(
            help="Rows with their outcome: a CSV, JSON or Parquet file; of images an NPZ file, or a dataset's name."
        ),
    ],
    target: Annotated[
        str | None, typer.Option("--target", help="The column that holds the outcome; images have labels instead.")
    ] = None,
    schema: Annotated[
        Path | None, typer.Option("--schema", help="What may change (TOML); left out: read off the table.")
    ] = None,
    fixed: Annotated[
        list[str] | None,
        typer.Option("--fixed", help="Columns that nobody can change, with commas between them; may be repeated."),
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="KEY=VALUE: a setting, such as epochs=20; may be repeated.")
    ] = None,
    epochs: Annotated[int | None, typer.Option("--epochs", help="How often all rows are gone through.")] = None,
    hidden: Annotated[str | None, typer.Option("--hidden", help="Widths of a network's layers, such as 64,32.")] = None,
    seed: Annotated[int, typer.Option("--seed", help="Where all random numbers come from.")] = 0,
    test: Annotated[float, typer.Option("--test", help="The share of rows held out to measure on; 0 for none.")] = 0.25,
    out: Annotated[Path | None, typer.Option("--out", help="Where the model goes; left out: KIND.safetensors.")] = None,
    recipe: Annotated[
        Path | None, typer.Option("--recipe", help="Also write how it was made (TOML), for `holdfast audit`.")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Nothing on stderr but errors.")] = False,
    objective: Annotated[
        str | None, _only_taught("--objective", "full, draft, energy, adversarial or plain; default: full.")
    ] = None,
    generator: Annotated[
        str | None,
        _only_taught("--generator", f"What searches: {', '.join(cli_teach.OF_GENERATOR)}; default: eccco."),
    ] = None,
    energy: Annotated[float | None, _only_taught("--energy", "Weight of the energy in the search; default: 5.")] = None,
    tau: Annotated[
        float | None, _only_taught("--tau", "A counterfactual is mature at this probability; default: 0.75.")
    ] = None,
    steps: Annotated[int | None, _only_taught("--steps", "Steps of the search at most; default: 30.")] = None,
    n_counterfactuals: Annotated[
        int | None, _only_taught("--n-counterfactuals", "Searched for in an epoch; default: 1000.")
    ] = None,
    l_div: Annotated[float | None, _only_taught("--l-div", "Weight of the divergence; default: 0.5.")] = None,
    l_reg: Annotated[float | None, _only_taught("--l-reg", "Weight of the ridge on energies; default: 0.1.")] = None,
    l_adv: Annotated[float | None, _only_taught("--l-adv", "Weight of the adversarial loss; default: 0.25.")] = None,
    burn_in: Annotated[
        float | None, _only_taught("--burn-in", "Share of the epochs, at the beginning, that are plain; default: 0.")
    ] = None,
    history: Annotated[
        Path | None, _only_taught("--history", "Write a line per epoch: .csv, .json or .parquet.")
    ] = None,
    plot: Annotated[Path | None, _only_taught("--plot", "Draw how training went: .png, .svg or .html.")] = None,
    net: Annotated[
        str | None,
        _only_images("--kind", "spectral (bounded convolutions, for deduce) or plain; left out: spectral."),
    ] = None,
    progress: Annotated[
        bool, _only_images("--progress", "A line per epoch on stderr even where that is no terminal.")
    ] = False,
) -> None:
    """Train a network on TABLE, one that predicts and gives recourse, or one that learns from its counterfactuals."""
    if quiet:
        warnings.simplefilter("ignore")
    if kind not in KINDS:
        raise SettingError(f"unknown kind {kind!r}; {did_you_mean(kind, KINDS)}")
    if not 0 <= test < 1:
        raise SettingError(f"--test must be at least 0 and below 1, got {test}")
    taught = {
        "--objective": objective, "--generator": generator, "--energy": energy, "--tau": tau, "--steps": steps,
        "--n-counterfactuals": n_counterfactuals, "--l-div": l_div, "--l-reg": l_reg, "--l-adv": l_adv,
        "--burn-in": burn_in,
    }  # fmt: skip
    check_kind(kind, taught | {"--history": history, "--plot": plot})
    if kind == "images":
        tables = {"--target": target, "--schema": schema, "--fixed": fixed, "--hidden": hidden, "--recipe": recipe}
        refuse(tables, "is about tables, so it is not for `holdfast train images`")
        assignments = assigned({"--epochs": epochs}, settings or [])
        cli_images.train(table, net or "spectral", assignments, seed, test, out, progress=progress, quiet=quiet)
        return
    refuse({"--kind": net, "--progress": progress}, f"is for `holdfast train images` only, not for {kind!r}")
    if target is None:
        raise SettingError("say which column holds the outcome: --target COLUMN")
    out = out or Path(f"{kind}.safetensors")
    check_ending(out, (".safetensors",), "a model's")
    check_writable(out, recipe, history, plot)
    cli_teach.check_files(history, plot)
    maker = made(kind, assigned({"--epochs": epochs, "--hidden": hidden} | taught, settings or []), seed)
    X, y, known = labelled(table, target, schema, listed_names(fixed))
    learn, held = split(len(X), test, seed)
    rest = X.iloc[held], y.iloc[held]
    start = time.perf_counter()
    model, told = fitted(maker, X.iloc[learn], y.iloc[learn], known, rest, seed, quiet)
    seconds = time.perf_counter() - start
    model.save(out)
    if recipe:
        recipe_of(maker, model).save(recipe)
    report = {"kind": kind, "model": str(out), "rows": len(learn), "test_rows": len(held), "seconds": round(seconds, 3)}
    report |= measured(model, *rest)
    if told is not None:
        report |= cli_teach.write(told, history, plot)
    typer.echo(words(report) if sys.stdout.isatty() else json.dumps(report, indent=1))
    if not quiet:
        typer.echo(f"next: {next_command(out, model)}", err=True)


def check_kind(kind: str, taught: dict[str, Any]) -> None:
    """Options that only counterfactual training has, given for another kind, are an error: they would do nothing."""
    given = [name for name, value in taught.items() if value is not None]
    if given and kind != "counterfactual":
        raise SettingError(f"{given[0]} is for `holdfast train counterfactual` only, not for {kind!r}; leave it out")


def assigned(options: dict[str, Any], settings: Sequence[str]) -> list[str]:
    """Options and `--set`s as one list of settings: --l-div 0.5 is the same as --set l_div=0.5."""
    names = {option: option.removeprefix("--").replace("-", "_") for option, v in options.items() if v is not None}
    for name, _ in map(key_and_value, settings):
        if name in names.values():
            raise SettingError(f"{name} is given twice, by an option of its own and by --set; leave one of them out")
    return [*(f"{name}={options[option]}" for option, name in names.items()), *settings]


def made(kind: str, assignments: Sequence[str], seed: int) -> "Maker":
    """What is to be trained, with its settings."""
    import holdfast as hf

    if kind == "network":
        return hf.Recipe(**chosen(hf.Recipe, kind, OF_NETWORK, assignments))
    if kind == "counterfactual":
        return cli_teach.Lessons.of(assignments, seed)
    net = hf.CounterNet if kind == "counternet" else hf.RoCourseNet
    known = [f.name for f in fields(net) if f.name != "seed"]  # which is --seed
    maker = net(**chosen(net, kind, known, assignments), seed=seed)
    maker.how()  # what cannot be is told before the table is read
    return maker


def labelled(
    path: Path, target: str, schema: Path | None, fixed: Sequence[str]
) -> "tuple[pd.DataFrame, pd.Series[Any], hf.Schema]":
    """The rows of a file, their outcomes, and the schema."""
    import holdfast as hf

    rows = hf.datasets.read_table(path)
    if target not in rows.columns:
        raise FileError(f"{str(path)!r} has no column {target!r}; {did_you_mean(target, rows.columns)}")
    if schema is None:
        known = hf.Schema.infer(rows.drop(columns=target))
    else:
        known = hf.Schema.load(schema)
        if target in known.names:
            raise SettingError(f"{target!r} is a feature of the schema, so it cannot be the outcome")
        y = rows[target]
        rows = hf.datasets.read_table(path, known).assign(**{target: y})
        extra = [name for name in rows.columns if name not in (*known.names, target)]
        if extra:
            warnings.warn(f"columns of {str(path)!r} that the schema does not know are left out: {extra}", stacklevel=2)
        rows = rows.drop(columns=extra)
    return rows.drop(columns=target), rows[target], with_fixed(known, fixed)


def with_fixed(schema: "hf.Schema", names: Sequence[str]) -> "hf.Schema":
    """The schema with these columns fixed as well."""
    for name in names:
        _ = schema[name]  # an unknown name is an error
    return replace(
        schema, features=tuple(replace(f, change="fixed") if f.name in names else f for f in schema.features)
    )


def fitted(
    maker: "Maker",
    X: "pd.DataFrame",
    y: "pd.Series[Any]",
    schema: "hf.Schema",
    held: "tuple[pd.DataFrame, pd.Series[Any]]",
    seed: int,
    quiet: bool,
) -> "tuple[Made, pd.DataFrame | None]":
    """The trained model and, of counterfactual training, a line per epoch."""
    import holdfast as hf

    if isinstance(maker, cli_teach.Lessons):
        taught = maker.fit(X, y, schema, held, seed, not quiet)
        return taught.model, taught.history
    if isinstance(maker, hf.Recipe):
        return maker.fit(X, y, schema, seed=seed, progress=not quiet), None
    return maker.fit(X, y, schema, progress=not quiet), None


def recipe_of(maker: "Maker", model: "Made") -> "hf.Recipe":
    """How the model is made again, by an audit; of a recourse network, the half that predicts."""
    import holdfast as hf

    if isinstance(maker, cli_teach.Lessons):
        warnings.warn("the recipe is that of the network: an audit retrains it without counterfactuals", stacklevel=2)
        return maker.recipe
    if isinstance(maker, hf.Recipe):
        return maker
    assert isinstance(model, hf.CounterNet)
    return hf.Recipe.of(model.model_, epochs=maker.epochs, batch_size=maker.batch_size, lr=maker.lr)


def measured(model: "Made", X: "pd.DataFrame", y: "pd.Series[Any]") -> dict[str, Any]:
    """Accuracy on rows held out; for a recourse network also how many answers get another class, and their cost."""
    import numpy as np

    import holdfast as hf

    if not len(X):
        return {}
    said: Any = model.predict(X)
    out = {"accuracy": float((np.asarray(said) == y.to_numpy()).mean())}
    if isinstance(model, hf.CounterNet):
        cfs = model.recourse(X)
        out["validity"] = float(cfs.found.mean())
        if cfs.found.any():
            out["cost_l1"] = float(cfs.cost("l1").mean())
    return out


def words(report: dict[str, Any]) -> str:
    """The report in a few lines."""
    lines = [f"{report['kind']} trained on {report['rows']:,} rows in {report['seconds']:.1f} s: {report['model']}"]
    if "accuracy" in report:
        lines.append(f"on {report['test_rows']:,} rows held out: right about {report['accuracy']:.1%}")
    if "validity" in report:
        cost = f", at an l1 cost of {report['cost_l1']:.2f}" if "cost_l1" in report else ""
        lines.append(f"recourse gets another class for {report['validity']:.1%} of them{cost}")
    if "first" in report:
        lines += cli_teach.words(report)
    return "\n".join(lines)


def next_command(out: Path, model: "Made") -> str:
    """What to type next, ready to be pasted into a shell but for the table."""
    import holdfast as hf

    classes = model.classes_.tolist() if isinstance(model, hf.CounterNet) else model.classes
    wish = ["--target", str(classes[-1])]
    return shlex.join(["holdfast", "explain", "people.csv", "--model", str(out), *wish, "--out", "recourse.parquet"])
