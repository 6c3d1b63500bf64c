"""The grammar of Kafka's names: pure functions over strings, no disk.

`S` is a base offset in 20 decimal digits.

    <data directory>/
      .lock  .kafka_cleanshutdown  meta.properties  bootstrap.checkpoint
      {recovery-point,log-start,replication,cleaner}-offset-checkpoint
      <topic>-<partition>/                          and, with 32 hex digits of a UUID in between,
      <topic>-<partition>.<uuid>-{delete,future,stray}/
        S.log  S.index  S.timeindex  S.txnindex     a segment; before Kafka 0.8 just S.kafka
        S.snapshot                                  producer state up to S
        leader-epoch-checkpoint  partition.metadata
        <end offset>-<epoch, 10 digits>.checkpoint  a KRaft snapshot: batches, as in a log
        <any of these>.{cleaned,swap,deleted,tmp,part}

Topics may contain dots and dashes, so the last dot and the last dash count. An offset is whatever
integer precedes the first dot: Kafka does not ask for 20 digits, nor for a positive number.

Source: Kafka `LogFileUtils`, `LocalLog.parseTopicPartitionName`, `LogLoader`, `Snapshots`.
"""

from __future__ import annotations

import os
import re
from enum import Enum
from typing import Final, NamedTuple

from kseg.constants import INT32_MAX, INT64_MAX, INT64_MIN, StrPath
from kseg.errors import NotALogError

OFFSET_MAX: Final = INT64_MAX
#: The number of digits of the offset in Kafka's names.
_DIGITS: Final = 20
#: The most characters of a name that any file system accepts.
_NAME_MAX: Final = 255


class FileKind(Enum):
    """The kind of a file; the value is its extension, or its whole name where that is fixed."""

    LOG = "log"
    KAFKA07 = "kafka"
    INDEX = "index"
    TIMEINDEX = "timeindex"
    TXNINDEX = "txnindex"
    SNAPSHOT = "snapshot"
    CHECKPOINT_KRAFT = "checkpoint"
    LEADER_EPOCHS = "leader-epoch-checkpoint"
    PARTITION_METADATA = "partition.metadata"
    QUORUM_STATE = "quorum-state"
    RECOVERY_POINT = "recovery-point-offset-checkpoint"
    LOG_START = "log-start-offset-checkpoint"
    REPLICATION = "replication-offset-checkpoint"
    CLEANER = "cleaner-offset-checkpoint"
    META_PROPERTIES = "meta.properties"
    BOOTSTRAP = "bootstrap.checkpoint"
    CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
    LOCK = ".lock"

    #: Members are compared by identity; `Enum`'s own comparison takes a Python call each time.
    __hash__ = object.__hash__

    @property
    def holds_batches(self) -> bool:
        """Whether the file is batches or messages back to back."""
        return self in _OF_BATCHES


_OF_BATCHES: Final = frozenset(
    (FileKind.LOG, FileKind.KAFKA07, FileKind.CHECKPOINT_KRAFT, FileKind.BOOTSTRAP)
)
SEGMENT_KINDS: Final = {
    kind.value: kind
    for kind in (
        FileKind.LOG,
        FileKind.KAFKA07,
        FileKind.INDEX,
        FileKind.TIMEINDEX,
        FileKind.TXNINDEX,
        FileKind.SNAPSHOT,
    )
}
OF_SEGMENTS: Final = frozenset(SEGMENT_KINDS.values()) - {FileKind.SNAPSHOT}
_PARTITION_KINDS: Final = {
    kind.value: kind
    for kind in (FileKind.LEADER_EPOCHS, FileKind.PARTITION_METADATA, FileKind.QUORUM_STATE)
}
_DATA_DIRECTORY_KINDS: Final = {
    kind.value: kind
    for kind in (
        FileKind.RECOVERY_POINT,
        FileKind.LOG_START,
        FileKind.REPLICATION,
        FileKind.CLEANER,
        FileKind.META_PROPERTIES,
        FileKind.BOOTSTRAP,
        FileKind.CLEAN_SHUTDOWN,
        FileKind.LOCK,
    )
}
OF_DATA_DIRECTORIES: Final = frozenset(_DATA_DIRECTORY_KINDS.values())
_FIXED_NAMES: Final = _PARTITION_KINDS | _DATA_DIRECTORY_KINDS
_SUFFIXES: Final = frozenset(("cleaned", "swap", "deleted", "tmp", "part"))
_URL: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_KRAFT_STEM: Final = re.compile(r"([0-9]{20})-([0-9]{10})", re.ASCII)
_TOPIC: Final = re.compile(r"[A-Za-z0-9._-]{1,249}", re.ASCII)
INTEGER: Final = re.compile(r"[+-]?[0-9]{1,64}", re.ASCII)
_SUFFIXED_DIRECTORY: Final = re.compile(r"(\S+)-(\S+)\.(\S+)-(delete|future|stray)")


class FileName(NamedTuple):
    """A parsed file name.

    Attributes:
        kind: the kind of its contents.
        base_offset: the integer before the first dot: base offset of a segment, end offset of a
            snapshot; None where the name carries none.
        suffix: `cleaned`, `swap`, `deleted`, `tmp` or `part` of a transient form, else None.
        epoch: leader epoch of a KRaft snapshot, else None.
    """

    kind: FileKind
    base_offset: int | None = None
    suffix: str | None = None
    epoch: int | None = None


class PartitionName(NamedTuple):
    """A parsed name of a partition directory.

    Attributes:
        topic: cut short in the names of deleted and stray logs that would be too long.
        partition: number of the partition.
        suffix: `delete`, `future` or `stray`, else None.
        uuid: the text between the last dot and the suffix, else None.
    """

    topic: str
    partition: int
    suffix: str | None = None
    uuid: str | None = None


#: The words for a URL that something is to be written to.
URL_REFUSAL: Final = (
    "a URL, and kseg writes to directories of this machine only: give a local path, and copy what "
    "is written from there"
)


def is_url(path: str) -> bool:
    """Whether a path names something in a store or on another machine: `s3://bucket/key`."""
    return _URL.match(path) is not None


def is_topic_name(name: str) -> bool:
    """Whether Kafka allows a name for a topic; such a name is safe as part of a path.

    Source: Kafka `Topic.validate`.
    """
    return _TOPIC.fullmatch(name) is not None and name not in (".", "..")


def segment_name(base_offset: int, kind: FileKind = FileKind.LOG) -> str:
    """Name a segment's file: `segment_name(42)` is `00000000000000000042.log`."""
    if not 0 <= base_offset <= OFFSET_MAX:
        raise ValueError(f"base offset {base_offset} is not within 0 to {OFFSET_MAX}")
    return f"{base_offset:020d}.{kind.value}"


def offset_from_file_name(name: str) -> int:
    """The integer before the first dot of a file name.

    Raises:
        NotALogError: there is no dot, no integer before it, or one beyond 64 bits.
    """
    stem, dot, _extension = name.partition(".")
    if not dot:
        raise NotALogError("a name without a dot carries no offset", path=name)
    if not INTEGER.fullmatch(stem):
        raise NotALogError(f"{stem!r} before the first dot is not an offset", path=name)
    offset = int(stem)
    if not INT64_MIN <= offset <= OFFSET_MAX:
        raise NotALogError(f"offset {stem} does not fit in 64 bits", path=name)
    return offset


def parse_name(name: str) -> FileName | None:
    """Parse a file name; None for a name that is not Kafka's.

    Raises:
        NotALogError: a segment's extension after text that is not an offset; Kafka's own loading
            fails there.
    """
    digits, _dot, extension = name.rpartition(".")
    kind = SEGMENT_KINDS.get(extension)
    if kind is not None and len(digits) == _DIGITS and digits.isascii() and digits.isdigit():
        offset = int(digits)  # nearly all names have an offset
        if offset <= OFFSET_MAX:
            return FileName(kind, offset)
    plain, suffix = split_suffix(name)
    fixed = _FIXED_NAMES.get(plain)
    if fixed is not None:
        return FileName(fixed, suffix=suffix)
    stem, _dot, extension = plain.rpartition(".")
    kind = SEGMENT_KINDS.get(extension)
    if kind is not None:
        return FileName(kind, offset_from_file_name(name), suffix)
    if extension == FileKind.CHECKPOINT_KRAFT.value:
        return _kraft_name(stem, suffix)
    return None


def file_name(path: StrPath) -> FileName:
    """Parse a file name leniently: `copy.log` is a log without a base offset.

    Args:
        path: the file, which need not exist; only the last part of the path counts.

    Raises:
        NotALogError: neither a name nor an extension of Kafka's.
    """
    plain_name = os.path.basename(path)
    try:
        name = parse_name(plain_name)
    except NotALogError:  # right extension, no offset
        plain, suffix = split_suffix(plain_name)
        return FileName(SEGMENT_KINDS[plain.rpartition(".")[2]], None, suffix)
    if name is None:
        raise NotALogError(
            "not a name of Kafka's: files end in .log, .index, .timeindex, .txnindex, "
            ".snapshot, .checkpoint, .kafka, or have a fixed name",
            path=path,
        )
    return name


def parse_partition_dir(name: str) -> PartitionName:
    """Parse the name of a partition directory, as Kafka does at start.

    Raises:
        NotALogError: not a name that Kafka would load.
    """
    plain, suffix, uuid = name, None, None
    if name.endswith(("-delete", "-future", "-stray")):
        match = _SUFFIXED_DIRECTORY.fullmatch(name)
        if match is None:
            raise _not_a_partition(name)
        plain, _dot, uuid = name[: match.start(4) - 1].rpartition(".")
        suffix = match[4]
    topic, dash, number = plain.rpartition("-")
    if not dash or not topic or not INTEGER.fullmatch(number):
        raise _not_a_partition(name)
    partition = int(number)
    if partition > INT32_MAX:
        raise _not_a_partition(name)
    return PartitionName(topic, partition, suffix, uuid)


def suffixed_directory(topic: str, partition: int, suffix: str, uuid: str) -> str:
    """The name of a partition directory that is deleted, future (an unfinished copy) or stray.

    `suffixed_directory("orders", 3, "delete", 32 * "0")` is `orders-3.000...000-delete`. All but
    future ones are cut, at the topic's end, to a length that every file system accepts.

    Args:
        topic: the topic of the partition.
        partition: its number.
        suffix: `delete`, `future` or `stray`.
        uuid: 32 hexadecimal digits.

    Source: Kafka `LocalLog.logDirNameWithSuffix`.
    """
    ending = f"-{partition}.{uuid}-{suffix}"
    topic_length = len(topic) if suffix == "future" else min(len(topic), _NAME_MAX - len(ending))
    return topic[:topic_length] + ending


def split_suffix(name: str) -> tuple[str, str | None]:
    """Take `cleaned`, `swap`, `deleted`, `tmp` or `part` off a name."""
    plain, _dot, last = name.rpartition(".")
    return (plain, last) if plain and last in _SUFFIXES else (name, None)


def _kraft_name(stem: str, suffix: str | None) -> FileName | None:
    """The parsed name of a KRaft snapshot, `<end offset>-<epoch>`; None for another stem."""
    match = _KRAFT_STEM.fullmatch(stem)
    if match is None or int(match[1]) > OFFSET_MAX or int(match[2]) > INT32_MAX:
        return None
    return FileName(FileKind.CHECKPOINT_KRAFT, int(match[1]), suffix, epoch=int(match[2]))


def _not_a_partition(name: str) -> NotALogError:
    return NotALogError(
        "not a partition directory's name, which is <topic>-<number>, or that and "
        ".<uuid>-delete, -future or -stray",
        path=name,
    )
