"""`holdfast train counterfactual`: a network that learns from its own counterfactuals."""

from holdfast.cli.options import option
from holdfast.cli.train._command import Given, learns_from_table
from holdfast.cli.train._options import EPOCHS, HIDDEN
from holdfast.cli.train._run import train
from holdfast.training.by_name import counterfactual_trainer


@learns_from_table("counterfactual.safetensors", has_history=True)
def counterfactual(
    given: Given,
    epochs: int | None = EPOCHS,
    hidden: str | None = HIDDEN,
    objective: str | None = option("method", "NAME", "Objective; default: full."),
    generator: str | None = option("method", "NAME", "Generator; default: eccco."),
    energy: float | None = option("method", "W", "Weight of the energy; default: 5."),
    tau: float | None = option("method", "P", "Probability to mature; default: 0.75."),
    steps: int | None = option("method", "N", "Steps of the search; default: 30."),
    n_counterfactuals: int | None = option("method", "N", "Searches per epoch; default: 1000."),
    l_div: float | None = option("method", "W", "Weight of divergence; default: 0.5."),
    l_reg: float | None = option("method", "W", "Weight of the ridge; default: 0.1."),
    l_adv: float | None = option("method", "W", "Adversarial weight; default: 0.25."),
    burn_in: float | None = option("method", "SHARE", "Plain epochs at first; default: 0."),
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
    settings = given.assigned(of_training)
    train("counterfactual", counterfactual_trainer(settings, given.seed), given)
