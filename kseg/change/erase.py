"""Records erased by key or by offset from a log that no process has open: planned, then done.

    plan_erasure    reads the log, and says how many records of which segments are erased
    ErasurePlan     its `apply` rewrites these segments; all others stay as they are

A segment without such a record is not touched. Another is written anew and swapped in as those of
compaction are (`kseg.log.cleaner.rewrite`), so a kill leaves the old files of a segment or the new
ones. `kseg.format.erase` decides about records. A batch that loses all its records stays as a
header where Kafka's cleaner keeps it: the last batch of a producer, and the last batch of the log,
or by the rules of 4.4 that at the high watermark. Temporary files of the partition (`.deleted`,
`.cleaned`) may hold the same records: a load removes them, and the plan names them. A log whose
active segment has such records rolls first.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from kseg.constants import COMPACTION_RULES, INT64_MAX, Bools, Progress, StrPath
from kseg.documents import frozen_dataclass
from kseg.errors import KsegError, StalePlanError
from kseg.files import io
from kseg.files.log_file import Tile
from kseg.files.names import list_partition
from kseg.format.erase import Eraser, KeySet, Targets
from kseg.format.header import BatchTable
from kseg.format.times import Time
from kseg.log.cleaner.inputs import CleanerInputs, walk_sound
from kseg.log.cleaner.judge import LastBatches
from kseg.log.cleaner.rewrite import rewrite_segment, rewritten
from kseg.log.config import ConfigLike, LogConfig
from kseg.log.data_directory import partition_of, refuse_cluster_metadata
from kseg.log.reader.version import HighWatermark, SegmentInfo
from kseg.log.reader.view import LogView
from kseg.log.recovery.backup import Backup
from kseg.log.recovery.load_context import DELETE_SUFFIX
from kseg.log.recovery.plan import Action, FileSeen, Plan, Report, look_at
from kseg.log.tier.history import tiered
from kseg.log.topic_policy import is_internal
from kseg.log.writer import flush
from kseg.log.writer.state import LogState
from kseg.stores.path import local_path_at
from kseg.workers import At, Put, in_order, sum_progress, usable_cores

_DIGEST_BYTES: Final = 1 << 20


@frozen_dataclass
class ErasedSegment:
    """A segment with records to erase.

    Attributes:
        base_offset: from the file's name.
        path: the log file.
        size: the size of the log file in bytes.
        records: the number of records to erase.
        record_bytes: the bytes of their keys, values and headers.
        first_offset, last_offset: the bounds of these records.
        is_active: whether the log appends to it, so that the log rolls first.
    """

    base_offset: int
    path: Path
    size: int
    records: int
    record_bytes: int
    first_offset: int
    last_offset: int
    is_active: bool


@frozen_dataclass(repr=False)
class ErasureReport(Report):
    """The result of an erasure.

    Attributes:
        sizes: bytes of each rewritten log file now, in the order of the plan's segments.
    """

    COLUMNS = "base_offset path size new_size records"

    sizes: tuple[int, ...] = ()

    def table_rows(self) -> Sequence[Mapping[str, Any]]:
        """The rewritten segments, rising."""
        segments = map(asdict, self.plan.segments)
        rows = zip(segments, self.sizes, strict=bool(self.sizes))
        return [{**row, "path": str(row["path"]), "new_size": size} for row, size in rows]


@frozen_dataclass(repr=False)
class ErasurePlan(Plan[ErasureReport]):
    """The records to erase from a log.

    Attributes:
        path: the partition directory.
        targets: the records.
        segments: those with such records, sorted by base offset.
        temporary_files: files of interrupted or unfinished work, which are removed.
        refused: the reason why nothing can be erased; None if it can.
        config, now_ms, high_watermark: how the log is opened.
        rules: the release whose rules count; see `plan_erasure`.
        seen: the files that the plan was made for.
    """

    KEEPS = False
    REPORT = ErasureReport

    path: Path
    targets: Targets
    segments: tuple[ErasedSegment, ...]
    temporary_files: tuple[Action, ...]
    refused: str | None
    config: LogConfig
    now_ms: int
    high_watermark: HighWatermark | None
    rules: str
    seen: tuple[FileSeen, ...]

    @property
    def records(self) -> int:
        """How many records are erased."""
        return sum(segment.records for segment in self.segments)

    @property
    def is_deleted(self) -> bool:
        """Whether the directory waits for its deletion, so that all of it will be removed."""
        return str(self.path).endswith(DELETE_SUFFIX)

    @property
    def rolls(self) -> bool:
        """Whether the log begins another segment first."""
        return any(segment.is_active for segment in self.segments)

    @property
    def room_bytes(self) -> int:
        """The free room that the largest segment needs, while old and new files are both there."""
        return max((segment.size for segment in self.segments), default=0)

    @property
    def actions(self) -> tuple[Action, ...]:
        """The changes, in order."""
        if not self.segments:
            return ()
        if self.is_deleted:
            why = f"a broker deletes it; it has {self.records} records that are erased"
            size = sum(segment.size for segment in self.segments)
            return (Action("delete", str(self.path), size, why),)
        roll = Action("roll", str(self.path), 0, "the active segment has records that are erased")
        return (
            *self.temporary_files,
            *((roll,) if self.rolls else ()),
            *(
                Action("erase", str(segment.path), segment.record_bytes, _why(segment))
                for segment in self.segments
            ),
        )

    @property
    def title(self) -> str:
        """The path, and the number of records."""
        if self.refused is not None:
            return f"{self.path}: {self.refused}"
        if self.is_noop:
            return f"{self.path}: no such record"
        records, segments = self.records, len(self.segments)
        return (
            f"{self.path}: {records} record{'s' * (records > 1)} in {segments} "
            f"segment{'s' * (segments > 1)}; {self.room_bytes} bytes of free room are needed"
        )

    def check(self) -> None:
        """Refuse a log from which nothing can be erased.

        Raises:
            KsegError: `refused`.
            NotALogError: the log is KRaft's.
        """
        Plan.check(self)
        if self.refused is not None:
            raise KsegError(self.refused, path=self.path)

    def do(self, backup: Backup | None, progress: Progress | None) -> ErasureReport:
        """Rewrite the segments.

        If the process is killed on the way, each segment is as before or without the records, and
        another plan erases the rest.

        Args:
            backup: keeps the old files, and so the erased records; None for no backup.
            progress: called after each segment with the bytes of log that are done, and all.

        Raises:
            StalePlanError: files have changed since the plan was made; nothing was done.
            UncleanShutdownError: the log was not closed in good order; nothing was done.
            LogLockedError: another process, or a log of this one, writes there.
            FormatError, LimitExceededError: a batch is damaged; its segment is as it was.
            OSError: the disk refuses, or is full; the segment that was written is as it was.
        """
        self.check_fresh()
        if self.is_deleted:
            freed = _remove(self.path, backup)
            return ErasureReport(self, freed_bytes=freed)
        with flush.opened(
            self.path,
            self.config,
            now=self.now_ms,
            high_watermark=self.high_watermark,
            set_aside=True,
        ) as state:
            sizes, freed = erase(state, self, backup, progress)
        return ErasureReport(self, freed_bytes=freed, sizes=sizes)


def plan_erasure(
    path: StrPath,
    *,
    keys: Iterable[bytes] = (),
    null_key: bool = False,
    offsets: range | None = None,
    tombstones: bool = False,
    config: ConfigLike | None = None,
    now: Time | None = None,
    high_watermark: HighWatermark | None = None,
    rules: str = COMPACTION_RULES[-1],
    threads: int | None = None,
    progress: Progress | None = None,
) -> ErasurePlan:
    """Plan to erase records of a log; changes nothing, and takes no lock.

    Args:
        path: the partition directory.
        keys: all records with one of these keys.
        null_key: all records without a key.
        offsets: the records with these offsets, instead of keys.
        tombstones: leave the last record of each key, without its value and its headers.
        config: the settings of the log; Kafka's defaults if None.
        now: the time that counts; the machine's if None.
        high_watermark: as for `Log.open`.
        rules: the release whose rules say which batch stays as a header: of "3.9" and "4.0" the
            last one of the log, of "4.4" the one at the high watermark.
        threads: the number of threads that read; None for one a core.
        progress: called with the bytes of log that were read, and all.

    Raises:
        ValueError: no record is named, or records are named by keys and by offsets.
        NotALogError: it is not a partition directory, or the log of KRaft.
        UnsupportedFormatError: the log is one of Kafka 0.7.
        FormatError, LimitExceededError: a batch is damaged.
        OSError: a file cannot be read.
    """
    targets = Targets(tuple(dict.fromkeys(keys)), null_key, offsets, tombstones)
    if rules not in COMPACTION_RULES:
        raise ValueError(f"rules are those of {' or '.join(COMPACTION_RULES)}, not {rules!r}")
    directory = local_path_at(path)
    refuse_cluster_metadata(directory)
    settings = LogConfig.of(config)
    seen = look_at(directory)
    inputs = CleanerInputs.of_view(LogView.open(directory), settings, now, high_watermark)
    plan = ErasurePlan(
        directory,
        targets,
        (),
        tuple(
            # A load of the log removes them.
            Action(
                "delete",
                str(file.path),
                os.stat(file.path).st_size,
                "it may hold records that are erased",
            )
            for file in list_partition(directory).temporary_files
        ),
        _refusal(directory),
        settings,
        inputs.now_ms,
        high_watermark,
        rules,
        seen,
    )
    if plan.refused is not None:
        return plan
    segments = tuple(_find(inputs, plan, threads or usable_cores(), progress))
    stable = inputs.view.last_stable_offset
    if segments and stable < inputs.view.log_end_offset:
        return replace(
            plan,
            segments=segments,
            refused=f"a transaction is open from offset {stable} on: erase its "
            "records once it is decided",
        )
    return replace(plan, segments=segments)


def _why(segment: ErasedSegment) -> str:
    """A phrase with the offsets that are erased."""
    if segment.records == 1:
        return f"the record at offset {segment.first_offset} goes"
    offsets = f"offsets {segment.first_offset} to {segment.last_offset}"
    return f"{segment.records} records at {offsets} go"


def _refusal(directory: Path) -> str | None:
    """Why no record of a partition is erased; None if some may be."""
    partition = partition_of(directory.resolve())
    if partition is not None and is_internal(partition.topic):
        return f"{partition.topic} is one of Kafka's own topics, whose records depend on each other"
    remote = tiered(directory, tier=None)
    if remote is not None and remote.highest_remote >= 0:
        return (
            f"a tier has its records up to offset {remote.highest_remote}, too, and erasing them "
            "here leaves them there"
        )
    return None


def _find(
    inputs: CleanerInputs, plan: ErasurePlan, threads: int, progress: Progress | None
) -> Iterator[ErasedSegment]:
    """Yields the segments with records to erase; threads read them."""
    keys = KeySet(plan.targets.keys)
    eraser = _eraser_of(inputs, plan.targets, keys, plan.rules)
    if plan.targets.tombstones:
        _note_last(inputs, eraser)

    def search(info: SegmentInfo) -> At:
        def work(put: Put) -> None:
            put(_segment_of(inputs, info, replace(eraser)))

        return At(info.path, work)

    note = sum_progress(progress, sum(info.size for info in inputs.view.segments))
    works = map(search, inputs.view.segments)
    results = in_order(works, threads=threads, window=4 * threads)
    for info, segment in zip(inputs.view.segments, results, strict=True):
        note(info.size)
        if segment is not None:
            yield segment


def _remove(directory: Path, backup: Backup | None) -> int:
    """Remove a directory that a broker deletes; returns the bytes that the disk got back."""
    paths = [path for path in directory.iterdir() if path.is_file()]
    freed = sum(map(io.bytes_given_back, paths))
    if backup is not None:
        for path in paths:
            backup.keep_file(path)
    io.remove_tree(directory)
    io.flush_directory(directory.parent)
    return freed


def erase(
    state: LogState, plan: ErasurePlan, backup: Backup | None, progress: Progress | None
) -> tuple[tuple[int, ...], int]:
    """Rewrite the segments of a plan; return their new sizes, and the bytes that the disk got back.

    Args:
        state: a log open for appending.
        plan: the plan for the log.
        backup, progress: as for `ErasurePlan.do`.

    Raises:
        StalePlanError: the log is not as the plan saw it; nothing was done.
        FormatError, LimitExceededError, OSError: as `ErasurePlan.do` has it.
    """
    bases = {segment.base_offset: segment for segment in plan.segments}
    here = {info.base_offset: info for info in state.segments if info.base_offset in bases}
    if [info.size for info in here.values()] != [segment.size for segment in plan.segments]:
        raise StalePlanError("the log is not as the plan saw it", path=state.path)
    if plan.rolls:
        flush.roll(state)
    sizes: list[int] = []
    freed = 0
    note = sum_progress(progress, sum(segment.size for segment in plan.segments))
    with state.cleaning:
        inputs = CleanerInputs.of_state(state)
        eraser = _eraser_of(inputs, plan.targets, KeySet(plan.targets.keys), plan.rules)
        if plan.targets.tombstones:
            _note_last(inputs, eraser)

        def rewrite(tile: Tile) -> bytes:
            return eraser.rewrite(tile.data, tile.table, tile.base).data

        for info in state.sealed:
            if info.base_offset not in bases:
                continue
            size, freed_here = rewrite_segment(state, inputs, info, rewrite, backup)
            freed += freed_here
            sizes.append(size)
            note(info.size)
    return tuple(sizes), freed


# ---- segments ----------------------------------------------------------------------------------


def _eraser_of(inputs: CleanerInputs, targets: Targets, keys: KeySet, rules: str) -> Eraser:
    """Make the object that finds the records of a log, and leaves them out.

    Args:
        inputs: the log.
        targets: the records.
        keys: the keys of the targets.
        rules: the release whose rules count, out of `COMPACTION_RULES`.
    """
    producers = LastBatches.of(inputs.producers.values())
    before_44 = rules in COMPACTION_RULES[:2]
    kept_end = inputs.view.log_end_offset if before_44 else inputs.high_watermark

    def stays_empty(table: BatchTable) -> Bools:  # batches that keep a header without records
        stays: Bools = producers.among(table) | (table.last_offset == kept_end - 1)
        return stays

    return Eraser(targets, keys, inputs.view.log_end_offset, stays_empty)


def _note_last(inputs: CleanerInputs, eraser: Eraser) -> None:
    """Note where each key occurs last in a log, for tombstones.

    Raises:
        FormatError, LimitExceededError: a batch is damaged.
        OSError: a file cannot be read.
    """
    for info in inputs.view.segments:
        with inputs.view.open_segment(info) as segment:
            for tile in walk_sound(segment):
                eraser.note_last(tile.data, tile.table, tile.base)


def _segment_of(inputs: CleanerInputs, info: SegmentInfo, eraser: Eraser) -> ErasedSegment | None:
    """The segment and what is erased in it; None if nothing is.

    Raises:
        FormatError, LimitExceededError: a batch is damaged; with path and position.
        OSError: the file cannot be read.
    """

    def measure(tile: Tile) -> tuple[int, int, int, int]:
        """The records that are erased, their first and last offset, and their bytes."""
        where = tile.data, tile.table, tile.base
        erased = eraser.find(*where)
        measured = eraser.measured(*where, erased) if erased.records else (INT64_MAX, -1, 0)
        return erased.records, *measured

    with inputs.view.open_segment(info) as segment:
        if not any(eraser.means(columns).any() for columns in segment.read(eraser.request)):
            return None
        records, first, last, size = zip(*rewritten(segment, measure), strict=True)
    if not sum(records):
        return None
    return ErasedSegment(
        info.base_offset,
        info.path,
        info.size,
        sum(records),
        sum(size),
        min(first),
        max(last),
        is_active=bool(info.is_last),
    )


# ---- digests of segments -------------------------------------------------------------------------

#: The bytes and the SHA-256 of a file.
Digest = tuple[int, str]


def digests(directory: Path) -> dict[str, Digest]:
    """The digest of each log file of a partition, keyed by name.

    Raises:
        OSError: a file cannot be read.
    """
    logs = [files.log for files in list_partition(directory).segments]
    return {log.name: _digest(log, os.stat(log).st_size) for log in logs}


def _digest(path: Path, size: int) -> Digest:
    """The digest of the first `size` bytes of a file, or of all bytes if it has fewer."""
    digest, position = sha256(), 0
    with io.opened(path) as fd:
        while data := io.read_at(fd, position, min(size - position, _DIGEST_BYTES), path):
            digest.update(data)
            position += len(data)
    return position, digest.hexdigest()


def compare_digests(then: Mapping[str, Digest], directory: Path) -> Iterator[tuple[str, str]]:
    """Compare each segment with the one in a report.

    Args:
        then: the digests of the report.
        directory: the directory of the partition, now.

    Yields:
        The name of a log file, and a word: "equal"; "grown", the same bytes and more after them;
        "rewritten"; "new"; "gone by retention", from the front of the log; or "missing".

    Raises:
        OSError: a file cannot be read.
    """
    logs = {files.log.name: files.log for files in list_partition(directory).segments}
    first = min(logs, default="")
    for name in sorted(then.keys() | logs.keys()):
        if name not in logs:
            yield name, "gone by retention" if name < first else "missing"
        elif name not in then:
            yield name, "new"
        elif _digest(logs[name], then[name][0]) != then[name]:
            yield name, "rewritten"
        else:
            yield name, "grown" if os.stat(logs[name]).st_size > then[name][0] else "equal"
