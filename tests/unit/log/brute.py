"""Answers found the long way, over every batch and record: what lookups and reads must give."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from kseg import KsegError, Segment
from kseg.constants import StopReason
from kseg.format.header import BatchTable
from tests.conformance.readers import as_records

BENIGN = (StopReason.END, StopReason.TORN_TAIL, StopReason.ZERO_TAIL)
PLACES = ("offset", "timestamp", "position", "leader_epoch")


@dataclass(frozen=True)
class Whole:
    """All that one segment holds, read from its first byte on, without any index."""

    path: Path
    table: BatchTable
    offsets: np.ndarray
    timestamps: np.ndarray
    positions: np.ndarray

    @classmethod
    def of(cls, path: Path) -> Whole:
        with Segment.open(path, mapping="always") as segment:
            table = segment.batches()
            pieces = list(
                segment.read(columns=PLACES, control=True, verify_crc=False, start_position=0)
            )
        columns = [[piece.arrays[name] for piece in pieces] for name in PLACES[:3]]
        joined = [np.concatenate(c) if c else np.empty(0, np.int64) for c in columns]
        return cls(path, table, *joined)

    def batch_of(self, offset: int) -> int | None:
        """Position of the first batch that ends at or past an offset."""
        found = np.flatnonzero(self.table.last_offset >= offset)
        return int(self.table.position[found[0]]) if len(found) else None

    def record_at(self, timestamp: int, start_offset: int = 0) -> tuple[int, int] | None:
        """Offset and time of the first record at or after a time."""
        fits = (self.timestamps >= max(timestamp, 0)) & (self.offsets >= start_offset)
        found = np.flatnonzero(fits)
        if not len(found):
            return None
        return int(self.offsets[found[0]]), int(self.timestamps[found[0]])

    def is_honest(self) -> bool:
        """Whether no record lies outside what its batch's header says of offsets and times."""
        at = np.searchsorted(self.table.position, self.positions)
        late = self.timestamps > self.table.max_timestamp[at]
        past = self.offsets > self.table.last_offset[at]
        return not (late.any() or past.any())

    def offsets_to_ask(self, most: int = 2**62) -> list[int]:
        """Every offset of the range and one beyond each end, or as many of them, evenly."""
        lasts = self.table.last_offset
        if not len(lasts):
            return [0, 5]
        first = int(self.offsets[0]) if len(self.offsets) else int(lasts[0])
        span = range(max(0, first - 1), int(lasts[-1]) + 2)
        if len(span) > 2000:  # gaps of billions: what lies beside each batch's ends
            near = {int(last) + by for last in lasts for by in (-1, 0, 1)}
            return sample(sorted(near | {first - 1, first}), most)
        return sample(list(span), most)

    def times_to_ask(self, most: int) -> list[int]:
        known = {int(time) + by for time in np.unique(self.timestamps) for by in (-1, 0, 1)}
        return [*sample(sorted(known), most), 0, -1, 2**63 - 1]


def sample(values: list[int], most: int) -> list[int]:
    """Evenly chosen values, the first and the last among them."""
    if len(values) <= most:
        return values
    return [values[int(at)] for at in np.linspace(0, len(values) - 1, most)]


def sound_segments(directory: Path) -> list[Whole]:
    """The segments of a partition that can be read to the end, past ever larger offsets."""
    paths = sorted([*directory.glob("*.log"), *directory.glob("*.kafka")])
    return [whole for path in paths if (whole := _sound(path))]


def partitions_of(case: Path) -> list[Path]:
    return sorted(
        path
        for path in case.iterdir()
        if path.is_dir() and (any(path.glob("*.log")) or any(path.glob("*.kafka")))
    )


def _sound(path: Path) -> Whole | None:
    try:
        whole = Whole.of(path)
    except KsegError:
        return None
    table = whole.table
    lasts = table.last_offset
    rising = bool((np.diff(lasts) > 0).all()) and int(lasts.min(initial=0)) >= 0
    return whole if table.stop in BENIGN and rising and whole.is_honest() else None


def copy_partition(directory: Path, to: Path) -> Path:
    """A copy to break; the data directory around it is left behind."""
    target = to / directory.name
    shutil.copytree(directory, target)
    return target


def rows(pieces: Iterable[Any]) -> list[dict[str, Any]]:
    """Rows of pieces, none of which may be empty."""
    found = []
    for piece in pieces:
        assert len(piece) > 0
        found.extend(as_records(piece))
    return found
