import pickle
from dataclasses import FrozenInstanceError
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import skops.io
import torch
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier

import holdfast as hf
from holdfast.errors import ModelError
from holdfast.nn.architecture import mlp
from support.classifiers import TABLES
from support.law_table import MODELS, people
from support.tables import seeded
from support.torch_models import SCHEMA, TABLE


def test_fingerprints_tell_models_apart() -> None:
    a = hf.Model.of(seeded(mlp(SCHEMA.width, (4,), 2), 0), SCHEMA)
    b = hf.Model.of(seeded(mlp(SCHEMA.width, (4,), 2), 1), SCHEMA)
    assert (
        a.fingerprint() == hf.Model.of(seeded(mlp(SCHEMA.width, (4,), 2), 0), SCHEMA).fingerprint()
    )
    assert a.fingerprint() != b.fingerprint()
    f, g = (hf.Model.of(lambda frame, c=c: np.full(len(frame), c), SCHEMA) for c in (0.3, 0.4))
    assert f.fingerprint() != g.fingerprint()


def test_predict_keeps_the_index() -> None:
    model = hf.Model.of(seeded(mlp(SCHEMA.width, (4,), 2)), SCHEMA, classes=["no", "yes"])
    predicted = model.predict(TABLE)
    assert predicted.index.equals(TABLE.index)
    assert set(predicted) <= {"no", "yes"}
    assert isinstance(predicted, pd.Series)


def test_names_in_another_order_are_refused(tmp_path: Path) -> None:
    X, y = TABLES[2]
    schema = hf.Schema.infer(X)
    named = np.where(y == 1, "good", "bad")
    estimator = LogisticRegression().fit(X, named)
    for wrapped in (estimator, make_pipeline(StandardScaler(), LogisticRegression()).fit(X, named)):
        with pytest.raises(
            ModelError, match=r"\['good', 'bad'\].*\['bad', 'good'\]; leave classes out"
        ):
            hf.Model.of(wrapped, schema, classes=["good", "bad"])
    assert hf.Model.of(estimator, schema, classes=["bad", "good"]).classes == ("bad", "good")
    renamed = hf.Model.of(estimator, schema, classes=["denied", "approved"])
    assert (
        renamed.predict(X) == np.where(estimator.predict(X) == "good", "approved", "denied")
    ).all()
    with pytest.raises(ModelError, match="another order"):
        hf.Model.of(RandomForestClassifier(2).fit(X, y == 1), schema, classes=[True, False])
    path = tmp_path / "model.skops"
    path.write_bytes(skops.io.dumps(estimator))
    with pytest.raises(ModelError, match="another order"):
        hf.Model.load(path, schema, classes=["good", "bad"])
    net = mlp(schema.width, (3,), 2)
    hf.Model.of(net, schema, classes=["bad", "good"]).save(tmp_path / "net.safetensors")
    with pytest.raises(ModelError, match="another order"):
        hf.Model.load(tmp_path / "net.safetensors", classes=["good", "bad"])
    assert hf.Model.load(tmp_path / "net.safetensors", classes=["no", "yes"]).classes == (
        "no",
        "yes",
    )


def test_one_class_says_so() -> None:
    X, _ = TABLES[2]
    tree = DecisionTreeClassifier().fit(X, np.zeros(len(X), dtype=int))
    with pytest.raises(ModelError, match="knows one class only, 0; train it"):
        hf.Model.of(tree, hf.Schema.infer(X))


def test_every_model_says_what_became_of_it() -> None:
    X, y = TABLES[2]
    schema = hf.Schema.infer(X)
    net = hf.Model.of(mlp(schema.width, (3,), 2), schema)
    assert net.conversion
    assert str(net.conversion) == "none needed: searches use the model itself"
    assert not hf.Model.of(LogisticRegression().fit(X, y), schema, convert=False).conversion


@pytest.mark.parametrize(
    "name", [name for name in MODELS if name not in ("callable", "counternet")]
)
def test_a_model_goes_to_another_process_and_back(name: str) -> None:
    model = MODELS[name]()
    again = pickle.loads(pickle.dumps(model))
    rows = people(model, 5)
    for one in (model, again):
        with one.eval_mode():
            assert torch.equal(one.score_frame(rows), model.score_frame(rows))
    assert again.fingerprint() == model.fingerprint()


# ---- built once


def several() -> dict[str, hf.Model]:
    numbers = TABLE[["income", "age"]].astype(float)
    schema = hf.Schema.infer(numbers)
    y = np.where(numbers["income"] > 3000, "good", "bad")
    return {
        "torch": hf.Model.of(seeded(mlp(SCHEMA.width, (4,), 2)), SCHEMA),
        "linear": hf.Model.of(
            make_pipeline(StandardScaler(), LogisticRegression()).fit(numbers, y), schema
        ),
        "trees": hf.Model.of(DecisionTreeClassifier(max_depth=3).fit(numbers, y), schema),
        "black box": hf.Model.of(KNeighborsClassifier().fit(numbers, y), schema),
        "function": hf.Model.of(lambda frame: frame["income"], schema, outputs="value"),
    }


@pytest.mark.parametrize("name", several())
def test_a_model_is_built_once(name: str) -> None:
    model = several()[name]
    for attribute in (
        "schema",
        "classes",
        "conversion",
        "output_scale",
        "rejects_missing",
        "offset",
        "new",
    ):
        with pytest.raises(
            (FrozenInstanceError, AttributeError), match=f"cannot assign to field '{attribute}'"
        ):
            setattr(model, attribute, None)
    with model.eval_mode(), pytest.raises(FrozenInstanceError):
        model.schema = SCHEMA


@pytest.mark.parametrize("name", several())
def test_the_same_model_under_other_constraints(name: str) -> None:
    model = several()[name]
    table = TABLE[model.schema.names]
    held = model.with_schema(model.schema.change(income={"change": "fixed"}))
    assert held.schema["income"].change == "fixed"
    assert model.schema["income"].change == "free"
    assert held.fingerprint() == model.fingerprint()
    assert (held.predict(table) == model.predict(table)).all()
    assert held.thresholds is model.thresholds  # and its tables with it
    for other in (hf.Schema.box(2), model.schema.change(income={"scale": 7.0})):
        with pytest.raises(ModelError, match=r"model\.schema\.change"):
            model.with_schema(other)


def test_a_model_says_what_it_is() -> None:
    shown = {name: repr(model) for name, model in several().items()}
    assert shown == {
        "torch": f"Model(Sequential, {len(SCHEMA.names)} features, classes 0, 1, gradients)",
        "linear": "Model(LogisticRegression in a Pipeline, 2 features, classes 'bad', 'good', "
        "gradients, compiled: the linear model as a differentiable program)",
        "trees": "Model(DecisionTreeClassifier, 2 features, classes 'bad', 'good', no gradients, "
        "compiled: 1 tree of up to 2 leaves, all at once over encoded rows)",
        "black box": "Model(KNeighborsClassifier, 2 features, classes 'bad', 'good', no "
        "gradients, not compiled: a KNeighborsClassifier cannot be compiled)",
        "function": "Model(function, 2 features, regression, no gradients, not compiled: a "
        "function cannot be compiled)",
    }


def test_only_trees_have_thresholds() -> None:
    models = several()
    assert [name for name, model in models.items() if model.thresholds is not None] == ["trees"]
    found = models["trees"].thresholds
    assert found is not None
    assert [cells.feature for cells in found.cells] == [0]
    assert found.outputs == "probabilities"
    assert found.leaves is found.leaves  # made once
