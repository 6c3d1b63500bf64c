"""Stats: what the plain reader counts, however the work is shared out."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path

import pytest

from kseg.analysis.stats import (
    StatsReport,
    stats,
)
from kseg.errors import NotALogError
from kseg.files import io
from kseg.log.log import Log
from tests.builders import batch, record, write_segment


def rows(found: StatsReport) -> str:
    return json.dumps([one.document() for one in found.partitions], default=bytes.hex)


@pytest.fixture
def data(fixtures_dir: Path) -> Path:
    return fixtures_dir / "new" / "4.2.0-plain"


def test_every_partition_is_counted_as_its_records_are(data: Path) -> None:
    found = {one.dir: one for one in stats(data).partitions if one.dir}
    assert found
    for name, one in found.items():
        sizes: Counter[bytes] = Counter()
        count = total = null_keys = null_values = 0
        with Log.open(data / str(name)) as log:
            for columns in log.read(columns=("offset", "timestamp", "timestamp_type", "key",
                                            "value", "headers")):  # fmt: skip
                for entry in columns.records():
                    size = len(entry.key or b"") + len(entry.value or b"")
                    count, total = count + 1, total + size
                    null_keys += entry.key is None
                    null_values += entry.value is None
                    if entry.key is not None:
                        sizes[entry.key] += size
            document = one.document()
            assert document["log_end_offset"] == log.log_end_offset
        assert document["record_bytes"]["count"] == count
        assert document["record_bytes"]["total"] == total
        assert (document["null_keys"], document["null_values"]) == (null_keys, null_values)
        assert abs(document["distinct_keys"] - len(sizes)) <= max(1, 0.05 * len(sizes))
        top = sorted(sizes.items(), key=lambda item: (-item[1], item[0]))[:10]
        assert [key["bytes"] for key in document["top_keys"]] == [size for _, size in top]
        assert all(sizes[key["key"]] == key["bytes"] for key in document["top_keys"])


def test_headers_alone_say_nothing_of_records(data: Path) -> None:
    (one,) = stats(data / "plain-0", records=False).partitions
    assert one.stats.records is None
    assert "top_keys" not in one.document()
    (whole,) = stats(data / "plain-0").partitions
    assert one.stats.summary == whole.stats.summary


def test_a_segment_by_itself_has_the_offsets_of_its_batches(data: Path) -> None:
    path = min((data / "plain-0").glob("*.log"))
    (one,) = stats(path).partitions
    assert (one.dir, one.topic, one.partition) == (None, None, None)
    document = one.document()
    assert document["log_start_offset"] == 0
    assert document["segments"] == 1


def test_the_bytes_of_a_segment_are_read_once(data: Path) -> None:
    path, read = min((data / "plain-0").glob("*.log")), Counter[str]()

    def pread(descriptor: int, size: int, position: int) -> bytes:
        found = os.pread(descriptor, size, position)
        read[os.readlink(f"/dev/fd/{descriptor}")] += len(found)
        return found

    with io.reads_replaced(pread):
        stats(path, mapping="never")
    assert read[str(path)] == path.stat().st_size


def test_a_damaged_batch_is_counted_and_the_rest_is_seen(tmp_path: Path) -> None:
    good = batch([record(key=b"a", value=b"xy")])
    bad = batch([record(key=b"b")], base_offset=1, crc=5)
    write_segment(tmp_path / "t-0", 0, good, bad, batch([record(key=b"c")], base_offset=2))
    found = stats(tmp_path / "t-0")
    (one,) = found.partitions
    assert found.fault_count == 1
    assert {key.key for key in one.top_keys} == {b"a", b"c"}
    assert "checksum" in one.stats.faults[0]


def test_what_is_no_log_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotALogError):
        stats(tmp_path)


def test_no_process_at_all_is_refused(data: Path) -> None:
    with pytest.raises(ValueError, match="threads"):
        stats(data, threads=0)
