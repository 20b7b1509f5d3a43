"""What a run is made of."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

__all__ = ["Plan"]


@dataclass(frozen=True, slots=True)
class Plan:
    """What a run is made of; with the same one the nemesis does the same.

    Attributes:
        workload: what the clients do: a name in `testbed.clients.workloads`.
        seed: of the nemesis and of all clients.
        seconds: how long there are faults.
        clients: how many client processes there are at a time.
        ttl: the sessions' time-to-live, in seconds.
        faults: names in `testbed.nemesis.FAULTS`; None for all that fit the service, and none
            at all for a calm run.
    """

    workload: str
    seed: int
    seconds: float = 10.0
    clients: int = 4
    ttl: float = 2.0
    faults: Collection[str] | None = None

    @property
    def name(self) -> str:
        """A name for its files and its root."""
        return f"{self.workload}-{self.seed}"

    def command(self, backend: str) -> str:
        """What does this run again."""
        options = [
            *(backend, "--runs", "1", "--seed", str(self.seed), "--workloads", self.workload),
            *("--seconds", f"{self.seconds:g}", "--clients", str(self.clients)),
            *("--ttl", f"{self.ttl:g}"),
        ]
        if self.faults is not None:
            options += ["--faults", *self.faults] if self.faults else ["--calm"]
        return f"make soak ARGS='{' '.join(options)}'"
