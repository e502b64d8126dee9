"""Options that several of the commands of `holdfast train` have."""

from collections.abc import Sequence
from typing import Any

from holdfast.cli.options import option
from holdfast.errors import SettingError
from holdfast.registry import split_setting

EPOCHS = option("method", "N", "Training epochs.")
HIDDEN = option("method", "LIST", "Widths of the layers, such as 64,32.")


def out_file(default: str) -> Any:
    """Where the model goes."""
    return option("output", "FILE", f"Model file; default: {default}.")


def assigned(options: dict[str, Any], settings: Sequence[str] | None) -> list[str]:
    """Options and `--set`s as one list of settings: --l-div 0.5 is the same as --set l_div=0.5."""
    given = {name: value for name, value in options.items() if value is not None}
    for name, _ in map(split_setting, settings or ()):
        if name in given:
            raise SettingError(
                f"{name} is given twice, by its own option and by --set; leave one of them out"
            )
    return [*(f"{name}={value}" for name, value in given.items()), *(settings or ())]


def check_share(test: float) -> None:
    """Raise an error unless some rows are left to learn from."""
    if not 0 <= test < 1:
        raise SettingError(f"--test must be at least 0 and below 1, got {test}")
