"""URLs as paths: what they list, what they are refused for."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import kseg
from kseg.catalog import Catalog, matches, paths_of
from kseg.errors import NotALogError
from kseg.files.names import PathKind, classify_path
from kseg.stores.path import RemotePath, place
from tests.builders import batch, record, write_segment


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Path]:
    """A data directory of two partitions, on the disk and at `memory://archive/data`."""
    import fsspec

    for name, base in (("orders-0", 0), ("orders-0", 2), ("orders-1", 0)):
        ones = [batch([record(b"%d" % base)], base_offset=base + at) for at in (0, 1)]
        write_segment(tmp_path / "data" / name, base, *ones)
    (tmp_path / "data" / "log-start-offset-checkpoint").write_text("0\n1\norders 0 1\n")
    system = fsspec.filesystem("memory")
    system.put(str(tmp_path / "data"), "/archive/data", recursive=True)
    yield tmp_path / "data"
    system.rm("/archive", recursive=True)


URL = "memory://archive/data"


def rows(path: object) -> list[tuple[object, ...]]:
    found = kseg.scan(path, columns=("topic", "partition", "offset", "value"))  # type: ignore[arg-type]
    return [
        (piece.topic, piece.partition, *row)
        for piece in found
        for row in zip(piece["offset"].tolist(), map(bytes, piece["value"]), strict=True)
    ]


@pytest.mark.parametrize(
    "name", ["", "/orders-0", "/orders-1", f"/orders-0/{2:020d}.log", "/ord*-1"]
)
def test_a_store_gives_the_records_of_the_disk(memory: Path, name: str) -> None:
    here = rows(f"{memory}{name}")
    assert here
    assert rows(URL + name) == here


def test_a_url_says_what_it_is(memory: Path) -> None:
    assert classify_path(RemotePath(URL)).kind is PathKind.DATA_DIRECTORY
    known = classify_path(RemotePath(f"{URL}/orders-0"))
    assert known.partition_files is not None
    assert [one.base_offset for one in known.partition_files.segments] == [0, 2]
    assert classify_path(RemotePath(f"{URL}/orders-0/{0:020d}.log")).kind is PathKind.FILE
    assert [len(partition.files.segments) for partition in Catalog.of(URL)] == [2, 1]
    with pytest.raises(FileNotFoundError, match="nowhere"):
        classify_path(RemotePath(f"{URL}/nowhere"))
    with pytest.raises(NotALogError):
        classify_path(RemotePath("memory://archive"))


def test_a_pattern_names_what_matches(memory: Path) -> None:
    assert list(map(str, matches(f"{URL}/ord*"))) == [f"{URL}/orders-0", f"{URL}/orders-1"]
    assert len(paths_of([f"{URL}/orders-?/*.log", str(memory)])) == 4
    with pytest.raises(FileNotFoundError, match="no path matches"):
        paths_of(f"{URL}/other*")


@pytest.mark.parametrize(
    "url", ["https://user:secret@host/x", "https://host/x.log?secret=1", "s3://secret@bucket/x"]
)
def test_a_url_with_credentials_is_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(ValueError, match="no user, password") as caught:
        paths_of(url)
    assert "secret" not in str(caught.value)


def test_a_log_in_a_store_is_read_and_not_changed(memory: Path) -> None:
    with kseg.Log.open(f"{URL}/orders-0") as log, kseg.Log.open(memory / "orders-0") as here:
        assert (log.mode, log.log_end_offset) == ("read", here.log_end_offset)
        offsets = [one["offset"].tolist() for one in log.read(columns=("offset",))]
        assert offsets == [one["offset"].tolist() for one in here.read(columns=("offset",))]
        with pytest.raises(ValueError, match="is in a store"):
            kseg.plan_retention(log, config=kseg.LogConfig(retention_bytes=1))


def test_a_file_url_is_a_path_of_this_machine(memory: Path) -> None:
    assert place(f"file://{memory}/a%20b") == f"{memory}/a b"
    assert rows(f"file://{memory}") == rows(memory)


def test_the_headers_of_a_segment_in_a_store_are_not_read_again_for_its_index(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Of large batches a log has few entries: how many it should have is counted."""
    import fsspec

    from kseg.log.recovery import index_check

    directory = tmp_path / "large-0"
    ones = [batch([record(bytes(20_000))], base_offset=at) for at in range(9)]
    write_segment(directory, 0, *ones)
    kseg.plan_reindex(directory).apply()
    index = directory / f"{0:020d}.index"
    index.write_bytes(index.read_bytes()[:8])  # one of eight
    system = fsspec.filesystem("memory")
    system.put(str(directory), "/archive/large-0", recursive=True)
    findings = kseg.verify(directory).findings
    assert "index-length" in {one.code for one in findings}

    def again(*_arguments: object) -> None:
        raise AssertionError("the headers are read again")

    monkeypatch.setattr(index_check, "due_entries", again)
    url = "memory://archive/large-0"
    assert [one.message for one in kseg.verify(url).findings] == [one.message for one in findings]
    with pytest.raises(AssertionError):
        kseg.verify(directory)
    system.rm("/archive", recursive=True)


def test_threads_have_blocks_on_their_way_ahead_of_all_of_them() -> None:
    import fsspec

    from kseg.stores.store import Store
    from tests.memory.served import Repeated

    log, system = Repeated(40 << 20), fsspec.filesystem("memory")
    system.pipe(f"/archive/large-0/{0:020d}.log", bytes(log.read(0, log.size)))
    url = "memory://archive/large-0"
    store = Store.of(url)
    before = store.requests, store.bytes
    assert sum(map(len, kseg.scan(url, columns=("offset",), threads=2))) == log.records
    assert store.requests - before[0] < 20
    assert store.bytes - before[1] < 1.5 * log.size
    system.rm("/archive", recursive=True)
