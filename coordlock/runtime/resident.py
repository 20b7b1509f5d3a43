"""What belongs to its process, and says so where it is to be pickled or copied."""

from __future__ import annotations

from typing import ClassVar, NoReturn

__all__ = ["Resident"]


class Resident:
    """The base of clients, locks and grants."""

    _instead: ClassVar[str]

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"{type(self).__name__} belongs to its process and is neither pickled nor copied: "
            f"{self._instead}"
        )
