"""A search of mutated logs gives what a look at each record gives, and meets the same faults."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import pytest

import kseg
from tests.builders import GZIP, LZ4, NONE, SNAPPY, ZSTD, record, records_of

CASES = 3_000 if os.environ.get("KSEG_WHOLE") else 40
NEEDLE = b"needle"


def some_log(rng: random.Random) -> bytearray:
    parts, offset = [], 0
    for _ in range(rng.randrange(1, 8)):
        magic = rng.choice((2, 2, 2, 1))
        records = [
            record(
                rng.choice((b"needle in hay", b"hay" * rng.randrange(30), None)),
                key=rng.choice((None, b"k", b"key2")),
                headers=[(b"h", NEEDLE)] * (rng.randrange(2) if magic == 2 else 0),
            )
            for _ in range(rng.randrange(1, 20))
        ]
        codec = rng.choice((NONE, NONE, GZIP, LZ4, SNAPPY, ZSTD if magic == 2 else GZIP))
        parts.append(records_of(records, magic=magic, codec=codec, base_offset=offset))
        offset += len(records)
    return bytearray(b"".join(parts))


def mutate(data: bytearray, rng: random.Random) -> None:
    at = rng.randrange(len(data))
    way = rng.randrange(3)
    if way == 0:
        data[at] ^= 1 << rng.randrange(8)
    elif way == 1:
        del data[at : at + rng.randrange(1, 30)]
    else:
        data[at:at] = bytes(rng.randrange(1, 30))
    if not data:
        data += b"x"


def rows(found: kseg.Scan) -> list[tuple[Any, ...]]:
    return [
        (int(offset), key, value, tuple(headers))
        for columns in found
        for offset, key, value, headers in zip(
            columns["offset"], columns["key"], columns["value"], columns["headers"], strict=True
        )
    ]


def holds(row: tuple[Any, ...]) -> bool:
    _offset, key, value, headers = row
    texts = [key, value, *(text for pair in headers for text in pair)]
    return any(NEEDLE in text for text in texts if text is not None)


@pytest.mark.parametrize("seed", range(CASES))
def test_a_mutated_log_is_searched_as_it_is_read(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    data = some_log(rng)
    for _ in range(rng.randrange(4)):
        mutate(data, rng)
    path = tmp_path / f"{0:020d}.log"
    path.write_bytes(data)
    everything = kseg.scan(path, on_corrupt="skip", mapping=rng.choice(("always", "never")))
    wanted = rows(everything)
    for threads in (1, 2):
        how = {"on_corrupt": "skip", "threads": threads}
        found = kseg.grep(NEEDLE, path, **how)
        assert rows(found) == [row for row in wanted if holds(row)]
        assert len(found.errors) == len(everything.errors)
        by_key = kseg.scan(path, key=b"k", **how)
        assert rows(by_key) == [row for row in wanted if row[1] == b"k"]
        assert len(by_key.errors) == len(everything.errors)
