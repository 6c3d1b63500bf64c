"""The lines of indexes and producer snapshots.

Source: Kafka `DumpLogSegments.dumpIndex`, `dumpTimeIndex`, `dumpProducerIdSnapshot`,
`dumpTxnIndex`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from kseg.cli.kafka_dump.lines import Lines, line_pieces
from kseg.cli.rows import RowWriter
from kseg.constants import Int64s
from kseg.errors import CorruptIndexError
from kseg.files import producer_snapshot
from kseg.files.grammar import FileKind, file_name
from kseg.files.index import OffsetIndex, TimeIndex
from kseg.files.txn_index import TxnIndex
from kseg.log.recovery import Finding

_PRODUCER = (
    "producerId: {0.producer_id} producerEpoch: {0.producer_epoch} "
    "coordinatorEpoch: {0.coordinator_epoch} currentTxnFirstOffset: {1} "
    "lastTimestamp: {0.last_timestamp}"
)
_LAST_BATCH = (
    " firstSequence: {0.first_sequence} lastSequence: {0.last_sequence} "
    "lastOffset: {0.last_offset} offsetDelta: {0.offset_delta} timestamp: {0.last_timestamp}"
)
_TXN = (
    "version: {0.version} producerId: {0.producer_id} firstOffset: {0.first_offset} "
    "lastOffset: {0.last_offset} lastStableOffset: {0.last_stable_offset}"
)


def findings_of(log: Path) -> tuple[Finding, ...]:
    """The findings of `kseg verify` on a segment; none without a log.

    Raises:
        OSError: a file cannot be read.
    """
    from kseg.analysis.verify import verify  # logs do without

    return tuple(verify(log).findings) if log.exists() else ()


def faults_of(
    path: Path, findings: Iterable[Finding], *, of_length: bool
) -> list[CorruptIndexError]:
    """Where an index contradicts the log beside it.

    Room behind the used entries is no fault here: a broker's active segment has it.

    Args:
        path: of the index.
        findings: on its segment.
        of_length: whether the length alone counts, as in Kafka's sanity check.
    """
    return [
        CorruptIndexError(finding.message, position=finding.position, offset=finding.offset)
        for finding in findings
        if Path(finding.path) == path
        and finding.severity == "error"
        and finding.code != "index-unused"
        and (not of_length or finding.code.endswith("-length"))
    ]


def print_index(path: Path, writer: RowWriter | None) -> bool:
    """Write a line for each entry of an offset or a time index; returns whether there are any.

    Args:
        path: of the index.
        writer: takes the lines; None writes none.

    Raises:
        CorruptIndexError: the file is damaged.
        OSError: the file cannot be read.
    """
    name = file_name(path)
    is_time = name.kind is FileKind.TIMEINDEX
    kind = TimeIndex if is_time else OffsetIndex
    line = "timestamp: {0} offset: {1}\n" if is_time else "offset: {0} position: {1}\n"
    with kind.open(path, name.base_offset or 0) as index:
        columns: tuple[Int64s, Int64s] = index.entries()
        if index.slots and not index.entry_count:  # the first slot is printed, used or not
            empty = np.zeros(1, np.int64)
            base = np.array([index.base_offset])
            columns = (empty, base) if is_time else (base, empty)
    if writer is not None:
        writer.rows(line_pieces(line, lambda field: columns[int(field)]), len(columns[0]))
    return len(columns[0]) > 0


def lines_of(path: Path, lines: Lines) -> Iterator[str]:
    """A line for each producer of a snapshot, or for each aborted transaction of an index.

    Args:
        path: of the file.
        lines: of the release.

    Raises:
        CorruptIndexError: the file is damaged.
        OSError: the file cannot be read.
    """
    if path.suffix == ".txnindex":
        yield from map(_TXN.format, TxnIndex.open(path).entries())
    else:
        for entry in producer_snapshot.read(path):
            first = entry.current_txn_first_offset
            ongoing = "OptionalLong.empty" if first == -1 else f"OptionalLong[{first}]"
            line = _PRODUCER + _LAST_BATCH if entry.has_batch else _PRODUCER
            yield line.format(entry, ongoing) + ("" if entry.has_batch else lines.last_of_producer)
