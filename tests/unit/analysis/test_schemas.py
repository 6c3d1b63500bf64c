"""`schemas`: the topic of a registry in data directories, replicas, damage, times, and files."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pyarrow as pa
import pytest

import kseg
from tests.tidy import tree
from tests.unit.internal.test_registry import INT, codes, key, schema

DATA = tree.ROOT / "kseg" / "demo_data"


def write_registry(directory: Path, *, partition: str = "_schemas-0") -> Path:
    """A data directory with the topic of a registry: a batch for each record, a second apart."""
    records = [
        (key("NOOP"), None),
        schema("orders-value", 1, 1),
        schema("orders-value", 2, 2, INT),
        schema("orders-value", 1, 1, deleted=True),
    ]
    with kseg.Log.open(directory / partition, mode="append", create=True) as log:
        for second, (one, value) in enumerate(records, 1):
            log.append({"key": [one], "value": [value], "timestamp": [second * 1000]})
    return directory


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write_registry(tmp_path / "data")


def test_the_topic_of_a_data_directory_is_a_table(data: Path) -> None:
    found = kseg.schemas(data)
    assert [(one.version, one.id, one.deleted, one.offset) for one in found] == [
        (1, 1, "soft", 1),
        (2, 2, None, 2),
    ]
    assert found.findings == ()
    assert found[0].path == str(data / "_schemas-0" / f"{0:020}.log")
    assert list(kseg.schemas(data / "_schemas-0")) == list(found)
    frame = pl.DataFrame(found)
    assert frame["timestamp"].dt.epoch("ms").to_list() == [2000, 3000]
    assert frame["text"].to_list() == [found[0].text, INT]
    assert found.to_pandas()["subject"].tolist() == ["orders-value"] * 2
    assert pa.table(found).column_names == list(found.table_rows()[0])
    assert "orders-value" in found._repr_html_()


def test_a_time_gives_the_registry_as_it_was(data: Path) -> None:
    assert len(kseg.schemas(data, at=2000)) == 0
    before = kseg.schemas(data, at="1970-01-01T00:00:04Z")
    assert [one.deleted for one in before] == [None, None]


def test_the_newest_replica_counts(data: Path, tmp_path: Path) -> None:
    write_registry(tmp_path / "other")
    with kseg.Log.open(tmp_path / "other" / "_schemas-0", mode="append") as log:
        one, value = schema("more", 1, 3, '"long"')
        log.append({"key": [one], "value": [value]})
    assert kseg.schemas([data, tmp_path / "other"]).by_id(3).subject == "more"


def test_another_topic_can_hold_the_registry(tmp_path: Path) -> None:
    write_registry(tmp_path, partition="registry-0")
    assert len(kseg.schemas(tmp_path, topic="registry")) == 2
    with pytest.raises(kseg.NotALogError, match="no topic here is _schemas"):
        kseg.schemas(tmp_path)


def test_a_damaged_batch_is_a_finding(data: Path) -> None:
    (path,) = (data / "_schemas-0").glob("*.log")
    content = path.read_bytes()
    at = content.index(b'"id": 2')
    path.write_bytes(content[:at] + b"#" + content[at + 1 :])
    found = kseg.schemas(data)
    assert [(one.id, one.deleted) for one in found] == [(1, "soft")]
    (finding,) = found.findings
    assert (finding.code, finding.path, finding.severity) == ("log-damaged", str(path), "error")


def test_a_topic_of_other_records_gives_findings() -> None:
    found = kseg.schemas(DATA / "clicks-0", topic="clicks")
    assert len(found) == 0
    assert set(codes(found)) <= {"record-json", "key-unknown"}


def test_files_are_subjects(tmp_path: Path) -> None:
    (tmp_path / "user.avsc").write_text(json.dumps({"type": "string"}))
    (tmp_path / "order.proto").write_text('import "/etc/passwd";')
    (tmp_path / "click.json").write_text('{"$ref": "file:///etc/passwd"}')
    (tmp_path / "bad.avsc").write_bytes(b"\xff")
    (tmp_path / "broken.avsc").write_text("{")
    found = kseg.schemas(sorted(tmp_path.iterdir()))
    assert [(one.subject, one.type, one.version, one.id) for one in found] == [
        ("broken", "AVRO", None, None),
        ("click", "JSON", None, None),
        ("order", "PROTOBUF", None, None),
        ("user", "AVRO", None, None),
    ]
    assert codes(found) == ["file-text", "schema-json"]
    assert found.by_guid(found[3].guid or "").subject == "user"
    assert len(kseg.schemas(f"{tmp_path}/*.proto")) == 1


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    with open(tmp_path / "large.json", "wb") as file:
        file.truncate(100 << 20)
    assert codes(kseg.schemas(tmp_path / "large.json")) == ["too-large"]


def test_paths_that_hold_no_schemas_are_errors(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        kseg.schemas(tmp_path / "missing.avsc")
    with pytest.raises(kseg.NotALogError, match="no topic here is _schemas"):
        kseg.schemas(DATA / "orders-0")
