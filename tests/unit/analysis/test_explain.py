"""Why is the disk full: made situations, each with its cause; dates held to retention."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import kseg
from kseg import explain, plan_retention, settings
from kseg.analysis.explain import CAUSES, ExplainReport, KeptFile
from kseg.log.config import INT64_MAX, LogConfig
from kseg.log.directory import LogDirectory
from kseg.log.log import Log
from tests.builders import batch, record
from tests.unit.files.foreign import as_user, root_only
from tests.unit.log.settings.made import (
    Broker,
    setting,
    topic,
)

DAY_MS = 86_400_000
NOW_MS = 1_760_000_000_000
NEVER_MS = INT64_MAX
BYTES = 200
CONFIG = LogConfig(segment_bytes=400, message_timestamp_after_max_ms=NEVER_MS)
COMPACT = LogConfig(
    segment_bytes=400,
    message_timestamp_after_max_ms=NEVER_MS,
    cleanup_policy=frozenset({"compact"}),
)
WEEK = {"retention.ms": str(7 * DAY_MS)}
COMPACTED = {"cleanup.policy": "compact"}
#: A segment a record: so many days old each.
AGES = (9, 8, 1, 0)


def write_log(
    root: Path,
    ages: Sequence[float] = AGES,
    *,
    name: str = "orders",
    config: LogConfig = CONFIG,
    transaction_at: int | None = None,
) -> Path:
    """A partition with a segment for each record; the key alternates."""
    root.mkdir(parents=True, exist_ok=True)
    with LogDirectory.open(root, mode="append", config=config, now_ms=lambda: NOW_MS) as directory:
        log = directory.create(name, 0)
        for number, days in enumerate(ages):
            open_txn = number == transaction_at
            producer = 5 if open_txn else -1
            sequence = 0 if open_txn else -1
            given = record(bytes(BYTES), key=b"k%d" % (number % 2), timestamp=time_of(days))
            log.append(
                batch(
                    [given],
                    producer_id=producer,
                    producer_epoch=sequence,
                    base_sequence=sequence,
                    transactional=open_txn,
                )
            )
    return root / f"{name}-0"


def time_of(days: float) -> int:
    return NOW_MS - int(days * DAY_MS)


def causes_of(found: ExplainReport) -> dict[int, str]:
    """The cause of each segment, by its base offset; the last one counts of several."""
    rows = [row for one in found.partitions for row in one.rows]
    return {row.base_offset: row.cause for row in rows if row.base_offset is not None}


def other_causes(found: ExplainReport) -> set[str]:
    """Causes of all that is no segment."""
    return {row.cause for row in found.rows() if row.base_offset is None}


def row_at(found: ExplainReport, base_offset: int) -> KeptFile:
    rows = [row for one in found.partitions for row in one.rows]
    return next(row for row in rows if row.base_offset == base_offset)


def nothing(_: Path) -> None:
    """Leave the directory as it was made."""


@dataclass(frozen=True)
class Case:
    """A situation: what is made, and the causes of its segments and of other files."""

    want: dict[int, str]
    ages: Sequence[float] = AGES
    given: dict[str, str] = field(default_factory=dict)
    config: LogConfig = CONFIG
    transaction_at: int | None = None
    do: Callable[[Path], object] = nothing
    other: str = ""
    name: str = "orders"


def of_broker(high_watermark: int | None) -> Callable[[Path], None]:
    """The directory is a broker's, which has left a high watermark, or none."""

    def make(root: Path) -> None:
        (root / "meta.properties").write_text("version=1\ncluster.id=c1\nnode.id=7\n")
        checkpoint = root / "replication-offset-checkpoint"
        checkpoint.unlink(missing_ok=True)
        if high_watermark is not None:
            checkpoint.write_text(f"0\n1\norders 0 {high_watermark}\n")

    return make


def in_cluster(*said: Any) -> Callable[[Path], None]:
    """The directory has a metadata log that says so."""

    def make(root: Path) -> None:
        of_broker(len(AGES))(root)
        Broker(root).says(list(said))
        text = "version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ"
        (root / "orders-0" / "partition.metadata").write_text(text)

    return make


def beside(name: str, size: int = 5000) -> Callable[[Path], None]:
    """A file below the data directory, with the directories that it needs."""

    def make(root: Path) -> None:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bytes(size))

    return make


def flipped(at: int) -> Callable[[Path], None]:
    """A bit of the second segment is flipped."""

    def make(root: Path) -> None:
        path = root / "orders-0" / f"{1:020d}.log"
        data = bytearray(path.read_bytes())
        data[at] ^= 1
        path.write_bytes(data)

    return make


#: In the last record's value, and in the length of the key of the first one.
IN_VALUE, IN_STRUCTURE = -3, 66


def unreadable(root: Path) -> None:
    """The first batch of the last segment has a format that no release has."""
    path = root / "orders-0" / f"{3:020d}.log"
    data = bytearray(path.read_bytes())
    data[16] = 9
    path.write_bytes(data)


YOUNG, ACTIVE, DUE = "younger-than-retention", "active", "due"


BY_WEEK = {0: DUE, 1: DUE, 2: YOUNG, 3: ACTIVE}
MONTH = {"retention.ms": str(30 * DAY_MS)}
ALL = (0, 1, 2)


def every(cause: str, last: str = ACTIVE) -> dict[int, str]:
    return {**dict.fromkeys(ALL, cause), 3: last}


def compacted(want: dict[int, str], given: dict[str, str] | None = None, **more: Any) -> Case:
    return Case(want, given={**COMPACTED, **(given or {})}, config=COMPACT, **more)


CASES = {
    "by time": Case(BY_WEEK, given=WEEK),
    "all are young": Case(every(YOUNG), given=MONTH),
    "a time in the future": Case(
        {0: DUE, 1: "future-timestamp", 2: "future-timestamp", 3: ACTIVE},
        ages=(9, -30, 9, 9),
        given=WEEK,
    ),
    "over the size limit": Case(
        {0: DUE, 1: "under-size-limit", 2: "under-size-limit", 3: ACTIVE},
        given={"retention.bytes": "700"},
    ),
    "by time before by size": Case(
        every(YOUNG), given={"retention.ms": str(30 * DAY_MS), "retention.bytes": "100000"}
    ),
    "above the high watermark": Case(
        {0: DUE, 1: "high-watermark", 2: YOUNG, 3: ACTIVE},
        given={"cleanup.policy": "delete", **WEEK},
        do=of_broker(1),
    ),
    "due by the metadata log": Case(
        BY_WEEK,
        do=in_cluster(
            topic("orders"),
            setting("retention.ms", str(7 * DAY_MS)),
            setting("cleanup.policy", "delete"),
        ),
    ),
    "a transaction does not hold retention": Case(BY_WEEK, given=WEEK, transaction_at=0),
    "uncleanable": compacted(every("uncleanable"), do=flipped(IN_STRUCTURE)),
    "compact and delete, all are due": compacted(
        every(DUE, DUE),
        {"cleanup.policy": "compact,delete", "retention.ms": "0"},
        ages=(4, 3, 2, 1),
    ),
    "what cannot be read": Case(every("unknown", "unknown"), given=WEEK, do=unreadable),
    "backup": Case(
        every(YOUNG),
        given=MONTH,
        do=lambda root: beside("20251009T085320.000Z/x.log")(root.with_name("data.kseg-backup")),
        other="backup",
    ),
}


def made(root: Path, case: Case) -> Path:
    path = write_log(
        root, case.ages, name=case.name, config=case.config, transaction_at=case.transaction_at
    )
    case.do(root)
    return path


def explained(root: Path, case: Case, now_ms: int = NOW_MS) -> ExplainReport:
    return explain(root / "data", config=case.given, now_ms=now_ms)


@pytest.mark.parametrize("name", CASES)
def test_each_situation_has_its_cause(tmp_path: Path, name: str) -> None:
    case = CASES[name]
    made(tmp_path / "data", case)
    found = explained(tmp_path, case)
    of_case = [
        row
        for one in found.partitions
        if one.topic == case.name and one.partition == 0 and one.kind == "log"
        for row in one.rows
    ]
    segments = {row.base_offset: row.cause for row in of_case if row.base_offset is not None}
    assert segments == case.want
    assert case.other in {"", *other_causes(found)}
    assert {row.cause for row in found.rows()} <= CAUSES.keys()


DATED = [
    name
    for name, case in CASES.items()
    if {YOUNG, "future-timestamp"} & set(case.want.values()) and not case.other
]


@pytest.mark.parametrize("name", DATED)
def test_a_date_is_the_second_at_which_retention_deletes(tmp_path: Path, name: str) -> None:
    case = CASES[name]
    path = made(tmp_path / "data", case)
    found = explained(tmp_path, case)
    rules = settings(tmp_path / "data", config=case.given).of(path).retention_rules()
    held = 1 if name == "above the high watermark" else len(AGES)
    dated = [row for one in found.partitions for row in one.rows if row.until_ms is not None]
    assert dated
    for row in dated:
        assert row.base_offset is not None
        assert row.until_ms is not None
        if row.cause == "high-watermark" or row.base_offset >= held:
            continue
        for shift, goes in ((-1000, False), (-1, False), (0, True), (1000, True)):
            with Log.open(path) as log:
                plan = plan_retention(log, config=rules, now_ms=row.until_ms + shift)
            bases = {each.base_offset for each in plan.segments}
            assert (row.base_offset in bases) is goes, (row, shift)


def test_a_future_record_is_named_and_dates_all_behind_it(tmp_path: Path) -> None:
    case = CASES["a time in the future"]
    made(tmp_path / "data", case)
    found = explained(tmp_path, case)
    for base in (1, 2, 3):
        row = row_at(found, base)
        assert row.holder is not None
        assert (row.holder.offset, row.holder.timestamp) == (1, time_of(-30))
        assert row.holder.path.endswith(f"{1:020d}.log")
        assert row.until_ms == time_of(-37) + 1


@pytest.mark.parametrize(
    "name", ["backup", "compact and delete, all are due", "what cannot be read", "uncleanable"]
)
def test_totals_hold_every_byte_once_and_the_largest_first(tmp_path: Path, name: str) -> None:
    made(tmp_path / "data", CASES[name])
    found = explain(tmp_path / "data", config=CASES[name].given, now_ms=NOW_MS)
    sizes = [one.bytes for one in found.totals]
    assert sizes == sorted(sizes, reverse=True)
    files = [
        path.stat().st_blocks * 512
        for root in (tmp_path / "data", tmp_path / "data.kseg-backup")
        for path in root.rglob("*")
        if path.is_file()
    ]
    assert sum(sizes) == found.bytes == sum(files)


def test_a_deleted_file_that_is_open_is_found(tmp_path: Path) -> None:
    path = write_log(tmp_path / "data")
    gone = path / "gone.log"
    with gone.open("wb") as file:
        file.write(bytes(70_000))
        file.flush()
        gone.unlink()
        found = explain(tmp_path / "data", now_ms=NOW_MS)
        (row,) = [one for one in found.elsewhere if one.cause == "open-deleted"]
    assert (row.path, row.size) == (str(gone), 70_000)
    assert "open-deleted" not in other_causes(explain(tmp_path / "data", now_ms=NOW_MS))


@root_only
def test_a_partition_of_another_owner_is_a_row(tmp_path: Path) -> None:
    root = tmp_path / "data"
    write_log(root, name="clicks")
    write_log(root).chmod(0o700)
    for each in (*tmp_path.parents, tmp_path, root):
        if not each.stat().st_mode & 1:
            each.chmod(each.stat().st_mode | 0o55)

    def look() -> None:
        found = explain(root, config=WEEK, now_ms=NOW_MS)
        orders = next(one for one in found.partitions if one.topic == "orders")
        assert [row.cause for row in orders.rows] == ["unknown"]
        assert DUE in causes_of(found).values()

    assert as_user(65534, look) == ""


def everything(root: Path) -> dict[str, tuple[int, int]]:
    return {str(path): (path.stat().st_size, path.stat().st_mtime_ns) for path in root.rglob("*")}


def test_nothing_is_written_and_more_jobs_say_the_same(tmp_path: Path) -> None:
    made(tmp_path / "data", CASES["backup"])
    write_log(tmp_path / "data", name="clicks")
    before = everything(tmp_path)
    one = explain(tmp_path / "data", config=WEEK, now_ms=NOW_MS)
    two = explain(tmp_path / "data", config=WEEK, now_ms=NOW_MS, threads=2)
    assert one.partitions == two.partitions
    assert everything(tmp_path) == before


# ---- small segments ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("made_with", "config", "reason"),
    [
        ({"segment_ms": 1000}, {"segment.ms": "1000"}, "segment.ms"),
        (
            {"segment_ms": 1000},
            {"segment.ms": "3000", "segment.jitter.ms": "2500"},
            "segment.jitter.ms",
        ),
        ({"segment_bytes": 120}, {}, "other"),
        ({"segment_bytes": 120}, {"segment.index.bytes": "12"}, "index"),
        ({"segment_bytes": 120}, {"segment.bytes": "200"}, None),
    ],
)
def test_small_segments_have_a_reason(
    tmp_path: Path, made_with: dict[str, int], config: dict[str, str], reason: str | None
) -> None:
    settings = kseg.LogConfig(**made_with)  # type: ignore[arg-type]
    with kseg.Log.open(tmp_path / "t-0", mode="append", create=True, config=settings) as log:
        for number in range(14):
            log.append({"value": [b"v" * 40], "timestamp": [1_700_000_000_000 + 2000 * number]})
    (partition,) = kseg.explain(tmp_path, config=config).partitions
    assert partition.rolls == ({reason: 13} if reason else {})
    document = kseg.explain(tmp_path, config=config).to_json()
    assert document["partitions"][0]["rolls"] == partition.rolls


def test_segments_that_a_new_leader_began_are_named(tmp_path: Path) -> None:
    with kseg.Log.open(tmp_path / "t-0", mode="append", create=True) as log:
        for epoch in range(12):
            log.append({"value": [b"v"]}, leader_epoch=epoch)
            log.roll()
    (partition,) = kseg.explain(tmp_path).partitions
    assert partition.rolls == {"leader-epoch": 11}
