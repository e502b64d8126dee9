"""The settings of CounterNet and RoCourseNet, each declared once: the classifiers inherit them, and
the training (`_joint_loop`) reads them."""

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from numbers import Integral, Real
from typing import Any, Self, cast

from holdfast._core.checks import require_number
from holdfast._core.params import Settings
from holdfast.errors import SettingError
from holdfast.methods.amortized._parallel import Schedule, epsilon_in
from holdfast.methods.amortized.virtual_shift import Shift
from holdfast.nn.stack_derivatives import Loss
from holdfast.retraining.loop import Loop, check_widths

WIDTHS = ("encoder", "predictor", "generator")
# The type of a default -> the types a value may have, and their name in a message.
TYPES: dict[type, tuple[Any, str]] = {
    bool: (bool, "True or False"),
    int: (Integral, "an integer"),
    float: (Real, "a number"),
    str: (str, "a string"),
}


@dataclass(eq=False, repr=False)
class JointSettings(Settings):
    """How prediction and recourse are made and trained together.

    Nothing is checked before training, as scikit-learn asks; then `checked` does it.

    Args:
        encoder, predictor, generator: widths of the layers.
        dropout: share of units left out in steps 1, 2 and 4 of `_joint_loop`.
        epochs, batch_size, lr: of the training, with Adam.
        l1, l2, l3: weights of prediction, validity and proximity; without the last two only the
            predictor is trained.
        condition_on_target: tell the generator the class to reach. In the paper it has to guess it
            from z and p, which is impossible where the prediction is near 1/2; with more than two
            classes it is always told.
        clip_to_data: drop a gradient that would push a number further out of the data's range. In
            the paper numbers go anywhere.
        hard_categories: let gradients go straight through the largest level. In the paper levels
            are mixed until the network is used.
        loss: of the prediction, "squared" or "entropy".
        smooth_labels: 1 becomes a number drawn from (0.8, 0.95) and 0 one from (0.05, 0.2), outside
            the attack.
        clip: largest norm of a gradient; 0 sets no limit.
        seed: weights, order and dropout come from it.
        shift, schedule: the attack in step 3 and how its epsilon grows, see `epsilon_in`; None
            trains a CounterNet.
        attack_dropout: dropout also in f(x_cf; theta') of step 4.
    """

    encoder: tuple[int, ...] = (200, 10)
    predictor: tuple[int, ...] = (10,)
    generator: tuple[int, ...] = (10,)
    dropout: float = 0.3
    epochs: int = 50
    batch_size: int = 128
    lr: float = 0.003
    l1: float = 1.0
    l2: float = 0.2
    l3: float = 0.1
    condition_on_target: bool = True
    clip_to_data: bool = True
    hard_categories: bool = True
    loss: Loss = "squared"
    smooth_labels: bool = False
    clip: float = 0.0
    seed: int = 0
    shift: Shift | None = None
    schedule: Schedule = "linear"
    attack_dropout: bool = False

    def checked(self) -> Self:
        """A copy to train with, its widths as tuples of Python's integers; an error names the first
        invalid setting."""
        check_types(self)
        widths = {name: tuple(int(width) for width in getattr(self, name)) for name in WIDTHS}
        for name, layers in widths.items():
            check_widths(name, layers)
        if not 0 <= self.dropout < 1:
            raise SettingError(f"dropout must be at least 0 and below 1, got {self.dropout}")
        for name in ("l1", "l2", "l3", "clip"):
            require_number(name, getattr(self, name))
        if self.loss not in ("squared", "entropy"):
            raise SettingError(f"loss must be 'squared' or 'entropy', got {self.loss!r}")
        self.loop()
        # an unknown schedule is an error now, not while training
        epsilon_in(self.shift, self.schedule, 1, self.epochs)
        return replace(self, **widths)

    def loop(self) -> Loop:
        """How often, in which batches and by which steps."""
        return Loop(epochs=self.epochs, batch_size=self.batch_size, lr=self.lr)


def check_types(settings: JointSettings) -> None:
    """Raise an error that names the first setting whose type differs from its default's."""
    for spec in fields(settings):
        value = getattr(settings, spec.name)
        if spec.name == "shift":
            fits = isinstance(value, Shift | None)
            words = "a Shift or None"
        elif spec.name in WIDTHS:
            fits = _are_integers(value)
            words = "a list of integers"
        else:
            kind, words = TYPES[type(spec.default)]
            fits = isinstance(value, kind) if kind in (bool, str) else _is_a(kind, value)
        if not fits:
            raise SettingError(f"{spec.name} must be {words}, got {value!r}")
    # Draws are keyed by it as a float64.
    if not abs(settings.seed) < 1 << 53:
        raise SettingError(f"seed must be below 2^53, got {settings.seed}")


def _are_integers(values: object) -> bool:
    if not isinstance(values, Iterable) or isinstance(values, str):
        return False
    return all(_is_a(Integral, value) for value in cast(Iterable[Any], values))


def _is_a(kind: Any, value: object) -> bool:
    """A number of that kind; True and False do not count."""
    return isinstance(value, kind) and not isinstance(value, bool)
