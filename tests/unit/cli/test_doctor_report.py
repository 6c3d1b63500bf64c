"""`kseg report`: the page in a new file, the numbers as JSON, and the refusals."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.builders import batch, record, write_segment
from tests.unit.cli.conftest import Kseg


@pytest.fixture
def data(tmp_path: Path) -> Path:
    write_segment(tmp_path / "data" / "orders-0", 0, batch([record(b"v", key=b"secret")]))
    return tmp_path / "data"


def test_the_page_is_a_new_file(kseg: Kseg, data: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    ran = kseg("report", data, "-o", page)
    assert ran.text.startswith(f"{page}: ")
    assert ran.text.endswith("it holds names of topics and files, and keys\n")
    assert "secret" in page.read_text()
    before = page.read_bytes()
    ran = kseg("report", data, "-o", page)
    assert (ran.code, ran.err.split(";")[0]) == (2, f"kseg: {page} is there already")
    assert page.read_bytes() == before
    ran = kseg("report", data, "-o", tmp_path / "bare.html", "--no-keys")
    assert "secret" not in (tmp_path / "bare.html").read_text()
    assert ran.text.endswith("it holds names of topics and files\n")


def test_a_page_needs_a_name_and_a_directory(kseg: Kseg, data: Path, tmp_path: Path) -> None:
    assert kseg("report", data).code == 2
    assert kseg("report", data, "--json", "-o", tmp_path / "a.html").code == 2
    ran = kseg("report", data, "-o", tmp_path / "none" / "a.html")
    assert (ran.code, ran.err.split(".")[0]) == (2, f"kseg: {tmp_path / 'none'} is no directory")
    ran = kseg("report", data, "-o", tmp_path / "a.pdf")
    assert (ran.code, "give a name that ends with .html" in ran.err) == (2, True)
