"""What `kseg doctor` says of a damaged directory, beside what Kafka did when it loaded it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kseg.analysis.doctor import Outcome, PartitionOutlook
from kseg.analysis.doctor.partitions import PartitionUnit, examine
from kseg.log.config import LogConfig
from tests.interop import careful
from tests.interop.lives import Found
from tests.reference import walk

if TYPE_CHECKING:
    from tests.interop.damaged import Case

Answer = dict[str, Any]

#: In Kafka 4.2 a directory survives these; any other exception stops the broker.
_OF_DISK = ("IOException", "KafkaStorageException")


def examined(directory: Path, case: Case) -> PartitionOutlook:
    """The doctor's word on a directory; nothing in it changes."""
    return examine(
        PartitionUnit(
            str(directory),
            case.clean,
            case.recovery_point,
            case.log_start_offset,
            LogConfig.from_kafka(case.story.config),
            case.story.now_ms,
            0,
        )
    )


def differences(
    outlook: PartitionOutlook,
    answer: Answer,
    before: careful.Logs,
    after: careful.Logs,
) -> Iterator[Found]:
    """Where the two do not agree: failure and exception, offsets, bytes, records that go.

    Args:
        outlook: the doctor's word.
        answer: of Kafka, which loaded the directory.
        before, after: log files in front of that load, and behind it.
    """
    if outlook.outcome is Outcome.UNKNOWN:  # an honest answer, for what is not imitated
        return
    if "error" in answer:
        expected = Outcome.OFFLINE if answer["error"] in _OF_DISK else Outcome.FAILS
        said = [one.exception for one in outlook.findings if one.code == "load-fails"]
        inflates = any(one.code == "not-imitated" for one in outlook.findings)
        if (
            said != [answer["error"]] and not (inflates and said == [None])
        ) or outlook.outcome is not expected:
            yield "doctor: the failure", answer["error"], (said, outlook.outcome)
        return
    loaded = answer["loaded"]
    if outlook.outcome is not Outcome.STARTS:
        yield "doctor: it loads", True, outlook.findings
        return
    for name in ("log_start_offset", "log_end_offset"):
        if getattr(outlook, name) != loaded[name]:
            yield f"doctor: {name}", loaded[name], getattr(outlook, name)
    # A log that begins again ends where it starts; segments may stay behind one that is cut.
    begins_anew = outlook.log_start_offset == outlook.log_end_offset
    cut = -1 if outlook.cut_offset is None or begins_anew else outlook.cut_offset
    if cut > loaded["log_end_offset"]:
        yield "doctor: the cut", loaded["log_end_offset"], cut
    gone = _records(before) - _records(after)
    same_files = not any(".swap" in name or ".cleaned" in name for name in (*before, *after))
    if same_files and outlook.lost_records is not None and gone > outlook.lost_records:
        yield "doctor: records that go", gone, outlook.lost_records


def _records(logs: careful.Logs) -> int:
    """Records of whole batches that match their checksums, as another reader counts them.

    A message of an older format counts as one, whatever it holds.
    """
    return sum(
        max(batch.record_count, 0) if batch.magic >= 2 else 1
        for data in logs.values()
        for batch in walk(data).batches
        if batch.crc_ok
    )
