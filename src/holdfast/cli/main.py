"""The command line: `holdfast demo`, `train`, `inspect`, `explain`, `audit`, `tradeoff`, `methods` and
`datasets`.

What a program wants to read goes to stdout, what a person wants to know on the way goes to stderr. Everything
that can go wrong ends in `main`, as one sentence and a documented exit code. The library itself (torch, pandas)
is imported inside the commands, so that `holdfast --help` answers at once.
"""

import io
import os
import shlex
import sys
import time
import traceback
import warnings
from collections.abc import Sequence
from dataclasses import MISSING, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from holdfast import __version__
from holdfast.cli import images as cli_images
from holdfast.cli.audit import audit
from holdfast.cli.inspect import inspect
from holdfast.cli.options import MOST_ROWS, check_writable, echo, print_json, print_rich, refuse, say
from holdfast.cli.options import printable as printable
from holdfast.cli.options import wanted as wanted
from holdfast.cli.tradeoff import tradeoff
from holdfast.cli.train import train
from holdfast.errors import FileError, HoldfastError, MissingExtraError, SettingError
from holdfast.registry import configured as configured
from holdfast.registry import listed_names
from holdfast.registry import parsed as parsed

if TYPE_CHECKING:
    import pandas as pd

    import holdfast as hf
    from holdfast.datasets import Dataset
    from holdfast.images.explainer import ImageExplainer

BAD_INPUT, UNANSWERED, INTERNAL, INTERRUPTED = 2, 3, 70, 130
DEMO, DEMO_IMAGES = "holdfast-demo", "holdfast-demo-images"
DEMO_MODELS, DEMO_GUIDES = 30, 10  # retrained models of each family that judge, and those that guide

EXIT_CODES = """Exit codes: 0 answered (rows without an answer are in the output, with the reason); 2 bad input or
usage; 3 with --strict, some row has no answer; 70 an error inside holdfast (set HOLDFAST_DEBUG=1 to see where);
130 interrupted."""

app = typer.Typer(
    add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False, epilog=" ".join(EXIT_CODES.split())
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code; no error gets past here."""
    return run_app(app, "holdfast", argv)


def run_app(app: typer.Typer, name: str, argv: Sequence[str] | None = None) -> int:
    """Run the commands of an app, whose errors become one line and an exit code."""
    with warnings.catch_warnings():
        warnings.showwarning = _show_warning
        try:
            for stream in (sys.stdout, sys.stderr):  # one that cannot show a letter gets its code instead
                if isinstance(stream, io.TextIOWrapper):
                    stream.reconfigure(errors="backslashreplace")
            typer.main.get_command(app).main(args=None if argv is None else list(argv), prog_name=name)
        except SystemExit as done:  # how typer ends, also after a usage error
            if done.code == INTERRUPTED:
                say("interrupted")
            return int(done.code or 0)
        except KeyboardInterrupt:
            say("interrupted")
            return INTERRUPTED
        except (HoldfastError, OSError) as error:
            return _failed(BAD_INPUT, str(error))
        except Exception as error:
            what = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
            hint = "probably a fault in holdfast, not in your input; set HOLDFAST_DEBUG=1 to see where"
            return _failed(INTERNAL, f"unexpected {what} ({hint})")
    return 0


def _failed(code: int, message: str) -> int:
    if os.environ.get("HOLDFAST_DEBUG"):
        traceback.print_exc()
    say(f"error: {message}")
    return code


def _show_warning(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
    say(f"note: {message}")


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"holdfast {__version__}")
        raise typer.Exit


@app.callback()
def holdfast(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and leave.")
    ] = False,
) -> None:
    """What would have to change for another decision: counterfactual explanations and recourse."""


# ---- demo


@app.command()
def demo(
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help=f"Directory for the files it leaves behind; left out: {DEMO} or {DEMO_IMAGES}."
        ),
    ] = None,
    method: Annotated[
        str | None, typer.Option(metavar="NAME", help="See `holdfast methods`; left out: min-cost, for images deduce.")
    ] = None,
    images: Annotated[
        bool, typer.Option("--images", help="Handwritten digits instead: which pixels to change.")
    ] = False,
) -> None:
    """Train a model on the German Credit data, tell every refused applicant what to change, and make that hold."""
    if images:
        cli_images.demo(out or Path(DEMO_IMAGES), method or "deduce")
        return
    import holdfast as hf

    out, method = out or Path(DEMO), method or "min-cost"
    start = time.perf_counter()
    explainer = configured(method, [])
    out.mkdir(parents=True, exist_ok=True)
    credit = hf.datasets.german_credit()
    train, test = credit.split()
    classes = ["denied", "approved"]
    recipe = hf.Recipe(hidden=(64, 32), epochs=30, weight_decay=1e-3)
    model = recipe.fit(train.X, train.y, credit.schema, classes=classes, progress=True)
    model.save(out / "model.safetensors")
    credit.schema.save(out / "schema.toml")
    recipe.save(out / "recipe.toml")
    hf.datasets.write_table(train.X.assign(outcome=train.y), out / "training.csv")
    if explainer.needs_data:
        explainer.fit(model, train.X)
    decided = model.predict(test.X)
    refused = test.X[(decided == "denied").to_numpy()].reset_index(drop=True)  # numbered as in the file
    hf.datasets.write_table(refused, out / "applicants.csv")
    cfs = explainer.explain(model, refused, "approved", progress=True)
    cfs.save(out / "recourse.parquet")
    page = _page(cfs, out / "report.html")
    print_changes(cfs, most=10)
    echo(
        f"The network is right about {float((decided == test.y).mean()):.0%} of {len(test.X)} test applicants and "
        f"refuses {len(refused)}; {int(cfs.found.sum())} of them get an answer, with {cfs.cost('l0').mean():.1f} "
        f"changes on average, in {time.perf_counter() - start:.1f} s."
    )
    make_it_hold(explainer, cfs, model, recipe, train, out)
    echo(f"Everything is in {out}{', the page in ' + str(out / 'report.html') if page else ''}. Try next:\n")
    echo(next_command(out, method, explainer.needs_data))
    echo(audit_command(out))


def make_it_hold(
    explainer: "hf.Explainer",
    cfs: "hf.Counterfactuals",
    model: "hf.Model",
    recipe: "hf.Recipe",
    train: "Dataset",
    out: Path,
) -> None:
    """Audit the answers on retrained models, then move them to where other retrained models agree."""
    import holdfast as hf

    def retrained(families: dict[str, int], seed: int) -> "hf.ModelBank":
        rows = train.X, train.y, train.schema
        return hf.ModelBank.retrain(recipe, *rows, families=families, classes=model.classes, seed=seed, progress=True)

    bank = retrained({"seed": DEMO_MODELS, "leave_one_out": DEMO_MODELS}, 0)
    guide = retrained({"seed": DEMO_GUIDES}, 1000)
    stable = hf.StableNeighborSearch(start=explainer, bank=guide).fit(model, train.X)
    held = stable.explain(model, cfs.before, "approved", progress=True)
    held.save(out / "recourse-stable.parquet")
    for name, answers in (("These answers", cfs), ("Moved to where retrained models agree, they", held)):
        found = hf.audit(answers, bank)
        sure, cost = int(found.certified().sum()), float(answers.cost("l2").mean())
        echo(
            f"{name} hold on {found.survival().mean():.1%} of {len(bank)} retrained models; {sure} of "
            f"{int(answers.found.sum())} are certified (95% of such models, 95% sure); l2 cost {cost:.2f}."
        )


def audit_command(out: Path) -> str:
    """An audit of the moved answers on models of your own making."""
    words = ["holdfast", "audit", str(out / "recourse-stable.parquet"), "--data", str(out / "training.csv")]
    return shlex.join([*words, "--recipe", str(out / "recipe.toml"), "--families", "seed=100", "--seed", "7"])


def _page(cfs: "hf.Counterfactuals", path: Path) -> bool:
    """The page needs the plot extra; a first try of the library should not fail for want of it."""
    try:
        cfs.report(path)
    except MissingExtraError as error:
        say(f"note: no {path.name}: {error}")
        return False
    return True


def next_command(out: Path, method: str, needs_data: bool) -> str:
    """The demo's answers again, by `holdfast explain`, ready to be pasted into a shell."""
    words = ["holdfast", "explain", str(out / "applicants.csv"), "--model", str(out / "model.safetensors")]
    words += ["--schema", str(out / "schema.toml"), "--target", "approved", "--method", method]
    words += ["--data", str(out / "training.csv")] if needs_data else []
    return shlex.join([*words, "--out", "recourse.parquet"])


# ---- explain


def _of_images(name: str, value: str, about: str) -> Any:
    return typer.Option(name, metavar=value, help=about, rich_help_panel="Only for images")


@app.command()
def explain(
    table: Annotated[
        Path,
        typer.Argument(metavar="TABLE", help="People to answer: a CSV, JSON or Parquet file; or images: an NPZ file."),
    ],
    model: Annotated[
        Path, typer.Option(metavar="FILE", help="The model: safetensors, ONNX, skops, XGBoost or LightGBM.")
    ],
    schema: Annotated[
        Path | None, typer.Option(metavar="FILE", help="What may change (TOML); left out: the one in the model file.")
    ] = None,
    classes: Annotated[
        list[str] | None,
        typer.Option(
            metavar="LIST", help="Names of the model's classes in the order of its scores, such as denied,approved."
        ),
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="The class that is wanted; of images also: all; of a regression model a range, such as 200..250.",
        ),
    ] = None,
    any_other: Annotated[bool, typer.Option("--any-other", help="Any class but the present one is wanted.")] = False,
    method: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="How to search; left out: the recourse network in the model file, else min-cost, or tree-search if "
            "the model has no gradients; for images deduce.",
        ),
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="A setting of the method; may be repeated.")
    ] = None,
    probability: Annotated[
        float | None, typer.Option(metavar="P", help="How likely the model must find the wanted class.")
    ] = None,
    data: Annotated[
        Path | None, typer.Option(metavar="TABLE", help="Training rows, for methods that look at data.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Write the answers as CSV, JSON or Parquet (with provenance); left out: print them."
        ),
    ] = None,
    report: Annotated[Path | None, typer.Option(metavar="FILE.html", help="Write a page with plots as well.")] = None,
    seed: Annotated[int, typer.Option(metavar="N", help="Random numbers come from it.")] = 0,
    time_budget: Annotated[
        float | None, typer.Option(metavar="S", help="Seconds; rows still open then stay unanswered.")
    ] = None,
    batch_size: Annotated[
        int | None,
        typer.Option(metavar="N", help="Rows searched at once; answers do not change. Default: 1024, of images 128."),
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with 3 if some row has no answer.")] = False,
    trust_model_code: Annotated[
        bool, typer.Option("--trust-model-code", help="Load files that can run code; only your own.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Nothing on stderr but errors.")] = False,
    grid: Annotated[
        Path | None, _of_images("--grid", "FILE.png", "Draw images, counterfactuals and differences.")
    ] = None,
    locked: Annotated[
        Path | None, _of_images("--locked", "FILE.npy", "Pixels that may not change: true where nothing may.")
    ] = None,
    first: Annotated[int | None, _of_images("--first", "N", "Only the first N images.")] = None,
) -> None:
    """Find, for every row of TABLE, the change that gets the wanted class."""
    if quiet:
        warnings.simplefilter("ignore")
    if cli_images.wants_images(table, model):
        of_tables = {"--schema": schema, "--classes": classes, "--trust-model-code": trust_model_code}
        refuse(of_tables, "is for models of tables, not of images")
        unanswered = cli_images.explain(
            table, model, method=method or "deduce", settings=settings or [], target=target, any_other=any_other,
            probability=probability, data=data, locked=locked, first=first, out=out, report=report, grid=grid,
            seed=seed, time_budget=time_budget, chunk=batch_size, quiet=quiet,
        )  # fmt: skip
        if strict and unanswered:
            raise typer.Exit(UNANSWERED)
        return
    refuse(
        {"--grid": grid, "--locked": locked, "--first": first}, f"is for models of images, and {str(model)!r} is none"
    )
    import holdfast as hf

    check_outputs(out, report)
    # What is wrong with a method is told before the model is loaded, on which the usual one depends.
    asked = None if method is None else configured(method, settings or [])
    names = listed_names(classes) or None
    judge = hf.Model.load(model, hf.Schema.load(schema) if schema else None, trust=trust_model_code, classes=names)
    method = usual_method(model, judge, quiet) if method is None else method
    explainer = configured(method, settings or []) if asked is None else asked
    if isinstance(explainer, hf.LearnedRecourse) and not explainer.path:
        explainer.path = str(model)
    wish = wanted(judge.classes, target, any_other, probability)
    people = hf.datasets.read_table(table, judge.schema)
    _learn(explainer, method, data, judge)
    cfs = explainer.explain(
        judge, people, wish, seed=seed, batch_size=1024 if batch_size is None else batch_size, time_budget=time_budget,
        progress=not quiet,
    )  # fmt: skip
    deliver(cfs, out)
    if report:
        cfs.report(report)
    if not quiet:
        say(cfs.summary())
    if strict and (cfs.status_codes == hf.Status.NOT_FOUND).any():
        raise typer.Exit(UNANSWERED)


def usual_method(model: Path, judge: "hf.Model", quiet: bool) -> str:
    """The recourse network that was trained with the model, if its file has one; else what suits the model."""
    from holdfast.methods.amortized._recourse_network import holds_recourse

    if not holds_recourse(model):
        return "min-cost" if judge.has_grad else "tree-search"
    if not quiet:
        say(f"note: {str(model)!r} holds a recourse network, which answers; --method NAME searches instead")
    return "learned-recourse"


def check_outputs(out: Path | None, report: Path | None) -> None:
    """A name that cannot be written to is told before the work, not after it."""
    from holdfast.datasets import known_extension

    if out:
        known_extension(out, "write")
    if report and report.suffix.lower() not in (".html", ".htm"):
        raise FileError(f"cannot write {str(report)!r}: a report's name must end in .html")
    check_writable(out, report)


def _learn(explainer: "hf.Explainer", method: str, data: Path | None, model: "hf.Model") -> None:
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
    elif out.suffix.lower() == ".parquet":
        _save(cfs, out)
    else:
        hf.datasets.write_table(cfs.to_table(), out)


def _save(cfs: "hf.Counterfactuals", out: Path) -> None:
    try:
        cfs.save(out)
    except Exception as error:  # a column of Parquet holds one type, the levels of a category may be of several
        raise FileError(f"cannot write {str(out)!r}: {error}; try a .json file") from None


def print_changes(cfs: "hf.Counterfactuals", most: int) -> None:
    """Only what changes, and the same in words, for the first rows."""
    from rich.table import Table
    from rich.text import Text

    from holdfast.render.sentences import estimates
    from holdfast.target import IntervalTarget

    said: list[float] = cfs.goal.confidence(cfs.scores).numpy().tolist()
    outcome = estimates(cfs.goal, said) if isinstance(cfs.goal, IntervalTarget) else [f"{p:.2f}" for p in said]
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


# ---- methods


@app.command("methods")
def list_methods(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """List the methods, what each needs, and its settings with their defaults."""
    import holdfast as hf
    from holdfast.registry import list_image_methods

    about = [describe_method(name, kind) for name, kind in hf.list_methods().items()]
    about += [describe_method(name, kind, "images") for name, kind in list_image_methods().items()]
    if as_json:
        print_json(about)
        return
    from rich.table import Table
    from rich.text import Text

    table = Table("method", "for", "what it does", "needs", "settings", show_lines=True)
    for m in about:
        needs = [word for word in ("gradients", "data") if m[f"needs_{word}"]]
        settings = [f"{name}={value}" for name, value in m["settings"].items()]
        lines = [m["name"], m["class"]], [m["for"]], [m["title"], m["paper"]], needs or ["-"], settings
        table.add_row(*(Text("\n".join(cell)) for cell in lines))
    print_rich(table)


def describe_method(name: str, kind: "type[hf.Explainer | ImageExplainer]", of: str = "tables") -> dict[str, Any]:
    """What there is to know about a method, as plain values."""
    defaults = {f.name: None if f.default is MISSING else f.default for f in fields(cast(Any, kind))}
    return {
        "name": name,
        "class": kind.__name__,
        "for": of,
        "title": kind.title,
        "needs_gradients": kind.needs_grad,
        "needs_data": kind.needs_data,
        "paper": kind.paper,
        "settings": defaults,
    }


# ---- datasets


@app.command("datasets")
def list_datasets(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """List the datasets with size, licence and source, and whether each is at hand."""
    import holdfast as hf

    about = hf.datasets.describe()
    if as_json:
        print_json(about)
        return
    from rich.table import Table
    from rich.text import Text

    names = ["name", "rows", "columns", "classes", "licence", "source", "at_hand"]
    table = Table(*(name.replace("_", " ") for name in names))
    for entry in about:
        cells = (entry[name] for name in names)
        table.add_row(*(Text(f"{c:,}" if isinstance(c, int) else c) for c in cells))
    print_rich(table)


# ---- commands with a file of their own

app.command("train")(train)
app.command("inspect")(inspect)
app.command("audit")(audit)
app.command("tradeoff")(tradeoff)
