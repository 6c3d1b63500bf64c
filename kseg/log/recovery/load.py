"""How kseg loads a log: as a broker does, but it checks more, reports more and throws less away.

    clear          temporary files that interrupted work has left
    find           which segments there are
    check          do the ends of their indexes fit their logs?             `sanity`
    recover        after an unclean end, every segment from the recovery point on is walked; after
                   a clean one, those whose indexes do not fit, and the last if its end is not sound
    log start      a log that ends in front of its start begins anew there
    end            epochs and snapshots past the end go; producers as of the end

Where it differs from Kafka 4.2.0 (which `as_broker` follows exactly):

    what is found                    Kafka                          here
    clean, torn end                  stays, may hide all of it      backed up, cut; damage in
                                                                    front of it stays
    clean, zeros at the end          fails                          cut
    clean, garbled index             is believed                    made anew
    clean, time index missing        an empty one                   made anew
    clean, transaction index gone    stays so                       made anew, by a plan
    clean, no snapshot at all        no producers                   read from the log
    a snapshot that tells of         is believed                    goes, as a corrupt one does
      offsets beyond its own
    clean, a sealed segment without  cut where it is not sound,     indexes made anew if all of it
      index                          a hole in the log              is sound, else left alone
    unclean, an end that is cut,     all later segments go          they stay if they begin just
      in front of other segments                                    where the sound part ends
    unclean, offsets out of order    the whole segment is emptied   cut in front of that batch
    a batch of magic 3 to 127        taken for magic 2              cut, as any bad batch
    a record breaks the rules of     fails, or ends the walk        noted
      transactions
    a garbled transaction index      may fail                       made anew
    epochs checkpoint malformed      fails                          made anew from the log
    stale epochs past the end        hide those in the log          go first
    names: `12.log`, `abc.log`       an empty segment beside it,    renamed, left alone
                                     fails
    half-written `.tmp` files        stay                           go
    no segment, `preallocate`        room for one is taken          an empty one; room is taken from
                                                                    the next one on

Source: Kafka `LogLoader`.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from dataclasses import dataclass, replace
from errno import EIO
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from kseg.constants import StopReason
from kseg.errors import (
    CorruptIndexError,
    CorruptRecordError,
    KsegError,
    LimitExceededError,
    NotALogError,
    OffsetOverflowError,
    OffsetsOutOfOrderError,
    UnreadableError,
    UnsupportedFormatError,
    at_path,
)
from kseg.files import checkpoints, io
from kseg.files.checkpoints import EpochEntry
from kseg.files.grammar import offset_from_file_name, parse_name, split_suffix
from kseg.format.header import stop_code
from kseg.log import epochs as leader_epochs
from kseg.log.epochs import LeaderEpochs
from kseg.log.producers.snapshots import SnapshotFiles, feed_segment, is_bare_first, rebuild
from kseg.log.producers.state import ProducerState
from kseg.log.recovery import raw_lookups, sanity, split
from kseg.log.recovery.backup import Backup
from kseg.log.recovery.findings import Finding
from kseg.log.recovery.load_context import (
    DELETE_SUFFIX,
    INDEX,
    INDEX_SUFFIXES,
    LOG,
    SNAPSHOT,
    TIMEINDEX,
    TXNINDEX,
    CutPlace,
    LoadContext,
    LoadedLog,
    RecoveryInputs,
    file_of,
)
from kseg.log.recovery.overlay import NOT_SAID, Applier, Overlay
from kseg.log.recovery.sanity import LogEnd
from kseg.log.recovery.sweep import Swept, check_followed, sweep_segment, unfollowed
from kseg.log.segment.walks import next_offset
from kseg.log.validate.rules import LAST_OFFSET_MAX

if TYPE_CHECKING:
    from kseg.files import io
    from kseg.log.config import LogConfig
    from kseg.log.producers.snapshots import OnError
    from kseg.log.producers.state import ProducerState
    from kseg.log.recovery.load_context import LoadContext, Progress
    from kseg.log.recovery.overlay import Overlay
    from kseg.log.segment.reader import Segment

# ---- temporary files -----------------------------------------------------------------------------
# What an interrupted deletion, compaction or split left:
#
#     S.log.deleted   deleted; to be removed. Any file may be called so.
#     S.log.cleaned   not finished; the files from which it was made are there.
#     S.log.swap      finished; takes the place of those files, unless a `.cleaned` at its offset or
#                     in front of it says that the same piece of work is not finished.
#
# A `.swap` takes the place of all files from its offset up to where its last batch ends. Names
# become lasting between the steps, and logs change their names before their indexes do. So a run
# that begins again after an interruption comes to the same end.
#
# Source: Kafka `LogLoader.removeTempFilesAndCollectSwapFiles`, `LogLoader.load`.

_DELETED: Final = ".deleted"

_CLEANED: Final = ".cleaned"

_SWAP: Final = ".swap"

_LOG: Final = ".log"

#: A KRaft snapshot that was deleted; the raft log removes it.
_KRAFT_DELETED: Final = ".checkpoint.deleted"

_OFFSET_END: Final = 2**63 - 1


def clear(overlay: Overlay, *, careful: bool, index_bytes: int = 0) -> tuple[str, ...]:
    """Remove the temporary files, or let them take their places.

    Args:
        overlay: the partition; changed.
        index_bytes: what an offset index has in full, for a broker.
        careful: remove half-written checkpoints (`.tmp`), and skip names without an offset.
            Otherwise, as in Kafka, the first stay and the second fail. Kafka writes no index or
            snapshot through a `.tmp`; such a file is kseg's own.

    Returns:
        The names of what was found.

    Raises:
        NotALogError: a `.cleaned` or `.swap` file without an offset in its name, for a broker.
        FormatError: a `.swap` log cannot be walked.
        OSError: the disk refuses.
    """
    found = _remove_transient(overlay, careful=careful)
    swaps = _valid_swaps(overlay, found, careful=careful)
    if swaps:
        overlay.settle()
        _make_room(overlay, swaps, careful=careful, index_bytes=index_bytes)
        overlay.settle()
        _take_places(overlay, swaps)
    overlay.settle()
    return tuple(sorted(found))


def _remove_transient(overlay: Overlay, *, careful: bool) -> set[str]:
    """Remove `.deleted` files, and half-written checkpoints and indexes."""
    found = set()
    for name in overlay.names():
        if name.endswith(_DELETED) and not name.endswith(_KRAFT_DELETED):
            overlay.remove(name, "its segment was deleted", keep=False)
        elif _is_half_written(name, careful=careful):
            overlay.remove(name, "not finished", keep=False)
        else:
            continue
        found.add(name)
    return found


def _is_half_written(name: str, *, careful: bool) -> bool:
    """Whether a file was to take the place of another; Kafka does that to checkpoints only."""
    if name == io.ROOM_NAME:
        return careful
    if split_suffix(name)[1] != "tmp":
        return False
    try:
        known = parse_name(name)
    except NotALogError:
        return False
    if known is None:
        return False
    return careful or known.base_offset is not None


def _valid_swaps(overlay: Overlay, found: set[str], *, careful: bool) -> list[str]:
    """The `.swap` files that are complete; the others are removed, and then each `.cleaned`."""
    cleaned = {name: _offset(name, careful) for name in overlay.names() if name.endswith(_CLEANED)}
    swaps = {name: _offset(name, careful) for name in overlay.names() if name.endswith(_SWAP)}
    found.update(cleaned, swaps)
    first = min((offset for offset in cleaned.values() if offset is not None), default=None)
    valid = []
    for name, offset in swaps.items():
        if first is not None and offset is not None and offset >= first:
            overlay.remove(name, "other files that belong to it are not finished", keep=False)
        else:
            valid.append(name)
    overlay.settle()
    for name in cleaned:
        overlay.remove(name, "not finished", keep=False)
    return valid


def _offset(name: str, careful: bool = True) -> int | None:
    try:
        return offset_from_file_name(name)
    except NotALogError:
        if not careful:
            raise
        return None


def _make_room(overlay: Overlay, swaps: list[str], *, careful: bool, index_bytes: int) -> None:
    """Remove what finished files replace: everything that has an offset of their range."""
    start, end = _OFFSET_END, -_OFFSET_END
    for name in tuple(swaps):
        offset = _offset(name, careful)
        if name.endswith(_LOG + _SWAP) and offset is not None:
            start = min(start, offset)
            end = max(end, _next_offset(overlay, name, careful=careful))
            index = _index_of(name)
            if not careful and index not in overlay.files:
                # Kafka has made it, in looking for the end, and so nothing is missing later on; but
                # all its room counts as entries, and the next append begins another segment.
                overlay.put(index, bytes(index_bytes), "one full of zeros in place of none")
                swaps.append(index)
    for name in overlay.names():
        if name in swaps:
            continue
        offset = _offset(name, careful=True)
        if offset is not None and start <= offset < end:
            overlay.remove(name, "a finished file takes its place", keep=True)


def _next_offset(overlay: Overlay, name: str, *, careful: bool) -> int:
    """The offset behind a finished log."""
    index = _index_of(name)
    with overlay.open_log(name, is_last=True) as segment:
        if not careful:
            entries = overlay.read(index) if index in overlay.files else b""
            return raw_lookups.next_offset(segment, entries)
        return next_offset(segment, segment.base_offset)


def _index_of(name: str) -> str:
    """The offset index of a finished log."""
    return name.removesuffix(_LOG + _SWAP) + ".index" + _SWAP


def _take_places(overlay: Overlay, swaps: list[str]) -> None:
    """Give finished files their plain names, the logs first."""
    why = "finished"
    logs = [name for name in swaps if name.endswith(_LOG + _SWAP)]
    for names in (logs, [name for name in swaps if name not in logs]):
        for name in names:
            target = name.removesuffix(_SWAP)
            if target in overlay.files:
                overlay.remove(target, "a finished file takes its place", keep=True)
                overlay.settle()
            overlay.rename(name, target, why)
        overlay.settle()


# ---- the end of a log that was closed cleanly ----------------------------------------------------
# The cut takes what follows the last whole batch. The index of the last segment leads there, past
# everything in front. So the whole segment is walked:
#
#     all of it is sound       the indexes are made anew
#     the index misled         the end is where the walk over all of the segment ends
#     damage lies in front     stays, and so does everything behind it up to the cut: the indexes
#                              keep their entries, since without them the log would seem to end at
#                              the damage


_OFFSET_ENTRY: Final = struct.Struct(">ii")

_TIME_ENTRY: Final = struct.Struct(">qi")

_TXN_ENTRY: Final = struct.Struct(">hqqqq")

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


@dataclass(frozen=True, slots=True)
class CutEnd:
    """A log's end after the cut.

    Attributes:
        next_offset: the offset behind the last batch.
        reindex: whether the indexes of the last segment are to be made anew.
    """

    next_offset: int
    reindex: bool


def cut_clean_end(context: LoadContext, found: LogEnd) -> CutEnd:
    """Cut off what follows the last whole batch; nothing in front of it.

    Raises:
        KsegError: the segment cannot be walked; nothing is changed.
        OSError: the disk refuses.
    """
    base = found.base_offset
    swept, end = _swept(context, base), found
    sound = swept.valid_bytes >= found.position or _is_split(context, swept)
    if not sound:
        _note(context, _where(swept), "; left as it is")
        _trim_indexes(context, found)
    elif swept.valid_bytes > found.position:
        end = _where(swept)
    reason = end.cut_reason
    if reason is not None and end.position < context.size(base):
        _note(context, end, ", though the log was closed in good order; cut")
        if sound:
            _remove_index(context, base, WHY_CUT[reason])
        context.cut_log(base, end.position, end.next_offset, WHY_CUT[reason])
    return CutEnd(end.next_offset, sound)


def _swept(context: LoadContext, base: int) -> Swept:
    with context.open(base) as segment:
        swept = sweep_segment(segment, config=context.inputs.config)
    error = swept.error
    if error is None or _is_split(context, swept):
        return swept
    if isinstance(error, OffsetOverflowError | OffsetsOutOfOrderError) and swept.valid_bytes:
        return swept
    raise error


def _is_split(context: LoadContext, swept: Swept) -> bool:
    """Whether a split mends what ended the walk, once the end is cut."""
    overflows = isinstance(swept.error, OffsetOverflowError)
    return overflows and split.overflows(context, swept.base_offset)


def _where(swept: Swept) -> LogEnd:
    """Where a walk over all of the segment ended."""
    return LogEnd(swept.base_offset, swept.next_offset, swept.valid_bytes, swept.stop)


def _note(context: LoadContext, end: LogEnd, done: str) -> None:
    assert end.cut_reason is not None
    path, message = context.path(end.base_offset), WHY_CUT[end.cut_reason] + done
    code = stop_code(end.cut_reason)
    found = Finding(code, path, message, end.position, end.next_offset)
    context.findings.append(found)


def _remove_index(context: LoadContext, base: int, why: str) -> None:
    """Remove it first: after an interruption its absence says that indexes are to be made anew."""
    name = file_of(base, INDEX)
    if name in context.overlay.files:
        context.overlay.remove(name, why, keep=False)
        context.overlay.settle()


def _trim_indexes(context: LoadContext, found: LogEnd) -> None:
    """Let no entry lead past the cut; the one by which the end was found is the last."""
    base, end = found.base_offset, found.next_offset

    def leads(entry: tuple[int, ...]) -> bool:
        return 0 < entry[1] == found.start

    def is_in_front(entry: tuple[int, ...]) -> bool:
        return any(entry) and 0 <= entry[1] < end - base

    aborted = _entries(context, file_of(base, TXNINDEX), _TXN_ENTRY)
    times = _entries(context, file_of(base, TIMEINDEX), _TIME_ENTRY)
    offsets = _entries(context, file_of(base, INDEX), _OFFSET_ENTRY)
    last = max((number for number, entry in enumerate(offsets) if leads(entry)), default=-1)
    _keep(context, file_of(base, TXNINDEX), _TXN_ENTRY, _while(lambda one: one[3] < end, aborted))
    _keep(context, file_of(base, TIMEINDEX), _TIME_ENTRY, _while(is_in_front, times))
    _keep(context, file_of(base, INDEX), _OFFSET_ENTRY, last + 1)


def trim_indexes(context: LoadContext, base: int) -> None:
    """Cut unused entries off the indexes of a damaged segment, and close its time index."""
    for kind, form in ((INDEX, _OFFSET_ENTRY), (TIMEINDEX, _TIME_ENTRY)):
        name = file_of(base, kind)
        entries = _entries(context, name, form)
        at = form.format.index("i", 1) - 1  # of the relative offset
        used = entries[:1] + list(takewhile(lambda one: one[at] != 0, entries[1:]))  # noqa: B023
        if len(used) == 1 and not any(used[0]):
            used = []
        _keep(context, name, form, len(used))


def _entries(context: LoadContext, name: str, form: struct.Struct) -> list[tuple[int, ...]]:
    if name not in context.overlay.files:
        return []
    data = context.overlay.read(name)
    return list(form.iter_unpack(data[: len(data) // form.size * form.size]))


def _while(holds: Callable[[tuple[int, ...]], bool], entries: list[tuple[int, ...]]) -> int:
    return sum(1 for _ in takewhile(holds, entries))


def _keep(context: LoadContext, name: str, form: struct.Struct, count: int) -> None:
    """Let an index have so many of its entries."""
    if name in context.overlay.files:
        data = context.overlay.read(name, size=count * form.size)
        if not context.has(name, data):
            context.overlay.put(
                name, data, "entries lead past the log's end", held=form is _OFFSET_ENTRY
            )


# ---- the steps -----------------------------------------------------------------------------------


#: Why a segment is walked from the recovery point on.
WALKED: Final = "it may not have been flushed"


@dataclass(frozen=True, slots=True)
class LoadResult:
    """The result of a load in an overlay.

    Attributes:
        context: the load context, with the overlay.
        log: the loaded log; None where it cannot be loaded.
        temporary_files: names of files that interrupted work left.
        error: why it cannot be loaded.
    """

    context: LoadContext
    log: LoadedLog | None
    temporary_files: tuple[str, ...] = ()
    error: KsegError | None = None

    def apply(self, applier: Applier, *, lacking: str = "") -> frozenset[str]:
        """Take the overlay's steps on the disk; the caller holds the lock.

        Returns:
            See `Applier.take`.

        Raises:
            KsegError: the log cannot be loaded; nothing was done.
            OSError: the disk refuses.
        """
        if self.error is not None:
            raise self.error
        missing = applier.take(self.context.overlay.steps, lacking=lacking)
        if not self.context.inputs.clean:
            # The writer may not have flushed these names; they are lasting before others follow.
            io.flush_directory(applier.directory)
        return missing


def load_partition(
    directory: Path,
    inputs: RecoveryInputs,
    *,
    policy: type[Loading] | None = None,
    progress: Progress | None = None,
    is_plan: bool = False,
) -> LoadResult:
    """Load a partition in an overlay; each segment is walked once.

    Args:
        directory: the partition.
        inputs: settings, mark and offsets for the load.
        policy: `as_broker.AsBroker` for Kafka's way; kseg's own if None.
        progress: told how many bytes of log were walked, and how many there are to walk.
        is_plan: find out what a cut costs, too, and return the error of a bad sector instead of
            raising it.

    Raises:
        OSError: it cannot be read.
    """
    chosen = policy or Loading
    context = LoadContext(
        Overlay(directory), inputs, progress, careful=chosen.careful, weighs=is_plan
    )
    try:
        log, temporary_files = chosen(context).load()
    except KsegError as error:
        return LoadResult(context, None, error=error)
    except OSError as error:
        if error.errno != EIO or not is_plan:
            raise
        unreadable = UnreadableError(f"the disk does not give it: {error.strerror}")
        unreadable.path = None if error.filename is None else os.fsdecode(error.filename)
        return LoadResult(context, None, error=unreadable)
    return LoadResult(context, log, temporary_files)


class Loading:
    """The steps of one load, in kseg's own way; `as_broker` has those that Kafka takes instead.

    Attributes:
        careful: check more than Kafka does, and throw less away.
    """

    careful = True

    def __init__(self, context: LoadContext) -> None:
        """Nothing is done yet."""
        self.context: Final = context
        self.inputs: Final = context.inputs
        #: Epochs of the checkpoint, and those in the logs that were walked.
        self._stored: LeaderEpochs | None = None
        self._walked_epochs = LeaderEpochs(None)
        #: Which file of a segment is the reason to walk it.
        self._doubtful: dict[int, str] = {}
        self._snapshots = SnapshotFiles(context.overlay.directory)

    def load(self) -> tuple[LoadedLog, tuple[str, ...]]:
        """Take all steps; returns the log and the names of temporary files.

        Raises:
            KsegError: the log cannot be loaded.
            OSError: it cannot be read.
        """
        overlay = self.context.overlay
        if overlay.directory.name.endswith(DELETE_SUFFIX):
            raise NotALogError("a log that waits for its deletion", path=overlay.directory)
        temporary_files = clear(overlay, careful=True)
        return split.retried(self.context, self._try), temporary_files

    def _try(self) -> LoadedLog:
        """All steps after the temporary files; a split begins them again."""
        self.context.bases.clear()
        self.context.findings.clear()
        self._doubtful.clear()
        self._walked_epochs = LeaderEpochs(None)
        self.find()
        self._stored = _stored_epochs(self.context)
        return self.finish(*self.recover())

    # ---- which segments there are ----------------------------------------------------------------

    def find(self) -> None:
        """Segments by their names; indexes without a log go."""
        context, overlay = self.context, self.context.overlay
        if any(name.endswith(".kafka") for name in overlay.files):
            raise UnsupportedFormatError(
                "Kafka 0.7 has no log that can be appended to", path=overlay.directory
            )
        for name in overlay.names():
            if name.endswith(f".{LOG}"):
                base = _named(context, name)
                if base is not None:
                    context.add(base)
        for name in overlay.names():
            if name.endswith(INDEX_SUFFIXES):
                base = _offset(name)
                if base is not None and file_of(base, LOG) not in overlay.files:
                    overlay.remove(name, "an index without its log", keep=True)
        overlay.settle()

    # ---- the log's end ---------------------------------------------------------------------------

    def recover(self) -> tuple[int, int]:
        """The log's end and recovery point.

        Source: Kafka `LogLoader.recoverLog`.
        """
        inputs, start = self.inputs, self.inputs.log_start_offset
        if self.context.bases:
            end = self.recover_segments()
            if end >= start:
                return end, end if inputs.clean else min(inputs.recovery_point, end)
            self.begin_anew(end)
        self.begin_at(start)
        return start, min(inputs.recovery_point, start)

    def begin_anew(self, end: int) -> None:
        """The log ends in front of its start: nothing of it stays.

        Source: Kafka `LogLoader.deleteSegmentsIfLogStartGreaterThanLogEnd`.
        """
        context, start = self.context, self.inputs.log_start_offset
        context.ended_at = end
        self.forget_epochs(end)
        context.put_epochs((), "the log begins anew")
        if context.cut is None:
            context.cut = CutPlace(context.path(start), 0, start)
        context.drop(list(context.bases), "the log ends in front of its start")
        context.snapshots().delete_all()
        context.overlay.settle()

    def begin_at(self, base: int) -> None:
        """Make the first segment."""
        self.context.begin_at(base, "the first segment")

    def forget_epochs(self, end: int) -> None:
        """The log that ends at `end` begins anew, without any epoch."""
        start = self.inputs.log_start_offset
        message = f"the log ends at {end}, in front of its start at {start}; all of it goes"
        self._note("log-start-ahead", str(self.context.overlay.directory), message, offset=start)
        self._stored = LeaderEpochs(None)
        self._walked_epochs = LeaderEpochs(None)

    def sweep(self, base: int, state: ProducerState, epochs: LeaderEpochs) -> Swept:
        """Walk a segment."""
        context = self.context
        with context.open(base) as segment:
            swept = sweep_segment(
                segment,
                config=self.inputs.config,
                producers=state,
                epochs=epochs,
                careful=self.careful,
            )
        context.walked(base, swept.size)
        return swept

    # ---- producers -------------------------------------------------------------------------------

    def state_at(self, base: int) -> tuple[ProducerState, SnapshotFiles]:
        """Producers as of a segment's base offset, from the segments found so far."""
        state, snapshots = self.context.new_state(), self.snapshots_before()
        self.rebuild(state, snapshots, self.inputs.log_start_offset, base)
        return state, snapshots

    def snapshots_before(self) -> SnapshotFiles:
        """Snapshots to begin with; none is written or deleted."""
        return self.context.snapshots(aloof=True)

    def rebuild(
        self,
        state: ProducerState,
        snapshots: SnapshotFiles,
        start: int,
        end: int,
        *,
        clean: bool = False,
    ) -> None:
        """Bring `state` from a log's start to an offset."""
        rebuild(
            state,
            snapshots,
            self.context.sources(),
            log_start_offset=start,
            end_offset=end,
            now_ms=self.inputs.now_ms,
            clean=clean,
            magic=self.inputs.config.message_format_magic,
            on_error=_pass_over if self.careful else None,
            feed=self.feed,
            bare_first=not self.careful,
        )

    # ---- recovery --------------------------------------------------------------------------------

    def recover_segments(self) -> int:
        """Walk the segments that need it; returns the log's end."""
        context, inputs = self.context, self.inputs
        todo = [] if inputs.clean else context.from_offset(inputs.recovery_point)
        last = context.bases[-1]
        walked = set(todo)
        suspects = [base for base in context.bases if base not in walked and self._suspects(base)]
        end = None
        if inputs.clean:
            found = sanity.end_of(context, last)
            end = found.next_offset
            check_followed(end, context.path(last))
            if found.cut_reason is not None:
                cut = cut_clean_end(context, found)
                end = cut.next_offset
                suspects = [base for base in suspects if base != last]
                suspects += [last] if cut.reindex else []
        context.to_walk_bytes += sum(map(context.size, [*suspects, *todo]))
        for base in suspects:
            self._reindex(base)
        if inputs.thorough:
            self._find_lost_transactions(set(suspects) | set(todo))
        if todo:
            end = self._recover_unflushed(todo)
        assert end is not None
        return end

    def _suspects(self, base: int) -> bool:
        """Whether a segment's indexes do not fit its log; notes a finding."""
        fault = sanity.index_fault_of(self.context, base)
        if fault is None:
            return False
        self._doubtful[base] = fault.kind
        self.context.findings.append(replace(fault, message=f"{fault.message}; made anew"))
        return True

    def _note(
        self,
        code: str,
        path: str,
        message: str,
        position: int | None = None,
        offset: int | None = None,
    ) -> None:
        self.context.findings.append(Finding(code, path, message, position, offset))

    def _reindex(self, base: int) -> None:
        """Make a segment's indexes anew, if all of its log is sound."""
        context = self.context
        state = self.state_at(base)[0]
        swept = self._swept(base, state, LeaderEpochs(None))
        if swept.error is not None and swept.valid_bytes == 0:
            raise swept.error
        if swept.truncated_bytes:
            code = stop_code(swept.stop, is_last=base == context.bases[-1])
            message = f"{WHY_CUT[swept.stop]}; the log and its index entries are left as they are"
            self._note(code, context.path(base), message, swept.valid_bytes, swept.next_offset)
            trim_indexes(context, base)
            return
        context.install(swept, "it does not fit its log", last=self._doubtful.get(base, INDEX))

    def _find_lost_transactions(self, walked: set[int]) -> None:
        """Make the transaction indexes that are gone anew."""
        context = self.context
        for base in list(context.bases):
            lost = base not in walked and file_of(base, TXNINDEX) not in context.overlay.files
            if not lost or not sanity.has_abort_marker(context, base):
                continue
            swept = self._swept(base, self.state_at(base)[0], LeaderEpochs(None))
            if swept.aborted and not swept.truncated_bytes:
                message = f"{len(swept.aborted)} aborted transactions in no index; made anew"
                self._note("txn-index-incomplete", context.path(base, TXNINDEX), message)
                context.install(swept, "its transaction index is gone", last=TXNINDEX)

    def _recover_unflushed(self, todo: list[int]) -> int:
        """Walk every segment from the recovery point on; returns the log's end."""
        context = self.context
        state = self.state_at(todo[0])[0]
        self._snapshots = context.snapshots()
        self._keep_snapshot(state)
        stored = () if self._stored is None else self._stored.entries
        before = [entry for entry in stored if entry.start_offset < todo[0]]
        self._walked_epochs = LeaderEpochs(None, before)
        # The one in front was flushed, but maybe not what its sealing took off the ends.
        context.assure(context.bases[max(context.bases.index(todo[0]) - 1, 0)])
        for number, base in enumerate(todo):
            swept = self._swept(base, state, self._walked_epochs)
            if swept.error is not None and swept.valid_bytes == 0:
                raise swept.error
            later = todo[number + 1 :]
            dropped = bool(swept.truncated_bytes) and self._cut(swept, later)
            # Lasting before what is written behind it: a batch that is lost whole leaves no trace.
            context.overlay.assure(file_of(base, LOG))
            following = later[:1] if not dropped else []
            if following and swept.next_offset > later[0]:
                message = f"it ends at {swept.next_offset}, {later[0]} begins before; both stay"
                self._note("offset-order", context.path(base), message, offset=later[0])
            state.map_end_offset = max([*following, swept.next_offset])
            self._keep_snapshot(state)
            context.install(swept, WALKED)
            if dropped or not later:
                return swept.next_offset
        raise AssertionError("a last segment ends the walk")

    def _cut(self, swept: Swept, later: list[int]) -> bool:
        """Cut a segment; returns whether those behind it had to go."""
        context, why = self.context, WHY_CUT[swept.stop]
        goes_on = bool(later) and later[0] == swept.next_offset
        drops = bool(later) and not goes_on
        message = why + ("; cut, and later segments go" if drops else "; cut")
        path = context.path(swept.base_offset)
        code = stop_code(swept.stop, is_last=not later)
        self._note(code, path, message, swept.valid_bytes, swept.next_offset)
        if drops:
            context.drop(later, "it follows a segment that was cut")
        context.cut_log(swept.base_offset, swept.valid_bytes, swept.next_offset, why)
        return drops

    def _swept(self, base: int, state: ProducerState, epochs: LeaderEpochs) -> Swept:
        context, swept = self.context, self.sweep(base, state, epochs)
        for fault in swept.findings:
            self._note("batch-producer", context.path(base), fault.reason, fault.position)
        error = swept.error
        if isinstance(error, OffsetsOutOfOrderError) or error is None:
            return swept
        if error.offset == LAST_OFFSET_MAX + 1:
            raise at_path(unfollowed(error.position), context.path(base))
        if isinstance(error, OffsetOverflowError) and not split.overflows(context, base):
            return swept
        raise error

    # ---- producers -------------------------------------------------------------------------------

    def feed(
        self, state: ProducerState, segment: Segment, end: int, on_error: OnError | None
    ) -> None:
        """Feed a segment's batches to `state` as far as it can be walked; damage stays.

        At a snapshot it goes on as a load that begins with that snapshot does.
        """
        if state.last_snapshot_offset == state.map_end_offset:
            offset = state.map_end_offset
            state.load(state.snapshot_entries(), offset, now_ms=self.inputs.now_ms)
        try:
            feed_segment(state, segment, end, on_error)
        except CorruptRecordError as error:
            code = "batch-length" if error.stop is None else stop_code(error.stop)
            message = f"{error.reason}; left as it is"
            found = Finding(code, str(segment.path), message, error.position)
            if found not in self.context.findings:
                self.context.findings.append(found)

    def _keep_snapshot(self, state: ProducerState) -> None:
        """Write a snapshot, and go on from the state that a load of it has.

        So a later load that begins with this snapshot writes the same snapshots behind it. An empty
        one is not written where the first segment begins. A clean shutdown writes none there
        either, and a recovery that is killed takes the mark of that shutdown away.
        """
        offset = state.map_end_offset
        state.load(state.snapshot_entries(), offset, now_ms=self.inputs.now_ms)
        bare = is_bare_first(state, self._snapshots, self.context.bases[0])
        if offset > self.inputs.log_start_offset and not bare:
            state.last_snapshot_offset = -1
            self._snapshots.take(state)

    # ---- the end ---------------------------------------------------------------------------------

    def finish(self, end: int, point: int) -> LoadedLog:
        """Epochs, snapshots and producers as of the log's end."""
        context, inputs = self.context, self.inputs
        start = max(inputs.log_start_offset, context.bases[0])
        epochs = self._end_epochs(end)
        snapshots = context.snapshots()
        state = context.new_state()
        # A snapshot where the first segment begins stays: with older segments gone, nothing else
        # tells what it does. Kafka deletes it, and knows those producers until the next crash.
        self.rebuild(state, snapshots, inputs.log_start_offset, end)
        # Kafka does so before, so that what was the newest stays until the next time.
        snapshots.remove_stray(context.bases)
        context.overlay.settle()
        return LoadedLog(start, end, max(point, start), epochs, state, snapshots)

    def _end_epochs(self, end: int) -> LeaderEpochs:
        """Remove epochs past the end first, so that they hide none of the log's own."""
        context = self.context
        if self._stored is None:
            epochs = LeaderEpochs(None, _epochs_of_log(context))
        else:
            epochs = LeaderEpochs(None, self._stored.entries)
        ahead = [entry for entry in epochs.entries if entry.start_offset > end]
        if ahead and context.cut is None:
            message = f"epoch {ahead[0].epoch} begins past the log's end at {end}; dropped"
            path = context.overlay.path(leader_epochs.FILE_NAME)
            self._note("epochs-ahead", path, message, offset=ahead[0].start_offset)
        epochs.truncate_from_end(end)
        latest = -1 if epochs.latest is None else epochs.latest.epoch
        epochs.note(entry for entry in self._walked_epochs.entries if entry.epoch > latest)
        epochs.truncate_from_start(self.inputs.log_start_offset)
        # This comes last, so that an epoch that now begins at the end goes in this load.
        epochs.truncate_from_end(end)
        stored = () if self._stored is None else self._stored.entries
        kept = stored
        if context.cut is None:  # at the end stands the epoch of a leader without a record
            kept = tuple(entry for entry in stored if entry.start_offset != end)
        malformed = self._stored is None and leader_epochs.FILE_NAME in context.overlay.files
        if malformed or epochs.entries != kept:
            context.put_epochs(epochs.entries, NOT_SAID)
            kept = stored
        epochs.dirty = kept != stored
        return epochs


def _pass_over(error: KsegError) -> None:
    """Ignore what a producer did against the rules: the walk over its segment noted it."""
    del error


def _named(context: LoadContext, name: str) -> int | None:
    """The base offset of a log, which gets a name of 20 digits; None if it is left alone."""
    base = _offset(name)
    overlay = context.overlay
    if base is None or base < 0:
        message = "no base offset in its name; a broker fails to load this log; left alone"
        context.findings.append(Finding("name", overlay.path(name), message))
        return None
    if name == file_of(base, LOG):
        return base
    if file_of(base, LOG) in overlay.files:
        message = f"another log has offset {base} in its name; left alone"
        context.findings.append(Finding("name-digits", overlay.path(name), message))
        return None
    message = "not 20 digits; renamed with its indexes"
    context.findings.append(Finding("name-digits", overlay.path(name), message))
    stem = name.partition(".")[0]
    for kind in (TXNINDEX, TIMEINDEX, INDEX, LOG):
        old = f"{stem}.{kind}"
        if old in overlay.files and file_of(base, kind) not in overlay.files:
            overlay.rename(old, file_of(base, kind), "not 20 digits")
    return base


# ---- epochs --------------------------------------------------------------------------------------


def _stored_epochs(context: LoadContext) -> LeaderEpochs | None:
    """What the checkpoint says; None if it cannot be read, or is gone and there are segments."""
    name = leader_epochs.FILE_NAME
    if name not in context.overlay.files:
        return None if context.bases else LeaderEpochs(None)
    path = context.overlay.files[name].source
    try:
        return LeaderEpochs(None, checkpoints.read_leader_epochs(path).effective)
    except (CorruptIndexError, LimitExceededError) as error:
        message = f"{error.reason}; made anew from the log"
        context.findings.append(Finding("epochs-format", path, message, error.position))
        return None


def _epochs_of_log(context: LoadContext) -> list[EpochEntry]:
    """The epochs of the whole log, from the headers of its batches."""
    epochs = LeaderEpochs(None)
    for base in context.bases:
        with context.open(base) as segment:
            for table in segment.headers():
                known = -1 if epochs.latest is None else epochs.latest.epoch
                stated = np.where(table.magic >= 2, table.leader_epoch, -1)
                before = np.maximum.accumulate(np.concatenate(([known], stated)))[:-1]
                rows = np.flatnonzero((stated > before) & (table.base_offset >= 0))
                pairs = zip(stated[rows].tolist(), table.base_offset[rows].tolist(), strict=True)
                epochs.note(EpochEntry(epoch, start) for epoch, start in pairs)
    return list(epochs.entries)


# ---- a log that is ready for appending -----------------------------------------------------------


#: What to do where the disk is too full: an opening has no option for it, `recover` has one.
_OTHERWISE: Final = "free some room, or mend the log first by kseg recover --apply --no-backup"


class LoadedSegment(NamedTuple):
    """A segment of a loaded log, not opened yet. A tuple, since a log may have many.

    Attributes:
        base_offset: from the file's name.
        size: bytes of log; all of the file.
        offset_entries, time_entries: entries of its indexes that count, where a walk over the log
            found them; None to read them from the files.
    """

    base_offset: int
    size: int
    offset_entries: int | None = None
    time_entries: int | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Loaded:
    """A log as loading leaves it.

    Attributes:
        segments: rising, never none; the last one is to be appended to.
        log_start_offset: the first offset to be read.
        log_end_offset: the next one to be given.
        recovery_point: what lies in front of it is on the disk.
        epochs: of the log; the file may say more until `flush`.
        producers: at the log's end.
        snapshots: that are there.
        findings: what was found and mended, or left as it is.
        mended: whether files were changed for it.
    """

    segments: tuple[LoadedSegment, ...]
    log_start_offset: int
    log_end_offset: int
    recovery_point: int
    epochs: LeaderEpochs
    producers: ProducerState
    snapshots: SnapshotFiles
    findings: tuple[Finding, ...] = ()
    mended: bool = False


def load(
    path: io.StrPath,
    *,
    config: LogConfig,
    clean: bool,
    recovery_point: int,
    log_start_offset: int,
    now_ms: int,
    keep_cut: bool = True,
    backup_directory: io.StrPath | None = None,
    progress: Progress | None = None,
) -> Loaded:
    """Load a partition directory, mend it on the disk, and return what it holds.

    A directory without a segment gets an empty one at the log's start.

    Args:
        path: the directory; it exists, and its data directory is locked by this process.
        config: of the log.
        clean: whether it was closed cleanly.
        recovery_point: what lies in front of it was flushed; 0 for not known.
        log_start_offset: of the checkpoint; 0 for none.
        now_ms: the clock.
        keep_cut: keep what is cut off the log beside the data directory.
        backup_directory: keep it there instead.
        progress: told how many bytes of log were walked, and how many there are to walk.

    Raises:
        KsegError: the log cannot be loaded.
        OSError: the disk refuses.

    Source: Kafka `LogLoader.load`.
    """
    directory = Path(path)
    inputs = RecoveryInputs(config, clean, max(recovery_point, 0), max(log_start_offset, 0), now_ms)
    backup = None
    if keep_cut:
        home = directory.resolve().parent
        backup = Backup(home, backup_directory, now_ms=now_ms, otherwise=_OTHERWISE)
    found = load_partition(directory, inputs, progress=progress)
    applier = Applier(directory, backup, derived=False)
    # The next writer has these producers in memory, and its next snapshot will have them.
    missing = found.apply(applier, lacking=f".{SNAPSHOT}")
    context, log = found.context, found.log
    assert log is not None
    places = log.snapshots.places()
    there = {offset: path for offset, path in places if os.path.basename(path) not in missing}
    if missing:
        log.producers.last_snapshot_offset = max(there, default=-1)
    epochs = LeaderEpochs(directory / leader_epochs.FILE_NAME, log.epochs.entries)
    epochs.dirty = log.epochs.dirty
    epochs.flush()
    return Loaded(
        tuple(_segment(context, base) for base in context.bases),
        log.log_start_offset,
        log.log_end_offset,
        log.recovery_point,
        epochs,
        log.producers,
        SnapshotFiles(directory, there.items()),
        tuple(context.findings),
        mended=applier.mended,
    )


def _segment(context: LoadContext, base: int) -> LoadedSegment:
    outcome = context.outcomes[base]
    if not outcome.walked:
        return LoadedSegment(base, outcome.keep_bytes)
    entries, times = outcome.index_entries, outcome.time_index_entries
    return LoadedSegment(base, outcome.keep_bytes, entries, times)


__all__ = [
    "WALKED",
    "WHY_CUT",
    "CutEnd",
    "LoadResult",
    "Loaded",
    "LoadedSegment",
    "Loading",
    "clear",
    "cut_clean_end",
    "load",
    "load_partition",
]
