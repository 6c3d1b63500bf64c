"""The transaction index of a segment under a writer.

There is no file before the first aborted transaction. The next entry overwrites bytes that a crash
left behind the last whole entry; Kafka writes behind them, and then can read neither.

Source: Kafka `TransactionIndex`.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable
from os import fspath
from typing import Final

from kseg.errors import OffsetsOutOfOrderError
from kseg.files import io
from kseg.files.closing import Closing
from kseg.files.txn_index import ENTRY_BYTES, AbortedTxn, TxnIndex

_ENTRY: Final = struct.Struct(">hqqqq")


def pack_entries(transactions: Iterable[AbortedTxn]) -> bytes:
    """Entries as they lie in the file."""
    return b"".join(
        _ENTRY.pack(
            transaction.version,
            transaction.producer_id,
            transaction.first_offset,
            transaction.last_offset,
            transaction.last_stable_offset,
        )
        for transaction in transactions
    )


class TxnIndexWriter(Closing):
    """The `.txnindex` of a segment that is written to. Not for several threads at once.

    Attributes:
        path: the file, whether it exists or not.
    """

    __slots__ = ("_closed", "_dirty", "_file", "_last_offset", "_made", "_size", "path")

    def __init__(self, path: str, file: io.WriteFile | None, size: int) -> None:
        """Take over an open file, or none; use `open` instead."""
        self.path = path
        self._file = file
        self._size = size
        self._last_offset: int | None = None
        self._dirty = file is not None
        self._made = self._closed = False

    @classmethod
    def open(cls, path: io.StrPath) -> TxnIndexWriter:
        """Open a transaction index; a missing file has no entries.

        Raises:
            OSError: there is a file, but it cannot be written.
        """
        try:
            file = io.WriteFile.open(path)
        except FileNotFoundError:
            return cls(fspath(path), None, 0)
        return cls(fspath(path), file, file.size // ENTRY_BYTES * ENTRY_BYTES)

    @property
    def count(self) -> int:
        """Whole entries."""
        return self._size // ENTRY_BYTES

    def read(self) -> TxnIndex:
        """The entries as they are now, read whole.

        Raises:
            CorruptIndexError, LimitExceededError, OSError: as `TxnIndex.open`.
        """
        return TxnIndex.open(self.path)

    def append(self, transaction: AbortedTxn) -> None:
        """Add an aborted transaction; its marker lies in this segment.

        Raises:
            OffsetsOutOfOrderError: its last offset is not above the one before. Across an opening
                this is not looked at, as in Kafka.
            OSError: the disk refuses; the entry is not there.

        Source: Kafka `TransactionIndex.append`.
        """
        last = self._last_offset
        if last is not None and transaction.last_offset <= last:
            raise OffsetsOutOfOrderError(
                f"the last offset of an aborted transaction is not above {last}, that of the one "
                "before",
                path=self.path,
                offset=transaction.last_offset,
            )
        data = pack_entries((transaction,))
        if self._file is None:
            if self._closed:
                raise ValueError(f"{self.path} is closed")
            self._file = io.WriteFile.open(self.path, exclusive=True)
            self._made = True
        self._dirty = True
        self._file.write_at(self._size, data)
        self._size += ENTRY_BYTES
        self._last_offset = transaction.last_offset

    def truncate_to(self, offset: int) -> int:
        """Remove the entries from the first one on whose last offset is at or past `offset`.

        Returns:
            How many went.

        Raises:
            CorruptIndexError: the first byte of an entry's version is not 0.

        Source: Kafka `TransactionIndex.truncateTo`.
        """
        if self._file is None:
            return 0
        last_offsets = self.read().last_offsets
        past = last_offsets >= offset
        if not past.any():
            return 0
        count = int(past.argmax())
        self._cut(count * ENTRY_BYTES)
        self._last_offset = int(last_offsets[count - 1]) if count else None
        return len(last_offsets) - count

    def clear(self) -> None:
        """Remove all entries; the file stays. Source: Kafka `TransactionIndex.reset`."""
        if self._file is not None:
            self._cut(0)
        self._last_offset = None

    def _cut(self, size: int) -> None:
        assert self._file is not None
        self._dirty = True
        self._file.truncate(size)
        self._size = size

    def flush(self) -> None:
        """Make the entries lasting, and the name of a new file; nothing to do if there is none.

        Raises:
            PoisonedFileError: a flush has failed before.
            OSError: the flush failed; the file is poisoned.
        """
        if self._file is not None and (self._dirty or self._file.poisoned):
            self._file.flush()
            self._dirty = False
        if self._made:
            # The segment's other names are older, and lasting since its first flush.
            io.flush_directory(os.path.dirname(self.path) or ".")
            self._made = False

    def close(self) -> None:
        """Release the file; a second call does nothing."""
        self._closed = True
        if self._file is not None:
            self._file.close()
            self._file = None

    def renamed(self, path: str) -> None:
        """Note that the file has, or will have, another name."""
        self.path = path
        if self._file is not None:
            self._file.path = path
