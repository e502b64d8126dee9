"""CounterNet: one network that predicts and gives recourse, trained for both (`_joint_loop`)."""

from dataclasses import dataclass
from typing import Any, Self

from holdfast._core.checks import did_you_mean
from holdfast._core.params import preset
from holdfast.errors import SettingError
from holdfast.methods.amortized._joint_classifier import JointClassifier

# Tables 4 and 5 of the RoCourseNet paper; the last is its network for simulated shifts.
SMALL = {"encoder": (50, 10), "predictor": (10,), "generator": (10,), "lr": 0.01}
PRINTED: dict[str, dict[str, Any]] = {
    "sba_loan": {"encoder": (200, 10), "predictor": (10,), "generator": (10,)},
    "german_credit": {
        "encoder": (100, 10),
        "predictor": (20,),
        "generator": (20,),
        "batch_size": 256,
        "l2": 1.0,
    },
    "student": SMALL | {"generator": (50,)},
    "covariate_shift": SMALL,
    "label_shift": SMALL,
}
# Of all five. What this library's training does besides is left out.
ALIKE: dict[str, Any] = {
    "dropout": 0.3,
    "epochs": 50,
    "batch_size": 128,
    "lr": 0.003,
    "l1": 1.0,
    "l2": 0.2,
    "l3": 0.1,
    "condition_on_target": False,
    "clip_to_data": False,
    "hard_categories": False,
    "loss": "squared",
}


@dataclass(eq=False, repr=False)
class CounterNet(JointClassifier):
    """Prediction and recourse trained together: a scikit-learn classifier with an answer for every
    row.

        minimise  l1 L(f(x), y)  +  l2 L(f(x_cf), 1 - f(x) > 1/2)  +  l3 mean (x_cf - x)^2
        x_cf = N(g(x))

    Args:
        encoder, predictor, generator: widths of the layers.
        dropout: share of units left out while training.
        epochs, batch_size, lr: of the training, with Adam.
        l1, l2, l3: weights of prediction, validity and proximity.
        condition_on_target: tell the generator the class to reach; otherwise it has to guess it
            from the prediction.
        clip_to_data, hard_categories: train on answers as they are handed out: numbers inside the
            range of the data, and one level of each category.
        loss: of the prediction, "squared" or "entropy".
        smooth_labels, clip, attack_dropout: what the authors' older code also does, see
            `_joint_settings.JointSettings`.
        seed: weights, order and dropout come from it; the caller's generators stay as they are.
        shift, schedule: what recourse is trained against, see `RoCourseNet`; None is nothing.

    Learnt: `model_` (a `Model`), `recourse_` (an explainer), `schema_`, `classes_`.

    >>> import holdfast as hf
    >>> data = hf.datasets.german_credit().take(range(200))
    >>> net = hf.CounterNet(encoder=(20,), epochs=3, seed=1).fit(data.X, data.y, data.schema)
    >>> net.predict(data.X).shape
    (200,)
    >>> cfs = net.recourse(data.X[:5], "approved")
    >>> len(cfs)
    5

    Paper: guo2023 Baseline CounterNet.
    """

    @classmethod
    def paper(cls, dataset: str = "sba_loan", **settings: Any) -> Self:
        """As the RoCourseNet paper trains it: the generator has to guess the class, numbers go
        anywhere, and levels are mixed until the network is used.

        Args:
            dataset: whose settings of Tables 4 and 5 to take.
            settings: others than the paper's.

        >>> import holdfast as hf
        >>> hf.CounterNet.paper("german_credit").l2
        1.0
        """
        if dataset not in PRINTED:
            raise SettingError(f"unknown dataset {dataset!r}; {did_you_mean(dataset, PRINTED)}")
        return cls(**preset(settings, **ALIKE | PRINTED[dataset]))
