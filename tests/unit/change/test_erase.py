"""Records erased by key or by offset: all others stay, to the bit."""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest

import kseg
from kseg.change.erase import compare_digests, digests, plan_erasure
from kseg.errors import (
    CorruptRecordError,
    KsegError,
    LogLockedError,
    StalePlanError,
    UncleanShutdownError,
)
from kseg.files import io
from kseg.log.config import LogConfig
from tests import erased
from tests.builders import COMMIT, control_batch, write_segment
from tests.erased import Meant
from tests.full_disk import FullDisk
from tests.interop import compacted, lives, stories
from tests.shares import share


def _a_log(home: Path, seed: str, number: int) -> tuple[Path, Random]:
    """A log with all magics and codecs, transactions, and gaps of the cleaner."""
    chance = Random(f"erased {seed}:{number}")
    kind = compacted if chance.random() < 0.5 else stories
    story = kind.story(seed, number)
    directory = lives.fresh(home)
    lives.by_kseg(story, directory, steps=story.steps)
    kseg.recover(directory, config=LogConfig.from_kafka(story.config))
    return directory, chance


def test_a_plain_second_implementation_agrees(tmp_path: Path) -> None:
    for number in share(range(500), 24, "erased"):
        directory, chance = _a_log(tmp_path, "e", number)
        before, was_ok = erased.read(directory), kseg.verify(directory).ok
        meant = Meant.by_chance(chance, before)
        files = {path: (path.read_bytes(), path.stat().st_ino) for path in directory.glob("*.log")}
        plan = plan_erasure(directory, **meant.asked)
        if plan.refused is not None:
            assert "transaction is open" in plan.refused, number
            with pytest.raises(KsegError, match="transaction is open"):
                plan.apply()
            continue
        plan.apply()
        after = erased.read(directory)
        assert erased.differences(before, after, meant) == [], (number, meant)
        touched = {segment.path for segment in plan.segments}
        for path, (data, inode) in files.items():
            if path not in touched:
                assert (path.read_bytes(), path.stat().st_ino) == (data, inode), (number, path)
        assert plan_erasure(directory, **meant.asked).is_noop, number
        assert kseg.verify(directory).ok or not was_ok, number


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Three closed segments and an active one; every second record has the key b"a"."""
    path = tmp_path / "data" / "orders-0"
    with kseg.Log.open(path, mode="append", create=True) as log:
        for number in range(4):
            keys = [b"a", b"b"] if number < 3 else [b"c", b"a"]
            log.append({"key": keys, "value": [b"personal" * (key == b"a") for key in keys]})
            if number < 3:
                log.roll()
    return path


def _keys(path: Path) -> list[bytes | None]:
    return [key for columns in kseg.scan(path, columns=("key",)) for key in columns["key"]]


def test_the_erased_bytes_stand_in_no_file(directory: Path) -> None:
    plan = plan_erasure(directory, keys=[b"a"])
    assert (plan.records, len(plan.segments), plan.rolls) == (4, 4, True)
    report = plan.apply()
    assert _keys(directory) == [b"b", b"b", b"b", b"c"]
    with kseg.Log.open(directory) as log:
        assert log.log_end_offset == 8
    assert sum(report.sizes) < sum(segment.size for segment in plan.segments)
    for path in directory.parent.rglob("*"):
        assert path.is_dir() or b"personal" not in path.read_bytes(), path


@pytest.mark.parametrize("suffix", ["stray", "future"])
def test_directories_that_were_put_aside_are_erased_too(directory: Path, suffix: str) -> None:
    aside = directory.rename(f"{directory}.{'0' * 32}-{suffix}")
    plan_erasure(aside, keys=[b"a"]).apply()
    assert _keys(aside) == [b"b", b"b", b"b", b"c"]


def test_a_directory_that_a_broker_deletes_goes_at_once(directory: Path) -> None:
    aside = directory.rename(f"{directory}.{'0' * 32}-delete")
    assert plan_erasure(aside, keys=[b"none"]).is_noop
    plan_erasure(aside, keys=[b"a"]).apply()
    assert not aside.exists()


def test_temporary_files_are_in_the_plan_and_go(directory: Path) -> None:
    waiting = directory / "00000000000000000000.log.deleted"
    waiting.write_bytes((directory / "00000000000000000000.log").read_bytes())
    plan = plan_erasure(directory, keys=[b"a"])
    assert [action.path for action in plan.temporary_files] == [str(waiting)]
    plan.apply()
    assert not waiting.exists()


def test_a_backup_is_kept_only_where_it_is_asked_for(directory: Path, tmp_path: Path) -> None:
    report = plan_erasure(directory, keys=[b"a"]).apply(backup=tmp_path / "backup")
    logs = [kept.kept.read_bytes() for kept in report.kept if kept.path.suffix == ".log"]
    assert len(logs) == 4
    assert all(b"personal" in data for data in logs)


REFUSED = {
    "no record": ({}, ValueError, "by their keys, or by their offsets"),
    "keys and offsets": ({"keys": [b"a"], "offsets": range(1)}, ValueError, "by their keys, or"),
    "an empty range": ({"offsets": range(3, 3)}, ValueError, "a range that is not empty"),
    "a step": ({"offsets": range(0, 8, 2)}, ValueError, "a range that is not empty"),
    "a tombstone of an offset": ({"offsets": range(3), "tombstones": True}, ValueError, "belong"),
    "a release": ({"keys": [b"a"], "rules": "2.8"}, ValueError, "rules are those of"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_erased_is_refused(directory: Path, name: str) -> None:
    how, error, words = REFUSED[name]
    with pytest.raises(error, match=words):
        plan_erasure(directory, **how)


def test_damage_is_refused_and_changes_nothing(directory: Path) -> None:
    log = directory / "00000000000000000002.log"
    data = bytearray(log.read_bytes())
    data[-1] ^= 1
    log.write_bytes(data)
    with pytest.raises(CorruptRecordError, match=r"00000000000000000002\.log"):
        plan_erasure(directory, keys=[b"a"])


def test_a_log_that_was_not_closed_well_or_is_held_or_has_changed_is_left(directory: Path) -> None:
    with kseg.Log.open(directory, mode="append"):
        plan = plan_erasure(directory, keys=[b"a"])
        with pytest.raises(LogLockedError):
            plan.apply()
    plan = plan_erasure(directory, keys=[b"a"])
    (directory / "extra").write_bytes(b"")
    with pytest.raises(StalePlanError):
        plan.apply()
    (directory.parent / ".kafka_cleanshutdown").unlink()
    with pytest.raises(UncleanShutdownError):
        plan_erasure(directory, keys=[b"a"]).apply()
    assert b"a" in _keys(directory)


def test_internal_topics_and_tiers_are_left(tmp_path: Path) -> None:
    path = tmp_path / "__consumer_offsets-0"
    with kseg.Log.open(path, mode="append", create=True) as log:
        log.append({"key": [b"a"], "value": [b"1"]})
    plan = plan_erasure(path, keys=[b"a"])
    assert "one of Kafka's own topics" in str(plan.refused)
    with pytest.raises(KsegError, match="own topics"):
        plan.apply()


def test_a_key_of_a_marker_matches_nothing(tmp_path: Path) -> None:
    path = write_segment(tmp_path / "t-0", 0, control_batch(COMMIT, producer_id=1)).parent
    assert plan_erasure(path, keys=[bytes(4), b"\0\0\0\1"]).is_noop


def test_a_full_disk_leaves_each_segment_as_it_was_or_without_the_records(tmp_path: Path) -> None:
    path, refused = tmp_path / "data" / "orders-0", 0
    with kseg.Log.open(path, mode="append", create=True) as log:
        for _ in range(3):
            log.append({"key": [b"a", b"b"], "value": [b"personal", bytes(30_000)]})
            log.roll()
    for free in range(14):
        copy = tmp_path / f"copy-{free}" / path.name
        shutil.copytree(path.parent, copy.parent)
        disk = FullDisk(free=free)
        with io.calls_replaced(disk.calls), suppress(OSError, KsegError):
            plan_erasure(copy, keys=[b"a"]).apply()
        refused += disk.refused > 0
        kseg.recover(copy)
        assert [key for key in _keys(copy) if key != b"a"] == [b"b"] * 3, free
        plan_erasure(copy, keys=[b"a"]).apply()
        assert _keys(copy) == [b"b"] * 3, free
    assert 4 < refused < 14


def test_digests_say_what_became_of_each_segment(directory: Path) -> None:
    plan_erasure(directory, keys=[b"a"]).apply()
    then = digests(directory)
    assert {state for _, state in compare_digests(then, directory)} == {"equal"}
    with kseg.Log.open(directory, mode="append") as log:
        log.append({"value": [b"new"]})
        log.roll()
        log.delete_records_before(2)
        log.delete_old_segments()
    plan_erasure(directory, keys=[b"c"]).apply()
    states = dict(compare_digests(then, directory))
    assert list(states.values()) == [
        *("gone by retention", "equal", "equal", "rewritten", "grown", "new")
    ]
