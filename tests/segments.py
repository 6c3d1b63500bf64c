"""Segments that tests write: how to append, and what the index files hold afterwards.

What a batch is, the plain reader tells; index files are unpacked entry by entry.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from pathlib import Path

from kseg.files.mapping import Mapping
from kseg.files.names import FileKind
from kseg.files.txn_index import pack_entries
from kseg.format.header import scan
from kseg.log.findings import Finding
from kseg.log.index_rules import IndexPlace
from kseg.log.recovery.index_check import IndexChecks
from kseg.log.recovery.sweep import Swept
from kseg.log.segment.writer import SegmentWriter
from tests import reference
from tests.builders import NONE, batch, record, records_of


def placed(data: bytes) -> list[tuple[int, int, int]]:
    """(last offset, largest timestamp, size) of the batches in `data`."""
    walk = reference.walk(data)
    assert walk.end_position == len(data)
    return [(b.last_offset, b.max_timestamp, b.size) for b in walk.batches]


def append(segment: SegmentWriter, *batches: bytes) -> int:
    """All of the batches in one append."""
    table = scan(b"".join(batches), on_bad_crc="ignore")
    assert table.end_position == sum(map(len, batches))
    return segment.append(batches, table)


def messages_at(*offsets: int, timestamp: int | None = None, magic: int = 1) -> bytes:
    """A set of messages, each with ten times the first offset for its time unless told."""
    time = 10 * offsets[0] if timestamp is None else timestamp
    given = [record(b"hello", offset=offset, timestamp=time) for offset in offsets]
    return records_of(given, magic=magic, codec=NONE, base_offset=offsets[0])


def batch_of(size: int, *, base_offset: int, records: int = 1, timestamp: int = -1) -> bytes:
    """A batch of magic 2 of exactly so many bytes."""
    given = [record(b"", timestamp=timestamp) for _ in range(records)]
    spare = size - len(batch(given, base_offset=base_offset))
    for shorter in range(8):  # a longer value has longer lengths in front; not each size exists
        given[0] = record(bytes(spare - shorter), timestamp=timestamp)
        data = batch(given, base_offset=base_offset)
        if len(data) == size:
            return data
    raise ValueError(f"no batch has {size} bytes")


def _slots(path: Path, layout: str) -> Iterator[tuple[int, int]]:
    data, size = path.read_bytes(), struct.calcsize(layout)
    yield from struct.iter_unpack(layout, data[: len(data) // size * size])


def offset_entries(path: Path, base_offset: int = 0) -> list[tuple[int, int]]:
    """(offset, position) of every whole slot of an offset index."""
    return [(base_offset + o, at) for o, at in _slots(path, ">ii")]


def time_entries(path: Path, base_offset: int = 0) -> list[tuple[int, int]]:
    """(timestamp, offset) of every whole slot of a time index."""
    return [(time, base_offset + o) for time, o in _slots(path, ">qi")]


def txn_entries(path: Path) -> list[tuple[int, ...]]:
    """(producer id, first, last, last stable offset) of every entry of a transaction index."""
    return [entry[1:] for entry in struct.iter_unpack(">hqqqq", path.read_bytes())]


def index_fault(path: Path, base_offset: int, mapping: Mapping = "auto") -> Finding | None:
    """The first thing that a check of an index finds without its log."""
    checks = IndexChecks(IndexPlace(str(path), base_offset, is_last=False, mapping=mapping))
    kind = FileKind(path.suffix[1:])
    checks.add(kind, path)
    return checks.faults[kind]


def trimmed(entries: Iterable[tuple[int, int]], empty: tuple[int, int]) -> list[tuple[int, int]]:
    """Entries without the empty slots behind them."""
    kept = list(entries)
    while kept and kept[-1] == empty:
        kept.pop()
    return kept


def write_indexes(path: Path, swept: Swept) -> None:
    """Give a log the indexes that a walk over it has found."""
    path.with_suffix(".index").write_bytes(swept.offset_entries)
    path.with_suffix(".timeindex").write_bytes(swept.time_entries)
    if swept.aborted:
        path.with_suffix(".txnindex").write_bytes(pack_entries(swept.aborted))
