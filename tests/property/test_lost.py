"""What verify says is lost, for damage at every byte of a header, against the slow search."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from kseg.analysis.verify import verify
from tests import reference
from tests.builders import GZIP, NONE, batch, record, records_of, write_segment

_HEADER_BYTES = {0: 26, 1: 34, 2: 61}
_CODES = {"torn-tail", "zero-tail", "batch-length", "batch-magic", "batch-crc"}


def a_log(rng: random.Random) -> list[bytes]:
    """Eight batches of any format, their offsets growing, some with holes between them."""
    parts, offset = [], 0
    for _ in range(8):
        magic, codec = rng.choice([(0, NONE), (1, NONE), (1, GZIP), (2, NONE), (2, GZIP)])
        # Plain messages are batches of their own: one each, so that parts are batches.
        count = 1 if (magic, codec) in ((0, NONE), (1, NONE)) else rng.randrange(1, 4)
        given = [record(rng.randbytes(rng.randrange(1, 60))) for _ in range(count)]
        parts.append(records_of(given, magic=magic, codec=codec, base_offset=offset))
        offset += count + rng.choice([0, 0, 2])
    return parts


def first_damage(data: bytes) -> tuple[int, int] | None:
    """Where a walk meets the first fault, and the offset behind what is sound in front of it."""
    walk, following = reference.walk(data), 0
    for found in walk.batches:
        if not found.crc_ok:
            return found.position, following
        following = max(following, found.last_offset + 1)
    return None if walk.stop == "end" else (walk.end_position, following)


@pytest.mark.parametrize("seed", range(4))
def test_damage_at_every_byte_of_a_header(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    parts = a_log(rng)
    number = rng.randrange(1, 6)
    start = sum(map(len, parts[:number]))
    whole = b"".join(parts)
    for at in range(start, start + _HEADER_BYTES[whole[start + 16]]):
        data = bytearray(whole)
        data[at] ^= rng.choice([1, 0x10, 0x80, 0xFF])
        path = write_segment(tmp_path / "t-0", 0, bytes(data))
        check(path, bytes(data), at)


def check(path: Path, data: bytes, at: int) -> None:
    """Findings and what is lost, of a log by itself."""
    report = verify(path)
    codes = {finding.code for finding in report.findings} & _CODES
    damage = first_damage(data)
    if damage is None:  # fields of the head that no checksum covers
        assert (codes, report.lost) == (set(), ()), at
        return
    position, following = damage
    assert codes, at
    behind = reference.sound_behind(data, position, following, 2**31 - 1)
    places = report.lost
    assert places[0].position == position, at
    assert places[0].first_offset == following, at
    assert places[0].sound_behind == sum(map(len, behind)), at
    # Every byte from the first damage on is in a place or in a sound run, and none in both.
    sound = sum(one.size for run in behind for one in run)
    assert sum(place.bytes for place in places) + sound == len(data) - position, at
    torn = "torn-tail" in codes
    assert not (torn and places[0].sound_behind), at
    if places[0].last_offset is not None:
        assert places[0].records is None or places[0].records <= (
            places[0].last_offset - following + 1
        ), at


@pytest.mark.parametrize("length", [2**31 - 1, 5000, 0, -1, 13, 49])
def test_a_damaged_length_in_the_middle_is_damage_and_never_torn(
    tmp_path: Path, length: int
) -> None:
    parts = [batch([record(b"x" * 20)] * 3, base_offset=3 * at) for at in range(20)]
    damaged = bytearray(parts[4])
    damaged[8:12] = length.to_bytes(4, "big", signed=True)
    parts[4] = bytes(damaged)
    report = verify(write_segment(tmp_path / "t-0", 0, *parts))
    assert not report.ok
    codes = {finding.code for finding in report.findings}
    assert codes <= {"batch-length", "batch-crc", "batch-magic"}
    (lost,) = report.lost
    assert (lost.first_offset, lost.last_offset, lost.records, lost.batches) == (12, 14, 3, 1)
    assert (lost.bytes, lost.sound_behind) == (len(damaged), 15)
