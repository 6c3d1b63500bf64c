"""The answer of `diff` as values; the fields are those of `kseg diff --json`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from kseg.internal.ids import id_text
from kseg.log.copies import BatchSeen

if TYPE_CHECKING:
    from kseg.log.salvage import LostOffsets

#: What a copy is to the first one, in stable words; a pair has the last of those that hold.
RELATIONS: Final = {
    "same": "both have the same records",
    "prefix": "one of both ends earlier, and has the same records up to there",
    "unknown": "nothing differs, but damaged bytes hide records",
    "holes": "one of both lacks records that the other has",
    "epochs": "the same records under other leader epochs",
    "diverged": "both have records at the same offset, and these differ",
    "other-topic": "a topic of the same name with another id; nothing was compared",
    "absent": "there is no such partition",
    "unreadable": "it cannot be read",
}
#: So many ranges of offsets of a kind are listed one by one; all are counted.
LISTED_MAX: Final = 100


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Offsets from the first to the last one."""

    first_offset: int
    last_offset: int

    def to_dict(self) -> dict[str, Any]:
        """As in `--json`."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Difference:
    """Offsets where both copies have records that differ.

    Attributes:
        first_offset, last_offset: the range.
        batches: the first batch there of the first copy, and of the other one.
    """

    first_offset: int
    last_offset: int
    batches: tuple[BatchSeen, BatchSeen]

    def to_dict(self) -> dict[str, Any]:
        """As in `--json`."""
        return {
            "first_offset": self.first_offset,
            "last_offset": self.last_offset,
            "batches": [batch.to_dict() for batch in self.batches],
        }


@dataclass(frozen=True, slots=True)
class Ranges:
    """Ranges of offsets of one kind: the first `LISTED_MAX` of them.

    Attributes:
        listed: by offset.
        count: how many there are.
        batches: how many batches lie in them; with `--records`, how many records.
    """

    listed: tuple[OffsetRange, ...] = ()
    count: int = 0
    batches: int = 0

    def to_dict(self) -> dict[str, Any]:
        """As in `--json`."""
        return {
            "ranges": [each.to_dict() for each in self.listed],
            "count": self.count,
            "batches": self.batches,
        }


@dataclass(frozen=True, slots=True)
class CopySeen:
    """One copy of a partition.

    Attributes:
        path: its directory.
        topic_id: as `partition.metadata` says; None without one.
        log_start_offset, log_end_offset: where its log begins, and where its sound batches end.
        segments, bytes, batches: how much was read.
        unknown: offsets that lie in damaged bytes.
        error: why it cannot be read; None if it can.
    """

    path: str
    topic_id: UUID | None = None
    log_start_offset: int | None = None
    log_end_offset: int | None = None
    segments: int = 0
    bytes: int = 0
    batches: int = 0
    unknown: tuple[LostOffsets, ...] = ()
    error: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """As in `--json`."""
        return {
            "path": self.path,
            "topic_id": None if self.topic_id is None else id_text(self.topic_id),
            "log_start_offset": self.log_start_offset,
            "log_end_offset": self.log_end_offset,
            "segments": self.segments,
            "bytes": self.bytes,
            "batches": self.batches,
            "unknown": [lost.to_dict() for lost in self.unknown[:LISTED_MAX]],
            "unknown_count": len(self.unknown),
            "error": self.error,
        }


@dataclass(frozen=True, slots=True)
class Compared:
    """A copy against the first one of its partition.

    Attributes:
        copy: the other one.
        relation: a word of `RELATIONS`.
        same_batches: how many both have.
        differences: where both have records that differ, the first `LISTED_MAX` of them.
        difference_count: how many such ranges there are.
        epochs: where the same records have other leader epochs.
        lacks: what the first copy has and the other one lacks; and the other way round.
        ahead: batches of the first copy behind the end of the other one, and the other way round.
        compacted: with `--records`, what the other one lacks because it was compacted, and the
            first one; no difference.
    """

    copy: CopySeen
    relation: str
    same_batches: int = 0
    differences: tuple[Difference, ...] = ()
    difference_count: int = 0
    epochs: Ranges = Ranges()
    lacks: tuple[Ranges, Ranges] = (Ranges(), Ranges())
    ahead: tuple[int, int] = (0, 0)
    compacted: tuple[Ranges, Ranges] = (Ranges(), Ranges())

    @property
    def divergence(self) -> Difference | None:
        """Where both differ first."""
        return self.differences[0] if self.differences else None

    def to_dict(self) -> dict[str, Any]:
        """As in `--json`."""
        return {
            **self.copy.to_dict(),
            "relation": self.relation,
            "same_batches": self.same_batches,
            "differences": [each.to_dict() for each in self.differences],
            "difference_count": self.difference_count,
            "epochs": self.epochs.to_dict(),
            "lacks": self.lacks[0].to_dict(),
            "first_lacks": self.lacks[1].to_dict(),
            "behind_batches": self.ahead[0],
            "ahead_batches": self.ahead[1],
            "compacted": self.compacted[0].to_dict(),
            "first_compacted": self.compacted[1].to_dict(),
        }


@dataclass(frozen=True, slots=True)
class PartitionDiff:
    """The copies of one partition.

    Attributes:
        topic, partition: by the directories' names; None for copies under other names.
        first: the copy that the others were compared with.
        compared: the others, in the order in which they were given.
    """

    topic: str | None
    partition: int | None
    first: CopySeen
    compared: tuple[Compared, ...]

    @property
    def ok(self) -> bool:
        """Whether all copies are the same, and nothing of them is unknown."""
        return all(one.relation == "same" for one in self.compared)

    @property
    def copies(self) -> Iterator[CopySeen]:
        """All of them."""
        yield self.first
        yield from (one.copy for one in self.compared)

    def to_dict(self) -> dict[str, Any]:
        """As in `--json`."""
        return {
            "topic": self.topic,
            "partition": self.partition,
            "ok": self.ok,
            "first": self.first.to_dict(),
            "copies": [one.to_dict() for one in self.compared],
        }


@dataclass(frozen=True, slots=True)
class Diff:
    """The answer of `diff`: the partitions by name."""

    partitions: tuple[PartitionDiff, ...]

    @property
    def ok(self) -> bool:
        """Whether nothing differs and nothing is unknown."""
        return all(one.ok for one in self.partitions)

    @property
    def totals(self) -> dict[str, int]:
        """How many copies have each relation to the first of their partition."""
        found = Counter(one.relation for each in self.partitions for one in each.compared)
        return {word: found[word] for word in RELATIONS if found[word]}

    @property
    def bytes(self) -> int:
        """Of the log files that were read."""
        return sum(copy.bytes for each in self.partitions for copy in each.copies)

    @property
    def batches(self) -> int:
        """That were read."""
        return sum(copy.batches for each in self.partitions for copy in each.copies)

    def to_json(self) -> dict[str, Any]:
        """The document of `kseg diff --json`, but for its paths."""
        return {
            "ok": self.ok,
            "totals": self.totals,
            "bytes": self.bytes,
            "batches": self.batches,
            "partitions": [one.to_dict() for one in self.partitions],
        }


__all__ = [
    "LISTED_MAX",
    "RELATIONS",
    "BatchSeen",
    "Compared",
    "CopySeen",
    "Diff",
    "Difference",
    "OffsetRange",
    "PartitionDiff",
    "Ranges",
]
