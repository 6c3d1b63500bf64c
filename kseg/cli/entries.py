"""Entries of the files beside the logs: indexes, snapshots, checkpoints, ids."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from kseg.cli.paths import InputFile
from kseg.cli.rows import Field, RowWriter, Style, csv_head, field_rows
from kseg.commands import csv_field, printable
from kseg.constants import Array
from kseg.errors import NotALogError
from kseg.files import checkpoints, metadata, producer_snapshot
from kseg.files.index import OffsetIndex, TimeIndex
from kseg.files.names import FileKind
from kseg.files.txn_index import TxnIndex

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
    with kind.open(path, base_offset) as index:
        columns = index.entries()
    return {"entry": np.arange(len(columns[0])), **dict(zip(names, columns, strict=True))}


def _txn_index(path: Path, _base_offset: int) -> Columns:
    index = TxnIndex.open(path)
    return {
        "entry": np.arange(len(index)),
        "producer_id": index.producer_ids,
        "first_offset": index.first_offsets,
        "last_offset": index.last_offsets,
        "last_stable_offset": index.last_stable_offsets,
    }


def _snapshot(path: Path, _base_offset: int) -> Columns:
    entries = producer_snapshot.read(path)
    return {
        name: np.array([getattr(entry, name) for entry in entries], np.int64)
        for name in _SNAPSHOT_FIELDS
    }


def _offset_checkpoint(path: Path) -> Iterator[dict[str, Any]]:
    for (topic, partition), offset in checkpoints.read_offset_checkpoint(path).items():
        yield {"topic": topic, "partition": partition, "offset": offset}


def _leader_epochs(path: Path) -> Iterator[dict[str, Any]]:
    for epoch, start_offset in checkpoints.read_leader_epochs(path).entries:
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
    if value is None:
        return b""
    return csv_field(value) if isinstance(value, str) else str(value).encode()
