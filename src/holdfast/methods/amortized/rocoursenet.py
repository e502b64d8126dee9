"""RoCourseNet: prediction and recourse learnt together, under an attack on the data.

    max over generators of   min_{|delta| <= epsilon}   the validity of their answers on the model theta'(delta)

that training on the shifted rows x + delta would lead to: CounterNet's training, but that each batch's answers are
judged by the model that the worst small shift of the batch makes of the present one (`virtual_shift`).

Guo, Jia, Chen, Yadav and Xiao, "RoCourseNet: Distributionally Robust Training of a Prediction Aware Recourse Model",
CIKM 2023.
"""

from dataclasses import dataclass, fields
from typing import Any, Literal

from holdfast.errors import SettingError, did_you_mean
from holdfast.methods.amortized._parallel import Schedule
from holdfast.methods.amortized.counternet import CounterNet
from holdfast.methods.amortized.virtual_shift import Shift

# Tables 4 and 5 of the paper.
PAPER: dict[str, dict[str, Any]] = {
    "loan": {"encoder": (200, 10), "predictor": (10,), "generator": (10,), "batch_size": 128, "l2": 0.2},
    "german": {"encoder": (100, 10), "predictor": (20,), "generator": (20,), "batch_size": 256, "l2": 1.0},
    "student": {"encoder": (50, 10), "predictor": (10,), "generator": (50,), "batch_size": 128, "l2": 0.2}
    | {"lr": 0.01, "eta": 0.01},
}


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

    Example:
        >>> import holdfast as hf
        >>> data = hf.datasets.german_credit().take(range(200))
        >>> net = hf.RoCourseNet(encoder=(20,), epochs=2, outer=2).fit(data.X, data.y, data.schema)
        >>> len(net.recourse(data.X[:5], "approved"))
        5
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
