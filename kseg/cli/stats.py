"""`kseg stats`: `kseg.analysis.stats` on a command line."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from kseg.cli import closed, output
from kseg.cli.failures import Exit, complain, pass_over
from kseg.cli.info import BESIDES, HEAD, LEFT, PRIORITY, names_of, partition_row
from kseg.cli.parsing import GivenSettings, Selection
from kseg.cli.paths import places

if TYPE_CHECKING:
    from kseg.analysis.stats import PartitionReport, StatsReport
    from kseg.log.cleanup import ClosedPartition

#: Of a key that is shown as text; JSON has the whole.
_KEY_CHARACTERS_MAX = 24


def stats(
    paths: tuple[str, ...],
    top: int,
    headers: bool,
    encoding: str,
    with_compaction: bool,
    jobs: int,
    topics: tuple[str, ...],
    partitions: tuple[tuple[int, int], ...],
    as_json: bool,
    given: GivenSettings,
) -> int:
    """Do what the verb says; returns the exit code."""
    from kseg.analysis.stats import StatsOptions
    from kseg.analysis.stats import stats as run

    selection = Selection(topics, partitions)
    planned = _planned(paths, selection, given) if with_compaction else None
    if planned is None and given != GivenSettings():
        raise click.UsageError("Settings and --now are for --compaction.")
    options = StatsOptions(records=not headers, top=top)
    with output.progress("stats", 0) as bar:
        report = run(
            list(places(paths, selection)),
            options=options,
            jobs=jobs,
            progress=bar.to,
            on_error="skip",
        )
    for skipped in report.skipped:
        pass_over(skipped.error)
    return write_report(report, paths, encoding, planned, as_json=as_json)


def _planned(
    paths: Sequence[str],
    selection: Selection,
    given: GivenSettings,
) -> list[ClosedPartition]:
    """The partitions with segments, and what compaction would do to them."""
    from kseg.cli.paths import partitions
    from kseg.cli.settings import known_settings, say_of_findings
    from kseg.log.cleanup import Cleanup
    from kseg.log.closed import has_segments

    found = list(partitions(paths, selection))
    known = known_settings(found, given)
    say_of_findings(known.findings)
    how = Cleanup(given.clock())
    planned = []
    for each in found:
        if has_segments(each.path):
            one = how.of(each.path, known.of(each.path))
            try:
                how.plan(one)
            except OSError as error:
                pass_over(error)
            else:
                planned.append(one)
    return planned


def write_report(
    report: StatsReport,
    paths: Sequence[str],
    encoding: str,
    planned: Sequence[ClosedPartition] | None = None,
    *,
    as_json: bool,
) -> Exit:
    """Print the counts, and faults on standard error; returns the exit code.

    Args:
        report: the counts.
        paths: as they were given.
        encoding: of keys in JSON.
        planned: what compaction would do; None where it was not asked for.
        as_json: one document instead of tables.
    """
    if as_json:
        write = _ENCODERS[encoding]
        rows = [_document(one, write) for one in report.partitions]
        if planned is not None:
            plans = {str(one.path): closed.compaction_document(one) for one in planned}
            for row in rows:
                row["compaction"] = plans.get(row["path"])
        output.write_document("stats/1", {"path": output.path_field(paths), "partitions": rows})
    else:
        _print(report)
        if planned is not None:
            _print_compaction(planned)
    complain(*(f"kseg: {fault}" for one in report.partitions for fault in one.stats.faults))
    damaged = planned is not None and closed.say_damage(planned)
    return Exit.FOUND if report.fault_count or damaged else Exit.OK


def _utf8(data: bytes) -> str:
    return data.decode("utf-8", "replace")


_ENCODERS: dict[str, Callable[[bytes], str]] = {
    "base64": lambda data: base64.b64encode(data).decode("ascii"),
    "utf8": _utf8,
    "hex": bytes.hex,
}


def _document(one: PartitionReport, write: Callable[[bytes], str]) -> dict[str, Any]:
    document = one.document()
    for key in document.get("top_keys", ()):
        key["key"] = write(key["key"])
    return document


_SIZES = ("p50", "p99", "max")


def _print(report: StatsReport) -> None:
    documents = [one.document() for one in report.partitions]
    found = sorted(
        zip(names_of(documents), report.partitions, documents, strict=True),
        key=lambda named: -named[2]["bytes"],
    )
    output.write_fitted_table(
        (*HEAD, *_SIZES, "keys"),
        [_row(name, document) for name, _one, document in found],
        (*PRIORITY, *reversed(_SIZES[1:]), "keys", *BESIDES, _SIZES[0]),
        LEFT,
    )
    keys = [
        (
            name,
            _short(key.key),
            output.human_count(key.records),
            output.human_bytes(key.bytes),
            output.human_bytes(key.bytes_error) if key.bytes_error else None,
        )
        for name, one, _document in found
        for key in one.top_keys
    ]
    if keys:
        output.write_line()
        head = ("partition", "key", "records", "bytes", "error")
        output.write_fitted_table(head, keys, ("bytes", "records", "key", "error"), LEFT)
    if any(one.stats.records is not None for one in report.partitions):
        output.write_line()
        output.write_lines(_estimates(with_errors=any(key[-1] for key in keys)))


def _estimates(*, with_errors: bool) -> Iterator[str]:
    from kseg.analysis.stats import DISTINCT_ERROR, QUANTILE_ERROR

    yield f"p50 and p99 are estimates, at most {QUANTILE_ERROR:.2%} too large; max is exact"
    yield f"keys, the different ones, are estimated with a standard error of {DISTINCT_ERROR:.1%}"
    if with_errors:
        yield "a key has its records and bytes at least; its bytes are more by its error at most"


def _print_compaction(planned: Sequence[ClosedPartition]) -> None:
    """What would be saved, by partition and by segment; then what stays, and why."""
    plans = [(one.path.name, one.plan) for one in planned if one.plan is not None]
    names = ("bytes", "kept_bytes", "saved_bytes", "records", "kept_records", "saved_records")
    output.write_line()
    output.write_table(
        ("compaction", *names),
        [
            (name, *(getattr(plan, each) for each in names))
            for name, plan in plans
            if plan.skipped is None
        ],
    )
    segments = [
        (name, each.base_offset, each.bytes, each.kept_bytes, each.saved_bytes)
        for name, plan in plans
        for group in plan.groups
        for each in group.segments
    ]
    if segments:
        output.write_line()
        output.write_table(("partition", "segment", *names[:3]), segments)
    closed.say_what_stays(planned)


def _row(name: str, document: dict[str, Any]) -> list[object]:
    sizes = document.get("record_bytes", {})
    return [
        *partition_row(name, document),
        *(None if at not in sizes else output.human_bytes(sizes[at]) for at in _SIZES),
        output.human_count(document.get("distinct_keys")),
    ]


def _short(key: bytes) -> str:
    text = _utf8(key)
    return text if len(text) <= _KEY_CHARACTERS_MAX else text[: _KEY_CHARACTERS_MAX - 1] + "…"
