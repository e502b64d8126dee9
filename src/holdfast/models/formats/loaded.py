"""What a reader makes of a model file."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal


@dataclass(frozen=True)
class LoadedModel:
    """A model from a file, ready for `Model.of`: the object itself, the names of its classes, what it returns and
    what it takes. None where the file does not say: `Model.of` then decides as it does for models from elsewhere."""

    model: Any
    classes: Sequence[Any] | None = None
    outputs: Literal["logits", "probabilities"] | None = None
    inputs: Literal["frame", "encoded"] | None = None
    rejects_missing: Mapping[str, str] = field(default_factory=dict[str, str])  # see `Model`


@dataclass(frozen=True)
class Description:
    """What is known of a file without loading it: what goes in and out, in words, and whether it has gradients."""

    inputs: list[str] = field(default_factory=list[str])
    classes: list[Any] | None = None
    outputs: str = ""
    gradients: bool = False
    details: dict[str, Any] = field(default_factory=dict[str, Any])
