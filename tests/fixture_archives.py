"""The fixtures, unpacked: `tests/data/fixtures` holds one archive a case.

Run `python -m tests.fixture_archives DIR` to pack the cases of a directory with `old/` and `new/`.
"""

from __future__ import annotations

import hashlib
import os
import sys
import tarfile
import tempfile
from functools import cache
from pathlib import Path

ARCHIVES = Path(__file__).parent / "data" / "fixtures"
_UNPACKED = Path(__file__).parents[1] / "build" / "fixtures"
#: The modification time of every file: archives and golden outputs repeat.
MTIME_S = 1_700_000_000


@cache
def unpacked() -> Path:
    """The directory with `old/CASE` and `new/CASE`; unpacked when the archives have changed.

    In an sdist, which has no archives, it is a directory that does not exist.
    """
    digest = hashlib.sha256()
    archives = sorted(ARCHIVES.glob("*/*.tar.xz"))
    if not archives:
        return ARCHIVES
    for archive in archives:
        digest.update(archive.name.encode() + archive.read_bytes())
    target = _UNPACKED / digest.hexdigest()[:16]
    if target.is_dir():
        return target
    _UNPACKED.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=_UNPACKED) as scratch:
        for archive in archives:
            with tarfile.open(archive) as file:
                file.extractall(Path(scratch, "all", archive.parent.name), filter="data")
        try:
            os.rename(Path(scratch, "all"), target)
        except OSError:  # another process of the same run was first
            if not target.is_dir():
                raise
    return target


def pack(directory: Path) -> None:
    """Write the archive of each `old/CASE` and `new/CASE`; the same files give the same bytes."""
    import lzma  # a Python without it can still run the tests of an sdist

    for case in sorted(path.parent for path in directory.glob("*/*/case.json")):
        archive = ARCHIVES / case.parent.name / f"{case.name}.tar.xz"
        archive.parent.mkdir(parents=True, exist_ok=True)
        with (
            lzma.open(archive, "wb", preset=9 | lzma.PRESET_EXTREME) as packed,
            tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as file,
        ):
            for path in [case, *sorted(case.rglob("*"))]:
                name = str(path.relative_to(case.parent))
                file.add(path, name, recursive=False, filter=_plain)


def _plain(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """Without what differs between machines: owner, mode and time."""
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    member.mtime = MTIME_S
    member.mode = 0o755 if member.isdir() else 0o644
    return member


if __name__ == "__main__":
    pack(Path(sys.argv[1]))
