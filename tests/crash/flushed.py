"""What a crash must leave as it was, before anyone has mended anything: all that was flushed.

A recovery point on the disk says that the log in front of it is there; a broker that takes the
directory over believes it, and looks at no segment that lies below. So do the producer snapshots
that it begins with.
"""

from __future__ import annotations

import struct

import google_crc32c

from tests.crash.history import History, Version, ViolationError
from tests.crash.reading import checkpoint_of, found_in, logs_of
from tests.crash.states import Contents

POINTS = "recovery-point-offset-checkpoint"


def check_flushed(contents: Contents, partition: str, history: History) -> None:
    """What lies in front of the recovery point is there, its records and its snapshots.

    Args:
        contents: what a crash has left.
        partition: path of the directory.
        history: what may be there.

    Raises:
        ViolationError: the recovery point says too much.
    """
    point = checkpoint_of(contents, partition, POINTS)
    found = found_in(contents, partition, whole=False)
    held, longest = set(found.batches), max(version.end for version in history.allowed)

    def is_there(version: Version) -> bool:
        # The point follows the log's start, and may be on the disk just before it.
        start = max(found.start, version.start)
        below = {one for one in version.batches if start <= one.last_offset < point}
        # A cut inside of a batch leaves the end, and the point, behind the last one.
        return below <= held and (version.end >= point or version.end == longest)

    if not any(map(is_there, history.allowed)):
        raise ViolationError(f"the recovery point is {point}, and of the log there is {found}")
    start = max(found.start, *(version.start for version in history.allowed))
    # Of a log that begins again nobody is to be known who wrote before.
    anew = any(not version.batches for version in history.allowed)
    _check_snapshots(contents, partition, start, point, needs_first=not anew)


def _check_snapshots(
    contents: Contents, partition: str, start: int, point: int, *, needs_first: bool
) -> None:
    """Those that were flushed before the recovery point was moved, and before segments went."""
    bases = list(logs_of(contents, partition)) if needs_first else []
    first = bases[0] if bases and bases[0] and not any(base <= start for base in bases[1:]) else -1
    prefix = f"{partition}/"
    for path, data in contents.items():
        if not (path.startswith(prefix) and path.endswith(".snapshot")):
            continue
        offset = int(path.removeprefix(prefix).partition(".")[0])
        if (start <= offset < point or offset == first) and not _is_sound(data or b""):
            raise ViolationError(f"the snapshot at {offset} is not sound; the point is {point}")


def _is_sound(snapshot: bytes) -> bool:
    if len(snapshot) < 10:
        return False
    (crc,) = struct.unpack_from(">I", snapshot, 2)
    return bool(google_crc32c.value(snapshot[6:]) == crc)
