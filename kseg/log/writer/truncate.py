"""Cutting a log: its end back to an offset, its start forward, or all of it.

Records that a cut removes do not reappear. A crash in the middle of a cut leaves a log from its
start to some end, never one with a hole. The order of the steps ensures that, each step durable
before the next:

    readers        see the new end, and that a cut began, before the first byte goes
    checkpoints    recovery point and log start not above the new end: recovery looks from there on;
                   nor is the offset up to which the log is compacted
    epochs         the epochs of removed records are forgotten
    segments       those above go, the newest first, each by its name
    the cut        indexes, then the log, of the segment that becomes the last one
    producers      read again from a snapshot and the log after it

On a disk too full for checkpoints, segments go before them (`kseg.log.writer.removal`). If no
segment goes, the cut itself comes before them.

An error after the first of these steps fails the log: only a new opening can find out the contents
of the disk. A read through a map of cut bytes would kill this process, so the cut first checks for
maps.

Source: Kafka `UnifiedLog.truncateTo`, `UnifiedLog.truncateFullyAndStartAt`,
`UnifiedLog.maybeIncrementLogStartOffset`, `LocalLog`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from kseg.constants import Progress, StrPath
from kseg.documents import frozen_dataclass
from kseg.errors import KsegError, NotALogError, OffsetOutOfRangeError
from kseg.files import io
from kseg.files.checkpoints import lower_clean_offset
from kseg.files.names import list_partition
from kseg.format.times import Time, bound_ms
from kseg.log import data_directory
from kseg.log.config import LogConfig
from kseg.log.data_directory import refuse_cluster_metadata
from kseg.log.pending_deletes import files_of_segment, freed_by, refuse_less, remove_segment
from kseg.log.producers.entry import OffsetMetadata
from kseg.log.producers.snapshots import producers_at, rebuild
from kseg.log.reader.find import cut_at, find_batch
from kseg.log.reader.follow import seen_log
from kseg.log.reader.version import SegmentInfo, Version
from kseg.log.reader.view import LogView
from kseg.log.recovery.backup import Backup
from kseg.log.recovery.plan import Action, CutReport, FileSeen, Plan, claimed, look_at
from kseg.log.segment.index_entries import next_offset
from kseg.log.segment.reader import Segment
from kseg.log.segment.writer import SegmentWriter
from kseg.log.tier.history import history_of, tiered
from kseg.log.validate.rules import LAST_OFFSET_MAX
from kseg.log.writer import flush, removal
from kseg.log.writer.removal import delete_segments
from kseg.log.writer.state import LogState
from kseg.stores.path import local_path_at

if TYPE_CHECKING:
    from kseg.log.tier.tier import TierLike

if TYPE_CHECKING:
    from kseg.log.tier.history import RemoteHistory


class TruncationReport(CutReport):
    """The result of a truncation."""

    __slots__ = ()
    plan: TruncationPlan


@frozen_dataclass(repr=False)
class TruncationPlan(Plan[TruncationReport]):
    """The changes when the end of a log is cut back to an offset.

    Attributes:
        path: the partition directory.
        log_start_offset: the first offset to be read, as it will be.
        log_end_offset: the next offset of the log after the cut. Batches are removed whole, so it
            may be before the offset of the cut.
        actions: the changes to log files, in order; empty if the log ends there already. Indexes
            and snapshots go with their log.
        whole: whether all segments go, since the log begins past the offset.
        position: the position of the cut in the last remaining segment; None if none is cut.
        seen: the files that the plan was made for.
        remote: its segments in a tier, and the effect of the cut on them; None if it has none.
        left_open: transactions that lose their marker, not their first record: the producer's id
            and the offset of that record.
        config: the settings of the log; Kafka's defaults if None.
        now_ms: its clock; the machine's if None.
    """

    REPORT = TruncationReport

    path: Path
    log_start_offset: int
    log_end_offset: int
    actions: tuple[Action, ...] = ()
    whole: bool = False
    position: int | None = None
    seen: tuple[FileSeen, ...] = ()
    remote: RemoteHistory | None = None
    left_open: tuple[tuple[int, int], ...] = ()
    config: LogConfig | None = None
    now_ms: Time | None = None

    @property
    def truncated_bytes(self) -> int:
        """Bytes of the log that are removed."""
        return sum(action.bytes for action in self.actions)

    @property
    def backup_bytes(self) -> int:
        """Bytes that are cut off, and so copied."""
        return sum(action.bytes for action in self.actions if action.action == "truncate")

    @property
    def title(self) -> str:
        """The path, and the size of the cut."""
        if self.is_noop:
            return f"{self.path}: nothing to do"
        return f"{self.path}: {self.truncated_bytes} bytes after {self.log_end_offset} are cut"

    def __str__(self) -> str:
        """A line for each action, and one with the offsets."""
        if self.is_noop:
            return self.title
        lines = [
            f"{action.action} {action.path} ({action.bytes} bytes): {action.why}"
            for action in self.actions
        ]
        offsets = f"offsets {self.log_start_offset} to {self.log_end_offset}"
        lines.append(f"{self.path}: {offsets}, {self.truncated_bytes} bytes are cut")
        return "\n".join([*lines, *(f"{self.path}: {line}" for line in self.effects())])

    def do(
        self,
        backup: Backup | None,
        _progress: Progress | None,
        *,
        config: LogConfig | None = None,
        now: Time | None = None,
    ) -> TruncationReport:
        """Cut the log, and close it.

        If the process is killed on the way, the log has to be recovered; it ends at the offset, at
        its old end, or at a batch in between.

        Args:
            backup: as for `Plan.do`.
            config, now: replace those of the plan.

        Raises:
            StalePlanError: files have changed since the plan was made; nothing was done.
            UncleanShutdownError: the log was not closed in good order; nothing was done.
            LogLockedError: another process, or a log of this one, writes there.
            SegmentInUseError: a reader maps bytes that the cut removes; the log ends where it did.
            OSError: the disk refuses.
        """
        lease, freed = data_directory.enter(self.path.resolve().parent), 0
        try:
            self.check_fresh()
            version = seen_log(LogView.open(self.path)).version
            ends_at_last_offset = has_no_next_offset(version)
            if ends_at_last_offset:  # the log cannot be opened for appending as it is
                # The last batch is cut first, by itself: a file with a second name must not be cut.
                last = plan_of(self.path, version, version.log_end.offset - 1)
                last.keep_files(backup)
                freed = cut_batch_at_last_offset(last)
            settings, time = (
                config or self.config or LogConfig(),
                self.now_ms if now is None else now,
            )
            with flush.opened(self.path, settings, now=time, recover=ends_at_last_offset) as state:
                plan_of(state.path, state.version, self.log_end_offset).keep_files(backup)
                truncate_to(state, self.log_end_offset)
                start, end = state.log_start_offset, state.log_end_offset
                freed += state.deletions.freed_bytes
        finally:
            lease.leave()
        done = replace(self, log_start_offset=start, log_end_offset=end)
        return TruncationReport(done, freed_bytes=freed)

    def keep_files(self, backup: Backup | None) -> None:
        """Back up the files and bytes that are removed.

        Args:
            backup: keeps them; None for no backup.

        Raises:
            OSError: the disk refuses, or is full.
        """
        if backup is None or self.is_noop:
            return
        files = list_partition(self.path)
        going = {action.path for action in self.actions if action.action == "delete"}
        for segment in files.segments:
            for path in files_of_segment(segment) if str(segment.log) in going else ():
                backup.keep_file(path)
        for snapshot in files.snapshots:
            offset = snapshot.name.base_offset
            if offset is not None and (self.whole or offset > self.log_end_offset):
                backup.keep_file(snapshot.path)
        if files.leader_epochs is not None:
            backup.keep_file(files.leader_epochs)
        for action in self.actions:
            if action.action == "truncate" and self.position is not None:
                backup.keep_tail(action.path, self.position)

    def effects(self) -> Iterator[str]:
        """The effects on transactions and on the tier, as sentences."""
        for producer_id, offset in self.left_open:
            yield (
                f"the transaction of producer {producer_id} from offset {offset} on loses its "
                "marker and stays open: readers of committed records stop there; 'kseg "
                "transactions' shows how to end it"
            )
        if self.remote is not None:
            yield from self.remote.lines(self.path.name)


def plan_of(path: Path, version: Version, offset: int) -> TruncationPlan:
    """Plan `truncate_to`; nothing is changed.

    Args:
        path: the partition directory.
        version: the log at this moment.
        offset: where it is to end.

    Raises:
        ValueError: the offset is negative.
        CorruptRecordError: a batch is damaged between the position from the index and the offset.
        OSError: the disk refuses.
    """
    if offset < 0:
        raise ValueError(f"a log cannot end at {offset}")
    segments = version.segments
    if offset >= version.log_end.offset:
        return TruncationPlan(path, version.log_start_offset, version.log_end.offset)
    if segments[0].base_offset > offset:
        log = segments[0].path.with_name(f"{offset:020d}.log")
        created = Action("create", str(log), 0, "a log has a segment to append to")
        actions = (*_deletions(segments, offset), created)
        return TruncationPlan(path, offset, offset, actions, whole=True)
    last = version.segments_from(offset)[0]
    above = [info for info in segments if info.base_offset > offset]
    actions = _deletions(above, offset)
    with io.opened(last.path) as fd:
        batch = find_batch(fd, last, offset)
    # Where the segment is cut so that no batch reaches the offset.
    position = last.size if batch is None else batch.position
    if position < last.size:
        why = f"the batch at {position} has offset {offset}, or is the first after it"
        actions = (*actions, Action("truncate", str(last.path), last.size - position, why))
    elif not actions:
        why = "no record has the offset or a larger one"
        actions = (Action("truncate", str(last.path), 0, why),)
    start = min(offset, version.log_start_offset)
    return TruncationPlan(path, start, offset, actions, position=position)


def _deletions(segments: Sequence[SegmentInfo], offset: int) -> tuple[Action, ...]:
    """The removal of segments that begin after an offset, the newest first."""
    return tuple(
        Action(
            "delete", str(info.path), info.size, f"it begins at {info.base_offset}, past {offset}"
        )
        for info in reversed(segments)
    )


# ---- off the last offset of all ------------------------------------------------------------------


def has_no_next_offset(version: Version) -> bool:
    """Whether the log's last batch ends at 2^63 - 1, so that it cannot be opened for appending."""
    return version.log_end.offset > LAST_OFFSET_MAX + 1


def cut_batch_at_last_offset(plan: TruncationPlan) -> int:
    """Cut off a last batch that ends at 2^63 - 1, so that a recovery can open the log.

    This ends its own lease of the data directory as unclean. The caller must hold another one until
    it has opened and closed the log: that lease then writes the mark of a clean shutdown again.

    Args:
        plan: made by `plan_of` for the last record's offset.

    Returns:
        Bytes that the disk got back.

    Raises:
        LogLockedError: another process, or a log of this one, writes there; nothing is changed.
        SegmentInUseError: as `truncate_to`; nothing is changed.
        OSError: the disk refuses.
    """
    with claimed(plan) as lease:
        (cut,) = plan.actions
        assert plan.position is not None
        io.check_cuts({Path(cut.path): plan.position})
        lease.mark_loaded()
        lease.forget_broker_epoch()
        freed = io.bytes_given_back(cut.path, cut_at=plan.position)
        with io.WriteFile.open(cut.path) as file:
            file.truncate(plan.position)
            file.flush()
        lease.leave(clean=False)
    return freed


# ---- back to an offset ---------------------------------------------------------------------------


def truncate_to(state: LogState, offset: int) -> bool:
    """Remove every batch that has `offset`, or a larger one, and let the log end there.

    A batch goes whole, so that records before the offset may go with it; the next append
    begins at the offset all the same. Lasting when this returns.

    Args:
        state: the log.
        offset: where it is to end. Below its first segment, all of it goes and it begins there.

    Returns:
        Whether the log ended after it.

    Raises:
        ValueError: the offset is negative.
        SegmentInUseError: bytes to be cut are read through a map, and the disk has no room for a
            new file of the rest; nothing is changed.
        CorruptRecordError: a batch before the offset is damaged; nothing is changed.
        OSError: the disk refuses; if that is not so at once, the log has failed.
        PoisonedFileError: the log failed before.

    Source: Kafka `UnifiedLog.truncateTo`.
    """
    with state.changing():
        plan = plan_of(state.path, state.version, offset)
        if plan.is_noop:
            # A leader may have begun an epoch at the end, and written nothing in it.
            state.epochs.truncate_from_end(state.log_end.offset)
            state.epochs.flush()
            return False
        if plan.whole:
            truncate_fully_and_start_at(state, offset)
            return True
        last = state.version.segments_from(offset)[0]
        io.check_cuts(_kept_bytes(last, plan))
        is_full = _is_too_full(state, plan, last)
        with state.all_or_poison():
            _truncate(state, plan, last, is_full=is_full)
        return True


def _is_too_full(state: LogState, plan: TruncationPlan, last: SegmentInfo) -> bool:
    """Whether the disk has no room to write the new end before something is removed.

    In that case, files that wait for their removal are removed at once.

    Raises:
        OSError: the removal frees too little; nothing is changed.
    """
    assert plan.position is not None
    if removal.has_room(state):
        return False
    above = [info for info in state.segments if info.base_offset > last.base_offset]
    freed_bytes = freed_by(info.files for info in above) + io.bytes_given_back(
        last.path, cut_at=plan.position
    )
    refuse_less(state.path, freed_bytes, "cutting the log there")
    state.deletions.remove_due(2**63)  # files that wait for their time
    return True


def _kept_bytes(last: SegmentInfo, plan: TruncationPlan) -> dict[Path, int]:
    """The files that get shorter, if only for a moment, and the bytes of each that stay."""
    assert plan.position is not None
    if plan.position == last.size:
        return {}
    indexes = (last.files.index, last.files.time_index)
    return {last.path: plan.position} | {path: 0 for path in indexes if path is not None}


def _truncate(
    state: LogState, plan: TruncationPlan, last: SegmentInfo, *, is_full: bool = False
) -> None:
    """Take all steps, so that a kill between two of them leaves a log that a load can repair.

    With room, the checkpoints get the new end before anything goes. On a full disk the recovery
    point alone is lowered first. The checkpoints follow once the segments above are gone, or if
    that gives too little room, once the last segment is cut.

    Args:
        state: the log.
        plan: made by `plan_of`; does not cut the whole log.
        last: the segment that is the last one after the cut.
        is_full: whether the disk is full.
    """
    assert plan.position is not None
    offset = plan.log_end_offset
    sealed = tuple(info for info in state.sealed if info.base_offset < last.base_offset)
    end = OffsetMetadata(offset, last.base_offset, plan.position)
    state.show_end(sealed, last, end, plan.log_start_offset)
    if not is_full:
        _write_end(state, offset)
    elif state.lease is not None and state.partition is not None:
        state.lease.take_back(state.partition, state.recovery_point)
    above = [info for info in state.segments if info.base_offset > last.base_offset]
    if above:
        _make_last(state, last)
    _delete_segments(state, above, snapshots=True, at_once=is_full)
    still_full = is_full and not removal.has_room(state)
    if is_full and not still_full:
        _write_end(state, offset)
    freed_bytes = io.bytes_given_back(last.path, cut_at=plan.position)
    state.active.truncate_to(offset, now_ms=state.now_ms())
    state.active.flush()
    state.deletions.add_freed(freed_bytes)
    state.move_end(offset)
    if still_full:
        # A load before this is done finds the end by walking the last segment.
        _write_end(state, offset)
    _reload_producers(state)
    state.flush_names()
    state.publish()
    state.note_offsets()


def _write_end(state: LogState, offset: int) -> None:
    """Write the checkpoints and the epochs for the new end; then segments above may be removed."""
    lower_clean_offset(state.path, state.partition, offset)
    state.note_offsets(write=True)
    state.epochs.truncate_from_end(offset)
    state.epochs.flush()


def _make_last(state: LogState, last: SegmentInfo) -> None:
    """Append to a sealed segment from now on; close the segments above it."""
    writer = state.pop_unflushed(last.base_offset)
    if writer is None:
        created_ms = state.created_ms(last.base_offset)
        writer = SegmentWriter.open(state.path, last.base_offset, state.config, now_ms=created_ms)
    before = state.active
    state.set_active(writer, seal=False)
    before.close(trim=False)
    removed_bases = {
        info.base_offset for info in state.sealed if info.base_offset >= last.base_offset
    }
    state.replace_segments(removed_bases)


def _delete_segments(
    state: LogState, segments: Sequence[SegmentInfo], *, snapshots: bool, at_once: bool = False
) -> None:
    """Rename segments to be deleted, the newest first; each name lasts before the next changes.

    So a kill leaves the front of the log, and no hole in it.

    Args:
        state: the log; its readers do not see these segments any more.
        segments: in any order.
        snapshots: also delete the producer snapshots at their bases.
        at_once: remove the files now; else after `file_delete_delay_ms`.
    """
    for info in sorted(segments, key=lambda info: -info.base_offset):
        if at_once:
            state.unlink_segment(info, snapshot=snapshots)
        else:
            delete_segments(state, [info], snapshots=snapshots)
        state.flush_names()


def _reload_producers(state: LogState) -> None:
    """Load the producers' state at the log's end, from a snapshot and the batches after it."""
    segments = {info.base_offset: info for info in state.segments}

    def opened(base: int) -> Segment:
        """Open a segment without a map, since this process may cut it again."""
        info = segments[base]
        return Segment.open(info.path, mapping="never", size=info.size, is_last=info.is_last)

    rebuild(
        state.producers,
        state.snapshots,
        [*segments],
        opened,
        log_start_offset=state.log_start_offset,
        end_offset=state.log_end.offset,
        now_ms=state.now_ms(),
        clean=False,
        magic=state.config.message_format_magic,
    )
    state.producers.high_watermark_updated(state.high_watermark.offset)


# ---- all of it -----------------------------------------------------------------------------------


def truncate_fully_and_start_at(
    state: LogState, offset: int, log_start_offset: int | None = None
) -> None:
    """Remove everything, and let an empty log begin at `offset`. Lasting when this returns.

    Args:
        state: the log.
        offset: where it begins and ends.
        log_start_offset: its new log start, if not `offset`.

    Raises:
        ValueError: an offset is negative or has more than 64 bits, or the start is past the end.
        OSError: the disk refuses, and the log has failed.
        PoisonedFileError: the log failed before.

    Source: Kafka `UnifiedLog.truncateFullyAndStartAt`.
    """
    start = offset if log_start_offset is None else log_start_offset
    if not 0 <= start <= offset <= LAST_OFFSET_MAX + 1:
        raise ValueError(f"a log cannot start at {start} and end at {offset}")
    with state.changing():
        # A new start cannot be stored on a full disk: all files but one name are removed.
        if not (removal.has_room(state) or truncate_to(state, state.first_base_offset)):
            refuse_less(state.path, 0, "an empty log")
        _begin_anew(state, offset, start)


def _begin_anew(state: LogState, offset: int, start: int) -> None:
    """Remove all segments and begin an empty one at `offset`; the log starts at `start`."""
    with state.all_or_poison():
        last = SegmentInfo(state.files_of(offset), 0, is_last=True)
        end = OffsetMetadata(offset, offset, 0)
        state.show_end((), last, end, start, anew=True)
        lower_clean_offset(state.path, state.partition, offset)
        # Should all segments be gone after a crash, the log begins where this says.
        state.note_offsets(write=True, all_go=True)
        state.epochs.clear()
        state.epochs.flush()
        old_segments = state.segments
        state.active.close(trim=False)
        state.replace_segments({info.base_offset for info in old_segments})
        _delete_segments(state, old_segments, snapshots=False)
        remove_segment(last.files)
        writer = SegmentWriter.open(
            state.path, offset, state.config, create=True, now_ms=state.now_ms()
        )
        state.set_active(writer, seal=False)
        writer.flush()
        state.snapshots.truncate_fully_and_start_at(state.producers, offset)
        state.snapshots.on_log_start_incremented(state.producers, start)
        state.flush_names()
        state.move_end(offset)
        state.publish()
        state.note_offsets(write=True)


# ---- the start -----------------------------------------------------------------------------------


def increment_log_start(state: LogState, offset: int) -> bool:
    """Let the log start at `offset`; earlier records cannot be read any more.

    The files of segments that lie before it wholly go with the next retention, or now where the
    disk is too full to write the start down. Producers are not forgotten. Lasting when this
    returns.

    Args:
        state: the log.
        offset: at most the high watermark.

    Returns:
        Whether the log started before it.

    Raises:
        OffsetOutOfRangeError: it is negative, or past the high watermark.
        OSError: the start is moved, but not for good: a crash may take it back. Or the disk is too
            full to write it down and gets too little back from segments that lie before it wholly:
            nothing is changed.
        PoisonedFileError: the log failed before.

    Source: Kafka `UnifiedLog.maybeIncrementLogStartOffset`.
    """
    with state.changing():
        if not 0 <= offset <= state.replicated_offset:
            raise OffsetOutOfRangeError(
                f"a log whose high watermark is {state.replicated_offset} cannot start there",
                path=state.path,
                offset=offset,
            )
        if offset <= state.log_start_offset:
            # Where it starts may not be written down yet: a call before may have failed half-way.
            state.note_offsets(write=True)
            return False
        pairs = pairwise(state.segments)
        removal.free_oldest(state, [info for info, later in pairs if later.base_offset <= offset])
        state.move_start(offset)
        state.snapshots.on_log_start_incremented(state.producers, offset)
        state.publish()
        # The checkpoint first: epochs that reach further down do no harm, and should it fail, the
        # log may start there again.
        state.note_offsets(write=True)
        state.epochs.truncate_from_start(offset)
        state.epochs.flush()
        return True


# ---- the plan of a cut, and the cut at a time ----------------------------------------------------


def plan_truncation(
    path: StrPath,
    offset: int | None = None,
    *,
    time: Time | None = None,
    tier: TierLike | None = None,
) -> TruncationPlan:
    """Plan a cut of a log back to an offset; changes nothing, and takes no lock.

    Args:
        path: a partition directory, or a `Log`.
        offset: the new end of the log: batches with this offset or larger ones are removed whole,
            so the end may lie before it. Below the first segment the whole log is removed, and
            begins again there.
        time: the log as it stood then, instead: it ends before the first batch with a later
            time.
        tier: as for `plan_retention`.

    Raises:
        ValueError: the offset is negative, or there is an offset and a time, or neither.
        TierError: what a tier says of its segments cannot be used.
        NotALogError: not a partition directory, or that of KRaft.
        CorruptRecordError: a batch is damaged between the position from the index and the offset.
        OSError: a file cannot be read.

    Example:
        >>> plan_truncation("orders-0", 1_200).truncated_bytes  # doctest: +SKIP
        65536
    """
    if (offset is None) == (time is None):
        raise ValueError("a log is cut at an offset or at a time")
    directory = local_path_at(path)
    if not directory.is_dir():
        os.stat(directory)
        raise NotALogError("not a partition directory", path=path)
    refuse_cluster_metadata(directory)
    seen = look_at(directory)
    view = LogView.open(directory, mapping="never")
    version = seen_log(view).version
    if offset is None:
        at_ms = bound_ms(time)
        assert at_ms is not None
        offset, _ = cut_at(view, view.first_offset, at_ms, "first")
    plan = plan_of(directory, version, offset)
    if plan.position is not None:
        end = _end_at(version.segments_from(offset)[0], plan.position, offset)
        plan = replace(plan, log_end_offset=end)
    if not (plan.is_noop or has_no_next_offset(version)):
        plan = replace(plan, left_open=_left_open(view, plan.log_end_offset))
    log, remote = tiered(directory, tier), None
    if log is not None and plan.whole:  # no epoch is left, by which a copy counts
        remote = history_of(log, deleted=log.finished, start=offset)
    elif log is not None:
        remote = history_of(log, end=plan.log_end_offset)
    return replace(plan, seen=seen, remote=remote)


def _end_at(info: SegmentInfo, position: int, offset: int) -> int:
    """The end of a log that was cut at a position, as the next load will find it."""
    with Segment.open(info.path, mapping="never", size=position, is_last=True) as segment:
        start = segment.start_for_offset(offset - 1).position
        return next_offset(segment, offset - 1 if start < position else info.base_offset)


def _left_open(view: LogView, end: int) -> tuple[tuple[int, int], ...]:
    """Transactions that will be open at the new end and have ended before the old one.

    Each is the producer's id, and the first offset.
    """
    expiration_ms = LogConfig().producer_id_expiration_ms
    with suppress(KsegError):
        now, before = (
            {(producer_id, place.offset) for producer_id, place in state.ongoing}
            for state in (
                producers_at(view, at, expiration_ms=expiration_ms)
                for at in (end, view.log_end_offset)
            )
        )
        return tuple(sorted(now - before))
    return ()
