"""The report: the numbers of the verbs that it joins, and a page that runs nothing but its own."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from hashlib import sha256
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kseg
from kseg.analysis.sketches import BINS_MAX, WIDTHS_MS, Timeline
from tests.builders import batch, record, write_segment

HOSTILE = "</script><img src=x onerror=alert(1)>\u2028<!--"
FAR_MS = 292278994 * 365 * 86_400_000


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """Data directories with markup wherever bytes are free, far times, and damage."""
    data = tmp_path / "data"
    rows = [
        record(offset=at, timestamp=time, key=key, value=b"{}")
        for at, (time, key) in enumerate(
            [
                (0, HOSTILE.encode()),
                (-62_135_596_800_000, b"k" * 1_000_000),
                (FAR_MS, b"\xff@DATA@"),
            ]
        )
    ]
    path = write_segment(data / f"{'t' * 247}-0", 0, batch(rows))
    path.with_name("00000000000000000009.log").write_bytes(b"\0" * 8 + b"\xff" * 90)
    (data / HOSTILE.replace("/", "_")).mkdir()
    (data / "@CHARTS@@DATA@").write_text("x")
    return data


def parts(page: str) -> tuple[str, list[str], dict[str, Any]]:
    """The policy of a page, its scripts, and its numbers."""
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]+)"', page)
    scripts = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    numbers = re.search(r'<script type="application/json" id="data">(.*?)</script>', page)
    assert policy is not None
    assert numbers is not None
    return unescape(policy[1]), scripts, json.loads(numbers[1])


def test_the_policy_allows_the_scripts_of_the_page_alone(hostile: Path) -> None:
    page = kseg.report(hostile, now_ms=0).to_html()
    policy, scripts, _numbers = parts(page)
    hashes = [b64encode(sha256(each.encode()).digest()).decode() for each in scripts]
    assert len(hashes) == 2
    allowed = " ".join(f"'sha256-{each}'" for each in hashes)
    assert policy == f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'"
    assert re.search(r"https?://(?!www\.w3\.org)", page.replace(scripts[0], "")) is None


def test_names_and_keys_are_text_in_the_page(hostile: Path) -> None:
    page = kseg.report(hostile, now_ms=0).to_html()
    assert "<img" not in page
    assert page.count("<!--") == 0
    assert page.lower().count("<script") == 3
    assert "\u2028" not in page
    _policy, _scripts, numbers = parts(page)
    keys = [one["key"] for one in numbers["keys"]]
    assert {key[:4] for key in keys} == {"kkkk", "</sc", "\\xff"}
    assert max(map(len, keys)) == 300
    names = [one["name"] for one in numbers["tree"]["children"][-1]["children"]]
    assert any("@CHARTS@@DATA@" in name for name in names)
    assert any("<img" in name for name in names)


def test_no_keys_leaves_keys_out_of_the_page_and_the_document(hostile: Path) -> None:
    found = kseg.report(hostile, keys=False, now_ms=0)
    assert "onerror" not in json.dumps(found.to_json()["stats"])
    _policy, _scripts, numbers = parts(found.to_html())
    assert numbers["keys"] is None
    assert numbers["all"]["record_bytes"]["count"] == 3


def test_the_numbers_are_those_of_the_verbs(fixtures_dir: Path) -> None:
    data = fixtures_dir / "new" / "4.2.0-plain"
    found = kseg.report(data, now_ms=0)
    document = found.to_json()
    explained = kseg.explain(data, now_ms=0).to_json()
    for name in ("totals", "partitions", "elsewhere", "bytes"):
        assert document["explain"][name] == explained[name]
    assert document["verify"] == kseg.verify(data, now_ms=0).to_json()
    assert document["doctor"]["outcome"] == kseg.doctor(data, now_ms=0).to_json()["outcome"]
    stats = kseg.stats(data)
    assert [one["bytes"] for one in document["stats"]] == [
        one.stats.bytes for one in stats.partitions
    ]
    _policy, _scripts, numbers = parts(found.to_html())
    assert numbers["tree"]["bytes"] == found.explain.bytes
    assert sum(one["bytes"] for one in numbers["tree"]["children"]) == found.explain.bytes
    assert sum(one["bytes"] for one in numbers["causes"]) == found.explain.bytes
    assert numbers["all"]["bytes"] == sum(one.stats.bytes for one in stats.partitions)
    assert numbers["all"]["records"] == sum(one["records"] for one in numbers["topics"])
    assert sum(numbers["all"]["codec_bytes"].values()) == numbers["all"]["batch_bytes"]["total"]
    line = numbers["all"]["timeline"]
    assert sum(line["records"]) + line["untimed"] == numbers["all"]["record_bytes"]["count"]
    assert sum(line["bytes"]) <= numbers["all"]["record_bytes"]["total"]


def test_many_partitions_are_cut_to_the_largest_with_the_rest_in_one_row(tmp_path: Path) -> None:
    data = tmp_path / "data"
    for number in range(205):
        write_segment(data / f"t{number}-0", 0, batch([record(b"v")]))
    found = kseg.report(data, now_ms=0)
    _policy, _scripts, numbers = parts(found.to_html())
    assert len(numbers["topics"]) == 201
    assert numbers["topics"][-1]["name"] == "(5 others)"
    assert sum(one["bytes"] for one in numbers["topics"]) == numbers["all"]["bytes"]
    assert numbers["tree"]["children"][-1]["name"] == "(5 others)"
    assert sum(one["bytes"] for one in numbers["tree"]["children"]) == found.explain.bytes


def test_a_directory_without_partitions_has_a_page(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "meta.properties").write_text("version=1\n")
    found = kseg.report(tmp_path / "empty", now_ms=0)
    found.write(tmp_path / "page.html")
    _policy, _scripts, numbers = parts((tmp_path / "page.html").read_text())
    assert numbers["all"]["records"] == 0
    with pytest.raises(FileExistsError):
        found.write(tmp_path / "page.html")


# ---- timelines, and kinds of values --------------------------------------------------------------


def line_of(times: list[int], sizes: list[int]) -> Timeline:
    return Timeline.of(np.array(times, np.int64), np.array(sizes, np.int64))


def test_a_timeline_is_the_same_in_any_order_of_joining() -> None:
    chance = np.random.default_rng(1)
    times = chance.integers(-(10**12), 10**13, 3000)
    sizes = chance.integers(0, 1000, 3000)
    whole = Timeline.of(times, sizes).document()
    pieces = [Timeline.of(times[at::7], sizes[at::7]) for at in range(7)]
    forward, backward = pieces[0], pieces[-1]
    for piece in pieces[1:]:
        forward = forward.merge(piece)
    for piece in reversed(pieces[:-1]):
        backward = backward.merge(piece)
    assert whole == forward.document() == backward.document()
    assert len(whole["bins"]) <= BINS_MAX
    assert sum(whole["records"]) == 3000
    assert sum(whole["bytes"]) == sizes.sum()
    narrower = WIDTHS_MS[WIDTHS_MS.index(whole["bin_ms"]) - 1]
    assert len(np.unique(times // narrower)) > BINS_MAX


def test_a_timeline_has_times_before_1970_and_at_the_ends_of_64_bits() -> None:
    found = line_of([-1, -1000, 2**63 - 1, -(2**63), 5, 7], [1, 2, 3, 4, 5, 6])
    assert found.document() == {
        "bin_ms": 1000,
        "bins": [-9223372036854776000, -1000, 0, 9223372036854775000],
        "records": [1, 1, 2, 1],
        "bytes": [4, 2, 11, 3],
        "untimed": 1,
    }
