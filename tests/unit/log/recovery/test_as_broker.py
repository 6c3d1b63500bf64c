"""What Kafka makes of logs that random damage beside it has found: cuts, failures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kseg import Segment
from kseg.analysis.doctor.partitions import exception_of
from kseg.files import producer_snapshot
from kseg.files.producer_snapshot import ProducerSnapshotEntry
from kseg.log.config import LogConfig
from kseg.log.recovery.as_broker import position_of
from kseg.log.recovery.recover import RecoveryPlan, plan_recovery
from tests.builders import batch, control_batch, record, write_segment


def one(offset: int, count: int = 1) -> bytes:
    return batch([record(b"v") for _ in range(count)], base_offset=offset)


@pytest.fixture
def partition(tmp_path: Path) -> Path:
    found = tmp_path / "data" / "t-0"
    found.mkdir(parents=True)
    return found


def plan(directory: Path, *, clean: bool = False, interval: int = 0, **how: int) -> RecoveryPlan:
    config = LogConfig(index_interval_bytes=interval)
    return plan_recovery(
        directory, as_broker=True, clean=clean, config=config, now_ms=0, thorough=False, **how
    )


def test_aborted_transactions_out_of_order_fail_the_load(partition: Path) -> None:
    who: dict[str, Any] = {"producer_epoch": 0, "base_sequence": 0, "transactional": True}
    begun = [batch([record(b"v")], base_offset=at, producer_id=at, **who) for at in (1, 2)]
    ended = [control_batch(False, base_offset=at, producer_id=p) for at, p in ((5, 1), (4, 2))]
    write_segment(partition, 0, *begun, *ended)
    (partition / f"{0:020d}.index").write_bytes(b"")
    error = plan(partition, interval=4096).error
    assert error is not None
    assert exception_of(error) == "IllegalArgumentException"


def test_records_whose_offsets_alone_are_wrong_are_counted(partition: Path) -> None:
    write_segment(partition, 0, one(0, 8), one(8, 5), one(0))
    write_segment(partition, 13, one(13, 5))
    for base in (0, 13):
        (partition / f"{base:020d}.index").write_bytes(b"")
    (lost,) = plan(partition).lost
    assert (lost.first_offset, lost.last_offset) == (0, 17)
    assert (lost.records, lost.batches) == (19, 4)


def test_what_a_cut_and_a_new_beginning_take_is_counted_together(partition: Path) -> None:
    bad = bytearray(one(5, 2))
    bad[-1] ^= 1
    write_segment(partition, 0, one(0, 5), bytes(bad), one(7, 3))
    (partition / f"{0:020d}.index").write_bytes(b"")
    made = plan(partition, log_start_offset=8)
    (lost,) = made.lost
    assert (made.log_start_offset, made.log_end_offset) == (8, 8)
    assert (lost.first_offset, lost.last_offset, lost.records) == (0, 9, 10)
    assert lost.bytes == made.truncated_bytes


def test_damage_where_the_oldest_open_transaction_begins_fails_a_clean_load(
    partition: Path,
) -> None:
    write_segment(partition, 0, one(0), one(1))
    write_segment(partition, 2, one(2))
    for base in (0, 2):
        for kind in ("index", "timeindex"):
            (partition / f"{base:020d}.{kind}").write_bytes(b"")
    opened = ProducerSnapshotEntry(8, 0, 0, 2, 0, 0, -1, 0)
    producer_snapshot.write(partition / f"{3:020d}.snapshot", [opened], sync=False)
    assert plan(partition, clean=True).error is None
    log = partition / f"{0:020d}.log"
    data = bytearray(log.read_bytes())
    data[8:12] = b"\xff" * 4
    log.write_bytes(data)
    error = plan(partition, clean=True).error
    assert error is not None
    assert exception_of(error) == "CorruptRecordException"
    assert plan(partition, clean=True, log_start_offset=2).error is None


def written(tmp_path: Path, bases: tuple[int, ...], tail: bytes = b"") -> tuple[Path, list[int]]:
    """A log of batches of two records each, and where they begin."""
    data, starts = b"", []
    for base in bases:
        starts.append(len(data))
        data += batch([record(b"a"), record(b"b")], base_offset=base)
    path = tmp_path / f"{0:020d}.log"
    path.write_bytes(data + tail)
    return path, starts


@pytest.mark.parametrize(
    ("bases", "wanted", "found"),
    [
        ((0, 2, 8), 3, 1),
        ((0, 2, 8), 2, 1),
        ((0, 2, 8), 5, 2),
        ((0, 2, 8), 9, 2),
        ((0, 2, 8), 10, None),
        ((8, 0), 9, None),  # only the batch right in front of the end may hold it
        ((8, 0), 8, 0),
        ((8, 0, 20), 9, 2),
        ((), 0, None),
    ],
)
def test_the_batch_in_front_of_the_first_that_begins_past_an_offset_may_hold_it(
    tmp_path: Path, bases: tuple[int, ...], wanted: int, found: int | None
) -> None:
    path, starts = written(tmp_path, bases)
    with Segment.open(path) as segment:
        assert position_of(segment, b"", wanted) == (None if found is None else starts[found])


@pytest.mark.parametrize(
    ("magic", "attributes", "is_found"),
    [(0, 2, True), (1, 1, True), (0xFF, 0xC9, True), (1, 0, False), (2, 2, False)],
)
def test_what_counts_as_a_compressed_message_on_the_way_is_found(
    tmp_path: Path, magic: int, attributes: int, is_found: bool
) -> None:
    path, starts = written(tmp_path, (0, 2, 4, 6))
    data = bytearray(path.read_bytes())
    for start in starts[1::2]:
        data[start + 16] = magic
        data[start + (17 if magic != 2 else 22)] = attributes
    path.write_bytes(data)
    found: list[tuple[str, int]] = []
    with Segment.open(path) as segment:
        position_of(segment, b"", 4, lambda *place: found.append(place))
    assert found == ([(str(path), starts[1])] if is_found else [])
