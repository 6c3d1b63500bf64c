"""Logs and data directories that are opened with the settings that the broker has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import kseg
from kseg import Log, LogConfig, LogDirectory
from tests.builders import batch, record
from tests.unit.log.settings.made import FIRST, SECOND, Broker, setting, topic

LATER_MS = 2**41
LIMITS = [setting("retention.ms", "1000"), setting("cleanup.policy", "delete")]
SMALL = setting("segment.bytes", "300")
GREEDY = LogConfig(retention_ms=1, named=frozenset({"cleanup_policy"}))


def filled(broker: Broker, name: str = "orders-0") -> Path:
    """Three segments, closed in good order."""
    path = broker.has(name)
    with Log.open(path, mode="append", config=LogConfig(segment_bytes=300)) as log:
        for _ in range(3):
            log.append(batch([record(b"v" * 200, timestamp=1)], leader_epoch=-1))
    (broker.path / "replication-offset-checkpoint").write_text("0\n1\norders 0 3\n")
    return path


def bases(path: Path) -> list[int]:
    return sorted(int(each.stem) for each in path.glob("*.log"))


def test_a_log_is_opened_with_its_topic_s_settings(tmp_path: Path) -> None:
    broker = Broker(tmp_path / "data").says([topic("orders"), SMALL, *LIMITS])
    path = filled(broker)
    known = kseg.settings(broker.path)
    with Log.open(path, mode="append", config=known, now_ms=lambda: LATER_MS) as log:
        assert log.config == known.of(path).config
        assert log.delete_old_segments().segments_count == 3
    with pytest.raises(ValueError, match="none of the data directories"):
        Log.open(tmp_path / "elsewhere" / "orders-0", mode="append", create=True, config=known)


@pytest.mark.parametrize(
    "records",
    [
        [topic("orders"), *LIMITS, setting("remote.storage.enable", "true")],
        [topic("orders", SECOND), *LIMITS],
        [topic("orders"), *LIMITS, setting("flush.ms", "soon")],
    ],
    ids=["remote", "stray", "invalid"],
)
def test_what_is_left_alone_loses_nothing_when_it_is_open(
    tmp_path: Path, records: list[Any]
) -> None:
    broker = Broker(tmp_path / "data").says(records)
    path = filled(broker)
    known = kseg.settings(broker.path)
    with Log.open(path, mode="append", config=known, now_ms=lambda: LATER_MS) as log:
        assert log.delete_old_segments().segments_count == 0
    assert bases(path) == [0, 1, 2]


@pytest.mark.parametrize(
    ("records", "config", "left"),
    [
        ([*LIMITS], None, [3]),
        ([setting("retention.ms", "-1")], GREEDY, [0, 1, 2]),
        ([], GREEDY, [3]),
        ([setting("cleanup.policy", "compact")], GREEDY, [0, 1, 2]),
        ([setting("remote.storage.enable", "true")], GREEDY, [0, 1, 2]),
    ],
    ids=["of the topic", "kept", "filled in", "compacted", "remote"],
)
@pytest.mark.parametrize("explicit", [False, True])
def test_a_data_directory_is_retained_by_its_topics_settings(
    tmp_path: Path, records: list[Any], config: LogConfig | None, left: list[int], explicit: bool
) -> None:
    broker = Broker(tmp_path / "data").says([topic("orders"), *records])
    path = filled(broker)
    given: Any = config
    if explicit:
        plain = {} if config is None else config.to_kafka(named=True)
        given = kseg.settings(broker.path, config=plain)
    with LogDirectory.open(
        broker.path, mode="append", config=given, now_ms=lambda: LATER_MS
    ) as directory:
        directory.retain()
    assert bases(path) == left


def test_a_function_of_the_caller_s_goes_before_the_metadata_log(tmp_path: Path) -> None:
    broker = Broker(tmp_path / "data").says([topic("orders", FIRST), setting("retention.ms", "-1")])
    path = filled(broker)
    with LogDirectory.open(
        broker.path, mode="append", config=lambda _: GREEDY, now_ms=lambda: LATER_MS
    ) as directory:
        directory.retain()
    assert bases(path) == [3]
