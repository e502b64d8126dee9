"""`holdfast demo`: from a public table to plans that hold when the model is trained again."""

import importlib.util
import shlex
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast._core.checks import untyped
from holdfast._core.files import write_whole
from holdfast.cli import images as cli_images
from holdfast.cli.explain import print_changes
from holdfast.cli.options import option, refuse
from holdfast.cli.output import echo, printable, say
from holdfast.errors import MissingExtraError, SettingError
from holdfast.registry import build_method

if TYPE_CHECKING:
    import pandas as pd

    import holdfast as hf
    from holdfast.datasets import Dataset

DEMO = "holdfast-demo"
DEMO_NETWORK = "holdfast-demo-network"
DEMO_IMAGES = "holdfast-demo-images"
# What nobody can change before the next application, and what people can.
FIXED = ["checking_status", "credit_history", "purpose", "age"]
UP = ["savings_status", "employment"]
DOWN = ["credit_amount", "duration", "installment_commitment"]
FREE = ["other_parties", "other_payment_plans"]
LEVELS = {
    "savings_status": ["no known savings", "<100", "100<=X<500", "500<=X<1000", ">=1000"],
    "employment": ["unemployed", "<1", "1<=X<4", "4<=X<7", ">=7"],
}
BOUNDS = {"duration": (6, 72), "credit_amount": (500, 20000)}
WORDS = {
    "credit_amount": {"unit": "DM"},
    "duration": {"unit": "months"},
    "installment_commitment": {"unit": "% of income"},
}
# fewer models than by default: the demo should take half a minute
HOLD = 0.9
MODELS = {"guide": 60, "calibration": 100, "audit": 200}
FEWER = "guide=40,calibration=80,audit=100"  # for the command that is printed
# of each family, for the network
AUDIT_MODELS = 30
GUIDE_MODELS = 10
SHOWN = 8  # people in the table that is printed


def demo(
    out: Path | None = option(
        "",
        "DIR",
        f"Directory for the demo's files; default: {DEMO}, with -network or -images appended.",
    ),
    network: bool = option(
        "", None, "Explain a torch network instead of a scikit-learn pipeline.", False, "--network"
    ),
    images: bool = option(
        "", None, "Explain handwritten digits instead: which pixels to change.", False, "--images"
    ),
    method: str | None = option(
        "", "NAME", "Method for --network and --images; default: min-cost, for images deduce."
    ),
) -> None:
    """Train a pipeline on German Credit, make plans for everybody it refuses, and check that they
    hold."""
    if network and images:
        raise SettingError("--network and --images are two demos; give one of them")
    if images:
        cli_images.demo(out or Path(DEMO_IMAGES), method or "deduce")
    elif network:
        _network_demo(out or Path(DEMO_NETWORK), method or "min-cost")
    else:
        refuse(
            {"--method": method},
            "{} is for --network and --images; plans have their own search",
        )
        _demo(out or Path(DEMO))


def _demo(out: Path) -> None:
    """Plans for the refused, beside the smallest changes that the pipeline accepts."""
    import holdfast as hf

    start = time.perf_counter()
    out.mkdir(parents=True, exist_ok=True)
    train, test = applicants()
    fitted = pipeline().fit(train.X, train.y)
    recourse = search_for(fitted, train, progress=True)
    refused = refused_by(recourse.model, test, out)
    hf.datasets.write_table(train.X.assign(outcome=train.y), out / "training.csv")
    train.schema.save(out / "schema.toml")
    plans = recourse.plans(refused, "approved")
    plans.save(out / "plans.parquet")
    echo(printable(plans.describe(most=SHOWN)))

    # for comparison, what most libraries would say: it ignores the next training
    smallest = hf.MinCost(norm=1).explain(recourse.model, refused, "approved")
    right = float((recourse.model.predict(test.X) == test.y).mean())
    echo(
        f"\nThe pipeline is right about {right:.0%} of {len(test.X)} test applicants and refuses "
        f"{len(refused)}."
    )
    _compare(smallest, plans, recourse.bank.audit)
    echo(f"All that took {time.perf_counter() - start:.0f} s.")
    kept = keep(fitted, out / "model.skops")
    page = _page(plans, out / "report.html")
    echo(
        f"Everything is in {out}{', the page in ' + str(out / 'report.html') if page else ''}. "
        "Try next:\n"
    )
    echo(plans_command(out) if kept else "holdfast demo --network")


def _compare(smallest: "hf.Counterfactuals", plans: "hf.Plans", judges: "hf.ModelBank") -> None:
    """What the smallest changes are worth at the next training, and what it costs to do better."""
    import holdfast as hf

    audit = hf.audit(smallest, judges)
    certified = int(audit.certified(hold=HOLD).sum())
    answered = plans.cfs.answered
    # costs are compared for the same people: those who have both
    both = smallest.found & answered
    small_cost = float(smallest.cost("weighted")[both].mean())
    plan_cost = float(plans.cfs.cost("weighted")[both].mean())
    echo(
        f"Smallest changes hold on {audit.survival().mean():.1%} of {len(judges)} models that "
        f"stand for new training data; {certified} of {int(smallest.found.sum())} are certified.\n"
        f"All plans together hold on {plans.survival[answered].mean():.1%} of them; "
        f"{int(plans.certified.sum())} of {int(answered.sum())} are certified.\n"
        f"The mean cost of a plan is {plan_cost:.1f} instead of {small_cost:.1f}, in standard "
        "deviations of the training data."
    )


def applicants() -> tuple["Dataset", "Dataset"]:
    """Loan applicants to learn from and to ask about, with the columns of a scorecard, and with
    advice that a person can follow."""
    import holdfast as hf

    credit = hf.datasets.german_credit()
    X = credit.X[[*FIXED, *UP, *DOWN, *FREE]]
    schema = hf.Schema.infer(
        X, fixed=FIXED, up=UP, down=DOWN, ordered=LEVELS, bounds=BOUNDS, words=WORDS
    )
    return replace(credit, X=X, schema=schema).split()


def pipeline() -> Any:
    """A lender's scorecard: logistic regression behind one-hot and scaled columns."""
    compose = untyped("sklearn.compose")
    preprocessing = untyped("sklearn.preprocessing")
    words = compose.make_column_selector(dtype_exclude="number")
    numbers = compose.make_column_selector(dtype_include="number")
    encode = compose.make_column_transformer(
        (preprocessing.OneHotEncoder(), words), (preprocessing.StandardScaler(), numbers)
    )
    scorecard = untyped("sklearn.linear_model").LogisticRegression(C=0.1)
    return untyped("sklearn.pipeline").make_pipeline(encode, scorecard)


def search_for(fitted: Any, train: "Dataset", progress: bool = False) -> "hf.Recourse":
    """What makes the demo's plans for a pipeline that is fitted to these rows."""
    import holdfast as hf

    return hf.Recourse(
        fitted,
        train.X,
        train.y,
        schema=train.schema,
        hold=HOLD,
        banks=hf.Banks(models=MODELS),
        progress=progress,
    )


def refused_by(model: "hf.Model", test: "Dataset", out: Path) -> "pd.DataFrame":
    """The test applicants that a model refuses, numbered as in the file that gets them."""
    import holdfast as hf

    refused = test.X[(model.predict(test.X) == "denied").to_numpy()].reset_index(drop=True)
    hf.datasets.write_table(refused, out / "applicants.csv")
    return refused


def keep(fitted: Any, path: Path) -> bool:
    """The pipeline in a file that runs no code when it is loaded, if skops is installed to write
    it."""
    if importlib.util.find_spec("skops") is None:
        say(f"note: no {path.name}: to keep the pipeline, pip install 'holdfast[files]'")
        return False
    write_whole(path, untyped("skops.io").dumps(fitted))
    return True


def plans_command(out: Path) -> str:
    """Plans for the same people that hold a little less surely and cost less, ready to be pasted
    into a shell."""
    words = ["holdfast", "plans", str(out / "applicants.csv"), "--model", str(out / "model.skops")]
    words += [
        "--schema",
        str(out / "schema.toml"),
        "--data",
        str(out / "training.csv"),
        "--outcome",
        "outcome",
    ]
    words += ["--target", "approved", "--hold", "0.8", "--models", FEWER]
    return shlex.join([*words, "--out", "plans.parquet"])


# ---- the network


def _network_demo(out: Path, method: str) -> None:
    import holdfast as hf

    start = time.perf_counter()
    explainer = build_method(method, [])
    out.mkdir(parents=True, exist_ok=True)
    train, test = applicants()
    recipe = hf.Recipe(hidden=(64, 32), epochs=30, weight_decay=1e-3)
    model = recipe.fit(
        train.X, train.y, train.schema, classes=["denied", "approved"], progress=True
    )
    model.save(out / "model.safetensors")
    train.schema.save(out / "schema.toml")
    recipe.save(out / "recipe.toml")
    hf.datasets.write_table(train.X.assign(outcome=train.y), out / "training.csv")
    refused = refused_by(model, test, out)
    # everything is written before the search, so that the printed commands find the same
    if explainer.needs_data:
        explainer.fit(model, train.X)
    cfs = explainer.explain(model, refused, "approved", progress=True)
    cfs.save(out / "recourse.parquet")
    page = _page(cfs, out / "report.html")
    print_changes(cfs, most=10)
    right = float((model.predict(test.X) == test.y).mean())
    echo(
        f"The network is right about {right:.0%} of {len(test.X)} test applicants and "
        f"refuses {len(refused)}; {int(cfs.found.sum())} of them get an answer, with "
        f"{cfs.cost('l0').mean():.1f} "
        f"changes on average, in {time.perf_counter() - start:.1f} s."
    )
    make_it_hold(explainer, cfs, model, recipe, train, out)
    echo(
        f"Everything is in {out}{', the page in ' + str(out / 'report.html') if page else ''}. "
        "Try next:\n"
    )
    echo(explain_command(out, method, explainer.needs_data))
    echo(audit_command(out))


def make_it_hold(
    explainer: "hf.Explainer",
    cfs: "hf.Counterfactuals",
    model: "hf.Model",
    recipe: "hf.Recipe",
    train: "Dataset",
    out: Path,
) -> None:
    """Audit the answers on retrained models, then move them to where other retrained models
    agree."""
    import holdfast as hf

    def retrained(families: dict[str, int], seed: int) -> "hf.ModelBank":
        rows = train.X, train.y, train.schema
        return hf.ModelBank.retrain(
            recipe, *rows, families=families, classes=model.classes, seed=seed, progress=True
        )

    # two banks: models that guided a search may not judge what it found
    bank = retrained({"seed": AUDIT_MODELS, "leave_one_out": AUDIT_MODELS}, 0)
    guide = retrained({"seed": GUIDE_MODELS}, 1000)
    stable = hf.StableNeighborSearch(start=explainer, bank=guide).fit(model, train.X)
    held = stable.explain(model, cfs.before, "approved", progress=True)
    held.save(out / "recourse-stable.parquet")
    for name, answers in (
        ("These answers", cfs),
        ("Moved to where retrained models agree, they", held),
    ):
        audit = hf.audit(answers, bank)
        certified = int(audit.certified().sum())
        cost = float(answers.cost("l2").mean())
        echo(
            f"{name} hold on {audit.survival().mean():.1%} of {len(bank)} retrained models; "
            f"{certified} of "
            f"{int(answers.found.sum())} are certified (95% of such models, 95% sure); l2 cost "
            f"{cost:.2f}."
        )


def _page(answers: "hf.Plans | hf.Counterfactuals", path: Path) -> bool:
    """The page needs the plot extra; a first try of the library should not fail without it."""
    try:
        answers.report(path)
    except MissingExtraError as error:
        say(f"note: no {path.name}: {error}")
        return False
    return True


def explain_command(out: Path, method: str, needs_data: bool) -> str:
    """The demo's answers again, by `holdfast explain`, ready to be pasted into a shell."""
    words = [
        "holdfast",
        "explain",
        str(out / "applicants.csv"),
        "--model",
        str(out / "model.safetensors"),
    ]
    words += ["--schema", str(out / "schema.toml"), "--target", "approved", "--method", method]
    words += ["--data", str(out / "training.csv")] if needs_data else []
    return shlex.join([*words, "--out", "recourse.parquet"])


def audit_command(out: Path) -> str:
    """An audit of the moved answers on models of your own making."""
    words = [
        "holdfast",
        "audit",
        str(out / "recourse-stable.parquet"),
        "--data",
        str(out / "training.csv"),
    ]
    return shlex.join(
        [*words, "--recipe", str(out / "recipe.toml"), "--families", "seed=100", "--seed", "7"]
    )
