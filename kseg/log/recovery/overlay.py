"""Overlay: a partition directory as it is, and as a plan leaves it, file by file.

Whoever loads a log looks at the overlay alone and changes the overlay alone. Without an applier
nothing else changes: the overlay remembers that a file has another name, ends earlier, or has other
bytes, and reads it that way. With an applier each change is made on the disk, too, and lasting in
the order that the caller asks for.

What has changed between the first look and the last is told by `changes`, whatever came between: a
file that went and came back with the same bytes has not changed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from kseg.errors import CorruptIndexError, LimitExceededError
from kseg.files import io, producer_snapshot
from kseg.files.atomic import replace_file
from kseg.files.producer_snapshot import ProducerSnapshot, ProducerSnapshotEntry
from kseg.log.pending_deletes import DELETED
from kseg.log.recovery.segment_part import EmptySegment, SegmentPart
from kseg.log.segment.reader import Segment

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kseg.files.mapping import Mapping
    from kseg.log.recovery.backup import Backup

#: No index, snapshot or checkpoint has more bytes; what is longer is not read.
_SMALL_BYTES_MAX: Final = 2**31 - 1


class FileSeen(NamedTuple):
    """A file as it was when it was looked at. Made for each file of a log, hence a tuple.

    Attributes:
        name: in its directory.
        size: its bytes.
        modified_ns: when it was last written, in ns.
        inode: which file it is.
    """

    name: str
    size: int
    modified_ns: int
    inode: int


@dataclass(frozen=True, slots=True)
class Action:
    """One change of one file.

    Attributes:
        action: "create", "delete", "rename", "truncate" or "replace".
        path: the file.
        bytes: how many the file has that is created, deleted, renamed or put in another's place; of
            a "truncate", how many go.
        why: in a few words.
        target: the new name of a "rename".
    """

    action: str
    path: str
    bytes: int
    why: str
    target: str | None = None


@dataclass(slots=True)
class OverlayFile:
    """A file of the overlay.

    Attributes:
        source: where its bytes lie on the disk.
        size: how many of them count.
        data: the bytes themselves, where they are other ones; None for those on the disk. Of a file
            whose bytes nobody will ask for, none.
        why: of its last change.
        start: where in `source` its bytes begin: a part of a log that is split.
        part: whether it is such a part.
    """

    source: str
    size: int
    data: bytes | None = None
    why: str = ""
    start: int = 0
    part: bool = False


class Applier:
    """Changes files on the disk, and keeps what goes where something to keep it in is given.

    Attributes:
        directory: the partition.
        keeper: keeps what is cut or removed; None for nothing.
        derived: whether indexes, snapshots and checkpoints are kept, too, that can be had again
            from the log.
        freed_bytes: what the disk has got back by now.
        mended: whether something was changed by now. An empty log that is begun is no change, nor
            is it one to remove what waits under `.deleted`.
    """

    __slots__ = (
        "_doomed",
        "_put_off",
        "_unflushed",
        "derived",
        "directory",
        "freed_bytes",
        "keeper",
        "mended",
    )

    def __init__(self, directory: Path, keeper: Backup | None, *, derived: bool) -> None:
        """Nothing is done yet."""
        self.directory: Final = directory
        self.keeper: Final = keeper
        self.derived: Final = derived
        self.freed_bytes = 0
        self.mended = False
        self._doomed: dict[str, bool] = {}
        #: Small files for which there was no room, in the order in which they are to be written.
        self._put_off: dict[str, bytes] = {}
        self._unflushed = False

    def remove(self, name: str, *, keep: bool) -> None:
        """Remove a file, once `settle` is called."""
        self._put_off.pop(name, None)
        self._doomed[name] = keep

    def spare(self, name: str) -> None:
        """A file is not to be removed after all."""
        self._doomed.pop(name, None)

    def settle(self) -> None:
        """Remove what is to go, the last name first, and make all names lasting."""
        for name in sorted(self._doomed, reverse=True):
            keep = self._doomed.pop(name)
            freed = io.bytes_given_back(self.directory / name)
            with suppress(FileNotFoundError):
                if keep and self.keeper is not None:
                    self.keeper.move_file(self.directory / name)
                else:
                    io.unlink(self.directory / name)
                    self.freed_bytes += freed
            self.mended |= not name.endswith(DELETED)
            self._unflushed = True
        if self._unflushed:
            io.flush_directory(self.directory)
            self._unflushed = False

    def rename(self, name: str, target: str) -> None:
        """Give a file another name, in place of one that has it."""
        self.spare(target)
        self.mended = True
        io.rename(self.directory / name, self.directory / target)
        self._unflushed = True

    def cut(self, name: str, size: int) -> None:
        """Keep a file's end and cut it off; lasting."""
        path = self.directory / name
        self.mended = True
        if self.keeper is not None:
            self.keeper.keep_tail(path, size)
        freed = io.bytes_given_back(path, cut_at=size)
        with io.WriteFile.open(path) as file:
            file.truncate(size)
            file.flush()
        self.freed_bytes += freed

    def put(self, name: str, data: bytes) -> bool:
        """Give a file these bytes; lasting.

        Returns:
            Whether that is done. On a full disk it is put off until `finish`: what goes comes
            first. What follows from the log is missed by nobody meanwhile.
        """
        self.mended = True
        self.spare(name)
        self._put_off.pop(name, None)
        try:
            self._put(name, data)
        except OSError as error:
            if not io.is_full(error):
                raise
            self._put_off[name] = data
            return False
        return True

    def _put(self, name: str, data: bytes) -> None:
        self.keep_derived(name)
        replace_file(self.directory / name, data)

    def finish(self, *, lacking: str = "") -> frozenset[str]:
        """Write what was put off; all that goes is gone.

        Args:
            lacking: how the names of files end without which the caller can do.

        Returns:
            The names of such files, if there is still no room for them.

        Raises:
            OSError: there is still no room for another one.
        """
        missing = set()
        for name, data in self._put_off.items():
            try:
                self._put(name, data)
            except OSError as error:
                if not (lacking and name.endswith(lacking) and io.is_full(error)):
                    raise
                missing.add(name)
        self._put_off.clear()
        return frozenset(missing)

    def keep_derived(self, name: str) -> None:
        """Keep a file that will be replaced, if such are kept."""
        if self.derived and self.keeper is not None:
            self.keeper.keep_file(self.directory / name)

    def create(self, name: str) -> None:
        """Make an empty file; lasting with the next `settle`."""
        self.spare(name)
        io.WriteFile.open(self.directory / name, create=True).close()
        self._unflushed = True

    def assure(self, name: str) -> None:
        """A file has the bytes that are wanted: make them lasting, and it stay."""
        self.spare(name)
        if name in self._put_off:
            return
        with io.WriteFile.open(self.directory / name) as file:
            file.flush()


class Overlay:
    """The files of one partition directory, by name; not for several threads at once.

    Attributes:
        directory: the partition.
        seen: the files as they were at the first look.
        files: those that are there now; files that are no regular ones are left out.
        applier: what makes changes on the disk; None to imagine them.
        mapping: how logs are opened; not mapped, lest a bad sector ends the process.
    """

    __slots__ = (
        "_before",
        "_prefix",
        "_reasons",
        "applier",
        "directory",
        "files",
        "mapping",
        "seen",
    )

    def __init__(
        self, directory: io.StrPath, *, applier: Applier | None = None, mapping: Mapping = "never"
    ) -> None:
        """Look at a directory.

        Raises:
            OSError: it cannot be listed.
        """
        self.directory: Final = Path(directory)
        self.applier: Final = applier
        self.mapping: Final[Mapping] = mapping
        self._prefix: Final = os.path.join(os.fspath(directory), "")
        self.seen: Final = look_at(self.directory)
        self.files = self._as_seen(self.seen)
        self._before: Final = {file.name: file.size for file in self.seen}
        self._reasons: dict[str, str] = {}

    def _as_seen(self, seen: Iterable[FileSeen]) -> dict[str, OverlayFile]:
        prefix = self._prefix
        return {file.name: OverlayFile(prefix + file.name, file.size) for file in seen}

    # ---- looking ---------------------------------------------------------------------------------

    def names(self) -> list[str]:
        """All names, rising."""
        return sorted(self.files)

    def path(self, name: str) -> str:
        """What a file is called, for messages."""
        return self._prefix + name

    def size(self, name: str) -> int:
        """Bytes of a file."""
        return self.files[name].size

    def read(self, name: str, *, size: int | None = None, position: int = 0) -> bytes:
        """Bytes of a file, all of them unless told; fewer where it ends."""
        file = self.files[name]
        end = file.size if size is None else min(position + size, file.size)
        if file.data is not None:
            return file.data[position:end]
        if end - position > _SMALL_BYTES_MAX:
            raise CorruptIndexError("longer than any file of its kind", path=self.path(name))
        if end <= position:
            return b""
        fd = io.open_read(file.source)
        try:
            return io.read_at(fd, position, end - position, file.source)
        finally:
            os.close(fd)

    def open_log(self, name: str, *, is_last: bool) -> Segment:
        """Open a log as it would be."""
        file = self.files[name]
        if file.data is not None:
            return EmptySegment(Path(self.path(name)))
        if file.part:
            end = file.start + file.size
            return SegmentPart.part(Path(file.source), name, file.start, end, self.mapping)
        return Segment.open(file.source, mapping=self.mapping, size=file.size, is_last=is_last)

    # ---- changing --------------------------------------------------------------------------------

    def remove(self, name: str, why: str, *, keep: bool) -> None:
        """Let a file go; on the disk with the next `settle`, the last names first."""
        del self.files[name]
        self._reasons[name] = why
        if self.applier is not None:
            self.applier.remove(name, keep=keep)

    def rename(self, name: str, target: str, why: str) -> None:
        """Give a file another name, in place of one that has it."""
        file = self.files.pop(name)
        self.files[target] = file
        file.why = self._reasons[name] = why
        if self.applier is not None:
            self.applier.rename(name, target)
            file.source = self.path(target)

    def cut(self, name: str, size: int, why: str) -> None:
        """Cut a file's end off."""
        file = self.files[name]
        if size >= file.size:
            return
        file.size, file.why = size, why
        if self.applier is not None:
            self.applier.cut(name, size)

    def put(self, name: str, data: bytes, why: str, *, held: bool = True) -> None:
        """Give a file these bytes, unless it has them; one that went with them comes back.

        Args:
            name: the file.
            data: all of it.
            why: it changes.
            held: whether anybody will ask for the bytes.
        """
        path = self.path(name)
        if self._before.get(name) == len(data) and self._is_as_before(name):
            # Another one may have taken its name since: a `.swap` whose index is longer.
            with suppress(FileNotFoundError, LimitExceededError):
                if io.read_file(path, bytes_max=len(data)) == data:
                    self.files[name] = OverlayFile(path, len(data))
                    if self.applier is not None:
                        self.applier.assure(name)
                    return
        self.files[name] = OverlayFile(path, len(data), data if held else b"", why)
        if self.applier is not None:
            if self.applier.put(name, data):
                self.files[name].data = None
            else:
                self.files[name].data = data

    def _is_as_before(self, name: str) -> bool:
        """Whether the disk still has this file as it was at the first look."""
        file = self.files.get(name)
        if file is None or self.applier is not None:
            return True
        return file.source == self.path(name)

    def create(self, name: str, why: str) -> None:
        """Make an empty file."""
        self.files[name] = OverlayFile(self.path(name), 0, b"", why)
        if self.applier is not None:
            self.applier.create(name)
            self.files[name].data = None

    def assure(self, name: str) -> None:
        """A file has the bytes that are wanted: they are to be lasting."""
        if self.applier is not None:
            self.applier.assure(name)

    def forget(self, name: str) -> None:
        """Nobody will ask for a file's bytes any more."""
        file = self.files.get(name)
        if file is not None and file.data is not None:
            file.data = b""

    def split(self, name: str, parts: Iterable[tuple[str, int, int]], why: str) -> None:
        """Imagine a log split: the name, start and end of each part."""
        source = self.files.pop(name).source
        for part, start, end in parts:
            self.files[part] = OverlayFile(source, end - start, None, why, start, part=True)

    def look_again(self) -> None:
        """Take the files as they are on the disk now, after someone else has changed them."""
        self.files = self._as_seen(look_at(self.directory))

    def settle(self, *, but: str = "") -> None:
        """Make all removals and names lasting before anything that follows.

        Args:
            but: a file that is about to come back.
        """
        if self.applier is not None:
            self.applier.spare(but)
            self.applier.settle()

    def finish(self, *, lacking: str = "") -> frozenset[str]:
        """Write what a full disk had no room for before; see `Applier.finish`."""
        return frozenset() if self.applier is None else self.applier.finish(lacking=lacking)

    # ---- what it came to -------------------------------------------------------------------------

    def changes(self) -> tuple[Action, ...]:
        """What differs from the first look, in the order of the names."""
        found: list[Action] = []
        came_from: dict[str, str] = {}
        for name, file in self.files.items():
            if file.data is None and not file.part and file.source != self.path(name):
                came_from[file.source] = name
        for name in sorted(self._before.keys() | self.files.keys()):
            found += self._changes_of(name, came_from)
        return tuple(found)

    def _changes_of(self, name: str, came_from: dict[str, str]) -> Iterator[Action]:
        file, before = self.files.get(name), self._before.get(name)
        path = self.path(name)
        if before is not None and path in came_from:
            target = came_from[path]
            yield Action("rename", path, before, self.files[target].why, self.path(target))
        elif before is not None and (
            file is None or (file.data is None and not file.part and file.source != self.path(name))
        ):
            yield Action("delete", path, before, self._reasons.get(name, ""))
        if file is None:
            return
        if file.data is not None or file.part:
            kind = "create" if before is None else "replace"
            yield Action(kind, path, file.size, file.why)
        elif file.source == path and before is not None and file.size < before:
            yield Action("truncate", path, before - file.size, file.why)
        elif file.source != path:
            gone = self._before[file.source.removeprefix(self._prefix)] - file.size
            if gone:
                yield Action("truncate", path, gone, file.why)


class OverlaySnapshots:
    """The disk of `SnapshotFiles`, in an overlay.

    Attributes:
        overlay: where the snapshots lie.
        aloof: leave them as they are, whatever is asked.
    """

    __slots__ = ("aloof", "overlay")

    def __init__(self, overlay: Overlay, *, aloof: bool = False) -> None:
        """Over an overlay."""
        self.overlay: Final = overlay
        self.aloof: Final = aloof

    def read(self, path: Path) -> ProducerSnapshot:
        """See `kseg.files.producer_snapshot.read`."""
        if path.name not in self.overlay.files:
            raise FileNotFoundError(path)
        return producer_snapshot.read(self.overlay.read(path.name))

    def write(self, path: Path, entries: Iterable[ProducerSnapshotEntry], *, sync: bool) -> None:
        """See `kseg.files.producer_snapshot.write`; what is made is lasting, whatever `sync`."""
        del sync
        if self.aloof:
            return
        # One that is not sound is gone before there is another one to begin with.
        self.overlay.settle(but=path.name)
        self.overlay.put(path.name, producer_snapshot.to_bytes(entries), "not what the log says")

    def unlink(self, path: Path) -> None:
        """Let a snapshot go."""
        if path.name in self.overlay.files and not self.aloof:
            applier = self.overlay.applier
            keep = applier is not None and applier.derived
            self.overlay.remove(path.name, "of no use, or not sound", keep=keep)


def look_at(directory: io.StrPath) -> tuple[FileSeen, ...]:
    """The regular files of a directory, by name.

    Raises:
        OSError: it cannot be listed.
    """
    seen = []
    with os.scandir(directory) as entries:
        for entry in entries:
            with suppress(FileNotFoundError):
                if entry.is_file():
                    status = entry.stat()
                    seen.append(
                        FileSeen(entry.name, status.st_size, status.st_mtime_ns, status.st_ino)
                    )
    return tuple(sorted(seen))


__all__ = ["Action", "Applier", "FileSeen", "Overlay", "OverlayFile", "OverlaySnapshots", "look_at"]
