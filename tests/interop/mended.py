"""What kseg plans for a damaged directory as a broker would, and what it then does."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from kseg.log.config import LogConfig
from kseg.log.recovery.load_context import LOG, file_of
from kseg.log.recovery.recover import RecoveryPlan, plan_recovery
from tests.interop import careful, lives

if TYPE_CHECKING:
    from tests.interop.damaged import Case

Answer = dict[str, Any]


def as_broker(directory: Path, case: Case) -> Answer:
    """Plan and apply; what the log is like then, in the driver's words, or why it cannot be.

    Raises:
        AssertionError: it did not come to what was planned.
    """
    plan = _plan(directory, case, as_broker=True)
    if plan.error is not None:
        return {"error": type(plan.error).__name__, "said": str(plan.error)}
    plan.apply(keep_cut=False)
    for segment in plan.segments:
        log = directory / file_of(segment.base_offset, LOG)
        assert log.exists() != segment.goes, segment
        assert segment.goes or log.stat().st_size == segment.keep_bytes, segment
    return {
        "log_start_offset": plan.log_start_offset,
        "log_end_offset": plan.log_end_offset,
        "recovery_point": plan.recovery_point,
        "epochs": [list(entry) for entry in plan.epochs],
    }


def carefully(directory: Path, case: Case) -> None:
    """Plan and apply in kseg's own way, and once more; unless that is refused.

    Raises:
        AssertionError: something is lost or still wrong, or the second time changes something.
    """
    before = careful.logs_in(directory)
    plan = _plan(directory, case, as_broker=False)
    if plan.error is not None:
        return
    kept = lives.fresh(directory.parent.parent / "kept")
    plan.apply(backup_directory=kept)
    starts = (step["to"] for step in case.story.steps if step["do"] == "start_at")
    careful.check(before, plan, directory, kept, live_start=max(starts, default=0))
    again = _plan(directory, case, as_broker=False)
    assert again.is_noop, [*plan.rows(), "and once more", *again.rows()]


def _plan(directory: Path, case: Case, *, as_broker: bool) -> RecoveryPlan:
    return plan_recovery(
        directory,
        as_broker=as_broker,
        clean=case.clean,
        recovery_point=case.recovery_point,
        log_start_offset=case.log_start_offset,
        config=LogConfig.from_kafka(case.story.config),
        now_ms=case.story.now_ms,
    )
