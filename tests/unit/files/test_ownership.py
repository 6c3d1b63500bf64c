"""Which owner and permissions new files get: those of the files around them, or nothing is made."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from kseg.files import atomic, io, lock, ownership
from tests.unit.files.foreign import as_user, root_only

OTHER, GROUP = 1000, 1001


@pytest.fixture(autouse=True)
def _fresh() -> None:
    ownership.forget()


def made(path: Path, mode: int, *, data: bytes = b"") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    path.chmod(mode)
    return path


def mode_of_new(path: Path) -> int:
    io.WriteFile.open(path, exclusive=True).close()
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize(
    ("model", "new"),
    [
        ("orders-0/00000000000000000000.log", "orders-0/00000000000000000000.index"),
        ("orders-0/leader-epoch-checkpoint", "orders-0/00000000000000000000.log"),
        ("orders-0/00000000000000000007.log", "clicks-3/00000000000000000000.log"),
        ("meta.properties", "orders-0/00000000000000000000.log"),
        ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"),
        ("orders-0/00000000000000000000.log", "replication-offset-checkpoint"),
        ("00000000000000000000.kafka", "00000000000000000000.index"),
    ],
)
def test_a_new_file_has_the_permissions_of_those_around_it(
    tmp_path: Path, model: str, new: str
) -> None:
    made(tmp_path / model, 0o660)
    (tmp_path / new).parent.mkdir(exist_ok=True)
    assert mode_of_new(tmp_path / new) == 0o660


def test_the_first_log_is_the_model_and_links_and_strangers_are_none(tmp_path: Path) -> None:
    (tmp_path / f"{0:020d}.log").symlink_to(made(tmp_path / "elsewhere", 0o600))
    made(tmp_path / f"{5:020d}.log", 0o640)
    made(tmp_path / f"{9:020d}.log", 0o666)
    made(tmp_path / "notes.txt", 0o666)
    assert mode_of_new(tmp_path / "x.index") == 0o640


def test_a_directory_that_users_share_is_no_model(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    made(shared / "replication-offset-checkpoint", 0o666)
    shared.chmod(0o1777)
    assert mode_of_new(shared / "x.log") == 0o644


# ---- another user's ------------------------------------------------------------------------------


def refusing(_where: object, _uid: int, _gid: int) -> None:
    raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))


def _take_lock(path: Path) -> None:
    lock.acquire(path).release()


def _replace(path: Path) -> None:
    atomic.replace_file(path / "replication-offset-checkpoint", b"0\n0\n")


def _open_new(path: Path) -> None:
    io.WriteFile.open(path / "x.index", exclusive=True).close()


def _check(path: Path) -> None:
    io.check_new_files(path / "absent" / "too")


@pytest.mark.parametrize("change", [_take_lock, _check])
def test_where_files_cannot_be_given_to_their_owner_it_is_refused_before_any_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: Callable[[Path], None]
) -> None:
    made(tmp_path / "meta.properties", 0o644)
    someone = os.geteuid() + 1
    monkeypatch.setattr(os, "geteuid", lambda: someone)
    with (
        io.calls_replaced(io.Calls(chown=refusing)),
        pytest.raises(PermissionError, match=f"user {someone} cannot make such") as caught,
    ):
        change(tmp_path)
    assert caught.value.filename == str(tmp_path)
    assert os.listdir(tmp_path) == ["meta.properties"]


@pytest.mark.parametrize("call", ["chmod", "chown"])
@pytest.mark.parametrize("change", [_replace, _open_new])
def test_nothing_is_left_of_a_file_that_could_not_be_given_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: Callable[[Path], None], call: str
) -> None:
    made(tmp_path / "meta.properties", 0o600)
    look = ownership.Look(OTHER, GROUP, 0o600)
    monkeypatch.setattr(ownership, "of_files", lambda _directory: look)
    before = os.umask(0o777)

    def refuse(*_arguments: object) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    try:
        with io.calls_replaced(io.Calls(**{call: refuse})), pytest.raises(PermissionError):
            change(tmp_path)
    finally:
        os.umask(before)
    assert os.listdir(tmp_path) == ["meta.properties"]


@root_only
@pytest.mark.parametrize("change", [_take_lock, _replace, _open_new])
def test_root_gives_what_it_makes_to_the_owner_of_the_directory(
    tmp_path: Path, change: Callable[[Path], None]
) -> None:
    os.chown(tmp_path, OTHER, GROUP)
    seen = set()
    calls = io.Calls()

    def unlink(path: io.StrPath) -> None:
        seen.add(os.stat(path)[4:6])
        calls.unlink(path)

    with io.calls_replaced(io.Calls(unlink=unlink)):
        change(tmp_path)
    seen |= {os.stat(path)[4:6] for path in tmp_path.iterdir()}
    assert seen == {(OTHER, GROUP)}


@root_only
def test_a_link_put_under_the_name_of_a_new_directory_is_not_followed(tmp_path: Path) -> None:
    os.chown(tmp_path, OTHER, GROUP)
    target = tmp_path / "target"
    target.mkdir()
    calls = io.Calls()

    def mkdir(path: str, mode: int) -> None:
        calls.mkdir(path, mode)
        os.rmdir(path)
        os.symlink(target, path)

    with io.calls_replaced(io.Calls(mkdir=mkdir)), pytest.raises(OSError):  # noqa: PT011
        io.make_directory(tmp_path / "orders-0")
    assert target.stat().st_uid == 0


@root_only
@pytest.mark.parametrize("change", [_take_lock, _check])
def test_another_user_is_refused_however_open_the_directory_is(
    public_path: Path,
    change: Callable[[Path], None],
) -> None:
    os.chown(made(public_path / "meta.properties", 0o666), OTHER, GROUP)
    public_path.chmod(0o777)
    assert "PermissionError" in as_user(OTHER + 5, lambda: change(public_path))
    assert os.listdir(public_path) == ["meta.properties"]
    assert as_user(OTHER, lambda: change(public_path), GROUP) == ""
