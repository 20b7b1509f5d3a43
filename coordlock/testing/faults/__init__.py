"""The history of a run with faults, and the checkers that say whether the lock kept its promises.

Whoever runs clients, a resource and faults writes down what they do (`Journal`, with the events of
`coordlock.testing.faults.events`); everything here is a pure function of what was written::

    with Journal(directory / "c3.jsonl", process="c3") as journal:
        journal.log(AcquireInvoked, attempt, lock="a", claim=Mode.EX)   # before the call
        grant = client.lock("a").acquire()
        deadline = journal.moment(SYSTEM_CLOCK.now() + grant.remaining())
        journal.log(Granted, attempt, grant.token, deadline)            # after it
        ...

    # and so on, as the table below has it, by everybody who takes part; then

    history = read(sorted(directory.glob("*.jsonl")))
    verdict = judge(history, Bounds(recovery=30_000_000_000))
    assert verdict.holds, verdict
    print(summary(history, verdict).text())

What is to be logged, and when:

========== =====================================================================================
runner     `RunBegan` first; `Counted` with ``baseline``; at the end, when all faults are healed
           and all calls answered: `Quiesced`, then `Counted` again, `FinalSet` or `FinalValue`
           of each resource, `Surveyed`, `RunEnded`
acquire    `AcquireInvoked` before the call; `Granted` or `AcquireFailed` first thing after it;
           `Withdrawn` before it is cancelled from outside; `Enqueued` if the token is seen
release    `ReleaseSent` before the call, or before the client is closed; `ReleaseAcknowledged`
           or `ReleaseFailed` after it
loss       `LossSignalled` as soon as the signal is set, in a thread that waits for it
resource   `OperationOffered` before it is sent; `OperationAccepted` with the resource's own
           order, `OperationRefused` or `OperationFailed` after the answer
nemesis    `FaultBegan` before each fault, `FaultHealed` after its end; a client process that
           dies for any reason was KILLED, and its name is not used again
observer   `ContenderAppeared` and `ContenderDisappeared` from the service's record, at any time
========== =====================================================================================

Before is before and after is after: the checkers take every time literally, and an event that is
logged on the wrong side of its call makes them wrong. They need no lock of the service under test,
and none of them trusts a client: a history in which something is missing is no proof of anything,
which `completeness` says.
"""

from coordlock.testing.faults.attempt import Attempt
from coordlock.testing.faults.bounds import DEFAULT_BOUNDS, Bounds
from coordlock.testing.faults.completeness import completeness
from coordlock.testing.faults.exclusion import exclusion
from coordlock.testing.faults.fifo import fifo
from coordlock.testing.faults.history import History
from coordlock.testing.faults.journal import Journal, MalformedHistory, read
from coordlock.testing.faults.leaks import leaks
from coordlock.testing.faults.linearizability import linearizability
from coordlock.testing.faults.liveness import liveness
from coordlock.testing.faults.loss import loss
from coordlock.testing.faults.overlap import Overlap, overlaps
from coordlock.testing.faults.register import register
from coordlock.testing.faults.summary import Summary, summary
from coordlock.testing.faults.tokens import tokens
from coordlock.testing.faults.verdict import CHECKERS, Verdict, judge
from coordlock.testing.faults.violation import Violation

__all__ = [
    "CHECKERS",
    "DEFAULT_BOUNDS",
    "Attempt",
    "Bounds",
    "History",
    "Journal",
    "MalformedHistory",
    "Overlap",
    "Summary",
    "Verdict",
    "Violation",
    "completeness",
    "exclusion",
    "fifo",
    "judge",
    "leaks",
    "linearizability",
    "liveness",
    "loss",
    "overlaps",
    "read",
    "register",
    "summary",
    "tokens",
]
