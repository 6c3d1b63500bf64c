"""`kseg recover`: what is planned, what is done, and what is kept of it."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kseg.change import recover as recovering
from kseg.cli import output
from kseg.cli.output import Bar
from kseg.files.checkpoints import TopicPartition, read_offset_checkpoint
from kseg.files.metadata import CleanShutdown, read_clean_shutdown
from kseg.log.log import Log
from kseg.reports import RecoveryReport
from tests.golden import made
from tests.unit.cli.conftest import Kseg, made_in
from tests.unit.log.damaged import NOW, logs
from tests.unit.log.logs import one, open_log

HOW = (
    *("--config", "segment.bytes=500", "--config", "index.interval.bytes=100"),
    *("--config", "segment.index.bytes=240", "--now", str(NOW)),
)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return made_in(tmp_path, made.torn)


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
    real, noted = recovering.recover, []
    point = data / "recovery-point-offset-checkpoint"

    def interrupted(path: Path, **how: Any) -> RecoveryReport:
        if path.name == "t-1":
            while not point.exists():
                time.sleep(0.01)
            noted.append(read_offset_checkpoint(point))
            raise KeyboardInterrupt
        return real(path, **how)

    monkeypatch.setattr(recovering, "recover", interrupted)
    monkeypatch.setattr(recovering, "_NOTED_SECONDS", -1.0)
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
