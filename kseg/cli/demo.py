"""`kseg demo`: a tour on a small real log: verify, show, decode, Spark; break it, repair it."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import chdir, contextmanager
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

import click

from kseg.cli import output
from kseg.cli.failures import Exit, usage_errors
from kseg.errors import KsegError
from kseg.extras import require
from kseg.files.whole_file import (
    refuse_in_data_directory,
)
from kseg.format.times import iso_text

_DATA = "data"
_EXISTS = "it exists; give -o another name, or remove it first if it is of an earlier demo"
#: The verbs that the tour runs.
_TOUR = (
    ("Verify every checksum, record, index, snapshot and checkpoint:", f"verify --deep {_DATA}"),
    ("Show what headers say:", f"info {_DATA}"),
    (
        "Show records, as a consumer of committed ones gets them:",
        f"read --isolation read_committed --limit 3 {_DATA}/payments-0",
    ),
)
#: All topics but Kafka's own: readers of Parquet pass over files whose names begin with `_`.
_TOPICS = "[!_]*"
_EXPORT = (
    "Decode into Parquet, one file a partition:",
    f"export {_DATA} --topic {_TOPICS} -o parquet",
)
_BROKEN = "clicks-1"
_LOST_BYTES = 40
_REPAIR = (
    ("What is wrong with it:", f"verify {_BROKEN}"),
    ("The repair would be:", f"recover {_BROKEN}"),
    ("Do it:", f"recover {_BROKEN} --apply --no-backup"),
    ("And every byte is right again:", f"verify {_BROKEN}"),
)


def demo(no_spark: bool, out: str | None, damaged: bool) -> int:
    """Run the verb; returns the exit code."""
    if damaged and out is None:
        raise click.UsageError("--damaged is for a copy: -o DIR")
    if out is not None:
        with usage_errors():
            refuse_in_data_directory(out, is_data=True)
        try:
            _copy_to(Path(out))
        except FileExistsError as error:
            raise FileExistsError(error.errno, _EXISTS, out) from error
        if damaged:
            _damage(Path(out))
        state = "after a crash and with a bad sector" if damaged else "stopped in good order"
        output.write_line(f"{out}: the data directory of a Kafka broker, {state}")
        return Exit.OK
    arrow = _lacks(lambda: require("pyarrow", extra="arrow"))
    spark = None if no_spark else _lacks(_check_spark)
    with _copy() as directory, chdir(directory):
        for title, command in (*_TOUR, *(() if arrow else (_EXPORT,))):
            _run(title, command)
        if arrow:
            output.write_line(f"Arrow and Parquet are left out: {arrow}")
        same = True if arrow else _arrow_and_parquet()
        if spark:
            output.write_line(f"Spark is left out: {spark}")
        same &= _side_by_side(no_spark=bool(no_spark or spark))
        same &= _break_and_repair()
    return Exit.OK if same else Exit.FOUND


def _lacks(check: Callable[[], object]) -> KsegError | None:
    """The error that names the missing needs of a part of the tour; None if it can run."""
    try:
        check()
    except KsegError as error:
        return error
    return None


def _check_spark() -> None:
    from kseg.extras import check_pyspark
    from kseg.spark.demo import check_java

    check_pyspark()
    check_java()


@contextmanager
def _copy() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="kseg-") as parent:
        _copy_to(Path(parent) / _DATA)
        yield Path(parent)


def _copy_to(target: Path) -> None:
    with as_file(files("kseg") / "demo_data") as shipped:
        shutil.copytree(shipped, target, ignore=shutil.ignore_patterns("*.md", ".git*"))


def _damage(data: Path) -> None:
    """Take from a data directory what a crash and a bad disk take."""
    from kseg.files.io import WriteFile, unlink

    with WriteFile.open(data / "orders-0" / "00000000000000000032.log") as file:
        file.write_at(8192, bytes(512))
    _cut_end(data / _BROKEN)
    unlink(data / "orders-1" / "00000000000000000000.index")
    unlink(data / ".kafka_cleanshutdown")


def _cut_end(partition: Path) -> None:
    """Take the last bytes of a log, in the middle of a batch."""
    from kseg.files.io import WriteFile

    (log,) = partition.glob("*.log")
    with WriteFile.open(log) as file:
        file.truncate(file.size - _LOST_BYTES)


def _run(title: str, command: str) -> int:
    from kseg.cli.main import cli

    output.write_line(title)
    output.write_line(f"$ kseg {command}")
    code: int = cli.main(command.split(), prog_name="kseg", standalone_mode=False)
    output.write_line()
    return code


def _arrow_and_parquet() -> bool:
    """Read the records as Arrow and the files that were exported; whether they agree."""
    from kseg.records.scan import scan

    parquet: Any = require("pyarrow.parquet", extra="arrow")
    output.write_line("The same records as an Arrow table, and read back from Parquet:")
    names = ("topic", "partition", "offset", "timestamp", "key", "value", "headers")
    table = scan(_DATA, topics=_TOPICS, columns=names).to_arrow()
    table_again = parquet.ParquetDataset("parquet").read(columns=list(names))
    same = bool(table.equals(table_again))
    output.write_line(
        f"{table.num_rows} rows, {table.num_columns} columns; "
        f"Parquet holds {'the same' if same else 'OTHER ROWS'}"
    )
    output.write_line()
    return same


def _side_by_side(*, no_spark: bool) -> bool:
    """One small job here and through Spark; whether both saw the same."""
    from kseg.spark.demo import summarise_by_spark, summarise_locally

    summaries = {"kseg": summarise_locally(_DATA)}
    if no_spark:
        output.write_line("Sums over all records:")
    else:
        output.write_line("Sums over all records, here and through Spark (local[2]):")
        summaries["spark"] = summarise_by_spark(_DATA)
    values = list(summaries.values())
    rows: list[list[object]] = [
        [name, *(getattr(summary, name) for summary in values)]
        for name in ("records", "key_bytes", "value_bytes", "offset_sum")
    ]
    rows += [
        [name, *(iso_text(getattr(summary, name)) for summary in values)]
        for name in ("first_timestamp", "last_timestamp")
    ]
    output.write_table(("", *summaries), rows)
    if no_spark:
        return True
    same = summaries["kseg"] == summaries["spark"]
    output.write_line("Equal." if same else "DIFFERENT.")
    return same


def _break_and_repair() -> bool:
    """Cut the end of a log, as in a crash, and recover it; whether it is whole then."""
    output.write_line()
    output.write_line(f"Break a log, as a crash may: the last {_LOST_BYTES} bytes are gone.")
    output.write_line(f"$ cd {_DATA}")
    output.write_line()
    _cut_end(Path(_DATA, _BROKEN))
    with chdir(_DATA):  # shorter names: each step fits 24 lines of 80 columns
        codes = [_run(title, command) for title, command in _REPAIR]
    return codes[-1] == Exit.OK
