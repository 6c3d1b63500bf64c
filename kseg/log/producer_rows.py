"""Which batches of many leave a trace in what is known of their producers.

Source: none of Kafka's, which looks at every batch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from kseg.format.header import COLUMN, CONTROL, TRANSACTIONAL, BatchTable
from kseg.log.producer_entries import BATCHES_KEPT, ProducerBatch, batch_of_row

if TYPE_CHECKING:
    import numpy.typing as npt

_PRODUCER_ID: Final = COLUMN["producer_id"]
_ASKED: Final = [COLUMN[name] for name in ("producer_id", "producer_epoch", "attributes")]
#: So few rows are quicker looked at one by one.
_FEW: Final = 8


def telling_batches(table: BatchTable, *, all_known: bool = False) -> list[ProducerBatch]:
    """The batches that leave a trace in what is known of their producers, in order.

    Left out are those without a producer id and, unless `all_known`, data batches that go on as the
    one before of the same producer did and are pushed out by as many as are remembered: whoever
    takes in the rest, asking no sequence, knows the same in the end.
    """
    rows = table.rows
    if len(rows) > _FEW:
        known = np.flatnonzero(rows[:, _PRODUCER_ID] >= 0)
        if len(known) > _FEW and not all_known:
            known = known[_leaving_traces(rows[:, _ASKED][known])]
        rows = rows[known]
    return [batch_of_row(row) for row in rows.tolist() if row[_PRODUCER_ID] >= 0]


def _leaving_traces(rows: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Which to look at, of the producer ids, epochs and attributes of rows that all have one."""
    order = np.argsort(rows[:, 0], kind="stable")
    producers, epochs, attributes = rows[order].T
    control = (attributes & CONTROL) != 0
    first = np.ones(len(order), np.bool_)
    first[1:] = producers[1:] != producers[:-1]
    told = first | control
    told[1:] |= control[:-1] | (epochs[1:] != epochs[:-1])
    told[1:] |= ((attributes[1:] ^ attributes[:-1]) & TRANSACTIONAL) != 0
    # Data rows of the same producer that follow: those up to its last row less those up to here.
    data = np.cumsum(~control)
    lasts = np.append(np.flatnonzero(first)[1:], len(order)) - 1
    following = data[lasts][np.cumsum(first) - 1] - data
    told |= ~control & (following < BATCHES_KEPT)
    return np.sort(order[told])


__all__ = ["telling_batches"]
