"""Closed segments in another codec: planned by their headers, rewritten, swapped in.

Only batches of magic 2 change, each by itself: the bytes of its records, the codec in its
attributes, its length and its checksum. Offsets, times and their type, sequences, producers,
epochs, delete horizons and the transactional flag stay. A batch stays as it is if it is a control
batch, has no records, has the codec already, or would be larger than `max.message.bytes`. A segment
stays if no batch changes, if it is the active one, or if it is damaged.

The new files are swapped in as those of compaction (`kseg.log.cleaner.clean`), so a kill leaves
the old files of a segment or the new ones.
"""

from __future__ import annotations

import errno
import os
from dataclasses import replace

from kseg.constants import SEGMENT_BYTES_MAX, Compression
from kseg.errors import KsegError, LimitExceededError, StalePlanError, at_path
from kseg.files import io
from kseg.format.columns import scan_all
from kseg.format.convert import Converter, Target
from kseg.log.cleaner.clean import keep_group, swap_in, write_cleaned
from kseg.log.cleaner.inputs import CleanerInputs, walk_sound
from kseg.log.cleaner.values import ACTIVE, UNCHANGED, CompactedSegment
from kseg.log.reader.version import SegmentInfo
from kseg.log.reader.view import LogView
from kseg.log.recovery.backup import Backup
from kseg.log.segment.writer import SegmentWriter
from kseg.log.writer.state import LogState


def plan_recoding(view: LogView, target: Target) -> list[CompactedSegment]:
    """Say for each segment whether it is rewritten, or why it stays; only headers are read.

    Args:
        view: the log.
        target: the codec, and its level; with a level batches of the codec change, too.

    Raises:
        UnsupportedFormatError: the log is one of Kafka 0.7.
        KsegError, OSError: a segment cannot be read.
    """
    return [_planned(view, info, target) for info in view.segments]


def _planned(view: LogView, info: SegmentInfo, target: Target) -> CompactedSegment:
    one = CompactedSegment(info.base_offset, info.path, info.size)
    if info.is_last or info.files.kafka07:
        return replace(one, why=ACTIVE if info.is_last else UNCHANGED)
    with view.open_segment(info) as segment:
        for table in segment.headers():
            data = (table.magic >= 2) & ~table.is_control & (table.record_count > 0)
            has_level = target.level is not None and target.compression != Compression.NONE
            if (data & ((table.codec != target.compression) | has_level)).any():
                return one
    return replace(one, why=UNCHANGED)


def recode(
    state: LogState, planned: CompactedSegment, target: Target, backup: Backup | None
) -> tuple[CompactedSegment, int]:
    """Write a segment in another codec and put it in its place.

    Args:
        state: a log open for appending.
        planned: the segment.
        target: the form of its new batches.
        backup: keeps the old files; None for none.

    Returns:
        The segment, with its new bytes; and the bytes that the disk gets back.

    Raises:
        StalePlanError: the log has not that segment any more.
        FormatError, LimitExceededError: a batch is damaged, or the segment would be too large; it
            is as it was.
        OSError: the disk refuses, or is full; likewise.
    """
    with state.cleaning:
        found = [info for info in state.sealed if info.base_offset == planned.base_offset]
        if not found or found[0].size != planned.bytes:
            raise StalePlanError("the log is not as the plan saw it", path=planned.path)
        (info,) = found
        if not io.has_room(state.path, info.size):
            reason = f"no room on the disk: {info.size} bytes are needed to rewrite a segment"
            raise OSError(errno.ENOSPC, reason, os.fspath(info.path))
        inputs = CleanerInputs.of_state(state)
        size = write_cleaned(inputs, (info,), lambda writer: _fill(inputs, info, target, writer))
        if backup is not None:
            keep_group(state, (info,), backup)
        return replace(planned, kept_bytes=size), swap_in(state, (info,), size)


def _fill(inputs: CleanerInputs, info: SegmentInfo, target: Target, writer: SegmentWriter) -> int:
    """Write the batches of a segment after conversion; returns their bytes."""
    size, converter = 0, Converter(target)
    with inputs.open_segment(info) as segment:
        for tile in walk_sound(segment):
            if not len(tile.table):
                continue
            try:
                data = b"".join(converter.convert(tile.data, tile.table, tile.base))
            except KsegError as error:
                raise at_path(error, info.path) from None
            size += len(data)
            if size > SEGMENT_BYTES_MAX:
                reason = f"it would pass the {SEGMENT_BYTES_MAX} bytes of a segment"
                raise LimitExceededError(reason, path=info.path)
            writer.append([data], scan_all(memoryview(data), on_bad_crc="ignore"))
        for entry in segment.txn_index.entries():
            writer.txn_index.append(entry)
    writer.become_inactive()
    writer.flush()
    return size
