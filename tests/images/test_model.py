"""Models of images: what they take, what they give back, and that nothing of the caller's
changes."""

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from holdfast._core.rows import limited_threads
from holdfast.errors import FileError, ModelError, SettingError
from holdfast.images._stored import MARK
from holdfast.images.classifier import SpectralResNet
from holdfast.images.model import ImageModel, as_images, holds_images, padded
from holdfast.images.resnet import Shape, folded, trainable
from holdfast.images.spectral.jacobian import lipschitz
from holdfast.models.density import FeatureDensity
from holdfast.nn.stack import lent_generator
from support.images import CNN, cnn, digits, linear, spectral


def noise(n: int, *size: int, seed: int = 0) -> Tensor:
    return torch.rand(n, *size, generator=torch.Generator().manual_seed(seed))


# ---- images


def test_images_of_all_kinds() -> None:
    bytes_ = (np.arange(2 * 3 * 4) * 10).astype(np.uint8).reshape(2, 3, 4)
    x = as_images(bytes_)
    assert (x.shape, x.dtype) == ((2, 1, 3, 4), torch.float32)
    assert torch.equal(x, torch.tensor(bytes_[:, None] / 255, dtype=torch.float32))
    numbers = bytes_[:, None] / 255
    frozen = numbers.copy()
    frozen.flags.writeable = False
    frozen_bytes = bytes_[:, None].copy()
    frozen_bytes.flags.writeable = False
    same: list[Any] = [
        torch.tensor(bytes_),
        numbers,
        frozen,
        frozen_bytes,
        numbers.astype(">f8"),
        numbers[:, :, ::-1][:, :, ::-1],
        bytes_[:, ::-1][:, ::-1],
        numbers.tolist(),
        torch.tensor(numbers, requires_grad=True),
        torch.tensor(numbers).transpose(2, 3).contiguous().transpose(2, 3),
    ]
    for images in same:
        assert torch.equal(as_images(images), x)
        assert not as_images(images).requires_grad
    assert torch.equal(as_images(bytes_[:, ::-1]), x.flip(2))
    assert as_images(np.zeros((0, 8, 8))).shape == (0, 1, 8, 8)
    assert torch.allclose(as_images(numbers.astype(np.float16)), x, atol=1e-3)


def test_images_are_copies() -> None:
    x = noise(2, 1, 3, 3)
    y = x.clone()
    array = x.numpy().copy()
    as_images(x).zero_()
    as_images(array).zero_()
    assert torch.equal(x, y)
    assert (array == y.numpy()).all()


def test_images_can_be_differentiated_by_wherever_they_were_made() -> None:
    with torch.inference_mode():
        made = [
            as_images(noise(2, 1, 3, 3)),
            as_images(np.zeros((2, 3, 3))),
            as_images(np.zeros((2, 3, 3), np.uint8)),
        ]
    for x in made:
        assert not x.is_inference()
        x.requires_grad_()


def test_what_is_no_image() -> None:
    wrong: list[tuple[Any, str]] = [
        (np.zeros(5), r"got \(5,\)"),
        (np.zeros((2, 2)), r"\(n, channels, height, width\), got \(2, 2\)"),
        (np.zeros((2, 2, 2), dtype=int), "got int64; cast them first"),
        (torch.zeros(2, 2, 2, dtype=torch.int32), "got torch.int32"),
        (np.zeros((2, 2, 2), dtype=bool), "got bool"),
        (np.zeros((2, 2, 2), dtype=np.uint16), "got uint16"),
        (np.full((2, 2, 2), "a"), "cast them first"),
        ([[[0.0]], [[0.0, 1.0]]], "do not form one array"),
        (np.full((1, 2, 2), 255.0), "between 0 and 1, got 255 to 255; divide them by 255"),
        (np.full((1, 2, 2), -0.5), "got -0.5 to -0.5"),
        (np.full((1, 2, 2), 1e300), "got inf to inf"),
        (np.full((1, 2, 2), np.nan), r"4 values of the images are non-finite \(NaN\)"),
    ]
    for images, text in wrong:
        with pytest.raises(SettingError, match=text):
            as_images(images)
    with pytest.raises(SettingError, match="expected images of 1 x 8 x 8, got 3 x 8 x 8"):
        as_images(np.zeros((2, 3, 8, 8)), (1, 8, 8))


# ---- wrapping


class Parts(nn.Module):
    """A module with odd corners."""

    def __init__(self, mode: str = "") -> None:
        super().__init__()
        self.mode = mode
        self.conv = nn.Conv2d(1, 5, 3)
        self.act = nn.ReLU(inplace=True)
        self.head = nn.Linear(5, 3)
        self.unused = nn.Linear(2, 2)
        self.odd = nn.Identity()

    def forward(self, x: Tensor) -> Any:
        if self.mode == "in place":
            x.sub_(0.5).mul_(2)
        h = self.conv(x)
        if self.mode == "tokens":
            self.odd(h.flatten(2))
        if self.mode == "tuple layer":
            self.odd((h, h))
        if self.mode == "rows":
            self.odd(h.flatten(0, 1).flatten(1))
        out = self.head(self.act(h).mean((2, 3)))
        return {"tuple": (out, h), "one": out[:, :1], "flat": out.sum(1), "nan": out / 0}.get(
            self.mode, out
        )


def parts(mode: str = "", seed: int = 0) -> Parts:
    with lent_generator(seed):
        return Parts(mode)


def test_features_of_a_map_and_of_a_vector() -> None:
    net = parts()
    x = noise(5, 1, 6, 6)
    with torch.no_grad():
        h = net.conv(x)
        assert float(h.min()) < 0  # the next layer works in place, and must not change what is kept
        model = ImageModel.of(net, (1, 6, 6), features="conv")
        assert model.feature_count == 5
        assert torch.allclose(model.features(x), h.mean((2, 3)), atol=1e-6)
        vector = ImageModel.of(net, (1, 6, 6), features="head")
        assert torch.allclose(vector.features(x), net(x), atol=1e-6)
    assert not ImageModel.of(net, (1, 6, 6)).has_features
    assert ImageModel.of(net, (1, 6, 6)).feature_count == 0


def test_a_vector_that_the_next_layer_overwrites() -> None:
    with lent_generator(0):
        net = nn.Sequential(nn.Flatten(), nn.Linear(9, 4), nn.ReLU(inplace=True), nn.Linear(4, 2))
    x = noise(6, 1, 3, 3)
    z = ImageModel.of(net, (1, 3, 3), features="1").features(x)
    assert torch.allclose(z, net[1](x.flatten(1)).detach(), atol=1e-6)
    assert float(z.min()) < 0


def test_a_module_that_works_on_its_images() -> None:
    net = parts("in place")
    x = noise(8, 1, 6, 6)
    model = ImageModel.of(net, (1, 6, 6), features="conv")
    copy = x.clone()
    with model.eval_mode():
        scores = model(x)
        z, again, pull = model.vjp(x)
        g = pull(None, torch.ones(8, 3))
    assert torch.equal(x, copy)
    assert torch.equal(scores, again)
    assert z is not None
    assert bool((g != 0).any())
    with torch.no_grad():
        assert torch.allclose(scores, net(copy.clone()), atol=1e-6)


def test_the_pullback_by_autograd() -> None:
    model = ImageModel.of(parts(), (1, 6, 6), features="conv")
    x = noise(3, 1, 6, 6)
    v = noise(3, 3, seed=1)
    w = noise(3, 5, seed=2)
    with model.eval_mode():
        z, scores, pull = model.vjp(x)
        got = pull(w, v)
    rows = x.clone().requires_grad_()
    net: Any = model.module
    h = net.conv(rows)
    by_hand = (h.mean((2, 3)) * w).sum() + (net.head(h.relu().mean((2, 3))) * v).sum()
    assert torch.allclose(got, torch.autograd.grad(by_hand, rows)[0], atol=1e-6)
    assert z is not None
    assert not z.requires_grad
    assert not scores.requires_grad


def test_probabilities_become_scores() -> None:
    net = parts()
    soft = ImageModel.of(
        nn.Sequential(net, nn.Softmax(1)), (1, 6, 6), outputs="probabilities", features="0.conv"
    )
    plain = ImageModel.of(net, (1, 6, 6), features="conv")
    x = noise(4, 1, 6, 6)
    assert torch.allclose(soft.scores(x), plain.scores(x).log_softmax(1), atol=1e-5)
    assert (soft.predict(x) == plain.predict(x)).all()
    with pytest.raises(ModelError, match="look like probabilities; pass outputs='probabilities'"):
        ImageModel.of(nn.Sequential(net, nn.Softmax(1)), (1, 6, 6))
    with pytest.raises(ModelError, match=r"outside \[0, 1\]"):
        ImageModel.of(net, (1, 6, 6), outputs="probabilities")
    logs = ImageModel.of(nn.Sequential(net, nn.LogSoftmax(1)), (1, 6, 6))
    assert torch.allclose(logs.scores(x), soft.scores(x), atol=1e-5)


def test_what_is_no_model() -> None:
    wrong: list[tuple[Any, dict[str, Any], str]] = [
        (3, {}, "expected a torch module that classifies images, got int"),
        (SpectralResNet(), {}, r"got SpectralResNet; call .fit\(images, labels\) first"),
        (parts(), {"size": None}, "size must say channels, height and width of an image, got None"),
        (parts(), {"size": (6, 6)}, r"got \(6, 6\)"),
        (parts(), {"size": (1, 6.0, 6)}, "size must say"),
        (parts(), {"size": (1, 0, 6)}, "size must say"),
        (parts(), {"size": (3, 6, 6)}, "cannot take images of 3 x 6 x 6"),
        (parts(), {"features": "cov"}, "no layer 'cov'; did you mean 'conv'"),
        (parts(), {"features": ""}, "no layer ''"),
        (parts(), {"features": "unused"}, "does not use its layer 'unused'"),
        (parts("tokens"), {"features": "odd"}, r"layer 'odd' returns shape \(8, 5, 16\)"),
        (parts("tuple layer"), {"features": "odd"}, "layer 'odd' returns a tuple"),
        (parts("rows"), {"features": "odd"}, "layer 'odd' returns 40 rows for 8 images"),
        (parts("tuple"), {}, "the module returns a tuple"),
        (parts("one"), {}, r"maps 8 images to shape \(8, 1\)"),
        (parts("flat"), {}, r"to shape \(8,\)"),
        (parts("nan"), {}, "non-finite scores"),
        (
            parts(),
            {"outputs": "scores"},
            "outputs must be 'logits' or 'probabilities', got 'scores'",
        ),
        (
            parts(),
            {"classes": ["a", "b"]},
            r"3 classes, so it needs 3 different names, got \['a', 'b'\]",
        ),
        (parts(), {"classes": ["a", "b", "b"]}, "3 different names"),
    ]
    for module, settings, text in wrong:
        with pytest.raises(ModelError, match=text):
            ImageModel.of(module, **({"size": (1, 6, 6)} | settings))


def test_wrapping_twice_is_wrapping_once() -> None:
    model = cnn()
    assert ImageModel.of(model) is model
    x, y = digits()
    net = SpectralResNet(width=2, stages=1, depth=1, epochs=1).fit(x[:40], y[:40] % 2, threads=1)
    assert ImageModel.of(net) is net.model_


def test_names_of_classes() -> None:
    net = parts()
    x = noise(20, 1, 6, 6)
    best = ImageModel.of(net, (1, 6, 6)).predict(x)
    words = ImageModel.of(net, (1, 6, 6), classes=np.array(["a", "b", "c"]))
    assert words.classes == ("a", "b", "c")
    assert type(words.classes[0]) is str
    assert (words.predict(x) == np.array(["a", "b", "c"])[best]).all()
    assert words.place("b") == 1
    with pytest.raises(SettingError, match="no class 1; known: 'a', 'b', 'c'"):
        words.place(1)
    mixed = ImageModel.of(net, (1, 6, 6), classes=[7, "b", 1.5])
    assert set(map(type, mixed.predict(x).tolist())) <= {int, str, float}
    assert [mixed.place(c) for c in mixed.classes] == [0, 1, 2]
    with pytest.raises(SettingError, match="no class '7'"):
        mixed.place("7")


def test_accuracy_by_hand() -> None:
    model = linear(torch.tensor([[1.0, 0.0], [0.0, 1.0]]))
    x = torch.tensor([[0.9, 0.1], [0.2, 0.8], [0.6, 0.5], [0.1, 0.3]]).view(4, 1, 1, 2)
    assert model.predict(x).tolist() == [0, 1, 0, 1]
    assert model.accuracy(x, [0, 1, 1, 1]) == 0.75
    assert model.accuracy(x, torch.tensor([0, 1, 0, 1])) == 1.0
    for labels in ([0], [0, 1, 0], [[0, 1, 0, 1]]):
        with pytest.raises(SettingError, match="one label for each, got 4"):
            model.accuracy(x, labels)
    with pytest.raises(SettingError, match="got 0"):
        model.accuracy(x[:0], [])


def test_no_images() -> None:
    for model in (cnn(), spectral()):  # one of them cannot itself take an empty batch
        none = np.zeros((0, 8, 8))
        assert model.scores(none).shape == (0, 10)
        assert model.features(none).shape == (0, model.feature_count)
        assert model.predict(none).shape == (0,)


# ---- eval_mode, and given back


def test_the_module_is_given_back_as_it_was() -> None:
    net = parts()
    net.train()
    net.act.eval()
    for i, p in enumerate(net.parameters()):
        p.requires_grad_(i % 2 == 0)
    model = ImageModel.of(net, (1, 6, 6), features="conv")
    modes = [m.training for m in net.modules()]
    flags = [p.requires_grad for p in net.parameters()]

    def same() -> bool:
        hooks = [len(m._forward_hooks) for m in net.modules()]
        now = [m.training for m in net.modules()], [p.requires_grad for p in net.parameters()]
        return (
            now == (modes, flags)
            and not any(hooks)
            and all(p.grad is None for p in net.parameters())
        )

    assert same()
    x = noise(4, 1, 6, 6)
    model.scores(x)
    model.features(x)
    assert same()
    with model.eval_mode():
        assert not any(m.training for m in net.modules())
        assert not any(p.requires_grad for p in net.parameters())
        assert not torch.is_grad_enabled()
        model.scores(x)  # eval_mode within eval_mode
        model.both(x)
        _, _, pull = model.vjp(x)
        pull(None, torch.ones(4, 3))
    assert same()
    with pytest.raises(RuntimeError, match="on the way"), model.eval_mode():
        raise RuntimeError("on the way")
    assert same()
    with pytest.raises(SettingError):
        model.scores(noise(2, 1, 5, 5))
    assert same()
    pickle.loads(pickle.dumps(model)).scores(x)
    lipschitz(model, x)
    assert same()


def test_without_features_both_says_what_to_do() -> None:
    model = ImageModel.of(parts(), (1, 6, 6))
    with pytest.raises(ModelError, match="features=NAME"):
        model.features(noise(1, 1, 6, 6))


# ---- the same bits in any batch


def networks() -> dict[str, ImageModel]:
    with lent_generator(0):
        plain = folded(trainable(Shape(1, 8, 10, width=4, coefficient=None)).eval())
        colour = folded(trainable(Shape(3, 12, 10, width=4)).eval())
        mlp = nn.Sequential(nn.Flatten(), nn.Linear(64, 40), nn.ReLU(), nn.Linear(40, 10)).eval()
    return {
        "own": spectral(),
        "plain": ImageModel.of(plain),
        "colour": ImageModel.of(colour),
        "foreign": cnn(),
        "no convolutions": ImageModel.of(mlp, (1, 8, 8), features="1"),
    }


@pytest.mark.parametrize("count", [1, 2])
def test_an_image_has_the_same_bits_in_any_batch(count: int) -> None:
    for name, model in networks().items():
        x = noise(16, *model.size)
        v = noise(16, 10, seed=1)
        w = noise(16, model.feature_count, seed=2)
        with limited_threads(count), model.eval_mode():
            z, scores, pull = model.vjp(x)
            g = pull(w, v)
            assert z is not None
            for n in range(1, 10):
                one, two, back = model.vjp(x[:n])
                by = back(w[:n], v[:n])
                assert one is not None
                assert torch.equal(two, scores[:n]), (name, n)
                assert torch.equal(one, z[:n]), (name, n)
                assert torch.equal(by, g[:n]), (name, n)
                assert torch.equal(model(x[:n]), scores[:n]), (name, n)
            assert torch.equal(model(x[5:8]), scores[5:8]), name


def test_padding() -> None:
    x = noise(5, 1, 2, 2)
    for count in (1, 2):
        with limited_threads(count):
            assert torch.equal(padded(x)[:5], x)
            assert not padded(x)[5:].any()
            assert len(padded(x)) % max(4, 2 * count) == 0
            assert padded(x[:4]).data_ptr() == x.data_ptr()  # nothing to add, nothing copied


# ---- files


def test_there_and_back(tmp_path: Path) -> None:
    x, y = digits()
    trained = spectral()
    model = ImageModel.of(trained.module, classes=[f"c{i}" for i in range(10)])
    path = tmp_path / "net.safetensors"
    model.save(path)
    assert holds_images(path)
    assert not holds_images(tmp_path / "none")
    before = torch.get_rng_state()
    again = ImageModel.load(path)
    assert torch.equal(before, torch.get_rng_state())
    assert torch.equal(again.scores(x[:50]), model.scores(x[:50]))
    assert torch.equal(again.features(x[:50]), model.features(x[:50]))
    assert (again.classes, again.size, again.coefficient) == (
        model.classes,
        model.size,
        model.coefficient,
    )
    assert again.fingerprint() == model.fingerprint()
    assert again.density is None
    density = FeatureDensity(trained).fit(x[:600], y[:600])
    trained.save(path, density=density)
    with_density = ImageModel.load(path).density
    assert with_density is not None
    assert (with_density.log_density(x[:9]) == density.log_density(x[:9])).all()


def test_what_cannot_be_saved(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="not a CNN; save its state_dict yourself"):
        cnn().save(tmp_path / "net.safetensors")
    with lent_generator(0):
        net = trainable(Shape(1, 8, 3, width=2, stages=1))
    with pytest.raises(ModelError, match="still to be trained"):
        ImageModel.of(net).save(tmp_path / "net.safetensors")
    with pytest.raises(FileError, match="cannot write"):
        spectral().save(tmp_path / "no" / "net.safetensors")
    assert list(tmp_path.iterdir()) == []


def test_damaged_files(tmp_path: Path) -> None:
    path = tmp_path / "net.safetensors"
    with lent_generator(0):
        net = folded(trainable(Shape(1, 8, 3, width=2, stages=2, depth=1)).eval())
    ImageModel.of(net).save(path)
    tensors = load_file(path)
    good = {"shape": net.shape.to_dict(), "classes": [0, 1, 2]}

    def refused(text: str, change: dict[str, Any] | None = None, **other: Tensor) -> None:
        content = good | (change or {})
        save_file(tensors | other, path, metadata={MARK: json.dumps(content)})
        with pytest.raises(FileError, match=text) as caught:
            ImageModel.load(path)
        assert str(path) in str(caught.value)

    with pytest.raises(FileError, match="no model file at"):
        ImageModel.load(tmp_path / "none")
    refused("damaged", {"shape": good["shape"] | {"width": 3}})
    refused("damaged.*width", {"shape": good["shape"] | {"width": 0}})
    refused("damaged", {"shape": good["shape"] | {"color": 1}})
    refused("damaged", {"shape": 3})
    refused("damaged.*3 different names", {"classes": [0, 1]})
    refused("damaged", {"classes": [[0], [1], [2]]})
    refused("damaged.*non-finite", **{"net.head.bias": torch.full((3,), torch.nan)})
    refused("damaged", **{"net.head.bias": torch.zeros(4)})
    refused("damaged", **{"net.more": torch.zeros(4)})
    refused("damaged", **{"net.head.weight": torch.zeros(3, 4, dtype=torch.float64)})
    refused("damaged.*density", **{"density.mean": torch.zeros(3, 4)})
    save_file(tensors, path, metadata={MARK: "{"})
    with pytest.raises(FileError, match="damaged"):
        ImageModel.load(path)
    save_file(tensors, path)
    with pytest.raises(FileError, match="holds no image model"):
        ImageModel.load(path)
    path.write_bytes(b"\x00" * 100)
    with pytest.raises(FileError, match="not a readable safetensors file"):
        ImageModel.load(path)


def test_fingerprints_tell_models_apart() -> None:
    net = parts()
    of = ImageModel.of
    prints = [
        of(net, (1, 6, 6)).fingerprint(),
        of(net, (1, 7, 6)).fingerprint(),
        of(net, (1, 6, 6), features="conv").fingerprint(),
        of(net, (1, 6, 6), classes=["a", "b", "c"]).fingerprint(),
        of(parts(seed=1), (1, 6, 6)).fingerprint(),
    ]
    with lent_generator(0):
        layers = [nn.Flatten(), nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2)]
    prints.append(of(nn.Sequential(*layers), (1, 2, 2)).fingerprint())
    layers[2] = nn.Tanh()  # the same tensors, another function
    prints.append(of(nn.Sequential(*layers), (1, 2, 2)).fingerprint())
    assert len(set(prints)) == len(prints)
    assert of(parts(), (1, 6, 6)).fingerprint() == prints[0]
    assert all(len(p) == 16 for p in prints)


# ---- norms of the derivative


def test_lipschitz_of_a_linear_map_is_its_spectral_norm() -> None:
    weight = torch.randn(5, 12, generator=torch.Generator().manual_seed(0))
    net = nn.Sequential(nn.Flatten(), nn.Linear(12, 5), nn.Linear(5, 2))
    with torch.no_grad():
        net[1].weight.copy_(weight)
    model = ImageModel.of(net, (1, 3, 4), features="1")
    norms = lipschitz(model, noise(9, 1, 3, 4), steps=100)
    exact = float(torch.linalg.matrix_norm(weight, 2))
    assert norms.largest == pytest.approx(exact, rel=1e-4)
    assert norms.median == pytest.approx(exact, rel=1e-4)
    assert norms.images == 9
    assert lipschitz(model, noise(9, 1, 3, 4), most=3).images == 3
    assert lipschitz(model, list(noise(2, 1, 3, 4).numpy())).images == 2
    with pytest.raises(SettingError, match="there are none"):
        lipschitz(model, noise(0, 1, 3, 4))


@pytest.mark.parametrize("name", ["own", "foreign"])
def test_lipschitz_of_a_network_by_its_jacobian(name: str) -> None:
    model = {"own": spectral, "foreign": cnn}[name]()
    x, _ = digits()
    norms = lipschitz(model, x[:3], steps=100)
    with torch.inference_mode():
        again = lipschitz(model, x[:4].clone())  # a full batch, which nothing is added to
    assert again.images == 4
    with model.eval_mode(), torch.enable_grad():
        exact = [
            float(
                torch.linalg.matrix_norm(
                    torch.autograd.functional.jacobian(features(model), image).flatten(1), 2
                )
            )
            for image in x[:3]
        ]
    assert norms.largest == pytest.approx(max(exact), rel=1e-2)
    assert norms.median == pytest.approx(sorted(exact)[1], rel=1e-2)


def features(model: ImageModel) -> Any:
    return lambda image: model.both(image[None])[0][0]


def test_a_class_that_no_file_can_hold(tmp_path: Path) -> None:
    model = ImageModel.of(spectral().module, classes=[(i,) for i in range(9)] + [frozenset()])
    with pytest.raises(FileError, match="cannot write"):
        model.save(tmp_path / "net.safetensors")


def test_the_network_of_the_tests_is_what_others_write() -> None:
    with lent_generator(0), pytest.raises(RuntimeError):
        CNN()(torch.zeros(0, 1, 8, 8))
