"""Damage that a task met: a code, a place, and a line in a report.

Under `onCorrupt=skip` a task goes on after the damage and reports it: in the worker's log, and,
with `reportPath`, in a file of JSON lines per task, which `spark.read.json` or `read_report`
gather. A task that runs again replaces its own file, so nothing is counted twice.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Final

from kseg.constants import StrPath
from kseg.errors import (
    CorruptIndexError,
    CorruptRecordError,
    DecompressionError,
    KsegError,
    LimitExceededError,
    UnreadableError,
    UnsupportedFormatError,
    at_path,
)
from kseg.files.whole_file import whole_file
from kseg.format.header import STOP_CODES
from kseg.log.recovery import Finding
from kseg.spark.options import SourceOptions
from kseg.spark.plan import Split

_LOGGER = logging.getLogger("kseg.spark")
_REPORT_NAME: Final = "damage-*.jsonl"

_KIND_CODES: Final = {
    CorruptIndexError: "index-points-nowhere",
    DecompressionError: "record-codec",
    LimitExceededError: "record-limit",
    UnreadableError: "unreadable",
    UnsupportedFormatError: "batch-codec",
}


def code_of(error: KsegError) -> str:
    """The stable code for an error."""
    if error.stop in STOP_CODES:
        return STOP_CODES[error.stop]
    for kind, code in _KIND_CODES.items():
        if isinstance(error, kind):
            return code
    if isinstance(error, CorruptRecordError):
        return "record-crc" if error.record_index is not None else "file-shrank"
    return "record-structure"


def named(error: KsegError, path: str) -> KsegError:
    """The error with its file and code in the message, which the driver shows."""
    error.reason = f"{error.reason} [{code_of(error)}]"
    return at_path(error, path)


def passing_over(
    options: SourceOptions, split: Split, damages: list[Finding]
) -> Callable[[KsegError], None] | None:
    """A function that notes a fault of a split; None if the first fault ends the task."""
    if options.on_corrupt == "raise":
        return None

    def note(error: KsegError) -> None:
        where = error.path or split.path
        damages.append(Finding(code_of(error), where, error.reason, error.position, error.offset))

    return note


def text_of(damage: Finding) -> str:
    """A line about a damage: the code, the place in the file, the reason."""
    return str(replace(damage, offset=None))


def fault(error: KsegError, on_error: Callable[[KsegError], None] | None) -> None:
    """Call `on_error` with a fault; raise the fault if `on_error` is None."""
    if on_error is None:
        raise error
    on_error(error)


def report(damages: list[Finding], task: tuple[Split, ...], directory: str | None) -> None:
    """Write the damage of one task to the log and to the report.

    Args:
        damages: the damage.
        task: the splits of the task, which decide the name of its file.
        directory: the directory of the report; None if there is no report.

    Raises:
        OSError: the report cannot be written.
    """
    for damage in damages:
        location = replace(damage, offset=None).place
        _LOGGER.warning("kseg skipped %s: %s [%s]", location, damage.message, damage.code)
    if directory is None:
        return
    name = hashlib.sha256(f"{task[0].path}@{task[0].start_position}".encode()).hexdigest()[:16]
    target = Path(directory) / _REPORT_NAME.replace("*", name)
    if not damages:
        target.unlink(missing_ok=True)
        return
    with whole_file(target) as sink:
        for damage in damages:
            sink.write(json.dumps(damage.noted()).encode() + b"\n")


def read_report(directory: StrPath) -> list[Finding]:
    """All damage that the tasks of a job met, sorted by file and position.

    Raises:
        OSError: a report cannot be read.
    """
    lines: Iterable[str] = (
        line
        for path in sorted(Path(directory).glob(_REPORT_NAME))
        for line in path.read_text().splitlines()
    )
    damages = [Finding(**json.loads(line)) for line in lines]
    return sorted(damages, key=lambda damage: (str(damage.path), damage.position or 0))
