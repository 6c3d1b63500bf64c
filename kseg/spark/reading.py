"""What a task does: read its splits and turn them into Arrow batches. Needs no pyspark.

A split that ends at a cut must find a batch that starts at the cut. If its last batch reaches past
it, the index that gave the cut was wrong. Then the task fails, rather than give rows twice or
never.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from kseg import Segment
from kseg.errors import CorruptIndexError, KsegError
from kseg.format.header import BatchTable
from kseg.format.typed import decode_columns
from kseg.spark.damage import Damage, check_size, fault, named, passing_over, report
from kseg.spark.modes import batch_rows, segment_rows
from kseg.spark.options import SourceOptions
from kseg.spark.plan import Split
from kseg.spark.remote import place
from kseg.spark.rows import RowBuilder
from kseg.spark.schema import Projection

if TYPE_CHECKING:
    from kseg.format.values import RecordColumns

    OnError = Callable[[KsegError], None]

#: Batches of fewer rows are joined: each costs Spark as much as some thousand rows.
_SMALL_ROWS: Final = 4096


def read_task(
    task: tuple[Split, ...], projection: Projection, options: SourceOptions
) -> Iterator[pa.RecordBatch]:
    """The rows of a task's splits, in order, in batches of at most `max_batch_rows`.

    Raises:
        KsegError: damage, where `onCorrupt` is `fail`; names file, position and code.
        OSError: a segment is gone, or cannot be read.
    """
    damages: list[Damage] = []
    rows = _ROWS[options.mode](task, projection, options, damages)
    yield from _joined(rows, options.max_batch_rows)
    if options.on_corrupt != "fail":
        report(damages, task, options.report_path)


def _record_rows(
    task: tuple[Split, ...], projection: Projection, options: SourceOptions, damages: list[Damage]
) -> Iterator[pa.RecordBatch]:
    builder = RowBuilder(projection)
    kinds = {name: kind for name, kind in options.kinds.items() if name in projection.fields}
    for split in task:
        told = len(damages)
        on_error = passing_over(options, split, damages)
        if split.unreadable is None:
            for columns in read_split(split, projection.fields, options, on_error):
                yield builder.build(decode_columns(columns, kinds), split)
        else:
            damages.append(Damage("unreadable", split.path, None, None, split.unreadable))
        if options.permissive and len(damages) > told:
            yield builder.build_damaged(damages[told:], split)


def read_split(
    split: Split, fields: tuple[str, ...], options: SourceOptions, on_error: OnError | None = None
) -> Iterator[RecordColumns]:
    """The records of one split as columns.

    Args:
        split: what to read.
        fields: names of the record fields to decode.
        options: for checksums, control records and the size of a piece.
        on_error: takes each fault, which is then passed over; None raises it.

    Raises:
        KsegError: damage, with file, position and code in the message.
        OSError: the segment is gone, or cannot be read.
    """
    try:
        yield from _read(split, fields, options, on_error)
    except KsegError as error:
        raise named(error, split.path) from None


def _read(
    split: Split, fields: tuple[str, ...], options: SourceOptions, on_error: OnError | None
) -> Iterator[RecordColumns]:
    with Segment.open(place(split.path), size=split.size, is_last=split.is_last) as segment:
        check_size(segment, split, on_error)
        walked = _Walked(split)
        yield from segment.read(
            start_position=_start(segment, split, options.index),
            end_position=split.end_position,
            start_offset=split.start_offset,
            end_offset=split.end_offset,
            start_timestamp=split.start_timestamp,
            end_timestamp=split.end_timestamp,
            fields=fields,
            max_rows=options.max_batch_rows,
            control=options.include_control,
            verify_crc=options.verify_crc,
            keep=walked.keep,
            on_error=on_error,
        )
        if walked.overran:
            fault(
                CorruptIndexError(
                    "the offset index named a place inside a batch; rebuild the index, or read "
                    "with option index=ignore",
                    position=split.end_position,
                ),
                on_error,
            )


def _start(segment: Segment, split: Split, index: str) -> int:
    """Where to walk from: the indexes may know a place further on than the split's start."""
    start = split.start_position
    if index == "ignore":
        return start
    if split.start_offset is not None and split.start_offset > segment.base_offset:
        start = max(start, segment.start_for_offset(split.start_offset).position)
    if split.start_timestamp is not None:
        start = max(start, segment.start_for_time(split.start_timestamp).position)
    return min(start, split.end_position)


class _Walked:
    """Watches the walk over a split, and leaves out aborted transactions on the way."""

    def __init__(self, split: Split) -> None:
        """Nothing walked yet."""
        self._split = split
        self.overran = False

    def keep(self, table: BatchTable) -> BatchTable:
        """Take note of how far a tile's batches reach."""
        cut = self._split.end_position
        self.overran = len(table) > 0 and cut < self._split.size and table.end_position > cut
        return table if self._split.aborted is None else self._split.aborted.drop(table)


_ROWS: Final = {"records": _record_rows, "batches": batch_rows, "segments": segment_rows}


def _joined(batches: Iterator[pa.RecordBatch], rows_max: int) -> Iterator[pa.RecordBatch]:
    """The same rows with small neighbours in one batch."""
    small = min(_SMALL_ROWS, rows_max)
    waiting: list[pa.RecordBatch] = []
    count = 0
    for batch in batches:
        if waiting and count + batch.num_rows > rows_max:
            yield _concat(waiting)
            waiting, count = [], 0
        waiting.append(batch)
        count += batch.num_rows
        if count >= small:
            yield _concat(waiting)
            waiting, count = [], 0
    if waiting:
        yield _concat(waiting)


def _concat(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)
