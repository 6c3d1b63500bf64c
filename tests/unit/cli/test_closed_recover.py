"""`kseg recover`: what is planned, what is done, and what is kept of it."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kseg.cli import output
from kseg.cli.output import Bar
from kseg.files.checkpoints import TopicPartition, read_offset_checkpoint
from kseg.files.metadata import CleanShutdown, read_clean_shutdown
from kseg.log import closed
from kseg.log.log import Log
from kseg.reports import RecoveryReport
from tests.unit.cli.conftest import Kseg
from tests.unit.files.foreign import holding
from tests.unit.log import damaged
from tests.unit.log.damaged import NOW, content, logs
from tests.unit.log.logs import one, open_log

HOW = (
    *("--config", "segment.bytes=500", "--config", "index.interval.bytes=100"),
    *("--config", "segment.index.bytes=240", "--now", str(NOW)),
)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A partition that was closed in good order; not to be touched."""
    return damaged.write(tmp_path_factory.mktemp("written") / "data")


@pytest.fixture
def data(written: Path, tmp_path: Path) -> Path:
    """A data directory with a torn `t-0` and a sound `t-1`, not shut down cleanly."""
    path = tmp_path / "data"
    for name in ("t-0", "t-1"):
        shutil.copytree(written, path / name)
    damaged.torn(path / "t-0")
    return path


def test_a_dry_run_tells_of_a_writer(kseg: Kseg, data: Path) -> None:
    with holding(data) as process:
        ran = kseg("recover", data / "t-0", *HOW)
    assert ran.code == 1
    assert f"process {process} holds the directory and may be writing to it" in ran.err


def test_a_mark_that_is_all_that_is_missing_is_told_of(kseg: Kseg, data: Path) -> None:
    assert kseg("recover", data, *HOW, "--apply").code == 0
    assert kseg("recover", data, *HOW).err == ""
    (data / ".kafka_cleanshutdown").unlink()
    ran = kseg("recover", data, *HOW)
    assert (ran.code, ran.text.splitlines()[-1]) == (0, "nothing to do")
    assert f"{data}: no mark of a clean stop; --apply writes it" in ran.err


def test_a_mark_that_waits_for_others_is_not_promised(kseg: Kseg, data: Path) -> None:
    waits = f"{data}: no mark of a clean stop: it takes all in one run, t-1 too"
    assert waits in kseg("recover", data / "t-0", *HOW, "--apply").err
    assert waits in kseg("recover", data / "t-0", *HOW).err
    assert kseg("recover", data, *HOW, "--apply").err == ""
    shutil.copytree(data / "t-1", data / "t-1.copy")
    (data / ".kafka_cleanshutdown").unlink()
    for words in ((), ("--apply",)):
        ran = kseg("recover", data, *HOW, *words)
        assert (ran.code, ran.text.splitlines()[-1]) == (0, "nothing to do")
        assert "it takes all in one run, t-1.copy too" in ran.err


def test_apply_does_it_and_keeps_what_goes(kseg: Kseg, data: Path) -> None:
    torn = logs(data / "t-0")[-1].read_bytes()
    ran = kseg("recover", data / "t-0", *HOW, "--apply")
    assert ran.code == 0
    (place,) = data.with_name("data.kseg-backup").iterdir()
    assert f"removed bytes are kept in {place}" in ran.text
    assert (place / "t-0" / f"{23:020d}.log.from-129").read_bytes() == torn[129:]
    again = kseg("recover", data / "t-0", *HOW)
    assert (again.code, "nothing to do" in again.text) == (0, True)
    assert not (data / ".lock").exists()


def test_another_place_or_none_for_what_goes(kseg: Kseg, data: Path, tmp_path: Path) -> None:
    there = tmp_path / "there"
    assert kseg("recover", data / "t-0", *HOW, "--apply", "--backup-dir", there).code == 0
    assert (there / "t-0" / f"{23:020d}.log.from-129").exists()
    damaged.zeros(data / "t-1")
    damaged.torn(data / "t-1")
    assert kseg("recover", data / "t-1", *HOW, "--apply", "--no-backup").code == 0
    assert not data.with_name("data.kseg-backup").exists()


def test_all_partitions_of_a_data_directory(kseg: Kseg, data: Path) -> None:
    ran = kseg("recover", data, *HOW, "--json")
    document = ran.document
    assert ran.code == 1
    assert document["truncated_bytes"] == 122
    assert document["log_end_offset"] is None
    ends = [(Path(p["path"]).name, p["log_end_offset"]) for p in document["partitions"]]
    assert ends == [("t-0", 24), ("t-1", 25)]
    assert kseg("recover", data, *HOW, "--apply").code == 0
    assert kseg("recover", data, *HOW).code == 0


@pytest.mark.parametrize("jobs", [1, 3])
def test_all_data_directories_of_a_broker_get_their_marks(
    kseg: Kseg, data: Path, tmp_path: Path, jobs: int
) -> None:
    second = tmp_path / "second"
    for name in ("t-2", "t-3"):
        shutil.copytree(data / "t-0", second / name)
    ran = kseg("recover", data, second, *HOW, "--apply", "--json", "--jobs", jobs)
    assert (ran.code, ran.document["path"]) == (0, [str(data), str(second)])
    ends = {Path(p["path"]).name: p["log_end_offset"] for p in ran.document["partitions"]}
    assert ends == {"t-0": 24, "t-1": 25, "t-2": 24, "t-3": 24}
    for home in (data, second):
        assert read_clean_shutdown(home) == CleanShutdown(-1)
        points = read_offset_checkpoint(home / "recovery-point-offset-checkpoint")
        assert {f"t-{one.partition}": end for one, end in points.items()} == {
            path.name: ends[path.name] for path in home.glob("t-*")
        }


def test_one_that_cannot_be_recovered_keeps_the_mark_of_its_directory_alone(
    kseg: Kseg, data: Path, tmp_path: Path
) -> None:
    second = tmp_path / "second"
    shutil.copytree(data / "t-0", second / "t-2")
    first, other = logs(data / "t-1")[:2]
    shutil.copy(first, other)
    before = content(data / "t-1")
    ran = kseg("recover", data, second, *HOW, "--apply", "--jobs", "2")
    assert ran.code == 1
    assert "left as it is" in ran.err
    assert content(data / "t-1") == before
    with Log.open(data / "t-0") as log:
        assert log.log_end_offset == 24
    assert read_clean_shutdown(data) is None
    assert read_clean_shutdown(second) == CleanShutdown(-1)


def test_there_is_one_bar_for_all(kseg: Kseg, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second bar beside it would be refused, or torn, by the terminal."""
    first, other = logs(data / "t-1")[:2]
    shutil.copy(first, other)
    bars = []

    @contextmanager
    def bar(*given: object, in_bytes: bool = False) -> Iterator[Bar]:
        bars.append(given)
        yield Bar()

    monkeypatch.setattr(output, "progress", bar)
    assert kseg("recover", data, *HOW, "--apply").code == 1
    assert len(bars) == 1


def test_an_interrupted_run_goes_on_where_it_was(
    kseg: Kseg, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is recovered is noted at once: a run that is killed then has it on the disk."""
    real, noted = closed.recover, []
    point = data / "recovery-point-offset-checkpoint"

    def interrupted(path: Path, **how: Any) -> RecoveryReport:
        if path.name == "t-1":
            while not point.exists():
                time.sleep(0.01)
            noted.append(read_offset_checkpoint(point))
            raise KeyboardInterrupt
        return real(path, **how)

    monkeypatch.setattr(closed, "recover", interrupted)
    monkeypatch.setattr(closed, "_NOTED_SECONDS", -1.0)
    ran = kseg("recover", data, *HOW, "--apply", "--jobs", "2")
    assert (ran.code, "interrupted: 1 of 2 partitions are in order" in ran.err) == (130, True)
    assert noted == [{TopicPartition("t", 0): 24}]
    assert read_clean_shutdown(data) is None
    monkeypatch.undo()
    document = kseg("recover", data, *HOW, "--json").document
    assert [part["recovery_point"] for part in document["partitions"]] == [24, 0]
    ran = kseg("recover", data, *HOW, "--apply")
    assert (ran.code, "2 partitions in order, mark" in ran.text) == (0, True)
    assert read_clean_shutdown(data) == CleanShutdown(-1)


def test_without_a_terminal_a_long_run_writes_a_line_a_minute(
    kseg: Kseg, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "0/2 partitions" not in kseg("recover", data, *HOW).err
    monkeypatch.setattr(output, "_LINE_SECONDS", 0)
    assert "recover 1/2 partitions: " in kseg("recover", data, *HOW).err


def test_a_copy_is_mended_and_the_original_left_alone(
    kseg: Kseg, data: Path, tmp_path: Path
) -> None:
    before = content(data / "t-0")
    assert kseg("recover", data / "t-0", *HOW, "-o", tmp_path / "copies").code == 0
    assert content(data / "t-0") == before
    with Log.open(tmp_path / "copies" / "t-0") as log:
        assert log.log_end_offset == 24


@pytest.mark.parametrize("records", [0, 3])
def test_the_epoch_of_a_leader_without_records_is_nothing_to_recover(
    kseg: Kseg, tmp_path: Path, records: int
) -> None:
    with open_log(tmp_path / "data" / "t-0", create=True) as log:
        for _ in range(records):
            log.append(one())
    epochs = tmp_path / "data" / "t-0" / "leader-epoch-checkpoint"
    said = f"0\n{2 if records else 1}\n{'0 0' + chr(10) if records else ''}7 {records}\n"
    epochs.write_text(said)
    ran = kseg("recover", tmp_path / "data")
    assert (ran.code, "nothing to do" in ran.text) == (0, True)
    with Log.open(tmp_path / "data" / "t-0", mode="append") as log:
        log.append(one())
    assert epochs.read_text() == ("0\n1\n0 0\n")


def test_as_a_broker_does_it_after_a_clean_stop(kseg: Kseg, data: Path) -> None:
    ran = kseg("recover", data / "t-0", *HOW, "--as-broker", "--clean", "--json")
    assert (ran.document["clean"], ran.document["log_end_offset"]) == (True, 23)
    assert (ran.document["findings"], ran.document["truncated_at"]) == ([], None)
    ours = kseg("recover", data / "t-0", *HOW, "--clean", "--json")
    assert ours.document["log_end_offset"] == 24


def test_the_mark_beside_the_partition_says_whether_it_is_clean(kseg: Kseg, data: Path) -> None:
    (data / ".kafka_cleanshutdown").write_bytes(b"")
    assert kseg("recover", data / "t-1", *HOW, "--json").document["clean"]
    assert not kseg("recover", data / "t-1", *HOW, "--unclean", "--json").document["clean"]


def test_offsets_in_place_of_the_checkpoints(kseg: Kseg, data: Path) -> None:
    how = ("--recovery-point", "23", "--log-start-offset", "4")
    document = kseg("recover", data / "t-0", *HOW, *how, "--json").document
    assert (document["recovery_point"], document["log_start_offset"]) == (23, 4)
    ran = kseg("recover", data, *how)
    assert (ran.code, "one partition" in ran.err) == (2, True)


def test_what_cannot_be_loaded_is_said_and_left_alone(kseg: Kseg, data: Path) -> None:
    first, second = logs(data / "t-1")[:2]
    shutil.copy(first, second)
    before = content(data / "t-1")
    looked = kseg("recover", data / "t-1", *HOW)
    assert (looked.code, "cannot be loaded" in looked.text) == (1, True)
    done = kseg("recover", data / "t-1", *HOW, "--apply")
    assert (done.code, "out of order" in done.err) == (1, True), done.err
    assert content(data / "t-1") == before


def test_a_held_directory_is_looked_at_and_not_changed(kseg: Kseg, data: Path) -> None:
    before = content(data / "t-0")
    with holding(data):
        assert kseg("recover", data / "t-0", *HOW).code == 1
        ran = kseg("recover", data / "t-0", *HOW, "--apply")
    assert (ran.code, content(data / "t-0") == before) == (3, True)


def test_what_contradicts_itself_is_refused(kseg: Kseg, data: Path, tmp_path: Path) -> None:
    for how in (("--apply", "-o", tmp_path / "x"), ("--no-backup", "--backup-dir", tmp_path)):
        assert kseg("recover", data / "t-0", *how).code == 2
    assert kseg("recover", tmp_path / "missing").code == 3


def test_a_start_beyond_the_end_is_left_alone_unless_it_is_asked_for(
    kseg: Kseg, data: Path
) -> None:
    (data / "log-start-offset-checkpoint").write_text("0\n1\nt 1 999\n")
    before = logs(data / "t-1")
    for how in ((), ("--apply",), ("--as-broker", "--apply")):
        ran = kseg("recover", data / "t-1", *HOW, *how)
        assert ran.code == 1
        lines = ran.text.splitlines()
        assert lines[0] == (
            f"{data}/t-1: log-start-offset-checkpoint says 999, the log ends at 25: Kafka deletes "
            "all its records"
        )
        assert lines[2] == f"sed -i 's/^t 1 999$/t 1 0/' {data}/log-start-offset-checkpoint"
        assert logs(data / "t-1") == before
    assert kseg("recover", data, *HOW, "--apply").code == 1
    assert logs(data / "t-1") == before
    assert read_clean_shutdown(data) is None
    assert kseg("recover", data / "t-1", *HOW, "--apply", "--log-start-offset", "999").code == 0
    assert logs(data / "t-1") != before
