"""Recipes: where they come from, files, and the models they make."""

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.cluster import KMeans
from sklearn.ensemble import RandomForestClassifier, VotingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import Tensor, nn

import holdfast as hf
from holdfast.errors import FileError, ModelError, SettingError
from holdfast.models.torch_model import TorchModel
from holdfast.nn.architecture import describe, mlp
from holdfast.retraining.loop import glorot
from holdfast.retraining.outcomes import class_names
from holdfast.retraining.recipe import Recipe

RNG = np.random.default_rng(0)
X = pd.DataFrame(RNG.normal(size=(45, 4)), columns=list("abcd"))
Y = pd.Series(np.where(X.a + X.b * X.c > 0, "yes", "no"))
SCHEMA = hf.Schema.infer(X)
D = SCHEMA.width
FAST = {"epochs": 2, "batch_size": 16}


def tanh(outputs: int = 2) -> nn.Sequential:
    return nn.Sequential(nn.Linear(D, 5), nn.Tanh(), nn.Linear(5, outputs))


def norm() -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(D, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Dropout(0.3), nn.Linear(5, 2)
    )


def scores(model: hf.Model) -> Tensor:
    with model.eval_mode():
        return model.score_frame(X)


# ---- where they come from


def test_recipe_of_anything_that_can_be_made_again() -> None:
    module = tanh()
    estimator = LogisticRegression(C=0.3)
    assert Recipe.of(module).module is module
    assert Recipe.of(hf.Model.of(module, SCHEMA), epochs=7) == Recipe(module=module, epochs=7)
    assert Recipe.of(estimator).estimator is estimator
    assert Recipe.of(estimator).inputs == "frame"
    fitted = LogisticRegression().fit(SCHEMA.encode(X).numpy(), Y)
    wrapped = Recipe.of(hf.Model.of(fitted, SCHEMA, inputs="encoded"))
    assert wrapped.estimator is fitted
    assert wrapped.inputs == "encoded"
    pipeline = make_pipeline(StandardScaler(), LogisticRegression())
    assert Recipe.of(pipeline).estimator is pipeline
    recipe = Recipe(hidden=(3,), epochs=4)
    assert Recipe.of(recipe) == recipe
    assert Recipe.of(recipe, lr=0.1) == Recipe(hidden=(3,), epochs=4, lr=0.1)


@pytest.mark.parametrize(
    "what", [lambda x: x, LogisticRegression, nn.Linear, 3, None, StandardScaler]
)
def test_recipe_of_nothing_that_cannot(what: Any) -> None:
    with pytest.raises(SettingError, match=r"cannot make a .* again"):
        Recipe.of(what)


@pytest.mark.parametrize("last", [nn.Softmax(1), nn.Sigmoid()])
def test_probabilities_at_the_end_are_refused(last: nn.Module) -> None:
    ended = nn.Sequential(tanh(), nn.Sequential(last))
    for make in (lambda: Recipe(module=ended), lambda: Recipe.of(ended)):
        with pytest.raises(
            SettingError, match=f"ends in {type(last).__name__}.*logits; leave that layer out"
        ):
            make()
    inside = nn.Sequential(nn.Linear(D, 5), last, nn.Linear(5, 2))
    assert Recipe(module=inside).module is inside


def test_probabilities_of_a_forward_of_its_own_are_refused() -> None:
    class Soft(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = tanh()

        def forward(self, x: Tensor) -> Tensor:
            return torch.softmax(self.net(x), 1)

    with pytest.raises(SettingError, match="probabilities"):
        Recipe.of(hf.Model.of(Soft(), SCHEMA, outputs="probabilities"))
    with pytest.raises(ModelError, match=r"recipe's module.*probabilities"):
        Recipe(module=Soft(), **FAST).fit(X, Y, SCHEMA)


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"epochs": 0}, "epochs .* got 0"),
        ({"epochs": 2.5}, r"epochs .* got 2\.5"),
        ({"epochs": "3"}, "epochs .* got '3'"),
        ({"batch_size": 0}, "batch_size .* got 0"),
        ({"lr": 0.0}, "lr .*positive"),
        ({"lr": -1}, "lr .*positive"),
        ({"lr": float("nan")}, "lr .*got nan"),
        ({"lr": float("inf")}, "lr .*got inf"),
        ({"lr": "fast"}, "lr .*got 'fast'"),
        ({"adam_eps": 0.0}, "adam_eps .*positive"),
        ({"weight_decay": -0.1}, "weight_decay .*at least 0"),
        ({"hidden": (4, 0)}, r"hidden widths .*\[4, 0\]"),
        ({"hidden": (4, 2.5)}, "hidden widths"),
        ({"hidden": 5}, "hidden must be a list"),
        ({"hidden": "64"}, "hidden must be a list"),
        ({"inputs": "rows"}, "inputs must be 'frame' or 'encoded'"),
        ({"module": nn.Linear(D, 2), "estimator": LogisticRegression()}, "not both"),
    ],
)
def test_bad_settings(settings: dict[str, Any], match: str) -> None:
    with pytest.raises(SettingError, match=match):
        Recipe(**settings)


# ---- files


@pytest.mark.parametrize(
    "recipe",
    [
        Recipe(),
        Recipe(hidden=[9], epochs=3, batch_size=7, lr=0.02, weight_decay=0.1, adam_eps=1e-7),
        Recipe(hidden=()),
        Recipe(module=norm(), epochs=3, lr=0.5),
        Recipe(module=norm().double(), lr=0.5),
        Recipe(
            module=nn.Sequential(
                nn.Sequential(nn.Linear(D, 3, bias=False), nn.GELU()), nn.Linear(3, 2)
            )
        ),
    ],
)
def test_network_recipes_round_trip(recipe: Recipe, tmp_path: Path) -> None:
    recipe.save(tmp_path / "r.toml")
    state = torch.get_rng_state()
    for back in (Recipe.load(tmp_path / "r.toml"), Recipe.from_dict(recipe.to_dict())):
        for name in ("epochs", "batch_size", "lr", "weight_decay", "adam_eps", "estimator"):
            assert getattr(back, name) == getattr(recipe, name)
        if recipe.module is None:
            assert back == recipe
        else:
            assert back.module is not None
            assert describe(back.module) == describe(recipe.module)
        a = Recipe.of(recipe, **FAST).fit(X, Y, SCHEMA)
        b = Recipe.of(back, **FAST).fit(X, Y, SCHEMA)
        assert torch.equal(scores(a), scores(b))
    assert torch.equal(state, torch.get_rng_state())


@pytest.mark.parametrize("inputs", ["frame", "encoded"])
@pytest.mark.parametrize(
    "estimator",
    [
        LogisticRegression(C=0.25, fit_intercept=False, tol=np.float64(0.01)),
        RandomForestClassifier(n_estimators=3, max_depth=2),
        MLPClassifier(hidden_layer_sizes=(4, 3), max_iter=200),
    ],
)
def test_estimator_recipes_round_trip(estimator: Any, inputs: Any, tmp_path: Path) -> None:
    recipe = Recipe(estimator=estimator, inputs=inputs)
    recipe.save(tmp_path / "r.toml")
    for back in (Recipe.load(tmp_path / "r.toml"), Recipe.from_dict(recipe.to_dict())):
        assert type(back.estimator) is type(estimator)
        assert back.inputs == inputs
        given = estimator.get_params()
        got = back.estimator.get_params()
        assert {k: list(v) if isinstance(v, tuple) else v for k, v in given.items()} == {
            k: list(v) if isinstance(v, tuple) else v for k, v in got.items()
        }


@pytest.mark.parametrize(
    ("estimator", "match"),
    [
        (make_pipeline(StandardScaler(), LogisticRegression()), "a Pipeline"),
        (KMeans(), "a KMeans"),
        (VotingClassifier([("a", LogisticRegression())]), "estimators="),
        (RandomForestClassifier(max_features=None), "max_features=None"),
        (LogisticRegression(class_weight={"yes": 2}), "class_weight="),
        (type("LogisticRegression", (LogisticRegression,), {})(), "a LogisticRegression"),
    ],
)
def test_what_a_file_cannot_hold_is_refused_when_written(
    estimator: Any, match: str, tmp_path: Path
) -> None:
    with pytest.raises(SettingError, match=f"cannot write down {match}"):
        Recipe(estimator=estimator).save(tmp_path / "r.toml")
    assert not (tmp_path / "r.toml").exists()


@pytest.mark.parametrize(
    ("content", "match"),
    [
        ({"epoch": 3}, "unknown setting 'epoch'.*did you mean 'epochs'"),
        ({"module": "os"}, "unknown setting 'module'"),
        ({"settings": {}}, "unknown setting 'settings'"),
        ({"estimator": "LogisticRegression", "epochs": 3}, "unknown setting 'epochs'"),
        ({"layers": describe(tanh()), "hidden": [3]}, "unknown setting 'hidden'"),
        ({"estimator": "LogisticRegresion"}, "did you mean 'LogisticRegression'"),
        ({"estimator": "os.system"}, "unknown estimator 'os.system'"),
        ({"estimator": "Pipeline"}, "unknown estimator"),
        ({"estimator": "KMeans"}, "unknown estimator"),
        ({"estimator": ["LogisticRegression"]}, "cannot be read"),
        ({"estimator": "LogisticRegression", "settings": {"c": 1}}, "cannot be read: .*'c'"),
        ({"estimator": "LogisticRegression", "settings": 3}, "cannot be read"),
        ({"estimator": "LogisticRegression", "inputs": "rows"}, "inputs must be"),
        ({"epochs": "many"}, "epochs"),
        ({"hidden": "many"}, "hidden"),
        ({"layers": ["Linear"]}, "cannot be read"),
        ({"layers": describe(tanh()), "dtype": "object"}, "cannot be read: 'object'"),
        ({"dtype": "float64"}, "unknown setting 'dtype'"),
        ({"layers": [{"layer": "Sigmoid"}]}, "ends in Sigmoid"),
    ],
)
def test_strange_content(content: dict[str, Any], match: str) -> None:
    with pytest.raises(SettingError, match=match):
        Recipe.from_dict(content)


def test_strange_layers_and_files(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="unknown layer 'Exec'"):
        Recipe.from_dict({"layers": [{"layer": "Exec"}]})
    with pytest.raises(FileError, match="cannot read"):
        Recipe.load(tmp_path / "none.toml")
    (tmp_path / "bad.toml").write_text("epochs = = 3")
    with pytest.raises(FileError, match="not TOML"):
        Recipe.load(tmp_path / "bad.toml")
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(FileError, match="not TOML"):
        Recipe.load(tmp_path / "bytes.toml")
    with pytest.raises(FileError, match="cannot write"):
        Recipe().save(tmp_path / "no" / "r.toml")
    (tmp_path / "ok.toml").write_text('estimator = "LogisticRegression"\n[settings]\nC = 2.0\n')
    recipe = Recipe.load(tmp_path / "ok.toml")
    # a file speaks of encoded rows unless it says so
    assert (recipe.estimator.C, recipe.inputs) == (2.0, "encoded")


# ---- making the model


@pytest.mark.parametrize(
    "recipe",
    [
        Recipe(hidden=(6,), **FAST),
        Recipe(module=tanh(), **FAST),
        Recipe(module=tanh(1), **FAST),
        Recipe(module=norm(), **FAST),
        Recipe(module=norm().double(), **FAST),
        Recipe(module=mlp(D, (4,), 2).double(), **FAST),
        Recipe(estimator=RandomForestClassifier(n_estimators=3)),
        Recipe(
            estimator=Pipeline([("s", StandardScaler()), ("m", RandomForestClassifier(3))]),
            inputs="encoded",
        ),
    ],
)
def test_fit_is_a_function_of_the_seed_and_touches_nothing(recipe: Recipe) -> None:
    state = torch.get_rng_state()
    legacy = np.random.get_state()
    before = copy.deepcopy(recipe.module)
    if recipe.module is not None:
        recipe.module.train()
    first = recipe.fit(X, Y, SCHEMA, seed=3)
    again = recipe.fit(X, Y, SCHEMA, seed=3)
    other = recipe.fit(X, Y, SCHEMA, seed=4)
    assert torch.equal(state, torch.get_rng_state())
    assert all(np.array_equal(a, b) for a, b in zip(legacy, np.random.get_state(), strict=True))
    assert torch.equal(scores(first), scores(again))
    assert not torch.equal(scores(first), scores(other))
    assert first.classes == ("no", "yes")
    if recipe.module is not None and before is not None:
        assert recipe.module.training
        assert isinstance(first, TorchModel)
        assert type(first.module) is type(recipe.module)
        assert first.module is not recipe.module
        assert not first.module.training
        assert all(
            torch.equal(v, recipe.module.state_dict()[k]) for k, v in before.state_dict().items()
        )
        assert first.module.state_dict().keys() == before.state_dict().keys()
        assert all(p.requires_grad for p in recipe.module.parameters())
    elif recipe.estimator is not None:
        assert not hasattr(recipe.estimator, "classes_")
        assert (
            recipe.estimator.get_params()[
                "m__random_state" if isinstance(recipe.estimator, Pipeline) else "random_state"
            ]
            is None
        )


def test_fit_learns() -> None:
    for recipe in (
        Recipe(hidden=(16,), epochs=150, lr=0.02),
        Recipe(module=tanh(1), epochs=150, lr=0.02),
    ):
        assert (recipe.fit(X, Y, SCHEMA).predict(X) == Y).mean() > 0.85
        turned = recipe.fit(X, Y, SCHEMA, classes=["yes", "no"])
        assert turned.classes == ("yes", "no")
        assert (turned.predict(X) == Y).mean() > 0.85


def test_network_is_the_recipe_of_a_plain_network() -> None:
    a = hf.train_network(X, Y, SCHEMA, hidden=[6], seed=2, **FAST)
    assert torch.equal(scores(a), scores(Recipe(hidden=(6,), **FAST).fit(X, Y, SCHEMA, seed=2)))
    start = Recipe(hidden=(6,)).start(mlp(D, (6,), 2))(2)
    assert all(torch.equal(v, glorot(mlp(D, (6,), 2), 2)[k]) for k, v in start.items())


def test_classes_are_plain_values() -> None:
    assert class_names(X, Y, None) == ["no", "yes"]
    for outcome, kind in (
        ((X.a > 0).astype("int8"), int),
        (X.a > 0, bool),
        ((X.a > 0).astype(float), float),
    ):
        names = class_names(X, outcome, None)
        assert names == [0, 1]
        assert [type(v) for v in names] == [kind, kind]
    assert class_names(X, Y.astype("category"), np.array(["yes", "no"])) == ["yes", "no"]
    for bad in (Y[:3], Y[:0]):
        with pytest.raises(SettingError, match="as many outcomes as rows"):
            class_names(X, bad, None)
    with pytest.raises(SettingError, match="'yes'"):
        class_names(X, Y, ["no", "maybe"])
    with pytest.raises(SettingError, match="at least two"):
        class_names(X, Y.where(Y == "no", "no"), None)
    with pytest.raises(SettingError, match="at least two"):
        class_names(X, Y, ["no", "yes", "yes"])
    with pytest.raises(SettingError, match="outcomes are missing"):
        class_names(X, Y.where(X.a > 0), None)


def test_a_module_that_does_not_fit_the_table_is_refused_before_training() -> None:
    for module, match in (
        (nn.Linear(D + 1, 2), f"encoded rows of {D} columns"),
        (nn.Linear(D, 3), "3 classes, but 2 names"),
    ):
        with pytest.raises(ModelError, match=match):
            Recipe(module=module, **FAST).fit(X, Y, SCHEMA)
    three = pd.Series(np.arange(len(X)) % 3)
    with pytest.raises(ModelError, match="2 classes, but 3 names"):
        Recipe(module=nn.Linear(D, 1), **FAST).fit(X, three, SCHEMA)


def test_estimators_that_cannot_be_fitted_say_so() -> None:
    with pytest.raises(ModelError, match=r"LogisticRegression\) could not be fitted"):
        Recipe(estimator=LogisticRegression(C=-1)).fit(X, Y, SCHEMA)
    with pytest.raises(ModelError, match="learns no classes"):
        Recipe(estimator=KMeans(2)).fit(X, Y, SCHEMA)
    with pytest.raises(SettingError, match=r"learnt the classes \['yes', 'no'\]"):
        Recipe(estimator=LogisticRegression()).fit(X, Y, SCHEMA, classes=["yes", "no", "never"])


def test_estimators_follow_the_order_of_the_classes() -> None:
    one = Recipe(estimator=LogisticRegression()).fit(X, Y, SCHEMA, classes=["no", "yes"])
    other = Recipe(estimator=LogisticRegression()).fit(X, Y, SCHEMA, classes=["yes", "no"])
    assert other.classes == ("yes", "no")
    torch.testing.assert_close(other.score_frame(X), one.score_frame(X).flip(1))
    assert (one.predict(X) == other.predict(X)).all()


def test_outcomes_are_taken_as_they_come_and_never_out_of_order() -> None:
    recipe = Recipe(hidden=(4,), epochs=1)
    first = recipe.fit(X, Y, SCHEMA)
    for same in (Y.to_numpy(), list(Y)):
        assert recipe.fit(X, same, SCHEMA).fingerprint() == first.fingerprint()
    with pytest.raises(SettingError, match="another order"):
        recipe.fit(X, Y.iloc[::-1], SCHEMA)
    with pytest.raises(SettingError, match="one per row"):
        recipe.fit(X, np.zeros((len(X), 2)), SCHEMA)


def test_training_that_diverges_says_so() -> None:
    with pytest.raises(SettingError, match="lower lr"):
        Recipe(hidden=(4,), epochs=3, lr=1e30).fit(X, Y, SCHEMA)


def test_seeds_reach_every_random_state() -> None:
    inner = Pipeline(
        [("scale", StandardScaler()), ("forest", RandomForestClassifier(n_estimators=2))]
    )
    voting = VotingClassifier([("p", inner), ("l", LogisticRegression())], voting="soft")
    made = Recipe(estimator=voting).fit(X, Y, SCHEMA, seed=11)
    params = made.wrapped.get_params()
    assert params["p__forest__random_state"] == params["l__random_state"] == 11


# ---- widths


def test_widened() -> None:
    assert Recipe(hidden=(8, 3)).widened(0.5).hidden == (4, 2)
    assert Recipe(hidden=(1,)).widened(0.1).hidden == (1,)
    own = Recipe(
        module=nn.Sequential(
            nn.Linear(D, 4), nn.Tanh(), nn.Linear(4, 6, bias=False), nn.Linear(6, 2)
        ),
        lr=0.5,
    )
    wide = own.widened(1.5)
    assert wide.lr == 0.5
    assert wide.module is not None
    sizes = [
        (m.in_features, m.out_features, m.bias is None)
        for m in wide.module
        if isinstance(m, nn.Linear)
    ]
    assert sizes == [(D, 6, False), (6, 9, True), (9, 2, False)]
    assert [type(m) for m in wide.module] == [nn.Linear, nn.Tanh, nn.Linear, nn.Linear]
    with pytest.raises(SettingError, match="only networks whose parameters are all in Linear"):
        Recipe(module=norm()).widened(2)
    with pytest.raises(SettingError, match="an estimator's"):
        Recipe(estimator=LogisticRegression()).widened(2)
    double = Recipe(module=tanh().double()).widened(2).module
    assert double is not None
    assert next(double.parameters()).dtype == torch.float64


def test_training_is_seeded_and_leaves_the_callers_generator_alone() -> None:
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(300, 3)), columns=list("abc"))
    y = pd.Series(np.where(X["a"] + X["b"] > 0, "yes", "no"))
    schema = hf.Schema.infer(X)
    torch.manual_seed(5)
    state = torch.get_rng_state()
    first = hf.train_network(X, y, schema, hidden=(8,), epochs=20, lr=0.01, seed=1)
    again = hf.train_network(X, y, schema, hidden=(8,), epochs=20, lr=0.01, seed=1)
    other = hf.train_network(X, y, schema, hidden=(8,), epochs=20, lr=0.01, seed=2)
    assert torch.equal(torch.get_rng_state(), state)
    assert first.fingerprint() == again.fingerprint() != other.fingerprint()
    assert first.classes == ("no", "yes")
    assert (first.predict(X) == y).mean() > 0.95
    with pytest.raises(hf.HoldfastError, match="as many outcomes as rows"):
        hf.train_network(X, y[:5], schema)
    with pytest.raises(hf.HoldfastError, match="two known classes"):
        hf.train_network(X, pd.Series(["yes"] * 300), schema)
