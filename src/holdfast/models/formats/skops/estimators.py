"""Estimators of scikit-learn that were made from a file: everything that compiled code follows
without looking.

The attributes of an object come from the file as they are; nothing of scikit-learn has seen them.
Most estimators hand them to NumPy, which looks before it leaps. Those below do not:

    trees, forests, boostings    children, columns, and as many sums as there are trees in a step
    histogram boostings          also sets of categories, and as many columns as their own encoder lets through
    support vector machines      sizes of the lists that libsvm is handed as bare pointers
    one-hot encoders             columns of a sparse matrix, which is filled and multiplied without a look
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
from holdfast.models.formats.tree_checks import check_tree, inside, same_lengths

TREE = "a tree of the file"
MOST_DEGREE = 100  # of a spline
# the functions on the list are as they are
PLAIN = (str, bytes, int, float, complex, type, FunctionType, np.ufunc)


def check_estimator(estimator: Any) -> None:
    """Every part of an estimator, however deep inside it."""
    try:
        for part in _parts(estimator):
            _check_names(part)
            fitted, check = CHECKS.get(type(part).__name__, ("", None))
            if check and (not fitted or fitted in _attributes(part)):
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
    """No attribute may take the place of a method, or of what else the class says of itself."""
    kind = cast(Any, type(part))
    for name in (name for name in getattr(part, "__dict__", {}) if hasattr(kind, name)):
        setting = name in signature(kind).parameters  # which may have a default in the class
        if not setting:
            raise FileError(
                f"the file gives a {kind.__name__} a {name!r} of its own, in place of its class's"
            )


def _fits(holds: object, part: Any, what: str) -> None:
    if not holds:
        raise FileError(f"the {type(part).__name__} in the file has {what}")


def _attributes(part: Any) -> dict[str, Any]:
    """What the file gives an object, and nothing that its class computes."""
    return cast(dict[str, Any], vars(part))


def _shape(array: Any) -> tuple[int, ...] | None:
    """The shape of an array; None for anything else."""
    return cast(Any, array).shape if isinstance(array, np.ndarray) else None


def _columns(part: Any) -> int:
    """How many columns an estimator lets pass: scikit-learn compares them with this number, if it
    is there."""
    columns = _attributes(part).get("n_features_in_")
    if not isinstance(columns, int) or columns < 1:
        raise FileError(
            f"the {type(part).__name__} in the file has no number of columns, but {columns!r}"
        )
    return columns


def _check_tree(part: Any) -> None:
    tree = part.tree_
    columns = _columns(part)
    if type(tree) is not untyped("sklearn.tree._tree").Tree:
        raise FileError(f"{TREE} is a {type(tree).__name__}")
    # The count decides how much memory scikit-learn reads: check it before any of it is read.
    if not 1 <= tree.node_count <= tree.capacity:
        raise FileError(f"a tree says it has {tree.node_count} nodes, and has {tree.capacity}")
    if tree.n_features != columns:
        raise FileError(f"a tree splits {tree.n_features} columns, its model has {columns}")
    left = tree.children_left
    right = tree.children_right
    inner = left != -1
    check_tree(left, right, inner, TREE)
    inside(tree.feature[inner], 0, columns, f"{TREE}: a column")
    if len(tree.value) != tree.node_count or not np.isfinite(tree.value).all():
        raise FileError(f"{TREE} has non-finite values")


def _check_forest(part: Any) -> None:
    for tree in np.asarray(part.estimators_, dtype=object).ravel().tolist():
        _fits(
            type(tree).__module__ == "sklearn.tree._classes",
            part,
            f"a {type(tree).__name__} among its trees",
        )
        _fits("tree_" in _attributes(tree), part, "a tree that is not fitted")
        _fits(
            _columns(tree) == _columns(part),
            part,
            f"a tree that does not fit it: it takes {_columns(tree)} columns",
        )


def _check_boosting(part: Any) -> None:
    """Its trees are added up, without a look, in a table as wide as the first guess."""
    _check_forest(part)
    classes = len(part.classes_) if type(part).__name__ == "GradientBoostingClassifier" else 0
    wide = classes if classes > 2 else 1
    trees: Any = part.estimators_
    fits = _shape(trees) == (len(trees), wide) and len(trees) >= 1
    _fits(fits, part, f"trees of shape {np.shape(trees)} for {classes} classes")
    loss = type(part._loss).__name__
    right = (
        (loss in ("HalfBinomialLoss", "ExponentialLoss"))
        if classes == 2
        else loss == "HalfMultinomialLoss"
    )
    _fits(
        type(part._loss).__module__ == "sklearn._loss.loss" and (right or not classes),
        part,
        f"a loss {loss}",
    )
    link = cast(Any, type(part._loss.link))
    _fits(
        link.__module__ == "sklearn._loss.link" and link.__name__ != "Interval",
        part,
        f"a link {link.__name__}",
    )
    _fits(
        part.n_trees_per_iteration_ == wide and _guesses(part.init_, classes),
        part,
        "a first guess of another size",
    )


def _guesses(first: Any, classes: int) -> bool:
    """Is the first guess one number per row, or one for each class?"""
    if isinstance(first, str):
        return first == "zero"
    if classes:
        usual = type(first).__name__ == "DummyClassifier" and first.n_classes_ == classes
        return usual and first.n_outputs_ == 1 and np.shape(first.class_prior_) == (classes,)
    return type(first).__name__ == "DummyRegressor" and first.n_outputs_ == 1 == np.size(
        first.constant_
    )


def _check_histogram(part: Any) -> None:
    columns = _columns(part)
    mapper = part._bin_mapper
    categorical: Any = mapper.is_categorical_
    _fits("_in_fit" not in _attributes(part), part, "an '_in_fit', as if it were still learning")
    _fits(
        part._n_features == columns,
        part,
        f"{part._n_features} columns in one place and {columns} in another",
    )
    _fits(type(mapper).__name__ == "_BinMapper", part, f"a {type(mapper).__name__} for its bins")
    fits = _shape(categorical) == (columns,) and categorical.dtype.kind in "bu"
    _fits(fits, part, "no list that says which columns are categories")
    if part._preprocessor is not None:
        _check_preprocessor(part, part._preprocessor, columns)
    for predictor in (p for step in part._predictors for p in step):
        _check_predictor(predictor, categorical != 0)


def _check_predictor(predictor: Any, categorical: Any) -> None:
    """The nodes of one tree, in the order in which scikit-learn reads them."""
    kind = untyped("sklearn.ensemble._hist_gradient_boosting.predictor")
    if type(predictor) is not kind.TreePredictor:
        raise FileError(f"{TREE} is a {type(predictor).__name__}")
    nodes = predictor.nodes
    if _shape(nodes) != (len(nodes),) or nodes.dtype != kind.PREDICTOR_RECORD_DTYPE:
        raise FileError(f"{TREE} has nodes of another kind")
    inner = nodes["is_leaf"] == 0
    check_tree(nodes["left"].astype(np.int64), nodes["right"].astype(np.int64), inner, TREE)
    inside(nodes["feature_idx"][inner], 0, len(categorical), f"{TREE}: a column")
    by_set = inner & (nodes["is_categorical"] != 0)
    if not categorical[nodes["feature_idx"][by_set]].all():
        raise FileError(f"{TREE} splits a column of numbers as if it were a category")
    raw = predictor.raw_left_cat_bitsets
    binned = predictor.binned_left_cat_bitsets
    for sets in (raw, binned):
        if _shape(sets) != (len(sets), 8) or sets.dtype != np.uint32:
            raise FileError(f"{TREE} has sets of shape {np.shape(sets)}")
    inside(
        nodes["bitset_idx"][by_set],
        0,
        same_lengths(TREE, sets=raw, binned=binned),
        f"{TREE}: a set",
    )


def _check_preprocessor(part: Any, before: Any, columns: int) -> None:
    """What is before the trees hands on as many columns as it gets; nothing behind it counts
    them."""
    masks = {"encoder": part.is_categorical_, "numerical": ~np.asarray(part.is_categorical_)}
    kinds = {"encoder": "OrdinalEncoder", "numerical": "FunctionTransformer"}
    fits = type(before).__name__ == "ColumnTransformer" and _columns(before) == columns
    fits = fits and before.sparse_output_ is False and part.is_categorical_.dtype == bool
    for name, step, of in before.transformers_:
        if name == "remainder":
            fits = fits and isinstance(step, str) and step == "drop"
            continue
        mask = np.asarray(of)
        fits = (
            fits
            and type(step).__name__ == kinds.pop(name, "")
            and np.array_equal(mask, masks[name])
        )
        fits = fits and mask.shape == (columns,) and mask.dtype == bool
        fits = (
            fits
            and list(before._transformer_to_input_indices[name]) == np.flatnonzero(mask).tolist()
        )
    _fits(fits and not kinds, part, "an encoder of other columns than its own")


def _check_machine(part: Any) -> None:
    columns = _columns(part)
    count = len(part.support_)
    # a regression has two sides
    classes = len(part.classes_) if type(part).__name__ in ("SVC", "NuSVC") else 2
    pairs = classes * (classes - 1) // 2
    _fits(part.kernel in ("linear", "poly", "rbf", "sigmoid"), part, f"the kernel {part.kernel!r}")
    _fits(part._sparse is False, part, "a sparse matrix in it, which is not read")
    sizes: dict[str, tuple[int, ...]] = {
        "support_": (count,),
        "support_vectors_": (count, columns),
        "_n_support": (classes,),
        "_dual_coef_": (classes - 1, count),
        "_intercept_": (pairs,),
    }
    for name, shape in sizes.items():
        array = _attributes(part)[name]
        _fits(_shape(array) == shape, part, f"a {name} of shape {np.shape(array)}")
    _fits(classes >= 2 and count >= 1, part, f"{classes} classes and {count} support vectors")
    if type(part).__name__ in ("SVC", "NuSVC"):
        each: Any = part._n_support
        _fits(
            (each >= 0).all() and each.astype(np.int64).sum() == count,
            part,
            "another number of support vectors",
        )
        shapes = {np.shape(part._probA), np.shape(part._probB)}
        _fits(shapes in ({(0,)}, {(pairs,)}), part, f"a _probA and a _probB of shapes {shapes}")


def _check_one_hot(part: Any) -> None:
    """Where each level goes, by the same arithmetic as in `transform`, is inside of what its column
    takes."""
    levels = part.categories_
    widths = part._n_features_outs
    dropped = part._drop_idx_after_grouping
    count = _columns(part)
    _fits(
        type(widths) is list and len(levels) == len(widths) == count,
        part,
        "lists of different lengths",
    )
    _fits(
        dropped is None or _shape(dropped) == (count,),
        part,
        "a list of dropped levels of another length",
    )
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
    _fits((rare is None) == (mapping is None), part, "rare levels in one list and not in the other")
    if mapping is None:
        return to
    inside(rare, 0, len(to), "an encoder of the file: a rare level")
    mapping = np.asarray(mapping)
    _fits(
        mapping.shape == to.shape and mapping.dtype.kind in "iu" and len(rare) > 0,
        part,
        "rare levels of no sense",
    )
    return mapping.astype(np.int64)


def _check_levels(part: Any, known: Any) -> None:
    """Numbers are looked up by halves, so that they must be in order; and so are strings that read
    like numbers."""
    _fits(_shape(known) == (len(known),), part, "levels that are no list")
    values: list[Any] = known.tolist()
    while values and (values[-1] is None or values[-1] != values[-1]):
        values.pop()  # missing ones come last
    if any(_reads_as_number(v) for v in values):
        try:
            rising = all(a < b for a, b in pairwise(values))
        except TypeError:  # strings and numbers in one list
            rising = False
        _fits(rising, part, f"levels that are not in order: {str(values)[:100]}")


def _reads_as_number(value: Any) -> bool:
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return True


def _check_function(part: Any) -> None:
    """A function of the list, called with nothing but the table."""
    for name in ("func", "inverse_func"):
        function = _attributes(part)[name]
        known = (
            function is None
            or isinstance(function, partial)
            or any(function is getattr(np, u) for u in UFUNCS)
        )
        _fits(known, part, f"a {name} that is not on the list")
    _fits(not part.kw_args and not part.inv_kw_args, part, "more for its function than the table")


def _check_partial(part: Any) -> None:
    """Only the way in which histogram boostings look at their input."""
    known = part.func is untyped("sklearn.utils.validation").check_array and not part.args
    _fits(
        known and set(part.keywords) <= {"dtype", "ensure_all_finite", "force_all_finite"},
        part,
        "another function",
    )


def _check_stacking(part: Any) -> None:
    known = {"predict_proba", "decision_function", "predict"}
    _fits(
        set(part.stack_method_) <= known,
        part,
        f"methods to call that are not known: {part.stack_method_}",
    )


def _check_threshold(part: Any) -> None:
    """A method is called by the name that the file gives, as it is for a stack."""
    own = _attributes(part)
    method = own["response_method"]
    at = own["threshold"]
    label = own["pos_label"]
    known = isinstance(method, str) and method in ("auto", "predict_proba", "decision_function")
    _fits(known, part, f"a response_method that is not known: {method!r}")
    _fits(
        at == "auto" if isinstance(at, str) else isinstance(at, Real) and at == at,
        part,
        f"the threshold {at!r}",
    )
    _fits(label is None or isinstance(label, str | Real | np.bool_), part, f"the label {label!r}")


def _check_frozen(part: Any) -> None:
    """Whatever is looked up on it is passed on to its estimator, without end if there is none."""
    _fits("estimator" in _attributes(part), part, "no estimator in it")


def _check_spline(part: Any) -> None:
    own = _attributes(part)
    knots: Any = own.get("_t", own.get("t"))
    weights: Any = own.get("_c", own.get("c"))
    degree = own["k"]
    if not isinstance(degree, int) or not 0 <= degree <= MOST_DEGREE:
        raise FileError(f"a spline of the file has the degree {degree!r}")
    for name, array, dimensions in (("knots", knots, 1), ("coefficients", weights, 2)):
        held: Any = array
        numbers = (
            len(_shape(held) or ()) == dimensions
            and held.dtype == np.float64
            and held.flags.c_contiguous
        )
        _fits(numbers and np.isfinite(held).all(), part, f"{name} that are not finite")
    count = len(knots) - degree - 1
    rising = (np.diff(knots) >= 0).all()
    _fits(
        rising and count > degree and len(weights) >= count,
        part,
        "knots or coefficients that do not fit",
    )


# By the name of the class, all of which are on the list: what only a fitted one has, and what to
# check then.
CHECKS: dict[str, tuple[str, Callable[[Any], None]]] = {
    name: (fitted, check)
    for names, fitted, check in (
        ("DecisionTree* ExtraTree*", "tree_", _check_tree),
        ("SVC NuSVC SVR NuSVR", "support_vectors_", _check_machine),
        ("RandomForest* ExtraTrees*", "estimators_", _check_forest),
        ("GradientBoosting*", "estimators_", _check_boosting),
        ("Stacking*", "stack_method_", _check_stacking),
        ("HistGradientBoosting*", "_predictors", _check_histogram),
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
