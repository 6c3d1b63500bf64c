"""What new users stumbled over: each line says what is there, why, and what to type instead."""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path
from typing import Any

import pytest

import kseg as library
from kseg import KsegError
from kseg.cli import paths
from kseg.files import io
from kseg.files.names import Unreadable
from tests.builders import batch, record, write_segment
from tests.unit.cli.conftest import Kseg

NOW_MS = 1_760_000_000_000
DAY_MS = 24 * 60 * 60 * 1000


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data directory whose partitions 0, 1, 2 and 10 hold a record each, closed cleanly."""
    root = tmp_path / "data"
    root.mkdir()
    with library.LogDirectory.open(root, mode="append") as directory:
        for number in (0, 1, 2, 10):
            log = directory.create("orders", number)
            log.append({"value": ["x"], "timestamp": [NOW_MS]})
    return root


def test_a_file_that_was_not_there_is_called_missing(kseg: Kseg, data: Path) -> None:
    for path in (data / "orders-0").glob("*index"):
        path.unlink()
    lines = [line for line in kseg("recover", data).text.splitlines() if line.startswith("create")]
    assert [line.split("  ")[-1] for line in lines] == [
        "missing; empty, since the log has nothing for it yet",
        "missing",
    ]
    assert "not what the log says" not in "".join(lines)


def test_a_line_names_a_path_once(kseg: Kseg, data: Path) -> None:
    (data / "orders-0" / f"{0:020d}.index").unlink()
    ran = kseg("recover", data / "orders-0")
    for line in (*ran.text.splitlines(), *ran.err.splitlines()):
        assert line.count("orders-0") <= 1, line


@pytest.mark.parametrize("verb", ["dump", "read"])
def test_json_is_answered_with_the_option_that_does_it(kseg: Kseg, data: Path, verb: str) -> None:
    ran = kseg(verb, data / "orders-0", "--json")
    assert ran.code == 2
    assert "--format jsonl" in ran.err
    assert "--jobs" not in ran.err


def in_order(text: str) -> list[str]:
    """The partitions that a text names, in the order of their first places."""
    return list(dict.fromkeys(re.findall(r"orders-[0-9]+", text)))


@pytest.mark.parametrize(
    "words",
    [
        ("info",),
        ("stats",),
        ("verify",),
        ("recover",),
        ("retain", "--config", "retention.ms=1", "--high-watermark", "end"),
        ("read",),
    ],
)
def test_partitions_come_by_number(kseg: Kseg, data: Path, words: tuple[str, ...]) -> None:
    if words[0] in ("verify", "recover"):
        for path in data.glob("*/*.index"):
            path.unlink()
    form = ("--format", "jsonl") if words[0] == "read" else ()
    text = kseg(words[0], data, *words[1:], *form).text.replace('"', " ")
    assert in_order(text) == ["orders-0", "orders-1", "orders-2", "orders-10"]


def test_a_scan_reads_partitions_by_number(data: Path) -> None:
    assert [one.partition for one in library.scan(data).sources] == [0, 1, 2, 10]


@pytest.mark.parametrize(("offsets", "silent"), [("1..", False), ("0..", True), ("..0", False)])
def test_offsets_that_are_not_there_are_told(
    kseg: Kseg, data: Path, offsets: str, silent: bool
) -> None:
    ran = kseg("read", data / "orders-0", "--offset", offsets)
    assert ran.code == 0
    wanted = f"kseg: {data / 'orders-0'}: nothing is there: the log holds offsets 0 to 0\n"
    assert ran.err == ("" if silent else wanted)


def test_an_empty_log_says_where_it_goes_on(kseg: Kseg, tmp_path: Path) -> None:
    with library.Log.open(tmp_path / "t-0", mode="append", create=True) as log:
        pass
    ran = kseg("read", tmp_path / "t-0", "--offset", "5")
    assert "the log has no records; its next offset is 0" in ran.err
    assert log.log_end_offset == 0


def test_a_closed_log_gives_nothing_any_more(tmp_path: Path) -> None:
    with library.Log.open(tmp_path / "t-0", mode="append", create=True) as log:
        log.append({"value": ["x"]})
        assert log.fetch(0).size
    for use in (
        lambda: log.fetch(0),
        lambda: next(log.follow(0)),
        lambda: log.append({"value": ["y"]}),
    ):
        with pytest.raises(KsegError, match="t-0: the log is closed"):
            use()


def test_convert_takes_directories(kseg: Kseg, data: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    ran = kseg("convert", data, "-o", out, "--codec", "zstd", "--json")
    assert ran.code == 0
    assert len(ran.document["files"]) == 4
    for number in (0, 1, 2, 10):
        assert (out / f"orders-{number}" / f"{0:020d}.log").is_file()
    assert library.scan(out).to_arrow() == library.scan(data).to_arrow()
    ran = kseg("convert", data, "-o", out)
    assert (ran.code, "--force replaces it" in ran.err) == (3, True)
    ran = kseg("convert", data / "orders-10", "-o", out, "--force")
    assert (ran.code, "kseg reindex" in ran.err) == (0, True)
    ran = kseg("convert", data, "-o", data, "--force")
    assert (ran.code, "is PATH itself" in ran.err) == (2, True)
    ran = kseg("convert", data, "-o", "-")
    assert (ran.code, "has to be a directory" in ran.err) == (2, True)


@pytest.mark.parametrize(
    ("times", "code", "text"),
    [
        ([NOW_MS, NOW_MS + DAY_MS], None, ""),
        ([NOW_MS, -1], None, ""),
        (
            [NOW_MS + DAY_MS + 1, NOW_MS + 9 * DAY_MS],
            "time-ahead",
            "2 batches have such a time, the latest 2025-10-18",
        ),
        ([NOW_MS, 2**63 - 1], "time-ahead", "1 batch has such a time"),
        ([-2, -DAY_MS], "time-negative", "2 batches have such a time, the earliest 1969-12-31"),
        ([NOW_MS, -(2**63)], "time-negative", "1 batch has such a time"),
    ],
)
def test_verify_warns_of_times_that_hold_retention(
    kseg: Kseg, tmp_path: Path, times: list[int], code: str | None, text: str
) -> None:
    parts = [batch([record(b"", timestamp=time)], base_offset=at) for at, time in enumerate(times)]
    path = write_segment(tmp_path / "t-0", 0, *parts)
    ran = kseg("verify", path, "--now", str(NOW_MS), "--json")
    assert ran.code == 0
    found = [(one["code"], one["severity"]) for one in ran.document["findings"]]
    assert [each for each in found if each[0].startswith("time-") and "index" not in each[0]] == (
        [] if code is None else [(code, "warning")]
    )
    assert text in ran.text


def test_stats_says_what_it_estimates_and_with_which_error(kseg: Kseg, data: Path) -> None:
    text = kseg("stats", data).text
    assert "p50 and p99 are estimates, at most 6.25% too large; max is exact" in text
    assert "keys, the different ones, are estimated with a standard error of 1.6%" in text
    (row, *_rest) = kseg("stats", data, "--json").document["partitions"]
    assert row["record_bytes"]["quantile_error"] == 0.0625
    assert row["distinct_keys_error"] == 0.016
    assert "estimate" not in kseg("stats", data, "--headers").text


TIMES = "--time 2030-01-01T00:00:00.000Z.."


@pytest.mark.parametrize("jobs", ["1", "2"])
@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("read", "--time", "2030-01-01.."), f"record found in {TIMES}"),
        (("read", "--time", "..5"), "record found in --time ..1970-01-01T00:00:00.005Z"),
        (("read", "--time", "2030-01-01..", "--last", "2"), f"record found in {TIMES}"),
        (("dump", "--time", "2030-01-01.."), f"record found in {TIMES}"),
        (("dump", "--batches", "--offset", "5.."), "batch found in --offset 5.."),
        (
            ("dump", "--offset", "5..9", "--time", "2030-01-01.."),
            f"record found in --offset 5..9 {TIMES}",
        ),
    ],
)
def test_ranges_that_have_nothing_are_told(
    kseg: Kseg, data: Path, words: tuple[str, ...], told: str, jobs: str
) -> None:
    ran = kseg(words[0], data, *words[1:], "--jobs", jobs, "--format", "jsonl")
    assert (ran.code, ran.text) == (0, "")
    assert ran.err == f"kseg: no {told}\n"


@pytest.mark.parametrize(
    "words",
    [
        ("read", "--time", "2020-01-01.."),
        ("read", "--time", "2030-01-01..", "--limit", "0"),
        ("read", "--key", "no such key"),
        ("dump", "--offset", "0.."),
    ],
)
def test_where_something_lies_in_the_ranges_nothing_is_told(
    kseg: Kseg, data: Path, words: tuple[str, ...]
) -> None:
    ran = kseg(words[0], data, *words[1:])
    assert (ran.code, ran.err) == (0, "")


def test_a_file_without_records_in_a_range_is_told_too(kseg: Kseg, data: Path) -> None:
    ran = kseg("read", data / "orders-0" / f"{0:020d}.log", "--offset", "5..")
    assert ran.err == "kseg: no record found in --offset 5..\n"


def test_a_word_that_is_no_verb_of_spark_is_called_so(kseg: Kseg) -> None:
    for words, told in (
        (("spark", "verfy", "x"), "No such verb 'verfy'. Did you mean 'verify'?"),
        (("spark", "xyz"), "No such verb 'xyz'."),
        (("xyz",), "No such verb 'xyz'."),
        (("verfy",), "No such verb 'verfy'. Did you mean 'verify'?"),
    ):
        ran = kseg(*words)
        program = " ".join(("kseg", *words[:-1])) if words[0] != "spark" else "kseg spark"
        assert ran.err.startswith(f"kseg: {told} Try '{program}")
        assert ran.code == 2


@pytest.mark.parametrize("verb", ["export", "convert"])
@pytest.mark.parametrize("name", ["pipe.csv", "link.csv", "/dev/full"])
def test_what_is_no_regular_file_is_not_replaced(
    kseg: Kseg, data: Path, tmp_path: Path, verb: str, name: str
) -> None:
    os.mkfifo(tmp_path / "pipe.csv")
    (tmp_path / "link.csv").symlink_to("pipe.csv")
    target = tmp_path / name
    source = data / "orders-0" / f"{0:020d}.log"
    more = ("--force",) if verb == "convert" else ()
    ran = kseg(verb, source, "-o", target, *more)
    is_directory = verb == "export" and target.suffix != ".csv"
    told = "not a directory" if is_directory else "not a regular file; nothing replaces it"
    assert (ran.code, ran.err) == (3, f"kseg: {target}: {told}\n")
    assert not target.is_file()
    assert target.exists()


def test_a_file_where_a_directory_is_to_be_is_called_so(kseg: Kseg, data: Path) -> None:
    (data.parent / "taken").write_bytes(b"")
    for out in ("taken", "taken/out.csv"):
        ran = kseg("export", data / "orders-0", "-o", data.parent / out)
        assert (ran.code, ran.err) == (3, f"kseg: {data.parent / 'taken'}: not a directory\n")


def refused() -> Any:
    """What a call does for whom the system lets neither read nor write."""

    def run(path: Any, *_rest: Any, **_named: Any) -> Any:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), os.fspath(path))

    return run


def test_a_file_that_cannot_be_made_is_called_by_its_own_name(
    kseg: Kseg, data: Path, tmp_path: Path
) -> None:
    target = tmp_path / "out.csv"
    with io.calls_replaced(io.Calls(open=refused())):
        ran = kseg("export", data / "orders-0", "-o", target)
    shown = f"this shows whose it is: ls -ld {tmp_path}"  # the file is not there
    assert (ran.code, ran.err) == (3, f"kseg: {target}: Permission denied; {shown}\n")


def test_one_partition_that_cannot_be_read_is_the_file_system_s_no(
    kseg: Kseg, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none_readable(entries: Any, skipped: list[Any]) -> list[Any]:
        no = PermissionError(errno.EACCES, "Permission denied", "x")
        skipped.extend(Unreadable(one.path, no) for one in entries)
        return []

    monkeypatch.setattr(paths, "readable_partitions", none_readable)
    ran = kseg("lookup", data / "orders-0", "--offset", "0")
    assert (ran.code, ran.err) == (3, "kseg: x: Permission denied\n")


def test_what_is_missing_is_not_to_be_deleted(kseg: Kseg, data: Path) -> None:
    for path in (data / "orders-0").glob("*index"):
        path.unlink()
    found = kseg("verify", data / "orders-0", "--json").document["findings"]
    advice = {one["code"]: one["advice"] for one in found if one["code"].endswith("missing")}
    assert sorted(advice) == ["index-missing", "time-index-missing"]
    assert not any("delete" in each for each in advice.values())
