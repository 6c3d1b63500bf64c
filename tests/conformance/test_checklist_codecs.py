"""Codecs, one claim a row: what is written, what is read, what is refused.

The claims are those of Kafka's Lz4-, Gzip-, Snappy-, Zstd- and NoCompressionTest, and rules that
only code tells. What is written is read back by both implementations. kseg inflates a body whole:
there is no stream to skip in, and of a body cut short nothing is given.
"""

from __future__ import annotations

import gzip
import random
from collections.abc import Callable

import lz4.frame
import pytest

from kseg.constants import Compression
from kseg.errors import DecompressionError
from kseg.format.codec import decompress
from kseg.format.compress import LEVELS, check_level, compress
from tests import builders, reference_codecs
from tests.builders import GZIP, LZ4, NONE, SNAPPY, ZSTD
from tests.unit.codec_streams import XERIAL
from tests.zstd import zstd_frame

pytestmark = pytest.mark.usefixtures("codec_way")

CODECS = {"none": NONE, "gzip": GZIP, "snappy": SNAPPY, "lz4": LZ4, "zstd": ZSTD}
DATA = b"data" * 256
Inflate = Callable[..., bytes]


class CodecError(Exception):
    """Either implementation's refusal of compressed bytes."""


def by_kseg(codec: int, data: bytes, *, magic: int = 2) -> bytes:
    try:
        return bytes(decompress(codec, data, magic=magic, limit=1 << 26))
    except DecompressionError as error:
        raise CodecError from error


def by_reference(codec: int, data: bytes, *, magic: int = 2) -> bytes:
    try:
        return reference_codecs.inflate(codec, data, magic=magic)
    except reference_codecs.RefusedError as error:
        if error.kind != "codec":
            raise
        raise CodecError from error


@pytest.fixture(params=[by_reference, by_kseg])
def inflate(request: pytest.FixtureRequest) -> Inflate:
    function: Inflate = request.param
    return function


# What is written


def levels(codec: int) -> list[int | None]:
    """The least, the default and the greatest level."""
    return [None, *LEVELS.get(Compression(codec), ())]


WRITABLE = [
    pytest.param(codec, magic, level, id=f"{name}, magic {magic}, level {level}")
    for name, codec in CODECS.items()
    for magic in (0, 1, 2)
    for level in levels(codec)
    if not (codec == ZSTD and magic < 2)
]


@pytest.mark.parametrize(("codec", "magic", "level"), WRITABLE)
def test_1024_bytes_come_back_at_every_magic_and_level(
    codec: int, magic: int, level: int | None, inflate: Inflate
) -> None:
    written = compress(codec, DATA, magic=magic, level=level)
    assert (len(written) < len(DATA)) == (codec != NONE and level != -131072)
    assert inflate(codec, written, magic=magic) == DATA


@pytest.mark.parametrize("magic", [0, 1, 2])
def test_only_magic_0_has_the_broken_lz4_header_checksum(magic: int, inflate: Inflate) -> None:
    written = compress(LZ4, DATA, magic=magic)
    assert written[6] == (0x82 if magic else 0x1A)
    for check in range(256):
        changed = written[:6] + bytes([check]) + written[7:]
        if magic == 0 or check == 0x82:  # not looked at on reading magic 0
            assert inflate(LZ4, changed, magic=magic) == DATA
        else:
            with pytest.raises(CodecError):
                inflate(LZ4, changed, magic=magic)


@pytest.mark.parametrize(
    ("codec", "level"),
    [(GZIP, 0), (GZIP, 10), (GZIP, -2), (LZ4, 0), (LZ4, 18), (ZSTD, -131073), (ZSTD, 23)],
)
def test_a_level_outside_the_range_is_an_argument_error(codec: int, level: int) -> None:
    with pytest.raises(ValueError, match=f"levels .* not {level}"):
        compress(codec, DATA, level=level)


@pytest.mark.parametrize("codec", [NONE, SNAPPY])
def test_a_level_of_a_codec_without_levels_is_an_argument_error(codec: int) -> None:
    with pytest.raises(ValueError, match="has no levels"):
        compress(codec, DATA, level=1)


@pytest.mark.parametrize("level", [-1, *range(1, 10)])
def test_the_gzip_level_validator_accepts(level: int) -> None:
    check_level(GZIP, level)
    assert gzip.decompress(compress(GZIP, DATA, level=level)) == DATA


PAYLOADS = {
    "empty": b"",
    "1 byte": b"x",
    "1000 constant bytes": bytes(1000),
    "1000 random bytes": random.Random(1).randbytes(1000),
    "64 KiB constant": bytes(1 << 16),
    "64 KiB random": random.Random(2).randbytes(1 << 16),
    "96 KiB constant": bytes(96 << 10),
    "96 KiB random": random.Random(3).randbytes(96 << 10),
}


@pytest.mark.parametrize("magic", [0, 1, 2])
@pytest.mark.parametrize("payload", PAYLOADS)
def test_an_lz4_frame_is_as_kafka_frames(payload: str, magic: int, inflate: Inflate) -> None:
    data = PAYLOADS[payload]
    frame = compress(LZ4, data, magic=magic)
    assert frame[:4] == bytes.fromhex("04224d18")
    flags, descriptor, check = frame[4:7]
    assert flags >> 6 == 1  # the version
    assert flags & 0x03 == 0  # reserved
    assert flags & 0x1C == 0  # no block checksums, no content size or checksum
    assert flags & 0x20  # independent blocks
    assert descriptor & 0x8F == 0  # reserved
    assert descriptor >> 4 == 4  # 64 KiB
    assert check == (0x1A if magic == 0 else 0x82)
    assert frame[-4:] == bytes(4)  # the end mark
    assert inflate(LZ4, frame, magic=magic) == data


@pytest.mark.parametrize("check", [0x1A, 0x82], ids=["broken checksum", "right checksum"])
@pytest.mark.parametrize("block_checksums", [False, True])
@pytest.mark.parametrize("payload", PAYLOADS)
def test_a_frame_of_any_lz4_writer_is_read_if_it_was_closed(
    payload: str, block_checksums: bool, check: int, inflate: Inflate
) -> None:
    data = PAYLOADS[payload]
    frame = lz4.frame.compress(
        data, block_size=4, block_linked=False, block_checksum=block_checksums, store_size=False
    )
    if check == 0x1A:
        frame = frame[:6] + b"\x1a" + frame[7:]
    assert inflate(LZ4, frame, magic=0) == data
    with pytest.raises(CodecError):  # flushed, not closed
        inflate(LZ4, frame[:-4], magic=0)


def test_more_than_32768_bytes_become_snappy_chunks_of_32768(inflate: Inflate) -> None:
    data = random.Random(4).randbytes(70_000)
    written = compress(SNAPPY, data)
    assert written[:16] == XERIAL
    sizes, position = [], 16
    while position < len(written):
        size = int.from_bytes(written[position : position + 4])
        block = written[position + 4 : position + 4 + size]
        sizes.append(len(inflate(SNAPPY, block)))
        position += 4 + size
    assert sizes == [32768, 32768, 4464]
    assert position == len(written)


# What is read


LZ4_ALL = lz4.frame.compress(
    DATA, block_linked=False, block_checksum=True, content_checksum=True, store_size=True
)
READ: dict[str, tuple[int, bytes, bytes]] = {
    "lz4: content size and checksum, block checksums": (LZ4, LZ4_ALL, DATA),
    "lz4: a wrong content checksum is not findings": (LZ4, LZ4_ALL[:-1] + b"\x55", DATA),
    "two zstd frames": (ZSTD, compress(ZSTD, b"ab") + compress(ZSTD, DATA), b"ab" + DATA),
    "two xerial streams": (SNAPPY, compress(SNAPPY, b"ab") + compress(SNAPPY, DATA), b"ab" + DATA),
    "raw snappy": (SNAPPY, builders.xerial(DATA)[20:], DATA),
    "raw snappy shorter than 16 bytes": (SNAPPY, builders.xerial(b"short")[20:], b"short"),
    "1 spare byte after the last xerial chunk": (SNAPPY, compress(SNAPPY, DATA) + b"x", DATA),
    "2 spare bytes after the last xerial chunk": (SNAPPY, compress(SNAPPY, DATA) + b"xx", DATA),
    "3 spare bytes after the last xerial chunk": (SNAPPY, compress(SNAPPY, DATA) + b"xxx", DATA),
    "zstd content size and checksum": (
        ZSTD,
        zstd_frame(DATA, sized=True, checksum=True),
        DATA,
    ),
}


@pytest.mark.parametrize("claim", READ)
def test_what_others_write_is_read(claim: str, inflate: Inflate) -> None:
    codec, data, expected = READ[claim]
    assert inflate(codec, data) == expected
