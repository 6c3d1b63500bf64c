"""`kseg retain`: what is planned, what is done, and what is kept of it."""

from __future__ import annotations

import os
import shutil
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from kseg.files import lock
from kseg.log.config import LogConfig
from kseg.log.directory import LogDirectory
from kseg.log.log import Log
from tests import full_disk
from tests.builders import batch, record
from tests.unit.cli.conftest import Kseg
from tests.unit.files.foreign import holding
from tests.unit.log.settings.made import FIRST, Broker, partition_metadata, setting, topic

DAY_MS = 86_400_000
NOW_MS = 1_760_000_000_000
NOW = "2025-10-09T08:53:20Z"
CONFIG = LogConfig(segment_bytes=400)
HIGH_WATERMARKS = "replication-offset-checkpoint"
#: What is assumed of no topic.
RETENTION = ("--config", "retention.ms=604800000")
A_WEEK = ("--now", NOW, *RETENTION)
DELETED = ("--config", "cleanup.policy=delete")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """`orders-0`, of segments that are 9, 8, 1 and 0 days old, and `clicks-3` with one."""
    path = tmp_path / "data"
    path.mkdir()
    with LogDirectory.open(path, mode="append", config=CONFIG, now_ms=lambda: NOW_MS) as directory:
        orders, clicks = directory.create("orders", 0), directory.create("clicks", 3)
        for days in (9, 8, 1, 0):
            time = NOW_MS - days * DAY_MS
            orders.append(
                batch(
                    [record(bytes(200), timestamp=time)],
                    producer_id=days,
                    producer_epoch=0,
                    base_sequence=0,
                )
            )
        clicks.append(batch([record(b"", timestamp=NOW_MS)]))
    return path


def everything(directory: Path) -> dict[str, tuple[bytes, int]]:
    found = (path for path in directory.rglob("*") if path.is_file())
    return {
        str(path.relative_to(directory)): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in found
    }


def log_names(directory: Path) -> list[int]:
    return sorted(int(path.name.partition(".")[0]) for path in directory.glob("*.log"))


def test_what_stays_has_its_cause_and_its_date(kseg: Kseg, data: Path) -> None:
    ran = kseg("retain", data / "orders-0", *A_WEEK, "--json")
    (row,) = ran.document["partitions"]
    until = [NOW_MS - days * DAY_MS + 7 * DAY_MS + 1 for days in (1, 0)]
    assert row["stays"] == [
        {"base_offset": 2, "cause": "younger-than-retention", "until_ms": until[0]},
        {"base_offset": 3, "cause": "active", "until_ms": until[1]},
    ]
    text = kseg("retain", data / "orders-0", *A_WEEK).text
    assert "younger-than-retention; from 2025-10-15T08:53:20.001Z on" in text


def test_nothing_to_delete_is_fine(kseg: Kseg, data: Path) -> None:
    before = everything(data)
    ran = kseg("retain", data, "--now", NOW, "--config", "retention.ms=-1", "--apply")
    assert (ran.code, ran.text, ran.err) == (0, "nothing to do\n", "")
    assert everything(data) == before


def test_files_are_called_by_the_path_that_was_given(
    kseg: Kseg, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(data.parent)
    ran = [kseg("retain", "data", *A_WEEK, "--json", *how) for how in ((), ("--apply",))]
    paths = [[each["path"] for each in one.document["actions"]] for one in ran]
    names = ["orders-0", f"orders-0/{0:020d}.log", f"orders-0/{1:020d}.log"]
    assert paths[0] == paths[1] == [f"data/{name}" for name in names]


def test_size_goes_by_the_setting(kseg: Kseg, data: Path) -> None:
    settings = ("--config", "retention.ms=-1", "--config", "retention.bytes=300")
    ran = kseg("retain", data / "orders-0", *settings, "--now", NOW, "--json")
    deleted = [each for each in ran.document["actions"] if each["action"] == "delete"]
    assert len(deleted) == 2
    assert {each["why"] for each in deleted} == {"size: the log has retention.bytes without it"}


def test_a_log_that_loses_all_rolls_first(kseg: Kseg, data: Path) -> None:
    settings = ("--config", "retention.bytes=0")
    ran = kseg("retain", data / "orders-0", *settings, "--now", NOW, "--json", "--apply")
    assert ran.document["actions"][0]["action"] == "roll"
    assert log_names(data / "orders-0") == [4]


def test_a_copy_is_changed_and_the_original_is_not(kseg: Kseg, data: Path, tmp_path: Path) -> None:
    before = everything(data)
    ran = kseg("retain", data, *A_WEEK, "-o", tmp_path / "out", "--json")
    assert ran.code == 0
    assert ran.document["applied"] is True
    assert ran.document["backups"] == []
    assert everything(data) == before
    assert [path.name for path in (tmp_path / "out").glob("*-*/")] == ["orders-0"]
    assert log_names(tmp_path / "out" / "orders-0") == [2, 3]
    assert (tmp_path / "out" / ".kafka_cleanshutdown").exists()


def test_backups_go_where_they_are_told_or_nowhere(kseg: Kseg, data: Path, tmp_path: Path) -> None:
    place = tmp_path / "kept"
    command = ("retain", data, *A_WEEK, "--apply", "--json")
    assert kseg(*command, "--backup-dir", place).document["backups"] == [str(place)]
    assert log_names(place / "orders-0") == [0, 1]
    later = ("retain", data, "--now", "2025-10-12T08:53:20Z", "--apply", "--json")
    ran = kseg(*later, "--config", f"retention.ms={2 * DAY_MS}", "--no-backup")
    assert ran.document["backups"] == []
    assert log_names(place / "orders-0") == [0, 1]
    assert not Path(f"{data}.kseg-backup").exists()


@pytest.fixture
def of_broker(data: Path) -> Path:
    """The same, as a broker's, whose replicas have the first record of `orders-0`."""
    (data / "meta.properties").write_text("version=1\ncluster.id=c\nnode.id=1\n")
    (data / HIGH_WATERMARKS).write_text("0\n2\nclicks 3 0\norders 0 1\n")
    return data


@pytest.mark.parametrize(
    ("how", "start"), [(("--apply",), 1), (("--apply", "--high-watermark", "end"), 2)]
)
def test_in_a_brokers_directory_nothing_above_the_high_watermark_goes(
    kseg: Kseg, of_broker: Path, how: tuple[str, ...], start: int
) -> None:
    command = ("retain", of_broker / "orders-0", "--now", NOW, *RETENTION, *DELETED)
    planned = kseg(*command, *how[1:], "--json").document
    (row,) = planned["partitions"]
    assert row["high_watermark"] == (1 if start == 1 else 4)
    assert (row["new_log_start_offset"], bool(row["held_bytes"])) == (start, start == 1)
    ran = kseg(*command, *how)
    assert ran.code == 0
    assert ("--high-watermark end" in ran.text) is (start == 1)
    with Log.open(of_broker / "orders-0") as log:
        assert (log.log_start_offset, log.log_end_offset) == (start, 4)
    assert f"orders 0 {1 if start == 1 else 4}\n" in (of_broker / HIGH_WATERMARKS).read_text()


def test_a_copy_goes_by_the_high_watermark_of_the_original(kseg: Kseg, of_broker: Path) -> None:
    out = of_broker.parent / "out"
    ran = kseg("retain", of_broker / "orders-0", "--now", NOW, *RETENTION, *DELETED, "-o", out)
    assert ran.code == 0
    with Log.open(out / "orders-0") as log:
        assert log.log_start_offset == 1
    assert (out / HIGH_WATERMARKS).read_text() == "0\n1\norders 0 1\n"


def test_in_a_brokers_directory_what_is_unknown_is_left_alone_and_said(
    kseg: Kseg, of_broker: Path
) -> None:
    before = everything(of_broker)
    ran = kseg("retain", of_broker, "--now", NOW, "--apply", "--json", "--config", "retention.ms=1")
    assert ran.code == 0
    assert ran.document["actions"] == []
    assert [row["skipped"] for row in ran.document["partitions"]] == ["policy-unknown"] * 2
    text = kseg("retain", of_broker, "--now", NOW, "--apply").text
    assert "left alone: orders (1 partition): neither its cleanup.policy nor a limit" in text
    assert everything(of_broker) == before


def second_disk(root: Path, data: Path, policy: str, *, cluster: str = "c", node: int = 1) -> Path:
    """`data` as the second directory of a broker whose first one, if it is its, says the policy."""
    (data / "orders-0" / "partition.metadata").write_text(partition_metadata(FIRST))
    settings = [setting("cleanup.policy", policy)] if policy else []
    Broker(root / "disk1", cluster=cluster, node_id=node).says([topic("orders"), *settings])
    return data / "orders-0"


@pytest.mark.parametrize(
    ("policy", "ids", "goes"),
    [
        ("compact", {}, 0),
        ("delete", {}, 2),
        ("", {}, 0),
        ("delete", {"node": 2}, 0),
        ("delete", {"cluster": "other"}, 0),
    ],
)
def test_a_limit_for_a_partition_of_a_broker_does_not_stand_for_its_policy(
    kseg: Kseg, of_broker: Path, policy: str, ids: dict[str, Any], goes: int
) -> None:
    """Its metadata log is named where it lies beside, and its policy then known."""
    path = second_disk(of_broker.parent, of_broker, policy, **ids)
    words = ("--now", NOW, *RETENTION, "--high-watermark", "end", "--json")
    (row,) = kseg("retain", path, *words).document["partitions"]
    assert (row["skipped"], row["deleted_segments"]) == ("policy-unknown", 0)
    advice = f"--metadata-dir {of_broker.parent / 'disk1'}"
    assert (advice in row["why"]) is not bool(ids)
    if not ids:
        (row,) = kseg("retain", path, *words, *advice.split()).document["partitions"]
        assert row["deleted_segments"] == goes
    named = kseg("retain", path, *words, "--config", "orders:cleanup.policy=delete").document
    assert named["partitions"][0]["deleted_segments"] == 2


def test_a_topic_that_is_not_here_is_a_usage_error(kseg: Kseg, data: Path) -> None:
    ran = kseg("retain", data, "--config", "ordres:retention.ms=1")
    assert ran.code == 2
    assert "ordres:retention.ms: no topic here is ordres; did you mean orders?" in ran.err


A_YEAR_AHEAD = "2027-11-22"


def test_the_log_of_kraft_is_refused_by_who_changes_logs(
    kseg: Kseg, fixtures_dir: Path, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    shutil.copytree(fixtures_dir / "new" / "4.2.0-internal", data)
    (data / ".kafka_cleanshutdown").unlink()
    path = data / "__cluster_metadata-0"
    for index in path.glob("*.index"):
        index.unlink()
    before = everything(path)
    for words in (
        ("recover", "--apply"),
        ("reindex", "--apply"),
        ("truncate", "--to", "1", "--apply"),
        ("append",),
    ):
        ran = kseg(*words, path)
        assert (ran.code, "the log of KRaft is left alone" in ran.err) == (3, True)
    for verb in ("reindex", "recover"):
        ran = kseg(verb, data, "--apply")
        assert (ran.code, "left alone" in ran.err) == (0, True)
    assert everything(path) == before


def test_partitions_are_chosen(kseg: Kseg, data: Path) -> None:
    settings = ("--config", "retention.bytes=0", "--now", NOW, "--json")
    ran = kseg("retain", data, "--topic", "cli*", *settings)
    assert [each["path"] for each in ran.document["partitions"]] == [str(data / "clicks-3")]


def test_deleted_stray_and_empty_partitions_are_left_alone(kseg: Kseg, data: Path) -> None:
    (data / "orders-2").mkdir()
    for suffix in ("delete", "stray", "future"):
        (data / f"orders-1.{'0' * 32}-{suffix}").mkdir()
        (data / f"orders-1.{'0' * 32}-{suffix}" / f"{0:020d}.log").touch()
    ran = kseg("retain", data, "--now", NOW, "--json", "--apply")
    assert ran.code == 0
    assert [each["topic"] for each in ran.document["partitions"]] == ["clicks", "orders"]


def test_a_directory_that_somebody_holds_is_looked_at_but_not_changed(
    kseg: Kseg, data: Path
) -> None:
    before = everything(data)
    with holding(data) as process:
        ran = kseg("retain", data, *A_WEEK, "--apply")
        assert ran.code == 3
        assert f"process {process} holds" in ran.err
        assert kseg("retain", data, *A_WEEK).code == 1
    (data / lock.LOCK_NAME).unlink()
    assert everything(data) == before


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize(
    ("point", "deleted_to", "goes"), [(3, 0, 2), (2, 0, 2), (1, 0, 1), (1, 2, 1)]
)
def test_closed_segments_in_front_of_the_recovery_point_need_no_recovery(
    kseg: Kseg, data: Path, full: bool, point: int, deleted_to: int, goes: int
) -> None:
    (data / ".kafka_cleanshutdown").unlink()
    if deleted_to:
        starts = data / "log-start-offset-checkpoint"
        starts.write_text(f"0\n1\norders 0 {deleted_to}\n")
    points = data / "recovery-point-offset-checkpoint"
    points.write_text(f"0\n1\norders 0 {point}\n")
    (data / "orders-0" / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")
    with full_disk.full() if full else nullcontext():
        ran = kseg("retain", data, *A_WEEK, "--no-backup", "--apply")
    assert ran.code == 0, ran.err
    left = [each.name for each in sorted((data / "orders-0").glob("*.log"))]
    assert left == [f"{base:020d}.log" for base in range(goes, 4)]
    start = max(goes, deleted_to)
    assert (data / "orders-0" / "leader-epoch-checkpoint").read_text() == f"0\n1\n0 {start}\n"
    assert not (data / ".kafka_cleanshutdown").exists()
    assert ("stay until a recovery" in ran.text) == (goes == 1)
    assert kseg("recover", data, "--apply").code == 0
    assert kseg("verify", "--deep", data).code == 0
    with Log.open(data / "orders-0") as log:
        assert (log.log_start_offset, log.log_end_offset) == (start, 4)


def test_nothing_goes_without_a_recovery_beside_malformed_epochs(kseg: Kseg, data: Path) -> None:
    (data / ".kafka_cleanshutdown").unlink()
    (data / "orders-0" / "leader-epoch-checkpoint").write_text("epochs\n")
    before = log_names(data / "orders-0")
    ran = kseg("retain", data, *A_WEEK, "--no-backup", "--apply")
    assert ran.code == 1
    assert "leader-epoch-checkpoint" in ran.err
    assert log_names(data / "orders-0") == before


def test_an_unclean_log_is_refused_with_the_verb_that_mends_it(kseg: Kseg, data: Path) -> None:
    (data / ".kafka_cleanshutdown").unlink()
    (data / "recovery-point-offset-checkpoint").unlink()
    before = everything(data)
    for how in (("--apply",), ("-o", data.parent / "out")):
        ran = kseg("retain", data, *A_WEEK, *how)
        assert ran.code == 1
        assert "kseg recover" in ran.err
        assert "plan_recovery" not in ran.err
    assert everything(data) == before
    assert not (data.parent / "out").exists()


@pytest.mark.parametrize(
    "words",
    [
        ("--apply", "-o", "out"),
        ("--backup-dir", "kept", "--no-backup"),
        ("--config", "retention.hours=1"),
        ("--config", "retention.ms=-2"),
        ("--config", "not/a/topic:retention.ms=1"),
        ("--config", "orders:retention.hours=1"),
    ],
)
def test_what_contradicts_itself_is_a_usage_error(
    kseg: Kseg, data: Path, words: tuple[str, ...]
) -> None:
    assert kseg("retain", data, *words).code == 2


def test_a_file_is_no_directory(kseg: Kseg, data: Path) -> None:
    ran = kseg("retain", data / "orders-0" / f"{0:020d}.log")
    assert ran.code == 3
    assert os.linesep not in ran.err.rstrip()


def test_retain_goes_by_the_settings_in_the_metadata_log(
    kseg: Kseg, fixtures_dir: Path, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    shutil.copytree(fixtures_dir / "new" / "3.9.1-retention", data)
    before = everything(data)
    metadata = fixtures_dir / "new" / "3.9.1-internal"
    words = ("retain", data, "--now", A_YEAR_AHEAD, "--metadata-dir", metadata)
    ran = kseg(*words, "--json")
    assert ran.code == 0
    rows = {row["topic"]: row for row in ran.document["partitions"]}
    assert rows["ret-ms"]["settings"]["retention.ms"] == {"value": "86400000", "source": "topic"}
    assert "cleanup.policy" not in rows["ret-ms"]["settings"]
    assert {row["skipped"] for row in rows.values()} == {"policy-unknown"}
    ran = kseg(*words, "--config", "cleanup.policy=delete", "--apply")
    assert ran.code == 0
    after = everything(data)
    gone = {Path(name).parent.name for name in before.keys() - after.keys()}
    assert "ret-ms-0" in gone  # a day is what its own configuration says
    assert "delrec-0" not in gone  # and -1 that of this one


def test_a_brokers_file_fills_in_what_the_cluster_does_not_say(
    kseg: Kseg, fixtures_dir: Path, tmp_path: Path
) -> None:
    data, properties = tmp_path / "data", tmp_path / "server.properties"
    shutil.copytree(fixtures_dir / "new" / "3.9.1-retention", data)
    properties.write_text("log.cleanup.policy=delete\nlog.retention.hours=1\nssl.key.password=x9\n")
    metadata = fixtures_dir / "new" / "3.9.1-internal"
    words = ("--broker-config", properties, "--metadata-dir", metadata, "--json")
    ran = kseg("retain", data, "--now", A_YEAR_AHEAD, *words)
    assert ran.code == 1
    rows = {row["topic"]: row for row in ran.document["partitions"]}
    assert rows["ret-ms"]["deleted_bytes"] > 0
    policy = {"value": "delete", "source": "broker-config"}
    assert rows["ret-ms"]["settings"]["cleanup.policy"] == policy
    assert "x9" not in ran.text


def test_no_limit_has_a_default_by_which_segments_would_go(kseg: Kseg, data: Path) -> None:
    """Also where no broker was: who wrote the log may have kept it for longer."""
    ran = kseg("retain", data, "--now", A_YEAR_AHEAD, "--apply", "--json")
    assert (ran.code, ran.document["actions"]) == (0, [])
    rows = ran.document["partitions"]
    assert [row["skipped"] for row in rows] == ["policy-unknown"] * 2
    assert {"retention.ms", "retention.bytes"}.isdisjoint(rows[0]["settings"])
    assert rows[0]["settings"]["cleanup.policy"] == {"value": "delete", "source": "default"}
    limited = kseg("retain", data, "--now", A_YEAR_AHEAD, "--config", "retention.bytes=0", "--json")
    assert [row["skipped"] for row in limited.document["partitions"]] == [None, None]
