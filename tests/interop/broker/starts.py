"""How long a broker takes to start: after kill -9, the same with pre-recovery, after a clean stop.

    python -m tests.interop.broker.starts --mib 2048 --partitions 200 --rounds 3

The three take turns on the same logs, of one segment a partition, which were written to when the
broker was killed. Each turn prints seconds of the wall, and of the broker's processor, until it
serves. The ratios are those to a clean stop in the same round.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import kseg
from kseg import BatchOptions, LogConfig
from kseg.files.checkpoints import TopicPartition
from kseg.log.directory import LogDirectory
from tests.interop.broker.broker import Broker

TOPIC = "starts"
_VALUE_BYTES, _RECORDS = 1_000, 1_000
_TURNS = ("killed", "recovered", "clean")


def fill(broker: Broker, partitions: int, mib: int) -> Path:
    """Make logs, have the broker write to each of them, and kill it; answers with its data."""
    broker.start()
    broker.create(TOPIC, partitions)
    broker.stop()
    config = LogConfig(retention_ms=-1)
    with LogDirectory.open(broker.data, mode="append", config=config) as directory:
        for number in range(partitions):
            _fill(directory.logs[TopicPartition(TOPIC, number)], (mib << 20) // partitions)
    broker.start()
    broker.wait_for_leaders(TOPIC)
    for number in range(partitions):
        broker.produce(TOPIC, [{"records": [{"value": b"v" * 100}] * 10}], number)
    broker.kill()
    kept = broker.home / "killed"
    broker.data.rename(kept)
    return kept


def _fill(log: kseg.Log, size: int) -> None:
    begin = time.time_ns() // 1_000_000
    rows = {"value": [b"%0*d" % (_VALUE_BYTES, n) for n in range(_RECORDS)]}
    rows["timestamp"] = [begin] * _RECORDS  # type: ignore[list-item]
    batch = kseg.encode_batch(rows, BatchOptions())
    for _ in range(-(-size // len(batch.data))):
        log.append(batch)


def turn(broker: Broker, kept: Path, how: str) -> dict[str, float]:
    """Put the data there, unless it is what the turn before has left, and start."""
    found = {}
    if how != "clean":
        shutil.rmtree(broker.data, ignore_errors=True)
        shutil.copytree(kept, broker.data)
    if how == "recovered":
        begin = time.monotonic()
        words = ["recover", str(broker.data), "--apply", "--no-backup"]
        run = "import sys; from kseg.cli.main import main; sys.exit(main())"
        subprocess.run([sys.executable, "-c", run, *words], check=True, capture_output=True)
        found["recover"] = time.monotonic() - begin
    begin = time.monotonic()
    said = broker.start()
    found["wall"] = time.monotonic() - begin
    found["processor"] = broker.processor_seconds()
    lines = [line.text for line in said.lines if "Recovering unflushed segment" in line.text]
    found["swept"] = len([line for line in lines if f"partition={TOPIC}" in line])
    broker.stop()
    return found


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--mib", type=int, default=2048)
    parser.add_argument("--partitions", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--place", type=Path, help="where the data lies; else a temporary folder")
    options = parser.parse_args()
    rounds: list[dict[str, dict[str, float]]] = []
    with tempfile.TemporaryDirectory(dir=options.place) as home, Broker(Path(home)) as broker:
        kept = fill(broker, options.partitions, options.mib)
        for _ in range(options.rounds):
            rounds.append({how: turn(broker, kept, how) for how in _TURNS})
            print(json.dumps(rounds[-1]), flush=True)
    for clock in ("wall", "processor"):
        for how in _TURNS[:2]:
            ratios = [one[how][clock] / one["clean"][clock] for one in rounds]
            shown = ", ".join(f"{each:.2f}" for each in ratios)
            print(f"{how}, {clock}: {median(ratios):.2f} of that after a clean stop ({shown})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
