"""The work of a task: read its splits and turn them into Arrow batches. Needs no pyspark.

The split after a cut begins with the batch that starts at the cut. If the last batch before the cut
ends after it, the index that gave the cut was wrong. Then the task fails, rather than return rows
twice or never.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any, Final

import numpy as np
import pyarrow as pa

from kseg import Segment
from kseg.arrow import (
    binary_array,
    headers_array,
    numbers_array,
    repeated_array,
    texts_array,
    typed_array,
    validity_bits,
)
from kseg.constants import INT64_MAX, NO_TIMESTAMP, Array, ControlType, codec_label
from kseg.errors import (
    CorruptIndexError,
    CorruptRecordError,
    KsegError,
)
from kseg.format.header import BatchTable
from kseg.format.request import Request, narrow
from kseg.format.typed import Kinds, decoded_fields
from kseg.format.values import BinaryColumn, RecordColumns, TypedColumn
from kseg.log.recovery import Finding
from kseg.records.stream import Scan
from kseg.spark.damage import fault, named, passing_over, report, text_of
from kseg.spark.options import SourceOptions, field_of
from kseg.spark.plan import Split
from kseg.spark.schema import Projection
from kseg.stores.path import place

OnError = Callable[[KsegError], None]
#: The rows of a mode: records, batches, or the segments as documents.
Rows = RecordColumns | BatchTable | list[dict[str, Any]]

_US_PER_MS: Final = 1000
#: Milliseconds whose microseconds fit in 64 bits.
_MS_MAX: Final = INT64_MAX // _US_PER_MS
_CONTROL_NAMES: Final = {int(kind): kind.name for kind in ControlType}


# ---- columns -------------------------------------------------------------------------------------


def _labels(codes: Array, label: Callable[[int], str]) -> pa.Array:
    """Numbers as words; `label` is called once for each distinct number."""
    distinct, slots = np.unique(codes, return_inverse=True)
    return texts_array([label(int(code)) for code in distinct]).take(numbers_array(slots))


def _control_type(columns: RecordColumns, kind: pa.DataType) -> pa.Array:
    """The name of the type of each control record; null for other records."""
    words = _labels(columns["control_type"], lambda code: _CONTROL_NAMES.get(code, str(code)))
    return pa.array(np.asarray(words), kind, mask=~columns["control"])


def _timestamp(columns: RecordColumns, kind: pa.DataType) -> pa.Array:
    """The times in microseconds; null for a record without a time, or one that does not fit."""
    times = columns["timestamp_ms"]
    valid = (times != NO_TIMESTAMP) & (times <= _MS_MAX) & (times >= -_MS_MAX)
    return numbers_array(np.where(valid, times, 0) * _US_PER_MS, kind, valid)


def _headers(columns: RecordColumns, kind: pa.DataType) -> pa.Array:
    """Lists of names and values; null for a record without headers, as in Spark's Kafka source."""
    lists = headers_array(columns["headers"], kind)
    has_headers = validity_bits(np.diff(columns["headers"].offsets) != 0)
    return pa.Array.from_buffers(
        kind, len(lists), [has_headers, lists.buffers()[1]], children=[lists.values]
    )


#: Columns of records -> functions that make them, where it takes more than a conversion.
_OF_RECORDS: Final[dict[str, Callable[[RecordColumns, pa.DataType], pa.Array]]] = {
    "controlType": _control_type,
    "timestamp": _timestamp,
    "headers": _headers,
}
#: Columns of batches -> the attributes of a table of batches, where the names differ.
_OF_BATCHES: Final = {
    "count": "record_count",
    "transactional": "is_transactional",
    "control": "is_control",
}


def _array(name: str, rows: Rows, split: Split, kind: pa.DataType) -> pa.Array:
    """A column for Spark, without a copy where the types allow it.

    Args:
        name: the name of the column.
        rows: rows of the split.
        split: has the topic, the partition and the path of all rows.
        kind: Spark's type of the column, which may be wider than the field.
    """
    if name in ("topic", "partition", "path"):
        return repeated_array(getattr(split, name), kind, len(rows))
    if isinstance(rows, list):
        return pa.array([row[field_of(name)] for row in rows], kind)
    valid = None
    if isinstance(rows, BatchTable):
        values = getattr(rows, _OF_BATCHES.get(name, field_of(name)))
        if name in ("baseOffset", "count"):  # the header of an old compressed message has neither
            valid = (rows.magic == 2) | (rows.codec == 0)
    elif name in _OF_RECORDS:
        return _OF_RECORDS[name](rows, kind)
    elif name in ("corrupt", "keyError", "valueError") and field_of(name) not in rows.arrays:
        return pa.nulls(len(rows), kind)
    else:
        values = rows[field_of(name)]
    if isinstance(values, TypedColumn):
        return typed_array(values, kind)
    if isinstance(values, BinaryColumn):
        return binary_array(values, kind)
    if name == "codec":
        return _labels(values, codec_label)
    if name in ("deleteHorizonMs", "crcOk"):
        valid = values != -1
    return numbers_array(values, kind, valid)


def build(rows: Rows, split: Split, projection: Projection) -> pa.RecordBatch:
    """A batch with a row for each of `rows`.

    Args:
        rows: the rows, of any mode.
        split: the split that they are in.
        projection: the columns of the query.
    """
    schema = projection.schema
    arrays = [
        _array(column.name, rows, split, field.type)
        for column, field in zip(projection.columns, schema, strict=True)
    ]
    if not arrays:  # a batch of no columns keeps its number of rows only if made from a struct
        no_columns = pa.Array.from_buffers(pa.struct([]), len(rows), [None])
        return pa.RecordBatch.from_struct_array(no_columns)
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def build_damaged(
    damages: Sequence[Finding], split: Split, projection: Projection
) -> pa.RecordBatch:
    """A batch with a row for each damage: its place and its text, and null in all other columns.

    Args:
        damages: the damage in the split.
        split: has the topic and the partition.
        projection: the columns of the query.
    """
    names = [column.name for column in projection.columns]
    rows = []
    for damage in damages:
        values = {
            "topic": split.topic,
            "partition": split.partition,
            "path": damage.path,
            "offset": damage.offset,
            "position": damage.position,
            "corrupt": text_of(damage),
        }
        rows.append(dict(zip(projection.schema.names, map(values.get, names), strict=True)))
    return pa.RecordBatch.from_pylist(rows, projection.schema)


# ---- rows ----------------------------------------------------------------------------------------


#: Batches of fewer rows are joined: a batch costs Spark as much time as some thousand rows.
_SMALL_ROWS: Final = 4096


@cache
def settle() -> None:
    """Exclude the imported objects from garbage collection, once in a worker process.

    Spark's worker collects garbage after every task, and most of a short task's time would be spent
    on modules that are never garbage.
    """
    gc.collect()
    gc.freeze()


def read_task(
    task: tuple[Split, ...], projection: Projection, options: SourceOptions
) -> Iterator[pa.RecordBatch]:
    """The rows of a task's splits, in order, in batches of at most `max_batch_rows`.

    Raises:
        KsegError: damage, where `onCorrupt` is `fail`; names file, position and code.
        OSError: a segment is gone, or cannot be read.
    """
    damages: list[Finding] = []
    yield from _join_small_batches(
        _batches(task, projection, options, damages), options.max_batch_rows
    )
    if options.on_corrupt != "raise":
        report(damages, task, options.report_path)


def _batches(
    task: tuple[Split, ...], projection: Projection, options: SourceOptions, damages: list[Finding]
) -> Iterator[pa.RecordBatch]:
    """The rows of a task as record batches, with rows for damage if the options ask for them."""
    read = _READ[options.mode]
    for split in task:
        before = len(damages)
        if split.unreadable is None:
            on_error = passing_over(options, split, damages)
            for rows in read(split, projection.fields, options, on_error):
                yield build(rows, split, projection)
        else:
            damages.append(Finding("unreadable", split.path, split.unreadable))
        if options.permissive and len(damages) > before:
            yield build_damaged(damages[before:], split, projection)


def _records(
    split: Split, fields: tuple[str, ...], options: SourceOptions, on_error: OnError | None
) -> Iterator[RecordColumns]:
    """The records of a split, with decoded keys and values."""
    kinds = {name: kind for name, kind in options.kinds.items() if name in fields}
    return read_split(split, decoded_fields(fields, kinds), options, on_error, kinds)


def _tables(
    split: Split, _fields: tuple[str, ...], options: SourceOptions, on_error: OnError | None
) -> Iterator[BatchTable]:
    """The headers of a split's batches that can hold a record within its bounds."""
    request = Request(offset=split.offsets, time=split.times, control=True)
    for table in _headers_of(split, options.verify_crc, on_error):
        chosen = narrow(table, request)
        yield chosen if split.aborted is None else split.aborted.drop(chosen)


def _segments(
    split: Split, _fields: tuple[str, ...], _options: SourceOptions, on_error: OnError | None
) -> Iterator[list[dict[str, Any]]]:
    """One row for the log file of a split, summed up over all its batches."""
    from kseg.analysis.info import Summary  # imported late: only this mode needs it

    summary, last = Summary(), None
    for last in _headers_of(split, verify_crc=False, on_error=on_error):
        summary.feed(last)
    row = {
        **summary.document(),
        "base_offset": split.base_offset,
        "bytes": split.size,
        "first_offset": summary.first_offset,
        "last_offset": summary.last_offset,
        "end_position": 0 if last is None else last.end_position,
        "stop": "END" if last is None else last.stop.name,
    }
    yield [row]


#: Mode -> the function that reads the rows of a split.
_READ: Final[dict[str, Callable[..., Iterator[Rows]]]] = {
    "records": _records,
    "batches": _tables,
    "segments": _segments,
}


def _headers_of(split: Split, verify_crc: bool, on_error: OnError | None) -> Iterator[BatchTable]:
    """The headers of the batches that start within a split."""
    bounds: dict[str, Any] = {
        "start": split.start_position,
        "limit": split.end_position,
        "on_unreadable": on_error,
    }
    with _open_split(split, on_error) as segment:
        if verify_crc:
            walk = segment.walk(on_bad_crc="note", **bounds)
            tables: Iterator[BatchTable] = (tile.table for tile in walk)
        else:
            tables = segment.headers(**bounds)
        for table in tables:
            yield table
        stop_fault = segment.stop_fault(table)
        if stop_fault is not None:
            fault(stop_fault, on_error)


@contextmanager
def _open_split(split: Split, on_error: OnError | None) -> Iterator[Segment]:
    """The segment of a split; an error inside names its file and its code.

    Raises:
        CorruptRecordError: it has fewer bytes than at the time of the plan, and `on_error` is None.
    """
    try:
        with Segment.open(place(split.path), size=split.size, is_last=split.is_last) as segment:
            if segment.size < split.size:
                shrank = (
                    f"the file shrank to {segment.size} bytes from the {split.size} planned for"
                )
                fault(CorruptRecordError(shrank), on_error)
            yield segment
    except KsegError as error:
        raise named(error, split.path) from None


def read_split(
    split: Split,
    fields: tuple[str, ...],
    options: SourceOptions,
    on_error: OnError | None = None,
    kinds: Kinds | None = None,
) -> Iterator[RecordColumns]:
    """The records of one split as columns.

    Args:
        split: the batches to read.
        fields: the names of the columns, as in `kseg.scan`.
        options: say whether checksums are verified and control records are included, which key the
            records must have, and the most rows of a piece.
        on_error: receives each fault, which is then skipped; None raises it.
        kinds: the kinds of decoded keys and values.

    Raises:
        KsegError: damage, with file, position and code in the message.
        OSError: the segment is gone, or cannot be read.
    """
    request = Request(
        offset=split.offsets,
        time=split.times,
        max_rows=options.max_batch_rows,
        control=options.include_control,
        verify_crc=options.verify_crc,
        on_corrupt=on_error or "raise",
    )
    scan = Scan((), fields, request, "auto", _kinds=kinds or {}, _key=options.key)
    split_end, aborted = split.end_position, split.aborted
    ends_before_segment, overran = split_end < split.size, False

    def keep(table: BatchTable) -> BatchTable:
        """Drop aborted batches; note a batch that crosses the end: the index was wrong there."""
        nonlocal overran
        overran = ends_before_segment and len(table) > 0 and table.end_position > split_end
        return table if aborted is None else aborted.drop(table)

    with _open_split(split, on_error) as segment:
        segment.expect(split_end)
        start = split.start_position
        if options.index != "ignore":  # the indexes may allow a later start
            start = max(start, min(segment.start_of(request), split_end))
        choose = keep if ends_before_segment or aborted is not None else None
        bounds = {"start_position": start, "end_position": split_end}
        yield from scan.of_part(split, segment, **bounds, keep=choose)
        if overran:
            fault(
                CorruptIndexError(
                    "the offset index named a place inside a batch; rebuild the index, or read "
                    "with option index=ignore",
                    position=split_end,
                ),
                on_error,
            )


def _join_small_batches(
    batches: Iterator[pa.RecordBatch], rows_max: int
) -> Iterator[pa.RecordBatch]:
    """Join neighbouring small batches."""
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
