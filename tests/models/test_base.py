import json
import pickle
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import save_file
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from torch import nn

import holdfast as hf
from holdfast.errors import FileError, ModelError, UnsafeFileError
from holdfast.nn.architecture import build, describe, mlp
from holdfast.nn.relu_network import Engine
from support.tables import mixed_schema, mixed_table, seeded

TABLE = mixed_table(60)
SCHEMA = mixed_schema(TABLE)
X = SCHEMA.encode(TABLE)


@pytest.mark.parametrize("outputs", [1, 2, 5])
@pytest.mark.parametrize("hidden", [(), (9,), (16, 8, 5)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_analytic_gradients_equal_autograd(outputs: int, hidden: tuple[int, ...], dtype: torch.dtype) -> None:
    net = seeded(mlp(SCHEMA.width, hidden, outputs).to(dtype))
    x = X.to(dtype)
    engine = Engine.of(net)
    assert engine is not None
    v = torch.randn(len(x), outputs, generator=torch.Generator().manual_seed(1), dtype=dtype)
    scores, pull = engine.vjp(x)
    z = x.clone().requires_grad_()
    expected = net(z)
    (grad,) = torch.autograd.grad(expected, z, v)
    expected = expected.detach()
    scale = max(1.0, float(grad.abs().max()))
    assert torch.allclose(scores, expected, atol=1e-6 * max(1.0, float(expected.abs().max())))
    assert (pull(v) - grad).abs().max() <= 1e-6 * scale


def test_engine_is_only_for_linear_and_relu_in_turn() -> None:
    relu, linear = nn.ReLU(), nn.Linear(3, 3)
    assert Engine.of(nn.Sequential(linear, relu, nn.Dropout(0.5), nn.Sequential(nn.Linear(3, 2))))
    for other in (
        nn.Sequential(linear, nn.Tanh(), nn.Linear(3, 2)),
        nn.Sequential(linear, relu),
        nn.Sequential(relu, linear),
        nn.Sequential(linear, linear),
        nn.Sequential(linear, nn.BatchNorm1d(3), relu, linear),
    ):
        assert Engine.of(other) is None
    hooked = nn.Sequential(nn.Linear(3, 2))
    hooked[0].register_forward_hook(lambda m, i, o: o * 2)
    assert Engine.of(hooked) is None


class Odd(nn.Module):
    """A module the engine does not know."""

    def __init__(self, outputs: int) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(SCHEMA.width, 7), nn.Linear(7, outputs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.b(torch.sin(self.a(x)))


@pytest.mark.parametrize("make", [lambda k: mlp(SCHEMA.width, (7,), k), Odd])
@pytest.mark.parametrize("outputs", [1, 2, 4])
def test_search_and_score_frame_agree(make: object, outputs: int) -> None:
    net = seeded(make(outputs))
    model = hf.Model.of(net, SCHEMA)
    with model.eval_mode():
        fast, bare = model(X), model.score_frame(TABLE)
        assert torch.allclose(fast, bare, atol=1e-5)
        for n in (1, 3, 8, 9, 33):
            assert torch.equal(model(X[:n]), fast[:n])
            scores, pull = model.vjp(X[:n])
            assert torch.equal(scores, model.vjp(X)[0][:n])
            v = torch.ones(n, scores.shape[1]) * torch.arange(1.0, scores.shape[1] + 1)
            assert pull(v).shape == (n, SCHEMA.width)
    assert fast.shape == (60, max(outputs, 2))
    if outputs == 1:
        assert (bare[:, 0] == 0).all()
        assert torch.allclose(bare[:, 1], net(X).squeeze(1), atol=1e-5)


def test_one_and_two_logits_give_the_same_answers() -> None:
    two = seeded(mlp(4, (6,), 2), 3)
    one = mlp(4, (6,), 1)
    with torch.no_grad():
        one[0].weight.copy_(two[0].weight)
        one[0].bias.copy_(two[0].bias)
        one[2].weight.copy_(two[2].weight[1:] - two[2].weight[:1])
        one[2].bias.copy_(two[2].bias[1:] - two[2].bias[:1])
    box = hf.Schema.box(4, -3, 3)
    x = torch.randn(20, 4, generator=torch.Generator().manual_seed(0)).clamp(-3, 3)
    a = hf.Descent(steps=50).explain(hf.Model.of(two, box), x, 1)
    b = hf.Descent(steps=50).explain(hf.Model.of(one, box), x, 1)
    assert (a.status_codes == b.status_codes).all()
    assert torch.allclose(a.x_cf, b.x_cf, atol=1e-4)


def test_probabilities_are_never_taken_for_logits() -> None:
    class Soft(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = seeded(mlp(SCHEMA.width, (5,), 3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.softmax(self.net(x), 1)

    with pytest.raises(ModelError, match="look like probabilities"):
        hf.Model.of(Soft(), SCHEMA)
    soft = Soft()
    model = hf.Model.of(soft, SCHEMA, outputs="probabilities")
    with model.eval_mode():
        assert torch.allclose(torch.softmax(model(X), 1), soft(X), atol=1e-6)
    # A last layer that says so needs no word from the user, and cannot be contradicted.
    ended = nn.Sequential(seeded(mlp(SCHEMA.width, (5,), 3)), nn.Softmax(1))
    with hf.Model.of(ended, SCHEMA).eval_mode():
        assert hf.Model.of(ended, SCHEMA).outputs == "probabilities"
    with pytest.raises(ModelError, match="ends in Softmax"):
        hf.Model.of(ended, SCHEMA, outputs="logits")
    with pytest.raises(ModelError, match="outside"):
        hf.Model.of(seeded(mlp(SCHEMA.width, (5,), 3)), SCHEMA, outputs="probabilities")
    sigmoid = hf.Model.of(nn.Sequential(seeded(mlp(SCHEMA.width, (5,), 1)), nn.Sigmoid()), SCHEMA)
    with sigmoid.eval_mode():
        assert torch.allclose(sigmoid(X)[:, 1], sigmoid.module[0](X).squeeze(1), atol=1e-4)


def test_wrong_modules_say_what_is_wrong() -> None:
    with pytest.raises(ModelError, match="cannot take encoded rows of"):
        hf.Model.of(nn.Linear(3, 2), SCHEMA)
    with pytest.raises(ModelError, match="2 classes, but 3 names"):
        hf.Model.of(nn.Linear(SCHEMA.width, 2), SCHEMA, classes=["a", "b", "c"])
    with pytest.raises(ModelError, match="must differ"):
        hf.Model.of(nn.Linear(SCHEMA.width, 2), SCHEMA, classes=["a", "a"])
    with pytest.raises(ModelError, match="cannot use a dict"):
        hf.Model.of({}, SCHEMA)
    with pytest.raises(ModelError, match="needs its Schema"):
        hf.Model.of(nn.Linear(2, 2), "schema")
    with pytest.raises(ModelError, match="already"):
        hf.Model.of(hf.Model.of(nn.Linear(SCHEMA.width, 2), SCHEMA), SCHEMA)


def test_estimators_and_functions() -> None:
    numbers = TABLE[["income", "age"]].astype(float)
    schema = hf.Schema.infer(numbers)
    y = np.where(numbers["income"] > 3000, "good", "bad")
    fitted = LogisticRegression(max_iter=1000).fit(numbers, y)
    model = hf.Model.of(fitted, schema)
    assert model.classes == ("bad", "good")
    assert (model.predict(numbers) == fitted.predict(numbers)).all()
    assert torch.allclose(torch.softmax(model.score_frame(numbers), 1), torch.tensor(fitted.predict_proba(numbers)))
    ridge = hf.Model.of(RidgeClassifier().fit(numbers, y), schema)  # has decision_function only
    assert (ridge.predict(numbers) == RidgeClassifier().fit(numbers, y).predict(numbers)).all()
    encoded = hf.Model.of(lambda z: 1 / (1 + np.exp(-z[:, 0])), schema, inputs="encoded")
    assert torch.allclose(encoded.score_frame(numbers)[:, 1], schema.encode(numbers, torch.float64)[:, 0], atol=1e-8)
    with pytest.raises(ModelError, match="expected probabilities"):
        hf.Model.of(lambda frame: frame["income"].to_numpy(), schema)
    assert hf.Model.of(lambda frame: frame["income"].to_numpy() - 3000, schema, outputs="logits").outputs == "logits"
    with pytest.raises(ModelError, match="16 non-finite scores"):
        hf.Model.of(lambda frame: np.full(len(frame), np.nan), schema)
    with pytest.raises(ModelError, match="shape"):
        hf.Model.of(lambda frame: np.zeros((3, 2)), schema)


def test_class_names_come_from_the_module() -> None:
    net = seeded(mlp(SCHEMA.width, (4,), 2))
    net.classes = ["denied", "approved"]
    assert hf.Model.of(net, SCHEMA).classes == ("denied", "approved")


# ---- files


def test_save_and_load(tmp_path: Path) -> None:
    net = nn.Sequential(
        nn.Linear(SCHEMA.width, 6), nn.BatchNorm1d(6), nn.LeakyReLU(0.2), nn.Dropout(0.1), nn.Linear(6, 3, bias=False)
    )
    model = hf.Model.of(seeded(net), SCHEMA, classes=["a", "b", "c"])
    model.save(tmp_path / "m.safetensors")
    again = hf.Model.load(tmp_path / "m.safetensors")
    assert again.classes == model.classes
    assert again.schema == SCHEMA
    with model.eval_mode(), again.eval_mode():
        assert torch.equal(again.score_frame(TABLE), model.score_frame(TABLE))
    assert describe(again.module) == describe(net)
    double = hf.Model.of(seeded(mlp(SCHEMA.width, (3,), 2).double()), SCHEMA)
    double.save(tmp_path / "d.safetensors")
    assert hf.Model.load(tmp_path / "d.safetensors").dtype == torch.float64


def test_models_that_cannot_be_written_down() -> None:
    with pytest.raises(ModelError, match="cannot write down a Odd"):
        hf.Model.of(Odd(2), SCHEMA).save("never.safetensors")
    with pytest.raises(ModelError, match="only torch models"):
        hf.Model.of(lambda f: np.full(len(f), 0.5), SCHEMA).save("never.safetensors")
    with pytest.raises(ModelError, match=r"unknown layer 'os\.system'"):
        build([{"layer": "os.system"}])
    with pytest.raises(ModelError, match="unknown setting"):
        build([{"layer": "Linear", "in_features": 2, "out_features": 2, "device": "meta"}])


class Bomb:
    """Writes a file when it is unpickled."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return Path.write_text, (self.marker, "boom")


@pytest.mark.parametrize("name", ["m.pkl", "m.joblib", "m.pt", "m.pt2", "m.safetensors", "model", "m.bin"])
@pytest.mark.parametrize("kind", ["pickle", "torch"])
def test_a_pickle_bomb_is_refused_and_not_run(tmp_path: Path, name: str, kind: str) -> None:
    marker, path = tmp_path / "boom", tmp_path / name
    if kind == "pickle":
        path.write_bytes(pickle.dumps(Bomb(marker)))
    else:
        torch.save(Bomb(marker), path)
    with pytest.raises(UnsafeFileError, match="trust"):
        hf.Model.load(path, SCHEMA)
    assert not marker.exists()


def test_a_trusted_pickle_loads(tmp_path: Path) -> None:
    numbers = TABLE[["income", "age"]].astype(float)
    schema = hf.Schema.infer(numbers)
    fitted = LogisticRegression(max_iter=1000).fit(numbers, numbers["income"] > 3000)
    (tmp_path / "m.pkl").write_bytes(pickle.dumps(fitted))
    model = hf.Model.load(tmp_path / "m.pkl", schema, trust=True)
    assert (model.predict(numbers) == fitted.predict(numbers)).all()
    with pytest.raises(FileError, match="schema"):
        hf.Model.load(tmp_path / "m.pkl", trust=True)


def test_broken_files_are_refused(tmp_path: Path) -> None:
    model = hf.Model.of(seeded(mlp(SCHEMA.width, (4,), 2)), SCHEMA)
    model.save(tmp_path / "m.safetensors")
    whole = (tmp_path / "m.safetensors").read_bytes()
    (tmp_path / "cut.safetensors").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "empty.safetensors").write_bytes(b"")
    (tmp_path / "text.safetensors").write_text("hello")
    save_file({"a": torch.ones(2)}, tmp_path / "bare.safetensors")
    good = json.dumps(
        {"architecture": describe(model.module), "classes": [0, 1], "outputs": "logits", "schema": SCHEMA.to_dict()}
    )
    for i, text in enumerate(
        ["not json", "[]", "{}", good.replace('"in_features": ', '"in_features": 1'), '{"architecture": 3}']
    ):
        save_file({"0.weight": torch.ones(2, 2)}, tmp_path / f"junk{i}.safetensors", metadata={"holdfast": text})
    for path in tmp_path.glob("*.safetensors"):
        if path.name != "m.safetensors":
            with pytest.raises(hf.HoldfastError):
                hf.Model.load(path)
    with pytest.raises(FileError, match="no model file"):
        hf.Model.load(tmp_path / "none.safetensors")


def test_fingerprints_tell_models_apart() -> None:
    a, b = (hf.Model.of(seeded(mlp(SCHEMA.width, (4,), 2), i), SCHEMA) for i in (0, 1))
    assert a.fingerprint() == hf.Model.of(seeded(mlp(SCHEMA.width, (4,), 2), 0), SCHEMA).fingerprint()
    assert a.fingerprint() != b.fingerprint()
    f, g = (hf.Model.of(lambda frame, c=c: np.full(len(frame), c), SCHEMA) for c in (0.3, 0.4))
    assert f.fingerprint() != g.fingerprint()


def test_predict_keeps_the_index() -> None:
    model = hf.Model.of(seeded(mlp(SCHEMA.width, (4,), 2)), SCHEMA, classes=["no", "yes"])
    predicted = model.predict(TABLE)
    assert predicted.index.equals(TABLE.index)
    assert set(predicted) <= {"no", "yes"}
    assert isinstance(predicted, pd.Series)
