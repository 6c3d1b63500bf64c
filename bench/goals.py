"""The ratios to hold: each against one peer, in one run, on one core.

A case that is not here is shown for what it tells, no more.
"""

from __future__ import annotations

#: What the machine allows, or the library below: less work than a program can do with the bytes.
LIMITS = frozenset(
    {
        *("read sum", "windowed read sum", "fresh map read sum"),
        *("memcpy", "memcpy, fresh memory"),
        *("codec alone", "zstd alone", "lz4 alone"),
        *("bare pwrite", "pwrite + 15 us", "pwrite, check + 25 us"),
        *("list and stat", "open and read"),
    }
)

#: At least this ratio, by case and peer.
GOALS = {
    ("verify 16 KB batches", "read sum"): 0.95,
    ("verify 1 KB values", "read sum"): 0.95,
    ("verify 1 MB batches", "read sum"): 0.95,
    ("verify zstd", "read sum"): 0.95,
    ("verify windows", "windowed read sum"): 0.6,
    # Reads are held to what the machine allows and to Kafka's Java. The read sum itself is less
    # than the 20 times aiokafka that were the goal once.
    ("headers 16 KB batches", "aiokafka, no CRC"): 1,
    ("columns 100 B", "read sum"): 0.62,
    ("columns 1 KB", "read sum"): 0.88,
    ("with key, value 100 B", "memcpy"): 0.8,
    ("with key, value 1 KB", "memcpy"): 1.05,
    ("with key, value 100 B", "Kafka's Java"): 2.3,
    ("with key, value 1 KB", "Kafka's Java"): 1.1,
    ("columns one record", "Kafka's Java"): 2.8,
    ("with key, value one record", "Kafka's Java"): 2.8,
    ("rows 100 B", "aiokafka"): 0.667,
    ("rows 1 KB", "aiokafka"): 0.667,
    ("Arrow table 100 B", "memcpy, fresh memory"): 0.6,
    ("lz4, 16 KB batches", "codec alone"): 0.65,
    ("zstd, 16 KB batches", "codec alone"): 0.8,
    ("gzip, 16 KB batches", "codec alone"): 0.8,
    ("encode columns", "aiokafka"): 10,
    ("encode columns", "Kafka's Java"): 4,
    ("encode columns", "memcpy"): 0.25,
    ("encode lists", "aiokafka"): 10,
    ("encode lists", "Kafka's Java"): 4,
    ("encode lists", "memcpy"): 0.25,
    ("encode zstd", "zstd alone"): 0.91,
    ("encode lz4", "lz4 alone"): 0.91,
    ("validate in place", "verify"): 0.5,
    ("follower 1 MiB pieces", "bare pwrite"): 0.83,
    ("follower 64 KiB batch", "pwrite + 15 us"): 1.0,
    ("leader 64 KiB batch", "pwrite, check + 25 us"): 1.0,
    ("leader, none, idempotent", "the same without a producer"): 0.667,
    ("follower, none, idempotent", "the same without a producer"): 0.667,
    ("follower, zstd, idempotent", "the same without a producer"): 0.667,
    ("sweep 16 KB batches", "verify"): 0.85,
    ("sweep 1 KB values", "verify"): 0.85,
    ("sweep 1 MB batches", "verify"): 0.85,
    ("sweep zstd", "verify"): 0.85,
    ("sweep one record", "verify"): 0.85,
    ("sweep magic 1", "verify"): 0.85,
    **{
        (f"compact {codec}, {keys}", "Kafka's Java"): ratio
        for codec, ratio in {"plain": 4, "lz4": 2.5, "zstd": 2.5}.items()
        for keys in ("all keys distinct", "10,000 keys", "every second goes")
    },
    # Twice as much in at most 2.1 times the time.
    ("append twice as much", "half of it"): 0.952,
    ("recover twice as much", "half of it"): 0.952,
    ("open twice as much", "half of it"): 0.952,
    ("read twice as much", "half of it"): 0.952,
    ("grep plain, 16 KB batches", "scan of keys and values"): 0.6,
    ("grep plain, 1 KB values", "scan of keys and values"): 0.6,
    ("grep zstd, 16 KB batches", "scan of keys and values"): 0.8,
    ("grep zstd, 1 MB batches", "scan of keys and values"): 0.8,
    ("grep an exact key", "aiokafka"): 4,
    ("DuckDB count(*)", "scan.count()"): 0.5,
    ("DuckDB group by", "scan.count()"): 0.5,
    ("Polars count(*)", "scan.count()"): 0.5,
    ("Polars group by", "scan.count()"): 0.5,
    # Values of a log as typed columns; a bad one in ten thousand costs at most as much again.
    ("Avro to Arrow", "confluent-kafka"): 50,
    ("Avro of Debezium to Arrow", "confluent-kafka"): 10,
    ("Avro to Arrow, 20 bad ones", "none bad"): 0.5,
    ("Avro of Debezium to Arrow, 20 bad ones", "none bad"): 0.5,
    ("Protobuf to Arrow", "confluent-kafka"): 70,
    ("JSON to Arrow", "confluent-kafka"): 20,
    ("Protobuf to Arrow, 20 bad ones", "none bad"): 0.5,
    ("JSON to Arrow, 20 bad ones", "none bad"): 0.5,
    ("dump --kafka 100 B", "Kafka's Java"): 3,
    ("dump jsonl 100 B", "Kafka's Java"): 3,
    ("dump --kafka, command", "Kafka's tool"): 15,
    ("dump jsonl, command", "Kafka's tool"): 15,
    # By steps in Python it was 0.11.
    ("64 KiB from any offset", "open and read"): 0.5,
    ("end to end", "open and read"): 0.75,
    # Listed with a Path made for each file it was 0.25.
    ("open 1000 segments for reading", "list and stat"): 0.4,
    ("lookup, one", "bisect on the file"): 5,
    ("lookup, one", "NumPy, native copy"): 1.0,
}


def goal(case: str, peer: str) -> float | None:
    """What a case is to hold against a peer; None where nothing is promised."""
    return GOALS.get((case, peer))


def verdict(wanted: float | None, ratio: float) -> str:
    """What to think of a ratio; nothing where nothing is promised."""
    if wanted is None:
        return ""
    return "met" if ratio >= wanted else "MISSED"
