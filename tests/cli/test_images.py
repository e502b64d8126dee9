"""Images on the command line: a network from an .npz file, answers from it, and one sentence about
what is wrong."""

import json
import re
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from torch import nn

import holdfast as hf
from holdfast.cli import images as cli_images
from holdfast.cli import output
from holdfast.cli.main import main
from holdfast.cli.options import BAD_INPUT, UNANSWERED
from holdfast.cli.train.images import train_on
from holdfast.datasets import held_out, read_table, write_table
from holdfast.images.classifier import NETWORKS, network_by_name
from holdfast.images.deduce import DeDUCE
from holdfast.images.io import load_images, read_images, write_images
from holdfast.images.model import ImageModel, holds_images
from holdfast.images.result import ImageCounterfactuals
from holdfast.models.density import FeatureDensity
from holdfast.registry import (
    IMAGE_METHODS,
    METHODS,
    build_image_method,
    describe,
    list_image_methods,
)
from support.header_reads import header_reads
from support.images import COLUMNS
from support.pages import pixels_of
from support.tables import seeded
from support.terminal import Ran, Stream, refused, run, set_to

TINY = set_to(width=8, stages=2, depth=1, batch_size=16)
TRAIN = ("train", "images", "train.npz")
N = 5  # images to ask about


def digits(most: int = 3) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Digits below `most`, in the order they come."""
    data: Any = load_digits()
    few = data.target < most
    return (data.images[few] / 16).astype(np.float32), data.target[few]


@dataclass(frozen=True)
class Place:
    """A directory with digits, a network that was trained on them by the command, and what it
    said."""

    at: Path
    trained: Ran

    @property
    def model(self) -> ImageModel:
        return ImageModel.load(self.at / "net.safetensors")


@pytest.fixture(scope="session")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    at = tmp_path_factory.mktemp("images")
    x, y = digits()
    write_images(at / "train.npz", x[:300], y[:300])
    write_images(at / "asked.npz", x[300 : 300 + N], y[300 : 300 + N])
    write_images(at / "bare.npz", x[300 : 300 + N])
    words = ("train", "images", at / "train.npz", "--epochs", "4", *TINY)
    return Place(at, run(*words, "--out", at / "net.safetensors"))


@pytest.fixture(autouse=True)
def _inside(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place.at)


def explain(
    *more: object, images: object = "asked.npz", model: object = "net.safetensors", **how: Any
) -> Ran:
    wanted = () if {"--target", "--any-other"} & set(more) else ("--target", "all")
    return run("explain", images, "--model", model, *wanted, *more, **how)


# ---- train


def test_a_network_from_a_file(place: Place) -> None:
    assert place.trained.code == 0, place.trained.err
    report = json.loads(place.trained.out)  # a pipe gets JSON and nothing else
    assert list(report) == [
        "kind",
        "network",
        "model",
        "images",
        "test_images",
        "classes",
        "seconds",
        "densities",
        "accuracy",
    ]
    assert (report["kind"], report["network"], report["images"], report["test_images"]) == (
        "images",
        "spectral",
        225,
        75,
    )
    assert (report["classes"], report["densities"]) == (3, True)
    assert report["accuracy"] > 0.9
    model = place.model
    assert model.size == (1, 8, 8)
    assert model.classes == (0, 1, 2)
    assert model.coefficient == 4
    x, y = digits()
    assert model.accuracy(x, y) > 0.9
    (said,) = place.trained.err.splitlines()
    assert said.startswith("next: holdfast explain images.npz --model ")


def test_what_is_typed_next_works(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (said,) = place.trained.err.splitlines()
    monkeypatch.chdir(tmp_path)
    x, y = digits()
    write_images("images.npz", x[:2], y[:2])
    ran = run(*shlex.split(said.removeprefix("next: holdfast ")))
    assert (ran.code, ran.out) == (0, ""), ran.err
    assert {p.name for p in tmp_path.iterdir()} == {
        "images.npz",
        "answers.parquet",
        "answers.html",
        "answers.png",
    }


def test_the_file_has_the_densities_of_the_images_it_learnt_from(
    place: Place, tmp_path: Path
) -> None:
    model = place.model
    assert model.density is not None
    data = read_images("train.npz")
    assert data.labels is not None
    learn, _ = held_out(300, 0.25, 0)
    fresh = FeatureDensity(model).fit(data.images[learn], data.labels[learn])
    kept = model.density
    for name in ("mean", "whiten", "constant"):
        assert torch.equal(getattr(kept.gaussians_, name), getattr(fresh.gaussians_, name))
    assert (kept.gaussians_.jitter, kept.limit_, kept.strange_below) == (
        fresh.gaussians_.jitter,
        fresh.limit_,
        0.01,
    )
    asked = read_images("asked.npz").images
    pd.testing.assert_series_equal(kept.log_density(asked), fresh.log_density(asked))
    # Saved again, the file is the same; without densities it has none.
    model.save(tmp_path / "again.safetensors")
    again = ImageModel.load(tmp_path / "again.safetensors")
    assert again.density is not None
    assert torch.equal(again.density.gaussians_.whiten, kept.gaussians_.whiten)
    assert again.fingerprint() == model.fingerprint()
    model.density = None
    model.save(tmp_path / "bare.safetensors")
    assert ImageModel.load(tmp_path / "bare.safetensors").density is None
    with pytest.raises(hf.HoldfastError, match="needs images and their labels"):
        DeDUCE().fit(model)


def test_densities_that_do_not_fit_are_refused(place: Place) -> None:
    model = place.model
    assert model.density is not None
    good = model.density.tensors()
    cut = {"mean": good["mean"][:2], "whiten": good["whiten"][:2], "constant": good["constant"][:2]}
    for bad, told in (
        (good | {"mean": good["mean"][:2]}, "do not fit each other"),
        (good | {"numbers": good["numbers"][:2]}, "do not fit each other"),
        (good | {"constant": good["constant"] * float("nan")}, "do not fit each other"),
        (good | cut, "2 classes and 16 features, the model 3 and 16"),
        ({"mean": good["mean"]}, "not the tensors of a density: 'mean'"),
    ):
        with pytest.raises(hf.HoldfastError, match=told):
            FeatureDensity.from_tensors(model, bad)


def test_a_plain_network_on_a_terminal(tmp_path: Path) -> None:
    words = (*TRAIN, "--kind", "plain", "--epochs", "1", *TINY, "--test", "0")
    ran = run(*words, "--out", tmp_path / "p.safetensors", terminal=True)
    assert ran.code == 0, ran.err
    assert re.fullmatch(
        r"plain network trained on 300 images of 3 classes in [\d.]+ s: .*p\.safetensors\n", ran.out
    ), ran.out
    assert ImageModel.load(tmp_path / "p.safetensors").coefficient is None


def test_the_same_command_gives_the_same_network(place: Place, tmp_path: Path) -> None:
    words = (*TRAIN, *set_to(epochs=4), *TINY, "--quiet")
    ran = run(*words, "--out", tmp_path / "n.safetensors")
    assert (ran.code, ran.err) == (0, "")
    assert ImageModel.load(tmp_path / "n.safetensors").fingerprint() == place.model.fingerprint()


def test_lines_per_epoch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = (*TRAIN, "--epochs", "2", *TINY, "--out", tmp_path / "n.safetensors")
    ran = run(*words, "--progress")
    lines = ran.err.splitlines()
    assert [line.partition(":")[0] for line in lines] == ["epoch 1", "epoch 2", "next"]
    assert re.fullmatch(r"epoch 2: loss [\d.]+, accuracy [\d.]+, held out [\d.]+", lines[1])
    json.loads(ran.out)
    assert run(*words, "--progress", "--quiet").err == ""
    # A terminal sees them without being asked.
    err = Stream(True)
    monkeypatch.setattr(sys, "stderr", err)
    assert main([str(word) for word in words]) == 0
    assert "epoch 2: loss" in err.text()


def test_labels_of_words_and_colour(tmp_path: Path) -> None:
    x, y = digits(2)
    names = np.array(["zero", "one"])[y]
    write_images(tmp_path / "c.npz", (255 * x[:80, None].repeat(3, 1)).astype(np.uint8), names[:80])
    ran = run(
        "train",
        "images",
        tmp_path / "c.npz",
        "--epochs",
        "2",
        *TINY,
        "--out",
        tmp_path / "c.safetensors",
    )
    assert ran.code == 0, ran.err
    model = ImageModel.load(tmp_path / "c.safetensors")
    assert model.size == (3, 8, 8)
    assert model.classes == ("one", "zero")
    ran = explain(
        "--first",
        2,
        "--target",
        "zero",
        images=tmp_path / "c.npz",
        model=tmp_path / "c.safetensors",
    )
    assert ran.code == 0, ran.err
    assert {line["target"] for line in json.loads(ran.out)} == {"zero"}


def test_a_class_with_one_image_gets_no_density_but_a_network(tmp_path: Path) -> None:
    x, y = digits(2)
    at = np.concatenate([np.flatnonzero(y == 0)[:40], np.flatnonzero(y == 1)[:1]])
    write_images(tmp_path / "one.npz", x[at], y[at])
    with pytest.warns(UserWarning, match="without densities of features, which DeDUCE needs"):
        train_on(
            network_by_name("spectral", ["epochs=1", "width=4", "stages=2"]),
            tmp_path / "one.npz",
            tmp_path / "one.safetensors",
            test=0,
            seed=0,
            shown=False,
        )
    told = explain("--target", "1", images=tmp_path / "one.npz", model=tmp_path / "one.safetensors")
    refused(told, "method 'deduce' uses data; give it training images with --data FILE.npz")


@pytest.mark.data
def test_datasets_go_by_name(data_dir: Path) -> None:
    assert load_images(Path("mnist"), "train").images.shape == (60000, 1, 28, 28)
    assert len(load_images(Path("fashion_mnist"), "train")) == 10000  # it has no such part
    refused(explain(images="mnist"), "expected images of 1 x 8 x 8, got 1 x 28 x 28")


# ---- explain


@pytest.fixture(scope="session")
def answers(place: Place) -> ImageCounterfactuals:
    data = read_images(place.at / "asked.npz")
    model = place.model
    return DeDUCE().fit(model).explain(model, data.images, "all", labels=data.labels)


def test_answers_are_those_of_the_library_in_every_format(
    answers: ImageCounterfactuals, tmp_path: Path
) -> None:
    assert len(answers) == 2 * N
    assert answers.found.any()
    out = tmp_path / "a.parquet"
    ran = explain(
        "--method",
        "deduce",
        "--out",
        out,
        "--report",
        tmp_path / "a.html",
        "--grid",
        tmp_path / "a.png",
    )
    assert (ran.code, ran.out) == (0, "")
    assert ran.err.startswith(f"{2 * N} pairs of {N} images and a class: ")
    again = ImageCounterfactuals.load(out)
    assert torch.equal(again.x_cf, answers.x_cf)
    pd.testing.assert_frame_equal(again.table(), answers.table())
    assert (again.run.settings, again.run.model) == (answers.run.settings, answers.run.model)
    assert (tmp_path / "a.png").read_bytes() == answers.grid().png()
    assert "Counterfactual images" in (tmp_path / "a.html").read_text(encoding="utf-8")
    for name in ("a.csv", "a.json"):
        assert explain("--out", tmp_path / name).code == 0
        table = read_table(tmp_path / name)
        assert table["target"].tolist() == answers.target.tolist()
        assert table["probability"].tolist() == answers.probability.tolist()
    assert explain("--out", tmp_path / "a.npz").code == 0
    with np.load(tmp_path / "a.npz") as arrays:
        assert np.array_equal(arrays["counterfactuals"], answers.x_cf.numpy())


def test_a_pipe_gets_json_and_nothing_else(answers: ImageCounterfactuals) -> None:
    ran = explain("--quiet")
    assert (ran.code, ran.err) == (0, "")
    lines = json.loads(ran.out)
    assert lines == json.loads(json.dumps(hf.datasets.records(answers.table())))
    assert lines[0].keys() == set(COLUMNS)


def test_a_terminal_gets_a_table(
    answers: ImageCounterfactuals, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setattr(output, "MOST_ROWS", 3)
    ran = explain(terminal=True)
    assert f"{answers.label[0]} → {answers.target[0]}" in ran.out
    assert f"The first 3 of {2 * N} pairs." in ran.out


def test_one_class_for_all_and_any_other() -> None:
    lines = json.loads(explain("--target", "2", "--quiet").out)
    assert [line["row"] for line in lines] == list(range(N))
    assert {line["target"] for line in lines} == {2}
    other = json.loads(explain("--any-other", "--quiet").out)
    assert len(other) == N
    assert all(line["target"] != line["label"] for line in other)


def test_without_labels_the_model_says_what_an_image_is() -> None:
    lines = json.loads(explain("--quiet", images="bare.npz").out)
    said = ImageModel.load("net.safetensors").predict(read_images("bare.npz").images)
    assert [line["label"] for line in lines] == np.repeat(said, 2).tolist()


def test_locked_pixels_stay(answers: ImageCounterfactuals, tmp_path: Path) -> None:
    locked = np.zeros((8, 8), dtype=bool)
    locked[:, :4] = True
    np.save(tmp_path / "mask.npy", locked)
    assert not torch.equal(answers.x_cf[..., :4], answers.x[..., :4])
    assert explain("--locked", tmp_path / "mask.npy", "--out", tmp_path / "l.parquet").code == 0
    cfs = ImageCounterfactuals.load(tmp_path / "l.parquet")
    assert torch.equal(cfs.x_cf[..., :4], cfs.x[..., :4])
    assert not torch.equal(cfs.x_cf, cfs.x)


def test_options_reach_the_library(tmp_path: Path) -> None:
    words = (
        "--method",
        "deduce",
        *set_to(mu=2, momentum_applies_to="choice"),
        "--probability",
        "0.7",
    )
    words += (
        "--seed",
        "5",
        "--batch-size",
        "3",
        "--time-budget",
        "60",
        "--first",
        "2",
        "--out",
        tmp_path / "a.parquet",
    )
    ran = explain(*words)
    assert ran.code == 0, ran.err
    cfs = ImageCounterfactuals.load(tmp_path / "a.parquet")
    assert cfs.run.settings == "DeDUCE(momentum_applies_to='choice', mu=2.0)"
    assert (cfs.run.seed, cfs.run.target, len(cfs)) == (5, "all with probability 0.7", 4)
    assert (cfs.probability[cfs.found] > 0.7).all()


def test_strict_tells_of_pairs_without_an_answer(tmp_path: Path) -> None:
    words = (*set_to(max_iter=1, delta=0.01), "--out", tmp_path / "a.json")
    assert explain(*words).code == 0
    assert explain(*words, "--strict").code == UNANSWERED
    lines = json.loads((tmp_path / "a.json").read_text(encoding="utf-8"))
    lost = [line for line in lines if line["status"] == "not found"]
    assert lost
    assert {line["pixels"] for line in lost} == {None}


def test_other_methods(tmp_path: Path) -> None:
    ran = explain("--method", "jsma", "--quiet", "--first", "2")
    assert (ran.code, ran.err) == (0, "")
    assert any(line["status"] == "found" for line in json.loads(ran.out))
    with pytest.warns(UserWarning, match="method 'jsma' does not use data"):
        cli_images.fit_on(
            Path("train.npz"),
            list_image_methods()["jsma"](),
            "jsma",
            ImageModel.load("net.safetensors"),
        )
    # DeDUCE looks at other data if they are given, not at the densities in the file.
    x, y = digits()
    write_images(tmp_path / "other.npz", x[:60], y[:60])
    for name, more in (("kept", ()), ("own", ("--data", tmp_path / "other.npz"))):
        ran = explain(*more, "--out", tmp_path / f"{name}.parquet")
        assert ran.code == 0, ran.err
    kept = ImageCounterfactuals.load(tmp_path / "kept.parquet")
    own = ImageCounterfactuals.load(tmp_path / "own.parquet")
    assert not torch.equal(kept.x_cf, own.x_cf)


def test_settings_of_what_a_method_trains() -> None:
    prototype: Any = build_image_method(
        "prototype", ["autoencoder__epochs=2", "autoencoder__lr=0.01", "steps=5"]
    )
    assert (prototype.autoencoder.epochs, prototype.autoencoder.lr, prototype.steps) == (2, 0.01, 5)
    revise: Any = build_image_method("revise", ["vae__latent=4"])
    assert revise.vae.latent == 4
    with pytest.raises(
        hf.HoldfastError,
        match="prototype autoencoder has no setting 'epoch'; did you mean 'epochs'",
    ):
        build_image_method("prototype", ["autoencoder__epoch=2"])
    with pytest.raises(hf.HoldfastError, match="prototype has no setting 'steps__x'"):
        build_image_method("prototype", ["steps__x=2"])


def test_methods_that_train_an_autoencoder_need_data() -> None:
    refused(
        explain("--method", "prototype"),
        "method 'prototype' uses data; give it training images with --data FILE.npz",
    )
    words = ("--data", "train.npz", "--first", "1", "--quiet")
    for method, few in (
        ("prototype", ("autoencoder__epochs=1", "steps=5")),
        ("revise", ("vae__epochs=1", "max_iter=5")),
    ):
        ran = explain("--method", method, *words, *(word for s in few for word in ("--set", s)))
        assert (ran.code, ran.err) == (0, ""), ran.err
        assert len(json.loads(ran.out)) == 2


def test_no_images_are_no_answers(tmp_path: Path) -> None:
    write_images(tmp_path / "none.npz", np.zeros((0, 8, 8), np.float32), np.zeros(0, np.int64))
    ran = explain(
        "--quiet",
        "--report",
        tmp_path / "r.html",
        "--grid",
        tmp_path / "g.png",
        images=tmp_path / "none.npz",
    )
    assert (ran.code, ran.out.strip()) == (0, "[]"), ran.err
    assert not (tmp_path / "g.png").exists()


# ---- what is wrong


def test_bad_files_are_one_sentence(tmp_path: Path) -> None:
    x, y = digits()
    np.savez(tmp_path / "named.npz", image=x[:2])
    np.savez(tmp_path / "flat.npz", images=x[:2].reshape(2, 64))
    np.savez(tmp_path / "beyond.npz", images=x[:2] * 16)
    np.savez(tmp_path / "strange.npz", images=x[:2], labels=[0, 9])
    np.savez(tmp_path / "short.npz", images=x[:2], labels=[0])
    np.savez(tmp_path / "objects.npz", images=np.array([None], dtype=object))
    np.savez(tmp_path / "larger.npz", images=np.zeros((2, 9, 9)))
    (tmp_path / "text.npz").write_text("hello")
    for name, told in {
        "named.npz": "has no array 'images'",
        "flat.npz": "expected images of shape",
        "beyond.npz": "between 0 and 1, got 0 to 16",
        "strange.npz": "the model has no class 9",
        "short.npz": "needs 2 labels",
        "objects.npz": "holds Python objects",
        "larger.npz": "expected images of 1 x 8 x 8, got 1 x 9 x 9",
        "text.npz": "cannot read",
        "none.npz": "no file at",
        "people.csv": "expected an .npz file",
        "mnits": "did you mean 'mnist'?",
        "german_credit": "there are no images 'german_credit'",
    }.items():
        images = tmp_path / name if "." in name else name
        refused(explain(images=images), told)
    for name in (
        "named.npz",
        "flat.npz",
        "beyond.npz",
        "short.npz",
        "objects.npz",
        "text.npz",
        "none.npz",
        "people.csv",
    ):
        refused(run("train", "images", tmp_path / name, "--out", tmp_path / "n.safetensors"), "")
    refused(run("train", "images", "bare.npz"), "'bare.npz' has no array 'labels'")
    write_images(tmp_path / "same.npz", x[y == 0][:9], y[y == 0][:9])
    refused(
        run("train", "images", tmp_path / "same.npz", "--out", tmp_path / "n.safetensors"),
        "at least 2 classes",
    )
    write_images(tmp_path / "lone.npz", x[:1], y[:1])
    refused(
        run("train", "images", tmp_path / "lone.npz", "--out", tmp_path / "n.safetensors"),
        "at least two images",
    )


def test_bad_options_are_one_sentence(tmp_path: Path) -> None:
    refused(
        run("explain", "asked.npz", "--model", "net.safetensors"),
        "--target 0",
        "--target all",
        "--any-other",
    )
    for options, sentence in {
        "--target 7": "the model has no class '7'",
        "--target 0 --any-other": "contradict each other",
        "--method dedoce": "unknown method 'dedoce'; did you mean 'deduce'?",
        "--method min-cost": "method 'min-cost' is for tables",
        "--set mew=1": "deduce has no setting 'mew'",
        "--set mu=much": "mu=much: expected a number",
        "--set mu=-1": "mu must be at least 0",
        "--schema s.toml": "--schema is for models of tables",
        "--trust-model-code": "--trust-model-code is for models of tables",
        "--first 0": "--first must be at least 1",
        "--batch-size 0": "batch_size must be at least 1",
        "--probability 2": "probability must lie between 0 and 1",
        "--out a.txt": "must end in one of '.parquet', '.npz', '.csv', '.json'",
        "--report a.png": "a report's name must end in",
        "--grid a.html": "a picture's name must end in one of '.png', '.svg'",
        "--grid no/a.png": "there is no directory 'no'",
        "--out no/a.parquet": "there is no directory 'no'",
        "--locked asked.npz": "expected an .npy file",
    }.items():
        refused(explain(*options.split()), sentence)
    np.save(tmp_path / "wide.npy", np.zeros((9, 9), dtype=bool))
    refused(explain("--locked", tmp_path / "wide.npy"), "locked has shape (9, 9)")
    good = (*TRAIN, "--out", tmp_path / "n.safetensors")
    for options, sentence in {
        "--kind spectal": "unknown --kind 'spectal'; did you mean 'spectral'?",
        "--set widht=3": "no setting 'widht'; did you mean 'width'?",
        "--kind plain --set coefficient=3": "a plain network has no setting 'coefficient'",
        "--set seed=3": "no setting 'seed'",
        "--set epochs=0": "epochs must be an integer",
        "--epochs 3 --set epochs=4": "epochs is given twice",
    }.items():
        refused(run(*good, *options.split()), sentence)
    refused(run(*good, "--test", "1"), "--test must be at least 0 and below 1")
    refused(run(*TRAIN, "--out", "n.pt"), "must end in .safetensors")
    # what is about tables is not there
    for options in ("--target x", "--hidden 3", "--tau 0.5", "--recipe r.toml"):
        ran = run(*good, *options.split())
        assert ran.code == BAD_INPUT
        assert f"No such option: {options.split()[0]}" in ran.err


@pytest.fixture(scope="session")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of tables and its table."""
    at = tmp_path_factory.mktemp("tables")
    table = pd.DataFrame({"age": range(20, 40), "income": np.linspace(500, 5000, 20)})
    schema = hf.Schema.infer(table)
    hf.Model.of(seeded(nn.Sequential(nn.Linear(2, 2))), schema, classes=["no", "yes"]).save(
        at / "m.safetensors"
    )
    write_table(table, at / "people.csv")
    return at


def test_the_header_of_the_models_file_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    reads = header_reads(monkeypatch)
    assert explain("--first", 1, "--set", "max_iter=2").code == 0
    assert reads == [Path("net.safetensors")]


def test_tables_and_images_are_told_apart(tables: Path) -> None:
    assert holds_images("net.safetensors")
    assert not holds_images(tables / "m.safetensors")
    assert not holds_images("none.safetensors")
    mixed = ("explain", "asked.npz", "--model", tables / "m.safetensors", "--target", "yes")
    refused(run(*mixed), "'asked.npz' holds images, but", "holds no model of images")
    refused(explain(images=tables / "people.csv"), "expected an .npz file with an array 'images'")
    good = (
        "explain",
        tables / "people.csv",
        "--model",
        tables / "m.safetensors",
        "--target",
        "yes",
    )
    refused(run(*good, "--grid", "g.png"), "--grid is for models of images")
    refused(run(*good, "--locked", "m.npy"), "--locked is for models of images")
    refused(run(*good, "--first", "3"), "--first is for models of images")
    refused(run(*good, "--method", "deduce"), "method 'deduce' is for images")
    refused(
        run("explain", "asked.npz", "--model", "none.safetensors", "--target", "1"),
        "no model file at",
    )
    with pytest.raises(hf.HoldfastError, match="holds no image model"):
        ImageModel.load(tables / "m.safetensors")
    refused(run("audit", "net.safetensors", "--bank", "b.safetensors"), "cannot read")


def test_damaged_model_files(tmp_path: Path) -> None:
    from safetensors import safe_open
    from safetensors.torch import save_file

    with safe_open("net.safetensors", framework="pt") as file:
        metadata = file.metadata()
        names = list(file.keys())
        tensors = {name: file.get_tensor(name) for name in names}
    (tmp_path / "cut.safetensors").write_bytes(Path("net.safetensors").read_bytes()[:-100])
    refused(explain(model=tmp_path / "cut.safetensors", images="asked.npz"), "")
    for name, change in {
        "net": {k: v for k, v in tensors.items() if k != "net.head.weight"},
        "density": tensors | {"density.mean": tensors["density.mean"][:2].clone()},
        "more": tensors | {"density.other": torch.zeros(1)},
    }.items():
        save_file(change, tmp_path / f"{name}.safetensors", metadata)
        refused(explain(model=tmp_path / f"{name}.safetensors"), "is damaged")
    save_file(tensors, tmp_path / "text.safetensors", metadata | {"holdfast-image": "{"})
    refused(explain(model=tmp_path / "text.safetensors"), "is damaged")


# ---- methods and documents


def test_methods_lists_those_for_images_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    about = json.loads(run("methods", "--json").out)
    assert [(m["name"], m["for"]) for m in about] == [
        *((name, "tables") for name in METHODS),
        *((name, "images") for name in IMAGE_METHODS),
    ]
    shown = run("methods").out
    for name, cls in list_image_methods().items():
        (told,) = (m for m in about if (m["name"], m["for"]) == (name, "images"))
        assert told["class"] == cls.__name__
        assert told["needs_data"] == cls.needs_data
        assert told["settings"].keys() == cls().get_params(deep=False).keys()
        assert cls.title
        assert cls.paper
        assert cls.__doc__
        assert name in shown
    assert "images" in shown


@pytest.mark.parametrize("name", IMAGE_METHODS)
def test_every_default_can_be_written_as_a_setting(name: str) -> None:
    kind = list_image_methods()[name]
    defaults = describe(name, kind, "images")["settings"]
    written = build_image_method(name, [f"{key}={value}" for key, value in defaults.items()])
    assert written.get_params() == kind().get_params()


def test_documents_name_the_methods_and_networks() -> None:
    text = (Path(__file__).parents[2] / "docs/guide/command-line.md").read_text(encoding="utf-8")
    for name in (*IMAGE_METHODS, *NETWORKS):
        assert f"`{name}`" in text


# ---- demo


def test_the_demo_of_images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    ran = run("demo", "--images", "--out", "my demo")
    assert (ran.code, ran.err) == (0, "")
    left = {path.name for path in Path("my demo").iterdir()}
    assert left == {
        "grid.png",
        "report.html",
        "answers.parquet",
        "model.safetensors",
        "digits.npz",
        "training.npz",
    }
    cfs = ImageCounterfactuals.load("my demo/answers.parquet")
    assert len(cfs) == 90
    assert cfs.found.mean() > 0.95
    right = re.search(r"right about ([\d.]+)% of 397 digits", ran.out)
    assert right is not None
    assert float(right[1]) > 97
    assert f"{int(cfs.found.sum())} of 90 pairs" in ran.out
    assert pixels_of(Path("my demo/grid.png").read_bytes()).shape[2] == 3
    # The command it prints gives the same answers.
    again = run(*shlex.split(ran.out.rstrip("\n").splitlines()[-1])[1:])
    assert again.code == 0, again.err
    assert torch.equal(ImageCounterfactuals.load("answers.parquet").x_cf, cfs.x_cf)


def test_the_demo_refuses_methods_for_tables() -> None:
    refused(run("demo", "--images", "--method", "min-cost"), "method 'min-cost' is for tables")
