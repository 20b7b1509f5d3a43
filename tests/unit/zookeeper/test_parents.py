"""The nodes above contenders, without a server."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from coordlock_zookeeper.errors import NotEmpty, UnknownRequest
from coordlock_zookeeper.parents import Parents
from coordlock_zookeeper.requests import Answer, Requests

from coordlock.errors import BackendError
from coordlock.runtime.driver import run_in_background
from coordlock.runtime.promise import Promise, failed


def refused(error: BackendError) -> Promise[Answer]:
    return failed(error)


@pytest.fixture
def parents() -> Parents:
    requests = Requests(SimpleNamespace(), lambda request, answer: None)
    return Parents(requests, "/root", (), are_lasting=False)


def test_an_old_server_refuses_the_containers_of_several_queues_at_once(parents: Parents) -> None:
    answers = [refused(UnknownRequest("zookeeper", "?")) for _ in range(2)]
    assert run_in_background(parents.check(answers)).exception(0) is None
    # It is asked for no more containers, so that is an error of something else.
    again = run_in_background(parents.check(answers)).exception(0)
    assert isinstance(again, UnknownRequest)


def test_what_no_other_attempt_mends_is_raised(parents: Parents) -> None:
    answers = [refused(UnknownRequest("zookeeper", "?")), refused(NotEmpty("zookeeper", "?"))]
    assert isinstance(run_in_background(parents.check(answers)).exception(0), NotEmpty)
