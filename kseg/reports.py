"""The reports and plans that kseg's functions return, by their classes."""

from __future__ import annotations

from kseg.analysis.diff import Diff
from kseg.analysis.doctor.values import DoctorReport
from kseg.analysis.explain.values import ExplainReport
from kseg.analysis.info import Infos, PartitionInfo, SegmentFacts
from kseg.analysis.stats import StatsByTopic, StatsReport
from kseg.analysis.topics import Topics, TopicSize
from kseg.analysis.values import Report
from kseg.format.convert import Conversion
from kseg.log.cleaner.values import CompactionReport
from kseg.log.cleanup import CompactionPlan, RetentionPlan
from kseg.log.closed import TruncationPlan, TruncationReport
from kseg.log.copies.merge import MergePlan
from kseg.log.reader.fetch import Fetched
from kseg.log.recovery.recover import RecoveryPlan, RecoveryReport
from kseg.log.recovery.reindex import ReindexPlan, ReindexReport
from kseg.log.salvage.salvage import SalvagePlan, SalvageReport
from kseg.log.settings.cluster import SettingValue
from kseg.log.settings.joined import PartitionSettings, Settings
from kseg.log.writer.retention import RetentionReport

__all__ = [
    "CompactionPlan",
    "CompactionReport",
    "Conversion",
    "Diff",
    "DoctorReport",
    "ExplainReport",
    "Fetched",
    "Infos",
    "MergePlan",
    "PartitionInfo",
    "PartitionSettings",
    "RecoveryPlan",
    "RecoveryReport",
    "ReindexPlan",
    "ReindexReport",
    "Report",
    "RetentionPlan",
    "RetentionReport",
    "SalvagePlan",
    "SalvageReport",
    "SegmentFacts",
    "SettingValue",
    "Settings",
    "StatsByTopic",
    "StatsReport",
    "TopicSize",
    "Topics",
    "TruncationPlan",
    "TruncationReport",
]
