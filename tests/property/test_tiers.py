"""A log whose older segments lie in a tier is the log that it was: any layout, any loss."""

from __future__ import annotations

import pickle
import random
import shutil
import warnings
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import kseg
from kseg.analysis.verify import examine_tier
from kseg.files.checkpoints import assign_epochs, read_leader_epochs
from kseg.log.reader.find import EARLIEST_LOCAL, EARLIEST_PENDING_UPLOAD, LATEST_TIERED
from kseg.log.reader.view import LogView
from kseg.log.tier.tier import Tier
from kseg.spark.options import parse_options
from kseg.spark.plan import list_logs, make_plan
from kseg.spark.reading import read_split
from tests import tiers
from tests.shares import WHOLE
from tests.tiers import DELETING, FINISHED, STARTED, Made

FIELDS = ("offset", "timestamp", "key", "value", "headers")
ISOLATIONS = ("read_uncommitted", "read_committed")
SEEDS = range(600 if WHOLE else 6)
Row = tuple[Any, ...]


@cache
def key_pair() -> tuple[Any, bytes]:
    """Public numbers and PEM of an RSA key; making one takes a while."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import rsa

    key = rsa.generate_private_key(65_537, 1_344)
    pem = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    return key.public_key().public_numbers(), pem


def some_layout(root: Path, rng: random.Random) -> tiers.Layout:
    if rng.random() < 0.4:
        return tiers.LocalTier(root)
    return tiers.AivenTier(
        root,
        rng,
        prefix=rng.choice(("", "x/", "x-", "a/b-", "orders-")),
        chunk_size=rng.choice((1, 7, 100, 1_000, 64 << 20, 1 << 30)),
        compressed=rng.random() < 0.5,
        key=("key1", key_pair()[0]) if rng.random() < 0.5 else None,
        fields=rng.choice(((), (0,), (1, 2), (0, 1, 2))),
    )


def rows_of(pieces: Iterator[Any]) -> list[Row]:
    return [
        (record.offset, record.timestamp, record.key, record.value, record.headers)
        for piece in pieces
        for record in piece.records()
    ]


def rows(path: Path, isolation: str, tier: Tier | None = None) -> list[Row]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of an open transaction
        return rows_of(kseg.scan(path, tier=tier, isolation=isolation, columns=FIELDS))


def spark_offsets(path: Path, isolation: str, tier: Tier) -> list[int]:
    texts = {"path": str(path), "tier": tier.root, "isolation": isolation}
    texts["targetPartitionBytes"] = "700"
    if tier.keys:
        texts["tierKeys"] = ",".join(f"{key}={file}" for key, file in tier.keys.items())
    options = parse_options(texts)
    return [
        offset
        for task in pickle.loads(pickle.dumps(make_plan(list_logs(options), options)))
        for split in task
        for columns in read_split(split, ("offset",), options)
        for offset in columns["offset"].tolist()
    ]


def drop_local(path: Path, before: int) -> None:
    """Remove closed segments as a broker does after their copies."""
    for log in path.glob("*.log"):
        if int(log.stem) < before:
            for file in path.glob(f"{log.stem}.*"):
                file.unlink()


def write_start(path: Path, start: int) -> None:
    """Note the start of the log `orders-0`, as DeleteRecords does."""
    checkpoint = path.with_name("log-start-offset-checkpoint")
    checkpoint.write_text(f"0\n1\norders 0 {start}\n")
    epochs = path / "leader-epoch-checkpoint"
    entries = [(one.epoch, one.start_offset) for one in assign_epochs(read_leader_epochs(epochs))]
    kept = tiers.within(entries, start, 2**62)
    text = "".join(f"{epoch} {first}\n" for epoch, first in kept)
    epochs.write_text(f"0\n{len(kept)}\n{text}")


def write_keys(directory: Path) -> dict[str, str]:
    file = directory / "key1.pem"
    file.write_bytes(key_pair()[1])
    return {"key1": str(file)}


@pytest.mark.parametrize("seed", SEEDS)
def test_a_log_with_its_older_part_in_a_tier_is_the_log(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    whole = tmp_path / "whole" / "orders-0"
    first = rng.choice((0, 0, 5, 2**31 - 20, 2**40))
    tiers.random_log(whole, rng, batches=rng.randint(20, 80), first_offset=first)
    topic_id = tiers.id_text(rng)
    copies = tiers.copies_of(whole, topic_id, rng)
    if not copies:
        return
    copies = copies[: rng.randint(1, len(copies))]
    if rng.random() < 0.4:  # records were deleted, before the last segments were copied
        start = rng.randint(first, copies[-1].end)
        write_start(whole, start)
        late = tiers.copies_of(whole, topic_id, rng, log_start=start)[: len(copies)]
        early = rng.randrange(len(copies))
        copies = [*copies[:early], *(copy for copy in late if copy.start >= copies[early].start)]
        copies = [copy for copy in copies if copy.end >= start or rng.random() < 0.5]
    layout = some_layout(tmp_path / "tier", rng)
    events: list[tuple[Made, int]] = []
    for copy in copies:
        failed = replace(copy, id=tiers.id_text(rng), event_ms=copy.event_ms - 1)
        if rng.random() < 0.2:  # a copy that failed, and left some of its objects
            tiers.put(layout, [failed], objects=1)
            events += [(failed, STARTED), *[(failed, DELETING)] * rng.randrange(2)]
        if rng.random() < 0.2:  # one that was made twice
            tiers.put(layout, [failed])
            events += [(failed, FINISHED)] if events[-1:] == [(failed, STARTED)] else []
        tiers.put(layout, [copy])
        events += [(copy, STARTED), (copy, FINISHED)]
    local = tmp_path / "local" / "orders-0"
    shutil.copytree(whole.parent, local.parent)
    drop_local(local, rng.choice([*(copy.start for copy in copies), copies[-1].end + 1]))
    if rng.random() < 0.6:
        tiers.write_metadata(local.parent, events)
    tier = Tier.of(tmp_path / "tier", keys=write_keys(tmp_path))
    log, wanted = tier.log(local), LogView.open(whole)
    for isolation in ISOLATIONS:
        expected = rows(whole, isolation)
        assert rows(local, isolation, tier) == expected
        assert spark_offsets(local, isolation, tier) == [row[0] for row in expected]
    for time in sorted({row[1] for row in rows(whole, "read_uncommitted")})[:: 7 if WHOLE else 29]:
        found, one = log.view.lookup_time(time), wanted.lookup_time(time)
        assert found is not None
        assert one is not None
        assert (found.offset, found.timestamp) == (one.offset, one.timestamp)
    end = copies[-1].end
    assert log.special(LATEST_TIERED).offset == end
    assert log.special(EARLIEST_LOCAL).offset == LogView.open(local).log_start_offset
    assert log.special(EARLIEST_PENDING_UPLOAD).offset == end + 1
    seen = {finding.code for finding in examine_tier(log, deep=True, now_ms=1 << 60).findings}
    assert seen <= {"tier-orphan"}


@pytest.mark.parametrize("seed", SEEDS)
def test_after_an_unclean_election_the_new_leaders_log_counts(seed: int, tmp_path: Path) -> None:
    """Two logs part; the first leader's copies stay in the tier, then the second one copies."""
    rng = random.Random(seed)
    old, new = (tmp_path / name / "orders-0" for name in ("old", "new"))
    batches = tiers.random_log(old, rng, batches=rng.randint(10, 60))
    shared = rng.randrange(1, len(batches))
    tiers.random_log(new, rng, batches=rng.randint(10, 60), behind=batches[:shared])
    topic_id, layout = tiers.id_text(rng), some_layout(tmp_path / "tier", rng)
    before = tiers.copies_of(old, topic_id, rng)
    before = before[: rng.randint(0, len(before))]
    highest = min(before[-1].end if before else -1, _end_of(batches[:shared]) - 1)
    after = [copy for copy in tiers.copies_of(new, topic_id, rng) if copy.end > highest]
    after = after[: rng.randint(0, len(after))]
    if not after:
        return
    for age, copy in enumerate((*before, *after)):
        copy.event_ms = tiers.TIME + 1_000 * age
    tiers.put(layout, (*before, *after))
    whole = tmp_path / "whole" / "orders-0"
    shutil.copytree(new, whole)
    drop_local(new, rng.choice([*(copy.start for copy in after), after[-1].end + 1]))
    if rng.random() < 0.6:
        events = [(copy, state) for copy in (*before, *after) for state in (STARTED, FINISHED)]
        tiers.write_metadata(new.parent, events)
    tier = Tier.of(tmp_path / "tier", keys=write_keys(tmp_path))
    for isolation in ISOLATIONS:
        expected = rows(whole, isolation)
        assert rows(new, isolation, tier) == expected
        assert spark_offsets(new, isolation, tier) == [row[0] for row in expected]
    assert tier.log(new).special(LATEST_TIERED).offset == after[-1].end


def _end_of(batches: list[bytes]) -> int:
    """The offset behind the last of some batches."""
    return int.from_bytes(batches[-1][:8]) + int.from_bytes(batches[-1][23:27]) + 1
