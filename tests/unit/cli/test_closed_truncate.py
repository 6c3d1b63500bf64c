"""`kseg truncate`: what is planned, what is cut, and what is kept of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from kseg.files import lock
from kseg.log.config import LogConfig
from kseg.log.log import Log
from tests.builders import batch, record, write_segment
from tests.unit.cli.conftest import Kseg
from tests.unit.cli.test_cleanup_retain import everything, log_names
from tests.unit.files.foreign import holding

NOW_MS = 1_760_000_000_000
CONFIG = LogConfig(segment_bytes=500)


def log_of(partition: Path, base_offset: int) -> Path:
    return partition / f"{base_offset:020d}.log"


@pytest.fixture
def partition(tmp_path: Path) -> Path:
    """Batches of two records at 0, 2 | 4, 6 | 8, in segments at 0, 4 and 8."""
    path = tmp_path / "data" / "orders-0"
    with Log.open(path, mode="append", create=True, config=CONFIG, now_ms=lambda: NOW_MS) as log:
        for number in range(5):
            given = [record(bytes(80), timestamp=NOW_MS)] * 2
            data = batch(given, producer_id=7, producer_epoch=0, base_sequence=2 * number)
            log.append(data, leader_epoch=number // 2)
    assert log_names(path) == [0, 4, 8]
    return path


def test_files_are_called_by_the_path_that_was_given(
    kseg: Kseg, partition: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (partition.parent.parent / "link").symlink_to(partition.parent)
    monkeypatch.chdir(partition.parent.parent)
    words = ("truncate", "link/orders-0", "--to", 7, "--json")
    ran = [kseg(*words, *how) for how in ((), ("--apply",))]
    paths = [[each["path"] for each in one.document["actions"]] for one in ran]
    assert paths[0] == paths[1] == [f"link/orders-0/{base:020d}.log" for base in (8, 4)]


def test_a_log_that_ends_there_already_is_left_alone(kseg: Kseg, partition: Path) -> None:
    before = everything(partition.parent)
    for offset in (10, 2**63 - 1):
        ran = kseg("truncate", partition, "--to", offset, "--apply")
        assert (ran.code, ran.text) == (0, "nothing to do\n")
    assert everything(partition.parent) == before


def test_to_the_start_leaves_an_empty_log(kseg: Kseg, partition: Path) -> None:
    before = everything(partition)
    ran = kseg("truncate", partition, "--to", 0, "--apply", "--json")
    assert ran.code == 0
    assert log_names(partition) == [0]
    assert log_of(partition, 0).stat().st_size == 0
    (backup,) = ran.document["backups"]
    kept = Path(backup) / "orders-0"
    for base in (4, 8):
        name = f"{base:020d}.log"
        assert (kept / name).read_bytes() == before[name][0]
    name = f"{0:020d}.log"
    assert (kept / f"{name}.from-0").read_bytes() == before[name][0]


def test_a_copy_is_cut_and_the_original_is_not(kseg: Kseg, partition: Path, tmp_path: Path) -> None:
    before = everything(partition.parent)
    ran = kseg("truncate", partition, "--to", 3, "-o", tmp_path / "out")
    assert ran.code == 0
    assert everything(partition.parent) == before
    with Log.open(tmp_path / "out" / "orders-0") as log:
        assert [found.offset for found in log.records()] == [0, 1]


def test_nothing_is_kept_if_that_is_said(kseg: Kseg, partition: Path) -> None:
    assert kseg("truncate", partition, "--to", 3, "--apply", "--no-backup").code == 0
    assert not Path(f"{partition.parent}.kseg-backup").exists()


def test_one_partition_is_chosen(kseg: Kseg, partition: Path) -> None:
    data = partition.parent
    with Log.open(data / "clicks-1", mode="append", create=True) as log:
        log.append(batch([record(b"", timestamp=NOW_MS)]))
    assert kseg("truncate", data, "--to", 0).code == 2
    ran = kseg("truncate", data, "--to", 0, "--topic", "clicks", "--json")
    assert [Path(each["path"]).parent.name for each in ran.document["actions"]] == ["clicks-1"]


def test_a_held_directory_is_not_cut(kseg: Kseg, partition: Path) -> None:
    before = everything(partition.parent)
    with holding(partition.parent):
        assert kseg("truncate", partition, "--to", 3, "--apply").code == 3
        assert kseg("truncate", partition, "--to", 3).code == 1
    (partition.parent / lock.LOCK_NAME).unlink()
    assert everything(partition.parent) == before


def test_an_unclean_log_is_refused(kseg: Kseg, partition: Path) -> None:
    (partition.parent / ".kafka_cleanshutdown").unlink()
    before = everything(partition.parent)
    ran = kseg("truncate", partition, "--to", 3, "--apply")
    assert (ran.code, "kseg recover" in ran.err) == (1, True)
    assert "plan_recovery" not in ran.err
    assert everything(partition.parent) == before


@pytest.mark.parametrize("words", [(), ("--to", -1), ("--to", 2**63), ("--to", "x")])
def test_the_offset_is_given_and_one(
    kseg: Kseg, partition: Path, words: tuple[object, ...]
) -> None:
    assert kseg("truncate", partition, *words).code == 2


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
