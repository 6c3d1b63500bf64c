"""What people type one line after the other, and all that comes of it, held to `sessions/`.

    KSEG_GOLDEN=write pytest tests/golden      # write the answers anew; then read the difference

A section of a file is a test: a claim, and in brackets the functions of `made.py` that make its
files. A line that begins at the margin is a step, and the indented lines below it are the answer:

    == a claim [orders]
    $ verb WORDS | FIELDS   kseg; of JSON these fields alone; {a,b} is a step with each
    $$                      the last verb again
    % LINE                  a line of a shell
    %% LINE                 the same, behind the files of the beginning
    < TEXT                  a line of standard input for the next verb
    @stdin FILE             a file is that input; `-` is what was printed last
    @flip FILE AT           change a bit of a byte
    @hold DIRECTORY         another process has the lock until the section ends
    @type WORD ...          run the printed commands that begin with these words
    @make EXPRESSION        make files, with the names of `made.py` and of what it is built on
    # TEXT                  why

An answer is the exit code, what was printed, `! ` before lines of standard error, and the files
that came (`+`), went (`-`), changed (`~`) or were written as they were (`=`). `7.log` is the name
of a segment without its zeros.
"""

from __future__ import annotations

import gc
import io
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from kseg.cli.main import run
from tests import coordinators
from tests.fixture_archives import MTIME_S
from tests.golden import made
from tests.golden.test_golden import normal, shortened
from tests.terminal import type_line
from tests.unit.analysis import breaks, copied, test_explain, test_groups, test_transactions
from tests.unit.files.foreign import holding
from tests.unit.log import reindexed
from tests.unit.log.settings import made as cluster

SESSIONS = Path(__file__).parent / "sessions"
_HEAD = re.compile(r"^== (?P<claim>.*?) \[(?P<made>[\w ]*)\]$")
_BRACES = re.compile(r"\{([^{}\"]*,[^{}\"]*)\}")
_NAME = re.compile(
    r"(?<=/)(\d{1,19})(?=\.(log|index|timeindex|txnindex|snapshot|kafka|jsonl|csv)\b)"
)
_ZEROS = re.compile(r"(?<![\d.])0{8,19}(?=\d+\.)")
#: What differs between runs or file systems, and what stands for it.
_NORMAL = (
    (re.compile(r" && chown --reference=\S+ [^\s\"]+"), ""),  # as root alone
    (re.compile(r"process \d+"), "process ID"),
    (re.compile(r"\d+(?= more with:| bytes of disk (become free with:|are free again))"), "BYTES"),
)
_NOW = re.compile(r"\bNOW\b")
_NAMES = {
    name: value
    for module in (
        test_explain,
        reindexed,
        coordinators,
        test_transactions,
        test_groups,
        breaks,
        copied,
        cluster,
        made,
    )
    for name, value in vars(module).items()
}


def sections() -> Iterator[tuple[Path, str]]:
    """The file and the text of each section."""
    for path in sorted(SESSIONS.glob("*.txt")):
        for text in re.split(r"^(?=== )", path.read_text(), flags=re.MULTILINE):
            if text.startswith("== "):
                yield path, text


def expanded(line: str) -> list[tuple[str, str]]:
    """For each choice in braces the whole line, and what was chosen."""
    found = _BRACES.search(line)
    if found is None:
        return [(line, "")]
    return [
        (whole, f"{choice} {more}".strip())
        for choice in found[1].split(",")
        for whole, more in expanded(line[: found.start()] + choice + line[found.end() :])
    ]


def picked(value: Any, path: str) -> Iterator[str]:
    """What lies at a path of names; of a list, in each item; `**.NAME` is at any depth."""
    if not path:
        yield json.dumps(value)
    elif path.startswith("**."):
        found = value if isinstance(value, list) else [*value.values()]
        if isinstance(value, dict) and path[3:] in value:
            yield json.dumps(value[path[3:]])
        for one in found:
            if isinstance(one, dict | list):
                yield from picked(one, path)
    elif isinstance(value, list):
        for one in value:
            yield from picked(one, path)
    elif isinstance(value, dict):
        heads = [path[:at] for at in range(len(path), 0, -1) if path[at : at + 1] in ("", ".")]
        head = next((one for one in heads if one in value), None)
        yield from ["absent"] if head is None else picked(value[head], path[len(head) + 1 :])
    else:
        yield "absent"


def files() -> dict[Path, tuple[bytes, int]]:
    """What the files hold, and when it was written; but for locks."""
    found = (path for path in Path().rglob("*") if path.is_file() and path.name != ".lock")
    return {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in found}


def files_of_before() -> dict[Path, tuple[bytes, int]]:
    """The same, all of them written at one time long ago."""
    for path in files():
        os.utime(path, (MTIME_S, MTIME_S))
    return files()


def changes(
    before: dict[Path, tuple[bytes, int]], after: dict[Path, tuple[bytes, int]]
) -> Iterator[str]:
    """A line for each kind of change to a directory, and one for each checkpoint."""
    names: dict[tuple[Path, str], list[str]] = {}
    for path in sorted(before.keys() | after.keys()):
        old, new = before.get(path), after.get(path)
        if old == new:
            continue
        sign = "-" if new is None else "+" if old is None else "~" if old[0] != new[0] else "="
        if new is not None and path.name.endswith("checkpoint"):
            yield f"{sign} {path}: {new[0]!r}"
        else:
            names.setdefault((path.parent, sign), []).append(_short("/" + path.name)[1:])
    for (directory, sign), found in names.items():
        yield f"{sign} {directory}: {' '.join(found)}"


def _short(text: str) -> str:
    return _ZEROS.sub("", text)


class Session:
    """Runs the steps of a section in the current directory."""

    def __init__(
        self, capture: pytest.CaptureFixture[bytes], stack: ExitStack, makers: Sequence[str]
    ) -> None:
        self._capture, self._stack, self._makers = capture, stack, makers
        self._last = ""
        self._typed = b""
        self._printed = ""
        self._typed_codes: list[str] = []

    def fresh(self) -> None:
        """The files of the beginning, and no others; errors that hold open files are gone."""
        gc.collect(1)
        for path in Path().iterdir():
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
        for name in self._makers:
            getattr(made, name)()

    def step(self, line: str) -> str:
        kind, words = line[0], line[1:].strip()
        before = files_of_before()
        if kind == "$":
            self._last = self._last if words == "$" else words
            answer = self._verb(self._last)
        elif kind == "%":
            if words.startswith("%"):
                self.fresh()
                words = words[1:]
            words = _NAME.sub(_padded, words)
            done = subprocess.run(["sh", "-ec", words], capture_output=True, check=True)
            return _short(normal(done.stdout.decode()))
        elif kind == "<":
            self._typed += words.encode() + b"\n"
            return ""
        elif line.startswith("@make "):
            eval(words.removeprefix("make "), _NAMES)
            return ""
        elif kind == "@":
            name, *given = _NAME.sub(_padded, words).split()
            getattr(self, f"_{name}")(*given)
            if name != "type":
                return ""
            answer = self._typed_codes
        else:
            return ""
        answer += changes(before, files())
        text = shortened(normal("\n".join(answer)))
        for pattern, instead in _NORMAL:
            text = pattern.sub(instead, text)
        return _short(text)

    def _verb(self, text: str) -> list[str]:
        words, _, fields = text.partition(" | ")
        stdin, self._typed = self._typed, b""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
            words = _NOW.sub(str(made.NOW_MS), _NAME.sub(_padded, words))
            code = run(shlex.split(words))
        out, err = (part.decode() for part in self._capture.readouterr())
        self._printed = out + err
        answer = [f"exit {code}"]
        if fields:
            rows = [json.loads(line) for line in out.splitlines()]
            for field in fields.split():
                found = (one for row in rows for one in picked(row, field))
                answer += [f"{field}: {', '.join(found)}"]
        else:
            answer += out.splitlines()
        return answer + [f"! {line}" for line in err.splitlines()]

    def _stdin(self, path: str) -> None:
        self._typed = self._printed.encode() if path == "-" else Path(path).read_bytes()

    def _flip(self, path: str, at: str) -> None:
        data = bytearray(Path(path).read_bytes())
        data[int(at)] ^= 1
        Path(path).write_bytes(data)

    def _hold(self, directory: str) -> None:
        self._stack.enter_context(holding(Path(directory)))

    def _type(self, *words: str) -> None:
        lines = [line.strip() for line in self._printed.splitlines()]
        typed = [line for line in lines if line.partition(" ")[0] in words]
        assert typed, self._printed
        self._typed_codes = [f"exit {type_line(line, check=False)}" for line in typed]
        self._capture.readouterr()


def _padded(found: re.Match[str]) -> str:
    return found[1].zfill(20)


@pytest.mark.parametrize(
    ("path", "text"), [pytest.param(*one, id=one[1].splitlines()[0][3:]) for one in sections()]
)
def test_the_answers_are_those_of_before(
    path: Path,
    text: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("NO_COLOR", "1")
    head, *lines = text.splitlines()
    named = _HEAD.match(head)
    assert named is not None, head
    written = [head]
    with ExitStack() as stack:
        session = Session(capfdbinary, stack, named["made"].split())
        session.fresh()
        for line in lines:
            if line and not line.startswith(" "):
                written.append(line)
                for step, chosen in expanded(line):
                    answer = [f"-- {chosen}"] * (step != line) + session.step(step).splitlines()
                    written += [f"  {each}".rstrip() for each in answer]
    answered = "\n".join(written) + "\n"
    if os.environ.get("KSEG_GOLDEN") == "write":
        path.write_text(path.read_text().replace(text.rstrip("\n") + "\n", answered))
        return
    assert answered == text.rstrip("\n") + "\n"
