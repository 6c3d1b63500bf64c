"""How kseg loads a log: as a broker does, but it checks more, reports more and throws less away.

    clear          what interrupted work has left                           `temporary_files`
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
from dataclasses import dataclass, replace
from errno import EIO
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

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
from kseg.files.grammar import offset_from_file_name
from kseg.format.header import stop_code
from kseg.log import epochs as leader_epochs
from kseg.log.epochs import LeaderEpochs
from kseg.log.producers.snapshots import SnapshotFiles, feed_segment, is_bare_first, rebuild
from kseg.log.recovery import sanity, split
from kseg.log.recovery.clean_end import WHY_CUT, cut_clean_end, trim_indexes
from kseg.log.recovery.findings import Finding
from kseg.log.recovery.load_context import (
    DELETE_SUFFIX,
    INDEX,
    INDEX_SUFFIXES,
    LOG,
    TIMEINDEX,
    TXNINDEX,
    LoadContext,
    LoadedLog,
    file_of,
)
from kseg.log.recovery.overlay import NOT_SAID, Applier, Overlay
from kseg.log.recovery.plan import CutPlace, RecoveryInputs
from kseg.log.recovery.sweep import Swept, check_followed, sweep_segment, unfollowed
from kseg.log.recovery.temporary_files import clear
from kseg.log.validate.rules import LAST_OFFSET_MAX

if TYPE_CHECKING:
    from kseg.log.producers.snapshots import OnError
    from kseg.log.producers.state import ProducerState
    from kseg.log.recovery.load_context import Progress
    from kseg.log.segment.reader import Segment

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


def _offset(name: str) -> int | None:
    try:
        return offset_from_file_name(name)
    except NotALogError:
        return None


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


__all__ = ["WALKED", "LoadResult", "Loading", "load_partition"]
