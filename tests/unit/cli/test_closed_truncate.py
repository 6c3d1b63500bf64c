"""`kseg truncate`: what is planned, what is cut, and what is kept of it."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from kseg.log.log import Log
from tests.adopted import Source, served
from tests.builders import batch, record, write_segment
from tests.unit.cli.conftest import Kseg
from tests.unit.cli.test_cleanup_retain import everything

NOW_MS = 1_760_000_000_000


LAST = 2**63 - 1


@pytest.mark.parametrize("first", [LAST - 7, LAST])
@pytest.mark.parametrize("offset", [LAST, LAST - 3, LAST - 7])
def test_a_log_that_takes_all_offsets_is_mended(
    kseg: Kseg, tmp_path: Path, first: int, offset: int
) -> None:
    """Two records in front, where there is room, of a batch that ends at 2^63 - 1."""
    other = tmp_path / "data" / "others-0"
    with Log.open(other, mode="append", create=True) as log:
        log.append(batch([record()]))
    given = [record(timestamp=NOW_MS)]
    parts = [batch(given * 2, base_offset=first)] if first < LAST else []
    last = batch(given, base_offset=LAST)
    partition = write_segment(tmp_path / "data" / "orders-0", first, *parts, last).parent
    before = everything(partition)
    ran = kseg("recover", partition, "--apply")
    assert (ran.code, ran.err.count("kseg truncate")) == (1, 1)
    assert everything(partition) == before
    planned = kseg("truncate", partition, "--to", offset, "--json").document
    ran = kseg("truncate", partition, "--to", offset, "--apply", "--json")
    assert (ran.code, ran.document["applied"]) == (0, True)
    assert ran.document["actions"] == planned["actions"]
    (backup,) = ran.document["backups"]
    assert any(path.read_bytes().endswith(last) for path in Path(backup).rglob("*.log*"))
    with Log.open(partition, mode="append", now_ms=lambda: NOW_MS) as log:
        end = log.log_end_offset
        assert end == ran.document["log_end_offset"] <= LAST
        kept = [int(each["offset"][0]) for each in log.read(columns=("offset",))]
        assert kept == ([first] if parts and offset > first else [])
    with Log.open(other, mode="append") as log:
        assert log.log_end_offset == 1
    assert kseg("verify", partition.parent).code == 0


def test_many_logs_are_cut_at_a_time(kseg: Kseg, tmp_path: Path) -> None:
    source = Source(tmp_path / "data", 2, Random(1))
    source.write(60)
    at_ms = source.notes[len(source.notes) // 2].time_ms
    planned = kseg("truncate", source.home, "--to-time", at_ms, "--json").document
    assert [each["partition"] for each in planned["partitions"]] == [0, 1]
    assert kseg("truncate", source.home, "--to-time", at_ms).code == 1
    done = kseg("truncate", source.home, "--to-time", at_ms, "--apply", "--no-backup", "--json")
    assert (done.code, done.document["partitions"]) == (0, planned["partitions"])
    for number, each in enumerate(planned["partitions"]):
        with Log.open(each["path"]) as log:
            assert log.log_end_offset == each["log_end_offset"]
        wanted = source.expected(number, committed=False, at_ms=at_ms)
        assert served(Path(each["path"]), "read_uncommitted") == wanted
