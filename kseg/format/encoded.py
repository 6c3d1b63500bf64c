"""EncodedBatch: the bytes of a batch, with what an append needs to know of them."""

from __future__ import annotations

from dataclasses import dataclass

from kseg.format.header import BatchHeader, BatchTable, scan


@dataclass(slots=True, unsafe_hash=True)  # a frozen one takes five times as long to make
class EncodedBatch:
    """The bytes of one batch, as they lie on disk and go over the wire.

    For magic 2 that is a batch; for magic 0 and 1 one wrapper message if there is a codec, else
    one entry after another.

    Attributes:
        data: the bytes; empty where no record was given.
        magic: 0, 1 or 2.
        base_offset: offset of the first record.
        last_offset: offset of the last record, or what the header says instead.
        record_count: how many records.
        max_timestamp: the largest timestamp; -1 where there is none.
        offset_of_max_timestamp: the last offset of the batch or message that has it; -1 for none.
        uncompressed_bytes: size of the records before compression, with the 12 bytes of offset
            and size of each message for magic 0 and 1, without the header of a batch.
        compression_ratio: compressed by uncompressed size; 1.0 where nothing was compressed.
    """

    data: bytes
    magic: int
    base_offset: int
    last_offset: int
    record_count: int
    max_timestamp: int
    offset_of_max_timestamp: int
    uncompressed_bytes: int
    compression_ratio: float = 1.0

    def __len__(self) -> int:
        """How many bytes."""
        return len(self.data)

    def __bytes__(self) -> bytes:
        """The bytes."""
        return self.data

    @property
    def table(self) -> BatchTable:
        """The headers, read back from the bytes; several for plain messages of magic 0 and 1."""
        return scan(self.data)

    @property
    def header(self) -> BatchHeader:
        """The header, or the first one; IndexError where no record was given."""
        return self.table[0]
