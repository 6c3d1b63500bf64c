"""The doctor: what is wrong with a broker's data directories, what follows, and what mends it."""

from __future__ import annotations

import os
import resource
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kseg.analysis.doctor import CODES, BrokerFinding, DoctorReport, Outcome, doctor, facts, rules
from tests.golden import made as files
from tests.unit.analysis.healthy import LAST, Data
from tests.unit.cli.conftest import made_in

OFFLINE, FAILS = Outcome.OFFLINE, Outcome.FAILS


@pytest.fixture
def data(tmp_path: Path) -> Data:
    """A data directory that was shut down cleanly, with one partition."""
    return Data(made_in(tmp_path, files.sound))


def unclean(data: Data) -> None:
    (data.root / ".kafka_cleanshutdown").unlink()


def only(found: DoctorReport, code: str) -> BrokerFinding:
    return next(one for one in found.all_findings() if one.code == code)


# ---- several directories -------------------------------------------------------------------------


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
    monkeypatch.setattr(os, "statvfs", lambda path: Disk(**values))
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
    monkeypatch.setattr(os, "statvfs", lambda path: Disk(f_bavail=0))
    assert only(doctor(data.root), "room").outcome is OFFLINE


def test_limits_of_the_machine_are_warnings(
    data: Data, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda which: (64, 64))
    most = tmp_path / "max_map_count"
    most.write_text("3\n")
    monkeypatch.setattr(rules, "MAPS_MAX", most)
    found = doctor(data.root)
    assert "2 segments" in only(found, "open-files").message
    assert "4 indexes" in only(found, "maps").message
    assert found.ok


def test_what_cannot_be_read_is_a_row_of_the_answer(
    data: Data, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: object) -> Any:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(facts, "list_entries", refuse)
    found = doctor(data.root)
    assert only(found, "unreadable").outcome is OFFLINE


def test_each_code_is_met_by_a_test() -> None:
    elsewhere = {
        *("missing", "unreadable", "in-use", "read-only", "rights", "room", "inodes", "ids"),
        *("same-directory", "duplicate-partition", "metadata-elsewhere", "no-directory"),
        *("not-given", "open-files", "maps"),
        *("partition-lost", "partition-behind", "partition-elsewhere"),
        *("metadata-missing", "metadata-cut", "metadata-fetched", "metadata-snapshot"),
        *("feature-level",),
        *("setting-refused", "setting-missing", "setting-ignored", "tier-off"),
    }
    told = (Path(files.__file__).parent / "sessions" / "doctor.txt").read_text()
    assert {code for code in CODES if f'"{code}"' in told} | elsewhere == set(CODES)
