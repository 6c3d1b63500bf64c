"""The transaction index: the aborted transactions whose markers lie in one segment.

    at  size  field
    0   2     int16 version; Kafka looks at its first byte only, which is 0
    2   8     int64 producer id
    10  8     int64 first offset of the transaction
    18  8     int64 last offset: that of the ABORT marker
    26  8     int64 last stable offset when the marker was appended

34 bytes an entry, big-endian, by rising last offset, no header, never preallocated. The segment of
the marker has the entry, whichever segment holds the data. Most segments have no such file: a
writer makes it with the first aborted transaction. A crash may leave bytes after the last whole
entry. A reader ignores them, and the next entry overwrites them; Kafka writes after them, and then
can read neither.

Source: Kafka `TransactionIndex`, `AbortedTxn`.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable
from os import fspath
from typing import Final

import numpy as np

from kseg.constants import Int64s, StrPath
from kseg.documents import frozen_dataclass
from kseg.errors import CorruptIndexError, OffsetsOutOfOrderError
from kseg.files import io
from kseg.files.io import Closing

TXN_ENTRY_BYTES: Final = 34
#: Room for over seven million aborted transactions in one segment; the rest is not read.
TXN_INDEX_BYTES_MAX: Final = 2**28

_LAYOUT: Final = np.dtype(
    [
        ("version", ">i2"),
        ("producer_id", ">i8"),
        ("first_offset", ">i8"),
        ("last_offset", ">i8"),
        ("last_stable_offset", ">i8"),
    ]
)
TXN_ENTRY: Final = struct.Struct(">hqqqq")


@frozen_dataclass
class AbortedTxn:
    """One aborted transaction: records of `producer_id` from `first_offset` to `last_offset`."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int
    version: int = 0


@frozen_dataclass(eq=False)
class TxnIndex:
    """The entries of one `.txnindex`, read whole; holds no file.

    Attributes:
        path: the file, whether it exists or not.
        producer_ids, first_offsets, last_offsets, last_stable_offsets: int64[n], read-only.
        versions: int64[n], read-only; Kafka reads only the first byte, which is 0.
        tail_bytes: bytes after the last whole entry.
    """

    path: str
    producer_ids: Int64s
    first_offsets: Int64s
    last_offsets: Int64s
    last_stable_offsets: Int64s
    versions: Int64s
    tail_bytes: int = 0

    @classmethod
    def open(cls, path: StrPath) -> TxnIndex:
        """Read a transaction index; a missing file has no entries.

        Raises:
            CorruptIndexError: the first byte of an entry's version is not 0.
            LimitExceededError: the file is longer than any index.
            OSError: there is a file, but it cannot be read.
        """
        try:
            return cls.of(io.read_file(path, bytes_max=TXN_INDEX_BYTES_MAX), path)
        except FileNotFoundError:
            return cls.of(b"", path)

    @classmethod
    def of(cls, data: bytes, path: StrPath) -> TxnIndex:
        """A transaction index from the bytes of its file.

        Raises:
            CorruptIndexError: the first byte of an entry's version is not 0.
        """
        count = len(data) // TXN_ENTRY_BYTES
        raw = np.frombuffer(data, dtype=_LAYOUT, count=count)
        unknown = raw["version"].view(np.uint16) & 0xFF  # big-endian: the low byte is the first
        if unknown.any():
            slot = int(unknown.argmax())
            raise CorruptIndexError(
                f"version {data[slot * TXN_ENTRY_BYTES]} of an aborted transaction is not known",
                path=path,
                position=slot * TXN_ENTRY_BYTES,
            )
        return cls(
            fspath(path),
            producer_ids=_native_copy(raw["producer_id"]),
            first_offsets=_native_copy(raw["first_offset"]),
            last_offsets=_native_copy(raw["last_offset"]),
            last_stable_offsets=_native_copy(raw["last_stable_offset"]),
            versions=_native_copy(raw["version"]),
            tail_bytes=len(data) % TXN_ENTRY_BYTES,
        )

    def __len__(self) -> int:
        """The number of whole entries in the file."""
        return len(self.last_offsets)

    def __getitem__(self, slot: int) -> AbortedTxn:
        """One entry; as for any sequence, IndexError past the end."""
        return AbortedTxn(
            int(self.producer_ids[slot]),
            int(self.first_offsets[slot]),
            int(self.last_offsets[slot]),
            int(self.last_stable_offsets[slot]),
        )

    def entries(self) -> tuple[AbortedTxn, ...]:
        """All entries in the order of the file."""
        return tuple(self[slot] for slot in range(len(self)))

    def collect_aborted(
        self, fetch_offset: int, upper_bound: int
    ) -> tuple[tuple[AbortedTxn, ...], bool]:
        """The aborted transactions that touch offsets from `fetch_offset` below `upper_bound`.

        Returns:
            The transactions, and whether these are all of them. If not, go on with the next
            segment's index and the same range.

        The walk ends, complete, with the first entry whose last stable offset has reached the
        bound: nothing that was decided later can have begun below it.

        Source: Kafka `TransactionIndex.collectAbortedTxns`.
        """
        past = self.last_stable_offsets >= upper_bound
        complete = bool(past.any())
        end = int(past.argmax()) + 1 if complete else len(self)
        touching = (self.last_offsets[:end] >= fetch_offset) & (
            self.first_offsets[:end] < upper_bound
        )
        return tuple(self[int(slot)] for slot in np.flatnonzero(touching)), complete


def _native_copy(column: Int64s) -> Int64s:
    """A copy of a column in native byte order, read-only."""
    native = column.astype(np.int64)
    native.flags.writeable = False
    return native


# ---- writing -------------------------------------------------------------------------------------


def pack_entries(transactions: Iterable[AbortedTxn]) -> bytes:
    """The bytes of entries."""
    return b"".join(
        TXN_ENTRY.pack(
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
    def open(cls, path: StrPath) -> TxnIndexWriter:
        """Open a transaction index; a missing file has no entries.

        Raises:
            OSError: there is a file, but it cannot be written.
        """
        try:
            file = io.WriteFile.open(path)
        except FileNotFoundError:
            return cls(fspath(path), None, 0)
        return cls(fspath(path), file, file.size // TXN_ENTRY_BYTES * TXN_ENTRY_BYTES)

    @property
    def count(self) -> int:
        """The number of whole entries."""
        return self._size // TXN_ENTRY_BYTES

    def read(self) -> TxnIndex:
        """The entries as they are now, read whole.

        Raises:
            CorruptIndexError, LimitExceededError, OSError: as `TxnIndex.open`.
        """
        return TxnIndex.open(self.path)

    def append(self, transaction: AbortedTxn) -> None:
        """Add an aborted transaction; its marker is in this segment.

        Raises:
            OffsetsOutOfOrderError: its last offset is not above the one before. As in Kafka, this
                is not checked against entries from before the opening.
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
        self._size += TXN_ENTRY_BYTES
        self._last_offset = transaction.last_offset

    def truncate_to(self, offset: int) -> int:
        """Remove all entries from the first one on whose last offset is at or past `offset`.

        Returns:
            How many were removed.

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
        self._truncate_file(count * TXN_ENTRY_BYTES)
        self._last_offset = int(last_offsets[count - 1]) if count else None
        return len(last_offsets) - count

    def clear(self) -> None:
        """Remove all entries; the file stays. Source: Kafka `TransactionIndex.reset`."""
        if self._file is not None:
            self._truncate_file(0)
        self._last_offset = None

    def _truncate_file(self, size: int) -> None:
        assert self._file is not None
        self._dirty = True
        self._file.truncate(size)
        self._size = size

    def flush(self) -> None:
        """Flush the entries, and the name of a new file; does nothing without a file.

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
