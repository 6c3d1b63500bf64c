"""The four files of a segment under one writer: opened, flushed, renamed, closed, removed together.

Owns their names and the order of each operation. Does not know what is in them.

Source: Kafka `LogSegment` (`open`, `flush`, `changeFileSuffixes`, `close`, `deleteIfExists`).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from kseg.errors import KsegError
from kseg.files import io
from kseg.files.index_writer import OffsetIndexWriter, TimeIndexWriter
from kseg.files.log_writer import LogWriter
from kseg.files.names import FileKind, segment_name
from kseg.files.txn_index_writer import TxnIndexWriter

_KINDS = (FileKind.LOG, FileKind.INDEX, FileKind.TIMEINDEX, FileKind.TXNINDEX)


@dataclass(frozen=True, slots=True, eq=False)
class WrittenFiles:
    """A segment's log and indexes. `open` acquires, `close` releases."""

    log: LogWriter
    offset_index: OffsetIndexWriter
    time_index: TimeIndexWriter
    txn_index: TxnIndexWriter

    @classmethod
    def open(
        cls,
        directory: io.StrPath,
        base_offset: int,
        *,
        index_bytes: int,
        create: bool = False,
        suffix: str = "",
        preallocate_bytes: int = 0,
        offset_entries: int | None = None,
        time_entries: int | None = None,
    ) -> WrittenFiles:
        """Open the files of a segment; see `SegmentWriter.open`."""
        place = os.fspath(directory)
        names = [os.path.join(place, segment_name(base_offset, kind) + suffix) for kind in _KINDS]
        log = LogWriter.open(names[0], create=create, preallocate_bytes=preallocate_bytes)
        try:
            return cls(
                log,
                OffsetIndexWriter.open(
                    names[1], base_offset, bytes_max=index_bytes, used=offset_entries
                ),
                TimeIndexWriter.open(
                    names[2], base_offset, bytes_max=index_bytes, used=time_entries
                ),
                TxnIndexWriter.open(names[3]),
            )
        except BaseException:
            log.close(trim=False)
            raise

    @property
    def paths(self) -> tuple[str, str, str, str]:
        """The names of log, offset index, time index and transaction index."""
        return (
            self.log.path,
            self.offset_index.path,
            self.time_index.path,
            self.txn_index.path,
        )

    def has_suffix(self, suffix: str) -> bool:
        """Whether all names end so."""
        return all(path.endswith(suffix) for path in self.paths)

    def flush(self) -> None:
        """Make all bytes lasting; the log first. Makes indexes that are missing."""
        self.log.flush()
        self.offset_index.flush()
        self.time_index.flush()
        self.txn_index.flush()

    def change_suffix(self, old: str, new: str) -> None:
        """Rename all files; see `SegmentWriter.change_suffix`."""
        if not self.has_suffix(old):
            raise ValueError(f"the names of {self.log.path} do not end in {old!r}")
        renamed = (
            self.log.renamed,
            self.offset_index.renamed,
            self.time_index.renamed,
            self.txn_index.renamed,
        )
        for path, tell in zip(self.paths, renamed, strict=True):
            target = path.removesuffix(old) + new
            try:
                io.rename(path, target)
            except FileNotFoundError:
                if path == self.log.path:
                    raise
            tell(target)

    def close(self, *, trim: bool = True) -> None:
        """Trim, flush and release; each step is tried, and the first error raised at the end."""
        attempt(
            lambda: self.offset_index.close(trim=trim),
            lambda: self.time_index.close(trim=trim),
            lambda: self.log.close(trim=trim),
            self.txn_index.close,
        )

    def delete(self) -> None:
        """Release and remove all files; a missing one is none to remove."""
        with suppress(OSError):
            self.close(trim=False)
        attempt(*(_removal(path) for path in self.paths))


def attempt(*steps: Callable[[], None]) -> None:
    """Take every step, also after one has failed; then raise the first error."""
    errors = []
    for step in steps:
        try:
            step()
        except (OSError, ValueError, KsegError) as error:
            errors.append(error)
    if errors:
        raise errors[0]


def _removal(path: str) -> Callable[[], None]:
    def remove() -> None:
        io.unlink(path, missing_ok=True)

    return remove
