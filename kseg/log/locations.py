"""The answers of lookups: the batch that holds an offset, the record that a time leads to."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from kseg.files.offset_index import IndexEntry


@dataclass(frozen=True, slots=True)
class BatchLocation:
    """Where a batch lies, and the index entry that led there; None if none did."""

    segment: Path
    position: int
    size: int
    base_offset: int
    last_offset: int
    max_timestamp: int
    index_entry: IndexEntry | None


@dataclass(frozen=True, slots=True)
class RecordLocation:
    """The record that a time leads to, and the batch that holds it."""

    offset: int
    timestamp: int
    leader_epoch: int
    batch: BatchLocation


__all__ = ["BatchLocation", "RecordLocation"]
