"""`doctor`: one page about all data directories of a broker.

First each directory is read by itself: ids, mark, checkpoints, rights (`BrokerDirectory`). Then
come the partitions that the metadata log gives to this node (`Node`), and the contradictions
between the directories (`across`). A start puts aside a partition that is not this node's, and
makes an empty log for each of its partitions that no directory has. So records under a wrong topic
id, or on a disk that is not mounted, go out of service.

A metadata log of KRaft that is missing, or that a start cuts, comes back or not depending on the
quorum. A node that is only a broker fetches it from the controllers. A controller fetches it from
the leader, if others lead. The only controller goes on with its own log, and puts every partition
aside that this log does not name.

Source: Kafka `LogManager`, `KafkaRaftLog`, `KafkaRaftClient`, `BrokerMetadataPublisher`,
`MetaPropertiesEnsemble.verify`, `KafkaRaftServer.initializeLogDirs`,
`Partition.createLogInAssignedDirectoryId`.
"""

from __future__ import annotations

import os
import resource
import stat
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, TypeVar
from uuid import UUID

from kseg._door import renamed
from kseg.analysis.doctor.kraft import away, of_bootstrap, of_level
from kseg.analysis.doctor.partitions import PartitionUnit, examine
from kseg.analysis.doctor.settings import of_properties, of_topics
from kseg.analysis.doctor.values import (
    BrokerFinding,
    DirectoryOutlook,
    DoctorReport,
    Outcome,
    PartitionOutlook,
    finding,
)
from kseg.analysis.units import Threads, run_units
from kseg.analysis.values import KnownSettings
from kseg.catalog.catalog import local_paths_of
from kseg.commands import command_line
from kseg.constants import NEWEST_RELEASE, Progress
from kseg.errors import CorruptIndexError, KsegError, NotALogError, os_reason
from kseg.files import checkpoints, io, lock, metadata
from kseg.files.checkpoints import TopicPartition
from kseg.files.names import FileKind, PathKind, classify_path
from kseg.files.selection import Selection, StrPaths, some_of
from kseg.format.times import Time, iso_text
from kseg.internal.ids import id_of, id_text
from kseg.internal.releases import COMPARED, FOLLOWED, metadata_versions
from kseg.log.clock import now_of
from kseg.log.config import COMPACT, LogConfig
from kseg.log.data_directory import (
    CLUSTER_METADATA,
    DirectoryEntry,
    EntryKind,
    PartitionOffsets,
    list_entries,
)
from kseg.log.settings import (
    BROKER,
    DIRECTORY_RESERVED_MAX,
    TOPIC,
    Assigned,
    Cluster,
    SettingSources,
    read_cluster,
    voters_of,
)

#: Since Kafka 4.0 (KIP-1030); it was 1 before.
THREADS_DEFAULT: Final = 2
_THREADS: Final = "num.recovery.threads.per.data.dir"


@dataclass(frozen=True, slots=True)
class BrokerFile:
    """The settings of `server.properties` that the doctor needs.

    Attributes:
        directories: of `log.dirs`, or else `log.dir`; empty where the file names none.
        metadata_directory: of `metadata.log.dir`; the first of `directories` else.
        node_id: of `node.id`, or else `broker.id`; None where the file names none.
        threads: that load the partitions of one data directory.
        roles: of `process.roles`; none where the file names none.
        voters: of `controller.quorum.voters`; none where the file names none.
        voters_max: how many there are at most; None where the file does not say.
        properties: everything in the file; None without one.
    """

    directories: tuple[Path, ...] = ()
    metadata_directory: Path | None = None
    node_id: int | None = None
    threads: int = THREADS_DEFAULT
    roles: tuple[str, ...] = ()
    voters: tuple[int, ...] = ()
    voters_max: int | None = None
    properties: Mapping[str, str] | None = field(default=None, repr=False)

    def loads(self, directory: Path) -> bool:
        """Whether the node loads the logs of a directory, which may be for the metadata alone."""
        own, named = self.metadata_directory, {each.resolve() for each in self.directories}
        is_apart = own is not None and own.resolve() not in named
        is_own = own is not None and own.resolve() == directory.resolve()
        return self.roles != ("controller",) and not (is_own and is_apart)


def read_broker_file(path: io.StrPath | None) -> BrokerFile:
    """Read `server.properties`; without such a file, the defaults of a broker.

    Raises:
        ValueError: it is malformed.
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
        _number(found, "node.id" if "node.id" in found else "broker.id"),
        max(_number(found, _THREADS) or THREADS_DEFAULT, 1),
        _words(found, "process.roles"),
        tuple(int(each) for each in numbers if each.isdecimal()),
        len(voters or servers) or None,
        found,
    )


def _words(found: Mapping[str, str], name: str) -> tuple[str, ...]:
    """The words of a list with commas."""
    return tuple(each.strip() for each in found.get(name, "").split(",") if each.strip())


def _number(found: Mapping[str, str], name: str) -> int | None:
    """A number; None where there is none, or text that Kafka refuses."""
    with suppress(ValueError):
        return int(found.get(name, ""))
    return None


_CHECKPOINTS: Final = (
    FileKind.RECOVERY_POINT,
    FileKind.LOG_START,
    FileKind.REPLICATION,
    FileKind.CLEANER,
)
#: The consequence of a bad number, rather than a malformed line, in one of these.
_RESET: Final = {
    FileKind.RECOVERY_POINT: "Kafka takes 0 for every recovery point, and reads all logs again",
    FileKind.LOG_START: "Kafka lets every log start at its first segment",
}
#: The consequence of a missing one.
_MISSING: Final = {
    FileKind.RECOVERY_POINT: "after a crash Kafka reads all logs again",
    FileKind.LOG_START: "records in front of a log start, which were deleted, come back",
    FileKind.REPLICATION: "readers wait until the high watermarks are known again",
}
#: Names of the checkpoints that are read before the logs of a directory are loaded.
READ_FIRST: Final = tuple(kind.value for kind in _RESET)
#: The file system makes it where one is mounted.
_FOUND: Final = "lost+found"
_OF_MOUNT: Final = (
    "The file system needs it: move everything else into a subdirectory of the mount, and name "
    "that in log.dirs"
)
#: The code and the message for a sub-directory of a kind, and the advice.
_SET_ASIDE: Final = {
    EntryKind.UNKNOWN: (
        "foreign-directory",
        "no name of a partition: no broker starts with such a folder beside its logs",
        "move it out of the data directory",
    ),
    EntryKind.DELETE: ("set-aside", "is being deleted; a start continues the deletion", None),
    EntryKind.STRAY: (
        "set-aside",
        "astray since an earlier start: kept, not served, never deleted by itself",
        "delete it once nobody misses it",
    ),
    EntryKind.FUTURE: (
        "set-aside",
        "an unfinished copy from another data directory; a start continues it",
        None,
    ),
}


class BrokerDirectory:
    """A data directory as it was found; each fault of it is a finding.

    Attributes:
        path: as it was given.
        loads_logs: whether its logs are loaded.
        entries: its sub-directories.
        clean: whether the mark of a clean stop is there.
        meta: its ids; None where they are not known.
        offsets: of the checkpoints, by kind; without those that cannot be parsed.
        findings: the findings.
        logs: log files in it.
        sizes: bytes of log by the name of a partition's directory.
    """

    def __init__(self, path: Path, *, loads_logs: bool = True) -> None:
        """Examine a data directory.

        Args:
            path: the directory.
            loads_logs: whether the node loads logs; a node that only is a controller has the
                metadata log alone, and ignores all partitions and checkpoints.
        """
        self.path = path
        self.loads_logs = loads_logs
        self.entries: tuple[DirectoryEntry, ...] = ()
        self.clean = False
        self.meta: metadata.MetaProperties | None = None
        self.offsets: dict[FileKind, dict[TopicPartition, int]] = {}
        self.findings: list[BrokerFinding] = []
        self.logs = 0
        self.sizes: dict[str, int] = {}
        try:
            self.entries = list_entries(path)
        except FileNotFoundError:
            self._note(
                "missing",
                path,
                "the directory does not exist: a broker creates it, without any of its logs",
                "mount the disk",
            )
            return
        except OSError as error:
            self._note("unreadable", str(error.filename or path), os_reason(error))
            return
        self._check_file_system()
        self._check_lock()
        self._read_meta()
        if not loads_logs:
            kraft = EntryKind.CLUSTER_METADATA
            self.entries = tuple(entry for entry in self.entries if entry.kind is kraft)
        for kind in _CHECKPOINTS if loads_logs else ():
            self._read_checkpoint(kind)
        self._read_mark()
        self._note_missing_checkpoints()
        for entry in self.entries:
            if entry.kind in _SET_ASIDE:
                code, message, advice = _SET_ASIDE[entry.kind]
                own = _OF_MOUNT if entry.path.name == _FOUND else advice
                self._note(code, entry.path, message, own)
        self._check_rights()

    @property
    def exists(self) -> bool:
        """Whether it could be listed."""
        return bool(self.entries) or self.path.is_dir()

    def checkpointed(self, partition: TopicPartition | None) -> PartitionOffsets:
        """The offsets of a partition in the checkpoints."""
        if partition is None:
            return PartitionOffsets(clean=self.clean)
        point, start = (
            max(self.offsets.get(kind, {}).get(partition, 0), 0)
            for kind in (FileKind.RECOVERY_POINT, FileKind.LOG_START)
        )
        return PartitionOffsets(point, start, clean=self.clean)

    def known_end(self, partition: TopicPartition | None) -> int | None:
        """Up to where the checkpoints know of a partition's records; None where they do not."""
        kinds = (FileKind.RECOVERY_POINT, FileKind.REPLICATION)
        ends = [self.offsets.get(kind, {}).get(partition) for kind in kinds if partition]
        return max((end for end in ends if end is not None), default=None)

    def _note(
        self, code: str, path: str | Path, message: str, mend: str | None = None, **given: Any
    ) -> None:
        self.findings.append(finding(code, path, message, mend, **given))

    @contextmanager
    def _noting_unreadable(self, path: Path) -> Iterator[None]:
        """Turn an error of input and output inside the block into a finding."""
        try:
            yield
        except OSError as error:
            self._note("unreadable", str(error.filename or path), os_reason(error))

    def _check_file_system(self) -> None:
        found = os.statvfs(self.path)
        if found.f_flag & os.ST_RDONLY:
            self._note(
                "read-only",
                self.path,
                "the file system is read-only: a broker cannot even take its lock",
                "remount it",
            )
        if found.f_files and not found.f_favail:
            self._note(
                "inodes",
                self.path,
                "the file system has no room for more files: loading writes snapshots and indexes",
                "free inodes",
            )

    def _check_lock(self) -> None:
        with self._noting_unreadable(self.path):
            holder = lock.holder(self.path)
            if holder is not None:
                self._note(
                    "in-use",
                    self.path,
                    f"{lock.who_holds(holder)}; a second start fails, and what is here may change",
                )

    def _read_mark(self) -> None:
        with self._noting_unreadable(self.path):
            self.clean = metadata.read_clean_shutdown(self.path) is not None
            if not self.clean and any(entry.kind is EntryKind.LOG for entry in self.entries):
                self._note(
                    "unclean",
                    self.path,
                    "no mark of a clean stop: what was not flushed is read again",
                    command_line("kseg", "recover", self.path, "--apply"),
                )

    def _read_meta(self) -> None:
        path = self.path / FileKind.META_PROPERTIES.value
        try:
            self.meta = metadata.read_meta_properties(path)
        except FileNotFoundError:
            pass  # `of_formatting` has the consequence, which depends on the other directories
        except (KsegError, OSError) as error:
            self._note("meta-properties", path, reason_of(error), _WRITE_IDS)

    def _read_checkpoint(self, kind: FileKind) -> None:
        path = self.path / kind.value
        try:
            self.offsets[kind] = dict(checkpoints.read_offset_checkpoint(path))
        except FileNotFoundError:
            return
        except CorruptIndexError as error:
            self._note_checkpoint(error, path, kind)
            return
        except (KsegError, OSError) as error:
            self._note("checkpoint-format", path, reason_of(error), outcome=Outcome.UNKNOWN)
            return
        here = {entry.partition for entry in self.entries}
        gone = sorted(_name(one) for one in self.offsets[kind] if one not in here)
        if gone:
            self._note("checkpoint-entry", path, f"it names what is not here: {some_of(gone, 2)}")

    def _note_missing_checkpoints(self) -> None:
        """A broker of KRaft writes each checkpoint of its logs within a minute."""
        logs = [entry.path for entry in self.entries if entry.kind is EntryKind.LOG]
        has_led = any((path / FileKind.LEADER_EPOCHS.value).exists() for path in logs)
        is_of_kraft = self.meta is not None and self.meta.version == 1
        for kind, message in _MISSING.items():
            path = self.path / kind.value
            size = path.lstat().st_size if path.exists() else None
            if is_of_kraft and has_led and not size:  # Kafka takes an empty one for no lines
                mend = "Restore it from a backup before you start the broker."
                state = "not here" if size is None else "empty"
                self._note("checkpoint-missing", path, f"{state}: {message}", mend)

    def _note_checkpoint(self, error: CorruptIndexError, path: Path, kind: FileKind) -> None:
        """A malformed line takes the directory offline; a bad number may only be a warning."""
        where = "" if error.position is None else f"@ {error.position}: "
        message, outcome = f"{where}{error.reason}", Outcome.OFFLINE
        if error.kafka_exception != CorruptIndexError.kafka_exception:
            outcome = Outcome.STARTS if kind in _RESET else Outcome.UNKNOWN
            message += f"; {_RESET[kind]}" if kind in _RESET else ""
        self._note(
            "checkpoint-format",
            path,
            message,
            "delete the file: " + _RESET.get(kind, "a broker rebuilds it"),
            outcome=outcome,
            exception=error.kafka_exception,
        )

    def _check_rights(self) -> None:
        """Count files, and check that the directory's owner may read and write each of them."""
        owner = os.stat(self.path)
        for place in (self.path, *(entry.path for entry in self.entries)):
            with self._noting_unreadable(place):
                names = [os.path.basename(each) for each in self._refused_in(place, owner)]
                if names:
                    self._note(
                        "rights",
                        place,
                        f"{some_of(names, 1)}: the owner of the data directory, user "
                        f"{owner.st_uid}, may not read and write it",
                        command_line("chown", "-R", f"--reference={self.path}", place),
                    )

    def _refused_in(self, place: Path, owner: os.stat_result) -> list[str]:
        """Count a partition's logs; the files, or the directory, that its owner may not use."""
        if not _may(os.stat(place), owner, 7):
            return [str(place)]
        refused, size = [], 0
        with os.scandir(place) as entries:
            for entry in entries:
                if not entry.is_file():  # Kafka ignores a link without a target, too
                    continue
                if place != self.path and entry.name.endswith(".log"):
                    self.logs += 1
                    size += entry.stat().st_size  # the entry keeps it for the next question
                if not _may(entry.stat(), owner, 6):
                    refused.append(entry.path)
        if place != self.path:
            self.sizes[place.name] = size
        return refused


def _may(found: os.stat_result, owner: os.stat_result, bits: int) -> bool:
    """Whether a user has rights; root has all. Only the group of the data directory counts."""
    if owner.st_uid == 0:
        return True
    mode = stat.S_IMODE(found.st_mode)
    if found.st_uid == owner.st_uid:
        return mode >> 6 & bits == bits
    if found.st_gid == owner.st_gid:
        return mode >> 3 & bits == bits
    return mode & bits == bits


def reason_of(error: KsegError | OSError) -> str:
    """The reason of an error, without its path."""
    return os_reason(error) if isinstance(error, OSError) else error.reason


def _name(partition: TopicPartition) -> str:
    """The name of a partition's directory."""
    return f"{partition.topic}-{partition.partition}"


def _in_words(names: Sequence[str]) -> str:
    """How many partitions, and the names of the first ones.

    >>> _in_words(["a-0"]), _in_words(["a-0", "a-1", "a-2", "a-3"])
    ('1 partition (a-0)', '4 partitions (a-0, a-1, a-2 and 1 more)')
    """
    many = "partition" if len(names) == 1 else "partitions"
    return f"{len(names)} {many} ({some_of(names, _NAMES_MAX)})"


LOG_NAME: Final = f"{CLUSTER_METADATA}-0"
_TOPICS_MAX: Final = 5
_METADATA: Final = FileKind.PARTITION_METADATA.value
_NO_ID: Final = "partition.metadata is missing, so its topic id is unknown"
_NAMES_MAX: Final = 3
_WRITE_IDS: Final = "write it again with the ids of the other directories"
_STORAGE_ERROR: Final = "KafkaStorageException"


class Node:
    """This node: its data directories, its part in the quorum, and its partitions.

    Attributes:
        homes: the data directories.
        server: the settings of `server.properties`.
        log: the directory of its metadata log; None where none was found.
        is_controller: None where neither the configuration nor the log says it.
        voters: the size of the quorum; None where that is not known.
        before: the content of the metadata log, behind damage too; None without one.
        cluster: the part of it that is left after a start; None where that is not known.
        node_id: None where it is not known.
        logs: the partitions in the directories.
        given: the partitions that the metadata log gives to this node, each with its topic's id.
    """

    def __init__(
        self,
        homes: tuple[BrokerDirectory, ...],
        server: BrokerFile,
        known: Cluster | None,
        loaded: Mapping[str, PartitionOutlook],
    ) -> None:
        """Find the quorum in the configuration, in the log and in its `quorum-state`.

        Args:
            homes: the data directories.
            server: the settings of `server.properties`.
            known: the content of the metadata log up to the first damage; None without one.
            loaded: the load of each partition, by path.
        """
        self.homes, self.server = homes, server
        self._read_quorum(known, loaded)
        ids = [home.meta.node_id for home in homes if home.meta is not None]
        numbers = (each for each in (server.node_id, *ids) if each is not None)
        self.node_id = next(numbers, None)
        self.logs = {
            entry.partition: entry
            for home in homes
            for entry in home.entries
            if entry.kind is EntryKind.LOG and entry.partition is not None
        }
        self.given = dict(_all_given(_understood(self.cluster), self.node_id))

    def _read_quorum(self, known: Cluster | None, loaded: Mapping[str, PartitionOutlook]) -> None:
        server = self.server
        logs = {
            entry.path: home
            for home in self.homes
            for entry in home.entries
            if entry.kind is EntryKind.CLUSTER_METADATA
        }
        log = self.log = next(iter(logs), None)
        voters = server.voters or (voters_of(known, log) if log is not None else ())
        self.voters = len(voters) if voters else server.voters_max
        meta = None if log is None else logs[log].meta
        node_id = server.node_id if meta is None else meta.node_id
        self.is_controller: bool | None = node_id in voters if voters else None
        if server.roles:
            self.is_controller = "controller" in server.roles
        self.before = self.cluster = known
        one = loaded.get(str(log))
        if log is None or one is None:
            return
        if one.outcome is not Outcome.STARTS or _refusal(one, known):
            self.cluster = None
        elif one.cut_offset is not None and one.lost_records != 0:
            self.before = read_cluster(log, past_damage=True)
            # A node that only is a broker fetches the cut records before it judges by them.
            is_broker = self.is_controller is False
            self.cluster = None if is_broker else read_cluster(log, end_offset=one.cut_offset)

    @property
    def metadata_home(self) -> Path | None:
        """The data directory with the metadata log: as configured, or the only candidate."""
        if self.server.metadata_directory is not None:
            return self.server.metadata_directory.resolve()
        return next((home.path.resolve() for home in self.homes if _has_metadata(home)), None)

    @property
    def is_kraft(self) -> bool:
        """Whether these are directories of KRaft's era, by their ids or their metadata log."""
        return any(
            _has_metadata(home) or (home.meta is not None and home.meta.version == 1)
            for home in self.homes
        )

    @property
    def forgotten_topics(self) -> list[str]:
        """Topics that a start forgets, by name."""
        if self.before is None or self.cluster is None:
            return []
        left = self.cluster.topics
        return sorted(name for one, name in self.before.topics.items() if one not in left)

    def forgotten_logs(self) -> Iterator[str]:
        """The logs that a start puts aside because the metadata log is cut."""
        paths = (entry.path for entry in self.logs.values())
        return (str(path) for path in paths if self.is_forgotten(path))

    def is_forgotten(self, path: Path) -> bool:
        """Whether a start puts a partition aside because the metadata log is cut."""
        if self.cluster is None or self.cluster is self.before:
            return False
        return _topic_id(path) not in self.cluster.topics

    # ---- the metadata log ------------------------------------------------------------------------

    @property
    def lacks_log(self) -> bool:
        """Whether no metadata log is here, or one that no broker used, beside partitions."""
        known = self.before
        if self.log is None or known is None:
            return self.log is None and known is None
        is_whole = known.cut_at is None and (known.trusted or not known.end_offset)
        is_new = not (known.topics or known.facts["brokers"])
        return bool(self.logs) and is_whole and is_new

    def missing_log(self, loaded: Mapping[str, PartitionOutlook]) -> Iterator[BrokerFinding]:
        """The consequences where no directory of a node of KRaft has the metadata log."""
        homes, server = self.homes, self.server
        place = server.metadata_directory
        if place is not None and place.resolve() not in {home.path.resolve() for home in homes}:
            yield finding(
                "not-given", place, "it is the broker's metadata.log.dir: give this directory, too"
            )
            return
        path = self.log or (place or homes[0].path) / LOG_NAME
        if self.is_controller is False:
            message = "no topic is in it: the node fetches it from the controllers"
            yield finding("metadata-fetched", path, message)
            return
        paths = [str(e.path) for home in homes for e in home.entries if e.kind is EntryKind.LOG]
        names = tuple(os.path.basename(each) for each in paths)
        lost = "all topics are forgotten"
        if names:
            here = "the 1 partition here becomes" if len(names) == 1 else None
            lost = f"{here or f'all {len(names)} partitions here become'} -stray"
        first = "not here" if self.log is None else "it has no topics, like an empty one"
        mend = "Restore it from another controller or a backup."
        if not server.roles:
            is_clear = place or self.log
            where = "" if is_clear else " and has no other metadata.log.dir"
            first = f"{first}: if this node is a controller{where}"
        outcome = "the broker begins a new cluster without topics"
        if server.voters_max != 1 and server.roles:
            outcome = "if the other controllers have no leader, a new cluster may begin"
            mend = "Do not start this node with an empty log before the others are up."
        yield finding(
            "metadata-missing",
            path,
            f"{first}{': ' if server.roles else ', '}{outcome}, and {lost}",
            mend,
            records=_records_in(loaded[each] for each in paths if each in loaded),
            partitions=names,
        )

    def with_damage(
        self, one: PartitionOutlook, strays: Sequence[PartitionOutlook]
    ) -> PartitionOutlook:
        """The load of the metadata log, with the consequences for this node.

        Args:
            one: the metadata log, as loading it leaves it.
            strays: partitions that a start puts aside, since it forgets their topics.
        """
        mend = self._mend_of_log(one.path)
        # Of one file, beside the log's records, these have their own advice.
        kept = [
            each
            if each.code == "metadata-snapshot" or each.exception == "NumberFormatException"
            else replace(each, mend=mend if each.severity == "error" else None)
            for each in one.findings
            if each.code not in ("swept", "records-cut")
        ]
        if one.lost_records != 0:
            kept.append(self._cut(one, strays, mend))
        refusal = _refusal(one, self.before) if one.outcome is Outcome.STARTS else None
        if refusal is not None and one.cut_offset is None:
            message = f"loading keeps what no broker can read: {refusal.reason}"
            # The consequence of a gap between offsets is not known.
            given = (Outcome.FAILS, "CorruptRecordException")
            outcome, exception = given if refusal.position is not None else (Outcome.UNKNOWN, None)
            kept.append(
                finding(
                    "load-fails",
                    one.path,
                    message,
                    mend,
                    outcome=outcome,
                    exception=exception,
                )
            )
        outcome = Outcome.worst([one.outcome, *(each.outcome for each in kept)])
        return replace(one, findings=tuple(kept), outcome=outcome)

    def _cut(
        self, one: PartitionOutlook, strays: Sequence[PartitionOutlook], mend: str
    ) -> BrokerFinding:
        extents = "; ".join(lost.extent for lost in one.lost)
        if self.is_controller is False:
            return finding(
                "metadata-fetched",
                one.path,
                f"{extents} go; the node fetches them again from the controllers",
            )
        others = self.voters is not None and self.voters > 1
        names = tuple(os.path.basename(each.path) for each in strays)
        unless = ", unless it fetches them from another controller" if others else ""
        parts = [f"{extents} go, and the broker forgets what they say{unless}"]
        topics = sorted({*self.forgotten_topics, *(each.topic for each in strays if each.topic)})
        if topics:
            parts.append(f"topics {some_of(topics, _TOPICS_MAX)}")
        if changed := self._changed_settings():
            parts.append(f"settings of {some_of(changed, _TOPICS_MAX)}")
        if names:
            some = some_of(names, _TOPICS_MAX)
            parts.append(f"{len(names)} partitions here become -stray and are not served: {some}")
        if any(name.startswith("__consumer_offsets-") for name in names):
            parts.append("committed offsets are lost with __consumer_offsets")
        return finding(
            "metadata-cut",
            one.path,
            "; ".join(parts),
            mend,
            records=0 if others else _records_in(strays),
            partitions=names,
        )

    def _changed_settings(self) -> list[str]:
        """The owners of settings that differ after the start, by name; no forgotten topics."""
        if self.before is None or self.cluster is None:
            return []
        before, after = self.before.configs, self.cluster.configs
        changed = {one for one in before.keys() | after.keys() if before.get(one) != after.get(one)}
        names = {
            name if kind != BROKER else f"broker {name}" if name else "all brokers"
            for kind, name in changed
            if kind in (TOPIC, BROKER)
        }
        return sorted(names - set(self.forgotten_topics))

    def _mend_of_log(self, path: str) -> str:
        away = command_line("mv", path, f"{os.path.dirname(os.path.abspath(path))}.{LOG_NAME}")
        salvage = command_line("kseg", "salvage", path, "-o", "OUT")
        while_up = "while a majority of the other controllers is up"
        fetch = f"{while_up}, move it away; the node fetches it again:\n{away}"
        keep = f"restore it from a backup, or replace it by the salvaged part:\n{salvage}"
        if self.is_controller is False:
            return f"Move it away; the node fetches it again:\n{away}"
        if self.voters is None:
            return f"If there are more controllers, {fetch}\nIf this is the only one, {keep}"
        text = keep if self.voters == 1 else fetch
        return text[0].upper() + text[1:]

    # ---- partitions that are here ----------------------------------------------------------------

    def judged(
        self, loaded: Mapping[str, PartitionOutlook]
    ) -> Iterator[tuple[str, PartitionOutlook]]:
        """The load of each partition, with the consequences of the metadata log."""
        lost = [path for path in self.forgotten_logs() if path in loaded]
        for entry in (entry for home in self.homes for entry in home.entries):
            one = loaded.get(os.fspath(entry.path))
            if one is None:
                continue
            if entry.kind is EntryKind.CLUSTER_METADATA:
                one = self.with_damage(one, [loaded[path] for path in lost])
            yield one.path, self.with_finding(one, entry)

    def with_finding(self, one: PartitionOutlook, entry: DirectoryEntry) -> PartitionOutlook:
        """Add whether a start puts a partition aside, and makes an empty one in its place."""
        cluster = _understood(self.cluster)
        is_copy = entry.kind is EntryKind.FUTURE
        if not (is_copy or entry.kind is EntryKind.LOG) or entry.partition is None or not cluster:
            return one
        topic_id, given = _topic_id(entry.path), self.given.get(entry.partition)
        given = None if is_copy else given  # its log is elsewhere
        is_there = os.path.lexists(entry.path / _METADATA)
        if topic_id is None and not is_there and one.outcome is Outcome.OFFLINE:
            return one  # perhaps not even its files can be listed
        if topic_id is None and is_there:  # its load says so
            return one if given is None else _with_mend(one, _write_id(entry.path, given[0]))
        why = _NO_ID
        if topic_id is not None:
            why = cluster.stray_reason(entry.partition, topic_id, self.node_id)
            if not why or self.is_forgotten(entry.path):
                return one
            why = f"stray: {why}"
        if given is None:
            message = f"{why}; a start renames it to -stray, keeps it and does not serve it"
            found = finding("stray", one.path, message)
        else:
            message = f"{why}; a start renames it to -stray and makes an empty one in its place"
            mend = _write_id(entry.path, given[0])
            found = self._lost(given[1], one.path, message, mend, _records_in([one]))
        return replace(one, findings=(*one.findings, found))

    # ---- partitions that are not -----------------------------------------------------------------

    def missing(self) -> Iterator[BrokerFinding]:
        """Partitions of this node that no directory has."""
        for partition, (topic_id, assigned) in self.given.items():
            home = self._home_of(assigned)
            if home is None or partition in self.logs:
                continue
            path = home.path / _name(partition)
            # `in_the_way` has the consequences of a file there.
            if self._has_copy(home, partition, topic_id) or os.path.lexists(path):
                continue
            where = "it is not here"
            mend = "Restore it from a backup before you start the broker."
            for other in (each.path for each in self.homes if not each.loads_logs):
                if (other / path.name).is_dir():
                    where = f"it is in {other}, which log.dirs does not name"
                    mend = f"Add {other} to log.dirs before you start the broker."
            yield self._lost(
                assigned,
                str(path),
                f"this node has it, says the metadata log, and {where}; a start makes an empty one",
                mend,
                _known_records(self.homes, partition),
            )
        for directory_id, names in self.strangers().items():
            if all(home.meta is not None for home in self.homes):
                yield finding(
                    "partition-elsewhere",
                    f"directory.id {directory_id}",
                    f"it was not given: {_in_words(names)} of this node in it",
                )

    def _has_copy(self, home: BrokerDirectory, partition: TopicPartition, topic_id: UUID) -> bool:
        """Whether a start turns an unfinished copy into the log of its partition.

        Source: Kafka `LogManager.recoverAbandonedFutureLogs`.
        """
        place = self._place_of(self.given[partition][1])
        if place is None or home.meta is None or home.meta.directory_id != id_text(place):
            return False
        copies = (one for one in home.entries if one.kind is EntryKind.FUTURE)
        return any(one.partition == partition and _topic_id(one.path) == topic_id for one in copies)

    def in_the_way(self, home: BrokerDirectory) -> Iterator[BrokerFinding]:
        """Files of a data directory at whose place a start makes or renames a partition.

        Source: Kafka `LogManager.createLogDirectory`, `LogManager.recoverAbandonedFutureLogs`.
        """
        futures = {
            entry.partition: entry.path for entry in home.entries if entry.kind is EntryKind.FUTURE
        }
        for partition, (topic_id, assigned) in self.given.items():
            path = home.path / _name(partition)
            if self._home_of(assigned) is not home or not os.path.lexists(path):
                continue
            future, own = futures.get(partition), self.logs.get(partition)
            if own is None:
                yield finding(
                    "unreadable",
                    path,
                    "no directory, but a partition of this node belongs here: a start cannot "
                    "make it, and does without this data directory",
                    f"Move it away:\n{away(path)}",
                    exception=_STORAGE_ERROR,
                )
            elif future is not None and own.path == path and _topic_id(future) == topic_id:
                yield finding(
                    "duplicate-partition",
                    future,
                    f"a start renames it to {path.name}, which lies beside it, and stops",
                    f"Move it away, if {path.name} has all its records:\n{away(future)}",
                    exception=_STORAGE_ERROR,
                )

    def strangers(self) -> dict[str, list[str]]:
        """Partitions of this node that are not here, by the id of their data directory."""
        found: dict[str, list[str]] = {}
        for partition, (_, assigned) in self.given.items():
            directory_id = self._place_of(assigned)
            if directory_id is not None and self._home_of(assigned) is None:
                found.setdefault(id_text(directory_id), []).append(_name(partition))
        return found

    def _place_of(self, assigned: Assigned) -> UUID | None:
        return assigned.directory_of(self.node_id or 0)

    def _home_of(self, assigned: Assigned) -> BrokerDirectory | None:
        """The data directory in which a partition is, or would be made; None for another one."""
        place = self._place_of(assigned)
        homes = [home for home in self.homes if home.loads_logs] or self.homes
        by_id = {home.meta.directory_id: home for home in homes if home.meta is not None}
        paths = {home.path.resolve() for home in homes}
        configured = {each.resolve() for each in self.server.directories}
        found = None if place is None else by_id.get(id_text(place))
        is_replaced = configured and configured <= paths and len(by_id) == len(paths)
        return homes[0] if found is None and (place is None or is_replaced) else found

    def _lost(
        self, assigned: Assigned, path: str, message: str, mend: str, records: int | None
    ) -> BrokerFinding:
        """The consequence of a start that begins a partition of this node without records."""
        others = [each for each in assigned.isr if each != self.node_id]
        nodes = ", ".join(map(str, others))
        message += self._as_of()
        if self.node_id in assigned.adding:
            message += f"; it was still being copied from {nodes}"
            return finding("partition-elsewhere", path, message)
        if others and assigned.leader != self.node_id:
            message += f"; the replicas on {nodes} have its records"
            return finding("partition-behind", path, message)
        if others:
            message += f"; it leads, so that the replicas on {nodes} may drop the records, too"
        return finding("partition-lost", path, message, mend, records=records)

    def _as_of(self) -> str:
        """The end of the metadata log; on a node that is not a controller it may be old."""
        if self.cluster is None or self.is_controller:
            return ""
        time = iso_text(self.cluster.time_ms) or "no known time"
        return f" (the metadata log goes up to offset {self.cluster.end_offset}, {time})"

    # ---- directories without their ids -----------------------------------------------------------

    def of_formatting(self) -> Iterator[BrokerFinding]:
        """Directories without meta.properties: disks that are not mounted, or new ones."""
        for home in self.homes:
            place = home.path / FileKind.META_PROPERTIES.value
            malformed = any(one.code in ("meta-properties", "unreadable") for one in home.findings)
            if home.meta is None and not malformed:
                message, mend = self._unformatted(home, place)
                yield finding(
                    "not-formatted",
                    place,
                    f"no meta.properties, without which no broker starts; {message}",
                    mend,
                )

    def _unformatted(self, home: BrokerDirectory, place: Path) -> tuple[str, str]:
        """The likely history of a directory without ids, and the advice."""
        here = [name for name, entry in self.logs.items() if entry.path.parent == home.path]
        found = (self.given[each][1] for each in here if each in self.given)
        ids = Counter(self._place_of(each) for each in found)
        own = next((id_text(each) for each, _ in ids.most_common() if each is not None), None)
        meta = next((each.meta for each in self.homes if each.meta is not None), None)
        cluster_id = meta.cluster_id or "" if meta is not None else ""
        if here and cluster_id:
            lines = ["version=1", f"cluster.id={cluster_id}", f"node.id={self.node_id}"]
            lines += [f"directory.id={own}"] if own is not None else []
            content = "\\n".join([*lines, ""])
            write = f"{command_line('printf', content)} > {command_line(place)}"
            return f"{len(here)} partitions are in it", f"Write its former contents:\n{write}"
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


def _refusal(one: PartitionOutlook, known: Cluster | None) -> KsegError | None:
    """The fault of a metadata log that loading leaves as it is, and no broker can read."""
    if known is None or known.cut_at is None or known.cut_at >= one.log_end_offset:
        return None
    return known.findings[-1]


def _records_in(found: Iterable[PartitionOutlook]) -> int:
    """Offsets, each of which may have a record."""
    return sum(max(one.log_end_offset - one.log_start_offset, 0) for one in found)


def _understood(cluster: Cluster | None) -> Cluster | None:
    """The cluster, if all about partitions was understood up to the log's end, or to a cut."""
    if cluster is None or not (cluster.trusted or cluster.cut_at is not None):
        return None
    return cluster


def _all_given(
    cluster: Cluster | None, node_id: int | None
) -> Iterator[tuple[TopicPartition, tuple[UUID, Assigned]]]:
    if cluster is None or not cluster.knows_replicas:
        return
    for topic_id, of_topic in cluster.partitions.items():
        topic = cluster.topics.get(topic_id)
        for number, assigned in of_topic.items():
            if topic is not None and node_id in assigned.replicas:
                yield TopicPartition(topic, number), (topic_id, assigned)


def _write_id(path: Path, topic_id: UUID) -> str:
    """The advice to write the topic's id."""
    place = path / _METADATA
    text = f"version: 0\\ntopic_id: {id_text(topic_id)}\\n"
    write = f"{command_line('printf', text)} > {command_line(place)}"
    if not place.exists():
        write += f" && {command_line('chown', f'--reference={path}', place)}"
    unless = "Unless the topic was deleted and made again"
    return f"{unless}, write the id that the cluster has:\n{write}"


def _topic_id(path: Path) -> UUID | None:
    with suppress(KsegError, OSError):
        return metadata.read_partition_metadata(path / _METADATA).uuid
    return None


def _with_mend(one: PartitionOutlook, mend: str) -> PartitionOutlook:
    """The outlook with the advice for its partition.metadata."""
    findings = (
        replace(each, mend=mend) if os.path.basename(each.path) == _METADATA else each
        for each in one.findings
    )
    return replace(one, findings=tuple(findings))


def _known_records(homes: Sequence[BrokerDirectory], partition: TopicPartition) -> int | None:
    """How many offsets a partition had by the checkpoints; None where they do not say."""
    for home in homes:
        if (end := home.known_end(partition)) is not None:
            return max(end - home.checkpointed(partition).log_start_offset, 0)
    return None


# ---- the directories together --------------------------------------------------------------------

_Key = TypeVar("_Key")
_MAPS_MAX: Final = Path("/proc/sys/vm/max_map_count")
#: A broker has some for itself, its connections among them.
_FILES_BESIDE: Final = 1_000


def _has_metadata(home: BrokerDirectory) -> bool:
    return any(entry.kind is EntryKind.CLUSTER_METADATA for entry in home.entries)


def across(node: Node) -> Iterator[BrokerFinding]:
    """Contradictions between directories, and limits of the machine that are too low."""
    homes, server = node.homes, node.server
    for path, other, _ in _twice((home.path.resolve(), home.path) for home in homes):
        yield finding("same-directory", path, f"the same directory as {other}")
    yield from _of_ids(homes, server)
    if node.is_kraft:
        yield from node.of_formatting()
        for home in homes:
            if _has_metadata(home) and home.path.resolve() != node.metadata_home:
                yield finding(
                    "metadata-elsewhere",
                    home.path,
                    f"a metadata log, though the metadata directory is {node.metadata_home}",
                )
        yield from node.missing()
    yield from _of_duplicates(homes)
    yield from _of_machine(sum(home.logs for home in homes))
    given = {home.path.resolve() for home in homes}
    for each in server.directories:
        if each.resolve() not in given:
            yield finding(
                "not-given",
                each,
                "log.dirs in server.properties names it: give this directory, too",
            )


def _of_ids(homes: Sequence[BrokerDirectory], server: BrokerFile) -> Iterator[BrokerFinding]:
    known = sorted(
        ((home.path, home.meta) for home in homes if home.meta is not None),
        key=lambda pair: str(pair[0]),
    )
    yield from _not_equal(((path, meta.cluster_id) for path, meta in known), "cluster.id", None)
    yield from _not_equal(((path, meta.node_id) for path, meta in known), "node.id", server.node_id)
    ids = [(meta.directory_id, path) for path, meta in known if meta.directory_id is not None]
    for one, path in ids:
        if id_of(one).int <= DIRECTORY_RESERVED_MAX:
            yield _id_fault(path, f"directory.id {one} is a reserved word, and no directory's")
    for path, other, one in _twice(ids):
        if other != path:
            yield _id_fault(path, f"directory.id {one} is also that of {other}: one is a copy")


def _twice(places: Iterable[tuple[_Key, Path]]) -> Iterator[tuple[Path, Path, _Key]]:
    """The places of a key behind its first place, each with the first place and the key."""
    first: dict[_Key, Path] = {}
    for key, path in places:
        other = first.setdefault(key, path)
        if other is not path:
            yield path, other, key


def _not_equal(
    found: Iterable[tuple[Path, object]], name: str, expected: object
) -> Iterator[BrokerFinding]:
    """Ids that differ from the first known id."""
    for path, value in found:
        if value is None:
            continue
        if expected is None:
            expected = value
        elif value != expected:
            yield _id_fault(path, f"{name} is {value}, and {expected} elsewhere")


def _id_fault(path: Path, message: str) -> BrokerFinding:
    return finding(
        "ids",
        path / FileKind.META_PROPERTIES.value,
        message,
        "put the directories together that belong together",
    )


def of_ids_missing(node: Node, *, formatted: bool) -> Iterator[BrokerFinding]:
    """Directories without ids that a start wants.

    Args:
        node: the node.
        formatted: whether the release starts on formatted directories alone.
    """
    kraft = node.is_kraft
    if formatted and not kraft:
        yield from node.of_formatting()
    for home in node.homes if formatted or kraft else ():
        meta = home.meta
        if meta is not None and None in (meta.node_id, meta.cluster_id):
            place = home.path / FileKind.META_PROPERTIES.value
            yield finding(
                "meta-properties",
                place,
                f"no node.id or no cluster.id of version {meta.version}, but no broker of "
                "KRaft starts without both",
                _WRITE_IDS,
                outcome=Outcome.FAILS,
                exception="RuntimeException",
            )


def of_outcomes(node: Node, outcomes: Mapping[Path, Outcome]) -> Iterator[BrokerFinding]:
    """The consequences for the broker if directories do not come up."""
    homes, chosen = node.homes, node.metadata_home
    for home in homes:
        if home.path.resolve() == chosen and outcomes[home.path] is Outcome.OFFLINE:
            yield finding(
                "metadata-offline",
                home.path,
                "it holds the metadata log and does not come online: the broker does not start",
            )
    if homes and all(outcomes[home.path] is Outcome.OFFLINE for home in homes):
        yield finding(
            "no-directory", homes[0].path, "no data directory comes online: the broker stops"
        )


def _of_duplicates(homes: Sequence[BrokerDirectory]) -> Iterator[BrokerFinding]:
    entries = (entry for home in homes for entry in home.entries if entry.partition is not None)
    logs = (one for one in entries if one.kind in (EntryKind.LOG, EntryKind.FUTURE))
    for path, other, _ in _twice(((one.kind, one.partition), one.path) for one in logs):
        if other.resolve() != path.resolve():
            yield finding(
                "duplicate-partition",
                path,
                f"the same partition as {other}; kseg diff shows which one has more",
                "move the shorter one away",
            )


def _of_machine(segments: int) -> Iterator[BrokerFinding]:
    """Limits of a process, as this shell has them: a broker's may be others."""
    soft, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and segments + _FILES_BESIDE > soft:
        yield finding(
            "open-files",
            "ulimit -n",
            f"{segments} segments and more want to be open; here a process may have {soft}",
            "raise the broker's limit",
        )
    with suppress(OSError, ValueError):
        most = io.read_kernel_number(_MAPS_MAX)
        if 2 * segments > most:
            yield finding(
                "maps",
                _MAPS_MAX,
                f"{2 * segments} indexes may be mapped; the kernel maps {most} a process",
                f"sysctl -w vm.max_map_count={max(4 * segments, 262_144)}",
            )


# ---- the answer ----------------------------------------------------------------------------------

#: The first major release in which all directories are formatted before a start.
_FORMATTED_SINCE: Final = 4
#: Less than this says nothing about a rate.
_RATE_BYTES_MIN: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class DoctorPlan:
    """A question about one broker: its directories, its settings and the loads to examine.

    Attributes:
        release: of Kafka.
        known: the entry of `COMPARED` for it; None for another release.
        homes: the data directories.
        server: the settings of `server.properties`.
        settings: of the partitions.
        units: partitions to load, each once.
    """

    release: str
    known: str | None
    homes: tuple[BrokerDirectory, ...]
    server: BrokerFile
    settings: KnownSettings
    units: tuple[PartitionUnit, ...]


@renamed(data_directories="paths", now_ms="now")
def doctor(
    paths: StrPaths,
    *,
    topics: str | Iterable[str] | None = None,
    partitions: int | Iterable[int] | None = None,
    release: str | None = None,
    metadata_directory: io.StrPath | None = None,
    broker_config: io.StrPath | None = None,
    config: Mapping[str, str] | None = None,
    topic_config: Mapping[str, Mapping[str, str]] | None = None,
    now: Time | None = None,
    threads: Threads = 1,
    progress: Progress | None = None,
) -> DoctorReport:
    """Predict whether a broker starts on its data directories, its changes, and its losses.

    Nothing is changed, and no lock is taken. One bad partition is a row of the answer. An outcome
    that is not known is `Outcome.UNKNOWN`.

    Args:
        paths: all data directories of one broker, or globs.
        topics: list the partitions of these alone: a name or a glob, or several. The outcomes and
            the findings about directories are of the whole broker in any case.
        partitions: list only these partitions: a number, or several.
        release: of Kafka, such as "4.4" or "4.4.0". All is known of the releases `FOLLOWED`. Others
            of `COMPARED` are known to cut the same; whether they start is `UNKNOWN` where those
            do not. None for the first of them that knows the cluster's metadata version; without a
            metadata log for the newest.
        metadata_directory: the directory with `__cluster_metadata-0`, if it is elsewhere.
        broker_config: the broker's `server.properties`.
        config, topic_config: settings, as for `kseg.settings`.
        now: the clock.
        threads: threads to share the work.
        progress: called with bytes done and bytes in all.

    Raises:
        ValueError: an unknown release, `threads` below 1, no directory, malformed settings, or no
            partition is chosen.
        TypeError: an argument has a wrong type.
        NotALogError: a path is a partition, which says nothing about a broker's start.
        OSError: `broker_config` cannot be read.

    Example:
        >>> from kseg.analysis.doctor import doctor
        >>> doctor("/var/lib/kafka").outcome  # doctest: +SKIP
        <Outcome.STARTS: 'starts'>
    """
    sources = SettingSources(metadata_directory, broker_config, config or {}, topic_config or {})
    (answer,) = doctor_of(
        [local_paths_of(paths)],
        sources,
        topics=topics,
        partitions=partitions,
        release=release,
        now=now,
        threads=threads,
        progress=progress,
    )
    return answer


def doctor_of(
    brokers: Iterable[Sequence[io.StrPath]],
    sources: SettingSources,
    *,
    topics: str | Iterable[str] | None = None,
    partitions: int | Iterable[int] | None = None,
    release: str | None = None,
    now: Time | None = None,
    threads: Threads = 1,
    progress: Progress | None = None,
) -> tuple[DoctorReport, ...]:
    """As `doctor`, for several brokers.

    Args:
        brokers: the data directories of each.
        sources: of the settings of all.
        topics, partitions, release, now, threads, progress: as for `doctor`.

    Returns:
        A report for each broker; with `topics` or `partitions`, for those that have one of these.

    Raises:
        ValueError, TypeError, NotALogError, OSError: as for `doctor`.
    """
    selection = Selection.of(topics, partitions)
    plans = [plan(homes, release=release, sources=sources, now=now) for homes in brokers]
    units = {unit.path: unit for asked in plans for unit in asked.units}
    answers = run_units([*units.values()], examine, threads=threads, progress=progress)
    loaded = {outlook.path: outlook for outlook in answers}
    reports = [report(asked, [loaded[unit.path] for unit in asked.units]) for asked in plans]
    if not selection:
        return tuple(reports)
    parts = (_chosen_of(whole, selection) for whole in reports)
    chosen = tuple(part for part in parts if part.outlooks)
    if not chosen:
        outlooks = (outlook for whole in reports for outlook in whole.outlooks)
        raise ValueError(selection.why_nothing((one.topic, one.partition) for one in outlooks))
    return chosen


def _chosen_of(whole: DoctorReport, selection: Selection) -> DoctorReport:
    """The report with the chosen partitions alone."""
    directories = []
    for directory in whole.directories:
        partitions = (
            part for part in directory.partitions if selection.takes(part.topic, part.partition)
        )
        directories.append(replace(directory, partitions=tuple(partitions)))
    return replace(whole, directories=tuple(directories))


def plan(
    directories: Sequence[io.StrPath],
    *,
    release: str | None,
    sources: SettingSources,
    now: Time | None = None,
) -> DoctorPlan:
    """Examine everything but the logs; for the arguments and errors see `doctor`."""
    if release is not None:
        _check_release(release)
    if not directories:
        raise ValueError("doctor wants one data directory or more")
    server = read_broker_file(sources.broker_config)
    places = map(Path, directories)
    homes = tuple(BrokerDirectory(each, loads_logs=server.loads(each)) for each in places)
    for home in homes:
        _refuse_partition(home)
    found = KnownSettings(sources, [home.path for home in homes if home.exists])
    now_ms = now_of(now)
    units = (unit for home in homes for unit in _units(home, found, now_ms))
    once = {unit.path: unit for unit in units}
    release = release or _release_of(found.cluster)
    known = next((one for one in COMPARED if f"{release}.".startswith(f"{one}.")), None)
    return DoctorPlan(release, known, homes, server, found, tuple(once.values()))


def report(asked: DoctorPlan, answers: Iterable[PartitionOutlook]) -> DoctorReport:
    """The answer, out of those for all units in any order."""
    loaded = {one.path: one for one in answers}
    rate = _rate(loaded.values())
    node = Node(asked.homes, asked.server, asked.settings.cluster, loaded)
    loaded = dict(node.judged(loaded))
    directories = tuple(_directory(home, loaded, node, rate) for home in node.homes)
    findings = [
        finding("unreadable", home, reason, outcome=Outcome.UNKNOWN, exception=None)
        for home, reason in asked.settings.errors.items()
    ]
    findings.extend(across(node))
    if node.is_kraft and node.lacks_log:
        findings.extend(node.missing_log(loaded))
    if node.is_kraft and node.metadata_home is not None:
        findings.extend(of_bootstrap(node.metadata_home, asked.release))
    if node.log is not None:
        findings.extend(of_level(node.before, node.log, asked.release))
    formatted = int(asked.release.partition(".")[0]) >= _FORMATTED_SINCE
    findings.extend(of_ids_missing(node, formatted=formatted))
    outcomes = {home.path: each.outcome for home, each in zip(node.homes, directories, strict=True)}
    findings.extend(of_outcomes(node, outcomes))
    findings.extend(_of_settings(asked, node))
    every = [each.outcome for each in directories] + [one.outcome for one in findings]
    as_of = None if node.before is None else node.before.time_ms
    outcome = Outcome.worst(every)
    found = DoctorReport(asked.release, outcome, rate, directories, tuple(findings), as_of)
    return _for_release(found, known=asked.known)


def _of_settings(asked: DoctorPlan, node: Node) -> Iterator[BrokerFinding]:
    """The settings that Kafka refuses or ignores; a lone controller makes no logs of topics."""
    properties, path = asked.server.properties, asked.settings.broker_config
    if properties is not None and path is not None:
        yield from of_properties(str(path), properties, asked.release)
    cluster = _understood(node.cluster)
    if cluster is not None and node.log is not None and node.server.roles != ("controller",):
        yield from of_topics(node.log, cluster, properties, asked.release)


def _check_release(release: str) -> None:
    """Refuse text that is no release, by a ValueError."""
    if not all(part.isdecimal() for part in release.split(".")):
        raise ValueError(f"{release!r} is not a release of Kafka, such as {NEWEST_RELEASE}")


def _release_of(cluster: Cluster | None) -> str:
    """The first of `COMPARED` that knows a cluster's metadata version; the newest without one."""
    fact = None if cluster is None else cluster.facts["features"].get(("metadata.version",))
    if fact is None:
        return NEWEST_RELEASE
    largest = {release: versions[1] for release, versions in metadata_versions().items()}
    knowing = (each for each in reversed(COMPARED) if largest.get(each, 0) >= fact.fields["level"])
    return next(knowing, NEWEST_RELEASE)


def _refuse_partition(home: BrokerDirectory) -> None:
    """Refuse a partition, or a directory of data directories, in the place of one."""
    kind = None
    if not home.entries:
        with suppress(NotALogError, OSError):
            kind = classify_path(home.path).kind
    if kind in (PathKind.PARTITION, PathKind.FILE):
        reason = f"a {kind.value}; give the data directory that it is in"
        raise NotALogError(reason, path=home.path)
    kinds = {entry.kind for entry in home.entries if entry.path.name != _FOUND}
    is_home = home.logs or home.offsets or metadata.is_of_broker(home.path)
    if is_home or EntryKind.UNKNOWN not in kinds:
        return
    inside = [entry.path for entry in home.entries if metadata.is_of_broker(entry.path)]
    words = command_line("kseg", "doctor", *inside)
    give = f"give those that are in it: {words}" if inside else "nothing in it is a broker's"
    raise NotALogError(f"no data directory; {give}", path=home.path)


def _units(home: BrokerDirectory, known: KnownSettings, now_ms: int) -> Iterator[PartitionUnit]:
    for entry in home.entries:
        if entry.kind in (EntryKind.UNKNOWN, EntryKind.CACHE):
            continue
        offsets = home.checkpointed(entry.partition)
        own = known.of(entry.path)
        policy = None if isinstance(own, str) else own.values.get("cleanup.policy")
        kraft = entry.kind is EntryKind.CLUSTER_METADATA  # it is read again at each start
        yield PartitionUnit(
            str(entry.path),
            offsets.clean and not kraft,
            0 if kraft else offsets.recovery_point,
            0 if kraft else offsets.log_start_offset,
            LogConfig() if isinstance(own, str) else own.config,
            now_ms,
            home.sizes.get(entry.path.name, 0),
            home.known_end(entry.partition),
            entry.partition in home.offsets.get(FileKind.LOG_START, {entry.partition: 0}),
            entry.path.name.startswith("__") or (policy is not None and COMPACT in policy.value),
        )


def _rate(answers: Iterable[PartitionOutlook]) -> float | None:
    swept = [(one.swept_bytes, one.seconds) for one in answers if one.swept_bytes]
    size, seconds = sum(one for one, _ in swept), sum(one for _, one in swept)
    return size / seconds if size >= _RATE_BYTES_MIN and seconds else None


def _directory(
    home: BrokerDirectory, answers: Mapping[str, PartitionOutlook], node: Node, rate: float | None
) -> DirectoryOutlook:
    paths = (os.fspath(entry.path) for entry in home.entries)
    partitions = [answers[path] for path in paths if path in answers]
    findings = [*_with_loads(home.findings, partitions), *_of_room(home, partitions)]
    if node.server.roles != ("controller",):
        findings.extend(node.in_the_way(home))
    sizes = [one.swept_bytes for one in partitions]
    meta, threads = home.meta, node.server.threads
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
    """Findings of a directory, with the consequences for its partitions, which are loaded later.

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
        yield replace(
            one,
            message=f"{one.message}; the broker then stops while it loads {stopping.path}",
            outcome=Outcome.FAILS,
        )


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
        disk = os.statvfs(home.path)
        free = disk.f_bavail * disk.f_frsize
        if written > free:
            message = f"loading writes {written} bytes, and {free} are free"
            verbs = ("retain", "compact")
            yield finding(
                "room",
                home.path,
                message,
                "\n".join(command_line("kseg", verb, home.path) for verb in verbs),
            )


def _for_release(found: DoctorReport, *, known: str | None) -> DoctorReport:
    """The report without the outcomes that are not known for another release."""
    if known in FOLLOWED:
        return found
    directories = tuple(
        replace(each, outcome=_not_known(each.outcome, known=known)) for each in found.directories
    )
    outcome = _not_known(found.outcome, known=known)
    if any(each.code in ("setting-refused", "feature-level") for each in found.findings):
        outcome = Outcome.FAILS
    return replace(found, outcome=outcome, directories=directories)


def _not_known(outcome: Outcome, *, known: str | None) -> Outcome:
    return outcome if known is not None and outcome is Outcome.STARTS else Outcome.UNKNOWN
