from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from kseg.errors import KsegError
from kseg.files import io
from kseg.files.checkpoints import TopicPartition
from kseg.files.metadata import read_clean_shutdown
from kseg.log import data_directory
from kseg.log.data_directory import PartitionOffsets
from tests.stopping import refusing

ORDERS = TopicPartition("orders", 0)
CLICKS = TopicPartition("clicks", 3)
MARK = ".kafka_cleanshutdown"
RECOVERY_POINTS = "recovery-point-offset-checkpoint"
LOG_STARTS = "log-start-offset-checkpoint"


def partition(directory: Path, name: str) -> None:
    (directory / name).mkdir()
    (directory / name / f"{0:020d}.log").touch()


def worked_in(directory: Path, *names: str, clean: bool = True) -> None:
    """One life in which the logs named are loaded and closed."""
    with_all = data_directory.enter(directory)
    for name in names:
        home = data_directory.enter(directory)
        home.claim(name)
        home.mark_loaded()
        home.leave(clean=clean)
    with_all.leave()


# The mark


def test_a_directory_without_partitions_needs_no_mark(tmp_path: Path) -> None:
    (tmp_path / "lost+found").mkdir()
    home = data_directory.enter(tmp_path)
    assert home.was_clean
    home.leave()


def test_the_log_of_kraft_needs_no_look_since_it_gets_one_always(tmp_path: Path) -> None:
    partition(tmp_path, "__cluster_metadata-0")
    worked_in(tmp_path)
    (tmp_path / MARK).unlink()
    partition(tmp_path, "orders-0")
    worked_in(tmp_path, "orders-0")
    assert read_clean_shutdown(tmp_path) is not None


@pytest.mark.parametrize("kind", ["delete", "future", "stray"])
def test_a_future_or_stray_partition_needs_a_look_and_a_deleted_one_does_not(
    tmp_path: Path, kind: str
) -> None:
    partition(tmp_path, "orders-0")
    partition(tmp_path, f"orders-1.{'0' * 32}-{kind}")
    worked_in(tmp_path, "orders-0")
    assert (read_clean_shutdown(tmp_path) is not None) == (kind == "delete")


def test_what_was_closed_badly_is_not_clean_for_the_next_in_the_same_life(tmp_path: Path) -> None:
    (tmp_path / MARK).touch()
    home = data_directory.enter(tmp_path)
    assert home.is_clean("orders-0")
    for clean in (False, True):
        log = data_directory.enter(tmp_path)
        log.claim("orders-0")
        log.mark_loaded()
        assert not home.is_clean("orders-0")
        log.leave(clean=clean)
        assert home.is_clean("orders-0") == clean
    home.leave()


def test_a_mark_that_cannot_be_taken_away_lets_nobody_in(tmp_path: Path) -> None:
    (tmp_path / MARK).touch()
    with refusing("unlink"), pytest.raises(OSError, match="Input"):
        data_directory.enter(tmp_path)
    home = data_directory.enter(tmp_path)  # the lock was let go of
    assert home.was_clean
    home.leave()


# Checkpoints


def test_entries_of_others_stay_in_their_order(tmp_path: Path) -> None:
    (tmp_path / RECOVERY_POINTS).write_text("0\n3\nzebra 5 50\norders 0 1\nclicks 3 30\n")
    home = data_directory.enter(tmp_path)
    home.note(ORDERS, recovery_point=7)
    home.leave()
    assert (tmp_path / RECOVERY_POINTS).read_text() == "0\n3\nzebra 5 50\norders 0 7\nclicks 3 30\n"


def test_checkpoints_that_say_the_same_are_not_written_again(tmp_path: Path) -> None:
    (tmp_path / RECOVERY_POINTS).write_text("0\n1\norders 0 7\n")
    before = (tmp_path / RECOVERY_POINTS).stat().st_ino
    home = data_directory.enter(tmp_path)
    home.note(ORDERS, recovery_point=7)
    home.leave()
    assert (tmp_path / RECOVERY_POINTS).stat().st_ino == before


def test_a_malformed_checkpoint_says_nothing_and_is_told(tmp_path: Path) -> None:
    (tmp_path / RECOVERY_POINTS).write_text("0\n-1\nclicks 3 30\n")
    (tmp_path / LOG_STARTS).write_text("0\n1\nclicks 3 2\n")
    home = data_directory.enter(tmp_path)
    assert home.offsets_of(CLICKS) == PartitionOffsets(0, 2, None)
    assert [os.path.basename(error.path or "") for error in home.findings] == [RECOVERY_POINTS]
    home.leave()


@pytest.mark.parametrize("topic", ["two words", "line\nfeed", "\udcff"])
def test_names_that_no_line_can_hold_are_not_noted(tmp_path: Path, topic: str) -> None:
    home = data_directory.enter(tmp_path)
    home.note(TopicPartition(topic, 0), recovery_point=1, log_start_offset=1, high_watermark=1)
    home.leave()
    assert not (tmp_path / RECOVERY_POINTS).exists()


def test_a_partition_that_is_forgotten_does_not_keep_the_mark_away(tmp_path: Path) -> None:
    (tmp_path / MARK).touch()
    with_all, home = data_directory.enter(tmp_path), data_directory.enter(tmp_path)
    home.claim("orders-0")
    home.mark_loaded()
    home.leave(clean=False)
    with_all.forget(ORDERS)
    with_all.leave()
    assert (tmp_path / MARK).exists()


def test_a_checkpoint_that_cannot_be_written_leaves_no_mark_and_no_lock(tmp_path: Path) -> None:
    (tmp_path / MARK).touch()
    home = data_directory.enter(tmp_path)
    home.note(ORDERS, recovery_point=1)
    with refusing("rename", code=28), pytest.raises(OSError, match="No space"):
        home.leave()
    assert not (tmp_path / MARK).exists()
    data_directory.enter(tmp_path).leave()


def test_others_note_while_checkpoints_are_written(tmp_path: Path) -> None:
    home = data_directory.enter(tmp_path)
    home.note(ORDERS, recovery_point=1)
    started, go_on = threading.Event(), threading.Event()

    def rename(source: io.StrPath, target: io.StrPath) -> None:
        started.set()
        assert go_on.wait(10)
        os.replace(source, target)

    with io.calls_replaced(io.Calls(rename=rename)):
        writer = threading.Thread(target=home.write_checkpoints)
        writer.start()
        assert started.wait(10)
        home.note(CLICKS, recovery_point=2)
        go_on.set()
        writer.join()
    assert (tmp_path / RECOVERY_POINTS).read_text() == "0\n1\norders 0 1\n"
    home.write_checkpoints()
    assert (tmp_path / RECOVERY_POINTS).read_text() == "0\n2\norders 0 1\nclicks 3 2\n"
    home.leave()


def test_who_has_left_writes_nothing(tmp_path: Path) -> None:
    home = data_directory.enter(tmp_path)
    home.leave()
    home.note(ORDERS, recovery_point=1)
    with pytest.raises(KsegError, match="has ended"):
        home.write_checkpoints()
    assert not (tmp_path / RECOVERY_POINTS).exists()


def test_who_is_refused_before_loading_does_not_vouch_for_a_log_that_failed(
    tmp_path: Path,
) -> None:
    partition(tmp_path, "orders-0")
    (tmp_path / MARK).touch()
    others = data_directory.enter(tmp_path)
    worked_in(tmp_path, "orders-0", clean=False)
    refused = data_directory.enter(tmp_path)
    refused.claim("orders-0")
    refused.leave()
    assert not others.is_clean("orders-0")
    others.leave()
    assert not (tmp_path / MARK).exists()


# What files go on the word of


def test_what_a_log_noted_before_it_failed_is_written_before_it_is_loaded(tmp_path: Path) -> None:
    partition(tmp_path, "orders-0")
    others = data_directory.enter(tmp_path)
    failed = data_directory.enter(tmp_path)
    failed.claim("orders-0")
    failed.settle_offsets()
    failed.mark_loaded()
    failed.note(ORDERS, log_start_offset=16)
    failed.leave(clean=False)
    assert not (tmp_path / LOG_STARTS).exists()
    again = data_directory.enter(tmp_path)
    again.claim("orders-0")
    with refusing("pwritev", code=28), pytest.raises(OSError, match="No space"):
        again.settle_offsets()
    again.settle_offsets()
    assert (tmp_path / LOG_STARTS).read_text() == "0\n1\norders 0 16\n"
    again.leave()
    others.leave()


def test_new_entries_have_one_order_whichever_is_done_first(tmp_path: Path) -> None:
    partitions = [TopicPartition(name, number) for name in ("b", "a") for number in (10, 9)]
    texts = set()
    for order in (partitions, partitions[::-1]):
        home = data_directory.enter(tmp_path)
        for number, one in enumerate(order):
            home.note(one, recovery_point=number if order is partitions else 3 - number)
        home.leave()
        texts.add((tmp_path / RECOVERY_POINTS).read_text())
        (tmp_path / RECOVERY_POINTS).unlink()
    assert texts == {"0\n4\na 9 3\na 10 2\nb 9 1\nb 10 0\n"}
