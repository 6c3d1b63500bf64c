"""`kseg metadata`: tables, JSON, what differs, secrets, and the exit codes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.cli.conftest import Kseg
from tests.unit.log.settings.made import (
    FIRST,
    Broker,
    partition,
    scram,
    setting,
    token,
    topic,
)

SECRET = "hunter2-secret"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    made = [topic("orders"), partition(FIRST, 0, [1, 2]), setting("retention.ms", "1")]
    users = [scram("alice", SECRET.encode()), token("t1")]
    secret = setting("ssl.key.password", f"{SECRET}-1", "7", 4)
    changed = setting("ssl.key.password", f"{SECRET}-2", "7", 4)
    broker = Broker(tmp_path / "data")
    broker.says(
        [*made, *users, secret],
        [setting("retention.ms", "2"), changed],
        times=[1_700_000_000_000, 1_700_000_060_000],
    )
    return broker.votes(7).path


def test_each_kind_has_a_table(kseg: Kseg, data: Path) -> None:
    ran = kseg("metadata", data)
    assert ran.code == 0
    log = data / "__cluster_metadata-0"
    assert ran.text.startswith(f"{log}: up to offset 8, 2023-11-14T22:14:20.000Z, leader epoch 0")
    lines = [line.split() for line in ran.text.splitlines()]
    assert ["topic", "orders", "retention.ms", "2", "6", "2023-11-14T22:14:20.000Z"] in lines
    assert ["broker", "7", "ssl.key.password", "(hidden)", "7", "2023-11-14T22:14:20.000Z"] in lines
    assert ["alice", "SCRAM-SHA-256", "3", "2023-11-14T22:13:20.000Z"] in lines
    narrow = kseg("metadata", data, "--topic", "ord*", "--at-offset", 3).text
    assert "alice" not in narrow
    assert "retention.ms  1" in narrow


def test_what_is_not_there_has_words(kseg: Kseg, data: Path) -> None:
    early = kseg("metadata", data, "--at", "1000").text.splitlines()[0]
    assert early == f"{data / '__cluster_metadata-0'}: the log has no record so early"
    assert kseg("metadata", data, "--diff", "now", "now").text == "nothing differs\n"
    assert "no topic 'x', 'y'" in kseg("metadata", data, "--topic", "x", "--topic", "y").err


def test_the_document_has_the_tables(kseg: Kseg, data: Path) -> None:
    document = kseg("metadata", data, "--json").document
    assert document["schema"] == "kseg.metadata/1"
    assert list(document) == [
        *("schema", "path", "cluster_id", "end_offset", "certain_end_offset", "timestamp"),
        *("leader", "leader_epoch", "last_batch", "voters", "brokers", "controllers", "topics"),
        *("partitions", "configs", "features", "quotas", "acls", "scram_users"),
        *("delegation_tokens", "findings"),
    ]
    assert (document["end_offset"], document["certain_end_offset"]) == (8, 8)
    assert document["last_batch"]["path"].endswith("0.log")


def test_changes_since_a_time_and_between_moments_and_directories(
    kseg: Kseg, data: Path, tmp_path: Path
) -> None:
    since = kseg("metadata", data, "--since", "1700000000000")
    assert since.code == 0
    changed = [
        "configs broker 7 ssl.key.password: value=(hidden) -> value=(hidden) (offset 7)",
        "configs topic orders retention.ms: value=1 -> value=2 (offset 6)",
    ]
    assert since.text.splitlines()[-2:] == changed
    ran = kseg("metadata", data, "--diff", "1700000000000", "1700000060000")
    assert (ran.code, ran.text.splitlines()) == (1, changed)
    assert kseg("metadata", data, "--diff", "1700000060000", "1700000060000").code == 0
    other = Broker(tmp_path / "other").says([topic("orders")]).path
    ran = kseg("metadata", "--diff", other, data, "--json")
    assert ran.code == 1
    assert [each["end_offset"] for each in ran.document["states"]] == [1, 8]
    assert {row["table"] for row in ran.document["changes"]} >= {"partitions", "topics", "configs"}


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["--json"],
        ["--since", "1700000000000"],
        ["--since", "1700000000000", "--json"],
        ["--diff", "1700000000000", "1700000060000"],
        ["--diff", "1700000000000", "1700000060000", "--json"],
        ["--at-offset", "99"],
    ],
)
def test_no_secret_is_in_any_output(kseg: Kseg, data: Path, words: list[str]) -> None:
    ran = kseg("metadata", data, *words)
    assert SECRET not in ran.text + ran.err
    if words != ["--at-offset", "99"]:
        assert SECRET in kseg("metadata", data, *words, "--show-secrets").text


def test_exit_codes(kseg: Kseg, data: Path, tmp_path: Path) -> None:
    assert kseg("metadata").code == 2
    assert kseg("metadata", tmp_path / "missing").code == 3
    assert kseg("metadata", data, "--at", "5", "--diff", "1", "2").code == 2
    assert kseg("metadata", data, "--diff", "soon", "2").code == 2
    other = Broker(tmp_path / "other", cluster="c2").says([topic("orders")]).path
    assert kseg("metadata", data, other).code == 2
    ran = kseg("metadata", data, "--at-offset", 99)
    assert (ran.code, "ends at offset 8" in ran.err) == (2, True)
    (tmp_path / "empty").mkdir()
    assert "ZooKeeper" in kseg("metadata", tmp_path / "empty").err
    log = next(data.glob("*/*.log"))
    log.write_bytes(log.read_bytes()[:-1] + b"!")
    ran = kseg("metadata", data)
    assert (ran.code, "error: damaged" in ran.err) == (1, True)


def test_codes_are_listed(kseg: Kseg) -> None:
    assert "not-certain" in kseg("metadata", "--codes").text
    assert kseg("metadata", "--codes", "--json").document["codes"][0]["code"] == "damaged"
