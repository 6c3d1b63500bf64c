"""The log that compaction reads: the clean and the dirty part, the groups, and why segments stay.

    log start ... clean ... first dirty ... dirty ... first uncleanable ... log end

Compaction does not touch the active segment, the segment with the high watermark or the last
stable offset, a segment with a record younger than `min.compaction.lag.ms`, or any segment after
one of these. As many segments in a row as fit into one segment, by their sizes before compaction,
form a group and become one segment.

Source: Kafka `LogCleanerManager.cleanableOffsets`, `LogToClean`, `grabFilthiestCompactedLog`,
`Cleaner.groupSegmentsBySize`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, Literal

from kseg.constants import INT32_MAX, WHOLE_ENDS
from kseg.documents import frozen_dataclass
from kseg.errors import OffsetsOutOfOrderError, UnsupportedFormatError, at_path
from kseg.files.checkpoints import TopicPartition
from kseg.files.index import OFFSET_ENTRY_BYTES, TIME_ENTRY_BYTES
from kseg.files.log_file import Tile
from kseg.format.times import Time
from kseg.log.clock import now_of
from kseg.log.config import LogConfig
from kseg.log.producers.entry import ProducerEntry
from kseg.log.producers.snapshots import producers_at
from kseg.log.reader.version import HighWatermark, SegmentInfo
from kseg.log.reader.view import LogView
from kseg.log.recovery.plan import sum_of
from kseg.log.segment.index_entries import check_end
from kseg.log.segment.reader import Segment
from kseg.log.validate.batches import check_rising
from kseg.log.writer.state import LogState, high_watermark_of

#: Segments that are rewritten as one.
Group = tuple[SegmentInfo, ...]
#: Bytes of log read at a time: each read costs some hundred microseconds besides.
_WINDOW_BYTES: Final = 4 << 20


@frozen_dataclass(eq=False)
class CleanerInputs:
    """A log at one moment, and the way in which it is cleaned.

    Attributes:
        view: the log; its segments are rising, the active one last.
        partition: its name in checkpoints; None for a directory under another name.
        config: the settings.
        now_ms: the time that counts.
        high_watermark: up to where replicas are known to have it.
        producers: each producer at the log's end, by its id.
        on_bad_crc: "stop" at a batch that does not match its checksum, or "ignore" that.
    """

    view: LogView
    partition: TopicPartition | None
    config: LogConfig
    now_ms: int
    high_watermark: int
    producers: Mapping[int, ProducerEntry]
    on_bad_crc: Literal["stop", "ignore"] = "stop"

    @classmethod
    def of_state(
        cls, state: LogState, config: LogConfig | None = None, now_ms: Time | None = None
    ) -> CleanerInputs:
        """The inputs of a log open for appending; its own settings and clock if None is given."""
        with state.lock:
            return cls(
                state.as_view(),
                state.partition,
                config or state.config,
                now_of(now_ms, state.now_ms),
                state.replicated_offset,
                dict(state.producers.entries),
            )

    @classmethod
    def of_view(
        cls,
        view: LogView,
        config: LogConfig,
        now_ms: Time | None = None,
        high_watermark: HighWatermark | None = None,
    ) -> CleanerInputs:
        """The inputs of a log open for reading; the machine's clock if `now_ms` is None.

        Raises:
            UnsupportedFormatError: the log is one of Kafka 0.7.
            CorruptRecordError: a segment ends in damage.
            OSError: a file cannot be read.
        """
        if any(info.files.kafka07 for info in view.segments):
            raise UnsupportedFormatError("a log of Kafka 0.7 is only read here", path=view.path)
        now = now_of(now_ms)
        name, partition = view.name, None
        if name is not None and name.suffix is None:
            partition = TopicPartition(name.topic, name.partition)
        state = producers_at(
            view,
            view.log_end_offset,
            expiration_ms=config.producer_id_expiration_ms,
            now_ms=now,
        )
        return cls(
            view,
            partition,
            config,
            now,
            high_watermark_of(view, high_watermark),
            state.entries,
        )

    def between(self, start_offset: int, end_offset: int) -> tuple[SegmentInfo, ...]:
        """The segments that can hold offsets from one on, and begin before another."""
        infos = self.view.segments_from(start_offset) if start_offset < end_offset else ()
        return tuple(info for info in infos if info.base_offset < end_offset)

    @property
    def active_base_offset(self) -> int:
        """The base of the segment that is appended to; the log's start without segments."""
        segments = self.view.segments
        return segments[-1].base_offset if segments else self.view.log_start_offset


def walk_sound(
    segment: Segment, *, start: int = 0, on_bad_crc: Literal["stop", "ignore"] = "stop"
) -> Iterator[Tile]:
    """Walk a segment that must be whole, checksums included unless they are ignored.

    Raises:
        CorruptRecordError: a batch is damaged; with path and position.
        OffsetsOutOfOrderError: a batch does not begin after the one before it.
    """
    last = -1 if start else segment.base_offset - 1
    for tile in segment.walk(start=start, on_bad_crc=on_bad_crc, window_bytes=_WINDOW_BYTES):
        table = tile.table
        check_end(table, segment, WHOLE_ENDS)
        if len(table):
            try:
                check_rising(table, last)
            except OffsetsOutOfOrderError as error:
                raise at_path(error, segment.path) from None
            last = int(table.last_offset[-1])
        yield tile


def group_segments(
    segments: Sequence[SegmentInfo], config: LogConfig, first_uncleanable_offset: int
) -> list[Group]:
    """Group segments by their sizes before compaction.

    Args:
        segments: sorted by base offset.
        config: the settings of the log: sizes of log and indexes.
        first_uncleanable_offset: the offset after the last segment.

    Raises:
        OSError: an index cannot be looked at.
    """
    groups: list[list[SegmentInfo]] = []
    # Bytes of the log, of the offset index, of the time index.
    limits = (config.segment_bytes, config.segment_index_bytes, config.segment_index_bytes)
    used = (0, 0, 0)
    for number, info in enumerate(segments):
        sizes = (
            info.size,
            _whole_entries(info.files.index, OFFSET_ENTRY_BYTES),
            _whole_entries(info.files.time_index, TIME_ENTRY_BYTES),
        )
        grown = tuple(map(sum, zip(used, sizes, strict=True)))
        later_segments = segments[number + 1 :]
        end = later_segments[0].base_offset if later_segments else first_uncleanable_offset
        fits = groups and all(map(int.__le__, grown, limits))
        if fits and (not info.size or end - 1 - groups[-1][0].base_offset <= INT32_MAX):
            groups[-1].append(info)
            used = grown  # type: ignore[assignment]
        else:
            groups.append([info])
            used = sizes
    return [tuple(group) for group in groups]


def _whole_entries(path: Path | None, entry_bytes: int) -> int:
    """The bytes of the whole entries of an index; 0 if it does not exist."""
    if path is None:
        return 0
    try:
        size = os.stat(path).st_size
    except FileNotFoundError:
        return 0
    return size - size % entry_bytes


# ---- segments and groups of a plan ---------------------------------------------------------------


#: Why a segment stays as it is.
ACTIVE: Final = "active"
HIGH_WATERMARK: Final = "high-watermark"
LAST_STABLE: Final = "last-stable-offset"
MIN_LAG: Final = "min-compaction-lag"
BEYOND_MAP: Final = "map-full"
UNCHANGED: Final = "unchanged"


@frozen_dataclass
class CompactedSegment:
    """A segment that is rewritten, or that stays as it is.

    Attributes:
        base_offset: from the file's name.
        path: the log file.
        bytes: the size of the log file.
        kept_bytes: how many of these bytes will be left; None if they were not measured.
        why: why it stays, a word of this module; empty if it is rewritten.
    """

    base_offset: int
    path: Path
    bytes: int
    kept_bytes: int | None = None
    why: str = ""

    @property
    def saved_bytes(self) -> int | None:
        """How many bytes are saved; negative if delete horizons of tombstones need more room."""
        return None if self.kept_bytes is None else self.bytes - self.kept_bytes


@frozen_dataclass
class CompactedGroup:
    """Segments that are rewritten as one.

    Attributes:
        segments: sorted; the new segment has the base offset of the first.
        records: the number of records read; None if not measured, as for `kept_records`.
        kept_records: how many of these records are left.
        removes_tombstones: whether tombstones may go; older values of their keys must not outlive
            them.
        changes: whether the new segment may differ from the old one.
    """

    segments: tuple[CompactedSegment, ...]
    records: int | None = None
    kept_records: int | None = None
    removes_tombstones: bool = True
    changes: bool = True

    @classmethod
    def unmeasured(cls, group: Iterable[SegmentInfo]) -> CompactedGroup:
        """A group that was not read."""
        return cls(
            tuple(CompactedSegment(info.base_offset, info.path, info.size) for info in group)
        )

    @property
    def base_offsets(self) -> tuple[int, ...]:
        """The base offsets of the old segments."""
        return tuple(segment.base_offset for segment in self.segments)

    @property
    def base_offset(self) -> int:
        """The base offset of the new segment."""
        return self.segments[0].base_offset

    @property
    def bytes(self) -> int:
        """The size of the old log files."""
        return sum(segment.bytes for segment in self.segments)

    @property
    def kept_bytes(self) -> int | None:
        """The size of the new log file; None if it was not measured."""
        return sum_of(segment.kept_bytes for segment in self.segments)

    @property
    def room_bytes(self) -> int:
        """The free room for the new log file, beside the old ones."""
        if not self.changes:
            return 0
        return self.bytes if self.kept_bytes is None else self.kept_bytes
