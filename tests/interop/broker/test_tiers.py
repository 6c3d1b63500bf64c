"""A broker deletes nothing of a tier after kseg's repairs, and its consumers read all records.

The witness shows that the broker has looked: its epochs are lost, so its segments in the tier go.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import kseg
from kseg.log.tier import Tier
from tests.interop.broker.broker import RELEASE, Broker, wait_until
from tests.interop.kafka import is_since, needed
from tests.shares import share

pytestmark = [
    pytest.mark.broker,
    pytest.mark.timeout(600),
    pytest.mark.skipif(
        is_since(RELEASE, "4.4"),
        reason="no jar of 4.4.0 has LocalTieredStorage, and it does not start with that of 4.2.0",
    ),
]

TOPIC, WITNESS = "tiered", "witness"
#: Records of each round between two starts; more than one segment of 1 MiB.
RECORDS, ROUNDS = 300, 3
EPOCHS = "leader-epoch-checkpoint"


class Household:
    """A broker with a tier, stopped; its local segments are in the tier alone."""

    def __init__(self, home: Path) -> None:
        """Let the broker write, and copy segments into the tier."""
        self.tier, self._saved = home / "tier", home / "saved"
        self.tier.mkdir()
        manager = "org.apache.kafka.server.log.remote.storage.LocalTieredStorage"
        self.broker = Broker(
            home,
            {
                "remote.log.storage.system.enable": "true",
                "remote.log.storage.manager.class.name": manager,
                "remote.log.metadata.manager.listener.name": "PLAINTEXT",
                "rlmm.config.remote.log.metadata.topic.replication.factor": 1,
                "rlmm.config.remote.log.metadata.topic.num.partitions": 1,
                "remote.log.manager.task.interval.ms": 500,
                "rsm.config.dir": self.tier,
            },
        )
        self.log = self.broker.data / f"{TOPIC}-0"
        group = {"records": [{"value": b"v" * 4_000} for _ in range(10)]}
        for number in range(ROUNDS):
            self.broker.start()
            for topic in (TOPIC, WITNESS):
                if not number:
                    settings = {"remote_storage_enable": "true", "local_retention_ms": -1}
                    self.broker.create(topic, segment_bytes=1 << 20, retention_ms=-1, **settings)
                self.broker.wait_for_leaders(topic)
                self.broker.produce(topic, [group] * (RECORDS // 10))
            closed = [len(list(log.glob("*.log"))) - 1 for log in (self.log, self.witness)]
            wait_until(lambda wanted=closed: self.copies() == wanted)
            self.broker.stop()
        config = kseg.LogConfig(local_retention_ms=1).of_topic()
        for log in (self.log, self.witness):
            kseg.plan_retention(log, config=config, high_watermark="end").apply()
        for directory in (self.broker.data, self.tier):
            shutil.copytree(directory, self._saved / directory.name)

    @property
    def witness(self) -> Path:
        """The log of the witness."""
        return self.broker.data / f"{WITNESS}-0"

    def copies(self) -> list[int]:
        """How many segments of each topic are in the tier."""
        return [len(list(self.tier.rglob(f"{name}-0-*/*.log"))) for name in (TOPIC, WITNESS)]

    def lay(self) -> None:
        """Bring data and tier back, with a witness whose epochs are lost."""
        for directory in (self.broker.data, self.tier):
            shutil.rmtree(directory)
            shutil.copytree(self._saved / directory.name, directory)
        (self.witness / EPOCHS).unlink()


@pytest.fixture(scope="module")
def household(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Household]:
    with needed():
        made = Household(tmp_path_factory.mktemp("tiered"))
    with made.broker:
        yield made


def put_back(log: Path, out: Path) -> None:
    shutil.rmtree(log)
    (out / log.name).rename(log)


def salvage(log: Path, place: Path) -> None:
    kseg.plan_salvage(log, out=place / "out").apply()
    put_back(log, place / "out")


def merge(log: Path, place: Path) -> None:
    shutil.copytree(log, place / "copy" / log.name)
    kseg.plan_merge(log, place / "copy" / log.name, out=place / "out").apply()
    put_back(log, place / "out")


def recover(log: Path, place: Path) -> None:
    del place
    (log / EPOCHS).unlink()
    kseg.recover(log, tier=Tier.beside(), keep_cut=False)


@pytest.mark.parametrize("repair", share([salvage, merge, recover], 2, "beside a broker"))
def test_the_tier_stays_and_all_of_it_is_read(
    household: Household, tmp_path: Path, repair: Callable[[Path, Path], None]
) -> None:
    household.lay()
    before = (household.log / EPOCHS).read_text()
    whole = household.copies()[0]
    assert whole >= ROUNDS
    repair(household.log, tmp_path)
    assert (household.log / EPOCHS).read_text() == before
    household.broker.start()
    household.broker.wait_for_leaders(TOPIC)
    wait_until(lambda: household.copies()[1] == 0)
    rows = household.broker.consume(TOPIC)
    assert [row.offset for row in rows] == list(range(ROUNDS * RECORDS))
    assert household.copies()[0] == whole
    household.broker.stop()
