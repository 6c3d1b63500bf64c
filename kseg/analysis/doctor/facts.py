"""The facts about a broker: its directories, its configuration and its metadata log, read once.

`BrokerFile` is the broker's configuration, `BrokerDirectory` a data directory but for the records
of its logs, and `Node` joins them with the loads of the partitions and with the metadata log. An
error is a value here, and the rules say what it means.

Source: Kafka `LogManager`, `KafkaRaftLog`, `Partition.createLogInAssignedDirectoryId`.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import field
from pathlib import Path
from typing import Any, Final, Generic, NamedTuple, ParamSpec, TypeVar
from uuid import UUID

from kseg.analysis.doctor.values import PartitionOutlook
from kseg.analysis.doctor.words import Outcome
from kseg.analysis.values import KnownSettings
from kseg.constants import StrPath
from kseg.documents import frozen_dataclass, id_text
from kseg.errors import KsegError, os_reason
from kseg.files import checkpoints, lock, metadata
from kseg.files.checkpoints import TopicPartition
from kseg.files.names import FileKind
from kseg.log.data_directory import DirectoryEntry, EntryKind, PartitionOffsets, list_entries
from kseg.log.settings import Assigned, Cluster, read_cluster, voters_of

#: Since Kafka 4.0 (KIP-1030); it was 1 before.
THREADS_DEFAULT: Final = 2
_THREADS: Final = "num.recovery.threads.per.data.dir"
#: The checkpoints in the order in which a broker reads them.
CHECKPOINTS: Final = (
    FileKind.RECOVERY_POINT,
    FileKind.LOG_START,
    FileKind.REPLICATION,
    FileKind.CLEANER,
)
_Value = TypeVar("_Value")
_Arguments = ParamSpec("_Arguments")


class Attempt(NamedTuple, Generic[_Value]):
    """The value that a reader gave, or its error; neither where there is nothing to read."""

    value: _Value | None = None
    error: KsegError | OSError | None = None

    @classmethod
    def of(
        cls,
        read: Callable[_Arguments, _Value],
        *arguments: _Arguments.args,
        **more: _Arguments.kwargs,
    ) -> Attempt[_Value]:
        """Call a reader, and keep its value or its error."""
        try:
            return Attempt(read(*arguments, **more))
        except FileNotFoundError:
            return Attempt()
        except (KsegError, OSError) as error:
            return Attempt(None, error)


_NOTHING: Final[Attempt[Any]] = Attempt()


def reason_of(error: KsegError | OSError) -> str:
    """The reason of an error, without its path."""
    return os_reason(error) if isinstance(error, OSError) else error.reason


# ---- the configuration ---------------------------------------------------------------------------


@frozen_dataclass
class BrokerFile:
    """The settings of `server.properties` that the doctor needs.

    Attributes:
        directories: `log.dirs`, or else `log.dir`; empty if the file has neither.
        metadata_directory: `metadata.log.dir`, or else the first of `directories`.
        node_id: `node.id`, or else `broker.id`; None if the file has neither.
        threads: the number of threads that load the partitions of one data directory.
        roles: `process.roles`; empty if the file does not have it.
        voters: the ids in `controller.quorum.voters`; empty if the file does not have it.
        voters_max: the largest possible number of voters; None if the file does not say.
        properties: all settings in the file; None if there is no file.
    """

    directories: tuple[Path, ...] = ()
    metadata_directory: Path | None = None
    node_id: int | None = None
    threads: int = THREADS_DEFAULT
    roles: tuple[str, ...] = ()
    voters: tuple[int, ...] = ()
    voters_max: int | None = None
    properties: Mapping[str, str] | None = field(default=None, repr=False)

    @property
    def is_controller_alone(self) -> bool:
        """Whether the node has no logs but the metadata log."""
        return self.roles == ("controller",)

    def loads(self, directory: Path) -> bool:
        """Whether the node loads the logs of a directory, not only a metadata log in it."""
        metadata_directory = self.metadata_directory and self.metadata_directory.resolve()
        is_apart = metadata_directory not in {path.resolve() for path in self.directories}
        is_for_metadata = is_apart and metadata_directory == directory.resolve()
        return not (self.is_controller_alone or is_for_metadata)


def read_broker_file(path: StrPath | None) -> BrokerFile:
    """Read `server.properties`; without such a file, the defaults of a broker.

    Raises:
        ValueError: it is malformed.
        OSError: it cannot be read.
    """
    if path is None:
        return BrokerFile()
    properties = metadata.read_properties(path)
    directories = tuple(map(Path, metadata.log_directories(properties)))
    servers = _words(properties, "controller.quorum.bootstrap.servers")
    voters = _words(properties, "controller.quorum.voters")
    numbers = (voter.partition("@")[0] for voter in voters)
    metadata_directory = properties.get("metadata.log.dir")
    return BrokerFile(
        directories,
        Path(metadata_directory.strip()) if metadata_directory else next(iter(directories), None),
        _number(properties, "node.id" if "node.id" in properties else "broker.id"),
        max(_number(properties, _THREADS) or THREADS_DEFAULT, 1),
        _words(properties, "process.roles"),
        tuple(int(number) for number in numbers if number.isdecimal()),
        len(voters or servers) or None,
        properties,
    )


def _words(properties: Mapping[str, str], name: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in properties.get(name, "").split(",") if word.strip())


def _number(properties: Mapping[str, str], name: str) -> int | None:
    """The number of a setting; None if it is missing, or text that Kafka refuses."""
    with suppress(ValueError):
        return int(properties.get(name, ""))
    return None


# ---- a data directory ----------------------------------------------------------------------------


@frozen_dataclass
class BrokerDirectory:
    """A data directory as it was found.

    Attributes:
        path: as it was given.
        loads_logs: whether its logs are loaded; a node that is only a controller has only the
            metadata log, and ignores all partitions and checkpoints.
        listed: its sub-directories; all fields below are empty where they cannot be listed.
        disk: the numbers of its file system.
        holder: the process that holds its lock, if another process does.
        ids: the contents of `meta.properties`.
        mark: the mark of a clean stop.
        read: the offsets of the checkpoints, keyed by their kind.
        user: the user that owns the directory.
        refused: the files that this user may not use, keyed by their directory.
        sizes: the bytes of each log file, keyed by the name of the partition's directory.
    """

    path: Path
    loads_logs: bool
    listed: Attempt[tuple[DirectoryEntry, ...]]
    disk: os.statvfs_result | None = None
    holder: Attempt[int | None] = _NOTHING
    ids: Attempt[metadata.MetaProperties] = _NOTHING
    mark: Attempt[metadata.CleanShutdown | None] = _NOTHING
    read: Mapping[FileKind, Attempt[Mapping[TopicPartition, int]]] = field(default_factory=dict)
    user: int = 0
    refused: Mapping[Path, Attempt[list[str]]] = field(default_factory=dict)
    sizes: Mapping[str, list[int]] = field(default_factory=dict)

    @property
    def entries(self) -> tuple[DirectoryEntry, ...]:
        """The sub-directories that count."""
        entries = self.listed.value or ()
        if self.loads_logs:
            return entries
        return tuple(entry for entry in entries if entry.kind is EntryKind.CLUSTER_METADATA)

    @property
    def exists(self) -> bool:
        """Whether it could be listed."""
        return bool(self.entries) or self.path.is_dir()

    @property
    def clean(self) -> bool:
        """Whether the mark of a clean stop is there."""
        return self.mark.value is not None

    @property
    def meta(self) -> metadata.MetaProperties | None:
        """Its ids; None where they are not known."""
        return self.ids.value

    @property
    def logs(self) -> list[DirectoryEntry]:
        """The partitions in it that are in service."""
        return [entry for entry in self.entries if entry.kind is EntryKind.LOG]

    @property
    def metadata_log(self) -> Path | None:
        """The directory of the metadata log."""
        kraft = (entry for entry in self.entries if entry.kind is EntryKind.CLUSTER_METADATA)
        return next((entry.path for entry in kraft), None)

    @property
    def log_count(self) -> int:
        """The number of log files in it."""
        return sum(map(len, self.sizes.values()))

    def offsets(self, kind: FileKind) -> Mapping[TopicPartition, int] | None:
        """The offsets of a checkpoint; None where there is none, or it cannot be parsed."""
        return self.read.get(kind, _NOTHING).value

    def checkpointed(self, partition: TopicPartition | None) -> PartitionOffsets:
        """The offsets of a partition in the checkpoints."""
        if partition is None:
            return PartitionOffsets(clean=self.clean)
        point, start = (
            max((self.offsets(kind) or {}).get(partition, 0), 0)
            for kind in (FileKind.RECOVERY_POINT, FileKind.LOG_START)
        )
        return PartitionOffsets(point, start, clean=self.clean)

    def known_end(self, partition: TopicPartition | None) -> int | None:
        """The largest offset that the checkpoints have of a partition; None if they have none."""
        kinds = (FileKind.RECOVERY_POINT, FileKind.REPLICATION)
        ends = [(self.offsets(kind) or {}).get(partition) for kind in kinds if partition]
        return max((end for end in ends if end is not None), default=None)


def read_directory(path: Path, *, loads_logs: bool = True) -> BrokerDirectory:
    """Read everything about a data directory but the records of its logs.

    Args:
        path: the directory.
        loads_logs: see `BrokerDirectory`.

    Raises:
        OSError: the numbers of its file system cannot be read.
    """
    try:
        entries = list_entries(path)
    except OSError as error:
        return BrokerDirectory(path, loads_logs, Attempt(None, error))
    owner = os.stat(path)
    sizes = dict[str, list[int]]()
    listed = BrokerDirectory(path, loads_logs, Attempt(entries))
    searched = (path, *(entry.path for entry in listed.entries))
    return BrokerDirectory(
        path,
        loads_logs,
        listed.listed,
        os.statvfs(path),
        Attempt.of(lock.holder, path),
        Attempt.of(metadata.read_meta_properties, path / FileKind.META_PROPERTIES.value),
        Attempt.of(metadata.read_clean_shutdown, path),
        {
            kind: Attempt.of(checkpoints.read_offset_checkpoint, path / kind.value)
            for kind in (CHECKPOINTS if loads_logs else ())
        },
        owner.st_uid,
        {
            directory: Attempt.of(_refused_in, directory, owner, sizes if directory != path else {})
            for directory in searched
        },
        sizes,
    )


def _refused_in(directory: Path, owner: os.stat_result, sizes: dict[str, list[int]]) -> list[str]:
    """The names of the files in a directory that the owner of the data directory may not use.

    Only the directory's own name if he may not use the directory.

    Args:
        directory: the data directory, or the directory of a partition.
        owner: the status of the data directory.
        sizes: receives the sizes of log files, keyed by the name of `directory`.
    """
    if not _owner_may(os.stat(directory), owner, 7):
        return [directory.name]
    refused = []
    with os.scandir(directory) as entries:
        for entry in entries:
            if not entry.is_file():  # Kafka also ignores a link without a target
                continue
            if entry.name.endswith(".log"):
                # `entry.stat` caches the status for the call below.
                sizes.setdefault(directory.name, []).append(entry.stat().st_size)
            if not _owner_may(entry.stat(), owner, 6):
                refused.append(entry.name)
    return refused


def _owner_may(status: os.stat_result, owner: os.stat_result, bits: int) -> bool:
    """Whether the owner of the data directory has rights (bits as of chmod, 6: read and write).

    Root has all rights. Only the group of the data directory counts as the owner's group.

    Args:
        status: the file.
        owner: the data directory.
        bits: the rights that are needed.
    """
    if owner.st_uid == 0:
        return True
    shift = 0
    if status.st_uid == owner.st_uid:
        shift = 6
    elif status.st_gid == owner.st_gid:
        shift = 3
    return stat.S_IMODE(status.st_mode) >> shift & bits == bits


# ---- the node ------------------------------------------------------------------------------------


@frozen_dataclass
class Node:
    """This node: its data directories, its part in the quorum, and its partitions.

    Attributes:
        release: the release of Kafka that would start.
        directories: the data directories.
        server: the settings of `server.properties`.
        settings: the settings of the partitions.
        loads: the load of each partition, keyed by path.
        log: the directory of its metadata log; None where none was found.
        is_controller: None where neither the configuration nor the log says it.
        voters: the size of the quorum; None where that is not known.
        before: the state by the whole metadata log, even after damage; None if there is no log.
        cluster: the state by the part of the log that a start keeps, by which the node decides
            about its partitions; None where that is not known.
        node_id: the id of the node; None where it is not known.
        logs: the partitions in the directories.
        assignments: the partitions that the metadata log gives to this node, each with its
            topic's id.
    """

    release: str
    directories: tuple[BrokerDirectory, ...]
    server: BrokerFile
    settings: KnownSettings
    loads: Mapping[str, PartitionOutlook]
    log: Path | None
    is_controller: bool | None
    voters: int | None
    before: Cluster | None
    cluster: Cluster | None
    node_id: int | None
    logs: Mapping[TopicPartition, DirectoryEntry]
    assignments: Mapping[TopicPartition, tuple[UUID, Assigned]]

    @classmethod
    def of(
        cls,
        release: str,
        directories: tuple[BrokerDirectory, ...],
        server: BrokerFile,
        settings: KnownSettings,
        loads: Mapping[str, PartitionOutlook],
    ) -> Node:
        """Find the quorum in the configuration, in the log and in its `quorum-state`."""
        before = settings.cluster
        log, meta = next(
            (
                (directory.metadata_log, directory.meta)
                for directory in directories
                if directory.metadata_log
            ),
            (None, None),
        )
        voters = server.voters or (voters_of(before, log) if log is not None else ())
        node_id = server.node_id if meta is None else meta.node_id
        is_controller = node_id in voters if voters else None
        if server.roles:
            is_controller = "controller" in server.roles
        cluster = before
        load = loads.get(str(log))
        if log is not None and load is not None:
            if load.outcome is not Outcome.STARTS or refusal(load, before):
                cluster = None
            elif load.cut_offset is not None and load.lost_records != 0:
                before = read_cluster(log, past_damage=True)
                # A node that only is a broker fetches the cut records before it judges by them.
                is_broker = is_controller is False
                cluster = None if is_broker else read_cluster(log, end_offset=load.cut_offset)
        numbers = (
            server.node_id,
            *(directory.meta.node_id for directory in directories if directory.meta),
        )
        node_id = next((number for number in numbers if number is not None), None)
        logs = [entry for directory in directories for entry in directory.logs]
        return cls(
            release,
            directories,
            server,
            settings,
            loads,
            log,
            is_controller,
            len(voters) if voters else server.voters_max,
            before,
            cluster,
            node_id,
            {entry.partition: entry for entry in logs if entry.partition is not None},
            dict(_all_assignments(understood(cluster), node_id)),
        )

    @property
    def metadata_directory(self) -> Path | None:
        """The data directory with the metadata log: as configured, or the only candidate."""
        candidates = (directory.path for directory in self.directories if directory.metadata_log)
        path = self.server.metadata_directory or next(candidates, None)
        return None if path is None else path.resolve()

    @property
    def is_kraft(self) -> bool:
        """Whether these are directories of KRaft's era, by their ids or their metadata log."""
        return any(
            directory.metadata_log is not None
            or (directory.meta is not None and directory.meta.version == 1)
            for directory in self.directories
        )

    @property
    def forgotten_topics(self) -> list[str]:
        """Topics that a start forgets, by name."""
        if self.before is None or self.cluster is None:
            return []
        topics = self.before.topics
        return sorted(topics[topic_id] for topic_id in topics.keys() - self.cluster.topics.keys())

    def is_forgotten(self, path: Path) -> bool:
        """Whether a start puts a partition aside because the metadata log is cut."""
        if self.cluster is None or self.cluster is self.before:
            return False
        return metadata.topic_id_in(path) not in self.cluster.topics

    @property
    def strays(self) -> list[PartitionOutlook]:
        """The logs that a start puts aside because the metadata log is cut."""
        paths = [entry.path for entry in self.logs.values() if self.is_forgotten(entry.path)]
        return [self.loads[str(path)] for path in paths if str(path) in self.loads]

    @property
    def lacks_log(self) -> bool:
        """Whether no metadata log is here, or one that no broker used, beside partitions."""
        cluster = self.before
        if self.log is None or cluster is None:
            return self.log is None and cluster is None
        is_whole = cluster.cut_at is None and (cluster.trusted or not cluster.end_offset)
        is_new = not (cluster.topics or cluster.facts["brokers"])
        return bool(self.logs) and is_whole and is_new

    def directory_id_of(self, assigned: Assigned) -> str | None:
        """The id of the data directory in which the metadata log has a partition of this node."""
        directory_id = assigned.directory_of(self.node_id or 0)
        return None if directory_id is None else id_text(directory_id)

    def directory_of(self, assigned: Assigned) -> BrokerDirectory | None:
        """The data directory in which a partition is, or would be made; None if it is not here."""
        directory_id = self.directory_id_of(assigned)
        loaded = [part for part in self.directories if part.loads_logs] or self.directories
        by_id = {part.meta.directory_id: part for part in loaded if part.meta is not None}
        paths = {part.path.resolve() for part in loaded}
        configured = {path.resolve() for path in self.server.directories}
        # All configured directories are here, with ids: a directory of another id is one of them
        # that was replaced, and its partitions are made again in the first.
        is_replaced = configured and configured <= paths and len(by_id) == len(paths)
        directory = None if directory_id is None else by_id.get(directory_id)
        is_first = directory is None and (directory_id is None or is_replaced)
        return loaded[0] if is_first else directory

    def has_copy(self, directory: BrokerDirectory, partition: TopicPartition) -> bool:
        """Whether a start turns an unfinished copy into the log of a partition of this node.

        Source: Kafka `LogManager.recoverAbandonedFutureLogs`.
        """
        topic_id, assigned = self.assignments[partition]
        directory_id = self.directory_id_of(assigned)
        if (
            directory_id is None
            or directory.meta is None
            or directory.meta.directory_id != directory_id
        ):
            return False
        copies = (entry for entry in directory.entries if entry.kind is EntryKind.FUTURE)
        return any(
            copy.partition == partition and metadata.topic_id_in(copy.path) == topic_id
            for copy in copies
        )

    def strangers(self) -> dict[str, list[str]]:
        """This node's partitions in directories that are not here, keyed by directory id."""
        names: dict[str, list[str]] = {}
        for partition, (_, assigned) in self.assignments.items():
            directory_id = self.directory_id_of(assigned)
            if directory_id is not None and self.directory_of(assigned) is None:
                names.setdefault(directory_id, []).append(name_of(partition))
        return names


def metadata_level(cluster: Cluster | None) -> int | None:
    """The metadata version of a cluster; None where it is not known."""
    fact = None if cluster is None else cluster.facts["features"].get(("metadata.version",))
    return None if fact is None else int(fact.fields["level"])


def name_of(partition: TopicPartition) -> str:
    """The name of a partition's directory."""
    return f"{partition.topic}-{partition.partition}"


def refusal(load: PartitionOutlook, cluster: Cluster | None) -> KsegError | None:
    """The error at which reading of the metadata log stopped, if the load leaves that offset there.

    None if no reading stopped, or the load cuts the log before that offset.
    """
    if cluster is None or cluster.cut_at is None or cluster.cut_at >= load.log_end_offset:
        return None
    return cluster.findings[-1]


def understood(cluster: Cluster | None) -> Cluster | None:
    """The cluster if its records about partitions are understood up to the end or the cut."""
    if cluster is None or not (cluster.trusted or cluster.cut_at is not None):
        return None
    return cluster


def _all_assignments(
    cluster: Cluster | None, node_id: int | None
) -> Iterator[tuple[TopicPartition, tuple[UUID, Assigned]]]:
    """Each partition with a replica on this broker, the topic's id, and its replicas."""
    if cluster is None or not cluster.knows_replicas:
        return
    for topic_id, partitions in cluster.partitions.items():
        topic = cluster.topics.get(topic_id)
        for number, assigned in partitions.items():
            if topic is not None and node_id in assigned.replicas:
                yield TopicPartition(topic, number), (topic_id, assigned)


def records_in(loads: Iterable[PartitionOutlook]) -> int:
    """The number of offsets of logs, each of which may have a record."""
    return sum(max(load.log_end_offset - load.log_start_offset, 0) for load in loads)
