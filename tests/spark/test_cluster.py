"""On clusters of real processes: the answers of one, also when a worker is killed on the way.

Started from the pip package of Spark alone: `local-cluster`, where an executor is killed, and a
master with two workers, of which one is killed with its executor. Starting them takes most of the
time, so each is started once, and all fixtures are one job. Each question is asked of one of the
two, of both with KSEG_WHOLE=1. Left out of the default run; `make clusters` asks for it.
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
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from kseg.analysis.verify import verify
from kseg.records.scan import scan
from kseg.spark import jobs
from kseg.spark.jobs import running
from kseg.spark.sink import SinkPaths
from kseg.spark.staging import parse_sink_options
from tests.builders import batch, record, write_segment
from tests.shares import WHOLE
from tests.spark.streaming import descendants, processes
from tests.spark.test_modes import kseg_rows
from tests.spark.test_source import COLUMNS, expected_rows, in_order, is_log

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(280)]

ROOT = Path(__file__).parents[2]
JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    return port


class Standalone:
    """A master and two workers of one core each, as the pip package of Spark has them."""

    def __init__(self, under: Path) -> None:
        self.under = under
        self.port = free_port()
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        self.start("master", "master.Master", "--port", str(self.port))
        wait_for_port(self.port)
        self.mend()

    @property
    def address(self) -> str:
        return f"spark://127.0.0.1:{self.port}"

    def start(self, name: str, program: str, *words: str) -> None:
        import pyspark

        command = [str(Path(pyspark.__file__).parent / "bin" / "spark-class")]
        command += [f"org.apache.spark.deploy.{program}", "--host", "127.0.0.1", "--webui-port"]
        environment = {"SPARK_DAEMON_MEMORY": "256m", "SPARK_DAEMON_JAVA_OPTS": JAVA}
        with (self.under / f"{name}.txt").open("ab") as said:
            self.running[name] = subprocess.Popen(
                [*command, "0", *words],
                stdout=said,
                stderr=said,
                env=os.environ | environment,
                start_new_session=True,
            )

    def mend(self) -> None:
        """Start the workers that do not run: at first both, later one that was killed."""
        for name in ("one", "two"):
            if name not in self.running or self.running[name].poll() is not None:
                where = ("-d", str(self.under / name), self.address)
                self.start(name, "worker.Worker", "-c", "1", "-m", "1500M", *where)

    def stop(self) -> None:
        for run in self.running.values():
            with suppress(ProcessLookupError):
                os.killpg(run.pid, signal.SIGKILL)
            run.wait()


def wait_for_port(port: int) -> None:
    end = time.monotonic() + 60
    while time.monotonic() < end:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise AssertionError(f"nobody listens on {port}")


@dataclass(frozen=True)
class Cluster:
    """A session, and the workers behind it where they are ours to start."""

    spark: SparkSession
    workers: Standalone | None = None

    def mend(self) -> None:
        """Two executors again: one that was killed comes back by itself, its worker does not."""
        if self.workers is not None:
            self.workers.mend()
        known = self.spark.sparkContext._jsc.sc()
        end = time.monotonic() + 60
        while len(executors()) != 2 or known.getExecutorMemoryStatus().size() != 3:
            assert time.monotonic() < end, f"executors: {executors()}"
            time.sleep(0.05)


CLUSTERS = ("local-cluster", "standalone")
SETTINGS = {
    "spark.cores.max": "2",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.extraJavaOptions": JAVA,
    "spark.driver.host": "127.0.0.1",
    "spark.executor.extraJavaOptions": JAVA,
    "spark.executor.memory": "1g",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "60s",
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",  # no task before both are there
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}


@pytest.fixture(scope="module", params=CLUSTERS)
def cluster(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    """Two executors that are processes of their own."""
    assert SparkSession.getActiveSession() is None, "another Spark runs in this process"
    path = os.pathsep.join((str(ROOT), os.environ.get("PYTHONPATH", "")))
    os.environ |= {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
    os.environ |= {"PYTHONPATH": path, "SPARK_LOCAL_IP": "127.0.0.1"}
    with ExitStack() as stack:
        under, workers = tmp_path_factory.mktemp("spark"), None
        master = {"local-cluster": "local-cluster[2,1,1024]"}
        if request.param == "standalone":
            workers = Standalone(under)
            stack.callback(workers.stop)
            master["standalone"] = workers.address
        builder = SparkSession.builder.master(master[request.param])
        settings = {"spark.sql.warehouse.dir": str(under), "spark.executorEnv.PYTHONPATH": path}
        for name, value in (SETTINGS | settings).items():
            builder = builder.config(name, value)
        session = builder.getOrCreate()
        stack.callback(session.stop)
        session.sparkContext.setLogLevel("OFF")
        yield Cluster(session, workers)


# ---- who runs, and who dies ----------------------------------------------------------------------


def executors() -> set[int]:
    """The executors that this process, or one that it started, has started."""
    return descendants(os.getpid(), "CoarseGrainedExecutorBackend")


def host_of(executor: int) -> set[int]:
    """What a machine that fails takes with it: the executor, and its worker where it has one."""
    table = processes()
    worker = table[executor][0]
    return {executor, worker} if "deploy.worker.Worker" in table[worker][1] else {executor}


class Killing(threading.Thread):
    """Kills an executor, with its worker, once so many files say that work is under way.

    The pattern names the victim, or any executor may be it. With `held` the victim does nothing
    until then, so that what it was given is certainly not done.
    """

    def __init__(self, sign: Path, count: int, pattern: str, *, held: bool = False) -> None:
        super().__init__(daemon=True)
        self.sign, self.count, self.pattern, self.killed = sign, count, pattern, False
        running = sorted(executors())
        self.doomed = {executor: host_of(executor) for executor in running[: 1 if held else None]}
        self.held = running[:held]
        for executor in self.held:
            os.kill(executor, signal.SIGSTOP)
        self.start()

    def run(self) -> None:
        end = time.monotonic() + 120
        while time.monotonic() < end and not self.killed:
            for victim, doomed in self.doomed.items():
                if len([*self.sign.glob(self.pattern.format(victim=victim))]) >= self.count:
                    self.killed = True
                    for pid in doomed:
                        os.kill(pid, signal.SIGKILL)
                    return
            time.sleep(0.01)
        for executor in self.held:
            os.kill(executor, signal.SIGCONT)


def load(spark: SparkSession, path: Any, **options: str) -> DataFrame:
    return spark.read.format("kseg").options(**options).load(path)


VALUE = b"%06d" + b"." * 1_000


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log of forty segments of 100 KiB, each record's value its offset and a filling."""
    path = tmp_path_factory.mktemp("source") / "orders-0"
    for base in range(0, 4_000, 100):
        ones = [
            batch([record(VALUE % n) for n in range(start, start + 10)], base_offset=start)
            for start in range(base, base + 100, 10)
        ]
        write_segment(path, base, *ones)
    return path


def slowed(frame: DataFrame, sign: Path) -> DataFrame:
    """The same rows, slowly; each attempt leaves a sign that says where it is half done."""

    def pause(batches: Iterator[Any]) -> Iterator[Any]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        # An executor starts a daemon, which starts us.
        status = Path(f"/proc/{os.getppid()}/stat").read_text()
        executor = status.rpartition(")")[2].split()[1]
        for number, one in enumerate(batches):
            if number == 6:  # what came before, Spark has handed on
                (sign / f"{executor}-{context.taskAttemptId()}").touch()
            time.sleep(0.05)
            yield one

    return frame.mapInArrow(pause, frame.schema)


# ---- claims --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def logs(fixture_cases: list[Path]) -> list[Path]:
    return [path for case in fixture_cases for path in sorted(case.iterdir()) if is_log(path)]


@pytest.fixture(scope="module")
def rows_of_one_process(logs: list[Path]) -> dict[Path, list[dict[str, object]]]:
    return {log: in_order(expected_rows(log)) for log in logs}


@pytest.fixture(scope="module")
def counts_of_one_process(logs: list[Path]) -> dict[Path, tuple[int, int | None]]:
    """Batches and records of each log, as `kseg info` has them."""
    (document,) = kseg_rows("info", "--json", *logs)
    told = zip(logs, document["partitions"], strict=True)
    return {log: (one["batches"], one["records"]) for log, one in told}


# Several tasks, so that both executors have their share.
SHARED = {"onCorrupt": "skip", "targetPartitionBytes": "512k"}


@pytest.mark.parametrize("cluster", CLUSTERS if WHOLE else ["local-cluster"], indirect=True)
def test_every_fixture_gives_the_rows_of_one_process(
    cluster: Cluster, logs: list[Path], rows_of_one_process: dict[Path, list[dict[str, object]]]
) -> None:
    columns = ",".join((*COLUMNS, "path"))
    given = load(cluster.spark, [str(log) for log in logs], columns=columns, **SHARED)
    found: dict[Path, list[dict[str, object]]] = {log: [] for log in logs}
    for row in given.toArrow().to_pylist():
        found[Path(row["path"]).parent].append(row)
    assert sum(map(len, found.values())) > 5000
    for log, rows in found.items():
        assert in_order(rows) == rows_of_one_process[log], log


@pytest.mark.parametrize("cluster", CLUSTERS if WHOLE else ["standalone"], indirect=True)
def test_every_fixture_has_as_many_batches_as_info_says(
    cluster: Cluster, logs: list[Path], counts_of_one_process: dict[Path, tuple[int, int | None]]
) -> None:
    given = load(cluster.spark, [str(log) for log in logs], mode="batches", **SHARED)
    found: dict[Path, list[int | None]] = {log: [] for log in logs}
    for row in given.select("path", "count").toArrow().to_pylist():
        found[Path(row["path"]).parent].append(row["count"])
    assert sum(map(len, found.values())) > 5000
    for log, (batches, records) in counts_of_one_process.items():
        assert len(found[log]) == batches, log
        if records is not None:
            assert sum(count or 0 for count in found[log]) == records, log


@pytest.mark.parametrize("cluster", CLUSTERS if WHOLE else ["local-cluster"], indirect=True)
def test_a_worker_killed_in_the_middle_of_a_verify_changes_no_finding(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.mend()
    monkeypatch.setattr(running, "TASK_BYTES_MIN", 1)
    data = tmp_path / "data"
    for partition in range(3):
        for base in range(0, 1_000, 10):
            good = batch([record(b"%d" % base)], base_offset=base)
            bad = batch([record(b"bad")], base_offset=base + 1, crc=base)
            write_segment(data / f"orders-{partition}", base, good, bad if base % 70 == 0 else b"")
    killing = Killing(tmp_path / "job", 1, "*.done", held=True)
    result = jobs.verify(cluster.spark, data, deep=True, job=tmp_path / "job")
    assert killing.killed
    assert result.tasks >= 8
    assert result.report == verify(data, deep=True)
    assert len(result.report.findings) >= 45


@pytest.mark.parametrize("cluster", ["standalone"], indirect=True)
def test_a_worker_killed_in_the_middle_of_a_write_leaves_each_record_once(
    cluster: Cluster, source: Path, tmp_path: Path
) -> None:
    cluster.mend()
    (sign := tmp_path / "sign").mkdir()
    cluster.spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "50")
    frame = load(cluster.spark, str(source), targetPartitionBytes="420k")
    killing = Killing(sign, 2, "{victim}-*")  # one task staged, the next under way
    target = tmp_path / "data"
    writer = slowed(frame, sign).write.format("kseg").mode("append")
    writer.option("offsets", "preserve").save(str(target))
    assert killing.killed
    assert len([*sign.iterdir()]) > frame.rdd.getNumPartitions(), "nothing was done again"
    written = [
        (int(offset), value)
        for columns in scan(target / "orders-0", columns=("offset", "value"))
        for offset, value in zip(columns["offset"], columns["value"], strict=True)
    ]
    assert written == [(n, VALUE % n) for n in range(4_000)]
    assert verify(target, deep=True).findings == ()
    left = SinkPaths.of(parse_sink_options({"path": str(target)})).root
    assert [path.name for path in left.glob("jobs/*")] == []
