"""No mark of a clean stop stands over an index whose unused entries Kafka would believe."""

from __future__ import annotations

import os
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from kseg.analysis.doctor import doctor
from kseg.analysis.verify import verify
from kseg.change.run import copy_partition
from kseg.files import metadata
from kseg.log import index_rules
from kseg.log.config import LogConfig
from kseg.log.data_directory import TopicPartition, enter
from kseg.log.log import Log
from kseg.log.recovery.recover import recover
from kseg.log.recovery.reindex import plan_reindex
from kseg.log.writer.truncate import plan_truncation
from tests.builders import batch, record
from tests.unit.cli.conftest import Kseg
from tests.unit.cli.conftest import kseg as kseg

NOW = 1_700_000_000_000
CONFIG = LogConfig(segment_bytes=16_000, retention_ms=-1)
ROOM = {"index": 96_000, "timeindex": 96_000}
RECORDS = 40
#: The base offsets of the first and the last segment.
FIRST, LAST = 0, 36


def partition(data: Path, name: str = "t-0") -> Path:
    """Four segments of batches of 1.3 KB, closed in good order."""
    with Log.open(
        data / name, mode="append", create=True, config=CONFIG, now_ms=lambda: NOW
    ) as log:
        for number in range(RECORDS):
            log.append(batch([record(bytes(1_250), timestamp=NOW + number)]))
    return data / name


def of(directory: Path, base: int, kind: str) -> Path:
    return directory / f"{base:020d}.{kind}"


def grow(*kinds: str, base: int = LAST) -> Callable[[Path], None]:
    """Room for entries behind those of some indexes, as a killed broker leaves it."""

    def do(directory: Path) -> None:
        for kind in kinds:
            os.truncate(of(directory, base, kind), ROOM[kind])

    return do


def zeros_alone(directory: Path) -> None:
    of(directory, LAST, "timeindex").write_bytes(bytes(12))


def without_the_last_time(directory: Path) -> None:
    path = of(directory, LAST, "timeindex")
    path.write_bytes(struct.pack(">qi", NOW + LAST, 0))


def empty_last(directory: Path) -> None:
    """A segment was begun, and nothing is in it yet."""
    for kind, size in {"log": 0, **ROOM}.items():
        of(directory, RECORDS, kind).touch()
        os.truncate(of(directory, RECORDS, kind), size)


def damaged(directory: Path) -> None:
    """A closed segment whose log cannot be believed either."""
    grow("index", "timeindex", base=FIRST)(directory)
    with open(of(directory, FIRST, "log"), "r+b") as file:
        file.seek(5_000)
        file.write(b"\xff")


DAMAGE = {
    "both": grow("index", "timeindex"),
    "offset index": grow("index"),
    "time index": grow("timeindex"),
    "one entry of zeros": zeros_alone,
    "no entry for the last time": without_the_last_time,
    "an empty segment": empty_last,
    "a closed segment": grow("index", "timeindex", base=FIRST),
    "a damaged segment": damaged,
}


def recovered(directory: Path) -> None:
    recover(directory, config=CONFIG, keep_cut=False)


def recovered_as_broker(directory: Path) -> None:
    recover(directory, config=CONFIG, keep_cut=False, as_broker=True)


def reindexed(directory: Path) -> None:
    plan_reindex(directory, config=CONFIG).apply(keep=False)


def opened(directory: Path) -> None:
    Log.open(directory, mode="append", recover=True, config=CONFIG).close()


def truncated(directory: Path) -> None:
    if metadata.read_clean_shutdown(directory.parent) is None:
        recovered(directory)
    plan_truncation(directory, RECORDS - 1).apply(config=CONFIG, keep_cut=False)


def copied(directory: Path) -> None:
    copy_partition(directory, directory.parent.with_name("copy"))


VERBS = {
    one.__name__: one
    for one in (recovered, recovered_as_broker, reindexed, opened, truncated, copied)
}


def marked(data: Path) -> bool:
    return metadata.read_clean_shutdown(data) is not None


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory with one of them, not to be changed."""
    return partition(tmp_path_factory.mktemp("written") / "data").parent


@pytest.mark.damages("one of its harms stays in a closed segment")
@pytest.mark.parametrize("mark", [True, False], ids=["mark", "no mark"])
@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("verb", VERBS)
def test_a_mark_stands_only_over_indexes_as_after_a_close(
    written: Path, tmp_path: Path, verb: str, damage: str, mark: bool
) -> None:
    directory = Path(shutil.copytree(written, tmp_path / "data")) / "t-0"
    DAMAGE[damage](directory)
    if not mark:
        (tmp_path / "data" / ".kafka_cleanshutdown").unlink()
    VERBS[verb](directory)
    for data in (tmp_path / "data", tmp_path / "copy"):
        touched = data.is_dir() and (data.name == "copy" or verb != "copied")
        if touched and marked(data):
            assert index_rules.is_as_closed(data / "t-0")
    if verb in ("recovered", "opened") and (mark or damage != "a damaged segment"):
        assert marked(tmp_path / "data")
        with Log.open(directory) as log:
            assert log.log_end_offset == RECORDS


def test_the_command_line_says_that_the_mark_is_gone(kseg: Kseg, tmp_path: Path) -> None:
    data = tmp_path / "data"
    partition(data)
    grow("timeindex")(partition(data, "t-1"))
    done = kseg("truncate", data / "t-0", "--to", RECORDS - 1, "--apply", "--no-backup")
    assert not marked(data)
    *_, said, command = done.err.splitlines()
    assert "the mark of a clean stop is gone" in said
    assert command == f"kseg recover {data} --apply"
    assert kseg(*command.split()[1:]).code == 0
    assert marked(data)
    assert index_rules.is_as_closed(data / "t-1")


@pytest.mark.parametrize(
    ("name", "kept"),
    [
        (f"t-1.{'0' * 32}-future", False),
        (f"t-1.{'0' * 32}-stray", False),
        (f"t-1.{'0' * 32}-delete", True),
        ("__cluster_metadata-0", True),
    ],
)
def test_the_mark_speaks_for_what_kafka_loads_by_it(tmp_path: Path, name: str, kept: bool) -> None:
    data = tmp_path / "data"
    partition(data)
    partition(data, "t-1").rename(data / name)
    grow("timeindex")(data / name)
    enter(data).leave()
    assert marked(data) == kept


def test_a_time_of_zero_at_the_base_offset_is_an_entry(tmp_path: Path) -> None:
    directory = tmp_path / "data" / "t-0"
    with Log.open(directory, mode="append", create=True, now_ms=lambda: 0) as log:
        log.append(batch([record(b"x", timestamp=0)]))
    assert of(directory, 0, "timeindex").read_bytes() == bytes(12)
    assert index_rules.is_as_closed(directory)
    assert verify(tmp_path / "data").findings == ()
    assert plan_reindex(directory).is_noop


@pytest.mark.parametrize(
    ("mark", "point", "base", "reported"),
    [
        (True, 0, LAST, True),
        (True, 0, FIRST, True),
        (False, RECORDS, LAST, False),
        (False, RECORDS, FIRST, True),
        (False, 12, FIRST, True),
        (False, 11, FIRST, False),
    ],
)
def test_verify_and_doctor_report_unused_entries_that_a_start_believes(
    tmp_path: Path, mark: bool, point: int, base: int, reported: bool
) -> None:
    data = tmp_path / "data"
    grow("timeindex", base=base)(partition(data))
    lease = enter(data)
    lease.note(TopicPartition("t", 0), recovery_point=point)
    lease.write_checkpoints()
    lease.leave(clean=False)
    if mark:
        metadata.write_clean_shutdown(data, -1)
    found = [(each.code, each.severity) for each in verify(data).findings]
    assert found == ([("index-unused", "error")] if reported else [])
    assert doctor_says(data) == reported


def doctor_says(data: Path) -> bool:
    (home,) = doctor(data).directories
    (outlook,) = home.partitions
    return "index-unused" in [finding.code for finding in outlook.findings]


def test_doctor_looks_at_the_time_index_alone_and_past_its_torn_end(tmp_path: Path) -> None:
    """Unused entries of an offset index make a broker read from further in front."""
    data = tmp_path / "data"
    directory = partition(data)
    grow("index")(directory)
    assert not doctor_says(data)
    of(directory, LAST, "index").write_bytes(b"torn")
    times = of(directory, LAST, "timeindex")
    os.truncate(times, times.stat().st_size + 30)
    assert doctor_says(data)
