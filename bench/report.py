"""`python -m bench.report RESULTS ... -o FOLDER`: result files as pages.

benchmarks.md        what stands before its mark stays; behind it the headlines, a row a case
benchmarks.svg       the same as a picture (needs matplotlib)
RESULTS.md           beside the last result file: every ratio
"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from bench.goals import LIMITS, verdict
from bench.table import SCALE

Row = dict[str, Any]

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
    "compact": "Compaction",
    "open": "Opening a log",
    "growth": "Twice as much",
    "dump": "Dumps",
}
#: Those that the page shows, as it calls them.
HEADLINES = {
    "verify 16 KB batches": "check every CRC",
    "columns 100 B": "offsets and timestamps",
    "with key, value 100 B": "with keys and values",
    "with key, value 1 KB": "the same, values of 1 KB",
    "with key, value one record": "the same, one record a batch",
    "lz4, 16 KB batches": "offsets and timestamps, lz4",
    "zstd, 16 KB batches": "the same, zstd",
    "gzip, 16 KB batches": "the same, gzip",
    "Arrow table 100 B": "a pyarrow table of all fields",
    "encode columns": "build batches",
    "validate in place": "validate as a leader",
    "sweep 16 KB batches": "recover after a crash",
    "compact plain, all keys distinct": "compact, all keys distinct",
    "dump --kafka 100 B": "dump every record as Kafka's tool",
}
JAVA = "Kafka's Java"
AIOKAFKA = ("aiokafka", "aiokafka CRC", "aiokafka to pyarrow")
#: What stands between these is made here.
BEGIN, END = "<!-- made by bench.report -->\n", "<!-- end -->\n"


def main() -> None:
    """Write the pages."""
    parser = argparse.ArgumentParser(prog="python -m bench.report", description=__doc__)
    parser.add_argument("results", type=Path, nargs="+", help="one run each; a later one wins")
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="FOLDER")
    given = parser.parse_args()
    runs = [json.loads(path.read_text()) for path in given.results]
    found = headlines(runs)
    picture = "![the same beside Kafka's Java, as bars](benchmarks.svg)"
    rest = "`make bench` writes every ratio, with those that miss their goals, to `bench/results`."
    page = [*map(facts, runs), "", *table(found), "", picture, "", rest, ""]
    put("\n".join(page), given.output / "benchmarks.md")
    every_ratio = given.results[-1].with_suffix(".md")
    every_ratio.write_text("# All benchmarks\n\n" + "\n".join(map(every, runs)))
    draw(found, given.output / "benchmarks.svg")


def put(text: str, page: Path) -> None:
    """Replace what stands between the marks of a page.

    Raises:
        ValueError: it has no marks.
    """
    before, _, behind = page.read_text().partition(BEGIN)
    old, end, after = behind.partition(END)
    if not end:
        raise ValueError(f"{page} has no marks, or holds {len(old)} characters behind the first")
    page.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}")


@dataclass(frozen=True, slots=True)
class Headline:
    """One row of the page: ratios of one case, None where there is no such peer.

    Attributes:
        title: what is done.
        rate: of kseg, for an idea.
        limit: against what the machine allows, and what that is.
        java, aiokafka: against these.
    """

    title: str
    rate: str
    limit: Row | None
    java: Row | None
    aiokafka: Row | None


def headlines(runs: list[dict[str, Any]]) -> list[Headline]:
    """The rows of the page, of those cases that were run."""
    by_case: dict[str, dict[str, Row]] = {}
    for run in runs:
        for row in run["rows"]:
            by_case.setdefault(row["case"], {})[row["peer"]] = row
    found = []
    for case, title in HEADLINES.items():
        peers = by_case.get(case)
        if peers is None:
            continue
        limit = next((row for peer, row in peers.items() if peer in LIMITS), None)
        other = next((peers[peer] for peer in AIOKAFKA if peer in peers), None)
        rate = _rate(next(iter(peers.values())))
        found.append(Headline(title, rate, limit, peers.get(JAVA), other))
    return found


def table(found: list[Headline]) -> list[str]:
    """The headlines as Markdown."""
    lines = [
        "| what | kseg | speed of the limit | of Kafka's Java | of aiokafka |",
        "|---|---:|---:|---:|---:|",
    ]
    for each in found:
        limit = _cell(each.limit) + (f" of {each.limit['peer']}" if each.limit else "")
        cells = (each.title, each.rate, limit, _cell(each.java), _cell(each.aiokafka))
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def draw(found: list[Headline], target: Path) -> None:
    """Bars of the ratios against Kafka's Java."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "kseg"
    from matplotlib import pyplot as plt

    shown = [(each.title, each.java) for each in found if each.java is not None][::-1]
    figure, axes = plt.subplots(figsize=(8, 0.38 * len(shown) + 1))
    ratios = [row["median"] for _, row in shown]
    spread = [
        [row["median"] - row["quartiles"][0] for _, row in shown],
        [row["quartiles"][1] - row["median"] for _, row in shown],
    ]
    axes.barh([title for title, _ in shown], ratios, xerr=spread, color="#4878a8", ecolor="#777777")
    axes.axvline(1, color="#333333", linewidth=1)
    axes.set_xlabel("times as fast as Kafka's own Java, on one core")
    axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(target, metadata={"Date": None})


def facts(document: dict[str, Any]) -> str:
    """What the figures belong to, and how many goals they meet."""
    machine, load = document["machine"], document["load"]
    goals = [row["met"] for row in document["rows"] if row["met"] is not None]
    packages = [f"{name} {version}" for name, version in machine["packages"].items() if version]
    return (
        f"{document['when'][:10]}, {machine['cpu']}, {machine['system']}, Python"
        f" {machine['python']}; one core, {document['rounds']} pairs a ratio, {document['clock']}"
        f" time, logs of {document['mib']} MiB before compression; load average {load[0][0]:.1f}"
        f" before, {load[1][0]:.1f} after; codecs: {machine['codecs']}.\n"
        f"{', '.join(packages)}; Kafka's Java: 4.2.0.\n\n"
        f"{sum(goals)} of {len(goals)} goals met."
    )


def every(document: dict[str, Any]) -> str:
    """Where and when, then a table per group."""
    lines = [facts(document)]
    for group, rows in groupby(document["rows"], key=lambda row: str(row["group"])):
        lines += [f"\n### {TITLES[group]}\n"]
        lines += ["| case | | against | ratio | middle half | goal | kseg | |"]
        lines += ["|---|---|---|---:|---:|---:|---:|---|"]
        lines += [line(row) for row in rows]
    return "\n".join(lines) + "\n"


def line(row: Row) -> str:
    """One row: what moves from run to run is rounded to what it is worth."""
    low, high = row["quartiles"]
    cells = [
        row["case"],
        row["kind"],
        row["peer"],
        f"**{_ratio(row['median'])}**",
        f"{_ratio(low)} - {_ratio(high)}",
        "" if row["goal"] is None else f"{row['goal']:g}x",
        _rate(row),
        verdict(row["goal"], row["median"]),
    ]
    return f"| {' | '.join(cells)} |"


def _cell(row: Row | None) -> str:
    if row is None:
        return ""
    missed = f" (goal {row['goal']:g}x)" if row["met"] is False else ""
    return f"{_ratio(row['median'])}{missed}"


def _rate(row: Row) -> str:
    scale, unit = SCALE[row["unit"]]
    return f"{scale / sorted(row['subject_ns'])[len(row['subject_ns']) // 2]:.3g} {unit}"


def _ratio(value: float) -> str:
    return f"{value:.0f}x" if value >= 100 else f"{value:.3g}x"


if __name__ == "__main__":
    main()
