"""Whether the interpreter still starts threads."""

from __future__ import annotations

import threading

__all__ = ["starts_threads"]


def starts_threads() -> bool:
    """Whether a thread can be started: from Python 3.12 on, not after the main thread has ended.

    gRPC starts threads for calls. A call that gets none stays in its channel, whose deallocation
    then waits for it for ever, so it must not be tried.
    """
    if threading.main_thread().is_alive():
        return True
    try:
        threading.Thread(target=bool, name="coordlock-etcd-probe", daemon=True).start()
    except RuntimeError:
        return False
    return True
