"""What is left on a full disk that kseg has freed, Kafka 4.2.0 loads as it lies."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kseg.files.metadata import remove_clean_shutdown
from kseg.log.config import LogConfig
from kseg.log.log import Log
from kseg.log.recovery.recover import recover
from tests import full_disk
from tests.interop.test_sink_output import (
    NOW,
    Classes,
    ask,
    kafka,
    loaded,
    read_through,
    seen_by_kseg,
    state_of,
)
from tests.unit.log.logs import one

__all__ = ["kafka"]

pytestmark = pytest.mark.timeout(600)

CONFIG = LogConfig(segment_bytes=50_000, retention_bytes=60_000, retention_ms=-1)


def opened(path: Path) -> Log:
    return Log.open(path, mode="append", create=True, config=CONFIG, now_ms=lambda: NOW)


def retained(path: Path) -> None:
    with opened(path) as log:
        log.delete_old_segments()


def deleted(path: Path) -> None:
    with opened(path) as log:
        log.delete_records_before(31)


def truncated(path: Path) -> None:
    with opened(path) as log:
        log.truncate_to(22)


def recovered(path: Path) -> None:
    recover(path, config=CONFIG, now_ms=NOW, keep_cut=False)


#: How the disk is freed, and which offsets are left then.
FREED: dict[str, tuple[Callable[[Path], None], range]] = {
    "retain": (retained, range(36, 50)),
    "delete records": (deleted, range(31, 50)),
    "truncate": (truncated, range(22)),
    "recover": (recovered, range(50)),
}


def half_a_batch(path: Path) -> None:
    """The process died as the disk became full."""
    remove_clean_shutdown(path.parent)
    last = max(path.glob("*.log"))
    last.write_bytes(last.read_bytes() + one(b"." * 40_000)[:30_000])


@pytest.mark.parametrize("how", FREED)
def test_kafka_loads_what_is_left_on_a_disk_that_was_full(
    kafka: Classes,
    tmp_path: Path,
    how: str,
) -> None:
    path, (free, left) = tmp_path / "data" / "orders-0", FREED[how]
    path.parent.mkdir()
    with opened(path) as log:
        for number in range(50):
            log.append(one(b"%05d" % number * 1000, time=NOW))
    if how == "recover":
        half_a_batch(path)
    with full_disk.full() as disk:
        free(path)
    assert disk.refused
    ours, before = seen_by_kseg(path), state_of(path)
    beside = ask(kafka.logs, op="beside", dir=str(path.parent))
    assert (beside["clean"], beside["recovery_points"]) == (True, {path.name: left.stop})
    answer = loaded(kafka, path, read_through(ours["segments"]))
    told = answer["loaded"]
    assert {part: told[part] for part in ours} == ours
    assert (told["log_start_offset"], told["log_end_offset"]) == (left.start, left.stop)
    logs = {name: data for name, data in before.items() if name.endswith(".log")}
    assert {name: data for name, data in state_of(path).items() if name in logs} == logs
