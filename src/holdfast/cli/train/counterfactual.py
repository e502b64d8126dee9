"""`holdfast train counterfactual`: a network that learns from its own counterfactuals."""

from pathlib import Path

from holdfast.cli.options import FIXED, QUIET, SCHEMA, SEED, SETTINGS, option
from holdfast.cli.train._options import (
    EPOCHS,
    HIDDEN,
    RECIPE,
    TABLE,
    TARGET,
    TEST,
    assigned,
    out_file,
)
from holdfast.cli.train._run import Files, TrainingTable, train
from holdfast.training.by_name import counterfactual_trainer


def counterfactual(
    table: Path = TABLE,
    target: str = TARGET,
    schema: Path | None = SCHEMA,
    fixed: list[str] | None = FIXED,
    test: float = TEST,
    epochs: int | None = EPOCHS,
    hidden: str | None = HIDDEN,
    objective: str | None = option("method", "NAME", "What is minimised; default: full."),
    generator: str | None = option("method", "NAME", "What searches; default: eccco."),
    energy: float | None = option("method", "W", "Weight of the energy; default: 5."),
    tau: float | None = option("method", "P", "Probability to mature; default: 0.75."),
    steps: int | None = option("method", "N", "Steps of the search; default: 30."),
    n_counterfactuals: int | None = option("method", "N", "Searches per epoch; default: 1000."),
    l_div: float | None = option("method", "W", "Weight of divergence; default: 0.5."),
    l_reg: float | None = option("method", "W", "Weight of the ridge; default: 0.1."),
    l_adv: float | None = option("method", "W", "Adversarial weight; default: 0.25."),
    burn_in: float | None = option("method", "SHARE", "First epochs kept plain; default: 0."),
    settings: list[str] | None = SETTINGS,
    seed: int = SEED,
    out: Path | None = out_file("counterfactual.safetensors"),
    recipe: Path | None = RECIPE,
    history: Path | None = option("output", "FILE", "Table of epochs: .csv, .json, .parquet."),
    plot: Path | None = option("output", "FILE", "Chart of epochs: .png, .svg or .html."),
    quiet: bool = QUIET,
) -> None:
    """Train a network that learns from its own counterfactuals."""
    of_training = {
        "epochs": epochs,
        "hidden": hidden,
        "objective": objective,
        "generator": generator,
        "energy": energy,
        "tau": tau,
        "steps": steps,
        "n_counterfactuals": n_counterfactuals,
        "l_div": l_div,
        "l_reg": l_reg,
        "l_adv": l_adv,
        "burn_in": burn_in,
    }
    train(
        "counterfactual",
        counterfactual_trainer(assigned(of_training, settings), seed),
        TrainingTable(table, target, schema, fixed, test, seed),
        Files(out or Path("counterfactual.safetensors"), recipe, history, plot),
        quiet=quiet,
    )
