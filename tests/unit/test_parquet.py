"""The form of Parquet files: row groups, encodings, dictionaries."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

import kseg
from kseg import parquet
from kseg.cli import main

DEMO = Path(main.__file__).parents[1] / "demo_data" / "orders-0"
FIELDS = ("topic", "offset", "timestamp", "key", "value", "codec")


def written(path: Path, fields: tuple[str, ...] = FIELDS, **where: Any) -> Any:
    with parquet.ParquetFile(path, fields) as file:
        for columns in kseg.scan(DEMO, columns=fields, **where):
            file.write(columns)
    return pq.ParquetFile(path)


def encodings(file: Any) -> dict[str, set[str]]:
    group = file.metadata.row_group(0)
    columns = [group.column(number) for number in range(group.num_columns)]
    return {column.path_in_schema: set(column.encodings) for column in columns}


def test_numbers_are_differences_and_words_stand_in_dictionaries(tmp_path: Path) -> None:
    found = encodings(written(tmp_path / "a.parquet"))
    assert "DELTA_BINARY_PACKED" in found["offset"] & found["timestamp"]
    assert "RLE_DICTIONARY" in found["topic"] & found["codec"]
    assert "RLE_DICTIONARY" not in found["value"] | found["offset"]


def test_pieces_become_large_row_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = written(tmp_path / "a.parquet", max_rows=3)
    assert file.metadata.num_row_groups == 1
    assert file.read().equals(kseg.scan(DEMO, columns=FIELDS).to_arrow().combine_chunks())
    monkeypatch.setattr(parquet, "GROUP_ROWS", 6)
    file = written(tmp_path / "b.parquet", max_rows=3)
    rows = [file.metadata.row_group(n).num_rows for n in range(file.metadata.num_row_groups)]
    assert len(rows) > 1
    assert max(rows) < 9
    assert file.read().num_rows == sum(rows)


def test_a_group_ends_at_its_bytes_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "GROUP_BYTES", 1)
    file = written(tmp_path / "a.parquet", max_rows=3)
    assert file.metadata.num_row_groups > 1


def test_no_records_are_a_file_of_no_rows(tmp_path: Path) -> None:
    file = written(tmp_path / "a.parquet", offset=(10**9, None))
    assert file.metadata.num_rows == 0
    assert file.schema_arrow.names == list(FIELDS)


@pytest.mark.parametrize(("different", "repeats"), [(5, True), (4_000, False)])
def test_keys_have_a_dictionary_where_they_come_again(
    tmp_path: Path, different: int, repeats: bool
) -> None:
    keys = [b"key %d" % (number % different) for number in range(4_000)]
    batches = kseg.encode_batches({"key": keys, "value": [None] * 4_000})
    log = tmp_path / "t-0" / f"{0:020d}.log"
    log.parent.mkdir()
    log.write_bytes(b"".join(each.data for each in batches))
    with parquet.ParquetFile(tmp_path / "a.parquet", ("key",)) as file:
        for columns in kseg.scan(log, columns=("key",)):
            file.write(columns)
    found = encodings(pq.ParquetFile(tmp_path / "a.parquet"))
    assert ("RLE_DICTIONARY" in found["key"]) is repeats
    assert np.all(pq.read_table(tmp_path / "a.parquet")["key"].to_pylist()[:3] == keys[:3])
