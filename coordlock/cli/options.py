"""Options that several commands share, and the configuration that they make."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Final, TypeVar

import click

from coordlock.cli.completion import complete_mode, complete_name
from coordlock.cli.exits import Exit, complain
from coordlock.config import configure, warn_unless_chosen
from coordlock.errors import ConfigurationError
from coordlock.log import PREFIX
from coordlock.model.claim import MAX_PERMITS, Mode
from coordlock.registry import backend_for_scheme
from coordlock.settings import REACHES, Settings, duration

__all__ = [
    "acquire_options",
    "as_json",
    "connect_timeout_option",
    "log_to_stderr",
    "name_argument",
    "seconds",
    "settings_of",
    "url_option",
]

F = TypeVar("F", bound=Callable[..., Any])


def seconds(context: click.Context, parameter: click.Parameter, value: str | None) -> float | None:
    """The callback of options that are durations: ``15s``, ``500ms``, ``2m`` or a number."""
    try:
        return None if value is None else duration()(value)
    except ValueError as error:
        raise click.BadParameter(f"{value!r} is not {error}", context, parameter) from None


def _mode(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    """A mode in any case. `click.Choice` would name the modes in small letters in its message."""
    if value is not None and value.upper() not in Mode.__members__:
        known = ", ".join(Mode.__members__)
        raise click.BadParameter(f"{value!r} is none of {known}", context, parameter)
    return value and value.upper()


def _or_before_the_command(
    context: click.Context, parameter: click.Parameter, value: str | None
) -> str | None:
    """``value``, else what was given before the command: ``coordlock --url URL ls``."""
    if value is None and parameter.name is not None:
        value = context.find_root().params.get(parameter.name)
    return value


def _seconds_or_before(
    context: click.Context, parameter: click.Parameter, value: str | None
) -> float | None:
    return seconds(context, parameter, _or_before_the_command(context, parameter, value))


url_option: Final = click.option(
    "--url",
    callback=_or_before_the_command,
    metavar="URL",
    help="The service. Default: COORDLOCK_URL, a file, this machine.",
)
connect_timeout_option: Final = click.option(
    "--connect-timeout",
    callback=_seconds_or_before,
    metavar="DURATION",
    help="Fail when there is no connection after this long. Default: 10s.",
)
name_argument: Final = click.argument("name", shell_complete=complete_name)
as_json: Final = click.option("--json", "as_json", is_flag=True, help="Print JSON.")

_ACQUIRE: Final = (
    url_option,
    connect_timeout_option,
    click.option("-n", "--nonblock", is_flag=True, help="Fail at once when the lock is busy."),
    click.option(
        "-w",
        "--timeout",
        "--wait",
        "timeout",
        callback=seconds,
        metavar="DURATION",
        help="Fail after this long.",
    ),
    click.option("-s", "--shared", is_flag=True, help="A read lock, shared with other readers."),
    click.option(
        "--mode",
        callback=_mode,
        shell_complete=complete_mode,
        metavar="MODE",
        help="NL, CR, CW, PR, PW or EX, which is the default. PR is --shared.",
    ),
    click.option(
        "--slots",
        type=click.IntRange(1, MAX_PERMITS),
        metavar="N",
        help="A semaphore: up to N hold it at once.",
    ),
    click.option("--ttl", metavar="DURATION", help="How long the lease outlives its heartbeats."),
    click.option("--label", metavar="TEXT", help="What queue views show beside host and pid."),
    click.option(
        "--reach",
        type=click.Choice(REACHES[1:]),
        metavar="REACH",
        help="machine or cluster: refuse locks that reach less far.",
    ),
    click.option(
        "-E",
        "--conflict-exit-code",
        type=click.IntRange(0, 255),
        metavar="N",
        default=int(Exit.NOT_ACQUIRED),
        show_default=True,
        help="The exit status when the lock was not acquired.",
    ),
    click.option("-q", "--quiet", is_flag=True, help="Don't say that the lock is busy or lost."),
    click.option("-v", "--verbose", is_flag=True, help="Say what happens."),
)


def acquire_options(command: F) -> F:
    """The options of the commands that acquire a lock; named after those of flock(1)."""
    for option in reversed(_ACQUIRE):
        command = option(command)
    return command


def settings_of(url: str | None, *, alone: bool = False, **options: object) -> Settings:
    """The configuration, with those of ``options`` over it that are not None.

    Raises `ConfigurationError`, also for a backend that covers one process only, unless it is of
    use ``alone``. Otherwise says so on stderr where nothing is configured.
    """
    given = {name: value for name, value in options.items() if value is not None}
    settings = configure(url, given)
    if alone:
        return settings
    if backend_for_scheme(settings.scheme).capabilities.reach == "process":
        raise ConfigurationError(
            f"{settings.scheme}:// covers one process, so a command has nobody to exclude; "
            "use local://, etcd:// or zookeeper://"
        )
    warn_unless_chosen(settings, complain)
    return settings


def log_to_stderr() -> None:
    """Show the library's log. Without this it is quiet: what matters is told by the commands."""
    logger = logging.getLogger("coordlock")
    logger.setLevel(logging.INFO)
    logger.addHandler(_ToStderr())


class _ToStderr(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        complain(record.getMessage().removeprefix(PREFIX))
