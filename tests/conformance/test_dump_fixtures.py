"""`kseg dump --format jsonl` of every log that a broker left prints what Kafka's classes read.

Where no batch can be told apart, `dump` stops; Kafka's file reader goes on past a magic that no
release ever wrote. So records and batches are compared as far as a strict walk gets.
"""

from __future__ import annotations

import base64
import json
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest

from kseg.cli.main import run
from tests import reference
from tests.conformance.expectations import Expected, expectations, unbase64

Fields = dict[str, Any]


def dump(
    path: Path, capture: pytest.CaptureFixture[bytes], *options: str
) -> tuple[list[Fields], int]:
    """The lines and the exit code; every finding is one line on standard error."""
    code = run(["dump", "--format", "jsonl", "--raw", *options, str(path)])
    captured = capture.readouterr()
    findings = captured.err.splitlines()
    warnings = [line for line in findings if line.startswith(b"kseg: warning")]
    assert code == (0 if findings == warnings else 1), captured.err
    return [json.loads(line) for line in captured.out.splitlines()], code


@lru_cache(maxsize=1)
def walk(path: Path) -> reference.Walk:
    """What the plain reader finds; once for a log, since it takes its time."""
    return reference.walk(path.read_bytes(), "strict")


def within_reach(log: Expected) -> set[int]:
    """Positions of the batches that a strict walk finds and the fixture knows."""
    if log.kafka07:
        return set(log.records)
    strict = walk(log.path).batches
    known = {batch["position"] for batch in log.batches}
    return {batch.position for batch in strict} & known


def as_expected(line: Fields) -> Fields:
    """A printed record in the form of the expectation: bytes for base64."""
    headers = [(named(name), unbase64(value)) for name, value in line["headers"]]
    return {
        **line,
        "key": unbase64(line["key"]),
        "value": unbase64(line["value"]),
        "headers": headers,
    }


def named(name: str | dict[str, str]) -> str:
    """A header's name as Kafka's classes decode it; bytes that are not UTF-8 are lost there."""
    if isinstance(name, str):
        return name
    return base64.b64decode(name["base64"]).decode("utf-8", "replace")


@pytest.mark.one_case_in(4)
def test_dump_prints_the_records_that_kafka_reads(
    fixture_case: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    for log in expectations(fixture_case):
        lines, code = dump(log.path, capsysbinary)
        reach = within_reach(log)
        got = [as_expected(line) for line in lines if line["position"] in reach]
        expected = [record for at in sorted(reach) for record in log.records[at]]
        assert len(got) == len(expected), log.path
        valid = {batch["position"]: batch["crc_ok"] for batch in log.batches}
        for line, record in zip(got, expected, strict=True):
            assert {name: line[name] for name in record} == record
            assert line["file"] == log.path.name
            if not is_damaged_inside(log):
                assert line["valid"] == valid.get(line["position"], True)
        if is_damaged_inside(log):
            assert (code, all(line["valid"] for line in got)) == (1, False)
        elif log.complete and all(valid.values()) and not log.refused and ended(log):
            assert code == 0, log.path


def is_damaged_inside(log: Expected) -> bool:
    """Whether a message inside a sound compressed one has a wrong checksum of its own.

    Kafka's dump shows such a message as it is; its consumers refuse it.
    """
    if log.kafka07:
        return False
    batches = walk(log.path).batches
    return any(has_bad_messages(batch) for batch in batches if batch.codec and batch.magic < 2)


def has_bad_messages(batch: reference.Batch) -> bool:
    with suppress(reference.RefusedError):
        return batch.crc_ok and not all(message.crc_ok for message in reference.records(batch))
    return False


def ended(log: Expected) -> bool:
    """Whether the file holds whole batches only."""
    if log.kafka07:
        return "torn" not in log.path.parent.name
    return walk(log.path).stop == "end"


@pytest.mark.one_case_in(4)
def test_dump_prints_the_batches_that_kafka_reads(
    fixture_case: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    for log in expectations(fixture_case):
        lines, _ = dump(log.path, capsysbinary, "--batches")
        reach = within_reach(log)
        got = [line for line in lines if line["position"] in reach]
        assert [line["position"] for line in got] == sorted(reach)
        expected = {batch["position"]: batch for batch in log.batches}
        for line in got:
            batch = expected.get(line["position"], {})
            names = [name for name in batch if name in line and (name, batch["magic"]) not in OWN]
            assert {name: line[name] for name in names} == {name: batch[name] for name in names}


#: The header alone does not say how many messages a compressed set holds.
OWN = {("count", 0), ("count", 1)}


def test_dump_of_a_directory_names_files_and_directory(
    fixtures_dir: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    directory = fixtures_dir / "new" / "4.2.0-txn" / "txn-0"
    lines, code = dump(directory, capsysbinary)
    assert code == 0
    assert {line["dir"] for line in lines} == {"txn-0"}
    assert sorted({line["file"] for line in lines}) == sorted(
        path.name for path in directory.glob("*.log")
    )
    assert [line["offset"] for line in lines] == sorted(line["offset"] for line in lines)
