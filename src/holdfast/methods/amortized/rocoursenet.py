"""RoCourseNet: prediction and recourse learnt together, under an attack on the data."""

from dataclasses import dataclass, fields
from typing import Any, Literal

from holdfast.errors import SettingError, did_you_mean
from holdfast.methods.amortized._parallel import Schedule
from holdfast.methods.amortized.counternet import PAPER, CounterNet
from holdfast.methods.amortized.virtual_shift import Shift


@dataclass(eq=False, repr=False)
class RoCourseNet(CounterNet):
    """Prediction and recourse trained together, the recourse against the worst small shift of the data.

    Args:
        epsilon: the largest shift of a number column, in encoded units.
        schedule: how epsilon grows over the epochs: "linear", "log", or "static".
        outer, inner: T steps of the shift, and K steps of retraining before each.
        eta, optimizer: step size and kind of the retraining.
        norm: "linf" or "l2".
        categories: "none" leaves categories as they are; "clamp"; "softmax" as in the authors' code.
        scope: retrain "all" of the predictor, or only the "head" that follows the encoder.
        attack: "gradient", or "random" shifts (an ablation).

    The other settings are those of `CounterNet`.
    """

    epsilon: float = 0.1
    schedule: Schedule = "linear"
    outer: int = 7
    inner: int = 2
    eta: float = 0.003
    optimizer: Literal["adam", "sgd"] = "adam"
    norm: Literal["linf", "l2"] = "linf"
    categories: Literal["none", "clamp", "softmax"] = "none"
    scope: Literal["all", "head"] = "all"
    attack: Literal["gradient", "random"] = "gradient"

    @classmethod
    def paper_tables(cls, dataset: Literal["loan", "german", "student"], **settings: Any) -> "RoCourseNet":
        """The settings behind the paper's tables: its network and attack, with the authors' softmax over shifted
        categories, a generator that is not told the class to reach and trains on relaxed answers."""
        if dataset not in PAPER:
            raise SettingError(f"the paper has no dataset {dataset!r}; {did_you_mean(dataset, PAPER)}")
        common = {
            "categories": "softmax",
            "eta": 0.03,
            "condition_on_target": False,
            "clip_to_data": False,
            "hard_categories": False,
        }
        chosen: dict[str, Any] = {**common, **PAPER[dataset], **settings}
        return cls(**chosen)

    def shift(self) -> Shift | None:
        if self.attack not in ("gradient", "random"):
            raise SettingError(f"attack must be 'gradient' or 'random', got {self.attack!r}")
        names = {f.name for f in fields(Shift)} & {f.name for f in fields(self)}
        return Shift(**{name: getattr(self, name) for name in names}, ascend=self.attack == "gradient")
