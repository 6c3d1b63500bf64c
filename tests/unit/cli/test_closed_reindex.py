from __future__ import annotations

from pathlib import Path

import pytest

from kseg.files import lock
from kseg.files.names import list_data_directory
from tests.builders import batch, record, write_segment
from tests.unit.cli.conftest import Kseg

INDEX = f"{0:020d}.index"


def big(offset: int) -> bytes:
    return batch(
        [record(b"v" * 3000, timestamp=offset)],
        base_offset=offset,
        leader_epoch=-1,
        producer_id=5,
        producer_epoch=0,
        base_sequence=offset,
    )


def made(data: Path, name: str) -> Path:
    directory = data / name
    directory.mkdir(parents=True)
    parts = [big(i) for i in range(4)]
    write_segment(directory, 0, *parts, big(4))
    return directory


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data directory with two partitions that are logs alone."""
    for name in ("a-0", "b-1"):
        made(tmp_path / "data", name)
    return tmp_path / "data"


def files(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


ALL = [f"{0:020d}.{suffix}" for suffix in ("index", "log", "timeindex")] + [f"{5:020d}.snapshot"]


def test_what_is_replaced_is_kept_unless_told_otherwise(
    kseg: Kseg, data: Path, tmp_path: Path
) -> None:
    kseg("reindex", "--apply", data)
    index = data / "a-0" / INDEX
    index.write_bytes(b"old")
    ran = kseg("reindex", "--apply", "--now", "1000", data)
    place = tmp_path / "data.kseg-backup" / "19700101T000001.000Z"
    assert (place / "a-0" / INDEX).read_bytes() == b"old"
    assert f"removed bytes are kept in {place}" in ran.text
    index.write_bytes(b"older")
    kseg("reindex", "--apply", "--backup-dir", tmp_path / "kept", data)
    assert (tmp_path / "kept" / "a-0" / INDEX).read_bytes() == b"older"
    index.write_bytes(b"oldest")
    ran = kseg("reindex", "--apply", "--no-backup", "--json", data)
    assert ran.document["backups"] == []
    assert len(list((tmp_path / "data.kseg-backup").iterdir())) == 1


def test_a_copy_is_changed_instead(kseg: Kseg, data: Path, tmp_path: Path) -> None:
    ran = kseg("reindex", "-o", tmp_path / "copy", data / "a-0")
    assert ran.code == 0
    assert files(data / "a-0") == [f"{0:020d}.log"]
    assert files(tmp_path / "copy" / "a-0") == ALL
    assert str(tmp_path / "copy") in ran.text
    assert [entry.path.name for entry in list_data_directory(tmp_path / "copy").partitions] == [
        "a-0"
    ]


def test_partitions_and_kinds_can_be_chosen(kseg: Kseg, data: Path) -> None:
    assert kseg("reindex", "--apply", "--topic", "b", "--only", "timeindex", data).code == 0
    assert files(data / "a-0") == [f"{0:020d}.log"]
    assert files(data / "b-1") == [f"{0:020d}.log", f"{0:020d}.timeindex"]


def test_settings_count_and_every_byte_if_asked_for(kseg: Kseg, data: Path) -> None:
    kseg("reindex", "--apply", data)
    interval = ("--config", "index.interval.bytes=7000")
    assert kseg("reindex", *interval, data / "a-0").code == 0
    exact = kseg("reindex", "--exact", *interval, data / "a-0")
    assert exact.code == 1
    assert INDEX in exact.text
    assert kseg("reindex", "--config", "no.such=1", data).code == 2


def test_a_damaged_log_is_told_and_left_alone(kseg: Kseg, data: Path) -> None:
    log = data / "a-0" / f"{0:020d}.log"
    right = log.read_bytes()
    log.write_bytes(right[:100] + b"!" + right[101:])
    for words in ((), ("--apply",)):
        ran = kseg("reindex", *words, data)
        assert ran.code == 1
        assert f"left alone: {log} @ 0: the batch does not match its checksum" in ran.err
    assert files(data / "a-0") == [log.name]
    assert files(data / "b-1") == ALL
    (finding,) = kseg("reindex", "--json", data).document["findings"]
    assert finding.startswith(str(log))


def test_a_directory_that_somebody_holds_is_refused(
    kseg: Kseg, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: object) -> None:
        raise lock.LogLockedError("process 7 holds it", path=str(path))

    monkeypatch.setattr(lock, "acquire", refuse)
    ran = kseg("reindex", "--apply", data)
    assert (ran.code, ran.text) == (3, "")
    assert "process 7 holds it" in ran.err
    assert kseg("reindex", data).code == 1


def test_options_that_contradict_each_other_are_refused(kseg: Kseg, data: Path) -> None:
    assert kseg("reindex", "--apply", "-o", "x", data).code == 2
    assert kseg("reindex", "--no-backup", "--backup-dir", "x", data).code == 2
    assert kseg("reindex", "--only", "log", data).code == 2


def test_a_file_is_no_directory(kseg: Kseg, data: Path) -> None:
    ran = kseg("reindex", data / "a-0" / f"{0:020d}.log")
    assert ran.code == 3
    assert "needs a directory" in ran.err
