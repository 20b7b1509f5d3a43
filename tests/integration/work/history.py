"""What the workers of a test have said, and what must be true of it."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path


class History:
    """The lines of a log, by what they say of each item."""

    def __init__(self, log: Path) -> None:
        self.lines = [line.split() for line in log.read_text().splitlines()]

    def items(self, what: str) -> list[str]:
        """The items of which ``what`` was said, in the order of the log."""
        return [line[1] for line in self.lines if line[0] == what]

    def check(self, kills: int) -> None:
        """Raise AssertionError unless each item was put once and done once, but for the killed.

        A worker that was killed between the service's answer and its line has not said so: that
        may be as many items as there were ``kills``.
        """
        accepted = self.items("put")
        assert len(accepted) == len(set(accepted))
        done = self.items("done")
        assert len(done) == len(set(done)), "an item was accepted twice"
        ended = set(self.items("ends"))
        assert set(done) <= ended
        untold = set(accepted) - set(done)
        assert untold <= ended, f"lost: {sorted(untold - ended)}"
        assert len(untold) <= kills
        assert set(self.items("begins")) <= set(self.items("puts"))
        assert not self.items("starves")
        self._check_tokens()

    def _check_tokens(self) -> None:
        """Each attempt at an item has a greater token than those before."""
        tokens: dict[str, list[tuple[int, int]]] = defaultdict(list)
        for line in self.lines:
            if line[0] == "begins":
                _, item, _, attempt, token = line
                tokens[item].append((int(attempt), int(token)))
        for item, found in tokens.items():
            by_attempt = sorted(found)
            assert len({attempt for attempt, _ in found}) == len(found), f"{item}: {found}"
            assert [token for _, token in by_attempt] == sorted({token for _, token in found}), item
