"""Verbs that change logs go by the settings that the broker has of a topic."""

from __future__ import annotations

from pathlib import Path

import pytest

from kseg.log.log import Log
from tests.builders import batch, record
from tests.golden import made
from tests.unit.cli.conftest import Kseg, made_in

LINES = b"".join(b'{"key": "k%d", "value": "%s"}\n' % (n, b"v" * 300) for n in range(40))


@pytest.fixture
def orders(tmp_path: Path) -> Path:
    return made_in(tmp_path, made.small_segments) / "orders-0"


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
