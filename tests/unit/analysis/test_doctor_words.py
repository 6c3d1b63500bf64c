"""Every sentence of the doctor, read with sample values."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kseg.analysis.doctor import words
from kseg.commands import filled

#: The names of values in braces.
NAME = re.compile(r"\{(\w+)")
ROWS = {
    f"{table}/{name}": text
    for table in ("SENTENCES", "REMEDIES", "EVENTS")
    for name, text in getattr(words, table).items()
}


def sample(text: str, *, missing: str = "") -> str:
    """A sentence with sample values; that of one name is None."""
    values = {name: 7 if name in ("level", "count") else name for name in NAME.findall(text)}
    return filled(text, {**values, missing: None})


@pytest.mark.parametrize("row", ROWS)
def test_a_sentence_reads_well_with_and_without_its_values(row: str) -> None:
    text = ROWS[row]
    optional = {name for part in re.findall(r"\[(.*?)\]", text) for name in NAME.findall(part)}
    for missing in ("", *optional):
        read = sample(text, missing=missing)
        assert not set("{}[]") & set(read)
        assert "None" not in read
        assert "  " not in read
        assert not re.search(r" [,;:.]|[,;:]$|,,|;;", read)
        assert read.isprintable() or row.startswith("REMEDIES")
        assert (read == read.strip()) != row.startswith("EVENTS/as-of")
        if row.startswith("SENTENCES"):  # others follow it in a line: no sentence ends it
            assert not read.endswith(".")
            assert read[0].islower() or re.match(r"\[?@|\{", text) or read.startswith("Kafka")


def test_each_code_has_a_sentence_and_each_sentence_a_code() -> None:
    assert {name.partition(".")[0] for name in words.SENTENCES} == set(words.CODES)


def test_each_sentence_and_remedy_is_named_by_a_rule() -> None:
    folder = Path(words.__file__).parent
    rules = "".join(path.read_text() for path in folder.glob("*.py") if path.name != "words.py")
    named = set(re.findall(r'"([a-z][\w.-]*)"', rules))
    composed = ("checkpoint-format.", "checkpoint-missing.", "metadata-log", "metadata-snapshot.")
    for table in (words.SENTENCES, words.EVENTS):
        names = {name for name in table if not name.startswith(composed)}
        assert names - named == set()
    sentences = {*words.SENTENCES, *words.CODES}
    remedies = {name for name in words.REMEDIES if not name.startswith(composed)}
    others = {"partition-lost.absent", "partition-lost.unnamed"}
    assert remedies - named - sentences - others == set()


def test_a_path_in_a_command_is_quoted() -> None:
    found = words.finding("rights", "a b", home=Path("c d"), names="x", user=1)
    assert found.mend == "chown -R --reference='c d' 'a b'"
    hostile = words.finding("load-fails", "{x}", reason="[{y}]", position=3)
    assert hostile.message == "@ 3: [{y}]"
