"""What is done to a log, step by step, and how each step is told: workloads of the crash tests.

A story is a row of frozen steps, made by hand or by a seed, with every byte decided beforehand, so
that it goes the same way each time. It is told into `history.Told` remarks: a version of the log
before the step is tried, when it is done, and when it is lasting.
"""

from __future__ import annotations

import errno
import random
import shutil
import struct
import tempfile
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, combinations, zip_longest
from pathlib import Path
from typing import NoReturn
from unittest.mock import patch

from kseg.change.cleanup import plan_compaction, plan_retention
from kseg.change.erase import erase, plan_erasure
from kseg.change.recode import plan_recoding, recode
from kseg.constants import Compression
from kseg.errors import KsegError
from kseg.files import io, log_writer
from kseg.log.config import LogConfig
from kseg.log.log import Log
from kseg.log.recovery.recover import recover
from kseg.log.segment.writer import SegmentWriter
from kseg.log.topic_policy import RetentionRules
from kseg.log.validate.rules import AppendOrigin
from kseg.log.writer import truncate
from kseg.log.writer.retention import before_recovery
from kseg.log.writer.truncate import plan_truncation
from tests.builders import ABORT, COMMIT, NONE, batch, record
from tests.crash.history import Ident, Kind, Told, Version
from tests.crash.kills import Remarks
from tests.crash.reading import batches_of, found_in, ident, logs_of
from tests.crash.states import snapshot
from tests.crash.steps import (
    Abandon,
    Append,
    Compact,
    DeleteRecords,
    Erase,
    FillUp,
    Flush,
    Follow,
    Mend,
    NewEpoch,
    Recode,
    Reopen,
    Restart,
    Retain,
    Roll,
    Step,
    Tear,
    Truncate,
)
from tests.full_disk import FullDisk

NOW_MS = 1_700_000_000_000
PARTITION = "orders-0"
#: A few batches a segment and a few entries an index, so that a short story has many files.
CONFIG = LogConfig(
    segment_bytes=1200,
    segment_index_bytes=120,
    index_interval_bytes=200,
    retention_bytes=2000,
    retention_ms=-1,
    file_delete_delay_ms=0,
)


#: Small logs, too, take blocks in advance.
RESERVING = patch.object(log_writer, "RESERVED_BYTES", 300)

#: How far the clock goes with each step: a few steps and the checkpoints are due again.
STEP_MS = 25_000


def now_ms() -> int:
    """Long after any story, for those who come to look."""
    return NOW_MS + 3_600_000


@dataclass(frozen=True, slots=True)
class Story:
    """Steps with one log."""

    name: str
    steps: tuple[Step, ...]
    config: LogConfig = CONFIG

    def run(self, root: Path, remark: Remarks) -> None:
        """The workload: from an empty directory to a log that is closed."""
        teller = Teller(root, remark, self.config)
        with RESERVING:
            teller.open()
            for step in self.steps:
                teller.take(step)
            teller.close()

    def run_on(self, root: Path, remark: Remarks, *, again: bool = False) -> list[BaseException]:
        """The same where calls fail: each step is tried, whatever became of those before it.

        Args:
            root: as for `run`.
            remark: as for `run`.
            again: open a log again that has failed; otherwise go on with what is left of it.

        Returns:
            What was raised.
        """
        teller = Teller(root, remark, self.config)
        errors: list[BaseException] = []
        with RESERVING:
            for step in (teller.open, *(partial(teller.take, step) for step in self.steps)):
                try:
                    step()
                except (OSError, KsegError) as error:
                    errors.append(error)
                    with suppress(OSError, KsegError):
                        teller.look_again(reopen=again)
            with suppress(OSError, KsegError):
                teller.close()
        return errors


def _dead(*_args: object, **_kwargs: object) -> NoReturn:
    raise OSError(errno.EIO, "the process is dead")


#: The calls of a process that does not make any.
DEAD = io.Calls(**dict.fromkeys(io.Calls.__dataclass_fields__, _dead))


# ---- telling -------------------------------------------------------------------------------------


def placed(data: bytes, base_offset: int, leader_epoch: int) -> bytes:
    """A batch as a leader with that log end stores it."""
    return struct.pack(">qii", base_offset, len(data) - 12, leader_epoch) + data[16:]


@dataclass(slots=True)
class Teller:
    """Takes steps with a log, and says what that makes of it."""

    root: Path
    remark: Remarks
    config: LogConfig = CONFIG
    name: str = PARTITION
    version: Version = field(default_factory=Version)
    epoch: int = 0
    log: Log | None = None
    clock: int = NOW_MS
    low_start: int | None = None
    disk: FullDisk | None = None

    def now_ms(self) -> int:
        return self.clock

    @property
    def path(self) -> Path:
        return self.root / "data" / self.name

    def open(self, *, recover: bool = False) -> None:
        """Open the log, or make it."""
        self.log = Log.open(
            self.path,
            mode="append",
            create=True,
            config=self.config,
            now_ms=self.now_ms,
            recover=recover,
        )
        self.settle_end()

    def settle_end(self) -> None:
        """A cut into a batch leaves a gap in front of the end, which nothing on disk tells."""
        assert self.log is not None
        last = self.version.batches[-1].last_offset + 1 if self.version.batches else 0
        if last <= self.log.log_end_offset < self.version.end:
            self.version = replace(self.version, end=self.log.log_end_offset)

    def look_again(self, *, reopen: bool) -> None:
        """After an error nobody knows what came of the step, but the log itself.

        Args:
            reopen: open it again if it failed.
        """
        log = self.log
        if log is None or log.state.failed:
            if not reopen:
                return
            self.log = None
            if log is not None:
                with suppress(OSError, KsegError):
                    log.close()
            self.open(recover=True)
        self._look()

    def _look(self) -> None:
        """Take the log for what its files say."""
        assert self.log is not None
        found = found_in(snapshot(self.path.parent), self.name, whole=False)
        end = self.log.log_end_offset
        kept = tuple(one for one in found.batches if one.last_offset < end)
        start = self.log.log_start_offset
        # What lies before a start that is not for good may come back with it.
        first = kept[0].base_offset if kept else start
        kept = (*(one for one in self.version.batches if one.last_offset < first), *kept)
        if start > self.version.start:  # it has moved, but maybe not for good
            self.low_start = self.version.start if self.low_start is None else self.low_start
        self.version = Version(kept, start, end)
        self._tell("done", self.version)

    def _on_disk(self) -> AbstractContextManager[None]:
        """The disk that everything is done on, once it is full."""
        return nullcontext() if self.disk is None else io.calls_replaced(self.disk.calls)

    def close(self) -> None:
        """Close it; what it holds is lasting then."""
        log, self.log = self.log, None
        if log is not None:
            sound = not log.state.failed
            with self._on_disk():
                log.close()
            if sound:  # one that failed is only let go of
                self.low_start = None
                self._tell("lasting", self.version)

    def _abandon(self, *, loose: bool) -> None:
        """Let go of the log as the end of a process does: nothing reaches the disk any more.

        What a log holds that has failed before is seen when the next one opens it.
        """
        log, self.log = self._log, None
        if loose and not (log.state.unflushed or log.state.failed):
            unflushed = patch.object(SegmentWriter, "flush"), patch.object(io, "flush_directory")
            with unflushed[0], unflushed[1], suppress(OSError, KsegError):
                log.roll()  # where that fails, the process dies of it
        had_failed = log.state.failed
        _die(log)
        self.open(recover=True)
        self._settle_start()
        if had_failed:
            self._look()

    def _tear(self, size: int) -> None:
        log, self.log = self._log, None
        active = log.state.active
        _die(log)
        with io.WriteFile.open(active.path) as file:
            file.write_at(file.size, plain(0, records=1, size=2 * size)[:size])

    def _retain_dead(self) -> None:
        plan = plan_retention(self.path, config=self.config, now_ms=self.clock)
        start = before_recovery(plan).new_log_start_offset
        self._change(self.version.started_at(start), change=plan.apply, start=start)

    def _mend(self) -> None:
        recover(self.path, config=self.config, now_ms=self.clock, keep_cut=False)
        self.open()
        self._tell("lasting", self.version)

    def _settle_start(self) -> None:
        """A start that moved, but not for good, may have died with the process that moved it."""
        start = self._log.log_start_offset
        if self.low_start is not None and self.low_start <= start < self.version.start:
            self.version = replace(self.version, start=start)

    def take(self, step: Step) -> None:
        """Take one step."""
        self.clock += STEP_MS
        with self._on_disk():
            self._take(step)

    def _take(self, step: Step) -> None:
        match step:
            case FillUp():
                self.disk = FullDisk(io._calls)
            case Tear(size):
                self._tear(size)
            case Mend():
                self._mend()
            case Retain(planned=True):
                self._retain_dead()
            case NewEpoch():
                self.epoch += 1
            case Reopen():
                self.close()
                self.open()
            case Append(batches, durable, origin):
                self._append(batches, durable, origin)
            case Follow(batches):
                self._follow(batches)
            case Flush():
                self._log.flush()
                self._tell("lasting", self.version)
            case Roll():
                self._log.roll()
            case Abandon(loose):
                self._abandon(loose=loose)
            case _:
                self._trim(step)

    @property
    def _log(self) -> Log:
        if self.log is None:
            raise KsegError("no log is open")
        return self.log

    def _tell(self, kind: Kind, version: Version, tries: int = 0, **more: int | None) -> None:
        if more.get("start") is not None:
            self.low_start = None
        self.remark(Told(kind, version, self.name, tries, low_start=self.low_start, **more))

    def _change(
        self,
        *versions: Version,
        change: Callable[[], object],
        lasting: bool = False,
        **more: int | None,
    ) -> None:
        """Go to the last of these versions; a crash on the way may leave one before it."""
        for version in versions:
            self._tell("try", version)
        change()
        self.version = versions[-1]
        self._tell("lasting" if lasting else "done", self.version, len(versions), **more)

    def _versions(self, batches: Sequence[bytes]) -> list[Version]:
        """With the first of the batches, with two of them, and so on."""
        versions = [self.version]
        for data in batches:
            versions.append(versions[-1].append(ident(data, versions[-1].end)))
        return versions[1:]

    def _append(self, batches: Sequence[bytes], durable: bool, origin: AppendOrigin) -> None:
        given = batches[0] if len(batches) == 1 else list(batches)
        how = {"leader_epoch": self.epoch, "origin": origin, "durable": durable}
        self._change(
            *self._versions(batches), change=lambda: self._log.append(given, **how), lasting=durable
        )

    def _follow(self, batches: Sequence[bytes]) -> None:
        versions = self._versions(batches)
        ends = [self.version.end, *(version.end for version in versions)]
        parts = [placed(data, end, self.epoch) for data, end in zip(batches, ends, strict=False)]
        self._change(*versions, change=lambda: self._log.append_as_follower(b"".join(parts)))

    def _trim(self, step: Step) -> None:
        log, version = self._log, self.version
        match step:
            case Truncate(batches, inside, planned=True):
                self._truncate_closed(_base_of(version, batches) + inside)
            case Truncate(batches, inside):
                offset = _base_of(version, batches) + inside
                self._change(
                    version.cut(offset),
                    change=lambda: truncate.truncate_to(log.state, offset),
                    cut=offset,
                )
            case Restart(ahead):
                offset = version.end + ahead
                self._change(
                    version.emptied_at(offset),
                    change=lambda: truncate.truncate_fully_and_start_at(log.state, offset),
                    lasting=True,
                )
            case DeleteRecords(keep):
                self._delete_records(_base_of(version, keep))
            case Retain():
                self._retain()
            case Compact(later_ms, map_bytes):
                self.clock += later_ms
                self._compact(map_bytes)
            case Recode(codec):
                self._recode(codec)
            case Erase(key):
                self._erase(key)
            case _:
                raise AssertionError(step)

    def _truncate_closed(self, offset: int) -> None:
        """Close the log, cut it by a plan, keep nothing of what goes, and open it."""
        self.close()
        made = plan_truncation(self.path, offset)
        apply = partial(made.apply, config=self.config, now_ms=self.clock, keep_cut=False)
        self._change(self.version.cut(offset), change=apply, cut=offset)
        self.open()

    def _delete_records(self, offset: int) -> None:
        self._tell("try", self.version.started_at(offset))
        truncate.increment_log_start(self._log.state, offset)
        self.version = self.version.started_at(offset)
        self._tell("done", self.version, 1, start=offset)

    def _retain(self) -> None:
        log, version = self._log, self.version
        # How far it goes is the log's to decide: until it has, anything may be gone.
        self._tell("try", version.started_at(version.end))
        before = log.log_start_offset
        log.delete_old_segments()
        self.version = version.started_at(log.log_start_offset)
        moved = self.version.start if log.log_start_offset > before else None
        self._tell("done", self.version, 1, start=moved)

    def _compact(self, map_bytes: int) -> None:
        """Compact the log."""
        config = self.config.with_changes(cleanup_policy=frozenset({"compact"}))
        how = {"config": config, "now_ms": self.clock, "force": True, "map_bytes": map_bytes}

        def change(log: Log) -> None:
            plan_compaction(log, from_start=True, **how).apply()

        self._replace_segments(change)

    def _recode(self, codec: Compression) -> None:
        """Write the closed segments in another codec."""

        def change(log: Log) -> None:
            plan = plan_recoding(log.path, RetentionRules(self.config), codec, None, self.clock)
            for segment in plan.going:
                recode(log.state, segment, plan.target, None)

        self._replace_segments(change)

    def _erase(self, key: bytes) -> None:
        """Take the records of a key out of the log."""

        def change(log: Log) -> None:
            plan = plan_erasure(log.path, keys=[key], config=self.config, now=self.clock)
            erase(log.state, plan, None, None)

        self._replace_segments(change)

    def _replace_segments(self, change: Callable[[Log], None]) -> None:
        """Change the log; what comes of it is seen in a copy first, with no call of the seam."""
        before = logs_of(snapshot(self.path.parent), self.name)
        with tempfile.TemporaryDirectory() as elsewhere, io.calls_replaced(io.Calls()):
            copy = Path(elsewhere) / "data" / self.name
            shutil.copytree(self.path, copy)
            opened = Log.open(
                copy, mode="append", config=self.config, now_ms=self.now_ms, recover=True
            )
            with opened as other:
                change(other)
            after = logs_of(snapshot(copy.parent), self.name)
        dropped = [one for one in self.version.batches if one.last_offset < min(before)]
        rows = between(before, after)
        versions = [replace(self.version, batches=(*dropped, *row)) for row in rows]
        self._change(*versions, change=lambda: change(self._log))


def between(before: dict[int, bytes], after: dict[int, bytes]) -> list[tuple[Ident, ...]]:
    """What a log may hold while segments are replaced, one new one after the other.

    Of the old ones behind the last offset of a new one that takes their place some may be left.

    Args:
        before, after: its segments by base offsets.
    """
    old = {base: tuple(batches_of(data)[0]) for base, data in before.items()}
    new = {base: tuple(batches_of(data)[0]) for base, data in after.items()}
    rows: list[tuple[Ident, ...]] = []
    done: tuple[Ident, ...] = ()
    bases = sorted(new)
    for base, following in zip_longest(bases, bases[1:]):
        done += new[base]
        group = [one for one in old if base < one and (following is None or one < following)]
        rest = [old[one] for one in sorted(old) if following is not None and one >= following]
        end = new[base][-1].last_offset if new[base] else base - 1
        left = [one for one in sorted(group) if one > end]
        for kept in powerset(left):
            parts = [*(old[one] for one in kept), *rest]
            rows.append((*done, *(batch for part in parts for batch in part)))
    # The last of them is what comes of it all.
    return [*rows, done]


def powerset(items: Sequence[int]) -> Iterable[tuple[int, ...]]:
    """Some of them, in order."""
    return chain.from_iterable(combinations(items, count) for count in range(len(items) + 1))


def _die(log: Log) -> None:
    """Let go of a log as the end of a process does."""
    log.state.fail(KsegError("the process is dead"))
    with io.calls_replaced(DEAD), suppress(OSError, KsegError):
        log.close()


def _base_of(version: Version, count: int) -> int:
    """Where the last so many batches begin, as far as the log has them."""
    some = version.batches[-count:] if count else ()
    return max(some[0].base_offset if some else version.end, version.start)


# ---- making them ---------------------------------------------------------------------------------


def plain(number: int, *, records: int = 2, size: int = 60) -> bytes:
    """A batch that no other is like."""
    values = [record(b"%08d-%d" % (number, at) + b"." * size) for at in range(records)]
    values = [replace(one, timestamp=NOW_MS + number) for one in values]
    return batch(values, codec=NONE)


def keyed(number: int, *keys: bytes, size: int = 60, value: bool = True) -> bytes:
    """A batch of records with keys, which are tombstones without a value."""
    values = [
        record(b"%08d-%d" % (number, at) + b"." * size if value else None, key=key)
        for at, key in enumerate(keys)
    ]
    return batch([replace(one, timestamp=NOW_MS + number) for one in values], codec=NONE)


def produced(
    number: int, producer: int, sequence: int, *, records: int = 2, transactional: bool = False
) -> bytes:
    """A batch of an idempotent or transactional producer."""
    values = [record(b"%08d-%d" % (number, at), timestamp=NOW_MS + number) for at in range(records)]
    return batch(
        values,
        producer_id=producer,
        producer_epoch=0,
        base_sequence=sequence,
        transactional=transactional,
    )


def marker(kind: int, producer: int) -> Append:
    """The end of a transaction."""
    # With a time, as brokers write it: a producer whose last batch is ancient is forgotten.
    end = record(struct.pack(">hi", 0, 0), key=struct.pack(">hh", 0, kind), timestamp=NOW_MS)
    data = batch([end], producer_id=producer, producer_epoch=0, transactional=True, control=True)
    return Append((data,), origin=AppendOrigin.COORDINATOR)


class Author:
    """Makes up stories; the same seed makes the same story."""

    def __init__(self, seed: str | int) -> None:
        self.rng = random.Random(f"story {seed}")
        self.segment_bytes = self.rng.choice((400, 700, 1200))
        self.seed = seed
        self._number = 0
        self._sequences: dict[int, int] = {}
        self._open: set[int] = set()
        self._batches = 0

    def story(self, length: int = 14) -> Story:
        """One of so many steps."""
        steps: list[Step] = []
        while len(steps) < length:
            steps += self.next()
        small = self.rng.random() < 0.3
        config = replace(
            CONFIG,
            segment_bytes=self.segment_bytes,
            segment_index_bytes=self.rng.choice((24, 60, 120)),
            index_interval_bytes=self.rng.choice((0, 200)),
            preallocate=small,
            flush_messages=self.rng.choice((1, 5, 2**63 - 1)),
            file_delete_delay_ms=self.rng.choice((0, 60_000)),
            retention_bytes=self.rng.choice((300, 900, 2000)),
        )
        return Story(f"seed {self.seed}", tuple(steps), config)

    def next(self) -> Iterable[Step]:
        rng = self.rng
        way = rng.randrange(20)
        if way < 7:
            return [Append(tuple(self._some()), durable=rng.random() < 0.2)]
        if way < 9:
            return [Follow(self._fitting(rng.randrange(1, 4)))]
        if way == 9 and self._open:
            producer = min(self._open)
            self._open.discard(producer)
            self._batches += 1
            return [marker(rng.choice((ABORT, COMMIT)), producer)]
        if way == 10:
            return [NewEpoch()]
        if way == 11:
            return [Roll()]
        if way in (12, 13, 14):
            return [Flush()]
        if way == 15:
            died = rng.random() < 0.5
            return [Abandon(loose=rng.random() < 0.5) if died else Reopen()]
        return self._trimming(way)

    def _trimming(self, way: int) -> Iterable[Step]:
        rng = self.rng
        if way in (16, 17) and self._batches > 1:
            gone = rng.randrange(1, min(self._batches, 5))
            self._batches -= gone
            self._forget()
            return [Truncate(gone, inside=rng.random() < 0.3)]
        if way == 18 and self._batches:
            # A start inside a segment, or at the end, costs the next opening what was before it.
            self._sequences.clear()
            return [DeleteRecords(rng.randrange(min(self._batches, 4))), Retain()]
        if way == 19 and rng.random() < 0.2:
            self._batches = 0
            self._forget()
            return [Restart(rng.choice((0, 7)))]
        return [Retain()]

    def _forget(self) -> None:
        """After a cut producers begin again, with other ids."""
        self._sequences.clear()
        self._open.clear()

    def _some(self) -> Iterable[bytes]:
        for _ in range(self.rng.choice((1, 1, 1, 2, 4))):
            yield self._plain() if self.rng.random() < 0.5 else self._produced()

    def _fitting(self, count: int) -> tuple[bytes, ...]:
        """So many batches, as far as they fit into one segment."""
        batches = [self._plain() for _ in range(count)]
        while len(batches) > 1 and sum(map(len, batches)) > self.segment_bytes:
            batches.pop()
            self._batches -= 1
        return tuple(batches)

    def _plain(self) -> bytes:
        self._number += 1
        self._batches += 1
        if self.rng.random() < 0.2:  # over a block's edge, so that it can be torn in two
            return plain(self._number, records=1, size=self.segment_bytes - 120)
        return plain(self._number, records=self.rng.randrange(1, 4), size=self.rng.randrange(80))

    def _produced(self) -> bytes:
        self._number += 1
        self._batches += 1
        known = [*self._sequences, self._number + 1000]
        producer = self.rng.choice(known)
        sequence = self._sequences.get(producer, 0)
        self._sequences[producer] = sequence + 1
        transactional = producer % 2 == 0
        if transactional:
            self._open.add(producer)
        return produced(self._number, producer, sequence, records=1, transactional=transactional)
