"""The dates of `kseg explain`, held to Kafka's own retention: `UnifiedLog.deleteOldSegments`.

The clock is moved one second in front of each date, and one behind. They need Maven and a Java
compiler; without them these tests are skipped, but never where CI is set.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from kseg import explain
from kseg.analysis.explain import KeptFile
from tests.interop.kafka import Kafka
from tests.unit.analysis.test_explain import AGES, CASES, DATED, DAY_MS, NOW_MS, WEEK, Case, made

#: For its lifetime a log has these, beside what its case says.
_BESIDE = {"segment.bytes": "400", "message.timestamp.after.max.ms": str(2**63 - 1)}
_MS = {"retention.ms": str(30 * DAY_MS)}
#: Some segments that have the dates of others in front of them, or the file's own.
ORDERS = {
    "newest first": (0, 1, 8, 9),
    "newest in the middle": (9, 0, 8, 1),
    "all of one time": (3, 3, 3, 3),
    "half in the future": (-1, 5, -2, 5),
    "no times": ((NOW_MS + 1.5) / DAY_MS,) * 4,
}
#: Here no segment with a date may go.
HELD = "above the high watermark"
DATES = {
    **{name: CASES[name] for name in DATED if name != HELD},
    **{name: Case({}, ages=ages, given=_MS) for name, ages in ORDERS.items()},
}


def left_by_kafka(kafka_logs: Kafka, copy: Path, config: dict[str, str], now_ms: int) -> set[int]:
    """Base offsets that retention leaves at a time."""
    asked = {
        "op": "log",
        "dir": str(copy),
        "config": config,
        "now_ms": now_ms,
        "clean": True,
        "steps": [{"do": "retain"}],
        "close": "crash",
    }
    (answer,) = kafka_logs.ask([asked])
    assert "error" not in answer, answer
    assert "error" not in answer["steps"][0], answer
    return {each["base_offset"] for each in answer["left"]["segments"]}


@pytest.mark.parametrize("name", DATES)
def test_kafka_deletes_behind_a_date_and_not_in_front(
    kafka_logs: Kafka, tmp_path: Path, name: str
) -> None:
    case = DATES[name]
    path = made(tmp_path / "data", replace(case))
    for number, log in enumerate(sorted(path.glob("*.log"))):
        time = (NOW_MS - number * DAY_MS) / 1000
        os.utime(log, (time, time))  # it counts where no record has a time
    found = explain(tmp_path / "data", config=case.given, now_ms=NOW_MS)
    rows = [row for one in found.partitions for row in one.rows if row.until_ms is not None]
    checked = [row for row in rows if not row.is_held]
    config = {**_BESIDE, **(case.given or WEEK)}
    for row in checked:
        for shift, goes in ((-1000, False), (-1, False), (0, True), (1000, True)):
            left = left_by_kafka(kafka_logs, copied(path, tmp_path), config, _date(row) + shift)
            assert (row.base_offset not in left) is goes, (row, shift, left)
    assert len(checked) >= 2


def _date(row: KeptFile) -> int:
    assert row.until_ms is not None
    return row.until_ms


def copied(path: Path, home: Path) -> Path:
    """The partition again, with its files' times."""
    shutil.rmtree(home / "copy", ignore_errors=True)
    return shutil.copytree(path, home / "copy" / path.name)


def test_what_is_due_is_what_kafka_deletes_now(kafka_logs: Kafka, tmp_path: Path) -> None:
    for number, name in enumerate(("by time", "over the size limit", "a time in the future")):
        case = CASES[name]
        path = made(tmp_path / str(number), case)
        found = explain(tmp_path / str(number), config=case.given, now_ms=NOW_MS)
        due = {row.base_offset for row in found.rows() if row.cause == "due"}
        config = {**_BESIDE, "retention.ms": "-1", **case.given}
        left = left_by_kafka(kafka_logs, copied(path, tmp_path), config, NOW_MS)
        assert due == set(range(len(AGES))) - left
