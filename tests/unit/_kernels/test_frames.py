"""The kernels in front of a codec: places outside the bytes are answered, never read."""

from __future__ import annotations

import random

import pytest

from kseg._kernels import frames as _frames
from tests import reference_codecs
from tests.zstd import zstd_frame

LZ4 = bytes.fromhex("04224d18 60 40 82")
LZ4_NO_END, SNAPPY_END, ZSTD_CUT = 3, 1, 1
CONTENT = b"not much " * 20


@pytest.mark.parametrize("position", [-(2**63), -1, 4, 7, 8, 2**63 - 1])
def test_no_lz4_block_begins_where_four_bytes_are_not_left(position: int) -> None:
    assert _frames.lz4_blocks(LZ4, position, True)[0] == LZ4_NO_END


@pytest.mark.parametrize("position", [-(2**63), -1, 17, 20, 2**63 - 1])
def test_no_snappy_chunk_begins_where_four_bytes_are_not_left(position: int) -> None:
    stream = b"\x82SNAPPY\x00" + bytes(12)
    assert _frames.snappy_chunks(stream, position)[0] == SNAPPY_END


@pytest.mark.parametrize("size", [b"\x80" * 5 + b"\x00", b"\xff\xff\xff\xff\x1f", b"\x80", b""])
def test_an_unusual_snappy_size_is_left_to_the_library(size: bytes) -> None:
    stream = b"\x82SNAPPY\x00" + bytes(8) + len(size).to_bytes(4, "big") + size
    *_, chunks = _frames.snappy_chunks(stream, 16)
    assert chunks == [(20, 20 + len(size), -1)]


def test_blocks_and_chunks_are_listed_a_few_hundred_at_a_time() -> None:
    frame = LZ4 + (b"\1\0\0\x80" + b"a") * 600 + bytes(4)
    stream = b"\x82SNAPPY\x00" + bytes(8) + (b"\0\0\0\3" + b"\1\0a") * 600
    for listing, data, first, step in (
        (lambda at: _frames.lz4_blocks(frame, at, True), frame, 7, 5),
        (lambda at: _frames.snappy_chunks(stream, at), stream, 16, 7),
    ):
        position, found = 0, []
        for expected in (256, 256, 600 - 512):
            status, _, _, position, some = listing(position)
            assert len(some) == expected
            found += some
        assert status > 0
        assert [start for start, *_ in found] == [first + 4 + step * i for i in range(600)]
        assert found[-1][1] == len(data) - (4 if data is frame else 0)


@pytest.mark.parametrize("size", [0, 3, 4, 15, 16, 17, 31, 32, 47, 1000, 65_536])
def test_xxh32_is_that_of_the_reference(size: int) -> None:
    data = random.Random(size).randbytes(size)
    assert _frames.xxh32(data) == reference_codecs.xxh32(data)


@pytest.mark.parametrize("size", [0, 1, 255, 256, 257, 3000, 65_791, 65_792, 1 << 17])
def test_a_zstd_frame_asks_for_a_window_of_the_size_that_it_states(size: int) -> None:
    """Sizes of each width that a frame can state; one of two bytes counts from 256."""
    assert _frames.zstd_extent(zstd_frame(bytes(size), sized=True)) == (0, 0, size)


def test_a_zstd_frame_is_cut_wherever_it_ends_early() -> None:
    frame = zstd_frame(CONTENT)
    for end in range(6, len(frame)):
        status, position, _ = _frames.zstd_extent(frame * 2 + frame[:end])
        assert (status, position) == (ZSTD_CUT, 2 * len(frame))
