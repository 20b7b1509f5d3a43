"""What the options of `coordlock run` say about the slots of a job."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from coordlock.cli.lock_request import LockRequest
from coordlock.cli.parser import UsageError

if TYPE_CHECKING:
    from coordlock.client import Client
    from coordlock.jobs.job import Job
    from coordlock.jobs.schedule import Schedule
    from coordlock.jobs.slots import Slot

__all__ = ["CATCH_UP", "POLICIES", "SlotOptions"]

POLICIES: Final = ("at-most-once", "at-least-once")
CATCH_UP: Final = ("latest", "all")


@dataclass(eq=False, repr=False)
class SlotOptions:
    """What the options of ``run`` say about slots; their names are theirs."""

    slot: str | None
    every: str | None
    cron: str | None
    tz: str | None
    policy: str | None
    catch_up: str | None
    max_attempts: int | None
    retry_delay: float | None
    keep_stderr: bool
    quiet_elsewhere: bool
    zero_is_done: bool

    def __post_init__(self) -> None:
        #: Whether the command is a job's, and not that of a plain lock.
        self.are_given = any(one is not None for one in (self.slot, self.every, self.cron))
        others = (self.policy, self.catch_up, self.tz, self.max_attempts, self.retry_delay)
        flags = (self.keep_stderr, self.quiet_elsewhere, self.zero_is_done)
        if not self.are_given and (any(flags) or any(option is not None for option in others)):
            _, _, _, *names = (f"--{name.replace('_', '-')}" for name in self.__annotations__)
            raise UsageError(f"{', '.join(names)} go with --slot, --every or --cron")
        if self.policy != "at-least-once" and (self.max_attempts or self.retry_delay is not None):
            raise UsageError("--max-attempts and --retry-delay go with --policy at-least-once")
        if self.every is not None and self.tz is not None:
            raise UsageError("--tz goes with --cron or --slot: --every counts from midnight in UTC")
        if self.catch_up is not None and self.slot is not None:
            raise UsageError("--catch-up goes with --every or --cron, which tell what was missed")

    def fixed(self) -> Slot | None:
        """The slot that --slot names."""
        if self.slot is None:
            return None
        from coordlock.jobs.schedule import zone_named
        from coordlock.jobs.slots import parsed

        return parsed(self.slot, None if self.tz is None else zone_named(self.tz))

    def schedule(self) -> Schedule | None:
        """The schedule of --every or --cron."""
        from coordlock.jobs.schedule import Cron, Every

        if self.every is not None:
            return Every(self.every)
        return None if self.cron is None else Cron(self.cron, self.tz or "UTC")

    def job(self, client: Client, request: LockRequest, schedule: Schedule | None) -> Job:
        """The job that ``request`` names."""
        return client.job(
            request.names[0],
            policy=self.policy or "at-most-once",  # type: ignore[arg-type]  # one of POLICIES
            catch_up=self.catch_up or "latest",  # type: ignore[arg-type]  # one of CATCH_UP
            overlap="skip" if request.nonblock else "queue",
            schedule=schedule,
            max_attempts=self.max_attempts or 10,
            retry_delay=10 if self.retry_delay is None else self.retry_delay,
            timeout=client.settings.timeout if request.timeout is None else request.timeout,
        )
