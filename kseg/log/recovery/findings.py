"""What is wrong with a file, as one value for verify, a load and a reindexing."""

from __future__ import annotations

from dataclasses import dataclass
from os import fspath
from typing import TYPE_CHECKING, Any, Final, Protocol

from kseg.log.recovery.codes import CODES, Severity

if TYPE_CHECKING:
    from kseg.files.io import StrPath

#: Further findings of a code in one file are counted, not kept.
PER_CODE_MAX: Final = 100


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong.

    Attributes:
        code: a word of `kseg verify --codes`; empty where none is asked for.
        path: the file or directory.
        message: what is wrong, with the values that show it, and what is done about it.
        position: byte in the file where it lies, if known.
        offset: logical offset, if known.
        severity: "error" or "warning"; that of the code unless the place says otherwise.
        why: the same in a few words, for a list of actions; empty where there are none.
    """

    code: str
    path: StrPath
    message: str
    position: int | None = None
    offset: int | None = None
    severity: Severity | None = None
    why: str = ""

    @property
    def kind(self) -> str:
        """How the file's name ends: "index", "log"."""
        return fspath(self.path).rpartition(".")[2]

    @property
    def reason(self) -> str:
        """The message, as errors call it."""
        return self.message

    @property
    def advice(self) -> str:
        """What to do next."""
        return CODES[self.code].advice

    @property
    def place(self) -> str:
        """The file, the byte and the offset, as far as they are known."""
        at = "" if self.position is None else f" @ {self.position}"
        offset = "" if self.offset is None else f", offset {self.offset}"
        return f"{self.path}{at}{offset}"

    def __str__(self) -> str:
        """As one line."""
        text = f"{self.place}: {self.message}"
        return f"{self.code}: {text}" if self.code else text

    def noted(self) -> dict[str, Any]:
        """As in the JSON of `kseg recover --json`."""
        names = ("code", "path", "message", "position", "offset")
        return {name: getattr(self, name) for name in names}

    def to_dict(self) -> dict[str, Any]:
        """As in the JSON of `kseg verify --json`."""
        names = ("code", "severity", "path", "position", "offset", "message", "advice")
        return {name: getattr(self, name) for name in names}


class Sink(Protocol):
    """What takes findings."""

    def note(self, finding: Finding) -> None:
        """Take one."""

    def count_more(self, code: str, path: str, number: int) -> None:
        """Count `number` more of a kind, beyond those taken one by one."""


__all__ = ["PER_CODE_MAX", "Finding", "Sink"]
