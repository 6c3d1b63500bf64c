"""What is measured of dumps: lines of records beside those of Kafka's own dump tool.

In one process, with a warm JVM at the other side, both write into something that counts lines; as
whole commands, with a JVM that has to start, both write to `/dev/null`. Work is counted in records:
a value with line ends in it makes more lines of Kafka's than it makes of JSON.
"""

from __future__ import annotations

import os
import subprocess
import sys
from functools import partial
from tempfile import TemporaryDirectory
from typing import IO, TYPE_CHECKING, Any, cast

import numpy as np

from bench import peers
from bench.case import JAVA, Case, java, made
from bench.pairs import Clock, Contest, Timed, Versus, now_ns

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import ExitStack
    from pathlib import Path

VALUES = {"10 B": "v2-plain-10-16k", "100 B": "v2-plain-100-16k", "1 KB": "v2-plain-1000-16k"}
#: The options under which Kafka's tool prints records, and kseg with `--kafka` the same lines.
DEEP = ("--deep-iteration", "--print-data-log")
FORMS = {"--kafka": ("--kafka", *DEEP), "jsonl": ("--format", "jsonl"), "text": ()}
#: What is compared as a whole command.
COMMANDS = ("--kafka", "jsonl")


def dump_cases() -> list[Case]:
    """Every case of the group."""
    return [
        *(
            Case("dump", f"dump {form} {label}", "record", partial(_prepare, form, corpus))
            for form in FORMS
            for label, corpus in VALUES.items()
        ),
        *(
            Case("dump", f"dump {form}, command", "record", partial(_prepare_command, form))
            for form in COMMANDS
        ),
    ]


def _prepare(form: str, corpus: str, _: ExitStack) -> Contest:
    log = made(corpus)
    rivals = []
    if JAVA.there():
        rivals.append(java("dump", log, log.records, args=DEEP))
    return Contest(partial(dumped, form, log.log, log.records), tuple(rivals), log.records)


class Lines:
    """Standard output that counts lines, as Kafka's peer has it."""

    def __init__(self) -> None:
        """Start at none."""
        self.count = 0
        self._equal = np.empty(1 << 18, np.bool_)  # stays in the cache

    def write(self, text: bytes | memoryview) -> int:
        """Count the lines of some text."""
        data = np.frombuffer(text, np.uint8)
        for start in range(0, len(data), len(self._equal)):
            part = data[start : start + len(self._equal)]
            equal = np.equal(part, 0x0A, out=self._equal[: len(part)])
            self.count += int(np.count_nonzero(equal))
        return len(data)

    def flush(self) -> None:
        """Nothing is held back."""

    def isatty(self) -> bool:
        """No terminal."""
        return False


def dumped(form: str, path: Path, records: int) -> int:
    """Dump a log in this process, in one thread; answers records."""
    from kseg.cli.dump import Dump
    from kseg.cli.kafka_dump.lines import DumpOptions, stored_contents, style_of
    from kseg.cli.kafka_dump.run import KafkaDump
    from kseg.cli.rows import Style
    from kseg.files.selection import Selection

    lines = Lines()
    out = cast("IO[bytes]", lines)
    if form == "--kafka":
        options = DumpOptions(style_of(terminal=False), deep=True, parser=stored_contents)
        KafkaDump(options, out).run([str(path)])
    else:
        style = Style(form, "utf8" if form == "text" else "base64")
        Dump(style, out).paths([str(path)], Selection((), ()))
    assert lines.count >= records
    return records


def _prepare_command(form: str, stack: ExitStack) -> Contest:
    """As installed: kseg's modules are compiled, by the call in front of the turns."""
    folder = stack.enter_context(TemporaryDirectory())
    env = {**os.environ, "PYTHONPYCACHEPREFIX": folder, "PYTHONDONTWRITEBYTECODE": ""}
    log = made(VALUES["100 B"])
    words = [sys.executable, "-c", "from kseg.cli.main import main; main()", "dump"]
    ours = [*words, *FORMS[form], str(log.log)]
    rivals = []
    if JAVA.there():
        tool = ["java", "-cp", peers.java_class_path(), "kafka.tools.DumpLogSegments"]
        theirs = [*tool, *DEEP, "--files", str(log.log)]
        rivals.append(Versus("Kafka's tool", None, timed=_timed(theirs, log.records, env)))
    once = partial(_command, ours, log.records, env)
    return Contest(once, tuple(rivals), log.records, timed=_timed(ours, log.records, env))


def _command(words: Sequence[str], records: int, env: dict[str, str]) -> int:
    quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    subprocess.run(words, check=True, env=env, **quiet)
    return records


def _timed(words: Sequence[str], records: int, env: dict[str, str]) -> Timed:
    """The time of a command, in nanoseconds for each record."""

    def timed(clock: Clock) -> float:
        began = now_ns(clock)
        _command(words, records, env)
        return (now_ns(clock) - began) / records

    return timed
