"""The ratios to hold: each against one peer, in one run, on one core.

`now` is what this release holds, `final` what kseg is to hold when all is done. A case that is not
here is shown for what it tells, no more.
"""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Goal:
    """At least this ratio, now and in the end; None where nothing is promised."""

    now: float | None = None
    final: float | None = None


#: The two gzip libraries differ by two; the wheel's `[speed]` extra brings the faster.
HAS_ISAL = importlib.util.find_spec("isal") is not None

#: By case and peer.
GOALS = {
    ("verify 16 KB batches", "read sum"): Goal(0.8, 0.95),
    ("verify 1 KB values", "read sum"): Goal(0.8, 0.95),
    ("verify 1 MB batches", "read sum"): Goal(0.8, 0.95),
    ("verify zstd", "read sum"): Goal(0.8, 0.95),
    ("verify 16 KB batches", "aiokafka CRC"): Goal(final=12),
    ("verify windows", "windowed read sum"): Goal(0.6),
    ("columns 10 B", "aiokafka"): Goal(20, 25),
    ("columns 10 B", "Kafka's Java"): Goal(final=3),
    ("columns 100 B", "aiokafka"): Goal(15, 20),
    ("columns 100 B", "Kafka's Java"): Goal(final=2.5),
    ("columns 1 KB", "aiokafka"): Goal(15, 18),
    ("columns 1 KB", "read sum"): Goal(final=0.9),
    ("with key, value 10 B", "aiokafka"): Goal(18),
    ("with key, value 10 B", "memcpy"): Goal(final=0.3),
    ("with key, value 100 B", "aiokafka"): Goal(12),
    ("with key, value 100 B", "memcpy"): Goal(final=0.65),
    ("with key, value 1 KB", "aiokafka"): Goal(6),
    ("with key, value 1 KB", "memcpy"): Goal(final=1.0),
    ("columns one record", "aiokafka"): Goal(2),
    ("with key, value one record", "aiokafka"): Goal(2),
    ("lz4, 16 KB batches", "aiokafka"): Goal(4, 6.5),
    ("zstd, 16 KB batches", "aiokafka"): Goal(3, 3.2),
    ("snappy, 16 KB batches", "aiokafka"): Goal(3, 3.2),
    ("gzip, 16 KB batches", "aiokafka"): Goal(3, 3.5) if HAS_ISAL else Goal(1.5),
    ("gzip by zlib, 16 KB batches", "aiokafka"): Goal(1.5),
    ("encode columns", "aiokafka"): Goal(10, 10),
    ("encode columns", "Kafka's Java"): Goal(4, 4),
    ("encode columns", "memcpy"): Goal(0.14, 0.25),
    ("encode lists", "aiokafka"): Goal(10, 10),
    ("encode lists", "Kafka's Java"): Goal(4, 4),
    ("encode lists", "memcpy"): Goal(0.14, 0.25),
    ("encode zstd", "zstd alone"): Goal(0.87, 0.91),
    ("encode lz4", "lz4 alone"): Goal(0.87, 0.91),
    ("append one by one", "aiokafka"): Goal(1, 1),
    ("validate in place", "verify"): Goal(0.5, 0.5),
    ("follower 1 MiB pieces", "bare pwrite"): Goal(final=0.83),
    ("follower 64 KiB batch", "pwrite + 15 us"): Goal(final=1.0),
    ("leader 64 KiB batch", "pwrite, check + 25 us"): Goal(final=1.0),
    ("leader, none, idempotent", "the same without a producer"): Goal(0.667, 0.667),
    ("sweep 16 KB batches", "verify"): Goal(0.85, 0.85),
    ("sweep 1 KB values", "verify"): Goal(0.85, 0.85),
    ("sweep 1 MB batches", "verify"): Goal(0.85, 0.85),
    ("sweep zstd", "verify"): Goal(0.85, 0.85),
    ("sweep one record", "verify"): Goal(0.85, 0.85),
    ("sweep magic 1", "verify"): Goal(0.85, 0.85),
    **{
        (f"compact {codec}, {keys}", "Kafka's Java"): Goal(ratio, ratio)
        for codec, ratio in {"plain": 4, "lz4": 2.5, "zstd": 2.5}.items()
        for keys in ("all keys distinct", "10,000 keys")
    },
    # Twice as much in at most 2.1 times the time.
    ("append twice as much", "half of it"): Goal(0.952, 0.952),
    ("recover twice as much", "half of it"): Goal(0.952, 0.952),
    ("open twice as much", "half of it"): Goal(0.952, 0.952),
    ("read twice as much", "half of it"): Goal(0.952, 0.952),
    ("dump --kafka 100 B", "Kafka's Java"): Goal(final=6),
    ("dump jsonl 100 B", "Kafka's Java"): Goal(final=5),
    ("dump --kafka, command", "Kafka's tool"): Goal(final=15),
    ("lookup, one", "bisect on the file"): Goal(5, 5),
    ("lookup, one", "NumPy, native copy"): Goal(final=1.0),
    ("lookup, 1 M random", "NumPy, native copy"): Goal(final=3.5),
    ("lookup, 1 M sorted", "NumPy, native copy"): Goal(final=3.0),
}


def goal(case: str, peer: str) -> Goal:
    """What a case is to hold against a peer; an empty goal where nothing is promised."""
    return GOALS.get((case, peer), Goal())
