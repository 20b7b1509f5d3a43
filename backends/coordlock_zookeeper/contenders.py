"""What the node of a contender tells beside its name. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal

from coordlock.model.claim import Convertible
from coordlock.model.contender import Contender, Owner
from coordlock_zookeeper import nodes

__all__ = ["NodeReader", "session_name"]


@lru_cache(maxsize=256)  # kept once for all contenders of a client
def session_name(number: int) -> str:
    """A session's id as ZooKeeper's tools show it; empty for none."""
    # The server's number is signed; its tools show the bits.
    return f"{number % 2**64:#x}" if number else ""


@dataclass(frozen=True, slots=True)
class NodeReader:
    """Completes contenders by what their nodes hold.

    Attributes:
        tokens: what fencing tokens are: the transaction that created the node, which grows in the
            whole cluster and for ever, or its sequence.
    """

    tokens: Literal["czxid", "sequence"]

    def __call__(self, contender: Contender, data: bytes | None, stat: Any) -> Contender:
        """``contender`` with what its node tells."""
        value = Owner.published(data or b"")
        is_convertible = isinstance(contender.claim, Convertible)
        return replace(
            contender,
            claim=Convertible.decode(value) if is_convertible else contender.claim,
            token=self.token(contender.key, stat),
            session=session_name(stat.ephemeralOwner),
            owner=Owner.decode(data or b""),
            value=value,
            version=stat.version + 1,
        )

    def token(self, name: str, stat: Any) -> int | None:
        """The token of the contender ``name``, or None where it has none."""
        if self.tokens == "czxid":
            return int(stat.czxid)
        sequence = nodes.sequence_of(name)
        return sequence if sequence is not None and sequence > 0 else None
