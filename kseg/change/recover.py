"""The recovery of many partitions.

In place, the partitions of a data directory without the mark of a clean stop are each planned and
recovered in one pass. All others are planned first, and then changed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from kseg.change.run import ChangeOptions, Share, home_of, homes_of, run
from kseg.constants import Progress
from kseg.documents import frozen_dataclass
from kseg.errors import CorruptIndexError, KsegError, UnreadableError
from kseg.files import io, lock
from kseg.files.metadata import read_clean_shutdown
from kseg.files.names import list_partition
from kseg.log import data_directory
from kseg.log.recovery.recover import (
    RecoveryOptions,
    RecoveryPlan,
    RecoveryReport,
    plan_recovery,
    recover,
)
from kseg.log.tier.history import tiered

#: A recovery writes the checkpoints this often, for a run that continues after a kill.
_NOTED_SECONDS: Final = 2.0


@frozen_dataclass
class _Recovery:
    """The recovery of several partitions; see `recover_all`, whose `how` is `options_of` here."""

    options: ChangeOptions
    options_of: Callable[[Path], RecoveryOptions]
    share: Share
    note: Callable[[str], object]

    def plan(self, path: Path, progress: Progress | None = None) -> RecoveryPlan:
        """The plan; refused if a start in a checkpoint would delete all records of a log."""
        recovery_options = self.options_of(path)
        plan = plan_recovery(path, progress=progress, **recovery_options)
        fault = plan.start_fault
        is_of_checkpoint = recovery_options.get("log_start_offset") is None
        if fault is not None and plan.error is None and is_of_checkpoint:
            plan = replace(plan, error=CorruptIndexError(fault, path=plan.path), actions=())
        return plan

    def put_plan(self, path: Path, progress: Any, put: Any) -> None:
        """The plan, for `share`."""
        put(self.plan(path, progress))

    def plan_of_copy(self, plan: RecoveryPlan, copy: Path) -> RecoveryPlan:
        """The plan for a copy of a planned log.

        A copy has no mark, no checkpoints and no tier beside it, so it gets what the plan for the
        log itself has read there.
        """
        recovery_options, inputs = self.options_of(copy), plan.inputs
        recovery_options["clean"] = inputs.clean
        recovery_options["recovery_point"] = inputs.recovery_point
        recovery_options["log_start_offset"] = inputs.log_start_offset
        recovery_options["tier"] = tiered(plan.path, inputs.tier) or inputs.tier
        return plan_recovery(copy, **recovery_options)

    def apply(self, plans: Sequence[RecoveryPlan]) -> list[RecoveryReport]:
        """Change partitions one after the other, as planned; others get a report as well."""
        for plan in () if self.options.is_plan else plans:
            is_unreadable = plan.start_fault is not None or isinstance(plan.error, UnreadableError)
            if plan.error is not None and not is_unreadable:
                raise plan.error
        # One lease for all of a data directory: the last one leaves the mark.
        todo = {home_of(plan.path) for plan in plans if self.options.output or not plan.is_done}
        return run(
            plans,
            self.options,
            self.plan_of_copy,
            share=self.share,
            threads=1,
            unclean=True,
            passed_over=lambda plan: plan.error is not None or home_of(plan.path) not in todo,
        )

    def sweep(self, paths: Sequence[Path]) -> list[RecoveryReport]:
        """Recover partitions, several at a time; after an interruption the finished ones stay."""
        reports: dict[str, RecoveryReport] = {}
        waiting = list(paths)
        with ExitStack() as stack:
            leases = [data_directory.enter(home) for home in homes_of(paths)]
            for lease in leases:
                stack.callback(lease.leave)
            written = time.monotonic()
            try:
                while waiting:
                    refused: dict[Path, OSError] = {}
                    recover_one = partial(self._recover, refused, alone=len(paths) == 1)
                    works = (partial(recover_one, path) for path in waiting)
                    for report in self.share(waiting, works, None):
                        if report is not None:
                            reports[report.plan.path] = report
                        if time.monotonic() - written > _NOTED_SECONDS:
                            for lease in leases:
                                lease.write_checkpoints()
                            written = time.monotonic()
                    if len(refused) == len(waiting):
                        raise _with_way_out(refused[waiting[0]])
                    waiting = [
                        path for path in waiting if path in refused
                    ]  # others have given room
            except KeyboardInterrupt:
                self.note(
                    f"interrupted: {len(reports)} of {len(paths)} partitions are in order, "
                    "nothing is half done; the same command continues with the rest"
                )
                raise
        return [reports[str(path)] for path in paths]

    def _recover(
        self, refused: dict[Path, OSError], path: Path, progress: Any, put: Any, *, alone: bool
    ) -> None:
        """Recover one partition; if it cannot be loaded, its plan says why.

        If the disk is too full for it, its error is noted in `refused`, and the report is None.
        """
        try:
            # The checkpoint may let the log start after the base offset of its last segment.
            segments = list_partition(path).segments
            start = data_directory.offsets_beside(path).log_start_offset
            if (
                segments
                and start > segments[-1].base_offset
                and (plan := self.plan(path)).error is not None
            ):
                put(RecoveryReport(plan))
                return
            report = recover(
                path,
                backup_directory=self.options.backup_directory,
                keep_cut=self.options.keeps,
                progress=progress,
                **self.options_of(path),
            )
        except KsegError:
            plan = self.plan(path)
            if alone or plan.error is None:
                raise
            self.note(f"left as it is: {plan.error}")
            report = RecoveryReport(plan)
        except OSError as error:
            if not io.is_full(error):
                raise
            refused[path] = error
            put(None)
            return
        put(report)


def recover_all(
    paths: Sequence[Path],
    options: ChangeOptions,
    how: Callable[[Path], RecoveryOptions],
    *,
    share: Share,
    note: Callable[[str], object],
) -> list[RecoveryReport]:
    """Plan recoveries, and apply the plans; a plan says why its log cannot be loaded.

    Args:
        paths: the partitions.
        options: where and how they are changed, if at all.
        how: the options of a partition, or of its copy, which has the same name.
        share: does the work on partitions.
        note: is called with a line for the user.

    Raises:
        KsegError: a log cannot be loaded, where nothing is known of a way out.
        LogLockedError: another process holds a data directory.
        PermissionError, OSError: as `ChangeOptions.check_owners` and the changes have it.
    """
    recovery = _Recovery(options, how, share, note)
    options.check_owners(paths)
    data_directories = homes_of(paths)
    with ExitStack() as stack:
        for home in data_directories if options.apply else ():
            stack.enter_context(lock.acquire(home))
        sweeps = options.apply and not any(how(path).get("clean") for path in paths[:1])
        unclean = {
            home for home in data_directories if sweeps and read_clean_shutdown(home) is None
        }
        others = [path for path in paths if home_of(path) not in unclean]
        plans = list(share(others, (partial(recovery.put_plan, path) for path in others), None))
        reports = recovery.apply(plans)
        return reports + recovery.sweep([path for path in paths if home_of(path) in unclean])


def _with_way_out(error: OSError) -> OSError:
    """The error of a disk too full for any recovery, with the step that works."""
    if "--no-backup" in str(error):
        return error
    why = (
        f"{error.strerror}; 'kseg retain --no-backup --apply' deletes expired segments before "
        "the recovery point without a recovery"
    )
    return OSError(error.errno, why, error.filename)
