"""UnifiedLog, one claim a test: what a log brings along when it is opened, and whose it is.

The claims are those of Kafka's UnifiedLogTest on topic ids, missing data, epochs and formats.
"""

from __future__ import annotations

from uuid import UUID

import pytest

from kseg.errors import InconsistentTopicIdError, NotALogError
from kseg.files.checkpoints import write_offset_checkpoint
from kseg.files.metadata import read_partition_metadata
from kseg.log.log import Log
from tests.builders import record, records_of
from tests.conformance.logs import NOW_MS, ONE, PARTITION, Logs, bases, named, offsets, one

TOPIC_ID, OTHER_ID = UUID(int=2**64 + 1), UUID(int=2**64 + 2)


def epochs(log: Log) -> list[tuple[int, int]]:
    return [(entry.epoch, entry.start_offset) for entry in log.leader_epochs]


def test_ul_026_a_topic_id_is_written_before_anything_else_and_read_again(logs: Logs) -> None:
    log = logs.new(topic_id=TOPIC_ID)
    path = log.path / "partition.metadata"
    assert read_partition_metadata(path).uuid == TOPIC_ID
    again = logs.again(log, topic_id=TOPIC_ID)
    again.close()
    assert read_partition_metadata(path).uuid == TOPIC_ID


def test_ul_026_no_id_leaves_no_file(logs: Logs) -> None:
    log = logs.new()
    log.append(one())
    log.close()
    assert not (log.path / "partition.metadata").exists()


def test_ul_026_another_id_is_refused(logs: Logs) -> None:
    log = logs.new(topic_id=TOPIC_ID)
    log.append(one())
    with pytest.raises(InconsistentTopicIdError):
        logs.again(log, topic_id=OTHER_ID)
    assert read_partition_metadata(log.path / "partition.metadata").uuid == TOPIC_ID
    # Nothing was changed, so it need not be recovered.
    assert offsets(logs.open(log.path, topic_id=TOPIC_ID)) == [0]


def test_ul_133_without_data_a_log_is_where_its_start_is(logs: Logs) -> None:
    path = logs.directory()
    write_offset_checkpoint(path.parent / "log-start-offset-checkpoint", {PARTITION: 500})
    log = logs.open(path, create=True)
    assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (500, 500, 500)
    assert log.append(one()).first_offset == 500


def test_ul_135_a_directory_that_is_to_be_deleted_is_not_appended_to(logs: Logs) -> None:
    path = logs.directory().with_name(f"t-0.{'0f' * 16}-delete")
    path.mkdir()
    with pytest.raises(NotALogError):
        logs.open(path, recover=True)
    assert list(path.iterdir()) == []


def test_ul_142_a_message_of_an_old_format_ends_the_epochs(logs: Logs) -> None:
    log = logs.new()
    log.append(one(), leader_epoch=5)
    assert epochs(log) == [(5, 0)]
    old = records_of([record(b"v", timestamp=NOW_MS)], magic=1, base_offset=1)
    log.append_as_follower(old)
    assert epochs(log) == []


def test_ul_142_so_do_settings_of_an_old_format_until_they_are_new_again(logs: Logs) -> None:
    log = logs.new()
    log.append(one(), leader_epoch=5)
    log.update_config(log.config.with_changes(message_format_magic=1))
    log.append(one(), leader_epoch=5)
    assert epochs(log) == []
    log.update_config(log.config.with_changes(message_format_magic=2))
    log.append(one(), leader_epoch=6)
    assert epochs(log) == [(6, 2)]
    assert epochs(logs.again(log)) == [(6, 2)]


def test_ul_168_seg_31_a_segment_goes_by_the_time_of_its_first_batch(logs: Logs) -> None:
    log = logs.new()
    assert log.state.active.rolling_timestamp in (None, -1)
    log.append(one(time=7))
    log.append(one(time=9))
    assert log.state.active.rolling_timestamp == 7
    assert logs.again(log).state.active.rolling_timestamp == 7


# One writer


def test_a_reader_beside_a_writer_sees_what_was_written_when_it_looked(logs: Logs) -> None:
    log = logs.new(segment_bytes=ONE)
    log.append(one())
    reader = Log.open(log.path)
    log.append(one())
    assert (offsets(reader), offsets(reader.refresh())) == ([0], [0, 1])
    assert (bases(log), named(log, "*.log")) == ([0, 1], ["0.log", "1.log"])
