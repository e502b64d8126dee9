"""The version that is installed."""

from functools import cache


@cache  # reading a package's metadata takes as long as a short search
def version() -> str:
    from importlib.metadata import version

    return version("holdfast")
