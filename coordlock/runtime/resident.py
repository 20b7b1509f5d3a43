"""Objects that belong to their process, and refuse to be pickled or copied."""

from __future__ import annotations

from typing import Any, ClassVar, NoReturn

from coordlock.runtime.methods import presented_in

__all__ = ["Resident"]


class Resident:
    """The base of clients, locks, grants and transactions."""

    _instead: ClassVar[str]

    def __init_subclass__(cls, shown: str | None = None, **others: Any) -> None:
        """``shown`` is the public name of ``cls``, where its own is private."""
        super().__init_subclass__(**others)
        presented_in(cls, shown or cls.__name__)

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"{type(self).__name__} cannot be pickled or copied, because it belongs to its "
            f"process: {self._instead}"
        )
