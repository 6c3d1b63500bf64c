"""Manifests, chunks and keys of Aiven's plugin: right ones, and each way to be wrong."""

from __future__ import annotations

import base64
import json
import os
from pathlib import Path
from typing import Any

import pytest

import kseg
from kseg.errors import TierError, UnreadableError
from kseg.format.codec import zstd_library
from kseg.log.tier.aiven import ChunkedFile, decode_chunk_sizes, parse_manifest
from kseg.log.tier.tier import Tier

MANIFEST: dict[str, Any] = {
    "version": "1",
    "chunkIndex": {
        "type": "fixed",
        "originalChunkSize": 100,
        "originalFileSize": 250,
        "transformedChunkSize": 100,
        "finalTransformedChunkSize": 50,
    },
    "segmentIndexes": {
        name: {"position": 0, "size": 0}
        for name in ("offset", "timestamp", "producerSnapshot", "leaderEpoch")
    }
    | {"transaction": None},
    "compression": False,
}


def parsed(**changes: Any) -> Any:
    return parse_manifest(json.dumps(MANIFEST | changes).encode(), "the-manifest")


def fixed(**changes: Any) -> dict[str, Any]:
    return {"chunkIndex": MANIFEST["chunkIndex"] | changes}


def variable(table: bytes, **changes: Any) -> dict[str, Any]:
    packed = base64.b64encode(zstd_library().compress(table)).decode()
    index = {"type": "variable", "originalChunkSize": 100, "originalFileSize": 250}
    return {"chunkIndex": index | {"transformedChunks": packed} | changes, "compression": True}


def test_chunks_lie_one_behind_the_other() -> None:
    assert parsed().chunks == (0, 100, 200, 250)
    assert parsed().is_plain
    assert parsed(unknown={"a": 1}).file_size == 250
    table = (3).to_bytes(4) + (10).to_bytes(4) + b"\x01\x05\x07" + (4).to_bytes(4)
    assert parsed(**variable(table)).chunks == (0, 15, 32, 36)
    assert parsed(**fixed(originalFileSize=0)).chunks == (0,)
    large = fixed(originalChunkSize=1 << 30, finalTransformedChunkSize=250)
    assert parsed(**large).chunks == (0, 250)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"version": "2"}, "version is not 1"),
        ({"compression": None}, "neither true nor false"),
        (fixed(type="odd"), "neither fixed nor variable"),
        (fixed(originalChunkSize=0), "not within 1"),
        (
            fixed(originalChunkSize=1 << 30, originalFileSize=1 << 30) | {"compression": True},
            "kseg reads up to",
        ),
        (fixed(originalFileSize=-1), "not within 0"),
        (fixed(originalFileSize=True), "not within 0"),
        (fixed(originalFileSize=2**40), "not within 0"),
        (fixed(originalChunkSize=1, originalFileSize=2**31 - 1), "more than any segment"),
        (fixed(finalTransformedChunkSize=49), "do not sum up"),
        (fixed(transformedChunkSize=101), "do not sum up"),
        ({"segmentIndexes": {}}, "is missing"),
        ({"encryption": {"dataKey": "a:b:c", "aad": ""}}, "not <key pair id>"),
        ({"encryption": {"dataKey": "key1:???", "aad": ""}}, "not a manifest"),
        (variable(b"\0\0\0\x03\0\0"), "cut short"),
        (variable((2).to_bytes(4) + bytes(10)), "2 chunks, the segment 3"),
        (variable((3).to_bytes(4) + (1).to_bytes(4) + b"\x05" + bytes(20)), "cut short"),
        (variable((3).to_bytes(4) + bytes(4) + b"\x01\0\0" + bytes(5)), "extra bytes"),
        (variable((3).to_bytes(4) + b"\x80\0\0\0\x01\0\0" + bytes(4)), "impossible size"),
    ],
)
def test_a_manifest_that_contradicts_itself_is_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(TierError, match=f"^the-manifest: .*{words}"):
        parsed(**changes)


def test_what_is_no_manifest_is_refused() -> None:
    iceberg = {name: value for name, value in MANIFEST.items() if name != "chunkIndex"}
    with pytest.raises(TierError, match="Iceberg"):
        parse_manifest(json.dumps(iceberg).encode(), "x")
    for data in (b"", b"{", b"[" * 100_000, b"\xff\xfe", b"null", b"[]", b"1e999"):
        with pytest.raises(TierError, match=r"^x: "):
            parse_manifest(data, "x")


def test_sizes_of_chunks_are_those_of_the_plugin(vectors_dir: Path) -> None:
    vectors = json.loads(
        (Path(__file__).parents[3] / "conformance" / "vectors" / "tiered.json").read_text()
    )
    for one in vectors["chunk_sizes"]:
        data = base64.b64decode(one["binary"])
        assert decode_chunk_sizes(data, len(one["sizes"])) == one["sizes"]
        with pytest.raises(TierError):
            decode_chunk_sizes(data[:-1], len(one["sizes"]))


# ---- chunks --------------------------------------------------------------------------------------


def compressed(parts: list[bytes]) -> tuple[Any, bytes]:
    """A manifest and an object of these chunks, each of 100 bytes but the last."""
    frames = [zstd_library().compress(part) for part in parts]
    sizes = [len(frame) for frame in frames]
    above = b"".join((size - min(sizes)).to_bytes(4) for size in sizes[:-1])
    head = len(sizes).to_bytes(4) + min(sizes).to_bytes(4) + b"\x04"
    total = sum(map(len, parts))
    table = variable(head + above + sizes[-1].to_bytes(4), originalFileSize=total)
    return parsed(**table), b"".join(frames)


def opened(manifest: Any, data: bytes) -> ChunkedFile:
    return ChunkedFile("the-object", manifest, None, lambda a, b: memoryview(data)[a:b])


def test_any_range_of_a_chunked_segment_is_read() -> None:
    whole = os.urandom(1_030)
    parts = [whole[at : at + 100] for at in range(0, len(whole), 100)]
    with opened(*compressed(parts)) as file:
        for start in range(0, 1_030, 37):
            for size in (1, 99, 100, 101, 2_000):
                assert file.read(start, size) == whole[start : start + size]


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (zstd_library().compress(bytes(99)), "claims 99 bytes, not 100"),
        (zstd_library().compress(bytes(10 << 20)), "claims 10485760 bytes"),
        (b"\0" * 20, "zstd"),
        (zstd_library().compress(bytes(100)) + b"x", "and has others"),
    ],
)
def test_a_chunk_that_is_not_what_it_claims_is_bytes_that_cannot_be_read(
    bad: bytes, words: str
) -> None:
    parts = [bytes([at]) * 100 for at in range(1, 6)]
    manifest, data = compressed(parts)
    frames = [data[a:b] for a, b in zip(manifest.chunks, manifest.chunks[1:], strict=False)]
    frames[2] = bad
    moved = [0]
    for frame in frames:
        moved.append(moved[-1] + len(frame))
    from dataclasses import replace

    with opened(replace(manifest, chunks=tuple(moved)), b"".join(frames)) as file:
        with pytest.raises(UnreadableError, match=words) as caught:
            file.read(0, 500)
        assert (caught.value.path, caught.value.position, caught.value.end) == (
            "the-object",
            200,
            300,
        )
        assert file.read(0, 200) == b"".join(parts[:2])
        assert file.read(300, 200) == b"".join(parts[3:])


# ---- whole tiers ---------------------------------------------------------------------------------


@pytest.fixture
def encrypted(fixtures_dir: Path) -> tuple[Path, dict[str, str]]:
    case = fixtures_dir / "tiered" / "4.2.0-aiven-zstd-encrypted"
    return case / "remote", {key: str(case / f"keys/{key}.private.pem") for key in ("key1", "key2")}


def test_a_key_that_is_missing_or_wrong_is_named(
    encrypted: tuple[Path, dict[str, str]], tmp_path: Path
) -> None:
    remote, keys = encrypted
    with pytest.raises(TierError, match=r"key pair 'key.'; given are: none.*--tier-key key"):
        list(kseg.scan(tmp_path / "plain-0", tier=remote))
    swapped = {"key1": keys["key2"], "key2": keys["key1"]}
    with pytest.raises(TierError, match="is not encrypted with"):
        list(kseg.scan(tmp_path / "plain-0", tier=Tier.of(remote, keys=swapped)))
    (tmp_path / "no.pem").write_text("no key")
    broken = dict.fromkeys(keys, str(tmp_path / "no.pem"))
    with pytest.raises(TierError, match="not a private RSA key"):
        list(kseg.scan(tmp_path / "plain-0", tier=Tier.of(remote, keys=broken)))
