"""What several of these tests share."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.interop import logs
from tests.interop.kafka import Kafka, UnavailableError


@pytest.fixture(scope="session")
def kafka_logs() -> Iterator[Kafka]:
    """Kafka's logs in one process for all: a start costs more than a test."""
    try:
        process = Kafka(logs.RELEASE, "logs")
    except UnavailableError as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(f"Kafka's classes are not to be had: {error}")
    with process:
        yield process
