"""A broker serves the logs that `kseg adopt` brings in, and its producers go on.

The target has leader epochs, and producers whose ids are those of the source.
"""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from uuid import UUID

import pytest

import kseg
from kseg.cli.main import run
from tests.adopted import Source, served
from tests.interop.broker import made
from tests.interop.broker.broker import Broker, Row, Said, wait_until
from tests.interop.kafka import needed
from tests.shares import share

pytestmark = [pytest.mark.broker, pytest.mark.timeout(600)]

COUNT, SEEDS = 3, share(range(40), 4, "adopted beside a broker")
SETTINGS = {"log.retention.check.interval.ms": 1_000, "log.cleaner.backoff.ms": 1_000}


def name_of(seed: int) -> str:
    return f"back-{seed}"


@dataclass(frozen=True, slots=True)
class Back:
    """A broker behind adoptions, what it said at its start, and the plans by seed."""

    broker: Broker
    said: Said
    sources: dict[int, Source]
    plans: dict[int, kseg.reports.AdoptionPlan]  # type: ignore[name-defined]


@pytest.fixture(scope="module")
def back(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Back]:
    with needed():
        broker = Broker(tmp_path_factory.mktemp("broker"), SETTINGS)
    with broker:
        broker.start()
        broker.create("own")
        for seed in SEEDS:
            broker.create(name_of(seed), COUNT, retention_ms=-1)
        for number in range(4):  # producers of the target get ids from 0 on
            broker.produce("own", [{"records": [{"value": b"x"}]}])
            broker.produce("own", [{"records": [{"value": b"x"}]}], transactional_id=f"t{number}")
        broker.stop()
        broker.start()
        broker.stop()
        sources, plans = {}, {}
        for seed in SEEDS:
            home, bumps = tmp_path_factory.mktemp("old"), not seed % 3
            sources[seed] = Source(home, COUNT, Random(seed), bumps=bumps)
            sources[seed].write(120)
            plans[seed] = kseg.plan_adoption(
                sources[seed].home,
                into=broker.data,
                topics={"old": name_of(seed)},
                undecided=("abort", "commit")[seed % 2],
                at=BETWEEN[seed](sources[seed]),
                broker_config=broker.properties,
            )
            assert plans[seed].refused == ()
            plans[seed].apply()
        said = broker.start()
        for seed in SEEDS:
            broker.wait_for_leaders(name_of(seed))
        yield Back(broker, said, sources, plans)


BETWEEN = {
    seed: (
        (lambda source: None)
        if seed // 2 % 2
        else (lambda source: (source.notes[0].time_ms + source.now_ms) // 2)
    )
    for seed in SEEDS
}


def committed_rows(broker: Broker, topic: str, number: int) -> list[Row]:
    """What a reader of committed records gets once the markers are there.

    A commit returns before they are written.
    """

    def is_settled() -> bool:
        ends = (
            broker.offsets(topic, number, "latest", isolation=isolation)
            for isolation in ("read_committed", "read_uncommitted")
        )
        return len({end[0][0] for end in ends}) == 1

    wait_until(is_settled)
    return broker.consume(topic, number, "read_committed")


def check_served(back: Back, seed: int, isolation: str, behind: int = 0) -> None:
    source = back.sources[seed]
    for number in range(COUNT):
        rows = back.broker.consume(name_of(seed), number, isolation)
        got = [(row.offset, row.timestamp, row.value) for row in rows]
        wanted = source.expected(
            number,
            committed=isolation == "read_committed",
            at_ms=BETWEEN[seed](source),
            otherwise=bool(seed % 2),
        )
        assert got[: len(got) - behind] == wanted


def test_nothing_is_warned_of(back: Back) -> None:
    assert back.said.warnings() == []
    for seed in SEEDS:
        for number in range(COUNT):
            about = back.said.about(f"{name_of(seed)}-{number}")
            # Kafka 4.2 says this of its own logs, too.
            assert all("Reloading from producer snapshot" in line.text for line in about)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
def test_every_planned_record_is_served_and_no_other(back: Back, seed: int, isolation: str) -> None:
    check_served(back, seed, isolation)


@pytest.mark.parametrize("seed", SEEDS)
def test_producers_with_the_same_ids_go_on(back: Back, seed: int) -> None:
    topic, broker = name_of(seed), back.broker
    for number in range(COUNT):
        end = back.plans[seed].partitions[number].log_end_offset
        one = [{"records": [{"value": b"new"}]}] * 2
        offsets = broker.produce(topic, one, number)
        assert offsets == [[end], [end + 1]]
        broker.produce(topic, [{**one[0], "end": "abort"}, one[0]], number, f"t{number}")
        rows = committed_rows(broker, topic, number)
        assert [row.value for row in rows[-3:]] == [b"new"] * 3


def test_passes_of_retention_and_of_the_cleaner_take_nothing(back: Back) -> None:
    """Last but one: a crash follows."""
    time.sleep(3)
    for seed in SEEDS:
        for number in range(COUNT):
            begin, _ = back.broker.offsets(name_of(seed), number, "earliest")[0]
            assert begin == 0
    begun = back.broker.log_bytes
    back.broker.kill()
    back.broker.start()
    for seed in SEEDS:
        back.broker.wait_for_leaders(name_of(seed))
    said = back.broker.said(begun)
    assert not [line for line in said.lines if "OutOfOrder" in line.text]
    for seed in SEEDS:
        for number in range(COUNT):
            one = [{"records": [{"value": b"after"}]}]
            back.broker.produce(name_of(seed), one, number)
            back.broker.produce(name_of(seed), one, number, f"t{number}")


def test_a_deleted_topic_and_logs_of_every_kind_come_back(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """Codecs, old formats, gaps of compaction, logs that were repaired, and what Spark wrote."""
    home, cases = tmp_path_factory.mktemp("old"), list(made.MAKERS.items())
    held = {}
    for number, (_, make) in enumerate(cases):
        path = home / f"kinds-{number}"
        kseg.Log.open(path, mode="append", create=True, topic_id=UUID(int=3)).close()
        held[number] = make(path)
    with needed():
        broker = Broker(tmp_path_factory.mktemp("broker"))
    with broker:
        broker.start()
        broker.create("orders", 2)
        rows = [{"key": b"k", "value": b"%d" % n} for n in range(50)]
        for number in range(2):
            broker.produce("orders", [{"records": rows}], number, transactional_id="mine")
        before = [committed_rows(broker, "orders", number) for number in range(2)]
        broker.ask("delete", "orders")
        time.sleep(2)
        broker.create("orders", 2)
        broker.create("kinds", len(cases), retention_ms=-1)
        broker.stop()
        deleted = sorted(Path(broker.data).glob("orders-*-delete"))
        assert len(deleted) == 2
        plan = kseg.plan_adoption(deleted, into=broker.data, broker_config=broker.properties)
        assert plan.refused == ()
        plan.apply()
        kinds = kseg.plan_adoption(
            home, into=broker.data, undecided="commit", broker_config=broker.properties
        )
        assert kinds.refused == ()
        old = [each.partition for each in kinds.partitions if each.notes]
        assert old == [n for n, (case, _) in enumerate(cases) if case in ("magic-0", "magic-1")]
        kinds.apply()
        said = broker.start()
        for topic in ("orders", "kinds"):
            broker.wait_for_leaders(topic)
        assert said.warnings() == []
        for number in range(2):
            assert broker.consume("orders", number) == before[number]
            assert broker.consume("orders", number, "read_committed") == before[number]
            broker.produce("orders", [{"records": rows}], number, transactional_id="mine")
            assert len(committed_rows(broker, "orders", number)) == 100
        for number in range(len(cases)):
            assert broker.consume("kinds", number) == held[number].rows
            assert broker.consume("kinds", number, "read_committed") == held[number].committed()
            (offsets,) = broker.produce("kinds", [{"records": [{"value": b"x"}]}], number)
            assert offsets == [kinds.partitions[number].log_end_offset]


GROUPS = "consumer.group.ConsumerGroupCommand"


def test_a_cluster_comes_back_and_its_coordinator_decides(
    tmp_path_factory: pytest.TempPathFactory, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    """Of one transaction the marker is cut off in one partition, as in a copy of another moment.

    A group goes on where it stood.
    """
    with needed():
        old = Broker(tmp_path_factory.mktemp("old"))
    with old:
        old.start()
        old.create("orders", 2)
        rows = [{"key": b"%d" % n, "value": b"%d" % n} for n in range(40)]
        ends = ["commit", "abort", "commit"]
        groups = [{"records": rows, "end": end} for end in ends]
        old.produce("orders", groups, -1, transactional_id="mine")
        committed = [committed_rows(old, "orders", number) for number in range(2)]
        written = [old.consume("orders", number) for number in range(2)]
        for place in ("orders:0", "orders:1"):
            to = (
                "--topic",
                place,
                *(("--to-offset", "7") if place[-1] == "1" else ("--to-latest",)),
            )
            old.ask_tool(GROUPS, "--group", "readers", "--reset-offsets", *to, "--execute")
        old.stop()
    ends_before = []
    for number in range(2):
        with kseg.Log.open(old.data / f"orders-{number}") as log:
            ends_before.append(log.log_end_offset)
    kseg.plan_truncation(old.data / "orders-0", ends_before[0] - 1).apply(keep=False)
    with needed():
        new = Broker(tmp_path_factory.mktemp("new"))
    with new:
        new.start()
        new.create("back", 2)
        new.stop()
        plan = kseg.plan_adoption(
            old.data,
            into=new.data,
            topics={"orders": "back"},
            broker_config=new.properties,
        )
        assert plan.refused == ()
        (one,) = plan.partitions[0].transactions
        assert (one.commits, one.why) == (True, "the state of its coordinator")
        assert plan.partitions[1].transactions == ()
        assert any("kseg groups" in line for line in plan.after)
        words = ("adopt", old.data, "--into", new.data, "--topic", "orders=back", "--json")
        words = (*words, "--broker-config", new.properties, "--groups-csv", new.home / "groups.csv")
        assert run(list(map(str, words))) == 1
        lines = json.loads(capsysbinary.readouterr().out)["after"]
        (line,) = (line for line in lines if line.startswith("kafka-consumer-groups.sh "))
        plan.apply()
        said = new.start()
        new.wait_for_leaders("back")
        assert said.warnings() == []
        for number in range(2):
            assert new.consume("back", number, "read_committed") == committed[number]
            assert new.consume("back", number) == written[number]
            assert new.offsets("back", number, "latest")[0][0] == ends_before[number]
        _, _, _, *typed = shlex.split(line.replace("--dry-run", "--execute"))
        new.ask_tool(GROUPS, *typed)
        told = new.ask_tool(GROUPS, "--describe", "--group", "readers", "--offsets")
        at = {(row[1], row[2]): int(row[3]) for row in told if row and row[0] == "readers"}
        assert at == {("back", "0"): ends_before[0], ("back", "1"): 7}


def test_followers_have_the_same_records(tmp_path_factory: pytest.TempPathFactory) -> None:
    """One topic gets its second replica by the printed lines; of the other both are adopted."""
    source = Source(tmp_path_factory.mktemp("old"), 1, Random(3))
    source.write(120)
    wanted = {
        isolation: source.expected(0, committed=isolation == "read_committed")
        for isolation in ("read_uncommitted", "read_committed")
    }
    with needed():
        leader = Broker(tmp_path_factory.mktemp("leader"))
        follower = Broker(tmp_path_factory.mktemp("follower"), joins=leader)
    with leader, follower:
        leader.start()
        leader.create("later")  # on the only broker there is
        follower.start()
        words = ("--partitions", "1", "--replication-factor", "2")
        leader.ask_tool("TopicCommand", "--create", "--topic", "both", *words)
        wait_until(lambda: leader.in_sync("both") == "1,2")
        follower.stop()
        leader.stop()
        plans = {}
        for topic, homes in (("later", [leader.data]), ("both", [leader.data, follower.data])):
            plans[topic] = kseg.plan_adoption(
                source.home,
                into=homes,
                topics={"old": topic},
                undecided="abort",
                broker_config=leader.properties,
            )
            assert plans[topic].refused == ()
            plans[topic].apply()
        assert plans["both"].after == ()
        written, typed = plans["later"].after
        said = leader.start()
        follower.start()
        assert said.warnings() == []
        leader.wait_for_leaders("both")
        _, text, file = shlex.split(written)
        (leader.home / file[1:]).write_text(text)
        _, _, _, *words = shlex.split(typed.replace("replicas.json", f"{leader.home}/{file[1:]}"))
        leader.ask_tool("reassign.ReassignPartitionsCommand", *words)
        for topic in plans:
            wait_until(lambda topic=topic: leader.in_sync(topic) == "1,2")
            leader.produce(topic, [{"records": [{"value": b"new"}]}], acks="all")
            for isolation, rows in wanted.items():
                got = leader.consume(topic, 0, isolation)
                assert [(row.offset, row.timestamp, row.value) for row in got[:-1]] == rows
        about = [line for topic in plans for line in follower.said().about(f"{topic}-0")]
        about = [line for line in about if "was missing. Creating" not in line.text]
        assert [line for line in about if line.level != "INFO"] == []
        follower.stop()
        leader.stop()
        for topic in plans:
            for isolation, rows in wanted.items():
                assert served(follower.data / f"{topic}-0", isolation)[:-1] == rows
            assert kseg.diff(leader.data / f"{topic}-0", follower.data / f"{topic}-0").ok
