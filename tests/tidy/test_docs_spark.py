"""`docs/spark.md` and the code know the same options, defaults and columns."""

from __future__ import annotations

import re
from typing import Any

import pytest

from kseg.constants import INT64_MAX
from kseg.spark import options, schema, staging
from tests.tidy import tree

PAGE = (tree.ROOT / "docs" / "spark.md").read_text(encoding="utf-8")
PATH = {"path": "data"}
WORD = re.compile(r"`([^`]+)`")


def section(title: str) -> str:
    """What stands under a heading, up to the next one."""
    (found,) = re.findall(rf"^#+ {re.escape(title)}\n(.*?)(?=^#|\Z)", PAGE, re.M | re.S)
    return str(found)


def table(title: str) -> dict[str, str]:
    """The options in the table of a section, and their defaults; empty for none."""
    rows = re.findall(r"^\| `(\w+)` \| (?:`([^`]*)`)? ?\|", section(title), re.M)
    assert len(rows) == len(dict(rows))
    return dict(rows)


@pytest.mark.parametrize(
    ("title", "parse", "known"),
    [
        ("Options of the source", options.parse_options, options.OPTIONS),
        ("Options of the sink", staging.parse_sink_options, staging.OPTIONS),
    ],
)
def test_the_page_has_every_option_and_no_other(title: str, parse: Any, known: Any) -> None:
    told, usual = table(title), parse(PATH)
    assert sorted(told) == sorted(known)
    for name, default in told.items():
        if default:
            assert parse({**PATH, name: default}) == usual, name
        else:
            value = getattr(usual, known[name][0])
            assert value in (None, (), {}, INT64_MAX, options.TopicChoice()), name


@pytest.mark.parametrize("mode", schema.MODES)
def test_the_page_has_every_column_of_a_mode_and_no_other(mode: str) -> None:
    text = section("Modes and columns").partition(f"`mode={mode}`")[2].partition("\n**")[0]
    if mode == "records":
        text = "\n".join(line.split("|")[1] for line in text.splitlines() if line.startswith("| `"))
    told = [word for word in WORD.findall(text) if re.fullmatch(r"[a-z]\w*", word)]
    assert sorted({*told} - {"end"}) == sorted(one.name for one in schema.MODES[mode].values())


def test_links_within_the_page_lead_to_its_headings() -> None:
    headings = re.findall(r"^#+ (.*)$", PAGE, re.M)
    anchors = {re.sub(r"[^\w -]", "", one.lower()).replace(" ", "-") for one in headings}
    assert set(re.findall(r"\]\(#([^)]+)\)", PAGE)) <= anchors
