"""`kseg keyfilter`, and the searches that use what it wrote."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.builders import batch, record, write_segment
from tests.unit.cli.conftest import Kseg


@pytest.fixture
def data(tmp_path: Path) -> Path:
    for at in range(3):
        made = batch([record(b"v", key=b"k%d" % at), record(b"w", key=b"k")], base_offset=2 * at)
        write_segment(tmp_path / "data" / "a-0", 2 * at, made)
    return tmp_path / "data"


def test_filters_are_written_and_used(kseg: Kseg, data: Path, tmp_path: Path) -> None:
    place = tmp_path / "filters"
    ran = kseg("keyfilter", data, "-o", place)
    assert ran.code == 0
    assert ran.text.startswith(f"{place}: 2 filters written, ")
    assert ran.text.endswith(", of 4 records\n")
    for words in (("read", data, "--key", "k"), ("grep", "-x", "--in", "key", "k", data)):
        for jobs in (1, 2):
            rows = kseg(*words, "--filters", place, "--format", "jsonl", "--jobs", jobs).rows
            assert [row["offset"] for row in rows] == [1, 3, 5]
    limited = kseg("read", data, "--key", "k", "--filters", place, "--limit", 2)
    assert len(limited.text.splitlines()) == 2
    absent = kseg("grep", "-x", "--in", "key", "absent", data, "--filters", place)
    assert (absent.code, absent.out) == (1, b"")


def test_the_document_names_the_filters(kseg: Kseg, data: Path, tmp_path: Path) -> None:
    document = kseg("keyfilter", data, "-o", tmp_path / "filters", "--json").document
    assert document["schema"] == "kseg.keyfilter/1"
    assert [row["records"] for row in document["filters"]] == [2, 2]
    assert Path(document["filters"][0]["path"]).stat().st_size == document["filters"][0]["bytes"]


def test_wrong_words_are_code_2(kseg: Kseg, data: Path, tmp_path: Path) -> None:
    assert kseg("keyfilter", data, "-o", data / "filters").code == 2
    assert kseg("read", data, "--filters", tmp_path).code == 2
    assert kseg("grep", "k", data, "--filters", tmp_path).code == 2
    assert kseg("read", data, "--key", "k", "--filters", tmp_path / "absent").code == 3
