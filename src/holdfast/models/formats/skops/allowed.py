"""The types that a skops file may hold, and the loader that belongs to each.

A type is on the list only if (1) making it runs no code from the file, and (2) compiled code that
follows its arrays without looking gets only arrays that `skops.estimators` has checked. A function
is on the list only if it does no harm whatever it is called with.
"""

import re

from holdfast.errors import UnsafeFileError

_SCALARS = (
    "bool_",
    "str_",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "float16",
    "float32",
    "float64",
)
# Type -> the loaders that skops writes for it. `JsonNode` is a plain value, `TypeNode` the type
# itself.
PLAIN: dict[str, tuple[str, ...]] = {
    "builtins.dict": ("DictNode",),
    "builtins.list": ("ListNode",),
    "builtins.tuple": ("TupleNode",),
    "builtins.set": ("SetNode",),
    "builtins.slice": ("SliceNode",),
    "builtins.object": ("TypeNode",),
    **{
        f"builtins.{t}": ("JsonNode", "TypeNode")
        for t in ("str", "int", "float", "bool", "NoneType")
    },
    "numpy.ndarray": ("NdArrayNode",),
    "numpy.dtype": ("DTypeNode",),
    **{f"numpy.{t}": ("NdArrayNode", "TypeNode") for t in _SCALARS},
    **{f"numpy.{t}": ("TypeNode",) for t in ("number", "integer", "floating")},
    "numpy.random.mtrand.RandomState": ("RandomStateNode",),
    "numpy.random._generator.Generator": ("RandomGeneratorNode",),
}
UFUNCS = ("absolute", "cbrt", "exp", "expm1", "log", "log10", "log1p", "log2", "sqrt", "square")
_FUNCTIONS = (
    "sklearn.utils.validation.check_array",
    "scipy._lib.array_api_compat.numpy._aliases.asarray",
    *(f"numpy.{name}" for name in UFUNCS),
)
_LOSSES = (
    "AbsoluteError ExponentialLoss HalfBinomialLoss HalfGammaLoss HalfMultinomialLoss "
    "HalfPoissonLoss "
    "HalfSquaredError HalfTweedieLoss HalfTweedieLossIdentity HuberLoss PinballLoss"
)
_OBJECTS = {  # of `sklearn`; a star stands for Classifier and Regressor
    "pipeline": "Pipeline FeatureUnion",
    "impute._base": "SimpleImputer MissingIndicator",
    "compose._column_transformer": "ColumnTransformer _RemainderColsList make_column_selector",
    "compose._target": "TransformedTargetRegressor",
    "preprocessing._data": (
        "StandardScaler MinMaxScaler RobustScaler MaxAbsScaler Normalizer Binarizer "
        "PowerTransformer QuantileTransformer"
    ),
    "preprocessing._encoders": "OneHotEncoder OrdinalEncoder",
    "preprocessing._label": "LabelEncoder LabelBinarizer",
    "preprocessing._polynomial": "PolynomialFeatures SplineTransformer",
    "preprocessing._discretization": "KBinsDiscretizer",
    "preprocessing._function_transformer": "FunctionTransformer",
    "decomposition._pca": "PCA",
    "feature_selection._variance_threshold": "VarianceThreshold",
    "linear_model._logistic": "LogisticRegression LogisticRegressionCV",
    "linear_model._base": "LinearRegression",
    "linear_model._ridge": "Ridge RidgeCV RidgeClassifier RidgeClassifierCV",
    "linear_model._coordinate_descent": "Lasso LassoCV ElasticNet ElasticNetCV",
    "linear_model._least_angle": "Lars LassoLars",
    "linear_model._bayes": "BayesianRidge ARDRegression",
    "linear_model._huber": "HuberRegressor",
    "linear_model._theil_sen": "TheilSenRegressor",
    "linear_model._quantile": "QuantileRegressor",
    "linear_model._perceptron": "Perceptron",
    "linear_model._glm.glm": "PoissonRegressor GammaRegressor TweedieRegressor",
    "linear_model._stochastic_gradient": "SGD*",
    "svm._classes": "LinearSVC LinearSVR SVC NuSVC SVR NuSVR",
    "discriminant_analysis": "LinearDiscriminantAnalysis QuadraticDiscriminantAnalysis",
    "naive_bayes": "GaussianNB BernoulliNB",
    "dummy": "Dummy*",
    "neural_network._multilayer_perceptron": "MLP*",
    "neural_network._stochastic_optimizers": "AdamOptimizer SGDOptimizer",
    "tree._classes": "DecisionTree* ExtraTree*",
    "ensemble._forest": "RandomForest* ExtraTrees*",
    "ensemble._gb": "GradientBoosting*",
    "ensemble._voting": "Voting*",
    "ensemble._stacking": "Stacking*",
    "ensemble._bagging": "Bagging*",
    "ensemble._weight_boosting": "AdaBoost*",
    "ensemble._hist_gradient_boosting.gradient_boosting": "HistGradientBoosting*",
    "ensemble._hist_gradient_boosting.binning": "_BinMapper",
    "ensemble._hist_gradient_boosting.predictor": "TreePredictor",
    "calibration": "CalibratedClassifierCV _CalibratedClassifier _SigmoidCalibration",
    "isotonic": "IsotonicRegression",
    "frozen._frozen": "FrozenEstimator",
    # of a tuned one, what it found
    "model_selection._classification_threshold": "FixedThresholdClassifier",
    "model_selection._split": "KFold StratifiedKFold",
    "_loss.loss": _LOSSES,
    "_loss.link": "Interval LogitLink HalfLogitLink IdentityLink LogLink MultinomialLogit",
}
ALLOWED: dict[str, tuple[str, ...]] = {
    **PLAIN,
    **{
        f"sklearn.{module}.{pattern.replace('*', task)}": ("ObjectNode",)
        for module, names in _OBJECTS.items()
        for pattern in names.split()
        for task in ("Classifier", "Regressor")
    },
    "scipy.interpolate._bsplines.BSpline": ("ObjectNode",),
    **{f"sklearn._loss._loss.Cy{name}": ("LossNode",) for name in _LOSSES.split()},
    **{
        f"sklearn.linear_model._sgd_fast.{loss}": ("LossNode",)
        for loss in ("Hinge", "SquaredHinge", "ModifiedHuber")
    },
    **dict.fromkeys(_FUNCTIONS, ("FunctionNode",)),
    "functools.partial": ("PartialNode",),
    "sklearn.utils._bunch.Bunch": ("DictNode",),
    "sklearn.tree._tree.Tree": ("TreeNode",),
}
# Why some that people ask for are not on the list.
_REASONS = {
    r"sklearn\.neighbors\.": (
        "its compiled code follows indices in the file that are not checked here"
    ),
    r"sklearn\.model_selection\._search": (
        "it was not refitted, so that it holds no model; save one that predicts"
    ),
    r"sklearn\.model_selection\._classification_threshold\.Tuned": (
        "it was not fitted, so that it has no threshold"
    ),
}


# What an entry says it is, by the loader that it names; all others make objects.
_KINDS = {
    "FunctionNode": "a function",
    "TypeNode": "a type",
    "MethodNode": "a method",
    "JsonNode": "a plain value",
}


def check_type(name: str, loader: str) -> None:
    """An error for a type that is not on the list, or not with this loader."""
    if loader in ALLOWED.get(name, ()):
        return
    reason = next((f" ({why})" for pattern, why in _REASONS.items() if re.match(pattern, name)), "")
    what = (
        f"the skops file holds {name} as {_KINDS.get(loader, 'an object')}, which is not on the "
        "list of types that"
    )
    fix = (
        "If you made the file yourself, pass trust=True (--trust-model-code), or export the "
        "model to ONNX"
    )
    raise UnsafeFileError(
        f"{what} are read without trust{reason}; nothing of the file was run. {fix}"
    )
