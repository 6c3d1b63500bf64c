"""The reports and plans that kseg's functions return, by their classes.

Each name is loaded when it is first used.
"""

from __future__ import annotations

from kseg._door import door

_HOMES = {
    "kseg.analysis.diff": ("Diff",),
    "kseg.analysis.doctor.values": ("DoctorReport",),
    "kseg.analysis.explain.values": ("ExplainReport",),
    "kseg.analysis.groups": (
        "Commits",
        "Group",
        "GroupChange",
        "Groups",
        "Member",
        "ShareState",
    ),
    "kseg.analysis.info": (
        "Infos",
        "PartitionInfo",
        "SegmentFacts",
        "TopicSize",
        "Topics",
    ),
    "kseg.analysis.metadata": (
        "Metadata",
        "MetadataTable",
    ),
    "kseg.analysis.report": ("BrokerReport",),
    "kseg.analysis.stats": (
        "StatsByTopic",
        "StatsReport",
    ),
    "kseg.analysis.transactions": (
        "TransactionRows",
        "TransactionalId",
        "Transactions",
        "Undecided",
    ),
    "kseg.analysis.values": ("Report",),
    "kseg.format.convert": ("Conversion",),
    "kseg.internal.registry": (
        "Reference",
        "Schema",
        "SchemaFinding",
        "Schemas",
    ),
    "kseg.log.cleaner.clean": (
        "CompactionPlan",
        "CompactionReport",
    ),
    "kseg.log.copies.merge": ("MergePlan",),
    "kseg.log.reader.fetch": ("Fetched",),
    "kseg.log.recovery.recover": (
        "RecoveryPlan",
        "RecoveryReport",
    ),
    "kseg.log.recovery.reindex": (
        "ReindexPlan",
        "ReindexReport",
    ),
    "kseg.log.salvage.salvage": (
        "SalvagePlan",
        "SalvageReport",
    ),
    "kseg.log.settings.cluster": ("SettingValue",),
    "kseg.log.settings.joined": (
        "PartitionSettings",
        "Settings",
    ),
    "kseg.log.writer.retention": (
        "RetentionPlan",
        "RetentionReport",
    ),
    "kseg.log.writer.truncate": (
        "TruncationPlan",
        "TruncationReport",
    ),
}
__all__, __getattr__ = door(__name__, _HOMES)
