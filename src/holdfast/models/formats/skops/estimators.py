"""scikit-learn estimators made from a file: checks of everything that compiled code follows without
looking.

The attributes of an object come from the file as they are; nothing of scikit-learn has seen them.
Most estimators hand them to NumPy, which looks before it leaps. Those below do not:

    trees, forests, boostings    children, columns, and as many sums as there are trees in a step
    histogram boostings          also sets of categories, and as many columns as their own encoder
                                 lets through
    support vector machines      sizes of the lists that libsvm is handed as bare pointers
    one-hot encoders             columns of a sparse matrix, which is filled and multiplied without
                                 a look
    splines                      knots and coefficients
"""

from collections.abc import Callable, Iterator
from functools import partial
from inspect import signature
from itertools import pairwise
from numbers import Real
from types import FunctionType
from typing import Any, cast

import numpy as np

from holdfast._core.checks import untyped
from holdfast.errors import FileError
from holdfast.models.formats.skops.allowed import UFUNCS
from holdfast.models.formats.skops.parts import attributes, column_count, misfit, shape_of
from holdfast.models.formats.skops.trees import (
    check_boosting,
    check_forest,
    check_histogram,
    check_sklearn_tree,
)
from holdfast.models.formats.tree_checks import inside

MOST_DEGREE = 100  # of a spline
# the functions on the list are as they are
PLAIN = (str, bytes, int, float, complex, type, FunctionType, np.ufunc)


def check_estimator(estimator: Any) -> None:
    """Every part of an estimator, however deep inside it."""
    try:
        for part in _parts(estimator):
            _check_names(part)
            fitted, check = CHECKS.get(type(part).__name__, ("", None))
            if check and (not fitted or fitted in attributes(part)):
                check(part)
    except FileError:
        raise
    except Exception as error:  # an attribute may be missing or anything
        raise FileError(
            f"the estimator in the file is damaged: {type(error).__name__}: {error}"
        ) from None


def _parts(root: Any) -> Iterator[Any]:
    """The objects that an object is made of, each once."""
    seen = set[int]()
    todo = [root]
    while todo:
        at = todo.pop()
        if id(at) in seen or at is None or isinstance(at, PLAIN):
            continue
        seen.add(id(at))
        if isinstance(at, dict):
            todo += [*cast(dict[Any, Any], at).keys(), *cast(dict[Any, Any], at).values()]
        elif isinstance(at, list | tuple | set):
            todo += list(cast(list[Any], at))
        elif isinstance(at, np.ndarray):
            todo += cast(Any, at).ravel().tolist() if at.dtype == object else []
        else:
            yield at
            todo.append(getattr(at, "__dict__", None))


def _check_names(part: Any) -> None:
    """No attribute may replace a method, or anything else the class says of itself."""
    kind = cast(Any, type(part))
    for name in (name for name in getattr(part, "__dict__", {}) if hasattr(kind, name)):
        setting = name in signature(kind).parameters  # which may have a default in the class
        if not setting:
            raise FileError(
                f"the file gives a {kind.__name__} a {name!r} of its own, in place of its class's"
            )


def _check_machine(part: Any) -> None:
    columns = column_count(part)
    count = len(part.support_)
    # a regression has two sides
    classes = len(part.classes_) if type(part).__name__ in ("SVC", "NuSVC") else 2
    pairs = classes * (classes - 1) // 2
    if part.kernel not in ("linear", "poly", "rbf", "sigmoid"):
        raise misfit(part, f"the kernel {part.kernel!r}")
    if part._sparse is not False:
        raise misfit(part, "a sparse matrix in it, which is not read")
    sizes: dict[str, tuple[int, ...]] = {
        "support_": (count,),
        "support_vectors_": (count, columns),
        "_n_support": (classes,),
        "_dual_coef_": (classes - 1, count),
        "_intercept_": (pairs,),
    }
    for name, shape in sizes.items():
        array = attributes(part)[name]
        if shape_of(array) != shape:
            raise misfit(part, f"a {name} of shape {np.shape(array)}")
    if not (classes >= 2 and count >= 1):
        raise misfit(part, f"{classes} classes and {count} support vectors")
    if type(part).__name__ in ("SVC", "NuSVC"):
        each: Any = part._n_support
        if not ((each >= 0).all() and each.astype(np.int64).sum() == count):
            raise misfit(part, "another number of support vectors")
        shapes = {np.shape(part._probA), np.shape(part._probB)}
        if shapes not in ({(0,)}, {(pairs,)}):
            raise misfit(part, f"a _probA and a _probB of shapes {shapes}")


def _check_one_hot(part: Any) -> None:
    """Each level goes, by the same arithmetic as in `transform`, to a place inside its
    column."""
    levels = part.categories_
    widths: Any = part._n_features_outs
    dropped = part._drop_idx_after_grouping
    count = column_count(part)
    if cast(object, type(widths)) is not list or not len(levels) == len(widths) == count:
        raise misfit(part, "lists of different lengths")
    if not (dropped is None or shape_of(dropped) == (count,)):
        raise misfit(part, "a list of dropped levels of another length")
    for i, (known, width) in enumerate(zip(levels, widths, strict=True)):
        _check_levels(part, known)
        to: Any = np.arange(len(known))
        if part._infrequent_enabled:
            to = _grouped(part, i, to)
        drop = None if dropped is None else dropped[i]
        if drop is not None:
            inside([int(drop)], 0, len(known), "an encoder of the file: a dropped level")
            to = to[to != int(drop)]
            to = to - (to > int(drop))
        inside(to, 0, int(width), "an encoder of the file: a level")


def _grouped(part: Any, i: int, to: Any) -> Any:
    """Where levels go that are grouped because they are rare."""
    rare = part._infrequent_indices[i]
    mapping = part._default_to_infrequent_mappings[i]
    if (rare is None) != (mapping is None):
        raise misfit(part, "rare levels in one list and not in the other")
    if mapping is None:
        return to
    inside(rare, 0, len(to), "an encoder of the file: a rare level")
    mapping = np.asarray(mapping)
    if not (mapping.shape == to.shape and mapping.dtype.kind in "iu" and len(rare) > 0):
        raise misfit(part, "rare levels of no sense")
    return mapping.astype(np.int64)


def _check_levels(part: Any, known: Any) -> None:
    """Numbers, and strings that read like numbers, are looked up by halves, so they must be in
    order."""
    if shape_of(known) != (len(known),):
        raise misfit(part, "levels that are not a list")
    values: list[Any] = known.tolist()
    while values and (values[-1] is None or values[-1] != values[-1]):
        values.pop()  # missing ones come last
    if any(_reads_as_number(v) for v in values):
        try:
            rising = all(a < b for a, b in pairwise(values))
        except TypeError:  # strings and numbers in one list
            rising = False
        if not rising:
            raise misfit(part, f"levels that are not in order: {str(values)[:100]}")


def _reads_as_number(value: Any) -> bool:
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return True


def _check_function(part: Any) -> None:
    """A function of the list, called with nothing but the table."""
    for name in ("func", "inverse_func"):
        function = attributes(part)[name]
        if not (
            function is None
            or isinstance(function, partial)
            or any(function is getattr(np, u) for u in UFUNCS)
        ):
            raise misfit(part, f"a {name} that is not on the list")
    if part.kw_args or part.inv_kw_args:
        raise misfit(part, "more for its function than the table")


def _check_partial(part: Any) -> None:
    """Only the way in which histogram boostings look at their input."""
    known = part.func is untyped("sklearn.utils.validation").check_array and not part.args
    if not (known and set(part.keywords) <= {"dtype", "ensure_all_finite", "force_all_finite"}):
        raise misfit(part, "another function")


def _check_stacking(part: Any) -> None:
    known = {"predict_proba", "decision_function", "predict"}
    if not (set(part.stack_method_) <= known):
        raise misfit(part, f"methods to call that are not known: {part.stack_method_}")


def _check_threshold(part: Any) -> None:
    """A method is called by the name that the file gives, as it is for a stack."""
    own = attributes(part)
    method = own["response_method"]
    at = own["threshold"]
    label = own["pos_label"]
    if not (isinstance(method, str) and method in ("auto", "predict_proba", "decision_function")):
        raise misfit(part, f"a response_method that is not known: {method!r}")
    if not (at == "auto" if isinstance(at, str) else isinstance(at, Real) and at == at):
        raise misfit(part, f"the threshold {at!r}")
    if not (label is None or isinstance(label, str | Real | np.bool_)):
        raise misfit(part, f"the label {label!r}")


def _check_frozen(part: Any) -> None:
    """Whatever is looked up on it is passed on to its estimator, without end if it has none."""
    if "estimator" not in attributes(part):
        raise misfit(part, "no estimator in it")


def _check_spline(part: Any) -> None:
    own = attributes(part)
    knots: Any = own.get("_t", own.get("t"))
    weights: Any = own.get("_c", own.get("c"))
    degree = own["k"]
    if not isinstance(degree, int) or not 0 <= degree <= MOST_DEGREE:
        raise FileError(f"a spline of the file has the degree {degree!r}")
    for name, array, dimensions in (("knots", knots, 1), ("coefficients", weights, 2)):
        held: Any = array
        numbers = (
            len(shape_of(held) or ()) == dimensions
            and held.dtype == np.float64
            and held.flags.c_contiguous
        )
        if not (numbers and np.isfinite(held).all()):
            raise misfit(part, f"{name} that are not finite")
    count = len(knots) - degree - 1
    rising = (np.diff(knots) >= 0).all()
    if not (rising and count > degree and len(weights) >= count):
        raise misfit(part, "knots or coefficients that do not fit")


# By the name of the class, all of which are on the list: what only a fitted one has, and what to
# check then.
CHECKS: dict[str, tuple[str, Callable[[Any], None]]] = {
    name: (fitted, check)
    for names, fitted, check in (
        ("DecisionTree* ExtraTree*", "tree_", check_sklearn_tree),
        ("SVC NuSVC SVR NuSVR", "support_vectors_", _check_machine),
        ("RandomForest* ExtraTrees*", "estimators_", check_forest),
        ("GradientBoosting*", "estimators_", check_boosting),
        ("Stacking*", "stack_method_", _check_stacking),
        ("HistGradientBoosting*", "_predictors", check_histogram),
        ("FixedThresholdClassifier", "", _check_threshold),
        ("FrozenEstimator", "", _check_frozen),
        ("OneHotEncoder", "categories_", _check_one_hot),
        ("FunctionTransformer", "", _check_function),
        ("partial", "", _check_partial),
        ("BSpline", "", _check_spline),
    )
    for pattern in names.split()
    for name in {pattern.replace("*", task) for task in ("Classifier", "Regressor")}
}
