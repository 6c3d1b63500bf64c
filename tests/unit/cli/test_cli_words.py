"""What new users stumbled over: each line says what is there, why, and what to type instead."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

import kseg as library
from kseg import KsegError
from kseg.files import io
from tests.unit.cli.conftest import Kseg

NOW_MS = 1_760_000_000_000


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data directory whose partitions 0, 1, 2 and 10 hold a record each, closed cleanly."""
    root = tmp_path / "data"
    root.mkdir()
    with library.LogDirectory.open(root, mode="append") as directory:
        for number in (0, 1, 2, 10):
            log = directory.create("orders", number)
            log.append({"value": ["x"], "timestamp": [NOW_MS]})
    return root


def test_an_empty_log_says_where_it_goes_on(kseg: Kseg, tmp_path: Path) -> None:
    with library.Log.open(tmp_path / "t-0", mode="append", create=True) as log:
        pass
    ran = kseg("read", tmp_path / "t-0", "--offset", "5")
    assert "the log has no records; its next offset is 0" in ran.err
    assert log.log_end_offset == 0


def test_a_closed_log_gives_nothing_any_more(tmp_path: Path) -> None:
    with library.Log.open(tmp_path / "t-0", mode="append", create=True) as log:
        log.append({"value": ["x"]})
        assert log.fetch(0).size
    for use in (
        lambda: log.fetch(0),
        lambda: next(log.follow(0)),
        lambda: log.append({"value": ["y"]}),
    ):
        with pytest.raises(KsegError, match="t-0: the log is closed"):
            use()


@pytest.mark.parametrize("verb", ["export", "convert"])
@pytest.mark.parametrize("name", ["pipe.csv", "link.csv", "/dev/full"])
def test_what_is_no_regular_file_is_not_replaced(
    kseg: Kseg, data: Path, tmp_path: Path, verb: str, name: str
) -> None:
    os.mkfifo(tmp_path / "pipe.csv")
    (tmp_path / "link.csv").symlink_to("pipe.csv")
    target = tmp_path / name
    source = data / "orders-0" / f"{0:020d}.log"
    more = ("--force",) if verb == "convert" else ()
    ran = kseg(verb, source, "-o", target, *more)
    is_directory = verb == "export" and target.suffix != ".csv"
    told = "not a directory" if is_directory else "not a regular file; nothing replaces it"
    assert (ran.code, ran.err) == (3, f"kseg: {target}: {told}\n")
    assert not target.is_file()
    assert target.exists()


def test_a_file_where_a_directory_is_to_be_is_called_so(kseg: Kseg, data: Path) -> None:
    (data.parent / "taken").write_bytes(b"")
    for out in ("taken", "taken/out.csv"):
        ran = kseg("export", data / "orders-0", "-o", data.parent / out)
        assert (ran.code, ran.err) == (3, f"kseg: {data.parent / 'taken'}: not a directory\n")


def refused() -> Any:
    """What a call does for whom the system lets neither read nor write."""

    def run(path: Any, *_rest: Any, **_named: Any) -> Any:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), os.fspath(path))

    return run


def test_a_file_that_cannot_be_made_is_called_by_its_own_name(
    kseg: Kseg, data: Path, tmp_path: Path
) -> None:
    target = tmp_path / "out.csv"
    with io.calls_replaced(io.Calls(open=refused())):
        ran = kseg("export", data / "orders-0", "-o", target)
    shown = f"this shows whose it is: ls -ld {tmp_path}"  # the file is not there
    assert (ran.code, ran.err) == (3, f"kseg: {target}: Permission denied; {shown}\n")


def test_one_partition_that_cannot_be_read_is_the_file_system_s_no(
    kseg: Kseg, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    no = PermissionError(errno.EACCES, "Permission denied", "x")
    monkeypatch.setattr("kseg.catalog._why_unreadable", lambda _entry: no)
    ran = kseg("lookup", data / "orders-0", "--offset", "0")
    assert (ran.code, ran.out) == (3, b"")
    assert ran.err.startswith("kseg: x: Permission denied; this shows whose it is: ls -ld ")
