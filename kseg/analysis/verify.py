"""Is every byte right? The three functions of an analysis, and `verify`, which runs them.

    units = plan(paths)                      the units of work
    examine(unit, options) -> Examined       one unit, anywhere
    merge_all(answers) -> Examined           in any order
    report(examined) -> Report               adds the checks across files

Nothing is changed and nothing is locked. A log that a broker writes to at the same time may seem to
have a torn tail, which is a warning. `examine_tier` examines the copies of segments in a tier.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import fields, replace
from functools import partial
from itertools import chain
from operator import attrgetter
from pathlib import Path
from typing import Any, Final

import numpy as np

from kseg._door import renamed
from kseg.analysis.checks import INFLATED_BYTES_MAX, VerifyOptions, examine_segment
from kseg.analysis.files import (
    check_across,
    examine_data_directory,
    examine_file,
    examine_partition,
)
from kseg.analysis.info import holes_of
from kseg.analysis.units import (
    Listings,
    Threads,
    Unit,
    UnitKind,
    all_files,
    plan,
    run_units,
)
from kseg.analysis.values import (
    Examined,
    Findings,
    KnownSettings,
    Report,
    SegmentSummary,
)
from kseg.catalog import Catalog, OnError
from kseg.constants import Compression, Progress
from kseg.errors import CorruptRecordError, KsegError, os_reason
from kseg.files.mapping import Mapping
from kseg.files.names import (
    CLUSTER_METADATA,
    LeftOut,
    list_data_directory,
    list_partition,
    path_order,
)
from kseg.files.selection import StrPaths
from kseg.format.header import BatchTable
from kseg.format.times import Time
from kseg.log.clock import now_of
from kseg.log.config import RECORD_BYTES_MAX
from kseg.log.reader import LogView
from kseg.log.recovery import Finding
from kseg.log.settings import SettingSources
from kseg.log.tier import TierLog, TierPath
from kseg.stores.path import is_remote, name_of
from kseg.workers import Work, run_in_order

#: Attributes, two differences, two lengths and the number of headers.
_RECORD_BYTES_MIN: Final = 6
#: Sequences go from 0 to 2^31-1, and begin again.
_SEQUENCES: Final = 1 << 31


@renamed(now_ms="now")
def verify(
    paths: StrPaths,
    *,
    topics: str | Iterable[str] | None = None,
    partitions: int | Iterable[int] | None = None,
    deep: bool = False,
    sequences: bool = False,
    inflated_max: int = INFLATED_BYTES_MAX,
    mapping: Mapping = "auto",
    now: Time | None = None,
    threads: Threads = 1,
    progress: Progress | None = None,
    on_error: OnError = "raise",
) -> Report:
    """Examine files, partition directories and data directories.

    Args:
        paths: one path or several, or globs; the same file is looked at once.
        topics: only these: a name or a glob, or several.
        partitions: only these partitions: a number, or several.
        deep: decode every record too, not only the headers.
        sequences: also list gaps and doubles in the sequences of idempotent producers.
        inflated_max: with `deep`, no batch may inflate to more bytes.
        mapping: see `kseg.files.mapping`.
        now: the time that future times are measured from; the machine's clock if None.
        threads: threads to share the work; 1 does all of it in this one.
        progress: called with bytes done and bytes in all.
        on_error: "raise" the file system's error for unreadable paths, or "skip" these and examine
            the rest, see `Report.skipped`.

    Returns:
        The report; `ok` unless there is an error among the findings.

    Raises:
        NotALogError: a path is not Kafka's.
        OSError: something is missing or cannot be read.
        ValueError: no partition is chosen, a path is a URL, `threads` is below 1, or `on_error`
            neither of its values.
        TypeError: an argument has a wrong type.

    Example:
        >>> from kseg.analysis.verify import verify
        >>> verify(demo_log).ok  # doctest: +SKIP
        True
    """
    catalog, skipped = all_files(paths, topics, partitions, on_error)
    options = VerifyOptions(deep, inflated_max, mapping, now_of(now), sequences)
    return verify_of(catalog, options, threads=threads, progress=progress, skipped=skipped)


def verify_of(
    catalog: Catalog,
    options: VerifyOptions,
    *,
    threads: Threads = 1,
    progress: Progress | None = None,
    skipped: list[LeftOut] | None = None,
    more: Iterable[Examined] = (),
) -> Report:
    """As `verify`, for a catalog of files of all kinds.

    Args:
        catalog: the partitions and files.
        options: what to examine.
        threads, progress: as for `verify`; or a runner for the work.
        skipped: the paths that could not be read so far; receives more. None to raise the error.
        more: further answers for the same report.

    Raises:
        NotALogError, OSError, ValueError: as for `verify`.
    """
    chosen = replace(options, now_ms=now_of(options.now_ms))
    listings: Listings | None = {} if threads == 1 else None
    work = partial(examine, options=chosen, listings=listings)
    units = plan(catalog, listings)
    if options.sequences:
        units = [replace(unit, walked=unit.kind is UnitKind.PARTITION) for unit in units]
    answers = run_units(
        units, work, threads=threads, progress=progress, skipped=skipped, merge=merge_all
    )
    return report_of(units, [*answers, *more], skipped or ())


def report_of(
    units: Iterable[Unit], answers: Iterable[Examined], skipped: Sequence[LeftOut]
) -> Report:
    """The report of all answers about units, and of the units that could not be read.

    It also has the records over the limit of their topic, which needs the metadata log.
    """
    answer = report(merge_all([*answers, _examined_skipped(units, skipped), *_over_limits(units)]))
    return replace(answer, skipped=tuple(skipped))


def _examined_skipped(units: Iterable[Unit], skipped: Iterable[LeftOut]) -> Examined:
    """The findings about skipped paths; skipped segments count, as no log ends before them."""
    findings = Findings()
    skipped_paths = set[str]()
    for path, reason, error in skipped:
        skipped_paths.add(str(path))
        findings.add("unreadable", str((error and error.filename) or path), reason)
    segments = tuple(
        _not_read(unit)
        for unit in units
        if unit.kind is UnitKind.SEGMENT and unit.partition and unit.path in skipped_paths
    )
    return Examined(findings=findings.finish(), segments=segments)


def _odd_sequences(path: str) -> Examined:
    """Gaps and doubles in the sequences of each producer; after damage, sequences start anew."""
    findings = Findings()
    expected = dict[int, tuple[int, int]]()  # epoch and next sequence of each producer
    view = LogView.open(path)
    for info in view.segments_from(0):
        with suppress(FileNotFoundError), view.open_segment(info) as segment:
            try:
                for table in segment.headers():
                    _check_sequences(table, str(info.path), expected, findings)
            except CorruptRecordError:  # the other checks report it
                expected.clear()
    return Examined(findings=findings.finish())


def _check_sequences(
    table: BatchTable, path: str, expected: dict[int, tuple[int, int]], findings: Findings
) -> None:
    """Report batches that do not continue the sequence of their producer.

    Sequences start at 0 with each epoch, and wrap to 0 after `_SEQUENCES - 1`. Differences are
    modulo `_SEQUENCES`: at least half of that means a lower sequence, so a duplicate; less means
    that batches are missing.

    Args:
        table: the batches.
        path: their log file.
        expected: producer id -> its epoch and its next sequence; is updated.
        findings: receives the findings.
    """
    for header in table[(table.producer_id >= 0) & (table.base_sequence >= 0)]:
        producer, epoch, offset = header.producer_id, header.producer_epoch, header.base_offset
        sequence = header.base_sequence
        end = (sequence + header.last_offset - offset + 1) % _SEQUENCES
        epoch_before, next_sequence = expected.get(producer, (epoch, sequence))
        if epoch_before != epoch:
            next_sequence = 0
        missing = (sequence - next_sequence) % _SEQUENCES
        is_duplicate = missing >= _SEQUENCES // 2
        if missing:
            findings.say(
                "sequence-double" if is_duplicate else "sequence-gap",
                path,
                position=header.position,
                offset=offset,
                producer=producer,
                epoch=epoch,
                first=sequence,
                last=(end - 1) % _SEQUENCES,
                expected=next_sequence,
            )
        if not is_duplicate:
            expected[producer] = epoch, end


def _over_limits(units: Iterable[Unit]) -> Iterator[Examined]:
    """Records larger than the limit of their topic, where the metadata log is beside them."""
    partitions = [Path(unit.path) for unit in units if unit.kind is UnitKind.PARTITION]
    data_directories = {path.absolute().parent for path in partitions if not is_remote(str(path))}
    with_log = [path for path in data_directories if (path / f"{CLUSTER_METADATA}-0").is_dir()]
    settings = KnownSettings(SettingSources(), with_log)
    for path in partitions:
        of_topic = settings.of(path) if path.absolute().parent in with_log else ""
        if isinstance(of_topic, str):
            continue
        limit = of_topic.config.max_decompressed_message_bytes
        if limit < RECORD_BYTES_MAX:
            yield Examined(findings=_larger_records(path, limit))


def _larger_records(path: Path, limit: int) -> tuple[Finding, ...]:
    """The compressed records of a partition that have more than `limit` bytes.

    Lengths and differences of a record are varints; each counts as one byte.
    """
    findings = Findings()
    names = ("position", "offset", "codec", "key", "value", "headers")
    for columns in LogView.open(path).read(columns=names, control=True, on_corrupt="skip"):
        headers = columns.headers
        names_end = headers.keys.offsets
        values_end = headers.values.offsets
        in_headers = np.diff(names_end[headers.offsets]) + np.diff(values_end[headers.offsets])
        contents = np.maximum(columns.key.sizes(), 0) + np.maximum(columns.value.sizes(), 0)
        sizes = contents + in_headers + _RECORD_BYTES_MIN
        for row in np.flatnonzero((sizes > limit) & (columns.codec != Compression.NONE)).tolist():
            findings.say(
                "record-over-limit",
                columns.source or str(path),
                position=int(columns.position[row]),
                offset=int(columns.offset[row]),
                size=sizes[row],
                limit=limit,
            )
    return findings.finish()


def _not_read(unit: Unit) -> SegmentSummary:
    """The summary of a segment of which only the name is known."""
    return SegmentSummary(unit.partition or "", unit.path, unit.base_offset or 0)


def examine(unit: Unit, options: VerifyOptions, listings: Listings | None = None) -> Examined:
    """Examine one unit; the answer is small, whatever the unit's size.

    Args:
        unit: the unit to examine.
        options: what to examine.
        listings: the directories as `plan` listed them; entries are removed as they are used.

    Raises:
        OSError: a file is missing or cannot be read.
    """
    findings = Findings()
    answers: list[Examined] = []
    with findings.noting_unreadable():
        answers.append(_examine(unit, options, findings, {} if listings is None else listings))
    if answers:
        return answers[0]
    # It could not be read; the name of a segment still says that the log has later offsets.
    in_log = unit.kind is UnitKind.SEGMENT and unit.partition
    return Examined(findings=findings.finish(), segments=(_not_read(unit),) if in_log else ())


def _examine(
    unit: Unit, options: VerifyOptions, findings: Findings, listings: Listings
) -> Examined:
    """Examine a unit according to its kind; a segment that was deleted meanwhile is a finding."""
    if unit.kind is UnitKind.PARTITION:
        examined = _examine_directory(unit, listings, list_partition, examine_partition)
        return merge_all((examined, _odd_sequences(unit.path))) if unit.walked else examined
    if unit.kind is UnitKind.DATA_DIRECTORY:
        return _examine_directory(unit, listings, list_data_directory, examine_data_directory)
    if unit.kind is UnitKind.FILE:
        assert unit.file is not None
        return examine_file(unit.path, unit.file, unit.base_offset)
    try:
        return examine_segment(unit, options)
    except FileNotFoundError:
        if unit.partition is None:
            raise
        # It existed when the directory was listed. Most likely retention deleted it; that is an
        # error in a store, where no broker deletes.
        findings.add(
            "changed",
            unit.path,
            "the file is gone",
            severity="error" if is_remote(unit.path) else None,
        )
        return Examined(findings=findings.finish())


def _examine_directory(
    unit: Unit,
    listings: Listings,
    list_files: Callable[[str], Any],
    examine_listed: Callable[[Any], Examined],
) -> Examined:
    """Examine a directory from the plan's listing of it, or else from a new one."""
    if unit.path in listings:
        with suppress(FileNotFoundError):  # retention deleted a file meanwhile: list it again
            return examine_listed(listings.pop(unit.path))
    return examine_listed(list_files(unit.path))


#: The numbers of an answer, which are added; its other parts are tuples.
_COUNTS: Final = ("files", "bytes", "batches", "records")
_NAMES: Final = tuple(field.name for field in fields(Examined))


def merge_all(answers: Iterable[Examined]) -> Examined:
    """Join answers; their order does not matter to the report."""
    values = zip(*map(attrgetter(*_NAMES), answers), strict=True)
    joined: dict[str, Any] = dict(zip(_NAMES, values, strict=False))
    for name, values_of_all in joined.items():
        joined[name] = (
            sum(values_of_all) if name in _COUNTS else tuple(chain.from_iterable(values_of_all))
        )
    return Examined(**joined)


def report(examined: Examined) -> Report:
    """Add findings that only several segments and files show, and sort everything."""
    across = Findings()
    check_across(examined, across)
    findings = sorted(
        (*examined.findings, *across.finish()),
        key=lambda finding: (
            path_order(finding.path),
            finding.position or 0,
            finding.code,
            finding.message,
        ),
    )
    return Report(
        ok=all(finding.severity == "warning" for finding in findings),
        **{name: getattr(examined, name) for name in _COUNTS},
        findings=tuple(findings),
        lost=tuple(sorted(examined.lost, key=lambda lost: (path_order(lost.path), lost.position))),
    )


#: The most bytes that a batch of a tier may inflate to with `deep`.
_TIER_INFLATED_MAX = 1 << 30


def _tier_fault(log: TierLog, fault: KsegError | OSError) -> tuple[str, str, str]:
    """A fault as a finding: its code, the object, the reason."""
    if isinstance(fault, KsegError):
        return "tier-metadata", fault.path or str(log.view.path), fault.reason
    return "unreadable", str(fault.filename or log.view.path), os_reason(fault)


def examine_tier(log: TierLog, *, deep: bool, now_ms: int, threads: int = 1) -> Examined:
    """Examine every copy of a partition's segments in a tier, whether it is read or not.

    Args:
        log: the log of the partition.
        deep: decode every record.
        now_ms: times more than a day after it are reported.
        threads: the number of segments that are read at a time.
    """
    findings = Findings()
    for fault in log.faults:
        findings.add(*_tier_fault(log, fault))
    for url in log.strays:
        findings.say("tier-orphan", url)
    for first, last in holes_of(log):
        findings.say("tier-hole", str(log.view.path), offset=first, last=last)
    answers = [Examined(findings=findings.finish())]
    options = VerifyOptions(deep, _TIER_INFLATED_MAX, "never", now_ms)

    def work(id_: str) -> Work:
        return lambda put: put(_examine_copy(log, id_, options))

    works = [work(copy.id) for copy in log.finished]
    run_in_order(works, answers.append, threads=min(threads, len(works)) or 1)
    return merge_all(answers)


def _examine_copy(log: TierLog, id_: str, options: VerifyOptions) -> Examined:
    """Examine one copy: its objects, their sizes, every batch and index."""
    segment, objects = log.copies[id_]
    findings = Findings()
    path = TierPath.of(objects, "log")
    names = ("index", "timeindex", "txnindex")
    try:
        size = objects.size("log")  # reads the manifest, which `objects.has` needs
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
        return Examined(findings=findings.finish())
    except (KsegError, OSError) as error:
        findings.add(*_tier_fault(log, error))
        return Examined(findings=findings.finish())
    if log.layout == "pinterest":  # it keeps no transaction indexes
        other_findings = (
            finding for finding in seen.findings if not finding.code.startswith("txn-index")
        )
        seen = replace(seen, findings=tuple(other_findings))
    elif any((summary.last_offset or 0) > segment.end_offset for summary in seen.segments):
        findings.say("tier-metadata.end", str(path), end=segment.end_offset)
    return merge_all((seen, Examined(findings=findings.finish())))
