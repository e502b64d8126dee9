"""The types that a skops file may hold, and the loader that belongs to each.

A type is on the list only if (1) making it runs no code of the file, and (2) whatever compiled code follows its arrays
without looking is given arrays that `skops.estimators` has checked. A function is on the list only if it can
be called with anything and does no harm.
"""

import re

from holdfast.errors import UnsafeFileError

_SCALARS = (
    "bool_", "str_", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16",
    "float32", "float64",
)  # fmt: skip
# Type -> the loaders that skops writes for it. `JsonNode` is a plain value, `TypeNode` the type itself.
PLAIN: dict[str, tuple[str, ...]] = {
    "builtins.dict": ("DictNode",), "builtins.list": ("ListNode",), "builtins.tuple": ("TupleNode",),
    "builtins.set": ("SetNode",), "builtins.slice": ("SliceNode",), "builtins.object": ("TypeNode",),
    **{f"builtins.{t}": ("JsonNode", "TypeNode") for t in ("str", "int", "float", "bool", "NoneType")},
    "numpy.ndarray": ("NdArrayNode",), "numpy.dtype": ("DTypeNode",),
    **{f"numpy.{t}": ("NdArrayNode", "TypeNode") for t in _SCALARS},
    **{f"numpy.{t}": ("TypeNode",) for t in ("number", "integer", "floating")},
    "numpy.random.mtrand.RandomState": ("RandomStateNode",),
    "numpy.random._generator.Generator": ("RandomGeneratorNode",),
}  # fmt: skip
UFUNCS = ("absolute", "cbrt", "exp", "expm1", "log", "log10", "log1p", "log2", "sqrt", "square")
_FUNCTIONS = (
    "sklearn.utils.validation.check_array",
    "scipy._lib.array_api_compat.numpy._aliases.asarray",
    *(f"numpy.{name}" for name in UFUNCS),
)
_LOSSES = (
    "AbsoluteError ExponentialLoss HalfBinomialLoss HalfGammaLoss HalfMultinomialLoss HalfPoissonLoss "
    "HalfSquaredError HalfTweedieLoss HalfTweedieLossIdentity HuberLoss PinballLoss"
)
_OBJECTS = {
    "sklearn.pipeline": "Pipeline FeatureUnion",
    "sklearn.compose._column_transformer": "ColumnTransformer _RemainderColsList make_column_selector",
    "sklearn.compose._target": "TransformedTargetRegressor",
    "sklearn.impute._base": "SimpleImputer MissingIndicator",
    "sklearn.preprocessing._data": "StandardScaler MinMaxScaler RobustScaler MaxAbsScaler Normalizer Binarizer "
    "PowerTransformer QuantileTransformer",
    "sklearn.preprocessing._encoders": "OneHotEncoder OrdinalEncoder",
    "sklearn.preprocessing._label": "LabelEncoder LabelBinarizer",
    "sklearn.preprocessing._polynomial": "PolynomialFeatures SplineTransformer",
    "sklearn.preprocessing._discretization": "KBinsDiscretizer",
    "sklearn.preprocessing._function_transformer": "FunctionTransformer",
    "sklearn.decomposition._pca": "PCA",
    "sklearn.feature_selection._variance_threshold": "VarianceThreshold",
    "sklearn.linear_model._logistic": "LogisticRegression LogisticRegressionCV",
    "sklearn.linear_model._base": "LinearRegression",
    "sklearn.linear_model._ridge": "Ridge RidgeCV RidgeClassifier RidgeClassifierCV",
    "sklearn.linear_model._coordinate_descent": "Lasso LassoCV ElasticNet ElasticNetCV",
    "sklearn.linear_model._least_angle": "Lars LassoLars",
    "sklearn.linear_model._bayes": "BayesianRidge ARDRegression",
    "sklearn.linear_model._huber": "HuberRegressor",
    "sklearn.linear_model._theil_sen": "TheilSenRegressor",
    "sklearn.linear_model._quantile": "QuantileRegressor",
    "sklearn.linear_model._glm.glm": "PoissonRegressor GammaRegressor TweedieRegressor",
    "sklearn.linear_model._stochastic_gradient": "SGDClassifier SGDRegressor",
    "sklearn.linear_model._perceptron": "Perceptron",
    "sklearn.svm._classes": "LinearSVC LinearSVR SVC NuSVC SVR NuSVR",
    "sklearn.discriminant_analysis": "LinearDiscriminantAnalysis QuadraticDiscriminantAnalysis",
    "sklearn.naive_bayes": "GaussianNB BernoulliNB",
    "sklearn.dummy": "DummyClassifier DummyRegressor",
    "sklearn.neural_network._multilayer_perceptron": "MLPClassifier MLPRegressor",
    "sklearn.neural_network._stochastic_optimizers": "AdamOptimizer SGDOptimizer",
    "sklearn.tree._classes": "DecisionTreeClassifier DecisionTreeRegressor ExtraTreeClassifier ExtraTreeRegressor",
    "sklearn.ensemble._forest": "RandomForestClassifier ExtraTreesClassifier RandomForestRegressor ExtraTreesRegressor",
    "sklearn.ensemble._gb": "GradientBoostingClassifier GradientBoostingRegressor",
    "sklearn.ensemble._voting": "VotingClassifier VotingRegressor",
    "sklearn.ensemble._stacking": "StackingClassifier StackingRegressor",
    "sklearn.ensemble._bagging": "BaggingClassifier BaggingRegressor",
    "sklearn.ensemble._weight_boosting": "AdaBoostClassifier AdaBoostRegressor",
    "sklearn.ensemble._hist_gradient_boosting.gradient_boosting": "HistGradientBoostingClassifier "
    "HistGradientBoostingRegressor",
    "sklearn.ensemble._hist_gradient_boosting.binning": "_BinMapper",
    "sklearn.ensemble._hist_gradient_boosting.predictor": "TreePredictor",
    "sklearn.calibration": "CalibratedClassifierCV _CalibratedClassifier _SigmoidCalibration",
    "sklearn.isotonic": "IsotonicRegression",
    "sklearn.model_selection._classification_threshold": "FixedThresholdClassifier",  # of a tuned one, what it found
    "sklearn.frozen._frozen": "FrozenEstimator",
    "sklearn.model_selection._split": "KFold StratifiedKFold",
    "sklearn._loss.link": "Interval LogitLink HalfLogitLink IdentityLink LogLink MultinomialLogit",
    "sklearn._loss.loss": _LOSSES,
    "scipy.interpolate._bsplines": "BSpline",
}
_SGD_LOSSES = "Hinge SquaredHinge ModifiedHuber"
ALLOWED: dict[str, tuple[str, ...]] = {
    **PLAIN,
    **{f"{module}.{name}": ("ObjectNode",) for module, names in _OBJECTS.items() for name in names.split()},
    **{f"sklearn._loss._loss.Cy{name}": ("LossNode",) for name in _LOSSES.split()},
    **{f"sklearn.linear_model._sgd_fast.{name}": ("LossNode",) for name in _SGD_LOSSES.split()},
    **dict.fromkeys(_FUNCTIONS, ("FunctionNode",)),
    "functools.partial": ("PartialNode",),
    "sklearn.utils._bunch.Bunch": ("DictNode",),
    "sklearn.tree._tree.Tree": ("TreeNode",),
}
# Why some that are asked for are not on the list.
_REASONS = {
    r"sklearn\.neighbors\.": "its compiled code follows indices in the file that are not checked here",
    r"sklearn\.model_selection\._search": "it was not refitted, so that it holds no model; save one that predicts",
    r"sklearn\.model_selection\._classification_threshold\.Tuned": "it was not fitted, so that it has no threshold",
}


# What an entry says it is, by the loader that it names; all others make objects.
_KINDS = {"FunctionNode": "a function", "TypeNode": "a type", "MethodNode": "a method", "JsonNode": "a plain value"}


def check_type(name: str, loader: str) -> None:
    """An error for a type that is not on the list, or not with this loader."""
    if loader in ALLOWED.get(name, ()):
        return
    reason = next((f" ({why})" for pattern, why in _REASONS.items() if re.match(pattern, name)), "")
    raise UnsafeFileError(
        f"the skops file holds {name} as {_KINDS.get(loader, 'an object')}, which is not on the list of types that are "
        f"read without trust{reason}; nothing of the file was run. If you made the file yourself, pass trust=True "
        "(--trust-model-code), or export the model to ONNX"
    )
