"""What Spark knows as `format("kseg")`, and its batch source: a thin shell around plan and reading.

Spark builds these objects on the driver and pickles them to its workers, so they hold options and
names only, never a file or a kernel's object. Spark asks afresh for every action, `explain` among
them. It passes no wanted columns to Python sources; the schema of the query is the projection.

Source: `pyspark.sql.datasource`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, MutableMapping
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)

from kseg.spark.filters import Narrowing, push
from kseg.spark.options import SourceOptions, parse_options
from kseg.spark.schema import Projection, ddl, project
from kseg.spark.task_rows import rows_of
from kseg.spark.versions import check_pyspark

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.datasource import Filter
    from pyspark.sql.types import StructType

    from kseg.spark.sink import SinkWriter, StreamSinkWriter

#: Spark plans a query with filters in a process that runs this module, and only with pushdown on.
_PUSHDOWN_MODULE: Final = "pyspark.sql.worker.data_source_pushdown_filters"


class KsegDataSource(DataSource):
    """`spark.read.format("kseg")`: records of Kafka log segments as rows."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        """Check Spark itself; which options there are depends on what is asked for next.

        Raises:
            MissingExtraError: Spark is too old.
        """
        check_pyspark()
        super().__init__(options)

    @classmethod
    def name(cls) -> str:
        """What `format` calls it."""
        return "kseg"

    def schema(self) -> str:
        """The columns where the query brings no schema of its own.

        Raises:
            ValueError: an option is unknown or out of its domain.
        """
        return ddl(parse_options(self.options))

    def reader(self, schema: StructType) -> DataSourceReader:
        """A reader of the schema's columns.

        Raises:
            ValueError: the schema has a column that kseg does not, or of another type; or an option
                is unknown or out of its domain.
        """
        options = parse_options(self.options)
        options.check_batch()
        projection = project(schema, options)
        pushdown = options.pushdown
        if pushdown == "on" or (pushdown == "auto" and _PUSHDOWN_MODULE in sys.modules):
            return FilteringReader(options, projection)
        return RecordReader(options, projection)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """A reader of what is there and of what comes.

        Where the schema has a column that kseg does not, or of another type, or an option has no
        meaning for a stream, it is one that raises ValueError when it is asked anything.
        """
        from kseg.spark.stream import RefusedStream, stream_reader

        try:
            options = parse_options(self.options)
            options.check_stream()
            projection = project(schema, options)
        except ValueError as error:
            return RefusedStream(error)
        return stream_reader(options, projection)

    def writer(self, schema: StructType, overwrite: bool) -> SinkWriter:
        """A writer of a DataFrame's rows.

        Raises:
            ValueError: a column or an option is unknown, or out of its domain.
        """
        from kseg.spark.sink import writer_of

        return writer_of(self.options, schema, overwrite)

    def streamWriter(  # noqa: N802
        self, schema: StructType, overwrite: bool
    ) -> StreamSinkWriter:
        """A writer of a stream's rows.

        Raises:
            ValueError: a column or an option is unknown, or out of its domain.
        """
        from kseg.spark.sink import stream_writer_of

        return stream_writer_of(self.options, schema, overwrite)


class RecordReader(DataSourceReader):
    """Plans on the driver, reads in the workers."""

    def __init__(self, options: SourceOptions, projection: Projection) -> None:
        """Note what to read; nothing is looked at yet."""
        self._options = options
        self._projection = projection
        self._narrowing = Narrowing()

    def partitions(self) -> list[InputPartition]:
        """One partition for each task of the plan.

        Raises:
            NotALogError: the paths hold no segment.
            OSError: a path cannot be read.
        """
        from kseg.spark.listing import list_logs
        from kseg.spark.plan import make_plan

        plan = make_plan(list_logs(self._options), self._options, self._narrowing)
        return [InputPartition(task) for task in plan.tasks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task, as Arrow batches.

        Raises:
            KsegError: damage, where `onCorrupt` is `fail`; names file, position and code.
        """
        if partition.value is not None:  # Spark's stand-in for an empty plan
            yield from rows_of(partition.value, self._projection, self._options)


class FilteringReader(RecordReader):
    """The reader for a Spark that hands filters over.

    A class of its own: with pushdown off, Spark refuses any reader that can take filters.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        """Take what planning can use; answers what Spark is to check again."""
        pushed = push(filters)
        self._narrowing = pushed.narrowing
        # Spark drops the rows of damage, which have no offset, where a filter asks for offsets.
        return filters if self._options.permissive else pushed.recheck
