"""What jobs promise on every backend that keeps data, sync and async.

Subclass `JobContract` as `coordlock.testing.lock_contract.LockContract`.
"""

from __future__ import annotations

import time
import uuid
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Literal

import pytest

from coordlock import BackendError, Every, JobNotRun, LockLost, NameConflict
from coordlock.backend import Put
from coordlock.errors import (
    AlreadyDone,
    AlreadyFailed,
    AlreadyRunning,
    ConfigurationError,
)
from coordlock.jobs.view import queue_of
from coordlock.testing.client_suite import BOUND, ClientSuite, Start
from coordlock.testing.waiting import eventually
from coordlock.types import Record

__all__ = ["JobContract"]


Policy = Literal["at-most-once", "at-least-once"]
POLICIES: Final[tuple[Policy, ...]] = ("at-most-once", "at-least-once")


class JobContract(ClientSuite):
    """The suite. Every test runs with a sync and with an async client."""

    needs = ("data",)

    @pytest.fixture
    def name(self) -> str:
        """A name that no other test uses: records stay."""
        return f"t-{uuid.uuid4().hex[:12]}"

    @pytest.fixture(params=POLICIES)
    def policy(self, request: pytest.FixtureRequest) -> Any:
        """Each of the two."""
        return request.param

    def test_of_ten_that_start_a_slot_at_once_one_runs_it(
        self, client: Any, other: Any, name: str, policy: Policy, start: Start
    ) -> None:
        ran: list[int] = []

        def work(one: Any) -> str:
            try:
                with one.job(name, policy=policy, overlap="queue").run(7) as run:
                    ran.append(run.token)
            except JobNotRun as refused:
                return type(refused).__name__
            return "ran"

        working = [start(work, one) for one in (client, other) * 5]
        outcomes = sorted(one.result(BOUND) for one in working)
        assert len(ran) == 1
        assert outcomes == ["AlreadyDone"] * 9 + ["ran"]
        [slot] = client.job(name).info().slots
        assert (slot.slot, slot.state, slot.attempts, slot.token) == (7, "done", 1, ran[0])
        assert slot.policy == policy
        assert slot.started <= slot.finished
        assert slot.owner

    def test_a_slot_that_failed_runs_again_as_the_policy_says(
        self, client: Any, other: Any, name: str, policy: Policy
    ) -> None:
        with pytest.raises(ZeroDivisionError), client.job(name, policy=policy).run(1):
            raise ZeroDivisionError("by 0")
        [slot] = client.job(name).info().slots
        assert (slot.state, slot.error) == ("failed", "ZeroDivisionError: by 0")
        if policy == "at-most-once":
            with pytest.raises(AlreadyFailed, match="has failed"), other.job(name).run(1):
                pytest.fail("it was started before")
            return
        refused = pytest.raises(AlreadyFailed, match="may be started again at")
        with refused, other.job(name, policy=policy, retry_delay=60).run(1):
            pytest.fail("it has just failed")
        waiting = other.job(name, policy=policy, retry_delay=0.3, overlap="queue", timeout=BOUND)
        with waiting.run(1) as run:
            assert run.attempt == 2
            assert run.token > slot.token
            assert datetime.now(UTC) - slot.finished > timedelta(seconds=0.2)
        [slot] = client.job(name).info().slots
        assert (slot.state, slot.error, slot.attempts) == ("done", None, 2)

    def test_at_least_once_ends_with_the_last_attempt(self, client: Any, name: str) -> None:
        often = client.job(name, policy="at-least-once", max_attempts=2, retry_delay=0)
        for _ in range(2):
            with pytest.raises(ZeroDivisionError), often.run(1):
                raise ZeroDivisionError
        with pytest.raises(AlreadyFailed, match="is not started again"), often.run(1):
            pytest.fail("it was started twice")
        often.retry(1)
        with often.run(1) as run:
            assert run.attempt == 3

    def test_a_run_whose_client_went_away_is_interrupted(
        self, connect: Any, client: Any, name: str, policy: Policy
    ) -> None:
        gone = connect()
        begun = gone.job(name, policy=policy).run(1)
        begun.__enter__()
        assert client.job(name).info().slots[0].state == "running"
        gone.close()
        assert client.job(name).info().slots[0].state == "interrupted"
        if policy == "at-most-once":
            for is_news in (True, False):
                with pytest.raises(AlreadyFailed, match="was interrupted") as raised:  # noqa: SIM117
                    with client.job(name).run(1):
                        pytest.fail("it was started before")
                assert raised.value.is_news == is_news
        else:
            with client.job(name, policy=policy).run(1) as run:
                assert run.attempt == 2

    def test_a_late_finisher_is_refused_and_leaves_the_record_alone(
        self, client: Any, other: Any, name: str
    ) -> None:
        late = client.job(name, policy="at-least-once").run(1)
        run = late.__enter__()
        engine = other._access.engine
        [mine] = engine.backend.snapshot(queue_of(name), owners=True).result(BOUND).contenders
        assert engine.backend.evict(mine).result(BOUND)
        with other.job(name, policy="at-least-once").run(1) as again:
            assert again.attempt == 2
            assert again.token > run.token
            with pytest.raises(LockLost):
                late.__exit__(None, None, None)
        [slot] = other.job(name).info().slots
        assert (slot.state, slot.token, slot.attempts) == ("done", again.token, 2)

    def test_while_a_job_is_at_work_others_skip_or_queue(
        self, client: Any, other: Any, name: str, start: Start
    ) -> None:
        order: list[str] = []

        def queued() -> None:
            with other.job(name, overlap="queue", timeout=BOUND).run(2):
                order.append("queued")

        with client.job(name).run(1):
            with pytest.raises(AlreadyRunning, match="is at work"), other.job(name).run(2):
                pytest.fail("the job is at work")
            waiting = start(queued)
            eventually(lambda: self._waiters(client, name) == 2)
            order.append("first")
        waiting.result(BOUND)
        assert order == ["first", "queued"]

    @staticmethod
    def _waiters(client: Any, name: str) -> int:
        snapshot = client._access.engine.backend.snapshot(queue_of(name)).result(BOUND)
        return len(snapshot.contenders)

    def test_an_effect_is_written_together_with_the_record(
        self, client: Any, other: Any, name: str, root: str
    ) -> None:
        key = f"/app-{name}/effect"
        with client.job(name).run(1) as run:
            run.finish().put(key, b"done").commit()
            with pytest.raises(RuntimeError, match="recorded already"):
                run.finish().put(key, b"twice").commit()
        assert other.value(key).get().data == b"done"
        with pytest.raises(KeyError), other.job(name).run(2) as run:
            run.finish().put(key, b"again").commit()
            raise KeyError("after the record")
        assert [slot.state for slot in client.job(name).info().slots] == ["done", "done"]
        client.value(key).delete()

    def test_instants_are_kept_in_utc_and_a_job_has_one_kind(
        self, client: Any, other: Any, name: str
    ) -> None:
        now = datetime.now(UTC).replace(microsecond=0)
        with client.job(name).run(now.astimezone()):
            pass
        with pytest.raises(AlreadyDone), other.job(name).run(now):
            pytest.fail("it is the same instant")
        with pytest.raises(NameConflict, match="integers"), other.job(name).run(1):
            pytest.fail("it is of another kind")
        assert client.job(name).info().slots[0].slot == now

    def test_an_instant_far_ahead_of_the_services_time_is_refused(
        self, client: Any, name: str
    ) -> None:
        now = datetime.now(UTC)
        with pytest.raises(ConfigurationError, match="check this host's clock"):  # noqa: SIM117
            with client.job(name, schedule=Every("1h")).run(now + timedelta(hours=1, minutes=1)):
                pytest.fail("it is too far ahead")
        assert client.job(name).info().slots == ()
        with client.job(name, schedule=Every("1h")).run(now + timedelta(minutes=58)):
            pass

    def test_the_service_tells_the_time(self, client: Any) -> None:
        engine = client._access.engine
        for _ in range(2):
            before = time.time()
            told = engine.backend.service_time().result(BOUND)
            assert before - 1 <= told <= time.time() + 1

    def test_an_operator_lets_a_slot_start_again_or_forgets_all(
        self, client: Any, other: Any, name: str
    ) -> None:
        with client.job(name).run(1), pytest.raises(AlreadyRunning):
            other.job(name).retry(1)
        with pytest.raises(LookupError, match="no record of slot 2"):
            other.job(name).retry(2)
        other.job(name).retry(1)
        assert client.job(name).info().slots[0].state == "retry"
        with client.job(name).run(1) as run:
            assert run.attempt == 2
        other.admin.delete(name, "job")
        info = client.job(name).info()
        assert (info.kind, info.floor, info.slots) == (None, None, ())
        with client.job(name).run(datetime.now(UTC)) as run:
            assert run.attempt == 1

    def test_jobs_are_listed_and_kept(self, client: Any, other: Any, name: str) -> None:
        assert client.job(name).info().slots == ()
        assert client.admin.records(name) == ()
        with client.job(name).run(1):
            [mine] = [one for one in other.admin.jobs() if one.name == name]
            assert mine.slots[0].state == "running"
        [mine] = [one for one in other.admin.jobs() if one.name == name]
        assert mine == client.job(name).info()
        assert other.admin.records(name) == (Record(name, "job", {}),)

    def test_a_job_is_deleted_unless_it_is_at_work(
        self, client: Any, other: Any, name: str
    ) -> None:
        with client.job(name).run(1), pytest.raises(NameConflict, match="at work"):
            other.admin.delete(name, "job")
        with pytest.raises(AlreadyDone), client.job(name).run(1):
            pytest.fail("it was run")
        assert other.admin.delete(name, "job")
        assert not other.admin.delete(name, "job")
        assert client.job(name).info().slots == ()
        with client.job(name).run(1) as run:
            assert run.attempt == 1

    def test_a_lock_and_a_work_queue_of_the_same_name_have_nothing_to_do_with_it(
        self, client: Any, other: Any, name: str
    ) -> None:
        other.work_queue(name).put(b"item")
        with other.lock(name).acquire(BOUND), client.job(name).run(1):
            assert name in client.admin.names()
            assert len(client.admin.contenders(name)) == 1
        with other.work_queue(name).take(BOUND), client.job(name).run(2):
            pass
        assert not [one for one in client.admin.names() if "job-" in one]

    @pytest.mark.parametrize(
        ("data", "problem"),
        [
            (b"by hand", "not as coordlock writes it"),
            (b'{"format":1,"floor":"x","slots":[]}', "not as coordlock writes it"),
            (b'{"format":99}', "newer release"),
        ],
    )
    def test_a_record_that_another_program_or_a_newer_release_wrote_is_refused(
        self, client: Any, name: str, data: bytes, problem: str
    ) -> None:
        engine = client._access.engine
        key = f"{engine.data_root}/@jobs/{name}"
        engine.backend.write([Put(key, data)]).result(BOUND)
        with pytest.raises(BackendError, match=problem), client.job(name).run(1):
            pytest.fail("the record can't be read")
        with pytest.raises(BackendError, match=problem):
            client.job(name).retry(1)
        [mine] = [one for one in client.admin.jobs() if one.name == name]
        assert problem in mine.problem
        assert engine.backend.read(key).result(BOUND).values[key].data == data
