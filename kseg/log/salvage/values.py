"""What can be proved of a copy of a partition, and what cannot, as values."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final
from uuid import UUID

from kseg.files.checkpoints import TopicPartition

#: Why bytes of a log are not kept, in stable words.
REASONS: Final = {
    "batch-crc": "a batch does not match its checksum",
    "batch-length": "the size stored here is not that of the batch",
    "batch-magic": "no release ever wrote the magic stored here",
    "batch-fields": "the checksum is right, but no release ever wrote such a header",
    "torn-tail": "the last batch is incomplete",
    "zeros": "zeros where a batch is to begin",
    "unreadable": "the disk cannot read these bytes",
    "not-anchored": "sound batches behind damage that may lie in the value of a damaged one: "
    "nothing proves where they begin",
    "offset-order": "a sound batch whose offsets do not fit where it lies",
    "epoch-order": "a sound batch whose leader epoch does not fit where it lies",
    "behind-gap": "sound batches of the log of KRaft behind its first gap",
    "duplicate": "a batch that is there already",
    "collision": "a sound batch with offsets that another sound batch has",
}
#: Of these nothing is lost.
HARMLESS: Final = frozenset(("duplicate",))


@dataclass(frozen=True, slots=True)
class ProvableRun:
    """Provable batches that follow each other in a file, with offsets that grow.

    Attributes:
        path: the log file.
        position: byte in it where they begin.
        size: their bytes.
        first_offset: the first offset; the last one of the first batch where only inflating tells.
        last_offset: the last offset.
        batches: how many.
        records: how many they say they hold; None where only inflating tells.
    """

    path: str
    position: int
    size: int
    first_offset: int
    last_offset: int
    batches: int
    records: int | None = None

    @property
    def end(self) -> int:
        """The position behind them."""
        return self.position + self.size

    def and_then(self, behind: ProvableRun) -> ProvableRun:
        """Both as one; the second follows the first in its file."""
        known = self.records is not None and behind.records is not None
        return replace(
            self,
            size=self.size + behind.size,
            last_offset=behind.last_offset,
            batches=self.batches + behind.batches,
            records=(self.records or 0) + (behind.records or 0) if known else None,
        )

    @property
    def is_dense(self) -> bool | None:
        """Whether each of its offsets has a record; None where only inflating tells."""
        if self.records is None:
            return None
        return self.records == self.last_offset - self.first_offset + 1


@dataclass(frozen=True, slots=True)
class Unprovable:
    """Bytes of a log file that are not kept.

    Attributes:
        path: the log file.
        position: byte in it where they begin.
        size: how many.
        reason: one of `REASONS`.
        first_offset, last_offset: what the batch there says of its offsets, or what sound batches
            there have; None where nothing can be read.
        batches: how many, if they are sound; else 0.
        places: first and last offsets that a sound batch in doubt may have.
    """

    path: str
    position: int
    size: int
    reason: str
    first_offset: int | None = None
    last_offset: int | None = None
    batches: int = 0
    places: tuple[tuple[int, int], ...] = ()

    @property
    def end(self) -> int:
        """The position behind them."""
        return self.position + self.size

    def to_dict(self) -> dict[str, Any]:
        """As in `--json`."""
        return asdict(self)


def refused(run: ProvableRun, reason: str) -> Unprovable:
    """A run as bytes that are not kept."""
    offsets = (run.first_offset, run.last_offset)
    return Unprovable(run.path, run.position, run.size, reason, *offsets, run.batches)


@dataclass(frozen=True, slots=True)
class LostOffsets:
    """Offsets that no provable batch has.

    Attributes:
        first_offset: the first one.
        last_offset: the last one; None where nothing sound follows.
        records: how many records; None where that is not known.
        at_most: some of these offsets may have had no record before the damage: compaction has left
            holes around it.
        path: the log file where the damage lies.
        position: byte in it where it begins.
        bytes: how many are damaged; 0 where batches are missing and no byte tells of them.
    """

    first_offset: int
    last_offset: int | None
    records: int | None
    at_most: bool
    path: str
    position: int
    bytes: int

    def to_dict(self) -> dict[str, Any]:
        """As in `--json`."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class SegmentSeen:
    """A segment that was read.

    Attributes:
        base_offset: as its name says.
        path: its log file.
        size: bytes of it.
    """

    base_offset: int
    path: str
    size: int


@dataclass(frozen=True, slots=True)
class ProvablePartition:
    """What can be proved of one copy of a partition.

    Attributes:
        path: its directory.
        partition: what checkpoints call it; None for a directory under another name.
        topic_id: as `partition.metadata` says; None without one.
        log_start_offset: what the checkpoint beside it says; 0 without one.
        start_beyond_end: a start that the checkpoint says and that lies behind the end of the log;
            it is not taken over.
        segments: by base offset.
        runs: by offset; each lies behind the one before.
        unprovable: the other bytes, by segment and position.
        lost: offsets that are missing between the runs, in front of them and behind.
    """

    path: Path
    partition: TopicPartition | None
    topic_id: UUID | None
    log_start_offset: int
    segments: tuple[SegmentSeen, ...]
    runs: tuple[ProvableRun, ...]
    unprovable: tuple[Unprovable, ...]
    lost: tuple[LostOffsets, ...]
    start_beyond_end: int | None = None

    @property
    def end_offset(self) -> int:
        """The offset behind the last provable batch; the base of the first segment without any."""
        if self.runs:
            return self.runs[-1].last_offset + 1
        return self.segments[0].base_offset if self.segments else self.log_start_offset


__all__ = [
    "HARMLESS",
    "REASONS",
    "LostOffsets",
    "ProvablePartition",
    "ProvableRun",
    "SegmentSeen",
    "Unprovable",
    "refused",
]
