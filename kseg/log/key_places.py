"""The partitions that can have a key, if the caller says how producers chose its partition.

The number of partitions comes from the caller or the metadata log, never from the directories: some
of them may lie elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from kseg.errors import KsegError, MisplacedKeyError
from kseg.files.metadata import read_partition_metadata
from kseg.format.take import first_rows
from kseg.format.values import RecordColumns
from kseg.log.data_directory import CLUSTER_METADATA
from kseg.log.partitioners import NO_PARTITION, partition_for
from kseg.log.settings.cluster import Cluster
from kseg.log.settings.metadata_log import read_cluster
from kseg.log.sources import ScanSource

#: Keys of one scan that are compared with the partitions in which they lie.
SAMPLE_KEYS: Final = 1_000
#: Records that are looked through for each of these, where many keys are null.
_ROWS_PER_KEY: Final = 16


class KeyPlaces(NamedTuple):
    """How the producers of topics chose the partition of a key.

    Attributes:
        partitioner: "murmur2" or "crc32".
        counts: by topic, each number of partitions that it has had. Other topics are read whole.
    """

    partitioner: str
    counts: Mapping[str | None, frozenset[int]]

    @classmethod
    def of(
        cls,
        partitioner: str,
        counts: Iterable[int],
        sources: Sequence[ScanSource],
        paths: Iterable[Path],
    ) -> KeyPlaces:
        """Take the caller's options, and the metadata logs beside the sources and in the paths.

        Args:
            partitioner: of all topics.
            counts: each number of partitions that the topics have had; the logs say it if empty.
            sources: of the topics.
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
        if known := frozenset(counts):
            return cls(partitioner, dict.fromkeys(directories, known))
        homes = {each.resolve().parent for places in directories.values() for each in places}
        homes |= {path.resolve() for path in paths}
        logs = [home / f"{CLUSTER_METADATA}-0" for home in sorted(homes)]
        clusters = [_cluster_with_counts(log) for log in logs if log.is_dir()]
        found = {
            topic: frozenset(count for one in clusters for count in _counts_of(one, topic, places))
            for topic, places in directories.items()
        }
        return cls(partitioner, found)

    def can_have(self, source: ScanSource, key: bytes) -> bool:
        """Whether a source can have records with a key.

        Args:
            source: the partition, or a file of it.
            key: its bytes.
        """
        counts = self._counts_at(source)
        found = {partition_for(key, count, self.partitioner) for count in counts}
        return not counts or not found.isdisjoint((None, source.partition))

    def check(
        self,
        sources: Iterable[ScanSource],
        read: Callable[[ScanSource, int], Iterator[Any]],
    ) -> None:
        """Compare a sample of keys with the partitions in which they lie.

        Args:
            sources: of the scan.
            read: gives the offsets and keys at some places of a source, in pieces of so many rows.

        Raises:
            MisplacedKeyError: the first key that lies elsewhere, with its file and its offset.
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

    def _counts_at(self, source: ScanSource) -> frozenset[int]:
        known = self.counts.get(source.topic, frozenset())
        return known if source.partition is not None else frozenset()

    def _check(self, source: ScanSource, columns: RecordColumns) -> None:
        counts = sorted(self.counts[source.topic])
        found = [partition_for(columns.key, count, self.partitioner) for count in counts]
        fits = np.isin(found, [source.partition or 0, NO_PARTITION]).any(axis=0)
        if fits.all():
            return
        row = int(np.argmin(fits))
        places = " or ".join(
            f"{places[row]} of {count}" for places, count in zip(found, counts, strict=True)
        )
        raise MisplacedKeyError(
            f"the key {columns.key[row]!r} is in partition {source.partition}, and"
            f" {self.partitioner} sends it to {places}: the topic had another number of partitions,"
            " or a producer another partitioner; without a partitioner all partitions are read",
            path=columns.source or source.path,
            offset=int(columns["offset"][row]),
        )


def _cluster_with_counts(log: Path) -> Cluster:
    """The state of a metadata log, from as long ago as it can be read."""
    with suppress(KsegError):
        cluster = read_cluster(log, history=True)
        if cluster.trusted:
            return cluster
    return read_cluster(log)


def _counts_of(cluster: Cluster, topic: str | None, directories: Iterable[Path]) -> Iterable[int]:
    """Each number of partitions that a topic has had; none if that is not known."""
    topic_id = cluster.ids.get(topic or "")
    if topic_id is None or not (cluster.trusted and cluster.knows_replicas):
        return ()
    for directory in directories:
        said = directory / "partition.metadata"
        if said.exists() and read_partition_metadata(said).uuid != topic_id:
            return ()
    return cluster.counts.get(topic_id, {}).values()
