"""`kseg groups`: tables, JSON, the file for Kafka's tools, and the exit codes."""

from __future__ import annotations

from pathlib import Path

import pytest

import kseg as library
from tests.golden import made
from tests.unit.cli.conftest import Kseg, made_in


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return made_in(tmp_path, made.groups)


def test_the_document_has_the_fields_of_the_report(kseg: Kseg, data: Path) -> None:
    document = kseg("groups", data, "--json").document
    assert document.pop("schema") == "kseg.groups/1"
    assert document.pop("path") == str(data)
    assert document == library.groups(data).to_json()
    assert [row["lag"] for row in document["commits"]] == [None, 3, 6, None]
