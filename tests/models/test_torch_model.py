"""Torch modules as models."""

import pytest
import torch
from torch import nn

import holdfast as hf
from holdfast.errors import ModelError
from holdfast.nn.architecture import mlp
from support.tables import seeded
from support.torch_models import SCHEMA, TABLE, Odd, X


@pytest.mark.parametrize("make", [lambda k: mlp(SCHEMA.width, (7,), k), Odd])
@pytest.mark.parametrize("outputs", [1, 2, 4])
def test_search_and_score_frame_agree(make: object, outputs: int) -> None:
    net = seeded(make(outputs))
    model = hf.Model.of(net, SCHEMA)
    with model.eval_mode():
        fast = model(X)
        bare = model.score_frame(TABLE)
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


def test_class_names_come_from_the_module() -> None:
    net = seeded(mlp(SCHEMA.width, (4,), 2))
    net.classes = ["denied", "approved"]
    assert hf.Model.of(net, SCHEMA).classes == ("denied", "approved")
