"""The types that a skops file may hold."""

from importlib import import_module

import numpy as np
import pytest
import skops.io
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from holdfast.errors import UnsafeFileError
from holdfast.models.formats.skops import reader as own
from holdfast.models.formats.skops.allowed import ALLOWED, PLAIN
from support.skops_files import TABLE, TWO, ZOO, saved


def test_all_types_on_the_list_are_tried() -> None:
    schemas = (own.check_file(own.without_searches(saved(name)[1])) for name in ZOO)
    tried = {name for schema in schemas for name, _ in own._types(schema)}
    listed = set(ALLOWED) - set(PLAIN)
    here = {n for n in listed if hasattr(import_module(n.rpartition(".")[0]), n.rpartition(".")[2])}
    assert here <= tried
    assert len(listed - here) <= 1  # of another version of scikit-learn


def test_a_type_that_is_not_on_the_list_says_why_and_what_to_do() -> None:
    with pytest.raises(
        UnsafeFileError, match=r"KNeighborsClassifier.*compiled code follows.*trust=True.*ONNX"
    ):
        own.check_file(skops.io.dumps(KNeighborsClassifier().fit(TABLE, TWO)))
    search = GridSearchCV(LogisticRegression(), {"C": [1, 2]}, cv=3, refit=False).fit(TABLE, TWO)
    with pytest.raises(UnsafeFileError, match="not refitted"):
        own.check_file(own.without_searches(skops.io.dumps(search)))


def test_a_refusal_is_in_plain_words() -> None:
    for estimator, words in (
        (
            KNeighborsClassifier().fit(TABLE, TWO),
            r"\.KNeighborsClassifier as an object, which is not on",
        ),
        (
            make_pipeline(FunctionTransformer(np.sin), LogisticRegression()).fit(TABLE, TWO),
            r"numpy\.sin as a function",
        ),
    ):
        with pytest.raises(UnsafeFileError, match=words) as refusal:
            own.check_file(skops.io.dumps(estimator))
        assert "Node" not in str(refusal.value)
