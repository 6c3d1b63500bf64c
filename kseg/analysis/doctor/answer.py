"""`doctor`: one page about all data directories of a broker.

First each directory is read by itself: ids, mark, checkpoints, rights, room (`look_at_home`). Then
come the partitions that the metadata log gives to this node (`Node`), and what contradicts between
the directories (`across`). A start puts aside a partition that is not this node's, and makes an
empty log for each of its partitions that no directory has. So records go out of service that lie
under a wrong topic id, or on a disk that is not mounted.

A metadata log of KRaft that is missing, or that a start cuts, comes back or not depending on the
quorum. A node that is only a broker fetches it from the controllers. A controller fetches it from
the leader, if others lead. The only controller goes on with its own log, and puts every partition
aside that this log does not name.

Source: Kafka `LogManager`, `KafkaRaftLog`, `KafkaRaftClient`, `BrokerMetadataPublisher`,
`MetaPropertiesEnsemble.verify`, `KafkaRaftServer.initializeLogDirs`,
`Partition.createLogInAssignedDirectoryId`.
"""

from __future__ import annotations

import json
import os
import resource
import stat
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from os import PathLike, fspath, statvfs
from pathlib import Path
from typing import Final, NamedTuple
from uuid import UUID

from kseg.analysis.doctor.partitions import PartitionUnit, examine
from kseg.analysis.doctor.values import (
    BrokerFinding,
    DirectoryOutlook,
    DoctorReport,
    Outcome,
    PartitionOutlook,
)
from kseg.analysis.known_settings import KnownSettings
from kseg.analysis.units import Jobs, Progress, run_units
from kseg.commands import command_line
from kseg.errors import CorruptIndexError, KsegError, NotALogError, os_reason
from kseg.files import checkpoints, io, lock, metadata
from kseg.files.checkpoints import TopicPartition
from kseg.files.metadata import MetaProperties, is_of_broker
from kseg.files.names import FileKind, PathKind, classify_path
from kseg.format.times import Time, iso_text
from kseg.internal.ids import id_text
from kseg.log.clock import now_of
from kseg.log.config import LogConfig
from kseg.log.data_directory import (
    CLUSTER_METADATA,
    DirectoryEntry,
    EntryKind,
    PartitionOffsets,
    list_entries,
)
from kseg.log.settings import TOPIC, Assigned, Cluster, SettingSources, read_cluster

#: Since Kafka 4.0 (KIP-1030); it was 1 before.
THREADS_DEFAULT: Final = 2
_THREADS: Final = "num.recovery.threads.per.data.dir"


@dataclass(frozen=True, slots=True)
class BrokerFile:
    """What is read of it.

    Attributes:
        directories: of `log.dirs`, or else `log.dir`; empty where the file names none.
        metadata_directory: of `metadata.log.dir`; the first of `directories` else.
        node_id: of `node.id`, or else `broker.id`; None where the file names none.
        threads: that load the partitions of one data directory.
        roles: of `process.roles`; none where the file names none.
        voters: of `controller.quorum.voters`; none where the file names none.
        voters_max: how many there are at most; None where the file does not say.
    """

    directories: tuple[Path, ...] = ()
    metadata_directory: Path | None = None
    node_id: int | None = None
    threads: int = THREADS_DEFAULT
    roles: tuple[str, ...] = ()
    voters: tuple[int, ...] = ()
    voters_max: int | None = None


def read_broker_file(path: str | PathLike[str] | None) -> BrokerFile:
    """Read it; what a broker has by default where there is no such file.

    Raises:
        ValueError: it is malformed, or a number is none.
        OSError: it cannot be read.
    """
    if path is None:
        return BrokerFile()
    found = metadata.read_properties(path)
    directories = tuple(map(Path, metadata.log_directories(found)))
    servers = _words(found, "controller.quorum.bootstrap.servers")
    voters = _words(found, "controller.quorum.voters")
    numbers = (each.partition("@")[0] for each in voters)
    own = found.get("metadata.log.dir")
    first = directories[0] if directories else None
    return BrokerFile(
        directories,
        Path(own.strip()) if own else first,
        _number(found, "node.id") if "node.id" in found else _number(found, "broker.id"),
        max(_number(found, _THREADS) or THREADS_DEFAULT, 1),
        _words(found, "process.roles"),
        tuple(int(each) for each in numbers if each.isdecimal()),
        len(voters or servers) or None,
    )


def _words(found: Mapping[str, str], name: str) -> tuple[str, ...]:
    """The words of a list with commas."""
    return tuple(each.strip() for each in found.get(name, "").split(",") if each.strip())


def _number(found: Mapping[str, str], name: str) -> int | None:
    text = found.get(name, "").strip()
    try:
        return int(text) if text else None
    except ValueError:
        raise ValueError(f"{name} is {text!r}, not a number") from None


_CHECKPOINTS: Final = (
    FileKind.RECOVERY_POINT,
    FileKind.LOG_START,
    FileKind.REPLICATION,
    FileKind.CLEANER,
)
#: What a broker does without one of these that is not a malformed line, but a bad number.
_RESET: Final = {
    FileKind.RECOVERY_POINT: "Kafka takes 0 for every recovery point, and reads all logs again",
    FileKind.LOG_START: "Kafka lets every log start at its first segment",
}
#: Names of the checkpoints that are read before the logs of a directory are loaded.
READ_FIRST: Final = tuple(kind.value for kind in _RESET)
_MOVE: Final = "move it out of the data directory"


@dataclass(slots=True)
class BrokerDirectory:
    """A data directory as it was found.

    Attributes:
        path: as it was given.
        entries: its sub-directories.
        clean: whether the mark of a clean stop is there.
        meta: its ids; None where they are not known.
        offsets: of the checkpoints, by kind; none of one that was not understood.
        findings: the findings.
        logs: log files in it.
        largest: bytes of log by the name of a partition's directory.
    """

    path: Path
    entries: tuple[DirectoryEntry, ...] = ()
    clean: bool = False
    meta: MetaProperties | None = None
    offsets: dict[FileKind, dict[TopicPartition, int]] = field(default_factory=dict)
    findings: list[BrokerFinding] = field(default_factory=list)
    logs: int = 0
    sizes: dict[str, int] = field(default_factory=dict)

    @property
    def exists(self) -> bool:
        """Whether it could be listed."""
        return bool(self.entries) or self.path.is_dir()

    def told_of(self, partition: TopicPartition | None) -> PartitionOffsets:
        """What the checkpoints say of a partition."""
        if partition is None:
            return PartitionOffsets(clean=self.clean)
        point, start = (
            max(self.offsets.get(kind, {}).get(partition, 0), 0)
            for kind in (FileKind.RECOVERY_POINT, FileKind.LOG_START)
        )
        return PartitionOffsets(point, start, clean=self.clean)


def look_at_home(path: Path, *, loads_logs: bool = True) -> BrokerDirectory:
    """Look at a data directory; what cannot be read is a finding.

    Args:
        path: the directory.
        loads_logs: whether the node does; one that only is a controller has the metadata log alone,
            and passes over all partitions and checkpoints.
    """
    home = BrokerDirectory(path)
    try:
        home.entries = list_entries(path)
    except FileNotFoundError:
        message = "there is no such directory: a broker makes it, and none of its logs is there"
        home.findings.append(BrokerFinding("missing", str(path), message, mend="mount the disk"))
        return home
    except OSError as error:
        home.findings.append(_unreadable(error, path))
        return home
    home.findings.extend(_of_file_system(path))
    home.findings.extend(_of_lock(path))
    _read_meta(home)
    if not loads_logs:
        kraft = EntryKind.CLUSTER_METADATA
        home.entries = tuple(entry for entry in home.entries if entry.kind is kraft)
    for kind in _CHECKPOINTS if loads_logs else ():
        _read_checkpoint(home, kind)
    _read_mark(home)
    home.findings.extend(_of_entries(home))
    _look_at_files(home)
    return home


def _unreadable(error: OSError, path: Path) -> BrokerFinding:
    where = str(error.filename or path)
    reason = os_reason(error)
    return BrokerFinding("unreadable", where, reason, Outcome.OFFLINE, "IOException")


def _of_file_system(path: Path) -> Iterator[BrokerFinding]:
    found = os.statvfs(path)
    if found.f_flag & os.ST_RDONLY:
        message = "the file system can only be read: a broker cannot even take its lock"
        yield BrokerFinding(
            "read-only", str(path), message, Outcome.OFFLINE, "IOException", "remount it"
        )
    if found.f_files and not found.f_favail:
        message = "the file system takes no more files: loading makes snapshots and indexes"
        yield BrokerFinding(
            "inodes", str(path), message, Outcome.OFFLINE, "IOException", "free inodes"
        )


def _of_lock(path: Path) -> Iterator[BrokerFinding]:
    try:
        holder = lock.holder(path)
    except OSError as error:
        yield _unreadable(error, path)
        return
    if holder is not None:
        message = f"{lock.who_holds(holder)}; a second start fails, and what is here may change"
        yield BrokerFinding("in-use", str(path), message, Outcome.UNKNOWN, "KafkaException")


def _read_mark(home: BrokerDirectory) -> None:
    try:
        home.clean = metadata.read_clean_shutdown(home.path) is not None
    except OSError as error:
        home.findings.append(_unreadable(error, home.path))
        return
    if not home.clean and any(entry.kind is EntryKind.LOG for entry in home.entries):
        message = "no mark of a clean stop: what was not flushed is read again"
        mend = command_line("kseg", "recover", home.path, "--apply")
        home.findings.append(BrokerFinding("unclean", str(home.path), message, mend=mend))


def _read_meta(home: BrokerDirectory) -> None:
    path = home.path / FileKind.META_PROPERTIES.value
    try:
        home.meta = metadata.read_meta_properties(path)
    except FileNotFoundError:
        pass  # `of_formatting` says what follows: it depends on the other directories
    except (KsegError, OSError) as error:
        reason = error.reason if isinstance(error, KsegError) else os_reason(error)
        home.findings.append(
            BrokerFinding(
                "meta-properties",
                str(path),
                reason,
                Outcome.OFFLINE,
                "IOException",
                "write it anew with the ids of the other directories",
            )
        )


def _read_checkpoint(home: BrokerDirectory, kind: FileKind) -> None:
    path = home.path / kind.value
    try:
        home.offsets[kind] = dict(checkpoints.read_offset_checkpoint(path).offsets)
    except FileNotFoundError:
        return
    except CorruptIndexError as error:
        home.findings.append(_of_checkpoint(error, path, kind))
        return
    except (KsegError, OSError) as error:
        reason = error.reason if isinstance(error, KsegError) else os_reason(error)
        found = BrokerFinding("checkpoint-format", str(path), reason, Outcome.UNKNOWN)
        home.findings.append(found)
        return
    here = {entry.partition for entry in home.entries}
    gone = [f"{one.topic}-{one.partition}" for one in home.offsets[kind] if one not in here]
    if gone:
        more = f" and {len(gone) - 2} more" if len(gone) > 2 else ""
        message = f"it names what is not here: {', '.join(sorted(gone)[:2])}{more}"
        home.findings.append(BrokerFinding("checkpoint-entry", str(path), message))


def _of_checkpoint(error: CorruptIndexError, path: Path, kind: FileKind) -> BrokerFinding:
    """A malformed line takes the directory offline; a bad number may only be a warning."""
    where = "" if error.position is None else f"@ {error.position}: "
    message, outcome = f"{where}{error.reason}", Outcome.OFFLINE
    if error.kafka_exception != CorruptIndexError.kafka_exception:
        outcome = Outcome.STARTS if kind in _RESET else Outcome.UNKNOWN
        message += f"; {_RESET[kind]}" if kind in _RESET else ""
    mend = "delete the file: " + _RESET.get(kind, "a broker makes it anew")
    return BrokerFinding(
        "checkpoint-format", str(path), message, outcome, error.kafka_exception, mend
    )


def _of_entries(home: BrokerDirectory) -> Iterator[BrokerFinding]:
    """Sub-directories that a broker refuses, or loads in a way of its own."""
    for entry in home.entries:
        path = str(entry.path)
        if entry.kind is EntryKind.UNKNOWN:
            message = "no name of a partition: no broker starts with such a folder beside its logs"
            yield BrokerFinding(
                "foreign-directory", path, message, Outcome.FAILS, "KafkaException", _MOVE
            )
        elif entry.kind is EntryKind.DELETE:
            yield BrokerFinding(
                "set-aside", path, "waits for its deletion, which a start takes up again"
            )
        elif entry.kind is EntryKind.STRAY:
            message = "astray since an earlier start: kept, not served, never deleted by itself"
            yield BrokerFinding("set-aside", path, message, mend="delete it once nobody misses it")
        elif entry.kind is EntryKind.FUTURE:
            message = "a copy in the making, from another data directory: goes on after a start"
            yield BrokerFinding("set-aside", path, message)


def _look_at_files(home: BrokerDirectory) -> None:
    """Count files, and ask of each whether the directory's owner may read and write it."""
    owner = os.stat(home.path)
    for place in (home.path, *(entry.path for entry in home.entries)):
        try:
            refused = _look_at_directory(home, place, owner)
        except OSError as error:
            home.findings.append(_unreadable(error, place))
            continue
        if refused:
            more = f" and {len(refused) - 1} more" if len(refused) > 1 else ""
            message = (
                f"{os.path.basename(refused[0])}{more}: the owner of the data directory, user "
                f"{owner.st_uid}, may not read and write it"
            )
            mend = command_line("chown", "-R", f"--reference={home.path}", place)
            found = BrokerFinding(
                "rights", str(place), message, Outcome.OFFLINE, "IOException", mend
            )
            home.findings.append(found)


def _look_at_directory(home: BrokerDirectory, place: Path, owner: os.stat_result) -> list[str]:
    """Count a partition's logs; what the owner may not read and write: the directory, or files."""
    if not _may(os.stat(place), owner, 7):
        return [str(place)]
    refused, size = [], 0
    with os.scandir(place) as entries:
        for entry in entries:
            if not entry.is_file():  # a link without a target, too: Kafka passes over it
                continue
            if place != home.path and entry.name.endswith(".log"):
                home.logs += 1
                size += entry.stat().st_size  # which the entry keeps for the next question
            if not _may(entry.stat(), owner, 6):
                refused.append(entry.path)
    if place != home.path:
        home.sizes[place.name] = size
    return refused


def _may(found: os.stat_result, owner: os.stat_result, bits: int) -> bool:
    """Whether a user has rights; root has all. Groups are those of the data directory alone."""
    if owner.st_uid == 0:
        return True
    mode = stat.S_IMODE(found.st_mode)
    if found.st_uid == owner.st_uid:
        return mode >> 6 & bits == bits
    if found.st_gid == owner.st_gid:
        return mode >> 3 & bits == bits
    return mode & bits == bits


LOG_NAME: Final = f"{CLUSTER_METADATA}-0"
_TOPICS_MAX: Final = 5
#: A quorum-state has a line; no more of it is read.
_STATE_BYTES_MAX: Final = 2**20


@dataclass(frozen=True, slots=True)
class Quorum:
    """The part of this node in the quorum.

    Attributes:
        log: the directory of its metadata log; None where none was found.
        is_controller: None where neither the configuration nor the log says it.
        voters: how many there are; None where that is not known.
        before: what the metadata log says, behind damage too; None without one.
        cluster: what of it is left after a start; None where that is not known.
    """

    log: Path | None
    is_controller: bool | None
    voters: int | None
    before: Cluster | None
    cluster: Cluster | None

    @property
    def forgotten(self) -> list[str]:
        """Topics that a start forgets, by name."""
        if self.before is None or self.cluster is None:
            return []
        left = self.cluster.topics
        return sorted(name for one, name in self.before.topics.items() if one not in left)


def quorum_of(
    homes: Iterable[BrokerDirectory],
    server: BrokerFile,
    known: Cluster | None,
    loaded: Mapping[str, PartitionOutlook],
) -> Quorum:
    """Find the quorum in the configuration, in the log and in its `quorum-state`.

    Args:
        homes: the data directories.
        server: what `server.properties` says.
        known: what the metadata log says up to the first damage; None without one.
        loaded: what loading makes of partitions, by path.
    """
    logs = {
        entry.path: home
        for home in homes
        for entry in home.entries
        if entry.kind is EntryKind.CLUSTER_METADATA
    }
    log = next(iter(logs), None)
    voters = server.voters or (known.voters if known is not None else None) or _state_of(log)
    meta = None if log is None else logs[log].meta
    node_id = server.node_id if meta is None else meta.node_id
    is_controller = (
        "controller" in server.roles if server.roles else (node_id in voters if voters else None)
    )
    one = None if log is None else loaded.get(str(log))
    before = cluster = known
    if one is not None and (one.outcome is not Outcome.STARTS or _refusal(one, known)):
        cluster = None
    elif (
        log is not None and one is not None and one.cut_offset is not None and one.lost_records != 0
    ):
        before = read_cluster(log, past_damage=True)
        # A node that only is a broker fetches what is cut before it judges by it.
        cluster = None if is_controller is False else read_cluster(log, end_offset=one.cut_offset)
    return Quorum(log, is_controller, len(voters) if voters else server.voters_max, before, cluster)


def _refusal(one: PartitionOutlook, known: Cluster | None) -> KsegError | None:
    """Why the broker cannot read a metadata log that loading leaves as it is; None if it can."""
    if known is None or known.cut_at is None or known.cut_at >= one.log_end_offset:
        return None
    return known.findings[-1]


def _state_of(log: Path | None) -> tuple[int, ...]:
    """The voters of a `quorum-state` of version 0; those of version 1 are in the log."""
    if log is None:
        return ()
    with suppress(OSError, KsegError, ValueError, TypeError, KeyError, AttributeError):
        text = io.read_file(log / FileKind.QUORUM_STATE.value, bytes_max=_STATE_BYTES_MAX)
        return tuple(int(each["voterId"]) for each in json.loads(text)["currentVoters"])
    return ()


# ---- no log --------------------------------------------------------------------------------------


def of_missing_log(
    homes: Sequence[BrokerDirectory], server: BrokerFile, loaded: Mapping[str, PartitionOutlook]
) -> Iterator[BrokerFinding]:
    """What follows where no directory of a node of KRaft has the metadata log."""
    place = server.metadata_directory
    if place is not None and place.resolve() not in {home.path.resolve() for home in homes}:
        message = "server.properties names it as metadata.log.dir: give it, too"
        yield BrokerFinding("not-given", str(place), message, Outcome.UNKNOWN)
        return
    path = str((place or homes[0].path) / LOG_NAME)
    paths = [str(e.path) for home in homes for e in home.entries if e.kind is EntryKind.LOG]
    names = tuple(os.path.basename(each) for each in paths)
    if server.roles and "controller" not in server.roles:
        message = "not here: the node fetches it from the controllers"
        yield BrokerFinding("metadata-fetched", path, message)
        return
    lost = (
        f"all {len(names)} partitions here become -stray" if names else "all topics are forgotten"
    )
    first, mend = "not here", "Restore it from another controller or a backup."
    if not server.roles:
        where = "" if place else ", and metadata.log.dir is no other directory"
        first = f"if this node is a controller{where}: {first}"
    if server.voters_max != 1 and server.roles:
        message = (
            f"{first}: if the other controllers have no leader, a new cluster may begin, and {lost}"
        )
        mend = "Do not start this node with an empty log before the others are up."
    else:
        message = f"{first}: the broker begins a new cluster without topics, and {lost}"
    records = _records_in(loaded[each] for each in paths if each in loaded)
    yield BrokerFinding(
        "metadata-missing", path, message, mend=mend, records=records, partitions=names
    )


def _records_in(found: Iterable[PartitionOutlook]) -> int:
    """Offsets, each of which may have a record."""
    return sum(max(one.log_end_offset - one.log_start_offset, 0) for one in found)


# ---- a damaged log -------------------------------------------------------------------------------


def with_damage(
    one: PartitionOutlook,
    quorum: Quorum,
    strays: Sequence[PartitionOutlook],
) -> PartitionOutlook:
    """What loading makes of the metadata log, with what follows for this node.

    Args:
        one: the metadata log, as loading it leaves it.
        quorum: of this node.
        strays: partitions that a start puts aside, since it forgets their topics.
    """
    mend = _mend_of(one.path, quorum)
    kept = [
        replace(each, mend=mend if each.severity == "error" else None)
        for each in one.findings
        if each.code not in ("swept", "records-cut")
    ]
    if one.lost_records != 0:
        kept.append(_cut(one, quorum, strays, mend))
    refusal = _refusal(one, quorum.before) if one.outcome is Outcome.STARTS else None
    if refusal is not None and one.cut_offset is None:
        message = f"loading keeps what no broker can read: {refusal.reason}"
        # Of a gap between offsets it is not known.
        outcome = Outcome.UNKNOWN if refusal.position is None else Outcome.FAILS
        exception = None if refusal.position is None else "CorruptRecordException"
        kept.append(BrokerFinding("load-fails", one.path, message, outcome, exception, mend))
    outcome = Outcome.worst([one.outcome, *(each.outcome for each in kept)])
    return replace(one, findings=tuple(kept), outcome=outcome)


def _cut(
    one: PartitionOutlook, quorum: Quorum, strays: Sequence[PartitionOutlook], mend: str
) -> BrokerFinding:
    extents = "; ".join(lost.extent for lost in one.lost)
    others = quorum.voters is not None and quorum.voters > 1
    if quorum.is_controller is False:
        message = f"{extents} go; the node fetches them again from the controllers"
        return BrokerFinding("metadata-fetched", one.path, message)
    names = tuple(os.path.basename(each.path) for each in strays)
    unless = ", unless it fetches them from another controller" if others else ""
    parts = [f"{extents} go, and the broker forgets what they say{unless}"]
    topics = sorted({*quorum.forgotten, *(each.topic for each in strays if each.topic)})
    if topics:
        parts.append(f"topics {_some_of(topics)}")
    if changed := _changed_settings(quorum):
        parts.append(f"settings of {_some_of(changed)}")
    if names:
        parts.append(
            f"{len(names)} partitions here become -stray and are not served: {_some_of(names)}"
        )
    if any(name.startswith("__consumer_offsets-") for name in names):
        parts.append("committed offsets are lost with __consumer_offsets")
    return BrokerFinding(
        "metadata-cut",
        one.path,
        "; ".join(parts),
        mend=mend,
        records=0 if others else _records_in(strays),
        partitions=names,
    )


def _changed_settings(quorum: Quorum) -> list[str]:
    """What has other settings after the start, by name; forgotten topics aside."""
    if quorum.before is None or quorum.cluster is None:
        return []
    before, after = quorum.before.configs, quorum.cluster.configs
    changed = {one for one in before.keys() | after.keys() if before.get(one) != after.get(one)}
    names = {
        name if kind == TOPIC else f"broker {name}" if name else "all brokers"
        for kind, name in changed
    }
    return sorted(names - set(quorum.forgotten))


def _mend_of(path: str, quorum: Quorum) -> str:
    away = command_line("mv", path, f"{os.path.dirname(os.path.abspath(path))}.{LOG_NAME}")
    salvage = command_line("kseg", "salvage", path, "-o", "OUT")
    while_up = "while a majority of the other controllers is up"
    fetch = f"{while_up}, move it away; the node fetches it anew:\n{away}"
    keep = f"restore it from a backup, or put what this keeps of it in its place:\n{salvage}"
    if quorum.is_controller is False:
        return f"Move it away; the node fetches it anew:\n{away}"
    if quorum.voters is None:
        return f"If there are more controllers, {fetch}\nIf this is the only one, {keep}"
    text = keep if quorum.voters == 1 else fetch
    return text[0].upper() + text[1:]


def _some_of(names: Sequence[str]) -> str:
    more = f" and {len(names) - _TOPICS_MAX} more" if len(names) > _TOPICS_MAX else ""
    return ", ".join(names[:_TOPICS_MAX]) + more


_METADATA: Final = FileKind.PARTITION_METADATA.value
_NO_ID: Final = "there is no partition.metadata, so nobody knows its topic's id"
_NAMES_MAX: Final = 3


class _Given(NamedTuple):
    """A partition that the metadata log gives to this node."""

    topic_id: UUID
    assigned: Assigned


@dataclass(frozen=True, slots=True)
class Node:
    """This node's partitions.

    Attributes:
        homes: the data directories.
        server: what `server.properties` says.
        quorum: the metadata log.
        node_id: None where it is not known.
        logs: those in the directories, by partition.
        given: what the metadata log gives to this node, by partition.
    """

    homes: tuple[BrokerDirectory, ...]
    server: BrokerFile
    quorum: Quorum
    node_id: int | None
    logs: Mapping[TopicPartition, DirectoryEntry]
    given: Mapping[TopicPartition, _Given]

    @classmethod
    def of(cls, homes: tuple[BrokerDirectory, ...], server: BrokerFile, quorum: Quorum) -> Node:
        """Compare the metadata log with the directories."""
        ids = [home.meta.node_id for home in homes if home.meta is not None]
        known = [each for each in (server.node_id, *ids) if each is not None]
        logs = {
            entry.partition: entry
            for home in homes
            for entry in home.entries
            if entry.kind is EntryKind.LOG and entry.partition is not None
        }
        node_id = known[0] if known else None
        given = dict(_all_given(_understood(quorum.cluster), node_id))
        return cls(homes, server, quorum, node_id, logs, given)

    def forgotten(self) -> Iterator[str]:
        """The logs that a start puts aside because the metadata log is cut."""
        paths = (entry.path for entry in self.logs.values())
        return (str(path) for path in paths if self.is_forgotten(path))

    # ---- partitions that are here ----------------------------------------------------------------

    def with_finding(self, one: PartitionOutlook, entry: DirectoryEntry) -> PartitionOutlook:
        """Add whether a start puts a partition aside, and makes an empty one in its place."""
        cluster = _understood(self.quorum.cluster)
        is_copy = entry.kind is EntryKind.FUTURE
        if not (is_copy or entry.kind is EntryKind.LOG) or entry.partition is None or not cluster:
            return one
        topic_id, given = _topic_id(entry.path), self.given.get(entry.partition)
        given = None if is_copy else given  # its log is elsewhere
        is_there = os.path.lexists(entry.path / _METADATA)
        if topic_id is None and not is_there and one.outcome is Outcome.OFFLINE:
            return one  # perhaps not even its files can be listed
        if topic_id is None and is_there:  # its load says so
            return one if given is None else _with_mend(one, self._id_file(entry.path, given))
        why = _NO_ID
        if topic_id is not None:
            why = cluster.stray_reason(entry.partition, topic_id, self.node_id)
            if not why or self.is_forgotten(entry.path):
                return one
            why = f"stray: {why}"
        if given is None:
            message = f"{why}; a start renames it to -stray, keeps it and does not serve it"
            found = BrokerFinding("stray", one.path, message)
        else:
            message = f"{why}; a start renames it to -stray and makes an empty one in its place"
            mend = self._id_file(entry.path, given)
            records = max(one.log_end_offset - one.log_start_offset, 0)
            found = self._lost(given, one.path, message, mend, records)
        return replace(one, findings=(*one.findings, found))

    def is_forgotten(self, path: Path) -> bool:
        """Whether a start puts a partition aside because the metadata log is cut."""
        cluster = self.quorum.cluster
        if cluster is None or cluster is self.quorum.before:
            return False
        return _topic_id(path) not in cluster.topics

    def _id_file(self, path: Path, given: _Given) -> str:
        """What writes the topic's id."""
        place = path / _METADATA
        text = f"version: 0\\ntopic_id: {id_text(given.topic_id)}\\n"
        write = f"{command_line('printf', text)} > {command_line(place)}"
        if not place.exists():
            write += f" && {command_line('chown', f'--reference={path}', place)}"
        unless = "Unless the topic was deleted and made again"
        return f"{unless}, write the id that the cluster has:\n{write}"

    # ---- partitions that are not -----------------------------------------------------------------

    def missing(self) -> Iterator[BrokerFinding]:
        """Partitions of this node that none of the directories has."""
        for partition, given in self.given.items():
            home = self._home_of(given)
            if home is None or partition in self.logs or self._has_copy(home, partition, given):
                continue
            name = f"{partition.topic}-{partition.partition}"
            if os.path.lexists(home.path / name):  # `in_the_way` says what follows
                continue
            records = _known_records(self.homes, partition)
            message = "this node has it, says the metadata log, and it is not here"
            message += "; a start makes an empty one"
            mend = "Restore it from a backup before you start the broker."
            yield self._lost(given, str(home.path / name), message, mend, records)
        for directory_id, names in self.strangers().items():
            if all(home.meta is not None for home in self.homes):
                message = f"it was not given: {_in_words(names)} of this node in it"
                yield BrokerFinding("partition-elsewhere", f"directory.id {directory_id}", message)

    def _has_copy(self, home: BrokerDirectory, partition: TopicPartition, given: _Given) -> bool:
        """Whether a start makes a copy that was under way the log of its partition.

        Source: Kafka `LogManager.recoverAbandonedFutureLogs`.
        """
        place = given.assigned.directory_of(self.node_id or 0)
        if place is None or home.meta is None or home.meta.directory_id != id_text(place):
            return False
        copies = (one for one in home.entries if one.kind is EntryKind.FUTURE)
        return any(
            one.partition == partition and _topic_id(one.path) == given.topic_id for one in copies
        )

    def in_the_way(self, home: BrokerDirectory) -> Iterator[BrokerFinding]:
        """What lies in a data directory where a start makes a partition, or renames one.

        Source: Kafka `LogManager.createLogDirectory`, `LogManager.recoverAbandonedFutureLogs`.
        """
        futures = {
            entry.partition: entry.path for entry in home.entries if entry.kind is EntryKind.FUTURE
        }
        for partition, given in self.given.items():
            path = home.path / f"{partition.topic}-{partition.partition}"
            if self._home_of(given) is not home or not os.path.lexists(path):
                continue
            future, own = futures.get(partition), self.logs.get(partition)
            if own is None:
                message = "no directory, but a partition of this node belongs here: a start cannot "
                message += "make it, and does without this data directory"
                mend = f"Move it away:\n{_away(path)}"
                error = "KafkaStorageException"
                yield BrokerFinding("unreadable", str(path), message, Outcome.OFFLINE, error, mend)
            elif future is not None and own.path == path and _topic_id(future) == given.topic_id:
                message = f"a start renames it to {path.name}, which lies beside it, and stops"
                mend = f"Move it away, if {path.name} has all its records:\n{_away(future)}"
                error = "KafkaStorageException"
                yield BrokerFinding(
                    "duplicate-partition", str(future), message, Outcome.FAILS, error, mend
                )

    def strangers(self) -> dict[str, list[str]]:
        """Partitions of this node that are not here, by the id of the directory they lie in."""
        found: dict[str, list[str]] = {}
        for partition, given in self.given.items():
            directory_id = given.assigned.directory_of(self.node_id or 0)
            if directory_id is not None and self._home_of(given) is None:
                name = f"{partition.topic}-{partition.partition}"
                found.setdefault(id_text(directory_id), []).append(name)
        return found

    def _home_of(self, given: _Given) -> BrokerDirectory | None:
        """The data directory in which a partition lies, or would be made; None for another one."""
        place = given.assigned.directory_of(self.node_id or 0)
        by_id = {home.meta.directory_id: home for home in self.homes if home.meta is not None}
        paths = {home.path.resolve() for home in self.homes}
        are_all = (
            self.server.directories
            and {each.resolve() for each in self.server.directories} <= paths
        )
        found = None if place is None else by_id.get(id_text(place))
        is_replaced = are_all and len(by_id) == len(paths)
        return self.homes[0] if found is None and (place is None or is_replaced) else found

    def _lost(
        self, given: _Given, path: str, message: str, mend: str, records: int | None
    ) -> BrokerFinding:
        """What it means that a start begins a partition of this node without records."""
        assigned = given.assigned
        others = [each for each in assigned.isr if each != self.node_id]
        nodes = ", ".join(map(str, others))
        message += self._as_of()
        if self.node_id in assigned.adding:
            message += f"; it was still being copied from {nodes}"
            return BrokerFinding("partition-elsewhere", path, message)
        if others and assigned.leader != self.node_id:
            message += f"; the replicas on {nodes} have its records"
            return BrokerFinding("partition-behind", path, message)
        if others:
            message += f"; it leads, so that the replicas on {nodes} may drop the records, too"
        return BrokerFinding("partition-lost", path, message, mend=mend, records=records)

    def _as_of(self) -> str:
        """Up to where the metadata log goes, which may be old on a node that is no controller."""
        cluster = self.quorum.cluster
        if cluster is None or self.quorum.is_controller:
            return ""
        time = iso_text(cluster.time_ms) or "no known time"
        return f" (the metadata log goes up to offset {cluster.end_offset}, {time})"

    # ---- directories without their ids -----------------------------------------------------------

    def of_formatting(self) -> Iterator[BrokerFinding]:
        """Directories without meta.properties: disks that are not mounted, or new ones."""
        for home in self.homes:
            place = home.path / FileKind.META_PROPERTIES.value
            malformed = any(one.code in ("meta-properties", "unreadable") for one in home.findings)
            if home.meta is None and not malformed:
                message, mend = self._unformatted(home, place)
                message = f"no meta.properties, without which no broker starts; {message}"
                yield BrokerFinding(
                    "not-formatted", str(place), message, Outcome.FAILS, "RuntimeException", mend
                )

    def _unformatted(self, home: BrokerDirectory, place: Path) -> tuple[str, str]:
        """What a directory without ids was, and what to do."""
        here = [name for name, entry in self.logs.items() if entry.path.parent == home.path]
        found = (self.given[each].assigned for each in here if each in self.given)
        ids = Counter(each.directory_of(self.node_id or 0) for each in found)
        own = next((id_text(each) for each, _ in ids.most_common() if each is not None), None)
        meta = next((each.meta for each in self.homes if each.meta is not None), None)
        cluster_id = meta.cluster_id or "" if meta is not None else ""
        if here and cluster_id:
            lines = ["version=1", f"cluster.id={cluster_id}", f"node.id={self.node_id}"]
            lines += [f"directory.id={own}"] if own is not None else []
            content = "\\n".join([*lines, ""])
            write = f"{command_line('printf', content)} > {command_line(place)}"
            return f"{len(here)} partitions are in it", f"Write what it said:\n{write}"
        strangers = self.strangers()
        if strangers and not here:
            lost = "; ".join(f"{_in_words(names)} to {one}" for one, names in strangers.items())
            return (
                f"the metadata log says that directories which are not here have partitions of "
                f"this node ({lost}): is the disk mounted?",
                "Mount it. Do not format this directory: the broker would make empty partitions.",
            )
        words = (
            "kafka-storage.sh",
            "format",
            "--ignore-formatted",
            "-t",
            cluster_id or "CLUSTER_ID",
        )
        return "it is new, or its file is lost", command_line(*words, "-c", "server.properties")


def _understood(cluster: Cluster | None) -> Cluster | None:
    """The cluster, if what bears on partitions was understood up to the log's end, or to a cut."""
    if cluster is None or not (cluster.trusted or cluster.cut_at is not None):
        return None
    return cluster


def _all_given(
    cluster: Cluster | None, node_id: int | None
) -> Iterator[tuple[TopicPartition, _Given]]:
    if cluster is None or not cluster.knows_replicas:
        return
    for topic_id, of_topic in cluster.partitions.items():
        topic = cluster.topics.get(topic_id)
        for number, assigned in of_topic.items():
            if topic is not None and node_id in assigned.replicas:
                yield TopicPartition(topic, number), _Given(topic_id, assigned)


def _away(path: Path) -> str:
    """What moves a file or directory out of its data directory."""
    home = path.parent.absolute()
    return command_line("mv", path, home.with_name(f"{home.name}.{path.name}"))


def _topic_id(path: Path) -> UUID | None:
    with suppress(KsegError, OSError):
        return metadata.read_partition_metadata(path / _METADATA).uuid
    return None


def _with_mend(one: PartitionOutlook, mend: str) -> PartitionOutlook:
    """The outlook with what mends its partition.metadata."""
    findings = (
        replace(each, mend=mend) if os.path.basename(each.path) == _METADATA else each
        for each in one.findings
    )
    return replace(one, findings=tuple(findings))


def _known_records(homes: Sequence[BrokerDirectory], partition: TopicPartition) -> int | None:
    """How many offsets the checkpoints say that a partition had; None where they do not."""
    for kind in (FileKind.REPLICATION, FileKind.RECOVERY_POINT):
        for home in homes:
            if (end := home.offsets.get(kind, {}).get(partition)) is not None:
                return max(end - home.told_of(partition).log_start_offset, 0)
    return None


def _in_words(names: Sequence[str]) -> str:
    """How many partitions, and the names of the first ones.

    >>> _in_words(["a-0"]), _in_words(["a-0", "a-1", "a-2", "a-3"])
    ('1 partition (a-0)', '4 partitions (a-0, a-1, a-2 and 1 more)')
    """
    more = f" and {len(names) - _NAMES_MAX} more" if len(names) > _NAMES_MAX else ""
    many = "partition" if len(names) == 1 else "partitions"
    return f"{len(names)} {many} ({', '.join(names[:_NAMES_MAX])}{more})"


#: The release whose steps are followed one by one.
_FOLLOWED: Final = "4.2"
#: Where brokers of other releases are known to cut as 4.2 does; the rest of it is not known.
RELEASES: Final = (
    _FOLLOWED,
    *("3.9", "2.8", "1.1", "0.11", "0.10.2", "0.10.0", "0.9.0", "0.8.2", "0.8.0"),
)
#: The first major release in which all directories are formatted before a start.
_FORMATTED_SINCE: Final = 4
#: Less than this says nothing about a rate.
_RATE_BYTES_MIN: Final = 1 << 20
#: The file system makes it where one is mounted.
_FOUND: Final = "lost+found"
_StrPath = str | PathLike[str]


@dataclass(frozen=True, slots=True)
class DoctorPlan:
    """What is asked about one broker, as `plan` has found it.

    Attributes:
        release: of Kafka.
        known: the one of `RELEASES` that it belongs to; None for another.
        homes: the data directories.
        server: what `server.properties` says.
        settings: of the partitions.
        units: partitions to load, each once.
    """

    release: str
    known: str | None
    homes: tuple[BrokerDirectory, ...]
    server: BrokerFile
    settings: KnownSettings
    units: tuple[PartitionUnit, ...]


def doctor(
    data_directories: _StrPath | Sequence[_StrPath],
    *,
    release: str = _FOLLOWED,
    metadata_directory: _StrPath | None = None,
    broker_config: _StrPath | None = None,
    config: Mapping[str, str] | None = None,
    topic_config: Mapping[str, Mapping[str, str]] | None = None,
    now_ms: Time | None = None,
    jobs: Jobs = 1,
    progress: Progress | None = None,
) -> DoctorReport:
    """Say whether a broker starts on its data directories, what it does, and what it loses.

    Nothing is changed, and no lock is taken. One bad partition is a row of the answer. What is not
    known is `Outcome.UNKNOWN`.

    Args:
        data_directories: all those of one broker.
        release: of Kafka, one of `RELEASES` or with more digits. Others than 4.2 are known to cut
            the same; whether they start is `UNKNOWN` where 4.2 does not.
        metadata_directory: the one with `__cluster_metadata-0`, if it is none of those.
        broker_config: the broker's `server.properties`.
        config, topic_config: settings, as for `kseg.settings`.
        now_ms: the clock.
        jobs: threads to share the work.
        progress: called with bytes done and bytes in all.

    Raises:
        ValueError: an unknown release, `jobs` below 1, no directory, or malformed settings.
        NotALogError: one of them is a partition, of which a broker as such says nothing.
        OSError: `broker_config` cannot be read.

    Example:
        >>> from kseg.analysis.doctor import doctor
        >>> doctor("/var/lib/kafka").outcome  # doctest: +SKIP
        <Outcome.STARTS: 'starts'>
    """
    sources = SettingSources(metadata_directory, broker_config, config or {}, topic_config or {})
    given = [data_directories] if isinstance(data_directories, str | PathLike) else data_directories
    asked = plan(given, release=release, sources=sources, now_ms=now_ms)
    answers = run_units(asked.units, examine, jobs=jobs, progress=progress)
    return report(asked, answers)


def plan(
    data_directories: Sequence[_StrPath],
    *,
    release: str,
    sources: SettingSources,
    now_ms: Time | None = None,
) -> DoctorPlan:
    """Look at all but the logs; for the arguments and errors see `doctor`."""
    known = _release_of(release)
    if not data_directories:
        raise ValueError("doctor wants one data directory or more")
    server = read_broker_file(sources.broker_config)
    loads = server.roles != ("controller",)
    homes = tuple(look_at_home(Path(each), loads_logs=loads) for each in data_directories)
    for home in homes:
        _refuse_partition(home)
    found = KnownSettings(sources, [home.path for home in homes if home.exists])
    now = now_of(now_ms)
    units = (unit for home in homes for unit in _units(home, found, now))
    once = {unit.path: unit for unit in units}
    return DoctorPlan(release, known, homes, server, found, tuple(once.values()))


def report(asked: DoctorPlan, answers: Iterable[PartitionOutlook]) -> DoctorReport:
    """The answer, out of those for all units in any order."""
    homes, server = asked.homes, asked.server
    loaded = {one.path: one for one in answers}
    rate = _rate(loaded.values())
    quorum = quorum_of(homes, server, asked.settings.cluster, loaded)
    node = Node.of(homes, server, quorum)
    loaded = dict(_judged(homes, node, loaded))
    directories = tuple(_directory(home, loaded, asked, rate, node) for home in homes)
    findings = [*_of_settings(asked.settings), *across(homes, server, node)]
    if quorum.log is None and quorum.before is None and is_kraft(homes):
        findings.extend(of_missing_log(homes, server, loaded))
    formatted = int(asked.release.partition(".")[0]) >= _FORMATTED_SINCE
    findings.extend(of_ids_missing(homes, node, formatted=formatted))
    outcomes = {home.path: each.outcome for home, each in zip(homes, directories, strict=True)}
    findings.extend(of_outcomes(homes, outcomes, server))
    every = [each.outcome for each in directories]
    every.extend(one.outcome for one in findings)
    found = DoctorReport(asked.release, Outcome.worst(every), rate, directories, tuple(findings))
    return _for_release(found, known=asked.known)


def _judged(
    homes: Iterable[BrokerDirectory], node: Node, loaded: Mapping[str, PartitionOutlook]
) -> Iterator[tuple[str, PartitionOutlook]]:
    """Each partition, with what the metadata log says of it."""
    lost = [path for path in node.forgotten() if path in loaded]
    for home in homes:
        for entry in home.entries:
            one = loaded.get(fspath(entry.path))
            if one is None:
                continue
            if entry.kind is EntryKind.CLUSTER_METADATA:
                one = with_damage(one, node.quorum, [loaded[path] for path in lost])
            yield one.path, node.with_finding(one, entry)


def _release_of(release: str) -> str | None:
    """The known release that one belongs to; None for another."""
    if not all(part.isdecimal() for part in release.split(".")):
        raise ValueError(f"{release!r} is no release of Kafka, as 4.2 is")
    return next((one for one in RELEASES if f"{release}.".startswith(f"{one}.")), None)


def _of_settings(found: KnownSettings) -> Iterator[BrokerFinding]:
    for home, reason in found.errors.items():
        yield BrokerFinding("unreadable", str(home), reason, Outcome.UNKNOWN)


def _refuse_partition(home: BrokerDirectory) -> None:
    """Refuse a partition, or what holds data directories, in the place of a data directory."""
    kind = None
    if home.exists and not home.entries:
        with suppress(NotALogError, OSError):
            kind = classify_path(home.path).kind
    if kind is PathKind.PARTITION:
        raise NotALogError("a partition: doctor takes the directory that it is in", path=home.path)
    kinds = {entry.kind for entry in home.entries if entry.path.name != _FOUND}
    is_home = home.logs or home.offsets or is_of_broker(home.path)
    if is_home or EntryKind.UNKNOWN not in kinds:
        return
    inside = [entry.path for entry in home.entries if is_of_broker(entry.path)]
    words = command_line("kseg", "doctor", *inside)
    give = f"give those that are in it: {words}" if inside else "nothing in it is a broker's"
    raise NotALogError(f"no data directory; {give}", path=home.path)


def _units(home: BrokerDirectory, known: KnownSettings, now_ms: int) -> Iterator[PartitionUnit]:
    for entry in home.entries:
        if entry.kind in (EntryKind.UNKNOWN, EntryKind.CACHE):
            continue
        offsets = home.told_of(entry.partition)
        own = known.of(entry.path)
        kraft = entry.kind is EntryKind.CLUSTER_METADATA  # it is read again at each start
        yield PartitionUnit(
            str(entry.path),
            offsets.clean and not kraft,
            0 if kraft else offsets.recovery_point,
            0 if kraft else offsets.log_start_offset,
            LogConfig() if isinstance(own, str) else own.config,
            now_ms,
            home.sizes.get(entry.path.name, 0),
        )


def _rate(answers: Iterable[PartitionOutlook]) -> float | None:
    swept = [(one.swept_bytes, one.seconds) for one in answers if one.swept_bytes]
    size, seconds = sum(one for one, _ in swept), sum(one for _, one in swept)
    return size / seconds if size >= _RATE_BYTES_MIN and seconds else None


def _directory(
    home: BrokerDirectory,
    answers: Mapping[str, PartitionOutlook],
    asked: DoctorPlan,
    rate: float | None,
    node: Node,
) -> DirectoryOutlook:
    paths = (fspath(entry.path) for entry in home.entries)
    partitions = [answers[path] for path in paths if path in answers]
    findings = [*_with_loads(home.findings, partitions), *_of_room(home, partitions)]
    findings.extend(node.in_the_way(home) if asked.server.roles != ("controller",) else ())
    sizes = [one.swept_bytes for one in partitions]
    meta, threads = home.meta, asked.server.threads
    return DirectoryOutlook(
        str(home.path),
        Outcome.worst([each.outcome for each in partitions] + [one.outcome for one in findings]),
        home.clean,
        meta.cluster_id if meta else None,
        meta.node_id if meta else None,
        meta.directory_id if meta else None,
        threads,
        sum(sizes),
        _seconds(sizes, threads, rate),
        tuple(partitions),
        tuple(findings),
    )


def _with_loads(
    findings: Iterable[BrokerFinding], partitions: Sequence[PartitionOutlook]
) -> Iterator[BrokerFinding]:
    """Findings of a directory, with what follows for its partitions, which are loaded afterwards.

    A directory that a checkpoint takes offline is loaded nevertheless. A load that then deletes a
    segment, or reads where an open transaction begins, stops the broker.

    Source: Kafka `LogManager.loadLogs`, `LocalLog.maybeHandleIOException`.
    """
    stopping = next((one for one in partitions if one.reads_itself), None)
    for one in findings:
        is_read_first = one.code == "checkpoint-format" and one.path.endswith(READ_FIRST)
        if stopping is None or not is_read_first or one.outcome is not Outcome.OFFLINE:
            yield one
            continue
        message = f"{one.message}; the broker then stops while it loads {stopping.path}"
        yield replace(one, message=message, outcome=Outcome.FAILS)


def _seconds(sizes: Sequence[int], threads: int, rate: float | None) -> float | None:
    """A partition is loaded by one thread, so that the largest one is the least it takes."""
    if not any(sizes):
        return 0.0
    return None if rate is None else max(max(sizes), sum(sizes) / threads) / rate


def _of_room(
    home: BrokerDirectory, partitions: Sequence[PartitionOutlook]
) -> Iterator[BrokerFinding]:
    written = sum(one.written_bytes for one in partitions)
    if not written:
        return
    with suppress(OSError):
        disk = statvfs(home.path)
        free = disk.f_bavail * disk.f_frsize
        if written > free:
            message = f"loading writes {written} bytes, and {free} are free"
            verbs = ("retain", "compact")
            mend = "\n".join(command_line("kseg", verb, home.path) for verb in verbs)
            yield BrokerFinding(
                "room", str(home.path), message, Outcome.OFFLINE, "IOException", mend
            )


def _for_release(found: DoctorReport, *, known: str | None) -> DoctorReport:
    """What is not known of another release than the one that is followed."""
    if known == _FOLLOWED:
        return found
    directories = tuple(
        replace(each, outcome=_not_known(each.outcome, known=known)) for each in found.directories
    )
    return replace(found, outcome=_not_known(found.outcome, known=known), directories=directories)


def _not_known(outcome: Outcome, *, known: str | None) -> Outcome:
    return outcome if known is not None and outcome is Outcome.STARTS else Outcome.UNKNOWN


_MAPS_MAX: Final = Path("/proc/sys/vm/max_map_count")
#: A broker has some for itself, its connections among them.
_FILES_BESIDE: Final = 1_000
_FAILS: Final = Outcome.FAILS
_BY_HAND: Final = "put the directories together that belong together"


def metadata_home(homes: Sequence[BrokerDirectory], server: BrokerFile) -> Path | None:
    """The data directory with the metadata log: as configured, or the only one that has it."""
    if server.metadata_directory is not None:
        return server.metadata_directory.resolve()
    found = [home.path.resolve() for home in homes if _has_metadata(home)]
    return found[0] if found else None


def _has_metadata(home: BrokerDirectory) -> bool:
    return any(entry.kind is EntryKind.CLUSTER_METADATA for entry in home.entries)


def is_kraft(homes: Iterable[BrokerDirectory]) -> bool:
    """Whether these are directories of KRaft's era, by their ids or their metadata log."""
    return any(
        _has_metadata(home) or (home.meta is not None and home.meta.version == 1) for home in homes
    )


def across(
    homes: Sequence[BrokerDirectory], server: BrokerFile, node: Node
) -> Iterator[BrokerFinding]:
    """What contradicts between directories, and what the machine has too little of."""
    yield from _of_same(homes)
    yield from _of_ids(homes, server)
    if is_kraft(homes):
        yield from node.of_formatting()
        yield from _of_metadata(homes, server)
        yield from node.missing()
    yield from _of_duplicates(homes)
    yield from _of_machine(sum(home.logs for home in homes))
    given = {home.path.resolve() for home in homes}
    for each in server.directories:
        if each.resolve() not in given:
            message = "server.properties names it; a broker's answer wants all its directories"
            yield BrokerFinding("not-given", str(each), message, Outcome.UNKNOWN)


def _of_same(homes: Sequence[BrokerDirectory]) -> Iterator[BrokerFinding]:
    seen: dict[Path, Path] = {}
    for home in homes:
        other = seen.setdefault(home.path.resolve(), home.path)
        if other is not home.path:
            message = f"the same directory as {other}"
            yield BrokerFinding("same-directory", str(home.path), message, _FAILS, "KafkaException")


def _of_ids(homes: Sequence[BrokerDirectory], server: BrokerFile) -> Iterator[BrokerFinding]:
    known = sorted(
        ((home.path, home.meta) for home in homes if home.meta is not None),
        key=lambda pair: str(pair[0]),
    )
    yield from _not_equal(((path, meta.cluster_id) for path, meta in known), "cluster.id", None)
    yield from _not_equal(((path, meta.node_id) for path, meta in known), "node.id", server.node_id)
    seen: dict[str, Path] = {}
    for path, meta in known:
        if meta.directory_id is None:
            continue
        other = seen.setdefault(meta.directory_id, path)
        if other != path:
            message = f"directory.id {meta.directory_id} is also that of {other}: one is a copy"
            yield _id_fault(path, message)


def _not_equal(
    found: Iterable[tuple[Path, object]], name: str, expected: object
) -> Iterator[BrokerFinding]:
    """Ids that are not the first one that is known."""
    for path, value in found:
        if value is None:
            continue
        if expected is None:
            expected = value
        elif value != expected:
            yield _id_fault(path, f"{name} is {value}, and {expected} elsewhere")


def _id_fault(path: Path, message: str) -> BrokerFinding:
    place = str(path / FileKind.META_PROPERTIES.value)
    return BrokerFinding("ids", place, message, _FAILS, "RuntimeException", _BY_HAND)


def of_ids_missing(
    homes: Sequence[BrokerDirectory], node: Node, *, formatted: bool
) -> Iterator[BrokerFinding]:
    """Directories without ids that a start wants.

    Args:
        homes: the data directories.
        node: what they are of.
        formatted: whether the release is one that starts on formatted directories alone.
    """
    kraft = is_kraft(homes)
    if formatted and not kraft:
        yield from node.of_formatting()
    for home in homes if formatted or kraft else ():
        meta = home.meta
        if meta is not None and None in (meta.node_id, meta.cluster_id):
            place = str(home.path / FileKind.META_PROPERTIES.value)
            message = f"no node.id or no cluster.id of version {meta.version}, but no broker of"
            message += " KRaft starts without both"
            mend = "write it anew with the ids of the other directories"
            yield BrokerFinding("meta-properties", place, message, _FAILS, "RuntimeException", mend)


def _of_metadata(homes: Sequence[BrokerDirectory], server: BrokerFile) -> Iterator[BrokerFinding]:
    chosen = metadata_home(homes, server)
    for home in homes:
        if _has_metadata(home) and home.path.resolve() != chosen:
            message = f"a metadata log, though the metadata directory is {chosen}"
            yield BrokerFinding(
                "metadata-elsewhere", str(home.path), message, _FAILS, "KafkaException"
            )


def of_outcomes(
    homes: Sequence[BrokerDirectory], outcomes: dict[Path, Outcome], server: BrokerFile
) -> Iterator[BrokerFinding]:
    """What follows for the broker if directories do not come up."""
    chosen = metadata_home(homes, server)
    for home in homes:
        if home.path.resolve() == chosen and outcomes[home.path] is Outcome.OFFLINE:
            message = "it holds the metadata log, and does not come up: then no broker does"
            yield BrokerFinding(
                "metadata-offline", str(home.path), message, _FAILS, "RuntimeException"
            )
    if homes and all(outcomes[home.path] is Outcome.OFFLINE for home in homes):
        message = "no data directory comes up: the broker stops"
        yield BrokerFinding("no-directory", str(homes[0].path), message, _FAILS)


def _of_duplicates(homes: Sequence[BrokerDirectory]) -> Iterator[BrokerFinding]:
    seen: dict[object, Path] = {}
    for home in homes:
        for entry in home.entries:
            if entry.kind not in (EntryKind.LOG, EntryKind.FUTURE) or entry.partition is None:
                continue
            other = seen.setdefault((entry.kind, entry.partition), entry.path)
            if other != entry.path and other.resolve() != entry.path.resolve():
                message = f"the same partition as {other}; kseg diff says which one has more"
                mend = "move the one away that is behind"
                yield BrokerFinding(
                    "duplicate-partition",
                    str(entry.path),
                    message,
                    _FAILS,
                    "IllegalStateException",
                    mend,
                )


def _of_machine(segments: int) -> Iterator[BrokerFinding]:
    """Limits of a process, as this shell has them: a broker's may be others."""
    soft, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and segments + _FILES_BESIDE > soft:
        message = f"{segments} segments and more want to be open; here a process may have {soft}"
        yield BrokerFinding("open-files", "ulimit -n", message, mend="raise the broker's limit")
    with suppress(OSError, ValueError):
        most = io.read_kernel_number(_MAPS_MAX)
        if 2 * segments > most:
            message = f"{2 * segments} indexes may be mapped; the kernel maps {most} a process"
            mend = f"sysctl -w vm.max_map_count={max(4 * segments, 262_144)}"
            yield BrokerFinding("maps", str(_MAPS_MAX), message, mend=mend)


__all__ = [
    "LOG_NAME",
    "READ_FIRST",
    "RELEASES",
    "BrokerDirectory",
    "DoctorPlan",
    "Node",
    "Quorum",
    "across",
    "doctor",
    "is_kraft",
    "look_at_home",
    "metadata_home",
    "of_missing_log",
    "of_outcomes",
    "plan",
    "quorum_of",
    "report",
    "with_damage",
]
