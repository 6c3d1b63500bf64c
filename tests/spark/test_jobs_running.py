"""Without Spark: how work is packed, and what a job's directory remembers."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import pytest

from kseg import diff, doctor, explain, stats, verify
from kseg.analysis.doctor import BrokerFinding, Outcome
from kseg.analysis.units import plan
from kseg.catalog import Catalog
from kseg.errors import CorruptRecordError, InvalidRecordError, KsegError, NotALogError
from kseg.files.checkpoints import TopicPartition
from kseg.spark.jobs import analyses
from kseg.spark.jobs.running import (
    PACE_OF_HEADERS,
    PACE_OF_PARSING,
    TASK_BYTES_MAX,
    Item,
    error_of,
    finished,
    from_json,
    keep_answer,
    open_job,
    pack,
    to_json,
)
from tests.builders import batch, record, write_segment
from tests.shares import WHOLE

MIB = 1 << 20


def sizes(tasks: list[tuple[Item, ...]]) -> list[int]:
    return [sum(item.cost for item in task) for task in tasks]


# ---- packing -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("count", "cost", "cores"), [(1000, MIB, 2), (7, 0, 4), (300, 40 * MIB, 8)]
)
def test_every_item_is_in_one_task(count: int, cost: int, cores: int) -> None:
    items = [Item(number, cost) for number in range(count)]
    tasks = pack(items, cores)
    assert sorted(item.payload for task in tasks for item in task) == list(range(count))


def test_tasks_are_a_gibibyte_at_most_and_half_an_item_at_both_ends() -> None:
    tasks = pack([Item(number, 300 * MIB) for number in range(100)], 1)
    assert max(sizes(tasks)) <= TASK_BYTES_MAX + 300 * MIB
    assert len(tasks) <= 31


def test_a_large_item_does_not_make_others_wait() -> None:
    tasks = pack([Item(0, 4 << 30), *(Item(number, MIB) for number in range(1, 101))], 4)
    assert [item.payload for item in tasks[0]] == [0]
    assert len(tasks) == 2


def test_tasks_of_fast_work_are_fewer() -> None:
    items = [Item(number, 64 * MIB) for number in range(16)]
    counts = [len(pack(items, 2, pace=pace)) for pace in (1, PACE_OF_PARSING, PACE_OF_HEADERS)]
    assert counts == [8, 5, 3]


def test_neighbours_stay_together() -> None:
    tasks = pack([Item(number, 30 * MIB) for number in range(100)], 2)
    for task in tasks:
        numbers = [item.payload for item in task]
        assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))


# ---- what is remembered --------------------------------------------------------------------------

ITEMS = [Item(name, 1, name) for name in ("a", "b", "c")]


def test_what_is_finished_is_not_left_and_two_attempts_count_once(tmp_path: Path) -> None:
    for _ in range(2):
        keep_answer(tmp_path, ["a", "c"], 7)
    assert finished(tmp_path, ITEMS) == ((7,), (ITEMS[1],))


def test_an_answer_that_tells_of_something_else_too_is_none(tmp_path: Path) -> None:
    keep_answer(tmp_path, ["a", "gone"], 7)
    assert finished(tmp_path, ITEMS) == ((), tuple(ITEMS))


def test_an_answer_that_does_not_hold_any_more_is_none(tmp_path: Path) -> None:
    keep_answer(tmp_path, ["a"], 7)
    assert finished(tmp_path, ITEMS, usable=lambda answer: answer != 7)[0] == ()


def test_an_unfinished_answer_is_none(tmp_path: Path) -> None:
    keep_answer(tmp_path, ["a"], 7)
    (path,) = tmp_path.iterdir()
    path.rename(path.with_name(path.name + ".tmp"))
    assert finished(tmp_path, ITEMS)[0] == ()


def test_an_answer_comes_back_as_it_was(tmp_path: Path) -> None:
    error = InvalidRecordError("odd", path="/a", position=7, offset=9).as_kafka("Odd")
    answer = {
        "array": np.arange(6, dtype=np.int32),
        "kinds": [frozenset((1, 2)), b"\xff", UUID(int=5), Path("/a b"), None, 0.5, 2**70, True],
        ("t", 0): (BrokerFinding("x", "/\udcff", "m", Outcome.OFFLINE), TopicPartition("t", 3)),
    }
    keep_answer(tmp_path, ["a"], (answer, error))
    ((found, again),) = finished(tmp_path, ITEMS, (BrokerFinding, Outcome, TopicPartition))[0]
    assert repr(found) == repr(answer)
    assert (type(again), vars(again), str(again)) == (type(error), vars(error), str(error))


@pytest.mark.parametrize(
    "inner",
    [
        {},
        {"system": ["true"]},
        {"WriteFile": [1]},
        {"Unit": ["x", "y"]},
        {"Lost": ["too", "few"]},
        {"ndarray": ["|O", {"bytes": ["00" * 8]}]},
        {"Path": 5},
        {"set": [], "list": []},
    ],
)
def test_an_answer_names_no_class_but_those_of_its_job(tmp_path: Path, inner: object) -> None:
    (tmp_path / "x.done").write_text(json.dumps([["a"], inner]))
    with pytest.raises(KsegError, match=r"x\.done: no answer of a job"):
        finished(tmp_path, ITEMS, analyses.CLASSES["doctor"])


class Noting:
    """In the place of a runner: each answer goes through a note of a job."""

    def __init__(self, name: str) -> None:
        self.name = name

    def run(self, units: Any, work: Any, merge: Any, progress: Any) -> Iterator[Any]:
        return (
            from_json(to_json(work(one)).encode(), analyses.CLASSES[self.name]) for one in units
        )


@pytest.mark.parametrize(
    ("name", "ask"),
    [
        ("verify", lambda case, **how: verify(case, deep=True, now_ms=0, **how)),
        ("stats", lambda case, **how: stats(case, **how).to_arrow().to_pylist()),
        ("doctor", lambda case, **how: [*doctor(case, now_ms=0, **how).all_findings()]),
        ("explain", lambda case, **how: explain(case, now_ms=0, **how)),
        ("diff", lambda case, **how: diff(case, case.parent / "4.2.0-plain", **how)),
    ],
)
def test_answers_about_fixtures_pass_through_notes(
    fixture_cases: list[Path], name: str, ask: Any
) -> None:
    for case in fixture_cases[:: 1 if WHOLE else 8]:
        try:
            here = ask(case)
        except (KsegError, OSError, ValueError):
            continue
        assert ask(case, threads=Noting(name)) == here


def test_a_job_is_not_begun_in_a_directory_that_another_user_can_change(tmp_path: Path) -> None:
    place = open_job(tmp_path / "job", "verify", None)
    assert place.stat().st_mode & 0o777 == 0o700
    place.chmod(0o770)
    with pytest.raises(PermissionError, match="another user could change"):
        open_job(place, "verify", None)
    place.chmod(0o700)
    if os.geteuid() == 0:
        os.chown(place, 1000, 1000)
        with pytest.raises(PermissionError, match="it belongs to user 1000"):
            open_job(place, "verify", None)


def test_a_unit_is_known_by_the_state_of_its_files(tmp_path: Path) -> None:
    log = write_segment(tmp_path / "t-0", 0, batch([record()]))

    def marks() -> list[str]:
        return [analyses._mark(unit) for unit in plan(Catalog.of(tmp_path / "t-0"))]

    before = marks()
    assert before == marks()
    log.with_suffix(".index").write_bytes(b"")
    with_index = marks()
    assert set(with_index).isdisjoint(before)
    log.write_bytes(log.read_bytes() * 2)
    assert len(set(marks()) & set(with_index)) == 0


def test_a_job_is_gone_on_with_and_no_other(tmp_path: Path) -> None:
    place = open_job(tmp_path / "new" / "job", "verify", {"deep": True})
    assert open_job(tmp_path / "new" / "job", "verify", {"deep": True}) == place
    with pytest.raises(KsegError, match="another options; take another"):
        open_job(place, "verify", {"deep": False})
    with pytest.raises(KsegError, match="another job; take another"):
        open_job(place, "stats", {"deep": True})
    told = json.loads((place / "job.json").read_bytes())
    (place / "job.json").write_text(json.dumps({**told, "kseg": "0.0.1"}))
    with pytest.raises(KsegError, match="another kseg; take another"):
        open_job(place, "verify", {"deep": True})


@pytest.mark.parametrize("text", ["", "[]", "{"])
def test_a_directory_of_something_else_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "job.json").write_text(text)
    with pytest.raises(KsegError, match="take another"):
        open_job(tmp_path, "verify", None)
    (tmp_path / "job.json").rename(tmp_path / "mine.txt")
    with pytest.raises(KsegError, match="a directory of its own"):
        open_job(tmp_path, "verify", None)


# ---- errors --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [CorruptRecordError, KsegError, NotALogError])
def test_of_sparks_many_lines_the_error_that_counts_is_told(kind: type[KsegError]) -> None:
    error = kind("checksum is wrong [batch-crc]", path="t-0/0.log", position=61)
    name = f"{kind.__module__}.{kind.__qualname__}"
    lines = f"[X] Job aborted\n  Traceback (most\n    raise E\n{name}: {error}\n\n\tat org: x"
    found = error_of(lines)
    assert type(found) is kind
    assert str(found) == str(error)


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        ("Job aborted\nOSError: [Errno 5] no: 'x'\n\tat org", "OSError: [Errno 5] no: 'x'"),
        ("Connection: lost", "Connection: lost"),
        ("", "it does not say why"),
    ],
)
def test_lines_without_an_error_of_kseg_say_what_they_can(lines: str, told: str) -> None:
    assert str(error_of(lines)) == f"Spark failed: {told}"
