"""What belongs to its process, and says so where it is to be pickled or copied."""

from __future__ import annotations

from types import FunctionType
from typing import Any, ClassVar, NoReturn

__all__ = ["Resident"]


class Resident:
    """The base of clients, locks and grants."""

    _instead: ClassVar[str]

    def __init_subclass__(cls, shown: str | None = None, **others: Any) -> None:
        """``shown`` is the public name under which errors of types name the methods of ``cls``."""
        super().__init_subclass__(**others)
        if shown is not None:
            for method in vars(cls).values():
                if isinstance(method, FunctionType):
                    method.__qualname__ = f"{shown}.{method.__name__}"

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"{type(self).__name__} belongs to its process and is neither pickled nor copied: "
            f"{self._instead}"
        )
