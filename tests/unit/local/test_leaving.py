"""Contenders that leave, while other threads of the process do what they do."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import coordlock_local
import pytest
from coordlock_local.slots import Slot, Slots

import coordlock
import coordlock.kernel.tickets
from coordlock.errors import ClientClosed
from coordlock.runtime.shared_file import no_fork
from coordlock.testing.waiting import eventually
from tests.unit.signals import Signal, interrupted


def test_a_release_that_meets_the_clients_end_takes_nobody_elses_slot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fault: the thread stands still between its last look at the slot and its write."""
    tmp_path.chmod(0o700)
    first, waiter, second = (
        coordlock.connect(f"local://{tmp_path}?request_timeout=30s") for _ in range(3)
    )
    stands_still, go_on = threading.Event(), threading.Event()
    free = Slots.free

    def stop_first(slots: Slots, slot: int, id: str, own: Mapping[str, Slot]) -> None:
        if not stands_still.is_set():
            stands_still.set()
            assert go_on.wait(30)
        free(slots, slot, id, own)

    held = first.lock("q").acquire()
    with ThreadPoolExecutor(4) as pool:
        waiting = pool.submit(waiter.lock("q").acquire)  # so that the file stays
        while len(waiter.admin.contenders("q")) < 2:
            pass
        monkeypatch.setattr(Slots, "free", stop_first)
        releasing = pool.submit(held.release)
        assert stands_still.wait(30)
        closing = pool.submit(first.close)
        with pytest.raises(TimeoutError):
            closing.result(0.2)  # else the slot would be free for others
        assert not waiting.done()
        go_on.set()
        assert releasing.result(30)
        closing.result(30)
        with waiting.result(30):
            assert second.lock("q").try_acquire() is None
    for client in (waiter, second):
        client.close()


def test_a_release_that_ctrl_c_ends_keeps_no_other_thread_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fault: Ctrl-C at each moment at which the backend tells that the holder has left."""
    monkeypatch.setattr(coordlock.kernel.tickets, "SWEEP_PAUSE_S", 0.1)
    tmp_path.chmod(0o700)
    with (
        coordlock.connect(f"local://{tmp_path}?request_timeout=30s") as client,
        ThreadPoolExecutor(1) as pool,
    ):
        moment, came = 0, True
        while came:
            moment += 1
            held = client.lock("q").acquire()
            waiting = pool.submit(client.lock("q").acquire)
            eventually(lambda: len(client.admin.contenders("q")) == 2)
            came = interrupted(held.release, moment, coordlock_local)
            waiting.result(30).release()
        assert moment > 20


def test_a_signal_handler_that_closes_the_client_takes_nobody_elses_slot(tmp_path: Path) -> None:
    """The fault: the release that it interrupts has looked at the slot, and writes afterwards."""
    tmp_path.chmod(0o700)
    second, third = (coordlock.connect(f"local://{tmp_path}?request_timeout=30s") for _ in range(2))
    with ThreadPoolExecutor(2) as pool:
        for moment in itertools.count(1):
            first = coordlock.connect(f"local://{tmp_path}?request_timeout=30s")
            held = first.lock("q").acquire()
            waiting = [pool.submit(second.lock("q").acquire)]  # so that the file stays
            eventually(lambda: len(second.admin.contenders("q")) == 2)

            def handle() -> None:
                first.close()  # noqa: B023
                waiting.append(pool.submit(third.lock("q").acquire))  # noqa: B023
                # Else nobody is added before the release goes on.
                if not no_fork._is_owned():  # type: ignore[attr-defined]
                    eventually(lambda: len(second.admin.contenders("q")) == 2)

            with Signal(moment, handle, coordlock_local) as signal:
                held.release()
            for one in waiting:
                one.result(30).release()
            first.close()
            if not signal.came:
                break
    assert moment > 20
    second.close()
    third.close()


def test_a_signal_handler_closes_the_client_whose_watcher_waits_for_what_it_interrupted(
    tmp_path: Path,
) -> None:
    """The fault: closing waited for ever for the thread, which waited for the lock."""
    tmp_path.chmod(0o700)
    client = coordlock.connect(f"local://{tmp_path}?request_timeout=30s")
    backend: Any = client._access.engine.backend
    with (
        coordlock.connect(f"local://{tmp_path}?request_timeout=30s") as holder,
        ThreadPoolExecutor(1) as pool,
    ):
        holder.lock("q").acquire()
        waiting = pool.submit(client.lock("q").acquire)
        watcher = backend._session.current.watcher
        eventually(lambda: watcher._thread)
        with watcher.lock:
            client.close()
        with pytest.raises(ClientClosed):
            waiting.result(30)
