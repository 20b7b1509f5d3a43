"""Mends `time.sleep` where libfaketime breaks it; imported before everything that may keep it.

libfaketime refuses `clock_nanosleep` until a time on CLOCK_MONOTONIC, which is what Python sleeps
with, though it leaves that clock as it is.
"""

from __future__ import annotations

import os
import threading
import time

if "FAKETIME_TIMESTAMP_FILE" in os.environ:

    def sleep(seconds: float) -> None:
        """Sleep by waiting for what never comes."""
        threading.Event().wait(seconds)

    vars(time)["sleep"] = sleep
