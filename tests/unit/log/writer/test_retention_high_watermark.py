"""A broker's directory: what its checkpoint says of the high watermark, and who goes by it."""

from __future__ import annotations

from pathlib import Path

import pytest

from kseg.change.cleanup import plan_retention
from kseg.errors import StalePlanError
from kseg.files import checkpoints
from kseg.files.checkpoints import TopicPartition
from kseg.log.config import LogConfig
from kseg.log.log import Log
from kseg.log.writer.retention import LOG_START, apply_state
from tests.builders import batch, record

HERE = TopicPartition("orders", 0)
#: One record a segment, of which retention would take all.
CONFIG = LogConfig(
    segment_bytes=150, retention_ms=-1, retention_bytes=0, named=frozenset({"cleanup_policy"})
)
CHECKPOINT = "replication-offset-checkpoint"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A broker's, with ten records of which replicas have three."""
    with Log.open(tmp_path / "orders-0", mode="append", create=True, config=CONFIG) as log:
        fill(log, 10)
    (tmp_path / "meta.properties").write_text("version=1\ncluster.id=c\nnode.id=1\n")
    say(tmp_path, 3)
    return tmp_path


def fill(log: Log, count: int) -> None:
    for _ in range(count):
        log.append(batch([record(bytes(50))]))


def say(data: Path, offset: int | None) -> None:
    said = {} if offset is None else {HERE: offset}
    checkpoints.write_offset_checkpoint(data / CHECKPOINT, said)


def said(data: Path) -> int | None:
    return checkpoints.read_offset_checkpoint(data / CHECKPOINT).get(HERE)


def opened(data: Path, **how: object) -> Log:
    return Log.open(data / "orders-0", mode="append", config=CONFIG, **how)  # type: ignore[arg-type]


def test_closing_never_raises_it_and_readers_see_all_of_the_log(data: Path) -> None:
    with opened(data) as log:
        fill(log, 2)
        assert (log.replicated_offset, log.high_watermark, log.last_stable_offset) == (3, 12, 12)
        assert sum(len(columns) for columns in log.read(isolation="read_committed")) == 12
        assert len(log.fetch(11).data) > 0
        log.note_offsets(write=True)
        assert said(data) == 3
    assert said(data) == 3


def test_it_moves_with_the_start_and_never_lies_past_the_end(data: Path) -> None:
    with opened(data) as log:
        log.truncate_to(2)
        assert said(data) == 2
        fill(log, 5)
        assert log.replicated_offset == 2
        log.truncate_fully_and_start_at(20, 15)
        fill(log, 1)
        assert log.replicated_offset == 20
    assert said(data) == 20


def test_the_only_copy_has_its_high_watermark_at_the_end(data: Path) -> None:
    with Log.open(data / "orders-0") as log:
        planned = plan_retention(log, config=CONFIG, high_watermark="end")
        assert (planned.new_log_start_offset, planned.held_bytes) == (10, 0)
    with opened(data) as log, pytest.raises(StalePlanError, match="high watermark is 3"):
        apply_state(log.state, planned)
    with opened(data, high_watermark="end") as log:
        fill(log, 1)
        log.delete_old_segments()
        assert log.log_start_offset == 11
    assert said(data) == 11


def test_what_lies_below_the_start_goes_whatever_the_checkpoint(data: Path) -> None:
    with opened(data, high_watermark=5) as log:
        log.delete_records_before(5)
    say(data, None)
    with opened(data) as log:
        plan = plan_retention(log)
        assert [each.why for each in plan.segments] == [LOG_START] * 5
        assert plan.high_watermark == 5


def test_other_directories_have_it_at_the_end(data: Path) -> None:
    (data / "meta.properties").unlink()
    with opened(data) as log:
        log.delete_old_segments()
        assert log.log_start_offset == 10
    assert said(data) == 10


def test_a_log_open_for_appending_was_told_before(data: Path) -> None:
    with opened(data) as log, pytest.raises(ValueError, match="of its opening"):
        plan_retention(log, high_watermark="end")
