"""LeaderEpochs: which leader wrote which records, as epochs and the first offset of each.

Both numbers ascend from entry to entry. A new epoch is on disk before its records are written. A
truncation removes entries in memory first and may write that later: a load drops entries beyond the
log's end.

Source: Kafka `LeaderEpochFileCache`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from kseg.files import checkpoints
from kseg.files.checkpoints import EpochEntry, assign_epochs

UNDEFINED: Final = EpochEntry(-1, -1)
#: The checkpoint's name in a partition directory.
FILE_NAME: Final = "leader-epoch-checkpoint"


class LeaderEpochs:
    """The epochs of one partition. One thread at a time may change them.

    Attributes:
        path: the checkpoint; None keeps the epochs in memory only.
        entries: ascending in both numbers.
        dirty: whether the file still lacks a change of the entries.
    """

    __slots__ = ("dirty", "entries", "path")

    def __init__(self, path: Path | None, entries: Iterable[EpochEntry] = ()) -> None:
        """Start from entries; each is taken as `assign` takes it."""
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
            return cls(path, checkpoints.read_leader_epochs(path).effective)
        return cls(path)

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
        part = LeaderEpochs(None, self.entries)
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
        """As `assign` for each, but on disk at the next `flush`; for records that the log has."""
        return self._keep(assign_epochs([*self.entries, *entries]))

    def truncate_from_end(self, end_offset: int) -> bool:
        """Drop entries that start at `end_offset` or later; a negative one drops nothing."""
        remaining = tuple(entry for entry in self.entries if entry.start_offset < end_offset)
        return self._keep(self.entries if end_offset < 0 else remaining)

    def truncate_from_start(self, start_offset: int) -> bool:
        """Let the log begin at `start_offset`: its epoch starts there, earlier ones are dropped."""
        at = bisect_right(self.entries, start_offset, key=lambda entry: entry.start_offset)
        if not at:
            return False
        first = EpochEntry(self.entries[at - 1].epoch, start_offset)
        return self._keep((first, *self.entries[at:]))

    def clear(self) -> bool:
        """Drop all entries."""
        return self._keep(())

    def _keep(self, entries: tuple[EpochEntry, ...]) -> bool:
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
            checkpoints.write_leader_epochs(self.path, entries)
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

    def agrees(entry: EpochEntry) -> bool:
        at = bisect_right(batches, entry.start_offset, key=lambda item: item.start_offset)
        lowest = batches[at - 1].epoch if at else 0
        return lowest <= entry.epoch and (at == len(batches) or entry.epoch <= batches[at].epoch)

    return assign_epochs(sorted([*filter(agrees, history), *batches]))
