"""`--jobs N`: the same bytes for every N, and nothing half-written after an error."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from kseg.cli import main
from kseg.cli.failures import Exit
from tests.unit.cli.conftest import Kseg

DEMO = Path(main.__file__).parents[1] / "demo_data"
VERBS = {
    "verify": ("verify", "--deep"),
    "stats": ("stats", "--json"),
    "info": ("info", "--json", "--segments"),
    "doctor": ("doctor",),
    "dump": ("dump", "--format", "jsonl"),
    "recover": ("recover", "--json"),
}
FORMS = ("parquet", "arrow", "jsonl", "csv")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    shutil.copytree(DEMO, tmp_path / "data")
    (tmp_path / "data" / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":-1}')
    return tmp_path / "data"


@pytest.mark.parametrize("words", VERBS.values(), ids=VERBS)
@pytest.mark.parametrize("damaged", [False, True], ids=["sound", "damaged"])
def test_a_verb_prints_the_same_for_any_number_of_jobs(
    kseg: Kseg, data: Path, words: tuple[str, ...], damaged: bool
) -> None:
    if damaged:
        (log,) = (data / "clicks-1").glob("*.log")
        log.write_bytes(log.read_bytes()[:-40] + b"\xff" * 20)
    runs = [kseg(*words, "--jobs", jobs, data) for jobs in (1, 2, 5)]
    assert [(ran.code, ran.out, ran.err) for ran in runs[1:]] == [
        (runs[0].code, runs[0].out, runs[0].err)
    ] * 2


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("per", ["partition", "segment"])
def test_files_are_the_same_for_any_number_of_jobs(
    kseg: Kseg, data: Path, tmp_path: Path, form: str, per: str
) -> None:
    def exported(jobs: int) -> dict[str, bytes]:
        out = tmp_path / f"out-{jobs}"
        ran = kseg("export", data, "-o", out, "--format", form, "--per", per, "--jobs", jobs)
        assert ran.code == Exit.OK
        files = [path for path in out.rglob("*") if path.is_file()]
        return {str(path.relative_to(out)): path.read_bytes() for path in files}

    one = exported(1)
    assert len(one) > 3
    assert exported(2) == one
    assert exported(5) == one


def test_an_export_that_fails_leaves_no_half_written_file(
    kseg: Kseg, data: Path, tmp_path: Path
) -> None:
    log = max((data / "orders-0").glob("*.log"))
    whole = bytearray(log.read_bytes())
    whole[len(whole) // 2] ^= 1
    log.write_bytes(whole)
    for jobs in (1, 2, 5):
        out = tmp_path / f"out-{jobs}"
        ran = kseg("export", data, "-o", out, "--format", "jsonl", "--jobs", jobs)
        assert ran.code == Exit.FOUND
        assert str(log) in ran.err
        assert not (out / "orders-0.jsonl").exists()
        assert {path.suffix for path in out.iterdir()} <= {".jsonl"}
