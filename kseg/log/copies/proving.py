"""Copies that prove batches of each other: the same bytes at the same offset.

Behind damage a batch may be data of a record. It is the log's where another copy has it, and that
one is proved. From there on lengths lead to more, which may in turn prove batches of other copies.
A place that is in doubt is certain where another copy has the batch at the same offset.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from kseg.log.copies.lineage import checkpoint_of
from kseg.log.copies.source import Copy
from kseg.log.copies.table import (
    COLUMNS,
    EPOCH,
    FILE,
    FIRST,
    LAST,
    NOTHING,
    OFFSETS_END,
    POSITION,
    keys_of,
    overlapping,
    rows_of,
)
from kseg.log.copies.values import Conflict
from kseg.log.salvage.tables import provable_tables
from kseg.log.salvage.values import ProvableRun

if TYPE_CHECKING:
    from kseg.log.copies.table import Rows


#: Batches that are left out for these may be proved by another copy.
_PROVABLE: Final = ("not-anchored", "offset-order")


def proved_by_each_other(copies: Sequence[Copy]) -> list[Copy]:
    """The copies, each read again as long as others prove more of its batches.

    Raises:
        KsegError, OSError: a file has changed, or is gone.
    """
    found = list(copies)
    known: list[set[tuple[int, int]]] = [set() for _ in copies]
    waiting = set(range(len(found)))
    while waiting:
        number = waiting.pop()
        rows = readable_rows(found[number], *_PROVABLE)
        if not len(rows):
            continue
        # A value may hold a copy of a batch that lies behind it, so the last place counts.
        places = dict(zip(keys_of(rows), rows[:, [FILE, POSITION]].tolist(), strict=True))
        others = (other for at, other in enumerate(found) if at != number)
        shared = {key for other in others for key in _keys_within(other, rows)} & places.keys()
        proved = {(file, position) for file, position in map(places.__getitem__, shared)}
        if proved <= known[number]:
            continue
        known[number] |= proved
        copy = found[number]
        by_file: dict[str, list[int]] = {}
        for file, position in sorted(known[number]):
            by_file.setdefault(copy.files[file], []).append(position)
        found[number] = Copy.read(copy.path, proved=by_file, weighs=True)
        waiting = set(range(len(found)))
    return found


def unproved_conflicts(copies: Sequence[Copy]) -> Iterator[Conflict]:
    """Proved batches that may be a diverged tail, by batches of another copy that nothing proves.

    These have a higher leader epoch, and the checkpoint of epochs beside them says that it began in
    front of them: so a later leader may have written other records there.
    """
    for copy in copies:
        rows = readable_rows(copy, "not-anchored")
        begins = {one.epoch: one.start_offset for one in checkpoint_of(copy)} if len(rows) else {}
        rows = np.array(
            [row for row in rows if begins.get(row[EPOCH], OFFSETS_END) <= row[FIRST]], np.int64
        ).reshape(-1, COLUMNS)
        others = [other for other in copies if other is not copy] if len(rows) else []
        for other in others:
            for table in other.tables():
                for row in rows:
                    clash = overlapping(table, row[np.newaxis]) & (table[:, EPOCH] < row[EPOCH])
                    for against in table[clash]:
                        yield Conflict((copy.seen(row), other.seen(against)), decided=False)


def readable_rows(copy: Copy, *reasons: str) -> Rows:
    """The sound batches of a copy that are not kept for some reasons, as they lie in its files."""
    numbers = {path: number for number, path in enumerate(copy.files)}
    runs = [
        ProvableRun(one.path, one.position, one.size, one.first_offset or 0, -1, one.batches)
        for one in copy.provable.unprovable
        if one.reason in reasons
    ]
    found = [
        rows_of(table, numbers[run.path], run.first_offset) for run, table in provable_tables(runs)
    ]
    return np.concatenate(found) if found else NOTHING


def _keys_within(copy: Copy, rows: Rows) -> Iterator[bytes]:
    """What says which batches a copy has, of those with offsets of some rows."""
    first, last = int(rows[:, FIRST].min()), int(rows[:, LAST].max())
    in_doubt = readable_rows(copy, "offset-order")
    for table in (*copy.tables(), in_doubt):
        yield from keys_of(table[(table[:, LAST] >= first) & (table[:, FIRST] <= last)])


__all__ = ["proved_by_each_other", "readable_rows", "unproved_conflicts"]
