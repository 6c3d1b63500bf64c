"""The contents of a tier: the files of each segment, each a path that opens itself.

A path says the object that it is in. Its `name` is the one that Kafka has for the file, whatever
the object's is, so that it is read as a file of a partition directory.

The metadata topic describes the segments of each partition. A segment begins with a record that has
everything but its custom metadata; each update changes its state. The order of the records decides,
so they are taken one after the other.

Source: Kafka `RemoteLogMetadataCache`, `RemoteLogSegmentState.isValidTransition`.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import PosixPath
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from kseg.constants import InternalTopic
from kseg.documents import id_of, id_text
from kseg.errors import (
    CorruptRecordError,
    InvalidRecordError,
    KsegError,
    LimitExceededError,
    NotALogError,
    TierError,
)
from kseg.files import producer_snapshot
from kseg.files.checkpoints import EpochEntry
from kseg.files.grammar import parse_partition_dir
from kseg.files.mapping import MappedFile
from kseg.files.txn_index import TXN_ENTRY_BYTES, TxnIndex
from kseg.internal.records import decode
from kseg.log.reader.view import LogView
from kseg.log.reader.visible import Decided
from kseg.log.tier import aiven
from kseg.log.tier.lineage import EpochIndex, RemoteSegment, SegmentState
from kseg.stores.path import is_remote
from kseg.stores.ranges import RangedFile, StoredFile
from kseg.stores.store import Store, StoredObject

if TYPE_CHECKING:
    from kseg.log.tier.aiven import Keys, Manifest


#: The states that may follow each: a copy has started (0), is finished (1), its removal has started
#: (2), is finished (3). None stands before the first record. A state may repeat.
_FOLLOWING: Final[Mapping[int | None, tuple[int, ...]]] = {
    None: (0,),
    0: (1, 2),
    1: (2,),
    2: (3,),
    3: (),
}


class Replay:
    """The segments of one partition, from the records of the metadata topic in their order.

    Attributes:
        segments: keyed by id, removed ones too.
        index: the finished segments, to look up by leader epoch and offset.
        faults: the records that contradict records before them.
    """

    def __init__(self) -> None:
        """Start without segments."""
        self.segments: dict[str, RemoteSegment] = {}
        self.index = EpochIndex()
        self.faults: list[KsegError] = []

    def take(self, segment: RemoteSegment) -> None:
        """Process the record that begins a copy of a segment.

        Raises:
            TierError: its offsets contradict each other, or the id is known.
        """
        segment.check()
        if segment.id in self.segments or segment.state != SegmentState.COPY_SEGMENT_STARTED:
            raise TierError(f"segment {segment.id} does not begin with {segment.state.name}")
        self.segments[segment.id] = segment

    def update(self, id_: str, state: int, event_ms: int, custom: bytes | None) -> None:
        """Process a change of a copy's state.

        Raises:
            TierError: the segment is not known, or cannot have this state now; nothing changes.
        """
        segment = self.segments.get(id_)
        if segment is not None and segment.state > state >= SegmentState.DELETE_SEGMENT_STARTED:
            return  # a broker repeats a removal that another broker has ended
        allowed = () if segment is None else (segment.state, *_FOLLOWING[segment.state])
        if segment is None or state not in allowed:
            was = "is not known" if segment is None else f"is {segment.state.name}"
            raise TierError(f"segment {id_} {was}, and cannot have state {state}")
        changed = replace(
            segment,
            state=SegmentState(state),
            event_ms=event_ms,
            custom=custom,
        )
        self.segments[id_] = changed
        if changed.state is SegmentState.COPY_SEGMENT_FINISHED:
            self.index.put(changed)
        elif changed.state is SegmentState.DELETE_SEGMENT_STARTED:
            self.index.remove(changed)


#: A partition of a topic: its name, its number, the topic's id as text.
Place = tuple[str, int, str]


def replay(views: Iterable[LogView]) -> tuple[dict[Place, Replay], list[KsegError]]:
    """Replay partitions of the metadata topic; return also the faults of undecodable records.

    All records of a partition are in one partition of that topic.

    Raises:
        KsegError, OSError: the metadata log itself cannot be read.
    """
    replays: dict[Place, Replay] = {}
    faults: list[KsegError] = []
    for view in views:
        for offset, value in _values(view):
            record_faults = faults
            try:
                fields = decode(InternalTopic.REMOTE, None, value).value
                if isinstance(fields, dict) and "remoteLogSegmentId" in fields:
                    partition_replay = replays.setdefault(_partition_of(fields), Replay())
                    record_faults = partition_replay.faults
                    _apply(partition_replay, fields)
            except (InvalidRecordError, TierError) as error:
                record_faults.append(TierError(error.reason, path=view.path, offset=offset))
    return replays, faults


def _values(view: LogView) -> Iterator[tuple[int, bytes | None]]:
    """Offset and value of each record."""
    for columns in view.read(columns=("offset", "value")):
        yield from zip(columns["offset"].tolist(), columns["value"], strict=True)


def _partition_of(fields: dict[str, Any]) -> Place:
    partition = fields["remoteLogSegmentId"]["topicIdPartition"]
    return partition["name"], partition["partition"], id_text(partition["id"])


def _apply(partition_replay: Replay, fields: dict[str, Any]) -> None:
    """Apply a record of the tier's metadata: a new copy, or another state of one."""
    id_, state = id_text(fields["remoteLogSegmentId"]["id"]), fields["remoteLogSegmentState"]
    if "startOffset" not in fields:
        partition_replay.update(id_, state, fields["eventTimestampMs"], fields["customMetadata"])
        return
    if state not in _FOLLOWING:
        raise TierError(f"segment {id_} has state {state}, which does not exist")
    partition_replay.take(
        RemoteSegment(
            id_,
            fields["startOffset"],
            fields["endOffset"],
            tuple(
                EpochEntry(entry["leaderEpoch"], entry["offset"])
                for entry in fields["segmentLeaderEpochs"]
            ),
            fields["segmentSizeInBytes"],
            fields["maxTimestampMs"],
            fields["eventTimestampMs"],
            SegmentState(state),
            fields["customMetadata"],
        )
    )


def parse_id(text: str) -> UUID | None:
    """The id that a text of 22 characters is; None for another text."""
    try:
        uuid = id_of(text)
    except ValueError:
        return None
    return uuid if id_text(uuid) == text else None


#: The extension of a manifest, and that of the object with the indexes.
MANIFEST: Final = "rsm-manifest"
INDEXES: Final = "indexes"


class HeldFile(RangedFile):
    """Bytes in memory, read as a file."""

    __slots__ = ("_data",)

    def __init__(self, path: str, data: bytes | memoryview) -> None:
        """Take over the bytes."""
        super().__init__(path, len(data))
        self._data: Final = memoryview(data)

    def _fetch(self, start: int, end: int) -> tuple[memoryview, None]:
        return self._data[start:end], None


def open_object(stored: StoredObject) -> MappedFile:
    """Open an object of a tier, in a store or in a directory.

    Raises:
        CorruptRecordError: a file is another one than it was when it was listed.
        OSError: it is gone, or cannot be read.
    """
    if is_remote(stored.url):
        return StoredFile(Store.of(stored.url), stored)
    status = os.stat(stored.url)
    if (status.st_size, status.st_mtime_ns // 1_000_000) != (stored.size, stored.modified_ms):
        raise CorruptRecordError("the file changed while it was read", path=stored.url)
    return MappedFile.open(stored.url, "never")


def read_object(stored: StoredObject, *, bytes_max: int, at: int = 0, size: int = -1) -> memoryview:
    """Read a small object, or a part of it.

    Raises:
        LimitExceededError: it is larger than it may be.
        TierError: the object ends before the part.
        OSError: it is gone, or cannot be read.
    """
    size = stored.size - at if size < 0 else size
    if size > bytes_max:
        raise LimitExceededError(f"{size} bytes; expected are at most {bytes_max}", path=stored.url)
    if size > stored.size - at:
        raise TierError(f"it ends at {stored.size}, not at {at + size}", path=stored.url)
    with open_object(stored) as file:
        return file.read(at, size)


@dataclass(slots=True)
class SegmentObjects:
    """The objects of one copy of a segment.

    Attributes:
        base_offset: the base offset of the segment.
        log_url: the URL that the log should have, for messages.
        places: the objects, by extension.
        keys: files of private keys, keyed by the ids of key pairs.
        fault: why no file of the copy can be opened; None if they can.
    """

    base_offset: int
    log_url: str
    places: Mapping[str, StoredObject]
    keys: Keys = field(default_factory=dict)
    fault: KsegError | OSError | None = None
    _manifest: Manifest | None = field(default=None, compare=False, repr=False)
    _key: bytes | None = field(default=None, compare=False, repr=False)

    def __reduce__(self) -> tuple[Any, ...]:
        """The manifest is read again where it is unpickled."""
        return SegmentObjects, (
            self.base_offset,
            self.log_url,
            self.places,
            dict(self.keys),
            self.fault,
        )

    @property
    def is_chunked(self) -> bool:
        """Whether a manifest describes the objects."""
        return MANIFEST in self.places

    @property
    def manifest(self) -> Manifest:
        """The manifest, which is read once.

        Raises:
            TierError: it cannot be used, or does not fit the objects.
            OSError: it cannot be read.
        """
        if self._manifest is None:
            stored = self.places[MANIFEST]
            data = read_object(stored, bytes_max=aiven.MANIFEST_BYTES_MAX)
            manifest = aiven.parse_manifest(data, stored.url)
            log = self.places.get("log")
            if log is not None and log.size != manifest.chunks[-1]:
                raise TierError(
                    f"the chunks have {manifest.chunks[-1]} bytes, {log.url} has {log.size}",
                    path=stored.url,
                )
            self._manifest = manifest
        return self._manifest

    def has(self, extension: str) -> bool:
        """Whether there is such a file; for indexes in a manifest, whether there may be."""
        if extension == "log" or not self.is_chunked:
            return extension in self.places
        if self._manifest is not None:
            return extension in self._manifest.indexes
        return INDEXES in self.places

    def object_of(self, extension: str) -> StoredObject:
        """The object that has a file of the segment.

        Raises:
            FileNotFoundError: the tier lacks the file.
        """
        name = INDEXES if self.is_chunked and extension != "log" else extension
        if name not in self.places:
            missing_url = f"{self.log_url.removesuffix('.log')}.{name}"
            raise FileNotFoundError(errno.ENOENT, "the tier lacks this object", missing_url)
        return self.places[name]

    def open(self, extension: str) -> MappedFile:
        """Open a file of the segment.

        Raises:
            FileNotFoundError: there is none.
            TierError, OSError: it cannot be read.
        """
        if self.fault is not None:
            raise self.fault
        stored = self.object_of(extension)
        if not self.is_chunked:
            return open_object(stored)
        manifest = self.manifest
        if extension == "log" and manifest.is_plain:
            return open_object(stored)
        if self._key is None:
            self._key = aiven.data_key(manifest, self.keys, self.places[MANIFEST].url)
        key = self._key
        if extension == "log":
            return aiven.ChunkedFile(stored.url, manifest, key, _reader(stored))
        if extension not in manifest.indexes:
            raise FileNotFoundError(errno.ENOENT, f"it has no {extension}", stored.url)
        position, size = manifest.indexes[extension]
        if size == 0:
            return HeldFile(stored.url, b"")
        data = read_object(stored, bytes_max=aiven.MANIFEST_BYTES_MAX, at=position, size=size)
        try:
            return HeldFile(stored.url, aiven.unseal(data, key, manifest.aad))
        except TierError as error:
            raise TierError(f"the {extension}: {error.reason}", path=stored.url) from None

    @property
    def transaction_bytes(self) -> int:
        """Bytes that the transaction index should have; 0 if there is none."""
        if not self.is_chunked:
            return self.places["txnindex"].size if "txnindex" in self.places else 0
        size = self.manifest.indexes.get("txnindex", (0, 0))[1]
        return size - aiven.SEAL_BYTES if size and self.manifest.data_key is not None else size

    def size(self, extension: str) -> int:
        """Bytes of a file of the segment; see `open` for the errors."""
        if not self.is_chunked:
            return self.object_of(extension).size
        if extension == "log":
            return self.manifest.file_size
        with self.open(extension) as file:
            return file.size


def _reader(stored: StoredObject) -> Callable[[int, int], memoryview]:
    """A function that reads an object from one position to another."""
    if is_remote(stored.url):
        return partial(Store.of(stored.url).read, stored)
    file = open_object(stored)

    def read(start: int, end: int) -> memoryview:
        data = file.read(start, end - start)
        if len(data) < end - start:
            raise CorruptRecordError("the object is cut short", path=stored.url, position=start)
        return data

    return read


class TierPath(PosixPath):
    """The path of a file of a segment in a tier; no disk has a file of this name.

    Attributes:
        objects: the objects of the segment.
        extension: the extension of the file.
    """

    __slots__ = ("extension", "objects")
    objects: SegmentObjects
    extension: str

    @classmethod
    def of(cls, objects: SegmentObjects, extension: str) -> TierPath:
        """The path of a file of a segment, whether it exists or not."""
        try:
            url = objects.object_of(extension).url
        except FileNotFoundError as error:
            url = str(error.filename)
        path = cls(url)
        path.objects, path.extension = objects, extension
        return path

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the path with its objects."""
        return TierPath.of, (self.objects, self.extension)

    def __str__(self) -> str:
        """The object's URL, with both its slashes."""
        text = super().__str__()
        scheme, mark, rest = text.partition(":/")
        return f"{scheme}://{rest}" if mark and not text.startswith("/") else text

    def __fspath__(self) -> str:
        """The URL of the object, for messages."""
        return str(self)

    @property
    def name(self) -> str:
        """The name that the file has in a partition directory."""
        return f"{self.objects.base_offset:020d}.{self.extension}"

    def with_name(self, name: str) -> TierPath:
        """The file of the same segment with the extension of a name."""
        return TierPath.of(self.objects, name.partition(".")[2])

    def size_elsewhere(self) -> int:
        """The size of the file, in bytes."""
        return self.objects.size(self.extension)

    def open_elsewhere(self) -> MappedFile:
        """Open the file; see `SegmentObjects.open` for the errors."""
        return self.objects.open(self.extension)

    def decided(self) -> Decided | None:
        """The segment's transactions, from its own indexes; None to walk its headers.

        The transaction index has those that a marker in the segment aborts, the producer snapshot
        those that are open after it.

        Raises:
            OSError: the store refuses.
        """
        objects = self.objects
        if not objects.has("snapshot"):
            return None
        try:
            entries = producer_snapshot.read(self.with_name(".snapshot"))
            index = TxnIndex.open(self.with_name(".txnindex"))  # a missing index is empty
        except KsegError:
            return None
        if TXN_ENTRY_BYTES * len(index) != objects.transaction_bytes:
            return None  # cut short, or deleted since it was listed
        undecided = {
            entry.producer_id: entry.current_txn_first_offset
            for entry in entries
            if entry.current_txn_first_offset >= 0
        }
        aborted = [
            (transaction.producer_id, transaction.first_offset, transaction.last_offset)
            for transaction in index.entries()
        ]
        return Decided(undecided, aborted)


# ---- listing -------------------------------------------------------------------------------------

_SEGMENT: Final = re.compile(r"([0-9]{20})-([A-Za-z0-9_-]{22})\.([a-z_-]{3,30})", re.ASCII)
_PLAIN_SEGMENT: Final = re.compile(r"([0-9]{20})\.(log|index|timeindex)", re.ASCII)
ID_SIZE: Final = 22
RAW_SUFFIXES: Final = (
    *("log", "index", "timeindex", "txnindex"),
    *("leader_epoch_checkpoint", "snapshot"),
)
_CHUNKED_SUFFIXES: Final = ("log", INDEXES, MANIFEST)


@dataclass(slots=True)
class Group:
    """The objects of one partition under one prefix, keyed by segment: start offset and id.

    Attributes:
        layout: "local", "aiven" or "pinterest".
        directory: the prefix.
        topic: for an Aiven tier with what its key prefix may have put before the topic.
        topic_id: None if the layout has none.
        partition: its number.
        segments: the objects of each by extension.
    """

    layout: str
    directory: str
    topic: str
    topic_id: str | None
    partition: int
    segments: dict[tuple[int, str], dict[str, StoredObject]] = field(default_factory=dict)

    def holds(self, topic: str, partition: int) -> bool:
        """Whether the objects may be of a partition."""
        if self.partition != partition:
            return False
        return self.topic == topic or (self.layout == "aiven" and self.topic.endswith(topic))


def listed(root: str) -> Iterator[StoredObject]:
    """Every object below a URL or a directory; links are not followed."""
    if is_remote(root):
        yield from Store.of(root).listed(root)
        return
    if not os.path.isdir(root):
        os.stat(root)
        raise NotALogError("a tier is a directory, or a URL of one", path=root)
    for directory, inner, files in os.walk(root):
        inner.sort()
        for name in sorted(files):
            path = os.path.join(directory, name)
            with suppress(FileNotFoundError):
                status = os.lstat(path)
                if os.path.isfile(path) and not os.path.islink(path):
                    modified = status.st_mtime_ns // 1_000_000
                    yield StoredObject(path, status.st_size, None, modified)


def grouped(objects: Iterable[StoredObject]) -> list[Group]:
    """Group the objects whose names follow one of the layouts by partition; ignore others."""
    groups: dict[str, Group | None] = {}
    for stored in objects:
        directory, _, name = stored.url.rpartition("/")
        match, plain = _SEGMENT.fullmatch(name), _PLAIN_SEGMENT.fullmatch(name)
        if match is None and plain is None and name != "_metadata":
            continue
        if directory not in groups:
            groups[directory] = _group_of(directory, is_plain=match is None)
        group = groups[directory]
        if group is None:
            continue
        if match is not None and group.layout != "pinterest":
            suffixes = RAW_SUFFIXES if group.layout == "local" else _CHUNKED_SUFFIXES
            offset, segment_id, suffix = match.group(1, 2, 3)
            if suffix in suffixes:
                segment_objects = group.segments.setdefault((int(offset), segment_id), {})
                segment_objects[suffix] = stored
        elif plain is not None and group.layout == "pinterest":  # the offset is the id, too
            offset, suffix = plain.group(1, 2)
            group.segments.setdefault((int(offset), offset), {})[suffix] = stored
    return [group for group in groups.values() if group is not None]


def _group_of(directory: str, *, is_plain: bool) -> Group | None:
    """The partition of a prefix, parsed from its last parts; None if they follow no layout."""
    parts = directory.split("/")
    name, above = parts[-1], parts[-2] if len(parts) > 1 else ""
    if is_plain:
        with suppress(NotALogError):
            partition_name = parse_partition_dir(name)
            return Group(
                "pinterest", directory, partition_name.topic, None, partition_name.partition
            )
        return None
    if name.isascii() and name.isdigit() and len(name) < 11:
        topic, id_ = above[: -ID_SIZE - 1], above[-ID_SIZE:]
        is_id = above[-ID_SIZE - 1 : -ID_SIZE] == "-" and parse_id(id_) is not None
        return Group("aiven", directory, topic, id_, int(name)) if is_id and topic else None
    if name[-ID_SIZE - 1 : -ID_SIZE] == "-" and parse_id(name[-ID_SIZE:]) is not None:
        with suppress(NotALogError):
            partition_name = parse_partition_dir(name[: -ID_SIZE - 1])
            return Group(
                "local",
                directory,
                partition_name.topic,
                name[-ID_SIZE:],
                partition_name.partition,
            )
    return None
