"""Copies of one partition side by side: replicas, backups; and one whole log out of several.

joining     which copies belong together, by topic, partition and topic id
batches     batches of a copy as rows of numbers, and a merge as values
source      a copy: its sound batches by offset, and its unknown offsets; several copies in step
merge       `plan_merge` decides what a merged log takes, `apply_merge` writes it

Copies are neither changed nor locked. `kseg.log.salvage` says which batches are sound.
"""

from __future__ import annotations

from kseg._door import door

#: What programs may use of this room.
_HOMES = {
    "kseg.log.copies.batches": (
        "EPOCH",
        "FILE",
        "FIRST",
        "LAST",
        "OFFSETS_END",
        "POSITION",
        "SIZE",
        "BatchSeen",
        "MergedCopy",
        "Missing",
        "PartitionMerge",
        "overlapping",
        "touches",
        "twins",
        "without",
    ),
    "kseg.log.copies.joining": ("Chosen", "CopyPath", "JoinedCopies", "join_copies"),
    "kseg.log.copies.source": ("Copy", "DoubtError", "Window", "windows"),
}
__all__, __getattr__ = door(__name__, _HOMES)
