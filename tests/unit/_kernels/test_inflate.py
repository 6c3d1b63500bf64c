"""The kernel that inflates: both ways agree, nothing is believed, no library is opened blindly."""

from __future__ import annotations

import os
import random
import struct
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

import lz4.frame
import pytest

from kseg._kernels import inflate
from kseg.errors import KsegError
from kseg.format.codec import decompress
from tests.unit.codec_streams import (
    CODECS,
    END,
    GZIP,
    LZ4,
    MAKERS,
    SNAPPY,
    TEXT,
    ZSTD,
    gzip_of,
    gzip_with_fields,
    lz4_block,
    lz4_header,
    lz4_of,
    snappy_of,
    zstd_of,
    zstd_sized,
)
from tests.zstd import zstd

LIMIT = 1 << 20
SKIPPABLE = struct.pack("<II", 0x184D2A53, 5) + b"hello"
Outcome = bytes | tuple[type[KsegError], str]


def outcome(codec: int, data: bytes, limit: int = LIMIT) -> Outcome:
    """What the careful path makes of a body."""
    try:
        return bytes(decompress(codec, data, magic=2, limit=limit))
    except KsegError as error:
        return type(error), str(error)


def both_ways(codec: int, data: bytes, limit: int = LIMIT) -> Outcome:
    """What packages make of a body; neither way of the kernel makes anything else of it."""
    before = inflate.use_libraries(False, False)
    try:
        expected = outcome(codec, data, limit)
        by_package = inflate.inflate_in_scratch(codec, 2, data, limit)
        inflate.use_libraries(True)
        assert outcome(codec, data, limit) == expected
        by_library = inflate.inflate_in_scratch(codec, 2, data, limit)
    finally:
        inflate.use_libraries(*before)
    assert by_package == (expected if isinstance(expected, bytes) else None)
    assert by_library is None or by_library == expected
    return expected


def test_kernels_find_the_function_and_what_frees_its_memory() -> None:
    module: Any = inflate
    assert {"inflate_records", "drop_scratch"} <= set(module.__pyx_capi__)


# Answers.

NOISE = random.Random(3).randbytes(3000)
STREAMS = {
    "gzip": (GZIP, gzip_of(TEXT)),
    "gzip/members": (GZIP, gzip_of(TEXT) + gzip_of(b"") + gzip_of(NOISE)),
    "gzip/fields": (GZIP, gzip_of(TEXT) + gzip_with_fields(TEXT, 24, b"name\0remark\0")),
    "gzip/trailing bytes": (GZIP, gzip_of(TEXT) + b"no other member begins here"),
    "snappy": (SNAPPY, snappy_of(TEXT + NOISE, 700)),
    "snappy/raw": (SNAPPY, snappy_of(TEXT)[20:]),
    "snappy/two streams": (SNAPPY, snappy_of(TEXT) + snappy_of(NOISE) + b"xyz"),
    "lz4": (LZ4, lz4_of(TEXT + NOISE)),
    "lz4/stored": (LZ4, lz4_header() + lz4_block(NOISE, stored=True) + lz4_block(TEXT) + END),
    "lz4/checked": (LZ4, lz4.frame.compress(TEXT, block_linked=False, block_checksum=True)),
    "lz4/trailing bytes": (LZ4, lz4_of(TEXT) + NOISE),
    "zstd": (ZSTD, zstd_of(TEXT + NOISE)),
    "zstd/frames": (ZSTD, zstd_of(TEXT) + SKIPPABLE + zstd_sized(NOISE) + zstd_of(b"")),
    "zstd/checked": (ZSTD, zstd_of(TEXT * 4, checksum=True)),
    "zstd/level 19": (ZSTD, zstd_of(TEXT * 300 + NOISE, level=19)),
}


@pytest.mark.parametrize("name", STREAMS)
def test_changed_streams_are_read_alike_both_ways(name: str) -> None:
    codec, stream = STREAMS[name]
    assert isinstance(both_ways(codec, stream), bytes)
    dice = random.Random(name)
    for _ in range(400):
        data = bytearray(stream)
        for _ in range(dice.randint(1, 3)):
            at = dice.randrange(len(data))
            match dice.randrange(4):
                case 0:
                    data[at] ^= 1 << dice.randrange(8)
                case 1:
                    data[at] = dice.choice((0, 1, 0x7F, 0x80, 0xFF))
                case 2:
                    del data[at : at + dice.randint(1, 9)]
                case _:
                    data[at:at] = data[: dice.randint(1, 9)]
        both_ways(codec, bytes(data), dice.choice((0, 100, len(TEXT), LIMIT)))


@pytest.mark.parametrize("codec", CODECS)
def test_nothing_is_written_behind_the_room_that_was_lent(codec: str) -> None:
    body = MAKERS[codec](TEXT)
    inflater = inflate.Inflater()
    for room in (0, 1, len(TEXT) - 1, len(TEXT), len(TEXT) + 1):
        lent = bytearray(b"\xa5" * (room + 64))
        written = inflater.into(CODECS[codec], 2, body, memoryview(lent)[:room])
        here = -2 if CODECS[codec] in inflate.USABLE else -1  # -1 leaves it to the packages
        assert written == (len(TEXT) if here == -2 and room >= len(TEXT) else here)
        assert lent[room:] == b"\xa5" * 64


def test_a_gzip_trailer_that_lies_about_the_size_reserves_nothing() -> None:
    body = bytearray(gzip_of(TEXT))
    body[-4:] = b"\xff\xff\xff\x7f"
    assert both_ways(GZIP, bytes(body), 1 << 40) != TEXT
    assert inflate.inflate_in_scratch(GZIP, 2, bytes(body), 1 << 40) is None


def test_room_doubles_until_a_dense_body_fits() -> None:
    for name, codec in CODECS.items():
        dense = bytes(5 << 20)
        assert inflate.inflate_in_scratch(codec, 2, MAKERS[name](dense), 5 << 20) == dense
        assert inflate.inflate_in_scratch(codec, 2, MAKERS[name](dense), (5 << 20) - 1) is None


def test_a_window_larger_than_the_packages_take_is_left_to_them() -> None:
    squeeze = zstd.ZstdCompressor(options={zstd.CompressionParameter.window_log: 28})
    body = squeeze.compress(TEXT) + squeeze.flush()
    assert inflate.inflate_in_scratch(ZSTD, 2, body, LIMIT) is None
    assert not isinstance(both_ways(ZSTD, body), bytes)


@pytest.mark.parametrize("codec", [-1, 0, 5, 7, 2**31 - 1])
def test_what_is_no_codec_is_left_to_the_careful_path(codec: int) -> None:
    assert inflate.inflate_in_scratch(codec, 2, b"anything", LIMIT) is None
    assert inflate.Inflater().into(codec, 2, b"anything", bytearray(100)) == -1


# Packages, where there is no library.


def test_an_error_of_a_lent_package_is_left_to_the_careful_path() -> None:
    from kseg.format import codec

    def broken(*_arguments: Any) -> bytes:
        raise MemoryError

    before = inflate.use_libraries(False)
    inflate.lend_package(broken)
    try:
        assert inflate.inflate_in_scratch(GZIP, 2, gzip_of(TEXT), LIMIT) is None
    finally:
        inflate.lend_package(codec._inflate_by_package)
        inflate.use_libraries(*before)


@pytest.mark.parametrize("width", [1, 2, 4, 8])
def test_a_zstd_frame_is_held_to_the_size_that_it_states(width: int) -> None:
    text = TEXT[:200] if width == 1 else TEXT
    blocks = zstd_of(text)[6:]  # behind magic, flags and window
    least, most = (256, 256 + 65_535) if width == 2 else (0, 256**width - 1)
    flags = {1: 0x20, 2: 0x60, 4: 0xA0, 8: 0xE0}[width]
    for size in (least, len(text) - 1, len(text), len(text) + 1, most):
        stated = (size - least).to_bytes(width, "little")
        frame = b"\x28\xb5\x2f\xfd" + bytes([flags]) + stated + blocks
        found = both_ways(ZSTD, frame)
        assert (found == text) == (size == len(text)), size
        assert isinstance(found, bytes) == (size == len(text)), size


def test_an_interrupt_inside_a_lent_package_is_raised_where_python_goes_on() -> None:
    program = """
import zlib
from kseg._kernels import inflate
def interrupted(*_): raise KeyboardInterrupt
inflate.lend_package(interrupted)
try:
    inflate.inflate_in_scratch(1, 2, b"anything", 100)
    for _ in range(1000): pass
except KeyboardInterrupt:
    print("interrupted")
"""
    assert _run(program, KSEG_CODECS="packages") == "interrupted"


# Where libraries come from.

TELL = """
from kseg._kernels import inflate
print(sorted(inflate.USABLE), sorted({why for *_, why in inflate.libraries().values()}))
"""


def _run(program: str, cwd: Path | None = None, **environment: str) -> str:
    root = str(Path(inflate.__file__).parents[2])
    return subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": root, "PYTHONSAFEPATH": "1"} | environment,
        cwd=cwd,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    ).stdout.strip()


def test_an_environment_variable_leaves_all_to_packages() -> None:
    assert _run(TELL, KSEG_CODECS="packages") == "[2] []"


@pytest.mark.parametrize("path", ["", "/nowhere"])
def test_libraries_are_found_by_the_loader(path: str, codec_way: str) -> None:
    way = "packages" if codec_way == "packages" else "system"
    told = _run(TELL, KSEG_CODECS=way, LD_LIBRARY_PATH=path)
    old_zstd = "[1, 2, 3] ['', 'it is too old']"
    assert codec_way == "packages" or told in ("[1, 2, 3, 4] ['']", old_zstd)


@pytest.mark.parametrize("path", [".", ":", "/nowhere:", ":/nowhere", "lib", "/nowhere::/too"])
def test_no_library_is_opened_where_the_loader_would_look_in_the_working_directory(
    path: str, tmp_path: Path
) -> None:
    told = _run(TELL, cwd=tmp_path, KSEG_CODECS="system", LD_LIBRARY_PATH=path)
    assert told.startswith("[2] [\"the loader's search path")


WRONG = """
#include <stddef.h>
unsigned LZ4_versionNumber(void) { return VERSION; }
int LZ4_decompress_safe(const char *from, char *to, int size, int room) { return ANSWER; }
"""


@pytest.mark.parametrize(
    ("version", "answer", "why"),
    [
        (10904, "room", "it gives wrong answers"),
        (10904, "2 * room", "it gives wrong answers"),
        (10904, "-1", "it gives wrong answers"),
        (10700, "room", "it is too old"),
    ],
)
def test_a_library_that_is_old_or_wrong_is_not_used(
    version: int, answer: str, why: str, tmp_path: Path
) -> None:
    source = tmp_path / "wrong.c"
    source.write_text(WRONG.replace("VERSION", str(version)).replace("ANSWER", answer))
    built = tmp_path / "liblz4.so.1"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", built, source], check=True)
    tell = "from kseg._kernels import inflate; print(inflate.libraries()[3][2:], inflate.USABLE)"
    told = _run(tell, KSEG_CODECS="system", LD_LIBRARY_PATH=str(tmp_path))
    assert told.startswith(str((str(built), why)))
    assert "3" not in told.rpartition("{")[2]


def test_a_library_without_the_functions_is_not_used(tmp_path: Path) -> None:
    for soname in ("libdeflate.so.0", "libzstd.so.1", "liblz4.so.1"):
        empty = tmp_path / "empty.c"
        empty.write_text("unsigned ZSTD_versionNumber(void) { return 10500; }")
        subprocess.run(["cc", "-shared", "-fPIC", "-o", tmp_path / soname, empty], check=True)
    told = _run(TELL, KSEG_CODECS="system", LD_LIBRARY_PATH=str(tmp_path))
    assert told == "[2] ['it is too old', 'it lacks a function']"


def test_zstd_with_bits_left_over_is_refused() -> None:
    """libzstd before 1.5.6 takes the first for sound; Kafka's has the check."""
    sound = bytes.fromhex(
        "28b52ffd00001d0100e85a000000066b65793c76616c7565040268023100010e00cf0f020001000100588a12"
    )
    assert isinstance(both_ways(ZSTD, sound), bytes)
    for position, bit in ((40, 1), (40, 2), (42, 64)):
        damaged = bytearray(sound)
        damaged[position] ^= bit
        assert not isinstance(both_ways(ZSTD, bytes(damaged)), bytes)


def test_deflate_that_ends_early_or_goes_on_is_refused() -> None:
    raw = zlib.compressobj(9, zlib.DEFLATED, -15)
    body = raw.compress(TEXT) + raw.flush()
    head = gzip_of(TEXT)[:10]
    trailer = struct.pack("<II", zlib.crc32(TEXT), len(TEXT))
    for damaged in (body[:-1], body[:-2], body + b"\0", b"", body[:1]):
        assert not isinstance(both_ways(GZIP, head + damaged + trailer), bytes)
