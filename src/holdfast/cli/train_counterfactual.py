"""`holdfast train counterfactual`: a network that learns from its own counterfactuals, and how its training went.

Settings have the names that they have in `hf.train_counterfactual`, in the network's `hf.Recipe` and in the generator
of counterfactuals; what both the network and the generator have, such as `lr`, is the network's, and `generator__lr`
the generator's.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_type_hints

from holdfast.errors import FileError, SettingError, did_you_mean, optional
from holdfast.registry import chosen, key_and_value, value_of

if TYPE_CHECKING:
    import pandas as pd

    import holdfast as hf

OF_NETWORK = ("hidden", "epochs", "batch_size", "lr", "weight_decay", "adam_eps", "optimizer")
OF_OBJECTIVE = ("objective", "l_clf", "l_div", "l_reg", "l_adv", "burn_in", "spare_wrong")
OF_SEARCH = ("epsilon", "tau", "n_counterfactuals", "refresh", "spread", "respect_categories")
# Of each generator only the settings that count inside training, where it is not the method that `explain` runs.
OF_GENERATOR = {
    "eccco": ("energy", "lam", "lr", "steps"),
    "generic": ("lam", "lr", "steps"),
    "revise": ("lam", "lr", "steps", "kind", "hidden", "latent", "epochs", "beta"),
    "omniscient": (),
}
PAPER: dict[str, Any] = {"lam": 0.001, "lr": 0.1, "steps": 30}  # of every generator that searches
NOT_SEARCHED = ("tau", "epsilon", "spread", "respect_categories", "spare_wrong")  # idle where rows are drawn instead
SHOWN = ("accuracy", "validation", "matured", "divergence", "ridge", "adversarial")


@dataclass(frozen=True)
class Lessons:
    """A network to be taught, and what `hf.train_counterfactual` is told besides."""

    recipe: "hf.Recipe"
    objective: "hf.CounterfactualObjective"
    search: "hf.CounterfactualSearch"

    @classmethod
    def of(cls, assignments: Sequence[str], seed: int) -> "Lessons":
        """Settings such as 'l_div=0.1', 'energy=10', 'generator__lr=0.05' and 'epochs=20'."""
        import holdfast as hf

        inner = dict.fromkeys(name for names in OF_GENERATOR.values() for name in names)
        known = (*OF_OBJECTIVE, *OF_SEARCH, *OF_NETWORK, "generator", *inner, *(f"generator__{name}" for name in inner))
        texts = dict(map(key_and_value, assignments))
        for name in texts:
            if name not in known:
                raise SettingError(f"counterfactual has no setting {name!r}; {did_you_mean(name, known)}")

        def settings(of: Any, names: Sequence[str]) -> dict[str, Any]:
            given = [f"{name}={text}" for name, text in texts.items() if name in names]
            return chosen(of, "counterfactual", names, given)

        apart = (*OF_OBJECTIVE, *OF_SEARCH, *OF_NETWORK, "generator")
        inner_texts = {name: text for name, text in texts.items() if name not in apart}
        kind = texts.get("generator", "eccco").lower()
        method = generator(kind, inner_texts, seed) if inner_texts or "generator" in texts else None
        objective = hf.CounterfactualObjective(**settings(hf.CounterfactualObjective, OF_OBJECTIVE))
        _check_idle(objective.objective, kind, list(texts))
        search = hf.CounterfactualSearch(method, **settings(hf.CounterfactualSearch, OF_SEARCH))
        return cls(hf.Recipe(**settings(hf.Recipe, OF_NETWORK)), objective, search)

    def fit(
        self,
        X: "pd.DataFrame",
        y: "pd.Series[Any]",
        schema: "hf.Schema",
        held: "tuple[pd.DataFrame, pd.Series[Any]]",
        seed: int,
        progress: bool,
    ) -> "hf.CounterfactualTraining":
        """Train on rows and outcomes, and watch the accuracy on those held out."""
        import holdfast as hf

        learnt = held[1].isin(y.unique())  # a class that only they have cannot be got right
        rows = (held[0][learnt], held[1][learnt]) if learnt.any() else None
        return hf.train_counterfactual(
            self.recipe, X, y, schema, objective=self.objective, search=self.search, validation=rows, seed=seed,
            progress=progress,
        )  # fmt: skip


def generator(kind: str, texts: dict[str, str], seed: int) -> "hf.Explainer":
    """A generator by name, with the settings of the paper but for those that are given."""
    import holdfast as hf

    if kind not in OF_GENERATOR:
        raise SettingError(f"unknown generator {kind!r}; {did_you_mean(kind, OF_GENERATOR)}")
    cls = {"eccco": hf.ECCCo, "generic": hf.Descent, "revise": hf.REVISE, "omniscient": hf.Omniscient}[kind]
    known, hints, given = OF_GENERATOR[kind], get_type_hints(cls), dict[str, Any]()
    for typed, text in texts.items():
        name = typed.removeprefix("generator__")
        if name not in known:
            there = did_you_mean(name, known) if known else "it has none"
            raise SettingError(f"generator {kind!r} has no setting {name!r}; {there}")
        if name in given:
            raise SettingError(f"{name!r} of the generator is given twice; leave one of {list(texts)} out")
        given[name] = value_of(typed, text, hints[name])
    if kind == "omniscient":
        return hf.Omniscient()
    given = PAPER | given
    if kind == "revise":
        return hf.REVISE(seed=seed, **given)
    return hf.Descent.generic(**given) if kind == "generic" else hf.ECCCo(**given)


def _check_idle(objective: str, kind: str, given: Sequence[str]) -> None:
    """A setting that would change nothing was meant to change something."""
    from holdfast.training.counterfactual.settings import OFF

    off = [f"l_{term}" for term in OFF[objective]]
    for name in given:
        plain = objective == "plain" and name not in (*OF_NETWORK, "objective", "l_clf")
        if plain or name in off:
            raise SettingError(f"objective {objective!r} has no use for {name}; leave it out")
        if kind == "omniscient" and name in NOT_SEARCHED:
            raise SettingError(f"generator 'omniscient' searches for nothing and has no use for {name}; leave it out")


# ---- files and words


def check_files(history: Path | None, plot: Path | None) -> None:
    """What cannot be written is told before the work, not after it."""
    from holdfast.datasets import known_extension
    from holdfast.render.charts.theme import EXTENSIONS

    if history:
        known_extension(history, "write")
    if plot:
        if plot.suffix.lower() not in EXTENSIONS:
            raise FileError(f"cannot write {str(plot)!r}: the extension must be one of {', '.join(EXTENSIONS)}")
        for module in ("altair", "vl_convert"):
            optional(module, "plot")


def write(table: "pd.DataFrame", history: Path | None, plot: Path | None) -> dict[str, Any]:
    """Write what is asked for of the history; for the report, where it is, and the first and the last epoch."""
    import holdfast as hf
    from holdfast.render.charts.theme import save
    from holdfast.render.charts.training import training_curves

    if history:
        hf.datasets.write_table(table, history)
    if plot:
        save(training_curves(table), plot)
    first, last = hf.datasets.records(table.iloc[[0, -1]][["epoch", *SHOWN]])
    files = {name: str(path) for name, path in (("history", history), ("plot", plot)) if path}
    return {"first": first, "last": last} | files


def words(report: dict[str, Any]) -> list[str]:
    """The first and the last epoch side by side, and where the files are."""
    first, last = report["first"], report["last"]
    cells = [("", f"epoch {first['epoch']}", f"epoch {last['epoch']}")]
    cells += [(name, _figure(first[name]), _figure(last[name])) for name in SHOWN if last[name] is not None]
    lines = [f"{name:<12}{a:>10}{b:>12}".rstrip() for name, a, b in cells]
    return [*lines, *(f"{name}: {report[name]}" for name in ("history", "plot") if name in report)]


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
