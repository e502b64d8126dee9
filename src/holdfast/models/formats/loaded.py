"""What a reader makes of a model file."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from holdfast.models.scores import Inputs, Outputs


@dataclass(frozen=True)
class LoadedModel:
    """A model from a file, ready for `Model.of`; where the file does not say, None lets `Model.of`
    decide."""

    model: Any
    classes: Sequence[Any] | None = None
    outputs: Outputs | None = None
    inputs: Inputs | None = None
    rejects_missing: Mapping[str, str] = field(default_factory=dict[str, str])  # see `Model`


@dataclass(frozen=True)
class Description:
    """What is known of a file without loading it: what goes in and out, in words, and whether it
    has gradients."""

    inputs: list[str] = field(default_factory=list[str])
    classes: list[Any] | None = None
    outputs: str = ""
    gradients: bool = False
    details: dict[str, Any] = field(default_factory=dict[str, Any])

    @classmethod
    def of_trees(
        cls, inputs: list[str], classes: int | None, details: dict[str, Any]
    ) -> "Description":
        """The same for boosted trees, with the number of classes in their file (none: a
        regression)."""
        names, outputs = (
            (None, "value") if classes is None else (list(range(max(classes, 2))), "probabilities")
        )
        return cls(inputs, names, outputs, False, details)
