"""Questions to whole fleets of logs, answered by Spark's workers; each also `kseg spark VERB`.

    from kseg.spark import jobs
    found = jobs.verify(spark, ["/data/a", "/data/b"], job="/shared/verify-monday")
    found.report                what one process would answer
    found.frame(spark)          its rows as a DataFrame

A path is a file, a partition directory or a data directory, as every worker sees it; one that is
relative counts from the driver's directory. With `job`, a directory that every worker sees, a run
that was ended goes on where it was: what is finished is not done again.

Importing this module imports no pyspark.
"""

from __future__ import annotations

from kseg.spark.jobs.compact import CompactOptions, CompactResult, compact
from kseg.spark.jobs.compaction import CompactionResult, compaction
from kseg.spark.jobs.diff import DiffResult, diff
from kseg.spark.jobs.doctor import DoctorResult, doctor
from kseg.spark.jobs.explain import ExplainResult, explain
from kseg.spark.jobs.export import FIELD_NAMES as EXPORT_FIELD_NAMES
from kseg.spark.jobs.export import FIELDS as EXPORT_FIELDS
from kseg.spark.jobs.export import ExportResult, export
from kseg.spark.jobs.reindex import ReindexOptions, ReindexResult, reindex
from kseg.spark.jobs.running import error_of
from kseg.spark.jobs.stats import StatsResult, stats
from kseg.spark.jobs.verify import VerifyResult, verify

__all__ = [
    "EXPORT_FIELDS",
    "EXPORT_FIELD_NAMES",
    "CompactOptions",
    "CompactResult",
    "CompactionResult",
    "DiffResult",
    "DoctorResult",
    "ExplainResult",
    "ExportResult",
    "ReindexOptions",
    "ReindexResult",
    "StatsResult",
    "VerifyResult",
    "compact",
    "compaction",
    "diff",
    "doctor",
    "error_of",
    "explain",
    "export",
    "reindex",
    "stats",
    "verify",
]
