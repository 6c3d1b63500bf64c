"""`kseg demo`: a tour on a small real log: verify, show, decode, Spark; break it, repair it.

One small job runs through Spark and in this process, side by side. Both give the same sums over the
same records, so equal numbers mean equal records. Spark is started quietly on this machine: the
output of the JVM goes to a file, which is read only if Spark does not start.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import chdir, contextmanager
from importlib.resources import as_file, files
from os import fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from kseg.cli import output
from kseg.cli.failures import Exit, usage_errors
from kseg.constants import StrPath
from kseg.errors import KsegError
from kseg.extras import require
from kseg.files.whole_file import (
    refuse_in_data_directory,
)
from kseg.format.times import iso_text

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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
    arrow = _missing_need(lambda: require("pyarrow", extra="arrow"))
    spark = None if no_spark else _missing_need(_check_spark)
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
    return Exit.OK if same else Exit.FOUND  # all parts gave the same, and the broken log is whole


def _missing_need(check: Callable[[], object]) -> KsegError | None:
    """The error that names the missing needs of a part of the tour; None if it can run."""
    try:
        check()
    except KsegError as error:
        return error
    return None


def _check_spark() -> None:
    """Raise the error of a missing pyspark, or Java."""
    from kseg.extras import check_pyspark

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
    """Damage a data directory as a crash and a bad disk may."""
    from kseg.files.io import WriteFile, unlink

    with WriteFile.open(data / "orders-0" / "00000000000000000032.log") as file:
        file.write_at(8192, bytes(512))
    _cut_end(data / _BROKEN)
    unlink(data / "orders-1" / "00000000000000000000.index")
    unlink(data / ".kafka_cleanshutdown")


def _cut_end(partition: Path) -> None:
    """Remove the last bytes of a log, so that it ends inside a batch."""
    from kseg.files.io import WriteFile

    (log,) = partition.glob("*.log")
    with WriteFile.open(log) as file:
        file.truncate(file.size - _LOST_BYTES)


def _run(title: str, command: str) -> int:
    """Show and run a command line of kseg; returns its exit code."""
    from kseg.cli.main import cli

    output.write_line(title)
    output.write_line(f"$ kseg {command}")
    code: int = cli.main(command.split(), prog_name="kseg", standalone_mode=False)
    output.write_line()
    return code


def _arrow_and_parquet() -> bool:
    """Read the records as Arrow and from the exported files; returns whether they agree."""
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
    """Run a small job here and through Spark; returns whether both results are the same."""
    summaries = {"kseg": summarise_locally(_DATA)}
    if no_spark:
        output.write_line("Sums over all records:")
    else:
        output.write_line("Sums over all records, here and through Spark (local[2]):")
        summaries["spark"] = summarise_by_spark(_DATA)
    values = list(summaries.values())
    rows: list[list[object]] = [
        [name, *(summary[name] for summary in values)]
        for name in ("records", "key_bytes", "value_bytes", "offset_sum")
    ]
    rows += [
        [name, *(iso_text(summary[name]) for summary in values)]
        for name in ("first_timestamp", "last_timestamp")
    ]
    output.write_table(("", *summaries), rows)
    if no_spark:
        return True
    same = summaries["kseg"] == summaries["spark"]
    output.write_line("Equal." if same else "DIFFERENT.")
    return same


def _break_and_repair() -> bool:
    """Cut the end of a log, as in a crash, and recover it; returns whether it is whole then."""
    output.write_line()
    output.write_line(f"Break a log, as a crash may: the last {_LOST_BYTES} bytes are gone.")
    output.write_line(f"$ cd {_DATA}")
    output.write_line()
    _cut_end(Path(_DATA, _BROKEN))
    with chdir(_DATA):  # shorter names: each step fits 24 lines of 80 columns
        codes = [_run(title, command) for title, command in _REPAIR]
    return codes[-1] == Exit.OK


_JAVA_MIN: Final = 17
#: The most characters of Java's own messages that are shown.
_WORDS_MAX: Final = 200
_HOW_TO_GET_JAVA: Final = "install it (Debian: openjdk-17-jre-headless) or set JAVA_HOME"


def summarise_locally(path: StrPath) -> dict[str, int | None]:
    """The sums over all records, by `kseg.scan`, in this process.

    Returns:
        `records`, their number; `key_bytes`, `value_bytes` and `offset_sum`; `first_timestamp` and
        `last_timestamp` in ms, None if there are no records.

    Raises:
        KsegError: the path holds no log, or a damaged one.
    """
    from kseg.records.scan import scan

    records = key_bytes = value_bytes = offset_sum = 0
    times: list[int] = []
    for columns in scan(path, columns=("offset", "timestamp", "key", "value")):
        records += len(columns)
        key_bytes += int(columns["key"].offsets[-1])
        value_bytes += int(columns["value"].offsets[-1])
        offset_sum += int(columns["offset"].sum())
        with_time = columns["timestamp_ms"][columns["timestamp_ms"] != -1]
        times += [int(with_time.min()), int(with_time.max())] if len(with_time) else []
    return {
        "records": records,
        "key_bytes": key_bytes,
        "value_bytes": value_bytes,
        "offset_sum": offset_sum,
        "first_timestamp": min(times, default=None),
        "last_timestamp": max(times, default=None),
    }


def summarise_by_spark(path: StrPath, *, cores: int = 2) -> dict[str, int | None]:
    """Sum up the records of a path by a Spark job on this machine.

    Raises:
        MissingExtraError: pyspark is not installed, or too old.
        KsegError: Java is missing or too old, or Spark did not start.
    """
    # A job this short ends before the JVM's second compiler has paid for itself.
    with quiet_spark(cores, java_options="-XX:TieredStopAtLevel=1") as spark:
        frame = spark.read.format("kseg").load(os.path.abspath(fspath(path)))
        sums = frame.selectExpr(
            "count(*) AS records",
            "coalesce(sum(length(key)), 0) AS key_bytes",
            "coalesce(sum(length(value)), 0) AS value_bytes",
            "coalesce(sum(offset), 0) AS offset_sum",
            "unix_millis(min(timestamp)) AS first_timestamp",
            "unix_millis(max(timestamp)) AS last_timestamp",
        )
        (row,) = sums.collect()
        answer: dict[str, int | None] = row.asDict()
        return answer


@contextmanager
def quiet_spark(cores: int, *, java_options: str = "") -> Iterator[SparkSession]:
    """A Spark on this machine that prints nothing and knows kseg's source; stopped at the end.

    Where this thread has a session already, it is that one, and it goes on.

    Raises:
        MissingExtraError: pyspark is not installed, or too old.
        KsegError: Java is missing or too old, or Spark did not start.
    """
    from kseg.extras import check_pyspark
    from kseg.spark import register

    check_pyspark()
    check_java()
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    if active is not None:
        register(active)
        yield active
        return
    # Workers run plain `python3` unless the session names another, and that one may lack kseg.
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = (
        SparkSession.builder.master(f"local[{cores}]")
        .appName("kseg")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.extraJavaOptions", java_options)
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.sql.warehouse.dir", os.path.join(tempfile.gettempdir(), "kseg-warehouse"))
    )
    with tempfile.TemporaryFile() as stderr:
        try:
            with _stderr_to(stderr.fileno()):
                spark = builder.getOrCreate()
        except (PySparkException, RuntimeError) as error:
            stderr.seek(0)
            lines = stderr.read().decode("utf-8", "replace").strip().splitlines()
            reason = lines[-1] if lines else str(error).splitlines()[0]
            raise KsegError(f"Spark did not start: {reason}") from None
    try:
        spark.sparkContext.setLogLevel("ERROR")
        register(spark)
        yield spark
    finally:
        spark.stop()


def check_java() -> None:
    """Make sure that there is a Java on which Spark runs.

    Raises:
        KsegError: Java is missing or too old; the message has the remedy.
    """
    home = os.environ.get("JAVA_HOME")
    java = os.path.join(home, "bin", "java") if home else shutil.which("java")
    needs = f"Spark needs Java {_JAVA_MIN} or newer"
    if java is None:
        raise KsegError(f"{needs} and there is none: {_HOW_TO_GET_JAVA}")
    try:
        ran = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        raise KsegError(f"{needs} and {java} does not run: {_HOW_TO_GET_JAVA}") from None
    version = re.search(r'version "(?:1\.)?(\d+)', ran.stderr)
    if ran.returncode or version is None:  # a Java without memory says so itself
        words = " ".join(f"{ran.stdout} {ran.stderr}".split())[:_WORDS_MAX]
        reason = f"{java} does not run: {words}" if words else f"{java} does not run"
        raise KsegError(f"{needs} and {reason}: {_HOW_TO_GET_JAVA}")
    if int(version[1]) < _JAVA_MIN:
        raise KsegError(f"{needs} and {java} is {version[1]}: {_HOW_TO_GET_JAVA}")


@contextmanager
def _stderr_to(fd: int) -> Iterator[None]:
    """Send standard error elsewhere, for this process and for those it starts meanwhile."""
    sys.stderr.flush()
    stderr_copy = os.dup(2)
    try:
        os.dup2(fd, 2)
        yield
    finally:
        sys.stderr.flush()
        os.dup2(stderr_copy, 2)
        os.close(stderr_copy)
