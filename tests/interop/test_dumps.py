"""`kseg dump --kafka` prints what Kafka's own tool prints: a sample of what `make soak` asks.

They need Maven and a Java compiler; without them these tests are skipped, but never where CI is
set.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop import dumps
from tests.interop.kafka import Kafka, needed

SEED = "ci"
LOGS = 120
#: Logs that once came out otherwise, and what they are about.
PINNED = {
    "a header number of a metadata record below 0": ("1", 63),
    "a value of a length below -1": ("1", 141),
    "a value longer than its message": ("1", 196),
    "a value longer than its message, which nobody reads": ("1", 253),
    "values longer than their messages inside a compressed one": ("3", 388),
    "a batch that ends inside its header, and a codec that is none": ("3", 318),
    "a batch that ends inside its header, with records": ("3", 816),
    "a batch of magic 96 between messages of magic 0": ("4", 1130),
}


@pytest.fixture(scope="module")
def kafka() -> Iterator[Kafka]:
    """One process for all."""
    with needed():
        process = Kafka(dumps.RELEASE, "broker")
    with process:
        yield process


def test_random_logs_print_as_kafka_prints_them(kafka: Kafka, tmp_path: Path) -> None:
    figures = dumps.run(kafka, (dumps.log(SEED, number) for number in range(LOGS)), tmp_path)
    assert [str(difference) for difference in figures.differences] == []
    assert figures.asked > LOGS * 0.9


@pytest.mark.parametrize("name", PINNED)
def test_logs_that_once_printed_otherwise_do_no_more(
    kafka: Kafka, tmp_path: Path, name: str
) -> None:
    figures = dumps.run(kafka, [dumps.log(*PINNED[name])], tmp_path)
    assert [str(difference) for difference in figures.differences] == []
    assert figures.asked == 1
