"""Shut and open gates, and wait at them.

A gate is open at first. Once shut, it stays shut until any client opens it. `coordlock show` says
which it is.
"""

from __future__ import annotations

from coordlock.cli.connection import Service
from coordlock.cli.text import echo

__all__ = ["open", "shut", "wait"]


def shut(*, name: str, service: Service) -> None:
    """Shut the gate NAME: clients that come to it wait.

    It stays shut after this command and its machine are gone. Clients that passed before are not
    stopped.
    """
    with service.connected() as client:
        was_open = client.gate(name).shut()
    echo(f"{'shut' if was_open else 'shut already'}: {name}")


def open(*, name: str, service: Service) -> None:
    """Open the gate NAME: all that wait go on.

    Does nothing if it is open.
    """
    with service.connected() as client:
        was_shut = client.gate(name).open()
    echo(f"{'opened' if was_shut else 'open already'}: {name}")


def wait(*, name: str, nonblock: bool, timeout: float | None, service: Service) -> None:
    """Wait until the gate NAME is open.

    The exit status is 75 if it is still shut after --timeout, or at once with -n.
    """
    with service.connected(timeout) as client:
        client.gate(name).wait(0 if nonblock else timeout)
