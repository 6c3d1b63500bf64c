"""The Python interface of the search for bytes in a column; see `needle.pyx`."""

from typing import Any

def mark_holding(data: Any, offsets: Any, needle: Any, folds: bool, marks: Any) -> None: ...
