"""How kseg loads a log: as a broker does, but it checks more, reports more and throws less away.

    clear          temporary files of interrupted work
    find           the segments
    check          do the ends of their indexes fit their logs?             `index_check`
    recover        after an unclean end, every segment from the recovery point on is walked; after
                   a clean one, those whose indexes do not fit, and the last if its end is not sound
    log start      a log that ends before its start begins again there
    end            epochs and snapshots past the end go; producers as of the end

Where it differs from Kafka (which `as_broker` follows exactly):

    what is found                    Kafka                          here
    clean, torn end                  stays, may hide all of it      backed up, cut; damage
                                                                    before it stays
    clean, zeros at the end          fails                          cut
    clean, garbled index             is believed                    rebuilt
    clean, time index missing        an empty one                   rebuilt
    clean, transaction index gone    stays so                       rebuilt, by a plan
    clean, no snapshot at all        no producers                   read from the log
    a snapshot that names            is believed                    goes, as a corrupt one does
      offsets beyond its own
    clean, a sealed segment without  cut where it is not sound,     indexes rebuilt if all of it
      index                          a hole in the log              is sound, else left alone
    unclean, an end that is cut,     all later segments go          they stay if they begin just
      before other segments                                         where the sound part ends
    unclean, offsets out of order    the whole segment is emptied   cut before that batch
    a batch of magic 3 to 127        taken for magic 2              cut, as any bad batch
    a record breaks the rules of     fails, or ends the walk        noted
      transactions
    a garbled transaction index      may fail                       rebuilt
    epochs checkpoint malformed      fails                          rebuilt from log and tier
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
from dataclasses import replace
from errno import EIO
from itertools import takewhile
from pathlib import Path
from typing import Final

from kseg.constants import Progress, StrPath
from kseg.errors import (
    CorruptIndexError,
    CorruptRecordError,
    KsegError,
    LimitExceededError,
    NotALogError,
    OnError,
    UnreadableError,
    UnsupportedFormatError,
    at_path,
)
from kseg.files import checkpoints, io
from kseg.files.checkpoints import EpochEntry, LeaderEpochs
from kseg.format.header import stop_code
from kseg.log.findings import Finding
from kseg.log.producers.snapshots import SnapshotFiles, feed_segment, is_bare_first, rebuild
from kseg.log.producers.state import ProducerState
from kseg.log.recovery.backup import Backup
from kseg.log.recovery.index_check import (
    cut_clean_end,
    end_of,
    has_abort_marker,
    index_fault_of,
    keep_entries,
)
from kseg.log.recovery.load_context import (
    DELETE_SUFFIX,
    EPOCHS,
    INDEX,
    INDEX_SUFFIXES,
    LOG,
    SNAPSHOT,
    TIMEINDEX,
    TXNINDEX,
    WHY_CUT,
    CutPlace,
    LoadContext,
    LoadedLog,
    RecoveryInputs,
    _offset,
    clear,
    file_of,
    refuse_unrepaired,
)
from kseg.log.recovery.overlay import NOT_SAID, Applier, Overlay
from kseg.log.recovery.sweep import (
    Swept,
    epoch_entries,
    epoch_rows,
    no_next_offset,
    pass_over,
    sweep_segment,
)
from kseg.log.segment.reader import Segment
from kseg.log.tier.history import with_tier_epochs
from kseg.log.validate.rules import LAST_OFFSET_MAX

# ---- the steps -----------------------------------------------------------------------------------


#: Why a segment is walked from the recovery point on.
WALKED: Final = "it may not have been flushed"


def load_partition(
    directory: Path,
    inputs: RecoveryInputs,
    *,
    policy: type[Loading] | None = None,
    progress: Progress | None = None,
    is_plan: bool = False,
) -> Loading:
    """Load a partition in an overlay; each segment is walked once.

    Args:
        directory: the partition.
        inputs: settings, mark and offsets for the load.
        policy: `as_broker.AsBroker` for Kafka's way; kseg's own if None.
        progress: called with the bytes of log walked so far, and in all.
        is_plan: also find the cost of a cut, and note the error of a bad sector instead of raising
            it.

    Returns:
        The load, with its `log`, or the `error` that prevents one.

    Raises:
        OSError: it cannot be read.
    """
    loading = (policy or Loading)(Overlay(directory), inputs, progress, weighs=is_plan)
    try:
        loading.log = loading.load()
    except KsegError as error:
        loading.error = error
    except OSError as error:
        if error.errno != EIO or not is_plan:
            raise
        path = None if error.filename is None else os.fsdecode(error.filename)
        loading.error = UnreadableError(f"the disk does not give it: {error.strerror}", path=path)
    return loading


class Loading(LoadContext):
    """The steps of one load, in kseg's own way; `as_broker` has Kafka's steps."""

    #: Epochs of the checkpoint; None where it cannot be read.
    _stored: tuple[EpochEntry, ...] | None = None
    #: Snapshots that the walk over unflushed segments writes.
    _written: SnapshotFiles

    def load(self) -> LoadedLog:
        """Do all steps.

        Raises:
            KsegError: the log cannot be loaded.
            OSError: it cannot be read.
        """
        overlay = self.overlay
        if overlay.directory.name.endswith(DELETE_SUFFIX):
            raise NotALogError("a log that waits for its deletion", path=overlay.directory)
        self.temporary_files = clear(overlay)
        #: Which file of a segment is the reason to walk it.
        self._doubtful: dict[int, str] = {}
        #: Epochs in the logs that were walked.
        self._walked_epochs = LeaderEpochs()
        self.find()
        self._stored = _stored_epochs(self)
        return self.finish(*self.recover())

    def apply(self, applier: Applier, *, lacking: str = "") -> frozenset[str]:
        """Do the overlay's steps on the disk; the caller has the lock.

        Returns:
            See `Applier.take`.

        Raises:
            KsegError: the log cannot be loaded; nothing was done.
            OSError: the disk refuses.
        """
        if self.error is not None:
            raise self.error
        missing = applier.take(self.overlay.steps, lacking=lacking)
        if not self.inputs.clean:
            # The writer may not have flushed these names; they are lasting before others follow.
            io.flush_directory(applier.directory)
        return missing

    # ---- which segments there are ----------------------------------------------------------------

    def find(self) -> None:
        """Find segments by their names; indexes without a log are removed."""
        overlay = self.overlay
        if any(name.endswith(".kafka") for name in overlay.files):
            raise UnsupportedFormatError(
                "Kafka 0.7 has no log that can be appended to", path=overlay.directory
            )
        for name in sorted(overlay.files):
            if name.endswith(f".{LOG}"):
                base = _base_offset_of(self, name)
                if base is not None:
                    self.add(base)
        for name in sorted(overlay.files):
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
        if self.bases:
            end = self.recover_segments()
            if end >= start:
                return end, end if inputs.clean else min(inputs.recovery_point, end)
            self.begin_anew(end)
        self.begin_at(start)
        return start, min(inputs.recovery_point, start)

    def begin_anew(self, end: int) -> None:
        """The log ends before its start: remove all of it.

        Source: Kafka `LogLoader.deleteSegmentsIfLogStartGreaterThanLogEnd`.
        """
        start = self.inputs.log_start_offset
        self.ended_at = end
        self.forget_epochs(end)
        self.put_epochs((), "the log begins again")
        if self.cut is None:
            self.cut = CutPlace(self.path(start), 0, start)
        self.drop(list(self.bases), "the log ends before its start")
        self.snapshots().delete_all()
        self.overlay.settle()

    def forget_epochs(self, end: int) -> None:
        """Forget all epochs, since the log begins again, empty, at `end`."""
        start = self.inputs.log_start_offset
        message = f"the log ends at {end}, before its start at {start}; all of it is removed"
        self.note_fault("log-start-ahead", str(self.overlay.directory), message, offset=start)
        self._stored = ()
        self._walked_epochs = LeaderEpochs()

    def sweep(self, base: int, state: ProducerState, epochs: LeaderEpochs) -> Swept:
        """Walk a segment."""
        with self.open(base) as segment:
            swept = sweep_segment(
                segment,
                config=self.inputs.config,
                producers=state,
                epochs=epochs,
                careful=self.careful,
            )
        self.walked(swept.size)
        return swept

    # ---- producers -------------------------------------------------------------------------------

    def state_at(self, base: int) -> tuple[ProducerState, SnapshotFiles]:
        """The producers' state at a segment's base offset, computed from the segments before it."""
        state, snapshots = self.new_state(), self.snapshots_before()
        self.rebuild(state, snapshots, self.inputs.log_start_offset, base)
        return state, snapshots

    def snapshots_before(self) -> SnapshotFiles:
        """Snapshots to rebuild the state from; none are written or deleted."""
        return self.snapshots(aloof=True)

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
            self.bases,
            self.open,
            log_start_offset=start,
            end_offset=end,
            now_ms=self.inputs.now_ms,
            clean=clean,
            magic=self.inputs.config.message_format_magic,
            on_error=pass_over if self.careful else None,
            feed=self.feed,
            bare_first=not self.careful,
        )

    # ---- recovery --------------------------------------------------------------------------------

    def recover_segments(self) -> int:
        """Walk the segments that need it; return the log's end."""
        inputs = self.inputs
        todo = [] if inputs.clean else self.from_offset(inputs.recovery_point)
        last, walked = self.bases[-1], set(todo)
        suspects = []
        for base in self.bases:
            fault = None if base in walked else index_fault_of(self, base)
            if fault is not None:
                suspects.append(base)
                self._doubtful[base] = fault.kind
                self.findings.append(replace(fault, message=f"{fault.message}; rebuilt"))
        if inputs.clean:
            log_end = end_of(self, last)
            end = log_end.next_offset
            check_has_next_offset(end, self.path(last))
            if log_end.cut_reason is not None:
                end, is_sound = cut_clean_end(self, log_end)
                suspects = [base for base in suspects if base != last] + [last] * is_sound
        self.to_walk_bytes += sum(map(self.size, [*suspects, *todo]))
        for base in suspects:
            self._reindex(base)
        if inputs.thorough:
            self._find_lost_transactions(set(suspects) | walked)
        return self._recover_unflushed(todo) if todo else end

    def _reindex(self, base: int) -> None:
        """Rebuild a segment's indexes; if its log has damage, only report that."""
        state = self.state_at(base)[0]
        swept = self._sweep_checked(base, state, LeaderEpochs())
        if swept.truncated_bytes:
            code = stop_code(swept.stop, is_last=base == self.bases[-1])
            message = f"{WHY_CUT[swept.stop]}; the log and its index entries are left as they are"
            self.note_fault(code, self.path(base), message, swept.valid_bytes, swept.next_offset)
            # A damaged segment keeps its index entries without the unused ones after them.
            for kind, column in ((INDEX, 0), (TIMEINDEX, 1)):
                entries = self.entries(base, kind)
                is_used = (entry[column] != 0 for entry in entries[1:])  # by the relative offset
                used = 1 + sum(takewhile(bool, is_used))
                if used == 1 and not (entries and any(entries[0])):
                    used = 0
                keep_entries(self, base, kind, used)
            return
        self.install(swept, "it does not fit its log", last=self._doubtful.get(base, INDEX))

    def _find_lost_transactions(self, walked: set[int]) -> None:
        """Rebuild transaction indexes that are missing although the log has aborted ones."""
        for base in list(self.bases):
            lost = base not in walked and file_of(base, TXNINDEX) not in self.overlay.files
            if not lost or not has_abort_marker(self, base):
                continue
            swept = self._sweep_checked(base, self.state_at(base)[0], LeaderEpochs())
            if swept.aborted and not swept.truncated_bytes:
                message = f"{len(swept.aborted)} aborted transactions in no index; rebuilt"
                self.note_fault("txn-index-incomplete", self.path(base, TXNINDEX), message)
                self.install(swept, "its transaction index is gone", last=TXNINDEX)

    def _recover_unflushed(self, todo: list[int]) -> int:
        """Walk every segment from the recovery point on, cut at damage; return the log's end."""
        state = self.state_at(todo[0])[0]
        self._written = self.snapshots()
        self._keep_snapshot(state)
        before = [entry for entry in self._stored or () if entry.start_offset < todo[0]]
        self._walked_epochs = LeaderEpochs(before)
        # The segment before was flushed, but maybe not the cuts when it was sealed.
        self.assure(self.bases[max(self.bases.index(todo[0]) - 1, 0)])
        for number, base in enumerate(todo):
            swept = self._sweep_checked(base, state, self._walked_epochs)
            later = todo[number + 1 :]
            dropped = bool(swept.truncated_bytes) and self._cut_segment(swept, later)
            # Durable before the bytes after it: a batch that is lost whole leaves no trace.
            self.overlay.assure(file_of(base, LOG))
            following = later[:1] if not dropped else []
            if following and swept.next_offset > later[0]:
                message = f"it ends at {swept.next_offset}, {later[0]} begins before; both stay"
                self.note_fault("offset-order", self.path(base), message, offset=later[0])
            state.map_end_offset = max([*following, swept.next_offset])
            self._keep_snapshot(state)
            self.install(swept, WALKED)
            if dropped or not later:
                return swept.next_offset
        raise AssertionError("a last segment ends the walk")

    def _cut_segment(self, swept: Swept, later: list[int]) -> bool:
        """Cut a segment at damage; return whether the later segments were removed."""
        why = WHY_CUT[swept.stop]
        goes_on = bool(later) and later[0] == swept.next_offset
        drops = bool(later) and not goes_on
        message = why + ("; cut, and later segments are removed" if drops else "; cut")
        path = self.path(swept.base_offset)
        code = stop_code(swept.stop, is_last=not later)
        self.note_fault(code, path, message, swept.valid_bytes, swept.next_offset)
        if drops:
            self.drop(later, "it follows a segment that was cut")
        self.cut_log(swept.base_offset, swept.valid_bytes, swept.next_offset, why)
        return drops

    def _sweep_checked(self, base: int, state: ProducerState, epochs: LeaderEpochs) -> Swept:
        """Walk a segment; notes what a producer did wrong, and raises what no cut repairs."""
        swept = self.sweep(base, state, epochs)
        for fault in swept.findings:
            self.note_fault("batch-producer", self.path(base), fault.reason, fault.position)
        refuse_unrepaired(self, swept)
        return swept

    # ---- producers -------------------------------------------------------------------------------

    def feed(
        self, state: ProducerState, segment: Segment, end: int, on_error: OnError | None
    ) -> None:
        """Process a segment's batches up to any damage, which stays.

        Where there is a snapshot, it goes on as a load that begins with that snapshot does.
        """
        if state.last_snapshot_offset == state.map_end_offset:
            offset = state.map_end_offset
            state.load(state.snapshot_entries(), offset, now_ms=self.inputs.now_ms)
        try:
            feed_segment(state, segment, end, on_error)
        except CorruptRecordError as error:
            code = "batch-length" if error.stop is None else stop_code(error.stop)
            message = f"{error.reason}; left as it is"
            finding = Finding(code, str(segment.path), message, error.position)
            if finding not in self.findings:
                self.findings.append(finding)

    def _keep_snapshot(self, state: ProducerState) -> None:
        """Write a snapshot, and go on from the state that a load of it has.

        So a later load that begins with this snapshot writes the same snapshots after it. An empty
        one is not written where the first segment begins. A clean shutdown writes none there
        either, and a recovery that is killed takes the mark of that shutdown away.
        """
        offset = state.map_end_offset
        state.load(state.snapshot_entries(), offset, now_ms=self.inputs.now_ms)
        bare = is_bare_first(state, self._written, self.bases[0])
        if offset > self.inputs.log_start_offset and not bare:
            state.last_snapshot_offset = -1
            self._written.take(state)

    # ---- the end ---------------------------------------------------------------------------------

    def finish(self, end: int, point: int) -> LoadedLog:
        """Bring epochs, snapshots and producers to the log's end."""
        inputs = self.inputs
        start = max(inputs.log_start_offset, self.bases[0])
        epochs = self._end_epochs(end)
        snapshots = self.snapshots()
        state = self.new_state()
        # A snapshot where the first segment begins stays: with older segments gone, nothing else
        # has its producers. Kafka deletes it, and knows those producers until the next crash.
        self.rebuild(state, snapshots, inputs.log_start_offset, end)
        # Kafka does so earlier, so its newest snapshot stays until the next time.
        snapshots.remove_stray(self.bases)
        self.overlay.settle()
        return LoadedLog(start, end, max(point, start), epochs, state, snapshots)

    def _end_epochs(self, end: int) -> LeaderEpochs:
        """Remove epochs past the end first, so that they do not hide the log's own epochs."""
        stored = self._stored or ()
        is_lost = self._stored is None
        start = self.inputs.log_start_offset
        entries = with_tier_epochs(
            self.overlay.directory,
            _epochs_of_log(self) if is_lost else stored,
            start,
            self.inputs.tier,
            is_lost=is_lost,
        )
        epochs = LeaderEpochs(entries)
        ahead = [entry for entry in epochs.entries if entry.start_offset > end]
        if ahead and self.cut is None:
            message = f"epoch {ahead[0].epoch} begins past the log's end at {end}; dropped"
            path = self.overlay.path(EPOCHS)
            self.note_fault("epochs-ahead", path, message, offset=ahead[0].start_offset)
        epochs.truncate_from_end(end)
        latest = -1 if epochs.latest is None else epochs.latest.epoch
        epochs.note(entry for entry in self._walked_epochs.entries if entry.epoch > latest)
        epochs.truncate_from_start(start)
        # This comes last, so that an epoch that now begins at the end goes in this load.
        epochs.truncate_from_end(end)
        expected = stored
        if self.cut is None:  # at the end stands the epoch of a leader without a record
            expected = tuple(entry for entry in stored if entry.start_offset != end)
        malformed = is_lost and EPOCHS in self.overlay.files
        if malformed or epochs.entries != expected:
            self.put_epochs(epochs.entries, NOT_SAID)
            expected = stored
        epochs.dirty = expected != stored
        return epochs


def _base_offset_of(context: LoadContext, name: str) -> int | None:
    """The base offset of a log, whose file gets a name of 20 digits; None if it is left alone."""
    base = _offset(name)
    overlay = context.overlay
    if base is None or base < 0:
        message = "no base offset in its name; a broker fails to load this log; left alone"
        context.note_fault("name", overlay.path(name), message)
        return None
    if name == file_of(base, LOG):
        return base
    if file_of(base, LOG) in overlay.files:
        message = f"another log has offset {base} in its name; left alone"
        context.note_fault("name-digits", overlay.path(name), message)
        return None
    message = "not 20 digits; renamed with its indexes"
    context.note_fault("name-digits", overlay.path(name), message)
    stem = name.partition(".")[0]
    for kind in (TXNINDEX, TIMEINDEX, INDEX, LOG):
        old = f"{stem}.{kind}"
        if old in overlay.files and file_of(base, kind) not in overlay.files:
            overlay.rename(old, file_of(base, kind), "not 20 digits")
    return base


def check_has_next_offset(end_offset: int, path: StrPath) -> None:
    """Refuse a log that no append can follow, since offsets end; `path` is its last segment.

    Raises:
        OffsetOverflowError: its last batch ends at 2^63 - 1.
    """
    if end_offset > LAST_OFFSET_MAX + 1:
        raise at_path(no_next_offset(), path)


# ---- epochs --------------------------------------------------------------------------------------


def _stored_epochs(context: LoadContext) -> tuple[EpochEntry, ...] | None:
    """The stored epochs; None if the checkpoint cannot be read, or is missing beside segments."""
    name = EPOCHS
    if name not in context.overlay.files:
        return None if context.bases else ()
    path = context.overlay.files[name].source
    try:
        return checkpoints.assign_epochs(checkpoints.read_leader_epochs(path))
    except (CorruptIndexError, LimitExceededError) as error:
        message = f"{error.reason}; rebuilt from the log"
        context.note_fault("epochs-format", path, message, error.position)
        return None


def _epochs_of_log(context: LoadContext) -> list[EpochEntry]:
    """The epochs of the whole log, from the headers of its batches."""
    epochs = LeaderEpochs()
    for base in context.bases:
        with context.open(base) as segment:
            for table in segment.headers():
                rows = epoch_rows(table, epochs)
                epochs.note(epoch_entries(table, rows[table.base_offset[rows] >= 0]))
    return list(epochs.entries)


# ---- a log that is ready for appending -----------------------------------------------------------


#: The way out where the disk is too full: `recover` has an option for it, an opening does not.
_OTHERWISE: Final = "free some room, or repair the log first with kseg recover --apply --no-backup"


def load(path: StrPath, inputs: RecoveryInputs) -> LoadedLog:
    """Load a partition directory, mend it on the disk, and return the log.

    A directory without a segment gets an empty one at the log's start. The bytes that are cut off
    the log are kept beside the data directory.

    Args:
        path: the directory; it exists, and its data directory is locked by this process.
        inputs: settings, mark and offsets for the load.

    Raises:
        KsegError: the log cannot be loaded.
        OSError: the disk refuses.

    Source: Kafka `LogLoader.load`.
    """
    directory = Path(path)
    loading, backup = load_partition(directory, inputs), None
    if loading.overlay.touched:
        backup = Backup(directory.resolve().parent, now_ms=inputs.now_ms, otherwise=_OTHERWISE)
    applier = Applier(directory, backup, derived=False)
    # The next writer has these producers in memory, and its next snapshot will have them.
    missing = loading.apply(applier, lacking=f".{SNAPSHOT}")
    log = loading.log
    assert log is not None
    places = log.snapshots.places()
    present = {offset: path for offset, path in places if os.path.basename(path) not in missing}
    if missing:
        log.producers.last_snapshot_offset = max(present, default=-1)
    log.snapshots = SnapshotFiles(directory, present.items())
    epochs = LeaderEpochs(log.epochs.entries, path=directory / EPOCHS)
    epochs.dirty = log.epochs.dirty
    epochs.flush()
    log.epochs = epochs
    log.segments = tuple(loading.outcomes[base] for base in loading.bases)
    log.findings, log.mended = tuple(loading.findings), applier.mended
    return log
