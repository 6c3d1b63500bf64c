"""kseg's log and Kafka's do the same: a sample of what `make soak` asks.

They need Maven and a Java compiler; without them these tests are skipped, but never where CI is
set.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop import lives, logs
from tests.interop.damages import DAMAGES
from tests.interop.kafka import Kafka, UnavailableError
from tests.interop.stories import story

SEED = "ci"
LIVES = 30
DAMAGED = 100
#: Cases that once came out otherwise: kind, seed, number.
PINNED: list[tuple[str, str, int]] = []


@pytest.fixture(scope="module")
def kafka() -> Iterator[Kafka]:
    """One process for all."""
    try:
        process = Kafka(logs.RELEASE, "logs")
    except UnavailableError as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(f"Kafka's classes are not to be had: {error}")
    with process:
        yield process


@pytest.mark.parametrize("kind", ["both", "kafka-first", "kseg-first"])
def test_both_lead_the_same_lives(kafka: Kafka, tmp_path: Path, kind: str) -> None:
    figures = logs.run(kafka, kind, SEED, range(LIVES), tmp_path)
    assert figures.cases[kind] == LIVES
    assert [str(difference) for difference in figures.differences] == []


def test_damaged_directories_are_mended_as_a_broker_would(kafka: Kafka, tmp_path: Path) -> None:
    figures = logs.run(kafka, "damaged", SEED, range(DAMAGED), tmp_path)
    assert figures.cases["damaged"] == DAMAGED
    assert figures.harm.keys() <= {kind.__name__ for kind in DAMAGES}
    assert len(figures.harm) > len(DAMAGES) * 0.8
    assert figures.refused < DAMAGED / 4
    assert [str(difference) for difference in figures.differences] == []


def test_a_difference_is_told(
    kafka: Kafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    contents = lives.contents
    monkeypatch.setattr(lives, "contents", lambda place: contents(place) | {place.parent.name: 1})
    figures = logs.run(kafka, "both", SEED, [3], tmp_path)
    assert {"theirs", "ours"} <= {difference.what for difference in figures.differences}


def test_stories_hold_every_step() -> None:
    told = [story(SEED, number) for number in range(100)]
    assert {step["do"] for one in told for step in one.steps} == {
        *("append", "follow", "roll", "flush", "truncate", "start_over", "start_at", "retain"),
        *("epoch", "settle", "read", "find", "epoch_end"),
    }
    assert {one.close for one in told} == {"clean", "crash"}
    assert told == [story(SEED, number) for number in range(100)]
