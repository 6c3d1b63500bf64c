"""Why is the disk full: what keeps each byte, until when, and what would free it.

answer       `explain`: the answer for the data directories of a broker
values       the answer as values, and as JSON; the causes that can keep bytes
partitions   what keeps each file of one partition, by the settings that its broker has
spaces       how many bytes files take by their blocks; backups, deleted files that are open
freeing      how room could become free, as commands

Nothing is changed, and nothing is locked. What retention and compaction do is asked of their own
plans (`kseg.log.changes`): a date here is one at which they delete.
"""

from __future__ import annotations

from kseg._door import door

_HOMES = {
    "kseg.analysis.explain.answer": ("explain", "plan", "report"),
    "kseg.analysis.explain.partitions": ("KeepUnit", "examine"),
    "kseg.analysis.explain.values": (
        "CAUSES",
        "Explained",
        "Holder",
        "Kept",
        "PartitionKeeps",
        "Proposal",
        "Space",
        "Step",
        "Supposed",
        "Total",
        "Unproposed",
    ),
}
__all__, __getattr__ = door(__name__, _HOMES)
