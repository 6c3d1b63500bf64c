"""The checks of `verify`: one segment, the files beside segments, and checks across files.

`examine_segment` walks a log file once and compares its indexes on the way. `LogChecks` takes the
headers a table at a time, and with `deep` the records; it works on columns, never on single
records. `check_across` joins facts of all segments of a partition, and of the partitions of a data
directory. Only two segments that hold the same offsets are walked again, to compare their bytes.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from itertools import pairwise, zip_longest
from operator import or_
from pathlib import Path
from typing import Any, Final

import numpy as np

from kseg.analysis.units import Unit
from kseg.analysis.values import (
    CheckpointSummary,
    Examined,
    Findings,
    PartitionSummary,
    SegmentSummary,
)
from kseg.constants import (
    BATCH_HEADER_BYTES,
    INT32_MAX,
    INT64_MIN,
    NO_TIMESTAMP,
    TAILS,
    Bools,
    Compression,
    Int64s,
    StopReason,
)
from kseg.errors import (
    CorruptIndexError,
    CorruptRecordError,
    DecompressionError,
    KsegError,
    LimitExceededError,
    NotALogError,
    UnreadableError,
)
from kseg.files import checkpoints, io, metadata, producer_snapshot
from kseg.files.checkpoints import EpochEntry, assign_epochs
from kseg.files.log_file import LogFile, OnUnreadable, Tile
from kseg.files.mapping import MappedFile, Mapping, held_by_another
from kseg.files.names import (
    CLUSTER_METADATA,
    DataDirectory,
    FileKind,
    NamedFile,
    PartitionFiles,
    file_name,
    parse_name,
)
from kseg.files.producer_snapshot import ProducerSnapshotEntry
from kseg.format.columns import decode
from kseg.format.header import (
    CODEC_MASK,
    CONTROL,
    FIELDS,
    TRANSACTIONAL,
    BatchTable,
    stop_code,
    stop_error,
)
from kseg.format.request import Request
from kseg.format.times import DAY_MS, iso_text
from kseg.format.workspace import Workspace
from kseg.frozen import frozen_dataclass
from kseg.log import settings
from kseg.log.clock import now_of
from kseg.log.config import COMPACT
from kseg.log.data_directory import EntryKind, entry_of
from kseg.log.recovery import (
    CHECKED,
    PER_CODE_MAX,
    IndexChecks,
    IndexPlace,
    Lost,
    TxnTrail,
    judge_transactions,
    lost_ranges,
)
from kseg.stores.path import is_remote, name_of

_WINDOW_BYTES = 1 << 20


#: The batches of a file that hold offsets of a range: the path, the first byte and the end.
_Stretch = tuple[str, int, int]


def describe_overlap(earlier: SegmentSummary, later: SegmentSummary) -> str:
    """Where two segments hold the same offsets, and whether the bytes differ, for a message."""
    first = max(later.base_offset, later.first_offset or 0)
    last = min(earlier.last_offset or 0, later.last_offset or 0)
    if later.last_offset is None or first > last:
        return ""
    try:
        stretches = [_stretch(segment.path, first, last) for segment in (earlier, later)]
        differ = "are the same" if _same(*stretches) else "differ"
    except (KsegError, OSError):
        return f"; both hold offsets {first} to {last}, which could not be compared"
    places = " and ".join(f"{os.path.basename(path)} @ {start}" for path, start, _ in stretches)
    return f"; both hold offsets {first} to {last}, {places}, and their bytes {differ}"


def _stretch(path: str, first: int, last: int) -> _Stretch:
    start = end = 0
    with LogFile.open(path, "never") as log:
        for table in log.headers():
            touched = (table.last_offset >= first) & (table.base_offset <= last)
            if touched.any():
                held = table.take(touched)
                start = start if end else int(held.position[0])
                end = int(held.position[-1] + held.size[-1])
    return path, start, end


def _same(earlier: _Stretch, later: _Stretch) -> bool:
    if earlier[2] - earlier[1] != later[2] - later[1]:
        return False
    return all(a == b for a, b in zip_longest(_windows(earlier), _windows(later)))


def _windows(stretch: _Stretch) -> Iterator[bytes]:
    path, start, end = stretch
    with MappedFile.open(path, "never") as file:
        for at in range(start, end, _WINDOW_BYTES):
            yield bytes(file.read(at, min(_WINDOW_BYTES, end - at)))


def check_across(examined: Examined, findings: Findings) -> None:
    """Compare segments with each other, and with the small files that describe them."""
    by_partition: dict[str, list[SegmentSummary]] = defaultdict(list)
    for segment in examined.segments:
        by_partition[segment.partition].append(segment)
    ends = {}  # the end of a log is not known if its last batches are damaged
    for path, segments in by_partition.items():
        segments.sort(key=lambda segment: segment.base_offset)
        _check_segments(segments, findings)
        _check_gaps(path, segments, findings)
        if segments[-1].whole:
            ends[path] = segments[-1].end_offset
    started = {
        checkpoint.directory.rstrip(os.sep): checkpoint.offsets
        for checkpoint in examined.checkpoints
        if checkpoint.name == FileKind.LOG_START.value
    }
    for partition in examined.partitions:
        if partition.path not in by_partition:
            ends[partition.path] = 0
        segments = by_partition.get(partition.path, [])
        if segments and not segments[0].kafka07:
            end = ends.get(partition.path)
            _check_snapshots(partition, end, findings)
            facts = (
                (segment.base_offset, segment.whole, segment.transactions) for segment in segments
            )
            judge_transactions(partition.begun, facts, findings)
            starts = started.get(os.path.dirname(partition.path))
            has_starts = starts is not None and partition.key not in starts
            _check_epochs(partition, end, segments, findings, has_starts=has_starts)
    for checkpoint in examined.checkpoints:
        _check_offsets(checkpoint, ends, examined.partitions, findings)


def _check_segments(segments: Sequence[SegmentSummary], findings: Findings) -> None:
    farthest = segments[0]  # of those in front: it may go on past more than one
    for before, segment in pairwise(segments):
        if (before.last_offset or -1) >= (farthest.last_offset or -1):
            farthest = before
        name = os.path.basename(farthest.path)
        last = farthest.last_offset
        if last is not None and last >= segment.base_offset and not segment.kafka07:
            findings.say(
                "offset-order.segments",
                segment.path,
                position=0,
                offset=segment.base_offset,
                name=name,
                last=last,
                overlap=describe_overlap(farthest, segment),
            )
        name = os.path.basename(before.path)
        if before.epochs and segment.epochs and segment.epochs[0][0] < before.epochs[-1][0]:
            epoch, offset = segment.epochs[0]
            findings.say(
                "leader-epoch-order.segments",
                segment.path,
                offset=offset,
                epoch=epoch,
                before=before.epochs[-1][0],
                name=name,
            )


def _check_gaps(partition: str, segments: Sequence[SegmentSummary], findings: Findings) -> None:
    """Offsets that no segment has, and compaction did not take.

    Either the policy is known, or the segments on both sides have a record for each offset.
    """
    gaps = [
        (before, segment)
        for before, segment in pairwise(segments)
        if before.whole and not segment.kafka07 and segment.base_offset > before.end_offset
    ]
    policy = _known_policy(partition) if gaps else None
    for before, segment in gaps:
        if COMPACT in policy if policy else not (before.dense and segment.dense):
            continue
        last = segment.base_offset - 1
        findings.say("segment-gap", segment.path, offset=before.end_offset, last=last)


def _known_policy(partition: str) -> str | None:
    """The cleanup policy of a partition's topic; None where it is not known."""
    home = os.path.dirname(os.path.realpath(partition))
    if os.path.basename(partition).startswith("__"):
        return COMPACT
    try:
        values = settings.settings(home).of(partition).values
    except (KsegError, OSError, ValueError):
        return None
    policy = values.get("cleanup.policy")
    # A default is a guess: the broker's file, which is not here, may say otherwise.
    return None if policy is None or policy.source == "default" else policy.value


def _check_snapshots(partition: PartitionSummary, end: int | None, findings: Findings) -> None:
    for path, offset in partition.snapshots:
        if end is not None and offset > end:
            findings.say(
                "snapshot-ahead",
                path,
                offset=offset,
                severity="warning" if partition.live else None,
                end=end,
            )


def _check_epochs(
    partition: PartitionSummary,
    end: int | None,
    segments: Sequence[SegmentSummary],
    findings: Findings,
    *,
    has_starts: bool,
) -> None:
    """Each change of epoch in the log must agree with the checkpoint's entry for that offset.

    Kafka moves the first entry with the log's start; a log with a tier has a line of its own among
    the log starts, which `has_starts` excludes.
    """
    # As in Kafka: a change of epoch displaces later entries that contradict it.
    entries = (EpochEntry(*change) for segment in segments for change in segment.epochs)
    changes = assign_epochs(entries)
    is_empty = partition.epochs is not None and not partition.epochs
    if partition.epochs_path is None or is_empty:
        # A topic that was set to an older format has had its checkpoint deleted.
        older = any(segment.magics_seen & 3 for segment in segments)
        if changes and not older and not partition.bare:
            findings.say("epochs-missing", partition.path)
        return
    epochs = partition.epochs
    if epochs is None:
        return
    if epochs and has_starts and epochs[0][1] < segments[0].base_offset:
        findings.say(
            "segment-gap.epochs",
            segments[0].path,
            offset=epochs[0][1],
            last=segments[0].base_offset - 1,
        )
    if epochs and end is not None and epochs[-1][1] > end:
        findings.say(
            "epochs-ahead",
            partition.epochs_path,
            offset=epochs[-1][1],
            severity="warning" if partition.live else None,
            epoch=epochs[-1][0],
            end=end,
        )
    starts = [start for _, start in epochs]
    for epoch, offset in changes:
        at = bisect_right(starts, offset) - 1
        # Offsets before the first entry were deleted by moving the log start.
        if at >= 0 and epochs[at][0] != epoch:
            findings.say(
                "epochs-wrong",
                partition.epochs_path,
                offset=offset,
                epoch=epoch,
                stated=epochs[at][0],
            )


def _check_offsets(
    checkpoint: CheckpointSummary,
    ends: dict[str, int],
    partitions: Iterable[PartitionSummary],
    findings: Findings,
) -> None:
    home = checkpoint.directory.rstrip(os.sep)
    by_key = {
        partition.key: partition
        for partition in partitions
        if os.path.dirname(partition.path) == home
    }
    starts = checkpoint.name == FileKind.LOG_START.value
    is_flushed = checkpoint.name == FileKind.RECOVERY_POINT.value
    for key, offset in checkpoint.offsets.items():
        partition = by_key.get(key)
        end = None if partition is None else ends.get(partition.path)
        if partition is not None and end is not None and offset > end:
            many = "1 record is" if offset - end == 1 else f"{offset - end} records are"
            findings.say(
                "log-start-ahead" if starts else "checkpoint-ahead",
                checkpoint.path,
                offset=offset,
                severity=None if starts or (is_flushed and not partition.live) else "warning",
                topic=key[0],
                partition=key[1],
                end=end,
                missing=many if is_flushed else None,
            )


_AHEAD_MS = DAY_MS
#: Numbers of seconds from 2001 to 2096; as milliseconds they are days of 1970.
_SECONDS_MIN = 10**9
_SECONDS_MAX = 4 * 10**9
_RECORD_BYTES_MIN = 7
#: Leader epochs are kept as the offsets where they change; a log with more changes is not real.
EPOCH_CHANGES_MAX = 10_000


#: The bytes that a batch may inflate to.
INFLATED_BYTES_MAX: Final = 128 << 20


@frozen_dataclass
class VerifyOptions:
    """The options of an examination.

    Attributes:
        deep: decode every record too, and not only those inside older compressed messages.
        inflated_max: with `deep`, no batch may inflate to more bytes.
        mapping: see `kseg.files.mapping`.
        now_ms: times more than a day behind it are ahead; the machine's clock if None.
        sequences: look for gaps and doubles in the sequences of producers.
    """

    deep: bool = False
    inflated_max: int = INFLATED_BYTES_MAX
    mapping: Mapping = "auto"
    now_ms: int | None = None
    sequences: bool = False


@dataclass(slots=True)
class LogChecks:
    """The state of one walk.

    Attributes:
        unit: the log file; nothing follows a last one, so a torn tail is benign.
        options: how closely to look.
        findings: what is wrong so far.
        first_offset, last_offset: of the good batches so far.
        epochs: (leader epoch, first offset) where the epoch changes.
        batches, records: counted so far.
        magics_seen: bit n is set where magic n occurs.
        bad_crc_count: batches that do not match their checksums.
        reached: where the last batch so far ends.
        damaged_at: the position of the first damage; None for none.
        damaged_from: the offset behind the sound batches in front of the damage; None without any.
        dense: whether each offset from the base offset on has a record.
    """

    unit: Unit
    options: VerifyOptions
    findings: Findings
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
    dense: bool = True
    #: By code the number of batches with odd times; and the largest time, with its place.
    _odd_times: dict[str, tuple[int, tuple[int, int, int]]] = field(default_factory=dict)
    _has_transactions: bool = False
    _has_plain: bool = False
    _open: set[int] = field(default_factory=set)
    _workspace: Workspace = field(default_factory=Workspace)

    def feed(self, table: BatchTable) -> None:
        """Check the batches of a table; fields of headers only where checksums match."""
        self.batches += len(table)
        self.magics_seen |= table.magics_seen
        good = table
        if table.bad_crc_count:
            self.bad_crc_count += table.bad_crc_count
            bad = table.crc_ok == 0
            self._report_bad_crc(table.take(bad))
            good = table.take(~bad)
            first = int(bad.argmax())
            last = int(table.last_offset[:first].max()) if first else self.last_offset
            self.note_damage(int(table.position[first]), last)
        if len(good) and not table.kafka07:
            self._check_headers(good)
            self._check_offsets(good)
            self._check_epochs(good)
            self._check_times(good)
        if not self.options.deep:
            self.records += int(np.maximum(good.record_count, 0).sum())
        if len(table):
            self.reached = int(table.position[-1] + table.size[-1])

    def finish(
        self, table: BatchTable, size: int, headers: Callable[[], Iterable[BatchTable]]
    ) -> None:
        """Judge why the walk ended, in front of which byte; and the times of all of it.

        Few files have both transactions and other batches with producers: the headers of these are
        read once more, unless damage hides some.
        """
        # One finding for the file: a producer's clock causes many such times at once.
        for code in ("time-ahead", "time-negative", "time-in-seconds"):
            if code in self._odd_times:
                count, (time, position, offset) = self._odd_times[code]
                many = "1 batch has" if count == 1 else f"{count} batches have"
                self.findings.say(
                    code,
                    self.unit.path,
                    position=position,
                    offset=offset,
                    many=many,
                    time=iso_text(~time if code == "time-negative" else time),
                )
        if self._has_transactions and self._has_plain and self.damaged_at is None:
            for batches in headers():
                self._check_transactions(batches)
        if table.stop in (StopReason.END, StopReason.LIMIT):
            return
        self.note_damage(table.end_position, self.last_offset)
        left = size - table.end_position
        benign = self.unit.is_last and table.stop in TAILS
        self.findings.say(
            stop_code(table.stop, is_last=self.unit.is_last),
            self.unit.path,
            position=table.end_position,
            offset=None if self.last_offset is None else self.last_offset + 1,
            severity="warning" if benign else "error",
            reason=stop_error(table).reason,
            left=left,
            needed=table.needed if table.needed > left else None,
        )

    def _check_times(self, table: BatchTable) -> None:
        """Note the largest times of batches that no broker would write."""
        times = table.max_timestamp
        first = np.minimum(times, table.base_timestamp)
        # The inverted bits of the least number are the largest; a minus would overflow.
        for code, values, mask in (
            ("time-ahead", times, times > now_of(self.options.now_ms) + _AHEAD_MS),
            ("time-negative", ~first, first < NO_TIMESTAMP),
            ("time-in-seconds", times, (times >= _SECONDS_MIN) & (times < _SECONDS_MAX)),
        ):
            if mask.any():
                row = int(np.where(mask, values, INT64_MIN).argmax())
                largest_of_table = (
                    int(values[row]),
                    int(table.position[row]),
                    int(table.last_offset[row]),
                )
                count, largest = self._odd_times.get(code, (0, largest_of_table))
                largest = largest_of_table if largest_of_table[0] > largest[0] else largest
                self._odd_times[code] = count + int(np.count_nonzero(mask)), largest

    def note_damage(self, position: int, last_offset: int | None) -> None:
        """Remember where the first damage begins, and the last sound offset in front of it."""
        if self.damaged_at is None:
            self.damaged_at = position
            self.damaged_from = None if last_offset is None else last_offset + 1

    def _report_bad_crc(self, bad: BatchTable) -> None:
        short = (bad.magic >= 2) & (bad.size < BATCH_HEADER_BYTES)
        self._report("batch-length.short", bad, short)
        self._report("batch-crc", bad, ~short)

    def _report(self, sentence: str, table: BatchTable, mask: Bools) -> None:
        """One finding for each batch of the mask, `b` in the sentence."""
        if not mask.any():
            return
        chosen = table.take(mask)
        path = self.unit.path
        for header in chosen.take(slice(PER_CODE_MAX)):
            offset = header.base_offset if header.base_offset >= 0 else header.last_offset
            self.findings.say(
                sentence,
                path,
                position=header.position,
                offset=offset,
                b=header,
                base=self.unit.base_offset,
            )
        code = sentence.partition(".")[0]
        self.findings.count_more(code, path, len(chosen) - PER_CODE_MAX)

    def _check_headers(self, table: BatchTable) -> None:
        codec, magic, count = table.codec, table.magic, table.record_count
        if table.attributes_seen & CODEC_MASK:
            unknown = (codec > Compression.ZSTD) | ((codec == Compression.ZSTD) & (magic < 2))
            self._report("batch-codec", table, unknown)
        if not table.magics_seen & ~3:
            return
        current = magic >= 2
        room = np.where(codec == 0, (table.size - BATCH_HEADER_BYTES) // _RECORD_BYTES_MIN, 2**31)
        deltas = table.last_offset - table.base_offset
        impossible = current & ((count < 0) | (count > room) | (count > deltas + 1))
        self._report("batch-count", table, impossible)
        lone = table.is_transactional & ~table.is_control & (table.producer_id < 0)
        odd = current & (lone | (table.producer_id < -1))
        self._report("batch-producer", table, odd)
        self._has_transactions |= bool(table.attributes_seen & TRANSACTIONAL)
        if not self._has_plain:  # of an idempotent producer
            plain = table.attributes & (TRANSACTIONAL | CONTROL) == 0
            self._has_plain = bool((plain & (table.producer_id >= 0)).any())
        if table.attributes_seen & CONTROL:
            blank = table.is_control & (count > 0) & (codec == 0) & (table.control_type < 0)
            self._report("control-record", table, blank)

    def _check_transactions(self, table: BatchTable) -> None:
        """Find batches without a transaction, of producers that have one open.

        Source: Kafka `ProducerAppendInfo.appendDataBatch`.
        """
        order = np.argsort(table.producer_id, kind="stable")
        ids = table.producer_id[order]
        begins = (table.is_transactional & ~table.is_control)[order]
        plain = ~(table.is_transactional | table.is_control)[order] & (ids >= 0)
        last = np.maximum.accumulate(np.where(plain, -1, np.arange(len(ids))))
        is_told = last >= np.searchsorted(ids, ids)  # the producer's last batch before is here
        is_open = np.where(is_told, begins[last], np.isin(ids, list(self._open)))
        mixed = np.zeros(len(ids), np.bool_)
        mixed[order] = plain & is_open
        self._report("transaction-mixed", table, mixed)
        ends = np.append(ids[1:] != ids[:-1], True) & (ids >= 0)
        self._open -= set(ids[ends].tolist())
        self._open |= set(ids[ends & is_open].tolist())

    def _check_offsets(self, table: BatchTable) -> None:
        """Offsets grow, and lie where 32 bits from the base offset reach.

        The header of a compressed message of magic 0 or 1 has only its last offset.
        """
        first = np.where(table.base_offset < 0, table.last_offset, table.base_offset)
        negative = (table.magic >= 2) & (table.base_offset < 0)
        self._report("offset-range", table, negative | (table.last_offset < first))
        if self.unit.base_offset is not None:
            deltas = table.last_offset - self.unit.base_offset
            far = (first < self.unit.base_offset) | (deltas > INT32_MAX)
            self._report("offset-range.segment", table, far & ~negative)
        before = INT64_MIN if self.last_offset is None else self.last_offset
        running = np.maximum.accumulate(np.concatenate(([before], table.last_offset[:-1])))
        self._report("offset-order", table, first <= running)
        expected = self.unit.base_offset if self.last_offset is None else self.last_offset + 1
        self.dense &= table.is_dense and int(first[0]) == expected
        if self.first_offset is None:
            self.first_offset = int(first[0])
        self.last_offset = max(int(running[-1]), int(table.last_offset[-1]))

    def _check_epochs(self, table: BatchTable) -> None:
        epochs = table.leader_epoch
        has_epoch = (table.magic >= 2) & (epochs >= 0)
        if not has_epoch.any():
            return
        table = table if has_epoch.all() else table.take(has_epoch)
        epochs = table.leader_epoch
        before = self.epochs[-1][0] if self.epochs else -1
        previous = np.concatenate(([before], epochs[:-1]))
        self._report("leader-epoch-order", table, epochs < previous)
        changes = np.flatnonzero(epochs != previous)
        if len(changes) and len(self.epochs) < EPOCH_CHANGES_MAX:
            offsets = table.base_offset[changes].tolist()
            self.epochs += zip(epochs[changes].tolist(), offsets, strict=True)

    # Records.

    def decode(self, tile: Tile) -> None:
        """Decode the records of one tile's batches whose checksums match.

        Without `deep` those alone whose messages have checksums of their own, which only inflating
        shows: compressed ones of magic 0 and 1, and of Kafka 0.7.
        """
        good = tile.table
        if not self.options.deep:
            wrappers = good.is_wrapper
            if not wrappers.any():
                return
            good = good.take(wrappers)
        if good.bad_crc_count:
            good = good.take(good.crc_ok != 0)
        fields = ("offset", "timestamp", "position")
        request = Request(fields, control=True, inflated_max=self.options.inflated_max)
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
                self._check_records(good, columns.position, columns.offset, columns.timestamp_ms)

    def _report_record(self, error: KsegError) -> None:
        codes = (code for kind, code in _OF_RECORDS.items() if isinstance(error, kind))
        self.findings.say(
            next(codes, "record-structure"),
            self.unit.path,
            position=error.position,
            offset=error.offset,
            record=error.record_index,
            reason=error.reason,
        )

    def _check_records(
        self, table: BatchTable, position: Int64s, offset: Int64s, timestamp: Int64s
    ) -> None:
        """Check that record offsets ascend within their batch, and the header's latest time.

        A batch whose records are cut between two pieces is checked in each piece by itself.
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
        self._report("record-offset", batches, wrong)
        latest = np.maximum(np.maximum.reduceat(timestamp, starts), -1)
        whole = (batches.magic >= 2) & (batches.record_count == counts)
        wrong = whole & (latest != batches.max_timestamp)
        wrong |= batches.is_wrapper & (latest > batches.max_timestamp)
        wrong &= batches.timestamp_type == 0
        self._report("max-timestamp", batches, wrong)


#: Tiles are joined until they have so many batches: a megabyte of headers.
_ROWS_JOINED = 8192


def examine_segment(unit: Unit, options: VerifyOptions) -> Examined:
    """Walk a log file once, with its checksums, and compare its indexes with the batches.

    Raises:
        OSError: a file is missing or cannot be read.
    """
    findings = Findings()
    lost: tuple[Lost, ...] = ()
    live = held_by_another(unit.path)  # asked once for all files of the segment
    mapping = options.mapping
    if mapping == "auto":
        mapping = "never" if live else "unheld"
    with LogFile.open(unit.path, mapping) as log:
        size = log.size
        checks = LogChecks(unit, options, findings)
        indexes, index_sizes = _open_indexes(unit, size, mapping, findings, live=live)
        stop, kafka07 = StopReason.LIMIT, log.kafka07
        unreadable: list[UnreadableError] = []
        trail: TxnTrail | None = None
        try:
            for table in _tables(log, checks, unreadable.append):
                if not unreadable:
                    checks.feed(table)
                    indexes.feed(table)
                    continue
                front, behind = _parted(table, unreadable[0])
                checks.feed(front)
                indexes.feed(front)  # no index is compared behind that
                checks.note_damage(checks.reached, checks.last_offset)
                checks.feed(behind)
            stop = StopReason.LIMIT if unreadable else table.stop
            if not _check_kraft(unit.path, table, findings):
                checks.finish(table, size, log.headers)
            # Bytes behind a damaged batch may belong to it: its end is not known.
            index_stop = StopReason.BAD_CRC if checks.bad_crc_count else stop
            trail = indexes.finish(index_stop, log.headers)
            if unit.partition is None and not unreadable:
                judge_transactions((), [(unit.base_offset or 0, True, trail)], findings)
            lost = _lost_in(log, unit, checks)
        except CorruptRecordError as error:  # of the file, not of a batch: those are in the table
            # No broker appends to an object: without it nothing of it is checked.
            findings.add(
                "changed",
                unit.path,
                error.reason,
                position=error.position,
                severity="error" if is_remote(unit.path) else None,
            )
        for unreadable_range in unreadable:
            findings.add_unreadable(unreadable_range)
    summary = SegmentSummary(
        partition=unit.partition or "",
        path=unit.path,
        base_offset=unit.base_offset or 0,
        first_offset=checks.first_offset,
        last_offset=checks.last_offset,
        epochs=tuple(checks.epochs),
        whole=stop is StopReason.END and not checks.bad_crc_count,
        magics_seen=checks.magics_seen,
        kafka07=kafka07,
        transactions=None if unreadable else trail,
        dense=checks.dense and checks.batches > 0,
    )
    return Examined(
        files=1 + len(index_sizes),
        bytes=size + sum(index_sizes),
        batches=checks.batches,
        records=checks.records,
        findings=findings.taken(),
        lost=lost,
        segments=(summary,) if unit.partition is not None else (),
    )


#: The codes of records that cannot be decoded, by the first kind that their error is of.
_OF_RECORDS: Final = {
    DecompressionError: "record-codec",
    LimitExceededError: "record-limit",
    CorruptRecordError: "record-crc",
}
#: Files of batches that no broker repairs.
_OF_KRAFT: Final = frozenset({FileKind.CHECKPOINT_KRAFT, FileKind.BOOTSTRAP})


def _check_kraft(path: str, table: BatchTable, findings: Findings) -> bool:
    """Check a snapshot or a bootstrap file of KRaft; returns whether the file is one."""
    kind = file_name(path).kind
    if kind not in _OF_KRAFT:
        return False
    try:
        if table.stop is not StopReason.END:
            raise stop_error(table)
        is_bootstrap = kind is FileKind.BOOTSTRAP
        (settings.bootstrap_level if is_bootstrap else settings.check_snapshot)(path)
    except KsegError as error:
        findings.add(
            "kraft-snapshot", path, error.reason, position=error.position, offset=error.offset
        )
    return True


def _parted(table: BatchTable, error: UnreadableError) -> tuple[BatchTable, BatchTable]:
    """The batches in front of the unreadable range, and those behind it."""
    assert error.position is not None
    in_front = table.position < error.position
    front, behind = (
        replace(part, bad_crc_count=int((part.crc_ok == 0).sum()))
        for part in (table.take(in_front), table.take(~in_front))
    )
    end = int(front.position[-1] + front.size[-1]) if len(front) else 0
    return replace(front, end_position=end), behind


def _lost_in(log: LogFile, unit: Unit, checks: LogChecks) -> tuple[Lost, ...]:
    """The damaged places, of files whose batches have offsets; a walk of its own, as it is rare."""
    if checks.damaged_at is None or log.kafka07:
        return ()
    return lost_ranges(
        log,
        checks.damaged_at,
        next_offset=unit.base_offset if checks.damaged_from is None else checks.damaged_from,
        base_offset=unit.base_offset,
        following=unit.following,
    )


def _tables(log: LogFile, decoder: LogChecks, on_unreadable: OnUnreadable) -> Iterator[BatchTable]:
    """The tables of the walk, joined: checks cost by the table and hardly by the row."""
    waiting: list[BatchTable] = []
    rows = 0
    for tile in log.walk(on_bad_crc="note", on_unreadable=on_unreadable):
        decoder.decode(tile)
        waiting.append(tile.table)
        rows += len(tile.table)
        if rows >= _ROWS_JOINED:
            yield _join(waiting)
            waiting = []
            rows = 0
    if waiting:
        yield _join(waiting)


def _join(tables: list[BatchTable]) -> BatchTable:
    """Tables one behind another as one, its columns contiguous."""
    count = sum(map(len, tables))
    rows = np.empty((count, len(FIELDS)), np.int64, order="F")
    np.concatenate([table.rows for table in tables], out=rows)
    rows.flags.writeable = False
    return replace(
        tables[-1],
        rows=rows,
        attributes_seen=reduce(or_, (table.attributes_seen for table in tables)),
        magics_seen=reduce(or_, (table.magics_seen for table in tables)),
        bad_crc_count=sum(table.bad_crc_count for table in tables),
    )


def _open_indexes(
    unit: Unit, log_bytes: int, mapping: Mapping, findings: Findings, *, live: bool
) -> tuple[IndexChecks, list[int]]:
    """The checks of a segment's indexes, and the sizes of the files that are there."""
    base = unit.base_offset or 0
    believed = unit.believed and not live
    log = IndexPlace(unit.path, base, unit.is_last, -1, log_bytes, mapping, live, believed)
    checks = IndexChecks(log, findings)
    sizes = []
    whole = unit.partition is not None and not unit.path.endswith(".kafka")
    for kind, path in (
        (FileKind.INDEX, unit.index),
        (FileKind.TIMEINDEX, unit.time_index),
        (FileKind.TXNINDEX, unit.txn_index),
    ):
        if path is not None or whole or kind is FileKind.TXNINDEX:
            with findings.noting_unreadable():
                sizes.append(checks.add(kind, path))
    return checks, [size for size in sizes if size >= 0]


OFFSET_CHECKPOINTS = frozenset(
    (FileKind.RECOVERY_POINT, FileKind.LOG_START, FileKind.REPLICATION, FileKind.CLEANER)
)
#: The code of a small file that breaks its format, and the function that reads it.
_FORMATS: Final[dict[FileKind, tuple[str, Callable[[str], Any]]]] = {
    FileKind.LEADER_EPOCHS: ("epochs-format", checkpoints.read_leader_epochs),
    FileKind.PARTITION_METADATA: ("metadata-format", metadata.read_partition_metadata),
    FileKind.META_PROPERTIES: ("properties-format", metadata.read_meta_properties),
    **dict.fromkeys(OFFSET_CHECKPOINTS, ("checkpoint-format", checkpoints.read_offset_checkpoint)),
}


def examine_partition(files: PartitionFiles) -> Examined:
    """Examine everything in a partition directory but its segments."""
    findings = Findings()
    path = name_of(files.path)
    snapshots = [(name_of(s.path), s.name.base_offset or 0) for s in files.snapshots]
    first = next((segment.base_offset for segment in files.segments if not segment.kafka07), None)
    begun: tuple[ProducerSnapshotEntry, ...] = ()
    for snapshot, offset in snapshots:
        entries = check_snapshot(snapshot, offset, findings)
        if offset == first:
            begun = tuple(
                producer for producer in entries if producer.current_txn_first_offset >= 0
            )
    epochs = None
    if files.leader_epochs is not None:
        epochs = check_epochs(name_of(files.leader_epochs), findings)
    if files.metadata is not None:
        _read_small(FileKind.PARTITION_METADATA, name_of(files.metadata), findings)
    _check_names(files, findings)
    small_files = [file for file in (files.leader_epochs, files.metadata) if file is not None]
    name = files.name
    summary = PartitionSummary(
        path=path,
        key=(name.topic, name.partition) if name and name.suffix is None else None,
        epochs_path=None if files.leader_epochs is None else name_of(files.leader_epochs),
        epochs=epochs,
        snapshots=tuple(snapshots),
        begun=begun,
        bare=not (snapshots or small_files),
        live=held_by_another(os.path.join(path, FileKind.LEADER_EPOCHS.value)),
    )
    paths: list[str | Path] = [*small_files, *(snapshot for snapshot, _ in snapshots)]
    return Examined(
        files=len(paths), bytes=_bytes(paths), findings=findings.taken(), partitions=(summary,)
    )


def examine_data_directory(listing: DataDirectory) -> Examined:
    """Examine the checkpoints and ids of a data directory, and names that are not Kafka's."""
    findings = Findings()
    path = name_of(listing.path)
    summaries: list[CheckpointSummary] = []
    for entry in listing.files:
        if entry.name.suffix is not None:
            _check_leftover(entry, findings)
        elif entry.name.kind in OFFSET_CHECKPOINTS:
            summaries += check_offset_checkpoint(path, entry, findings)
        elif entry.name.kind is FileKind.META_PROPERTIES:
            _read_small(FileKind.META_PROPERTIES, name_of(entry.path), findings)
    for stranger in listing.foreign:
        if stranger.is_dir() and entry_of(stranger).kind is not EntryKind.CACHE:
            findings.say("foreign-directory", str(stranger))
    return Examined(
        files=len(listing.files),
        bytes=_bytes(entry.path for entry in listing.files),
        findings=findings.taken(),
        checkpoints=tuple(summaries),
    )


def examine_file(path: str, kind: FileKind, base_offset: int | None) -> Examined:
    """Examine a small file by itself: an index without its log, a snapshot, a checkpoint."""
    findings = Findings()
    size = io.size_at(path)
    if kind in CHECKED:
        IndexChecks(IndexPlace(path, base_offset or 0, is_last=True), findings).add(kind, path)
    elif kind is FileKind.SNAPSHOT:
        check_snapshot(path, base_offset, findings)
    elif kind is FileKind.LEADER_EPOCHS:
        check_epochs(path, findings)
    elif kind in _FORMATS:
        _read_small(kind, path, findings)
    return Examined(files=1, bytes=size, findings=findings.taken())


def check_snapshot(
    path: str, offset: int | None, findings: Findings
) -> tuple[ProducerSnapshotEntry, ...]:
    """Check a producer snapshot: its checksum and shape, and that no entry lies past its offset.

    Returns:
        The entries, as far as they can be read.
    """
    try:
        entries = producer_snapshot.read(path)
    except CorruptIndexError as error:
        # Byte 2 is the checksum field.
        code = "snapshot-crc" if error.position == 2 else "snapshot-format"
        findings.add(code, path, error.reason, position=error.position, offset=offset)
        return ()
    except LimitExceededError as error:
        findings.add("unreadable", path, error.reason)
        return ()
    if offset is None:
        return entries
    for number, entry in producer_snapshot.entries_beyond(entries, offset):
        findings.say(
            "snapshot-offset",
            path,
            position=10 + 46 * number,
            offset=entry.last_offset,
            entry=entry,
            end=offset,
        )
    return entries


def check_epochs(path: str, findings: Findings) -> tuple[tuple[int, int], ...] | None:
    """Check a leader epoch checkpoint by itself; returns its entries as Kafka loads them."""
    read = _read_small(FileKind.LEADER_EPOCHS, path, findings)
    if read is None:
        return None
    if read.entries != read.effective:
        findings.say("epochs-order", path, count=len(read.entries) - len(read.effective))
    return tuple((entry.epoch, entry.start_offset) for entry in read.effective)


def check_offset_checkpoint(
    directory: str, entry: NamedFile, findings: Findings
) -> Iterable[CheckpointSummary]:
    """Check an offset checkpoint; returns its offsets, if it can be read."""
    path = name_of(entry.path)
    read = _read_small(entry.name.kind, path, findings)
    if read is None:
        return ()
    offsets = {(key.topic, key.partition): offset for key, offset in read.items()}
    return (CheckpointSummary(directory, path, entry.name.kind.value, offsets),)


def _check_leftover(entry: NamedFile, findings: Findings) -> None:
    """Note a file of interrupted work; what is being written is no fault, and is replaced."""
    if entry.name.suffix != "tmp":
        findings.say("leftover", name_of(entry.path), suffix=entry.name.suffix)


def _check_names(files: PartitionFiles, findings: Findings) -> None:
    for entry in files.temporary_files:
        _check_leftover(entry, findings)
    for entry in files.orphans:
        findings.say("orphan-index", str(entry.path))
    is_of_kraft = files.name is not None and files.name.topic == CLUSTER_METADATA
    for stranger in files.foreign:
        if stranger.is_dir():
            continue
        try:
            twin = parse_name(stranger.name)
        except NotALogError as error:
            findings.add("name", str(stranger), error.reason)
            continue
        if twin is None and is_of_kraft and stranger.name.endswith(".checkpoint"):
            findings.say("name.snapshot", str(stranger))
        if twin is not None and twin.base_offset is not None:
            findings.say("name.twin", str(stranger), base=twin.base_offset)
    for segment in files.segments:
        name = segment.log.name
        digits = name.partition(".")[0]
        if segment.base_offset < 0:
            findings.say("name.negative", str(segment.log), base=segment.base_offset)
        elif len(digits) != 20 and not segment.kafka07:
            findings.say("name-digits", str(segment.log), digits=digits, count=len(digits))


def _read_small(kind: FileKind, path: str, findings: Findings) -> Any:
    """Read a small file; if it breaks its format, note a finding and return None."""
    code, read = _FORMATS[kind]
    try:
        return read(path)
    except CorruptIndexError as error:
        findings.add(code, path, error.reason, position=error.position)
    except KsegError as error:
        findings.add("unreadable", path, error.reason)
    return None


def _bytes(paths: Iterable[str | Path]) -> int:
    return int(np.sum([io.size_at(path) for path in paths], dtype=np.int64))
