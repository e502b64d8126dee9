"""`holdfast train network`: a plain network, or one that is attacked while it learns."""

from holdfast.cli.options import option
from holdfast.cli.train._command import Given, learns_from_table
from holdfast.cli.train._options import EPOCHS, HIDDEN
from holdfast.cli.train._run import train
from holdfast.training.by_name import network_trainer


@learns_from_table("network.safetensors")
def network(
    given: Given,
    epochs: int | None = EPOCHS,
    hidden: str | None = HIDDEN,
    epsilon: float | None = option("method", "E", "Radius of attacks on the rows; default: 0."),
) -> None:
    """Train a network that predicts the outcome; with --epsilon against attacks on its rows."""
    of_network = {"epochs": epochs, "hidden": hidden, "epsilon": epsilon}
    train("network", network_trainer(given.assigned(of_network), given.seed), given)
