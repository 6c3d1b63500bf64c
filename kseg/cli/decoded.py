"""Rows of what a dump decodes: records of internal topics, and files beside the logs.

A row of a record has the fields of any record, in between them `type`, `type_id`, `version`,
`tombstone` and `reason`; `key` and `value` are JSON objects. A record of an unknown type or
version, or one that does not match its schema, has its bytes there, and the `reason` says why.

The files are indexes, snapshots, checkpoints and ids; a row is an entry.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import numpy as np

from kseg.cli.paths import InputFile
from kseg.cli.rows import (
    RECORD_FIELDS,
    UNKNOWN,
    Field,
    RowWriter,
    Style,
    Template,
    csv_head,
    field_rows,
    held_columns,
    rows_of,
)
from kseg.commands import csv_field, printable
from kseg.constants import Array, ConnectTopic, Int64s, InternalTopic
from kseg.documents import id_text
from kseg.errors import InvalidRecordError, NotALogError
from kseg.files import checkpoints, metadata, producer_snapshot
from kseg.files.index import OffsetIndex, TimeIndex
from kseg.files.names import FileKind
from kseg.files.txn_index import TxnIndex
from kseg.format.values import RecordColumns, binary_column
from kseg.internal.records import InternalRecord, decode_or_keep

#: Records decoded at a time: their rows stay in memory until they are written.
_ROWS_MAX: Final = 1024
_BYTES_MAX: Final = 1 << 20


def _fields() -> Iterator[Field]:
    """The fields of a decoded record: its type and version come before the key."""
    for field in RECORD_FIELDS:
        if field.name == "key":
            yield Field("type", "text")
            yield Field("type_id", none=UNKNOWN)
            yield Field("version", none=UNKNOWN)
            yield Field("tombstone", "bool")
        if field.name in ("key", "value"):
            yield Field(field.name, "json")
        else:
            yield field
        if field.name == "value":
            yield Field("reason", "text")


#: The fields of a decoded record's line, in order.
DECODED_FIELDS: Final = tuple(_fields())


#: The rows of a few records, how many they are, and the errors of records that do not fit their
#: schemas, with their offsets.
Decoded = tuple[Template, int, list[InvalidRecordError]]


def decoded_rows(
    columns: RecordColumns, topic: InternalTopic | ConnectTopic, style: Style
) -> Iterator[Decoded]:
    """The rows of a piece of records, a few at a time.

    Args:
        columns: the piece, with the fields of a record's line.
        topic: the topic whose schemas decode them.
        style: the style of the rows.
    """
    sizes = columns.key.sizes().astype(np.int64) + columns.value.sizes()
    used = np.cumsum(np.maximum(sizes, 0))
    first = 0
    while first < len(columns):
        room = _BYTES_MAX + (int(used[first - 1]) if first else 0)
        end = min(
            len(columns),
            first + _ROWS_MAX,
            max(first + 1, int(np.searchsorted(used, room, "right"))),
        )
        yield _decode_piece(columns[first:end], topic, style)
        first = end


def _decode_piece(
    columns: RecordColumns, topic: InternalTopic | ConnectTopic, style: Style
) -> Decoded:
    """The rows of a piece of records, their number, and the faults."""
    records, faults = _records(columns, topic)
    reasons = [None if record.reason is None else record.reason.encode() for record in records]
    held = held_columns(columns)
    held |= {
        "type": binary_column(
            [None if record.name is None else record.name.encode() for record in records]
        ),
        "type_id": _numbers([record.type for record in records]),
        "version": _numbers([record.version for record in records]),
        "tombstone": np.array(
            [record.name is not None and record.is_tombstone for record in records]
        ),
        "key": binary_column([_json(record.key, style) for record in records]),
        "value": binary_column([_json(record.value, style) for record in records]),
        "reason": binary_column(reasons),
    }
    return rows_of(held, style, DECODED_FIELDS), len(columns), faults


def _records(
    columns: RecordColumns, topic: InternalTopic | ConnectTopic
) -> tuple[list[InternalRecord], list[InvalidRecordError]]:
    """Decode records; one that cannot be decoded keeps its bytes, and is a fault."""
    records = []
    faults = []
    parts = zip(columns.key, columns.value, columns.control.tolist(), strict=True)
    for row, (key, value, control) in enumerate(parts):
        if control:  # the batch's own description, by its own schemas
            records.append(InternalRecord(topic, key=key, value=value))
            continue
        record, error = decode_or_keep(topic, key, value)
        records.append(record)
        if error is not None:
            position = int(columns.position[row])
            offset = int(columns.offset[row])
            faults.append(InvalidRecordError(error.reason, position=position, offset=offset))
    return records, faults


def _numbers(values: list[int | None]) -> Int64s:
    return np.array([UNKNOWN if value is None else value for value in values], np.int64)


def _json(value: dict[str, Any] | bytes | None, style: Style) -> bytes | None:
    """A key or value as JSON in ASCII, so that it does not control a terminal; None for null."""
    if value is None:
        return None
    if isinstance(value, bytes):
        text = json.dumps(_bytes(value, style))
    else:
        try:
            text = _ENCODER.encode(value)
        except ValueError:  # a number that JSON does not have
            text = _ENCODER.encode(_without_nan(value))
    return text.replace("\x7f", "\\u007f").encode()


def _bytes(value: bytes, style: Style) -> str | dict[str, str]:
    """Bytes in the encoding of a style; with "utf8", bytes that are not UTF-8 are in base64."""
    if style.encoding == "hex":
        return value.hex()
    if style.encoding == "utf8":
        try:
            return value.decode()
        except UnicodeDecodeError:
            return {"base64": base64.b64encode(value).decode()}
    return base64.b64encode(value).decode()


def _as_kafka_prints(value: object) -> str:
    """A value of a type that JSON lacks, as Kafka prints it."""
    if isinstance(value, UUID):
        return id_text(value)
    assert isinstance(value, bytes)
    return base64.b64encode(value).decode()


#: One encoder for all records: making one takes as long as encoding a small record.
_ENCODER: Final = json.JSONEncoder(default=_as_kafka_prints, separators=(",", ":"), allow_nan=False)


def _without_nan(value: Any) -> Any:
    """A decoded value in which numbers that JSON lacks are texts, as in Kafka's own JSON."""
    if isinstance(value, dict):
        return {name: _without_nan(field) for name, field in value.items()}
    if isinstance(value, tuple):
        return [_without_nan(item) for item in value]
    if isinstance(value, float) and not np.isfinite(value):
        return {"inf": "Infinity", "-inf": "-Infinity"}.get(str(value), "NaN")
    return value


Columns = dict[str, Array]
_TIMES = frozenset(("timestamp", "last_timestamp"))
_SNAPSHOT_FIELDS = (
    "producer_id",
    "producer_epoch",
    "last_sequence",
    "last_offset",
    "offset_delta",
    "last_timestamp",
    "coordinator_epoch",
    "current_txn_first_offset",
)


def dump_entries(
    source: InputFile, style: Style, writer: RowWriter, write: Callable[[bytes], object]
) -> None:
    """Write every entry of a file that is not a log.

    Raises:
        CorruptIndexError: the file fails its check.
        NotALogError: the file has no entries by nature.
        OSError: the file cannot be read.
    """
    kind = source.name.kind
    if kind in _TABLES:
        columns = _TABLES[kind](source.path, source.name.base_offset or 0)
        fields = tuple(Field(name, "time" if name in _TIMES else "int") for name in columns)
        count = len(next(iter(columns.values())))
        if style.form == "csv":
            write(csv_head(fields, style))
        writer.rows(field_rows(list(zip(fields, columns.values(), strict=True)), style), count)
    elif kind in _TEXTS:
        _write_texts(list(_TEXTS[kind](source.path)), style, write)
    else:
        raise NotALogError("a file without entries", path=source.path)


def _index(
    kind: type[OffsetIndex] | type[TimeIndex], names: Sequence[str], path: Path, base_offset: int
) -> Columns:
    """The columns of an index: the number of each used entry, and its fields."""
    with kind.open(path, base_offset) as index:
        columns = index.entries()
    return {"entry": np.arange(len(columns[0])), **dict(zip(names, columns, strict=True))}


def _txn_index(path: Path, _base_offset: int) -> Columns:
    """The columns of a transaction index."""
    index = TxnIndex.open(path)
    return {
        "entry": np.arange(len(index)),
        "producer_id": index.producer_ids,
        "first_offset": index.first_offsets,
        "last_offset": index.last_offsets,
        "last_stable_offset": index.last_stable_offsets,
    }


def _snapshot(path: Path, _base_offset: int) -> Columns:
    """The columns of a producer snapshot."""
    entries = producer_snapshot.read(path)
    return {
        name: np.array([getattr(entry, name) for entry in entries], np.int64)
        for name in _SNAPSHOT_FIELDS
    }


def _offset_checkpoint(path: Path) -> Iterator[dict[str, Any]]:
    for (topic, partition), offset in checkpoints.read_offset_checkpoint(path).items():
        yield {"topic": topic, "partition": partition, "offset": offset}


def _leader_epochs(path: Path) -> Iterator[dict[str, Any]]:
    for epoch, start_offset in checkpoints.read_leader_epochs(path):
        yield {"epoch": epoch, "start_offset": start_offset}


def _partition_metadata(path: Path) -> Iterator[dict[str, Any]]:
    fields = metadata.read_partition_metadata(path)
    yield {"version": fields.version, "topic_id": fields.topic_id}


def _meta_properties(path: Path) -> Iterator[dict[str, Any]]:
    for name, value in metadata.read_meta_properties(path).properties.items():
        yield {"name": name, "value": value}


def _clean_shutdown(path: Path) -> Iterator[dict[str, Any]]:
    shutdown = metadata.read_clean_shutdown(path.parent)
    yield {"broker_epoch": None if shutdown is None else shutdown.broker_epoch}


_TABLES: dict[FileKind, Callable[[Path, int], Columns]] = {
    FileKind.INDEX: partial(_index, OffsetIndex, ("offset", "position")),
    FileKind.TIMEINDEX: partial(_index, TimeIndex, ("timestamp", "offset")),
    FileKind.TXNINDEX: _txn_index,
    FileKind.SNAPSHOT: _snapshot,
}
_TEXTS: dict[FileKind, Callable[[Path], Iterator[dict[str, Any]]]] = {
    FileKind.RECOVERY_POINT: _offset_checkpoint,
    FileKind.LOG_START: _offset_checkpoint,
    FileKind.REPLICATION: _offset_checkpoint,
    FileKind.CLEANER: _offset_checkpoint,
    FileKind.LEADER_EPOCHS: _leader_epochs,
    FileKind.PARTITION_METADATA: _partition_metadata,
    FileKind.META_PROPERTIES: _meta_properties,
    FileKind.CLEAN_SHUTDOWN: _clean_shutdown,
}


def _write_texts(
    rows: Sequence[dict[str, Any]], style: Style, write: Callable[[bytes], object]
) -> None:
    """Write the rows of a small file; the columns of CSV are those of the first row."""
    places = {"dir": style.directory, "file": style.file}
    named = {name: text for name, text in places.items() if text is not None}
    for number, row in enumerate(rows):
        whole = {**named, **row}
        if style.form == "jsonl":
            write(json.dumps(whole).encode() + b"\n")
        elif style.form == "csv":
            if number == 0:
                write((",".join(whole) + "\r\n").encode())
            write(b",".join(_csv_value(value) for value in whole.values()) + b"\r\n")
        else:
            pairs = (
                f"{name}={'-' if value is None else printable(str(value))}"
                for name, value in row.items()
            )
            write(" ".join(pairs).encode() + b"\n")


def _csv_value(value: object) -> bytes:
    """A value in CSV: empty for None, text in quotes."""
    if value is None:
        return b""
    return csv_field(value) if isinstance(value, str) else str(value).encode()
