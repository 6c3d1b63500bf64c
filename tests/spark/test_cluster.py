"""On clusters of real processes: the answers of one, also when a worker is killed on the way.

Started from the pip package of Spark alone: `local-cluster`, and a master with two workers. Left
out of the default run; `pytest -m cluster` asks for it.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from kseg.analysis.verify import VerifyOptions, verify
from kseg.log.scan import scan
from kseg.spark import jobs
from kseg.spark.commits import SinkPaths
from kseg.spark.sink_options import parse_sink_options
from tests.builders import batch, record, write_segment
from tests.spark.test_source import COLUMNS, expected_rows, in_order, is_log

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(280)]

ROOT = Path(__file__).parents[2]
MEMORY = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    return port


@contextmanager
def standalone(under: Path) -> Iterator[str]:
    """A master and two workers of one core each; gives the master's address."""
    import pyspark

    command = str(Path(pyspark.__file__).parent / "bin" / "spark-class")
    port, deploy = free_port(), "org.apache.spark.deploy"
    where = ["--host", "127.0.0.1", "--webui-port", "0"]
    master = f"spark://127.0.0.1:{port}"
    programs = [
        [f"{deploy}.master.Master", *where, "--port", str(port)],
        *(
            [f"{deploy}.worker.Worker", *where, "-c", "1", "-m", "1500M", "-d", str(folder), master]
            for folder in (under / "one", under / "two")
        ),
    ]
    environment = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_DAEMON_MEMORY": "256m"}
    with ExitStack() as stack:
        for number, words in enumerate(programs):
            said = stack.enter_context((under / f"{number}.txt").open("wb"))
            run = subprocess.Popen(
                [command, *words],
                stdout=said,
                stderr=said,
                env=environment,
                start_new_session=True,
            )
            stack.callback(run.wait)
            stack.callback(os.killpg, run.pid, signal.SIGKILL)
            if not number:
                wait_for_port(port)
        yield master


def wait_for_port(port: int) -> None:
    end = time.monotonic() + 60
    while time.monotonic() < end:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise AssertionError(f"nobody listens on {port}")


@pytest.fixture(scope="module", params=["local-cluster", "standalone"])
def cluster(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SparkSession]:
    """A session whose two executors are processes of their own."""
    active = SparkSession.getActiveSession()
    assert active is None, "another Spark runs in this process"
    environment = {
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYTHONPATH": os.pathsep.join((str(ROOT), os.environ.get("PYTHONPATH", ""))),
    }
    os.environ |= environment
    with ExitStack() as stack:
        under = tmp_path_factory.mktemp("spark")
        master = "local-cluster[2,1,1024]"
        if request.param == "standalone":
            master = stack.enter_context(standalone(under))
        builder = (
            SparkSession.builder.master(master)
            .config("spark.driver.host", "127.0.0.1")
            .config("spark.driver.bindAddress", "127.0.0.1")
            .config("spark.ui.enabled", "false")
            .config("spark.ui.showConsoleProgress", "false")
            .config("spark.sql.shuffle.partitions", "2")
            .config("spark.sql.session.timeZone", "UTC")
            .config("spark.sql.warehouse.dir", str(under / "warehouse"))
            .config("spark.executor.memory", "1g")
            .config("spark.driver.extraJavaOptions", MEMORY)
            .config("spark.executor.extraJavaOptions", MEMORY)
            .config("spark.executorEnv.PYTHONPATH", environment["PYTHONPATH"])
            .config("spark.scheduler.minRegisteredResourcesRatio", "1.0")
            .config("spark.scheduler.maxRegisteredResourcesWaitingTime", "60s")
        )
        session = builder.getOrCreate()
        stack.callback(session.stop)
        session.sparkContext.setLogLevel("OFF")
        yield session


# ---- who runs, and who dies ----------------------------------------------------------------------


def processes() -> dict[int, tuple[int, str]]:
    """Parent and command line of every process that we may look at."""
    found = {}
    for directory in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((directory / "stat").read_text().rpartition(")")[2].split()[1])
            words = (directory / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
        found[int(directory.name)] = (parent, words)
    return found


def executors() -> set[int]:
    """The executors that this process, or one that it started, has started."""
    table = processes()

    def is_ours(pid: int) -> bool:
        while pid in table and pid != os.getpid():
            pid = table[pid][0]
        return pid == os.getpid()

    word = "CoarseGrainedExecutorBackend"
    return {pid for pid, (_, words) in table.items() if word in words and is_ours(pid)}


class Killing(threading.Thread):
    """Kills an executor once so many files say that work is under way.

    With `held` it does nothing until then, so that what it was given is certainly not done.
    """

    def __init__(self, sign: Path, count: int, pattern: str = "*", *, held: bool = False) -> None:
        super().__init__(daemon=True)
        self.sign, self.count, self.pattern = sign, count, pattern
        self.victim, self.killed = min(executors()), False
        if held:
            os.kill(self.victim, signal.SIGSTOP)
        self.start()

    def run(self) -> None:
        end = time.monotonic() + 120
        while time.monotonic() < end and not self.killed:
            if sum(1 for _ in self.sign.glob(self.pattern)) >= self.count:
                self.killed = True
            time.sleep(0.02)
        os.kill(self.victim, signal.SIGKILL)


def wait_for_two() -> None:
    """A killed executor comes back by itself."""
    end = time.monotonic() + 60
    while len(executors()) < 2 and time.monotonic() < end:
        time.sleep(0.1)
    assert len(executors()) == 2


def load(spark: SparkSession, path: Any, **options: str) -> DataFrame:
    return spark.read.format("kseg").options(**options).load(path)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log of forty segments, each record's value its offset."""
    path = tmp_path_factory.mktemp("source") / "orders-0"
    for base in range(0, 4_000, 100):
        ones = [
            batch([record(b"%06d" % n) for n in range(start, start + 10)], base_offset=start)
            for start in range(base, base + 100, 10)
        ]
        write_segment(path, base, *ones)
    return path


def slowed(frame: DataFrame, sign: Path) -> DataFrame:
    """The same rows, slowly, each task leaving a sign that it has begun."""

    def pause(batches: Iterator[Any]) -> Iterator[Any]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        (sign / str(context.taskAttemptId())).touch()
        time.sleep(0.25)
        yield from batches

    return frame.mapInArrow(pause, frame.schema)


# ---- claims --------------------------------------------------------------------------------------


def test_every_fixture_gives_the_rows_of_one_process(
    cluster: SparkSession, fixture_cases: list[Path]
) -> None:
    logs = [path for case in fixture_cases for path in sorted(case.iterdir()) if is_log(path)]
    expected = {str(log): in_order(expected_rows(log)) for log in logs}
    columns = ",".join((*COLUMNS, "path"))
    # Several tasks, so that both executors have their share.
    options = {"columns": columns, "onCorrupt": "skip", "targetPartitionBytes": "256k"}
    given = load(cluster, [str(log) for log in logs], **options)
    assert given.rdd.getNumPartitions() >= 8
    found: dict[str, list[dict[str, object]]] = {str(log): [] for log in logs}
    for row in given.toArrow().to_pylist():
        found[str(Path(row["path"]).parent)].append(row)
    for log in found:
        assert in_order(found[log]) == expected[log], log


def test_an_executor_killed_in_the_middle_of_a_verify_changes_no_finding(
    cluster: SparkSession, tmp_path: Path
) -> None:
    wait_for_two()
    data = tmp_path / "data"
    for partition in range(3):
        for base in range(0, 1_000, 10):
            good = batch([record(b"%d" % base)], base_offset=base)
            bad = batch([record(b"bad")], base_offset=base + 1, crc=base)
            write_segment(data / f"orders-{partition}", base, good, bad if base % 70 == 0 else b"")
    killing = Killing(tmp_path / "job", 1, "*.done", held=True)
    options = VerifyOptions(deep=True)
    result = jobs.verify(cluster, data, options=options, job=tmp_path / "job")
    assert killing.killed
    assert result.tasks >= 4
    assert result.report == verify(data, options=options)
    assert len(result.report.findings) >= 45


@pytest.mark.parametrize("cluster", ["standalone"], indirect=True)
def test_an_executor_killed_in_the_middle_of_a_write_leaves_each_record_once(
    cluster: SparkSession, source: Path, tmp_path: Path
) -> None:
    wait_for_two()
    (sign := tmp_path / "sign").mkdir()
    frame = load(cluster, str(source), targetPartitionBytes="8k")
    killing = Killing(sign, 3)
    target = tmp_path / "data"
    writer = slowed(frame, sign).write.format("kseg").mode("append")
    writer.option("offsets", "preserve").save(str(target))
    assert killing.killed
    written = [
        (int(offset), value)
        for columns in scan(target / "orders-0", fields=("offset", "value"))
        for offset, value in zip(columns["offset"], columns["value"], strict=True)
    ]
    assert written == [(n, b"%06d" % n) for n in range(4_000)]
    assert verify(target, deep=True).findings == ()
    left = SinkPaths.of(parse_sink_options({"path": str(target)})).root
    assert [path.name for path in left.glob("jobs/*")] == []
