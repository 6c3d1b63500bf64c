"""The second half of a write: staged segments become part of the logs, once.

Everything lies in `<data-dir>.kseg-sink/`, beside the data directory and never in it:

    jobs/<job>/<task>-<attempt>/<topic>-<partition>/   what an attempt staged
    commits/<id>.intent.json                           what is to be adopted, in which order
    commits/<id>.json                                  it has been

    intent, lasting     from here on the write will happen
    adopt               partition by partition; a staged segment moves into its log
    record, lasting     from here on it has happened
    clean mark          as it was before; then what is staged goes, and the intent; and what jobs
                        have staged that have not written for a week: they were killed

Before the intent a write changes no log. If a driver dies after the intent, the next commit
completes that write first. A commit whose record is there changes nothing. Needs no pyspark.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final
from uuid import UUID

from kseg.errors import AppendError
from kseg.files import atomic, io, lock, ownership
from kseg.log import data_directory
from kseg.log.adopt import StagedSegment, adopt, check_adoptable
from kseg.log.config import LogConfig
from kseg.log.directory import LogDirectory
from kseg.log.log import Log
from kseg.spark.listing import local_path
from kseg.spark.sink_options import SinkOptions
from kseg.spark.staging import StagedTask

_VERSION: Final = 1
_INTENT: Final = ".intent.json"
#: No live job goes so long without writing: its staged files are left over.
_ABANDONED_S: Final = 7 * 24 * 3600
#: Of a stream, Spark repeats the last micro-batch at most.
_RECORDS_KEPT: Final = 100


@dataclass(frozen=True, slots=True)
class SinkPaths:
    """The directories of a sink beside the data directory."""

    data: Path

    @classmethod
    def of(cls, options: SinkOptions) -> SinkPaths:
        """Beside the data directory of some options."""
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
        """What a job stages."""
        return self.root / "jobs" / job

    def attempt(self, job: str, task: int, attempt: int) -> Path:
        """What one attempt of a task stages."""
        return self.job(job) / f"{task}-{attempt}"

    def record(self, commit: str) -> Path:
        """That a commit has happened."""
        return self.commits / f"{commit}.json"

    def intent(self, commit: str) -> Path:
        """That it will."""
        return self.commits / f"{commit}{_INTENT}"


def commit(tasks: Iterable[StagedTask], job: str, name: str, options: SinkOptions) -> bool:
    """Make the segments that a job staged part of the logs.

    Args:
        tasks: what its tasks wrote.
        job: under which they staged it.
        name: of the commit; the same name again changes nothing.
        options: of the sink.

    Returns:
        Whether something has happened now; False where it had before.

    Raises:
        AppendError: offsets to be kept overlap, or lie before a log's end; or the leader epoch is
            older than a log's latest; or a topic has another id; or a log is on another file
            system. Nothing has changed.
        UncleanShutdownError: a log was not closed in good order.
        LogLockedError: another process holds the data directory.
        PermissionError: this process cannot make files like those of a log; nothing has changed.
        OSError: the disk refuses; the same commit again goes on.
    """
    paths, tasks = SinkPaths.of(options), tuple(tasks)
    for each in sorted({(p.topic, p.partition) for task in tasks for p in task.partitions}):
        io.check_new_files(paths.data / f"{each[0]}-{each[1]}")
    ownership.check_safe(paths.root)
    for directory in (paths.commits, paths.data):
        io.make_directories(directory)
    with lock.acquire(paths.data):
        done = _commit(paths, tasks, job, name, options)
        # An intent that is still there says that a clean mark may be missing for our sake; so it
        # goes when the mark is back.
        for path in _intents(paths):
            _clear(paths, path)
        _sweep_abandoned(paths, time.time() - _ABANDONED_S)
    if not done:
        sweep(job, options)
    return done


def _commit(
    paths: SinkPaths, tasks: Iterable[StagedTask], job: str, name: str, options: SinkOptions
) -> bool:
    home, clean = data_directory.enter(paths.data), False
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
        home.leave(clean=clean)
    return done


def abort(job: str, options: SinkOptions) -> None:
    """Forget what a job staged, unless it has begun to be adopted.

    Raises:
        OSError: something cannot be removed.
    """
    paths = SinkPaths.of(options)
    begun = {_load(path)["job"] for path in _intents(paths)}
    if job not in begun:
        sweep(job, options)


def sweep(job: str, options: SinkOptions) -> None:
    """Remove what a job staged.

    Raises:
        OSError: something cannot be removed.
    """
    _remove(SinkPaths.of(options).job(job))


def _sweep_abandoned(paths: SinkPaths, since: float) -> None:
    """Remove what killed jobs staged: trees with no write after `since`."""
    for job in sorted(paths.root.glob("jobs/*")):
        with suppress(FileNotFoundError):  # it lives: it has just removed something itself
            if _newest(job) < since:
                _remove(job)


def _newest(directory: Path) -> float:
    """When something in a tree was last written, in seconds; infinity if it is no tree."""
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
    return sorted(paths.commits.glob(f"*{_INTENT}"))


def _name_of(intent: Path) -> str:
    return intent.name.removesuffix(_INTENT)


def _check(paths: SinkPaths, intent: dict[str, Any]) -> None:
    """Refuse a commit that could not be completed, before it begins."""
    for each in intent["partitions"]:
        directory = _directory(paths, each)
        end = 0
        _check_movable(paths, directory)
        if directory.is_dir():
            with Log.open(directory) as log:
                end = log.log_end_offset
        keep, epoch = intent["keep_offsets"], intent["leader_epoch"]
        check_adoptable(directory, end, _segments(each), keep, epoch, _topic_id(each))


def _check_movable(paths: SinkPaths, directory: Path) -> None:
    """Refuse a log on another file system, to which no rename can move a segment."""
    home = directory if directory.is_dir() else paths.data
    if _device(paths.root) != _device(home):
        raise AppendError(
            f"this is on another file system than {paths.root}, where segments are staged; "
            "a data directory below the mount point has both on one",
            path=home,
        )


def _device(path: Path) -> int:
    return os.stat(path).st_dev


def _directory(paths: SinkPaths, partition: dict[str, Any]) -> Path:
    return paths.data / f"{partition['topic']}-{partition['partition']}"


def _topic_id(partition: dict[str, Any]) -> UUID | None:
    known = partition.get("topic_id")
    return None if known is None else UUID(known)


def _segments(partition: dict[str, Any]) -> list[StagedSegment]:
    return [StagedSegment(**one) for one in partition["segments"]]


def _intent(tasks: Iterable[StagedTask], job: str, options: SinkOptions) -> dict[str, Any]:
    """Which segments become part of which log, in order."""
    logs: dict[tuple[str, int], list[StagedSegment]] = {}
    for task in sorted(tasks, key=lambda one: one.number):
        for each in task.partitions:
            logs.setdefault((each.topic, each.partition), []).extend(each.segments)
    for segments in logs.values():
        if options.keeps_offsets:
            segments.sort(key=lambda one: one.first_offset)
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
                "topic_id": None if (known := options.topic_id(topic)) is None else str(known),
                "segments": [asdict(one) for one in segments],
            }
            for (topic, partition), segments in sorted(logs.items())
        ],
    }


def _finish(paths: SinkPaths, name: str, intent: dict[str, Any]) -> None:
    """Adopt what is still staged, and write the record."""
    config = LogConfig(segment_bytes=intent["segment_bytes"])
    rows = []
    for each in intent["partitions"]:
        segments = _segments(each)
        done = adopt(
            _directory(paths, each),
            segments,
            keep_offsets=intent["keep_offsets"],
            leader_epoch=intent["leader_epoch"],
            topic_id=_topic_id(each),
            config=config,
        )
        rows.append(
            {
                "topic": each["topic"],
                "partition": each["partition"],
                "records": sum(one.records for one in segments),
                "bytes": sum(one.bytes for one in segments),
                "segments": len(segments),
                "log_end_offset": done.log_end_offset,
            }
        )
    record = {"version": _VERSION, "id": name, "job": intent["job"], "partitions": rows}
    atomic.replace_file(paths.record(name), _dump(record))


def _clear(paths: SinkPaths, intent: Path) -> None:
    """Remove what the commit no longer needs, the intent last."""
    _remove(paths.job(_load(intent)["job"]))
    for old in _outdated(paths, _name_of(intent)):
        io.unlink(old)
    io.unlink(intent)


def _outdated(paths: SinkPaths, name: str) -> Iterator[Path]:
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
    document: dict[str, Any] = json.loads(path.read_bytes())
    if document.get("version") != _VERSION:
        raise ValueError(f"kseg: {path} has version {document.get('version')!r}, not {_VERSION}")
    return document


def _remove(directory: Path) -> None:
    """Remove a tree of our own; no link is followed."""
    if directory.is_dir() and not directory.is_symlink():
        io.remove_tree(directory)


__all__ = ["SinkPaths", "abort", "commit", "sweep"]
