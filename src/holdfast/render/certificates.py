"""What a certificate says, in the words that tables, letters and pages share."""

COVERS = "A certificate covers retraining on like data, not a changed world."


def level(at_least: float, confidence: float) -> str:
    """'at least 95% of retrained models accept, with 95% confidence'"""
    return f"at least {100 * at_least:g}% of retrained models accept, with {100 * confidence:g}% confidence"
