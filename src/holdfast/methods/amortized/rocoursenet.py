"""RoCourseNet: CounterNet's training, but that each batch's answers are judged by the model that
the worst small shift of the batch makes of the present one (`virtual_shift`)."""

from dataclasses import dataclass, replace
from typing import Any, Self

from holdfast._core.params import preset
from holdfast.methods.amortized.counternet import CounterNet
from holdfast.methods.amortized.virtual_shift import Shift

# Table 4: the step of plain descent inside the attack; on the simulated shifts the paper has none.
ETAS = {"sba_loan": 0.03, "german_credit": 0.03, "student": 0.01}


@dataclass(eq=False, repr=False)
class RoCourseNet(CounterNet):
    """Prediction and recourse trained together, the recourse against the worst small shift of the
    data.

        max over generators of   min_{|delta| <= epsilon}   the validity of their answers on the
                                                            model theta'(delta)

    that training on the shifted rows x + delta would lead to. Guo, Jia, Chen, Squicciarini and
    Yadav, "RoCourseNet: Robust Training of a Prediction Aware Recourse Model", CIKM 2023. Training
    and attack differ from the paper's by default; `RoCourseNet.paper` has its own.

    Args:
        shift: how the data may shift and how the model follows; None: `Shift()`.
        schedule: how the shift's epsilon grows over the epochs: "linear", "log", or "static".

    The other settings are those of `CounterNet`.

    >>> import holdfast as hf
    >>> data = hf.datasets.german_credit().take(range(200))
    >>> net = hf.RoCourseNet(encoder=(20,), epochs=2, shift=hf.Shift(outer=2))
    >>> net = net.fit(data.X, data.y, data.schema)
    >>> len(net.recourse(data.X[:5], "approved"))
    5

    Paper: guo2023 Algorithm 2, Eq. 4.
    """

    @classmethod
    def paper(cls, dataset: str = "sba_loan", **settings: Any) -> Self:
        """Algorithms 1 and 2 as printed: plain descent inside the attack, and all columns in its
        ball, those of categories too.

        Args:
            dataset: whose settings of Tables 4 and 5 to take.
            settings: others than the paper's.

        >>> import holdfast as hf
        >>> net = hf.RoCourseNet.paper("german_credit", epochs=2)
        >>> net.shift.optimizer, net.shift.categories, net.shift.eta
        ('sgd', 'clamp', 0.03)
        """
        shift = Shift(eta=ETAS.get(dataset, 0.03), optimizer="sgd", categories="clamp")
        return super().paper(dataset, **preset(settings, shift=shift))

    def checked(self) -> Self:
        """As of a `CounterNet`, with a shift in any case."""
        settings = super().checked()
        # No default of the field: scikit-learn wants plain values there.
        return settings if settings.shift is not None else replace(settings, shift=Shift())
