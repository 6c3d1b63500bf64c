"""Copies of one partition side by side: replicas, backups; and one whole log out of several.

joining         which copies belong together, by topic, partition and topic id
source          a copy: its sound batches by offset, and what of it is not known
proving         batches behind damage that another copy proves, and those that cast a doubt on it
sound           a copy that is taken for sound until its one walk finds otherwise
table           batches of a copy as rows of numbers; which are the same, which overlap
side_by_side    several copies in step: windows of offsets with what each copy has there
lineage         which leaders wrote a copy, and where it leaves the history of another one
choosing        which batches of several copies a merged log takes
runs            what it takes of each copy, and where its segments begin
gaps            which offsets that no copy has are missing
merge           `plan_merge` decides what a merged log takes, `apply_merge` writes it
values          batches, a merge and what it leaves out, as values

Nothing that is read is changed or locked. What is sound, `kseg.log.salvage` says.
"""

from __future__ import annotations

from kseg._door import door

#: What programs may use of this room.
_HOMES = {
    "kseg.log.copies.joining": ("Chosen", "CopyPath", "JoinedCopies", "join_copies"),
    "kseg.log.copies.side_by_side": ("Window", "windows"),
    "kseg.log.copies.sound": ("DoubtError",),
    "kseg.log.copies.source": ("Copy",),
    "kseg.log.copies.table": (
        "EPOCH",
        "FILE",
        "FIRST",
        "LAST",
        "OFFSETS_END",
        "POSITION",
        "SIZE",
        "overlapping",
        "touches",
        "twins",
        "without",
    ),
    "kseg.log.copies.values": ("BatchSeen", "MergedCopy", "Missing", "PartitionMerge"),
}
__all__, __getattr__ = door(__name__, _HOMES)
