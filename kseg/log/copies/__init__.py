"""Copies of one partition side by side: replicas, backups; and one whole log out of several.

joining     matching copies by topic, partition and topic id
source      a copy as tables of its sound batches, and its unknown offsets; several copies in step
merge       `plan_merge` decides what a merged log takes, the plan's `apply` writes it

Copies are neither changed nor locked. `kseg.log.salvage` says which batches are sound.
"""

from __future__ import annotations

from kseg._door import door

#: The public names of this package.
_HOMES = {
    "kseg.log.copies.joining": ("CopyPath", "JoinedCopies", "join_copies"),
    "kseg.log.copies.merge": ("MergedCopy", "PartitionMerge"),
    "kseg.log.copies.source": (
        "EPOCH",
        "FILE",
        "FIRST",
        "LAST",
        "OFFSETS_END",
        "POSITION",
        "SIZE",
        "BatchSeen",
        "Copy",
        "DoubtError",
        "overlapping",
        "touches",
        "twins",
        "windows",
        "without",
    ),
}
__all__, __getattr__ = door(__name__, _HOMES)
