"""What a salvage of crafted files costs: counted in lines that run, so that no clock decides."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from kseg import plan_salvage
from tests.builders import batch, record, write_segment
from tests.tracing import traced

FEW, MANY = 100, 800
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
