"""The producer snapshot: Kafka's state of each producer up to the offset in the file's name.

    at  size  field
    0   2     int16 version, 1
    2   4     uint32 CRC-32C of everything from byte 6 on
    6   4     int32 number of entries
    10        entries of 46 bytes
              0   int64 producer id
              8   int16 producer epoch
              10  int32 last sequence, -1 if none
              14  int64 last data offset, -1 if none
              22  int32 offset delta of the last batch
              26  int64 last timestamp in ms
              34  int32 coordinator epoch
              38  int64 first offset of the open transaction, -1 if none

Big-endian. Only the last batch of each producer is kept, and without a timestamp of its own. Kafka
deletes a file that breaks any of this, and replays the state from the log.

Source: Kafka `ProducerStateManager.readSnapshot`.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable, Iterator
from contextlib import suppress
from operator import attrgetter
from typing import Final

from kseg._core import crc32c
from kseg.constants import StrPath
from kseg.documents import frozen_dataclass
from kseg.errors import CorruptIndexError, LimitExceededError
from kseg.files import atomic, io

SNAPSHOT_VERSION: Final = 1
#: Room for over five million producers; the rest is not read.
SNAPSHOT_BYTES_MAX: Final = 2**28

_HEADER: Final = struct.Struct(">hIi")
_ENTRY: Final = struct.Struct(">qhiqiqiq")
_CRC_START: Final = 6
_BEFORE_BODY: Final = struct.Struct(">hI")
_COUNT: Final = struct.Struct(">i")


@frozen_dataclass
class ProducerSnapshotEntry:
    """One producer; -1 means that a value is missing, as on disk."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    last_timestamp: int
    coordinator_epoch: int
    current_txn_first_offset: int

    @property
    def has_batch(self) -> bool:
        """Whether there is a last batch: a negative last offset means none."""
        return self.last_offset >= 0

    @property
    def first_sequence(self) -> int:
        """Sequence of the last batch's first record; sequences go from 2^31 - 1 on to 0."""
        first = self.last_sequence - self.offset_delta
        return first if first >= 0 else first + 2**31


def read(source: StrPath | bytes) -> tuple[ProducerSnapshotEntry, ...]:
    """Read a producer snapshot from a file, or from its bytes; the entries as they follow there.

    Raises:
        CorruptIndexError: too short, an unknown version, a wrong CRC, or a length that does not
            fit the number of entries.
        LimitExceededError: the file is longer than any snapshot.
        OSError: the file cannot be read.
    """
    path = None if isinstance(source, bytes) else source
    data = (
        source if isinstance(source, bytes) else io.read_file(source, bytes_max=SNAPSHOT_BYTES_MAX)
    )
    if len(data) < _HEADER.size:
        raise CorruptIndexError(
            f"{len(data)} bytes are too few for a snapshot's header of {_HEADER.size}",
            path=path,
            position=0,
        )
    version, stored, count = _HEADER.unpack_from(data)
    if version != SNAPSHOT_VERSION:
        raise CorruptIndexError(f"snapshot version {version} is not 1", path=path, position=0)
    computed = crc32c(memoryview(data)[_CRC_START:])
    if stored != computed:
        raise CorruptIndexError(
            f"snapshot CRC {stored:#010x} stored, {computed:#010x} computed", path=path, position=2
        )
    body = len(data) - _HEADER.size
    if count < 0 or count * _ENTRY.size != body:
        raise CorruptIndexError(
            f"{count} entries of {_ENTRY.size} bytes do not fill the {body} bytes that follow",
            path=path,
            position=_CRC_START,
        )
    entries = _ENTRY.iter_unpack(memoryview(data)[_HEADER.size :])
    return tuple(ProducerSnapshotEntry(*entry) for entry in entries)


def entries_beyond(
    entries: Iterable[ProducerSnapshotEntry], offset: int
) -> Iterator[tuple[int, ProducerSnapshotEntry]]:
    """The entries, and their numbers, that have an offset at or after `offset`.

    A snapshot with that offset in its name has none, unless it belongs to another log.
    """
    for number, entry in enumerate(entries):
        if max(entry.last_offset, entry.current_txn_first_offset) >= offset:
            yield number, entry


_FIELDS: Final = attrgetter(*ProducerSnapshotEntry.__match_args__)


def to_bytes(entries: Iterable[ProducerSnapshotEntry]) -> bytes:
    """The bytes of a snapshot, its entries in the order given.

    Raises:
        LimitExceededError: these are more bytes than `read` accepts.
        ValueError: a number does not fit its field.

    Source: Kafka `ProducerStateManager.writeSnapshot`.
    """
    try:
        packed = [_ENTRY.pack(*_FIELDS(entry)) for entry in entries]
    except struct.error as error:
        raise ValueError(f"no room in a producer's entry: {error}") from None
    size = _HEADER.size + len(packed) * _ENTRY.size
    if size > SNAPSHOT_BYTES_MAX:
        raise LimitExceededError(
            f"{len(packed)} producers make {size} bytes; no snapshot has more than "
            f"{SNAPSHOT_BYTES_MAX}"
        )
    body = b"".join([_COUNT.pack(len(packed)), *packed])
    return _BEFORE_BODY.pack(SNAPSHOT_VERSION, crc32c(body)) + body


def write(path: StrPath, entries: Iterable[ProducerSnapshotEntry], *, sync: bool = True) -> None:
    """Write a producer snapshot, in place of an existing one.

    Args:
        path: the file.
        entries: see `to_bytes`.
        sync: make it lasting, whole or not at all. Otherwise a crash may leave any part of it,
            which its CRC shows; call `flush` before anything relies on it.

    Raises:
        LimitExceededError, ValueError: as `to_bytes`; nothing has changed.
        OSError: the disk refuses; the old snapshot stays, if there was one.
    """
    data = to_bytes(entries)
    if sync:
        atomic.replace_file(path, data)
        return
    # Never over the bytes of another: its rest would stay after these, and a copy may share them.
    io.unlink(path, missing_ok=True)
    try:
        with io.WriteFile.open(path, exclusive=True) as file:
            file.write_at(0, data)
    except OSError:
        # A partial file would stay there until a recovery.
        with suppress(OSError):
            io.unlink(path)
        raise


def flush(path: StrPath) -> None:
    """Make a snapshot lasting that was written with `sync` false.

    Raises:
        OSError: it does not exist, or the disk refuses.
    """
    with io.WriteFile.open(path) as file:
        file.flush()
    io.flush_directory(os.path.dirname(path) or ".")
