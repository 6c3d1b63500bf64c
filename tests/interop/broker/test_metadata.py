"""What `kseg.metadata` says of a stopped broker, and what Kafka's tools said of it at two moments.

Topics, configurations, quotas, ACLs and users are made and changed; at each of two moments Kafka's
own tools describe the cluster. The answer for each moment must come out of the files again.
"""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import kseg
from kseg.internal.releases import metadata_versions
from tests.interop.broker.broker import RELEASE, Broker
from tests.interop.kafka import is_since, needed

pytestmark = [pytest.mark.broker, pytest.mark.timeout(600)]

TOPICS = "org.apache.kafka.tools.TopicCommand"
CONFIGS = (
    "org.apache.kafka.tools.ConfigCommand"
    if is_since(RELEASE, "4.4")
    else "kafka.admin.ConfigCommand"
)
ACLS = "org.apache.kafka.tools.AclCommand"
QUORUM = "org.apache.kafka.tools.MetadataQuorumCommand"
FEATURES = "org.apache.kafka.tools.FeatureCommand"
SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    "allow.everyone.if.no.acl.found": "true",
    # So that snapshots are made on the way, and the log goes on behind them.
    "metadata.log.max.record.bytes.between.snapshots": 3_000,
}
SECRET = "hunter2-secret"
#: The owners of configurations: what the tool is asked for, and what its rows are called here.
OWNERS = {
    ("topics", "orders"): ("topic", "orders"),
    ("topics", "users"): ("topic", "users"),
    ("brokers", "1"): ("broker", "1"),
    ("brokers", ""): ("cluster", ""),
    ("groups", "g1"): ("group", "g1"),
    ("client-metrics", "m1"): ("client-metrics", "m1"),
}
QUOTAS = {
    ("users=alice",): ["user=alice"],
    ("users=", "clients=c1"): ["client-id=c1", "user"],
    ("clients=",): ["client-id"],
    ("ips=10.0.0.1",): ["ip=10.0.0.1"],
}


@dataclass(frozen=True, slots=True)
class Moment:
    """What the tools said at a time, in ms."""

    time_ms: int
    topics: str
    configs: dict[tuple[str, str], str]
    quotas: dict[tuple[str, ...], str]
    users: str
    acls: str
    quorum: str
    features: str


#: A data directory, and what was said of it.
Told = tuple[Path, list[Moment]]


def tool(broker: Broker, name: str, *words: str) -> str:
    printed: str = broker.ask("tool", "", words=list(words), **{"class": name})["printed"]
    return printed


def alter(broker: Broker, *owner: str, add: str = "", delete: str = "") -> None:
    words = ["--add-config", add] if add else []
    words += ["--delete-config", delete] if delete else []
    said = tool(broker, CONFIGS, "--alter", *entity(*owner), *words)
    assert "Completed" in said, (owner, add, said)


def entity(*owner: str) -> list[str]:
    """The words for an owner, each part as `topics=orders`; nothing behind `=` is the default."""
    words = []
    for part in owner:
        kind, _, name = part.partition("=")
        words += ["--entity-type", kind, *(["--entity-name", name] if name else [])]
        words += [] if name else ["--entity-default"]
    return words


def told_by(broker: Broker) -> Moment:
    """What the tools say now; nothing changes in this time but that records of no content come."""

    def configs(*owner: str) -> str:
        return tool(broker, CONFIGS, "--describe", *entity(*owner))

    found = Moment(
        0,
        tool(broker, TOPICS, "--describe"),
        {owner: configs("=".join(owner)) for owner in OWNERS},
        {owner: configs(*owner) for owner in QUOTAS},
        configs("users=alice"),
        tool(broker, ACLS, "--list"),
        tool(broker, QUORUM, "describe", "--status"),
        tool(broker, FEATURES, "describe"),
    )
    time.sleep(0.1)
    return Moment(time.time_ns() // 1_000_000, *(getattr(found, name) for name in FIELDS))


FIELDS = ("topics", "configs", "quotas", "users", "acls", "quorum", "features")


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Told]:
    with needed():
        broker = Broker(tmp_path_factory.mktemp("broker"), SETTINGS)
    with broker:
        broker.start()
        broker.create("orders", partitions=3, **{"retention.ms": "1000", "segment.ms": "77000"})
        broker.create("users")
        keys = f"listener.name.plaintext.ssl.keystore.password={SECRET}-1"
        alter(broker, "brokers=1", add=f"{keys},my.plugin.token={SECRET}-2,log.cleaner.threads=2")
        alter(broker, "brokers=", add="log.retention.ms=5000")
        alter(broker, "groups=g1", add="consumer.session.timeout.ms=50000")
        alter(broker, "client-metrics=m1", add="interval.ms=1000,metrics=[a.b,c.d]")
        alter(broker, "users=alice", add=f"SCRAM-SHA-256=[password={SECRET}-3]")
        alter(broker, "users=alice", add="producer_byte_rate=1024")
        alter(broker, "users=", "clients=c1", add="consumer_byte_rate=2048")
        alter(broker, "clients=", add="request_percentage=50.5")
        alter(broker, "ips=10.0.0.1", add="connection_creation_rate=7")
        allow = ("--add", "--allow-principal", "User:bob", "--operation", "Read")
        tool(broker, ACLS, *allow, "--topic", "ord", "--resource-pattern-type", "prefixed")
        tool(
            broker, ACLS, "--add", "--deny-principal", "User:eve", "--operation", "All", "--cluster"
        )
        moments = [told_by(broker)]
        time.sleep(0.1)
        alter(broker, "topics=orders", add="retention.ms=2000", delete="segment.ms")
        alter(broker, "brokers=1", add=f"my.plugin.token={SECRET}-4", delete="log.cleaner.threads")
        alter(broker, "clients=", delete="request_percentage")
        alter(broker, "users=alice", delete="SCRAM-SHA-256")
        tool(broker, TOPICS, "--alter", "--topic", "users", "--partitions", "2")
        broker.create("later")
        broker.ask("delete", "later")
        tool(broker, ACLS, "--remove", "--force", *allow[1:], "--topic", "ord", *PREFIXED)
        moments.append(told_by(broker))
        time.sleep(0.1)
        broker.stop()
        yield broker.data, moments


PREFIXED = ("--resource-pattern-type", "prefixed")


@pytest.fixture(params=[0, 1], ids=["before", "after"])
def pair(told: Told, request: pytest.FixtureRequest) -> tuple[Moment, kseg.reports.Metadata]:
    """What the tools said at a moment, and what the files say of it."""
    moment = told[1][request.param]
    return moment, kseg.metadata(told[0], at=moment.time_ms)


Pair = tuple[Moment, kseg.reports.Metadata]


def numbers(text: str) -> list[int]:
    return [int(each) for each in text.split(",") if each.strip()]


def test_topics_and_partitions_are_those_of_kafka_topics(pair: Pair) -> None:
    moment, found = pair
    topics = dict(re.findall(r"^Topic: (\S+)\tTopicId: (\S+)", moment.topics, re.MULTILINE))
    assert {row["topic"]: row["topic_id"] for row in found["topics"]} == topics
    names = ("Topic", "Partition", "Leader", "Replicas", "Isr", "Elr", "LastKnownElr")
    parts = "".join(rf"\t{name}: ([^\t\n]*)" for name in names)
    said = [
        (topic, int(number), int(leader), *(numbers(text) for text in rest))
        for topic, number, leader, *rest in re.findall(parts, moment.topics)
    ]
    columns = ("topic", "partition", "leader", "replicas", "isr", "elr", "last_known_elr")
    assert len(said) >= 4
    assert [tuple(row[name] for name in columns) for row in found["partitions"]] == sorted(said)


def test_configurations_are_those_of_kafka_configs(pair: Pair) -> None:
    moment, found = pair
    compared = 0
    for owner, text in moment.configs.items():
        rows = [row for row in found["configs"] if (row["level"], row["resource"]) == OWNERS[owner]]
        mine = {row["config"]: (row["value"], row["hidden"]) for row in rows}
        lines = re.findall(r"^  ([\w.-]+)=(.*) sensitive=(\w+) synonyms", text, re.MULTILINE)
        theirs = {
            name: (None, True) if sensitive == "true" else (value, False)
            for name, value, sensitive in lines
        }
        if owner[0] in ("groups", "client-metrics"):  # the tool lists defaults, too
            dynamic = re.findall(r"^  ([\w.-]+)=.*\{DYNAMIC_[A-Z_]+:\1=", text, re.MULTILINE)
            theirs = {name: theirs[name] for name in dynamic}
        assert mine == theirs, owner
        compared += len(mine)
    assert compared >= 8


def test_each_configuration_has_the_time_of_its_last_change(
    told: Told,
) -> None:
    data, (before, after) = told
    found = kseg.metadata(data, topics="orders")
    rows = {row["config"]: row for row in found["configs"] if row["level"] == "topic"}
    assert before.time_ms < rows["retention.ms"]["timestamp"] < after.time_ms
    assert "segment.ms" not in rows
    assert rows["retention.ms"]["certain"] is True
    changes = kseg.metadata(data, since=before.time_ms, at=after.time_ms)["changes"]
    assert {(row["table"], *map(str, row["key"])) for row in changes} >= {
        ("configs", "topic", "orders", "retention.ms"),
        ("configs", "topic", "orders", "segment.ms"),
        ("configs", "broker", "1", "my.plugin.token"),
        ("scram_users", "alice", "SCRAM-SHA-256"),
        ("partitions", "users", "1"),
    }


def test_quotas_and_users_are_those_of_kafka_configs(pair: Pair) -> None:
    moment, found = pair
    mine = {(tuple(row["entity"]), row["quota"]): row["value"] for row in found["quotas"]}
    theirs = {
        (tuple(QUOTAS[owner]), name): float(value)
        for owner, text in moment.quotas.items()
        for line in text.splitlines()
        if "Quota configs" in line
        for name, value in re.findall(r"(\w+)=([\d.]+)", line.rpartition(" are ")[2])
    }
    assert mine == theirs
    assert len(mine) in (3, 4)
    has_user = "SCRAM-SHA-256=iterations" in moment.users
    assert [row["user"] for row in found["scram_users"]] == ["alice"] * has_user


def test_acls_are_those_of_kafka_acls(pair: Pair) -> None:
    moment, found = pair
    theirs, resource = [], ()
    for line in moment.acls.splitlines():
        if head := re.search(r"resourceType=(\w+), name=(.*), patternType=(\w+)\)", line):
            resource = head.groups()
        elif entry := re.search(
            r"principal=(.*), host=(.*), operation=(\w+), permissionType=(\w+)", line
        ):
            theirs.append((*resource, *entry.groups()))
    columns = ("resource_type", "resource", "pattern", "principal", "host", "operation")
    mine = [tuple(row[name] for name in (*columns, "permission")) for row in found["acls"]]
    assert sorted(mine) == sorted(theirs)
    assert mine


def test_the_quorum_is_that_of_kafka_metadata_quorum(pair: Pair) -> None:
    moment, found = pair
    said = dict(re.findall(r"^(\w+): +(.*)$", moment.quorum, re.MULTILINE))
    assert (found.cluster_id, str(found.leader)) == (said["ClusterId"], said["LeaderId"])
    assert found.leader_epoch == int(said["LeaderEpoch"])
    assert found.end_offset >= int(said["HighWatermark"]) > 20
    assert found.certain_end_offset == found.end_offset
    voters = [int(each) for each in re.findall(r'"id": (\d+)', said["CurrentVoters"])]
    assert [row["voter"] for row in found["voters"]] == voters
    assert [row["fenced"] for row in found["brokers"]] == [False]


def test_features_are_those_of_kafka_features(pair: Pair) -> None:
    moment, found = pair
    said = dict(re.findall(r"Feature: (\S+)\s.*FinalizedVersionLevel: (\S+)\s", moment.features))
    levels = {row["feature"]: str(row["level"]) for row in found["features"]}
    release = ".".join(RELEASE.split(".")[:2])
    assert said.pop("metadata.version").startswith(f"{release}-IV")
    assert levels.pop("metadata.version") == str(metadata_versions()[release][1])
    assert levels == {name: level for name, level in said.items() if level != "0"}


def printed(*words: object) -> str:
    """All that `kseg metadata` prints."""
    command = [sys.executable, "-m", "kseg", "metadata", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode in (0, 1), done.stderr
    return done.stdout + done.stderr


def test_no_password_is_in_any_output(told: Told) -> None:
    data, (before, after) = told
    moments = ("--diff", before.time_ms, after.time_ms)
    for words in ((), ("--since", before.time_ms), moments):
        for form in ((), ("--json",)):
            text = printed(data, *words, *form)
            assert "my.plugin.token" in text
            assert SECRET not in text
    shown = printed(data, "--show-secrets")
    assert f"{SECRET}-4" in shown
    assert f"{SECRET}-3" not in shown


def test_nothing_is_left_to_doubt(pair: Pair) -> None:
    assert {one.code for one in pair[1].findings} <= {"no-history", "setting-unknown"}
