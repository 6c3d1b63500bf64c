"""Ranged reads: the right bytes, in few and large requests, with a bounded number of them ahead."""

from __future__ import annotations

import threading
import time

import pytest

from kseg.errors import KsegError, UnreadableError
from kseg.stores.ranges import AHEAD_BYTES, BLOCK_BYTES, FIRST_BYTES, RangedFile

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


@pytest.mark.parametrize(("step", "back"), [(100_000, 61), (512 << 10, 0), (20 << 20, 61)])
@pytest.mark.parametrize("grain", [1, 300_000])
def test_a_walk_reads_every_byte_once_in_large_requests(step: int, back: int, grain: int) -> None:
    position = 0
    with Counting(DATA, grain) as file:
        while position + back < len(DATA):
            assert bytes(file.read(position, step)) == DATA[position : position + step]
            position += step - back
    assert sum(end - start for start, end in file.asked) == len(DATA)
    assert len(file.asked) < 25
    assert max(end - start for start, end in file.asked) <= max(step, BLOCK_BYTES) + grain


def test_a_look_at_one_place_asks_for_little() -> None:
    with Counting(DATA) as file:
        for position in (40_000_000, 1_000, 20_000_000):
            assert bytes(file.read(position, 100)) == DATA[position : position + 100]
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
            assert held <= AHEAD_BYTES + 2 * BLOCK_BYTES + 2 * (1 << 20)


def test_threads_that_read_side_by_side_share_the_requests() -> None:
    from concurrent.futures import ThreadPoolExecutor

    with Counting(DATA) as file, ThreadPoolExecutor(3) as pool:
        places = range(0, len(DATA), 4 << 20)
        parts = list(pool.map(lambda at: bytes(file.read(at, 4 << 20)), places))
    assert b"".join(parts) == DATA
    assert sum(end - start for start, end in file.asked) < 1.5 * len(DATA)


@pytest.mark.parametrize(("lag", "grain"), [(3 << 20, 1), (12 << 20, 3 << 20), (20 << 20, 1)])
def test_what_a_slower_reader_needs_is_asked_for_again_once(lag: int, grain: int) -> None:
    step = 1 << 20
    with Counting(DATA, grain) as file:
        for position in range(0, len(DATA) + lag, step):
            file.read(min(position, len(DATA)), step)
            behind = position - lag
            if behind >= 0:
                assert bytes(file.read(behind, step)) == DATA[behind : behind + step]
    again = sum(end - start for start, end in file.asked) - len(DATA)
    assert 0 < again <= lag + grain


def test_a_walk_that_nobody_reads_on_is_given_up() -> None:
    with Counting(DATA) as file:
        for _pass in range(3):
            for position in range(0, len(DATA), 1 << 20):
                file.read(position, 1 << 20)
        assert len(file._walks) == 1


def test_a_reader_whose_walk_is_given_up_reads_on() -> None:
    """Three threads, each at its own place: more than a file has walks."""
    from concurrent.futures import ThreadPoolExecutor

    class Slow(Counting):
        def _fetch(self, start: int, end: int) -> tuple[memoryview, KsegError | None]:
            time.sleep(0.005)  # blocks wait for a thread when their walk is given up
            return super()._fetch(start, end)

    def walk(start: int) -> bool:
        places = range(start, start + (10 << 20), 1 << 20)
        return all(bytes(file.read(at, 3 << 20)) == DATA[at : at + (3 << 20)] for at in places)

    with Slow(DATA) as file, ThreadPoolExecutor(3) as pool:
        assert all(pool.map(walk, (0, 20 << 20, 45 << 20) * 2))


def test_a_bad_chunk_hides_no_byte_around_it() -> None:
    with Counting(DATA, 100_000, bad=450_000) as file:
        with pytest.raises(UnreadableError) as caught:
            file.read(0, 1_000_000)
        assert (caught.value.position, caught.value.end) == (400_000, 500_000)
        assert bytes(file.read(0, 400_000)) == DATA[:400_000]
        assert bytes(file.read(500_000, 9_000_000)) == DATA[500_000:9_500_000]


def test_a_closed_file_and_a_negative_place_are_refused() -> None:
    file = Counting(DATA[:1000])
    assert bytes(file.read(990, 100)) == DATA[990:1000]
    assert file.read(1000, 1) == b""
    with pytest.raises(ValueError, match="negative"):
        file.read(-1, 1)
    file.close()
    assert file.closed
    with pytest.raises(ValueError, match="closed"):
        file.read(0, 1)


@pytest.mark.parametrize("grain", [1, 4 << 20])
def test_nothing_is_asked_for_ahead_of_where_the_reader_will_stop(grain: int) -> None:
    """A task of Spark reads a part of a segment; the last batch goes on behind it."""
    with Counting(DATA, grain) as file:
        file.wanted_end = 30_000_000
        for position in range(10_000_000, 30_000_000, 1 << 20):
            assert bytes(file.read(position, 1 << 20)) == DATA[position : position + (1 << 20)]
        assert bytes(file.read(30_000_000, 100)) == DATA[30_000_000:30_000_100]
    asked = sum(end - start for start, end in file.asked)
    assert asked <= 20_000_000 + (1 << 20) + FIRST_BYTES + 2 * grain


def test_a_look_into_a_large_chunk_asks_for_no_other() -> None:
    with Counting(DATA, 4 << 20) as file:
        for position in (50_000_000, 11_000_000):
            for at in (position, position + 61):
                assert bytes(file.read(at, 100)) == DATA[at : at + 100]
    assert len(file.asked) == 2
