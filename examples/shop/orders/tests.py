import pytest

import coordlock
from coordlock.integrations.django import DjangoFence, get_client
from orders.models import Order, Product
from orders.tasks import pack

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def quick(settings, monkeypatch):
    settings.PACKING_SECONDS = 0
    monkeypatch.setattr(pack, "delay", pack)


def in_stock():
    return Product.objects.get(name="book").stock


def test_an_order_is_taken_from_the_stock_and_packed(client, django_capture_on_commit_callbacks):
    before = in_stock()
    with django_capture_on_commit_callbacks(execute=True):
        assert client.post("/order/book/alice").status_code == 200
    assert in_stock() == before - 1
    assert Order.objects.get().parcel.customer == "alice"


def test_an_order_is_rolled_back_when_its_lock_is_lost(client, locks, monkeypatch):
    before = in_stock()
    monkeypatch.setattr(Order.objects, "create", lambda **_: locks.lose("stock/book"))
    assert client.post("/order/book/alice").status_code == 503
    assert in_stock() == before


def test_nothing_is_packed_when_the_lock_is_lost(client, locks, monkeypatch):
    client.post("/order/book/alice")
    monkeypatch.setattr("time.sleep", lambda _: locks.lose("parcels/alice"))
    with pytest.raises(coordlock.LockLost):
        pack("alice")


def test_while_orders_are_packed_no_earlier_holder_packs_them_too(client, monkeypatch):
    client.post("/order/book/alice")
    with get_client().lock("parcels/alice") as earlier:
        pass

    def continued(_):
        """The earlier holder was paused just before its check."""
        with pytest.raises(coordlock.StaleToken):
            DjangoFence().check("parcels/alice", earlier.token)

    monkeypatch.setattr("time.sleep", continued)
    pack("alice")
