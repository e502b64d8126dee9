"""Ways to train a model by name, and where their settings go."""

import inspect

import holdfast as hf
from holdfast.training.by_name import OF_NETWORK, OF_OBJECTIVE, counterfactual_trainer


def test_settings_go_to_the_network_the_objective_or_the_generator() -> None:
    trainer = counterfactual_trainer(
        ["lr=0.5", "epochs=7", "lam=0.2", "generator__lr=0.3", "spread=3", "n_counterfactuals=none"], 0
    )
    assert trainer.recipe == hf.Recipe(lr=0.5, epochs=7)
    search = trainer.settings.pop("generator")
    assert (search.lam, search.lr, search.steps, search.energy) == (0.2, 0.3, 30, 5.0)
    assert trainer.settings == {"spread": 3.0, "n_counterfactuals": None}
    revise = counterfactual_trainer(["generator=revise", "generator__epochs=3", "epochs=4", "latent=2"], 5)
    search = revise.settings["generator"]
    assert (search.epochs, search.latent, search.seed, search.steps, revise.recipe.epochs) == (3, 2, 5, 30, 4)
    assert counterfactual_trainer([], 0).settings == {"generator": None}
    # Every argument of the library is a setting here, an option of its own, or of no use for a single network.
    arguments = set(inspect.signature(hf.train_counterfactual).parameters)
    apart = {
        "recipe",
        "X",
        "y",
        "schema",
        "generator",
        "variants",
        "validation",
        "classes",
        "seeds",
        "seed",
        "progress",
    }
    assert arguments == {*OF_OBJECTIVE} | apart
    assert {*OF_NETWORK} <= set(hf.Recipe().to_dict())
