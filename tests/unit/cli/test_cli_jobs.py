"""`--jobs N`: the same bytes for every N; an error or an interrupt ends all workers."""

from __future__ import annotations

import _thread
import os
import re
import shutil
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kseg import workers
from kseg.cli import dump, main
from kseg.cli.failures import Exit
from kseg.cli.rows import RowWriter
from kseg.files import log_file
from kseg.format.convert import Converter
from kseg.log.reader import view
from kseg.log.segment import pieces
from tests.unit.cli.conftest import Kseg, Ran

DEMO = Path(main.__file__).parents[1] / "demo_data"
VERBS = {
    "verify": ("verify", "--deep"),
    "stats": ("stats", "--json"),
    "info": ("info", "--json", "--segments"),
    "doctor": ("doctor",),
    "dump": ("dump", "--format", "jsonl"),
    "read": ("read", "--format", "jsonl"),
    "read, committed": ("read", "--isolation", "read_committed", "--offset", "3..900"),
    "read, csv": ("read", "--format", "csv", "--bytes", "utf8"),
    "read, the last": ("read", "--last", "5"),
    "read, a key": ("read", "--key", "k1", "--limit", "4"),
    "recover": ("recover", "--json"),
    "reindex": ("reindex", "--exact", "--json"),
}
FORMS = ("parquet", "arrow", "jsonl", "csv")


CONVERSIONS = {
    "another codec": ("--codec", "gzip", "--on-corrupt", "skip"),
    "an older format": ("--magic", "1", "--codec", "none", "--drop", "--on-corrupt", "skip"),
    "refused": ("--magic", "0", "--codec", "none"),
}


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of some hundred bytes are many pieces."""
    for module in (view, dump):
        monkeypatch.setattr(module, "PIECE_BYTES", 200)
    monkeypatch.setattr(log_file, "TILE_BYTES", 200)
    monkeypatch.setattr(log_file, "CHECKED_TILE_BYTES", 200)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    shutil.copytree(DEMO, tmp_path / "data")
    (tmp_path / "data" / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":-1}')
    return tmp_path / "data"


@pytest.mark.parametrize("words", VERBS.values(), ids=VERBS)
@pytest.mark.parametrize("damaged", [False, True], ids=["sound", "damaged"])
@pytest.mark.usefixtures("small_pieces")
def test_a_verb_prints_the_same_for_any_number_of_jobs(
    kseg: Kseg, data: Path, words: tuple[str, ...], damaged: bool
) -> None:
    if damaged:
        (log,) = (data / "clicks-1").glob("*.log")
        log.write_bytes(log.read_bytes()[:-40] + b"\xff" * 20)
    assert kseg(*words, "--jobs", 3, data) == kseg(*words, "--jobs", 1, data)


@pytest.mark.parametrize("name", CONVERSIONS)
@pytest.mark.usefixtures("small_pieces")
def test_a_conversion_is_the_same_for_any_number_of_jobs(
    kseg: Kseg, data: Path, tmp_path: Path, name: str
) -> None:
    log = max((data / "orders-0").glob("*.log"), key=lambda path: path.stat().st_size)
    whole = bytearray(log.read_bytes())
    whole[len(whole) // 2] ^= 1
    log.write_bytes(whole)
    out = tmp_path / log.name

    def converted(jobs: int) -> tuple[Ran, bytes | None]:
        ran = kseg("convert", log, "-o", out, "--force", "--jobs", jobs, *CONVERSIONS[name])
        return ran, out.read_bytes() if out.exists() else None

    one = converted(1)
    assert one[0].code == Exit.FOUND
    assert converted(3) == one


@pytest.mark.parametrize("how", ["--apply", "-o"])
def test_indexes_are_made_the_same_for_any_number_of_jobs(
    kseg: Kseg, data: Path, tmp_path: Path, how: str
) -> None:
    for index in data.rglob("*index"):
        index.write_bytes(b"\0" * 5)

    def remade(jobs: int) -> dict[str, bytes]:
        home, out = tmp_path / f"data-{jobs}", tmp_path / f"copy-{jobs}"
        shutil.copytree(data, home)
        ran = kseg("reindex", home, "--jobs", jobs, *([how] if how == "--apply" else [how, out]))
        assert ran.code == Exit.OK
        return files_in(home if how == "--apply" else out)

    one = remade(1)
    assert any(name.endswith("index") and len(text) > 5 for name, text in one.items())
    assert remade(3) == one


def files_in(directory: Path) -> dict[str, bytes]:
    """The files but logs' locks, which may go while others are read."""
    files = [path for path in directory.rglob("*") if path.is_file() and path.name != ".lock"]
    return {str(path.relative_to(directory)): path.read_bytes() for path in files}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("per", "where"), [("partition", ""), ("segment", ""), ("partition", "orders-0")]
)
@pytest.mark.usefixtures("small_pieces")
def test_files_are_the_same_for_any_number_of_jobs(
    kseg: Kseg, data: Path, tmp_path: Path, form: str, per: str, where: str
) -> None:
    def exported(jobs: int) -> dict[str, bytes]:
        out = tmp_path / f"out-{jobs}"
        words = ("-o", out, "--format", form, "--per", per, "--jobs", jobs)
        assert kseg("export", data / where, *words).code == Exit.OK
        return files_in(out)

    one = exported(1)
    assert len(one) == 1 if where else len(one) > 3
    assert exported(3) == one


# ---- workers that end before their work does -----------------------------------------------------

#: What a worker calls for every piece of a verb; most walk over batches.
INNER = {
    "dump": (dump, "decode"),
    "dump --kafka": (RowWriter, "rows"),
    "convert": (Converter, "convert"),
}
LINES = {
    **{verb: (*words, "{data}") for verb, words in VERBS.items() if "," not in verb},
    "recover --apply": ("recover", "--apply", "{unclean}"),
    "dump --kafka": ("dump", "--kafka", "--deep-iteration", "{log}"),
    "reindex --apply": ("reindex", "--exact", "--apply", "{data}"),
    "explain": ("explain", "{data}"),
    "diff": ("diff", "{data}", "{copy}"),
    "export": ("export", "{data}", "-o", "{out}"),
    "convert": ("convert", "{log}", "-o", "{out}.log", "--codec", "gzip"),
}


@pytest.fixture
def line(request: pytest.FixtureRequest, data: Path, tmp_path: Path) -> list[str]:
    """The words of a verb, with partitions to work on, and places for what it writes."""
    for copy in ("copy", "unclean"):
        shutil.copytree(data, tmp_path / copy)
    (tmp_path / "unclean" / ".kafka_cleanshutdown").unlink()
    log = max((data / "orders-0").glob("*.log"))
    places = {name: tmp_path / name for name in ("data", "copy", "unclean", "out")}
    return [word.format(log=log, **places) for word in LINES[request.param]]


def in_workers(monkeypatch: pytest.MonkeyPatch, verb: str, end: Callable[[], object]) -> None:
    """Have the workers of a verb call `end` in the middle of their work, and do all of it."""

    def ending(*given: Any, **named: Any) -> Any:
        if threading.current_thread() is not threading.main_thread():
            end()
        return real(*given, **named)

    if verb in INNER:
        home, name = INNER[verb]
        real = getattr(home, name)
        monkeypatch.setattr(home, name, ending)
        return
    real = workers.check
    for walk in (log_file, pieces):
        monkeypatch.setattr(walk, "workers", SimpleNamespace(check=ending))


@pytest.fixture
def no_threads_left() -> Iterator[None]:
    """No more threads than before, once those that have said so are past their last line."""
    before = _thread._count()
    yield
    for _ in range(100_000):
        if _thread._count() <= before:
            return
        os.sched_yield()
    pytest.fail("a thread goes on")


@pytest.mark.parametrize(("verb", "line"), [(verb, verb) for verb in LINES], indirect=["line"])
@pytest.mark.usefixtures("small_pieces", "no_threads_left")
def test_a_lack_of_memory_is_one_error_with_the_file_and_ends_the_others(
    kseg: Kseg, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, verb: str, line: list[str]
) -> None:
    def end() -> None:
        raise MemoryError

    before = files_in(tmp_path)
    in_workers(monkeypatch, verb, end)
    ran = kseg(*line, "--jobs", 3)
    assert ran.code == Exit.LIMIT
    assert ran.err.count("out of memory") == 1
    assert re.search(r"(data|unclean|copy)/\w+-\d\S*: out of memory", ran.err)
    assert files_in(tmp_path) == before


@pytest.mark.parametrize(("verb", "line"), [(verb, verb) for verb in LINES], indirect=["line"])
@pytest.mark.usefixtures("small_pieces", "no_threads_left")
def test_an_interrupt_ends_all_workers_at_once(
    kseg: Kseg, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, verb: str, line: list[str]
) -> None:
    told = threading.Event()

    def end() -> None:
        if not told.is_set():
            told.set()
            ident = threading.main_thread().ident
            assert ident is not None
            signal.pthread_kill(ident, signal.SIGINT)
        while True:  # what goes on for long looks whether it is wanted
            workers.check()

    before = files_in(tmp_path)
    in_workers(monkeypatch, verb, end)
    assert kseg(*line, "--jobs", 3).code == Exit.INTERRUPTED
    assert files_in(tmp_path) == before
