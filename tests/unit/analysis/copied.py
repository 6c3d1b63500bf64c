"""Copies of a partition for tests: told as batches, written as segments, changed a little."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

from kseg.files.metadata import write_partition_metadata
from tests.builders import NONE, batch, record, write_segment


@dataclass(frozen=True)
class Told:
    """A batch of a copy: its records have the values `<text><offset>`, but for those left out."""

    first: int
    count: int = 2
    epoch: int = 0
    text: str = "v"
    codec: int = NONE
    without: tuple[int, ...] = ()

    @property
    def last(self) -> int:
        return self.first + self.count - 1

    @property
    def data(self) -> bytes:
        given = [
            record(
                f"{self.text}{offset}".encode(),
                key=b"k%d" % (offset % 3),
                headers=[(b"h", b"%d" % offset)] if offset % 2 else (),
                timestamp=1_000 + offset,
                offset=offset,
            )
            for offset in range(self.first, self.last + 1)
            if offset not in self.without
        ]
        return batch(
            given,
            base_offset=self.first,
            last_offset_delta=self.count - 1,
            base_timestamp=1_000 + self.first,
            leader_epoch=self.epoch,
            codec=self.codec,
        )


def told(count: int, *, size: int = 2, epoch: int = 0, start: int = 0) -> list[Told]:
    """So many batches from an offset on."""
    return [Told(start + size * number, size, epoch) for number in range(count)]


def write_copy(
    directory: Path,
    batches: Sequence[Told],
    *,
    per_segment: int = 3,
    base: int | None = None,
    topic_id: int | None = None,
) -> Path:
    """Write a copy: a segment for so many batches."""
    directory.mkdir(parents=True, exist_ok=True)
    if not batches:
        write_segment(directory, base or 0)
    for at in range(0, len(batches), per_segment):
        part = batches[at : at + per_segment]
        first = part[0].first if at or base is None else base
        write_segment(directory, first, *(each.data for each in part))
    if topic_id is not None:
        write_partition_metadata(directory / "partition.metadata", UUID(int=topic_id))
    return directory
