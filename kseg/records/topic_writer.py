"""`write_topic`: write records into the partitions of a topic that a stopped broker has."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from os import PathLike
from pathlib import Path
from typing import Any, Final

import numpy as np

from kseg._door import renamed
from kseg.change.retain import plan_retention
from kseg.commands import command_line
from kseg.constants import BATCH_BYTES, Int32s, Intps
from kseg.errors import KsegError, NotALogError
from kseg.files import metadata
from kseg.files.checkpoints import TopicPartition
from kseg.files.grammar import is_topic_name
from kseg.files.names import FileKind
from kseg.format.options import OptionsLike
from kseg.format.take import take_rows
from kseg.format.values import RecordColumns
from kseg.log.log import Log
from kseg.log.settings.cluster import Assigned, Cluster
from kseg.log.settings.joined import Settings, settings
from kseg.log.topic_policy import is_internal
from kseg.log.writer.append import AppendResult, merged, pieces_of
from kseg.records.partitioners import NO_PARTITION, key_column, partition_for
from kseg.stores.path import local_path_at

_RECORD_OVERHEAD: Final = 10
#: Retention that takes records within so short a time is worth a warning.
_SOON_MS: Final = 24 * 60 * 60 * 1000
#: Kafka's defaults, which count for the warning where no source has another value.
_USUAL: Final = {"cleanup.policy": "delete", "retention.ms": str(7 * 24 * 60 * 60 * 1000)}

_Path = str | PathLike[str]


@renamed(data_directories="paths")
def write_topic(
    source: Any,
    paths: _Path | Sequence[_Path],
    topic: str,
    *,
    key: str = "key",
    value: str = "value",
    timestamp: str = "timestamp",
    headers: str = "headers",
    partitioner: str = "murmur2",
    append: bool = False,
    options: OptionsLike | None = None,
    batch_bytes: int = BATCH_BYTES,
    metadata_directory: _Path | None = None,
    broker_config: _Path | None = None,
) -> dict[int, AppendResult]:
    """Write records into the partitions of a topic, as its producers would.

    The broker has made the topic, and is stopped: its data directories are locked meanwhile. The
    metadata log names the id of the topic, its partitions and their directories. A record with a
    key goes to the partition of the key; records without a key go round in batches. After an error
    the logs end where they ended before.

    Args:
        source: an Arrow table or reader, a frame of Polars or pandas, columns such as
            `{"value": ["text"]}`, a list of dicts, or pieces that kseg has read.
        paths: the data directories of the broker; all of them, if the topic is in several.
        topic: the name of the topic.
        key, value, timestamp, headers: the names of the columns; a missing column is null, or the
            time of the write. Other columns are left out. A name that you give must be there; and
            columns are refused if a field is missing whose name is nearly that of another column,
            or `value` beside others.
        partitioner: "murmur2" or "crc32", see `kseg.partition_for`.
        append: write behind the records that the topic has. False refuses a topic with records.
        options: of the batches, such as `BatchOptions(compression="zstd")`.
        batch_bytes: a batch closes before it grows larger, uncompressed; as a producer's
            `batch.size`.
        metadata_directory: the directory with `__cluster_metadata-0`, if it is elsewhere.
        broker_config: the broker's `server.properties`, for the settings of the topic.

    Returns:
        By partition, the result of its appends, for partitions that got records.

    Raises:
        KsegError: the metadata log does not have the topic, or a partition of it is not here; the
            message has the command that helps.
        UncleanShutdownError: the broker was not stopped in good order.
        LogLockedError: the broker runs.
        ValueError, TypeError: the records, or an argument, are refused.
        OSError: the disk refuses.

    Warns:
        UserWarning: retention would delete the records soon, or other brokers have replicas.

    Example:
        >>> write_topic(frame, "/var/lib/kafka", "orders", key="user")  # doctest: +SKIP
    """
    if not isinstance(topic, str) or not is_topic_name(topic) or is_internal(topic):
        raise ValueError(f"{topic!r} is not a topic that producers write to")
    directories = (paths,) if isinstance(paths, str | PathLike) else paths
    places = [local_path_at(directory) for directory in directories]
    found = settings(places, metadata_directory=metadata_directory, broker_config=broker_config)
    names = {"key": key, "value": value, "timestamp": timestamp, "headers": headers}
    assigned = _assigned(found.cluster, topic, places[0])
    partitions = _paths(found, topic, assigned, places)
    unfollowed = all(len(each.replicas) <= 1 for each in assigned.values())
    with ExitStack() as stack:
        logs = [
            stack.enter_context(
                Log.open(
                    path,
                    mode="append",
                    config=found,
                    high_watermark="end" if unfollowed else None,
                )
            )
            for path in partitions
        ]
        ends = [log.log_end_offset for log in logs]
        for log in logs if not append else ():
            if log.log_end_offset > log.log_start_offset:
                raise KsegError("the topic has records; append=True appends to them", path=log.path)
        try:
            results = _write(pieces_of(source, names), logs, partitioner, options, batch_bytes)
        except BaseException:
            for log, end in zip(logs, ends, strict=True):
                with suppress(KsegError, OSError):
                    log.truncate_to(end)
            raise
        if unfollowed:
            _warn_of_retention(found, topic, logs, results)
    if not unfollowed:
        warnings.warn(
            f"kseg: other brokers have replicas of {topic}: start this one first, and keep it the "
            "leader, or they cut the records off again",
            UserWarning,
            stacklevel=2,
        )
    return results


def _assigned(cluster: Cluster | None, topic: str, place: Path) -> dict[int, Assigned]:
    """The partitions of the topic, by number from 0 on, as the metadata log has them."""
    if cluster is None:
        raise NotALogError(
            "no __cluster_metadata-0 is here, which names the partitions of a topic; give its "
            "directory as metadata_directory",
            path=place,
        )
    if not cluster.trusted:
        raise cluster.findings[-1]
    partitions = cluster.partitions.get(cluster.ids[topic]) if topic in cluster.ids else None
    if not partitions:
        command = command_line(
            *("kafka-topics.sh", "--bootstrap-server", "localhost:9092", "--create"),
            *("--topic", topic, "--partitions", "4"),
        )
        raise KsegError(
            f"the metadata log has no topic {topic!r}, and a broker puts the directory of an "
            f"unknown topic aside: start the broker, type {command}, and stop it again",
            path=place,
        )
    return dict(sorted(partitions.items()))


def _paths(
    found: Settings, topic: str, assigned: Mapping[int, Assigned], places: Sequence[Path]
) -> list[Path]:
    """The directory of each partition, checked against the metadata log."""
    assert found.cluster is not None
    meta = metadata.read_meta_properties(places[0] / FileKind.META_PROPERTIES.value)
    paths = []
    for number, at in assigned.items():
        name = f"{topic}-{number}"
        if meta.node_id is not None and meta.node_id not in at.replicas:
            nodes = " and ".join(map(str, at.replicas))
            raise NotALogError(f"{name} is on broker {nodes}, not on this one", path=places[0])
        path = next((each / name for each in places if (each / name).is_dir()), None)
        if path is None:
            raise NotALogError(
                f"{name} is in none of the directories; name all of the broker's log.dirs",
                path=places[0],
            )
        topic_id = found.of(path).topic_id
        reason = topic_id and found.cluster.stray_reason(
            TopicPartition(topic, number), topic_id, meta.node_id
        )
        if topic_id is None or reason:
            raise NotALogError(
                f"a broker would put the partition aside: {reason or 'it has no topic id'}",
                path=path,
            )
        paths.append(path)
    return paths


# ---- records -------------------------------------------------------------------------------------

#: Columns by Kafka's names: arrays that kseg has made, or lists of Python values.
_Piece = Mapping[str, Any]


def _write(
    pieces: Iterable[_Piece],
    logs: Sequence[Log],
    partitioner: str,
    options: OptionsLike | None,
    batch_bytes: int,
) -> dict[int, AppendResult]:
    results: dict[int, AppendResult] = {}
    keyless_bytes = 0
    for piece in pieces:
        places = _partitions(piece, len(logs), partitioner)
        keyless = np.flatnonzero(places == NO_PARTITION)
        if len(keyless):
            ends = keyless_bytes + np.cumsum(_sizes(piece)[keyless])
            places[keyless] = ends // max(batch_bytes, 1) % len(logs)
            keyless_bytes = int(ends[-1])
        for number in np.unique(places).tolist():
            rows = _take(piece, np.flatnonzero(places == number))
            result = logs[number].append(rows, options=options, batch_bytes=batch_bytes)
            results[number] = merged(results[number], result) if number in results else result
    for number in results:
        logs[number].flush()
    return dict(sorted(results.items()))


def _partitions(piece: _Piece, count: int, partitioner: str) -> Int32s:
    if "key" in piece:
        return partition_for(key_column(piece["key"]), count, partitioner)
    return np.full(len(next(iter(piece.values()))), NO_PARTITION, np.int32)


def _sizes(piece: _Piece) -> Int32s:
    """Bytes of each record, about."""
    if "value" not in piece:
        return np.full(len(next(iter(piece.values()))), _RECORD_OVERHEAD, np.int32)
    return key_column(piece["value"]).sizes() + _RECORD_OVERHEAD


def _take(piece: _Piece, index: Intps) -> Mapping[str, Any]:
    """Some rows of a piece, in order."""
    if all(isinstance(column, list | tuple) for column in piece.values()):
        rows = index.tolist()
        return {name: [column[row] for row in rows] for name, column in piece.items()}
    return take_rows(RecordColumns(len(next(iter(piece.values()))), piece), index).arrays


def _warn_of_retention(
    found: Settings, topic: str, logs: Sequence[Log], results: Mapping[int, AppendResult]
) -> None:
    """Warn of partitions whose oldest segment goes within a day of the start."""
    soon_ms = int(time.time() * 1000) + _SOON_MS
    going = []
    for number in results:
        log = logs[number]
        log.update_high_watermark(
            log.log_end_offset
        )  # as the broker does that has the only replica
        known = found.of(log.path).values
        unknown = {name: text for name, text in _USUAL.items() if name not in known}
        rules = found.supposing(unknown).of(log.path).retention_rules()
        if plan_retention(log, config=rules, now=soon_ms).segments:
            going.append(number)
    if going:
        warnings.warn(
            f"kseg: retention of {topic} deletes records of partitions "
            f"{', '.join(map(str, going))} within a day of the broker's start. Set retention.ms "
            "and retention.bytes of the topic first; broker_config= reads the broker's defaults",
            UserWarning,
            stacklevel=3,
        )
