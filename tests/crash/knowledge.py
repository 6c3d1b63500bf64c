"""What a log keeps beside its records, compared with what its records say.

Epochs, producers and aborted transactions can all be told from the batches; here they are, by the
plain second telling of `tests.producing`, and the files that a log was closed with must agree.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Iterator

from kseg.files import producer_snapshot
from kseg.format.header import BatchHeader, scan
from tests.crash.history import Found, ViolationError
from tests.crash.states import Contents
from tests.producing import PlainProducers, Producer


def headers_of(contents: Contents, partition: str, start: int) -> Iterator[BatchHeader]:
    """Of the batches from `start` on, in order."""
    prefix = f"{partition}/"
    for path in sorted(contents):
        if path.startswith(prefix) and path.endswith(".log"):
            yield from (one for one in scan(contents[path] or b"") if one.last_offset >= start)


def check_epochs(contents: Contents, partition: str, found: Found) -> None:
    """Each batch lies in the epoch that it says it is of."""
    data = contents.get(f"{partition}/leader-epoch-checkpoint") or b""
    rows = [tuple(map(int, line.split())) for line in data.decode().splitlines()[2:]]
    starts = [start for _, start in rows]
    for one in headers_of(contents, partition, found.start):
        place = bisect_right(starts, max(one.base_offset, found.start)) - 1
        if place < 0 or rows[place][0] != one.leader_epoch:
            raise ViolationError(
                f"the batch at {one.base_offset} of epoch {one.leader_epoch} is none of {rows}"
            )
    if starts and starts[-1] > found.end:
        raise ViolationError(f"epochs {rows} go past the end, {found.end}")


def check_producers(contents: Contents, partition: str, found: Found) -> None:
    """The snapshot at the end knows what the batches say; aborted transactions are indexed."""
    plain = PlainProducers()
    for one in headers_of(contents, partition, found.start):
        plain.take(one)
    data = contents.get(f"{partition}/{found.end:020d}.snapshot")
    if data is None:
        if plain.producers:
            raise ViolationError(f"there is no snapshot at {found.end}")
        return
    known = {entry.producer_id: entry for entry in producer_snapshot.read(data)}
    for producer, told in plain.producers.items():
        entry = known.get(producer)
        if entry is None:
            raise ViolationError(f"producer {producer} is forgotten")
        _check_entry(producer, entry, told, found.start)
    _check_aborted(contents, partition, found, plain)


def _check_entry(
    producer: int, entry: producer_snapshot.ProducerSnapshotEntry, told: Producer, start: int
) -> None:
    last = told.batches[-1][:2] if told.batches else (entry.last_sequence, entry.last_offset)
    seen = (entry.producer_epoch, entry.last_sequence, entry.last_offset)
    if seen != (told.epoch, *last):
        raise ViolationError(f"producer {producer} is {entry}, and was {told}")
    first = entry.current_txn_first_offset
    if told.first is not None and not (first == told.first or 0 <= first < start):
        raise ViolationError(f"producer {producer}: its transaction began at {told.first}: {entry}")
    if told.first is None and first >= start:
        raise ViolationError(f"producer {producer} has no open transaction: {entry}")


def _check_aborted(contents: Contents, partition: str, found: Found, plain: PlainProducers) -> None:
    indexed: set[tuple[int, ...]] = set()
    for path, data in contents.items():
        if path.startswith(f"{partition}/") and path.endswith(".txnindex"):
            size = len(data or b"") // 34 * 34
            rows = struct.iter_unpack(">hqqqq", (data or b"")[:size])
            indexed |= {row[1:4] for row in rows if row[3] >= found.start}
    told = {row[:3] for row in plain.aborted}
    missing = {row for row in told if not _is_indexed(row, indexed, found.start)}
    excess = {row for row in indexed - told if row[1] >= found.start}
    if missing or excess:
        raise ViolationError(f"aborted transactions: {missing} not indexed, {excess} never were")


def _is_indexed(told: tuple[int, ...], indexed: set[tuple[int, ...]], start: int) -> bool:
    """Of a transaction that began before the log's start, its records do not tell it all."""
    producer, _, last = told
    older = any(row[::2] == (producer, last) and row[1] < start for row in indexed)
    return older or told in indexed
