"""From the paths of a `load` to the segments to plan for.

Spark passes paths on as they are: it expands no glob and checks nothing. A path may be a data
directory, a partition directory, a segment or a glob over them, on this machine or in a store (see
`remote`). Each directory is listed once, and no log is opened. An error is one line that names the
path. Nothing here imports pyspark.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import unquote, urlsplit

from kseg.errors import KsegError, NotALogError
from kseg.files import names
from kseg.files.checkpoints import TopicPartition, read_offset_checkpoint
from kseg.spark.options import SourceOptions
from kseg.spark.remote import Found, find_logs, is_remote, place


@dataclass(frozen=True, slots=True)
class SegmentEntry:
    """One segment as a listing showed it.

    Attributes:
        path: its log file, absolute.
        base_offset: from the name; None for a copy whose name carries none.
        next_base_offset: of the segment after it in its directory, or None.
        size: bytes of the log file at the time of listing; nothing later is read.
        index: its offset index, if there is one.
        time_index: its time index, if there is one.
    """

    path: str
    base_offset: int | None
    next_base_offset: int | None
    size: int
    index: str | None = None
    time_index: str | None = None

    @property
    def is_last(self) -> bool:
        """Whether a broker may still be writing it, so that a torn tail is no damage."""
        return self.next_base_offset is None


@dataclass(frozen=True, slots=True)
class LogEntry:
    """The segments of one partition directory, by base offset.

    `topic` and `partition` come from the directory's name; None where the name has neither.
    `log_start_offset` is where records begin: the first segment's base, or the offset in the
    broker's checkpoint. It is None for segments that were named one by one: each is read whole.
    `end_offset` is where reading ends, if that is before the log's end. `unreadable` says why the
    directory cannot be read, for a query that takes damage as rows.
    """

    directory: str
    topic: str | None
    partition: int | None
    segments: tuple[SegmentEntry, ...]
    log_start_offset: int | None = None
    end_offset: int | None = None
    unreadable: str | None = None


def local_path(path: str | os.PathLike[str]) -> str:
    """A path of this machine: a plain one as it is spelled, or that of a `file:` URL.

    Raises:
        ValueError: it is the URL of something in a store.
    """
    text = os.fspath(path)
    if is_remote(text):
        raise ValueError(
            f"kseg: {text}: a local path is needed here; "
            "from stores spark.read, export, stats and compaction read, and nothing writes to them"
        )
    parts = urlsplit(text)
    return unquote(parts.path) if parts.scheme == "file" else text


def local_paths(
    paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
) -> list[str]:
    """One path or several, each converted by `local_path`.

    Raises:
        ValueError: one is the URL of something in a store.
    """
    return list(map(local_path, [paths] if isinstance(paths, (str, os.PathLike)) else paths))


def list_logs(options: SourceOptions) -> tuple[LogEntry, ...]:
    """Every log that the options ask for, by topic, partition and directory.

    Logs of a data directory that wait for deletion, are being moved in, or are stray are left out,
    as their broker does. A path that names such a log gets it.

    Raises:
        ValueError: a path of another topic than those asked for, or a URL of no store.
        NotALogError: no segment is left; the message says why.
        OSError: a path is missing or cannot be listed.
    """
    logs: dict[str, LogEntry] = {}
    starts = _LogStarts()
    for found in _expand(options, starts):
        known = logs.get(found.directory)
        logs[found.directory] = found if known is None else _merge(known, found)
    chosen = [log for log in logs.values() if options.topics.wants_topic(log.topic)]
    if not chosen and logs:
        topics = ", ".join(sorted({log.topic or "(no name)" for log in logs.values()}))
        raise _nothing(options, f"no topic of {options.topics}; there is {topics}")
    wanted = [log for log in chosen if options.wants(log.topic, log.partition)]
    if not wanted and chosen:
        numbers = sorted({log.partition for log in chosen if log.partition is not None})
        raise _nothing(options, f"none of the partitions asked for; there are {numbers}")
    if not any(log.segments or log.unreadable for log in wanted):
        raise _nothing(options, "no segments: neither .log nor .kafka files")
    return tuple(sorted(wanted, key=_order))


def _order(log: LogEntry) -> tuple[str, int, str]:
    return (log.topic or "", -1 if log.partition is None else log.partition, log.directory)


def _nothing(options: SourceOptions, reason: str) -> NotALogError:
    return NotALogError(reason, path=", ".join(options.paths))


def _merge(one: LogEntry, other: LogEntry) -> LogEntry:
    """Join the logs of two paths to one directory: each segment counts once."""
    segments = {segment.path: segment for segment in (*one.segments, *other.segments)}
    whole = highest(one.log_start_offset, other.log_start_offset)
    ordered = tuple(sorted(segments.values(), key=_segment_order))
    return replace(one, segments=ordered, log_start_offset=whole)


def highest(one: int | None, other: int | None) -> int | None:
    """The larger of two bounds, None being none."""
    return other if one is None else one if other is None else max(one, other)


def _segment_order(segment: SegmentEntry) -> tuple[int, str]:
    return (-1 if segment.base_offset is None else segment.base_offset, segment.path)


def _expand(options: SourceOptions, starts: _LogStarts) -> Iterator[LogEntry]:
    """Resolve each path: files gathered by directory, directories listed."""
    files: dict[str, list[Path]] = {}
    spelled: set[str] = set()
    for given in options.paths:
        if is_remote(given):
            for remote in find_logs(given):
                log = starts.mark(_remote_log(remote)) if remote.chosen is None else _chosen(remote)
                yield _of_topic(log, options, not glob.has_magic(given))
            continue
        where = os.path.abspath(local_path(given))
        literal = os.path.lexists(where) or not glob.has_magic(where)
        found = [where] if literal else sorted(glob.glob(where, recursive=True))
        if not found:
            raise NotALogError("no path matches", path=given)
        for path in map(Path, found):
            directory = os.path.realpath(path if path.is_dir() else path.parent)
            if literal:
                spelled.add(directory)
            if path.is_dir():
                for log in _list_directory(path, literal, options):
                    yield starts.mark(_of_topic(log, options, log.directory in spelled))
            elif literal or _is_log(path):
                files.setdefault(directory, []).append(path)
    for directory, paths in files.items():
        yield _of_topic(_list_files(Path(directory), paths), options, directory in spelled)


def _of_topic(log: LogEntry, options: SourceOptions, spelled: bool) -> LogEntry:
    """Refuse a path to another topic than those that the options name."""
    choice = options.topics
    if spelled and choice.listed and log.topic is not None and log.topic not in choice.names:
        raise ValueError(f"kseg: {log.directory} is of topic {log.topic!r}, not of {choice}")
    return log


def _is_log(path: Path) -> bool:
    """Whether a path that a glob matched is a segment; other files are skipped."""
    try:
        name = names.parse_name(path.name)
    except NotALogError:
        return False
    return name is not None and name.kind in _LOG_KINDS and name.suffix is None


_LOG_KINDS = (names.FileKind.LOG, names.FileKind.KAFKA07)


def _list_directory(path: Path, literal: bool, options: SourceOptions) -> list[LogEntry]:
    """The directory itself if it is a partition's, else the partitions in it."""
    partition = names.list_partition(path)
    if partition.segments:
        return [_log(partition)]
    listing = names.list_data_directory(path)
    children = [
        child
        for child in (*listing.partitions, *listing.lost)
        if child.name is None or child.name.suffix is None
    ]
    skipped = list[names.Unreadable]() if options.permissive else None
    asked = [child for child in children if _wanted(child, options)]
    others = [child for child in children if child not in asked]
    readable = (
        *names.readable_partitions(asked, skipped),
        *names.readable_partitions(others, []),  # no option asks for them
    )
    logs = [_log(names.list_partition(child.path)) for child in readable]
    logs += map(_unreadable, skipped or ())
    if not logs and partition.name is not None:
        return [_log(partition)]
    if not logs and literal and not listing.files:
        names.classify_path(path)  # raises, and says best what was found instead
    return logs


def _wanted(child: names.PartitionDirectory, options: SourceOptions) -> bool:
    """Whether the options want a partition, as far as its name tells."""
    return child.name is None or options.wants(child.name.topic, child.name.partition)


def _unreadable(skipped: names.Unreadable) -> LogEntry:
    """An entry for a directory that cannot be read, with the file system's error."""
    directory = os.path.realpath(skipped.path.parent) + os.sep + skipped.path.name
    name = names.parse_partition_dir(skipped.path.name)
    return LogEntry(directory, name.topic, name.partition, (), unreadable=skipped.reason)


def _remote_log(remote: Found) -> LogEntry:
    """A log of a store, from one listing of it."""
    return _log(remote.files, str(remote.files.path), remote.sizes)


def _chosen(remote: Found) -> LogEntry:
    """Objects that were named one by one, completed from the objects beside them."""
    log = _remote_log(remote)
    chosen = [segment for segment in log.segments if segment.path in (remote.chosen or ())]
    if not chosen:
        raise NotALogError("a segment's .log was expected", path=", ".join(remote.chosen or ()))
    return replace(log, segments=tuple(chosen), log_start_offset=None)


def _log(
    partition: names.PartitionFiles,
    directory: str | None = None,
    sizes: Mapping[str, int] | None = None,
) -> LogEntry:
    """A log from a listing; looks up sizes that the listing lacks."""
    segments = partition.segments
    following: list[int | None] = [segment.base_offset for segment in segments]
    directory = directory or os.path.realpath(partition.path)
    return LogEntry(
        directory=directory,
        topic=partition.name.topic if partition.name else None,
        partition=partition.name.partition if partition.name else None,
        segments=tuple(
            _entry(directory, segment, after, sizes)
            for segment, after in zip(segments, [*following[1:], None], strict=False)
        ),
        log_start_offset=segments[0].base_offset if segments else None,
    )


def _entry(
    directory: str,
    segment: names.SegmentFiles,
    after: int | None,
    sizes: Mapping[str, int] | None,
) -> SegmentEntry:
    path = f"{directory}/{segment.log.name}"
    return SegmentEntry(
        path=path,
        base_offset=segment.base_offset,
        next_base_offset=after,
        size=os.stat(path).st_size if sizes is None else sizes[path],
        index=f"{directory}/{segment.index.name}" if segment.index else None,
        time_index=f"{directory}/{segment.time_index.name}" if segment.time_index else None,
    )


def _list_files(directory: Path, paths: list[Path]) -> LogEntry:
    """Segments that were named one by one, completed from their directory."""
    log = _log(names.list_partition(directory))
    beside = {os.path.basename(segment.path): segment for segment in log.segments}
    chosen = []
    for path in paths:
        segment = beside.get(path.name)
        chosen.append(segment if segment is not None else _alone(directory, path))
    segments = tuple(sorted(set(chosen), key=_segment_order))
    return replace(log, segments=segments, log_start_offset=None)


def _alone(directory: Path, path: Path) -> SegmentEntry:
    """A file of batches that is no segment of its directory, as a KRaft snapshot."""
    size = path.stat().st_size
    name = names.parse_name(path.name)
    if name is None or not name.kind.holds_batches:
        kind = name.kind.value if name is not None else "of another program"
        raise NotALogError(f"a segment's .log was expected; this is {kind}", path=path)
    return SegmentEntry(f"{directory}/{path.name}", None, None, size)


class _LogStarts:
    """The checkpoints of log start offsets, each read once."""

    def __init__(self) -> None:
        """Know none yet."""
        self._known: dict[str, Mapping[TopicPartition, int]] = {}

    def mark(self, log: LogEntry) -> LogEntry:
        """The log with its start, where a checkpoint beside it has one."""
        if log.topic is None or log.partition is None:
            return log
        data = os.path.dirname(log.directory)
        if data not in self._known:
            self._known[data] = _read_log_starts(data)
        start = self._known[data].get(TopicPartition(log.topic, log.partition))
        return (
            log
            if start is None
            else replace(log, log_start_offset=highest(log.log_start_offset, start))
        )


def _read_log_starts(data_directory: str) -> Mapping[TopicPartition, int]:
    """The log starts in a checkpoint; one that cannot be read has none, as in `kseg.Log`."""
    path = os.path.join(data_directory, names.FileKind.LOG_START.value)
    try:
        return read_offset_checkpoint(place(path)).offsets
    except (KsegError, OSError):
        return {}
