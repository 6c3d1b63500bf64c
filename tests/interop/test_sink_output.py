"""What Spark's sink has written, Kafka 4.2.0 loads as it lies, and goes on with.

They need Maven and a Java compiler; without them these tests are skipped, but never where CI is
set.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from kseg.analysis.verify import verify
from kseg.log.log import Log
from kseg.spark.sink import SinkPaths, commit
from kseg.spark.staging import parse_sink_options, stage
from tests.builders import batch, record
from tests.interop import sink_jobs
from tests.interop.contents import contents
from tests.interop.kafka import RELEASE, Kafka, needed, unbase64

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

CONFIG = {"retention.ms": "-1"}
DIRECTORIES = ("assigned", "preserved", "streamed")
NOW = sink_jobs.BEGIN_MS + 86_400_000
JOBS_SECONDS_MAX = 500


@dataclass(frozen=True, slots=True)
class Classes:
    """Kafka's log, and what reads its bytes."""

    logs: Kafka
    bytes: Kafka


@pytest.fixture(scope="module")
def kafka() -> Iterator[Classes]:
    with needed():
        logs = Kafka(RELEASE, "logs")
    with logs, Kafka(RELEASE) as reader:
        yield Classes(logs, reader)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data directories of `sink_jobs`; one Spark for all of them."""
    home = tmp_path_factory.mktemp("jobs")
    words = [sys.executable, "-m", "tests.interop.sink_jobs", str(home)]
    done = subprocess.run(
        words, capture_output=True, text=True, timeout=JOBS_SECONDS_MAX, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return home


def logs_of(data: Path) -> list[Path]:
    return sorted(path for path in data.iterdir() if path.is_dir())


def ask(kafka: Kafka, **request: Any) -> dict[str, Any]:
    (answer,) = kafka.ask([request])
    assert "error" not in answer, answer
    return answer


def loaded(kafka: Classes, log: Path, steps: list[dict[str, Any]], **how: Any) -> dict[str, Any]:
    """Kafka loads a log with what lies beside it, does the steps, and stops in good order."""
    beside = ask(kafka.logs, op="beside", dir=str(log.parent))
    given = {
        "clean": beside["clean"],
        "recovery_point": beside["recovery_points"].get(log.name, 0),
        "log_start_offset": beside["log_start_offsets"].get(log.name, 0),
    }
    usual = {"config": CONFIG, "now_ms": NOW, "close": "clean", "steps": steps}
    return ask(kafka.logs, op="log", dir=str(log), **usual, **{**given, **how})


def seen_by_kseg(log: Path) -> dict[str, Any]:
    with Log.open(log) as opened:
        return {
            "log_start_offset": opened.log_start_offset,
            "log_end_offset": opened.log_end_offset,
            "epochs": [list(entry) for entry in opened.leader_epochs],
            "producers": [],
            "segments": [
                {"base_offset": one.base_offset, "size": one.size, "aborted": []}
                for one in opened.segments
            ],
        }


def read_through(segments: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Steps that read all that is in each segment."""
    return [
        {"do": "read", "from": one["base_offset"], "bytes": 2**20}
        for one in segments
        if one["size"]
    ]


def records(kafka: Classes, log: Path, answers: list[dict[str, Any]]) -> list[sink_jobs.Written]:
    """What Kafka reads out of the bytes that it has fetched."""
    topic, _, partition = log.name.rpartition("-")
    rows = []
    for answer in answers:
        parsed = ask(kafka.bytes, op="parse", data=unbase64(answer["data"]))
        for one in parsed["batches"]:
            assert one["crc_ok"]
            for offset, timestamp, _sequence, key, value, headers in one["records"]:
                named = tuple(
                    ((unbase64(name) or b"").decode(), unbase64(text)) for name, text in headers
                )
                fields = (offset, timestamp, unbase64(key), unbase64(value), named)
                rows.append(sink_jobs.Written(topic, int(partition), *fields))
    return rows


def state_of(log: Path) -> dict[str, tuple[bytes, tuple[int, int] | None]]:
    """Bytes of each file, and which file it is, since when.

    Kafka gives the last indexes room while it has them open, and writes the epochs whatever they
    are; their bytes alone are asked for.
    """
    last = max(log.glob("*.log")).stem
    opened = (f"{last}.index", f"{last}.timeindex", "leader-epoch-checkpoint")
    found = {}
    for path in log.iterdir():
        status = path.stat()
        since = None if path.name in opened else (status.st_ino, status.st_mtime_ns)
        found[path.name] = (path.read_bytes(), since)
    return found


@pytest.mark.parametrize("name", DIRECTORIES)
def test_kafka_loads_each_log_and_changes_no_byte(kafka: Classes, home: Path, name: str) -> None:
    data, expected = home / name, sink_jobs.expected(name)
    beside = ask(kafka.logs, op="beside", dir=str(data))
    ends = {log: rows[-1].offset + 1 for log, rows in expected.items()}
    assert (beside["clean"], beside["recovery_points"]) == (True, ends)
    assert [log.name for log in logs_of(data)] == sorted(expected)
    for log in logs_of(data):
        ours, before = seen_by_kseg(log), state_of(log)
        assert len(ours["segments"]) >= 3
        answer = loaded(kafka, log, read_through(ours["segments"]))
        told = answer["loaded"]
        assert {part: told[part] for part in ours} == ours
        assert told["recovery_point"] == ours["log_end_offset"] == ends[log.name]
        assert told["log_start_offset"] == expected[log.name][0].offset
        assert records(kafka, log, answer["steps"]) == expected[log.name]
        assert state_of(log) == before
    assert verify(data, deep=True).findings == ()


@pytest.mark.parametrize("name", DIRECTORIES)
def test_a_recovery_of_all_of_it_comes_to_the_same_files(
    kafka: Classes, home: Path, tmp_path: Path, name: str
) -> None:
    data = Path(shutil.copytree(home / name, tmp_path / name))
    for log in logs_of(data):
        before = contents(log)
        told = loaded(kafka, log, [], clean=False, recovery_point=0)["loaded"]
        assert told["log_end_offset"] == sink_jobs.expected(name)[log.name][-1].offset + 1
        assert contents(log) == before


@pytest.mark.parametrize("name", DIRECTORIES)
def test_a_broker_goes_on_with_it_and_another_job_with_what_the_broker_left(
    kafka: Classes, home: Path, tmp_path: Path, name: str
) -> None:
    data = Path(shutil.copytree(home / name, tmp_path / name))
    log = logs_of(data)[0]
    rows = sink_jobs.expected(name)[log.name]
    end, row = rows[-1].offset + 1, sink_jobs.written(1)
    produced = batch([record(b"produced", timestamp=NOW), record(b"too", timestamp=NOW)])
    appended = loaded(kafka, log, [{"do": "append", "epoch": 9, "data": produced}])
    assert appended["steps"][0]["first_offset"] == end
    ask(kafka.logs, op="beside", dir=str(data), leave={log.name: end + 2})

    options = parse_sink_options({"path": str(data), "topic": row.topic, **sink_jobs.SMALL})
    given = pa.RecordBatch.from_pydict(
        {
            "topic": [log.name.rpartition("-")[0]],
            "value": [row.value],
            "timestampMs": [row.timestamp],
        }
    )
    place = SinkPaths.of(options).attempt("next", 0, 0)
    assert commit([stage([given], place, 0, options)], "next", "next", options)

    before = state_of(log)
    ours = seen_by_kseg(log)
    assert ours["epochs"][-1] == [9, end]
    answer = loaded(kafka, log, read_through(ours["segments"]))
    assert {part: answer["loaded"][part] for part in ours} == ours
    found = records(kafka, log, answer["steps"])
    assert [one.offset for one in found[-3:]] == [end, end + 1, end + 2]
    assert [one.value for one in found[-3:]] == [b"produced", b"too", row.value]
    assert found[:-3] == rows
    assert state_of(log) == before
