"""Every reader that takes bytes from outside, driven in all its ways by one source of randomness.

`run` may raise `KsegError` inside: that is an answer. Anything else that comes out is a finding,
and so is an answer that contradicts another way to ask the same question.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from kseg import _core
from kseg._kernels import inflate as _inflate
from kseg.constants import StopReason
from kseg.errors import KsegError
from kseg.files import checkpoints, metadata, producer_snapshot
from kseg.files.index import OffsetIndex, TimeIndex
from kseg.files.txn_index import TxnIndex
from kseg.format import codec as codecs
from kseg.format import columns, header
from kseg.format.request import BYTES_MAX, FIELDS, ROWS_MAX, Request
from kseg.format.values import RECORD_FIELDS, BinaryColumn, HeadersColumn, Record, RecordColumns
from tests.conformance.readers import Kseg, Reference
from tests.fuzz import ahead
from tests.fuzz.appending import append_to_log
from tests.fuzz.lines import read_text
from tests.property.oracle import same_walk

INFLATED_MAX = 1 << 23
#: The plain reader is slow: it is asked about some of the logs.
_REFERENCE_SHARE = 0.25
#: Logs that are long enough to be looked at ahead of a walk are made, not mutated, and large.
_AHEAD_SHARE = 0.02
_PLAIN, _KSEG = Reference(), Kseg()
_EXTREMES = (0, 1, -1, 5, 2**31, 2**62, 2**63 - 1, -(2**63))


def exact(data: bytes) -> memoryview:
    """A copy that ends where its allocation ends, so that the sanitizers see each byte beyond."""
    array = np.empty(len(data), np.uint8)
    array[:] = np.frombuffer(data, np.uint8)
    return array.data


# Batches and their records.


def _scan(view: memoryview, source: Random, **more: Any) -> header.BatchTable:
    table = header.scan(
        view,
        on_bad_crc=source.choice(("stop", "note", "note", "ignore")),
        policy=source.choice(("strict", "strict", "file")),
        **more,
    )
    assert 0 <= table.end_position <= len(view) + more.get("base", 0)
    if table.stop is StopReason.END:
        assert table.end_position == len(view) + more.get("base", 0)
    return table


def _look_at(table: header.BatchTable) -> None:
    """Ask a table everything it can be asked."""
    copy = pickle.loads(pickle.dumps(table))
    assert (copy.rows == table.rows).all()
    for batch in list(table)[:20]:
        _ = (batch.codec, batch.timestamp_type, batch.is_control, batch.is_transactional)
        _ = (batch.delete_horizon_ms, batch.next_offset, batch.last_sequence)
    for name in ("codec", "timestamp_type", "is_control", "delete_horizon_ms", "last_sequence"):
        assert len(getattr(table, name)) == len(table)
    if table.stop not in (StopReason.END, StopReason.LIMIT):
        str(header.stop_error(table))


def _scan_in_windows(view: memoryview, whole: header.BatchTable, source: Random) -> None:
    """A walk through a window that ends anywhere sees the same batches as far as it gets."""
    if not len(view):
        return
    start = int(source.choice(whole.position.tolist() or [0]))
    end = source.randrange(start, len(view) + 1)
    part = header.scan(
        view[start:end], base=start, file_end=len(view), on_bad_crc="ignore", policy="strict"
    )
    seen = {row[0]: row[:7] for row in whole.rows.tolist()}
    for row in part.rows.tolist():
        assert seen.get(row[0], row[:7]) == row[:7]
    if part.stop is StopReason.LIMIT and part.needed:
        assert part.needed > end - part.end_position


def _request(source: Random) -> Request:
    fields = tuple(source.sample(FIELDS, source.randrange(1, len(FIELDS) + 1)))
    bounds: list[int | None] = [None] * 4
    if source.random() < 0.3:
        for name in source.sample(range(4), 2):
            bounds[name] = source.choice(_EXTREMES)
    return Request(
        columns=fields,
        max_rows=source.choice((1, 2, 7, 1000, ROWS_MAX)),
        max_bytes=source.choice((1, 50, 5000, BYTES_MAX)),
        control=source.random() < 0.7,
        verify_crc=source.random() < 0.5,
        inflated_max=source.choice((0, 10, 1000, INFLATED_MAX, INFLATED_MAX)),
        offset=(bounds[0], bounds[1]),
        time=(bounds[2], bounds[3]),
    )


def check_binary(column: BinaryColumn, length: int) -> None:
    """Arrow's rules: offsets ascend from 0 to the end of the data, nulls are empty and counted."""
    offsets = column.offsets
    assert len(offsets) == length + 1
    assert offsets[0] == 0
    assert offsets[-1] == len(column.data)
    assert (np.diff(offsets) >= 0).all()
    valid = column.is_valid()
    assert int((~valid).sum()) == column.null_count
    assert not np.diff(offsets)[~valid].any()


def check_piece(piece: RecordColumns) -> None:
    """Every column is as long as the piece, and sound inside."""
    assert len(piece) > 0
    for column in piece.arrays.values():
        assert len(column) == len(piece)
        if isinstance(column, BinaryColumn):
            check_binary(column, len(piece))
        elif isinstance(column, HeadersColumn):
            count = int(column.offsets[-1])
            assert column.offsets[0] == 0
            assert (np.diff(column.offsets) >= 0).all()
            check_binary(column.keys, count)
            check_binary(column.values, count)
            assert column.keys.null_count == 0


def _decode(view: memoryview, table: header.BatchTable, request: Request) -> None:
    faults: list[KsegError] = []
    with suppress(KsegError):
        for piece in columns.decode(view, table, request):
            check_piece(piece)
            assert len(piece) <= request.max_rows
    for piece in columns.decode(view, table, request, on_error=faults.append):
        check_piece(piece)
    assert all(fault.position is not None for fault in faults)


def _records(
    view: memoryview, table: header.BatchTable, **bounds: int
) -> tuple[list[Record], str | None]:
    request = Request(columns=RECORD_FIELDS, control=True, inflated_max=INFLATED_MAX, **bounds)
    found: list[Record] = []
    try:
        for piece in columns.decode(view, table, request):
            found += piece.records()
    except KsegError as error:
        return found, str(error)
    return found, None


def _pieces_agree(view: memoryview, table: header.BatchTable, source: Random) -> None:
    whole = _records(view, table)
    max_rows, max_bytes = source.choice(((1, 1 << 20), (3, 1 << 20), (1000, 1), (1000, 40)))
    assert _records(view, table, max_rows=max_rows, max_bytes=max_bytes) == whole


#: The walk sees what kind of marker a control record is in an uncompressed batch alone.
_NOT_COMPARED = {"control_type"}


def _as_reference(data: bytes) -> None:
    """The walk is the plain reader's to the letter; records are, as far as both give them.

    kseg may refuse more, with a typed error, but gives no record that the other does not.
    """
    for batch in same_walk(data):
        try:
            got = _KSEG.read(data, batch.position, batch.size)
        except KeyError:  # a limit of kseg's own has no name among the reference's errors
            continue
        expected = _PLAIN.read(data, batch.position, batch.size)
        assert len(got.records) <= len(expected.records)
        if got.error is None and batch.record_count:
            assert expected.error is None
            assert len(got.records) == len(expected.records)
        for row, other in zip(got.records, expected.records, strict=False):
            for name in row.keys() & other.keys() - _NOT_COMPARED:
                assert row[name] == other[name], name


def read_log(data: bytes, source: Random) -> None:
    """Magic 0, 1 and 2: walk, whole and in windows; decode; the size of pieces changes nothing."""
    view = exact(data)
    if source.random() < _REFERENCE_SHARE:
        _as_reference(data)
    _read(view, source, _scan(view, source))
    whole = header.scan(view, on_bad_crc="ignore")
    if source.random() < _AHEAD_SHARE:
        ahead.check(source, exact)
    _scan_in_windows(view, whole, source)
    append_to_log(view, whole, source)
    start = source.randrange(len(data) + 1)
    _look_at(_scan(view, source, start=start, batches_max=source.choice((0, 1, 1000))))
    base = source.choice((1, 4096, 2**31, 2**62))
    shifted = header.scan(view, base=base, on_bad_crc="note")
    plain = header.scan(view, on_bad_crc="note")
    assert (shifted.rows[:, 1:] == plain.rows[:, 1:]).all()
    assert shifted.end_position - base == plain.end_position


def read_07(data: bytes, source: Random) -> None:
    """Kafka 0.7, which nothing in the bytes tells apart."""
    view = exact(data)
    log_start = source.choice((0, 0, 100, 2**63 - 1))
    _read(view, source, _scan(view, source, kafka07=True, log_start=log_start))


def _read(view: memoryview, source: Random, table: header.BatchTable) -> None:
    _look_at(table)
    _decode(view, table, _request(source))
    _pieces_agree(view, table, source)


def read_codec(data: bytes, source: Random) -> None:
    """A compressed stream: the output is bounded, whole or appended to an arena."""
    if not data:
        return
    kind, magic, stream = data[0] & 7, data[0] >> 4 & 3, exact(data[1:])
    limit = source.choice((0, 1, 100, 1 << 16, INFLATED_MAX))
    arena = codecs.Arena()
    arena.append(b"before")
    outputs: list[bytes | None] = [None, None]
    _inflate.use_libraries(False, False)
    with suppress(KsegError):
        outputs[0] = bytes(codecs.decompress(kind, stream, magic=magic, limit=limit))
    _inflate.use_libraries(True)
    at_once = _inflate.inflate_in_scratch(kind, magic, stream, limit)
    assert at_once is None or at_once == outputs[0]
    with suppress(KsegError):
        size = codecs.decompress_into(kind, stream, arena, magic=magic, limit=limit)
        outputs[1] = bytes(arena.view()[6:])
        assert size == len(outputs[1])
    assert outputs[0] == outputs[1]
    assert outputs[0] is None or len(outputs[0]) <= limit
    assert bytes(arena.view()[:6]) == b"before"
    assert outputs[1] is not None or arena.used == 6


def read_json(data: bytes, source: Random) -> None:
    """Lines of JSON, as they are to be appended."""
    for piece in read_text(data, source):
        check_piece(piece)


# Files beside the log. Each is written out, since its reader takes a path.


def read_offset_index(path: Path, data: bytes, source: Random) -> None:
    """Lookups, one and many, agree on what they find."""
    base = source.choice((0, 0, 42, 2**31, 2**63 - 1))
    with OffsetIndex.open(path, base, mapping=source.choice(("always", "never"))) as index:
        wanted = [base + d for d in (0, 1, 7, 2**30) if base + d < 2**63] + [0, 2**63 - 1]
        for offset in wanted:
            with suppress(KsegError):
                found = index.lookup(offset)
                assert found.offset <= max(offset, base)
        index.fetch_upper_bound(source.choice((0, 100, 2**31 - 1)), source.choice((0, 4096)))
        _ = (index.last_offset, index.slots, index.refresh())
        index.entries()


def read_time_index(path: Path, data: bytes, source: Random) -> None:
    """As the offset index."""
    base = source.choice((0, 0, 42, 2**31, 2**63 - 1))
    with TimeIndex.open(path, base, mapping=source.choice(("always", "never"))) as index:
        wanted = [-(2**63), -1, 0, 1_700_000_000_000, 2**63 - 1]
        for timestamp in wanted:
            with suppress(KsegError):
                index.lookup(timestamp)
        _ = (index.last_entry, index.slots, index.refresh())
        index.entries()


def read_txn_index(path: Path, data: bytes, source: Random) -> None:
    """Entries and the ranges asked of them."""
    index = TxnIndex.open(path)
    assert len(index.entries()) == len(index) == len(data) // 34
    low, high = source.choice(_EXTREMES), source.choice(_EXTREMES)
    found, _complete = index.collect_aborted(low, high)
    assert set(found) <= set(index.entries())


def read_snapshot(path: Path, data: bytes, source: Random) -> None:
    """From bytes and from a file alike."""
    snapshot = producer_snapshot.read(data)
    assert producer_snapshot.read(path) == snapshot
    for entry in snapshot:
        _ = entry.first_sequence


def read_epochs(path: Path, data: bytes, source: Random) -> None:
    """Epochs in effect ascend."""
    loaded = checkpoints.assign_epochs(checkpoints.read_leader_epochs(path))
    for before, after in pairwise(loaded):
        assert before.epoch < after.epoch
        assert before.start_offset < after.start_offset


def read_offsets(path: Path, data: bytes, source: Random) -> None:
    """A checkpoint of offsets."""
    checkpoints.read_offset_checkpoint(path)


def read_partition_metadata(path: Path, data: bytes, source: Random) -> None:
    """A topic's id."""
    metadata.read_partition_metadata(path)


def read_meta_properties(path: Path, data: bytes, source: Random) -> None:
    """A data directory's ids, and its mark of a clean end."""
    with suppress(KsegError):
        metadata.read_clean_shutdown(path.parent)
    metadata.read_meta_properties(path)


_BYTES: dict[str, Callable[[bytes, Random], None]] = {
    "log": read_log,
    "kafka07": read_07,
    "codec": read_codec,
    "lines": read_json,
}
_FILES: dict[str, tuple[str, Callable[[Path, bytes, Random], None]]] = {
    "index": ("00000000000000000042.index", read_offset_index),
    "timeindex": ("00000000000000000042.timeindex", read_time_index),
    "txnindex": ("00000000000000000042.txnindex", read_txn_index),
    "snapshot": ("00000000000000000042.snapshot", read_snapshot),
    "epochs": ("leader-epoch-checkpoint", read_epochs),
    "offsets": ("recovery-point-offset-checkpoint", read_offsets),
    "partition_metadata": ("partition.metadata", read_partition_metadata),
    "meta_properties": (".kafka_cleanshutdown", read_meta_properties),
}


def run(kind: str, data: bytes, source: Random, directory: Path) -> None:
    """Give the bytes to the readers of their kind; raises only where one of them is wrong.

    Args:
        kind: one of `tests.fuzz.seeds.KINDS`.
        data: the bytes.
        source: chooses among the ways to read.
        directory: for the file that a reader wants; its contents are replaced.
    """
    _core.set_crc_variant(source.choice(_core.crc_variants()))
    _inflate.use_libraries(*[source.random() < 0.8] * 2)
    with suppress(KsegError):
        if kind in _BYTES:
            _BYTES[kind](data, source)
        elif kind == "directory":
            from tests.fuzz.directories import read_directory

            read_directory(data, source, directory)
        else:
            name, read = _FILES[kind]
            path = directory / name
            path.write_bytes(data)
            read(path, data, source)
