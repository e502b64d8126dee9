"""`holdfast train recourse`: a network that predicts and gives recourse at once."""

from holdfast.cli.options import option
from holdfast.cli.train._command import Given, learns_from_table
from holdfast.cli.train._options import EPOCHS
from holdfast.cli.train._run import train
from holdfast.training.by_name import recourse_trainer


@learns_from_table("recourse.safetensors")
def recourse(
    given: Given,
    kind: str = option(
        "method", "NAME", "rocoursenet (holds under shifts) or counternet.", "rocoursenet"
    ),
    epochs: int | None = EPOCHS,
) -> None:
    """Train a network that predicts the outcome and gives recourse at once."""
    settings = given.assigned({"epochs": epochs})
    train(kind, recourse_trainer(kind, settings, given.seed), given)
