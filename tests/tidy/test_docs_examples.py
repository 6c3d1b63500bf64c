"""What pages show is what happens: their code and their command lines are run.

A how-to page, a first hour and the README are sessions: each runs from its first block to its
last in a shell of its own, and prints what the page shows. `...` stands for any text. A block
of Python that begins with the name of a file is that file.
`python -m tests.tidy.test_docs_examples PAGE...` writes the output of sessions anew.
"""

from __future__ import annotations

import doctest
import io
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import kseg
from kseg.cli.main import VERBS, run
from tests.tidy import tree
from tests.unit.log.settings import made

#: A block of a session: its language and text; that of Python may be followed by what it prints.
STEP = re.compile(r"^```(console|python)\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?", re.DOTALL | re.M)
#: In what a session prints: times of this run, and room on this machine's disk.
CHANGING = re.compile(r"\b20\d{6}T\d{6}\.\d{3}Z|(?<=: )[\d.]+ GiB of .* are free.*(?=\n)")
README = tree.ROOT / "README.md"
SESSIONS = [
    page
    for page in (README, *tree.files(".md", folders=("docs/how-to", "docs/start")))
    if page.name != "index.md"
]
PAGES = [page for page in tree.files(".md", folders=("docs",)) if page not in SESSIONS]
#: Where the pages say that data lies, and what lies there in the tests.
DATA = ("/var/kafka/data", "/disk1/kafka")
#: Verbs whose answer is 1 where there is something to do or found, as there is here.
FINDING = (
    *("recover", "reindex", "truncate", "retain", "compact"),
    *("diff", "doctor", "salvage", "transactions"),
)
#: A block that uses a session runs in `tests/spark/test_examples.py`.
SESSION = re.compile(r"(?<!kseg\.)\bspark[.)]")
#: Not for a test: they take their time, need Spark, or what stands in a page in place of a name.
LEFT_OUT = ("demo", "spark")


def blocks(language: str, *, in_spark: bool = False) -> Iterator[object]:
    """Every block of code in a language, with its page: those with a session `spark`, or others."""
    for page in PAGES:
        for block in re.findall(rf"```{language}\n(.*?)```", page.read_text("utf-8"), re.DOTALL):
            if bool(SESSION.search(block)) is in_spark:
                yield pytest.param(page.name, block, id=f"{page.stem}-{block.split()[0]}")


def lines() -> Iterator[object]:
    """Every command line of kseg in a block of shell."""
    for page in PAGES:
        for block in re.findall(r"```sh\n(.*?)```", page.read_text("utf-8"), re.DOTALL):
            for line in block.splitlines():
                if line.startswith("kseg ") and line.split()[1] not in LEFT_OUT:
                    yield pytest.param(line, id=line.partition("#")[0].strip())


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Path:
    """A directory with all that the pages name: logs, internal topics, lines, copies."""
    demo = tree.ROOT / "kseg" / "demo_data"
    for target in (tmp_path, *(tmp_path / name for name in ("data", "a", "b", "c"))):
        shutil.copytree(demo, target, dirs_exist_ok=True)
    (tmp_path / "meta.properties").unlink()  # pages write beside their logs
    shutil.copy(demo / "orders-0" / f"{0:020d}.log", tmp_path / "old.log")
    (tmp_path / "records.jsonl").write_text('{"value": "cGFpZA=="}\n')
    (tmp_path / "server.properties").write_text("log.retention.ms=-1\n")
    shutil.copytree(demo / "orders-0", tmp_path / "users-0")
    internal = request.getfixturevalue("fixtures_dir") / "new" / "4.2.0-internal"
    for name, wanted in (
        ("__consumer_offsets-0", "__consumer_offsets-7"),
        ("__transaction_state-0", "__transaction_state-12"),
        ("__cluster_metadata-0", "copy-of-a-log-0"),
    ):
        shutil.copytree(internal / name, tmp_path / wanted)
    shutil.copy(internal / "__consumer_offsets-0" / f"{0:020d}.log", tmp_path)
    stopped_broker(tmp_path / "broker")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def stopped_broker(path: Path) -> None:
    """The data directory of a broker that has made a topic `users`, and was stopped."""
    broker = made.Broker(path).says(
        [made.topic("users"), *(made.partition(made.FIRST, number, [7]) for number in range(2))]
    )
    for number in range(2):
        name = broker.path / f"users-{number}"
        with kseg.Log.open(name, mode="append", create=True, topic_id=made.FIRST):
            pass


def here(text: str, place: Path) -> str:
    """The same with paths of the test in place of absolute ones."""
    for path in DATA:
        text = text.replace(path, f"{place}/data")
    return text.replace("/disk2/", f"{place}/")


@pytest.mark.parametrize(("page", "block"), list(blocks("python")))
def test_the_python_of_every_page_runs(page: str, block: str, place: Path) -> None:
    (place / "kafka").mkdir()
    exec(compile(here(block, place), page, "exec"), {"kseg": kseg})


@pytest.mark.parametrize("line", list(lines()))
def test_the_command_lines_of_every_page_run(
    line: str,
    place: Path,
    capsysbinary: pytest.CaptureFixture[bytes],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    words = shlex.split(here(line, place), comments=True)[1:]
    stdin = b""
    if "<" in words:
        at = words.index("<")
        stdin = (place / words[at + 1]).read_bytes()
        del words[at : at + 2]
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
    code = run(words)
    said = capsysbinary.readouterr().err.decode()
    assert words[0] in VERBS
    assert code in ((0, 1) if words[0] in FINDING else (0,)), said


def steps(text: str) -> Iterator[tuple[str, str, tuple[int, int]]]:
    """Each command of a session for bash, with the output that the page shows and its place."""
    for block in STEP.finditer(text):
        if block[1] == "python":
            span = block.span(3) if block[3] is not None else (block.end(2), block.end(2))
            saved = re.match(r"# (\w+\.py)\n", block[2])
            into = f"cat > {saved[1]}" if saved else "python -"
            yield f"{into} <<'END'\n{block[2]}END", block[3] or "", span
            continue
        at = block.start(2)
        for command in re.split(r"^(?=\$ )", block[2], flags=re.M)[1:]:
            typed = re.match(r"\$ .*\n(?:> .*\n)*", command)
            assert typed is not None
            line = re.sub(r"^[$>] ", "", typed[0], flags=re.M).rstrip()
            yield line, command[typed.end() :], (at + typed.end(), at + len(command))
            at += len(command)


def session(text: str, place: Path) -> list[str]:
    """What each command of a page prints, all of them typed into one shell."""
    if not (place / "broker").exists():
        stopped_broker(place / "broker")
    mark = "=== next ==="
    script = "".join(f"{command}\necho '{mark}'\n" for command, _, _ in steps(text))
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    ran = subprocess.run(
        ["bash", "-c", script],
        stdin=subprocess.DEVNULL,
        cwd=place,
        env={**os.environ, "PATH": path, "PYTHONPATH": str(tree.ROOT), "LC_ALL": "C.UTF-8"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    return ran.stdout.split(f"{mark}\n")[:-1]


def sessions() -> Iterator[object]:
    """Every page that is a session; those with Spark run with the other tests of Spark."""
    for page in SESSIONS:
        marks = [pytest.mark.spark] if "kseg spark" in page.read_text("utf-8") else []
        yield pytest.param(page, id=page.stem, marks=marks)


@pytest.mark.parametrize("page", list(sessions()))
def test_a_session_prints_what_its_page_shows(
    page: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    text = page.read_text("utf-8")
    place = request.getfixturevalue("place") if page == README else tmp_path
    for (command, shown, _), printed in zip(steps(text), session(text, place), strict=True):
        same = doctest.OutputChecker().check_output(
            shown.rstrip(), printed.rstrip(), doctest.ELLIPSIS
        )
        assert same, f"{command}\nprints\n{printed}\nand the page shows\n{shown}"


@pytest.mark.parametrize("page", SESSIONS, ids=tree.name)
def test_a_how_to_page_is_short(page: Path) -> None:
    prose = re.sub(r"^```.*?^```", "", page.read_text("utf-8"), flags=re.DOTALL | re.M)
    assert page.parent.name != "how-to" or len(prose.split()) <= 400


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        text = Path(argument).read_text("utf-8")
        with tempfile.TemporaryDirectory() as place:
            outputs = session(text, Path(place))
        for (_, shown, (start, end)), printed in reversed(
            list(zip(steps(text), outputs, strict=True))
        ):
            if not doctest.OutputChecker().check_output(shown, printed, doctest.ELLIPSIS):
                printed = CHANGING.sub("...", printed.replace(place, "..."))
                text = f"{text[:start]}{printed}{text[end:]}"
        Path(argument).write_text(text, "utf-8")
