"""What `doctor` concludes from what servers say: of states in which no real one can be put."""

from __future__ import annotations

from coordlock_redis.describe import findings


def warned(fields: dict[str, str], replicas: int = 0) -> str:
    known = {"aof_enabled": "1", "connected_slaves": "1", **fields}
    found = findings(known, b"key", 15.0, replicas)
    return "\n".join(text for is_well, text in found if not is_well)


def test_a_file_that_cannot_be_written_is_told() -> None:
    assert "file failed" in warned({"aof_last_write_status": "err"})


def test_replicas_that_are_missing_are_told() -> None:
    assert "nothing is granted" in warned({}, replicas=2)
