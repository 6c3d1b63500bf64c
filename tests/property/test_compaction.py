"""Compaction of any log leaves what a plain second implementation says, with any map."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kseg
from kseg.errors import KsegError
from kseg.format import retain
from kseg.log.cleaner import judge
from kseg.log.config import LogConfig
from kseg.log.log import Log
from tests import reference
from tests.builders import GZIP, LZ4, NONE, SNAPPY, ZSTD, Record, batch, control_batch, record
from tests.crash.runs import scratch
from tests.shares import WHOLE

NOW_MS = 1_700_000_000_000
CONFIG = LogConfig(
    segment_bytes=1000, cleanup_policy=frozenset({"compact"}), min_cleanable_dirty_ratio=0.0
)

keys = st.sampled_from([b"a", b"b", b"c", b"", None, b"a longer key than eight bytes"])
values = st.one_of(st.none(), st.binary(max_size=60))
codecs = st.sampled_from([NONE, GZIP, SNAPPY, LZ4, ZSTD])


def records(draw: st.DrawFn) -> list[Record]:
    count = draw(st.integers(1, 5))
    return [record(draw(values), key=draw(keys), timestamp=NOW_MS) for _ in range(count)]


@st.composite
def rows_of_batches(draw: st.DrawFn) -> list[tuple[bytes, bool]]:
    """Batches of a follower, and where the log rolls; some producers end what they began."""
    made: list[tuple[bytes, bool]] = []
    offset = 0
    opened: dict[int, int] = {}
    for _ in range(draw(st.integers(1, 14))):
        producer = draw(st.sampled_from([-1, -1, 7, 8]))
        roll = draw(st.integers(0, 4)) == 0
        if producer in opened and draw(st.booleans()):
            kind = draw(st.sampled_from([0, 1]))
            data = control_batch(kind, base_offset=offset, producer_id=producer)
            opened.pop(producer)
            made.append((data, roll))
            offset += 1
            continue
        given = records(draw)
        fields = {}
        if producer >= 0:
            sequence = opened.get(producer, 0)
            fields = {
                "producer_id": producer,
                "producer_epoch": 0,
                "base_sequence": sequence,
                "transactional": True,
            }
            opened[producer] = sequence + len(given)
        made.append((batch(given, base_offset=offset, codec=draw(codecs), **fields), roll))
        offset += len(given) + draw(st.integers(0, 2))
    return made


@contextmanager
def log_of(made: list[tuple[bytes, bool]], path: Path) -> Iterator[Log]:
    """A log of these batches, rolled behind the last."""
    how = {"mode": "append", "create": True, "config": CONFIG, "now_ms": lambda: NOW_MS}
    with Log.open(path, **how) as log:  # type: ignore[arg-type]
        for data, roll in made:
            log.append_as_follower(data, leader_epoch=0)
            if roll:
                log.roll()
        log.roll()
        yield log


@settings(max_examples=200 if WHOLE else 15, deadline=None)
@given(made=rows_of_batches(), map_bytes=st.sampled_from([48, 96, 1 << 12, 1 << 16]))
def test_cln_22_what_stays_is_what_the_plain_implementation_says(
    made: list[tuple[bytes, bool]], map_bytes: int
) -> None:
    with scratch() as folder:
        with log_of(made, folder / "t-0") as log:
            data = b"".join(info.path.read_bytes() for info in log.segments)
            plan = kseg.plan_compaction(log, force=True, map_bytes=map_bytes)
            wanted = reference.compacted(
                reference.walk(data).batches, end_offset=plan.first_uncleanable_offset
            )
            report = plan.apply()
            left = b"".join(info.path.read_bytes() for info in log.segments)
        # Entries of transactions may begin where compaction has left nothing.
        assert kseg.plan_reindex(folder / "t-0").is_noop
        found = [
            (one.offset, one.key, one.value)
            for each in reference.walk(left).batches
            if not each.is_control
            for one in reference.records(each)
        ]
        assert found == wanted
        assert plan.is_noop or report.end_offset == plan.first_uncleanable_offset


@settings(max_examples=200 if WHOLE else 15, deadline=None)
@given(made=rows_of_batches(), map_bytes=st.sampled_from([96, 1 << 12]))
def test_what_is_known_of_batches_changes_no_byte(
    made: list[tuple[bytes, bool]], map_bytes: int
) -> None:
    """Whether records are read where they lie or as columns, and batches anew one by one or not."""
    assert compacted_files(made, map_bytes) == compacted_files(made, map_bytes, careful=True)


def compacted_files(
    made: list[tuple[bytes, bool]], map_bytes: int, *, careful: bool = False
) -> dict[str, bytes]:
    with scratch() as folder, pytest.MonkeyPatch.context() as patched:
        if careful:
            patched.setattr(judge, "_OFFSETS_PER_BYTE", 0)
            patched.setattr(judge, "_map_arguments", nothing_told)
            patched.setattr(judge.LastOffsets, "put_batches", nothing_in_place)
            patched.setattr(retain._Rewrite, "_are_usual", nothing_usual)
            patched.setattr(retain._Rewrite, "take_located", nothing_located)
        with log_of(made, folder / "t-0") as log:
            log.clean(force=True, map_bytes=map_bytes)
        return {path.name: path.read_bytes() for path in (folder / "t-0").iterdir()}


def nothing_told(whole: object, table: object) -> dict[str, Any]:
    return {}


def nothing_in_place(found: object, *how: object) -> tuple[int, int]:
    return 0, -1


def nothing_located(rewrite: object, keep: object) -> None:
    return None


def nothing_usual(rewrite: Any, piece: Any, numbers: slice) -> Any:
    return np.zeros(numbers.stop - numbers.start, np.bool_)


@pytest.mark.damages("a byte of a segment is flipped under the log")
@settings(max_examples=200 if WHOLE else 15, deadline=None)
@given(
    at=st.integers(0, 2000),
    bits=st.integers(1, 255),
    count=st.integers(1, 6),
    measure=st.booleans(),
)
def test_a_flipped_byte_stops_the_log_or_loses_nothing(
    at: int, bits: int, count: int, measure: bool
) -> None:
    """What no checksum covers may be another; what is decided on is covered, or refused."""
    with scratch() as folder:
        how = {"mode": "append", "create": True, "config": CONFIG, "now_ms": lambda: NOW_MS}
        with Log.open(folder / "t-0", **how) as log:  # type: ignore[arg-type]
            for number in range(count * 3):
                key = b"%d" % (number % 3)
                log.append(batch([record(b"%d" % number, key=key, timestamp=NOW_MS)]))
            log.roll()
            before = {one.key: one.value for one in log.records()}
            path = log.segments[0].path
            noise = bytearray(path.read_bytes())
            noise[at % len(noise)] ^= bits
            path.write_bytes(noise)
            try:
                plan = kseg.plan_compaction(log, force=True, measure=measure)
                plan.apply()
            except KsegError:
                assert path.read_bytes() == noise
                return
            left = {
                one.key: one.value
                for info in log.segments
                for each in reference.walk(info.path.read_bytes()).batches
                for one in reference.records(each)
            }
        assert left == before
