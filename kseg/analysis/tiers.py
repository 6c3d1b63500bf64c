"""The contents of a tier beside a log, and the check of every byte in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from kseg.analysis.checks import VerifyOptions, examine_segment
from kseg.analysis.units import Unit, UnitKind
from kseg.analysis.values import Examined, Findings
from kseg.analysis.verify import merge_all
from kseg.documents import fields_of
from kseg.errors import KsegError, os_reason
from kseg.log.tier import Tier, TierLog, TierPath, holes
from kseg.stores.path import is_remote, name_of
from kseg.stores.store import Store
from kseg.workers import Work, run_in_order

#: What a batch may inflate to with `deep`.
_INFLATED_MAX = 1 << 30


def describe(tier: Tier, log: TierLog) -> dict[str, Any]:
    """A partition and its tier as the document of `kseg info --tier` has them.

    Raises:
        KsegError, OSError: the log's end cannot be read.
    """
    local = () if log.local is None else log.local.segments
    spans = log.spans
    view = log.view
    first = None if log.local is None else log.local.first_offset
    finished = log.finished
    ids = {span.segment.id for span in spans}
    read = _sums([copy for copy in finished if copy.id in ids])
    overlap = [copy for copy in finished if first is not None and copy.end_offset >= first]
    document: dict[str, Any] = {
        "path": str(view.path),
        **fields_of(view, "topic partition"),
        **fields_of(log, "topic_id layout source"),
        **fields_of(view, "log_start_offset log_end_offset"),
        "local_start_offset": first,
        "highest_remote_offset": log.highest_remote,
        "local": _sums(local),
        "remote": {
            **_sums(finished),
            **{f"read_{name}": number for name, number in read.items()},
        },
        "overlap": _sums(overlap),
        "holes": [list(hole) for hole in _holes(log)],
        "unread_objects": len(log.strays),
        "faults": [
            str(fault) if isinstance(fault, KsegError) else f"{fault.filename}: {os_reason(fault)}"
            for fault in log.faults
        ],
    }
    return document | traffic(tier)


def _sums(segments: Sequence[Any]) -> dict[str, int]:
    return {"segments": len(segments), "bytes": sum(segment.size for segment in segments)}


def traffic(tier: Tier) -> dict[str, int]:
    """Requests that a store was sent so far, and bytes that it gave; 0 for a directory."""
    if not is_remote(tier.root):
        return {"requests": 0, "bytes_read": 0}
    store = Store.of(tier.root)
    return {"requests": store.requests, "bytes_read": store.bytes}


def _fault(log: TierLog, fault: KsegError | OSError) -> tuple[str, str, str]:
    """A fault as a finding: its code, the object, the reason."""
    if isinstance(fault, KsegError):
        return "tier-metadata", fault.path or str(log.view.path), fault.reason
    return "unreadable", str(fault.filename or log.view.path), os_reason(fault)


def _holes(log: TierLog) -> list[tuple[int, int]]:
    end = log.view.log_end_offset if log.local is None else log.local.first_offset
    return holes(log.spans, log.view.log_start_offset, max(end, log.view.log_start_offset))


def examine_tier(log: TierLog, *, deep: bool, now_ms: int, threads: int = 1) -> Examined:
    """Examine every copy of a partition's segments in a tier, whether it is read or not.

    Args:
        log: of the partition.
        deep: decode every record.
        now_ms: times ahead of it are found.
        threads: segments that are read at a time.
    """
    findings = Findings()
    for fault in log.faults:
        findings.add(*_fault(log, fault))
    for url in log.strays:
        findings.say("tier-orphan", url)
    for first, last in _holes(log):
        findings.say("tier-hole", str(log.view.path), offset=first, last=last)
    answers = [Examined(findings=findings.taken())]
    options = VerifyOptions(deep, _INFLATED_MAX, "never", now_ms)

    def work(id_: str) -> Work:
        return lambda put: put(_examine(log, id_, options))

    works = [work(copy.id) for copy in log.finished]
    run_in_order(works, answers.append, threads=min(threads, len(works)) or 1)
    return merge_all(answers)


def _examine(log: TierLog, id_: str, options: VerifyOptions) -> Examined:
    """Examine one copy: its objects, their sizes, every batch and index."""
    segment, objects = log.copies[id_]
    findings = Findings()
    path = TierPath.of(objects, "log")
    names = ("index", "timeindex", "txnindex")
    try:
        size = objects.size("log")  # this reads the manifest, which says the indexes that there are
        index, time_index, txn_index = (
            name_of(TierPath.of(objects, name)) if objects.has(name) else None for name in names
        )
        if size != segment.size:
            findings.say("tier-size", str(path), size=size, stated=segment.size)
        for needed in names[:2]:
            objects.size(needed)
        unit = Unit(
            UnitKind.SEGMENT,
            name_of(path),
            base_offset=segment.start_offset,
            index=index,
            time_index=time_index,
            txn_index=txn_index,
        )
        seen = examine_segment(unit, options)
    except FileNotFoundError as error:
        findings.say("tier-object", str(error.filename), id=id_, reason=os_reason(error))
        return Examined(findings=findings.taken())
    except (KsegError, OSError) as error:
        findings.add(*_fault(log, error))
        return Examined(findings=findings.taken())
    if log.layout == "pinterest":  # it keeps no transaction indexes
        other_findings = (
            finding for finding in seen.findings if not finding.code.startswith("txn-index")
        )
        seen = replace(seen, findings=tuple(other_findings))
    elif any((summary.last_offset or 0) > segment.end_offset for summary in seen.segments):
        findings.say("tier-metadata.end", str(path), end=segment.end_offset)
    return merge_all((seen, Examined(findings=findings.taken())))
