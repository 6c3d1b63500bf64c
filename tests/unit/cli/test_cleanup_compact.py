"""`kseg compact`: what is planned, what is done, and what is left alone."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from kseg.files.checkpoints import TopicPartition, read_offset_checkpoint
from kseg.files.names import log_bytes
from kseg.log import cleanup, closed
from kseg.log.cleaner.values import CompactionPlan
from kseg.log.cleanup import plan_compaction
from kseg.log.config import LogConfig
from kseg.log.directory import LogDirectory
from kseg.log.log import Log
from kseg.log.settings import settings
from tests.builders import batch, record
from tests.unit.cli.conftest import Kseg
from tests.unit.files.foreign import holding
from tests.unit.log.settings.made import (
    FIRST,
    NEWER_BROKER,
    Broker,
    partition_metadata,
    setting,
    topic,
)

NOW_MS = 1_760_000_000_000
NOW = "2025-10-09T08:53:20Z"
CONFIG = LogConfig(
    segment_bytes=1000, cleanup_policy=frozenset({"compact"}), min_cleanable_dirty_ratio=0.0
)
COMPACT = ("--config", "cleanup.policy=compact", "--config", "segment.bytes=1000")


def fill(log: Log, count: int, keys: int) -> None:
    for number in range(count):
        key = b"%d" % (number % keys)
        log.append(batch([record(b"%d" % number, key=key, timestamp=NOW_MS)], leader_epoch=-1))
    log.roll()


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """`users-0`, of which three records of forty are the last of a key, and `users-1`."""
    path = tmp_path / "data"
    path.mkdir()
    with LogDirectory.open(path, mode="append", config=CONFIG, now_ms=lambda: NOW_MS) as directory:
        fill(directory.create("users", 0), 40, 3)
        fill(directory.create("users", 1), 4, 4)
    return path


def logs(directory: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*.log")
    }


def keys_of(path: Path) -> dict[bytes | None, bytes | None]:
    with Log.open(path) as log:
        return {one.key: one.value for one in log.records()}


def offsets_of(path: Path) -> list[int]:
    with Log.open(path) as log:
        return [one.offset for one in log.records()]


def test_a_copy_is_compacted_and_the_original_left_alone(
    kseg: Kseg, data: Path, tmp_path: Path
) -> None:
    before = logs(data)
    assert kseg("compact", data / "users-0", *COMPACT, "-o", tmp_path / "copy").code == 0
    assert logs(data) == before
    assert offsets_of(tmp_path / "copy" / "users-0") == [37, 38, 39]


def test_a_backup_is_made_where_one_is_asked_for(kseg: Kseg, data: Path, tmp_path: Path) -> None:
    old = (data / "users-0" / f"{0:020d}.log").read_bytes()
    ran = kseg("compact", data, *COMPACT, "--apply", "--backup-dir", tmp_path / "kept", "--json")
    assert ran.code == 0
    (backup,) = ran.document["backups"]
    assert old in logs(Path(backup)).values()
    assert ran.document["kept_in_backup_bytes"] > 0


@pytest.mark.parametrize(
    ("words", "skipped"),
    [
        ((), "not-compacted"),
        (("--config", "cleanup.policy=delete"), "not-compacted"),
        (
            ("--config", "cleanup.policy=compact", "--config", "min.cleanable.dirty.ratio=1"),
            "not-dirty-enough",
        ),
        (
            (
                "--config",
                "cleanup.policy=compact",
                "--config",
                "min.compaction.lag.ms=9",
                "--now",
                NOW,
            ),
            "nothing-dirty",
        ),
    ],
)
def test_what_is_left_alone_and_why(
    kseg: Kseg, data: Path, words: tuple[str, ...], skipped: str
) -> None:
    ran = kseg("compact", data, *words, "--apply", "--json")
    assert (ran.code, ran.document["actions"]) == (0, [])
    assert {each["skipped"] for each in ran.document["partitions"]} == {skipped}
    assert all(each["why"] for each in ran.document["partitions"])
    text = kseg("compact", data, *words)
    assert "left alone: users (2 partitions): " in text.text
    forced = kseg("compact", data, *words, "--force", "--json")
    assert (forced.code == 1) is (skipped != "not-compacted")


def test_a_broker_s_topic_of_unknown_policy_is_left_alone(kseg: Kseg, data: Path) -> None:
    (data / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=x\n")
    document = kseg("compact", data, "--force", "--json").document
    assert {each["skipped"] for each in document["partitions"]} == {"policy-unknown"}
    named = kseg("compact", data, "--config", "users:cleanup.policy=compact", "--json").document
    assert {each["skipped"] for each in named["partitions"]} <= {None, "nothing-dirty"}


def test_a_plan_says_how_many_records_have_no_key(kseg: Kseg, tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    config = CONFIG.with_changes(cleanup_policy=frozenset({"delete"}))
    with LogDirectory.open(data, mode="append", config=config, now_ms=lambda: NOW_MS) as directory:
        log = directory.create("witness", 0)
        log.append(batch([record(b"v", key=None, timestamp=NOW_MS)] * 3, leader_epoch=-1))
        log.roll()
    (data / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=x\n")
    left = kseg("compact", data).text
    assert "left alone: witness" in left
    assert "--broker-config FILE" in left
    assert "cleanup.policy=compact" not in left
    ran = kseg("compact", data, "--config", "witness:cleanup.policy=compact")
    assert "3 records without a key: they go" in ran.text


def test_damage_stops_one_partition_and_the_others_go_on(kseg: Kseg, data: Path) -> None:
    path = data / "users-0" / f"{14:020d}.log"
    noise = bytearray(path.read_bytes())
    noise[-1] ^= 1
    path.write_bytes(noise)
    before = logs(data / "users-0")
    words = ("--config", "cleanup.policy=compact", "--apply", "--json")
    ran = kseg("compact", data, *words)
    assert ran.code == 1
    (finding,) = ran.document["findings"]
    assert finding["path"] == str(path)
    assert "not compacted: " in ran.err
    assert logs(data / "users-0") == before
    checkpoint = read_offset_checkpoint(data / "cleaner-offset-checkpoint")
    assert checkpoint == {TopicPartition("users", 1): 4}


def test_the_way_out_of_damage_is_printed_and_works_as_printed(
    kseg: Kseg, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = data.rename(tmp_path / "sp ace")
    path = data / "users-0" / f"{0:020d}.log"
    noise = bytearray(path.read_bytes())
    noise[-1] ^= 1
    path.write_bytes(noise)
    ran = kseg("compact", data, "--config", "cleanup.policy=compact")
    monkeypatch.chdir(tmp_path)
    salvage, compact = (
        shlex.split(line)[1:] for line in ran.err.splitlines() if line.startswith("    kseg ")
    )
    kseg(*salvage)
    bytes_before = log_bytes(Path("OUT/users-0"))
    assert kseg(*compact).code == 0
    assert log_bytes(Path("OUT/users-0")) < bytes_before


def test_old_segments_go_too_where_both_policies_are_named(kseg: Kseg, data: Path) -> None:
    both = ("--config", "cleanup.policy=compact,delete", "--config", "retention.ms=1000")
    later = ("--now", "2099-10-10T08:53:20Z")
    plan = kseg("compact", data / "users-0", *both, *COMPACT[2:], *later, "--json").document
    assert "delete" in {each["action"] for each in plan["actions"]}
    assert kseg("compact", data / "users-0", *both, *COMPACT[2:], *later, "--apply").code == 0
    assert offsets_of(data / "users-0") == []


def test_a_directory_that_another_process_holds_is_refused(kseg: Kseg, data: Path) -> None:
    with holding(data):
        assert kseg("compact", data, *COMPACT, "--apply").code == 3


def test_a_small_map_makes_further_passes(kseg: Kseg, data: Path) -> None:
    document = kseg("compact", data / "users-0", *COMPACT, "--map-bytes", "64", "--json").document
    assert document["partitions"][0]["complete"] is False
    ran = kseg("compact", data / "users-0", *COMPACT, "--map-bytes", "64", "--apply", "--json")
    assert ran.document["partitions"][0]["report"]["passes"] > 1
    assert offsets_of(data / "users-0") == [37, 38, 39]


@pytest.mark.parametrize("verb", ["compact", "retain"])
def test_a_partition_s_document_has_each_setting_with_its_source(
    kseg: Kseg, data: Path, verb: str
) -> None:
    broker = Broker(data)
    (broker.path / "users-0" / "partition.metadata").write_text(partition_metadata(FIRST))
    compacted = [topic("users"), setting("cleanup.policy", "compact", "users")]
    broker.says(compacted, [setting("cleanup.policy", "compact,delete", "users"), NEWER_BROKER])
    words = ("--config", "users:retention.bytes=-1", "--config", "segment.bytes=1000")
    document = kseg(verb, broker.path / "users-0", *words, "--json").document
    (row,) = document["partitions"]
    assert row["settings"]["cleanup.policy"] == {"value": "compact,delete", "source": "topic"}
    assert row["settings"]["retention.bytes"] == {"value": "-1", "source": "config-topic"}
    assert row["settings"]["segment.bytes"] == {"value": "1000", "source": "config"}
    assert row["settings"]["index.interval.bytes"] == {"value": "4096", "source": "default"}
    assert "retention.ms" not in row["settings"]
    assert [note.partition(" at offset ")[0] for note in row["notes"]] == [
        "cleanup.policy was changed from compact to compact,delete"
    ]
    assert "REGISTER_BROKER_RECORD" in str(document["findings"])
    ran = kseg(verb, broker.path / "users-0", *words)
    assert "users: cleanup.policy was changed from compact to compact,delete" in ran.text
    assert "REGISTER_BROKER_RECORD" in ran.err


def test_apply_does_what_was_planned_without_planning_again(
    kseg: Kseg, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned = []

    def plan(*args: object, **how: object) -> CompactionPlan:
        planned.append(args)
        return plan_compaction(*args, **how)  # type: ignore[arg-type]

    monkeypatch.setattr(cleanup, "plan_compaction", plan)
    ran = kseg("compact", data / "users-0", *COMPACT, "--now", NOW, "--apply")
    assert ran.code == 0
    assert len(planned) == 1
    assert offsets_of(data / "users-0") == [37, 38, 39]


@pytest.mark.parametrize("count", [4, 40])
def test_a_log_that_changed_after_its_plan_is_planned_again(data: Path, count: int) -> None:
    path = data / "users-0"
    config = {"cleanup.policy": "compact", "segment.bytes": "1000"}
    found = settings([data], config=config).of(path)
    how = cleanup.Cleanup(NOW_MS)
    one = how.of(path, found)
    how.plan(one)
    with Log.open(path, mode="append", config=CONFIG, now_ms=lambda: NOW_MS) as log:
        log.clean(force=True)
        fill(log, count, 4)
    how.apply(one, closed.Change(apply=True, keep=False))
    assert one.finding is None
    assert len(keys_of(path)) == 4
    assert offsets_of(path) == [36 + count + each for each in range(4)]
