from collections.abc import Mapping
from typing import Final

from kseg.analysis.diff import Diff as Diff
from kseg.analysis.doctor.values import DoctorReport as DoctorReport
from kseg.analysis.explain.values import ExplainReport as ExplainReport
from kseg.analysis.groups import Commits as Commits
from kseg.analysis.groups import Group as Group
from kseg.analysis.groups import GroupChange as GroupChange
from kseg.analysis.groups import Groups as Groups
from kseg.analysis.groups import Member as Member
from kseg.analysis.groups import ShareState as ShareState
from kseg.analysis.info import Infos as Infos
from kseg.analysis.info import PartitionInfo as PartitionInfo
from kseg.analysis.info import SegmentFacts as SegmentFacts
from kseg.analysis.info import Topics as Topics
from kseg.analysis.info import TopicSize as TopicSize
from kseg.analysis.metadata import Metadata as Metadata
from kseg.analysis.metadata import MetadataTable as MetadataTable
from kseg.analysis.report import BrokerReport as BrokerReport
from kseg.analysis.stats import StatsByTopic as StatsByTopic
from kseg.analysis.stats import StatsReport as StatsReport
from kseg.analysis.transactions import TransactionalId as TransactionalId
from kseg.analysis.transactions import TransactionRows as TransactionRows
from kseg.analysis.transactions import Transactions as Transactions
from kseg.analysis.transactions import Undecided as Undecided
from kseg.analysis.values import Report as Report
from kseg.format.convert import Conversion as Conversion
from kseg.internal.registry import Reference as Reference
from kseg.internal.registry import Schema as Schema
from kseg.internal.registry import SchemaFinding as SchemaFinding
from kseg.internal.registry import Schemas as Schemas
from kseg.log.cleaner.clean import CompactionPlan as CompactionPlan
from kseg.log.cleaner.clean import CompactionReport as CompactionReport
from kseg.log.copies.merge import MergePlan as MergePlan
from kseg.log.reader.fetch import Fetched as Fetched
from kseg.log.recovery.recover import RecoveryPlan as RecoveryPlan
from kseg.log.recovery.recover import RecoveryReport as RecoveryReport
from kseg.log.recovery.reindex import ReindexPlan as ReindexPlan
from kseg.log.recovery.reindex import ReindexReport as ReindexReport
from kseg.log.salvage.salvage import SalvagePlan as SalvagePlan
from kseg.log.salvage.salvage import SalvageReport as SalvageReport
from kseg.log.settings.cluster import SettingValue as SettingValue
from kseg.log.settings.joined import PartitionSettings as PartitionSettings
from kseg.log.settings.joined import Settings as Settings
from kseg.log.writer.retention import RetentionPlan as RetentionPlan
from kseg.log.writer.retention import RetentionReport as RetentionReport
from kseg.log.writer.truncate import TruncationPlan as TruncationPlan
from kseg.log.writer.truncate import TruncationReport as TruncationReport

__all__: list[str]
_HOMES: Final[Mapping[str, tuple[str, ...]]]
