"""The partitions of a topic in the data directories of a stopped broker, for records of others.

The metadata log names the id of the topic, its partitions and their replicas. A broker puts the
directory of another id, or of a partition that it does not have, aside when it starts.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from kseg.commands import command_line
from kseg.constants import StrPath
from kseg.errors import KsegError, NotALogError
from kseg.files import metadata
from kseg.files.checkpoints import TopicPartition
from kseg.files.names import FileKind
from kseg.log.settings.cluster import Assigned, Cluster
from kseg.log.settings.joined import Settings, settings
from kseg.log.settings.metadata_log import group_by_broker
from kseg.log.topic_policy import RetentionRules

#: Kafka's defaults, which count where no source has another value.
_USUAL: Final = {"cleanup.policy": "delete", "retention.ms": str(7 * 24 * 60 * 60 * 1000)}


class StoppedBroker(NamedTuple):
    """The data directories of a broker, its node id, and the settings in them."""

    directories: tuple[Path, ...]
    node_id: int | None
    settings: Settings


def stopped_brokers(
    homes: Sequence[Path], metadata_directory: StrPath | None, broker_config: StrPath | None
) -> list[StoppedBroker]:
    """The brokers of data directories.

    Raises:
        NotALogError: a path is no broker's data directory.
        ValueError, OSError: as `settings` raises them.
    """
    for home in homes:
        try:
            os.stat(home / FileKind.META_PROPERTIES.value)
        except FileNotFoundError:
            why = "not the data directory of a broker: no meta.properties"
            raise NotALogError(why, path=home) from None
    brokers = []
    for directories in group_by_broker(homes):
        meta = metadata.read_meta_properties(directories[0] / FileKind.META_PROPERTIES.value)
        broker_settings = settings(
            directories, metadata_directory=metadata_directory, broker_config=broker_config
        )
        brokers.append(StoppedBroker(tuple(directories), meta.node_id, broker_settings))
    return brokers


def assigned_partitions(
    cluster: Cluster | None, topic: str, directory: Path, *, count: int = 4
) -> dict[int, Assigned]:
    """The partitions of a topic in the metadata log, keyed by number, from 0 on.

    Args:
        cluster: the state of the metadata log; None if there is no such log.
        topic: the name of the topic.
        directory: the data directory, for errors.
        count: the number of partitions in the command that makes the topic.

    Raises:
        KsegError: there is no metadata log, it is not trusted, or it does not have the topic; the
            message has the command that helps.
    """
    if cluster is None:
        raise NotALogError(
            "no __cluster_metadata-0 is here, which names the partitions of a topic; give its "
            "directory as metadata_directory",
            path=directory,
        )
    if not cluster.trusted:
        raise cluster.findings[-1]
    partitions = cluster.partitions.get(cluster.ids[topic]) if topic in cluster.ids else None
    if not partitions:
        command = command_line(
            *("kafka-topics.sh", "--bootstrap-server", "localhost:9092", "--create"),
            *("--topic", topic, "--partitions", str(count)),
        )
        raise KsegError(
            f"the metadata log has no topic {topic!r}, and a broker puts the directory of an "
            f"unknown topic aside: start the broker, type {command}, and stop it again",
            path=directory,
        )
    return dict(sorted(partitions.items()))


def partition_paths(
    broker: StoppedBroker, topic: str, assigned: Mapping[int, Assigned]
) -> list[Path]:
    """The directory of each partition, checked against the metadata log.

    Args:
        broker: the broker that has the partitions.
        topic: the name of the topic.
        assigned: the partitions, keyed by number.

    Raises:
        NotALogError: a partition is of another broker or in none of the directories, or a broker
            would put it aside.
        OSError: a `partition.metadata` cannot be read.
    """
    directories, node_id, settings = broker
    assert settings.cluster is not None
    paths = []
    for number, at in assigned.items():
        name = f"{topic}-{number}"
        if node_id is not None and node_id not in at.replicas:
            nodes = " and ".join(map(str, at.replicas))
            raise NotALogError(f"{name} is on broker {nodes}, not on this one", path=directories[0])
        path = next((home / name for home in directories if (home / name).is_dir()), None)
        if path is None:
            raise NotALogError(
                f"{name} is in none of the directories; name all of the broker's log.dirs",
                path=directories[0],
            )
        topic_id = settings.of(path).topic_id
        reason = topic_id and settings.cluster.stray_reason(
            TopicPartition(topic, number), topic_id, node_id
        )
        if topic_id is None or reason:
            raise NotALogError(
                f"a broker would put the partition aside: {reason or 'it has no topic id'}",
                path=path,
            )
        paths.append(path)
    return paths


def usual_rules(settings: Settings, path: Path) -> RetentionRules:
    """The rules of retention of a partition; Kafka's defaults count if no source has a value.

    Raises:
        ValueError, OSError: as `Settings.of` raises them.
    """
    values = settings.of(path).values
    unknown = {name: text for name, text in _USUAL.items() if name not in values}
    return settings.supposing(unknown).of(path).retention_rules()
