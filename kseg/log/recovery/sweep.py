"""One walk over a segment that derives its indexes, producers and epochs.

The walk reads the log file once, a tile at a time, and compares checksums. The result is a value,
`Swept`. Nothing here changes a file: recovery decides about the bytes after `Swept.valid_bytes`.

Source: Kafka `LogSegment.recover`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
import numpy.typing as npt

from kseg._kernels.placement import survey_rows
from kseg.constants import INT32_MAX, INT64_MIN, StopReason
from kseg.documents import frozen_dataclass
from kseg.errors import (
    AppendError,
    InvalidRecordError,
    InvalidTxnStateError,
    KsegError,
    OffsetOverflowError,
    OffsetsOutOfOrderError,
    UnsupportedFormatError,
    at_path,
)
from kseg.files.checkpoints import EpochEntry, LeaderEpochs
from kseg.files.index import OFFSET_ENTRY as OFFSET_ENTRY
from kseg.files.index import TIME_ENTRY as TIME_ENTRY
from kseg.files.txn_index import TXN_ENTRY as TXN_ENTRY
from kseg.files.txn_index import AbortedTxn
from kseg.format.header import COLUMN, FIELDS, BatchTable, stop_error
from kseg.log.config import LogConfig
from kseg.log.producers.state import ProducerState
from kseg.log.segment.index_entries import DerivedEntries
from kseg.log.segment.reader import Segment
from kseg.log.validate.rules import LAST_OFFSET_MAX

_LAST_OFFSET: Final = COLUMN["last_offset"]
#: The most findings of a segment that are kept; more would say the same.
_FINDINGS_MAX: Final = 100


@frozen_dataclass
class Swept:
    """The result of one walk over a segment.

    Attributes:
        base_offset: the segment's base offset.
        valid_bytes: where its whole and sound batches end; that is where `error` is, unless a
            producer's batch is the error.
        size: bytes of the log file.
        stop: why the walk ended there; LIMIT where `error` ended it.
        error: a batch that no cut repairs, where the walk ends; None if there is none. Its position
            is the batch's.
        findings: faults that did not end the walk; at most 100.
        next_offset: the offset after the last batch; the base offset without batches.
        offset_entries, time_entries: the bytes of both indexes, with the entry for the largest
            timestamp at the end.
        aborted: entries for the transaction index; None if producers were not followed.
    """

    base_offset: int
    valid_bytes: int
    size: int
    stop: StopReason
    error: KsegError | None
    findings: tuple[KsegError, ...]
    next_offset: int
    offset_entries: bytes
    time_entries: bytes
    aborted: tuple[AbortedTxn, ...] | None

    @property
    def truncated_bytes(self) -> int:
        """Bytes after the last sound batch."""
        return self.size - self.valid_bytes

    @property
    def end_fault(self) -> KsegError | None:
        """The fault that ended the walk: `error`, or one for `stop`; None if it ended in order.

        A torn tail, or one of zeros, is a fault here, but not at the end of a log.
        """
        if self.error is not None or self.stop is StopReason.END:
            return self.error
        nothing = BatchTable(np.empty((0, len(FIELDS)), np.int64), self.valid_bytes, self.stop)
        return stop_error(nothing)

    @property
    def offset_entry_count(self) -> int:
        """The number of entries of the offset index."""
        return len(self.offset_entries) // OFFSET_ENTRY.size

    @property
    def time_entry_count(self) -> int:
        """The number of entries of the time index."""
        return len(self.time_entries) // TIME_ENTRY.size


def sweep_segment(
    segment: Segment,
    *,
    config: LogConfig,
    producers: ProducerState | None = None,
    epochs: LeaderEpochs | None = None,
    careful: bool = True,
    watch: Callable[[BatchTable], None] | None = None,
) -> Swept:
    """Walk a segment once and work out everything that is derived from it.

    Only the entries take memory: no more than the two indexes of `config` can hold. A batch that
    ends at 2^63 - 1 is an `error`: no offset can follow it.

    Without `careful` the walk does the same as Kafka's recovery of the segment. With it, four
    things differ:

    - A magic from 3 to 127 ends the walk. No checksum covers that byte, and Kafka reads each such
      batch for one of magic 2.
    - A batch that does not begin after the one before it, or before the segment's base
      offset, is an `error`. Kafka only checks the last offsets of indexed batches.
    - A batch that breaks the rules of transactions is a finding, and the walk continues. Kafka's
      load of the log fails; if a marker's key is too short it first cuts the bytes after it.
    - An index that is full takes no further entries, as with an append. Kafka gives up.

    Args:
        segment: open for reading.
        config: the log's settings: the interval of index entries and the size of indexes.
        producers: the state at the segment's base offset; updated in place. After an `error` it is
            unusable.
        epochs: the epochs up to there; new ones are added in place, and not written.
        careful: check more than Kafka does.
        watch: called with the headers of sound batches, some at a time, in order.

    Raises:
        UnsupportedFormatError: a file of Kafka 0.7, which has no indexes.
        CorruptRecordError: the file shrank meanwhile.
        OSError: it cannot be read.

    Source: Kafka LogSegment.recover, LogSegment.updateProducerState.
    """
    if segment.kafka07:
        raise UnsupportedFormatError("files of Kafka 0.7 have no indexes", path=segment.path)
    sweep = _Sweep(segment.base_offset, config, producers, epochs, careful=careful)
    sweep.watch = watch
    stop = StopReason.END
    policy = "strict" if careful else "file"
    for tile in segment.walk(on_bad_crc="stop", policy=policy):
        stop = tile.table.stop
        if not sweep.feed(tile.table):
            stop = StopReason.LIMIT
            break
    return sweep.finish(segment, stop)


class _Sweep:
    """The state of one walk: the results of the batches so far; see `sweep_segment`.

    Attributes:
        entries: the entries of both indexes.
        watch: is called with the headers of sound batches.
    """

    def __init__(
        self,
        base_offset: int,
        config: LogConfig,
        producers: ProducerState | None,
        epochs: LeaderEpochs | None,
        *,
        careful: bool,
    ) -> None:
        self.entries = DerivedEntries(base_offset, config, careful=careful)
        self._producers, self._epochs = producers, epochs
        self._careful = careful
        self._base_offset = base_offset
        self._last_offset = base_offset - 1
        #: Whether a batch that is in order may have the last offset of all.
        self._near_end = base_offset >= LAST_OFFSET_MAX - INT32_MAX
        self._aborted: list[AbortedTxn] = []
        self._findings: list[KsegError] = []
        self._error: KsegError | None = None
        self._surveyed = np.empty(5, np.int64)  # memory for the answers of the kernel `survey_rows`
        self.watch: Callable[[BatchTable], None] | None = None

    def feed(self, table: BatchTable) -> bool:
        """Process the next batches; return whether to go on."""
        sound, error = table, None
        in_order, *signs = self._survey(table)
        if in_order < len(table):
            sound, error = table.take(slice(in_order)), self._offset_error(table, in_order)
        if self._near_end and int(sound.last_offset.max(initial=-1)) > LAST_OFFSET_MAX:
            row = int(sound.last_offset.argmax())
            sound, error = sound.take(slice(row)), no_next_offset(int(sound.position[row]))
            _, *signs = self._survey(sound)
        placed, refusal = self.entries.add(sound)
        if refusal is not None:
            sound, error = sound.take(slice(placed)), refusal
            _, *signs = self._survey(sound)
        has_newer_epoch, has_producers, has_old = signs
        # Kafka processes batches one by one, so the first refused batch counts.
        errors = (
            self._note_epochs(sound) if has_newer_epoch else None,
            self._feed_producers(sound, has_producers=has_producers, has_old=has_old),
            error,
        )
        self._error = min(filter(None, errors), key=lambda e: e.position or 0, default=None)
        if self.watch is not None:
            self.watch(sound)
        if len(sound):
            self._last_offset = int(sound.rows[-1, _LAST_OFFSET])
        return self._error is None

    def _survey(self, table: BatchTable) -> tuple[int, bool, bool, bool]:
        """How many batches are in order; whether they have a newer epoch, producers, old magics."""
        latest = None if self._epochs is None else self._epochs.latest
        # If epochs are not requested, no batch counts as having a later one.
        epoch = INT32_MAX if self._epochs is None else -1
        survey_rows(
            table.rows,
            base=self._base_offset,
            before=self._last_offset,
            strict=self._careful,
            epoch=epoch if latest is None else latest.epoch,
            found=self._surveyed,
        )
        count, _records, newer, producers, old = self._surveyed.tolist()
        return count, bool(newer), bool(producers), bool(old)

    # ---- offsets ---------------------------------------------------------------------------------

    def _offset_error(self, table: BatchTable, row: int) -> KsegError:
        """The error of a batch whose offsets are out of order, or too far from the base offset."""
        header = table[row]
        before = int(table.last_offset[row - 1]) if row else self._last_offset
        last = header.last_offset
        first = last if header.magic < 2 else header.base_offset
        # If the next batch has lower offsets, this is wrong, not far away: no checksum covers it.
        is_wrong = row + 1 < len(table) and int(table.last_offset[row + 1]) <= last
        # Compaction before Kafka 1.1 could leave offsets that are too far away.
        if not self._careful or (before < first <= last and not is_wrong):
            return OffsetOverflowError(
                f"it has no 32-bit form relative to {self._base_offset}",
                position=header.position,
                offset=last,
            )
        return OffsetsOutOfOrderError(
            f"offsets {first} to {last} of a batch are out of order after {before}",
            position=header.position,
            offset=last,
        )

    # ---- epochs ----------------------------------------------------------------------------------

    def _note_epochs(self, table: BatchTable) -> KsegError | None:
        """Note the epochs that begin in a table; return the error of the first impossible one."""
        assert self._epochs is not None
        rows = epoch_rows(table, self._epochs)
        negative = rows[table.base_offset[rows] < 0]
        if len(negative):
            row = int(negative[0])
            return AppendError(
                f"an epoch cannot start at offset {table.base_offset[row]}",
                position=int(table.position[row]),
            )
        self._epochs.note(epoch_entries(table, rows))
        return None

    # ---- producers -------------------------------------------------------------------------------

    def _feed_producers(
        self, table: BatchTable, *, has_producers: bool, has_old: bool
    ) -> KsegError | None:
        """Feed the producers; returns the error with which Kafka's load would fail, if any."""
        if self._producers is None:
            return None
        if has_old:
            table = table.take(table.magic >= 2)
        if not len(table):
            return None
        if not has_producers:
            self._producers.map_end_offset = table.end_offset
            return None
        try:
            aborted = self._producers.feed(table, on_error=self._note if self._careful else None)
        except (InvalidTxnStateError, InvalidRecordError) as error:
            return error
        for transaction in aborted:
            last = self._aborted[-1].last_offset if self._aborted else INT64_MIN
            if transaction.last_offset <= last:
                row = int((table.base_offset == transaction.last_offset).argmax())
                return OffsetsOutOfOrderError(
                    f"an aborted transaction does not end after {last}, as the one before does",
                    position=int(table.position[row]),
                    offset=transaction.last_offset,
                ).as_kafka("IllegalArgumentException")
            self._aborted.append(transaction)
        return None

    def _note(self, error: KsegError) -> None:
        if len(self._findings) < _FINDINGS_MAX:
            self._findings.append(error)

    # ---- the end ---------------------------------------------------------------------------------

    def finish(self, segment: Segment, stop: StopReason) -> Swept:
        """The results of the walk."""
        error = self._error
        entries = self.entries
        time_entries = entries.times + entries.closing_entry()
        return Swept(
            base_offset=self._base_offset,
            valid_bytes=entries.position,
            size=segment.size,
            stop=stop,
            error=None if error is None else at_path(error, segment.path),
            findings=tuple(at_path(finding, segment.path) for finding in self._findings),
            next_offset=self._last_offset + 1,
            offset_entries=bytes(entries.offsets),
            time_entries=bytes(time_entries),
            aborted=None if self._producers is None else tuple(self._aborted),
        )


def epoch_rows(table: BatchTable, epochs: LeaderEpochs) -> npt.NDArray[np.intp]:
    """int[k]: the batches with which a leader epoch begins that `epochs` does not have yet."""
    latest = -1 if epochs.latest is None else epochs.latest.epoch
    stated = np.where(table.magic >= 2, table.leader_epoch, -1)
    before = np.maximum.accumulate(np.concatenate(([latest], stated)))[:-1]
    return np.flatnonzero(stated > before)


def epoch_entries(table: BatchTable, rows: npt.NDArray[np.intp]) -> list[EpochEntry]:
    """The epochs that begin with these batches."""
    pairs = zip(table.leader_epoch[rows].tolist(), table.base_offset[rows].tolist(), strict=True)
    return [EpochEntry(epoch, start) for epoch, start in pairs]


def pass_over(error: KsegError) -> None:
    """Ignore violations by a producer, where a sweep notes them."""
    del error


def no_next_offset(position: int | None = None) -> OffsetOverflowError:
    """The error for a batch with the last possible offset, after which no record can come."""
    return OffsetOverflowError(
        "no log can continue after this offset; kseg truncate removes its batch",
        position=position,
        offset=LAST_OFFSET_MAX + 1,
    ).as_kafka("IllegalArgumentException")


# ---- the index entries of a segment's batches ----------------------------------------------------
# `kseg.log.segment.index_entries` decides where entries go, and which batch cannot have its own.
# Source: Kafka `LogSegment.recover`, `OffsetIndex.append`, `TimeIndex.maybeAppend`.
