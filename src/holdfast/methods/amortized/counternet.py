"""CounterNet: one network that predicts and gives recourse, trained for both (`_joint_loop`)."""

from dataclasses import dataclass, fields

from holdfast.methods.amortized._joint_classifier import JointClassifier, check_types
from holdfast.methods.amortized._joint_loop import Joint
from holdfast.methods.amortized.virtual_shift import Shift
from holdfast.nn.stack_derivatives import Loss

WIDTHS = ("encoder", "predictor", "generator")


@dataclass(eq=False, repr=False)
class CounterNet(JointClassifier):
    """Prediction and recourse trained together: a scikit-learn classifier with an answer for every
    row.

        minimise  l1 L(f(x), y)  +  l2 L(f(x_cf), 1 - f(x) > 1/2)  +  l3 mean (x_cf - x)^2,    x_cf = N(g(x))

    Args:
        encoder, predictor, generator: widths of the layers.
        dropout: share of units left out while training.
        epochs, batch_size, lr: of the training, with Adam.
        l1, l2, l3: weights of prediction, validity and proximity.
        condition_on_target: tell the generator the class to reach, which else has to guess it from
            the prediction.
        clip_to_data, hard_categories: train on answers as they are handed out: numbers inside the
            range of the data, and one level of each category.
        loss: of the prediction, "squared" or "entropy".
        smooth_labels, clip: what the authors' older code also does, see `_joint_loop.Joint`.
        seed: weights, order and dropout come from it; the caller's generators stay as they are.

    Learnt: `model_` (a `Model`), `recourse_` (an explainer), `schema_`, `classes_`.

    >>> import holdfast as hf
    >>> data = hf.datasets.german_credit().take(range(200))
    >>> net = hf.CounterNet(encoder=(20,), epochs=3, seed=1).fit(data.X, data.y, data.schema)
    >>> net.predict(data.X).shape
    (200,)
    >>> cfs = net.recourse(data.X[:5], "approved")
    >>> len(cfs)
    5
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

    def how(self) -> Joint:
        check_types(self)
        names = {f.name for f in fields(Joint)} & {f.name for f in fields(self)}
        settings = {name: getattr(self, name) for name in names}
        settings |= {name: tuple(int(width) for width in settings[name]) for name in WIDTHS}
        return Joint(**settings, shift=self.shift())

    def shift(self) -> Shift | None:
        """The attack that the generator is trained against; a CounterNet has none."""
        return None
