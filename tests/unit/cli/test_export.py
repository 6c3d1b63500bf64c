"""`kseg export`: every format holds the records that dump shows; files appear whole or never."""

from __future__ import annotations

import base64
import csv
import os
from pathlib import Path
from typing import Any

import pytest

from kseg import scan
from kseg.files.whole_file import claimed
from tests.builders import batch, record, write_segment
from tests.golden import made
from tests.unit.cli.conftest import Kseg, files_no_longer_than, made_in


def decoded(row: dict[str, Any]) -> tuple[Any, ...]:
    """Offset, time, key and value of a JSON line, in Arrow's terms."""

    def raw(text: str | None) -> bytes | None:
        return None if text is None else base64.b64decode(text)

    return row["offset"], row["timestamp"], raw(row["key"]), raw(row["value"])


def shown(kseg: Kseg, path: Path) -> list[tuple[Any, ...]]:
    return [decoded(row) for row in kseg("read", "--format", "jsonl", path).rows]


def test_two_exports_do_not_mix_in_a_directory(kseg: Kseg, orders: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    with claimed(out):
        ran = kseg("export", orders, "-o", out)
        assert (ran.code, list(out.iterdir())) == (3, [])
        assert "another run writes there" in ran.err
        assert kseg("export", orders, "-o", out / "one.jsonl").code == 0
    assert kseg("export", orders, "-o", out).code == 0


@pytest.mark.parametrize("form", ["parquet", "arrow", "jsonl", "csv", "log"])
def test_a_disk_that_refuses_is_told_with_the_files_name(
    kseg: Kseg, tmp_path: Path, form: str
) -> None:
    source = write_segment(tmp_path / "data" / "orders-0", 0, batch([record(os.urandom(200_000))]))
    target = tmp_path / f"{7:020d}.{form}"
    words = ("convert", "--codec", "gzip") if form == "log" else ("export",)
    with files_no_longer_than(4096):
        ran = kseg(*words, source, "-o", target)
    assert (ran.code, ran.out) == (3, b"")
    assert ran.err.startswith(f"kseg: {target}: ")
    assert list(tmp_path.glob("0*")) == []


# ---- what is there already -----------------------------------------------------------------------


@pytest.mark.parametrize("form", ["parquet", "arrow", "jsonl", "csv"])
@pytest.mark.parametrize(
    ("first", "second", "says"),
    [
        ([], ["--offset", "3.."], True),
        ([], ["--time", "1760000003000.."], True),
        (["--offset", "..6"], ["--offset", "6.."], True),
        (["--offset", "2..6"], ["--offset", "1..7"], None),
        (["--time", "1760000003000.."], ["--time", "1760000002000.."], None),
        (["--offset", "2..6"], [], False),
        (["--time", "1760000003000.."], [], False),
        ([], [], False),
        ([], ["--isolation", "read_committed"], None),
    ],
)
def test_a_file_with_records_that_the_export_lacks_is_not_replaced(
    kseg: Kseg,
    orders: Path,
    tmp_path: Path,
    form: str,
    first: list[str],
    second: list[str],
    says: bool | None,
) -> None:
    """`says` is whether it is refused; None where that depends on what the file can say."""
    out, is_text = tmp_path / f"out.{form}", form in ("jsonl", "csv")
    assert kseg("export", orders, "-o", out, *first).code == 0
    before = out.read_bytes()
    ran = kseg("export", orders, "-o", out, *second)
    has_bounds = "--isolation" not in second
    refused = (is_text == has_bounds) if says is None else says
    assert ran.code == (3 if refused else 0)
    if refused:
        assert out.read_bytes() == before
        assert ran.err.startswith(f"kseg: {out}: not replaced: ")
        assert kseg("export", orders, "-o", out, *second, "--replace").code == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data", out.name]


FORMULAS = [b'=cmd|"/c calc"!A0', b"@SUM(1)", b"+h", b"-1+1", b"\t=1", b"\r=1", "\uff1d1".encode()]
HARMLESS = [b"a=1", b"-5", b"+1.5e3", b'say "=1"', b'"=1"', b"", b'a,"', b"x,\r\n=1"]


@pytest.mark.parametrize("large", [False, True])
def test_a_spreadsheet_finds_no_formula_where_none_is_asked_for(
    kseg: Kseg, tmp_path: Path, large: bool
) -> None:
    filler = b'x"' * 300_000 if large else b""
    values = [*FORMULAS, *HARMLESS]
    records = [record(value + filler, key=value, headers=((b"=h", b"=v"),)) for value in values]
    write_segment(tmp_path / "t-0", 0, batch(records))
    out = tmp_path / "out.csv"
    words = ("export", tmp_path / "t-0", "-o", out, "--bytes", "utf8")
    assert kseg(*words).code == 0
    plain = out.read_bytes()
    assert kseg(*words, "--no-formulas").code == 0
    with out.open(newline="", encoding="utf-8") as file:
        csv.field_size_limit(1 << 24)
        rows = list(csv.DictReader(file))
    keys = [b"'" + value for value in FORMULAS] + HARMLESS
    assert [row["key"].encode() for row in rows] == keys
    ends = [value + filler for value in values]
    marked = [value in FORMULAS or (value in (b"-5", b"+1.5e3") and large) for value in values]
    shown = [b"'" * mark + end for mark, end in zip(marked, ends, strict=True)]
    assert [row["value"].encode() for row in rows] == shown
    assert b'"=cmd|' in plain
    assert kseg("export", tmp_path, "-o", tmp_path / "o.jsonl", "--no-formulas").code == 2


def test_a_topic_of_the_longest_name_is_exported_beside_others(kseg: Kseg, tmp_path: Path) -> None:
    data = tmp_path / "data"
    names = ["t" * 249, "t" * 248 + "u", "orders"]
    for name in names:
        write_segment(data / f"{name}-0", 0, batch([record(b"v")]))
    for words, pattern in (
        ((), "*.parquet"),
        (("--per", "segment"), "*/*.parquet"),
        (("--partition-by", "topic"), "topic=*/*.parquet"),
    ):
        out = tmp_path / f"out{len(pattern)}"
        assert kseg("export", data, "-o", out, *words).code == 0
        assert len(list(out.glob(pattern))) == len(names)
        assert (kseg("export", data, "-o", out, *words).code, len(list(out.glob(pattern)))) == (
            0,
            3,
        )


# ---- what is left out ----------------------------------------------------------------------------


@pytest.fixture
def pending(tmp_path: Path) -> Path:
    return made_in(tmp_path, made.pending) / "txn-0"


def test_python_warns_of_an_open_transaction_and_can_abort_it(pending: Path) -> None:
    found = scan(pending, isolation="read_committed", columns=("offset",))
    with pytest.warns(UserWarning, match="ends at offset 1 of 5: a transaction of producer 4"):
        assert found.to_arrow()["offset"].to_pylist() == [0]
    for threads in (1, 2):
        found = scan(
            pending,
            isolation="read_committed",
            open_transactions="abort",
            columns=("offset",),
            threads=threads,
        )
        assert found.to_arrow()["offset"].to_pylist() == [0, 2, 4]
    bounded = scan(pending, isolation="read_committed", offset=(0, 1), columns=("offset",))
    assert bounded.to_arrow().num_rows == 1
    with pytest.raises(ValueError, match="open_transactions is wait or abort"):
        scan(pending, isolation="read_committed", open_transactions="commit")


def test_python_warns_of_older_segments_that_are_elsewhere(tmp_path: Path) -> None:
    path = made_in(tmp_path, made.elsewhere) / "t-0"
    with pytest.warns(UserWarning, match="offsets 2 to 6 are not in this directory"):
        assert scan(path).to_arrow().num_rows == 1
