"""Whole directories: what Kafka 4.2.0 made of each, and what kseg makes of it.

Two ways are held against each vector. A plan for a broker, applied, has to come to what the broker
came to, its silences included. A log that is opened, worked on and closed has to come to the same
files wherever kseg does what a broker does; where it does more, `MORE` says what and why.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest

from kseg.change.cleanup import plan_compaction
from kseg.errors import UncleanShutdownError
from kseg.files.checkpoints import TopicPartition, write_offset_checkpoint
from kseg.files.metadata import write_clean_shutdown
from kseg.log.config import LogConfig
from kseg.log.log import Log
from kseg.log.recovery.recover import plan_recovery
from kseg.log.validate.rules import AppendOrigin
from tests.conformance.conftest import load
from tests.conformance.logs import Clock, as_reported, bases

PARTITION = TopicPartition("t", 0)
EPOCHS = "leader-epoch-checkpoint"
#: Of a plan, what a vector's report calls so.
OFFSETS = ("log_start_offset", "log_end_offset", "recovery_point")

Vector = dict[str, Any]


def written(vector: Vector, root: Path) -> Path:
    """The directory of the vector, in a data directory that says what its parameters say."""
    params = vector["params"]
    path = root / "data" / "t-0"
    path.mkdir(parents=True)
    for name, data in vector["files_in"].items():
        (path / name).write_bytes(bytes.fromhex(data))
    for name in ("recovery_point", "log_start_offset"):
        if name in params:
            stem = {"recovery_point": "recovery-point", "log_start_offset": "log-start"}[name]
            checkpoint = path.parent / f"{stem}-offset-checkpoint"
            write_offset_checkpoint(checkpoint, {PARTITION: params[name]})
    if params["clean_shutdown"]:
        write_clean_shutdown(path.parent, -1)
    return path


def config_of(vector: Vector) -> LogConfig:
    return LogConfig.from_kafka(vector["params"].get("config", {}))


def contents(path: Path, wanted: dict[str, Any]) -> dict[str, Any]:
    """Every file, told as the vector tells it: in hex, or by size and hash."""
    found: dict[str, Any] = {}
    for file in sorted(path.iterdir()):
        data = file.read_bytes()
        if isinstance(wanted.get(file.name), dict):
            digest = hashlib.sha256(data).hexdigest()
            found[file.name] = {"size": len(data), "sha256": digest}
        else:
            found[file.name] = data.hex()
    return found


def epochs_of(entries: Any) -> list[list[int]]:
    return [[entry.epoch, entry.start_offset] for entry in entries]


# ---- a broker's load, predicted ------------------------------------------------------------------


def planned(vector: Vector, path: Path) -> Any:
    params = vector["params"]
    return plan_recovery(
        path,
        as_broker=True,
        clean=params["clean_shutdown"],
        recovery_point=params.get("recovery_point", 0),
        log_start_offset=params.get("log_start_offset", 0),
        config=config_of(vector),
        now_ms=params["now"],
    )


def test_a_plan_tells_what_a_broker_comes_to(loaded: Vector, tmp_path: Path) -> None:
    path = written(loaded, tmp_path)
    plan = planned(loaded, path)
    if "error" in loaded:
        assert plan.error is not None
        return
    report = loaded["report"]
    assert {name: getattr(plan, name) for name in OFFSETS} == {
        name: report[name] for name in OFFSETS
    }
    assert epochs_of(plan.epochs) == report["leader_epochs"]
    kept = [[each.base_offset, each.keep_bytes] for each in plan.segments if not each.goes]
    assert kept == report["segments"]
    assert {file.name: file.read_bytes().hex() for file in path.iterdir()} == loaded["files_in"]


def test_a_plan_applied_leaves_what_a_broker_leaves(applied: Vector, tmp_path: Path) -> None:
    path = written(applied, tmp_path)
    planned(applied, path).apply(keep_cut=False)
    wanted = applied["files_out"]
    assert without_closing(contents(path, wanted)) == without_closing(wanted)
    again = planned(applied, path)
    assert again.is_noop


def without_closing(found: dict[str, Any]) -> dict[str, Any]:
    """The files, but for how much room behind its entries an active segment's indexes have.

    Loading gives it all the room; a clean close, which a vector's files are after, takes it away.
    """
    active = max(name for name in found if name.endswith(".log"))
    kept = dict(found)
    for suffix, size in ((".index", 8), (".timeindex", 12)):
        name = active.replace(".log", suffix)
        data = bytes.fromhex(kept[name])
        slots = [data[at : at + size] for at in range(0, len(data), size)]
        while slots and not any(slots[-1]):
            slots.pop()
        kept[name] = b"".join(slots).hex()
    return kept


# ---- a log, opened and worked on -----------------------------------------------------------------

#: Vectors whose trouble a broker passes over after a clean stop, and kseg does not -> the vector
#: that has the outcome: torn tails are cut as after a crash, a lost time index is rebuilt.
MORE = {
    "clean, torn tail where the last index entry points": "unclean, last batch cut",
    "clean, torn tail behind the last indexed batch": "unclean, last batch cut",
    "clean, time index missing": "unclean, zero tail",
}


#: Line of the checklist -> the vector that asks it.
ASKED = {
    "k42-01-a-tail-at-the-last-entry": "clean, torn tail where the last index entry points",
    "k42-02-a-tail-behind-it": "clean, torn tail behind the last indexed batch",
    "k42-06-no-time-index": "clean, time index missing",
    "k42-12-a-batch-cut": "unclean, last batch cut",
    "k42-12-zeros": "unclean, zero tail",
    "k42-12-garbage": "unclean, garbage tail",
    "k42-14-damage-that-stays": "unclean, damage below the recovery point",
    "k42-16-transactions": "unclean, transactions rebuilt",
    "k42-19-a-start-beyond-the-end": "unclean, log start beyond the end",
    "k42-20-leftovers": "leftovers: cleaned, deleted, orphaned index",
    "k42-22-a-swap-that-ends": "leftovers: swap cancelled by a cleaned file below it",
    "k42-23-a-cut": "truncate inside a batch",
    "k42-23-an-append-behind-it": "truncate inside a batch, then append",
    "k42-24-times": "roll by time",
    "k42-25-a-full-index": "roll because the time index is full",
    "k42-26-indexes-at-full-size": "indexes as a crash leaves them",
    "ul-083-a-snapshot-beyond-the-end": "clean, torn tail behind the last indexed batch",
    "ul-125-retention-by-time": "retention by time",
}


def outcome_of(vector: Vector, vectors: list[Vector]) -> Vector:
    """The vector that says what kseg comes to."""
    name = MORE.get(vector["name"], vector["name"])
    (found,) = [each for each in vectors if each["name"] == name]
    return found


def steps_of(vector: Vector, log: Log, clock: Clock) -> list[dict[str, Any]]:
    answers = []
    for step in vector["params"].get("steps", ()):
        clock.ms = step.get("now_ms", clock.ms)
        answers.append(STEPS[step["op"]](log, step))
    return answers


def appended(log: Log, step: dict[str, Any]) -> dict[str, Any]:
    data = bytes.fromhex(step["records"])
    if step.get("as") == "follower":
        result = log.append_as_follower(data, leader_epoch=step.get("leader_epoch", 0))
    else:
        origin = AppendOrigin[step.get("origin", "client").upper()]
        result = log.append(data, leader_epoch=step.get("leader_epoch", 0), origin=origin)
    return {"first_offset": result.first_offset, "last_offset": result.last_offset}


def truncated(log: Log, step: dict[str, Any]) -> dict[str, Any]:
    return {"truncated": log.truncate_to(step["to"])}


def incremented(log: Log, step: dict[str, Any]) -> dict[str, Any]:
    return {"incremented": log.delete_records_before(step["to"])}


def deleted(log: Log, _step: dict[str, Any]) -> dict[str, Any]:
    before = len(bases(log))
    log.delete_old_segments()
    return {"deleted": before - len(bases(log))}


def cleaned(log: Log, _step: dict[str, Any]) -> dict[str, Any]:
    plan = plan_compaction(log, from_start=True, force=True)
    return {"end_offset": plan.apply().end_offset, "cleaned": not plan.skipped}


STEPS = {
    "append": appended,
    "truncate": truncated,
    "increment_log_start": incremented,
    "delete_old_segments": deleted,
    "clean": cleaned,
}


def report_of(log: Log) -> dict[str, Any]:
    return {
        "log_start_offset": log.log_start_offset,
        "log_end_offset": log.log_end_offset,
        "last_stable_offset": log.last_stable_offset,
        "leader_epochs": epochs_of(log.leader_epochs),
        "segments": [[info.base_offset, info.size] for info in log.segments],
        "producers": [as_reported(one) for _, one in sorted(log.state.producers.entries.items())],
    }


@pytest.mark.damages("as Kafka, it passes over some harms")
def test_a_log_opened_worked_on_and_closed_is_as_kafka_leaves_it(
    directory_vector: Vector, tmp_path: Path, vectors_dir: Path
) -> None:
    path = written(directory_vector, tmp_path)
    params = directory_vector["params"]
    outcome = outcome_of(directory_vector, load(vectors_dir / "storage.json")["directories"])
    clock = Clock(params["now"])
    how: dict[str, Any] = {"mode": "append", "config": config_of(directory_vector), "now_ms": clock}
    if not params["clean_shutdown"]:
        with pytest.raises(UncleanShutdownError):
            Log.open(path, **how)
    log = Log.open(path, recover=not params["clean_shutdown"], **how)
    answers = steps_of(directory_vector, log, clock)
    report = {**report_of(log), "steps": answers} if answers else report_of(log)
    assert report == {name: outcome["report"][name] for name in report}
    if directory_vector is outcome:
        # Kafka's scheduler flushes what was rolled; here that waits for a flush, perhaps later.
        assert log.recovery_point <= outcome["report"]["recovery_point"]
    if params.get("close") == "crash":
        found = contents(path, outcome["files_out"])
        log.close()
    else:
        log.close()
        found = contents(path, outcome["files_out"])
    # Of a log without epochs Kafka makes an empty file, and kseg none.
    empty = {EPOCHS: ""} if EPOCHS not in found else {}
    assert found | empty == {**empty, **outcome["files_out"]}


def test_vectors_that_have_a_meaning_are_there(vectors_dir: Path) -> None:
    names = {vector["name"] for vector in load(vectors_dir / "storage.json")["directories"]}
    assert {*MORE, *MORE.values(), *ASKED.values()} <= names
