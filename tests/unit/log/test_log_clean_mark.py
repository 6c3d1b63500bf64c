"""What the mark of a clean shutdown says of the broker's epoch, after each kind of change."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kseg.files import metadata
from kseg.log.config import LogConfig
from kseg.log.directory import LogDirectory
from kseg.log.log import Log
from kseg.log.recovery.recover import recover
from kseg.log.recovery.reindex import plan_reindex
from tests.builders import batch, record

EPOCH, LOST = 10, metadata.BROKER_EPOCH_UNKNOWN
CONFIG = LogConfig(segment_bytes=400, retention_ms=-1)
NAME = "orders-0"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A log of ten records in five segments, left by a broker of epoch 10."""
    with Log.open(tmp_path / NAME, mode="append", create=True, config=CONFIG) as log:
        for _ in range(10):
            log.append(batch([record(bytes(100))]))
    metadata.write_clean_shutdown(tmp_path, EPOCH)
    return tmp_path


def through(change: Callable[[Log], object]) -> Callable[[Path], None]:
    def do(data: Path) -> None:
        with Log.open(data / NAME, mode="append", config=CONFIG) as log:
            change(log)

    return do


def retain(log: Log) -> None:
    log.update_config(CONFIG.with_changes(retention_bytes=400))
    assert log.delete_old_segments().segments_count


def delete(data: Path) -> None:
    with LogDirectory.open(data, mode="append", config=CONFIG) as directory:
        directory.delete("orders", 0)


def create(data: Path) -> None:
    with LogDirectory.open(data, mode="append", config=CONFIG) as directory:
        directory.create("clicks", 0).truncate_fully_and_start_at(7)


def reindex(data: Path) -> None:
    plan_reindex(data / NAME, config=CONFIG).apply(keep=False)


def torn(then: Callable[[Path], object]) -> Callable[[Path], None]:
    """Half a batch behind the last segment's end."""

    def do(data: Path) -> None:
        with max((data / NAME).glob("*.log")).open("ab") as log:
            log.write(batch([record(bytes(100))], base_offset=10)[:-20])
        then(data)

    return do


def without_an_index(then: Callable[[Path], object]) -> Callable[[Path], None]:
    def do(data: Path) -> None:
        max((data / NAME).glob("*.index")).unlink()
        then(data)

    return do


def waiting_for_removal(data: Path) -> None:
    (data / NAME / f"{0:020d}.log.deleted").touch()
    through(lambda log: None)(data)


def recovered(data: Path) -> None:
    recover(data / NAME, keep_cut=False)


KEEPS = {
    "opening": through(lambda log: None),
    "an append": through(lambda log: log.append(batch([record(b"")]))),
    "a cut at the end": through(lambda log: log.truncate_to(10)),
    "retention": through(retain),
    "deleted records": through(lambda log: log.delete_records_before(5)),
    "a removal that was due": waiting_for_removal,
    "a new log": create,
    "a recovery with nothing to do": recovered,
    "indexes that are right": reindex,
}
LOSES = {
    "a cut": through(lambda log: log.truncate_to(9)),
    "a cut of a whole segment": through(lambda log: log.truncate_to(3)),
    "a cut of all": through(lambda log: log.truncate_fully_and_start_at(20)),
    "a deleted log": delete,
    "a torn tail and opening": torn(through(lambda log: None)),
    "a torn tail and a recovery": torn(recovered),
    "a missing index and opening": without_an_index(through(lambda log: None)),
    "a missing index and a recovery": without_an_index(recovered),
    "a missing index that is made": without_an_index(reindex),
}


@pytest.mark.parametrize("name", KEEPS | LOSES)
def test_the_epoch_goes_with_what_goes_from_an_end_and_with_every_repair(
    data: Path, name: str
) -> None:
    (KEEPS | LOSES)[name](data)
    epoch = EPOCH if name in KEEPS else LOST
    assert metadata.read_clean_shutdown(data) == metadata.CleanShutdown(epoch)
