"""The version, alone in a file so that every layer can read it."""

__version__ = "0.1.0"
