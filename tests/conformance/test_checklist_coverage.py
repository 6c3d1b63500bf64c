"""Every line of the checklist on logs is a test, found by its id, or is listed here with a reason.

Kafka's broker does more around a log than a library can: it has metrics, schedulers, listeners and
a remote store. Lines on those have nothing here to be asked of.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]
#: `test_ul_028_...`, or of several lines `test_ldr_13_14_...`, `test_seg_06_to_08_...` and
#: `test_loc_03_mgr_12_...`.
TEST = re.compile(r"^ *def test_((?:(?:k42|[a-z]+)_(?:[0-9]{2,3}_(?:to_)?)+)+)", re.MULTILINE)
PART = re.compile(r"(k42|[a-z]+)_((?:[0-9]{2,3}_(?:to_)?)+)")
#: A case of a table, `"lec-04-...":`, and a class, `TestPsm08...`.
CASE = re.compile(r'^ *"(k42|[a-z]+)-([0-9]{2,3})-[^"]*": ', re.MULTILINE)
CLASS = re.compile(r"^class Test([A-Z][a-z]+)([0-9]{2})", re.MULTILINE)


def numbers(*ranges: tuple[int, int]) -> tuple[int, ...]:
    return tuple(n for first, last in ranges for n in range(first, last + 1))


#: What lines each heading of the checklist has.
LINES = {
    "seg": numbers((1, 32)),
    "oix": numbers((1, 12)),
    "tix": numbers((1, 11)),
    "txi": numbers((1, 10)),
    "ldr": numbers((1, 40)),
    "psm": numbers((1, 38)),
    "lec": numbers((1, 19)),
    "sgs": numbers((1, 7)),
    "fr": numbers((1, 14)),
    "loc": numbers((1, 26)),
    "ul": numbers(
        *((1, 28), (30, 41), (50, 63), (70, 77), (80, 90), (100, 109), (120, 135)),
        *((140, 142), (150, 151), (160, 168)),
    ),
    "lom": (1,),
    "k42": numbers((1, 36)),
    "cln": numbers((1, 39)),
    "clm": numbers((1, 10)),
    "omp": (1, 2),
    "fix": numbers((1, 3)),
    "mgr": numbers((1, 15)),
    "chk": numbers((1, 5)),
}

_REMOTE = "there is no remote store; a log whose settings ask for one is refused"
_CHOOSING = "no task compacts logs by itself: each is compacted when its caller says so"
_PAUSING = "nothing is paused: a compaction holds its log's lock for each swap of files alone"
_HANDLES = "a log has no way to let go of its files without closing; one that failed does that"
_SPLITS = "a segment whose offsets overflow is refused in words, not split"

#: Line -> why nothing here can be asked for it.
NOT_ASKED = {
    "sgs 7": "a partition's directory is not renamed under an open log",
    "loc 5": "a partition's directory is not renamed under an open log",
    "loc 9": _HANDLES,
    "txi 7": "a segment is closed before its files are renamed",
    "txi 8": "a partition's directory is not renamed under an open log",
    "loc 25": "the end of a log cannot be forced below its active segment",
    "lom 1": "offsets with places are not compared: a fetch takes its limit from one moment",
    "psm 8": "nothing asks whether a transaction is open for too long",
    **dict.fromkeys(("lec 1", "lec 17", "lec 18"), "nothing asks for neighbours of an epoch"),
    "ul 7": "nobody holds an offset with its place for longer than one fetch",
    "ul 8": "nobody listens to the high watermark; who waits for records waits for `changed`",
    "ul 89": "there is no task that expires producers, so none to be cancelled",
    "ul 140": "a partition's directory is not renamed under an open log",
    "ul 141": "a partition's directory is not renamed under an open log",
    "cln 1": "there are no metrics, and no limit to the rate of reading",
    "seg 30": _SPLITS,
    **dict.fromkeys((f"ldr {n}" for n in (26, 27, 28)), _SPLITS),
    **dict.fromkeys(("ul 150", "ul 151", "cln 33", "fix 1", "fix 2", "fix 3"), _SPLITS),
    "cln 34": "tests/crash kills a compaction at every call of the system",
    "clm 2": _CHOOSING,
    "clm 5": _PAUSING,
    "clm 7": _PAUSING,
    "clm 9": _CHOOSING,
    "clm 10": _PAUSING,
    **dict.fromkeys((f"ul {n}" for n in range(160, 168)), _REMOTE),
    "mgr 8": "a log is made in the directory that its caller names, not in the emptiest of several",
    "mgr 15": "settings come from the caller alone, who changes them when the log is open",
    "chk 2": "checkpoints are read when a directory is entered, and written as long as it is held",
}


@cache
def asked() -> frozenset[str]:
    found: list[tuple[str, str]] = []
    for path in TESTS.rglob("test_*.py"):
        text = path.read_text(encoding="utf-8")
        found += [part for name in TEST.findall(text) for part in PART.findall(name)]
        found += CASE.findall(text) + CLASS.findall(text)
    return frozenset(f"{heading.lower()} {n}" for heading, spans in found for n in numbered(spans))


def numbered(spans: str) -> list[int]:
    """The lines that a name names."""
    numbers: list[int] = []
    upto = False
    for word in spans.strip("_").split("_"):
        if word == "to":
            upto = True
            continue
        numbers += range(numbers[-1] + 1 if upto else int(word), int(word) + 1)
        upto = False
    return numbers


@pytest.mark.parametrize(
    ("name", "lines"), [("07_", [7]), ("13_14_", [13, 14]), ("06_to_08_", [6, 7, 8])]
)
def test_a_name_may_name_several_lines(name: str, lines: list[int]) -> None:
    assert numbered(name) == lines


def lines() -> list[str]:
    return [f"{heading} {number}" for heading, found in LINES.items() for number in found]


@pytest.mark.parametrize("line", lines())
def test_a_line_is_tested_or_there_is_a_reason(line: str) -> None:
    assert (line in asked()) != (line in NOT_ASKED)


def test_reasons_are_for_lines_that_there_are() -> None:
    assert NOT_ASKED.keys() <= set(lines())
