"""`kseg schemas`: the list, one text, JSON, and the exit codes."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.unit.analysis.test_registry_url import PAGES, serving
from tests.unit.cli.conftest import Kseg
from tests.unit.internal.test_registry import INT


def test_a_pipe_gets_the_very_text_and_a_terminal_no_control_characters(
    kseg: Kseg, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = 'syntax = "proto3";\r\n\t\x1b[2J'
    (tmp_path / "x.proto").write_bytes(text.encode())
    (one,) = kseg("schemas", tmp_path / "x.proto", "--json").document["schemas"]
    assert one["text"] == text
    assert kseg("schemas", tmp_path / "x.proto", "--id", one["guid"]).out == f"{text}\n".encode()
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    ran = kseg("schemas", tmp_path / "x.proto", "--id", one["guid"])
    assert 'syntax = "proto3";' in ran.text
    assert b"\x1b[2J" not in ran.out


def test_the_verb_lists_a_registry(kseg: Kseg) -> None:
    with serving(PAGES, []) as address:
        ran = kseg("schemas", address, "--subject", "orders-*", "--json")
        text = kseg("schemas", address, "--id", "2")
    assert (ran.code, ran.err) == (0, "")
    assert [row["version"] for row in ran.document["schemas"]] == [1, 2]
    assert ran.document["path"] == address
    assert text.text == f"{INT}\n"
    gone = kseg("schemas", address)
    assert (gone.code, "refused" in gone.err, len(gone.err.splitlines())) == (3, True, 1)
