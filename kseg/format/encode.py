"""EncodedBatch: the bytes of a batch, with the facts that an append needs.

Turn the records that a caller gives, columns or sequences, into columns for the kernels.

Owns how a user's mapping becomes `Rows`, columns that the writing kernels
borrow. Sequences of
bytes are handed over as they are; nothing is copied but text, and numbers that come as Python's.

From columns of records to the bytes of batches, in bulk.

`encode_batch` makes one batch of its rows, `encode_batches` as many as are needed, one at a time.
Both write and refuse what Kafka's own builder writes and refuses. `kseg.format.builder` does the
same record by record. This module knows neither files nor clocks.

Example:
    >>> batch = encode_batch({"value": ["a", "b"]}, base_offset=5)
    >>> len(batch), batch.base_offset, batch.last_offset, batch.record_count
    (77, 5, 6, 2)
"""

from __future__ import annotations

import threading
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, chain
from typing import Any, NoReturn, TypeAlias

import numpy as np

from kseg._kernels import encode as _encode
from kseg._kernels import legacy as _legacy
from kseg._kernels.encode import Rows, has_text, int64s
from kseg.commands import nearest, suggestion
from kseg.constants import (
    BATCH_BYTES,
    BATCH_HEADER_BYTES,
    INT32_MAX,
    INT64_MAX,
    INT64_MIN,
    LOG_OVERHEAD,
    NO_TIMESTAMP,
    Codec,
    Compression,
    Int64s,
    codec_of,
)
from kseg.errors import InvalidRecordError
from kseg.format.compress import compress
from kseg.format.header import (
    CONTROL,
    LOG_APPEND,
    TRANSACTIONAL,
    EncodedBatch,
    increment_sequence,
)
from kseg.format.options import BatchOptions, OptionsLike
from kseg.format.times import datetimes_ms, time_ms
from kseg.format.values import BinaryColumn, HeadersColumn, Record, RecordColumns
from kseg.frames import has_arrow

#: The source of records: columns that were read; a mapping of columns; or pairs (key, value), or
#: `Record`s, one a record. Columns of a mapping, of which one suffices: "offset" as an int64 array
#: or a sequence of int; "timestamp" likewise in ms, or as a datetime64 array or a sequence of
#: values for `kseg.times.time_ms`, None for none; "key" and "value" as `BinaryColumn` or sequences
#: of bytes, text (as UTF-8) and None; "headers" as `HeadersColumn`, or lists of pairs (name, value)
#: or dicts.
RecordSource: TypeAlias = (
    RecordColumns
    | Mapping[str, Any]
    | Iterable[Record]
    | Iterable[tuple[Any, Any]]
    | Iterable[Mapping[str, Any]]
)

#: The fields that records are written from.
SOURCE_FIELDS = ("offset", "timestamp", "key", "value", "headers")

_NAMES = frozenset(SOURCE_FIELDS)
#: Names as similar as this to a field's are its misspelling.
_SIMILAR = 0.65
_INT64 = np.dtype(np.int64)
_ONE_VALUE = (str, bytes, bytearray, memoryview)
_WANTED = (
    'records are columns, such as {"value": [b"..."]}, a list of dicts, or of pairs (key, value)'
)


def rows_of(source: RecordSource | Rows, *, timestamp_ms: int | None = None) -> Rows:
    """The source's columns, for the writing kernels; borrowed as long as the result lives.

    Args:
        source: columns that were read, whose other fields are ignored, or another `RecordSource`.
            The defaults for missing columns: consecutive offsets, null keys and values, no headers.
        timestamp_ms: the time of records without timestamps; None for -1, no time.

    Raises:
        ValueError: columns differ in length, a name is unknown, or there is no column at all.
        TypeError: a value is of another type than its field.
        InvalidRecordError: a header has no name.
    """
    if isinstance(source, Rows):
        return source
    length = -1
    if isinstance(source, RecordColumns):
        fields: Mapping[str, Any] = source.arrays
        length = source.length
    else:
        fields = source if isinstance(source, (dict, Mapping)) else columns_of(source)
        if not fields.keys() <= _NAMES:
            raise _unknown([name for name in fields if name not in _NAMES])
    get = fields.get
    offset, timestamp = get("offset"), get("timestamp")
    key, value, headers = get("key"), get("value"), get("headers")
    if offset is not None and not _is_int64(offset):
        offset = _to_int64(offset, "offset")
    if timestamp is not None and not _is_int64(timestamp):
        timestamp = _times(timestamp)
    if key is not None and type(key) is not BinaryColumn:
        key = _values(key, "key")
    if value is not None and type(value) is not BinaryColumn:
        value = _values(value, "value")
    lists = () if headers is None else _lists_of(headers)
    if timestamp is None and timestamp_ms is not None:
        count = length if length >= 0 else _length(offset, key, value, *lists)
        timestamp = np.full(count, timestamp_ms, np.int64)
    return Rows(length, offset, timestamp, key, value, *lists)


def check_names(column_names: Sequence[str], names: Mapping[str, str] | None) -> None:
    """Refuse columns where a misspelt name would make all keys, values, times or headers null.

    Args:
        column_names: the names of the columns that are there.
        names: the name of each field's column, where other columns are left out; None where each is
            a field. Columns that a scan gives are among neither.

    Raises:
        ValueError: a column is missing, or is one too many; the message has the most similar name.
    """
    from kseg.format.typed import COLUMNS

    field_names = (*COLUMNS, *(names or {}).values())
    unknown_names = [name for name in column_names if name not in field_names]
    if names is None and unknown_names:
        raise _unknown(unknown_names)
    for field, column_name in (names or {}).items():
        near = nearest(column_name, unknown_names, _SIMILAR)
        if column_name not in column_names and (
            column_name != field or near or (field == "value" and unknown_names)
        ):
            hint = f"did you mean {near!r}" if near else f"there are {', '.join(column_names)}"
            raise ValueError(
                f"no column {column_name!r}, so each record would be without its {field}; {hint}? "
                f"{field}= names the column"
            )


def _unknown(names: Sequence[str]) -> ValueError:
    hint = suggestion(names, SOURCE_FIELDS)
    return ValueError(f"records have {', '.join(SOURCE_FIELDS)}, not {', '.join(names)}{hint}")


def _length(offset: Any, key: Any, value: Any, headers: Any = None, *_parts: Any) -> int:
    """The number of records in columns; 0 if there are no columns, which `Rows` refuses."""
    for column in (offset, key, value):
        if column is not None:
            return len(column)
    return 0 if headers is None else len(headers) - 1


def columns_of(records: Iterable[Any]) -> dict[str, Any]:
    """Dicts, pairs (key, value), or `Record`s, as columns.

    Raises:
        TypeError: the records have another type; the message names the expected one.
    """
    if has_arrow(records):
        raise TypeError("kseg.arrow.from_arrow gives the records of a table or frame, in pieces")
    if isinstance(records, _ONE_VALUE) or not isinstance(records, Iterable):
        raise TypeError(f"{_WANTED}, not {type(records).__name__}")
    record_list = list(records)
    if record_list and all(type(record) is Record for record in record_list):
        columns = zip(*record_list, strict=True)
        return {
            name: list(column)
            for name, column in zip(Record._fields, columns, strict=True)
            if name in _NAMES
        }
    if record_list and all(isinstance(record, Mapping) for record in record_list):
        names = dict.fromkeys(name for record in record_list for name in record)
        if not names:
            raise ValueError(f"records have {', '.join(SOURCE_FIELDS)}; these have none of them")
        return {name: [record.get(name) for record in record_list] for name in names}
    for number, record in enumerate(record_list):
        if type(record) not in (tuple, list) or len(record) != 2:
            raise TypeError(f"{_WANTED}; record {number} is {_kind_of(record)}")
    return {"key": [key for key, _ in record_list], "value": [value for _, value in record_list]}


def _kind_of(record: Any) -> str:
    size = f" of {len(record)}" if isinstance(record, (tuple, list)) else ""
    return f"{type(record).__name__}{size}"


def _values(column: Any, name: str) -> Any:
    """Keys or values as a tuple of bytes and None, text as UTF-8; the kernels refuse the rest."""
    if type(column) not in (list, tuple) and isinstance(column, (*_ONE_VALUE, Mapping)):
        kind = type(column).__name__
        raise TypeError(f"{name} is a list with one {name} a record, not {kind}")
    values = tuple(column)
    if not has_text(values):
        return values
    return tuple(value.encode() if isinstance(value, str) else value for value in values)


def _is_int64(column: Any) -> bool:
    return type(column) is np.ndarray and column.dtype == _INT64 and column.flags.c_contiguous


def _to_int64(column: Iterable[int], name: str) -> Any:
    """Numbers as int64; refuses fractions and numbers that are too large."""
    if isinstance(column, np.ndarray):
        if column.dtype.kind not in "iu" or column.ndim != 1:
            raise TypeError(f"{name} is {column.dtype}[{column.ndim} dimensions], not int64[n]")
        if column.dtype == np.uint64 and len(column) and int(column.max()) > INT64_MAX:
            raise ValueError(f"{name} has a number beyond 64 bits")
        return np.ascontiguousarray(column, np.int64)
    try:
        return int64s(column)
    except OverflowError:
        raise ValueError(f"{name} has a number beyond 64 bits") from None


def _times(column: Any) -> Any:
    """Timestamps as int64, from values for `kseg.times.time_ms`; -1 for None and NaT."""
    if isinstance(column, np.ndarray):
        return datetimes_ms(column) if column.dtype.kind == "M" else _to_int64(column, "timestamp")
    times = column if type(column) is list else list(column)
    try:
        return _to_int64(times, "timestamp")
    except TypeError:
        milliseconds = (NO_TIMESTAMP if time is None else time_ms(time) for time in times)
        return _to_int64(list(milliseconds), "timestamp")


def _lists_of(headers: Any) -> tuple[Any, ...]:
    """The headers of all records: the number of each record's first header, names, values."""
    if isinstance(headers, HeadersColumn):
        return headers.offsets, headers.keys, headers.values
    lists = [tuple(pairs.items() if isinstance(pairs, dict) else pairs) for pairs in headers]
    offsets = array("i", accumulate(map(len, lists), initial=0))
    pairs = list(chain.from_iterable(lists))
    names = tuple(name.encode() if type(name) is str else name for name, _ in pairs)
    return offsets, names, _values([value for _, value in pairs], "value")


_PLAIN = BatchOptions()
_SCRATCH_KEPT_MAX = 1 << 20
#: Bytes of a wrapper message around its value: offset and size, then the message's own header.
_WRAPPER_BYTES = (LOG_OVERHEAD + 14, LOG_OVERHEAD + 22)


def encode_batch(
    source: RecordSource | Rows,
    options: OptionsLike | None = None,
    *,
    base_offset: int | None = None,
    last_offset: int | None = None,
    first: int = 0,
    end: int | None = None,
) -> EncodedBatch:
    """Rows as one batch (magic 2), one wrapper message (magic 0 or 1 with a codec), or messages.

    Args:
        source: the records.
        options: the shared fields, or a dict of them; `BatchOptions()` if None.
        base_offset: the batch's; None for the first record's, or 0 if the records have none. It
            may be below the first record's, as it is after compaction.
        last_offset: replaces the offset of the last record as the end of a batch or wrapper.
        first: the number of the first row to write.
        end: the row after the last; None for all.

    Returns:
        The batch; its data is empty if there are no rows.

    Raises:
        InvalidRecordError: a record cannot be written, or the producer's fields do not fit.
        ValueError: columns or arguments that do not fit each other.
        TypeError: a value that is neither bytes, text nor None, or records in no known form.

    Source: Kafka MemoryRecordsBuilder.
    """
    options = _PLAIN if options is None else BatchOptions.of(options)
    options.check_producer()
    if base_offset is not None:
        _check_int64(base_offset)
    if last_offset is not None:
        _check_int64(last_offset, "last")
    rows = rows_of(source)
    if end is None:
        end = rows.length
    if first == end and 0 <= first <= rows.length:
        base_offset = base_offset or 0
        return EncodedBatch(b"", options.magic, base_offset, base_offset - 1, 0, -1, -1, 0)
    write = _batch if options.magic == 2 else _messages
    return write(rows, options, base_offset, last_offset, first, end, INT64_MAX, 0)


#: Columns of the requests to `encode_runs`, in the kernel's order.
RUN_FIELDS = (
    "first",
    "end",
    "base_offset",
    "last_offset",
    "attributes",
    "leader_epoch",
    "delete_horizon_ms",
    "producer_id",
    "producer_epoch",
    "base_sequence",
)


def encode_runs(rows: Rows, runs: Int64s, codecs: Int64s) -> tuple[list[bytes], Int64s] | None:
    """Many batches of magic 2, each of its run of rows, as `encode_batch` writes them.

    Args:
        rows: the records, with offsets and timestamps.
        runs: int64[m, 10], columns as in `RUN_FIELDS`, `attributes` without codec and log append
            time. Producer fields are not checked.
        codecs: int64[m], 0 for none.

    Returns:
        The batches one after the other, in parts, and int64[m], their largest timestamps; None
        where one is refused, which `encode_batch` then says of it.
    """
    times = np.empty(len(runs), np.int64)
    data = _encode.encode_runs(rows, runs, times)
    if data is None:
        return None
    if not codecs.any():
        return [data], times
    return list(compressed(memoryview(data), codecs.tolist())), times


def compressed(data: memoryview, codecs: list[int]) -> Iterator[bytes]:
    """Compress consecutive batches, each with its codec; 0 leaves a batch as it is."""
    at = 0
    for codec in codecs:
        end = at + LOG_OVERHEAD + int.from_bytes(data[at + 8 : at + LOG_OVERHEAD])
        if codec:
            body = compress(codec, data[at + BATCH_HEADER_BYTES : end])
            yield _encode.seal_like(data[at:end], body, codec)
        else:
            yield bytes(data[at:end])
        at = end


def encode_batches(
    source: RecordSource | Rows,
    options: OptionsLike | None = None,
    *,
    base_offset: int = 0,
    batch_bytes: int = BATCH_BYTES,
    batch_records: int | None = None,
) -> Iterator[EncodedBatch]:
    """Encode rows as consecutive batches, each when the iterator gets there.

    Args:
        source: the records.
        options: the fields that all batches share, `BatchOptions()` if None; the base sequence is
            the first batch's, later batches continue it.
        base_offset: the offset of the first record, if the records have no offsets. If they have,
            each batch begins with the offset of its first record.
        batch_bytes: the largest uncompressed size of a batch, header included; only a batch of one
            record may be larger.
        batch_records: the most records of a batch; None for no limit.

    Yields:
        Batches, none empty.

    Raises:
        InvalidRecordError: as `encode_batch`, when the batch with the wrong record is due;
            `record_index` counts from the first row of `source`.
    """
    options = _PLAIN if options is None else BatchOptions.of(options)
    options.check_producer()
    _check_int64(base_offset)
    if batch_records is not None and batch_records < 1:
        raise ValueError(f"a batch has one record or more, not {batch_records}")
    rows = rows_of(source)
    limit = min(batch_bytes, INT32_MAX)
    return _encode_each(rows, options, base_offset, limit, batch_records or rows.length)


def _check_int64(offset: int, name: str = "base") -> None:
    if not INT64_MIN <= offset <= INT64_MAX:
        raise ValueError(f"{name} offset {offset} lies beyond 64 bits")


def _encode_each(
    rows: Rows, options: BatchOptions, base_offset: int, batch_bytes: int, batch_records: int
) -> Iterator[EncodedBatch]:
    """Encode rows batch by batch, each as large as the limits allow; offsets must increase."""
    write = _batch if options.magic == 2 else _messages
    has_offsets, length = rows.has_offsets, rows.length
    first = spent = 0
    last = None
    while first < length:
        base = None if has_offsets else base_offset + first
        end = min(length, first + batch_records)
        batch = write(rows, options, base, None, first, end, batch_bytes, spent)
        if last is not None and batch.base_offset <= last:
            _refuse(_OFFSET_ORDER, first)
        yield batch
        last = batch.last_offset
        first += batch.record_count
        spent += batch.last_offset - batch.base_offset + 1


def _batch(
    rows: Rows,
    options: BatchOptions,
    base_offset: int | None,
    last_offset: int | None,
    first: int,
    end: int,
    bytes_max: int,
    spent: int,
) -> EncodedBatch:
    """Encode one batch of magic 2: rows from `first` on, up to `end`, as many as fit.

    Args:
        rows, options: as for `encode_batch`.
        base_offset, last_offset: the offsets of the batch; None to use those of its records.
        first, end: numbers of rows; at least the first row is written.
        bytes_max: the largest uncompressed size of the batch.
        spent: how many of the producer's sequence numbers the batches before it have used.
    """
    kind, attributes = options.compression, options.attributes
    sequence = options.base_sequence
    if spent and sequence >= 0:
        sequence = increment_sequence(sequence, spent & INT32_MAX)
    data, status, count, base, last, base_timestamp, latest, size = _encode.encode_records(
        rows,
        first,
        end,
        base_offset,
        last_offset,
        bytes_max,
        _take_scratch() if kind else None,
        attributes,
        options.leader_epoch,
        options.delete_horizon_ms,
        options.log_append_time,
        options.producer_id,
        options.producer_epoch,
        sequence,
    )
    if data is None:
        _refuse(status, first + count)
    ratio = 1.0
    if kind:
        stored = compress(kind, data, magic=2, level=options.level)
        _give_back(data)
        ratio = len(stored) / size
        data = _encode.seal_batch(
            stored,
            base,
            last,
            options.leader_epoch,
            attributes,
            base_timestamp,
            latest,
            options.producer_id,
            options.producer_epoch,
            sequence,
            count,
        )
    offset_of_latest = last if latest != NO_TIMESTAMP or options.is_log_append else -1
    return EncodedBatch(data, 2, base, last, count, latest, offset_of_latest, size, ratio)


def _messages(
    rows: Rows,
    options: BatchOptions,
    base_offset: int | None,
    last_offset: int | None,
    first: int,
    end: int,
    bytes_max: int,
    spent: int,
) -> EncodedBatch:
    """Messages of magic 0 or 1, inside a wrapper if there is a codec; arguments as for `_batch`.

    They have no sequences, so `spent` does not count.
    """
    magic, kind = options.magic, options.compression
    log_append = options.is_log_append
    flags = options.attributes & LOG_APPEND
    stamp = options.log_append_time if log_append else None
    if kind:
        bytes_max -= _WRAPPER_BYTES[magic]
    data, status, count, base, last, latest, offset_of_latest = _legacy.encode_messages(
        rows,
        first,
        end,
        base_offset,
        bytes_max,
        _take_scratch() if kind else None,
        magic,
        flags,
        bool(kind and magic),
        stamp,
    )
    if data is None:
        _refuse(status, first + count)
    size, ratio = len(data), 1.0
    if last_offset is not None:
        if not last <= last_offset <= base + INT32_MAX:
            raise ValueError(_REASONS[_LAST_OFFSET])
        last = last_offset
    if log_append:
        latest, offset_of_latest = options.log_append_time, last if kind else base
    elif kind and latest != NO_TIMESTAMP:
        offset_of_latest = last
    if kind:
        value = compress(kind, data, magic=magic, level=options.level)
        _give_back(data)
        ratio = len(value) / size
        data = wrap_messages(value, magic, kind | flags, last, latest)
    return EncodedBatch(data, magic, base, last, count, latest, offset_of_latest, size, ratio)


def wrap_messages(value: bytes, magic: int, attributes: int, offset: int, timestamp: int) -> bytes:
    """A message without key around `value`, compressed messages of the same magic.

    Args:
        attributes: codec and timestamp type.
        offset: the offset of the last message inside.
        timestamp: the largest timestamp inside, or the time of the append.

    Source: Kafka LegacyRecord.writeCompressedRecordHeader.
    """
    rows = Rows(1, value=(value,))
    data, status, *_ = _legacy.encode_messages(
        rows, 0, 1, offset, INT64_MAX, None, magic, attributes, False, timestamp
    )
    if data is None:
        _refuse(status, None)
    message: bytes = data
    return message


_of_thread = threading.local()


def _take_scratch() -> bytearray:
    """This thread's memory for records that go to a codec: fresh pages cost as much as compressing.

    It is returned only if all went well: an error that the caller keeps may still refer to it.
    """
    scratch: bytearray | None = _of_thread.__dict__.pop("scratch", None)
    return bytearray() if scratch is None else scratch


def _give_back(scratch: bytearray) -> None:
    if len(scratch) <= _SCRATCH_KEPT_MAX:
        _of_thread.scratch = scratch


def empty_batch(
    options: BatchOptions, *, base_offset: int, last_offset: int, max_timestamp: int
) -> EncodedBatch:
    """A batch that compaction has left without records: its 61 bytes of header.

    It keeps offsets, producer and flags of the batch that it was, but neither codec nor delete
    horizon.

    Raises:
        ValueError: magic 0 and 1 have no batches of this kind, or the offsets do not fit each
        other.

    Source: Kafka DefaultRecordBatch.writeEmptyHeader.
    """
    if options.magic < 2:
        raise ValueError(f"magic {options.magic} has no empty batches")
    data = _encode.seal_batch(
        b"",
        base_offset,
        last_offset,
        options.leader_epoch,
        options.attributes & (LOG_APPEND | TRANSACTIONAL | CONTROL),
        NO_TIMESTAMP,
        max_timestamp,
        options.producer_id,
        options.producer_epoch,
        options.base_sequence,
        0,
    )
    offset_of_latest = last_offset if max_timestamp != NO_TIMESTAMP else -1
    return EncodedBatch(data, 2, base_offset, last_offset, 0, max_timestamp, offset_of_latest, 0)


def encode_messages_07(
    payloads: Sequence[bytes] | BinaryColumn,
    *,
    magic: int = 1,
    compression: Codec = Compression.NONE,
) -> bytes:
    """Payloads as a message set of Kafka 0.7; with a codec, the set inside of one message.

    Args:
        payloads: the contents of the messages, never null.
        magic: 0 or 1 of Kafka 0.7, which differ from those of later releases; 0 has no codecs.
        compression: none, gzip or snappy.

    Raises:
        ValueError: a magic or a codec that Kafka 0.7 does not have.
        InvalidRecordError: a payload is null, or a message larger than 2^31 - 1 bytes.

    Source: kafka.message.ByteBufferMessageSet and CompressionUtils of 0.7.
    """
    kind = codec_of(compression)
    if magic not in (0, 1):
        raise ValueError(f"messages of Kafka 0.7 have magic 0 or 1, not {magic}")
    if kind > Compression.SNAPPY or (kind and magic == 0):
        raise ValueError(f"messages of Kafka 0.7 with magic {magic} have no {kind.label}")
    column = payloads if isinstance(payloads, BinaryColumn) else tuple(payloads)
    data = _message_set_07(column, magic, 0)
    if not kind or not data:
        return data
    return _message_set_07((compress(kind, data, magic=1),), magic, kind)


def _message_set_07(
    payloads: tuple[bytes, ...] | BinaryColumn, magic: int, attributes: int
) -> bytes:
    """A message set of Kafka 0.7 with these payloads."""
    rows = Rows(len(payloads), value=payloads)
    data, status, row = _legacy.encode_messages_07(rows, magic, attributes)
    if data is None:
        _refuse(status, row)
    return data


_OFFSET_ORDER, _LAST_OFFSET = 1, 9
_COLUMN, _TYPE, _CHANGED = 10, 11, 12
#: Texts of errors, keyed by status of the kernels, in the order of `csrc/write.h`.
_REASONS = (
    "",
    "its offset is not above the one before",
    f"its offset lies below the base offset or more than {INT32_MAX} above it",
    "its timestamp is negative and not -1",
    "it has headers, which magic 0 and 1 do not have",
    f"it is larger than {INT32_MAX} bytes",
    f"the batch would be larger than {INT32_MAX} bytes with it",
    "a header has no name",
    "it is null, which Kafka 0.7 does not have",
    f"the last offset lies below the last record's or more than {INT32_MAX} above the base offset",
    "a column's offsets do not fit its data",
    "a key, value or header is neither bytes, text nor None; json.dumps makes text of other values",
    "the columns changed while they were written",
)


def _refuse(status: int, row: int | None) -> NoReturn:
    """Raise the error for a kernel's status of a row."""
    reason = _REASONS[status]
    if status == _TYPE:
        raise TypeError(f"record {row}: {reason}")
    if status in (_LAST_OFFSET, _COLUMN, _CHANGED):
        raise ValueError(reason if status != _COLUMN else f"record {row}: {reason}")
    raise InvalidRecordError(reason, record_index=row)
