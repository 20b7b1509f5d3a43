"""A Celery application whose tasks are locked, and whose beat sends each slot once."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import celery

import coordlock
from coordlock.integrations.celery import LockedTask

directory = Path(os.environ["LOCKED_DIRECTORY"])
app = celery.Celery("locked", broker=os.environ["LOCKED_BROKER"])
app.conf.update(
    broker_transport_options=json.loads(os.environ["LOCKED_OPTIONS"]),
    coordlock=os.environ["LOCKED_URL"],
    worker_prefetch_multiplier=1,
    beat_schedule={"each-second": {"task": "counted", "schedule": 1.0}},
    beat_schedule_filename=str(directory / f"schedule-{os.getpid()}"),
    beat_max_loop_interval=1,
)


def note(line: str) -> None:
    """Add a line to the ledger, in one step."""
    with open(directory / "ledger", "a") as ledger:
        ledger.write(f"{line}\n")


def book(account: str, number: int) -> None:
    """Add a line to the account, in a way that loses some without a lock."""
    file = directory / account
    lines = file.read_text() if file.exists() else ""
    time.sleep(0.005)
    file.write_text(f"{lines}{number}\n")
    note(f"booked {account} {number}")


def hold(self: Any, account: str) -> None:
    """Hold the lock until the test says to go on."""
    note(f"begin {os.getpid()} {self.request.retries}")
    while not (directory / "go-on").exists():
        time.sleep(0.01)
    try:
        self.grant.check()
    except coordlock.LockLost:
        note("lost")
        raise
    note("end")


def drop(account: str) -> None:
    """Note that it was not dropped."""
    note("dropped it not")


def mark(word: str) -> None:
    """Note a word."""
    note(word)


def loaded(module: str) -> None:
    """Note whether the module was imported before any lock was asked for."""
    note(f"loaded {module in sys.modules}")


locked = {"base": LockedTask, "lock": "account/{account}", "busy_countdown": 0.1}
app.task(book, name="book", **locked)
app.task(hold, name="hold", bind=True, acks_late=True, reject_on_worker_lost=True, **locked)
app.task(drop, name="drop", on_busy="drop", **locked)
app.task(mark, name="mark")
app.task(loaded, name="loaded")
