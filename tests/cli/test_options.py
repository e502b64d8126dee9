"""What the commands share."""

import holdfast as hf
from holdfast.cli.options import printable, wanted


def test_control_characters_from_files_do_not_reach_the_terminal() -> None:
    assert printable("a\x1b[31mb\r\nc") == "a\ufffd[31mb\ufffd\nc"


def test_a_text_class_comes_before_a_number_that_looks_like_it() -> None:
    assert wanted((1, "1"), "1", False, None).label == "1"
    assert wanted((1, "x"), "1", False, 0.7) == hf.Target(1, 0.7)
    assert wanted((True, False), "True", False, None).label is True
