"""`kseg read`, `lookup` and `info` on small logs."""

from __future__ import annotations

from pathlib import Path

import pytest

from kseg.errors import OffsetOutOfRangeError
from kseg.log.log import Log
from tests.builders import batch, record, write_segment
from tests.unit.cli.conftest import Kseg
from tests.unit.records.test_partitioners_places import sent

# Lookup.


def test_lookup_of_an_offset_whose_records_are_lost_finds_nothing(kseg: Kseg, orders: Path) -> None:
    for log in orders.glob("*.log"):
        log.write_bytes(b"")
    ran = kseg("lookup", "--offset", "4", orders)
    assert (ran.code, ran.text) == (0, "no record at or after this offset\n")
    with Log.open(orders) as log, pytest.raises(OffsetOutOfRangeError) as gone:
        log.lookup(4)
    assert gone.value.reason == "no batch is left from here to the log's end at offset 6"


# Info.


@pytest.mark.parametrize("verb", ["info", "stats"])
@pytest.mark.parametrize("columns", ["80", "200"])
def test_tables_fit_the_terminal_with_the_largest_partition_first(
    kseg: Kseg, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str, columns: str
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    base = 1_234_567_890_123
    for name, size in (("a-0", 10), ("b-0", 3 << 20), ("c-0", 5000)):
        given = batch([record(bytes(size), key=b"k" * 99)], base_offset=base)
        write_segment(tmp_path / name, base, given)
    long = f"{'long' * 20}-0"
    write_segment(tmp_path / long, 0, batch([record()]))
    table = kseg(verb, tmp_path).text.split("\n\n")[0].splitlines()
    assert [line.split()[0] for line in table] == ["partition", "b-0", "c-0", "a-0", long, "1"]
    assert max(len(line) for line in table if line != long) <= int(columns)
    assert "3.0 MiB" in table[1]
    assert ("from" in table[0]) is (columns == "200")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--key", "user-7", "--partitioner", "crc32", "--partitions", 3], "crc32 sends it to"),
        (["--key", "user-7", "--partitions", 3], "--partitions wants --partitioner"),
        (["--partitioner", "crc32"], "which wants --key"),
        (["--key", "u", "--partitioner", "murmur2", "--partition", 1], "exclude each other"),
    ],
)
def test_partitioners_that_cannot_be_exit_2(
    kseg: Kseg, tmp_path: Path, words: list[object], message: str
) -> None:
    ran = kseg("read", sent(tmp_path / "data", counts=(3,)), *words)
    assert ran.code == 2
    assert message in ran.err
