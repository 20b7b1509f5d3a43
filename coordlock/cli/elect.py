"""``coordlock elect``: a command that leads."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from coordlock.cli.data import given
from coordlock.cli.hold import hold_for
from coordlock.cli.lock_request import LockRequest
from coordlock.cli.options import (
    as_json,
    grace_option,
    grant_options,
    name_argument,
    on_ask_option,
    waiting_options,
)
from coordlock.cli.parser import Parser, UsageError
from coordlock.cli.run import run_under
from coordlock.client import Client
from coordlock.grant import Grant

__all__ = ["elect", "parser"]


@dataclass(eq=False, repr=False)
class _Campaign(LockRequest):
    """A request to lead."""

    proposal: bytes | None = None

    def _acquire(self, client: Client) -> Callable[[float | None], Grant]:
        election = client.election(self.names[0], self.proposal)
        return lambda timeout: election.campaign(timeout=timeout)

    @property
    def what(self) -> str:
        """The election, in messages."""
        return f"election {self.names[0]!r}"

    def warn(self, message: str) -> None:
        """What --quiet hides. The library calls elections locks."""
        super().warn(message.replace(f"lock {self.names[0]!r}", self.what, 1))


class _Elect(Parser):
    def call(self, words: Sequence[str], inherited: Mapping[str, object]) -> int:
        """Keep what belongs to COMMAND from being taken for an option of ours."""
        own, command = self.split(words, 1)
        return self.act({**vars(self.parsed(own)), "command": tuple(command)}, inherited)


def parser() -> Parser:
    """Its parser."""
    parser = _Elect(
        "coordlock elect",
        elect,
        usage="NAME [OPTIONS] [[--] COMMAND...]",
        example="coordlock elect scheduler -p 10.0.0.5:8080 -- ./scheduler",
    )
    parser.has_rest = True
    name_argument(parser)
    parser.option(
        *("-p", "--proposal"),
        metavar="TEXT",
        help="What others know the leader by. Default: host and process id.",
    )
    waiting_options(parser)
    grant_options(parser)
    grace_option(parser)
    on_ask_option(parser)
    as_json(parser)
    return parser.finished()


def elect(
    *,
    name: str,
    command: tuple[str, ...],
    proposal: str | None,
    grace: float,
    on_ask: int | None,
    as_json: bool,
    **options: Any,
) -> int:
    """Campaign in the election NAME, and run COMMAND while leading.

    COMMAND is run as by `coordlock run`, with the same variables and exit statuses: 75 if it was
    not elected in time, 79 if the lead was lost, and then COMMAND was ended first. It resigns when
    COMMAND has ended. To campaign again after that, have it started again, as by systemd.

    Without COMMAND it leads until stdin closes or a signal comes, and prints the fencing token.
    """
    encoded = None if proposal is None else _proposal(proposal)
    request = _Campaign(
        name=name,
        proposal=encoded,
        locks=[],
        trees=[],
        shared=False,
        mode=None,
        slots=None,
        label=None,
        **options,
    )
    if not command:
        return hold_for(request, None, as_json)
    if as_json:
        raise UsageError("--json is for an election without COMMAND, which prints nothing else")
    return run_under(request, command, grace, on_ask)


def _proposal(text: str) -> bytes:
    """The bytes that were given. Raises `UsageError` for what cannot be published."""
    from coordlock.recipes.term import check_proposal  # the other commands need no recipes

    try:
        return check_proposal(given(text))
    except ValueError as error:
        raise UsageError(str(error)) from None
