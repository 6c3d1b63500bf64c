"""Kafka's text checkpoints: offsets of partitions, and the leader epochs of one.

    0                       version
    2                       number of entries
    orders 0 1200           <topic> <partition> <offset>, or in leader-epoch-checkpoint
    orders 1 1187           <epoch> <start offset>

UTF-8, one entry a line, fields apart by white space. An empty file, or the version alone, means no
entries. Anything else is an error: Kafka then takes the directory offline.

Source: Kafka `CheckpointFile`, `OffsetCheckpointFile`, `LeaderEpochCheckpointFile`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, NoReturn

from kseg.constants import INT32S, INT64S, StrPath
from kseg.errors import CorruptIndexError
from kseg.files import atomic, io
from kseg.files.grammar import INTEGER
from kseg.frozen import frozen_dataclass

CHECKPOINT_VERSION: Final = 0
#: Room for about a million partitions; the rest is not read.
CHECKPOINT_BYTES_MAX: Final = 2**28

_WHITE_SPACE: Final = re.compile(r"\s+", re.ASCII)
_BLANKS: Final = " \t\n\x0b\f\r"
#: Kafka treats a malformed line as an error of input and output.
_MALFORMED: Final = CorruptIndexError.kafka_exception


class TopicPartition(NamedTuple):
    """A partition of a topic."""

    topic: str
    partition: int


class EpochEntry(NamedTuple):
    """A leader epoch and the first offset that was written in it."""

    epoch: int
    start_offset: int


@frozen_dataclass
class LeaderEpochCheckpoint:
    """The entries of a leader epoch checkpoint.

    Attributes:
        entries: as they stand in the file.
        effective: as Kafka has them after loading, both numbers ascending: one that does not
            ascend displaces those before it.
    """

    entries: tuple[EpochEntry, ...]
    effective: tuple[EpochEntry, ...]


def read_offset_checkpoint(path: StrPath) -> dict[TopicPartition, int]:
    """Read one of the four offset checkpoints of a data directory.

    Returns:
        The offsets in file order; of duplicates the last counts.

    Raises:
        CorruptIndexError: malformed; `.position` is the byte at which the line starts.
        LimitExceededError: longer than any checkpoint.
        OSError: the file is missing or cannot be read.
    """
    reader = _Reader(io.read_file(path, bytes_max=CHECKPOINT_BYTES_MAX), path)
    offsets = {}
    for topic, partition, offset in reader.entries(fields=3):
        number = reader.field(partition, INT32S, "partition")
        offsets[TopicPartition(topic, number)] = reader.field(offset, INT64S, "offset")
    return offsets


def read_leader_epochs(path: StrPath) -> LeaderEpochCheckpoint:
    """Read a partition's `leader-epoch-checkpoint`.

    Raises:
        CorruptIndexError: malformed, or an entry is negative; Kafka fails to load the log then.
        LimitExceededError: longer than any checkpoint.
        OSError: the file is missing or cannot be read.
    """
    reader = _Reader(io.read_file(path, bytes_max=CHECKPOINT_BYTES_MAX), path)
    entries = []
    for epoch, start_offset in reader.entries(fields=2):
        entry = EpochEntry(
            reader.field(epoch, INT32S, "epoch"),
            reader.field(start_offset, INT64S, "start offset"),
        )
        if min(entry) < 0:
            reader.fail(
                f"epoch {entry.epoch} or start offset {entry.start_offset} is negative",
                "IllegalArgumentException",
            )
        entries.append(entry)
    return LeaderEpochCheckpoint(tuple(entries), assign_epochs(entries))


def write_offset_checkpoint(path: StrPath, offsets: Mapping[TopicPartition, int]) -> None:
    """Replace an offset checkpoint, lasting when this returns; entries in the order given.

    Raises:
        ValueError: a number has no room in Kafka's field; the old file is still there.
        OSError: the old file is still there.
    """
    entries = offsets.items()
    for (topic, partition), offset in entries:
        if partition not in INT32S or offset not in INT64S:
            raise ValueError(f"no room in a checkpoint for {topic}-{partition} at {offset}")
    lines = [f"{topic} {partition} {offset}" for (topic, partition), offset in entries]
    atomic.replace_file(path, _bytes_of(lines))


def write_leader_epochs(path: StrPath, entries: Sequence[EpochEntry]) -> None:
    """Replace a partition's `leader-epoch-checkpoint`, lasting when this returns.

    Raises:
        ValueError: a number has no room in Kafka's field; the old file is still there.
        OSError: the old file is still there.
    """
    for entry in entries:
        if entry.epoch not in INT32S or entry.start_offset not in INT64S or min(entry) < 0:
            raise ValueError(f"no room in a checkpoint for {entry}")
    atomic.replace_file(path, leader_epochs_bytes(entries))


def leader_epochs_bytes(entries: Sequence[EpochEntry]) -> bytes:
    """The contents of a `leader-epoch-checkpoint` with these entries."""
    return _bytes_of([f"{entry.epoch} {entry.start_offset}" for entry in entries])


def _bytes_of(lines: Sequence[str]) -> bytes:
    return "\n".join((str(CHECKPOINT_VERSION), str(len(lines)), *lines, "")).encode()


def assign_epochs(entries: Iterable[EpochEntry]) -> tuple[EpochEntry, ...]:
    """Take entries one by one as Kafka's epoch cache does; the result ascends in both numbers.

    One for the latest epoch that does not start earlier is ignored; any other displaces those of
    its own or a later epoch, and those that start where it does or later.

    Source: Kafka `LeaderEpochFileCache.assign`.
    """
    cache: list[EpochEntry] = []
    for entry in entries:
        if (
            cache
            and cache[-1].epoch == entry.epoch
            and cache[-1].start_offset <= entry.start_offset
        ):
            continue
        while cache and (
            cache[-1].epoch >= entry.epoch or cache[-1].start_offset >= entry.start_offset
        ):
            cache.pop()
        cache.append(entry)
    return tuple(cache)


class _Reader:
    """Lines of one checkpoint, remembering where each begins, so that errors can say it."""

    __slots__ = ("_data", "_path", "_position")

    def __init__(self, data: bytes, path: StrPath) -> None:
        self._data = data
        self._path = path
        self._position = 0

    def entries(self, *, fields: int) -> Iterator[list[str]]:
        """The fields of each entry, after checking the two lines above and the count below."""
        lines = self._lines()
        version = next(lines, None)
        if version is None:
            return
        if (number := self.integer(version, INT32S, "version")) != CHECKPOINT_VERSION:
            self.fail(f"version {number} is not {CHECKPOINT_VERSION}")
        count_line = next(lines, None)
        if count_line is None:
            return
        count = self.integer(count_line, INT32S, "number of entries")
        entry_count = 0
        for line in lines:
            entry = _WHITE_SPACE.split(line.rstrip(_BLANKS))  # a blank in front is an empty field
            if len(entry) != fields:
                self.fail(f"{line!r} has not {fields} fields")
            entry_count += 1
            yield entry
        if entry_count != count:
            self.fail(f"{count} entries announced, {entry_count} found")

    def integer(self, text: str, bounds: range, what: str, exception: str = _MALFORMED) -> int:
        """An integer within bounds, or the error that names it."""
        if not INTEGER.fullmatch(text) or (number := int(text)) not in bounds:
            reason = f"{what} {text!r} is not an integer of {bounds.stop.bit_length()} bits"
            self.fail(reason, exception)
        return number

    def field(self, text: str, bounds: range, what: str) -> int:
        """An integer of an entry; Kafka does not count other text as a malformed line."""
        return self.integer(text, bounds, what, "NumberFormatException")

    def fail(self, reason: str, exception: str = _MALFORMED) -> NoReturn:
        """Raise for the line at hand."""
        error = CorruptIndexError(reason, path=self._path, position=self._position)
        raise error.as_kafka(exception)

    def _lines(self) -> Iterator[str]:
        start = 0
        for raw in self._data.splitlines(keepends=True):
            self._position = start
            start += len(raw)
            try:
                line = raw.decode()
            except UnicodeDecodeError:
                self.fail("a line is not UTF-8")
            yield line.rstrip("\r\n")
        self._position = start
