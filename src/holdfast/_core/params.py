"""Settings in the manner of scikit-learn: clone, get_params, set_params(start__steps=10)."""

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any, Generic, Self, TypeVar, cast

from holdfast._core.checks import did_you_mean
from holdfast.errors import SettingError

LARGEST = 3.4028234663852886e38  # number in single precision

Value = TypeVar("Value")


class Trait(Generic[Value]):
    """A property of instances that can be asked of the class too, which then tells the default.

    @Trait(False)
    def needs_data(self) -> bool: ...
    """

    def __init__(self, default: Value) -> None:
        self.default = default

    def __call__(self, getter: Callable[[Any], Value]) -> Self:
        self.getter = getter
        return self

    def __get__(self, instance: object | None, owner: type) -> Value:
        return self.default if instance is None else self.getter(instance)


def preset(settings: dict[str, Any], /, **usual: Any) -> dict[str, Any]:
    """The settings that the literature uses for a method, except those that are given."""
    return usual | settings


class FrozenSettings:
    """For frozen dataclasses of settings that estimators hold: they are replaced, never changed.

    Its methods have other names than an estimator's: scikit-learn would else clone it as one.
    """

    def to_dict(self) -> dict[str, Any]:
        return {spec.name: getattr(self, spec.name) for spec in fields(cast(Any, self))}

    def with_setting(self, name: str, value: Any) -> Self:
        """A copy in which one setting is another."""
        known = self.to_dict()
        if name not in known:
            raise SettingError(
                f"{type(self).__name__} has no setting {name!r}; {did_you_mean(name, known)}"
            )
        return replace(cast(Any, self), **{name: value})


class Settings:
    """For dataclasses whose fields are their settings, and nothing else."""

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        out: dict[str, Any] = {}
        for spec in fields(cast(Any, self)):
            value = getattr(self, spec.name)
            out[spec.name] = value
            if deep and isinstance(value, Settings | FrozenSettings):
                inner = value.get_params() if isinstance(value, Settings) else value.to_dict()
                out |= {f"{spec.name}__{k}": v for k, v in inner.items()}
        return out

    def set_params(self, **params: Any) -> Self:
        known = self.get_params(deep=False)
        for name, value in params.items():
            head, _, rest = name.partition("__")
            if head not in known:
                raise SettingError(
                    f"{type(self).__name__} has no setting {head!r}; {did_you_mean(head, known)}"
                )
            if not rest:
                setattr(self, head, value)
                continue
            nested = getattr(self, head)  # as it is by now: another setting may have replaced it
            if isinstance(nested, FrozenSettings):
                setattr(self, head, nested.with_setting(rest, value))
            elif isinstance(nested, Settings):
                nested.set_params(**{rest: value})
            else:
                raise SettingError(
                    f"{name}: {head} is {nested!r}, which has no settings; set {head} itself first"
                )
        return self

    @property
    def is_fitted(self) -> bool:
        """Has it learnt from data? What it learnt is in attributes that end in _."""
        return any(name.endswith("_") and not name.startswith("_") for name in vars(self))

    def check_finite(self) -> None:
        """Raise a `SettingError` if a setting is a number that single precision cannot hold."""
        for name, value in self.get_params(deep=False).items():
            if isinstance(value, float) and not abs(value) < LARGEST:  # NaN too
                raise SettingError(f"{name} must be a finite number, got {value}")

    def __repr__(self) -> str:
        values = [(spec, getattr(self, spec.name)) for spec in fields(cast(Any, self))]
        changed = ", ".join(
            f"{spec.name}={value!r}" for spec, value in values if value != spec.default
        )
        return f"{type(self).__name__}({changed})"
