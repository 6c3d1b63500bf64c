"""`python -m bench.compare OLD NEW`: what moved between two result files, ratio by ratio.

A change counts when the middle halves of the rounds do not touch; all else may be noise.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

Row = dict[str, Any]


def main() -> None:
    """Print every ratio that both files have, those that moved marked."""
    parser = argparse.ArgumentParser(prog="python -m bench.compare", description=__doc__)
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("--all", action="store_true", help="those that stayed, too")
    given = parser.parse_args()
    old, new = _load(given.old), _load(given.new)
    for key in [key for key in new if key in old]:
        moved = verdict(old[key], new[key])
        if moved or given.all:
            before, after = old[key]["median"], new[key]["median"]
            change = after / before - 1
            print(
                f"{key[0]:37} {key[1]:19} {before:7.2f}x -> {after:6.2f}x {change:+6.0%}  {moved}"
            )
    for label, some, others in (("gone", old, new), ("new", new, old)):
        for key in some:
            if key not in others:
                print(f"{key[0]:37} {key[1]:19} {some[key]['median']:7.2f}x {label}")


def verdict(old: Row, new: Row) -> str:
    """`faster`, `SLOWER`, or nothing when the middle halves overlap."""
    if new["quartiles"][0] > old["quartiles"][1]:
        return "faster"
    if new["quartiles"][1] < old["quartiles"][0]:
        return "SLOWER"
    return ""


def _load(path: Path) -> dict[tuple[str, str], Row]:
    rows: list[Row] = json.loads(path.read_text())["rows"]
    return {(row["case"], row["peer"]): row for row in rows}


if __name__ == "__main__":
    main()
