"""Logs that Kafka wrote, records erased from them, and what Kafka's log makes of what is left.

It loads it as after an orderly stop, then as after a crash with all of it in doubt; see
`salvaged.taken`. After a crash Kafka gives an aborted transaction without any data no entry in the
index, takes epochs from batches whose log had none, and writes older snapshots without producers
whose batches went. It removes an epoch that begins at the log's end. None of these changes what a
reader gets, or what a producer may send.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random

import kseg
from kseg.change.erase import plan_erasure
from kseg.log.config import LogConfig
from tests import erased
from tests.erased import Meant
from tests.interop import compacted, lives, salvaged, stories
from tests.interop.damaged import Outcome
from tests.interop.kafka import Kafka

#: These may differ after a clean stop, and after a crash; see above.
_MAY_DIFFER = {
    "clean": ("epochs", "leader-epoch-checkpoint"),
    "crash": ("epochs", "leader-epoch-checkpoint", ".txnindex", ".snapshot", "segments"),
}


def compared(kafka: Kafka, seed: str, number: int, home: Path) -> tuple[object, Outcome]:
    """Where a log is not as a second implementation leaves it, or Kafka does not take it."""
    chance = Random(f"erased {seed}:{number}")
    told = (compacted if number % 2 else stories).story(seed, number)
    directory = lives.fresh(home)
    lives.by_kafka(kafka, replace(told, close="clean"), directory, steps=told.steps)
    config = LogConfig.from_kafka(told.config)
    kseg.recover(directory, config=config)
    decided = kseg.Log.open(directory).view.last_stable_offset
    kseg.plan_truncation(directory, decided).apply(config=config, keep_cut=False)
    before = erased.read(directory)
    meant = Meant.by_chance(chance, before)
    plan = plan_erasure(directory, config=config, **meant.asked)
    if plan.refused is not None:
        return meant, Outcome([], True, [])
    end = kseg.Log.open(directory).view.log_end_offset
    plan.apply()
    wrong = erased.differences(before, erased.read(directory), meant)
    found: list[lives.Found] = [("erased", meant, one) for one in wrong]
    found += [
        one
        for one in salvaged.taken(kafka, end, directory, told.config)
        if not one[0].endswith(_MAY_DIFFER[one[0].partition(",")[0]])
    ]
    return meant, Outcome([], False, found)
