"""Sets the counters from which znodes number their sequential children, as years of use would."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable

from testbed.servers.zookeeper import ZooKeeperServer

_SEAL = b"\0\0\0\1/"


def set_counters(server: ZooKeeperServer, paths: Iterable[str], value: int) -> None:
    """Stop ``server``, patch its newest snapshot, and start it again. All paths must exist."""
    server.restart()  # takes a snapshot of everything
    server.stop()
    newest = max(
        server.data.glob("version-2/snapshot.*"), key=lambda file: int(file.suffix[1:], 16)
    )
    snapshot = newest.read_bytes()
    for path in paths:
        snapshot = _patched(snapshot, path, value)
    newest.write_bytes(snapshot)
    server.start()


def _patched(snapshot: bytes, path: str, value: int) -> bytes:
    # Checksums of all that stands before them, each followed by "/" (FileSnap, SnapStream).
    seals = [
        at - 8
        for at in range(8, len(snapshot))
        if snapshot.startswith(_SEAL, at)
        and snapshot[at - 8 : at] == struct.pack("!q", zlib.adler32(snapshot[: at - 8]))
    ]
    assert seals, "no checksum was found"
    name = struct.pack("!i", len(path)) + path.encode()
    at = snapshot.index(name) + len(name)
    (size,) = struct.unpack_from("!i", snapshot, at)
    # The data, the ACL's number, then the stat: czxid, mzxid, ctime, mtime, version, cversion.
    at += 4 + max(size, 0) + 8 + 4 * 8 + 4
    patched = bytearray(snapshot)
    struct.pack_into("!i", patched, at, value)
    for seal in seals:
        struct.pack_into("!q", patched, seal, zlib.adler32(bytes(patched[:seal])))
    return bytes(patched)
