"""One question has one answer at every door: Python, the command line, engines, and Spark's plan.

A random data directory has partitions of all formats and codecs, headers whose largest time is
wrong, damage, and directories that a broker set aside. Of a tenth, older segments are in a tier.
The questions filter by topic, offset, time and key. What each door answers is compared with the
records that were written, or for damage with those of a plain reading. 2,000 with KSEG_WHOLE=1.
"""

from __future__ import annotations

import random
import re
import shutil
from base64 import b64decode
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow.parquet as pq
import pytest

import kseg as library
from kseg.spark.options import parse_options
from kseg.spark.plan import list_logs, make_plan
from kseg.spark.reading import read_split
from tests import tiers
from tests.builders import GZIP, LZ4, NONE, SNAPPY, ZSTD, Record, batch, messages, record, wrapper
from tests.shares import WHOLE
from tests.unit.cli.conftest import Kseg, kseg  # noqa: F401

#: The last one has a tier.
SEEDS = range(2_000) if WHOLE else (*range(5), 32)
TIME = 1_700_000_000_000
#: The name of a partition's directory; in a tier the topic's id follows.
PARTITION = re.compile(r"(.+)-(\d+)(?:-[\w-]{22})?")
COLUMNS = ("topic", "partition", "offset", "timestamp_ms", "key", "value")
#: Topic, partition, offset, time, key and value.
Row = tuple[str, int, int, int, bytes | None, bytes | None]


@dataclass
class Made:
    """A data directory, its records, and what is particular about it."""

    path: Path
    rows: list[Row] = field(default_factory=list)
    is_damaged: bool = False
    tier: Path | None = None

    @property
    def options(self) -> dict[str, Any]:
        """Of a scan that reads all that can be read."""
        return {"on_corrupt": "skip"} | ({} if self.tier is None else {"tier": self.tier})


@dataclass(frozen=True)
class Question:
    """What is asked for; None does not filter."""

    topic: str | None
    offset: tuple[int | None, int | None]
    time: tuple[int | None, int | None]
    key: bytes | None

    def takes(self, row: Row) -> bool:
        topic, _, offset, time, key, _ = row
        return (
            self.topic in (None, topic)
            and (self.key is None or key == self.key)
            and all(
                (start is None or start <= number) and (end is None or number < end)
                for number, (start, end) in ((offset, self.offset), (time, self.time))
            )
        )


# ---- directories ---------------------------------------------------------------------------------


def some_records(rng: random.Random, base: int, at: int) -> list[Record]:
    return [
        record(
            rng.choice((b"value", b"v" * rng.randrange(1, 90))),
            key=rng.choice((None, b"k1", b"k2", b"k3")),
            timestamp=at + rng.choice((0, 10, -5, 700)) * number,
            offset=base + number,
        )
        for number in range(rng.randint(1, 9))
    ]


def some_batch(rng: random.Random, records: list[Record], *, may_lie: bool) -> bytes:
    """Records in some format, whose header may have no largest time, or one that cannot be."""
    base, lies = records[0].offset or 0, may_lie and rng.random() < 0.3
    magic = rng.choice((2, 2, 2, 1, 0))
    codec = rng.choice((NONE, NONE, GZIP, LZ4, SNAPPY, ZSTD if magic == 2 else GZIP))
    if magic == 2:
        most = rng.choice((-1, 0, records[0].timestamp - 1)) if lies else None
        return batch(records, base_offset=base, codec=codec, max_timestamp=most)
    if codec == NONE:
        return messages(records, magic=magic, base_offset=base)
    said = rng.choice((-1, 0)) if lies else None
    return wrapper(records, magic=magic, codec=codec, base_offset=base, timestamp=said)


def some_partition(rng: random.Random, path: Path, made: Made) -> None:
    name, _, number = path.name.rpartition("-")
    indexed = rng.random() < 0.4
    offset, at = rng.choice((0, 5, 1000)), TIME + rng.randrange(10_000)
    places: list[tuple[Path, int, int]] = []
    path.mkdir(parents=True)
    for _ in range(rng.randint(1, 3)):
        parts, first = [], offset
        for _ in range(rng.randint(1, 5)):
            records = some_records(rng, offset, at)
            data = some_batch(rng, records, may_lie=not indexed)
            has_time = data[16] > 0
            place = name, int(number)
            for one in records:
                time = one.timestamp if has_time else -1
                made.rows.append((*place, one.offset or 0, time, one.key, one.value))
            places.append((path / f"{first:020d}.log", sum(map(len, parts)), len(data)))
            parts.append(data)
            offset += len(records) + rng.choice((0, 0, 3))
            at += rng.choice((1_000, 60_000, -20_000))
        (path / f"{first:020d}.log").write_bytes(b"".join(parts))
    if indexed:
        library.plan_reindex(path).apply()
    if rng.random() < 0.2:
        made.is_damaged = True
        log, start, size = rng.choice(places)
        damaged = bytearray(log.read_bytes())
        # No checksum covers the offset and the size; a wrong size hides what an index leads to.
        at = rng.choice((10, rng.randrange(21, size))) if not indexed else rng.randrange(21, size)
        damaged[start + at] ^= 1 << rng.randrange(8)
        log.write_bytes(damaged)


def some_directory(rng: random.Random, path: Path) -> Made:
    made = Made(path)
    for name in rng.sample(("a-0", "a-1", "b-0", "b-c-7", "c-2"), rng.randint(1, 4)):
        some_partition(rng, path / name, made)
    for number in range(rng.choice((0, 0, 1, 2))):
        source = rng.choice([each for each in path.iterdir() if "." not in each.name])
        suffix = rng.choice(("delete", "stray", "future"))
        shutil.copytree(source, path / f"{source.name}.{number:032x}-{suffix}")
    return made


def tiered_directory(rng: random.Random, path: Path) -> Made:
    """One partition, whose closed segments are in a tier, and some not on the disk any more."""
    made = Made(path, tier=path.parent / "tier")
    log = path / "a-0"
    tiers.random_log(log, rng, batches=30)
    whole = library.scan(log, columns=COLUMNS)
    made.rows = [tuple(row[name] for name in COLUMNS) for piece in whole for row in piece]
    topic_id = tiers.id_text(rng)
    tiers.put(tiers.LocalTier(made.tier), tiers.copies_of(log, topic_id, rng))
    closed = sorted(log.glob("*.log"))[:-1]
    for gone in closed[: rng.randint(0, len(closed))]:
        for file in log.glob(f"{gone.stem}.*"):
            file.unlink()
    return made


# ---- doors ---------------------------------------------------------------------------------------


def of_scan(found: library.Scan) -> list[Row]:
    return [tuple(row[name] for name in COLUMNS) for piece in found for row in piece]


def python(made: Made, asked: Question, **more: Any) -> list[Row]:
    return of_scan(
        library.scan(
            made.path,
            topics=asked.topic,
            offset=asked.offset,
            time=asked.time,
            key=asked.key,
            columns=COLUMNS,
            **made.options,
            **more,
        )
    )


def searched(made: Made, asked: Question) -> list[Row]:
    how = {"offset": asked.offset, "time": asked.time, "columns": COLUMNS, **made.options}
    found = library.grep("", made.path, topics=asked.topic, **how)
    return [row for row in of_scan(found) if asked.key is None or row[4] == asked.key]


def conditions(asked: Question) -> Iterator[tuple[str, str, Any]]:
    if asked.topic is not None:
        yield "topic", "=", asked.topic
    if asked.key is not None:
        yield "key", "=", asked.key
    for name, bounds in (("offset", asked.offset), ("timestamp_ms", asked.time)):
        for word, bound in zip((">=", "<"), bounds, strict=True):
            if bound is not None:
                yield name, word, bound


def in_polars(made: Made, asked: Question) -> list[Row]:
    frame = library.scan(made.path, columns=COLUMNS, **made.options).lazy()
    for name, word, value in conditions(asked):
        column = pl.col(name)
        taken = {"=": column == value, ">=": column >= value, "<": column < value}
        frame = frame.filter(taken[word])
    return list(frame.select(COLUMNS).collect().rows())


def in_duckdb(made: Made, asked: Question) -> list[Row]:
    records = library.scan(made.path, columns=COLUMNS, **made.options).dataset()
    found = [*conditions(asked)]
    where = " and ".join(f'"{name}" {word} ?' for name, word, _ in found) or "true"
    with duckdb.connect() as connection:
        connection.register("records", records)
        names = ", ".join(f'"{name}"' for name in COLUMNS)
        query = f"select {names} from records where {where}"
        return list(connection.execute(query, [value for *_, value in found]).fetchall())


def words_of(made: Made, asked: Question) -> list[object]:
    def span(bounds: tuple[int | None, int | None]) -> str:
        return "..".join("" if bound is None else str(bound) for bound in bounds)

    words: list[object] = [made.path, "--offset", span(asked.offset), "--time", span(asked.time)]
    words += [] if asked.topic is None else ["--topic", asked.topic]
    return words + ([] if made.tier is None else ["--tier", made.tier])


def of_lines(rows: list[dict[str, Any]]) -> list[Row]:
    def text(value: str | None) -> bytes | None:
        return None if value is None else b64decode(value)

    found = []
    for row in rows:
        if row["valid"] and not row["control"]:
            named = PARTITION.fullmatch(row["dir"])
            assert named is not None
            time = -1 if row["timestamp"] is None else row["timestamp"]
            place = named[1], int(named[2]), row["offset"], time
            found.append((*place, text(row["key"]), text(row["value"])))
    return found


def typed(verb: str) -> Callable[[Kseg, Made, Question], list[Row]]:
    def ask(run: Kseg, made: Made, asked: Question) -> list[Row]:
        words = [verb, "--format", "jsonl", *words_of(made, asked)]
        words[1:1] = [""] if verb == "grep" else []
        words += ["--on-corrupt", "skip"] if verb != "dump" else []
        words += [] if asked.key is None or verb == "grep" else ["--key", asked.key.decode()]
        found = of_lines(run(*words).rows)
        return [row for row in found if asked.key is None or row[4] == asked.key]

    return ask


def exported(run: Kseg, made: Made, asked: Question) -> list[Row]:
    out = made.path.parent / "out"
    words = [*words_of(made, asked), "--on-corrupt", "skip", "--fields", ",".join(COLUMNS)]
    words += [] if asked.key is None else ["--key", asked.key.decode()]
    run("export", "-o", out, *words)
    tables = [pq.read_table(path).select(COLUMNS) for path in sorted(out.glob("*.parquet"))]
    shutil.rmtree(out, ignore_errors=True)
    return [tuple(row.values()) for table in tables for row in table.to_pylist()]


def planned(made: Made, asked: Question) -> list[Row]:
    """As Spark's driver and workers read it, by options."""
    names = ("startingOffsets", "endingOffsets", "startingTimestamp", "endingTimestamp")
    bounds = dict(zip(names, (*asked.offset, *asked.time), strict=True))
    given = {name: str(value) for name, value in bounds.items() if value is not None}
    given |= {} if asked.topic is None else {"topic": asked.topic}
    given |= {} if made.tier is None else {"tier": str(made.tier)}
    options = parse_options({"path": str(made.path), "onCorrupt": "skip", **given})
    rows: list[Row] = []
    for task in make_plan(list_logs(options), options):
        for split in task:
            names = ("offset", "timestamp", "key", "value")
            for piece in read_split(split, names, options, lambda _: None):
                columns = (piece[name].tolist() for name in ("offset", "timestamp_ms"))
                found = zip(*columns, piece["key"], piece["value"], strict=True)
                rows += [(split.topic or "", split.partition or 0, *row) for row in found]
    return [row for row in rows if asked.key is None or row[4] == asked.key]


#: Each takes a command line, a directory and a question.
DOORS: dict[str, Callable[[Kseg, Made, Question], list[Row]]] = {
    "scan": lambda _run, made, asked: python(made, asked),
    "scan by threads": lambda _run, made, asked: python(made, asked, threads=3),
    "grep": lambda _run, made, asked: searched(made, asked),
    "Polars": lambda _run, made, asked: in_polars(made, asked),
    "DuckDB": lambda _run, made, asked: in_duckdb(made, asked),
    "Spark's plan": lambda _run, made, asked: planned(made, asked),
    "kseg read": typed("read"),
    "kseg grep": typed("grep"),
    "kseg dump": typed("dump"),
    "kseg export": exported,
}


# ---- the comparison ------------------------------------------------------------------------------


def some_question(rng: random.Random, rows: list[Row]) -> Question:
    def bounds(numbers: list[int]) -> tuple[int | None, int | None]:
        if not numbers or rng.random() < 0.4:
            return None, None
        one, other = sorted(rng.choice(numbers) + rng.choice((0, 0, 1, -1)) for _ in range(2))
        start, end = max(one, 0), max(other, 0) + 1
        return rng.choice(((start, None), (None, end), (start, end)))

    topics = sorted({row[0] for row in rows})
    return Question(
        rng.choice((None, *topics)),
        bounds([row[2] for row in rows]),
        bounds([row[3] for row in rows if row[3] >= 0]),
        rng.choice((None, None, b"k1", b"k2")),
    )


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.filterwarnings("ignore:.*ends at offset")
def test_every_door_gives_the_same_answer(
    kseg: Kseg,  # noqa: F811
    tmp_path: Path,
    seed: int,
) -> None:
    rng = random.Random(seed)
    make = tiered_directory if rng.random() < 0.1 else some_directory
    made = make(rng, tmp_path / "data")
    nothing = Question(None, (None, None), (None, None), None)
    everything = python(made, nothing)
    if not made.is_damaged:
        assert sorted(everything, key=str) == sorted(made.rows, key=str)
        assert library.scan(made.path, **made.options).count() == len(everything)
    if not made.is_damaged and made.tier is None:
        for topic in {None, *(row[0] for row in everything)}:
            counted = library.stats(made.path, topics=topic).partitions
            wanted = [row for row in everything if topic in (None, row[0])]
            total = sum(one.stats.records.sizes.count for one in counted if one.stats.records)
            assert total == len(wanted)
    for asked in (nothing, *(some_question(rng, everything) for _ in range(3))):
        wanted = sorted(filter(asked.takes, everything), key=str)
        for name, ask in DOORS.items():
            if name == "kseg dump" and made.is_damaged:
                continue  # it shows what is damaged
            has_part = (None, None) if "grep" in name else ()  # an empty pattern needs a part
            found, expected = (
                [row for row in rows if row[4:] != has_part]
                for rows in (sorted(ask(kseg, made, asked), key=str), wanted)
            )
            assert found == expected, (seed, name, asked)
