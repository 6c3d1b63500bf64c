"""Count what four pieces of data pass through, and how many statements that takes.

    python tools/walks.py          a table
    python tools/walks.py --json   the same as one document

The walks: one produced batch to the disk, one recovery, one scan here and in a task of Spark, one
read of columns by offset, one `verify` of a directory.

    append     modules of kseg that a call enters (rooms), and calls whose module is not that of the
               call before (moves): one `Log.append` of 50 records with zstd, after five others
    recover    sweeps for each segment of a log that was not closed, in `kseg.recover` and in an
               opening for appending
    scan       rooms and functions of kseg that `kseg.scan` of a partition enters, up to a table
    spark      likewise for the read of a task of `format("kseg")`
    read       listings of directories
    verify     listings of directories, and for each segment how often it is asked who holds the
               lock of the data directory

Statements are `ast.stmt` without docstrings over `kseg/log` and `kseg/files`, and lines of the
kernels that hold code.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
SEGMENTS, RECORDS, WARM_UPS = 3, 50, 5


# ---- what is counted -----------------------------------------------------------------------------


def steps(call: Callable[[], object]) -> dict[str, int]:
    """Rooms and functions that one call enters, and moves between rooms."""
    names: list[tuple[str, str]] = []

    def note(frame: FrameType, event: str, _argument: object) -> None:
        if event == "call":
            names.append((frame.f_globals.get("__name__", ""), frame.f_code.co_qualname))

    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    inside = [name for name in names if name[0].partition(".")[0] == "kseg"]
    rooms = [room for room, _function in inside]
    return {
        "rooms": len(set(rooms)),
        "functions": len(set(inside)),
        "moves": sum(a != b for a, b in pairwise(rooms)),
    }


_listed: list[str] | None = None


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    if _listed is not None and event in {"os.listdir", "os.scandir"}:
        _listed.append(os.fspath(arguments[0]) if arguments[0] is not None else ".")


@contextmanager
def listings(under: Path) -> Iterator[list[str]]:
    """Directories that are listed inside of the `with`, as often as they are."""
    global _listed
    _listed = found = []
    try:
        yield found
    finally:
        _listed = None
        found[:] = [path for path in found if str(path).startswith(str(under))]


@contextmanager
def calls(function: str) -> Iterator[list[str]]:
    """The first argument of a function's calls inside of the `with`, as often as it is called."""
    found: list[str] = []

    def note(frame: FrameType, event: str, _argument: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_name == function:
            argument = frame.f_locals[code.co_varnames[0]]
            found.append(str(getattr(argument, "path", argument)))

    sys.setprofile(note)
    try:
        yield found
    finally:
        sys.setprofile(None)


# ---- the walks -----------------------------------------------------------------------------------


def _batch(records: int = RECORDS) -> bytes:
    import kseg

    columns = {
        "key": [b"key-%d" % i for i in range(records)],
        "value": [b"value-%d" % i * 8 for i in range(records)],
        "timestamp": [1_700_000_000_000 + i for i in range(records)],
    }
    options = kseg.BatchOptions(compression=kseg.Compression.ZSTD)
    return b"".join(bytes(each.data) for each in kseg.encode_batches(columns, options))


def _write(path: Path) -> None:
    import kseg

    batch = _batch()
    with kseg.Log.open(path, mode="append", create=True) as log:
        for _ in range(SEGMENTS):
            for _ in range(20):
                log.append(batch)
            log.roll()


def _crash(data: Path) -> None:
    """Leave a data directory as a process does that was killed, and a log without its indexes."""
    (data / ".kafka_cleanshutdown").unlink(missing_ok=True)
    (data / "recovery-point-offset-checkpoint").unlink(missing_ok=True)
    for index in data.glob("*/*index"):
        index.unlink()


def walk_append(data: Path) -> dict[str, int]:
    """The steps of one append."""
    import kseg

    batch = _batch()
    with kseg.Log.open(data / "appended-0", mode="append", create=True) as log:
        for _ in range(WARM_UPS):
            log.append(batch)
        return steps(lambda: log.append(batch))


def walk_scan(data: Path) -> dict[str, int]:
    """The steps of a scan of a partition to a table."""
    import kseg

    _write(data / "scanned-0")
    for _ in range(2):  # the first imports what it uses
        found = steps(lambda: kseg.scan(data / "scanned-0").to_arrow())
    return found


def walk_spark(data: Path) -> dict[str, int]:
    """The steps of a task of Spark that reads a partition."""
    from pyspark.sql.types import BinaryType, LongType, StructField, StructType

    from kseg.spark.options import parse_options
    from kseg.spark.plan import list_logs, make_plan
    from kseg.spark.reading import read_task
    from kseg.spark.schema import project

    _write(data / "scanned-0")
    options = parse_options({"path": str(data)})
    fields = [StructField("offset", LongType()), StructField("value", BinaryType())]
    projection = project(StructType(fields), options)
    (task,) = make_plan(list_logs(options), options)
    for _ in range(2):
        found = steps(lambda: list(read_task(task, projection, options)))
    return found


def walk_recover(data: Path) -> dict[str, float]:
    """Sweeps for each segment."""
    import kseg

    log = data / "recovered-0"
    _write(log)
    count = len(list(log.glob("*.log")))
    _crash(data)
    with calls("sweep_segment") as recovered:
        kseg.recover(log)
    _crash(data)
    with calls("sweep_segment") as opened, kseg.Log.open(log, mode="append", recover=True):
        pass
    return {
        "sweeps_a_segment": len(recovered) / count,
        "sweeps_a_segment_opened": len(opened) / count,
    }


def walk_read(data: Path) -> dict[str, int]:
    """Listings of one read of columns by offset."""
    import kseg

    log = data / "read-0"
    _write(log)
    for _ in range(2):  # the first imports what it uses
        with listings(data) as found, kseg.Log.open(log) as opened:
            next(iter(opened.read(offset=(1_500, None), columns=("offset", "value"))))
    return {"listings": len(found)}


def walk_verify(data: Path) -> dict[str, float]:
    """Listings and questions for the lock of a `verify` of a data directory with one partition."""
    from kseg.analysis.verify import verify

    log = data / "verified-0"
    _write(log)
    for _ in range(2):
        with listings(data) as found, calls("holder") as asked:
            verify([data])
    count = len(list(log.glob("*.log")))
    return {"listings": len(found), "lock_questions_a_segment": (len(asked) - 1) / count}


# ---- statements ----------------------------------------------------------------------------------


def _statements(path: Path) -> int:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    docstrings = sum(
        ast.get_docstring(node, clean=False) is not None
        for node in ast.walk(tree)
        if isinstance(node, documented)
    )
    return sum(isinstance(node, ast.stmt) for node in ast.walk(tree)) - docstrings


def _code_lines(path: Path) -> int:
    text = re.sub(r'"""(?:.|\n)*?"""', "", path.read_text(encoding="utf-8"))
    lines = (line.strip() for line in text.splitlines())
    return sum(bool(line) and not line.startswith("#") for line in lines)


def statements() -> dict[str, int]:
    """Statements of `kseg/log` and `kseg/files`, code lines of the kernels."""
    package = ROOT / "kseg"
    python = [path for room in ("log", "files") for path in (package / room).rglob("*.py")]
    kernels = [path for kind in ("*.pyx", "*.pxd") for path in package.rglob(kind)]
    counted = {
        "python": sum(map(_statements, python)),
        "kernels": sum(map(_code_lines, kernels)),
    }
    return counted | {"together": sum(counted.values())}


def main() -> None:
    """Print all counts."""
    arguments = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    arguments.add_argument("--json", action="store_true", help="one document")
    chosen = arguments.parse_args()
    sys.addaudithook(_hook)
    counts: dict[str, dict[str, Any]] = {}
    for name, walk in (
        ("append", walk_append),
        ("recover", walk_recover),
        ("scan", walk_scan),
        ("spark", walk_spark),
        ("read", walk_read),
        ("verify", walk_verify),
    ):
        with tempfile.TemporaryDirectory() as place:
            counts[name] = walk(Path(place))
    counts["statements"] = statements()
    if chosen.json:
        print(json.dumps(counts, indent=2))
        return
    for name, row in counts.items():
        for what, count in row.items():
            print(f"{name:<11} {what:<24} {count:>8g}")


if __name__ == "__main__":
    main()
