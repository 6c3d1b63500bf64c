"""Bits of base offsets and leader epochs, which no checksum covers: each one flipped alone.

Seven batches in two segments, of the epochs 0 and 1. With a bit of an offset, no record is at
another offset. With a bit of an epoch, no batch has another epoch than it says. Exit 0 is right
only where nothing beside the log contradicts the bit: in `UNTOLD`, without a checkpoint of epochs.
"""

from __future__ import annotations

import struct
from itertools import product
from pathlib import Path

import pytest

from kseg import plan_salvage
from tests import reference
from tests.builders import batch, record
from tests.shares import share

#: First offset, records, leader epoch.
SEGMENTS = (((0, 1, 0), (1, 2, 0), (3, 1, 0), (4, 3, 1)), ((7, 1, 1), (8, 2, 1), (10, 1, 1)))
BATCHES = [(number, at) for number, of in enumerate(SEGMENTS) for at in range(len(of))]
FIELDS = [("offset", bit) for bit in range(64)] + [("epoch", bit) for bit in range(32)]
#: Epochs that fit as well: the last batch's own, but for a negative one and a lower one, and those
#: by which a leader begins one batch earlier or later.
UNTOLD = {((1, 2), bit) for bit in range(1, 31)} | {((0, 2), 31), ((0, 3), 31)}


def data_of(first: int, count: int, epoch: int) -> bytes:
    given = [record(b"v%d" % at, offset=at) for at in range(first, first + count)]
    return batch(given, base_offset=first, leader_epoch=epoch)


def write(directory: Path, *, indexed: bool, epochs: bool) -> None:
    directory.mkdir(parents=True)
    for of in SEGMENTS:
        base, position, entries, data = of[0][0], 0, [], b""
        for first, count, epoch in of:
            entries.append(struct.pack(">ii", first + count - 1 - base, position))
            data += data_of(first, count, epoch)
            position = len(data)
        (directory / f"{base:020d}.log").write_bytes(data)
        if indexed:
            (directory / f"{base:020d}.index").write_bytes(b"".join(entries[1:]))
    if epochs:
        (directory / "leader-epoch-checkpoint").write_text("0\n2\n0 0\n1 4\n")


def flip(directory: Path, number: int, at: int, field: str, bit: int) -> None:
    path = directory / f"{SEGMENTS[number][0][0]:020d}.log"
    data = bytearray(path.read_bytes())
    start = sum(len(data_of(*one)) for one in SEGMENTS[number][:at])
    data[start + (0 if field == "offset" else 12) + bit // 8] ^= 0x80 >> bit % 8
    path.write_bytes(data)


@pytest.mark.parametrize("epochs", [False, True], ids=["alone", "checkpoint"])
@pytest.mark.parametrize("indexed", [False, True], ids=["", "indexed"])
@pytest.mark.parametrize("place", share(BATCHES, 1, "bits"))
def test_a_flipped_bit_moves_no_record_and_changes_no_epoch(
    tmp_path: Path, place: tuple[int, int], indexed: bool, epochs: bool
) -> None:
    honest = {one[0]: data_of(*one) for of in SEGMENTS for one in of}
    for field, bit in FIELDS:
        home = tmp_path / f"{field}-{bit}"
        write(home / "t-0", indexed=indexed, epochs=epochs)
        flip(home / "t-0", *place, field, bit)
        plan = plan_salvage(home / "t-0", out=home / "out")
        kept = {
            one.base_offset: bytes(one.data)
            for segment in plan.partitions[0].target.segments
            for extent in segment.extents
            for one in reference.walk(
                Path(extent.path).read_bytes()[extent.position : extent.end]
            ).batches
        }
        untold = field == "epoch" and (place, bit) in UNTOLD and not epochs
        assert plan.ok is untold, (field, bit)
        for offset, data in kept.items():
            same = data == honest[offset]
            changed = untold and offset == SEGMENTS[place[0]][place[1]][0]
            assert same or changed, (field, bit, offset)
        assert len(kept) + (not untold) <= len(honest), (field, bit)


def test_all_bits_are_gone_through() -> None:
    assert len(list(product(BATCHES, FIELDS, (False, True)))) == 1_344
