"""A salvage: what OUT has, what lies beside it, and what is told."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any
from uuid import UUID

import pytest

import kseg
from kseg import plan_salvage
from kseg.constants import ControlType
from kseg.errors import NotALogError
from kseg.log.salvage import SalvagedPartition
from kseg.reports import SalvagePlan, SalvageReport
from tests.bad_sectors import bad_sectors
from tests.builders import ABORT, COMMIT, GZIP, ZSTD, batch, control_batch, record, write_segment
from tests.tracing import traced
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
    found = salvaged_without_check(tmp_path, **how)
    assert kseg.verify(tmp_path / "out", deep=True).ok
    return found


def salvaged_without_check(
    tmp_path: Path, **how: object
) -> tuple[SalvagedPartition, SalvageReport]:
    plan = plan_salvage(tmp_path / "in", out=tmp_path / "out", **how)  # type: ignore[arg-type]
    report = plan.apply()
    (partition,) = plan.partitions
    return partition, report


def offsets(tmp_path: Path) -> list[int]:
    """Of the records in OUT."""
    table = kseg.scan(tmp_path / "out" / "t-0", columns=("offset",))
    return [offset for columns in table for offset in columns.offset.tolist()]


def test_a_sound_log_is_copied_whole(tmp_path: Path) -> None:
    directory = source(tmp_path)
    partition, report = salvaged(tmp_path)
    assert report.ok
    assert (partition.lost, partition.unprovable) == ((), ())
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


def test_swapped_batches_are_in_doubt_and_are_not_moved(tmp_path: Path) -> None:
    parts = [one.data for one in BASE]
    parts[1], parts[7] = parts[7], parts[1]
    for at in range(0, 12, 3):
        write_segment(tmp_path / "in" / "t-0", 2 * at, *parts[at : at + 3])
    partition, report = salvaged(tmp_path)
    assert not report.ok
    assert [(one.reason, one.places) for one in partition.unprovable] == [
        ("offset-order", ((14, 15), (2, 3))),
        ("offset-order", ((2, 3), (14, 15))),
    ]
    assert offsets(tmp_path) == [at for at in range(24) if at not in (2, 3, 14, 15)]
    assert [(one.first_offset, one.last_offset) for one in partition.lost] == [(2, 3), (14, 15)]


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


@pytest.mark.parametrize("number", range(1, 10))
@pytest.mark.parametrize(
    ("at", "data", "reason"),
    [
        (7, b"\x40", "offset-order"),
        (2, b"\1", "offset-order"),
        (12, b"\0\0\1\0", "epoch-order"),
        (8, b"\0\1", "batch-length"),
    ],
)
def test_a_batch_with_a_wrong_field_that_no_checksum_covers_goes_as_it_is(
    tmp_path: Path, number: int, at: int, data: bytes, reason: str
) -> None:
    directory = source(tmp_path)
    overwrite(directory, number, at, data)
    path = directory / f"{number // 3 * 6:020d}.log"
    start = sum(SIZES[number // 3 * 3 : number])
    changed = path.read_bytes()[start : start + SIZES[number]]
    partition, report = salvaged(tmp_path)
    assert [one.reason for one in partition.unprovable] == [reason]
    assert offsets(tmp_path) == [at for at in range(24) if at // 2 != number]
    (kept,) = partition.quarantined
    assert (report.plan.beside / kept.path).read_bytes() == changed


def test_readable_batches_without_a_place_lie_in_a_log_that_can_be_read(tmp_path: Path) -> None:
    parts = [one.data for one in BASE[:6]]
    parts[2] = b"\xee" * 61 + parts[2][61:]
    write_segment(tmp_path / "in" / "t-0", 0, *parts)
    partition, report = salvaged(tmp_path)
    assert partition.unproved_batches == 3
    (readable,) = [one.path for one in partition.quarantined if one.source.batches]
    path = report.plan.beside / readable
    assert path.read_bytes() == b"".join(parts[3:])
    rows = [
        row for columns in kseg.scan(path, columns=("offset",)) for row in columns.offset.tolist()
    ]
    assert rows == list(range(6, 12))


@pytest.mark.parametrize("start", [25, 999_999])
def test_a_log_start_behind_the_end_is_not_taken_over(tmp_path: Path, start: int) -> None:
    source(tmp_path)
    (tmp_path / "in" / "log-start-offset-checkpoint").write_text(f"0\n1\nt 0 {start}\n")
    partition, report = salvaged(tmp_path)
    assert report.ok
    assert (partition.start_beyond_end, partition.log_start_offset) == (start, 0)
    assert offsets(tmp_path) == list(range(24))


def test_a_log_start_at_the_end_is_taken_over(tmp_path: Path) -> None:
    source(tmp_path)
    (tmp_path / "in" / "log-start-offset-checkpoint").write_text("0\n1\nt 0 24\n")
    (partition,) = plan_salvage(tmp_path / "in", out=tmp_path / "out").partitions
    assert (partition.start_beyond_end, partition.log_start_offset) == (None, 24)


@pytest.mark.parametrize(
    ("epochs", "checkpoint", "gone"),
    [
        # Either of two may be wrong.
        ((0, 1, 0, 1), None, [1, 2]),
        ((0, 0, 1, 0), None, [2, 3]),
        # One of them is alone with its epoch.
        ((0, 7, 0, 0), None, [1]),
        ((4, 4, 0, 4), None, [2]),
        # The checkpoint decides.
        ((0, 1, 0, 1), "0\n2\n0 0\n1 6\n", [1]),
        ((0, 1, 1, 1), "0\n2\n0 0\n1 4\n", [1]),
        ((0, 0, 0, 5), "0\n1\n0 0\n", [3]),
        # More than single batches contradict it: it is old.
        ((0, 0, 5, 5), "0\n1\n0 0\n", []),
        # No release writes such an epoch.
        ((-7, 0, 0, 0), None, [0]),
        # A negative one alone is none.
        ((-1, 0, 0, 0), None, []),
    ],
)
def test_a_batch_whose_epoch_is_in_doubt_is_left_out(
    tmp_path: Path, epochs: tuple[int, ...], checkpoint: str | None, gone: list[int]
) -> None:
    given = [replace(one, epoch=epoch) for one, epoch in zip(BASE, epochs, strict=False)]
    directory = write_copy(tmp_path / "in" / "t-0", given, per_segment=2)
    if checkpoint is not None:
        (directory / "leader-epoch-checkpoint").write_text(checkpoint)
    (partition,) = plan_salvage(tmp_path / "in", out=tmp_path / "out").partitions
    assert [one.reason for one in partition.unprovable] == ["epoch-order"] * len(gone)
    assert [one.first_offset for one in partition.unprovable] == [2 * at for at in gone]


@pytest.mark.parametrize("sign", ["empty segment", "cleaner checkpoint"])
def test_in_a_log_that_was_compacted_once_a_loss_is_an_upper_bound(
    tmp_path: Path, sign: str
) -> None:
    directory = source(tmp_path)
    overwrite(directory, 3, 70, b"\xff")
    if sign == "empty segment":
        (directory / f"{0:020d}.log").write_bytes(b"")
    else:
        (tmp_path / "in" / "cleaner-offset-checkpoint").write_text("0\n1\nt 0 18\n")
    partition, _ = salvaged(tmp_path)
    assert [(one.records, one.at_most) for one in partition.lost] == [(None, True)]


@pytest.mark.parametrize(
    ("proof", "kept"),
    [("nothing", False), ("index", True), ("own name", True), ("next name", True)],
)
def test_a_last_batch_behind_a_gap_of_a_dense_log_needs_a_proof(
    tmp_path: Path, proof: str, kept: bool
) -> None:
    directory, last = tmp_path / "in" / "t-0", replace(BASE[0], first=1024)
    parts = [one.data for one in BASE[:3]]
    if proof == "own name":
        write_segment(directory, 0, *parts)
        write_segment(directory, 1024, last.data)
    else:
        write_segment(directory, 0, *parts, last.data)
    if proof == "index":
        entry = (1025).to_bytes(4, "big") + sum(SIZES[:3]).to_bytes(4, "big")
        (directory / f"{0:020d}.index").write_bytes(entry)
    if proof == "next name":
        write_segment(directory, 1026)
    partition, report = salvaged(tmp_path)
    assert (1024 in offsets(tmp_path)) is kept
    if not kept:
        assert not report.ok
        (one,) = partition.unprovable
        assert (one.reason, one.places) == ("offset-order", ((1024, 1025), (6, 7)))


def test_a_log_whose_end_is_gone_goes_on_behind_offsets_that_were_given(tmp_path: Path) -> None:
    directory = source(tmp_path)
    (directory / f"{12:020d}.log").unlink()
    (directory / f"{18:020d}.log").write_bytes(b"\xff" * 300)
    partition, _ = salvaged(tmp_path)
    assert partition.log_end_offset == 18
    assert [(one.first_offset, one.last_offset) for one in partition.lost] == [(12, 17), (18, None)]


@pytest.mark.parametrize("attributes", [0, GZIP, ZSTD])
@pytest.mark.parametrize("damaged", [False, True])
def test_sound_batches_that_no_client_can_read_are_listed(
    tmp_path: Path, attributes: int, damaged: bool
) -> None:
    directory = source(tmp_path)
    broken = batch(
        body=b"neither records nor gzip",
        attributes=attributes,
        count=2,
        base_offset=24,
        last_offset_delta=1,
    )
    last = max(directory.glob("*.log"))
    position = last.stat().st_size
    last.write_bytes(last.read_bytes() + broken)
    if damaged:
        overwrite(directory, 4, 70, b"\xff")
    partition, report = salvaged_without_check(tmp_path)
    (one,) = partition.undecodable
    assert (one.first_offset, one.last_offset, one.position) == (24, 25, position)
    assert (report.ok, partition.ok, bool(partition.lost)) == (False, False, damaged)
    assert partition.log_end_offset == 26
    assert max((tmp_path / "out" / "t-0").glob("*.log")).read_bytes() == last.read_bytes()


def test_a_compacted_log_begins_where_it_did_with_its_epochs(tmp_path: Path) -> None:
    directory = source(tmp_path)
    (directory / f"{0:020d}.log").write_bytes(b"")
    (directory / "leader-epoch-checkpoint").write_text("0\n2\n0 0\n1 30\n")
    partition, report = salvaged(tmp_path)
    assert report.ok
    assert (partition.log_start_offset, partition.log_end_offset) == (0, 24)
    out = tmp_path / "out" / "t-0"
    logs = [(each.name, each.stat().st_size > 0) for each in sorted(out.glob("*.log"))]
    assert logs == [(f"{base:020d}.log", base > 0) for base in (0, 6, 12, 18)]
    assert (out / "leader-epoch-checkpoint").read_text() == "0\n1\n0 0\n"


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
    plan = plan_salvage(tmp_path / "in", out=tmp_path / "out", threads=2)
    assert [one.name for one in plan.partitions] == ["t-0", "u-1"]
    assert plan.left_alone == (str(tmp_path / "in" / "__cluster_metadata-0"),)
    chosen = plan_salvage(tmp_path / "in", out=tmp_path / "out", chosen=lambda t, _: t == "u")
    assert [one.name for one in chosen.partitions] == ["u-1"]
    assert repr(plan).startswith(f"SalvagePlan({tmp_path / 'out'}: 2 partitions, ")
    assert isinstance(plan, SalvagePlan)


@pytest.mark.parametrize(
    ("given", "error", "why"),
    [
        (["a", "b"], ValueError, "the same partition: 'kseg merge'"),
        (["a/x"], NotALogError, "its name is not"),
        ([f"a/t-0/{0:020d}.log"], NotALogError, "a file"),
        ([], ValueError, "name a directory"),
    ],
)
def test_what_makes_no_new_log_is_refused(
    tmp_path: Path, given: list[str], error: type[Exception], why: str
) -> None:
    for name in ("a/t-0", "b/t-0", "a/x"):
        write_copy(tmp_path / name, BASE)
    with pytest.raises(error, match=why):
        plan_salvage(*(tmp_path / each for each in given), out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


# ---- the log of KRaft --------------------------------------------------------------------------

NAME = "__cluster_metadata-0"


def damaged_metadata(home: Path) -> Path:
    """Batches of two offsets, three in a segment; that of offsets 8 and 9 is damaged."""
    directory = write_copy(home / NAME, BASE[:9])
    path = directory / f"{6:020d}.log"
    data = bytearray(path.read_bytes())
    data[len(BASE[3].data) + 70] ^= 1
    path.write_bytes(data)
    (directory / "quorum-state").write_text("{}")
    return directory


def snapshot(directory: Path, end: int, *, whole: bool = True) -> Path:
    parts = [control_batch(ControlType.SNAPSHOT_HEADER, base_offset=0)]
    parts += [control_batch(ControlType.SNAPSHOT_FOOTER, base_offset=1)] if whole else []
    path = directory / f"{end:020d}-{0:010d}.checkpoint"
    path.write_bytes(b"".join(parts))
    return path


def salvaged_metadata(directory: Path, out: Path) -> SalvagePlan:
    plan = plan_salvage(directory, out=out)
    plan.apply()
    return plan


def test_what_stands_behind_the_first_gap_is_listed_and_not_kept(tmp_path: Path) -> None:
    directory = damaged_metadata(tmp_path / "in")
    plan = salvaged_metadata(directory, tmp_path / "out")
    (partition,) = plan.partitions
    assert (partition.log_end_offset, plan.ok) == (8, False)
    behind = [one for one in partition.unprovable if one.reason == "behind-gap"]
    assert [(one.first_offset, one.last_offset) for one in behind] == [(10, 11), (12, 17)]
    assert (tmp_path / "out" / NAME / "quorum-state").read_text() == "{}"
    logs = sorted(path.name for path in (tmp_path / "out" / NAME).glob("*.log"))
    assert logs == [f"{0:020d}.log", f"{6:020d}.log"]


@pytest.mark.parametrize(("end", "whole", "kept"), [(10, True, 18), (10, False, 8), (8, True, 8)])
def test_a_sound_snapshot_that_covers_the_gap_lets_it_go_on(
    tmp_path: Path, end: int, whole: bool, kept: int
) -> None:
    directory = damaged_metadata(tmp_path / "in")
    path = snapshot(directory, end, whole=whole)
    plan = salvaged_metadata(directory, tmp_path / "out")
    assert plan.partitions[0].log_end_offset == kept
    assert (tmp_path / "out" / NAME / path.name).exists() is whole


# ---- time ----------------------------------------------------------------------------------------

FEW, MANY = 60, 360
#: Searches in sorted lists grow a little faster than the runs.
_SLACK = 1.1


def lines_of(work: Callable[[], object]) -> int:
    """How many lines of kseg's rooms of logs run."""
    count = 0

    def in_frame(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal count
        count += event == "line"
        return in_frame

    def entered(frame: FrameType, event: str, argument: Any) -> Any:
        return in_frame if "/kseg/log/salvage/" in frame.f_code.co_filename else None

    with traced(entered):
        work()
    return count


def sound(number: int) -> bytes:
    return batch([record(b"v")], base_offset=2 * number)


def damaged(number: int) -> bytes:
    data = bytearray(batch([record(b"v")], base_offset=2 * number + 1))
    data[65] ^= 1
    return bytes(data)


def too_long(number: int) -> bytes:
    """A damaged batch whose length leads to nothing."""
    data = bytearray(damaged(number))
    struct.pack_into(">i", data, 8, 100)
    return bytes(data)


#: What makes a run end, by the number of the run.
CRAFTED: dict[str, Callable[[int, int], bytes]] = {
    "damaged batches": lambda at, _: sound(at) + damaged(at),
    "wrong lengths": lambda at, _: sound(at) + too_long(at),
    "noise": lambda at, _: sound(at) + b"\xff" * 5,
    "zeros": lambda at, _: sound(at) + bytes(40),
    "offsets that fall": lambda at, count: sound(count - at),
    "each batch twice": lambda at, _: sound(at) + b"\xff" + sound(at),
    "offsets of each other": lambda at, count: sound(at ^ 1) + damaged(count + at),
}


@pytest.mark.parametrize("crafted", CRAFTED)
@pytest.mark.parametrize("indexed", [True, False])
def test_the_work_grows_with_the_runs(tmp_path: Path, crafted: str, indexed: bool) -> None:
    counts = []
    for count in (FEW, MANY):
        parts = [CRAFTED[crafted](at, count) for at in range(count)]
        directory = tmp_path / f"{count}" / "t-0"
        write_segment(directory, 0, *parts)
        if indexed:
            position, entries = 0, []
            for at, part in enumerate(parts):
                entries.append(struct.pack(">ii", 2 * at, position))
                position += len(part)
            (directory / f"{0:020d}.index").write_bytes(b"".join(entries[1:]))
        counts.append(lines_of(lambda: plan_salvage(directory, out=tmp_path / "out")))  # noqa: B023
    few, many = counts
    assert many <= few * (MANY / FEW) * _SLACK, (few / FEW, many / MANY)
