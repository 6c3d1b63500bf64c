"""Exit codes, one-line errors, pipes, and what the program loads before it knows the verb."""

from __future__ import annotations

import errno
import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from click.shell_completion import BashComplete

from kseg.cli import main
from kseg.cli.failures import Exit, exit_code, one_line
from kseg.errors import (
    CorruptIndexError,
    CorruptRecordError,
    KsegError,
    LimitExceededError,
    LogLockedError,
    MissingExtraError,
    NotALogError,
    OffsetOutOfRangeError,
)
from tests.builders import batch, record, write_segment
from tests.unit.cli.conftest import Kseg

DEMO = Path(main.__file__).parents[1] / "demo_data"
OF_SCHEMAS = ("value_schema_id", "value_schema_name")
TOPICS = [
    *("__cluster_metadata", "__consumer_offsets", "__transaction_state", "_schemas"),
    *("archive", "clicks", "customers", "orders", "payments", "shipments"),
]
VALUES = [f"offset,{name}" for name in ("value", "valid", "value_error", *OF_SCHEMAS)]
KSEG = [sys.executable, "-W", "error", "-m", "kseg"]

CODES: list[tuple[BaseException, Exit]] = [
    (CorruptRecordError("x"), Exit.FOUND),
    (CorruptIndexError("x"), Exit.FOUND),
    (OffsetOutOfRangeError("x"), Exit.USAGE),
    (MissingExtraError("x"), Exit.USAGE),
    (NotALogError("x"), Exit.FILES),
    (LogLockedError("x"), Exit.FILES),
    (FileNotFoundError(2, "x"), Exit.FILES),
    (PermissionError(13, "x"), Exit.FILES),
    (OSError(28, "no space"), Exit.FILES),
    (KsegError("Java is missing"), Exit.FILES),
    (LimitExceededError("x"), Exit.LIMIT),
    (MemoryError(), Exit.LIMIT),
    (KeyboardInterrupt(), Exit.INTERRUPTED),
    (RuntimeError("x"), Exit.BUG),
]


@pytest.mark.parametrize(("error", "code"), CODES, ids=[type(e).__name__ for e, _ in CODES])
def test_each_kind_of_error_has_its_exit_code(error: BaseException, code: Exit) -> None:
    assert exit_code(error) is code


def test_an_error_is_one_line_without_control_characters() -> None:
    error = CorruptRecordError("a\nb\x1b[31m", path="dir/\x07\udcff.log", position=5, offset=9)
    assert one_line(error) == "dir/\\u0007\\udcff.log @ 5, offset 9: a\\u000ab\\u001b[31m"
    assert one_line(FileNotFoundError(2, "No such file", "x\n")) == "x\\u000a: No such file"


READERS = (
    ["info"],
    ["dump"],
    ["verify"],
    ["read"],
    ["lookup", "--offset", "1"],
    ["export", "-o", "out.csv"],
)


@pytest.mark.parametrize("verb", READERS, ids=lambda verb: verb[0])
@pytest.mark.parametrize("kind", ["missing", "empty", "strange", "no offset", "too large"])
def test_a_path_that_is_none_exits_3_with_one_line(
    kseg: Kseg, tmp_path: Path, verb: list[str], kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "place"
    if kind in ("empty", "strange"):
        path.mkdir()
    if kind == "strange":
        (path / "notes.txt").write_text("hello")
    if kind == "no offset":
        path = tmp_path / "notes.log"
        path.write_bytes(batch([record()]))
    if kind == "too large":
        path = tmp_path / f"{2**63}.log"
        path.write_bytes(batch([record()]))
    ran = kseg(*verb, path)
    assert (ran.code, ran.out) == (3, b"")
    assert ran.err.count("\n") == 1
    assert str(path) in ran.err


def test_a_bug_exits_5_and_shows_its_traceback_under_debug(
    kseg: Kseg, orders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_words: object, **_more: object) -> None:
        raise ZeroDivisionError("oops")

    monkeypatch.setattr("kseg.analysis.info.info_of", broken)
    ran = kseg("info", orders)
    assert ran.code == 5
    assert ran.err == "kseg: ZeroDivisionError: oops; this is a bug in kseg, --debug shows where\n"
    ran = kseg("info", orders, "--debug")
    assert ran.code == 5
    assert "Traceback" in ran.err
    assert ran.err.endswith("kseg: ZeroDivisionError: oops; this is a bug in kseg\n")


def test_every_verb_has_help_and_a_command_of_its_name(kseg: Kseg) -> None:
    listed = kseg("--help").text
    for verb in main.VERBS:
        assert verb in listed
        ran = kseg(verb, "--help")
        assert ran.code == 0
        assert ran.text.startswith(f"Usage: kseg {verb}")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_a_script_for_the_shell(kseg: Kseg, shell: str) -> None:
    ran = kseg("completion", shell)
    assert ran.code == 0
    assert "_KSEG_COMPLETE" in ran.text


def test_completion_completes_verbs() -> None:
    variables = {"_KSEG_COMPLETE": "bash_complete", "COMP_WORDS": "kseg ver", "COMP_CWORD": "1"}
    done = subprocess.run(
        KSEG, env={**os.environ, **variables}, capture_output=True, text=True, timeout=60
    )
    assert done.stdout.splitlines() == ["plain,verify"]


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("kseg read DATA --topic cl", ["clicks"]),
        ("kseg read DATA --topic ''", TOPICS),
        ("kseg dump DATA/orders-1 --topic ''", ["orders"]),
        ("kseg retain DATA --topic o", ["orders"]),
        ("kseg info DATA --topic clicks --partition ''", ["0", "1"]),
        ("kseg info DATA --topic payments --partition ''", ["0"]),
        ("kseg info DATA --partition 0,", ["0,1"]),
        ("kseg info /nowhere --topic ''", []),
        ("kseg export DATA --fields off", ["offset"]),
        (
            "kseg export DATA --fields offset,va",
            VALUES,
        ),
        ("kseg spark export DATA --fields timestamp_", ["timestamp_ms", "timestamp_type"]),
        ("kseg export DATA --partition-by day,", ["day,topic", "day,partition"]),
        ("kseg export DATA --decode-value j", ["json", "json-schema", "json:struct"]),
        ("kseg convert DATA --codec z", ["zstd"]),
        ("kseg append DATA/orders-0 --codec s", ["snappy"]),
        ("kseg compl", ["completion"]),
    ],
)
def test_completion_knows_topics_partitions_fields_and_codecs(words: str, found: list[str]) -> None:
    given = shlex.split(words.replace("DATA", str(DEMO)))
    completer = BashComplete(main.cli, {}, "kseg", "_KSEG_COMPLETE")
    shown = [one.value for one in completer.get_completions(given[1:-1], given[-1])]
    assert shown == found


def test_without_a_word_there_are_the_five_verbs_that_are_needed_first(kseg: Kseg) -> None:
    ran = kseg()
    shown = re.findall(r"^  kseg (\w+) ", ran.err, re.MULTILINE)
    assert (ran.code, shown) == (2, ["info", "verify", "read", "export", "doctor"])
    assert set(shown) <= set(main.VERBS)
    assert f"All {len(main.VERBS)} verbs: kseg --help" in ran.err


def long_log(tmp_path: Path) -> Path:
    """More text than a pipe holds."""
    values = [record(b"x" * 1000) for _ in range(500)]
    return write_segment(tmp_path, 0, batch(values))


def test_a_closed_pipe_ends_quietly(tmp_path: Path) -> None:
    path = long_log(tmp_path)
    with subprocess.Popen(
        [*KSEG, "dump", path], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(timeout=60) == 0
        assert process.stderr.read() == b""


def test_a_full_disk_exits_3_with_one_line(tmp_path: Path) -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [*KSEG, "dump", long_log(tmp_path)], stdout=full, stderr=subprocess.PIPE, timeout=60
        )
    assert done.returncode == 3
    assert done.stderr.count(b"\n") == 1
    assert b"No space left" in done.stderr


def test_an_interrupt_exits_130(tmp_path: Path) -> None:
    with subprocess.Popen(
        [*KSEG, "dump", long_log(tmp_path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.read(1)  # it runs, and soon waits for the pipe to empty
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert b"Traceback" not in err


@pytest.mark.parametrize(
    ("descriptor", "words", "code"),
    [(0, ["dump", "-"], Exit.FILES), (1, ["info", "DIR"], Exit.FILES), (2, ["info", "/none"], 3)],
    ids=["stdin", "stdout", "stderr"],
)
def test_a_stream_that_is_closed_from_the_start_is_no_bug(
    tmp_path: Path, descriptor: int, words: list[str], code: int
) -> None:
    write_segment(tmp_path / "orders-0", 0, batch([record(b"v")]))
    ran = subprocess.run(
        [*KSEG, *(str(tmp_path / "orders-0") if word == "DIR" else word for word in words)],
        preexec_fn=lambda: os.close(descriptor),
        stdin=subprocess.DEVNULL if descriptor == 0 else None,
        capture_output=True,
        check=False,
    )
    assert ran.returncode == code
    assert ran.stderr.count(b"\n") == (0 if descriptor == 2 else 1)


def test_a_pipe_that_breaks_elsewhere_does_not_pass_for_a_reader_who_has_enough(
    kseg: Kseg, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_words: object, **_more: object) -> None:
        raise BrokenPipeError(errno.EPIPE, "Broken pipe")

    monkeypatch.setattr("kseg.analysis.verify.verify_of", broken)
    ran = kseg("verify", DEMO)
    assert (ran.code, ran.err) == (Exit.FILES, "kseg: Broken pipe\n")
