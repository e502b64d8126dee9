"""`holdfast demo`: from a public table to answers that hold when the model is trained again."""

import shlex
import time
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.cli import images as cli_images
from holdfast.cli.explain import print_changes
from holdfast.cli.options import option
from holdfast.cli.output import echo, say
from holdfast.errors import MissingExtraError
from holdfast.registry import build_method

if TYPE_CHECKING:
    import holdfast as hf
    from holdfast.datasets import Dataset

DEMO, DEMO_IMAGES = "holdfast-demo", "holdfast-demo-images"
AUDIT_MODELS, GUIDE_MODELS = 30, 10  # retrained models of each family that judge, and those that guide


def demo(
    out: Path | None = option(
        "", "DIR", f"Directory for the files it leaves behind; left out: {DEMO} or {DEMO_IMAGES}."
    ),
    method: str | None = option("", "NAME", "See `holdfast methods`; left out: min-cost, for images deduce."),
    images: bool = option("", None, "Handwritten digits instead: which pixels to change.", False, "--images"),
) -> None:
    """Train a model on the German Credit data, tell every refused applicant what to change, and make that hold."""
    if images:
        cli_images.demo(out or Path(DEMO_IMAGES), method or "deduce")
    else:
        _demo(out or Path(DEMO), method or "min-cost")


def _demo(out: Path, method: str) -> None:
    import holdfast as hf

    start = time.perf_counter()
    explainer = build_method(method, [])
    out.mkdir(parents=True, exist_ok=True)
    credit = hf.datasets.german_credit()
    train, test = credit.split()
    recipe = hf.Recipe(hidden=(64, 32), epochs=30, weight_decay=1e-3)
    model = recipe.fit(train.X, train.y, credit.schema, classes=["denied", "approved"], progress=True)
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
    echo(explain_command(out, method, explainer.needs_data))
    echo(audit_command(out))


def make_it_hold(
    explainer: "hf.Explainer", cfs: "hf.Counterfactuals", model: "hf.Model", recipe: "hf.Recipe", train: "Dataset",
    out: Path,
) -> None:  # fmt: skip
    """Audit the answers on retrained models, then move them to where other retrained models agree."""
    import holdfast as hf

    def retrained(families: dict[str, int], seed: int) -> "hf.ModelBank":
        rows = train.X, train.y, train.schema
        return hf.ModelBank.retrain(recipe, *rows, families=families, classes=model.classes, seed=seed, progress=True)

    bank = retrained({"seed": AUDIT_MODELS, "leave_one_out": AUDIT_MODELS}, 0)
    guide = retrained({"seed": GUIDE_MODELS}, 1000)
    stable = hf.StableNeighborSearch(start=explainer, bank=guide).fit(model, train.X)
    held = stable.explain(model, cfs.before, "approved", progress=True)
    held.save(out / "recourse-stable.parquet")
    for name, answers in (("These answers", cfs), ("Moved to where retrained models agree, they", held)):
        audit = hf.audit(answers, bank)
        certified, cost = int(audit.certified().sum()), float(answers.cost("l2").mean())
        echo(
            f"{name} hold on {audit.survival().mean():.1%} of {len(bank)} retrained models; {certified} of "
            f"{int(answers.found.sum())} are certified (95% of such models, 95% sure); l2 cost {cost:.2f}."
        )


def _page(cfs: "hf.Counterfactuals", path: Path) -> bool:
    """The page needs the plot extra; a first try of the library should not fail for want of it."""
    try:
        cfs.report(path)
    except MissingExtraError as error:
        say(f"note: no {path.name}: {error}")
        return False
    return True


def explain_command(out: Path, method: str, needs_data: bool) -> str:
    """The demo's answers again, by `holdfast explain`, ready to be pasted into a shell."""
    words = ["holdfast", "explain", str(out / "applicants.csv"), "--model", str(out / "model.safetensors")]
    words += ["--schema", str(out / "schema.toml"), "--target", "approved", "--method", method]
    words += ["--data", str(out / "training.csv")] if needs_data else []
    return shlex.join([*words, "--out", "recourse.parquet"])


def audit_command(out: Path) -> str:
    """An audit of the moved answers on models of your own making."""
    words = ["holdfast", "audit", str(out / "recourse-stable.parquet"), "--data", str(out / "training.csv")]
    return shlex.join([*words, "--recipe", str(out / "recipe.toml"), "--families", "seed=100", "--seed", "7"])
