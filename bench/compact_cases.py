"""What is measured of compaction: a whole log, from its start, beside Kafka's own cleaner.

Each turn cleans a log of its own, whose segment is a second name of one that is made once: neither
side writes to it. Only the cleaning is on the clock. Both have 128 MiB for their maps of keys.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from bench import datagen, peers, records
from bench.case import JAVA, Case, scratch
from bench.pairs import Clock, Contest, Versus, now_ns

if TYPE_CHECKING:
    from contextlib import ExitStack

    from kseg.log.log import Log

#: Which key each of so many records has, as a number.
KEYS = {
    "all keys distinct": np.arange,
    "10,000 keys": lambda count: np.random.default_rng(records.SEED).integers(0, 10_000, count),
    "every second goes": lambda count: np.arange(count) // 2,
}
CODECS = ("plain", "lz4", "zstd")
VALUE_BYTES = 100


def compact_cases() -> list[Case]:
    """Every case of the group."""
    return [
        Case("compact", f"compact {codec}, {keys}", "record", partial(_prepare, codec, keys))
        for codec in CODECS
        for keys in KEYS
    ]


@dataclass(frozen=True, slots=True)
class _Source:
    """A log that is cleaned again and again.

    Attributes:
        root: a folder for copies.
        path: the partition directory, with one segment.
        records: in it.
    """

    root: Path
    path: Path
    records: int

    def clean_ns(self, clock: Clock) -> float:
        """Clean a copy; nanoseconds a record."""
        folder = Path(tempfile.mkdtemp(dir=self.root))
        copy = folder / self.path.name
        copy.mkdir()
        for file in self.path.iterdir():
            os.link(file, copy / file.name)
        with _opened(copy) as log:
            log.roll()
            began = now_ns(clock)
            log.clean(force=True)
            spent = now_ns(clock) - began
        shutil.rmtree(folder)
        return spent / self.records

    def java_ns(self, clock: Clock) -> float:
        """Let Kafka clean a copy; nanoseconds a record."""
        asked = {"dir": str(self.path), "scratch": str(self.root / "java")}
        return JAVA.ask("clean", clock, **asked) / self.records


def _opened(path: Path) -> Log:
    from kseg.log.config import LogConfig
    from kseg.log.log import Log

    config = LogConfig(cleanup_policy=frozenset({"compact"}), retention_ms=-1)
    return Log.open(path, mode="append", config=config, recover=True)


def _prepare(codec: str, keys: str, stack: ExitStack) -> Contest:
    root = scratch(stack)
    count = (datagen.mebibytes() << 20) // (VALUE_BYTES + 27)
    source = _Source(root, root / "t-0", count)
    _write(source, codec, keys)
    rivals = (Versus("Kafka's Java", None, source.java_ns),) if peers.Java.there() else ()

    def clean() -> int:
        source.clean_ns("cpu")
        return count

    return Contest(clean, rivals, count, timed=source.clean_ns)


def _write(source: _Source, codec: str, keys: str) -> None:
    from kseg.format.encode import encode_batches
    from kseg.format.options import BatchOptions

    held = records.make(source.records, VALUE_BYTES)
    numbers = KEYS[keys](source.records).tolist()
    rows = {name: held[name] for name in ("offset", "timestamp", "value")}
    rows["key"] = tuple(b"%016x" % number for number in numbers)
    source.path.mkdir()
    with (source.path / f"{0:020}.log").open("wb") as file:
        for batch in encode_batches(rows, BatchOptions(compression=datagen.CODECS[codec])):
            file.write(batch.data)
