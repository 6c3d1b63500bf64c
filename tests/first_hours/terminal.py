"""What somebody types in the first hour with kseg, and must see."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent

#: `kseg` and `python`, as a shell finds them.
_COMMANDS = {"kseg": "-c 'from kseg.cli.main import main; main()'", "python": ""}
#: `kseg` for whom the disk has no block but those that it frees itself.
_WITHOUT_ROOM = """-c '
from kseg.cli.main import main
from tests import full_disk
with full_disk.full():
    main()
'"""


@dataclass(frozen=True)
class Terminal:
    """A shell in a directory."""

    directory: Path

    @classmethod
    def open(cls, root: Path) -> Terminal:
        """One in a new directory below `root`, with both commands on its path."""
        (root / "bin").mkdir()
        (root / "home").mkdir()
        terminal = cls(root / "home")
        for name, words in _COMMANDS.items():
            terminal._install(name, words)
        return terminal

    def fill_up(self) -> None:
        """Let every `kseg` from here on find its disk full, where no such disk can be made."""
        self._install("kseg", _WITHOUT_ROOM)

    def empty(self) -> None:
        """Take that back."""
        self._install("kseg", _COMMANDS["kseg"])

    def _install(self, name: str, words: str) -> None:
        command = self.directory.parent / "bin" / name
        command.write_text(f'#!/bin/sh\nexec "{sys.executable}" {words} "$@"\n')
        command.chmod(0o755)

    def types(self, line: str, *sees: str, code: int = 0) -> str:
        """Type a line; see each of these in what it prints, in this order, and its exit code."""
        return self._run(["sh", "-c", line], sees, code)

    def runs(self, program: str, *sees: str) -> str:
        """Run a program of Python."""
        return self._run(["python", "-W", "error", "-c", dedent(program)], sees, 0)

    def _run(self, words: list[str], sees: tuple[str, ...], code: int) -> str:
        ran = subprocess.run(
            words,
            cwd=self.directory,
            env={
                **os.environ,
                "PATH": f"{self.directory.parent / 'bin'}:{os.environ['PATH']}",
                "PYTHONPATH": os.pathsep.join(sys.path),
                "COLUMNS": "200",
                "NO_COLOR": "1",
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        assert ran.returncode == code, f"{words[-1]}\nexit {ran.returncode}\n{ran.stdout}"
        at = 0
        for text in sees:
            found = ran.stdout.find(text, at)
            assert found >= 0, f"{words[-1]}\nno {text!r} behind {at} in\n{ran.stdout}"
            at = found + len(text)
        return ran.stdout
