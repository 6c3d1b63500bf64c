"""What takes findings, and stays small on bad files."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from errno import EIO

from kseg.errors import UnreadableError
from kseg.log.recovery import CODES, PER_CODE_MAX, Finding, Severity


class Findings:
    """Collects the findings of one unit of work, a bounded number of each code and file."""

    __slots__ = ("_counts", "_kept")

    def __init__(self) -> None:
        """Start without any."""
        self._kept: list[Finding] = []
        self._counts: Counter[tuple[str, str]] = Counter()

    def add(
        self,
        code: str,
        path: str,
        message: str,
        *,
        position: int | None = None,
        offset: int | None = None,
        severity: Severity | None = None,
    ) -> None:
        """Note one finding; severity comes from the code unless given."""
        self.note(Finding(code, path, message, position, offset, severity))

    def note(self, finding: Finding) -> None:
        """Note one finding; severity comes from the code unless given."""
        code, path = finding.code, os.fspath(finding.path)
        self._counts[code, path] += 1
        if self._counts[code, path] <= PER_CODE_MAX:
            severity = finding.severity or CODES[code].severity
            self._kept.append(replace(finding, severity=severity))

    def add_unreadable(self, error: UnreadableError) -> None:
        """Note that the disk cannot read bytes of a file."""
        assert error.path is not None
        self.add("unreadable", error.path, error.reason, position=error.position)

    @contextmanager
    def noting_unreadable(self) -> Iterator[None]:
        """Turn an EIO inside the block into a finding."""
        try:
            yield
        except UnreadableError as error:
            self.add_unreadable(error)
        except OSError as error:
            if error.errno != EIO or error.filename is None:
                raise
            self.add("unreadable", os.fsdecode(error.filename), os.strerror(EIO))

    def count_more(self, code: str, path: str, number: int) -> None:
        """Note that there are `number` more of a kind than were added one by one."""
        self._counts[code, path] += max(number, 0)

    def taken(self) -> tuple[Finding, ...]:
        """All findings kept, and one more for the rest of each code and file."""
        for (code, path), number in self._counts.items():
            if number > PER_CODE_MAX:
                message = f"{number - PER_CODE_MAX} more like the {PER_CODE_MAX} listed"
                rest = Finding(code, path, message, severity=CODES[code].severity)
                self._kept.append(rest)
        self._counts.clear()
        return tuple(self._kept)


__all__ = ["PER_CODE_MAX", "Finding", "Findings"]
