"""Segment: what a read gives, in pieces of any size, by any range, mapped or through windows."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kseg import CorruptRecordError, NotALogError, Segment
from kseg.constants import StopReason
from kseg.errors import InvalidRecordError, LimitExceededError
from kseg.files import log_file
from kseg.format import reader as piece_reader
from kseg.format.header import BATCHES_MAX, join_tables
from kseg.format.request import FIELDS
from kseg.log.segment import reader
from tests.builders import (
    COMMIT,
    GZIP,
    LZ4,
    SNAPPY,
    ZSTD,
    batch,
    control_batch,
    record,
    records_of,
    write_segment,
)
from tests.fuzz import ahead
from tests.segments import batch_of
from tests.unit.files.foreign import holding
from tests.unit.files.index_bytes import offset_index, time_index
from tests.unit.log.brute import rows

HOW = ("always", "never")


def mixed() -> list[bytes]:
    """Offsets 0 to 23, every format and codec, times that go back and forth, one marker."""
    parts, offset = [], 0
    kinds = [(0, 0), (0, GZIP), (1, 0), (1, SNAPPY), (2, 0), (2, LZ4), (2, ZSTD), (2, GZIP)]
    for magic, codec in kinds:
        given = [
            record(
                b"v%d" % at * (at + 1),
                key=None if at % 3 else b"k%d" % at,
                timestamp=1000 + (at * 7) % 11,
                offset=at,
                headers=[(b"h", b"x%d" % at), (b"n", None)] if magic == 2 and at % 2 else (),
            )
            for at in range(offset, offset + 3)
        ]
        parts.append(records_of(given, magic=magic, codec=codec, base_offset=offset))
        offset += 3
        if magic == 2 and codec == LZ4:
            parts.append(control_batch(COMMIT, base_offset=offset))
            offset += 1
    return parts


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return write_segment(tmp_path, 0, *mixed())


def read(path: Path, mapping: Any = "always", **where: Any) -> list[dict[str, Any]]:
    with Segment.open(path, mapping=mapping) as segment:
        return rows(segment.read(columns=FIELDS, **where))


def test_bounds_beyond_64_bits_bound_nothing_or_leave_nothing(tmp_path: Path) -> None:
    last = 2**63 - 1
    parts = [batch([record(timestamp=5)], base_offset=at) for at in (last - 2, last - 1, last)]
    path = write_segment(tmp_path, last - 2, *parts)
    offset_index(path.with_suffix(".index"), [(1, len(parts[0]))])
    time_index(path.with_suffix(".timeindex"), [(5, 0)])
    for far in (2**63, 2**64, 2**90):
        assert len(read(path, offset=(None, far), time=(None, far))) == 3
        assert len(read(path, offset=(-far, None), time=(-far, None))) == 3
        for bounds in ("offset", "time"):
            assert read(path, **{bounds: (far, None)}) == []
            assert read(path, **{bounds: (None, -far)}) == []
        with Segment.open(path) as segment:
            assert segment.lookup(far) is None
            assert segment.lookup_time(far) is None
            first = segment.lookup(-far)
            assert first is not None
            assert first.position == 0
    assert [row["offset"] for row in read(path, offset=(last, None))] == [last]
    assert [row["offset"] for row in read(path, offset=(None, last))] == [last - 2, last - 1]


def test_a_segment_gives_objects_and_names_its_file(path: Path) -> None:
    with Segment.open(path) as segment:
        objects = list(segment.records(offset=(13, 15)))
        assert [(r.offset, r.key, r.value) for r in objects] == [
            (13, None, b"v13" * 14),
            (14, None, b"v14" * 15),
        ]
        assert objects[0].headers == ((b"h", b"x13"), (b"n", None))
        piece = next(segment.read())
        assert piece.source == str(path)
        assert piece.fields == ("offset", "timestamp", "key", "value", "headers")
        assert repr(segment) == f"Segment({str(path)!r}, size={segment.size})"


# ---- ends and damage -----------------------------------------------------------------------------

ONE, TWO, THREE = (batch([record(b"x" * 20)], base_offset=at) for at in range(3))


def flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


#: What follows a whole batch, why a walk ends, and whether that is fine at the end of a log.
TAILS = {
    "nothing": (b"", StopReason.END, True),
    "half a batch": (TWO[:40], StopReason.TORN_TAIL, True),
    "half a head": (TWO[:9], StopReason.TORN_TAIL, True),
    "zeros": (bytes(300), StopReason.ZERO_TAIL, True),
    "zeros, then more": (bytes(300) + b"\x01", StopReason.BAD_LENGTH, False),
    "a bad length": (TWO[:8] + b"\x00\x00\x00\x07" + TWO[12:], StopReason.BAD_LENGTH, False),
    "a bad magic": (TWO[:16] + b"\x07" + TWO[17:], StopReason.BAD_MAGIC, False),
}


@pytest.mark.parametrize("mapping", HOW)
@pytest.mark.parametrize("name", TAILS)
def test_a_tail_is_benign_only_at_the_end_of_the_log(
    tmp_path: Path, mapping: Any, name: str
) -> None:
    tail, stop, fine_at_end = TAILS[name]
    path = write_segment(tmp_path, 0, ONE, tail)
    for is_last in (True, False):
        fine = stop is StopReason.END or (is_last and fine_at_end)
        errors: list[Any] = []
        with Segment.open(path, mapping=mapping, is_last=is_last) as segment:
            assert segment.batches().stop is stop
            assert segment.batches().end_position == len(ONE)
            assert rows(segment.read(columns=("offset",), on_corrupt=errors.append)) == [
                {"offset": 0}
            ]
            if fine:
                assert rows(segment.read(columns=("offset",))) == [{"offset": 0}]
            else:
                with pytest.raises(CorruptRecordError) as caught:
                    list(segment.read())
                errors.append(caught.value)
        told = [(error.path, error.position, error.stop) for error in errors]
        # Torn is only what ends a log.
        wrong = StopReason.BAD_LENGTH if stop is StopReason.TORN_TAIL else stop
        assert told == ([] if fine else [(str(path), len(ONE), wrong)] * 2)


def test_whether_a_segment_is_the_last_is_looked_up(tmp_path: Path) -> None:
    path = write_segment(tmp_path, 0, ONE, TWO[:-1])
    with Segment.open(path) as segment:
        assert segment.is_last
        assert rows(segment.read(columns=("offset",))) == [{"offset": 0}]
    write_segment(tmp_path, 1, TWO)
    with Segment.open(path) as segment:
        assert not segment.is_last
        with pytest.raises(CorruptRecordError, match="incomplete"):
            list(segment.read())


@pytest.mark.parametrize("mapping", HOW)
def test_damaged_batches_are_passed_over_if_somebody_listens(tmp_path: Path, mapping: Any) -> None:
    cut = batch([record(), record()], base_offset=1, count=3)
    bomb = batch([record(bytes(5000))], base_offset=3, codec=GZIP)
    path = write_segment(tmp_path, 0, flipped(ONE, 70), cut, THREE, bomb, flipped(TWO, 75), ONE)
    errors: list[Any] = []
    with Segment.open(path, mapping=mapping) as segment:
        got = rows(segment.read(columns=("offset",), on_corrupt=errors.append, inflated_max=4000))
    assert [row["offset"] for row in got][-2:] == [2, 0]
    kinds = [CorruptRecordError, InvalidRecordError, LimitExceededError, CorruptRecordError]
    assert [type(error) for error in errors] == kinds
    assert {error.path for error in errors} == {str(path)}
    assert [error.offset for error in errors] == [0, 1, 3, 1]
    assert [error.position for error in errors] == sorted(error.position for error in errors)


# ---- files ---------------------------------------------------------------------------------------


def test_only_names_of_logs_are_opened(tmp_path: Path) -> None:
    for name in ("00000000000000000000.index", "notes.txt", "99999999999999999999.log"):
        (tmp_path / name).write_bytes(ONE)
        with pytest.raises(NotALogError):
            Segment.open(tmp_path / name)
    with pytest.raises(FileNotFoundError):
        Segment.open(tmp_path / "00000000000000000009.log")
    (tmp_path / "00000000000000000007.log").mkdir()
    with pytest.raises(IsADirectoryError):
        Segment.open(tmp_path / "00000000000000000007.log")


def test_a_directory_that_another_process_holds_is_not_mapped(tmp_path: Path) -> None:
    path = write_segment(tmp_path / "orders-0", 0, ONE)
    (tmp_path / ".lock").touch()
    with Segment.open(path) as segment:
        assert segment.mapped
    with holding(tmp_path), Segment.open(path) as segment:
        assert not segment.mapped
        assert len(rows(segment.read())) == 1


def test_arguments_that_make_no_sense_are_refused(path: Path) -> None:
    with Segment.open(path) as segment:
        with pytest.raises(ValueError, match="no field price"):
            segment.read(columns=("offset", "price"))
        for name in ("max_rows", "max_bytes"):
            with pytest.raises(ValueError, match="at least one"):
                segment.read(**{name: 0})
    with pytest.raises(ValueError, match="mapping is one of"):
        Segment.open(path, mapping="often")  # type: ignore[arg-type]


def _no_index(path: Path) -> None:
    """There is none."""


INDEXES: dict[str, Any] = {
    "none": _no_index,
    "right": lambda path: path.write_bytes(ahead.packed(list(range(1500, 1500 * 600, 1500)))),
    "of another log": lambda path: path.write_bytes(ahead.packed(list(range(7, 900_000, 999)))),
    "torn": lambda path: path.write_bytes(b"\x00\x00\x00\x01\x00\x00"),
    "zeros": lambda path: path.write_bytes(bytes(4096)),
    "not a file": lambda path: path.mkdir(),
    "longer than any": lambda path: (path.touch(), os.truncate(path, 1 << 40)),
}


@pytest.mark.parametrize("index", INDEXES)
@pytest.mark.parametrize("mapping", ["always", "never"])
def test_headers_are_the_same_whatever_lies_in_the_index(
    tmp_path: Path, index: str, mapping: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "_INDEXED_BYTES_MIN", 0)
    one = batch_of(1500, base_offset=0)
    parts = [offset.to_bytes(8, "big") + one[8:] for offset in range(600)]
    log = write_segment(tmp_path, 0, *parts, parts[0][:70])
    INDEXES[index](log.with_suffix(".index"))
    with Segment.open(log, mapping=mapping) as segment:
        tables = list(segment.headers(start=1500))
        walked = [tile.table for tile in segment.walk(start=1500, on_bad_crc="ignore")]
        ahead.same(join_tables(tables, 0), join_tables(walked, 0))
        assert (tables[-1].end_position, tables[-1].stop) == (600 * 1500, StopReason.TORN_TAIL)
        whole = segment.batches(verify=False)
        assert whole.position.tolist() == list(range(0, 600 * 1500, 1500))
        assert (whole.stop, whole.magics_seen) == (StopReason.TORN_TAIL, 4)


def test_batches_without_rows_in_front_of_a_large_one_give_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    large = batch([record(b"v" * 1000)] * 900, base_offset=24, producer_id=7)
    path = write_segment(tmp_path, 0, control_batch(COMMIT), control_batch(COMMIT), large)
    undefined = np.full
    monkeypatch.setattr(
        piece_reader, "np", Undefined(np, empty=lambda size, kind: undefined(size, 3, kind))
    )
    with Segment.open(path) as segment:
        read = list(segment.read(columns=("value", "producer_id")))
    assert [each.arrays["producer_id"].tolist() for each in read] == [[7] * 900]


class Undefined:
    """A module of which some names are others."""

    def __init__(self, module: Any, **names: Any) -> None:
        self._module = module
        vars(self).update(names)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)


@pytest.mark.parametrize("mapping", HOW)
def test_a_window_that_ends_behind_the_batch_in_front_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mapping: Any
) -> None:
    monkeypatch.setattr(log_file, "WINDOW_BYTES", 200)
    plain = [batch([record(os.urandom(100))], base_offset=at) for at in (0, 1)]
    odd = batch([record(b"x" * 50)] * 3, codec=GZIP, base_offset=2)
    path = write_segment(tmp_path, 0, *plain, odd, odd)
    with Segment.open(path, mapping=mapping) as segment:
        assert sum(map(len, segment.read(inflated_max=1000, max_rows=2))) == 8


@pytest.mark.parametrize("rows", [0, 1])
def test_more_batches_without_rows_than_a_piece_counts_are_passed_over(
    tmp_path: Path, rows: int
) -> None:
    marker, count = control_batch(COMMIT), BATCHES_MAX + 3
    markers = [at.to_bytes(8, "big") + marker[8:] for at in range(count)]
    behind = [batch([record(b"v")], base_offset=count)] * rows
    path = write_segment(tmp_path, 0, b"".join(markers), *behind)
    with Segment.open(path) as segment:
        assert sum(map(len, segment.read(columns=FIELDS))) == rows
