"""Tables and colours: on a terminal only, and data are never taken for markup."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from kseg.cli import output
from tests.builders import batch, record, write_segment
from tests.terminal import on_a_terminal
from tests.unit.cli.conftest import Kseg

CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
RULE = "\u2500" * 20
VERBS = [("info",), ("stats",), ("explain",)]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    keys = (b"[bold red]k[/]", b":smile:", b"https://a.b")
    write_segment(tmp_path / "data" / "orders-0", 0, batch([record(b"x", key=key) for key in keys]))
    return tmp_path / "data"


def shown(*words: object, columns: int = 80, **variables: str) -> str:
    """What stands on the terminal, from behind the progress bar, which a last escape removes."""
    text = on_a_terminal(*words, columns=columns, **variables).decode().replace("\r\n", "\n")
    return text.rpartition("\x1b[1A\x1b[2K")[2]


@pytest.mark.parametrize("words", VERBS)
def test_a_terminal_gets_a_table_in_colour(log: Path, words: tuple[str, ...]) -> None:
    text = shown(*words, log)
    assert RULE in text
    assert "\x1b[1m" in text
    assert max(len(line) for line in CONTROL.sub("", text.split("\x1b[1m")[1]).splitlines()) <= 80


@pytest.mark.parametrize(
    ("words", "variables"),
    [
        (VERBS[0], {"NO_COLOR": "1"}),
        (VERBS[1], {"TERM": "dumb"}),
        (VERBS[2], {"TERM": "dumb"}),
    ],
)
def test_without_colour_a_terminal_gets_the_lines_of_a_pipe(
    kseg: Kseg, log: Path, words: tuple[str, ...], variables: dict[str, str]
) -> None:
    text = shown(*words, log, **variables)
    assert _without_room(CONTROL.sub("", text)) == _without_room(kseg(*words, log).text)


def _without_room(text: str) -> list[str]:
    """The lines, but for those about the free space of a disk, which changes."""
    return [line for line in text.splitlines() if line and " are free, " not in line]


def test_a_forced_colour_goes_into_a_pipe_and_columns_say_how_wide(
    kseg: Kseg, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.delenv("NO_COLOR", raising=False)
    for columns, wide in (("40", False), ("120", True)):
        monkeypatch.setenv("COLUMNS", columns)
        text = kseg("info", log).text
        assert RULE in text
        assert ("codecs" in text) == wide


def test_keys_that_look_like_markup_stand_in_a_table_as_they_are(log: Path) -> None:
    text = CONTROL.sub("", shown("stats", log))
    for key in ("[bold red]k[/]", ":smile:", "https://a.b"):
        assert key in text


def test_a_terminal_of_ascii_gets_a_table_all_the_same(tmp_path: Path) -> None:
    write_segment(tmp_path / "t-0", 0, batch([record(b"x", key="schl\u00fcssel".encode())]))
    text = shown("stats", tmp_path, PYTHONIOENCODING="ascii")
    assert "schl\u00fcssel" in text
    assert "bug" not in text


def test_a_table_that_cannot_fit_keeps_its_columns(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.delenv("NO_COLOR", raising=False)
    head = ("topic", *(f"number_{at}" for at in range(6)), "status")
    output.write_table(head, [("orders", *(10**7 + at for at in range(6)), "aborted")])
    lines = CONTROL.sub("", capsys.readouterr().out).splitlines()
    assert lines[0].split() == list(head)
    assert [line.split() for line in lines[2:]] == [
        ["orders", *(str(10**7 + at) for at in range(6)), "aborted"]
    ]


def test_words_fold_before_names_do(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "70")
    monkeypatch.delenv("NO_COLOR", raising=False)
    output.write_table(("path", "why"), [("a" * 40, "one word after another, too many")])
    lines = CONTROL.sub("", capsys.readouterr().out).splitlines()
    assert [line.rstrip() for line in lines[2:]] == [
        "a" * 40 + "  one word after another, too",
        " " * 40 + "  many",
    ]


@pytest.mark.parametrize(
    ("line", "colored"),
    [
        ("  warning: torn", "  \x1b[1;33mwarning\x1b[0m: torn"),
        ("    kseg recover a b", "    \x1b[32mkseg recover a b\x1b[0m"),
        ("Kafka 4.2: the broker starts; 0", "Kafka 4.2: \x1b[1;32mthe broker starts\x1b[0m; 0"),
        ("starts and LOSES records of 5", "starts and \x1b[1;31mLOSES records\x1b[0m of 5"),
        ("a: 1.5 KiB: b", "a: \x1b[36m1.5 KiB\x1b[0m: b"),
        ("[red]error:[/] :smile:", "[red]error:[/] :smile:"),
    ],
)
def test_words_of_a_line_are_coloured(
    line: str, colored: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.delenv("NO_COLOR", raising=False)
    output.write_line(line)
    assert capsys.readouterr().out == f"{colored}\n"


def test_help_and_piped_text_do_not_load_rich(log: Path) -> None:
    for words in (["--help"], ["info", str(log)], ["stats", str(log)]):
        program = (
            f"import sys; from kseg.cli.main import run; run({words!r}); "
            "assert 'rich' not in sys.modules"
        )
        subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)
