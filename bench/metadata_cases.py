"""What is measured of metadata: the state of a cluster out of all records of its log.

The log makes topics of ten partitions, and then changes them: of five records three are changes of
partitions, one sets a configuration, and one has no content. The rival reads the same columns of
the same log, and keeps nothing.
"""

from __future__ import annotations

import random
import struct
from functools import partial
from typing import TYPE_CHECKING

from bench import datagen
from bench.case import Case
from bench.pairs import Contest, Versus

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import ExitStack
    from pathlib import Path

#: A million in the measurement of record; each run of `make bench` takes fewer.
RECORDS = 200_000
PARTITIONS = 10
START_MS = 1_700_000_000_000
_BATCH_RECORDS = 5
_NO_OP = bytes((1, 20, 0, 0))
_DIRECTORIES = bytes((4,)) + bytes(range(48))


def metadata_cases() -> list[Case]:
    """Every case of the group."""
    return [
        Case("metadata", f"metadata of {RECORDS} records", "record", partial(_prepare, RECORDS))
    ]


def _prepare(records: int, _: ExitStack) -> Contest:
    from kseg.log.settings import read_cluster
    from kseg.records.scan import scan

    path = log(records)

    def state() -> int:
        assert read_cluster(path, history=True).end_offset == records
        return records

    def read() -> int:
        return sum(map(len, scan(path, columns=("offset", "timestamp", "key", "value"))))

    return Contest(state, (Versus("read the columns", read),), records)


def log(records: int) -> Path:
    """A metadata log with so many records, a millisecond apart; made once."""
    from kseg.format.encode import encode_batches
    from kseg.format.options import BatchOptions

    path = datagen.DATA / f"v{datagen.VERSION}-metadata-{records}" / "__cluster_metadata-0"
    if path.exists():
        return path
    path.mkdir(parents=True)
    values = [each for _, each in zip(range(records), _values(records // 200), strict=False)]
    times = list(range(START_MS, START_MS + records))
    with (path / f"{0:020}.log").open("wb") as file:
        for batch in encode_batches(
            {"value": values, "timestamp": times}, BatchOptions(), batch_records=_BATCH_RECORDS
        ):
            file.write(batch.data)
    return path


def _values(topics: int) -> Iterator[bytes]:
    chosen = random.Random(43)
    ids = [chosen.randbytes(16) for _ in range(topics)]
    for number, topic_id in enumerate(ids):
        yield bytes((1, 2, 0)) + _text(f"topic-{number}") + topic_id + b"\0"
        for partition in range(PARTITIONS):
            place = struct.pack(">i16s", partition, topic_id)
            replicas = _numbers(1, 2, 3) * 2 + _numbers() * 2
            leader = struct.pack(">iii", 1, 0, 0)
            yield bytes((1, 3, 1)) + place + replicas + leader + _DIRECTORIES + b"\0"
    while True:
        for _ in range(3):
            place = struct.pack(">i16s", chosen.randrange(PARTITIONS), chosen.choice(ids))
            leader = struct.pack(">i", chosen.choice((1, 2)))
            tags = b"\2\0\x09" + _numbers(1, 2) + b"\1\4" + leader
            yield bytes((1, 5, 1)) + place + tags
        owner, value = f"topic-{chosen.randrange(topics)}", str(chosen.randrange(10**9))
        yield b"\1\4\0\2" + b"".join(map(_text, (owner, "retention.ms", value))) + b"\0"
        yield _NO_OP


def _text(text: str) -> bytes:
    return bytes((len(text) + 1,)) + text.encode()


def _numbers(*given: int) -> bytes:
    return bytes((len(given) + 1,)) + struct.pack(f">{len(given)}i", *given)
