"""Runs a story and prints what the seam saw, and what Python's audit hooks saw, as JSON lines.

    python -m tests.crash.traced ROOT SEED

Meant to be run under `strace`, whose list is then the third: all must be the same.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from kseg.files import io
from tests.crash.kills import counted
from tests.crash.oplog import (
    Dress,
    Name,
    Op,
    Recorder,
    Rename,
    Reserve,
    Resize,
    Sync,
    SyncNames,
    Unname,
)
from tests.crash.oplog import Write as Written
from tests.crash.stories import Author

#: Audit event -> what it is called here; only those that change names, owners and times.
AUDITED = {
    "os.rename": "rename",
    "os.remove": "unlink",
    "os.rmdir": "rmdir",
    "os.mkdir": "mkdir",
    "os.link": "link",
    "os.utime": "utime",
    "os.chmod": "chmod",
    "os.chown": "chown",
    "os.symlink": "beside the seam",
    "os.truncate": "ftruncate",
    "shutil.move": "beside the seam",
}
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


class Audit:
    """What Python does to files below a directory, as far as its audit hooks tell it."""

    def __init__(self, root: Path) -> None:
        self.root = os.fspath(root)
        self.seen: list[str] = []
        sys.addaudithook(self._hook)

    def _hook(self, event: str, args: tuple[Any, ...]) -> None:
        if event == "open":
            path, _mode, flags = args
            if self._below(path) and isinstance(flags, int) and flags & _WRITING:
                self.seen.append("open")
        elif event in AUDITED and self._below(args[0]):
            self.seen.append(AUDITED[event])

    def _below(self, path: object) -> bool:
        return isinstance(path, str | os.PathLike) and os.fspath(path).startswith(self.root)


def told(ops: Iterable[Op]) -> list[str]:
    """The seam's log in the words of `strace`'s."""
    words = {
        Written: "write",
        Resize: "truncate",
        Reserve: "reserve",
        Sync: "flush",
        SyncNames: "flush",
        Name: "create",
        Unname: "unlink",
        Rename: "rename",
        Dress: "dress",
    }
    return [words[type(op)] for op in ops if type(op) in words]


def main() -> None:
    root, seed = Path(sys.argv[1]), sys.argv[2]
    story = Author(seed).story(20)
    asked: list[str] = []

    def ask(_number: int, name: str, args: tuple[Any, ...], _more: dict[str, Any]) -> None:
        if isinstance(args[0], int):
            return  # what is done by a descriptor names no path
        if name in AUDITED.values():
            asked.append(name)
        elif name == "open" and args[1] & _WRITING:
            asked.append("open")

    recorder = Recorder(root, counted(io.Calls(), ask))
    audit = Audit(root)
    with io.calls_replaced(recorder.calls):
        story.run(root, lambda _value: None)
    print(json.dumps({"seam": told(recorder.ops), "asked": asked, "audited": audit.seen}))


if __name__ == "__main__":
    main()
