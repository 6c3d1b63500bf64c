"""The last offset of each key of the dirty part of a log, as far as there is memory.

128 bits of a hash tell two keys apart, and no producer can compute it; see the kernel. As in Kafka
the map ends in the middle of a batch when it is full, and so may the checkpoint then.

Source: Kafka `Cleaner.buildOffsetMap`, `SkimpyOffsetMap`.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import numpy as np

from kseg._kernels.offset_map import OffsetMap
from kseg.format.columns import Workspace
from kseg.format.whole import decode_whole
from kseg.log.cleaner.inputs import walk_sound

if TYPE_CHECKING:
    import numpy.typing as npt

    from kseg.files.log_file import Tile
    from kseg.format.header import BatchTable
    from kseg.format.values import BinaryColumn
    from kseg.log.cleaner.inputs import CleanerInputs
    from kseg.log.cleaner.transactions import Decisions
    from kseg.log.reader.version import SegmentInfo

    Int64s = npt.NDArray[np.int64]

#: What a slot takes, and which part of them is filled: `log.cleaner.io.buffer.load.factor`.
SLOT_BYTES: Final = 24
_LOAD: Final = 0.9


class LastOffsets:
    """The map, and how far it has come.

    Attributes:
        latest_offset: up to here all keys are known; -1 at first.
        full: whether there was no room for the next one.
    """

    def __init__(self, map_bytes: int, records: int | None = None) -> None:
        """Begin empty.

        Args:
            map_bytes: memory.
            records: no more than so many keys are to come, so that less memory may do.

        Raises:
            ValueError: there is no room for one key.
        """
        slots = map_bytes // SLOT_BYTES
        limit = int(slots * _LOAD)
        if limit < 1:
            raise ValueError(f"a map of {map_bytes} bytes has no room for a key")
        if records is not None:
            slots = min(slots, 2 * records + 2)
        self._map: Final = OffsetMap(slots, min(limit, slots - 1), secrets.token_bytes(16))
        self.latest_offset = -1
        self.full = False

    @property
    def count(self) -> int:
        """How many keys it has."""
        return int(self._map.count)

    def put(self, key: BinaryColumn, offsets: Int64s, start_offset: int) -> int:
        """Note keys of rows from `start_offset` on; answers how many rows were taken."""
        valid = key.is_valid().view(np.uint8)
        done = int(self._map.put(key.data, key.offsets, valid, offsets, start_offset))
        self.full = done < len(offsets)
        return done

    def get(self, key: BinaryColumn) -> Int64s:
        """int64[n]: the last offset of each key, -1 where it is null or not known."""
        out = np.empty(len(key), np.int64)
        self._map.get(key.data, key.offsets, key.is_valid().view(np.uint8), out)
        return out


def read_last_offsets(
    inputs: CleanerInputs,
    segments: Sequence[SegmentInfo],
    *,
    start_offset: int,
    end_offset: int,
    decisions: Decisions,
    map_bytes: int,
) -> LastOffsets:
    """Read the keys of the dirty part of a log.

    Args:
        inputs: of the log.
        segments: those that hold offsets from `start_offset` below `end_offset`.
        start_offset: where that part begins.
        end_offset: the base of the segment behind it.
        decisions: which transactions were aborted; their records do not count.
        map_bytes: memory.

    Raises:
        FormatError, LimitExceededError: a batch is damaged.
        OSError: a file cannot be read.
    """
    found = LastOffsets(map_bytes, decisions.records)
    workspace = Workspace()
    bases = [*(info.base_offset for info in segments), end_offset]
    for info, (_, following) in zip(segments, pairwise(bases), strict=True):
        with inputs.open_segment(info) as segment:
            start = segment.start_for_offset(start_offset).position
            for tile in walk_sound(segment, start=start):
                _take_tile(found, tile, decisions, start_offset, workspace)
                if found.full:
                    return found
        # Where offsets are missing at the end of a segment, nothing more is to come.
        found.latest_offset = following - 1
    return found


def _take_tile(
    found: LastOffsets,
    tile: Tile,
    decisions: Decisions,
    start_offset: int,
    workspace: Workspace,
) -> None:
    """Put in the keys of a tile; `latest_offset` is then that of its last batch, unless full."""
    table = tile.table
    if not len(table):
        return
    dirty = table.last_offset >= start_offset
    rows = np.flatnonzero(dirty & ~table.is_control & ~decisions.aborted.within(table))
    pieces = decode_whole(
        tile.data,
        table.take(rows),
        base=tile.base,
        fields=("offset", "key"),
        verify_crc=False,
        workspace=workspace,
    )
    for whole in pieces:
        key, offsets = whole.columns["key"], whole.columns["offset"]
        done = found.put(key, offsets, start_offset)
        if found.full:
            number = int(np.searchsorted(whole.ends, done, "right")) - 1
            _reach(found, table, int(rows[whole.batches[number]]), start_offset)
            first = int(whole.ends[number])
            taken = key.is_valid()[first:done] & (offsets[first:done] >= start_offset)
            if taken.any():
                found.latest_offset = int(offsets[first:done][taken][-1])
            return
    _reach(found, table, len(table), start_offset)


def _reach(found: LastOffsets, table: BatchTable, count: int, start_offset: int) -> None:
    """Let the first `count` batches of a table be known."""
    if count and int(table.last_offset[count - 1]) >= start_offset:
        found.latest_offset = int(table.last_offset[count - 1])


__all__ = ["SLOT_BYTES", "LastOffsets", "read_last_offsets"]
