"""CounterNet: one network that predicts and gives recourse, trained for both (`_joint_loop`)."""

from dataclasses import dataclass

from holdfast.methods.amortized._joint_classifier import JointClassifier


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
