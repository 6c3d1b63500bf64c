"""A salvage: what OUT has, what lies beside it, and what is told."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest

import kseg
from kseg import SalvagePlan, SalvageReport, apply_salvage, plan_salvage
from kseg.errors import NotALogError
from kseg.log.salvage import SalvagedPartition
from tests.bad_sectors import bad_sectors
from tests.builders import ABORT, COMMIT, GZIP, batch, control_batch, record, write_segment
from tests.unit.analysis.copied import told, write_copy

BASE = told(12)
#: Each has 90 bytes or fewer, so three of them make a segment.
SIZES = [len(one.data) for one in BASE]


def source(tmp_path: Path) -> Path:
    return write_copy(tmp_path / "in" / "t-0", BASE, topic_id=7)


def overwrite(directory: Path, batch: int, at: int, data: bytes) -> None:
    """Write over bytes of a batch; each segment has three."""
    path = directory / f"{batch // 3 * 6:020d}.log"
    content = bytearray(path.read_bytes())
    start = sum(SIZES[batch // 3 * 3 : batch]) + at
    content[start : start + len(data)] = data
    path.write_bytes(content)


def salvaged(tmp_path: Path, **how: object) -> tuple[SalvagedPartition, SalvageReport]:
    """The one partition of a salvage that was applied, and sound."""
    plan = plan_salvage(tmp_path / "in", out=tmp_path / "out", **how)  # type: ignore[arg-type]
    report = apply_salvage(plan)
    assert kseg.verify(tmp_path / "out", deep=True).ok
    (partition,) = plan.partitions
    return partition, report


def offsets(tmp_path: Path) -> list[int]:
    """Of the records in OUT."""
    table = kseg.scan(tmp_path / "out" / "t-0", fields=("offset",))
    return [offset for columns in table for offset in columns.offset.tolist()]


def test_a_sound_log_is_copied_whole(tmp_path: Path) -> None:
    directory = source(tmp_path)
    partition, report = salvaged(tmp_path)
    assert report.ok
    assert (partition.lost, partition.unprovable, partition.mended) == ((), (), ())
    for path in sorted(directory.glob("*.log")):
        assert (tmp_path / "out" / "t-0" / path.name).read_bytes() == path.read_bytes()
    assert sorted(each.name for each in report.plan.beside.iterdir()) == ["report.json"]


def test_what_lies_behind_damage_is_kept_and_what_lies_in_it_is_lost(tmp_path: Path) -> None:
    overwrite(source(tmp_path), 4, 70, b"\xff")
    partition, report = salvaged(tmp_path)
    assert not report.ok
    assert offsets(tmp_path) == [at for at in range(24) if at not in (8, 9)]
    assert [(one.first_offset, one.last_offset, one.at_most) for one in partition.lost] == [
        (8, 9, False)
    ]
    assert (partition.batches, partition.records, partition.lost_records) == (11, 22, 2)
    assert partition.topic_id == UUID(int=7)


def test_bytes_that_go_lie_in_the_quarantine(tmp_path: Path) -> None:
    directory = source(tmp_path)
    for number in (3, 5):
        overwrite(directory, number, 70, b"\xff")
    partition, report = salvaged(tmp_path)
    for one in partition.quarantined:
        kept = (report.plan.beside / one.path).read_bytes()
        data = Path(one.source.path).read_bytes()
        part = data[one.source.position : one.source.end]
        assert kept[one.position : one.position + len(part)] == part
    assert [one.position for one in partition.quarantined] == [0, SIZES[3]]


def test_the_report_is_the_document_of_the_verb(tmp_path: Path) -> None:
    overwrite(source(tmp_path), 4, 70, b"\xff")
    partition, report = salvaged(tmp_path)
    document = json.loads(report.path.read_text())
    assert document == {"schema": "kseg.salvage/1", **report.to_json()}
    (told_of,) = document["partitions"]
    assert (told_of["topic"], told_of["partition"], told_of["ok"]) == ("t", 0, False)
    (place,) = told_of["unprovable"]
    assert (place["reason"], place["quarantine_position"]) == ("batch-crc", 0)
    assert place["quarantine"] == "quarantine/t-0/00000000000000000006.log"
    assert partition.to_dict() == told_of


def test_swapped_batches_are_placed_by_their_offsets(tmp_path: Path) -> None:
    parts = [one.data for one in BASE]
    parts[1], parts[7] = parts[7], parts[1]
    for at in range(0, 12, 3):
        write_segment(tmp_path / "in" / "t-0", 2 * at, *parts[at : at + 3])
    partition, report = salvaged(tmp_path)
    assert report.ok
    assert partition.unprovable == ()
    assert offsets(tmp_path) == list(range(24))
    segments = sorted(path.name for path in (tmp_path / "out" / "t-0").glob("*.log"))
    assert segments == [f"{base:020d}.log" for base in (0, 6, 12, 18)]


def test_a_batch_that_is_there_twice_is_a_duplicate(tmp_path: Path) -> None:
    parts = [one.data for one in BASE]
    write_segment(tmp_path / "in" / "t-0", 0, *parts[:6], *parts[4:])
    partition, report = salvaged(tmp_path)
    assert report.ok
    assert offsets(tmp_path) == list(range(24))
    assert partition.duplicate_batches == 2
    assert [one.reason for one in partition.unprovable] == ["duplicate"]


def test_two_batches_with_the_same_offsets_collide(tmp_path: Path) -> None:
    parts = [one.data for one in BASE]
    write_segment(tmp_path / "in" / "t-0", 0, *parts[:6], replace(BASE[2], text="w").data)
    partition, report = salvaged(tmp_path)
    assert not report.ok
    assert [one.reason for one in partition.unprovable] == ["collision"]
    assert offsets(tmp_path) == list(range(12))


@pytest.mark.parametrize("number", range(1, 11))
@pytest.mark.parametrize(("at", "data"), [(7, b"\x40"), (12, b"\0\0\1\0"), (2, b"\1")])
def test_a_header_field_without_a_checksum_is_mended_where_one_value_fits(
    tmp_path: Path, number: int, at: int, data: bytes
) -> None:
    directory = source(tmp_path)
    whole = [path.read_bytes() for path in sorted(directory.glob("*.log"))]
    overwrite(directory, number, at, data)
    partition, report = salvaged(tmp_path)
    assert report.ok
    assert [one.first_offset for one in partition.mended] == [2 * number]
    logs = sorted((tmp_path / "out" / "t-0").glob("*.log"))
    assert [path.read_bytes() for path in logs] == whole


def test_a_log_whose_end_is_gone_goes_on_behind_offsets_that_were_given(tmp_path: Path) -> None:
    directory = source(tmp_path)
    (directory / f"{12:020d}.log").unlink()
    (directory / f"{18:020d}.log").write_bytes(b"\xff" * 300)
    partition, _ = salvaged(tmp_path)
    assert partition.log_end_offset == 18
    assert [(one.first_offset, one.last_offset) for one in partition.lost] == [(12, 17), (18, None)]


def test_a_log_without_a_sound_batch_begins_behind_what_was_given(tmp_path: Path) -> None:
    write_segment(tmp_path / "in" / "t-0", 100, b"\xff" * 300)
    partition, _ = salvaged(tmp_path)
    assert (partition.log_start_offset, partition.log_end_offset) == (100, 100)
    with kseg.Log.open(tmp_path / "out" / "t-0", mode="append") as log:
        assert log.log_end_offset == 100


def test_bytes_that_the_disk_does_not_give_are_lost(tmp_path: Path) -> None:
    directory = source(tmp_path)
    with bad_sectors(directory / f"{6:020d}.log", (SIZES[3] + 5, SIZES[3] + 20)):
        partition, _ = salvaged(tmp_path)
    assert "unreadable" in [one.reason for one in partition.unprovable]
    assert [(one.first_offset, one.last_offset) for one in partition.lost] == [(6, 11)]


# ---- unproven ------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", [0, GZIP])
def test_records_in_front_of_the_damage_of_their_batch_are_written_beside(
    tmp_path: Path, codec: int
) -> None:
    batches = [replace(one, count=5, codec=codec) for one in told(3, size=5)]
    directory = write_copy(tmp_path / "in" / "t-0", batches)
    path = directory / f"{0:020d}.log"
    data = bytearray(path.read_bytes())
    at = len(batches[0].data)
    data[at + 17] ^= 1  # the checksum
    path.write_bytes(data)
    _, report = salvaged(tmp_path, unproven=True)
    lines = (report.plan.beside / "unproven" / "t-0.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    assert [row["offset"] for row in rows] == [5, 6, 7, 8, 9]
    assert {(row["position"], row["why"]) for row in rows} == {(at, "batch-crc")}
    assert rows[0]["value"] == "djU="
    assert report.unproven_records == 5


# ---- transactions --------------------------------------------------------------------------------


def transactional(first: int, producer: int, sequence: int = 0) -> bytes:
    return batch(
        [record(b"v", offset=first)],
        base_offset=first,
        producer_id=producer,
        producer_epoch=0,
        base_sequence=sequence,
        transactional=True,
    )


def marker(first: int, producer: int, kind: int = COMMIT) -> bytes:
    return control_batch(kind, base_offset=first, producer_id=producer, coordinator_epoch=5)


def write_transactions(tmp_path: Path) -> None:
    """Producer 1 commits, begins again and loses its marker; producer 2 is open at the end."""
    parts = [
        transactional(0, 1),
        marker(1, 1),
        transactional(2, 1, 1),
        marker(3, 1, ABORT),
        transactional(4, 2),
    ]
    damaged = bytearray(parts[3])
    damaged[65] ^= 1
    write_segment(tmp_path / "in" / "t-0", 0, *parts[:3], bytes(damaged), parts[4])


def test_a_lost_marker_leaves_a_transaction_open_that_is_named(tmp_path: Path) -> None:
    write_transactions(tmp_path)
    partition, _ = salvaged(tmp_path)
    (found,) = partition.transactions
    assert (found.producer_id, found.first_offset, found.is_open) == (1, 2, True)
    assert (found.producer_epoch, found.coordinator_epoch) == (0, 5)
    assert partition.markers == 0


def test_a_marker_aborts_it_if_asked_to(tmp_path: Path) -> None:
    write_transactions(tmp_path)
    partition, _ = salvaged(tmp_path, abort_open=True)
    assert (partition.markers, partition.log_end_offset) == (1, 6)
    with kseg.Log.open(tmp_path / "out" / "t-0", mode="append") as log:
        assert log.last_stable_offset == 4  # producer 2 is open still
    (last,) = [each for each in kseg.scan(tmp_path / "out" / "t-0", control=True, offset=(5, None))]
    row = last.to_pylist()[0]
    assert row["offset"] == 5


def test_a_transaction_around_lost_offsets_is_named(tmp_path: Path) -> None:
    parts = [transactional(0, 1), transactional(1, 1, 1), marker(2, 1)]
    damaged = bytearray(parts[1])
    damaged[65] ^= 1
    write_segment(tmp_path / "in" / "t-0", 0, parts[0], bytes(damaged), parts[2])
    partition, _ = salvaged(tmp_path, abort_open=True)
    (found,) = partition.transactions
    assert (found.first_offset, found.last_offset, found.is_open) == (0, 2, False)
    assert partition.markers == 0


# ---- which partitions ----------------------------------------------------------------------------


def test_the_live_partitions_of_a_data_directory_are_taken(tmp_path: Path) -> None:
    names = ("t-0", "u-1", "t-1.0123456789abcdef0123456789abcdef-delete", "__cluster_metadata-0")
    for name in names:
        write_copy(tmp_path / "in" / name, BASE)
    plan = plan_salvage(tmp_path / "in", out=tmp_path / "out", jobs=2)
    assert [one.name for one in plan.partitions] == ["t-0", "u-1"]
    chosen = plan_salvage(tmp_path / "in", out=tmp_path / "out", chosen=lambda t, _: t == "u")
    assert [one.name for one in chosen.partitions] == ["u-1"]
    assert repr(plan) == f"SalvagePlan({str(tmp_path / 'out')!r}, ok=True)"
    assert isinstance(plan, SalvagePlan)


@pytest.mark.parametrize(
    ("given", "error", "why"),
    [
        (["a", "b"], ValueError, "the same partition: 'kseg merge'"),
        (["a/x"], NotALogError, "its name is not"),
        (["a/__cluster_metadata-0"], NotALogError, "KRaft"),
        ([f"a/t-0/{0:020d}.log"], NotALogError, "a file"),
        ([], ValueError, "name a directory"),
    ],
)
def test_what_makes_no_new_log_is_refused(
    tmp_path: Path, given: list[str], error: type[Exception], why: str
) -> None:
    for name in ("a/t-0", "b/t-0", "a/x", "a/__cluster_metadata-0"):
        write_copy(tmp_path / name, BASE)
    with pytest.raises(error, match=why):
        plan_salvage(*(tmp_path / each for each in given), out=tmp_path / "out")
    assert not (tmp_path / "out").exists()
