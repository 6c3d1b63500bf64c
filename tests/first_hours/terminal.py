"""What somebody types in the first hour with kseg, and must see."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent

#: `kseg` and `python`, as a shell finds them.
_COMMANDS = {
    "kseg": "-c 'from kseg.cli.main import main; main()'",
    "python": "",
}


@dataclass(frozen=True)
class Terminal:
    """A shell in a directory."""

    directory: Path

    @classmethod
    def open(cls, root: Path) -> Terminal:
        """One in a new directory below `root`, with both commands on its path."""
        (root / "bin").mkdir()
        for name, words in _COMMANDS.items():
            command = root / "bin" / name
            command.write_text(f'#!/bin/sh\nexec "{sys.executable}" {words} "$@"\n')
            command.chmod(0o755)
        (root / "home").mkdir()
        return cls(root / "home")

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
