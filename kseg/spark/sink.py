"""A write of the sink: tasks stage whole segments, the commit makes them part of the logs, once.

`kseg.spark.staging` has the options, and the work of a task.

Everything lies in `<data-dir>.kseg-sink/`, beside the data directory and never in it:

    jobs/<job>/<task>-<attempt>/<topic>-<partition>/   segments of one attempt
    commits/<id>.intent.json                           the segments to adopt, in order
    commits/<id>.json                                  they are adopted

    intent, lasting     from here on the write will happen
    adopt               partition by partition; a staged segment moves into its log
    record, lasting     from here on it has happened
    clean mark          as it was before; then the staged files and the intent are removed, and the
                        staged files of killed jobs: those that have written nothing for a week

Before the intent a write changes no log. If a driver dies after the intent, the next commit
completes that write first. A commit whose record is there changes nothing.

Tasks stage whole segments; the driver's commit moves them into the logs. Spark may make the writers
in any process, several times, and pickles them, so they hold options and names only. The writer
makes the name of its job. A micro-batch's name comes with its commit.

Source: `pyspark.sql.datasource`.
"""

from __future__ import annotations

import json
import math
import os
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from kseg.documents import frozen_dataclass
from kseg.errors import AppendError
from kseg.files import atomic, io, lock, ownership
from kseg.log import data_directory
from kseg.log.adopt import StagedSegment, adopt, check_adoptable
from kseg.log.config import LogConfig
from kseg.log.directory import LogDirectory
from kseg.log.log import Log
from kseg.spark.plan import local_path
from kseg.spark.schema import COLUMNS
from kseg.spark.staging import SinkOptions, StagedTask, parse_sink_options, stage

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


def check_schema(schema: StructType, options: SinkOptions) -> None:
    """Make sure that rows of a schema can be written.

    Columns of `format("kseg")` that mean nothing for a new record are ignored.

    Raises:
        ValueError: there is no column value, or a column is unknown or of another type.
    """
    fields = {field.name.lower(): field.dataType.simpleString() for field in schema.fields}
    for name, kind in fields.items():
        if name not in _TYPES and name not in COLUMNS:
            raise ValueError(f"kseg: column {name!r} is not a part of a record: select without it")
        if kind not in _TYPES.get(name, (kind,)):
            types = " or ".join(_TYPES[name])
            raise ValueError(f"kseg: column {name!r} is {kind}, not {types}")
    if "value" not in fields:
        raise ValueError("kseg: a record needs the column value")
    if options.topic is None and "topic" not in fields:
        raise ValueError("kseg: the column topic is missing: set the option topic")
    if options.keeps_offsets and "offset" not in fields:
        raise ValueError("kseg: offsets=preserve needs the column offset")


def _job_of(tasks: list[StagedTask]) -> str | None:
    """The name of the job that the tasks used, which a stream's committer does not know.

    It is in the paths of their segments; None if they wrote none.
    """
    for task in tasks:
        for segments in task.partitions.values():
            return Path(segments[0].directory).parent.parent.name
    return None


class SinkWriter(DataSourceArrowWriter, DataSourceStreamArrowWriter):
    """Writes a DataFrame or the micro-batches of a stream: each becomes visible once, whole."""

    def __init__(self, options: SinkOptions) -> None:
        """Name the job; nothing is written."""
        self._options: Final = options
        self._job: Final = uuid.uuid4().hex

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedTask:
        """Stage the rows of a task."""
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        number = context.partitionId()
        paths = SinkPaths.of(self._options)
        ownership.check_safe(paths.root)
        # Unlike the attempt's number, this id changes when a whole stage runs again.
        place = paths.attempt(self._job, number, context.taskAttemptId())
        return stage(iterator, place, number, self._options)

    def commit(
        self,
        messages: list[WriterCommitMessage | None],
        batchId: int | None = None,  # noqa: N803 - Spark's name
    ) -> None:
        """Move the staged segments into the logs, unless this write is there already."""
        if batchId is None:
            name = self._options.job_id or self._job
        else:
            name = f"{query_of(self._options)}-batch-{batchId}"
        tasks = [message for message in messages if isinstance(message, StagedTask)]
        commit(tasks, _job_of(tasks) or self._job, name, self._options)

    def abort(
        self,
        messages: list[WriterCommitMessage | None],
        batchId: int | None = None,  # noqa: N803 - Spark's name
    ) -> None:
        """Remove the staged segments."""
        tasks = [message for message in messages if isinstance(message, StagedTask)]
        abort(_job_of(tasks) or self._job, self._options)


def query_of(options: SinkOptions) -> str:
    """The name of a stream's query, the same after each restart.

    Raises:
        ValueError: neither an option nor a checkpoint names it.
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


def writer_of(
    options: Mapping[str, str], schema: StructType, overwrite: bool, append: str
) -> SinkWriter:
    """A writer of rows.

    Args:
        options: the options as Spark passes them.
        schema: the schema of the rows.
        overwrite: whether Spark asks for another mode than append.
        append: the call that asks for append, for the error.

    Raises:
        ValueError: an unknown option or column, or another mode than append.
    """
    if overwrite:
        raise ValueError(f"kseg: a log is appended to: use {append}")
    parsed = parse_sink_options(options)
    check_schema(schema, parsed)
    return SinkWriter(parsed)


_VERSION: Final = 1
_INTENT: Final = ".intent.json"
#: A job that has not written for so long was killed: its staged files are removed.
_ABANDONED_S: Final = 7 * 24 * 3600
#: The records of a stream's commits that are kept; Spark repeats only the last micro-batch.
_RECORDS_KEPT: Final = 100


@frozen_dataclass
class SinkPaths:
    """The directories of a sink beside the data directory."""

    data: Path

    @classmethod
    def of(cls, options: SinkOptions) -> SinkPaths:
        """The directories for the data directory of some options."""
        return cls(Path(local_path(options.path)).absolute())

    @property
    def root(self) -> Path:
        """The sibling of the data directory."""
        return self.data.with_name(f"{self.data.name}.kseg-sink")

    @property
    def commits(self) -> Path:
        """Intents and records."""
        return self.root / "commits"

    def job(self, job: str) -> Path:
        """The staged files of a job."""
        return self.root / "jobs" / job

    def attempt(self, job: str, task: int, attempt: int) -> Path:
        """The staged files of one attempt of a task."""
        return self.job(job) / f"{task}-{attempt}"

    def record(self, commit: str) -> Path:
        """The record that a commit has happened."""
        return self.commits / f"{commit}.json"

    def intent(self, commit: str) -> Path:
        """The record that a commit will happen."""
        return self.commits / f"{commit}{_INTENT}"


def commit(tasks: Iterable[StagedTask], job: str, name: str, options: SinkOptions) -> bool:
    """Make the segments that a job staged part of the logs.

    Args:
        tasks: the results of its tasks.
        job: the name of the job under which they staged the segments.
        name: the name of the commit; the same name again changes nothing.
        options: the options of the sink.

    Returns:
        True if the commit happened now; False if it had happened before.

    Raises:
        AppendError: offsets to be kept overlap, or are before a log's end; or the leader epoch is
            older than a log's latest; or a topic has another id; or a log is on another file
            system. Nothing has changed.
        UncleanShutdownError: a log was not closed in good order.
        LogLockedError: another process holds the data directory.
        PermissionError: this process cannot make files with the owner of a log; nothing has
            changed.
        OSError: the disk refuses; another call with the same name goes on from there.
    """
    paths, tasks = SinkPaths.of(options), tuple(tasks)
    for topic, partition in sorted({place for task in tasks for place in task.partitions}):
        io.check_new_files(paths.data / f"{topic}-{partition}")
    ownership.check_safe(paths.root)
    for directory in (paths.commits, paths.data):
        io.make_directories(directory)
    with lock.acquire(paths.data):
        done = _commit(paths, tasks, job, name, options)
        # An intent explains a missing clean mark to later commits, so it is removed only after the
        # mark was restored.
        for path in _intents(paths):
            _clear(paths, path)
        _sweep_abandoned(paths, time.time() - _ABANDONED_S)
    if not done:
        sweep(job, options)
    return done


def _commit(
    paths: SinkPaths, tasks: Iterable[StagedTask], job: str, name: str, options: SinkOptions
) -> bool:
    """See `commit`; the data directory is locked.

    The intent is durable before a segment moves, and the record is written after the last segment:
    a commit that is interrupted in between is finished by the next one.
    """
    entered, clean = data_directory.enter(paths.data), False
    try:
        _finish_begun(paths)
        done = not paths.record(name).exists()
        if done:
            intent = _intent(tasks, job, options)
            _check(paths, intent)
            atomic.replace_file(paths.intent(name), _dump(intent))
            _finish(paths, name, intent)
        clean = True
    except AppendError:
        clean = True  # refused, with nothing changed
        raise
    finally:
        entered.leave(clean=clean)
    return done


def abort(job: str, options: SinkOptions) -> None:
    """Remove the staged files of a job, unless their adoption has begun.

    Raises:
        OSError: something cannot be removed.
    """
    paths = SinkPaths.of(options)
    begun = {_load(path)["job"] for path in _intents(paths)}
    if job not in begun:
        sweep(job, options)


def sweep(job: str, options: SinkOptions) -> None:
    """Remove the staged files of a job.

    Raises:
        OSError: something cannot be removed.
    """
    _remove(SinkPaths.of(options).job(job))


def _sweep_abandoned(paths: SinkPaths, since: float) -> None:
    """Remove the staged files of killed jobs: trees with no write after `since`."""
    for job in sorted(paths.root.glob("jobs/*")):
        with suppress(FileNotFoundError):  # the job is alive: it has just removed something
            if _last_write_time(job) < since:
                _remove(job)


def _last_write_time(directory: Path) -> float:
    """The time of the last write in a tree, in seconds; infinity if it is not a tree."""
    times = (
        os.lstat(os.path.join(place, name)).st_mtime
        for place, _directories, files in os.walk(directory)
        for name in (".", *files)
    )
    return max(times, default=math.inf)


def _finish_begun(paths: SinkPaths) -> None:
    """Complete the commits of drivers that died, whose data directory lacks the clean mark."""
    begun = _intents(paths)
    if begun:
        LogDirectory.open(paths.data, mode="append", recover=True).close()
    for path in begun:
        if not paths.record(_name_of(path)).exists():
            _finish(paths, _name_of(path), _load(path))


def _intents(paths: SinkPaths) -> list[Path]:
    """The files of commits that have begun and were not cleared."""
    return sorted(paths.commits.glob(f"*{_INTENT}"))


def _name_of(intent: Path) -> str:
    return intent.name.removesuffix(_INTENT)


def _check(paths: SinkPaths, intent: dict[str, Any]) -> None:
    """Refuse a commit that could not be completed, before it begins."""
    keep, epoch = intent["keep_offsets"], intent["leader_epoch"]
    for _entry, directory, segments, topic_id in _logs_of(paths, intent):
        end = 0
        _check_movable(paths, directory)
        if directory.is_dir():
            with Log.open(directory) as log:
                end = log.log_end_offset
        check_adoptable(directory, end, segments, keep, epoch, topic_id)


def _check_movable(paths: SinkPaths, directory: Path) -> None:
    """Refuse a log on another file system, to which no rename can move a segment."""
    existing = directory if directory.is_dir() else paths.data
    if _device(paths.root) != _device(existing):
        raise AppendError(
            f"this is on another file system than {paths.root}, where segments are staged; "
            "a data directory below the mount point has both on one",
            path=existing,
        )


def _device(path: Path) -> int:
    return os.stat(path).st_dev


def _logs_of(
    paths: SinkPaths, intent: dict[str, Any]
) -> Iterator[tuple[dict[str, Any], Path, list[StagedSegment], UUID | None]]:
    """Each partition of an intent: its document, its directory, its segments, its topic id."""
    for entry in intent["partitions"]:
        id_text = entry.get("topic_id")
        directory = paths.data / f"{entry['topic']}-{entry['partition']}"
        segments = [StagedSegment(**fields) for fields in entry["segments"]]
        yield entry, directory, segments, None if id_text is None else UUID(id_text)


def _intent(tasks: Iterable[StagedTask], job: str, options: SinkOptions) -> dict[str, Any]:
    """The document of an intent: which segments become part of which log, in order."""
    logs: dict[tuple[str, int], list[StagedSegment]] = {}
    for task in sorted(tasks, key=lambda item: item.number):
        for partition, staged in task.partitions.items():
            logs.setdefault(partition, []).extend(staged)
    for segments in logs.values():
        if options.keeps_offsets:
            segments.sort(key=lambda item: item.first_offset)
    return {
        "version": _VERSION,
        "job": job,
        "keep_offsets": options.keeps_offsets,
        "leader_epoch": options.leader_epoch,
        "segment_bytes": options.segment_bytes,
        "partitions": [
            {
                "topic": topic,
                "partition": partition,
                "topic_id": str(options.topic_ids[topic]) if topic in options.topic_ids else None,
                "segments": [asdict(item) for item in segments],
            }
            for (topic, partition), segments in sorted(logs.items())
        ],
    }


def _finish(paths: SinkPaths, name: str, intent: dict[str, Any]) -> None:
    """Adopt the segments that are still staged, and write the record."""
    config = LogConfig(segment_bytes=intent["segment_bytes"])
    rows = []
    for entry, directory, segments, topic_id in _logs_of(paths, intent):
        done = adopt(
            directory,
            segments,
            keep_offsets=intent["keep_offsets"],
            leader_epoch=intent["leader_epoch"],
            topic_id=topic_id,
            config=config,
        )
        rows.append(
            {
                "topic": entry["topic"],
                "partition": entry["partition"],
                "records": sum(segment.records for segment in segments),
                "bytes": sum(segment.bytes for segment in segments),
                "segments": len(segments),
                "log_end_offset": done.log_end_offset,
            }
        )
    record = {"version": _VERSION, "id": name, "job": intent["job"], "partitions": rows}
    atomic.replace_file(paths.record(name), _dump(record))


def _clear(paths: SinkPaths, intent: Path) -> None:
    """Remove the files that the commit no longer needs, the intent last."""
    _remove(paths.job(_load(intent)["job"]))
    for old in _outdated_records(paths, _name_of(intent)):
        io.unlink(old)
    io.unlink(intent)


def _outdated_records(paths: SinkPaths, name: str) -> Iterator[Path]:
    """Records of a stream's micro-batches that Spark will not repeat."""
    query, dash, number = name.rpartition("-batch-")
    if not dash or not number.isdecimal():
        return
    for path in paths.commits.glob(f"{query}-batch-*.json"):
        old = path.stem.rpartition("-batch-")[2]
        if old.isdecimal() and int(old) + _RECORDS_KEPT < int(number):
            yield path


def _dump(document: dict[str, Any]) -> bytes:
    return json.dumps(document, indent=1).encode()


def _load(path: Path) -> dict[str, Any]:
    """The document of an intent or a record; raises ValueError for one of another version."""
    document: dict[str, Any] = json.loads(path.read_bytes())
    if document.get("version") != _VERSION:
        raise ValueError(f"kseg: {path} has version {document.get('version')!r}, not {_VERSION}")
    return document


def _remove(directory: Path) -> None:
    """Remove a tree of our own; no link is followed."""
    if directory.is_dir() and not directory.is_symlink():
        io.remove_tree(directory)
