"""A catalog names each partition once, says what it leaves out, and is the same at every door."""

from __future__ import annotations

import os
import time
from pathlib import Path
from random import Random

import pytest

import kseg
from kseg.analysis.units import UnitKind, plan
from kseg.catalog import Catalog, ReplicasError
from kseg.commands import note
from kseg.errors import NotALogError
from kseg.files.selection import Selection
from kseg.spark.options import source_options
from kseg.spark.plan import list_logs

UUID = "0" * 32


def segment(directory: Path, base_offset: int = 0) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{base_offset:020d}.log"
    path.write_bytes(b"x" * 61)
    return path


def partition(random: Random, home: Path) -> None:
    """Make a partition, which may be set aside, empty, a link, or a link to nothing."""
    suffix = random.choice(["", "", "", f".{UUID}-delete", f".{UUID}-future", f".{UUID}-stray"])
    name = f"{random.choice(['orders', 'pay-ments'])}-{random.choice([0, 2, 10])}{suffix}"
    path = home / name
    if os.path.lexists(path):
        return
    match random.randrange(8):
        case 0:
            path.symlink_to("gone")
        case 1:
            path.symlink_to(segment(home.parent / "elsewhere" / path.name).parent)
        case 2:
            path.mkdir()
        case _:
            for base_offset in random.sample([0, 50, 200], random.randint(1, 3)):
                segment(path, base_offset)


def layout(random: Random, root: Path) -> list[Path]:
    """Data directories, and paths in them in any order: partitions, files, globs."""
    homes = [root / name for name in "ab"[: random.randint(1, 2)]]
    for home in homes:
        segment(home / "copy")
        for _ in range(random.randint(0, 4)):
            partition(random, home)
    inside = [path for home in homes for path in sorted(home.iterdir())]
    files = [log for path in inside for log in sorted(path.glob("*.log"))]
    patterns = [homes[0] / "*", homes[0] / "*" / "*.log"]
    choices = [*homes, *inside, *files, *patterns]
    return random.sample(choices, random.randint(1, min(4, len(choices))))


@pytest.mark.parametrize("seed", range(60))
def test_every_door_has_the_same_partitions_and_segments(tmp_path: Path, seed: int) -> None:
    paths = layout(Random(seed), tmp_path)
    catalog = Catalog.of(paths, replicas="all", on_error="skip")
    places = [os.path.realpath(entry.path) for entry in catalog]
    assert len(set(places)) == len(places)
    parts = [Catalog.of(path, replicas="all", on_error="skip") for path in paths]
    assert {os.path.realpath(entry.path) for part in parts for entry in part} - {*places} <= {
        os.path.realpath(file) for entry in catalog for file in entry.path.glob("*.log")
    }
    logs = {
        os.path.realpath(log)
        for entry in catalog
        for log in ([entry.path] if entry.is_file else map(lambda s: s.log, entry.files.segments))
    }
    if logs and not any(entry.path in catalog.named for entry in catalog.skipped):
        given = {"onCorrupt": "permissive", "replicas": "all"}
        listed = list_logs(source_options(list(map(str, paths)), given))
        assert {str(info.path) for log in listed for info in log.view.segments} == logs
    every = Catalog.of(paths, replicas="all", on_error="skip", files="all")
    units = [unit for unit in plan(every) if unit.kind is UnitKind.SEGMENT]
    assert sorted(os.path.realpath(unit.path) for unit in units) == sorted(logs)


def test_a_partition_that_is_named_by_a_link_a_url_and_a_path_counts_once(tmp_path: Path) -> None:
    log = segment(tmp_path / "data" / "orders-0")
    (tmp_path / "link").symlink_to(log.parent)
    paths = [tmp_path / "link", f"file://{log.parent}", log.parent, log, log.parent.parent / "*"]
    (entry,) = Catalog.of(paths)
    assert (entry.path, entry.topic, entry.partition) == (tmp_path / "link", "orders", 0)


def test_what_is_left_out_has_a_path_and_a_reason(tmp_path: Path) -> None:
    told = list[str]()
    segment(tmp_path / "a" / "orders-0")
    segment(tmp_path / "b" / "orders-0")
    aside = segment(tmp_path / "a" / f"orders-1.{UUID}-future").parent
    (tmp_path / "a" / "orders-2").symlink_to("gone")
    before = note.set(told.append)
    try:
        catalog = Catalog.of([tmp_path / "a", tmp_path / "b"], replicas="first", on_error="skip")
        scan = kseg.scan([tmp_path / "a", tmp_path / "b"], replicas="first", on_error="skip")
    finally:
        note.reset(before)
    reasons = {entry.path.name: entry.reason for entry in catalog.left_out}
    assert "a broker was copying the log to here" in reasons[aside.name]
    assert reasons["orders-2"] == "No such file or directory"
    assert reasons["orders-0"] == f"left out: a replica of {tmp_path / 'a' / 'orders-0'}"
    assert [line.partition(": left out")[0][6:] for line in told[:2]] == [
        str(aside),
        str(tmp_path / "b" / "orders-0"),
    ]
    assert list(map(str, scan.left_out)) == list(map(str, catalog.left_out))
    assert [entry.path.name for entry in scan.skipped] == ["orders-2"]
    with pytest.raises(ValueError, match="replicas is refuse or first or all, not 'newest'"):
        Catalog.of(tmp_path / "a", replicas="newest")
    with pytest.raises(ReplicasError, match="kseg merge"):
        Catalog.of([tmp_path / "a", tmp_path / "b"], on_error="skip")


def test_a_glob_passes_over_what_is_not_kafkas_and_a_path_does_not(tmp_path: Path) -> None:
    segment(tmp_path / "orders-0")
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "notes.txt").write_text("hello")
    assert [entry.path.name for entry in Catalog.of(tmp_path / "*")] == ["orders-0"]
    for path in (tmp_path / "notes", tmp_path / "n*"):
        with pytest.raises(NotALogError, match=r"only notes\.txt"):
            Catalog.of(path)


def test_ten_thousand_partitions_cost_as_much_each_as_a_thousand(tmp_path: Path) -> None:
    def seconds(count: int) -> float:
        home = tmp_path / str(count)
        for number in range(count):
            segment(home / f"orders-{number}")
        paths = sorted(home.iterdir())
        start = time.process_time()
        assert len(Catalog.of([home, *paths], Selection(("orders",)), files="all")) == count
        return (time.process_time() - start) / count

    assert seconds(10_000) < 4 * seconds(1_000)


def test_a_listing_that_changes_meanwhile_is_the_one_of_the_moment(tmp_path: Path) -> None:
    log = segment(tmp_path / "orders-0")
    segment(tmp_path / "orders-0", 50)
    (entry,) = Catalog.of(tmp_path)
    log.unlink()
    assert [each.base_offset for each in entry.files.segments] == [0, 50]
    assert [each.base_offset for each in Catalog.of(tmp_path).partitions[0].files.segments] == [50]
