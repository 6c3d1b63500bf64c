"""Spark's `format("kseg")`: its batch source and its stream, around plan and reading.

Spark builds these objects on the driver and pickles them to its workers, so they hold options and
names only, never a file or a kernel's object. Spark keeps a plan at its DataFrame: later records
come with the next `load`. It passes no wanted columns to Python sources; the schema of the query is
the projection.

Spark stores the offsets of every micro-batch before it reads it, and reads the same range again
after a crash. So a range always gives the same rows: offsets decide, never the length of a file at
that time. The memory of the stream's reader saves walks and decides nothing.

Spark prints the traceback of an error as text. So an error leaves this module without the frames
below it, and its message is one line at the end.

Source: `pyspark.sql.datasource`, `pyspark.sql.datasource.DataSourceStreamReader`.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import replace
from functools import wraps
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import StructType

from kseg.constants import INT64_MAX
from kseg.errors import KsegError
from kseg.extras import check_pyspark
from kseg.spark.options import (
    LATEST,
    SourceOptions,
    parse_options,
    table_comment,
    with_comments,
)
from kseg.spark.plan import check_paths, list_logs, make_plan, plan_line
from kseg.spark.schema import Projection, ddl, project
from kseg.spark.watching import (
    NO_LIMIT,
    Amount,
    StreamOffset,
    Watch,
    admit,
    offsets_document,
    stream_offsets_of,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from kseg.spark.sink import SinkWriter

_LOGGER = logging.getLogger("kseg.spark")
_LOGGER.setLevel(logging.INFO)  # for Spark's log of its Python workers, whose root takes warnings
_P = ParamSpec("_P")
_T = TypeVar("_T")

#: Admission control and the trigger `availableNow` came with Spark 4.2.
_ADMITS: Final = hasattr(DataSourceStreamReader, "getDefaultReadLimit")
if TYPE_CHECKING or _ADMITS:
    from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow
else:
    SupportsTriggerAvailableNow = object


def brief(method: Callable[_P, _T]) -> Callable[_P, _T]:
    """A method whose errors show neither the frames below it nor the errors that caused them."""

    @wraps(method)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        try:
            return method(*args, **kwargs)
        except (KsegError, OSError, ValueError) as error:
            raise error.with_traceback(None) from None

    return call


def stream_reader(options: SourceOptions, projection: Projection) -> StreamReader:
    """A reader for a stream; before Spark 4.2 each micro-batch has all records there are."""
    if not _ADMITS and _limit_of(options) != NO_LIMIT:
        message = "kseg: this Spark has no admission control; limits per trigger are ignored"
        warnings.warn(message, UserWarning, stacklevel=2)
    return StreamReader(options, projection)


def _limit_of(options: SourceOptions) -> Amount:
    """The limit of a micro-batch that the options set."""
    return Amount(
        options.max_offsets_per_trigger,
        options.max_bytes_per_trigger,
        options.max_segments_per_trigger,
    )


class RefusedStream(DataSourceStreamReader):
    """A reader for a stream that is refused: it raises the reason at Spark's first call.

    If the constructor raised, Spark would try to stop a reader that does not exist, and report that
    error instead.
    """

    def __init__(self, error: ValueError) -> None:
        """Keep the error's text."""
        self._error: Final = error

    def _refuse(self, *_rest: Any) -> Any:
        """Raise the error, whichever method Spark calls first; that depends on the checkpoint.

        Raises:
            ValueError: always.
        """
        raise self._error.with_traceback(None) from None

    initialOffset = latestOffset = partitions = read = _refuse  # type: ignore[assignment]  # noqa: N815


class _TaskReader:
    """Keeps the options and columns of a query; reads its tasks in the workers."""

    def __init__(self, options: SourceOptions, projection: Projection) -> None:
        """Open no file yet."""
        self._options: Final = options
        self._projection: Final = projection

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task, as Arrow batches.

        Raises:
            KsegError: damage, where `onCorrupt` is `fail`; names file, position and code.
        """
        from kseg.spark.reading import read_task, settle

        settle()
        if partition.value is None:  # Spark's stand-in for an empty plan
            return
        try:
            yield from read_task(partition.value, self._projection, self._options)
        except (KsegError, OSError, ValueError) as error:
            raise error.with_traceback(None) from None


class StreamReader(_TaskReader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans each micro-batch on the driver, reads it in the workers."""

    def __init__(self, options: SourceOptions, projection: Projection) -> None:
        """Open no file yet."""
        super().__init__(options, projection)
        self._watch: Final = Watch(options)
        self._ends: Mapping[str, StreamOffset] | None = None

    def __getstate__(self) -> dict[str, Any]:
        """With a fresh watch: only the driver needs its memory."""
        return {**self.__dict__, "_watch": Watch(self._options)}

    # ---- on the driver ---------------------------------------------------------------------------

    @brief
    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Where a new query starts: where `startingOffsets` says, else with the first records."""
        return offsets_document(self._starts({}))

    def _starts(self, earlier: Mapping[str, StreamOffset]) -> dict[str, StreamOffset]:
        """The stream offsets of earlier logs, and one for each new log, which is read whole."""
        watch, stream_offsets = self._watch, dict(earlier)
        for name, log in watch.logs().items():
            if name in stream_offsets:
                continue
            start = watch.start_of(log)
            offset = self._options.start_of(log.partition.topic, log.partition.partition)
            if offset == LATEST and not earlier:
                start = watch.end_of(name, log)
            elif offset is not None and offset > start.offset:
                start = replace(start, offset=offset)
            stream_offsets[name] = start
        return stream_offsets

    @brief
    def latestOffset(  # noqa: N802 - Spark's name
        self, start: dict[str, Any] | None = None, limit: Any = None
    ) -> dict[str, Any]:
        """The end of the next micro-batch: whole batches, up to about the limit.

        Raises:
            KsegError: a log's end is damaged, or records are gone, and the options say to fail.
            OSError: a log cannot be read.
        """
        earlier = {} if start is None else stream_offsets_of(start)
        starts = self._starts(earlier)
        everything = limit is None or type(limit).__name__ == "ReadAllAvailable"
        amount = NO_LIMIT if everything else _limit_of(self._options)
        if self._ends is None:
            ends = admit(starts, amount, self._watch.advance)
        else:
            ends = self._end_of_micro_batch(starts, self._ends, amount)
        # Spark takes any difference in the text for new data, so a log without news keeps its text.
        moved = {
            name: end
            for name, end in ends.items()
            if end.offset != starts[name].offset or end.has_other_topic_id(starts[name])
        }
        return offsets_document({**starts, **moved})

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """One of the limits of the options, for Spark's progress reports; all of them are kept."""
        from pyspark.sql.streaming import datasource

        kinds = (datasource.ReadMaxRows, datasource.ReadMaxBytes, datasource.ReadMaxFiles)
        for kind, most in zip(kinds, _limit_of(self._options), strict=True):
            if most < INT64_MAX:
                return kind(most)
        return datasource.ReadAllAvailable()

    def _end_of_micro_batch(
        self, starts: Mapping[str, StreamOffset], pinned: Mapping[str, StreamOffset], amount: Amount
    ) -> dict[str, StreamOffset]:
        """The end of the next micro-batch: up to the limit, and never past ends fixed before."""
        reach = {name: stream_offset for name, stream_offset in starts.items() if name in pinned}
        ends = admit(reach, amount, self._watch.advance)
        for name, stream_offset in ends.items():
            end = pinned[name]
            if stream_offset.offset > end.offset:
                ends[name] = end if end.offset > starts[name].offset else starts[name]
        return {**starts, **ends}

    @brief
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Fix the ends: a query with `availableNow` reads nothing that comes later."""
        logs = self._watch.logs()
        self._ends = {name: self._watch.end_of(name, log) for name, log in logs.items()}

    @brief
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The tasks for the records from `start` to `end`.

        Raises:
            OffsetOutOfRangeError: records are gone, and `failOnDataLoss` is true.
            OSError: a log cannot be read.
        """
        watch = self._watch
        logs = watch.list_anew()
        starts = stream_offsets_of(start)
        ranges = {}
        for name, stream_offset in stream_offsets_of(end).items():
            first = starts.get(name)
            if first is None or first.has_other_topic_id(stream_offset):  # the topic is new
                first = watch.start_of(logs[name])
            if first.offset < stream_offset.offset:
                first = replace(first, topic_id=stream_offset.topic_id)
                # Raises, or moves to the start of the log, if records are gone.
                ranges[name] = (watch.checked(name, first).offset, stream_offset.offset)
        tasks = make_plan(logs.values(), self._options, ranges)
        return [InputPartition(task) for task in tasks]

    def commit(self, end: dict[str, Any]) -> None:
        """Do nothing: reading changes no log."""

    def stop(self) -> None:
        """Do nothing: no file stays open between calls."""


class KsegDataSource(DataSource):
    """`spark.read.format("kseg")`: records of Kafka log segments as rows."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        """Check Spark itself; the next call decides which options there are.

        Raises:
            MissingExtraError: Spark is too old.
        """
        check_pyspark()
        super().__init__(options)

    @classmethod
    def name(cls) -> str:
        """The name for `format`."""
        return "kseg"

    @brief
    def schema(self) -> str:
        """The columns where the query brings no schema of its own.

        Raises:
            ValueError: an option is unknown or out of its domain.
            FileNotFoundError: a path of this machine is missing.
        """
        options = parse_options(self.options)
        check_paths(options)
        return ddl(options, table_comment(self.options))

    def _options_of_schema(self, schema: StructType) -> SourceOptions:
        """The options, or those in the comments of a table's columns."""
        comments = [field.metadata.get("comment") for field in schema.fields]
        return parse_options(with_comments(self.options, comments))

    @brief
    def reader(self, schema: StructType) -> DataSourceReader:
        """A reader of the schema's columns.

        Raises:
            ValueError: the schema has a column that kseg does not, or of another type; or an option
                is unknown or out of its domain.
        """
        options = self._options_of_schema(schema)
        options.check_batch()
        return RecordReader(options, project(schema, options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """A reader of present and future records.

        If the schema has a column that kseg does not have, or of another type, or an option has no
        meaning for a stream, every call of the reader raises ValueError.
        """
        try:
            options = self._options_of_schema(schema)
            options.check_stream()
            projection = project(schema, options)
        except ValueError as error:
            return RefusedStream(error)
        return stream_reader(options, projection)

    @brief
    def writer(self, schema: StructType, overwrite: bool) -> SinkWriter:
        """A writer of a DataFrame's rows.

        Raises:
            ValueError: a column or an option is unknown, or out of its domain.
        """
        from kseg.spark.sink import writer_of

        return writer_of(self.options, schema, overwrite, "mode('append')")

    @brief
    def streamWriter(self, schema: StructType, overwrite: bool) -> SinkWriter:  # noqa: N802
        """A writer of a stream's rows.

        Raises:
            ValueError: a column or an option is unknown, or out of its domain.
        """
        from kseg.spark.sink import writer_of

        return writer_of(self.options, schema, overwrite, "outputMode('append')")


class RecordReader(_TaskReader, DataSourceReader):
    """Plans on the driver, reads in the workers."""

    @brief
    def partitions(self) -> list[InputPartition]:
        """One partition for each task of the plan.

        Raises:
            NotALogError: the paths hold no segment.
            OSError: a path cannot be read.
        """
        logs = list_logs(self._options)
        tasks = make_plan(logs, self._options)
        _LOGGER.info(plan_line(logs, tasks))
        return [InputPartition(task) for task in tasks]
