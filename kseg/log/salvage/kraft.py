"""The log of KRaft: whole batches up to its first gap, and no further.

Each of its records changes what the ones before came to, so one behind a gap may mean something
else without those in the gap. A sound snapshot holds what all records in front of an offset came
to: gaps in front of that one do no harm.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from kseg.files.names import list_partition
from kseg.log.salvage.losses import lost_offsets
from kseg.log.salvage.tables import gaps_within, run_between
from kseg.log.salvage.values import refused
from kseg.log.settings.metadata_log import read_cluster

if TYPE_CHECKING:
    from pathlib import Path

    from kseg.log.salvage.values import ProvablePartition, ProvableRun

#: Votes of the controller; without it, it would vote twice in one epoch.
_QUORUM_STATE = "quorum-state"


def up_to_first_gap(known: ProvablePartition) -> tuple[ProvablePartition, tuple[Path, ...]]:
    """What may be kept of the log, and the files that belong to it.

    Raises:
        KsegError, OSError: a file has changed, or cannot be read.
    """
    covered = read_cluster(known.path).snapshot_end
    kept: list[ProvableRun] = []
    rest = list(known.runs)
    end = 0
    while rest and rest[0].first_offset <= max(end, covered):
        run = rest.pop(0)
        cut = next((at for at, first in gaps_within(run) if first > covered), None)
        front = run if cut is None else run_between(run, run.position, cut)
        if front is not None:
            kept.append(front)
            end = front.last_offset + 1
        if cut is not None:
            behind = run_between(run, cut, run.end)
            rest[:0] = [] if behind is None else [behind]
            break
    numbers = {each.path: number for number, each in enumerate(known.segments)}
    left = [*known.unprovable, *(refused(run, "behind-gap") for run in rest)]
    left.sort(key=lambda one: (numbers[one.path], one.position))
    found = replace(
        known,
        runs=tuple(kept),
        unprovable=tuple(left),
        lost=lost_offsets(kept, left, known.segments, known.log_start_offset),
        segments=tuple(
            each
            for number, each in enumerate(known.segments)
            if not number or each.base_offset <= end
        ),
    )
    files = [
        each.path
        for each in list_partition(known.path).kraft_snapshots
        if each.name.base_offset == covered
    ]
    state = known.path / _QUORUM_STATE
    return found, (*files, *([state] if state.is_file() else ()))


__all__ = ["up_to_first_gap"]
