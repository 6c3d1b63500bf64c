"""The library over every log that a broker left: files, ranges through real indexes, partitions."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

import kseg
from tests import reference
from tests.conformance.expectations import Expected, Fields, expectations
from tests.conformance.readers import as_records

FIELDS = ("position", "offset", "timestamp", "key", "value", "headers", "valid")
#: Where kseg's reader and Kafka's differ batch by batch; `test_malformed.py` has them.
MALFORMED = "malformed"
#: Brokers take this timestamp too, and no end of a range lies behind it.
LARGEST = 2**63 - 1


def rows(pieces: Iterable[kseg.RecordColumns]) -> list[Fields]:
    found = []
    for piece in pieces:
        for row in as_records(piece):
            names = [(name.decode(errors="replace"), value) for name, value in row["headers"]]
            found.append({**row, "headers": names})
    return found


def expected_rows(log: Expected) -> list[Fields]:
    """Records of the batches that a strict and checking reader gives."""
    if log.kafka07:
        positions = list(log.records)
    else:
        walked = reference.walk(log.path.read_bytes(), "strict").batches
        positions = [batch.position for batch in walked if batch.crc_ok]
    return [record for position in positions for record in log.records[position]]


def same_rows(got: list[Fields], expected: list[Fields]) -> None:
    assert len(got) == len(expected)
    for row, record in zip(got, expected, strict=True):
        names = [name for name in FIELDS if name in record]
        assert {name: row[name] for name in names} == {name: record[name] for name in names}


def files(case: Path) -> list[Expected]:
    return [] if case.name.endswith(MALFORMED) else expectations(case)


def is_sound(log: Expected) -> bool:
    if log.kafka07:
        return log.complete
    walk = reference.walk(log.path.read_bytes(), "strict")
    return walk.stop == "end" and all(batch.crc_ok for batch in walk.batches) and not log.refused


@pytest.mark.one_case_in(2)
@pytest.mark.parametrize("mapping", ["always", "never"])
def test_a_scan_of_a_file_gives_every_record_of_every_sound_batch(
    fixture_case: Path, mapping: Any
) -> None:
    for log in files(fixture_case):
        scan = kseg.scan(log.path, columns=FIELDS, control=True, on_corrupt="skip", mapping=mapping)
        got, expected = rows(scan), expected_rows(log)
        # In `old/` the list ends at the first damage; what a reader finds behind it is not told.
        same_rows(got if log.complete else got[: len(expected)], expected)
        if is_sound(log):
            assert scan.errors == []


def spread(items: list[Any], count: int) -> list[Any]:
    """At most so many, first and last among them."""
    step = max(1, len(items) // count)
    return [*items[::step], *items[-1:]]


@pytest.mark.one_case_in(6)
@pytest.mark.parametrize(("field", "bound"), [("offset", "offset"), ("timestamp", "time")])
def test_a_range_is_found_through_the_broker_s_indexes(
    fixture_case: Path, field: str, bound: str
) -> None:
    for log in files(fixture_case):
        expected = expected_rows(log)
        for record in spread(expected, 4) if is_sound(log) and not log.kafka07 else []:
            start = record[field]
            end = start + 3 if start < LARGEST - 3 else None
            inside = [row for row in expected if start <= row[field] < start + 3]
            scan = kseg.scan(log.path, columns=FIELDS, control=True, **{bound: (start, end)})
            same_rows(rows(scan), inside)


def test_a_partition_is_its_segments_in_order(fixture_case: Path) -> None:
    by_directory: dict[Path, list[Expected]] = {}
    for log in files(fixture_case):
        if log.path.suffix != ".checkpoint":
            by_directory.setdefault(log.path.parent, []).append(log)
    for directory, logs in by_directory.items():
        if all(is_sound(log) for log in logs):
            logs.sort(key=lambda log: int(log.path.stem))
            expected = [row for log in logs for row in expected_rows(log)]
            with kseg.Log.open(directory) as opened:
                start = opened.log_start_offset
            kept = [row for row in expected if row["offset"] >= start]
            same_rows(rows(kseg.scan(directory, columns=FIELDS, control=True)), kept)
