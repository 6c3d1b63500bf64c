"""Batches of copies as rows of numbers, and a merge of copies as values.

A row is that of `BatchTable.rows` with two more numbers:

    FIRST   the first offset: the stored one. A compressed message of magic 0 or 1 does not store
            it; there it is the least offset possible behind the batch in front of it
    FILE    the number of the log file in `Copy.files`

Two batches are the same if all fields of their headers agree but for the leader epoch, which no
checksum covers; the checksum itself is one of the fields.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from kseg.constants import codec_label
from kseg.documents import Documented, document
from kseg.format.header import COLUMN, FIELDS
from kseg.internal.ids import id_text

if TYPE_CHECKING:
    from uuid import UUID

    import numpy.typing as npt

    from kseg.files.checkpoints import TopicPartition
    from kseg.format.header import BatchHeader, BatchTable
    from kseg.log.salvage.output import TargetSegment
    from kseg.log.salvage.values import Span

    Offsets = npt.NDArray[np.int64]
    Rows = npt.NDArray[np.int64]
    Mask = npt.NDArray[np.bool_]
    Index = npt.NDArray[np.intp]


POSITION: Final = COLUMN["position"]
SIZE: Final = COLUMN["size"]
LAST: Final = COLUMN["last_offset"]
EPOCH: Final = COLUMN["leader_epoch"]
COUNT: Final = COLUMN["record_count"]
FIRST: Final = len(FIELDS)
FILE: Final = FIRST + 1
COLUMNS: Final = FILE + 1

#: What says which batch it is. The first offset of a compressed message is a guess from the batch
#: in front of it, so the stored one counts; what the walk found out is not compared.
_SAME: Final = tuple(
    COLUMN[name]
    for name in FIELDS
    if name not in ("position", "leader_epoch", "crc_ok", "control_type", "coordinator_epoch")
)
#: The fields that are neighbours, so that a comparison takes slices and copies nothing.
_RUNS: Final = tuple(
    slice(run[0], run[-1] + 1)
    for run in np.split(np.array(_SAME), np.flatnonzero(np.diff(_SAME) != 1) + 1)
)
#: Behind all offsets.
OFFSETS_END: Final = 2**63 - 1
NOTHING: Final = np.empty((0, COLUMNS), np.int64)


def rows_of(table: BatchTable, file: int, next_offset: int) -> Rows:
    """The rows of a walk's table.

    Args:
        table: batches of one file, in the order of their offsets.
        file: its number.
        next_offset: the least offset that the first batch can have.
    """
    rows = np.empty((len(table), COLUMNS), np.int64)
    rows[:, :FIRST] = table.rows
    rows[:, FILE] = file
    first = rows[:, FIRST]
    first[:] = table.base_offset
    if table.is_wrapper.any():
        before = np.concatenate(([next_offset], table.last_offset[:-1] + 1))
        np.copyto(first, before, where=first < 0)
    return rows


def _same_batches(one: Rows, other: Rows) -> Mask:
    """bool[n]: which of the rows of two tables of one length are the same batch."""
    same = np.ones(len(one), np.bool_)
    for run in _RUNS:
        same &= (one[:, run] == other[:, run]).all(axis=1)
    return same


def keys_of(rows: Rows) -> list[bytes]:
    """What says which batch each row is, to be compared."""
    return [row.tobytes() for row in rows[:, _SAME]]


def all_same(one: Rows, other: Rows) -> bool:
    """Whether two tables are of the same batches, one by one."""
    return len(one) == len(other) and all(
        np.array_equal(one[:, run], other[:, run]) for run in _RUNS
    )


def twins(one: Rows, other: Rows) -> tuple[Index, Index]:
    """Which batches of two tables are the same: the numbers of their rows in each, intp[m].

    Args:
        one, other: both ascend, and no batch overlaps another of its table.
    """
    if all_same(one, other):
        every = np.arange(len(one))
        return every, every
    at = np.searchsorted(other[:, LAST], one[:, LAST])
    mine = np.flatnonzero(at < len(other))
    theirs = at[mine]
    same = _same_batches(one[mine], other[theirs])
    return mine[same], theirs[same]


def overlapping(rows: Rows, others: Rows) -> Mask:
    """bool[n]: which batches hold offsets that batches of the other table hold, too."""
    until = np.searchsorted(others[:, FIRST], rows[:, LAST], side="right")
    since = np.searchsorted(others[:, LAST], rows[:, FIRST], side="left")
    over: Mask = until > since
    return over


def touches(first: Offsets, last: Offsets, ranges: Rows) -> Mask:
    """bool[n]: which of some ranges of offsets touch one of those that ascend, int64[m, 2]."""
    until = np.searchsorted(ranges[:, 0], last, side="right")
    since = np.searchsorted(ranges[:, 1], first, side="left")
    touches: Mask = until > since
    return touches


def without(rows: Rows, taken: Index) -> Rows:
    """The rows but for those of some numbers."""
    left = np.ones(len(rows), np.bool_)
    left[taken] = False
    return rows[left]


@dataclass(frozen=True, slots=True)
class BatchSeen(Documented):
    """A batch of one copy: where it lies, and its header."""

    path: str
    header: BatchHeader

    @property
    def first_offset(self) -> int:
        """The first one; of a compressed message of magic 0 or 1, the last."""
        header = self.header
        return header.base_offset if header.base_offset >= 0 else header.last_offset

    def to_dict(self) -> dict[str, Any]:
        """As in `--json`; the names are those of `kseg dump --batches`."""
        header = self.header
        return {
            "path": self.path,
            "position": header.position,
            "size": header.size,
            "base_offset": header.base_offset,
            "last_offset": header.last_offset,
            "count": header.record_count,
            "leader_epoch": header.leader_epoch,
            "producer_id": header.producer_id,
            "producer_epoch": header.producer_epoch,
            "base_sequence": header.base_sequence,
            "max_timestamp": header.max_timestamp,
            "magic": header.magic,
            "codec": codec_label(header.codec),
            "transactional": header.is_transactional,
            "control": header.is_control,
            "crc": header.crc,
        }


@dataclass(frozen=True, slots=True)
class Missing(Documented):
    """Offsets that no copy has.

    Attributes:
        first_offset: the first one.
        last_offset: the last one; None where nothing follows.
        at_most: some of them may have had no record: the log was compacted.
    """

    first_offset: int
    last_offset: int | None
    at_most: bool = False


@dataclass(frozen=True, slots=True)
class LeftOut(Documented):
    """Sound batches of a copy that the merged log does not take.

    Attributes:
        path: the copy.
        why: a word of `LEFT_OUT`.
        first_offset, last_offset: between these.
        batches, bytes: how many.
    """

    path: str
    why: str
    first_offset: int
    last_offset: int
    batches: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Conflict(Documented):
    """Sound batches of the same offsets that differ, in one leader epoch or where one may be lost.

    Attributes:
        batches: of the copy that goes first, and of another one. One of a higher epoch is not
            proved: it is readable behind damage, and the other one may be a diverged tail.
        decided: whether `prefer` decides it, for the first.
    """

    DOCUMENT = "offset decided compacted=is_compacted batches"

    batches: tuple[BatchSeen, BatchSeen]
    decided: bool

    @property
    def offset(self) -> int:
        """The first one that both have."""
        return max(seen.first_offset for seen in self.batches)

    @property
    def is_compacted(self) -> bool:
        """Whether compaction may be all that differs: one has fewer records of the same append."""
        one, other = (seen.header for seen in self.batches)
        fewer, more = (one, other) if one.record_count < other.record_count else (other, one)
        return _append_of(one) == _append_of(other) and 0 <= fewer.record_count < more.record_count


def _append_of(header: BatchHeader) -> tuple[object, ...]:
    """What compaction leaves as it is in a batch."""
    producer = header.producer_id, header.producer_epoch, header.base_sequence
    kinds = header.magic, header.is_transactional, header.is_control, header.leader_epoch
    return header.base_offset, header.last_offset, *producer, *kinds


@dataclass(frozen=True, slots=True)
class MergedCopy(Documented):
    """What becomes of one copy.

    Attributes:
        path: its directory.
        leader_epoch: its latest one; -1 without any.
        log_start_offset, log_end_offset: where its log begins, and where its sound batches end.
        diverges_at: where it leaves the history of the copies before it; None if it does not.
        damaged_bytes: that cannot be proved.
        batches, bytes: that the merged log takes from it.
        error: why it cannot be read; None if it can.
    """

    path: str
    leader_epoch: int = -1
    log_start_offset: int | None = None
    log_end_offset: int | None = None
    diverges_at: int | None = None
    damaged_bytes: int = 0
    batches: int = 0
    bytes: int = 0
    error: str | None = None


#: Why sound batches are left out of a merge, in stable words.
LEFT_OUT: Final = {
    "diverged": "they lie behind the offset where the copy leaves the history of the last leader",
    "lower-epoch": "another copy has batches of a higher leader epoch there",
    "epoch-order": "the leader epochs of other copies in front of them or behind contradict theirs",
    "not-preferred": "they contradict batches of the preferred copy",
    "overlap": "a batch that was taken in front of them reaches over them",
    "deleted": "they lie in front of the log start of another copy",
}
#: No difference: records are deleted from one copy earlier than from another.
_NO_DIFFERENCE: Final = "deleted"


@dataclass(frozen=True, slots=True)
class PartitionMerge:
    """One partition of a merge.

    Attributes:
        partition: what checkpoints call it.
        topic_id: None where no copy says it.
        copies: in the order in which they count: that of the latest leader first; last those that
            cannot be read.
        log_start_offset, log_end_offset: of the merged log.
        high_watermark: the highest that a copy has noted; None where none has.
        runs: what it takes, by offset: batches that follow each other in a file of a copy.
        segments: the same as segments, by base offset.
        missing: offsets that no copy has.
        left_out: sound batches that it does not take.
        conflicts: batches that contradict each other, the first of them.
        undecided: how many conflicts nothing decides.
    """

    partition: TopicPartition
    topic_id: UUID | None
    copies: tuple[MergedCopy, ...]
    log_start_offset: int
    log_end_offset: int
    high_watermark: int | None
    runs: tuple[Span, ...]
    segments: tuple[TargetSegment, ...]
    missing: tuple[Missing, ...]
    left_out: tuple[LeftOut, ...]
    conflicts: tuple[Conflict, ...]
    undecided: int

    @property
    def name(self) -> str:
        """Of its directory."""
        return f"{self.partition.topic}-{self.partition.partition}"

    @property
    def ok(self) -> bool:
        """Whether nothing is missing, nothing differs, and each copy could be read."""
        differs = any(each.why != _NO_DIFFERENCE for each in self.left_out)
        failed = any(copy.error is not None for copy in self.copies)
        return not (self.missing or self.conflicts or differs or failed)

    def to_dict(self, *, runs: bool = False) -> dict[str, Any]:
        """As in `--json`; with `runs` as in the report that lies beside the output."""
        found: dict[str, Any] = {
            "topic": self.partition.topic,
            "partition": self.partition.partition,
            "topic_id": None if self.topic_id is None else id_text(self.topic_id),
            "log_start_offset": self.log_start_offset,
            "log_end_offset": self.log_end_offset,
            "high_watermark": self.high_watermark,
            "segments": len(self.segments),
            "batches": sum(each.batches for each in self.runs),
            "bytes": sum(each.size for each in self.runs),
            "copies": document(self.copies),
            "missing": document(self.missing),
            "left_out": document(self.left_out),
            "conflicts": document(self.conflicts),
            "undecided": self.undecided,
        }
        if runs:
            found["runs"] = document(self.runs)
        return found


@dataclass(frozen=True, slots=True)
class MergePlan:
    """What a merge would write.

    Attributes:
        out: the data directory to be made.
        sources: the directories that were given.
        partitions: by name.
        left_alone: copies of the log of KRaft, which are not merged.
    """

    out: Path
    sources: tuple[str, ...]
    partitions: tuple[PartitionMerge, ...]
    left_alone: tuple[str, ...] = ()

    @property
    def is_whole(self) -> bool:
        """Whether no offset is missing."""
        return not any(each.missing for each in self.partitions)

    @property
    def undecided(self) -> int:
        """How many conflicts nothing decides; with any, nothing is written."""
        return sum(each.undecided for each in self.partitions)

    @property
    def ok(self) -> bool:
        """Whether nothing is missing, nothing differs, and each copy could be read."""
        return all(each.ok for each in self.partitions)

    @property
    def bytes(self) -> int:
        """Of the merged logs."""
        return sum(run.size for each in self.partitions for run in each.runs)

    def to_dict(self, *, runs: bool = False) -> dict[str, Any]:
        """As in `--json`; with `runs` as in the report that lies beside the output."""
        return {
            "out": str(self.out),
            "ok": self.ok,
            "whole": self.is_whole,
            "undecided": self.undecided,
            "bytes": self.bytes,
            "left_alone": list(self.left_alone),
            "partitions": [each.to_dict(runs=runs) for each in self.partitions],
        }


__all__ = [
    "COLUMNS",
    "COUNT",
    "EPOCH",
    "FILE",
    "FIRST",
    "LAST",
    "LEFT_OUT",
    "NOTHING",
    "OFFSETS_END",
    "POSITION",
    "SIZE",
    "BatchSeen",
    "Conflict",
    "LeftOut",
    "MergePlan",
    "MergedCopy",
    "Missing",
    "PartitionMerge",
    "all_same",
    "keys_of",
    "overlapping",
    "rows_of",
    "touches",
    "twins",
    "without",
]
