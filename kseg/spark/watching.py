"""Logs that grow, as a stream sees them: the new records of each, up to the last whole batch.

A stream does not read what a writer has not finished: half a batch at the end of a log, zeros, or a
last batch whose checksum is not right yet. If a log has not changed, that costs a `stat` of its
directories and of its last file. What this remembers only saves walks; the results come from places
and files. Nothing here imports pyspark.
"""

from __future__ import annotations

import glob
import logging
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol
from zlib import crc32

import numpy as np

from kseg import Segment
from kseg.constants import StopReason
from kseg.errors import OffsetOutOfRangeError
from kseg.format.header import BatchTable
from kseg.log.log import Log
from kseg.spark.damage import named
from kseg.spark.options import SourceOptions
from kseg.spark.plan import LogEntry, SegmentEntry, list_logs

_VERSION: Final = 1
_INT64_MAX: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Place:
    """How far one partition was read.

    Attributes:
        offset: of the next record.
        segment: base offset of the segment that `position` lies in; -1 where none is known.
        position: where the next batch begins, in bytes.
    """

    offset: int
    segment: int = -1
    position: int = 0


@dataclass(frozen=True, slots=True)
class StreamOffsets:
    """The place in each partition, by the name of its directory."""

    places: Mapping[str, Place]

    def to_json(self) -> dict[str, Any]:
        """As Spark keeps it: a dict of numbers, strings and dicts, in the order of names."""
        return {
            "v": _VERSION,
            "topics": {
                name: {"offset": place.offset, "segment": place.segment, "pos": place.position}
                for name, place in sorted(self.places.items())
            },
        }

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> StreamOffsets:
        """What a checkpoint says.

        Raises:
            ValueError: another version wrote it, or something else did.
        """
        version = document.get("v")
        if version != _VERSION:
            raise ValueError(f"kseg: the checkpoint's offsets have version {version!r}, not 1")
        topics = document.get("topics")
        if not isinstance(topics, Mapping):
            raise ValueError("kseg: the checkpoint's offsets name no topics")
        return cls({str(name): _place(name, given) for name, given in topics.items()})


def _place(name: object, given: Any) -> Place:
    try:
        numbers = [given[key] for key in ("offset", "segment", "pos")]
    except (KeyError, TypeError):
        numbers = []
    # The offset behind the last one of all has more than 64 bits.
    if not numbers or not all(
        type(number) is int and -1 <= number <= _INT64_MAX + (not place)
        for place, number in enumerate(numbers)
    ):
        raise ValueError(f"kseg: the checkpoint's offset of {name!r} is {given!r}")
    return Place(*numbers)


@dataclass(frozen=True, slots=True)
class Amount:
    """Records, bytes of log, and segments begun; as a limit, None is none."""

    rows: int | None = None
    bytes: int | None = None
    segments: int | None = None

    @property
    def is_unlimited(self) -> bool:
        """Whether there is no limit at all."""
        return self.rows is None and self.bytes is None and self.segments is None

    @property
    def is_used_up(self) -> bool:
        """Whether nothing fits any more."""
        return any(
            left is not None and left <= 0 for left in (self.rows, self.bytes, self.segments)
        )

    def share(self, count: int) -> Amount:
        """One of `count` equal parts, rounded up."""

        def part(whole: int | None) -> int | None:
            return None if whole is None else -(-whole // count)

        return Amount(part(self.rows), part(self.bytes), part(self.segments))

    def less(self, taken: Amount) -> Amount:
        """What is left when so much is taken."""

        def rest(whole: int | None, part: int | None) -> int | None:
            return None if whole is None else whole - (part or 0)

        return Amount(
            rest(self.rows, taken.rows),
            rest(self.bytes, taken.bytes),
            rest(self.segments, taken.segments),
        )


@dataclass(frozen=True, slots=True)
class Advance:
    """How far one partition gets within a limit.

    Attributes:
        place: where it then stands.
        taken: what lies between.
        at_end: nothing more is there to take.
    """

    place: Place
    taken: Amount
    at_end: bool


class Advancer(Protocol):
    """How far a partition gets from a place within a limit."""

    def __call__(self, name: str, place: Place, limit: Amount, *, at_least: bool) -> Advance:
        """With `at_least`, one batch is taken even if it is more than the limit."""
        ...


def admit(starts: Mapping[str, Place], limit: Amount, advance: Advancer) -> dict[str, Place]:
    """The places up to which the next micro-batch reads.

    Args:
        starts: where each partition stands.
        limit: of all partitions together.
        advance: how far one partition gets.
    """
    places = dict(starts)
    waiting = _in_turn(starts)
    left, nothing_yet = limit, True
    while waiting:
        behind = []
        for number, name in enumerate(waiting):
            for part in (left.share(len(waiting) - number), left):
                if left.is_used_up:
                    return places
                step = advance(name, places[name], part, at_least=nothing_yet)
                if step.at_end or step.taken.bytes:
                    break
            places[name], left = step.place, left.less(step.taken)
            nothing_yet = nothing_yet and not step.taken.bytes
            if step.taken.bytes and not step.at_end:
                behind.append(name)
        waiting = behind
    return places


def _in_turn(starts: Mapping[str, Place]) -> list[str]:
    """The names, beginning with another one at each stage of a stream."""
    names = sorted(starts)
    if not names:
        return names
    stage = crc32(b",".join(b"%d" % starts[name].offset for name in names)) % len(names)
    return names[stage:] + names[:stage]


def without_hints(place: Place) -> Place:
    """The same offset, found by a walk."""
    return replace(place, segment=-1, position=0)


_LOGGER = logging.getLogger("kseg.spark")
_NOTHING: Final = Amount(0, 0, 0)
#: Times of files advance in steps of some milliseconds.
_SETTLED_NS: Final = 1_000_000_000
_UNFINISHED: Final = (
    StopReason.END,
    StopReason.LIMIT,
    StopReason.TORN_TAIL,
    StopReason.ZERO_TAIL,
    StopReason.BAD_CRC,
)


class Watch:
    """The logs of one load, looked at again and again."""

    def __init__(self, options: SourceOptions) -> None:
        """Look at nothing yet."""
        self._options: Final = options
        self._logs: dict[str, LogEntry] = {}
        self._directories: dict[str, int] = {}
        self._ends: dict[str, tuple[str, int, Place]] = {}
        self._walks_always = any(glob.has_magic(path) for path in options.paths)

    def logs(self) -> dict[str, LogEntry]:
        """Every log by the name of its directory, listed anew where a directory has changed.

        All other methods use the latest listing, so a look at many logs costs one listing.

        Raises:
            NotALogError: the paths hold no segment.
            ValueError: two directories have one name.
            OSError: a path cannot be read.
        """
        if not self._directories or self._walks_always or self._have_changed():
            return self.list_anew()
        return self._logs

    def list_anew(self) -> dict[str, LogEntry]:
        """The same, with the sizes that files have now; raises what `logs` does."""
        listed: dict[str, LogEntry] = {}
        directories: set[str] = set()
        for log in list_logs(self._options):
            name = os.path.basename(log.directory)
            if name in listed:
                others = f"{listed[name].directory} and {log.directory}"
                raise ValueError(f"kseg: a stream needs one directory of {name}, not {others}")
            listed[name] = log
            directories |= {log.directory, os.path.dirname(log.directory)}
        # A directory's time is taken before it is listed, so that no change goes unseen; one that
        # was not known before is listed once more.
        self._logs = listed
        self._directories = {path: self._directories.get(path, -1) for path in directories}
        return listed

    def _log(self, name: str) -> LogEntry | None:
        return (self._logs or self.logs()).get(name)

    def _have_changed(self) -> bool:
        """Whether any directory has another time than when it was last listed."""
        changed = False
        soon = time.time_ns() - _SETTLED_NS
        for directory, seen in self._directories.items():
            try:
                now = os.stat(directory).st_mtime_ns
            except FileNotFoundError:
                now = -2
            changed |= now != seen
            # Another change may carry the same time, as long as that is the present.
            self._directories[directory] = now if now < soon else -1
        return changed

    def start_of(self, log: LogEntry) -> Place:
        """Where the records of a log begin."""
        first = log.segments[0].base_offset if log.segments else 0
        return Place(max(first or 0, log.log_start_offset or 0))

    def end_of(self, name: str, log: LogEntry) -> Place:
        """Where they end now, behind the last whole batch."""
        return self.advance(name, self.start_of(log), Amount()).place

    def checked(self, name: str, place: Place) -> Place:
        """The place, or the log's start if the records from there on are gone.

        Raises:
            OffsetOutOfRangeError: records are gone, and `failOnDataLoss` is true.
        """
        log = self._log(name)
        if log is None:
            self._lost(name, f"the log is gone, which was read up to offset {place.offset}")
            return place
        start = self.start_of(log)
        if place.offset < start.offset:
            self._lost(name, f"offsets {place.offset} to {start.offset - 1} are gone")
            return start
        return place

    def _lost(self, name: str, what: str) -> None:
        if self._options.fail_on_data_loss:
            hint = "set failOnDataLoss=false to go on with what is left"
            raise OffsetOutOfRangeError(f"{what}; {hint}", path=name)
        _LOGGER.warning("kseg: %s: %s", name, what)

    # ---- what is new -----------------------------------------------------------------------------

    def advance(self, name: str, place: Place, limit: Amount, *, at_least: bool = True) -> Advance:
        """How far a log goes on from a place within the limit; with `at_least`, one batch at least.

        Raises:
            KsegError: the log's end is damaged, and `onCorrupt` is `fail`.
            OffsetOutOfRangeError: records are gone, and `failOnDataLoss` is true.
            OSError: a segment cannot be read.
        """
        place = self.checked(name, place)
        log = self._log(name)
        if log is None or not log.segments or self._stands_still(name, log, place):
            return Advance(place, _NOTHING, at_end=True)
        step = self._step(name, log, place, limit, at_least)
        if self._options.isolation == "read_committed":
            step = _committed(log, place, step)
        return step

    def _stands_still(self, name: str, log: LogEntry, place: Place) -> bool:
        """Whether the last look ended here, and the last segment has not changed since."""
        path, size, end = self._ends.get(name, ("", -1, place))
        return (
            path == log.segments[-1].path
            and place.offset == end.offset
            and os.stat(path).st_size == size
        )

    def _step(
        self, name: str, log: LogEntry, place: Place, limit: Amount, at_least: bool
    ) -> Advance:
        taken, left = _NOTHING, limit
        for segment in _from(log, place):
            if limit.is_unlimited and not segment.is_last:
                continue  # all of it is new, however much it is
            place, more, whole = self._within(name, segment, place, left, at_least=at_least)
            at_least = at_least and taken == more == _NOTHING
            taken, left = _sum(taken, more), left.less(more)
            if not whole or (left.is_used_up and not segment.is_last):
                return Advance(place, taken, at_end=False)
        return Advance(place, taken, at_end=True)

    def _within(
        self, name: str, entry: SegmentEntry, place: Place, limit: Amount, *, at_least: bool
    ) -> tuple[Place, Amount, bool]:
        """Take batches of one segment: the place behind, the amount, whether these are all."""
        base = entry.base_offset or 0
        end, taken = replace(place, offset=max(place.offset, base)), _NOTHING
        with Segment.open(entry.path, is_last=entry.is_last) as segment:
            for table in _tables(segment, _begin(segment, base, place), is_last=entry.is_last):
                force = at_least and taken == _NOTHING
                fits = _fitting(table, place, limit.less(taken), at_least=force)
                if fits:
                    end, more = _behind(table, fits, base), _new(table, fits, place)
                    taken = replace(_sum(taken, more), segments=1)
                if fits < len(table):
                    return end, taken, False
            size = segment.size
        if not entry.is_last:
            after = entry.next_base_offset or 0
            return Place(max(after, place.offset), after, 0), taken, True
        if table.stop not in _UNFINISHED and self._options.on_corrupt == "fail":
            fault = segment.stop_fault(table)
            assert fault is not None
            raise named(fault, entry.path)
        if end.offset < place.offset:
            self._lost(name, f"the log ends at {end.offset}, and was read up to {place.offset}")
        if end.position == size:  # else an unfinished batch may become whole in its place
            self._ends[name] = (entry.path, size, end)
        return end, taken, True


def _from(log: LogEntry, place: Place) -> Iterator[SegmentEntry]:
    """The segment that a place lies in, and those after it."""
    for segment in log.segments:
        after = segment.next_base_offset
        if after is None or after > place.offset:
            yield segment


def _begin(segment: Segment, base: int, place: Place) -> int:
    """Where to walk from: the place's own position if a batch begins there, else the index's."""
    if place.segment == base and 0 < place.position <= segment.size:
        if place.position == segment.size:
            return place.position
        for tile in segment.walk(start=place.position, limit=place.position + 1):
            table = tile.table
            if len(table) and table.crc_ok[0] == 1 and int(table.last_offset[0]) >= place.offset:
                return place.position
    return segment.start_for_offset(place.offset).position


def _tables(segment: Segment, start: int, *, is_last: bool) -> Iterator[BatchTable]:
    """Headers from a batch on; at the end of a log only those of batches that are finished."""
    if not is_last:
        yield from segment.headers(start=start)
        return
    for tile in segment.walk(start=start, on_bad_crc="stop"):
        yield tile.table
    table = tile.table
    if table.stop is not StopReason.BAD_CRC:
        return
    # A writer may be at work on the very last batch; one with others behind it is damaged.
    behind = segment.headers(start=table.end_position)
    first, second = next(behind), next(behind, None)
    if len(first) <= 1 and second is None:
        return
    yield first
    if second is not None:
        yield second
        yield from behind


def _fitting(table: BatchTable, place: Place, limit: Amount, *, at_least: bool) -> int:
    """How many batches of a table fit."""
    fits = len(table)
    if limit.rows is not None:
        rows = np.cumsum(_rows(table, place))
        fits = min(fits, int(np.searchsorted(rows, limit.rows, side="right")))
    if limit.bytes is not None:
        sizes = np.cumsum(np.where(table.last_offset >= place.offset, table.size, 0))
        fits = min(fits, int(np.searchsorted(sizes, limit.bytes, side="right")))
    if not fits and at_least and len(table):
        new = np.flatnonzero(table.last_offset >= place.offset)
        return int(new[0]) + 1 if len(new) else len(table)
    return fits


def _rows(table: BatchTable, place: Place) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Records of each batch that are new; where only the records tell, the offsets it spans."""
    counts = table.record_count.astype(np.int64)
    spans = np.diff(table.last_offset, prepend=table.last_offset[:1] - 1)
    known = np.where((table.magic < 2) & (table.codec != 0), spans, counts)
    return np.where(table.last_offset >= place.offset, known, 0)


def _behind(table: BatchTable, count: int, base: int) -> Place:
    """Where the first `count` batches lead."""
    offset = int(table.last_offset[count - 1]) + 1
    return Place(offset, base, int(table.position[count - 1]) + int(table.size[count - 1]))


def _new(table: BatchTable, count: int, place: Place) -> Amount:
    """How much of the first `count` batches is new."""
    new = table.last_offset[:count] >= place.offset
    rows = int(_rows(table, place)[:count].sum())
    return Amount(rows, int(table.size[:count][new].sum()), 0)


def _sum(one: Amount, other: Amount) -> Amount:
    """Both amounts together."""
    return Amount(
        (one.rows or 0) + (other.rows or 0),
        (one.bytes or 0) + (other.bytes or 0),
        (one.segments or 0) + (other.segments or 0),
    )


def _committed(log: LogEntry, start: Place, step: Advance) -> Advance:
    """The place, but not past the last stable offset: transactions behind it are open."""
    with Log.open(log.directory) as opened:
        stable = opened.last_stable_offset
    if step.place.offset <= stable:
        return step
    place = without_hints(replace(step.place, offset=max(stable, start.offset)))
    return Advance(place, step.taken, at_end=True)
