"""What is measured of groups: the state of a `__consumer_offsets` partition out of all its commits.

The commits are of up to 50,000 groups with 20 partitions each, over and over in another order. The
rival reads the same columns of the same log, and keeps nothing. KSEG_BENCH_COMMITS=10000000 makes
as many as a large cluster has.
"""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from bench import datagen
from bench.case import Case
from bench.pairs import Contest, Versus

if TYPE_CHECKING:
    from contextlib import ExitStack
    from pathlib import Path

COMMITS = int(os.environ.get("KSEG_BENCH_COMMITS", 200_000))
PARTITIONS = 20
GROUPS = min(50_000, COMMITS // PARTITIONS)
START_MS = 1_700_000_000_000
_BATCH_RECORDS = 10


def groups_cases() -> list[Case]:
    """Every case of the group."""
    return [
        Case("groups", f"groups of {COMMITS} commits", "record", partial(_prepare, at=None)),
        Case("groups", "groups at a time", "record", partial(_prepare, at=START_MS + COMMITS // 2)),
    ]


def _prepare(_: ExitStack, *, at: int | None) -> Contest:
    from kseg.analysis.groups import groups
    from kseg.internal.coordinators import COLUMNS
    from kseg.records.scan import scan

    path = partition(COMMITS)

    def state() -> int:
        assert len(groups(path, at=at).commits)
        return COMMITS

    def read() -> int:
        return sum(map(len, scan(path, columns=COLUMNS)))

    return Contest(state, (Versus("read the columns", read),), COMMITS)


def partition(commits: int) -> Path:
    """A partition with so many commits, a millisecond apart; made once."""
    from kseg.format.encode import encode_batches
    from kseg.format.options import BatchOptions

    path = datagen.DATA / f"v{datagen.VERSION}-groups-{commits}" / "__consumer_offsets-0"
    if path.exists():
        return path
    path.mkdir(parents=True)
    rng = np.random.default_rng(41)
    distinct = GROUPS * PARTITIONS
    order = np.empty(0, np.int64)
    with (path / f"{0:020}.log").open("wb") as file:
        for first in range(0, commits, 100_000):
            if len(order) < 100_000:
                order = np.concatenate((order, rng.permutation(distinct)))
            some, order = order[:100_000].tolist(), order[100_000:]
            rows = {
                "key": [_key(number) for number in some],
                "value": [_value(first + at) for at in range(len(some))],
                "timestamp": list(range(START_MS + first, START_MS + first + len(some))),
            }
            for batch in encode_batches(
                rows, BatchOptions(), base_offset=first, batch_records=_BATCH_RECORDS
            ):
                file.write(batch.data)
    return path


def _key(number: int) -> bytes:
    group = b"consumer-group-%06d" % (number % GROUPS)
    topic, partition = b"orders-topic", number // GROUPS
    sized = (len(text).to_bytes(2) + text for text in (group, topic))
    return b"\0\1" + b"".join(sized) + partition.to_bytes(4)


def _value(offset: int) -> bytes:
    numbers = b"\0\3" + offset.to_bytes(8) + (1).to_bytes(4)
    return numbers + b"\0\0" + (START_MS + offset).to_bytes(8)
