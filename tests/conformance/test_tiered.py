"""Tiers that brokers filled: the records that their consumers got, from every layout."""

from __future__ import annotations

import base64
import gzip
import json
import shutil
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import kseg
from kseg.errors import NotALogError, TierError
from kseg.files.checkpoints import EpochEntry
from kseg.log.tier.lineage import RemoteSegment, SegmentState, is_within
from kseg.log.tier.objects import Replay
from kseg.log.tier.tier import Tier

CASES = (
    "3.9.1-local",
    "4.2.0-local",
    "4.2.0-split",
    "4.2.0-aiven-plain",
    "4.2.0-aiven-chunked",
    "4.2.0-aiven-zstd",
    "4.2.0-aiven-encrypted",
    "4.2.0-aiven-zstd-encrypted",
)
#: Of `txn` a transaction is open at the end, so a reader of committed records is warned.
pytestmark = pytest.mark.filterwarnings("ignore:kseg. .* is open:UserWarning")
ISOLATIONS = ("read_uncommitted", "read_committed")
Row = tuple[int, int, str | None, str | None]


class Case(NamedTuple):
    path: Path
    keys: dict[str, str]
    records: dict[tuple[str, str, int], list[Row]]

    @property
    def partitions(self) -> list[tuple[str, int]]:
        return sorted({(topic, number) for _isolation, topic, number in self.records})

    @property
    def tier(self) -> Tier:
        return Tier.of(self.path / "remote", keys=self.keys)


def lines_of(path: Path) -> list[str]:
    """The lines of a text of a case, which a collection may have in gzip's format."""
    packed = path.with_name(f"{path.name}.gz")
    text = gzip.decompress(packed.read_bytes()) if packed.exists() else path.read_bytes()
    return text.decode().splitlines()


@cache
def case_of(path: Path) -> Case:
    records: dict[tuple[str, str, int], list[Row]] = {}
    for line in lines_of(path / "consumer.jsonl"):
        one = json.loads(line)
        place = one["isolation"], one["topic"], one["partition"]
        row = one["offset"], one["timestamp"], one["key"], one["value"]
        records.setdefault(place, []).append(row)
    keys = {file.name.partition(".")[0]: str(file) for file in path.glob("keys/*.private.pem")}
    return Case(path, keys, records)


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest, fixtures_dir: Path) -> Case:
    path = fixtures_dir / "tiered" / request.param
    if not path.is_dir():
        pytest.fail(f"{path} is missing")
    return case_of(path)


def text(value: Any) -> str | None:
    return None if value is None else base64.b64encode(bytes(value)).decode()


def rows(path: Path | str, **options: Any) -> list[Row]:
    found = kseg.scan(path, columns=("offset", "timestamp", "key", "value"), **options)
    return [
        row
        for piece in found
        for row in zip(
            piece["offset"].tolist(),
            piece["timestamp_ms"].tolist(),
            map(text, piece["key"]),
            map(text, piece["value"]),
            strict=True,
        )
    ]


@pytest.fixture
def bare(case: Case, tmp_path: Path) -> Path:
    """The local part without the metadata topic."""
    target = tmp_path / "local"
    shutil.copytree(
        case.path / "local", target, ignore=shutil.ignore_patterns("__remote_log_metadata-*")
    )
    return target


def test_a_consumer_got_the_same_records(case: Case) -> None:
    tier = case.tier
    for (isolation, topic, number), wanted in case.records.items():
        path = case.path / "local" / f"{topic}-{number}"
        assert rows(path, tier=tier, isolation=isolation) == wanted
        assert tier.log(path).source == "metadata"


def test_threads_give_the_same_records(case: Case) -> None:
    for topic, number in case.partitions[:1]:
        path = case.path / "local" / f"{topic}-{number}"
        for isolation in ISOLATIONS:
            wanted = case.records.get((isolation, topic, number), [])
            assert rows(path, tier=case.tier, isolation=isolation, threads=3) == wanted


def test_without_the_metadata_topic_manifests_and_names_tell_the_same(
    case: Case, bare: Path
) -> None:
    tier = case.tier
    for (isolation, topic, number), wanted in case.records.items():
        assert rows(bare / f"{topic}-{number}", tier=tier, isolation=isolation) == wanted
        wanted_source = "manifests" if "aiven" in case.path.name else "names"
        assert tier.log(bare / f"{topic}-{number}").source == wanted_source


def test_without_anything_local_the_tier_gives_what_it_can_prove(
    case: Case, tmp_path: Path
) -> None:
    for (isolation, topic, number), whole in case.records.items():
        tier = case.tier
        found = rows(tmp_path / f"{topic}-{number}", tier=tier, isolation=isolation)
        view = tier.log(tmp_path / f"{topic}-{number}").view
        end = view.last_stable_offset if isolation == "read_committed" else view.log_end_offset
        # The log's start is in a checkpoint of the broker, else the first segment's.
        wanted = [row for row in whole if row[0] < end]
        assert [row for row in found if row[0] >= whole[0][0]] == wanted
        assert len(found) == len(wanted) or topic == "trimmed"


def test_a_transaction_without_a_marker_in_the_tier_ends_committed_records(
    fixtures_dir: Path, tmp_path: Path
) -> None:
    case = case_of(fixtures_dir / "tiered" / "4.2.0-local")
    whole = case.records["read_committed", "txn", 0]
    with pytest.warns(UserWarning, match="read_committed ends at offset .* is open"):
        found = rows(tmp_path / "txn-0", tier=case.tier, isolation="read_committed")
    assert 0 < len(found) < len(whole)
    assert found == whole[: len(found)]


@pytest.mark.parametrize("kept", [0, 1, 3])
def test_local_segments_may_overlap_remote_ones(case: Case, tmp_path: Path, kept: int) -> None:
    """Of the whole log the first segments are removed, as a broker does behind the copies."""
    for topic, number in case.partitions:
        source = case.path / "original" / f"{topic}-{number}"
        if not source.is_dir() or topic in ("expired", "trimmed"):
            continue
        target = tmp_path / f"{topic}-{number}"
        shutil.copytree(source, target)
        highest = case.tier.log(source).highest_remote
        copied = [log for log in sorted(target.glob("*.log")) if int(log.stem) <= highest]
        for log in copied[: -kept or None]:
            for file in target.glob(f"{log.stem}.*"):
                file.unlink()
        for isolation in ISOLATIONS:
            wanted = case.records.get((isolation, topic, number), [])
            found = rows(target, tier=case.tier, isolation=isolation)
            assert found == wanted[: len(found)]
            assert len(found) == len(wanted)


def test_a_data_directory_is_read_with_its_tier(case: Case) -> None:
    topics = [topic for topic, _number in case.partitions]
    found: dict[tuple[str, int], int] = {}
    for piece in kseg.scan(case.path / "local", topics=topics, tier=case.tier):
        assert piece.topic is not None
        assert piece.partition is not None
        place = piece.topic, piece.partition
        found[place] = found.get(place, 0) + len(piece)
    assert found == {
        (topic, number): len(wanted)
        for (isolation, topic, number), wanted in case.records.items()
        if isolation == "read_uncommitted"
    }


# ---- Pinterest -----------------------------------------------------------------------------------


@pytest.mark.parametrize("tree", ["remote-entropy", "remote-flat"])
def test_pinterests_layout_gives_the_uploaded_records(
    fixtures_dir: Path, tmp_path: Path, tree: str
) -> None:
    path = fixtures_dir / "tiered" / "pinterest"
    wanted: dict[str, list[Row]] = {}
    for line in lines_of(path / "records.jsonl"):
        one = json.loads(line)
        row = one["offset"], one["timestamp"], one["key"], one["value"]
        wanted.setdefault(one["dir"], []).append(row)
    tier = Tier.of(path / tree)
    for name, records in wanted.items():
        assert rows(tmp_path / name, tier=tier, control=True) == records
    dangling = tier.log(tmp_path / "txn-0").strays
    assert [url.rpartition("/")[2] for url in dangling] == [f"{420:020d}.log"]


def test_a_partition_in_two_places_is_not_guessed(fixtures_dir: Path, tmp_path: Path) -> None:
    with pytest.raises(TierError, match="several places"):
        rows(tmp_path / "plain-0", tier=fixtures_dir / "tiered" / "pinterest")


# ---- topics --------------------------------------------------------------------------------------


def test_a_topic_that_was_made_again_needs_its_id(fixtures_dir: Path, tmp_path: Path) -> None:
    case = case_of(fixtures_dir / "tiered" / "4.2.0-local")
    remote = tmp_path / "remote" / "kafka-tiered-storage"
    shutil.copytree(case.path / "remote" / "kafka-tiered-storage", remote)
    (old,) = remote.glob("plain-0-*")
    new = remote / f"plain-0-{'A' * 21}Q"
    shutil.copytree(old, new)
    with pytest.raises(TierError, match=r"its ids are .*; name one with --topic-id"):
        rows(tmp_path / "plain-0", tier=remote)
    id_ = old.name[-22:]
    wanted = case.records["read_uncommitted", "plain", 0]
    found = rows(tmp_path / "plain-0", tier=Tier.of(remote, topic_id=id_))
    assert found == wanted[: len(found)]
    with pytest.raises(ValueError, match="not a topic id"):
        Tier.of(remote, topic_id="x")


def test_what_is_not_there_is_said_in_words(fixtures_dir: Path, tmp_path: Path) -> None:
    case = case_of(fixtures_dir / "tiered" / "4.2.0-local")
    with pytest.raises(NotALogError, match="nothing of it is in"):
        rows(tmp_path / "other-0", tier=case.tier)
    with pytest.raises(FileNotFoundError):
        rows(tmp_path / "plain-0", tier=tmp_path / "nowhere")


# ---- vectors of Kafka's classes ------------------------------------------------------------------


@pytest.fixture(scope="module")
def vectors(vectors_dir: Path) -> Any:
    return json.loads((Path(__file__).parent / "vectors" / "tiered.json").read_text())


def epochs(given: dict[str, int]) -> tuple[EpochEntry, ...]:
    return tuple(EpochEntry(int(epoch), start) for epoch, start in given.items())


def test_the_index_answers_as_the_cache_of_a_broker(vectors: Any) -> None:
    for one in vectors["cache"]:
        replay = Replay()
        for event in one["events"]:
            _take(replay, event)
        for answer in one["answers"]:
            epoch, runs = answer["epoch"], answer["from_offset_segment"]
            found = [_number(replay.index.find(epoch, offset)) for offset in range(185)]
            assert found == list(_spread(runs))
            highest = answer["highest"]
            assert replay.index.highest(epoch) == (-1 if highest is None else highest)


def _take(replay: Replay, event: dict[str, Any]) -> None:
    id_, state = str(event["segment"]), SegmentState[event["event"]]
    try:
        if "start_offset" in event:
            bounds = event["start_offset"], event["end_offset"], epochs(event["leader_epochs"])
            replay.take(RemoteSegment(id_, *bounds, 1, state=state))
        else:
            replay.update(id_, state, 0, None)
    except TierError:
        assert "start_offset" not in event


def _number(segment: RemoteSegment | None) -> int | None:
    return None if segment is None else int(segment.id)


def _spread(runs: list[list[Any]]) -> Iterator[int | None]:
    for (first, segment), (end, _) in zip(runs, [*runs[1:], [185, None]], strict=True):
        yield from [segment] * (end - first)


def test_a_lineage_is_judged_as_by_a_broker(vectors: Any) -> None:
    for one in vectors["lineage"]:
        given = one["segment"]
        bounds = given["start_offset"], given["end_offset"], epochs(given["leader_epochs"])
        segment = RemoteSegment("x", *bounds, 0)
        found = is_within(segment, epochs(one["lineage"]), one["log_end_offset"])
        assert found == one["within"], one


# ---- lookups -------------------------------------------------------------------------------------


def test_lookups_answer_as_the_broker(case: Case) -> None:
    tier = case.tier
    for one in json.loads((case.path / "lookups.json").read_text()):
        log = tier.log(case.path / "local" / f"{one['topic']}-{one['partition']}")
        asked = one["timestamp_sent"]
        found = log.special(asked) if asked < 0 else log.view.lookup_time(asked)
        wanted = one["timestamp"], one["offset"], one["leader_epoch"]
        if found is None:
            assert wanted == (None, None, None), one
            continue
        epoch = None if found.leader_epoch < 0 else found.leader_epoch
        assert (found.timestamp, found.offset, epoch) == wanted, one
