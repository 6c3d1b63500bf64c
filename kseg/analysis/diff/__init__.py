"""Copies of partitions against each other: replicas, backups, directories that were restored.

answer       `diff`: the answer for some copies
values       the answer as values, and as JSON
partitions   the copies of one partition, read and compared
compare      two copies, a window of offsets at a time: by batches, by records where batches differ

Nothing is changed, and nothing is locked. What of a copy is sound, `kseg.log.salvage` says.
"""

from __future__ import annotations

from kseg._door import door

_HOMES = {
    "kseg.analysis.diff.answer": ("diff", "report"),
    "kseg.analysis.diff.partitions": ("DiffUnit", "examine", "plan"),
    "kseg.analysis.diff.values": (
        "RELATIONS",
        "BatchSeen",
        "Compared",
        "CopySeen",
        "Diff",
        "Difference",
        "OffsetRange",
        "PartitionDiff",
        "Ranges",
    ),
}
__all__, __getattr__ = door(__name__, _HOMES)
