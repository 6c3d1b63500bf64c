"""Kafka log segments in Spark: `spark.read.format("kseg").load("data-dir/orders-0")`.

Spark 4.1 and later find the source by its name (through the package `pyspark_kseg`), so a session
needs nothing but `kseg[spark]` installed.

Importing this module imports no pyspark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kseg.extras import check_pyspark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register"]


def register(spark: SparkSession) -> None:
    """Make `format("kseg")` known to a session.

    Args:
        spark: the session.

    Raises:
        MissingExtraError: pyspark is not installed, or too old.
    """
    check_pyspark()
    from kseg.spark.source import KsegDataSource

    spark.dataSource.register(KsegDataSource)
