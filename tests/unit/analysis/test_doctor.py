"""The doctor: what is wrong with a broker's data directories, what follows, and what mends it."""

from __future__ import annotations

import os
import resource
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kseg.analysis.doctor import CODES, BrokerFinding, DoctorReport, Outcome, answer, doctor
from kseg.cli.main import run
from tests.golden import made as files
from tests.terminal import type_line
from tests.unit.analysis.healthy import (
    LAST,
    LAST_BATCHES,
    Data,
    snapshot,
)
from tests.unit.cli.conftest import made_in
from tests.unit.log.settings import made

STARTS, OFFLINE, FAILS = Outcome.STARTS, Outcome.OFFLINE, Outcome.FAILS


@pytest.fixture
def data(tmp_path: Path) -> Data:
    """A data directory that was shut down cleanly, with one partition."""
    return Data(made_in(tmp_path, files.sound))


def unclean(data: Data) -> None:
    (data.root / ".kafka_cleanshutdown").unlink()


def write(name: str, text: str) -> Callable[[Data], object]:
    return lambda data: (data.root / name).write_text(text)


STRAYS = "a start renames it to -stray, keeps it and does not serve it"


def only(found: DoctorReport, code: str) -> BrokerFinding:
    return next(one for one in found.all_findings() if one.code == code)


def mends(one: BrokerFinding) -> None:
    """Run what the last line of its advice says."""
    assert one.mend is not None
    type_line(one.mend.splitlines()[-1])


# ---- several directories -------------------------------------------------------------------------


@pytest.mark.parametrize("is_open", [False, True])
@pytest.mark.parametrize("name", ["recovery-point", "log-start"])
def test_a_load_in_a_directory_that_is_offline_stops_the_broker_at_an_open_transaction(
    data: Data, name: str, is_open: bool
) -> None:
    begun = (7, 0, -1, -1, 0, 1003, 0, 8 if is_open else -1)
    data.file(11, ".snapshot").write_bytes(snapshot(begun))
    write(f"{name}-offset-checkpoint", "x\n")(data)
    found = only(doctor(data.root), "checkpoint-format")
    assert found.outcome is (FAILS if is_open else OFFLINE)


def test_a_directory_given_twice_stops_the_broker(data: Data) -> None:
    assert only(doctor([data.root, data.root]), "same-directory").outcome is FAILS


def test_a_directory_that_is_not_there_is_made_empty(data: Data) -> None:
    found = doctor([data.root, data.root.with_name("unmounted")])
    assert only(found, "missing").mend == "mount the disk"
    assert not found.ok


# ---- the machine ---------------------------------------------------------------------------------


def test_a_file_that_the_owner_may_not_write_is_named(data: Data) -> None:
    if os.getuid() == 0:
        for path in (data.root, *data.root.rglob("*")):
            os.chown(path, 4242, 4242)
        os.chown(data.file(LAST), 0, 0)
    data.file(LAST).chmod(0o444)
    one = only(doctor(data.root), "rights")
    assert data.file(LAST).name in one.message
    assert (one.outcome, one.exception) == (OFFLINE, "IOException")


@pytest.mark.parametrize(
    ("code", "values"),
    [
        ("read-only", {"f_flag": os.ST_RDONLY}),
        ("inodes", {"f_files": 1000, "f_favail": 0}),
    ],
)
def test_the_file_system_is_asked(
    data: Data, monkeypatch: pytest.MonkeyPatch, code: str, values: dict[str, int]
) -> None:
    monkeypatch.setattr(answer.os, "statvfs", lambda path: Disk(**values))
    assert only(doctor(data.root), code).outcome is OFFLINE


@dataclass(frozen=True)
class Disk:
    """What a file system says of itself."""

    f_flag: int = 0
    f_files: int = 0
    f_favail: int = 0
    f_bavail: int = 10
    f_frsize: int = 4096


def test_too_little_room_is_named(data: Data, monkeypatch: pytest.MonkeyPatch) -> None:
    data.file(0, ".index").unlink()
    unclean(data)
    monkeypatch.setattr(answer.os, "statvfs", lambda path: Disk(f_bavail=0))
    assert only(doctor(data.root), "room").outcome is OFFLINE


def test_limits_of_the_machine_are_warnings(
    data: Data, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda which: (64, 64))
    most = tmp_path / "max_map_count"
    most.write_text("3\n")
    monkeypatch.setattr(answer, "_MAPS_MAX", most)
    found = doctor(data.root)
    assert "2 segments" in only(found, "open-files").message
    assert "4 indexes" in only(found, "maps").message
    assert found.ok


def test_what_cannot_be_read_is_a_row_of_the_answer(
    data: Data, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: object) -> Any:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(answer, "list_entries", refuse)
    found = doctor(data.root)
    assert only(found, "unreadable").outcome is OFFLINE


# ---- what is printed -----------------------------------------------------------------------------


def printed(capsys: pytest.CaptureFixture[str], root: Path) -> list[str]:
    run(["doctor", str(root)])
    return capsys.readouterr().out.splitlines()


def test_an_empty_segment_has_nothing_that_is_read_again(
    data: Data, capsys: pytest.CaptureFixture[str]
) -> None:
    data.write_log(LAST, *LAST_BATCHES)
    end = doctor(data.root).directories[0].partitions[0].log_end_offset
    data.file(end).touch()
    assert [line for line in printed(capsys, data.root) if "read again" in line] == []


# ---- releases, processes, codes ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ([], "no longer belongs to the cluster"),
        ([made.topic("orders", made.SECOND)], "now has another id"),
        ([made.topic("orders")], None),
    ],
    ids=["removed", "made again", "still there"],
)
def test_a_partition_of_another_topic_goes_astray(
    tmp_path: Path, said: list[made.Said], why: str | None
) -> None:
    broker = made.Broker(tmp_path / "data")
    broker.says([made.topic("others", made.UUID(int=9)), *said])
    broker.has()
    found = doctor(broker.path)
    strays = [one.message for one in found.all_findings() if one.code == "stray"]
    assert len(strays) == (why is not None)
    assert all(why is not None and why in message for message in strays)


#: What a metadata log says of a topic's partitions, and why partition 0 is not on node 7.
ASSIGNED: dict[str, tuple[list[made.Said | bytes], str | None]] = {
    "here": ([made.partition(made.FIRST, 0, [7, 8])], None),
    "elsewhere": (
        [made.partition(made.FIRST, 0, [8])],
        "its replicas are on 8 and not on 7 any more",
    ),
    "no such one": ([made.partition(made.FIRST, 1, [7])], "its topic has no such partition"),
    "moved away": (
        [made.partition(made.FIRST, 0, [7]), made.moved(made.FIRST, 0, [8, 9])],
        "its replicas are on 8, 9 and not on 7 any more",
    ),
    "moved here": ([made.partition(made.FIRST, 0, [8]), made.moved(made.FIRST, 0, [8, 7])], None),
    "changed": ([made.partition(made.FIRST, 0, [7]), made.moved(made.FIRST, 0, None)], None),
}


@pytest.mark.parametrize(
    ("said", "why"),
    [*ASSIGNED.values(), ([made.partition(made.FIRST, 0, [8]), made.NEWER_PARTITION], None)],
    ids=[*ASSIGNED, "newer"],
)
def test_a_partition_whose_replicas_are_elsewhere_goes_astray(
    tmp_path: Path, said: list[made.Said | bytes], why: str | None
) -> None:
    broker = made.Broker(tmp_path / "data")
    broker.says([made.topic("orders")], said)
    broker.has()
    strays = [one.message for one in doctor(broker.path).all_findings() if one.code == "stray"]
    assert strays == ([] if why is None else [f"stray: {why}; {STRAYS}"])


def test_a_topic_that_is_made_again_forgets_its_replicas(tmp_path: Path) -> None:
    broker = made.Broker(tmp_path / "data")
    broker.says(
        [made.topic("orders"), made.partition(made.FIRST, 0, [8])],
        [made.removed(made.FIRST), made.topic("orders"), made.partition(made.FIRST, 0, [7])],
    )
    broker.has()
    assert "stray" not in {one.code for one in doctor(broker.path).all_findings()}


def test_a_partition_without_an_id_goes_astray_in_kraft(tmp_path: Path) -> None:
    broker = made.Broker(tmp_path / "data")
    broker.says([made.topic("orders")])
    (broker.path / "orders-0").mkdir()
    assert "so its topic id is unknown" in only(doctor(broker.path), "stray").message


@pytest.mark.parametrize("text", [None, "0\n1\n6 220\n"])
@pytest.mark.parametrize(
    ("case", "more"), [("4.2.0-local/plain-0", ""), ("4.2.0-split/split-0", " --tier URL")]
)
def test_leader_epochs_that_do_not_reach_the_start_of_the_tier_delete_it(
    fixtures_dir: Path, tmp_path: Path, text: str | None, case: str, more: str
) -> None:
    name, _, partition = case.partition("/")
    home = tmp_path / "data"
    shutil.copytree(fixtures_dir / "tiered" / name / "local", home)
    assert "tier-deleted" not in {one.code for one in doctor(home).all_findings()}
    path = home / partition / "leader-epoch-checkpoint"
    path.unlink()
    if text is not None:
        path.write_text(text)
    one = only(doctor(home), "tier-deleted")
    assert "segments of the tier" in one.message
    assert str(one.mend).endswith(f"kseg recover {home / partition}{more} --apply")
    if not more:
        mends(one)
        assert "tier-deleted" not in {one.code for one in doctor(home).all_findings()}


def test_each_code_is_met_by_a_test() -> None:
    elsewhere = {
        *("missing", "unreadable", "in-use", "read-only", "rights", "room", "inodes", "ids"),
        *("same-directory", "duplicate-partition", "metadata-elsewhere", "no-directory"),
        *("not-given", "open-files", "maps", "stray", "tier-deleted"),
        *("partition-lost", "partition-behind", "partition-elsewhere"),
        *("metadata-missing", "metadata-cut", "metadata-fetched", "metadata-snapshot"),
        *("feature-level",),
        *("setting-refused", "setting-missing", "setting-ignored", "tier-off"),
    }
    told = (Path(files.__file__).parent / "sessions" / "doctor.txt").read_text()
    assert {code for code in CODES if f'"{code}"' in told} | elsewhere == set(CODES)
