"""A broker that was killed starts without reading a log again, once kseg has recovered its data."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.interop.broker.broker import Broker
from tests.interop.kafka import needed

pytestmark = [pytest.mark.broker, pytest.mark.timeout(600)]

TOPIC, PARTITIONS = "killed", 3
_KSEG = "import sys; from kseg.cli.main import main; sys.exit(main())"
_RECOVERS = "Recovering unflushed segment"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with needed():
        made = Broker(tmp_path)
    with made:
        yield made


def written(broker: Broker, rounds: int) -> None:
    """Some records for each partition, round after round, as long as the broker lives."""
    records = [{"key": b"%d" % n, "value": b"v" * 500} for n in range(100)]
    with suppress(Exception):  # of the client, when the broker goes
        for _round in range(rounds):
            for partition in range(PARTITIONS):
                broker.produce(TOPIC, [{"records": records}], partition)


def recovered(data: Path) -> str:
    """What `kseg recover` says, in a process of its own."""
    words = ["recover", str(data), "--apply", "--jobs", "2"]
    done = subprocess.run(
        [sys.executable, "-c", _KSEG, *words], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def swept(broker: Broker) -> list[str]:
    """Partitions of which the start reads segments again; the log of KRaft is always one."""
    said = broker.start()
    lines = [line.text for line in said.lines if _RECOVERS in line.text]
    return [line for line in lines if "__cluster_metadata" not in line]


def test_a_killed_broker_starts_as_after_a_clean_stop(broker: Broker) -> None:
    broker.start()
    broker.create(TOPIC, PARTITIONS, segment_bytes=1 << 20)
    written(broker, 1)
    load = threading.Thread(target=written, args=(broker, 20))
    load.start()
    load.join(2)
    broker.kill()
    load.join(120)
    assert not (broker.data / ".kafka_cleanshutdown").exists()
    recovered(broker.data)
    assert swept(broker) == []
    broker.wait_for_leaders(TOPIC)
    for partition in range(PARTITIONS):
        offsets = [row.offset for row in broker.consume(TOPIC, partition)]
        assert offsets == list(range(len(offsets)))
        assert len(offsets) >= 100
    broker.kill()
    assert swept(broker) != []  # as it is without kseg
