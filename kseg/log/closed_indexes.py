"""Checks that a broker omits for the indexes of a log that was closed cleanly.

A broker makes room for 10 MB of entries beside the segment that it appends to, and cuts that off
when it closes the segment. After a clean stop it believes the last entry that an index has room
for. So a time index with zeros at its end says that the newest record is of 1970, and retention
deletes the segment. Nor does a broker look at indexes below the recovery point after a crash.

    both indexes   no slot behind the used entries: behind the first entry, an offset that is the
                   segment's base says that a slot is unused; zeros in the first one are an entry
                   where the log has it
    time index     the last entry has the largest timestamp of the segment; without any entry the
                   segment counts as as old as its file, so there must be no timestamp

`fault_of` is the check, for files on the disk or in an overlay. It reads the last entry of each
index, and headers of the log from the batch of the last time on.

Source: Kafka `AbstractIndex`, `TimeIndex.lastEntry`, `LogSegment.close`, `DumpLogSegments`.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

import numpy as np

from kseg.constants import NO_TIMESTAMP, StopReason
from kseg.errors import KsegError
from kseg.files import io
from kseg.files.index import OFFSET_ENTRY_BYTES, TIME_ENTRY_BYTES
from kseg.files.log_file import LogFile
from kseg.files.names import FileKind, SegmentFiles, list_partition
from kseg.format.header import BatchTable

Read = Callable[[FileKind, int, int], bytes]
Headers = Callable[[int], Iterable[BatchTable]]

_ENTRY_BYTES: Final = {
    FileKind.INDEX: OFFSET_ENTRY_BYTES,
    FileKind.TIMEINDEX: TIME_ENTRY_BYTES,
}
_OFFSET_ENTRY: Final = struct.Struct(">ii")
_TIME_ENTRY: Final = struct.Struct(">qi")


class EndFault(NamedTuple):
    """A fault at the end of an index.

    Attributes:
        kind: which index.
        code: in one word, see `kseg.log.recovery.findings`.
        message: in words.
        position: of the entry; None without one.
    """

    kind: FileKind
    code: str
    message: str
    position: int | None = None


def fault_of(
    log_bytes: int,
    sizes: Mapping[FileKind, int],
    read: Read,
    headers: Headers,
) -> EndFault | None:
    """The fault at the ends of a segment's two indexes; None if they are as after a close.

    A missing offset index is not a fault: a broker rebuilds it, with the others.

    Args:
        log_bytes: of the segment's log.
        sizes: bytes of the indexes that are there.
        read: reads an index.
        headers: walks the log.

    Raises:
        OSError: something cannot be read.
    """
    if FileKind.INDEX not in sizes:
        return None
    for kind, size in _ENTRY_BYTES.items():
        count = sizes.get(kind, 0) // size
        at = (count - 1) * size
        if count and not (log_bytes and _is_used(kind, at, read(kind, at, size))):
            return EndFault(kind, "index-unused", "unused entries at its end", at)
    return _time_fault(sizes, read, headers) if log_bytes else None


def _is_used(kind: FileKind, at: int, entry: bytes) -> bool:
    """Whether an entry may have been written; the first one is for the log to confirm.

    An overlay does not hold the bytes of an index that it has made: nothing is read of it.
    """
    return not at or not entry or any(entry[:4] if kind is FileKind.INDEX else entry[8:])


def _time_fault(sizes: Mapping[FileKind, int], read: Read, headers: Headers) -> EndFault | None:
    at = (sizes.get(FileKind.TIMEINDEX, 0) // TIME_ENTRY_BYTES - 1) * TIME_ENTRY_BYTES
    time, relative, start = NO_TIMESTAMP, 0, 0
    if at >= 0:
        entry = read(FileKind.TIMEINDEX, at, TIME_ENTRY_BYTES)
        if not entry:
            return None
        time, relative = _TIME_ENTRY.unpack(entry)
        start = _position_for(relative, sizes[FileKind.INDEX], read)
    latest, whole = _latest(headers, start)
    if start and latest is None:  # no batch where the offset index leads
        latest, whole = _latest(headers, 0)
    found = NO_TIMESTAMP if latest is None else latest
    if found > time and whole:  # of a damaged log the rest is not known
        last = f"the last entry is for {time} ms" if at >= 0 else "no entries"
        message = f"{last}, the log has {found}"
        return EndFault(FileKind.TIMEINDEX, "time-index-late", message, at if at >= 0 else None)
    if at == 0 and not (time or relative) and found < 0:
        return EndFault(FileKind.TIMEINDEX, "index-unused", "unused entries at its end", 0)
    return None


def _position_for(relative: int, index_bytes: int, read: Read) -> int:
    """Where the last entry of the offset index at or below an offset leads; 0 for none."""
    size = OFFSET_ENTRY_BYTES
    count = index_bytes // size
    last = read(FileKind.INDEX, (count - 1) * size, size) if count else b""
    if not last:
        return 0
    offset, position = _OFFSET_ENTRY.unpack(last)
    if offset <= relative:
        return max(int(position), 0)
    entries = np.frombuffer(read(FileKind.INDEX, 0, count * size), ">i4").reshape(-1, 2)
    at = int(np.searchsorted(entries[:, 0], relative, "right")) - 1
    return max(int(entries[at, 1]), 0) if at >= 0 else 0


def _latest(headers: Headers, start: int) -> tuple[int | None, bool]:
    """The largest timestamp from a batch on, None without a batch; whether the walk saw the end."""
    latest, stop = None, StopReason.END
    for table in headers(start):
        stop = table.stop
        if len(table):
            found = int(table.max_timestamp.max())
            latest = found if latest is None else max(latest, found)
    return latest, stop is StopReason.END


def fault_in(files: SegmentFiles) -> EndFault | None:
    """The fault at the ends of the indexes of a segment on the disk; see `fault_of`."""
    places = {FileKind.INDEX: files.index, FileKind.TIMEINDEX: files.time_index}
    paths = {kind: path for kind, path in places.items() if path is not None}

    def read(kind: FileKind, position: int, size: int) -> bytes:
        with io.opened(paths[kind]) as fd:
            return io.read_at(fd, position, size, paths[kind])

    with LogFile.open(files.log, "never") as log:
        sizes = {kind: os.stat(path).st_size for kind, path in paths.items()}
        return fault_of(log.size, sizes, read, lambda start: log.headers(start=start))


def is_as_closed(partition: io.StrPath) -> bool:
    """Whether the indexes of all segments of a partition are as after a close.

    Indexes that cannot be read do not count.
    """
    try:
        segments = list_partition(partition).segments
        return all(each.kafka07 or fault_in(each) is None for each in segments)
    except (KsegError, OSError):
        return False
