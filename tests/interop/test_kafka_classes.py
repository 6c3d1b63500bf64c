"""kseg and Kafka's own classes give the same answers: a sample of what `make soak` asks.

Kafka 3.9.1 still writes every format, Kafka 4.2.0 has the rules of today, and Kafka 0.10.1 its own
way to take message sets. They need Maven and a Java compiler; without them these tests are skipped,
but never where CI is set.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.interop import cases, differential, ours
from tests.interop.compare import kinds_of
from tests.interop.kafka import RELEASES, Kafka, needed

SEED = "ci"
#: Cases of each kind: for 3.9.1, which answers nearly all, some 400.
COUNTS = {
    "build": 20,
    "estimate": 10,
    "validate": 25,
    "convert": 12,
    "filter": 12,
    "parse": 12,
    "message": 10,
    "validate_0_10": 25,
    "deep_0_10": 15,
    "message_0_10": 10,
}
ASKED = [(release, kind) for release in RELEASES for kind in kinds_of(release)]


@pytest.fixture(scope="module")
def kafka(request: pytest.FixtureRequest) -> Iterator[Kafka]:
    """One process for each release."""
    with needed():
        process = Kafka(request.param)
    with process:
        yield process


@pytest.mark.parametrize(("kafka", "kind"), ASKED, indirect=["kafka"])
def test_kseg_answers_as_kafka_does(kafka: Kafka, kind: str) -> None:
    figures = differential.run(kafka, cases.of_kinds([kind], SEED, 0, COUNTS[kind]))
    assert figures.asked[kind] == COUNTS[kind]
    assert [str(difference) for difference in figures.differences] == []


@pytest.mark.parametrize("kafka", ["3.9.1"], indirect=True)
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
    again = [cases.case("7", number).request for number in range(80)]
    assert [cases.case("7", number).request for number in range(80)] == again
    assert {request["op"] for request in again} == set(COUNTS)
