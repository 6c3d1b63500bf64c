"""Verify: one break each, and the finding that names it; the same answer however it is asked."""

from __future__ import annotations

import os
import pickle
import random
import re
import shutil
from dataclasses import replace
from functools import partial, reduce
from pathlib import Path

import pytest

import kseg
from kseg.analysis.values import CODES, PER_CODE_MAX, SENTENCES
from kseg.analysis.verify import (
    VerifyOptions,
    examine,
    merge_all,
    plan,
    report,
    verify,
)
from kseg.catalog import Catalog
from kseg.errors import NotALogError
from kseg.log.settings import settings
from tests.builders import ZSTD, batch, record, write_segment
from tests.inner_faults import ERAS, wrong_inner_message
from tests.unit.analysis.breaks import BREAKS, patch
from tests.unit.analysis.healthy import FIRST, Data, index, make, records, time_index
from tests.unit.log.settings import made


@pytest.fixture
def data(tmp_path: Path) -> Data:
    return make(tmp_path / "data")


def test_each_sentence_has_a_code_and_each_name_a_value_in_braces() -> None:
    for name, text in SENTENCES.items():
        assert name.partition(".")[0] in CODES
        assert text.count("{") == text.count("}") == len(re.findall(r"\{\w+", text))


#: Codes that no lone break of this directory can bring about, and where they are tested.
ELSEWHERE = {
    **dict.fromkeys(
        ("tier-metadata", "tier-object", "tier-size", "tier-hole", "tier-orphan"),
        "tests/unit/log/tier/test_tier.py",
    ),
    "record-crc": "test_inner_messages_are_checked_too",
    "changed": "test_a_file_gone",
    "kraft-snapshot": "tests/golden/sessions/doctor_metadata.txt",
    "time-ahead": "tests/unit/cli/test_cli_words.py",
    "time-negative": "tests/unit/cli/test_cli_words.py",
    "record-over-limit": "test_a_record_above_its_topics_limit_stops_the_cleaner_of_newer_brokers",
    "segment-gap": "test_a_gap_between_segments_is_a_warning_where_nothing_compacts",
    "sequence-gap": "test_gaps_and_doubles_of_producers_are_listed_if_asked_for",
    "sequence-double": "test_gaps_and_doubles_of_producers_are_listed_if_asked_for",
}
OPTIONS = VerifyOptions(inflated_max=1 << 19)


@pytest.mark.parametrize("name", BREAKS)
def test_each_break_is_named_where_it_is(data: Data, name: str) -> None:
    case = BREAKS[name]
    case.do(data)
    answer = verify(data.root, deep=case.deep, inflated_max=1 << 19)
    places = {(f.code, os.path.relpath(f.path, data.root), f.severity) for f in answer.findings}
    assert (case.code, case.path, case.severity) in places
    if case.position is not None:
        assert case.position in {f.position for f in answer.findings if f.code == case.code}
    assert answer.ok == all(finding.severity == "warning" for finding in answer.findings)
    assert all(finding.advice and finding.message for finding in answer.findings)


def test_every_code_has_a_break() -> None:
    assert {case.code for case in BREAKS.values()} | set(ELSEWHERE) == set(CODES)


@pytest.mark.parametrize("era", ERAS)
def test_inner_messages_are_checked_with_and_without_deep(tmp_path: Path, era: str) -> None:
    for deep in (False, True):
        report = verify(wrong_inner_message(tmp_path / "t-0", era), deep=deep)
        assert [(f.code, f.severity, f.position) for f in report.findings] == [
            ("record-crc", "error", 0)
        ]
        assert not report.ok


# Asked in other ways.


@pytest.mark.parametrize("suffix", ["delete", "stray"])
def test_unused_entries_of_a_log_set_aside_are_no_fault(data: Data, suffix: str) -> None:
    BREAKS["an index never trimmed, of the last segment under the mark"].do(data)
    aside = f"orders-0.{32 * '0'}-{suffix}"
    data.partition.rename(data.root / aside)
    assert "index-unused" not in {one.code for one in verify(data.root).findings}


def test_a_segment_that_may_not_be_read_is_a_finding(
    data: Data, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = str(data.file(FIRST))
    monkeypatch.setattr(os, "access", lambda path, mode: str(path) != log)
    answer = verify(data.root, on_error="skip")
    assert not answer.ok
    assert ("unreadable", log) in {(one.code, one.path) for one in answer.findings}


def test_order_of_units_does_not_matter(data: Data) -> None:
    for name in ("a bit of a batch", "offsets beyond the next segment", "epochs of another log"):
        BREAKS[name].do(data)
    units = plan(Catalog.of(data.root, files="all"))
    parts = [examine(unit, OPTIONS) for unit in units]
    parts = [pickle.loads(pickle.dumps(part)) for part in parts]
    answers = []
    for seed in range(4):
        random.Random(seed).shuffle(parts)
        answers.append(report(reduce(lambda one, other: merge_all((one, other)), parts)))
    assert all(answer == answers[0] for answer in answers)
    assert answers[0] == verify(data.root, inflated_max=1 << 19)


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("index entries that fall", "index-order"),
        ("an index into the middle of a batch", "index-points-nowhere"),
        ("times that fall", "time-index-order"),
        ("a bit of a snapshot", "snapshot-crc"),
        ("a bit of a batch", "batch-crc"),
        ("a transaction without a marker", "txn-index-points-nowhere"),
        ("epochs that are none", "epochs-format"),
        ("no topic id", "metadata-format"),
        ("a version of properties", "properties-format"),
        ("a checkpoint that is none", "checkpoint-format"),
    ],
)
def test_a_file_by_itself_is_told_alike(data: Data, name: str, code: str) -> None:
    case = BREAKS[name]
    case.do(data)
    answer = verify(data.root / case.path)
    assert code in {finding.code for finding in answer.findings}


@pytest.mark.parametrize("suffix", [".index", ".timeindex", ".txnindex", ".snapshot"])
def test_a_small_file_far_from_its_log_is_judged_by_itself(
    data: Data, tmp_path: Path, suffix: str
) -> None:
    alone = tmp_path / "alone"
    alone.mkdir()
    base = 7 if suffix == ".snapshot" else 0
    copy = alone / data.file(base, suffix).name
    copy.write_bytes(data.file(base, suffix).read_bytes())
    assert verify(copy).findings == ()


def test_a_log_in_an_unknown_folder_is_no_partition_but_read(data: Data) -> None:
    copy = data.root / "copy of orders"
    data.partition.rename(copy)
    (data.root / "log-start-offset-checkpoint").unlink()
    assert verify(copy).findings == ()


def test_what_is_not_kafkas_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotALogError):
        verify(tmp_path)
    with pytest.raises(FileNotFoundError):
        verify(tmp_path / "absent")


def test_a_file_gone_meanwhile_is_a_warning(data: Data) -> None:
    units = plan(Catalog.of(data.root, files="all"))
    unit = next(unit for unit in units if unit.path == str(data.file(0)))
    data.file(0).unlink()
    assert [f.code for f in examine(unit, OPTIONS).findings] == ["changed"]
    with pytest.raises(FileNotFoundError):
        examine(replace(unit, partition=None), OPTIONS)


# Bounds.


def test_hopeless_files_give_few_findings(data: Data) -> None:
    batches = [batch(records(1), base_offset=n, crc=1) for n in range(1000)]
    data.write_log(FIRST, *batches)
    data.file(0, ".index").write_bytes(index(*((n + 1, 2 * n + 1) for n in range(5000))))
    data.file(0, ".timeindex").write_bytes(time_index(*((n, n) for n in range(1, 5000))))
    answer = verify(data.root)
    assert len(answer.findings) < 6 * PER_CODE_MAX
    rest = [f.message for f in answer.findings if f.code == "batch-crc"][-1:]
    assert len([f for f in answer.findings if f.code == "batch-crc"]) == PER_CODE_MAX + 1
    assert any("900 more" in f.message for f in answer.findings), rest


@pytest.mark.parametrize(
    ("policy", "dense", "found"),
    [
        ("delete", False, True),
        ("compact", True, False),
        ("compact,delete", True, False),
        (None, True, True),
        (None, False, False),
    ],
)
def test_a_gap_between_segments_is_a_warning_where_nothing_compacts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, policy: str | None, dense: bool, found: bool
) -> None:
    for base in (0, 2, 6):
        data = records(1, 1) if dense else records(1)
        write_segment(tmp_path / "t-0", base, batch(data, base_offset=base, last_offset_delta=1))
    if policy is not None:
        known = partial(settings, topic_config={"t": {"cleanup.policy": policy}})
        monkeypatch.setattr("kseg.log.settings.settings", known)
    gaps = [one for one in verify(tmp_path / "t-0").findings if one.code == "segment-gap"]
    assert [(one.severity, one.offset) for one in gaps] == [("warning", 4)] * found
    assert all(
        "no segment has offsets 4 to 5: a segment may be missing" in str(one) for one in gaps
    )


def test_a_record_above_its_topics_limit_stops_the_cleaner_of_newer_brokers(tmp_path: Path) -> None:
    broker = made.Broker(tmp_path / "data")
    limit = made.setting("max.decompressed.message.bytes", "1000")
    broker.says([made.topic("orders"), made.partition(made.FIRST, 0, [7])], [limit])
    values = [b"x" * 100, b"x" * 2000]
    plain = batch([record(value) for value in values])
    packed = batch([record(value) for value in values], base_offset=2, codec=ZSTD)
    log = write_segment(broker.has(), 0, plain, packed)
    found = [each for each in verify(broker.path).findings if each.code == "record-over-limit"]
    assert [(Path(each.path), each.position, each.offset) for each in found] == [
        (log, len(plain), 3)
    ]


@pytest.mark.parametrize(
    ("batches", "codes"),
    [
        ([(1, 0, 0, 3), (1, 0, 3, 2), (2, 0, 7, 1), (2, 0, 8, 1)], []),
        ([(1, 0, 0, 3), (1, 0, 4, 1)], ["sequence-gap"]),
        ([(1, 0, 0, 3), (1, 0, 0, 3), (1, 0, 3, 1)], ["sequence-double"]),
        ([(1, 0, 0, 3), (1, 0, 3, 1), (1, 0, 1, 2)], ["sequence-double"]),
        ([(1, 0, 5, 1), (1, 1, 0, 1)], []),
        ([(1, 0, 5, 1), (1, 1, 1, 1)], ["sequence-gap"]),
        ([(1, 0, 2**31 - 2, 2), (1, 0, 0, 1)], []),
        ([(1, 0, 2**31 - 2, 3), (1, 0, 1, 1)], []),
        ([(1, 0, 2**31 - 3, 1), (1, 0, 2**31 - 1, 1)], ["sequence-gap"]),
    ],
)
def test_gaps_and_doubles_of_producers_are_listed_if_asked_for(
    tmp_path: Path, batches: list[tuple[int, int, int, int]], codes: list[str]
) -> None:
    path = tmp_path / "t-0"
    with kseg.Log.open(path, mode="append", create=True) as log:
        for number, (producer, epoch, sequence, count) in enumerate(batches):
            if number == len(batches) - 1:
                log.roll()
            options = kseg.BatchOptions(
                producer_id=producer, producer_epoch=epoch, base_sequence=sequence
            )
            encoded = bytearray(kseg.encode_batch({"value": [b"v"] * count}, options).data)
            encoded[:8], encoded[12:16] = log.log_end_offset.to_bytes(8, "big"), bytes(4)
            log.append_as_follower(encoded)
    assert verify(path).findings == ()
    found = verify(path, sequences=True)
    assert [finding.code for finding in found.findings] == codes
    assert found.ok
    for finding in found.findings:
        assert f"producer {batches[0][0]}, epoch " in finding.message
        assert "-1" not in finding.message


def test_a_log_that_compaction_or_damage_has_changed_has_its_sequences_listed(
    fixtures_dir: Path, tmp_path: Path
) -> None:
    idempotent = fixtures_dir / "new" / "4.2.0-idempotent"
    assert [one.code for one in verify(idempotent, sequences=True).findings] == [
        one.code for one in verify(idempotent).findings
    ]
    path = tmp_path / "payments-0"
    shutil.copytree(Path(kseg.__file__).parent / "demo_data" / "payments-0", path)
    (first, *_) = sorted(path.glob("*.log"))
    patch(first, 100, b"\xff")
    assert "batch-crc" in {one.code for one in verify(path, sequences=True).findings}
