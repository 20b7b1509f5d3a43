from __future__ import annotations

import copy
import gc
import logging
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

import coordlock
from coordlock import AcquireTimeout, Mode, Settings
from coordlock.runtime.log import flush
from coordlock.testing.waiting import eventually

URL = "memory://waiting-on-oneself"


@pytest.mark.parametrize("through", ["its client", "another client"])
def test_a_thread_that_waits_for_itself_is_warned_and_told(
    through: str, caplog: pytest.LogCaptureFixture, root: str
) -> None:
    def warnings() -> list[logging.LogRecord]:
        assert flush(60)
        return [one for one in caplog.records if one.levelno == logging.WARNING]

    with coordlock.connect(URL + root) as client, coordlock.connect(URL + root) as other:
        lock = (client if through == "its client" else other).lock("q")
        grant = client.lock("q").acquire()
        with pytest.raises(AcquireTimeout, match="held by this process since") as caught:
            lock.acquire(timeout=0.5)
        assert "in this thread" in str(caught.value)

        def release_once_warned() -> None:
            eventually(warnings)
            grant.release()

        with ThreadPoolExecutor(1) as pool:
            pool.submit(release_once_warned)
            lock.acquire(timeout=60).release()
        assert ["holds itself" in one.getMessage() for one in warnings()] == [True]


def test_another_threads_grant_is_named_without_a_warning(
    caplog: pytest.LogCaptureFixture, root: str
) -> None:
    done = threading.Event()
    with coordlock.connect(URL + root) as client:
        grants: list[coordlock.Grant] = []

        def hold() -> None:
            grants.append(client.lock("q").acquire())
            done.wait(60)

        thread = threading.Thread(target=hold, name="the-holder")
        thread.start()
        while not grants:
            done.wait(0.01)
        with pytest.raises(AcquireTimeout, match="in thread 'the-holder'"):
            client.lock("q").acquire(timeout=1.5)
        done.set()
        thread.join()
    assert "holds itself" not in caplog.text


def test_locks_of_one_name_at_two_services_are_two(
    caplog: pytest.LogCaptureFixture, root: str
) -> None:
    url = f"memory://another-service{root}"
    with coordlock.connect(URL + root) as one, coordlock.connect(url) as other:
        grants: list[coordlock.Grant] = []
        thread = threading.Thread(target=lambda: grants.append(other.lock("q").acquire()))
        thread.start()
        thread.join()
        with one.lock("q"), pytest.raises(AcquireTimeout) as caught:
            other.lock("q").acquire(timeout=1.5)
        assert flush(30)
        assert "in this thread" not in str(caught.value)
    assert "holds itself" not in caplog.text


def drop(client: coordlock.Client) -> None:
    client.lock("q").acquire()
    gc.collect()


def test_a_grant_that_is_dropped_while_held_warns_and_stays_held(root: str) -> None:
    with coordlock.connect(URL + root) as client:
        with pytest.warns(ResourceWarning, match="'q' token=1 was dropped while it was held"):
            drop(client)
        assert client.lock("q").try_acquire() is None


def test_settings_pickle_and_what_belongs_to_a_process_says_what_to_pass(root: str) -> None:
    settings = Settings("memory", ("h",), password="p", options={"x": 1})
    assert pickle.loads(pickle.dumps(settings)) == settings
    with coordlock.connect(URL + root) as client, client.lock("q") as grant:
        for one, instead in ((client, "settings"), (client.lock("q"), "name"), (grant, "token")):
            for attempt in (pickle.dumps, copy.copy):
                with pytest.raises(TypeError, match=f"cannot be pickled or copied.*{instead}"):
                    attempt(one)


def test_a_mode_is_shown_as_it_is_written() -> None:
    assert repr(Mode.PR) == "Mode.PR"
