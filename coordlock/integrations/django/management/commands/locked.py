"""``manage.py locked NAME COMMAND``: ``coordlock run`` with the settings of Django."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from argparse import REMAINDER
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Final

from django.core.management.base import BaseCommand, CommandError

import coordlock
from coordlock.integrations.django.client import get_client, target


class Command(BaseCommand):  # type: ignore[misc]  # Django has no types
    """Become ``coordlock run``, which starts ``manage.py COMMAND`` once it holds the lock."""

    help = (
        "Hold the lock NAME while another command runs, as in: manage.py locked migrate migrate. "
        "If the lock is lost, that command is ended. The exit status is its own, 75 if the lock "
        "was not acquired, and 79 if it was lost."
    )
    requires_system_checks: Final[Sequence[str]] = ()

    def add_arguments(self, parser: Any) -> None:
        """NAME, COMMAND with its arguments, and before them how long to wait."""
        parser.add_argument("--timeout", help="fail after this long, such as 30s, 10m or 0")
        parser.add_argument("name", metavar="NAME")
        parser.add_argument("command", metavar="COMMAND", nargs=REMAINDER)

    def handle(
        self, *_: Any, name: str, command: list[str], timeout: str | None, **__: Any
    ) -> None:
        """Replace this process."""
        if not command:
            raise CommandError("there is no COMMAND: manage.py locked migrate migrate")
        try:
            get_client()
        except coordlock.CoordlockError as error:
            raise CommandError(str(error)) from error
        # The settings may hold a password: not for the command line, nor for the environment.
        with tempfile.TemporaryFile() as file:
            file.write(_as_toml(target()).encode())
            file.flush()
            file.seek(0)
            os.set_inheritable(file.fileno(), True)
            environment = {**os.environ, "COORDLOCK_CONFIG": f"/dev/fd/{file.fileno()}"}
            environment.pop("COORDLOCK_URL", None)
            options = [] if timeout is None else ["--timeout", timeout]
            options += ["--label", f"manage.py {command[0]}"]
            module = [sys.executable, "-m"]
            # Run by `python -m django`, the file itself would find Django's modules for Python's.
            by_module = os.path.basename(sys.argv[0]) == "__main__.py"
            manage = [*module, "django"] if by_module else [sys.executable, sys.argv[0]]
            line = [*module, "coordlock", "run", name, *options, "--", *manage, *command]
            sys.stdout.flush()
            os.execve(line[0], line, environment)


def _as_toml(given: dict[str, Any]) -> str:
    """A file that coordlock reads: of texts, numbers and lists, TOML and JSON are the same."""

    def plain(value: object) -> object:
        return value.total_seconds() if isinstance(value, timedelta) else str(value)

    return "".join(
        f"{json.dumps(key)} = {json.dumps(value, default=plain, ensure_ascii=False)}\n"
        for key, value in given.items()
        if value is not None
    )
