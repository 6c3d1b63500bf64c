"""A writer that appends, rolls, deletes and cuts without end, and what readers beside it may see.

Each batch carries, as its time, the number of cuts that the log had when it was written, and each
value begins with its offset. So a reader can tell a batch that was never written, one in the wrong
place, and one that had been cut away before the reader looked.

    python -m tests.memory.beside READS SEED     readers of this process and of others, so many each
"""

from __future__ import annotations

import random
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from kseg.errors import KsegError, OffsetOutOfRangeError, SegmentInUseError
from kseg.format.encode import encode_batch
from kseg.format.header import scan
from kseg.format.options import BatchOptions
from kseg.log.config import LogConfig
from kseg.log.log import Log
from tests import places

CONFIG = LogConfig(
    segment_bytes=20_000,
    segment_index_bytes=4_800,
    index_interval_bytes=300,
    retention_bytes=0,
    file_delete_delay_ms=0,
)
#: Offsets that the log is kept to, more or less.
_LENGTH = 2_000


def batch_at(offset: int, count: int, history: int, size: int) -> bytes:
    """A batch as a follower gets it."""
    values = [b"%d " % (offset + index) + bytes(size) for index in range(count)]
    data = encode_batch({"value": values, "timestamp": [history] * count}, BatchOptions()).data
    # Offset and epoch lie in front of what the checksum covers.
    head = offset.to_bytes(8, "big") + bytes(data[8:12]) + bytes(4)
    return head + bytes(data[16:])


@dataclass
class Writer:
    """Changes a log at random, until it is told to stop.

    Attributes:
        ends: where each cut has left the log, by its number.
        done: how often it did what.
    """

    log: Log
    chance: random.Random
    stop: threading.Event
    ends: list[int] = field(default_factory=list)
    done: Counter[str] = field(default_factory=Counter)

    def run(self) -> None:
        while not self.stop.is_set():
            self.step()

    def step(self) -> None:
        log, chance = self.log, self.chance
        what = chance.choices(
            ("append", "roll", "delete", "truncate", "begin again"), (100, 3, 5, 3, 0.3)
        )[0]
        self.done[what] += 1
        start, end = log.log_start_offset, log.log_end_offset
        if what == "append":
            counts = [chance.randint(1, 9) for _ in range(chance.randint(1, 4))]
            parts = []
            for count in counts:
                parts.append(batch_at(end, count, len(self.ends), chance.randint(0, 300)))
                end += count
            log.append_as_follower(b"".join(parts))
        elif what == "roll":
            log.roll()
        elif what == "delete":
            log.delete_records_before(max(start, end - chance.randint(0, _LENGTH)))
            log.delete_old_segments()
        elif what == "truncate":
            self.cut(max(start, end - chance.randint(1, 300)))
        else:
            self.ends.append(end + 10)
            log.truncate_fully_and_start_at(end + 10)

    def cut(self, offset: int) -> None:
        if offset >= self.log.log_end_offset:
            return
        self.ends.append(offset)
        try:
            self.log.truncate_to(offset)
        except SegmentInUseError:  # somebody reads there through a map
            self.ends.pop()
            self.done["refused"] += 1


@dataclass
class Tally:
    """What readers have read, and what they should not have."""

    reads: int = 0
    batches: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)


def check_bytes(data: memoryview, tally: Tally, *, deep: bool, columns: Any = None) -> Any:
    """The headers of the whole batches, each sound and behind the one before."""
    table = scan(data, on_bad_crc="stop")
    tally.batches += len(table)
    rows = list(zip(table.base_offset.tolist(), table.last_offset.tolist(), strict=True))
    for (_, last), (base, _) in pairwise(rows):
        if base <= last:
            tally.wrong.append(f"offset {base} behind {last}")
    if deep:
        for piece in columns:
            for offset, value in zip(piece["offset"].tolist(), piece["value"], strict=True):
                if not bytes(value).startswith(b"%d " % offset):
                    tally.wrong.append(f"{bytes(value)[:20]!r} at {offset}")
    return table


def read_own(writer: Writer, reads: int, seed: int, tally: Tally) -> None:
    """Fetch from a log of the same process; whatever comes must have been there meanwhile."""
    log, chance = writer.log, random.Random(seed)
    for number in range(reads):
        before = log.version
        # An offset just in front of the end is the one that is most likely to be cut away.
        start = chance.randint(before.log_start_offset, before.log_end.offset)
        start = max(start, before.log_end.offset - 50) if chance.random() < 0.5 else start
        tally.reads += 1
        try:
            got = log.fetch(start, max_bytes=chance.choice([1, 2_000, 50_000]))
        except OffsetOutOfRangeError:
            tally.refused["out of range"] += 1
            continue
        after = log.version.truncations.number
        deep = number % 20 == 0
        table = check_bytes(got.data, tally, deep=deep, columns=got.columns() if deep else ())
        if len(table) and int(table.last_offset[0]) < start:
            tally.wrong.append(f"{start} was asked for, {table.last_offset[0]} came")
        written = list(zip(table.last_offset.tolist(), table.max_timestamp.tolist(), strict=True))
        for now in range(before.truncations.number, after + 1):
            if all(_was_there(writer.ends, last, history, now) for last, history in written):
                break
        else:
            tally.wrong.append(f"a fetch of {start} mixes what was cut with what came after")


def _was_there(ends: list[int], last_offset: int, history: int, now: int) -> bool:
    """Whether a batch was in the log after the cut of number `now`."""
    return history <= now and all(last_offset < end for end in ends[history:now])


def map_own(writer: Writer, stop: threading.Event, seed: int, tally: Tally) -> None:
    """Read segments through maps, in the writer's own process; a cut under one must wait."""
    chance = random.Random(seed)
    while not stop.is_set():
        info = chance.choice(writer.log.version.segments)
        try:
            with writer.log.open_segment(info) as unmapped:
                assert not unmapped.mapped
            with Log.open(writer.log.path) as log:
                for piece in log.read(offset=(info.base_offset, None), columns=("offset", "value")):
                    for offset, value in zip(piece["offset"].tolist(), piece["value"], strict=True):
                        if not bytes(value).startswith(b"%d " % offset):
                            tally.wrong.append(f"{bytes(value)[:20]!r} at {offset}")
            tally.reads += 1
        except (KsegError, FileNotFoundError) as error:
            tally.refused[type(error).__name__] += 1


def read_foreign(path: Path, reads: int, seed: int) -> Tally:
    """Read a log that another process writes to; what is whole and sound there, or an error."""
    chance, tally = random.Random(seed), Tally()
    while tally.reads < reads:
        try:
            with Log.open(path) as log:
                seen = log.source("log_end").version
                for number in range(20):
                    tally.reads += 1
                    start = chance.randint(seen.log_start_offset, seen.log_end.offset)
                    got = log.fetch(start, max_bytes=chance.choice([1, 2_000, 50_000]))
                    deep = number == 0
                    check_bytes(got.data, tally, deep=deep, columns=got.columns() if deep else ())
        except (KsegError, FileNotFoundError) as error:
            tally.refused[type(error).__name__] += 1
    return tally


def run(root: Path, *, reads: int, threads: int, processes: int, seed: int) -> tuple[Tally, Writer]:
    """Readers of both kinds beside one writer, until each has read so often."""
    stop, tallies = threading.Event(), [Tally() for _ in range(threads + 1)]
    with Log.open(root / "t-0", mode="append", create=True, config=CONFIG, now_ms=lambda: 0) as log:
        writer = Writer(log, random.Random(seed), stop)
        for _ in range(50):
            writer.step()
        workers = [
            threading.Thread(target=read_own, args=(writer, reads, seed + n + 1, tallies[n]))
            for n in range(threads)
        ]
        endless = [
            threading.Thread(target=writer.run),
            threading.Thread(target=map_own, args=(writer, stop, seed, tallies[-1])),
        ]
        command = [sys.executable, "-m", "tests.memory.beside", str(log.path), str(reads)]
        others = [
            subprocess.Popen([*command, str(seed + 100 + n)], stdout=subprocess.PIPE, text=True)
            for n in range(processes)
        ]
        for thread in (*workers, *endless):
            thread.start()
        printed = [(other.communicate()[0], other.returncode) for other in others]
        for worker in workers:
            worker.join()
        stop.set()
        for thread in endless:
            thread.join()
    total = Tally()
    for tally in (*tallies, *(_told(text, code) for text, code in printed)):
        total.reads += tally.reads
        total.batches += tally.batches
        total.refused += tally.refused
        total.wrong += tally.wrong
    return total, writer


def _told(text: str, code: int) -> Tally:
    """What another process has printed; one that a signal ended has nothing good to say."""
    if code:
        return Tally(wrong=[f"a reader ended with {code}"])
    reads, batches, *wrong = text.splitlines()
    return Tally(int(reads), int(batches), wrong=wrong)


def _main() -> None:
    if len(sys.argv) == 4:
        tally = read_foreign(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
        print(tally.reads, tally.batches, *tally.wrong[:10], sep="\n")
        return
    reads, seed = int(sys.argv[1]), int(sys.argv[2])
    with tempfile.TemporaryDirectory(dir=places.in_memory()) as place:
        total, writer = run(Path(place), reads=reads, threads=2, processes=2, seed=seed)
    print(f"{total.reads} reads of {total.batches} batches; the writer {dict(writer.done)}")
    print(f"refused {dict(total.refused)}; wrong {len(total.wrong)} {total.wrong[:5]}")
    sys.exit(bool(total.wrong))


if __name__ == "__main__":
    _main()
