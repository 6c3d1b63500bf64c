"""The plan of a salvage as values: what is kept, what is lost, what becomes of the rest.

The fields are those of `kseg salvage --json` and of `report.json`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kseg.internal.ids import id_text
from kseg.log.salvage.output import QUARANTINE, beside
from kseg.log.salvage.values import HARMLESS

if TYPE_CHECKING:
    from uuid import UUID

    from kseg.files.checkpoints import TopicPartition
    from kseg.log.salvage.output import TargetPartition
    from kseg.log.salvage.transactions import HurtTransaction
    from kseg.log.salvage.values import LostOffsets, Unprovable

#: Bytes of these reasons are no batch of anyone, so nothing is lost with them alone.
_NOTHING: Final = frozenset(("zeros",))
#: Bytes of these are not copied: they are in OUT already, or the disk does not give them.
_NOT_COPIED: Final = HARMLESS | {"unreadable"}
#: Below the quarantine of a partition, files that hold nothing but sound batches.
READABLE: Final = "readable"


@dataclass(frozen=True, slots=True)
class Quarantined:
    """Where bytes that are not kept lie.

    Attributes:
        source: which bytes of which log file.
        path: the file, below the directory beside OUT.
        position: byte in it where they begin.
    """

    source: Unprovable
    path: str
    position: int


@dataclass(frozen=True)
class SalvagedPartition:
    """One partition of a plan.

    Attributes:
        path: its directory.
        partition: topic and number.
        topic_id: as `partition.metadata` says; None without one.
        log_start_offset, log_end_offset: of the new log.
        bytes: of its log files.
        batches: that are kept, with markers that are added.
        records: in them; None where only inflating tells.
        lost: offsets that no sound batch has.
        unprovable: bytes that are not kept, and batches that are there twice.
        transactions: that lost offsets may belong to.
        markers: how many markers are added.
        indexed: whether an offset index lies beside a segment with batches that are not kept.
        start_beyond_end: what `log-start-offset-checkpoint` says and is not taken over, since it
            lies behind the end of the log; else None.
    """

    path: str
    partition: TopicPartition
    topic_id: UUID | None
    log_start_offset: int
    log_end_offset: int
    bytes: int
    batches: int
    records: int | None
    lost: tuple[LostOffsets, ...]
    unprovable: tuple[Unprovable, ...]
    transactions: tuple[HurtTransaction, ...]
    markers: int
    target: TargetPartition = field(repr=False)
    indexed: bool = False
    start_beyond_end: int | None = None

    @property
    def name(self) -> str:
        """Of its directory in OUT."""
        return self.target.name

    @property
    def ok(self) -> bool:
        """Whether nothing is lost."""
        return not self.lost and all(one.reason in HARMLESS | _NOTHING for one in self.unprovable)

    @property
    def kept_bytes(self) -> int:
        """Of the new log files."""
        return self.target.bytes

    @property
    def lost_records(self) -> int | None:
        """How many records are lost; at most, where one range says so; None if not known."""
        found = 0
        for one in self.lost:
            if one.last_offset is None:
                return None
            found += one.last_offset - one.first_offset + 1
        return found

    @property
    def at_most(self) -> bool:
        """Whether some lost offsets may have had no record."""
        return any(one.at_most for one in self.lost)

    @property
    def unproved_batches(self) -> int:
        """How many readable batches behind damage are not kept, since nothing proves them."""
        return sum(one.batches for one in self.unprovable if one.reason == "not-anchored")

    @property
    def duplicate_batches(self) -> int:
        """How many batches are in OUT already."""
        return sum(one.batches for one in self.unprovable if one.reason in HARMLESS)

    @cached_property
    def quarantined(self) -> tuple[Quarantined, ...]:
        """The bytes that are copied beside OUT, for each log file those that are sound apart."""
        ends: dict[str, int] = {}
        found = []
        for one in sorted(self.unprovable, key=lambda one: bool(one.batches)):
            if one.reason not in _NOT_COPIED:
                folder = f"{self.name}/{READABLE}" if one.batches else self.name
                path = f"{QUARANTINE}/{folder}/{Path(one.path).name}"
                found.append(Quarantined(one, path, ends.get(path, 0)))
                ends[path] = ends.get(path, 0) + one.size
        return tuple(found)

    def to_dict(self) -> dict[str, Any]:
        """As in `--json`."""
        places = {id(each.source): each for each in self.quarantined}
        return {
            "topic": self.partition.topic,
            "partition": self.partition.partition,
            "path": self.path,
            "topic_id": None if self.topic_id is None else id_text(self.topic_id),
            "ok": self.ok,
            "log_start_offset": self.log_start_offset,
            "log_end_offset": self.log_end_offset,
            "segments": len(self.target.segments),
            "bytes": self.bytes,
            "kept_bytes": self.kept_bytes,
            "batches": self.batches,
            "records": self.records,
            "duplicates": self.duplicate_batches,
            "lost_records": self.lost_records,
            "at_most": self.at_most,
            "lost": [one.to_dict() for one in self.lost],
            "unprovable": [_told(one, places.get(id(one))) for one in self.unprovable],
            "transactions": [one.to_dict() for one in self.transactions],
            "markers": self.markers,
            "unproved": self.unproved_batches,
            "start_beyond_end": self.start_beyond_end,
        }


def _told(one: Unprovable, place: Quarantined | None) -> dict[str, Any]:
    where = {
        "quarantine": None if place is None else place.path,
        "quarantine_position": None if place is None else place.position,
    }
    return {**one.to_dict(), **where}


@dataclass(frozen=True, repr=False)
class SalvagePlan:
    """What a salvage writes; see `kseg.plan_salvage`.

    Attributes:
        sources: the directories that were given.
        out: the new data directory.
        partitions: by topic and number.
        left_alone: logs of KRaft in data directories: they are salvaged only where they are named.
    """

    sources: tuple[str, ...]
    out: Path
    partitions: tuple[SalvagedPartition, ...]
    left_alone: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether nothing is lost."""
        return all(one.ok for one in self.partitions)

    @property
    def beside(self) -> Path:
        """The directory for the report, and for bytes that are not kept."""
        return beside(self.out)

    @property
    def kept_bytes(self) -> int:
        """Of the new log files."""
        return sum(one.kept_bytes for one in self.partitions)

    @property
    def bytes(self) -> int:
        """Of the log files that were read."""
        return sum(one.bytes for one in self.partitions)

    @property
    def lost(self) -> tuple[LostOffsets, ...]:
        """Offsets that no sound batch has, of all partitions."""
        return tuple(lost for one in self.partitions for lost in one.lost)

    @property
    def quarantined(self) -> Iterator[Quarantined]:
        """The bytes that are copied beside OUT."""
        return (each for one in self.partitions for each in one.quarantined)

    @property
    def quarantined_bytes(self) -> int:
        """How many these are."""
        return sum(each.source.size for each in self.quarantined)

    def to_json(self) -> dict[str, Any]:
        """The document of `kseg salvage --json`, and `report.json`."""
        return {
            "path": list(self.sources),
            "out": str(self.out),
            "beside": str(self.beside),
            "ok": self.ok,
            "bytes": self.bytes,
            "kept_bytes": self.kept_bytes,
            "batches": sum(one.batches for one in self.partitions),
            "records": _sum([one.records for one in self.partitions]),
            "lost_records": _sum([one.lost_records for one in self.partitions]),
            "duplicates": sum(one.duplicate_batches for one in self.partitions),
            "quarantined_bytes": self.quarantined_bytes,
            "left_alone": list(self.left_alone),
            "partitions": [one.to_dict() for one in self.partitions],
        }

    def __repr__(self) -> str:
        """One line; `print` gives a line a partition."""
        return f"{type(self).__name__}({str(self.out)!r}, ok={self.ok})"

    def __str__(self) -> str:
        """A line a partition."""
        return "\n".join(
            f"{one.path}: {one.batches} batches kept, {len(one.lost)} ranges of offsets lost"
            for one in self.partitions
        )


def _sum(numbers: Sequence[int | None]) -> int | None:
    """The sum; None if one is not known."""
    known = [one for one in numbers if one is not None]
    return sum(known) if len(known) == len(numbers) else None


@dataclass(frozen=True, slots=True)
class SalvageReport:
    """What a salvage did.

    Attributes:
        plan: the plan that was applied.
        path: of `report.json`.
    """

    plan: SalvagePlan
    path: Path

    @property
    def ok(self) -> bool:
        """Whether nothing is lost."""
        return self.plan.ok

    def to_json(self) -> dict[str, Any]:
        """The document of `kseg salvage --json`."""
        return self.plan.to_json()


__all__ = ["READABLE", "Quarantined", "SalvagePlan", "SalvageReport", "SalvagedPartition"]
