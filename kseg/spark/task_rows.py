"""What a worker of Spark's does for one task of a plan, in a batch query and in a stream."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kseg.spark.settling import settle

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from kseg.spark.options import SourceOptions
    from kseg.spark.plan import Split
    from kseg.spark.schema import Projection


def rows_of(
    task: tuple[Split, ...], projection: Projection, options: SourceOptions
) -> Iterator[pa.RecordBatch]:
    """The rows of one task, as Arrow batches."""
    from kseg.spark.reading import read_task

    settle()
    return read_task(task, projection, options)
