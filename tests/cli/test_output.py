"""What the commands print."""

from holdfast.cli.output import printable


def test_control_characters_from_files_do_not_reach_the_terminal() -> None:
    assert printable("a\x1b[31mb\r\nc") == "a\ufffd[31mb\ufffd\nc"
