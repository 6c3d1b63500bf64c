"""A real broker of Kafka on the loopback, controller too, with Kafka's own clients.

    with Broker(home) as broker:
        broker.start()
        broker.create("orders", partitions=2)
        broker.stop()
        ...                             # other files in broker.data / "orders-0"
        said = broker.start()           # what it logs meanwhile
        assert said.about("orders-0") == []
        broker.consume("orders")

Its jars, and the JVM that the clients run in, are those of `tests.interop.kafka`.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import time
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple
from uuid import uuid4

from tests.interop.kafka import QUICK, RELEASE, Kafka, prepare, unbase64

_START_SECONDS_MAX = 120
_STOP_SECONDS_MAX = 120
_LINE = re.compile(r"(INFO|WARN|ERROR) (\S+) - (.*)")
#: What says that a start did more than take a partition as it lies.
_REPAIR = re.compile(
    r"recovering unflushed|rebuil|truncat|corrupt|orphan|deleting segment|swap|stray|"
    r"reloading from producer snapshot|invalid|skipping",
    re.IGNORECASE,
)
#: What a start in good health may warn of; it is about no directory. A slow machine registers the
#: controller with itself before it is the active one.
_USUAL = re.compile(
    r"Performing controller activation|NetworkClient that has already been closed|"
    r"Unexpected error handling request .*CONTROLLER_REGISTRATION"
)
_SETTINGS = {
    "process.roles": "broker,controller",
    "node.id": 1,
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": "PLAINTEXT",
    "auto.create.topics.enable": "false",
    "offsets.topic.replication.factor": 1,
    "offsets.topic.num.partitions": 1,
    "transaction.state.log.replication.factor": 1,
    "transaction.state.log.min.isr": 1,
    "transaction.state.log.num.partitions": 1,
    "share.coordinator.state.topic.replication.factor": 1,
    "share.coordinator.state.topic.min.isr": 1,
    "group.initial.rebalance.delay.ms": 0,
    "log.cleaner.dedupe.buffer.size": 16 << 20,
    "log.cleaner.backoff.ms": 200,
    "log.initial.task.delay.ms": 200,
    "log.retention.ms": -1,
    # Files that wait under .deleted stay for as long as a test looks.
    "log.segment.delete.delay.ms": 600_000,
}


class Row(NamedTuple):
    """One record, as a client reads it."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the broker's log."""

    level: str
    logger: str
    text: str


@dataclass(frozen=True, slots=True)
class Said:
    """What the broker logged."""

    lines: tuple[Line, ...]

    def about(self, directory: str) -> list[Line]:
        """Lines that name this partition and warn, or say that something was mended."""
        named = re.compile(rf"(?<![\w.-]){re.escape(directory)}(?![\w.-])")
        return [
            line
            for line in self.lines
            if named.search(line.text) and (line.level != "INFO" or _REPAIR.search(line.text))
        ]

    def warnings(self) -> list[Line]:
        """Lines that warn, whatever of, but for those of every start."""
        return [
            line for line in self.lines if line.level != "INFO" and not _USUAL.search(line.text)
        ]


class Broker:
    """One node in one folder, which keeps its data over starts and stops."""

    def __init__(
        self,
        home: Path,
        settings: Mapping[str, object] | None = None,
        *,
        joins: Broker | None = None,
    ) -> None:
        """Set the node up, without a start.

        Args:
            home: an empty folder.
            settings: properties of the broker, beside the usual ones.
            joins: the node whose controller, and cluster, this one has.

        Raises:
            UnavailableError: Kafka's jars are not to be had here.
        """
        self.home, self.data, self._log = home, home / "data", home / "broker.log"
        #: Without the folder of the driver, which no archive of classes takes.
        self._jars = prepare(RELEASE, "broker").rpartition(os.pathsep)[2]
        #: Classes as the first broker that stopped has left them: a start takes half as long.
        self._classes = Path(self._jars.removesuffix("/*") + ".jsa")
        self._classes_of_this = self._classes.with_name(f"{self._classes.name}.{os.getpid()}")
        self.port, self._controller = _free_ports(2)
        self._cluster = _cluster_id() if joins is None else joins._cluster
        self._process: subprocess.Popen[bytes] | None = None
        self.properties = home / "server.properties"
        self._write_properties(joins, settings or {})
        self._tool("StorageTool", "format", "-t", self._cluster, "-c", self.properties)
        self._clients = Kafka(RELEASE, "broker")

    def _write_properties(self, joins: Broker | None, settings: Mapping[str, object]) -> None:
        host, controller = "127.0.0.1", (joins or self)._controller
        listener = f"PLAINTEXT://{host}:{self.port}"
        own: dict[str, object] = {
            "log.dirs": self.data,
            "controller.quorum.voters": f"1@{host}:{controller}",
            "listeners": f"{listener},CONTROLLER://{host}:{controller}",
            "advertised.listeners": listener,
        }
        if joins is not None:
            own |= {"process.roles": "broker", "node.id": 2, "listeners": listener}
        joined = {**_SETTINGS, **own, **settings}
        lines = [f"{name}={value}\n" for name, value in joined.items() if value is not None]
        self.properties.write_text("".join(lines), encoding="utf-8")

    def _tool(self, name: str, *words: object) -> None:
        command = [*self._java("256m"), f"kafka.tools.{name}", *map(str, words)]
        subprocess.run(command, check=True, capture_output=True, timeout=_START_SECONDS_MAX)

    def _java(self, heap: str, *, leaves_classes: bool = False) -> list[str]:
        options = [*QUICK, "-Dorg.slf4j.simpleLogger.showThreadName=false"]
        if self._classes.exists():
            options.append(f"-XX:SharedArchiveFile={self._classes}")
        elif leaves_classes:
            options.append(f"-XX:ArchiveClassesAtExit={self._classes_of_this}")
        return ["java", f"-Xmx{heap}", *options, "-cp", self._jars]

    # ---- life --------------------------------------------------------------------------------

    def start(self) -> Said:
        """Start it, wait until it serves, and tell what it said meanwhile."""
        begun = self.log_bytes
        command = [*self._java("512m", leaves_classes=True), "kafka.Kafka", str(self.properties)]
        with open(self._log, "ab") as out:
            self._process = subprocess.Popen(command, stdout=out, stderr=out)
        end = time.monotonic() + _START_SECONDS_MAX
        while not any("Kafka Server started" in line.text for line in self.said(begun).lines):
            if self._process.poll() is not None or time.monotonic() > end:
                tail = self._log.read_text(encoding="utf-8", errors="replace")[-3_000:]
                self.kill()
                raise RuntimeError(f"the broker did not start:\n{tail}")
            time.sleep(0.1)
        return self.said(begun)

    def ends_within(self, seconds: float) -> bool:
        """Whether it ends by itself in this time."""
        assert self._process is not None
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)
        return self._process.poll() is not None

    def said(self, begin: int = 0) -> Said:
        """What it logged from a position of its log on."""
        with open(self._log, "rb") as file:
            file.seek(begin)
            text = file.read().decode(errors="replace")
        found = (_LINE.match(line) for line in text.splitlines())
        return Said(tuple(Line(*match.groups()) for match in found if match))

    @property
    def log_bytes(self) -> int:
        """Bytes of its log by now, for `said`."""
        return self._log.stat().st_size if self._log.exists() else 0

    def stop(self) -> None:
        """Shut it down in good order."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(_STOP_SECONDS_MAX)
        self._process = None
        if self._classes_of_this.exists():
            self._classes_of_this.replace(self._classes)

    def kill(self) -> None:
        """End it where it is."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def __enter__(self) -> Broker:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.kill()
        self._clients.close()

    # ---- clients -----------------------------------------------------------------------------

    @property
    def bootstrap(self) -> str:
        """Its address, for clients."""
        return f"127.0.0.1:{self.port}"

    def ask(self, op: str, topic: str, **fields: Any) -> dict[str, Any]:
        """What a client of Kafka answers, see `tests/interop/java/broker/Driver.java`."""
        answer = self._answer(op, topic, **fields)
        assert "error" not in answer, answer
        return answer

    def _answer(self, op: str, topic: str, **fields: Any) -> dict[str, Any]:
        request = {"op": op, "bootstrap": self.bootstrap, "topic": topic, **fields}
        (answer,) = self._clients.ask([request])
        return answer

    def ask_tool(self, name: str, *words: str) -> list[list[str]]:
        """The lines that a tool of Kafka prints, as words."""
        tool = f"org.apache.kafka.tools.{name}"
        printed = self.ask("tool", "", words=list(words), **{"class": tool})["printed"]
        assert "Error" not in printed, printed
        return [line.split() for line in printed.splitlines()]

    def in_sync(self, topic: str) -> str:
        """The replicas of a topic's only partition that are in sync, rising."""
        rows = self.ask_tool("TopicCommand", "--describe", "--topic", topic)
        (row,) = (row for row in rows if "Isr:" in row)
        return ",".join(sorted(row[row.index("Isr:") + 1].split(",")))

    def create(self, topic: str, partitions: int = 1, **configs: object) -> None:
        """Make a topic and wait until each partition is led; `_` in names of configs is a dot."""
        texts = {name.replace("_", "."): str(value) for name, value in configs.items()}
        self.ask("create", topic, partitions=partitions, configs=texts)
        self.wait_for_leaders(topic)

    def wait_for_leaders(self, topic: str) -> None:
        """Until each partition has a leader, which takes a moment after a start.

        A topic that the controller has made is not known to the broker at once.
        """

        def led() -> bool:
            answer = self._answer("leaders", topic)
            if "UnknownTopicOrPartition" in answer.get("said", ""):
                return False
            assert "error" not in answer, answer
            return None not in answer["leaders"]

        wait_until(led)

    def produce(
        self,
        topic: str,
        groups: Iterable[Mapping[str, Any]],
        partition: int = 0,
        transactional_id: str | None = None,
        **client: object,
    ) -> list[list[int]]:
        """Offsets of each group's records, see `Driver.produce`."""
        return self.ask(
            "produce",
            topic,
            partition=partition,
            groups=list(groups),
            transactional_id=transactional_id,
            client={name.replace("_", "."): str(value) for name, value in client.items()},
        )["offsets"]

    def wait_for_markers(self, topic: str, partition: int = 0) -> None:
        """Until no transaction is open: a commit returns before its markers are written."""

        def ended() -> bool:
            isolations = ("read_uncommitted", "read_committed")
            ends = [self.offsets(topic, partition, "latest", isolation=name) for name in isolations]
            return ends[0][0][0] == ends[1][0][0]

        wait_until(ended)

    def consume(self, topic: str, partition: int = 0, isolation: str = "") -> list[Row]:
        """What Kafka's consumer reads, to the end."""
        answer = self.ask("consume", topic, partition=partition, isolation=isolation)
        assert answer["complete"], f"{topic}-{partition} was not read to its end"
        return [
            Row(
                offset,
                timestamp,
                unbase64(key),
                unbase64(value),
                tuple((name, unbase64(text)) for name, text in headers),
            )
            for offset, timestamp, key, value, headers in answer["records"]
        ]

    def offsets(
        self, topic: str, partition: int, *specs: str | int, isolation: str = ""
    ) -> list[tuple[int, int]]:
        """Offset and timestamp that ListOffsets gives: for "earliest", "latest", "max", a time."""
        asked = {"specs": list(specs), "isolation": isolation}
        answer = self.ask("offsets", topic, partition=partition, **asked)
        return [(offset, timestamp) for offset, timestamp in answer["offsets"]]


def wait_until(done: Callable[[], bool], seconds_max: float = 60) -> None:
    """Ask until the answer is true."""
    end = time.monotonic() + seconds_max
    while not done():
        if time.monotonic() > end:
            raise TimeoutError(f"not within {seconds_max} s")
        time.sleep(0.1)


def _cluster_id() -> str:
    """An id as Kafka writes it; one that begins with "-" would be an option of the tool."""
    return "k" + urlsafe_b64encode(uuid4().bytes).decode()[1:22]


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()
