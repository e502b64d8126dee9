"""Generators that have to hold: any parametric generator, trained against the worst small shift of
the data.

In each batch Virtual Data Shift (`amortized.virtual_shift`) turns the model into the one that a
shift of the batch would lead to, chosen so that the generator's present answers fail. That one
judges the validity of answers, and nothing else. Guo et al., "RoCourseNet", CIKM 2023: Robust CF
Model, Robust
VAE-CF.
"""

import copy
from typing import Any, Protocol, Self, TypeVar, runtime_checkable

from holdfast._core.types import Outcomes, Rows
from holdfast.errors import SettingError
from holdfast.methods.amortized._parallel import Schedule
from holdfast.methods.amortized.virtual_shift import Shift
from holdfast.models.base import Model


@runtime_checkable
class Trainable(Protocol):
    """What `robustify` asks of a generator: settings `shift` and `schedule`, and training that
    follows them."""

    shift: Shift | None
    schedule: Schedule

    def get_params(self, deep: bool = True) -> dict[str, Any]: ...

    def set_params(self, **params: Any) -> Self: ...

    def fit_against(
        self, model: Model, X: Rows, y: Outcomes | None = None, *, progress: bool = False
    ) -> Self: ...


G = TypeVar("G", bound=Trainable)
_DEFAULT = Shift()


def robustify(
    generator: G,
    model: Model,
    X: Rows,
    y: Outcomes,
    *,
    shift: Shift | None = _DEFAULT,
    schedule: Schedule = "linear",
    progress: bool = False,
) -> G:
    """A copy of a generator, trained against the shifts that the data may see.

    Args:
        generator: a `CFModel`, a `VAECF`, or any other with the settings and the method of
            `Trainable`; it stays as it is.
        model: the model it answers for; a torch module that returns logits. It stays as it is, too.
        X, y: rows and their outcomes.
        shift: what may happen; None trains as `generator.fit(model, X)` does.
        schedule: epsilon in epoch e of N: "linear" E e / N, "static" E, "log" E log e / log N.
        progress: show a bar on stderr.

    >>> import holdfast as hf
    >>> data = hf.datasets.moons().take(range(200))
    >>> model = hf.train_network(data.X, data.y, data.schema, hidden=(8,), epochs=5)
    >>> generator = hf.CFModel(hidden=(10,), epochs=2)
    >>> shift = hf.Shift(epsilon=0.1, outer=2)
    >>> robust = hf.robustify(generator, model, data.X, data.y, shift=shift)
    >>> robust.shift.epsilon, generator.shift
    (0.1, None)

    Paper: guo2023 Eq. 5.
    """
    if not isinstance(generator, Trainable):
        raise SettingError(
            f"{type(generator).__name__} is not a parametric generator: it has no shift, schedule "
            "and fit_against; take CFModel or VAECF"
        )
    out = type(generator)(**copy.deepcopy(generator.get_params(deep=False)))
    return out.set_params(shift=shift, schedule=schedule).fit_against(
        model, X, y, progress=progress
    )
