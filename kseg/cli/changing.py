"""The common part of verbs that change logs: options, the plan, the backup, the report."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kseg.cli import output
from kseg.cli.escapes import printable
from kseg.cli.failures import Exit, complain
from kseg.commands import command_line
from kseg.errors import UncleanShutdownError
from kseg.files import io
from kseg.files.metadata import read_clean_shutdown
from kseg.files.names import log_bytes
from kseg.log import data_directory
from kseg.log.copy import copy_partition
from kseg.log.recovery import Backup, Kept, kept_bytes, other_file_system
from kseg.log.sub_directories import EntryKind, entry_of, refuse_cluster_metadata
from kseg.workers import At, in_order

if TYPE_CHECKING:
    from kseg.cli.paths import Partition
    from kseg.log.recovery import Action
    from kseg.workers import Put


@dataclass(frozen=True, slots=True)
class Room:
    """The room on the disk that a change gives.

    Attributes:
        freed_bytes: bytes that the disk has got back.
        kept_in_backup_bytes: bytes that it gets back once the backup is removed.
    """

    freed_bytes: int
    kept_in_backup_bytes: int

    def to_json(self) -> dict[str, Any]:
        """As in a document."""
        return {
            "freed_bytes": self.freed_bytes,
            "kept_in_backup_bytes": self.kept_in_backup_bytes,
        }

    def lines(self, backups: Sequence[str]) -> tuple[str, ...]:
        """The last lines of a text report: what was freed, and the command that frees the rest."""
        freed = f"{self.freed_bytes} bytes of disk are free again"
        if not backups:
            return (freed,) if self.freed_bytes else ()
        command = f"    {command_line('rm', '-r', *backups)}"
        if not self.freed_bytes:
            return (f"{self.kept_in_backup_bytes} bytes of disk become free with:", command)
        return (f"{freed}; {self.kept_in_backup_bytes} more with:", command)


@dataclass(frozen=True, slots=True)
class Change:
    """The options of a change.

    Attributes:
        apply: in place; false for a plan only.
        output: a data directory for changed copies, instead; None for none.
        backup_directory: where the backup goes; None for the usual place.
        keep: whether to make a backup.
    """

    apply: bool
    output: str | None
    backup_directory: str | None
    keep: bool

    def check_owners(self, partitions: Iterable[Path]) -> None:
        """Refuse, before any change, directories where new files cannot have the old ones' owner.

        Raises:
            PermissionError: in one of these directories.
        """
        for path in partitions if self.apply else ():
            io.check_new_files(path)

    @contextmanager
    def holding(self, partitions: Iterable[Path]) -> Iterator[None]:
        """Keep other processes out of these partitions' data directories between the changes.

        Nothing is held for changed copies: no other process knows of those.

        Raises:
            PermissionError: see `check_owners`.
            LogLockedError: another process holds a data directory.
            OSError: one cannot be locked.
        """
        paths = list(partitions)
        self.check_owners(paths)
        with ExitStack() as stack:
            if self.apply:
                for home in sorted({path.resolve().parent for path in paths}):
                    if read_clean_shutdown(home) is not None:
                        stack.callback(_say_of_lost_mark, home)
                    stack.callback(data_directory.enter(home).leave)
            yield

    def __post_init__(self) -> None:
        """Refuse options that contradict each other."""
        if self.apply and self.output is not None:
            raise click.UsageError("Give either --apply, in place, or -o DIR, beside.")
        if not self.keep and self.backup_directory is not None:
            raise click.UsageError("Give either --backup-dir or --no-backup.")

    @property
    def is_plan(self) -> bool:
        """Whether this is a plan only."""
        return not self.apply and self.output is None

    def place_of(self, partition: Path, *, unclean: bool = False) -> Path:
        """The directory to change: the partition itself, or a copy that this makes now.

        Args:
            partition: its directory.
            unclean: whether this change may be made after an unclean shutdown.

        Raises:
            UncleanShutdownError: the partition was not closed in good order; nothing was copied.
            KsegError, OSError: see `kseg.log.copy.copy_partition`.
        """
        if self.output is None:
            return partition
        if not unclean and read_clean_shutdown(partition.resolve().parent) is None:
            raise UncleanShutdownError("the log was not closed in good order", path=partition)
        return copy_partition(partition, self.output)

    @property
    def keeps(self) -> bool:
        """Whether to back up; a copy that is made just now needs no backup."""
        return self.keep and self.output is None

    def backup_of(self, data_directory: io.StrPath, now_ms: int) -> Backup | None:
        """The backup for this change; None without one."""
        if not self.keeps:
            return None
        return Backup(data_directory, self.backup_directory, now_ms=now_ms)


def _say_of_lost_mark(home: Path) -> None:
    """Report that a data directory has lost its mark, and what brings it back."""
    if read_clean_shutdown(home) is None:
        complain(
            f"kseg: {printable(str(home))}: the mark of a clean stop is gone: a broker reads logs "
            "again when it starts, since some indexes are not as after a clean stop; run"
        )
        complain(command_line("kseg", "recover", str(home), "--apply"))


class Done:
    """How far several partitions are, told to one bar; used from several threads."""

    def __init__(self, tell: Callable[[int, int], None], total: int) -> None:
        """Start with nothing done; `tell(done, total)` is told in bytes."""
        self.tell = tell
        self.total = total
        self.finished = 0
        self.walked: dict[Path, int] = {}

    def walk(self, path: Path, walked: int) -> None:
        """So many bytes of a partition were walked."""
        self.walked[path] = walked
        self.tell(min(self.finished + sum(list(self.walked.values())), self.total), self.total)

    def finish(self, path: Path, size: int) -> None:
        """A partition is done, with all its bytes."""
        self.walked.pop(path, None)
        self.finished += size
        self.tell(min(self.finished, self.total), self.total)


#: Does a partition, says how far it is, and puts what came of it.
PartitionWork = Callable[[Callable[[int, int], None], "Put"], None]


def share(
    verb: str, paths: Sequence[Path], works: Iterable[PartitionWork], *, jobs: int
) -> Iterator[Any]:
    """Work on partitions, shared by threads under one bar; what came of each, in order.

    Args:
        verb: names the bar.
        paths: the partitions.
        works: the work on each; the next is asked for in this thread.
        jobs: how many threads.

    Raises:
        LimitExceededError: a partition ran out of memory; it names the partition.
        KsegError, OSError: those of the work.
    """
    if not paths:
        return  # a bar for nothing would stand above that of the next step
    sizes = {path: log_bytes(path) for path in paths}
    total = sum(sizes.values())
    with ExitStack() as stack:
        bar = stack.enter_context(output.progress(verb, total, in_bytes=True))
        done = Done(bar.to, total)
        bar.label(f"{verb} 0/{len(paths)} partitions")
        pieces = (
            At(path, partial(work, partial(_walked, done, path)))
            for path, work in zip(paths, works, strict=True)
        )
        results = stack.enter_context(closing(in_order(pieces, threads=jobs)))
        for count, (path, result) in enumerate(zip(paths, results, strict=True), start=1):
            bar.label(f"{verb} {count}/{len(paths)} partitions")
            done.finish(path, sizes[path])
            yield result


def _walked(done: Done, path: Path, walked: int, _all: int) -> None:
    done.walk(path, walked)


def change_of(
    *, apply: bool, output_dir: str | None, backup_dir: str | None, no_backup: bool
) -> Change:
    """The values of `change_options.change_options` as one."""
    return Change(apply, output_dir, backup_dir, not no_backup)


def changeable(found: Sequence[Partition]) -> list[Partition]:
    """Leave out the log of KRaft, with a message.

    Raises:
        NotALogError: nothing else is left.
    """
    if len(found) == 1:
        refuse_cluster_metadata(found[0].path)
    kept = []
    for each in found:
        if entry_of(each.path).kind is EntryKind.CLUSTER_METADATA:
            complain(f"kseg: left alone: {printable(str(each.path))}: the log of KRaft")
        else:
            kept.append(each)
    return kept


def all_kept(backups: Iterable[Backup | None]) -> list[Kept]:
    """What lies in several backups."""
    return [kept for each in backups if each is not None for kept in each.kept]


def report(
    verb: str,
    path: str | list[str],
    change: Change,
    actions: Sequence[Action],
    kept: Sequence[Kept] = (),
    *,
    freed_bytes: int | None = None,
    as_json: bool,
    **fields: Any,
) -> Exit:
    """Print the plan, or what was done; returns the exit code.

    Args:
        verb: names the schema.
        path: as it was given.
        change: how it was made.
        actions: what was or would be done, in order.
        kept: files in the backup.
        freed_bytes: bytes that the disk has got back; None if not counted.
        as_json: one document instead of a table.
        fields: more fields of the document.
    """
    room = None if freed_bytes is None else Room(freed_bytes, kept_bytes(kept))
    if change.keeps and change.backup_directory is None:
        _say_of_other_disks(actions)
    return say(
        verb,
        path,
        actions,
        applied=not change.is_plan,
        backups=sorted({str(each.backup) for each in kept}),
        remedy="--apply does it, -o DIR does it in a copy",
        room=room,
        as_json=as_json,
        **fields,
    )


def _say_of_other_disks(actions: Sequence[Action]) -> None:
    """Announce backups that do not lie on the file system of their data."""
    changed = {Path(each.path) for each in actions}
    for home in sorted({p.parent if p.is_dir() else p.parent.parent for p in changed}):
        place = other_file_system(home)
        if place is not None:
            complain(
                f"kseg: backups of {home} lie in {place}, on another file system, and take room "
                "there; --backup-dir DIR chooses another place"
            )


def say(
    verb: str,
    path: str | list[str],
    actions: Sequence[Action],
    *,
    applied: bool,
    backups: Sequence[str],
    remedy: str,
    room: Room | None = None,
    as_json: bool,
    **fields: Any,
) -> Exit:
    """Print what `report` prints, for changes that are made elsewhere.

    Args:
        verb: names the schema.
        path: as it was given.
        actions: what was or would be done, in order.
        applied: whether it was done.
        backups: directories of the backups.
        remedy: how to carry out the plan.
        room: what the change gave the disk; None if not counted.
        as_json: one document instead of a table.
        fields: more fields of the document.
    """
    if as_json:
        document = {
            "path": path,
            "applied": applied,
            **fields,
            **({} if room is None else room.to_json()),
            "actions": [action.to_json() for action in actions],
            "backups": list(backups),
        }
        output.write_document(f"{verb}/1", document)
        return _code(actions, applied=applied)
    if actions:
        rows = [(each.action, each.bytes, each.path, each.told) for each in actions]
        output.write_table(("action", "bytes", "path", "why"), rows)
    else:
        output.write_line("nothing to do")
    for backup in backups:
        output.write_line(f"what went is kept in {backup}")
    if room is not None and applied and actions:
        for line in room.lines(backups):
            output.write_line(line)
    if actions and not applied:
        complain(f"kseg: nothing was changed; {remedy}")
    return _code(actions, applied=applied)


def _code(actions: Sequence[Action], *, applied: bool) -> Exit:
    return Exit.FOUND if actions and not applied else Exit.OK
