from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordlock.model.claim import MAX_PERMITS, Claim, Mode, Permit, parse_marker


@pytest.mark.parametrize("claim", [*Mode, Permit(1), Permit(7), Permit(MAX_PERMITS)], ids=str)
def test_a_marker_is_read_back_as_its_claim(claim: Claim) -> None:
    assert parse_marker(claim.marker) == claim


def test_read_and_write_locks_are_stored_as_kazoo_stores_them() -> None:
    assert (Mode.PR.marker, Mode.EX.marker) == ("rlock", "lock")


@pytest.mark.parametrize(
    "marker",
    [
        "",
        "lease",
        "LOCK",
        "PR",
        "permit",
        "permit0",
        "permit-1",
        "permit01",
        "permit+1",
        "permit 1",
        "permit1\n",
        "permit1_0",
        "permit10001",
        "permit\u0661",
        "permit" + "9" * 5000,
    ],
    ids=lambda marker: marker[:12],
)
def test_what_nobody_knows_counts_as_exclusive(marker: str) -> None:
    assert parse_marker(marker) is Mode.EX


@given(st.text() | st.text("0123456789").map(lambda digits: f"permit{digits}"))
def test_any_marker_is_a_claim_and_only_its_own_marker_reads_as_a_permit(marker: str) -> None:
    claim = parse_marker(marker)
    assert isinstance(claim, Mode) or claim.marker == marker


@pytest.mark.parametrize("of", [0, -1, MAX_PERMITS + 1, True, False, 1.0, "1", None])
def test_permits_are_integers_in_range(of: Any) -> None:
    with pytest.raises(ValueError, match="permits"):
        Permit(of)
