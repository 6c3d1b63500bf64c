"""What compaction looks at: a log at one moment, open for reading or for appending."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from kseg.constants import StopReason
from kseg.errors import OffsetsOutOfOrderError, UnsupportedFormatError, at_path
from kseg.files.checkpoints import TopicPartition
from kseg.format.header import stop_error
from kseg.log.clock import now_of
from kseg.log.producers.snapshots import SnapshotFiles, feed_segment
from kseg.log.producers.state import ProducerState
from kseg.log.segment.reader import Segment
from kseg.log.validate.batches import check_rising
from kseg.log.writer.retention import high_watermark_of

if TYPE_CHECKING:
    from kseg.errors import KsegError
    from kseg.files.log_file import Tile
    from kseg.files.mapping import Mapping as FileMapping
    from kseg.format.times import Time
    from kseg.log.config import LogConfig
    from kseg.log.producers.entry import ProducerEntry
    from kseg.log.reader.version import HighWatermark, SegmentInfo
    from kseg.log.reader.view import LogView
    from kseg.log.writer.state import LogState

#: Bytes of log looked at at a time: each stretch costs some hundred microseconds besides.
_WINDOW_BYTES: Final = 4 << 20
_WHOLE: Final = (StopReason.END, StopReason.LIMIT)


@dataclass(frozen=True, slots=True, eq=False)
class CleanerInputs:
    """A log at one moment.

    Attributes:
        path: the partition directory.
        partition: what checkpoints call it; None for a directory under another name.
        config: the settings.
        now_ms: the time that counts.
        segments: rising, the active one last.
        log_start_offset, log_end_offset: of the log.
        high_watermark: up to where replicas are known to have it.
        last_stable_offset: up to where every transaction is decided.
        producers: what is known of each producer at the log's end, by its id.
        mapping: how to open files.
        on_bad_crc: "stop" at a batch that does not match its checksum, or "ignore" that.
    """

    path: Path
    partition: TopicPartition | None
    config: LogConfig
    now_ms: int
    segments: tuple[SegmentInfo, ...]
    log_start_offset: int
    log_end_offset: int
    high_watermark: int
    last_stable_offset: int
    producers: Mapping[int, ProducerEntry]
    mapping: FileMapping
    on_bad_crc: Literal["stop", "ignore"] = "stop"

    @classmethod
    def of_state(
        cls, state: LogState, config: LogConfig | None = None, now_ms: Time | None = None
    ) -> CleanerInputs:
        """Of a log that is open for appending; by its own settings and clock if None."""
        with state.lock:
            return cls(
                path=state.path,
                partition=state.partition,
                config=config or state.config,
                now_ms=now_of(now_ms, state.now_ms),
                segments=state.segments,
                log_start_offset=state.log_start_offset,
                log_end_offset=state.log_end_offset,
                high_watermark=state.replicated_offset,
                last_stable_offset=state.version.last_stable_offset,
                producers=dict(state.producers.entries),
                mapping=state.mapping,
            )

    @classmethod
    def of_view(
        cls,
        view: LogView,
        config: LogConfig,
        now_ms: Time | None = None,
        high_watermark: HighWatermark | None = None,
    ) -> CleanerInputs:
        """Of a log that is open for reading; by the machine's clock if None.

        Raises:
            UnsupportedFormatError: it is one of Kafka 0.7.
            CorruptRecordError: a segment ends in damage.
            OSError: a file cannot be read.
        """
        if any(info.files.kafka07 for info in view.segments):
            raise UnsupportedFormatError("a log of Kafka 0.7 is only read here", path=view.path)
        now = now_of(now_ms)
        start, end = view.log_start_offset, view.log_end_offset
        name = view.name
        known = name is not None and name.suffix is None
        return cls(
            path=view.path,
            partition=TopicPartition(name.topic, name.partition) if name and known else None,
            config=config,
            now_ms=now,
            segments=view.segments,
            log_start_offset=start,
            log_end_offset=end,
            high_watermark=high_watermark_of(view.path, start, end, high_watermark),
            last_stable_offset=view.last_stable_offset,
            producers=_producers_of(view, config, now),
            mapping="auto",
        )

    @property
    def active_base_offset(self) -> int:
        """The base of the segment that is appended to; the log's start without segments."""
        return self.segments[-1].base_offset if self.segments else self.log_start_offset

    def open_segment(self, info: SegmentInfo) -> Segment:
        """Open a segment, no further than it went at that moment."""
        return Segment.open(info.path, mapping=self.mapping, size=info.size, is_last=info.is_last)


def walk_sound(
    segment: Segment, *, start: int = 0, on_bad_crc: Literal["stop", "ignore"] = "stop"
) -> Iterator[Tile]:
    """Walk a segment that must be whole, checksums included unless they are ignored.

    Raises:
        CorruptRecordError: it is not; with path and position.
        OffsetsOutOfOrderError: a batch does not begin behind the one before it.
    """
    last = -1 if start else segment.base_offset - 1
    for tile in segment.walk(start=start, on_bad_crc=on_bad_crc, window_bytes=_WINDOW_BYTES):
        table = tile.table
        if table.stop not in _WHOLE:
            raise at_path(stop_error(table), segment.path)
        if len(table):
            try:
                check_rising(table, last)
            except OffsetsOutOfOrderError as error:
                raise at_path(error, segment.path) from None
            last = int(table.last_offset[-1])
        yield tile


def _producers_of(view: LogView, config: LogConfig, now_ms: int) -> Mapping[int, ProducerEntry]:
    """The producers at a log's end, as a load finds them: the newest snapshot and what follows."""
    state = ProducerState(expiration_ms=config.producer_id_expiration_ms)
    found = SnapshotFiles.of(view.files).newest_sound(at_most=view.log_end_offset)
    if found is not None and found.offset >= view.first_offset:
        state.load(found.entries, found.offset, now_ms=now_ms)
    ignored: list[KsegError] = []
    for info in view.segments_from(state.map_end_offset):
        state.map_end_offset = max(state.map_end_offset, info.base_offset)
        with view.open_segment(info) as segment:
            feed_segment(state, segment, view.log_end_offset, ignored.append)
    return state.entries


__all__ = ["CleanerInputs", "walk_sound"]
