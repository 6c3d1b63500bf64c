"""Records erased by key or by offset from closed segments: found, and segments rewritten.

A segment without such a record is not touched. Another is written anew and swapped in as those of
compaction are (`kseg.log.cleaner.clean`), so a kill leaves the old files of a segment or the new
ones. `kseg.format.erase` decides about records.

A batch that loses all its records stays as a header where Kafka's cleaner keeps it: the last batch
of a producer, and the last batch of the log, or by the rules of 4.4 that at the high watermark.

Source: Kafka `Cleaner.cleanInto`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kseg.constants import COMPACTION_RULES, INT64_MAX, Bools
from kseg.errors import KsegError, at_path
from kseg.files.log_file import Tile
from kseg.format.columns import scan_all
from kseg.format.erase import Eraser, KeySet, Targets
from kseg.format.header import BatchTable
from kseg.log.cleaner.inputs import CleanerInputs, walk_sound
from kseg.log.cleaner.judge import LastBatches
from kseg.log.reader.version import SegmentInfo
from kseg.log.segment.writer import SegmentWriter


@dataclass(frozen=True, slots=True)
class ErasedSegment:
    """A segment with records that are erased.

    Attributes:
        base_offset: from the file's name.
        path: the log file.
        size: of the log file in bytes.
        records: how many are erased.
        record_bytes: of their keys, values and headers.
        first_offset, last_offset: of these records.
        is_active: whether the log appends to it, so that the log rolls first.
    """

    base_offset: int
    path: Path
    size: int
    records: int
    record_bytes: int
    first_offset: int
    last_offset: int
    is_active: bool


def eraser_of(inputs: CleanerInputs, targets: Targets, keys: KeySet, rules: str) -> Eraser:
    """Finds and leaves out the records of a log.

    Args:
        inputs: the log.
        targets: the records.
        keys: of the targets.
        rules: of which release, out of `COMPACTION_RULES`.
    """
    producers = LastBatches.of(inputs.producers.values())
    is_old = rules in COMPACTION_RULES[:2]
    shown = inputs.log_end_offset if is_old else inputs.high_watermark

    def stays_empty(table: BatchTable) -> Bools:
        stays: Bools = producers.among(table) | (table.last_offset == shown - 1)
        return stays

    return Eraser(targets, keys, inputs.log_end_offset, stays_empty)


def note_last(inputs: CleanerInputs, eraser: Eraser) -> None:
    """Note where each key occurs last in a log, for tombstones.

    Raises:
        FormatError, LimitExceededError: a batch is damaged.
        OSError: a file cannot be read.
    """
    for info in inputs.segments:
        for tile in tiles_of(inputs, info):
            eraser.note_last(tile.data, tile.table, tile.base)


def tiles_of(inputs: CleanerInputs, info: SegmentInfo) -> Iterator[Tile]:
    """The stretches of a segment, with batches whose checksums are right.

    Raises:
        FormatError, LimitExceededError: a batch is damaged, or the caller found it so.
        OSError: the file cannot be read.
    """
    with inputs.open_segment(info) as segment:
        for tile in walk_sound(segment):
            if len(tile.table):
                yield tile


def segment_of(inputs: CleanerInputs, info: SegmentInfo, eraser: Eraser) -> ErasedSegment | None:
    """The segment with what is erased in it; None if nothing is.

    Raises:
        FormatError, LimitExceededError: a batch is damaged; with path and position.
        OSError: the file cannot be read.
    """
    with inputs.open_segment(info) as segment:
        if not any(eraser.means(columns).any() for columns in segment.read(eraser.request)):
            return None
    records = record_bytes = 0
    first, last = INT64_MAX, -1
    for tile in tiles_of(inputs, info):
        where = tile.data, tile.table, tile.base
        try:
            found = eraser.find(*where)
            if found.records:
                begins, ends, size = eraser.measured(*where, found)
                first, last = min(first, begins), max(last, ends)
                records += found.records
                record_bytes += size
        except KsegError as error:
            raise at_path(error, info.path) from None
    if not records:
        return None
    return ErasedSegment(
        info.base_offset, info.path, info.size, records, record_bytes, first, last, info.is_last
    )


def write_without(
    inputs: CleanerInputs, info: SegmentInfo, eraser: Eraser, writer: SegmentWriter
) -> int:
    """Write the batches of a segment without what is erased; returns their bytes.

    Raises:
        FormatError, LimitExceededError: a batch is damaged; with path and position.
        OSError: the file cannot be read, or the disk refuses.
    """
    size = 0
    with inputs.open_segment(info) as segment:
        entries = segment.txn_index.entries()
    for tile in tiles_of(inputs, info):
        try:
            data = eraser.rewrite(tile.data, tile.table, tile.base).data
        except KsegError as error:
            raise at_path(error, info.path) from None
        if data:
            writer.append([data], scan_all(memoryview(data), on_bad_crc="ignore"))
        size += len(data)
    for entry in entries:
        writer.txn_index.append(entry)
    writer.become_inactive()
    writer.flush()
    return size
