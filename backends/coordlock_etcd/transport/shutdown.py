"""Whether the interpreter shuts down and starts no threads any more."""

from __future__ import annotations

import threading

__all__ = ["can_start_threads"]


def can_start_threads() -> bool:
    """Whether a thread can be started: from Python 3.12 on, not after the main thread has ended.

    gRPC starts threads for calls. A call that gets no thread stays in its channel, whose
    deallocation then waits for ever. So such a call must not be tried.
    """
    if threading.main_thread().is_alive():
        return True
    try:
        threading.Thread(target=bool, name="coordlock-etcd-probe", daemon=True).start()
    except RuntimeError:
        return False
    return True
