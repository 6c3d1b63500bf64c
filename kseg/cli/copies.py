"""Lines that several verbs about copies of a partition print."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from kseg.cli import output

if TYPE_CHECKING:
    from kseg.log.copies import BatchSeen

#: So many items of one kind are printed; --json lists more.
ITEMS_MAX: Final = 5


def batch_line(seen: BatchSeen) -> str:
    """Where a batch lies, and what its header says."""
    header = seen.header
    count = "" if header.record_count < 0 else f", {output.counted(header.record_count, 'record')}"
    producer = "" if header.producer_id < 0 else f", producer {header.producer_id}"
    return (
        f"{seen.path} @ {header.position}: epoch {header.leader_epoch}, "
        f"offsets {seen.first_offset} to {header.last_offset}{count}{producer}"
    )


def more_line(count: int, what: str) -> Iterator[str]:
    """How many items are not printed, if there are any."""
    if count > ITEMS_MAX:
        yield f"{count - ITEMS_MAX} more {what}"


__all__ = ["ITEMS_MAX", "batch_line", "more_line"]
