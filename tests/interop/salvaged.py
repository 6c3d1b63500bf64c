"""Damaged logs, salvaged, and what Kafka's log makes of what is left.

Kafka loads it as after an orderly stop, then as after a crash with all of it in doubt. Neither may
change a log, an index, a snapshot or the epochs, and both tell the same.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kseg import plan_salvage
from kseg.log import data_directory
from tests.interop import damaged, lives
from tests.interop.contents import contents, different
from tests.interop.damaged import Outcome
from tests.interop.damages import damage
from tests.interop.kafka import Kafka
from tests.interop.lives import Found
from tests.property.salvaging import a_case, write

Answer = dict[str, Any]

#: What a load says of itself rather than of the log.
_OF_THE_LOAD = ("recovery_point", "entries")


def of_chance(kafka: Kafka, number: int, home: Path) -> tuple[object, Outcome]:
    """A log of `tests/property/salvaging.py` that came to harm."""
    case, source = a_case(number), lives.fresh(home / "in")
    source.rmdir()
    write(case, source)
    found = _salvaged(kafka, source, home / "out")
    return case.kind, Outcome(case.harm, False, list(found))


def of_kafka(kafka: Kafka, case: damaged.Case, home: Path) -> tuple[object, Outcome]:
    """A log that Kafka wrote, with producers and transactions, and that came to harm."""
    source = lives.fresh(home / "in")
    lives.by_kafka(kafka, case.story, source, steps=case.story.steps)
    harm = damage(case.chance, source)
    return case, Outcome(harm, False, list(_salvaged(kafka, source, home / "out")))


def _salvaged(kafka: Kafka, source: Path, out: Path) -> Iterator[Found]:
    """Salvage a partition; where Kafka does not take what comes of it as it is."""
    for each in (out, out.with_name(f"{out.name}.kseg-salvage")):
        shutil.rmtree(each, ignore_errors=True)
    plan = plan_salvage(source, out=out)
    plan.apply()
    (partition,) = plan.partitions
    yield from taken(kafka, partition.log_end_offset, out / partition.name)


def taken(
    kafka: Kafka, log_end_offset: int, directory: Path, config: dict[str, str] | None = None
) -> Iterator[Found]:
    """Where Kafka does not take a log as it is, after a clean stop and after a crash."""
    beside, before = data_directory.offsets_beside(directory), contents(directory)
    asked = {
        "op": "log",
        "dir": str(directory),
        "close": "crash",
        "steps": [],
        "config": config or {},
    }
    now_ms = time.time_ns() // 1_000_000
    asked |= {"now_ms": now_ms, "log_start_offset": beside.log_start_offset}
    told: dict[str, Answer] = {}
    for name, point in (("clean", beside.recovery_point), ("crash", 0)):
        said = {"clean": name == "clean", "recovery_point": point}
        (answer,) = kafka.ask([asked | said])
        if "error" in answer:
            yield f"{name}, refused", answer, None
            return
        told[name] = answer["loaded"]
        end = told[name]["log_end_offset"]
        if end != log_end_offset:
            yield f"{name}, log_end_offset", end, log_end_offset
        after = _unexpired(contents(directory), now_ms)
        for file, theirs, ours in different(after, _unexpired(before, now_ms)):
            # In front of a last segment without batches Kafka makes one more in recovering.
            if not (name == "crash" and ours is None and file.endswith(".snapshot")):
                yield f"{name}, {file}", theirs, ours
    clean, crash = told.values()
    for field in clean.keys() - {*_OF_THE_LOAD}:
        if clean[field] != crash[field]:
            yield f"crash, {field}", crash[field], clean[field]


def _unexpired(said: dict[str, object], now_ms: int) -> dict[str, object]:
    """Files without producers that have expired: Kafka writes those that it meets once more.

    It removes a snapshot where the log starts, which has no others.
    """
    left = dict(said)
    for name, one in said.items():
        if isinstance(one, tuple):
            kind, producers = one
            known = [each for each in producers if lives.is_known(each, now_ms)]
            left[name] = (kind, known)
            if not known:
                del left[name]
    return left
