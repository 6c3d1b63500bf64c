"""Lines that several verbs about copies of a partition print."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Final

from kseg.cli import output
from kseg.cli.owners import owner_lines

if TYPE_CHECKING:
    from kseg.files.checkpoints import TopicPartition
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


def put_back(replaced: Sequence[tuple[str, Path]], out: Path, beside: Path) -> Iterator[str]:
    """The steps that put logs from OUT into the place of damaged ones, in their order.

    Args:
        replaced: the name of each, and the directory that it replaces.
        out: the new data directory.
        beside: the directory beside it, which takes the damaged ones.
    """
    if not replaced:
        return
    name, path = replaced[0]
    yield from owner_lines(out / name, path, out)
    yield "to put it back, stop the broker, then:"
    kept = beside / "replaced"
    yield f"  mkdir -p {quote(str(kept))}"
    for name, path in replaced[:ITEMS_MAX]:
        place = quote(str(path.resolve()))
        yield f"  mv {place} {quote(str(kept))}/"
        yield f"  mv {quote(str(out / name))} {place}"
    yield from (f"  {line}" for line in more_line(len(replaced), "in the same way"))
    yield (
        "the lines of the broker's checkpoints may stay, but for a log start behind the end of the "
        "log; the checkpoints in OUT are for a broker that gets all of OUT"
    )


def without_line(path: Path, partition: TopicPartition) -> str:
    """A command that removes the line of a partition from a checkpoint of offsets."""
    entry = f"{partition.topic} {partition.partition} "
    lines = path.read_text().splitlines()[2:]
    count = sum(bool(line.strip()) and not line.startswith(entry) for line in lines)
    topic = partition.topic.replace(".", "[.]")
    script = f"2s/.*/{count}/;/^{topic} {partition.partition} /d"
    return f"sed -i {quote(script)} {quote(str(path))}"


__all__ = ["ITEMS_MAX", "batch_line", "more_line", "put_back", "without_line"]
