"""`kseg transactions`: lines, JSON and exit codes."""

from __future__ import annotations

from pathlib import Path

import pytest

import kseg as library
from tests.golden import made
from tests.unit.cli.conftest import Kseg, made_in


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return made_in(tmp_path, made.transactions)


def test_the_document_has_the_fields_of_the_report(kseg: Kseg, data: Path) -> None:
    document = kseg("transactions", data, "--json", "--now", "10000").document
    assert document.pop("schema") == "kseg.transactions/1"
    assert document.pop("path") == str(data)
    assert document == library.transactions(data, now=10_000).to_json()
    assert document["counts"]["open"] == 2
