"""`kseg groups` and `kseg transactions`: JSON has what the reports of the library have."""

from __future__ import annotations

from pathlib import Path

import kseg as library
from tests.golden import made
from tests.unit.cli.conftest import Kseg, made_in


def test_the_document_has_the_fields_of_the_report(kseg: Kseg, tmp_path: Path) -> None:
    data = made_in(tmp_path, made.transactions)
    document = kseg("transactions", data, "--json", "--now", "10000").document
    head = {"schema": "kseg.transactions/1", "path": str(data)}
    assert document == head | library.transactions(data, now=10_000).to_json()
    assert document["counts"]["open"] == 2


def test_the_document_of_groups_has_them_too(kseg: Kseg, tmp_path: Path) -> None:
    data = made_in(tmp_path, made.groups)
    document = kseg("groups", data, "--json").document
    assert (
        document == {"schema": "kseg.groups/1", "path": str(data)} | library.groups(data).to_json()
    )
    assert [row["lag"] for row in document["commits"]] == [None, 3, 6, None]
