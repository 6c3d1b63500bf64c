"""A salvage: what OUT has, what lies beside it, and what is told."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import kseg
from kseg import plan_salvage
from kseg.log.salvage import SalvagedPartition
from kseg.reports import SalvageReport
from tests.bad_sectors import bad_sectors
from tests.builders import batch, record, write_segment
from tests.tracing import traced
from tests.unit.analysis.copied import told, write_copy

BASE = told(12)
#: Each has 90 bytes or fewer, so three of them make a segment.
SIZES = [len(one.data) for one in BASE]


def source(tmp_path: Path) -> Path:
    return write_copy(tmp_path / "in" / "t-0", BASE, topic_id=7)


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


def test_bytes_that_the_disk_does_not_give_are_lost(tmp_path: Path) -> None:
    directory = source(tmp_path)
    with bad_sectors(directory / f"{6:020d}.log", (SIZES[3] + 5, SIZES[3] + 20)):
        partition, _ = salvaged(tmp_path)
    assert "unreadable" in [one.reason for one in partition.unprovable]
    assert [(one.first_offset, one.last_offset) for one in partition.lost] == [(6, 11)]


# ---- time ----------------------------------------------------------------------------------------

FEW, MANY = 40, 200
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
