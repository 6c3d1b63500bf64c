"""Damage on the disk is never taken for a mistake in the command line, whichever verb meets it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import click
import pytest

import kseg as package
from kseg.cli.failures import Exit, usage_errors
from kseg.cli.main import VERBS
from kseg.errors import (
    AppendError,
    CorruptRecordError,
    DecompressionError,
    InvalidRecordError,
    KsegError,
)
from kseg.spark.damage import code_of
from tests.builders import batch, record, write_segment
from tests.inner_faults import ERAS, wrong_inner_message
from tests.shares import share
from tests.unit.cli.conftest import Kseg

DEMO = Path(package.__file__).parent / "demo_data"
#: These read no log that is named, need Java, or take seconds whatever they are given.
WITHOUT = {"completion", "demo", "spark", "partition"}

#: The words of each verb: DIR is the data directory, PART the partition that is damaged.
WORDS = [
    "info DIR",
    "stats DIR",
    "dump PART",
    "dump --decode transactions PART",
    "verify --deep DIR",
    "read DIR --isolation read_committed --decode-value json",
    "grep -e key-1. DIR",
    "groups DIR",
    "transactions DIR",
    "lookup PART --offset 40",
    "lookup PART --time 2025-10-09",
    "schemas DIR",
    "metadata DIR",
    "export DIR -o OUT --format csv --partition-by day",
    "convert DIR -o OUT --magic 1 --drop",
    "append PART",
    "adopt DIR --into COPY --undecided abort --apply",
    "doctor DIR",
    "explain DIR",
    "report DIR --json",
    "diff DIR COPY --records",
    "merge DIR COPY -o OUT",
    "salvage DIR -o OUT",
    "recover DIR --apply",
    "reindex DIR --apply",
    "truncate PART --to 40 --apply",
    "retain DIR --config retention.ms=1 --apply",
    "compact DIR --all --config cleanup.policy=compact --apply",
    "erase DIR --key key-1 --apply",
]


def flip(at: int) -> Callable[[bytes], bytes]:
    return lambda data: data[:at] + bytes([data[at] ^ 0xFF]) + data[at + 1 :]


#: Which files of the partition or its data directory are damaged, and how.
DAMAGE: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
    "offset": ("orders-0/*.log", flip(0)),
    "length": ("orders-0/*.log", flip(8)),
    "magic": ("orders-0/*.log", flip(16)),
    "crc": ("orders-0/*.log", flip(17)),
    "count": ("orders-0/*.log", flip(58)),
    "records": ("orders-0/*.log", flip(70)),
    "a tail of one byte": ("orders-0/*.log", lambda data: data + b"x"),
    "text for a log": ("orders-0/*.log", lambda _data: b"not a log\n" * 50),
    "no log": ("orders-0/*.log", lambda _data: b""),
    "index": ("orders-0/*.index", lambda _data: b"\xff" * 13),
    "time index": ("orders-0/*.timeindex", lambda _data: b"\xff" * 13),
    "transaction index": ("payments-0/*.txnindex", lambda _data: b"\xff" * 34),
    "snapshot": ("orders-0/*.snapshot", flip(3)),
    "epochs": ("orders-0/leader-epoch-checkpoint", lambda _data: b"0\n\xff\n"),
    "checkpoints": ("*-checkpoint", lambda _data: b"0\n1\n\xff"),
    "topic id": ("*/partition.metadata", lambda _data: b"version: 0\ntopic_id: \xff\n"),
    "broker": ("meta.properties", lambda _data: b"version=x\nnode.id=\xff\n"),
    "clean shutdown": (".kafka_cleanshutdown", lambda _data: b"\xff"),
    "settings": ("__cluster_metadata-0/*.log", flip(66)),
    "no settings": ("__cluster_metadata-0/*.log", lambda _data: b"\xff" * 99),
}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Some logs of the demo, with a metadata log that has a record of no known type."""
    shutil.copytree(DEMO, tmp_path / "data", ignore=shutil.ignore_patterns("clicks-*", "*-1"))
    write_segment(tmp_path / "data" / "__cluster_metadata-0", 0, batch([record(b"\x01\x7f\x00")]))
    return tmp_path / "data"


def test_there_are_words_for_every_verb() -> None:
    assert {words.split()[0] for words in WORDS} == set(VERBS) - WITHOUT


@pytest.mark.parametrize(
    ("words", "name"),
    [(words, name) for words in WORDS for name in share(DAMAGE, 4, words)],
)
def test_damage_is_never_a_wrong_command_line_nor_a_bug(
    kseg: Kseg, data: Path, tmp_path: Path, words: str, name: str
) -> None:
    pattern, breaker = DAMAGE[name]
    broken = list(data.glob(pattern))
    assert broken
    for path in broken:
        path.write_bytes(breaker(path.read_bytes()))
    part = next(path.parent for path in broken) if "/" in pattern else data / "orders-0"
    places = {
        "DIR": data,
        "PART": data / "orders-0" if part.name.startswith("__") else part,
        "COPY": DEMO,
        "OUT": tmp_path / "out",
    }
    ran = kseg(*(places.get(word, word) for word in words.split()), stdin=b'{"value": "AA=="}\n')
    assert ran.code not in (Exit.USAGE, Exit.BUG), ran.err


@pytest.mark.parametrize("kind", [AppendError, DecompressionError, InvalidRecordError])
def test_an_error_of_what_lies_on_the_disk_is_none_of_usage(kind: type[KsegError]) -> None:
    with pytest.raises(kind), usage_errors():
        raise kind("x")


def test_a_wrong_value_is_an_error_of_usage_that_names_its_option() -> None:
    with pytest.raises(click.UsageError) as refused, usage_errors("--config"):
        raise ValueError("no such name")
    assert refused.value.message == "--config: no such name."


def test_only_messages_with_the_mark_are_of_usage_where_one_is_wanted() -> None:
    with pytest.raises(click.UsageError) as refused, usage_errors(marked="kseg: "):
        raise ValueError("kseg: no field x")
    assert refused.value.message == "no field x."
    with pytest.raises(click.UsageError) as refused, usage_errors():
        raise ValueError("kseg: said once")
    assert str(refused.value) == "said once."
    with pytest.raises(ValueError, match="a bug"), usage_errors(marked="kseg: "):
        raise ValueError("a bug")


# ---- a wrong checksum inside a sound compressed message ------------------------------------------

DOORS = {
    "read": ("read", "--format", "jsonl"),
    "export": ("export", "-o", "out.jsonl"),
    "convert": ("convert", "-o", "converted.log"),
}


@pytest.mark.parametrize("era", ERAS)
def test_readers_refuse_it_and_call_it_record_crc(tmp_path: Path, era: str) -> None:
    path = wrong_inner_message(tmp_path / "t-0", era)
    with pytest.raises(CorruptRecordError, match="inside does not match its checksum") as caught:
        list(package.scan(path))
    assert code_of(caught.value) == "record-crc"


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("door", DOORS)
def test_verbs_exit_1_and_name_it(
    kseg: Kseg, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, era: str, door: str
) -> None:
    path = wrong_inner_message(tmp_path / "t-0", era)
    monkeypatch.chdir(tmp_path)
    ran = kseg(*DOORS[door], path if door == "convert" else path.parent)
    assert ran.code == 1
    assert "a message inside does not match its checksum" in ran.err
