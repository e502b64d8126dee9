"""What a certificate says, in the words that tables, letters and pages share."""

import math
from collections.abc import Sequence

NEW_DATA = ("stretch", "fresh")  # families of judges that stand for models of new data
NEXT = "models trained on new data of the same kind"
AGAIN = "models retrained on rows drawn again from this table"
ALIKE = "models made as those of the bank were"


def models_meant(families: Sequence[str]) -> str:
    """The models that a certificate by judges of these families speaks of."""
    if families and all(name in NEW_DATA for name in families):
        return NEXT
    if list(families) == ["retrain"]:
        return AGAIN
    return ALIKE


def level(hold: float, confidence: float, families: Sequence[str]) -> str:
    """'holds for at least 95% of models trained on new data of the same kind, with 95%
    confidence'"""
    return (
        f"holds for at least {100 * hold:g}% of {models_meant(families)}, with "
        f"{100 * confidence:g}% confidence"
    )


def covers(families: Sequence[str]) -> str:
    """What a certificate by judges of these families is about, and what it is not."""
    meant = models_meant(families)
    if meant == NEXT:
        return "A certificate covers training on new data of the same kind, not a changed world."
    about = "retraining on rows drawn again from this table" if meant == AGAIN else meant
    return f"A certificate covers {about}: not training on new data, and not a changed world."


def judges(families: Sequence[str], spread: float) -> str:
    """What the judges are, in a sentence; '' for those that need none."""
    if "stretch" in families:
        how = (
            f"models of rows drawn again from the training table, led {spread:.3g} times as far "
            "from the model in use"
        )
        return f"The judges are {how}: as far as models of new data lie from it."
    if "fresh" in families:
        how = (
            f"fewer rows drawn from the training table, one for every {spread**2:.3g} that there "
            "are"
        )
        return (
            f"The judges are models of {how}: they lie as far from the model in use as models of "
            "new data."
        )
    return ""


def holds_on(accepted: int, models: int) -> str:
    """'99 of 101'"""
    return f"{accepted:,} of {models:,}"


def rounded_down(share: float) -> str:
    """0.95049 -> '95%': a bound says no more than it knows."""
    return f"{math.floor(1000 * share + 1e-9) / 10:g}%"
