from __future__ import annotations

from coordlock.belated import Belated


def test_a_queue_is_out_of_order_while_any_of_its_watches_may_be_late() -> None:
    belated: Belated[str] = Belated()
    belated.add("q", "a")
    belated.add("q", "b")
    belated.add("r", "c")
    belated.discard("q", "a")
    assert "q" in belated
    belated.discard("q", "b")
    belated.discard("q", "b")
    assert "q" not in belated
    assert "r" in belated
    belated.clear()
    assert "r" not in belated
