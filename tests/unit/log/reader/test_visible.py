"""Committed records: what a consumer would see, whatever became of indexes and snapshots."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import kseg
from kseg import CorruptRecordError, Log, scan
from kseg.constants import StopReason
from kseg.format import header
from kseg.log.reader.visible import AbortedAhead, aborted_ranges
from tests import reference
from tests.builders import (
    ABORT,
    COMMIT,
    GZIP,
    ZSTD,
    batch,
    control_batch,
    messages,
    messages07,
    record,
    records_of,
    write_segment,
)
from tests.fuzz.doors import DOORS, Question, disagreements
from tests.unit.analysis.healthy import snapshot
from tests.unit.files.index_bytes import txn_index
from tests.unit.log.brute import copy_partition, partitions_of, rows


class Consumer:
    """A whole partition in memory, decided the long way.

    Source: Kafka ProducerStateManager (what is undecided), CompletedFetch (what is left out).
    """

    def __init__(self, directory: Path) -> None:
        parts = [path.read_bytes() for path in sorted(directory.glob("*.log"))]
        self.batches = [batch for data in parts for batch in reference.walk(data).batches]
        self.end_offset = self.batches[-1].last_offset + 1 if self.batches else 0
        self.undecided: dict[int, int] = {}
        self.aborted: list[tuple[int, int, int]] = []
        for one in self.batches:
            if one.is_control and one.producer_id >= 0:
                self._decide(one)
            elif one.is_transactional and one.producer_id >= 0:
                self.undecided.setdefault(one.producer_id, one.base_offset)

    def _decide(self, marker: reference.Batch) -> None:
        kinds = [reference.control_type(one.key) for one in reference.records(marker)]
        if kinds and kinds[0] in ("ABORT", "COMMIT"):
            first = self.undecided.pop(marker.producer_id, None)
            if first is not None and kinds[0] == "ABORT":
                self.aborted.append((marker.producer_id, first, marker.base_offset))

    @property
    def last_stable_offset(self) -> int:
        return min([*self.undecided.values(), self.end_offset])

    def offsets(self, start: int = 0, end: int = 2**62) -> list[int]:
        """Offsets of committed records, markers left out."""
        found = []
        for one in self.batches:
            if one.is_control or self._was_aborted(one):
                continue
            found += [got.offset for got in reference.records(one)]
        return [at for at in found if start <= at < min(end, self.last_stable_offset)]

    def _was_aborted(self, one: reference.Batch) -> bool:
        return one.is_transactional and any(
            producer == one.producer_id and first <= one.base_offset <= last
            for producer, first, last in self.aborted
        )


def committed(directory: Path, **where: Any) -> list[int]:
    with Log.open(directory, mapping="always") as log:
        pieces = log.read(columns=("offset",), isolation="read_committed", **where)
        return [row["offset"] for row in rows(pieces)]


def has_transactions(directory: Path) -> bool:
    for path in directory.glob("*.log"):
        table = header.scan(path.read_bytes(), on_bad_crc="note")
        if table.attributes_seen & 0x30 and table.is_transactional.any():
            return table.stop in (StopReason.END, StopReason.TORN_TAIL, StopReason.ZERO_TAIL)
    return False


def transactional(case: Path) -> Iterator[Path]:
    whole = [directory for directory in partitions_of(case) if "mal-" not in directory.name]
    return filter(has_transactions, whole)


# ---- what may lie beside the log, in any state ---------------------------------------------------


State = Callable[[Path], object]


def without(*patterns: str) -> State:
    return lambda at: [path.unlink() for one in patterns for path in at.glob(one)]


def changed(pattern: str, change: Callable[[Path], object]) -> State:
    return lambda at: [change(path) for path in at.glob(pattern)]


def txn_index_of(data: Callable[[Path], bytes]) -> State:
    """What it holds, of each log."""
    return changed("*.log", lambda log: log.with_suffix(".txnindex").write_bytes(data(log)))


def invented_entries(log: Path) -> object:
    base = int(log.stem)
    return txn_index(
        log.with_suffix(".txnindex"), [(at, base, base + 9, 2**62) for at in range(99)]
    )


STATES: dict[str, State] = {
    "as it is": lambda _: None,
    "no transaction index": without("*.txnindex"),
    "an empty one": txn_index_of(lambda _: b""),
    "first entries lost": changed("*.txnindex", lambda at: at.write_bytes(at.read_bytes()[34:])),
    "invented entries": changed("*.log", invented_entries),
    "random entries": txn_index_of(lambda log: random.Random(log.stem).randbytes(34 * 3 + 5)),
    "no snapshots": without("*.snapshot"),
    "the last snapshot lost": lambda at: [
        one.unlink() for one in sorted(at.glob("*.snapshot"))[-1:]
    ],
    "corrupt snapshots": changed(
        "*.snapshot", lambda at: at.write_bytes(at.read_bytes()[:-1] + b"?")
    ),
    "huge snapshots": changed("*.snapshot", lambda at: os.truncate(at, 2**33)),
    "a snapshot past the end": lambda at: (at / f"{2**40:020d}.snapshot").write_bytes(
        snapshot((1, 0, 0, 0, 0, 0, 0, 0))
    ),
    "no indexes": without("*.index", "*.timeindex"),
}


@pytest.mark.one_case_in(3)
def test_fixtures_give_what_a_consumer_of_committed_records_sees(
    fixture_case: Path, tmp_path: Path
) -> None:
    for directory in transactional(fixture_case):
        consumer = Consumer(directory)
        expected = consumer.offsets()
        for name, change in STATES.items():
            copy = copy_partition(directory, tmp_path / name)
            change(copy)
            with Log.open(copy) as log:
                assert log.last_stable_offset == consumer.last_stable_offset, name
            assert committed(copy) == expected, name


# ---- logs that brokers do not make on request ----------------------------------------------------


def data(offset: int, producer: int, count: int = 1, *, transactional: bool = True) -> bytes:
    given = [record(b"%d" % at) for at in range(count)]
    return batch(given, base_offset=offset, producer_id=producer, transactional=transactional)


def marker(kind: int, offset: int, producer: int) -> bytes:
    return control_batch(kind, base_offset=offset, producer_id=producer)


def write(directory: Path, *segments: tuple[int, list[bytes]]) -> Path:
    for base, parts in segments:
        write_segment(directory, base, *parts)
    return directory


def random_log(directory: Path, seed: int) -> Path:
    """Five producers, transactions that cross each other and segments, some never decided."""
    dice = random.Random(seed)
    parts: list[bytes] = []
    base = offset = 0
    for _ in range(60):
        producer, chance = dice.randrange(5), dice.random()
        if chance < 0.55:
            count = dice.randint(1, 3)
            transactional = dice.random() < 0.8
            parts.append(data(offset, producer, count, transactional=transactional))
            offset += count
        elif chance < 0.85:
            parts.append(marker(dice.choice([ABORT, COMMIT]), offset, producer))
            offset += 1
        elif chance < 0.92:
            parts.append(messages([record(b"old")], magic=1, base_offset=offset))
            offset += 1
        elif parts:
            write_segment(directory, base, *parts)
            base, parts = offset, []
    write_segment(directory, base, *parts)
    return directory


@pytest.mark.parametrize("seed", range(25))
def test_random_transactions_are_told_as_a_consumer_tells_them(tmp_path: Path, seed: int) -> None:
    directory = random_log(tmp_path, seed)
    consumer = Consumer(directory)
    with Log.open(directory) as log:
        assert log.last_stable_offset == consumer.last_stable_offset
        assert log.log_end_offset == consumer.end_offset
        ranges = aborted_ranges(log, 0, consumer.end_offset)
        assert len(ranges) == len(consumer.aborted) + len(consumer.undecided)
    dice = random.Random(seed)
    assert committed(directory) == consumer.offsets()
    for _ in range(8):
        start, end = dice.randrange(90), dice.randrange(90)
        assert committed(directory, offset=(start, end)) == consumer.offsets(start, end)


def test_a_marker_without_data_and_one_of_another_kind_decide_nothing(tmp_path: Path) -> None:
    other = control_batch(5, base_offset=1, producer_id=1)
    emptied = batch([], base_offset=2, producer_id=1, transactional=True, control=True)
    write(tmp_path, (0, [data(0, 1), other, emptied, marker(ABORT, 3, 9), data(4, -1)]))
    with Log.open(tmp_path) as log:
        assert log.last_stable_offset == 0
        hidden = aborted_ranges(log, 0, 5).ranges
        assert {key: pairs.tolist() for key, pairs in hidden.items()} == {1: [[0, 2**63 - 1]]}


def test_data_whose_marker_was_lost_to_damage_is_not_shown(tmp_path: Path) -> None:
    lost = bytearray(marker(ABORT, 1, 1))
    lost[16] = 9
    write(tmp_path, (0, [data(0, 1), bytes(lost)]), (2, [data(2, -1)]))
    assert committed(tmp_path) == []
    # A sound snapshot knows that it was decided, but not how.
    (tmp_path / f"{2:020d}.snapshot").write_bytes(snapshot())
    errors: list[Exception] = []
    with Log.open(tmp_path) as log:
        assert log.last_stable_offset == 3
    assert committed(tmp_path, on_corrupt=errors.append) == [2]
    assert len(errors) == 1
    with pytest.raises(CorruptRecordError):
        committed(tmp_path)


def test_a_snapshot_saves_the_walk_and_tells_of_transactions_in_front_of_it(
    tmp_path: Path,
) -> None:
    write(tmp_path, (0, [data(0, -1), data(1, 3)]), (2, [data(2, -1)]))
    entry = (3, 0, 0, 1, 0, 0, 0, 1)
    (tmp_path / f"{2:020d}.snapshot").write_bytes(snapshot(entry))
    with Log.open(tmp_path) as log:
        assert log.last_stable_offset == 1
    # Compaction has taken the data since: only the snapshot knows.
    write_segment(tmp_path, 0, data(0, -1))
    with Log.open(tmp_path) as log:
        assert log.last_stable_offset == 1


def test_the_last_stable_offset_is_not_below_the_log_s_start(tmp_path: Path) -> None:
    write(tmp_path, (5, [data(5, -1)]), (6, [data(6, -1)]))
    (tmp_path / f"{6:020d}.snapshot").write_bytes(snapshot((3, 0, 0, 1, 0, 0, 0, 1)))
    with Log.open(tmp_path) as log:
        assert log.last_stable_offset == 5
    assert committed(tmp_path) == []


def test_the_walk_ahead_goes_no_further_than_it_must(tmp_path: Path) -> None:
    write(
        tmp_path,
        (0, [data(0, 1), data(1, -1)]),
        (2, [marker(ABORT, 2, 1), data(3, 1)]),
        (4, [marker(ABORT, 4, 1)]),
        (5, [data(5, -1)]),
    )
    with Log.open(tmp_path) as log:
        ahead = AbortedAhead(log, 0, 6)
        assert {k: v.tolist() for k, v in ahead.within(0, 2).ranges.items()} == {1: [[0, 2]]}
        # The last two segments are gone, and nobody has asked for them yet.
        (tmp_path / f"{5:020d}.log").unlink()
        assert {k: v.tolist() for k, v in ahead.within(2, 4).ranges.items()} == {
            1: [[0, 2], [3, 4]]
        }
        with pytest.raises(FileNotFoundError):
            ahead.within(4, 6)


def test_committed_reading_is_refused_where_it_cannot_be_right(tmp_path: Path) -> None:
    write(tmp_path, (0, [data(0, 1)]))
    with pytest.raises(ValueError, match="whole partitions"):
        scan(tmp_path / f"{0:020d}.log", isolation="read_committed")
    with (
        Log.open(tmp_path) as log,
        pytest.raises(ValueError, match="isolation is read_uncommitted or"),
    ):
        log.read(isolation="serializable")


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
        found = log.records(offset=(start, end))
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


def fetched(directory: Path, start: int, end: int) -> list[int]:
    found: list[int] = []
    with Log.open(directory) as log:
        at = start
        while (got := log.fetch(at, max_bytes=1)).size:
            found += [offset for piece in got.columns() for offset in _of(piece)]
            at = got.next_offset
    return [offset for offset in found if offset < end]


def followed(directory: Path, start: int, end: int) -> list[int]:
    with Log.open(directory) as log:
        found = [offset for piece in log.follow(start, timeout=0) for offset in _of(piece)]
    return [offset for offset in found if offset < end]


def _of(piece: kseg.RecordColumns) -> list[int]:
    offsets: list[int] = piece["offset"].tolist()
    return offsets


def same_at_every_door(directory: Path, start: int, end: int, wanted: list[int]) -> None:
    """At those that show each file as it is, for a log of one segment alone."""
    several = len(list(directory.glob("*.log"))) > 1
    of_files = ("scan of files", "Segment", "dump")
    doors = [name for name in DOORS if not (several and name in of_files)]
    time = 10 if min(directory.glob("*.log")).read_bytes()[16] else -1
    rows = [(offset, time) for offset in wanted]
    assert list(disagreements(directory, Question((start, end)), rows, doors)) == []
    assert fetched(directory, start, end) == followed(directory, start, end) == wanted


@pytest.mark.parametrize("form", FORMATS.values(), ids=FORMATS)
def test_bounds_hold_below_a_base_at_every_door(tmp_path: Path, form: dict[str, int]) -> None:
    """One compressed batch that begins below both bounds."""
    same_at_every_door(made(tmp_path, {5: [(0, 8)]}, **form), 5, 7, [5, 6])


@pytest.mark.parametrize("form", FORMATS.values(), ids=FORMATS)
@pytest.mark.parametrize("layout", [OVERLAP, INSIDE, CHAIN])
def test_offsets_rise_at_every_door_of_a_log(
    tmp_path: Path, form: dict[str, int], layout: Layout
) -> None:
    directory = made(tmp_path, layout, **form)
    every = {first + n for rows in layout.values() for first, count in rows for n in range(count)}
    for start in (0, 6):
        wanted = sorted(offset for offset in every if offset >= start)
        same_at_every_door(directory, start, 100, wanted)


def test_bounds_hold_in_a_log_of_kafka_0_7(tmp_path: Path) -> None:
    data = messages07([b"a", b"b", b"c"])
    write_segment(tmp_path / "orders-0", 100, data, suffix=".kafka")
    first, second, third = given_07(tmp_path / "orders-0", None, None)
    assert first == 100
    assert given_07(tmp_path / "orders-0", second, third) == [second]
    with Log.open(tmp_path / "orders-0") as log:
        assert list(log.records(time=(0, None))) == []  # no message has a time
    # The second file begins where the first is not over yet: its name is too low.
    write_segment(tmp_path / "orders-0", second, data, suffix=".kafka")
    walked = given_07(tmp_path / "orders-0", None, None)
    assert walked == sorted(set(walked))
    assert walked[:3] == [first, second, third]


def given_07(directory: Path, start: int | None, end: int | None) -> list[int]:
    with Log.open(directory) as log:
        return [one.offset for one in log.records(offset=(start, end))]


def test_a_damaged_header_hides_no_later_segment(tmp_path: Path) -> None:
    """It says that its batch goes to offset 2^40; its checksum says that it does not."""
    directory = made(tmp_path, {0: [(0, 3)], 3: [(3, 3)]})
    path = directory / f"{0:020d}.log"
    liar = bytearray(batch([record(b"0")], base_offset=2**40))
    liar[-1] ^= 1
    path.write_bytes(path.read_bytes() + liar)
    faults: list[kseg.KsegError] = []
    with Log.open(directory) as log:
        found = [one.offset for one in log.records(on_corrupt=faults.append)]
    assert (found, len(faults)) == ([0, 1, 2, 3, 4, 5], 1)


@pytest.mark.parametrize("threads", [1, 2])
def test_an_offset_that_is_wrong_in_the_middle_hides_no_later_segment(
    tmp_path: Path, threads: int
) -> None:
    """No checksum covers the offset of a batch: the last batch says where the segment ends."""
    bases = [0, 2**40, 1, 2, 3]
    parts = [batch([record(b"v")], base_offset=base) for base in bases]
    write_segment(tmp_path / "t-0", 0, *parts[:3])
    write_segment(tmp_path / "t-0", 2, *parts[3:])
    found = kseg.scan(tmp_path / "t-0", threads=threads)
    assert [offset for piece in found for offset in piece.offset.tolist()] == bases


def test_records_that_no_filter_kept_count_as_given(tmp_path: Path) -> None:
    """The first segment has offset 5 to 7, too old to be wanted: the later copies stay out."""
    directory = tmp_path / "data" / "orders-0"
    old = [batch([record(b"0", timestamp=n)], base_offset=n) for n in range(8)]
    write_segment(directory, 0, *old)
    write_segment(directory, 5, batch([record(b"5", timestamp=99)] * 5, base_offset=5))
    with Log.open(directory) as log:
        assert [one.offset for one in log.records(time=(50, None))] == [8, 9]


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
                one.offset for one in log.records(isolation="read_committed", offset=(start, None))
            ]
            assert found == [offset for offset in (6, 9) if offset >= start]


def test_two_widths_of_one_name_are_one_segment(tmp_path: Path) -> None:
    directory = made(tmp_path, OVERLAP)
    (directory / "5.log").write_bytes((directory / f"{5:020d}.log").read_bytes())
    assert given(directory, None, None) == of(0, *range(8)) + of(5, 8, 9)
