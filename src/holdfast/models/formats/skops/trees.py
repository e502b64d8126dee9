"""Trees of scikit-learn made from a file: forests, boosting and histogram boosting.

Their compiled code goes from node to child, and from node to column, without a look.
"""

from typing import Any, cast

import numpy as np

from holdfast._core.checks import untyped
from holdfast.errors import FileError
from holdfast.models.formats.skops.parts import attributes, column_count, misfit, shape_of
from holdfast.models.formats.tree_checks import check_tree, inside, same_lengths

TREE = "a tree of the file"


def check_sklearn_tree(part: Any) -> None:
    tree = part.tree_
    columns = column_count(part)
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


def check_forest(part: Any) -> None:
    for tree in np.asarray(part.estimators_, dtype=object).ravel().tolist():
        if type(tree).__module__ != "sklearn.tree._classes":
            raise misfit(part, f"a {type(tree).__name__} among its trees")
        if "tree_" not in attributes(tree):
            raise misfit(part, "a tree that is not fitted")
        if column_count(tree) != column_count(part):
            raise misfit(
                part, f"a tree that does not fit it: it takes {column_count(tree)} columns"
            )


def check_boosting(part: Any) -> None:
    """Its trees are added up, without a look, in a table as wide as the first guess."""
    # The loss and its link are called on that table: only scikit-learn's own may be.
    check_forest(part)
    classes = len(part.classes_) if type(part).__name__ == "GradientBoostingClassifier" else 0
    wide = classes if classes > 2 else 1
    trees: Any = part.estimators_
    if not (shape_of(trees) == (len(trees), wide) and len(trees) >= 1):
        raise misfit(part, f"trees of shape {np.shape(trees)} for {classes} classes")
    loss = type(part._loss).__name__
    if classes == 2:
        suits = loss in ("HalfBinomialLoss", "ExponentialLoss")
    else:
        suits = loss == "HalfMultinomialLoss" or not classes
    if not (type(part._loss).__module__ == "sklearn._loss.loss" and suits):
        raise misfit(part, f"a loss {loss}")
    link = cast(Any, type(part._loss.link))
    if link.__module__ != "sklearn._loss.link" or link.__name__ == "Interval":
        raise misfit(part, f"a link {link.__name__}")
    if not (part.n_trees_per_iteration_ == wide and _guesses(part.init_, classes)):
        raise misfit(part, "a first guess of another size")


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


def check_histogram(part: Any) -> None:
    columns = column_count(part)
    mapper = part._bin_mapper
    categorical: Any = mapper.is_categorical_
    if "_in_fit" in attributes(part):
        raise misfit(part, "an '_in_fit', as if it were still learning")
    if not np.array_equal(part._n_features, columns):  # which may be anything
        raise misfit(part, f"{part._n_features} columns in one place and {columns} in another")
    if type(mapper).__name__ != "_BinMapper":
        raise misfit(part, f"a {type(mapper).__name__} for its bins")
    if not (shape_of(categorical) == (columns,) and categorical.dtype.kind in "bu"):
        raise misfit(part, "no list that says which columns are categories")
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
    if shape_of(nodes) != (len(nodes),) or nodes.dtype != kind.PREDICTOR_RECORD_DTYPE:
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
        if shape_of(sets) != (len(sets), 8) or sets.dtype != np.uint32:
            raise FileError(f"{TREE} has sets of shape {np.shape(sets)}")
    inside(
        nodes["bitset_idx"][by_set],
        0,
        same_lengths(TREE, sets=raw, binned=binned),
        f"{TREE}: a set",
    )


def _check_preprocessor(part: Any, before: Any, columns: int) -> None:
    """What comes before the trees hands on as many columns as it gets; nothing after it counts
    them."""
    masks = {"encoder": part.is_categorical_, "numerical": ~np.asarray(part.is_categorical_)}
    kinds = {"encoder": "OrdinalEncoder", "numerical": "FunctionTransformer"}
    fits = type(before).__name__ == "ColumnTransformer" and column_count(before) == columns
    fits = fits and before.sparse_output_ is False and part.is_categorical_.dtype == bool
    for name, step, of in before.transformers_:
        if name == "remainder":
            fits = fits and isinstance(step, str) and step == "drop"
            continue
        mask = np.asarray(of)
        is_known = type(step).__name__ == kinds.pop(name, "")
        fits = fits and is_known and np.array_equal(mask, masks[name])
        fits = fits and mask.shape == (columns,) and mask.dtype == bool
        places = np.flatnonzero(mask).tolist()
        fits = fits and list(before._transformer_to_input_indices[name]) == places
    if not (fits and not kinds):
        raise misfit(part, "an encoder of other columns than its own")
