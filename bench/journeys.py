"""Whole jobs beside the ways in which people do them today: `python -m bench.journeys`.

A broker of Kafka 4.2.0 gets a topic of JSON records in four partitions. Each journey is done by
kseg and by each rival in turns, each in processes of its own: its wall time, its processor time,
its largest memory, and the lines that a user types. Every command is printed. Rivals read from
the broker, which serves them from its cache; its processor time is shown beside theirs.

`--mib` is the size of the topic before compression (512), `--gib` that of the logs to verify (4),
`--rounds` how often each is done (3), `--only TEXT` chooses among the journeys. Spark's Kafka
source takes part where Maven has it, of the version of pyspark or the one before. Nothing is
asserted.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import polars as pl

import kseg
from bench import peers, table
from tests.interop.broker.broker import Broker

#: The versions of Spark's Kafka source to try, and the jars that it takes.
SPARK_KAFKA = ("4.3.0", "4.2.0")
SPARK_JARS = ("spark-sql-kafka", "spark-token-provider-kafka", "kafka-clients", "commons-pool2")
SPARK_POM = """\
<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>kseg</groupId><artifactId>journeys</artifactId><version>1</version>
<dependencies><dependency><groupId>org.apache.spark</groupId>
<artifactId>spark-sql-kafka-0-10_2.13</artifactId><version>{version}</version>
</dependency></dependencies></project>
"""
#: A topic to Parquet with Spark, as its guide to Kafka shows it.
SPARK = """\
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[2]").config("spark.jars", "{jars}").getOrCreate()
orders = spark.read.format("kafka").option("kafka.bootstrap.servers", "{bootstrap}")
orders = orders.option("subscribe", "{topic}").option("startingOffsets", "earliest").load()
orders.write.parquet("{out}/spark")
"""
TOPIC, PARTITIONS, KEYS, VALUE_BYTES = "orders", 4, 10_000, 200
KEY = "user-42"
KSEG = Path(sys.executable).parent / "kseg"
RESULTS = Path(__file__).parent / "results"

#: Runs a line of the shell from a small process: a child begins with the memory of its parent.
LAUNCHER = """\
import os, resource, subprocess, sys
status = subprocess.call(sys.argv[1], shell=True, stdout=2)
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(status, used.ru_utime + used.ru_stime, used.ru_maxrss)
"""
#: A consumer in Python, as the pages of aiokafka show it; `each` is done with each record.
CONSUMER = """\
import asyncio
from aiokafka import AIOKafkaConsumer, TopicPartition
{imports}
async def main():
    consumer = AIOKafkaConsumer(bootstrap_servers="{bootstrap}", auto_offset_reset="earliest")
    await consumer.start()
    parts = [TopicPartition("{topic}", n) for n in range({partitions})]
    consumer.assign(parts)
    ends = await consumer.end_offsets(parts)
    left = {{part for part in parts if ends[part]}}
    while left:
        for part, records in (await consumer.getmany(timeout_ms=1000)).items():
            for r in records:
                {each}
            if records and records[-1].offset + 1 >= ends[part]:
                left.discard(part)
    await consumer.stop()
{setup}
asyncio.run(main())
{finish}
"""


@dataclass(frozen=True, slots=True)
class Way:
    """One way to do a job.

    Attributes:
        who: the program.
        command: a line of the shell.
        lines: how many lines a user types.
        with_broker: whether the broker runs meanwhile.
        before: is called off the clock before each round.
        finish: is called on the clock behind the command.
    """

    who: str
    command: str
    lines: int
    with_broker: bool = False
    before: Callable[[], object] | None = None
    finish: Callable[[], object] | None = None


@dataclass(slots=True)
class Took:
    """What one way took, by round."""

    seconds: list[float] = field(default_factory=list)
    processor: list[float] = field(default_factory=list)
    broker: list[float] = field(default_factory=list)
    mebibytes: list[float] = field(default_factory=list)
    first_seconds: list[float] = field(default_factory=list)
    loading_seconds: list[float] = field(default_factory=list)


class Stage:
    """A broker with the topic, and a place for what the journeys write."""

    def __init__(self, broker: Broker, home: Path, gibibytes: float) -> None:
        """Take a broker that is not running."""
        self.gibibytes = gibibytes
        self.loading_seconds = 0.0
        self.broker, self.home, self.data = broker, home, broker.data
        self.chosen = f"{broker.data} --topic {TOPIC}"
        self.out = home / "out"
        self.running = False
        self.records = 0
        self.fresh()

    def fresh(self) -> None:
        """Empty the folder that the journeys write to."""
        shutil.rmtree(self.out, ignore_errors=True)
        self.out.mkdir()

    def run_broker(self, wanted: bool) -> None:
        """Start or stop it, where it is not as wanted."""
        if wanted and not self.running:
            said = "\n".join(line.text for line in self.broker.start().lines)
            loaded = re.search(r"Loaded \d+ logs in (\d+)\s?ms", said)
            self.loading_seconds = int(loaded[1]) / 1000 if loaded else math.nan
            if (self.data / f"{TOPIC}-0").exists():
                self.broker.wait_for_leaders(TOPIC)
        elif self.running and not wanted:
            self.broker.stop()
        self.running = wanted

    def fill(self, mebibytes: int) -> None:
        """Make the topic."""
        self.run_broker(True)
        self.broker.create(TOPIC, partitions=PARTITIONS)
        self.run_broker(False)
        self.records = count = mebibytes * (1 << 20) // VALUE_BYTES
        options = kseg.BatchOptions(compression="lz4")
        for start in range(0, count, 500_000):
            frame = _records(start, min(500_000, count - start))
            kseg.write_topic(
                frame,
                self.data,
                TOPIC,
                append=start > 0,
                options=options,
                broker_config=self.broker.properties,
            )

    def java(self, tool: str, *words: str) -> str:
        """A command of Kafka's own tools."""
        return shlex.join(["java", "-Xmx1g", "-cp", peers.java_class_path(), tool, *words])

    def consumer(self, name: str, **parts: str) -> tuple[str, int]:
        """A Python consumer's command, and its lines."""
        filled = {"imports": "", "setup": "", "finish": "", **parts}
        text = CONSUMER.format(
            bootstrap=self.broker.bootstrap, topic=TOPIC, partitions=PARTITIONS, **filled
        )
        path = self.home / f"{name}.py"
        path.write_text(text)
        return f"{sys.executable} {path}", len([line for line in text.splitlines() if line])

    def spark(self) -> tuple[str, int] | None:
        """A program for Spark's Kafka source, and its lines; None where Maven has no such jar."""
        jars = _spark_jars(self.home)
        if not jars:
            return None
        text = SPARK.format(jars=jars, bootstrap=self.broker.bootstrap, topic=TOPIC, out=self.out)
        path = self.home / "spark.py"
        path.write_text(text)
        return f"{sys.executable} {path} 2>/dev/null", len(text.splitlines())

    def console(self, *words: str) -> str:
        """Kafka's console consumer, from the beginning to the end of the topic."""
        options = ("--bootstrap-server", self.broker.bootstrap, "--topic", TOPIC)
        ending = ("--from-beginning", "--max-messages", str(self.records))
        formatted = [word for each in words for word in ("--formatter-property", each)]
        consumer = "org.apache.kafka.tools.consumer.ConsoleConsumer"
        return self.java(consumer, *options, *ending, *formatted) + " 2>/dev/null"


def _records(start: int, count: int) -> pl.DataFrame:
    """Orders of 10,000 users, one in each 2 ms."""
    dice = np.random.default_rng(start)
    users, cents = dice.integers(0, KEYS, count), dice.integers(100, 1_000_000, count)
    notes = [dice.bytes(56).hex() for _ in range(count)]
    values = [
        json.dumps({"order": start + n, "user": f"user-{user}", "cents": int(cent), "note": note})
        for n, (user, cent, note) in enumerate(zip(users, cents, notes, strict=True))
    ]
    times = 1_790_000_000_000 + 2 * (start + np.arange(count))
    keys = [f"user-{user}" for user in users]
    return pl.DataFrame({"key": keys, "value": values, "timestamp": times}).with_columns(
        pl.col("timestamp").cast(pl.Datetime("ms", "UTC"))
    )


def _spark_jars(home: Path) -> str:
    """The jars of Spark's Kafka source, with commas between them; empty where there are none."""
    for version in SPARK_KAFKA:
        pom, jars = home / "pom.xml", home / f"spark-{version}"
        pom.write_text(SPARK_POM.format(version=version))
        copy = ["mvn", "-q", "-B", "-f", str(pom), "dependency:copy-dependencies"]
        if not subprocess.run([*copy, f"-DoutputDirectory={jars}"], capture_output=True).returncode:
            print(f"Spark's Kafka source {version}")
            return ",".join(str(jar) for jar in jars.iterdir() if jar.name.startswith(SPARK_JARS))
    print("no Spark's Kafka source: Maven has none of", ", ".join(SPARK_KAFKA))
    return ""


def journeys(stage: Stage) -> Iterator[tuple[str, tuple[Way, ...]]]:
    """The jobs, each with its ways; kseg is the first."""
    yield "a topic to Parquet", _to_parquet(stage)
    yield "one key's history", _history(stage)
    yield "messages per minute", _per_minute(stage)
    yield "verify every batch", _verify(stage)
    yield "restore a log that was cut", _restore(stage)
    yield "start after kill -9", _starts(stage)
    stage.run_broker(False)


def _to_parquet(stage: Stage) -> tuple[Way, ...]:
    fresh, out = stage.fresh, stage.out
    consumer, lines = stage.consumer(
        "parquet",
        imports="import pyarrow as pa\nimport pyarrow.parquet as pq",
        each="rows.append((r.partition, r.offset, r.timestamp, r.key, r.value))",
        setup="rows = []",
        finish="names = ['partition', 'offset', 'timestamp', 'key', 'value']\n"
        f"pq.write_table(pa.table(dict(zip(names, zip(*rows)))), '{out}/orders.parquet')",
    )
    console = stage.console("print.key=true", "print.timestamp=true")
    spark = stage.spark()
    return (
        Way("kseg", f"{KSEG} export {stage.chosen} -o {out}/parquet", 1, before=fresh),
        *([Way("Spark's Kafka source", *spark, with_broker=True, before=fresh)] if spark else []),
        Way("aiokafka, pyarrow", consumer, lines, with_broker=True, before=fresh),
        Way(
            "console consumer (text)",
            f"{console} > {out}/orders.txt",
            1,
            with_broker=True,
            before=fresh,
        ),
    )


def _history(stage: Stage) -> tuple[Way, ...]:
    into = f"> {stage.out}/key.txt"
    consumer, lines = stage.consumer(
        "history",
        each=f"if r.key == b'{KEY}': print(r.partition, r.offset, r.timestamp, r.value)",
    )
    console = f"{stage.console('print.key=true')} | grep '^{KEY}\\s' {into}"
    return (
        Way("kseg", f"{KSEG} read {stage.chosen} --key {KEY} {into}", 1),
        Way("aiokafka", f"{consumer} {into}", lines, with_broker=True),
        Way("console consumer, grep", console, 1, with_broker=True),
    )


def _per_minute(stage: Stage) -> tuple[Way, ...]:
    ours = stage.home / "minutes.py"
    scan = f"kseg.scan('{stage.data}', topics='{TOPIC}', columns=['timestamp'])"
    ours.write_text(
        "import kseg, polars\n"
        f"frame = polars.DataFrame({scan})\n"
        "print(frame.group_by(polars.col('timestamp').dt.truncate('1m')).len())\n"
    )
    consumer, lines = stage.consumer(
        "per-minute",
        imports="from collections import Counter",
        each="minutes[r.timestamp // 60000] += 1",
        setup="minutes = Counter()",
        finish="print(minutes)",
    )
    into = f"> {stage.out}/minutes.txt"
    return (
        Way("kseg, Polars", f"{sys.executable} {ours} {into}", 3),
        Way("aiokafka", f"{consumer} {into}", lines, with_broker=True),
    )


def _verify(stage: Stage) -> tuple[Way, ...]:
    """The partitions under many names, until they are so many bytes."""
    large, count, size = stage.home / "large", 0, 0
    while size < stage.gibibytes * (1 << 30):
        log = stage.data / f"{TOPIC}-{count % PARTITIONS}"
        copy = large / f"{TOPIC}-{count}"
        copy.mkdir(parents=True)
        for file in log.iterdir():
            os.link(file, copy / file.name)
            size += file.stat().st_size
        count += 1
    logs = ",".join(str(path) for path in sorted(large.glob(f"{TOPIC}-*/*.log")))
    dump = stage.java("kafka.tools.DumpLogSegments", "--files", logs)
    return (
        Way("kseg", f"{KSEG} verify {large}", 1),
        Way("kafka-dump-log", f"{dump} 2>/dev/null | grep -c 'isvalid: false' || true", 1),
    )


def _restore(stage: Stage) -> tuple[Way, ...]:
    """The records of a log that lost its second half, from a backup, and proof that they are."""
    cut, backup = stage.home / "cut" / f"{TOPIC}-0", stage.home / "backup" / f"{TOPIC}-0"
    for copy in (cut, backup):
        shutil.copytree(stage.data / f"{TOPIC}-0", copy)
    log = next(cut.glob("*.log"))
    os.truncate(log, log.stat().st_size // 2 + 7)
    restored = stage.out / "restored"
    copied = f"mkdir {restored} && cp -r {backup} {restored}"
    dump = stage.java("kafka.tools.DumpLogSegments", "--files")
    logs = f"$(ls {restored}/{TOPIC}-0/*.log | paste -sd,)"
    check = f"{dump} {logs} 2>/dev/null | grep -c 'isvalid: false' || true"
    return (
        Way(
            "kseg merge",
            f"{KSEG} merge {cut} {backup} -o {restored} || true",
            1,
            before=stage.fresh,
        ),
        Way("cp, kafka-dump-log", f"{copied} && {check}", 2, before=stage.fresh),
    )


def _starts(stage: Stage) -> tuple[Way, ...]:
    """A start of the broker behind kill -9, alone and behind kseg's recovery."""
    moved = stage.home / "other"

    def killed() -> None:
        """Put a killed copy where the broker's directory is."""
        stage.run_broker(False)
        if not moved.exists():
            os.rename(stage.data, moved)
        shutil.rmtree(stage.data, ignore_errors=True)
        shutil.copytree(moved, stage.data)
        for name in (".kafka_cleanshutdown", "recovery-point-offset-checkpoint"):
            (stage.data / name).unlink(missing_ok=True)

    def start() -> None:
        stage.run_broker(True)

    settings = f"--broker-config {stage.broker.properties}"
    recover = f"{KSEG} recover {stage.data} --apply --no-backup {settings} | tail -n 1"
    return (
        Way("kseg recover, then the broker", recover, 1, before=killed, finish=start),
        Way("the broker alone", "true", 0, before=killed, finish=start),
    )


def take(stage: Stage, way: Way, took: Took) -> None:
    """Do one job one way, and add what it took."""
    if way.before is not None:
        way.before()
    if way.finish is None:
        stage.run_broker(way.with_broker)
    before = stage.broker.processor_seconds() if way.with_broker else 0.0
    began = time.perf_counter()
    launched = [sys.executable, "-S", "-E", "-c", LAUNCHER, way.command]
    said = subprocess.run(launched, stdout=subprocess.PIPE, text=True, check=True).stdout.split()
    if said[0] != "0":
        raise RuntimeError(f"{way.who} failed: {way.command}")
    if way.finish is not None:
        took.first_seconds.append(time.perf_counter() - began)
        way.finish()
        took.loading_seconds.append(stage.loading_seconds)
    took.seconds.append(time.perf_counter() - began)
    took.processor.append(float(said[1]))
    took.mebibytes.append(int(said[2]) / 1024)
    after = stage.broker.processor_seconds() if way.with_broker or way.finish else 0.0
    took.broker.append(after - before)


@contextmanager
def staged(mebibytes: int, gibibytes: float, under: Path | None) -> Iterator[Stage]:
    """A broker with the topic, in a folder that goes away."""
    with tempfile.TemporaryDirectory(dir=under, prefix="kseg-journeys-") as folder:
        home = Path(folder)
        (home / "broker").mkdir()
        with Broker(home / "broker") as broker:
            stage = Stage(broker, home, gibibytes)
            stage.fill(mebibytes)
            yield stage


def main() -> None:
    """Parse the command line, do every journey, print and write."""
    parser = argparse.ArgumentParser(prog="python -m bench.journeys", description=__doc__)
    parser.add_argument("--mib", type=int, default=512)
    parser.add_argument("--gib", type=float, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="")
    parser.add_argument("--under", type=Path, help="the folder for the broker's data")
    given = parser.parse_args()
    found = []
    with staged(given.mib, given.gib, given.under) as stage:
        print(f"{stage.records:,} records of {VALUE_BYTES} bytes, lz4, {PARTITIONS} partitions")
        for name, ways in journeys(stage):
            if given.only in name:
                found.append({"journey": name, "ways": _journey(stage, name, ways, given.rounds)})
    RESULTS.mkdir(parents=True, exist_ok=True)
    target = RESULTS / f"journeys-{time.strftime('%Y-%m-%dT%H%M%S')}.json"
    document = {"machine": table.machine(), "mib": given.mib, "gib": given.gib, "journeys": found}
    target.write_text(json.dumps(document, indent=1) + "\n")
    print(target)


def _journey(
    stage: Stage, name: str, ways: tuple[Way, ...], rounds: int
) -> list[dict[str, object]]:
    """All ways in turns; prints a line for each."""
    tooks = [Took() for _ in ways]
    for _ in range(rounds):
        for way, took in zip(ways, tooks, strict=True):
            take(stage, way, took)
    print(f"\n{name}")
    ours = statistics.median(tooks[0].seconds)
    rows: list[dict[str, object]] = []
    for way, took in zip(ways, tooks, strict=True):
        seconds = statistics.median(took.seconds)
        processor, broker = statistics.median(took.processor), statistics.median(took.broker)
        print(
            f"  {way.who:<30} {seconds:8.2f} s  {seconds / ours:6.1f}x  "
            f"{min(took.seconds):.2f} to {max(took.seconds):.2f} s, processor {processor:.2f} s, "
            f"broker {broker:.2f} s, {max(took.mebibytes):.0f} MiB, lines {way.lines}"
        )
        print(f"      {way.command}")
        if took.loading_seconds:
            first, load = map(statistics.median, (took.first_seconds, took.loading_seconds))
            print(
                f"      before the broker {first:.2f} s; the broker loaded its logs in {load:.2f} s"
            )
        rows.append(
            {
                "who": way.who,
                "command": way.command,
                "lines": way.lines,
                "seconds": took.seconds,
                "processor_seconds": took.processor,
                "broker_seconds": took.broker,
                "memory_mib": max(took.mebibytes),
                "loading_seconds": took.loading_seconds,
            }
        )
    return rows


if __name__ == "__main__":
    main()
