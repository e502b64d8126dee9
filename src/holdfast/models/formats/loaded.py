"""What a model file turned out to hold, ready for `Model.of`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal


@dataclass(frozen=True)
class Found:
    """A model from a file: the object itself, the names of its classes, what it returns and what it takes; and the
    columns that may be missing by the schema, not here, with the reason, so that it takes rows of the others.

    None where the file does not say: `Model.of` then decides as it does for models from elsewhere.
    """

    model: Any
    classes: Sequence[Any] | None = None
    outputs: Literal["logits", "probabilities"] | None = None
    inputs: Literal["frame", "encoded"] | None = None
    refused: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True)
class Said:
    """What can be said of a file without loading it: what goes in and out, in words, and whether it has gradients."""

    inputs: list[str] = field(default_factory=list[str])
    classes: list[Any] | None = None
    outputs: str = ""
    gradients: bool = False
    details: dict[str, Any] = field(default_factory=dict[str, Any])
