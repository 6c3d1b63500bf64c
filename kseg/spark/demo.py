"""One small job, through Spark and in this process, for `kseg demo` to show side by side.

Both give the same sums over the same records, so equal numbers mean equal records. Spark is started
quietly on this machine: the output of the JVM goes to a file, which is read only if Spark does not
start.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from os import fspath
from typing import TYPE_CHECKING, Final

from kseg.constants import StrPath
from kseg.errors import KsegError
from kseg.frozen import frozen_dataclass

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_JAVA_MIN: Final = 17
#: The most characters of Java's own messages that are shown.
_WORDS_MAX: Final = 200
_HOW_TO_GET_JAVA: Final = "install it (Debian: openjdk-17-jre-headless) or set JAVA_HOME"


@frozen_dataclass
class Summary:
    """The sums of the job.

    Attributes:
        records: how many.
        key_bytes: of all keys.
        value_bytes: of all values.
        offset_sum: of all offsets.
        first_timestamp: smallest time in ms; None without any.
        last_timestamp: largest time in ms; None without any.
    """

    records: int
    key_bytes: int
    value_bytes: int
    offset_sum: int
    first_timestamp: int | None
    last_timestamp: int | None


def summarise_locally(path: StrPath) -> Summary:
    """The sums by `kseg.scan`, in this process.

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
    return Summary(
        records,
        key_bytes,
        value_bytes,
        offset_sum,
        min(times, default=None),
        max(times, default=None),
    )


def summarise_by_spark(path: StrPath, *, cores: int = 2) -> Summary:
    """The same sums by a Spark job on this machine.

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
        return Summary(**row.asDict())


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
