"""`kseg lookup`: where an offset or a time lies, and which index entry led there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from kseg.cli import output
from kseg.cli.paths import one_partition, tier_of_run
from kseg.commands import printable
from kseg.documents import fields_of
from kseg.errors import OffsetOutOfRangeError
from kseg.files.selection import Selection
from kseg.format.times import iso_text
from kseg.log.log import Log
from kseg.log.reader import LogView
from kseg.records.partitioners import partition_for
from kseg.records.query import parse_key

if TYPE_CHECKING:
    from pathlib import Path

    from kseg.log.segment import BatchLocation

    #: The offset and the timestamp of the record, and its batch.
    FoundRecord = tuple[int, int, BatchLocation]


#: The times that ask for a place in a tiered log.
_TIERED = {
    -1: "latest",
    -2: "earliest",
    -3: "max timestamp, of local records",
    -4: "earliest local",
    -5: "latest tiered",
    -6: "earliest pending upload",
}


def lookup(
    directory: str,
    offset: int | None,
    time: int | None,
    selection: Selection,
    as_json: bool,
) -> None:
    """Run the verb."""
    if (offset is None) == (time is None):
        raise click.UsageError("Give either --offset or --time.")
    chosen = one_partition((directory,), selection)
    if time in _TIERED and tier_of_run() is not None:
        _print_special(chosen.path, directory, time, as_json=as_json)
        return
    with Log(LogView.at(chosen), "auto") as log:
        record = _by_offset(log, offset) if offset is not None else _by_time(log, time or 0)
    noun = "offset" if offset is not None else "time"
    if as_json:
        output.write_document("lookup/1", {"path": directory, **_document(record)})
    else:
        _print(record, noun)


def _print_special(path: Path, directory: str, time: int, *, as_json: bool) -> None:
    """The answer to a negative time that asks where the parts of a tiered log begin and end."""
    tier = tier_of_run()
    assert tier is not None
    point = tier.log(path).special(time)
    if as_json:
        output.write_document("lookup/1", {"path": directory, **_document(None), **point._asdict()})
    else:
        text = iso_text(point.timestamp) if point.timestamp >= 0 else None
        output.write_line(f"{_TIERED[time]}: {point.offset}{f' at {text}' if text else ''}")


def _by_offset(log: Log, offset: int) -> FoundRecord | None:
    try:
        batch = log.lookup(offset)
    except OffsetOutOfRangeError:
        if not log.log_start_offset <= offset < log.log_end_offset:
            raise
        return None  # the log has lost these records
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
            return int(columns["offset"][0]), int(columns["timestamp_ms"][0]), batch
    return max(offset, batch.base_offset), batch.max_timestamp, batch


def _by_time(log: Log, time_ms: int) -> FoundRecord | None:
    record = log.lookup_time(time_ms)
    return None if record is None else (record.offset, record.timestamp, record.batch)


def _document(record: FoundRecord | None) -> dict[str, Any]:
    if record is None:
        names = ("segment", "position", "offset", "timestamp", "index_entry")
        return dict.fromkeys(names)
    offset, timestamp, batch = record
    entry = batch.index_entry
    return {
        "segment": batch.segment.name,
        "position": batch.position,
        "offset": offset,
        "timestamp": timestamp,
        "index_entry": None if entry is None else entry._asdict(),
        "batch": fields_of(batch, "base_offset last_offset size max_timestamp"),
    }


def _print(record: FoundRecord | None, noun: str) -> None:
    if record is None:
        output.write_line(f"no record at or after this {noun}")
        return
    offset, timestamp, batch = record
    entry = batch.index_entry
    used = "none, walked from the start"
    if entry is not None:
        used = f"offset {entry.offset} at {entry.position}"
    offsets = f"offsets {batch.base_offset} to {batch.last_offset}"
    for name, value in (
        ("segment", batch.segment),
        ("position", f"{batch.position} ({batch.size} bytes, {offsets})"),
        ("offset", offset),
        ("timestamp", iso_text(timestamp) or "-"),
        ("index entry", used),
    ):
        output.write_line(f"{name:12}{value}")


def partition(keys: tuple[str, ...], partitions: int, partitioner: str, as_json: bool) -> None:
    """Run the verb."""
    numbers = [(key, partition_for(parse_key(key), partitions, partitioner)) for key in keys]
    if as_json:
        rows = [{"key": key, "partition": number} for key, number in numbers]
        head = {"partitions": partitions, "partitioner": partitioner}
        output.write_document("partition/1", {**head, "keys": rows})
        return
    for key, number in numbers:
        text = "any partition" if number is None else str(number)
        output.write_line(f"{printable(key)}  {text}")
