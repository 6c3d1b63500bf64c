"""lake: names of files for other programs, and the refusal to lose records."""

from __future__ import annotations

from typing import Any

import pytest

from kseg.records.lake import FileFormat, Selected, WrittenFiles, output_path

LOGS = (("t-0", (0, 5)), ("t-1", (2, 9)))


@pytest.mark.parametrize(
    ("new", "old", "wanted"),
    [
        ({"offsets": (0, 9)}, {"offsets": (3, 9)}, True),
        ({"offsets": (3, 9)}, {"offsets": (0, 9)}, False),
        ({"times": (None, 5)}, {"times": (0, 5)}, True),
        ({"isolation": "read_committed"}, {}, False),
        ({}, {"isolation": "read_committed"}, True),
        ({}, {"key": "6b"}, True),
        ({"key": "6b"}, {"key": "6b"}, True),
        ({"key": "6b"}, {"key": "6c"}, False),
        ({"key": "6b"}, {}, False),
        ({}, {"limit": 3}, True),
        ({"limit": 3}, {}, False),
        ({"limit": 4}, {"limit": 3}, True),
        ({"limit": 3}, {"limit": 4}, False),
        ({"limit": 3, "offsets": (0, 9)}, {"limit": 3, "offsets": (1, 9)}, False),
        ({"limit": 3}, {"limit": 3, "key": "6b"}, False),
        ({"logs": LOGS}, {"logs": LOGS}, True),
        ({"logs": LOGS}, {"logs": LOGS[:1]}, True),
        ({"logs": LOGS[:1]}, {"logs": LOGS}, False),
        ({"logs": (("t-0", (1, 5)), LOGS[1])}, {"logs": LOGS}, False),
        ({"logs": LOGS, "limit": 3}, {"logs": LOGS, "limit": 3}, False),
        ({}, {"logs": LOGS}, False),
        ({"logs": LOGS}, {}, False),
    ],
)
def test_an_export_covers_another(new: dict[str, Any], old: dict[str, Any], wanted: bool) -> None:
    assert Selected(**new).covers(Selected(**old)) is wanted


@pytest.mark.parametrize("out", [b"out", 3, None])
def test_an_output_is_a_path(out: Any) -> None:
    with pytest.raises(TypeError, match="out is the path"):
        output_path(out)


@pytest.mark.parametrize("out", ["out.csv", "out.arrow"])
def test_an_output_is_of_parquet(out: str) -> None:
    with pytest.raises(ValueError, match="not the name of a Parquet file"):
        output_path(out)


def test_formats_that_nothing_can_be_written_in() -> None:
    for by in (("hour",), ("day", "day")):
        with pytest.raises(ValueError, match="partition_by is of day, topic, partition"):
            FileFormat("parquet", ("offset",), by=by).check()
    with pytest.raises(ValueError, match="all left out by partition_by"):
        FileFormat("parquet", ("topic",), by=("topic",)).check()
    with pytest.raises(ValueError, match="keep_bytes needs decode"):
        FileFormat("parquet", ("offset",), keep_bytes=True).check()


def test_written_files_are_a_table() -> None:
    files = WrittenFiles((("a", 3, 100), ("b", 4, 50)))
    assert repr(files) == "WrittenFiles(7 records in 2 files)"
    assert files.to_arrow().to_pylist()[1] == {"path": "b", "records": 4, "bytes": 50}
