"""Two replicas with histories of their own: a merge cuts one where Kafka would cut a follower.

Kafka's own logs answer `endOffsetForEpoch`; the steps are those of its fetcher.

Source: Kafka `AbstractFetcherThread.getOffsetTruncationState`.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from kseg.log.copies.merge import plan_merge
from tests.interop.kafka import Kafka
from tests.replicas import Written, a_pair, write_replica
from tests.shares import share

PAIRS = share(range(500), 14, "pairs")
Steps = list[dict[str, Any]]


def diverging() -> Iterator[tuple[int, list[Written], list[Written]]]:
    """Pairs of which each side has batches that the other one lacks."""
    number = 0
    while True:
        one, other = a_pair(random.Random(f"pair {number}"))
        if one and other and one[: len(other)] != other and other[: len(one)] != one:
            yield number, one, other
        number += 1


class Truncation:
    """A follower under way to the offset that it has in common with its leader."""

    def __init__(self, leader: Path, follower: Path, latest: int, end: int) -> None:
        self.leader, self.follower = leader, follower
        self.asked, self.end = latest, end
        self.done = False

    def of_leader(self) -> dict[str, Any]:
        return opened(self.leader, [{"do": "epoch_end", "epoch": self.asked}])

    def of_follower(self, told: dict[str, Any]) -> dict[str, Any]:
        steps: Steps = [{"do": "epoch_end", "epoch": told["epoch"]}]
        return opened(self.follower, [{"do": "truncate", "to": self.end}, *steps])

    def step(self, leader: dict[str, Any], follower: dict[str, Any]) -> None:
        end = min(follower["offset"], self.end)
        self.done = follower["epoch"] == leader["epoch"]
        self.end = min(end, leader["offset"]) if self.done else end
        self.asked = follower["epoch"]


def opened(directory: Path, steps: Steps) -> dict[str, Any]:
    """Loaded as after a crash, so that Kafka reads the epochs from the batches; left as it was."""
    return {"op": "log", "dir": str(directory), "clean": False, "steps": steps, "close": "crash"}


def truncated(kafka: Kafka, pairs: list[Truncation]) -> None:
    """Ask Kafka's logs, round by round, until each follower knows where it ends."""
    for _ in range(20):
        left = [pair for pair in pairs if not pair.done]
        leaders = [answer["steps"][-1] for answer in kafka.ask([one.of_leader() for one in left])]
        asked = [one.of_follower(told) for one, told in zip(left, leaders, strict=True)]
        followers = [answer["steps"][-1] for answer in kafka.ask(asked)]
        for pair, leader, follower in zip(left, leaders, followers, strict=True):
            pair.step(leader, follower)
    assert all(pair.done for pair in pairs)


def test_copies_that_diverge_end_where_kafka_truncates_a_follower(
    kafka_logs: Kafka, tmp_path: Path
) -> None:
    wanted = list(islice(diverging(), 500))
    merged, pairs = [], []
    for at in PAIRS:
        number, *written = wanted[at]
        rng = random.Random(f"files {number}")
        leader, follower = sorted(written, key=lambda log: (-log[-1].epoch, -log[-1].first))
        paths = [
            write_replica(tmp_path / f"{name}{number}" / "t-0", log, rng)
            for name, log in (("leader", leader), ("follower", follower))
        ]
        (merge,) = plan_merge(*reversed(paths), out=tmp_path / "out").partitions
        merged.append((number, merge, leader))
        end = follower[-1].first + follower[-1].count
        pairs.append(Truncation(*paths, follower[-1].epoch, end))
    truncated(kafka_logs, pairs)
    for pair, (number, merge, leader) in zip(pairs, merged, strict=True):
        first, other = merge.copies
        assert first.path == str(pair.leader), number
        assert other.diverges_at == pair.end, number
        found = b"".join(
            Path(run.path).read_bytes()[run.position : run.position + run.size]
            for run in merge.runs
        )
        assert found == b"".join(one.data for one in leader), number
