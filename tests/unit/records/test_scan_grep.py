"""grep: the records that hold something, beside Python's own look at all of them."""

from __future__ import annotations

import random
import re
from pathlib import Path
from typing import Any

import pytest

import kseg
from kseg import grep, scan
from kseg.records.patterns import SEARCHED, Pattern
from tests.builders import (
    GZIP,
    LZ4,
    SNAPPY,
    ZSTD,
    batch,
    record,
    records_of,
    write_segment,
)
from tests.shares import share

WORDS = (b"", b"order", b"Order 7", b"\xff\xfe", "ÄRGER".encode(), b"order-77", b"late", b"x" * 300)


def some_records(rng: random.Random, count: int, *, headers: bool) -> list[Any]:
    found = []
    for at in range(count):
        value = None if rng.random() < 0.1 else b" ".join(rng.choices(WORDS, k=3))
        key = None if rng.random() < 0.2 else rng.choice(WORDS)
        pairs = [(b"h", rng.choice((*WORDS, None)))] * rng.randrange(3) if headers else []
        found.append(record(value, key=key, timestamp=at, headers=pairs))
    return found


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Partitions of all formats and codecs, in batches of several sizes."""
    tmp_path = tmp_path_factory.mktemp("grep")
    rng = random.Random(41)
    for number, (magic, codec) in enumerate(
        [(2, 0), (2, GZIP), (2, SNAPPY), (2, LZ4), (2, ZSTD), (1, 0), (1, ZSTD - 1), (0, GZIP)]
    ):
        parts, offset = [], 0
        for _ in range(12):
            count = rng.choice((1, 5, 40))
            records = some_records(rng, count, headers=magic == 2)
            parts.append(records_of(records, magic=magic, codec=codec, base_offset=offset))
            offset += count
        write_segment(tmp_path / "data" / f"orders-{number}", 0, *parts[:6])
        write_segment(tmp_path / "data" / f"orders-{number}", _offset_of(parts[6]), *parts[6:])
    return tmp_path / "data"


def _offset_of(part: bytes) -> int:
    return int.from_bytes(part[:8], "big")


def texts_of(row: tuple[Any, ...], fields: tuple[str, ...]) -> list[bytes]:
    key, value, headers = row
    found = [key] * ("key" in fields) + [value] * ("value" in fields)
    found += [text for pair in headers for text in pair] if "headers" in fields else []
    return [text for text in found if text is not None]


def rows_of(found: Any) -> list[tuple[int, Any, Any, Any]]:
    return [
        (int(offset), columns.partition, key, value, tuple(headers))
        for columns in found
        for offset, key, value, headers in zip(
            columns["offset"], columns["key"], columns["value"], columns["headers"], strict=True
        )
    ]


LOOKS: tuple[tuple[bytes, dict[str, Any], Any], ...] = (
    (b"order-77", {}, lambda text: b"order-77" in text),
    (b"absent", {}, lambda text: False),
    (b"", {}, lambda text: True),
    (b"\xff", {}, lambda text: b"\xff" in text),
    (b"ORDER", {"ignore_case": True}, lambda text: b"order" in text.lower()),
    ("ärger".encode(), {"ignore_case": True}, lambda text: "ÄRGER".encode() in text),
    ("ä(\\E".encode(), {"ignore_case": True}, lambda text: False),
    (b"order", {"whole": True}, lambda text: text == b"order"),
    (b"ORDER", {"whole": True, "ignore_case": True}, lambda text: text.lower() == b"order"),
    (b"", {"whole": True}, lambda text: text == b""),
    (b"order.7", {"regex": True}, lambda text: re.search(b"order.7", text) is not None),
    (b"order|late", {"regex": True, "whole": True}, lambda text: text in (b"order", b"late")),
)


@pytest.mark.parametrize(
    ("pattern", "options", "holds", "fields"),
    [
        *((*look, SEARCHED) for look in LOOKS),
        *((*look, ("key",)) for look in share(LOOKS, 2, "keys")),
        *((*look, ("headers",)) for look in share(LOOKS, 2, "headers")),
    ],
)
def test_the_records_found_are_those_that_a_look_at_each_finds(
    data: Path, pattern: bytes, options: dict[str, Any], holds: Any, fields: tuple[str, ...]
) -> None:
    everything = rows_of(scan(data))
    for invert, threads in ((False, 1), (False, 2), (True, 2)):
        wanted = [
            row for row in everything if any(map(holds, texts_of(row[2:], fields))) is not invert
        ]
        found = grep(pattern, data, fields=fields, invert=invert, threads=threads, **options)
        assert rows_of(found) == wanted


def test_a_key_is_found_whatever_its_length(tmp_path: Path) -> None:
    keys = [b"", b"k", b"k" * 63, b"k" * 64, b"k" * 9_000, b"k" * 70_000]
    parts = [batch([record(key, key=key)], base_offset=at) for at, key in enumerate(keys)]
    write_segment(tmp_path / "t-0", 0, *parts)
    for at, key in enumerate(keys):
        for found in (scan(tmp_path, key=key), grep(key, tmp_path, fields="key", whole=True)):
            assert [row[0] for row in rows_of(found)] == [at]
            assert found.pieces == 1  # batches with another key were not decoded


def test_context_is_of_the_same_partition_and_each_record_comes_once(data: Any) -> None:
    data = [data / "orders-0", data / "orders-6"]
    everything = rows_of(scan(data))
    for count in (2, 1_000):
        hits = [b"order-77" in (row[3] or b"") for row in everything]
        near = [
            any(
                hits[other] and everything[other][1] == row[1]
                for other in range(max(0, at - count), min(len(hits), at + count + 1))
            )
            for at, row in enumerate(everything)
        ]
        for threads, max_rows in ((1, 65_536), (2, 3)):
            found = grep(
                "order-77", data, fields="value", context=count, threads=threads, max_rows=max_rows
            )
            assert rows_of(found) == [
                row for row, kept in zip(everything, near, strict=True) if kept
            ]
            marks = [mark for columns in found for mark in columns["matched"].tolist()]
            assert marks == [hit for hit, kept in zip(hits, near, strict=True) if kept]


def test_a_pattern_that_is_none_is_refused(data: Path) -> None:
    for options, words in (
        ({"regex": True}, "Invalid regular expression"),
        ({"fields": "body"}, "fields are some of key, value, headers"),
        ({"context": -1}, "context is -1"),
    ):
        with pytest.raises(ValueError, match=words):
            grep("(", data, **options)
    for pattern in (None, 3, ["a"]):
        with pytest.raises(TypeError, match="pattern is text or bytes"):
            kseg.grep(pattern, data)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="Invalid regular expression"):
        grep("a)|(b", data, regex=True, whole=True)
    with pytest.raises(ValueError, match="not UTF-8"):
        grep(b"\xff", data, regex=True)
    with pytest.raises(ValueError, match="pattern too large"):
        grep("a" * 1_000_000, data, regex=True)
    assert rows_of(grep("a" * 1_000_000, data)) == []


def test_frames_counts_and_files_of_a_search(data: Path) -> None:
    found = grep("order-77", data, columns=("partition", "offset"))
    total = found.count()
    assert total == found.to_arrow().num_rows == len(found.lazy().collect()) > 0
    assert found.to_arrow().column_names == ["partition", "offset"]
    assert "pattern=b'order-77'" in repr(found)
    with pytest.raises(ValueError, match="by pyarrow"):
        found.to_parquet(data / "out")


def test_the_needle_of_a_pattern_leaves_out_letters_with_another_case() -> None:
    """The sign of Kelvin is a k, and long s is an s, where case does not count."""
    assert Pattern("ärgerk".encode(), ignore_case=True).needle == (b"rger", True)
    assert Pattern(b"a", invert=True).needle == Pattern(b"a", regex=True).needle == (b"", False)
