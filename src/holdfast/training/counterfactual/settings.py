"""Settings of Counterfactual Training: what is minimised, how counterfactuals are found, and
variants of both."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from numbers import Integral
from typing import Any, Literal, get_args

from holdfast._core.checks import did_you_mean, require_integer, require_number
from holdfast.errors import SettingError
from holdfast.explainer import Explainer
from holdfast.training.counterfactual.generators import GeneratorSettings
from holdfast.training.counterfactual.objective import Kind, Refresh, Variant

ObjectiveName = Literal["full", "draft", "energy", "adversarial", "plain"]
Variants = Mapping[str, Mapping[str, float | str]]
# Objective -> the weights that it sets to 0.
OFF: dict[str, dict[str, float]] = {
    "full": {},
    "draft": {"reg": 0.0},
    "energy": {"adv": 0.0},
    "adversarial": {"div": 0.0, "reg": 0.0},
    "plain": {"div": 0.0, "reg": 0.0, "adv": 0.0},
}
# How variants may differ, and where `Variant` has it.
SETTINGS = {
    ("l_" if f.name in ("clf", "div", "reg", "adv") else "") + f.name: f.name
    for f in fields(Variant)
}


@dataclass(frozen=True)
class CounterfactualObjective:
    """What Counterfactual Training minimises; the defaults are those of the paper.

        l_clf CE(M(x), y)  +  l_div (E(x+) - E(x'))  +  l_reg (E(x+)^2 + E(x')^2)
                           +  l_adv CE(M(x~), y)

    with x' a mature counterfactual, x~ a nascent one, x+ a real row of the class x' was to reach,
    and E the energy, minus the logit of that class.

    Args:
        objective: "full"; "energy" has no adversarial term, "adversarial" has no other; "plain" is
            the usual training; "draft" is the paper's first version.
        l_clf, l_div, l_reg, l_adv: weights of classification, divergence, ridge on energies, and
            adversarial term.
        burn_in: share of the epochs, at the beginning, that are plain.
        spare_wrong: rows that the network gets wrong have no part in the adversarial term.

    >>> import holdfast as hf
    >>> hf.CounterfactualObjective("energy", l_reg=0.2).l_div
    0.5

    Paper: altmeyer2025 Eq. 1.
    """

    objective: ObjectiveName = "full"
    l_clf: float = 1.0
    l_div: float = 0.5
    l_reg: float = 0.1
    l_adv: float = 0.25
    burn_in: float = 0.0
    spare_wrong: bool = False

    def __post_init__(self) -> None:
        _check_objective(self.objective)
        if not (isinstance(self.burn_in, int | float) and 0 <= self.burn_in <= 1):
            raise SettingError(f"burn_in must be a share between 0 and 1, got {self.burn_in!r}")

    def check_used(self) -> None:
        """Raise an error if a weight was changed that the objective does not use."""
        for term in OFF[self.objective]:
            name = f"l_{term}"
            if getattr(self, name) != getattr(CounterfactualObjective, name):
                raise SettingError(
                    f"{name} is set, which objective={self.objective!r} has no use for"
                )


@dataclass(frozen=True)
class CounterfactualSearch:
    """How Counterfactual Training finds counterfactuals; the defaults are those of the paper.

    Args:
        generator: how counterfactuals are searched for: `ECCCo`, `Descent.generic(...)`, `REVISE`
            (if everything may change) or `Omniscient`; their settings `lam`, `energy`, `tau`, `lr`
            and `steps` count. None is ECCCo as in the paper: lam=0.001, energy=5, tau=0.75, lr=0.1,
            steps=30. `ECCCo()` has 50 steps, as elsewhere.
        tau: a counterfactual is mature once the wanted class has this probability; None: the
            generator's own, or 0.75.
        epsilon: the linf distance, in encoded units, up to which a counterfactual in the making
            keeps the row's class.
        n_counterfactuals: how many in an epoch, from different rows; None is one for every row.
        refresh: search at the beginning of every epoch, or of every batch.
        spread: where the schema has no limits, counterfactuals stay within mean -+ spread standard
            deviations of a column, or its range if that is wider.
        respect_categories: one level of each category at every step of the search; else their
            columns are numbers.

    >>> import holdfast as hf
    >>> search = hf.CounterfactualSearch(hf.ECCCo(steps=10), n_counterfactuals=100)
    >>> search.epsilon
    0.3
    """

    generator: Explainer | None = None
    tau: float | None = None
    epsilon: float = 0.3
    n_counterfactuals: int | None = 1000
    refresh: Refresh = "epoch"
    spread: float = 2.0
    respect_categories: bool = False

    def __post_init__(self) -> None:
        require_number("epsilon", self.epsilon)
        steps = GeneratorSettings.of(self.generator).steps
        count = self.n_counterfactuals
        require_integer("steps of the generator", steps)
        if count is not None and not (isinstance(count, Integral) and count >= 1):
            raise SettingError(
                "n_counterfactuals must be an integer of at least 1, or None for all, got "
                f"{count!r}"
            )
        if self.refresh not in get_args(Refresh):
            raise SettingError(f"refresh must be 'epoch' or 'batch', got {self.refresh!r}")
        require_number("spread", self.spread)


def variants_of(
    objective: CounterfactualObjective, search: CounterfactualSearch, variants: Variants | None
) -> dict[str, tuple[Kind, Variant]]:
    """Name -> which program trains it, and its settings.

    Paper: altmeyer2025 Baseline Vanilla.
    """
    generator = GeneratorSettings.of(search.generator)
    weights = {term: getattr(objective, f"l_{term}") for term in ("clf", "div", "reg", "adv")}
    usual = replace(generator.variant, **weights)
    if search.tau is not None:
        usual = replace(usual, tau=search.tau)
    if variants is None:
        objective.check_used()
        variants = {objective.objective: {}}
    if not isinstance(variants, Mapping) or not variants:
        raise SettingError(
            "variants must name at least one, like {'gentle': {'l_reg': 0.25}}, got "
            f"{variants!r}"
        )
    return {
        str(name): _variant(str(name), settings, objective.objective, usual, generator)
        for name, settings in variants.items()
    }


def _variant(
    name: str,
    settings: Mapping[str, float | str],
    objective: str,
    usual: Variant,
    generator: GeneratorSettings,
) -> tuple[Kind, Variant]:
    """Which program trains a variant, and its settings."""
    names = "objective", *SETTINGS
    for key in settings:
        if key not in names:
            raise SettingError(
                f"variant {name!r} has an unknown setting {key!r}; {did_you_mean(key, names)}"
            )
    chosen = _check_objective(settings.get("objective", objective))
    # A weight that the objective sets to 0 was meant to change something.
    idle = [key for key in settings if SETTINGS.get(key) in OFF[chosen]]
    if idle:
        raise SettingError(
            f"variant {name!r} sets {idle[0]}, which objective={chosen!r} has no use for"
        )
    changed: dict[str, Any] = {
        SETTINGS[key]: value for key, value in settings.items() if key != "objective"
    }
    variant = _checked(replace(usual, **(changed | OFF[chosen])))
    if chosen == "plain":
        return "plain", variant
    if generator.omniscient and chosen == "draft":
        raise SettingError(
            "objective='draft' needs counterfactuals that are searched for; Omniscient draws rows"
        )
    if generator.omniscient:
        return "omni", variant
    return "draft" if chosen == "draft" else "search", variant


def _check_objective(name: Any) -> str:
    if name not in OFF:
        raise SettingError(f"unknown objective {name!r}; {did_you_mean(name, OFF)}")
    return name


def _checked(variant: Variant) -> Variant:
    names = {field: name for name, field in SETTINGS.items()}
    for field in fields(variant):
        require_number(names[field.name], getattr(variant, field.name))
    if not 0 < variant.tau < 1:
        raise SettingError(f"tau must lie between 0 and 1, got {variant.tau}")
    return variant
