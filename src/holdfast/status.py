"""What became of a row."""

from enum import IntEnum


class Status(IntEnum):
    """Found, met from the start, or not found."""

    FOUND, ALREADY_MET, NOT_FOUND = range(3)

    @property
    def words(self) -> str:
        """'already met'"""
        return self.name.lower().replace("_", " ")
