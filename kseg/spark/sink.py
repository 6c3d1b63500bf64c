"""The sink behind `write.format("kseg")` and `writeStream.format("kseg")`.

Tasks stage whole segments; the driver's commit moves them into the logs. Spark may make these
objects in any process, several times, and pickles them, so they hold options and names only. The
writer makes the name of its job. A micro-batch's name comes with its commit.

Source: `pyspark.sql.datasource`.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from kseg.files import ownership
from kseg.spark.commits import SinkOptions, parse_sink_options
from kseg.spark.plan import local_path
from kseg.spark.schema import COLUMNS

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from kseg.spark.commits import StagedTask

_TYPES: Final = {
    "key": ("binary", "string"),
    "value": ("binary", "string"),
    "headers": ("array<struct<key:string,value:binary>>", "map<string,binary>"),
    "timestamp": ("timestamp", "timestamp_ntz", "bigint"),
    "timestampms": ("bigint",),
    "topic": ("string",),
    "partition": ("int", "bigint", "smallint", "tinyint"),
    "offset": ("bigint", "int"),
}


@dataclass(frozen=True)
class StagedMessage(WriterCommitMessage):
    """The message of a task to the commit."""

    task: StagedTask


def check_schema(schema: StructType, options: SinkOptions) -> None:
    """Make sure that rows of a schema can be written.

    Columns of `format("kseg")` that mean nothing for a new record are ignored.

    Raises:
        ValueError: no column value, one that is unknown, or one of another type.
    """
    fields = {field.name.lower(): field.dataType.simpleString() for field in schema.fields}
    for name, kind in fields.items():
        if name not in _TYPES and name not in COLUMNS:
            raise ValueError(f"kseg: column {name!r} is no part of a record: select without it")
        if kind not in _TYPES.get(name, (kind,)):
            wanted = " or ".join(_TYPES[name])
            raise ValueError(f"kseg: column {name!r} is {kind}, not {wanted}")
    if "value" not in fields:
        raise ValueError("kseg: a record needs the column value")
    if options.topic is None and "topic" not in fields:
        raise ValueError("kseg: there is no column topic: set the option topic")
    if options.keeps_offsets and "offset" not in fields:
        raise ValueError("kseg: offsets=preserve needs the column offset")


class _Staging:
    """The part that jobs and micro-batches share."""

    def __init__(self, options: SinkOptions) -> None:
        self._options: Final = options
        self._job: Final = uuid.uuid4().hex

    def _stage(self, batches: Iterator[pa.RecordBatch]) -> StagedMessage:
        from pyspark import TaskContext

        from kseg.spark.commits import SinkPaths, stage

        context = TaskContext.get()
        assert context is not None
        number = context.partitionId()
        # Unlike the attempt's number, this changes when a whole stage runs again.
        paths = SinkPaths.of(self._options)
        ownership.check_safe(paths.root)
        place = paths.attempt(self._job, number, context.taskAttemptId())
        return StagedMessage(stage(batches, place, number, self._options))

    def _commit(self, messages: list[WriterCommitMessage | None], name: str) -> None:
        from kseg.spark.commits import commit

        tasks = [message.task for message in messages if isinstance(message, StagedMessage)]
        job = _job_of(tasks) or self._job
        commit(tasks, job, name, self._options)

    def _abort(self, messages: list[WriterCommitMessage | None]) -> None:
        from kseg.spark.commits import abort

        tasks = [message.task for message in messages if isinstance(message, StagedMessage)]
        abort(_job_of(tasks) or self._job, self._options)


def _job_of(tasks: list[StagedTask]) -> str | None:
    """The job whose name the tasks used; a stream's committer does not know it."""
    for task in tasks:
        for partition in task.partitions:
            for segment in partition.segments:
                return Path(segment.directory).parent.parent.name
    return None


class SinkWriter(_Staging, DataSourceArrowWriter):
    """Writes a DataFrame: all of it becomes visible, or nothing."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Stage the rows of a task."""
        return self._stage(iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Move what was staged into the logs."""
        self._commit(messages, self._options.job_id or self._job)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Forget what was staged."""
        self._abort(messages)


class StreamSinkWriter(_Staging, DataSourceStreamArrowWriter):
    """Writes micro-batches: each becomes visible once, however often Spark repeats it."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Stage the rows of a task."""
        return self._stage(iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Move what was staged into the logs, unless this micro-batch is there already."""
        self._commit(messages, f"{query_of(self._options)}-batch-{batchId}")

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Forget what was staged."""
        self._abort(messages)


def query_of(options: SinkOptions) -> str:
    """The name of a stream's query, the same after each restart.

    Raises:
        ValueError: nothing says it.
    """
    if options.query_id is not None:
        return options.query_id
    where = options.checkpoint
    if where is not None:
        try:
            metadata = Path(local_path(where), "metadata")
            return str(uuid.UUID(json.loads(metadata.read_text())["id"]))
        except (OSError, ValueError, KeyError, TypeError):
            pass  # not a local folder, or not Spark's
    raise ValueError(
        "kseg: set the option queryId, a name that stays the same when the query starts again"
    )


def writer_of(options: Mapping[str, str], schema: StructType, overwrite: bool) -> SinkWriter:
    """A writer of a DataFrame.

    Raises:
        ValueError: an unknown option or column, or the mode `overwrite`.
    """
    if overwrite:
        raise ValueError("kseg: a log is appended to: use mode('append')")
    parsed = parse_sink_options(options)
    check_schema(schema, parsed)
    return SinkWriter(parsed)


def stream_writer_of(
    options: Mapping[str, str], schema: StructType, overwrite: bool
) -> StreamSinkWriter:
    """A writer of a stream's micro-batches.

    Raises:
        ValueError: an unknown option or column, or another output mode than append.
    """
    if overwrite:
        raise ValueError("kseg: a log is appended to: use outputMode('append')")
    parsed = parse_sink_options(options)
    check_schema(schema, parsed)
    return StreamSinkWriter(parsed)
