from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from kseg.errors import NotALogError
from kseg.files.log_file import LogFile
from kseg.log.reader import SegmentInfo
from kseg.spark.options import parse_options
from kseg.spark.plan import Split, find_cuts, list_logs, make_plan
from tests.builders import batch, record


class Plan(NamedTuple):
    """Tasks, and the segments that were listed for them."""

    tasks: tuple[tuple[Split, ...], ...]
    segment_count: int

    @property
    def splits(self) -> list[Split]:
        return [split for task in self.tasks for split in task]

    @property
    def pruned_count(self) -> int:
        return self.segment_count - len({split.path for split in self.splits})


def plan(*paths: Path, **options: str) -> Plan:
    chosen = parse_options({"paths": json.dumps([str(path) for path in paths]), **options})
    logs = list_logs(chosen)
    return Plan(make_plan(logs, chosen), sum(len(log.view.segments) for log in logs))


def read_by(made: Plan) -> list[str]:
    """`directory/base offset` of each segment that somebody reads, in order."""
    paths = [Path(split.path) for split in made.splits]
    return [f"{path.parent.name}/{int(path.name.split('.')[0])}" for path in dict.fromkeys(paths)]


def segment(directory: Path, base_offset: int, size: int = 100) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{base_offset:020d}.log"
    with path.open("wb") as file:
        file.truncate(size)
    return path


@pytest.fixture
def data(tmp_path: Path) -> Path:
    for topic, partition in (("orders", 0), ("orders", 10), ("orders", 2), ("pay-ments", 0)):
        for base_offset in (0, 50, 200):
            segment(tmp_path / f"{topic}-{partition}", base_offset)
    return tmp_path


def test_a_data_directory_gives_all_its_partitions_in_order(data: Path) -> None:
    made = plan(data)
    assert read_by(made) == [
        f"{name}/{base}"
        for name in ("orders-0", "orders-2", "orders-10", "pay-ments-0")
        for base in (0, 50, 200)
    ]
    assert made.segment_count == 12
    split = made.tasks[0][-1]
    assert (split.topic, split.partition) == ("pay-ments", 0)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"startingOffsets": "49"}, [0, 50, 200]),
        ({"startingOffsets": "50"}, [50, 200]),
        ({"startingOffsets": "9999"}, [200]),
        ({"endingOffsets": "50"}, [0]),
        ({"endingOffsets": "51"}, [0, 50]),
        ({"startingOffsets": "60", "endingOffsets": "70"}, [50]),
        ({"startingOffsets": "70", "endingOffsets": "70"}, []),
        ({"startingOffsets": '{"orders": {"0": 200}}'}, [200]),
        ({"startingOffsets": '{"orders": {"1": 200}}'}, [0, 50, 200]),
    ],
)
def test_names_alone_prune_by_offset(
    data: Path, options: dict[str, str], expected: list[int]
) -> None:
    made = plan(data / "orders-0", **options)
    assert read_by(made) == [f"orders-0/{base}" for base in expected]
    assert made.pruned_count == 3 - len(expected)


@pytest.mark.parametrize(
    ("make", "options", "error", "message"),
    [
        (lambda d: d / "nowhere", {}, FileNotFoundError, "nowhere"),
        (lambda d: d / "no*where", {}, FileNotFoundError, "no path matches"),
        (lambda d: d / "empty", {}, NotALogError, "empty"),
        (lambda d: d / "bare-0", {}, NotALogError, "no segments"),
        (lambda d: d / "text" / "notes.txt", {}, NotALogError, "notes.txt"),
        (
            lambda d: d,
            {"topic": "order"},
            NotALogError,
            "no topic of topic='order'; there is bare, orders, pay",
        ),
        (lambda d: d, {"partitions": "7"}, NotALogError, r"none of the partitions.*\[0, 2, 10\]"),
        (lambda d: d / "orders-0", {"topic": "pay-ments"}, ValueError, "is of topic 'orders'"),
    ],
)
def test_paths_that_give_nothing_are_one_clear_line(
    data: Path, make, options: dict[str, str], error: type[Exception], message: str
) -> None:
    (data / "empty").mkdir()
    (data / "bare-0").mkdir()
    (data / "text").mkdir()
    (data / "text" / "notes.txt").write_text("hello")
    with pytest.raises(error, match=message) as caught:
        plan(make(data), **options)
    assert "\n" not in str(caught.value)


def test_small_segments_share_tasks_up_to_the_target(tmp_path: Path) -> None:
    for base_offset in range(1000):
        segment(tmp_path / "many-0", base_offset, 1 << 20)
    made = plan(tmp_path)
    assert len(made.tasks) <= 16
    assert sum(len(task) for task in made.tasks) == 1000
    assert all(sum(split.split_bytes for split in task) <= 128 << 20 for task in made.tasks)


def test_a_task_lists_a_bounded_number_of_segments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kseg.spark.plan.SPLITS_PER_TASK_MAX", 5)
    for base_offset in range(11):
        segment(tmp_path / "tiny-0", base_offset, 1)
    assert [len(task) for task in plan(tmp_path).tasks] == [5, 5, 1]


def test_ten_thousand_segments_list_each_directory_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for base_offset in range(0, 10_000, 100):
        segment(tmp_path / "orders-0", base_offset)
    listed: list[str] = []
    scandir = os.scandir
    monkeypatch.setattr(os, "scandir", lambda path: listed.append(str(path)) or scandir(path))
    plan(tmp_path / "orders-0")
    assert len(listed) == 1


def starts(path: Path) -> dict[int, int]:
    """Base offset by position of every batch, from a walk."""
    with LogFile.open(path) as log:
        return {batch.position: batch.base_offset for tile in log.walk() for batch in tile.table}


def entry(path: Path) -> SegmentInfo:
    ((info, _following),) = list_logs(parse_options({"path": str(path)}))[0].segments()
    return info


@pytest.fixture
def indexed(fixtures_dir: Path, tmp_path: Path) -> Path:
    """A segment with many batches and a dense index."""
    logs = sorted(
        (fixtures_dir / "new" / "4.2.0-plain").glob("plain-tinyidx-*/*.log"),
        key=lambda path: path.stat().st_size,
    )
    shutil.copytree(logs[-1].parent, tmp_path / "tinyidx-0")
    return tmp_path / "tinyidx-0" / logs[-1].name


@pytest.mark.parametrize("index", ["auto", "use", "ignore"])
def test_cuts_lie_at_batch_starts(indexed: Path, index: str) -> None:
    segment = entry(indexed)
    cuts = find_cuts(segment, segment.size // 4, index)
    known = starts(indexed)
    assert 2 <= len(cuts) <= 4
    assert all(cut.position in known for cut in cuts)
    assert [cut.position for cut in cuts] == sorted({cut.position for cut in cuts})


def test_splits_cover_a_segment_without_gap_or_overlap(indexed: Path) -> None:
    size = indexed.stat().st_size
    made = plan(indexed, targetPartitionBytes=str(size // 5))
    splits = made.splits
    assert len(splits) >= 4
    assert splits[0].start_position == 0
    assert splits[-1].end_position == size
    assert [s.end_position for s in splits[:-1]] == [s.start_position for s in splits[1:]]


@pytest.fixture
def times(fixtures_dir: Path, tmp_path: Path) -> Path:
    """A log of several segments whose times ascend."""
    source = fixtures_dir / "new" / "4.2.0-plain" / "plain-ts-0"
    shutil.copytree(source, tmp_path / "ts-0")
    return tmp_path / "ts-0"


def newest(path: Path) -> int:
    with LogFile.open(path) as log:
        return max(int(tile.table.max_timestamp.max()) for tile in log.walk())


def test_old_segments_are_pruned_by_time(times: Path) -> None:
    logs = sorted(times.glob("*.log"))
    assert len(logs) > 1
    first = newest(logs[0])
    kept = plan(times, startingTimestamp=str(first))
    pruned = plan(times, startingTimestamp=str(first + 1))
    assert kept.tasks[0][0].path == str(logs[0])
    assert pruned.tasks[0][0].path != str(logs[0])
    ignored = plan(times, startingTimestamp=str(first + 1), index="ignore")
    assert ignored.tasks[0][0].path == str(logs[0])


@pytest.mark.parametrize("cut", [0, 12])
def test_a_time_index_that_the_log_does_not_bear_out_prunes_nothing(times: Path, cut: int) -> None:
    first = min(times.glob("*.log"))
    index = first.with_suffix(".timeindex")
    entries = index.read_bytes()
    assert newest(first) == int.from_bytes(entries[-12:-4], "big")
    index.write_bytes(entries[:cut] if cut == 0 else older(entries))
    made = plan(times, startingTimestamp=str(newest(first)))
    assert made.tasks[0][0].path == str(first)


def test_a_batch_without_its_largest_time_keeps_its_segment(times: Path) -> None:
    first, second = sorted(times.glob("*.log"))[:2]
    later = newest(first) + 1
    end = int(second.stem)
    with first.open("ab") as file:
        file.write(batch([record(timestamp=later)], base_offset=end - 1, max_timestamp=-1))
    made = plan(times, startingTimestamp=str(later))
    assert made.tasks[0][0].path == str(first)


def older(entries: bytes) -> bytes:
    """The last entry says a time that is too early."""
    timestamp = int.from_bytes(entries[-12:-4], "big") - 1
    return entries[:-12] + timestamp.to_bytes(8, "big") + entries[-4:]


def test_planning_needs_no_pyspark() -> None:
    code = (
        "import sys, kseg.spark.plan, kseg.spark.plan, kseg.spark.options, kseg.spark.schema\n"
        "import kseg.spark.plan, kseg.spark.reading, kseg.cli.demo\n"
        "sys.exit('pyspark' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_replicas_are_refused_unless_rows_say_their_path(tmp_path: Path) -> None:
    for broker in ("b1", "b2"):
        segment(tmp_path / broker / "orders-0", 0)
    both = (tmp_path / "b1", tmp_path / "b2")
    with pytest.raises(ValueError, match=r"kseg: orders-0 is both .*/b1/.* and .*/b2/"):
        plan(*both)
    for told in (
        {"columns": "path"},
        {"mode": "segments"},
        {"mode": "batches"},
        {"replicas": "all"},
    ):
        assert plan(*both, **told).segment_count == 2
    for word in ("newest", "first"):
        assert plan(*both, replicas=word).segment_count == 1
    assert plan(both[0], both[0], both[0] / "orders-0").segment_count == 1


@pytest.mark.parametrize("name", ["4.2.0-local", "4.2.0-split", "4.2.0-aiven-zstd-encrypted"])
def test_segments_of_a_tier_are_planned_and_read_like_local_ones(
    fixtures_dir: Path, name: str
) -> None:
    import pickle

    import kseg
    from kseg.spark.reading import read_split

    case = fixtures_dir / "tiered" / name
    keys = {file.name.partition(".")[0]: str(file) for file in case.glob("keys/*.private.pem")}
    path = case / "local" / ("split-0" if "split" in name else "txn-0")
    for isolation in ("read_uncommitted", "read_committed"):
        texts = {"path": str(path), "tier": str(case / "remote"), "isolation": isolation}
        if keys:
            texts["tierKeys"] = ",".join(f"{key}={file}" for key, file in keys.items())
        options = parse_options(texts | {"targetPartitionBytes": "2k"})
        tasks = pickle.loads(pickle.dumps(make_plan(list_logs(options), options)))
        found = [
            offset
            for task in tasks
            for split in task
            for columns in read_split(split, ("offset",), options)
            for offset in columns["offset"].tolist()
        ]
        tier = kseg.Tier.of(case / "remote", keys=keys)
        view = tier.log(path).view
        wanted = [
            offset
            for columns in view.read(columns=("offset",), isolation=isolation)
            for offset in columns["offset"].tolist()
        ]
        assert found == wanted
        assert len(tasks) > 3
