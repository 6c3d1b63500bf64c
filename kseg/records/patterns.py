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
#: The column that says of a record whether it matched, beside its context.
MATCHED: Final = "matched"
#: Letters that have no other case than that of ASCII. (k and s have: the sign of Kelvin, long s.)
_PLAIN_RUNS: Final = re.compile(rb"[\x00-jl-rt-\x7f]+")


@frozen_dataclass
class Pattern:
    """A condition on one field of a record.

    Attributes:
        data: the bytes that are looked for; of a regular expression, its UTF-8.
        fields: some of `SEARCHED`. Headers are searched by name and by value.
        regex: it is a regular expression of RE2.
        ignore_case: ignore the case of letters: those of ASCII if the pattern is ASCII, else all of
            Unicode.
        whole: a field has to be exactly that.
        invert: the records that do not hold it are wanted.
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
            alone = self.data.decode() if self.regex else ""  # "a)|(b" is none by itself
            for expression in (alone, self._expression):
                arrow.matching(empty, expression, ignore_case=self.ignore_case)

    @property
    def _expression(self) -> str | None:
        """The regular expression that RE2 looks for; None where the kernel looks for bytes."""
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
        """The key that records have to have, where that is the pattern."""
        plain = not (self.regex or self.ignore_case or self.invert)
        return self.data if plain and self.whole and self.fields == ("key",) else None

    @property
    def needle(self) -> Needle:
        """The least bytes of a batch with such a record; see `kseg.format.request.Request`."""
        if self.regex or self.invert:
            return ANY_RECORD
        if self.key is not None:
            return key_needle(self.key)
        if self._expression is None:
            return Needle(self._small, self.ignore_case)
        plain = max(_PLAIN_RUNS.findall(self.data.lower()), key=len, default=b"")
        return Needle(plain, folds=True)

    @property
    def _small(self) -> bytes:
        """The bytes as the kernel takes them."""
        return self.data.lower() if self.ignore_case else self.data

    def matches(self, columns: RecordColumns) -> Bools:
        """bool[n]: the records that are wanted.

        Args:
            columns: with the fields of the pattern.
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
        mark_holding(column.data, column.offsets, self._small, self.ignore_case, marks)
        held = marks.view(np.bool_)
        return held & (column.sizes() == len(self.data)) if self.whole else held

    def mark(self, columns: RecordColumns) -> RecordColumns:
        """The same records with a further column, `matched`: whether each is wanted."""
        return replace(columns, arrays={**columns.arrays, MATCHED: self.matches(columns)})

    def take(self, columns: RecordColumns) -> RecordColumns:
        """The records that are wanted."""
        matched = self.matches(columns)
        return columns if matched.all() else take_rows(columns, np.flatnonzero(matched))


def with_context(pieces: Iterable[RecordColumns], count: int) -> Iterator[RecordColumns]:
    """The records that matched, with some before each and after it, of the same partition.

    Args:
        pieces: records of partitions in order, with the column `matched`; a piece without a source
            follows those of each partition.
        count: the number of records before, and after.
    """
    before: list[RecordColumns] = []  # the last records that were not given
    owed = 0  # records of the next piece that follow a match
    for columns in pieces:
        if columns.source is None:  # the end of a partition
            before, owed = [], 0
            continue
        rows, size = np.flatnonzero(columns[MATCHED]), len(columns)
        steps = np.zeros(size + 1, np.int64)  # where stretches begin, and where they end
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
