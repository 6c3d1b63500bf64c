"""Ranged reads: the right bytes, in few and large requests, with a bounded number of them ahead."""

from __future__ import annotations

import threading

import pytest

from kseg.errors import KsegError, UnreadableError
from kseg.stores.ranges import AHEAD_BYTES, BEHIND_BYTES, BLOCK_BYTES, FIRST_BYTES, RangedFile

DATA = bytes(range(251)) * 260_000  # 65 MB


class Counting(RangedFile):
    """A file that notes what is asked of it."""

    __slots__ = ("asked", "bad", "data", "grain", "noting")

    def __init__(self, data: bytes, grain: int = 1, bad: int | None = None) -> None:
        super().__init__("s3://a/b", len(data))
        self.data, self.grain, self.bad = memoryview(data), grain, bad
        self.asked: list[tuple[int, int]] = []
        self.noting = threading.Lock()

    def _bounds(self, start: int, end: int) -> tuple[int, int]:
        return start // self.grain * self.grain, min(-(-end // self.grain) * self.grain, self.size)

    def _fetch(self, start: int, end: int) -> tuple[memoryview, KsegError | None]:
        with self.noting:
            self.asked.append((start, end))
        if self.bad is not None and start <= self.bad < end:
            first = self.bad // self.grain * self.grain
            fault = UnreadableError("a bad chunk", path=self.path, position=first)
            fault.end = first + self.grain
            return self.data[start:first], fault
        return self.data[start:end], None


@pytest.mark.parametrize("step", [100_000, 512 << 10, 20 << 20])
@pytest.mark.parametrize("back", [0, 61])
@pytest.mark.parametrize("grain", [1, 300_000])
def test_a_walk_reads_every_byte_once_in_large_requests(step: int, back: int, grain: int) -> None:
    position = 0
    with Counting(DATA, grain) as file:
        while position + back < len(DATA):
            assert file.read(position, step) == DATA[position : position + step]
            position += step - back
    assert sum(end - start for start, end in file.asked) == len(DATA)
    assert len(file.asked) < 25
    assert max(end - start for start, end in file.asked) <= max(step, BLOCK_BYTES) + grain


def test_a_look_at_one_place_asks_for_little() -> None:
    with Counting(DATA) as file:
        for position in (40_000_000, 1_000, 20_000_000):
            assert file.read(position, 100) == DATA[position : position + 100]
    assert [end - start for start, end in file.asked] == [FIRST_BYTES] * 3


def test_what_is_asked_for_ahead_is_bounded() -> None:
    with Counting(DATA) as file:
        for position in range(0, len(DATA), 512 << 10):
            file.read(position, 512 << 10)
            ahead = max(end for _start, end in file.asked) - position
            assert ahead <= min(5 * position + 2 * FIRST_BYTES, AHEAD_BYTES + BLOCK_BYTES) + (
                1 << 20
            )
            held = sum(len(block.data.result()[0]) for walk in file._walks for block in walk.blocks)
            assert held <= AHEAD_BYTES + BEHIND_BYTES + 2 * BLOCK_BYTES


def test_threads_that_read_side_by_side_share_the_requests() -> None:
    from concurrent.futures import ThreadPoolExecutor

    with Counting(DATA) as file, ThreadPoolExecutor(3) as pool:
        places = range(0, len(DATA), 4 << 20)
        parts = list(pool.map(lambda at: bytes(file.read(at, 4 << 20)), places))
    assert b"".join(parts) == DATA
    assert sum(end - start for start, end in file.asked) < 1.5 * len(DATA)


def test_a_bad_chunk_hides_no_byte_around_it() -> None:
    with Counting(DATA, 100_000, bad=450_000) as file:
        with pytest.raises(UnreadableError) as caught:
            file.read(0, 1_000_000)
        assert (caught.value.position, caught.value.end) == (400_000, 500_000)
        assert file.read(0, 400_000) == DATA[:400_000]
        assert file.read(500_000, 9_000_000) == DATA[500_000:9_500_000]


def test_a_closed_file_and_a_negative_place_are_refused() -> None:
    file = Counting(DATA[:1000])
    assert file.read(990, 100) == DATA[990:1000]
    assert file.read(1000, 1) == b""
    with pytest.raises(ValueError, match="negative"):
        file.read(-1, 1)
    file.close()
    assert file.closed
    with pytest.raises(ValueError, match="closed"):
        file.read(0, 1)
