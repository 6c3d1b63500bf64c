"""Logs that are written to, for a stream: the new records of each, up to the last whole batch.

A stream does not read unfinished writes: half a batch at the end of a log, zeros, or a last batch
whose checksum is not right yet. Checking a log that has not changed costs a `stat` of its
directories and of its last file. Remembered results of earlier checks only save walks: the results
depend only on stream offsets and files. Nothing here imports pyspark.
"""

from __future__ import annotations

import glob
import logging
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NamedTuple
from zlib import crc32

import numpy as np

from kseg import Segment
from kseg.constants import INT64_MAX, StopReason
from kseg.documents import frozen_dataclass
from kseg.errors import OffsetOutOfRangeError
from kseg.files.metadata import topic_id_in
from kseg.format.header import BatchTable
from kseg.format.request import NO_END
from kseg.log.reader import LogView, SegmentInfo, whole_batches
from kseg.spark.damage import named
from kseg.spark.options import SourceOptions
from kseg.spark.plan import ListedLog, list_logs

_VERSION: Final = 1
_LOGGER = logging.getLogger("kseg.spark")
#: A directory that changed less than this long ago may change again without a new time: the times
#: of files advance in steps of some milliseconds.
_SETTLED_NS: Final = 1_000_000_000


@frozen_dataclass
class StreamOffset:
    """The offset up to which one partition was read, and its position in the file.

    Attributes:
        offset: the offset of the next record.
        segment: the base offset of the segment that `position` is in; -1 if unknown.
        position: where the next batch begins, in bytes.
        topic_id: the id of the topic; None if it is not known.
    """

    offset: int
    segment: int = -1
    position: int = 0
    topic_id: str | None = None

    def has_other_topic_id(self, other: StreamOffset) -> bool:
        """Whether the topic was deleted and created again between two stream offsets."""
        return None not in (self.topic_id, other.topic_id) and self.topic_id != other.topic_id


def offsets_document(stream_offsets: Mapping[str, StreamOffset]) -> dict[str, Any]:
    """The document that Spark stores: the offsets, keyed by and sorted by partition directory."""
    return {
        "v": _VERSION,
        "topics": {
            name: {
                "offset": stream_offset.offset,
                "segment": stream_offset.segment,
                "pos": stream_offset.position,
                **({} if stream_offset.topic_id is None else {"id": stream_offset.topic_id}),
            }
            for name, stream_offset in sorted(stream_offsets.items())
        },
    }


def stream_offsets_of(document: Mapping[str, Any]) -> dict[str, StreamOffset]:
    """The stream offsets in the document of a checkpoint.

    Raises:
        ValueError: another version wrote it, or another program.
    """
    version, topics = document.get("v"), document.get("topics")
    if version != _VERSION:
        raise ValueError(f"kseg: the checkpoint's offsets have version {version!r}, not 1")
    if not isinstance(topics, Mapping):
        raise ValueError("kseg: the checkpoint's offsets name no topics")
    return {str(name): _stream_offset(name, fields) for name, fields in topics.items()}


def _stream_offset(name: object, fields: Any) -> StreamOffset:
    """A stream offset, from the JSON of a checkpoint.

    Args:
        name: the name of the partition directory.
        fields: its part of the document.

    Raises:
        ValueError: it is not a stream offset.
    """
    try:
        numbers = [fields[key] for key in ("offset", "segment", "pos")]
        topic_id = fields.get("id")
    except (AttributeError, KeyError, TypeError):
        numbers, topic_id = [], None
    # The offset after the largest possible one does not fit in 64 bits.
    if not numbers or not all(
        type(number) is int and -1 <= number <= INT64_MAX + (not index)
        for index, number in enumerate(numbers)
    ):
        raise ValueError(f"kseg: the checkpoint's offset of {name!r} is {fields!r}")
    offset, segment, position = numbers
    return StreamOffset(offset, segment, position, topic_id)


class Amount(NamedTuple):
    """Numbers of records, of bytes of log, and of segments; in a limit, INT64_MAX means none."""

    rows: int = INT64_MAX
    bytes: int = INT64_MAX
    segments: int = INT64_MAX

    def share(self, count: int) -> Amount:
        """One of `count` equal parts, rounded up."""
        return Amount(*(-(-whole // count) for whole in self))

    def less(self, taken: Amount) -> Amount:
        """The amount minus a part of it."""
        return Amount(*(whole - part for whole, part in zip(self, taken, strict=True)))

    def plus(self, more: Amount) -> Amount:
        """The sum of both amounts."""
        return Amount(*(amount + other for amount, other in zip(self, more, strict=True)))


NO_LIMIT: Final = Amount()
_NOTHING: Final = Amount(0, 0, 0)


class Advance(NamedTuple):
    """The part of a partition that a micro-batch reads within a limit.

    Attributes:
        stream_offset: where that part ends.
        taken: the amount of that part.
        at_end: whether the partition has no more records now.
    """

    stream_offset: StreamOffset
    taken: Amount
    at_end: bool


def admit(
    starts: Mapping[str, StreamOffset], limit: Amount, advance: Callable[..., Advance]
) -> dict[str, StreamOffset]:
    """The stream offsets up to which the next micro-batch reads.

    Args:
        starts: the stream offset up to which each partition was read.
        limit: the limit for all partitions together.
        advance: `Watch.advance`.
    """
    stream_offsets = dict(starts)
    if limit == NO_LIMIT:
        return {
            name: advance(name, stream_offset, limit).stream_offset
            for name, stream_offset in stream_offsets.items()
        }
    # Each partition gets an equal share of the rest of the limit, or all of it if no batch fits
    # into the share; partitions with more to read are asked again, until the limit is used up.
    waiting = _in_turn(starts)
    left, nothing_yet = limit, True
    while waiting:
        unfinished = []
        for number, name in enumerate(waiting):
            for part in (left.share(len(waiting) - number), left):
                if min(left) <= 0:
                    return stream_offsets
                step = advance(name, stream_offsets[name], part, at_least=nothing_yet)
                if step.at_end or step.taken.bytes:
                    break
            stream_offsets[name], left = step.stream_offset, left.less(step.taken)
            nothing_yet = nothing_yet and not step.taken.bytes
            if step.taken.bytes and not step.at_end:
                unfinished.append(name)
        waiting = unfinished
    return stream_offsets


def _in_turn(starts: Mapping[str, StreamOffset]) -> list[str]:
    """The names of partitions, beginning with a name that depends on the offsets.

    So a limit is not always used up by the same partitions.
    """
    names = sorted(starts)
    if not names:
        return names
    first = crc32(b",".join(b"%d" % starts[name].offset for name in names)) % len(names)
    return names[first:] + names[:first]


class Watch:
    """The logs of one load, which it lists and examines repeatedly."""

    def __init__(self, options: SourceOptions) -> None:
        """Open no file yet."""
        self._options: Final = options
        self._fails: Final = options.on_corrupt == "raise"
        self._logs: dict[str, ListedLog] = {}
        #: Directory -> its time of change (ns) when it was last listed; -1 if it has to be listed
        #: again in any case, -2 if it was missing.
        self._directories: dict[str, int] = {}
        #: Name of a directory -> its last segment, the size, and the stream offset at its end.
        self._ends: dict[str, tuple[Path, int, StreamOffset]] = {}
        self._walks_always = any(glob.has_magic(path) for path in options.paths)

    def logs(self) -> dict[str, ListedLog]:
        """Every log by the name of its directory, listed again where a directory has changed.

        All other methods use the latest listing, so examining many logs costs one listing.

        Raises:
            NotALogError: the paths hold no segment.
            ValueError: two directories have one name.
            OSError: a path cannot be read.
        """
        if not self._directories or self._walks_always or self._have_changed():
            return self.list_anew()
        return self._logs

    def list_anew(self) -> dict[str, ListedLog]:
        """As `logs`, with the present sizes of files."""
        listed: dict[str, ListedLog] = {}
        directories: set[str] = set()
        for log in list_logs(replace(self._options, replicas="all")):
            path = log.view.path
            if path.name in listed:
                paths = f"{listed[path.name].view.path} and {path}"
                raise ValueError(f"kseg: a stream needs one directory of {path.name}, not {paths}")
            listed[path.name] = log
            directories |= {str(path), str(path.parent)}
        # The times were read before the directories were listed, so every change is noticed. A new
        # directory has no such time yet, so it is listed once more.
        self._logs = listed
        self._directories = {path: self._directories.get(path, -1) for path in directories}
        return listed

    def _log(self, name: str) -> ListedLog | None:
        return (self._logs or self.logs()).get(name)

    def _have_changed(self) -> bool:
        """Whether any directory has changed since it was last listed."""
        changed = False
        soon = time.time_ns() - _SETTLED_NS
        for directory, seen in self._directories.items():
            try:
                now = os.stat(directory).st_mtime_ns
            except FileNotFoundError:
                now = -2
            changed |= now != seen
            # Another change may get the same time, if that time is not yet past.
            self._directories[directory] = now if now < soon else -1
        return changed

    def start_of(self, log: ListedLog) -> StreamOffset:
        """The stream offset before all records of a log."""
        start = max(log.start_offset, log.view.first_offset, 0)
        topic_id = topic_id_in(log.view.path)
        return StreamOffset(start, topic_id=None if topic_id is None else str(topic_id))

    def end_of(self, name: str, log: ListedLog) -> StreamOffset:
        """The stream offset at the end of a log now, after the last whole batch."""
        return self.advance(name, self.start_of(log), NO_LIMIT).stream_offset

    def checked(self, name: str, stream_offset: StreamOffset) -> StreamOffset:
        """The stream offset; or that of the log's start, if records after it are gone.

        Raises:
            OffsetOutOfRangeError: records are gone, and `failOnDataLoss` is true.
        """
        log = self._log(name)
        if log is None:
            self._report_loss(
                name, f"the log is gone, which was read up to offset {stream_offset.offset}"
            )
            return stream_offset
        start = self.start_of(log)
        if stream_offset.has_other_topic_id(start):
            self._report_loss(
                name, f"the topic was made again, which was read up to {stream_offset.offset}"
            )
            return start
        if stream_offset.offset < start.offset:
            self._report_loss(
                name, f"offsets {stream_offset.offset} to {start.offset - 1} are gone"
            )
            return start
        return replace(stream_offset, topic_id=start.topic_id)

    def _report_loss(self, name: str, loss: str) -> None:
        """Raise an error about lost records, or only log it if the options say so."""
        if self._options.fail_on_data_loss:
            hint = "set failOnDataLoss=false to continue with the remaining records"
            raise OffsetOutOfRangeError(f"{loss}; {hint}", path=name)
        _LOGGER.warning("kseg: %s: %s", name, loss)

    # ---- new records -----------------------------------------------------------------------------

    def advance(
        self, name: str, stream_offset: StreamOffset, limit: Amount, *, at_least: bool = True
    ) -> Advance:
        """The next part of a log within a limit.

        Args:
            name: the name of the partition directory.
            stream_offset: where the part begins.
            limit: the most that it has.
            at_least: it has at least one batch, if there is one, even above the limit.

        Raises:
            KsegError: the log's end is damaged, and `onCorrupt` is `fail`.
            OffsetOutOfRangeError: records are gone, and `failOnDataLoss` is true.
            OSError: a segment cannot be read.
        """
        stream_offset = self.checked(name, stream_offset)
        log = self._log(name)
        if log is None or not log.view.segments or self._stands_still(name, log, stream_offset):
            return Advance(stream_offset, _NOTHING, at_end=True)
        step = self._step(name, log, stream_offset, limit, at_least)
        if self._options.isolation == "read_committed":
            step = _bound_by_last_stable(log, stream_offset, step)
        return step._replace(
            stream_offset=replace(step.stream_offset, topic_id=stream_offset.topic_id)
        )

    def _stands_still(self, name: str, log: ListedLog, stream_offset: StreamOffset) -> bool:
        """Whether a log was read to its end before, and its last segment has not changed since."""
        path, size, end = self._ends.get(name, (None, -1, stream_offset))
        return (
            path == log.view.segments[-1].path
            and stream_offset.offset == end.offset
            and path.stat().st_size == size
        )

    def _step(
        self, name: str, log: ListedLog, stream_offset: StreamOffset, limit: Amount, at_least: bool
    ) -> Advance:
        """As `advance`, from a checked stream offset, through one segment after the other."""
        taken, left = _NOTHING, limit
        for info, following in log.segments():
            is_last = following == NO_END
            if not is_last and (limit == NO_LIMIT or following <= stream_offset.offset):
                continue  # without a limit it is read as a whole; or it was read before
            stream_offset, more, whole = self._advance_in_segment(
                name, info, following, stream_offset, left, at_least=at_least
            )
            at_least = at_least and taken == more == _NOTHING
            taken, left = taken.plus(more), left.less(more)
            if not whole or (min(left) <= 0 and not is_last):
                return Advance(stream_offset, taken, at_end=False)
        return Advance(stream_offset, taken, at_end=True)

    def _advance_in_segment(
        self,
        name: str,
        info: SegmentInfo,
        following: int,
        stream_offset: StreamOffset,
        limit: Amount,
        *,
        at_least: bool,
    ) -> tuple[StreamOffset, Amount, bool]:
        """The part of one segment within a limit.

        Args:
            name: the name of the partition directory.
            info: the segment.
            following: the base offset of the next segment; `NO_END` for the last one.
            stream_offset, limit, at_least: as for `advance`.

        Returns:
            The stream offset after that part; its amount; and whether it ends with the segment.
        """
        base, is_last = info.base_offset, following == NO_END
        end, taken = replace(stream_offset, offset=max(stream_offset.offset, base)), _NOTHING
        with Segment.open(info.path, is_last=is_last) as segment:
            begin = _begin(segment, base, stream_offset)
            tables = whole_batches(segment, begin) if is_last else segment.headers(start=begin)
            for table in tables:
                force = at_least and taken == _NOTHING
                fits, more = _fitting_batches(
                    table, stream_offset, limit.less(taken), at_least=force
                )
                if fits:
                    last = table[fits - 1]
                    end = StreamOffset(last.last_offset + 1, base, last.position + last.size)
                    taken = taken.plus(more)._replace(segments=1)
                if fits < len(table):
                    return end, taken, False
            size = segment.size
        if not is_last:
            return StreamOffset(max(following, stream_offset.offset), following, 0), taken, True
        fault = segment.stop_fault(table)
        if fault is not None and table.stop is not StopReason.BAD_CRC and self._fails:
            raise named(fault, str(info.path))
        if end.offset < stream_offset.offset:
            self._report_loss(
                name, f"the log ends at {end.offset}, and was read up to {stream_offset.offset}"
            )
        if end.position == size:  # otherwise an unfinished batch may be completed later
            self._ends[name] = (info.path, size, end)
        return end, taken, True


def _begin(segment: Segment, base: int, stream_offset: StreamOffset) -> int:
    """The position in a segment from which to walk after a stream offset.

    That is its own position, if a sound batch with its offset or a later one still begins there;
    otherwise the position that the offset index gives.
    """
    if stream_offset.segment == base and 0 < stream_offset.position <= segment.size:
        if stream_offset.position == segment.size:
            return stream_offset.position
        for tile in segment.walk(start=stream_offset.position, limit=stream_offset.position + 1):
            table = tile.table
            if (
                len(table)
                and table.crc_ok[0] == 1
                and int(table.last_offset[0]) >= stream_offset.offset
            ):
                return stream_offset.position
    return segment.start_for_offset(stream_offset.offset).position


def _fitting_batches(
    table: BatchTable, stream_offset: StreamOffset, limit: Amount, *, at_least: bool
) -> tuple[int, Amount]:
    """The number of first batches of a table that fit into a limit, and the amount that is new.

    With `at_least` the first new batch counts even if it does not fit.
    """
    new = table.last_offset >= stream_offset.offset
    # The header of a compressed message of magic 0 or 1 has no count: use the offsets it spans.
    spans = np.diff(table.last_offset, prepend=table.last_offset[:1] - 1)
    counts = np.where((table.magic < 2) & (table.codec != 0), spans, table.record_count)
    rows = np.cumsum(np.where(new, counts, 0))
    sizes = np.cumsum(np.where(new, table.size, 0))
    fits = min(
        int(rows.searchsorted(limit.rows, side="right")),
        int(sizes.searchsorted(limit.bytes, side="right")),
    )
    if not fits and at_least and len(table):
        fits = int(new.argmax()) + 1 if new.any() else len(table)
    amount = Amount(int(rows[fits - 1]), int(sizes[fits - 1]), 0) if fits else _NOTHING
    return fits, amount


def _bound_by_last_stable(log: ListedLog, start: StreamOffset, step: Advance) -> Advance:
    """The part of a log up to the last stable offset, after which transactions are open."""
    stable = LogView.open(log.view.path).last_stable_offset
    if step.stream_offset.offset <= stable:
        return step
    return Advance(StreamOffset(max(stable, start.offset)), step.taken, at_end=True)
