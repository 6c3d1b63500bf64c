"""What Python sees of the search for bytes in a column; what it does is said in `needle.pyx`."""

from typing import Any

def mark_holding(data: Any, offsets: Any, needle: Any, folds: bool, marks: Any) -> None: ...
