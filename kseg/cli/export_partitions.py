"""Hive's layout for `kseg export --partition-by`: `day=2026-11-23/topic=t/part-t-0.parquet`.

The names of directories say what the files leave out. Few files are open at a time: records are
mostly in order of time, so a day that many others have followed is done; where it comes again
after all, it gets one more file.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from kseg.cli.export_files import Look, open_target
from kseg.constants import NO_TIMESTAMP
from kseg.errors import LimitExceededError
from kseg.files.output_names import fitting_name, hive_directory
from kseg.format.take import take_rows

if TYPE_CHECKING:
    from types import TracebackType

    from kseg.cli.export_files import Write
    from kseg.errors import KsegError
    from kseg.format.values import RecordColumns

#: What Hive has for a value that is null.
_NONE: Final = "__HIVE_DEFAULT_PARTITION__"
_DAY_MS: Final = 24 * 60 * 60 * 1000
#: No time of 64 bits is in this day.
_NO_DAY: Final = np.iinfo(np.int64).min
#: Files open at a time, each with a few MiB of what is to be written.
_OPEN_MAX: Final = 8
#: Files of one partition or segment: more than these are times that mean nothing.
_FILES_MAX: Final = 10_000


class PartitionedFiles:
    """The files of one source of records, by what is said of each record. Not for threads."""

    def __init__(self, target: Path, look: Look, faults: Sequence[KsegError]) -> None:
        """Write nothing yet.

        Args:
            target: the path of a file, with any names in place of the directories of the layout.
            look: how files are to look; `look.by` are the directories.
            faults: the damage that was passed over so far; more may come.
        """
        self._out: Final = target.parents[len(look.by)]
        self._target = target
        self._look = look
        self._faults = faults
        self._open: dict[Path, tuple[ExitStack, Write]] = {}
        self._parts: dict[Path, int] = {}
        self.count = 0

    def __enter__(self) -> Write:
        """A function that writes pieces."""
        return self._write

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Complete the open files; after an error, remove them."""
        every = ExitStack()
        for stack, _write in self._open.values():
            every.push(stack.__exit__)
        self._open.clear()
        every.__exit__(kind, error, traceback)

    def _write(self, columns: RecordColumns) -> None:
        """Add the records of a piece, each to the file of its directory."""
        for day, part in _by_day(columns) if "day" in self._look.by else [("", columns)]:
            said = {
                "day": day,
                "topic": columns.topic or _NONE,
                "partition": _NONE if columns.partition is None else str(columns.partition),
            }
            names = [hive_directory(key, said[key]) for key in self._look.by]
            self._file(self._out.joinpath(*names))(part)

    def _file(self, directory: Path) -> Write:
        """What writes to a directory's file; the one that was used longest ago may be completed."""
        found = self._open.pop(directory, None)
        if found is None:
            if len(self._open) == _OPEN_MAX:
                stack, _write = self._open.pop(next(iter(self._open)))
                stack.close()
            found = self._begin(directory)
        self._open[directory] = found
        return found[1]

    def _begin(self, directory: Path) -> tuple[ExitStack, Write]:
        if self.count == _FILES_MAX:
            reason = f"more than {_FILES_MAX} files; --time leaves out times that mean nothing"
            raise LimitExceededError(reason, path=self._target)
        self.count += 1
        part = self._parts[directory] = self._parts.get(directory, 0) + 1
        # No partition's directory has a name with such an end.
        again = "" if part == 1 else f".{part}"
        stack = ExitStack()
        name = fitting_name(self._target.stem + again, self._target.suffix)
        return stack, stack.enter_context(open_target(directory / name, self._look, self._faults))


def _by_day(columns: RecordColumns) -> Iterator[tuple[str, RecordColumns]]:
    """The records of each day in UTC, in their order; those without a time by themselves."""
    times = columns["timestamp"]
    days = np.where(times == NO_TIMESTAMP, _NO_DAY, times // _DAY_MS)
    if not len(days) or (days == days[0]).all():
        runs: list[Any] = [slice(None)] if len(days) else []
    else:
        order = np.argsort(days, kind="stable")
        runs = np.split(order, np.flatnonzero(np.diff(days[order])) + 1)
    for run in runs:
        part = columns if isinstance(run, slice) else take_rows(columns, run)
        yield _day_text(int(days[run][0])), part


def _day_text(day: int) -> str:
    return _NONE if day == _NO_DAY else str(np.datetime64(day, "D"))
