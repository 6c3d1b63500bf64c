"""`report`: the answers of stats, explain, verify and doctor as one value, and as one HTML page.

The page opens without a network. Its numbers are a JSON document that no browser runs. Its script
writes them as text, never as markup, and its policy (CSP) allows its own two scripts alone. The
page shows the largest topics, partitions and segments, and the sum of the others.
"""

from __future__ import annotations

import json
import pkgutil
import re
from base64 import b64encode
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial, reduce
from hashlib import sha256
from html import escape
from os import fspath
from pathlib import Path
from typing import Any, Final

from kseg._door import renamed
from kseg.analysis import stats as counter
from kseg.analysis import verify as checks
from kseg.analysis.checks import VerifyOptions
from kseg.analysis.doctor import DoctorReport, doctor
from kseg.analysis.explain import ExplainReport, explain
from kseg.analysis.schemas import schemas
from kseg.analysis.stats import (
    TOP_KEYS,
    PartitionReport,
    PartitionStats,
    StatsByTopic,
    StatsOptions,
    StatsReport,
)
from kseg.analysis.transactions import Transactions, transactions
from kseg.analysis.units import Unit, plan, run_units
from kseg.analysis.values import Examined, Report
from kseg.catalog import Catalog, paths_of
from kseg.constants import Compression, Progress, StrPath
from kseg.documents import VerbReport, document, fields_of, frozen_dataclass
from kseg.errors import KsegError, NotALogError
from kseg.files.names import LeftOut
from kseg.files.selection import StrPaths
from kseg.files.whole_file import (
    FileSink,
    refuse_in_data_directory,
)
from kseg.format.codec import decompress
from kseg.format.times import Time, iso_text
from kseg.frames import Row, Table, TableRows
from kseg.log.clock import now_of

#: The number of passes over the logs.
_PASSES: Final = 4
#: Most bytes of a file beside this module.
_STORED_BYTES_MAX: Final = 4 << 20
#: The most rows of a table of the page; segments of a partition; topics with a drawn timeline.
_ROWS: Final = 200
_SEGMENTS: Final = 40
_LINES: Final = 12
#: Characters of a key, a name or a message in the page.
_TEXT: Final = 300
#: Characters that would end a script, or a line of one.
_IN_SCRIPTS: Final = {"<": "\\u003c", ">": "\\u003e", "\u2028": "\\u2028", "\u2029": "\\u2029"}


@frozen_dataclass(repr=False)
class BrokerReport(VerbReport, Table):
    """The state of data directories: a table with a row for each partition.

    Attributes:
        paths: the data directories.
        now_ms: the time that counts.
        stats, explain, verify, doctor: the answers of the verbs with these names.
        transactions: the answer of `kseg transactions`; None if no partition is here.
        subjects: id of a schema -> its subjects, from a topic `_schemas` in the directories.
        has_keys: whether the keys with most bytes are shown.
    """

    paths: tuple[str, ...]
    now_ms: int
    stats: StatsReport
    explain: ExplainReport
    verify: Report
    doctor: DoctorReport
    transactions: Transactions | None
    subjects: Mapping[str, str]
    has_keys: bool = True

    @property
    def title(self) -> str:
        """The partitions and their size."""
        return self.stats.title

    def table_rows(self) -> TableRows:
        """The rows of `stats`."""
        return self.stats.table_rows()

    @property
    def ok(self) -> bool:
        """Whether verify and doctor found no error."""
        return self.verify.ok and self.doctor.ok

    def to_dict(self) -> dict[str, Any]:
        """The document of `kseg report --json`: those of the verbs; keys of `stats` are text."""
        answer = self.transactions
        values = {
            "now_ms": self.now_ms,
            "stats": [
                _with_texts(partition, has_keys=self.has_keys)
                for partition in self.stats.partitions
            ],
            "explain": self.explain,
            "verify": self.verify.to_json(),
            "doctor": self.doctor,
            "transactions": None if answer is None else answer.to_json(transactions=False),
            "subjects": self.subjects,
        }
        return {name: document(value) for name, value in values.items()}

    def to_html(self) -> str:
        """The page as one text; it loads nothing from elsewhere."""
        charts, template = map(_read_beside, ("echarts.js.zst", "report.html"))
        script = template.rpartition("<script>")[2].partition("</script>")[0]
        hashes = " ".join(
            f"'sha256-{b64encode(sha256(text.encode()).digest()).decode('ascii')}'"
            for text in (charts, script)
        )
        data = json.dumps(_numbers(self), ensure_ascii=False)
        for character, code in _IN_SCRIPTS.items():
            data = data.replace(character, code)
        parts = {
            "POLICY": f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'",
            "PATHS": escape(", ".join(self.paths)),
            "CHARTS": charts,
            "DATA": data,
        }
        # One pass, so that nothing is replaced inside the text of a part.
        return re.sub("@([A-Z]+)@", lambda match: parts[match[1]], template)

    def write(self, path: StrPath) -> None:
        """Write the page into a new file.

        Args:
            path: the path of the file.

        Raises:
            ValueError: the file would be in a data directory.
            MissingExtraError: as for `to_html`.
            OSError: the file is there already, or cannot be written.
        """
        refuse_in_data_directory(path)
        page = self.to_html().encode("utf-8", "replace")
        with FileSink(Path(path)) as file:
            file.write(page)


def _read_beside(name: str) -> str:
    """The text of a file beside this module."""
    data: bytes | memoryview | None = pkgutil.get_data("kseg.analysis", name)
    assert data is not None
    if name.endswith(".zst"):
        data = decompress(Compression.ZSTD, data, magic=2, limit=_STORED_BYTES_MAX)
    return str(data, "utf-8")


@renamed(data_directories="paths", now_ms="now")
def report(
    paths: StrPaths,
    *,
    keys: bool = True,
    top: int = TOP_KEYS,
    broker_config: StrPath | None = None,
    metadata_directory: StrPath | None = None,
    config: Mapping[str, str] | None = None,
    topic_config: Mapping[str, Mapping[str, str]] | None = None,
    now: Time | None = None,
    threads: int = 1,
    progress: Progress | None = None,
) -> BrokerReport:
    """Examine a broker's data directories in all ways that need only its files.

    Nothing is changed, and nothing is locked. Damage and files that cannot be read are rows.

    Args:
        paths: the data directories of one broker, or globs.
        keys: name the keys with most bytes.
        top: keys to name for each partition and topic.
        broker_config, metadata_directory, config, topic_config: settings, as for `kseg.settings`.
        now: the clock.
        threads: threads to share the work.
        progress: called with bytes done and bytes in all, of all passes together.

    Raises:
        ValueError: no directory is given, or `threads` is below 1.
        OSError: a directory is missing.

    Example:
        >>> from kseg import report
        >>> report("/var/lib/kafka").write("page.html")  # doctest: +SKIP
    """
    places = tuple(fspath(path) for path in paths_of(paths))
    now_ms = now_of(now)
    sources: dict[str, Any] = {
        "broker_config": broker_config,
        "metadata_directory": metadata_directory,
        "config": config,
        "topic_config": topic_config,
        "now": now_ms,
        "threads": threads,
    }
    counting = StatsOptions(top=top if keys else 0)
    counted, verified = _stats_and_verify(places, counting, now_ms, threads, _part(progress, 0))
    return BrokerReport(
        places,
        now_ms,
        counted,
        explain(places, **sources, progress=_part(progress, 1)),
        verified,
        doctor(places, **sources, progress=_part(progress, 2)),
        _transactions(places, now_ms, _part(progress, 3)),
        _subjects(places),
        keys,
    )


def _stats_and_verify(
    paths: Sequence[str],
    counting: StatsOptions,
    now: int,
    threads: int,
    progress: Progress | None,
) -> tuple[StatsReport, Report]:
    """The answers of stats and verify; each unit is examined for one directly after the other.

    So the bytes of a log are read from the disk only once.
    """
    catalog = Catalog.of(paths, replicas="all", on_error="skip", files="all")
    skipped = list(catalog.skipped)
    units = plan(catalog)
    work = partial(_count_and_check, counting=counting, checking=VerifyOptions(now_ms=now))
    answers = list(run_units(units, work, threads=threads, progress=progress, skipped=skipped))
    verified = checks.report_of(units, (examined for _, examined in answers), skipped)
    uncounted = [counts for counts, _ in answers if isinstance(counts, LeftOut)]
    counts = (counts for counts, _ in answers if not isinstance(counts, LeftOut))
    counted = counter.report(counter.merge_all(counts), counting)
    return replace(counted, skipped=(*skipped, *uncounted)), verified


def _count_and_check(
    unit: Unit, *, counting: StatsOptions, checking: VerifyOptions
) -> tuple[counter.Stats | LeftOut, Examined]:
    """The numbers of a unit for stats, or its error; and the answer of verify about it."""
    examined = checks.examine(unit, checking)
    try:
        return counter.examine(unit, counting), examined
    except OSError as error:
        return LeftOut.of(Path(unit.path), error), examined


def _transactions(paths: Sequence[str], now: int, progress: Progress | None) -> Transactions | None:
    """The transactions in data directories; None if these have no partition."""
    try:
        return transactions(paths, now=now, progress=progress)
    except NotALogError:
        return None


def _subjects(paths: Sequence[str]) -> dict[str, str]:
    """Schema id -> its subjects in the default context; other contexts have ids of their own."""
    subjects: defaultdict[str, list[str]] = defaultdict(list)
    try:
        for schema in schemas(paths):
            if schema.id is not None and schema.context == ".":
                subjects[str(schema.id)].append(schema.subject)
    except (KsegError, ValueError):  # no registry's topic
        return {}
    return {number: ", ".join(dict.fromkeys(names)) for number, names in subjects.items()}


def _part(progress: Progress | None, passed: int) -> Progress | None:
    """The progress of one pass over the logs, after `passed` passes of equal weight."""
    if progress is None:
        return None
    return lambda done, total: progress(passed * total + done, _PASSES * total)


# ---- the numbers of the page ---------------------------------------------------------------------


def _text(data: bytes) -> str:
    return data.decode("utf-8", "backslashreplace")


def _with_texts(partition: PartitionReport, *, has_keys: bool) -> Row:
    """A row of `stats`, its keys as text."""
    row = partition.document(_text)
    if not has_keys:
        row.pop("top_keys", None)
    return row


def _numbers(report: BrokerReport) -> dict[str, Any]:
    """The document that the page's script draws; its size is bounded."""
    topics = report.stats.topics  # computed once, as it takes time
    return {
        "now": report.now_ms,
        "made": iso_text(report.now_ms),
        "paths": report.paths,
        "ok": report.ok,
        "broker": report.doctor.outcome.value,
        "release": report.doctor.release,
        "causes": [total.to_dict() for total in report.explain.totals],
        "tree": _tree(report),
        "topics": _topics(topics),
        "all": _all_topics(topics),
        "keys": _keys(topics) if report.has_keys else None,
        "due": _expiring_bytes(report.explain),
        "findings": list(_shorten_texts(_first_findings(_all_findings(report)))),
        "transactions": _transaction_facts(report.transactions),
        "subjects": {at: names[:_TEXT] for at, names in report.subjects.items()},
    }


def _tree(report: BrokerReport) -> dict[str, Any]:
    """The tree of topics, partitions and files: the largest of each, and a sum for the rest."""
    topics: dict[str, list[Row]] = defaultdict(list)
    room = _ROWS * _SEGMENTS
    for partition in sorted(report.explain.partitions, key=lambda row: -row.bytes):
        files = [
            {"name": Path(row.path).name, "bytes": row.all_bytes, "note": _note(row)}
            for row in partition.rows
        ]
        children = _largest_rows(files, min(_SEGMENTS, max(room, 0)))
        room -= len(children)
        name = Path(partition.path).name
        topics[partition.topic or name].append(
            {"name": name, "bytes": partition.bytes, "children": children}
        )
    nodes: list[Row] = [
        {"name": name, "bytes": sum(child["bytes"] for child in inside), "children": inside}
        for name, inside in topics.items()
    ]
    other_files: list[Row] = [
        {"name": row.path, "bytes": row.all_bytes, "note": _note(row)}
        for row in report.explain.elsewhere
    ]
    if other_files:
        size = sum(node["bytes"] for node in other_files)
        nodes.append({"name": "(beside partitions)", "bytes": size, "children": other_files})
    for node in nodes:
        node["children"] = _largest_rows(node["children"], _ROWS)
    return {"name": "all", "bytes": report.explain.bytes, "children": _largest_rows(nodes, _ROWS)}


def _note(row: Any) -> str:
    until = iso_text(row.until_ms)
    return row.cause if until is None else f"{row.cause}, until {until}"


def _largest_rows(rows: list[Row], count: int) -> list[Row]:
    """The `count` rows with most bytes, and one row for the sum of the others."""
    rows = sorted(rows, key=lambda row: (-row["bytes"], row["name"]))
    largest = rows[:count]
    rest = rows[count:]
    if rest:
        size = sum(row["bytes"] for row in rest)
        largest.append({"name": f"({len(rest)} others)", "bytes": size, "note": ""})
    return [{**row, "name": row["name"][:_TEXT]} for row in largest]


def _topics(topics: StatsByTopic) -> list[Row]:
    """The numbers of each topic, the largest first."""
    rows = sorted(topics, key=lambda topic: -topic.stats.bytes)
    largest = [
        {
            "name": topic.topic[:_TEXT],
            "partitions": topic.partitions,
            **_sums(topic.stats, at < _LINES),
        }
        for at, topic in enumerate(rows[:_ROWS])
    ]
    if rest := rows[_ROWS:]:
        size = sum(topic.stats.bytes for topic in rest)
        largest.append({"name": f"({len(rest)} others)", "bytes": size})
    return largest


def _all_topics(topics: StatsByTopic) -> Row:
    """The numbers of all topics together."""
    sums = reduce(PartitionStats.merge, (topic.stats for topic in topics), PartitionStats())
    return {
        "topics": len(topics),
        "partitions": sum(topic.partitions for topic in topics),
        **_sums(sums, has_times=True),
    }


def _sums(numbers: PartitionStats, has_times: bool) -> Row:
    """Numbers for the page, with the timeline or without."""
    row = {"bytes": numbers.bytes, **numbers.document()}
    if numbers.records is not None:
        row["payloads"] = sorted(Counter(numbers.records.payloads).most_common(_LINES))
        if not has_times:
            del row["timeline"]
    return row


def _keys(topics: StatsByTopic) -> list[Row]:
    """The keys with most bytes of all topics: up to `_ROWS`, texts of up to `_TEXT` characters."""
    keys: list[Row] = [
        {
            "topic": topic.topic[:_TEXT],
            "key": _text(key.key)[:_TEXT],
            **fields_of(key, "records bytes error=bytes_error"),
        }
        for topic in topics
        for key in topic.top_keys
    ]
    return sorted(keys, key=lambda row: -row["bytes"])[:_ROWS]


def _expiring_bytes(explained: ExplainReport) -> list[Row]:
    """The bytes that expire on each day for each cause, the next days first."""
    days = Counter[tuple[str, str]]()
    for row in explained.rows():
        day = iso_text(row.until_ms)
        if day is not None:
            days[day[:10], row.cause] += row.all_bytes
    rows: list[Row] = [
        {"day": day, "cause": cause, "bytes": size} for (day, cause), size in days.items()
    ]
    return sorted(rows, key=lambda row: (row["day"], row["cause"]))[:_ROWS]


def _transaction_facts(answer: Transactions | None) -> Row:
    """The number of transactions of each status; and those without a marker, the oldest first."""
    if answer is None:
        return {"counts": {}, "rows": []}
    words = (
        "topic partition status producer_id transactional_id first_offset records bytes start_ms"
        " holds why command"
    )
    rows = sorted(answer, key=lambda transaction: transaction.start_ms)[:_ROWS]
    cells = [fields_of(transaction, words) for transaction in rows]
    return {"counts": answer.counts, "rows": list(_shorten_texts(cells))}


def _all_findings(report: BrokerReport) -> Iterator[Row]:
    """The findings of verify and doctor, and the files that could not be read."""
    for verb, rows in (
        ("verify", report.verify.table_rows()),
        ("doctor", report.doctor.table_rows()),
    ):
        for row in rows:
            names = ("severity", "code", "path", "message", "advice")
            yield {"verb": verb} | {name: row[name] for name in names}
    for skipped in report.stats.skipped:
        yield {
            "verb": "stats",
            "severity": "error",
            "code": "unreadable",
            "path": str(skipped.path),
            "message": str(skipped.error),
            "advice": None,
        }


def _first_findings(rows: Iterable[Row]) -> list[Row]:
    """The first findings, the worst first; and a row that counts the others, if any."""
    order = {"error": 0, "warning": 1}
    findings = sorted(rows, key=lambda row: order.get(row["severity"], 2))
    if len(findings) > _ROWS:
        more = f"{len(findings) - _ROWS} more findings: kseg verify and kseg doctor list all"
        blank = dict.fromkeys(findings[0], "")
        findings = [*findings[:_ROWS], {**blank, "message": more}]
    return findings


def _shorten_texts(rows: Iterable[Row]) -> Iterator[Row]:
    """The rows with long texts cut off."""
    for row in rows:
        yield {
            name: cell[: 4 * _TEXT] if isinstance(cell, str) else cell for name, cell in row.items()
        }
