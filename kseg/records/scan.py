"""scan, grep, dataset: from paths and questions to the records of files and partitions.

`scan` gives the records that answer the questions; `grep` of these the ones that hold a text, bytes
or a match of a regular expression.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from collections.abc import Mapping as MappingOf
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Unpack

from kseg.catalog import Catalog, OnError, Replicas
from kseg.constants import REPLICAS, StrPath
from kseg.files.mapping import Mapping
from kseg.files.names import Partition
from kseg.files.selection import Selection, StrPaths
from kseg.format.request import (
    FIELDS_DEFAULT,
    OffsetBounds,
    Request,
    check_word,
)
from kseg.format.typed import (
    COLUMNS,
    Kinds,
    decoded_fields,
    has_schemas,
    key_bytes,
    kinds_of,
)
from kseg.log.clock import machine_ms
from kseg.records.patterns import SEARCHED, Pattern
from kseg.records.query import OF_SCHEMAS, QueryArgs, answers, asks, count_of
from kseg.records.stream import DIRECTORY, PLACE_FIELDS, Scan

if TYPE_CHECKING:
    import pyarrow
    import pyarrow.dataset

    from kseg.log.tier.tier import Tier

#: The arguments of a scan that are fields of its `Request`, except for the offsets and the clock.
_OF_REQUEST: Final = (
    "time",
    "max_rows",
    "max_bytes",
    "isolation",
    "open_transactions",
    "on_corrupt",
    "threads",
    "control",
    "verify_crc",
    "inflated_max",
)


@asks
def scan(paths: StrPaths, **query: Unpack[QueryArgs]) -> Scan:
    """Read records of one or many files, partitions or data directories.

    Args:
        paths: one or several, or globs; name and contents decide the kind of each. A URL is a path,
            too: `s3://bucket/data-dir`, with the extra `[cloud]`. Partitions of data directories
            that a broker deletes, has put aside or was copying to are left out, with a line of the
            logger `kseg`, and are in `Scan.left_out`; give the path of one to read it.
        topics: only these topics: a name or a glob, or several.
        partitions: only these partitions: a number, or several. With `partitioner`, this is the
            number of partitions of the topics instead; several if it has grown.
        columns: the names of the columns; topic, partition, offset, timestamp, key, value and
            headers if None.
        offset: `(start, end)` or a `range`, half open, None for no bound; one offset; or, by
            partition or by `(topic, partition)`, any of these for some partitions, where a number
            is the first offset. A partition gives each offset once, and no offset before the log's
            start; a file is read as it is.
        time: `(start, end)`, half open: each bound in milliseconds, as a `datetime` (UTC if it has
            no zone), a `date` (its 00:00 UTC), a `datetime64`, ISO 8601, "now", "today" or "-7d".
            Or one day in UTC, as a `date` or "2025-11-14"; or "-7d" for the last seven days.
            Records need not be in order of time. In Arrow, `timestamp` is null outside the years 1
            to 9999; the column `timestamp_ms` has every time as a number.
        key: only records with this key: bytes, or text as UTF-8; with `decode`, also a number.
        partitioner: "murmur2" or "crc32", by which all producers of the topics chose the partition
            of a key, see `partition_for`; then a search for `key`, or a query that filters for one
            key, only reads its partition. The number of partitions is `partitions`, or each number
            of the topic in the metadata log of the data directories; without either, all partitions
            are read. At the start and the end of each partition, some keys are compared with it:
            1,000 or more in all.
        limit: the number of records of the whole answer; None for all.
        last: only so many records of each partition or file, the last ones; None for all.
        decode: the kinds of keys and values, such as `{"key": "text", "value": "json"}`: text,
            json, int16, int32, int64, float, double, uuid, or Kafka's name; a word alone is for
            values. A key or value of another kind is null, and the columns `key_error` and
            `value_error` have the reason. JSON and UUIDs are text in Arrow; Python gets the JSON
            value, and a `UUID`. Values that have schemas are "registry": each names its schema in
            a header or a prefix, and is brought to the one type of the column; "registry-json" is
            JSON for any mixture of schemas; "registry:no-indexes" and "registry:unsigned-indexes"
            are for Protobuf of other and of old serializers; "avro", "protobuf" and "json-schema"
            have no prefix, and all of them the column's schema. JSON becomes structs by a schema in
            place of the word (of Arrow, or a JSON schema), or by "json:struct", of 1,000 first
            values. The columns `value_schema_id`, `value_schema_name` (of the record, the message
            or the JSON schema), `value_error` and `value_bytes` are there on request.
        schemas: of the registry, as `kseg.schemas` reads them.
        subject, schema_version: the schema of the column; without them the latest version of
            `<topic>-value`, or `<topic>-key`, that is not deleted.
        schema: the column's schema, or its id.
        record: the name of the wanted record type, or message; others are left out.
        isolation: "read_uncommitted", or "read_committed" (whole partitions only).
        open_transactions: "wait" ends committed records at the first open transaction, with a
            warning; "abort" takes open transactions as aborted.
        replicas: "refuse" several directories of one partition, whose records would count twice;
            or read the "newest" (by the last leader epoch, then the end of the log), the "first"
            that is named, or "all", with a column `directory`.
        on_corrupt: "raise", or "skip" damaged batches and keep their faults in `Scan.errors`; or a
            function that takes each fault.
        on_error: "raise" the error of a path or a partition that cannot be read, before the first
            record; or "skip" it and read the rest, see `Scan.skipped`.
        threads: the number of threads that share the work. The records and their order are the
            same for any number; each thread has pieces of its own in memory.
        progress: called with the bytes of the segments that are read, and of all segments.
        now: the time that "now" and "-7d" refer to; the machine's clock if None.
        max_rows, max_bytes: bounds of a piece; unless one is set, an Arrow stream gives larger
            pieces to a consumer that keeps them.
        control: give transaction markers and other control records too.
        verify_crc: refuse damaged batches.
        inflated_max: refuse batches that inflate to more bytes.
        mapping: "auto", "always" or "never", see `Segment.open`.
        tier: the place of older segments of the partitions, a URL or a directory: a partition is
            then one log of both parts. A partition that is only in the tier is named by the path
            that it would have, such as "orders-0". `kseg.Tier` has keys and a topic id as well.

    Raises:
        NotALogError: a path is nothing that kseg reads.
        SchemaError: the column has no schema, or could have several, or has no Arrow type.
        MisplacedKeyError: a key lies in a partition that `partitioner` does not send it to.
        TierError: a tier's description of its segments is unusable.
        ValueError: an argument has a value that it cannot have, nothing is chosen, or a partition
            has two directories.
        TypeError: an argument has another type; the message says which types it takes.
        OSError: a path is missing, or something in it cannot be read.

    Example:
        >>> reader = scan("orders-0", offset=(240, None), columns=("offset", "key"))
        >>> reader.to_arrow().num_rows
        14
    """
    answered = answers(query)
    partitioner, offset = answered["partitioner"], answered["offset"]
    selection = Selection.of(answered["topics"], None if partitioner else answered["partitions"])
    is_by_partition = isinstance(offset, MappingOf)
    now = answered["now"]
    if now is None and answered["time"] is not None:
        now = machine_ms()
    request = Request(
        offset=None if is_by_partition else offset,
        now=now,
        **{name: answered[name] for name in _OF_REQUEST},
    )
    catalog = _catalog(
        *(paths, selection, answered["replicas"], answered["on_error"], answered["tier"]),
        request.isolation,
    )
    sources = catalog.partitions
    kinds = _kinds(
        answered["decode"],
        tuple(answered[name] for name in OF_SCHEMAS),
        sources,
        answered["mapping"],
    )
    key = key_bytes(answered["key"], kinds)
    names = _columns(answered["columns"], kinds, with_directory=answered["replicas"] == "all")
    result = Scan(
        sources,
        names,
        request,
        answered["mapping"],
        left_out=catalog.left_out,
        _kinds=kinds,
        _key=key,
        _limit=count_of("limit", answered["limit"]),
        _last=count_of("last", answered["last"]),
        _offsets=_each_offset(offset) if is_by_partition else {},
        _progress=answered["progress"],
    )
    if partitioner is None:
        return result
    data_directories = [directory.path for directory in catalog.data_directories]
    return result._place_keys(partitioner, answered["partitions"], data_directories)


def _catalog(
    paths: StrPaths,
    selection: Selection,
    replicas: Replicas,
    on_error: OnError,
    tier: StrPath | Tier | None,
    isolation: str,
) -> Catalog:
    """The partitions and files to read.

    Raises:
        ValueError: committed records are wanted of single files, whose transactions are unknown.
    """
    check_word("replicas", replicas, REPLICAS)
    if isinstance(tier, str | PathLike):
        from kseg.log.tier.tier import Tier  # imported late: few logs have a tier

        tier = Tier.of(tier)
    choice: str | Callable[[Path], Any] = replicas
    if replicas == "newest":
        from kseg.log.reader.view import age_of  # imported late: only replicas are compared

        choice = age_of
    catalog = Catalog.of(paths, selection, tier=tier, replicas=choice, on_error=on_error)
    if isolation == "read_committed" and any(source.is_file for source in catalog):
        raise ValueError("read_committed needs whole partitions, not single files")
    return catalog


@asks
def dataset(paths: StrPaths, **query: Unpack[QueryArgs]) -> pyarrow.dataset.Dataset:
    """Records as a `pyarrow.dataset.Dataset`, for DuckDB and Polars; see `Scan.dataset`.

    Args:
        paths, query: as for `scan`. Each query of the dataset is limited to these records.

    Raises:
        NotALogError, ValueError, TypeError, OSError: as `scan` raises them.
        MissingExtraError: pyarrow is not installed.
    """
    return scan(paths, **query).dataset()


def _kinds(
    decode: Any, of_schemas: tuple[Any, ...], sources: tuple[Partition, ...], mapping: Mapping
) -> Kinds:
    """The kinds that keys and values are decoded as.

    Args:
        decode: the caller's kinds.
        of_schemas: the caller's answers to `OF_SCHEMAS`.
        sources, mapping: the partitions from which a sample of values is read.
    """
    if not has_schemas(decode):
        return kinds_of(decode)
    from kseg.decode.registry import SAMPLE_ROWS, Choice, decodings

    def sample(name: str) -> Any:
        request = Request((name,), on_corrupt="skip")
        table = Scan(sources, (name,), request, mapping, _limit=SAMPLE_ROWS).to_arrow()
        return table[name].combine_chunks()

    return decodings(decode, Choice(*of_schemas), (source.topic for source in sources), sample)


def _columns(
    columns: str | Iterable[str] | None, kinds: Kinds, *, with_directory: bool
) -> tuple[str, ...]:
    """The columns of a scan in order; a decoded column is followed by that of its errors.

    Args:
        columns: the caller's columns; None for the default columns.
        kinds: the kinds of decoded keys and values.
        with_directory: whether the default columns have the directory.
    """
    if columns is None:
        place_fields = (*PLACE_FIELDS, DIRECTORY) if with_directory else PLACE_FIELDS
        columns = (*place_fields, *FIELDS_DEFAULT)
    names = (columns,) if isinstance(columns, str) else tuple(columns)
    unknown = [str(name) for name in names if name not in COLUMNS]
    if unknown:
        raise ValueError(f"no column {', '.join(unknown)}; there are: {', '.join(COLUMNS)}")
    if not names:
        raise ValueError("columns is empty; use None for the default columns")
    return decoded_fields(names, kinds)


def _each_offset(offsets: MappingOf[Any, Any]) -> dict[Any, OffsetBounds]:
    """The bounds of each partition; a number is the first offset."""
    bounds_by_partition: dict[Any, OffsetBounds] = {}
    for partition, bounds in offsets.items():
        is_pair = (
            isinstance(partition, tuple) and len(partition) == 2 and isinstance(partition[0], str)
        )
        if not is_pair and not isinstance(partition, int):
            raise TypeError(
                f"offset is by partition or by (topic, partition), not by {partition!r}"
            )
        bounds_by_partition[partition] = (bounds, None) if isinstance(bounds, int) else bounds
        Request(offset=bounds_by_partition[partition])
    return bounds_by_partition


@asks
def grep(
    pattern: str | bytes,
    paths: StrPaths,
    *,
    regex: bool = False,
    fields: str | Iterable[str] = SEARCHED,
    ignore_case: bool = False,
    whole: bool = False,
    invert: bool = False,
    context: int = 0,
    **query: Unpack[QueryArgs],
) -> Scan:
    r"""Search the records of one or many files, partitions or data directories.

    Text and bytes are looked for in each batch when it is inflated; only batches that hold them are
    decoded. The checksums of the others are compared, their records are not looked at.

    Args:
        pattern: text, as UTF-8, or bytes. An empty pattern is in every key, value and header.
        paths: as `kseg.scan` takes them.
        regex: the pattern is a regular expression of RE2, for values as UTF-8: bytes that are not
            UTF-8 match no character, and `\C` alone. Needs `kseg[arrow]`.
        fields: the fields that are searched: key, value, headers (their names and values).
        ignore_case: ignore the case of letters. Needs `kseg[arrow]` for letters outside of ASCII.
        whole: a field has to be the pattern, rather than to hold it.
        invert: the records that do not match.
        context: as many records of the partition before each, and after it. The column
            `matched` then tells which of them match.
        query: as for `kseg.scan`: columns, offset, time, isolation, on_corrupt, limit, threads, ...

    Returns:
        A scan of the records that match.

    Raises:
        ValueError: an argument has a value that it cannot have, or RE2 does not take the pattern.
        MissingExtraError: pyarrow is needed, and is not installed.
        TypeError: an option is unknown, or an argument has another type.
        NotALogError, OSError: as `kseg.scan`.

    Example:
        >>> found = grep("late", "orders-0", fields="value", threads=2)
        >>> for columns in found:
        ...     print(columns["offset"].tolist())
    """
    if isinstance(pattern, str):
        pattern = pattern.encode(errors="surrogateescape")
    if not isinstance(pattern, bytes):
        raise TypeError(f"pattern is text or bytes, not {pattern!r}")
    names = (fields,) if isinstance(fields, str) else tuple(fields)
    searched = Pattern(pattern, names, regex, ignore_case, whole, invert)
    if context < 0:
        raise ValueError(f"context is {context}, not 0 or more")
    return scan(paths, **query).holding(searched, context)


__all__ = ["PLACE_FIELDS", "Partition", "Scan", "dataset", "grep", "scan"]
