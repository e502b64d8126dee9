"""What the commands share."""

import holdfast as hf
from holdfast.cli.options import wanted


def test_a_text_class_comes_before_a_number_that_looks_like_it() -> None:
    assert wanted((1, "1"), "1", False, None).label == "1"
    assert wanted((1, "x"), "1", False, 0.7) == hf.Target(1, 0.7)
    assert wanted((True, False), "True", False, None).label is True
