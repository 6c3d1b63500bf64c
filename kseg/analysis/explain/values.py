"""The answer of `explain` as values; the fields are those of `kseg explain --json`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field
from typing import Final

from kseg.analysis.explain.codecs import CodecEstimate
from kseg.documents import Documented, VerbReport, fields_of
from kseg.format.times import cell_of
from kseg.frames import Table, TableRows
from kseg.frozen import frozen_dataclass
from kseg.log.settings import SettingValue
from kseg.log.tier import RemoteHistory
from kseg.log.topic_policy import is_internal

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

#: What makes a cause so, where a number says more about it.
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
    """The record that decides a date: its offset (-1 where its file's time counts), time, file."""

    offset: int
    timestamp: int
    path: str


@frozen_dataclass
class KeptFile(Documented):
    """The bytes of one file or directory that one cause keeps.

    Attributes:
        path: the log of a segment, another file, or a directory.
        cause: a word of `CAUSES`.
        bytes: on the disk, by its blocks.
        size: of the file; of a part of it, that part.
        base_offset: of a segment; None for anything else.
        index_bytes: on the disk, of the segment's indexes, which go with it.
        until_ms: when it goes if nothing changes; None for never, or not known.
        why: more about it, in words.
        holder: the record that decides `until_ms`.
        grows_bytes: bytes that the log has to grow before it expires by size.
        is_held: whether a segment reaches above the high watermark, or is not in its tier, and so
            could not go anyway.
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
        """On the disk, with the indexes of a segment."""
        return self.bytes + self.index_bytes


@frozen_dataclass
class PartitionKeeps(Documented):
    """The bytes that a partition keeps.

    Attributes:
        path: its directory.
        topic, partition: by the directory's name; None for another name.
        kind: as of `kseg.log.data_directory.EntryKind`.
        rows: by cause; a file whose parts have several causes has several.
        settings: those that decide on deletion, and those of `what_if`, where known.
        rolls: if most segments are small: how many ended for each reason, a word of `ROLLS`.
        remote: its segments in a tier; None without a tier.
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
        """By cause, the largest first."""
        return totals_of(self.rows)


@frozen_dataclass
class Total(Documented):
    """All that one cause keeps; `next_ms` is the earliest date at which some of it goes."""

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
        goes: files that would go at once, unlike by the present settings.
        sooner: files that would go later, but sooner than by the present settings.
        stays: files that go or have a date by the present settings, and would stay longer.
        own: by setting, topics that have their own value of it, which a change for all topics would
            not touch; so it was not supposed for them.
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
        partitions: one value each, by path.
        elsewhere: files beside them, backups, and deleted files that are open.
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
        """By cause, the largest first; indexes of segments are a cause of their own."""
        return totals_of(self.rows())

    @property
    def ok(self) -> bool:
        """Whether all files could be read."""
        return not any(row.cause == "unknown" for row in self.rows())


def totals_of(rows: Iterable[KeptFile]) -> tuple[Total, ...]:
    """Sums by cause, the largest first."""
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
