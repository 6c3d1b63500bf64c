"""Records of internal topics as rows and tables say what Kafka's decoders print."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kseg import scan
from kseg.analysis.transactions import STATES
from kseg.cli.main import run
from kseg.internal import InternalTopic, table_schema, tables
from tests.builders import batch, record, write_segment
from tests.conformance.test_internal_vectors import NO_STATE, UNKNOWN, bytes_of, refusal
from tests.conformance.test_kafka_dump_fixtures import RELEASES, calls
from tests.internal_schemas import SCHEMAS, layout, to_json

Row = dict[str, Any]
NAMES = {
    "__consumer_offsets": "offsets",
    "__transaction_state": "transactions",
    "__cluster_metadata": "metadata",
    "__share_group_state": "share",
    "__remote_log_metadata": "remote",
}
LINE = re.compile(
    r"^\| offset: (\d+) .* headerKeys: \[\](?: key: (\{.*?\}\}))? payload: (\{.*\}|<DELETE>)$",
    re.MULTILINE,
)


@pytest.fixture(scope="module")
def vectors(pytestconfig: pytest.Config) -> list[Row]:
    path = Path(pytestconfig.getoption("--vectors")) / "internal.json"
    found: list[Row] = json.loads(path.read_text())["vectors"]
    return [vector for vector in found if vector["topic"] != "control"]


def rows_of(path: Path, capture: pytest.CaptureFixture[bytes], *options: str) -> list[Row]:
    run(["dump", "--format", "jsonl", *options, str(path)])
    return [json.loads(line) for line in capture.readouterr().out.splitlines()]


def log_of(directory: Path, vectors: list[Row]) -> Path:
    """A log of these records, in a directory whose name says nothing."""
    records = [record(bytes_of(one["value"]), key=bytes_of(one["key"])) for one in vectors]
    return write_segment(directory, 0, batch(records))


def as_kafka(row: Row, topic: str, part: str) -> Any:
    """A key or value of a row as Kafka's JSON has it: no tagged field that holds its default."""
    types = {each["type"]: each for each in SCHEMAS["topics"][topic]["records"]}
    fields, _ = layout(types[row["type_id"]][part], row["version"] or 0 if part == "value" else 0)
    return to_json(fields, row[part])


@pytest.mark.parametrize("topic", NAMES)
def test_a_row_says_of_every_vector_what_kafka_prints(
    topic: str, vectors: list[Row], tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    chosen = [vector for vector in vectors if vector["topic"] == topic]
    path = log_of(tmp_path / "t-0", chosen)
    found = rows_of(path, capsysbinary, "--decode", NAMES[topic], "--bytes", "hex")
    for vector, row in zip(chosen, found, strict=True):
        said, newer = refusal(vector), "above the highest" in vector["what"]
        if newer and row["value"] != vector["value"]:
            continue  # a version above the highest is read as that one, if its fields fit
        if newer or (said and not NO_STATE.search(said)):
            unknown = newer or UNKNOWN.search(str(said))
            assert ("is not known" in row["reason"]) == bool(unknown), vector["what"]
            assert row["value"] == vector["value"]
        else:
            assert row["reason"] is None
            check(vector, row)


def check(vector: Row, row: Row) -> None:
    """Hold a row against what Kafka printed."""
    if "key_text" in vector:
        key = json.loads(vector["key_text"])
        assert (key["type"], key["data"]) == (
            str(row["type_id"]),
            as_kafka(row, vector["topic"], "key"),
        )
    told = vector.get("json") or vector["payload_text"]
    assert row["tombstone"] == (told == "<DELETE>")
    if told.startswith("{"):
        told = json.loads(told)
        data = told.get("data", told)
        if data.get("transactionStatus") in STATES:  # words since Kafka 4.4
            data["transactionStatus"] = STATES.index(data["transactionStatus"])
        shown = as_kafka(row, vector["topic"], "value")
        assert repr(shown) == repr(data)


@pytest.mark.parametrize("topic", NAMES)
def test_tables_have_every_vector_in_the_table_of_its_type(
    topic: str, vectors: list[Row], tmp_path: Path
) -> None:
    chosen = [vector for vector in vectors if vector["topic"] == topic]
    found = tables(scan(log_of(tmp_path / "t-0", chosen)), topic, on_error="raw")
    assert sum(table.num_rows for table in found.values()) == len(chosen)
    for name, table in found.items():
        assert table.schema == table_schema(topic, name)
        for row in table.to_pylist():
            vector = chosen[row["offset"]]
            if row["reason"] and "is newer" not in row["reason"]:
                assert row["value_bytes"] == bytes_of(vector["value"])
                assert row.get("value") is None
            else:
                assert row["value_bytes"] is None
                assert row["tombstone"] == (vector.get("payload_text") == "<DELETE>")
                assert (row["value"] is None) == row["tombstone"]


Line = tuple[str | None, str | None, str]


def printed(case: Path, topic: str) -> Iterator[tuple[Path, list[Line]]]:
    """By log or snapshot, what Kafka's decoder printed: offsets, if it did, keys and payloads."""
    for path in sorted(case.glob(f"dump*/{topic}-*/*.txt.gz")):
        file = case.joinpath(*path.relative_to(case).parts[1:]).with_suffix("").with_suffix("")
        for call in calls(file, path):
            text = call.text.decode()
            lines: list[Line] = LINE.findall(text)
            payloads = re.findall(r"^ payload: (\{.*\})$", text, re.MULTILINE)
            lines += [(None, None, payload) for payload in payloads]
            if lines:
                yield file, lines


def test_internal_topics_of_brokers_say_what_kafkas_decoders_printed(
    fixture_case: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    if fixture_case.name.partition("-")[0] not in RELEASES:
        return
    for topic in InternalTopic:
        for file, lines in printed(fixture_case, topic):
            found = [row for row in rows_of(file, capsysbinary) if not row["control"]]
            assert len(found) == len(lines)
            for row, (offset, key, payload) in zip(found, lines, strict=True):
                assert offset in (None, str(row["offset"]))
                vector = {"topic": topic, "payload_text": payload}
                check(vector | ({"key_text": key} if key else {}), row)
