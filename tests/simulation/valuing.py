"""Values on a bad day: accounts between which is transferred, a count, and those who observe."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

from coordlock.backend import Listing, Operation, Put, VersionedValue
from coordlock.errors import VersionMismatch
from coordlock.model.contender import Contender
from coordlock.recipes import value
from coordlock.recipes.value import Value
from coordlock.recipes.values import Values, ValuesView
from coordlock.records.transaction import Transaction
from coordlock.runtime.clock import sleep
from coordlock.runtime.driver import Steps
from tests.simulation.bad_day import HONEST, PARTIES, BadDayForData, delays, indices
from tests.simulation.followers import Followers
from tests.simulation.world import Call, Party

__all__ = ["Valuing"]

ACCOUNTS = ["/accounts/a", "/accounts/b", "/accounts/c"]
COUNT = "/count"


@dataclass(frozen=True)
class Transfer:
    """Who moves one from which account to which, and for how long it thinks meanwhile."""

    who: int
    accounts: tuple[str, str]
    pause: float


transfers = st.builds(
    Transfer,
    who=indices,
    accounts=st.permutations(ACCOUNTS).map(lambda keys: (keys[0], keys[1])),
    pause=st.sampled_from([0.0, 0.0, 0.3, 3.0]),
)


class Valuing(BadDayForData):
    """Four processes that move one between two of three accounts, and add one to a count.

    After every single event: whoever observes the accounts sees all of each transfer or nothing,
    so that their sum is 0, and never what was before.

    In the end: each account holds what the transfers make that the service has accepted; each of
    them was accepted once, all that were acknowledged are among them, and none that was refused.
    The count is what was added.
    """

    def __init__(self) -> None:
        super().__init__()
        self.transfers: list[tuple[Transfer, bytes, Call[None]]] = []
        self.counts: list[Call[Any]] = []
        #: How often each transfer was accepted.
        self.accepted: Counter[bytes] = Counter()
        self.followers = Followers(self.world.service, "/accounts/", shown)
        service: Any = self.world.service
        self.do_write = service.write
        service.write = self.write

    @initialize()
    def connect(self) -> None:
        super().connect()
        for party in self.world.parties[:PARTIES]:
            self.followers.add(Values(party.access, "/accounts").observe())

    def write(self, operations: Sequence[Operation], guards: Sequence[Contender] = ()) -> int:
        """The service's, which is looked at here."""
        revision: int = self.do_write(operations, guards)
        self.accepted.update(
            {one.data.split()[1] for one in operations if isinstance(one, Put) and one.key != COUNT}
        )
        return revision

    @rule(crowd=st.lists(transfers, min_size=1, max_size=5), seconds=delays)
    def move(self, crowd: list[Transfer], seconds: float) -> None:
        for one in crowd:
            party = self.pick(one.who)
            if not party.paused:
                name = b"%d" % len(self.transfers)
                self.transfers.append((one, name, party.run(moving(party, one, name))))
        self.world.advance(seconds)

    @rule(crowd=st.lists(indices, min_size=1, max_size=3), seconds=delays)
    def count(self, crowd: list[int], seconds: float) -> None:
        for party in map(self.pick, crowd):
            if not party.paused:
                self.counts.append(party.run(Value(party.access, COUNT)._update(one_more)))
        self.world.advance(seconds)

    @rule(which=indices)
    def give_up(self, which: int) -> None:
        calls = [*(call for *_, call in self.transfers), *self.counts]
        under_way = [call for call in calls if not call.done]
        if under_way:
            under_way[which % len(under_way)].cancel()

    def check(self) -> None:
        self.followers.check()
        for view in self.followers.shown:
            assert sum(balances(view.values).values()) == 0, "a transfer is seen in part"

    def get_over(self) -> None:
        self.world.advance(300.0)  # late requests, too
        self.followers.check_present()
        expected = dict.fromkeys(ACCOUNTS, 0)
        for transfer, name, call in self.transfers:
            assert call.done
            accepted = self.accepted[name]
            if call.error is None:
                assert accepted == 1
            elif isinstance(call.error, VersionMismatch):
                assert accepted == 0, "refused, and written"
            else:
                assert isinstance(call.error, HONEST), call.error
                assert accepted <= 1
            expected[transfer.accounts[0]] -= accepted
            expected[transfer.accounts[1]] += accepted
        assert balances(self.followers.present.values) == expected, "a transfer was lost"
        self.judge_count()
        self.followers.close()

    def judge_count(self) -> None:
        found = self.world.service.read(COUNT).values.get(COUNT)
        total = 0 if found is None else int(found.data)
        assert all(call.done for call in self.counts)
        unknown = [call.error for call in self.counts if call.error is not None]
        assert all(isinstance(error, HONEST) for error in unknown), unknown
        acknowledged = [int(call.result.data) for call in self.counts if call.error is None]
        assert len(set(acknowledged)) == len(acknowledged), "an update was lost"
        assert len(acknowledged) <= total <= len(self.counts)


def moving(party: Party, transfer: Transfer, name: bytes) -> Steps[None]:
    """Read all at one moment, think, and write two accounts if they are as they were."""
    found: Mapping[str, VersionedValue] = yield party.run(
        Values(party.access, "/accounts")._get()
    ).outcome
    yield sleep(party.process, transfer.pause)
    before = balances(found)
    transaction = Transaction("/coordlock", (), partial(value.send, party.access))
    for key, moved in zip(transfer.accounts, (-1, 1), strict=True):
        version = found[key].version if key in found else 0
        transaction.expect(key, version).put(key, b"%d %s" % (before[key] + moved, name))
    yield from transaction._commit()


def one_more(data: bytes | None) -> bytes:
    return b"%d" % (int(data or b"0") + 1)


def balances(values: Mapping[str, VersionedValue]) -> dict[str, int]:
    """What is in each account."""
    found = {key: int(one.data.split()[0]) for key, one in values.items()}
    return {**dict.fromkeys(ACCOUNTS, 0), **found}


def shown(listing: Listing) -> ValuesView:
    return ValuesView(listing.values)
