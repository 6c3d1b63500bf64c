"""`partition_for`: the partition that a producer sends a key to."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, overload

import numpy as np

from kseg._kernels.keymap import key_partitions
from kseg.constants import Int32s
from kseg.errors import KsegError, MisplacedKeyError
from kseg.files.metadata import read_partition_metadata
from kseg.files.names import CLUSTER_METADATA, Partition
from kseg.format.request import check_word
from kseg.format.take import first_rows
from kseg.format.values import BinaryColumn, RecordColumns, TypedColumn, binary_column
from kseg.frames import has_arrow
from kseg.log.settings.cluster import Cluster
from kseg.log.settings.metadata_log import read_cluster

Partitioner = Literal["murmur2", "crc32"]
PARTITIONERS: Final = ("murmur2", "crc32")
#: The partition of a key that its producer does not hash.
NO_PARTITION: Final = -1
_BYTES = (bytes, bytearray, memoryview)


@overload
def partition_for(
    key: bytes | str | None, partitions: int, partitioner: str = "murmur2"
) -> int | None: ...
@overload
def partition_for(key: Any, partitions: int, partitioner: str = "murmur2") -> Int32s: ...
def partition_for(key: Any, partitions: int, partitioner: str = "murmur2") -> int | Int32s | None:
    """Find the partition of a serialized key, or of each key of a column.

    Args:
        key: bytes, or text, which is encoded as UTF-8; None for a null key. Or many of them: a
            list, a column that kseg has read, or a column of Arrow, Polars or pandas.
        partitions: the number of partitions of the topic.
        partitioner: "murmur2" for the producers of Java, Streams, Connect, kafka-python, aiokafka
            and franz-go: `(murmur2(key) & 0x7fffffff) % partitions`. "crc32" for librdkafka and the
            clients built on it, if their `partitioner` is not set (`consistent_random`).

    Returns:
        The partition of one key. None for a null key, and with "crc32" for an empty key: producers
        send these to any partition. For a column int32[n], with -1 in place of None.

    Raises:
        TypeError: a key is neither bytes nor text. A serializer decides the bytes of a number.
        ValueError: `partitions` is less than 1, or the partitioner is unknown.

    Source: Kafka `BuiltInPartitioner.partitionForKey` and `Utils.murmur2`; librdkafka
    `rd_kafka_msg_partitioner_consistent_random`.
    """
    check_word("partitioner", partitioner, PARTITIONERS)
    if isinstance(partitions, bool) or not isinstance(partitions, (int, np.integer)):
        raise TypeError(f"partitions is a whole number, not {type(partitions).__name__}")
    if not 1 <= partitions < 2**31:
        raise ValueError(f"partitions is {partitions}, not 1 or more")
    single = key is None or isinstance(key, (str, *_BYTES))
    column = key_column([key] if single else key)
    of_keys = np.empty(len(column), np.int32)
    key_partitions(column.data, column.offsets, int(partitions), partitioner == "crc32", of_keys)
    if column.null_count:
        of_keys[~column.is_valid()] = NO_PARTITION
    if not single:
        return of_keys
    return None if of_keys[0] == NO_PARTITION else int(of_keys[0])


def key_column(keys: Any) -> BinaryColumn:
    """Keys as a column of their bytes.

    Args:
        keys: a list, a column that kseg has read, or a column of Arrow, Polars or pandas.

    Raises:
        TypeError: a key is neither bytes, text nor None.
    """
    if isinstance(keys, TypedColumn) and isinstance(keys.values, BinaryColumn):
        return keys.values
    if isinstance(keys, BinaryColumn):
        return keys
    if has_arrow(keys):
        from kseg.arrow import binary_column_of

        return binary_column_of(keys, "key")
    if not isinstance(keys, Iterable):
        raise TypeError(_refusal(keys))
    return binary_column([_key_bytes(key) for key in keys])


def _key_bytes(key: Any) -> bytes | None:
    """A key as bytes: text in UTF-8; None stays None."""
    if key is None or type(key) is bytes:
        return key
    if isinstance(key, str):
        return key.encode()
    if isinstance(key, _BYTES):
        return bytes(key)
    raise TypeError(_refusal(key))


def _refusal(key: object) -> str:
    """The message for a key of a wrong type."""
    return (
        f"a key is bytes, text or None, not {type(key).__name__}: encode it as the producers'"
        " serializer does, such as (42).to_bytes(4, 'big') for an IntegerSerializer"
    )


#: The number of keys of one scan that are compared with the partitions in which they are.
SAMPLE_KEYS: Final = 1_000
#: The most records that are read for each of these keys, where many keys are null.
_ROWS_PER_KEY: Final = 16


class KeyPlaces(NamedTuple):
    """How the producers of topics chose the partition of a key.

    Attributes:
        partitioner: "murmur2" or "crc32".
        counts: topic -> each number of partitions that it has had. Other topics are read whole.
    """

    partitioner: str
    counts: Mapping[str | None, frozenset[int]]

    @classmethod
    def of(
        cls,
        partitioner: str,
        counts: Iterable[int],
        sources: Sequence[Partition],
        paths: Iterable[Path],
    ) -> KeyPlaces:
        """Find the numbers of partitions in the caller's options, or else in metadata logs.

        Args:
            partitioner: the partitioner of all topics.
            counts: each number of partitions that the topics have had; if empty, the metadata logs
                beside the sources and in `paths` say it.
            sources: the partitions of the topics.
            paths: data directories.

        Raises:
            ValueError: the partitioner is unknown, or a number is less than 1.
            OSError: a metadata log cannot be read.
        """
        for count in (1, *counts):  # all are checked here
            partition_for(None, count, partitioner)
        directories: dict[str | None, list[Path]] = {}
        for source in sources:
            directories.setdefault(source.topic, []).append(source.directory)
        if named_counts := frozenset(counts):
            return cls(partitioner, dict.fromkeys(directories, named_counts))
        data_directories = {
            path.resolve().parent for copies in directories.values() for path in copies
        }
        data_directories |= {path.resolve() for path in paths}
        logs = [path / f"{CLUSTER_METADATA}-0" for path in sorted(data_directories)]
        clusters = [_cluster_with_counts(log) for log in logs if log.is_dir()]
        counts_of_topics = {
            topic: frozenset(
                count for cluster in clusters for count in _counts_of(cluster, topic, copies)
            )
            for topic, copies in directories.items()
        }
        return cls(partitioner, counts_of_topics)

    def can_have(self, source: Partition, key: bytes) -> bool:
        """Whether a source can have records with a key.

        Args:
            source: the partition, or a file of it.
            key: the bytes of the key.
        """
        counts = self._counts_at(source)
        partitions = {partition_for(key, count, self.partitioner) for count in counts}
        return not counts or not partitions.isdisjoint((None, source.partition))

    def check(
        self,
        sources: Iterable[Partition],
        read: Callable[[Partition, int], Iterator[Any]],
    ) -> None:
        """Compare a sample of keys with the partitions in which they are.

        Args:
            sources: the sources of the scan.
            read: yields the offsets and keys in several parts of a source, in pieces of at most the
                given number of rows.

        Raises:
            MisplacedKeyError: the first key that should be elsewhere, with its file and its offset.
        """
        counted = [source for source in sources if self._counts_at(source)]
        share = -(-SAMPLE_KEYS // max(len(counted), 1))
        for source in counted:
            for pieces in read(source, share):
                keys = 0
                for columns in first_rows(pieces, _ROWS_PER_KEY * share):
                    self._check(source, columns)
                    keys += len(columns) - columns.key.null_count
                    if keys >= share:
                        break

    def _counts_at(self, source: Partition) -> frozenset[int]:
        """Each number of partitions that the topic of a source has had; empty if not known."""
        counts = self.counts.get(source.topic, frozenset())
        return counts if source.partition is not None else frozenset()

    def _check(self, source: Partition, columns: RecordColumns) -> None:
        """Refuse keys that the partitioner sends to other partitions than that of the source."""
        counts = sorted(self.counts[source.topic])
        expected = [partition_for(columns.key, count, self.partitioner) for count in counts]
        fits = np.isin(expected, [source.partition or 0, NO_PARTITION]).any(axis=0)
        if fits.all():
            return
        row = int(np.argmin(fits))
        places = " or ".join(
            f"{places[row]} of {count}" for places, count in zip(expected, counts, strict=True)
        )
        raise MisplacedKeyError(
            f"the key {columns.key[row]!r} is in partition {source.partition}, and"
            f" {self.partitioner} sends it to {places}: the topic had another number of partitions,"
            " or a producer another partitioner; without a partitioner all partitions are read",
            path=columns.source or source.path,
            offset=int(columns["offset"][row]),
        )


def _cluster_with_counts(log: Path) -> Cluster:
    """The state of a metadata log, with as much of its history as can be read."""
    with suppress(KsegError):
        cluster = read_cluster(log, history=True)
        if cluster.trusted:
            return cluster
    return read_cluster(log)


def _counts_of(cluster: Cluster, topic: str | None, directories: Iterable[Path]) -> Iterable[int]:
    """Each number of partitions that a topic has had; empty if that is not known.

    Args:
        cluster: the state of the metadata log.
        topic: the name of the topic.
        directories: partitions of the topic; an id other than the cluster's is another topic.
    """
    topic_id = cluster.ids.get(topic or "")
    if topic_id is None or not (cluster.trusted and cluster.knows_replicas):
        return ()
    for directory in directories:
        metadata_path = directory / "partition.metadata"
        if metadata_path.exists() and read_partition_metadata(metadata_path).uuid != topic_id:
            return ()
    return cluster.counts.get(topic_id, {}).values()
