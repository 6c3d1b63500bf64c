"""Verbs on all data directories of a broker: given one by one, or by its `server.properties`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kseg.log.config import LogConfig
from kseg.log.directory import LogDirectory
from tests.builders import batch, record
from tests.unit.cli.conftest import Kseg
from tests.unit.log.settings.made import FIRST, Broker, partition_metadata, setting, topic

NOW_MS = 1_760_000_000_000
DAY_MS = 86_400_000
VERBS = ("doctor", "explain", "recover", "retain", "compact")


def write_log(root: Path, name: str, number: int, config: LogConfig) -> None:
    """Segments that are 9 and 8 days old, one of a day, and the active one."""
    with LogDirectory.open(root, mode="append", config=config, now_ms=lambda: NOW_MS) as directory:
        log = directory.create(name, number)
        for days in (9, 8, 1, 0):
            log.append(batch([record(bytes(200), key=b"k", timestamp=NOW_MS - days * DAY_MS)]))
    path = root / f"{name}-{number}"
    (path / "partition.metadata").write_text(partition_metadata(FIRST))


@pytest.fixture
def disks(tmp_path: Path) -> tuple[Path, Path]:
    """`orders-0` and `orders-1` on a disk each; the first has the metadata log."""
    first, second = tmp_path / "disk 1", tmp_path / "disk2"
    for number, root in enumerate((first, second)):
        root.mkdir()
        write_log(root, "orders", number, LogConfig(segment_bytes=400))
        Broker(root)
        (root / "replication-offset-checkpoint").write_text(f"0\n1\norders {number} 4\n")
    Broker(first).says([topic("orders"), setting("cleanup.policy", "delete")])
    return first, second


def properties(disks: tuple[Path, Path], *lines: str) -> Path:
    path = disks[0].with_name("server.properties")
    named = ",".join(map(str, disks))
    path.write_text("\n".join([f"log.dirs={named}", "node.id=7", *lines, ""]))
    return path


def partitions_of(document: dict[str, Any]) -> set[str]:
    rows = document.get("partitions")
    if rows is None:
        rows = [one for each in document["directories"] for one in each["partitions"]]
    return {Path(row["path"]).name for row in rows} - {"__cluster_metadata-0"}


@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_takes_several_directories_or_the_file_that_names_them(
    kseg: Kseg, disks: tuple[Path, Path], verb: str
) -> None:
    file = properties(disks)
    by_one = kseg(verb, *disks, "--broker-config", file, "--now", NOW_MS, "--json")
    assert partitions_of(by_one.document) == {"orders-0", "orders-1"}
    by_file = kseg(verb, file, "--now", NOW_MS, "--json")
    for field in by_one.document.keys() - {"spaces"}:  # the disk is used by others, too
        assert by_file.document[field] == by_one.document[field]
    assert by_file.code == by_one.code


def test_the_metadata_log_of_one_directory_counts_in_all(
    kseg: Kseg, disks: tuple[Path, Path]
) -> None:
    words = ("--partition", "1", "--now", NOW_MS, "--json")
    (row,) = kseg("retain", properties(disks), *words).document["partitions"]
    assert row["settings"]["cleanup.policy"] == {"value": "delete", "source": "topic"}
    assert row["settings"]["retention.ms"] == {"value": "604800000", "source": "default"}
    assert row["deleted_segments"] == 2
    text = kseg("retain", properties(disks), *words[:-1]).text
    assert "Kafka's default: retention.ms=604800000 for orders" in text


def test_each_directory_keeps_its_own_backup(kseg: Kseg, disks: tuple[Path, Path]) -> None:
    ran = kseg("retain", properties(disks), "--now", NOW_MS, "--apply", "--json")
    assert ran.code == 0
    backups = {Path(each).parent for each in ran.document["backups"]}
    assert backups == {Path(f"{disk}.kseg-backup") for disk in disks}
    assert all(
        not (disk / f"orders-{n}" / f"{0:020d}.log").exists() for n, disk in enumerate(disks)
    )


def test_the_broker_s_file_alone_is_enough_for_the_doctor(
    kseg: Kseg, disks: tuple[Path, Path]
) -> None:
    ran = kseg("doctor", "--broker-config", properties(disks), "--json")
    assert partitions_of(ran.document) == {"orders-0", "orders-1"}
    assert kseg("doctor").code == 2


def test_a_file_that_names_no_directory_is_refused_without_its_values(
    kseg: Kseg, tmp_path: Path
) -> None:
    file = tmp_path / "client.properties"
    file.write_text("sasl.jaas.config=secret\n")
    ran = kseg("doctor", file)
    assert (ran.code, "no log.dirs" in ran.err, "secret" in ran.err) == (2, True, False)


def test_a_topic_that_is_in_none_of_them_is_an_error(kseg: Kseg, disks: tuple[Path, Path]) -> None:
    ran = kseg("retain", *disks, "--topic", "order")
    assert (ran.code, "did you mean orders?" in ran.err) == (3, True)
