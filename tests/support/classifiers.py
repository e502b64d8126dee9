"""Tables of two and three classes, and rows near them and far away."""

from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.datasets import make_classification
from sklearn.linear_model import LogisticRegression

NAMES = list("abcd")
ROWS = pd.DataFrame(np.random.default_rng(0).normal(0, 1.5, (300, 4)), columns=NAMES)


def table(classes: int) -> tuple[pd.DataFrame, Any]:
    X, y = make_classification(
        200,
        4,
        n_informative=3,
        n_redundant=0,
        n_classes=classes,
        n_clusters_per_class=1,
        class_sep=0.7,
        random_state=1,
    )
    return pd.DataFrame(X, columns=NAMES), y


TABLES = {k: table(k) for k in (2, 3)}


class OwnCutoff(ClassifierMixin, BaseEstimator):
    """A user's class, with a cutoff in `predict` that nobody else knows of."""

    def __init__(self, at: float = 0.56) -> None:
        self.at = at

    def fit(self, X: pd.DataFrame, y: Any) -> "OwnCutoff":
        self.inner_ = LogisticRegression().fit(X, y)
        self.classes_ = self.inner_.classes_
        return self

    def predict_proba(self, X: pd.DataFrame) -> Any:
        return self.inner_.predict_proba(X)

    def predict(self, X: pd.DataFrame) -> Any:
        return self.classes_[(self.predict_proba(X)[:, 1] > self.at).astype(int)]
