"""Closed segments in another codec: what changes, what stays, and what is left alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kseg
from kseg.change.recode import RecodingPlan, plan_recoding
from kseg.constants import Compression
from kseg.errors import LogLockedError
from kseg.format.header import FIELDS
from kseg.format.request import FIELDS as COLUMNS
from kseg.log.config import LogConfig
from kseg.log.segment.reader import Segment
from kseg.log.topic_policy import KRAFT, REMOTE, RetentionRules
from tests.builders import ABORT, GZIP, batch, control_batch, messages, record, write_segment

NOW = 1_760_000_000_000
#: What a batch has besides its bytes, its place and its checksum.
_SAME = [
    FIELDS.index(name) for name in FIELDS if name not in ("position", "size", "crc", "attributes")
]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Segments with producers, a transaction, headers, a delete horizon, append time, magic 1."""
    home = tmp_path / "data"
    home.mkdir()
    path = home / "t-0"
    value = b"0123456789" * 90
    producer = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 40}
    many = [record(value, key=b"k%d" % at, timestamp=NOW + at) for at in range(5)]
    write_segment(
        path,
        0,
        batch(many, **producer, transactional=True),
        control_batch(ABORT, base_offset=5, producer_id=7),
        batch([record(value, headers=[(b"h", None)])] * 2, base_offset=6, codec=GZIP),
    )
    write_segment(path, 8, messages([record(value, offset=8)], magic=1))
    write_segment(
        path,
        9,
        batch([record(value)], base_offset=9, log_append=True, max_timestamp=NOW),
        batch([], base_offset=10, last_offset_delta=3),
        batch([record(None, key=b"k")], base_offset=14, delete_horizon=True, base_timestamp=NOW),
    )
    write_segment(path, 20, batch([record(value)], base_offset=20))
    kseg.recover(path, now_ms=NOW, clean=False)
    (home / ".kafka_cleanshutdown").write_bytes(b"")
    return path


def rows(path: Path) -> Any:
    """The headers of all batches of a log, and its records."""
    tables = [
        tile.table.rows.copy()
        for file in sorted(path.glob("*.log"))
        for tile in Segment.open(file).walk()
    ]
    names = tuple(name for name in COLUMNS if name not in ("position", "codec"))
    return np.concatenate(tables), [
        tuple(row)
        for columns in kseg.Log.open(path).read(columns=names, control=True)
        for row in zip(*(columns[name] for name in names), strict=True)
    ]


def planned(path: Path, codec: Compression, **settings: Any) -> RecodingPlan:
    return plan_recoding(path, RetentionRules(LogConfig(**settings)), codec, None, NOW)


def recoded(path: Path, codec: Compression, **settings: Any) -> RecodingPlan:
    done: RecodingPlan = planned(path, codec, **settings).apply().plan
    return done


@pytest.mark.parametrize("codec", Compression)
def test_all_but_the_codec_stays(log: Path, codec: Compression) -> None:
    headers, records = rows(log)
    txn = (log / f"{0:020d}.txnindex").read_bytes()
    assert txn
    active = (log / f"{20:020d}.log").read_bytes()
    one = recoded(log, codec)
    after, same = rows(log)
    assert records == same
    assert (headers[:, _SAME] == after[:, _SAME]).all()
    flags = FIELDS.index("attributes")
    assert (headers[:, flags] & ~7 == after[:, flags] & ~7).all()
    assert (log / f"{20:020d}.log").read_bytes() == active
    assert (log / f"{0:020d}.txnindex").read_bytes() == txn
    assert [each.base_offset for each in one.going] == [0, 9][: 2 - (codec == 0)]
    data = (
        (after[:, 2] == 2)
        & ~(after[:, flags] & 0x20 != 0)
        & (after[:, FIELDS.index("record_count")] > 0)
    )
    assert set(after[data, flags][:-1] & 7) == {codec}
    assert [str(each) for each in kseg.verify(log.parent, deep=True).findings] == []
    assert recoded(log, codec).going == []
    with kseg.Log.open(log, mode="append", now_ms=lambda: NOW) as opened:
        assert opened.log_end_offset == 21
        opened.append(kseg.encode_batch({"value": [b"v"]}).data)


def test_times_owner_and_a_backup_are_kept(log: Path, tmp_path: Path) -> None:
    old = {path.name: path.read_bytes() for path in log.glob("*.log")}
    modified = (log / f"{0:020d}.log").stat().st_mtime_ns
    one = plan_recoding(log, RetentionRules(LogConfig()), Compression.ZSTD, 19, NOW)
    assert [each.why for each in one.segments] == ["", "unchanged", "", "active"]
    assert {path.name: path.read_bytes() for path in log.glob("*.log")} == old
    done = one.apply(backup=tmp_path / "kept")
    assert (log / f"{0:020d}.log").stat().st_mtime_ns == modified
    kept = {each.kept.name: each.kept.read_bytes() for each in done.kept}
    assert kept[f"{0:020d}.log"] == old[f"{0:020d}.log"]
    size = (log / f"{0:020d}.log").stat().st_size
    assert done.plan.segments[0].kept_bytes == size < one.segments[0].bytes


def test_a_batch_above_the_limit_stays(log: Path) -> None:
    recoded(log, Compression.ZSTD)
    small = (log / f"{0:020d}.log").read_bytes()
    recoded(log, Compression.NONE, max_message_bytes=2_000)
    headers, _ = rows(log)
    flags, sizes = headers[:, FIELDS.index("attributes")], headers[:, 1]
    assert flags[0] & 7 == Compression.ZSTD  # five values would be 4.6 KB
    assert (sizes[1:] <= 2_000).all()
    assert flags[2] & 7 == Compression.NONE
    assert len(small) < (log / f"{0:020d}.log").stat().st_size


@pytest.mark.damages("a closed segment stays damaged")
def test_damage_stops_one_segment_alone(log: Path) -> None:
    path = log / f"{0:020d}.log"
    damaged = bytearray(path.read_bytes())
    damaged[100] ^= 1
    path.write_bytes(damaged)
    one = recoded(log, Compression.LZ4)
    assert [each.why for each in one.segments] == ["damaged", "unchanged", "", "active"]
    assert "does not match its checksum" in str(one.findings[0])
    assert path.read_bytes() == damaged
    assert not list(log.glob("*.cleaned"))


def test_some_logs_are_left_alone(log: Path) -> None:
    before = {path: path.read_bytes() for path in log.iterdir()}
    for word in (KRAFT, REMOTE):
        rules = RetentionRules(LogConfig(), skipped=word, why="it is said")
        one = plan_recoding(log, rules, Compression.ZSTD, None, NOW)
        assert (one.left_alone, one.segments, one.is_noop) == ("it is said", (), True)
    with kseg.Log.open(log, mode="append", now_ms=lambda: NOW), pytest.raises(LogLockedError):
        recoded(log, Compression.ZSTD)
    (log.parent / ".kafka_cleanshutdown").unlink(missing_ok=True)
    assert {path: path.read_bytes() for path in before} == before


def test_a_log_that_was_not_closed_is_refused(log: Path) -> None:
    (log.parent / ".kafka_cleanshutdown").unlink()
    with pytest.raises(kseg.UncleanShutdownError):
        recoded(log, Compression.ZSTD)


def test_a_log_that_changed_since_is_refused(log: Path) -> None:
    one, other = (planned(log, Compression.ZSTD) for _ in range(2))
    one.apply()
    with pytest.raises(kseg.StalePlanError):
        other.apply()
