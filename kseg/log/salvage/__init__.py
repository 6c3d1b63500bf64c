"""Past the damage: what of a log can be proved.

values      what can be proved of a copy of a partition, and what cannot
provable    reads one copy: the provable batches by offset, the bytes that are not, lost offsets
chains      which sound batches of a file count: chains of lengths, anchors in the offset index
places      batches placed by their offsets: duplicates, collisions
misfits     single batches whose offsets or leader epoch do not fit where they lie
tables      the headers of provable batches, read again from their files
mends       batches of which only an unchecked field of the header is wrong
transactions  those that lost offsets may belong to; markers that abort them
segments    batches by offset, as the segments of a new log
output      a new data directory of batches that lie in other files: whole, or not at all
losses      which offsets are lost
unproven    records of damaged batches that still parse
plan        what a salvage comes to, as values
salvage     `plan_salvage`, `apply_salvage`: a partition, or all of a data directory

A copy is never changed. Bytes that the disk does not give are lost ones.

Source: nothing of Kafka's, whose recovery cuts everything behind the first bad byte.
"""

from __future__ import annotations

from kseg._door import door

_HOMES = {
    "kseg.log.salvage.plan": ("READABLE", "SalvagePlan", "SalvageReport", "SalvagedPartition"),
    "kseg.log.salvage.provable": ("read_provable",),
    "kseg.log.salvage.tables": ("provable_tables",),
    "kseg.log.salvage.transactions": ("HurtTransaction",),
    "kseg.log.salvage.values": (
        "HARMLESS",
        "REASONS",
        "LostOffsets",
        "ProvablePartition",
        "ProvableRun",
        "SegmentSeen",
        "Unprovable",
    ),
}
__all__, __getattr__ = door(__name__, _HOMES)
