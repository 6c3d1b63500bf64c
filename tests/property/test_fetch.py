"""A fetch in one call answers what one by steps answers, whatever the files hold."""

from __future__ import annotations

import os
import random
import struct
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from kseg._kernels.fetch import fetch_batches
from kseg.errors import KsegError
from kseg.files import io
from kseg.files.names import SegmentFiles, segment_name
from kseg.log.producers.entry import OffsetMetadata
from kseg.log.reader.fetch import ISOLATIONS, Fetched, fetch
from kseg.log.reader.version import SegmentInfo, Version
from tests.builders import GZIP, NONE, record, records_of

BASE = 40
LOGS, ASKED = 25, 20


class Still(NamedTuple):
    """A log that nobody writes to."""

    path: Path
    version: Version


def a_log(rng: random.Random) -> tuple[bytes, bytes, int]:
    """Batches of any format and size, an index as a writer leaves it, and the end offset."""
    log, entries, offset, since = b"", b"", BASE, 0
    for _ in range(rng.choice([1, 5, 40])):
        magic, codec = rng.choice(
            [(0, NONE), (0, GZIP), (1, NONE), (2, NONE), (2, NONE), (2, GZIP)]
        )
        count = 1 if magic < 2 and codec == NONE else rng.randrange(1, 4)
        size = rng.choice([0, 10, 900, 6_000, 40_000])
        given = [record(rng.randbytes(size), timestamp=5, offset=offset + i) for i in range(count)]
        data = records_of(given, magic=magic, codec=codec, base_offset=offset)
        offset += count
        if since > 4096:
            entries += struct.pack(">ii", offset - 1 - BASE, len(log))
            since = 0
        log, since = log + data, since + len(data)
        offset += rng.choice([0, 0, 3])
    return log, entries, offset


# ---- what may happen to files --------------------------------------------------------------------


def whole(rng: random.Random, data: bytes) -> bytes:
    return data


def other_bytes(rng: random.Random, data: bytes) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.choice([1, 1, 20])):
        if changed:
            at = rng.randrange(len(changed))
            changed[at : at + 1] = rng.randbytes(1)
    return bytes(changed)


def another_number(rng: random.Random, data: bytes) -> bytes:
    """A length, an offset or a position that lies."""
    at = rng.choice([0, 8, rng.randrange(max(len(data), 1))]) // 4 * 4
    lie = rng.choice([-(2**31), -1, 0, 13, 14, 60, 61, 5_000, 1 << 20, 17 << 20, 2**31 - 1])
    return data[:at] + struct.pack(">i", lie) + data[at + 4 :]


def cut(rng: random.Random, data: bytes) -> bytes:
    return data[: rng.randrange(len(data) + 1)]


def zeros_behind(rng: random.Random, data: bytes) -> bytes:
    return data + bytes(rng.choice([1, 8, 70, 20_000]))


BREAKERS = (whole, whole, other_bytes, another_number, cut, zeros_behind)


# ---- both ways -----------------------------------------------------------------------------------


def answer(call: Callable[[], Fetched]) -> Any:
    try:
        got = call()
    except (KsegError, OSError) as error:
        return type(error), str(error), getattr(error, "position", None)
    return (*got[:4], bytes(got.data), *got[5:8])


def by_steps(fd: int, size: int, position: int) -> bytes:
    return os.pread(fd, size, position)


def seen(rng: random.Random, files: SegmentFiles, size: int, end: int) -> Version:
    """What readers see: of a watermark its place may be known, or only its offset."""
    info = SegmentInfo(files, size, is_last=True)
    log_end = OffsetMetadata(end, BASE, size)
    stable = OffsetMetadata(rng.randint(BASE, end))
    if rng.random() < 0.5:
        return Version((), files, BASE, log_end, log_end, stable, BASE)
    later = SegmentFiles(end, files.log.with_name(segment_name(end)))
    behind = OffsetMetadata(end, end, 0)
    return Version((info,), later, BASE, behind, behind, stable, BASE)


@pytest.mark.parametrize("seed", range(8))
def test_one_call_answers_what_steps_answer(seed: int) -> None:
    rng = random.Random(seed)
    usual = 0
    with tempfile.TemporaryDirectory() as root:
        for number in range(LOGS):
            log, index, end = a_log(rng)
            size = len(log) + rng.choice([0, 0, 0, 9])
            directory = Path(root, f"t-{number}")
            directory.mkdir()
            path = directory / segment_name(BASE)
            path.write_bytes(rng.choice(BREAKERS)(rng, log))
            path.with_suffix(".index").write_bytes(rng.choice(BREAKERS)(rng, index))
            files = SegmentFiles(BASE, path, rng.choice([path.with_suffix(".index"), None]))
            source = Still(directory, seen(rng, files, size, end))
            for _ in range(ASKED):
                start = rng.randint(BASE, end)
                how: dict[str, Any] = {
                    "max_bytes": rng.choice([0, 1, 70, 5_000, 60_000, 1 << 20]),
                    "isolation": rng.choice(ISOLATIONS),
                    "min_one_message": rng.random() < 0.7,
                    "with_data": rng.random() < 0.8,
                }
                ask = partial(fetch, source, start, **how)
                at_once = answer(ask)
                with io.reads_replaced(by_steps):
                    assert at_once == answer(ask), (number, start, how)
                usual += asked(files, size, start) is not None
    assert usual > LOGS * ASKED // 4


def asked(files: SegmentFiles, size: int, offset: int) -> Any:
    """What the one call has for a question."""
    return fetch_batches(*files.encoded, BASE, size, offset, size, 1_000, True, True)
