"""`kseg lookup`: where an offset or a time lies, and which index entry led there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from kseg.cli import output
from kseg.cli.parsing import Selection
from kseg.cli.paths import one_partition
from kseg.errors import OffsetOutOfRangeError
from kseg.format.times import iso_text
from kseg.log.log import Log

if TYPE_CHECKING:
    from kseg.log.segment import BatchLocation


def lookup(
    directory: str,
    offset: int | None,
    time: int | None,
    topics: tuple[str, ...],
    partitions: tuple[tuple[int, int], ...],
    as_json: bool,
) -> None:
    """Do what the verb says."""
    if (offset is None) == (time is None):
        raise click.UsageError("Give either --offset or --time.")
    chosen = one_partition((directory,), Selection(topics, partitions))
    with Log.open(chosen.path) as log:
        place = _by_offset(log, offset) if offset is not None else _by_time(log, time or 0)
    asked = "offset" if offset is not None else "time"
    if as_json:
        output.write_document("lookup/1", {"path": directory, **_document(place)})
    else:
        _print(place, asked)


@dataclass(frozen=True, slots=True)
class Place:
    """The record found, and its batch."""

    offset: int
    timestamp: int
    batch: BatchLocation


def _by_offset(log: Log, offset: int) -> Place | None:
    try:
        batch = log.lookup(offset)
    except OffsetOutOfRangeError:
        if not log.log_start_offset <= offset < log.log_end_offset:
            raise
        return None  # the log has lost what was there
    info = next(info for info in log.segments if info.path == batch.segment)
    with log.open_segment(info) as segment:
        pieces = segment.read(
            start_position=batch.position,
            end_position=batch.position + 1,
            offset=(offset, None),
            columns=("offset", "timestamp"),
            control=True,
            max_rows=1,
            on_corrupt=lambda error: None,  # the batch's place stands, whatever its records are
        )
        for columns in pieces:
            return Place(int(columns["offset"][0]), int(columns["timestamp"][0]), batch)
    return Place(max(offset, batch.base_offset), batch.max_timestamp, batch)


def _by_time(log: Log, time_ms: int) -> Place | None:
    found = log.lookup_time(time_ms)
    return None if found is None else Place(found.offset, found.timestamp, found.batch)


def _document(place: Place | None) -> dict[str, Any]:
    if place is None:
        names = ("segment", "position", "offset", "timestamp", "index_entry")
        return dict.fromkeys(names)
    entry = place.batch.index_entry
    return {
        "segment": place.batch.segment.name,
        "position": place.batch.position,
        "offset": place.offset,
        "timestamp": place.timestamp,
        "index_entry": None if entry is None else entry._asdict(),
        "batch": {
            "base_offset": place.batch.base_offset,
            "last_offset": place.batch.last_offset,
            "size": place.batch.size,
            "max_timestamp": place.batch.max_timestamp,
        },
    }


def _print(place: Place | None, asked: str) -> None:
    if place is None:
        output.write_line(f"no record at or after this {asked}")
        return
    batch, entry = place.batch, place.batch.index_entry
    used = "none, walked from the start"
    if entry is not None:
        used = f"offset {entry.offset} at {entry.position}"
    offsets = f"offsets {batch.base_offset} to {batch.last_offset}"
    for name, value in (
        ("segment", batch.segment),
        ("position", f"{batch.position} ({batch.size} bytes, {offsets})"),
        ("offset", place.offset),
        ("timestamp", iso_text(place.timestamp) or "-"),
        ("index entry", used),
    ):
        output.write_line(f"{name:12}{value}")
