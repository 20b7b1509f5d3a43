"""Gates: clients wait at a shut gate until a client opens it."""

from __future__ import annotations

from typing import Any

from coordlock.errors import WaitTimeout
from coordlock.recipes.shared.exactly_once import ExactlyOnce
from coordlock.records.stored_record import Folder
from coordlock.runtime.deadline import Cancellation
from coordlock.runtime.driver import Steps, awaiting, blocking
from coordlock.settings import DEFAULT, Timeout

__all__ = ["AsyncGate", "Gate"]


class _BaseGate(ExactlyOnce):
    """What sync and async gates share."""

    _folder = Folder.GATES
    _kind = "gate"

    def _shut(self) -> Steps[bool]:
        """Shut it for all clients until `open`; returns whether it was open.

        It stays shut when this client ends. It is shut exactly once, so a lost answer never undoes
        another client's `open`. Raises what `Counter.add` raises.
        """
        return (yield from self._set(shut=True))

    def _open(self) -> Steps[bool]:
        """Open it for all clients; returns whether it was shut. Raises what `shut` raises."""
        return (yield from self._set(shut=False))

    def _is_open(self) -> Steps[bool]:
        """Whether it is open. Raises `BackendUnavailable`."""
        return not (yield from self._value())

    def _wait(
        self, timeout: Timeout = DEFAULT, *, cancellation: Cancellation | None = None
    ) -> Steps[None]:
        """Wait until it is open.

        ``timeout`` is in seconds, by default the client's; None waits for ever, and 0 looks once.
        ``cancellation`` ends the wait from elsewhere, with `WaitCancelled`. It may miss that the
        gate was open for a moment. Raises `WaitTimeout` when the time is up, `WaitUnavailable` if
        the service does not answer, and `BackendError` if the gate was shut and its record is gone:
        it was deleted, or the service has lost its data.
        """

        def in_vain(_: object, waited: float) -> WaitTimeout:
            return WaitTimeout(self.name, waited, kind="gate")

        yield from self._wait_until(lambda shut: not shut, timeout, in_vain, cancellation)

    def _set(self, *, shut: bool) -> Steps[bool]:
        def switch(before: Any) -> tuple[Any, bool]:
            is_other = bool(before) is not shut
            return (shut if is_other else before), is_other

        return (yield from self._change(switch))


class Gate(_BaseGate):
    """A gate at which clients wait while it is shut. Made by `Client`; reusable.

    As in::

        gate = client.gate("maintenance")
        gate.shut()  # the operator; workers call gate.wait() before each job
        migrate()
        gate.open()
    """

    shut = blocking(_BaseGate._shut)
    open = blocking(_BaseGate._open)
    is_open = blocking(_BaseGate._is_open)
    wait = blocking(_BaseGate._wait)


class AsyncGate(_BaseGate):
    """A gate at which clients wait while it is shut. Made by `AsyncClient`."""

    shut = awaiting(_BaseGate._shut)
    open = awaiting(_BaseGate._open)
    is_open = awaiting(_BaseGate._is_open)
    wait = awaiting(_BaseGate._wait)
