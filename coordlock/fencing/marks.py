"""The rule of all fences: which tokens they remember, and which they refuse. No I/O."""

from __future__ import annotations

from dataclasses import dataclass

from coordlock.errors import StaleToken
from coordlock.fencing.token import FencingToken
from coordlock.model.events import FenceRefused
from coordlock.runtime.recorder import RECORDER

__all__ = ["Marks", "refusal"]


@dataclass(frozen=True, slots=True)
class Marks:
    """The newest tokens that a resource has seen; 0 where there was none.

    A token is refused exactly when a newer one of a conflicting grant was seen. Conflicting grants
    of one lock follow each other in the order of their tokens, so the refused grant had ended
    before the newer one began. Readers share, so an older reader is refused only by a newer writer.

    Marks only ever grow. So it does no harm to raise them for an operation that fails later, and
    newer marks refuse whatever old ones refuse.
    """

    exclusive: int = 0
    shared: int = 0

    def newest_conflict(self, token: FencingToken) -> int:
        """The newest token seen of a grant that ``token``'s cannot be held along with, or 0."""
        return self.exclusive if token.shared else max(self.exclusive, self.shared)

    def admits(self, token: FencingToken) -> bool:
        """Whether an operation under ``token`` may go on. Equal tokens are the same grant."""
        return token.value >= self.newest_conflict(token)

    def raised(self, resource: str, token: FencingToken) -> Marks:
        """The marks once ``token`` was seen. Raises `StaleToken` when it is refused."""
        if not self.admits(token):
            raise refusal(resource, token.value, self.newest_conflict(token))
        if token.shared:
            return Marks(self.exclusive, max(self.shared, token.value))
        return Marks(token.value, self.shared)


def refusal(resource: str, token: int, newest: int) -> StaleToken:
    """The error of a fence that refuses ``token``, here or in a server. It is recorded."""
    if RECORDER.listeners:
        RECORDER.record(FenceRefused(0, "", resource, token, newest))
    return StaleToken(resource, token, newest)
