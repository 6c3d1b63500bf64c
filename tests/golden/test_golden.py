"""The output of every verb over the demo data and 20 fixture cases, held to files in `expected/`.

    KSEG_GOLDEN=write pytest tests/golden      # write the files anew; then read the difference

A command runs in this process, with the files of its case in `data/` of an empty directory. Its
section has the command line, the exit code, the output and, if it writes files, a digest of each.
Long outputs keep their first lines and a digest of the whole.
"""

from __future__ import annotations

import hashlib
import io
import os
import shlex
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import kseg
from kseg.cli.main import run
from tests.fixture_archives import MTIME_S, unpacked

EXPECTED = Path(__file__).parent / "expected"
DEMO = Path(kseg.__file__).parent / "demo_data"
CASES = (
    "demo",
    "old/0.7-mixed",
    "old/0.8.0-flip-snappy",
    "old/0.8.2.2-noindex",
    "old/0.9.0.1-torn-header",
    "old/0.10.0.1-fmt-mixed",
    "old/0.10.2.2-compact-snappy",
    "old/0.10.2.2-kill9-prealloc",
    "new/0.11.0.3-txn",
    "new/1.1.1-oldformat",
    "new/1.1.1-snappy",
    "new/2.8.2-gaps",
    "new/2.8.2-truncation",
    "new/2.8.2-zstd",
    "new/3.9.1-epochs",
    "new/3.9.1-internal",
    "new/4.2.0-compact",
    "new/4.2.0-idempotent",
    "new/4.2.0-internal",
    "new/4.2.0-kill",
    "new/4.2.0-malformed",
)
NOW = "2026-01-01T00:00:00Z"
_LINES_KEPT = 25
_CHARACTERS_KEPT = 6000
#: Files whose bytes differ from run to run, or between releases of a library.
_NOT_REPEATED = (".lock", ".parquet", ".arrow", ".kseg-recovered")

COMMANDS = (Path(__file__).parent / "commands.txt").read_text()
_STDIN = b'{"key": "k", "value": "v", "headers": [["h", "eA=="]]}\n{"key": null, "value": null}\n'


def copy_case(case: str, target: Path) -> None:
    """The files of a data directory: what the fixture adds to a broker's files stays out."""
    source = DEMO if case == "demo" else unpacked() / case
    for path in sorted(source.rglob("*")):
        name = path.relative_to(source)
        if path.is_dir() or ".recovered" in str(name) or path.suffix in (".json", ".gz", ".md"):
            continue
        kept = target / name
        kept.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, kept)
        os.utime(kept, (MTIME_S, MTIME_S))


def first_log(directory: str, case: str, *names: str) -> Path | None:
    """The first log; in the demo, the first of a user's topic."""
    logs = [path for name in names for path in Path(directory).rglob(name)]
    users = (path for path in logs if case != "demo" or path.parent.name[0] != "_")
    return min(users, default=None)


def words_of(line: str, case: str) -> list[str]:
    """The words of a command line, with names of files for its capitals."""
    log = first_log("data", case, "*.log", "*.kafka")
    assert log is not None
    index = min(log.parent.glob("*index"), default=log)
    names = {"D": "data", "P": str(log.parent), "data2/P": f"data2/{log.parent.name}"}
    names |= {"F": str(log), "NOW": NOW, "I": str(index)}
    return [names.get(word, word) for word in shlex.split(line)]


def digests(directory: Path) -> Iterator[str]:
    """A line for each file below a directory."""
    for path in sorted(directory.rglob("*")):
        if path.is_file() and not path.name.endswith(_NOT_REPEATED):
            data = normal(path.read_bytes().decode("latin-1")).encode("latin-1")
            digest = hashlib.sha256(data).hexdigest()
            yield f"{path.relative_to(directory)} {len(data)} {digest[:16]}"


def normal(text: str) -> str:
    return text.replace(os.getcwd() + "/", "").replace(os.getcwd(), ".")


def shortened(text: str) -> str:
    lines = text.splitlines()
    kept = "\n".join(lines[:_LINES_KEPT])[:_CHARACTERS_KEPT]
    if len(kept) >= len(text.rstrip("\n")):
        return kept
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    return f"{kept}\n... {len(lines)} lines, {len(text)} characters, sha256 {digest}"


class Case:
    """The files of a case in the current directory, and the sections of its golden file."""

    def __init__(self, name: str, capture: pytest.CaptureFixture[bytes]) -> None:
        self.name, self.capture = name, capture
        self.sections: list[str] = []

    def fresh(self) -> None:
        for path in Path().iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        for directory in ("data", "data2"):
            copy_case(self.name, Path(directory))
        one = first_log("data2", self.name, "*.log")
        if one is not None:  # one bit of a copy, so that there is a difference
            data = bytearray(one.read_bytes())
            if data:
                data[len(data) // 2] ^= 1
            one.write_bytes(data)

    def run(self, line: str, *, writes: bool) -> None:
        words = words_of(line, self.name)
        code = run(words)
        out, err = self.capture.readouterr()
        text = [f"$ kseg {shlex.join(words)}", f"exit {code}"]
        text += [shortened(normal(part.decode("utf-8", "replace"))) for part in (out, err) if part]
        if writes:
            text.append(shortened("\n".join(digests(Path()))))
        self.sections.append("\n".join(text))


@pytest.mark.parametrize("name", CASES)
def test_output_of_every_verb_is_the_golden_one(
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("NO_COLOR", "1")
    case = Case(name, capfdbinary)
    case.fresh()
    writes = False
    for line in COMMANDS.splitlines()[2:]:
        if line.startswith("#"):
            writes = True
            continue
        if writes:
            case.fresh()
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(_STDIN)))
        case.run(line, writes=writes)
    text = "\n\n".join(case.sections) + "\n"
    golden = EXPECTED / f"{name.replace('/', '-')}.txt"
    if os.environ.get("KSEG_GOLDEN") == "write":
        golden.parent.mkdir(exist_ok=True)
        golden.write_text(text)
    assert text == golden.read_text()
