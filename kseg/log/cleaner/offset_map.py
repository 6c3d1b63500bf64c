"""The last offset of each key of the dirty part of a log, as far as there is memory.

128 bits of a hash tell two keys apart, and no producer can compute it; see the kernel. As in Kafka
the map ends in the middle of a batch when it is full, and so may the checkpoint then.

Source: Kafka `Cleaner.buildOffsetMap`, `SkimpyOffsetMap`.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from kseg._kernels.offset_map import KeepLatest, OffsetMap
from kseg.files.mapping import private_memory
from kseg.format.columns import Workspace
from kseg.format.request import HAS_VALUE
from kseg.format.whole import decode_whole
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

    from kseg._kernels.located import Located
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
#: Slots of more bytes lie in huge pages: each key is looked for in another place.
_HEAP_BYTES_MAX: Final = 4 << 20


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
        size = slots * SLOT_BYTES
        memory = private_memory(size, [(0, size)]) if size > _HEAP_BYTES_MAX else None
        self._map: Final = OffsetMap(
            slots, min(limit, slots - 1), secrets.token_bytes(16), dirty.start, span, memory
        )
        self.latest_offset = -1
        self.full = False

    @property
    def count(self) -> int:
        """How many keys it has."""
        return int(self._map.count)

    def put(self, whole: WholeBatches, table: BatchTable, start_offset: int) -> int:
        """Note keys of rows from `start_offset` on; answers how many rows were taken.

        Args:
            whole: offsets, keys, and whether there is a value.
            table: the headers asked for.
            start_offset: rows below it are passed over.
        """
        key, offsets = whole.columns["key"], whole.columns["offset"]
        done = int(
            self._map.put(
                key.data,
                key.offsets,
                key.is_valid().view(np.uint8),
                offsets,
                start_offset,
                **_told_by(whole, table),
            )
        )
        self.full = done < len(offsets)
        return done

    def put_batches(
        self, data: memoryview, base: int, table: BatchTable, start_offset: int, located: Located
    ) -> tuple[int, int]:
        """Note keys of batches where they lie, until one comes that has to be read as columns.

        Args:
            data: bytes of the file from `base` on.
            base: position of `data[0]`.
            table: headers of batches of data.
            start_offset: records below it are passed over.
            located: memory to use again.

        Returns:
            The first batch that was not taken whole; if there was no room for one of its keys, the
            offset of the last key of it that was taken, else -1.
        """
        at, self.full, last = self._map.put_batches(located, data, table.rows, base, start_offset)
        return at, last

    def keep(
        self, tombstones: npt.NDArray[np.bool_], discarded: npt.NDArray[np.bool_]
    ) -> KeepLatest:
        """What keeps the last record of each key in batches of data of a table.

        Args:
            tombstones: bool[n], of each batch: whether it keeps tombstones, too.
            discarded: bool[n]: whether it keeps nothing.
        """
        return KeepLatest(
            self._map, self.latest_offset, tombstones.view(np.uint8), discarded.view(np.uint8)
        )

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
            for tile in walk_sound(segment, start=start, on_bad_crc=inputs.on_bad_crc):
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
    dirty_ones = table if len(rows) == len(table) else table.take(rows)
    at, last = found.put_batches(tile.data, tile.base, dirty_ones, start_offset, workspace.located)
    if not found.full and at < len(rows):
        at, last = _take_columns(found, tile, dirty_ones, at, start_offset, workspace)
    if not found.full:
        _reach(found, table, len(table), start_offset)
        return
    _reach(found, table, int(rows[at]), start_offset)
    if last >= 0:
        found.latest_offset = last


def _take_columns(
    found: LastOffsets,
    tile: Tile,
    dirty_ones: BatchTable,
    at: int,
    start_offset: int,
    workspace: Workspace,
) -> tuple[int, int]:
    """Put in the keys of batches from `at` on; answers as `LastOffsets.put_batches`."""
    table = dirty_ones.take(slice(at, None))
    pieces = decode_whole(
        tile.data,
        table,
        base=tile.base,
        fields=("offset", "key", HAS_VALUE),
        verify_crc=False,
        workspace=workspace,
    )
    for piece in pieces:
        done = found.put(piece, table, start_offset)
        if found.full:
            number = int(np.searchsorted(piece.ends, done, "right")) - 1
            taken = slice(int(piece.ends[number]), done)
            offsets = piece.columns["offset"][taken]
            keyed = piece.columns["key"].is_valid()[taken] & (offsets >= start_offset)
            last = int(offsets[keyed][-1]) if keyed.any() else -1
            return at + int(piece.batches[number]), last
    return len(dirty_ones), -1


def _told_by(whole: WholeBatches, table: BatchTable) -> dict[str, Any]:
    """What the map's bits go by; older batches say nothing of their records."""
    if table.magics_seen & 3:
        return {}
    return {
        "has_value": whole.columns[HAS_VALUE].view(np.uint8),
        "first_row": whole.ends,
        "base_offsets": table.base_offset[whole.batches],
        "last_offsets": table.last_offset[whole.batches],
    }


def _reach(found: LastOffsets, table: BatchTable, count: int, start_offset: int) -> None:
    """Let the first `count` batches of a table be known."""
    if count and int(table.last_offset[count - 1]) >= start_offset:
        found.latest_offset = int(table.last_offset[count - 1])


__all__ = ["SLOT_BYTES", "LastOffsets", "read_keys"]
