"""`kseg dump --kafka` prints what Kafka's own tool printed of the files that brokers left."""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from kseg.cli.main import run
from kseg.constants import NEWEST_RELEASE

#: The releases all of whose lines are printed, by what the names of their cases begin with.
RELEASES = {"4.2.0": (), "4.4.0": ("--kafka-version", NEWEST_RELEASE)}
#: What Kafka's classes say on standard error when they are loaded.
LOADING = re.compile(rb"^SLF4J:.*\n", re.MULTILINE)
COMMAND = b"$ DumpLogSegments "
FOLDER = re.compile(rb"\S*/(?=[^/ ]+\.(?:log|index|timeindex|txnindex|snapshot|checkpoint)\b)")


class Printed(NamedTuple):
    """What Kafka's tool printed of a file.

    Attributes:
        path: the file.
        options: of the tool.
        text: its lines behind the first; those on standard error last, if it kept them apart.
        threw: whether it ended with an exception.
    """

    path: Path
    options: list[str]
    text: bytes
    threw: bool


def printed(case: Path) -> Iterator[Printed]:
    """Every call of the tool of 4.2.0 or of the newest release that a case has."""
    if case.parent.name == "old":
        for path in sorted(case.glob("dump-4.2/**/*.txt")):
            yield from old_calls(case, path)
    elif case.name.partition("-")[0] in RELEASES:
        for path in sorted(case.glob("dump*/**/*.txt.gz")):
            file = case.joinpath(*path.relative_to(case).parts[1:])
            yield from calls(file.with_name(path.name.removesuffix(".txt.gz")), path)


def calls(file: Path, path: Path) -> Iterator[Printed]:
    text = LOADING.sub(b"", gzip.decompress(path.read_bytes()))
    for call in re.split(rb"^(?=\$ DumpLogSegments )", text, flags=re.MULTILINE):
        if call and file.exists():
            command, _, rest = call.partition(b"\n")
            words = command.removeprefix(COMMAND).decode().split()
            yield Printed(file, words[:-2], *_lines(rest, b"!! threw"))


def old_calls(case: Path, path: Path) -> Iterator[Printed]:
    """Here the command is not written down."""
    recovered = path.parent.name == "recovered"
    folders = (each for each in case.iterdir() if re.search(r"-\d+(\.recovered)?$", each.name))
    name = path.name.removesuffix(".txt")
    for folder in folders:
        if folder.name.endswith(".recovered") == recovered and (folder / name).exists():
            options = ["--deep-iteration", "--print-data-log"] if name.endswith(".log") else []
            text = LOADING.sub(b"", path.read_bytes())
            yield Printed(folder / name, options, *_lines(text, b"### DumpLogSegments threw"))


def _lines(text: bytes, mark: bytes) -> tuple[bytes, bool]:
    lines, threw, _ = text.partition(mark)
    return lines.partition(b"\n")[2], bool(threw)


def without_folders(text: bytes) -> bytes:
    return FOLDER.sub(b"", text).rstrip(b"\n")


#: The releases before whose lines of logs can be had, by what the names of cases begin with.
OLDER = {
    "old/0.8.0": "0.8",
    "old/0.8.2.2": "0.8",
    "old/0.9.0.1": "0.9",
    "old/0.10.0.1": "0.10.0",
    "old/0.10.2.2": "0.10",
    "new/0.11.0.3": "0.11",
    "new/1.1.1": "1.1",
    "new/2.8.2": "2.8",
    "new/3.9.1": "4.2",
}


def printed_then(case: Path) -> Iterator[Printed]:
    """Every call of the own tool of an older release on a log."""
    if case.parent.name == "old":
        for path in sorted(case.glob("dump/**/*.log.txt")):
            yield from old_calls(case, path)
    else:
        for path in sorted(case.glob("dump*/**/*.log.txt.gz")):
            file = case.joinpath(*path.relative_to(case).parts[1:])
            yield from calls(file.with_name(path.name.removesuffix(".txt.gz")), path)


#: What Kafka's tool says of indexes that differ from their logs, of bytes behind the batches, and
#: of snapshots that it cannot read.
COMPLAINTS = re.compile(
    rb"^(Mismatches in|Found |The following indexed|Indexed? |  Index |"
    rb"Snapshot (?:failed|is corrupt) ).*\n?",
    re.MULTILINE,
)


@pytest.mark.one_case_in(4)
def test_dump_prints_the_lines_of_kafkas_tool(
    fixture_case: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    options = RELEASES.get(fixture_case.name.partition("-")[0], ())
    for call in printed(fixture_case):
        check(call, capsysbinary, *options)


@pytest.mark.one_case_in(6)
def test_dump_prints_the_lines_that_older_tools_had_for_logs(
    fixture_case: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    name = f"{fixture_case.parent.name}/{fixture_case.name}"
    version = OLDER.get(name.partition("-")[0])
    for call in printed_then(fixture_case) if version else ():
        if not any("decoder" in option for option in call.options):
            check(call, capsysbinary, "--kafka-version", version)


def check(call: Printed, capture: pytest.CaptureFixture[bytes], *options: str) -> None:
    code = run(["dump", "--kafka", *options, *call.options, str(call.path)])
    got = capture.readouterr()
    out, complaints = without_folders(got.out.partition(b"\n")[2]), without_folders(got.err)
    wanted = without_folders(COMPLAINTS.sub(b"", call.text))
    if call.threw and not complaints:  # at a codec or an entry that only a reader misses
        return
    if not complaints.startswith(b"kseg: "):
        assert b"\n".join(filter(None, (out, complaints))) == wanted, call
        return
    # Damage is kseg's own error, and the lines go on behind it.
    assert code == (0 if complaints.startswith(b"kseg: warning: ") else 1), call
    if not call.threw or wanted:
        assert out.splitlines()[:1] == wanted.splitlines()[:1], call
