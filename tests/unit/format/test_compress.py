"""Compressing: Kafka's own bytes where they are certain, levels, buffers, threads, names."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import textwrap

import lz4.block
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kseg.constants import Compression
from kseg.errors import UnsupportedFormatError
from kseg.format import codec as codec_module
from kseg.format import compress as module
from kseg.format.compress import (
    RatioEstimator,
    check_level,
    compress,
    compression_named,
)
from tests.reference_codecs import inflate

NONE, GZIP, SNAPPY, LZ4, ZSTD = Compression
FIVE = bytes.fromhex("73d51abbd8")


#: What Kafka 4.2.0's stream wrappers make of no bytes and of five: codec, magic, input, output.
KAFKA_WROTE = [
    (NONE, 2, b"", ""),
    (NONE, 0, FIVE, "73d51abbd8"),
    (GZIP, 2, b"", "1f8b08000000000000ff03000000000000000000"),
    (GZIP, 2, FIVE, "1f8b08000000000000ff2bbe2ab5fb06009a2f52f705000000"),
    (SNAPPY, 2, b"", "82534e41505059000000000100000001"),
    (SNAPPY, 2, FIVE, "82534e4150505900000000010000000100000007051073d51abbd8"),
    (LZ4, 0, b"", "04224d1860401a00000000"),
    (LZ4, 1, b"", "04224d1860408200000000"),
    (LZ4, 0, FIVE, "04224d1860401a0500008073d51abbd800000000"),
    (LZ4, 2, FIVE, "04224d186040820500008073d51abbd800000000"),
    (ZSTD, 2, b"", "28b52ffd2000010000"),
]


@pytest.mark.parametrize(("codec", "magic", "data", "expected"), KAFKA_WROTE)
def test_short_input_gives_the_bytes_that_kafka_writes(
    codec: Compression, magic: int, data: bytes, expected: str
) -> None:
    assert compress(codec, data, magic=magic).hex() == expected


@given(
    codec=st.sampled_from([GZIP, SNAPPY, LZ4, ZSTD]),
    size=st.sampled_from([32768, 65536, 98304, 131072]) | st.integers(0, 2000),
    step=st.integers(-1, 1),
    seed=st.integers(0, 9),
    plain=st.booleans(),
    old=st.booleans(),
)
def test_every_size_comes_back_through_the_other_reader(
    codec: Compression, size: int, step: int, seed: int, plain: bool, old: bool
) -> None:
    size = max(0, size + step)
    data = bytes(size) if plain else random.Random(seed).randbytes(size)
    magic = 0 if old and codec != ZSTD else 2
    assert inflate(codec, compress(codec, data, magic=magic), magic=magic) == data


# Levels


WORDS = b" ".join(random.Random(1).choices([b"%x" % n for n in range(3000)], k=20_000))


def test_no_level_is_kafkas_default() -> None:
    assert compress(GZIP, WORDS) == compress(GZIP, WORDS, level=-1)
    assert compress(GZIP, WORDS) == compress(GZIP, WORDS, level=6)
    assert compress(LZ4, WORDS) == compress(LZ4, WORDS, level=9)
    assert compress(ZSTD, WORDS) == compress(ZSTD, WORDS, level=3)


@pytest.mark.parametrize("level", [1, 2, 3, 8, 10, 12, 17])
def test_lz4_levels_but_9_are_the_slow_compressors(level: int) -> None:
    """The library's own block compressor tells what each block must hold."""
    frame = compress(LZ4, WORDS, level=level)
    expected = b""
    for start in range(0, len(WORDS), 1 << 16):
        piece = WORDS[start : start + (1 << 16)]
        block = lz4.block.compress(
            piece, mode="high_compression", compression=level, store_size=False
        )
        expected += len(block).to_bytes(4, "little") + block
    assert frame[7:] == expected + bytes(4)
    assert len(frame) < len(compress(LZ4, WORDS, level=9))


# Arguments


@pytest.mark.parametrize("codec", [-1, 5, 6, 7, 8])
def test_an_unknown_codec_is_an_argument_error(codec: int) -> None:
    with pytest.raises(ValueError, match=str(codec)):
        compress(codec, b"")
    with pytest.raises(ValueError, match=str(codec)):
        check_level(codec, 1)


def test_codec_none_gives_a_copy_of_what_may_change() -> None:
    data = bytearray(b"as it was")
    copy = compress(NONE, data)
    data[:2] = b"AS"
    assert copy == b"as it was"


@pytest.mark.parametrize(
    ("codec", "library"), [(SNAPPY, "_snappy_block"), (LZ4, "_lz4_block"), (ZSTD, "zstd_library")]
)
def test_a_missing_library_is_named(
    codec: Compression, library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing() -> None:
        raise ImportError("No module named 'it'")

    monkeypatch.setattr(module, library, missing)
    monkeypatch.setattr(codec_module.zstd_kept, "compressors", {}, raising=False)
    with pytest.raises(UnsupportedFormatError, match=f"{codec.label} needs a missing library"):
        compress(codec, b"x")


def test_without_the_package_lz4_cramjam_compresses_and_all_is_read() -> None:
    program = """
        import sys
        sys.modules["lz4"] = None
        from kseg.format.codec import decompress
        from kseg.format.compress import compress
        for magic in (0, 1, 2):
            for level in (None, 1, 9, 12):
                for data in (b"", b"abc", bytes(200_000), bytes(range(256)) * 600):
                    frame = compress(3, data, magic=magic, level=level)
                    assert bytes(decompress(3, frame, magic=magic, limit=1 << 20)) == data
                    assert len(frame) < 100 + len(data) // 20 or len(data) < 100
    """
    for way in ("packages", "system"):
        environment = {**os.environ, "KSEG_CODECS": way}
        command = [sys.executable, "-c", textwrap.dedent(program)]
        subprocess.run(command, check=True, timeout=60, env=environment)


# zstd's compressors, which are kept


@pytest.fixture
def nothing_kept() -> None:
    codec_module.zstd_kept.__dict__.clear()


@pytest.mark.usefixtures("nothing_kept")
def test_many_levels_do_not_keep_many_compressors() -> None:
    for level in range(-20, 20):
        compress(ZSTD, b"x", level=level)
        assert len(codec_module.zstd_kept.compressors) <= module._ZSTD_KEPT_LEVELS_MAX


@pytest.mark.usefixtures("nothing_kept")
def test_a_compressor_that_grew_large_is_given_up() -> None:
    data = bytes(1 << 21)
    compress(ZSTD, data, level=9)
    assert codec_module.zstd_kept.compressors == {}
    compress(ZSTD, data, level=8)
    assert list(codec_module.zstd_kept.compressors) == [8]


def test_a_forked_child_compresses_with_a_compressor_of_its_own() -> None:
    program = """
        import os
        from kseg.format import compress
        before = compress._compressor(3)
        child = os.fork()
        if child == 0:
            os._exit(int(compress._compressor(3) is before))
        assert before is compress._compressor(3)
        raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(program)], check=True, timeout=60)


# Names


def test_a_codec_is_found_by_its_name() -> None:
    for codec in Compression:
        assert compression_named(codec.label) is codec


@pytest.mark.parametrize("name", ["", "None", "LZ4", "Gzip", "uncompressed", "producer", "lzo"])
def test_names_are_matched_exactly(name: str) -> None:
    with pytest.raises(ValueError, match="no codec is called"):
        compression_named(name)


def test_a_ratio_starts_at_1_and_is_kept_by_topic_and_codec() -> None:
    ratios = RatioEstimator()
    assert ratios.estimate("orders", Compression.GZIP) == 1.0
    ratios.observe("orders", Compression.GZIP, 0.5)
    assert ratios.estimate("orders", Compression.GZIP) < 1.0
    assert ratios.estimate("orders", Compression.ZSTD) == 1.0
    assert ratios.estimate("clicks", Compression.GZIP) == 1.0
    ratios.forget("orders")
    assert ratios.estimate("orders", Compression.GZIP) == 1.0


MOVES = {
    "far below: one step down": (1.0, 0.3, 0.995),
    "just below: down to it": (1.0, 0.998, 0.998),
    "equal: stays": (1.0, 1.0, 1.0),
    "just above: one step up": (1.0, 1.01, 1.05),
    "far above: up to it": (1.0, 1.8, 1.8),
}


@pytest.mark.parametrize(("start", "seen", "after"), MOVES.values(), ids=MOVES)
def test_a_ratio_falls_slowly_and_rises_at_once(start: float, seen: float, after: float) -> None:
    ratios = RatioEstimator()
    assert ratios.estimate("t", Compression.LZ4) == start
    assert ratios.observe("t", Compression.LZ4, seen) == pytest.approx(after, rel=1e-6)
    assert ratios.estimate("t", Compression.LZ4) == pytest.approx(after, rel=1e-6)
