"""Codecs: limits and bombs, the arena, hostile bytes, threads and forks."""

from __future__ import annotations

import contextlib
import random
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import lz4.block
import lz4.frame
import pytest

from kseg.errors import (
    DecompressionError,
    KsegError,
    LimitExceededError,
)
from kseg.format._lz4_frame import header_checksum, xxh32_short
from kseg.format.arena import Arena
from kseg.format.codec import decompress_into
from tests.unit.codec_streams import (
    CODECS,
    END,
    GZIP,
    LIMIT,
    LZ4,
    MAKERS,
    SNAPPY,
    TEXT,
    XERIAL,
    ZSTD,
    chunk,
    gzip_of,
    inflate,
    lz4_block,
    lz4_header,
    zstd_of,
    zstd_sized,
)

pytestmark = pytest.mark.usefixtures("codec_way")

ROOT = Path(__file__).parents[2]


# Bounds.


@pytest.mark.parametrize("codec", CODECS)
def test_the_limit_is_exact(codec: str) -> None:
    for data in (TEXT, TEXT * 100):
        packed = MAKERS[codec](data)
        assert inflate(CODECS[codec], packed, limit=len(data)) == data
        with pytest.raises(LimitExceededError):
            inflate(CODECS[codec], packed, limit=len(data) - 1)


def test_the_limit_holds_for_sized_and_concatenated_zstd_frames() -> None:
    for packed in (zstd_sized(TEXT * 100), zstd_of(TEXT * 50) + zstd_sized(TEXT * 50)):
        assert inflate(ZSTD, packed, limit=len(TEXT) * 100) == TEXT * 100
        with pytest.raises(LimitExceededError):
            inflate(ZSTD, packed, limit=len(TEXT) * 100 - 1)


BOMB = """
    import resource, struct, sys, zlib
    import lz4.block, cramjam, zstandard
    from kseg.errors import KsegError
    from kseg.format.codec import decompress
    from tests.unit.codec_streams import XERIAL, lz4_header, END, gzip_of, zstd_of

    MIB = 1 << 20
    name, codec = sys.argv[1], int(sys.argv[2])
    if name == "gzip":
        bomb = gzip_of(bytes(256 * MIB))
    elif name == "snappy":
        block = bytes(cramjam.snappy.compress_raw(bytes(64 * MIB)))
        bomb = XERIAL + struct.pack(">i", len(block)) + block
    elif name == "snappy-lie":
        bomb = XERIAL + struct.pack(">i", 50) + b"\\xff\\xff\\xff\\xff\\x0f" + bytes(45)
    elif name == "lz4":
        block = lz4.block.compress(bytes(4 * MIB), store_size=False)
        bomb = lz4_header(block_byte=0x70) + (struct.pack("<I", len(block)) + block) * 64 + END
    elif name == "zstd":
        bomb = zstd_of(bytes(256 * MIB))
    elif name == "zstd-sized":
        bomb = zstandard.ZstdCompressor().compress(bytes(256 * MIB))
    elif name == "zstd-lie":
        bomb = bytes.fromhex("28b52ffda0") + struct.pack("<I", 100 * MIB) + b"\\x19\\0\\0abc"
    elif name == "zstd-window":
        bomb = bytes.fromhex("28b52ffd0088") + b"\\x19\\0\\0abc"
    # The peak so far is that of making the bomb: from here on memory itself is what is bounded.
    with open("/proc/self/statm") as statm:
        pages = int(statm.read().split()[0])
    ceiling = pages * resource.getpagesize() + {room} * MIB
    resource.setrlimit(resource.RLIMIT_AS, (ceiling, ceiling))
    try:
        decompress(codec, bomb, magic=2, limit=4 * MIB)
        print("ok")
    except KsegError as error:
        print(type(error).__name__)
"""
BOMBS = {
    "gzip": (GZIP, "LimitExceededError"),
    "snappy": (SNAPPY, "LimitExceededError"),
    "snappy-lie": (SNAPPY, "DecompressionError"),
    "lz4": (LZ4, "LimitExceededError"),
    "zstd": (ZSTD, "LimitExceededError"),
    "zstd-sized": (ZSTD, "LimitExceededError"),
    "zstd-lie": (ZSTD, "DecompressionError"),
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_meets_the_limit_before_it_takes_memory(name: str) -> None:
    codec, expected = BOMBS[name]
    program = textwrap.dedent(BOMB).replace("{room}", "40")
    result = subprocess.run(
        [sys.executable, "-c", program, name, str(codec)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert result.stdout.strip() == expected, result.stderr


def test_many_tiny_members_and_blocks_take_linear_time() -> None:
    one = gzip_of(b"")
    assert inflate(GZIP, one * 2000) == b""
    assert inflate(LZ4, lz4_header() + lz4_block(b"a", stored=True) * 2000 + END) == b"a" * 2000
    assert inflate(SNAPPY, XERIAL + chunk(b"a") * 2000) == b"a" * 2000


# The arena.


def test_batches_go_into_one_arena_one_after_another() -> None:
    arena = Arena()
    sizes = [
        decompress_into(codec, MAKERS[name](TEXT + name.encode()), arena, magic=2, limit=LIMIT)
        for name, codec in CODECS.items()
    ]
    assert sizes == [len(TEXT) + len(name) for name in CODECS]
    assert bytes(arena.view()) == b"".join(TEXT + name.encode() for name in CODECS)
    assert arena.array().tobytes() == bytes(arena.view())
    assert not arena.array().flags.writeable
    assert arena.view().readonly


@pytest.mark.parametrize("codec", CODECS)
def test_an_error_leaves_the_arena_as_it_was(codec: str) -> None:
    arena = Arena()
    arena.append(b"before")
    data = MAKERS[codec](TEXT * 2000)[:-1]
    with pytest.raises(DecompressionError):
        decompress_into(CODECS[codec], data, arena, magic=2, limit=LIMIT)
    assert bytes(arena.view()) == b"before"


def test_a_view_survives_growth_and_clear_gives_large_memory_back() -> None:
    arena = Arena()
    arena.append(b"kept")
    view = arena.view()
    arena.reserve(100 << 20)
    assert bytes(view) == bytes(arena.view()) == b"kept"
    arena.clear()
    assert (arena.used, arena.capacity) == (0, 0)
    arena.append(b"again")
    capacity = arena.capacity
    arena.clear()
    assert arena.capacity == capacity


def test_the_ceiling_of_the_arena_outlives_the_limit_of_a_call() -> None:
    arena = Arena()
    arena.ceiling = 10
    assert decompress_into(GZIP, gzip_of(b"12345"), arena, magic=2, limit=LIMIT) == 5
    with pytest.raises(LimitExceededError):
        decompress_into(GZIP, gzip_of(b"123456"), arena, magic=2, limit=LIMIT)
    assert (arena.used, arena.ceiling) == (5, 10)


# Hostile bytes.


@pytest.mark.parametrize("codec", CODECS)
def test_changed_bytes_give_an_answer_or_a_typed_error(codec: str) -> None:
    dice = random.Random(f"codec {codec}")
    packed = MAKERS[codec](TEXT)
    for _ in range(1500):
        data = bytearray(packed)
        for _ in range(dice.randint(1, 4)):
            data[dice.randrange(len(data))] = dice.randrange(256)
        with contextlib.suppress(KsegError):
            assert len(inflate(CODECS[codec], bytes(data), limit=1 << 20)) <= 1 << 20


# Threads and processes.


def test_every_thread_has_its_own_decompressor() -> None:
    bodies = {codec: MAKERS[name](TEXT * 50) for name, codec in CODECS.items()}

    def work(number: int) -> bool:
        codec = 1 + number % 4
        return inflate(codec, bodies[codec]) == TEXT * 50

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(800)))


def test_a_forked_child_inflates_with_a_decompressor_of_its_own() -> None:
    packed = zstd_of(TEXT * 50)
    assert inflate(ZSTD, packed) == TEXT * 50
    program = """
        import os
        from kseg.format import _zstd_frame
        before = _zstd_frame._decompressor(0)
        child = os.fork()
        if child == 0:
            os._exit(int(_zstd_frame._decompressor(0) is before))
        assert before is _zstd_frame._decompressor(0)
        raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(program)], check=True, timeout=60)


# xxHash32 of what is shorter than its lanes. Source: xxHash's own sanity values, lz4 frame headers.


@pytest.mark.parametrize(
    ("data", "expected"),
    [(b"", 0x02CC5D05), (b"a", 0x550D7456), (b"abc", 0x32D153FF), (b"abcd", 0xA3643705)],
)
def test_xxh32_of_short_input(data: bytes, expected: int) -> None:
    assert xxh32_short(data) == expected


@pytest.mark.parametrize("size", [None, 0, 1, 2**40])
def test_header_checksums_are_those_of_the_lz4_library(size: int | None) -> None:
    kwargs = {} if size is None else {"source_size": size}
    context = lz4.frame.create_compression_context()
    header = lz4.frame.compress_begin(context, block_linked=False, **kwargs)
    assert header[-1] == header_checksum(header[4:-1])
