"""`holdfast train`: a model for `holdfast explain` and `audit`, with a recourse network if wanted."""

import json
import os
import shlex
import sys
import time
import warnings
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli_settings import chosen
from holdfast.errors import FileError, SettingError, did_you_mean

if TYPE_CHECKING:
    import pandas as pd

    import holdfast as hf

KINDS = ("network", "counternet", "rocoursenet")
OF_NETWORK = (
    "hidden", "epochs", "batch_size", "lr", "weight_decay", "adam_eps", "optimizer",
    "epsilon", "attack", "attack_steps", "attack_norm", "attack_box",
)  # fmt: skip


def train(
    kind: Annotated[str, typer.Argument(help=f"What to train: {', '.join(KINDS)}.")],
    table: Annotated[Path, typer.Argument(help="Rows with their outcome: a CSV, JSON or Parquet file.")],
    target: Annotated[str, typer.Option("--target", help="The column that holds the outcome.")],
    schema: Annotated[
        Path | None, typer.Option("--schema", help="What may change (TOML); left out: read off the table.")
    ] = None,
    fixed: Annotated[
        str | None, typer.Option("--fixed", help="Columns that nobody can change, with commas between them.")
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="KEY=VALUE: a setting, such as epochs=20; may be repeated.")
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="Where all random numbers come from.")] = 0,
    test: Annotated[float, typer.Option("--test", help="The share of rows held out to measure on; 0 for none.")] = 0.25,
    out: Annotated[Path | None, typer.Option("--out", help="Where the model goes; left out: KIND.safetensors.")] = None,
    recipe: Annotated[
        Path | None, typer.Option("--recipe", help="Also write how it was made (TOML), for `holdfast audit`.")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Nothing on stderr but errors.")] = False,
) -> None:
    """Train a network on TABLE, or one that predicts and gives recourse, and save it."""
    if quiet:
        warnings.simplefilter("ignore")
    if kind not in KINDS:
        raise SettingError(f"unknown kind {kind!r}; {did_you_mean(kind, KINDS)}")
    if not 0 <= test < 1:
        raise SettingError(f"--test must be at least 0 and below 1, got {test}")
    out = out or Path(f"{kind}.safetensors")
    check_places(out, recipe)
    maker = made(kind, settings or [], seed)
    X, y, known = labelled(table, target, schema, [name.strip() for name in (fixed or "").split(",") if name.strip()])
    learn, held = split(len(X), test, seed)
    start = time.perf_counter()
    model = fitted(maker, X.iloc[learn], y.iloc[learn], known, seed, quiet)
    seconds = time.perf_counter() - start
    model.save(out)
    if recipe:
        recipe_of(maker, model).save(recipe)
    report = {"kind": kind, "model": str(out), "rows": len(learn), "test_rows": len(held), "seconds": round(seconds, 3)}
    report |= measured(model, X.iloc[held], y.iloc[held])
    typer.echo(words(report) if sys.stdout.isatty() else json.dumps(report, indent=1))
    if not quiet:
        typer.echo(f"next: {next_command(out, model)}", err=True)


def check_places(out: Path, recipe: Path | None) -> None:
    """A file that cannot be written is told before the work, not after it."""
    if out.suffix.lower() != ".safetensors":
        raise FileError(f"cannot write {str(out)!r}: a model's name must end in .safetensors")
    for path in (out, recipe):
        if path is None:
            continue
        if not path.parent.is_dir():
            raise FileError(f"cannot write {str(path)!r}: there is no directory {str(path.parent)!r}")
        if path.is_dir():
            raise FileError(f"cannot write {str(path)!r}: it is a directory")
        if not os.access(path if path.exists() else path.parent, os.W_OK):
            raise FileError(f"cannot write {str(path)!r}: no permission")


def made(kind: str, assignments: Sequence[str], seed: int) -> "hf.Recipe | hf.CounterNet":
    """What is to be trained, with its settings."""
    import holdfast as hf

    if kind == "network":
        return hf.Recipe(**chosen(hf.Recipe, kind, OF_NETWORK, assignments))
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

    rows = hf.data.read_table(path)
    if target not in rows.columns:
        raise FileError(f"{str(path)!r} has no column {target!r}; {did_you_mean(target, rows.columns)}")
    if schema is None:
        known = hf.Schema.infer(rows.drop(columns=target))
    else:
        known = hf.Schema.load(schema)
        if target in known.names:
            raise SettingError(f"{target!r} is a feature of the schema, so it cannot be the outcome")
        y = rows[target]
        rows = hf.data.read_table(path, known).assign(**{target: y})
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


def split(n: int, share: float, seed: int) -> tuple[list[int], list[int]]:
    """Places of the rows to learn from, and of those held out, in the order of the table."""
    import numpy as np

    if n < 2:
        raise SettingError(f"need at least two rows to train on, got {n}")
    order = np.random.default_rng(abs(seed)).permutation(n)
    held = min(round(n * share), n - 1)
    return sorted(order[held:].tolist()), sorted(order[:held].tolist())


def fitted(
    maker: "hf.Recipe | hf.CounterNet",
    X: "pd.DataFrame",
    y: "pd.Series[Any]",
    schema: "hf.Schema",
    seed: int,
    quiet: bool,
) -> "hf.Model | hf.CounterNet":
    import holdfast as hf

    if isinstance(maker, hf.Recipe):
        return maker.fit(X, y, schema, seed=seed, progress=not quiet)
    return maker.fit(X, y, schema, progress=not quiet)


def recipe_of(maker: "hf.Recipe | hf.CounterNet", model: "hf.Model | hf.CounterNet") -> "hf.Recipe":
    """How the model is made again, by an audit; of a recourse network, the half that predicts."""
    import holdfast as hf

    if isinstance(maker, hf.Recipe):
        return maker
    assert isinstance(model, hf.CounterNet)
    return hf.Recipe.of(model.model_, epochs=maker.epochs, batch_size=maker.batch_size, lr=maker.lr)


def measured(model: "hf.Model | hf.CounterNet", X: "pd.DataFrame", y: "pd.Series[Any]") -> dict[str, Any]:
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
    return "\n".join(lines)


def next_command(out: Path, model: "hf.Model | hf.CounterNet") -> str:
    """What to type next, ready to be pasted into a shell but for the table."""
    import holdfast as hf

    classes = model.classes_.tolist() if isinstance(model, hf.CounterNet) else model.classes
    wish = ["--target", str(classes[-1])]
    return shlex.join(["holdfast", "explain", "people.csv", "--model", str(out), *wish, "--out", "recourse.parquet"])
