"""What damage costs: which offsets cannot be read, and how much of what follows is sound.

`lost_ranges` tells it for each damaged place of a file, in order. `gone` tells it for a cut: all
that lies behind it goes, sound or not. Both use `kseg.format.search`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

import numpy as np

from kseg.constants import StopReason
from kseg.documents import Documented
from kseg.errors import UnreadableError
from kseg.format.header import ENTRY_BYTES_MIN, HEAD_BYTES, BatchHeader, refused_batch

if TYPE_CHECKING:
    from pathlib import Path

    from kseg.files.log_file import Tile
    from kseg.format.header import BatchTable
    from kseg.format.search import SoundRun

    class Damaged(Protocol):
        """A log file that is open for reading."""

        @property
        def path(self) -> Path: ...
        @property
        def size(self) -> int: ...
        def head_at(self, position: int) -> bytes: ...
        def walk(self, *, start: int, limit: int) -> Iterator[Tile]: ...
        def headers(self, *, start: int, limit: int, policy: str) -> Iterator[BatchTable]: ...
        def sound_runs(
            self, start: int, *, first_offset: int, last_offset: int | None
        ) -> Iterator[SoundRun]: ...


#: At most so many damaged places of one file are reported one by one.
PLACES_MAX: Final = 100
_INT32_MAX: Final = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Lost(Documented):
    """Records that cannot be read, or that go; None where a number is unknown.

    Attributes:
        path: the log file.
        position: byte in it where that begins.
        first_offset: the first offset: the one behind what is sound in front.
        last_offset: the last one, as what is sound behind tells.
        records: how many.
        batches: that they lie in.
        bytes: of log, in all files.
        sound_behind: batches behind the damage that were found sound.
        sound_records: how many records these say they hold.
    """

    path: str
    position: int
    first_offset: int | None
    last_offset: int | None
    records: int | None
    batches: int | None
    bytes: int
    sound_behind: int
    sound_records: int | None = 0

    @property
    def extent(self) -> str:
        """The offsets and the number of records in words."""
        if self.first_offset is None and self.records == 0:
            return f"{self.bytes} bytes without a record"
        if self.first_offset is None:
            offsets = "unknown offsets"
        elif self.last_offset is None:
            offsets = f"offsets from {self.first_offset} on"
        else:
            offsets = f"offsets {self.first_offset} to {self.last_offset}"
        return f"{offsets} ({self._count()}, {self.bytes} bytes)"

    @property
    def sound_batches(self) -> str:
        """What the sound batches behind hold, in words."""
        batches = f"{self.sound_behind} good batch{'' if self.sound_behind == 1 else 'es'}"
        return (
            batches
            if self.sound_records is None
            else f"{_counted(self.sound_records)} in {batches}"
        )

    def _count(self) -> str:
        if self.records is not None:
            return _counted(self.records)
        if self.first_offset is None or self.last_offset is None:
            return "an unknown number of records"
        return f"at most {self.last_offset - self.first_offset + 1} records"


def _counted(records: int) -> str:
    return f"{records} record{'' if records == 1 else 's'}"


def lost_ranges(
    log: Damaged,
    position: int,
    *,
    next_offset: int | None,
    base_offset: int | None,
    following: int | None,
) -> tuple[Lost, ...]:
    """Each damaged place of a log file from `position` on, the first `PLACES_MAX` of them.

    Args:
        log: the file.
        position: where the first damage begins.
        next_offset: the offset behind what is sound in front; None if nothing is known of it.
        base_offset: of the segment; None for a file whose offsets are not told by its name.
        following: where the next segment begins; None if none does.

    Raises:
        KsegError: the file shrank meanwhile.
        OSError: it cannot be read.
    """
    found: list[tuple[Lost, int, int]] = []
    sound, records, is_counted = 0, 0, True
    for piece in _pieces(log, position, next_offset, base_offset, following):
        if piece.sound_behind:
            sound += piece.sound_behind
            records += piece.records or 0
            is_counted = is_counted and piece.records is not None
        elif len(found) < PLACES_MAX:
            found.append((piece, sound, records))
    return tuple(
        replace(
            place,
            sound_behind=sound - before,
            sound_records=records - had if is_counted or sound == before else None,
        )
        for place, before, had in found
    )


def gone(
    log: Damaged, position: int, *, next_offset: int, base_offset: int, following: int | None
) -> Lost | None:
    """What goes where a log file is cut at `position`; None for nothing but zeros.

    Raises:
        KsegError: the file shrank meanwhile.
        OSError: it cannot be read.
    """
    lost = joined(_pieces(log, position, next_offset, base_offset, following))
    return None if lost is None else replace(lost, bytes=log.size - position)


def joined(parts: Iterable[Lost]) -> Lost | None:
    """What goes from several places one behind the other, as one; None for nothing."""
    whole: Lost | None = None
    for part in parts:
        whole = part if whole is None else _together(whole, part)
    return whole


def _together(first: Lost, second: Lost) -> Lost:
    return Lost(
        first.path,
        first.position,
        second.first_offset if first.first_offset is None else first.first_offset,
        first.last_offset if second.records == 0 else second.last_offset,
        _sum(first.records, second.records),
        _sum(first.batches, second.batches),
        first.bytes + second.bytes,
        first.sound_behind + second.sound_behind,
        _sum(first.sound_records, second.sound_records),
    )


def _sum(first: int | None, second: int | None) -> int | None:
    return None if first is None or second is None else first + second


def _pieces(
    log: Damaged,
    position: int,
    next_offset: int | None,
    base_offset: int | None,
    following: int | None,
) -> Iterator[Lost]:
    """The bytes from `position` on, in pieces that are damaged or sound, but for zeros at the end.

    `sound_behind` of a piece is how many sound batches it has itself.
    """
    path = str(log.path)
    last = None if following is None else following - 1
    if last is None and base_offset is not None:
        last = base_offset + _INT32_MAX
    expected = next_offset
    for run in log.sound_runs(position, first_offset=next_offset or 0, last_offset=last):
        if run.position > position:
            before = None if run.first_offset is None else run.first_offset - 1
            yield _damaged(log, position, run.position, expected, before)
        first = expected if run.first_offset is None else run.first_offset
        numbers = (run.records, run.batches, run.bytes, run.batches, run.records)
        yield Lost(path, run.position, first, run.last_offset, *numbers)
        position, expected = run.end, run.last_offset + 1
    if position < log.size and not _is_zeros(log, position):
        before = None if following is None else following - 1
        yield _damaged(log, position, log.size, expected, before)


def _is_zeros(log: Damaged, position: int) -> bool:
    try:
        tile = next(iter(log.walk(start=position, limit=position + 1)))
    except UnreadableError:
        return False
    return tile.table.stop is StopReason.ZERO_TAIL


def _damaged(log: Damaged, position: int, end: int, first: int | None, last: int | None) -> Lost:
    """A damaged place; what its head says counts where what lies around it says so, too.

    Batches that match their checksums hold the records that they say, whatever their offsets are.
    """
    path, size = str(log.path), end - position
    whole = _whole_batches(log, position, end)
    batches = whole.batches if whole.end == end else None
    if first is not None and last is not None and last < first:
        return Lost(path, position, None, None, whole.records, batches, size, 0)
    if batches is not None:
        return Lost(path, position, first, last, whole.records, batches, size, 0)
    said = claimed(log.head_at(position), position)
    if said is not None and (said.base_offset, said.last_offset) == (first, last):
        count = said.record_count
        # Without records a batch is its header alone: more bytes, and the count is damaged.
        least = 0 if size <= HEAD_BYTES else 1
        if least <= count <= said.last_offset - said.base_offset + 1:
            return Lost(path, position, first, last, count, 1, size, 0)
    return Lost(path, position, first, last, None, None, size, 0)


class _Whole(NamedTuple):
    """Batches that match their checksums: where they end, how many, and how many records in all.

    The records are None where a batch does not tell, or the disk does not give it.
    """

    end: int
    batches: int
    records: int | None


def _whole_batches(log: Damaged, position: int, end: int) -> _Whole:
    """Those of a damaged place that lie one behind the other from its start on.

    No byte behind the place is looked at, so that the time for all places of a file is linear.
    """
    batches, records = 0, 0
    try:
        stop = _end_of_sizes(log, position, end)
        if stop == position:
            return _Whole(position, 0, 0)
        for tile in log.walk(start=position, limit=stop):
            table = tile.table
            wrong = np.flatnonzero(table.crc_ok != 1)
            count = int(wrong[0]) if len(wrong) else len(table)
            if count:
                batches += count
                position = int(table.position[count - 1] + table.size[count - 1])
                counts = table.record_count[:count]
                if (counts < 0).any():
                    return _Whole(position, batches, None)
                records += int(counts.sum())
            if count < len(table):
                break
    except UnreadableError:
        return _Whole(position, batches, None)
    return _Whole(position, batches, records)


def _end_of_sizes(log: Damaged, position: int, end: int) -> int:
    """How far the sizes of batches lead, from `position` on, without passing over `end`."""
    for table in log.headers(start=position, limit=end, policy="file"):
        ends = table.position + table.size
        inside = int(np.searchsorted(ends, end, "right"))
        position = int(ends[inside - 1]) if inside else position
        if inside < len(table):
            break
    return position


def claimed(head: bytes, position: int) -> BatchHeader | None:
    """What the head of a damaged batch says; None if it is too short, or of no format."""
    if len(head) < ENTRY_BYTES_MIN or head[16] > 2:
        return None
    if head[16] == 2 and len(head) < HEAD_BYTES:
        return None
    return refused_batch(head, position=position, size=len(head))[0]


__all__ = ["PLACES_MAX", "Lost", "claimed", "gone", "joined", "lost_ranges"]
