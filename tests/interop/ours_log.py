"""kseg's log does the steps of `tests/interop/java/logs`, and tells of itself in the same words."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final
from unittest import mock

from kseg.errors import KsegError, ProducerError, RecordBatchTooLargeError
from kseg.files.txn_index import TxnIndex
from kseg.log.cleaner.clean import CompactionOptions, apply_state, plan_inputs
from kseg.log.cleaner.inputs import CleanerInputs
from kseg.log.config import LogConfig
from kseg.log.data_directory import PartitionOffsets
from kseg.log.producers.entry import ProducerEntry
from kseg.log.reader import fetch, find
from kseg.log.validate.rules import AppendOrigin, ValidatedBatch
from kseg.log.writer import append, flush, retention, truncate
from kseg.log.writer.flush import open_state
from kseg.log.writer.state import LogState
from tests.interop.kafka import RELEASE, rules_of

Answer = dict[str, Any]

_ISOLATIONS = {
    "log_end": "log_end",
    "high_watermark": "read_uncommitted",
    "txn_committed": "read_committed",
}


class OurLog:
    """One log, opened for appending; the clock is that of the step."""

    def __init__(
        self,
        directory: Path,
        config: dict[str, str],
        *,
        now_ms: int = 0,
        known: PartitionOffsets | None = None,
    ) -> None:
        self.now_ms = now_ms
        self.state, self._lease = open_state(
            directory,
            create=True,
            recover=True,
            config=LogConfig.from_kafka(config),
            now_ms=lambda: self.now_ms,
            known=known,
        )

    def do(self, steps: Iterable[Answer]) -> list[Answer]:
        """Each step; one that fails says so, and the next one follows."""
        return [self._done(step) for step in steps]

    def _done(self, step: Answer) -> Answer:
        self.now_ms = step.get("now_ms", self.now_ms)
        try:
            with mock.patch.object(append, "_append", _refused_as_by_kafka):
                return _STEPS[step["do"]](self.state, step)
        except (KsegError, ValueError) as error:
            return {"error": type(error).__name__, "said": str(error)}

    def close(self, how: str) -> None:
        """In good order, or with the files as they lie."""
        clean = how == "clean"
        if clean:
            flush.close(self.state)
        else:
            self.state.active.close(trim=False)
            self.state.mark_closed()
        self._lease.leave(clean=clean)


_take: Final = append._append


def _refused_as_by_kafka(
    state: LogState,
    batch: ValidatedBatch,
    leader_epoch: int,
    origin: AppendOrigin,
    now_ms: int,
    *rest: Any,
) -> append.AppendResult:
    """Leave of an append that is refused what Kafka leaves, where kseg leaves nothing.

    Kafka has taken its epochs, and has rolled, before it compares sizes and asks the producers.
    """
    try:
        return _take(state, batch, leader_epoch, origin, now_ms, *rest)
    except (ProducerError, RecordBatchTooLargeError) as error:
        before = state.epochs.entries
        _, first, epochs = append.headers_and_epochs(before, batch, leader_epoch)
        state.epochs.replace(epochs)
        if isinstance(error, ProducerError):
            base = append.new_base(state, batch, first, len(batch), now_ms)
            if base is not None:
                flush.roll(state, base)
        raise


def told(state: LogState) -> Answer:
    """What the log is like."""
    seen = state.version
    return {
        "log_start_offset": seen.log_start_offset,
        "log_end_offset": seen.log_end.offset,
        "high_watermark": seen.high_watermark.offset,
        "last_stable_offset": seen.last_stable.offset,
        "recovery_point": seen.recovery_point,
        "epochs": [list(entry) for entry in state.epochs.entries],
        "producers": [producer(entry) for _, entry in sorted(state.producers.entries.items())],
        "segments": [
            {
                "base_offset": info.base_offset,
                "size": info.size,
                "aborted": _aborted(info.path.with_suffix(".txnindex")),
            }
            for info in state.segments
        ],
    }


def producer(entry: ProducerEntry) -> Answer:
    """One producer."""
    return {
        "id": entry.producer_id,
        "epoch": entry.producer_epoch,
        "coordinator_epoch": entry.coordinator_epoch,
        "last_timestamp": entry.last_timestamp,
        "transaction_from": entry.current_txn_first_offset,
        "batches": [list(batch) for batch in entry.batches],
    }


def _aborted(path: Path) -> list[list[int]]:
    if not path.exists():
        return []
    return [
        [one.producer_id, one.first_offset, one.last_offset, one.last_stable_offset]
        for one in TxnIndex.open(path).entries()
    ]


def _append(state: LogState, step: Answer) -> Answer:
    origin = AppendOrigin[step.get("origin", "client").upper()]
    version = 1 if origin is AppendOrigin.COORDINATOR else 0
    return _appended(
        append.append_as_leader(
            state,
            step["data"],
            leader_epoch=step.get("epoch", 0),
            origin=origin,
            transaction_version=version,
        )
    )


def _follow(state: LogState, step: Answer) -> Answer:
    return _appended(
        append.append_as_follower(state, step["data"], leader_epoch=step.get("epoch", 0))
    )


def _appended(result: append.AppendResult) -> Answer:
    return {
        "first_offset": result.first_offset,
        "last_offset": result.last_offset,
        "max_timestamp": result.max_timestamp,
        "log_append_time": result.log_append_time,
        "log_start_offset": result.log_start_offset,
        "valid_bytes": result.valid_bytes,
    }


def _roll(state: LogState, step: Answer) -> Answer:
    return {"base_offset": flush.roll(state)}


def _flush(state: LogState, step: Answer) -> Answer:
    return {"recovery_point": flush.flush(state, whole=step.get("all", True))}


def _truncate(state: LogState, step: Answer) -> Answer:
    return {"changed": truncate.truncate_to(state, step["to"])}


def _start_over(state: LogState, step: Answer) -> Answer:
    truncate.truncate_fully_and_start_at(state, step["to"])
    return {}


def _start_at(state: LogState, step: Answer) -> Answer:
    return {"changed": truncate.increment_log_start(state, step["to"])}


def _retain(state: LogState, step: Answer) -> Answer:
    report = retention.apply_state(state, retention.plan_state(state))
    return {"deleted": report.segments_count}


def _clean(state: LogState, step: Answer) -> Answer:
    options = CompactionOptions(
        from_start=step["all"],
        rules=rules_of(RELEASE),
        map_bytes=step["map_bytes"],
        measure=step["measure"],
    )
    plan = plan_inputs(CleanerInputs.of_state(state), None, options)
    report = apply_state(state, plan)
    return {
        "cleanable_bytes": plan.cleanable_bytes,
        "passes": report.passes,
        "end_offset": report.end_offset,
    }


def _epoch(state: LogState, step: Answer) -> Answer:
    state.epochs.assign(step["epoch"], state.log_end.offset)
    return {}


def _settle(state: LogState, step: Answer) -> Answer:
    state.deletions.remove_due(2**63)
    return {}


def _find(state: LogState, step: Answer) -> Answer:
    found = find.offset_for_timestamp(state, step["timestamp"], epochs=state.epochs.entries)
    return {} if found is None else found._asdict()


def _epoch_end(state: LogState, step: Answer) -> Answer:
    end = find.end_offset_for_epoch(state, step["epoch"], epochs=state.epochs.entries)
    return {} if end is None else {"epoch": end.epoch, "offset": end.end_offset}


def _read(state: LogState, step: Answer) -> Answer:
    """One fetch, as the driver tells it."""
    got = fetch.fetch(
        state,
        step["from"],
        max_bytes=step["bytes"],
        isolation=_ISOLATIONS[step["isolation"]],
        min_one_message=step["one"],
    )
    return {
        "data": b64encode(got.data).decode(),
        "segment": got.segment,
        "position": got.position,
        "incomplete": got.first_batch_incomplete,
        "aborted": [list(one) for one in got.aborted or ()],
    }


_STEPS: dict[str, Callable[[LogState, Answer], Answer]] = {
    "append": _append,
    "follow": _follow,
    "roll": _roll,
    "flush": _flush,
    "truncate": _truncate,
    "start_over": _start_over,
    "start_at": _start_at,
    "retain": _retain,
    "clean": _clean,
    "epoch": _epoch,
    "settle": _settle,
    "find": _find,
    "epoch_end": _epoch_end,
    "read": _read,
}
