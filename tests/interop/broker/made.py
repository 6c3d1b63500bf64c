"""Partition directories that kseg writes, for a broker to take over, and what must be read there.

Each maker gets the directory of a new, empty partition and leaves a log in it. Producers' ids are
far above those that a young broker gives.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa

import kseg
from kseg import BatchBuilder, BatchOptions, Compression, Log, LogConfig
from kseg.broker import AppendOrigin
from kseg.change.recode import plan_recoding
from kseg.control import ControlType
from kseg.log.topic_policy import RetentionRules
from kseg.spark.sink import SinkPaths, commit
from kseg.spark.staging import parse_sink_options, stage
from tests.interop.broker.broker import Row

BEGIN_MS = 1_790_000_000_000
PRODUCER, TRANSACTIONAL = 9_000_000, 9_000_001
#: Small, so that each directory has several segments.
CONFIG = LogConfig(segment_bytes=16_384, index_interval_bytes=1_024, retention_ms=-1)
_BATCHES, _RECORDS, KILLED_APPENDS = 24, 40, 40


@dataclass(slots=True)
class Held:
    """What a log holds.

    Attributes:
        rows: every record of producers.
        aborted: offsets of those whose transactions were aborted.
        times: by offset, markers included.
    """

    rows: list[Row] = field(default_factory=list)
    aborted: set[int] = field(default_factory=set)
    times: dict[int, int] = field(default_factory=dict)

    def add(self, rows: Sequence[Row]) -> None:
        """Records at the end."""
        self.rows += rows
        self.times |= {row.offset: row.timestamp for row in rows}

    def committed(self) -> list[Row]:
        """What a consumer under read_committed gets."""
        return [row for row in self.rows if row.offset not in self.aborted]


Maker = Callable[[Path], Held]


def columns_of(rows: Sequence[Row]) -> dict[str, list[object]]:
    names = ("offset", "timestamp", "key", "value", "headers")
    columns: dict[str, list[object]] = {
        name: [getattr(row, name) for row in rows] for name in names
    }
    columns["headers"] = [[(name.encode(), value) for name, value in row.headers] for row in rows]
    return columns


def rows_from(offset: int, count: int, *, key_count: int = 17, magic: int = 2) -> list[Row]:
    """Records with nulls, empty values, headers and times that go back."""
    rows = []
    for number in range(offset, offset + count):
        headers = (("h", b"%d" % number), ("ü", None)) if magic == 2 and number % 3 == 0 else ()
        rows.append(
            Row(
                number,
                BEGIN_MS + number * 10 - number % 7 * 30 if magic else -1,
                b"key-%d" % (number % key_count),
                None if number % 11 == 0 else b"value-%d " % number * (number % 9),
                headers,
            )
        )
    return rows


def _append(log: Log, held: Held, count: int = _RECORDS, **options: object) -> None:
    rows = rows_from(log.log_end_offset, count)
    result = log.append(kseg.encode_batch(columns_of(rows), BatchOptions(**options)))  # type: ignore[arg-type]
    assert result.last_offset == rows[-1].offset
    held.add(rows)


def _end(log: Log, held: Held, kind: ControlType) -> None:
    builder = BatchBuilder(
        producer_id=TRANSACTIONAL, producer_epoch=0, transactional=True, control=True
    )
    held.times[log.log_end_offset] = time = BEGIN_MS + log.log_end_offset * 10
    builder.append_end_marker(kind, 0, timestamp=time)
    log.append(builder.build(), origin=AppendOrigin.COORDINATOR)


def appended(directory: Path, codec: Compression) -> Held:
    """Plain, idempotent and transactional batches in turn; every other transaction is aborted."""
    held = Held()
    sequences = {PRODUCER: 0, TRANSACTIONAL: 0}

    def idempotent(log: Log, producer: int, **options: object) -> None:
        given = {"producer_id": producer, "producer_epoch": 0, "base_sequence": sequences[producer]}
        _append(log, held, compression=codec, **given, **options)
        sequences[producer] += _RECORDS

    with Log.open(directory, mode="append", config=CONFIG) as log:
        for number in range(_BATCHES):
            if number % 3 == 0:
                _append(log, held, compression=codec)
            elif number % 3 == 1:
                idempotent(log, PRODUCER)
            else:
                first = log.log_end_offset
                idempotent(log, TRANSACTIONAL, transactional=True)
                abort = number % 2 == 0
                if abort:
                    held.aborted |= set(range(first, log.log_end_offset))
                _end(log, held, ControlType.ABORT if abort else ControlType.COMMIT)
        assert len(list(directory.glob("*.log"))) > 1
    return held


def truncated(directory: Path) -> Held:
    """A log cut back in the middle of its segments, within a batch's offsets."""
    held = appended(directory, Compression.LZ4)
    end = held.rows[len(held.rows) // 2].offset
    with Log.open(directory, mode="append", config=CONFIG) as log:
        log.truncate_to(end)
        end = log.log_end_offset
    held.rows = [row for row in held.rows if row.offset < end]
    held.times = {offset: time for offset, time in held.times.items() if offset < end}
    return held


_KILLED = """
import os, sys
from pathlib import Path
from kseg import BatchOptions, Compression, Log
import kseg
from tests.interop.broker import made
log = Log.open(Path(sys.argv[1]), mode="append", create=True, config=made.CONFIG)
for number in range(made.KILLED_APPENDS):
    rows = made.rows_from(log.log_end_offset, 40)
    log.append(kseg.encode_batch(made.columns_of(rows), BatchOptions(compression=Compression.ZSTD)))
    if number == 20:
        log.flush()
os.kill(os.getpid(), 9)
"""


def recovered(directory: Path) -> Held:
    """A log whose writer was killed, with a torn end, made good by `kseg.recover` elsewhere."""
    with TemporaryDirectory() as home:
        broken = Path(home) / directory.name
        killed = subprocess.run([sys.executable, "-c", _KILLED, str(broken)], check=False)
        assert killed.returncode == -signal.SIGKILL
        active = max(broken.glob("*.log"))
        with open(active, "ab") as file:
            file.write(active.read_bytes()[-500:-100])
        report = kseg.recover(broken)
        assert report.truncated_bytes == 400
        put_in_place(broken, directory)
    held = Held()
    held.add(rows_from(0, KILLED_APPENDS * _RECORDS))
    return held


def compacted(directory: Path, codec: Compression) -> Held:
    """A log whose closed segments were compacted elsewhere; the last record of each key stays."""
    with TemporaryDirectory() as home:
        path = Path(home) / directory.name
        path.mkdir()
        before = appended(path, codec)
        config = replace(CONFIG, cleanup_policy=("compact",), segment_bytes=1 << 20)
        with Log.open(path, mode="append", config=config) as log:
            kseg.plan_compaction(log, force=True).apply()
        put_in_place(path, directory)
    held = Held(aborted=before.aborted)
    held.add(read_by_kseg(directory))
    last = {row.key: row for row in before.committed()}
    assert set(last.values()) <= set(held.rows) < set(before.rows)
    # Markers are newer than what they end: the latest of them tell no other time than records do.
    held.times |= before.times
    return held


def recoded(directory: Path, codec: Compression) -> Held:
    """A log whose closed segments got another codec elsewhere."""
    with TemporaryDirectory() as home:
        path = Path(home) / directory.name
        path.mkdir()
        held = appended(path, Compression((codec + 1) % len(Compression)))
        plan = plan_recoding(path, RetentionRules(CONFIG), codec, None, BEGIN_MS)
        assert plan.going
        assert not plan.apply().plan.findings
        put_in_place(path, directory)
    return held


def sunk(directory: Path) -> Held:
    """Rows that Spark's sink has appended, in two jobs."""
    held = Held()
    topic, _, number = directory.name.rpartition("-")
    for job in range(2):
        rows = rows_from(job * _RECORDS, _RECORDS)
        options = parse_sink_options({"path": str(directory.parent), "topic": topic})
        given = pa.RecordBatch.from_pylist(
            [
                {
                    "topic": topic,
                    "partition": int(number),
                    "timestampMs": row.timestamp,
                    "key": row.key,
                    "value": row.value,
                    "headers": [{"key": name, "value": value} for name, value in row.headers],
                }
                for row in rows
            ]
        )
        place = SinkPaths.of(options).attempt(f"job-{job}", 0, 0)
        assert commit([stage([given], place, 0, options)], f"job-{job}", f"job-{job}", options)
        held.add(rows)
    return held


def merged(directory: Path) -> Held:
    """One log out of two damaged copies."""
    with TemporaryDirectory() as home:
        copies = [Path(home) / name / directory.name for name in "ab"]
        copies[0].mkdir(parents=True)
        held = appended(copies[0], Compression.NONE)
        shutil.copytree(copies[0], copies[1])
        for at, copy in enumerate(copies):
            damage(copy, at)
        out = Path(home) / "out"
        plan = kseg.plan_merge(*copies, out=out)
        assert plan.ok
        assert len(plan.partitions[0].runs) > 4
        plan.apply()
        put_in_place(out / directory.name, directory)
    return held


def salvaged(directory: Path) -> Held:
    """What a salvage keeps of a damaged log, with markers that abort what has lost its own."""
    with TemporaryDirectory() as home:
        source, out = Path(home) / "in" / directory.name, Path(home) / "out"
        source.mkdir(parents=True)
        held = appended(source, Compression.NONE)
        damage(source, 0)
        damage_last_marker(source)
        plan = kseg.plan_salvage(source, out=out, abort_open=True)
        (partition,) = plan.partitions
        assert len(partition.lost) > 1
        assert partition.markers == 1
        plan.apply()
        put_in_place(out / directory.name, directory)
    held.rows = read_by_kseg(directory)
    with Log.open(directory) as log:
        there = {record.offset for record in log.records(isolation="read_committed")}
    held.aborted = {row.offset for row in held.rows} - there
    held.times = {
        offset: time
        for offset, time in held.times.items()
        if not any(
            lost.first_offset <= offset <= (lost.last_offset or offset) for lost in plan.lost
        )
    }
    held.times[partition.log_end_offset - 1] = max(held.times.values())
    return held


def damage_last_marker(directory: Path) -> None:
    """Change a byte of the last marker."""
    path = max(directory.glob("*.log"))
    with kseg.Segment.open(path) as segment:
        table = segment.batches()
    marker = table[table.is_control][-1]
    data = bytearray(path.read_bytes())
    data[marker.position + marker.size - 1] ^= 1
    path.write_bytes(data)


def damage(directory: Path, which: int) -> None:
    """Change a byte in each other segment."""
    for path in sorted(directory.glob("*.log"))[which::2]:
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data)


def read_by_kseg(directory: Path) -> list[Row]:
    """Every record of producers, also while a broker has the directory."""
    rows = []
    for columns in kseg.scan(directory):
        for one in columns.records():
            headers = tuple((name.decode(), value) for name, value in one.headers)
            rows.append(Row(one.offset, one.timestamp, one.key, one.value, headers))
    return rows


def put_in_place(source: Path, directory: Path) -> None:
    """Files of another directory instead of those that are there; the topic's id stays."""
    topic_id = (directory / "partition.metadata").read_bytes()
    shutil.rmtree(directory)
    shutil.copytree(source, directory)
    (directory / "partition.metadata").write_bytes(topic_id)


def old_format(directory: Path, magic: int) -> Held:
    """Messages from before batches, plain and in wrappers, indexed by `kseg.recover`."""
    held, data = Held(), bytearray()
    codecs = (Compression.NONE, Compression.GZIP, Compression.SNAPPY, Compression.LZ4)
    for number in range(_BATCHES):
        codec = codecs[number % len(codecs)] if magic else codecs[number % 3]
        rows = rows_from(number * _RECORDS, _RECORDS, magic=magic)
        columns = columns_of(rows)
        if magic == 0:
            del columns["timestamp"]
        data += kseg.encode_batch(columns, BatchOptions(magic=magic, compression=codec)).data
        held.add(rows)
    for path in directory.glob("0*"):
        path.unlink()
    (directory / f"{0:020}.log").write_bytes(data)
    kseg.recover(directory)
    return held


#: By the name of the case, which is no topic's: each is a partition of one topic.
MAKERS: dict[str, Maker] = {
    **{
        f"appended-{codec.name.lower()}": (lambda path, codec=codec: appended(path, codec))
        for codec in Compression
    },
    "truncated": truncated,
    "recovered": recovered,
    "compacted": lambda path: compacted(path, Compression.NONE),
    "compacted-lz4": lambda path: compacted(path, Compression.LZ4),
    **{
        f"recoded-{codec.name.lower()}": (lambda path, codec=codec: recoded(path, codec))
        for codec in Compression
    },
    "merged": merged,
    "salvaged": salvaged,
    "sunk": sunk,
    "magic-0": lambda path: old_format(path, 0),
    "magic-1": lambda path: old_format(path, 1),
}
