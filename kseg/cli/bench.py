"""`kseg bench`: this machine's rate for each step, on a file of yours."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from kseg.cli import output
from kseg.cli.paths import sources
from kseg.cli.row_writer import RowWriter
from kseg.cli.rows import RECORD_FIELDS, Style, record_rows
from kseg.constants import Compression
from kseg.errors import FormatError, LimitExceededError, NotALogError
from kseg.files.log_file import LogFile, Tile
from kseg.files.mapping import MappedFile
from kseg.files.selection import Selection
from kseg.format.bodies import body_of
from kseg.format.codec import Arena
from kseg.format.columns import decode
from kseg.format.header import BatchTable
from kseg.format.request import INFLATED_BYTES_MAX, Request
from kseg.format.workspace import Workspace

_RUNS_MIN = 3
_WINDOW_BYTES = 1 << 20
_PLAIN = ("offset", "timestamp")
_WHOLE = ("offset", "timestamp", "key", "value", "headers")
#: Steps in the order of the path; each goes over every byte once.
_STEPS = ("read sum", "verify", "scan", "columns", "columns with data", "dump jsonl")


def bench(
    paths: tuple[str, ...],
    topics: tuple[str, ...],
    partitions: tuple[tuple[int, int], ...],
    seconds: float,
    as_json: bool,
) -> None:
    """Run the verb."""
    found = sources(paths, Selection(topics, partitions))
    logs = [source.path for source in found if source.name.kind.holds_batches]
    if not logs:
        raise NotALogError("no logs to measure", path=paths[0])
    size = sum(path.stat().st_size for path in logs)
    if not size:
        raise NotALogError("nothing to measure, the logs are empty", path=paths[0])
    records = _decode(logs, ("offset",))
    rates = [_rate(step, logs, size, records, seconds) for step in _STEPS]
    measured = (_codec_rate(codec, logs, seconds) for codec in Compression if codec)
    codecs = [row for row in measured if row is not None]
    if as_json:
        document = {"path": output.path_field(paths), "bytes": size, "records": records}
        output.write_document("bench/1", {**document, "rates": rates, "codecs": codecs})
        return
    output.write_line(
        f"{output.counted(len(logs), 'log')}, {output.human_bytes(size)}, "
        f"{output.counted(records, 'record')}"
    )
    _print(rates, codecs)


def _rate(
    step: str, logs: Sequence[Path], size: int, records: int, seconds: float
) -> dict[str, Any]:
    """The median of the runs of one step, as the document has it."""
    runs: dict[str, Callable[[], object]] = {
        "read sum": lambda: _read_sum(logs),
        "verify": lambda: _walk(logs, "note"),
        "scan": lambda: _walk(logs, "ignore"),
        "columns": lambda: _decode(logs, _PLAIN),
        "columns with data": lambda: _decode(logs, _WHOLE),
        "dump jsonl": lambda: _dump(logs),
    }
    times = _timed(runs[step], seconds)
    taken = median(times)
    return {
        "name": step,
        "runs": len(times),
        "seconds": taken,
        "bytes_per_second": size / taken,
        "records_per_second": records / taken,
    }


def _timed(run: Callable[[], object], seconds: float) -> list[float]:
    """Times of at least three runs, after one that warms caches and code."""
    run()
    times: list[float] = []
    while len(times) < _RUNS_MIN or sum(times) < seconds:
        begin = time.perf_counter()
        run()
        times.append(time.perf_counter() - begin)
    return times


def _read_sum(logs: Sequence[Path]) -> int:
    total = 0
    for path in logs:
        with MappedFile.open(path) as file:
            if file.mapped:
                with file.view() as view:
                    total += _sum(view)
                continue
            for position in range(0, file.size, _WINDOW_BYTES):
                total += _sum(file.read(position, _WINDOW_BYTES))
    return total


def _sum(view: memoryview) -> int:
    words = np.frombuffer(view[: len(view) // 8 * 8], np.uint64)
    return int(words.sum())


def _walk(logs: Sequence[Path], on_bad_crc: str) -> int:
    batches = 0
    for path in logs:
        with LogFile.open(path) as file:
            batches += sum(len(tile.table) for tile in file.walk(on_bad_crc=on_bad_crc))
    return batches


def _pieces(logs: Sequence[Path], fields: tuple[str, ...]) -> Any:
    """Every piece of every log, with checksums; damaged batches are skipped."""
    request = Request(columns=fields, control=True)
    workspace = Workspace()
    for path in logs:
        with LogFile.open(path) as file:
            for tile in file.walk(on_bad_crc="note"):
                yield from decode(
                    tile.data,
                    tile.table,
                    request,
                    base=tile.base,
                    workspace=workspace,
                    on_error=lambda error: None,
                )


def _decode(logs: Sequence[Path], fields: tuple[str, ...]) -> int:
    return sum(len(columns) for columns in _pieces(logs, fields))


def _dump(logs: Sequence[Path]) -> None:
    style = Style("jsonl", file=logs[0].name)
    writer = RowWriter(lambda block: None)
    fields = tuple(field.name for field in RECORD_FIELDS if field.name != "next_offset")
    for columns in _pieces(logs, fields):
        writer.rows(record_rows(columns, style), len(columns))


def _codec_rate(codec: Compression, logs: Sequence[Path], seconds: float) -> dict[str, Any] | None:
    """The rate at which batches of one codec inflate; None if no batch has it."""
    batches, stored, inflated = _inflate(codec, logs)
    if not batches:
        return None
    taken = median(_timed(lambda: _inflate(codec, logs), seconds))
    return {
        "codec": codec.label,
        "batches": batches,
        "bytes": stored,
        "inflated_bytes": inflated,
        "seconds": taken,
        "inflated_bytes_per_second": inflated / taken,
    }


def _inflate(codec: Compression, logs: Sequence[Path]) -> tuple[int, int, int]:
    """Inflate every batch of a codec: batches, bytes stored, bytes inflated."""
    batches = stored = inflated = 0
    arena = Arena()
    for path in logs:
        with LogFile.open(path) as file:
            for tile in file.walk(on_bad_crc="ignore"):
                table = tile.table.take(tile.table.codec == codec)
                inflated += sum(_inflated(tile, table, row, arena) for row in range(len(table)))
                batches += len(table)
                stored += int(table.size.sum())
    return batches, stored, inflated


def _inflated(tile: Tile, table: BatchTable, row: int, arena: Arena) -> int:
    """The inflated size of a batch in bytes; 0 for a damaged batch."""
    try:
        body = body_of(
            tile.data,
            table.take(slice(row, row + 1)),
            base=tile.base,
            arena=arena,
            inflated_max=INFLATED_BYTES_MAX,
            refuse_bad_crc=False,
        )
    except (FormatError, LimitExceededError):
        return 0
    return 0 if body is None else len(body)


def _print(rates: Sequence[dict[str, Any]], codecs: Sequence[dict[str, Any]]) -> None:
    base = rates[0]["seconds"]
    output.write_table(
        ("step", "MB/s", "records/s", "of read sum", "runs"),
        [
            (
                rate["name"],
                round(rate["bytes_per_second"] / 1e6),
                round(rate["records_per_second"]),
                f"{base / rate['seconds']:.3f}",
                rate["runs"],
            )
            for rate in rates
        ],
    )
    if codecs:
        output.write_line()
        output.write_table(
            ("codec", "batches", "bytes", "inflated", "inflated MB/s"),
            [
                (
                    row["codec"],
                    row["batches"],
                    row["bytes"],
                    row["inflated_bytes"],
                    round(row["inflated_bytes_per_second"] / 1e6),
                )
                for row in codecs
            ],
        )
