"""The command line as somebody types it: in a shell, and on a pseudo-terminal."""

from __future__ import annotations

import fcntl
import os
import pty
import shlex
import struct
import subprocess
import sys
import termios

#: `kseg` for a shell, whether or not it is installed.
_KSEG = (
    f"kseg() {{ {shlex.quote(sys.executable)} "
    "-c 'from kseg.cli.main import main; main()' \"$@\"; }"
)
#: Variables that change what is written to a terminal.
_VARIABLES = ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES")


def type_line(line: str, *, check: bool = True) -> int:
    """Run a line of a shell, which must succeed unless `check` is off; answers the exit code."""
    return subprocess.run(f"{_KSEG}\n{line}", shell=True, check=check).returncode


def on_a_terminal(*words: object, rows: int = 24, columns: int = 80, **variables: str) -> bytes:
    """What `kseg` prints with standard output and standard error on a terminal of this size."""
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    command = [sys.executable, "-c", "from kseg.cli.main import main; main()", *map(str, words)]
    kept = {name: value for name, value in os.environ.items() if name not in _VARIABLES}
    environment = {**kept, "TERM": "xterm", **variables}
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=follower, stderr=follower, env=environment
    ):
        os.close(follower)
        shown = b""
        while True:
            try:
                shown += (chunk := os.read(leader, 1 << 16))
            except OSError:  # nobody has the other end open any more
                break
            if not chunk:
                break
    os.close(leader)
    return shown
