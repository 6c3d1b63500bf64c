"""Transactions that lost their marker, or records, and the markers that end them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

from kseg.constants import ControlType
from kseg.format.builder import BatchBuilder
from kseg.log.salvage.tables import provable_tables

if TYPE_CHECKING:
    from kseg.format.header import BatchHeader
    from kseg.log.salvage.values import LostOffsets, ProvableRun

_ENDS: Final = (ControlType.ABORT, ControlType.COMMIT)


@dataclass(frozen=True, slots=True)
class HurtTransaction:
    """A transaction with lost offsets behind its first record.

    Attributes:
        producer_id, producer_epoch: of its producer.
        first_offset: of its first record.
        last_offset: of its marker; of its last record if that is lost.
        coordinator_epoch: of the last marker of this producer; 0 without one.
        is_open: its marker is lost. Else offsets in front of the marker are, so records of it may
            be missing, or it may be two whose first marker is lost.
    """

    producer_id: int
    producer_epoch: int
    first_offset: int
    last_offset: int
    coordinator_epoch: int
    is_open: bool

    def to_dict(self) -> dict[str, Any]:
        """As in `--json`."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Transactions:
    """What a log tells of its transactions.

    Attributes:
        hurt: by their first offsets.
        leader_epoch: of the last batch that has one; -1 without any, or if nothing is lost.
        max_timestamp: the largest one; 0 likewise.
    """

    hurt: tuple[HurtTransaction, ...]
    leader_epoch: int
    max_timestamp: int


def hurt_transactions(runs: Sequence[ProvableRun], lost: Sequence[LostOffsets]) -> Transactions:
    """The transactions that lost offsets may belong to.

    Args:
        runs: by offset.
        lost: between them and behind.

    Raises:
        CorruptRecordError, UnreadableError: a file is not as it was when it was read.
    """
    walk = _Walk([each.first_offset for each in lost])
    for _, table in provable_tables(runs) if lost else ():
        walk.leader_epoch = max(walk.leader_epoch, int(table.leader_epoch.max()))
        walk.max_timestamp = max(walk.max_timestamp, int(table.max_timestamp.max()))
        is_taken = table.is_transactional & (table.producer_id >= 0)
        if is_taken.any():
            for header in table[is_taken]:
                walk.take(header)
    hurt = sorted([*walk.hurt, *walk.still_open()], key=lambda one: one.first_offset)
    return Transactions(tuple(hurt), walk.leader_epoch, walk.max_timestamp)


class _Walk:
    """Goes over the batches of transactions, by offset."""

    def __init__(self, lost: list[int]) -> None:
        self._lost = lost
        self._open: dict[int, tuple[int, int, int]] = {}
        self._epochs: dict[int, int] = {}
        self.hurt: list[HurtTransaction] = []
        self.leader_epoch, self.max_timestamp = -1, 0

    def take(self, header: BatchHeader) -> None:
        """A batch of a transaction, or its marker."""
        producer = header.producer_id
        if not header.is_control:
            first = self._open.get(producer, (header.base_offset,))[0]
            self._open[producer] = first, header.last_offset, header.producer_epoch
        elif header.control_type in _ENDS:
            self._epochs[producer] = header.coordinator_epoch
            begun = self._open.pop(producer, None)
            if begun is not None and self._loses(begun[0], header.last_offset):
                self._note(producer, (begun[0], header.last_offset, begun[2]), is_open=False)

    def still_open(self) -> list[HurtTransaction]:
        """Those whose marker may be lost, behind what was taken in."""
        hurt, self.hurt = self.hurt, []
        for producer, begun in self._open.items():
            if self._loses(begun[1], None):
                self._note(producer, begun, is_open=True)
        found, self.hurt = self.hurt, hurt
        return found

    def _loses(self, first: int, last: int | None) -> bool:
        at = bisect_left(self._lost, first)
        return at < len(self._lost) and (last is None or self._lost[at] <= last)

    def _note(self, producer: int, begun: tuple[int, int, int], *, is_open: bool) -> None:
        first, last, epoch = begun
        coordinator = self._epochs.get(producer, 0)
        self.hurt.append(HurtTransaction(producer, epoch, first, last, coordinator, is_open))


def abort_markers(known: Transactions, offset: int) -> bytes:
    """Markers that abort the open ones, each a batch of its own, from an offset on.

    They have the leader epoch of the log's end and its largest timestamp.
    """
    made = []
    for at, one in enumerate(each for each in known.hurt if each.is_open):
        builder = BatchBuilder(
            base_offset=offset + at,
            producer_id=one.producer_id,
            producer_epoch=one.producer_epoch,
            transactional=True,
            control=True,
            leader_epoch=known.leader_epoch,
        )
        builder.append_end_marker(
            ControlType.ABORT, one.coordinator_epoch, timestamp=known.max_timestamp
        )
        made.append(builder.build().data)
    return b"".join(made)


__all__ = ["HurtTransaction", "Transactions", "abort_markers", "hurt_transactions"]
