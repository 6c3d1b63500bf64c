"""Questions to whole fleets of logs, answered by Spark's workers; each also `kseg spark VERB`.

    from kseg.spark import jobs
    found = jobs.verify(spark, ["/data/a", "/data/b"], job="/shared/verify-monday")
    found.report                the answer of one process
    found.frame(spark)          its rows as a DataFrame

`verify`, `stats`, `doctor`, `explain` and `diff` take the options of the functions of these names
in `kseg`. A path is a file, a partition directory or a data directory, as every worker sees it. A
relative path counts from the driver's directory. `job` is a directory that every worker sees: a
run that was stopped goes on from it, and does no finished work again.

Importing this module imports no pyspark.
"""

from __future__ import annotations

from kseg.spark.jobs.analyses import (
    AnalysisResult,
    SparkRunner,
    diff,
    doctor,
    explain,
    stats,
    verify,
)
from kseg.spark.jobs.closed import (
    CompactOptions,
    CompactResult,
    ReindexOptions,
    ReindexResult,
    compact,
    reindex,
)
from kseg.spark.jobs.export import FIELD_NAMES as EXPORT_FIELD_NAMES
from kseg.spark.jobs.export import FIELDS as EXPORT_FIELDS
from kseg.spark.jobs.export import ExportResult, export
from kseg.spark.jobs.running import error_of

__all__ = [
    "EXPORT_FIELDS",
    "EXPORT_FIELD_NAMES",
    "AnalysisResult",
    "CompactOptions",
    "CompactResult",
    "ExportResult",
    "ReindexOptions",
    "ReindexResult",
    "SparkRunner",
    "compact",
    "diff",
    "doctor",
    "error_of",
    "explain",
    "export",
    "reindex",
    "stats",
    "verify",
]
