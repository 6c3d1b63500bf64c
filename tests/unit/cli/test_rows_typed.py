"""Records of internal topics in `dump` and `read`: by name or asked for, and bytes that lie."""

from __future__ import annotations

import re
import unicodedata
from datetime import UTC, datetime
from pathlib import Path
from struct import pack

import polars
import pyarrow.parquet as pq
import pytest

from kseg.records import lake
from tests.builders import batch, record, write_segment
from tests.internal_schemas import encode_message
from tests.shares import share
from tests.terminal import on_a_terminal
from tests.unit.cli.conftest import Kseg

# ---- terminals -----------------------------------------------------------------------------------

STEERING = b"\x1b]0;owned\x07\x1b[2J\r\x9b1A\x7f\xc2\x9b\xe2\x80\xae\xe2\x80\xa8"
#: Controls, formats, separators, surrogates: what may steer a terminal, but for line ends.
STEERS = ("Cc", "Cf", "Cs", "Zl", "Zp")


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory whose name, keys, values and headers all try to steer a terminal."""
    directory = tmp_path_factory.mktemp("\x1b[31mred") / "__consumer_offsets-0"
    text = STEERING.decode("latin-1")
    key = pack(">h", 2) + encode_message("GroupMetadataKey", 0, {"group": text})
    records = [
        record(STEERING, key=STEERING, headers=((STEERING, STEERING),)),
        record(None, key=key),
        record(STEERING, key=key),
        record(pack(">h", 9) + STEERING, key=key),
    ]
    # The last value does not fit its message, which ends Kafka's tool with an exception.
    write_segment(directory, 0, batch(records), batch([record(STEERING, key=b"\0")], base_offset=9))
    return directory


TERMINALS: list[tuple[str, ...]] = [
    ("dump", "--kafka", "--deep-iteration"),
    ("dump", "--kafka", "--print-data-log"),
    ("dump", "--kafka", "--print-data-log", "--skip-record-metadata"),
    ("dump", "--kafka", "--print-data-log", "--kafka-version", "2.8"),
    ("dump", "--kafka", "--offsets-decoder"),
    ("dump", "--kafka", "--cluster-metadata-decoder"),
    ("dump", "--kafka", "--value-decoder-class", "long"),
    ("dump",),
    ("dump", "--raw"),
    ("dump", "--format", "jsonl"),
    ("dump", "--format", "csv", "--bytes", "utf8"),
    ("read",),
    ("read", "--format", "jsonl", "--bytes", "utf8"),
    ("info",),
    ("stats",),
    ("explain", "--segments"),
]


@pytest.mark.parametrize("words", share(TERMINALS, 6, "terminals"), ids=" ".join)
def test_nothing_that_steers_reaches_a_terminal(hostile: Path, words: tuple[str, ...]) -> None:
    shown = on_a_terminal(*words, hostile)
    assert len(shown) > 100
    text = re.sub("\r+\n|\x1b\\[[0-9;?]*[mKlhA]|\r(?=\x1b)", "", shown.decode())
    assert [one for one in text if unicodedata.category(one) in STEERS] == []


DAY_MS = 24 * 60 * 60 * 1000
FIRST_MS = 20_000 * DAY_MS  # 2024-10-04


# ---- --partition-by ------------------------------------------------------------------------------


@pytest.fixture
def days(tmp_path: Path) -> Path:
    """Two topics, records of three days not in order, and one without a time."""
    times = [FIRST_MS, FIRST_MS + DAY_MS, FIRST_MS + 5, FIRST_MS + 2 * DAY_MS, -1]
    for name in ("orders-0", "users-3"):
        given = [record(b"%d" % n, timestamp=time) for n, time in enumerate(times)]
        write_segment(tmp_path / "data" / name, 0, batch(given))
    return tmp_path / "data"


def files_under(out: Path) -> list[str]:
    return sorted(str(path.relative_to(out)) for path in out.rglob("*") if path.is_file())


NO_DAY = "day=__HIVE_DEFAULT_PARTITION__"


def test_directories_say_day_and_topic_as_hive_has_them(
    kseg: Kseg, days: Path, tmp_path: Path
) -> None:
    out = tmp_path / "lake"
    ran = kseg("export", days, "-o", out, "--partition-by", "day,topic")
    assert ran.code == 0
    assert ran.err.splitlines()[0].endswith("part-orders-0.parquet: 5 records in 4 files")
    known = ["day=2024-10-04", "day=2024-10-05", "day=2024-10-06", NO_DAY]
    assert files_under(out) == sorted(
        f"{day}/topic={topic}/part-{topic}-{number}.parquet"
        for day in known
        for topic, number in (("orders", 0), ("users", 3))
    )
    table = pq.ParquetFile(out / known[0] / "topic=orders" / "part-orders-0.parquet").read()
    assert table["value"].to_pylist() == [b"0", b"2"]
    assert "topic" not in table.column_names
    every = out / "day=2024-10-0*" / "**" / "*.parquet"
    frame = polars.read_parquet(every, hive_partitioning=True)
    assert set(frame["topic"]) == {"orders", "users"}
    assert frame["day"].dt.to_string().unique().sort().to_list() == [day[4:] for day in known[:3]]


def test_few_files_are_open_and_a_day_that_comes_again_has_another(
    kseg: Kseg, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lake, "OPEN_MAX", 2)
    for base, days in ((0, [0, 1, 2]), (3, [0, 0, 2])):
        given = [record(b"%d" % day, timestamp=FIRST_MS + day * DAY_MS) for day in days]
        log = write_segment(tmp_path / "t-0", base, batch(given, base_offset=base)).parent
    out = tmp_path / "lake"
    assert kseg("export", log, "-o", out, "--partition-by", "day", "--format", "csv").code == 0
    rows = {name: (out / name).read_text().count("\n") - 1 for name in files_under(out)}
    assert rows == {
        "day=2024-10-04/part-t-0.csv": 1,
        "day=2024-10-04/part-t-0.2.csv": 2,
        "day=2024-10-05/part-t-0.csv": 1,
        "day=2024-10-06/part-t-0.csv": 2,
    }


def test_times_that_mean_nothing_do_not_fill_the_disk_with_files(
    kseg: Kseg, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lake, "_FILES_MAX", 3)
    given = [record(b"", timestamp=number * DAY_MS) for number in range(9)]
    log = write_segment(tmp_path / "t-0", 0, batch(given)).parent
    out = tmp_path / "lake"
    ran = kseg("export", log, "-o", out, "--partition-by", "day")
    assert (ran.code, "more than 3 files; --time" in ran.err) == (4, True)
    assert files_under(out) == []
    assert kseg("export", log, "-o", out, "--partition-by", "topic").code == 0


def test_times_at_the_ends_of_64_bits_have_a_day(kseg: Kseg, tmp_path: Path) -> None:
    given = [record(b"", timestamp=time) for time in (2**62, -2, 0)]
    log = write_segment(tmp_path / "t-0", 0, batch(given)).parent
    out = tmp_path / "lake"
    assert kseg("export", log, "-o", out, "--partition-by", "day").code == 0
    far = str(datetime.fromtimestamp(0, UTC).date())
    assert {name.split("/")[0] for name in files_under(out)} >= {f"day={far}", "day=1969-12-31"}
