"""New objects: whole or absent, whatever fails; memory; names that others take meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import kseg
from kseg.errors import LimitExceededError
from kseg.stores import path as object_path
from kseg.stores import store as stores
from kseg.stores.path import RemotePath, whole_object
from kseg.stores.store import Store, StoredObject, Upload
from tests.builders import batch, record, write_segment

URL = "memory://new-objects/dir/out.bin"
PART = 100


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """fsspec's store in memory, and parts of few bytes."""
    import fsspec

    monkeypatch.setattr(object_path, "PART_BYTES", PART)
    system = fsspec.filesystem("memory")
    yield system
    if system.exists("/new-objects"):
        system.rm("/new-objects", recursive=True)


def names(system: Any) -> list[str]:
    return [name.removeprefix("/new-objects/") for name in system.find("/new-objects")]


def write(
    *pieces: bytes, new: bool = True, then: Callable[[], object] = lambda: None
) -> RemotePath:
    path = RemotePath(URL)
    with whole_object(path, new=new) as sink:
        for piece in pieces:
            sink.write(piece)
        then()
    return path


class StopError(BaseException):
    """Ends a program, as Ctrl-C does."""


def stop() -> None:
    raise StopError


@pytest.mark.parametrize("sizes", [(), (0,), (1,), (99, 1), (100,), (101,), (350, 5), (1,) * 230])
def test_an_object_is_what_was_written(memory: Any, sizes: tuple[int, ...]) -> None:
    pieces = [bytes([n % 251]) * size for n, size in enumerate(sizes)]
    path = write(*pieces)
    assert memory.cat_file("/new-objects/dir/out.bin") == b"".join(pieces)
    assert names(memory) == ["dir/out.bin"]
    assert path.size_elsewhere() == sum(sizes)


@pytest.mark.parametrize("size", [50, 250])
def test_an_error_leaves_nothing_and_what_was_there(memory: Any, size: int) -> None:
    for before in (None, b"before"):
        if before is not None:
            write(before)
        with pytest.raises(StopError):
            write(bytes(size), new=False, then=stop)
        assert names(memory) == ([] if before is None else ["dir/out.bin"])
    assert memory.cat_file("/new-objects/dir/out.bin") == b"before"


@pytest.mark.parametrize("size", [50, 250])
def test_an_object_that_another_program_made_meanwhile_stays(memory: Any, size: int) -> None:

    def theirs() -> None:
        memory.pipe_file("/new-objects/dir/out.bin", b"theirs")

    with pytest.raises(FileExistsError, match="it appeared meanwhile, by another"):
        write(bytes(size), then=theirs)
    assert names(memory) == ["dir/out.bin"]
    assert memory.cat_file("/new-objects/dir/out.bin") == b"theirs"
    write(bytes(size), new=False)
    assert memory.cat_file("/new-objects/dir/out.bin") == bytes(size)


def test_no_object_has_more_parts_than_stores_take(
    memory: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(object_path, "_PARTS_MAX", 3)
    write(bytes(3 * PART))
    with pytest.raises(LimitExceededError, match=r"out\.bin: more than 3 parts"):
        write(bytes(3 * PART), b"x", new=False)
    assert len(memory.cat_file("/new-objects/dir/out.bin")) == 3 * PART
    assert names(memory) == ["dir/out.bin"]


class Failing:
    """A library whose calls fail one after the other: the first that is made is call 1."""

    errors: tuple[type[Exception], ...] = (RuntimeError,)

    def __init__(self, fails_at: int, *, also_abort: bool) -> None:
        self.fails_at, self.also_abort = fails_at, also_abort
        self.calls: list[str] = []
        self.objects: dict[str, bytes] = {}
        self.parts: list[bytes] = []

    def _call(self, name: str) -> None:
        self.calls.append(name)
        if len(self.calls) == self.fails_at or (name == "abort" and self.also_abort):
            raise RuntimeError(f"{name} - Server returned status code: 500 secret")

    def head(self, key: str) -> StoredObject:
        self._call("head")
        if key not in self.objects:
            raise RuntimeError("status code: 404")
        return StoredObject(key, len(self.objects[key]), None, -1)

    def put(self, key: str, data: bytearray, *, new: bool) -> None:
        self._call("put")
        self.objects[key] = bytes(data)

    def upload(self, key: str) -> Upload:
        def complete() -> None:
            self._call("complete")
            self.objects[key] = b"".join(self.parts)
            self.parts.clear()

        def abort() -> None:
            self._call("abort")
            self.parts.clear()

        return Upload(lambda part: (self._call("part"), self.parts.append(bytes(part))),
                      complete, abort)  # fmt: skip


@pytest.mark.parametrize("also_abort", [False, True])
@pytest.mark.parametrize("size", [50, 250])
def test_a_request_that_fails_is_an_error_with_the_object_and_leaves_none(
    monkeypatch: pytest.MonkeyPatch, size: int, also_abort: bool
) -> None:
    monkeypatch.setattr(object_path, "PART_BYTES", PART)
    for fails_at in range(1, 9):
        backend = Failing(fails_at, also_abort=also_abort)
        monkeypatch.setattr(stores, "_open_store", lambda _root, one=backend: Store("s3://b", one))
        path = RemotePath("s3://b/dir/out")
        try:
            with whole_object(path, new=True) as sink:
                sink.write(bytes(size))
        except OSError as error:
            assert error.filename == "s3://b/dir/out"  # noqa: PT017
            assert "the store failed (500)" in str(error)  # noqa: PT017
            assert "secret" not in str(error)  # noqa: PT017
            assert backend.objects == {}
            assert backend.parts == [] or also_abort
        else:
            assert fails_at > len(backend.calls)
            assert backend.objects == {"dir/out": bytes(size)}
            break
    else:
        raise AssertionError("every request failed")
    assert fails_at == (2 if size < PART else 6)  # three parts, a look, the end


# ---- exports -------------------------------------------------------------------------------------


@pytest.fixture
def log(tmp_path: Any) -> Any:
    values = [record(b"value %d" % n, key=b"k", timestamp=86_400_000 * n) for n in range(5)]
    write_segment(tmp_path / "data" / "t-0", 0, batch(values))
    write_segment(tmp_path / "data" / "t-1", 0, batch(values[:2]))
    return tmp_path / "data"


def test_files_in_a_store_are_those_of_a_disk(memory: Any, log: Any, tmp_path: Any) -> None:
    for layout in ({}, {"per": "topic"}, {"partition_by": ("topic", "day")}):
        out = tmp_path / f"out-{len(layout) and next(iter(layout))}"
        here = kseg.scan(log).to_parquet(out, **layout)
        there = kseg.scan(log).to_parquet("memory://new-objects/out", **layout)
        found = {name.removeprefix("out/"): memory.cat_file(f"/new-objects/{name}")
                 for name in names(memory)}  # fmt: skip
        assert found == {str(path.relative_to(out)): path.read_bytes()
                         for path in out.rglob("*.parquet")}  # fmt: skip
        assert [row[1:] for row in there.rows] == [row[1:] for row in here.rows]
        assert {row[0] for row in there.rows} == {
            row[0].replace(str(out), "memory://new-objects/out") for row in here.rows
        }
        memory.rm("/new-objects", recursive=True)


def test_a_file_that_has_more_is_not_replaced(memory: Any, log: Any) -> None:
    out, scan = "memory://new-objects/o.parquet", kseg.scan(log / "t-0")
    scan.to_parquet(out)
    scan.to_parquet(out)
    before = memory.cat_file("/new-objects/o.parquet")
    for few in (kseg.scan(log / "t-0", offset=(2, None)), scan.head(2)):
        with pytest.raises(FileExistsError, match=r"not replaced: the file has .*o\.parquet"):
            few.to_parquet(out)
        assert memory.cat_file("/new-objects/o.parquet") == before
    assert sum(row[1] for row in scan.head(2).to_parquet(out, replace=True).rows) == 2


@pytest.mark.parametrize(
    "end", [b"", b"PAR1", b"\xff\xff\xff\x7fPAR1", b"\x05\0\0\0PAR1", b"x" * 99]
)
def test_an_object_that_is_no_parquet_file_may_have_anything(
    memory: Any, log: Any, end: bytes
) -> None:
    memory.pipe_file("/new-objects/o.parquet", end)
    with pytest.raises(FileExistsError, match="the file may have more"):
        kseg.scan(log / "t-0", offset=(2, None)).to_parquet("memory://new-objects/o.parquet")
    assert memory.cat_file("/new-objects/o.parquet") == end


def test_a_log_that_is_damaged_leaves_no_object(memory: Any, log: Any) -> None:
    path = log / "t-0" / f"{0:020d}.log"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    for scan in (kseg.scan(log / "t-0"), kseg.scan(log)):
        with pytest.raises(kseg.CorruptRecordError):
            scan.to_parquet("memory://new-objects/o")
        assert "o/t-0.parquet" not in names(memory)


def test_a_store_is_read_and_written_in_one_run(memory: Any, log: Any) -> None:
    memory.put(str(log), "/new-objects/data", recursive=True)
    url = "memory://new-objects/data"
    written = kseg.scan(url).to_parquet("memory://new-objects/out")
    assert [row[1] for row in written.rows] == [5, 2]
    wanted: Callable[[Any], Any] = lambda path: kseg.scan(path).to_arrow()  # noqa: E731
    assert wanted(url).equals(wanted(log))
