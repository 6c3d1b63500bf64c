"""`kseg schemas`: the list, one text, JSON, and the exit codes."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.unit.analysis.test_registry_url import PAGES, serving
from tests.unit.analysis.test_schemas import write_registry
from tests.unit.cli.conftest import Kseg
from tests.unit.internal.test_registry import INT


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write_registry(tmp_path / "data")


def test_the_list_has_a_line_for_each_version(kseg: Kseg, data: Path) -> None:
    ran = kseg("schemas", data)
    assert (ran.code, ran.err) == (0, "")
    head, *lines = ran.text.splitlines()
    assert head.split() == ["subject", "version", "id", "type", "deleted", "references", "guid"]
    assert [line.split()[:6] for line in lines] == [
        ["orders-value", "1", "1", "AVRO", "soft", "0"],
        ["orders-value", "2", "2", "AVRO", "-", "0"],
    ]
    assert len(kseg("schemas", data, "--at", "3000").text.splitlines()) == 2
    assert len(kseg("schemas", data, "--subject", "orders-*").text.splitlines()) == 3


def test_an_id_prints_one_text(kseg: Kseg, data: Path) -> None:
    assert kseg("schemas", data, "--id", 2).text == f"{INT}\n"
    (one,) = kseg("schemas", data, "--json", "--id", 2).document["schemas"]
    assert kseg("schemas", data, "--id", one["guid"]).text == f"{INT}\n"


def test_the_document_has_the_fields_of_schemas(kseg: Kseg, data: Path) -> None:
    document = kseg("schemas", data, "--json").document
    assert document["schema"] == "kseg.schemas/1"
    assert document["findings"] == []
    first = document["schemas"][0]
    names = "subject version id guid type deleted context references text path offset timestamp"
    assert list(first) == names.split()
    assert (first["timestamp"], first["offset"], first["context"]) == (2000, 1, ".")


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


def test_exit_codes(kseg: Kseg, data: Path, tmp_path: Path) -> None:
    assert kseg("schemas").code == 2
    assert kseg("schemas", tmp_path / "missing").code == 3
    ran = kseg("schemas", data, "--id", 99)
    assert (ran.code, ran.out, ran.err) == (1, b"", "kseg: no schema here is chosen\n")
    (tmp_path / "bad.avsc").write_text("{")
    ran = kseg("schemas", tmp_path / "bad.avsc")
    assert ran.code == 1
    assert ran.err.startswith("error: schema-json: ")


def test_codes_are_listed(kseg: Kseg) -> None:
    assert "id-two-texts" in kseg("schemas", "--codes").text
    assert kseg("schemas", "--codes", "--json").document["codes"][0]["code"] == "log-damaged"


@pytest.mark.parametrize("address", ["http://ann:secret@here", "http://here?token=secret"])
def test_credentials_in_an_address_are_refused(address: str, kseg: Kseg) -> None:
    ran = kseg("schemas", address)
    assert ran.code == 2
    assert "has no user, password or query in it" in ran.err
    assert "secret" not in ran.err


def test_a_registry_has_no_past(kseg: Kseg) -> None:
    ran = kseg("schemas", "http://127.0.0.1:1", "--at", "today")
    assert (ran.code, "at is for the topic" in ran.err) == (2, True)


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
