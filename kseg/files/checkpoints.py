"""Kafka's text checkpoints: offsets of partitions, and the leader epochs of one.

    0                       version
    2                       number of entries
    orders 0 1200           <topic> <partition> <offset>, or in leader-epoch-checkpoint
    orders 1 1187           <epoch> <start offset>

UTF-8, one entry a line, fields apart by white space. An empty file, or the version alone, means no
entries. Anything else is an error: Kafka then takes the directory offline.

`cleaner-offset-checkpoint` says up to where each compacted log is clean. A cut of a log lowers it.
Otherwise the next records there would count as clean: a tombstone would be removed at its horizon,
and an older value of its key, which no pass has searched for, would become the last one.

`LeaderEpochs` says which leader wrote which records. Both numbers ascend from entry to entry. A new
epoch is on disk before its records are written. A truncation removes entries in memory first and
may write that later: a load drops entries beyond the log's end.

Source: Kafka `CheckpointFile`, `OffsetCheckpointFile`, `LeaderEpochCheckpointFile`,
`LogCleanerManager.updateCheckpoints`, `maybeTruncateCheckpoint`, `LeaderEpochFileCache`.
"""

from __future__ import annotations

import re
import threading
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple, NoReturn

from kseg.constants import INT32S, INT64S, StrPath
from kseg.errors import CorruptIndexError, LimitExceededError
from kseg.files import atomic, io
from kseg.files.grammar import INTEGER, FileKind

CHECKPOINT_VERSION: Final = 0
#: Room for about a million partitions; the rest is not read.
CHECKPOINT_BYTES_MAX: Final = 2**28

_WHITE_SPACE: Final = re.compile(r"\s+", re.ASCII)
_BLANKS: Final = " \t\n\x0b\f\r"
#: Kafka treats a malformed line as an error of input and output.
_MALFORMED: Final = CorruptIndexError.kafka_exception


class TopicPartition(NamedTuple):
    """A partition of a topic."""

    topic: str
    partition: int


class EpochEntry(NamedTuple):
    """A leader epoch and the first offset that was written in it."""

    epoch: int
    start_offset: int


def read_offset_checkpoint(path: StrPath) -> dict[TopicPartition, int]:
    """Read one of the four offset checkpoints of a data directory.

    Returns:
        The offsets in file order; if a partition has two, the last counts.

    Raises:
        CorruptIndexError: malformed; `.position` is the byte at which the line starts.
        LimitExceededError: longer than any checkpoint.
        OSError: the file is missing or cannot be read.
    """
    reader = _Reader(io.read_file(path, bytes_max=CHECKPOINT_BYTES_MAX), path)
    offsets = {}
    for topic, partition, offset in reader.entries(fields=3):
        number = reader.integer(partition, INT32S, "partition")
        offsets[TopicPartition(topic, number)] = reader.integer(offset, INT64S, "offset")
    return offsets


def read_leader_epochs(path: StrPath) -> tuple[EpochEntry, ...]:
    """The entries of a partition's `leader-epoch-checkpoint`, as they are in the file.

    `assign_epochs` gives those that Kafka has after it has loaded them.

    Raises:
        CorruptIndexError: malformed, or an entry is negative; Kafka fails to load the log then.
        LimitExceededError: longer than any checkpoint.
        OSError: the file is missing or cannot be read.
    """
    reader = _Reader(io.read_file(path, bytes_max=CHECKPOINT_BYTES_MAX), path)
    entries = []
    for epoch, start_offset in reader.entries(fields=2):
        entry = EpochEntry(
            reader.integer(epoch, INT32S, "epoch"),
            reader.integer(start_offset, INT64S, "start offset"),
        )
        if min(entry) < 0:
            reader.fail(
                f"epoch {entry.epoch} or start offset {entry.start_offset} is negative",
                "IllegalArgumentException",
            )
        entries.append(entry)
    return tuple(entries)


def write_offset_checkpoint(path: StrPath, offsets: Mapping[TopicPartition, int]) -> None:
    """Replace an offset checkpoint, lasting when this returns; entries in the order given.

    Raises:
        ValueError: a number does not fit Kafka's field; the old file is still there.
        OSError: the old file is still there.
    """
    entries = offsets.items()
    for (topic, partition), offset in entries:
        if partition not in INT32S or offset not in INT64S:
            raise ValueError(f"no room in a checkpoint for {topic}-{partition} at {offset}")
    lines = [f"{topic} {partition} {offset}" for (topic, partition), offset in entries]
    atomic.replace_file(path, _bytes_of(lines))


def write_leader_epochs(path: StrPath, entries: Sequence[EpochEntry]) -> None:
    """Replace a partition's `leader-epoch-checkpoint`, lasting when this returns.

    Raises:
        ValueError: a number has no room in Kafka's field; the old file is still there.
        OSError: the old file is still there.
    """
    for entry in entries:
        if entry.epoch not in INT32S or entry.start_offset not in INT64S or min(entry) < 0:
            raise ValueError(f"no room in a checkpoint for {entry}")
    atomic.replace_file(path, leader_epochs_bytes(entries))


def leader_epochs_bytes(entries: Sequence[EpochEntry]) -> bytes:
    """The contents of a `leader-epoch-checkpoint` with these entries."""
    return _bytes_of([f"{entry.epoch} {entry.start_offset}" for entry in entries])


def _bytes_of(lines: Sequence[str]) -> bytes:
    """The contents of a checkpoint: its version, the number of lines, and the lines."""
    return "\n".join((str(CHECKPOINT_VERSION), str(len(lines)), *lines, "")).encode()


def assign_epochs(entries: Iterable[EpochEntry]) -> tuple[EpochEntry, ...]:
    """Apply entries one by one as Kafka's epoch cache does; the result ascends in both numbers.

    An entry for the latest epoch that does not start earlier is ignored. Any other removes entries
    of its own or a later epoch, and entries that start where it does or later.

    Source: Kafka `LeaderEpochFileCache.assign`.
    """
    cache: list[EpochEntry] = []
    for entry in entries:
        if (
            cache
            and cache[-1].epoch == entry.epoch
            and cache[-1].start_offset <= entry.start_offset
        ):
            continue
        while cache and (
            cache[-1].epoch >= entry.epoch or cache[-1].start_offset >= entry.start_offset
        ):
            cache.pop()
        cache.append(entry)
    return tuple(cache)


class _Reader:
    """Reads the lines of one checkpoint, and knows where each begins, for errors."""

    __slots__ = ("_data", "_path", "_position")

    def __init__(self, data: bytes, path: StrPath) -> None:
        self._data = data
        self._path = path
        self._position = 0

    def entries(self, *, fields: int) -> Iterator[list[str]]:
        """The fields of each entry, after checking the two lines above and the count below."""
        lines = self._lines()
        version = next(lines, None)
        if version is None:
            return
        if (number := self.integer(version, INT32S, "version", _MALFORMED)) != CHECKPOINT_VERSION:
            self.fail(f"version {number} is not {CHECKPOINT_VERSION}")
        count_line = next(lines, None)
        if count_line is None:
            return
        count = self.integer(count_line, INT32S, "number of entries", _MALFORMED)
        entry_count = 0
        for line in lines:
            entry = _WHITE_SPACE.split(line.rstrip(_BLANKS))  # a leading blank is an empty field
            if len(entry) != fields:
                self.fail(f"{line!r} has not {fields} fields")
            entry_count += 1
            yield entry
        if entry_count != count:
            self.fail(f"{count} entries announced, {entry_count} found")

    def integer(
        self, text: str, bounds: range, what: str, exception: str = "NumberFormatException"
    ) -> int:
        """Parse an integer within bounds; raise an error that names it if it is not one.

        Kafka does not count other text in an entry as a malformed line.
        """
        if not INTEGER.fullmatch(text) or (number := int(text)) not in bounds:
            reason = f"{what} {text!r} is not an integer of {bounds.stop.bit_length()} bits"
            self.fail(reason, exception)
        return number

    def fail(self, reason: str, exception: str = _MALFORMED) -> NoReturn:
        """Raise an error about the present line."""
        error = CorruptIndexError(reason, path=self._path, position=self._position)
        raise error.as_kafka(exception)

    def _lines(self) -> Iterator[str]:
        """The lines as text; sets `_position` to where each begins."""
        start = 0
        for raw in self._data.splitlines(keepends=True):
            self._position = start
            start += len(raw)
            try:
                line = raw.decode()
            except UnicodeDecodeError:
                self.fail("a line is not UTF-8")
            yield line.rstrip("\r\n")
        self._position = start


# ---- the end of the compacted part ---------------------------------------------------------------


#: Held between reading and writing: logs of one directory share the file.
_writing: Final = threading.Lock()


def read_clean_offset(directory: Path, partition: TopicPartition | None) -> int | None:
    """Up to where a log is clean; None if the checkpoint does not say.

    Args:
        directory: the partition.
        partition: its name in checkpoints; None for a directory under another name.

    Raises:
        CorruptIndexError, LimitExceededError: the checkpoint is malformed. Without it a log is
            compacted from its start.
        OSError: it cannot be read.
    """
    return None if partition is None else _clean_offsets(_cleaner_path(directory)).get(partition)


def write_clean_offset(directory: Path, partition: TopicPartition | None, offset: int) -> None:
    """Write the offset up to which a log is clean, lasting when this returns.

    Raises:
        CorruptIndexError, LimitExceededError, OSError: the checkpoint cannot be read or written;
            the old one is there.
    """
    _change(directory, partition, lambda _clean: offset)


def lower_clean_offset(directory: Path, partition: TopicPartition | None, offset: int) -> None:
    """Lower the clean offset of a log to its new end; lasting when this returns.

    A malformed checkpoint stays: nothing is compacted by it.

    Raises:
        OSError: the checkpoint cannot be read or written; the old one is there.
    """
    with suppress(CorruptIndexError, LimitExceededError):
        _change(directory, partition, lambda clean: None if clean is None else min(clean, offset))


def forget_clean_offset(directory: Path, partition: TopicPartition) -> None:
    """Take a partition that is deleted, or moved away, out of the checkpoint.

    Raises:
        OSError: as for `lower_clean_offset`.
    """
    with suppress(CorruptIndexError, LimitExceededError):
        _change(directory, partition, lambda _clean: None)


def _change(
    directory: Path,
    partition: TopicPartition | None,
    changed: Callable[[int | None], int | None],
) -> None:
    """Change or remove the offset of a log; skipped if that changes nothing."""
    if partition is None:
        return
    path = _cleaner_path(directory)
    with _writing:
        offsets = _clean_offsets(path)
        before = offsets.pop(partition, None)
        after = changed(before)
        if after != before:
            write_offset_checkpoint(
                path, offsets if after is None else {**offsets, partition: after}
            )


def _cleaner_path(directory: Path) -> Path:
    return directory.resolve().parent / FileKind.CLEANER.value


def _clean_offsets(path: Path) -> dict[TopicPartition, int]:
    try:
        return read_offset_checkpoint(path)
    except FileNotFoundError:
        return {}


# ---- leader epochs -------------------------------------------------------------------------------


UNDEFINED: Final = EpochEntry(-1, -1)


class LeaderEpochs:
    """The epochs of one partition. One thread at a time may change them.

    Attributes:
        path: the checkpoint; None keeps the epochs in memory only.
        entries: ascending in both numbers.
        dirty: whether the file still lacks a change of the entries.
    """

    __slots__ = ("dirty", "entries", "path")

    def __init__(self, entries: Iterable[EpochEntry] = (), *, path: Path | None = None) -> None:
        """Start from entries, each applied as `assign` does."""
        self.path: Final = path
        self.entries = assign_epochs(entries)
        self.dirty = False

    @classmethod
    def load(cls, path: Path) -> LeaderEpochs:
        """Read the checkpoint; a missing one has no entries.

        Raises:
            CorruptIndexError: it is malformed.
            OSError: there is one, but it cannot be read.
        """
        with suppress(FileNotFoundError):
            return cls(read_leader_epochs(path), path=path)
        return cls(path=path)

    # ---- asking ----------------------------------------------------------------------------------

    @property
    def latest(self) -> EpochEntry | None:
        """The entry with the highest epoch."""
        return self.entries[-1] if self.entries else None

    @property
    def earliest(self) -> EpochEntry | None:
        """The entry with the lowest epoch."""
        return self.entries[0] if self.entries else None

    def end_offset_for(self, epoch: int, log_end_offset: int) -> EpochEntry:
        """The epoch that this log has instead of `epoch`, and where its records end.

        A follower truncates to there. Epoch and offset are -1 where that is unknown.
        """
        latest = self.latest
        if epoch < 0 or latest is None or epoch > latest.epoch:
            return UNDEFINED
        if epoch == latest.epoch:
            return EpochEntry(epoch, log_end_offset)
        at = bisect_right(self.entries, epoch, key=lambda entry: entry.epoch)
        below = self.entries[at - 1].epoch if at else epoch
        return EpochEntry(below, self.entries[at].start_offset)

    def within(self, start_offset: int, end_offset: int) -> tuple[EpochEntry, ...]:
        """The entries of a log with only these offsets; a negative bound counts as no bound."""
        part = LeaderEpochs(self.entries)
        if start_offset >= 0:
            part.truncate_from_start(start_offset)
        part.truncate_from_end(end_offset)
        return part.entries

    # ---- changing --------------------------------------------------------------------------------

    def assign(self, epoch: int, start_offset: int) -> bool:
        """Add an epoch; on disk when this returns. Returns whether that changed anything.

        It replaces entries of its own or a higher epoch, and those that start where it does or
        later. The latest epoch with a later start changes nothing.

        Raises:
            ValueError: a negative number.
            OSError: the checkpoint could not be written; nothing is taken note of.
        """
        if epoch < 0 or start_offset < 0:
            raise ValueError(f"epoch {epoch} or start offset {start_offset} is negative")
        before = self.entries
        after = assign_epochs([*before, EpochEntry(epoch, start_offset)])
        if after == before:
            return False
        self.replace(after)
        return True

    def replace(self, entries: tuple[EpochEntry, ...]) -> None:
        """Replace all entries by these, ascending in both numbers; on disk when this returns.

        Raises:
            OSError: the checkpoint could not be written; nothing is taken note of.
        """
        self._write(entries)
        self.entries = entries

    def restore(self, entries: tuple[EpochEntry, ...]) -> None:
        """Restore earlier entries, after the append that replaced them has failed.

        A checkpoint that cannot be written now is written with the next `flush`. Until then it says
        more than the log has; loading drops epochs that begin at the log's end.
        """
        if self._keep(entries):
            with suppress(OSError):
                self.flush()

    def note(self, entries: Iterable[EpochEntry]) -> bool:
        """As `assign` for each, but durable only at the next `flush`; for records in the log."""
        return self._keep(assign_epochs([*self.entries, *entries]))

    def truncate_from_end(self, end_offset: int) -> bool:
        """Drop entries that start at `end_offset` or later; a negative one drops nothing."""
        remaining = tuple(entry for entry in self.entries if entry.start_offset < end_offset)
        return self._keep(self.entries if end_offset < 0 else remaining)

    def truncate_from_start(self, start_offset: int) -> bool:
        """Make `start_offset` the start of its epoch, and remove earlier ones.

        Returns:
            Whether the entries changed.
        """
        at = bisect_right(self.entries, start_offset, key=lambda entry: entry.start_offset)
        if not at:
            return False
        first = EpochEntry(self.entries[at - 1].epoch, start_offset)
        return self._keep((first, *self.entries[at:]))

    def clear(self) -> bool:
        """Drop all entries."""
        return self._keep(())

    def _keep(self, entries: tuple[EpochEntry, ...]) -> bool:
        """Replace the entries in memory; return whether that changes them, and a flush is due."""
        changed = entries != self.entries
        self.entries = entries
        self.dirty = self.dirty or changed
        return changed

    def flush(self) -> None:
        """Write the entries to the checkpoint, if they have changed.

        Raises:
            OSError: the old checkpoint is still there.
        """
        if self.dirty:
            self._write(self.entries)

    def _write(self, entries: tuple[EpochEntry, ...]) -> None:
        if self.path is not None:
            write_leader_epochs(self.path, entries)
        self.dirty = False


def joined_epochs(
    history: Iterable[EpochEntry], batches: Sequence[EpochEntry]
) -> tuple[EpochEntry, ...]:
    """The epochs of a log: those that its batches have, and older entries that agree with them.

    Batches cannot say which epochs the log had before them, nor in gaps that compaction left.

    Args:
        history: entries of a checkpoint or of a tier, ascending.
        batches: the epochs of the batches, ascending.
    """

    def agrees(entry: EpochEntry) -> bool:  # is between the epochs of the batches around it
        at = bisect_right(batches, entry.start_offset, key=lambda item: item.start_offset)
        lowest = batches[at - 1].epoch if at else 0
        return lowest <= entry.epoch and (at == len(batches) or entry.epoch <= batches[at].epoch)

    return assign_epochs(sorted([*filter(agrees, history), *batches]))
