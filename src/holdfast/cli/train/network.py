"""`holdfast train network`: a plain network, or one that is attacked while it learns."""

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
from holdfast.training.by_name import network_trainer


def network(
    table: Path = TABLE,
    target: str = TARGET,
    schema: Path | None = SCHEMA,
    fixed: list[str] | None = FIXED,
    test: float = TEST,
    epochs: int | None = EPOCHS,
    hidden: str | None = HIDDEN,
    epsilon: float | None = option("method", "E", "Radius of attacks on the rows; default: 0."),
    settings: list[str] | None = SETTINGS,
    seed: int = SEED,
    out: Path | None = out_file("network.safetensors"),
    recipe: Path | None = RECIPE,
    quiet: bool = QUIET,
) -> None:
    """Train a network that predicts the outcome; with --epsilon against attacks on its rows."""
    of_network = {"epochs": epochs, "hidden": hidden, "epsilon": epsilon}
    train(
        "network",
        network_trainer(assigned(of_network, settings), seed),
        TrainingTable(table, target, schema, fixed, test, seed),
        Files(out or Path("network.safetensors"), recipe),
        quiet=quiet,
    )
