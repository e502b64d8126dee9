"""Where answers came from."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from holdfast._core.version import version

if TYPE_CHECKING:
    from holdfast.explainer import Explainer
    from holdfast.models.base import Model
    from holdfast.target import Target


@dataclass(frozen=True)
class Run:
    """Where answers came from: enough to make them again."""

    method: str
    settings: str
    target: str
    seed: int
    seconds: float
    model: str  # fingerprints
    schema: str
    version: str
    created: str
    guided_by: tuple[str, ...] = ()  # origins of further models that helped to find the answers
    # what these models make of the schema's probe rows
    signatures: tuple[tuple[float, ...], ...] = ()

    @classmethod
    def of(
        cls, explainer: "Explainer", model: "Model", target: "Target", seed: int, seconds: float
    ) -> "Run":
        now = datetime.now(UTC).isoformat(timespec="seconds")
        prints = model.fingerprint(), model.schema.fingerprint
        guides = tuple(sorted(explainer.guided_by))
        facts = str(target), seed, seconds, *prints, version(), now, guides, explainer.signatures
        return cls(type(explainer).__name__, repr(explainer), *facts)


def run_of(content: dict[str, Any]) -> Run:
    """A Run from JSON, which knows lists and no tuples."""
    signatures = tuple(tuple(map(float, row)) for row in content.get("signatures", ()))
    return Run(
        **dict[str, Any](
            content, guided_by=tuple(content.get("guided_by", ())), signatures=signatures
        )
    )
