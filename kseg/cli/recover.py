"""`kseg recover`: plan what a start after a crash would do to partitions, or do it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kseg import KsegError, RecoveryReport, apply_recovery, plan_recovery
from kseg import recover as recover_partition
from kseg.cli import changing, output
from kseg.cli.changing import Change, PartitionWork
from kseg.cli.escapes import printable
from kseg.cli.failures import Exit, complain
from kseg.cli.parsing import GivenSettings, Selection, some_of
from kseg.cli.paths import data_directories
from kseg.cli.paths import partitions as partitions_of
from kseg.cli.settings import known_configs
from kseg.errors import CorruptIndexError, UnreadableError
from kseg.files import lock
from kseg.files.metadata import read_clean_shutdown
from kseg.files.names import list_partition
from kseg.log import data_directory
from kseg.log.sub_directories import EntryKind, entry_of

if TYPE_CHECKING:
    from kseg import RecoveryPlan
    from kseg.log.config import LogConfig
    from kseg.workers import Put

    Progress = Callable[[int, int], None]

#: What every document of a changing verb says by itself.
_SAID: Sequence[str] = ("path", "applied", "actions")
#: What is recovered is noted in the checkpoints this often, for a run that goes on later.
_NOTED_SECONDS = 2.0


def recover(
    directories: tuple[str, ...],
    topics: tuple[str, ...],
    partitions: tuple[tuple[int, int], ...],
    given: GivenSettings,
    jobs: int,
    as_json: bool,
    as_broker: bool,
    clean: bool | None,
    recovery_point: int | None,
    log_start_offset: int | None,
    **how: Any,
) -> int:
    """Do what the verb says; returns the exit code."""
    change = changing.change_of(**how)
    directories, given = data_directories(directories, given)
    readable = list(partitions_of(directories, Selection(topics, partitions)))
    found = changing.changeable(readable)
    known = known_configs(found, given, directories)
    if len(found) > 1:
        found = [each for each in found if entry_of(each.path).kind is EntryKind.LOG]
        if recovery_point is not None or log_start_offset is not None:
            raise click.UsageError("Offsets are those of one partition, and DIR holds more.")
    asked = {
        "as_broker": as_broker,
        "clean": clean,
        "recovery_point": recovery_point,
        "log_start_offset": log_start_offset,
        "now_ms": given.clock(),
    }
    configs = {each.path.resolve().name: known[each.path] for each in found}
    places = [each.path for each in found]
    run = _Run(change, asked, configs, jobs)
    return run.go(output.path_field(directories), places, as_json=as_json)


class _Run:
    """One run.

    With `--apply` the partitions of a data directory without the mark are swept once, each by
    itself. All others are planned first, and then changed.
    """

    def __init__(
        self, change: Change, asked: dict[str, Any], configs: dict[str, LogConfig], jobs: int
    ) -> None:
        self.change = change
        self.asked = asked
        self.jobs = jobs
        #: By the name of the directory, which a copy has, too.
        self.configs = configs
        self.reports: list[RecoveryReport] = []
        #: Data directories that had no mark of a clean stop.
        self.unmarked: list[Path] = []

    def go(self, directory: str | list[str], found: list[Path], *, as_json: bool) -> int:
        """Plan, change, print; returns the exit code."""
        self.change.check_owners(found)
        homes = sorted({path.resolve().parent for path in found})
        self.unmarked = [home for home in homes if read_clean_shutdown(home) is None]
        with ExitStack() as stack:
            if self.change.apply:
                for home in homes:
                    stack.enter_context(lock.acquire(home))
            unclean = {home for home in homes if self._is_swept(home)}
            at_once = [path for path in found if path.resolve().parent in unclean]
            others = [path for path in found if path.resolve().parent not in unclean]
            plans = list(self._shared(others, (partial(self._plan, path) for path in others)))
            if not self.change.is_plan:
                _raise_first(plans)
                self._check_room(plans)
                if self.change.apply:  # one lease for all, so that the last one brings the mark
                    for home in _homes_of(plans):
                        if not _in_order(home, plans):
                            stack.callback(data_directory.enter(home).leave)
                plans = [plan if plan.error else self._change(plan) for plan in plans]
            plans += self._recover_all(at_once)
        return self._report(directory, plans, as_json=as_json)

    def _is_swept(self, home: Path) -> bool:
        """Whether the partitions of a data directory are recovered at once, without a plan."""
        unclean = read_clean_shutdown(home) is None and self.asked["clean"] is not True
        return self.change.apply and unclean

    def _recover_all(self, found: list[Path]) -> list[RecoveryPlan]:
        """Recover partitions, several at a time; an interruption leaves what is done."""
        with ExitStack() as stack:
            homes = sorted({path.resolve().parent for path in found})
            leases = [data_directory.enter(home) for home in homes]
            for lease in leases:
                stack.callback(lease.leave)
            works = (partial(self._recover, path, alone=len(found) == 1) for path in found)
            plans, written = [], time.monotonic()
            try:
                for plan in self._shared(found, works):
                    plans.append(plan)
                    if time.monotonic() - written > _NOTED_SECONDS:
                        for lease in leases:
                            lease.write_checkpoints()
                        written = time.monotonic()
            except KeyboardInterrupt:
                complain(
                    f"kseg: interrupted: {len(plans)} of {len(found)} partitions are in order, "
                    "nothing is half done; the same command goes on with the rest"
                )
                raise
        return plans

    def _shared(self, found: list[Path], works: Iterable[PartitionWork]) -> Iterator[RecoveryPlan]:
        return changing.share("recover", found, works, jobs=self.jobs)

    def _recover(self, path: Path, progress: Progress, put: Put, *, alone: bool) -> None:
        """Recover one partition; puts its plan, which says why, if it cannot be loaded."""
        try:
            if _may_start_behind(path) and (plan := self._plan_of(path)).error is not None:
                put(plan)
                return
            report = recover_partition(
                path,
                config=self._config(path),
                backup_directory=self.change.backup_directory,
                keep_cut=self.change.keeps,
                progress=progress,
                **self.asked,
            )
        except KsegError:
            # Without a bar of its own: one is there for all.
            plan = self._plan_of(path)
            if alone or plan.error is None:
                raise
            complain(f"kseg: left as it is: {printable(str(plan.error))}")
            put(plan)
            return
        self.reports.append(report)
        put(report.plan)

    def _plan(self, path: Path, progress: Progress, put: Put) -> None:
        put(self._plan_of(path, progress))

    def _plan_of(self, path: Path, progress: Progress | None = None) -> RecoveryPlan:
        """The plan, refused where a line of a checkpoint makes it delete all records of a log."""
        plan = plan_recovery(path, progress=progress, config=self._config(path), **self.asked)
        fault = plan.start_fault
        if fault is None or plan.error is not None or self.asked["log_start_offset"] is not None:
            return plan
        return replace(plan, error=CorruptIndexError(fault, path=plan.path), actions=())

    def _config(self, path: Path) -> LogConfig:
        return self.configs[path.resolve().name]

    def _check_room(self, plans: list[RecoveryPlan]) -> None:
        homes: dict[Path, int] = {}
        for plan in plans:
            home = _home_of(plan)
            homes[home] = homes.get(home, 0) + plan.truncated_bytes
        for home, size in homes.items():
            backup = self.change.backup_of(home, self.asked["now_ms"])
            if backup is not None:
                backup.check_room(size)

    def _change(self, plan: RecoveryPlan) -> RecoveryPlan:
        if self.change.output is not None:
            place = self.change.place_of(Path(plan.path), unclean=True)
            inputs = plan.inputs
            told = {
                "clean": inputs.clean,
                "recovery_point": inputs.recovery_point,
                "log_start_offset": inputs.log_start_offset,
            }
            plan = plan_recovery(place, config=self._config(place), **(self.asked | told))
        with output.progress("recover", 0) as bar:
            report = apply_recovery(
                plan,
                backup_directory=self.change.backup_directory,
                keep_cut=self.change.keeps,
                progress=bar.to,
            )
        self.reports.append(report)
        return plan

    # ---- what is said ----------------------------------------------------------------------------

    def _report(
        self, directory: str | list[str], plans: list[RecoveryPlan], *, as_json: bool
    ) -> int:
        applied = not self.change.is_plan
        documents = [plan.to_json(applied=applied) for plan in plans]
        if not as_json:
            for plan in plans:
                _print(plan)
        fields: dict[str, Any] = {"partitions": documents}
        if len(plans) == 1:
            fields = {name: documents[0][name] for name in documents[0] if name not in _SAID}
        else:
            fields |= {name: None for name in ("log_start_offset", "log_end_offset")}
            fields["clean"] = all(plan.clean for plan in plans)
            fields["lost"] = [lost for document in documents for lost in document["lost"]]
            fields["truncated_bytes"] = sum(plan.truncated_bytes for plan in plans)
        code = changing.report(
            "recover",
            directory,
            self.change,
            [action for plan in plans for action in plan.actions],
            [kept for one in self.reports for kept in one.kept],
            freed_bytes=sum(one.freed_bytes for one in self.reports) if self.change.apply else 0,
            as_json=as_json,
            **fields,
        )
        if self.change.output is None:
            _say_of_homes(plans, is_plan=self.change.is_plan)
        if self.change.apply and not as_json:
            self._say_what_is_in_order(plans)
        failed = any(plan.error is not None for plan in plans)
        return Exit.FOUND if failed else code

    def _say_what_is_in_order(self, plans: list[RecoveryPlan]) -> None:
        for home in self.unmarked:
            if read_clean_shutdown(home) is not None:
                count = sum(_home_of(plan) == home for plan in plans)
                output.write_line(
                    f"{home}: {count} partitions in order, mark of a clean stop written: "
                    "a start reads no log again"
                )


def _home_of(plan: RecoveryPlan) -> Path:
    """The data directory."""
    return Path(plan.path).resolve().parent


def _homes_of(plans: list[RecoveryPlan]) -> list[Path]:
    return sorted({_home_of(plan) for plan in plans})


def _in_order(home: Path, plans: list[RecoveryPlan]) -> bool:
    """Whether there is nothing to do in a data directory, also for its mark."""
    here = [plan for plan in plans if _home_of(plan) == home]
    return all(plan.is_noop for plan in here) and read_clean_shutdown(home) is not None


def _say_of_homes(plans: list[RecoveryPlan], *, is_plan: bool) -> None:
    """Report what no action shows: another writer, and what becomes of the mark."""
    for home in _homes_of(plans):
        holder = lock.holder(home) if is_plan else None
        if holder is not None:
            complain(f"kseg: {home}: {lock.who_holds(holder)} and may be writing to it")
        elif read_clean_shutdown(home) is None:
            _say_of_mark(home, plans, is_plan=is_plan)


def _say_of_mark(home: Path, plans: list[RecoveryPlan], *, is_plan: bool) -> None:
    """The mark is about the whole data directory, not only about the chosen partitions."""
    here = {Path(plan.path).resolve().name for plan in plans if _home_of(plan) == home}
    others = sorted(set(data_directory.marked_for(str(home))) - here)
    is_noop = all(plan.is_noop for plan in plans)
    if others and (is_noop or not is_plan):
        names = some_of(others)
        complain(f"kseg: {home}: no mark of a clean stop: it takes all in one run, {names} too")
    elif is_plan and is_noop:
        complain(f"kseg: {home}: no mark of a clean stop; --apply writes it")


def _raise_first(plans: list[RecoveryPlan]) -> None:
    for plan in plans:
        told = plan.start_fault is not None or isinstance(plan.error, UnreadableError)
        if plan.error is not None and not told:
            raise plan.error


def _may_start_behind(path: Path) -> bool:
    """Whether the checkpoint lets a log start behind the base offset of its last segment."""
    segments = list_partition(path).segments
    start = data_directory.told_of(path).log_start_offset
    return bool(segments) and start > segments[-1].base_offset


def _print(plan: RecoveryPlan) -> None:
    """Print the findings and the offsets; the files follow in one table."""
    if plan.start_fault is not None:
        output.write_line(f"{plan.path}: {plan.start_fault}")
        for line in plan.start_advice.splitlines():
            output.write_line(line)
        if plan.error is not None:
            start = plan.inputs.log_start_offset
            output.write_line(f"{plan.path}: left as it is without --log-start-offset {start}")
            return
    if plan.error is None:
        for finding in plan.findings:
            output.write_line(str(finding))  # it names the file
    for row in replace(plan, actions=(), findings=()).rows():
        output.write_line(row if plan.path in row else f"{plan.path}: {row}")
