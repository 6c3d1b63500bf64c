"""Every door through which records come out of a partition directory, asked the same question."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from kseg.cli.main import run
from kseg.format.values import RecordColumns
from kseg.log.log import Log
from kseg.log.segment.reader import Segment
from kseg.records.scan import scan
from kseg.spark.options import parse_options
from kseg.spark.plan import list_logs, make_plan
from kseg.spark.reading import read_split

Bound = int | None
Rows = list[tuple[int, int]]
_FIELDS = ("offset", "timestamp")
_INT64_MAX = 2**63 - 1


class Question(NamedTuple):
    """Half-open ranges of offsets and times; None for no bound."""

    offsets: tuple[Bound, Bound] = (None, None)
    times: tuple[Bound, Bound] = (None, None)

    @property
    def where(self) -> dict[str, Any]:
        """As `Log.read` and `Segment.read` take it."""
        return {"offset": self.offsets, "time": self.times}

    @property
    def words(self) -> list[str] | None:
        """As options of the command line; None where that cannot say it."""
        said = []
        for name, (first, end) in (("--offset", self.offsets), ("--time", self.times)):
            given = [bound for bound in (first, end) if bound is not None]
            if any(abs(bound) > _INT64_MAX for bound in given) or given != sorted(given):
                return None
            if given:
                said.append(f"{name}={_text(first)}..{_text(end)}")
        return said

    def holds(self, offset: int, timestamp: int) -> bool:
        """Whether a record is asked for."""
        pairs = ((offset, self.offsets), (timestamp, self.times))
        return all(
            (first is None or first <= value) and (end is None or value < end)
            for value, (first, end) in pairs
        )


def _text(bound: Bound) -> str:
    return "" if bound is None else str(bound)


def _rows(pieces: Iterable[RecordColumns]) -> Rows:
    return [
        pair
        for columns in pieces
        for pair in zip(columns["offset"].tolist(), columns["timestamp_ms"].tolist(), strict=True)
    ]


def _logs(directory: Path) -> list[Path]:
    return sorted(directory.glob("*.log"))


def of_directory(directory: Path, asked: Question) -> Rows:
    """`scan` of the directory."""
    return _rows(scan(directory, offset=asked.offsets, time=asked.times, columns=_FIELDS))


def of_files(directory: Path, asked: Question) -> Rows:
    """`scan` of its files."""
    logs = _logs(directory)
    return _rows(scan(logs, offset=asked.offsets, time=asked.times, columns=_FIELDS))


def of_log(directory: Path, asked: Question) -> Rows:
    """`Log.read`, and record by record."""
    with Log.open(directory) as log:
        rows = _rows(log.read(columns=_FIELDS, **asked.where))
        singly = [(each.offset, each.timestamp) for each in log.records(**asked.where)]
    assert singly == rows
    return rows


def committed(directory: Path, asked: Question) -> Rows:
    """`Log.read` of committed records; for logs without transactions."""
    with Log.open(directory) as log:
        return _rows(log.read(columns=_FIELDS, isolation="read_committed", **asked.where))


def of_segments(directory: Path, asked: Question) -> Rows:
    """`Segment.read` of each file."""
    rows = []
    for path in _logs(directory):
        with Segment.open(path) as segment:
            rows += _rows(segment.read(columns=_FIELDS, **asked.where))
    return rows


def of_spark(directory: Path, asked: Question) -> Rows | None:
    """What Spark's tasks read, planned with the options that narrow; None for other bounds."""
    bounds = (*asked.offsets, *asked.times)
    if asked.words is None or any(bound is not None and bound < 0 for bound in bounds):
        return None
    names = ("startingOffsets", "endingOffsets", "startingTimestamp", "endingTimestamp")
    given = {
        name: str(bound) for name, bound in zip(names, bounds, strict=True) if bound is not None
    }
    options = parse_options({"path": str(directory), "targetPartitionBytes": "200", **given})
    tasks = make_plan(list_logs(options), options)
    return _rows(
        columns
        for task in tasks
        for split in task
        for columns in read_split(split, _FIELDS, options)
    )


def _verb(verb: str, *more: str) -> Callable[[Path, Question], Rows | None]:
    def ask(directory: Path, asked: Question) -> Rows | None:
        words = asked.words
        if words is None:
            return None
        code, out, said = command([verb, str(directory), *words, *more])
        assert code == 0, (verb, code, said)
        return _lines(out.splitlines())

    ask.__doc__ = f"`kseg {verb}`."
    return ask


def exported(directory: Path, asked: Question) -> Rows | None:
    """`kseg export` to lines of JSON."""
    target = directory.parent / "out.jsonl"
    words = asked.words
    if words is None:
        return None
    code, _, said = command(["export", str(directory), *words, "--replace", "-o", str(target)])
    assert code == 0, ("export", code, said)
    return _lines(target.read_bytes().splitlines())


def _lines(lines: Iterable[bytes]) -> Rows:
    rows = []
    for line in lines:
        row = json.loads(line)
        rows.append((row["offset"], -1 if row["timestamp"] is None else row["timestamp"]))
    return rows


DOORS: dict[str, Callable[[Path, Question], Rows | None]] = {
    "scan of the directory": of_directory,
    "scan of files": of_files,
    "Log": of_log,
    "Log, committed": committed,
    "Segment": of_segments,
    "Spark": of_spark,
    "read": _verb("read", "--format", "jsonl"),
    "dump": _verb("dump", "--format", "jsonl"),
    "export": exported,
}


def disagreements(
    directory: Path, asked: Question, wanted: Rows, doors: Iterable[str] = tuple(DOORS)
) -> Iterator[str]:
    """What each door says that is not as wanted."""
    for name in doors:
        found = DOORS[name](directory, asked)
        if found is not None and found != wanted:
            yield f"{name}: {found} for {asked}, not {wanted}"


@contextmanager
def _streams() -> Iterator[tuple[io.BytesIO, io.BytesIO]]:
    before = sys.stdin, sys.stdout, sys.stderr
    out, err = io.BytesIO(), io.BytesIO()
    sys.stdin = io.TextIOWrapper(io.BytesIO())
    sys.stdout, sys.stderr = io.TextIOWrapper(out), io.TextIOWrapper(err)
    try:
        yield out, err
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        sys.stdin, sys.stdout, sys.stderr = before


def command(words: list[Any]) -> tuple[int, bytes, bytes]:
    """One command line in this process: exit code, output, messages."""
    with _streams() as (out, err):
        code = run([str(word) for word in words])
        sys.stdout.flush()
        sys.stderr.flush()
        return code, out.getvalue(), err.getvalue()
