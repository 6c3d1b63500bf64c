"""The answer of `explain` as values; the fields are those of `kseg explain --json`.

The sizes of topics with another codec are estimates from samples. The segments of a topic, one
after the other, are divided into parts (strata) of equal size, so that all times are in the sample.
Each part gives one run: the batches that begin in a range of bytes at a random position. The
estimate is the size of the topic times the ratio of new bytes to old bytes in the sample; the
spread of the runs around that ratio gives its error. A topic no larger than the sample is measured
as a whole: its error is 0.

The estimate is for the changes by `kseg convert --codec`: batches of magic 2, each by itself.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import field
from functools import partial
from math import sqrt
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from kseg import Segment
from kseg.constants import Compression
from kseg.documents import Documented, VerbReport, fields_of, frozen_dataclass
from kseg.errors import KsegError
from kseg.format.compress import check_level, compression_named
from kseg.format.convert import Converter, Target
from kseg.format.header import BatchTable
from kseg.format.times import cell_of
from kseg.frames import Table, TableRows
from kseg.log.config import LogConfig
from kseg.log.log import Log
from kseg.log.settings import SettingValue
from kseg.log.tier import RemoteHistory
from kseg.log.topic_policy import is_internal
from kseg.workers import At, Put, in_order

CAUSES: Final[dict[str, str]] = {
    "active": "the active segment: it is deleted only after it is rolled",
    "younger-than-retention": "its newest record is younger than retention.ms",
    "future-timestamp": "a record's time lies in the future: its segment and all later ones stay",
    "under-size-limit": "the log has no more than retention.bytes without it",
    "no-limit": "it has neither retention.ms nor retention.bytes: kept for ever",
    "due": "retention deletes it at the broker's next check",
    "high-watermark": "it lies above the high watermark: other replicas may not have it",
    "newest-of-key": "compacted: the last record of each key stays",
    "compaction-due": "the cleaner's next pass removes it",
    "dirty-ratio": "not enough of the log is dirty for the cleaner: min.cleanable.dirty.ratio",
    "min-compaction-lag": "it, or an earlier segment, is younger than min.compaction.lag.ms",
    "open-transaction": "an undecided transaction stops the cleaner",
    "map-full": "the cleaner's map has no room for its keys; a later pass compacts it",
    "uncleanable": "the cleaner fails at this log",
    "policy-unknown": "its cleanup.policy or its limits are not known here",
    "invalid-setting": "one of its settings is not understood",
    "not-copied": "due by local.retention.*, and not in the tier: a broker copies it first",
    "remote-storage": "in a remote store too: the copied part is not known here; --tier names it",
    "stray": "its topic was deleted or made again, or this broker is no longer a replica",
    "cluster-metadata": "the log of KRaft, which its controllers clean",
    "index": "indexes of segments",
    "snapshot": "producer snapshots, and snapshots of KRaft",
    "metadata": "checkpoints, ids and marks",
    "preallocated": "blocks allocated ahead: beyond a file's end, or an index's entries",
    "deleted-file": "renamed to .deleted: the broker removes it soon, or at its next start",
    "leftover": "of interrupted work: .cleaned, .swap, .tmp, .part, an index without a log",
    "delete-directory": "a partition that was deleted: the broker removes it soon",
    "stray-directory": "a partition that the broker has put aside: it stays until you remove it",
    "future-directory": "a partition on its way from another data directory",
    "remote-index-cache": "indexes of segments in a remote store",
    "foreign": "files and directories that are not Kafka's",
    "backup": "backups by kseg",
    "open-deleted": "files that were deleted, and that a process still has open",
    "unknown": "it cannot be read",
}

#: Cause, or gap -> an explanation with a number.
WHY: Final = {
    "open-transaction": "the first offset that is not decided is {offset}",
    "high-watermark": "the high watermark is {offset}",
    "open-deleted": "process {process} has it open: its room comes back when that closes it, or "
    "ends",
}
#: Why a segment ended before it was full.
ROLLS: Final = {
    "segment.ms": "by segment.ms, by the times of their records",
    "segment.jitter.ms": "by segment.ms, less a jitter",
    "index": "by a full index (segment.index.bytes)",
    "leader-epoch": "where another leader began",
    "other": "for no reason that the files show: other settings, or the clock of a broker",
}
#: What an answer cannot know.
GAPS: Final = {
    "no-processes": "this system does not show which deleted files are still open",
    "hidden": "the open files of {count} processes cannot be seen: run it as their owner or as "
    "root",
}

#: The causes that free bytes: retention, the cleaner.
DUE: Final = "due"
COMPACTION_DUE: Final = "compaction-due"
UNKNOWN: Final = "unknown"


# ---- values --------------------------------------------------------------------------------------


@frozen_dataclass
class NewestRecord(Documented):
    """The record that decides a date.

    Attributes:
        offset: its offset; -1 where the time of its file counts instead.
        timestamp: its time in ms.
        path: its file.
    """

    offset: int
    timestamp: int
    path: str


@frozen_dataclass
class KeptFile(Documented):
    """The bytes of one file or directory that one cause keeps.

    Attributes:
        path: the log of a segment, another file, or a directory.
        cause: a word of `CAUSES`.
        bytes: the bytes on the disk, counted in blocks.
        size: the size of the file, or of the part that the cause keeps.
        base_offset: the base offset of a segment; None for anything else.
        index_bytes: the bytes on the disk of the segment's indexes, which are deleted with it.
        until_ms: when it is deleted if nothing changes; None for never, or if not known.
        why: more about the cause, in words.
        holder: the record that decides `until_ms`.
        grows_bytes: the bytes that the log has to grow before this expires by size.
        is_held: whether a segment has offsets above the high watermark, or is not in its tier yet,
            so that it cannot be deleted.
    """

    path: str
    cause: str
    bytes: int
    size: int
    base_offset: int | None = None
    index_bytes: int = 0
    until_ms: int | None = None
    why: str = ""
    holder: NewestRecord | None = None
    grows_bytes: int | None = None
    is_held: bool = False

    @property
    def all_bytes(self) -> int:
        """The bytes on the disk, with those of the segment's indexes."""
        return self.bytes + self.index_bytes


@frozen_dataclass
class PartitionKeeps(Documented):
    """The bytes that a partition keeps.

    Attributes:
        path: its directory.
        topic, partition: parsed from the directory's name; None for another name.
        kind: a value of `kseg.log.data_directory.EntryKind`.
        rows: one for each file and cause; a file whose parts have several causes has several rows.
        settings: the settings that decide on deletion, and those of `what_if`, where known.
        rolls: if most segments are small: reason (a word of `ROLLS`) -> number of segments.
        remote: its segments in a tier; None if it has no tier.
    """

    DOCUMENT = "path topic partition kind bytes settings rolls rows remote"

    path: str
    topic: str | None
    partition: int | None
    kind: str
    rows: tuple[KeptFile, ...]
    settings: Mapping[str, SettingValue] = field(default_factory=dict)
    rolls: Mapping[str, int] = field(default_factory=dict)
    remote: RemoteHistory | None = None

    @property
    def is_internal(self) -> bool:
        """Whether it is of a topic of Kafka's own."""
        return is_internal(self.topic)

    @property
    def is_known(self) -> bool:
        """Whether its policy and its limits are known."""
        return all(row.cause != "policy-unknown" for row in self.rows)

    @property
    def bytes(self) -> int:
        """The bytes on the disk, with those of indexes."""
        return sum(row.all_bytes for row in self.rows)

    @property
    def totals(self) -> tuple[Total, ...]:
        """The sums for each cause, the largest first."""
        return totals_of(self.rows)


@frozen_dataclass
class Total(Documented):
    """The sum of the files that one cause keeps.

    Attributes:
        cause: a word of `CAUSES`.
        bytes, count: their bytes on the disk, and their number.
        next_ms: the earliest date at which one of them is deleted; None if none is known.
    """

    DOCUMENT = "cause bytes count next_ms meaning"

    cause: str
    bytes: int
    count: int
    next_ms: int | None

    @property
    def meaning(self) -> str:
        """The cause in words."""
        return CAUSES[self.cause]


@frozen_dataclass
class WhatIf(Documented):
    """The effect of other settings.

    Attributes:
        settings: `[TOPIC:]NAME=VALUE`, as they were supposed.
        goes: files that would be deleted at once, unlike by the present settings.
        sooner: files that would be deleted later, but sooner than by the present settings.
        stays: files that are due or have a date by the present settings, and would stay longer.
        own: setting -> the topics that have their own value of it, which a change for all topics
            would not touch; so it was not supposed for them.
    """

    DOCUMENT = "settings bytes goes sooner stays own"

    settings: tuple[str, ...]
    goes: tuple[KeptFile, ...]
    sooner: tuple[KeptFile, ...]
    stays: tuple[KeptFile, ...]
    own: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def bytes(self) -> int:
        """The bytes that would go at once."""
        return sum(row.all_bytes for row in self.goes)


@frozen_dataclass(repr=False)
class ExplainReport(VerbReport, Table):
    """The answer: a table with a row for each file, or part of a file, and its cause.

    Attributes:
        now_ms: the time that counts.
        partitions: one value each, sorted by path.
        elsewhere: files beside the partitions, backups, and deleted files that are open.
        unknown: the gaps in the answer, in words.
        what_if, codecs: answers to further questions.
    """

    COLUMNS = "directory topic partition path cause bytes until why"
    DOCUMENT = "ok now_ms bytes totals partitions elsewhere unknown what_if codecs"

    now_ms: int
    partitions: tuple[PartitionKeeps, ...]
    elsewhere: tuple[KeptFile, ...]
    unknown: tuple[str, ...] = ()
    what_if: WhatIf | None = field(default=None)
    codecs: tuple[CodecEstimate, ...] = ()

    @property
    def title(self) -> str:
        """The number of partitions, the size, and the causes of most bytes."""
        causes = ", ".join(f"{total.cause} {total.bytes}" for total in self.totals[:3])
        return f"{len(self.partitions)} partitions, {self.bytes} bytes: {causes}"

    def table_rows(self) -> TableRows:
        """The files; `until` is the time at which one goes, None for never, or if unknown."""
        return [
            {
                "directory": partition and partition.path,
                "topic": partition and partition.topic,
                "partition": partition and partition.partition,
                **fields_of(row, "path cause bytes=all_bytes"),
                "until": cell_of(row.until_ms),
                "why": row.why,
            }
            for partition, row in self.rows_by_partition()
        ]

    def rows(self) -> Iterator[KeptFile]:
        """The rows of all partitions, and of the files beside them."""
        return (row for _, row in self.rows_by_partition())

    def rows_by_partition(self) -> Iterator[tuple[PartitionKeeps | None, KeptFile]]:
        """All rows, each with its partition; None for files beside the partitions."""
        for partition in self.partitions:
            yield from ((partition, row) for row in partition.rows)
        yield from ((None, row) for row in self.elsewhere)

    @property
    def bytes(self) -> int:
        """The bytes of all rows."""
        return sum(row.all_bytes for row in self.rows())

    @property
    def totals(self) -> tuple[Total, ...]:
        """The sums for each cause, the largest first; indexes are a cause of their own."""
        return totals_of(self.rows())

    @property
    def ok(self) -> bool:
        """Whether all files could be read."""
        return not any(row.cause == "unknown" for row in self.rows())


def totals_of(rows: Iterable[KeptFile]) -> tuple[Total, ...]:
    """The sums for each cause, the largest first."""
    parts: dict[str, list[tuple[int, int | None]]] = {}
    for row in rows:
        parts.setdefault(row.cause, []).append((row.bytes, row.until_ms))
        if row.index_bytes:
            parts.setdefault("index", []).append((row.index_bytes, None))
    totals = [
        Total(
            cause,
            sum(size for size, _ in parts_of_cause),
            len(parts_of_cause),
            min((date for _, date in parts_of_cause if date is not None), default=None),
        )
        for cause, parts_of_cause in parts.items()
    ]
    return tuple(sorted(totals, key=lambda total: (-total.bytes, total.cause)))


#: The bytes of log in the sample of a topic, and the number of runs of batches in it.
SAMPLE_BYTES: Final = 16 << 20
RUNS: Final = 64
#: The error in standard deviations: few runs, and runs that are far from the others, need more
#: than the two of large samples.
_DEVIATIONS: Final = 3
#: The least error, as a part of the estimate, for contents outside the sample.
_ERROR_MIN: Final = 0.001
#: A batch that inflates to more is counted with its present size.
_INFLATED_MAX: Final = 256 << 20
_TYPE: Final = "compression.type"
_LEVELS: Final = {
    f"compression.{codec.label}.level": codec
    for codec in (Compression.GZIP, Compression.LZ4, Compression.ZSTD)
}
#: The settings whose effect is estimated.
WORDS: Final = frozenset((_TYPE, *_LEVELS))
Floats = np.ndarray[Any, np.dtype[np.float64]]


@frozen_dataclass
class CodecEstimate(Documented):
    """The estimated size of a topic with another codec.

    Attributes:
        topic: its name.
        compression: the codec.
        level: the level of the codec; None for Kafka's default.
        bytes: the size of the topic's segments.
        sampled_bytes: the part of these bytes that was compressed again.
        new_bytes: the estimated size of the segments with the new codec.
        error_bytes: by how much `new_bytes` may be wrong, in either direction.
    """

    topic: str
    compression: str
    level: int | None
    bytes: int
    sampled_bytes: int
    new_bytes: int
    error_bytes: int


class Choice(NamedTuple):
    """A codec and its level, as `CodecEstimate` has it."""

    codec: Compression
    level: int | None


def choices_of(words: Mapping[str, str]) -> list[Choice]:
    """The codecs that settings name; several are separated by commas.

    Raises:
        ValueError: a value is invalid, or `compression.type` is missing.
    """
    names = [name.strip() for name in words.get(_TYPE, "").split(",") if name.strip()]
    if words and not names:
        raise ValueError(f"{', '.join(sorted(words))}: name the codec too: compression.type=zstd")
    choices = []
    for name in names:
        codec = compression_named("none" if name == "uncompressed" else name)
        text = words.get(f"compression.{codec.label}.level")
        if text is not None and not text.lstrip("-").isdecimal():
            raise ValueError(f"compression.{codec.label}.level is a whole number, not {text!r}")
        level = None if text is None else int(text)
        if level is not None:
            check_level(codec, level)
        choices.append(Choice(codec, level))
    return choices


def estimate(
    topic: str,
    partitions: Iterable[Path],
    choices: Sequence[Choice],
    *,
    threads: int = 1,
    seed: int = 0,
    sample_bytes: int = SAMPLE_BYTES,
) -> list[CodecEstimate]:
    """Estimate the result of each choice for a topic.

    Args:
        topic: its name.
        partitions: its directories.
        choices: the codecs to estimate.
        threads: the number of runs that are compressed side by side.
        seed: the seed of the random positions.
        sample_bytes: the size of the sample.

    Raises:
        KsegError, OSError: a partition cannot be read.
    """
    logs = [
        (info.path, info.size)
        for path in partitions
        for info in Log.open(path).view.segments
        if not info.files.kafka07
    ]
    total = sum(size for _, size in logs)
    runs = _choose_runs(logs, total, random.Random(seed), sample_bytes)
    works = (At(run[0][0], partial(_measure, run, choices)) for run in runs)
    measured = list(in_order(works, threads=threads))
    old = np.array([size for size, _ in measured], np.float64)
    return [
        _estimate(
            topic, choice, old, np.array([new[n] for _, new in measured]), total, sample_bytes
        )
        for n, choice in enumerate(choices)
    ]


def _choose_runs(
    logs: Sequence[tuple[Path, int]], total: int, rng: random.Random, sample_bytes: int
) -> Iterator[list[tuple[Path, int, int]]]:
    """Choose the runs of a sample: each is a list of (log file, first position, end).

    If the topic is no larger than the sample, each segment is a run. Otherwise all runs have the
    same length, may go on into the next segment and from the last one to the first, and have the
    batches that begin in them. So each batch is in the sample with the same probability, whatever
    its size.

    Args:
        logs: the log files and their sizes.
        total: the sum of these sizes.
        rng: chooses the positions.
        sample_bytes: the size of the sample.
    """
    if total <= sample_bytes:
        yield from ([(path, 0, size)] for path, size in logs)
        return
    ends = np.cumsum([size for _, size in logs])
    for number in range(RUNS):
        position, left, run = int((number + rng.random()) * total / RUNS), sample_bytes // RUNS, []
        while left > 0:
            number_of_log = int(np.searchsorted(ends, position % total, "right"))
            path, size = logs[number_of_log]
            start = position % total - (int(ends[number_of_log]) - size)
            stop = min(size, start + left)
            run.append((path, start, stop))
            position = position + stop - start
            left = left - (stop - start)
        yield run


def _measure(run: list[tuple[Path, int, int]], choices: Sequence[Choice], put: Put) -> None:
    """Compress the batches that begin in a run.

    Puts the sum of their sizes, and float64[choices], the sum of their sizes with each choice.
    """
    old = 0
    sums = np.zeros(len(choices))
    for path, start, stop in run:
        with Segment.open(path) as segment:
            first = _first_from(segment, start, stop)
            tiles = (
                segment.walk(start=first, limit=stop, on_bad_crc="ignore") if first < stop else ()
            )
            for tile in tiles:
                old += int(tile.table.size.sum())
                for number, choice in enumerate(choices):
                    sums[number] += _bytes_by_choice(tile.data, tile.table, tile.base, choice)
    put((old, sums))


def _first_from(segment: Segment, position: int, limit: int) -> int:
    """The position of the first batch that begins at a position or later; the limit if none does.

    The offset index gives the position from which headers are walked.
    """
    positions = np.zeros(1, np.int64)
    with suppress(KsegError, OSError):  # without an index it walks
        # An entry is a relative offset and a position.
        positions = np.frombuffer(segment.offset_index.packed, ">i4")[1::2].astype(np.int64)
    for start in (int(positions[positions <= position].max(initial=0)), 0):
        for table in segment.headers(start=start, limit=limit):
            batch_positions = table.position[table.position >= position]
            if len(batch_positions):
                return int(batch_positions[0])
        if start == 0 or segment.stop_fault(table) is None:
            break
    return limit


def _bytes_by_choice(data: memoryview, table: BatchTable, base: int, choice: Choice) -> int:
    """The size of batches after compression with a choice."""
    limit = LogConfig().max_message_bytes
    size = 0
    converter = Converter(
        Target(2, choice.codec, choice.level, recoded_bytes_max=limit), inflated_max=_INFLATED_MAX
    )
    for row in range(len(table)):
        batch = table.take(slice(row, row + 1))
        try:
            size += sum(map(len, converter.convert(data, batch, base)))
        except KsegError:  # a damaged batch stays
            size += int(batch.size[0])
    return size


def _estimate(
    topic: str, choice: Choice, old: Floats, new: Floats, total: int, sample_bytes: int
) -> CodecEstimate:
    """The estimate for a topic from its runs.

    Args:
        topic, choice: the topic and the codec.
        old: float64[n], the present bytes of each run.
        new: float64[n], the bytes of each run with the codec.
        total: the bytes of the topic.
        sample_bytes: the size of the sample.
    """
    sampled = float(old.sum())
    count = len(old)
    scale = total / sampled if sampled else 0.0
    new_total = float(new.sum()) * scale
    error = 0.0
    if total > sample_bytes:
        # The standard deviation of a ratio estimate; `rest` is the share that was not sampled.
        ratio = new_total / total
        rest = max(0.0, 1 - sampled / total) * count / (count - 1)
        deviation = sqrt(rest * float(((new - ratio * old) ** 2).sum())) * scale
        error = _DEVIATIONS * deviation + _ERROR_MIN * new_total if sampled else float(total)
    return CodecEstimate(
        topic,
        choice.codec.label,
        choice.level,
        total,
        int(sampled),
        round(new_total),
        round(error),
    )
