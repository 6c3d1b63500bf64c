"""`write_topic`: write records into the partitions of a topic that a stopped broker has."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from os import PathLike
from typing import Any, Final

import numpy as np

from kseg._door import renamed
from kseg.change.cleanup import plan_retention
from kseg.constants import BATCH_BYTES, Int32s, Intps, StrPath
from kseg.errors import KsegError
from kseg.files.grammar import is_topic_name
from kseg.files.metadata import read_meta_properties
from kseg.files.names import FileKind
from kseg.format.options import OptionsLike
from kseg.format.take import take_rows
from kseg.format.times import DAY_MS
from kseg.format.values import RecordColumns
from kseg.log.log import Log
from kseg.log.settings.joined import Settings, settings
from kseg.log.settings.targets import (
    StoppedBroker,
    assigned_partitions,
    partition_paths,
    usual_rules,
)
from kseg.log.topic_policy import is_internal
from kseg.log.writer.append import AppendResult, merged, pieces_of
from kseg.records.partitioners import NO_PARTITION, key_column, partition_for
from kseg.stores.path import local_path_at

_RECORD_OVERHEAD: Final = 10
#: Warn if retention would delete records within this time.
_SOON_MS: Final = DAY_MS

_Path = StrPath


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
        append: write after the records that the topic has. False refuses a topic with records.
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
    broker_settings = settings(
        places, metadata_directory=metadata_directory, broker_config=broker_config
    )
    names = {"key": key, "value": value, "timestamp": timestamp, "headers": headers}
    assigned = assigned_partitions(broker_settings.cluster, topic, places[0])
    meta = read_meta_properties(places[0] / FileKind.META_PROPERTIES.value)
    broker = StoppedBroker(tuple(places), meta.node_id, broker_settings)
    partitions = partition_paths(broker, topic, assigned)
    is_only_copy = all(len(assignment.replicas) <= 1 for assignment in assigned.values())
    with ExitStack() as stack:
        logs = [
            stack.enter_context(
                Log.open(
                    path,
                    mode="append",
                    config=broker_settings,
                    high_watermark="end" if is_only_copy else None,
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
        if is_only_copy:
            _warn_of_retention(broker_settings, topic, logs, results)
    if not is_only_copy:
        warnings.warn(
            f"kseg: other brokers have replicas of {topic}: start this one first, and keep it the "
            "leader, or they cut the records off again",
            UserWarning,
            stacklevel=2,
        )
    return results


# ---- records -------------------------------------------------------------------------------------

#: Kafka's name of a field -> its column: an array that kseg has made, or a list of Python values.
_Piece = Mapping[str, Any]


def _write(
    pieces: Iterable[_Piece],
    logs: Sequence[Log],
    partitioner: str,
    options: OptionsLike | None,
    batch_bytes: int,
) -> dict[int, AppendResult]:
    """Append each record of pieces to its partition.

    As with a producer, records without a key go to one partition until `batch_bytes` are full, then
    to the next one.

    Args:
        pieces: the records.
        logs: the partitions, by number.
        partitioner: chooses the partition of a key.
        options, batch_bytes: as for `write_topic`.

    Returns:
        Number of a partition -> the result of its appends.
    """
    results: dict[int, AppendResult] = {}
    keyless_bytes = 0
    for piece in pieces:
        partitions = _partitions(piece, len(logs), partitioner)
        keyless = np.flatnonzero(partitions == NO_PARTITION)
        if len(keyless):
            ends = keyless_bytes + np.cumsum(_sizes(piece)[keyless])
            partitions[keyless] = ends // max(batch_bytes, 1) % len(logs)
            keyless_bytes = int(ends[-1])
        for number in np.unique(partitions).tolist():
            rows = _take(piece, np.flatnonzero(partitions == number))
            result = logs[number].append(rows, options=options, batch_bytes=batch_bytes)
            results[number] = merged(results[number], result) if number in results else result
    for number in results:
        logs[number].flush()
    return dict(sorted(results.items()))


def _partitions(piece: _Piece, count: int, partitioner: str) -> Int32s:
    """int32[n]: the partition of each record; `NO_PARTITION` for one without a key."""
    if "key" in piece:
        return partition_for(key_column(piece["key"]), count, partitioner)
    return np.full(len(next(iter(piece.values()))), NO_PARTITION, np.int32)


def _sizes(piece: _Piece) -> Int32s:
    """int32[n]: the bytes of each record, roughly."""
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
    broker_settings: Settings, topic: str, logs: Sequence[Log], results: Mapping[int, AppendResult]
) -> None:
    """Warn of partitions whose oldest segment retention deletes within a day of the start."""
    soon_ms = int(time.time() * 1000) + _SOON_MS
    expiring = []
    for number in results:
        log = logs[number]
        # As a broker does that has the only replica.
        log.update_high_watermark(log.log_end_offset)
        if plan_retention(log, config=usual_rules(broker_settings, log.path), now=soon_ms).segments:
            expiring.append(number)
    if expiring:
        warnings.warn(
            f"kseg: retention of {topic} deletes records of partitions "
            f"{', '.join(map(str, expiring))} within a day of the broker's start. Set retention.ms "
            "and retention.bytes of the topic first; broker_config= reads the broker's defaults",
            UserWarning,
            stacklevel=3,
        )
