"""Overlay: a partition directory as it is, and as a plan leaves it, file by file.

A load reads and changes the overlay alone; the disk stays as it is. The overlay remembers that a
file has another name, ends earlier, or has other bytes, and reads it that way. It also writes down
each step in its order: `steps`. An `Applier` takes these steps on the disk once all of them are
known, so that nothing is decided or read twice. The order of the steps is the order on the disk:
each `put`, `cut` and `assure` is lasting before the next step, and names are lasting with each
`settle`.

`changes` compares the first look with the last. A file that went and came back with the same bytes
has not changed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from operator import methodcaller
from pathlib import Path
from typing import Any, Final

from kseg.constants import INT32_MAX, StrPath
from kseg.errors import CorruptIndexError, LimitExceededError
from kseg.files import io, producer_snapshot
from kseg.files.atomic import replace_file
from kseg.files.grammar import offset_from_file_name
from kseg.files.log_file import LogFile
from kseg.files.producer_snapshot import ProducerSnapshotEntry
from kseg.log.pending_deletes import DELETED
from kseg.log.producers.snapshots import SnapshotDisk
from kseg.log.recovery.backup import Backup
from kseg.log.recovery.plan import Action, look_at
from kseg.log.segment.reader import Segment

#: The most bytes of an index, snapshot or checkpoint; longer ones are not read.
_SMALL_BYTES_MAX: Final = INT32_MAX
#: The most bytes to be written that steps hold; further files are computed again when due.
_HELD_BYTES_MAX: Final = 2**26

#: The reasons to replace a derived file; a missing file is created.
NOT_SAID: Final = "not what the log says"


@dataclass(slots=True)
class OverlayFile:
    """A file of the overlay.

    Attributes:
        source: the file on the disk that has its bytes.
        size: how many of these bytes count.
        data: the bytes, if they differ from the disk's; None for a whole file of the disk,
            under any name, or the front of one. Empty after `forget`.
        why: the reason of its last change.
    """

    source: str
    size: int
    data: bytes | None = None
    why: str = ""


class Applier:
    """Applies steps to the disk, with a backup of removed bytes, if there is one.

    Attributes:
        directory: the partition.
        backup: keeps cut and removed bytes; None for no backup.
        derived: whether the backup also keeps indexes, snapshots and checkpoints, which follow from
            the log.
        freed_bytes: bytes that the disk has got back so far.
        mended: whether something was changed by now. The start of an empty log does not count, nor
            does the removal of `.deleted` files.
    """

    __slots__ = (
        "_doomed",
        "_put_off",
        "_unflushed",
        "backup",
        "derived",
        "directory",
        "freed_bytes",
        "mended",
    )

    def __init__(self, directory: Path, backup: Backup | None, *, derived: bool) -> None:
        """Begin with a directory; no step is taken yet."""
        self.directory: Final = directory
        self.backup: Final = backup
        self.derived: Final = derived
        self.freed_bytes = 0
        self.mended = False
        #: Files that the next `settle` removes, and whether the backup keeps them.
        self._doomed: dict[str, bool] = {}
        #: Small files for which there was no room, in the order in which they are to be written.
        self._put_off: dict[str, bytes] = {}
        self._unflushed = False

    def take(self, steps: Iterable[Step], *, lacking: str = "") -> frozenset[str]:
        """Apply all steps; at the end, write the files that a full disk had no room for before.

        Args:
            steps: the steps of an overlay.
            lacking: suffixes of the files that the caller can do without.

        Returns:
            The names of these files, if there is still no room for them.

        Raises:
            OSError: the disk refuses, or there is still no room for another file.
        """
        for step in steps:
            step(self)
        self.settle()
        missing = set()
        for name, data in self._put_off.items():
            try:
                self._write_file(name, data)
            except OSError as error:
                if not (lacking and name.endswith(lacking) and io.is_full(error)):
                    raise
                missing.add(name)
        self._put_off.clear()
        return frozenset(missing)

    def remove(self, name: str, keep: bool | None) -> None:
        """Remove a file with the next `settle`; `keep` None: back it up if derived files are."""
        self._put_off.pop(name, None)
        self._doomed[name] = self.derived if keep is None else keep

    def spare(self, name: str) -> None:
        """Keep a file that was to be removed."""
        self._doomed.pop(name, None)

    def settle(self) -> None:
        """Remove the noted files, the last name first, and make all names lasting."""
        for name in sorted(self._doomed, reverse=True):
            keep = self._doomed.pop(name)
            freed = io.bytes_given_back(self.directory / name)
            with suppress(FileNotFoundError):
                if keep and self.backup is not None:
                    self.backup.move_file(self.directory / name)
                else:
                    io.unlink(self.directory / name)
                    self.freed_bytes += freed
            self.mended |= not name.endswith(DELETED)
            self._unflushed = True
        if self._unflushed:
            io.flush_directory(self.directory)
            self._unflushed = False

    def rename(self, name: str, target: str) -> None:
        """Rename a file; an existing one of that name is replaced."""
        self.spare(target)
        self.mended = True
        io.rename(self.directory / name, self.directory / target)
        self._unflushed = True

    def cut(self, name: str, size: int, *, keep: bool = True) -> None:
        """Cut a file's end off; lasting. The bytes are backed up unless `keep` is false."""
        path = self.directory / name
        self.mended = True
        if keep and self.backup is not None:
            self.backup.keep_tail(path, size)
        freed = io.bytes_given_back(path, cut_at=size)
        with io.WriteFile.open(path) as file:
            file.truncate(size)
            file.flush()
        self.freed_bytes += freed

    def put(self, name: str, data: bytes | Callable[[], bytes]) -> None:
        """Give a file these bytes, unless it has them; lasting.

        On a full disk the write waits until all other steps are done: deletions come first. Such a
        file is derived from the log, so it may be missing meanwhile.

        Args:
            name: the file.
            data: all of it, or a function that computes it.
        """
        new_bytes = data if isinstance(data, bytes) else data()
        self.spare(name)
        self._put_off.pop(name, None)
        if _has(self.directory / name, new_bytes):
            self.assure(name)
            return
        self.mended = True
        try:
            self._write_file(name, new_bytes)
        except OSError as error:
            if not io.is_full(error):
                raise
            self._put_off[name] = new_bytes

    def _write_file(self, name: str, data: bytes) -> None:
        if self.derived and self.backup is not None:
            self.backup.keep_file(self.directory / name)
        replace_file(self.directory / name, data)

    def create(self, name: str) -> None:
        """Make an empty file; lasting with the next `settle`."""
        self.spare(name)
        io.WriteFile.open(self.directory / name, create=True).close()
        self._unflushed = True

    def assure(self, name: str) -> None:
        """Leave a file that has the right bytes already, and make it lasting."""
        self.spare(name)
        if name in self._put_off:
            return
        with io.WriteFile.open(self.directory / name) as file:
            file.flush()


#: One step of an overlay, in the form that an `Applier` expects.
Step = Callable[[Applier], Any]


def _has(path: StrPath, data: bytes) -> bool:
    """Whether a file has just these bytes."""
    with suppress(FileNotFoundError, LimitExceededError):
        return io.read_file(path, bytes_max=len(data)) == data
    return False


class Overlay:
    """The files of one partition directory, keyed by name; not for several threads at once.

    Attributes:
        directory: the partition.
        seen: the files as they were at the first look.
        files: the present files; only regular ones.
        steps: the steps so far, in order.
        touched: names that have changed since the first look, even if they changed back.
    """

    __slots__ = (
        "_before",
        "_held_bytes",
        "_prefix",
        "_reasons",
        "directory",
        "files",
        "seen",
        "steps",
        "touched",
    )

    def __init__(self, directory: StrPath) -> None:
        """List a directory.

        Raises:
            OSError: it cannot be listed.
        """
        self.directory: Final = Path(directory)
        self._prefix: Final = os.path.join(os.fspath(directory), "")
        self.seen: Final = look_at(self.directory)
        self.files = {
            file.name: OverlayFile(self._prefix + file.name, file.size) for file in self.seen
        }
        # Sizes in the listing at the start; and why a name was removed.
        self._before: Final = {file.name: file.size for file in self.seen}
        self._reasons: dict[str, str] = {}
        self.steps: list[Step] = []
        self.touched: set[str] = set()
        self._held_bytes = 0

    # ---- looking ---------------------------------------------------------------------------------

    def path(self, name: str) -> str:
        """The path of a file, for messages."""
        return self._prefix + name

    def size(self, name: str) -> int:
        """Bytes of a file; 0 if it does not exist."""
        return self.files[name].size if name in self.files else 0

    def read(self, name: str, *, size: int | None = None, position: int = 0) -> bytes:
        """Read a file from a position: `size` bytes, or all; fewer if it ends before."""
        file = self.files[name]
        end = file.size if size is None else min(position + size, file.size)
        if file.data is not None:
            return file.data[position:end]
        if end - position > _SMALL_BYTES_MAX:
            raise CorruptIndexError("longer than any file of its kind", path=self.path(name))
        if end <= position:
            return b""
        with io.opened(file.source) as fd:
            return io.read_at(fd, position, end - position, file.source)

    def open_log(self, name: str, *, is_last: bool) -> Segment:
        """Open a log as it would be; not mapped, lest a bad sector ends the process."""
        file = self.files[name]
        if file.data is not None:  # a log without a byte, that has no file yet
            from kseg.stores.ranges import RangedFile  # late: most recoveries make no log

            nothing = RangedFile(self.path(name), 0)
            log = LogFile(nothing, offset_from_file_name(name), kafka07=False)
            return Segment(log, "never", size=0, is_last=is_last)
        return Segment.open(file.source, mapping="never", size=file.size, is_last=is_last)

    # ---- changing --------------------------------------------------------------------------------

    def _step(self, what: str, *arguments: Any, **how: bool) -> None:
        self.steps.append(methodcaller(what, *arguments, **how))

    def remove(self, name: str, why: str, *, keep: bool | None) -> None:
        """Remove a file with the next `settle`, the last names first; see `Applier.remove`."""
        del self.files[name]
        self._reasons[name] = why
        self.touched.add(name)
        self._step("remove", name, keep)

    def rename(self, name: str, target: str, why: str) -> None:
        """Rename a file; an existing one of that name is replaced."""
        file = self.files.pop(name)
        self.files[target] = file
        file.why = self._reasons[name] = why
        self.touched |= {name, target}
        self._step("rename", name, target)

    def cut(self, name: str, size: int, why: str, *, keep: bool = True) -> None:
        """Cut a file's end off; `keep` as for `Applier.cut`."""
        file = self.files[name]
        if size >= file.size:
            return
        file.size, file.why = size, why
        self.touched.add(name)
        self._step("cut", name, size, keep=keep)

    def put(
        self,
        name: str,
        data: bytes,
        why: str,
        *,
        held: bool = True,
        again: Callable[[], bytes] | None = None,
    ) -> None:
        """Give a file these bytes, unless it has them; a removed file with them comes back.

        Args:
            name: the file.
            data: all of it.
            why: it changes.
            held: whether a later step asks for the bytes.
            again: works the bytes out once more, when the steps are taken, where there are too
                many to be held until then.
        """
        path, file = self.path(name), self.files.get(name)
        # Another file may have got its name since: a `.swap` whose index is longer.
        is_as_before = file is None or file.source == path
        if self._before.get(name) == len(data) and is_as_before and _has(path, data):
            self.files[name] = OverlayFile(path, len(data))
            if name not in self.touched:
                self._step("assure", name)
                return
        else:
            self.files[name] = OverlayFile(path, len(data), data if held else b"", why)
        self.touched.add(name)
        self._held_bytes += len(data)
        too_many = again is not None and self._held_bytes > _HELD_BYTES_MAX
        self._step("put", name, again if too_many else data)

    def create(self, name: str, why: str) -> None:
        """Make an empty file."""
        self.files[name] = OverlayFile(self.path(name), 0, b"", why)
        self.touched.add(name)
        self._step("create", name)

    def assure(self, name: str) -> None:
        """Make a file lasting that has the right bytes already."""
        self._step("assure", name)

    def forget(self, name: str) -> None:
        """Drop a file's bytes from memory: no later step needs them."""
        file = self.files.get(name)
        if file is not None and file.data is not None:
            file.data = b""

    def settle(self) -> None:
        """Make all removals and names lasting before anything that follows."""
        self._step("settle")

    def spare(self, name: str) -> None:
        """Cancel the removal of a file, since it is about to be written again."""
        self._step("spare", name)

    # ---- the result ------------------------------------------------------------------------------

    def changes(self) -> tuple[Action, ...]:
        """The differences from the listing at the start, sorted by name."""
        came_from = {file.source: name for name, file in self.files.items() if file.data is None}
        names = sorted(self._before.keys() | self.files.keys())
        return tuple(action for name in names for action in self._changes_of(name, came_from))

    def _changes_of(self, name: str, came_from: dict[str, str]) -> Iterator[Action]:
        """The changes of a name: to the file that had it, and to the file that has it now.

        `came_from`: the path where the bytes of a file were at first -> the file's present name.
        """
        path, file, before = self.path(name), self.files.get(name), self._before.get(name)
        target = came_from.get(path, name)
        is_gone = file is None or (file.data is None and file.source != path)
        if before is not None and target != name:
            yield Action("rename", path, before, self.files[target].why, self.path(target))
        elif before is not None and is_gone:
            yield Action("delete", path, before, self._reasons.get(name, ""))
        if file is None:
            return
        if file.data is None:
            removed_bytes = self._before[file.source.removeprefix(self._prefix)] - file.size
            if removed_bytes:
                yield Action("truncate", path, removed_bytes, file.why)
        elif before is None:
            why = file.why
            if why == NOT_SAID:
                nothing = "missing; empty, since the log has nothing for it yet"
                why = "missing" if file.size else nothing
            yield Action("create", path, file.size, why)
        else:
            yield Action("replace", path, file.size, file.why)


class OverlaySnapshots(SnapshotDisk):
    """The disk of `SnapshotFiles`, in an overlay.

    Attributes:
        overlay: the overlay with the snapshots.
        aloof: ignore writes and removals, so that snapshots stay as they are.
    """

    __slots__ = ("aloof", "overlay")

    def __init__(self, overlay: Overlay, *, aloof: bool = False) -> None:
        """Read and write the snapshots of an overlay."""
        self.overlay: Final = overlay
        self.aloof: Final = aloof

    def read(self, path: Path) -> tuple[ProducerSnapshotEntry, ...]:
        """See `kseg.files.producer_snapshot.read`."""
        if path.name not in self.overlay.files:
            raise FileNotFoundError(path)
        return producer_snapshot.read(self.overlay.read(path.name))

    def write(self, path: Path, entries: Iterable[ProducerSnapshotEntry], *, sync: bool) -> None:
        """See `kseg.files.producer_snapshot.write`; the file is durable, whatever `sync`."""
        del sync
        if self.aloof:
            return
        # A damaged snapshot is removed before another one can be loaded.
        self.overlay.spare(path.name)
        self.overlay.settle()
        self.overlay.put(path.name, producer_snapshot.to_bytes(entries), NOT_SAID)

    def unlink(self, path: Path) -> None:
        """Remove a snapshot."""
        if path.name in self.overlay.files and not self.aloof:
            self.overlay.remove(path.name, "of no use, or not sound", keep=None)
