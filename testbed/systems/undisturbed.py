"""A service without a nemesis and without an observer."""

from __future__ import annotations

from collections.abc import Callable

from testbed.systems.subject import Subject

__all__ = ["Undisturbed"]


class Undisturbed(Subject):
    """The service ``name``; ``url_for`` gives the URL of a root, with options."""

    def __init__(self, name: str, url_for: Callable[..., str]) -> None:
        self.name = name
        self._url_for = url_for

    def url(self, root: str, **options: object) -> str:
        return self._url_for(root, **options)
