"""What several of these tests share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.interop import logs
from tests.interop.kafka import Kafka, needed


@pytest.fixture(scope="session")
def kafka_logs() -> Iterator[Kafka]:
    """Kafka's logs in one process for all: a start costs more than a test."""
    with needed():
        process = Kafka(logs.RELEASE, "logs")
    with process:
        yield process
