"""Kafka log segments in Spark: `spark.read.format("kseg").load("data-dir/orders-0")`.

Spark 4.1 and later find the source by its name (through the package `pyspark_kseg`), so a session
needs nothing but `kseg[spark]` installed. `register` also turns Spark's filter pushdown on, which
the option `pushdown=on` needs.

Importing this module imports no pyspark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kseg.extras import check_pyspark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register"]

_PUSHDOWN: Final = "spark.sql.python.filterPushdown.enabled"


def register(spark: SparkSession) -> None:
    """Make `format("kseg")` known to a session, and let Spark hand filters to Python sources.

    Args:
        spark: the session; its setting `spark.sql.python.filterPushdown.enabled` becomes true,
            which holds for every Python source in it.

    Raises:
        MissingExtraError: pyspark is not installed, or too old.
    """
    check_pyspark()
    from kseg.spark.source import KsegDataSource

    spark.conf.set(_PUSHDOWN, "true")
    spark.dataSource.register(KsegDataSource)
