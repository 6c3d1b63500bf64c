"""`kseg.metadata`: each kind of object, moments, changes, what is certain, secrets, damage."""

from __future__ import annotations

import json
import os
import pickle
import random
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest

import kseg
from kseg.errors import KsegError
from tests.unit.log.settings.made import (
    FIRST,
    NEWER_BROKER,
    SECOND,
    Broker,
    Said,
    acl,
    batches,
    encoded,
    feature,
    moved,
    node,
    node_change,
    partition,
    quota,
    removed,
    scram,
    setting,
    snapshot,
    token,
    topic,
    turn,
)
from tests.unit.log.settings.test_settings import UNKNOWN_TYPE

RETENTION = "retention.ms"
#: How often a random test goes on; whole with KSEG_WHOLE=1.
ROUNDS = 2_000 if os.environ.get("KSEG_WHOLE") else 40


@pytest.fixture
def broker(tmp_path: Path) -> Broker:
    return Broker(tmp_path / "data")


def row_of(broker: Broker, kind: str, **given: Any) -> dict[str, Any]:
    """The only object of a kind, without the columns of every table."""
    (row,) = kseg.metadata(broker.path, **given)[kind]
    return {name: row[name] for name in row if name not in ("offset", "timestamp", "certain")}


# ---- each kind -----------------------------------------------------------------------------------


def test_brokers_are_as_their_last_records_have_them(broker: Broker) -> None:
    broker.says([node(1)], [node_change(1, fenced=-1)])
    directory = "AAAAAAAAAAkAAAAAAAAAAA"
    expected = {
        "broker": 1,
        "endpoints": ["INSIDE://h:9092"],
        "rack": None,
        "fenced": False,
        "in_controlled_shutdown": False,
        "epoch": 7,
        "directories": [directory],
        "incarnation_id": "AAAAAAAAAAAAAAAAAAAABA",
    }
    assert row_of(broker, "brokers") == expected
    change = node_change(1, fenced=1, inControlledShutdown=1, logDirs=[UUID(int=2)])
    broker.says([node(1, rack="r", fenced=False)], [change], [node_change(2, fenced=1)])
    changed = {"rack": "r", "fenced": True, "in_controlled_shutdown": True}
    assert row_of(broker, "brokers") == {**expected, **changed, "directories": ["LOST"]}
    broker.says([node(1)], [("FENCE_BROKER_RECORD", {"id": 1, "epoch": 7})])
    assert row_of(broker, "brokers")["fenced"] is True
    broker.says([node(1)], [("UNFENCE_BROKER_RECORD", {"id": 1, "epoch": 7})])
    assert row_of(broker, "brokers")["fenced"] is False
    broker.says([node(1)], [("UNREGISTER_BROKER_RECORD", {"brokerId": 1, "brokerEpoch": 7})])
    assert len(kseg.metadata(broker.path)["brokers"]) == 0


def test_a_partition_has_all_changes_of_its_record(broker: Broker) -> None:
    change = dict(moved(FIRST, 0, None)[1])
    change |= {"isr": [1], "leader": 1, "addingReplicas": [4], "eligibleLeaderReplicas": [2]}
    change |= {"lastKnownElr": [3], "leaderRecoveryState": 1, "removingReplicas": [3]}
    made = [topic("orders"), partition(FIRST, 0, [1, 2, 3], leader=2)]
    broker.says(made, [("PARTITION_CHANGE_RECORD", change)])
    expected = {
        "topic": "orders",
        "partition": 0,
        "leader": 1,
        "replicas": [1, 2, 3],
        "isr": [1],
        "elr": [2],
        "last_known_elr": [3],
        "adding": [4],
        "removing": [3],
        "recovering": True,
        "leader_epoch": 1,
        "partition_epoch": 1,
        "directories": ["AAAAAAAAAAAAAAAAAAAACQ"] * 3,
    }
    assert row_of(broker, "partitions") == expected
    cleared = {"elr": [], "last_known_elr": []}
    for name, fields in (("orders", cleared), ("", cleared), ("other", {})):
        clear = ("CLEAR_ELR_RECORD", {"topicName": name})
        broker.says(made, [("PARTITION_CHANGE_RECORD", change)], [clear])
        assert row_of(broker, "partitions") == {**expected, **fields}
    broker.says(made, [moved(FIRST, 0, [4])], [moved(FIRST, 9, [4])], [moved(SECOND, 0, [4])])
    found = row_of(broker, "partitions")
    assert (found["replicas"], found["leader"], found["leader_epoch"]) == ([4], 2, 0)
    assert row_of(broker, "topics")["partitions"] == 1
    broker.says(made, [removed(FIRST)])
    assert not any(len(each) for each in kseg.metadata(broker.path).tables.values())


@pytest.mark.parametrize(
    ("kind", "owner", "level"),
    [
        (2, "orders", "topic"),
        (4, "7", "broker"),
        (4, "", "cluster"),
        (16, "m", "client-metrics"),
        (32, "g", "group"),
        (99, "x", "99"),
    ],
)
def test_a_configuration_has_its_level_and_its_last_change(
    broker: Broker, kind: int, owner: str, level: str
) -> None:
    told = [[setting(RETENTION, "5", owner, kind)], [setting(RETENTION, "6", owner, kind)]]
    broker.says(*told, [setting("segment.ms", "1", owner, kind)], times=[10, 20, 30])
    first, second = kseg.metadata(broker.path)["configs"]
    assert (first["level"], first["resource"], first["config"]) == (level, owner, RETENTION)
    assert (first["value"], first["offset"], first["timestamp"]) == ("6", 1, 20)
    assert (second["config"], second["offset"]) == ("segment.ms", 2)
    broker.says(*told, [setting(RETENTION, None, owner, kind)])
    assert len(kseg.metadata(broker.path)["configs"]) == 0


def test_features_quotas_acls_users_and_tokens(broker: Broker) -> None:
    entity: dict[str, str | None] = {"user": "a=b", "client-id": None}
    told: list[list[Said]] = [
        [feature("group.version", 1), feature("metadata.version", 29), acl(1), acl(2)],
        [quota(entity, "producer_byte_rate", 5.5), scram("alice", b"s"), token("t1"), token("t2")],
    ]
    broker.says(*told)
    found = kseg.metadata(broker.path)
    assert [row["level"] for row in found["features"]] == [1, 29]
    assert len(found["acls"]) == 2
    gone: list[Said] = [
        feature("group.version", 0),
        quota(entity, "producer_byte_rate", 0, remove=True),
        ("REMOVE_ACCESS_CONTROL_ENTRY_RECORD", {"id": UUID(int=1)}),
        ("REMOVE_DELEGATION_TOKEN_RECORD", {"tokenId": "t1"}),
    ]
    assert row_of(broker, "quotas") == {
        "entity": ["client-id", "user=a=b"],
        "quota": "producer_byte_rate",
        "value": 5.5,
    }
    broker.says(*told, gone)
    assert row_of(broker, "features") == {"feature": "metadata.version", "level": 29}
    assert len(kseg.metadata(broker.path)["quotas"]) == 0
    assert row_of(broker, "acls") == {
        "acl_id": "AAAAAAAAAAAAAAAAAAAAAg",
        "resource_type": "TOPIC",
        "resource": "orders",
        "pattern": "LITERAL",
        "principal": "User:alice",
        "host": "*",
        "operation": "READ",
        "permission": "ALLOW",
    }
    assert row_of(broker, "scram_users") == {"user": "alice", "mechanism": "SCRAM-SHA-256"}
    owned = {"token_id": "t2", "owner": "User:a", "requester": "User:b"}
    assert row_of(broker, "delegation_tokens") == owned
    gone = [("REMOVE_USER_SCRAM_CREDENTIAL_RECORD", {"name": "alice", "mechanism": 1})]
    broker.says(*told, gone)
    assert len(kseg.metadata(broker.path)["scram_users"]) == 0


def test_tables_have_the_same_types_with_and_without_rows(broker: Broker) -> None:
    full: list[Said] = [topic("orders"), partition(FIRST, 0, [1]), node(1), acl(1), scram("a", b"")]
    full += [feature("f", 1), quota({"user": None}, "q", 1), token("t"), setting(RETENTION, "1")]
    broker.says(full)
    broker.votes(1)
    found = kseg.metadata(broker.path, since=0)
    empty = kseg.metadata(Broker(broker.path.parent / "other").says([topic("x")]).path, since=0)
    for kind, table in found.tables.items():
        assert table.to_arrow().schema == empty[kind].to_arrow().schema
        assert table.to_arrow().num_rows == len(table)
        assert table.to_pandas().columns.tolist() == table.to_arrow().column_names
    assert found["partitions"].to_arrow().schema.field("replicas").type == pa.list_(pa.int32())
    assert {kind for kind, each in found.tables.items() if not len(each)} == {
        *("controllers", "elections", "changes")
    }
    assert found.to_arrow().to_pylist()[1] == {"table": "brokers", "rows": 1}
    assert pickle.loads(pickle.dumps(found)).to_json() == found.to_json()


# ---- moments and changes -------------------------------------------------------------------------


def moments(broker: Broker) -> Broker:
    told = [[topic("orders"), setting(RETENTION, "1")], [setting(RETENTION, "2")]]
    return broker.says(*told, [setting(RETENTION, "3")], times=[10, 20, 30])


@pytest.mark.parametrize(
    ("given", "value", "end"),
    [
        ({}, "3", 4),
        ({"at": 30}, "3", 4),
        ({"at": 29}, "2", 3),
        ({"at": 20}, "2", 3),
        ({"at": 19}, "1", 2),
        ({"at_offset": 2}, "2", 3),
        ({"at_offset": 1}, "1", 2),
        ({"at_offset": 3, "at": 20}, "2", 3),
    ],
)
def test_the_state_is_that_of_a_moment(
    broker: Broker, given: dict[str, int], value: str, end: int
) -> None:
    moments(broker)
    assert row_of(broker, "configs", **given)["value"] == value
    found = kseg.metadata(broker.path, **given)
    assert (found.end_offset, found.timestamp) == (end, 10 * (end - 1))
    assert found.last_batch is not None
    assert found.last_batch.offset == end - 1


def test_a_moment_that_is_not_in_the_log_is_refused(broker: Broker) -> None:
    moments(broker)
    assert kseg.metadata(broker.path, at=9).end_offset == 0
    with pytest.raises(kseg.OffsetOutOfRangeError, match="ends at offset 4"):
        kseg.metadata(broker.path, at_offset=4)
    (broker.log / f"{0:020d}.log").unlink()
    broker.has_snapshot(4, snapshot([[topic("orders")]]))
    broker.says([setting(RETENTION, "4")], base_offset=4, times=[40])
    with pytest.raises(kseg.OffsetOutOfRangeError, match="goes back further"):
        kseg.metadata(broker.path, at=-1)
    with pytest.raises(kseg.OffsetOutOfRangeError, match="not known"):
        kseg.metadata(broker.path, at_offset=2)
    found = kseg.metadata(broker.path)
    assert [one.code for one in found.findings] == ["not-certain", "no-history"]
    assert [row["offset"] for row in found["topics"]] == [None]
    assert [row["offset"] for row in found["configs"]] == [4]


def test_changes_are_those_between_two_states(broker: Broker) -> None:
    told: list[list[Said]] = [[topic("orders"), partition(FIRST, 0, [1]), setting(RETENTION, "1")]]
    told += [[topic("gone", SECOND)], [removed(SECOND), setting(RETENTION, "2")], [acl(1)]]
    broker.says(*told, times=[10, 10, 20, 30])
    changes = kseg.metadata(broker.path, since=10, at=20)["changes"]
    gone = {"topic_id": "AAAAAAAAAAAAAAAAAAAAAg", "partitions": 0}
    value, stamp = {"value": "2", "hidden": False}, {"timestamp": 20, "certain": False}
    assert list(changes) == [
        {"table": "topics", "key": ["gone"], "before": gone, "after": None}
        | {"offset": None, "timestamp": None, "certain": None},
        {
            "table": "configs",
            "key": ["topic", "orders", RETENTION],
            "before": {**value, "value": "1"},
        }
        | {"after": value, "offset": 5, **stamp},
    ]
    (added,) = kseg.metadata(broker.path, since=20)["changes"]
    assert (added["table"], added["before"], added["after"]["operation"]) == ("acls", None, "READ")
    assert len(kseg.metadata(broker.path, since=30)["changes"]) == 0
    rows = changes.to_arrow().to_pylist()
    assert json.loads(rows[1]["after"]) == value


def test_elections_between_two_moments_are_listed_unclean_ones_first(broker: Broker) -> None:
    def elected(leader: int, isr: list[int], recovery: int = -1) -> Said:
        kind, fields = moved(FIRST, 0, None)
        changes = {"leader": leader, "isr": isr, "leaderRecoveryState": recovery}
        return kind, {**fields, **changes}

    told: list[list[Said]] = [[topic("orders"), partition(FIRST, 0, [1, 2])]]
    told += [[elected(2, [2])], [elected(-1, [2])], [elected(1, [1], 1)], [elected(1, [1, 2], 0)]]
    broker.says(*told, times=[10, 20, 30, 40, 50])
    found = kseg.metadata(broker.path, since=10)
    rows = [
        [row[name] for name in ("unclean", "leader_before", "leader", "leader_epoch", "offset")]
        for row in found["elections"]
    ]
    assert rows == [[True, -1, 1, 3, 4], [False, 1, 2, 1, 2], [False, 2, -1, 2, 3]]
    assert found["partitions"].values[0]["recovering"] is False
    assert [row["leader"] for row in kseg.metadata(broker.path, since=30)["elections"]] == [1]
    assert "elections" not in kseg.metadata(broker.path).tables


def test_topics_narrow_the_tables(broker: Broker) -> None:
    told: list[Said] = [topic("orders"), partition(FIRST, 0, [1]), setting(RETENTION, "1"), node(1)]
    told += [topic("users", SECOND), partition(SECOND, 0, [1]), setting(RETENTION, "1", "users")]
    told += [setting("log.retention.ms", "5", "", 4), setting("metrics", "*", "orders", 16)]
    broker.says(told)
    found = kseg.metadata(broker.path, topics="ord*")
    rows = {kind: len(each) for kind, each in found.tables.items() if len(each)}
    assert rows == {"topics": 1, "partitions": 1, "configs": 2}
    assert [row["level"] for row in found["configs"]] == ["topic", "cluster"]
    with pytest.raises(ValueError, match="no topic 'nosuch'"):
        kseg.metadata(broker.path, topics="nosuch")
    broker.says(told, [removed(FIRST)], times=[10, 20])
    (gone, *_) = kseg.metadata(broker.path, topics="orders", since=10)["changes"]
    assert (gone["table"], gone["key"], gone["after"]) == ("topics", ["orders"], None)


# ---- what is certain, and several directories ----------------------------------------------------


def test_records_that_a_majority_lacks_are_not_certain(tmp_path: Path) -> None:
    first, second, third = (Broker(tmp_path / f"b{each}", node_id=each) for each in (1, 2, 3))
    told = [[topic("orders")], [setting(RETENTION, "1")], [setting(RETENTION, "2")]]
    first.says(*told).votes(1, 2, 3)
    second.says(*told[:2])
    alone = kseg.metadata(first.path)
    assert (alone.end_offset, alone.certain_end_offset) == (3, 0)
    assert [one.code for one in alone.findings] == ["not-certain"]
    both = kseg.metadata([second.path, first.path])
    assert (both.path, both.certain_end_offset) == (str(first.log), 2)
    assert [row["certain"] for row in both["configs"]] == [False]
    assert [row["certain"] for row in both["topics"]] == [True]
    third.says(*told)
    assert kseg.metadata([first.path, second.path, third.path]).findings == ()
    first.votes(1)
    assert kseg.metadata(first.log).certain_end_offset == 3


def test_two_clusters_and_no_log_are_refused(tmp_path: Path) -> None:
    first = Broker(tmp_path / "a").says([topic("orders")])
    other = Broker(tmp_path / "b", cluster="c2").says([topic("orders")])
    with pytest.raises(ValueError, match="of several clusters"):
        kseg.metadata([first.path, other.path])
    old = Broker(tmp_path / "c")
    with pytest.raises(kseg.NotALogError, match="ZooKeeper"):
        kseg.metadata(old.path)
    assert kseg.metadata([old.path, first.path]).end_offset == 1
    with pytest.raises(FileNotFoundError):
        kseg.metadata(tmp_path / "missing")


# ---- secrets -------------------------------------------------------------------------------------

SECRET = "hunter2-secret"


def test_no_output_has_a_password(broker: Broker) -> None:
    hidden = ["ssl.key.password", "listener.name.x.sasl.jaas.config", "my.plugin.token"]
    told = [setting(name, f"{SECRET}-{name}", "7", 4) for name in hidden]
    keys: list[Said] = [scram("alice", SECRET.encode()), token("t1")]
    changed = [setting(name, f"{SECRET}-again", "7", 4) for name in hidden]
    broker.says([*told, *keys, setting(RETENTION, "5")], changed, times=[10, 20])
    found = kseg.metadata(broker.path, since=10)
    outputs = [repr(found), str(found), found._repr_html_(), json.dumps(found.to_json())]
    for table in found.tables.values():
        outputs += [repr(table), table._repr_html_(), str(table.to_arrow().to_pylist())]
        outputs += [table.to_pandas().to_string()]
    settings = kseg.settings(broker.path)
    outputs += [repr(settings.cluster), repr(settings), str(settings.to_arrow().to_pylist())]
    assert [text for text in outputs if SECRET in text] == []
    rows = {row["config"]: (row["value"], row["hidden"]) for row in found["configs"]}
    assert rows == {**dict.fromkeys(hidden, (None, True)), RETENTION: ("5", False)}
    changes = [(row["key"][2], row["before"], row["after"]) for row in found["changes"]]
    nothing = {"value": None, "hidden": True}
    assert changes == [(name, nothing, nothing) for name in sorted(hidden)]
    shown = kseg.metadata(broker.path, since=10, show_secrets=True)
    assert {row["value"] for row in shown["configs"]} == {f"{SECRET}-again", "5"}
    assert SECRET in json.dumps(shown.to_json())
    assert json.dumps(shown.to_json()).count("s1s") == 0


# ---- what cannot be understood -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("records", "codes"),
    [
        ([UNKNOWN_TYPE], ["unknown"]),
        ([NEWER_BROKER], ["unknown"]),
        ([b"\x00\x01"], ["unknown"]),
        ([b"\x01\x02\x00"], ["damaged"]),
        ([turn("BEGIN"), setting(RETENTION, "9"), turn("ABORT")], ["left-out"]),
        ([turn("BEGIN"), setting(RETENTION, "9")], ["left-out"]),
        ([turn("END")], ["damaged"]),
        ([feature("metadata.version", 30)], ["newer"]),
        ([feature("metadata.version", 29)], []),
    ],
)
def test_what_is_not_understood_is_a_finding(
    broker: Broker, records: list[Said | bytes], codes: list[str]
) -> None:
    broker.says([topic("orders"), setting(RETENTION, "1")], records).votes(7)
    found = kseg.metadata(broker.path)
    assert [one.code for one in found.findings] == codes
    assert [row["value"] for row in found["configs"]] == ["1"]


def test_a_snapshot_ahead_of_the_log_is_said(broker: Broker) -> None:
    broker.says([topic("orders")]).votes(7)
    broker.has_snapshot(9, snapshot([[topic("orders"), setting(RETENTION, "1")]]))
    found = kseg.metadata(broker.path)
    assert [one.code for one in found.findings] == ["snapshot-ahead", "no-history"]
    assert (found.end_offset, len(found["configs"])) == (9, 1)


def said_of(broker: Broker, since: int | None) -> str:
    """All that is said of a log that may be damaged: rows and findings, or a typed error."""
    try:
        found = kseg.metadata(broker.path, since=since)
    except KsegError as error:
        return str(error)
    arrow = [str(each.to_arrow().to_pylist()) for each in found.tables.values()]
    return "".join([json.dumps(found.to_json()), *map(str, found.findings), *arrow])


def test_mutated_logs_give_findings_or_typed_errors(broker: Broker) -> None:
    told: list[list[Said | bytes]] = [
        [node(1), topic("orders"), partition(FIRST, 0, [1, 2]), setting(RETENTION, "1")],
        [acl(1), quota({"user": None}, "q", 1), scram("a", b"k"), token("t"), feature("f", 1)],
        [moved(FIRST, 0, [2]), node_change(1, fenced=1), setting("ssl.key.password", SECRET)],
        [
            turn("BEGIN"),
            setting(RETENTION, "2"),
            turn("END"),
            ("CLEAR_ELR_RECORD", {"topicName": ""}),
        ],
    ]
    plain = [[each if isinstance(each, bytes) else encoded(each) for each in row] for row in told]
    whole = snapshot([[topic("orders"), setting(RETENTION, "3")]])
    broker.says(*told).votes(7)
    log = broker.log / f"{0:020d}.log"
    data = log.read_bytes()
    for seed in range(ROUNDS):
        chosen = random.Random(seed)
        broken = [[bytearray(each) for each in row] for row in plain]
        for _ in range(chosen.randrange(3)):  # records with a right checksum
            value = chosen.choice(chosen.choice(broken))
            value[chosen.randrange(len(value))] = chosen.randrange(256)
        raw = bytearray(batches([[bytes(each) for each in row] for row in broken]))
        for _ in range(chosen.randrange(2)):  # bytes of the file
            raw[chosen.randrange(len(raw))] ^= 1 << chosen.randrange(8)
        log.write_bytes(raw[: chosen.choice((len(raw), chosen.randrange(len(raw) + 1)))])
        end = bytearray(whole)
        end[chosen.randrange(len(end))] ^= chosen.randrange(2)
        broker.has_snapshot(chosen.randrange(14), bytes(end))
        assert SECRET not in said_of(broker, since=-1 if seed % 2 else None), seed
        for path in broker.log.glob("*.checkpoint"):
            path.unlink()
    log.write_bytes(data)
    assert kseg.metadata(broker.path).findings == ()


def test_an_unknown_table_is_answered_with_those_there_are(broker: Broker) -> None:
    moments(broker)
    with pytest.raises(KeyError, match=r"no table 'topic'; there are: .*topics"):
        kseg.metadata(broker.path)["topic"]
