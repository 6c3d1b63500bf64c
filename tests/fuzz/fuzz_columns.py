"""Every way to read the same batches: `python -m tests.fuzz.fuzz_columns --cases 1000000 --seed 1`.

Batches of each magic and codec are spoilt with knowledge of their layout (`tests.fuzz.batches`) and
read by the pass that takes usual batches from header to columns, and by the careful path, one batch
at a time; with the system's codec libraries and by packages alone. All must agree on every record,
and on kind, place and words of every error. So must segments that are mapped and that are read
through windows, where sizes and magics are spoilt, too.

Rounds of some dozens of batches are read at a time, and depend on seed and number alone: `--only N`
repeats one. Exit status 1 says that two ways disagree.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any
from unittest import mock

import numpy as np

from kseg._kernels import inflate
from kseg.errors import KsegError
from kseg.files import log_file
from kseg.format import reader
from kseg.format.columns import decode, decode_with_care
from kseg.format.header import BatchTable, scan
from kseg.format.reader import Workspace
from kseg.format.request import FIELDS, Request, narrow
from kseg.format.values import BinaryColumn, HeadersColumn, RecordColumns
from kseg.log.segment.reader import Segment
from tests import places
from tests.fuzz import batches, mutate, seeds
from tests.fuzz.targets import check_piece, exact

INFLATED_MAX = 1 << 22
#: Batches of a round that is read from memory, and of one that is read from a file.
TABLE_BATCHES, FILE_BATCHES = 96, 16
#: So many of the rounds go through a file; of the others, so many have plain batches alone.
_FILE_SHARE, _PLAIN_SHARE = 0.25, 0.4
#: Of those through a file, so many have plain messages of one kind alone.
_RUN_SHARE = 0.25
#: Of so many of the rounds the columns are looked into, besides being compared; so many of those
#: with compressed batches go through the packages, too.
_CHECKED_SHARE, _PACKAGES_SHARE = 0.2, 0.5
#: So many of the batches come from a broker's logs and from vectors, mutated without their layout.
_KEPT_SHARE = 0.05
_WINDOW = 700
_EXTREMES = (0, 1, -1, 5, 100, 2**31, 2**62, 2**63 - 1, -(2**63))

#: A library's own words for one stream are not always the same.
_OF_LIBRARY = re.compile(r"(zstd decompress error).*")

Report = Callable[[KsegError], None]
Read = Callable[[Report | None], Iterator[RecordColumns]]


# ---- what a reading gives ------------------------------------------------------------------------


@dataclass(slots=True)
class Outcome:
    """Records as the bytes of their columns, and errors, each behind so many records."""

    rows: int = 0
    columns: dict[str, list[bytes]] = field(default_factory=lambda: defaultdict(list))
    faults: list[tuple[Any, ...]] = field(default_factory=list)

    def take(self, piece: RecordColumns) -> None:
        """Add a piece."""
        self.rows += len(piece)
        for name, column in piece.arrays.items():
            if isinstance(column, HeadersColumn):
                self.columns[name].append(_sizes(column.offsets))
                self._add_binary(f"{name} names", column.keys)
                self._add_binary(f"{name} values", column.values)
            elif isinstance(column, BinaryColumn):
                self._add_binary(name, column)
            else:
                self.columns[name + column.dtype.char].append(column.tobytes())
        types: Any = piece.timestamp_types
        if types is not None:
            told = np.broadcast_to(np.asarray(types, np.int8), len(piece))
            self.columns["types"].append(told.tobytes())

    def _add_binary(self, name: str, column: BinaryColumn) -> None:
        self.columns[name].append(_sizes(column.offsets))
        self.columns[f"{name} bytes"].append(column.data.tobytes())
        valid = column.is_valid().tobytes() if column.null_count else b"\1" * len(column)
        self.columns[f"{name} valid"].append(valid)

    def fault(self, error: KsegError) -> None:
        """Add an error."""
        index = getattr(error, "record_index", None)
        words = _OF_LIBRARY.sub(r"\1", str(error))
        told = (type(error).__name__, words, error.position, error.offset, index)
        self.faults.append((self.rows, *told))

    def difference(self, other: Outcome) -> str:
        """Where two readings of the same bytes part; empty where they agree."""
        if self.faults != other.faults:
            pairs = zip([*self.faults, None], [*other.faults, None], strict=False)
            return "errors: " + next(f"{a} | {b}" for a, b in pairs if a != b)
        if self.rows != other.rows:
            return f"{self.rows} records | {other.rows}"
        for name in sorted(self.columns.keys() | other.columns.keys()):
            mine, theirs = (b"".join(each.columns[name]) for each in (self, other))
            if mine != theirs:
                return f"{name}: {mine[:400].hex()} | {theirs[:400].hex()}"
        return ""


def _sizes(offsets: Any) -> bytes:
    sizes: bytes = (offsets[1:] - offsets[:-1]).tobytes()
    return sizes


def outcome(read: Read, *, raises: bool, checks: bool = False) -> Outcome:
    """What a reading gives; its errors are reported, or the first is raised."""
    found = Outcome()
    try:
        for piece in read(None if raises else found.fault):
            if checks:
                check_piece(piece)
            found.take(piece)
    except KsegError as error:
        if not raises:
            raise
        found.fault(error)
    return found


# ---- ways to read --------------------------------------------------------------------------------


@contextmanager
def _by_packages() -> Iterator[None]:
    inflate.use_libraries(False, False)
    try:
        yield
    finally:
        inflate.use_libraries(True)


def one_by_one(
    view: memoryview, table: BatchTable, request: Request, report: Report | None
) -> Iterator[RecordColumns]:
    """The careful path, asked for one batch after another."""
    kept, workspace = narrow(table, request), Workspace()
    for index in range(len(kept)):
        one = kept.take(slice(index, index + 1))
        yield from decode_with_care(view, one, request, workspace, 0, None, report)


@contextmanager
def _no_batch_is_usual() -> Iterator[None]:
    """Every batch is read alone."""

    def read(self: reader.PieceReader, _data: object, *, limit: int, **_: object) -> reader.End:
        return reader.End.END if self.kernel.at >= limit else reader.End.ODD

    def read_table(
        self: reader.PieceReader, _data: object, table: BatchTable, **_: object
    ) -> reader.End:
        return reader.End.END if self.kernel.at >= len(table) else reader.End.ODD

    with mock.patch.multiple(reader.PieceReader, read=read, read_table=read_table):
        yield


def table_ways(
    view: memoryview,
    table: BatchTable,
    request: Request,
    *,
    raises: bool,
    checks: bool,
    packages: bool,
) -> dict[str, Outcome]:
    """The batches of a table, read in each way."""

    def pass_(report: Report | None) -> Iterator[RecordColumns]:
        return decode(view, table, request, on_error=report)

    def careful(report: Report | None) -> Iterator[RecordColumns]:
        return one_by_one(view, table, request, report)

    found = {"one pass": outcome(pass_, raises=raises, checks=checks)}
    found["one by one"] = outcome(careful, raises=raises)
    if packages and table.attributes_seen & 7:
        with _by_packages():
            found["one pass, packages"] = outcome(pass_, raises=raises)
            if raises:
                found["one by one, packages"] = outcome(careful, raises=raises)
    return found


def file_ways(
    path: Path, where: dict[str, Any], *, raises: bool, checks: bool
) -> dict[str, Outcome]:
    """A segment read in each way."""

    def of(mapping: Any) -> Outcome:
        with Segment.open(path, mapping=mapping, is_last=True) as segment:
            return outcome(
                lambda report: segment.read(**where, on_corrupt=report),
                raises=raises,
                checks=checks,
            )

    found = {"one pass, mapped": of("always")}
    with mock.patch.object(log_file, "WINDOW_BYTES", _WINDOW):
        found["one pass, windows"] = of("never")
    with _no_batch_is_usual():
        found["one by one, mapped"] = of("always")
    with _by_packages():
        found["one pass, mapped, packages"] = of("always")
    return found


def disagreement(found: dict[str, Outcome]) -> str:
    """Which of the ways say something else than the first; empty where all agree."""
    (first, told), *others = found.items()
    for name, other in others:
        difference = told.difference(other)
        if difference:
            return f"{first} | {name}\n{difference}"
    return ""


# ---- rounds --------------------------------------------------------------------------------------


class Kept:
    """What the rounds of a seed start from, made once."""

    def __init__(self, seed: str) -> None:
        """Make shapes, and load a broker's batches."""
        self.seed = seed
        self.shapes = batches.shapes(Random(f"{seed} shapes"))
        self.plain = [shape for shape in self.shapes if not shape.codec]
        runs: dict[tuple[int, bytes], list[batches.Shape]] = defaultdict(list)
        for shape in self.plain:
            if shape.magic < 2:
                runs[shape.magic, shape.head[8:]].append(shape)
        self.runs = list(runs.values())
        logs = [each.data for each in seeds.load() if each.kind == "log"]
        self.logs = [log[start:end] for log in logs for start, end in seeds.entries(log)]

    def among(self, source: Random, *, in_file: bool) -> Sequence[batches.Shape] | None:
        """What a round is made from; None for everything."""
        if in_file:
            return source.choice(self.runs) if source.random() < _RUN_SHARE else None
        return self.plain if source.random() < _PLAIN_SHARE else None

    def spoilt(
        self, source: Random, among: Sequence[batches.Shape] | None = None
    ) -> batches.Spoilt:
        """One batch that a walk goes past."""
        if among is not None:
            return batches.spoil(among, source)
        if source.random() >= _KEPT_SHARE:
            return batches.spoil(self.shapes, source)
        data = mutate.log(source.choice(self.logs), source, self.logs)
        whole = seeds.entries(data)
        if not whole or data[16] > 2:
            return batches.spoil(self.shapes, source)
        return batches.Spoilt(data[: whole[0][1]], f"magic {data[16]}, kept")


def request_of(source: Random) -> dict[str, Any]:
    """What is asked for; the arguments of `Request`."""
    usual = (("offset", "timestamp"), ("offset", "timestamp", "key", "value"), ("offset",))
    fields: tuple[str, ...] = source.choice((*usual, (*usual[1], "headers"), ()))
    if not fields:
        fields = tuple(source.sample(FIELDS, source.randrange(1, len(FIELDS) + 1)))
    asked: dict[str, Any] = {
        "columns": fields,
        "max_rows": source.choice((1, 2, 7, 100, *[65_536] * 8)),
        "max_bytes": source.choice((1, 50, 5000, *[16 << 20] * 8)),
        "control": source.random() < 0.8,
        "verify_crc": source.random() < 0.8,
        "inflated_max": source.choice((1000, 5000, *[INFLATED_MAX] * 4)),
    }
    if source.random() < 0.2:
        bounds: list[int | None] = [None] * 4
        for number in source.sample(range(4), 2):
            bounds[number] = source.choice(_EXTREMES)
        asked |= {"offset": (bounds[0], bounds[1]), "time": (bounds[2], bounds[3])}
    return asked


def _where(asked: dict[str, Any]) -> dict[str, Any]:
    """The same as `Segment.read` takes it.

    Without the last offset: a tile or a window decides how far behind it a walk goes on.
    """
    return asked | {"offset": (asked.get("offset", (None,))[0], None)}


@dataclass(slots=True)
class Figures:
    """What was read so far."""

    kinds: Counter[str] = field(default_factory=Counter)
    records: int = 0
    faults: Counter[str] = field(default_factory=Counter)

    def add(self, made: Sequence[batches.Spoilt], found: Outcome) -> None:
        """Count the batches of a round and what came of them."""
        self.kinds.update(each.kind for each in made)
        self.records += found.rows
        self.faults.update(re.sub(r"\W*\d[\dxa-f.]*", " N", each[2]) for each in found.faults)

    @property
    def batches(self) -> int:
        """How many batches."""
        return self.kinds.total()

    def __str__(self) -> str:
        """One line, and one each kind of batch."""
        told = f"{self.batches} batches: {self.records} records, {self.faults.total()} errors"
        kinds = ", ".join(f"{count} of {kind}" for kind, count in sorted(self.kinds.items()))
        return f"{told} in {len(self.faults)} different words\n{kinds}"


def table_round(made: Sequence[batches.Spoilt], source: Random) -> Outcome:
    """Batches of a table: all at once with errors reported, a few alone with errors raised."""
    view = exact(b"".join(each.data for each in made))
    table = scan(view, on_bad_crc=source.choice(("note", "defer", "ignore")))
    assert table.end_position == len(view), "a walk ends early"
    request = Request(**request_of(source))
    checks = source.random() < _CHECKED_SHARE
    packages = source.random() < _PACKAGES_SHARE
    found = table_ways(view, table, request, raises=False, checks=checks, packages=packages)
    wrong = disagreement(found)
    assert not wrong, wrong
    first = found["one pass"]
    if first.faults:
        at = int(np.searchsorted(table.position, source.choice(first.faults)[3]))
        near = table.take(slice(max(0, at - 1), at + 1))
        ways = table_ways(view, near, request, raises=True, checks=True, packages=packages)
        wrong = disagreement(ways)
        assert not wrong, f"raised: {wrong}"
    return first


def file_round(made: Sequence[batches.Spoilt], source: Random, directory: Path) -> Outcome:
    """Batches of a segment, one of them in the way of a walk."""
    parts = [each.data for each in made]
    if source.random() < 0.9:
        at = max(0, len(parts) - source.choice((1, 2, 3)))  # what lies behind may not be read
        parts[at] = batches.break_framing(parts[at], source)
    path = directory / f"{0:020}.log"
    path.write_bytes(b"".join(parts))
    where, raises = _where(request_of(source)), source.random() < 0.05
    checks = source.random() < _CHECKED_SHARE
    found = file_ways(path, where, raises=raises, checks=checks)
    wrong = disagreement(found)
    assert not wrong, wrong
    return found["one pass, mapped"]


def run(kept: Kept, number: int, directory: Path, figures: Figures) -> None:
    """One round; raises where two ways disagree."""
    source = Random(f"{kept.seed} {number}")
    in_file = source.random() < _FILE_SHARE
    count = source.randrange(1, 2 * (FILE_BATCHES if in_file else TABLE_BATCHES))
    among = kept.among(source, in_file=in_file)
    made = [kept.spoilt(source, among) for _ in range(count)]
    found = file_round(made, source, directory) if in_file else table_round(made, source)
    figures.add(made, found)


def search(kept: Kept, cases: int, *, first: int = 0) -> Figures:
    """Rounds from `first` on, until so many batches were read."""
    figures, number = Figures(), first
    with tempfile.TemporaryDirectory(dir=places.in_memory()) as directory:
        while figures.batches < cases:
            try:
                run(kept, number, Path(directory), figures)
            except Exception:
                print(f"repeat: --seed {kept.seed} --only {number}", flush=True)
                raise
            number += 1
    return figures


def main() -> int:
    """Run the rounds of a seed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=20_000, help="batches to be read")
    parser.add_argument("--seed", default="1", help="any text; the rounds follow from it")
    parser.add_argument("--only", type=int, help="run this round alone")
    options = parser.parse_args()
    began, used = time.perf_counter(), time.process_time()
    cases, first = (1, options.only) if options.only is not None else (options.cases, 0)
    figures = search(Kept(options.seed), cases, first=first)
    taken, used = time.perf_counter() - began, time.process_time() - used
    print(f"seed {options.seed}, {figures}")
    print(f"all agree; {taken:.0f} s, {figures.batches / used:.0f} batches a second of one core")
    return 0


if __name__ == "__main__":
    sys.exit(main())
