"""Committed records: what a consumer would see, whatever became of indexes and snapshots."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kseg import CorruptRecordError, Log, scan
from kseg.constants import StopReason
from kseg.format import header
from kseg.log.reader.visible import AbortedAhead, AbortedRanges, aborted_ranges
from tests import reference
from tests.builders import ABORT, COMMIT, batch, control_batch, messages, record, write_segment
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
        pieces = log.read(fields=("offset",), isolation="read_committed", **where)
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


# ---- what may lie beside the log, in any state
# ---------------------------------------------------------------------------------


def no_txn_index(directory: Path) -> None:
    for path in directory.glob("*.txnindex"):
        path.unlink()


def empty_txn_index(directory: Path) -> None:
    for path in directory.glob("*.log"):
        path.with_suffix(".txnindex").write_bytes(b"")


def first_entries_lost(directory: Path) -> None:
    for path in directory.glob("*.txnindex"):
        path.write_bytes(path.read_bytes()[34:])


def invented_entries(directory: Path) -> None:
    for path in directory.glob("*.log"):
        base = int(path.stem)
        txn_index(path.with_suffix(".txnindex"), [(at, base, base + 9, 2**62) for at in range(99)])


def random_txn_index(directory: Path) -> None:
    dice = random.Random(5)
    for path in directory.glob("*.log"):
        path.with_suffix(".txnindex").write_bytes(dice.randbytes(34 * 3 + 5))


def no_snapshots(directory: Path) -> None:
    for path in directory.glob("*.snapshot"):
        path.unlink()


def last_snapshot_lost(directory: Path) -> None:
    for path in sorted(directory.glob("*.snapshot"))[-1:]:
        path.unlink()


def corrupt_snapshots(directory: Path) -> None:
    for path in directory.glob("*.snapshot"):
        path.write_bytes(path.read_bytes()[:-1] + b"?")


def huge_snapshots(directory: Path) -> None:
    for path in directory.glob("*.snapshot"):
        with path.open("ab") as file:
            file.truncate(2**33)


def snapshot_past_the_end(directory: Path) -> None:
    (directory / f"{2**40:020d}.snapshot").write_bytes(snapshot((1, 0, 0, 0, 0, 0, 0, 0)))


def no_indexes(directory: Path) -> None:
    for path in [*directory.glob("*.index"), *directory.glob("*.timeindex")]:
        path.unlink()


def as_it_is(directory: Path) -> None:
    """Nothing."""


STATES: list[Callable[[Path], None]] = [
    as_it_is,
    no_txn_index,
    empty_txn_index,
    first_entries_lost,
    invented_entries,
    random_txn_index,
    no_snapshots,
    last_snapshot_lost,
    corrupt_snapshots,
    huge_snapshots,
    snapshot_past_the_end,
    no_indexes,
]


def test_fixtures_give_what_a_consumer_of_committed_records_sees(
    fixture_case: Path, tmp_path: Path
) -> None:
    for directory in transactional(fixture_case):
        consumer = Consumer(directory)
        expected = consumer.offsets()
        for number, state in enumerate(STATES):
            copy = copy_partition(directory, tmp_path / str(number))
            state(copy)
            with Log.open(copy) as log:
                assert log.last_stable_offset == consumer.last_stable_offset, state.__name__
            assert committed(copy) == expected, state.__name__


def test_any_range_of_a_fixture_gives_its_part(fixture_case: Path) -> None:
    for directory in list(transactional(fixture_case))[:2]:
        consumer = Consumer(directory)
        marks = sorted({at for txn in consumer.aborted for at in txn[1:]} | {0, 10**9})
        for start in [*marks[::3], marks[-1]]:
            for end in [*marks[::4], marks[-1]]:
                found = committed(directory, start_offset=start, end_offset=end)
                assert found == consumer.offsets(start, end), (start, end)


# ---- logs that brokers do not make on request
# ---------------------------------------------------------------------------------


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
        assert committed(directory, start_offset=start, end_offset=end) == consumer.offsets(
            start, end
        )


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
    assert committed(tmp_path, on_error=errors.append) == [2]
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


def test_ranges_leave_out_data_of_their_producer_only() -> None:
    parts = [
        data(0, 1),
        data(1, 2),
        data(2, 1, transactional=False),
        marker(ABORT, 3, 1),
        data(4, 1),
    ]
    table = header.scan(b"".join(parts))
    ranges = AbortedRanges.of([(1, 0, 3)])
    assert len(ranges) == 1
    assert ranges.drop(table).base_offset.tolist() == [1, 2, 3, 4]
    assert AbortedRanges.of([]).drop(table) is table
    assert AbortedRanges.of([(1, 5, 9), (8, 0, 9)]).drop(table) is table


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
    with Log.open(tmp_path) as log, pytest.raises(ValueError, match="isolation is one of"):
        log.read(isolation="serializable")
