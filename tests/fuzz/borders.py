"""Numbers at the borders of their fields, through every public call.

Each function here is one kind of case. What may come out of a call is a right value, a `KsegError`,
an `OSError`, or a `ValueError` that kseg itself raises about an argument; see `refusal`.
"""

from __future__ import annotations

import shutil
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import kseg
from kseg.change.cleanup import plan_retention
from kseg.cli.failures import Exit
from kseg.constants import Compression, TimestampType
from kseg.errors import KsegError, TierError
from kseg.files import producer_snapshot
from kseg.files.checkpoints import (
    EpochEntry,
    TopicPartition,
    read_leader_epochs,
    read_offset_checkpoint,
    write_leader_epochs,
    write_offset_checkpoint,
)
from kseg.files.index import OffsetIndex, TimeIndex
from kseg.format.builder import BatchBuilder
from kseg.format.columns import decode
from kseg.format.convert import convert
from kseg.format.encode import encode_batch, encode_batches
from kseg.format.header import scan
from kseg.format.options import BatchOptions
from kseg.format.request import Request
from kseg.legacy.message import Message
from kseg.legacy.message_set import MessageSet
from kseg.legacy.old_brokers import down_convert
from kseg.log.config import LogConfig
from kseg.log.data_directory import PartitionOffsets, starts_in_tier
from kseg.log.log import Log
from kseg.log.recovery.recover import plan_recovery
from kseg.log.recovery.reindex import plan_reindex
from kseg.log.validate.append import validate_append, validate_replica
from kseg.log.validate.rules import AppendOrigin, AppendRules
from kseg.spark.options import parse_options
from kseg.spark.watching import offsets_document, stream_offsets_of
from tests import builders
from tests.builders import record, records_of, write_segment
from tests.fuzz.appending import check_taken
from tests.fuzz.doors import DOORS, Question, command, disagreements

INT64_MAX = 2**63 - 1
_POWERS = (0, 1, 2**31, 2**32, 2**63)
BORDERS = tuple(
    sorted({sign * power + step for power in _POWERS for step in (-1, 0, 1) for sign in (1, -1)})
)
OFFSETS = tuple(each for each in BORDERS if 0 <= each <= INT64_MAX)
TIMES = tuple(each for each in BORDERS if abs(each) <= INT64_MAX)
INT64 = (*TIMES, -(2**63))
INT32 = tuple(each for each in BORDERS if -(2**31) <= each < 2**31)
_NOW = 1_700_000_000_000
_PACKAGE = Path(kseg.__file__).resolve().parent


def refusal(error: BaseException) -> bool:
    """Whether a call may answer so."""
    if isinstance(error, (KsegError, OSError)):
        return True
    last = traceback.extract_tb(error.__traceback__)[-1]
    inside = Path(last.filename).resolve().is_relative_to(_PACKAGE)
    told = inside and "raise " in (last.line or "raise ")
    return type(error) is ValueError and told


def may(call: Callable[..., Any], *given: Any, **named: Any) -> Any:
    """What a call answers; None where it refuses as it may."""
    try:
        return call(*given, **named)
    except (KsegError, OSError, ValueError) as error:
        if not refusal(error):
            raise
        str(error)
        return None


# ---- logs at the borders -------------------------------------------------------------------------


def _bases(source: Random) -> list[int]:
    """Offsets where batches begin: near a border, rising."""
    start = min(max(source.choice(OFFSETS) + source.randint(-6, 6), 0), INT64_MAX)
    steps = [source.choice((1, 1, 2, 3, 5)) for _ in range(source.randint(0, 5))]
    bases = [start]
    for step in steps:
        bases.append(bases[-1] + step)
    return [base for base in bases if base <= INT64_MAX]


def _time(source: Random, magic: int) -> int:
    return -1 if magic == 0 else source.choice(TIMES)


def made(source: Random, *, lowest: int = -(2**63)) -> tuple[list[tuple[int, bytes]], Any]:
    """Batches with their bases, and (offset, timestamp) of each record."""
    magic, rows, parts = source.choice((0, 1, 2, 2, 2)), [], []
    bases = _bases(source)
    for base, following in zip(bases, [*bases[1:], INT64_MAX + 1], strict=True):
        count = source.randint(1, min(following - base, 3))
        times = [max(_time(source, magic), lowest) for _ in range(count)]
        codec = source.choice((0, 0, 0, 1, 2))
        if magic == 1 and base == 0 and codec:
            codec = 0  # an outer offset of 0 counts for none
        given = [record(b"%d" % base, key=b"k", timestamp=time) for time in times]
        parts.append((base, records_of(given, magic=magic, codec=codec, base_offset=base)))
        rows += [(base + number, time) for number, time in enumerate(times)]
    return parts, rows


def directory_of(root: Path, source: Random, parts: list[tuple[int, bytes]]) -> Path:
    """The batches in one segment or two."""
    cut = source.randint(1, len(parts))
    for some in (parts[:cut], parts[cut:]):
        if some:
            path = write_segment(root / "data" / "t-0", some[0][0], *(data for _, data in some))
    return path.parent


def _question(source: Random) -> Question:
    def bound() -> int | None:
        return source.choice((None, None, *BORDERS))

    return Question(
        (bound(), bound()), (bound(), bound()) if source.random() < 0.4 else (None, None)
    )


def doors(source: Random, root: Path) -> None:
    """Every door gives the same records for the same ranges."""
    parts, rows = made(source)
    directory = directory_of(root, source, parts)
    few = source.sample(list(DOORS), 4)
    for _ in range(2):
        asked = _question(source)
        wanted = [row for row in rows if asked.holds(*row)]
        wrong = list(disagreements(directory, asked, wanted, few))
        assert not wrong, "\n".join(wrong)


def lookups(source: Random, root: Path) -> None:
    """What is found of an offset or a time is what a walk finds."""
    parts, rows = made(source)
    directory = directory_of(root, source, parts)
    offset, time = source.choice(BORDERS), source.choice(BORDERS)
    with Log.open(directory) as log:
        assert log.log_end_offset == rows[-1][0] + 1
        assert log.last_stable_offset == log.log_end_offset
        found = may(log.lookup, offset)
        at = [row[0] for row in rows if row[0] >= max(offset, log.log_start_offset)]
        inside = log.log_start_offset <= offset and at
        assert (found is not None) == bool(inside)
        if found is not None:
            assert found.last_offset >= offset
        place = may(log.lookup_time, time)
        later = [row for row in rows if row[1] >= max(time, 0)]
        assert (None if place is None else place.offset) == (later[0][0] if later else None)
        may(log.offset_for_timestamp, time)
        may(log.end_offset_for_epoch, source.choice(BORDERS))
        fetched = may(log.fetch, offset, max_bytes=max(source.choice(BORDERS), 0))
        if fetched is not None and at:
            may(fetched.columns)
    words = source.choice((["--offset", offset], ["--time", time]))
    code, _, said = command(["lookup", directory, *words])
    assert code != Exit.BUG, said


# ---- appends -------------------------------------------------------------------------------------


def _sent(source: Random) -> bytes:
    """A batch as a producer or a leader might send it, and much that neither would."""
    times = [source.choice(TIMES) for _ in range(source.randint(1, 3))]
    given = [record(b"v", key=b"k", timestamp=time) for time in times]
    if source.random() < 0.15:
        magic = source.choice((0, 1))
        return records_of(given, magic=magic, codec=source.choice((0, 1)), base_offset=0)
    fields: dict[str, Any] = {
        "base_offset": lambda: source.choice(INT64),
        "leader_epoch": lambda: source.choice(INT32),
        "last_offset_delta": lambda: source.choice(INT32),
        "base_timestamp": lambda: source.choice(INT64),
        "max_timestamp": lambda: source.choice(INT64),
        "producer_id": lambda: source.choice(INT64),
        "producer_epoch": lambda: source.choice((-1, 0, 1, 2**15 - 1, -(2**15))),
        "base_sequence": lambda: source.choice(INT32),
        "count": lambda: source.choice(INT32),
        "log_append": lambda: True,
        "transactional": lambda: True,
        "control": lambda: True,
        "delete_horizon": lambda: True,
        "codec": lambda: source.choice((1, 2, 3, 4)),
    }
    chosen = source.sample(sorted(fields), source.choice((0, 1, 1, 2, 3)))
    return builders.batch(given, **{name: fields[name]() for name in chosen})


def _rules(source: Random) -> AppendRules:
    return AppendRules(
        magic=source.choice((0, 1, 2, 2, 2)),
        compression=source.choice((None, None, None, Compression.NONE, Compression.GZIP)),
        timestamp_type=source.choice((TimestampType.CREATE_TIME, TimestampType.LOG_APPEND_TIME)),
        timestamp_before_max_ms=source.choice((INT64_MAX, 0, 1, 2**31)),
        timestamp_after_max_ms=source.choice((INT64_MAX, 0, 1, 2**31)),
        leader_epoch=source.choice([each for each in INT32 if each >= -1]),
        origin=source.choice(list(AppendOrigin)),
        inflated_bytes_max=1 << 20,
    )


def validations(source: Random, _root: Path) -> None:
    """What may be appended is whole, numbered from the next offset on, and ends in 63 bits."""
    data, rules = _sent(source), may(_rules, source)
    if rules is None:
        return
    offset = source.choice(BORDERS)
    if source.random() < 0.3:
        taken = may(validate_replica, data, rules, next_offset=offset)
    else:
        taken = may(validate_append, data, rules, next_offset=offset, now_ms=source.choice(BORDERS))
    if taken is not None:
        check_taken(taken)
        assert offset <= taken.first_offset <= taken.next_offset <= INT64_MAX


class _Clock:
    def __init__(self) -> None:
        self.ms = _NOW

    def __call__(self) -> int:
        return self.ms


def appends(source: Random, root: Path) -> None:
    """A log takes a batch or is as it was; it is closed, opened and read either way."""
    path, clock = root / "data" / "t-0", _Clock()
    config = LogConfig(
        segment_bytes=source.choice((300, 1 << 20)),
        message_timestamp_type=source.choice(
            (TimestampType.CREATE_TIME, TimestampType.LOG_APPEND_TIME)
        ),
        segment_index_bytes=120,
    )
    start = min(source.choice(OFFSETS), INT64_MAX)
    known = PartitionOffsets(clean=True, log_start_offset=start, recovery_point=start)
    how = {"mode": "append", "config": config, "now_ms": clock}
    with Log.open(path, create=True, known=known, **how) as log:
        for _ in range(source.randint(1, 4)):
            _one_append(log, source, clock)
        end, size = log.log_end_offset, log.view.log_end_offset
        assert end == size <= INT64_MAX
        kept = _offsets(log)
    with Log.open(path, **how) as log:
        assert log.log_end_offset == end
        assert _offsets(log) == kept
        may(log.truncate_to, source.choice(BORDERS))
        may(log.delete_records_before, source.choice(BORDERS))
        may(log.update_high_watermark, source.choice(BORDERS))
        may(log.flush, source.choice(BORDERS))
        may(log.delete_old_segments, now_ms=source.choice(BORDERS))
        may(log.expire_producers, now_ms=source.choice(BORDERS))
        may(log.roll, source.choice((None, *BORDERS)))
        may(
            log.truncate_fully_and_start_at, source.choice(BORDERS), source.choice((None, *BORDERS))
        )
    try:
        with Log.open(path, **how) as log:
            _offsets(log)
    except TierError:  # the log was made to start in a tier, whose epochs nothing here has
        assert starts_in_tier(path)


def _one_append(log: Log, source: Random, clock: _Clock) -> None:
    clock.ms = source.choice((_NOW, _NOW, *BORDERS))
    before = log.log_end_offset
    epoch = source.choice((None, None, *BORDERS))
    data = _sent(source)
    if source.random() < 0.5:
        origin = source.choice((AppendOrigin.CLIENT, *AppendOrigin))
        taken = may(log.append, data, leader_epoch=epoch, origin=origin)
    else:
        base = source.choice((before, before, source.choice(INT64)))
        data = base.to_bytes(8, "big", signed=True) + data[8:] if base <= INT64_MAX else data
        taken = may(log.append_as_follower, data, leader_epoch=epoch)
    clock.ms = _NOW
    if taken is None:
        assert log.log_end_offset == before
    elif not taken.duplicate and taken.last_offset >= 0:
        assert before <= taken.last_offset
        assert log.log_end_offset == taken.last_offset + 1


def _offsets(log: Log) -> list[int] | str:
    """What is read; a log may hold what cannot be read, since followers look at headers alone."""
    try:
        return [
            int(offset)
            for columns in log.read(columns=("offset",), control=True)
            for offset in columns["offset"]
        ]
    except KsegError as error:
        return error.reason


# ---- what the loader, reindex and retention make of it -------------------------------------------


def repairs(source: Random, root: Path) -> None:
    """Plans, and what is done by them, by any offset, time and config."""
    parts, _rows = made(source)
    if source.random() < 0.3:
        parts.append((parts[-1][0], _sent(source)))
    directory = directory_of(root, source, parts)
    given = {
        "clean": source.choice((None, False, True)),
        "recovery_point": source.choice((None, *BORDERS)),
        "log_start_offset": source.choice((None, None, *BORDERS)),
        "now_ms": source.choice((_NOW, *BORDERS)),
    }
    may(plan_recovery, directory, as_broker=True, **given)
    reindexing = may(plan_reindex, directory, now_ms=given["now_ms"])
    with Log.open(directory) as log:
        may(plan_retention, log, now_ms=given["now_ms"])
    if reindexing is not None and source.random() < 0.3:
        may(reindexing.apply, keep=False)
    plan = may(plan_recovery, directory, **given)
    if plan is None:
        return
    assert plan.log_end_offset <= INT64_MAX
    done = may(plan.apply, keep_cut=False)
    if done is None:
        return
    again = plan_recovery(directory, now_ms=_NOW)
    assert again.error is None, again
    assert again.log_end_offset == plan.log_end_offset
    with Log.open(directory, mode="append", now_ms=lambda: _NOW) as log:
        retention = may(plan_retention, log, now_ms=given["now_ms"])
        if retention is not None:
            may(retention.apply)


_VERBS = (
    ("info",),
    ("stats",),
    ("verify", "--deep"),
    ("dump", "--batches"),
    ("read", "--last", "2"),
    ("read", "--format", "text"),
    ("recover",),
    ("recover", "--as-broker"),
    ("reindex",),
    ("retain",),
)


def verbs(source: Random, root: Path) -> None:
    """No verb ends with what it has no word for."""
    parts, _rows = made(source)
    if source.random() < 0.5:
        parts.append((parts[-1][0], _sent(source)))
    directory = directory_of(root, source, parts)
    words: list[Any] = list(source.choice(_VERBS))
    if words[0] in ("recover", "reindex", "retain") and source.random() < 0.7:
        words += [f"--now={source.choice(BORDERS)}"]
    if words[0] == "recover" and source.random() < 0.7:
        name = source.choice(("--recovery-point", "--log-start-offset"))
        words += [f"{name}={source.choice(BORDERS)}"]
    if source.random() < 0.2:
        words = ["truncate", "--no-backup", "--apply", f"--to={source.choice(BORDERS)}"]
        command(["recover", directory, "--apply", "--no-backup"])
    code, _, said = command([*words, directory])
    assert code != Exit.BUG, (words, said)


# ---- bytes and values ----------------------------------------------------------------------------


def encodings(source: Random, _root: Path) -> None:
    """What is encoded is read again as it was."""
    count = source.randint(1, 3)
    start = source.choice(BORDERS)
    columns: dict[str, Any] = {
        "offset": [start + number for number in range(count)],
        "timestamp": [source.choice(BORDERS) for _ in range(count)],
        "value": [b"v"] * count,
    }
    if source.random() < 0.3:
        del columns["offset"]
    options = may(
        BatchOptions,
        magic=source.choice((0, 1, 2, 2)),
        compression=source.choice((Compression.NONE, Compression.GZIP)),
        timestamp_type=source.choice((None, TimestampType.CREATE_TIME)),
        producer_id=source.choice((-1, -1, *BORDERS)),
        producer_epoch=source.choice((-1, 0)),
        base_sequence=source.choice((-1, *BORDERS)),
        leader_epoch=source.choice((-1, *BORDERS)),
        delete_horizon_ms=source.choice((-1, -1, *BORDERS)),
    )
    if options is None:
        return
    base = source.choice((None, start, *BORDERS))
    last = source.choice((None, None, *BORDERS))
    one = may(encode_batch, columns, options, base_offset=base, last_offset=last)
    if one is not None and "offset" in columns and last is None:
        _same(one.data, columns, options.magic)
    batches = may(lambda: list(encode_batches(columns, options, base_offset=base or 0)))
    if batches is not None and "offset" in columns:
        _same(b"".join(batch.data for batch in batches), columns, options.magic)
    may(_built, source, columns)


def _same(data: bytes, columns: dict[str, Any], magic: int) -> None:
    table = scan(data)
    assert table.end_position == len(data)
    rows = [
        (int(piece["offset"][row]), int(piece["timestamp_ms"][row]))
        for piece in decode(memoryview(data), table, Request(("offset", "timestamp"), control=True))
        for row in range(len(piece))
    ]
    times = [-1] * len(rows) if magic == 0 else columns["timestamp"]
    assert rows == list(zip(columns["offset"], times, strict=True))


def _built(source: Random, columns: dict[str, Any]) -> None:
    builder = BatchBuilder(
        magic=source.choice((1, 2)),
        base_offset=source.choice(BORDERS),
        log_append_time=source.choice((-1, *BORDERS)),
        timestamp_type=TimestampType.CREATE_TIME,
    )
    for number, time in enumerate(columns["timestamp"]):
        offset = None if "offset" not in columns else columns["offset"][number]
        builder.append(b"v", timestamp_ms=time, offset=offset)
    if source.random() < 0.3:
        builder.override_last_offset(source.choice(BORDERS))
    if source.random() < 0.3:
        builder.set_producer_state(source.choice(BORDERS), 0, source.choice(BORDERS))
    assert scan(builder.build().data).end_position > 0


def conversions(source: Random, _root: Path) -> None:
    """Whatever is converted is written or refused."""
    data = b"".join(_sent(source) for _ in range(source.randint(1, 2)))
    codec = source.choice((None, Compression.NONE, Compression.GZIP))
    magic = source.choice((0, 1, 2))
    found = may(
        convert, data, magic=magic, compression=codec, on_loss=source.choice(("refuse", "drop"))
    )
    if found is not None:
        assert scan(found.data, on_bad_crc="stop").end_position == len(found.data)
    may(lambda: down_convert(data, to_magic=magic, first_offset=source.choice(BORDERS)))


def message_sets(source: Random, _root: Path) -> None:
    """Message sets hold any offset of 64 bits, and take on another format with it."""
    magic = source.choice((0, 1))
    messages = [
        may(Message.build, b"v", magic=magic, timestamp=source.choice(BORDERS) if magic else -1)
        for _ in range(3)
    ]
    if None in messages:
        return
    offsets = [source.choice(BORDERS) for _ in messages]
    codec = source.choice((Compression.NONE, Compression.GZIP))
    one = may(
        MessageSet.create,
        messages,
        offsets=iter(offsets).__next__,
        compression=codec,
        timestamp=source.choice((None, *BORDERS)),
    )
    if one is None:
        return
    assert [each.offset for each in one.deep(rules="0.10")] == offsets
    other = one.to_message_format(1 - magic)
    assert [each.offset for each in other.deep(rules="0.10")] == offsets
    may(lambda: list(one.deep()))


def small_files(source: Random, root: Path) -> None:
    """Checkpoints, indexes and snapshots hold what their fields hold, or refuse it."""
    root.mkdir(parents=True, exist_ok=True)
    numbers = [source.choice(BORDERS) for _ in range(3)]
    pairs = {TopicPartition("t", number): offset for number, offset in enumerate(numbers)}
    path = root / "checkpoint"
    if may(lambda: write_offset_checkpoint(path, pairs) or True):
        assert read_offset_checkpoint(path) == pairs
    entries = [EpochEntry(source.choice(BORDERS), offset) for offset in sorted(numbers)]
    if may(lambda: write_leader_epochs(path, entries) or True):
        may(read_leader_epochs, path)
    entry = producer_snapshot.ProducerSnapshotEntry(
        producer_id=source.choice(BORDERS),
        producer_epoch=source.choice((0, 2**15 - 1)),
        last_sequence=source.choice(BORDERS),
        last_offset=source.choice(BORDERS),
        offset_delta=source.choice(BORDERS),
        last_timestamp=source.choice(BORDERS),
        coordinator_epoch=source.choice(BORDERS),
        current_txn_first_offset=source.choice(BORDERS),
    )
    data = may(producer_snapshot.to_bytes, [entry])
    if data is not None:
        assert producer_snapshot.read(data) == (entry,)
        entry.first_sequence  # noqa: B018
    base = source.choice(OFFSETS)
    words = [source.choice(INT32).to_bytes(4, "big", signed=True) for _ in range(8)]
    (root / "o.index").write_bytes(b"".join(words))
    (root / "o.timeindex").write_bytes(b"".join(words[:6]))
    for kind, name in ((OffsetIndex, "o.index"), (TimeIndex, "o.timeindex")):
        with kind.open(root / name, base) as index:
            for ask in (index.lookup, lambda _number: index.entries()):
                may(ask, source.choice(BORDERS))


def spark_values(source: Random, _root: Path) -> None:
    """Options and checkpoints of streams take what they can mean."""
    name = source.choice(
        ("startingOffsets", "endingOffsets", "startingTimestamp", "endingTimestamp")
    )
    value = source.choice(BORDERS)
    text = source.choice((str(value), f'{{"t": {{"0": {value}}}}}'))
    options = may(parse_options, {"path": "x", name: text})
    if options is not None:
        may(options.check_batch)
    place = {"offset": value, "segment": source.choice(BORDERS), "pos": source.choice(BORDERS)}
    offsets = may(stream_offsets_of, {"v": 1, "topics": {"t-0": place}})
    if offsets is not None:
        assert offsets_document(offsets)["topics"]["t-0"] == place


#: Kinds of cases, and how often each comes.
KINDS: dict[Callable[[Random, Path], None], int] = {
    doors: 14,
    lookups: 10,
    validations: 20,
    appends: 10,
    repairs: 10,
    verbs: 8,
    encodings: 12,
    conversions: 8,
    message_sets: 4,
    small_files: 4,
    spark_values: 2,
}


def run(seed: str, number: int, root: Path) -> str:
    """One case; answers its kind.

    Raises:
        AssertionError: a wrong answer.
        Exception: what no call may raise.
    """
    source = Random(f"{seed}:{number}")
    kind = source.choices(list(KINDS), list(KINDS.values()))[0]
    try:
        kind(source, root)
    finally:
        for path in _entries(root):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    return kind.__name__


def _entries(root: Path) -> Iterator[Path]:
    yield from list(root.iterdir()) if root.is_dir() else ()
