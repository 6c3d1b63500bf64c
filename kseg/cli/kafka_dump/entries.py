"""The lines of producer snapshots and transaction indexes.

Source: Kafka 4.2 `DumpLogSegments.dumpProducerIdSnapshot`, `dumpTxnIndex`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from kseg.errors import KsegError
from kseg.files import producer_snapshot
from kseg.files.txn_index import TxnIndex

if TYPE_CHECKING:
    from kseg.files.producer_snapshot import ProducerSnapshotEntry

    Line = Callable[[str], None]


def print_snapshot(path: Path, line: Line) -> str | None:
    """Print a line for each producer; returns what Kafka's tool says of a damaged file."""
    try:
        snapshot = producer_snapshot.read(path)
    except KsegError as error:
        return str(error)
    for entry in snapshot.entries:
        line(_producer(entry))
    return None


def _producer(entry: ProducerSnapshotEntry) -> str:
    first = entry.current_txn_first_offset
    ongoing = "OptionalLong.empty" if first == -1 else f"OptionalLong[{first}]"
    head = (
        f"producerId: {entry.producer_id} producerEpoch: {entry.producer_epoch} "
        f"coordinatorEpoch: {entry.coordinator_epoch} currentTxnFirstOffset: {ongoing} "
        f"lastTimestamp: {entry.last_timestamp} "
    )
    if not entry.has_batch:
        return head
    return head + (
        f"firstSequence: {entry.first_sequence} lastSequence: {entry.last_sequence} "
        f"lastOffset: {entry.last_offset} offsetDelta: {entry.offset_delta} "
        f"timestamp: {entry.last_timestamp}"
    )


def print_txn_index(path: Path, line: Line) -> None:
    """Print a line for each aborted transaction.

    Raises:
        CorruptIndexError: an entry has a version that is not known.
        OSError: the file cannot be read.
    """
    for entry in TxnIndex.open(path).entries():
        line(
            f"version: {entry.version} producerId: {entry.producer_id} "
            f"firstOffset: {entry.first_offset} lastOffset: {entry.last_offset} "
            f"lastStableOffset: {entry.last_stable_offset}"
        )
