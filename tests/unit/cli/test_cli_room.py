"""What `retain`, `recover` and `truncate` give the disk: told in bytes, on a full one at once."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

import pytest

from kseg.files.metadata import remove_clean_shutdown
from kseg.log.config import LogConfig
from kseg.log.log import Log
from kseg.log.recovery import backup
from tests import full_disk
from tests.unit.cli.conftest import Kseg
from tests.unit.log.logs import NOW_MS, one

#: Verbs that free a log of 50 offsets, and the bytes that all of them give at least.
VERBS = {
    "retain": ("--config", "retention.bytes=60000", "--config", "retention.ms=-1"),
    "recover": (),
    "truncate": ("--to", "20"),
}
FREED_MIN = 24_000


@pytest.fixture
def partition(tmp_path: Path) -> Path:
    path = tmp_path / "data" / "orders-0"
    config = LogConfig(segment_bytes=50_000, segment_index_bytes=4096)
    path.parent.mkdir()
    with Log.open(path, mode="append", create=True, config=config, now_ms=lambda: NOW_MS) as log:
        for number in range(50):
            log.append(one(b"%05d" % number * 1000))
    return path


def command(verb: str, partition: Path, *more: object) -> tuple[object, ...]:
    """The verb with something to free; a log to be recovered has half a batch at its end."""
    if verb == "recover":
        remove_clean_shutdown(partition.parent)
        last = max(partition.glob("*.log"))
        last.write_bytes(last.read_bytes() + one(b"." * 40_000)[:30_000])
    return (verb, partition, *VERBS[verb], "--apply", *more)


def blocks_bytes(directory: Path) -> int:
    """Of the files that have no second name elsewhere."""
    found = [each.stat() for each in directory.rglob("*") if each.is_file()]
    return sum(each.st_blocks * 512 for each in found if each.st_nlink == 1)


@pytest.mark.parametrize("verb", VERBS)
def test_without_a_backup_it_tells_what_the_disk_got_back(
    kseg: Kseg, partition: Path, verb: str
) -> None:
    words = command(verb, partition, "--no-backup", "--json")
    before = blocks_bytes(partition)
    document = kseg(*words).document
    assert document["freed_bytes"] >= FREED_MIN
    # A snapshot or two are rebuilt.
    assert document["freed_bytes"] == pytest.approx(before - blocks_bytes(partition), abs=8192)
    assert document["kept_in_backup_bytes"] == 0


@pytest.mark.parametrize("verb", VERBS)
def test_what_a_backup_keeps_is_freed_by_the_command_in_its_own_line(
    kseg: Kseg, partition: Path, verb: str
) -> None:
    ran = kseg(*command(verb, partition))
    assert ran.code == 0
    found = re.search(r"(\d+)(?: more| bytes of disk become free) with:\n(.*)", ran.text)
    assert found is not None
    kept, remedy = int(found[1]), found[2]
    backup = Path(shlex.split(remedy)[-1])
    assert shlex.split(remedy)[:2] == ["rm", "-r"]
    assert kept == blocks_bytes(backup) >= FREED_MIN
    subprocess.run(shlex.split(remedy), check=True)
    assert not backup.exists()


@pytest.mark.parametrize("verb", VERBS)
def test_a_full_disk_is_freed_at_the_first_try(kseg: Kseg, partition: Path, verb: str) -> None:
    words = command(verb, partition, "--no-backup", "--json")
    with full_disk.full():
        ran = kseg(*words)
    assert (ran.code, ran.err) == (0, "")
    assert ran.document["freed_bytes"] >= FREED_MIN
    assert kseg("verify", "--deep", partition.parent).code == 0
    assert (partition.parent / ".kafka_cleanshutdown").exists()


@pytest.mark.parametrize("verb", VERBS)
def test_a_full_disk_keeps_nothing_and_the_ways_round_are_named(
    kseg: Kseg, partition: Path, verb: str
) -> None:
    words = command(verb, partition)
    before = {each: each.read_bytes() for each in partition.rglob("*")}
    with full_disk.full():
        ran = kseg(*words)
    assert (ran.code, ran.out) == (3, b"")
    assert "--backup-dir" in ran.err
    assert "--no-backup" in ran.err
    assert {each: each.read_bytes() for each in partition.rglob("*")} == before
    assert [each.name for each in partition.parent.parent.iterdir()] == ["data"]


def test_a_partition_that_frees_too_little_itself_has_the_room_of_the_others(
    kseg: Kseg, partition: Path
) -> None:
    with Log.open(
        partition.with_name("clicks-0"), mode="append", create=True, now_ms=lambda: NOW_MS
    ) as log:
        log.append(one(b"alone in its segment"))
    words = ("--no-backup", "--config", "retention.bytes=0", "--config", "retention.ms=-1")
    with full_disk.full():
        ran = kseg("retain", partition.parent, "--apply", "--json", *words)
    assert (ran.code, ran.err) == (0, "")
    starts = {row["topic"]: row["new_log_start_offset"] for row in ran.document["partitions"]}
    assert starts == {"clicks": 1, "orders": 50}
    assert kseg("verify", "--deep", partition.parent).code == 0


def test_a_recovery_begins_with_the_partition_that_gives_room(kseg: Kseg, partition: Path) -> None:
    for name in ("clicks-0", "zebras-0"):
        with Log.open(
            partition.with_name(name), mode="append", create=True, now_ms=lambda: NOW_MS
        ) as log:
            log.append(one(b"alone in its segment"))
        (log.path / f"{0:020d}.index").unlink()
    remove_clean_shutdown(partition.parent)
    words = ("recover", partition.parent, "--apply", "--no-backup")
    with full_disk.full():
        ran = kseg(*words)
    assert ran.code == 3
    assert "'kseg retain --no-backup --apply' deletes expired segments" in ran.err
    (partition / f"{0:020d}.log.deleted").write_bytes(bytes(60_000))
    with full_disk.full():
        ran = kseg(*words)
    assert (ran.code, ran.err) == (0, "")
    assert "3 partitions in order, mark of a clean stop written" in ran.text
    assert kseg("verify", "--deep", partition.parent).code == 0


@pytest.mark.parametrize("verb", VERBS)
def test_backups_on_another_file_system_are_announced(
    kseg: Kseg, partition: Path, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    words = [word for word in command(verb, partition) if word != "--apply"]
    assert "another file system" not in kseg(*words).err
    elsewhere = Path("/proc/data.kseg-backup")  # as beside a mount point
    monkeypatch.setattr(backup, "backup_root", lambda _: elsewhere)
    ran = kseg(*words)
    said = f"backups of {partition.parent} lie in {elsewhere}, on another file system, and take "
    assert re.search(re.escape(said) + r"\d+\.\d KiB there", ran.err)
    assert "another file system" not in kseg(*words, "--no-backup").err
