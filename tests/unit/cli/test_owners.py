"""What verbs make beside files of another user belongs to that user, or nothing is made."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
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
    log = data / "orders-0" / f"{0:020d}.log"
    return ["convert", log, "-o", data / "clicks-3" / f"{7:020d}.log", "--codec", "gzip"]


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
