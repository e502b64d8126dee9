"""Errors that name the thing, the value and the fix. All of them are `HoldfastError`s."""


class HoldfastError(Exception):
    """Root of every error raised on purpose by this library.

    >>> import holdfast as hf
    >>> try:
    ...     hf.Schema.box(0)
    ... except hf.HoldfastError as error:
    ...     print(type(error).__name__)
    SchemaError
    """


class SettingError(HoldfastError, ValueError):
    """A hyperparameter or argument has a value that cannot work."""


class SchemaError(HoldfastError, ValueError):
    """A schema contradicts itself, or a table does not fit it."""


class ModelError(HoldfastError, ValueError):
    """A model cannot be used as asked."""


class TargetError(HoldfastError, ValueError):
    """The wanted outcome does not exist or cannot be asked of this model."""


class FileError(HoldfastError, ValueError):
    """A file is missing, unreadable or not what it claims to be."""


class UnsafeFileError(FileError):
    """Loading the file would run code from it."""


class MissingExtraError(HoldfastError, ImportError):
    """An optional dependency is not installed."""
