"""Codecs: the rules of Kafka's readers, each with what it accepts and what it refuses."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
import textwrap
import zlib
from itertools import cycle, product
from pathlib import Path
from types import ModuleType

import lz4.block
import lz4.frame
import pytest
from isal import isal_zlib

from kseg.errors import (
    DecompressionError,
    LimitExceededError,
    UnsupportedFormatError,
)
from kseg.format import codec as codec_module
from kseg.format.codec import (
    Arena,
    decompress,
    decompress_into,
    xxh32,
    zstd_library,
)
from tests.shares import WHOLE
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
    gzip_with_fields,
    inflate,
    lz4_block,
    lz4_header,
    lz4_of,
    snappy_of,
    zstd_of,
    zstd_sized,
)

pytestmark = pytest.mark.usefixtures("codec_way")
by_packages = pytest.mark.parametrize("codec_way", ["packages"], indirect=True)


@pytest.fixture(params=["zlib", "isal"])
def gzip_library(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    library: ModuleType = zlib if request.param == "zlib" else isal_zlib
    monkeypatch.setattr(codec_module, "_gzip_library", lambda: library)
    return library


# What must be read, and as what.

SKIPPABLE = struct.pack("<II", 0x184D2A53, 5) + b"hello"
ACCEPTED = {
    "gzip/two members": (GZIP, gzip_of(b"ab") + gzip_of(TEXT), b"ab" + TEXT),
    "gzip/garbage after the member": (GZIP, gzip_of(TEXT) + b"garbage" * 9, TEXT),
    "gzip/half a header after the member": (GZIP, gzip_of(TEXT) + gzip_of(b"x")[:12], TEXT),
    "gzip/header and nothing else after it": (GZIP, gzip_of(TEXT) + b"\x1f\x8b\x07" * 9, TEXT),
    "gzip/empty member": (GZIP, gzip_of(b""), b""),
    "gzip/name": (GZIP, gzip_with_fields(TEXT, 8, b"name\0"), TEXT),
    "gzip/long name": (GZIP, gzip_with_fields(TEXT, 8, b"n" * 700 + b"\0"), TEXT),
    "gzip/extra": (GZIP, gzip_with_fields(TEXT, 4, b"\x03\x00abc"), TEXT),
    "gzip/comment": (GZIP, gzip_with_fields(TEXT, 16, b"c\0"), TEXT),
    "gzip/reserved flag": (GZIP, gzip_with_fields(TEXT, 0x40, b""), TEXT),
    "snappy/xerial": (SNAPPY, snappy_of(TEXT), TEXT),
    "snappy/many chunks": (SNAPPY, snappy_of(TEXT, 100), TEXT),
    "snappy/large block": (SNAPPY, snappy_of(TEXT * 400, 1 << 20), TEXT * 400),
    "snappy/header alone": (SNAPPY, XERIAL, b""),
    "snappy/version words of any kind": (
        SNAPPY,
        XERIAL[:8] + b"\xff" * 8 + chunk(TEXT),
        TEXT,
    ),
    "snappy/little-endian version": (
        SNAPPY,
        XERIAL[:8] + struct.pack("<ii", 1, 1) + chunk(TEXT),
        TEXT,
    ),
    "snappy/further header little-endian": (
        SNAPPY,
        snappy_of(b"ab") + XERIAL[:8] + struct.pack("<ii", 1, 1) + chunk(b"cd"),
        b"abcd",
    ),
    "snappy/magic wrong after four bytes": (
        SNAPPY,
        snappy_of(TEXT) + XERIAL[:4] + b"X" * 12,
        TEXT,
    ),
    "snappy/empty block": (SNAPPY, XERIAL + chunk(b"") + chunk(TEXT), TEXT),
    "lz4/empty": (LZ4, bytes.fromhex("04224d1860408200000000"), b""),
    "lz4/stored": (LZ4, lz4_header() + lz4_block(TEXT, stored=True) + END, TEXT),
    "lz4/second frame ignored": (LZ4, lz4_of(b"ab") + lz4_of(TEXT), b"ab"),
    "lz4/stored block of size 0 is an end mark": (
        LZ4,
        lz4_header() + lz4_block(TEXT) + struct.pack("<I", 0x80000000) + b"junk",
        TEXT,
    ),
    "lz4/short blocks": (
        LZ4,
        lz4_header() + lz4_block(b"ab") + lz4_block(TEXT) + END,
        b"ab" + TEXT,
    ),
    "lz4/4 MiB blocks": (
        LZ4,
        lz4_header(block_byte=0x70) + lz4_block(TEXT * 999) + END,
        TEXT * 999,
    ),
    "lz4/stored block with checksum": (
        LZ4,
        lz4.frame.compress(
            bytes(range(256)) * 256, block_linked=False, block_checksum=True, block_size=4
        ),
        bytes(range(256)) * 256,
    ),
    "zstd/empty body": (ZSTD, b"", b""),
    "zstd/empty frame": (ZSTD, zstd_of(b""), b""),
    "zstd/streamed": (ZSTD, zstd_of(TEXT), TEXT),
    "zstd/content size 0": (ZSTD, zstd_sized(b""), b""),
    "zstd/skippable frame first": (ZSTD, SKIPPABLE + zstd_of(TEXT), TEXT),
    "zstd/skippable frame last": (ZSTD, zstd_of(TEXT) + SKIPPABLE, TEXT),
    "zstd/denser than usual": (ZSTD, zstd_of(bytes(1 << 22)), bytes(1 << 22)),
    "zstd/longer than one piece": (ZSTD, zstd_of(os.urandom(1 << 17)), None),
}


@pytest.mark.parametrize("name", ACCEPTED)
def test_what_kafka_reads_is_read(name: str) -> None:
    codec, data, expected = ACCEPTED[name]
    if expected is None:
        expected = zstd_library().decompress(data)
    assert inflate(codec, data) == expected


@by_packages
@pytest.mark.parametrize("name", [name for name in ACCEPTED if name.startswith("gzip")])
def test_gzip_is_read_alike_by_every_library(name: str, gzip_library: ModuleType) -> None:
    codec, data, expected = ACCEPTED[name]
    assert inflate(codec, data) == expected


# What must be refused.


def flipped(data: bytes, at: int) -> bytes:
    changed = bytearray(data)
    changed[at] ^= 0x01
    return bytes(changed)


LZ4_WITH_BLOCK_CHECKSUM = lz4.frame.compress(TEXT, block_linked=False, block_checksum=True)
RESERVED_BLOCK = bytes.fromhex("28b52ffd0058") + bytes((0x07, 0, 0))
REFUSED = {
    "gzip/empty body": (GZIP, b""),
    "gzip/not gzip": (GZIP, b"this is not gzip at all"),
    "gzip/other method": (GZIP, b"\x1f\x8b\x07" + gzip_of(TEXT)[3:]),
    "gzip/trailer CRC": (GZIP, flipped(gzip_of(TEXT), -8)),
    "gzip/trailer size": (GZIP, flipped(gzip_of(TEXT), -4)),
    "gzip/body": (GZIP, gzip_of(TEXT)[:10] + b"\xff" * 60),
    "gzip/header CRC": (GZIP, gzip_with_fields(TEXT, 2, b"\x00\x00")),
    "gzip/name without end": (GZIP, gzip_of(TEXT)[:3] + b"\x08" + b"n" * 600),
    "gzip/second member broken": (GZIP, gzip_of(TEXT) + flipped(gzip_of(TEXT), -8)),
    "gzip/second member cut": (GZIP, gzip_of(TEXT) + gzip_of(TEXT)[:-1]),
    "snappy/empty body": (SNAPPY, b""),
    "snappy/chunk too long": (SNAPPY, XERIAL + struct.pack(">i", 2**31 - 1) + b"abc"),
    "snappy/negative chunk": (SNAPPY, XERIAL + struct.pack(">i", -5) + b"abc" * 9),
    "snappy/empty chunk": (SNAPPY, XERIAL + struct.pack(">i", 0)),
    "snappy/bad block": (SNAPPY, XERIAL + struct.pack(">i", 4) + b"\x10\xff\xff\xff"),
    "snappy/further header cut": (SNAPPY, snappy_of(TEXT) + XERIAL[:15]),
    "snappy/further header negative": (SNAPPY, snappy_of(TEXT) + XERIAL[:8] + b"\xff" * 8),
    "snappy/not snappy": (SNAPPY, b"\xff" * 40),
    "snappy/declares 4 GiB": (SNAPPY, b"\xff\xff\xff\xff\x0f" + b"a" * 30),
    "snappy/declares more than it can hold": (SNAPPY, b"\x80\x20" + b"\x00a" * 30),
    "lz4/empty body": (LZ4, b""),
    "lz4/other magic": (LZ4, b"\x05" + lz4_of(TEXT)[1:]),
    "lz4/version 00": (LZ4, lz4_header(flags=0x20) + END),
    "lz4/version 10": (LZ4, lz4_header(flags=0xA0) + END),
    "lz4/reserved flag": (LZ4, lz4_header(flags=0x62) + END),
    "lz4/dictionary": (LZ4, lz4_header(flags=0x61) + END),
    "lz4/block size code 3": (LZ4, lz4_header(block_byte=0x30) + END),
    "lz4/block size reserved bit 7": (LZ4, lz4_header(block_byte=0xC0) + END),
    "lz4/block size reserved bits 0-3": (LZ4, lz4_header(block_byte=0x41) + END),
    "lz4/linked blocks": (LZ4, lz4_header(flags=0x40) + lz4_block(TEXT) + END),
    "lz4/block above the maximum": (LZ4, lz4_header() + struct.pack("<I", 65537) + bytes(70000)),
    "lz4/block inflates above the maximum": (LZ4, lz4_header() + lz4_block(bytes(65537)) + END),
    "lz4/stored block cut": (LZ4, lz4_header() + struct.pack("<I", 0x80000009) + b"abc"),
    "lz4/bad block": (LZ4, lz4_header() + struct.pack("<I", 4) + b"\x00\xff\xff\xff" + END),
    "lz4/content checksum missing": (LZ4, lz4_header(flags=0x64) + END + b"abc"),
    "lz4/block checksum missing": (LZ4, LZ4_WITH_BLOCK_CHECKSUM[:-6]),
    "lz4/block checksum wrong": (LZ4, flipped(LZ4_WITH_BLOCK_CHECKSUM, -5)),
    "zstd/one byte after a frame": (ZSTD, zstd_of(TEXT) + b"\x28"),
    "zstd/checksum of a sized frame": (ZSTD, flipped(zstd_sized(TEXT), -1)),
    "zstd/second frame cut": (ZSTD, zstd_of(TEXT) + zstd_of(TEXT)[:-1]),
    "zstd/reserved block type": (ZSTD, RESERVED_BLOCK),
    "zstd/skippable frame cut": (ZSTD, SKIPPABLE[:-1]),
    "zstd/declares a TiB": (
        ZSTD,
        bytes.fromhex("28b52ffde0") + struct.pack("<Q", 2**40) + b"\1\0\0",
    ),
    "zstd/declares 0, holds some": (
        ZSTD,
        bytes.fromhex("28b52ffd2000") + b"\x19\x00\x00abc",
    ),
    "zstd/dictionary wanted": (ZSTD, bytes.fromhex("28b52ffd01587b") + b"\x19\x00\x00abc"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_kafka_refuses_is_refused(name: str) -> None:
    codec, data = REFUSED[name]
    with pytest.raises(DecompressionError):
        inflate(codec, data)


@by_packages
@pytest.mark.parametrize("name", [name for name in REFUSED if name.startswith("gzip")])
def test_gzip_is_refused_alike_by_every_library(name: str, gzip_library: ModuleType) -> None:
    codec, data = REFUSED[name]
    with pytest.raises(DecompressionError):
        inflate(codec, data)


@pytest.mark.parametrize("codec", CODECS)
def test_a_stream_cut_at_any_byte_is_an_error_never_a_shorter_answer(codec: str) -> None:
    whole = MAKERS[codec](TEXT[:300])
    for end in range(len(whole)):
        cut = whole[:end]
        # A stream without a frame or chunk is an empty one: nothing was cut there.
        if (codec == "zstd" and end == 0) or (codec == "snappy" and 16 <= end < 20):
            assert inflate(CODECS[codec], cut) == b""
            continue
        with pytest.raises(DecompressionError):
            inflate(CODECS[codec], cut)


# What depends on the magic.


def test_codec_none_answers_the_bytes_themselves() -> None:
    data = bytearray(b"as they are")
    view = decompress(0, data, magic=2, limit=100)
    data[0:2] = b"AS"
    assert bytes(view) == b"AS they are"
    with pytest.raises(LimitExceededError):
        decompress(0, data, magic=2, limit=3)


def test_python_3_14_needs_no_backport(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("compression")
    module.zstd = zstd_library()  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "compression", module)
    monkeypatch.setitem(sys.modules, "backports", None)
    monkeypatch.setattr(sys, "version_info", (3, 14, 0))
    assert zstd_library.__wrapped__() is module.zstd


@by_packages
def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codec_module, "zstd_library", lambda: __import__("no_such_zstd"))
    with pytest.raises(UnsupportedFormatError, match="zstd"):
        inflate(ZSTD, zstd_of(TEXT))


ROOT = Path(__file__).parents[3]


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
    import lz4.block, cramjam
    from kseg.errors import KsegError
    from kseg.format.codec import decompress
    from tests.unit.codec_streams import XERIAL, lz4_header, END, gzip_of, zstd_of, zstd_sized

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
        bomb = zstd_sized(bytes(256 * MIB))
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
WAYS = ("libraries", "packages")
BOMBS = {
    "gzip": (GZIP, "LimitExceededError"),
    "snappy": (SNAPPY, "LimitExceededError"),
    "snappy-lie": (SNAPPY, "DecompressionError"),
    "lz4": (LZ4, "LimitExceededError"),
    "zstd": (ZSTD, "LimitExceededError"),
    "zstd-sized": (ZSTD, "LimitExceededError"),
    "zstd-lie": (ZSTD, "DecompressionError"),
}


@pytest.mark.parametrize(
    ("name", "codec_way"),
    list(product(BOMBS, WAYS) if WHOLE else zip(BOMBS, cycle(WAYS), strict=False)),
    indirect=["codec_way"],
)
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


# xxHash32 of what is shorter than its lanes. Source: xxHash's own sanity values, lz4 frame headers.


@pytest.mark.parametrize(
    ("data", "expected"),
    [(b"", 0x02CC5D05), (b"a", 0x550D7456), (b"abc", 0x32D153FF), (b"abcd", 0xA3643705)],
)
def test_xxh32_of_known_input(data: bytes, expected: int) -> None:
    assert xxh32(data) == expected
