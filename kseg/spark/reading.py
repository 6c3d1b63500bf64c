"""The work of a task: read its splits and turn them into Arrow batches. Needs no pyspark.

A split that ends at a cut must find a batch that starts at the cut. If its last batch reaches past
it, the index that gave the cut was wrong. Then the task fails, rather than give rows twice or
never.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, partial
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
from kseg.constants import (
    INT64_MAX,
    NO_TIMESTAMP,
    Array,
    Bools,
    ControlType,
    codec_label,
)
from kseg.errors import CorruptIndexError, CorruptRecordError, KsegError
from kseg.format.header import BatchTable
from kseg.format.request import Request, key_needle
from kseg.format.take import take_equal
from kseg.format.typed import decode_columns, read_fields
from kseg.format.values import RecordColumns, TypedColumn
from kseg.log.recovery import Finding
from kseg.spark.damage import fault, named, passing_over, report, text_of
from kseg.spark.options import SourceOptions, field_of
from kseg.spark.plan import Split
from kseg.spark.schema import Projection
from kseg.stores.path import place

OnError = Callable[[KsegError], None]

_US_PER_MS: Final = 1000
#: Milliseconds whose microseconds fit in 64 bits.
_MS_MAX: Final = INT64_MAX // _US_PER_MS
_CONTROL_NAMES: Final = {int(kind): kind.name for kind in ControlType}


#: Makes a column: from the rows of a mode (columns of records, a table of batches, or dicts), their
#: split and an Arrow type.
_Builder = Callable[[Any, Split, pa.DataType], pa.Array]


def _integers(field: str, columns: RecordColumns, _split: Split, kind: pa.DataType) -> pa.Array:
    """A field of numbers or flags, widened to Spark's INT where it is narrower."""
    return numbers_array(columns[field], kind)


def _bytes(field: str, columns: RecordColumns, _split: Split, kind: pa.DataType) -> pa.Array:
    column = columns[field]
    if isinstance(column, TypedColumn):
        return typed_array(column, kind)
    return binary_array(column, kind)


def _reasons(field: str, columns: RecordColumns, split: Split, kind: pa.DataType) -> pa.Array:
    if field not in columns.arrays:
        return _nothing(columns, split, kind)
    return typed_array(columns[field], kind)


def _labels(codes: Array, label: Callable[[int], str]) -> pa.Array:
    """Small codes as words."""
    known, slots = np.unique(codes, return_inverse=True)
    return texts_array([label(int(code)) for code in known]).take(numbers_array(slots))


def _codec(columns: RecordColumns, _split: Split, _kind: pa.DataType) -> pa.Array:
    return _labels(columns["codec"], codec_label)


def _control_label(code: int) -> str:
    return _CONTROL_NAMES.get(code, str(code))


def _control_type(columns: RecordColumns, _split: Split, kind: pa.DataType) -> pa.Array:
    words = _labels(columns["control_type"], _control_label)
    return pa.array(np.asarray(words), kind, mask=~columns["control"])


def _timestamp(columns: RecordColumns, _split: Split, kind: pa.DataType) -> pa.Array:
    """Microseconds; null for no time, and for a time that does not fit."""
    times = columns["timestamp_ms"]
    valid = (times != NO_TIMESTAMP) & (times <= _MS_MAX) & (times >= -_MS_MAX)
    return numbers_array(np.where(valid, times, 0) * _US_PER_MS, kind, valid)


def _delete_horizon(columns: RecordColumns, _split: Split, kind: pa.DataType) -> pa.Array:
    times = columns["delete_horizon_ms"]
    return numbers_array(times, kind, times != NO_TIMESTAMP)


def _of_split(attribute: str, rows: Any, split: Split, kind: pa.DataType) -> pa.Array:
    """One value of the split for every row."""
    return repeated_array(getattr(split, attribute), kind, len(rows))


def _nothing(columns: RecordColumns, _split: Split, kind: pa.DataType) -> pa.Array:
    return pa.nulls(len(columns), kind)


def _headers(columns: RecordColumns, _split: Split, kind: pa.DataType) -> pa.Array:
    """A list of name and value; null without headers, as Spark's Kafka source has it."""
    lists = headers_array(columns["headers"], kind)
    some = validity_bits(np.diff(columns["headers"].offsets) != 0)
    return pa.Array.from_buffers(
        kind, len(lists), [some, lists.buffers()[1]], children=[lists.values]
    )


def _column(
    name: str,
    table: BatchTable,
    _split: Split,
    kind: pa.DataType,
    *,
    unknown: Callable[[BatchTable], Bools] | None = None,
) -> pa.Array:
    """A column of the table, widened to Spark's type; null where it is unknown."""
    return numbers_array(getattr(table, name), kind, None if unknown is None else ~unknown(table))


def _codec_label(table: BatchTable, _split: Split, _kind: pa.DataType) -> pa.Array:
    return _labels(table.codec, codec_label)


def _value(name: str, rows: list[dict[str, Any]], _split: Split, kind: pa.DataType) -> pa.Array:
    return pa.array([row[name] for row in rows], kind)


def _is_old_compressed(table: BatchTable) -> Bools:
    """The header of such a message has neither its first offset nor its count."""
    flags: Bools = (table.magic < 2) & (table.codec != 0)
    return flags


def _is_absent(name: str, table: BatchTable) -> Bools:
    flags: Bools = getattr(table, name) == -1
    return flags


#: What a row is, by the mode: the plain columns, and those of another form.
_MODES: Final[dict[str, tuple[Callable[..., pa.Array], dict[str, _Builder]]]] = {
    "records": (
        _integers,
        {
            "key": partial(_bytes, "key"),
            "value": partial(_bytes, "value"),
            "timestamp": _timestamp,
            "headers": _headers,
            "codec": _codec,
            "controlType": _control_type,
            "deleteHorizonMs": _delete_horizon,
            "keyError": partial(_reasons, "key_error"),
            "valueError": partial(_reasons, "value_error"),
            "corrupt": _nothing,
        },
    ),
    "batches": (
        _column,
        {
            "baseOffset": partial(_column, "base_offset", unknown=_is_old_compressed),
            "count": partial(_column, "record_count", unknown=_is_old_compressed),
            "transactional": partial(_column, "is_transactional"),
            "control": partial(_column, "is_control"),
            "codec": _codec_label,
            **{
                name: partial(_column, field_of(name), unknown=partial(_is_absent, field_of(name)))
                for name in ("deleteHorizonMs", "crcOk")
            },
        },
    ),
    "segments": (_value, {}),
}


def _builder(name: str, mode: str) -> _Builder:
    """The function that makes a column of Spark."""
    plain, others = _MODES[mode]
    if name in ("topic", "partition", "path"):
        return partial(_of_split, name)
    return others.get(name) or partial(plain, field_of(name))


class RowBuilder:
    """Turns the rows of one query's splits into record batches of one schema."""

    def __init__(self, projection: Projection, mode: str = "records") -> None:
        """Fix the columns, and whether a row is a record, a batch or a segment."""
        self.schema: Final = projection.schema
        self._columns: Final = projection.columns
        self._builders: Final = [_builder(column.name, mode) for column in projection.columns]

    def build(self, rows: Any, split: Split) -> pa.RecordBatch:
        """One batch with a row for each of `rows`, whose memory it shares."""
        arrays = [
            build(rows, split, field.type)
            for build, field in zip(self._builders, self.schema, strict=True)
        ]
        if not arrays:  # a structure without fields counts its rows, a list of no columns does not
            none = pa.Array.from_buffers(pa.struct([]), len(rows), [None])
            return pa.RecordBatch.from_struct_array(none)
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def build_damaged(self, damages: Sequence[Finding], split: Split) -> pa.RecordBatch:
        """A row for each damage, with its place and its text; null in all other columns."""
        values: dict[str, list[Any]] = {
            "topic": [split.topic] * len(damages),
            "partition": [split.partition] * len(damages),
            "path": [damage.path for damage in damages],
            "offset": [damage.offset for damage in damages],
            "position": [damage.position for damage in damages],
            "corrupt": [text_of(damage) for damage in damages],
        }
        none = [None] * len(damages)
        arrays = [
            pa.array(values.get(column.name, none), field.type)
            for column, field in zip(self._columns, self.schema, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


#: Batches of fewer rows are joined: each costs Spark as much as some thousand rows.
_SMALL_ROWS: Final = 4096


@cache
def settle() -> None:
    """Freeze the imported objects for the garbage collector, once in a worker process.

    Spark's worker collects garbage after every task, and most of a short task's time goes into
    looking at modules that will never be garbage.
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
    yield from _joined(_batches(task, projection, options, damages), options.max_batch_rows)
    if options.on_corrupt != "raise":
        report(damages, task, options.report_path)


def _batches(
    task: tuple[Split, ...], projection: Projection, options: SourceOptions, damages: list[Finding]
) -> Iterator[pa.RecordBatch]:
    builder = RowBuilder(projection, options.mode)
    read = {"records": _records, "batches": _tables, "segments": _segments}[options.mode]
    for split in task:
        known = len(damages)
        if split.unreadable is None:
            on_error = passing_over(options, split, damages)
            for rows in read(split, projection.fields, options, on_error):
                yield builder.build(rows, split)
        else:
            damages.append(Finding("unreadable", split.path, split.unreadable))
        if options.permissive and len(damages) > known:
            yield builder.build_damaged(damages[known:], split)


def _records(
    split: Split, fields: tuple[str, ...], options: SourceOptions, on_error: OnError | None
) -> Iterator[RecordColumns]:
    """The records of a split, with decoded keys and values."""
    kinds = {name: kind for name, kind in options.kinds.items() if name in fields}
    for columns in read_split(split, read_fields(fields, kinds), options, on_error):
        yield decode_columns(columns, kinds)


def _tables(
    split: Split, _fields: tuple[str, ...], options: SourceOptions, on_error: OnError | None
) -> Iterator[BatchTable]:
    """The headers of a split's batches that can hold a record within its bounds."""
    for table in _headers_of(split, options.verify_crc, on_error):
        keep = np.ones(len(table), np.bool_)
        if split.start_offset is not None:
            keep &= table.last_offset >= split.start_offset
        if split.end_offset is not None:
            keep &= table.base_offset < split.end_offset
        if split.start_timestamp is not None:
            keep &= table.may_reach(split.start_timestamp)
        kept = table if keep.all() else table.take(keep)
        yield kept if split.aborted is None else split.aborted.drop(kept)


def _segments(
    split: Split, _fields: tuple[str, ...], _options: SourceOptions, on_error: OnError | None
) -> Iterator[list[dict[str, Any]]]:
    """One row for the log file of a split, summed up over all its batches."""
    from kseg.analysis.info import Summary  # only this mode needs the analyses

    summary, last = Summary(), None
    for last in _headers_of(split, False, on_error):
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


def _headers_of(split: Split, verify_crc: bool, on_error: OnError | None) -> Iterator[BatchTable]:
    """The headers of the batches that start within a split."""
    where: dict[str, Any] = {
        "start": split.start_position,
        "limit": split.end_position,
        "on_unreadable": on_error,
    }
    with _opened(split, on_error) as segment:
        if verify_crc:
            walk = segment.walk(on_bad_crc="note", **where)
            tables: Iterator[BatchTable] = (tile.table for tile in walk)
        else:
            tables = segment.headers(**where)
        for table in tables:
            yield table
        found = segment.stop_fault(table)
        if found is not None:
            fault(found, on_error)


@contextmanager
def _opened(split: Split, on_error: OnError | None) -> Iterator[Segment]:
    """The segment of a split; an error inside names its file and its code.

    Raises:
        CorruptRecordError: it has fewer bytes than the plan saw, and there is no `on_error`.
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
    split: Split, fields: tuple[str, ...], options: SourceOptions, on_error: OnError | None = None
) -> Iterator[RecordColumns]:
    """The records of one split as columns.

    Args:
        split: the batches to read.
        fields: names of the record fields to decode.
        options: for checksums, control records and the size of a piece.
        on_error: takes each fault, which is then passed over; None raises it.

    Raises:
        KsegError: damage, with file, position and code in the message.
        OSError: the segment is gone, or cannot be read.
    """
    walked, key = _Walked(split), options.key
    names = fields if key is None or "key" in fields else (*fields, "key")
    with _opened(split, on_error) as segment:
        segment.expect(split.end_position)
        pieces = segment.read(
            Request(contains=key_needle(key)),
            start_position=_start(segment, split, options.index),
            end_position=split.end_position,
            offset=(split.start_offset, split.end_offset),
            time=(split.start_timestamp, split.end_timestamp),
            columns=names,
            max_rows=options.max_batch_rows,
            control=options.include_control,
            verify_crc=options.verify_crc,
            keep=walked.keep,
            on_corrupt=on_error or "raise",
        )
        yield from pieces if key is None else (take_equal(one, key) for one in pieces)
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
