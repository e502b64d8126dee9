"""Trees of ONNX graphs, compiled: the same as the graph itself."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from onnx import numpy_helper
from sklearn.compose import make_column_transformer
from sklearn.ensemble import (
    ExtraTreesClassifier,
    GradientBoostingClassifier,
    GradientBoostingRegressor,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier

import holdfast as hf
from holdfast.models.black_box import CompiledModel
from holdfast.schema.feature import Feature
from support.onnx_graphs import (
    BOX,
    FRAME,
    HOLES,
    THREE,
    TREE,
    TWO,
    X,
    fitted,
    gradient_boosting,
    session,
    skl,
    tree_graph,
)


def check_compiled(
    data: bytes,
    frame: pd.DataFrame,
    tmp_path: Path,
    schema: hf.Schema | None = None,
    **more: object,
) -> hf.Model:
    """The graph has a copy over its own thresholds, which scores as the graph does."""
    (tmp_path / "m.onnx").write_bytes(data)
    schema = schema or hf.Schema.infer(frame)
    model = hf.Model.load(tmp_path / "m.onnx", schema, **more)
    assert isinstance(model, CompiledModel), model.conversion.text
    assert model.thresholds is not None
    x = schema.encode(frame, torch.float64)
    mine = model(x)
    theirs = model.score_frame(frame)
    if not model.is_regression:
        mine = torch.softmax(mine, 1)
        theirs = torch.softmax(theirs, 1)
    assert torch.allclose(mine, theirs, rtol=1e-6, atol=1e-6)
    return model


GROWN = [
    DecisionTreeClassifier(max_depth=3),
    RandomForestClassifier(4, max_depth=3, random_state=0),
    ExtraTreesClassifier(4, max_depth=4, random_state=0),
    GradientBoostingClassifier(n_estimators=3),
]


@pytest.mark.parametrize("y", [TWO, THREE], ids=["two", "three"])
@pytest.mark.parametrize("estimator", GROWN, ids=lambda e: type(e).__name__)
def test_trees_are_compiled(estimator: object, y: np.ndarray, tmp_path: Path) -> None:
    frame = pd.DataFrame(X.astype(np.float64), columns=["a", "b", "c", "d"])
    model = fitted(estimator, X, y)
    own = check_compiled(skl(model, X[:1]), frame, tmp_path)
    assert (
        np.abs(torch.softmax(own.score_frame(frame), 1).numpy() - model.predict_proba(X)).max()
        < 1e-5
    )
    cfs = hf.TreeSearch().explain(own, frame[model.predict(X) == 0].head(5), 1)
    assert cfs.found.all()
    assert (model.predict(cfs.after.to_numpy(np.float32)) == 1).all()


def test_trees_of_a_regression_are_compiled(tmp_path: Path) -> None:
    frame = pd.DataFrame(X.astype(np.float64), columns=["a", "b", "c", "d"])
    for estimator in (
        RandomForestRegressor(4, max_depth=4, random_state=0),
        GradientBoostingRegressor(n_estimators=5),
    ):
        model = fitted(estimator, X, 100 * X[:, 0] + X[:, 1])
        own = check_compiled(skl(model, X[:1]), frame, tmp_path, outputs="value")
        assert own.is_regression
        assert np.allclose(own.predict(frame), model.predict(X), rtol=1e-5)
        cfs = hf.TreeSearch().explain(
            own, frame[model.predict(X) < 0].head(5), hf.Target.between(20, 90)
        )
        assert cfs.found.all()


def test_deep_trees_are_walked_by_the_graph_s_own_operator(tmp_path: Path) -> None:
    rows = np.random.default_rng(7).normal(size=(1500, 3)).astype(np.float32)
    y = np.random.default_rng(8).integers(0, 2, len(rows))
    model = RandomForestClassifier(2, random_state=0).fit(rows, y)
    assert model.estimators_[0].get_n_leaves() > 256
    frame = pd.DataFrame(rows.astype(np.float64), columns=["a", "b", "c"])
    own = check_compiled(skl(model, rows[:1]), frame, tmp_path)
    assert "own code" in own.conversion.text
    assert (
        np.abs(torch.softmax(own.score_frame(frame), 1).numpy() - model.predict_proba(rows)).max()
        < 1e-6
    )


def test_trees_over_named_columns_and_missing_numbers_are_compiled(tmp_path: Path) -> None:
    from skl2onnx import convert_sklearn
    from skl2onnx.common.data_types import FloatTensorType

    grown = HistGradientBoostingClassifier(
        max_iter=8, min_samples_leaf=5, early_stopping=False
    ).fit(HOLES, TWO)
    check_compiled(gradient_boosting(grown, HOLES.shape[1]), FRAME, tmp_path)
    whole = FRAME.fillna(0.0)
    prepare = make_column_transformer(("passthrough", ["c", "a", "d"]))
    pipeline = make_pipeline(prepare, RandomForestClassifier(4, max_depth=4, random_state=0)).fit(
        whole, TWO
    )
    types = [(name, FloatTensorType([None, 1])) for name in ("a", "b", "c", "d")]
    data = convert_sklearn(pipeline, initial_types=types).SerializeToString()
    model = check_compiled(data, whole, tmp_path)
    assert (model.predict(whole) == pipeline.predict(whole)).all()


@pytest.mark.parametrize("tracks", [0, 1])
@pytest.mark.parametrize("kind", [1, 11], ids=["float", "double"])
@pytest.mark.parametrize("mode", ["BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT"])
def test_compiled_trees_test_what_the_graph_tests(
    mode: str, kind: int, tracks: int, tmp_path: Path
) -> None:
    near = [
        0.1,
        np.nextafter(0.1, 0),
        np.nextafter(0.1, 1),
        float(np.float32(0.1)),
        np.nextafter(np.float32(0.1), 0.0),
    ]
    table = [
        [0.0, v, 0.5, w]
        for v in (*near, -1.0, np.nan)
        for w in (-0.2, 5.0, float(np.float32(-0.2)), np.nan)
    ]
    frame = pd.DataFrame(table, columns=["a", "b", "c", "d"])
    numbers = (
        {}
        if kind == 1
        else {
            "nodes_values": None,
            "class_weights": None,
            "nodes_values_as_tensor": numpy_helper.from_array(np.float64(TREE["nodes_values"])),
            "class_weights_as_tensor": numpy_helper.from_array(np.float64([0.1, 0.3, 0.2, 0.4])),
        }
    )
    data = tree_graph(
        kind=kind,
        nodes_modes=[mode, "LEAF", "LEAF", mode, "LEAF", "LEAF"],
        post_transform="LOGISTIC",
        nodes_missing_value_tracks_true=[tracks, 0, 0, tracks, 0, 0],
        **numbers,
    )
    # encoded as they are
    exact = hf.Schema(tuple(Feature(name, seen=(-3, 3), missing=True) for name in frame))
    model = check_compiled(data, frame, tmp_path, exact, inputs="frame")
    rows = frame.to_numpy(np.float32 if kind == 1 else np.float64)
    assert (
        np.abs(
            torch.softmax(model.score_frame(frame), 1).numpy()
            - session(data).run(["y"], {"x": rows})[0]
        ).max()
        < 1e-6
    )


def test_what_cannot_be_compiled_says_why(tmp_path: Path) -> None:
    def why(data: bytes) -> str:
        (tmp_path / "m.onnx").write_bytes(data)
        model = hf.Model.load(tmp_path / "m.onnx", BOX, inputs="frame")
        assert not model.conversion
        return model.conversion.text

    same = ["BRANCH_EQ", "LEAF", "LEAF", "BRANCH_LEQ", "LEAF", "LEAF"]
    assert why(tree_graph(nodes_modes=same)) == "a node tests whether two numbers are equal"
    mixed = {
        name: [TREE[name][i] for i in (0, 3, 1, 2, 4, 5)]
        for name in TREE
        if name.startswith("nodes_")
    }
    assert why(tree_graph(**mixed)) == "the nodes of its trees are not one tree after the other"
    scaled = make_pipeline(StandardScaler(), DecisionTreeClassifier(max_depth=3))
    assert (
        why(skl(fitted(scaled, X, TWO), X[:1]))
        == "the graph is more than trees over columns of the table"
    )
