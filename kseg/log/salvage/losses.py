"""Which offsets no provable batch has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kseg.log.salvage.values import LostOffsets, ProvableRun, SegmentSeen, Unprovable

if TYPE_CHECKING:
    from kseg.log.data_directory import PartitionOffsets


def lost_offsets(
    runs: Sequence[ProvableRun],
    unprovable: Sequence[Unprovable],
    segments: Sequence[SegmentSeen],
    told: PartitionOffsets,
) -> tuple[LostOffsets, ...]:
    """Offsets that are missing in front of the runs, between them and behind."""
    return ()


__all__ = ["lost_offsets"]
