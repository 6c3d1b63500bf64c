"""Verbs that change logs go by the settings that the broker has of a topic."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kseg.log.log import Log
from tests.builders import batch, record
from tests.unit.cli.conftest import Kseg
from tests.unit.log.settings.made import NEWER_BROKER, NO_OP, Broker, setting, topic

LINES = b"".join(b'{"key": "k%d", "value": "%s"}\n' % (n, b"v" * 300) for n in range(40))


@pytest.fixture
def orders(tmp_path: Path) -> Path:
    """`orders-0` of a broker, empty, with smaller segments and more index entries than usual."""
    broker = Broker(tmp_path / "data")
    own = [setting("segment.bytes", "4000"), setting("index.interval.bytes", "100")]
    broker.says([topic("orders"), *own, NEWER_BROKER])
    return broker.has()


def entries_of(path: Path) -> int:
    return path.stat().st_size // 8


def test_records_are_appended_by_the_topic_s_settings(kseg: Kseg, orders: Path) -> None:
    ran = kseg("append", orders, "--bytes", "utf8", "--batch-records", "1", stdin=LINES)
    assert ran.code == 0
    assert "REGISTER_BROKER_RECORD" in ran.err
    sizes = [path.stat().st_size for path in orders.glob("*.log")]
    assert len(sizes) == 4
    assert max(sizes) <= 4000
    assert entries_of(min(orders.glob("*.index"))) == 9


def test_a_compacted_topic_gets_no_record_without_a_key(kseg: Kseg, tmp_path: Path) -> None:
    broker = Broker(tmp_path / "data")
    broker.says([topic("orders"), setting("cleanup.policy", "compact")])
    ran = kseg("append", broker.has(), stdin=json.dumps({"value": "dg=="}).encode())
    assert (ran.code, "key" in ran.err) == (2, True)


@pytest.mark.parametrize("verb", ["reindex", "recover"])
def test_indexes_are_made_anew_by_the_topic_s_settings(kseg: Kseg, orders: Path, verb: str) -> None:
    with Log.open(orders, mode="append") as log:
        for number in range(12):
            log.append(batch([record(b"v" * 300, key=b"%d" % number)], leader_epoch=-1))
    index = orders / f"{0:020d}.index"
    index.unlink()
    if verb == "recover":
        (orders.parent / ".kafka_cleanshutdown").unlink()
    assert kseg(verb, orders, "--apply", "--no-backup").code == 0
    assert entries_of(index) == 11


@pytest.mark.parametrize(
    "words",
    [("append",), ("recover",), ("reindex",), ("truncate", "--to", "0"), ("retain",), ("compact",)],
    ids=lambda words: words[0],
)
def test_a_setting_that_is_none_is_a_usage_error(
    kseg: Kseg, orders: Path, words: tuple[str, ...]
) -> None:
    (orders / f"{0:020d}.log").touch()
    for given in ("segment.size=1", "clicks:segment.bytes=99", "orders:segment.bytes=1"):
        assert kseg(*words, orders, "--config", given).code == 2, given


@pytest.mark.parametrize("verb", ["retain", "compact"])
def test_damage_in_the_metadata_log_is_found_and_nothing_goes(
    kseg: Kseg, tmp_path: Path, verb: str
) -> None:
    broker = Broker(tmp_path / "data")
    broker.says([topic("orders")], [setting("cleanup.policy", "compact,delete")], [NO_OP])
    path = broker.has()
    with Log.open(path, mode="append") as log:
        log.append(batch([record(b"v", key=b"k", timestamp=1)], leader_epoch=-1))
    (log_file,) = broker.log.glob("*.log")
    log_file.write_bytes(log_file.read_bytes().replace(b"cleanup", b"cleanUp"))
    words = ("--config", "cleanup.policy=compact,delete", "--config", "retention.ms=1", "--force")
    given = words[: None if verb == "compact" else -1]
    ran = kseg(verb, path, *given, "--high-watermark", "end", "--apply", "--json")
    assert (ran.code, ran.document["actions"]) == (1, [])
    assert ran.document["partitions"][0]["skipped"] == "policy-unknown"
    assert "checksum" in str(ran.document["findings"]) or "CRC" in str(ran.document["findings"])
    assert kseg("reindex", path).code == 0
