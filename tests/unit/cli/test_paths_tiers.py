"""`--tier` of the verbs that plan, verify, look up and describe."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.unit.cli.conftest import Kseg
from tests.unit.log.tier.test_history import bases, copied

LIMITS = (
    *("--config", "cleanup.policy=delete"),
    *("--config", "retention.ms=-1", "--config", "local.retention.ms=1"),
)


@pytest.fixture
def case(fixtures_dir: Path) -> Path:
    return fixtures_dir / "tiered" / "4.2.0-local"


@pytest.fixture
def home(case: Path, tmp_path: Path) -> Path:
    return copied(case, tmp_path / "data")


def test_retain_says_what_is_in_the_tier_and_what_is_not(kseg: Kseg, home: Path) -> None:
    ran = kseg("retain", home / "txn-0", *LIMITS, "--high-watermark", "end")
    assert ran.code == 1
    assert "in the tier, by metadata: 7 segments, 35874 bytes, up to offset 419" in ran.text
    assert "due and stay, since the tier lacks them: 1, 4545 bytes" in ran.text
    assert "older than local.retention.ms" in ran.text
    assert "log-start" not in ran.text
    ran = kseg("retain", home, *LIMITS, "--high-watermark", "end", "--json")
    remote = {one["path"]: one["remote"] for one in ran.document["partitions"]}
    assert remote[str(home / "plain-1")]["copied_bytes"] == 7301
    assert remote[str(home / "gone-0")] is None


def test_retain_leaves_the_start_of_the_whole_log_in_place_and_in_a_copy(
    kseg: Kseg, home: Path, tmp_path: Path
) -> None:
    start = (home / "log-start-offset-checkpoint").read_text()
    how = (*LIMITS, "--high-watermark", "end")
    out = tmp_path / "out"
    assert kseg("retain", home / "txn-0", *how, "-o", out).code == 0
    assert bases(out / "txn-0")[0] == 420
    assert "txn 0 0" in (out / "log-start-offset-checkpoint").read_text()
    assert bases(home / "txn-0")[0] == 0
    assert kseg("retain", home / "txn-0", *how, "--apply", "--no-backup").code == 0
    assert bases(home / "txn-0")[0] == 420
    assert (home / "log-start-offset-checkpoint").read_text() == start


def test_truncate_and_recover_say_what_the_tier_has_behind_the_end(
    kseg: Kseg, case: Path, home: Path
) -> None:
    words = ("truncate", home / "dated-0", "--to", 100, "--tier", case / "remote")
    assert "the tier has offsets 98 to 208 behind the log's end" in kseg(*words).text
    assert kseg(*words, "--json").document["remote"]["behind"] == [98, 208]
    text = kseg("truncate", case / "local" / "plain-0", "--to", 100).text
    assert "segments in the tier that a broker then deletes: 4, 18436 bytes" in text
    ran = kseg("recover", home / "plain-0", "--json")
    assert ran.document["remote"]["highest_offset"] == 219


def test_explain_says_what_is_in_the_tier_too(kseg: Kseg, home: Path) -> None:
    limits = ("--config", "cleanup.policy=delete", "--config", "txn:local.retention.ms=36500d")
    ran = kseg("explain", home, *limits)
    assert "it has 35874 bytes of the local segments, too" in ran.text
    assert "a shorter local.retention.ms or local.retention.bytes frees" in ran.text
    document = kseg("explain", home, *LIMITS, "--json").document
    rows = {row["path"]: row["cause"] for one in document["partitions"] for row in one["rows"]}
    assert rows[str(home / "txn-0" / f"{420:020d}.log")] == "not-copied"
    assert rows[str(home / "txn-0" / f"{367:020d}.log")] == "due"


def test_verify_checks_the_local_part_and_the_tier_in_one_run(
    kseg: Kseg, case: Path, tmp_path: Path
) -> None:
    whole = tmp_path / "case"
    shutil.copytree(case, whole)
    words = ("verify", whole / "local" / "txn-0", "--tier", whole / "remote", "--json")
    clean = kseg(*words)
    assert clean.code == 0
    assert clean.document["bytes"] > 35874 + 4545
    here = whole / "local" / "txn-0" / f"{420:020d}.log"
    there = min((whole / "remote").glob("*/txn-0-*/*.log"))
    for path in (here, there):
        data = bytearray(path.read_bytes())
        data[200] ^= 1
        path.write_bytes(data)
    found = kseg(*words)
    assert found.code == 1
    errors = [one for one in found.document["findings"] if one["severity"] == "error"]
    assert {(one["code"], one["path"]) for one in errors} == {
        ("batch-crc", str(here)),
        ("batch-crc", str(there)),
    }
    only = kseg("verify", tmp_path / "plain-0", "--tier", whole / "remote")
    assert only.code == 0


def test_lookup_answers_as_the_broker(kseg: Kseg, case: Path) -> None:
    """One partition here; `tests/conformance/test_tiered.py` has all of them."""
    for one in json.loads((case / "lookups.json").read_text()):
        if (one["topic"], one["timestamp_sent"] > 0) == ("txn", False):
            words = ("lookup", case / "local" / "txn-0", "--tier", case / "remote", "--time")
            found = kseg(*words, one["timestamp_sent"], "--json").document
            assert (found["offset"], found["timestamp"]) == (one["offset"], one["timestamp"])
    text = kseg("lookup", case / "local" / "txn-0", "--tier", case / "remote", "--time", -3).text
    assert text.startswith("max timestamp, of local records: ")


def test_info_names_what_neither_part_has(kseg: Kseg, case: Path, tmp_path: Path) -> None:
    whole = tmp_path / "remote"
    shutil.copytree(case / "remote", whole)
    for path in whole.glob("*/plain-0-*/00000000000000000064-*"):
        path.unlink()
    ran = kseg("info", tmp_path / "plain-0", "--tier", whole)
    assert "offsets 64 to 128 are in neither part" in ran.text
    assert "0 requests, 0 B read from the store" in ran.text


def test_grep_searches_both_parts(kseg: Kseg, case: Path, tmp_path: Path) -> None:
    wanted = kseg("grep", "key-1", case / "original" / "plain-0").text
    assert wanted.count("\n") > 3
    for path in (tmp_path / "plain-0", case / "local" / "plain-0"):
        assert kseg("grep", "key-1", path, "--tier", case / "remote").text == wanted
    words = ("grep", "-c", "", case / "local", "--topic", "plain", "--tier", case / "remote")
    here = kseg("grep", "-c", "", case / "original", "--topic", "plain").text
    assert kseg(*words).text == here.replace("/original/", "/local/")


def test_the_cache_of_remote_indexes_is_a_directory_of_kafka(kseg: Kseg, case: Path) -> None:
    codes = {one["code"] for one in kseg("verify", case / "local", "--json").document["findings"]}
    assert "foreign-directory" not in codes
