"""One pass against step by step: `python -m tests.fuzz.fuzz_columns --cases 100000 --seed 1`.

Batches are mutated with the knowledge to get past sizes, checksums and codecs, and read twice: by
the kernel that reads usual batches in one pass, and with that kernel refusing every batch, so that
each goes through the careful path. Both must agree on every record, and on kind, place and words of
every error; so must tables, maps and windows. Cases depend on seed and number alone.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any
from unittest import mock

import numpy as np

from kseg.errors import KsegError
from kseg.files import log_file
from kseg.format import reader
from kseg.format.columns import FIELDS, Request, decode
from kseg.format.header import scan
from kseg.format.values import RecordColumns
from kseg.log.segment.reader import Segment
from tests.builders import Record, batch, record
from tests.fuzz import mutate, seeds
from tests.fuzz.targets import check_piece, exact

INFLATED_MAX = 1 << 22
#: So many of the cases go through files, too.
_FILE_SHARE = 0.1
_WINDOW = 700
_EXTREMES = (0, 1, -1, 5, 100, 2**31, 2**62, 2**63 - 1, -(2**63))


def careful(data: object, table: object, *, limit: int, state: Any, **rest: object) -> int:
    """`read_batches` for which no batch is usual."""
    end = limit if table is None else len(table)  # type: ignore[arg-type]
    return int(reader.End.END if state[0] >= end else reader.End.ODD)


# ---- bytes ---------------------------------------------------------------------------------------


def _record(source: Random) -> Record:
    def some(most: int) -> bytes | None:
        size = source.choice((None, 0, 1, 10, 31, 33, 63, 64, 65, 127, 128, 129, 300, most))
        return None if size is None else source.randbytes(size)

    headers = source.choice(((), (), (), ((b"h", b"1"),), ((b"h", None), (b"", b"x" * 70))))
    timestamp = source.choice((0, 5, 1_700_000_000_000, -1, 2**62, -(2**40)))
    return record(some(2000), key=some(200), headers=headers, timestamp=timestamp)


def pool(source: Random, count: int = 120) -> list[bytes]:
    """Sound batches of magic 2, each of its own shape."""
    made = []
    for _ in range(count):
        many = [_record(source)] * source.choice((0, 1, 1, 2, 9, 70))
        more = [_record(source) for _ in range(source.choice((0, 1, 1, 3, 8)))]
        made.append(
            batch(
                many + more,
                base_offset=source.choice((0, 7, 100, 2**31, 2**63 - 1)),
                codec=source.choice((0, 0, 0, 0, 1, 2, 3, 4)),
                log_append=source.random() < 0.2,
                control=source.random() < 0.1,
                producer_id=source.choice((-1, 5)),
            )
        )
    return made


def seeds_of(seed: str) -> list[bytes]:
    """What the cases of a seed start from."""
    kept = [each.data for each in seeds.load() if each.kind == "log"]
    return kept + pool(Random(f"{seed} pool")) * 4


def make(seed: str, number: int, kept: list[bytes]) -> tuple[bytes, Random]:
    """The bytes of a case, and the source of what is asked."""
    source = Random(f"{seed} {number}")
    data = b"".join(source.choice(kept) for _ in range(source.choice((1, 1, 2, 4))))
    for _ in range(source.choice((0, 1, 1, 1, 3))):
        data = mutate.log(data, source, kept)
    return data, source


# ---- reading -------------------------------------------------------------------------------------


def request_of(source: Random) -> dict[str, Any]:
    """What is asked for; the arguments of `Request`."""
    usual = (("offset", "timestamp"), ("offset", "timestamp", "key", "value"), ("offset",))
    fields: tuple[str, ...] = source.choice((*usual, (*usual[1], "headers"), ()))
    if not fields:
        fields = tuple(source.sample(FIELDS, source.randrange(1, len(FIELDS) + 1)))
    asked: dict[str, Any] = {
        "fields": fields,
        "rows_max": source.choice((1, 2, 7, 100, 65_536, 65_536)),
        "bytes_max": source.choice((1, 50, 5000, 16 << 20, 16 << 20)),
        "control": source.random() < 0.7,
        "verify_crc": source.random() < 0.7,
        "inflated_max": source.choice((1000, INFLATED_MAX, INFLATED_MAX)),
    }
    if source.random() < 0.3:
        names = ("offset_start", "offset_end", "timestamp_start", "timestamp_end")
        asked |= {name: source.choice(_EXTREMES) for name in source.sample(names, 2)}
    return asked


def _rows(piece: RecordColumns) -> Iterator[tuple[Any, ...]]:
    columns = [
        column.tolist() if isinstance(column, np.ndarray) else list(column)
        for column in piece.arrays.values()
    ]
    types: Any = piece.timestamp_types
    if types is not None:
        columns.append(np.broadcast_to(types, len(piece)).tolist())
    return zip(*columns, strict=True)


Events = list[Any]


def events(read: Callable[[Callable[[KsegError], None] | None], Iterator[RecordColumns]]) -> Events:
    """Records and errors in the order in which they come, once raised and once reported."""
    found: Events = []

    def note(error: KsegError) -> None:
        index = getattr(error, "record_index", None)
        found.append((type(error), str(error), error.position, error.offset, index))

    try:
        for piece in read(None):
            check_piece(piece)
            found.extend(_rows(piece))
    except KsegError as error:
        note(error)
    found.append("reported")
    for piece in read(note):
        found.extend(_rows(piece))
    return found


def both(read: Callable[..., Iterator[RecordColumns]]) -> tuple[Events, Events]:
    """The events of the one pass, and of the careful path alone."""
    fast = events(read)
    with mock.patch.object(reader, "read_batches", careful):
        return fast, events(read)


def check_table(data: bytes, source: Random) -> Events:
    """Batches of a table, read both ways."""
    view = exact(data)
    table = scan(view, on_bad_crc=source.choice(("note", "defer", "ignore")))
    request = Request(**request_of(source))
    fast, slow = both(lambda report: decode(view, table, request, on_error=report))
    assert fast == slow
    return fast


def check_file(data: bytes, source: Random, directory: Path) -> None:
    """A segment that is mapped and one that is read through windows, each read both ways."""
    path = directory / f"{0:020}.log"
    path.write_bytes(data)
    asked = request_of(source)
    asked.pop("offset_end", None)  # how far behind it a walk goes on, a tile or a window says
    where = {
        "start_offset": asked.pop("offset_start", None),
        "start_timestamp": asked.pop("timestamp_start", None),
        "end_timestamp": asked.pop("timestamp_end", None),
        "max_rows": asked.pop("rows_max"),
        "max_bytes": asked.pop("bytes_max"),
    }
    found = []
    with mock.patch.object(log_file, "WINDOW_BYTES", _WINDOW):
        for mapping in ("always", "never"):
            with Segment.open(path, mapping=mapping, is_last=True) as segment:  # type: ignore[arg-type]
                found += both(lambda report: segment.read(**where, **asked, on_error=report))
    assert found[1:] == found[:-1]


def run(seed: str, number: int, kept: list[bytes], directory: Path) -> None:
    """One case."""
    data, source = make(seed, number, kept)
    check_table(data, source)
    if source.random() < _FILE_SHARE:
        check_file(data, source, directory)


def main() -> int:
    """Run the cases of a seed; exit status 1 says that two ways to read disagree."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument("--seed", default="1")
    parser.add_argument("--first", type=int, default=0)
    options = parser.parse_args()
    kept = seeds_of(options.seed)
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as directory:
        for number in range(options.first, options.first + options.cases):
            try:
                run(options.seed, number, kept, Path(directory))
            except Exception:
                print(f"repeat: --seed {options.seed} --first {number} --cases 1", flush=True)
                raise
    taken = time.perf_counter() - began
    print(f"{options.cases} cases agree, {options.cases / taken:.0f} a second")
    return 0


if __name__ == "__main__":
    sys.exit(main())
