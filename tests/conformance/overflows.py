"""A directory with a segment that overflows, as Kafka's LogTestUtils makes it.

Compaction before 1.1 could leave offsets in a segment that have no relative form there.
"""

from __future__ import annotations

from pathlib import Path

from kseg.log.log import Log
from tests.builders import write_segment
from tests.conformance.logs import INT_MAX, one
from tests.reference import walk

#: What a segment without overflow holds, from its base on, and how far the next one lies.
RUN = ((0, 1), (1, 2), (INT_MAX - 1, 1))
STRIDE = INT_MAX + 1


def run_at(base: int) -> bytes:
    """Batches at base, base + 1 (two records), and the last offset that still fits."""
    return b"".join(
        one(b"%d" % (base + delta), base_offset=base + delta, count=count, leader_epoch=0)
        for delta, count in RUN
    )


def overflowing(path: Path) -> list[bytes | None]:
    """Three segments, the middle one with two runs; empty indexes, so that none is missing."""
    starts = [0, STRIDE, 2 * STRIDE, 3 * STRIDE]
    for base, runs in ((starts[0], starts[:1]), (starts[1], starts[1:3]), (starts[3], starts[3:])):
        write_segment(path, base, *(run_at(start) for start in runs))
        write_segment(path, base, suffix=".index")
        write_segment(path, base, suffix=".timeindex")
    with Log.open(path) as log:
        return [found.value for found in log.records()]


def has_overflow(path: Path) -> bool:
    """Whether a batch lies before its file's base, or too far behind it."""
    base = int(path.stem)
    spans = [(b.base_offset, b.last_offset) for b in walk(path.read_bytes()).batches]
    return any(first < base or last > base + INT_MAX for first, last in spans)
