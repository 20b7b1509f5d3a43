"""A session is lost once, and only its own listener learns that."""

from __future__ import annotations

import threading
from collections.abc import Callable

from coordlock.backend.session import OneSession
from coordlock.errors import BackendUnavailable, SessionLost
from coordlock.runtime.promise import failed
from coordlock.testing.backend_contract import Listener


def session(ended: Callable[[], object] = list) -> OneSession[str]:
    return OneSession("etcd", threading.RLock(), ended)


def test_a_session_is_lost_once() -> None:
    listener = Listener()
    one = session(lambda: listener.events.append("ended"))
    assert one.begin("1", listener)
    one.suspect("broken")
    one.recovered()
    assert one.lose("1", "expired").reason == "expired"
    one.lose("1", "expired")
    one.suspect("broken")
    assert listener.events == ["suspect: broken", "recovered", "ended", "lost: expired"]
    assert one.current is None


def test_a_request_between_a_loss_and_the_next_session_names_the_loss() -> None:
    """It may come before the listener learns of it, and is the reason that the holder is given."""
    one, reasons = session(lambda: reasons.append(str(one.missing()))), list[str]()
    assert one.begin("1", Listener())
    one.lose("1", "its file was moved")
    assert "its file was moved" in reasons[0]
    assert one.begin("2", Listener())
    one.forget()
    assert "there is no session" in str(one.missing())


def test_a_late_loss_does_not_touch_the_next_session() -> None:
    one, first, second = session(), Listener(), Listener()
    assert one.begin("1", first)
    assert one.forget() == "1"
    assert one.begin("2", second)
    one.notice("1", failed(SessionLost("etcd", "expired")))
    one.notice("2", failed(BackendUnavailable("etcd", "no answer")))
    assert one.current == "2"
    one.notice("2", failed(SessionLost("etcd", "expired")))
    assert (first.events, second.events) == ([], ["lost: expired"])


def test_no_session_begins_once_the_client_is_closed() -> None:
    one, listener = session(), Listener()
    assert one.begin("1", listener)
    assert one.forget(closes=True) == "1"
    assert not one.begin("2", listener)
    one.lose("1", "expired")
    assert one.current is None
    assert listener.events == []
    assert "there is no session" in str(one.missing())


def test_a_listener_may_open_the_next_session_as_it_learns_the_loss() -> None:
    one = session()

    class Opening(Listener):
        def lost(self, reason: str) -> None:
            assert one.begin("2", Listener())

    assert one.begin("1", Opening())
    one.lose("1", "expired")
    assert one.current == "2"
