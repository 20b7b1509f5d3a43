"""A lock service in memory that is right by its simplicity, and the histories of runs against it.

It serves one request after the other, under virtual time. Clients, messages that take their time, a
fenced resource and faults are around it, all drawn from one seed. What the checkers say of these
histories is known: nothing.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count

from coordlock_faults.bounds import Bounds
from coordlock_faults.events import (
    AcquireFailed,
    AcquireInvoked,
    ContenderAppeared,
    ContenderDisappeared,
    Enqueued,
    Event,
    FaultBegan,
    FaultHealed,
    FinalSet,
    Granted,
    Kind,
    LossSignalled,
    OperationAccepted,
    OperationOffered,
    OperationRefused,
    Quiesced,
    Reach,
    ReleaseAcknowledged,
    ReleaseSent,
    RunBegan,
    RunEnded,
    Surveyed,
    Withdrawn,
)

from coordlock.model.claim import Claim, Mode, Permit

MS = 1_000_000
TTL = 1000 * MS
#: A release waits until it is answered, or its session is over.
PATIENCE = 3600 * 1000 * MS
#: How much later than the time-to-live says the service expires a session, at least.
GRACE = 20 * MS
BOUNDS = Bounds(signal=10 * MS, recovery=30_000 * MS)

EXCLUSIVE: Sequence[Claim] = (Mode.EX,)
MODES: Sequence[Claim] = (Mode.EX, Mode.PR, Mode.PR, Mode.PW, Mode.CR, Mode.NL)
PERMITS: Sequence[Claim] = (Permit(2),)


@dataclass(eq=False)
class Session:
    """A session: what its client knows (``deadline``) and what the service does (``expiry``)."""

    name: str
    client: Client
    deadline: int
    expiry: int
    ended: bool = False  #: the client knows it
    gone: bool = False  #: the service has removed it


@dataclass(eq=False)
class Contender:
    session: Session
    attempt: str
    claim: Claim
    lock: str
    token: int = 0
    admitted: bool = False

    @property
    def key(self) -> str:
        return f"/{self.lock}/{self.attempt}"


@dataclass(eq=False)
class Client:
    """A client process, which does one thing after the other."""

    name: str
    rounds: int
    session: Session | None = None
    contender: Contender | None = None
    state: str = "idle"  #: idle, waiting, holding, releasing
    paused_until: int = 0
    cut_until: int = 0
    dead: bool = False
    steps: int = 0
    arrival: int = 0  #: of the last message to the service: they don't overtake each other


@dataclass(eq=False)
class Resource:
    """A set of integers behind a fence."""

    name: str
    exclusive: int = 0
    shared: int = 0
    order: int = 0
    values: list[int] = field(default_factory=list)

    def take(self, token: int, shared: bool) -> int:
        """The newest conflicting token, if that is why the operation is refused, else 0."""
        newest = self.exclusive if shared else max(self.exclusive, self.shared)
        if token < newest:
            return newest
        if shared:
            self.shared = max(self.shared, token)
        else:
            self.exclusive = token
        self.order += 1
        return 0


class Reference:
    """One run. ``run`` gives its events."""

    def __init__(
        self,
        seed: int,
        *,
        clients: int = 4,
        rounds: int = 5,
        locks: int = 1,
        claims: Sequence[Claim] = EXCLUSIVE,
        faults: Sequence[Reach] = (),
        truth: bool = True,
        dwelling: float = 0.05,
    ) -> None:
        """``dwelling`` is how probable it is that a holder takes as long as sessions live."""
        self.random = random.Random(seed)
        self.seed = seed
        self.locks = [f"lock{number}" for number in range(locks)]
        self.claims = claims
        self.faults = faults
        self.truth = truth
        self.dwelling = dwelling
        self.rounds = rounds
        self.now = 1000 * MS
        self.events: list[Event] = []
        self.clients = [Client(f"c{number}", rounds) for number in range(clients)]
        self.queues: dict[str, list[Contender]] = {lock: [] for lock in self.locks}
        self.resources = {lock: Resource(f"of {lock}") for lock in self.locks}
        self.revision = 10
        self.stopped_until = 0
        self._heap: list[tuple[int, int, Callable[[], None]]] = []
        self._numbers = count()
        self._names = count(1)

    def run(self) -> list[Event]:
        """Let everything happen; the events."""
        parameters = {"clients": str(len(self.clients))}
        self.log(RunBegan(self.now, "runner", self.seed, "reference", self.truth, {}, parameters))
        for client in self.clients:
            self.on(client, self.between(0, 50 * MS), partial(self.begin, client))
        for reach in self.faults:
            self.at(self.between(0, 40 * MS * self.rounds), partial(self.break_, reach))
        while self._heap:
            self.now, _, action = heapq.heappop(self._heap)
            action()
        self.now += 1
        self.log(Quiesced(self.now, "runner"))
        for resource in self.resources.values():
            for first in range(0, max(len(resource.values), 1), 100):
                values = tuple(resource.values[first : first + 100])
                self.log(FinalSet(self.now, "runner", resource.name, values))
        if self.truth:
            self.now += 100 * MS  # the observer's are all in by then
            self.log(Surveyed(self.now, "observer", self.revision))
        self.log(RunEnded(self.now, "runner"))
        return self.events

    # Time and messages

    def between(self, least: int, most: int) -> int:
        return self.random.randint(least, most)

    def at(self, delay: int, action: Callable[[], None]) -> None:
        heapq.heappush(self._heap, (self.now + delay, next(self._numbers), action))

    def on(self, client: Client, delay: int, action: Callable[[], None]) -> None:
        """Do something in the client's process, once it runs."""

        def act() -> None:
            if client.dead:
                return
            if client.paused_until > self.now:
                self.on(client, client.paused_until - self.now, action)
            else:
                action()

        self.at(delay, act)

    def send(self, client: Client, action: Callable[[], object]) -> None:
        """Have the service do something for the client, when the message arrives."""
        base = max(self.now, client.cut_until)
        client.arrival = max(client.arrival + 1, base + self.between(MS // 10, 5 * MS))
        self.at(client.arrival - self.now, lambda: self.serve(action))

    def serve(self, action: Callable[[], object]) -> None:
        if self.stopped_until > self.now:
            self.at(self.stopped_until - self.now, lambda: self.serve(action))
        else:
            action()

    def reply(self, client: Client, action: Callable[[], None]) -> None:
        delay = max(self.now, client.cut_until) - self.now + self.between(MS // 10, 5 * MS)
        self.on(client, delay, action)

    def log(self, event: Event) -> None:
        self.events.append(event)

    # Clients

    def begin(self, client: Client) -> None:
        if not client.rounds:
            session, client.session = client.session, None
            if session is not None:
                session.ended = True
                self.send(client, lambda: self.remove_session(session))
            return
        client.rounds -= 1
        if client.session is None:
            self.open(client)
        assert client.session is not None
        lock = self.random.choice(self.locks)
        claim = self.random.choice(self.claims)
        one = f"{client.name}-{next(self._names)}"
        contender = client.contender = Contender(client.session, one, claim, lock)
        client.state = "waiting"
        self.log(AcquireInvoked(self.now, client.name, one, lock, claim))
        self.send(client, lambda: self.enqueue(contender))
        if self.random.random() < 0.1:
            patience = self.between(MS, 60 * MS)
            self.on(client, patience, lambda: self.give_up(client, contender))

    def open(self, client: Client) -> None:
        session = client.session = Session(
            f"s{next(self._names)}", client, self.now + TTL, self.now + TTL + GRACE
        )
        self.at(TTL + GRACE, lambda: self.check_expiry(session))
        self.on(client, TTL, lambda: self.check_deadline(session))
        self.on(client, TTL // 3, lambda: self.beat(session))

    def beat(self, session: Session) -> None:
        client, sent = session.client, self.now
        if session.ended:
            return

        def renewed() -> None:
            if not session.ended and self.now < session.deadline:
                session.deadline = max(session.deadline, sent + TTL)

        def renew() -> None:
            if not session.gone:
                session.expiry = self.now + TTL + GRACE
                self.reply(client, renewed)

        self.send(client, renew)
        self.on(client, TTL // 3, lambda: self.beat(session))

    def check_deadline(self, session: Session) -> None:
        if session.ended:
            return
        if self.now < session.deadline:
            delay = session.deadline - self.now
            self.on(session.client, delay, lambda: self.check_deadline(session))
        else:
            self.lose(session.client, "expired")

    def lose(self, client: Client, reason: str) -> None:
        """The session is over for the client, and all that it had."""
        session, contender = client.session, client.contender
        assert session is not None
        if reason == "expired":
            session.ended, client.session = True, None
        if contender is None:
            return
        one = contender.attempt
        match client.state:
            case "waiting":
                self.log(AcquireFailed(self.now, client.name, one, "SessionLost"))
            case "holding":
                deadline = session.deadline
                self.log(LossSignalled(self.now, client.name, one, reason, deadline))
            case "releasing":
                self.log(ReleaseAcknowledged(self.now, client.name, one, held=False))
        self.over(client)

    def over(self, client: Client) -> None:
        client.contender, client.state = None, "idle"
        self.on(client, self.between(0, 30 * MS), lambda: self.begin(client))

    def give_up(self, client: Client, contender: Contender) -> None:
        if client.contender is not contender or client.state != "waiting":
            return
        error = self.random.choice(["AcquireTimeout", "CancelledError"])
        if error == "CancelledError":
            self.log(Withdrawn(self.now, client.name, contender.attempt))
        self.log(AcquireFailed(self.now, client.name, contender.attempt, error))
        self.send(client, lambda: self.remove(contender))
        self.over(client)

    def enqueued(self, client: Client, contender: Contender) -> None:
        if client.contender is contender and client.state == "waiting":
            one = contender.attempt
            self.log(Enqueued(self.now, client.name, one, contender.token))

    def granted(self, client: Client, contender: Contender) -> None:
        if client.contender is not contender or client.state != "waiting":
            return
        if self.now >= contender.session.deadline:
            self.lose(client, "expired")
            return
        client.state, client.steps = "holding", self.between(0, 3)
        deadline = contender.session.deadline
        one = contender.attempt
        self.log(Granted(self.now, client.name, one, contender.token, deadline))
        self.work(client, contender)

    def work(self, client: Client, contender: Contender) -> None:
        """The next thing under the lock, whether it is held or not: the client doesn't ask."""
        if client.contender is not contender or client.state != "holding":
            return
        if client.steps:
            client.steps -= 1
            long = self.random.random() < self.dwelling
            delay = self.between(0, 2 * TTL if long else 10 * MS)
            self.on(client, delay, lambda: self.operate(client, contender))
            return
        client.state = "releasing"
        one = contender.attempt
        self.log(ReleaseSent(self.now, client.name, one, PATIENCE))

        def acknowledged(held: bool) -> None:
            if client.contender is contender and client.state == "releasing":
                self.log(ReleaseAcknowledged(self.now, client.name, one, held))
                self.over(client)

        def release() -> None:
            held = self.remove(contender)
            self.reply(client, lambda: acknowledged(held))

        self.send(client, release)

    def operate(self, client: Client, contender: Contender) -> None:
        if client.contender is not contender or client.state != "holding":
            return
        if contender.claim not in (Mode.EX, Mode.PW, Mode.PR):
            self.work(client, contender)
            return
        name, value = f"operation{next(self._names)}", next(self._names)
        shared = contender.claim is Mode.PR
        kind = Kind.READ if shared else self.random.choice([Kind.READ, Kind.ADD])
        resource = self.resources[contender.lock]
        self.log(
            OperationOffered(
                self.now,
                client.name,
                name,
                resource.name,
                contender.attempt,
                contender.token,
                shared,
                kind,
                value if kind is Kind.ADD else None,
            )
        )

        def refused(newest: int) -> None:
            self.log(OperationRefused(self.now, client.name, name, newest))
            self.work(client, contender)

        def accepted(order: int) -> None:
            self.log(OperationAccepted(self.now, client.name, name, order))
            self.work(client, contender)

        def decide() -> None:
            newest = resource.take(contender.token, shared)
            if newest:
                self.on(client, MS, lambda: refused(newest))
                return
            if kind is Kind.ADD:
                resource.values.append(value)
            order = resource.order
            if self.random.random() < 0.5:
                self.log(OperationAccepted(self.now, "resource", name, order))
            self.on(client, MS, lambda: accepted(order))

        self.at(self.between(MS // 10, 3 * MS), decide)

    # The service

    def enqueue(self, contender: Contender) -> None:
        session = contender.session
        if session.gone:
            return
        self.revision += self.between(1, 3)
        contender.token = self.revision
        self.queues[contender.lock].append(contender)
        self.observe(
            lambda at: ContenderAppeared(
                at,
                "observer",
                contender.lock,
                contender.key,
                contender.token,
                contender.claim,
                session.name,
                contender.token,
            )
        )
        if self.random.random() < 0.5:
            self.reply(session.client, lambda: self.enqueued(session.client, contender))
        self.admit(contender.lock)

    def admit(self, lock: str) -> None:
        """Tell those whose turn has come."""
        for place, one in enumerate(self.queues[lock]):
            if one.admitted:
                continue
            before = self.queues[lock][:place]
            if isinstance(one.claim, Permit):
                free = place < one.claim.of
            else:
                mode = one.claim
                free = not any(
                    isinstance(b.claim, Mode) and mode.conflicts(b.claim) for b in before
                )
            if free:
                one.admitted = True
                client = one.session.client
                self.reply(client, partial(self.granted, client, one))

    def remove(self, contender: Contender, revision: int = 0) -> bool:
        queue = self.queues[contender.lock]
        if contender not in queue:
            return False
        queue.remove(contender)
        if not revision:
            self.revision += 1
        gone = self.revision
        self.observe(lambda at: ContenderDisappeared(at, "observer", contender.key, gone))
        self.admit(contender.lock)
        return True

    def remove_session(self, session: Session) -> None:
        session.gone = True
        self.revision += 1
        for queue in self.queues.values():
            for one in [one for one in queue if one.session is session]:
                self.remove(one, self.revision)

    def check_expiry(self, session: Session) -> None:
        if session.gone:
            return
        # What a service was told before it stood still, it has to look at first.
        due = max(session.expiry, self.stopped_until + GRACE)
        if self.now < due:
            self.at(due - self.now, lambda: self.check_expiry(session))
        else:
            self.remove_session(session)

    def observe(self, event: Callable[[int], Event]) -> None:
        if self.truth:
            self.log(event(self.now + self.between(0, 50 * MS)))

    # Faults

    def break_(self, reach: Reach) -> None:
        alive = [one for one in self.clients if not one.dead]
        busy = [one for one in alive if one.contender is not None] or alive or self.clients
        if self.random.random() < 0.7:
            busy = [one for one in alive if one.state == "holding"] or busy
        client = self.random.choice(busy)
        fault, length = f"fault{next(self._names)}", self.between(TTL // 10, 3 * TTL)
        until = self.now + length
        targets: tuple[str, ...] = (client.name,)
        match reach:
            case Reach.PAUSED:
                client.paused_until = max(client.paused_until, until)
            case Reach.KILLED:
                client.dead, length = True, MS
            case Reach.NETWORK:
                client.cut_until = max(client.cut_until, until)
            case Reach.SERVERS:
                self.stopped_until = max(self.stopped_until, until)
                targets = ("server",)
            case Reach.OPERATOR:
                queue = [one for queue in self.queues.values() for one in queue]
                if not queue:
                    return
                victim = self.random.choice(queue)
                targets, length = (victim.key if self.truth else victim.lock,), 0
                self.remove(victim)
                self.reply(victim.session.client, lambda: self.evicted(victim))
            case _:
                raise AssertionError(reach)
        kind = reach.name.lower()
        self.log(FaultBegan(self.now, "nemesis", fault, kind, reach, targets))
        self.at(length, lambda: self.log(FaultHealed(self.now, "nemesis", fault)))

    def evicted(self, victim: Contender) -> None:
        client = victim.session.client
        if client.contender is victim and client.session is not None:
            self.lose(client, "evicted")
