"""The history of a run with faults, and the checkers that say whether all promises were kept.

A program that runs clients, a resource and faults writes down what they do (`Journal`, with the
events of `coordlock_faults.events`); all else here are pure functions of what was written::

    import tempfile
    from pathlib import Path

    import coordlock
    from coordlock.model.claim import Mode
    from coordlock.runtime.clock import SYSTEM_CLOCK
    from coordlock_faults import Bounds, Journal, events, judge, read

    directory = Path(tempfile.mkdtemp())
    file = directory / "c1.jsonl"
    with coordlock.connect("memory://") as client, Journal(file, process="c1") as journal:
        journal.log(events.RunBegan, seed=1, backend="memory", truth=False)

        attempt = "c1-1"
        journal.log(events.AcquireInvoked, attempt, lock="a", claim=Mode.EX)  # before the call
        grant = client.lock("a").acquire()
        deadline = journal.moment(SYSTEM_CLOCK.now() + grant.remaining())
        journal.log(events.Granted, attempt, grant.token, deadline)  # after it
        journal.log(events.ReleaseSent, attempt)
        journal.log(events.ReleaseAcknowledged, attempt, grant.release())

        # and so on, as the table below has it, by all processes, into files of their own

        journal.log(events.Quiesced)
        journal.log(events.RunEnded)

    history = read(sorted(directory.glob("*.jsonl")))
    verdict = judge(history, Bounds(recovery=30_000_000_000))
    assert verdict.holds, verdict
    print(verdict)

What is to be logged, and when:

========== =====================================================================================
runner     `RunBegan` first; at the end, when all faults are healed and all calls answered:
           `Quiesced`, then `FinalSet` or `FinalValue` of each resource, `Surveyed`, `RunEnded`
acquire    `AcquireInvoked` before the call; `Granted` or `AcquireFailed` first thing after it;
           `Withdrawn` before it is cancelled from outside; `Enqueued` if the token is seen
release    `ReleaseSent` before the call, or before the client is closed; `ReleaseAcknowledged`
           or `ReleaseFailed` after it
loss       `LossSignalled` as soon as the signal is set, in a thread that waits for it
resource   `OperationOffered` before it is sent; `OperationAccepted` with the resource's own
           order, `OperationRefused` or `OperationFailed` after the answer
nemesis    `FaultBegan` before each fault, `FaultHealed` after its end; a client process that
           dies for any reason was KILLED, and its name is not used again
recipes    `Called` before each call of an election, a group, values or a work queue, `Returned` or
           `Raised` after it; `Shown` after an observer has given a state; at the end `Present`
observer   `ContenderAppeared` and `ContenderDisappeared` from the service's record, at any time
========== =====================================================================================

Before is before and after is after: the checkers take every time literally, and an event that is
logged on the wrong side of its call makes them wrong. They need no lock of the service under test,
and none of them trusts a client: a history in which something is missing is no proof of anything,
which the invariant ``completeness`` says.
"""

from coordlock_faults import events
from coordlock_faults.bounds import Bounds
from coordlock_faults.history import History
from coordlock_faults.journal import Journal, MalformedHistory, read
from coordlock_faults.verdict import Verdict, judge
from coordlock_faults.violation import Violation

__all__ = [
    "Bounds",
    "History",
    "Journal",
    "MalformedHistory",
    "Verdict",
    "Violation",
    "events",
    "judge",
    "read",
]
