"""`kseg reindex`: indexes and producer snapshots, made anew from the log."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kseg import ReindexPlan, apply_reindex, plan_reindex
from kseg.cli import changing
from kseg.cli.changing import Change, PartitionWork
from kseg.cli.escapes import printable
from kseg.cli.failures import Exit, complain
from kseg.cli.parsing import GivenSettings, Selection
from kseg.cli.paths import Partition
from kseg.cli.paths import partitions as partitions_of
from kseg.cli.settings import known_configs
from kseg.log.recovery import KINDS

if TYPE_CHECKING:
    from kseg.log.recovery import Kept
    from kseg.workers import Put

    Progress = Callable[[int, int], None]

_KINDS = {kind.value: kind for kind in KINDS}


def reindex(
    directory: str,
    kinds: tuple[str, ...],
    exact: bool,
    topics: tuple[str, ...],
    partitions: tuple[tuple[int, int], ...],
    given: GivenSettings,
    jobs: int,
    as_json: bool,
    **how: Any,
) -> int:
    """Do what the verb says; returns the exit code."""
    change = changing.change_of(**how)
    run = _Run(change, given.clock(), jobs)
    asked_of_all = {
        "kinds": tuple(_KINDS[kind] for kind in kinds) or KINDS,
        "exact": exact,
        "now_ms": given.now_ms,
    }
    found = changing.changeable(list(partitions_of((directory,), Selection(topics, partitions))))
    configs = known_configs(found, given)
    asked = {each: asked_of_all | {"config": configs[each.path]} for each in found}
    run.look(asked)
    if not change.is_plan:
        run.change_all(asked)
    return run.report(directory, as_json=as_json)


class _Run:
    """One run over partitions, which threads share, with their results."""

    def __init__(self, change: Change, now_ms: int, jobs: int) -> None:
        self.change = change
        self.now_ms = now_ms
        self.jobs = jobs
        self.plans: dict[Partition, ReindexPlan] = {}
        self.kept: list[Kept] = []

    def look(self, asked: dict[Partition, dict[str, Any]]) -> None:
        """Plan, and change nothing.

        Args:
            asked: of each partition, what `plan_reindex` takes.
        """
        paths = [each.path for each in asked]
        works = (partial(self._plan, each.path, asked[each]) for each in asked)
        plans = changing.share("reindex", paths, works, jobs=self.jobs)
        self.plans = dict(zip(asked, plans, strict=True))

    def change_all(self, asked: dict[Partition, dict[str, Any]]) -> None:
        """Change partitions that differ, under the lock of the data directory."""
        differing = [partition for partition, plan in self.plans.items() if not plan.is_noop]
        paths = [partition.path for partition in differing]
        with self.change.holding(paths):
            works = (self._changing(partition, asked[partition]) for partition in differing)
            results = changing.share("reindex", paths, works, jobs=self.jobs)
            for partition, (plan, kept) in zip(differing, results, strict=True):
                self.plans[partition] = plan
                self.kept += kept

    def _plan(self, path: Path, asked: dict[str, Any], progress: Progress, put: Put) -> None:
        put(plan_reindex(path, **asked, progress=progress))

    def _changing(self, partition: Partition, asked: dict[str, Any]) -> PartitionWork:
        """The change of a partition, or of the copy of it that this makes now."""
        place = self.change.place_of(partition.path, unclean=True)
        return partial(self._change, partition, place, asked)

    def _change(
        self,
        partition: Partition,
        place: Path,
        asked: dict[str, Any],
        progress: Progress,
        put: Put,
    ) -> None:
        plan = self.plans[partition]
        if place != partition.path:
            plan = plan_reindex(place, **asked)
        backup = self.change.backup_of(place.resolve().parent, self.now_ms)
        apply_reindex(plan, keep=False, backup=backup, progress=progress)
        put((plan, [] if backup is None else backup.kept))

    def report(self, directory: str, *, as_json: bool) -> int:
        """Print the results; returns the exit code."""
        findings = [finding for plan in self.plans.values() for finding in plan.findings]
        code = changing.report(
            "reindex",
            directory,
            self.change,
            [each for plan in self.plans.values() for each in plan.actions],
            self.kept,
            as_json=as_json,
            findings=[printable(str(finding)) for finding in findings],
            partitions=[
                document(plan, partition.topic, partition.partition)
                for partition, plan in self.plans.items()
            ],
        )
        return Exit.FOUND if say_left_alone(findings) else code


def say_left_alone(findings: Sequence[object]) -> bool:
    """Name each damaged log on standard error; returns whether there is any."""
    for finding in findings:
        complain(f"kseg: left alone: {printable(str(finding))}; 'kseg recover' tells what to do")
    return bool(findings)


def document(plan: ReindexPlan, topic: str | None, partition: int | None) -> dict[str, Any]:
    """One partition as it stands in JSON."""
    return {
        "path": str(plan.path),
        "topic": topic,
        "partition": partition,
        "segments": [
            {
                "base_offset": each.base_offset,
                "size": each.size,
                "index_entries": each.index_entries,
                "time_index_entries": each.time_index_entries,
                "aborted_transactions": each.aborted,
            }
            for each in plan.segments
        ],
    }
