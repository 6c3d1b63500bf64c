"""CSV for spreadsheets: an apostrophe in front of text that a spreadsheet takes for a formula.

Excel, LibreOffice and others compute a field that begins with one of `= + - @`, a tab or a line end
(OWASP, "CSV Injection"). A number stays as it is.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

#: How formulas begin, with the wide forms of `= + - @` in UTF-8.
_FORMULA: Final = re.compile(rb"[=+\-@\t\r\n]|\xef\xbc[\x9d\x8b\x8d\xa0]")
_NUMBER: Final = re.compile(rb"[+-]?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?")


class FormulaGuard:
    """Passes CSV on whose text fields are all quoted, with apostrophes where they are needed."""

    def __init__(self, write: Callable[[bytes], object]) -> None:
        """Start in front of the first field."""
        self._write = write
        self._inside = self._begins = False
        self._after_quote = False

    def write(self, data: memoryview) -> None:
        """Pass on the next bytes; they may end anywhere, but within a character."""
        out = []
        for number, part in enumerate(bytes(data).split(b'"')):
            if number:
                # A quote that ends no field and follows one at once is a quote within it.
                self._begins = not self._inside and not self._after_quote
                self._after_quote = self._inside
                self._inside = not self._inside
                out.append(b'"')
            if not part:
                continue
            if self._begins and _FORMULA.match(part) and not _NUMBER.fullmatch(part):
                out.append(b"'")
            self._begins = self._after_quote = False
            out.append(part)
        self._write(b"".join(out))


__all__ = ["FormulaGuard"]
