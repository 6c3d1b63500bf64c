"""Sound batches behind damage: what counts, in which order, and what it costs."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from dataclasses import astuple

import pytest

from kseg.format import search
from kseg.format.search import SoundRun, find_sound_batches
from tests import reference
from tests.builders import GZIP, NONE, batch, record, records_of, wrapper

BATCHES = [batch([record(bytes([at]) * 30)] * 2, base_offset=10 + 2 * at) for at in range(6)]


def runs(data: bytes, **bounds: int) -> list[tuple[int, int, int | None, int, int]]:
    """Position, end, first and last offset, batches of each run."""
    return [
        (run.position, run.end, run.first_offset, run.last_offset, run.batches)
        for run in find_sound_batches(data, **bounds)
    ]


def told(data: bytes, start: int = 0, **bounds: int) -> list[tuple[object, ...]]:
    """All that is found, once the whole search and the slow one agree."""
    found = [astuple(run) for run in find_sound_batches(data, start, **bounds)]
    slow = []
    for run in reference.sound_behind(data, start, **bounds):
        first, counts = run[0], [one.record_count for one in run]
        base = None if first.base_offset < 0 else first.base_offset
        slow.append(
            (
                first.position,
                run[-1].position + run[-1].size,
                base,
                first.last_offset if base is None else base,
                run[-1].last_offset,
                len(run),
                None if min(counts) < 0 else sum(counts),
            )
        )
    assert found == slow
    return found


def test_what_lies_in_a_damaged_record_is_its_own_where_its_length_leads_on() -> None:
    inner = batch([record(b"inner")], base_offset=11)
    outer = bytearray(batch([record(inner)], base_offset=10))
    outer[-1] ^= 1
    data = bytes(outer) + BATCHES[1]
    assert runs(data) == [(len(outer), len(data), 12, 13, 1)]
    outer[8:12] = (2**30).to_bytes(4, "big")  # nothing says how long it is now
    assert [first for _, _, first, _, _ in runs(bytes(outer) + BATCHES[1])] == [11, 12]


def test_of_runs_that_contradict_each_other_the_longer_one_stays() -> None:
    astray = batch([record(b"x")], base_offset=1000)
    assert [run[2] for run in runs(b"." + astray + b"." + b"".join(BATCHES))] == [10]
    assert [run[2] for run in runs(b"." + b"".join(BATCHES) + b"." + BATCHES[2])] == [10]


@pytest.mark.parametrize("seed", range(40))
def test_it_finds_what_trying_every_position_finds(seed: int) -> None:
    rng = random.Random(seed)
    parts: list[bytes] = []
    for at in range(rng.randrange(1, 12)):
        magic, codec = rng.choice([(0, NONE), (1, NONE), (1, GZIP), (2, NONE), (2, GZIP)])
        base = 3 * at if rng.random() < 0.9 else rng.randrange(40)
        values = [record(rng.randbytes(rng.randrange(40))) for _ in range(rng.randrange(1, 4))]
        part = bytearray(records_of(values, magic=magic, codec=codec, base_offset=base))
        if rng.random() < 0.3:
            part[rng.randrange(len(part))] ^= 1 << rng.randrange(8)
        if rng.random() < 0.1:
            part = part[: rng.randrange(len(part))]
        parts.append(bytes(part))
    data = b"".join(parts)
    told(data, rng.randrange(3), first_offset=rng.choice([0, 2]), last_offset=rng.choice([9, 99]))


@pytest.mark.parametrize("every", [False, True])
@pytest.mark.parametrize("window", [1 << 12, 1 << 14])
def test_windows_change_nothing(window: int, every: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(window)
    parts = []
    for at in range(60):
        size = rng.choice([10, 500, 3000, 9000])
        parts.append(batch([record(rng.randbytes(size))], base_offset=at))
        if rng.random() < 0.3:
            parts.append(rng.randbytes(rng.randrange(50)))
    data = b"".join(parts)
    whole = list(find_sound_batches(data, every=every))
    assert sum(run.batches for run in whole) == 60
    monkeypatch.setattr(search, "WINDOW_BYTES", window)
    monkeypatch.setattr(search, "_SUMMED_BYTES", window)
    reads: list[int] = []

    def read(position: int, size: int) -> bytes:
        reads.append(size)
        return data[position : position + size]

    assert list(find_sound_batches(read, 0, len(data), every=every)) == whole
    assert max(reads) <= window


def heads(size: int) -> bytes:
    """Batches of magic 2 without records, one a header, each of which claims `size` bytes."""
    head = struct.pack(">qiibIhiqqqhii", 5, size - 12, 0, 2, 7, 0, 0, 0, 0, -1, -1, -1, 1)
    return head * ((1 << 20) // len(head))


HOSTILE: dict[str, Callable[[], bytes]] = {
    "heads that claim each other": lambda: heads(1 << 19),
    "heads too large for a window": lambda: heads(100_000),
    "bytes 0, 1 and 2": lambda: bytes(random.Random(1).choices(range(3), k=1 << 20)),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_checksums_of_hostile_bytes_take_linear_time(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counted where it can be: by the bytes that are asked for, not by a clock."""
    data = HOSTILE[name]()
    monkeypatch.setattr(search, "WINDOW_BYTES", 1 << 16)
    asked = 0

    def read(position: int, size: int) -> bytes:
        nonlocal asked
        asked += size
        return data[position : position + size]

    assert list(find_sound_batches(read, 0, len(data))) == []
    assert asked <= 8 * len(data)


def test_a_batch_longer_than_a_window_is_found_and_gone_on_from(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(search, "WINDOW_BYTES", 1 << 12)
    large = batch([record(bytes(20_000))], base_offset=3)
    data = b"..." + large + BATCHES[0] + wrapper([record(b"a")], magic=1, codec=GZIP, offset=40)
    (run,) = find_sound_batches(data)
    assert run == SoundRun(3, len(data), 3, 3, 40, 3, None)


@pytest.mark.parametrize("kept", range(0, 130, 7))
def test_too_few_bytes_are_no_batch_and_no_fault(kept: int) -> None:
    told(BATCHES[0][:kept])
    told(BATCHES[0] + BATCHES[1][:kept])


def test_bounds_that_cannot_be_are_refused() -> None:
    with pytest.raises(ValueError, match="stop"):
        list(find_sound_batches(lambda _position, size: bytes(size)))
    with pytest.raises(ValueError, match="start"):
        list(find_sound_batches(b"", -1))


def test_the_search_for_every_batch_reads_a_sound_log_little_more_than_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    data = b"".join(batch([record(bytes(900))], base_offset=at) for at in range(200))
    monkeypatch.setattr(search, "WINDOW_BYTES", 1 << 14)
    reads: list[int] = []

    def read(position: int, size: int) -> bytes:
        reads.append(size)
        return data[position : position + size]

    (run,) = find_sound_batches(read, 0, len(data), every=True)
    assert run.batches == 200
    assert sum(reads) < 1.2 * len(data)


def test_every_batch_is_given_also_those_that_contradict_others_or_lie_in_damaged_ones() -> None:
    inner = batch([record(b"inner")], base_offset=3)
    outer = bytearray(batch([record(inner)], base_offset=20))
    outer[-1] ^= 1
    data = BATCHES[3] + BATCHES[0] + bytes(outer) + batch([record(b"v")], base_offset=30)
    found = [run.order for run in find_sound_batches(data, every=True)]
    assert found == [16, 10, 3, 30]
    assert [run.order for run in find_sound_batches(data)] != found
