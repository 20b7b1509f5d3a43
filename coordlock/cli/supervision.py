"""Keeping a command and its lock together: it ends before the lock does, or with it."""

from __future__ import annotations

import math
import signal
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from coordlock.cli.child import Child
from coordlock.cli.signals import ENDING, Bell, Inbox
from coordlock.cli.terminal import Terminal, alone_at_terminal, stop_myself
from coordlock.locks.grant import Grant, GrantState
from coordlock.runtime.caller import trace_context
from coordlock.runtime.clock import SYSTEM_CLOCK

__all__ = ["Limits", "Supervision"]

#: Signals to coordlock that are the command's, too. What the terminal sends goes to its foreground
#: group only, so that the command gets it from the terminal or from here, never from both.
_FORWARDED: Final = frozenset({*ENDING, signal.SIGUSR1, signal.SIGUSR2, signal.SIGTSTP})
#: How often to look, in seconds, whether what is left of a condemned group has ended: nothing
#: tells of the end of a process that is no child of ours.
_LOOK: Final = 0.05


@dataclass(eq=False, repr=False)
class Limits:
    """When a command must go for its lock, in seconds that remain of the lease.

    At ``terminate`` it gets SIGTERM, at ``kill`` SIGKILL, ``grace`` after SIGTERM at the latest.
    """

    terminate: float
    kill: float
    grace: float

    @classmethod
    def of(cls, lease: float, grace: float) -> Limits:
        """The limits for a lease that has ``lease`` seconds left after a good heartbeat.

        Heartbeats come so often that more than a third of ``lease`` always remains while all is
        well. Its last quarter means trouble.
        """
        kill = min(1.0, lease / 10)
        return cls(terminate=min(grace + kill, lease / 4), kill=kill, grace=grace)

    def until_kill(self, remaining: float) -> float:
        """Seconds from SIGTERM, which is sent now, to SIGKILL.

        When nothing remains the lock is lost already, and the whole grace is given.
        """
        if remaining <= 0:
            return self.grace
        return max(0.0, min(self.grace, remaining - self.kill))


class Supervision:
    """One run of a command under a grant.

    Raises `LockLost` when it is too late to start. Without an ``inbox``, it is for the main thread:
    from its making to `close`, signals don't interrupt.
    """

    def __init__(
        self,
        child: Child,
        grant: Grant,
        what: str,
        grace: float,
        terminal: Terminal | None,
        warn: Callable[[str], None],
        on_ask: int | None = None,
        inbox: Inbox | Bell | None = None,
    ) -> None:
        self._child = child
        self._grant = grant
        #: What is held, in messages.
        self._what = what
        grant.check()
        # The clock first, here and below: a pause in between must not move a deadline back.
        now = SYSTEM_CLOCK.now()
        self._lease = grant.remaining()
        self._deadline = now + self._lease
        self._limits = Limits.of(self._lease, grace)
        self._terminal = terminal
        self._warn = warn
        #: What the command gets, once, when somebody asks for the lock; None for nothing.
        self._on_ask = on_ask
        self._inbox = inbox or Inbox((*_FORWARDED, signal.SIGCONT))
        self._kill_at: float | None = None
        #: While the command is stopped, and this process with it: whether it had the terminal.
        self._paused_with_terminal: bool | None = None
        #: Whether the command had to go because of the lock.
        self.lost = False

    @property
    def told_to_end(self) -> int | None:
        """The signal that asked to end; None for none.

        A command that has ended since may have been cut off, whatever its status: many programs
        end with 0 then. A signal that comes with the command's own end counts, because whoever
        stops a service may have sent it to both.
        """
        self._inbox.wait(0)
        return min(self._inbox.ending, default=None)

    def run(self, environment: dict[str, str]) -> int:
        """Start the command and stay with it until its end; its exit status.

        Raises `CommandFailed`, also where the guard has died.
        """
        child, terminal = self._child, self._terminal
        self._grant.on_lost(self._inbox.ring)
        if self._on_ask is not None:
            self._grant.on_release_requested(self._inbox.ring)
        gets_terminal = terminal is not None and terminal.is_mine and alone_at_terminal()
        if terminal is not None:
            terminal.remember()
        status: int | None = None
        try:
            trace = {name.upper(): value for name, value in trace_context().items()}
            child.start(
                trace | environment,
                self._late(self._deadline),
                foreground=gets_terminal,
                wake=self._inbox.ring,
            )
            status = self._until_end()
            if self._kill_at is not None:
                self._end_the_rest(self._kill_at)
            child.dismiss()
            if child.was_late and not self.lost:
                self.lost = True
                self._warn(f"{self._what} ran out while coordlock did not run")
        finally:
            if terminal is not None:
                terminal.take_back(child.group, repair=status is None or status > 128)
        return status

    def close(self) -> int | None:
        """Let signals interrupt this process again; the one that has asked to end meanwhile."""
        self._inbox.close()
        return self.told_to_end

    def _until_end(self) -> int:
        while True:
            while (change := self._child.change()) is not None:
                if change.status is not None:
                    return change.status
                if change.stopped is not None:
                    self._stopped(change.stopped)
            self._pass_on_request()
            timeout = self._look_at_lease()
            for number in self._inbox.wait(timeout)[0]:
                if number in _FORWARDED:
                    self._child.send(number)
                elif number == signal.SIGCONT:
                    self._continue()

    def _pass_on_request(self) -> None:
        """Tell the command that somebody has asked for the lock."""
        if self._on_ask is not None and self._grant.release_requested.is_set():
            self._child.send(self._on_ask)
            self._on_ask = None

    def _look_at_lease(self) -> float | None:
        """End the command if it is time to; seconds until the next look, None for any."""
        now = SYSTEM_CLOCK.now()
        if self._kill_at is not None:
            if now < self._kill_at:
                return self._kill_at - now
            self._child.send(signal.SIGKILL)
            return None
        remaining = self._grant.remaining()
        if remaining > self._limits.terminate:
            self._extend(now + remaining)
            if remaining == math.inf:
                return None
            return min(remaining - self._limits.terminate, self._lease / 3)
        self._condemn(now, remaining)
        return self._look_at_lease()

    def _condemn(self, now: float, remaining: float) -> None:
        grant = self._grant
        self.lost = True
        self._inbox.ending.discard(signal.SIGHUP)  # the command has gone on: it was to reload
        if grant.state is GrantState.LOST:
            self._warn(f"{self._what} is lost: {grant.lost.reason}; ending the command")
        else:
            limit = grant._ticket.limit
            why = "and heartbeats are not answered"
            if limit is not None and limit.remaining <= remaining:
                why = "because --max-hold or max_hold limits it"
            self._warn(f"{self._what} runs out in {remaining:.1f} s {why}; ending the command")
        self._terminate(now, remaining)

    def _terminate(self, now: float, remaining: float) -> None:
        """Let the command and what it started end within the grace, and the lease."""
        self._child.send(signal.SIGTERM)
        self._child.send(signal.SIGCONT)  # a stopped process gets no signal before
        until_kill = self._limits.until_kill(remaining)
        self._kill_at = now + until_kill
        self._extend(self._kill_at + self._limits.kill)

    def _extend(self, deadline: float) -> None:
        """Let the guard wait until ``deadline``; it strikes a little before, to be in time."""
        self._child.extend(self._late(deadline))

    def _late(self, deadline: float) -> float:
        """When the guard kills: after this process would have, and before ``deadline``."""
        return deadline - self._limits.kill / 2

    def _end_the_rest(self, kill_at: float) -> None:
        """The command itself has gone. What it started gets the rest of the grace, then SIGKILL."""
        while self._child.has_members() and SYSTEM_CLOCK.now() < kill_at:
            self._inbox.wait(_LOOK)
        self._child.send(signal.SIGKILL)

    def _stopped(self, by: int) -> None:
        """The command stopped: it needs the terminal, or the user wants the shell."""
        terminal, child = self._terminal, self._child
        if terminal is None:
            return
        for_terminal = by in (signal.SIGTTIN, signal.SIGTTOU)
        if for_terminal and terminal.is_mine:
            terminal.give_to(child.group)
            child.send(signal.SIGCONT)
            return
        had_it = terminal.foreground == child.group
        if not (had_it or for_terminal or by == signal.SIGTSTP):
            return  # it was stopped from elsewhere, and will be continued from there
        terminal.take_back(child.group)
        self._paused_with_terminal = had_it
        stop_myself()
        if not for_terminal:
            # Continued, or never stopped because no shell is there: then Ctrl-Z comes to nothing.
            self._continue()

    def _continue(self) -> None:
        """This process was continued (fg, bg): so go on with the command."""
        had_it, self._paused_with_terminal = self._paused_with_terminal, None
        if had_it is None:
            return
        if had_it and self._terminal is not None and self._terminal.is_mine:
            self._terminal.give_to(self._child.group)
        if self._grant.state is not GrantState.LOST:
            self._child.send(signal.SIGCONT)
