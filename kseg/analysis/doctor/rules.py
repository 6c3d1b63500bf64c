"""The rules about data directories, and about the directories of a broker together.

A rule, such as `_of_lock`, takes facts and yields the findings about its subject. `of_directory`
applies the rules of a data directory, `of_node` those of all directories together and of the
machine. `kseg.analysis.doctor.words` has the messages, which a rule names by a code.

A start puts aside a partition that is not this node's, and makes an empty log for each of its
partitions that no directory has. So records under a wrong topic id, or on a disk that is not
mounted, go out of service.

Kafka checks the type and the range of each setting that it knows, before it loads a log: those of
its file when it reads this, those of every topic when it makes the configurations of logs. A name
that it does not know is ignored.

Source: Kafka `KafkaConfig`, `DynamicConfigPublisher`, `LogConfig`, `LogManager`,
`BrokerMetadataPublisher`, `MetaPropertiesEnsemble.verify`, `KafkaRaftServer.initializeLogDirs`.
"""

from __future__ import annotations

import os
import re
import resource
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, TypeVar
from uuid import UUID

from kseg.analysis.doctor.facts import (
    CHECKPOINTS,
    Attempt,
    BrokerDirectory,
    Node,
    name_of,
    reason_of,
    records_in,
    understood,
)
from kseg.analysis.doctor.kraft import of_damage, of_kraft_files, of_metadata_elsewhere
from kseg.analysis.doctor.values import PartitionOutlook
from kseg.analysis.doctor.words import (
    SENTENCES,
    BrokerFinding,
    Outcome,
    advice,
    event,
    finding,
)
from kseg.commands import command_line
from kseg.documents import id_of, id_text
from kseg.errors import CorruptIndexError, KsegError
from kseg.files import io, lock
from kseg.files.checkpoints import TopicPartition
from kseg.files.metadata import topic_id_in
from kseg.files.names import FileKind
from kseg.files.selection import some_of
from kseg.format.times import iso_text
from kseg.internal.releases import definitions, refused_settings
from kseg.log.data_directory import DirectoryEntry, EntryKind
from kseg.log.settings import (
    BROKER_NAMES,
    DIRECTORY_RESERVED_MAX,
    TOPIC,
    Assigned,
    Cluster,
    broker_name_of,
)

Findings = Iterator[BrokerFinding]

#: The file system makes it where one is mounted.
LOST_AND_FOUND: Final = "lost+found"
_META: Final = FileKind.META_PROPERTIES.value
_METADATA: Final = FileKind.PARTITION_METADATA.value
_STORAGE_ERROR: Final = "KafkaStorageException"
_NAMES_MAX: Final = 3
_SET_ASIDE: Final = {
    EntryKind.UNKNOWN: "foreign-directory",
    EntryKind.DELETE: "set-aside.delete",
    EntryKind.STRAY: "set-aside.stray",
    EntryKind.FUTURE: "set-aside.future",
}


# ---- a data directory ----------------------------------------------------------------------------


def of_directory(
    node: Node, directory: BrokerDirectory, loads: Sequence[PartitionOutlook]
) -> Findings:
    """The findings about a data directory itself, not about its partitions.

    Args:
        node: the node.
        directory: one of its data directories.
        loads: the load of each partition in it.
    """
    error = directory.listed.error
    if isinstance(error, FileNotFoundError):
        yield finding("missing", directory.path)
    elif error is not None:
        yield _unreadable(directory.path, error)
    else:
        for rule in _OF_DIRECTORY:
            yield from rule(directory, loads)
    if not node.server.is_controller_alone:
        yield from _in_the_way(node, directory)


def _unreadable(path: Path, error: KsegError | OSError) -> BrokerFinding:
    culprit = getattr(error, "filename", None) or path
    return finding("unreadable", culprit, reason=reason_of(error))


def _of_file_system(directory: BrokerDirectory, _loads: object) -> Findings:
    """A file system that is read-only, or has no room for further files."""
    disk = directory.disk
    assert disk is not None
    if disk.f_flag & os.ST_RDONLY:
        yield finding("read-only", directory.path)
    if disk.f_files and not disk.f_favail:
        yield finding("inodes", directory.path)


def _of_lock(directory: BrokerDirectory, _loads: object) -> Findings:
    """Another process that holds the lock of the directory."""
    holder, error = directory.holder
    if error is not None:
        yield _unreadable(directory.path, error)
    elif holder is not None:
        yield finding("in-use", directory.path, who=lock.who_holds(holder))


def _of_meta_properties(directory: BrokerDirectory, _loads: object) -> Findings:
    # `_of_formatting` is about a missing file: its consequence depends on the other directories.
    if (error := directory.ids.error) is not None:
        yield finding("meta-properties", directory.path / _META, reason=reason_of(error))


def _of_checkpoints(directory: BrokerDirectory, loads: Sequence[PartitionOutlook]) -> Findings:
    """Checkpoints that cannot be read, and lines of partitions that are not there."""
    partitions = {entry.partition for entry in directory.entries}
    for kind, (offsets, error) in directory.read.items():
        path = directory.path / kind.value
        if isinstance(error, CorruptIndexError):
            yield _of_checkpoint(error, path, loads)
        elif error is not None:
            values: dict[str, Any] = {"reason": reason_of(error), "partition": None}
            outcome = Outcome.UNKNOWN
            yield finding("checkpoint-format", path, "", outcome=outcome, position=None, **values)
        absent = sorted(
            name_of(partition) for partition in offsets or () if partition not in partitions
        )
        if absent:
            yield finding("checkpoint-entry", path, names=some_of(absent, 2))


def _of_checkpoint(
    error: CorruptIndexError, path: Path, loads: Sequence[PartitionOutlook]
) -> BrokerFinding:
    """The finding about a malformed checkpoint: it is ignored, or stops a directory or a broker.

    A malformed line takes the directory offline; a bad number may only be a warning. A directory
    that a checkpoint takes offline is loaded nevertheless. A load that then deletes a segment, or
    reads where an open transaction begins, stops the broker.

    Args:
        error: the error of reading the checkpoint.
        path: the checkpoint.
        loads: the loads of the partitions of its directory.

    Source: Kafka `LogManager.loadLogs`, `LocalLog.maybeHandleIOException`.
    """
    message_code, outcome, stopping = "checkpoint-format", Outcome.OFFLINE, None
    usual = f"{message_code}.{path.name}"
    is_read_first = usual in SENTENCES
    if error.kafka_exception != CorruptIndexError.kafka_exception:
        outcome = Outcome.STARTS if is_read_first else Outcome.UNKNOWN
        message_code = usual if is_read_first else message_code
    elif is_read_first and any(load.reads_itself for load in loads):
        stopping = next(load.path for load in loads if load.reads_itself)
        outcome = Outcome.FAILS
    return finding(
        message_code,
        path,
        usual,
        outcome=outcome,
        exception=error.kafka_exception,
        position=error.position,
        reason=error.reason,
        partition=stopping,
    )


def _of_mark(directory: BrokerDirectory, _loads: object) -> Findings:
    if (error := directory.mark.error) is not None:
        yield _unreadable(directory.path, error)
    elif directory.logs and not directory.clean:
        yield finding("unclean", directory.path)


def _of_missing_checkpoints(directory: BrokerDirectory, _loads: object) -> Findings:
    """Missing or empty checkpoints of a KRaft broker, which writes each within a minute."""
    has_epochs = any((log.path / FileKind.LEADER_EPOCHS.value).exists() for log in directory.logs)
    is_of_kraft = directory.meta is not None and directory.meta.version == 1
    for kind in CHECKPOINTS:
        path = directory.path / kind.value
        message_code = f"checkpoint-missing.{kind.value}"
        size = path.lstat().st_size if path.exists() else None
        # To Kafka, an empty checkpoint is one without lines.
        if message_code in SENTENCES and is_of_kraft and has_epochs and not size:
            yield finding(message_code, path, state="not here" if size is None else "empty")


def _of_set_aside(directory: BrokerDirectory, _loads: object) -> Findings:
    for entry in directory.entries:
        if (message_code := _SET_ASIDE.get(entry.kind)) is not None:
            is_of_mount = entry.path.name == LOST_AND_FOUND
            yield finding(message_code, entry.path, "set-aside.mount" if is_of_mount else None)


def _of_rights(directory: BrokerDirectory, _loads: object) -> Findings:
    """Files that the broker's user may not read or change."""
    for path, (names, error) in directory.refused.items():
        if error is not None:
            yield _unreadable(path, error)
        elif names:
            yield finding(
                "rights",
                path,
                home=directory.path,
                names=some_of(names, 1),
                user=directory.user,
            )


def _of_disk_room(directory: BrokerDirectory, loads: Sequence[PartitionOutlook]) -> Findings:
    """A disk that has less free room than the loads at a start will write."""
    written = sum(load.written_bytes for load in loads)
    disk = directory.disk
    assert disk is not None
    free = disk.f_bavail * disk.f_frsize
    if written > free:
        yield finding("room", directory.path, written=written, free=free)


_OF_DIRECTORY: Final[
    tuple[Callable[[BrokerDirectory, Sequence[PartitionOutlook]], Findings], ...]
] = (
    _of_file_system,
    _of_lock,
    _of_meta_properties,
    _of_checkpoints,
    _of_mark,
    _of_missing_checkpoints,
    _of_set_aside,
    _of_rights,
    _of_disk_room,
)


def _in_the_way(node: Node, directory: BrokerDirectory) -> Findings:
    """Findings about paths where a starting broker has to make a directory, but something exists.

    It makes the directory of an assigned partition, and renames a `-future` directory to the name
    of its partition.

    Source: Kafka `LogManager.createLogDirectory`, `LogManager.recoverAbandonedFutureLogs`.
    """
    futures = {
        entry.partition: entry.path for entry in directory.entries if entry.kind is EntryKind.FUTURE
    }
    for partition, (topic_id, assigned) in node.assignments.items():
        path = directory.path / name_of(partition)
        if node.directory_of(assigned) is not directory or not os.path.lexists(path):
            continue
        future = futures.get(partition)
        log = node.logs.get(partition)
        if log is None:
            yield finding("unreadable.in-the-way", path, exception=_STORAGE_ERROR)
        elif future is not None and log.path == path and topic_id_in(future) == topic_id:
            message_code = "duplicate-partition.future"
            yield finding(message_code, future, exception=_STORAGE_ERROR, name=path.name)


# ---- the partitions that are here ----------------------------------------------------------------


def judged(node: Node) -> Iterator[PartitionOutlook]:
    """The load of each partition, with the findings that follow from the metadata log."""
    strays = node.strays
    for entry in (entry for directory in node.directories for entry in directory.entries):
        load = node.loads.get(os.fspath(entry.path))
        if load is None:
            continue
        if entry.kind is EntryKind.CLUSTER_METADATA:
            load = of_damage(node, load, strays)
        yield _of_partition(node, load, entry)


def _of_partition(node: Node, load: PartitionOutlook, entry: DirectoryEntry) -> PartitionOutlook:
    """The load of a partition, with a finding if a start puts it aside or makes an empty one."""
    cluster = understood(node.cluster)
    partition = entry.partition
    is_copy = entry.kind is EntryKind.FUTURE
    if not (is_copy or entry.kind is EntryKind.LOG) or partition is None or not cluster:
        return load
    topic_id = topic_id_in(entry.path)
    # A `-future` directory is a copy: the partition's log is elsewhere.
    assignment = None if is_copy else node.assignments.get(partition)
    is_there = os.path.lexists(entry.path / _METADATA)
    if topic_id is None and not is_there and load.outcome is Outcome.OFFLINE:
        return load  # perhaps not even its files can be listed
    if topic_id is None and is_there:  # its load says so
        return load if assignment is None else _with_topic_id(load, entry.path, assignment[0])
    why = event("no-id")
    if topic_id is not None:
        reason = cluster.stray_reason(partition, topic_id, node.node_id)
        if not reason or node.is_forgotten(entry.path):
            return load
        why = event("stray", reason=reason)
    if assignment is None:
        added = finding("stray", load.path, why=why)
    else:
        lines = _topic_id_command(entry.path, assignment[0])
        renaming = event("renamed", why=why)
        records = records_in([load])
        added = _without_records(
            node, assignment[1], load.path, renaming, "topic-id", records, **lines
        )
    return replace(load, findings=(*load.findings, added))


def _with_topic_id(load: PartitionOutlook, path: Path, topic_id: UUID) -> PartitionOutlook:
    """The load, its findings about `partition.metadata` with the command that writes this id."""
    mend = advice("topic-id", path, **_topic_id_command(path, topic_id))
    findings = (
        replace(item, mend=mend) if os.path.basename(item.path) == _METADATA else item
        for item in load.findings
    )
    return replace(load, findings=tuple(findings))


def _topic_id_command(path: Path, topic_id: UUID) -> dict[str, str | Path]:
    """The parts of the command that writes a topic's id into `partition.metadata`.

    A new file gets the owner of its directory.
    """
    file = path / _METADATA
    chown = f" && {command_line('chown', f'--reference={path}', file)}"
    text = command_line(f"version: 0\\ntopic_id: {id_text(topic_id)}\\n")
    return {"text": text, "file": file, "chown": "" if file.exists() else chown}


# ---- the partitions that are not -----------------------------------------------------------------


def _of_absent_partitions(node: Node) -> Findings:
    """Partitions assigned to this node that no directory has, or to directories not here."""
    for partition, (_, assigned) in node.assignments.items():
        home = node.directory_of(assigned)
        if home is None or partition in node.logs:
            continue
        path = home.path / name_of(partition)
        # A file with the partition's name is reported by `_in_the_way`.
        if node.has_copy(home, partition) or os.path.lexists(path):
            continue
        not_loaded = (home.path for home in node.directories if not home.loads_logs)
        other = next((parent for parent in not_loaded if (parent / path.name).is_dir()), None)
        state = "absent" if other is None else "unnamed"
        loss = event(state, other=other)
        records = _known_records(node, partition)
        remedy = f"partition-lost.{state}"
        yield _without_records(node, assigned, path, loss, remedy, records, other=other)
    if all(directory.meta is not None for directory in node.directories):
        for directory_id, names in node.strangers().items():
            place_id = f"directory.id {directory_id}"
            yield finding("partition-elsewhere", place_id, names=_in_words(names))


def _known_records(node: Node, partition: TopicPartition) -> int | None:
    """The number of offsets of a partition according to the checkpoints; None if unknown."""
    for directory in node.directories:
        if (end := directory.known_end(partition)) is not None:
            return max(end - directory.checkpointed(partition).log_start_offset, 0)
    return None


def _without_records(
    node: Node,
    assigned: Assigned,
    path: str | Path,
    cause: str,
    remedy: str,
    records: int | None,
    **values: Any,
) -> BrokerFinding:
    """The finding about a start that begins a partition of this node without records."""
    in_sync = [number for number in assigned.isr if number != node.node_id]
    nodes = ", ".join(map(str, in_sync)) or None
    if node.cluster is not None and not node.is_controller:  # its metadata log may be old
        time = iso_text(node.cluster.time_ms) or "no known time"
        cause += event("as-of", offset=node.cluster.end_offset, time=time)
    if node.node_id in assigned.adding:
        return finding("partition-elsewhere.copying", path, event=cause, nodes=nodes)
    if in_sync and assigned.leader != node.node_id:
        return finding("partition-behind", path, event=cause, nodes=nodes)
    lost: dict[str, Any] = {"records": records, "event": cause, "nodes": nodes}
    return finding("partition-lost", path, remedy, **lost, **values)


def _in_words(names: Sequence[str]) -> str:
    """How many partitions, and the names of the first ones.

    >>> _in_words(["a-0"]), _in_words(["a-0", "a-1", "a-2", "a-3"])
    ('1 partition (a-0)', '4 partitions (a-0, a-1, a-2 and 1 more)')
    """
    many = "partition" if len(names) == 1 else "partitions"
    return f"{len(names)} {many} ({some_of(names, _NAMES_MAX)})"


# ---- the directories together --------------------------------------------------------------------

_Key = TypeVar("_Key")
MAPS_MAX: Final = Path("/proc/sys/vm/max_map_count")
#: Open files of a broker besides those of segments: its connections, for example.
_FILES_BESIDE: Final = 1_000
#: A directory that is not there is made.
_NO_ERROR: Final = (type(None), FileNotFoundError)
#: The first major release in which all directories are formatted before a start.
_FORMATTED_SINCE: Final = 4


def of_node(node: Node, outcomes: Mapping[Path, Outcome]) -> Findings:
    """The findings about a broker and the machine.

    Args:
        node: the node.
        outcomes: the outcome of each data directory, keyed by its path.
    """
    for rule in (*_FIRST, *(_OF_KRAFT if node.is_kraft else ()), *_LAST):
        yield from rule(node)
    if _is_formatted_first(node) and not node.is_kraft:
        yield from _of_formatting(node)
    yield from _of_missing_ids(node)
    yield from _of_outcomes(node, outcomes)
    yield from _of_settings(node)


def _of_unread_settings(node: Node) -> Findings:
    for path, reason in node.settings.errors.items():
        unknown = Outcome.UNKNOWN
        yield finding("unreadable", path, outcome=unknown, exception=None, reason=reason)


def _of_same_directory(node: Node) -> Findings:
    for path, other, _ in _repeated_places(
        (directory.path.resolve(), directory.path) for directory in node.directories
    ):
        yield finding("same-directory", path, other=other)


def _of_ids(node: Node) -> Findings:
    """Ids in `meta.properties` that should be equal but differ, or should differ but are equal.

    Directories have the same cluster id and node id; each has a directory id of its own.
    """
    meta_files = [
        (directory.path / _META, directory.meta)
        for directory in node.directories
        if directory.meta is not None
    ]
    meta_files.sort(key=lambda pair: str(pair[0]))
    for name, expected in (("cluster.id", None), ("node.id", node.server.node_id)):
        values = [(path, getattr(meta, name.replace(".", "_"))) for path, meta in meta_files]
        present_values = (value for _, value in values if value is not None)
        first = next(present_values, None) if expected is None else expected
        for path, value in values:
            if value not in (None, first):
                yield finding("ids", path, name=name, value=value, expected=first)
    ids = [(meta.directory_id, path) for path, meta in meta_files if meta.directory_id is not None]
    for directory_id, path in ids:
        if id_of(directory_id).int <= DIRECTORY_RESERVED_MAX:
            yield finding("ids.reserved", path, id=directory_id)
    for path, other, directory_id in _repeated_places(ids):
        if other != path:
            yield finding("ids.copy", path, id=directory_id, other=other.parent)


def _repeated_places(places: Iterable[tuple[_Key, Path]]) -> Iterator[tuple[Path, Path, _Key]]:
    """Each repetition of a key: its path, the path where the key occurs first, and the key."""
    first: dict[_Key, Path] = {}
    for key, path in places:
        other = first.setdefault(key, path)
        if other is not path:
            yield path, other, key


def _is_formatted_first(node: Node) -> bool:
    return int(node.release.partition(".")[0]) >= _FORMATTED_SINCE


def _of_formatting(node: Node) -> Findings:
    """Directories without meta.properties: disks that are not mounted, or new ones."""
    for directory in node.directories:
        attempts = (directory.listed, directory.holder, directory.mark, *directory.refused.values())
        is_readable = all(isinstance(error, _NO_ERROR) for _, error in attempts)
        if is_readable and directory.ids == Attempt():
            yield _of_unformatted(node, directory)


def _of_unformatted(node: Node, directory: BrokerDirectory) -> BrokerFinding:
    """The finding about a directory without ids: what it probably is, and the advice."""
    path = directory.path / _META
    partitions = [name for name, entry in node.logs.items() if entry.path.parent == directory.path]
    ids = Counter(
        node.directory_id_of(node.assignments[partition][1])
        for partition in partitions
        if partition in node.assignments
    )
    meta = next((home.meta for home in node.directories if home.meta is not None), None)
    cluster_id = meta and meta.cluster_id
    if partitions and cluster_id:
        lines = ["version=1", f"cluster.id={cluster_id}", f"node.id={node.node_id}"]
        directory_ids = [
            directory_id for directory_id, _ in ids.most_common() if directory_id is not None
        ]
        lines += [f"directory.id={directory_id}" for directory_id in directory_ids[:1]]
        text = command_line("\\n".join([*lines, ""]))
        return finding("not-formatted", path, count=len(partitions), text=text)
    strangers = node.strangers()
    if strangers and not partitions:
        lost = "; ".join(
            f"{_in_words(names)} in {directory_id}" for directory_id, names in strangers.items()
        )
        return finding("not-formatted.unmounted", path, lost=lost)
    return finding("not-formatted.new", path, cluster=command_line(cluster_id or "CLUSTER_ID"))


def _of_missing_ids(node: Node) -> Findings:
    """Directories whose `meta.properties` lacks ids that a start needs."""
    for directory in node.directories if _is_formatted_first(node) or node.is_kraft else ():
        meta = directory.meta
        if meta is not None and None in (meta.node_id, meta.cluster_id):
            yield finding(
                "meta-properties.ids",
                directory.path / _META,
                outcome=Outcome.FAILS,
                exception="RuntimeException",
                version=meta.version,
            )


def _of_duplicates(node: Node) -> Findings:
    """Partitions that are in two data directories; a link from one to the other does not count."""
    entries = (
        ((entry.kind, entry.partition), entry.path)
        for directory in node.directories
        for entry in directory.entries
        if entry.partition is not None and entry.kind in (EntryKind.LOG, EntryKind.FUTURE)
    )
    for path, other, _ in _repeated_places(entries):
        if other.resolve() != path.resolve():
            yield finding("duplicate-partition", path, other=other)


def _of_machine(node: Node) -> Findings:
    """Limits of this process that are too low for the segments; a broker's may be others."""
    segments = sum(directory.log_count for directory in node.directories)
    limit, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit != resource.RLIM_INFINITY and segments + _FILES_BESIDE > limit:
        yield finding("open-files", "ulimit -n", segments=segments, limit=limit)
    with suppress(OSError, ValueError):
        limit = io.read_kernel_number(MAPS_MAX)
        if 2 * segments > limit:
            enough = max(4 * segments, 262_144)
            yield finding("maps", MAPS_MAX, indexes=2 * segments, limit=limit, enough=enough)


def _of_not_given(node: Node) -> Findings:
    resolved = {directory.path.resolve() for directory in node.directories}
    for path in node.server.directories:
        if path.resolve() not in resolved:
            yield finding("not-given", path)


#: The rules about all nodes, before those of KRaft and after them.
_FIRST: Final = (_of_unread_settings, _of_same_directory, _of_ids)
_OF_KRAFT: Final = (_of_formatting, of_metadata_elsewhere, _of_absent_partitions)
_LAST: Final = (_of_duplicates, _of_machine, _of_not_given, of_kraft_files)


def _of_outcomes(node: Node, outcomes: Mapping[Path, Outcome]) -> Findings:
    """The consequences for the broker of directories that a start takes offline."""
    offline = [
        directory for directory in node.directories if outcomes[directory.path] is Outcome.OFFLINE
    ]
    for directory in offline:
        if directory.path.resolve() == node.metadata_directory:
            yield finding("metadata-offline", directory.path)
    if len(offline) == len(node.directories):
        yield finding("no-directory", offline[0].path)


def _of_settings(node: Node) -> Findings:
    """The settings that Kafka refuses or ignores; a controller that is no broker has no topics."""
    properties = node.server.properties
    path = node.settings.broker_config
    if properties is not None and path is not None:
        yield from _of_properties(str(path), properties, node.release)
    cluster = understood(node.cluster)
    if cluster is not None and node.log is not None and not node.server.is_controller_alone:
        yield from _of_topics(node.log, cluster, properties, node.release)


# ---- settings ------------------------------------------------------------------------------------

#: A value of a broker's file that is shown. Another may belong to a password.
_SHOWN: Final = re.compile(r"[\d+.-]{0,20}", re.ASCII)
#: The bytes of a byte-order mark in UTF-8, as Java reads them.
_BYTE_ORDER_MARK: Final = "\u00ef\u00bb\u00bf"
_PROVIDER: Final = re.compile(r"config\.providers\.[^.]+\.class")
_REMOTE_SYSTEM: Final = "remote.log.storage.system.enable"


def _of_properties(path: str, properties: Mapping[str, str], release: str) -> Findings:
    """The settings of a broker's file that Kafka refuses, ignores or misses.

    Args:
        path: the file.
        properties: the settings in it.
        release: the release of Kafka.
    """
    broker_definitions = definitions("broker", release)
    has_provider = any(_PROVIDER.fullmatch(name) for name in properties)
    plain = {
        name: text for name, text in properties.items() if not (has_provider and "${" in text)
    }  # only the provider knows the others
    for name, allowed in refused_settings("broker", plain, release).items():
        text = properties.get(name, "")
        is_shown = name in BROKER_NAMES and _SHOWN.fullmatch(text)
        yield finding(
            "setting-refused" if is_shown else "setting-refused.hidden",
            path,
            "setting-refused",
            name=name,
            value=text,
            comment="#" if "#" in text else None,
            release=release,
            allowed=allowed,
        )
    for name in properties:
        if name.startswith(_BYTE_ORDER_MARK):
            yield finding("setting-ignored.mark", path, name=name.removeprefix(_BYTE_ORDER_MARK))
        elif name not in broker_definitions and name in definitions("topic", release):
            yield finding("setting-ignored", path, name=name, right=broker_name_of(name))
    if "process.roles" not in properties and int(release.partition(".")[0]) >= 4:
        yield finding("setting-missing", path)


def _of_topics(
    log: Path, cluster: Cluster, properties: Mapping[str, str] | None, release: str
) -> Findings:
    """The settings of topics that Kafka refuses, and tiered topics of a broker without a tier.

    Args:
        log: the directory of the metadata log.
        cluster: the cluster according to this log.
        properties: the settings in the broker's file; None if there is no such file.
        release: the release of Kafka.
    """
    tiered = []
    refused: dict[tuple[str, str], dict[str, str]] = {}
    for topic in sorted(cluster.topics.values()):
        facts = cluster.configs.get((TOPIC, topic), {})
        values = {name: fact.value for name, fact in facts.items()}
        for setting in refused_settings("topic", values, release).items():
            refused.setdefault(setting, {})[topic] = values[setting[0]]
        if values.get("remote.storage.enable", "").lower() == "true":
            tiered.append(topic)
    for (name, allowed), texts in refused.items():
        topics = [f"{text!r} in topic {topic}" for topic, text in texts.items()]
        yield finding(
            "setting-refused.topic",
            log,
            name=name,
            values=some_of(topics, _NAMES_MAX),
            release=release,
            allowed=allowed,
            topic=command_line(*texts if len(texts) == 1 else ("TOPIC",)),
        )
    is_off = properties is not None and properties.get(_REMOTE_SYSTEM, "").lower() != "true"
    if tiered and is_off:
        yield finding("tier-off", log, topics=some_of(tiered, _NAMES_MAX))
