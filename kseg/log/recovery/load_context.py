"""Load context: the segments of a partition while they are loaded, in an overlay.

Holds what the steps share: the overlay in which they run, the segments found so far, the leader
epochs, the findings. Knows how to give one segment its derived files, cut it, or drop it. `load`
decides which segment gets what.

A file that was missing or garbled is written last. An offset index comes after the cut, the
snapshot and the epochs of its segment. So a load that is interrupted and begins again finds the
same reason.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final

from kseg.constants import INT32_MAX, INT64_MAX, SEGMENT_BYTES_MAX, Progress, StopReason
from kseg.documents import Documented, frozen_dataclass
from kseg.errors import (
    KsegError,
    LimitExceededError,
    NotALogError,
    OffsetOverflowError,
    OffsetsOutOfOrderError,
    at_path,
)
from kseg.files import io
from kseg.files.checkpoints import EpochEntry, LeaderEpochs, leader_epochs_bytes
from kseg.files.grammar import offset_from_file_name, parse_name, split_suffix
from kseg.files.names import FileKind
from kseg.files.txn_index import pack_entries
from kseg.log.config import LogConfig
from kseg.log.findings import Finding
from kseg.log.pending_deletes import DELETED
from kseg.log.producers.snapshots import SnapshotFiles
from kseg.log.producers.state import ProducerState
from kseg.log.recovery import lost
from kseg.log.recovery.overlay import NOT_SAID, Overlay, OverlaySnapshots
from kseg.log.recovery.sweep import (
    OFFSET_ENTRY,
    TIME_ENTRY,
    TXN_ENTRY,
    Swept,
    no_next_offset,
    sweep_segment,
)
from kseg.log.segment.index_entries import next_offset
from kseg.log.segment.reader import Segment
from kseg.log.validate.rules import LAST_OFFSET_MAX

if TYPE_CHECKING:
    from kseg.log.tier.tier import TierLike

#: The kinds of a segment's files, and the name of the epoch checkpoint.
LOG, INDEX, TIMEINDEX, TXNINDEX, SNAPSHOT, EPOCHS = (
    kind.value
    for kind in (
        FileKind.LOG,
        FileKind.INDEX,
        FileKind.TIMEINDEX,
        FileKind.TXNINDEX,
        FileKind.SNAPSHOT,
        FileKind.LEADER_EPOCHS,
    )
)
#: The suffixes of a segment's indexes, which are of no use without its log.
INDEX_SUFFIXES: Final = (f".{INDEX}", f".{TIMEINDEX}", f".{TXNINDEX}")
#: The suffix of a partition directory that waits for its deletion.
DELETE_SUFFIX: Final = "-delete"
#: The suffixes of new files: unfinished, and finished, to be renamed to replace old files.
CLEANED: Final = ".cleaned"
SWAP: Final = ".swap"

#: The form of an entry of each index.
ENTRIES: Final = {INDEX: OFFSET_ENTRY, TIMEINDEX: TIME_ENTRY, TXNINDEX: TXN_ENTRY}
#: Indexes that are made with room for more entries.
_ROOMY: Final = (INDEX, TIMEINDEX)
#: Why the end of an index is removed.
UNUSED: Final = "room for entries that were never written"


def file_of(base_offset: int, kind: str) -> str:
    """The name of a segment's file, as Kafka formats any offset: 20 digits; a minus comes first."""
    digits = f"{abs(base_offset):020d}"
    return f"{'-' if base_offset < 0 else ''}{digits}.{kind}"


@frozen_dataclass
class RecoveryInputs:
    """The inputs of a recovery.

    Attributes:
        config: the settings of the log.
        clean: whether the log was closed in good order.
        recovery_point: records before it were flushed; 0 if not known.
        log_start_offset: from the checkpoint; 0 if it has none.
        now_ms: the time that counts.
        as_broker: do exactly as Kafka does, and report no more.
        thorough: search the headers of segments without a transaction index for aborted
            transactions. That takes time, so an opening for appending does not.
        tier: has earlier leader epochs, if the checkpoint lost them; None for the metadata beside.
    """

    config: LogConfig
    clean: bool
    recovery_point: int
    log_start_offset: int
    now_ms: int
    as_broker: bool = False
    thorough: bool = False
    tier: TierLike | None = None


@frozen_dataclass
class CutPlace(Documented):
    """Where the log is cut.

    Attributes:
        path: the log file.
        position: the position of the first byte that is cut off.
        offset: the offset that the next record gets.
    """

    path: str
    position: int
    offset: int


@frozen_dataclass
class SegmentOutcome(Documented):
    """The outcome for one segment.

    Attributes:
        base_offset: from the file's name.
        size: bytes of its log before.
        keep_bytes: bytes of log afterwards; 0 too for a segment that goes.
        index_entries, time_index_entries: entries of its indexes afterwards.
        walked: whether the log is swept, and its derived files are corrected.
        goes: whether the whole segment goes.
        why: it is walked, cut or goes.
    """

    DOCUMENT = "base_offset size keep_bytes index_entries time_index_entries why"

    base_offset: int
    size: int
    keep_bytes: int
    index_entries: int
    time_index_entries: int
    walked: bool = False
    goes: bool = False
    why: str = ""


@dataclass(slots=True, eq=False)
class LoadedLog:
    """A log as loading leaves it.

    Attributes:
        log_start_offset: the first offset to be read.
        log_end_offset: the next one to be given.
        recovery_point: records before it are on the disk.
        epochs: the leader epochs of the log; the file may have more until `flush`.
        producers: the producers' state at the log's end.
        snapshots: the files that are there.
        segments: sorted by base offset, never empty; the last one is to be appended to.
        findings: faults, repaired or left as they are.
        mended: whether files were changed for a fault.
    """

    log_start_offset: int
    log_end_offset: int
    recovery_point: int
    epochs: LeaderEpochs
    producers: ProducerState
    snapshots: SnapshotFiles
    segments: tuple[SegmentOutcome, ...] = ()
    findings: tuple[Finding, ...] = ()
    mended: bool = False


class LoadContext:
    """The state that the steps of a load share; the steps are those of `load.Loading`.

    Attributes:
        careful: whether to check more than Kafka does, and throw less away.
        overlay: the directory.
        inputs: settings, mark and offsets for the load.
        progress: called with the bytes of log walked so far, and in all.
        weighs: whether to find the cost of a cut; only a plan reports it.
        outcomes: the outcomes of segments, removed ones too, keyed by base offset.
        bases: the base offsets of the segments that are there, ascending.
        findings: the faults so far.
        cut: where the log is cut.
        cut_bytes: bytes that go with it.
        ended_at: see `RecoveryPlan`.
        costs: the lost records of each segment, keyed by base offset.
        held: base offset and offset index of the segment that was walked last.
        walked_bytes, to_walk_bytes: the figures for `progress`.
        known_snapshots: see `same_snapshots`.
        inflated: see `RecoveryPlan`.
        temporary_files: names of files that interrupted work left.
        log: the loaded log; None where it cannot be loaded.
        error: why it cannot be loaded.
    """

    careful = True

    def __init__(
        self,
        overlay: Overlay,
        inputs: RecoveryInputs,
        progress: Progress | None = None,
        *,
        weighs: bool = False,
    ) -> None:
        """Begin with an overlay; no step is taken yet."""
        self.overlay: Final = overlay
        self.inputs: Final = inputs
        self.progress: Final = progress
        self.weighs: Final = weighs
        self.outcomes: dict[int, SegmentOutcome] = {}
        self.bases: list[int] = []
        self.findings: list[Finding] = []
        self.cut: CutPlace | None = None
        self.cut_bytes = self.walked_bytes = self.to_walk_bytes = 0
        self.ended_at: int | None = None
        self.costs: dict[int, lost.Lost] = {}
        self.held: tuple[int, bytes] | None = None
        self.known_snapshots: SnapshotFiles | None = None
        self.inflated: list[tuple[str, int]] = []
        self.temporary_files: tuple[str, ...] = ()
        self.log: LoadedLog | None = None
        self.error: KsegError | None = None

    def note_fault(
        self,
        code: str,
        path: str,
        message: str,
        position: int | None = None,
        offset: int | None = None,
    ) -> None:
        """Add a finding."""
        self.findings.append(Finding(code, path, message, position, offset))

    # ---- segments --------------------------------------------------------------------------------

    def path(self, base_offset: int, kind: str = LOG) -> str:
        """The path of a segment's file, for messages."""
        return self.overlay.path(file_of(base_offset, kind))

    def add(self, base_offset: int) -> None:
        """Count a segment as present; see `add_outcome`."""
        self.add_outcome(base_offset)
        at = bisect_right(self.bases, base_offset)
        if at == 0 or self.bases[at - 1] != base_offset:
            self.bases.insert(at, base_offset)

    def add_outcome(self, base_offset: int) -> None:
        """Note for a segment without an outcome that it stays as it is in the overlay.

        Raises:
            LimitExceededError: its log is longer than any segment.
        """
        name = file_of(base_offset, LOG)
        size = self.overlay.size(name)
        if size > SEGMENT_BYTES_MAX:
            raise LimitExceededError(
                f"the log has {size} bytes; no segment has more than {SEGMENT_BYTES_MAX}",
                path=self.overlay.path(name),
            )
        if base_offset in self.outcomes:
            return
        entries, times = (
            self.overlay.size(file_of(base_offset, kind)) // ENTRIES[kind].size for kind in _ROOMY
        )
        self.outcomes[base_offset] = SegmentOutcome(base_offset, size, size, entries, times)

    def from_offset(self, offset: int) -> list[int]:
        """Base offsets of the segment that can hold `offset`, and of the segments after it.

        Source: Kafka `LogSegments.values`.
        """
        return self.bases[max(bisect_right(self.bases, offset) - 1, 0) :]

    def size(self, base_offset: int) -> int:
        """The size of a segment's log, in bytes."""
        return self.overlay.size(file_of(base_offset, LOG))

    def entries(self, base_offset: int, kind: str) -> list[tuple[int, ...]]:
        """The whole entries of an index; empty if it is missing."""
        name, form = file_of(base_offset, kind), ENTRIES[kind]
        if name not in self.overlay.files:
            return []
        data = self.overlay.read(name)
        return list(form.iter_unpack(data[: len(data) // form.size * form.size]))

    def open(self, base_offset: int) -> Segment:
        """Open a segment for reading."""
        is_last = bool(self.bases) and base_offset >= self.bases[-1]
        return self.overlay.open_log(file_of(base_offset, LOG), is_last=is_last)

    def walked(self, size: int) -> None:
        """Report how far the walk has come."""
        self.walked_bytes += size
        if self.progress is not None:
            self.progress(self.walked_bytes, max(self.to_walk_bytes, self.walked_bytes))

    # ---- producers -------------------------------------------------------------------------------

    def new_state(self) -> ProducerState:
        """A state without producers."""
        config = self.inputs.config
        return ProducerState(
            expiration_ms=config.producer_id_expiration_ms,
            transaction_max_timeout_ms=config.transaction_max_timeout_ms,
        )

    def snapshots(self, *, aloof: bool = False) -> SnapshotFiles:
        """The producer snapshots that are there; `aloof` neither writes nor deletes any."""
        paths: dict[int, str] = {}
        for name in sorted(self.overlay.files):
            if name.endswith("." + SNAPSHOT):
                digits = name.partition(".")[0]
                if digits.isascii() and digits.isdigit() and int(digits) < 2**63:
                    paths[int(digits)] = self.overlay.path(name)
        disk = OverlaySnapshots(self.overlay, aloof=aloof)
        return SnapshotFiles(self.overlay.directory, paths.items(), disk=disk, careful=self.careful)

    def same_snapshots(self) -> SnapshotFiles:
        """As `snapshots`, but the same object as long as only snapshots change."""
        if self.known_snapshots is None:
            self.known_snapshots = self.snapshots()
        return self.known_snapshots

    # ---- changes ---------------------------------------------------------------------------------

    def install(self, swept: Swept, why: str, *, last: str = INDEX) -> None:
        """Write the indexes of a segment that follow from its log.

        Args:
            swept: the walk over its log.
            why: the reason for the walk.
            last: the index to write last; a load that dies before finds the reason to walk again.
        """
        base = swept.base_offset
        aborted = b"" if swept.aborted is None else pack_entries(swept.aborted)
        indexes = [(TIMEINDEX, swept.time_entries), (INDEX, swept.offset_entries)]
        if aborted or file_of(base, TXNINDEX) in self.overlay.files:
            indexes.insert(0, (TXNINDEX, aborted))
        indexes.sort(key=lambda index: index[0] == last)
        for kind, data in indexes:
            name = file_of(base, kind)
            if not (swept.valid_bytes or name in self.overlay.files or not self.careful):
                continue  # an empty segment gets its indexes with its first batch
            if not self.has(name, data):
                again = partial(self._sweep_for_index, base, kind) if kind in _ROOMY else None
                self.overlay.put(name, data, NOT_SAID, held=kind == INDEX, again=again)
        if self.held is not None and self.held[0] != base:
            self.overlay.forget(file_of(self.held[0], INDEX))
        self.held = (base, swept.offset_entries)
        self.outcomes[base] = replace(
            self.outcomes[base],
            keep_bytes=swept.valid_bytes,
            index_entries=swept.offset_entry_count,
            time_index_entries=swept.time_entry_count,
            walked=True,
            why=why,
        )

    def _sweep_for_index(self, base_offset: int, kind: str) -> bytes:
        """Compute the entries of an index again, by another sweep of the log.

        The overlay calls it if it had no room to keep the entries of the first sweep.
        """
        inputs = self.inputs
        with Segment.open(self.path(base_offset), mapping="never") as segment:
            swept = sweep_segment(segment, config=inputs.config, careful=self.careful)
        return swept.offset_entries if kind == INDEX else swept.time_entries

    def has(self, name: str, data: bytes) -> bool:
        """Whether a file has these bytes; zeros after them, for further entries, are cut off.

        Kafka would take the zeros for entries, once the log counts as closed cleanly.
        """
        if name not in self.overlay.files:
            return False
        size = self.overlay.size(name)
        most = max(len(data), self.inputs.config.segment_index_bytes)
        if not len(data) <= size <= most:
            return False
        stored = self.overlay.read(name)
        if stored[: len(data)] != data or stored[len(data) :].strip(b"\0"):
            return False
        if size > len(data):
            self.overlay.cut(name, len(data), UNUSED, keep=False)
        else:
            self.overlay.assure(name)
        return True

    def assure(self, base_offset: int) -> None:
        """Make a segment lasting as it is: its writer may have died before a flush."""
        for kind in (LOG, INDEX, TIMEINDEX):
            name = file_of(base_offset, kind)
            if name in self.overlay.files:
                self.overlay.assure(name)

    def cut_log(self, base_offset: int, size: int, next_offset: int, why: str) -> None:
        """Cut a segment's log to `size` bytes, and note where and why."""
        name = file_of(base_offset, LOG)
        removed_bytes = self.overlay.size(name) - size
        self._count_cost(base_offset, size, next_offset)
        self.overlay.cut(name, size, why)
        self.cut_bytes += removed_bytes
        self.cut = self.cut or CutPlace(self.overlay.path(name), size, next_offset)

    def _count_cost(self, base_offset: int, size: int, next_offset: int) -> None:
        """Find out the loss by a cut after the first `size` bytes of a segment."""
        file = self.overlay.files[file_of(base_offset, LOG)]
        if not self.weighs or file.data is not None:
            return
        at = bisect_right(self.bases, base_offset)
        following = self.bases[at] if at < len(self.bases) else None
        with self.open(base_offset) as segment:
            cost = lost.gone(
                segment,
                size,
                next_offset=next_offset,
                base_offset=base_offset,
                following=following,
            )
        if cost is not None:
            before = [self.costs[base_offset]] if base_offset in self.costs else []
            self.costs[base_offset] = lost.joined([cost, *before]) or cost

    def lost(self) -> tuple[lost.Lost, ...]:
        """The losses, one for each place; removed segments belong to the cut before them."""
        groups: list[list[lost.Lost]] = []
        for base in sorted(self.costs):
            if self.outcomes[base].goes and groups:
                groups[-1].append(self.costs[base])
            else:
                groups.append([self.costs[base]])
        return tuple(filter(None, map(lost.joined, groups)))

    def drop(self, bases: Iterable[int], why: str) -> None:
        """Remove whole segments, the last one first, with the snapshots at their bases."""
        self.known_snapshots = None
        for base in sorted(bases, reverse=True):
            size = self.size(base)
            self._count_cost(base, 0, base)
            for kind in (TXNINDEX, TIMEINDEX, INDEX, SNAPSHOT, LOG):
                name = file_of(base, kind)
                if name in self.overlay.files:
                    self.overlay.remove(name, why, keep=True if kind == LOG else None)
            self.cut_bytes += size
            self.outcomes[base] = SegmentOutcome(
                base, self.outcomes[base].size, 0, 0, 0, goes=True, why=why
            )
            self.bases.remove(base)
        self.overlay.settle()

    def put_epochs(self, entries: tuple[EpochEntry, ...], why: str) -> None:
        """Write the epoch checkpoint, unless it has these entries already."""
        self.overlay.put(EPOCHS, leader_epochs_bytes(entries), why)

    def begin_at(self, base_offset: int) -> None:
        """Make the first segment, without a batch."""
        self.overlay.create(file_of(base_offset, LOG), "the first segment")
        self.overlay.settle()
        self.outcomes.pop(base_offset, None)
        self.add(base_offset)


# ---- temporary files -----------------------------------------------------------------------------
# Files of an interrupted deletion, compaction, or split by a broker:
#
#     S.log.deleted   deleted; to be removed. Any file may have this end.
#     S.log.cleaned   not finished; the files from which it was made are there.
#     S.log.swap      finished; replaces those files, unless a `.cleaned` at its offset or
#                     before it shows that the same rewriting is not finished.
#
# A `.swap` replaces all files from its offset up to the end of its last batch. Names become durable
# between the steps, and logs are renamed before their indexes. So a run that begins again after an
# interruption gives the same result.
#
# Source: Kafka `LogLoader.removeTempFilesAndCollectSwapFiles`, `LogLoader.load`.


#: The end of a finished log's name.
_FINISHED_LOG: Final = f".{LOG}{SWAP}"
#: A KRaft snapshot that was deleted; the raft log removes it.
_KRAFT_DELETED: Final = ".checkpoint.deleted"


#: The offset after a segment's last batch, by the bytes of its offset index.
EndByIndex = Callable[[Segment, bytes], int]


def clear(
    overlay: Overlay, *, end_by_index: EndByIndex | None = None, index_bytes: int = 0
) -> tuple[str, ...]:
    """Remove the temporary files, or rename them to replace the old files.

    Args:
        overlay: the partition; changed.
        end_by_index: for a broker, which believes the index: half-written checkpoints (`.tmp`) stay
            then, and names without an offset fail. Otherwise the first ones are removed and the
            second ones skipped. Kafka writes no index or snapshot through a `.tmp`; such a file is
            kseg's own.
        index_bytes: the size of an offset index with all its room, for a broker.

    Returns:
        The names of the temporary files.

    Raises:
        NotALogError: a `.cleaned` or `.swap` file without an offset in its name, for a broker.
        FormatError: a `.swap` log cannot be walked.
        OSError: the disk refuses.
    """
    careful, temporary = end_by_index is None, set()
    for name in sorted(overlay.files):
        is_deleted = name.endswith(DELETED) and not name.endswith(_KRAFT_DELETED)
        if is_deleted or _is_half_written(name, careful=careful):
            why = "its segment was deleted" if is_deleted else "not finished"
            overlay.remove(name, why, keep=False)
            temporary.add(name)
    swaps = _valid_swaps(overlay, temporary, careful=careful)
    if swaps:
        overlay.settle()
        _make_room(overlay, swaps, end_by_index, index_bytes)
        overlay.settle()
        _rename_finished(overlay, swaps)
    overlay.settle()
    return tuple(sorted(temporary))


def _is_half_written(name: str, *, careful: bool) -> bool:
    """Whether a file is an unfinished replacement of another file.

    Kafka finds only files of segments, which have an offset in their names. With `careful`,
    others count too: checkpoints, for example, and the file by which kseg tries the disk's
    free room.
    """
    if name == io.ROOM_NAME:
        return careful
    try:
        parsed = parse_name(name) if split_suffix(name)[1] == "tmp" else None
    except NotALogError:
        return False
    return parsed is not None and (careful or parsed.base_offset is not None)


def _valid_swaps(overlay: Overlay, temporary: set[str], *, careful: bool) -> list[str]:
    """The complete `.swap` files; the others are removed, then each `.cleaned`."""
    cleaned, swaps = (
        {name: _offset(name, careful) for name in sorted(overlay.files) if name.endswith(suffix)}
        for suffix in (CLEANED, SWAP)
    )
    temporary.update(cleaned, swaps)
    first = min((offset for offset in cleaned.values() if offset is not None), default=None)
    valid = []
    for name, offset in swaps.items():
        if offset is None or first is None or offset < first:
            valid.append(name)
        else:
            overlay.remove(name, "other files that belong to it are not finished", keep=False)
    overlay.settle()
    for name in cleaned:
        overlay.remove(name, "not finished", keep=False)
    return valid


def _offset(name: str, careful: bool = True) -> int | None:
    """The offset in a file's name; None for a name that has none."""
    try:
        return offset_from_file_name(name)
    except NotALogError:
        if not careful:
            raise
        return None


def _make_room(
    overlay: Overlay, swaps: list[str], end_by_index: EndByIndex | None, index_bytes: int
) -> None:
    """Remove the files that finished files replace: those with an offset in their range."""
    careful = end_by_index is None
    start, end = INT64_MAX, -INT64_MAX
    for name in [name for name in swaps if name.endswith(_FINISHED_LOG)]:
        offset = _offset(name, careful)
        if offset is None:
            continue
        index = name.removesuffix(_FINISHED_LOG) + f".{INDEX}{SWAP}"
        with overlay.open_log(name, is_last=True) as segment:
            if end_by_index is None:
                file_end = next_offset(segment, segment.base_offset)
            else:
                entries = overlay.read(index) if index in overlay.files else b""
                file_end = end_by_index(segment, entries)
        start, end = min(start, offset), max(end, file_end)
        if not careful and index not in overlay.files:
            # Kafka has made it, in looking for the end, and so nothing is missing later on; but all
            # its room counts as entries, and the next append begins another segment.
            overlay.put(index, bytes(index_bytes), "one full of zeros in place of none")
            swaps.append(index)
    for name in sorted(overlay.files):
        offset = None if name in swaps else _offset(name)
        if offset is not None and start <= offset < end:
            overlay.remove(name, "a finished file takes its place", keep=True)


def _rename_finished(overlay: Overlay, swaps: list[str]) -> None:
    """Rename finished files to their plain names, the logs first."""
    logs = [name for name in swaps if name.endswith(_FINISHED_LOG)]
    for names in (logs, [name for name in swaps if name not in logs]):
        for name in names:
            target = name.removesuffix(SWAP)
            if target in overlay.files:
                overlay.remove(target, "a finished file takes its place", keep=True)
                overlay.settle()
            overlay.rename(name, target, "finished")
        overlay.settle()


# ---- refusals ------------------------------------------------------------------------------------


#: Why the log is cut, in a few words.
WHY_CUT: Final = {
    StopReason.TORN_TAIL: "the last batch is incomplete",
    StopReason.ZERO_TAIL: "only zeros follow",
    StopReason.BAD_LENGTH: "no batch can have the size that follows",
    StopReason.BAD_MAGIC: "no release wrote the magic that follows",
    StopReason.BAD_CRC: "the next batch does not match its checksum",
    StopReason.LIMIT: "the offsets of the next batch are out of order",
    StopReason.END: "too few bytes for a batch follow",
}


#: What to do with a segment whose offsets overflow.
_SPLIT: Final = (
    "kseg salvage copies the records into segments that hold them, or a broker splits this one "
    "if its .index is missing"
)


def refuse_unrepaired(context: LoadContext, swept: Swept) -> None:
    """Raise the error of a walk, unless a cut before its batch repairs the segment."""
    base, error = swept.base_offset, swept.error
    if error is None:
        return
    if error.offset == LAST_OFFSET_MAX + 1:
        raise at_path(no_next_offset(error.position), context.path(base))
    if isinstance(error, OffsetOverflowError):
        refuse_overflow(context, base, error)
    elif not isinstance(error, OffsetsOutOfOrderError):
        raise error
    if not swept.valid_bytes:
        raise error


def refuse_overflow(context: LoadContext, base: int, error: OffsetOverflowError) -> None:
    """Refuse a segment whose last offset overflows, as compaction before Kafka 1.1 could leave it.

    Only an overflow of the last batch is refused. Where batches with smaller offsets follow, or the
    offsets pass the base of a later segment, it is damage, and this returns. Kafka does not check
    the latter.

    Raises:
        OffsetOverflowError: the last offset overflows; the text says what to do.

    Source: Kafka `LogSegment.hasOverflow`, `LocalLog.splitOverflowedSegment`.
    """
    last = base
    with context.open(base) as segment:
        for table in segment.headers(policy="file"):
            if len(table):
                last = int(table.last_offset[-1])
    overlaps_next = context.careful and any(base < other <= last for other in context.bases)
    if last > base + INT32_MAX and not overlaps_next:
        raise OffsetOverflowError(
            f"{error.reason}, where its segment begins: {_SPLIT}",
            path=error.path,
            position=error.position,
            offset=error.offset,
        )
