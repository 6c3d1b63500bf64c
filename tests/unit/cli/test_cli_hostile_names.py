"""A file name cannot steer a terminal nor begin a line of its own, whatever a verb says of it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from kseg.cli.main import VERBS
from kseg.cli.output import progress
from tests.unit.cli.conftest import Kseg

EVIL = "evil\x1b[31m\nkseg: fine"
#: The words behind a verb and a path, where there must be some.
MORE: dict[str, tuple[str, ...]] = {
    "lookup": ("--offset", "0"),
    "truncate": ("--to", "0"),
    "export": ("-o", "{out}"),
    "convert": ("-o", "{out}"),
}


def is_harmless(text: str) -> bool:
    return "\x1b" not in text and not any(line == "kseg: fine" for line in text.splitlines())


@pytest.mark.parametrize("verb", list(VERBS))
@pytest.mark.parametrize("kind", ["missing", "file", "log", "directory"])
def test_no_verb_prints_a_name_raw(
    kseg: Kseg, orders: Path, tmp_path: Path, verb: str, kind: str
) -> None:
    place = tmp_path / EVIL
    path = place
    if kind == "file":
        place.write_bytes(b"?")
    elif kind != "missing":
        shutil.copytree(orders, place / "orders-0")
        path = next((place / "orders-0").glob("*.log")) if kind == "log" else place
    words = [verb, "verify", path] if verb == "spark" else [verb, path]
    more = [word.format(out=tmp_path / f"{EVIL}.out") for word in MORE.get(verb, ())]
    if verb in ("spark", "demo") and kind in ("log", "directory"):
        words += ["--absent-option"]
    ran = kseg(*words, *more)
    assert is_harmless(ran.text), ran.text
    assert is_harmless(ran.err), ran.err
    assert ran.text or ran.err


@pytest.mark.parametrize("form", ["parquet", "csv"])
def test_names_of_what_is_written_are_escaped(
    kseg: Kseg, orders: Path, tmp_path: Path, form: str
) -> None:
    log = next(orders.glob("*.log"))
    for words in (("export", orders, "-o"), ("convert", log, "-o")):
        target = tmp_path / f"{words[0]}{EVIL}.{form}"
        ran = kseg(*words, target)
        assert ran.code == 0
        assert target.exists()
        assert r"evil\u001b[31m\u000akseg: fine" in ran.err
        assert is_harmless(ran.err)


def test_a_progress_bar_takes_a_name_as_it_is_and_escaped(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kseg.cli.output.wants_progress", lambda: True)
    with progress("[red]\x1b[31m\n", 1) as bar:
        bar.by(1)
    assert "\n\n" not in capsys.readouterr().err
