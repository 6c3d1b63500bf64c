"""Recovery: what must be done to a log before an append. A plan decides it, `apply` does it.

plan              what a recovery comes to, as values
recover           `plan_recovery`, `apply_recovery`, `recover`: the plan, and its steps on the disk
load              the steps of loading, in an overlay: where a torn tail is cut after a crash, which
                  segments are walked; its docstring says what differs from Kafka
as_broker         the steps exactly as Kafka takes them, with its `raw_lookups`
load_context      what the steps share; `load_result`: a log as it is when appending begins
overlay           a directory as a plan leaves it, its steps; the applier takes them on the disk
temporary_files   what interrupted deletions, compactions and splits have left
sanity            quick checks of indexes and of the end of a log (Kafka's `sanityCheck`)
clean_end         the end of a log that was closed cleanly, where its torn tail is cut
sweep             one walk that tells all that a segment's indexes, producers and epochs must say
split             a segment whose offsets overflow, as several
lost              which offsets go, or cannot be read, and what of it is sound
index_check       whether an index fits its log: one check for verify and for a reindexing
findings          what is wrong with a file, as one value; `codes`: the words for it
reindex           indexes and snapshots made anew; `reindex_plan`, `differences`
resume            which partitions an interrupted recovery has put in order
backup            keeps what a repair cuts, replaces or removes, before it goes
"""

from __future__ import annotations

from kseg._door import door

#: What programs may use of this room.
_HOMES = {
    "kseg.log.recovery.backup": (
        "Backup",
        "Kept",
        "backup_root",
        "kept_bytes",
        "other_file_system",
    ),
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
