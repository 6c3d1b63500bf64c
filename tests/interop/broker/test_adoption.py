"""A real broker takes over directories that kseg wrote: no repair, no warning, every record read.

They need Maven and a Java compiler; without them these tests are skipped, but never where CI is
set. One broker serves them all: a start costs more than a test.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import pytest

import kseg
from tests.interop.broker import made
from tests.interop.broker.broker import Broker, Line, Said, wait_until
from tests.interop.broker.clients import CLIENTS
from tests.interop.kafka import needed
from tests.shares import share

pytestmark = [pytest.mark.broker, pytest.mark.timeout(600)]

CASES = list(made.MAKERS)
TOPIC = "adopted"
#: A topic that no other program than the broker has written to.
OWN = "own"
ISOLATIONS = ("read_uncommitted", "read_committed")
BEHIND = [
    {"records": [{"key": b"key-3", "value": b"behind", "timestamp": made.BEGIN_MS + 10**6}]},
    {"records": [{"key": b"key-4", "value": b"it", "timestamp": made.BEGIN_MS + 10**6 + 1}]},
]


@dataclass(frozen=True, slots=True)
class Adopted:
    """A broker that has started over the directories, and what it said."""

    broker: Broker
    said: Said
    held: dict[str, made.Held]

    def directory(self, case: str) -> Path:
        return self.broker.data / f"{TOPIC}-{CASES.index(case)}"


@pytest.fixture(scope="module")
def adopted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Adopted]:
    """Directories are made while the broker is down, in the place of new partitions."""
    with needed():
        broker = Broker(tmp_path_factory.mktemp("broker"))
    with broker:
        broker.start()
        broker.create(TOPIC, len(CASES))
        broker.create(OWN)
        broker.produce(OWN, BEHIND)
        broker.stop()
        held = {
            case: make(broker.data / f"{TOPIC}-{partition}")
            for partition, (case, make) in enumerate(made.MAKERS.items())
        }
        assert (broker.data / ".kafka_cleanshutdown").exists()
        said = broker.start()
        broker.wait_for_leaders(TOPIC)
        yield Adopted(broker, said, held)


def without_place(line: Line, name: str) -> str:
    return re.sub(r"\d+", "N", line.text.replace(name, "it"))


@pytest.mark.parametrize("case", CASES)
def test_a_broker_takes_it_as_it_lies(adopted: Adopted, case: str) -> None:
    """What is said of every log in good order, the broker's own too, is no repair.

    4.2.0 says "Reloading from producer snapshot and rebuilding producer state from offset" the
    log's end, of each.
    """
    name = adopted.directory(case).name
    said = [(line.level, without_place(line, name)) for line in adopted.said.about(name)]
    of_own = adopted.said.about(f"{OWN}-0")
    assert said == [(line.level, without_place(line, f"{OWN}-0")) for line in of_own]
    assert all("Reloading from producer snapshot" in line.text for line in of_own)


def test_nothing_else_is_warned_of(adopted: Adopted) -> None:
    assert adopted.said.warnings() == []


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_kafkas_consumer_reads_every_record(adopted: Adopted, case: str, isolation: str) -> None:
    held = adopted.held[case]
    rows = held.rows if isolation == "read_uncommitted" else held.committed()
    assert adopted.broker.consume(TOPIC, CASES.index(case), isolation) == rows


@pytest.mark.parametrize(
    ("case", "isolation", "name"),
    share(product(CASES, ISOLATIONS, CLIENTS), 24, "other clients"),
)
def test_other_clients_read_every_record(
    adopted: Adopted, case: str, isolation: str, name: str
) -> None:
    held = adopted.held[case]
    rows = held.rows if isolation == "read_uncommitted" else held.committed()
    got = CLIENTS[name](adopted.broker.bootstrap, TOPIC, CASES.index(case), isolation)
    assert got == rows


@pytest.mark.parametrize("case", CASES)
def test_offsets_are_found_by_time(adopted: Adopted, case: str) -> None:
    held, partition = adopted.held[case], CASES.index(case)
    with kseg.Log.open(adopted.directory(case)) as log:
        ends = [(0, -1), (log.log_end_offset, -1)]
    assert adopted.broker.offsets(TOPIC, partition, "earliest", "latest") == ends
    latest = max(held.times.values())
    if latest < 0:  # nothing in magic 0 has a time
        assert adopted.broker.offsets(TOPIC, partition, made.BEGIN_MS) == [(-1, -1)]
        return
    most, found = adopted.broker.offsets(TOPIC, partition, "max", latest - 1_000)
    assert most[1] == latest
    assert found == min(item for item in held.times.items() if item[1] >= latest - 1_000)


@pytest.mark.parametrize("case", share(CASES, 5, "goes on"))
def test_the_broker_goes_on_behind_it(adopted: Adopted, case: str) -> None:
    broker, partition = adopted.broker, CASES.index(case)
    with kseg.Log.open(adopted.directory(case)) as log:
        end = log.log_end_offset
    (plain,), (aborted,), (kept,) = broker.produce(TOPIC, BEHIND[:1], partition) + broker.produce(
        TOPIC,
        [{**BEHIND[1], "end": "abort"}, BEHIND[1]],
        partition,
        transactional_id=f"behind-{partition}",
    )
    assert plain == end
    rows = adopted.held[case].rows
    assert broker.consume(TOPIC, partition)[: len(rows)] == rows
    broker.wait_for_markers(TOPIC, partition)
    behind = [row.offset for row in broker.consume(TOPIC, partition, "read_committed")[-2:]]
    assert behind == [plain, kept]
    assert plain < aborted < kept
    seen = made.read_by_kseg(adopted.directory(case))
    assert [row.offset for row in seen[-3:]] == [plain, aborted, kept]
    assert seen[: len(rows)] == rows


def test_a_live_directory_is_read_while_it_is_written(adopted: Adopted) -> None:
    broker = adopted.broker
    broker.create("live", segment_bytes=1 << 20)
    directory, sent = broker.data / "live-0", 0
    for number in range(8):
        records = [{"key": b"%d" % n, "value": b"v" * 8_000} for n in range(60)]
        (offsets,) = broker.produce("live", [{"records": records}], batch_size=40_000 + number)
        sent += len(offsets)
        assert [row.offset for row in made.read_by_kseg(directory)] == list(range(sent))
    assert len(list(directory.glob("*.log"))) > 2


def test_the_broker_compacts_what_it_took_over(adopted: Adopted) -> None:
    """Last, since it changes every partition."""
    broker = adopted.broker
    old = {"magic-0", "magic-1"}
    broker.ask(
        "configure",
        TOPIC,
        configs={
            "cleanup.policy": "compact",
            "min.cleanable.dirty.ratio": "0.001",
            "segment.ms": "1",
            "delete.retention.ms": "1000000000",
        },
    )
    for case in CASES:
        partition = CASES.index(case)
        broker.produce(TOPIC, [{"records": [{"key": b"last", "value": b"one"}]}], partition)
    cleaned = broker.data / "cleaner-offset-checkpoint"

    def all_cleaned() -> bool:
        lines = cleaned.read_text(encoding="utf-8").splitlines()[2:] if cleaned.exists() else []
        return len([line for line in lines if line.startswith(f"{TOPIC} ")]) == len(CASES)

    wait_until(all_cleaned, 120)
    for case in CASES:
        rows = adopted.held[case].committed()
        last = {row.key: row for row in rows}
        got = {row.key: row for row in broker.consume(TOPIC, CASES.index(case), "read_committed")}
        for key, row in last.items():
            if key not in (b"key-3", b"key-4"):  # superseded by what the broker has appended
                assert got[key]._replace(timestamp=0) == row._replace(timestamp=0), case
        assert case in old or len(got) == len(last) + 1
