"""Partitions that come and go under a `LogDirectory`, and its upkeep."""

from __future__ import annotations

import os
import shutil
import threading
from contextlib import suppress
from pathlib import Path
from uuid import UUID

import pytest

from kseg.files.checkpoints import TopicPartition
from kseg.files.metadata import read_partition_metadata
from kseg.log.config import LogConfig
from tests.stopping import Stopped, stopping_at
from tests.unit.log.test_directory import CONFIG, ORDERS, made, one, opened

# Partitions come


def test_a_partition_is_made_with_the_id_of_its_topic(tmp_path: Path) -> None:
    with opened(tmp_path) as directory:
        log = directory.create("orders", 0, topic_id=UUID(int=7))
        assert log.append(one()).first_offset == 0
        assert directory.logs[ORDERS] is log
    metadata = read_partition_metadata(tmp_path / "orders-0" / "partition.metadata")
    assert metadata.uuid == UUID(int=7)


@pytest.mark.parametrize("topic", ["", ".", "..", "a b", "a/b", "ö", "x" * 250])
def test_a_topic_has_a_name_that_kafka_takes(tmp_path: Path, topic: str) -> None:
    with opened(tmp_path / "data") as directory:
        for number in (0, -1, 2**31):
            with pytest.raises(ValueError, match="topic"):
                directory.create(topic, number)
        assert os.listdir(tmp_path / "data") == [".lock"]


@pytest.mark.parametrize("number", [-1, 2**31])
def test_a_partition_has_a_number_that_kafka_takes(tmp_path: Path, number: int) -> None:
    with opened(tmp_path) as directory, pytest.raises(ValueError, match="number"):
        directory.create("orders", number)


def test_a_new_partition_has_nothing_of_one_that_had_its_name(tmp_path: Path) -> None:
    for name in ("recovery-point-offset-checkpoint", "log-start-offset-checkpoint"):
        (tmp_path / name).write_text("0\n2\norders 0 500\nclicks 3 7\n")
    with opened(tmp_path) as directory:
        log = directory.create("orders", 0)
        assert (log.log_start_offset, log.log_end_offset) == (0, 0)
    text = (tmp_path / "log-start-offset-checkpoint").read_text()
    assert text == "0\n1\nclicks 3 7\n"


def test_settings_may_be_those_of_each_topic(tmp_path: Path) -> None:
    def config(partition: TopicPartition) -> LogConfig:
        return LogConfig(segment_bytes=1000 + partition.partition)

    with opened(tmp_path, config=config) as directory:
        assert directory.create("orders", 5).config.segment_bytes == 1005
    with opened(tmp_path, config=config) as directory:
        assert directory.logs[TopicPartition("orders", 5)].config.segment_bytes == 1005


# Partitions go


def test_a_link_in_a_deleted_partition_leads_nowhere(tmp_path: Path) -> None:
    data = made(tmp_path / "data", "orders-0")
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "file").touch()
    with opened(data, config=CONFIG.with_changes(file_delete_delay_ms=0)) as directory:
        (data / "orders-0" / "link").symlink_to(tmp_path / "precious")
        renamed = directory.delete("orders", 0)
        assert not renamed.exists()
    assert (tmp_path / "precious" / "file").exists()


# Upkeep


def test_logs_are_used_from_many_threads(tmp_path: Path) -> None:
    with opened(tmp_path) as directory:

        def work(number: int) -> None:
            log = directory.create("orders", number)
            for _ in range(5):
                log.append(one())
            directory.flush_checkpoints()

        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [log.log_end_offset for log in directory.logs.values()] == [5] * 4


def test_an_end_at_any_call_of_a_deletion_leaves_the_partition_or_nothing(tmp_path: Path) -> None:
    data = made(tmp_path / "data", "orders-0", "orders-1", records=3)
    found = set()
    for call in range(1, 100):
        live, left = tmp_path / f"{call}-live", tmp_path / f"{call}-left"
        shutil.copytree(data, live)
        directory = opened(live, config=CONFIG.with_changes(file_delete_delay_ms=0))
        with suppress(Stopped), stopping_at(call) as asked:
            directory.delete("orders", 0)
        shutil.copytree(live, left)
        directory.close()
        with opened(left, recover=True) as after:
            ends = {key.partition: log.log_end_offset for key, log in after.logs.items()}
            assert ends in ({0: 3, 1: 3}, {1: 3}), call
            found.add(len(ends))
            if len(ends) == 1:
                assert after.create("orders", 0).log_start_offset == 0
        if len(asked) <= call:
            break
    assert found == {1, 2}
    assert not list(left.glob("*-delete"))
