"""What a task does: read its splits and turn them into Arrow batches. Needs no pyspark.

A split that ends at a cut must find a batch that starts at the cut. If its last batch reaches past
it, the index that gave the cut was wrong. Then the task fails, rather than give rows twice or
never.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from kseg import Segment
from kseg.analysis.info import Summary
from kseg.arrow import binary_array, headers_array, typed_array
from kseg.constants import NO_TIMESTAMP, Compression, ControlType, codec_label
from kseg.errors import CorruptIndexError, KsegError
from kseg.format.header import BatchTable
from kseg.format.typed import decode_columns
from kseg.format.values import TypedColumn
from kseg.spark.damage import Damage, check_size, fault, named, passing_over, report
from kseg.spark.options import SourceOptions
from kseg.spark.plan import Split
from kseg.spark.remote import place
from kseg.spark.schema import Projection, arrow_schema

if TYPE_CHECKING:
    import numpy.typing as npt

    from kseg.format.header import BatchTable
    from kseg.format.values import RecordColumns
    from kseg.spark.damage import Damage
    from kseg.spark.plan import Split

    OnError = Callable[[KsegError], None]


_US_PER_MS: Final = 1000
#: Milliseconds whose microseconds fit in 64 bits.
_MS_MAX: Final = (2**63 - 1) // _US_PER_MS
_CODEC_NAMES: Final = {int(codec): codec.label for codec in Compression}
_CONTROL_NAMES: Final = {int(kind): kind.name for kind in ControlType}


class RowBuilder:
    """Turns the rows of one query's splits into record batches of one schema."""

    def __init__(self, projection: Projection, builders: Mapping[str, Any] | None = None) -> None:
        """Fix the columns.

        Args:
            projection: those of the query.
            builders: by name, the function that makes a column from a source of rows, a split and
                an Arrow type; those of records if None.
        """
        self.schema: Final = arrow_schema(projection)
        known = _BUILDERS if builders is None else builders
        self._builders: Final = [known[column.column.name] for column in projection.columns]
        self._projection: Final = projection

    def build(self, rows: Any, split: Split) -> pa.RecordBatch:
        """One batch with a row for each of `rows`, whose memory it shares."""
        arrays = [
            build(rows, split, field.type)
            for build, field in zip(self._builders, self.schema, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def build_damaged(self, damages: Sequence[Damage], split: Split) -> pa.RecordBatch:
        """A row for each damage: where it is and what; null in all other columns."""
        values: dict[str, list[Any]] = {
            "topic": [split.topic] * len(damages),
            "partition": [split.partition] * len(damages),
            "path": [damage.path for damage in damages],
            "offset": [damage.offset for damage in damages],
            "position": [damage.position for damage in damages],
            "corrupt": [str(damage) for damage in damages],
        }
        none = [None] * len(damages)
        arrays = [
            pa.array(values.get(column.column.name, none), field.type)
            for column, field in zip(self._projection.columns, self.schema, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


_Builder = Callable[[Any, "Split", pa.DataType], pa.Array]


def _integers(field: str) -> _Builder:
    """An integer field as it is, or widened to Spark's INT."""

    def build(columns: RecordColumns, _split: Split, kind: pa.DataType) -> pa.Array:
        return pa.array(columns[field].astype(kind.to_pandas_dtype(), copy=False), kind)

    return build


def _bytes(field: str) -> _Builder:
    def build(columns: RecordColumns, _split: Split, kind: pa.DataType) -> pa.Array:
        column = columns[field]
        if isinstance(column, TypedColumn):
            return typed_array(column, kind)
        return binary_array(column, kind)

    return build


def _reasons(field: str) -> _Builder:
    def build(columns: RecordColumns, split: Split, kind: pa.DataType) -> pa.Array:
        if field not in columns.arrays:
            return _nothing(columns, split, kind)
        return typed_array(columns[field], kind)

    return build


def _labels(field: str, names: Mapping[int, str]) -> _Builder:
    def build(columns: RecordColumns, _split: Split, kind: pa.DataType) -> pa.Array:
        return labelled(columns[field], names, kind)

    return build


def labelled(codes: npt.NDArray[Any], names: Mapping[int, str], kind: pa.DataType) -> pa.Array:
    """Small codes as words; a code without a name becomes its number."""
    known, slots = np.unique(codes, return_inverse=True)
    words = pa.array([names.get(int(code), str(code)) for code in known], kind)
    return words.take(pa.array(slots))


def _control_type(columns: RecordColumns, split: Split, kind: pa.DataType) -> pa.Array:
    words = _labels("control_type", _CONTROL_NAMES)(columns, split, kind)
    return pa.array(np.asarray(words), kind, mask=~columns["control"])


def _timestamp(columns: RecordColumns, _split: Split, kind: pa.DataType) -> pa.Array:
    """Microseconds; null for none and for what does not fit in them."""
    times = columns["timestamp"]
    valid = (times != NO_TIMESTAMP) & (times <= _MS_MAX) & (times >= -_MS_MAX)
    micros = np.where(valid, times, 0) * _US_PER_MS
    return pa.Array.from_buffers(kind, len(times), [_bits(valid), pa.py_buffer(micros)])


def _delete_horizon(columns: RecordColumns, _split: Split, kind: pa.DataType) -> pa.Array:
    times = columns["delete_horizon_ms"]
    return pa.array(times, kind, mask=times == NO_TIMESTAMP)


def of_split(attribute: str) -> _Builder:
    """One value of the split for every row."""

    def build(rows: Any, split: Split, kind: pa.DataType) -> pa.Array:
        return pa.repeat(pa.scalar(getattr(split, attribute), kind), len(rows))

    return build


def _nothing(columns: RecordColumns, _split: Split, kind: pa.DataType) -> pa.Array:
    return pa.nulls(len(columns), kind)


def _headers(columns: RecordColumns, _split: Split, kind: pa.DataType) -> pa.Array:
    """A list of name and value; null without headers, as Spark's Kafka source has it."""
    lists = headers_array(columns["headers"], kind)
    some = _bits(np.diff(columns["headers"].offsets) != 0)
    return pa.Array.from_buffers(
        kind, len(lists), [some, lists.buffers()[1]], children=[lists.values]
    )


def _bits(flags: npt.NDArray[np.bool_]) -> pa.Buffer | None:
    """A validity bitmap, least significant bit first; None where all are valid."""
    return None if flags.all() else pa.py_buffer(np.packbits(flags, bitorder="little"))


_BUILDERS: Final[dict[str, Any]] = {
    "key": _bytes("key"),
    "value": _bytes("value"),
    "topic": of_split("topic"),
    "partition": of_split("partition"),
    "offset": _integers("offset"),
    "timestamp": _timestamp,
    "timestampType": _integers("timestamp_type"),
    "headers": _headers,
    "timestampMs": _integers("timestamp"),
    "leaderEpoch": _integers("leader_epoch"),
    "producerId": _integers("producer_id"),
    "producerEpoch": _integers("producer_epoch"),
    "sequence": _integers("sequence"),
    "baseOffset": _integers("base_offset"),
    "position": _integers("position"),
    "magic": _integers("magic"),
    "codec": _labels("codec", _CODEC_NAMES),
    "transactional": _integers("transactional"),
    "control": _integers("control"),
    "controlType": _control_type,
    "deleteHorizonMs": _delete_horizon,
    "path": of_split("path"),
    "keyError": _reasons("key_error"),
    "valueError": _reasons("value_error"),
    "corrupt": _nothing,
}


def batch_rows(
    task: tuple[Split, ...], projection: Projection, options: SourceOptions, damages: list[Damage]
) -> Iterator[pa.RecordBatch]:
    """A row for each batch that can hold a record of the wanted range.

    Raises:
        KsegError: the log has a fault, and `onCorrupt` is `fail`.
        OSError: a segment is gone, or cannot be read.
    """
    builder = RowBuilder(projection, _BATCH_BUILDERS)
    for split in task:
        for table in _tables(split, options, passing_over(options, split, damages)):
            yield builder.build(_within(table, split), split)


def segment_rows(
    task: tuple[Split, ...], projection: Projection, options: SourceOptions, damages: list[Damage]
) -> Iterator[pa.RecordBatch]:
    """A row for each log file, summed up over all its batches.

    Raises:
        KsegError: the log has a fault, and `onCorrupt` is `fail`.
        OSError: a segment is gone, or cannot be read.
    """
    builder = RowBuilder(projection, _SEGMENT_BUILDERS)
    for split in task:
        summary, last = Summary(), None
        for last in _tables(split, options, passing_over(options, split, damages)):
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
        yield builder.build([row], split)


def _tables(split: Split, options: SourceOptions, on_error: OnError | None) -> Iterator[BatchTable]:
    """The headers of the batches that start within a split."""
    try:
        with Segment.open(place(split.path), size=split.size, is_last=split.is_last) as segment:
            check_size(segment, split, on_error)
            where: dict[str, Any] = {
                "start": split.start_position,
                "limit": split.end_position,
                "on_unreadable": on_error,
            }
            if options.verify_crc and options.mode == "batches":
                walk = segment.walk(on_bad_crc="note", **where)
                tables: Iterator[BatchTable] = (tile.table for tile in walk)
            else:
                tables = segment.headers(**where)
            for table in tables:
                yield table
            found = segment.stop_fault(table)
            if found is not None:
                fault(found, on_error)
    except KsegError as error:
        raise named(error, split.path) from None


def _within(table: BatchTable, split: Split) -> BatchTable:
    """Those that can hold a record within the bounds, by their headers."""
    keep = np.ones(len(table), np.bool_)
    if split.start_offset is not None:
        keep &= table.last_offset >= split.start_offset
    if split.end_offset is not None:
        keep &= table.base_offset < split.end_offset
    if split.start_timestamp is not None:
        keep &= table.max_timestamp >= split.start_timestamp
    kept = table if keep.all() else table.take(keep)
    return kept if split.aborted is None else split.aborted.drop(kept)


_ModeBuilder = Callable[[Any, Split, pa.DataType], pa.Array]


_Mask = Callable[["BatchTable"], "npt.NDArray[np.bool_]"]


def _column(name: str, untold: _Mask | None = None) -> _ModeBuilder:
    """A column of the table, widened to Spark's type; null where `untold` says so."""

    def build(table: BatchTable, _split: Split, kind: pa.DataType) -> pa.Array:
        values = getattr(table, name).astype(kind.to_pandas_dtype(), copy=False)
        return pa.array(values, kind, mask=None if untold is None else untold(table))

    return build


def _codec(table: BatchTable, _split: Split, kind: pa.DataType) -> pa.Array:
    labels = {int(code): codec_label(int(code)) for code in np.unique(table.codec)}
    return labelled(table.codec, labels, kind)


def _value(name: str) -> _ModeBuilder:
    def build(rows: list[dict[str, Any]], _split: Split, kind: pa.DataType) -> pa.Array:
        return pa.array([row[name] for row in rows], kind)

    return build


def _only_records_tell(table: BatchTable) -> npt.NDArray[np.bool_]:
    """Of a compressed message of magic 0 or 1, the header tells neither first offset nor count."""
    untold: npt.NDArray[np.bool_] = (table.magic < 2) & (table.codec != 0)
    return untold


def _none_in(name: str) -> _Mask:
    def mask(table: BatchTable) -> npt.NDArray[np.bool_]:
        none: npt.NDArray[np.bool_] = getattr(table, name) == -1
        return none

    return mask


_PLACE: Final[dict[str, _ModeBuilder]] = {
    name: of_split(name) for name in ("topic", "partition", "path")
}
_BATCH_BUILDERS: Final[dict[str, _ModeBuilder]] = {
    **_PLACE,
    "position": _column("position"),
    "size": _column("size"),
    "baseOffset": _column("base_offset", _only_records_tell),
    "lastOffset": _column("last_offset"),
    "count": _column("record_count", _only_records_tell),
    "baseSequence": _column("base_sequence"),
    "lastSequence": _column("last_sequence"),
    "producerId": _column("producer_id"),
    "producerEpoch": _column("producer_epoch"),
    "leaderEpoch": _column("leader_epoch"),
    "transactional": _column("is_transactional"),
    "control": _column("is_control"),
    "deleteHorizonMs": _column("delete_horizon_ms", _none_in("delete_horizon_ms")),
    "baseTimestamp": _column("base_timestamp"),
    "maxTimestamp": _column("max_timestamp"),
    "timestampType": _column("timestamp_type"),
    "magic": _column("magic"),
    "codec": _codec,
    "crc": _column("crc"),
    "crcOk": _column("crc_ok", _none_in("crc_ok")),
}
_SEGMENT_BUILDERS: Final[dict[str, _ModeBuilder]] = {
    **_PLACE,
    "baseOffset": _value("base_offset"),
    "bytes": _value("bytes"),
    "batches": _value("batches"),
    "records": _value("records"),
    "firstOffset": _value("first_offset"),
    "lastOffset": _value("last_offset"),
    "minTimestamp": _value("min_timestamp"),
    "maxTimestamp": _value("max_timestamp"),
    "codecs": _value("codecs"),
    "magics": _value("magics"),
    "endPosition": _value("end_position"),
    "stop": _value("stop"),
}


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
        known = len(damages)
        on_error = passing_over(options, split, damages)
        if split.unreadable is None:
            for columns in read_split(split, projection.fields, options, on_error):
                yield builder.build(decode_columns(columns, kinds), split)
        else:
            damages.append(Damage("unreadable", split.path, None, None, split.unreadable))
        if options.permissive and len(damages) > known:
            yield builder.build_damaged(damages[known:], split)


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
            offset=(split.start_offset, split.end_offset),
            time=(split.start_timestamp, split.end_timestamp),
            columns=fields,
            max_rows=options.max_batch_rows,
            control=options.include_control,
            verify_crc=options.verify_crc,
            keep=walked.keep,
            on_corrupt=on_error or "raise",
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
