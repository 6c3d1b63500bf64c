"""`kseg metadata`: tables, JSON, what differs, secrets, and the exit codes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.golden import made
from tests.unit.cli.conftest import Kseg, made_in

SECRET = "hunter2-secret"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return made_in(tmp_path, made.cluster)


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["--json"],
        ["--since", "1700000000000"],
        ["--since", "1700000000000", "--json"],
        ["--diff", "1700000000000", "1700000060000"],
        ["--diff", "1700000000000", "1700000060000", "--json"],
        ["--at-offset", "99"],
    ],
)
def test_no_secret_is_in_any_output(kseg: Kseg, data: Path, words: list[str]) -> None:
    ran = kseg("metadata", data, *words)
    assert SECRET not in ran.text + ran.err
    if words != ["--at-offset", "99"]:
        assert SECRET in kseg("metadata", data, *words, "--show-secrets").text
