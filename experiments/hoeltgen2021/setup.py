"""Höltgen et al. 2021: settings, images, networks, and what each cell searches or scores.

All settings are in `SETTINGS`. A network is a cell that holds the file its `save` writes; every
other cell gets the files it needs, so cells can be made in separate processes.
"""

import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

import holdfast as hf
from experiments.hoeltgen2021.anogan import AnoGAN, anogan_score
from experiments.hoeltgen2021.checks import again
from experiments.hoeltgen2021.reported import METHODS, PAIRS_3, STEP_LIMITS, TABLE_5
from experiments.hoeltgen2021.wgan import WGAN
from experiments.parts import Arrays
from holdfast import datasets as data
from holdfast._core.checks import untyped
from holdfast.images.model import as_images
from holdfast.images.realism import LOWER_IS_BETTER, realism

Array = NDArray[Any]
Options = dict[str, Any]
SETS = 5  # test sets
CLASSIFIERS = ("spectral", "plain")
NETWORKS = (*CLASSIFIERS, "autoencoder", "vae", "gan")
DENSITY = ("mean", "whiten", "constant", "numbers")  # arrays of a `FeatureDensity`
NEEDS = {"VLK": ("autoencoder",), "REVISE": ("vae",)}  # besides a classifier
# methods asked about all pairs, and on which networks
GREEDY = {"DeDUCE": ("spectral",), "JSMA": CLASSIFIERS}
SLOW = ("VLK", "REVISE")  # methods asked about some pairs, on both networks
RUNS = (
    *((m, k) for m in SLOW for k in CLASSIFIERS),
    *((m, k) for m, kinds in GREEDY.items() for k in kinds),
)
# Which network each method explains: all the same one, or as in the paper.
KINDS: dict[str, dict[str, str]] = {
    "same": dict.fromkeys(METHODS, "spectral"),
    "mixed": dict.fromkeys(METHODS, "plain") | {"DeDUCE": "spectral"},
}


@dataclass(frozen=True)
class Setting:
    """A set of images, and what is spent on it. Options belong to the class they are named
    after."""

    title: str
    train: int  # images to learn from, the first ones; those after them validate
    images: int  # of a test set
    spectral: Options
    plain: Options
    autoencoder: Options
    vae: Options
    gan: Options
    vlk: Options
    revise: Options
    anogan: Options
    ablation: int  # validation images of Table 4
    tuning: int  # validation images of Table 5
    limits: tuple[int, ...]  # iterations for each step of Table 5
    judged: int  # images of each kind whose AnoGAN scores are compared
    compared: int  # the same for scores that are cheap
    # images of each test set that all methods are asked about
    common: tuple[int, ...] = (1, 3, 4, 6, 7, 8)
    shown: tuple[tuple[int, int], ...] = ()  # test images and wanted classes of Table 3
    again: int = 12  # pairs of each method that are searched again, in other company
    alone: int = 3  # the same for slow methods


SETTINGS = {
    "mnist": Setting(
        "MNIST",
        train=50_000,
        images=100,
        ablation=50,
        tuning=3,
        limits=(1000, 2000, 4000),
        judged=60,
        compared=2000,
        spectral={"width": 16, "coefficient": 4.0, "epochs": 10},
        plain={"width": 16, "epochs": 10},
        autoencoder={"epochs": 4},
        vae={"epochs": 12},
        gan={"updates": 1600},
        vlk={"steps": 1000, "bisections": 2},
        revise={"lam": 0.1, "optimizer": "adam", "step": 0.05, "max_iter": 500},
        anogan={"steps": 200, "lr": 0.3, "optimizer": "adam", "restarts": 5},
        shown=PAIRS_3,
    ),
    "digits": Setting(
        "8 x 8 digits",
        train=1200,
        images=20,
        ablation=10,
        tuning=3,
        limits=(200, 200, 200),
        judged=30,
        compared=200,
        spectral={"width": 8, "coefficient": 4.0, "epochs": 12, "batch_size": 64},
        plain={"width": 8, "epochs": 12, "batch_size": 64},
        autoencoder={"epochs": 20, "batch_size": 32},
        vae={"epochs": 30, "latent": 8, "batch_size": 32},
        gan={"updates": 300, "width": 16, "latent": 16},
        vlk={"steps": 100, "bisections": 2},
        revise={"lam": 1.0, "optimizer": "adam", "step": 0.05, "max_iter": 200},
        anogan={"steps": 100, "lr": 0.1, "optimizer": "adam", "restarts": 3},
        common=(1, 3, 4),
        again=6,
    ),
}


# ---- images


@dataclass(frozen=True)
class Task:
    """Images (n, c, h, w) from 0 to 1 to learn from, to choose settings on and to ask about; and
    strange ones."""

    train: Tensor
    y: Array
    validation: Tensor
    validation_y: Array
    test: Tensor
    test_y: Array
    strange: dict[str, Tensor]

    @property
    def classes(self) -> int:
        return len(np.unique(self.y))


@cache
def prepare(name: str) -> Task:
    """The images of a dataset, in the order of their files."""
    if name == "digits":
        return _digits(SETTINGS[name].train)
    loaded = data.load("mnist")
    learn = loaded.part("train")
    test = loaded.part("test")
    cut = SETTINGS[name].train
    x = as_images(learn.X)
    y = learn.y.to_numpy()
    strange = {
        "letters": as_images(data.load("letters").X),
        "garments": as_images(data.load("fashion_mnist").X),
    }
    return Task(x[:cut], y[:cut], x[cut:], y[cut:], as_images(test.X), test.y.to_numpy(), strange)


def _digits(cut: int) -> Task:
    """The digits of scikit-learn; strange are those with shuffled pixels, and with reversed
    brightness."""
    loaded = untyped("sklearn.datasets").load_digits()
    x = as_images(loaded.images / 16)
    y = np.asarray(loaded.target)
    order = torch.randperm(64, generator=torch.Generator().manual_seed(0))
    middle = (cut + len(x)) // 2
    test = x[middle:]
    strange = {"shuffled": test.flatten(1)[:, order].view_as(test), "reversed": 1 - test}
    return Task(x[:cut], y[:cut], x[cut:middle], y[cut:middle], test, y[middle:], strange)


def shown(setting: Setting, task: Task) -> list[tuple[int, int]]:
    """Test images and wanted classes of the pictures; if the paper names none, the class after an
    image's own."""
    return list(setting.shown) or [
        (i, int(task.test_y[i] + 1) % task.classes) for i in setting.common
    ]


# ---- networks


def network(name: str, kind: str, options: Options, seed: int) -> Arrays:
    """A trained network as the bytes of its file."""
    task = prepare(name)
    if kind in CLASSIFIERS:
        made = (hf.images.SpectralResNet if kind == "spectral" else hf.images.PlainResNet)(
            **options, seed=seed
        )
        made.fit(task.train, task.y)
    else:
        made = {
            "autoencoder": hf.images.ConvAutoencoder,
            "vae": hf.images.ConvVAE,
            "gan": WGAN,
        }[kind](**options, seed=seed)
        made.fit(task.train)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "network.safetensors"
        made.save(path)
        return {"network": np.frombuffer(path.read_bytes(), np.uint8)}


@dataclass(frozen=True)
class Kit:
    """What searches need: the files of all networks, and the densities of the features of the
    spectral one."""

    name: str
    setting: Setting
    files: dict[str, Array]
    density: Arrays

    def model(self, kind: str) -> hf.images.ImageModel:
        return self._load(kind, hf.images.ImageModel)

    def _load(self, kind: str, cls: Any) -> Any:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "network.safetensors"
            path.write_bytes(self.files[kind].tobytes())
            return cls.load(path)

    @property
    def vae(self) -> hf.images.ConvVAE:
        return self._load("vae", hf.images.ConvVAE)

    @property
    def gan(self) -> WGAN:
        return self._load("gan", WGAN)

    def feature_density(self, model: hf.images.ImageModel) -> hf.FeatureDensity:
        tensors = {key: torch.as_tensor(self.density[key]) for key in DENSITY}
        return hf.FeatureDensity.from_tensors(model, tensors)

    def method(
        self, label: str, model: hf.images.ImageModel, options: Options
    ) -> hf.images.ImageExplainer:
        """A method that is ready to explain this model."""
        if label == "DeDUCE":
            deduce = hf.images.DeDUCE(**options)
            deduce.density_ = self.feature_density(model)
            return deduce
        if label == "JSMA":
            return hf.images.JSMA(**options)
        task = prepare(self.name)
        if label == "VLK":
            coder = self._load("autoencoder", hf.images.ConvAutoencoder)
            return hf.images.Prototype(autoencoder=coder, **options).fit(model, task.train, task.y)
        # its VAE is ready
        return hf.images.REVISE(vae=self.vae, **options).fit(model, task.train[:1])


def about(name: str, files: dict[str, Array], kind: str) -> Arrays:
    """Accuracy of a network; the densities of the features of the spectral one."""
    task = prepare(name)
    kit = Kit(name, SETTINGS[name], files, {})
    model = kit.model(kind)
    out: Arrays = {
        "validation": np.array(model.accuracy(task.validation, task.validation_y)),
        "test": np.array(model.accuracy(task.test, task.test_y)),
    }
    if kind == "spectral":
        density = hf.FeatureDensity(model).fit(task.train, task.y)
        out |= {key: value.numpy() for key, value in density.tensors().items()}
        out["jitter"] = np.array(density.gaussians_.jitter)
    return out


# ---- searches

STILL: Options = {"momentum": 0.0}
ABLATION: dict[str, Options] = {  # Table 4
    **{
        f"lambda = {word}": {"lam": float(word), **STILL}
        for word in ("0", "1", "10", "1e2", "1e3", "1e4", "1e5")
    },
    **{f"mu = {word}": {"mu": mu, **STILL} for word, mu in (("1/5", 0.2), ("1", 1.0), ("5", 5.0))},
    "momentum 0.6": {"momentum": 0.6},
    **{f"{q} pixels": {"pixels": q, **STILL} for q in (2, 3)},
}


@dataclass(frozen=True)
class Question:
    """What a cell asks: a method with its options, a network, and images by their numbers."""

    label: str
    kind: str
    options: Options
    part: str  # "test" or "validation"
    images: tuple[int, ...]

    def images_and_labels(self, name: str) -> tuple[Tensor, Array]:
        """Images and their labels."""
        task = prepare(name)
        images = list(self.images)
        if self.part == "test":
            return task.test[images], task.test_y[images]
        return task.validation[images], task.validation_y[images]

    def pairs(self, name: str) -> Tensor:
        """The image of every pair."""
        return self.images_and_labels(name)[0].repeat_interleave(prepare(name).classes - 1, 0)


def questions(setting: Setting, sets: int, images: int) -> dict[str, Question]:
    """What is asked, by the names of the cells: so many images of so many test sets, and the tables
    of settings.

    Paper: hoeltgen2021 Datasets.
    """
    out = dict[str, Question]()
    for k in range(sets):
        first = k * setting.images
        common = tuple(first + i for i in setting.common if i < images)
        for label in SLOW:
            for kind in CLASSIFIERS:
                out[f"{label} {kind} {k}"] = Question(
                    label, kind, getattr(setting, label.lower()), "test", common
                )
        for label, kinds in GREEDY.items():
            for kind in kinds:
                out[f"{label} {kind} {k}"] = Question(
                    label, kind, {}, "test", tuple(range(first, first + images))
                )
    for label, options in ABLATION.items():
        out[label] = Question(
            "DeDUCE", "spectral", options, "validation", tuple(range(setting.ablation))
        )
    limits = dict(zip(STEP_LIMITS, setting.limits, strict=True))
    for lam, step in TABLE_5:
        options = {"lam": lam, "step": step, "optimizer": "sgd", "max_iter": limits[step]}
        out[tuned(lam, step)] = Question(
            "REVISE", "plain", options, "validation", tuple(range(setting.tuning))
        )
    return out


def tuned(lam: float, step: float) -> str:
    """The name of a row of Table 5."""
    return f"lambda {lam:g}, step {step:g}"


def search(kit: Kit, question: Question) -> Arrays:
    """Every image to every other class: answers (n, c, h, w) image by image, and what is known
    about them."""
    model = kit.model(question.kind)
    method = kit.method(question.label, model, question.options)
    x, y = question.images_and_labels(kit.name)
    before = x.clone()
    start = time.process_time()
    found = method.explain(model, x, "all", labels=y)
    return {
        "x_cf": found.x_cf.numpy(),
        "target": found.goal.label.numpy(),
        "codes": found.status_codes,
        "iterations": found.iterations,
        "confidence": found.probability.to_numpy(),
        "passes": np.array(found.passes),
        "touched": np.array(not torch.equal(x, before)),
        "took": np.array((time.process_time() - start) / len(found)),  # CPU seconds of a pair
    }


def in_other_company(kit: Kit, question: Question, cell: Arrays, many: int) -> Arrays:
    """Some pairs once more, in other circumstances: how many differ, and how long each takes
    alone."""
    model = kit.model(question.kind)
    method = kit.method(question.label, model, question.options)
    x = question.pairs(kit.name)
    sample = np.unique(np.linspace(0, len(x) - 1, many).astype(np.int64))
    counts, took = again(method, model, x, cell, sample)
    return {
        "names": np.array(list(counts)),
        "counts": np.array(list(counts.values())),
        "took": took,
    }


def greedy(question: Question) -> hf.images.GreedyPixels | None:
    """The settings of a search, if it is a greedy one."""
    return (
        {"DeDUCE": hf.images.DeDUCE, "JSMA": hf.images.JSMA}[question.label](**question.options)
        if question.label in GREEDY
        else None
    )


# ---- how real images look


def scored(kit: Kit, images: Array, seed: int) -> Arrays:
    """AnoGAN scores of images (n, c, h, w), and how far apart the descents of each ended."""
    how = AnoGAN(**kit.setting.anogan, seed=seed)
    found = anogan_score(kit.gan, torch.as_tensor(images), how)
    return {"score": found.score.numpy(), "spread": found.spread.numpy()}


def sanity(kit: Kit, seed: int) -> Arrays:
    """How well each score tells strange images from digits: areas under the curve (scores,
    kinds)."""
    task = prepare(kit.name)
    areas = dict[str, list[float]]()
    for name, (score, count) in scores_of(kit, seed).items():
        usual = score(evenly(task.test, count))
        higher_means_strange = LOWER_IS_BETTER.get(name, True)  # as for AnoGAN
        areas[name] = [
            hf.images.auroc(usual, score(evenly(images, count)), higher_means_strange)
            for images in task.strange.values()
        ]
    return {
        "auroc": np.array(list(areas.values())),
        "scores": np.array(list(areas)),
        "kinds": np.array(list(task.strange)),
    }


def scores_of(kit: Kit, seed: int) -> dict[str, tuple[Callable[[Tensor], Any], int]]:
    """What scores images, by name, and how many of each kind it gets."""
    gan = kit.gan
    vae = kit.vae
    density = kit.feature_density(kit.model("spectral"))
    how = AnoGAN(**kit.setting.anogan, seed=seed)

    def anogan(images: Tensor) -> Tensor:
        return anogan_score(gan, images, how).score

    def reconstruction(images: Tensor) -> Any:
        return realism(images, vae=vae)["reconstruction"]

    def log_density(images: Tensor) -> Any:
        return realism(images, density=density)["log_density"]

    return {
        "anogan": (anogan, kit.setting.judged),
        "reconstruction": (reconstruction, kit.setting.compared),
        "log_density": (log_density, kit.setting.compared),
    }


def evenly(x: Tensor, count: int) -> Tensor:
    """This many of the images, or all, spread evenly over their file."""
    return x[np.unique(np.linspace(0, len(x) - 1, count).astype(np.int64))]
