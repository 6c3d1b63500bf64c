"""Plans of changes to a log, and their application: the frame that all changes share.

A plan is a value: its fields are facts about a log and what would become of it. A change is a
function that decides, `plan_...`, and the method `do` of the plan that it returns. `Plan.apply`
surrounds that method:

    refuse      a log that cannot be changed, and a directory where new files cannot have the owner
                of the old ones
    lock        the data directory, against other processes
    room        for the backup; what else needs room is for `do`
    do          the steps, with the backup
    report      what was done, the files in the backup, the bytes that the disk got back

`claimed` keeps other logs of this process away, and refuses a plan if the files are others now.
`kseg.change` plans and applies for many logs.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

from kseg._door import renamed
from kseg.constants import Progress, StrPath
from kseg.documents import Documented, frozen_dataclass
from kseg.errors import LogLockedError, SegmentInUseError, StalePlanError
from kseg.files import io, lock
from kseg.frames import Table, TableRows
from kseg.log import data_directory
from kseg.log.clock import now_of
from kseg.log.recovery.backup import Backup, Kept, kept_bytes

_Report = TypeVar("_Report", bound="Report")

#: The errors of a change that has not begun.
_UNTOUCHED = (LogLockedError, SegmentInUseError, StalePlanError)


class FileSeen(NamedTuple):
    """A file as it was found. A tuple, since each file of a log has one.

    Attributes:
        name: its name in the directory.
        size: its size in bytes.
        modified_ns: when it was last written, in ns.
        inode: which file it is.
    """

    name: str
    size: int
    modified_ns: int
    inode: int


def look_at(directory: StrPath) -> tuple[FileSeen, ...]:
    """The regular files of a directory, sorted by name.

    Raises:
        OSError: the directory cannot be listed.
    """
    seen = []
    with os.scandir(directory) as entries:
        for entry in entries:
            try:  # not `suppress`, which would double the time of this loop
                if not entry.is_file():
                    continue
                status = entry.stat()
            except FileNotFoundError:
                continue
            seen.append(FileSeen(entry.name, status.st_size, status.st_mtime_ns, status.st_ino))
    return tuple(sorted(seen))


@frozen_dataclass
class Action(Documented):
    """One change of one file.

    Attributes:
        action: "create", "delete", "rename", "truncate" or "replace".
        path: the file.
        bytes: the size of the file that is created, deleted, renamed or written over another; for
            a "truncate", how many bytes are cut off.
        why: the reason in a few words.
        target: the new name of a "rename".
    """

    action: str
    path: str
    bytes: int
    why: str
    target: str | None = None

    @property
    def reason(self) -> str:
        """Why, and the new name of a "rename"."""
        return f"{self.why} (now {Path(self.target).name})" if self.target else self.why

    def to_json(self) -> dict[str, Any]:
        """The object for this action in the `actions` of a document."""
        return {"action": self.action, "path": self.path, "bytes": self.bytes, "why": self.reason}


class Plan(Table, Generic[_Report]):
    """A base class of plans: a change to one log.

    A subclass is a frozen dataclass. It has a `path`, and may have `seen`, the files that the plan
    was made for, and `now_ms`, the time of the plan. Its table has a row for each of its actions.

    Attributes:
        KEEPS: whether files that go are kept in a backup, unless the caller decides.
        ALWAYS: whether the plan is applied even if no file changes.
        REPORT: makes the report of a plan for which there is nothing to do.
    """

    __slots__ = ()
    COLUMNS = "action path bytes why target"
    KEEPS: ClassVar[bool] = True
    ALWAYS: ClassVar[bool] = False
    REPORT: ClassVar[Any]
    path: Any
    actions: Any

    @property
    def is_noop(self) -> bool:
        """Whether no file would change."""
        return not self.actions

    @property
    def is_done(self) -> bool:
        """Whether there is nothing to do at all, not even to note that nothing changes."""
        return self.is_noop and not self.ALWAYS

    @property
    def backup_bytes(self) -> int | None:
        """The room that a backup needs, in bytes; None if it is only known once it is made."""
        return 0

    def table_rows(self) -> TableRows:
        """The actions, sorted by file."""
        return [asdict(action) for action in self.actions]

    def check(self) -> None:
        """Refuse a plan that may not be applied, before anything is changed.

        Raises:
            NotALogError: the log is KRaft's.
        """
        data_directory.refuse_cluster_metadata(Path(self.path))

    def check_fresh(self) -> None:
        """Refuse changed files, except the one by which `io.has_room` tests the disk.

        Raises:
            StalePlanError: files have changed since the plan was made.
        """
        seen: tuple[FileSeen, ...] = getattr(self, "seen", ())
        now, then = (
            [file for file in files if file.name != io.ROOM_NAME]
            for files in (look_at(self.path) if seen else (), seen)
        )
        if now != then:
            raise StalePlanError("files have changed since the plan was made", path=self.path)

    def do(self, *_arguments: Any, **_how: Any) -> _Report:
        """Do the steps, if the files are still those of the plan; the data directory is locked.

        The two arguments are the backup, or None, and a function for the progress. `apply` adds
        the files in the backup to the report.
        """
        raise NotImplementedError

    @renamed(keep_cut="keep", backup_directory="backup", now_ms="now")
    def apply(
        self,
        *,
        keep: bool | None = None,
        backup: Backup | StrPath | None = None,
        progress: Progress | None = None,
        **how: Any,
    ) -> _Report:
        """Make the change, under the lock of the data directory.

        Args:
            keep: whether files and bytes that go are kept in a backup. By default those of
                recovery, reindexing and truncation are, those of retention and compaction are not.
            backup: the directory of the backup; None for a sibling of the data directory, named
                after the time.
            progress: called with the bytes of log that are done, and all of them.
            how: what the `do` of this plan takes besides.

        Returns:
            The report.

        Raises:
            StalePlanError: files have changed since the plan was made; nothing was done.
            UncleanShutdownError: the log was not closed in good order, and this change needs that;
                nothing was done.
            NotALogError: it is the log of KRaft; nothing was done.
            LogLockedError: another process holds the data directory, or a log of this process has
                the partition open; nothing was done.
            PermissionError: this process cannot make files with the owner of the others there;
                nothing was changed.
            SegmentInUseError: a reader maps bytes that a cut removes; nothing was changed.
            KsegError: the log cannot be changed.
            OSError: the disk refuses; or it is too full for the backup, or for the new files.
        """
        self.check()
        io.check_new_files(self.path)
        home = Path(self.path).resolve().parent
        with lock.acquire(home):
            if self.is_done:
                self.check_fresh()
                report: _Report = self.REPORT(self)
                return report
            if keep is None:
                keep = backup is not None or self.KEEPS
            if not keep:
                return self.do(None, progress, **how)
            if not isinstance(backup, Backup):
                now = how.get("now", getattr(self, "now_ms", None))
                backup = Backup(home, backup, now_ms=now_of(now))
            if self.backup_bytes is not None:
                backup.check_room(self.backup_bytes)
            before = len(backup.kept)
            report = self.do(backup, progress, **how)
            return replace(report, kept=tuple(backup.kept[before:]))


@frozen_dataclass(repr=False)
class Report(Table):
    """The result of a change.

    Attributes:
        plan: the plan that was carried out.
        kept: the files in the backup.
        freed_bytes: bytes that the disk got back, at once or when renamed files are removed.
    """

    COLUMNS = Plan.COLUMNS

    plan: Any
    kept: tuple[Kept, ...] = ()
    freed_bytes: int = 0

    @property
    def title(self) -> str:
        """The title of the plan, and the size of the backup."""
        return f"{self.plan.title}; {len(self.kept)} files in the backup"

    def table_rows(self) -> TableRows:
        """The rows of the plan."""
        rows: TableRows = self.plan.table_rows()
        return rows

    @property
    def kept_in_backup_bytes(self) -> int:
        """Bytes that the disk gets back when the backup is removed."""
        return kept_bytes(self.kept)


Plan.REPORT = Report


class CutReport(Report):
    """The result of a change that may cut the end of a log."""

    __slots__ = ()

    @property
    def log_start_offset(self) -> int:
        """The first offset to be read."""
        return int(self.plan.log_start_offset)

    @property
    def log_end_offset(self) -> int:
        """The offset that the next record gets."""
        return int(self.plan.log_end_offset)

    @property
    def truncated_bytes(self) -> int:
        """Bytes of the log that were removed."""
        return int(self.plan.truncated_bytes)


@contextmanager
def claimed(plan: Plan[Any]) -> Iterator[data_directory.DataDirectoryLease]:
    """Hold the lease of a data directory, and the claim on the partition of a plan.

    An error in the `with` lets the data directory have no mark of a clean stop, unless it says that
    nothing was changed. Who leaves the lease before decides that himself.

    Raises:
        LogLockedError: another process, or a log of this one, writes there.
        StalePlanError: files have changed since the plan was made.
        OSError: the lease cannot begin or end.
    """
    directory = Path(plan.path).resolve()
    lease = data_directory.enter(directory.parent)
    clean = False
    try:
        lease.claim(directory.name)
        plan.check_fresh()  # a log of this process may have been open until now
        yield lease
        clean = True
    except _UNTOUCHED:
        clean = True
        raise
    finally:
        lease.leave(clean=clean)


def sum_of(numbers: Iterable[int | None]) -> int | None:
    """The sum of numbers; None if one of them is None."""
    numbers_listed = [*numbers]
    return None if None in numbers_listed else sum(number or 0 for number in numbers_listed)
