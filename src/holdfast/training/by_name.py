"""Ways to train a model, by name and with settings in words: 'counternet' with 'epochs=20'.

Settings are named as in `hf.Recipe`, `hf.CounterNet`, `hf.RoCourseNet`,
`hf.CounterfactualObjective` and `hf.CounterfactualSearch`. Counterfactual training also takes
settings of the generator; where network and generator share a name, such as `lr`, it means the
network's, and `generator__lr` the generator's.

Nothing heavy is imported before it is needed: the command line lists these names in its help.
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, NamedTuple, get_type_hints

from holdfast._core.checks import did_you_mean
from holdfast.errors import SettingError
from holdfast.registry import parse_setting, parse_settings, split_setting

if TYPE_CHECKING:
    import pandas as pd

    import holdfast as hf

RECOURSE_KINDS = ("rocoursenet", "counternet")
OF_NETWORK = ("hidden", "epochs", "batch_size", "lr", "weight_decay", "adam_eps", "optimizer")
OF_ATTACKS = ("epsilon", "attack", "attack_steps", "attack_norm", "attack_box")
OF_OBJECTIVE = ("objective", "l_clf", "l_div", "l_reg", "l_adv", "burn_in", "spare_wrong")
OF_SEARCH = ("epsilon", "tau", "n_counterfactuals", "refresh", "spread", "respect_categories")
# Of each generator only the settings that count inside training, where it is not the method
# `explain` runs.
OF_GENERATOR = {
    "eccco": ("energy", "lam", "lr", "steps"),
    "generic": ("lam", "lr", "steps"),
    "revise": ("lam", "lr", "steps", "kind", "hidden", "latent", "epochs", "beta"),
    "omniscient": (),
}
PAPER: dict[str, Any] = {"lam": 0.001, "lr": 0.1, "steps": 30}  # of every generator that searches
# idle where rows are drawn instead
NOT_SEARCHED = ("tau", "epsilon", "spread", "respect_categories", "spare_wrong")


class Trained(NamedTuple):
    """A trained model and, for counterfactual training, a line per epoch."""

    model: "hf.Model | hf.CounterNet"
    history: "pd.DataFrame | None" = None


Rows = tuple["pd.DataFrame", "pd.Series[Any]"]  # and their outcomes


@dataclass(frozen=True)
class NetworkTrainer:
    """A plain network."""

    recipe: "hf.Recipe"
    seed: int

    def fit(self, rows: Rows, schema: "hf.Schema", held: Rows, progress: bool = False) -> Trained:
        """Train on rows and their outcomes; rows held out are only for trainers that watch accuracy
        on them."""
        return Trained(self.recipe.fit(*rows, schema, seed=self.seed, progress=progress))

    def audit_recipe(self) -> "hf.Recipe":
        """How an audit makes the model again."""
        return self.recipe


@dataclass(frozen=True)
class RecourseTrainer:
    """A network that predicts and gives recourse: `CounterNet` or `RoCourseNet`."""

    net: "hf.CounterNet"

    def fit(self, rows: Rows, schema: "hf.Schema", held: Rows, progress: bool = False) -> Trained:
        return Trained(self.net.fit(*rows, schema, progress=progress))

    def audit_recipe(self) -> "hf.Recipe":
        """The recipe of the half that predicts."""
        import holdfast as hf

        net = self.net
        return hf.Recipe.of(net.model_, epochs=net.epochs, batch_size=net.batch_size, lr=net.lr)


@dataclass(frozen=True)
class CounterfactualTrainer(NetworkTrainer):
    """A network that learns from its own counterfactuals, and the settings of
    `hf.train_counterfactual`."""

    objective: "hf.CounterfactualObjective"
    search: "hf.CounterfactualSearch"

    def fit(self, rows: Rows, schema: "hf.Schema", held: Rows, progress: bool = False) -> Trained:
        import holdfast as hf

        learnt = held[1].isin(rows[1].unique())  # a class only they have cannot be predicted
        validation = (held[0][learnt], held[1][learnt]) if learnt.any() else None
        how: dict[str, Any] = {
            "objective": self.objective,
            "search": self.search,
            "validation": validation,
        }
        out = hf.train_counterfactual(
            self.recipe, *rows, schema, **how, seed=self.seed, progress=progress
        )
        return Trained(out.model, out.history)

    def audit_recipe(self) -> "hf.Recipe":
        warnings.warn(
            "the recipe is that of the network: an audit retrains it without counterfactuals",
            stacklevel=2,
        )
        return self.recipe


Trainer = NetworkTrainer | RecourseTrainer


def network_trainer(assignments: Sequence[str], seed: int = 0) -> NetworkTrainer:
    """Settings of the network such as 'hidden=64,32', and of attacks on its rows such as
    'epsilon=0.1'."""
    import holdfast as hf

    settings = parse_settings(hf.Recipe, "network", (*OF_NETWORK, *OF_ATTACKS), assignments)
    return NetworkTrainer(hf.Recipe(**settings), seed)


def recourse_trainer(kind: str, assignments: Sequence[str], seed: int = 0) -> RecourseTrainer:
    """Settings of the network such as 'l2=2', and for a RoCourseNet those of its shift such as
    'outer=3'.

    Args:
        kind: one of `RECOURSE_KINDS`.
    """
    import holdfast as hf

    if kind not in RECOURSE_KINDS:
        raise SettingError(f"unknown kind {kind!r}; {did_you_mean(kind, RECOURSE_KINDS)}")
    cls = hf.CounterNet if kind == "counternet" else hf.RoCourseNet
    apart = ("seed", "shift")  # an argument here, and a record with settings of its own
    of_network = [f.name for f in fields(cls) if f.name not in apart]
    of_shift = [] if kind == "counternet" else [f.name for f in fields(hf.Shift)]
    check_known(kind, [*of_network, *of_shift], assignments)
    chosen = {split_setting(text)[0]: text for text in assignments}
    shift = parse_settings(hf.Shift, kind, of_shift, _only(chosen, of_shift))
    settings = parse_settings(cls, kind, of_network, _only(chosen, of_network))
    if shift:
        settings["shift"] = hf.Shift(**shift)
    net = cls(**settings, seed=seed)
    net.checked()  # an invalid setting is an error before any table is read
    return RecourseTrainer(net)


def check_known(kind: str, known: Sequence[str], assignments: Sequence[str]) -> None:
    """Raise an error that names the first unknown setting."""
    for name, _ in map(split_setting, assignments):
        if name not in known:
            raise SettingError(f"{kind} has no setting {name!r}; {did_you_mean(name, known)}")


def _only(chosen: dict[str, str], names: Sequence[str]) -> list[str]:
    return [text for name, text in chosen.items() if name in names]


def counterfactual_trainer(assignments: Sequence[str], seed: int) -> CounterfactualTrainer:
    """Settings such as 'l_div=0.1', 'energy=10', 'generator__lr=0.05' and 'epochs=20'."""
    import holdfast as hf

    kind = "counterfactual"
    inner = dict.fromkeys(name for names in OF_GENERATOR.values() for name in names)
    known = (
        *OF_OBJECTIVE,
        *OF_SEARCH,
        *OF_NETWORK,
        "generator",
        *inner,
        *(f"generator__{name}" for name in inner),
    )
    check_known(kind, known, assignments)
    given = dict(map(split_setting, assignments))

    def settings(cls: type, names: Sequence[str]) -> dict[str, Any]:
        return parse_settings(
            cls, kind, names, [f"{name}={text}" for name, text in given.items() if name in names]
        )

    # A name both have, such as lr, is the network's; generator__lr is the generator's.
    apart = (*OF_OBJECTIVE, *OF_SEARCH, *OF_NETWORK, "generator")
    of_method = {name: text for name, text in given.items() if name not in apart}
    name = given.get("generator", "eccco").lower()
    method = generator(name, of_method, seed) if of_method or "generator" in given else None
    objective = hf.CounterfactualObjective(**settings(hf.CounterfactualObjective, OF_OBJECTIVE))
    _check_idle(objective.objective, name, list(given))
    search = hf.CounterfactualSearch(method, **settings(hf.CounterfactualSearch, OF_SEARCH))
    return CounterfactualTrainer(
        hf.Recipe(**settings(hf.Recipe, OF_NETWORK)), seed, objective, search
    )


def generator(kind: str, settings: dict[str, str], seed: int) -> "hf.Explainer":
    """A generator by name, with the paper's settings except for those given."""
    import holdfast as hf

    if kind not in OF_GENERATOR:
        raise SettingError(f"unknown generator {kind!r}; {did_you_mean(kind, OF_GENERATOR)}")
    cls = {
        "eccco": hf.ECCCo,
        "generic": hf.Descent,
        "revise": hf.REVISE,
        "omniscient": hf.Omniscient,
    }[kind]
    names = OF_GENERATOR[kind]
    hints = get_type_hints(cls)
    given = dict[str, Any]()
    for typed, text in settings.items():
        # lam and generator__lam are the same setting
        name = typed.removeprefix("generator__")
        if name not in names:
            hint = did_you_mean(name, names) if names else "it has none"
            raise SettingError(f"generator {kind!r} has no setting {name!r}; {hint}")
        if name in given:
            raise SettingError(
                f"{name!r} of the generator is given twice; leave one of {list(settings)} out"
            )
        given[name] = parse_setting(typed, text, hints[name])
    if kind == "omniscient":
        return hf.Omniscient()
    given = PAPER | given
    if kind == "revise":
        return hf.REVISE(seed=seed, **given)
    return hf.Descent.generic(**given) if kind == "generic" else hf.ECCCo(**given)


def _check_idle(objective: str, kind: str, given: Sequence[str]) -> None:
    """Refuse a setting that would change nothing: it was meant to change something."""
    from holdfast.training.counterfactual.settings import OFF

    off = [f"l_{term}" for term in OFF[objective]]
    for name in given:
        plain = objective == "plain" and name not in (*OF_NETWORK, "objective", "l_clf")
        if plain or name in off:
            raise SettingError(f"objective {objective!r} has no use for {name}; leave it out")
        if kind == "omniscient" and name in NOT_SEARCHED:
            raise SettingError(
                f"generator 'omniscient' searches for nothing and has no use for {name}; leave it "
                "out"
            )
