"""Estimates the size of topics with another codec, from a sample of each.

A topic's log is cut into strata of equal size, in the order of its segments, so that all times are
in the sample. In each, the batches that begin in a stretch at a random place are taken. The ratio
of new bytes to old ones in the sample, times the bytes of the topic, is the estimate; the spread of
the runs around that ratio gives its error. A topic no larger than the sample is measured whole:
its error is 0.

The estimate is of the changes by `kseg convert --codec`: batches of magic 2, each by itself.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from math import sqrt
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from kseg import Segment
from kseg.constants import Compression
from kseg.documents import Documented
from kseg.errors import KsegError
from kseg.format.compress import check_level, compression_named
from kseg.format.convert import Converter, Target
from kseg.format.header import BatchTable
from kseg.frozen import frozen_dataclass
from kseg.log.config import LogConfig
from kseg.log.log import Log
from kseg.workers import At, Put, in_order

#: Bytes of log in the sample of a topic, and the runs of batches that they come in.
SAMPLE_BYTES: Final = 16 << 20
RUNS: Final = 64
#: The error in standard deviations: few runs, and runs that are far from the others, need more
#: than the two of large samples.
_DEVIATIONS: Final = 3
#: The least error, as a part of the estimate, for contents outside the sample.
_ERROR_MIN: Final = 0.001
#: A batch that inflates to more is taken as it is.
_INFLATED_MAX: Final = 256 << 20
_TYPE: Final = "compression.type"
_LEVELS: Final = {
    f"compression.{codec.label}.level": codec
    for codec in (Compression.GZIP, Compression.LZ4, Compression.ZSTD)
}
#: The settings whose effect is estimated.
WORDS: Final = frozenset((_TYPE, *_LEVELS))
Floats = np.ndarray[Any, np.dtype[np.float64]]


@frozen_dataclass
class CodecEstimate(Documented):
    """The estimated size of a topic with another codec.

    Attributes:
        topic: its name.
        compression: the codec.
        level: the codec's; None for Kafka's default.
        bytes: of the topic's segments.
        sampled_bytes: the part of them that was compressed again.
        new_bytes: their size with the new codec.
        error_bytes: how far that may be off, in either direction.
    """

    topic: str
    compression: str
    level: int | None
    bytes: int
    sampled_bytes: int
    new_bytes: int
    error_bytes: int


class Choice(NamedTuple):
    """A codec and its level, as `CodecEstimate` has it."""

    codec: Compression
    level: int | None


def choices_of(words: Mapping[str, str]) -> list[Choice]:
    """The codecs that settings name; several have commas between them.

    Raises:
        ValueError: a value is invalid, or `compression.type` is missing.
    """
    names = [name.strip() for name in words.get(_TYPE, "").split(",") if name.strip()]
    if words and not names:
        raise ValueError(f"{', '.join(sorted(words))}: name the codec too: compression.type=zstd")
    choices = []
    for name in names:
        codec = compression_named("none" if name == "uncompressed" else name)
        text = words.get(f"compression.{codec.label}.level")
        if text is not None and not text.lstrip("-").isdecimal():
            raise ValueError(f"compression.{codec.label}.level is a whole number, not {text!r}")
        level = None if text is None else int(text)
        if level is not None:
            check_level(codec, level)
        choices.append(Choice(codec, level))
    return choices


def estimate(
    topic: str,
    partitions: Iterable[Path],
    choices: Sequence[Choice],
    *,
    threads: int = 1,
    seed: int = 0,
    sample_bytes: int = SAMPLE_BYTES,
) -> list[CodecEstimate]:
    """Estimate the result of each choice for a topic.

    Args:
        topic: its name.
        partitions: its directories.
        choices: the codecs to estimate.
        threads: the number of runs that are compressed side by side.
        seed: of the random places.
        sample_bytes: the size of the sample.

    Raises:
        KsegError, OSError: a partition cannot be read.
    """
    logs = [
        (info.path, info.size)
        for path in partitions
        for info in Log.open(path).view.segments
        if not info.files.kafka07
    ]
    total = sum(size for _, size in logs)
    places = _places(logs, total, random.Random(seed), sample_bytes)
    works = (At(run[0][0], partial(_measure, run, choices)) for run in places)
    runs = list(in_order(works, threads=threads))
    old = np.array([size for size, _ in runs], np.float64)
    return [
        _estimate(topic, choice, old, np.array([made[n] for _, made in runs]), total, sample_bytes)
        for n, choice in enumerate(choices)
    ]


def _places(
    logs: Sequence[tuple[Path, int]], total: int, rng: random.Random, sample_bytes: int
) -> Iterator[list[tuple[Path, int, int]]]:
    """The stretches of each run; whole segments if the sample has room for all.

    All stretches have the same length, on into the next segment and from the last one to the first,
    and the batches that begin in one are taken. So each batch is in the sample with the same
    probability, whatever its size.
    """
    if total <= sample_bytes:
        yield from ([(path, 0, size)] for path, size in logs)
        return
    ends = np.cumsum([size for _, size in logs])
    for number in range(RUNS):
        position, left, run = int((number + rng.random()) * total / RUNS), sample_bytes // RUNS, []
        while left > 0:
            at = int(np.searchsorted(ends, position % total, "right"))
            path, size = logs[at]
            start = position % total - (int(ends[at]) - size)
            stop = min(size, start + left)
            run.append((path, start, stop))
            position = position + stop - start
            left = left - (stop - start)
        yield run


def _measure(run: list[tuple[Path, int, int]], choices: Sequence[Choice], put: Put) -> None:
    """Compress the batches that begin in the stretches of a run.

    Puts their bytes, and float64[choices], their bytes with each of the choices.
    """
    old = 0
    sums = np.zeros(len(choices))
    for path, start, stop in run:
        with Segment.open(path) as segment:
            first = _first_from(segment, start, stop)
            tiles = (
                segment.walk(start=first, limit=stop, on_bad_crc="ignore") if first < stop else ()
            )
            for tile in tiles:
                old += int(tile.table.size.sum())
                for number, choice in enumerate(choices):
                    sums[number] += _recoded(tile.data, tile.table, tile.base, choice)
    put((old, sums))


def _first_from(segment: Segment, position: int, limit: int) -> int:
    """The position of the first batch from a place on, by the index and headers; else the limit."""
    positions = np.zeros(1, np.int64)
    with suppress(KsegError, OSError):  # without an index it walks
        positions = np.frombuffer(segment.offset_index.packed, ">i4")[1::2].astype(np.int64)
    for start in (int(positions[positions <= position].max(initial=0)), 0):
        for table in segment.headers(start=start, limit=limit):
            batch_positions = table.position[table.position >= position]
            if len(batch_positions):
                return int(batch_positions[0])
        if start == 0 or segment.stop_fault(table) is None:
            break
    return limit


def _recoded(data: memoryview, table: BatchTable, base: int, choice: Choice) -> int:
    """The bytes of batches by a choice."""
    limit = LogConfig().max_message_bytes
    size = 0
    converter = Converter(
        Target(2, choice.codec, choice.level, recoded_bytes_max=limit), inflated_max=_INFLATED_MAX
    )
    for row in range(len(table)):
        batch = table.take(slice(row, row + 1))
        try:
            size += sum(map(len, converter.convert(data, batch, base)))
        except KsegError:  # a damaged batch stays
            size += int(batch.size[0])
    return size


def _estimate(
    topic: str, choice: Choice, old: Floats, made: Floats, total: int, sample_bytes: int
) -> CodecEstimate:
    """The estimate for a topic from its runs.

    Args:
        topic, choice: of the answer.
        old: float64[n], the bytes of each run.
        made: float64[n], the new bytes of each run.
        total: bytes of the topic.
        sample_bytes: the size of the sample.
    """
    sampled = float(old.sum())
    count = len(old)
    scale = total / sampled if sampled else 0.0
    new = float(made.sum()) * scale
    error = 0.0
    if total > sample_bytes:
        ratio = new / total
        rest = max(0.0, 1 - sampled / total) * count / (count - 1)
        deviation = sqrt(rest * float(((made - ratio * old) ** 2).sum())) * scale
        error = _DEVIATIONS * deviation + _ERROR_MIN * new if sampled else float(total)
    return CodecEstimate(
        topic,
        choice.codec.label,
        choice.level,
        total,
        int(sampled),
        round(new),
        round(error),
    )
