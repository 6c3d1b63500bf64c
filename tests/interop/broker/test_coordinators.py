"""What `groups` and `transactions` say of a broker's files, and Kafka's tools of the broker.

Groups of every type, with members and without, and transactions. The tools are asked at two moments
at which nothing rebalances; after the broker has stopped, the files give the same for each moment.
What no record holds is left out: the coordinator, and the assignor of a group without members.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import kseg
from kseg.format.encode import encode_batch
from kseg.format.options import BatchOptions
from tests.interop.broker.broker import RELEASE, Broker, wait_until
from tests.interop.kafka import Kafka, needed

pytestmark = [pytest.mark.broker, pytest.mark.timeout(600)]

KINDS = ("classic", "consumer", "share", "streams")
TOOLS = {
    "consumers": "consumer.group.ConsumerGroupCommand",
    "shares": "consumer.group.ShareGroupCommand",
    "streams": "streams.StreamsGroupCommand",
    "groups": "GroupsCommand",
    "transactions": "TransactionsCommand",
}
HANGING_PRODUCER = 900


class Cluster:
    """A broker, and the clients and tools before it."""

    def __init__(self, home: Path) -> None:
        self.broker = Broker(home, {"share.coordinator.state.topic.num.partitions": 1})
        self.clients = Kafka(RELEASE, "coordinators")

    def ask(self, op: str, **fields: Any) -> dict[str, Any]:
        request = {"op": op, "bootstrap": self.broker.bootstrap, **fields}
        (answer,) = self.clients.ask([request])
        assert "error" not in answer, answer
        return answer

    def tool(self, name: str, *words: str) -> list[list[str]]:
        """The rows that a tool prints about groups of ours, or transactional ids, as words."""
        given = ["--bootstrap-server", self.broker.bootstrap, *words]
        out = self.ask("tool", tool=TOOLS[name], words=given)["out"]
        lines = (line.split() for line in out.splitlines())
        return [line for line in lines if line and line[0].startswith(("g-", "tx-", "in"))]

    def described(self, name: str, *words: str) -> list[list[str]]:
        return self.tool(name, "--describe", "--all-groups", *words)

    def states(self) -> dict[str, tuple[str, int]]:
        names = ("consumers", "shares", "streams")
        rows = [row for name in names for row in self.described(name, "--state")]
        return {row[0]: (row[-2], int(row[-1])) for row in rows}


@dataclass(frozen=True, slots=True)
class Moment:
    """What the tools said at a time."""

    time_ms: int
    states: dict[str, tuple[str, int]]
    types: dict[str, tuple[str, str]]
    offsets: dict[tuple[str, str, int], tuple[int, int]]
    members: set[tuple[str, ...]]
    shares: dict[tuple[str, int], tuple[str, str]]
    transactions: dict[str, tuple[int, str]]


def ask_all(cluster: Cluster) -> Moment:
    """Ask every tool; the moment is one behind the last batch."""
    offsets = {
        (row[0], row[1], int(row[2])): (int(row[3]), int(row[5]))
        for row in cluster.described("consumers", "--offsets")
    }
    members = {
        (*row[:4], row[6]) for row in cluster.described("consumers", "--members", "--verbose")
    }
    shares = shares_of(cluster)
    types = {row[0]: (row[1], "".join(row[2:])) for row in cluster.tool("groups", "--list")}
    ids = {row[0]: (int(row[2]), row[3]) for row in cluster.tool("transactions", "list")}
    time.sleep(0.01)
    now = time.time_ns() // 1_000_000
    time.sleep(0.01)
    return Moment(now, cluster.states(), types, offsets, members, shares, ids)


def produce(broker: Broker, count: int) -> None:
    records = [{"key": b"k", "value": b"v"}] * count
    for partition in (0, 1):
        broker.produce("in", [{"records": records}], partition)


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Cluster, list[Moment]]]:
    with needed():
        cluster = Cluster(tmp_path_factory.mktemp("broker"))
    with cluster.broker as broker:
        broker.start()
        broker.create("in", partitions=2)
        produce(broker, 10)
        for kind in KINDS:
            cluster.ask("join", name=kind, group=f"g-{kind}", topic="in", kind=kind)
        cluster.ask("commit", group="g-alone", topic="in", offset=3)
        cluster.ask("transact", id="tx-1", topic="in", end="commit", group="g-tx", offset=5)
        cluster.ask("transact", id="tx-2", topic="in", end="abort", group="g-tx", offset=7)
        stable = dict.fromkeys((f"g-{kind}" for kind in KINDS), ("Stable", 1))
        wait_until(lambda: stable.items() <= cluster.states().items())
        produce(broker, 4)
        cluster.ask("transact", id="tx-3", topic="in")
        wait_until(lambda: "-" not in {start for start, _ in shares_of(cluster).values()})
        time.sleep(2)
        first = ask_all(cluster)
        for kind in KINDS:
            cluster.ask("leave", name=kind)
        produce(broker, 3)
        cluster.ask("commit", group="g-alone", topic="in", offset=4)
        second = ask_all(cluster)
        broker.stop()
        yield cluster, [first, second]
    cluster.clients.close()


def shares_of(cluster: Cluster) -> dict[tuple[str, int], tuple[str, str]]:
    rows = cluster.described("shares", "--offsets")
    return {(row[1], int(row[2])): (row[3], row[4]) for row in rows}


@pytest.mark.parametrize("at", [0, 1])
def test_groups_are_those_that_the_tools_describe(
    told: tuple[Cluster, list[Moment]], at: int
) -> None:
    cluster, moments = told
    moment = moments[at]
    found = kseg.groups(cluster.broker.data, at=moment.time_ms)
    assert found.findings == ()
    assert {each.group: (each.state, each.members) for each in found} == moment.states
    assert {each.group: (each.type, each.protocol_type) for each in found} == moment.types
    streams = {row["partition"]: row["lag"] for row in found.commits.rows() if is_of_streams(row)}
    assert streams == dict.fromkeys((0, 1), (0, 3)[at])
    assert {
        (row["group"], row["topic"], row["partition"]): (row["offset"], row["lag"])
        for row in found.commits.rows()
        if not is_of_streams(row)
    } == moment.offsets
    assert {
        (each.group, each.member_id, each.host, each.client_id, assigned(each.assignment))
        for each in found.members
        if each.group in ("g-classic", "g-consumer")
    } == moment.members
    assert {
        (each.topic, each.partition): (str(each.start_offset), str(each.lag))
        for each in found.share
    } == moment.shares


def is_of_streams(row: dict[str, Any]) -> bool:
    return str(row["group"]) == "g-streams"


def assigned(parts: Any) -> str:
    """An assignment as the tool prints it."""
    return ";".join(f"{each['topic']}:{','.join(map(str, each['partitions']))}" for each in parts)


def test_now_is_the_last_moment(told: tuple[Cluster, list[Moment]]) -> None:
    cluster, moments = told
    found = kseg.groups(cluster.broker.data, since=moments[0].time_ms)
    assert {each.group: (each.state, each.members) for each in found} == moments[1].states
    changed = {(each.group, each.field): (each.before, each.after) for each in found.changes}
    assert changed["g-alone", "offset"] == (3, 4)
    assert changed["g-classic", "state"] == ("Stable", "Empty")


@pytest.mark.parametrize("at", [0, 1])
def test_transactional_ids_are_those_that_the_tool_lists(
    told: tuple[Cluster, list[Moment]], at: int
) -> None:
    cluster, moments = told
    found = kseg.transactions(cluster.broker.data, topics="in", at=moments[at].time_ms)
    assert {each.transactional_id: (each.producer_id, each.state) for each in found.ids} == moments[
        at
    ].transactions
    statuses = [row["status"] for row in found.transactions.rows()]
    assert statuses == ["committed", "aborted", "open"]
    (one,) = found
    assert (one.transactional_id, one.holds) == ("tx-3", "last-stable-offset")
    assert "forceTerminateTransaction" in str(one.command)


def test_a_hanging_transaction_is_the_one_that_the_tool_finds(
    told: tuple[Cluster, list[Moment]],
) -> None:
    cluster, _ = told
    broker = cluster.broker
    options = BatchOptions(
        producer_id=HANGING_PRODUCER, producer_epoch=3, base_sequence=0, transactional=True
    )
    before = time.time_ns() // 1_000_000 - 60_000
    batch = encode_batch({"value": [b"hangs"], "timestamp": [before]}, options)
    with kseg.Log.open(broker.data / "in-1", mode="append") as log:
        start = log.append(batch).first_offset
    (mine,) = (
        each
        for each in kseg.transactions(broker.data, max_timeout_minutes=0)
        if each.status == "hanging"
    )
    assert (mine.topic, mine.partition, mine.first_offset) == ("in", 1, start)
    broker.start()
    broker.wait_for_leaders("in")
    words = ("find-hanging", "--topic", "in", "--max-transaction-timeout", "0")
    (theirs,) = cluster.tool("transactions", *words)
    # Topic, partition, producer, epoch, coordinator's epoch, start offset, last time, duration.
    assert theirs[:4] == ["in", "1", str(HANGING_PRODUCER), "3"]
    assert (theirs[5], theirs[6]) == (str(mine.first_offset), str(mine.last_ms))
    script, _, _, *command = shlex.split(str(mine.command))
    assert script == "kafka-transactions.sh"
    cluster.tool("transactions", *command)
    assert cluster.tool("transactions", *words) == []
    broker.stop()
    assert {each.status for each in kseg.transactions(broker.data, max_timeout_minutes=0)} <= {
        "open"
    }
