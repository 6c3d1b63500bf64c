"""grep: the records that hold a text, bytes or a match of a regular expression, as a `Scan`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Unpack

from kseg.files.selection import StrPaths
from kseg.records.patterns import SEARCHED, Pattern
from kseg.records.query import QueryArgs, asks
from kseg.records.scan import Scan, scan


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
        context: as many records of the partition in front of each, and behind it. The column
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
