"""Whether an offset index or a time index fits its log: one set of rules for every caller.

Entries differ from release to release: first offset of the append, last offset of the batch, the
exact record of the largest timestamp, one entry for several batches. They also differ with the
settings and with each restart of the broker. All of them lead to the right place. So the rules ask
only for what a lookup relies on:

    offset index (o, p)    a batch starts at p; every batch before p has offsets below o only
    time index (t, o)      the batch that holds o has t for its largest time, no batch before it a
                           later one; the last entry of a closed segment is for the largest time
    both                   no slot after the used entries: after the first entry, an offset that
                           is the segment's base says that a slot is unused; zeros in the first one
                           are an entry where the log has it

`OffsetIndexCheck` and `TimeIndexCheck` apply the rules to an array of entries and to the batches
that go by. With all entries and all batches they serve verify and reindex. `fault_at_ends` gives
them the last entry of each index and the batches after it: a few bytes of each file show most
faults, so that a load and a clean end check that much.

There must be at least half as many entries as the log makes. A writer that takes room for more
entries and is killed leaves zeros after those of the last segment, and a time index without the
entry for the end. Neither is a fault, unless a broker believes the index when it starts. After a
clean stop it believes the last entry that an index has room for. So a time index with zeros at its
end says that the newest record is of 1970, and retention deletes the segment. Nor does a broker
check indexes below the recovery point after a crash. A mark of a clean stop may stand only over
indexes without such room (`is_as_closed`).

Source: Kafka `AbstractIndex`, `OffsetIndex`, `TimeIndex`, `LogSegment.append`, `LogSegment.close`,
`DumpLogSegments`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import ClassVar, Final

import numpy as np

from kseg.commands import filled
from kseg.constants import INT64_MIN, TAILS, Int64s, StopReason, StrPath
from kseg.documents import frozen_dataclass
from kseg.errors import CorruptIndexError, KsegError
from kseg.files import io
from kseg.files.index import OffsetIndex, TimeIndex
from kseg.files.log_file import LogFile
from kseg.files.mapping import Mapping as FileMapping
from kseg.files.names import CLUSTER_METADATA, FileKind, SegmentFiles, list_partition
from kseg.format.header import BatchTable
from kseg.log.config import DEFAULTS
from kseg.log.findings import PER_CODE_MAX, Finding, Severity, Sink

#: Counts the entries that a log makes for both indexes, with the one at the end.
Due = Callable[[], tuple[int, int]]
#: Reads bytes of an index: its kind, the position and the size; an overlay does not hold the bytes
#: of an index that it has made, and gives none.
Read = Callable[[FileKind, int, int], bytes]
#: Walks a log from a position on.
Headers = Callable[[int], Iterable[BatchTable]]

_NONE: Final = np.empty(0, np.int64)
#: The least size of a batch.
_BATCH_BYTES_MIN: Final = 26


@frozen_dataclass
class IndexPlace:
    """One index file and the facts about its segment that its check needs.

    Attributes:
        path: the file; the log's, where the segment lacks the index.
        base_offset: the base offset of the segment.
        is_last: whether it is the partition's last segment.
        size: bytes of the file; -1 if it does not exist.
        log_bytes: the size of the segment's log; None if unknown.
        mapping: see `kseg.files.mapping`.
        live: another process may be writing both.
        believed: a broker uses the index unchanged when it starts.
        interval: `index.interval.bytes` of the log; Kafka's default where it is not known.
    """

    path: str
    base_offset: int
    is_last: bool
    size: int = -1
    log_bytes: int | None = None
    mapping: FileMapping = "auto"
    live: bool = False
    believed: bool = False
    interval: int = DEFAULTS.index_interval_bytes


def bytes_max(log_bytes: int, entry_bytes: int) -> int:
    """The most entries that an index needs: one a batch, and one that closes a time index."""
    return (log_bytes // _BATCH_BYTES_MIN + 1) * entry_bytes


_DISORDER: Final = "has entries that are not in order"
_WRONG: Final = "entry {number} is wrong"
#: The sentence of each fault by its code and perhaps a word, and the same in a few words. A time
#: index without its own has that of an offset index.
SENTENCES: Final[dict[str, tuple[str, str]]] = {
    "index-missing": ("the offset index is missing", "missing"),
    "index-length": (
        "{size} bytes are not a multiple of {entry}, the size of an entry",
        "ends within an entry: {size} bytes are not a multiple of {entry}",
    ),
    "index-length.few": ("{count} entries are few for a log that makes {due}", ""),
    "index-order": (
        "entry {number} has offset {offset}, {other} {value}[, after offset {before}, {other} "
        "{value_before}]; {count} such entries",
        _DISORDER,
    ),
    "index-order.unreadable": ("{reason}", _DISORDER),
    "index-order.many": ("{count} entries are more than the log can need", _DISORDER),
    "index-tail": ("entry {number} is in use after entry {used}, which is empty", _DISORDER),
    "index-unused": (
        "the last of {slots} entries is empty",
        "has room for entries that were never written",
    ),
    "index-points-nowhere": (
        "entry {number} sends offset {offset} to position {value}, where no batch starts",
        _WRONG,
    ),
    "index-points-nowhere.beyond": (
        "entry {number} sends offset {offset} to position {value}, beyond the end of the log",
        "entry {number} points past the last batch",
    ),
    "index-offset": (
        "entry {number} sends offset {offset} to position {value}, after batches that hold it",
        _WRONG,
    ),
    "time-index-missing": ("the time index is missing", "missing"),
    "time-index-points-nowhere": (
        "entry {number} sends time {value} to offset {offset}, which lies between two batches",
        _WRONG,
    ),
    "time-index-points-nowhere.beyond": (
        "entry {number} sends time {value} to offset {offset}, which lies beyond the end of the "
        "log",
        "entry {number} lies past the last batch",
    ),
    "time-index-late": (
        "entry {number} sends time {value} to offset {offset}, which has later records before it",
        _WRONG,
    ),
    "time-index-late.end": (
        "the last entry is for {last} ms, the log has {latest}",
        "does not end with the largest time",
    ),
    "time-index-timestamp": (
        "entry {number} sends time {value} to offset {offset}, which is in a batch with another "
        "latest time",
        _WRONG,
    ),
    "txn-index-torn": ("{tail} bytes after the last whole entry of {entry}", ""),
    "txn-index-version": ("version {version} of an aborted transaction is not known", ""),
    "txn-index-version.unreadable": ("{reason}", ""),
    "txn-index-order": (
        "entry {number} has offsets {stored.first_offset} to {stored.last_offset}",
        "",
    ),
    "txn-index-order.unreadable": ("{reason}", ""),
    "txn-index-order.log": (
        "entry {number} has offsets {stored.first_offset} to {stored.last_offset}, stable from "
        "{stored.last_stable_offset} on; the log says {made.first_offset} to {made.last_offset}, "
        "stable from {made.last_stable_offset} on",
        "",
    ),
    "txn-index-incomplete": (
        "producer {made.producer_id} aborted its records from offset {made.first_offset} on at "
        "offset {offset}, position {at}; no entry says so",
        "",
    ),
    "txn-index-points-nowhere": (
        "entry {number} ends at offset {offset}, which is not an abort marker",
        "",
    ),
}


class IndexCheck:
    """The check of one index file, which remembers its first fault."""

    word: ClassVar[str]

    def __init__(self, place: IndexPlace, findings: Sink | None) -> None:
        """Begin without a fault.

        Args:
            place: the index file.
            findings: receives the findings; None if the first fault suffices.
        """
        self.fault: Finding | None = None
        self._place, self._findings = place, findings

    def note(
        self,
        name: str,
        *,
        position: int | None = None,
        offset: int | None = None,
        severity: Severity | None = None,
        **values: object,
    ) -> None:
        """Report a fault.

        Args:
            name: the code of the fault in `SENTENCES`, without the word for the index.
            position, offset, severity: the same fields of the finding.
            values: fill the sentence; `position` and `offset` are among them.
        """
        sentence, why = (
            filled(text, {**values, "position": position, "offset": offset})
            for text in SENTENCES.get(f"{self.word}-{name}") or SENTENCES[f"index-{name}"]
        )
        word = "index" if name == "unused" else self.word
        code, path = f"{word}-{name.partition('.')[0]}", self._place.path
        finding = Finding(code, path, sentence, position, offset, severity, why)
        self.fault = self.fault or finding
        if self._findings is not None:
            self._findings.note(finding)


class EntriesCheck(IndexCheck):
    """The entries of an offset index or a time index that no batch has been compared with yet."""

    kind: ClassVar[FileKind]
    index: ClassVar[type[OffsetIndex | TimeIndex]]
    #: The number beside an offset.
    other: ClassVar[str]
    #: The least such number.
    least: ClassVar[int]
    #: Which of the two numbers of `Due` is that of this index.
    column: ClassVar[int]

    def __init__(
        self, place: IndexPlace, findings: Sink | None = None, *, read: Read | None = None
    ) -> None:
        """Read the entries and check their order; unordered ones are not compared with the log.

        Args:
            place: the index file.
            findings: receives the findings; None if the first fault suffices.
            read: reads only the last entry; None to read all entries.
        """
        super().__init__(place, findings)
        self.entry_bytes = self.index.LAYOUT.itemsize
        self._offsets, self._others, self.count = _NONE, _NONE, 0
        self._first = 0  # the number of the first entry that was read
        self._next = 0  # the first of these entries that was not compared with a batch yet
        self._last_offset = INT64_MIN  # the last offset of the batches so far
        if place.size < 0:
            if place.log_bytes:
                self.note("missing", severity="warning" if place.is_last else None)
            return
        size, entry = place.size, self.entry_bytes
        if size % entry:
            self.note("length", position=size // entry * entry, size=size, entry=entry)
        try:
            offsets, others = self._read() if read is None else self._last(read)
        except CorruptIndexError as error:
            self.note("order.unreadable", position=error.position, reason=error.reason)
            return
        self.count = self._first + len(offsets)
        if self._check_order(offsets, others):
            self._offsets, self._others = offsets, others

    def _last(self, read: Read) -> tuple[Int64s, Int64s]:
        """Only the last entry; empty if slots after the used entries are empty."""
        slots = self._place.size // self.entry_bytes
        self._first = max(slots - 1, 0)
        data = read(self.kind, self._first * self.entry_bytes, self.entry_bytes) if slots else b""
        if slots and not data:  # an overlay has made it of the log
            self._place = replace(self._place, size=-1)
        last = np.frombuffer(data, self.index.LAYOUT)
        if self._first and not last["relative"].all() and not _is_of_kraft(self._place.path):
            self._note_unused(self._first, slots)
            return _NONE, _NONE
        offsets = last["relative"].astype(np.int64) + self._place.base_offset
        return offsets, last[self.other].astype(np.int64)

    def _read(self) -> tuple[Int64s, Int64s]:
        """The offsets of all entries in use, and the numbers beside them; empty if too many are."""
        entry, place = self.entry_bytes, self._place
        with self.index.open(place.path, place.base_offset, mapping=place.mapping) as index:
            used, slots = index.entry_count, index.slots
            # Two entries may lead to one batch. More than that would only cost memory.
            if place.log_bytes is not None and used * entry > 2 * bytes_max(place.log_bytes, entry):
                self.note("order.many", position=0, count=used)
                return _NONE, _NONE
            stray, columns = index.stray_slot(), index.entries()
        # Zeros may follow the used entries only where a start rebuilds the index.
        if stray is not None:
            self.note("tail", position=stray * entry, number=stray, used=used)
        elif slots > used and place.believed and not _is_of_kraft(place.path):
            self._note_unused(used, slots)
        return columns.offsets, getattr(columns, f"{self.other}s")

    def _note_unused(self, used: int, slots: int) -> None:
        """Report empty slots after the used ones, as a killed process leaves them."""
        self.note("unused", position=used * self.entry_bytes, slots=slots)

    def _check_order(self, offsets: Int64s, others: Int64s) -> bool:
        """Report the first entry that is out of order; return whether there is none.

        The key of the index rises from entry to entry; the other number does not fall.
        """
        keys, values = (others, offsets) if self.column else (offsets, others)
        falls = (offsets < self._place.base_offset) | (others < self.least)
        # Compared, not subtracted: the difference of two timestamps may not fit.
        falls[1:] |= (keys[1:] <= keys[:-1]) | (values[1:] < values[:-1])
        if not falls.any():
            return True
        at = int(falls.argmax())
        number = self._first + at
        self.note(
            "order",
            position=number * self.entry_bytes,
            offset=int(offsets[at]),
            number=number,
            other=self.other,
            value=others[at],
            before=offsets[at - 1] if at else None,
            value_before=others[at - 1],
            count=int(falls.sum()),
        )
        return False

    def finish(self, stop: StopReason, due: Due) -> None:
        """Judge entries that point beyond the last batch, and missing ones; not after damage.

        Logs are written before their indexes, so an entry for nothing says that the log was longer
        once; or that its writer has gone on since the file was read.

        Args:
            stop: why the walk over the log ended.
            due: counts the entries that the log makes; called where there may be too few.
        """
        if stop is not StopReason.END and not (self._place.is_last and stop in TAILS):
            return
        live = self._place.live and self._place.is_last
        beyond_log = np.arange(self._next, len(self._offsets))
        self._report("points-nowhere.beyond", beyond_log, mild=live)
        if self.fault is None and self._place.size >= 0:
            self._check_complete(due)

    def _check_complete(self, due: Due) -> None:
        """Judge whether entries are missing."""
        self._check_count(self.count, due)

    def _check_count(self, count: int, due: Due) -> None:
        """Report an index with less than half of the entries that the log makes.

        The most that a log of this size can make is known at once. `due` walks the log, so it runs
        only where the index has less than half of those.
        """
        place = self._place
        if self._first:  # the others were not read
            return
        most = (place.log_bytes or 0) // (place.interval + 1) + 1
        expected = most if count * 2 >= most else due()[self.column]
        if expected > 1 and count * 2 < expected:  # one restart may leave one out
            self.note("length.few", severity="warning", count=self.count, due=expected)

    def _report(self, name: str, numbers: Int64s, *, mild: bool) -> None:
        """Report entries that were read, by their numbers: up to `PER_CODE_MAX`, and the rest once.

        Args:
            name: the code of the fault, as for `note`.
            numbers: the numbers of the wrong entries among those that were read.
            mild: report a warning, whatever the code's severity is.
        """
        if self._findings is not None:
            code = f"{self.word}-{name.partition('.')[0]}"
            self._findings.count_more(code, self._place.path, len(numbers) - PER_CODE_MAX)
        for at in numbers[:PER_CODE_MAX].tolist():
            number = self._first + at
            self.note(
                name,
                position=number * self.entry_bytes,
                offset=int(self._offsets[at]),
                severity="warning" if mild else None,
                number=number,
                value=self._others[at],
            )


class OffsetIndexCheck(EntriesCheck):
    """The entries of one `.index`."""

    kind = FileKind.INDEX
    word, index, other, least, column = "index", OffsetIndex, "position", 0, 0

    def feed(self, table: BatchTable) -> None:
        """Compare the entries that point below the end of the batches with these."""
        end = int(np.searchsorted(self._others, table.end_position))
        running = np.maximum.accumulate(_ends(table))
        if end > self._next:
            self._compare(table, running, slice(self._next, end))
            self._next = end
        if len(running):
            self._last_offset = max(self._last_offset, int(running[-1]))

    def _compare(self, table: BatchTable, running: Int64s, chosen: slice) -> None:
        """Report entries that lead to no batch, or to one after their offset.

        Args:
            table: the batches.
            running: int64[n], the largest last offset up to each.
            chosen: the entries that point to a place among the batches.
        """
        positions, offsets = self._others[chosen], self._offsets[chosen]
        numbers = np.arange(chosen.start, chosen.stop)
        at = np.searchsorted(table.position, positions)
        hit = at < len(table)
        hit[hit] = table.position[at[hit]] == positions[hit]
        live = self._place.live and self._place.is_last
        self._report("points-nowhere", numbers[~hit], mild=live)
        at, offsets, numbers = at[hit], offsets[hit], numbers[hit]
        before = np.concatenate(([self._last_offset], np.maximum(running, self._last_offset)))[at]
        past = (offsets <= before) | (offsets < table.base_offset[at])
        self._report("offset", numbers[past], mild=live)

    def position_for(self, offset: int, read: Read) -> int:
        """The position in the last entry at or below an offset; 0 if there is none.

        Args:
            offset: the offset to look up.
            read: reads the entries before the last one.
        """
        offsets, positions = self._offsets, self._others
        if self._first and offset < offsets[-1]:
            data = read(self.kind, 0, self._first * self.entry_bytes)
            entries = np.frombuffer(data, self.index.LAYOUT)
            relative, positions = entries["relative"].astype(np.int64), entries["position"]
            offsets = relative + self._place.base_offset
        at = int(np.searchsorted(offsets, offset, "right")) - 1
        return max(int(positions[at]), 0) if at >= 0 else 0


class TimeIndexCheck(EntriesCheck):
    """The entries of one `.timeindex`."""

    kind = FileKind.TIMEINDEX
    word, index, other, least, column = "time-index", TimeIndex, "timestamp", INT64_MIN, 1
    _latest = INT64_MIN

    def feed(self, table: BatchTable) -> None:
        """Compare the entries whose offsets the batches reach."""
        if not len(table):
            return
        running = np.maximum(np.maximum.accumulate(_ends(table)), self._last_offset)
        sound = np.where(table.crc_ok != 0, table.max_timestamp, self._latest)
        latest = np.maximum(np.maximum.accumulate(sound), self._latest)
        end = int(np.searchsorted(self._offsets, running[-1], "right"))
        if end > self._next:
            self._compare(table, running, latest, slice(self._next, end))
            self._next = end
        self._last_offset, self._latest = int(running[-1]), int(latest[-1])

    def _compare(self, table: BatchTable, running: Int64s, latest: Int64s, chosen: slice) -> None:
        """Report entries that records before them, or their own batch, contradict.

        Args:
            table: the batches.
            running: int64[n], the largest last offset up to each.
            latest: int64[n], the largest time up to each.
            chosen: the entries with offsets in these batches.
        """
        timestamps, offsets = self._others[chosen], self._offsets[chosen]
        at = np.searchsorted(running, offsets)
        before = np.concatenate(([self._latest], latest))[at]
        late = before > timestamps
        # Beside a damaged batch it is unknown which entries were its own.
        is_sound = table.bad_crc_count == 0
        in_gap = (offsets < table.base_offset[at]) & is_sound
        # Magic 0 has no time, yet Kafka 0.10 indexed its producers' times.
        has_time = (table.magic[at] > 0) & is_sound & ~late & ~in_gap
        other = (table.max_timestamp[at] != timestamps) & has_time
        for mask, name in ((late, "late"), (in_gap, "points-nowhere"), (other, "timestamp")):
            numbers = np.flatnonzero(mask) + chosen.start
            self._report(name, numbers, mild=mask is in_gap)

    @property
    def last_offset(self) -> int:
        """The offset of the last entry; below the base offset if there is none."""
        return int(self._offsets[-1]) if len(self._offsets) else self._place.base_offset - 1

    def finish(self, stop: StopReason, due: Due) -> None:
        """See `EntriesCheck.finish`; the log has to confirm an only entry of zeros."""
        is_zero = self.count == len(self._others) == 1 and not self._others[0]
        is_only = is_zero and self._offsets[0] == self._place.base_offset
        if is_only and self._latest != 0 and self._place.believed and stop is StopReason.END:
            self._note_unused(0, 1)
        super().finish(stop, due)

    def _check_complete(self, due: Due) -> None:
        """Report an index without the largest timestamp, or with less than half of its entries."""
        last = int(self._others[-1]) if self.count else -1  # the last timestamp
        # The active segment gets its last entry only when it is closed, so it may lack it here.
        if last < self._latest and (self._place.believed or not self._place.is_last):
            self.note("late.end", severity="warning", last=last, latest=self._latest)
        else:
            self._check_count(self.count + self._place.is_last, due)


def _ends(table: BatchTable) -> Int64s:
    """The last offset of each batch; for a damaged one the stored one, which no checksum covers."""
    if not table.bad_crc_count:
        return table.last_offset
    damaged = (table.crc_ok == 0) & (table.magic >= 2)
    return np.where(damaged, table.base_offset, table.last_offset)


def _is_of_kraft(path: str) -> bool:
    """Whether a file is of the metadata log, whose indexes Kafka 4.4 leaves at their full size."""
    return os.path.basename(os.path.dirname(path)) == f"{CLUSTER_METADATA}-0"


def fault_at_ends(
    log: IndexPlace, sizes: Mapping[FileKind, int], read: Read, headers: Headers, due: Due
) -> Finding | None:
    """The fault at the ends of a segment's two indexes; None if a close may leave them so.

    The last entry of each index is compared with the batches from where the offset index leads for
    the last entry of the time index: these are all that either entry speaks of. Earlier entries and
    batches are not checked, unless the offset index leads to no batch.

    Args:
        log: the segment; each index gets its own path and size in place of these.
        sizes: bytes of the indexes that are there.
        read: reads an index.
        headers: walks the log.
        due: counts the entries that the log makes for each index; called only where an index has
            no more than one slot, as only its last entry is read.

    Raises:
        OSError: something cannot be read.
    """
    stem = log.path.removesuffix(FileKind.LOG.value)

    def place(kind: FileKind) -> IndexPlace:
        return replace(log, path=stem + kind.value, size=sizes.get(kind, -1))

    index = OffsetIndexCheck(place(FileKind.INDEX), read=read)
    times = TimeIndexCheck(place(FileKind.TIMEINDEX), read=read)
    if index.fault or times.fault:
        return index.fault or times.fault
    start = index.position_for(times.last_offset, read)
    stop, walked = _feed_checks(headers(start), index, times)
    if start and not walked:  # no batch where the offset index leads
        stop, _ = _feed_checks(headers(0), index, times)
    # An entry that leads past damage leads to no batch in any case. What the largest time is,
    # damage leaves unknown.
    index.finish(StopReason.END, due)
    times.finish(stop, due)
    return index.fault or times.fault


def _feed_checks(
    tables: Iterable[BatchTable], *checks: OffsetIndexCheck | TimeIndexCheck
) -> tuple[StopReason, bool]:
    """Feed batches to the checks; return why they ended, and whether there are any."""
    stop, walked = StopReason.END, False
    for table in tables:
        stop, walked = table.stop, walked or len(table) > 0
        for check in checks:
            check.feed(table)
    return stop, walked


def fault_in(files: SegmentFiles) -> Finding | None:
    """The fault at the ends of the indexes of a segment; None if they are as after a close.

    A missing index is not a fault: a broker rebuilds it.

    Raises:
        OSError: something cannot be read.
    """
    if files.index is None:
        return None
    paths = {FileKind.INDEX: files.index, FileKind.TIMEINDEX: files.time_index}

    def read(kind: FileKind, position: int, size: int) -> bytes:
        path = paths[kind]
        assert path is not None
        with io.opened(path) as fd:
            return io.read_at(fd, position, size, path)

    with LogFile.open(files.log, "never") as log:
        sizes = {kind: os.stat(path).st_size if path else 0 for kind, path in paths.items()}
        place = IndexPlace(
            str(files.log), files.base_offset, is_last=False, log_bytes=log.size, believed=True
        )
        return fault_at_ends(
            place, sizes, read, lambda start: log.headers(start=start), lambda: (0, 0)
        )


def has_unused_times(path: Path, base_offset: int) -> bool:
    """Whether a time index ends with an unused entry; a partial last entry does not count.

    Args:
        path: the path of the index.
        base_offset: the base offset of its segment.

    Raises:
        OSError: it cannot be read.
    """
    with io.opened(path) as fd:
        size = io.file_size(fd)
        size -= size % TimeIndex.LAYOUT.itemsize
        place = IndexPlace(str(path), base_offset, is_last=False, size=size)
        check = TimeIndexCheck(
            place, None, read=lambda _kind, position, size: io.read_at(fd, position, size, path)
        )
    return check.fault is not None and check.fault.code == "index-unused"


def is_as_closed(partition: StrPath) -> bool:
    """Whether the indexes of all segments of a partition are as after a close.

    Indexes that cannot be read do not count.
    """
    try:
        segments = list_partition(partition).segments
        return all(segment.kafka07 or fault_in(segment) is None for segment in segments)
    except (KsegError, OSError):
        return False
