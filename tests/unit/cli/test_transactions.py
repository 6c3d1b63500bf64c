"""`kseg transactions`: lines, JSON and exit codes."""

from __future__ import annotations

from pathlib import Path

import pytest

import kseg as library
from tests.coordinators import TRANSACTIONS, LogWriter
from tests.unit.analysis.test_transactions import DATA, ONGOING, state
from tests.unit.cli.conftest import Kseg


@pytest.fixture
def data(tmp_path: Path) -> Path:
    directory = tmp_path / "data"
    log = LogWriter(directory / "t-0").add(DATA, 1000, producer_id=1)
    log.end_transaction(1, 2000, commits=True).add(DATA, 3000, producer_id=2).write()
    LogWriter(directory / "t-1").add(DATA, 1000, producer_id=1).write()
    states = [state("a", 1, ONGOING, 1)]
    LogWriter(directory / f"{TRANSACTIONS}-0").add(states, 1000).write()
    return directory


def test_the_lines_say_what_hangs_and_what_ends_it(kseg: Kseg, data: Path) -> None:
    ran = kseg("transactions", data, "--now", "2025-01-01")
    assert (ran.code, ran.err) == (1, "")
    script = "    kafka-transactions.sh --bootstrap-server HOST:PORT"
    assert ran.text.splitlines() == [
        "hanging: t-0: offsets 3 to 4, 2 records, 79 B, since 1970-01-01T00:00:03.000Z",
        "  producer 2, without a transactional id: no transactional id has its producer",
        "  holds: last-stable-offset",
        f"{script} abort --topic t --partition 0 --start-offset 3",
        "open: t-1: offsets 0 to 1, 2 records, 79 B, since 1970-01-01T00:00:01.000Z",
        "  producer 1, a: the coordinator has Ongoing, and will end it at its timeout",
        "  holds: last-stable-offset",
        f"{script} forceTerminateTransaction --transactionalId a",
        "1 hanging, 1 open, 1 committed",
    ]
    ran = kseg("transactions", data, "--topic", "t", "--partition", "1", "--all", "--at", "1500")
    assert ran.code == 0
    assert "committed" not in ran.text
    assert f"{TRANSACTIONS}-0: taken up to offset 0" in ran.text


def test_the_document_has_the_fields_of_the_report(kseg: Kseg, data: Path) -> None:
    document = kseg("transactions", data, "--json", "--now", "10000").document
    assert document.pop("schema") == "kseg.transactions/1"
    assert document.pop("path") == str(data)
    assert document == library.transactions(data, now=10_000).to_json()
    assert document["counts"]["open"] == 2


def test_codes_are_listed_and_a_directory_is_needed(kseg: Kseg, tmp_path: Path) -> None:
    assert "marker-alone" in kseg("transactions", "--codes").text
    assert kseg("transactions").code == 2
    LogWriter(tmp_path / "t-0").add(DATA).write()
    assert kseg("transactions", tmp_path).text == "no transactions\n"


@pytest.mark.parametrize("verb", ["info", "verify"])
def test_other_verbs_name_an_open_transaction_and_this_one(
    kseg: Kseg, data: Path, verb: str
) -> None:
    lines = [line for line in kseg(verb, data).text.splitlines() if line.startswith("note: ")]
    assert [line.removeprefix(f"note: {data}/") for line in lines] == [
        f"t-{partition}: a transaction is open at offset {offset}; 'kseg transactions' shows how "
        "to end it"
        for partition, offset in ((0, 3), (1, 0))
    ]
    assert kseg(verb, data, "--json").document
    ran = kseg("read", data / "t-1", "--isolation", "read_committed")
    assert "'kseg transactions' shows how to end it" in ran.err


def test_a_topic_that_is_not_here_is_refused(kseg: Kseg, data: Path) -> None:
    ran = kseg("transactions", data, "--topic", "t2")
    assert (ran.code, "no topic here is t2; " in ran.err) == (2, True)
