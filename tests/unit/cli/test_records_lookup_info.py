"""`kseg read`, `lookup` and `info` on small logs."""

from __future__ import annotations

from pathlib import Path

import pytest

from kseg.errors import OffsetOutOfRangeError
from kseg.log.log import Log
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
