"""`kseg.metadata`: each kind of object, moments, changes, what is certain, secrets, damage."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path
from uuid import UUID

import pytest

import kseg
from kseg.documents import id_text
from kseg.errors import KsegError
from tests.unit.log.settings.made import (
    FIRST,
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
    scram,
    setting,
    snapshot,
    token,
    topic,
    turn,
)

RETENTION = "retention.ms"
#: How often a random test goes on; whole with KSEG_WHOLE=1.
ROUNDS = 2_000 if os.environ.get("KSEG_WHOLE") else 40


@pytest.fixture
def broker(tmp_path: Path) -> Broker:
    return Broker(tmp_path / "data")


# ---- moments and changes -------------------------------------------------------------------------


def moments(broker: Broker) -> Broker:
    told = [[topic("orders"), setting(RETENTION, "1")], [setting(RETENTION, "2")]]
    return broker.says(*told, [setting(RETENTION, "3")], times=[10, 20, 30])


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


def test_records_of_newer_versions_cost_no_table_and_one_note(broker: Broker) -> None:
    told = [
        topic("orders"),
        partition(FIRST, 0, [7]),
        setting("retention.ms", "5"),
        feature("metadata.version", 33),
        node(7),
        node_change(7, fenced=-1),
        acl(3),
    ]
    known = kseg.metadata(broker.says(told).path)
    newer = kseg.metadata(broker.says([encoded(each, raised_by=1) for each in told]).path)
    assert {kind: list(rows) for kind, rows in newer.tables.items()} == {
        kind: list(rows) for kind, rows in known.tables.items()
    }
    notes = [each for each in newer.findings if each not in known.findings]
    assert [each.code for each in notes] == ["newer"]
    assert "version 5 of REGISTER_BROKER_RECORD" in notes[0].message


def test_a_broker_says_which_directories_are_cordoned(broker: Broker) -> None:
    first, second = UUID(int=9 << 64), UUID(int=8 << 64)
    told = [node(7), node(8, cordonedLogDirs=[first]), node(9)]
    changes = [node_change(8, cordonedLogDirs=[]), node_change(9, cordonedLogDirs=[second])]
    rows = kseg.metadata(broker.says(told, changes).path)["brokers"]
    assert [row["cordoned_directories"] for row in rows] == [None, [], [id_text(second)]]
