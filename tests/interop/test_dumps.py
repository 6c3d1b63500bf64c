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
from tests.shares import WHOLE

SEED = "ci"
LOGS = 120 if WHOLE else 50


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
