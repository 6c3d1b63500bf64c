"""`kseg convert` without `-o`: closed segments in another codec, in place."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import kseg as library
from kseg.log.recoding import Recoding
from tests.builders import batch, record, write_segment
from tests.unit.cli.conftest import Kseg


@pytest.fixture
def data(tmp_path: Path) -> Path:
    home = tmp_path / "data"
    for name in ("a-0", "b-0"):
        for base in (0, 3):
            records = [record(b"value " * 50, timestamp=1_760_000_000_000 + at) for at in range(3)]
            write_segment(home / name, base, batch(records, base_offset=base))
        library.recover(home / name, clean=False)
    (home / ".kafka_cleanshutdown").write_bytes(b"")
    return home


def test_a_plan_changes_nothing_and_apply_does_it(kseg: Kseg, data: Path, tmp_path: Path) -> None:
    before = {path: path.read_bytes() for path in data.rglob("*.log")}
    ran = kseg("convert", data, "--codec", "zstd")
    assert (ran.code, ran.text.count("its batches of magic 2 become zstd")) == (1, 2)
    assert "nothing was changed; --apply does it" in ran.err
    assert {path: path.read_bytes() for path in before} == before
    ran = kseg("convert", data, "--codec", "zstd", "--topic", "a", "--apply")
    assert (ran.code, ran.text.count("with batches in zstd")) == (0, 1)
    assert {path.parent.name for path in before if path.read_bytes() != before[path]} == {"a-0"}
    kept = tmp_path / "kept"
    document = kseg(
        "convert", data, "--codec", "zstd", "--apply", "--json", "--backup-dir", kept
    ).document
    assert document["schema"] == "kseg.convert/1"
    assert (document["applied"], document["codec"], document["findings"]) == (True, "zstd", [])
    whys = [[each["why"] for each in one["segments"]] for one in document["partitions"]]
    assert whys == [["unchanged", "active"], [None, "active"]]
    assert document["partitions"][1]["segments"][0]["new_bytes"] < 200
    assert [path.read_bytes() for path in kept.rglob("*.log")] == [
        before[data / "b-0" / f"{0:020d}.log"]
    ]
    assert kseg("verify", data).code == 0
    assert kseg("convert", data, "--codec", "zstd").text == "nothing to do\n"


def test_damage_is_named_and_is_code_1(kseg: Kseg, data: Path) -> None:
    log = data / "a-0" / f"{0:020d}.log"
    damaged = bytearray(log.read_bytes())
    damaged[-1] ^= 1
    log.write_bytes(damaged)
    ran = kseg("convert", data, "--codec", "lz4", "--apply")
    assert ran.code == 1
    assert f"not changed: {log} @ 0" in ran.err
    assert ran.text.count("with batches in lz4") == 1


def test_words_of_both_modes_are_refused(kseg: Kseg, data: Path, tmp_path: Path) -> None:
    log = data / "a-0" / f"{0:020d}.log"
    for words in (
        (data,),
        (data, "--codec", "zstd", "--magic", "1"),
        (data, "--codec", "zstd", "--drop"),
        (log, log, "-o", tmp_path / "x.log"),
        (log, "--codec", "zstd", "--apply", "-o", tmp_path / "x.log"),
    ):
        assert kseg("convert", *words).code == 2
    (data / ".kafka_cleanshutdown").unlink()
    assert kseg("convert", data, "--codec", "zstd", "--apply").code == 1


def test_diff_says_how_to_compare_what_was_recoded(kseg: Kseg, data: Path, tmp_path: Path) -> None:
    shutil.copytree(data, tmp_path / "copy")
    kseg("convert", data, "--codec", "zstd", "--apply")
    ran = kseg("diff", data, tmp_path / "copy")
    assert ran.text.count("; the codecs differ, --records compares the records:") == 2
    assert kseg("diff", data, tmp_path / "copy", "--records").code == 0


def test_a_level_that_the_codec_lacks_is_refused(kseg: Kseg, data: Path) -> None:
    ran = kseg("convert", data, "--codec", "zstd", "--level", 99)
    assert (ran.code, "zstd has levels -131072 to 22, not 99" in ran.err) == (2, True)


def test_an_interrupted_run_says_what_stays(
    kseg: Kseg, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Recoding, "apply_all", interrupt)
    ran = kseg("convert", data, "--codec", "zstd", "--apply")
    assert ran.code == 130
    assert "finished segments stay, the others are as they were" in ran.err
