"""`kseg reindex`: indexes and producer snapshots, made anew from the log."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from kseg import ReindexPlan, apply_reindex, plan_reindex
from kseg.cli import changing, output
from kseg.cli.changing import Change
from kseg.cli.escapes import printable
from kseg.cli.failures import Exit, complain
from kseg.cli.options import (
    Selection,
    Setting,
    clock_of,
)
from kseg.cli.paths import Partition
from kseg.cli.paths import partitions as partitions_of
from kseg.cli.settings import known_configs
from kseg.log.recovery import KINDS, Backup

if TYPE_CHECKING:
    from collections.abc import Sequence

_KINDS = {kind.value: kind for kind in KINDS}


def reindex(
    directory: str,
    kinds: tuple[str, ...],
    exact: bool,
    topics: tuple[str, ...],
    partitions: tuple[tuple[int, int], ...],
    settings: tuple[Setting, ...],
    now_ms: int | None,
    broker_config: str | None,
    metadata_dir: str | None,
    as_json: bool,
    **how: Any,
) -> int:
    """Do what the verb says; returns the exit code."""
    change = changing.change_of(**how)
    run = _Run(change, clock_of(now_ms)())
    asked = {
        "kinds": tuple(_KINDS[kind] for kind in kinds) or KINDS,
        "exact": exact,
        "now_ms": now_ms,
    }
    found = changing.changeable(list(partitions_of((directory,), Selection(topics, partitions))))
    configs = known_configs(found, settings, broker_config=broker_config, metadata_dir=metadata_dir)
    for partition in found:
        run.look(partition, asked | {"config": configs[partition.path]})
    if not change.is_plan:
        run.change_all(asked)
    return run.report(directory, as_json=as_json)


class _Run:
    """One run, partition by partition, with their results."""

    def __init__(self, change: Change, now_ms: int) -> None:
        self.change = change
        self.now_ms = now_ms
        self.plans: dict[Partition, ReindexPlan] = {}
        self.kept: dict[Path, Backup | None] = {}

    def look(self, partition: Partition, asked: dict[str, Any]) -> None:
        """Plan, and change nothing."""
        with output.progress(partition.path.name, 1) as bar:
            self.plans[partition] = plan_reindex(partition.path, **asked, progress=bar.to)

    def change_all(self, asked: dict[str, Any]) -> None:
        """Change partitions that differ, under the lock of the data directory."""
        differing = [partition for partition, plan in self.plans.items() if not plan.is_noop]
        with self.change.holding(partition.path for partition in differing):
            for partition in differing:
                self._change(partition, asked)

    def _change(self, partition: Partition, asked: dict[str, Any]) -> None:
        place = self.change.place_of(partition.path, unclean=True)
        plan = self.plans[partition]
        if place != partition.path:
            plan = self.plans[partition] = plan_reindex(place, config=plan.config, **asked)
        home = place.resolve().parent
        if home not in self.kept:
            self.kept[home] = self.change.backup_of(home, self.now_ms)
        with output.progress(place.name, 1) as bar:
            apply_reindex(plan, keep=False, backup=self.kept[home], progress=bar.to)

    def report(self, directory: str, *, as_json: bool) -> int:
        """Print the results; returns the exit code."""
        findings = [finding for plan in self.plans.values() for finding in plan.findings]
        code = changing.report(
            "reindex",
            directory,
            self.change,
            [each for plan in self.plans.values() for each in plan.actions],
            changing.all_kept(self.kept.values()),
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
