"""What has to be done to a partition before it can be appended to: planned, then applied.

plan              what a recovery comes to, as values
recover           `plan_recovery`, `apply_recovery`, `recover`: planned, and done on the disk
load              the steps of loading, in an overlay; its docstring says what differs from Kafka
as_broker         the steps that Kafka takes instead, to the letter, with its `raw_lookups`
load_context      what the steps share; `load_result`: a log as it is when appending begins
overlay           a directory as a plan leaves it, the steps to that, and who takes them on the disk
temporary_files   what interrupted deletions, compactions and splits have left
sanity            cheap looks at indexes and at the end of a log (Kafka's `sanityCheck`)
clean_end         the end of a log that was closed in good order
sweep             one walk that tells all that a segment's indexes, producers and epochs must say
split             a segment whose offsets overflow, as several
lost              which offsets go, or cannot be read, and what of it is sound
index_check       whether an index fits its log: one check for verify and for a reindexing
findings          what is wrong with a file, as one value; `codes`: the words for it
reindex           indexes and snapshots made anew; `reindex_plan`, `differences`
backup            what repairs take out, kept first
"""

from __future__ import annotations

from kseg._door import door

#: What programs may use of this room.
_HOMES = {
    "kseg.log.recovery.backup": ("Backup", "Kept", "kept_bytes"),
    "kseg.log.recovery.codes": ("CODES", "Code", "Severity"),
    "kseg.log.recovery.findings": ("PER_CODE_MAX", "Finding"),
    "kseg.log.recovery.index_check": (
        "CHECKED",
        "IndexChecks",
        "IndexPlace",
        "TxnTrail",
        "judge_transactions",
    ),
    "kseg.log.recovery.lost": ("Lost", "lost_ranges"),
    "kseg.log.recovery.overlay": ("Action", "FileSeen", "look_at"),
    "kseg.log.recovery.raw_lookups": ("stored_position",),
    "kseg.log.recovery.reindex": ("KINDS",),
}
__all__, __getattr__ = door(__name__, _HOMES)
