"""kseg's log and Kafka's do the same: a sample of what `make soak` asks.

They need Maven and a Java compiler; without them these tests are skipped, but never where CI is
set.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.builders import GZIP, LZ4, NONE, SNAPPY, ZSTD, batch, record
from tests.interop import lives, logs
from tests.interop.damages import DAMAGES
from tests.interop.kafka import Kafka
from tests.interop.made import NOW
from tests.interop.stories import Story, story
from tests.shares import WHOLE, share

SEED = "ci"
LIVES = 14 if WHOLE else 8
DAMAGED = {"damaged": 50, "kseg-damaged": 25}
#: Cases that once came out otherwise, and what they are about.
PINNED = {
    "a finished file without its index": ("damaged", "1", 468),
    "two finished files, the first with damage": ("damaged", "1", 67),
    "a finished file in front of noise": ("damaged", "1", 489),
    "zeros beyond the size of an index": ("damaged", "1", 245),
    "a log of a negative base offset": ("damaged", "1", 172),
    "expired producers in a log without snapshots": ("damaged", "2", 221),
    "a transaction begun in front of the start of a log that ends there": ("both", "5", 388),
    "noise behind damage that the index leads past": ("damaged", "5", 605),
    "a sealed segment that is appended to again after a cut": ("both", "5", 177),
    "entries of what was cut off, in an index that the other began": ("kafka-first", "5", 17),
    "zeros that make no whole entry behind an index": ("kseg-damaged", "ci", 52),
    "a garbled snapshot beside an index rebuilt": ("damaged", "5", 60),
    "damage in front of the recovery point": ("damaged", "5", 168),
    "a finished file with a longer index": ("damaged", "5", 1220),
    "a finished file with another index, the log changed behind it": ("damaged", "5", 1660),
    "a sound batch that lies over the next segment": ("damaged", "5", 1508),
    "producers in front of the log's start, a cut where a segment ended": (
        "kseg-damaged",
        "s20261123",
        215,
    ),
    "a snapshot of another offset": ("damaged", "s20261123", 1072),
    "a log of a negative base offset that lies over others": ("damaged", "s20261123", 1075),
    "a transaction in front of the log's start, ended behind it": ("damaged", "s20261123", 1375),
    "one entry of zeros beside a log that is empty": ("damaged", "n1123", 48),
    "zeros behind a batch that lies far behind": ("damaged", "s20261126", 189),
    "an aborted transaction that ended in front of the log's start": (
        "compacted",
        "s20261124",
        184,
    ),
    "a log that starts in a gap, inside a transaction": ("compacted", "s20261124", 271),
    "a pass that begins behind an abort of the same producer": ("compacted", "s20261124", 380),
    "epochs in front of messages without one": ("kafka-compacted", "s20261124", 429),
    "an index that lacks an entry since a restart": ("kafka-compacted", "s20261124", 495),
    "a commit of a producer who has aborted in front of the log's start": (
        "kafka-compacted",
        "e23b",
        693,
    ),
    "a clean load that inflates a damaged message of another segment": ("damaged", "e23d", 173),
    "a torn message that counts as compressed": ("damaged", "e23d", 193),
}


@pytest.fixture(scope="module")
def kafka(kafka_logs: Kafka) -> Kafka:
    return kafka_logs


@pytest.mark.parametrize("kind", ["both", "kafka-first", "kseg-first"])
def test_both_lead_the_same_lives(kafka: Kafka, tmp_path: Path, kind: str) -> None:
    figures = logs.run(kafka, kind, SEED, range(LIVES), tmp_path)
    assert figures.cases[kind] == LIVES
    assert [str(difference) for difference in figures.differences] == []


@pytest.mark.parametrize("kind", ["compacted", "kafka-compacted", "kseg-compacted"])
def test_both_compact_the_same(kafka: Kafka, tmp_path: Path, kind: str) -> None:
    figures = logs.run(kafka, kind, SEED, range(LIVES), tmp_path)
    assert figures.cases[kind] == LIVES
    assert [str(difference) for difference in figures.differences] == []


@pytest.mark.parametrize("killed", ["kafka", "kseg"])
def test_a_cleaning_that_does_not_end_loses_nothing(
    kafka: Kafka, tmp_path: Path, killed: str
) -> None:
    figures = logs.run(kafka, f"{killed}-interrupted", SEED, range(LIVES), tmp_path)
    assert figures.cases[f"{killed}-interrupted"] == LIVES
    assert [str(difference) for difference in figures.differences] == []


@pytest.mark.parametrize("begun_by", share(["nobody", "kafka", "kseg"], 2, "usual sizes"))
def test_segments_and_batches_of_usual_sizes(kafka: Kafka, tmp_path: Path, begun_by: str) -> None:
    values = [bytes([number]) * 1500 for number in range(40)]
    given = [record(value, key=value[:4], timestamp=NOW) for value in values]
    batches = [batch(given, codec=codec) for codec in (NONE, GZIP, SNAPPY, LZ4, ZSTD)]
    steps = [{"do": "append", "now_ms": NOW, "data": one} for _ in range(20) for one in batches]
    told = Story(
        {"segment.bytes": str(2**20), "retention.ms": "-1"}, tuple(steps), NOW, NOW, 0, "clean"
    )
    assert lives.compared(kafka, told, tmp_path, begun_by=begun_by) == []
    assert len(list((tmp_path / "ours").glob("*/*.log"))) > 1


@pytest.mark.parametrize(("kind", "count"), DAMAGED.items())
def test_damaged_directories_are_mended_as_a_broker_would(
    kafka: Kafka, tmp_path: Path, kind: str, count: int
) -> None:
    figures = logs.run(kafka, kind, SEED, range(count), tmp_path)
    assert figures.cases[kind] == count
    assert figures.harm.keys() <= {kind.__name__ for kind in DAMAGES}
    assert len(figures.harm) > len(DAMAGES) * 0.7
    assert figures.refused < count / 4
    assert [str(difference) for difference in figures.differences] == []


@pytest.mark.parametrize(("kind", "seed", "number"), PINNED.values(), ids=PINNED)
def test_what_once_came_out_otherwise(
    kafka: Kafka, tmp_path: Path, kind: str, seed: str, number: int
) -> None:
    figures = logs.run(kafka, kind, seed, [number], tmp_path)
    assert [str(difference) for difference in figures.differences] == []


def test_a_difference_is_told(
    kafka: Kafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    contents = lives.contents
    monkeypatch.setattr(lives, "contents", lambda place: contents(place) | {place.parent.name: 1})
    figures = logs.run(kafka, "both", SEED, [3], tmp_path)
    assert {"theirs", "ours"} <= {difference.what for difference in figures.differences}


def test_stories_hold_every_step() -> None:
    told = [story(SEED, number) for number in range(30)]
    assert {step["do"] for one in told for step in one.steps} == {
        *("append", "follow", "roll", "flush", "truncate", "start_over", "start_at", "retain"),
        *("epoch", "settle", "read", "find", "epoch_end"),
    }
    assert {one.close for one in told} == {"clean", "crash"}
    assert told[:5] == [story(SEED, number) for number in range(5)]
