"""The lines of indexes and producer snapshots; entries of indexes are compared with the log.

Source: Kafka 4.2 `DumpLogSegments.dumpIndex`, `dumpTimeIndex`, `dumpProducerIdSnapshot`,
`dumpTxnIndex`; `AbstractIndex`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from kseg.cli.kafka_dump.lines import HEAD_BYTES, DumpOptions, check_end, int_piece
from kseg.cli.row_writer import RowWriter, Write
from kseg.constants import MESSAGE_BYTES_MIN, Int64s
from kseg.errors import CorruptIndexError, CorruptRecordError, KsegError
from kseg.files import producer_snapshot
from kseg.files.grammar import file_name
from kseg.files.index import OFFSET_LAYOUT, TIME_LAYOUT
from kseg.files.log_file import LogFile
from kseg.files.mapping import MappedFile
from kseg.files.producer_snapshot import ProducerSnapshotEntry
from kseg.files.txn_index import TxnIndex
from kseg.format import text
from kseg.format.columns import decode
from kseg.format.request import Request
from kseg.log.recovery import stored_position

Line = Callable[[str], None]

_HEAD = struct.Struct(">qiib")
_DELTA = struct.Struct(">i")
_DELTA_AT, _HEADER_BYTES, _OVERHEAD = 23, 61, 12
_TIMES = Request(columns=("position", "timestamp"), control=True, verify_crc=False)

#: The complaints of Kafka's tool: a heading, then a line for each entry.
_OFFSETS_DIFFER = ("Mismatches in :{}", "  Index offset: {}, log offset: {}")
_TIMES_DIFFER = (
    "Found timestamp mismatch in :{}",
    "  Index timestamp: {}, log timestamp: {}",
)
_OUT_OF_ORDER = (
    "Found out of order timestamp in :{}",
    "  Index timestamp: {}, Previously indexed timestamp: {}",
)
_NOT_FOUND = (
    "The following indexed offsets are not found in the log.",
    "Indexed offset: {}, found log offset: {}",
)
#: By complaint, the numbers of each entry that it is about.
Faults = dict[tuple[str, str], list[tuple[int, int]]]


def complaints(faults: Faults, path: str) -> Iterator[str]:
    """The lines of Kafka's tool about an index."""
    for (heading, line), found in faults.items():
        if found:
            yield heading.format(path)
        yield from (line.format(*numbers) for numbers in found)


def print_offset_index(path: Path, options: DumpOptions, write: Write, line: Line) -> Faults:
    """Print the entries of an offset index, and compare each with the log.

    Raises:
        CorruptIndexError, CorruptRecordError: where Kafka's tool ends with an exception.
        OSError: a file cannot be read.
    """
    differing: list[tuple[int, int]] = []
    with LogFile.open(path.with_suffix(".log")) as log:
        data, base_offset = _read(path), file_name(path).base_offset or 0
        raw = np.frombuffer(data, OFFSET_LAYOUT, len(data) // OFFSET_LAYOUT.itemsize)
        offsets = base_offset + raw["relative"].astype(np.int64)
        positions = raw["position"].astype(np.int64)
        if not len(raw):
            line(f"{path} is empty.")
            return {}
        if options.sanity_only:
            _check(path, data, OFFSET_LAYOUT, int(offsets[-1]), base_offset)
            line(f"{path} passed sanity check.")
            return {}
        with _printed((("offset: ", offsets), (" position: ", positions)), options, write) as done:
            for offset, position in _used(offsets, base_offset, offsets, positions):
                found = _last_offset(log, position, options.max_message_size)
                if found != offset:
                    differing.append((offset, found))
                done.append(offset)
    return {_OFFSETS_DIFFER: differing[::-1]}


def print_time_index(path: Path, options: DumpOptions, write: Write, line: Line) -> Faults:
    """Print the entries of a time index, and compare each with the log.

    Raises:
        KsegError: where Kafka's tool ends with an exception.
        OSError: a file cannot be read.
    """
    faults: Faults = {_TIMES_DIFFER: [], _OUT_OF_ORDER: [], _NOT_FOUND: []}
    with LogFile.open(path.with_suffix(".log")) as log:
        data, base_offset = _read(path), file_name(path).base_offset or 0
        index = _read(path.with_suffix(".index"))
        raw = np.frombuffer(data, TIME_LAYOUT, len(data) // TIME_LAYOUT.itemsize)
        offsets = base_offset + raw["relative"].astype(np.int64)
        times = raw["timestamp"].astype(np.int64)
        if options.sanity_only:
            if len(raw) and times[-1] < times[0]:
                raise CorruptIndexError(
                    f"the last timestamp, {times[-1]}, is below the first, {times[0]}", path=path
                )
            last = int(offsets[-1]) if len(raw) else base_offset
            _check(path, data, TIME_LAYOUT, last, base_offset)
            line(f"{path} passed sanity check.")
            return {}
        batches, before = _Batches(log), -1
        with _printed((("timestamp: ", times), (" offset: ", offsets)), options, write) as done:
            for time, offset in _used(offsets, base_offset, times, offsets):
                position = stored_position(index, base_offset, offset)
                _compare(faults, batches, position, offset, time, before)
                before = time
                done.append(time)
    return faults


@contextmanager
def _printed(
    columns: tuple[tuple[str, Int64s], ...], options: DumpOptions, write: Write
) -> Iterator[list[int]]:
    """Print the entries after they are compared; up to the first that ends the tool.

    Yields:
        A list that takes each entry that was compared.
    """
    done: list[int] = []
    try:
        yield done
    finally:
        if not options.verify_only:
            pieces = [int_piece(lead.encode(), column) for lead, column in columns]
            RowWriter(write).rows((*pieces, (text.TEXT, b"\n")), len(done))


def _used(offsets: Int64s, base_offset: int, *columns: Int64s) -> Iterator[tuple[int, ...]]:
    """The columns of the entries in front of the first unused one, as Kafka's tool finds it."""
    unused = np.flatnonzero(offsets[1:] == base_offset)
    count = int(unused[0]) + 1 if len(unused) else len(offsets)
    return zip(*(column[:count].tolist() for column in columns), strict=True)


def _compare(
    faults: Faults, batches: _Batches, position: int, offset: int, time: int, previous: int
) -> None:
    at, last_offset = batches.find(position, offset) or (None, -1)
    if at is None or last_offset != offset:
        faults[_NOT_FOUND].append((offset, last_offset))
        return
    largest = batches.largest_time(at)
    if largest != time:
        faults[_TIMES_DIFFER].append((time, largest))
    if previous >= time:
        faults[_OUT_OF_ORDER].append((time, previous))


class _Batches:
    """The positions of the batches of a log from a position on, by their headers."""

    def __init__(self, log: LogFile, start: int = 0) -> None:
        """Walk to the end."""
        self._log = log
        self._end = start
        positions, offsets = [], []
        for table in log.headers(start=start, policy="file"):
            positions.append(table.position.copy())
            offsets.append(table.last_offset.copy())
            self._end = table.end_position
        self._positions, self._offsets = np.concatenate(positions), np.concatenate(offsets)
        self._ordered = bool((self._offsets[1:] >= self._offsets[:-1]).all())

    def find(self, position: int, offset: int) -> tuple[int, int] | None:
        """The first batch from a position on that ends at or past an offset, and where it ends.

        Raises:
            CorruptRecordError: the position is outside of the log, or no batch begins there.
        """
        if not 0 <= position <= self._log.size:
            raise CorruptRecordError("the index points outside of the log", position=position)
        first = int(np.searchsorted(self._positions, position))
        if position != self._end and (
            first == len(self._positions) or self._positions[first] != position
        ):
            return _Batches(self._log, position).find(position, offset)
        if self._ordered:
            at = max(first, int(np.searchsorted(self._offsets, offset)))
        else:
            behind = np.flatnonzero(self._offsets[first:] >= offset)
            at = first + int(behind[0]) if len(behind) else len(self._offsets)
        if at < len(self._offsets):
            return int(self._positions[at]), int(self._offsets[at])
        check_end(self._log, self._end, self._log.size)
        return None

    def largest_time(self, position: int) -> int:
        """The largest timestamp of a batch's records; -1 if it has none."""
        largest = -1
        for tile in self._log.walk(
            start=position, limit=position + 1, on_bad_crc="ignore", policy="file"
        ):
            for columns in decode(tile.data, tile.table, _TIMES, base=tile.base):
                largest = max(largest, int(columns.timestamp_ms.max()))
        return largest


def _last_offset(log: LogFile, position: int, size_max: int) -> int:
    """The last offset of the batch at a position.

    Raises:
        CorruptRecordError: the position is outside of the log, or no whole batch begins there.
    """
    if not 0 <= position <= log.size:
        raise CorruptRecordError("the index points outside of the log", position=position)
    head = log.head_at(position)
    left = min(log.size - position, size_max)
    if left > HEAD_BYTES:
        offset, size, _epoch, magic = _HEAD.unpack_from(head)
        if MESSAGE_BYTES_MIN <= size <= left - _OVERHEAD:
            if magic < 2:
                return int(offset)
            if len(head) == _HEADER_BYTES:
                return int(offset + _DELTA.unpack_from(head, _DELTA_AT)[0])
    raise CorruptRecordError("the index points to no whole batch", path=log.path, position=position)


def _read(path: Path) -> bytes:
    with MappedFile.open(path, "never", index=True) as file:
        return bytes(file.read(0, file.size))


def _check(path: Path, data: bytes, layout: np.dtype[np.void], last: int, base_offset: int) -> None:
    """The check of an index when Kafka opens it.

    Source: Kafka `OffsetIndex.sanityCheck`, `TimeIndex.sanityCheck`.
    """
    if last < base_offset:
        raise CorruptIndexError(f"the last offset, {last}, is below {base_offset}", path=path)
    if len(data) % layout.itemsize:
        reason = f"{len(data)} bytes are not a multiple of {layout.itemsize}"
        raise CorruptIndexError(reason, path=path)


def print_snapshot(path: Path, line: Line) -> str | None:
    """Print a line for each producer; returns the complaint about a damaged file."""
    try:
        entries = producer_snapshot.read(path)
    except KsegError as error:
        return str(error)
    for entry in entries:
        line(_producer(entry))
    return None


def _producer(entry: ProducerSnapshotEntry) -> str:
    first = entry.current_txn_first_offset
    ongoing = "OptionalLong.empty" if first == -1 else f"OptionalLong[{first}]"
    head = (
        f"producerId: {entry.producer_id} producerEpoch: {entry.producer_epoch} "
        f"coordinatorEpoch: {entry.coordinator_epoch} currentTxnFirstOffset: {ongoing} "
        f"lastTimestamp: {entry.last_timestamp} "
    )
    if not entry.has_batch:
        return head
    return head + (
        f"firstSequence: {entry.first_sequence} lastSequence: {entry.last_sequence} "
        f"lastOffset: {entry.last_offset} offsetDelta: {entry.offset_delta} "
        f"timestamp: {entry.last_timestamp}"
    )


def print_txn_index(path: Path, line: Line) -> None:
    """Print a line for each aborted transaction.

    Raises:
        CorruptIndexError: an entry has a version that is not known.
        OSError: the file cannot be read.
    """
    for entry in TxnIndex.open(path).entries():
        line(
            f"version: {entry.version} producerId: {entry.producer_id} "
            f"firstOffset: {entry.first_offset} lastOffset: {entry.last_offset} "
            f"lastStableOffset: {entry.last_stable_offset}"
        )
