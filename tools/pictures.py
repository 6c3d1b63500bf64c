"""Draw the two pictures of the README: a terminal session that really ran, and one measured number.

    python tools/pictures.py docs

The session runs kseg in a terminal of its own, on a copy of the demo data. The number comes from
the table of docs/benchmarks.md.
"""

from __future__ import annotations

import fcntl
import io
import os
import pty
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import termios
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

ROOT = Path(__file__).parent.parent
COLUMNS = 100
#: What is typed, in a directory with the demo data, after a crash has cut `clicks-1`.
SESSION = (
    "kseg info data --topic orders --topic clicks",
    "kseg verify data/clicks-1",
    "kseg recover data/clicks-1 --apply --no-backup",
    "kseg verify data/clicks-1",
    "kseg read data/payments-0 --offset 22..23",
)
CRASH_BYTES = 40
#: The row of the table that is drawn.
ROW = "offsets and timestamps"
#: A picture of rich without its web fonts: the page that shows it loads nothing.
SVG = """<svg viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{ font: {char_height}px ui-monospace, Menlo, Consolas, monospace;
  line-height: {line_height}px; }}
.{unique_id}-title {{ font: bold 18px sans-serif; }}
{styles}
</style>
<defs><clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}"/></clipPath>{lines}</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""
BARS = """<svg viewBox="0 0 640 {height}" xmlns="http://www.w3.org/2000/svg">
<style>text {{ font: 15px sans-serif; fill: #7d8590; }}</style>
<text x="0" y="16">Million records a second on one core: {row} of 100-byte records</text>
{bars}
</svg>
"""
BAR = """<text x="0" y="{text}">{name}</text>
<rect x="110" y="{top}" width="{width:.0f}" height="22" rx="3" fill="{fill}"/>
<text x="{end:.0f}" y="{text}">{rate:.1f}</text>
"""


def in_a_terminal(command: str, place: Path) -> str:
    """Run a command in a terminal with COLUMNS columns; returns what it prints, with its colours.

    Standard error is no terminal, so no progress bar is drawn.
    """
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 60, COLUMNS, 0, 0))
    words = [sys.executable, "-m", *command.split()]
    usual = {name: os.environ[name] for name in ("HOME", "PATH", "TMPDIR") if name in os.environ}
    environment = {**usual, "TERM": "xterm-256color", "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        words, cwd=place, env=environment, stdin=theirs, stdout=theirs, stderr=subprocess.PIPE
    ) as running:
        os.close(theirs)
        printed = bytearray()
        try:
            while block := os.read(ours, 65536):
                printed += block
        except OSError:  # Linux reports the end of the other side as an error
            pass
        os.close(ours)
        assert running.stderr is not None
        printed += running.stderr.read()
    return printed.decode().replace("\r\n", "\n").rstrip("\n")


def session() -> str:
    """The session as SVG."""
    console = Console(
        record=True,
        width=COLUMNS,
        file=io.StringIO(),
        color_system="truecolor",
        force_terminal=True,
    )
    with tempfile.TemporaryDirectory() as place:
        logs = Path(place) / "data"
        ignored = shutil.ignore_patterns("*.md", ".git*")
        shutil.copytree(ROOT / "kseg" / "demo_data", logs, ignore=ignored)
        (log,) = (logs / "clicks-1").glob("*.log")
        os.truncate(log, log.stat().st_size - CRASH_BYTES)
        for command in SESSION:
            console.print(Text(f"$ {command}", style="bold"))
            console.print(Text.from_ansi(in_a_terminal(command, Path(place))))
            console.print()
    return console.export_svg(title="kseg", theme=MONOKAI, code_format=SVG, unique_id="kseg")


def speed() -> str:
    """The number as SVG: kseg, and those that the table of the benchmarks compares it with."""
    page = (ROOT / "docs" / "benchmarks.md").read_text("utf-8")
    found = re.search(rf"^\| {ROW} \| ([\d.]+) M/s \|.*\| ([\d.]+)x \| ([\d.]+)x \|$", page, re.M)
    assert found, f"docs/benchmarks.md has no row {ROW!r}"
    ours, java, aiokafka = map(float, found.groups())
    rates = {"kseg": ours, "Kafka's Java": ours / java, "aiokafka": ours / aiokafka}
    bars = []
    for number, (name, rate) in enumerate(rates.items()):
        top, width = 32 + 32 * number, 460 * rate / ours
        fill = "#2f81f7" if name == "kseg" else "#7d8590"
        place = {"top": top, "text": top + 16, "width": width, "end": 118 + width}
        bars.append(BAR.format(name=name, rate=rate, fill=fill, **place))
    return BARS.format(height=40 + 32 * len(rates), row=ROW, bars="".join(bars).rstrip())


#: Each picture with what draws it.
PICTURES = {"session.svg": session, "speed.svg": speed}


def main() -> None:
    """Draw them into the folder that is named."""
    folder = Path(sys.argv[1])
    for name, draw in PICTURES.items():
        (folder / name).write_text(draw(), "utf-8")


if __name__ == "__main__":
    main()
