"""Kafka's log takes what a salvage writes: it loads it without a cut, and again after a crash.

`python -m tests.interop.logs --kinds salvaged-of-chance --cases 2000` asks about all of them.
"""

from __future__ import annotations

from pathlib import Path

from tests.interop import damaged, salvaged
from tests.interop.kafka import Kafka
from tests.shares import share


def test_kafka_loads_all_that_is_kept(kafka_logs: Kafka, tmp_path: Path) -> None:
    for seed in share(range(2_000), 14, "salvage"):
        _, outcome = salvaged.of_chance(kafka_logs, seed, tmp_path)
        assert outcome.found == [], (seed, outcome.harm)


def test_kafka_loads_what_is_kept_of_its_own_logs(kafka_logs: Kafka, tmp_path: Path) -> None:
    cases = [("1", number) for number in share(range(500), 6, "salvaged")]
    for seed, number in [*cases, ("n44", 57)]:  # the last has an empty first segment
        case = damaged.case(seed, number)
        _, outcome = salvaged.of_kafka(kafka_logs, case, tmp_path)
        assert outcome.found == [], (seed, number, outcome.harm)
