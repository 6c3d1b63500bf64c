"""The lines of indexes and producer snapshots; entries of indexes are compared with the log.

Source: Kafka 4.2 `DumpLogSegments.dumpIndex`, `dumpTimeIndex`, `dumpProducerIdSnapshot`,
`dumpTxnIndex`; `AbstractIndex`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np

from kseg.cli.row_writer import RowWriter
from kseg.constants import MESSAGE_BYTES_MIN
from kseg.errors import CorruptIndexError, CorruptRecordError, KsegError, UnreadableError
from kseg.files import producer_snapshot
from kseg.files.grammar import file_name
from kseg.files.log_file import LogFile, Tile
from kseg.files.mapping import MappedFile
from kseg.files.offset_index import LAYOUT as OFFSET_LAYOUT
from kseg.files.time_index import LAYOUT as TIME_LAYOUT
from kseg.files.txn_index import TxnIndex
from kseg.format import text
from kseg.format.columns import decode
from kseg.format.request import Request
from kseg.log.recovery import stored_position

if TYPE_CHECKING:
    import numpy.typing as npt

    from kseg.cli.kafka_dump.options import IndexOptions
    from kseg.cli.row_writer import Write
    from kseg.files.producer_snapshot import ProducerSnapshotEntry
    from kseg.format.header import BatchTable

    Int64Array = npt.NDArray[np.int64]
    Line = Callable[[str], None]

_HEAD = struct.Struct(">qiib")
_DELTA = struct.Struct(">i")
_DELTA_AT, _HEADER_BYTES, _OVERHEAD = 23, 61, 12
_TIMES = Request(columns=("position", "timestamp"), control=True, verify_crc=False)
#: No offset and no time of a log.
_UNKNOWN = -(2**63)
_NOT_FOUND = -1


class Faults(Protocol):
    """What is wrong with the entries of an index."""

    def lines(self, path: str) -> Iterator[str]:
        """What Kafka's tool says of them."""


@dataclass(slots=True)
class OffsetFaults:
    """Entries that name another offset than the batch there ends with."""

    mismatches: list[tuple[int, int]] = field(default_factory=list)

    def lines(self, path: str) -> Iterator[str]:
        """What Kafka's tool says of them, the last one first."""
        if self.mismatches:
            yield f"Mismatches in :{path}"
        for index, log in reversed(self.mismatches):
            yield f"  Index offset: {index}, log offset: {log}"


@dataclass(slots=True)
class TimeFaults:
    """What is wrong with entries of a time index."""

    mismatches: list[tuple[int, int]] = field(default_factory=list)
    out_of_order: list[tuple[int, int]] = field(default_factory=list)
    not_found: list[tuple[int, int]] = field(default_factory=list)

    def lines(self, path: str) -> Iterator[str]:
        """What Kafka's tool says of them."""
        if self.mismatches:
            yield f"Found timestamp mismatch in :{path}"
        for index, log in self.mismatches:
            yield f"  Index timestamp: {index}, log timestamp: {log}"
        if self.out_of_order:
            yield f"Found out of order timestamp in :{path}"
        for index, before in self.out_of_order:
            yield f"  Index timestamp: {index}, Previously indexed timestamp: {before}"
        if self.not_found:
            yield "The following indexed offsets are not found in the log."
        for index, log in self.not_found:
            yield f"Indexed offset: {index}, found log offset: {log}"


def print_offset_index(path: Path, options: IndexOptions, write: Write, line: Line) -> OffsetFaults:
    """Print the entries of an offset index, and compare each with the log.

    Raises:
        CorruptIndexError, CorruptRecordError: where Kafka's tool ends with an exception.
        OSError: a file cannot be read.
    """
    faults = OffsetFaults()
    with LogFile.open(path.with_suffix(".log")) as log:
        data, base_offset = _read(path), file_name(path).base_offset or 0
        raw = np.frombuffer(data, OFFSET_LAYOUT, len(data) // OFFSET_LAYOUT.itemsize)
        offsets, positions = base_offset + raw["relative"].astype(np.int64), raw["position"]
        if not len(raw):
            line(f"{path} is empty.")
            return faults
        if options.sanity_only:
            _check(path, data, OFFSET_LAYOUT, int(offsets[-1]), base_offset)
            line(f"{path} passed sanity check.")
            return faults
        used = _used(offsets, base_offset)
        known = _known_ends(log, positions[:used], options.max_message_size)
        done = 0
        try:
            for done in np.flatnonzero(known != offsets[:used]).tolist():
                offset, position = int(offsets[done]), int(positions[done])
                found = _last_offset(log, position, options.max_message_size)
                if found != offset:
                    faults.mismatches.append((offset, found))
            done = used
        finally:
            if not options.verify_only:
                pieces = (("offset: ", offsets), (" position: ", positions.astype(np.int64)))
                _print_entries(pieces, done, write)
    return faults


def print_time_index(path: Path, options: IndexOptions, write: Write, line: Line) -> TimeFaults:
    """Print the entries of a time index, and compare each with the log.

    Raises:
        KsegError: where Kafka's tool ends with an exception.
        OSError: a file cannot be read.
    """
    faults = TimeFaults()
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
            return faults
        used = _used(offsets, base_offset)
        batches = _Batches(log)
        before = np.concatenate(([-1], times[:used][:-1]))
        done = 0
        try:
            for done in _doubtful(batches, index, base_offset, offsets[:used], times, before):
                time, offset = int(times[done]), int(offsets[done])
                position = stored_position(index, base_offset, offset)
                _compare(faults, batches, position, offset, time, int(before[done]))
            done = used
        finally:
            if not options.verify_only:
                _print_entries((("timestamp: ", times), (" offset: ", offsets)), done, write)
    return faults


def _known_ends(log: LogFile, positions: npt.NDArray[np.integer], size_max: int) -> Int64Array:
    """The last offsets of the whole batches at some positions, from one walk over headers.

    `_UNKNOWN` where the walk comes by no such batch.
    """
    wanted, inverse = np.unique(positions.astype(np.int64), return_inverse=True)
    ends = np.full(len(wanted), _UNKNOWN, np.int64)
    for _tile, table, at in _batches_at(log, wanted):
        usual = (table.size >= _OVERHEAD + MESSAGE_BYTES_MIN) & (table.size <= size_max)
        usual &= (table.magic < 2) | (table.size >= _HEADER_BYTES)
        ends[at[usual]] = table.last_offset[usual]
    return ends[inverse]


def _batches_at(
    log: LogFile, wanted: Int64Array
) -> Iterator[tuple[Tile, BatchTable, npt.NDArray[np.intp]]]:
    """The batches at some positions, and which of the positions those are.

    It ends where the log cannot be read: who asks for what lies there is told.
    """
    if not len(wanted):
        return
    try:
        for tile in log.walk(on_bad_crc="ignore", policy="file"):
            at = np.searchsorted(wanted, tile.table.position)
            at[at == len(wanted)] = 0
            there = wanted[at] == tile.table.position
            yield tile, tile.table.take(there), at[there]
    except (CorruptRecordError, UnreadableError):
        return


def _doubtful(
    batches: _Batches,
    index: bytes,
    base_offset: int,
    offsets: Int64Array,
    times: Int64Array,
    before: Int64Array,
) -> list[int]:
    """The entries of a time index that may differ from the log; all others do not.

    Args:
        batches: of the log.
        index: the offset index as it lies on the disk.
        base_offset: of the segment.
        offsets: of the entries that count, int64[n].
        times: likewise.
        before: the time of each entry's predecessor, int64[n].
    """
    raw = np.frombuffer(index, OFFSET_LAYOUT, len(index) // OFFSET_LAYOUT.itemsize)
    stored = base_offset + raw["relative"].astype(np.int64)
    if not len(offsets) or not batches.ordered or (np.diff(stored) <= 0).any():
        return list(range(len(offsets)))
    slots = np.searchsorted(stored, offsets, "right") - 1
    positions = np.zeros(len(offsets), np.int64)
    positions[slots >= 0] = raw["position"][slots[slots >= 0]]
    at = batches.rows_of(positions, offsets)
    sound = at >= 0
    rows = at[sound]
    sound[sound] = batches.offsets[rows] == offsets[sound]
    times = times[: len(offsets)]
    sound[sound] = batches.largest_times(at[sound]) == times[sound]
    return np.flatnonzero(~sound | (before >= times)).tolist()


def _compare(
    faults: TimeFaults, batches: _Batches, position: int, offset: int, time: int, previous: int
) -> None:
    found = batches.find(position, offset)
    if found is None:
        faults.not_found.append((offset, _NOT_FOUND))
        return
    at, last_offset = found
    if last_offset != offset:
        faults.not_found.append((offset, last_offset))
        return
    largest = batches.largest_time(at)
    if largest != time:
        faults.mismatches.append((time, largest))
    if previous >= time:
        faults.out_of_order.append((time, previous))


class _Batches:
    """Where the batches of a log lie from a position on, by their headers.

    Attributes:
        offsets: the last offset of each, int64[n].
        ordered: whether they go up.
    """

    def __init__(self, log: LogFile, start: int = 0) -> None:
        """Walk to the end."""
        self._log = log
        self._end = start
        positions, offsets = [], []
        for table in log.headers(start=start, policy="file"):
            positions.append(table.position.copy())
            offsets.append(table.last_offset.copy())
            self._end = table.end_position
        self._positions, self.offsets = np.concatenate(positions), np.concatenate(offsets)
        self.ordered = bool((self.offsets[1:] >= self.offsets[:-1]).all())

    def rows_of(self, positions: Int64Array, offsets: Int64Array) -> Int64Array:
        """Of each pair what `find` answers, as a number of a batch; -1 where it has to look.

        Only of batches whose offsets are in order.
        """
        if not len(self._positions):
            return np.full(len(positions), -1, np.int64)
        first = np.searchsorted(self._positions, positions)
        at = np.maximum(first, np.searchsorted(self.offsets, offsets))
        first[first == len(self._positions)] = 0
        there = (self._positions[first] == positions) & (at < len(self.offsets))
        return np.where(there, at, -1)

    def largest_times(self, rows: Int64Array) -> Int64Array:
        """The largest timestamp of the records of some batches; `_UNKNOWN` where one is damaged."""
        wanted, inverse = np.unique(self._positions[rows], return_inverse=True)
        largest = np.full(len(wanted), _UNKNOWN, np.int64)
        damaged: list[int] = []
        for tile, table, _at in _batches_at(self._log, wanted):
            pieces = decode(
                tile.data,
                table,
                _TIMES,
                base=tile.base,
                on_error=lambda error: damaged.append(error.position or 0),
            )
            for columns in pieces:
                at = np.searchsorted(wanted, columns.position)
                np.maximum.at(largest, at, columns.timestamp)
        largest[np.isin(wanted, damaged)] = _UNKNOWN
        return largest[inverse]

    def find(self, position: int, offset: int) -> tuple[int, int] | None:
        """The first batch from a position on that ends at or past an offset, and where it ends.

        Raises:
            CorruptRecordError: the position lies outside the log, or the bytes there are no batch.
        """
        if not 0 <= position <= self._log.size:
            raise CorruptRecordError("the index points outside of the log", position=position)
        first = int(np.searchsorted(self._positions, position))
        if position != self._end and (
            first == len(self._positions) or self._positions[first] != position
        ):
            return _Batches(self._log, position).find(position, offset)
        if self.ordered:
            at = max(first, int(np.searchsorted(self.offsets, offset)))
        else:
            behind = np.flatnonzero(self.offsets[first:] >= offset)
            at = first + int(behind[0]) if len(behind) else len(self.offsets)
        if at < len(self.offsets):
            return int(self._positions[at]), int(self.offsets[at])
        _check_end(self._log, self._end)
        return None

    def largest_time(self, position: int) -> int:
        """The largest timestamp of a batch's records; -1 if it has none."""
        largest = -1
        for tile in self._log.walk(
            start=position, limit=position + 1, on_bad_crc="ignore", policy="file"
        ):
            for columns in decode(tile.data, tile.table, _TIMES, base=tile.base):
                largest = max(largest, int(columns.timestamp.max()))
        return largest


def _check_end(log: LogFile, position: int) -> None:
    """Refuse an end of batches that Kafka's reader refuses.

    Raises:
        CorruptRecordError: a size that no batch has.
    """
    if log.size - position > 17:
        size = int.from_bytes(log.head_at(position)[8:12], "big", signed=True)
        if size < MESSAGE_BYTES_MIN:
            reason = f"a size of {size} is smaller than that of any batch"
            raise CorruptRecordError(reason, path=log.path, position=position)


def _last_offset(log: LogFile, position: int, size_max: int) -> int:
    """The last offset of the batch at a position.

    Raises:
        CorruptRecordError: the position lies outside of the log, or no whole batch lies there.
    """
    if not 0 <= position <= log.size:
        raise CorruptRecordError("the index points outside of the log", position=position)
    head = log.head_at(position)
    left = min(log.size - position, size_max)
    if left > 17:
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


def _used(offsets: Int64Array, base_offset: int) -> int:
    """Slots in front of the first unused one, as Kafka's tool tells it."""
    unused = np.flatnonzero(offsets[1:] == base_offset)
    return int(unused[0]) + 1 if len(unused) else len(offsets)


def _check(path: Path, data: bytes, layout: np.dtype[np.void], last: int, base_offset: int) -> None:
    """What Kafka checks of an index when it opens one.

    Source: Kafka `OffsetIndex.sanityCheck`, `TimeIndex.sanityCheck`.
    """
    if last < base_offset:
        raise CorruptIndexError(f"the last offset, {last}, is below {base_offset}", path=path)
    if len(data) % layout.itemsize:
        reason = f"{len(data)} bytes are not a multiple of {layout.itemsize}"
        raise CorruptIndexError(reason, path=path)


def _print_entries(columns: tuple[tuple[str, Int64Array], ...], count: int, write: Write) -> None:
    pieces = [(text.INT, lead.encode(), b"", column, None) for lead, column in columns]
    RowWriter(write).rows((*pieces, (text.TEXT, b"\n")), count)


def print_snapshot(path: Path, line: Line) -> str | None:
    """Print a line for each producer; returns what Kafka's tool says of a damaged file."""
    try:
        snapshot = producer_snapshot.read(path)
    except KsegError as error:
        return str(error)
    for entry in snapshot.entries:
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
