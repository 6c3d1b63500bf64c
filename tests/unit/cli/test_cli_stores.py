"""URLs as arguments: each verb reads a store as it reads a disk, or refuses it in words."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from kseg.cli.main import VERBS
from kseg.cli.options import STORE_VERBS
from tests.builders import ZSTD, batch, record, write_segment
from tests.coordinators import OFFSETS, LogWriter, commit
from tests.tidy import tree
from tests.unit.analysis.test_groups import classic
from tests.unit.analysis.test_schemas import write_registry
from tests.unit.cli.conftest import Kseg
from tests.unit.log.settings.made import FIRST, Broker, partition, setting, topic

URL = "memory://verbs/data"
#: Verbs that read stores: a command line each, with URL in place of the data directory.
READ = {
    "info": "URL --json",
    "dump": "URL --format jsonl",
    "verify": "URL --deep --json",
    "read": "URL/orders-0 --isolation read_committed --format jsonl",
    "grep": "value URL --format jsonl",
    "lookup": "URL/orders-0 --offset 7 --json",
    "groups": "URL --group * --now 2026-01-01 --json",
    "transactions": "URL --all --now 2026-01-01 --json",
    "schemas": "URL --json",
    "metadata": "URL --json",
    "export": "URL/orders-0 -o OUT",
    "stats": "URL --json",
    "diff": "URL COPY --json",
    "adopt": "URL --into COPY --json",
}
#: The others, and what reading verbs do not take.
REFUSED = {
    "convert": "URL -o OUT --codec zstd",
    "convert in place": "URL --codec zstd --apply",
    "convert -o": "DIR/orders-0 -o URL --codec zstd",
    "append": "URL/new-0",
    "doctor": "URL",
    "explain": "URL",
    "report": "URL -o OUT",
    "report -o": "DIR -o URL",
    "merge": "URL DIR -o OUT",
    "merge -o": "DIR DIR -o URL",
    "merge --prefer": "DIR DIR -o OUT --prefer URL",
    "salvage": "URL -o OUT",
    "salvage -o": "DIR -o URL",
    "recover": "URL --apply",
    "recover --backup-dir": "DIR --apply --backup-dir URL",
    "recover -o": "DIR -o URL",
    "reindex": "URL/orders-0 --apply",
    "adopt --into": "DIR --into URL",
    "erase": "URL --offset 1",
    "truncate": "URL/orders-0 --to 1 --apply",
    "truncate --backup-dir": "DIR/orders-0 --to 1 --apply --backup-dir URL",
    "retain": "URL --apply",
    "retain -o": "DIR --apply -o URL",
    "compact": "URL --apply",
    "compact -o": "DIR -o URL",
    "compact --backup-dir": "DIR --apply --backup-dir URL",
    "spark": "export DIR -o URL",
    "demo": "-o URL",
    "dump --kafka": "--kafka URL/orders-0/00000000000000000000.log",
    "read --follow": "URL/orders-0 --follow",
    "groups --reset-commands": "DIR --group * --reset-commands URL",
}
#: Verbs that read no files.
NO_PATHS = {"partition", "completion"}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A data directory with logs of every kind, on the disk and at `URL`."""
    import fsspec

    home = write_registry(tmp_path_factory.mktemp("stores") / "data")
    write_segment(home / "orders-0", 0, batch([record(b"value", key=b"k")] * 9, codec=ZSTD))
    write_segment(home / "orders-0", 9, batch([record(b"other")], base_offset=9))
    (home / "log-start-offset-checkpoint").write_text("0\n1\norders 0 1\n")
    LogWriter(home / f"{OFFSETS}-0").add([classic("g", "t"), commit("g", "t", 0, 4)], 1000).write()
    said = [topic("orders"), partition(FIRST, 0, [7]), setting("segment.bytes", "4096")]
    Broker(home).says(said, times=[1_700_000_000_000])
    shutil.copytree(home, home.with_name("copy"))
    system = fsspec.filesystem("memory")
    system.put(str(home), "/verbs/data", recursive=True)
    yield home
    system.rm("/verbs", recursive=True)


def test_every_verb_is_in_the_table() -> None:
    assert READ.keys() == set(STORE_VERBS)
    assert READ.keys() | {name.split()[0] for name in REFUSED} | NO_PATHS == VERBS.keys()
    page = (tree.ROOT / "docs" / "tiers.md").read_text()
    listed = re.search(r"These verbs read URLs: (.*?)\.", page, re.DOTALL)
    assert listed is not None
    assert set(re.findall(r"`(\w+)`", listed[1])) == READ.keys()


@pytest.mark.parametrize("verb", READ)
def test_a_store_is_answered_as_a_disk_is(
    kseg: Kseg, data: Path, tmp_path: Path, verb: str
) -> None:
    ran = []
    for place in (str(data), URL):
        words = READ[verb].replace("OUT", str(tmp_path / "out.parquet"))
        words = words.replace("URL", place).replace("COPY", str(data.with_name("copy")))
        one = kseg(verb, *words.split())
        ran.append((one.code, one.text.replace(URL, str(data)), one.err.replace(URL, str(data))))
    assert ran[0] == ran[1]
    assert ran[0][1] or verb == "export"
    assert ran[0][0] in (0, 1)


@pytest.mark.parametrize("name", REFUSED)
def test_a_store_is_refused_in_words_and_nothing_is_written(
    kseg: Kseg, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    before = files_in(data.parent)
    words = REFUSED[name].replace("DIR", str(data)).replace("OUT", str(tmp_path / "out"))
    ran = kseg(name.split()[0], *words.replace("URL", URL).split())
    assert ran.code == 2
    assert URL in ran.err
    assert " is a URL, and " in ran.err
    assert list(tmp_path.iterdir()) == []
    assert files_in(data.parent) == before


def files_in(directory: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in directory.rglob("*")}
