"""What pages show is what happens: their code and their command lines are run."""

from __future__ import annotations

import io
import re
import shlex
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import kseg
from kseg.cli.main import VERBS, run
from tests.tidy import tree
from tests.unit.log.settings import made

PAGES = [tree.ROOT / "README.md", *tree.files(".md", folders=("docs",))]
#: Where the pages say that data lies, and what lies there in the tests.
DATA = ("/var/kafka/data", "/disk1/kafka")
#: Verbs whose answer is 1 where there is something to do or found, as there is here.
FINDING = ("recover", "reindex", "truncate", "retain", "compact", "diff", "doctor", "salvage")
#: A block that uses a session runs in `tests/spark/test_examples.py`.
SESSION = re.compile(r"(?<!kseg\.)\bspark[.)]")
#: Not for a test: they take their time, need Spark, or what stands in a page in place of a name.
LEFT_OUT = ("bench", "demo", "spark")


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
    shutil.copy(demo / "orders-0" / f"{0:020d}.log", tmp_path / "old.log")
    (tmp_path / "records.jsonl").write_text('{"value": "cGFpZA=="}\n')
    (tmp_path / "server.properties").write_text("log.retention.ms=-1\n")
    shutil.copytree(demo / "orders-0", tmp_path / "users-0")
    internal = request.getfixturevalue("fixtures_dir") / "new" / "4.2.0-internal"
    for name, wanted in (
        ("__consumer_offsets-0", "__consumer_offsets-7"),
        ("__transaction_state-0", "__transaction_state-12"),
        ("__cluster_metadata-0", "__cluster_metadata-0"),
        ("__cluster_metadata-0", "copy-of-a-log-0"),
    ):
        shutil.copytree(internal / name, tmp_path / wanted)
    shutil.copy(internal / "__consumer_offsets-0" / f"{0:020d}.log", tmp_path)
    broker = made.Broker(tmp_path / "broker").says(
        [made.topic("users"), *(made.partition(made.FIRST, number, [7]) for number in range(2))]
    )
    for number in range(2):
        path = broker.path / f"users-{number}"
        with kseg.Log.open(path, mode="append", create=True, topic_id=made.FIRST):
            pass
    monkeypatch.chdir(tmp_path)
    return tmp_path


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


def shown() -> Iterator[object]:
    """What pages show with its output: a block of Python before one of text, a session of kseg."""
    for page in PAGES:
        text = page.read_text("utf-8")
        for block, output in re.findall(
            r"```python\n([^`]*)```\n+```text\n(.*?)```", text, re.DOTALL
        ):
            yield pytest.param([(block, output)], id=f"{page.stem}-python")
        for block in re.findall(r"```console\n(.*?)```", text, re.DOTALL):
            steps = [step.partition("\n")[::2] for step in block.removeprefix("$ ").split("\n$ ")]
            yield pytest.param(steps, id=f"{page.stem}-session")


@pytest.mark.parametrize("steps", list(shown()))
def test_what_a_page_shows_is_what_comes_out(
    steps: list[tuple[str, str]], place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for typed, output in steps:
        if typed.startswith("kseg "):
            run(shlex.split(typed)[1:])
        else:
            exec(compile(typed, "a page", "exec"), {"kseg": kseg})
        assert capsys.readouterr().out.rstrip() == output.rstrip(), typed
