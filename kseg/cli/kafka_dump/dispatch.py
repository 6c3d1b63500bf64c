"""Which file is dumped how, what follows on standard error, and the exit code.

Source: Kafka 4.2 `DumpLogSegments.main`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING

from kseg.cli.escapes import printable
from kseg.cli.failures import Exit, complain
from kseg.cli.kafka_dump.logs import DumpMemory, Gaps, LogDump, LogOptions
from kseg.cli.output import taker
from kseg.errors import KsegError, NotALogError
from kseg.files.log_file import PIECE_BYTES
from kseg.workers import Kept, Put, Work, each_at, putting, run_in_order

if TYPE_CHECKING:
    from kseg.cli.kafka_dump.indexes import Faults
    from kseg.cli.kafka_dump.options import IndexOptions

#: Of files that the tool prints.
SUFFIXES = ("log", "checkpoint", "index", "timeindex", "snapshot", "txnindex")


class KafkaDump:
    """One run of the tool.

    Attributes:
        logs: what to print of logs.
        indexes: what to print of indexes.
        out: standard output.
        jobs: threads that share the work.
        found: whether something is damaged or differs.
    """

    def __init__(
        self, logs: LogOptions, indexes: IndexOptions, out: IO[bytes], jobs: int = 1
    ) -> None:
        """Start with nothing printed and nothing found."""
        self.logs = logs
        self.indexes = indexes
        self.out = out
        self.jobs = jobs
        self.found = False
        self._gaps: list[tuple[str, Gaps]] = []
        self._faults: list[tuple[str, Faults]] = []
        self._time_faults: list[tuple[str, Faults]] = []
        self._memory = Kept(DumpMemory)

    def run(self, paths: Iterable[str]) -> Exit:
        """Print every file; at the first where Kafka's tool ends with an exception, end too.

        Raises:
            KsegError: that one, with the path.
            OSError: a file cannot be read.
        """
        try:
            run_in_order(self._pieces(paths), taker(self.out.write), threads=self.jobs)
        except KsegError:
            self.out.flush()
            raise
        self.out.flush()
        self._tell()
        return Exit.FOUND if self.found else Exit.OK

    def _pieces(self, paths: Iterable[str]) -> Iterator[Work]:
        for path in paths:
            yield from each_at(path, self._file(path))

    def _file(self, path: str) -> Iterator[Work]:
        yield putting(self._line(f"Dumping {path}"))
        _stem, dot, suffix = os.path.basename(path).rpartition(".")
        if not dot:
            raise NotALogError("a name without an extension", path=path)
        if suffix in ("log", "checkpoint"):
            yield from self._log(Path(path))
            return
        printer = self._printers().get(suffix)
        if printer is None:
            yield putting(partial(self._complain, f"Ignoring unknown file {path}"))
            return
        yield partial(printer, Path(path))

    def _printers(self) -> dict[str, Callable[[Path, Put], None]]:
        return {
            "index": self._offset_index,
            "timeindex": self._time_index,
            "snapshot": self._snapshot,
            "txnindex": self._txn_index,
        }

    def _line(self, text: str) -> bytes:
        shown = printable(text) if self.logs.look.terminal else text
        return shown.encode("utf-8", "surrogateescape") + b"\n"

    def _lines(self, put: Put) -> Callable[[str], None]:
        def line(text: str) -> None:
            put(self._line(text))

        return line

    def _complain(self, line: str) -> None:
        self.out.flush()
        complain(line)

    def _log(self, path: Path) -> Iterator[Work]:
        dump = LogDump(self.logs, self.out.write, self._memory)
        self._gaps.append((str(path), dump.gaps))
        yield from dump.pieces(path, tile_bytes=PIECE_BYTES if self.jobs > 1 else None)
        yield putting(partial(self._note, dump))

    def _note(self, dump: LogDump) -> None:
        self.found = self.found or dump.found

    def _offset_index(self, path: Path, put: Put) -> None:
        from kseg.cli.kafka_dump.indexes import print_offset_index  # logs do without

        faults = print_offset_index(path, self.indexes, put, self._lines(put))
        put(partial(self._faults.append, (str(path), faults)))

    def _time_index(self, path: Path, put: Put) -> None:
        from kseg.cli.kafka_dump.indexes import print_time_index  # likewise

        faults = print_time_index(path, self.indexes, put, self._lines(put))
        put(partial(self._time_faults.append, (str(path), faults)))

    def _txn_index(self, path: Path, put: Put) -> None:
        from kseg.cli.kafka_dump.entries import print_txn_index  # likewise

        print_txn_index(path, self._lines(put))

    def _snapshot(self, path: Path, put: Put) -> None:
        from kseg.cli.kafka_dump.entries import print_snapshot  # likewise

        error = print_snapshot(path, self._lines(put))
        if error is not None:
            self.found = True
            put(partial(self._complain, error))

    def _tell(self) -> None:
        """What Kafka's tool says on standard error behind all lines."""
        for path, faults in (*self._faults, *self._time_faults):
            for line in faults.lines(os.path.abspath(path)):
                self.found = True
                complain(line)
        for path, gaps in self._gaps:
            for line in gaps.lines(os.path.abspath(path), self.logs.old):
                complain(line)
