"""kseg's side: what a user would write, each call answering how much it did.

A segment is opened once, before the clock starts, as the peers' bytes are; the `fresh` subjects
open it anew in every call.
"""

from __future__ import annotations

import zlib
from contextlib import contextmanager
from struct import pack_into
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Literal
from unittest import mock

from kseg._kernels import inflate
from kseg.files.atomic import replace_file
from kseg.files.checkpoints import LeaderEpochs
from kseg.files.index import OffsetIndex
from kseg.format import codec
from kseg.format.header import scan
from kseg.log.config import LogConfig
from kseg.log.log import Log
from kseg.log.producers.state import ProducerState
from kseg.log.recovery.sweep import sweep_segment
from kseg.log.segment.reader import Segment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import ExitStack
    from pathlib import Path

    from bench.peers import Rows
    from kseg.format.encode import RecordSource
    from kseg.format.options import BatchOptions

    Mapping = Literal["auto", "always", "never"]

#: What the clock shows when appends are checked: records may not be far ahead of it.
NOW_MS = 1_800_000_000_000
#: The least that tells records apart, and what an aiokafka record carries besides headers.
SCALARS = ("offset", "timestamp")
GATHERED = ("offset", "timestamp", "key", "value")
WITH_HEADERS = (*GATHERED, "headers")


def columns(
    path: Path, fields: tuple[str, ...], stack: ExitStack, mapping: Mapping = "always"
) -> Callable[[], int]:
    """Read a segment's columns, each CRC checked; answers records."""
    segment = stack.enter_context(Segment.open(path, mapping=mapping))

    def read() -> int:
        return sum(len(piece) for piece in segment.read(columns=fields))

    return read


def rows(path: Path, stack: ExitStack) -> Callable[[], int]:
    """Take offset, timestamp, key and value of each record of a segment; answers records."""
    segment = stack.enter_context(Segment.open(path, mapping="always"))

    def read() -> int:
        count = 0
        for record in segment.records():
            _ = record.offset, record.timestamp, record.key, record.value
            count += 1
        return count

    return read


def columns_fresh(path: Path, fields: tuple[str, ...]) -> Callable[[], int]:
    """The same, the segment opened in each call."""

    def read() -> int:
        with Segment.open(path, mapping="always") as segment:
            return sum(len(piece) for piece in segment.read(columns=fields))

    return read


@contextmanager
def without_isal() -> Iterator[None]:
    """As on a machine without libdeflate and the `[speed]` extra: gzip goes through zlib."""
    before = inflate.use_libraries(False)
    try:
        with mock.patch.object(codec, "_gzip_library", return_value=zlib):
            yield
    finally:
        inflate.use_libraries(*before)


def verify(path: Path, stack: ExitStack, mapping: Mapping = "always") -> Callable[[], int]:
    """Walk all batches and check each CRC; answers bytes."""
    segment = stack.enter_context(Segment.open(path, mapping=mapping))
    return lambda: _walked(segment)


def _walked(segment: Segment) -> int:
    return max(tile.table.end_position for tile in segment.walk())


def sweep(path: Path, stack: ExitStack, *, install: bool) -> Callable[[], int]:
    """Find, and perhaps install, all that a segment says; answers bytes."""
    segment = stack.enter_context(Segment.open(path, mapping="always"))
    place = stack.enter_context(TemporaryDirectory(prefix="kseg-bench-"))
    config = LogConfig()

    def look() -> int:
        swept = sweep_segment(
            segment, config=config, producers=ProducerState(), epochs=LeaderEpochs()
        )
        if install:
            for name, entries in (
                ("0.index", swept.offset_entries),
                ("0.timeindex", swept.time_entries),
            ):
                replace_file(f"{place}/{name}", entries)
        return swept.valid_bytes

    return look


def verify_fresh(path: Path) -> Callable[[], int]:
    """The same, the segment opened in each call."""

    def walk() -> int:
        with Segment.open(path, mapping="always") as segment:
            return _walked(segment)

    return walk


def headers(path: Path, stack: ExitStack) -> Callable[[], int]:
    """Walk all batches without their CRCs; answers batches."""
    segment = stack.enter_context(Segment.open(path, mapping="always"))
    return lambda: sum(map(len, segment.headers()))


def arrow_table(path: Path, stack: ExitStack) -> Callable[[], int]:
    """What `pa.table` makes of a segment, every field of its records; answers records."""
    import pyarrow as pa

    segment = stack.enter_context(Segment.open(path, mapping="always"))
    return lambda: len(pa.table(segment))


def encode(sources: Sequence[RecordSource], options: BatchOptions) -> Callable[[], int]:
    """Write each source as one batch; answers records."""
    from kseg.format.encode import encode_batch

    def write() -> int:
        return sum(encode_batch(source, options).record_count for source in sources)

    return write


def append_one_by_one(sources: Sequence[Rows]) -> Callable[[], int]:
    """Append each record of each source to a builder and build its batch; answers records."""
    from kseg.format.builder import BatchBuilder

    def write() -> int:
        count = 0
        for rows in sources:
            builder = BatchBuilder(batch_bytes_max=1 << 30)
            append = builder.append
            for timestamp, key, value in rows:
                append(key, value, timestamp_ms=timestamp)
            count += builder.build().record_count
        return count

    return write


def validate_in_place(batches: Sequence[bytes]) -> Callable[[], int]:
    """Check each batch as a leader does and give it its offsets; answers bytes."""
    judge, total = _judge(), sum(map(len, batches))

    def check() -> int:
        offset = 0
        for batch in batches:
            offset = judge(batch, offset) + 1
        return total

    return check


def lookup_one(path: Path, targets: Sequence[int]) -> Callable[[], int]:
    """Look offsets up one by one; answers lookups."""
    index = OffsetIndex.open(path, 0)

    def look() -> int:
        for target in targets:
            index.lookup(target)
        return len(targets)

    return look


def open_log(path: Path, count: int) -> Callable[[], int]:
    """Look at a log; answers segments."""

    def look() -> int:
        with Log.open(path) as log:
            assert len(log.segments) == count
        return count

    return look


def open_for_appending(path: Path, count: int) -> Callable[[], int]:
    """Load a log that was shut down cleanly, and close it; answers segments."""
    config = LogConfig(retention_ms=-1)

    def load() -> int:
        with Log.open(path, mode="append", config=config) as log:
            assert len(log.segments) == count
        return count

    return load


def _log_for(stack: ExitStack, path: Path) -> Log:
    """An empty log."""
    log = Log.open(path, mode="append", create=True, now_ms=lambda: NOW_MS)
    return stack.enter_context(log)


def follow(
    stack: ExitStack, path: Path, pieces: Sequence[bytearray], work: int
) -> Callable[[], int]:
    """Append what a leader has, numbered behind what is there; answers `work`."""
    log = _log_for(stack, path)
    places, count = [], 0
    for piece in pieces:
        table = scan(piece)
        piece_places = []
        for position, records in zip(
            table.position.tolist(), table.record_count.tolist(), strict=True
        ):
            pack_into(">i", piece, position + 12, 0)
            piece_places.append((position, count))
            count += records
        places.append((piece, piece_places))

    def append() -> int:
        end = log.log_end_offset
        for piece, batches in places:
            for position, first in batches:
                pack_into(">q", piece, position, end + first)
            log.append_as_follower(piece)
        return work

    return append


def lead(
    stack: ExitStack,
    path: Path,
    data: Sequence[bytearray],
    work: int,
    *,
    unknown: bool = False,
) -> Callable[[], int]:
    """Append what a producer sends, who may be one that the log does not know; answers `work`."""
    log = _log_for(stack, path)

    def append() -> int:
        if unknown:
            log.expire_producers(now_ms=2 * NOW_MS)
        for batch in data:
            log.append(batch)
        return work

    return append


def _judge() -> Callable[[bytes | bytearray, int], int]:
    """Returns what checks a usual batch as a log does, at an offset; answers its last offset."""
    from kseg._kernels.placement import Places
    from kseg.log.validate.batches import inflate_records

    rules = LogConfig().append_rules()
    places = Places(
        end=2**31,
        latest_max=2**62,
        base=0,
        interval=2**31,
        position=0,
        since=0,
        latest=(-1, 0),
        indexed=-1,
        offset_room=1,
        indexed_time=(-1, 0),
        time_room=1,
    )

    def judge(batch: bytes | bytearray, offset: int) -> int:
        found = places.lead(memoryview(batch), rules, offset, NOW_MS, None, inflate_records)
        assert found is not None
        return int(found[0][2])

    return judge


def check(data: Sequence[bytearray]) -> Callable[[], int]:
    """Validate batches, and write none; answers batches."""
    judge = _judge()

    def validate_all() -> int:
        for batch in data:
            judge(batch, 0)
        return len(data)

    return validate_all


def batch_of(size: int) -> bytes:
    """A batch of about so many bytes, of records of a kilobyte."""
    from kseg.format.encode import encode_batch
    from kseg.format.options import BatchOptions

    value = [bytes(1000)] * (size // 1010)
    times = [NOW_MS] * len(value)
    return encode_batch({"value": value, "timestamp": times}, BatchOptions()).data
