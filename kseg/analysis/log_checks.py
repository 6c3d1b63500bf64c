"""Checks of one log file's batches, a table at a time: the headers, and with `deep` the records.

One pass in file order. Everything is told from columns; nothing looks at single records.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from kseg.analysis.findings import PER_CODE_MAX, Findings
from kseg.constants import (
    BATCH_HEADER_BYTES,
    INT64_MAX,
    NO_TIMESTAMP,
    Compression,
    StopReason,
)
from kseg.errors import (
    CorruptRecordError,
    DecompressionError,
    KsegError,
    LimitExceededError,
)
from kseg.format.columns import decode
from kseg.format.header import CODEC_MASK, CONTROL, stop_code, stop_error
from kseg.format.request import Request
from kseg.format.times import iso_text
from kseg.format.workspace import Workspace

if TYPE_CHECKING:
    import numpy.typing as npt

    from kseg.files.log_file import Tile
    from kseg.format.header import BatchTable

    Mask = npt.NDArray[np.bool_]
    Int64Array = npt.NDArray[np.int64]

_INT32_MAX = 2**31 - 1
_INT64_MIN = _OFFSET_MIN = -(2**63)
_AHEAD_MS = 24 * 60 * 60 * 1000
_RECORD_BYTES_MIN = 7
#: Leader epochs are kept as the offsets where they change; a log with more changes is not real.
EPOCH_CHANGES_MAX = 10_000

#: Ends of a walk that a crash leaves at the end of a partition.
_BENIGN = (StopReason.TORN_TAIL, StopReason.ZERO_TAIL)


@dataclass(slots=True)
class _Odd:
    """Batches with odd times: how many, and the one with the largest time."""

    count: int = 0
    time: int = 0
    position: int = 0
    offset: int = 0

    def note(self, table: BatchTable, times: Int64Array, mask: Mask) -> None:
        """Add the batches of a mask."""
        if not mask.any():
            return
        times = np.where(mask, times, _INT64_MIN)
        row = int(times.argmax())
        if not self.count or int(times[row]) > self.time:
            self.time, self.position = int(times[row]), int(table.position[row])
            self.offset = int(table.last_offset[row])
        self.count += int(np.count_nonzero(mask))


@dataclass(slots=True)
class LogChecks:
    """The state of one walk: what came before the table at hand.

    Attributes:
        path: the log file.
        base_offset: from its name; None for files whose offsets are not told by it.
        is_last: nothing of the partition follows, so a torn tail is benign.
        deep: decode every record, and not only those inside older compressed messages.
        found: where findings go.
        first_offset, last_offset: of the good batches so far.
        epochs: (leader epoch, first offset) where the epoch changes.
        batches, records: counted so far.
        magics_seen: bit n is set where magic n occurs.
        bad_crc_count: batches that do not match their checksums.
        reached: where the last batch so far ends.
        damaged_at: the position of the first damage; None for none.
        damaged_from: the offset behind what is sound in front of it; None if nothing is.
        now_ms: times more than a day behind it are ahead.
    """

    path: str
    base_offset: int | None
    is_last: bool
    deep: bool
    inflated_max: int
    found: Findings
    first_offset: int | None = None
    last_offset: int | None = None
    epochs: list[tuple[int, int]] = field(default_factory=list)
    batches: int = 0
    records: int = 0
    magics_seen: int = 0
    bad_crc_count: int = 0
    reached: int = 0
    damaged_at: int | None = None
    damaged_from: int | None = None
    now_ms: int = INT64_MAX
    _ahead: _Odd = field(default_factory=lambda: _Odd())
    _negative: _Odd = field(default_factory=lambda: _Odd())
    _workspace: Workspace = field(default_factory=Workspace)

    def feed(self, table: BatchTable) -> None:
        """Check the batches of a table, the headers of those that match their checksums."""
        self.batches += len(table)
        self.magics_seen |= table.magics_seen
        good = table
        if table.bad_crc_count:
            self.bad_crc_count += table.bad_crc_count
            bad = table.crc_ok == 0
            self._report_bad_crc(table.take(bad))
            good = table.take(~bad)
            self._note_bad_crc(table, bad)
        if len(good) and not table.kafka07:
            self._check_headers(good)
            self._check_offsets(good)
            self._check_epochs(good)
            self._check_times(good)
        if not self.deep:
            self.records += int(np.maximum(good.record_count, 0).sum())
        if len(table):
            self.reached = int(table.position[-1] + table.size[-1])

    def finish(self, table: BatchTable, size: int) -> None:
        """Judge why the walk ended, in front of which byte; and the times of all of it."""
        self._report_times()
        if table.stop in (StopReason.END, StopReason.LIMIT):
            return
        self.note_damage(table.end_position)
        left = size - table.end_position
        benign = self.is_last and table.stop in _BENIGN
        wanted = f", the batch there wants {table.needed}" if table.needed > left else ""
        self.found.add(
            stop_code(table.stop, is_last=self.is_last),
            self.path,
            f"{stop_error(table).reason}: {left} bytes are left{wanted}",
            position=table.end_position,
            offset=None if self.last_offset is None else self.last_offset + 1,
            severity="warning" if benign else "error",
        )

    def _check_times(self, table: BatchTable) -> None:
        """Note the largest times of batches that no broker would write."""
        times = table.max_timestamp
        self._ahead.note(table, times, times > self.now_ms + _AHEAD_MS)
        first = np.minimum(times, table.base_timestamp)
        # The inverted bits of the least number are the largest; a minus would overflow.
        self._negative.note(table, ~first, first < NO_TIMESTAMP)

    def _report_times(self) -> None:
        """One finding a file: such times come from a producer's clock, and then in numbers."""
        for code, odd, time, word in (
            ("time-ahead", self._ahead, self._ahead.time, "latest"),
            ("time-negative", self._negative, ~self._negative.time, "earliest"),
        ):
            if odd.count:
                many = "1 batch has" if odd.count == 1 else f"{odd.count} batches have"
                text = f"{many} such a time, the {word} {iso_text(time)}"
                self.found.add(code, self.path, text, position=odd.position, offset=odd.offset)

    def _note_bad_crc(self, table: BatchTable, bad: Mask) -> None:
        if self.damaged_at is None:
            first = int(bad.argmax())
            self.damaged_at = int(table.position[first])
            last = int(table.last_offset[:first].max()) if first else self.last_offset
            self.damaged_from = None if last is None else last + 1

    def note_damage(self, position: int) -> None:
        """Keep in mind where the first damage begins, and what is sound in front of it."""
        if self.damaged_at is None:
            self.damaged_at = position
            self.damaged_from = None if self.last_offset is None else self.last_offset + 1

    def _report_bad_crc(self, bad: BatchTable) -> None:
        for header in bad.take(slice(PER_CODE_MAX)):
            offset = header.base_offset if header.base_offset >= 0 else header.last_offset
            if header.magic >= 2 and header.size < BATCH_HEADER_BYTES:
                message = f"{header.size} bytes are fewer than a header's {BATCH_HEADER_BYTES}"
                code = "batch-length"
            else:
                message = f"the checksum stored, {header.crc:#010x}, is not that of the bytes"
                code = "batch-crc"
            self.found.add(code, self.path, message, position=header.position, offset=offset)
        self.found.count_more("batch-crc", self.path, len(bad) - PER_CODE_MAX)

    def _report(self, code: str, table: BatchTable, mask: Mask, message: str) -> None:
        """One finding for each batch of the mask; `message` is filled in from its header."""
        if not mask.any():
            return
        chosen = table.take(mask)
        for header in chosen.take(slice(PER_CODE_MAX)):
            offset = header.base_offset if header.base_offset >= 0 else header.last_offset
            text = message.format(b=header)
            self.found.add(code, self.path, text, position=header.position, offset=offset)
        self.found.count_more(code, self.path, len(chosen) - PER_CODE_MAX)

    def _check_headers(self, table: BatchTable) -> None:
        codec, magic, count = table.codec, table.magic, table.record_count
        if table.attributes_seen & CODEC_MASK:
            unknown = (codec > Compression.ZSTD) | ((codec == Compression.ZSTD) & (magic < 2))
            self._report("batch-codec", table, unknown, "codec {b.codec} in magic {b.magic}")
        if not table.magics_seen & ~3:
            return
        current = magic >= 2
        room = np.where(codec == 0, (table.size - BATCH_HEADER_BYTES) // _RECORD_BYTES_MIN, 2**31)
        deltas = table.last_offset - table.base_offset
        impossible = current & ((count < 0) | (count > room) | (count > deltas + 1))
        text = "{b.record_count} records at {b.base_offset} to {b.last_offset} in {b.size} bytes"
        self._report("batch-count", table, impossible, text)
        lone = table.is_transactional & ~table.is_control & (table.producer_id < 0)
        odd = current & (lone | (table.producer_id < -1))
        self._report("batch-producer", table, odd, "producer id {b.producer_id}")
        if table.attributes_seen & CONTROL:
            blank = table.is_control & (count > 0) & (codec == 0) & (table.control_type < 0)
            self._report("control-record", table, blank, "no control type in the record's key")

    def _check_offsets(self, table: BatchTable) -> None:
        """Offsets grow, and lie where 32 bits from the base offset reach.

        A compressed message of magic 0 or 1 tells only its last offset without being inflated.
        """
        first = np.where(table.base_offset < 0, table.last_offset, table.base_offset)
        negative = (table.magic >= 2) & (table.base_offset < 0)
        text = "offsets {b.base_offset} to {b.last_offset}"
        self._report("offset-range", table, negative | (table.last_offset < first), text)
        if self.base_offset is not None:
            far = (first < self.base_offset) | (table.last_offset - self.base_offset > _INT32_MAX)
            text += f" in a segment that starts at {self.base_offset}"
            self._report("offset-range", table, far & ~negative, text)
        before = np.empty_like(first)
        before[0] = _OFFSET_MIN if self.last_offset is None else self.last_offset
        before[1:] = table.last_offset[:-1]
        running = np.maximum.accumulate(before)
        message = "offsets {b.base_offset} to {b.last_offset} behind higher ones"
        self._report("offset-order", table, first <= running, message)
        if self.first_offset is None:
            self.first_offset = int(first[0])
        self.last_offset = max(int(running[-1]), int(table.last_offset[-1]))

    def _check_epochs(self, table: BatchTable) -> None:
        epochs = table.leader_epoch
        known = (table.magic >= 2) & (epochs >= 0)
        if not known.any():
            return
        table = table if known.all() else table.take(known)
        epochs = table.leader_epoch
        previous = np.empty_like(epochs)
        previous[0] = self.epochs[-1][0] if self.epochs else -1
        previous[1:] = epochs[:-1]
        text = "leader epoch {b.leader_epoch} behind a higher one"
        self._report("leader-epoch-order", table, epochs < previous, text)
        changes = np.flatnonzero(epochs != previous)
        if len(changes) and len(self.epochs) < EPOCH_CHANGES_MAX:
            offsets = table.base_offset[changes].tolist()
            self.epochs += zip(epochs[changes].tolist(), offsets, strict=True)

    # Records.

    def decode(self, tile: Tile) -> None:
        """Decode the records of one tile's batches, those that match their checksums.

        Without `deep` those alone whose messages have checksums of their own, which only inflating
        shows: compressed ones of magic 0 and 1, and of Kafka 0.7.
        """
        good = tile.table
        if not self.deep:
            wrappers = good.is_wrapper
            if not wrappers.any():
                return
            good = good.take(wrappers)
        if good.bad_crc_count:
            good = good.take(good.crc_ok != 0)
        fields = ("offset", "timestamp", "position")
        request = Request(fields, control=True, inflated_max=self.inflated_max)
        pieces = decode(
            tile.data,
            good,
            request,
            base=tile.base,
            workspace=self._workspace,
            on_error=self._report_record,
        )
        for columns in pieces:
            self.records += len(columns)
            if not good.kafka07:
                self._check_records(good, columns.position, columns.offset, columns.timestamp)

    def _report_record(self, error: KsegError) -> None:
        if isinstance(error, DecompressionError):
            code = "record-codec"
        elif isinstance(error, LimitExceededError):
            code = "record-limit"
        elif isinstance(error, CorruptRecordError):
            code = "record-crc"
        else:
            code = "record-structure"
        text = error.reason
        if error.record_index is not None:
            text = f"record {error.record_index}: {text}"
        self.found.add(code, self.path, text, position=error.position, offset=error.offset)

    def _check_records(
        self, table: BatchTable, position: Int64Array, offset: Int64Array, timestamp: Int64Array
    ) -> None:
        """Record offsets grow within their batch's; the latest time is the one in the header.

        A batch whose records are cut between two pieces is judged by what each holds of it.
        """
        starts = np.concatenate(([0], np.flatnonzero(position[1:] != position[:-1]) + 1))
        counts = np.diff(np.append(starts, len(position)))
        batches = table.take(np.searchsorted(table.position, position[starts]))
        last = offset[starts + counts - 1]
        falls = np.flatnonzero(offset[1:] <= offset[:-1])
        falls = falls[position[falls + 1] == position[falls]]
        base = np.where(batches.base_offset < 0, -1, batches.base_offset)
        wrong = np.zeros(len(starts), np.bool_)
        wrong[np.searchsorted(starts, falls, "right") - 1] = True
        # A wrapper of magic 0 or 1 bears its last record's offset, but for some that bear 0.
        bare = (batches.magic < 2) & (batches.last_offset == 0)
        wrong |= (offset[starts] < base) | ((last > batches.last_offset) & ~bare)
        text = "record offsets leave {b.base_offset} to {b.last_offset}, or do not grow"
        self._report("record-offset", batches, wrong, text)
        latest = np.maximum(np.maximum.reduceat(timestamp, starts), -1)
        whole = (batches.magic >= 2) & (batches.record_count == counts)
        told = whole & (batches.timestamp_type == 0)
        text = "timestamp {b.max_timestamp} in the header is not the latest of its records"
        self._report("max-timestamp", batches, told & (latest != batches.max_timestamp), text)
