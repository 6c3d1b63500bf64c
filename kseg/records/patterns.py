r"""Patterns that records are searched for: text, bytes or regular expressions, in chosen fields.

A kernel searches for bytes; RE2 finds regular expressions, in time linear in the bytes. RE2 reads
values as UTF-8: bytes that are not UTF-8 match no character, and `\C` alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final

import numpy as np

from kseg._kernels.needle import mark_holding
from kseg.constants import Bools
from kseg.documents import frozen_dataclass
from kseg.format.request import ANY_RECORD, Needle, key_needle
from kseg.format.take import last_rows, take_rows
from kseg.format.values import BinaryColumn, RecordColumns

#: The fields that are searched.
SEARCHED: Final = ("key", "value", "headers")
#: The column that says whether a record matched or is only context.
MATCHED: Final = "matched"
#: Bytes of ASCII whose letters have no other case outside of ASCII. (k and s have one: the sign of
#: Kelvin, and the long s.)
_PLAIN_RUNS: Final = re.compile(rb"[\x00-jl-rt-\x7f]+")


@frozen_dataclass
class Pattern:
    """A condition on one field of a record.

    Attributes:
        data: the bytes to search for, or the regular expression in UTF-8.
        fields: some of `SEARCHED`. Headers are searched in their names and their values.
        regex: whether the pattern is a regular expression of RE2.
        ignore_case: ignore the case of letters: those of ASCII if the pattern is ASCII, else all of
            Unicode.
        whole: a field has to be the pattern, rather than to contain it.
        invert: select the records that do not match.
    """

    data: bytes
    fields: tuple[str, ...] = SEARCHED
    regex: bool = False
    ignore_case: bool = False
    whole: bool = False
    invert: bool = False

    def __post_init__(self) -> None:
        """Check it.

        Raises:
            ValueError: a field is unknown, or the expression is not one of RE2's.
            MissingExtraError: it needs RE2, and pyarrow is missing.
        """
        if not self.fields or not set(self.fields) <= set(SEARCHED):
            raise ValueError(f"fields are some of {', '.join(SEARCHED)}, not {self.fields!r}")
        if self._expression is not None:
            from kseg import arrow

            empty = BinaryColumn(np.zeros(2, np.int32), np.empty(0, np.uint8))
            # "a)|(b" is valid only inside the parentheses of `_expression`, so it is refused here.
            as_given = self.data.decode() if self.regex else ""
            for expression in (as_given, self._expression):
                arrow.matching(empty, expression, ignore_case=self.ignore_case)

    @property
    def _expression(self) -> str | None:
        """The regular expression for RE2; None where the kernel searches for bytes."""
        if not self.regex and (not self.ignore_case or self.data.isascii()):
            return None
        try:
            text = self.data.decode()
        except UnicodeDecodeError as error:
            raise ValueError(f"the pattern is not UTF-8: {error.reason}") from error
        if not self.regex:
            # RE2's own quotation: \Q...\E, in which only \E has to stand outside.
            text = "\\Q" + text.replace("\\E", "\\E\\\\E\\Q") + "\\E"
        return rf"\A(?:{text})\z" if self.whole else text

    @property
    def key(self) -> bytes | None:
        """The only key that records can have; None if the pattern is another condition."""
        plain = not (self.regex or self.ignore_case or self.invert)
        return self.data if plain and self.whole and self.fields == ("key",) else None

    @property
    def needle(self) -> Needle:
        """Bytes that each batch with a matching record has; see `kseg.format.request.Request`."""
        if self.regex or self.invert:
            return ANY_RECORD
        if self.key is not None:
            return key_needle(self.key)
        if self._expression is None:
            return Needle(self._kernel_bytes, self.ignore_case)
        plain = max(_PLAIN_RUNS.findall(self.data.lower()), key=len, default=b"")
        return Needle(plain, folds=True)

    @property
    def _kernel_bytes(self) -> bytes:
        """The bytes that the kernel searches for: in lower case if case is ignored."""
        return self.data.lower() if self.ignore_case else self.data

    def matches(self, columns: RecordColumns) -> Bools:
        """bool[n]: the selected records.

        Args:
            columns: n records, with the fields of the pattern.
        """
        marks = np.zeros(len(columns), np.bool_)
        for name in self.fields:
            column = columns[name]
            if isinstance(column, BinaryColumn):
                marks |= self._matching_values(column)
                continue
            for part in (column.keys, column.values):
                matching = np.flatnonzero(self._matching_values(part))
                marks[np.searchsorted(column.offsets, matching, "right") - 1] = True
        return ~marks if self.invert else marks

    def _matching_values(self, column: BinaryColumn) -> Bools:
        """bool[n]: the values that match; null matches nothing."""
        expression = self._expression
        if expression is not None:
            from kseg import arrow

            return arrow.matching(column, expression, ignore_case=self.ignore_case)
        if not self.data:
            return column.sizes() == 0 if self.whole else column.is_valid()
        marks = np.zeros(len(column), np.uint8)
        mark_holding(column.data, column.offsets, self._kernel_bytes, self.ignore_case, marks)
        contains = marks.view(np.bool_)
        return contains & (column.sizes() == len(self.data)) if self.whole else contains

    def mark(self, columns: RecordColumns) -> RecordColumns:
        """The same records with a further column, `matched`: whether each is selected."""
        return replace(columns, arrays={**columns.arrays, MATCHED: self.matches(columns)})

    def take(self, columns: RecordColumns) -> RecordColumns:
        """The selected records."""
        matched = self.matches(columns)
        return columns if matched.all() else take_rows(columns, np.flatnonzero(matched))


def with_context(pieces: Iterable[RecordColumns], count: int) -> Iterator[RecordColumns]:
    """The records that matched, and some records before and after each, of the same partition.

    Args:
        pieces: records of partitions in order, with the column `matched`; a piece without a source
            follows those of each partition.
        count: the number of records before a match, and after it.
    """
    before: list[RecordColumns] = []  # the last records, which were not yielded
    owed = 0  # the number of records of the next piece that follow a match
    for columns in pieces:
        if columns.source is None:  # the end of a partition
            before, owed = [], 0
            continue
        rows, size = np.flatnonzero(columns[MATCHED]), len(columns)
        steps = np.zeros(size + 1, np.int64)  # +1 where a range to keep begins, -1 where it ends
        np.add.at(steps, np.maximum(rows - count, 0), 1)
        np.add.at(steps, np.minimum(rows + count + 1, size), -1)
        keep = np.cumsum(steps[:-1]) > 0
        keep[:owed] = True
        if len(rows):
            yield from last_rows(before, count - int(rows[0]))
            owed = int(rows[-1]) + count + 1
        owed = max(0, owed - size)
        rows_to_yield = np.flatnonzero(keep)
        if len(rows_to_yield):
            yield take_rows(columns, rows_to_yield)
            before = []
        rest = columns[int(rows_to_yield[-1]) + 1 :] if len(rows_to_yield) else columns
        before = last_rows([*before, rest], count)
