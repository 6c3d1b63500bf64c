"""Lines of records straight from their batches: a template whose columns have a row a batch.

Batches that are compressed, of control records or of an older magic, and those that are damaged,
become columns first; their lines are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from kseg.constants import StopReason
from kseg.format import text as _text
from kseg.format.header import (
    BATCH_FIELDS,
    BATCHES_MAX,
    CODEC_MASK,
    COLUMN,
    CONTROL,
    DELETE_HORIZON,
    BatchTable,
    Shared,
)
from kseg.format.take import runs


class Own(NamedTuple):
    """Bytes that a record itself has, in place of a column of them."""

    offsets: int
    data: None = None
    validity: None = None


class OwnHeaders(NamedTuple):
    """A record's own headers, in place of a column of them."""

    offsets: int = _text.RECORD_HEADERS
    keys: Own = Own(_text.RECORD_HEADERS)
    values: Own = Own(_text.RECORD_HEADERS)


#: What a template has for each field that is not the same for all records of a batch.
OWN: dict[str, Any] = {
    "offset": _text.OFFSET,
    "timestamp": _text.TIMESTAMP,
    "sequence": _text.SEQUENCE,
    "key": Own(_text.RECORD_KEY),
    "value": Own(_text.RECORD_VALUE),
    "headers": OwnHeaders(),
}


#: Where batches are alike in these, they are in all fields but those of their place.
_TELLING = [
    COLUMN[name]
    for name in ("magic", "attributes", "producer_id", "producer_epoch", "leader_epoch", "crc_ok")
]


class BatchColumns:
    """Stands for the columns of records where a template is made: a row for each batch."""

    def __init__(self, table: BatchTable) -> None:
        """Those of the batches of a table."""
        bases, ones = table.base_offset, np.ones(len(table), np.int64)
        self._shared = Shared(table, ones, bases, bases, constants_once=True)
        self._same: dict[str, Any] = {}
        telling = table.rows[:, _TELLING]
        alike = len(table) > 0 and (telling == telling[0]).all()
        if alike and not table.attributes[0] & DELETE_HORIZON:
            self._same = _columns_of_one(telling[0].tobytes(), table.kafka07)

    def __getitem__(self, name: str) -> Any:
        """A column by the name of its field, or what stands for it."""
        if name in OWN:
            return OWN[name]
        return self._same[name] if name in self._same else self._shared.column(name)

    def __getattr__(self, name: str) -> Any:
        """The same."""
        if name not in OWN and name not in BATCH_FIELDS:
            raise AttributeError(name)
        return self[name]


@lru_cache(16)
def _columns_of_one(telling: bytes, kafka07: bool) -> dict[str, Any]:
    """What batches with such headers share, as columns for as many as a table has at the most.

    To work that out for each table takes longer than some tables' lines.
    """
    row = np.zeros((1, len(COLUMN)), np.int64)
    row[0, _TELLING] = np.frombuffer(telling, np.int64)
    table = BatchTable(row, 0, StopReason.END, kafka07=kafka07)
    many = np.array([BATCHES_MAX])
    shared = Shared(table, many, table.base_offset, table.base_offset, constants_once=True)
    return {name: shared.column(name) for name in BATCH_FIELDS if name != "position"}


def each_stretch(
    table: BatchTable,
    direct: Callable[[int, int], int] | None,
    other: Callable[[int, int], None],
) -> None:
    """Go over the batches of a table in order.

    Args:
        table: the batches.
        direct: writes the records of usual batches from one up to another; answers where it ended,
            which is in front of one that is not so usual. None where there is no such way.
        other: writes those of any batches.
    """
    if direct is None:
        other(0, len(table))
        return
    for start, end, usual in _stretches(table):
        at = start
        while usual and at < end:
            at = direct(at, end)
            if at < end:
                other(at, at + 1)
                at += 1
        if not usual:
            other(start, end)


def _stretches(table: BatchTable) -> Iterator[tuple[int, int, bool]]:
    """Runs of batches that `write_records` takes by their headers, and of others."""
    usual = (table.magic == 2) & (table.attributes & (CODEC_MASK | CONTROL) == 0)
    for start, end in runs(usual):
        yield start, end, bool(usual[start])
