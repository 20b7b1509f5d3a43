"""Does what is planned to a system and its clients, and makes it good in the end."""

from __future__ import annotations

import time
from collections.abc import Collection
from random import Random
from typing import Final

from coordlock_faults.events import FaultBegan, FaultHealed, Reach

from coordlock.testing.waiting import eventually
from testbed.nemesis.catalogue import FAULTS
from testbed.nemesis.fault_maker import FaultMaker, Scene
from testbed.nemesis.schedule import Episode, schedule
from testbed.systems.system import Uncertain

__all__ = ["Nemesis"]

#: Seconds in which nodes get well that were killed, paused and cut off, on a busy machine.
_RECOVERY: Final = 120.0
_LOOK: Final = 0.1


class Nemesis:
    """Faults by a seed: the same seed and names give the same faults, roles of targets, and times.

    Whoever calls `run` and `heal` does so on a thread that lives longer than the system, because
    nodes die with the thread that started them.

    Args:
        scene: whom to strike, and where faults are logged: before they are made, and once healed.
        seed: decides.
        faults: names in `FAULTS`; those that are not for the system are left out.
    """

    def __init__(self, scene: Scene, seed: int, faults: Collection[str]) -> None:
        self._scene = scene
        self._system = scene.system
        self._episodes = schedule(seed, faults, scene.system.name)
        self._active: list[FaultMaker] = []

    def run(self, seconds: float) -> None:
        """Fault after fault, for so long; the last one is cut short. May be called again."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            episode = next(self._episodes, None)
            if episode is None:
                _sleep_until(deadline)
                return
            # One that has not recovered from the last fault is one too few for the next.
            while not self._is_well() and time.monotonic() < deadline:
                time.sleep(_LOOK)
            self._play(episode, deadline)
            _sleep_until(min(time.monotonic() + episode.calm, deadline))

    def _play(self, episode: Episode, deadline: float) -> None:
        start = time.monotonic()
        ends: list[tuple[float, FaultMaker]] = []
        for planned in episode.faults:
            _sleep_until(min(start + planned.after, deadline))
            if time.monotonic() < deadline:
                fault = FAULTS[planned.name](self._scene, Random(planned.seed))
                self._active.append(fault)
                try:
                    fault.begin()
                except Uncertain:
                    # It may be done yet, so it is not over before `heal`.
                    continue
                ends.append((time.monotonic() + planned.seconds, fault))
        for due, fault in sorted(ends, key=lambda end: end[0]):
            _sleep_until(min(due, deadline))
            fault.end()
            self._active.remove(fault)

    def heal(self) -> None:
        """End everything, resume and restart everybody, and wait until the system is well.

        Idempotent, and works after a `run` that raised. TimeoutError when the system does not get
        well.
        """
        self._system.network.heal()
        self._system.clocks.heal()
        for name in self._scene.clients.names():
            self._scene.clients.resume(name)
        eventually(self._is_well, f"{self._system.name} to be well again", within=_RECOVERY)
        while self._active:
            self._active.pop().log_end()

    def _is_well(self) -> bool:
        """Resume and restart all nodes, and look; deaths without a fault go to the history."""
        for name, node in self._system.nodes.items():
            if node.is_running:
                node.resume()
            elif any(name in fault.targets for fault in self._active):
                self._system.start_node(name)
            else:
                fault = f"ended-by-itself-{next(self._scene.numbers)}"
                self._scene.journal.log(
                    FaultBegan, fault, "ended-by-itself", Reach.SERVERS, (name,)
                )
                self._system.start_node(name)
                self._scene.journal.log(FaultHealed, fault)
        return self._system.is_well()


def _sleep_until(moment: float) -> None:
    time.sleep(max(0.0, moment - time.monotonic()))
