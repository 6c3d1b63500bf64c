"""What is wrong and where: values that pickle, and a collector that stays small on bad files."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from errno import EIO
from typing import Any

from kseg.analysis.codes import CODES, Severity
from kseg.errors import UnreadableError

#: Further findings of a code in one file are counted, not kept.
PER_CODE_MAX = 100


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong.

    Attributes:
        code: a word of `CODES`.
        severity: "error" or "warning"; the end of a partition turns some errors into warnings.
        path: the file or directory.
        position: byte in the file where it lies, if known.
        offset: logical offset, if known.
        message: what is wrong, with the values that show it.
        advice: what to do next.
    """

    code: str
    severity: Severity
    path: str
    position: int | None
    offset: int | None
    message: str
    advice: str

    def to_dict(self) -> dict[str, Any]:
        """As in the JSON of `kseg verify --json`."""
        return asdict(self)


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
        """Note one finding; severity and advice come from the code unless given."""
        self._counts[code, path] += 1
        if self._counts[code, path] <= PER_CODE_MAX:
            known = CODES[code]
            severity = severity or known.severity
            place = Finding(code, severity, path, position, offset, message, known.advice)
            self._kept.append(place)

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
                known = CODES[code]
                message = f"{number - PER_CODE_MAX} more like the {PER_CODE_MAX} listed"
                rest = Finding(code, known.severity, path, None, None, message, known.advice)
                self._kept.append(rest)
        self._counts.clear()
        return tuple(self._kept)
