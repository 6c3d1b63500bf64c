"""Tiers: how few requests they take, what is wrong with them, what their metadata says."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

import kseg
from kseg.analysis.info import describe
from kseg.analysis.verify import examine_tier
from kseg.errors import NotALogError
from kseg.log.tier.tier import Tier
from kseg.stores import store as stores
from kseg.stores.store import Store, StoredObject
from tests import tiers


class Served:
    """A library that serves a directory."""

    errors: tuple[type[Exception], ...] = (OSError,)

    def __init__(self, top: Path) -> None:
        self.files = {
            str(path.relative_to(top)): path for path in sorted(top.rglob("*")) if path.is_file()
        }

    def head(self, key: str) -> StoredObject:
        return StoredObject(key, self.files[key].stat().st_size, "e", 1)

    def read(self, key: str, start: int, end: int, stored: StoredObject) -> memoryview:
        return memoryview(self.files[key].read_bytes()[start:end])

    def pages(self, key: str, after: str | None) -> Iterator[Sequence[StoredObject]]:
        yield [StoredObject(name, path.stat().st_size, "e", 1) for name, path in self.files.items()]


def opened(monkeypatch: pytest.MonkeyPatch, case: Path) -> tuple[Served, Store]:
    backend = Served(case / "remote")
    store = Store("s3://fake", backend)
    monkeypatch.setattr(stores, "_open_store", lambda _root: store)
    return backend, store


def test_a_tier_is_described_with_few_requests(
    monkeypatch: pytest.MonkeyPatch, fixtures_dir: Path, tmp_path: Path
) -> None:
    _backend, store = opened(monkeypatch, fixtures_dir / "tiered" / "4.2.0-aiven-zstd")
    tier = Tier.of("s3://fake")
    found = describe(tier, tier.log(tmp_path / "txn-0"))
    assert (found["layout"], found["source"]) == ("aiven", "manifests")
    assert found["remote"]["segments"] == found["remote"]["read_segments"] > 3
    assert store.requests <= 2 * found["remote"]["segments"] + 4
    assert found["local"] == {"segments": 0, "bytes": 0}


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("4.2.0-local", "metadata"),
        ("4.2.0-aiven-zstd", "metadata"),
        ("4.2.0-aiven-zstd", "manifests"),
    ],
)
def test_a_read_of_the_last_hour_asks_for_no_other_segment(
    monkeypatch: pytest.MonkeyPatch, fixtures_dir: Path, tmp_path: Path, name: str, source: str
) -> None:
    case = fixtures_dir / "tiered" / name
    backend, store = opened(monkeypatch, case)
    timed = Tier.of(case / "remote").log(case / "local" / "plain-0")
    segments = sorted(
        (one.segment for one in timed.copies.values()), key=lambda one: one.end_offset
    )
    since = segments[-2].max_timestamp + 1
    if source == "metadata":
        for directory in (case / "local").glob("__remote_log_metadata-*"):
            shutil.copytree(directory, tmp_path / directory.name)
    asked, read = list[str](), backend.read

    def noting(key: str, start: int, end: int, etag: str | None) -> memoryview:
        asked.append(key)
        return read(key, start, end, etag)

    monkeypatch.setattr(backend, "read", noting)
    tier = Tier.of("s3://fake")
    log = tier.log(tmp_path / "plain-0")
    assert (log.local, log.source) == (None, source)
    asked.clear()
    before = store.requests
    scan = kseg.scan(log.view.path, tier=tier, time=(since, None), columns=("offset",))
    offsets = [offset for piece in scan for offset in piece["offset"].tolist()]
    assert offsets
    assert segments[-1].start_offset <= offsets[0] <= offsets[-1] == segments[-1].end_offset
    assert [key for key in asked if segments[-1].id not in key] == []
    assert store.requests - before <= 4


def test_verify_finds_what_is_wrong_with_a_tier(fixtures_dir: Path, tmp_path: Path) -> None:
    case = tmp_path / "case"
    shutil.copytree(fixtures_dir / "tiered" / "4.2.0-local", case)
    local = case / "local" / "plain-0"
    clean = examine_tier(Tier.of(case / "remote").log(local), deep=True, now_ms=1 << 60)
    assert not clean.findings
    assert clean.records > 100
    (directory,) = (case / "remote").glob("*/plain-0-*")
    first, second, third = sorted(directory.glob("*.log"))[:3]
    first.unlink()
    data = bytearray(second.read_bytes())
    data[200] ^= 1
    second.write_bytes(data)
    third.write_bytes(third.read_bytes()[:-10])
    stray = directory / f"{first.name[:21]}{'A' * 22}.log"
    stray.write_bytes(b"")
    found = examine_tier(Tier.of(case / "remote").log(local), deep=False, now_ms=1 << 60)
    by_code = {finding.code: finding.path for finding in found.findings}
    assert by_code["tier-object"] == str(first)
    assert by_code["batch-crc"] == str(second)
    assert by_code["tier-size"] == str(third)
    assert by_code["tier-orphan"] == str(stray)


# ---- tiers of a log made for a test --------------------------------------------------------------


_BEGUN = (tiers.STARTED, tiers.FINISHED)


def made(path: Path, seed: int = 1) -> list[tiers.Made]:
    """The copies of a new log."""
    rng = random.Random(seed)
    tiers.random_log(path, rng)
    return tiers.copies_of(path, tiers.id_text(rng), rng)


def test_the_highest_copied_offset_stays_when_all_copies_are_removed(tmp_path: Path) -> None:
    """The tier has no object then, so only the metadata topic knows."""
    path = tmp_path / "orders-0"
    copies = made(path)
    states = tiers.STARTED, tiers.FINISHED, tiers.DELETING, tiers.DELETED
    tiers.write_metadata(tmp_path, [(copy, state) for state in states for copy in copies])
    (tmp_path / "tier").mkdir()
    log = Tier.of(tmp_path / "tier").log(path)
    assert (log.layout, log.spans) == ("none", ())
    assert log.highest_remote == copies[-1].end


def test_a_removal_that_is_repeated_is_no_fault(tmp_path: Path) -> None:
    """As by brokers that retry, or take over; other faults are those of their partition."""
    path, other = tmp_path / "orders-0", tmp_path / "orders-1"
    one, two = made(path)[0], made(other)[0]
    ended = [tiers.DELETED, tiers.DELETING, tiers.DELETED]
    events = [(one, state) for state in (*_BEGUN, tiers.DELETING, *ended)]
    tiers.write_metadata(tmp_path, [*events, *((two, state) for state in (*_BEGUN, tiers.STARTED))])
    tiers.put(tiers.LocalTier(tmp_path / "tier"), [two])
    tier = Tier.of(tmp_path / "tier")
    assert tier.log(path).faults == ()
    (fault,) = tier.log(other).faults
    assert "does not begin with COPY_SEGMENT_STARTED" in str(fault)


def test_a_topic_whose_name_ends_like_another_is_not_mistaken_for_it(tmp_path: Path) -> None:
    """Aiven's keys may have a prefix in front of the topic, so that manifests decide."""
    rng = random.Random(2)
    for name in ("orders-0", "my-orders-0"):
        copies = made(tmp_path / "whole" / name, rng.randrange(99))
        tiers.put(tiers.AivenTier(tmp_path / "tier", rng), copies)
        last = copies[-1].end
        found = list(kseg.scan(tmp_path / name, tier=tmp_path / "tier", columns=("offset",)))
        assert int(found[-1]["offset"][-1]) == last
    tier = Tier.of(tmp_path / "tier")
    for name, topic in (("orders-0", "orders"), ("my-orders-0", "my-orders")):
        log = tier.log(tmp_path / name)
        assert {copy.objects.manifest.topic for copy in log.copies.values()} == {topic}
    with pytest.raises(NotALogError):
        tier.log(tmp_path / "ders-0")


def test_the_epochs_of_a_copy_may_begin_behind_its_first_offset(tmp_path: Path) -> None:
    """The log's start had moved into the segment before the broker copied it."""
    path = tmp_path / "whole" / "orders-0"
    made(path)
    rng = random.Random(3)
    second = tiers.copies_of(path, tiers.id_text(rng), rng)[1]
    start = second.start + 1
    copies = tiers.copies_of(path, tiers.id_text(rng), rng, log_start=start)
    assert copies[0].start < copies[0].epochs[0][1] == start
    for layout in (tiers.LocalTier(tmp_path / "a"), tiers.AivenTier(tmp_path / "b", rng)):
        tiers.put(layout, copies)
        log = Tier.of(layout.root).log(tmp_path / "orders-0")
        assert (log.spans[0].start, log.faults) == (start, ())


def test_an_unfinished_upload_does_not_say_where_the_segment_before_it_ends(tmp_path: Path) -> None:
    copies = made(tmp_path / "whole" / "orders-0")
    layout = tiers.PinterestTier(tmp_path / "tier", bits=3)
    tiers.put(layout, copies)
    dangling = tmp_path / "tier" / layout.directory(copies[0]) / f"{copies[-1].end + 500:020d}.log"
    dangling.write_bytes(b"")
    log = Tier.of(tmp_path / "tier").log(tmp_path / "orders-0")
    assert log.view.log_end_offset == copies[-1].end + 1
    assert log.strays == (str(dangling),)


def test_deleted_records_stay_deleted_where_the_checkpoint_of_starts_is_older(
    tmp_path: Path,
) -> None:
    """A broker was killed behind DeleteRecords: its epochs begin at the new start already."""
    path = tmp_path / "orders-0"
    copies = made(path)
    tiers.put(tiers.LocalTier(tmp_path / "tier"), copies)
    start = copies[1].start + 1
    text = (path / "leader-epoch-checkpoint").read_text().split("\n", 2)[2]
    entries = [tuple(map(int, line.split())) for line in text.splitlines()]
    kept = tiers.within(entries, start, 2**62)
    lines = [f"{epoch} {first}" for epoch, first in kept]
    (path / "leader-epoch-checkpoint").write_text("\n".join(["0", str(len(kept)), *lines, ""]))
    (tmp_path / "log-start-offset-checkpoint").write_text("0\n1\norders 0 0\n")
    for log in path.glob("*.log"):
        if int(log.stem) <= copies[-1].start:
            log.unlink()
    with pytest.warns(UserWarning, match=f"offsets 0 to {start - 1} are neither"):
        piece = next(iter(kseg.scan(path, tier=tmp_path / "tier", columns=("offset",))))
    assert int(piece["offset"][0]) == start


def test_a_data_directory_is_not_its_own_tier(tmp_path: Path) -> None:
    made(tmp_path / "orders-0")
    with pytest.raises(NotALogError, match="it has the local segments"):
        Tier.of(tmp_path).log(tmp_path / "orders-0")
