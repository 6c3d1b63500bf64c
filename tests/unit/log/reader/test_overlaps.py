"""Segments that hold the same offsets, or some below their base: each comes once, in bounds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import kseg
from kseg import Log
from kseg.log.segment.reader import Segment
from tests.builders import (
    ABORT,
    GZIP,
    ZSTD,
    batch,
    control_batch,
    messages07,
    record,
    records_of,
    write_segment,
)

Layout = dict[int, list[tuple[int, int]]]  # base offset to (first offset, count) of each batch

#: The segment's base says which copy a record is of: it is the record's key.
SINGLES = [(offset, 1) for offset in range(8)]
BELOW: Layout = {5: SINGLES}
OVERLAP: Layout = {0: SINGLES, 5: [(5, 1), (6, 4)]}
INSIDE: Layout = {0: [(n, 1) for n in range(21)], 5: [(5, 5)], 10: [(10, 21)]}
CHAIN: Layout = {0: [(0, 4)], 3: [(2, 4)], 5: [(4, 5)], 20: [(20, 1)]}
#: A base that is too high: nothing says so but the records.
LATE_BASE: Layout = {0: [(0, 5)], 9: [(5, 5)]}

FORMATS = {
    "magic 2": {"magic": 2},
    "magic 2 zstd": {"magic": 2, "codec": ZSTD},
    "magic 1": {"magic": 1},
    "magic 1 gzip": {"magic": 1, "codec": GZIP},
    "magic 0": {"magic": 0},
    "magic 0 gzip": {"magic": 0, "codec": GZIP},
}


def made(root: Path, layout: Layout, **form: int) -> Path:
    """A partition of these batches, each record saying its segment in its value."""
    directory = root / "data" / "orders-0"
    for base, batches in layout.items():
        parts = [
            records_of(
                [record(b"%d" % base, offset=first + n, timestamp=10) for n in range(count)],
                **{"magic": 2, "codec": 0, **form},  # type: ignore[arg-type]
                base_offset=first,
            )
            for first, count in batches
        ]
        write_segment(directory, base, *parts)
    return directory


def given(directory: Path, start: int | None, end: int | None) -> list[tuple[int, int]]:
    """(offset, base of the segment that it came out of) of what a log gives."""
    with Log.open(directory) as log:
        found = log.records(start_offset=start, end_offset=end)
        return [(one.offset, int(one.value or b"-1")) for one in found]


def of(base: int, *offsets: int) -> list[tuple[int, int]]:
    return [(offset, base) for offset in offsets]


EXPECTED: list[tuple[str, Layout, int | None, int | None, list[tuple[int, int]]]] = [
    ("below: a walk begins at the log's start", BELOW, None, None, of(5, 5, 6, 7)),
    ("below: a start at the base", BELOW, 5, None, of(5, 5, 6, 7)),
    ("below: both bounds", BELOW, 5, 7, of(5, 5, 6)),
    ("below: a start before the log's", BELOW, 2, 6, of(5, 5)),
    ("overlap: a walk", OVERLAP, None, None, of(0, *range(8)) + of(5, 8, 9)),
    ("overlap: from inside the first", OVERLAP, 4, None, of(0, 4, 5, 6, 7) + of(5, 8, 9)),
    ("overlap: from the later base", OVERLAP, 5, None, of(5, 5, 6, 7, 8, 9)),
    ("overlap: from past the later base", OVERLAP, 7, 9, of(5, 7, 8)),
    ("overlap: an end inside it", OVERLAP, 4, 6, of(0, 4, 5)),
    ("overlap: an end past it", OVERLAP, 0, 9, of(0, *range(8)) + of(5, 8)),
    ("inside: a walk", INSIDE, None, None, of(0, *range(21)) + of(10, *range(21, 31))),
    ("inside: from the second", INSIDE, 8, None, of(5, 8, 9) + of(10, *range(10, 31))),
    (
        "chain: a walk",
        CHAIN,
        None,
        None,
        of(0, 0, 1, 2, 3) + of(3, 4, 5) + of(5, 6, 7, 8) + of(20, 20),
    ),
    ("late base: a walk", LATE_BASE, None, None, of(0, 0, 1, 2, 3, 4) + of(9, 5, 6, 7, 8, 9)),
    ("late base: below the later base", LATE_BASE, 5, 7, of(9, 5, 6)),
]


@pytest.mark.parametrize("form", FORMATS.values(), ids=FORMATS)
@pytest.mark.parametrize(
    ("layout", "start", "end", "expected"),
    [row[1:] for row in EXPECTED],
    ids=[row[0] for row in EXPECTED],
)
def test_a_log_gives_each_offset_once_and_none_out_of_bounds(
    tmp_path: Path,
    form: dict[str, int],
    layout: Layout,
    start: int | None,
    end: int | None,
    expected: list[tuple[int, int]],
) -> None:
    directory = made(tmp_path, layout, **form)
    assert given(directory, start, end) == expected


def test_a_log_is_read_in_one_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = made(tmp_path, CHAIN)
    monkeypatch.setattr(Segment, "walk", None)  # the way of damaged and unusual batches
    with Log.open(directory) as log:
        assert [one.offset for one in log.records(start_offset=20)] == [20]


def _of_log(directory: Path, start: int, end: int) -> list[int]:
    with Log.open(directory) as log:
        return [
            offset
            for piece in log.read(start_offset=start, end_offset=end)
            for offset in _of(piece)
        ]


def _of_file(directory: Path, start: int, end: int) -> list[int]:
    with Segment.open(next(directory.glob("*.log"))) as segment:
        found = segment.read(start_offset=start, end_offset=end)
        return [offset for piece in found for offset in _of(piece)]


def _of_scan(directory: Path, start: int, end: int) -> list[int]:
    return [offset for piece in kseg.scan(directory, offset=(start, end)) for offset in _of(piece)]


def _of_scanned_file(directory: Path, start: int, end: int) -> list[int]:
    path = next(directory.glob("*.log"))
    return [offset for piece in kseg.scan(path, offset=(start, end)) for offset in _of(piece)]


def _of_fetches(directory: Path, start: int, end: int) -> list[int]:
    found: list[int] = []
    with Log.open(directory) as log:
        at = start
        while (fetched := log.fetch(at, max_bytes=1)).size:
            found += [offset for piece in fetched.columns() for offset in _of(piece)]
            at = fetched.next_offset
    return [offset for offset in found if offset < end]


def _of_follower(directory: Path, start: int, end: int) -> list[int]:
    with Log.open(directory) as log:
        pieces = log.follow(start, timeout=0)
        found = [offset for piece in pieces for offset in _of(piece)]
    return [offset for offset in found if offset < end]


def _of(piece: kseg.RecordColumns) -> list[int]:
    offsets: list[int] = piece["offset"].tolist()
    return offsets


DOORS: dict[str, Callable[[Path, int, int], list[int]]] = {
    "Log.read": _of_log,
    "Segment.read": _of_file,
    "scan(dir)": _of_scan,
    "scan(file)": _of_scanned_file,
    "fetch": _of_fetches,
    "follow": _of_follower,
}


@pytest.mark.parametrize("door", DOORS.values(), ids=DOORS)
@pytest.mark.parametrize("form", FORMATS.values(), ids=FORMATS)
def test_bounds_hold_below_a_base_at_every_door(
    tmp_path: Path, form: dict[str, int], door: Callable[[Path, int, int], list[int]]
) -> None:
    """One compressed batch that begins below both bounds."""
    directory = made(tmp_path, {5: [(0, 8)]}, **form)
    assert door(directory, 5, 7) == [5, 6]


@pytest.mark.parametrize(
    "door", [DOORS[name] for name in DOORS if "file" not in name and "Segment" not in name]
)
@pytest.mark.parametrize("form", FORMATS.values(), ids=FORMATS)
@pytest.mark.parametrize("layout", [OVERLAP, INSIDE, CHAIN])
def test_offsets_rise_at_every_door_of_a_log(
    tmp_path: Path,
    form: dict[str, int],
    layout: Layout,
    door: Callable[[Path, int, int], list[int]],
) -> None:
    directory = made(tmp_path, layout, **form)
    every = sorted(
        {first + n for rows in layout.values() for first, count in rows for n in range(count)}
    )
    assert door(directory, 0, 100) == every
    assert door(directory, 6, 100) == [offset for offset in every if offset >= 6]


def test_bounds_hold_in_a_log_of_kafka_0_7(tmp_path: Path) -> None:
    data = messages07([b"a", b"b", b"c"])
    write_segment(tmp_path / "orders-0", 100, data, suffix=".kafka")
    first, second, third = given_07(tmp_path / "orders-0", None, None)
    assert first == 100
    assert given_07(tmp_path / "orders-0", second, third) == [second]
    # The second file begins where the first is not over yet: its name is too low.
    write_segment(tmp_path / "orders-0", second, data, suffix=".kafka")
    walked = given_07(tmp_path / "orders-0", None, None)
    assert walked == sorted(set(walked))
    assert walked[:3] == [first, second, third]


def given_07(directory: Path, start: int | None, end: int | None) -> list[int]:
    with Log.open(directory) as log:
        return [one.offset for one in log.records(start_offset=start, end_offset=end)]


def test_a_damaged_header_hides_no_later_segment(tmp_path: Path) -> None:
    """It says that its batch goes to offset 2^40; its checksum says that it does not."""
    directory = made(tmp_path, {0: [(0, 3)], 3: [(3, 3)]})
    path = directory / f"{0:020d}.log"
    liar = bytearray(batch([record(b"0")], base_offset=2**40))
    liar[-1] ^= 1
    path.write_bytes(path.read_bytes() + liar)
    faults: list[kseg.KsegError] = []
    with Log.open(directory) as log:
        found = [one.offset for one in log.records(on_error=faults.append)]
    assert (found, len(faults)) == ([0, 1, 2, 3, 4, 5], 1)


def test_records_that_no_filter_kept_count_as_given(tmp_path: Path) -> None:
    """The first segment has offset 5 to 7, too old to be wanted: the later copies stay out."""
    directory = tmp_path / "data" / "orders-0"
    old = [batch([record(b"0", timestamp=n)], base_offset=n) for n in range(8)]
    write_segment(directory, 0, *old)
    write_segment(directory, 5, batch([record(b"5", timestamp=99)] * 5, base_offset=5))
    with Log.open(directory) as log:
        assert [one.offset for one in log.records(start_timestamp=50)] == [8, 9]


def test_committed_records_of_overlapping_segments(tmp_path: Path) -> None:
    """A transaction that is aborted in the part that both segments hold, and one behind it."""

    def data(offset: int, producer: int) -> bytes:
        fields = {"producer_id": producer, "producer_epoch": 0, "base_sequence": 0}
        return batch([record(b"x")], base_offset=offset, transactional=True, **fields)

    first = [data(n, 7) for n in range(5)] + [
        control_batch(ABORT, base_offset=5, producer_id=7),
        batch([record(b"x")], base_offset=6),
        data(7, 8),
    ]
    second = [
        *first[5:],
        control_batch(ABORT, base_offset=8, producer_id=8),
        batch([record(b"x")], base_offset=9),
    ]
    directory = tmp_path / "data" / "orders-0"
    write_segment(directory, 0, *first)
    write_segment(directory, 5, *second)
    with Log.open(directory) as log:
        assert log.last_stable_offset == 10
        for start in range(10):
            found = [
                one.offset for one in log.records(isolation="read_committed", start_offset=start)
            ]
            assert found == [offset for offset in (6, 9) if offset >= start]


@pytest.mark.parametrize("layout", [OVERLAP, INSIDE])
def test_what_is_read_by_time_comes_once(tmp_path: Path, layout: Layout) -> None:
    directory = made(tmp_path, layout)
    with Log.open(directory) as log:
        found = [one.offset for one in log.records(start_timestamp=10, end_timestamp=11)]
    assert found == sorted(set(found))


def test_two_widths_of_one_name_are_one_segment(tmp_path: Path) -> None:
    directory = made(tmp_path, OVERLAP)
    (directory / "5.log").write_bytes((directory / f"{5:020d}.log").read_bytes())
    assert given(directory, None, None) == of(0, *range(8)) + of(5, 8, 9)


def test_columns_come_one_by_one_and_none_is_held(tmp_path: Path) -> None:
    """The second segment is opened when the first has been given."""
    directory = made(tmp_path, OVERLAP)
    with Log.open(directory) as log:
        pieces: Iterator[kseg.RecordColumns] = log.read(max_rows=3)
        assert _of(next(pieces)) == [0, 1, 2]
        (directory / f"{5:020d}.log").unlink()
        with pytest.raises(FileNotFoundError):
            list(pieces)
