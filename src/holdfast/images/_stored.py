"""Networks of images as files: tensors and a JSON text in one safetensors file that runs no
code."""

import json
import math
import os
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self, TypeVar, cast

import torch
from torch import Tensor, nn

from holdfast._core.params import Settings
from holdfast.errors import FileError, HoldfastError, SettingError
from holdfast.models.formats import safetensors
from holdfast.models.formats.safetensors import IMAGE_MARK as MARK

Size = tuple[int, int, int]  # channels, height, width
Made = TypeVar("Made")
Net = TypeVar("Net", bound=nn.Module)


def write_network(path: str | Path, tensors: dict[str, Tensor], content: dict[str, Any]) -> None:
    """Write tensors and what describes them."""
    plain = {name: value.detach().contiguous().clone() for name, value in tensors.items()}
    safetensors.write(path, plain, {MARK: content})


def read_network(
    path: str | os.PathLike[str], build: Callable[[dict[str, Any], dict[str, Tensor]], Made]
) -> Made:
    """What `build` makes of a file's text and tensors; if it fails, an error says that the file is
    damaged."""
    if not Path(path).is_file():
        raise FileError(f"no model file at {str(path)!r}")
    try:
        metadata, tensors = safetensors.read(path)
    except FileError as error:
        raise FileError(f"{str(path)!r} is not a readable safetensors file ({error})") from None
    if MARK not in metadata:
        raise FileError(f"{str(path)!r} holds no image model; write one with `ImageModel.save`")
    try:
        return build(json.loads(metadata[MARK]), tensors)
    except FileError:
        raise
    except HoldfastError as error:
        raise FileError(f"{str(path)!r} is damaged: {error}") from None
    except Exception as error:  # the text in the file may say anything
        raise FileError(f"{str(path)!r} is damaged ({type(error).__name__}: {error})") from error


def holds_images(path: str | os.PathLike[str]) -> bool:
    """Is this the file of an image model?"""
    return MARK in safetensors.metadata_of(path)


def part_of(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """The tensors whose names begin like this, by the rest of their names."""
    return {
        name.removeprefix(prefix): value
        for name, value in tensors.items()
        if name.startswith(prefix)
    }


def filled(make: Callable[[], Net], tensors: dict[str, Tensor]) -> Net:
    """The network that `make` builds with these tensors, for use and not for training, without
    other memory."""
    with torch.device("meta"):
        net = make()
    net.load_state_dict(tensors, assign=True)
    return net.eval().requires_grad_(False)


def laid_out(net: Net) -> Net:
    """Channels last in memory, where convolutions are fastest."""
    return cast(Any, net).to(memory_format=torch.channels_last)


class StoredSettings(Settings, ABC):
    """Settings of something that is trained on images and kept in its own file, with settings and
    history."""

    lr: float
    seed: int

    @abstractmethod
    def check(self) -> None:
        """Raise an error if the settings cannot work."""

    @abstractmethod
    def learnt(self) -> tuple[Size, list[Any], dict[str, Tensor]]:
        """The size of the images, a history that JSON can hold, and the tensors."""

    @abstractmethod
    def restore(self, size: Size, history: list[Any], tensors: dict[str, Tensor]) -> None:
        """Take back what `learnt` gave."""

    def check_integers(self, *names: str, least: int = 1, most: int = 1 << 20) -> None:
        """Raise an error unless these settings are integers in a range."""
        for name in names:
            value: Any = getattr(self, name)
            good = isinstance(value, int) and not isinstance(value, bool) and least <= value <= most
            if not good:
                raise SettingError(
                    f"{name} must be an integer from {least} to {most}, got {value!r}"
                )

    def check_training(self) -> None:
        """Raise an error unless the seed is an integer and the step positive."""
        self.check_integers("seed", least=-(1 << 63), most=(1 << 63) - 1)
        if not 0 < self.lr < math.inf:
            raise SettingError(f"lr must be positive, got {self.lr}")

    def save(self, path: str | Path) -> None:
        """Tensors, settings and history in one safetensors file that runs no code."""
        size, history, tensors = self.learnt()
        content = {
            "kind": type(self).__name__,
            "settings": self.get_params(deep=False),
            "size": size,
        }
        write_network(path, tensors, content | {"history": history})

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read what `save` wrote."""

        def build(content: dict[str, Any], tensors: dict[str, Tensor]) -> Self:
            kind = content.get("kind", "a classifier")
            if kind != cls.__name__:
                raise FileError(f"{str(path)!r} holds {kind}, not {cls.__name__}")
            out = cls(**content["settings"])
            out.check()
            c, h, w = content["size"]
            if not all(isinstance(v, int) and 1 <= v <= 1 << 14 for v in (c, h, w)):
                raise ValueError(f"no image has the size {content['size']}")
            if any(
                t.dtype != torch.float32 or not bool(t.isfinite().all()) for t in tensors.values()
            ):
                raise ValueError("tensors must be finite numbers in single precision")
            out.restore((c, h, w), content["history"], tensors)
            return out

        return read_network(path, build)
