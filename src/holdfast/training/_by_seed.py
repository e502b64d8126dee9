"""Results of training several networks for each of several settings."""

from holdfast.errors import SettingError
from holdfast.retraining.bank import ModelBank


class NetworksBySeed:
    """Networks that differ in one thing, and for each of its values in the seed: a bank with one
    family for each value."""

    bank: ModelBank

    @property
    def seeds(self) -> int:
        """How many networks there are of each value."""
        return len(self.bank) // len(self.bank.groups)

    @property
    def varied(self) -> str:
        """What they differ in, and its values, in words."""
        raise NotImplementedError

    def check_seed(self, seed: int, of: str) -> None:
        """Raise an error unless there is a network of this seed."""
        if not 0 <= seed < self.seeds:
            raise SettingError(f"there are {self.seeds} networks of each {of}, no number {seed}")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.seeds} networks for each {self.varied})"
