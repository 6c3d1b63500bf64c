"""What a task stages, and what a commit makes of it: in order, once, whole, wherever stopped."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from subprocess import PIPE
from typing import Any

import pyarrow as pa
import pytest

from kseg.analysis.verify import verify
from kseg.errors import (
    AppendError,
    InconsistentTopicIdError,
    LogLockedError,
    OffsetsOutOfOrderError,
)
from kseg.records.scan import scan
from kseg.spark import sink
from kseg.spark.sink import SinkPaths, abort, commit
from kseg.spark.staging import SinkOptions, StagedTask, parse_sink_options, stage
from tests.stopping import Stopped, stopping_at

RECORD = ("offset", "timestamp", "timestamp_type", "key", "value", "headers")


def options(tmp_path: Path, **given: str) -> SinkOptions:
    return parse_sink_options({"path": str(tmp_path / "data"), "topic": "orders", **given})


def rows(first: int, count: int, **more: Any) -> pa.RecordBatch:
    numbers = range(first, first + count)
    columns: dict[str, Any] = {
        "value": [b"%d" % number for number in numbers],
        "timestamp": pa.array([1_000 * number for number in numbers], pa.timestamp("ms", "UTC")),
        **more,
    }
    return pa.RecordBatch.from_pydict(columns)


def staged(chosen: SinkOptions, job: str, *tasks: list[pa.RecordBatch]) -> list[StagedTask]:
    paths = SinkPaths.of(chosen)
    return [
        stage(batches, paths.attempt(job, number, 10 + number), number, chosen)
        for number, batches in enumerate(tasks)
    ]


def values(path: Path) -> list[tuple[int, bytes | None]]:
    return [
        (int(offset), value)
        for columns in scan(path, columns=("offset", "value"))
        for offset, value in zip(columns.offset, columns.value, strict=True)
    ]


def test_tasks_follow_each_other_and_a_second_job_the_first(tmp_path: Path) -> None:
    chosen = options(tmp_path, batchRecords="3")
    assert commit(staged(chosen, "a", [rows(0, 10), rows(10, 5)], [rows(15, 5)]), "a", "a", chosen)
    assert commit(staged(chosen, "b", [rows(20, 5)]), "b", "b", chosen)
    log = tmp_path / "data" / "orders-0"
    assert values(log) == [(number, b"%d" % number) for number in range(25)]
    assert verify(tmp_path / "data", deep=True).findings == ()
    assert not (tmp_path / "data.kseg-sink" / "jobs" / "a").exists()
    assert sorted(path.name for path in (tmp_path / "data.kseg-sink" / "commits").iterdir()) == [
        "a.json",
        "b.json",
    ]


def test_a_record_keeps_all_that_it_is_made_of(tmp_path: Path) -> None:
    headers = pa.array(
        [[("h", b"1"), ("h", None)], None],
        pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
    )
    given = rows(5, 2, key=[b"k", None], headers=headers)
    chosen = options(tmp_path, codec="zstd")
    commit(staged(chosen, "a", [given]), "a", "a", chosen)
    (columns,) = scan(tmp_path / "data" / "orders-0", columns=RECORD)
    first, second = columns.records()
    assert (first.key, first.value, first.timestamp) == (b"k", b"5", 5_000)
    assert first.headers == ((b"h", b"1"), (b"h", None))
    assert (second.key, second.headers) == (None, ())


def test_rows_are_shared_out_by_topic_and_partition_in_order(tmp_path: Path) -> None:
    given = rows(0, 8, topic=["a", "b", "a", None] * 2, Partition=pa.array([0, 0, 1, 2] * 2))
    chosen = options(tmp_path)
    (task,) = staged(chosen, "a", [given])
    assert list(task.partitions) == [
        ("a", 0), ("a", 1), ("b", 0), ("orders", 2),
    ]  # fmt: skip
    commit([task], "a", "a", chosen)
    assert values(tmp_path / "data" / "a-0") == [(0, b"0"), (1, b"4")]
    assert values(tmp_path / "data" / "orders-2") == [(0, b"3"), (1, b"7")]


def test_offsets_are_kept_where_asked(tmp_path: Path) -> None:
    chosen = options(tmp_path, offsets="preserve")
    late = rows(50, 3, offset=[50, 60, 61])
    early = rows(7, 2, offset=[7, 9])
    commit(staged(chosen, "a", [late], [early]), "a", "a", chosen)
    log = tmp_path / "data" / "orders-0"
    assert [offset for offset, _value in values(log)] == [7, 9, 50, 60, 61]
    again = staged(chosen, "b", [rows(0, 1, offset=[61])])
    with pytest.raises(OffsetsOutOfOrderError, match="before them ends at 62"):
        commit(again, "b", "b", chosen)


def test_offsets_that_go_back_within_a_task_are_refused(tmp_path: Path) -> None:
    chosen = options(tmp_path, offsets="preserve")
    with pytest.raises(OffsetsOutOfOrderError, match="sort the rows"):
        staged(chosen, "a", [rows(0, 1, offset=[5]), rows(0, 1, offset=[5])])


def test_rows_without_a_time_are_of_now_and_those_with_one_keep_it(tmp_path: Path) -> None:
    given = pa.RecordBatch.from_pydict(
        {"value": [b"a", b"b"], "timestampMs": pa.array([None, 7], pa.int64())}
    )
    chosen = options(tmp_path)
    commit(staged(chosen, "a", [given]), "a", "a", chosen)
    (columns,) = scan(tmp_path / "data" / "orders-0", columns=("timestamp",))
    assert columns.timestamp_ms[0] > 1_700_000_000_000
    assert columns.timestamp_ms[1] == 7


def test_the_same_commit_again_changes_nothing(tmp_path: Path) -> None:
    chosen = options(tmp_path)
    assert commit(staged(chosen, "a", [rows(0, 5)]), "a", "q-batch-0", chosen)
    again = staged(chosen, "b", [rows(0, 5)])
    assert not commit(again, "b", "q-batch-0", chosen)
    assert len(values(tmp_path / "data" / "orders-0")) == 5
    assert not (tmp_path / "data.kseg-sink" / "jobs" / "b").exists()


def test_an_abort_leaves_nothing_behind(tmp_path: Path) -> None:
    chosen = options(tmp_path)
    staged(chosen, "a", [rows(0, 5)])
    abort("a", chosen)
    assert not (tmp_path / "data").exists()
    assert list((tmp_path / "data.kseg-sink" / "jobs").iterdir()) == []


def test_old_records_of_a_stream_go(tmp_path: Path) -> None:
    chosen = options(tmp_path)
    commits = tmp_path / "data.kseg-sink" / "commits"
    commits.mkdir(parents=True)
    for number in (0, 1, 2):
        (commits / f"q-batch-{number}.json").write_text(json.dumps({"version": 1}))
    commit([], "a", "q-batch-102", chosen)
    assert {path.name for path in commits.iterdir()} == {"q-batch-2.json", "q-batch-102.json"}


def test_what_a_killed_job_staged_goes_when_it_is_a_week_old(tmp_path: Path) -> None:
    chosen = options(tmp_path)
    jobs = tmp_path / "data.kseg-sink" / "jobs"
    for name in ("dead", "slow", "new"):
        staged(chosen, name, [rows(0, 5)], [rows(5, 5)])
    old = time.time() - 8 * 24 * 3600
    for path in [*jobs.rglob("dead/**/*"), *jobs.rglob("slow/**/*"), jobs / "dead", jobs / "slow"]:
        os.utime(path, (old, old))
    os.utime(next(jobs.rglob("slow/1-11/**/*.log")))  # its second task is still writing
    commit(staged(chosen, "a", [rows(0, 5)]), "a", "a", chosen)
    assert {path.name for path in jobs.iterdir()} == {"slow", "new"}
    assert len([*jobs.rglob("*.log")]) == 4


IDS = '{"orders": "vVAkKxRlRnqTPUlbLjTmmQ"}'


def test_the_ids_of_topics_are_written_down_and_compared(tmp_path: Path) -> None:
    chosen = options(tmp_path, topicIds=IDS)
    tasks = staged(chosen, "a", [rows(0, 5), rows(0, 5, topic=["other"] * 5)])
    commit(tasks, "a", "a", chosen)
    metadata = tmp_path / "data" / "orders-0" / "partition.metadata"
    assert metadata.read_text() == "version: 0\ntopic_id: vVAkKxRlRnqTPUlbLjTmmQ"
    assert not (tmp_path / "data" / "other-0" / "partition.metadata").exists()
    commit(staged(chosen, "b", [rows(5, 5)]), "b", "b", chosen)
    other = options(tmp_path, topicIds=IDS.replace("vVA", "vVB"))
    with pytest.raises(InconsistentTopicIdError, match="the topic's id is"):
        commit(staged(other, "c", [rows(10, 5)]), "c", "c", other)
    assert len(values(tmp_path / "data" / "orders-0")) == 10
    assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()
    assert list((tmp_path / "data.kseg-sink" / "commits").glob("*.intent.json")) == []


@pytest.mark.parametrize(
    "text", ["", "5", "[]", '{"orders": 5}', '{"orders": "AAAA"}', '{"orders": "' + "A" * 22 + '"}',
             '{"orders": "vVAkKxRlRnqTPUlbLjTmm$"}', '{"no/topic": "vVAkKxRlRnqTPUlbLjTmmQ"}']
)  # fmt: skip
def test_what_is_no_id_of_a_topic_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(ValueError, match="option topicIds"):
        options(tmp_path, topicIds=text)


def test_a_held_data_directory_is_refused(tmp_path: Path) -> None:
    chosen = options(tmp_path)
    (tmp_path / "data").mkdir()
    hold = "import sys; from kseg.files import lock; lock.acquire(sys.argv[1]); print(); input()"
    with subprocess.Popen(
        [sys.executable, "-uc", hold, str(tmp_path / "data")], stdin=PIPE, stdout=PIPE
    ) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        with pytest.raises(LogLockedError):
            commit(staged(chosen, "a", [rows(0, 5)]), "a", "a", chosen)
        holder.communicate(b"\n")


def test_a_log_on_another_file_system_is_refused_before_anything_is_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = options(tmp_path)
    assert commit(staged(chosen, "a", [rows(0, 5)]), "a", "a", chosen)
    monkeypatch.setattr(sink, "_device", lambda path: path.name.endswith("kseg-sink"))
    with pytest.raises(AppendError, match="on another file system"):
        commit(staged(chosen, "b", [rows(5, 5)]), "b", "b", chosen)
    monkeypatch.undo()
    assert [path.stem for path in SinkPaths.of(chosen).commits.iterdir()] == ["a"]
    assert commit(staged(chosen, "c", [rows(5, 1)]), "c", "c", chosen)
    assert len(values(tmp_path / "data" / "orders-0")) == 6


def test_a_driver_that_dies_anywhere_leaves_what_the_next_commit_finishes(tmp_path: Path) -> None:
    step = 0
    while True:
        here = tmp_path / f"step-{step}"
        chosen = options(here, segmentBytes="600", batchRecords="5")
        commit(staged(chosen, "a", [rows(0, 5)]), "a", "a", chosen)
        tasks = staged(chosen, "b", [rows(5, 40), rows(0, 4, topic=["x"] * 4)], [rows(45, 3)])
        try:
            with stopping_at(step):
                commit(tasks, "b", "b", chosen)
            break
        except Stopped:
            log = here / "data" / "orders-0"
            found = values(log)
            assert found == [(number, b"%d" % number) for number in range(len(found))]
        begun = list((here / "data.kseg-sink" / "commits").glob("*.intent.json"))
        commit(staged(chosen, "c", [rows(100, 1)]), "c", "c", chosen)
        expected = [b"%d" % number for number in range(48 if begun else 5)]
        assert [value for _offset, value in values(log)] == [*expected, b"100"], step
        assert verify(here / "data", deep=True).ok, step
        shutil.rmtree(here)
        step += 9
    assert step > 50
