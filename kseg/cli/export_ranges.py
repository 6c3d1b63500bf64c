"""Which records a file of `kseg export` has, and when another export may replace it.

Parquet and Arrow files say it in the metadata of their schema, under `kseg.export`. JSON lines and
CSV have no place for it: an export with bounds does not replace them.
"""

from __future__ import annotations

import errno
import json
import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kseg.cli.parsing import ALL, Range
from kseg.extras import require
from kseg.format.times import iso_text

if TYPE_CHECKING:
    from pathlib import Path

#: The key in the metadata of a schema.
_KEY: Final = b"kseg.export"
_WAYS_OUT: Final = "export all of that, choose another -o, or replace the file with --replace"


class Selected(NamedTuple):
    """Which records of a log an export takes.

    Attributes:
        offsets: half open; None where the log was not asked for its end.
        times: likewise, in ms.
        isolation: "read_committed" leaves records out.
        has_bounds: whether the user gave bounds, so that a part of the log is left out.
    """

    offsets: Range = ALL
    times: Range = ALL
    isolation: str = "read_uncommitted"
    has_bounds: bool = False

    def metadata(self) -> dict[bytes, bytes]:
        """What the schema of a file says."""
        said = {"offsets": self.offsets, "times": self.times, "isolation": self.isolation}
        return {_KEY: json.dumps(said).encode()}

    def covers(self, other: Selected) -> bool:
        """Whether an export of this has all that an export of the other has."""
        return (
            _within(other.offsets, self.offsets)
            and _within(other.times, self.times)
            and self.isolation in (other.isolation, "read_uncommitted")
        )

    def __str__(self) -> str:
        """The bounds in words."""
        times = "..".join("" if at is None else iso_text(at) or str(at) for at in self.times)
        parts = [f"offsets {_text(self.offsets)}", *([f"times {times}"] * (self.times != ALL))]
        return ", ".join([*parts, *([self.isolation] * (self.isolation != "read_uncommitted"))])


#: All of any log.
EVERYTHING: Final = Selected()


def _within(inner: Range, outer: Range) -> bool:
    return (outer[0] is None or (inner[0] is not None and inner[0] >= outer[0])) and (
        outer[1] is None or (inner[1] is not None and inner[1] <= outer[1])
    )


def _text(bounds: Range) -> str:
    return "..".join("" if at is None else str(at) for at in bounds)


def refuse_loss(target: Path, form: str, selected: Selected) -> None:
    """Refuse to replace a file that may have records which this export does not take.

    Args:
        target: of the new file.
        form: of both files.
        selected: what the new file will have.

    Raises:
        FileExistsError: the file may have others.
    """
    if not target.exists():
        return
    there = _selected_of(target, form)
    if there is None and selected.has_bounds:
        raise refusal(target, f"this export takes {selected} alone, the file may have more")
    if there is not None and not selected.covers(there):
        raise refusal(target, f"the file has {there}, this export takes {selected}")


def refusal(target: Path, why: str) -> FileExistsError:
    """The error for a file that is not replaced."""
    reason = f"not replaced: {why}; {_WAYS_OUT}"
    return FileExistsError(errno.EEXIST, reason, os.fspath(target))


def _selected_of(target: Path, form: str) -> Selected | None:
    """What a file says that it has; None where it says nothing, or is of another program."""
    if form not in ("parquet", "arrow"):
        return None
    pyarrow: Any = require("pyarrow", extra="arrow")
    parquet: Any = require("pyarrow.parquet", extra="arrow")
    with suppress(pyarrow.ArrowException, OSError, ValueError, TypeError, KeyError):
        if form == "parquet":
            metadata = parquet.read_schema(target).metadata
        else:
            with pyarrow.OSFile(os.fspath(target)) as file:
                metadata = pyarrow.ipc.open_file(file).schema.metadata
        said = json.loads(metadata[_KEY])
        offsets, times = (_range(said[name]) for name in ("offsets", "times"))
        return Selected(offsets, times, str(said["isolation"]))
    return None


def _range(given: list[int | None]) -> Range:
    start, end = given
    return (None if start is None else int(start), None if end is None else int(end))


__all__ = ["EVERYTHING", "Selected", "refusal", "refuse_loss"]
