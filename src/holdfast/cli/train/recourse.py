"""`holdfast train recourse`: a network that predicts and gives recourse at once."""

from pathlib import Path

from holdfast.cli.options import FIXED, QUIET, SCHEMA, SEED, SETTINGS, option
from holdfast.cli.train._options import (
    EPOCHS,
    RECIPE,
    TABLE,
    TARGET,
    TEST,
    assigned,
    out_file,
)
from holdfast.cli.train._run import Files, TrainingTable, train
from holdfast.training.by_name import recourse_trainer


def recourse(
    table: Path = TABLE,
    target: str = TARGET,
    schema: Path | None = SCHEMA,
    fixed: list[str] | None = FIXED,
    test: float = TEST,
    kind: str = option(
        "method", "NAME", "rocoursenet (holds under shifts) or counternet.", "rocoursenet"
    ),
    epochs: int | None = EPOCHS,
    settings: list[str] | None = SETTINGS,
    seed: int = SEED,
    out: Path | None = out_file("recourse.safetensors"),
    recipe: Path | None = RECIPE,
    quiet: bool = QUIET,
) -> None:
    """Train a network that predicts the outcome and gives recourse at once."""
    train(
        kind,
        recourse_trainer(kind, assigned({"epochs": epochs}, settings), seed),
        TrainingTable(table, target, schema, fixed, test, seed),
        Files(out or Path("recourse.safetensors"), recipe),
        quiet=quiet,
    )
