"""What verbs make beside files of another user belongs to that user, or nothing is made."""

from __future__ import annotations

import grp
import os
import pwd
import shutil
import stat
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

from kseg.cli.main import run
from kseg.log.config import LogConfig
from kseg.log.directory import LogDirectory
from tests.builders import batch, record
from tests.unit.cli.conftest import Kseg
from tests.unit.files.foreign import as_user, root_only

OWNER, GROUP = 1000, 1001
NOW_MS = 1_760_000_000_000
NOW = "2025-10-09T08:53:20Z"
LINE = b'{"value":"djE="}\n'


def write_logs(data: Path) -> Path:
    """`orders-0` with four segments, `clicks-3` with one, shut down cleanly."""
    data.mkdir()
    config = LogConfig(segment_bytes=400)
    with LogDirectory.open(data, mode="append", config=config, now_ms=lambda: NOW_MS) as directory:
        orders, clicks = directory.create("orders", 0), directory.create("clicks", 3)
        for days in (9, 8, 1, 0):
            orders.append(batch([record(bytes(200), timestamp=NOW_MS - days * 86_400_000)]))
        clicks.append(batch([record(b"", timestamp=NOW_MS)]))
    return data


def give(data: Path) -> None:
    """Make it look as a broker of another user leaves it."""
    for path in (data, *data.rglob("*")):
        path.chmod(0o750 if path.is_dir() else 0o640)
        os.chown(path, OWNER, GROUP)


def looks(*trees: Path) -> set[tuple[bool, int, int, int]]:
    found = [(path, os.lstat(path)) for tree in trees for path in (tree, *tree.rglob("*"))]
    return {
        (path.is_dir(), status.st_uid, status.st_gid, stat.S_IMODE(status.st_mode))
        for path, status in found
    }


def damage(data: Path) -> None:
    """A torn end, an index that is wrong, and no mark."""
    last = max((data / "orders-0").glob("*.log"))
    last.write_bytes(last.read_bytes() + b"torn")
    (data / "orders-0" / f"{0:020d}.timeindex").write_bytes(b"garbage!" * 3)
    (data / "orders-0" / f"{0:020d}.index").unlink()
    (data / ".kafka_cleanshutdown").unlink()


def append(data: Path) -> list[object]:
    return ["append", data / "orders-0", "--config", "segment.bytes=300"]


def append_new(data: Path) -> list[object]:
    return ["append", data / "orders-7"]


def retain(data: Path) -> list[object]:
    words = ["--config", "retention.bytes=1", "--config", "segment.bytes=300"]
    return ["retain", data / "orders-0", "--now", NOW, "--apply", *words]


def recover(data: Path) -> list[object]:
    damage(data)
    give(data)
    return ["recover", data, "--apply"]


def truncate(data: Path) -> list[object]:
    return ["truncate", data / "orders-0", "--to", 2, "--apply"]


def reindex(data: Path) -> list[object]:
    (data / "orders-0" / f"{0:020d}.timeindex").unlink()
    return ["reindex", data, "--apply"]


def recovered_copy(data: Path) -> list[object]:
    damage(data)
    give(data)
    return ["recover", data / "orders-0", "-o", data.parent / "copies"]


def converted(data: Path) -> list[object]:
    for path in (data / "clicks-3").iterdir():
        path.unlink()
    log = data / "orders-0" / f"{0:020d}.log"
    return [
        "convert",
        log,
        "-o",
        data / "clicks-3" / f"{7:020d}.log",
        "--codec",
        "gzip",
        "--on-corrupt",
        "skip",
    ]


CHANGES = [append, append_new, retain, recover, truncate, reindex, recovered_copy, converted]


@root_only
@pytest.mark.parametrize("change", CHANGES)
def test_what_root_makes_belongs_to_the_owner_of_the_directory(
    kseg: Kseg, tmp_path: Path, change: Callable[[Path], list[object]]
) -> None:
    data = write_logs(tmp_path / "data")
    give(data)
    tmp_path.chmod(0o755)
    ran = kseg(*change(data), stdin=LINE)
    assert (ran.code, ran.err) == (0, ran.err)
    trees = [tree for tree in tmp_path.iterdir() if tree.name != "data.kseg-backup"]
    assert looks(*trees) == {(True, OWNER, GROUP, 0o750), (False, OWNER, GROUP, 0o640)}
    backups = list(tmp_path.glob("data.kseg-backup/*/*/*"))
    assert {os.lstat(path)[4:6] for path in backups} <= {(OWNER, GROUP)}


@root_only
@pytest.mark.parametrize("change", CHANGES)
def test_another_user_is_refused_before_any_change(
    public_path: Path, change: Callable[[Path], list[object]]
) -> None:
    data = write_logs(public_path / "data")
    give(data)
    words = [str(word) for word in change(data)]
    for path in (public_path, *public_path.rglob("*")):
        path.chmod(0o777)
    before = everything(public_path)

    def work() -> None:
        assert run(words) == 3

    assert as_user(OWNER + 7, work) == ""
    assert everything(public_path) == before


def everything(root: Path) -> dict[Path, tuple[object, ...]]:
    found = {}
    for path in root.rglob("*"):
        status = os.lstat(path)
        data = path.read_bytes() if path.is_file() else b""
        found[path] = (data, status.st_mode, status.st_uid, status.st_gid, status.st_mtime_ns)
    return found


# ---- copies elsewhere ----------------------------------------------------------------------------


def salvaged(data: Path, out: Path) -> list[object]:
    return ["salvage", data, "-o", out]


def merged(data: Path, out: Path) -> list[object]:
    return ["merge", data, data.parent / "replica", "-o", out]


def converted_tree(data: Path, out: Path) -> list[object]:
    return ["convert", data, "-o", out, "--codec", "gzip", "--on-corrupt", "skip"]


def exported(data: Path, out: Path) -> list[object]:
    return ["export", data, "-o", out, "--format", "csv", "--on-corrupt", "skip"]


def exported_by_topic(data: Path, out: Path) -> list[object]:
    words = ["--format", "jsonl", "--partition-by", "topic", "--on-corrupt", "skip"]
    return ["export", data, "-o", out, *words]


COPIES = [salvaged, merged, converted_tree, exported, exported_by_topic]


def damaged_logs(place: Path) -> Path:
    """Logs that have something for the quarantine, and a replica of them."""
    data = write_logs(place / "data")
    shutil.copytree(data, place / "replica")
    log = max((data / "orders-0").glob("*.log"))
    log.write_bytes(log.read_bytes() + b"torn" * 40)
    return data


@root_only
@pytest.mark.parametrize("verb", COPIES)
def test_root_gives_copies_the_owner_and_permissions_of_the_logs(
    kseg: Kseg, tmp_path: Path, verb: Callable[[Path, Path], list[object]]
) -> None:
    data = damaged_logs(tmp_path)
    for tree in (data, tmp_path / "replica"):
        give(tree)
    before = os.umask(0o077)  # it does not count where root copies
    try:
        ran = kseg(*verb(data, tmp_path / "out"))
    finally:
        os.umask(before)
    assert ran.code in (0, 1), ran.err
    assert looks(tmp_path / "out") == {(True, OWNER, GROUP, 0o750), (False, OWNER, GROUP, 0o640)}
    assert "chown" not in ran.text + ran.err
    beside = tmp_path / "out.kseg-salvage"
    if beside.exists():
        assert looks(beside) == {(True, 0, 0, 0o700), (False, 0, 0, 0o600)}


@pytest.mark.parametrize("verb", COPIES)
@pytest.mark.parametrize(
    ("mode", "user"),
    [(0o600, os.geteuid() or OWNER), pytest.param(0o640, OWNER + 7, marks=root_only)],
)
def test_copies_of_any_other_user_are_no_wider_than_the_logs_and_say_the_chown(
    public_path: Path, verb: Callable[[Path, Path], list[object]], mode: int, user: int
) -> None:
    data = damaged_logs(public_path)
    for path in (*data.rglob("*.*"), *(public_path / "replica").rglob("*.*")):
        path.chmod(mode)
    out, said = public_path / "own place" / "out", public_path / "said"
    out.parent.mkdir()
    said.touch()
    if os.geteuid() == 0:
        for path in (public_path, *public_path.rglob("*")):
            os.chown(path, OWNER, GROUP)
        for path in (out.parent, said):
            os.chown(path, user, GROUP)

    def work() -> None:
        os.umask(0o022)
        with said.open("w") as file, redirect_stdout(file), redirect_stderr(file):
            assert run([str(word) for word in verb(data, out)]) in (0, 1)

    assert as_user(user, work, gid=GROUP if os.geteuid() == 0 else os.getegid()) == ""
    modes = {stat.S_IMODE(os.lstat(path).st_mode) for path in out.rglob("*.log")}
    modes |= {stat.S_IMODE(os.lstat(path).st_mode) for path in out.rglob("*.[cj]s*")}
    assert modes == {mode}
    beside = out.with_name("out.kseg-salvage")
    if beside.exists():
        assert {look[3] for look in looks(beside)} <= {0o700, 0o600}
    lines = said.read_text().splitlines()
    command = f"chown -R {user_name(OWNER)}:{group_name(GROUP)} '{out}"
    is_said = any(line.startswith(command) for line in lines)
    assert is_said == (user != OWNER and os.geteuid() == 0), lines


def user_name(uid: int) -> str:
    return {one.pw_uid: one.pw_name for one in pwd.getpwall()}.get(uid, str(uid))


def group_name(gid: int) -> str:
    return {one.gr_gid: one.gr_name for one in grp.getgrall()}.get(gid, str(gid))


# ---- a place that another user holds -------------------------------------------------------------


def of_another(place: Path) -> None:
    place.mkdir()
    os.chown(place, OWNER, OWNER)


def open_to_all(place: Path) -> None:
    place.mkdir()
    place.chmod(0o777)


def open_to_a_group(place: Path) -> None:
    place.mkdir()
    place.chmod(0o770)


def around_it_open(place: Path) -> None:
    place.parent.chmod(0o777)


@pytest.mark.parametrize("verb", [salvaged, merged])
@pytest.mark.parametrize("name", ["out", "out.kseg-salvage"])
@pytest.mark.parametrize(
    "prepare",
    [pytest.param(of_another, marks=root_only), open_to_all, open_to_a_group, around_it_open],
)
def test_a_place_that_another_user_can_change_is_refused(
    kseg: Kseg,
    tmp_path: Path,
    verb: Callable[[Path, Path], list[object]],
    name: str,
    prepare: Callable[[Path], None],
) -> None:
    data = damaged_logs(tmp_path)
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    prepare(shared / name)
    before = everything(shared)
    ran = kseg(*verb(data, shared / "out"))
    assert (ran.code, everything(shared)) == (3, before)
    assert "another user could change files here" in ran.err


# ---- places beside logs --------------------------------------------------------------------------


#: Verbs that make something at OUT.
OUTPUTS = {
    "export": ("export", "data/orders-0", "-o", "OUT"),
    "salvage": ("salvage", "data/orders-0", "-o", "OUT"),
    "merge": ("merge", "data", "copy", "-o", "OUT"),
    "recover": ("recover", "data", "-o", "OUT"),
    "retain": ("retain", "data", "--config", "retention.bytes=1", "-o", "OUT"),
    "compact": ("compact", "data", "--config", "cleanup.policy=compact", "-o", "OUT"),
    "truncate": ("truncate", "data/orders-0", "--to", "2", "-o", "OUT"),
    "reindex": ("reindex", "data", "-o", "OUT"),
    "convert": ("convert", "data/orders-0", "--codec", "gzip", "-o", "OUT"),
    "report": ("report", "data", "-o", "OUT.html"),
    "demo": ("demo", "-o", "OUT"),
    "a backup of recover": ("recover", "data", "--apply", "--backup-dir", "OUT"),
    "a backup of convert": ("convert", "data", "--codec", "gzip", "--backup-dir", "OUT"),
}


@pytest.mark.parametrize("verb", OUTPUTS)
@pytest.mark.parametrize("place", ["other/new", "other/new/deep", "other/orders-9/new", "link/new"])
def test_nothing_is_made_beside_the_logs_of_a_data_directory(
    kseg: Kseg, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str, place: str
) -> None:
    write_logs(tmp_path / "data")
    shutil.copytree(tmp_path / "data", tmp_path / "copy")
    (write_logs(tmp_path / "other") / "meta.properties").touch()
    (tmp_path / "link").symlink_to("other")
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    ran = kseg(*(word.replace("OUT", place) for word in OUTPUTS[verb]))
    assert ran.code == 2, ran
    assert "lies in a data directory, " in ran.err
    assert sorted(tmp_path.rglob("*")) == before


def test_copies_are_not_a_data_directory_which_is_said(kseg: Kseg, tmp_path: Path) -> None:
    data = write_logs(tmp_path / "data")
    damage(data)
    ran = kseg("recover", data, "-o", tmp_path / "out")
    assert ran.code == 0
    assert f"{tmp_path / 'out'} has logs alone: no broker starts on it" in ran.err
