"""Batches of copies as values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kseg.constants import codec_label

if TYPE_CHECKING:
    from kseg.format.header import BatchHeader


@dataclass(frozen=True, slots=True)
class BatchSeen:
    """A batch of one copy: where it lies, and its header."""

    path: str
    header: BatchHeader

    @property
    def first_offset(self) -> int:
        """The first one; of a compressed message of magic 0 or 1, the last."""
        header = self.header
        return header.base_offset if header.base_offset >= 0 else header.last_offset

    def to_dict(self) -> dict[str, Any]:
        """As in `--json`; the names are those of `kseg dump --batches`."""
        header = self.header
        return {
            "path": self.path,
            "position": header.position,
            "size": header.size,
            "base_offset": header.base_offset,
            "last_offset": header.last_offset,
            "count": header.record_count,
            "leader_epoch": header.leader_epoch,
            "producer_id": header.producer_id,
            "producer_epoch": header.producer_epoch,
            "base_sequence": header.base_sequence,
            "max_timestamp": header.max_timestamp,
            "magic": header.magic,
            "codec": codec_label(header.codec),
            "transactional": header.is_transactional,
            "control": header.is_control,
            "crc": header.crc,
        }


__all__ = ["BatchSeen"]
