"""Tiers with spoilt objects, on the command line: what is said, and that the rest goes on.

Half of the ways to spoil one by default, all of them with KSEG_WHOLE=1.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

import kseg as library
from kseg.errors import CorruptRecordError, TierError
from kseg.log.tier.objects import open_object
from kseg.log.tier.tier import Tier
from tests import builders
from tests.shares import share
from tests.unit.cli.conftest import Kseg, kseg  # noqa: F401

CASE = "4.2.0-aiven-zstd-encrypted"


class Spoilt(NamedTuple):
    """A tier, and the middle one of its segments."""

    root: Path
    keys: dict[str, str]
    manifest: Path
    offsets: tuple[int, int]

    @property
    def words(self) -> list[str]:
        given = (f"--tier-key={id_}={file}" for id_, file in self.keys.items())
        return ["plain-0", f"--tier={self.root}", *given]

    def log(self) -> Path:
        return self.manifest.with_suffix(".log")


@pytest.fixture
def spoilt(fixtures_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Spoilt:
    """A copy of the case; the directory that tests are in has no partition."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    case = fixtures_dir / "tiered" / CASE
    shutil.copytree(case / "remote", tmp_path / "remote")
    keys = {one: str(case / "keys" / f"{one}.private.pem") for one in ("key1", "key2")}
    manifests = sorted((tmp_path / "remote").rglob("plain-*/0/*.rsm-manifest"))
    manifest = manifests[1]
    segment = json.loads(manifest.read_bytes())["remoteLogSegmentMetadata"]
    offsets = segment["startOffset"], segment["endOffset"]
    return Spoilt(tmp_path / "remote", keys, manifest, offsets)


def flipped(spoilt: Spoilt) -> None:
    data = bytearray(spoilt.log().read_bytes())
    data[len(data) // 2] ^= 4
    spoilt.log().write_bytes(data)


def cut(spoilt: Spoilt) -> None:
    spoilt.log().write_bytes(spoilt.log().read_bytes()[:-5])


def large(spoilt: Spoilt) -> None:
    """A manifest of a gigabyte, of which no disk has more than its first bytes."""
    os.truncate(spoilt.manifest, 1 << 30)


def deep(spoilt: Spoilt) -> None:
    spoilt.manifest.write_bytes(b"[" * 1_000_000 + b"]" * 1_000_000)


def elsewhere(spoilt: Spoilt) -> None:
    root = json.loads(spoilt.manifest.read_bytes())
    named = root["remoteLogSegmentMetadata"]["remoteLogSegmentId"]["topicIdPartition"]
    named["topicPartition"]["partition"] = 7
    spoilt.manifest.write_text(json.dumps(root))


def without_log(spoilt: Spoilt) -> None:
    spoilt.log().unlink()


#: What is done, and what is said; what a manifest may say is asked of `parse_manifest`.
SPOILS: dict[Callable[[Spoilt], None], str] = {
    flipped: "the bytes are not those that were encrypted",
    cut: r"the chunks have \d+ bytes",
    large: "expected are at most 16777216",
    deep: "nested too deeply",
    elsewhere: "another segment than its name says",
    without_log: "the tier lacks this object",
}


@pytest.mark.parametrize("spoil", share(SPOILS, 3, "spoils"), ids=lambda one: one.__name__)
def test_a_spoilt_segment_is_named_and_the_rest_goes_on(
    spoilt: Spoilt,
    kseg: Kseg,  # noqa: F811
    spoil: Callable[[Spoilt], None],
) -> None:
    first, last = spoilt.offsets
    right = kseg("read", *spoilt.words)
    assert right.code == 0
    lines = right.text.splitlines()
    spoil(spoilt)
    words, name = SPOILS[spoil], spoilt.manifest.stem
    read = kseg("read", *spoilt.words)
    assert read.code in (1, 3, 4)
    assert lines[: len(read.text.splitlines())] == read.text.splitlines()
    assert 0 < read.text.count("\n") < len(lines)
    for found in (read, kseg("verify", *spoilt.words)):
        assert re.search(f"{name}.*{words}", found.text + found.err), found
        assert "Traceback" not in found.err
        assert found.code in (1, 3, 4)
    behind = kseg("read", *spoilt.words, "--offset", f"{last + 1}..")
    assert behind.code == 0
    assert behind.text.splitlines() == [one for one in lines if offset_of(one) > last]
    scan = library.scan(
        "plain-0",
        tier=Tier.of(spoilt.root, keys=spoilt.keys),
        on_corrupt="skip",
        columns=("offset",),
    )
    got = [offset for piece in scan for offset in piece["offset"].tolist()]
    expected = [offset_of(one) for one in lines if not first <= offset_of(one) <= last]
    assert [one for one in got if not first <= one <= last] == expected
    assert len(scan.errors) == 1
    assert len(got) < len(lines)


def offset_of(line: str) -> int:
    return int(re.match(r"offset=(\d+) ", line)[1])  # type: ignore[index]


def test_without_a_lineage_nothing_is_read_and_all_is_verified(
    spoilt: Spoilt,
    kseg: Kseg,  # noqa: F811
) -> None:
    """The newest copy's checkpoint says which records count; no other copy can stand in."""
    from kseg.spark.options import parse_options
    from kseg.spark.plan import list_logs, make_plan
    from kseg.spark.reading import read_split

    indexes = sorted(spoilt.manifest.parent.glob("*.indexes"))[-1]
    indexes.write_bytes(bytes(indexes.stat().st_size))
    words = f"{indexes.name}: the leader_epoch_checkpoint: the bytes are not those"
    read = kseg("read", *spoilt.words)
    assert (read.code, read.text) == (1, "")
    assert words in read.err
    found = kseg("verify", *spoilt.words)
    assert found.code == 1
    assert words in found.text
    assert re.search(r", [1-9]\d* records: [1-9]", found.text)
    keys = ",".join(f"{id_}={file}" for id_, file in spoilt.keys.items())
    given = parse_options({"path": "plain-0", "tier": str(spoilt.root), "tierKeys": keys})
    splits = [split for task in make_plan(list_logs(given), given) for split in task]
    with pytest.raises(TierError, match="the leader_epoch_checkpoint"):
        [list(read_split(split, ("offset",), given)) for split in splits]


# ---- directories ---------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["fifo", "socket", "link", "directory", "linked directory"])
def test_what_is_no_file_is_not_opened(fixtures_dir: Path, tmp_path: Path, kind: str) -> None:
    """A fifo would keep a reader waiting, a link lead out of the tier."""
    root = tmp_path / "remote"
    shutil.copytree(fixtures_dir / "tiered" / "4.2.0-local" / "remote", root)
    (place,) = root.glob("*/plain-0-*")
    log = sorted(place.glob("*.log"))[1]
    outside = tmp_path / "outside"
    if kind == "linked directory":
        place.rename(outside)
        place.symlink_to(outside)
        with pytest.raises(library.NotALogError, match="nothing of it is in"):
            Tier.of(root).log(tmp_path / "plain-0")
        return
    log.rename(outside)
    if kind == "fifo":
        os.mkfifo(log)
    elif kind == "link":
        log.symlink_to(outside)
    elif kind == "socket":
        os.mknod(log, stat.S_IFSOCK | 0o600)
    else:
        log.mkdir()
    found = Tier.of(root).log(tmp_path / "plain-0")
    assert len(found.copies) == len(list(place.glob("*.index"))) - 1
    assert found.view.remote_warning is not None
    assert str(log) not in found.strays


def test_a_file_that_is_replaced_is_noticed(fixtures_dir: Path, tmp_path: Path) -> None:
    root = tmp_path / "remote"
    shutil.copytree(fixtures_dir / "tiered" / "4.2.0-local" / "remote", root)
    tier = Tier.of(root)
    scan = library.scan(tmp_path / "plain-0", tier=tier, columns=("offset",))
    log = tier.log(tmp_path / "plain-0")
    stored = next(iter(log.copies.values())).objects.places["log"]
    other = tmp_path / "other"
    other.write_bytes(Path(stored.url).read_bytes())
    os.replace(other, stored.url)
    with pytest.raises(CorruptRecordError, match="changed while it was read"):
        open_object(stored)
    with pytest.raises(CorruptRecordError, match="changed while it was read"):
        list(scan)


# ---- names in metadata ---------------------------------------------------------------------------


@pytest.mark.parametrize("with_metadata", [True, False])
def test_segments_under_an_older_key_prefix_are_found(
    fixtures_dir: Path, tmp_path: Path, with_metadata: bool
) -> None:
    """`key.prefix` was changed: the objects of some segments lie below the older one."""
    case = fixtures_dir / "tiered" / "4.2.0-aiven-zstd"
    ignored = shutil.ignore_patterns("" if with_metadata else "__remote_log_metadata-*")
    shutil.copytree(case / "local", tmp_path / "local", ignore=ignored)
    shutil.copytree(case / "remote", tmp_path / "remote")
    path = tmp_path / "local" / "plain-0"

    def offsets() -> list[int]:
        scan = library.scan(path, tier=tmp_path / "remote", columns=("offset",))
        return [offset for piece in scan for offset in piece["offset"].tolist()]

    wanted = offsets()
    (place,) = (tmp_path / "remote").rglob("plain-*/0")
    older = tmp_path / "remote" / "older" / "prefix" / place.parent.name / "0"
    older.mkdir(parents=True)
    for manifest in sorted(place.glob("*.rsm-manifest"))[::2]:
        for one in place.glob(f"{manifest.stem}.*"):
            one.rename(older / one.name)
    assert offsets() == wanted
    log = Tier.of(tmp_path / "remote").log(path)
    assert log.source == ("metadata" if with_metadata else "manifests")
    assert not log.faults


@pytest.mark.parametrize("name", ["../../outside", "/outside", "a//b", ".", "x" * 3_000])
def test_names_in_metadata_are_not_followed(fixtures_dir: Path, tmp_path: Path, name: str) -> None:
    """An `object_prefix` and `object_key` that lead elsewhere change nothing."""
    case = fixtures_dir / "tiered" / "4.2.0-aiven-zstd"
    shutil.copytree(case / "local", tmp_path / "local")
    path = tmp_path / "local" / "plain-0"
    text = name.encode()
    size = len(text) + 1
    compact = (bytes([size]) if size < 128 else bytes([size & 127 | 128, size >> 7])) + text
    custom = b"\x02" + b"".join(bytes([tag]) + varint(len(compact)) + compact for tag in (1, 2))
    before = Tier.of(case / "remote").log(path)
    for log in (tmp_path / "local").glob("__remote*/*.log"):
        values = [
            None if value is None else bytes(value)
            for piece in library.scan(log, columns=("value",))
            for value in piece["value"]
        ]
        updated = [with_custom(value, custom) for value in values if value is not None]
        if updated:
            log.write_bytes(builders.batch([builders.record(one) for one in updated]))
    after = Tier.of(case / "remote").log(path)
    assert after.source == "metadata"
    assert any(copy.segment.custom == custom for copy in after.copies.values())
    assert after.spans == tuple(
        span._replace(segment=after.copies[span.segment.id].segment) for span in before.spans
    )
    assert not after.faults


def varint(number: int) -> bytes:
    return bytes([number]) if number < 128 else bytes([number & 127 | 128, number >> 7])


def with_custom(value: bytes, custom: bytes) -> bytes:
    """The update of a state with other custom metadata; other records as they are."""
    if value[1:3] != b"\x01\x00":
        return value
    tail = value[-2:]  # state, no tagged fields
    # Custom metadata are what stands between broker and time, and the state.
    head = value[: update_head(value)]
    return head + varint(len(custom) + 1) + custom + tail


def update_head(value: bytes) -> int:
    """Where the custom metadata of an update begin: behind name, ids, broker and time."""
    return 3 + value[3] + 16 + 4 + 1 + 16 + 1 + 4 + 8
