"""Which file is dumped how, what follows on standard error, and the exit code.

Source: Kafka 4.2 `DumpLogSegments.main`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from kseg.cli.escapes import printable
from kseg.cli.failures import Exit, complain
from kseg.cli.kafka_dump.entries import print_snapshot, print_txn_index
from kseg.cli.kafka_dump.indexes import (
    Faults,
    IndexOptions,
    print_offset_index,
    print_time_index,
)
from kseg.cli.kafka_dump.logs import Gaps, LogDump, LogOptions
from kseg.errors import KsegError, NotALogError, at_path

#: Of files that the tool prints.
SUFFIXES = ("log", "checkpoint", "index", "timeindex", "snapshot", "txnindex")


@dataclass(slots=True)
class KafkaDump:
    """One run of the tool.

    Attributes:
        logs: what to print of logs.
        indexes: what to print of indexes.
        out: standard output.
        found: whether something is damaged or differs.
    """

    logs: LogOptions
    indexes: IndexOptions
    out: IO[bytes]
    found: bool = False
    _gaps: list[tuple[str, Gaps]] = field(default_factory=list)
    _faults: list[tuple[str, Faults]] = field(default_factory=list)
    _time_faults: list[tuple[str, Faults]] = field(default_factory=list)

    def run(self, paths: Iterable[str]) -> Exit:
        """Print every file; at the first where Kafka's tool ends with an exception, end too.

        Raises:
            KsegError: that one, with the path.
            OSError: a file cannot be read.
        """
        for path in paths:
            try:
                self._file(path)
            except KsegError as error:
                self.out.flush()
                raise at_path(error, path) from error
        self.out.flush()
        self._tell()
        return Exit.FOUND if self.found else Exit.OK

    def _file(self, path: str) -> None:
        self._line(f"Dumping {path}")
        _stem, dot, suffix = os.path.basename(path).rpartition(".")
        if not dot:
            raise NotALogError("a name without an extension", path=path)
        printer = self._printers().get(suffix)
        if printer is None:
            self.out.flush()
            complain(f"Ignoring unknown file {path}")
            return
        printer(Path(path))

    def _printers(self) -> dict[str, Callable[[Path], None]]:
        return {
            "log": self._log,
            "checkpoint": self._log,
            "index": self._offset_index,
            "timeindex": self._time_index,
            "snapshot": self._snapshot,
            "txnindex": lambda path: print_txn_index(path, self._line),
        }

    def _line(self, text: str) -> None:
        shown = printable(text) if self.logs.look.terminal else text
        self.out.write(shown.encode("utf-8", "surrogateescape") + b"\n")

    def _log(self, path: Path) -> None:
        dump = LogDump(self.logs, self.out.write)
        self._gaps.append((str(path), dump.gaps))
        try:
            dump.print(path)
        finally:
            self.found = self.found or dump.found

    def _offset_index(self, path: Path) -> None:
        faults = print_offset_index(path, self.indexes, self.out.write, self._line)
        self._faults.append((str(path), faults))

    def _time_index(self, path: Path) -> None:
        faults = print_time_index(path, self.indexes, self.out.write, self._line)
        self._time_faults.append((str(path), faults))

    def _snapshot(self, path: Path) -> None:
        error = print_snapshot(path, self._line)
        if error is not None:
            self.found = True
            self.out.flush()
            complain(error)

    def _tell(self) -> None:
        """What Kafka's tool says on standard error behind all lines."""
        for path, faults in (*self._faults, *self._time_faults):
            for line in faults.lines(os.path.abspath(path)):
                self.found = True
                complain(line)
        for path, gaps in self._gaps:
            for line in gaps.lines(os.path.abspath(path), self.logs.old):
                complain(line)
