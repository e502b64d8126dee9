"""RoCourseNet: CounterNet's training, but that each batch's answers are judged by the model that
the worst small shift of the batch makes of the present one (`virtual_shift`)."""

from dataclasses import dataclass, fields
from typing import Literal

from holdfast.errors import SettingError
from holdfast.methods.amortized._parallel import Schedule
from holdfast.methods.amortized.counternet import CounterNet
from holdfast.methods.amortized.virtual_shift import Shift


@dataclass(eq=False, repr=False)
class RoCourseNet(CounterNet):
    """Prediction and recourse trained together, the recourse against the worst small shift of the
    data.

        max over generators of   min_{|delta| <= epsilon}   the validity of their answers on the model theta'(delta)

    that training on the shifted rows x + delta would lead to. Guo, Jia, Chen, Yadav and Xiao,
    "RoCourseNet: Distributionally Robust Training of a Prediction Aware Recourse Model", CIKM 2023.

    Args:
        epsilon: the largest shift of a number column, in encoded units.
        schedule: how epsilon grows over the epochs: "linear", "log", or "static".
        outer, inner: T steps of the shift, and K steps of retraining before each.
        eta, optimizer: step size and kind of the retraining.
        norm: "linf" or "l2".
        categories: "none" leaves categories as they are; "clamp"; "softmax" as in the authors'
            code.
        scope: retrain "all" of the predictor, or only the "head" that follows the encoder.
        attack: "gradient", or "random" shifts (an ablation).

    The other settings are those of `CounterNet`.

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

    def shift(self) -> Shift | None:
        if self.attack not in ("gradient", "random"):
            raise SettingError(f"attack must be 'gradient' or 'random', got {self.attack!r}")
        names = {f.name for f in fields(Shift)} & {f.name for f in fields(self)}
        return Shift(
            **{name: getattr(self, name) for name in names}, ascend=self.attack == "gradient"
        )
