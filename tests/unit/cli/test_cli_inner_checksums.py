"""No door hands on a record whose own checksum, inside a sound compressed message, is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

import kseg
from kseg.errors import CorruptRecordError
from kseg.spark.damage import code_of
from tests.inner_faults import ERAS, wrong_inner_message
from tests.unit.cli.conftest import Kseg

DOORS = {
    "read": ("read", "--format", "jsonl"),
    "export": ("export", "-o", "out.jsonl"),
    "convert": ("convert", "-o", "converted.log"),
}


@pytest.mark.parametrize("era", ERAS)
def test_readers_refuse_it_and_call_it_record_crc(tmp_path: Path, era: str) -> None:
    path = wrong_inner_message(tmp_path / "t-0", era)
    with pytest.raises(CorruptRecordError, match="inside does not match its checksum") as caught:
        list(kseg.scan(path))
    assert code_of(caught.value) == "record-crc"


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("door", DOORS)
def test_verbs_exit_1_and_name_it(
    kseg: Kseg, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, era: str, door: str
) -> None:
    path = wrong_inner_message(tmp_path / "t-0", era)
    monkeypatch.chdir(tmp_path)
    ran = kseg(*DOORS[door], path if door == "convert" else path.parent)
    assert ran.code == 1
    assert "a message inside does not match its checksum" in ran.err
