"""The cost of damage: the offsets that cannot be read, and the sound batches after them.

`lost_ranges` lists the damaged places of a file. `gone` counts the records that a cut removes: all
after it, sound or not. Both use `kseg.format.search`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final, TypeAlias

import numpy as np

from kseg.constants import INT32_MAX, StopReason
from kseg.documents import Documented, frozen_dataclass
from kseg.errors import UnreadableError
from kseg.files.log_file import LogFile
from kseg.format.header import ENTRY_BYTES_MIN, HEAD_BYTES, BatchHeader, refused_batch
from kseg.log.recovery.plan import sum_of
from kseg.log.segment.reader import Segment

#: An open log file.
Log: TypeAlias = LogFile | Segment

#: The most damaged places of one file that are reported one by one.
PLACES_MAX: Final = 100


@frozen_dataclass
class Lost(Documented):
    """Records that cannot be read, or that a cut removes; None where a number is unknown.

    Attributes:
        path: the log file.
        position: byte in it where they begin.
        first_offset: the first offset, after the sound batches before the damage.
        last_offset: the last one, by the sound batches after the damage.
        records: the number of records.
        batches: the number of batches that hold them.
        bytes: the bytes of log, in all files.
        sound_behind: batches after the damage that were found sound.
        sound_records: the records of those, by their headers.
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
        """The offsets and the number of records, as a phrase."""
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
        """The sound batches after the damage, and their records, as a phrase."""
        batches = f"{self.sound_behind} good batch{'' if self.sound_behind == 1 else 'es'}"
        return (
            batches
            if self.sound_records is None
            else f"{_count_text(self.sound_records)} in {batches}"
        )

    def _count(self) -> str:
        """The number of lost records, as a phrase."""
        if self.records is not None:
            return _count_text(self.records)
        if self.first_offset is None or self.last_offset is None:
            return "an unknown number of records"
        return f"at most {self.last_offset - self.first_offset + 1} records"


def _count_text(records: int) -> str:
    return f"{records} record{'' if records == 1 else 's'}"


def lost_ranges(
    log: Log,
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
        next_offset: the offset after the sound batches before that place; None if it is unknown.
        base_offset: the segment's base offset; None if the file has no offset in its name.
        following: the start of the next segment; None if there is none.

    Raises:
        KsegError: the file shrank meanwhile.
        OSError: it cannot be read.
    """
    # Each with the sound batches before it and their records.
    damaged: list[tuple[Lost, int, int]] = []
    sound, records, is_counted = 0, 0, True
    for piece in _pieces(log, position, next_offset, base_offset, following):
        if piece.sound_behind:
            sound += piece.sound_behind
            records += piece.records or 0
            is_counted = is_counted and piece.records is not None
        elif len(damaged) < PLACES_MAX:
            damaged.append((piece, sound, records))
    return tuple(
        replace(
            piece,
            sound_behind=sound - sound_before,
            sound_records=records - records_before if is_counted or sound == sound_before else None,
        )
        for piece, sound_before, records_before in damaged
    )


def gone(
    log: Log, position: int, *, next_offset: int, base_offset: int, following: int | None
) -> Lost | None:
    """The loss if a log file is cut at `position`; None if only zeros follow.

    Raises:
        KsegError: the file shrank meanwhile.
        OSError: the file cannot be read.
    """
    lost = joined(_pieces(log, position, next_offset, base_offset, following))
    return None if lost is None else replace(lost, bytes=log.size - position)


def joined(parts: Iterable[Lost]) -> Lost | None:
    """The losses of consecutive places, added up; None if there are none."""
    whole: Lost | None = None
    for part in parts:
        whole = (
            part
            if whole is None
            else Lost(
                whole.path,
                whole.position,
                part.first_offset if whole.first_offset is None else whole.first_offset,
                whole.last_offset if part.records == 0 else part.last_offset,
                sum_of((whole.records, part.records)),
                sum_of((whole.batches, part.batches)),
                whole.bytes + part.bytes,
                whole.sound_behind + part.sound_behind,
                sum_of((whole.sound_records, part.sound_records)),
            )
        )
    return whole


def _pieces(
    log: Log,
    position: int,
    next_offset: int | None,
    base_offset: int | None,
    following: int | None,
) -> Iterator[Lost]:
    """The bytes from `position` on as damaged or sound pieces, without zeros at the end.

    `sound_behind` and `sound_records` of a piece count what is sound in it, not after it.
    """
    path = str(log.path)
    last = None if following is None else following - 1
    if last is None and base_offset is not None:
        last = base_offset + INT32_MAX
    expected = next_offset
    for run in log.sound_runs(position, first_offset=next_offset or 0, last_offset=last):
        if run.position > position:
            before = None if run.first_offset is None else run.first_offset - 1
            yield _damaged_place(log, position, run.position, expected, before)
        first = expected if run.first_offset is None else run.first_offset
        yield Lost(
            path,
            run.position,
            first,
            run.last_offset,
            records=run.records,
            batches=run.batches,
            bytes=run.bytes,
            sound_behind=run.batches,
            sound_records=run.records,
        )
        position, expected = run.end, run.last_offset + 1
    if position < log.size and not _is_zeros(log, position):
        before = None if following is None else following - 1
        yield _damaged_place(log, position, log.size, expected, before)


def _is_zeros(log: Log, position: int) -> bool:
    """Whether nothing but zeros follows a position."""
    try:
        tile = next(iter(log.walk(start=position, limit=position + 1)))
    except UnreadableError:
        return False
    return tile.table.stop is StopReason.ZERO_TAIL


def _damaged_place(log: Log, position: int, end: int, first: int | None, last: int | None) -> Lost:
    """The loss at a damaged place. A damaged header counts only if the batches around it agree.

    Whole batches that match their checksums have the records that their headers count.

    Args:
        log, position, end: the log file, and the bounds of the place.
        first, last: the offsets that are missing there; None if unknown.
    """
    path, size = str(log.path), end - position
    batches, records = _whole_batches(log, position, end)
    if first is not None and last is not None and last < first:
        return Lost(path, position, None, None, records, batches, size, 0)
    if batches is None:
        records = _claimed_records(log, position, size, (first, last))
        batches = None if records is None else 1
    return Lost(path, position, first, last, records, batches, size, 0)


def _claimed_records(
    log: Log, position: int, size: int, offsets: tuple[int | None, int | None]
) -> int | None:
    """How many records the header of a damaged batch says it has.

    None if the header's offsets are not `offsets`, or the count is impossible.
    """
    head = claimed(log.head_at(position), position)
    if head is None or (head.base_offset, head.last_offset) != offsets:
        return None
    # A batch without records is only its header: if there are more bytes, the count is damaged.
    least = 0 if size <= HEAD_BYTES else 1
    span = head.last_offset - head.base_offset + 1
    return head.record_count if least <= head.record_count <= span else None


def _whole_batches(log: Log, position: int, end: int) -> tuple[int | None, int | None]:
    """How many batches fill a damaged place, and their records, if all match their checksums.

    The records are those up to the first batch that does not match; None where a batch does not
    say, or the disk does not give it. No byte after the place is read, so that the time for all
    places of a file is linear.
    """
    batches = records = 0
    try:
        stop = _end_of_sizes(log, position, end)
        for tile in log.walk(start=position, limit=stop) if stop > position else ():
            table = tile.table
            wrong = np.flatnonzero(table.crc_ok != 1)
            count = int(wrong[0]) if len(wrong) else len(table)
            if count:
                batches += count
                position = int(table.position[count - 1] + table.size[count - 1])
                counts = table.record_count[:count]
                if (counts < 0).any():
                    return batches if position == end else None, None
                records += int(counts.sum())
            if count < len(table):
                break
    except UnreadableError:
        return batches if position == end else None, None
    return batches if position == end else None, records


def _end_of_sizes(log: Log, position: int, end: int) -> int:
    """Follow the sizes of batches from `position`; return where the last one up to `end` ends."""
    for table in log.headers(start=position, limit=end, policy="file"):
        ends = table.position + table.size
        inside = int(np.searchsorted(ends, end, "right"))
        position = int(ends[inside - 1]) if inside else position
        if inside < len(table):
            break
    return position


def claimed(head: bytes, position: int) -> BatchHeader | None:
    """The header in the first bytes of a damaged batch; None if they are too few or not of Kafka.

    Byte 16 is the magic.
    """
    if len(head) < ENTRY_BYTES_MIN or head[16] > 2:
        return None
    if head[16] == 2 and len(head) < HEAD_BYTES:
        return None
    return refused_batch(head, position=position, size=len(head))[0]
