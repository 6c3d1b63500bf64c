"""The last offset of each key of the dirty part of a log, as far as there is memory.

128 bits of a hash tell two keys apart, and no producer can compute it; see the kernel. As in Kafka
the map ends in the middle of a batch when it is full, and so may the checkpoint then.

Source: Kafka `Cleaner.buildOffsetMap`, `SkimpyOffsetMap`.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import numpy as np

from kseg._kernels.offset_map import OffsetMap
from kseg.format.columns import Workspace
from kseg.format.whole import LocatedBatches, decode_whole, locate_whole
from kseg.log.cleaner.inputs import walk_sound
from kseg.log.cleaner.transactions import (
    NO_DECISIONS,
    Decisions,
    any_transactions,
    has_transactions,
    read_decisions,
)

if TYPE_CHECKING:
    import numpy.typing as npt

    from kseg.files.log_file import Tile
    from kseg.format.header import BatchTable
    from kseg.format.values import BinaryColumn
    from kseg.format.whole import WholeBatches
    from kseg.log.cleaner.inputs import CleanerInputs
    from kseg.log.reader.version import SegmentInfo

    Int64s = npt.NDArray[np.int64]

#: What a slot takes, and which part of them is filled: `log.cleaner.io.buffer.load.factor`.
SLOT_BYTES: Final = 24
_LOAD: Final = 0.9
#: Two bits for an offset: so many offsets for each byte of the map, a 32nd part of the memory.
_OFFSETS_PER_BYTE: Final = 0.125


class LastOffsets:
    """The map, and how far it has come.

    Attributes:
        latest_offset: up to here all keys are known; -1 at first.
        full: whether there was no room for the next one.
    """

    def __init__(self, map_bytes: int, dirty: range, records: int | None = None) -> None:
        """Begin empty.

        Args:
            map_bytes: memory; less where so much cannot be needed.
            dirty: the offsets that are to come.
            records: no more than so many have a key; None where that is not known.

        Raises:
            ValueError: there is no room for one key.
        """
        limit = int(map_bytes // SLOT_BYTES * _LOAD)
        if limit < 1:
            raise ValueError(f"a map of {map_bytes} bytes has no room for a key")
        span = min(len(dirty), int(map_bytes * _OFFSETS_PER_BYTE))
        slots = max(limit + 1, (map_bytes - span // 4) // SLOT_BYTES)
        most = len(dirty) if records is None else min(len(dirty), records)
        slots = min(slots, 2 * most + 2)
        self._map: Final = OffsetMap(
            slots, min(limit, slots - 1), secrets.token_bytes(16), dirty.start, span
        )
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

    def put_located(self, found: LocatedBatches, start_offset: int) -> int:
        """As `put`, for records where they lie."""
        done = int(
            self._map.put_located(
                found.data,
                found.arena,
                found.bodies,
                found.last_offsets,
                found.ends,
                found.spans,
                found.offsets,
                start_offset,
            )
        )
        self.full = done < len(found.offsets)
        return done

    def latest(self, key: BinaryColumn, offsets: Int64s) -> npt.NDArray[np.bool_]:
        """bool[n]: which rows have a key that is not known at a later offset."""
        out = np.empty(len(key), np.uint8)
        valid = key.is_valid().view(np.uint8)
        self._map.latest(key.data, key.offsets, valid, offsets, self.latest_offset, out)
        return out.view(np.bool_)

    def told(self, table: BatchTable) -> npt.NDArray[np.uint8]:
        """uint8[n], each a `Known`: what is known of batches of data that were all put in."""
        out = np.empty(len(table), np.uint8)
        self._map.told(
            np.ascontiguousarray(table.base_offset),
            np.ascontiguousarray(table.last_offset),
            np.ascontiguousarray(table.record_count),
            self.latest_offset,
            out,
        )
        return out


def read_keys(
    inputs: CleanerInputs,
    segments: Sequence[SegmentInfo],
    dirty: range,
    map_bytes: int,
) -> tuple[Decisions, LastOffsets]:
    """What became of the transactions of a log, and the last offsets of the keys of its dirty part.

    Transactions ask for a walk over all headers first, since records of aborted ones do not count.
    Most logs have none. So the keys are read as if there were none, until a batch says otherwise.

    Args:
        inputs: of the log.
        segments: those that hold offsets of the dirty part.
        dirty: its offsets, up to the base of the segment behind it.
        map_bytes: memory.

    Raises:
        ValueError: there is no memory for one key.
        FormatError, LimitExceededError: a batch is damaged.
        OSError: a file cannot be read.
    """
    if not any_transactions(inputs, dirty.start):
        found = _read_segments(inputs, segments, dirty, NO_DECISIONS, map_bytes)
        # Behind the end of a full map there may be transactions.
        if found is not None and not found.full:
            return NO_DECISIONS, found
        del found
    decisions = read_decisions(inputs, dirty.start, dirty.stop)
    found = _read_segments(inputs, segments, dirty, decisions, map_bytes)
    assert found is not None
    return decisions, found


def _read_segments(
    inputs: CleanerInputs,
    segments: Sequence[SegmentInfo],
    dirty: range,
    decisions: Decisions,
    map_bytes: int,
) -> LastOffsets | None:
    """The map; None if there are transactions, of which `NO_DECISIONS` knows nothing."""
    found = LastOffsets(map_bytes, dirty, decisions.records)
    workspace = Workspace()
    bases = [*(info.base_offset for info in segments), dirty.stop]
    for info, (_, following) in zip(segments, pairwise(bases), strict=True):
        with inputs.open_segment(info) as segment:
            start = segment.start_for_offset(dirty.start).position
            for tile in walk_sound(segment, start=start):
                if decisions is NO_DECISIONS and has_transactions(tile.table):
                    return None
                _take_tile(found, tile, decisions, dirty.start, workspace)
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
    for piece in _each_piece(tile, table.take(rows), workspace):
        if isinstance(piece, LocatedBatches):
            keyed, offsets = piece.has_key, piece.offsets
            done = found.put_located(piece, start_offset)
        else:
            key, offsets = piece.columns["key"], piece.columns["offset"]
            keyed, done = key.is_valid(), found.put(key, offsets, start_offset)
        if found.full:
            number = int(np.searchsorted(piece.ends, done, "right")) - 1
            _reach(found, table, int(rows[piece.batches[number]]), start_offset)
            first = int(piece.ends[number])
            taken = keyed[first:done] & (offsets[first:done] >= start_offset)
            if taken.any():
                found.latest_offset = int(offsets[first:done][taken][-1])
            return
    _reach(found, table, len(table), start_offset)


def _each_piece(
    tile: Tile, table: BatchTable, workspace: Workspace
) -> Iterator[LocatedBatches | WholeBatches]:
    """Records of batches: magic 2 where they lie, older ones as columns."""
    if not table.magics_seen & 3:
        yield from locate_whole(tile.data, table, base=tile.base, workspace=workspace)
        return
    yield from decode_whole(
        tile.data,
        table,
        base=tile.base,
        fields=("offset", "key"),
        verify_crc=False,
        workspace=workspace,
    )


def _reach(found: LastOffsets, table: BatchTable, count: int, start_offset: int) -> None:
    """Let the first `count` batches of a table be known."""
    if count and int(table.last_offset[count - 1]) >= start_offset:
        found.latest_offset = int(table.last_offset[count - 1])


__all__ = ["SLOT_BYTES", "LastOffsets", "read_keys"]
