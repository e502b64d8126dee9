"""Ways to train a model by name, and where their settings go."""

from dataclasses import fields

import holdfast as hf
from holdfast.training.by_name import OF_NETWORK, OF_OBJECTIVE, OF_SEARCH, counterfactual_trainer


def test_settings_go_to_the_network_the_objective_or_the_generator() -> None:
    trainer = counterfactual_trainer(
        [
            "lr=0.5",
            "epochs=7",
            "lam=0.2",
            "generator__lr=0.3",
            "spread=3",
            "n_counterfactuals=none",
        ],
        0,
    )
    assert trainer.recipe == hf.Recipe(lr=0.5, epochs=7)
    method = trainer.search.generator
    assert isinstance(method, hf.ECCCo)
    assert (method.lam, method.lr, method.steps, method.energy) == (0.2, 0.3, 30, 5.0)
    assert trainer.search == hf.CounterfactualSearch(method, spread=3.0, n_counterfactuals=None)
    assert trainer.objective == hf.CounterfactualObjective()
    revise = counterfactual_trainer(
        ["generator=revise", "generator__epochs=3", "epochs=4", "latent=2"], 5
    )
    method = revise.search.generator
    assert isinstance(method, hf.REVISE)
    assert (method.epochs, method.latent, method.seed, method.steps, revise.recipe.epochs) == (
        3,
        2,
        5,
        30,
        4,
    )
    assert counterfactual_trainer([], 0).search == hf.CounterfactualSearch()
    # Every setting of the library is one here; what else its function takes is of no use for a
    # single network.
    assert [f.name for f in fields(hf.CounterfactualObjective)] == [*OF_OBJECTIVE]
    assert {f.name for f in fields(hf.CounterfactualSearch)} == {*OF_SEARCH, "generator"}
    assert {*OF_NETWORK} <= set(hf.Recipe().to_dict())
