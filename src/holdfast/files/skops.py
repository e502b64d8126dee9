"""skops files: scikit-learn estimators as data, of types on a short list, checked before and after they are made.

Three steps, each of which refuses: (1) `schema.json` names every type in the file; all of them must be on the list,
with the loader they belong to, before skops sees the file; (2) skops loads it in a child process with limits on time
and memory, where a crash harms nobody; (3) the estimator is made here, and every index in its trees is checked.
"""

import io
import warnings
from collections.abc import Iterator
from typing import Any, cast

import numpy as np

from holdfast.errors import FileError, UnsafeFileError, listed, optional, untyped
from holdfast.files.bounded import parse_json, unzip
from holdfast.files.found import Found, Said
from holdfast.files.trees import check_tree, inside, same_lengths

_SCALARS = (
    "bool_", "str_", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16",
    "float32", "float64",
)  # fmt: skip
# Type -> the loaders that skops writes for it. `JsonNode` is a plain value, `TypeNode` the type itself.
PLAIN: dict[str, tuple[str, ...]] = {
    "builtins.dict": ("DictNode",), "builtins.list": ("ListNode",), "builtins.tuple": ("TupleNode",),
    "builtins.set": ("SetNode",), "builtins.slice": ("SliceNode",),
    **{f"builtins.{t}": ("JsonNode", "TypeNode") for t in ("str", "int", "float", "bool", "NoneType")},
    "numpy.ndarray": ("NdArrayNode",), "numpy.dtype": ("DTypeNode",),
    **{f"numpy.{t}": ("NdArrayNode", "TypeNode") for t in _SCALARS},
    "numpy.random.mtrand.RandomState": ("RandomStateNode",),
    "numpy.random._generator.Generator": ("RandomGeneratorNode",),
}  # fmt: skip
_LOSSES = ("HalfBinomialLoss", "HalfMultinomialLoss", "ExponentialLoss")
_OBJECTS = {
    "sklearn.pipeline": "Pipeline FeatureUnion",
    "sklearn.compose._column_transformer": "ColumnTransformer _RemainderColsList",
    "sklearn.impute._base": "SimpleImputer",
    "sklearn.preprocessing._data": "StandardScaler MinMaxScaler RobustScaler MaxAbsScaler Normalizer PowerTransformer",
    "sklearn.preprocessing._encoders": "OneHotEncoder OrdinalEncoder",
    "sklearn.preprocessing._label": "LabelEncoder LabelBinarizer",
    "sklearn.preprocessing._polynomial": "PolynomialFeatures",
    "sklearn.linear_model._logistic": "LogisticRegression LogisticRegressionCV",
    "sklearn.linear_model._ridge": "RidgeClassifier RidgeClassifierCV",
    "sklearn.linear_model._stochastic_gradient": "SGDClassifier",
    "sklearn.linear_model._perceptron": "Perceptron",
    "sklearn.discriminant_analysis": "LinearDiscriminantAnalysis QuadraticDiscriminantAnalysis",
    "sklearn.naive_bayes": "GaussianNB BernoulliNB",
    "sklearn.dummy": "DummyClassifier",
    "sklearn.neural_network._multilayer_perceptron": "MLPClassifier",
    "sklearn.neural_network._stochastic_optimizers": "AdamOptimizer SGDOptimizer",
    "sklearn.tree._classes": "DecisionTreeClassifier DecisionTreeRegressor ExtraTreeClassifier ExtraTreeRegressor",
    "sklearn.ensemble._forest": "RandomForestClassifier ExtraTreesClassifier",
    "sklearn.ensemble._gb": "GradientBoostingClassifier",
    "sklearn.ensemble._voting": "VotingClassifier",
    "sklearn.ensemble._hist_gradient_boosting.gradient_boosting": "HistGradientBoostingClassifier",
    "sklearn.ensemble._hist_gradient_boosting.binning": "_BinMapper",
    "sklearn.ensemble._hist_gradient_boosting.predictor": "TreePredictor",
    "sklearn.calibration": "CalibratedClassifierCV _CalibratedClassifier _SigmoidCalibration",
    "sklearn._loss.link": "Interval LogitLink HalfLogitLink IdentityLink LogLink MultinomialLogit",
    "sklearn._loss.loss": "HalfBinomialLoss HalfMultinomialLoss ExponentialLoss",
    "sklearn.utils._bunch": "Bunch",
}
ALLOWED: dict[str, tuple[str, ...]] = {
    **PLAIN,
    **{f"{module}.{name}": ("ObjectNode",) for module, names in _OBJECTS.items() for name in names.split()},
    **{f"sklearn._loss._loss.Cy{name}": ("LossNode",) for name in _LOSSES},
    "sklearn.linear_model._sgd_fast.Hinge": ("LossNode",),
    "sklearn.tree._tree.Tree": ("TreeNode",),
}  # fmt: skip
TRUSTED = [name for name in ALLOWED if name.startswith(("sklearn.", "numpy."))]
MOST_DEPTH = 200


def check_file(data: bytes) -> dict[str, Any]:
    """The schema of a skops file all of whose types are on the list; anything else is refused."""
    entries = unzip(data, "the skops file")
    if "schema.json" not in entries:
        raise FileError("the zip file has no schema.json, so it is no skops file")
    schema = parse_json(entries["schema.json"], "schema.json")
    if not isinstance(schema, dict):
        raise FileError("schema.json holds no object")
    for name, loader in _types(cast(dict[str, Any], schema)):
        if loader not in ALLOWED.get(name, ()):
            raise UnsafeFileError(
                f"the skops file holds a {name} (loaded by {loader}), which is not among the types that are known to "
                "be safe, so it is refused. If you made it and trust it, pass trust=True (--trust-model-code)"
            )
    _check_twins(cast(dict[str, Any], schema), entries)
    for tree in (e for e in _entries(schema) if e.get("__loader__") == "TreeNode"):
        _check_tree_entry(tree, entries)
    return cast(dict[str, Any], schema)


def _check_twins(schema: dict[str, Any], files: dict[str, bytes]) -> None:
    """skops makes an object once per number, so two entries of one number must say the same."""
    seen: dict[Any, Any] = {}
    for entry in _entries(schema):
        number = entry.get("__id__")
        if number is not None and not _alike(seen.setdefault(str(number), entry), entry, files):
            raise FileError(f"schema.json has two different objects of the number {number}")


def _alike(a: Any, b: Any, files: dict[str, bytes]) -> bool:
    """The same but for the numbers of what is inside, each of which is compared in its turn, and the names of files."""
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        one, two = (_bare(cast(dict[str, Any], e), files) for e in (cast(Any, a), b))
        return one.keys() == two.keys() and all(_alike(v, two[k], files) for k, v in one.items())
    if isinstance(a, list):
        items = cast(list[Any], a)
        return len(items) == len(b) and all(_alike(x, y, files) for x, y in zip(items, b, strict=True))
    return bool(a == b)


def _bare(entry: dict[str, Any], files: dict[str, bytes]) -> dict[str, Any]:
    """An entry without its number, and with the content of its file for the name."""
    return {k: files.get(str(v), v) if k == "file" else v for k, v in entry.items() if k != "__id__"}


def _check_tree_entry(tree: dict[str, Any], entries: dict[str, bytes]) -> None:
    """The sizes of a tree, which scikit-learn believes while it makes it."""
    try:
        columns, classes, outputs = tree["__reduce__"]["args"]["content"]
        state = tree["content"]["content"]
        count, nodes = int(state["node_count"]["content"]), _values(state["nodes"], entries)
        made_for = _values(classes, entries)
        if nodes is None or made_for is None:
            raise ValueError
        fits = int(outputs["content"]) == 1 == len(made_for) and 1 <= int(made_for[0]) < 1 << 20
        fits = fits and 1 <= count == len(nodes) and 1 <= int(columns["content"]) < 1 << 31
    except (KeyError, ValueError, TypeError, AttributeError):
        fits = False
    if not fits:
        raise FileError("a tree of the skops file has sizes that do not fit")


def _entries(value: Any) -> Iterator[dict[str, Any]]:
    """Every object in the schema, however deep."""
    todo = [value]
    while todo:
        at = todo.pop()
        if isinstance(at, dict):
            yield cast(dict[str, Any], at)
            todo += cast(dict[str, Any], at).values()
        elif isinstance(at, list):
            todo += cast(list[Any], at)


def _types(value: Any, depth: int = 0) -> Iterator[tuple[str, str]]:
    """Every type that the schema names, with the loader that would make it."""
    if depth > MOST_DEPTH:
        raise FileError("schema.json is nested too deeply")
    if isinstance(value, dict):
        entry = cast(dict[str, Any], value)
        if any(key in entry for key in ("__class__", "__module__", "__loader__")):
            words = [entry.get(key) for key in ("__module__", "__class__", "__loader__")]
            if not all(isinstance(w, str) for w in words):
                raise UnsafeFileError(f"schema.json holds a type that is not named in words: {words}")
            yield f"{words[0]}.{words[1]}", cast(str, words[2])
        for inner in entry.values():
            yield from _types(inner, depth + 1)
    elif isinstance(value, list):
        for inner in cast(list[Any], value):
            yield from _types(inner, depth + 1)


# ---- loading


def load(data: bytes, *, trust: bool = False) -> Found:
    """The estimator in the bytes of a skops file."""
    from holdfast.files.child import try_in_child

    if not trust:
        check_file(data)
        optional("skops.io", "files")
        try_in_child(data)
    return Found(made(data, trust=trust))


def made(data: bytes, *, trust: bool = False) -> Any:
    """The estimator, made in this process, its trees checked."""
    skops = optional("skops.io", "files")
    try:
        trusted = skops.get_untrusted_types(data=data) if trust else TRUSTED
        strange = sorted(set(skops.get_untrusted_types(data=data)) - set(trusted))
        if strange:
            raise UnsafeFileError(f"the skops file holds types that are not known to be safe: {listed(strange)}")
        estimator = skops.loads(data, trusted=trusted)
    except FileError:
        raise
    except Exception as error:  # the file may put anything together
        raise FileError(f"skops cannot load the file: {type(error).__name__}: {error}") from None
    if not hasattr(estimator, "predict"):
        raise FileError(f"the skops file holds a {type(estimator).__name__}, which is no estimator that predicts")
    check_estimator(estimator)
    return estimator


def exercise(estimator: Any) -> None:
    """Let the last step of an estimator predict two rows of zeros; in a child process, where a crash harms nobody."""
    last = estimator.steps[-1][1] if hasattr(estimator, "steps") else estimator
    call = getattr(last, "predict_proba", None) or last.predict
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # rows of zeros have no names
        call(np.zeros((2, int(last.n_features_in_))))


# ---- the trees in an estimator


def check_estimator(estimator: Any) -> None:
    """Every index in every tree of an estimator, however deep inside it the tree is."""
    try:
        for part in _parts(estimator):
            _check_part(part)
    except FileError:
        raise
    except Exception as error:  # an attribute may be missing or anything
        raise FileError(f"the estimator in the file is damaged: {type(error).__name__}: {error}") from None


def _parts(root: Any) -> Iterator[Any]:
    """The objects that an object is made of, each once."""
    seen, todo = set[int](), [root]
    while todo:
        at = todo.pop()
        if id(at) in seen or at is None or isinstance(at, str | bytes | int | float | complex | type):
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


def _check_part(part: Any) -> None:
    name = type(part).__name__
    if name in ("DecisionTreeClassifier", "DecisionTreeRegressor", "ExtraTreeClassifier", "ExtraTreeRegressor"):
        if "tree_" in vars(part):
            _check_sklearn_tree(part.tree_, int(part.n_features_in_))
    elif name in ("RandomForestClassifier", "ExtraTreesClassifier", "GradientBoostingClassifier"):
        if "estimators_" in vars(part):
            _check_forest(part, name)
    elif name == "HistGradientBoostingClassifier" and "_predictors" in vars(part):
        _check_histogram(part)


def _check_sklearn_tree(tree: Any, columns: int) -> None:
    if type(tree) is not untyped("sklearn.tree._tree").Tree:
        raise FileError(f"a tree of the file is a {type(tree).__name__}")
    # The count decides how much memory scikit-learn reads: ask before looking at any of it.
    if not 1 <= tree.node_count <= tree.capacity:
        raise FileError(f"a tree says it has {tree.node_count} nodes, and has {tree.capacity}")
    if tree.n_features != columns:
        raise FileError(f"a tree splits {tree.n_features} columns, its model has {columns}")
    left, right = tree.children_left, tree.children_right
    inner = left != -1
    check_tree(left, right, inner, "a tree of the file")
    inside(tree.feature[inner], 0, columns, "a tree of the file: a column")
    if len(tree.value) != tree.node_count or not np.isfinite(tree.value).all():
        raise FileError("a tree of the file has values that are no numbers")


def _check_forest(part: Any, name: str) -> None:
    trees = np.asarray(part.estimators_, dtype=object)
    for tree in trees.ravel().tolist():
        if not type(tree).__module__.startswith("sklearn.tree") or tree.n_features_in_ != part.n_features_in_:
            raise FileError(f"the {name} holds a {type(tree).__name__} that does not fit it")
        if "tree_" not in vars(tree):
            raise FileError(f"the {name} holds a tree that is not fitted")
    if name == "GradientBoostingClassifier":
        # Its predictions are added up, without a look, in a table as wide as the first guess.
        k = int(part.n_classes_)
        wide = 1 if k == 2 else k
        first = part.init_
        guess = (
            first == "zero"
            if isinstance(first, str)
            else getattr(first, "n_classes_", k) == k == len(first.class_prior_)
        )
        fits = trees.ndim == 2 and trees.shape[1] == wide == part.n_trees_per_iteration_ == part._loss.n_classes - (
            k == 2
        )
        if not fits or not guess or len(part.classes_) != k:
            raise FileError(f"the {name} has trees of shape {trees.shape} for {k} classes")


def _check_histogram(part: Any) -> None:
    columns, mapper = int(part._n_features), part._bin_mapper
    if columns != part.n_features_in_ or len(mapper.is_categorical_) != columns:
        raise FileError(
            f"the HistGradientBoostingClassifier is about {columns} columns in one place and not in another"
        )
    for predictor in (p for step in part._predictors for p in step):
        nodes, sets = predictor.nodes, predictor.raw_left_cat_bitsets
        inner = nodes["is_leaf"] == 0
        check_tree(nodes["left"].astype(np.int64), nodes["right"].astype(np.int64), inner, "a tree of the file")
        inside(nodes["feature_idx"][inner], 0, columns, "a tree of the file: a column")
        inside(nodes["bitset_idx"][inner & (nodes["is_categorical"] != 0)], 0, len(sets), "a tree of the file: a set")
        same_lengths("a tree of the file", sets=sets, binned=predictor.binned_left_cat_bitsets)
        if sets.ndim != 2 or sets.shape[1] != 8:
            raise FileError(f"a tree of the file has sets of shape {sets.shape}")


# ---- saying what is in it


def describe(data: bytes) -> Said:
    """The type of the estimator and what it says of its columns and classes, from the schema alone."""
    schema, entries = check_file(data), unzip(data, "the skops file")
    steps = [entry for entry in _attributes(schema, "classes_")]
    classes = next((v for v in (_values(e, entries) for e in steps) if v is not None), None)
    names = next(
        (v for v in (_values(e, entries) for e in _attributes(schema, "feature_names_in_")) if v is not None), None
    )
    count = next((e.get("content") for e in _attributes(schema, "n_features_in_")), None)
    inputs = [str(n) for n in names] if names else [f"{count} columns"] if count is not None else []
    held = {
        name.rpartition(".")[2] for name, _ in _types(schema) if name.startswith("sklearn.") and "._loss" not in name
    }
    return Said(
        inputs, classes, "probabilities or scores", False, {"estimator": schema["__class__"], "types": sorted(held)}
    )


def _attributes(value: Any, name: str) -> Iterator[dict[str, Any]]:
    """Nodes of this name anywhere in the schema, outermost first."""
    if isinstance(value, dict):
        entry = cast(dict[str, Any], value)
        if isinstance(entry.get(name), dict):
            yield entry[name]
        for inner in entry.values():
            yield from _attributes(inner, name)
    elif isinstance(value, list):
        for inner in cast(list[Any], value):
            yield from _attributes(inner, name)


def _values(entry: dict[str, Any], entries: dict[str, bytes]) -> list[Any] | None:
    """The content of an array: in an entry of its own, or, if texts, in the schema."""
    if isinstance(entry.get("file"), str) and entry["file"] in entries:
        try:
            return np.load(io.BytesIO(entries[entry["file"]]), allow_pickle=False).ravel().tolist()
        except Exception:  # whatever is in the entry
            return None
    content: Any = entry.get("content")
    while isinstance(content, dict):
        content = cast(dict[str, Any], content).get("content")
    if not isinstance(content, list):
        return None
    items = [cast(dict[str, Any], c).get("content") for c in cast(list[Any], content) if isinstance(c, dict)]
    return [str(v).strip('"') for v in items] if items and not any(isinstance(v, list | dict) for v in items) else None
