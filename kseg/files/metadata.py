"""Small text files of ids, and the mark of a clean shutdown.

    partition.metadata        meta.properties                  .kafka_cleanshutdown
    version: 0                #                                {"version":0,"brokerEpoch":10}
    topic_id: AQIDBA...EA     #Sat Nov 21 07:09:30 UTC 2026
                              node.id=1
                              directory.id=wX9JIH7VHVQzeEc98wsAbg
                              version=1
                              cluster.id=YIbuvpCOTVtvnNvnn8ytFg

Ids are 16 bytes in URL-safe base64 without padding. `meta.properties` is Java properties text in
ISO 8859-1 with all its escapes. The mark was an empty file before Kafka 3.8; its existence counts,
whatever its contents. Files are written as Kafka writes them.

Source: Kafka `PartitionMetadataFile`, `MetaProperties`, `CleanShutdownFileHandler`;
`java.util.Properties.load`.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from os import fspath
from typing import Final
from uuid import UUID

from kseg.constants import INT32S, INT64S, StrPath
from kseg.documents import frozen_dataclass, id_of, id_text
from kseg.errors import CorruptIndexError, InconsistentTopicIdError, KsegError
from kseg.files import atomic, io
from kseg.files.names import FileKind

#: The broker epoch of a mark that no broker made; Kafka's value for an unknown epoch.
BROKER_EPOCH_UNKNOWN: Final = -1
#: The fields that `quorum-state` must have, by its version.
_QUORUM_FIELDS: Final = {
    0: ("clusterId", "leaderId", "leaderEpoch", "votedId", "appliedOffset", "currentVoters"),
    1: ("leaderId", "leaderEpoch", "votedId", "votedDirectoryId"),
}
#: The maximum size of these files, which have a few hundred bytes.
METADATA_BYTES_MAX: Final = 2**20
#: A broker's properties are written by hand, and may have long lists.
PROPERTIES_BYTES_MAX: Final = 2**24

_ID: Final = re.compile(r"([A-Za-z0-9_-]{22})(==)?", re.ASCII)
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,10}", re.ASCII)
_AFTER_NAME: Final = re.compile(r":\s+", re.ASCII)
_ESCAPED: Final = re.compile(r"\\(u[0-9A-Fa-f]{4}|.)", re.ASCII | re.DOTALL)
_KEY: Final = re.compile(r"((?:\\.|[^\\=: \t\f])*)[ \t\f]*(?:[=:][ \t\f]*)?", re.ASCII | re.DOTALL)
_CONTROLS: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}

#: Notes of an interrupted recovery, in a data directory; see `kseg.log.recovery.recover`.
RECOVERED_NAME: Final = ".kseg-recovered"


@frozen_dataclass
class PartitionMetadata:
    """The contents of `partition.metadata`: the id of the topic, as Kafka writes it."""

    version: int
    topic_id: str

    @property
    def uuid(self) -> UUID:
        """The 16 bytes of the id."""
        return id_of(self.topic_id)


@frozen_dataclass
class MetaProperties:
    """The contents of `meta.properties` in a data directory.

    Attributes:
        version: 0 (ZooKeeper) or 1 (KRaft).
        cluster_id: None if absent, which only version 0 may do.
        node_id: `node.id`, or `broker.id` in version 0; None if absent.
        directory_id: None before Kafka 3.7.
        properties: everything in the file.
    """

    version: int
    cluster_id: str | None
    node_id: int | None
    directory_id: str | None
    properties: dict[str, str]


@frozen_dataclass
class CleanShutdown:
    """The mark of a clean shutdown; the epoch is None if the file has none."""

    broker_epoch: int | None


def read_partition_metadata(path: StrPath) -> PartitionMetadata:
    """Read a `partition.metadata` file.

    Raises:
        CorruptIndexError: a line is malformed, the version is below 0, or the id is invalid or
            zero.
        LimitExceededError: the file is longer than such files can be.
        OSError: the file is missing or cannot be read.
    """
    lines = io.read_file(path, bytes_max=METADATA_BYTES_MAX).decode("utf-8", "replace").splitlines()
    values = [_AFTER_NAME.split(line) for line in lines[:2]]
    is_malformed = any(len(parts) != 2 for parts in values)  # Kafka gets no further then
    if len(values) < 2 or is_malformed:
        error = CorruptIndexError("not the two lines of a version and a topic id", path=path)
        raise error if is_malformed else error.as_kafka("NullPointerException")
    (_name, version_text), (_name, stored_id) = values
    version = _integer(version_text)
    if version is None or version < 0:
        raise CorruptIndexError(f"version {version_text!r} is not a number from 0 on", path=path)
    topic_id = _ID.fullmatch(stored_id)
    if topic_id is None:
        error = CorruptIndexError(f"topic id {stored_id!r} is not 16 bytes in base64", path=path)
        raise error.as_kafka("IllegalArgumentException")
    if not id_of(topic_id[1]).int:
        raise CorruptIndexError("the topic id is zero, which no topic has", path=path)
    return PartitionMetadata(version, topic_id[1])


def topic_id_in(directory: StrPath) -> UUID | None:
    """The topic id in a partition directory; None if no file has it, or the file is malformed."""
    return stored_topic_id(os.path.join(directory, FileKind.PARTITION_METADATA.value))


def stored_topic_id(path: StrPath | None) -> UUID | None:
    """The id of the topic in a `partition.metadata`; None if the file is missing or malformed."""
    if path is not None:
        with suppress(KsegError, OSError):
            return read_partition_metadata(path).uuid
    return None


def read_properties(path: StrPath) -> dict[str, str]:
    """Read a file of Java properties, such as a broker's `server.properties`.

    Raises:
        ValueError: a malformed escape.
        LimitExceededError: it is longer than such files can be.
        OSError: the file is missing or cannot be read.
    """
    return parse_properties(io.read_file(path, bytes_max=PROPERTIES_BYTES_MAX).decode("latin-1"))


def log_directories(properties: Mapping[str, str]) -> tuple[str, ...]:
    """The data directories that a broker's properties name, without that of the metadata log.

    >>> log_directories({"log.dir": "/a", "log.dirs": "/b, /c"})
    ('/b', '/c')
    """
    named = properties.get("log.dirs") or properties.get("log.dir") or ""
    return tuple(directory.strip() for directory in named.split(",") if directory.strip())


def read_meta_properties(path: StrPath) -> MetaProperties:
    """Read a `meta.properties` file.

    Raises:
        CorruptIndexError: a malformed escape or number, an unknown version, or a missing id.
        OSError: the file is missing or cannot be read.
    """
    text = io.read_file(path, bytes_max=METADATA_BYTES_MAX).decode("latin-1")
    try:
        properties = parse_properties(text)
    except ValueError as error:
        raise CorruptIndexError(str(error), path=path) from error
    version = _integer(properties.get("version", "0"))
    if version not in (0, 1):
        raise CorruptIndexError(f"version {properties['version']!r} is not 0 or 1", path=path)
    node = properties.get("node.id" if version else "broker.id")
    node_id = None if node is None else _integer(node)
    if node is not None and node_id is None:
        raise CorruptIndexError(f"node id {node!r} is not a number", path=path)
    cluster_id = properties.get("cluster.id")
    if version == 1 and (cluster_id is None or node_id is None):
        raise CorruptIndexError("version 1 without a cluster.id or a node.id", path=path)
    directory_id = properties.get("directory.id")
    if directory_id is not None and not _ID.fullmatch(directory_id):
        raise CorruptIndexError(f"directory id {directory_id!r} is not 16 bytes", path=path)
    return MetaProperties(version, cluster_id, node_id, directory_id, properties)


def check_quorum_state(path: StrPath) -> None:
    """Check that Kafka can read a `quorum-state` file.

    Raises:
        CorruptIndexError: no object in its first line, an unknown version, or a missing field.
        OSError: the file is missing or cannot be read.

    Source: Kafka `FileQuorumStateStore`, `QuorumStateDataJsonConverter`.
    """
    text = io.read_file(path, bytes_max=METADATA_BYTES_MAX).decode("utf-8", "replace")
    try:
        state, _end = json.JSONDecoder().raw_decode(text.partition("\n")[0].lstrip())
    except (ValueError, RecursionError):
        state = None
    if not isinstance(state, dict) or state.get("data_version") is None:
        error = CorruptIndexError("its first line is not an object with a data_version", path=path)
        raise error.as_kafka("UncheckedIOException")
    fields = _QUORUM_FIELDS.get(state["data_version"])
    if fields is None:
        error = CorruptIndexError(f"data_version {state['data_version']!r} is unknown", path=path)
        raise error.as_kafka("IllegalStateException")
    missing = [name for name in fields if name not in state]
    if missing:
        error = CorruptIndexError(f"{missing[0]} is missing", path=path)
        raise error.as_kafka("RuntimeException")


def is_of_broker(data_directory: StrPath) -> bool:
    """Whether a data directory is a broker's: it has a `meta.properties`, even a malformed one."""
    return os.path.lexists(os.path.join(data_directory, FileKind.META_PROPERTIES.value))


def read_clean_shutdown(data_directory: StrPath) -> CleanShutdown | None:
    """Read the mark of a clean shutdown; None if there is none.

    Raises:
        OSError: the mark cannot be read.
    """
    path = _clean_shutdown_path(data_directory)
    try:
        data = io.read_file(path, bytes_max=METADATA_BYTES_MAX)
    except FileNotFoundError:
        return None
    except IsADirectoryError:
        if os.listdir(path):  # no start can remove it
            raise
        return CleanShutdown(None)
    try:
        content = json.loads(data)
    except (ValueError, RecursionError):  # only its existence counts
        return CleanShutdown(None)
    epoch = content.get("brokerEpoch") if isinstance(content, dict) else None
    is_epoch = type(epoch) is int and epoch in INT64S
    return CleanShutdown(epoch if is_epoch else None)


def write_partition_metadata(path: StrPath, topic_id: UUID) -> None:
    """Replace a `partition.metadata` file, lasting when this returns.

    Raises:
        ValueError: the id is zero, which no topic has.
        OSError: the old file is still there.
    """
    if not topic_id.int:
        raise ValueError("the topic id is zero, which no topic has")
    text = id_text(topic_id)
    atomic.replace_file(path, f"version: 0\ntopic_id: {text}".encode())


def has_topic_id(path: StrPath, topic_id: UUID) -> bool:
    """Whether a `partition.metadata` file has a topic id; false if there is no file.

    Raises:
        InconsistentTopicIdError: the file has another id.
        CorruptIndexError: the file is malformed.
        OSError: the file cannot be read.
    """
    try:
        stored_id = read_partition_metadata(path).uuid
    except FileNotFoundError:
        return False
    if stored_id != topic_id:
        raise InconsistentTopicIdError(f"the topic's id is {stored_id}, not {topic_id}", path=path)
    return True


def record_topic_id(path: StrPath, topic_id: UUID) -> bool:
    """Write a topic's id to `partition.metadata`; returns whether it was not there before.

    Raises:
        InconsistentTopicIdError: it says another.
        CorruptIndexError: it is malformed.
        ValueError, OSError: as `write_partition_metadata`.

    Source: Kafka `PartitionMetadataFile.record`.
    """
    if has_topic_id(path, topic_id):
        return False
    write_partition_metadata(path, topic_id)
    return True


def write_clean_shutdown(data_directory: StrPath, broker_epoch: int = BROKER_EPOCH_UNKNOWN) -> None:
    """Write the mark of a clean shutdown, lasting when this returns; the last step of a shutdown.

    Raises:
        OSError: no mark was made.
    """
    text = f'{{"version":0,"brokerEpoch":{broker_epoch}}}'
    atomic.replace_file(_clean_shutdown_path(data_directory), text.encode())


def remove_recovery_notes(data_directory: StrPath) -> None:
    """Remove the notes of an interrupted recovery; does nothing if there are none.

    Raises:
        OSError: the notes are still there.
    """
    io.unlink(os.path.join(fspath(data_directory), RECOVERED_NAME), missing_ok=True)


def remove_clean_shutdown(data_directory: StrPath) -> None:
    """Remove the mark durably; does nothing if there is none.

    Raises:
        OSError: the mark may still be there.
    """
    path = _clean_shutdown_path(data_directory)
    try:
        (io.remove_directory if os.path.isdir(path) else io.unlink)(path)
    except FileNotFoundError:
        return
    io.flush_directory(data_directory)


def _clean_shutdown_path(data_directory: StrPath) -> str:
    """The path of the mark of a clean shutdown."""
    return os.path.join(fspath(data_directory), FileKind.CLEAN_SHUTDOWN.value)


def parse_properties(text: str) -> dict[str, str]:
    r"""Parse Java properties text; if a key has several lines, the last counts.

    >>> parse_properties("# a comment\nnode.id = 1\nb\\u0020c:d\\\n  e")
    {'node.id': '1', 'b c': 'de'}

    Raises:
        ValueError: `\u` without four hex digits.

    Source: `java.util.Properties.load`.
    """
    properties = {}
    for line in _logical_lines(text):
        key = _KEY.match(line)
        assert key is not None  # it matches the empty string
        properties[_unescape(key[1])] = _unescape(line[key.end() :])
    return properties


def _logical_lines(text: str) -> Iterator[str]:
    """Lines without comments and blanks; a line that ends in a backslash is joined to the next."""
    parts: list[str] = []
    for raw in re.split(r"\r\n|\r|\n", text):
        line = raw.lstrip(" \t\f")
        if not parts and (not line or line[0] in "#!"):
            continue
        backslashes = len(line) - len(line.rstrip("\\"))
        if backslashes % 2:
            parts.append(line[:-1])
            continue
        yield "".join([*parts, line])
        parts = []
    if parts:
        yield "".join(parts)


def _unescape(text: str) -> str:
    """A text without the backslashes of Java properties."""

    def unescaped(match: re.Match[str]) -> str:
        escape = match[1]
        if escape[0] != "u":
            return _CONTROLS.get(escape, escape)
        if len(escape) == 1:
            raise ValueError(r"a \u without four hex digits")
        return chr(int(escape[1:], 16))

    return _ESCAPED.sub(unescaped, text)


def _integer(text: str) -> int | None:
    """An integer of 32 bits; None for any other text."""
    if not _INTEGER.fullmatch(text):
        return None
    number = int(text)
    return number if number in INT32S else None


def parse_topic_id(text: str) -> UUID:
    """A topic's id as Kafka prints it: 16 bytes in URL-safe base64 without padding.

    >>> parse_topic_id("AAAAAAAAAAAAAAAAAAAAAQ").int
    1

    Raises:
        ValueError: it is invalid, or zero, which no topic has.
    """
    with suppress(ValueError):
        uuid = id_of(text)
        if uuid.int and id_text(uuid) == text:
            return uuid
    raise ValueError(f"{text!r} is not a topic id: 22 characters of base64")
