"""Every sentence about indexes, read with sample values."""

from __future__ import annotations

import re

import pytest

from kseg.commands import filled
from kseg.files.txn_index import AbortedTxn
from kseg.log import index_rules
from kseg.log.findings import CODES

STORED = AbortedTxn(1, 2, 3, 4)


@pytest.mark.parametrize("name", index_rules.SENTENCES)
def test_a_sentence_about_an_index_reads_well(name: str) -> None:
    assert name.partition(".")[0] in CODES
    for text in index_rules.SENTENCES[name]:
        values = {word: "7" for word in re.findall(r"\{(\w+)", text)}
        for before in ("3", None):
            read = filled(text, {**values, "before": before, "stored": STORED, "made": STORED})
            assert not set("{}[]") & set(read)
            assert "None" not in read
            assert not re.search(r"  | [,;:.]|[.,;:]$", read)
            assert read == read.strip()
            assert not read[:1].isupper()
