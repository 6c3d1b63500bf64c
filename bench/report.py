"""`python -m bench.report RESULTS ...`: result files as tables, printed or put into a page."""

from __future__ import annotations

import argparse
import json
from itertools import groupby
from pathlib import Path
from typing import Any

from bench.goals import Goal
from bench.table import SCALE, verdict

TITLES = {
    "crc": "Checksums",
    "scan": "Walks over headers",
    "columns": "Columns, uncompressed",
    "codecs": "Columns, compressed",
    "encode": "Batches written and checked",
    "arrow": "Arrow tables",
    "index": "Index lookups",
    "append": "Appending to a log",
    "fetch": "Fetching from a log",
    "recover": "Recovery",
    "open": "Opening a log",
    "growth": "Twice as much",
    "dump": "Dumps",
}


#: Everything behind this line of a page is made here.
MARK = "## What came out\n"


def main() -> None:
    """Print Markdown, or put it into a page."""
    parser = argparse.ArgumentParser(prog="python -m bench.report", description=__doc__)
    parser.add_argument("results", type=Path, nargs="+", help="one run each, in this order")
    parser.add_argument("--into", type=Path, metavar="PAGE", help="replace what follows its mark")
    given = parser.parse_args()
    text = "\n".join(tables(json.loads(path.read_text())) for path in given.results)
    if given.into is None:
        print(text, end="")
        return
    head, mark, _ = given.into.read_text().partition(MARK)
    if not mark:
        parser.error(f"{given.into} has no line {MARK.strip()!r}")
    given.into.write_text(f"{head}{MARK}\n{text}")


def tables(document: dict[str, Any]) -> str:
    """Where and when, then a table per group."""
    lines = [facts(document)]
    for group, rows in groupby(document["rows"], key=lambda row: str(row["group"])):
        lines += [f"\n### {TITLES[group]}\n"]
        lines += ["| case | against | ratio | middle half | goal | final | kseg | |"]
        lines += ["|---|---|---:|---:|---:|---:|---:|---|"]
        lines += [line(row) for row in rows]
    return "\n".join(lines) + "\n"


def facts(document: dict[str, Any]) -> str:
    """What the figures belong to, and how many goals they meet."""
    machine, load = document["machine"], document["load"]
    goals = [row["met"] for row in document["rows"] if row["met"] is not None]
    packages = [f"{name} {version}" for name, version in machine["packages"].items() if version]
    return (
        f"{document['when'][:10]}, {machine['cpu']}, {machine['system']}, Python"
        f" {machine['python']}; one core, {document['rounds']} pairs a ratio, {document['clock']}"
        f" time, logs of {document['mib']} MiB before compression; load average {load[0][0]:.1f}"
        f" before, {load[1][0]:.1f} after.\n{', '.join(packages)}.\n\n"
        f"{sum(goals)} of {len(goals)} goals met."
    )


def line(row: dict[str, Any]) -> str:
    """One row: what moves from run to run is rounded to what it is worth."""
    low, high = row["quartiles"]
    scale, unit = SCALE[row["unit"]]
    rate = scale / sorted(row["subject_ns"])[len(row["subject_ns"]) // 2]
    wanted = Goal(row["goal"], row["final"])
    cells = [
        row["case"],
        row["peer"],
        f"**{_ratio(row['median'])}**",
        f"{_ratio(low)} - {_ratio(high)}",
        _number(wanted.now),
        _number(wanted.final),
        f"{rate:.3g} {unit}",
        verdict(wanted, row["median"]),
    ]
    return f"| {' | '.join(cells)} |"


def _ratio(value: float) -> str:
    return f"{value:.0f}x" if value >= 100 else f"{value:.3g}x"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:g}x"


if __name__ == "__main__":
    main()
