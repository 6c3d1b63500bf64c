from __future__ import annotations

import os
import pickle
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kseg.errors import NotALogError
from kseg.files import names
from kseg.files.names import FileKind, PartitionName

S = "00000000000000000042"


def touch(directory: Path, *file_names: str) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    for name in file_names:
        (directory / name).touch()
    return directory


@pytest.mark.parametrize(
    "name",
    ["", ".", "..", "x", f"{S}", f"{S}.txt", f"{S}.log.gz", f"{S}-7.checkpoint", "x.checkpoint",
     f"{S}.checkpoint", "99999999999999999999-0000000000.checkpoint",
     f"{S}-9999999999.checkpoint", "deleted", ".deleted", "lost+found", "README.md"],
)  # fmt: skip
def test_other_names_are_foreign(name: str) -> None:
    assert names.parse_name(name) is None
    with pytest.raises(NotALogError):
        names.file_name(name)


@pytest.mark.parametrize("name", ["abc.log", ".log", "1_0.log", "٣.log", "1 .index", "0x1.log"])
def test_an_extension_without_an_offset_is_refused_but_can_be_looked_into(name: str) -> None:
    with pytest.raises(NotALogError) as caught:
        names.parse_name(name)
    assert caught.value.path == name
    assert names.file_name(name).base_offset is None


@pytest.mark.parametrize(
    ("stem", "fits"),
    [
        ("09223372036854775807", True),
        ("09223372036854775808", False),
        ("99999999999999999999", False),
        ("-9223372036854775808", True),
        ("-9223372036854775809", False),
        ("9" * 64, False),
        ("9" * 5000, False),
    ],
)
def test_an_offset_fits_in_64_bits(stem: str, fits: bool) -> None:
    if fits:
        assert names.offset_from_file_name(f"{stem}.log") == int(stem)
    else:
        with pytest.raises(NotALogError):
            names.offset_from_file_name(f"{stem}.log")


UUID = "3f2504e04f8911d39a0c0305e82c3301"


@given(st.text(max_size=40))
@example("t-2147483648")
def test_any_name_is_parsed_foreign_or_refused(name: str) -> None:
    for parse in (names.parse_name, names.parse_partition_dir, names.file_name):
        try:
            parse(name)
        except NotALogError as error:
            assert "\n" not in str(error) or "\n" in name  # noqa: PT017


def test_one_listing_sorts_a_partition_out(tmp_path: Path) -> None:
    directory = touch(
        tmp_path / "orders-3",
        "00000000000000000100.log",
        "00000000000000000100.index",
        "00000000000000000100.timeindex",
        "00000000000000000100.txnindex",
        "00000000000000000009.log",
        "00000000000000000200.index",
        "00000000000000000100.snapshot",
        "00000000000000000009.snapshot",
        "00000000000000000100.log.deleted",
        "leader-epoch-checkpoint",
        "leader-epoch-checkpoint.tmp",
        "partition.metadata",
        "notes.txt",
        "abc.log",
    )
    (directory / "00000000000000000300.log").mkdir()
    listed = names.list_partition(directory)
    assert listed.name == PartitionName("orders", 3)
    assert [s.base_offset for s in listed.segments] == [9, 100]
    assert listed.segments[0].index is None
    assert listed.segments[1] == names.SegmentFiles(
        base_offset=100,
        log=directory / "00000000000000000100.log",
        index=directory / "00000000000000000100.index",
        time_index=directory / "00000000000000000100.timeindex",
        txn_index=directory / "00000000000000000100.txnindex",
    )
    assert [s.name.base_offset for s in listed.snapshots] == [9, 100]
    assert [o.path.name for o in listed.orphans] == ["00000000000000000200.index"]
    assert [o.name.suffix for o in listed.temporary_files] == ["deleted", "tmp"]
    assert listed.leader_epochs == directory / "leader-epoch-checkpoint"
    assert listed.metadata == directory / "partition.metadata"
    assert [p.name for p in listed.foreign] == ["00000000000000000300.log", "abc.log", "notes.txt"]


def test_segments_of_kafka_07_are_segments(tmp_path: Path) -> None:
    directory = touch(tmp_path / "t-0", f"{S}.kafka", "00000000000000000000.kafka", f"{S}.log")
    listed = names.list_partition(directory)
    assert [(s.base_offset, s.kafka07) for s in listed.segments] == [(0, True), (42, False)]
    assert [p.name for p in listed.foreign] == [f"{S}.kafka"]


def test_a_data_directory_lists_partitions_files_and_strangers(tmp_path: Path) -> None:
    touch(tmp_path / "orders-0", f"{S}.log")
    touch(tmp_path / "orders-1")  # made by a broker that died at once
    touch(tmp_path / f"old-0.{UUID}-delete", f"{S}.log.deleted")
    touch(tmp_path / "python-3", "setup.py")
    touch(tmp_path / "lost+found")
    touch(tmp_path, "meta.properties", ".lock", "notes.txt")
    listed = names.list_data_directory(tmp_path)
    assert [(p.path.name, p.name and p.name.suffix) for p in listed.partitions] == [
        (f"old-0.{UUID}-delete", "delete"),
        ("orders-0", None),
        ("orders-1", None),
    ]
    assert [f.name.kind for f in listed.files] == [FileKind.LOCK, FileKind.META_PROPERTIES]
    assert [p.name for p in listed.foreign] == ["lost+found", "notes.txt", "python-3"]


def test_a_directory_without_kafka_files_says_what_is_there(tmp_path: Path) -> None:
    touch(tmp_path, "a.txt", "b.txt", "c.txt", "d.txt")
    with pytest.raises(NotALogError, match=r"only a\.txt, b\.txt, c\.txt and 1 more$"):
        names.classify_path(tmp_path)


def test_dangling_links_are_foreign_and_good_ones_followed(tmp_path: Path) -> None:
    directory = touch(tmp_path / "t-0", f"{S}.log")
    (directory / "00000000000000000050.log").symlink_to(directory / f"{S}.log")
    (directory / "00000000000000000060.log").symlink_to(directory / "absent")
    listed = names.list_partition(directory)
    assert [s.base_offset for s in listed.segments] == [42, 50]
    assert [p.name for p in listed.foreign] == ["00000000000000000060.log"]


def test_a_sub_directory_that_may_not_be_listed_goes_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    touch(tmp_path / "lost+found", f"{S}.log")
    touch(tmp_path / "orders-0", f"{S}.log")
    scandir = os.scandir

    def guarded(path: Path) -> Iterator[os.DirEntry[str]]:
        if path != tmp_path:
            raise PermissionError(path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", guarded)
    listed = names.list_data_directory(tmp_path)
    assert [p.path.name for p in listed.partitions] == ["orders-0"]
    assert [p.name for p in listed.foreign] == ["lost+found"]


def test_files_of_a_listing_are_values(tmp_path: Path) -> None:
    (tmp_path / f"{7:020d}.log").touch()
    (listed,) = names.list_partition(tmp_path).segments
    same = names.SegmentFiles(7, tmp_path / f"{7:020d}.log")
    assert (listed, hash(listed), repr(listed)) == (same, hash(same), repr(same))
    assert pickle.loads(pickle.dumps(listed)) == same
    assert listed != names.SegmentFiles(7, "other.log")
    with pytest.raises(AttributeError):
        listed.log = tmp_path  # type: ignore[misc]
    file = names.NamedFile(names.FileName(names.FileKind.LOG, 7), tmp_path)
    assert pickle.loads(pickle.dumps(file)) == file
    assert file != names.NamedFile(file.name, "other.log")
