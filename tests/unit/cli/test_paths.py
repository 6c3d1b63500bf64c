"""Partition directories that are empty, or cannot be read, hide none of the others."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import kseg
from kseg.cli.main import run
from kseg.files import producer_snapshot
from kseg.files.names import list_data_directory
from tests.builders import batch, record, write_segment
from tests.shares import share
from tests.unit.cli.conftest import Kseg, Ran
from tests.unit.log.logs import one, open_log
from tests.unit.log.settings import made

#: `CAP_DAC_OVERRIDE` and `CAP_DAC_READ_SEARCH`: by these, modes do not concern root.
CAPABILITIES = (1, 2)
CAPABILITIES_VERSION = 0x20080522


@pytest.fixture
def data(tmp_path: Path) -> Iterator[Path]:
    """A data directory with orders-0 and orders-2, three records each."""
    for number in (0, 2):
        with open_log(tmp_path / "data" / f"orders-{number}") as log:
            log.append(one(count=3))
    yield tmp_path / "data"
    for path in (tmp_path / "data").iterdir():
        if path.is_dir() and not path.is_symlink():
            path.chmod(0o755)


def _forbidden(path: Path) -> None:
    write_segment(path, 0, batch([record(b"hidden")]))
    path.chmod(0)


def _not_to_be_searched(path: Path) -> None:
    write_segment(path, 0, batch([record(b"hidden")]))
    path.chmod(0o444)


def _forbidden_log(path: Path) -> None:
    write_segment(path, 0, batch([record(b"hidden")])).chmod(0)


def _dangling(path: Path) -> None:
    path.symlink_to("gone")


def _circle(path: Path) -> None:
    path.symlink_to(path.name)


#: Those that only a user without root's rights cannot read stand first.
UNREADABLE: dict[str, Callable[[Path], None]] = {
    "forbidden": _forbidden,
    "not to be searched": _not_to_be_searched,
    "forbidden log": _forbidden_log,
    "dangling": _dangling,
    "circle": _circle,
}
FOR_ROOT_TOO = [UNREADABLE["dangling"], UNREADABLE["circle"]]

VERBS = [
    ["info", "--json"],
    ["stats", "--json"],
    ["read", "--format", "jsonl"],
    ["dump", "--format", "jsonl"],
    ["export", "-o", "../out"],
    ["reindex", "--json"],
    ["verify", "--json"],
]
SHOWN = {"info", "stats", "reindex"}  # a row a partition


class _Capabilities(ctypes.Structure):
    """What `capget` and `capset` take: the first 32 of a process, then the others."""

    _fields_ = [
        (f"{kind}_{half}", ctypes.c_uint32)
        for half in ("low", "high")
        for kind in ("effective", "permitted", "inheritable")
    ]


def heed_modes() -> None:
    """Let modes of files concern this process from now on, if it is root's."""
    system, has = ctypes.CDLL(None), _Capabilities()
    header = (ctypes.c_uint32 * 2)(CAPABILITIES_VERSION, 0)
    assert system.capget(header, ctypes.byref(has)) == 0
    for capability in CAPABILITIES:
        has.effective_low &= ~(1 << capability)
        has.permitted_low &= ~(1 << capability)
    assert system.capset(header, ctypes.byref(has)) == 0


Heeding = Callable[..., Ran]


@pytest.fixture
def kseg_heeding_modes(data: Path, tmp_path: Path) -> Heeding:
    """`kseg WORDS .`, or of `orders-1` in place of `.`: a fork that reads what modes let it."""
    out, err = tmp_path / "printed", tmp_path / "told"

    def go(*words: str) -> Ran:
        child = os.fork()
        if child == 0:
            code = 70
            try:
                for path, stream in ((out, 1), (err, 2)):
                    os.dup2(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC), stream)
                sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w")
                os.chdir(data)
                heed_modes()
                code = run([*words, *([] if words[-1] == "orders-1" else ["."])])
                sys.stdout.flush()
                sys.stderr.flush()
            finally:
                os._exit(code)
        _, status = os.waitpid(child, 0)
        return Ran(os.waitstatus_to_exitcode(status), out.read_bytes(), err.read_text())

    return go


@pytest.mark.parametrize(
    ("words", "name"),
    [(words, name) for words in VERBS for name in share(UNREADABLE, 2, words[0])],
)
def test_a_verb_gives_the_rest_and_exits_3(
    kseg_heeding_modes: Heeding, data: Path, words: list[str], name: str
) -> None:
    UNREADABLE[name](data / "orders-1")
    ran = kseg_heeding_modes(*words)
    if words[0] == "verify":  # a finding says so
        assert ran.code == 1
        assert {each["code"] for each in ran.document["findings"]} == {"unreadable"}
        assert ran.document["records"] == 6
        return
    assert ran.code == 3
    told = [line for line in ran.err.splitlines() if "orders-1" in line]
    assert len(told) == 1
    assert told[0].startswith(("kseg: orders-1", "kseg: ./orders-1"))
    if words[0] in SHOWN:
        assert [row["partition"] for row in ran.document["partitions"]] == [0, 2]
    elif words[0] in ("read", "dump"):
        assert [row["dir"] for row in ran.rows] == (["orders-0"] * 3 + ["orders-2"] * 3)
    elif words[0] == "export":
        assert sorted(path.name for path in (data.parent / "out").iterdir()) == [
            "orders-0.parquet",
            "orders-2.parquet",
        ]
    else:
        assert ran.document["records"] == 6


@pytest.mark.parametrize("make", UNREADABLE.values(), ids=UNREADABLE)
def test_recover_plans_the_rest(
    kseg_heeding_modes: Heeding, data: Path, make: Callable[[Path], None]
) -> None:
    make(data / "orders-1")
    ran = kseg_heeding_modes("recover", "--json")
    assert [Path(one["path"]).name for one in ran.document["partitions"]] == [
        "orders-0",
        "orders-2",
    ]
    assert "orders-1" in ran.err
    assert ran.code == 3


@pytest.mark.parametrize("make", [_forbidden, _not_to_be_searched, _forbidden_log])
def test_the_doctor_has_a_row_for_each_partition(
    kseg_heeding_modes: Heeding, data: Path, make: Callable[[Path], None]
) -> None:
    (data / "orders-2" / "partition.metadata").write_text(made.partition_metadata(made.FIRST))
    broker = made.Broker(data)
    broker.says([made.topic("orders")])
    make(broker.path / "orders-1")
    ran = kseg_heeding_modes("doctor", "--json")
    outcomes = {
        Path(one["path"]).name: one["outcome"]
        for one in ran.document["directories"][0]["partitions"]
    }
    (broker.path / "orders-1").chmod(0o755)
    assert outcomes == {
        "__cluster_metadata-0": "starts",
        "orders-0": "starts",
        "orders-1": "directory-offline",
        "orders-2": "starts",
    }
    assert ran.code == 1


def test_a_log_does_not_end_in_front_of_a_segment_that_cannot_be_read(
    kseg_heeding_modes: Heeding, data: Path
) -> None:
    path = data / "orders-1"
    write_segment(path, 0, batch([record(b"v")]))
    write_segment(path, 1, batch([record(b"v")], base_offset=1)).chmod(0)
    producer_snapshot.write(path / f"{2:020d}.snapshot", [], sync=False)
    ran = kseg_heeding_modes("verify", "--json", "orders-1")
    found = {one["code"] for one in ran.document["findings"]}
    assert "unreadable" in found
    assert "snapshot-ahead" not in found
    assert ran.code == 1


@pytest.mark.parametrize("words", VERBS, ids=lambda words: words[0])
def test_an_empty_directory_is_a_partition_without_records(
    kseg_heeding_modes: Heeding, data: Path, words: list[str]
) -> None:
    (data / "orders-1").mkdir()
    ran = kseg_heeding_modes(*words)
    assert (ran.code, "orders-1" in ran.err) == (0, words[0] == "export")
    if words[0] in SHOWN:
        assert [row["partition"] for row in ran.document["partitions"]] == [0, 1, 2]


@pytest.mark.parametrize("make", FOR_ROOT_TOO)
def test_a_scan_is_refused_before_its_first_record(
    data: Path, make: Callable[[Path], None]
) -> None:
    make(data / "orders-1")
    with pytest.raises(OSError, match="orders-1"):
        kseg.scan(data)
    assert kseg.scan(data, partitions=[0, 2]).to_arrow().num_rows == 6


@pytest.mark.parametrize("make", FOR_ROOT_TOO)
def test_a_scan_skips_and_says_what(data: Path, make: Callable[[Path], None]) -> None:
    make(data / "orders-1")
    found = kseg.scan(data, on_error="skip")
    assert found.to_arrow().num_rows == 6
    assert [one.path for one in found.skipped] == [data / "orders-1"]
    assert str(found.skipped[0]).startswith(str(data / "orders-1"))


def test_verbs_that_take_records_away_pass_over_nothing(
    kseg_heeding_modes: Heeding, data: Path
) -> None:
    _forbidden(data / "orders-1")
    for words in (["recover"], ["retain", "--config", "retention.bytes=1"]):
        ran = kseg_heeding_modes(*words)
        assert ran.code in (1, 3)
        assert "orders-1" in ran.err


def test_a_file_under_a_partitions_name_is_a_stranger(kseg: Kseg, data: Path) -> None:
    """As Kafka has it; a broker passes over it."""
    (data / "orders-1").write_bytes(b"")
    listing = list_data_directory(data)
    assert (listing.foreign, listing.lost) == ((data / "orders-1",), ())
    assert kseg("info", data).code == 0
