"""What a server answers, from its bytes as they come (RESP, version 2). Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["Answers"]

_BYTES, _NUMBER, _LIST, _TEXT, _ERROR = b"$:*+-"


class Answers:
    """Reads answers whose parts come one after the other. redis-py takes several times as long.

    Args:
        error: makes an exception of what a server says is wrong.
    """

    def __init__(self, error: Callable[[str], Exception]) -> None:
        self._error = error
        self._rest = b""
        #: Lists that are not complete, from the outermost, and how many elements each has then.
        self._open: list[tuple[list[Any], int]] = []

    def feed(self, data: bytes) -> list[Any]:
        """The answers that are complete with ``data``. Raises ValueError for other bytes."""
        data, at, found = self._rest + data, 0, []
        value: Any
        while (end := data.find(b"\r\n", at)) >= 0:
            kind, text, after = data[at], data[at + 1 : end], end + 2
            if kind == _BYTES:
                value = None
                if (size := int(text)) >= 0:
                    if len(data) < after + size + 2:
                        break
                    value, after = data[after : after + size], after + size + 2
            elif kind == _NUMBER:
                value = int(text)
            elif kind == _LIST:
                value = None
                if (count := int(text)) >= 0:
                    value = []
                if count > 0:
                    self._open.append((value, count))
                    at = after
                    continue
            elif kind == _TEXT:
                value = text
            elif kind == _ERROR:
                value = self._error(text.decode("utf-8", "replace"))
            else:
                raise ValueError(f"this is no Redis: it sent {data[at : at + 20]!r}")
            at = after
            while self._open:
                elements, count = self._open[-1]
                elements.append(value)
                if len(elements) < count:
                    break
                value = self._open.pop()[0]
            else:
                found.append(value)
        self._rest = data[at:]
        return found
