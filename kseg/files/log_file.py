"""One log file: a walk yields its bytes a tile at a time, with the headers of their batches.

`walk` is the one walk over batches that scan, read, verify and dump share; they treat its end
differently. A caller that needs header fields alone takes `headers`, which yields no bytes. Mapped
files are walked in place. Others come through windows of owned bytes, so that a file which another
process shortens gives an error instead of a crash; of their large batches, headers are read alone
if only those are asked for. This module owns the bytes; `kseg.format` knows what they mean.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from kseg import workers
from kseg._kernels import walk as _kernel
from kseg.constants import INT32_MAX, INT64_MAX, Buffer, StopReason, StrPath
from kseg.errors import NotALogError, UnreadableError
from kseg.files.grammar import FileKind, parse_name
from kseg.files.io import Closing
from kseg.files.mapping import MappedFile, Mapping, read_window, readable_parts
from kseg.format.header import (
    FIELDS,
    HEAD_BYTES,
    BatchTable,
    checksum_rule,
    empty_table,
    refused_batch,
    scan,
    table_from,
)

if TYPE_CHECKING:
    from kseg.format.search import SoundRun


#: Bytes of log between two tables of a mapped file: few enough to be in cache still when they are
#: decoded.
TILE_BYTES: Final = 2 << 20
#: The same where the walk itself compares checksums: such a caller reads tables more than bytes,
#: and each tile costs some microseconds.
CHECKED_TILE_BYTES: Final = 8 << 20
#: The same where each is a piece of work for one of several threads: some milliseconds of work, or
#: Python's part of it, which runs in one thread at a time, keeps the others waiting.
PIECE_BYTES: Final = 4 << 20
#: The most batches of a tile: a table is allocated for so many, and used again from the heap.
TILE_BATCHES: Final = 8_192
#: Batches of the first table of `headers`, and the growth of later tables: a short walk costs
#: little, and a long walk has few tables.
HEADERS_FIRST: Final = 64
HEADERS_GROWTH: Final = 8
#: Batches of a table of `headers` at the most. Two are alive at a time: both stay in the cache, and
#: come from the heap without new pages.
HEADERS_MAX: Final = 2_048
#: A walk over the headers of fewer bytes reads the bytes.
CACHED_BYTES_MIN: Final = 1 << 20
#: Where headers cannot be read alone, the bytes are read up to here, and each next time for longer.
CACHED_RETRY_BYTES: Final = 2 << 20
_CACHED_RETRY_GROWTH: Final = 4
#: If so many headers were read alone, it is worth trying again soon.
_CACHED_WORTH: Final = 64
#: Bytes of a window of a file that is not mapped; fits the second-level cache.
WINDOW_BYTES: Final = 1 << 20
#: The least that is read at once.
_SMALL_BYTES: Final = 16 << 10
#: A batch larger than this is checked in windows before it is read into memory whole.
BATCH_BYTES_TRUSTED: Final = 16 << 20
#: Stands for bytes that are not known. Zeros, or one byte again and again, a batch may really have
#: there, and would seem sound.
_NOT_GIVEN: Final = bytes(range(255, 127, -1))


#: Called with each range of bytes that the disk cannot read.
OnUnreadable = Callable[[UnreadableError], None]


#: Returns a view of the bytes from a position on, at least so many; see `LogFile.views`.
ViewAt = Callable[[int, int], tuple[memoryview, int]]


class Tile(NamedTuple):
    """A part of a log: its bytes, their position in the file, and the batches that start in it.

    `data` is valid until the next tile is requested. The last tile of a walk says in `table.stop`
    why it ended.
    """

    data: memoryview
    base: int
    table: BatchTable


class LogFile(Closing):
    """A `.log` (or Kafka 0.7 `.kafka`, or KRaft `.checkpoint`) file, open for reading.

    `open` acquires; `close`, or leaving a `with`, releases. Any thread may walk.
    """

    __slots__ = ("_file", "base_offset", "kafka07", "path")

    def __init__(
        self, file: MappedFile, base_offset: int, *, kafka07: bool, path: Path | None = None
    ) -> None:
        """Take over an open file; use `open` instead."""
        self._file: Final = file
        self.path: Final = path or Path(file.path)
        self.base_offset: Final = base_offset
        self.kafka07: Final = kafka07

    @classmethod
    def open(cls, path: StrPath, mapping: Mapping = "auto") -> LogFile:
        """Open a file of batches; base offset and era come from its name.

        Raises:
            NotALogError: the name is not that of a log file.
            OSError: it is missing or cannot be read.
        """
        path = getattr(path, "path", path)  # if it is the name of a file elsewhere
        log_path = path if isinstance(path, Path) else Path(path)
        name = parse_name(log_path.name)
        if name is None or not name.kind.holds_batches:
            raise NotALogError("not the name of a file of batches", path=path)
        file = MappedFile.open(path, mapping)
        kafka07 = name.kind is FileKind.KAFKA07
        return cls(file, name.base_offset or 0, kafka07=kafka07, path=log_path)

    @property
    def size(self) -> int:
        """Bytes at `open` or at the last `refresh`."""
        return self._file.size

    @property
    def mapped(self) -> bool:
        """Whether it is walked in a map rather than through windows."""
        return self._file.mapped

    def refresh(self) -> int:
        """Read the file's present size and return it."""
        return self._file.refresh()

    def expect(self, end: int) -> None:
        """Set the end of the reading: a store requests no bytes after it in advance."""
        self._file.wanted_end = end

    def walk(
        self,
        *,
        start: int = 0,
        limit: int | None = None,
        end: int | None = None,
        on_bad_crc: str = "note",
        policy: str = "strict",
        on_unreadable: OnUnreadable | None = None,
        window_bytes: int | None = None,
        tile_bytes: int | None = None,
    ) -> Iterator[Tile]:
        """Walk the batches that start in `[start, limit)`, a tile at a time.

        Args:
            start: position of a batch.
            limit: batches that start here or later are not read; the end if None.
            end: treat this position as the file's end, at most its size; its size if None.
            on_bad_crc: "stop", "note" or "ignore", see `kseg.format.header.scan`.
            policy: "strict" or "file", see there.
            on_unreadable: called with each range that the disk cannot read; the walk goes on at the
                next sound batch after it. None to raise.
            window_bytes: the size of a window if the file is not mapped; None for the default.
            tile_bytes: bytes between two tables if it is mapped; None for the default.

        Yields:
            At least one tile; the last one's `table.stop` says why the walk ended.

        Raises:
            CorruptRecordError: the file shrank while it was read through windows.
            UnreadableError: the disk cannot read some of its bytes.
        """
        is_checked = on_bad_crc in ("note", "stop")
        plan = self._plan(
            end,
            on_bad_crc,
            policy,
            window_bytes,
            tile_bytes=tile_bytes or (CHECKED_TILE_BYTES if is_checked else TILE_BYTES),
        )
        yield from self._walk(start, limit, plan, on_unreadable)

    def headers(
        self,
        *,
        start: int = 0,
        limit: int | None = None,
        end: int | None = None,
        policy: str = "strict",
        on_unreadable: OnUnreadable | None = None,
        entries: Buffer = b"",
    ) -> Iterator[BatchTable]:
        """Walk the batches that start in `[start, limit)`; read only their headers.

        Checksums are not computed and no bytes are yielded, so tables are larger than tiles.

        Args:
            start, limit, end, policy, on_unreadable: as for `walk`.
            entries: the entries of the file's offset index, as stored; see
                `kseg.format.header.scan`.

        Yields:
            At least one table; the last one's `stop` says why the walk ended.

        Raises:
            CorruptRecordError, UnreadableError: as for `walk`.
        """
        plan = self._plan_of_headers(end, policy, entries)
        for tile in self._walk(start, limit, plan, on_unreadable):
            yield tile.table

    def headers_of(self, spans: Iterable[tuple[int, int]]) -> Iterator[tuple[int, BatchTable]]:
        """Walk the batches of several spans, one after the other; read only their headers.

        Of short spans next to each other many are read at once.

        Args:
            spans: positions `[start, limit)`, each the start of a batch.

        Yields:
            The number of a span with a table of it, at least one for each.

        Raises:
            CorruptRecordError, UnreadableError: as for `walk`.
        """
        plan = self._plan_of_headers(None, "strict", b"")
        window, base = memoryview(b""), 0
        for number, (start, limit) in enumerate(spans):
            if not self.mapped and limit - start <= _SMALL_BYTES:
                if start < base or limit > base + len(window):
                    window, base = read_window(self._file, start, _SMALL_BYTES)[0], start
                table = plan.scan(window, base, start, limit)
                if table.end_position == limit:  # else the walk below judges the end
                    yield number, table
                    continue
            for table in self.headers(start=start, limit=limit):
                yield number, table

    def _plan_of_headers(self, end: int | None, policy: str, entries: Buffer) -> _WalkPlan:
        """The plan of a walk that reads only headers; see `headers`."""
        return self._plan(
            end,
            "ignore",
            policy,
            tile_bytes=INT64_MAX,
            first_batches=HEADERS_FIRST,
            batches_max=HEADERS_MAX,
            entries=entries,
            cached=not self.mapped and not self.kafka07,
        )

    def _plan(
        self,
        end: int | None,
        on_bad_crc: str,
        policy: str,
        window_bytes: int | None = None,
        **bounds: Any,
    ) -> _WalkPlan:
        """The plan of a walk; see `walk` for the arguments, `_WalkPlan` for the others."""
        return _WalkPlan(
            self.size if end is None else min(end, self.size),
            on_bad_crc,
            policy,
            self.kafka07,
            self.base_offset,
            window_bytes or WINDOW_BYTES,
            **bounds,
        )

    def _walk(
        self, start: int, limit: int | None, plan: _WalkPlan, on_unreadable: OnUnreadable | None
    ) -> Iterator[Tile]:
        """Yields tiles; an end that looks torn is checked: perhaps only a length is wrong."""
        size = plan.size
        limit = size if limit is None else min(limit, size)
        last: BatchTable | None = None
        # Only headers are read where that may pay.
        is_cached = plan.cached and limit - start >= CACHED_BYTES_MIN
        tiles = self._walk_cached if is_cached else self._walk_bytes
        # Kafka's reader does not distinguish a torn end from a wrong length.
        judges_ends = plan.policy == "strict" and not self.kafka07
        for tile in tiles(start, limit, plan, on_unreadable):
            workers.check()
            if judges_ends and tile.table.stop is StopReason.TORN_TAIL:
                tile = self._with_judged_end(tile, last, size)
            last = tile.table
            yield tile

    @contextmanager
    def views(self, size: int) -> Iterator[ViewAt]:
        """A function for views of the first `size` bytes, for readers that find batches themselves.

        It takes a position and how many bytes are needed there, and answers bytes and where they
        lie: the whole map, or a window that holds at least the needed ones, as far as there are so
        many. They are valid until it is called again. It raises what `walk` raises.
        """
        if self.mapped:
            with self._file.view() as whole:
                mapped = whole[:size]
                yield lambda position, needed: (mapped, 0)
        else:
            file = self._file

            def window(position: int, needed: int) -> tuple[memoryview, int]:
                window_bytes = min(max(needed, WINDOW_BYTES), size - position)
                return file.read(position, window_bytes), position

            yield window

    def _walk_cached(
        self, start: int, limit: int, plan: _WalkPlan, on_unreadable: OnUnreadable | None
    ) -> Iterator[Tile]:
        """Walk and read only headers, as long as batches are usual, large and in memory.

        Other batches are read whole, for a longer stretch each time that the fast way ends early.
        """
        position, batches = start, plan.first_batches
        stretch = CACHED_RETRY_BYTES  # bytes to read in the slow way before another try
        last: int | None = None  # where the last batch is
        while position < limit:
            table = plan.scan_cached(self._file.descriptor, position, limit, batches)
            if len(table):
                yield Tile(memoryview(b""), position, table)
                position, last = table.end_position, int(table.position[-1])
            if len(table) == batches or position >= limit:
                batches = min(batches * HEADERS_GROWTH, plan.batches_max)
                continue
            has_paid = len(table) >= _CACHED_WORTH
            stretch = CACHED_RETRY_BYTES if has_paid else stretch * _CACHED_RETRY_GROWTH
            until = min(position + stretch, limit)
            for tile in self._walk_bytes(position, until, plan, on_unreadable, last):
                yield tile
                position = tile.table.end_position
                last = int(tile.table.position[-1]) if len(tile.table) else last
            if tile.table.stop is not StopReason.LIMIT:
                return

    def _walk_bytes(
        self,
        start: int,
        limit: int,
        plan: _WalkPlan,
        on_unreadable: OnUnreadable | None,
        last: int | None = None,
    ) -> Iterator[Tile]:
        """Walk in the map, or through windows; `last` is the position of a batch before `start`."""
        if self.mapped:
            with self._file.view() as whole:
                yield from _walk_mapped(whole, start, limit, plan)
        elif on_unreadable is None:
            yield from _walk_windows(self._file, start, limit, plan)
        else:
            yield from self._walk_readable(start, limit, plan, on_unreadable, last)

    def _walk_readable(
        self, start: int, limit: int, plan: _WalkPlan, on_unreadable: OnUnreadable, last: int | None
    ) -> Iterator[Tile]:
        """Walk through windows, past ranges that the disk cannot read.

        One search serves the whole walk, so that the time stays linear in the bytes, however many
        ranges there are.
        """
        runs: Iterator[SoundRun] | None = None
        position = start
        while True:
            try:
                for tile in _walk_windows(self._file, position, limit, plan):
                    position = tile.table.end_position
                    last = int(tile.table.position[-1]) if len(tile.table) else last
                    yield tile
                return
            except UnreadableError as error:
                runs = runs or self._runs_after(last, position, limit)
                least = max(error.end, position + 1)
                positions = (run.position for run in runs if run.position >= least)
                position = next(positions, max(limit, least))
                on_unreadable(error)
                for _, _, another in readable_parts(self._file, error.end, position, WINDOW_BYTES):
                    if another is not None:
                        on_unreadable(another)
                if position >= limit:
                    yield Tile(memoryview(b""), position, _nothing_at(position))
                    return

    def _runs_after(self, last: int | None, position: int, limit: int) -> Iterator[SoundRun]:
        """The sound runs after the batch at `last` that are in `[position, limit)`.

        A limit, as Spark plans them, is the start of a batch, so no batch reaches over it.
        """
        following = self._least_offset
        if last is not None:  # the walk may not have compared its checksum
            following = _following(self.batch_at(last), following)
        return self.sound_runs(position, stop=limit, first_offset=following)

    def _with_judged_end(self, tile: Tile, before: BatchTable | None, size: int) -> Tile:
        """Check whether the last batch of a walk is torn, or only has a wrong length.

        If sound batches come after it, its length is wrong.
        """
        table = tile.table if len(tile.table) or before is None else before
        following = _following(table, self._least_offset)
        position = tile.table.end_position
        for _run in self.sound_runs(position, stop=size, first_offset=following):
            return tile._replace(table=tile.table.ended(StopReason.BAD_LENGTH))
        return tile

    @property
    def _least_offset(self) -> int:
        """The least offset that a batch of the file can have; 0 for a snapshot."""
        return self.base_offset if self.path.name.endswith(FileKind.LOG.value) else 0

    def sound_runs(
        self,
        start: int,
        *,
        stop: int | None = None,
        first_offset: int = 0,
        last_offset: int | None = None,
        every: bool = False,
    ) -> Iterator[SoundRun]:
        """Sound batches after damage; see `kseg.format.search.find_sound_batches`.

        Args:
            start: where the damage begins.
            stop: treat this position as the file's end; its size if None.
            first_offset: the least offset of a batch that counts.
            last_offset: the largest offset that counts; None for the largest that the segment can
                hold.
            every: also yield runs that contradict each other, and runs inside of a damaged batch.

        Raises:
            CorruptRecordError: the file shrank while it was read through windows.
        """
        if self.kafka07:
            return  # its messages bear neither offset nor a checksum of their lengths
        stop = self.size if stop is None else min(stop, self.size)
        from kseg.format.search import find_sound_batches  # late: few readings meet damage

        if last_offset is None:
            last_offset = max(self._least_offset, first_offset) + INT32_MAX
        last_offset = min(last_offset, INT64_MAX)
        find = partial(
            find_sound_batches, first_offset=first_offset, last_offset=last_offset, every=every
        )
        if self.mapped:
            with self._file.view() as whole:
                yield from find(whole, start, stop)
        else:
            yield from find(self._read_filled, start, stop)

    def _read_filled(self, position: int, size: int) -> memoryview:
        """Bytes to search; ranges that the disk cannot read become bytes of no sound batch."""
        window, unreadable = read_window(self._file, position, size)
        if unreadable is None:
            return window
        filled = bytearray(_NOT_GIVEN * (size // len(_NOT_GIVEN) + 1))
        for at, readable, _ in readable_parts(self._file, position, position + size, size):
            filled[at - position : at - position + len(readable)] = readable
        return memoryview(filled)[:size]

    def unreadable_ranges(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """The parts of `[start, end)` that the disk cannot read, each as start and end."""
        if not self.mapped:
            for _, _, unreadable in readable_parts(self._file, start, end, WINDOW_BYTES):
                if unreadable is not None:
                    yield unreadable.position or 0, min(unreadable.end, end)

    def is_zero(self, start: int, end: int) -> bool:
        """Whether `[start, end)` has only zeros, all of which the disk can read."""
        pieces = range(start, end, WINDOW_BYTES)
        return not any(
            bytes(self._read_filled(at, min(WINDOW_BYTES, end - at))).strip(b"\0") for at in pieces
        )

    def head_at(self, position: int) -> bytes:
        """The first bytes at a position, enough for a header; fewer at the end of the file."""
        size = min(HEAD_BYTES, self.size - position)
        if self.mapped:
            with self._file.view() as whole:
                return bytes(whole[position : position + size])
        return bytes(self._read_filled(position, size))

    def end_by_checksum(self, position: int, ends: Iterable[int]) -> int | None:
        """Where the batch at a position ends if its length is wrong: no checksum covers that.

        Args:
            position: the position of a batch; 61 bytes of it are there.
            ends: where it may end, ascending; the bytes up to the last of these positions are read.

        Returns:
            The first one up to which its checksum is right; None if it is wrong for all.
        """
        head = self.head_at(position)
        rule = checksum_rule(head)
        checksum, at = 0, position + rule.covered_at
        for end in ends:
            for piece in range(at, end, WINDOW_BYTES):
                size = min(WINDOW_BYTES, end - piece)
                checksum = rule.function(self._read_filled(piece, size), checksum)
            at = max(at, end)
            if checksum == rule.stored(head):
                return end
        return None

    def batch_at(self, position: int) -> BatchTable:
        """The batch at `position` with its checksum compared; `stop` of an empty table says why."""
        for tile in self.walk(start=position, limit=position + 1):
            return tile.table
        raise AssertionError("a walk gives a tile")

    def close(self) -> None:
        """Release the file; a second call does nothing."""
        self._file.close()


class _WalkPlan(NamedTuple):
    """The arguments of a walk that stay the same from tile to tile.

    Attributes:
        size: the end of the file, or what is treated as the end.
        on_bad_crc, policy, kafka07, log_start: as for `kseg.format.header.scan`.
        window_bytes, tile_bytes: as for `LogFile.walk`.
        first_batches: the most batches of the first table; the next ones grow.
        batches_max: the most batches of any table.
        entries: the entries of the offset index, which show where batches begin.
        cached: whether to try to read only headers, if the file's bytes are in memory.
    """

    size: int
    on_bad_crc: str
    policy: str
    kafka07: bool
    log_start: int
    window_bytes: int
    tile_bytes: int
    first_batches: int = TILE_BATCHES
    batches_max: int = TILE_BATCHES
    entries: Buffer = b""
    cached: bool = False

    def scan(
        self,
        data: memoryview,
        base: int,
        start: int,
        limit: int,
        batches_max: int | None = None,
    ) -> BatchTable:
        """The batches that start in `[start, limit)`; the bytes are at `base` in the file."""
        return scan(
            data,
            base=base,
            start=start,
            limit=limit,
            file_end=self.size,
            on_bad_crc=self.on_bad_crc,
            policy=self.policy,
            kafka07=self.kafka07,
            log_start=self.log_start,
            batches_max=batches_max or self.batches_max,
            entries=self.entries,
        )

    def scan_cached(
        self, descriptor: int | None, start: int, limit: int, batches_max: int
    ) -> BatchTable:
        """Usual batches whose headers are in memory; the caller continues in another way."""
        if descriptor is None:
            return _nothing_at(start)
        rows, walk = empty_table(batches_max)
        _kernel.scan_cached(
            descriptor, start=start, limit=limit, file_end=self.size, rows=rows, walk=walk
        )
        return table_from(rows, walk)


def _walk_mapped(whole: memoryview, start: int, limit: int, plan: _WalkPlan) -> Iterator[Tile]:
    """Walk in the map of a file: all tiles have its bytes, and tables of their own."""
    data = whole[: plan.size]
    position = min(start, plan.size)
    batches = plan.first_batches
    while True:
        tile_limit = min(position + plan.tile_bytes, limit)
        table = plan.scan(data, 0, position, tile_limit, batches)
        batches = min(batches * HEADERS_GROWTH, plan.batches_max)
        yield Tile(data, 0, table)
        if table.stop is not StopReason.LIMIT or table.end_position >= limit:
            return
        position = table.end_position


def _walk_windows(file: MappedFile, start: int, limit: int, plan: _WalkPlan) -> Iterator[Tile]:
    """Walk through windows. A batch that is not whole in a window begins the next one.

    A large batch is checked before it is read whole. A range that the disk cannot read is an error
    once no whole batch is before it.
    """
    # A walk over little reads little: of a damaged log there may be thousands.
    window_bytes = min(plan.window_bytes, max(limit - start, _SMALL_BYTES))
    position, bytes_to_read = min(start, plan.size), window_bytes
    unreadable: UnreadableError | None
    while True:
        if bytes_to_read > BATCH_BYTES_TRUSTED:
            refused = _check_large(file, position, bytes_to_read, plan)
            if refused is not None:
                yield Tile(memoryview(b""), position, refused)
                if (
                    refused.stop is not StopReason.LIMIT
                    or limit <= refused.end_position < plan.size
                ):
                    return
                position, bytes_to_read = refused.end_position, window_bytes
                continue
        data, unreadable = read_window(file, position, min(bytes_to_read, plan.size - position))
        base = position
        table = plan.scan(data, base, position, limit)
        while len(table) == plan.batches_max and table.end_position < limit:
            yield Tile(data, base, table)  # a table may hold fewer batches than a window
            position = table.end_position
            table = plan.scan(data, base, position, limit)
        if table.stop is StopReason.ZERO_TAIL:
            table, unreadable = _check_zeros(file, table, plan)
        if unreadable is not None and table.stop is StopReason.LIMIT and not len(table):
            raise unreadable
        if table.stop is StopReason.LIMIT and not len(table) and table.needed > len(data):
            bytes_to_read = table.needed
            continue
        yield Tile(data, base, table)
        if table.stop is not StopReason.LIMIT or table.end_position >= limit:
            return
        position, bytes_to_read = table.end_position, window_bytes


def _nothing_at(position: int) -> BatchTable:
    """A table without batches, whose walk may continue at a position."""
    return BatchTable(np.empty((0, len(FIELDS)), np.int64), position, StopReason.LIMIT)


def _following(table: BatchTable, otherwise: int) -> int:
    """The offset after the last batch; the given one if there is none, or it is damaged."""
    is_sound = len(table) and table.crc_ok[-1] != 0
    return table.end_offset if is_sound else otherwise


def _check_zeros(
    file: MappedFile, table: BatchTable, plan: _WalkPlan
) -> tuple[BatchTable, UnreadableError | None]:
    """If a window has only zeros to its end, check that the file has only zeros to its end.

    If the disk cannot read all of them, that is not known, and the walk has not ended.
    """
    for position in range(table.end_position, plan.size, WINDOW_BYTES):
        window, unreadable = read_window(file, position, min(WINDOW_BYTES, plan.size - position))
        if np.frombuffer(window, np.uint8).any():
            return table.ended(StopReason.BAD_LENGTH), None
        if unreadable is not None:
            return table.ended(StopReason.LIMIT), unreadable
    return table, None


def _check_large(file: MappedFile, position: int, size: int, plan: _WalkPlan) -> BatchTable | None:
    """Check a large batch in windows, so that a wrong length allocates no memory.

    Also where checksums are to be ignored: then a wrong one leaves the header, without the records.

    Returns:
        None for a sound batch; else the table of the walk: without the batch if that ends the walk.
    """
    head = file.read(position, HEAD_BYTES)
    rule = checksum_rule(head, kafka07=plan.kafka07)
    checksum = 0
    for at in range(position + rule.covered_at, position + size, WINDOW_BYTES):
        checksum = rule.function(file.read(at, min(WINDOW_BYTES, position + size - at)), checksum)
    if checksum == rule.stored(head):
        return None
    refused = refused_batch(
        bytes(head),
        position=position,
        size=size,
        policy=plan.policy,
        kafka07=plan.kafka07,
        log_start=plan.log_start,
    )
    if plan.on_bad_crc != "stop":
        return refused
    nothing = replace(refused.take(slice(0)), attributes_seen=0, magics_seen=0, bad_crc_count=0)
    return replace(nothing, end_position=position, stop=StopReason.BAD_CRC, needed=size)
