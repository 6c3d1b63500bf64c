"""kseg and Kafka's own classes give the same answers: a sample of what `make soak` asks.

Kafka 3.9.1 still writes every format; Kafka 4.2.0 has the rules of today. Both need Maven and a
Java compiler; without them these tests are skipped, but never where CI is set.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.interop import cases, differential, ours
from tests.interop.kafka import RELEASES, Kafka, UnavailableError

SEED = "ci"
#: Cases of each kind; 400 for 3.9.1, which answers all kinds.
COUNTS = {
    "build": 90,
    "estimate": 20,
    "validate": 120,
    "convert": 50,
    "filter": 50,
    "parse": 50,
    "message": 20,
}


@pytest.fixture(scope="module", params=RELEASES)
def kafka(request: pytest.FixtureRequest) -> Iterator[Kafka]:
    """One process for each release."""
    try:
        process = Kafka(request.param)
    except UnavailableError as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(f"Kafka's classes are not to be had: {error}")
    with process:
        yield process


@pytest.mark.parametrize("kind", COUNTS)
def test_kseg_answers_as_kafka_does(kafka: Kafka, kind: str) -> None:
    if kind not in differential.kinds_of(kafka.release):
        pytest.skip(f"Kafka {kafka.release} has no such thing any more")
    figures = differential.run(kafka, cases.of_kinds([kind], SEED, 0, COUNTS[kind]))
    assert figures.asked[kind] == COUNTS[kind]
    assert [str(difference) for difference in figures.differences] == []


@pytest.mark.parametrize(
    "lie", [{"data": b""}, {"max_offset": 12345}, {"error": "invalid", "said": ""}]
)
def test_a_difference_is_told(
    kafka: Kafka, monkeypatch: pytest.MonkeyPatch, lie: dict[str, object]
) -> None:
    answer = ours.answer
    monkeypatch.setattr(ours, "answer", lambda *asked: {**answer(*asked), **lie})
    figures = differential.run(kafka, cases.of_kinds(["filter"], SEED, 0, 10))
    assert figures.differences


def test_a_seed_and_a_number_repeat_a_case() -> None:
    again = [cases.case("7", number).request for number in range(40)]
    assert [cases.case("7", number).request for number in range(40)] == again
    assert {request["op"] for request in again} == set(COUNTS)
